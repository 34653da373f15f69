"""`parse_rocprof`: a row for each launch of rocprof's files, with bytes, hit rates and stalls of AMD's counters.

Formulas are those of AMD's derived counters (source/share/rocprofiler-sdk/counter_defs.yaml of ROCm/rocprofiler-sdk;
"MI300 and MI200 series performance counters and metrics", rocm.docs.amd.com).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bwprof.importers.frames import COLUMNS, make_frame
from bwprof.importers.reader import (
    FileLines,
    file_error,
    find_csv_files,
    open_text,
    read_complete,
    read_records,
    shorten_name,
)
from bwprof.results import schema
from bwprof.text.parsing import finite_or_none, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

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
_SIZES = frozenset(_NAMES) - _TEXT - _INTEGERS - {"value"}
_IGNORED = {
    *("queueid", "queueindex", "tid", "threadid", "sgpr", "sgprcount", "wavesize", "sig", "obj", "correlationid"),
    *("kernelid", "dispatchns", "completens", "kind", "streamid", "durationns"),
}
_PASS = re.compile(r"(?:pmc|pass)_(\d{1,8})")
_PROCESS = re.compile(r"(?:^|_)(\d{1,17})_(?:counter_collection|kernel_trace)\.csv$")
_OTHER_FILES = re.compile(r"_(?:stats|api_trace|copy_trace|allocation_trace|marker_trace|scratch_memory_trace)\.csv$")
_OWN = frozenset(column.name for column in COLUMNS)
_READ, _WRITTEN = "dram_bytes_read", "dram_bytes_written"
_COUNTER = "counter "
_WANTED = {_READ: "FETCH_SIZE", _WRITTEN: "WRITE_SIZE (or GL2C_MC_WRREQ_sum)"}


# Columns by their formulas on counters; the first that a launch has counts. Text behind "~" says how one estimates.
# The L2 cache's requests to memory are called TCC_EA, from MI300 on TCC_EA0, and GL2C on RDNA; gfx906 has a second
# interface, TCC_EA1. They are of 64 bytes where nothing else is counted; TCC_BUBBLE counts MI300's reads of 128 bytes.
# Lines of MI200's caches have 128 (L2) and 64 bytes (L1). A formula needs all of its counters but those of _OPTIONAL.
_FORMULAS = {
    _READ: """
        1024 * FETCH_SIZE
        1024 * FetchSize
        32 * TCC_EA0_RDREQ_32B + 64 * TCC_EA0_RDREQ_64B + 128 * TCC_EA0_RDREQ_128B
        64 * (TCC_EA_RDREQ + TCC_EA1_RDREQ) - 32 * (TCC_EA_RDREQ_32B + TCC_EA1_RDREQ_32B)
        64 * (TCC_EA_RDREQ + TCC_EA1_RDREQ) ~ TCC_EA_RDREQ x 64 bytes, at most; TCC_EA_RDREQ_32B counts those of 32
        64 * (TCC_EA0_RDREQ + TCC_BUBBLE) - 32 * TCC_EA0_RDREQ_32B
        64 * TCC_EA0_RDREQ - 32 * TCC_EA0_RDREQ_32B ~ without TCC_BUBBLE reads of 128 bytes count as 64: up to twice
        64 * TCC_EA0_RDREQ ~ TCC_EA0_RDREQ x 64 bytes, at most; TCC_EA0_RDREQ_32B counts those of 32
        32 * GL2C_EA_RDREQ_32B + 64 * GL2C_EA_RDREQ_64B + 96 * GL2C_EA_RDREQ_96B + 128 * GL2C_EA_RDREQ_128B
        128 * TCC_MISS ~ TCC_MISS x 128 bytes, a cache line each; misses of writes are among them
        128 * GL2C_MISS ~ GL2C_MISS x 128 bytes, a cache line each; misses of writes are among them
        64 * TCP_TCC_READ_REQ ~ TCP_TCC_READ_REQ x 64 bytes, at most: hits in the L2 cache are among them
        64 * TCP_TOTAL_CACHE_MISSES ~ TCP_TOTAL_CACHE_MISSES x 64 bytes, at most: hits in the L2 cache are among them
    """,
    _WRITTEN: """
        1024 * WRITE_SIZE
        1024 * WriteSize
        32 * (TCC_EA_WRREQ + TCC_EA1_WRREQ + TCC_EA_WRREQ_64B + TCC_EA1_WRREQ_64B)
        64 * (TCC_EA_WRREQ + TCC_EA1_WRREQ) ~ TCC_EA_WRREQ x 64 bytes, at most; TCC_EA_WRREQ_64B counts those
        32 * (TCC_EA0_WRREQ + TCC_EA0_WRREQ_64B)
        64 * TCC_EA0_WRREQ ~ TCC_EA0_WRREQ x 64 bytes, at most; TCC_EA0_WRREQ_64B counts those
        32 * (GL2C_MC_WRREQ + GL2C_EA_WRREQ_64B)
        64 * GL2C_MC_WRREQ ~ GL2C_MC_WRREQ x 64 bytes, at most; GL2C_EA_WRREQ_64B counts those
        32 * (GL2C_EA_WRREQ + GL2C_EA_WRREQ_64B)
        64 * GL2C_EA_WRREQ ~ GL2C_EA_WRREQ x 64 bytes, at most; GL2C_EA_WRREQ_64B counts those
    """,
    "l2_hit_pct": """
        L2CacheHit
        100 * TCC_HIT / (TCC_HIT + TCC_MISS)
        100 * GL2C_HIT / (GL2C_HIT + GL2C_MISS)
    """,
    "l1_hit_pct": """
        100 * (1 - TCP_TCC_READ_REQ / TCP_TOTAL_CACHE_ACCESSES) ~ 100 (1 - reads of the L2 cache / accesses)
        100 * (1 - TCP_TOTAL_CACHE_MISSES / TCP_TOTAL_CACHE_ACCESSES) ~ 100 (1 - reads of the L2 cache / accesses)
    """,
    "valu_busy_pct": "VALUBusy",
    "mem_unit_stalled_pct": "MemUnitStalled",
    "lds_bank_conflict_pct": """
        LDSBankConflict
        100 * SQ_LDS_BANK_CONFLICT / SQ_LDS_IDX_ACTIVE
        100 * SQC_LDS_BANK_CONFLICT / SQC_LDS_IDX_ACTIVE
    """,
    "flops": """
        512 * (MOPS_F16 + MOPS_BF16 + MOPS_F32 + MOPS_F64) ~ 512 MOPS: matrix instructions alone, of the types counted
    """.replace("MOPS", "SQ_INSTS_VALU_MFMA_MOPS"),
}
_OPTIONAL = re.compile("TCC_EA1_|_96B|_MOPS_")  # counters that are 0 where they are unknown; gfx12 has no reads of 96
_NAME = re.compile(r"[A-Za-z]\w+")
_MOST_PCT = 100.5  # counts of two passes may make a share a bit more than 100 %


class _RunFile(NamedTuple):
    """A file's launches, by process and number; the names of counters begin with _COUNTER."""

    path: Path
    kind: FileKind
    launches: pd.DataFrame


