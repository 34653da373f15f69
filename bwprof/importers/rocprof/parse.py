"""`parse_rocprof`: a row for each launch of rocprof's files, with bytes, hit rates and stalls of AMD's counters.

Formulas are those of AMD's derived counters (source/share/rocprofiler-sdk/counter_defs.yaml of ROCm/rocprofiler-sdk;
"MI300 and MI200 series performance counters and metrics", rocm.docs.amd.com), on counters summed over instances:

* bytes read = 1024 FETCH_SIZE = 32 RDREQ_32B + 64 (RDREQ - RDREQ_32B), where RDREQ is TCC_EA_RDREQ (TCC_EA0_RDREQ from
  MI300 on), requests of the L2 cache to memory of 32 or 64 bytes. MI300 also has requests of 128 bytes, counted by
  TCC_BUBBLE: 128 BUBBLE + 64 (RDREQ - BUBBLE - RDREQ_32B) + 32 RDREQ_32B. MI350 counts each size:
  32 RDREQ_32B + 64 RDREQ_64B + 128 RDREQ_128B; so does RDNA: GL2C_EA_RDREQ_32B, _64B, _96B, _128B.
* bytes written = 1024 WRITE_SIZE = 64 WRREQ_64B + 32 (WRREQ - WRREQ_64B), TCC_EA_WRREQ, TCC_EA0_WRREQ, or on RDNA
  GL2C_MC_WRREQ (GL2C_EA_WRREQ from gfx12 on).
* L2 hits = 100 TCC_HIT / (TCC_HIT + TCC_MISS); GL2C_HIT and GL2C_MISS on RDNA.
* bank conflicts = 100 LDS_BANK_CONFLICT / LDS_IDX_ACTIVE, cycles of both, SQ_ on CDNA and SQC_ on RDNA, where there is
  no LDSBankConflict.

FetchSize and WriteSize are the same metrics in KiB, in rocprof of version 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.importers.frames import COLUMNS, make_frame
from bwprof.importers.reader import file_error, find_csv_files, shorten_name
from bwprof.importers.rocprof.table import SIZES, CounterTable, detect_table, read_header, read_table
from bwprof.text.parsing import finite_or_none, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

_KIB = 1024.0
_L2_LINE, _L1_LINE = 128.0, 64.0  # bytes; of MI200 (AMD's Instinct MI200 instruction set reference)
_READ, _WRITTEN = "dram_bytes_read", "dram_bytes_written"
_PASS = re.compile(r"(?:pmc|pass)_(\d{1,8})")
_PROCESS = re.compile(r"(?:^|_)(\d{1,17})_(?:counter_collection|kernel_trace)\.csv$")
_IGNORED = re.compile(r"_(?:stats|api_trace|copy_trace|allocation_trace|marker_trace|scratch_memory_trace)\.csv$")
_OWN = frozenset(column.name for column in COLUMNS)
_COUNTERS = {_READ: "FETCH_SIZE", _WRITTEN: "WRITE_SIZE (or GL2C_MC_WRREQ_sum)"}
_NO_TIMES = "no launch has its times: rocprof writes them with --timestamp on, rocprofv3 with --kernel-trace"


class TrafficFigures:
    """Columns computed from counters, each from the first source that a launch has, and which of them are estimates."""

    def __init__(self, counters: Mapping[str, Values], launches: int) -> None:
        self._counters, self._launches = counters, launches
        self._estimates: list[tuple[str, NDArray[np.bool_]]] = []
        self.columns: dict[str, Values] = {}
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            self._add_bytes_read()
            self._add_bytes_written()
            self._add_shares()
            self._add_flops()
        self.columns = {name: values for name, values in self.columns.items() if not np.isnan(values).all()}

    @property
    def estimated(self) -> list[str | None] | None:
        """Name each launch's estimates and their formulas; None where no figure is one."""
        if not self._estimates:
            return None
        return [
            "; ".join(text for text, launches in self._estimates if launches[launch]) or None
            for launch in range(self._launches)
        ]

    def _get(self, *names: str) -> Values:
        """Return a counter under the first of its names, summed or of one instance; NaN where it was not counted."""
        values = np.full(self._launches, np.nan)
        for name in names:
            for counter in (f"{name}_sum", name):
                if counter in self._counters:
                    values = np.where(np.isnan(values), self._counters[counter], values)
        return values

    def _put(self, column: str, values: Values, estimate: str = "") -> None:
        """Fill a column where it has nothing yet."""
        own = self.columns.setdefault(column, np.full(self._launches, np.nan))
        new = np.isnan(own) & (values >= 0) & (values < 2.0**63)
        own[new] = values[new]
        if estimate and new.any():
            self._estimates.append((f"{column}: {estimate}", new))

    def _put_percent(self, column: str, values: Values) -> None:
        """Fill a share, which counts of two passes may make a bit more than 100 %."""
        self._put(column, np.where(values <= 100.5, np.minimum(values, 100), np.nan))

    def _add_bytes_read(self) -> None:
        self._put(_READ, _KIB * self._get("FETCH_SIZE", "FetchSize"))
        of_32, of_64, of_128 = (self._get(f"TCC_EA0_RDREQ_{size}B") for size in (32, 64, 128))
        self._put(_READ, 32 * of_32 + 64 * of_64 + 128 * of_128)
        for prefix in ("TCC_EA", "TCC_EA0"):
            requests, of_32 = self._get(f"{prefix}_RDREQ"), self._get(f"{prefix}_RDREQ_32B")
            if prefix == "TCC_EA":
                requests, of_32 = requests + self._second("RDREQ"), of_32 + self._second("RDREQ_32B")
                self._put(_READ, 64 * (requests - of_32) + 32 * of_32)
            else:
                of_128 = self._get("TCC_BUBBLE")
                self._put(_READ, 128 * of_128 + 64 * (requests - of_128 - of_32) + 32 * of_32)
                without = "without TCC_BUBBLE reads of 128 bytes count as 64, it may be up to twice as much"
                self._put(_READ, 64 * (requests - of_32) + 32 * of_32, without)
            most = f"{prefix}_RDREQ x 64 bytes, at most; {prefix}_RDREQ_32B counts those of 32"
            self._put(_READ, 64 * requests, most)
        of_32, of_64, of_96, of_128 = (self._get(f"GL2C_EA_RDREQ_{size}B") for size in (32, 64, 96, 128))
        self._put(_READ, 32 * of_32 + 64 * of_64 + 96 * np.nan_to_num(of_96) + 128 * of_128)  # gfx12 has none of 96
        for name in ("TCC_MISS", "GL2C_MISS"):
            estimate = f"{name} x {_L2_LINE:.0f} bytes, a cache line each; misses of writes are among them"
            self._put(_READ, _L2_LINE * self._get(name), estimate)
        for name in ("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_MISSES"):
            estimate = f"{name} x {_L1_LINE:.0f} bytes, at most: hits in the L2 cache are among them"
            self._put(_READ, _L1_LINE * self._get(name), estimate)

    def _add_bytes_written(self) -> None:
        self._put(_WRITTEN, _KIB * self._get("WRITE_SIZE", "WriteSize"))
        for prefix, large in (("TCC_EA", "TCC_EA"), ("TCC_EA0", "TCC_EA0"), ("GL2C_MC", "GL2C_EA"), ("GL2C_EA",) * 2):
            requests, of_64 = self._get(f"{prefix}_WRREQ"), self._get(f"{large}_WRREQ_64B")
            if prefix == "TCC_EA":
                requests, of_64 = requests + self._second("WRREQ"), of_64 + self._second("WRREQ_64B")
            self._put(_WRITTEN, 64 * of_64 + 32 * (requests - of_64))
            self._put(_WRITTEN, 64 * requests, f"{prefix}_WRREQ x 64 bytes, at most; {large}_WRREQ_64B counts those")

    def _second(self, name: str) -> Values:
        """Return a counter of the second interface to memory, which gfx906 has; 0 elsewhere."""
        return np.nan_to_num(self._get(f"TCC_EA1_{name}"))

    def _add_shares(self) -> None:
        self._put_percent("l2_hit_pct", self._get("L2CacheHit"))
        for block in ("TCC", "GL2C"):
            hits = self._get(f"{block}_HIT")
            self._put("l2_hit_pct", 100 * hits / (hits + self._get(f"{block}_MISS")))
        misses = self._get("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_MISSES")
        hit_pct = 100 * (1 - misses / self._get("TCP_TOTAL_CACHE_ACCESSES"))
        self._put("l1_hit_pct", hit_pct, "100 (1 - reads that went to the L2 cache / accesses)")
        self._put_percent("valu_busy_pct", self._get("VALUBusy"))
        self._put_percent("mem_unit_stalled_pct", self._get("MemUnitStalled"))
        self._put_percent("lds_bank_conflict_pct", self._get("LDSBankConflict"))
        for block in ("SQ", "SQC"):
            conflicts, active = self._get(f"{block}_LDS_BANK_CONFLICT"), self._get(f"{block}_LDS_IDX_ACTIVE")
            self._put_percent("lds_bank_conflict_pct", 100 * conflicts / active)

    def _add_flops(self) -> None:
        counted = np.stack([self._get(f"SQ_INSTS_VALU_MFMA_MOPS_{kind}") for kind in ("F16", "BF16", "F32", "F64")])
        flops = np.where(np.isnan(counted).all(axis=0), np.nan, 512 * np.nan_to_num(counted).sum(axis=0))
        self._put("flops", flops, "512 SQ_INSTS_VALU_MFMA_MOPS: matrix instructions alone, of the types counted")


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
        (bytes), ``dram_gb_s``, ``l2_hit_pct``, ``valu_busy_pct``, ``lds_bank_conflict_pct``, ..., then each counter
        under its own name and in its own unit. ``estimated`` names the figures that are estimates. Without counters of
        writes there is no ``dram_bytes_written``. ``attrs["notes"]`` has what was left out.

    Notes
    -----
    Formulas, those of AMD's derived counters, are in the docstring of `bwprof.importers.rocprof.parse`. ``registers``
    are vector registers, accumulators included.

    Raises
    ------
    ValueError
        For a file that is none of these or damaged, with its line; for runs whose launches differ.
    OSError
        When it cannot be read.

    Examples
    --------
    >>> from bwprof.importers import parse_rocprof
    >>> frame = parse_rocprof("counted")  # doctest: +SKIP
    >>> frame[["kernel", "time_ms", "dram_gb_s", "l2_hit_pct"]]  # doctest: +SKIP
    """
    place = parse_path(path, "path")
    peak = _parse_peak(peak_gb_s)
    tables = [read_table(file) for file in (_find_files(place) if place.is_dir() else [place])]
    notes = [note if len(tables) == 1 else f"{table.path.name}: {note}" for table in tables for note in table.notes]
    agents = {number: agent for table in tables for number, agent in table.agents.items()}
    tables = [table for table in tables if table.kind != "agents"]
    if not tables:
        raise file_error(place, None, "it lists GPUs and no launches: rocprofv3 --kernel-trace or --pmc writes them")
    launches = _join_runs(place, tables)
    tool = "rocprof" if tables[0].kind == "wide" else "rocprofv3"
    return make_frame(_build_columns(launches, agents, peak, notes), source=place.name, tool=tool, notes=notes)


def _parse_peak(peak_gb_s: float | None) -> float:
    peak = finite_or_none(peak_gb_s)
    if peak_gb_s is not None and (peak is None or peak <= 0):
        raise ValueError(f"peak_gb_s is {repr_short(peak_gb_s)}: a positive, finite number is needed")
    return np.nan if peak is None else peak


def _find_files(folder: Path) -> list[Path]:
    """Return the CSV files below a folder that hold launches or GPUs, those of the first run first."""
    paths = sorted(find_csv_files(folder), key=lambda path: (_pass_number(path), str(path)))
    paths = [path for path in paths if path.is_file() and not _IGNORED.search(path.name) and path.stat().st_size]
    paths = [path for path in paths if detect_table(read_header(path)) is not None]
    if not paths:
        raise file_error(folder, None, "no file below it is of rocprof or rocprofv3 --output-format csv")
    return paths


def _pass_number(path: Path) -> int:
    """Return the number of a file's run; 0 where the profiler ran once."""
    return next((int(match[1]) for part in reversed(path.parts) if (match := _PASS.fullmatch(part))), 0)


