"""Find the run folders below a folder, and read the columns that a history has."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
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

# A row's outcome, and its figures.
REMARK = ("status", "reason", "flags", "throttle", "limiter", "verified")
FIGURES = (
    *("time_ms", "time_ms_lo", "time_ms_hi", "bandwidth_gb_s", "pct_peak", "pct_attainable", "pct_limit"),
    *("traffic_ratio", "noise", "sm_clock_mhz"),
)
LABELS = "labels"  # the caller's own columns, as one JSON text
NO_TIME = -(2**63)  # NumPy's value of an unknown time
_NAMES = (reader.JSON_NAME, reader.CSV_NAME)
_UNREADABLE = (AttributeError, LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_folders(root: Path) -> list[str]:
    """Return the relative path of each run folder at or below `root`.

    A link to a run folder counts if the folder itself is not among the others. Links to other folders, and hidden
    folders, are not searched.
    """
    top = os.fspath(root)
    folders = ["."] if is_run(top) else []
    links: list[str] = []

    def check_root(error: OSError) -> None:
        if error.filename == top:
            raise error  # an unreadable folder below it has no readable runs

    for folder, names, _ in os.walk(top, onerror=check_root):
        names[:] = [name for name in names if not name.startswith(".")]
        for name in names.copy():
            path = f"{folder}/{name}"
            if is_run(path):
                (links if os.path.islink(path) else folders).append(os.path.relpath(path, top))
                names.remove(name)
    known = {os.path.realpath(f"{top}/{path}") for path in folders} if links else set()
    for path in sorted(links):
        real = os.path.realpath(f"{top}/{path}")
        if real not in known:
            known.add(real)
            folders.append(path)
    return folders


def is_run(folder: str) -> bool:
    """Return whether a folder has a file of results."""
    return any(os.path.exists(f"{folder}/{name}") for name in _NAMES)


@cache
def case_names() -> tuple[str, ...]:
    """Return the columns of what ran, and where."""
    where = ("backend", "device", "device_uuid", "hostname", "driver", "bwprof_version")
    work = ("bytes_read", "bytes_written", "flops")
    named = ("operation", "precision", "case", "variant", "cache", "timer")
    return (*named, *schema.param_names(), "kv_lens", *where, *work)


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """A run: its metadata, and for each row its `FIGURES`, and the indices of its case and remark with its time."""

    path: str
    about: dict[str, Any]
    keys: Any
    figures: Any


class RunReader:
    """Reads run folders; stores each distinct case and remark once."""

    def __init__(self) -> None:
        self.cases: list[RowDict] = []
        self.remarks: list[RowDict] = []
        self.problems: dict[str, str] = {}  # why a folder has no rows here
        self._places: dict[Any, int] = {}
        self._known = frozenset((*schema.column_names(), schema.SAMPLES))
        self._empty = dict.fromkeys((*case_names(), *REMARK, *FIGURES, "timestamp"))
        self._case = itemgetter(*case_names())
        self._remark = itemgetter(*REMARK)
        self._figures = itemgetter(*FIGURES)

    def read(self, root: Path, path: str) -> HistoryRun | None:
        """Read the run in a folder; None where it has gone, and with a problem where it is unreadable."""
        folder = root / path
        with suppress(*_UNREADABLE):
            rows, run = _read_finished(folder)
            return self._read_run(path, rows, run, folder)
        try:
            rows, _, run = reader.read_rows(folder)
            return self._read_run(path, rows, run, folder)
        except _UNREADABLE as error:
            if is_run(os.fspath(folder)):
                why = error.strerror if isinstance(error, OSError) and error.errno is not None else str(error)
                self.problems[path] = why or "it cannot be read"
        return None

    def _read_run(self, path: str, rows: Sequence[RowDict], run: Mapping[str, Any], folder: Path) -> HistoryRun:
        keys, figures = [], []
        host = run.get("host")
        hostname = host.get("name") if isinstance(host, dict) else None
        for row in rows:
            complete = {**self._empty, **row}
            if complete["hostname"] is None:
                complete["hostname"] = hostname if isinstance(hostname, str) else None
            complete["case"] = registry.case_name(complete["case"] or complete["operation"], complete["kv_lens"])
            more = row.keys() - self._known
            complete[LABELS] = _encode_labels(row, more) if more else ""
            case = self._index((*self._case(complete), complete[LABELS]), self.cases, complete, case_names())
            remark = self._index(self._remark(complete), self.remarks, complete, REMARK)
            keys.append((case, remark, microseconds(complete["timestamp"])))
            figures.append(self._figures(complete))
        array = np.array(keys, dtype=np.int64).reshape(-1, 3)
        return HistoryRun(path, _read_metadata(path, rows, run, folder, array[:, 2]), array, _clean_figures(figures))

    def _index(self, values: tuple[Any, ...], members: list[RowDict], complete: RowDict, names: Sequence[str]) -> int:
        place = self._places.get(values)
        if place is None:
            kinds = schema.column_kinds()
            place = self._places[values] = len(members)
            member = {name: schema.parse_cell(name, complete[name], kinds[name]) for name in names}
            members.append(member | {LABELS: complete[LABELS]})
        return place


def _read_metadata(
    path: str, rows: Sequence[RowDict], run: Mapping[str, Any], folder: Path, times: Any
) -> dict[str, Any]:
    started = microseconds(run.get("started"))
    if started == NO_TIME:
        started = min(times[times != NO_TIME].tolist(), default=NO_TIME)
    texts = {
        "run_id": run.get("run_id") or next((row["run_id"] for row in rows if row.get("run_id")), folder.name),
        "run_status": run.get("status"),
        "suite": run.get("suite"),
        "git_commit": run.get("git_commit") or run.get("commit"),
    }
    about: dict[str, Any] = {name: text and schema.clean_text(str(text)) for name, text in texts.items()}
    return about | {
        "started": _file_time(folder) if started == NO_TIME else started,
        "finished": microseconds(run.get("finished")),
        "folder": schema.escape_surrogates(path),
    }


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


def _clean_figures(figures: Sequence[tuple[Any, ...]]) -> Any:
    """Return the figures of rows as an array, NaN for unknown and impossible ones."""
    values = np.array(figures, dtype=float).reshape(-1, len(FIGURES))
    least, most, zero = np.array([schema.range_of(name) for name in FIGURES]).T
    return np.where((values >= least) & (values <= most) | (values == zero), values, np.nan)


def microseconds(text: Any) -> int:
    """Return an ISO time as microseconds since 1970 in UTC; `NO_TIME` for anything else.

    Examples
    --------
    >>> microseconds("1970-01-01T00:00:01.500+00:00"), microseconds("yesterday") == NO_TIME
    (1500000, True)
    """
    if not isinstance(text, str):
        return NO_TIME
    try:
        time = datetime.fromisoformat(text)
        since = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return NO_TIME
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _encode_labels(row: RowDict, names: Iterable[str]) -> str:
    """Return the caller's own columns as one JSON text; "" where all are empty."""
    values = {schema.clean_text(name): schema.clean_value(row[name]) for name in sorted(names)}
    known = {name: value for name, value in values.items() if value is not None}
    return json.dumps(json_file.to_json_value(known)) if known else ""


def _file_time(folder: Path) -> int:
    for name in _NAMES:
        with suppress(OSError):
            return os.stat(folder / name).st_mtime_ns // 1000
    return NO_TIME
