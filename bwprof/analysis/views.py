"""Views: the few columns that answer one question."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bwprof.results import schema
from bwprof.roofs.limiter import with_limits
from bwprof.text.parsing import describe_unknown, parse_names, repr_short

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("case", "precision", "variant")
_DEVICE = ("hostname", "device", "device_uuid")
VIEWS = ("short", "roofline", "counters", "all")


def _view_columns(which: str) -> tuple[str, ...]:
    if which == "short":
        return (*_KEYS, "time_ms", "bandwidth_gb_s", "pct_limit", "limiter", "flags")
    if which == "roofline":
        position = ("arithmetic_intensity", "ridge", "bandwidth_gb_s", "attainable_gb_s", "tflops")
        return (*_KEYS, *position, "pct_limit", "limiter")
    if which == "counters":
        return (
            *_KEYS,
            *(column.name for column in schema.all_columns() if column.group in ("counters", "metrics")),
        )
    return schema.column_names()


def view(data: pd.DataFrame, which: str = "short", *, columns: str | Iterable[str] | None = None) -> pd.DataFrame:
    """Select the columns of a frame that one question needs.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep` or `bwprof.load`; at least the nine classic columns.
    which : {"short", "roofline", "counters", "all"}
        Times and limits; the position under the roofs; what the hardware counted; all columns.
    columns : str or iterable of str, optional
        These instead, in this order.

    Returns
    -------
    pandas.DataFrame
        The same rows and index. A frame of several devices also gets their columns. Missing limits are derived
        (`analysis.with_limits`); other columns that the frame lacks are empty.

    Raises
    ------
    ValueError
        For an unknown view or column (with the nearest one), and for a missing classic column.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", N=64, K=64, backend="cpu", cache="hot", roofs=False, precision="fp32")
    >>> list(bwprof.view(frame))
    ['case', 'precision', 'variant', 'time_ms', 'bandwidth_gb_s', 'pct_limit', 'limiter', 'flags']
    >>> bwprof.view(frame, columns="case,N")["N"].tolist()
    [64]
    """
    import pandas as pd

    check_view(which)
    data = with_limits(data)
    missing = [name for name in schema.CLASSIC_NAMES if name not in data.columns]
    if missing:
        raise ValueError(f"not a bwprof frame: column {', '.join(missing)} is missing")
    if columns is not None:
        names = check_columns(parse_names("columns", columns), more=map(str, data.columns))
    else:
        own = [str(name) for name in data.columns if name not in schema.column_names()] if which == "all" else []
        devices = [name for name in _DEVICE if name in data.columns and data[name].dropna().nunique() > 1]
        names = (*devices, *_view_columns(which), *own)
    data = data.set_axis([str(name) for name in data.columns], axis=1)  # names may be numbers
    return pd.DataFrame({name: _column(data, name) for name in dict.fromkeys(names)}, index=data.index)


def check_view(which: str) -> None:
    """Refuse an unknown view by a ValueError with the nearest one, and what is no name by a TypeError."""
    if not isinstance(which, str):
        raise TypeError(f"which is {repr_short(which)}: the name of a view is needed, one of {', '.join(VIEWS)}")
    if which not in VIEWS:
        raise ValueError(describe_unknown("view", which, VIEWS))


def check_columns(names: Iterable[str], *, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return columns of the schema, or of `more`; ValueError for an unknown one, with the nearest."""
    known = dict.fromkeys((*schema.column_names(), *more))
    names = tuple(names)
    for name in names:
        if name not in known:
            own = ", and the frame's own" if len(known) > len(schema.column_names()) else ""
            raise ValueError(describe_unknown("column", name, known, see=f"bwprof columns, bwprof.columns(){own}"))
    return names


def _column(data: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of the frame; the operation for a missing case, else an empty column."""
    import pandas as pd

    if name in data.columns:
        return data[name]
    if name == "case":
        return data["operation"]
    return pd.Series(
        pd.NA, index=data.index, dtype=schema.DTYPES[schema.column_kinds()[name]].replace("float64", "Float64")
    )
