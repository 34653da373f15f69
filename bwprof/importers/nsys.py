"""`parse_nsys`: kernels of an Nsight Systems export, SQLite or the CSV of `nsys stats`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain, compress, islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from bwprof.importers.frames import make_frame
from bwprof.importers.reader import (
    FileLines,
    check_width,
    file_error,
    open_binary,
    open_text,
    read_records,
    shorten_name,
)
from bwprof.importers.timeline import (
    MOST_NAMES,
    UNKNOWN,
    EventBytes,
    LaunchKind,
    LaunchSetup,
    TimelineLaunches,
    bytes_columns,
    names_error,
    to_count,
)
from bwprof.results import schema
from bwprof.text.parsing import parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

try:
    import sqlite3
except ImportError:  # a Python that was built without it reads all but such files
    sqlite3 = None  # type: ignore[assignment]

SQLITE = b"SQLite format 3\0"
_TOOL = "Nsight Systems"
_NEEDED = "an export of Nsight Systems is needed: nsys export --type sqlite REPORT.nsys-rep"
_KERNELS, _GRAPHS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_COPIES, _FILLS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_GPUS, _GPU_COLUMNS = "TARGET_INFO_GPU", ("id", "name", "computeMajor", "computeMinor", "smCount")
_STRINGS = "StringIds"
_NAMES = ("demangledName", "shortName", "mangledName", "name")

# CUpti_ActivityMemcpyKind, in the words of nsys stats.
_COPY_KINDS = dict(enumerate(("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), 1))
_SETUP = ("deviceId", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_BATCH = 200  # rows, of which each may have a value of _MOST_BYTES
_MOST_BYTES = 4 << 20  # of one value: longer ones are refused
_LONGEST_TEXT = 1 << 20  # bytes of a name
_MOST = 1e18  # of a figure
_UNITS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "\u03bcs": 1e-3, "\u00b5s": 1e-3, "ns": 1e-6}
_TITLE = re.compile(r"(total time|avg|med|min|max)\w*\s*(?:\((s|ms|us|\u03bcs|\u00b5s|ns)\))?", re.IGNORECASE)
_FIGURES = {"total time": "total_ms", "avg": "average", "med": "time_ms", "min": "min_ms", "max": "max_ms"}


def parse_nsys(path: str | PathLike[str], *, bytes: EventBytes | None = None) -> pd.DataFrame:
    """Read the kernels, copies and fills of an Nsight Systems export: a row for each name.

    Parameters
    ----------
    path : str or path
        What ``nsys export --type sqlite`` or ``nsys stats`` wrote (``.sqlite``), or the CSV that
        ``nsys stats --report cuda_gpu_kern_sum --format csv`` prints. SQLite opens it for reading alone, and runs no
        view, trigger or extension of it.
    bytes : mapping, optional
        Bytes that one call moves, by name, as for `parse_chrome_trace`.

    Returns
    -------
    pandas.DataFrame
        As `parse_chrome_trace` returns it, with ``compute_capability``; without ``occupancy_pct``.

    Raises
    ------
    ValueError
        For what is no export or damaged, with the table's row or the line; for a name in `bytes` that it does not have.
    OSError
        When it cannot be read.

    Examples
    --------
    >>> from bwprof.importers import parse_nsys
    >>> parse_nsys("report.sqlite")[["kernel", "count", "time_ms", "share_pct"]]  # doctest: +SKIP
    """
    place = parse_path(path, "path")
    with open_binary(place) as raw:
        start = raw.peek(64)[:64]
    if start.startswith(SQLITE):
        return _read_export(place, bytes)
    if not start:
        raise file_error(place, None, f"it is empty: {_NEEDED}")
    if b"\0" in start:
        raise file_error(place, None, f"this is no SQLite file and no text: {_NEEDED}")
    return _read_summary(place, bytes)


def _read_export(place: Path, bytes: EventBytes | None) -> pd.DataFrame:
    if sqlite3 is None:
        raise file_error(place, None, "this is an SQLite file, and this Python has no SQLite: read it with another one")
    try:
        with closing(_connect(place)) as database:
            export = _Export(place, database)
            launches = export.launches()
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise file_error(place, None, f"SQLite cannot read it: {quote_text(error)}; {_NEEDED}") from None
    except UnicodeDecodeError:
        raise file_error(place, None, f"a name in it is no text; {_NEEDED}") from None
    if not len(launches):
        raise file_error(place, None, "no kernel ran while it was recorded: nsys profile --trace=cuda records them")
    return launches.frame(source=place.name, tool=_TOOL, notes=export.notes, bytes=bytes)


def _connect(place: Path) -> sqlite3.Connection:
    """Open the file for reading alone, so that nothing of its schema runs."""
    database = sqlite3.connect(f"file:{quote(str(place.absolute()))}?mode=ro&immutable=1", uri=True)
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.set_authorizer(_authorize)
    except BaseException:
        database.close()
        raise
    return database


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow reading, our aggregates and table_xinfo; deny everything else."""
    reads = action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT)
    looks = action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo"
    counts = action == sqlite3.SQLITE_FUNCTION and second in ("min", "max", "substr", "typeof")
    return sqlite3.SQLITE_OK if reads or looks or counts else sqlite3.SQLITE_DENY


