"""Statistics of a comparison: how far apart two measurements of a case must be to differ.

All values are logarithms of measured values: a process that is 1 % slower is so for any case. A single process does not
show how a case's medians vary between processes; a baseline of a few processes does. The variance of each case is
moderated by the variances of all cases (empirical Bayes: Smyth, "Linear models and empirical Bayes methods",
Statistical Applications in Genetics and Molecular Biology 3, 2004, sections 3 and 6.2), and a difference is tested by
Student's t with the degrees of freedom of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, variance

LEAST = 0.01  # the smallest threshold, a fraction: other addresses, another day

# The smallest threshold of a single try. Noise is not normal: it has two states, or outliers of 1 to 2 %, which five
# processes may not have shown. With 1 % on two H200s 6 of 40 unchanged suites had a case slower at first and none the
# second time; with 2 % none had at first, and of 2 520 times taken 1.05 times as many were found.
LEAST_ONCE = 0.02
FAMILY_CHANCE = 0.05  # of any false alarm among all cases of a comparison
FOUND = 0.95  # the probability that the smallest detectable change is found
_INTERVAL = 0.95  # of the rows' intervals
_FEWEST_CASES = 8  # that show what cases are like
_MOST_PRIOR = 10.0  # degrees of freedom: a case's own variation always counts
_LEAST_SD = 1e-4  # the timers' resolution: medians that agree to the last digit are no certainty
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Spread:
    """A variance of logarithms, and its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class ChangeTest:
    """The test of a difference of logarithms.

    `threshold` is what it must exceed, `noise` its standard error, of `freedom` degrees: that between processes, or
    within one. `scatter` is the standard error of what decides, where that is not the difference itself.
    """

    threshold: float
    noise: float
    freedom: float
    between_processes: bool
    scatter: float | None = None

    def interval(self, difference: float) -> tuple[float, float]:
        """Return the 95 % interval of a measured difference."""
        reach = student_quantile(self.freedom, (1 + _INTERVAL) / 2) * self.noise
        return difference - reach, difference + reach

    def smallest(self, *, times: int = 1) -> float:
        """Return the smallest difference that each of so many `times` finds, with the probability `FOUND` in all.

        It is the threshold, and as much again as the noise takes away one time in twenty; each of two tries may miss
        half as often, which is cautious, as they share a baseline.
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
    logs = [
        math.log(spread.variance) - _digamma(spread.freedom / 2) + math.log(spread.freedom / 2) for spread in spreads
    ]
    beyond = variance(logs) - fmean(_trigamma(spread.freedom / 2) for spread in spreads)
    freedom = min(2 * _trigamma_inverse(beyond), _MOST_PRIOR) if beyond > 0 else _MOST_PRIOR
    return Spread(math.exp(fmean(logs) + _digamma(freedom / 2) - math.log(freedom / 2)), freedom)


def moderate_spread(own: Spread, prior: Spread | None) -> Spread:
    """Combine a case's variance with that of all cases, each weighted by its degrees of freedom.

    Two or three processes show little of a case, and of all cases. Then all cases count for less, or a case that varies
    more than most would have too small a threshold (simulated: with a single degree, and one case in thirty that varies
    30 times as much, a false alarm in every fourth suite).
    """
    if prior is None:
        return own
    most = own.freedom * (own.freedom + 1) / 2
    return pool_spreads(own, Spread(prior.variance, min(prior.freedom, most))) or own


def chance_per_case(cases: int, family_chance: float = FAMILY_CHANCE) -> float:
    """Return the chance of a false alarm for each of `cases` tests, so that any has one with `family_chance`.

    Sidak's correction: exact for independent cases, cautious for cases that become slow together (Sidak, Journal of the
    American Statistical Association 62, 1967).
    """
    return family_chance if cases <= 1 else -math.expm1(math.log1p(-family_chance) / cases)


def smallest_threshold(gate: float | None, tries: int) -> float:
    """Return the smallest threshold, a fraction: the gate, else by how many tries, or processes, decide.

    Examples
    --------
    >>> smallest_threshold(None, 1), smallest_threshold(None, 2), smallest_threshold(0.001, 1)
    (0.02, 0.01, 0.01)
    """
    return max(LEAST, gate) if gate is not None else LEAST if tries > 1 else LEAST_ONCE


def learnt_test(
    variation: Spread, processes: tuple[int, int], within: float, chance: float, *, least: float = LEAST
) -> ChangeTest:
    """Make the test of a case whose variation between processes, `variation`, is known and moderated.

    `processes` are those of the baseline and the new side; `within` is the standard error of the new side's median
    within its process, `chance` that of a false alarm, `least` the smallest change that matters, a fraction.
    """
    base, new = processes
    noise = math.sqrt(variation.variance / base + max(variation.variance, within**2) / new)
    reach = (
        student_quantile(variation.freedom, 1 - min(chance, (1 - _INTERVAL) / 2)) * noise
    )  # never within the interval
    return ChangeTest(max(math.log1p(least), reach), noise, variation.freedom, between_processes=True)


def plain_test(reaches: tuple[float, float], gate: float, chance: float = FAMILY_CHANCE) -> ChangeTest:
    """Make the test of two single processes: the rule of `bwprof.results.pairs`.

    `reaches` are how far their intervals reach towards each other: they must not overlap, and be apart by more than
    `chance` makes them. The gate replaces the unknown variation between processes.
    """
    noise = math.hypot(*reaches) / student_quantile(math.inf, (1 + _INTERVAL) / 2)
    reach = max(sum(reaches), student_quantile(math.inf, 1 - chance) * noise)
    return ChangeTest(max(math.log1p(gate), reach), noise, math.inf, between_processes=False)


def standard_error(low: float, high: float) -> float:
    """Return a logarithm's standard error from the ends of its value's 95 % interval; infinite where that is."""
    if not (0 < low <= high < math.inf):
        return math.inf
    return (math.log(high) - math.log(low)) / (2 * student_quantile(math.inf, (1 + _INTERVAL) / 2))


@lru_cache(maxsize=4096)
def student_quantile(freedom: float, chance: float) -> float:
    """Return the quantile of Student's t that is exceeded with the chance 1 - `chance`, for `chance` from 0.5 on."""
    if math.isinf(freedom):
        return _NORMAL.inv_cdf(chance)
    low, high = 0.0, 1.0
    while _student_above(high, freedom) > 1 - chance:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_above(middle, freedom) > 1 - chance else (low, middle)
    return (low + high) / 2


