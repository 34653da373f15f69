"""The performance checklist: sixteen questions, each answered by a figure."""

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
    """One question: its figure per row (NaN: not known), and the limit that a good figure keeps.

    `at_least` says on which side of `limit` good figures are, `template` how a figure is written, `needs` what measures
    it. Rows where `excused` holds pass with any figure.
    """

    group: str
    text: str
    figure: Callable[[RuleInputs], NDArray[np.float64]]
    limit: float
    template: str
    needs: str
    at_least: bool = False
    excused: Callable[[RuleInputs], NDArray[np.bool_]] | None = None
    everywhere: bool = False  # on a CPU, too

    def is_good(self, figures: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Check which figures are on the good side of the limit."""
        return figures >= self.limit if self.at_least else figures <= self.limit


def _ncu(column: str, metric: str) -> str:
    return f"column {column} (ncu: {metric})"


def _column(name: str) -> Callable[[RuleInputs], NDArray[np.float64]]:
    return lambda facts: facts.column(name)


def _flag_column(name: str) -> Callable[[RuleInputs], NDArray[np.float64]]:
    """Read a column of True and False as 1 and 0."""

    def figure(facts: RuleInputs) -> NDArray[np.float64]:
        words = values.words(facts.data, name)
        return np.array([math.nan if isinstance(word, str) else float(bool(word)) for word in words])

    return figure


def _transactions(facts: RuleInputs) -> NDArray[np.float64]:
    """Divide the sectors of a request by the ideal, or invert the load efficiency."""
    own, efficiency = facts.ratio("sectors_per_load", "ideal_sectors_per_load"), facts.column("load_efficiency")
    return np.where(np.isnan(own), 100 / np.where(efficiency > 0, efficiency, math.nan), own)


def _reuse(facts: RuleInputs) -> NDArray[np.float64]:
    """Divide counted by compulsory bytes."""
    stored = values.stored_ratio(facts.data)
    return facts.column("traffic_ratio") * np.where(np.isnan(stored), 1.0, stored)


def _empty_tail(facts: RuleInputs) -> NDArray[np.float64]:
    """Compute the percentage of its last wave that a grid leaves empty; 100 for less than one wave."""
    waves = facts.column("waves_per_sm")
    rounds = np.ceil(waves)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(waves < 1, 100.0, 100 * (rounds - waves) / rounds)


def _has_build(facts: RuleInputs) -> NDArray[np.float64]:
    """Return 1 where the run's metadata list machine code for the device, else 0."""
    return np.full(len(facts.data), _is_built(facts.data.attrs.get("run")))


def _runs_on(archs: str, major: int, minor: int) -> bool:
    """Check "80 86 90a ptx80" for machine code of a compute capability.

    Code runs on later cards of its generation; code with an "a" runs on one capability. PTX is no machine code.
    """
    builds = re.findall(r"\b(\d+)(\d)(a?)f?\b", archs)
    return any(
        int(own_major) == major and (int(own_minor) == minor if exact else int(own_minor) <= minor)
        for own_major, own_minor, exact in builds
    )


def _is_built(run: object) -> float:
    build, facts = (run.get("build"), run.get("facts")) if isinstance(run, Mapping) else (None, None)
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
        80,
        "{:.1f} %",
        _ncu("load_efficiency", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"),
        at_least=True,
    ),
    CheckItem(
        "Memory",
        "shared memory holds what is reused (traffic ratio at most 1.1)",
        _column("traffic_ratio"),
        1.1,
        "{:.2f}x",
        "--counters",
    ),
    CheckItem(
        "Memory",
        "no bank conflicts (at most 1 % of the wavefronts)",
        lambda facts: 100 * facts.ratio("bank_conflicts", "shared_wavefronts"),
        1,
        "{:.1f} %",
        "--metrics bank_conflicts",
    ),
    CheckItem(
        "Memory",
        "transactions are efficient (sectors of a request at most 1.25x the ideal)",
        _transactions,
        1.25,
        "{:.2f}x",
        "--metrics sectors, and " + _ncu("load_efficiency", "as above"),
    ),
    CheckItem(
        "Compute",
        "occupancy at least 50 %, or at a roof",
        _column("occupancy_pct"),
        50,
        "{:.0f} %",
        "--metrics occupancy",
        at_least=True,
        excused=lambda facts: is_at_roof(facts.data, facts.limits),
    ),
    CheckItem(
        "Compute",
        "warp-level primitives",
        _flag_column("warp_primitives"),
        1,
        "",
        "column warp_primitives (true or false): a fact of the variant's source",
        at_least=True,
    ),
    CheckItem(
        "Compute",
        "little branch divergence (at least 28 of 32 threads active)",
        _column("active_threads"),
        28,
        "{:.1f} of 32",
        "--metrics sm",
        at_least=True,
    ),
    CheckItem(
        "Compute",
        "loops are unrolled",
        _flag_column("unrolled"),
        1,
        "",
        "column unrolled (true or false): a fact of the variant's source",
        at_least=True,
    ),
    CheckItem(
        "Algorithm",
        "fused: no intermediates in memory (algorithmic = compulsory bytes)",
        lambda facts: values.stored_ratio(facts.data),
        1.0,
        "{:.3g}x",
        "an operation of bwprof's own: a function's intermediates are not known",
        everywhere=True,
    ),
    CheckItem(
        "Algorithm",
        "work is spread evenly (busiest over mean multiprocessor at most 1.1)",
        _column("sm_cycles_ratio"),
        1.1,
        "{:.2f}x",
        "--metrics sm",
    ),
    CheckItem(
        "Algorithm",
        "few synchronisations (barriers at most 10 % of the stalls)",
        lambda facts: values.stall_share(facts.data, "barrier"),
        10,
        "{:.0f} %",
        "--metrics stalls",
    ),
    CheckItem(
        "Algorithm",
        "what is read is reused (counted at most 1.1x the compulsory bytes)",
        _reuse,
        1.1,
        "{:.2f}x",
        "--counters",
    ),
    CheckItem(
        "Configuration",
        "the block is a multiple of 32 threads",
        lambda facts: facts.column("block_threads") % 32,
        0,
        "remainder {:.0f}",
        _ncu("block_threads", "launch__block_size"),
    ),
    CheckItem(
        "Configuration",
        "the grid fills the device (at least a wave, its tail at most 20 % empty)",
        _empty_tail,
        20,
        "{:.0f} % of the last wave empty",
        _ncu("waves_per_sm", "launch__waves_per_multiprocessor"),
    ),
    CheckItem(
        "Configuration",
        "registers and shared memory are balanced (neither allows less than 50 %)",
        _column("theoretical_occupancy_pct"),
        50,
        "{:.0f} %",
        _ncu("theoretical_occupancy_pct", "sm__maximum_warps_per_active_cycle_pct"),
        at_least=True,
    ),
    CheckItem(
        "Configuration",
        "built for this device",
        _has_build,
        1,
        "",
        "a run's .json file, or folder: its metadata hold the build (bwprof info)",
        at_least=True,
        everywhere=True,
    ),
)


