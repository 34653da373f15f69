"""One CSV file of AMD's profilers as columns: rocprof's wide rows; rocprofv3's counters, launches and list of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bwprof.importers.reader import FileLines, file_error, open_text, read_complete, read_records
from bwprof.results import schema
from bwprof.text.parsing import repr_short

if TYPE_CHECKING:
    from numpy.typing import NDArray

FileKind = Literal["wide", "counters", "launches", "agents"]

_BATCH = 2_000  # records

_MOST_COLUMNS = 3_000

_MOST_RECORDS = 5_000_000  # of rocprofv3 that is a file of 800 MB

_MOST_CELLS = 30_000_000  # of the table of launches and counters

# What a column is, by its name in lower case without "_" and "-", in files of any version.
_ROLES = {
    "index": "dispatch",
    "dispatchid": "dispatch",
    "kernelname": "kernel",
    "pid": "process",
    "processid": "process",
    "gpuid": "agent",
    "agentid": "agent",
    "grd": "grid",
    "gridsize": "grid",
    "gridsizex": "grid_x",
    "gridsizey": "grid_y",
    "gridsizez": "grid_z",
    "wgr": "block",
    "workgroupsize": "block",
    "workgroupsizex": "block_x",
    "workgroupsizey": "block_y",
    "workgroupsizez": "block_z",
    "lds": "shared",
    "ldsblocksize": "shared",
    "ldsperworkgroup": "shared",
    "groupsegmentsize": "shared",
    "scr": "scratch",
    "scratchsize": "scratch",
    "scratchperworkitem": "scratch",
    "privatesegmentsize": "scratch",
    "archvgpr": "registers",
    "vgpr": "registers",
    "vgprcount": "registers",
    "accumvgpr": "accumulators",
    "accumvgprcount": "accumulators",
    "beginns": "start",
    "starttimestamp": "start",
    "endns": "end",
    "endtimestamp": "end",
    "countername": "counter",
    "countervalue": "value",
}

_PASSED_OVER = {
    *("queueid", "queueindex", "tid", "threadid", "sgpr", "sgprcount", "wavesize", "sig", "obj", "correlationid"),
    *("kernelid", "dispatchns", "completens", "kind", "streamid", "durationns"),
}

_TEXT = frozenset(("kernel", "agent", "counter"))

_WHOLE = frozenset(("dispatch", "process", "start", "end"))


@dataclass(slots=True)
class CounterTable:
    """A file's launches: columns by role, texts as numbers of `texts`, counters by name; NaN for what is not there."""

    path: Path
    kind: FileKind
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    counters: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    agents: dict[str, tuple[str, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns.get("dispatch", ()))


def detect_table(header: Sequence[str]) -> FileKind | None:
    """What a file with this header holds; None for what is not of a profiler of AMD's, or of no use here."""
    named = {_plain(cell) for cell in header}
    roles = {_ROLES[name] for name in named if name in _ROLES}
    if {"nodeid", "agenttype"} <= named:
        return "agents"
    if not {"dispatch", "kernel"} <= roles:
        return None
    if {"counter", "value"} & roles:
        return "counters" if {"counter", "value"} <= roles else None
    return "launches" if "kind" in named and {"start", "end"} <= roles else "wide"


def read_header(path: Path) -> list[str]:
    """A file's first record; ValueError where it has none."""
    with open_text(path) as stream:
        first = next(read_records(path, iter(FileLines(path, stream))), None)
    if first is None or not any(first[1]):
        raise file_error(path, None, f"it is empty: {_NEEDED}")
    return first[1]


_NEEDED = "a CSV file is needed that rocprof or rocprofv3 --output-format csv wrote"


def read_table(path: Path) -> CounterTable:
    """A file's table.

    Raises
    ------
    ValueError
        For what is no such file, and for a record that is damaged, with its line.
    OSError
        When it cannot be read.
    """
    header = read_header(path)
    kind = detect_table(header)
    if kind is None:
        raise file_error(path, 1, f"its columns are {repr_short(', '.join(header))}: {_NEEDED}")
    if len(header) > _MOST_COLUMNS:
        raise file_error(path, 1, f"it has {len(header)} columns: at most {_MOST_COLUMNS} are read")
    table = CounterTable(path, kind)
    with open_text(path) as stream:
        lines = FileLines(path, stream)
        found = file_error(path, iter(lines), _BATCH)
        if kind == "agents":
            _read_agents(table, header, next(found)[1:])
        else:
            _read_launches(table, header, found, lines)
    return table


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "").replace("-", "")


