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
    else:  # independent samples' interval, or a wider one: so few cannot show that they are independent
        ordered = np.sort(samples)
        assert found["lo_ns"] <= ordered[ranks[0]] < ordered[ranks[1]] <= found["hi_ns"]
        assert found["lo_ns"] >= 0.0
        assert count < 37 or found["hi_ns"] - found["lo_ns"] < ordered[-1] - ordered[0]


def test_by_hand() -> None:
    """1 to 10: the interval is the second smallest to the second largest, the quartiles 3.25 and 7.75."""
    found = _core.statistics(array.array("d", [7, 3, 10, 1, 9, 5, 2, 8, 6, 4]))
    assert found == {"median_ns": 5.5, "lo_ns": 2.0, "hi_ns": 9.0, "min_ns": 1.0, "noise": 4.5 / 5.5, "count": 10}


def test_a_climb_by_hand() -> None:
    """101 to 110 in order: neighbours resemble each other as much as can be, so the ranks 2 and 9 of independent
    samples, 7/18 of the range from its middle, are too near by the most that there is, sqrt(1.95 / 0.05) = sqrt(39)."""
    found = _core.statistics(array.array("d", range(101, 111)))
    half_width = np.sqrt(39.0) * 7 / 18 * 9
    assert (found["lo_ns"], found["hi_ns"]) == pytest.approx((105.5 - half_width, 105.5 + half_width), rel=1e-12)


def test_samples_keep_their_order() -> None:
    samples = np.array([3.0, 1.0, 2.0])
    _core.statistics(samples)
    assert samples.tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("count", [6, 10, 25, 100])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """A skewed distribution whose median is known: the share of intervals that hold it, within 4 standard errors."""
    trials = 2000
    samples = np.random.default_rng(count).exponential(1.0, (trials, count))
    intervals = [_core.statistics(row) for row in samples]
    held = sum(one["lo_ns"] <= np.log(2.0) <= one["hi_ns"] for one in intervals) / trials
    assert held >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize(("correlation", "count"), [(0.5, 50), (0.9, 20), (0.9, 100), (0.9, 1000)])
def test_samples_that_resemble_each_other_have_a_wider_interval(correlation: float, count: int) -> None:
    """Of a first-order autoregression about 0; independent samples' ranks would hold it in a half to three quarters."""
    trials = 400
    series = np.random.default_rng(count).normal(0.0, 1.0, (count, trials))
    for number in range(1, count):
        series[number] = correlation * series[number - 1] + np.sqrt(1.0 - correlation**2) * series[number]
    intervals = [_core.statistics(np.ascontiguousarray(100.0 + row)) for row in series.T]
    held = sum(one["lo_ns"] <= 100.0 <= one["hi_ns"] for one in intervals) / trials
    assert held >= 0.9


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
