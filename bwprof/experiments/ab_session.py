"""A comparison's session: two sides in turn, until their ratio is known well enough or the time is up. No device here.

What other programs do to a sample only ever makes it longer, so that of the samples that a side took in a block the
lower quartile stands for its time: on a busy machine it scatters several times less than the median does (J. Chen and
J. Revels, Robust benchmarking in noisy environments, 2016, arXiv:1608.04295).

A block is A B B A or B A A B, by a coin. What drifts steadily cancels within it; and because the coin falls whatever
the machine does, the logarithm of the ratio that a block shows is, where the sides do not differ, as likely d as -d,
however the noise of one block resembles that of the next: the argument is the randomisation, not the independence of
the blocks (R. A. Fisher, The Design of Experiments, 1935, on Darwin's pairs). So blocks are the units, never samples
or turns; and where the sides get fresh buffers now and then, which by luck lie well or badly in the caches for as long
as they are kept, the unit is all that was measured between two renewals.

From units that are symmetric about the true value, and nothing else, follow Wilcoxon's signed ranks: the estimate is
the median of all pairs' means (J. L. Hodges and E. L. Lehmann, Annals of Mathematical Statistics 34, 1963), and the
interval goes as far as the ranks allow (J. W. Tukey, 1949; M. Hollander, D. A. Wolfe and E. Chicken, Nonparametric
Statistical Methods, 2014, section 3.3). A single disturbed block cannot move it, as it would a mean.
"""

from __future__ import annotations

import math
import random
import statistics as numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Any, TypeVar

from bwprof.experiments.ab_sides import ABSide, SideError, SideInfo

# Of the interval: at 95 % two of forty comparisons of equal sides would be said to differ; so, hardly ever two of them.
LEVEL = 0.995

LEAST_UNITS = 9  # fewer cannot tell anything at that level: 2 / 2^9 is the first that is below 0.5 %

DEFAULT_GATE = 0.01  # the smallest difference worth a word: other addresses alone make so much

_EXACT = 60  # units; the normal distribution serves beyond

_MOST = 1500  # units that are looked at one by one: their pairs' means are a million

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"


@dataclass(frozen=True, slots=True)
class Ratio:
    """B's time divided by A's, and between what it lies; 0 and infinity where there are too few units to tell."""

    value: float
    low: float
    high: float
    units: int

    @property
    def half_width(self) -> float:
        """How far the ratio may be off, as a fraction of it: half of the interval, in logarithms."""
        return math.inf if self.low <= 0 or math.isinf(self.high) else math.log(self.high / self.low) / 2


