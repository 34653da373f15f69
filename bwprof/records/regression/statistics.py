"""The statistics of a comparison, of numbers alone: how far apart two measurements of a case must lie to differ.

All is worked out in logarithms of the measured values: a process that is 1 % slower is so whatever the case takes.
What a case's medians do from process to process cannot be seen within one of them. A baseline of several processes
learns it, from few: the variance of each case is moderated by what those of all cases are like (empirical Bayes:
Smyth, "Linear models and empirical Bayes methods", Statistical Applications in Genetics and Molecular Biology 3, 2004,
sections 3 and 6.2), and a difference is held against Student's t with the degrees of freedom of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean, variance

LEAST = 0.01  # no learnt threshold is smaller: other addresses, another day

# Nor is one that a single try decides. Noise is not normal: it has two states, or outliers of 1 to 2 %, which five
# processes may not have shown. With 1 % on two H200s 6 of 40 unchanged suites had a case slower at first and none the
# second time; with 2 % none had at first, and of 2 520 times taken 1.05 times as many were found.
LEAST_ONCE = 0.02

FAMILY_CHANCE = 0.05  # of any false alarm among all cases of a comparison

FOUND = 0.95  # how probably the smallest change that is told of is found

_INTERVAL = 0.95  # of the intervals, as the rows have them

_FEWEST_CASES = 8  # of fewer nobody learns what cases are like

_MOST_PRIOR = 10.0  # degrees of freedom: cases are never so much alike that one's own wander counts for nothing

_LEAST_SD = 1e-4  # timers tell no smaller differences: medians that agree to the last digit are no certainty

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Spread:
    """A variance of logarithms, and its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class ChangeTest:
    """What a difference of logarithms is held against.

    `threshold` is what it must exceed, `noise` its standard error, of `freedom` degrees; `learnt` whether the noise is
    that between processes. `scatter` is the standard error of what decides, where that is not the difference itself.
    """

    threshold: float
    noise: float
    freedom: float
    learnt: bool
    scatter: float | None = None

    def interval(self, difference: float) -> tuple[float, float]:
        """The 95 % interval of a difference that was measured."""
        reach = student_quantile(self.freedom, (1 + _INTERVAL) / 2) * self.noise
        return difference - reach, difference + reach

    def smallest(self, *, times: int = 1) -> float:
        """The smallest difference that is found with `FOUND` probability, where it must be found so many `times`.

        The threshold, and as much again as the noise takes away one time in twenty; of two tries (which share a
        baseline, so that this is cautious) each may miss half as often.
        """
        noise = self.noise if self.scatter is None else self.scatter
        return self.threshold + student_quantile(self.freedom, 1 - (1 - FOUND) / times) * noise

    def chance(self, change: float) -> float:
        """How probably one try finds a change, a difference of logarithms; normal noise."""
        noise = self.noise if self.scatter is None else self.scatter
        off = change - self.threshold
        return _NORMAL.cdf(off / noise) if 0 < noise < math.inf else float(off > 0)


def log_variance(values: Sequence[float]) -> Spread | None:
    """The variance of the logarithms of several processes' medians; None for fewer than two of them."""
    if len(values) < 2:
        return None
    return Spread(max(variance([math.log(value) for value in values]), _LEAST_SD**2), len(values) - 1.0)


def pool_spreads(one: Spread | None, other: Spread | None) -> Spread | None:
    """Of two sides that wander alike, the variance of both."""
    if one is None or other is None:
        return one or other
    freedom = one.freedom + other.freedom
    return Spread((one.variance * one.freedom + other.variance * other.freedom) / freedom, freedom)


def fit_prior(spreads: Sequence[Spread]) -> Spread | None:
    """What the variances of a suite's cases are like: a scaled inverse chi-square, fitted by the moments of their
    logarithms (Smyth 2004, section 6.2); None for too few cases.
    """
    if len(spreads) < _FEWEST_CASES:
        return None
    found = [math.log(one.variance) - _digamma(one.freedom / 2) + math.log(one.freedom / 2) for one in spreads]
    beyond = variance(found) - fmean(_trigamma(one.freedom / 2) for one in spreads)
    freedom = min(2 * _trigamma_inverse(beyond), _MOST_PRIOR) if beyond > 0 else _MOST_PRIOR
    return Spread(math.exp(fmean(found) + _digamma(freedom / 2) - math.log(freedom / 2)), freedom)


