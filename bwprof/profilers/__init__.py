"""What other profilers measured, as frames: ncu, rocprof, PyTorch's traces, Nsight Systems. Files, never a device.

``python -m bwprof.profilers`` prints them; `bwprof.diagnose` says what they mean.
"""

from bwprof.profilers.amd.parsing import parse_rocprof
from bwprof.profilers.amd.session import RocprofSession, profile_matmul_memory, profile_memory, profile_memory_detailed
from bwprof.profilers.anything import load
from bwprof.profilers.comparing import ncu_compare
from bwprof.profilers.nsight.command import PRESETS, ncu_capture, ncu_command
from bwprof.profilers.nsight.parse import parse_ncu
from bwprof.profilers.timelines.chrome import parse_chrome_trace
from bwprof.profilers.timelines.nsys import parse_nsys

capture = ncu_capture

__all__ = [
    "PRESETS",
    "RocprofSession",
    "capture",
    "load",
    "ncu_capture",
    "ncu_command",
    "ncu_compare",
    "parse_chrome_trace",
    "parse_ncu",
    "parse_nsys",
    "parse_rocprof",
    "profile_matmul_memory",
    "profile_memory",
    "profile_memory_detailed",
]
