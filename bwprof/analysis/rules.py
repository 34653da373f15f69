"""Thresholds of figures: the rules of `bottlenecks` with what helps, and the sixteen questions of the checklist."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis import values
from bwprof.text.formatting import ShortFloat

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

AT_ROOF = 90.0  # percent of the roof that applies

# Columns that replace a missing one, and the factor between their units (a sector is 32 bytes).
_REPLACEMENTS = {
    "load_efficiency": ("load_efficiency_pct", 1.0),
    "waves_per_sm": ("waves", 1.0),
    "local_sectors": ("local_bytes", 32.0),
}

_COMPARE = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


def is_at_roof(data: pd.DataFrame, limits: values.LimiterColumns) -> NDArray[np.bool_]:
    """Check which rows are as fast as their roof allows, but not faster."""
    return limits.by("memory", "compute") & (limits.pct_limit >= AT_ROOF) & ~values.is_above_roof(data)


class RuleInputs:
    """The figures of a frame's rows that thresholds compare; NaN for what is not known."""

    def __init__(self, data: pd.DataFrame) -> None:
        self.data = data
        self.limits = values.limiter_columns(data)

    def column(self, name: str) -> NDArray[np.float64]:
        """Read a column of the frame, or the one that replaces it."""
        column = values.numbers(self.data, name)
        if name not in _REPLACEMENTS:
            return column
        other, unit = _REPLACEMENTS[name]
        return np.where(np.isnan(column), values.numbers(self.data, other) / unit, column)

    def figure(self, name: str) -> NDArray[np.float64]:
        """Compute a figure of `_FIGURES`, or read a column."""
        return np.asarray(_FIGURES[name](self), float) if name in _FIGURES else self.column(name)

    def ratio(self, numerator: str, denominator: str) -> NDArray[np.float64]:
        """Divide one column by another; NaN over zero."""
        below = self.column(denominator)
        return self.column(numerator) / np.where(below > 0, below, math.nan)

    @cached_property
    def on_host(self) -> bool:
        """Whether all rows are a CPU's, of which no counters are read."""
        return bool(len(self.data)) and bool(values.on_host(self.data).all())


def _kernel_share(facts: RuleInputs) -> NDArray[np.float64]:
    """Compute the percentage of the wall time in which kernels ran, from `wall_ms` or `reason`."""
    own = 100 * facts.ratio("time_ms", "wall_ms")
    return np.where(np.isnan(own), 100 - values.waiting_share(facts.data), own)


def _over_predicted(facts: RuleInputs) -> NDArray[np.float64]:
    """Divide the time by the predicted one: the column, else the time at the roof and an empty launch."""
    time_ms, own = facts.column("time_ms"), facts.column("predicted_ms")
    at_roof = time_ms * facts.limits.pct_limit / 100 + np.nan_to_num(facts.column("timer_floor_us")) / 1e3
    predicted = np.where(own > 0, own, at_roof)
    return time_ms / np.where(predicted > 0, predicted, math.nan)


def _is_latency(facts: RuleInputs) -> NDArray[np.bool_]:
    flagged = values.has_flag(facts.data, "near_timer_floor")
    return facts.limits.by("latency") | values.is_word(facts.data, "bound", "latency") | flagged


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


def _is_true(facts: RuleInputs, name: str) -> list[float]:
    """Read a column of True and False as 1 and 0."""
    return [math.nan if isinstance(word, str) else float(bool(word)) for word in values.words(facts.data, name)]


def _has_build(facts: RuleInputs) -> NDArray[np.float64]:
    """Return 1 where the run's metadata list machine code for the device, else 0."""
    run = facts.data.attrs.get("run")
    build, device = (run.get("build"), run.get("facts")) if isinstance(run, Mapping) else (None, None)
    found = math.nan
    if isinstance(build, Mapping) and isinstance(device, Mapping):
        isas = str(build.get("isas") or "").split()
        if "major" in device:
            found = _runs_on(str(build.get("cuda_archs") or ""), int(device["major"]), int(device.get("minor") or 0))
        elif isas and device.get("runtime"):
            found = device["runtime"] in isas
    return np.full(len(facts.data), float(found))