def moderate_spread(own: Spread, of_all: Spread | None) -> Spread:
    """A case's variance, drawn towards what all cases are like, each counting as its degrees of freedom.

    What two or three processes show of all cases is as uncertain as what they show of one: then all count for less,
    since a case that wanders more than most would be held against too narrow a threshold (simulated: with a single
    degree and cases of which one in thirty wanders 30 times as far, a false alarm in every fourth suite).
    """
    if of_all is None:
        return own
    most = own.freedom * (own.freedom + 1) / 2
    return pool_spreads(own, Spread(of_all.variance, min(of_all.freedom, most))) or own


def chance_per_case(cases: int, family_chance: float = FAMILY_CHANCE) -> float:
    """The chance of a false alarm that each of `cases` tests may have, so that any has it with `family_chance`: Sidak's
    correction, which is exact for independent cases and cautious for those that become slow together (Sidak, Journal
    of the American Statistical Association 62, 1967).
    """
    return family_chance if cases <= 1 else -math.expm1(math.log1p(-family_chance) / cases)


def smallest_threshold(gate: float | None, tries: int) -> float:
    """A learnt threshold is no smaller, a fraction: what was asked for, else by how many tries, or processes, decide.

    Examples
    --------
    >>> smallest_threshold(None, 1), smallest_threshold(None, 2), smallest_threshold(0.001, 1)
    (0.02, 0.01, 0.01)
    """
    return max(LEAST, gate) if gate is not None else LEAST if tries > 1 else LEAST_ONCE


def learnt_test(
    wander: Spread, processes: tuple[int, int], within: float, chance: float, *, least: float = LEAST
) -> ChangeTest:
    """The test of a case whose wander between processes is known.

    Parameters
    ----------
    wander : Spread
        Moderated, of one process.
    processes : tuple of int
        How many the baseline and the new side have.
    within : float
        The standard error of the new side's median within its process: no process is surer than that.
    chance : float
        Of a false alarm, see `alone`.
    least : float
        The smallest change worth a word, as a fraction.
    """
    base, new = processes
    noise = math.sqrt(wander.variance / base + max(wander.variance, within**2) / new)
    reach = student_quantile(wander.freedom, 1 - min(chance, (1 - _INTERVAL) / 2)) * noise  # never within the interval
    return ChangeTest(max(math.log1p(least), reach), noise, wander.freedom, learnt=True)


def plain_test(reaches: tuple[float, float], gate: float, chance: float = FAMILY_CHANCE) -> ChangeTest:
    """The test of two single processes, of which only intervals within them are known: how far those reach towards
    each other. They must not overlap, be apart by more than `chance` makes them, and the gate stands in for what
    changes between processes: the rule of `bwprof.results.pairs`.
    """
    noise = math.hypot(*reaches) / student_quantile(math.inf, (1 + _INTERVAL) / 2)
    reach = max(sum(reaches), student_quantile(math.inf, 1 - chance) * noise)
    return ChangeTest(max(math.log1p(gate), reach), noise, math.inf, learnt=False)


def standard_error(low: float, high: float) -> float:
    """Of a logarithm, from the ends of its value's 95 % interval; infinite where that is."""
    if not (0 < low <= high < math.inf):
        return math.inf
    return (math.log(high) - math.log(low)) / (2 * student_quantile(math.inf, (1 + _INTERVAL) / 2))


@lru_cache(maxsize=4096)
def student_quantile(freedom: float, chance: float) -> float:
    """The quantile of Student's t: what is exceeded with the chance 1 - `chance`; for `chance` from a half on."""
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
    """The chance of more than `value`, which is not negative (Abramowitz and Stegun 26.7.1)."""
    return 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + value * value))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    # Lentz's way of evaluating it, forwards.
    tiny = 1e-300
    upper, lower = 1.0, 1 - (a + b) * x / (a + 1)
    lower = 1 / (lower if abs(lower) > tiny else tiny)
    found = lower
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            lower = 1 + term * lower
            lower = 1 / (lower if abs(lower) > tiny else tiny)
            upper = 1 + term / upper
            upper = upper if abs(upper) > tiny else tiny
            found *= upper * lower
        if abs(upper * lower - 1) < 1e-14:
            break
    return front * found


def _digamma(x: float) -> float:
    """The derivative of log gamma (Abramowitz and Stegun 6.3.5, 6.3.18)."""
    found = 0.0
    while x < 8:
        found -= 1 / x
        x += 1
    y = 1 / (x * x)
    return found + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))


def _trigamma(x: float) -> float:
    """Its derivative (Abramowitz and Stegun 6.4.6, 6.4.12)."""
    found = 0.0
    while x < 8:
        found += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    return found + 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30)))


def _trigamma_inverse(value: float) -> float:
    """Where trigamma, which falls, has a positive value; by halving."""
    low, high = 1e-8, 1.0
    while _trigamma(high) > value and high < 1e8:
        high *= 2
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)
