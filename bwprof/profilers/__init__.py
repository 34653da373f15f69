"""What other profilers measured, as frames: ncu, rocprof, PyTorch's traces, Nsight Systems. Files, never a device.

``python -m bwprof.profilers`` prints them; `bwprof.diagnose` says what they mean.
"""
