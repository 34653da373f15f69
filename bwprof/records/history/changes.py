"""What is measured again and again, and what changed from one time to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bwprof.records.keys import portable_names, variantless_names
from bwprof.results.pairs import times_differ

SLOWER, FASTER, UNDECIDED = "slower", "faster", "undecided"

# What tells rows of one run apart that are of one series else, in this order.
_FURTHER = ("labels", "variant", "device_uuid")

# What may change within a series, and how it is called.
_MARKED = {"driver": "driver", "bwprof_version": "bwprof", "variant": "variant", "device_uuid": "device"}

_LONGEST = 24  # letters of what changed

_SLACK = 0.999  # what is this near to the gate is left to the rule itself


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """Rows in the order of time: each row's case (a place in `cases`), its run, and its times in ms.

    `counts` says which rows may be compared: measured, and not disturbed.
    """

    cases: Sequence[Mapping[str, Any]]
    case: Any
    run: Any
    time: Any
    low: Any
    high: Any
    counts: Any


def number_series(rows: HistoryRows) -> Any:
    """Each row's series, numbered in the order in which they begin."""
    names: tuple[str, ...] = (*variantless_names(), "hostname")
    keys = [tuple(case[name] for name in names) for case in rows.cases]
    codes = _codes(keys)[rows.case]
    for name in _FURTHER:
        twice = _twice(codes, rows.run)
        if not twice.any():
            break
        keys = [
            (*key, case[name]) if twice[code] else key
            for key, case, code in zip(keys, rows.cases, _codes(keys), strict=True)
        ]
        codes = _codes(keys)[rows.case]
    codes = _in_turns(codes, rows.run)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int32)
    order[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return order[codes]


def _codes(keys: Sequence[Any]) -> Any:
    found: dict[Any, int] = {}
    return np.array([found.setdefault(key, len(found)) for key in keys], dtype=np.int64)


def _twice(codes: Any, run: Any) -> Any:
    """Of each code whether a run has it more than once."""
    most = int(codes.max(initial=-1)) + 1
    pairs, counts = np.unique(run * most + codes, return_counts=True)
    twice = np.zeros(most, dtype=bool)
    twice[pairs[counts > 1] % max(most, 1)] = True
    return twice


def _in_turns(codes: Any, run: Any) -> Any:
    """What a run still has more than once: the first, the second, ... of each run."""
    chosen = np.flatnonzero(_twice(codes, run)[codes])
    if not len(chosen):
        return codes
    most = int(codes.max()) + 1
    pairs = run[chosen] * most + codes[chosen]
    order = np.argsort(pairs, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(pairs[order]) != 0])
    turn = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    codes = codes.copy()
    codes[chosen[order]] += turn * most
    return codes


def compare_rows(rows: HistoryRows, series: Any, gate: float) -> tuple[Any, Any]:
    """Each row's time over that of the row before in its series, and whether it is slower (1), faster (-1), further off
    than the gate while the intervals overlap (2), or none of these.

    Rows that do not count are stepped over, and compare with nothing.
    """
    ratio = np.full(len(series), np.nan)
    change = np.zeros(len(series), dtype=np.int8)
    order = np.argsort(series, kind="stable")
    order = order[(rows.counts & np.isfinite(rows.time) & (rows.time > 0))[order]]
    same = series[order[1:]] == series[order[:-1]]
    now, before = order[1:][same], order[:-1][same]
    ratio[now] = rows.time[now] / rows.time[before]
    with np.errstate(over="ignore"):
        apart = np.maximum(ratio[now], 1 / ratio[now]) - 1
    for one, other in zip(*(found[apart >= gate * _SLACK].tolist() for found in (before, now)), strict=True):
        if times_differ(_row(rows, one), _row(rows, other), gate=gate):
            change[other] = 1 if rows.time[other] > rows.time[one] else -1
        elif abs(rows.time[other] - rows.time[one]) > gate * min(rows.time[one], rows.time[other]):
            change[other] = 2
    return ratio, change


def _row(rows: HistoryRows, place: int) -> dict[str, Any]:
    return {
        "time_ms": float(rows.time[place]),
        "time_ms_lo": float(rows.low[place]),
        "time_ms_hi": float(rows.high[place]),
    }


def list_marks(rows: HistoryRows, series: Any) -> tuple[Any, list[str]]:
    """What changed, beside the time, since the row before in its series: a place in a list of words for each row."""
    words: dict[str, int] = {"": 0}
    found = np.zeros(len(series), dtype=np.int32)
    order = np.argsort(series, kind="stable")
    now, before = order[1:], order[:-1]
    same = series[now] == series[before]
    moved = same & (rows.case[now] != rows.case[before])
    told: dict[tuple[int, int], int] = {}
    for one, other in zip(before[moved].tolist(), now[moved].tolist(), strict=True):
        pair = int(rows.case[one]), int(rows.case[other])
        if pair not in told:
            text = _moved(rows.cases[pair[0]], rows.cases[pair[1]])
            told[pair] = words.setdefault(text, len(words))
        found[other] = told[pair]
    first = order[np.r_[True, ~same][: len(order)]]
    for place, text in _begun(rows, np.sort(first).tolist()):
        found[place] = words.setdefault(text, len(words))
    return found, list(words)


def _moved(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    pairs = ((word, one[name], other[name]) for name, word in _MARKED.items())
    return "; ".join(f"{word} {_cut(a)} -> {_cut(b)}" for word, a, b in pairs if a != b and a and b)


def _begun(rows: HistoryRows, places: Sequence[int]) -> list[tuple[int, str]]:
    """Where a host measures a case on a device for the first time, but has measured it on another one."""
    earlier: dict[Any, str] = {}
    result = []
    for place in places:
        case = rows.cases[int(rows.case[place])]
        key = (case["hostname"], case["labels"], *(case[name] for name in portable_names()))
        device = case["device"]
        if device and earlier.setdefault(key, device) != device:
            result.append((place, f"device {_cut(earlier[key])} -> {_cut(device)}"))
            earlier[key] = device
    return result


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"
