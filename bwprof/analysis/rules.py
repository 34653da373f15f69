"""Compare figures with thresholds: the rules of `bottlenecks`, and the sixteen questions of the checklist.

Rules and questions are in `bwprof/data/rules.toml`.
"""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import registry
from bwprof.analysis import values
from bwprof.text.formatting import ShortFloat

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

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
        with np.errstate(invalid="ignore"):
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
    waiting = values.map_distinct(facts.data, "reason", values.parse_waiting, math.nan)
    return np.where(np.isnan(own), 100 - waiting, own)


def _over_predicted(facts: RuleInputs) -> NDArray[np.float64]:
    """Divide the time by the predicted one: the column, else the time at the roof and an empty launch."""
    time_ms, own = facts.column("time_ms"), facts.column("predicted_ms")
    at_roof = time_ms * facts.limits.pct_limit / 100 + np.nan_to_num(facts.column("timer_floor_us")) / 1e3
    predicted = np.where(own > 0, own, at_roof)
    return time_ms / np.where(predicted > 0, predicted, math.nan)


def _is_latency(facts: RuleInputs) -> NDArray[np.bool_]:
    flagged = values.has_flag(facts.data, "near_timer_floor")
    return facts.limits.by("latency") | values.is_word(facts.data, "bound", "latency") | flagged


def _misses_bandwidth(facts: RuleInputs) -> NDArray[np.bool_]:
    """Check which rows left of the ridge are below 70 % of a stream of their bytes."""
    kernel = facts.limits.by("kernel") & values.is_word(facts.data, "bound", "memory")
    return (facts.limits.by("memory") | kernel) & (values.pct_attained(facts.data) < 70)


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
    "pattern": lambda facts: values.map_distinct(facts.data, "operation", registry.is_pattern, missing=False),
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
    "by_memory": lambda facts: facts.limits.by("memory"),
    "misses_bandwidth": _misses_bandwidth,
    "off_memory_roof": lambda facts: ~(facts.limits.by("memory") & (facts.limits.pct_limit >= AT_ROOF)),
    "not_compute_nor_latency": lambda facts: ~facts.limits.by("compute", "latency"),
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
    when: str = ""

    def applies(self, facts: RuleInputs) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return where the rule matches, and the figures."""
        matches, figures = Condition.applies(self, facts)
        return (matches & Condition(self.when).applies(facts)[0] if self.when else matches), figures


@dataclass(frozen=True)
class CheckItem(Condition):
    """A question, which rows pass where its condition holds.

    `template` formats the figure, and `needs` is what measures it; `everywhere`: on a CPU, too.
    """

    group: str
    text: str
    needs: str
    template: str = ""
    everywhere: bool = False


_TABLES = tomllib.loads((Path(__file__).parents[1] / "data" / "rules.toml").read_text(encoding="utf-8"))

RULES = tuple(
    BottleneckRule(id=name, **{**rule, "fixes": tuple(rule["fixes"])}) for name, rule in _TABLES["rule"].items()
)
ITEMS = tuple(CheckItem(group=group, **check) for group, checks in _TABLES["check"].items() for check in checks)
COLUMNS = ("Group", "Item", "Result", "Figure")
PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"


def find_rule(name: str) -> BottleneckRule:
    """Find the rule of an id."""
    return next(rule for rule in RULES if rule.id == name)


AT_ROOF: float = find_rule("at_memory_roof").threshold  # percent of the roof that applies


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
