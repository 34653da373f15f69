"""Find series of rows that measure the same thing, and what changed from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bwprof.records.keys import portable_names, variantless_names
from bwprof.results.pairs import times_differ

SLOWER, FASTER, UNDECIDED = "slower", "faster", "undecided"
_FURTHER = ("labels", "variant", "device_uuid")  # distinguish a run's rows of one series, in this order
_MARKED = {"driver": "driver", "bwprof_version": "bwprof", "variant": "variant", "device_uuid": "device"}  # and labels
_LONGEST = 24  # letters of a value in a mark
_SLACK = 0.999  # changes this near to the gate go through the exact rule


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """Rows in the order of time: each row's case (an index of `cases`), its run, and its times in ms.

    `counts`: which rows are comparable (measured, and not disturbed).
    """

    cases: Sequence[Mapping[str, Any]]
    case: Any
    run: Any
    time: Any
    low: Any
    high: Any
    counts: Any


def number_series(rows: HistoryRows) -> Any:
    """Return each row's series, numbered in the order in which they begin."""
    names = (*variantless_names(), "hostname")
    keys: list[tuple[Any, ...]] = [tuple(case[name] for name in names) for case in rows.cases]
    codes = _encode(keys)
    for name in _FURTHER:
        turns = _count_turns(codes[rows.case], rows.run)
        if not turns.any():
            break
        repeated = set(codes[rows.case][turns > 0].tolist())
        keys = [
            (*key, case[name]) if code in repeated else key
            for key, case, code in zip(keys, rows.cases, codes.tolist(), strict=True)
        ]
        codes = _encode(keys)
    of_rows = codes[rows.case]
    of_rows = of_rows + _count_turns(of_rows, rows.run) * (int(codes.max(initial=-1)) + 1)
    return pd.factorize(of_rows)[0].astype(np.int32)


def _encode(keys: Sequence[Any]) -> Any:
    codes: dict[Any, int] = {}
    return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)


def _count_turns(codes: Any, run: Any) -> Any:
    """Return for each row how many earlier rows of its run have the same code."""
    return pd.Series(codes).groupby([np.asarray(run), codes]).cumcount().to_numpy()


def compare_rows(rows: HistoryRows, series: Any, gate: float) -> tuple[Any, Any]:
    """Compare each row with the comparable row before it in its series.

    Return time / time before, NaN without a comparison; and the change: 1 slower, -1 faster, 2 further apart than the
    gate with overlapping intervals, else 0.
    """
    ratio = np.full(len(series), np.nan)
    change = np.zeros(len(series), dtype=np.int8)
    order = np.argsort(series, kind="stable")
    order = order[(rows.counts & np.isfinite(rows.time) & (rows.time > 0))[order]]
    same = series[order[1:]] == series[order[:-1]]
    now, before = order[1:][same], order[:-1][same]
    ratio[now] = rows.time[now] / rows.time[before]
    with np.errstate(over="ignore"):
        apart = np.maximum(ratio[now], 1 / ratio[now]) - 1 >= gate * _SLACK
    for old, new in zip(before[apart].tolist(), now[apart].tolist(), strict=True):
        times = rows.time[old], rows.time[new]
        if times_differ(_times_of(rows, old), _times_of(rows, new), gate=gate):
            change[new] = 1 if times[1] > times[0] else -1
        elif abs(times[1] - times[0]) > gate * min(times):
            change[new] = 2
    return ratio, change


def _times_of(rows: HistoryRows, place: int) -> dict[str, Any]:
    columns = {"time_ms": rows.time, "time_ms_lo": rows.low, "time_ms_hi": rows.high}
    return {name: float(values[place]) for name, values in columns.items()}


def list_marks(rows: HistoryRows, series: Any) -> Any:
    """Describe for each row what else changed since the row before it in its series."""
    marks = np.full(len(series), "", dtype=object)
    order = np.argsort(series, kind="stable")
    now, before = order[1:], order[:-1]
    same = series[now] == series[before]
    moved = same & (rows.case[now] != rows.case[before])
    for old, new in zip(before[moved].tolist(), now[moved].tolist(), strict=True):
        marks[new] = _describe_change(rows.cases[int(rows.case[old])], rows.cases[int(rows.case[new])])
    # A series also begins where a host measures a case on another device for the first time.
    devices: dict[Any, str] = {}
    for place in np.sort(order[np.r_[True, ~same][: len(order)]]).tolist():
        case = rows.cases[int(rows.case[place])]
        key = (case["hostname"], case["labels"], *(case[name] for name in portable_names()))
        device = case["device"]
        if device and devices.setdefault(key, device) != device:
            marks[place] = f"device {_cut(devices[key])} -> {_cut(device)}"
            devices[key] = device
    return marks


def _describe_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    values = ((label, old[name], new[name]) for name, label in _MARKED.items())
    return "; ".join(f"{label} {_cut(a)} -> {_cut(b)}" for label, a, b in values if a != b and a and b)


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"
