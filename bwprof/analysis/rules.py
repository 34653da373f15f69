"""The rules: what each looks at, from where on it speaks, and what then helps. Data; `ranking` applies them."""

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

# Where a frame has none of a column, another that says the same, and how many of it are one (a sector is 32 bytes).
_ALSO = {
    "load_efficiency": ("load_efficiency_pct", 1.0),
    "waves_per_sm": ("waves", 1.0),
    "local_sectors": ("local_bytes", 32.0),
}

_COMPARE = {"<": operator.lt, ">": operator.gt, ">=": operator.ge}


def is_at_roof(data: pd.DataFrame, limits: values.LimiterColumns) -> NDArray[np.bool_]:
    """Where a row is as fast as its roof allows: not where it is faster, which says that something is wrong."""
    return limits.by("memory", "compute") & (limits.pct_limit >= AT_ROOF) & ~values.is_above_roof(data)


class RuleInputs:
    """What rules look at: the columns of a frame, each read once, as floats with NaN for what is not known."""

    def __init__(self, data: pd.DataFrame) -> None:
        self.data = data
        self.limits = values.limiter_columns(data)

    def column(self, name: str) -> NDArray[np.float64]:
        """A column of the frame, or another that says the same."""
        found = values.numbers(self.data, name)
        if name not in _ALSO:
            return found
        other, unit = _ALSO[name]
        return np.where(np.isnan(found), values.numbers(self.data, other) / unit, found)

    def ratio(self, part: str, whole: str) -> NDArray[np.float64]:
        """One column over another; NaN over zero."""
        below = self.column(whole)
        return self.column(part) / np.where(below > 0, below, math.nan)

    @cached_property
    def by_memory(self) -> NDArray[np.bool_]:
        """Left of the ridge: memory limits, or would, did the kernel not."""
        return self.limits.by("memory") | (self.limits.by("kernel") & values.is_word(self.data, "bound", "memory"))

    @cached_property
    def on_host(self) -> bool:
        """Whether all rows are a CPU's, which has no counters."""
        return bool(len(self.data)) and bool(values.on_host(self.data).all())

    @cached_property
    def at_memory_roof(self) -> NDArray[np.bool_]:
        """At the bandwidth that a stream of these bytes reaches."""
        return self.limits.by("memory") & (self.limits.pct_limit >= AT_ROOF)

    @cached_property
    def predicted_ms(self) -> NDArray[np.float64]:
        """What the roofs, and one empty launch, say that it should take; a prediction of its own where there is one."""
        floor = np.nan_to_num(self.column("timer_floor_us")) / 1e3
        own, at_roof = self.column("predicted_ms"), self.column("time_ms") * self.limits.pct_limit / 100
        return np.where(own > 0, own, at_roof + floor)


