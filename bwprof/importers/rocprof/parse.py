"""`parse_rocprof`: a row for each launch of rocprof's files, with bytes, hit rates and stalls from AMD's counters.

Formulas are those of AMD's derived counters (source/share/rocprofiler-sdk/counter_defs.yaml of ROCm/rocprofiler-sdk;
"MI300 and MI200 series performance counters and metrics", rocm.docs.amd.com), each on counters summed over instances:

* bytes read = 1024 FETCH_SIZE = 32 RDREQ_32B + 64 (RDREQ - RDREQ_32B), where RDREQ is TCC_EA_RDREQ (TCC_EA0_RDREQ from
  MI300 on), requests of the L2 cache to memory of 32 or 64 bytes. On MI300 some of them are of 128 bytes, counted by
  TCC_BUBBLE: 128 BUBBLE + 64 (RDREQ - BUBBLE - RDREQ_32B) + 32 RDREQ_32B. MI350 counts each size:
  32 RDREQ_32B + 64 RDREQ_64B + 128 RDREQ_128B; so does RDNA: GL2C_EA_RDREQ_32B, _64B, _96B, _128B.
* bytes written = 1024 WRITE_SIZE = 64 WRREQ_64B + 32 (WRREQ - WRREQ_64B), TCC_EA_WRREQ, TCC_EA0_WRREQ, or on RDNA
  GL2C_MC_WRREQ (GL2C_EA_WRREQ from gfx12 on).
* L2 hits = 100 TCC_HIT / (TCC_HIT + TCC_MISS); GL2C_HIT and GL2C_MISS on RDNA.
* bank conflicts = 100 LDS_BANK_CONFLICT / LDS_IDX_ACTIVE, cycles of both, SQ_ on CDNA and SQC_ on RDNA, where there is
  no LDSBankConflict.

FetchSize and WriteSize are the same metrics in KiB, as rocprof of version 1 calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.importers.frames import COLUMNS, make_frame
from bwprof.importers.reader import file_error, find_csv_files, shorten_name
from bwprof.importers.rocprof import table as tables
from bwprof.importers.rocprof.table import CounterTable
from bwprof.text.parsing import finite_or_none, parse_path, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

_KIB = 1024.0

_READS, _WRITES = ("FETCH_SIZE", "FetchSize"), ("WRITE_SIZE", "WriteSize")

_PREFIXES = ("TCC_EA", "TCC_EA0")

_L2_LINE, _L1_LINE = 128.0, 64.0  # bytes; of MI200 (AMD's Instinct MI200 instruction set reference)


class TrafficFigures:
    """Columns worked out of counters, each from the first source that a launch has, and the words for estimates."""

    def __init__(self, counters: Mapping[str, Values], launches: int) -> None:
        self._counters, self._launches = counters, launches
        self.columns: dict[str, Values] = {}
        self._estimates: list[tuple[str, NDArray[np.bool_]]] = []
        self._work_out()

    @property
    def estimated(self) -> list[str | None] | None:
        """For each launch which of its figures are estimates and how they were made; None where none of any is."""
        said: dict[bytes, str | None] = {}
        if not self._estimates:
            return None
        flags = np.stack([flagged for _, flagged in self._estimates], axis=1)
        for row in np.unique(flags, axis=0):
            words = [text for (text, _), there in zip(self._estimates, row, strict=True) if there]
            said[row.tobytes()] = "; ".join(words) or None
        return [said[row.tobytes()] for row in flags]

    def _get(self, *names: str) -> Values:
        """A counter under the first of its names, summed or of one instance; NaN where it was not counted."""
        found = np.full(self._launches, np.nan)
        for name in names:
            for known in (f"{name}_sum", name):
                if known in self._counters:
                    found = np.where(np.isnan(found), self._counters[known], found)
        return found

    def _put(self, column: str, values: Values, estimate: str = "") -> None:
        """Fill a column where it has nothing yet."""
        own = self.columns.setdefault(column, np.full(self._launches, np.nan))
        with np.errstate(invalid="ignore"):
            fresh = np.isnan(own) & (values >= 0) & (values < 2.0**63)
        own[fresh] = values[fresh]
        if estimate and fresh.any():
            self._estimates.append((f"{column}: {estimate}", fresh))

    def _work_out(self) -> None:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            self._bytes_read()
            self._bytes_written()
            self._caches()
            self._shares()
            self._matrix_operations()
        self.columns = {name: values for name, values in self.columns.items() if not np.isnan(values).all()}

    def _bytes_read(self) -> None:
        column = "dram_bytes_read"
        for name in _READS:
            self._put(column, _KIB * self._get(name))
        own = [self._get(f"TCC_EA0_RDREQ_{size}B") for size in (32, 64, 128)]
        self._put(column, 32 * own[0] + 64 * own[1] + 128 * own[2])
        for prefix in _PREFIXES:
            whole, small = self._get(f"{prefix}_RDREQ"), self._get(f"{prefix}_RDREQ_32B")
            second, second_small = self._second("RDREQ"), self._second("RDREQ_32B")
            if prefix == "TCC_EA0":
                large = self._get("TCC_BUBBLE")
                self._put(column, 128 * large + 64 * (whole - large - small) + 32 * small)
                without = "without TCC_BUBBLE reads of 128 bytes count as 64, it may be up to twice as much"
                self._put(column, 64 * (whole - small) + 32 * small, without)
            else:
                whole, small = whole + second, small + second_small
                self._put(column, 64 * (whole - small) + 32 * small)
            self._put(
                column, 64 * whole, f"{prefix}_RDREQ x 64 bytes, at most; {prefix}_RDREQ_32B says how many are 32"
            )
        sizes = {size: self._get(f"GL2C_EA_RDREQ_{size}B") for size in (32, 64, 96, 128)}
        most = sizes[32] * 32 + sizes[64] * 64 + sizes[128] * 128
        self._put(column, most + 96 * np.nan_to_num(sizes[96]))  # gfx12 has none of 96
        self._from_misses(column)

    def _from_misses(self, column: str) -> None:
        for name in ("TCC_MISS", "GL2C_MISS"):
            said = f"{name} x {_L2_LINE:.0f} bytes, a cache line each; misses of writes are among them"
            self._put(column, _L2_LINE * self._get(name), said)
        for name in ("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_MISSES"):
            said = f"{name} x {_L1_LINE:.0f} bytes, at most: what the L2 cache had did not come from memory"
            self._put(column, _L1_LINE * self._get(name), said)

    def _bytes_written(self) -> None:
        column = "dram_bytes_written"
        for name in _WRITES:
            self._put(column, _KIB * self._get(name))
        for prefix, whole, large in (
            ("TCC_EA", "TCC_EA_WRREQ", "TCC_EA_WRREQ_64B"),
            ("TCC_EA0", "TCC_EA0_WRREQ", "TCC_EA0_WRREQ_64B"),
            ("GL2C_MC", "GL2C_MC_WRREQ", "GL2C_EA_WRREQ_64B"),
            ("GL2C_EA", "GL2C_EA_WRREQ", "GL2C_EA_WRREQ_64B"),
        ):
            requests, of_64 = self._get(whole), self._get(large)
            if prefix == "TCC_EA":
                requests, of_64 = requests + self._second("WRREQ"), of_64 + self._second("WRREQ_64B")
            self._put(column, 64 * of_64 + 32 * (requests - of_64))
            self._put(column, 64 * requests, f"{whole} x 64 bytes, at most; {large} says how many are so")

    def _second(self, name: str) -> Values:
        """The same of the second interface to memory, which gfx906 has; 0 elsewhere."""
        return np.nan_to_num(self._get(f"TCC_EA1_{name}"))

    def _caches(self) -> None:
        self._put("l2_hit_pct", self._percent(self._get("L2CacheHit")))
        for block in ("TCC", "GL2C"):
            hit, miss = self._get(f"{block}_HIT"), self._get(f"{block}_MISS")
            self._put("l2_hit_pct", 100 * hit / (hit + miss))
        accesses, misses = (
            self._get("TCP_TOTAL_CACHE_ACCESSES"),
            self._get("TCP_TCC_READ_REQ", "TCP_TOTAL_CACHE_MISSES"),
        )
        said = "100 (1 - reads that went to the L2 cache / accesses)"
        self._put("l1_hit_pct", 100 * (1 - misses / accesses), said)

    def _shares(self) -> None:
        self._put("valu_busy_pct", self._percent(self._get("VALUBusy")))
        self._put("mem_unit_stalled_pct", self._percent(self._get("MemUnitStalled")))
        self._put("lds_bank_conflict_pct", self._percent(self._get("LDSBankConflict")))
        for block in ("SQ", "SQC"):
            conflicts, active = self._get(f"{block}_LDS_BANK_CONFLICT"), self._get(f"{block}_LDS_IDX_ACTIVE")
            self._put("lds_bank_conflict_pct", self._percent(100 * conflicts / active))

    def _matrix_operations(self) -> None:
        kinds = ("F16", "BF16", "F32", "F64")
        counted = [self._get(f"SQ_INSTS_VALU_MFMA_MOPS_{kind}") for kind in kinds]
        there = np.any([~np.isnan(one) for one in counted], axis=0)
        whole = np.where(there, 512 * np.sum([np.nan_to_num(one) for one in counted], axis=0), np.nan)
        self._put("flops", whole, "512 SQ_INSTS_VALU_MFMA_MOPS: matrix instructions alone, of the types counted")

    def _percent(self, values: Values) -> Values:
        return np.where(values <= 100.5, np.minimum(values, 100), np.nan)


def _times_ms(columns: Mapping[str, Any]) -> Values | None:
    """How long launches took; NaN where both times are the same: nothing was recorded."""
    if "start" not in columns or "end" not in columns:
        return None
    taken = (np.asarray(columns["end"]) - np.asarray(columns["start"])).astype(np.float64)
    return np.where(taken > 0, taken / 1e6, np.nan)


_PASS = re.compile(r"(?:pmc|pass)_(\d+)")

_PROCESS = re.compile(r"(?:^|_)(\d+)_(?:counter_collection|kernel_trace)\.csv$")

_OF_NO_USE = re.compile(r"_(?:stats|api_trace|copy_trace|allocation_trace|marker_trace|scratch_memory_trace)\.csv$")

_OWN = frozenset(column.name for column in COLUMNS)

_PER_BLOCK = ("grid", "block")

_BYTES = {"dram_bytes_read": "FETCH_SIZE", "dram_bytes_written": "WRITE_SIZE (or GL2C_MC_WRREQ_sum)"}


def parse_rocprof(path: str | PathLike[str], *, peak_gb_s: float | None = None) -> pd.DataFrame:
    """What rocprof (v1) or rocprofv3 counted: a row for each launch, in base units.

    Read were the files that AMD's documentation shows; there was no AMD GPU to take others on.

    Parameters
    ----------
    path : str or path
        A CSV file, or the folder that the profiler wrote to: files of several runs (``pmc_1``, ``pass_2``, ...) are
        joined launch by launch. A figure that several runs have is the first one's, times too.
    peak_gb_s : float, optional
        The memory's theoretical bandwidth, GB/s, which no such file has.

    Returns
    -------
    pandas.DataFrame
        ``kernel``, ``launch`` (its number in the file), ``time_ms``, ``dram_bytes_read`` and ``dram_bytes_written``
        (bytes), ``dram_gb_s``, ``l2_hit_pct``, ``valu_busy_pct``, ``lds_bank_conflict_pct``, ..., then each counter
        under its own name and in its own unit. ``estimated`` says which figures are estimates. Without counters of
        writes ``dram_bytes_written`` is not there. ``attrs["notes"]`` says what was left out.

    Notes
    -----
    Bytes read are 1024 FETCH_SIZE (KiB), which AMD computes as 32 TCC_EA_RDREQ_32B + 64 (TCC_EA_RDREQ -
    TCC_EA_RDREQ_32B); written are 1024 WRITE_SIZE, 64 TCC_EA_WRREQ_64B + 32 (TCC_EA_WRREQ - TCC_EA_WRREQ_64B). MI300
    and RDNA count otherwise: `bwprof.importers.rocprof.parse` has all formulas. Source: counter_defs.yaml of
    github.com/ROCm/rocprofiler-sdk. ``registers`` are vector registers, accumulators included.

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
    peak = _peak(peak_gb_s)
    listed = [place] if not place.is_dir() else _files(place)
    found = [tables.read_table(one) for one in listed]
    notes = [note if len(found) == 1 else f"{one.path.name}: {note}" for one in found for note in one.notes]
    agents: dict[str, tuple[str, float]] = {}
    for one in found:
        agents |= one.agents
    launches = [one for one in found if one.kind != "agents"]
    if not launches:
        raise file_error(place, None, "it lists GPUs and no launches: rocprofv3 --kernel-trace or --pmc writes them")
    whole = _joined(place, launches)
    tool = "rocprof" if launches[0].kind == "wide" else "rocprofv3"
    return _frame(whole, agents, peak, place.name, tool, notes)


