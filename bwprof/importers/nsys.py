"""`parse_nsys`: kernels of an Nsight Systems export, SQLite or the CSV of `nsys stats`."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from bwprof.importers.frames import make_frame
from bwprof.importers.reader import FileLines, file_error, open_binary, open_text, read_records, shorten_name
from bwprof.importers.timeline import (
    MOST_NAMES,
    UNKNOWN,
    LaunchKind,
    LaunchSetup,
    TimelineLaunches,
    bytes_columns,
    names_error,
)
from bwprof.results import schema
from bwprof.text.parsing import parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from bwprof.importers.chrome import EventBytes

try:
    import sqlite3
except ImportError:  # a Python that was built without it reads all but such files
    sqlite3 = None  # type: ignore[assignment]

_TOOL = "Nsight Systems"

_NEEDED = "an export of Nsight Systems is needed: nsys export --type sqlite REPORT.nsys-rep"

_KERNELS = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")

_COPIES, _FILLS, _GRAPHS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

_STRINGS = (("StringIds", "id"), ("StringTable", "_id_"))  # of Nsight Systems, of nvprof before it

_NAMES = ("demangledName", "shortName", "mangledName", "name")

# CUpti_ActivityMemcpyKind, as nsys stats words it.
_COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}

_SETUP = ("deviceId", "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")

_SHARED = ("staticSharedMemory", "dynamicSharedMemory")

_BATCH = 200  # rows, of which each may have a value of _MOST_BYTES

_MOST_BYTES = 4 << 20  # of one value: longer ones are refused

_LONGEST_TEXT = 1 << 20  # bytes of a name

_ROWS_AT_ONCE = 4096  # of a CSV

_MOST = 1e18  # of a figure

_UNITS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "\u03bcs": 1e-3, "\u00b5s": 1e-3, "ns": 1e-6}

_TITLE = re.compile(r"(total time|avg|med|min|max)\w*\s*(?:\((s|ms|us|\u03bcs|\u00b5s|ns)\))?", re.IGNORECASE)


def parse_nsys(path: str | PathLike[str], *, bytes: EventBytes | None = None) -> pd.DataFrame:
    """The kernels, copies and fills of an Nsight Systems export, a row for each name.

    Parameters
    ----------
    path : str or path
        What ``nsys export --type sqlite`` or ``nsys stats`` left beside a report (``.sqlite``), or the CSV that
        ``nsys stats --report cuda_gpu_kern_sum --format csv`` prints. It is opened for reading alone: no view, trigger
        or extension of it is run.
    bytes : mapping, optional
        What one call moves, by name, as `parse_chrome_trace` takes it.

    Returns
    -------
    pandas.DataFrame
        As of `parse_chrome_trace`, the longest in all first: ``kernel``, ``kind``, ``count``, ``time_ms`` (the median
        of one), ``total_ms``, ``min_ms``, ``max_ms``, ``share_pct``, ``device``, ``compute_capability``, ``grid``,
        ``block``, ``registers``, ``shared_bytes``; with bytes ``bytes_read``, ``bytes_written``, ``bandwidth_gb_s``.

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
        begins = raw.peek(64)[:64]
    if begins.startswith(b"SQLite format 3\0"):
        return _of_export(place, bytes)
    if not begins:
        raise file_error(place, None, f"it is empty: {_NEEDED}")
    if b"\0" in begins:
        raise file_error(place, None, f"this is no SQLite file and no text: {_NEEDED}")
    return _of_csv(place, bytes)


# ---- SQLite ----


def _of_export(place: Path, bytes: EventBytes | None) -> pd.DataFrame:
    if sqlite3 is None:
        raise file_error(place, None, "this is an SQLite file, and this Python has no SQLite: read it with another one")
    try:
        with closing(_connected(place)) as database:
            export = _Export(place, database)
            launches = export.launches()
            notes = export.notes
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise file_error(place, None, f"SQLite cannot read it: {quote_text(error)}; {_NEEDED}") from None
    except UnicodeDecodeError:
        raise file_error(place, None, f"a name in it is no text; {_NEEDED}") from None
    if not len(launches):
        raise file_error(place, None, "no kernel ran while it was recorded: nsys profile --trace=cuda records them")
    return launches.frame(source=place.name, tool=_TOOL, notes=notes, bytes=bytes)


def _connected(place: Path) -> sqlite3.Connection:
    """The file, that nothing can be written to and nothing of its schema runs."""
    database = sqlite3.connect(f"file:{quote(str(place.absolute()))}?mode=ro&immutable=1", uri=True)
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.set_authorizer(_allowed)
    except BaseException:
        database.close()
        raise
    return database


