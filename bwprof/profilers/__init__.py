"""What other profilers measured, as frames: ncu, rocprof, PyTorch's traces, Nsight Systems. Files, never a device.

``python -m bwprof.profilers`` prints them; `bwprof.diagnose` says what they mean.
"""

from bwprof.profilers.amd.parsing import parse_rocprof
from bwprof.profilers.amd.session import RocprofSession, profile_matmul_memory, profile_memory, profile_memory_detailed
from bwprof.profilers.timelines.chrome import parse_chrome_trace
from bwprof.profilers.timelines.nsys import parse_nsys

__all__ = [
    "RocprofSession",
    "parse_chrome_trace",
    "parse_nsys",
    "parse_rocprof",
    "profile_matmul_memory",
    "profile_memory",
    "profile_memory_detailed",
]