def _peak(given: float | None) -> float:
    found = finite_or_none(given)
    if given is not None and (found is None or found <= 0):
        raise ValueError(f"peak_gb_s is {repr_short(given)}: a positive, finite number is needed")
    return np.nan if found is None else found


def _files(folder: Path) -> list[Path]:
    """The CSV files below a folder that hold launches or GPUs, those of the first run first."""
    found = []
    for path in sorted(find_csv_files(folder), key=lambda one: (_pass_of(one), str(one))):
        if path.is_file() and not _OF_NO_USE.search(path.name) and path.stat().st_size:
            kind = tables.detect_table(tables.read_header(path))
            if kind is not None:
                found.append(path)
    if not found:
        raise file_error(folder, None, "no file below it is of rocprof or rocprofv3 --output-format csv")
    return found


def _pass_of(path: Path) -> int:
    """The number of the run that a file is of; 0 where the profiler ran once."""
    numbers = [int(found[1]) for part in path.parts if (found := _PASS.fullmatch(part)) and len(found[1]) < 9]
    return numbers[-1] if numbers else 0


def _joined(place: Path, found: list[CounterTable]) -> pd.DataFrame:
    """All launches: the columns of each file joined by process and number; of figures that two have the first."""
    import pandas as pd

    whole: pd.DataFrame | None = None
    by_pass: dict[int, list[CounterTable]] = {}
    for one in found:
        by_pass.setdefault(_pass_of(one.path), []).append(one)
    for listed in by_pass.values():
        own = _of_one_run(listed)
        if whole is None:
            whole = own
            continue
        both = whole.index.intersection(own.index)
        differs = (
            whole.loc[both, "kernel"].astype(object).to_numpy() != own.loc[both, "kernel"].astype(object).to_numpy()
        )
        if len(both) < max(len(whole), len(own)) or differs.any():
            raise file_error(
                place, None, f"{_difference(whole, own, both[differs])}: read the folder of each run by itself"
            )
        whole = pd.concat([whole, own.reindex(whole.index)[[name for name in own if name not in whole]]], axis=1)
    assert whole is not None
    launches = whole.index.get_level_values(1).to_numpy()
    return whole.reset_index(drop=True).assign(launch=launches)


