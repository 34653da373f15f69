"""What identifies a case in two runs, and which of its values are compared."""

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


@dataclass(frozen=True, slots=True)
class MetricValue:
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
        raise ValueError(describe_unknown("metric", given, METRICS))
    return str(given)


def higher_is_better(metric: str) -> bool:
    """Which way a metric should go."""
    return schema.find_column(metric).better == "higher"


def format_metric(found: float, metric: str) -> str:
    """A value of a metric for people, with its unit."""
    if metric == "time_ms":
        return format_seconds(found / 1e3)
    return f"{format_figure(found, whole_from=1000)} {schema.find_column(metric).unit}"


def positive_number(found: Any) -> float | None:
    """A number that a time, a rate or a count of bytes can be; None for anything else."""
    number = finite_or_none(found)
    return number if number is not None and number > 0 else None


def read_metric(row: RowDict, process_ms: Sequence[float], metric: str) -> MetricValue | str:
    """What a row says of a metric; in words why it says nothing."""
    given = row.get(metric)
    found = positive_number(given)
    if found is None:
        if metric == "traffic_ratio" and formatting.is_missing(given):
            return f"{metric} was not counted: measure with --counters"
        return f"its {metric} is {'missing' if formatting.is_missing(given) else repr_short(given)}"
    time = positive_number(row.get("time_ms"))
    if metric == "traffic_ratio" or time is None:  # a bandwidth without a time: of a table that somebody wrote
        return MetricValue(found, found, found, (found,))
    processes = tuple(ms for ms in process_ms if positive_number(ms) is not None) or (time,)
    share = (
        geometric_mean(processes) / time
    )  # the interval is within one process: it goes with the middle of all of them
    share = share if 0 < share < math.inf else 1.0
    low, high = (_end(row.get(name), time) * share for name in ("time_ms_lo", "time_ms_hi"))
    if metric == "time_ms":
        return MetricValue(geometric_mean(processes), low, high, processes)
    work = found * time
    rates = tuple(min(max(work / ms, sys.float_info.min), sys.float_info.max) for ms in processes)  # logarithms follow
    return MetricValue(
        work / geometric_mean(processes), work / high if high else math.inf, work / low if low else math.inf, rates
    )


def _end(found: Any, time: float) -> float:
    """Of an interval, which may be infinite."""
    return time if formatting.is_missing(found) or not found >= 0 else float(found)


def geometric_mean(processes: Sequence[float]) -> float:
    """The geometric mean: of one process its own median."""
    return processes[0] if len(processes) == 1 else math.exp(math.fsum(map(math.log, processes)) / len(processes))


CaseKey = tuple[object, ...]

# Two times are of the same thing on the same ground only where these agree, too.
GROUND = {
    "backend": "another backend",
    "device": "another device",
    "driver": "another driver",
    "timer": "another timer",
    "flops": "other work",
    "bytes_read": "other work",
    "bytes_written": "other work",
}


@cache
def portable_names() -> tuple[str, ...]:
    """What a case is, wherever and however it ran."""
    return ("operation", *schema.param_names(), "kv_lens", "case", "precision", "cache")


@cache
def variantless_names() -> tuple[str, ...]:
    """The same on one kind of device under one timer, whichever variant ran."""
    return (*portable_names(), "timer", "backend", "device")


@cache
def key_names() -> tuple[str, ...]:
    """All that identifies a case."""
    return (*variantless_names(), "variant")


def case_key(row: RowDict) -> CaseKey:
    """What a row of another run must have in common with this one to be the same case.

    Examples
    --------
    >>> one = {"operation": "gemm", "M": 1, "precision": "fp16", "variant": "tiled", "run_id": "a"}
    >>> key(one) == key({**one, "run_id": "b"}), key(one) == key({**one, "variant": "gemv"})
    (True, False)
    """
    return _values(row, key_names())


def variantless_key(row: RowDict) -> CaseKey:
    """The same without the variant: joins rows of which another variant ran."""
    return _values(row, variantless_names())


