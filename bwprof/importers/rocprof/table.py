"""Read one CSV file of AMD's profilers as columns: rocprof's wide rows; rocprofv3's counters, launches and GPUs."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
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
_NEEDED = "a CSV file is needed that rocprof or rocprofv3 --output-format csv wrote"

# The roles of columns, and their names in files of any version, in lower case without "_" and "-".
_NAMES = {
    "dispatch": ("index", "dispatchid"),
    "kernel": ("kernelname",),
    "process": ("pid", "processid"),
    "agent": ("gpuid", "agentid"),
    "grid": ("grd", "gridsize"),
    "block": ("wgr", "workgroupsize"),
    **{f"grid_{axis}": (f"gridsize{axis}",) for axis in "xyz"},
    **{f"block_{axis}": (f"workgroupsize{axis}",) for axis in "xyz"},
    "shared": ("lds", "ldsblocksize", "ldsperworkgroup", "groupsegmentsize"),
    "scratch": ("scr", "scratchsize", "scratchperworkitem", "privatesegmentsize"),
    "registers": ("archvgpr", "vgpr", "vgprcount"),
    "accumulators": ("accumvgpr", "accumvgprcount"),
    "start": ("beginns", "starttimestamp"),
    "end": ("endns", "endtimestamp"),
    "counter": ("countername",),
    "value": ("countervalue",),
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names}
_TEXT = frozenset(("kernel", "agent", "counter"))
_INTEGERS = frozenset(("dispatch", "process", "start", "end"))
SIZES = frozenset(_NAMES) - _TEXT - _INTEGERS - {"value"}
_IGNORED = {
    *("queueid", "queueindex", "tid", "threadid", "sgpr", "sgprcount", "wavesize", "sig", "obj", "correlationid"),
    *("kernelid", "dispatchns", "completens", "kind", "streamid", "durationns"),
}


@dataclass(slots=True)
class CounterTable:
    """A file's launches: `columns` by role, where codes stand for `texts`; `counters` by name; NaN where unknown."""

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
    """Return what a file with this header holds; None for what this module does not read."""
    names = set(map(_simplify, header))
    roles = {_ROLES[name] for name in names if name in _ROLES}
    if {"nodeid", "agenttype"} <= names:
        return "agents"
    if not {"dispatch", "kernel"} <= roles:
        return None
    if {"counter", "value"} & roles:
        return "counters" if {"counter", "value"} <= roles else None
    return "launches" if "kind" in names and {"start", "end"} <= roles else "wide"


def read_header(path: Path) -> list[str]:
    """Read a file's first record; ValueError where it has none."""
    with open_text(path) as stream:
        _, header = next(read_records(path, iter(FileLines(path, stream))), (0, []))
    if not any(header):
        raise file_error(path, None, f"it is empty: {_NEEDED}")
    return header


def read_table(path: Path) -> CounterTable:
    """Read a file's table.

    Raises
    ------
    ValueError
        For any other file, and for a record that is damaged, with its line.
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
    if kind == "agents":
        _read_agents(table)
        return table
    columns = _read_columns(table, header)
    if kind == "counters":
        _sum_instances(table, columns)
    else:
        table.columns = {name: values for name, values in columns.items() if name in _NAMES}
        table.counters = {name: values for name, values in columns.items() if name not in _NAMES}
    _drop_impossible(table)
    return table


def _simplify(name: str) -> str:
    return name.strip().lower().replace("_", "").replace("-", "")


def _read_agents(table: CounterTable) -> None:
    """Read GPUs by their numbers: "AMD Instinct MI250X (gfx90a)", and compute units."""
    with open_text(table.path) as stream:
        records = read_records(table.path, iter(FileLines(table.path, stream)))
        names = [_simplify(name) for name in next(records)[1]]
        for _, cells in islice(records, _BATCH):
            cell = {name: value.strip() for name, value in zip(names, cells, strict=False)}
            if cell.get("agenttype", "").upper() == "GPU":
                product, gfx = (schema.clean_text(cell.get(name, "")) for name in ("productname", "name"))
                units = cell.get("cucount", "")
                count = float(units) if units.isascii() and units.isdigit() and len(units) < 7 else np.nan
                name = f"{product} ({gfx})" if product and gfx else product or gfx or "GPU"
                table.agents[cell.get("nodeid", "")] = (name, count)


class _CsvColumn:
    """A column while it is read: cells become numbers; texts become codes, their numbers in `texts`."""

    def __init__(self, name: str, place: int) -> None:
        self.name, self.place = name, place
        self.needed = "a whole number of 64 bits" if name in _INTEGERS else "a number"
        self.texts: dict[str, int] = {}
        self.batches: list[NDArray[Any]] = []

    def convert(self, cells: Sequence[str]) -> NDArray[Any]:
        if self.name in _TEXT:
            codes = (self.texts.setdefault(cell, len(self.texts)) for cell in cells)
            return np.fromiter(codes, np.int32, len(cells))
        if self.name in _INTEGERS:
            return np.fromiter(map(int, cells), np.int64, len(cells))
        return np.fromiter((float(cell or "nan") for cell in cells), np.float64, len(cells))


def _read_columns(table: CounterTable, header: list[str]) -> dict[str, NDArray[Any]]:
    """Read a file's launches as whole columns, and the texts of `table`."""
    path = table.path
    columns = _choose_columns(table, header)
    line_numbers = array("q")
    with open_text(path) as stream:
        records = read_complete(path, FileLines(path, stream), table.notes, unended=True)
        next(records)
        while batch := list(islice(records, _BATCH)):
            lines, rows = zip(*batch, strict=True)
            line_numbers.extend(lines)
            if len(line_numbers) > _MOST_RECORDS:
                problem = f"it has more than {_MOST_RECORDS} records: profile fewer launches, or read it in parts"
                raise file_error(path, None, problem)
            cells = list(zip(*rows, strict=True))
            for column in columns:
                try:
                    column.batches.append(column.convert(cells[column.place]))
                except (OverflowError, ValueError):
                    raise _cell_error(path, header, column, batch) from None
    if not line_numbers:
        raise file_error(path, 1, "it has a header and no launches: none were made, or the file is not whole")
    table.texts = {column.name: list(map(_clean_kernel, column.texts)) for column in columns if column.name in _TEXT}
    whole = {column.name: np.concatenate(column.batches) for column in columns}
    if "start" in whole and "end" in whole:
        start, end = whole["start"], whole["end"]
        for at in np.flatnonzero((start < 0) | (end < start)):
            problem = f"the launch ends at {int(end[at])} ns and begins at {int(start[at])} ns"
            raise file_error(path, line_numbers[at], f"{problem}: times from 0 on are needed")
    return whole