def time_of(samples_ns: Sequence[float]) -> float:
    """A side's time in a block: the lower quartile of its samples, one of them.

    Examples
    --------
    >>> time_of([9.0, 2.0, 1.0, 3.0, 40.0, 5.0])
    2.0
    """
    return sorted(samples_ns)[(len(samples_ns) - 1) // 4]


def ratio_of(units: Sequence[float]) -> Ratio:
    """The ratio that units, the logarithms of ratios, stand for.

    Examples
    --------
    >>> found = ratio_of([0.01, 0.03, 0.02, 0.02, 0.02, 0.01, 0.03, 0.02, 0.02])
    >>> f"{math.log(found.value):.3f} {math.log(found.low):.3f} {math.log(found.high):.3f}"
    '0.020 0.010 0.030'
    """
    import numpy as np

    values = np.asarray(units, dtype=float)
    count = len(values)
    if not count:
        return Ratio(math.nan, 0.0, math.inf, 0)
    if len(values) > _MOST:  # neighbours become one: a longer block is a unit as well
        size = -(-len(values) // _MOST)
        values = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
    first, second = np.triu_indices(len(values))
    means = np.sort((values[first] + values[second]) / 2)
    middle = float(np.median(means))
    dropped = _dropped(len(values), LEVEL)
    if not dropped:
        return Ratio(math.exp(middle), 0.0, math.inf, count)
    return Ratio(math.exp(middle), math.exp(means[dropped - 1]), math.exp(means[-dropped]), count)


@cache
def _dropped(count: int, level: float) -> int:
    """The interval ends at the so-manieth smallest and largest of the pairs' means; 0 where there are too few."""
    error = 1 - level
    if count > _EXACT:
        spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return max(1, math.floor(count * (count + 1) / 4 - NormalDist().inv_cdf(1 - error / 2) * spread))
    ways = [1] + [0] * (count * (count + 1) // 2)  # in which a sum of some of the ranks 1 .. count comes about
    for rank in range(1, count + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    below = found = 0
    for total, ways_of in enumerate(ways):
        below += ways_of
        if 2 * below > error * 2**count:
            break
        found = total + 1
    return found


def verdict_of(ratio: Ratio, gate: float = DEFAULT_GATE) -> str:
    """What is said of B: faster or slower than A, the same, or undecided.

    B is slower where the ratio is above 1 + gate and the whole interval above 1 + gate / 2; faster likewise. The
    interval knows what comes and goes; half the gate is for what stays as long as a comparison lasts, and no order of
    turns can cancel: the addresses that one process got. It is the same where the whole interval is within the gate.
    Anything else needs more time.

    Examples
    --------
    >>> verdict_of(Ratio(1.02, 1.015, 1.025, 90)), verdict_of(Ratio(0.98, 0.97, 0.99, 90))
    ('slower', 'faster')
    >>> verdict_of(Ratio(1.001, 0.998, 1.004, 90)), verdict_of(Ratio(1.03, 0.97, 1.1, 90))
    ('same', 'undecided')
    >>> verdict_of(Ratio(1.004, 1.002, 1.006, 90)), verdict_of(Ratio(1.009, 1.005, 1.013, 90))
    ('same', 'undecided')
    >>> verdict_of(Ratio(1.012, 1.002, 1.022, 90))
    'undecided'
    """
    apart = 1 + gate / 2
    if ratio.low > apart and ratio.value > 1 + gate:
        return SLOWER
    if ratio.high < 1 / apart and ratio.value < 1 / (1 + gate):
        return FASTER
    if ratio.low > 1 / (1 + gate) and ratio.high < 1 + gate:
        return SAME
    return UNDECIDED


def exceeds_limit(ratio: float, verdict: str, limit: float) -> bool:
    """Whether B is slower than A by more than a limit, a fraction, as far as can be told."""
    return verdict == SLOWER and ratio > 1 + limit


def may_exceed_limit(high: float | None, verdict: str, limit: float) -> bool:
    """Whether B, of which it is undecided what it is, may be slower than A by more than a limit, a fraction.

    `high` is the interval's upper end; None where there is none.

    Examples
    --------
    >>> may_fail(1.03, UNDECIDED, 0.02), may_fail(1.015, UNDECIDED, 0.02), may_fail(None, UNDECIDED, 0.02)
    (True, False, True)
    """
    return verdict == UNDECIDED and (high is None or high > 1 + limit)


NAMES = ("A", "B")

PRECISE, OUT_OF_TIME, INTERRUPTED, FAILED = "precise", "time", "interrupted", "failed"

DEFAULT_REL_CI = 0.005

DEFAULT_SECONDS = 30.0

_ORDERS = ((0, 1, 1, 0), (1, 0, 0, 1))

# Samples of a turn, for samples no longer than so many ns: short turns let what drifts touch both sides alike.
_SAMPLES = ((4, 10e6), (2, 100e6))

_LOOKS = 1.05  # units are looked at when there are so many times more: a look at a thousand takes a while

_RENEWALS = 24  # at least, in the time there is


@dataclass(frozen=True, slots=True)
class StopRule:
    """When to stop, what is a difference, and the coin's seed."""

    rel_ci: float = DEFAULT_REL_CI
    max_seconds: float = DEFAULT_SECONDS
    gate: float = DEFAULT_GATE
    seed: int = 0


@dataclass(slots=True)
class ABMeasurement:
    """What turns have told so far.

    `units` are logarithms of ratios, `times` the sides' ns of each block, `orders` its turns ("ABBA"). `stopped` says
    why no more were taken, `reason` in words where that needs some; `failed` is the side that could not go on.
    """

    how: StopRule
    opened: list[SideInfo] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    times: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    units: list[float] = field(default_factory=list)
    renewals: int = 0
    seconds: float = 0.0
    stopped: str = ""
    reason: str = ""
    failed: int | None = None
    cause: BaseException | None = None

    @property
    def ratio(self) -> Ratio:
        """B's time over A's."""
        return ratio_of(self.units)

    @property
    def pairs(self) -> int:
        """Turns of either side."""
        return 2 * len(self.orders)


_T = TypeVar("_T")


def Comparison(
    sides: Sequence[ABSide],
    how: StopRule,
    *,
    into: ABMeasurement,
    backend: str = "",
    later_timer: Callable[[str, str, str], str] = lambda _one, other, _backend: other,
    check: Callable[[], object] = lambda: None,
    may_compare: Callable[[Sequence[SideInfo]], None] = lambda _opened: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure two sides in turns; `into` gets what they show as they show it, so that whatever ends this keeps it.

    Parameters
    ----------
    sides : sequence of two Side
        Only one is ever asked at a time.
    check : callable
        Called before each turn; what it raises ends the comparison.
    may_compare : callable
        Gets what both sides say of themselves before any turn; SideError where the two do different work.
    """
    try:
        _Comparison(sides, how, into, check, clock).run(backend, later_timer, may_compare)
    except _StoppedError as stopped:
        into.stopped, into.reason = FAILED, str(stopped)
        into.failed, into.cause = stopped.side, stopped.__cause__
    finally:
        if not into.stopped:
            into.stopped = INTERRUPTED


class _StoppedError(Exception):
    """A side could not go on."""

    def __init__(self, side: int | None, text: str) -> None:
        super().__init__(text if side is None else f"side {NAMES[side]}: {text}")
        self.side = side


class _Comparison:
    """The two sides, the coin and the clock."""

    def __init__(
        self,
        sides: Sequence[ABSide],
        how: StopRule,
        into: ABMeasurement,
        check: Callable[[], object],
        clock: Callable[[], float],
    ) -> None:
        self._sides, self._how, self._into, self._coin = sides, how, into, random.Random(how.seed)
        self._check, self._clock = check, clock
        self._next_look = LEAST_UNITS
        self._timer: str | None = None
        self._samples = 1

    def run(
        self,
        backend: str,
        later_timer: Callable[[str, str, str], str],
        may_compare: Callable[[Sequence[SideInfo]], None],
    ) -> None:
        """All of it."""
        self._into.opened = self._open(self._order()[:2])
        try:
            may_compare(self._into.opened)
        except SideError as error:
            raise _StoppedError(None, str(error)) from None
        timers = [one.timer for one in self._into.opened]
        if timers[0] != timers[1]:
            self._timer = later_timer(timers[0], timers[1], backend)
            self._into.opened = self._open(self._order()[:2])
            timers = [one.timer for one in self._into.opened]
            if timers[0] != timers[1]:
                raise _StoppedError(None, f"A is timed by {timers[0]} and B by {timers[1]}: times of two timers differ")
        longest = max(one.sample_ns for one in self._into.opened)
        self._samples = next((count for count, limit in _SAMPLES if longest <= limit), 1)
        renewable = any(one.renewable for one in self._into.opened)
        started = self._clock()
        opening = 0.0
        while not self._into.stopped:
            begun = self._clock()
            if renewable and self._into.renewals:
                self._open(self._order()[:2])
                opening = self._clock() - begun
            self._into.renewals += renewable or not self._into.renewals
            self._unit(started, opening if renewable else 0.0)
            self._look(started)

    def _order(self) -> tuple[int, ...]:
        return _ORDERS[self._coin.getrandbits(1)]

    def _open(self, order: Sequence[int]) -> list[SideInfo]:
        found: dict[int, SideInfo] = {}
        for number in order:  # both are closed first: new buffers need not fit beside the old ones
            self._asked(number, lambda side: side.close())
        for number in order:
            self._check()
            found[number] = self._asked(number, lambda side: side.open(self._timer))
        return [found[0], found[1]]

    def _asked(self, number: int, question: Callable[[ABSide], _T]) -> _T:
        try:
            return question(self._sides[number])
        except SideError as error:
            raise _StoppedError(number, str(error)) from error.__cause__

    def _unit(self, started: float, opening: float) -> None:
        """Blocks on the same buffers, for about as long as it took to open them; their median is a unit."""
        until = self._clock() + min(opening, self._how.max_seconds / _RENEWALS)
        blocks: list[float] = []
        while True:
            blocks.append(self._block())
            self._into.seconds = self._clock() - started
            if self._clock() >= until:
                break
        self._into.units.append(numbers.median(blocks))

    def _block(self) -> float:
        """Four turns; the logarithm of B's time over A's."""
        order = self._order()
        samples: tuple[list[float], list[float]] = ([], [])
        for number in order:
            self._check()
            samples[number].extend(self._asked(number, lambda side: side.turn(self._samples)))
        times = [time_of(one) for one in samples]
        if not all(found > 0 and math.isfinite(found) for found in times):
            raise _StoppedError(None, "a launch is shorter than what the timer can tell")
        self._into.orders.append("".join(NAMES[number] for number in order))
        for kept, found in zip(self._into.times, times, strict=True):
            kept.append(found)
        return math.log(times[1] / times[0])

    def _look(self, started: float) -> None:
        """Whether to stop."""
        over = self._clock() - started >= self._how.max_seconds
        count = len(self._into.units)
        if count >= self._next_look:
            self._next_look = max(count + 1, int(count * _LOOKS))
            if self._into.ratio.half_width <= math.log1p(self._how.rel_ci):
                self._into.stopped = PRECISE
                return
        if over:
            self._into.stopped = OUT_OF_TIME


def plain(found: ABMeasurement) -> dict[str, Any]:
    """The units and orders, for a file."""
    return {
        "log_ratios": list(found.units),
        "orders": list(found.orders),
        "block_ns": [list(one) for one in found.times],
    }
