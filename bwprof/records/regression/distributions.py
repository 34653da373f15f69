"""How far a case's samples moved from one side to the other, quantile by quantile.

The median of samples that have two states jumps when the states' shares change, and its interval spans both of them. A
slower kernel moves every quantile by the same factor, a change of the shares leaves the extremes where they are.
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

_BLOCKS = (5, 10, 20)  # samples resemble their neighbours: the largest error that one of these numbers of blocks shows

_FEWEST = 20  # samples of a process

_AGREEMENT = 0.002  # between the samples' median and the row's time: samples of another measurement say nothing


@dataclass(frozen=True, slots=True)
class Shift:
    """The logarithm of new / base time of each of `QUANTILES`, and the ends of its interval.

    `inside` is how far the median's may be off by the scatter within the processes alone; `reach` how far the quantiles
    that decide may be, the lowest one and the better of the two highest, at the chance of a false alarm.
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
        """The change that the quantiles have in common: their median."""
        return median(self.middle)

    def is_longer(self, least: float) -> bool:
        """Whether all takes longer by more than `least`: low and high quantiles do, and none contradicts."""
        surely = min(self.low[0], max(self.low[3], self.low[4]))
        return surely > 0 and min(self.high) > least and self.size > least

    def may_exceed(self, limit: float) -> bool:
        """Whether the median may have changed by more than `limit`, in either direction, or a lower quantile has.

        What disturbs samples makes them longer: an upper quantile alone shows no change of the kernel.
        """
        moved = any(low > limit or high < -limit for low, high in zip(self.low[:2], self.high[:2], strict=True))
        return moved or abs(self.middle[2]) + self.inside > limit


def fits_time(samples: Sequence[float], time_ms: float) -> bool:
    """Whether samples, in ns, are enough, and those that a row's time is the median of."""
    if len(samples) < _FEWEST or not all(0 < value < math.inf for value in (time_ms, *samples)):
        return False
    return abs(median(samples) / 1e6 / time_ms - 1) < _AGREEMENT


def measure_shift(
    base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], of_all: Spread | None, chance: float
) -> Shift | None:
    """Compare the samples of the processes of two sides; None where one has none.

    Parameters
    ----------
    base, new : sequence of sequences of float
        Samples of each process, in the order in which they were taken.
    of_all : Spread, optional
        What the wander between processes of all cases is like; a quantile that wanders further has its own.
    chance : float
        Of a false alarm, see `bwprof.records.regression.statistics.chance_per_case`.
    """
    if not base or not new:
        return None
    sides = [np.stack([_quantiles(samples) for samples in side]) for side in (base, new)]
    (before, down, up), (after, later_down, later_up) = (_joined(side) for side in sides)
    values = zip(sides[0][:, 0].T, sides[1][:, 0].T, strict=True)
    wander = [_between(one, other, of_all, chance) for one, other in values]
    near, far = (np.array(ends) for ends in zip(*wander, strict=True))
    middle = after - before
    low, high = np.hypot(up, later_down), np.hypot(down, later_up)
    first, last, off = middle - np.maximum(low, near), middle + np.maximum(high, near), np.maximum(low, far)
    inside, reach = max(low[2], high[2]), max(off[0], min(off[3], off[4]))
    return Shift(tuple(first.tolist()), tuple(middle.tolist()), tuple(last.tolist()), float(inside), float(reach))


def _quantiles(samples: Sequence[float]) -> Any:
    """The logarithms of the quantiles, and how far they may be off downwards and upwards.

    A quantile is off as far as its rank may be: an interval of ranks jumps to the other state where it must.
    """
    values = np.log(np.asarray(samples, dtype=float))
    count, wanted = len(values), np.array(QUANTILES)
    at = np.quantile(values, wanted)
    below = (values[:, None] < at) + 0.5 * (values[:, None] == at)
    error = np.sqrt(wanted * (1 - wanted) / count)
    for blocks in _BLOCKS:
        length = count // blocks
        shares = below[count - length * blocks :].reshape(blocks, length, -1).mean(axis=1)
        error = np.maximum(error, shares.std(axis=0, ddof=1) / math.sqrt(blocks))
    low, high = (np.quantile(values, np.clip(wanted + sign * _ERRORS * error, 0, 1)) for sign in (-1, 1))
    return np.stack([at, at - low, high - at])


def _joined(side: Any) -> Any:
    """The mean over the processes, and how far it may be off."""
    return side[:, 0].mean(axis=0), *(np.sqrt((side[:, end] ** 2).sum(axis=0)) / len(side) for end in (1, 2))


def _between(base: Any, new: Any, of_all: Spread | None, chance: float) -> tuple[float, float]:
    """How far two means of a quantile may be apart by what processes do: at 95 %, and at a chance; 0 for one process a
    side, which shows nothing.
    """
    own = pool_spreads(*(log_variance(np.exp(values).tolist()) for values in (base, new)))
    if own is None:
        return 0.0, 0.0
    wander = moderate_spread(own, of_all)
    noise = math.sqrt(max(own.variance, wander.variance) * (1 / len(base) + 1 / len(new)))
    return student_quantile(wander.freedom, 0.975) * noise, student_quantile(
        wander.freedom, 1 - min(chance, 0.025)
    ) * noise
