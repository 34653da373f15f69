"""What a hypothesis is, and how its figures become a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bwprof.analysis.diagnosis.figures import RowFigures, Share

SUPPORTED, REFUTED, CANNOT_TELL = "supported", "refuted", "cannot tell"

_CREDIBLE = 1e4  # times as fast: a figure of more says that it is nearly all of the time, not what would be left

_DOUBTED = 1.1  # by how much further a figure must lie beyond its threshold where the row doubts itself


class Band(NamedTuple):
    """From where on a figure supports, and up to where it refutes; between the two it says neither."""

    yes: float
    no: float

    def place(self, value: float, *, doubted: bool = False) -> str:
        """The verdict that a figure makes."""
        margin = _DOUBTED if doubted else 1.0
        rising = self.yes >= self.no
        yes, no = (self.yes * margin, self.no / margin) if rising else (self.yes / margin, self.no * margin)
        if (value >= yes) if rising else (value <= yes):
            return SUPPORTED
        if (value < no) if rising else (value > no):
            return REFUTED
        return CANNOT_TELL  # NaN, too


class Need(NamedTuple):
    """What would tell: the figure, bwprof's option for it ("" for none), the preset of `ncu_command` for it."""

    figure: str
    option: str
    preset: str

    @property
    def is_told(self) -> bool:
        """Whether anything tells it."""
        return bool(self.option or self.preset)

    @property
    def is_asked(self) -> bool:
        """Whether an option or a preset of ncu asks for it: not what only rows of another kind have."""
        return bool(self.preset) or self.option.startswith("--")

    def __str__(self) -> str:
        ways = filter(None, (self.option, f"ncu preset {self.preset}" if self.preset else ""))
        return f"{self.figure} ({' or '.join(ways) or 'no counter of this device is read for it'})"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with what tells it; `gain`: how many times as fast it would be at most, NaN where that is not known."""

    verdict: str
    evidence: str
    gain: float = math.nan
    needs: tuple[Need, ...] = ()
    follows: bool = False  # from another cause that is supported, too: it comes behind that


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One hypothesis: the columns that are its evidence, its threshold and why it lies there, what helps.

    `said` completes "limited by ...". `judge` makes the verdict of a row's figures.
    """

    name: str
    said: str
    columns: tuple[str, ...]
    threshold: str
    because: str
    fixes: tuple[str, ...]
    judge: Callable[[RowFigures], Judgement]


# Near a roof, and not: of a stream that was measured, and of theory, of which plain streams reach 85 to 95 %.
NEAR_STREAM = Band(80.0, 75.0)

NEAR_PEAK = Band(75.0, 60.0)

# Of the best library's rate, of the data sheet's (of which the best library reaches 70 %), and of a pipe's cycles.
NEAR_BEST_RATE = Band(80.0, 60.0)

NEAR_PEAK_RATE = Band(65.0, 45.0)

NEAR_PIPE = Band(70.0, 50.0)

WAITING = Band(50.0, 40.0)  # of the stalls: what most warps wait for

STALLS = Need("stall_reasons", "--metrics stalls", "stalls")

BANDWIDTH = Need("DRAM bytes and time", "--counters, with roofs", "memory")

ISSUE = Need("issue_pct", "--metrics sm", "compute")

PIPES = Need("tensor_pct, fma_pct, sm_pct", "--metrics tensor,fma,sm", "compute")


def support(evidence: str, gain: float = math.nan) -> Judgement:
    """It holds."""
    return Judgement(SUPPORTED, evidence, max(1.0, gain) if gain <= _CREDIBLE else math.nan)


def refute(evidence: str) -> Judgement:
    """It does not."""
    return Judgement(REFUTED, evidence)


def leave_open(evidence: str, *needs: Need) -> Judgement:
    """Nobody can tell, or not yet."""
    return Judgement(CANNOT_TELL, evidence, needs=needs)


def near_roof(share: Share, measured: Band, theory: Band, *, doubted: bool = False) -> str:
    """Whether a share of a roof is near it; one far beyond it tells nothing."""
    if share.contradicts:
        return CANNOT_TELL
    return (measured if share.measured else theory).place(share.pct, doubted=doubted)


def near_memory(figures: RowFigures, *, doubted: bool = False) -> str:
    """Whether DRAM is near its roof."""
    return near_roof(figures.memory, NEAR_STREAM, NEAR_PEAK, doubted=doubted)


def near_rate(figures: RowFigures, *, doubted: bool = False) -> str:
    """Whether its FLOPs are near the arithmetic roof."""
    return near_roof(figures.arithmetic, NEAR_BEST_RATE, NEAR_PEAK_RATE, doubted=doubted)


def busiest_pipe(figures: RowFigures) -> float:
    """How busy the busiest arithmetic pipe is, in percent; 0 where none is known."""
    return next(iter(figures.pipes.values()), 0.0)


def at_roof(figures: RowFigures) -> str:
    """Which roof it is near, in words; "" where it is near none that is known."""
    if near_memory(figures) == SUPPORTED:
        return f"at the memory roof ({share_text(figures.memory)})"
    if near_rate(figures) == SUPPORTED:
        return f"at the arithmetic roof ({share_text(figures.arithmetic)})"
    busiest = next(iter(figures.pipes.items()), ("", 0.0))
    return f"the {busiest[0]} pipe is busy ({busiest[1]:.0f} %)" if busiest[1] >= NEAR_PIPE.yes else ""


def busy_part(figures: RowFigures) -> str:
    """Which part near the multiprocessors is busy, in words: more warps would only wait longer for it; "" for none."""
    parts = {
        "the L1 cache": figures.busy("l1_pct"),
        "shared memory": figures.shared_busy,
        "instruction issue": figures.busy("issue_pct"),
        "the L2 cache": figures.number("l2_pct"),
    }
    said, busy = max(parts.items(), key=lambda part: 0.0 if math.isnan(part[1]) else part[1])
    return f"{said} is busy ({busy:.0f} %)" if busy >= NEAR_PIPE.yes else ""


def share_text(share: Share) -> str:
    """'88 % of the theoretical bandwidth'."""
    return f"{share.pct:.3g} % {share.of}"


def gain_without(pct: float) -> float:
    """How many times as fast it would be at most without a share of its time."""
    return 100 / (100 - pct) if pct < 100 else math.nan