def _detect_table(header: Sequence[str]) -> FileKind | None:
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


def _simplify(name: str) -> str:
    return name.strip().lower().replace("_", "").replace("-", "")


def _read_header(path: Path) -> list[str]:
    """Read a file's first record; ValueError where it has none."""
    with open_text(path) as stream:
        _, header = next(read_records(path, iter(FileLines(path, stream))), (0, []))
    if not any(header):
        raise file_error(path, None, f"it is empty: {_NEEDED}")
    return header


def _read_agents(path: Path) -> dict[str, tuple[str, float]]:
    """Read GPUs by their numbers: "AMD Instinct MI250X (gfx90a)", and compute units."""
    agents: dict[str, tuple[str, float]] = {}
    with open_text(path) as stream:
        records = read_records(path, iter(FileLines(path, stream)))
        names = list(map(_simplify, next(records)[1]))
        for _, cells in islice(records, _BATCH):
            cell = {name: schema.clean_text(value.strip()) for name, value in zip(names, cells, strict=False)}
            if cell.get("agenttype", "").upper() == "GPU":
                product, gfx, units = (cell.get(name, "") for name in ("productname", "name", "cucount"))
                count = float(units) if re.fullmatch("[0-9]{1,6}", units) else np.nan
                name = f"{product} ({gfx})" if product and gfx else product or gfx or "GPU"
                agents[cell.get("nodeid", "")] = (name, count)
    return agents


