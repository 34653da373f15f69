"""What lies between measured points: kernel regression (a Gaussian process) in NumPy, for a few hundred points.

The distance between shapes is taken in the logarithms of what they read, write and compute, which is what most of a
kernel's time follows from; a second, shorter-sighted part also sees the parameters themselves, such as sizes that a
kernel's tiles fit. Far from all points the prediction falls back to their median, and its error grows to their spread.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
_WIDTHS = (4.0, 8.0, 16.0)  # of the first part, in powers of two
_NEAR_WIDTHS = (2.0, 4.0, 8.0)  # of the second part
_PARAM_WIDTHS = (2.0, 4.0, 8.0, math.inf)  # how it sees parameters
_NEAR_SHARES = (0.0, 0.3, 1.0)  # the second part's weight beside the first's
_NOISES = (0.02, 0.05)  # scatter of a point, of a logarithm
_FEWEST = 4  # points below which only their median is known
_MOST = 400  # points that are kept, spread evenly
_LEAST_SPREAD = 0.1  # of a logarithm: how far off a point like none of them may be, however alike they are
_UNKNOWN_SPREAD, _UNSURE = 0.3, 2.0  # of a logarithm, where one point tells; times that of the few that do

# Of a logarithm: how far off a point may be for each power of two between its parameters and those of the point most
# like it, whatever the kernel makes of them: what sees parameters as all points do, which may vary them together.
_UNSEEN_SPREAD = 0.02
_ENOUGH = 150  # points that tell which kernel is the likeliest
_CHUNK = 1 << 10


@dataclass(frozen=True, slots=True)
class _Kernel:
    width: float
    near_width: float
    param_width: float
    near_share: float

    def __call__(self, sizes: Array, params: Array, sizes2: Array, params2: Array) -> Array:
        """Likeness of each row to each of the others, 1 for the same."""
        found = _matern(sizes / self.width, sizes2 / self.width)
        if not self.near_share:
            return found
        whole, whole2 = (
            np.hstack([one / self.near_width, other / self.param_width])
            for one, other in ((sizes, params), (sizes2, params2))
        )
        found += self.near_share * _matern(whole, whole2)
        found /= 1 + self.near_share
        return found


def _matern(one: Array, other: Array) -> Array:
    """The Matern kernel of smoothness 5/2."""
    squares = one @ (-10 * other).T  # five times the squared distances, in one array
    squares += 5 * (one * one).sum(1)[:, None]
    squares += 5 * (other * other).sum(1)[None]
    np.maximum(squares, 0, out=squares)
    root = np.sqrt(squares)
    squares *= 1 / 3
    squares += root
    squares += 1
    np.negative(root, out=root)
    np.exp(root, out=root)
    squares *= root
    return squares


class Neighbours:
    """Values at points, and what lies between them.

    Parameters
    ----------
    sizes : array of shape (points, s)
        Logarithms (of 2) of what the values mostly follow from.
    params : array of shape (points, p)
        What else tells the points apart.
    values : array of shape (points,)
    """

    def __init__(self, sizes: Array, params: Array, values: Array) -> None:
        if len(values) > _MOST:
            kept = np.unique(np.linspace(0, len(values) - 1, _MOST).astype(int))
            kept = np.lexsort(sizes.T)[kept]
            sizes, params, values = sizes[kept], params[kept], values[kept]
            self.kept = kept
        else:
            self.kept = np.arange(len(values))
        self._centre = sizes.mean(0), params.mean(0)
        self._sizes, self._params = sizes - self._centre[0], params - self._centre[1]
        self._median = float(np.median(values))
        self._values = values - self._median
        self.count = len(values)
        spread = float(np.var(self._values)) + 1e-4
        if self.count < _FEWEST:
            self._kernel, self._weights = None, None
            self.spread = self.error = max(_UNSURE * math.sqrt(spread), _UNKNOWN_SPREAD / self.count)
            return
        self._kernel, noise = self._chosen(spread)
        matrix = self._matrix(self._kernel, noise, spread, slice(None))
        inverse = np.linalg.inv(matrix)
        self._weights = spread * (inverse @ self._values)
        left_out = inverse @ self._values / np.diag(inverse)
        self.spread = math.sqrt(spread)
        # What a point is missed by when it is left out, as nine of ten are: less sensitive to one bad point.
        self.error = max(float(np.quantile(np.abs(left_out), 0.9)) / 1.645, 0.005)

    def shifted(self, by: float, error: float) -> Neighbours:
        """The same of values that are greater by so much, which is itself in error."""
        made = copy.copy(self)
        made._median += by
        made.error = math.hypot(self.error, error)
        return made

    def _matrix(self, kernel: _Kernel, noise: float, spread: float, some: Array) -> Array:
        """The covariance of some of the points."""
        mine = self._sizes[some], self._params[some]
        return spread * kernel(*mine, *mine) + (noise**2 + 1e-9) * np.eye(len(mine[0]))

    def _chosen(self, spread: float) -> tuple[_Kernel, float]:
        """The kernel under which these values are likeliest."""
        some = np.unique(np.linspace(0, self.count - 1, min(self.count, _ENOUGH)).astype(int))
        values = self._values[some]
        best = -math.inf
        chosen = _Kernel(_WIDTHS[1], _NEAR_WIDTHS[0], _PARAM_WIDTHS[0], 0.0)
        scatter = _NOISES[-1]
        for width, share in itertools.product(_WIDTHS, _NEAR_SHARES):
            nearer = itertools.product(_NEAR_WIDTHS, _PARAM_WIDTHS) if share else [(_NEAR_WIDTHS[0], _PARAM_WIDTHS[0])]
            for near_width, param_width in nearer:
                kernel = _Kernel(width, near_width, param_width, share)
                likeness = self._matrix(kernel, 0.0, spread, some)
                for noise in _NOISES:
                    found = _likelihood(likeness + noise**2 * np.eye(len(some)), values)
                    if found > best:
                        best, chosen, scatter = found, kernel, noise
        return chosen, scatter

    def __call__(self, sizes: Array, params: Array) -> tuple[Array, Array, Array]:
        """Values at other points, their standard error, and the place of the point most like each."""
        count = len(sizes)
        if self._kernel is None or self._weights is None:
            nothing = np.zeros(count, dtype=np.intp)
            return np.full(count, self._median), np.full(count, self.error), nothing
        values, likest, apart = np.empty(count), np.empty(count), np.empty(count)
        nearest = np.empty(count, dtype=np.intp)
        mine = self._sizes.astype(np.float32), self._params.astype(np.float32)
        weights = self._weights.astype(np.float32)
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            theirs = (
                (sizes[part] - self._centre[0]).astype(np.float32),
                (params[part] - self._centre[1]).astype(np.float32),
            )
            likeness = self._kernel(*theirs, *mine)
            values[part] = likeness @ weights
            nearest[part] = likeness.argmax(1)
            likest[part] = np.take_along_axis(likeness, nearest[part][:, None], 1)[:, 0]
            apart[part] = ((theirs[1] - mine[1][nearest[part]]) ** 2).sum(1)
        unlike = max(self.spread, _LEAST_SPREAD) ** 2 * np.maximum(1 - likest**2, 0)
        error = np.sqrt(self.error**2 + unlike + _UNSEEN_SPREAD**2 * apart)
        return values + self._median, error, nearest


def _likelihood(matrix: Array, values: Array) -> float:
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return -math.inf
    solved = np.linalg.solve(root, values)
    return float(-0.5 * solved @ solved - np.log(np.diag(root)).sum())