def _read_agents(table: CounterTable, header: list[str], found: list[list[str]]) -> None:
    """GPUs by the numbers that launches name them by: "AMD Instinct MI250X (gfx90a)", and compute units."""
    places = {_plain(name): place for place, name in enumerate(header)}
    for cells in found:
        cell = {name: cells[place] for name, place in places.items() if place < len(cells)}
        if cell.get("agenttype", "").strip().upper() != "GPU":
            continue
        product, gfx = (schema.clean_text(cell.get(name, "").strip()) for name in ("productname", "name"))
        name = " ".join(word for word in (product, f"({gfx})" if product and gfx else gfx) if word)
        units = cell.get("cucount", "")
        number = float(units) if units.isascii() and units.isdigit() and len(units) < 7 else np.nan
        table.agents[cell.get("nodeid", "").strip()] = (name or "GPU", number)


@dataclass(slots=True)
class _Part:
    """A column while it is read: how its cells become numbers, and what was read."""

    name: str
    place: int
    convert: Callable[[tuple[str, ...]], NDArray[Any]]
    said: str
    found: list[NDArray[Any]] = field(default_factory=list)


def _read_launches(table: CounterTable, header: list[str], found: Iterator[list[list[str]]], lines: FileLines) -> None:
    codes: dict[str, dict[str, int]] = {}
    parts = _parts(table, header, codes)
    before = 1  # records, the header among them
    for batch in _whole_records(table, header, found, lines):
        cells = list(zip(*batch, strict=True))
        for part in parts:
            try:
                part.found.append(part.convert(cells[part.place]))
            except (OverflowError, ValueError):
                raise _cell_error(table.path, header, part, batch, before) from None
        before += len(batch)
        if before > _MOST_RECORDS:
            said = f"it has more than {_MOST_RECORDS} records: profile fewer launches, or read it in parts"
            raise file_error(table.path, None, said)
    if before == 1:
        raise file_error(table.path, 1, "it has a header and no launches: none were made, or the file is not whole")
    whole = {part.name: np.concatenate(part.found) for part in parts}
    for part in parts:
        part.found.clear()
    table.texts = {role: [_kernel(text) for text in texts] for role, texts in codes.items()}
    _check_times(table.path, whole)
    if table.kind == "counters":
        _pivot(table, whole)
    else:
        counted = {part.name for part in parts} - set(_ROLES.values())
        table.columns = {name: values for name, values in whole.items() if name not in counted}
        table.counters = {name: whole[name] for name in whole if name in counted}
    _leave_out_impossible(table)


def _whole_records(
    table: CounterTable, header: list[str], found: Iterator[list[list[str]]], lines: FileLines
) -> Iterator[list[list[str]]]:
    """Records that have all their cells; a last one that was cut off is left out."""
    width, before = len(header), 0
    for given in found:
        batch = given if all(given) else list(filter(None, given))  # csv gives an empty record for an empty line
        if set(map(len, batch)) - {width}:
            at = next(at for at, record in enumerate(batch) if len(record) != width)
            line, cells = read_complete(table.path, before + at), len(batch[at])
            if at + 1 < len(batch) or lines.ended or cells > width or next(found, None) is not None:
                said = f"it has {cells} cells where the header has {width}: the file is damaged, or not whole"
                raise file_error(table.path, line, said)
            table.notes.append(f"line {line} is cut off and left out: the file is not whole")
            batch = batch[:-1]
        elif not lines.ended and len(batch) < _BATCH:
            table.notes.append("the last line has no end: if the file was cut off there, so may its last figure be")
        if not before:
            batch = batch[1:]  # the header
        before += len(batch) + (not before)
        if batch:
            yield batch


def _parts(table: CounterTable, header: list[str], codes: dict[str, dict[str, int]]) -> list[_Part]:
    """The columns to read; of two with one role the first."""
    parts: dict[str, _Part] = {}
    for place, title in enumerate(header):
        plain = _plain(title)
        role = _ROLES.get(plain)
        if role in _TEXT and role is not None:
            parts.setdefault(role, _Part(role, place, _coder(codes.setdefault(role, {})), "text"))
        elif role in _WHOLE and role is not None:
            parts.setdefault(role, _Part(role, place, _whole, "a whole number of 64 bits"))
        elif role is not None:
            parts.setdefault(role, _Part(role, place, _floats, "a number"))
        elif table.kind == "wide" and plain not in _PASSED_OVER and title.strip():
            name = schema.clean_text(title.strip())
            if name in _ROLES.values():
                raise file_error(table.path, 1, f"column {repr_short(title)} is none of AMD's: {_NEEDED}")
            parts.setdefault(name, _Part(name, place, _floats, "a number"))
    return list(parts.values())


