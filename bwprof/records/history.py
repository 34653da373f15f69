"""`bwprof.history`: the rows of all runs below a folder, in one frame, which is built column by column."""

from __future__ import annotations

import fnmatch
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bwprof import registry
from bwprof.records.keys import portable_names, variantless_names
from bwprof.results import json_file, reader, schema
from bwprof.results.atomic import claim_path, read_text
from bwprof.results.pairs import DEFAULT_GATE, is_comparable, times_differ
from bwprof.results.reader import describe_unfinished
from bwprof.results.schema import RowDict
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
SLOWER, FASTER, UNDECIDED = "slower", "faster", "undecided"
_TIMES = ("time_ms", "time_ms_lo", "time_ms_hi")
_FIGURES = (
    *(*_TIMES, "bandwidth_gb_s", "pct_peak", "pct_attainable", "pct_limit"),
    *("traffic_ratio", "noise", "sm_clock_mhz"),
)
_OUTCOME = ("reason", "flags", "throttle", "limiter", "verified")
_GROUND = ("backend", "device", "device_uuid", "hostname", "driver", "bwprof_version")
_LABELS = "labels"  # the caller's own columns, as one JSON text
_FURTHER = (_LABELS, "variant", "device_uuid")  # distinguish a run's rows of one series, in this order
_MARKED = {"driver": "driver", "bwprof_version": "bwprof", "variant": "variant", "device_uuid": "device"}  # and labels
_LONGEST = 24  # letters of a value in a mark
_MOST_RUNS = 5  # in a message
_NO_TIME = -(2**63)  # NumPy's value of an unknown time
_FILES = (reader.JSON_NAME, reader.CSV_NAME)
_UNREADABLE = (AttributeError, LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError)
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
    progress: Callable[[int, int], object] | None = None,
) -> pd.DataFrame:
    """Return what all runs below a folder have measured, over time.

    Parameters
    ----------
    folder : path
        The folder of run folders, at any depth except in hidden folders.
    case, precision, operation, device : str or iterable of str, optional
        Select rows with one of these names or patterns (``"attention*"``); `case` matches the operation's name, too.
    last : int, optional
        Select the last runs that have such rows; they are still compared with the runs before them.
    gate : float or str
        The smallest difference that matters, 0.03 or "3%": see `bwprof.results.pairs.times_differ`.
    progress : callable, optional
        Called with (done, total) while runs are read.

    Returns
    -------
    pandas.DataFrame
        One row per run and case, the earliest run first; texts are categories, times UTC. `series` numbers the rows
        that measure the same thing: a case, precision, cache and timer on a device of a host; where a run has several
        variants, devices of one name or labels, each of them. `ratio` is the time over that of the series' run before
        (disturbed rows do not count), `change` is "slower", "faster", or "undecided" where the intervals overlap, and
        `marks` names what else changed. ``attrs["unread"]`` has the unreadable folders, and why.

    Raises
    ------
    FileNotFoundError, ValueError
        When there is no such folder, and for a name that no row has.

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

    runs = RunReader(root)
    paths = run_folders(root)
    for number, path in enumerate(paths, start=1):
        runs.read(path)
        if progress is not None:
            progress(number, len(paths))
    frame = _make_frame(runs, patterns, most, fraction)
    unread = dict(sorted(runs.problems.items()))
    frame.attrs = {"schema_version": schema.SCHEMA_VERSION, "folder": str(folder), "runs": len(paths), "unread": unread}
    _warn(runs)
    return frame


def run_folders(root: Path) -> list[str]:
    """Return the relative path of each run folder at or below `root`, of links to one folder the first.

    Links to other folders, and hidden folders, are not searched.
    """
    top = os.fspath(root)
    paths = ["."] if is_run(top) else []

    def check_root(error: OSError) -> None:
        if error.filename == top:
            raise error  # an unreadable folder below it has no readable runs

    for folder, names, _ in os.walk(top, onerror=check_root):
        names[:] = [name for name in names if not name.startswith(".")]
        found = [name for name in names if is_run(f"{folder}/{name}")]
        paths += [os.path.relpath(f"{folder}/{name}", top) for name in found]
        names[:] = [name for name in names if name not in found]
    unique: dict[str, str] = {}
    for path in sorted(paths, key=lambda path: (os.path.islink(f"{top}/{path}"), path)):
        unique.setdefault(os.path.realpath(f"{top}/{path}"), path)
    return list(unique.values())


def is_run(folder: str) -> bool:
    """Return whether a folder has a file of results."""
    return any(os.path.exists(f"{folder}/{name}") for name in _FILES)


@cache
def _case_names() -> tuple[str, ...]:
    """Return the columns of what ran, where, and how it ended."""
    what = ("operation", "precision", "case", "variant", "cache", "timer", *schema.param_names(), "kv_lens")
    return (*what, *_GROUND, "bytes_read", "bytes_written", "flops", "status", *_OUTCOME)


@cache
def column_names() -> tuple[str, ...]:
    """Return the columns of a history, in order; the caller's own columns follow."""
    return (
        *("run_id", "started", "case", "operation", "precision", "variant", "cache", "timer"),
        *(*schema.param_names(), "kv_lens", "status", *_TIMES, "ratio", "change", "marks", *_FIGURES[3:]),
        *("bytes_read", "bytes_written", "flops", *_OUTCOME),
        *(*_GROUND, "git_commit", "suite", "run_status", "finished", "timestamp", "folder", "series"),
    )


