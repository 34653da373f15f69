"""`bwprof.history`: the rows of all runs below a folder, in one frame.

The frame is built column by column: hundreds of thousands of rows take about a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bwprof import registry
from bwprof.records.history import changes
from bwprof.records.history.scan import FIGURES, LABELS, REMARK, HistoryRun, RunReader, case_names, run_folders
from bwprof.results import columns as results_columns
from bwprof.results import schema
from bwprof.results.pairs import DEFAULT_GATE, is_comparable
from bwprof.results.reader import describe_unfinished
from bwprof.text.parsing import (
    describe_unknown,
    parse_fraction,
    parse_int,
    parse_names,
    parse_path,
    quote_text,
    repr_short,
)

HistoryCase = dict[str, Any]

Chooser = Callable[[Sequence[HistoryCase]], Sequence[bool]]  # of the cases that there are, those that are asked for

_OF_CASE = ("operation", "precision", "variant", "cache", "timer")

_GROUND = ("backend", "device", "device_uuid", "hostname", "driver", "bwprof_version")

_CHANGES = ("", changes.SLOWER, changes.UNDECIDED, changes.FASTER)  # by 0, 1, 2, -1


def column_names() -> tuple[str, ...]:
    """The columns of a history, in order; the caller's own columns follow."""
    return (
        *("run_id", "started", "case", *_OF_CASE, *schema.param_names(), "kv_lens"),
        *("status", *FIGURES[:3], "ratio", "change", "marks", *FIGURES[3:]),
        *("bytes_read", "bytes_written", "flops", *REMARK[1:]),
        *(*_GROUND, "git_commit", "suite", "run_status", "finished", "timestamp", "folder", "series"),
    )


def read_frame(
    reader: RunReader, runs: Sequence[HistoryRun], chosen: Chooser, last: int | None, gate: float
) -> pd.DataFrame:
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
    reader: RunReader, runs: Sequence[HistoryRun], run: Any, keys: Any, figures: Any, gate: float, last: int | None
) -> pd.DataFrame:
    data: dict[str, Any] = dict(zip(FIGURES, figures, strict=True))
    kinds = schema.column_kinds()
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
    counts = np.array([is_comparable(one) for one in remarks], dtype=bool)[remark]
    rows = changes.HistoryRows(cases, case, run, data["time_ms"], data["time_ms_lo"], data["time_ms_hi"], counts)
    data["series"] = series = changes.number_series(rows)
    data["ratio"], change = changes.compare_rows(rows, series, gate)
    data["change"] = pd.Categorical.from_codes(change % 4, categories=pd.Index(_CHANGES))
    places, words = changes.list_marks(rows, series)
    data["marks"] = pd.Categorical.from_codes(places, categories=pd.Index(words))
    frame = pd.DataFrame({name: data[name] for name in column_names()} | _labels(cases, case), copy=False)
    if last is not None and len(runs) > last:  # each of them has rows
        frame = frame[run >= len(runs) - last].reset_index(drop=True)
    frame.attrs["schema_version"] = schema.SCHEMA_VERSION
    return frame


def _of_runs(runs: Sequence[HistoryRun], run: Any) -> dict[str, Any]:
    data = {
        name: _texts([one.about[name] for one in runs], run)
        for name in ("run_id", "git_commit", "suite", "run_status", "folder")
    }
    for name in ("started", "finished"):
        data[name] = _times(np.array([one.about[name] for one in runs], dtype=np.int64)[run])
    return data


def _column(values: Sequence[Any], place: Any, kind: results_columns.ValueKind) -> Any:
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


def _labels(cases: Sequence[HistoryCase], case: Any) -> dict[str, Any]:
    """The caller's own columns; one that has a name of ours gets another."""
    import json

    told = [json.loads(one[LABELS]) if one[LABELS] else {} for one in cases]
    found = list(dict.fromkeys(name for one in told for name in one))
    columns = {name: pd.Series([one.get(name) for one in told]).take(case).array for name in found}
    return {f"label_{name}" if name in column_names() else name: column for name, column in columns.items()}


FOLDER = "bwprof-results"

_LISTED = 5  # runs that a message lists

_MOST_NAMES = 40  # of cases, likewise

_log = logging.getLogger("bwprof.records")

ReadProgress = Callable[[int, int], object]