def _runs_on(archs: str, major: int, minor: int) -> bool:
    """Check "80 86 90a ptx80" for machine code of a compute capability.

    Code runs on later cards of its generation; code with an "a" runs on one capability. PTX is no machine code.
    """
    builds = re.findall(r"\b(\d+)(\d)(a?)f?\b", archs)
    return any(
        int(own_major) == major and (int(own_minor) == minor if exact else int(own_minor) <= minor)
        for own_major, own_minor, exact in builds
    )


# Figures beside the columns.
_FIGURES: dict[str, Callable[[RuleInputs], Any]] = {
    "throttled": lambda facts: values.has_flag(facts.data, "throttled"),
    "noisy": lambda facts: values.has_flag(facts.data, "noisy"),
    "latency": _is_latency,
    "compute": lambda facts: facts.limits.by("compute"),
    "kernel_share": _kernel_share,
    "conflict_pct": lambda facts: 100 * facts.ratio("bank_conflicts", "shared_wavefronts"),
    "stored_ratio": lambda facts: values.stored_ratio(facts.data),
    "memory_stalls": lambda facts: values.stall_share(facts.data, "long_scoreboard"),
    "barrier_stalls": lambda facts: values.stall_share(facts.data, "barrier"),
    "attained_pct": lambda facts: values.pct_attained(facts.data),
    "over_predicted": _over_predicted,
    "transactions": _transactions,
    "reuse": _reuse,
    "warp_primitives": lambda facts: _is_true(facts, "warp_primitives"),
    "unrolled": lambda facts: _is_true(facts, "unrolled"),
    "block_remainder": lambda facts: facts.column("block_threads") % 32,
    "empty_tail": _empty_tail,
    "has_build": _has_build,
}


@dataclass(frozen=True)
class Condition:
    """A figure and its threshold, written as "load_efficiency < 50"."""

    condition: str

    @property
    def compare(self) -> str:
        """The operator."""
        return self.condition.split()[1]

    @property
    def threshold(self) -> float:
        """The number."""
        return float(self.condition.split()[2])

    def applies(self, facts: RuleInputs) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return where the condition holds (False for NaN), and the figures."""
        figures = facts.figure(self.condition.split()[0])
        with np.errstate(invalid="ignore"):
            return _COMPARE[self.compare](figures, self.threshold) & ~np.isnan(figures), figures


@dataclass(frozen=True)
class BottleneckRule(Condition):
    """A sign of a bottleneck, where its condition and `when` hold; `evidence` has a place for the figure."""

    id: str
    issue: str
    evidence: str
    fixes: tuple[str, ...]
    when: Callable[[RuleInputs], Any] | None = None

    def applies(self, facts: RuleInputs) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return where the rule matches, and the figures."""
        matches, figures = Condition.applies(self, facts)
        if self.when is not None:
            with np.errstate(invalid="ignore"):
                matches &= self.when(facts)
        return matches, figures


def _misses_bandwidth(facts: RuleInputs) -> NDArray[np.bool_]:
    """Check which rows left of the ridge are below 70 % of a stream of their bytes."""
    kernel = facts.limits.by("kernel") & values.is_word(facts.data, "bound", "memory")
    return (facts.limits.by("memory") | kernel) & (values.pct_attained(facts.data) < 70)


_AGAIN = ("measure again before anything else",)
_OCCUPANCY_FIXES = (
    "fewer registers (__launch_bounds__)",
    "smaller tiles (64 to 32)",
    "less shared memory",
    "50-75 % is usually enough",
)

