"""Find the run folders below a folder, and read the columns that a history has."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from bwprof import registry
from bwprof.results import json_file, reader, schema
from bwprof.results.atomic import claim_path, read_text
from bwprof.results.schema import RowDict

_NAMES = (reader.JSON_NAME, reader.CSV_NAME)


def run_folders(root: Path) -> list[str]:
    """Return the path of each run folder at or below `root`, from there.

    A link to a run folder counts, as long as the folder itself is not among the others; links to other folders are not
    followed, and hidden folders not entered: nothing is walked through twice.

    Raises
    ------
    OSError
        When `root` itself cannot be read.
    """
    top = os.fspath(root)
    found = ["."] if is_run(top) else []
    linked: list[str] = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for name, is_link in _subfolders(top, inside):
            path = f"{inside}{name}"
            if is_run(f"{top}/{path}"):
                (linked if is_link else found).append(path)
            elif not is_link:
                waiting.append(f"{path}/")
    known = {os.path.realpath(f"{top}/{path}") for path in found} if linked else set()
    for path in sorted(linked):
        real = os.path.realpath(f"{top}/{path}")
        if real not in known:
            known.add(real)
            found.append(path)
    return found


def is_run(folder: str) -> bool:
    """Return whether a folder has a file of results."""
    return any(os.path.exists(f"{folder}/{name}") for name in _NAMES)


def _subfolders(top: str, inside: str) -> Iterator[tuple[str, bool]]:
    """Name, and whether it is a link, of each folder in a folder that is not hidden."""
    try:
        with os.scandir(f"{top}/{inside}") as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                is_link = entry.is_symlink()
                if is_link or entry.is_dir(follow_symlinks=False):
                    yield entry.name, is_link
    except OSError:
        if not inside:
            raise  # a folder below it that nobody may read has no runs for us, and no row is lost that was known


# Of a row: how it ended, and its figures.
REMARK = ("status", "reason", "flags", "throttle", "limiter", "verified")

FIGURES = (
    "time_ms",
    "time_ms_lo",
    "time_ms_hi",
    "bandwidth_gb_s",
    "pct_peak",
    "pct_attainable",
    "pct_limit",
    "traffic_ratio",
    "noise",
    "sm_clock_mhz",
)

LABELS = "labels"  # the caller's own columns, as one JSON text beside a case's others

NO_TIME = -(2**63)  # NumPy's own for a time that is not known

_UNREADABLE = (AttributeError, LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def case_names() -> tuple[str, ...]:
    """The columns of what ran, and where."""
    where = ("backend", "device", "device_uuid", "hostname", "driver", "bwprof_version")
    work = ("bytes_read", "bytes_written", "flops")
    named = ("operation", "precision", "case", "variant", "cache", "timer")
    return (*named, *schema.param_names(), "kv_lens", *where, *work)


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """A run: its metadata, the places of its rows' cases and remarks with their times, and their `FIGURES`."""

    path: str
    about: dict[str, Any]
    keys: Any
    figures: Any


