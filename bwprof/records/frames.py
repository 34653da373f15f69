"""What an index holds as one frame, made column by column: hundreds of thousands of rows take about a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bwprof.records import changes
from bwprof.records.index import layout
from bwprof.records.index.store import DamagedError, Kept, Store
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
        *("status", *layout.FIGURES[:3], "ratio", "change", "marks", *layout.FIGURES[3:]),
        *("bytes_read", "bytes_written", "flops", *layout.REMARK[1:]),
        *(*_GROUND, "git_commit", "suite", "run_status", "finished", "timestamp", "folder", "series"),
    )


def read(store: Store, paths: Mapping[str, Any], chosen: Chooser, last: int | None, gate: float) -> pd.DataFrame:
    """The rows of the runs at `paths` whose cases are chosen, of the `last` runs that have some.

    Raises
    ------
    DamagedError
        When the index does not hold what was put there.
    """
    runs = [run for run in store.runs() if run.path in paths]
    parts = store.parts()
    keys = layout.keys_array(b"".join(run.keys for run in runs))
    run = np.repeat(np.arange(len(runs)), [len(run.keys) // (8 * len(layout.KEYS)) for run in runs])
    numbers, case = _places(keys[:, 0], parts)
    cases = [_case(parts[number]) for number in numbers]
    mask = np.array(list(chosen(cases)), dtype=bool)[case] if cases else np.zeros(0, dtype=bool)
    inside = None
    if not mask.all():
        used = np.zeros(len(runs), dtype=bool)
        used[run[mask]] = True
        of_used = used[run]
        runs = [one for one, is_used in zip(runs, used.tolist(), strict=True) if is_used]
        inside = mask[of_used]
        run = (np.cumsum(used) - 1)[run[mask]]
        keys, case = keys[mask], case[mask]
    figures = layout.figures_array(b"".join(store.figures(runs)))
    if inside is not None:
        figures = figures[inside]
    return _frame(runs, run, cases, case, keys, np.ascontiguousarray(figures.T), parts, gate, last)


def _places(column: Any, parts: Mapping[int, Any]) -> tuple[list[int], Any]:
    """The numbers that a column has, and for each row which of them it is."""
    known = np.sort(np.fromiter(parts, dtype=np.int64, count=len(parts)))
    place = np.searchsorted(known, column)
    if len(column) and (not len(known) or (known[np.minimum(place, len(known) - 1)] != column).any()):
        raise DamagedError("a part is missing")
    used = np.bincount(place, minlength=len(known)) > 0
    return known[used].tolist(), (np.cumsum(used) - 1)[place]


def _case(values: Sequence[Any]) -> Case:
    return dict(zip((*layout.case_names(), layout.LABELS), values, strict=True))


def _frame(
    runs: Sequence[Kept],
    run: Any,
    cases: Sequence[Case],
    case: Any,
    keys: Any,
    figures: Any,
    parts: Mapping[int, Any],
    gate: float,
    last: int | None,
) -> pd.DataFrame:
    data: dict[str, Any] = dict(zip(layout.FIGURES, figures, strict=True))
    used = np.unique(case)
    cases, case = [cases[place] for place in used.tolist()], np.searchsorted(used, case)
    for name in layout.case_names():
        data[name] = _column([one[name] for one in cases], case, schema.kinds()[name])
    numbers, remark = _places(keys[:, 1], parts)
    remarks = [dict(zip(layout.REMARK, parts[number], strict=True)) for number in numbers]
    for name in layout.REMARK:
        data[name] = _column([one[name] for one in remarks], remark, schema.kinds()[name])
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


def _of_runs(runs: Sequence[Kept], run: Any) -> dict[str, Any]:
    about = [dict(zip(layout.RUN, one.about, strict=True)) for one in runs]
    data = {name: _texts([one[name] for one in about], run) for name in ("run_id", "git_commit", "suite")}
    data["run_status"] = _texts([one["status"] for one in about], run)
    data["folder"] = _texts([schema.encodable(one.path) for one in runs], run)
    for name in ("started", "finished"):
        data[name] = _times(np.array([one[name] for one in about], dtype=np.int64)[run])
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

    told = [json.loads(one[layout.LABELS]) if one[layout.LABELS] else {} for one in cases]
    found = list(dict.fromkeys(name for one in told for name in one))
    columns = {name: pd.Series([one.get(name) for one in told]).take(case).array for name in found}
    return {f"label_{name}" if name in names() else name: column for name, column in columns.items()}
