"""`bwprof.history`: the rows of all runs below a folder, in one frame.

The frame is built column by column: hundreds of thousands of rows take about a second.
"""

from __future__ import annotations

import json
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

FOLDER = "bwprof-results"
HistoryCase = Mapping[str, Any]
ReadProgress = Callable[[int, int], object]
_OF_CASE = ("operation", "precision", "variant", "cache", "timer")
_GROUND = ("backend", "device", "device_uuid", "hostname", "driver", "bwprof_version")
_CHANGES = ("", changes.SLOWER, changes.UNDECIDED, changes.FASTER)  # by 0, 1, 2, -1
_MOST_RUNS = 5  # in a message
_log = logging.getLogger("bwprof.records")


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
    """Return what all runs below a folder have measured, over time.

    Parameters
    ----------
    folder : path
        The folder of run folders, at any depth except in hidden folders. `bwprof.sweep` writes ``bwprof-results``.
    case, precision, operation, device : str or iterable of str, optional
        Select rows with one of these names; shell patterns (``"attention*"``) are allowed. `case` matches the
        operation's name, too.
    last : int, optional
        Select the last runs that have such rows; they are still compared with the runs before them.
    gate : float or str
        The smallest difference that matters, as a fraction or as "3%": see `bwprof.results.pairs.times_differ`.
    progress : callable, optional
        Called with (done, total) while runs are read.

    Returns
    -------
    pandas.DataFrame
        One row per run and case, the earliest run first; texts are categories (``groupby(..., observed=True)``), times
        UTC. `series` numbers the rows that measure the same thing: the same case, precision, cache and timer on the
        same device of the same host; where a run has several variants, devices of one name or labels, each of them.
        `ratio` is the time over that of the series' run before (rows without a time, and disturbed ones, do not count),
        `change` is "slower" or "faster" where the two differ, "undecided" where they differ by more than the gate and
        their intervals overlap, and `marks` names what else changed: driver, bwprof's version, variant, device.
        ``attrs["unread"]`` has the unreadable folders, and why.

    Raises
    ------
    FileNotFoundError
        When there is no such folder.
    ValueError
        For a name that no row has; the message offers the nearest one.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "monday").mkdir()
    >>> _ = bwprof.save(bwprof.load_example("h200"), folder / "monday" / "results.json")
    >>> rows = bwprof.history(folder, case="decode_gemm*", precision="fp16")
    >>> rows[["case", "precision"]].drop_duplicates().shape[0] == rows["series"].nunique()
    True
    """
    root = parse_path(folder, "folder")
    if not root.is_dir():
        why = "it is no folder" if root.exists() else "no such folder; a sweep makes one"
        raise FileNotFoundError(f"{quote_text(folder)}: {why}")
    values = {"case": case, "precision": precision, "operation": operation, "device": device}
    patterns = {name: parse_names(name, value) for name, value in values.items() if value is not None}
    if precision is not None:
        patterns["precision"] = tuple(map(registry.precision_name, patterns["precision"]))
    most = None if last is None else parse_int(last, "last")
    if most is not None and most < 1:
        raise ValueError(f"last is {repr_short(last)}: a number of runs from 1 is needed")
    fraction = parse_fraction(gate, "gate")

    reader, runs = RunReader(), []
    paths = run_folders(root)
    for number, path in enumerate(paths, start=1):
        run = reader.read(root, path)
        runs += [] if run is None else [run]
        if progress is not None:
            progress(number, len(paths))
    runs.sort(key=lambda run: (run.about["started"], run.about["run_id"], run.path))
    frame = _read_frame(reader, runs, patterns, most, fraction)
    frame.attrs |= {"folder": str(folder), "runs": len(paths), "unread": dict(sorted(reader.problems.items()))}
    _warn(root, reader.problems, runs)
    return frame


def column_names() -> tuple[str, ...]:
    """Return the columns of a history, in order; the caller's own columns follow."""
    return (
        *("run_id", "started", "case", *_OF_CASE, *schema.param_names(), "kv_lens"),
        *("status", *FIGURES[:3], "ratio", "change", "marks", *FIGURES[3:]),
        *("bytes_read", "bytes_written", "flops", *REMARK[1:]),
        *(*_GROUND, "git_commit", "suite", "run_status", "finished", "timestamp", "folder", "series"),
    )


def _read_frame(
    reader: RunReader, runs: Sequence[HistoryRun], patterns: Mapping[str, Sequence[str]], last: int | None, gate: float
) -> pd.DataFrame:
    keys, figures = (
        np.concatenate([getattr(run, name) for run in runs] or [np.zeros((0, width), kind)])
        for name, width, kind in (("keys", 3, np.int64), ("figures", len(FIGURES), float))
    )
    run = np.repeat(np.arange(len(runs)), [len(item.keys) for item in runs])
    used, case = np.unique(keys[:, 0], return_inverse=True)
    cases = [reader.cases[place] for place in used.tolist()]
    mask = np.array(_match_cases(cases, patterns), dtype=bool)[case]
    numbers, run = np.unique(run[mask], return_inverse=True)
    chosen = [runs[number] for number in numbers.tolist()]
    frame = _make_frame(reader, chosen, run, keys[mask], figures[mask].T, gate)
    if last is not None and len(chosen) > last:  # each of them has rows
        frame = frame[run >= len(chosen) - last].reset_index(drop=True)
    frame.attrs["schema_version"] = schema.SCHEMA_VERSION
    return frame


