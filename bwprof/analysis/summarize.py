"""Summarize a run: a row for each case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.measuring import grade
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import find_grade, with_limits

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.results.pairs import PrecisionGroup

PAIR = ("fp32", "fp16")
_RATIOS = ("bandwidth_vs_fp32", "byte_ratio_vs_fp32", "speedup_vs_fp32")
_BROKEN = ("failed", "skipped", "predicted")


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
    first = group.first
    line: dict[str, Any] = {
        "case": first["case"],
        "operation": first["operation"],
        "variant": "/".join(group.variants) or None,
        "device": first["device"],
        "cache": first["cache"],
        "status": _worst_status(group),
    }
    for precision in precisions:
        row = group.rows.get(precision, {})
        line[f"{precision}_gb_s"] = row.get("bandwidth_gb_s")
        line |= {f"{precision}_{name}": row.get(name) for name in ("time_ms", "pct_attainable", "pct_limit")}
        line[f"{precision}_grade"] = find_grade(row)
    half = group.rows.get("fp16", {})
    line |= {name: half.get(name) for name in _RATIOS}
    line |= {name: _join_words(group, name) for name in ("bound", "limiter")}
    line |= {"flags": _join_flags(group), "reason": _join_reasons(group.rows)}
    broken: dict[str, dict[str, RowDict]] = defaultdict(dict)
    for precision, row in group.rows.items():
        if row["status"] not in (None, "", "ok"):
            broken[row["status"]][precision] = row
    return line | {"broken": {status: _join_reasons(rows) for status, rows in broken.items()}}


def _worst_status(group: PrecisionGroup) -> str:
    order = (*_BROKEN, "ok")
    statuses = [str(row["status"] or "ok") for row in group.rows.values()]
    return min(statuses, key=lambda status: order.index(status) if status in order else -1)


def _join_words(group: PrecisionGroup, name: str) -> str | None:
    """Join the distinct words of the rows."""
    return "/".join(dict.fromkeys(row[name] for row in group.rows.values() if row.get(name))) or None


def _join_reasons(rows: Mapping[str, RowDict]) -> str | None:
    """Join the reasons, each after its precision."""
    return "; ".join(f"{precision}: {row['reason']}" for precision, row in rows.items() if row.get("reason")) or None


def _join_flags(group: PrecisionGroup) -> str | None:
    """Join the flags, each with its precisions unless all rows have it."""
    flags: dict[str, list[str]] = defaultdict(list)
    for precision, row in group.rows.items():
        beyond = ("above_attainable",) if grade.explain_impossible(row) else ()  # rows without flags, too
        for flag in dict.fromkeys([*(row.get("flags") or "").split(";"), *beyond]):
            flags[flag].append(precision)
    words = (
        flag if len(names) == len(group.rows) else f"{flag}({','.join(names)})" for flag, names in flags.items() if flag
    )
    return ";".join(words) or None
