"""The rules of `bottlenecks`: a figure, its threshold, and what helps."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis import values

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

_COMPARE = {"<": operator.lt, ">": operator.gt, ">=": operator.ge}


def is_at_roof(data: pd.DataFrame, limits: values.LimiterColumns) -> NDArray[np.bool_]:
    """Check which rows are as fast as their roof allows, but not faster."""
    return limits.by("memory", "compute") & (limits.pct_limit >= AT_ROOF) & ~values.is_above_roof(data)


class RuleInputs:
    """The columns of a frame that rules read, as floats; NaN for what is not known."""

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

    def ratio(self, numerator: str, denominator: str) -> NDArray[np.float64]:
        """Divide one column by another; NaN over zero."""
        below = self.column(denominator)
        return self.column(numerator) / np.where(below > 0, below, math.nan)

    @cached_property
    def by_memory(self) -> NDArray[np.bool_]:
        """Where a row is left of the ridge."""
        return self.limits.by("memory") | (self.limits.by("kernel") & values.is_word(self.data, "bound", "memory"))

    @cached_property
    def on_host(self) -> bool:
        """Whether all rows are a CPU's, of which no counters are read."""
        return bool(len(self.data)) and bool(values.on_host(self.data).all())

    @cached_property
    def at_memory_roof(self) -> NDArray[np.bool_]:
        """Where a row reaches the bandwidth of a stream of its bytes."""
        return self.limits.by("memory") & (self.limits.pct_limit >= AT_ROOF)

    @cached_property
    def predicted_ms(self) -> NDArray[np.float64]:
        """The column, else the time at the roof and an empty launch."""
        floor = np.nan_to_num(self.column("timer_floor_us")) / 1e3
        own, at_roof = self.column("predicted_ms"), self.column("time_ms") * self.limits.pct_limit / 100
        return np.where(own > 0, own, at_roof + floor)


@dataclass(frozen=True, slots=True)
class BottleneckRule:
    """One rule.

    `measure` computes each row's figure, NaN where it is not known. The rule matches where `compare` holds between
    figure and `threshold`, and `when` holds too. `evidence` is a text with a place for the figure.
    """

    id: str
    compare: str
    threshold: float
    measure: Callable[[RuleInputs], Any]
    issue: str
    evidence: str
    fixes: tuple[str, ...]
    when: Callable[[RuleInputs], Any] | None = None

    def applies(self, facts: RuleInputs) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return where the rule matches, and the figures."""
        figure = np.asarray(self.measure(facts), float)
        with np.errstate(invalid="ignore"):
            matches = _COMPARE[self.compare](figure, self.threshold) & ~np.isnan(figure)
        return (matches if self.when is None else matches & self.when(facts)), figure


def _kernel_share(facts: RuleInputs) -> NDArray[np.float64]:
    """Compute the percentage of the wall time in which kernels ran, from `wall_ms` or `reason`."""
    own = 100 * facts.ratio("time_ms", "wall_ms")
    return np.where(np.isnan(own), 100 - values.waiting_share(facts.data), own)


def _doubt(name: str) -> BottleneckRule:
    return BottleneckRule(
        name,
        ">",
        0.0,
        lambda facts: values.has_flag(facts.data, name).astype(float),
        f"{name}: to be read with care",
        f"flag {name}",
        ("measure again before anything else",),
    )


_OCCUPANCY_FIXES = (
    "fewer registers (__launch_bounds__)",
    "smaller tiles (64 to 32)",
    "less shared memory",
    "50-75 % is usually enough",
)

# In the order of their priority as a row's issue: doubtful figures first, causes before symptoms.
RULES: tuple[BottleneckRule, ...] = (
    _doubt("throttled"),
    _doubt("noisy"),
    BottleneckRule(
        "spills",
        ">",
        0.0,
        lambda facts: facts.column("local_sectors"),
        "registers spilled to memory",
        "{:.0f} sectors of local memory",
        _OCCUPANCY_FIXES,
    ),
    BottleneckRule(
        "host_bound",
        "<",
        90.0,
        _kernel_share,
        "the GPU waits for the host",
        "kernels run {:.0f} % of the time",
        ("a CUDA graph", "fewer launches"),
    ),
    BottleneckRule(
        "latency",
        ">",
        0.0,
        lambda facts: (
            facts.limits.by("latency")
            | values.is_word(facts.data, "bound", "latency")
            | values.has_flag(facts.data, "near_timer_floor")
        ).astype(float),
        "launch latency",
        "within three times an empty launch",
        ("batch", "fuse", "CUDA graph"),
    ),
    BottleneckRule(
        "uncoalesced",
        "<",
        50.0,
        lambda facts: facts.column("load_efficiency"),
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
        "bank_conflicts",
        ">",
        10.0,
        lambda facts: 100 * facts.ratio("bank_conflicts", "shared_wavefronts"),
        "bank conflicts in shared memory",
        "{:.0f} % of the wavefronts are conflicts",
        ("pad [M][K+1]", "XOR swizzle", "reorder"),
    ),
    BottleneckRule(
        "materialised",
        ">",
        1.5,
        lambda facts: values.stored_ratio(facts.data),
        "intermediates go through memory",
        "{:.3g}x the compulsory bytes",
        ("fuse (flash instead of unfused)",),
    ),
    BottleneckRule(
        "extra_traffic",
        ">",
        1.1,
        lambda facts: facts.column("traffic_ratio"),
        "more traffic than it should need",
        "{:.2f}x the bytes that it needs came from or went to DRAM",
        ("cache or tile", "larger tiles", "keep what is reused in registers"),
    ),
    BottleneckRule(
        "low_bytes_in_flight",
        ">=",
        50.0,
        lambda facts: values.stall_share(facts.data, "long_scoreboard"),
        "too few bytes in flight",
        "{:.0f} % of the stalls wait for memory",
        ("more loads in flight", "larger blocks", "prefetch", "__restrict__", "drop redundant reads"),
        when=lambda facts: facts.by_memory & (values.pct_attained(facts.data) < 70),
    ),
    BottleneckRule(
        "compute",
        ">",
        0.0,
        lambda facts: facts.limits.by("compute").astype(float),
        "arithmetic limits",
        "right of the ridge",
        ("tensor cores", "more ILP", "less divergence"),
    ),
    BottleneckRule(
        "low_occupancy",
        "<",
        50.0,
        lambda facts: facts.column("occupancy_pct"),
        "low occupancy",
        "occupancy {:.0f} %",
        _OCCUPANCY_FIXES,
        when=lambda facts: ~facts.at_memory_roof,
    ),
    BottleneckRule(
        "narrow_slower",
        "<",
        0.9,
        lambda facts: facts.column("bandwidth_vs_fp32"),
        "unpacking takes its time",
        "{:.2f}x the GB/s of FP32",
        ("wider loads", "packed arithmetic"),
        when=lambda facts: ~facts.limits.by("compute", "latency"),
    ),
    BottleneckRule(
        "at_memory_roof",
        ">=",
        AT_ROOF,
        lambda facts: values.pct_attained(facts.data),
        "at the memory roof",
        "{:.0f} % of attainable",
        ("fewer bytes only: narrower precision, fusion, GQA",),
        when=lambda facts: facts.limits.by("memory"),
    ),
    BottleneckRule(
        "slower_than_predicted",
        ">",
        3.0,
        lambda facts: facts.column("time_ms") / np.where(facts.predicted_ms > 0, facts.predicted_ms, math.nan),
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
