"""An A/B comparison: measure two sides in turn until the ratio of their times is precise, or the time is up.

Other programs only make a sample longer, so a side's time in a block is the lower quartile of its samples. On a busy
machine it scatters several times less than the median (J. Chen and J. Revels, Robust benchmarking in noisy
environments, 2016, arXiv:1608.04295).

A block is A B B A or B A A B, by a coin. Linear drift cancels within a block. If the sides are equal, the coin makes
the logarithm of a block's ratio as likely d as -d, even where the noise of neighboring blocks is correlated: the
argument is randomization, not independence (R. A. Fisher, The Design of Experiments, 1935, on Darwin's pairs). So the
units of the statistics are blocks, never samples. Buffers lie well or badly in the caches for as long as they live.
Where sides get new buffers, a unit is the median of all blocks between two renewals.

The units are symmetric about the true value, which is all that Wilcoxon's signed ranks assume. The estimate is the
median of all pairs' means (J. L. Hodges and E. L. Lehmann, Annals of Mathematical Statistics 34, 1963). The interval
follows from the ranks (J. W. Tukey, 1949; M. Hollander, D. A. Wolfe and E. Chicken, Nonparametric Statistical Methods,
2014, section 3.3). One disturbed block cannot move it as it would move a mean.
"""

from __future__ import annotations

import math
import random
import statistics as numbers
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist

from bwprof.experiments.ab_sides import ABSide, SideError, SideInfo

# Of the interval. At 95 %, two of forty comparisons of equal sides would differ; at 99.5 %, hardly ever two.
LEVEL = 0.995

LEAST_UNITS = 9  # 2 / 2^9 is the first probability below 0.5 %: fewer units give no interval at that level

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
PRECISE, OUT_OF_TIME, INTERRUPTED, FAILED = "precise", "time", "interrupted", "failed"
NAMES = ("A", "B")

DEFAULT_REL_CI = 0.005
DEFAULT_SECONDS = 30.0
DEFAULT_GATE = 0.01  # different addresses alone can make such a difference

_EXACT = 60  # units; above, the normal distribution is used
_MAX_UNITS = 1500  # of which all pairs are formed: a million means
_ORDERS = ((0, 1, 1, 0), (1, 0, 0, 1))
_SAMPLES = ((4, 10e6), (2, 100e6))  # of a turn, by the longest sample in ns: short turns let drift affect both sides
_CHECK_FACTOR = 1.05  # the ratio is computed again when there are so many times more units
_RENEWALS = 24  # at least, within the time limit


@dataclass(frozen=True, slots=True)
class Ratio:
    """B's time divided by A's, with its interval: 0 to infinity if there are too few units."""

    value: float
    low: float
    high: float
    units: int

    @property
    def half_width(self) -> float:
        """Half of the interval, in logarithms: the relative uncertainty of the ratio."""
        return math.inf if self.low <= 0 or math.isinf(self.high) else math.log(self.high / self.low) / 2


