"""The summary of a run: a row for each case, and the use of the memory's peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.analysis.bandwidth import IMPOSSIBLE, BandwidthAnalysis
from bwprof.measuring import grade
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import ABOVE_PEAK, graded, with_limits
from bwprof.text.formatting import figure_text, short
from bwprof.text.parsing import measurable

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

    rows = results_frame.compared_rows(with_limits(data))
    precisions = ordered_precisions(rows)
    names = ["case", "operation", "variant", "device", "cache", "status"]
    for precision in precisions:
        names += [f"{precision}_{name}" for name in ("gb_s", "time_ms", "pct_attainable", "pct_limit")]
    names += [*_RATIOS, "bound", "limiter", "flags", "reason"]
    return [_line(group, precisions) for group in pairs.groups(rows)], names


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
        line[f"{precision}_grade"] = graded(row)
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
        beyond = ("above_attainable",) if grade.why_impossible(row) else ()  # of rows that nobody has flagged, too
        for flag in dict.fromkeys([*(row.get("flags") or "").split(";"), *beyond]):
            if flag:
                holders.setdefault(flag, []).append(precision)
    words = [flag if len(found) == len(group.rows) else f"{flag}({','.join(found)})" for flag, found in holders.items()]
    return ";".join(words) or None


COLUMNS = ("Kernel", "Measured BW", "Utilization", "Status")


def utilization_table(data: Any, *, peak_gb_s: float | None = None) -> pd.DataFrame:
    """Each row's bandwidth, its share of the theoretical peak, and the word for it.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.sweep`, `bwprof.load` or others.
    peak_gb_s : float, optional
        For rows that have no peak of their own.

    Returns
    -------
    pandas.DataFrame
        Columns Kernel, Measured BW, Utilization, Status (excellent above 80 % of the peak, good above 60 %, fair above
        40 %, else poor; "impossible" for what is faster than the peak, "in doubt" for what is faster than a stream of
        its bytes); "-" for what is not known, and for
        hot rows, whose bytes come out of a cache.

    Examples
    --------
    >>> row = {"case": "copy", "time_ms": 10.0, "bytes_read": 2e9, "bytes_written": 1e9, "bandwidth_gb_s": 300.0}
    >>> utilization_table(row, peak_gb_s=800.0).values.tolist()
    [['copy', '300 GB/s', '37.5 %', 'poor']]
    """
    import numpy as np
    import pandas as pd

    frame = BandwidthAnalysis.from_frame(values.as_frame(data), peak_gb_s=peak_gb_s)
    frame = frame[values.usable(frame)]
    own = values.numbers(frame, "bandwidth_gb_s")
    seconds = values.numbers(frame, "time_ms") / 1e3
    speed = np.where(np.isnan(own), values.moved_bytes(frame) / seconds / 1e9, own)
    used = values.numbers(frame, "utilization")
    rating = values.words(frame, "rating").astype(object)
    status = np.where(values.above_roof(frame) & (rating != IMPOSSIBLE), "in doubt", rating)
    return pd.DataFrame(
        {
            "Kernel": values.labels(frame),
            "Measured BW": ["-" if np.isnan(one) else f"{figure_text(one, whole_from=100)} GB/s" for one in speed],
            "Utilization": ["-" if np.isnan(one) else f"{short(100 * one, '.1f')} %" for one in used],
            "Status": [word or "-" for word in status],
        },
        columns=list(COLUMNS),
    ).astype("string")


def speed_of_light(row: Mapping[str, Any] | pd.Series[Any]) -> str:
    """Two lines of one row: its memory and its compute throughput, each against the peak that it names.

    Examples
    --------
    >>> row = {"bandwidth_gb_s": 3747.07, "peak_gb_s": 4814.3, "tflops": 3.7459, "peak_tflops": 1070.53}
    >>> print(speed_of_light(row))
    Memory Throughput: 3747 GB/s (78% of peak 4814 GB/s)
    Compute Throughput: 3.75 TFLOPS (0.4% of peak 1071 TFLOPS)
    """
    given = values.row_of(row)
    found = {name: measurable(given.get(name)) for name in ("bandwidth_gb_s", "peak_gb_s", "tflops", "peak_tflops")}
    hot = given.get("cache") == "hot"
    memory = _utilization_line(
        found["bandwidth_gb_s"], None if hot else found["peak_gb_s"], "GB/s", "bytes_read=, bytes_written="
    )
    compute = _utilization_line(found["tflops"], found["peak_tflops"], "TFLOPS", "flops=")
    if hot and found["bandwidth_gb_s"] is not None:
        memory = memory.replace("peak unknown", "hot: out of a cache, not held against memory")
    return f"Memory Throughput: {memory}\nCompute Throughput: {compute}"


def _utilization_line(reached: float | None, peak: float | None, unit: str, needed: str) -> str:
    if reached is None:
        return f"unknown (pass {needed})"
    speed = figure_text(reached, whole_from=100)
    if peak is None or peak <= 0:
        return f"{speed} {unit} (peak unknown)"
    most = figure_text(peak, whole_from=100)
    share = 100 * float(speed) / float(most) if float(speed) and float(most) else 100 * reached / peak  # as it is shown
    beyond = ", impossible: check the work, the time and the peak" if reached > ABOVE_PEAK * peak else ""
    return f"{speed} {unit} ({share:.{0 if share >= 10 else 1}f}% of peak {most} {unit}{beyond})"