def _difference(one: pd.DataFrame, other: pd.DataFrame, differing: Any) -> str:
    if not len(differing):
        return f"its runs have {len(one)} and {len(other)} launches, not the same ones"
    at = differing[0]
    names = [quote_text(data.loc[at, "kernel"]) for data in (one, other)]
    return f"launch {at[1]} is {names[0]} in one run and {names[1]} in another"


def _of_one_run(listed: list[CounterTable]) -> pd.DataFrame:
    """A run's files, by process (in the order of their numbers) and launch; counters' first, then the launches'."""
    import pandas as pd

    whole: pd.DataFrame | None = None
    for one in sorted(listed, key=lambda one: one.kind != "counters"):
        own = _data(one)
        if whole is None:
            whole = own
        elif one.kind == "launches" and any(other.kind == "counters" for other in listed):
            more = own.reindex(whole.index)
            whole = pd.concat([whole, more[[name for name in more if name not in whole]]], axis=1)
        else:
            whole = pd.concat([whole, own[~own.index.isin(whole.index)]])
    assert whole is not None
    processes = {process: rank for rank, process in enumerate(sorted(set(whole.index.get_level_values(0))))}
    ranks = whole.index.get_level_values(0).map(processes)
    whole.index = pd.MultiIndex.from_arrays([ranks, whole.index.get_level_values(1)])
    return whole[~whole.index.duplicated()]