class _Export:
    """An export's tables, in any of their layouts."""

    def __init__(self, place: Path, database: sqlite3.Connection) -> None:
        self._place, self._database = place, database
        self.notes: list[str] = []
        tables = database.execute("SELECT name, type, rootpage FROM sqlite_master").fetchall()
        self._tables = {name: (kind, root) for name, kind, root in tables if kind in ("table", "view")}

    def launches(self) -> TimelineLaunches:
        if not {_KERNELS, _COPIES, _FILLS} & set(self._tables):
            some = ", ".join(sorted(map(str, self._tables))[:5]) or "none"
            raise self._error(f"it has no table {_KERNELS} (tables: {quote_text(some)}): {_NEEDED}")
        launches = TimelineLaunches(self._place)
        if _KERNELS in self._tables:
            self._read_kernels(launches)
        if _COPIES in self._tables:
            self._read_transfers(_COPIES, "copy", launches)
        if _FILLS in self._tables:
            self._read_transfers(_FILLS, "fill", launches)
        if _GRAPHS in self._tables:
            self.notes.append("CUDA graphs were recorded whole, and are left out: nsys profile --cuda-graph-trace=node")
        return launches

    def _error(self, problem: str) -> ValueError:
        return file_error(self._place, None, problem)

    def _columns(self, table: str) -> list[str]:
        """Return a table's columns; ValueError for a view, a virtual table and computed columns."""
        kind, root = self._tables[table]
        if kind != "table" or not isinstance(root, int) or root <= 0:
            raise self._error(f"{table} is no table but a view or a virtual one: {_NEEDED}")
        columns = self._database.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        if any(column[6] for column in columns):
            raise self._error(f"{table} has columns that are computed: {_NEEDED}")
        return [str(column[1]) for column in columns]

    def _batches(self, table: str, columns: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows in batches; the names are this module's own, never the file's."""
        cursor = self._database.execute(f'SELECT {columns} FROM "{table}" NOT INDEXED')
        while batch := cursor.fetchmany(_BATCH):
            yield batch

    def _read_kernels(self, launches: TimelineLaunches) -> None:
        columns = self._columns(_KERNELS)
        title = next((name for name in _NAMES if name in columns), None)
        if title is None or "start" not in columns or "end" not in columns:
            raise self._error(f"{_KERNELS} has no columns start, end and {_NAMES[0]}: {_NEEDED}")
        codes, codes_of_rows, times_ms, _ = self._read_events(_KERNELS, title)
        texts = self._read_texts(list(codes))
        setups = self._read_setups(title, columns, texts)
        places = [launches.place(text, "kernel", setups.get(text, UNKNOWN)) for text in map(texts.__getitem__, codes)]
        launches.add_many(np.array(places, np.int64)[codes_of_rows], times_ms, np.full(len(times_ms), np.nan))

    def _read_transfers(self, table: str, kind: LaunchKind, launches: TimelineLaunches) -> None:
        needed = ("start", "end", "bytes", "copyKind") if kind == "copy" else ("start", "end", "bytes")
        if not set(needed) <= set(self._columns(table)):
            self.notes.append(f"{table} has no columns {', '.join(needed)}, and is left out")
            return
        codes, codes_of_rows, times_ms, moved = self._read_events(
            table, "copyKind" if kind == "copy" else None, "bytes"
        )
        names = [
            "[CUDA memset]" if way is None else f"[CUDA memcpy {_COPY_KINDS.get(way, repr_short(way))}]"
            for way in codes
        ]
        places = np.array([launches.place(name, kind) for name in names], np.int64)
        launches.add_many(places[codes_of_rows], times_ms, moved)

    def _read_events(
        self, table: str, key: str | None, size: str | None = None
    ) -> tuple[dict[Any, int], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Read keys with their codes, and each row's code, time, ms, and bytes; leave out rows with impossible times."""
        codes: dict[Any, int] = {}
        codes_of_rows, times_ns, moved = array("q"), array("q"), array("d")
        rows = 0
        columns = ", ".join("NULL" if name is None else f'"{name}"' for name in ("start", "end", key, size))
        for batch in self._batches(table, columns):
            begins, ends, keys, sizes = zip(*batch, strict=True)
            bounds = np.array((begins, ends))
            if bounds.dtype.kind != "i":
                raise self._error(f"{table}, {_odd_row(batch, rows)}: times of whole nanoseconds are needed")
            times = bounds[1] - bounds[0]
            possible = (times >= 0) & (times < 10**18)
            times_ns.frombytes(times[possible].tobytes())
            codes_of_rows.extend(codes.setdefault(name, len(codes)) for name in compress(keys, possible))
            if size is not None:
                counts = (to_count(count) if type(count) is int else None for count in compress(sizes, possible))
                moved.extend(np.nan if count is None else count for count in counts)
            if len(codes) > MOST_NAMES:
                raise names_error(self._place)
            rows += len(batch)
        if left_out := rows - len(codes_of_rows):
            self.notes.append(f"{left_out} rows of {table} end before they begin, and are left out")
        return codes, np.array(codes_of_rows, np.int64), np.array(times_ns, np.int64) / 1e6, np.array(moved)

    def _read_texts(self, names: list[Any]) -> dict[Any, str]:
        """Return the texts of names: the names themselves, or numbers of the table of strings."""
        numbers = {name for name in names if type(name) is int}
        texts: dict[Any, str] = {name: schema.clean_text(name) for name in names if isinstance(name, str)}
        if _STRINGS in self._tables and numbers:
            if not {"id", "value"} <= set(self._columns(_STRINGS)):
                raise self._error(f"{_STRINGS} has no columns id and value: {_NEEDED}")
            for number, value in chain.from_iterable(self._batches(_STRINGS, "id, value")):
                if number in numbers and isinstance(value, str):
                    texts[number] = schema.clean_text(value[:_LONGEST_TEXT])
        return {name: texts.get(name) or f"kernel {repr_short(name)}" for name in names}

    def _read_setups(self, title: str, columns: list[str], texts: Mapping[Any, str]) -> dict[str, LaunchSetup]:
        """Read how kernels were launched, by name, as far as all their launches have it in common."""
        columns = [name for name in (*_SETUP, *_SHARED) if name in columns]
        if not columns:
            return {}
        extremes = ", ".join(f'min("{name}"), max("{name}")' for name in columns)
        query = f'SELECT "{title}", {extremes} FROM "{_KERNELS}" NOT INDEXED GROUP BY "{title}"'
        devices = self._read_devices()
        setups: dict[str, LaunchSetup] = {}
        for name, *values in self._database.execute(query):
            pairs = zip(columns, values[::2], values[1::2], strict=True)
            same = {column: to_count(low) for column, low, high in pairs if type(low) is int and low == high}
            if name in texts:
                setup = _make_setup(same, devices)
                setups[texts[name]] = setup.common(setups.get(texts[name], setup))
        return setups

    def _read_devices(self) -> dict[Any, dict[str, Any]]:
        columns = self._columns(_GPUS) if _GPUS in self._tables else []
        names = [name for name in _GPU_COLUMNS if name in columns]
        if "id" not in names:
            return {}
        rows = next(self._batches(_GPUS, ", ".join(names)), [])
        return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def _odd_row(batch: list[tuple[Any, ...]], before: int) -> str:
    for number, (begin, end, *_) in enumerate(batch, start=before + 1):
        if type(begin) is not int or type(end) is not int:
            return f"row {number} has start {repr_short(begin)} and end {repr_short(end)}"
    return f"row {before + 1} or after it has odd times"


def _make_setup(same: Mapping[str, int | None], devices: Mapping[Any, Mapping[str, Any]]) -> LaunchSetup:
    grid, block = ([size for axis in "XYZ" if (size := same.get(f"{word}{axis}"))] for word in ("grid", "block"))
    axes = (grid if len(grid) == 3 else None, block if len(block) == 3 else None)
    number = same.get("deviceId")
    static, dynamic = (same.get(name) for name in _SHARED)
    shared_bytes = None if static is None or dynamic is None else static + dynamic
    return LaunchSetup.make(number, devices.get(number, {}), axes, same.get("registersPerThread"), shared_bytes)


def _read_summary(place: Path, bytes: EventBytes | None) -> pd.DataFrame:
    """Read the CSV of `nsys stats`: figures of each name, no launches."""
    with open_text(place) as stream:
        records = read_records(place, iter(FileLines(place, stream)))
        titles, columns = _find_header(place, records)
        figures = {name: array("d") for name in columns}
        names: list[str] = []
        for line, cells in records:
            if not cells:
                continue
            check_width(place, (line, cells), len(titles))
            names.append(schema.clean_text(cells[titles.index("Name")]))
            if len(names) > MOST_NAMES:
                raise names_error(place)
            for name, (at, scale) in columns.items():
                figures[name].append(_parse_figure(place, line, titles[at], cells[at]) * scale)
    if not names:
        raise file_error(place, None, f"it has a header and no kernels; {_NEEDED}")
    values = {name: np.array(figures[name]) for name in figures if name != "average"}
    data: dict[str, Any] = {"kernel": names, "case": list(map(shorten_name, names)), "status": ["ok"] * len(names)}
    notes = []
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 100 * values["total_ms"] / values["total_ms"].sum()
        if "time_ms" not in values:
            values["time_ms"] = values["total_ms"] / values["count"]
            notes.append("time_ms is the mean: this nsys stats printed no median")
    data |= values | {"share_pct": share}
    data |= bytes_columns(data, bytes)
    return make_frame(data, source=place.name, tool="nsys stats", notes=notes)


def _find_header(
    place: Path, records: Iterator[tuple[int, list[str]]]
) -> tuple[list[str], dict[str, tuple[int, float]]]:
    """Find the header behind nsys' own lines; return it, and the place and scale of each figure."""
    for _, cells in islice(records, 200):
        titles = [cell.strip() for cell in cells]
        if "Name" in titles and "Instances" in titles:
            columns = {"count": (titles.index("Instances"), 1.0)}
            for at, title in enumerate(titles):
                if match := _TITLE.match(title):
                    columns[_FIGURES[match[1].lower()]] = at, _UNITS[(match[2] or "ns").lower()]
            if "total_ms" in columns:
                return titles, columns
    problem = f"no line of it is a header of nsys stats (Total Time, Instances, ..., Name): {_NEEDED}"
    raise file_error(place, None, problem)


def _parse_figure(place: Path, line: int, title: str, cell: str) -> float:
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        value = -1.0
    if not 0 <= value < _MOST:
        problem = f"column {repr_short(title)} holds {repr_short(cell)}: a number from 0 on is needed"
        raise file_error(place, line, problem)
    return value