def checklist(data: Any) -> pd.DataFrame:
    """Answer sixteen questions about a kernel, or about all of a frame: pass, fail or unknown, each with its figure.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.sweep`, `bwprof.load` or others. An item passes if all rows that have its figure pass.

    Returns
    -------
    pandas.DataFrame
        Columns Group, Item, Result, Figure: the figure; of several rows the worst one and its row; of an unknown item
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
    lines = [(item.group, item.text, *_check(item, facts, names)) for item in ITEMS]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype("string")


def _check(item: CheckItem, facts: RuleInputs, names: list[str]) -> tuple[str, str]:
    """Return the result and the figure of one item over all rows."""
    figures = np.asarray(item.figure(facts), float)
    known = np.flatnonzero(~np.isnan(figures))
    if not len(known):
        return UNKNOWN, item.needs if item.everywhere or not facts.on_host else "measured on a GPU only"
    good = item.is_good(figures)
    if item.excused is not None:
        good |= item.excused(facts)
    bad = known[~good[known]]
    if len(figures) == 1:
        return (FAIL if len(bad) else PASS), item.template.format(ShortFloat(figures[0])) or (
            "no" if len(bad) else "yes"
        )
    count = f"{len(known) - len(bad)} of {len(known)} rows pass"
    rest = f", {len(figures) - len(known)} unknown ({item.needs})" if len(known) < len(figures) else ""
    if not len(bad):
        return PASS, count + rest
    worst = bad[np.argmin(figures[bad]) if item.at_least else np.argmax(figures[bad])]
    return FAIL, count + f", worst: {names[worst]} {item.template.format(ShortFloat(figures[worst]))}".rstrip() + rest
