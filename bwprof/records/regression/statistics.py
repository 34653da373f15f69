"""Statistics of a comparison: how far apart two measurements of a case must be to differ.

All values are logarithms of measured values: a process that is 1 % slower is so for any case. A single process does not
show how a case's medians vary between processes; a baseline of a few processes does. The variance of each case is
moderated by the variances of all cases (empirical Bayes: Smyth, "Linear models and empirical Bayes methods",
Statistical Applications in Genetics and Molecular Biology 3, 2004, sections 3 and 6.2), and a difference is tested by
Student's t with the degrees of freedom of both.

Where raw samples are known, they are compared quantile by quantile: the median of samples with two states jumps when
the states' shares change, and its interval spans both of them; a slower kernel moves every quantile by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist, fmean, median, variance
from typing import Any

LEAST = 0.01  # the smallest threshold, a fraction: other addresses, another day

# The smallest threshold of a single try. Noise is not normal: it has two states, or outliers of 1 to 2 %, which five
# processes may not have shown. With 1 % on two H200s 6 of 40 unchanged suites had a case slower at first and none the
# second time; with 2 % none had at first, and of 2 520 times taken 1.05 times as many were found.
LEAST_ONCE = 0.02
FAMILY_CHANCE = 0.05  # of any false alarm among all cases of a comparison
FOUND = 0.95  # the probability that the smallest detectable change is found
_SIDE = 0.975  # the upper end of a 95 % interval, as the rows have them
_FEWEST_CASES = 8  # that show what cases are like
_MOST_PRIOR = 10.0  # degrees of freedom: a case's own variation always counts
_LEAST_SD = 1e-4  # the timers' resolution: medians that agree to the last digit are no certainty
_NORMAL = NormalDist()
_MOST_FREEDOM = 1e4  # from here on Student's t is normal to 4 digits

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_ERRORS = 3.0  # standard errors of a quantile's rank, in either direction
_BLOCKS = (5, 10, 20)  # numbers of blocks of neighboring, similar samples; the largest error of them counts
_FEWEST = 20  # samples of a process
_AGREEMENT = 0.002  # between the samples' median and the row's time: others are samples of another measurement


@dataclass(frozen=True, slots=True)
class Spread:
    """A variance of logarithms, and its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class ChangeTest:
    """The test of a difference of logarithms: what it must exceed, and its standard error, of `freedom` degrees.

    `scatter` is the standard error of what decides, where that is not the difference itself.
    """

    threshold: float
    noise: float
    freedom: float
    between_processes: bool
    scatter: float | None = None

    def interval(self, difference: float) -> tuple[float, float]:
        """Return the 95 % interval of a measured difference."""
        reach = student_quantile(self.freedom, _SIDE) * self.noise
        return difference - reach, difference + reach

    def smallest(self, *, times: int = 1) -> float:
        """Return the smallest difference that each of so many `times` finds, with the probability `FOUND` in all.

        Each of two tries may miss half as often, which is cautious, as they share a baseline.
        """
        noise = self.noise if self.scatter is None else self.scatter
        return self.threshold + student_quantile(self.freedom, 1 - (1 - FOUND) / times) * noise

    def chance(self, change: float) -> float:
        """Return the probability that one try finds a change, a difference of logarithms, under normal noise."""
        noise = self.noise if self.scatter is None else self.scatter
        off = change - self.threshold
        return _NORMAL.cdf(off / noise) if 0 < noise < math.inf else float(off > 0)


def log_variance(values: Sequence[float]) -> Spread | None:
    """Return the variance of the logarithms of processes' medians; None for fewer than two."""
    if len(values) < 2:
        return None
    return Spread(max(variance([math.log(value) for value in values]), _LEAST_SD**2), len(values) - 1.0)


def pool_spreads(first: Spread | None, second: Spread | None) -> Spread | None:
    """Return the common variance of two sides."""
    if first is None or second is None:
        return first or second
    freedom = first.freedom + second.freedom
    return Spread((first.variance * first.freedom + second.variance * second.freedom) / freedom, freedom)


def fit_prior(spreads: Sequence[Spread]) -> Spread | None:
    """Fit the distribution of the cases' variances; None for too few cases.

    It is a scaled inverse chi-square, fitted by the moments of the variances' logarithms (Smyth 2004, section 6.2).
    """
    if len(spreads) < _FEWEST_CASES:
        return None
    halves = [spread.freedom / 2 for spread in spreads]
    logs = [math.log(one.variance) - _digamma(n) + math.log(n) for one, n in zip(spreads, halves, strict=True)]
    beyond = variance(logs) - fmean(map(_trigamma, halves))
    freedom = min(2 * _trigamma_inverse(beyond), _MOST_PRIOR) if beyond > 0 else _MOST_PRIOR
    return Spread(math.exp(fmean(logs) + _digamma(freedom / 2) - math.log(freedom / 2)), freedom)