def history(
    folder: str | PathLike[str] = FOLDER,
    case: str | Iterable[str] | None = None,
    precision: str | Iterable[str] | None = None,
    *,
    operation: str | Iterable[str] | None = None,
    device: str | Iterable[str] | None = None,
    last: int | None = None,
    gate: float | str = DEFAULT_GATE,
    progress: ReadProgress | None = None,
) -> pd.DataFrame:
    """What all runs below a folder have measured, over time.

    Parameters
    ----------
    folder : path
        Where run folders are, at any depth; hidden folders are left out. What `bwprof.sweep` leaves by itself is
        ``bwprof-results``.
    case, precision, operation, device : str or iterable of str, optional
        Only rows with one of these; patterns of the shell (``"attention*"``) will do. A row's `case` is asked for, or
        its operation's name.
    last : int, optional
        Only the last so many runs of those that have such rows; they are compared with the runs before them all the
        same.
    gate : float or str
        The smallest difference worth a word, as a fraction or as "3%": see `bwprof.results.pairs.times_differ`.
    progress : callable, optional
        Gets (done, total) while runs are read.

    Returns
    -------
    pandas.DataFrame
        One row per run and case, the earliest run first; texts are categories (``groupby(..., observed=True)``), times
        UTC. `series` numbers what is measured again and again: the same case, precision, cache and timer on the same
        device of the same host; where a run has several variants, devices of one name or labels, each of them. `ratio`
        is the time over that of the series' run before (rows without a time, and disturbed ones, are stepped over),
        `change` is "slower" or "faster" where the two differ, "undecided" where they do beyond the gate and their
        intervals overlap, and `marks` names what changed besides: driver, bwprof's
        version, variant, device. ``attrs["unread"]`` holds the folders that could not be read, and why.

    Raises
    ------
    FileNotFoundError
        When there is no such folder.
    ValueError
        For a name that nothing there has, with the nearest one.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "monday").mkdir()
    >>> _ = bwprof.save(bwprof.load_example("h200"), folder / "monday" / "results.json")
    >>> found = bwprof.history(folder, case="decode_gemm*", precision="fp16")
    >>> found[["case", "precision"]].drop_duplicates().shape[0] == found["series"].nunique()
    True
    """
    root = parse_path(folder, "folder")
    if not root.is_dir():
        said = "it is no folder" if root.exists() else "no such folder; a sweep makes one"
        raise FileNotFoundError(f"{quote_text(folder)}: {said}")
    asked = {"case": case, "precision": precision, "operation": operation, "device": device}
    wanted = {name: parse_names(name, value) for name, value in asked.items() if value is not None}
    if precision is not None:
        wanted["precision"] = tuple(map(registry.precision_name, wanted["precision"]))
    most = None if last is None else parse_int(last, "last")
    if most is not None and most < 1:
        raise ValueError(f"last is {repr_short(last)}: a number of runs from 1 is needed")
    known = parse_fraction(gate, "gate")

    reader, runs = RunReader(), []
    found = run_folders(root)
    for number, path in enumerate(found, start=1):
        run = reader.read(root, path)
        runs += [] if run is None else [run]
        if progress is not None:
            progress(number, len(found))
    runs.sort(key=lambda run: (run.about["started"], run.about["run_id"], run.path))
    frame = read_frame(reader, runs, lambda cases: _chosen(cases, wanted), most, known)
    frame.attrs |= {"folder": str(folder), "runs": len(found), "unread": dict(sorted(reader.problems.items()))}
    _warn(root, reader.problems, runs)
    return frame


def _warn(root: Path, unread: Mapping[str, str], runs: Sequence[HistoryRun]) -> None:
    """Log which folders have no rows here, and which runs may lack cases."""
    states = {run.path: run.about["run_status"] for run in runs}
    partial = [
        f"{quote_text(path)} ({quote_text(state)})"
        for path, state in states.items()
        if describe_unfinished({"status": state})
    ]
    if partial:
        more = f" and {len(partial) - _LISTED} more" if len(partial) > _LISTED else ""
        _log.warning("not complete, cases may be missing: %s%s", ", ".join(partial[:_LISTED]), more)
    for path, why in list(unread.items())[:_LISTED]:
        _log.warning("%s cannot be read and is left out: %s", quote_text(root / path), quote_text(why))
    if len(unread) > _LISTED:
        _log.warning("%d more runs cannot be read and are left out: attrs['unread'] names them", len(unread) - _LISTED)


def _chosen(cases: Sequence[Mapping[str, Any]], wanted: Mapping[str, Sequence[str]]) -> list[bool]:
    """Of each case whether it is asked for; ValueError for a name that none of them has."""
    chosen = [True] * len(cases)
    for name, patterns in wanted.items():
        columns = ("case", "operation") if name == "case" else (name,)
        values = [[str(case[column]) for column in columns if case[column]] for case in cases]
        for pattern in patterns if cases else ():
            if not any(fnmatchcase(value, pattern) for found in values for value in found):
                there = sorted({found[0] for found in values if found})
                raise ValueError(describe_unknown(name, pattern, _near(pattern, there)))
        for place, found in enumerate(values):
            chosen[place] &= any(fnmatchcase(value, pattern) for value in found for pattern in patterns)
    return chosen


def _near(pattern: str, there: Sequence[str]) -> Sequence[str]:
    """Of very many names those that are like it."""
    if len(there) <= _MOST_NAMES:
        return there
    import difflib

    return difflib.get_close_matches(pattern, there, n=_MOST_NAMES, cutoff=0.3) or there[:_MOST_NAMES]