# In the order of their priority as a row's issue: doubtful figures first, causes before symptoms.
RULES: tuple[BottleneckRule, ...] = (
    BottleneckRule("throttled > 0", "throttled", "throttled: to be read with care", "flag throttled", _AGAIN),
    BottleneckRule("noisy > 0", "noisy", "noisy: to be read with care", "flag noisy", _AGAIN),
    BottleneckRule(
        "local_sectors > 0",
        "spills",
        "registers spilled to memory",
        "{:.0f} sectors of local memory",
        _OCCUPANCY_FIXES,
    ),
    BottleneckRule(
        "kernel_share < 90",
        "host_bound",
        "the GPU waits for the host",
        "kernels run {:.0f} % of the time",
        ("a CUDA graph", "fewer launches"),
    ),
    BottleneckRule(
        "latency > 0",
        "latency",
        "launch latency",
        "within three times an empty launch",
        ("batch", "fuse", "CUDA graph"),
    ),
    BottleneckRule(
        "load_efficiency < 50",
        "uncoalesced",
        "uncoalesced loads",
        "load efficiency {:.0f} %",
        (
            "consecutive threads read consecutive addresses",
            "tile through shared memory",
            "vector loads",
            "repack the layout once",
        ),
    ),
    BottleneckRule(
        "conflict_pct > 10",
        "bank_conflicts",
        "bank conflicts in shared memory",
        "{:.0f} % of the wavefronts are conflicts",
        ("pad [M][K+1]", "XOR swizzle", "reorder"),
    ),
    BottleneckRule(
        "stored_ratio > 1.5",
        "materialised",
        "intermediates go through memory",
        "{:.3g}x the compulsory bytes",
        ("fuse (flash instead of unfused)",),
    ),
    BottleneckRule(
        "traffic_ratio > 1.1",
        "extra_traffic",
        "more traffic than it should need",
        "{:.2f}x the bytes that it needs came from or went to DRAM",
        ("cache or tile", "larger tiles", "keep what is reused in registers"),
    ),
    BottleneckRule(
        "memory_stalls >= 50",
        "low_bytes_in_flight",
        "too few bytes in flight",
        "{:.0f} % of the stalls wait for memory",
        ("more loads in flight", "larger blocks", "prefetch", "__restrict__", "drop redundant reads"),
        _misses_bandwidth,
    ),
    BottleneckRule(
        "compute > 0",
        "compute",
        "arithmetic limits",
        "right of the ridge",
        ("tensor cores", "more ILP", "less divergence"),
    ),
    BottleneckRule(
        "occupancy_pct < 50",
        "low_occupancy",
        "low occupancy",
        "occupancy {:.0f} %",
        _OCCUPANCY_FIXES,
        lambda facts: ~(facts.limits.by("memory") & (facts.limits.pct_limit >= AT_ROOF)),
    ),
    BottleneckRule(
        "bandwidth_vs_fp32 < 0.9",
        "narrow_slower",
        "unpacking takes its time",
        "{:.2f}x the GB/s of FP32",
        ("wider loads", "packed arithmetic"),
        lambda facts: ~facts.limits.by("compute", "latency"),
    ),
    BottleneckRule(
        f"attained_pct >= {AT_ROOF:g}",
        "at_memory_roof",
        "at the memory roof",
        "{:.0f} % of attainable",
        ("fewer bytes only: narrower precision, fusion, GQA",),
        lambda facts: facts.limits.by("memory"),
    ),
    BottleneckRule(
        "over_predicted > 3",
        "slower_than_predicted",
        "far slower than its roofs allow",
        "{:.3g}x the predicted time",
        (
            "check: right GPU, serialisation, allocation in the kernel, uneven grid",
            "--counters --metrics all tell more",
        ),
    ),
)


def find_rule(name: str) -> BottleneckRule:
    """Find the rule of an id."""
    return next(rule for rule in RULES if rule.id == name)


COLUMNS = ("Group", "Item", "Result", "Figure")
PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


@dataclass(frozen=True)
class CheckItem(Condition):
    """A question, which rows pass where its condition holds.

    `template` formats the figure, and `needs` is what measures it.
    """

    text: str
    template: str
    needs: str
    everywhere: bool = False  # on a CPU, too


_SOURCE = "column {} (true or false): a fact of the variant's source"
_NCU = "column {} (ncu: {})"

