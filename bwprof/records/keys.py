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
from bwprof.text import formatting
from bwprof.text.formatting import format_figure, format_seconds
from bwprof.text.parsing import describe_unknown, finite_or_none, repr_short

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
    """A metric of one side: the mean of its processes, the interval's ends within a process, each process's value.

    An unknown end is the middle itself: then the gate alone decides.
    """

    middle: float
    low: float
    high: float
    processes: tuple[float, ...]


def check_metric(metric: Any) -> str:
    """Return one of `METRICS`; raise ValueError for anything else."""
    if not isinstance(metric, str) or metric not in METRICS:
        raise ValueError(describe_unknown("metric", metric, METRICS))
    return str(metric)


def higher_is_better(metric: str) -> bool:
    """Return whether more of a metric is better."""
    return schema.find_column(metric).better == "higher"


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
        return _describe_missing(row.get(metric), metric)
    time = positive_number(row.get("time_ms"))
    if metric == "traffic_ratio" or time is None:  # a table made by hand may have a bandwidth without a time
        return MetricValue(number, number, number, (number,))
    processes = tuple(ms for ms in process_ms if positive_number(ms) is not None) or (time,)
    mean = geometric_mean(processes)
    share = mean / time  # scales the interval, which is within one process, to the mean of all processes
    share = share if 0 < share < math.inf else 1.0
    low, high = (_interval_end(row.get(name), time) * share for name in ("time_ms_lo", "time_ms_hi"))
    if metric == "time_ms":
        return MetricValue(mean, low, high, processes)
    work = number * time
    rates = tuple(min(max(work / ms, sys.float_info.min), sys.float_info.max) for ms in processes)  # logarithms follow
    return MetricValue(work / mean, work / high if high else math.inf, work / low if low else math.inf, rates)


def _describe_missing(value: Any, metric: str) -> str:
    if metric == "traffic_ratio" and formatting.is_missing(value):
        return f"{metric} was not counted: measure with --counters"
    return f"its {metric} is {'missing' if formatting.is_missing(value) else repr_short(value)}"


def _interval_end(end: Any, time: float) -> float:
    return time if formatting.is_missing(end) or not end >= 0 else float(end)


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


def case_key(row: RowDict) -> CaseKey:
    """Return the key that rows of one case have in common in all runs.

    Examples
    --------
    >>> row = {"operation": "gemm", "M": 1, "precision": "fp16", "variant": "tiled", "run_id": "a"}
    >>> case_key(row) == case_key({**row, "run_id": "b"}), case_key(row) == case_key({**row, "variant": "gemv"})
    (True, False)
    """
    return select_values(row, key_names())


def portable_key(row: RowDict) -> CaseKey:
    """Return the key without variant, device, backend and timer."""
    return select_values(row, portable_names())


def unique_keys(*sides: Sequence[RowDict]) -> list[list[CaseKey]]:
    """Return the rows' keys for each side, none of them twice within a side.

    Rows of one `case_key` are distinguished by the caller's own columns that all sides have (arguments of a swept
    function), then by the device's UUID where the sides have one in common, then by their order.
    """
    return [_number_turns(keys, [None] * len(keys)) for keys in _distinguish_rows(sides)]


def keys_within_runs(*sides: Sequence[RowDict]) -> list[list[CaseKey]]:
    """Return keys as `unique_keys`, unique within each run of a side: a case has the same key in all runs.

    Rows that differ in a column of `GROUND` have different keys.
    """
    return [
        _number_turns(
            [(*key, *select_values(row, tuple(GROUND))) for key, row in zip(keys, rows, strict=True)],
            [row.get("run_id") for row in rows],
        )
        for keys, rows in zip(_distinguish_rows(sides), sides, strict=True)
    ]


def _distinguish_rows(sides: Sequence[Sequence[RowDict]]) -> list[list[CaseKey]]:
    """Extend the keys that a side has more than once by labels, then by devices."""
    keys = [[case_key(row) for row in rows] for rows in sides]
    for names in (_labels(sides), _common_devices(sides)):
        repeated = {key for side in keys for key, count in Counter(side).items() if count > 1}
        if names and repeated:
            keys = [
                [
                    (*key, *select_values(row, names)) if key in repeated else key
                    for key, row in zip(side, rows, strict=True)
                ]
                for side, rows in zip(keys, sides, strict=True)
            ]
    return keys


def process_name(row: RowDict) -> str:
    """Return the process that measured a row, in older files its run's id; "" for neither.

    Examples
    --------
    >>> process_name({"process": "d0", "run_id": "a"}), process_name({"run_id": "a"}), process_name({})
    ('d0', 'a', '')
    """
    return str(row.get("process") or row.get("run_id") or "")


def list_differences(base: RowDict, new: RowDict) -> list[str]:
    """List why two rows of a case are not comparable; a value that is missing on one side is no reason.

    Examples
    --------
    >>> list_differences({"device": "H100", "timer": "graph"}, {"device": "H200", "timer": "graph"})
    ['another device: H100, H200']
    """
    reasons: dict[str, str] = {}
    for name, words in GROUND.items():
        values = base.get(name), new.get(name)
        if values[0] != values[1] and not any(value == "" or formatting.is_missing(value) for value in values):
            reasons.setdefault(words, f"{words}: {values[0]}, {values[1]}")
    return list(reasons.values())


def select_values(row: RowDict, names: Sequence[str]) -> CaseKey:
    """Return values of columns; None for "", which a CSV file has for a missing one."""
    return tuple(None if (value := schema.clean_value(row.get(name))) == "" else value for name in names)


def _labels(sides: Sequence[Sequence[RowDict]]) -> tuple[str, ...]:
    names = [set(schema.extra_names(rows)) for rows in sides]
    return tuple(sorted(set.intersection(*names))) if names else ()


def _common_devices(sides: Sequence[Sequence[RowDict]]) -> tuple[str, ...]:
    uuids = [{row.get("device_uuid") for row in rows} - {None, ""} for rows in sides]
    return ("device_uuid",) if uuids and set.intersection(*uuids) else ()


def _number_turns(keys: Sequence[CaseKey], runs: Sequence[object]) -> list[CaseKey]:
    turns: Counter[tuple[object, CaseKey]] = Counter()
    numbered = []
    for key, run in zip(keys, runs, strict=True):
        turns[run, key] += 1
        turn = turns[run, key]
        numbered.append(key if turn == 1 else (*key, turn))
    return numbered
