"""What a caller knows of a profiler's rows and the file does not: bytes that kernels must move, the memory's peak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis import values
from bwprof.profilers.columns import COLUMNS, beyond_peak
from bwprof.profilers.timelines.launches import moved_columns
from bwprof.results import schema

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {column.name: column.kind for column in COLUMNS}


def with_bytes(found: pd.DataFrame, bytes: Mapping[str, Any]) -> pd.DataFrame:
    """The rows with `bytes_read`, `bytes_written` and `bandwidth_gb_s` by kernel's name or pattern.

    Raises
    ------
    ValueError
        For a name that no kernel has, and for what are no bytes.
    """
    if "kernel" not in found.columns:
        raise ValueError("bytes are for kernels of a profiler's file: rows of bwprof have theirs")
    data = {"kernel": found["kernel"].fillna("").tolist(), "time_ms": np.full(len(found), np.nan)}
    data |= {name: values.numbers(found, name) for name in ("time_ms", "count", "total_ms") if name in found.columns}
    return _filled(found, moved_columns(data, bytes), over=True)


def with_peak(found: pd.DataFrame, peak_gb_s: float) -> pd.DataFrame:
    """The rows with the memory's theoretical bandwidth where they have none, and the share of it.

    Raises
    ------
    ValueError
        Where all have one.
    """
    if "peak_gb_s" in found.columns and found["peak_gb_s"].notna().all():
        raise ValueError("--peak is for rows that have no peak_gb_s: all have one, leave it out")
    filled = _filled(found, {"peak_gb_s": np.full(len(found), peak_gb_s)}, over=False)
    if "dram_gb_s" not in found.columns:
        return filled
    rate, peak = (values.numbers(filled, name) for name in ("dram_gb_s", "peak_gb_s"))  # a row's own counts
    share = np.divide(100 * rate, peak, out=np.full(len(found), np.nan), where=peak > 0)
    made = _filled(filled, {"pct_peak": share}, over=False)
    made.attrs["notes"] = (*made.attrs.get("notes", ()), *beyond_peak(made))
    return made


def _filled(found: pd.DataFrame, more: Mapping[str, Any], *, over: bool) -> pd.DataFrame:
    """A frame with further figures, in the columns' order: `over` those it has, or where it has none."""
    import pandas as pd

    made = found.copy()
    for name, figures in more.items():
        dtype: Any = schema.DTYPES[_KINDS[name]]
        numbers = figures if _KINDS[name] == "text" else np.asarray(figures, np.float64)
        given: Any = pd.Series(numbers, index=found.index).astype(dtype)
        if name in found.columns:
            given = given.fillna(found[name]) if over else found[name].fillna(given)
        made[name] = given
    known = [name for name in _KINDS if name in made.columns]
    first = known if "kernel" in made.columns else []
    ordered = made[[*first, *(name for name in made.columns if name not in first)]]
    ordered.attrs = dict(found.attrs)
    return ordered
