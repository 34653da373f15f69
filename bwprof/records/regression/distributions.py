"""Measure how far a case's samples moved from one side to the other, quantile by quantile.

The median of samples with two states jumps when the states' shares change, and its interval spans both of them.
A slower kernel moves every quantile by the same factor; a change of the shares leaves the extremes where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bwprof.records.regression.statistics import Spread, log_variance, moderate_spread, pool_spreads, student_quantile

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_ERRORS = 3.0  # standard errors of a quantile's rank, in either direction
_BLOCKS = (5, 10, 20)  # numbers of blocks of neighbouring, similar samples; the largest error of them counts
_FEWEST = 20  # samples of a process
_AGREEMENT = 0.002  # between the samples' median and the row's time: others are samples of another measurement


@dataclass(frozen=True, slots=True)
class Shift:
    """The logarithm of new / base time of each of `QUANTILES`, and the ends of its interval.

    `inside` is the median's error by the scatter within the processes alone; `reach` the error, at the chance of a
    false alarm, of the quantiles that decide: the lowest one, and the better of the two highest.
    """

    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    inside: float
    reach: float

    def __neg__(self) -> Shift:
        """Swap the sides."""
        low, middle, high = (tuple(-value for value in values) for values in (self.high, self.middle, self.low))
        return Shift(low, middle, high, self.inside, self.reach)

    @property
    def size(self) -> float:
        """The common change of the quantiles: their median."""
        return median(self.middle)

    def is_longer(self, least: float) -> bool:
        """Return whether low and high quantiles are longer by more than `least`, and none contradicts."""
        surely = min(self.low[0], max(self.low[3], self.low[4]))
        return surely > 0 and min(self.high) > least and self.size > least

    def may_exceed(self, limit: float) -> bool:
        """Return whether the median may have changed by more than `limit`, or a lower quantile has.

        Disturbances make samples longer: an upper quantile alone shows no change of the kernel.
        """
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

    `prior` is the variance between processes of all cases; a quantile that varies more has its own.
    `chance` is that of a false alarm.
    """
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
    """Return the logarithms of the quantiles, and their errors downwards and upwards.

    The error is that of a quantile's rank: an interval of ranks jumps to the other state where it must.
    """
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
    return side[:, 0].mean(axis=0), *(np.sqrt((side[:, end] ** 2).sum(axis=0)) / len(side) for end in (1, 2))


def _process_reach(base: Any, new: Any, prior: Spread | None, chance: float) -> tuple[float, float]:
    """Return how far apart variation between processes may take two means of a quantile: at 95 %, and at a chance.

    One process a side shows nothing: 0.
    """
    own = pool_spreads(*(log_variance(np.exp(values).tolist()) for values in (base, new)))
    if own is None:
        return 0.0, 0.0
    variation = moderate_spread(own, prior)
    noise = math.sqrt(max(own.variance, variation.variance) * (1 / len(base) + 1 / len(new)))
    near, far = (student_quantile(variation.freedom, 1 - error) * noise for error in (0.025, min(chance, 0.025)))
    return near, far