def moderate_spread(own: Spread, prior: Spread | None) -> Spread:
    """Combine a case's variance with that of all cases, each weighted by its degrees of freedom.

    Of two or three processes all cases count for less, or a case that varies more than most would have too small a
    threshold (simulated: one case in thirty that varies 30 times as much, a false alarm in every fourth suite).
    """
    if prior is None:
        return own
    most = own.freedom * (own.freedom + 1) / 2
    return pool_spreads(own, Spread(prior.variance, min(prior.freedom, most))) or own


def chance_per_case(cases: int, family_chance: float = FAMILY_CHANCE) -> float:
    """Return the chance of a false alarm for each of `cases` tests, so that any has one with `family_chance`.

    Sidak, Journal of the American Statistical Association 62, 1967: exact for independent cases, else cautious.
    """
    return family_chance if cases <= 1 else -math.expm1(math.log1p(-family_chance) / cases)


def smallest_threshold(gate: float | None, tries: int) -> float:
    """Return the smallest threshold, a fraction: the gate, else by how many tries, or processes, decide."""
    return max(LEAST, gate) if gate is not None else LEAST if tries > 1 else LEAST_ONCE


def learned_test(
    variation: Spread, processes: tuple[int, int], within: float, chance: float, *, least: float = LEAST
) -> ChangeTest:
    """Make the test of a case whose variation between processes, `variation`, is known and moderated.

    `processes` are those of the baseline and the new side; `within` is the standard error of the new side's median
    within its process, `chance` that of a false alarm, `least` the smallest change that matters, a fraction.
    """
    base, new = processes
    noise = math.sqrt(variation.variance / base + max(variation.variance, within**2) / new)
    reach = student_quantile(variation.freedom, max(1 - chance, _SIDE)) * noise  # never within the interval
    return ChangeTest(max(math.log1p(least), reach), noise, variation.freedom, between_processes=True)


def plain_test(reaches: tuple[float, float], gate: float, chance: float = FAMILY_CHANCE) -> ChangeTest:
    """Make the test of two single processes: the rule of `bwprof.results.pairs`.

    `reaches` are how far their intervals reach towards each other; `gate` replaces the unknown variation.
    """
    noise = math.hypot(*reaches) / student_quantile(math.inf, _SIDE)
    reach = max(sum(reaches), student_quantile(math.inf, 1 - chance) * noise)
    return ChangeTest(max(math.log1p(gate), reach), noise, math.inf, between_processes=False)


def standard_error(low: float, high: float) -> float:
    """Return a logarithm's standard error from the ends of its value's 95 % interval; infinite where that is."""
    if not (0 < low <= high < math.inf):
        return math.inf
    return (math.log(high) - math.log(low)) / (2 * student_quantile(math.inf, _SIDE))


@lru_cache(maxsize=4096)
def student_quantile(freedom: float, chance: float) -> float:
    """Return the quantile of Student's t that is exceeded with the chance 1 - `chance`, for `chance` from 0.5 on."""
    if freedom > _MOST_FREEDOM:
        return _NORMAL.inv_cdf(chance)
    high = 1.0
    while _student_above(high, freedom) > 1 - chance:
        high *= 2
    return _bisect(lambda value: _student_above(value, freedom) > 1 - chance, 0.0 if high == 1 else high / 2, high)


def _bisect(is_below: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def _student_above(value: float, freedom: float) -> float:
    """Return the chance of more than `value`, not negative: Gauss' quadrature of sin^(freedom - 1) up to an angle."""
    import numpy as np  # here and below, so that commands start without it

    nodes, weights = _quadrature()
    end = math.atan2(math.sqrt(freedom), value)
    # The angle is a fourth power of the nodes, so that the integrand is smooth at 0.
    front = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return front * float(np.sum(weights * 4 * end * nodes**3 * np.sin(end * nodes**4) ** (freedom - 1)))


@cache
def _quadrature() -> tuple[Any, Any]:
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(200)
    return (nodes + 1) / 2, weights / 2


def _digamma(x: float) -> float:
    """Return the derivative of log gamma (Abramowitz and Stegun 6.3.5, 6.3.18)."""
    x, steps = x + 8, [x + step for step in range(8)]
    y = 1 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))
    return math.log(x) - 0.5 / x - series - sum(1 / step for step in steps)


def _trigamma(x: float) -> float:
    """Return the derivative of `_digamma` (Abramowitz and Stegun 6.4.6, 6.4.12)."""
    x, steps = x + 8, [x + step for step in range(8)]
    y = 1 / (x * x)
    series = y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30)))
    return 1 / x + y / 2 + series + sum(1 / step**2 for step in steps)


