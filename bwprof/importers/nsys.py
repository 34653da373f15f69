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
from bwprof.text.parsing import number_or_nan, parse_path, quote_text, repr_short

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
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_GPUS, _GPU_COLUMNS = "TARGET_INFO_GPU", ("id", "name", "computeMajor", "computeMinor", "smCount")
_STRINGS = "StringIds"
# Tables of launches: their kind, and the columns that tell what was launched, of which the first there is counts.
_KEYS: dict[str, tuple[LaunchKind, tuple[str, ...]]] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("kernel", ("demangledName", "shortName", "mangledName", "name")),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("copy", ("copyKind",)),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("fill", ()),
}

# CUpti_ActivityMemcpyKind, in the words of nsys stats.
_COPY_KINDS = dict(enumerate(("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), 1))
_SETUP = ("deviceId", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_BATCH = 200  # rows, of which each may have a value of _MOST_BYTES
_MOST_BYTES = 4 << 20  # of one value: longer ones are refused
_LONGEST_TEXT = 1 << 20  # bytes of a name
_MOST = 1e18  # of a figure
_UNITS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "\u03bcs": 1e-3, "\u00b5s": 1e-3, "ns": 1e-6}
_TITLE = re.compile(r"(total time|med|min|max)\w*\s*(?:\((s|ms|us|\u03bcs|\u00b5s|ns)\))?", re.IGNORECASE)
_FIGURES = {"total time": "total_ms", "med": "time_ms", "min": "min_ms", "max": "max_ms"}


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
    ValueError, OSError
        For what is no export or damaged, with the table's row or the line; for a name in `bytes` that it does not have.

    Examples
    --------
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
        raise file_error(place, None, "this Python has no sqlite3, which such a file needs")
    notes: list[str] = []
    address = f"file:{quote(str(place.absolute()))}?mode=ro&immutable=1"  # for reading alone
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            database.set_authorizer(_authorize)
            launches = _Export(place, database, notes).launches()
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise file_error(place, None, f"SQLite cannot read it: {quote_text(error)}; {_NEEDED}") from None
    except UnicodeDecodeError:
        raise file_error(place, None, f"a name in it is no text; {_NEEDED}") from None
    if not len(launches):
        raise file_error(place, None, "no kernel ran while it was recorded: nsys profile --trace=cuda records them")
    return launches.frame(source=place.name, tool=_TOOL, notes=notes, bytes=bytes)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow reading, our aggregates and table_xinfo; deny everything else."""
    reads = action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT)
    looks = action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo"
    counts = action == sqlite3.SQLITE_FUNCTION and second in ("min", "max", "substr", "typeof")
    return sqlite3.SQLITE_OK if reads or looks or counts else sqlite3.SQLITE_DENY


class _Export:
    """An export's tables, in any of their layouts."""

    def __init__(self, place: Path, database: sqlite3.Connection, notes: list[str]) -> None:
        self._place, self._database, self._notes = place, database, notes
        tables = database.execute("SELECT name, type, rootpage FROM sqlite_master").fetchall()
        self._tables = {name: (kind, root) for name, kind, root in tables if kind in ("table", "view")}

    def launches(self) -> TimelineLaunches:
        if not _KEYS.keys() & self._tables.keys():
            some = ", ".join(sorted(map(str, self._tables))[:5]) or "none"
            raise self._error(f"it has no table {next(iter(_KEYS))} (tables: {quote_text(some)}): {_NEEDED}")
        launches = TimelineLaunches(self._place)
        for table, (kind, keys) in _KEYS.items():
            if table in self._tables:
                self._read_launches(table, kind, keys, launches)
        if _GRAPHS in self._tables:
            self._notes.append(
                "CUDA graphs were recorded whole, and are left out: nsys profile --cuda-graph-trace=node"
            )
        return launches

    def _error(self, problem: str) -> ValueError:
        return file_error(self._place, None, problem)

    def _columns(self, table: str, *needed: str) -> list[str]:
        """Return a table's columns; ValueError for a view, a virtual table and computed columns."""
        kind, root = self._tables[table]
        if kind != "table" or not isinstance(root, int) or root <= 0:
            raise self._error(f"{table} is no table but a view or a virtual one: {_NEEDED}")
        columns = self._database.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        if any(column[6] for column in columns):
            raise self._error(f"{table} has columns that are computed: {_NEEDED}")
        names = [str(column[1]) for column in columns]
        if not set(needed) <= set(names):
            raise self._error(f"{table} has no columns {', '.join(needed)}: {_NEEDED}")
        return names

    def _batches(self, table: str, *columns: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows in batches; the names are this module's own, never the file's."""
        cursor = self._database.execute(f'SELECT {", ".join(columns)} FROM "{table}" NOT INDEXED')
        while batch := cursor.fetchmany(_BATCH):
            yield batch

    def _read_launches(self, table: str, kind: LaunchKind, keys: tuple[str, ...], launches: TimelineLaunches) -> None:
        columns = self._columns(table, "start", "end", *(() if kind == "kernel" else ("bytes",)))
        key = next((name for name in keys if name in columns), "NULL")
        if keys and key == "NULL":
            raise self._error(f"{table} has no column {keys[0]}: {_NEEDED}")
        codes, times_ms, moved, values = self._read_events(table, key, "NULL" if kind == "kernel" else "bytes")
        setups: dict[str, LaunchSetup] = {}
        if kind == "kernel":
            texts = self._read_texts(values)
            setups = self._read_setups(table, key, columns, texts)
            names = list(map(texts.__getitem__, values))
        elif kind == "copy":
            names = [f"[CUDA memcpy {_COPY_KINDS.get(way, repr_short(way))}]" for way in values]
        else:
            names = ["[CUDA memset]"] * len(values)
        places = np.array([launches.place(name, kind, setups.get(name, UNKNOWN)) for name in names], np.int64)
        launches.add_many(places[codes], times_ms, moved)

    def _read_events(
        self, table: str, key: str, size: str
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], list[Any]]:
        """Read each row's code, time, ms, and bytes, and what the codes stand for; leave out impossible times."""
        values: dict[Any, int] = {}
        codes, times_ns, moved = array("q"), array("q"), array("d")
        rows = 0
        for batch in self._batches(table, "start", '"end"', key, size):
            begins, ends, keys, sizes = zip(*batch, strict=True)
            bounds = np.array((begins, ends))
            if bounds.dtype.kind != "i":
                odd = next((row for row in batch if type(row[0]) is not int or type(row[1]) is not int), batch[0])
                problem = (
                    f"row {rows + batch.index(odd) + 1} has start {repr_short(odd[0])} and end {repr_short(odd[1])}"
                )
                raise self._error(f"{table}, {problem}: times of whole nanoseconds are needed")
            times = bounds[1] - bounds[0]
            possible = (times >= 0) & (times < 10**18)
            times_ns.frombytes(times[possible].tobytes())
            codes.extend(values.setdefault(value, len(values)) for value in compress(keys, possible))
            counts = (to_count(count) if type(count) is int else None for count in compress(sizes, possible))
            moved.extend(np.nan if count is None else count for count in counts)
            if len(values) > MOST_NAMES:
                raise names_error(self._place)
            rows += len(batch)
        if left_out := rows - len(codes):
            self._notes.append(f"{left_out} rows of {table} end before they begin, and are left out")
        return np.array(codes, np.int64), np.array(times_ns, np.int64) / 1e6, np.array(moved), list(values)

    def _read_texts(self, names: list[Any]) -> dict[Any, str]:
        """Return the texts of names: the names themselves, or numbers of the table of strings."""
        numbers = {name for name in names if type(name) is int}
        texts: dict[Any, str] = {name: schema.clean_text(name) for name in names if isinstance(name, str)}
        if _STRINGS in self._tables and numbers:
            self._columns(_STRINGS, "id", "value")
            for number, value in chain.from_iterable(self._batches(_STRINGS, "id", "value")):
                if number in numbers and isinstance(value, str):
                    texts[number] = schema.clean_text(value[:_LONGEST_TEXT])
        return {name: texts.get(name) or f"kernel {repr_short(name)}" for name in names}

    def _read_setups(
        self, table: str, title: str, columns: list[str], texts: Mapping[Any, str]
    ) -> dict[str, LaunchSetup]:
        """Read how kernels were launched, by name, as far as all their launches have it in common."""
        columns = [name for name in (*_SETUP, *_SHARED) if name in columns]
        devices = self._read_devices()
        setups: dict[str, LaunchSetup] = {}
        extremes = "".join(f', min("{name}"), max("{name}")' for name in columns)
        query = f'SELECT "{title}"{extremes} FROM "{table}" NOT INDEXED GROUP BY "{title}"'
        for name, *values in self._database.execute(query) if columns else ():
            pairs = zip(columns, values[::2], values[1::2], strict=True)
            same = {column: to_count(low) for column, low, high in pairs if type(low) is int and low == high}
            if name in texts:
                setup = _make_setup(same, devices)
                setups[texts[name]] = setup.common(setups.get(texts[name], setup))
        return setups

    def _read_devices(self) -> dict[Any, dict[str, Any]]:
        columns = self._columns(_GPUS, "id") if _GPUS in self._tables else []
        names = [name for name in _GPU_COLUMNS if name in columns]
        rows = next(self._batches(_GPUS, *names), []) if names else []
        return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def _make_setup(same: Mapping[str, int | None], devices: Mapping[Any, Mapping[str, Any]]) -> LaunchSetup:
    axes = [[size for axis in "XYZ" if (size := same.get(f"{word}{axis}"))] for word in ("grid", "block")]
    grid, block = (sizes if len(sizes) == 3 else None for sizes in axes)
    number = same.get("deviceId")
    shared = [count for column in _SHARED if (count := same.get(column)) is not None]
    shared_bytes = sum(shared) if len(shared) == len(_SHARED) else None
    registers = same.get("registersPerThread")
    return LaunchSetup.make(number, devices.get(number, {}), (grid, block), registers, shared_bytes)


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
                value = number_or_nan(cells[at].replace(",", ""))
                if not 0 <= value < _MOST:
                    problem = f"column {repr_short(titles[at])} holds {repr_short(cells[at])}"
                    raise file_error(place, line, f"{problem}: a number from 0 on is needed")
                figures[name].append(value * scale)
    if not names:
        raise file_error(place, None, f"it has a header and no kernels; {_NEEDED}")
    values = {name: np.array(figures[name]) for name in figures}
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