class RunReader:
    """Reads run folders below `root`: metadata, `keys` (each row's place in `cases`, and time) and `figures`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: list[dict[str, Any]] = []
        self.cases: list[RowDict] = []
        self.problems: dict[str, str] = {}  # why a folder has no rows here
        self._places: dict[Any, int] = {}
        self._known = frozenset((*schema.column_names(), schema.SAMPLES))
        self._empty = dict.fromkeys((*_case_names(), *_FIGURES, "timestamp"))
        self._case, self._figures = itemgetter(*_case_names()), itemgetter(*_FIGURES)

    def read(self, path: str) -> None:
        """Read the run in a folder, unless it has gone; an unreadable one has a problem."""
        folder = self.root / path
        with suppress(*_UNREADABLE):
            self._add(path, *_read_finished(folder))
            return
        try:
            rows, _, run = reader.read_rows(folder)
            self._add(path, rows, run)
        except _UNREADABLE as error:
            if is_run(os.fspath(folder)):
                why = error.strerror if isinstance(error, OSError) and error.errno is not None else str(error)
                self.problems[path] = why or "it cannot be read"

    def _add(self, path: str, rows: Sequence[RowDict], run: Mapping[str, Any]) -> None:
        keys, figures = [], []
        host = run.get("host")
        hostname = host.get("name") if isinstance(host, dict) else None
        for row in rows:
            complete = {**self._empty, **row}
            if complete["hostname"] is None:
                complete["hostname"] = hostname if isinstance(hostname, str) else None
            complete["case"] = registry.case_name(complete["case"] or complete["operation"], complete["kv_lens"])
            more = row.keys() - self._known
            place = self._index(complete, _encode_labels(row, more) if more else "")
            keys.append((place, microseconds(complete["timestamp"])))
            figures.append(self._figures(complete))
        about = _read_metadata(self.root / path, rows, run, [time for _, time in keys])
        about["folder"] = schema.escape_surrogates(path)
        about["keys"] = np.array(keys, dtype=np.int64).reshape(-1, 2)
        about["figures"] = np.array(figures, dtype=float).reshape(-1, len(_FIGURES))
        self.runs.append(about)

    def _index(self, complete: RowDict, labels: str) -> int:
        values = (*self._case(complete), labels)
        place = self._places.get(values)
        if place is None:
            kinds = schema.column_kinds()
            place = self._places[values] = len(self.cases)
            case = {name: schema.parse_cell(name, complete[name], kinds[name]) for name in _case_names()}
            self.cases.append(case | {_LABELS: labels})
        return place


def _read_finished(folder: Path) -> tuple[list[RowDict], dict[str, Any]]:
    """Return raw rows and metadata of a run that has ended; raise LookupError for any other."""
    path = folder / reader.JSON_NAME
    document = json_file.parse_json(read_text(path), str(path))
    rows, run = document["rows"], document["run"]
    ours = document["format"] == json_file.FORMAT and document["schema_version"] == schema.SCHEMA_VERSION
    if not ours or run["status"] in (None, "running") or os.path.lexists(claim_path(path)):
        raise LookupError
    if any(row.get("replaces") or not row.get("operation") or row.get("precision") is None for row in rows):
        raise LookupError
    return rows, run


def _read_metadata(
    folder: Path, rows: Sequence[RowDict], run: Mapping[str, Any], times: Sequence[int]
) -> dict[str, Any]:
    started = microseconds(run.get("started"))
    if started == _NO_TIME:
        started = min((time for time in times if time != _NO_TIME), default=_NO_TIME)
    texts = {
        "run_id": run.get("run_id") or next((row["run_id"] for row in rows if row.get("run_id")), folder.name),
        "run_status": run.get("status"),
        "suite": run.get("suite"),
        "git_commit": run.get("git_commit") or run.get("commit"),
    }
    about: dict[str, Any] = {name: text and schema.clean_text(str(text)) for name, text in texts.items()}
    about["started"] = _file_time(folder) if started == _NO_TIME else started
    return about | {"finished": microseconds(run.get("finished"))}


def microseconds(text: Any) -> int:
    """Return an ISO time as microseconds since 1970 in UTC; NumPy's unknown time for anything else."""
    with suppress(OverflowError, TypeError, ValueError):
        time = datetime.fromisoformat(text)
        return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1e6)
    return _NO_TIME