def _make_frame(
    reader: RunReader, runs: Sequence[HistoryRun], run: Any, keys: Any, figures: Any, gate: float
) -> pd.DataFrame:
    data: dict[str, Any] = dict(zip(FIGURES, figures, strict=True))
    kinds = schema.column_kinds()
    used, case = np.unique(keys[:, 0], return_inverse=True)
    cases = [reader.cases[place] for place in used.tolist()]
    used, remark = np.unique(keys[:, 1], return_inverse=True)
    remarks = [reader.remarks[place] for place in used.tolist()]
    for names, members, places in ((case_names(), cases, case), (REMARK, remarks, remark)):
        data |= {name: _column([member[name] for member in members], places, kinds[name]) for name in names}
    for name in ("run_id", "git_commit", "suite", "run_status", "folder"):
        data[name] = _column([item.about[name] for item in runs], run)
    for name in ("started", "finished"):
        data[name] = _times(np.array([item.about[name] for item in runs], dtype=np.int64)[run])
    data["timestamp"] = _times(keys[:, 2])
    counts = np.array([is_comparable(item) for item in remarks], dtype=bool)[remark]
    rows = changes.HistoryRows(cases, case, run, data["time_ms"], data["time_ms_lo"], data["time_ms_hi"], counts)
    data["series"] = series = changes.number_series(rows)
    data["ratio"], change = changes.compare_rows(rows, series, gate)
    data["change"] = pd.Categorical.from_codes(change % 4, categories=pd.Index(_CHANGES))
    marks = changes.list_marks(rows, series)
    data["marks"] = pd.Categorical(marks, categories=list(dict.fromkeys(["", *marks])))
    return pd.DataFrame({name: data[name] for name in column_names()} | _labels(cases, case), copy=False)


def _column(values: Sequence[Any], place: Any, kind: schema.ValueKind = "text") -> Any:
    """Make a column in which the row at `place[i]` has `values[place[i]]`."""
    dtype: Any = {"text": "category", "boolean": "boolean"}.get(kind, "Int64")
    return pd.Series(values, dtype=dtype).take(place).array


def _times(microseconds: Any) -> Any:
    return pd.DatetimeIndex(microseconds.astype("datetime64[us]")).tz_localize("UTC")


def _labels(cases: Sequence[HistoryCase], case: Any) -> dict[str, Any]:
    """Return the caller's own columns; one with a name of ours becomes ``label_NAME``."""
    labels = [json.loads(item[LABELS]) if item[LABELS] else {} for item in cases]
    names = dict.fromkeys(name for item in labels for name in item)
    columns = {name: pd.Series([item.get(name) for item in labels]).take(case).array for name in names}
    return {f"label_{name}" if name in column_names() else name: column for name, column in columns.items()}


def _warn(root: Path, unread: Mapping[str, str], runs: Sequence[HistoryRun]) -> None:
    states = {run.path: run.about["run_status"] for run in runs}
    partial = [
        f"{quote_text(path)} ({quote_text(state)})"
        for path, state in states.items()
        if describe_unfinished({"status": state})
    ]
    if partial:
        more = f" and {len(partial) - _MOST_RUNS} more" if len(partial) > _MOST_RUNS else ""
        _log.warning("not complete, cases may be missing: %s%s", ", ".join(partial[:_MOST_RUNS]), more)
    for path, why in list(unread.items())[:_MOST_RUNS]:
        _log.warning("%s cannot be read and is left out: %s", quote_text(root / path), quote_text(why))
    if len(unread) > _MOST_RUNS:
        _log.warning(
            "%d more runs cannot be read and are left out: attrs['unread'] names them", len(unread) - _MOST_RUNS
        )


def _match_cases(cases: Sequence[HistoryCase], patterns: Mapping[str, Sequence[str]]) -> list[bool]:
    """Return for each case whether it matches; raise ValueError for a pattern that matches none."""
    chosen = [True] * len(cases)
    for name, words in patterns.items():
        columns = ("case", "operation") if name == "case" else (name,)
        values = [[str(case[column]) for column in columns if case[column]] for case in cases]
        matches = [[any(fnmatchcase(value, word) for value in texts) for texts in values] for word in words]
        for word, matching in zip(words, matches, strict=True):
            if cases and not any(matching):
                raise ValueError(describe_unknown(name, word, sorted({texts[0] for texts in values if texts})))
        chosen = [all((before, any(matching))) for before, *matching in zip(chosen, *matches, strict=True)]
    return chosen
