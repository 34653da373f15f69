"""_core.statistics against NumPy and against whole-number binomials."""

from __future__ import annotations

import array
from math import comb

import numpy as np
import pytest

from bwprof import _core


def exact_ranks(count: int) -> tuple[int, int] | None:
    """Of the narrowest symmetric interval of order statistics that misses the median with at most 5 %."""
    dropped = [k for k in range(count // 2) if 40 * sum(comb(count, i) for i in range(k + 1)) <= 2**count]
    return (dropped[-1], count - 1 - dropped[-1]) if dropped else None


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 10, 11, 20, 37, 100, 250])
def test_against_numpy(count: int) -> None:
    samples = np.random.default_rng(count).lognormal(8.0, 0.3, count)
    found = _core.statistics(samples)
    low, high = np.percentile(samples, [25, 75])
    assert found["count"] == count
    assert found["median_ns"] == pytest.approx(np.median(samples), rel=1e-14)
    assert found["min_ns"] == samples.min()
    assert found["noise"] == pytest.approx((high - low) / np.median(samples), rel=1e-12, abs=1e-15)
    ranks = exact_ranks(count)
    if ranks is None:
        assert (found["lo_ns"], found["hi_ns"]) == (-np.inf, np.inf)
    else:
        ordered = np.sort(samples)
        assert (found["lo_ns"], found["hi_ns"]) == (ordered[ranks[0]], ordered[ranks[1]])


def test_by_hand() -> None:
    """1 to 10: the interval is the second smallest to the second largest, the quartiles 3.25 and 7.75."""
    found = _core.statistics(array.array("d", [7, 3, 10, 1, 9, 5, 2, 8, 6, 4]))
    assert found == {"median_ns": 5.5, "lo_ns": 2.0, "hi_ns": 9.0, "min_ns": 1.0, "noise": 4.5 / 5.5, "count": 10}


def test_samples_keep_their_order() -> None:
    samples = np.array([3.0, 1.0, 2.0])
    _core.statistics(samples)
    assert samples.tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(("count", "confidence"), [(6, 0.96875), (10, 0.978515625), (25, 0.956714)])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int, confidence: float) -> None:
    """A skewed distribution whose median is known: the share of intervals that hold it, within 4 standard errors."""
    trials = 4000
    samples = np.random.default_rng(count).exponential(1.0, (trials, count))
    intervals = [_core.statistics(row) for row in samples]
    held = sum(one["lo_ns"] <= np.log(2.0) <= one["hi_ns"] for one in intervals) / trials
    assert abs(held - confidence) <= 4 * np.sqrt(confidence * (1 - confidence) / trials)


def test_equal_samples_have_no_noise() -> None:
    found = _core.statistics(np.full(12, 123.5))
    assert (found["lo_ns"], found["median_ns"], found["hi_ns"], found["noise"]) == (123.5, 123.5, 123.5, 0.0)


@pytest.mark.parametrize(
    "samples",
    [np.zeros(0), np.ones(4, np.float32), np.ones(4, np.int64), b"12345678", np.ones(4, ">f8")],
    ids=["empty", "float32", "int64", "bytes", "other byte order"],
)
def test_refuses_what_is_no_float64(samples: object) -> None:
    with pytest.raises(ValueError, match="float64"):
        _core.statistics(samples)


def test_refuses_strides_and_lists() -> None:
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        _core.statistics(np.ones(8)[::2])
    with pytest.raises(TypeError):
        _core.statistics([1.0, 2.0])