def _choose_columns(table: CounterTable, header: list[str]) -> list[_CsvColumn]:
    """Return the columns to read; of two with one role the first."""
    columns: dict[str, _CsvColumn] = {}
    for place, title in enumerate(header):
        name = _simplify(title)
        role = _ROLES.get(name)
        if role is None and table.kind == "wide" and name not in _IGNORED and title.strip():
            role = schema.clean_text(title.strip())  # a counter
            if role in _NAMES:
                raise file_error(table.path, 1, f"column {repr_short(title)} is none of AMD's: {_NEEDED}")
        if role is not None:
            columns.setdefault(role, _CsvColumn(role, place))
    return list(columns.values())


def _cell_error(path: Path, header: list[str], column: _CsvColumn, batch: list[tuple[int, list[str]]]) -> ValueError:
    """Return the error for the first cell of a column that cannot be converted."""
    for line, cells in batch:
        cell = cells[column.place]
        try:
            column.convert((cell,))
        except (OverflowError, ValueError):
            problem = f"column {repr_short(header[column.place])} holds {repr_short(cell)}: {column.needed} is needed"
            return file_error(path, line, problem)
    raise AssertionError(f"column {column.name}: each of its cells can be read, and all of them cannot")


def _clean_kernel(text: str) -> str:
    """Remove what the loader adds to a name: `f(int) [clone .kd]` and `f.kd` are kernel descriptors of f."""
    return schema.clean_text(text.strip()).removesuffix(" [clone .kd]").removesuffix(".kd")


def _sum_instances(table: CounterTable, columns: dict[str, NDArray[Any]]) -> None:
    """Turn records of a launch and a counter into launches with counters; sum the instances of a counter."""
    process = columns.get("process", np.zeros(len(columns["dispatch"]), np.int64))
    processes, dispatches = (np.unique(values, return_inverse=True)[1] for values in (process, columns["dispatch"]))
    keys = processes * (dispatches.max() + 1) + dispatches
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    names = table.texts.pop("counter")
    if len(names) * len(first) > _MOST_CELLS:
        problem = f"it has {len(names)} different counters of {len(first)} launches: that is no file of a profiler"
        raise file_error(table.path, None, problem)
    order = np.argsort(columns["counter"], kind="stable")
    ends = np.searchsorted(columns["counter"][order], np.arange(len(names) + 1))
    for code, name in enumerate(names):
        rows = order[ends[code] : ends[code + 1]]
        sums = np.bincount(row[rows], columns["value"][rows], len(first))
        table.counters[name] = np.where(np.bincount(row[rows], minlength=len(first)) > 0, sums, np.nan)
    table.columns = {name: values[first] for name, values in columns.items() if name not in ("counter", "value")}


def _drop_impossible(table: CounterTable) -> None:
    """Replace figures that no hardware counts by NaN, with a note."""
    left_out = 0
    sizes = (values for name, values in table.columns.items() if name in SIZES)
    for figures in chain(table.counters.values(), sizes):
        bad = ~np.isnan(figures) & ~((figures >= 0) & (figures < 2.0**63))
        left_out += int(bad.sum())
        figures[bad] = np.nan
    if left_out:
        table.notes.append(f"{left_out} figures are negative, or beyond 64 bits, and left out")