ITEMS: dict[str, tuple[CheckItem, ...]] = {
    "Memory": (
        CheckItem(
            "load_efficiency >= 80",
            "accesses are coalesced (load efficiency at least 80 %)",
            "{:.1f} %",
            _NCU.format("load_efficiency", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"),
        ),
        CheckItem(
            "traffic_ratio <= 1.1",
            "shared memory holds what is reused (traffic ratio at most 1.1)",
            "{:.2f}x",
            "--counters",
        ),
        CheckItem(
            "conflict_pct <= 1",
            "no bank conflicts (at most 1 % of the wavefronts)",
            "{:.1f} %",
            "--metrics bank_conflicts",
        ),
        CheckItem(
            "transactions <= 1.25",
            "transactions are efficient (sectors of a request at most 1.25x the ideal)",
            "{:.2f}x",
            "--metrics sectors, and " + _NCU.format("load_efficiency", "as above"),
        ),
    ),
    "Compute": (
        CheckItem("occupancy_pct >= 50", "occupancy at least 50 %, or at a roof", "{:.0f} %", "--metrics occupancy"),
        CheckItem("warp_primitives >= 1", "warp-level primitives", "", _SOURCE.format("warp_primitives")),
        CheckItem(
            "active_threads >= 28",
            "little branch divergence (at least 28 of 32 threads active)",
            "{:.1f} of 32",
            "--metrics sm",
        ),
        CheckItem("unrolled >= 1", "loops are unrolled", "", _SOURCE.format("unrolled")),
    ),
    "Algorithm": (
        CheckItem(
            "stored_ratio <= 1",
            "fused: no intermediates in memory (algorithmic = compulsory bytes)",
            "{:.3g}x",
            "an operation of bwprof's own: a function's intermediates are not known",
            everywhere=True,
        ),
        CheckItem(
            "sm_cycles_ratio <= 1.1",
            "work is spread evenly (busiest over mean multiprocessor at most 1.1)",
            "{:.2f}x",
            "--metrics sm",
        ),
        CheckItem(
            "barrier_stalls <= 10",
            "few synchronisations (barriers at most 10 % of the stalls)",
            "{:.0f} %",
            "--metrics stalls",
        ),
        CheckItem(
            "reuse <= 1.1",
            "what is read is reused (counted at most 1.1x the compulsory bytes)",
            "{:.2f}x",
            "--counters",
        ),
    ),
    "Configuration": (
        CheckItem(
            "block_remainder <= 0",
            "the block is a multiple of 32 threads",
            "remainder {:.0f}",
            _NCU.format("block_threads", "launch__block_size"),
        ),
        CheckItem(
            "empty_tail <= 20",
            "the grid fills the device (at least a wave, its tail at most 20 % empty)",
            "{:.0f} % of the last wave empty",
            _NCU.format("waves_per_sm", "launch__waves_per_multiprocessor"),
        ),
        CheckItem(
            "theoretical_occupancy_pct >= 50",
            "registers and shared memory are balanced (neither allows less than 50 %)",
            "{:.0f} %",
            _NCU.format("theoretical_occupancy_pct", "sm__maximum_warps_per_active_cycle_pct"),
        ),
        CheckItem(
            "has_build >= 1",
            "built for this device",
            "",
            "a run's .json file, or folder: its metadata hold the build (bwprof info)",
            everywhere=True,
        ),
    ),
}


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
    lines = [(group, item.text, *_check(item, facts, names)) for group, items in ITEMS.items() for item in items]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype("string")


def _check(item: CheckItem, facts: RuleInputs, names: list[str]) -> tuple[str, str]:
    """Return the result and the figure of one item over all rows."""
    good, figures = item.applies(facts)
    known = np.flatnonzero(~np.isnan(figures))
    if not len(known):
        return UNKNOWN, item.needs if item.everywhere or not facts.on_host else "measured on a GPU only"
    if item.condition.startswith("occupancy"):  # a row at its roof needs no more warps
        good |= is_at_roof(facts.data, facts.limits)
    bad = known[~good[known]]
    if len(figures) == 1:
        return (FAIL if len(bad) else PASS), item.template.format(ShortFloat(figures[0])) or (
            "no" if len(bad) else "yes"
        )
    count = f"{len(known) - len(bad)} of {len(known)} rows pass"
    rest = f", {len(figures) - len(known)} unknown ({item.needs})" if len(known) < len(figures) else ""
    if not len(bad):
        return PASS, count + rest
    worst = bad[np.argmin(figures[bad]) if item.compare == ">=" else np.argmax(figures[bad])]
    return FAIL, count + f", worst: {names[worst]} {item.template.format(ShortFloat(figures[worst]))}".rstrip() + rest
