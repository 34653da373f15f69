"""Bytes over seconds. GB is 10**9 bytes: dividing by 1024**3 would understate by 6.9 %."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import bwprof
from bwprof import _core

# (bytes, seconds, GB/s), each worked out by hand.
BY_HAND = [
    (10**9, 1.0, 1.0),
    (2**30, 1.0, 1.073741824),
    (8_589_934_592, 2e-3, 4294.967296),  # 4 GiB read and 4 GiB written in 2 ms
    (1_607_424 + 1_792, 4e-6, 402.304),  # decode_gemm 1 x 896 x 896 in FP16
    (2_098_944 + 1_792, 6.4e-6, 328.24),  # flash decode of 4096 keys, 14/2 heads of 64
    (3_214_848 + 3_584, 0.5, 0.006436864),
    (0, 1.0, 0.0),
    (1, 1e-9, 1.0),
]


@pytest.mark.parametrize(("size", "seconds", "expected"), BY_HAND)
def test_bandwidth_calculation(size: int, seconds: float, expected: float) -> None:
    found = _core.bandwidth_gb_s(size, seconds)
    assert isinstance(found, float)
    assert found == pytest.approx(expected, rel=1e-14)
    assert bwprof.bandwidth_gb_s(size, seconds) == found


def test_bandwidth_calculation_is_a_ratio_of_whole_numbers() -> None:
    rng = np.random.default_rng(1)
    for size, nanoseconds in rng.integers(1, 2**50, (200, 2)).tolist():
        exact = Fraction(size, nanoseconds)  # bytes per nanosecond are GB per second
        assert math.isclose(_core.bandwidth_gb_s(size, nanoseconds * 1e-9), float(exact), rel_tol=1e-14)


def test_arrays() -> None:
    sizes = np.array([row[0] for row in BY_HAND])
    seconds = np.array([row[1] for row in BY_HAND])
    found = bwprof.bandwidth_gb_s(sizes, seconds)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [row[2] for row in BY_HAND], rtol=1e-14)
    np.testing.assert_array_equal(bwprof.bandwidth_gb_s(sizes.tolist(), seconds.tolist()), found)


def test_broadcasting() -> None:
    found = bwprof.bandwidth_gb_s(np.array([[10**9], [4 * 10**9]]), [1.0, 0.5, 0.25])
    np.testing.assert_array_equal(found, [[1.0, 2.0, 4.0], [4.0, 8.0, 16.0]])
    np.testing.assert_array_equal(bwprof.bandwidth_gb_s(10**9, np.array([1.0, 2.0])), [1.0, 0.5])
    np.testing.assert_array_equal(bwprof.bandwidth_gb_s(np.arange(6).reshape(2, 3)[:, ::-1] * 10**9, 1.0)[1], [5, 4, 3])
    assert bwprof.bandwidth_gb_s(np.zeros((0, 3)), 1.0).shape == (0, 3)
    assert bwprof.bandwidth_gb_s(np.full((2, 1, 2), 1e9), np.ones((3, 1))).shape == (2, 3, 2)


def test_the_arguments_stay_as_they_are() -> None:
    sizes, seconds = np.array([1e9, 2e9]), np.array([1.0, 2.0])
    bwprof.bandwidth_gb_s(sizes, seconds)
    assert sizes.tolist() == [1e9, 2e9]
    assert seconds.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", [float, int, np.float64, np.float32, np.int32, np.array])
def test_number_types(kind: Any) -> None:
    for function in (_core.bandwidth_gb_s, bwprof.bandwidth_gb_s):
        assert float(function(kind(2**30), kind(2))) == pytest.approx(0.536870912, rel=1e-14)


def test_zero_seconds() -> None:
    assert _core.bandwidth_gb_s(1, 0.0) == math.inf
    assert _core.bandwidth_gb_s(1, 0) == math.inf
    assert math.isnan(_core.bandwidth_gb_s(0, 0))
    assert math.isnan(_core.bandwidth_gb_s(1, math.nan))
    found = bwprof.bandwidth_gb_s(np.array([1.0, 0.0]), 0)
    assert found[0] == math.inf
    assert math.isnan(found[1])


@pytest.mark.parametrize("bad", ["fast", object(), ["1", "x"], [[1.0], [1.0, 2.0]]])
def test_what_is_no_number(bad: object) -> None:
    for arguments in ((bad, 1.0), (1.0, bad)):
        for function in (_core.bandwidth_gb_s, bwprof.bandwidth_gb_s):
            with pytest.raises((TypeError, ValueError)):
                function(*arguments)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="shape"):
        bwprof.bandwidth_gb_s(np.ones(3), np.ones(2))
    with pytest.raises(TypeError):
        _core.bandwidth_gb_s(1.0)
    with pytest.raises(OverflowError):
        _core.bandwidth_gb_s(10**400, 1.0)