def _student_above(value: float, freedom: float) -> float:
    """Return the chance of more than `value`, which is not negative (Abramowitz and Stegun 26.7.1)."""
    return 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + value * value))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    # Lentz's algorithm.
    tiny = 1e-300
    upper, lower = 1.0, 1 - (a + b) * x / (a + 1)
    lower = 1 / (lower if abs(lower) > tiny else tiny)
    result = lower
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            lower = 1 + term * lower
            lower = 1 / (lower if abs(lower) > tiny else tiny)
            upper = 1 + term / upper
            upper = upper if abs(upper) > tiny else tiny
            result *= upper * lower
        if abs(upper * lower - 1) < 1e-14:
            break
    return front * result


def _digamma(x: float) -> float:
    """Return the derivative of log gamma (Abramowitz and Stegun 6.3.5, 6.3.18)."""
    result = 0.0
    while x < 8:
        result -= 1 / x
        x += 1
    y = 1 / (x * x)
    return result + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))


def _trigamma(x: float) -> float:
    """Return the derivative of `_digamma` (Abramowitz and Stegun 6.4.6, 6.4.12)."""
    result = 0.0
    while x < 8:
        result += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    return result + 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30)))


def _trigamma_inverse(value: float) -> float:
    """Return where trigamma, which falls, has a positive value; by bisection."""
    low, high = 1e-8, 1.0
    while _trigamma(high) > value and high < 1e8:
        high *= 2
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)