class _CsvColumn(NamedTuple):
    """A column that is read: its name, its place in the header, and its values so far."""

    name: str
    place: int
    batches: list[NDArray[Any]]

    def convert(self, cells: Sequence[str]) -> NDArray[Any]:
        if self.name in _TEXT:
            return np.array(list(map(_clean_kernel, cells)), object)
        if self.name in _INTEGERS:
            return np.fromiter(map(int, cells), np.int64, len(cells))
        return np.fromiter((float(cell or "nan") for cell in cells), np.float64, len(cells))


@lru_cache(maxsize=4096)
def _clean_kernel(text: str) -> str:
    """Remove what the loader adds to a name: `f(int) [clone .kd]` and `f.kd` are kernel descriptors of f."""
    return schema.clean_text(text.strip()).removesuffix(" [clone .kd]").removesuffix(".kd")


def _read_launches(path: Path, kind: FileKind, header: list[str], notes: list[str]) -> _RunFile:
    """Read a file's launches; ValueError for a record that is damaged, with its line."""
    import pandas as pd

    if len(header) > _MOST_COLUMNS:
        raise file_error(path, 1, f"it has {len(header)} columns: at most {_MOST_COLUMNS} are read")
    columns = _choose_columns(path, kind, header)
    line_numbers = array("q")
    with open_text(path) as stream:
        records = read_complete(path, FileLines(path, stream), notes, unended=True)
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
    values = {column.name: np.concatenate(column.batches) for column in columns}
    if "start" in values and "end" in values:
        start, end = values["start"], values["end"]
        for at in np.flatnonzero((start < 0) | (end < start)):
            problem = f"the launch ends at {int(end[at])} ns and begins at {int(start[at])} ns"
            raise file_error(path, line_numbers[at], f"{problem}: times from 0 on are needed")
    match = _PROCESS.search(path.name)
    launches = pd.DataFrame({"process": int(match[1]) if match else 0, **values})
    if kind == "counters":
        launches = _sum_instances(path, launches)
    _drop_impossible(launches, notes)
    launches = launches.set_index(["process", "dispatch"])
    return _RunFile(path, kind, launches[~launches.index.duplicated()])


def _choose_columns(path: Path, kind: FileKind, header: list[str]) -> list[_CsvColumn]:
    """Return the columns to read; of two with one role the first."""
    columns: dict[str, _CsvColumn] = {}
    for place, title in enumerate(header):
        name = _simplify(title)
        role = _ROLES.get(name)
        if role is None and kind == "wide" and name not in _IGNORED and title.strip():
            counter = schema.clean_text(title.strip())
            if counter in _NAMES:
                raise file_error(path, 1, f"column {repr_short(title)} is none of AMD's: {_NEEDED}")
            role = _COUNTER + counter
        if role is not None:
            columns.setdefault(role, _CsvColumn(role, place, []))
    return list(columns.values())


def _cell_error(path: Path, header: list[str], column: _CsvColumn, batch: list[tuple[int, list[str]]]) -> ValueError:
    """Return the error for the first cell of a column that cannot be converted."""
    needed = "a whole number of 64 bits" if column.name in _INTEGERS else "a number"
    for line, cells in batch:
        cell = cells[column.place]
        try:
            column.convert((cell,))
        except (OverflowError, ValueError):
            problem = f"column {repr_short(header[column.place])} holds {repr_short(cell)}: {needed} is needed"
            return file_error(path, line, problem)
    raise AssertionError(f"column {column.name}: each of its cells can be read, and all of them cannot")


def _sum_instances(path: Path, records: pd.DataFrame) -> pd.DataFrame:
    """Turn records of a launch and a counter into launches with counters; sum the instances of a counter."""
    key = ["process", "dispatch"]
    places = records.groupby(key).ngroup().to_numpy()
    launches = records.drop(columns=["counter", "value"]).drop_duplicates(key).sort_values(key, ignore_index=True)
    names = records["counter"].unique()
    if len(names) * len(launches) > _MOST_CELLS:
        problem = f"it has {len(names)} different counters of {len(launches)} launches: that is no file of a profiler"
        raise file_error(path, None, problem)
    for name, values in records.groupby("counter", sort=False)["value"]:
        at = places[values.index]
        sums = np.bincount(at, values, len(launches))
        launches[f"{_COUNTER}{name}"] = np.where(np.bincount(at, minlength=len(launches)) > 0, sums, np.nan)
    return launches


