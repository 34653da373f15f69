"""Import files of ncu, rocprof, torch.profiler and Nsight Systems as DataFrames; no GPU needed.

``bwprof import`` prints them; `bwprof.diagnose` explains them.
"""

from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.detect import load
from bwprof.importers.ncu.command import PRESETS, ncu_capture, ncu_command
from bwprof.importers.ncu.compare import ncu_compare
from bwprof.importers.ncu.parse import parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.rocprof import parse_rocprof
from bwprof.importers.rocprof_session import (
    RocprofSession,
    profile_matmul_memory,
    profile_memory,
    profile_memory_detailed,
)

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