@dataclass(frozen=True, slots=True)
class BottleneckRule:
    """One rule.

    `measure` gives each row's figure, NaN where it is not known: then the rule says nothing. It speaks where the figure
    is on the side `compare` of `threshold`, boundaries excluded unless it is ">=", and `when` holds too. `said` is the
    evidence, with the figure in it; `needs` says how the figure is had.
    """

    id: str
    condition: str
    compare: str
    threshold: float
    measure: Callable[[RuleInputs], Any]
    issue: str
    said: str
    fixes: tuple[str, ...]
    needs: str = ""
    when: Callable[[RuleInputs], Any] | None = None

    def applies(self, facts: RuleInputs) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Where it speaks, and the figures."""
        figure = np.asarray(self.measure(facts), float)
        with np.errstate(invalid="ignore"):
            found = _COMPARE[self.compare](figure, self.threshold) & ~np.isnan(figure)
        return (found if self.when is None else found & self.when(facts)), figure


def _kernel_share(facts: RuleInputs) -> NDArray[np.float64]:
    """Percent of the wall time that kernels ran: of a column `wall_ms`, or what `bwprof.measure` says in `reason`."""
    own = 100 * facts.ratio("time_ms", "wall_ms")
    return np.where(np.isnan(own), 100 - values.waiting_share(facts.data), own)


def _doubt(name: str) -> BottleneckRule:
    return BottleneckRule(
        name,
        f"flag {name}",
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

# In the order in which a row's issue is looked for: what makes its figures doubtful first, causes before symptoms.
RULES: tuple[BottleneckRule, ...] = (
    _doubt("throttled"),
    _doubt("noisy"),
    BottleneckRule(
        "spills",
        "local-memory sectors > 0",
        ">",
        0.0,
        lambda facts: facts.column("local_sectors"),
        "registers spilled to memory",
        "{:.0f} sectors of local memory",
        _OCCUPANCY_FIXES,
        needs="--metrics sectors, or column local_sectors",
    ),
    BottleneckRule(
        "host_bound",
        "kernel time < 90 % of wall time",
        "<",
        90.0,
        _kernel_share,
        "the GPU waits for the host",
        "kernels run {:.0f} % of the time",
        ("a CUDA graph", "fewer launches"),
        needs="bwprof.measure of a call of several kernels",
    ),
    BottleneckRule(
        "latency",
        "limiter latency, or flag near_timer_floor",
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
        "load_efficiency < 50 %",
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
        needs="column load_efficiency (ncu: smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct)",
    ),
    BottleneckRule(
        "bank_conflicts",
        "bank_conflicts / shared_wavefronts > 10 %",
        ">",
        10.0,
        lambda facts: 100 * facts.ratio("bank_conflicts", "shared_wavefronts"),
        "bank conflicts in shared memory",
        "{:.0f} % of the wavefronts are conflicts",
        ("pad [M][K+1]", "XOR swizzle", "reorder"),
        needs="--metrics bank_conflicts",
    ),
    BottleneckRule(
        "materialised",
        "algorithmic / compulsory bytes > 1.5",
        ">",
        1.5,
        lambda facts: values.stored_ratio(facts.data),
        "intermediates go through memory",
        "{:.3g}x the compulsory bytes",
        ("fuse (flash instead of unfused)",),
    ),
    BottleneckRule(
        "extra_traffic",
        "traffic_ratio > 1.1",
        ">",
        1.1,
        lambda facts: facts.column("traffic_ratio"),
        "more traffic than it should need",
        "{:.2f}x the bytes that it needs came from or went to DRAM",
        ("cache or tile", "larger tiles", "keep what is reused in registers"),
        needs="--counters",
    ),
    BottleneckRule(
        "low_bytes_in_flight",
        "memory, pct_attainable < 70, long_scoreboard >= 50 % of stalls",
        ">=",
        50.0,
        lambda facts: values.stall_share(facts.data, "long_scoreboard"),
        "too few bytes in flight",
        "{:.0f} % of the stalls wait for memory",
        ("more loads in flight", "larger blocks", "prefetch", "__restrict__", "drop redundant reads"),
        needs="--metrics stalls",
        when=lambda facts: facts.by_memory & (values.pct_attained(facts.data) < 70),
    ),
    BottleneckRule(
        "compute",
        "limiter compute",
        ">",
        0.0,
        lambda facts: facts.limits.by("compute").astype(float),
        "arithmetic limits",
        "right of the ridge",
        ("tensor cores", "more ILP", "less divergence"),
    ),
    BottleneckRule(
        "low_occupancy",
        "occupancy < 50 %, not at the memory roof",
        "<",
        50.0,
        lambda facts: facts.column("occupancy_pct"),
        "low occupancy",
        "occupancy {:.0f} %",
        _OCCUPANCY_FIXES,
        needs="--metrics occupancy",
        when=lambda facts: ~facts.at_memory_roof,
    ),
    BottleneckRule(
        "narrow_slower",
        "bandwidth_vs_fp32 < 0.9, limited by neither arithmetic nor latency",
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
        "limiter memory, pct_attainable >= 90",
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
        "time > 3 x predicted",
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
    """The rule of an id."""
    return next(found for found in RULES if found.id == name)


def table() -> pd.DataFrame:
    """The rules as a frame: id, condition, threshold, issue, fixes, needs.

    Examples
    --------
    >>> float(table().set_index("id").loc["bank_conflicts", "threshold"])
    10.0
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "id": rule.id,
                "condition": rule.condition,
                "threshold": rule.threshold,
                "issue": rule.issue,
                "fixes": "; ".join(rule.fixes),
                "needs": rule.needs,
            }
            for rule in RULES
        ]
    )
