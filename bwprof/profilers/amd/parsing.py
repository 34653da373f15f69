"""`parse_rocprof`: a row for each launch, of a file or of all files that a profiler of AMD's left in a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.profilers.amd import table as tables
from bwprof.profilers.amd.table import Table
from bwprof.profilers.amd.traffic import Figures, times_ms
from bwprof.profilers.columns import COLUMNS, frame_of
from bwprof.profilers.kernel import short_name
from bwprof.profilers.reading import csv_files, wrong
from bwprof.text import finite_number, path_of, quoted, shown

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

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
    and RDNA count otherwise: `bwprof.profilers.amd.traffic` has all formulas. Source: counter_defs.yaml of
    github.com/ROCm/rocprofiler-sdk. ``registers`` are vector registers, accumulators included.

    Raises
    ------
    ValueError
        For a file that is none of these or damaged, with its line; for runs whose launches differ.
    OSError
        When it cannot be read.

    Examples
    --------
    >>> from bwprof.profilers import parse_rocprof
    >>> frame = parse_rocprof("counted")  # doctest: +SKIP
    >>> frame[["kernel", "time_ms", "dram_gb_s", "l2_hit_pct"]]  # doctest: +SKIP
    """
    place = path_of(path, "path")
    peak = _peak(peak_gb_s)
    listed = [place] if not place.is_dir() else _files(place)
    found = [tables.read(one) for one in listed]
    notes = [note if len(found) == 1 else f"{one.path.name}: {note}" for one in found for note in one.notes]
    agents: dict[str, tuple[str, float]] = {}
    for one in found:
        agents |= one.agents
    launches = [one for one in found if one.kind != "agents"]
    if not launches:
        raise wrong(place, None, "it lists GPUs and no launches: rocprofv3 --kernel-trace or --pmc writes them")
    whole = _joined(place, launches)
    tool = "rocprof" if launches[0].kind == "wide" else "rocprofv3"
    return _frame(whole, agents, peak, place.name, tool, notes)


def _peak(given: float | None) -> float:
    found = finite_number(given)
    if given is not None and (found is None or found <= 0):
        raise ValueError(f"peak_gb_s is {shown(given)}: a positive, finite number is needed")
    return np.nan if found is None else found


def _files(folder: Path) -> list[Path]:
    """The CSV files below a folder that hold launches or GPUs, those of the first run first."""
    found = []
    for path in sorted(csv_files(folder), key=lambda one: (_pass_of(one), str(one))):
        if path.is_file() and not _OF_NO_USE.search(path.name) and path.stat().st_size:
            kind = tables.kind_of(tables.header_of(path))
            if kind is not None:
                found.append(path)
    if not found:
        raise wrong(folder, None, "no file below it is of rocprof or rocprofv3 --output-format csv")
    return found


def _pass_of(path: Path) -> int:
    """The number of the run that a file is of; 0 where the profiler ran once."""
    numbers = [int(found[1]) for part in path.parts if (found := _PASS.fullmatch(part)) and len(found[1]) < 9]
    return numbers[-1] if numbers else 0


def _joined(place: Path, found: list[Table]) -> pd.DataFrame:
    """All launches: the columns of each file joined by process and number; of figures that two have the first."""
    import pandas as pd

    whole: pd.DataFrame | None = None
    by_pass: dict[int, list[Table]] = {}
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
            raise wrong(place, None, f"{_difference(whole, own, both[differs])}: read the folder of each run by itself")
        whole = pd.concat([whole, own.reindex(whole.index)[[name for name in own if name not in whole]]], axis=1)
    assert whole is not None
    launches = whole.index.get_level_values(1).to_numpy()
    return whole.reset_index(drop=True).assign(launch=launches)


def _difference(one: pd.DataFrame, other: pd.DataFrame, differing: Any) -> str:
    if not len(differing):
        return f"its runs have {len(one)} and {len(other)} launches, not the same ones"
    at = differing[0]
    names = [quoted(data.loc[at, "kernel"]) for data in (one, other)]
    return f"launch {at[1]} is {names[0]} in one run and {names[1]} in another"


def _of_one_run(listed: list[Table]) -> pd.DataFrame:
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


def _data(one: Table) -> pd.DataFrame:
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
    figures = Figures(counters, len(whole))
    kernels = whole["kernel"].astype(object).to_list()
    data: dict[str, Any] = {"kernel": kernels, "launch": given.pop("launch"), "status": ["ok"] * len(whole)}
    data["case"] = _cases(kernels)
    data |= _of_launches(given) | figures.columns | _devices(given.get("agent"), agents)
    taken = times_ms(given)
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
        notes = [*notes, f"counters that are called as columns are left out: {quoted(', '.join(same))}"]
    data |= {name: values for name, values in counters.items() if name not in same}
    return frame_of(data, source=source, tool=tool, notes=notes)


def _cases(kernels: list[str]) -> list[str]:
    """Kernels' short names, each made once."""
    short = {kernel: short_name(kernel) for kernel in set(kernels)}
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
            data["blocks"] = _finite(np.ceil(number["grid"] / number["block"]))
        if "block" in number:
            data["threads"] = _finite(number["block"])
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