def _drop_impossible(launches: pd.DataFrame, notes: list[str]) -> None:
    """Replace figures that no hardware counts by NaN, with a note."""
    left_out = 0
    for name in launches:
        if name in _SIZES or str(name).startswith(_COUNTER):
            bad = (launches[name] < 0) | (launches[name] >= 2.0**63)
            left_out += int(bad.sum())
            launches[name] = launches[name].mask(bad)
    if left_out:
        notes.append(f"{left_out} figures are negative, or beyond 64 bits, and left out")


def parse_rocprof(path: str | PathLike[str], *, peak_gb_s: float | None = None) -> pd.DataFrame:
    """Read what rocprof (v1) or rocprofv3 counted: a row for each launch, in base units.

    It was tested on the files that AMD's documentation shows; there was no AMD GPU to record others.

    Parameters
    ----------
    path : str or path
        A CSV file, or the folder that the profiler wrote to: files of several runs (``pmc_1``, ``pass_2``, ...) are
        joined launch by launch. Of a figure (a time, too) that several runs have, the first run's counts.
    peak_gb_s : float, optional
        The memory's theoretical bandwidth, GB/s, which no such file has.

    Returns
    -------
    pandas.DataFrame
        ``kernel``, ``launch`` (its number in the file), ``time_ms``, ``dram_bytes_read`` and ``dram_bytes_written``
        (bytes), ``dram_gb_s``, ``l2_hit_pct``, ``valu_busy_pct``, ``lds_bank_conflict_pct``, ``registers`` (of
        vectors, accumulators included), ..., then each counter under its own name and in its own unit. ``estimated``
        names the figures that are estimates, and their formulas. Without counters of writes there is no
        ``dram_bytes_written``. ``attrs["notes"]`` has what was left out.

    Raises
    ------
    ValueError, OSError
        For a file that is none of these or damaged, with its line; for runs whose launches differ.

    Examples
    --------
    >>> frame = parse_rocprof("counted")  # doctest: +SKIP
    >>> frame[["kernel", "time_ms", "dram_gb_s", "l2_hit_pct"]]  # doctest: +SKIP
    """
    place = parse_path(path, "path")
    peak = finite_or_none(peak_gb_s)
    if peak_gb_s is not None and (peak is None or peak <= 0):
        raise ValueError(f"peak_gb_s is {repr_short(peak_gb_s)}: a positive, finite number is needed")
    headers = _find_files(place) if place.is_dir() else {place: _read_header(place)}
    notes: list[str] = []
    agents: dict[str, tuple[str, float]] = {}
    files: list[_RunFile] = []
    for file, header in headers.items():
        kind = _detect_table(header)
        if kind is None:
            raise file_error(file, 1, f"its columns are {repr_short(', '.join(header))}: {_NEEDED}")
        if kind == "agents":
            agents |= _read_agents(file)
            continue
        own: list[str] = []
        files.append(_read_launches(file, kind, header, own))
        notes += own if len(headers) == 1 else [f"{file.name}: {note}" for note in own]
    if not files:
        raise file_error(place, None, "it lists GPUs and no launches: rocprofv3 --kernel-trace or --pmc writes them")
    data = _build_columns(_join_runs(place, files), agents, notes)
    if peak is not None:
        data["peak_gb_s"] = np.full(len(data["kernel"]), peak)
        if "dram_gb_s" in data:
            data["pct_peak"] = 100 * data["dram_gb_s"] / peak
    tool = "rocprof" if files[0].kind == "wide" else "rocprofv3"
    return make_frame(data, source=place.name, tool=tool, notes=notes)


def _find_files(folder: Path) -> dict[Path, list[str]]:
    """Return the CSV files below a folder that hold launches or GPUs, with their headers, the first run's first."""
    paths = sorted(find_csv_files(folder), key=lambda path: (_pass_number(path), str(path)))
    paths = [path for path in paths if path.is_file() and not _OTHER_FILES.search(path.name) and path.stat().st_size]
    headers = {path: header for path in paths if _detect_table(header := _read_header(path)) is not None}
    if not headers:
        raise file_error(folder, None, "no file below it is of rocprof or rocprofv3 --output-format csv")
    return headers


