"""Interpolate between measured points by a Gaussian process in NumPy, for a few hundred points.

The distance between shapes is measured in the logarithms of what they read, write and compute. A second part of shorter
range also uses the parameters, such as sizes that fit a kernel's tiles. Far from all points the prediction falls back
to their median, and its error grows to their spread.
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
_PARAM_WIDTHS = (2.0, 4.0, 8.0, math.inf)  # of the second part, for parameters
_NEAR_SHARES = (0.0, 0.3, 1.0)  # the second part's weight beside the first's
_NOISES = (0.02, 0.05)  # scatter of a point, of a logarithm
_FEWEST = 4  # points below which only their median is known
_MOST = 400  # points that are used, spread evenly
_LEAST_SPREAD = 0.1  # of a logarithm: least error of a point unlike all others
_UNKNOWN_SPREAD, _UNSURE = 0.3, 2.0  # of a logarithm, for one point; factor on the spread of a few points

# Error of a logarithm for each power of two between the parameters of a point and those of the nearest point: the
# points may vary parameters together, so that the kernel does not see each alone.
_UNSEEN_SPREAD = 0.02
_ENOUGH = 150  # points by which the kernel is chosen
_CHUNK = 1 << 10


@dataclass(frozen=True, slots=True)
class _Kernel:
    width: float
    near_width: float
    param_width: float
    near_share: float

    def __call__(self, sizes: Array, params: Array, sizes2: Array, params2: Array) -> Array:
        """Compute the similarity of each row to each of the others, 1 for equal rows."""
        likeness = _matern(sizes / self.width, sizes2 / self.width)
        if not self.near_share:
            return likeness
        near, near2 = (
            np.hstack([size / self.near_width, param / self.param_width])
            for size, param in ((sizes, params), (sizes2, params2))
        )
        likeness += self.near_share * _matern(near, near2)
        likeness /= 1 + self.near_share
        return likeness


def _matern(left: Array, right: Array) -> Array:
    """Compute the Matern kernel of smoothness 5/2."""
    squares = left @ (-10 * right).T  # five times the squared distances, in one array
    squares += 5 * (left * left).sum(1)[:, None]
    squares += 5 * (right * right).sum(1)[None]
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
    """Interpolate values between points.

    Parameters
    ----------
    sizes : array of shape (points, s)
        Logarithms (base 2) on which the values mainly depend.
    params : array of shape (points, p)
        Other coordinates of the points.
    values : array of shape (points,)
    """

    def __init__(self, sizes: Array, params: Array, values: Array) -> None:
        self.sample = np.arange(len(values))
        if len(values) > _MOST:
            spaced = np.unique(np.linspace(0, len(values) - 1, _MOST).astype(int))
            self.sample = np.lexsort(sizes.T)[spaced]
            sizes, params, values = sizes[self.sample], params[self.sample], values[self.sample]
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
        self._kernel, noise = self._choose_kernel(spread)
        matrix = self._matrix(self._kernel, noise, spread, slice(None))
        inverse = np.linalg.inv(matrix)
        self._weights = spread * (inverse @ self._values)
        left_out = inverse @ self._values / np.diag(inverse)
        self.spread = math.sqrt(spread)
        # The error of a left-out point that nine of ten stay below is less sensitive to one bad point.
        self.error = max(float(np.quantile(np.abs(left_out), 0.9)) / 1.645, 0.005)

    def shifted(self, by: float, error: float) -> Neighbours:
        """Return the same with values greater by `by`, which has an error of its own."""
        shifted = copy.copy(self)
        shifted._median += by
        shifted.error = math.hypot(self.error, error)
        return shifted

    def _matrix(self, kernel: _Kernel, noise: float, spread: float, some: Array) -> Array:
        """Compute the covariance of some of the points."""
        mine = self._sizes[some], self._params[some]
        return spread * kernel(*mine, *mine) + (noise**2 + 1e-9) * np.eye(len(mine[0]))

    def _choose_kernel(self, spread: float) -> tuple[_Kernel, float]:
        """Choose the kernel and noise with the highest likelihood."""
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
                    likelihood = _likelihood(likeness + noise**2 * np.eye(len(some)), values)
                    if likelihood > best:
                        best, chosen, scatter = likelihood, kernel, noise
        return chosen, scatter

    def __call__(self, sizes: Array, params: Array) -> tuple[Array, Array, Array]:
        """Return values at other points, their standard error, and the place of the most similar point of each."""
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
