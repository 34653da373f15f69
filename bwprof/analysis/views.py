"""Views: few columns of many, for one question each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bwprof.results import columns as results_columns
from bwprof.results import schema
from bwprof.roofs.limiter import with_limits
from bwprof.text.parsing import describe_unknown, parse_names, repr_short

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("case", "precision", "variant")

_DEVICE = ("hostname", "device", "device_uuid")

VIEWS = ("short", "roofline", "counters", "all")


def _view_columns(which: str) -> tuple[str, ...]:
    """A view's columns, in their order."""
    if which == "short":
        return (*_KEYS, "time_ms", "bandwidth_gb_s", "pct_limit", "limiter", "flags")
    if which == "roofline":
        place = ("arithmetic_intensity", "ridge", "bandwidth_gb_s", "attainable_gb_s", "tflops")
        return (*_KEYS, *place, "pct_limit", "limiter")
    if which == "counters":
        return (
            *_KEYS,
            *(found.name for found in results_columns.all_columns() if found.group in ("counters", "metrics")),
        )
    return schema.column_names()


def view(data: pd.DataFrame, which: str = "short", *, columns: str | Iterable[str] | None = None) -> pd.DataFrame:
    """A frame's rows in the few columns that a question needs.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep` or `bwprof.load`; a frame with the nine classic columns will do.
    which : {"short", "roofline", "counters", "all"}
        What is asked: how fast and what limits it; where it stands under its roofs; what the hardware counted; all
        columns there are.
    columns : str or iterable of str, optional
        These instead, in this order.

    Returns
    -------
    pandas.DataFrame
        A row each, with the frame's index. Rows of several devices have these before all other columns. What limits the
        rows is worked out where they do not say it (`analysis.with_limits`); what the frame does not know is missing.

    Raises
    ------
    ValueError
        For an unknown view or column (with the nearest one), and a classic column that is missing.

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
    found = with_limits(data)
    missing = [name for name in results_columns.CLASSIC_NAMES if name not in found.columns]
    if missing:
        raise ValueError(f"not a bwprof frame: column {', '.join(missing)} is missing")
    if columns is not None:
        chosen = check_columns(parse_names("columns", columns), more=map(str, found.columns))
    else:
        own = [str(name) for name in found.columns if name not in schema.column_names()] if which == "all" else []
        chosen = (*_devices(found), *_view_columns(which), *own)
    found = found.set_axis([str(name) for name in found.columns], axis=1)  # a number may be a name, too
    made = {name: _column(found, name) for name in dict.fromkeys(chosen)}
    return pd.DataFrame(made, index=found.index)


def check_view(which: str) -> None:
    """ValueError for an unknown view, with the nearest one; TypeError for what is no name."""
    if not isinstance(which, str):
        raise TypeError(f"which is {repr_short(which)}: the name of a view is needed, one of {', '.join(VIEWS)}")
    if which not in VIEWS:
        raise ValueError(describe_unknown("view", which, VIEWS))


def check_columns(names: Iterable[str], *, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Columns of the schema, or `more`; ValueError for an unknown one, with the nearest."""
    known = dict.fromkeys((*schema.column_names(), *more))
    chosen = tuple(names)
    for name in chosen:
        if name not in known:
            own = ", and the frame's own" if len(known) > len(schema.column_names()) else ""
            raise ValueError(describe_unknown("column", name, known, see=f"bwprof columns, bwprof.columns(){own}"))
    return chosen


def _devices(data: pd.DataFrame) -> tuple[str, ...]:
    """The columns that tell a frame's devices apart; none where there is one device."""
    return tuple(name for name in _DEVICE if name in data.columns and data[name].dropna().nunique() > 1)


def _column(data: pd.DataFrame, name: str) -> pd.Series:
    """A column of the frame; of one that lacks it a column of nothing, or the operation as the case."""
    import pandas as pd

    if name in data.columns:
        return data[name]
    if name == "case":
        return data["operation"]
    return pd.Series(
        pd.NA, index=data.index, dtype=schema.DTYPES[schema.column_kinds()[name]].replace("float64", "Float64")
    )