def _pass_number(path: Path) -> int:
    """Return the number of a file's run; 0 where the profiler ran once."""
    return next((int(match[1]) for part in reversed(path.parts) if (match := _PASS.fullmatch(part))), 0)


def _join_runs(place: Path, files: list[_RunFile]) -> pd.DataFrame:
    """Join the launches of all runs by process and number; of columns that two have the first."""
    runs: dict[int, list[_RunFile]] = {}
    for file in files:
        runs.setdefault(_pass_number(file.path), []).append(file)
    joined, *others = map(_join_files, runs.values())
    for run in others:
        both = joined.index.intersection(run.index)
        kernels = [frame.loc[both, "kernel"].to_numpy() for frame in (joined, run)]
        differing = np.flatnonzero(kernels[0] != kernels[1])
        problem = ""
        if len(differing):
            one, other = (quote_text(names[differing[0]]) for names in kernels)
            problem = f"launch {both[differing[0]][1]} is {one} in one run and {other} in another"
        elif len(both) < max(len(joined), len(run)):
            problem = f"its runs have {len(joined)} and {len(run)} launches, not the same ones"
        if problem:
            raise file_error(place, None, f"{problem}: read the folder of each run by itself")
        joined = joined.join(run[run.columns.difference(joined.columns, sort=False)])
    return joined.rename_axis(["process", "launch"]).reset_index("launch")


def _join_files(files: list[_RunFile]) -> pd.DataFrame:
    """Join a run's files by process (in the order of their numbers) and launch; counters first, then the launches."""
    import pandas as pd

    first, *others = sorted(files, key=lambda file: file.kind != "counters")
    joined = first.launches
    for file in others:
        if first.kind == "counters" and file.kind == "launches":
            joined = joined.join(file.launches[file.launches.columns.difference(joined.columns, sort=False)])
        else:
            joined = pd.concat([joined, file.launches[~file.launches.index.isin(joined.index)]])
    ranks = np.unique(joined.index.get_level_values(0), return_inverse=True)[1]
    joined.index = pd.MultiIndex.from_arrays([ranks, joined.index.get_level_values(1)])
    return joined[~joined.index.duplicated()]


def _build_columns(launches: pd.DataFrame, agents: Mapping[str, tuple[str, float]], notes: list[str]) -> dict[str, Any]:
    """Build the frame's columns from those of the files, and add notes on what is missing."""
    names = [str(name) for name in launches if str(name).startswith(_COUNTER)]
    counters = {name.removeprefix(_COUNTER): launches[name].to_numpy(np.float64) for name in names}
    kernels = launches["kernel"].tolist()
    short = {kernel: shorten_name(kernel) for kernel in set(kernels)}
    data: dict[str, Any] = {"kernel": kernels, "launch": launches["launch"].to_numpy(), "status": ["ok"] * len(kernels)}
    data["case"] = [short[kernel] for kernel in kernels]
    data |= _size_columns(launches)
    data |= _counted_columns(counters, len(kernels))
    if "agent" in launches:
        data |= _device_columns(launches["agent"].tolist(), agents)
    _add_times(data, launches, notes)
    notes += [
        f"{column} were not counted: {name} counts them" for column, name in _WANTED.items() if column not in data
    ]
    if same := sorted(name for name in counters if name in _OWN or not name):
        notes.append(f"counters that are called as columns are left out: {quote_text(', '.join(same))}")
    return data | {name: values for name, values in counters.items() if name not in same}


def _add_times(data: dict[str, Any], launches: pd.DataFrame, notes: list[str]) -> None:
    """Add the times of launches, and their DRAM bandwidth."""
    times_ms = np.full(len(launches), np.nan)
    if {"start", "end"} <= set(launches):
        times_ms = (launches["end"] - launches["start"]).to_numpy() / 1e6
        times_ms[times_ms == 0] = np.nan  # nothing was recorded
    if np.isnan(times_ms).all():
        notes.append("no launch has its times: rocprof writes them with --timestamp on, rocprofv3 with --kernel-trace")
        return
    data["time_ms"] = times_ms
    if {_READ, _WRITTEN} <= data.keys():
        data["dram_gb_s"] = (np.rint(data[_READ]) + np.rint(data[_WRITTEN])) / times_ms / 1e6