def portable_key(row: RowDict) -> CaseKey:
    """The case alone: joins rows that another device, backend or timer measured, which are not to be compared."""
    return _values(row, portable_names())


def unique_keys(*sides: Sequence[RowDict]) -> list[list[CaseKey]]:
    """Each side's keys, none of them twice within a side.

    Where `key` does not tell two rows of a side apart, what both sides know of the caller's own columns does (the
    arguments of a function that was swept), then the device's UUID where the sides have one in common, then the order.
    """
    return [_in_turns(keys, [None] * len(keys)) for keys in _distinguish_rows(sides)]


def keys_within_runs(*sides: Sequence[RowDict]) -> list[list[CaseKey]]:
    """The same, but none of them twice within a run of a side: of several runs the same case has the same key.

    Rows on different ground are different ones.
    """
    return [
        _in_turns(
            [(*told, *_values(row, tuple(GROUND))) for told, row in zip(keys, rows, strict=True)],
            [row.get("run_id") for row in rows],
        )
        for keys, rows in zip(_distinguish_rows(sides), sides, strict=True)
    ]


def _distinguish_rows(sides: Sequence[Sequence[RowDict]]) -> list[list[CaseKey]]:
    """Each row's key, with what else tells rows of a side apart where it does not."""
    found = [[case_key(row) for row in rows] for rows in sides]
    for names in (_labels(sides), _common_devices(sides)):
        unclear = _unclear(found)
        if names and unclear:
            found = [
                [
                    (*told, *_values(row, names)) if told in unclear else told
                    for told, row in zip(keys, rows, strict=True)
                ]
                for keys, rows in zip(found, sides, strict=True)
            ]
    return found


def process_name(row: RowDict) -> str:
    """What tells the process that measured a row from others: its own word, in older files its run's; "" for neither.

    Examples
    --------
    >>> process_of({"process": "d0", "run_id": "a"}), process_of({"run_id": "a"}), process_of({})
    ('d0', 'a', '')
    """
    return str(row.get("process") or row.get("run_id") or "")


def list_differences(one: RowDict, other: RowDict) -> list[str]:
    """Why two rows of a case cannot be compared, in words; none where they can.

    What one side does not know is no reason.

    Examples
    --------
    >>> unlike({"device": "H100", "timer": "graph"}, {"device": "H200", "timer": "graph"})
    ['another device: H100, H200']
    """
    found: dict[str, str] = {}
    for name, words in GROUND.items():
        values = one.get(name), other.get(name)
        if values[0] != values[1] and not any(value == "" or formatting.is_missing(value) for value in values):
            found.setdefault(words, f"{words}: {values[0]}, {values[1]}")
    return list(found.values())


def _values(row: RowDict, names: Sequence[str]) -> CaseKey:
    """The same of a CSV file, where an empty text is a missing one."""
    return tuple(None if (value := schema.clean_value(row.get(name))) == "" else value for name in names)


def _labels(sides: Sequence[Sequence[RowDict]]) -> tuple[str, ...]:
    """The columns that are not the schema's and that every side has."""
    each = [set(schema.extra_names(rows)) for rows in sides]
    return tuple(sorted(set.intersection(*each))) if each else ()


def _common_devices(sides: Sequence[Sequence[RowDict]]) -> tuple[str, ...]:
    each = [{row.get("device_uuid") for row in rows} - {None, ""} for rows in sides]
    return ("device_uuid",) if each and set.intersection(*each) else ()


def _unclear(found: Sequence[Sequence[CaseKey]]) -> set[CaseKey]:
    """The keys that a side has more than once."""
    return {told for keys in found for told, count in Counter(keys).items() if count > 1}


def _in_turns(keys: Sequence[CaseKey], runs: Sequence[object]) -> list[CaseKey]:
    """The keys with the number of their turn where a run has them more than once."""
    seen: Counter[tuple[object, CaseKey]] = Counter()
    result = []
    for told, run in zip(keys, runs, strict=True):
        seen[run, told] += 1
        turn = seen[run, told]
        result.append(told if turn == 1 else (*told, turn))
    return result
