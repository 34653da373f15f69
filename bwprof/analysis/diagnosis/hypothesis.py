"""Define hypotheses, and turn figures into verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bwprof.analysis.diagnosis.figures import RowFigures, Share

SUPPORTED, REFUTED, CANNOT_TELL = "supported", "refuted", "cannot tell"
_CREDIBLE = 1e4  # a larger speed-up only says that nearly all of the time is lost
_DOUBTED = 1.1  # factor by which the figure of a flagged row must pass a threshold


class Band(NamedTuple):
    """Support from `yes` on, refute from `no` on; leave open what lies between."""

    yes: float
    no: float

    def place(self, value: float, *, doubted: bool = False) -> str:
        """Return the verdict on a figure; CANNOT_TELL on NaN."""
        margin = _DOUBTED if doubted else 1.0
        sign = 1 if self.yes >= self.no else -1
        yes, no = self.yes * margin**sign, self.no / margin**sign
        if sign * value >= sign * yes:
            return SUPPORTED
        return REFUTED if sign * value < sign * no else CANNOT_TELL


class Need(NamedTuple):
    """A missing figure, bwprof's option that measures it ("" for none), and the preset of `ncu_command` for it."""

    figure: str
    option: str
    preset: str

    @property
    def has_source(self) -> bool:
        """Whether an option, a preset or another kind of row provides it."""
        return bool(self.option or self.preset)

    @property
    def has_option(self) -> bool:
        """Whether an option or a preset provides it, not only another kind of row."""
        return bool(self.preset) or self.option.startswith("--")

    def __str__(self) -> str:
        ways = filter(None, (self.option, f"ncu preset {self.preset}" if self.preset else ""))
        return f"{self.figure} ({' or '.join(ways) or 'no counter of this device is read for it'})"


@dataclass(frozen=True, slots=True)
class Judgment:
    """A verdict and its evidence; `gain` is the speed-up at most, NaN where that is not known."""

    verdict: str
    evidence: str
    gain: float = math.nan
    needs: tuple[Need, ...] = ()
    follows: bool = False  # from another supported cause, behind which it is listed


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One hypothesis: its evidence columns, its threshold with the reason for it, and what helps.

    `cause` completes "limited by ...". `judge` returns the verdict on a row's figures.
    """

    name: str
    cause: str
    columns: tuple[str, ...]
    threshold: str
    because: str
    fixes: tuple[str, ...]
    judge: Callable[[RowFigures], Judgment]


# Near a roof, and far from it: of a measured stream, and of theory, of which plain streams reach 85 to 95 %.
NEAR_STREAM = Band(80.0, 75.0)
NEAR_PEAK = Band(75.0, 60.0)

# Of the best library's rate, of the data sheet's (of which the best library reaches 70 %), and of a pipe's cycles.
NEAR_BEST_RATE = Band(80.0, 60.0)
NEAR_PEAK_RATE = Band(65.0, 45.0)
NEAR_PIPE = Band(70.0, 50.0)
WAITING = Band(50.0, 40.0)  # percent of the stalls that have one reason
STALLS = Need("stall_reasons", "--metrics stalls", "stalls")
BANDWIDTH = Need("DRAM bytes and time", "--counters, with roofs", "memory")
ISSUE = Need("issue_pct", "--metrics sm", "compute")
PIPES = Need("tensor_pct, fma_pct, sm_pct", "--metrics tensor,fma,sm", "compute")


def support(evidence: str, gain: float = math.nan) -> Judgment:
    """Return a supported verdict."""
    return Judgment(SUPPORTED, evidence, max(1.0, gain) if gain <= _CREDIBLE else math.nan)


def refute(evidence: str) -> Judgment:
    """Return a refuted verdict."""
    return Judgment(REFUTED, evidence)


def leave_open(evidence: str, *needs: Need) -> Judgment:
    """Return an open verdict, with the figures that would settle it."""
    return Judgment(CANNOT_TELL, evidence, needs=needs)


def conclude(
    verdict: str, evidence: str, gain: float = math.nan, *, between: str = "", need: Need | None = None
) -> Judgment:
    """Turn the verdict of a band into a judgment; `between` and `need` describe an open one."""
    if verdict == SUPPORTED:
        return support(evidence, gain)
    return refute(evidence) if verdict == REFUTED else leave_open(evidence + between, *((need,) if need else ()))


def near_roof(share: Share, measured: Band, theory: Band, *, doubted: bool = False) -> str:
    """Judge whether a share of a roof is near it; a share far beyond the roof is no evidence."""
    if share.contradicts:
        return CANNOT_TELL
    return (measured if share.measured else theory).place(share.pct, doubted=doubted)


def near_memory(figures: RowFigures, *, doubted: bool = False) -> str:
    """Judge whether DRAM is near its roof."""
    return near_roof(figures.memory, NEAR_STREAM, NEAR_PEAK, doubted=doubted)


def near_rate(figures: RowFigures, *, doubted: bool = False) -> str:
    """Judge whether the FLOPs are near the arithmetic roof."""
    return near_roof(figures.arithmetic, NEAR_BEST_RATE, NEAR_PEAK_RATE, doubted=doubted)


def busiest_pipe(figures: RowFigures) -> tuple[str, float]:
    """Find the busiest arithmetic pipe and its percentage; ("", 0.0) where none is known."""
    return next(iter(figures.pipes.items()), ("", 0.0))


def at_roof(figures: RowFigures) -> str:
    """Name the roof that the row is near; "" for none."""
    if near_memory(figures) == SUPPORTED:
        return f"at the memory roof ({figures.memory.text})"
    if near_rate(figures) == SUPPORTED:
        return f"at the arithmetic roof ({figures.arithmetic.text})"
    pipe, pct = busiest_pipe(figures)
    return f"the {pipe} pipe is busy ({pct:.0f} %)" if pct >= NEAR_PIPE.yes else ""


def busy_part(figures: RowFigures) -> str:
    """Name the busy unit for which more warps would only wait longer; "" for none."""
    parts = {
        "the L1 cache": figures.busy("l1_pct"),
        "shared memory": figures.shared_busy,
        "instruction issue": figures.busy("issue_pct"),
        "the L2 cache": figures.number("l2_pct"),
    }
    name, pct = max(parts.items(), key=lambda part: 0.0 if math.isnan(part[1]) else part[1])
    return f"{name} is busy ({pct:.0f} %)" if pct >= NEAR_PIPE.yes else ""


def gain_without(pct: float) -> float:
    """Compute the speed-up at most without a percentage of the time."""
    return 100 / (100 - pct) if pct < 100 else math.nan