def _coder(codes: dict[str, int]) -> Callable[[tuple[str, ...]], NDArray[Any]]:
    def convert(cells: tuple[str, ...]) -> NDArray[Any]:
        for text in dict.fromkeys(cells):  # in their order, which a set has not
            codes.setdefault(text, len(codes))
        return np.fromiter(map(codes.__getitem__, cells), np.int32, len(cells))

    return convert


def _whole(cells: tuple[str, ...]) -> NDArray[Any]:
    return np.fromiter(map(int, cells), np.int64, len(cells))


def _floats(cells: tuple[str, ...]) -> NDArray[Any]:
    filled = cells if all(cells) else [cell or "nan" for cell in cells]
    return np.fromiter(map(float, filled), np.float64, len(cells))


def _cell_error(path: Path, header: list[str], part: _Part, batch: list[list[str]], before: int) -> ValueError:
    """What is wrong with the first cell of a column that cannot be read."""
    for at, record in enumerate(batch):
        try:
            part.convert((record[part.place],))
        except (OverflowError, ValueError):
            said = (
                f"column {repr_short(header[part.place])} holds {repr_short(record[part.place])}: {part.said} is needed"
            )
            return file_error(path, read_complete(path, before + at), said)
    raise AssertionError(f"column {part.name}: each of its cells can be read, and all of them cannot")


def _kernel(text: str) -> str:
    """A name without what the loader adds to it: `f(int) [clone .kd]` and `f.kd` are kernel descriptors of f."""
    name = schema.clean_text(text.strip())
    return name.removesuffix(" [clone .kd]").removesuffix(".kd")


def _check_times(path: Path, whole: dict[str, NDArray[Any]]) -> None:
    start, end = whole.get("start"), whole.get("end")
    if start is None or end is None:
        return
    bad = np.flatnonzero((start < 0) | (end < start))
    if len(bad):
        at = int(bad[0])
        said = f"the launch ends at {int(end[at])} ns and begins at {int(start[at])} ns: times from 0 on are needed"
        raise file_error(path, read_complete(path, at + 1), said)


def _pivot(table: CounterTable, whole: dict[str, NDArray[Any]]) -> None:
    """Records of a launch and a counter each as launches with all their counters; instances of a counter are summed."""
    process = whole.get("process", np.zeros(len(whole["dispatch"]), np.int64))
    _, own = np.unique(process, return_inverse=True)
    dispatches, number = np.unique(whole["dispatch"], return_inverse=True)
    _, first, row = np.unique(own * len(dispatches) + number, return_index=True, return_inverse=True)
    names = table.texts.pop("counter")
    if len(names) * len(first) > _MOST_CELLS:
        said = f"it has {len(names)} different counters of {len(first)} launches: that is no file of a profiler"
        raise file_error(table.path, None, said)
    order = np.argsort(whole["counter"], kind="stable")
    ends = np.searchsorted(whole["counter"][order], np.arange(len(names) + 1))
    for code, name in enumerate(names):
        rows = order[ends[code] : ends[code + 1]]
        summed = np.bincount(row[rows], whole["value"][rows], len(first))
        there = np.bincount(row[rows], minlength=len(first)) > 0
        table.counters[name] = np.where(there, summed, np.nan)
    table.columns = {name: values[first] for name, values in whole.items() if name not in ("counter", "value")}


def _leave_out_impossible(table: CounterTable) -> None:
    """Figures that no hardware counts become unknown, and are told."""
    left_out = 0
    for figures in chain(table.counters.values(), (table.columns[name] for name in _SIZES if name in table.columns)):
        bad = ~np.isnan(figures) & ~((figures >= 0) & (figures < 2.0**63))
        left_out += int(bad.sum())
        figures[bad] = np.nan
    if left_out:
        table.notes.append(f"{left_out} figures are negative, or beyond 64 bits, and left out")


_SIZES = tuple(dict.fromkeys(role for role in _ROLES.values() if role not in _TEXT | _WHOLE and role != "value"))
