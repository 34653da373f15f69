"""FP32 beside FP16 in words, as `bwprof plot comparison` prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from bwprof.results import compare, frame
from bwprof.results.compare import Group

if TYPE_CHECKING:
    import pandas as pd


def means(data: pd.DataFrame) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Of each case (of each variant where it has several) and precision the mean bandwidth, GB/s, and time, ms."""
    every = frame.to_rows(data)
    rows = [row for row in every if row["status"] == "ok" and row["bandwidth_gb_s"] is not None]
    groups = compare.groups(rows, every)
    return _means(groups, "bandwidth_gb_s"), _means(groups, "time_ms")


def _means(groups: Sequence[Group], column: str) -> dict[str, dict[str, float]]:
    """Of each case and precision the mean."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, group in zip(compare.labels(groups), groups, strict=True):
        for precision, row in group.rows.items():
            if row[column] is not None:
                found.setdefault(name, {}).setdefault(precision, []).append(row[column])
    return {case: {name: fmean(values) for name, values in means.items()} for case, means in found.items()}


def summary(speeds: Mapping[str, Mapping[str, float]], times: Mapping[str, Mapping[str, float]]) -> str:
    """FP32 beside FP16 in words: the ratio of bandwidths is not the gain in time, which is what halved bytes bring."""
    wide, narrow = "fp32", "fp16"
    lines = ["=== Bandwidth Summary ==="]
    for case, means in speeds.items():
        lines += ["", f"{case}:"]
        lines += [f"  {name.upper()} mean: {value:.2f} GB/s" for name, value in means.items()]
        if means.get(wide) and means.get(narrow):
            lines.append(f"  Speedup: {means[narrow] / means[wide]:.2f}x (GB/s)")
        taken = times.get(case, {})
        if taken.get(wide) and taken.get(narrow):
            lines.append(f"  Time speed-up: {taken[wide] / taken[narrow]:.2f}x")
    return "\n".join(lines) + "\n"