def _data(one: CounterTable) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {}
    for name, values in one.columns.items():
        columns[name] = _texts(values, one.texts[name]) if name in one.texts else values
    process = columns.pop("process", None)
    if process is None:
        number = _PROCESS.search(one.path.name)
        process = np.full(len(one), int(number[1]) if number and len(number[1]) < 18 else 0)
    launch = columns.pop("dispatch")
    columns |= {("counter", name): values for name, values in one.counters.items()}
    data = pd.DataFrame(dict(enumerate(columns.values())))
    data.columns = pd.Index(list(columns), tupleize_cols=False)
    data.index = pd.MultiIndex.from_arrays([process, launch])
    return data[~data.index.duplicated()]


def _texts(codes: NDArray[Any], texts: list[str]) -> Any:
    """Texts of their numbers, each kept once; those that became the same are the same."""
    import pandas as pd

    known = list(dict.fromkeys(texts))
    places = {text: place for place, text in enumerate(known)}
    own = np.array([places[text] for text in texts], np.int64)
    return pd.Categorical.from_codes(own[codes], categories=pd.Index(known, dtype=object))


def _frame(
    whole: pd.DataFrame,
    agents: Mapping[str, tuple[str, float]],
    peak: float,
    source: str,
    tool: str,
    notes: list[str],
) -> pd.DataFrame:
    given = {name: whole[name].to_numpy() for name in whole.columns if not isinstance(name, tuple) and name != "kernel"}
    counters = {name[1]: whole[name].to_numpy(np.float64) for name in whole.columns if isinstance(name, tuple)}
    figures = TrafficFigures(counters, len(whole))
    kernels = whole["kernel"].astype(object).to_list()
    data: dict[str, Any] = {"kernel": kernels, "launch": given.pop("launch"), "status": ["ok"] * len(whole)}
    data["case"] = _cases(kernels)
    data |= _of_launches(given) | figures.columns | _devices(given.get("agent"), agents)
    taken = _times_ms(given)
    if taken is None or np.isnan(taken).all():
        notes = [
            *notes,
            "no launch has its times: rocprof writes them with --timestamp on, rocprofv3 with --kernel-trace",
        ]
    else:
        data["time_ms"] = taken
    for column, name in _BYTES.items():
        if column not in data:
            notes = [*notes, f"{column} were not counted: {name} counts them"]
    data |= _rates(data, peak)
    if (estimated := figures.estimated) is not None:
        data["estimated"] = estimated
    same = sorted(name for name in counters if name in _OWN or not name)
    if same:
        notes = [*notes, f"counters that are called as columns are left out: {quote_text(', '.join(same))}"]
    data |= {name: values for name, values in counters.items() if name not in same}
    return make_frame(data, source=source, tool=tool, notes=notes)


