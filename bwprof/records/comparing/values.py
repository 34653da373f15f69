"""What is compared of a row: a column, its interval, and its values in every process that is known."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bwprof.results import schema
from bwprof.results.schema import Row
from bwprof.text import figure_text, finite_number, seconds_text, shown, unknown

METRICS = ("time_ms", "bandwidth_gb_s", "traffic_ratio")


@dataclass(frozen=True, slots=True)
class Value:
    """A side of a comparison: the middle of its processes, the ends of the interval within one, and all of them.

    An end that nobody knows is the middle itself: then the gate alone decides.
    """

    middle: float
    low: float
    high: float
    processes: tuple[float, ...]


def check_metric(given: Any) -> str:
    """One of `METRICS`; ValueError for anything else."""
    if not isinstance(given, str) or given not in METRICS:
        raise ValueError(unknown("metric", given, METRICS))
    return str(given)


def higher_is_better(metric: str) -> bool:
    """Which way a metric should go."""
    return schema.column(metric).better == "higher"


def said_value(found: float, metric: str) -> str:
    """A value of a metric for people, with its unit."""
    if metric == "time_ms":
        return seconds_text(found / 1e3)
    return f"{figure_text(found, whole_from=1000)} {schema.column(metric).unit}"


def positive(found: Any) -> float | None:
    """A number that a time, a rate or a count of bytes can be; None for anything else."""
    number = finite_number(found)
    return number if number is not None and number > 0 else None


def value(row: Row, process_ms: Sequence[float], metric: str) -> Value | str:
    """What a row says of a metric; in words why it says nothing."""
    given = row.get(metric)
    found = positive(given)
    if found is None:
        if metric == "traffic_ratio" and schema.is_missing(given):
            return f"{metric} was not counted: measure with --counters"
        return f"its {metric} is {'missing' if schema.is_missing(given) else shown(given)}"
    time = positive(row.get("time_ms"))
    if metric == "traffic_ratio" or time is None:  # a bandwidth without a time: of a table that somebody wrote
        return Value(found, found, found, (found,))
    processes = tuple(ms for ms in process_ms if positive(ms) is not None) or (time,)
    share = middle(processes) / time  # the interval is within one process: it goes with the middle of all of them
    share = share if 0 < share < math.inf else 1.0
    low, high = (_end(row.get(name), time) * share for name in ("time_ms_lo", "time_ms_hi"))
    if metric == "time_ms":
        return Value(middle(processes), low, high, processes)
    work = found * time
    rates = tuple(min(max(work / ms, sys.float_info.min), sys.float_info.max) for ms in processes)  # logarithms follow
    return Value(work / middle(processes), work / high if high else math.inf, work / low if low else math.inf, rates)


def _end(found: Any, time: float) -> float:
    """Of an interval, which may be infinite."""
    return time if schema.is_missing(found) or not found >= 0 else float(found)


def middle(processes: Sequence[float]) -> float:
    """The geometric mean: of one process its own median."""
    return processes[0] if len(processes) == 1 else math.exp(math.fsum(map(math.log, processes)) / len(processes))
