"""Import files of ncu, rocprof, torch.profiler and Nsight Systems as DataFrames; no GPU needed.

``bwprof import`` prints them; `bwprof.diagnose` explains them.
"""

from bwprof.importers.chrome import parse_chrome_trace as parse_chrome_trace
from bwprof.importers.detect import load as load
from bwprof.importers.ncu.command import PRESETS as PRESETS
from bwprof.importers.ncu.command import ncu_capture as ncu_capture
from bwprof.importers.ncu.command import ncu_command as ncu_command
from bwprof.importers.ncu.compare import ncu_compare as ncu_compare
from bwprof.importers.ncu.parse import parse_ncu as parse_ncu
from bwprof.importers.nsys import parse_nsys as parse_nsys
from bwprof.importers.rocprof import parse_rocprof as parse_rocprof
from bwprof.importers.rocprof_session import RocprofSession as RocprofSession
from bwprof.importers.rocprof_session import profile_matmul_memory as profile_matmul_memory
from bwprof.importers.rocprof_session import profile_memory as profile_memory
from bwprof.importers.rocprof_session import profile_memory_detailed as profile_memory_detailed

capture = ncu_capture
