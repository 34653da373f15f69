"""The performance checklist: sixteen questions, each answered by a figure, or by what would measure it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis import values
from bwprof.analysis.rules import RuleInputs, is_at_roof
from bwprof.text.formatting import ShortFloat

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

COLUMNS = ("Group", "Item", "Result", "Figure")

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


@dataclass(frozen=True, slots=True)
class CheckItem:
    """One question: its figure per row (NaN: not known), the side of the limit that is good, and how it is said.

    `excused` says where a row passes whatever its figure. `needs` says what measures it.
    """

    group: str
    text: str
    figure: Callable[[RuleInputs], NDArray[np.float64]]
    good: Callable[[NDArray[np.float64]], NDArray[np.bool_]]
    said: str
    needs: str
    excused: Callable[[RuleInputs], NDArray[np.bool_]] | None = None
    everywhere: bool = False  # on a CPU, too


def _ncu(column: str, metric: str) -> str:
    return f"column {column} (ncu: {metric})"


def _column(name: str) -> Callable[[RuleInputs], NDArray[np.float64]]:
    return lambda facts: facts.column(name)


def _truth(name: str) -> Callable[[RuleInputs], NDArray[np.float64]]:
    """A column of True and False, 1 and 0."""

    def figure(facts: RuleInputs) -> NDArray[np.float64]:
        found = values.words(facts.data, name) if name in facts.data.columns else None
        if found is None:
            return np.full(len(facts.data), math.nan)
        return np.array([math.nan if isinstance(word, str) else float(bool(word)) for word in found])

    return figure


def _at_most(limit: float) -> Callable[[NDArray[np.float64]], NDArray[np.bool_]]:
    return lambda figure: figure <= limit


def _at_least(limit: float) -> Callable[[NDArray[np.float64]], NDArray[np.bool_]]:
    return lambda figure: figure >= limit


def _transactions(facts: RuleInputs) -> NDArray[np.float64]:
    """Sectors of a request over its ideal, which the load efficiency says, too."""
    own, efficiency = facts.ratio("sectors_per_load", "ideal_sectors_per_load"), facts.column("load_efficiency")
    return np.where(np.isnan(own), 100 / np.where(efficiency > 0, efficiency, math.nan), own)


def _reuse(facts: RuleInputs) -> NDArray[np.float64]:
    """Counted over compulsory bytes."""
    stored = values.stored_ratio(facts.data)
    return facts.column("traffic_ratio") * np.where(np.isnan(stored), 1.0, stored)


def _tail(facts: RuleInputs) -> NDArray[np.float64]:
    """Percent of its last wave that a grid leaves empty; 100 for less than one wave."""
    waves = facts.column("waves_per_sm")
    whole = np.ceil(waves)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(waves < 1, 100.0, 100 * (whole - waves) / whole)


def _build(facts: RuleInputs) -> NDArray[np.float64]:
    """1 where there is machine code for the device: of the run's metadata."""
    run = facts.data.attrs.get("run")
    found = math.nan if not isinstance(run, Mapping) else _built(run)
    return np.full(len(facts.data), found)


def _runs_on(archs: str, major: int, minor: int) -> bool:
    """Whether one of "80 86 90a ptx80" is machine code for compute capability major.minor: a generation's runs on its
    later cards, too, but for that with an "a", which is for one alone. PTX is no machine code yet."""
    found = re.findall(r"\b(\d+)(\d)(a?)f?\b", archs)
    return any(
        int(of) == major and (int(of_minor) == minor if alone else int(of_minor) <= minor)
        for of, of_minor, alone in found
    )


def _built(run: Mapping[str, Any]) -> float:
    build, facts = run.get("build"), run.get("facts")
    if not isinstance(build, Mapping) or not isinstance(facts, Mapping):
        return math.nan
    if "major" in facts:  # a GPU's compute capability
        return float(_runs_on(str(build.get("cuda_archs") or ""), int(facts["major"]), int(facts.get("minor") or 0)))
    isas = str(build.get("isas") or "").split()
    return float(facts["runtime"] in isas) if isas and facts.get("runtime") else math.nan