def _cases(kernels: list[str]) -> list[str]:
    """Kernels' short names, each made once."""
    short = {kernel: shorten_name(kernel) for kernel in set(kernels)}
    return [short[kernel] for kernel in kernels]


def _of_launches(given: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Blocks, threads, registers and shared memory. AMD counts a grid in work-items, threads that is."""
    data: dict[str, Any] = {}
    number = {name: np.asarray(values, np.float64) for name, values in given.items() if name not in ("agent",)}
    for name in _PER_BLOCK:
        axes = [number.get(f"{name}_{axis}") for axis in "xyz"]
        if name not in number and all(axis is not None for axis in axes):
            number[name] = axes[0] * axes[1] * axes[2]  # type: ignore[operator]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if "grid" in number and "block" in number:
            data["grid_blocks"] = _finite(np.ceil(number["grid"] / number["block"]))
        if "block" in number:
            data["block_threads"] = _finite(number["block"])
        if "registers" in number:
            data["registers"] = number["registers"] + np.nan_to_num(number.get("accumulators", np.zeros(1)))
    if "shared" in number:
        data["shared_bytes"] = number["shared"]
    if "scratch" in number:
        data["scratch_size"] = number["scratch"]
    if all(f"{name}_{axis}" in number for name in _PER_BLOCK for axis in "xyz"):
        block = [number[f"block_{axis}"] for axis in "xyz"]
        with np.errstate(divide="ignore", invalid="ignore"):
            grid = [np.ceil(number[f"grid_{axis}"] / size) for axis, size in zip("xyz", block, strict=True)]
        data |= {"grid": _by_axes(grid), "block": _by_axes(block)}
    return data


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isfinite(values), values, np.nan)


def _by_axes(axes: Iterable[NDArray[Any]]) -> list[str | None]:
    listed = np.stack(list(axes), axis=1)
    known = np.isfinite(listed).all(axis=1)
    return [
        "x".join(f"{size:.0f}" for size in row) if there else None for row, there in zip(listed, known, strict=True)
    ]


def _devices(agent: Any, agents: Mapping[str, tuple[str, float]]) -> dict[str, Any]:
    """GPUs by name where the profiler listed them, else by number."""
    if agent is None:
        return {}
    known: dict[str, tuple[str, float]] = {}
    for name in dict.fromkeys(agent):
        number = str(name).rpartition(" ")[2]
        known[name] = agents.get(number, (f"GPU {number}" if number else "", np.nan))
    data: dict[str, Any] = {"device": [known[name][0] for name in agent]}
    units = np.array([known[name][1] for name in agent])
    return data if np.isnan(units).all() else data | {"multiprocessors": units}


def _rates(data: Mapping[str, Any], peak: float) -> dict[str, Any]:
    """Bandwidth, where read and written bytes and the time are known, and its share of the peak."""
    found: dict[str, Any] = {}
    if not np.isnan(peak):
        found["peak_gb_s"] = np.full(len(data["kernel"]), peak)
    if "time_ms" in data and "dram_bytes_read" in data and "dram_bytes_written" in data:
        moved = np.rint(data["dram_bytes_read"]) + np.rint(data["dram_bytes_written"])
        found["dram_gb_s"] = moved / data["time_ms"] / 1e6
        if not np.isnan(peak):
            found["pct_peak"] = 100 * found["dram_gb_s"] / peak
    return found