def _allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Reading, the aggregates that are asked for, and a look at columns: nothing else."""
    reads = action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT)
    looks = action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo"
    counts = action == sqlite3.SQLITE_FUNCTION and second in ("min", "max", "substr", "typeof")
    return sqlite3.SQLITE_OK if reads or looks or counts else sqlite3.SQLITE_DENY


class _Export:
    """An export's tables, of whose layouts there were several."""

    def __init__(self, place: Path, database: sqlite3.Connection) -> None:
        self._place, self._database = place, database
        self.notes: list[str] = []
        listed = database.execute("SELECT name, type, rootpage, sql FROM sqlite_master").fetchall()
        self._kinds = {name: (kind, root) for name, kind, root, _ in listed if kind in ("table", "view")}

    def launches(self) -> TimelineLaunches:
        """All kernels, copies and fills."""
        table = next((name for name in _KERNELS if name in self._kinds), None)
        found = TimelineLaunches(self._place)
        if table is not None:
            self._kernels(table, found)
        for name, kind in ((_COPIES, LaunchKind), (_FILLS, LaunchKind)):
            if name in self._kinds:
                self._transfers(name, kind, found)
        if _GRAPHS in self._kinds:
            self.notes.append("CUDA graphs were recorded whole, and are left out: nsys profile --cuda-graph-trace=node")
        if table is None and not len(found):
            some = ", ".join(sorted(map(str, self._kinds))[:5]) or "none"
            raise file_error(
                self._place, None, f"it has no table {_KERNELS[0]} (tables: {quote_text(some)}): {_NEEDED}"
            )
        return found

    def _columns(self, table: str) -> list[str]:
        """A table's columns; ValueError for what is none, or would have to be computed."""
        kind, root = self._kinds[table]
        if kind != "table" or not isinstance(root, int) or root <= 0:
            raise file_error(self._place, None, f"{table} is no table but a view or a virtual one: {_NEEDED}")
        found = self._database.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        if any(column[6] for column in found):
            raise file_error(self._place, None, f"{table} has columns that are computed: {_NEEDED}")
        return [str(column[1]) for column in found]

    def _rows(self, table: str, columns: tuple[str, ...], after: str = "") -> Iterator[list[tuple[Any, ...]]]:
        """Rows in batches; the names are this module's own, never the file's."""
        listed = ", ".join(f'"{name}"' for name in columns)
        cursor = self._database.execute(f'SELECT {listed} FROM "{table}" NOT INDEXED {after}')
        while batch := cursor.fetchmany(_BATCH):
            yield batch

    def _kernels(self, table: str, found: TimelineLaunches) -> None:
        there = self._columns(table)
        title = next((name for name in _NAMES if name in there), None)
        if title is None or "start" not in there or "end" not in there:
            raise file_error(self._place, None, f"{table} has no columns start, end and {_NAMES[0]}: {_NEEDED}")
        names, codes, times = self._timed(table, title)
        texts = self._texts(list(names))
        setups = self._setups(table, title, there, texts)
        keys: dict[tuple[str, str], int] = {}
        places = np.empty(len(names), np.int64)
        for name, code in names.items():
            text = texts[name]
            places[code] = keys.setdefault((text, LaunchKind), len(keys))
            found.place(text, LaunchKind, setups.get(text, UNKNOWN))
        found.add_many(list(keys), places[codes], times)

    def _timed(self, table: str, title: str) -> tuple[dict[Any, int], NDArray[np.int64], NDArray[np.float64]]:
        """Each row's name, as a number of `names`, and its ms; rows whose times cannot be are left out."""
        names: dict[Any, int] = {}
        codes, times = [], []
        row = 0
        for batch in self._rows(table, ("start", "end", title)):
            begins, ends, named_by = zip(*batch, strict=True)
            for name in dict.fromkeys(named_by):
                names.setdefault(name, len(names))
            if len(names) > MOST_NAMES:
                raise names_error(self._place)
            times_of = np.array((begins, ends))
            if times_of.dtype.kind != "i":
                said = self._odd_row(batch, row)
                raise file_error(self._place, None, f"{table}, {said}: times of whole nanoseconds are needed")
            taken = times_of[1] - times_of[0]
            codes.append(np.fromiter(map(names.__getitem__, named_by), np.int64, len(batch)))
            times.append(taken)
            row += len(batch)
        if not codes:
            return {}, np.zeros(0, np.int64), np.zeros(0)
        whole, taken = np.concatenate(codes), np.concatenate(times)
        kept = (taken >= 0) & (taken < 10**18)
        if not kept.all():
            self.notes.append(f"{int((~kept).sum())} rows of {table} end before they begin, and are left out")
        used = set(np.unique(whole[kept]).tolist())
        renamed = {code: place for place, code in enumerate(sorted(used))}
        kept_names = {name: renamed[code] for name, code in names.items() if code in used}
        lookup = np.zeros(len(names), np.int64)
        lookup[list(renamed)] = list(renamed.values())
        return kept_names, lookup[whole[kept]], taken[kept] / 1e6

    def _odd_row(self, batch: list[tuple[Any, ...]], before: int) -> str:
        for at, (begin, end, *_) in enumerate(batch):
            if type(begin) is not int or type(end) is not int:
                return f"row {before + at + 1} has start {repr_short(begin)} and end {repr_short(end)}"
        return f"row {before + 1} or after it has odd times"

    def _texts(self, names: list[Any]) -> dict[Any, str]:
        """What names are called: text itself, and numbers of the table of strings."""
        wanted = {name for name in names if type(name) is int}
        found: dict[Any, str] = {name: schema.clean_text(name) for name in names if isinstance(name, str)}
        for table, key in _STRINGS:
            if table not in self._kinds or not wanted:
                continue
            if not {key, "value"} <= set(self._columns(table)):
                raise file_error(self._place, None, f"{table} has no columns {key} and value: {_NEEDED}")
            for batch in self._rows(table, (key, "value")):
                for number, value in batch:
                    if number in wanted and isinstance(value, str):
                        found[number] = schema.clean_text(value[:_LONGEST_TEXT])
            break
        return {name: found.get(name) or f"kernel {repr_short(name)}" for name in names}

    def _setups(self, table: str, title: str, there: list[str], texts: Mapping[Any, str]) -> dict[str, LaunchSetup]:
        """How kernels were launched, by name, where all their launches had the same."""
        columns = [name for name in (*_SETUP, *_SHARED) if name in there]
        if not columns:
            return {}
        ends = ", ".join(f'min("{name}"), max("{name}")' for name in columns)
        query = f'SELECT "{title}", {ends} FROM "{table}" NOT INDEXED GROUP BY "{title}"'
        devices = self._devices()
        found: dict[str, LaunchSetup] = {}
        for name, *values in self._database.execute(query):
            least, most = values[::2], values[1::2]
            same = {
                column: int(low) if type(low) is int and low == high and 0 <= low < 2**53 else None
                for column, low, high in zip(columns, least, most, strict=True)
            }
            if name in texts:
                own = _setup(same, devices)
                found[texts[name]] = found[texts[name]].both(own) if texts[name] in found else own
        return found

    def _devices(self) -> dict[int, tuple[str, str | None, int | None]]:
        """GPUs by number: name, compute capability, multiprocessors."""
        table = "TARGET_INFO_GPU"
        if table not in self._kinds:
            return {}
        there = self._columns(table)
        columns = ("id", "name", "computeMajor", "computeMinor", "smCount")
        asked = tuple(name for name in columns if name in there)
        if not {"id", "name"} <= set(asked):
            return {}
        found: dict[int, tuple[str, str | None, int | None]] = {}
        for row in next(self._rows(table, asked, "LIMIT 1000"), []):
            one = dict(zip(asked, row, strict=True))
            major, minor, units = (one.get(name) for name in columns[2:])
            known = type(major) is int and type(minor) is int and 0 < major < 1000 and 0 <= minor < 1000
            if type(one["id"]) is int and isinstance(one["name"], str):
                capability = f"{major}.{minor}" if known else None
                count = units if type(units) is int and 0 < units < 2**31 else None
                found[one["id"]] = schema.clean_text(one["name"]), capability, count
        return found

    def _transfers(self, table: str, kind: str, found: TimelineLaunches) -> None:
        there = self._columns(table)
        asked = ("start", "end", "bytes", "copyKind") if kind == LaunchKind else ("start", "end", "bytes")
        if not set(asked) <= set(there):
            self.notes.append(f"{table} has no columns {', '.join(asked)}, and is left out")
            return
        odd = 0
        for batch in self._rows(table, asked):
            for begin, end, count, *way in batch:
                if type(begin) is not int or type(end) is not int or not 0 <= end - begin < 10**18:
                    odd += 1
                    continue
                name = f"[CUDA memcpy {_COPY_KINDS.get(way[0], repr_short(way[0]))}]" if way else "[CUDA memset]"
                moved = count if type(count) is int and 0 <= count < 2**53 else None
                found.add(name, kind, (end - begin) / 1e6, UNKNOWN, moved)
        if odd:
            self.notes.append(f"{odd} rows of {table} have no time that could be, and are left out")