ITEMS: tuple[CheckItem, ...] = (
    CheckItem(
        "Memory",
        "accesses are coalesced (load efficiency at least 80 %)",
        _column("load_efficiency"),
        _at_least(80),
        "{:.1f} %",
        _ncu("load_efficiency", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"),
    ),
    CheckItem(
        "Memory",
        "shared memory holds what is reused (traffic ratio at most 1.1)",
        _column("traffic_ratio"),
        _at_most(1.1),
        "{:.2f}x",
        "--counters",
    ),
    CheckItem(
        "Memory",
        "no bank conflicts (at most 1 % of the wavefronts)",
        lambda facts: 100 * facts.ratio("bank_conflicts", "shared_wavefronts"),
        _at_most(1),
        "{:.1f} %",
        "--metrics bank_conflicts",
    ),
    CheckItem(
        "Memory",
        "transactions are efficient (sectors of a request at most 1.25x the ideal)",
        _transactions,
        _at_most(1.25),
        "{:.2f}x",
        "--metrics sectors, and " + _ncu("load_efficiency", "as above"),
    ),
    CheckItem(
        "Compute",
        "occupancy at least 50 %, or at a roof",
        _column("occupancy_pct"),
        _at_least(50),
        "{:.0f} %",
        "--metrics occupancy",
        lambda facts: is_at_roof(facts.data, facts.limits),
    ),
    CheckItem(
        "Compute",
        "warp-level primitives",
        _truth("warp_primitives"),
        _at_least(1),
        "",
        "column warp_primitives (true or false): a fact of the variant's source",
    ),
    CheckItem(
        "Compute",
        "little branch divergence (at least 28 of 32 threads active)",
        _column("active_threads"),
        _at_least(28),
        "{:.1f} of 32",
        "--metrics sm",
    ),
    CheckItem(
        "Compute",
        "loops are unrolled",
        _truth("unrolled"),
        _at_least(1),
        "",
        "column unrolled (true or false): a fact of the variant's source",
    ),
    CheckItem(
        "Algorithm",
        "fused: no intermediates in memory (algorithmic = compulsory bytes)",
        lambda facts: values.stored_ratio(facts.data),
        _at_most(1.0),
        "{:.3g}x",
        "an operation of bwprof's own: a function's intermediates are not known",
        everywhere=True,
    ),
    CheckItem(
        "Algorithm",
        "work is spread evenly (busiest over mean multiprocessor at most 1.1)",
        _column("sm_cycles_ratio"),
        _at_most(1.1),
        "{:.2f}x",
        "--metrics sm",
    ),
    CheckItem(
        "Algorithm",
        "few synchronisations (barriers at most 10 % of the stalls)",
        lambda facts: values.stall_share(facts.data, "barrier"),
        _at_most(10),
        "{:.0f} %",
        "--metrics stalls",
    ),
    CheckItem(
        "Algorithm",
        "what is read is reused (counted at most 1.1x the compulsory bytes)",
        _reuse,
        _at_most(1.1),
        "{:.2f}x",
        "--counters",
    ),
    CheckItem(
        "Configuration",
        "the block is a multiple of 32 threads",
        lambda facts: facts.column("block_threads") % 32,
        _at_most(0),
        "remainder {:.0f}",
        _ncu("block_threads", "launch__block_size"),
    ),
    CheckItem(
        "Configuration",
        "the grid fills the device (at least a wave, its tail at most 20 % empty)",
        _tail,
        _at_most(20),
        "{:.0f} % of the last wave empty",
        _ncu("waves_per_sm", "launch__waves_per_multiprocessor"),
    ),
    CheckItem(
        "Configuration",
        "registers and shared memory are balanced (neither allows less than 50 %)",
        _column("theoretical_occupancy_pct"),
        _at_least(50),
        "{:.0f} %",
        _ncu("theoretical_occupancy_pct", "sm__maximum_warps_per_active_cycle_pct"),
    ),
    CheckItem(
        "Configuration",
        "built for this device",
        _build,
        _at_least(1),
        "",
        "a run's .json file, or folder: its metadata hold the build (bwprof info)",
        everywhere=True,
    ),
)


def checklist(data: Any) -> pd.DataFrame:
    """Sixteen questions to a kernel, or to all of a frame: pass, fail or unknown, each with its figure.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.sweep`, `bwprof.load` or others. Of several rows an item passes when all do that know its figure.

    Returns
    -------
    pandas.DataFrame
        Columns Group, Item, Result, Figure: the figure, of several rows the worst one with its row; of an unknown item
        what measures it.

    Examples
    --------
    >>> found = checklist({"case": "decode", "time_ms": 0.1, "occupancy_pct": 75.0, "traffic_ratio": 1.3})
    >>> found.set_index("Item")["Result"].value_counts().to_dict()
    {'unknown': 13, 'fail': 2, 'pass': 1}
    """
    import pandas as pd

    frame = values.as_frame(data)
    frame = frame[values.has_time(frame)] if "time_ms" in frame.columns else frame
    facts = RuleInputs(frame)
    names = values.labels(frame)
    lines = [(item.group, item.text, *_answer(item, facts, names)) for item in ITEMS]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype("string")


def _answer(item: CheckItem, facts: RuleInputs, names: list[str]) -> tuple[str, str]:
    """The result and the figure of one item over all rows."""
    figures = np.asarray(item.figure(facts), float)
    known = np.flatnonzero(~np.isnan(figures))
    if not len(known):
        return UNKNOWN, item.needs if item.everywhere or not facts.on_host else "told of a GPU's kernels only"
    good = item.good(figures)
    if item.excused is not None:
        good = good | item.excused(facts)
    bad = known[~good[known]]
    if len(figures) == 1:
        return (FAIL if len(bad) else PASS), item.said.format(ShortFloat(figures[0])) or (
            "yes" if not len(bad) else "no"
        )
    of = f"{len(known) - len(bad)} of {len(known)} rows pass"
    rest = f", {len(figures) - len(known)} unknown ({item.needs})" if len(known) < len(figures) else ""
    if not len(bad):
        return PASS, of + rest
    worst = bad[_worst(item, figures[bad])]
    figure = f", worst: {names[worst]} {item.said.format(ShortFloat(figures[worst]))}".rstrip()
    return FAIL, of + figure + rest


def _worst(item: CheckItem, figures: NDArray[np.float64]) -> int:
    """The place of the figure furthest on the wrong side."""
    most_is_bad = bool(item.good(np.array([-math.inf]))[0])
    return int(np.argmax(figures) if most_is_bad else np.argmin(figures))
