"""Measure inside a running program: `bwprof.Profiler`, and modules and profiles of PyTorch."""