def time_of(samples_ns: Sequence[float]) -> float:
    """Return a side's time in a block: the lower quartile of its samples, which is one of them."""
    return sorted(samples_ns)[(len(samples_ns) - 1) // 4]


def ratio_of(units: Sequence[float]) -> Ratio:
    """Estimate the ratio from units, which are logarithms of ratios."""
    import numpy as np

    values = np.asarray(units, dtype=float)
    count = len(values)
    if not count:
        return Ratio(math.nan, 0.0, math.inf, 0)
    if count > _MAX_UNITS:  # merge neighbors: a longer block is a unit, too
        size = -(-count // _MAX_UNITS)
        values = values[: count // size * size].reshape(-1, size).mean(axis=1)
    first, second = np.triu_indices(len(values))
    means = np.sort((values[first] + values[second]) / 2)
    middle = float(np.median(means))
    dropped = _dropped(len(values), LEVEL)
    if not dropped:
        return Ratio(math.exp(middle), 0.0, math.inf, count)
    return Ratio(math.exp(middle), math.exp(means[dropped - 1]), math.exp(means[-dropped]), count)


@cache
def _dropped(count: int, level: float) -> int:
    """Return the rank, from either end, of the pairs' mean at which the interval ends; 0 for too few units."""
    import numpy as np

    error = 1 - level
    if count > _EXACT:
        spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return max(1, math.floor(count * (count + 1) / 4 - NormalDist().inv_cdf(1 - error / 2) * spread))
    ways = np.ones(1, dtype=object)  # to form each sum from some of the ranks 1 .. count, exactly
    for rank in range(1, count + 1):
        ways = np.append(ways, [0] * rank) + np.append([0] * rank, ways)
    return int(np.count_nonzero(2 * np.cumsum(ways) <= error * 2**count))


def verdict_of(ratio: Ratio, gate: float = DEFAULT_GATE) -> str:
    """Judge B: faster or slower than A, the same, or undecided.

    B is slower if the ratio is above 1 + gate and the whole interval above 1 + gate / 2; faster likewise. The interval
    covers noise that changes during a comparison; half of the gate covers what does not, such as the addresses that a
    process got. B is the same if the whole interval is within the gate.
    """
    apart = 1 + gate / 2
    if ratio.low > apart and ratio.value > 1 + gate:
        return SLOWER
    if ratio.high < 1 / apart and ratio.value < 1 / (1 + gate):
        return FASTER
    if ratio.low > 1 / (1 + gate) and ratio.high < 1 + gate:
        return SAME
    return UNDECIDED


def exceeds_limit(ratio: float | None, high: float | None, verdict: str, limit: float) -> bool | None:
    """Return whether B is slower than A by more than a limit, a fraction; None: it is undecided, and may be."""
    if verdict == UNDECIDED:
        return None if high is None or high > 1 + limit else False
    return verdict == SLOWER and ratio is not None and ratio > 1 + limit


@dataclass(frozen=True, slots=True)
class StopRule:
    """The precision and time at which to stop, the smallest relevant difference, and the coin's seed."""

    rel_ci: float = DEFAULT_REL_CI
    max_seconds: float = DEFAULT_SECONDS
    gate: float = DEFAULT_GATE
    seed: int = 0


@dataclass
class Comparison:
    """Two sides, one of which works at a time, and their turns so far; an early end loses nothing.

    `later_timer` chooses one of two timers for both sides; `check` is called before each turn, and an exception of it
    ends the comparison; `check_pair` gets both sides' facts before any turn, and raises SideError if they do different
    work.

    `units` are logarithms of ratios, `times` both sides' ns of each block, `orders` the blocks' turns ("ABBA").
    `stopped` is the reason for the end, `reason` its text; `failed` is the side that could not continue.
    """

    sides: Sequence[ABSide]
    rule: StopRule
    later_timer: Callable[[str, str], str] = max
    check: Callable[[], object] = lambda: None
    check_pair: Callable[[Sequence[SideInfo]], None] = lambda _opened: None
    clock: Callable[[], float] = time.monotonic
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

    def __post_init__(self) -> None:
        self._coin = random.Random(self.rule.seed)
        self._next_check = LEAST_UNITS
        self._timer: str | None = None
        self._samples = 1
        self._started = 0.0
        self._working: int | None = None  # the side that works

    @property
    def ratio(self) -> Ratio:
        return ratio_of(self.units)

    @property
    def pairs(self) -> int:
        """Turns of either side."""
        return 2 * len(self.orders)

    def run(self) -> None:
        """Measure until the stop rule applies or a side fails."""
        try:
            self._run()
        except SideError as error:
            side = "" if self._working is None else f"side {NAMES[self._working]}: "
            self.stopped, self.reason = FAILED, f"{side}{error}"
            self.failed, self.cause = self._working, error.__cause__
        finally:
            self.stopped = self.stopped or INTERRUPTED

    def _run(self) -> None:
        self._open()
        self.check_pair(self.opened)
        a, b = (info.timer for info in self.opened)
        if a != b:
            self._timer = self.later_timer(a, b)
            self._open()
            a, b = (info.timer for info in self.opened)
            if a != b:
                raise SideError(f"A is timed by {a} and B by {b}: times of two timers differ")
        longest = max(info.sample_ns for info in self.opened)
        self._samples = next((count for count, limit in _SAMPLES if longest <= limit), 1)
        renewable = any(info.renewable for info in self.opened)
        self._started = self.clock()
        opening = 0.0
        while not self.stopped:
            begun = self.clock()
            if renewable and self.renewals:
                self._open()
                opening = self.clock() - begun
            self.renewals += renewable or not self.renewals
            self._measure_unit(opening)
            self._check_stop()

    def _order(self) -> tuple[int, ...]:
        return _ORDERS[self._coin.getrandbits(1)]

    @contextmanager
    def _side(self, number: int) -> Iterator[ABSide]:
        self._working = number
        yield self.sides[number]
        self._working = None

    def _open(self) -> None:
        order = self._order()[:2]
        opened: dict[int, SideInfo] = {}
        for number in order:  # close both first: new buffers need not fit beside the old ones
            with self._side(number) as side:
                side.close()
        for number in order:
            self.check()
            with self._side(number) as side:
                opened[number] = side.open(self._timer)
        self.opened = [opened[0], opened[1]]

    def _measure_unit(self, opening: float) -> None:
        """Measure blocks on the same buffers for about as long as opening took; their median is a unit."""
        until = self.clock() + min(opening, self.rule.max_seconds / _RENEWALS)
        blocks = [self._measure_block()]
        while self.clock() < until:
            blocks.append(self._measure_block())
        self.units.append(numbers.median(blocks))

    def _measure_block(self) -> float:
        """Measure four turns; return the logarithm of B's time over A's."""
        order = self._order()
        samples: tuple[list[float], list[float]] = ([], [])
        for number in order:
            self.check()
            with self._side(number) as side:
                samples[number].extend(side.turn(self._samples))
        times = [time_of(side) for side in samples]
        if not all(ns > 0 and math.isfinite(ns) for ns in times):
            raise SideError("a launch is shorter than the timer's resolution")
        self.orders.append("".join(NAMES[number] for number in order))
        for stored, ns in zip(self.times, times, strict=True):
            stored.append(ns)
        self.seconds = self.clock() - self._started
        return math.log(times[1] / times[0])

    def _check_stop(self) -> None:
        count = len(self.units)
        over = self.clock() - self._started >= self.rule.max_seconds
        if count >= self._next_check:
            self._next_check = max(count + 1, int(count * _CHECK_FACTOR))
            if self.ratio.half_width <= math.log1p(self.rule.rel_ci):
                self.stopped = PRECISE
        if over and not self.stopped:
            self.stopped = OUT_OF_TIME
