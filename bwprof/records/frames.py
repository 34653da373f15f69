"""The rows of very many runs as one frame, made column by column: hundreds of thousands of rows take about a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bwprof.records import changes
from bwprof.records.reading import FIGURES, LABELS, REMARK, Reader, Run, case_names
from bwprof.results import schema
from bwprof.results.difference import comparable

Case = dict[str, Any]
Chooser = Callable[[Sequence[Case]], Sequence[bool]]  # of the cases that there are, those that are asked for

_OF_CASE = ("operation", "precision", "variant", "cache", "timer")
_GROUND = ("backend", "device", "device_uuid", "hostname", "driver", "bwprof_version")
_CHANGES = ("", changes.SLOWER, changes.UNDECIDED, changes.FASTER)  # by 0, 1, 2, -1


def names() -> tuple[str, ...]:
    """The columns of a history, in order; the caller's own columns follow."""
    return (
        *("run_id", "started", "case", *_OF_CASE, *schema.all_param_names(), "kv_lens"),
        *("status", *FIGURES[:3], "ratio", "change", "marks", *FIGURES[3:]),
        *("bytes_read", "bytes_written", "flops", *REMARK[1:]),
        *(*_GROUND, "git_commit", "suite", "run_status", "finished", "timestamp", "folder", "series"),
    )


def read(reader: Reader, runs: Sequence[Run], chosen: Chooser, last: int | None, gate: float) -> pd.DataFrame:
    """Return the rows of runs, in the order of time, whose cases are chosen, of the `last` runs that have some."""
    keys, figures = (
        np.concatenate([getattr(run, name) for run in runs] or [np.zeros((0, width), kind)])
        for name, width, kind in (("keys", 3, np.int64), ("figures", len(FIGURES), float))
    )
    run = np.repeat(np.arange(len(runs)), [len(one.keys) for one in runs])
    used = np.unique(keys[:, 0])
    cases = [reader.cases[place] for place in used.tolist()]
    wanted = np.array(list(chosen(cases)), dtype=bool)
    mask = wanted[np.searchsorted(used, keys[:, 0])] if cases else np.zeros(0, dtype=bool)
    numbers, run = np.unique(run[mask], return_inverse=True)
    of_rows = [runs[number] for number in numbers.tolist()]
    return _frame(reader, of_rows, run, keys[mask], figures[mask].T, gate, last)


def _frame(
    reader: Reader, runs: Sequence[Run], run: Any, keys: Any, figures: Any, gate: float, last: int | None
) -> pd.DataFrame:
    data: dict[str, Any] = dict(zip(FIGURES, figures, strict=True))
    kinds = schema.kinds()
    used, case = np.unique(keys[:, 0], return_inverse=True)
    cases = [reader.cases[place] for place in used.tolist()]
    for name in case_names():
        data[name] = _column([one[name] for one in cases], case, kinds[name])
    used, remark = np.unique(keys[:, 1], return_inverse=True)
    remarks = [reader.remarks[place] for place in used.tolist()]
    for name in REMARK:
        data[name] = _column([one[name] for one in remarks], remark, kinds[name])
    data |= _of_runs(runs, run)
    data["timestamp"] = _times(keys[:, 2])
    counts = np.array([comparable(one) for one in remarks], dtype=bool)[remark]
    rows = changes.Rows(cases, case, run, data["time_ms"], data["time_ms_lo"], data["time_ms_hi"], counts)
    data["series"] = series = changes.series_of(rows)
    data["ratio"], change = changes.compared(rows, series, gate)
    data["change"] = pd.Categorical.from_codes(change % 4, categories=pd.Index(_CHANGES))
    places, words = changes.marks(rows, series)
    data["marks"] = pd.Categorical.from_codes(places, categories=pd.Index(words))
    frame = pd.DataFrame({name: data[name] for name in names()} | _labels(cases, case), copy=False)
    if last is not None and len(runs) > last:  # each of them has rows
        frame = frame[run >= len(runs) - last].reset_index(drop=True)
    frame.attrs["schema_version"] = schema.SCHEMA_VERSION
    return frame


def _of_runs(runs: Sequence[Run], run: Any) -> dict[str, Any]:
    data = {
        name: _texts([one.about[name] for one in runs], run)
        for name in ("run_id", "git_commit", "suite", "run_status", "folder")
    }
    for name in ("started", "finished"):
        data[name] = _times(np.array([one.about[name] for one in runs], dtype=np.int64)[run])
    return data


def _column(values: Sequence[Any], place: Any, kind: schema.Kind) -> Any:
    """A column in which the row at `place[i]` has `values[place[i]]`."""
    if kind == "text":
        return _texts(values, place)
    missing = np.array([value is None for value in values], dtype=bool)[place]
    known = [value or 0 for value in values]
    if kind == "truth":
        return pd.arrays.BooleanArray(np.array(known, dtype=bool)[place], missing)
    return pd.arrays.IntegerArray(np.array(known, dtype=np.int64)[place], missing)


def _texts(values: Sequence[str | None], place: Any) -> Any:
    words = sorted({value for value in values if value is not None})
    codes: dict[str | None, int] = {None: -1, **{word: code for code, word in enumerate(words)}}
    places = np.array([codes[value] for value in values], dtype=np.int32)[place]
    return pd.Categorical.from_codes(places, categories=pd.Index(words, dtype=None if words else object))


def _times(microseconds: Any) -> Any:
    return pd.DatetimeIndex(microseconds.astype("datetime64[us]")).tz_localize("UTC")


def _labels(cases: Sequence[Case], case: Any) -> dict[str, Any]:
    """The caller's own columns; one that has a name of ours gets another."""
    import json

    told = [json.loads(one[LABELS]) if one[LABELS] else {} for one in cases]
    found = list(dict.fromkeys(name for one in told for name in one))
    columns = {name: pd.Series([one.get(name) for one in told]).take(case).array for name in found}
    return {f"label_{name}" if name in names() else name: column for name, column in columns.items()}
