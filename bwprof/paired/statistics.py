"""What turns say: the ratio of two sides' times, its interval, and the verdict. Numbers only, no device here.

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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

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


def fails(ratio: float, verdict: str, limit: float) -> bool:
    """Whether B is slower than A by more than a limit, a fraction, as far as can be told."""
    return verdict == SLOWER and ratio > 1 + limit


def may_fail(high: float | None, verdict: str, limit: float) -> bool:
    """Whether B, of which it is undecided what it is, may be slower than A by more than a limit, a fraction.

    `high` is the interval's upper end; None where there is none.

    Examples
    --------
    >>> may_fail(1.03, UNDECIDED, 0.02), may_fail(1.015, UNDECIDED, 0.02), may_fail(None, UNDECIDED, 0.02)
    (True, False, True)
    """
    return verdict == UNDECIDED and (high is None or high > 1 + limit)
