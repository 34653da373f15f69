"""What a frame of another profiler's figures holds: columns of bwprof's own rows where they mean the same, and more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bwprof.analysis.values import ABOVE_PEAK_PCT
from bwprof.results import schema
from bwprof.results.schema import Kind

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class Column(NamedTuple):
    """A column: its name, its unit, what kind of value it holds, and what it says."""

    name: str
    unit: str
    kind: Kind
    text: str


def _shared(*names: str) -> list[Column]:
    """Columns that bwprof's own rows have, under the same names."""
    found = map(schema.column, names)
    return [Column(column.name, column.unit, column.kind, column.text) for column in found]


# In this order; a metric that is none of them keeps its own name and follows.
COLUMNS: tuple[Column, ...] = (
    Column("kernel", "", "text", "kernel's name, without its parameters' values"),
    Column("launch", "", "integer", "the launch's number in the file"),
    *_shared("case", "device"),
    Column("device_index", "", "integer", "the device's number in its process"),
    Column("compute_capability", "", "text", "of the GPU: 9.0"),
    Column("context", "", "integer", "CUDA context of the launch"),
    Column("stream", "", "integer", "stream of the launch"),
    Column("pid", "", "integer", "process of the launch"),
    Column("grid", "blocks", "text", "blocks of the grid: 128x1x1"),
    Column("block", "threads", "text", "threads of a block: 256x1x1"),
    *_shared("grid_blocks", "block_threads", "registers", "shared_bytes"),
    Column("kind", "", "text", "what a time line's row is of: kernel, copy or fill; operator, on a CPU"),
    Column("count", "", "integer", "how often a time line has it"),
    *_shared("status", "time_ms"),
    Column("total_ms", "ms", "number", "time of all of them"),
    Column("min_ms", "ms", "number", "time of the shortest"),
    Column("max_ms", "ms", "number", "time of the longest"),
    Column("share_pct", "%", "number", "time of all of them / time of all kernels"),
    *_shared("bytes_read", "bytes_written", "bandwidth_gb_s", "flags"),
    *_shared("dram_bytes_read", "dram_bytes_written", "dram_gb_s", "peak_gb_s"),
    Column("pct_peak", "%", "number", "DRAM bandwidth / peak"),
    *_shared("dram_pct", "sm_pct", "tensor_pct", "fma_pct", "occupancy_pct"),
    Column("theoretical_occupancy_pct", "%", "number", "warps that could be resident, of the most possible"),
    Column("occupancy_limiter", "", "text", "what allows no more: registers, shared, warps, blocks or barriers"),
    *_shared("waves"),
    Column("multiprocessors", "", "integer", "of the device"),
    *_shared("sm_clock_mhz", "mem_clock_mhz", "stall_reasons", "bank_conflicts", "shared_wavefronts"),
    *_shared("sectors_per_load", "sectors_per_store"),
    Column("load_efficiency_pct", "%", "number", "bytes used, of the sectors that loads from global memory fetched"),
    Column("store_efficiency_pct", "%", "number", "bytes written, of the sectors that stores to global memory took"),
    *_shared("local_bytes", "lines_per_load", "shared_pct", "l1_pct", "l2_pct"),
    Column("l1_hit_pct", "%", "number", "sectors found in the L1 cache"),
    Column("l2_hit_pct", "%", "number", "sectors found in the L2 cache"),
    *_shared("l2_bytes"),
    *_shared("active_threads", "issue_pct", "sm_cycles_ratio"),
    *_shared("flops", "peak_tflops"),
    Column("valu_busy_pct", "%", "number", "vector units busy (AMD)"),
    Column("mem_unit_stalled_pct", "%", "number", "memory units stalled (AMD)"),
    Column("lds_bank_conflict_pct", "%", "number", "cycles that bank conflicts in shared memory took (AMD)"),
    Column("estimated", "", "text", "which figures were estimated, and how"),
)


def frame_of(
    data: Mapping[str, Sequence[Any] | NDArray[Any]], *, source: str, tool: str, notes: Iterable[str] = ()
) -> pd.DataFrame:
    """A frame of whole columns, in the order and type of `COLUMNS`, then the others as given.

    `source` and `tool` are the file and the profiler: `attrs` keeps them beside `notes`. Numbers are NumPy arrays, NaN
    for what is not known; text is a list of one-line texts and None. Whole numbers that 64 bits do not hold are not
    known.
    """
    import pandas as pd

    known = {column.name: column for column in COLUMNS if column.name in data}
    found = {name: _column(data[name], column.kind) for name, column in known.items()}
    found |= {name: values for name, values in data.items() if name not in known}
    frame = pd.DataFrame(found)
    frame.attrs = {"source": source, "tool": tool, "notes": (*notes, *beyond_peak(frame))}
    return frame


def beyond_peak(frame: pd.DataFrame) -> list[str]:
    """A note where launches are faster than the memory's theoretical peak."""
    count = 0 if "pct_peak" not in frame.columns else int((frame["pct_peak"] > ABOVE_PEAK_PCT).sum())
    text = f"{count} launch{'es are' if count > 1 else ' is'} faster than the memory's peak, which is impossible"
    return [f"{text}: bytes, time or peak are wrong"] if count else []


def _column(values: Any, kind: Kind) -> Any:
    import pandas as pd

    if kind == "text":
        return pd.array(values, dtype="string")
    if kind != "integer":
        return np.asarray(values, np.float64)
    given = np.asarray(values)
    if given.dtype.kind == "i":
        return pd.array(given, dtype="Int64")
    floats = given.astype(np.float64)
    missing = ~(np.abs(floats) < 2.0**63)  # NaN is not below
    return pd.arrays.IntegerArray(np.where(missing, 0, np.rint(floats)).astype(np.int64), missing)