def _counted_columns(counters: Mapping[str, Values], count: int) -> dict[str, Any]:
    """Compute the columns of _FORMULAS, and which of their figures are estimates."""
    columns: dict[str, Any] = {}
    estimates: list[tuple[str, NDArray[np.bool_]]] = []
    for column, lines in _FORMULAS.items():
        figures = np.full(count, np.nan)
        for line in filter(None, map(str.strip, lines.splitlines())):
            formula, _, estimate = line.partition(" ~ ")
            values = _evaluate(formula, counters, count)
            if column.endswith("_pct"):
                values = np.where(values <= _MOST_PCT, np.minimum(values, 100), np.nan)
            new = np.isnan(figures) & (values >= 0) & (values < 2.0**63)
            figures[new] = values[new]
            if estimate and new.any():
                estimates.append((f"{column}: {estimate}", new))
        if not np.isnan(figures).all():
            columns[column] = figures
    if estimates:
        columns["estimated"] = [
            "; ".join(text for text, launches in estimates if launches[launch]) or None for launch in range(count)
        ]
    return columns


def _evaluate(formula: str, counters: Mapping[str, Values], count: int) -> Values:
    """Compute a formula, NaN where it lacks a counter; a counter is summed (FETCH_SIZE_sum) or of one instance."""
    import pandas as pd

    figures: dict[str, Values] = {}
    for name in set(_NAME.findall(formula)):
        known = [counters[counter] for counter in (f"{name}_sum", name) if counter in counters]
        figures[name] = np.where(np.isnan(known[0]), known[-1], known[0]) if known else np.full(count, np.nan)
    unknown = np.isnan(list(figures.values())).all(axis=0)
    if unknown.all():
        return np.full(count, np.nan)
    figures |= {name: np.nan_to_num(values) for name, values in figures.items() if _OPTIONAL.search(name)}
    with np.errstate(all="ignore"):
        values: Any = pd.eval(formula, local_dict=figures, engine="python")
        return np.where(unknown, np.nan, values)


def _size_columns(launches: pd.DataFrame) -> dict[str, Any]:
    """Return blocks, threads, registers and shared memory. AMD counts a grid in work-items, which are threads."""
    unknown = np.full(len(launches), np.nan)
    sizes = {name: launches[name].to_numpy(np.float64) if name in launches else unknown for name in _SIZES}
    grids, blocks = ([sizes[f"{name}_{axis}"] for axis in "xyz"] for name in ("grid", "block"))
    with np.errstate(divide="ignore", invalid="ignore"):
        grid, block = (
            np.where(np.isnan(sizes[name]), np.prod(axes, axis=0), sizes[name])
            for name, axes in (("grid", grids), ("block", blocks))
        )
        data: dict[str, Any] = {
            "grid_blocks": np.ceil(grid / block),
            "block_threads": block,
            "registers": sizes["registers"] + np.nan_to_num(sizes["accumulators"]),
            "shared_bytes": sizes["shared"],
            "scratch_size": sizes["scratch"],
        }
        texts = {"grid": _format_axes(np.ceil(np.divide(grids, blocks))), "block": _format_axes(blocks)}
    data = {name: values for name, values in data.items() if not np.isnan(values).all()}
    return data | {name: values for name, values in texts.items() if any(values)}


def _format_axes(axes: Iterable[Values]) -> list[str | None]:
    launches = zip(*axes, strict=True)
    return ["x".join(f"{size:.0f}" for size in sizes) if np.isfinite(sizes).all() else None for sizes in launches]


def _device_columns(numbers: Sequence[Any], known: Mapping[str, tuple[str, float]]) -> dict[str, Any]:
    """Return GPUs by name where the profiler listed them, else by number."""
    devices: dict[str, tuple[str, float]] = {}
    for agent in dict.fromkeys(numbers):
        number = str(agent).rpartition(" ")[2]
        devices[agent] = known.get(number, (f"GPU {number}" if number else "", np.nan))
    names, units = zip(*(devices[agent] for agent in numbers), strict=True)
    data: dict[str, Any] = {"device": list(names)}
    return data if np.isnan(units).all() else data | {"multiprocessors": np.array(units)}