def _setup(same: Mapping[str, int | None], devices: Mapping[int, tuple[str, str | None, int | None]]) -> LaunchSetup:
    def axes(word: str) -> list[int] | None:
        sizes = [size for axis in "XYZ" if (size := same.get(f"{word}{axis}"))]
        return sizes if len(sizes) == 3 else None

    number = same.get("deviceId")
    device = devices.get(number, (f"GPU {number}", None, None)) if number is not None else (None, None, None)
    grid, block = axes("grid"), axes("block")
    shared = [same.get(name) for name in _SHARED]
    return LaunchSetup(
        device[0],
        device[1],
        device[2],
        "x".join(map(str, grid)) if grid else None,
        "x".join(map(str, block)) if block else None,
        math.prod(grid) if grid else None,
        math.prod(block) if block else None,
        same.get("registersPerThread"),
        None if None in shared else sum(size or 0 for size in shared),
    )


# ---- nsys stats ----


def _of_csv(place: Path, bytes: EventBytes | None) -> pd.DataFrame:
    """A summary that `nsys stats` printed: figures of each name, no launches."""
    with open_text(place) as stream:
        lines = FileLines(place, stream)
        found = read_records(place, iter(lines))
        header, columns = _header(place, found)
        names: list[str] = []
        listed = {name: array("d") for name in columns if name != "kernel"}
        rows = ((line, cells) for line, cells in found if cells)
        while batch := list(islice(rows, _ROWS_AT_ONCE)):
            for line, cells in batch:
                if len(cells) != len(header):
                    said = f"it has {len(cells)} cells where the header has {len(header)}: the file is not whole"
                    raise file_error(place, line, said)
            names += [schema.clean_text(cells[columns["kernel"][0]]) for _, cells in batch]
            if len(names) > MOST_NAMES:  # each has a row
                raise names_error(place)
            for name, values in listed.items():
                at, scale = columns[name]
                figures = _figures([cells[at] for _, cells in batch])
                if figures is None:
                    figures = array("d", [_figure(place, line, header[at], cells[at]) for line, cells in batch])
                values.extend([figure * scale for figure in figures])
    if not names:
        raise file_error(place, None, f"it has a header and no kernels; {_NEEDED}")
    return _summary(place, names, listed, bytes)