class RunReader:
    """Reads run folders; what many rows have in common, `cases` and `remarks`, it has once."""

    def __init__(self) -> None:
        self.cases: list[RowDict] = []
        self.remarks: list[RowDict] = []
        self.problems: dict[str, str] = {}  # why folders have no rows here
        self._places: dict[Any, int] = {}
        self._known = frozenset((*schema.column_names(), schema.SAMPLES))
        self._empty = dict.fromkeys((*case_names(), *REMARK, *FIGURES, "timestamp"))
        self._case = itemgetter(*case_names())
        self._remark = itemgetter(*REMARK)
        self._figures = itemgetter(*FIGURES)

    def read(self, root: Path, path: str) -> HistoryRun | None:
        """Read the run in a folder; None where it has gone, and with a problem where it cannot be read."""
        folder = root / path
        with suppress(*_UNREADABLE):
            rows, run = _finished(folder)
            return self._run(path, rows, run, folder)
        try:
            rows, _, run = reader.read_rows(folder)
            return self._run(path, rows, run, folder)
        except _UNREADABLE as error:
            if is_run(os.fspath(folder)):
                why = error.strerror if isinstance(error, OSError) and error.errno is not None else str(error)
                self.problems[path] = why or "it cannot be read"
        return None

    def _run(self, path: str, rows: Sequence[RowDict], run: Mapping[str, Any], folder: Path) -> HistoryRun:
        keys, figures = [], []
        host = run.get("host")
        name = host.get("name") if isinstance(host, dict) else None
        for row in rows:
            whole = {**self._empty, **row}
            if whole["hostname"] is None:
                whole["hostname"] = name if isinstance(name, str) else None
            whole["case"] = registry.case_name(whole["case"] or whole["operation"], whole["kv_lens"])
            more = row.keys() - self._known
            whole[LABELS] = _labels(row, more) if more else ""
            case = self._place((*self._case(whole), whole[LABELS]), self.cases, whole, case_names())
            remark = self._place(self._remark(whole), self.remarks, whole, REMARK)
            keys.append((case, remark, microseconds(whole["timestamp"])))
            figures.append(self._figures(whole))
        times = np.array(keys, dtype=np.int64).reshape(-1, 3)
        first = min((time for time in times[:, 2].tolist() if time != NO_TIME), default=NO_TIME)
        started = microseconds(run.get("started"))
        if started == NO_TIME:
            started = first if first != NO_TIME else _age(folder)
        run_id = run.get("run_id") or next((row["run_id"] for row in rows if row.get("run_id")), None)
        texts = {
            "run_id": run_id or folder.name,
            "run_status": run.get("status"),
            "suite": run.get("suite"),
            "git_commit": run.get("git_commit") or run.get("commit"),
        }
        about: dict[str, Any] = {name: text and schema.clean_text(str(text)) for name, text in texts.items()}
        about |= {
            "started": started,
            "finished": microseconds(run.get("finished")),
            "folder": schema.escape_surrogates(path),
        }
        return HistoryRun(path, about, times, _measured(figures))

    def _place(self, values: tuple[Any, ...], among: list[RowDict], whole: RowDict, names: Sequence[str]) -> int:
        """Return the place of a case or remark among the others, where it is put if it is new."""
        found = self._places.get(values)
        if found is None:
            kinds = schema.column_kinds()
            made = {name: schema.parse_cell(name, whole[name], kinds[name]) for name in names}
            found = self._places[values] = len(among)
            among.append(made | {LABELS: whole[LABELS]})
        return found


def _finished(folder: Path) -> tuple[list[RowDict], dict[str, Any]]:
    """Return rows, as the file has them, and metadata of a run that has ended; LookupError for any other."""
    path = folder / reader.JSON_NAME
    found = json_file.parse_json(read_text(path), str(path))
    rows, run = found["rows"], found["run"]
    ours = found["format"] == json_file.FORMAT and found["schema_version"] == schema.SCHEMA_VERSION
    if not ours or run["status"] in (None, "running") or os.path.lexists(claim_path(path)):
        raise LookupError
    if any(row.get("replaces") or not row.get("operation") or row.get("precision") is None for row in rows):
        raise LookupError
    return rows, run


def _measured(figures: Sequence[tuple[Any, ...]]) -> Any:
    """Return the figures of rows as an array, NaN for what nobody knows."""
    found = np.array(figures, dtype=float).reshape(-1, len(FIGURES))
    least, most, zero = np.array([schema.range_of(name) for name in FIGURES]).T
    return np.where((found >= least) & (found <= most) | (found == zero), found, np.nan)


def microseconds(text: Any) -> int:
    """Return a time as rows and metadata have it, since 1970 in UTC; `NO_TIME` for what is none.

    Examples
    --------
    >>> microseconds("1970-01-01T00:00:01.500+00:00"), microseconds("yesterday") == NO_TIME
    (1500000, True)
    """
    if not isinstance(text, str):
        return NO_TIME
    try:
        found = datetime.fromisoformat(text)
        since = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return NO_TIME
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _labels(row: RowDict, names: Iterable[str]) -> str:
    """Return the caller's own columns as one text; none where nothing is in them."""
    found = {schema.clean_text(name): schema.clean_value(row[name]) for name in sorted(names)}
    known = {name: value for name, value in found.items() if value is not None}
    return json.dumps(json_file.to_json_value(known)) if known else ""


def _age(folder: Path) -> int:
    """Return when a run's rows were written, for one that does not say when it ran."""
    for name in (reader.JSON_NAME, reader.CSV_NAME):
        with suppress(OSError):
            return os.stat(folder / name).st_mtime_ns // 1000
    return NO_TIME