def _encode_labels(row: RowDict, names: Iterable[str]) -> str:
    """Return the caller's own columns as one JSON text; "" where all are empty."""
    values = {schema.clean_text(name): schema.clean_value(row[name]) for name in sorted(names)}
    known = {name: value for name, value in values.items() if value is not None}
    return json.dumps(json_file.to_json_value(known)) if known else ""


def _file_time(folder: Path) -> int:
    for name in _FILES:
        with suppress(OSError):
            return os.stat(folder / name).st_mtime_ns // 1000
    return _NO_TIME


def _make_frame(found: RunReader, patterns: Mapping[str, Sequence[str]], last: int | None, gate: float) -> pd.DataFrame:
    runs = sorted(found.runs, key=itemgetter("started", "run_id", "folder"))
    run = np.repeat(np.arange(len(runs)), [len(item["keys"]) for item in runs])
    keys = np.concatenate([np.zeros((0, 2), np.int64), *(item["keys"] for item in runs)])
    figures = np.concatenate([np.zeros((0, len(_FIGURES))), *(item["figures"] for item in runs)])
    least, most, zero = np.array([schema.range_of(name) for name in _FIGURES]).T  # others are unknown
    figures = np.where((figures >= least) & (figures <= most) | (figures == zero), figures, np.nan)
    chosen = np.array(_match_cases(found.cases, patterns), dtype=bool)[keys[:, 0]]
    used, run = np.unique(run[chosen], return_inverse=True)
    about = [runs[number] for number in used.tolist()]
    used, case = np.unique(keys[chosen, 0], return_inverse=True)
    cases = [found.cases[place] for place in used.tolist()]

    kinds = schema.column_kinds()
    data: dict[str, Any] = dict(zip(_FIGURES, figures[chosen].T, strict=True))
    data |= {name: _column(cases, name, case, kinds[name]) for name in _case_names()}
    for name in ("run_id", "git_commit", "suite", "run_status", "folder"):
        data[name] = _column(about, name, run, "text")
    for name in ("started", "finished"):
        data[name] = _times(np.array([item[name] for item in about], dtype=np.int64)[run])
    data["timestamp"] = _times(keys[chosen, 1])
    data["series"] = series = number_series(cases, case, run)
    data["ratio"], data["change"] = _compare_rows(cases, case, data, series, gate)
    marks = _list_marks(cases, case, series)
    data["marks"] = pd.Categorical(marks, categories=list(dict.fromkeys(["", *marks])))
    frame = pd.DataFrame({name: data[name] for name in column_names()} | _labels(cases, case), copy=False)
    if last is not None and len(about) > last:  # each of them has rows
        return frame[run >= len(about) - last].reset_index(drop=True)
    return frame


def _match_cases(cases: Sequence[RowDict], patterns: Mapping[str, Sequence[str]]) -> list[bool]:
    """Return for each case whether it matches; raise ValueError for a pattern that matches none."""
    chosen = [True] * len(cases)
    for name, words in patterns.items():
        columns = ("case", "operation") if name == "case" else (name,)
        texts = [[str(case[column]) for column in columns if case[column]] for case in cases]
        found = [{word for word in words if fnmatch.filter(names, word)} for names in texts]
        missing = [word for word in words if cases and word not in set().union(*found)]
        if missing:
            raise ValueError(describe_unknown(name, missing[0], sorted({names[0] for names in texts if names})))
        chosen = [before and bool(hits) for before, hits in zip(chosen, found, strict=True)]
    return chosen


def _column(members: Sequence[Mapping[str, Any]], name: str, place: Any, kind: str) -> Any:
    """Make a column in which row i has the value of `members[place[i]]`."""
    dtype: Any = {"text": "category", "boolean": "boolean"}.get(kind, "Int64")
    return pd.Series([member[name] for member in members], dtype=dtype).take(place).array


def _times(microseconds: Any) -> Any:
    return pd.DatetimeIndex(microseconds.astype("datetime64[us]")).tz_localize("UTC")