def _join_runs(place: Path, tables: list[CounterTable]) -> pd.DataFrame:
    """Join the launches of all runs by process and number; of columns that two have the first."""
    runs: dict[int, list[CounterTable]] = {}
    for table in tables:
        runs.setdefault(_pass_number(table.path), []).append(table)
    joined, *others = map(_join_files, runs.values())
    for run in others:
        both = joined.index.intersection(run.index)
        kernels = [frame.loc[both, "kernel"].astype(object).to_numpy() for frame in (joined, run)]
        differing = both[kernels[0] != kernels[1]]
        problem = ""
        if len(differing):
            names = [quote_text(frame.loc[differing[0], "kernel"]) for frame in (joined, run)]
            problem = f"launch {differing[0][1]} is {names[0]} in one run and {names[1]} in another"
        elif len(both) < max(len(joined), len(run)):
            problem = f"its runs have {len(joined)} and {len(run)} launches, not the same ones"
        if problem:
            raise file_error(place, None, f"{problem}: read the folder of each run by itself")
        joined = _add_columns(joined, run)
    numbers = joined.index.get_level_values(1).to_numpy()
    return joined.reset_index(drop=True).assign(launch=numbers)


def _add_columns(frame: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of `other` that `frame` lacks, for its launches."""
    import pandas as pd

    return pd.concat([frame, other.reindex(frame.index)[[name for name in other if name not in frame]]], axis=1)


def _join_files(tables: list[CounterTable]) -> pd.DataFrame:
    """Join a run's files by process (in the order of their numbers) and launch; counters first, then the launches."""
    import pandas as pd

    ordered = sorted(tables, key=lambda table: table.kind != "counters")
    has_counters = ordered[0].kind == "counters"
    joined = _table_frame(ordered[0])
    for table in ordered[1:]:
        frame = _table_frame(table)
        if has_counters and table.kind == "launches":
            joined = _add_columns(joined, frame)
        else:
            joined = pd.concat([joined, frame[~frame.index.isin(joined.index)]])
    ranks = np.unique(joined.index.get_level_values(0), return_inverse=True)[1]
    joined.index = pd.MultiIndex.from_arrays([ranks, joined.index.get_level_values(1)])
    return joined[~joined.index.duplicated()]


def _table_frame(table: CounterTable) -> pd.DataFrame:
    """Return a table's launches by process and number; a counter's column is ("counter", name)."""
    import pandas as pd

    columns: dict[Any, Any] = {
        name: _decode(values, table.texts[name]) if name in table.texts else values
        for name, values in table.columns.items()
    }
    process = columns.pop("process", None)
    if process is None:
        match = _PROCESS.search(table.path.name)
        process = np.full(len(table), int(match[1]) if match else 0)
    launch = columns.pop("dispatch")
    columns |= {("counter", name): values for name, values in table.counters.items()}
    frame = pd.DataFrame(dict(enumerate(columns.values())))
    frame.columns = pd.Index(list(columns), tupleize_cols=False)
    frame.index = pd.MultiIndex.from_arrays([process, launch])
    return frame[~frame.index.duplicated()]


def _decode(codes: NDArray[Any], texts: list[str]) -> Any:
    """Return the texts of codes as a categorical; texts that became equal are one."""
    import pandas as pd

    own, known = pd.factorize(np.array(texts, dtype=object))
    return pd.Categorical.from_codes(own[codes], categories=pd.Index(known, dtype=object))


def _build_columns(
    launches: pd.DataFrame, agents: Mapping[str, tuple[str, float]], peak: float, notes: list[str]
) -> dict[str, Any]:
    """Build the frame's columns from those of the files, and add notes on what is missing."""
    columns, counters = _split_columns(launches)
    kernels = list(columns.pop("kernel"))
    count = len(kernels)
    short = {kernel: shorten_name(kernel) for kernel in set(kernels)}
    figures = TrafficFigures(counters, count)
    data: dict[str, Any] = {"kernel": kernels, "launch": columns.pop("launch"), "status": ["ok"] * count}
    data["case"] = [short[kernel] for kernel in kernels]
    data |= _size_columns(columns, count) | figures.columns | _device_columns(columns.get("agent"), agents)
    if (times := _times_ms(columns)) is None:
        notes.append(_NO_TIMES)
    else:
        data["time_ms"] = times
    notes += [
        f"{column} were not counted: {name} counts them" for column, name in _COUNTERS.items() if column not in data
    ]
    _add_rates(data, peak)
    if (estimated := figures.estimated) is not None:
        data["estimated"] = estimated
    if same := sorted(name for name in counters if name in _OWN or not name):
        notes.append(f"counters that are called as columns are left out: {quote_text(', '.join(same))}")
    return data | {name: values for name, values in counters.items() if name not in same}


def _split_columns(launches: pd.DataFrame) -> tuple[dict[str, NDArray[Any]], dict[str, Values]]:
    counters = {name[1]: launches[name].to_numpy(np.float64) for name in launches if isinstance(name, tuple)}
    columns = {str(name): launches[name].to_numpy() for name in launches if not isinstance(name, tuple)}
    return columns, counters


def _add_rates(data: dict[str, Any], peak: float) -> None:
    if not np.isnan(peak):
        data["peak_gb_s"] = np.full(len(data["kernel"]), peak)
    if {"time_ms", _READ, _WRITTEN} <= data.keys():
        data["dram_gb_s"] = (np.rint(data[_READ]) + np.rint(data[_WRITTEN])) / data["time_ms"] / 1e6
        if not np.isnan(peak):
            data["pct_peak"] = 100 * data["dram_gb_s"] / peak


def _times_ms(columns: Mapping[str, NDArray[Any]]) -> Values | None:
    """Return launches' times, NaN where start and end are equal: nothing was recorded; None where no launch has one."""
    if "start" not in columns or "end" not in columns:
        return None
    times_ns = (columns["end"] - columns["start"]).astype(np.float64)
    return np.where(times_ns > 0, times_ns / 1e6, np.nan) if (times_ns > 0).any() else None


def _size_columns(columns: Mapping[str, NDArray[Any]], count: int) -> dict[str, Any]:
    """Return blocks, threads, registers and shared memory. AMD counts a grid in work-items, which are threads."""
    sizes = {name: np.asarray(values, np.float64) for name, values in columns.items() if name in SIZES}
    unknown = np.full(count, np.nan)
    axes = {name: [sizes.get(f"{name}_{axis}", unknown) for axis in "xyz"] for name in ("grid", "block")}
    grid, block = (sizes.get(name, lengths[0] * lengths[1] * lengths[2]) for name, lengths in axes.items())
    with np.errstate(divide="ignore", invalid="ignore"):
        blocks = [np.ceil(threads / size) for threads, size in zip(axes["grid"], axes["block"], strict=True)]
        data = {
            "grid_blocks": np.ceil(grid / block),
            "block_threads": block,
            "registers": sizes.get("registers", unknown) + np.nan_to_num(sizes.get("accumulators", unknown)),
            "shared_bytes": sizes.get("shared", unknown),
            "scratch_size": sizes.get("scratch", unknown),
        }
    texts = {"grid": _format_axes(blocks), "block": _format_axes(axes["block"])}
    return {name: values for name, values in data.items() if not np.isnan(values).all()} | {
        name: values for name, values in texts.items() if any(values)
    }


def _format_axes(axes: Sequence[NDArray[Any]]) -> list[str | None]:
    launches = zip(*axes, strict=True)
    return ["x".join(f"{size:.0f}" for size in sizes) if np.isfinite(sizes).all() else None for sizes in launches]


def _device_columns(agents: Any, known: Mapping[str, tuple[str, float]]) -> dict[str, Any]:
    """Return GPUs by name where the profiler listed them, else by number."""
    if agents is None:
        return {}
    devices: dict[str, tuple[str, float]] = {}
    for agent in dict.fromkeys(agents):
        number = str(agent).rpartition(" ")[2]
        devices[agent] = known.get(number, (f"GPU {number}" if number else "", np.nan))
    names, units = zip(*(devices[agent] for agent in agents), strict=True)
    data: dict[str, Any] = {"device": list(names)}
    return data if np.isnan(units).all() else data | {"multiprocessors": np.array(units)}
