"""Identify a case in two runs, and read the values to compare."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure, format_seconds, is_missing
from bwprof.text.parsing import finite_or_none, repr_short

METRICS = ("time_ms", "bandwidth_gb_s", "traffic_ratio")
CaseKey = tuple[object, ...]

# Times are comparable only where these columns agree, too.
GROUND = {
    "backend": "another backend",
    "device": "another device",
    "driver": "another driver",
    "timer": "another timer",
    "flops": "other work",
    "bytes_read": "other work",
    "bytes_written": "other work",
}


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A metric of one side: the mean of its processes, the interval's ends, each process's value.

    An unknown end is the middle itself: then the gate alone decides.
    """

    middle: float
    low: float
    high: float
    processes: tuple[float, ...]


def format_metric(number: float, metric: str) -> str:
    """Format a metric's value with its unit."""
    if metric == "time_ms":
        return format_seconds(number / 1e3)
    return f"{format_figure(number, whole_from=1000)} {schema.find_column(metric).unit}"


def positive_number(value: Any) -> float | None:
    """Return a finite number above 0; None for anything else."""
    number = finite_or_none(value)
    return number if number is not None and number > 0 else None


def read_metric(row: RowDict, process_ms: Sequence[float], metric: str) -> MetricValue | str:
    """Return a row's value of a metric, or why it has none."""
    number = positive_number(row.get(metric))
    if number is None:
        value = row.get(metric)
        if metric == "traffic_ratio" and is_missing(value):
            return f"{metric} was not counted: measure with --counters"
        return f"its {metric} is {'missing' if is_missing(value) else repr_short(value)}"
    time = positive_number(row.get("time_ms"))
    if metric == "traffic_ratio" or time is None:  # a table made by hand may have a bandwidth without a time
        return MetricValue(number, number, number, (number,))
    processes = tuple(ms for ms in process_ms if positive_number(ms) is not None) or (time,)
    mean = geometric_mean(processes)
    share = mean / time  # scales the interval, which is within one process, to the mean of all processes
    share = share if 0 < share < math.inf else 1.0
    ends: list[Any] = [row.get(name) for name in ("time_ms_lo", "time_ms_hi")]
    low, high = ((time if is_missing(end) or not end >= 0 else float(end)) * share for end in ends)
    if metric == "time_ms":
        return MetricValue(mean, low, high, processes)
    work = number * time
    rates = tuple(min(max(work / ms, sys.float_info.min), sys.float_info.max) for ms in processes)  # logarithms follow
    return MetricValue(work / mean, work / high if high else math.inf, work / low if low else math.inf, rates)


def geometric_mean(times: Sequence[float]) -> float:
    """Return the geometric mean; a single value unchanged."""
    return times[0] if len(times) == 1 else math.exp(math.fsum(map(math.log, times)) / len(times))


@cache
def portable_names() -> tuple[str, ...]:
    """Return the columns that define a case on any device."""
    return ("operation", *schema.param_names(), "kv_lens", "case", "precision", "cache")


@cache
def variantless_names() -> tuple[str, ...]:
    """Return the columns that define a case on one kind of device under one timer, whichever variant ran."""
    return (*portable_names(), "timer", "backend", "device")


@cache
def key_names() -> tuple[str, ...]:
    """Return all columns that identify a case."""
    return (*variantless_names(), "variant")


def case_key(row: RowDict, names: Sequence[str] = ()) -> CaseKey:
    """Return the key that rows of one case have in common in all runs; None for "", a missing value of a CSV file."""
    values = (schema.clean_value(row.get(name)) for name in names or key_names())
    return tuple(None if value == "" else value for value in values)


def unique_keys(*sides: Sequence[RowDict], within_runs: bool = False) -> list[list[CaseKey]]:
    """Return the rows' keys for each side, none of them twice within a side, or within each run of a side.

    Rows of one `case_key` are distinguished by the caller's own columns that all sides have, then by the device's UUID
    where the sides have one in common, then by their order; within runs by `GROUND`, too.
    """
    keys = [[case_key(row) for row in rows] for rows in sides]
    uuids = [{row.get("device_uuid") for row in rows} - {None, ""} for rows in sides]
    devices = ("device_uuid",) if sides and set.intersection(*uuids) else ()
    for names in (common_labels(sides), devices):
        keys = extend_repeated(keys, sides, names)
    for side, rows in zip(keys, sides, strict=True):
        turns: Counter[tuple[object, CaseKey]] = Counter()
        for place, row in enumerate(rows):
            if within_runs:
                side[place] += case_key(row, tuple(GROUND))
            group = row.get("run_id") if within_runs else None, side[place]
            turns[group] += 1
            side[place] += () if turns[group] == 1 else (turns[group],)
    return keys


def common_labels(sides: Sequence[Sequence[RowDict]]) -> tuple[str, ...]:
    """Return the names of the caller's own columns that all sides have."""
    names = [set(schema.extra_names(rows)) for rows in sides]
    return tuple(sorted(set.intersection(*names))) if names else ()


def extend_repeated(
    keys: Sequence[Sequence[CaseKey]], sides: Sequence[Sequence[RowDict]], names: Sequence[str]
) -> list[list[CaseKey]]:
    """Extend the keys that a side has more than once by the values of columns."""
    repeated = {key for side in keys for key, count in Counter(side).items() if names and count > 1}
    return [
        [(*key, *case_key(row, names)) if key in repeated else key for key, row in zip(side, rows, strict=True)]
        for side, rows in zip(keys, sides, strict=True)
    ]


def list_differences(base: RowDict, new: RowDict) -> list[str]:
    """List why two rows of a case are not comparable; a value that is missing on one side is no reason."""
    reasons: dict[str, str] = {}
    for name, words in GROUND.items():
        values = base.get(name), new.get(name)
        if values[0] != values[1] and not any(value == "" or is_missing(value) for value in values):
            reasons.setdefault(words, f"{words}: {values[0]}, {values[1]}")
    return list(reasons.values())
