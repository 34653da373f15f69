"""The summary of a run: a row for each case, and the use of the memory's peak."""

from __future__ import annotations

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
    """One row per case: FP32 and FP16 side by side, and the other precisions that were measured.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep` or `bwprof.load`; a frame with the nine classic columns will do.

    Returns
    -------
    pandas.DataFrame
        Columns: case, operation, variant, device, cache, status (the worst of the case's rows); per measured
        precision P: P_gb_s, P_time_ms, P_pct_attainable, P_pct_limit; of FP16 bandwidth_vs_fp32 (GB/s /
        FP32 GB/s), byte_ratio_vs_fp32 (FP32 bytes / bytes), speedup_vs_fp32 (their product: FP32 time / time); bound,
        limiter, flags, reason. What limits the rows is worked out where they do not say it (`analysis.with_limits`).

    Raises
    ------
    ValueError
        When a classic column is missing.

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
    """The same as dicts, and the columns' names; the dicts also hold P_grade, as `limits.graded` has it, and `broken`,
    the reasons of rows that were not measured by their status.
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
    """The precisions in `rows`: FP32 and FP16 first, always; then the others in the order of their first row."""
    found = dict.fromkeys(row["precision"] for row in rows)
    return [*PAIR, *(name for name in found if name not in PAIR)]


def _line(group: PrecisionGroup, precisions: Sequence[str]) -> dict[str, Any]:
    first = group.first
    line: dict[str, Any] = {
        "case": first["case"],
        "operation": first["operation"],
        "variant": "/".join(group.variants) or None,
        "device": first["device"],
        "cache": first["cache"],
        "status": _worst(group),
    }
    for precision in precisions:
        row = group.rows.get(precision, {})
        line[f"{precision}_gb_s"] = row.get("bandwidth_gb_s")
        line |= {f"{precision}_{name}": row.get(name) for name in ("time_ms", "pct_attainable", "pct_limit")}
        line[f"{precision}_grade"] = find_grade(row)
    half = group.rows.get("fp16", {})
    line |= {name: half.get(name) for name in _RATIOS} | {name: _joined(group, name) for name in ("bound", "limiter")}
    line["flags"] = _flags(group)
    line["reason"] = _reasons(group.rows)
    broken: dict[str, dict[str, RowDict]] = {}
    for precision, row in group.rows.items():
        if row["status"] not in (None, "", "ok"):
            broken.setdefault(row["status"], {})[precision] = row
    line["broken"] = {status: _reasons(rows) for status, rows in broken.items()}
    return line


def _worst(group: PrecisionGroup) -> str:
    found = [str(row["status"] or "ok") for row in group.rows.values()]
    order = (*_BROKEN, "ok")
    return min(found, key=lambda status: order.index(status) if status in order else -1)


def _joined(group: PrecisionGroup, name: str) -> str | None:
    """The rows' words where they differ; one word where they agree."""
    return "/".join(dict.fromkeys(row[name] for row in group.rows.values() if row.get(name))) or None


def _reasons(rows: Mapping[str, RowDict]) -> str | None:
    """Each precision with its row's reason."""
    return "; ".join(f"{precision}: {row['reason']}" for precision, row in rows.items() if row.get("reason")) or None


def _flags(group: PrecisionGroup) -> str | None:
    """Each flag with the precisions that it stands for, unless it stands for all of them."""
    holders: dict[str, list[str]] = {}
    for precision, row in group.rows.items():
        beyond = ("above_attainable",) if grade.explain_impossible(row) else ()  # of rows that nobody has flagged, too
        for flag in dict.fromkeys([*(row.get("flags") or "").split(";"), *beyond]):
            if flag:
                holders.setdefault(flag, []).append(precision)
    words = [flag if len(found) == len(group.rows) else f"{flag}({','.join(found)})" for flag, found in holders.items()]
    return ";".join(words) or None