def _header(place: Path, found: Iterator[tuple[int, list[str]]]) -> tuple[list[str], dict[str, tuple[int, float]]]:
    """The header, and which columns hold what in which unit of ms; nsys prints lines of its own before it."""
    for _, cells in zip(range(200), (record for _, record in found), strict=False):
        titles = [cell.strip() for cell in cells]
        if "Name" not in titles or "Instances" not in titles:
            continue
        columns = {"kernel": (titles.index("Name"), 1.0), "count": (titles.index("Instances"), 1.0)}
        names = {"total time": "total_ms", "avg": "average", "med": "time_ms", "min": "min_ms", "max": "max_ms"}
        for at, title in enumerate(titles):
            matched = _TITLE.match(title)
            if matched:
                columns[names[matched[1].lower()]] = at, _UNITS[(matched[2] or "ns").lower()]
        if "total_ms" in columns:
            return titles, columns
    raise file_error(
        place, None, f"no line of it is a header of nsys stats (Total Time, Instances, ..., Name): {_NEEDED}"
    )


def _figures(cells: Sequence[str]) -> array[float] | None:
    """All of these; None where one is no number from 0 on, or is grouped: `_figure` tells."""
    try:
        found = array("d", map(float, cells))
    except ValueError:
        return None
    return found if all(0 <= value < _MOST for value in found) else None


def _figure(place: Path, line: int, title: str, cell: str) -> float:
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        value = -1.0
    if not 0 <= value < _MOST:
        raise file_error(
            place, line, f"column {repr_short(title)} holds {repr_short(cell)}: a number from 0 on is needed"
        )
    return value


def _summary(
    place: Path, names: list[str], listed: Mapping[str, array[float]], bytes: EventBytes | None
) -> pd.DataFrame:
    notes = []
    data: dict[str, Any] = {"kernel": names, "case": list(map(shorten_name, names)), "status": ["ok"] * len(names)}
    data |= {name: np.array(listed[name]) for name in ("count", "total_ms", "min_ms", "max_ms") if name in listed}
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = data["total_ms"] / data["count"]
        data["share_pct"] = 100 * data["total_ms"] / data["total_ms"].sum()
    data["time_ms"] = np.array(listed["time_ms"]) if "time_ms" in listed else mean
    if "time_ms" not in listed:
        notes.append("time_ms is the mean: this nsys stats printed no median")
    data |= bytes_columns(data, bytes)
    return make_frame(data, source=place.name, tool="nsys stats", notes=notes)