def _labels(cases: Sequence[RowDict], case: Any) -> dict[str, Any]:
    """Return the caller's own columns; one with a name of ours becomes ``label_NAME``."""
    labels = [json.loads(item[_LABELS]) if item[_LABELS] else {} for item in cases]
    names = dict.fromkeys(name for item in labels for name in item)
    columns = {name: pd.Series([item.get(name) for item in labels]).take(case).array for name in names}
    return {f"label_{name}" if name in column_names() else name: column for name, column in columns.items()}


def number_series(cases: Sequence[RowDict], case: Any, run: Any) -> Any:
    """Return each row's series, numbered in the order in which they begin."""
    table = pd.DataFrame(cases, columns=[*_case_names(), _LABELS], dtype=object)
    codes = table.groupby([*variantless_names(), "hostname"], dropna=False, sort=False).ngroup()
    for name in _FURTHER:
        rows = pd.DataFrame({"run": run, "code": codes.to_numpy()[case]})
        repeated = rows.loc[rows.duplicated(), "code"]
        if not len(repeated):
            break
        codes = table.groupby([codes, table[name].where(codes.isin(repeated))], dropna=False, sort=False).ngroup()
    rows = pd.DataFrame({"run": run, "code": codes.to_numpy()[case]})
    rows["turn"] = rows.groupby(["run", "code"]).cumcount()
    return rows.groupby(["code", "turn"], sort=False).ngroup().to_numpy(np.int32)


def _compare_rows(
    cases: Sequence[RowDict], case: Any, data: Mapping[str, Any], series: Any, gate: float
) -> tuple[Any, Any]:
    """Compare each row with the comparable row before it in its series: return time / time before, and the change."""
    table = pd.DataFrame({name: data[name] for name in _TIMES})
    comparable = np.array([is_comparable(member) for member in cases], dtype=bool)[case]
    rows = table[comparable & np.isfinite(table["time_ms"]) & (table["time_ms"] > 0)]
    before = rows.groupby(series[rows.index]).shift()
    now, then = rows["time_ms"], before["time_ms"]
    changes = np.full(len(table), "", dtype=object)
    moved = rows.index[(now - then).abs() > gate * np.minimum(now, then)]
    pairs = zip(moved, before.loc[moved].to_dict("records"), rows.loc[moved].to_dict("records"), strict=True)
    for place, old, new in pairs:
        word = SLOWER if new["time_ms"] > old["time_ms"] else FASTER
        changes[place] = word if times_differ(old, new, gate=gate) else UNDECIDED
    ratios = (now / then).reindex(table.index).to_numpy()
    return ratios, pd.Categorical(changes, categories=["", SLOWER, UNDECIDED, FASTER])


def _list_marks(cases: Sequence[RowDict], case: Any, series: Any) -> list[str]:
    """Describe for each row what else changed since the row before it in its series, or since another device."""
    marks = []
    latest: dict[int, RowDict] = {}
    devices: dict[Any, str] = {}
    for number, place in zip(series.tolist(), case.tolist(), strict=True):
        new, old = cases[place], latest.get(number)
        latest[number] = new
        mark = ""
        if old is None:
            key = (new["hostname"], new[_LABELS], *(new[name] for name in portable_names()))
            device = new["device"]
            if device and devices.setdefault(key, device) != device:
                mark = f"device {_cut(devices[key])} -> {_cut(device)}"
                devices[key] = device
        elif old is not new:
            values = ((label, old[name], new[name]) for name, label in _MARKED.items())
            mark = "; ".join(f"{label} {_cut(a)} -> {_cut(b)}" for label, a, b in values if a != b and a and b)
        marks.append(mark)
    return marks


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\u2026"


def _warn(found: RunReader) -> None:
    states = {run["folder"]: run["run_status"] for run in found.runs}
    partial = [
        f"{quote_text(path)} ({quote_text(state)})"
        for path, state in states.items()
        if describe_unfinished({"status": state})
    ]
    if partial:
        more = f" and {len(partial) - _MOST_RUNS} more" if len(partial) > _MOST_RUNS else ""
        _log.warning("not complete, cases may be missing: %s%s", ", ".join(partial[:_MOST_RUNS]), more)
    for path, why in sorted(found.problems.items())[:_MOST_RUNS]:
        _log.warning("%s cannot be read and is left out: %s", quote_text(found.root / path), quote_text(why))
    if len(found.problems) > _MOST_RUNS:
        rest = len(found.problems) - _MOST_RUNS
        _log.warning("%d more runs cannot be read and are left out: attrs['unread'] names them", rest)
