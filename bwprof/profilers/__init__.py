"""What other profilers measured, as frames: ncu, rocprof, PyTorch's traces, Nsight Systems. Files, never a device.

``python -m bwprof.profilers`` prints them; `bwprof.diagnose` says what they mean.
"""

from bwprof.profilers.nsight.command import PRESETS, ncu_capture, ncu_command
from bwprof.profilers.nsight.parse import parse_ncu

capture = ncu_capture

__all__ = ["PRESETS", "capture", "ncu_capture", "ncu_command", "parse_ncu"]