def _trigamma_inverse(value: float) -> float:
    """Return where trigamma, which falls, has a positive value, between 1e-8 and 1e8."""
    return math.exp(_bisect(lambda x: _trigamma(math.exp(x)) > value, math.log(1e-8), math.log(1e8)))


@dataclass(frozen=True, slots=True)
class Shift:
    """The logarithm of new / base time of each of `QUANTILES`, and the ends of its interval.

    `inside` is the median's error by the scatter within the processes; `reach` the error of the quantiles that decide.
    """

    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    inside: float
    reach: float

    @property
    def size(self) -> float:
        """The common change of the quantiles: their median."""
        return median(self.middle)

    def is_longer(self, least: float, sign: int = 1) -> bool:
        """Return whether low and high quantiles are longer (shorter) by more than `least`, and none contradicts."""
        low, high = (self.low, self.high) if sign > 0 else ([-end for end in self.high], [-end for end in self.low])
        return min(low[0], max(low[3], low[4])) > 0 and min(*high, sign * self.size) > least

    def may_exceed(self, limit: float) -> bool:
        """Return whether the median may have changed by more than `limit`, or a lower (not disturbed) quantile has."""
        moved = any(low > limit or high < -limit for low, high in zip(self.low[:2], self.high[:2], strict=True))
        return moved or abs(self.middle[2]) + self.inside > limit


def fits_time(samples: Sequence[float], time_ms: float) -> bool:
    """Return whether samples, in ns, are enough, and have a row's time as their median."""
    if len(samples) < _FEWEST or not all(0 < value < math.inf for value in (time_ms, *samples)):
        return False
    return abs(median(samples) / 1e6 / time_ms - 1) < _AGREEMENT


def measure_shift(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], prior: Spread | None, chance: float
) -> Shift | None:
    """Compare the samples, in their order, of two sides' processes; None where a side has no samples.

    `prior` is the variance between processes of all cases, `chance` that of a false alarm.
    """
    import numpy as np

    if not base or not new:
        return None
    sides = [np.stack([_quantiles(samples) for samples in side]) for side in (base, new)]
    (before, down, up), (after, later_down, later_up) = (_average(side) for side in sides)
    values = zip(sides[0][:, 0].T, sides[1][:, 0].T, strict=True)
    reaches = [_process_reach(old, later, prior, chance) for old, later in values]
    near, far = (np.array(ends) for ends in zip(*reaches, strict=True))
    middle = after - before
    low, high = np.hypot(up, later_down), np.hypot(down, later_up)
    first, last, off = middle - np.maximum(low, near), middle + np.maximum(high, near), np.maximum(low, far)
    inside, reach = max(low[2], high[2]), max(off[0], min(off[3], off[4]))
    return Shift(tuple(first.tolist()), tuple(middle.tolist()), tuple(last.tolist()), float(inside), float(reach))


def _quantiles(samples: Sequence[float]) -> Any:
    """Return the logarithms of the quantiles, and their errors downwards and upwards, which follow from the ranks'."""
    import numpy as np

    values = np.log(np.asarray(samples, dtype=float))
    count, ranks = len(values), np.array(QUANTILES)
    at = np.quantile(values, ranks)
    below = (values[:, None] < at) + 0.5 * (values[:, None] == at)
    error = np.sqrt(ranks * (1 - ranks) / count)
    for blocks in _BLOCKS:
        length = count // blocks
        shares = below[count - length * blocks :].reshape(blocks, length, -1).mean(axis=1)
        error = np.maximum(error, shares.std(axis=0, ddof=1) / math.sqrt(blocks))
    low, high = (np.quantile(values, np.clip(ranks + sign * _ERRORS * error, 0, 1)) for sign in (-1, 1))
    return np.stack([at, at - low, high - at])


def _average(side: Any) -> Any:
    return side[:, 0].mean(axis=0), *((side[:, end] ** 2).sum(axis=0) ** 0.5 / len(side) for end in (1, 2))


def _process_reach(base: Any, new: Any, prior: Spread | None, chance: float) -> tuple[float, float]:
    """Return how far apart variation between processes may take two means of a quantile: at 95 %, and at a chance."""
    own = pool_spreads(*(log_variance([math.exp(value) for value in values]) for values in (base, new)))
    if own is None:
        return 0.0, 0.0
    variation = moderate_spread(own, prior)
    noise = math.sqrt(max(own.variance, variation.variance) * (1 / len(base) + 1 / len(new)))
    near, far = (student_quantile(variation.freedom, 1 - error) * noise for error in (0.025, min(chance, 0.025)))
    return near, far
