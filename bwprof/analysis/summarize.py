"""Show a frame in few lines or few columns: a row for each case, or the columns that answer one question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.measuring import grade
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import find_grade, with_limits
from bwprof.text.parsing import check_known, parse_names, repr_short

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.results.pairs import PrecisionGroup

PAIR = ("fp32", "fp16")
_RATIOS = ("bandwidth_vs_fp32", "byte_ratio_vs_fp32", "speedup_vs_fp32")
_RANKS = {"failed": 0, "skipped": 1, "predicted": 2, "ok": 3}  # the worst first; unknown words before it


def summary(data: pd.DataFrame) -> pd.DataFrame:
    """Summarize a frame: a row per case, with FP32, FP16 and the other measured precisions side by side.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep` or `bwprof.load`; at least the nine classic columns.

    Returns
    -------
    pandas.DataFrame
        Columns case, operation, variant, device, cache, status (the worst of the case's rows); per measured precision
        P: P_gb_s, P_time_ms, P_pct_attainable, P_pct_limit; of FP16 bandwidth_vs_fp32 (GB/s / FP32 GB/s),
        byte_ratio_vs_fp32 (FP32 bytes / bytes), speedup_vs_fp32 (FP32 time / time, the product of both); bound,
        limiter, flags, reason. Missing limits are derived (`analysis.with_limits`).

    Raises
    ------
    ValueError
        If a classic column is missing.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", N=64, K=64, backend="cpu", cache="hot", roofs=False)
    >>> bwprof.summary(frame)["case"].tolist()
    ['gemm N=64 K=64']
    """
    import pandas as pd

    rows, names = summary_rows(data)
    frame = pd.DataFrame(rows, columns=names)
    numbers = ("_gb_s", "_time_ms", "_pct_attainable", "_pct_limit", "_vs_fp32")
    return frame.astype({name: "float64" if name.endswith(numbers) else "string" for name in names})


def summary_rows(data: pd.DataFrame) -> tuple[list[dict[str, Any]], list[str]]:
    """Summarize as dicts, and list the columns' names.

    The dicts also have P_grade (see `limiter.graded`) and `broken`, the reasons of unmeasured rows by their status.
    """
    from bwprof.results import frame as results_frame
    from bwprof.results import pairs

    rows = results_frame.rows_with_comparisons(with_limits(data))
    precisions = ordered_precisions(rows)
    names = ["case", "operation", "variant", "device", "cache", "status"]
    for precision in precisions:
        names += [f"{precision}_{name}" for name in ("gb_s", "time_ms", "pct_attainable", "pct_limit")]
    names += [*_RATIOS, "bound", "limiter", "flags", "reason"]
    return [_line(group, precisions) for group in pairs.group_precisions(rows)], names


def ordered_precisions(rows: Sequence[RowDict]) -> list[str]:
    """List FP32, FP16, and the other precisions of rows in the order of their first row."""
    return list(dict.fromkeys([*PAIR, *(row["precision"] for row in rows)]))


def _line(group: PrecisionGroup, precisions: Sequence[str]) -> dict[str, Any]:
    first, rows = group.first, group.rows
    line: dict[str, Any] = {name: first[name] for name in ("case", "operation")}
    line |= {"variant": "/".join(group.variants) or None, "device": first["device"], "cache": first["cache"]}
    statuses = [str(row["status"] or "ok") for row in rows.values()]
    line["status"] = min(statuses, key=lambda status: _RANKS.get(status, -1))
    for precision in precisions:
        row = rows.get(precision, {})
        line[f"{precision}_gb_s"] = row.get("bandwidth_gb_s")
        line |= {f"{precision}_{name}": row.get(name) for name in ("time_ms", "pct_attainable", "pct_limit")}
        line[f"{precision}_grade"] = find_grade(row)
    line |= {name: rows.get("fp16", {}).get(name) for name in _RATIOS}
    for name in ("bound", "limiter"):
        line[name] = "/".join(dict.fromkeys(row[name] for row in rows.values() if row.get(name))) or None
    broken: dict[str, dict[str, RowDict]] = defaultdict(dict)
    for (precision, row), status in zip(rows.items(), statuses, strict=True):
        if status != "ok":
            broken[status][precision] = row
    line |= {"flags": _join_flags(rows), "reason": _join_reasons(rows)}
    return line | {"broken": {status: _join_reasons(rows) for status, rows in broken.items()}}


def _join_reasons(rows: Mapping[str, RowDict]) -> str | None:
    """Join the reasons, each after its precision."""
    return "; ".join(f"{precision}: {row['reason']}" for precision, row in rows.items() if row.get("reason")) or None


def _join_flags(rows: Mapping[str, RowDict]) -> str | None:
    """Join the flags, each with its precisions unless all rows have it."""
    flags: dict[str, list[str]] = defaultdict(list)
    for precision, row in rows.items():
        beyond = ("above_attainable",) if grade.explain_impossible(row) else ()  # rows without flags, too
        for flag in filter(None, dict.fromkeys([*(row.get("flags") or "").split(";"), *beyond])):
            flags[flag].append(precision)
    words = (flag if len(own) == len(rows) else f"{flag}({','.join(own)})" for flag, own in flags.items())
    return ";".join(words) or None


_KEYS = ("case", "precision", "variant")
_DEVICE = ("hostname", "device", "device_uuid")
_POSITION = ("arithmetic_intensity", "ridge", "bandwidth_gb_s", "attainable_gb_s", "tflops")
VIEWS = ("short", "roofline", "counters", "all")


def _view_columns(data: pd.DataFrame, which: str) -> tuple[str, ...]:
    if which == "short":
        return (*_KEYS, "time_ms", "bandwidth_gb_s", "pct_limit", "limiter", "flags")
    if which == "roofline":
        return (*_KEYS, *_POSITION, "pct_limit", "limiter")
    if which == "counters":
        counted = (column.name for column in schema.all_columns() if column.group in ("counters", "metrics"))
        return (*_KEYS, *counted)
    own = (str(name) for name in data.columns if name not in schema.column_names())
    return (*schema.column_names(), *own)


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
        devices = [name for name in _DEVICE if name in data.columns and data[name].dropna().nunique() > 1]
        names = (*devices, *_view_columns(data, which))
    data = data.set_axis([str(name) for name in data.columns], axis=1)  # names may be numbers
    if "case" not in data.columns:
        data = data.assign(case=data["operation"])
    kinds = schema.column_kinds()
    for name in (name for name in names if name not in data.columns):
        kind = schema.DTYPES[kinds[name]].replace("float64", "Float64")
        data[name] = pd.Series(pd.NA, index=data.index, dtype=kind)
    return pd.DataFrame(data[list(dict.fromkeys(names))])


def check_view(which: str) -> None:
    """Refuse an unknown view by a ValueError with the nearest one, and what is no name by a TypeError."""
    if not isinstance(which, str):
        raise TypeError(f"which is {repr_short(which)}: the name of a view is needed, one of {', '.join(VIEWS)}")
    check_known("view", which, VIEWS)


def check_columns(names: Iterable[str], *, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return columns of the schema, or of `more`; ValueError for an unknown one, with the nearest."""
    known = dict.fromkeys((*schema.column_names(), *more))
    own = ", and the frame's own" if len(known) > len(schema.column_names()) else ""
    names = tuple(names)
    for name in names:
        check_known("column", name, known, see=f"bwprof columns, bwprof.columns(){own}")
    return names
