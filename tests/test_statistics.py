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
    assert found == {"median_ns": 5.5, "lo_ns": 2.0, "hi_ns": 9.0, "min_ns": 1.0, "noise": 4.5 / 5.5, "count": 10} | {
        "two_states": False,
        "drift": 0.0,
    }


def test_a_climb_by_hand() -> None:
    """101 to 110 in order: neighbors resemble each other as much as can be, so the ranks 2 and 9 of independent
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


def states(rng: np.random.Generator, count: int, lasting: float, share: float, slow: float) -> np.ndarray:
    """A chain of two states, 100 for `share` of the time and `slow` else, drawn anew every `lasting` samples."""
    fresh = rng.random(count) < 1.0 / lasting
    fresh[0] = True
    drawn = rng.random(count) < share
    fast = drawn[np.maximum.accumulate(np.where(fresh, np.arange(count), 0))]
    return np.asarray(np.where(fast, 100.0, slow) * (1.0 + 0.01 * rng.normal(size=count)))


@pytest.mark.parametrize(("count", "lasting"), [(50, 5), (200, 20), (1000, 100), (1000, 200)])
@pytest.mark.parametrize("slow", [110.0, 200.0])
def test_an_interval_of_two_lasting_states_holds_the_median(count: int, lasting: float, slow: float) -> None:
    """6 of 10 samples are fast: their 5/6 quantile, 0.967 standard deviations up, is the median of all."""
    rng = np.random.default_rng(count)
    found = [_core.statistics(states(rng, count, lasting, 0.6, slow)) for _ in range(300)]
    flagged = [one for one in found if one["two_states"]]
    held = sum(one["lo_ns"] <= 100.967 <= one["hi_ns"] for one in flagged)
    assert len(flagged) > 0.8 * len(found), "the others saw one state, or a few samples of the other"
    assert held >= 0.93 * len(flagged)


def test_states_that_alternate_and_that_last_are_flagged() -> None:
    rng = np.random.default_rng(1)
    alternating = np.tile([40.0, 80.0], 20) * rng.normal(1.0, 0.01, 40)
    once = np.r_[alternating[::2], alternating[1::2]]
    for samples in (alternating, once, np.repeat([40.0, 80.0], 20), rng.permutation(alternating)):
        assert _core.statistics(samples)["two_states"]
    lasting = _core.statistics(once)
    assert lasting["lo_ns"] < 41.0
    assert lasting["hi_ns"] > 79.0
    assert lasting["drift"] == 0.0
    assert not _core.statistics(np.r_[np.full(196, 40.0), np.full(4, 80.0)] * rng.normal(1.0, 0.01, 200))["two_states"]


ORDINARY = {
    "normal": lambda rng, shape: rng.normal(100.0, 2.0, shape),
    "skewed": lambda rng, shape: 100.0 + rng.exponential(10.0, shape),
    "heavy": lambda rng, shape: 100.0 * rng.lognormal(0.0, 0.7, shape),
    "uniform": lambda rng, shape: rng.uniform(90.0, 110.0, shape),
    "late": lambda rng, shape: rng.normal(100.0, 1.0, shape) * np.where(rng.random(shape) < 0.05, 1.5, 1.0),
    "ticks": lambda rng, shape: np.round(rng.normal(100.0, 0.6, shape)),
    "coarse ticks": lambda rng, shape: np.round(rng.normal(3.4, 0.4, shape)),
}


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("count", [16, 30, 100, 400])
def test_ordinary_samples_have_no_states_and_no_drift(name: str, count: int) -> None:
    found = [
        _core.statistics(one) for one in np.maximum(ORDINARY[name](np.random.default_rng(count), (500, count)), 1.0)
    ]
    assert sum(one["two_states"] for one in found) <= 0.02 * len(found)
    assert sum(one["drift"] != 0.0 for one in found) <= 0.005 * len(found)


@pytest.mark.parametrize("count", [10, 40, 500])
@pytest.mark.parametrize("climb", [0.5, -0.4])
def test_a_drift_has_its_rate_and_an_interval_that_holds_both_ends(count: int, climb: float) -> None:
    rng = np.random.default_rng(count)
    samples = 100.0 * (1.0 + climb * np.arange(count) / (count - 1)) * rng.normal(1.0, 0.01, count)
    samples[count // 2] *= 3.0 if count > 10 else 1.0
    found = _core.statistics(samples)
    assert found["drift"] * found["median_ns"] * (count - 1) == pytest.approx(100.0 * climb, rel=0.15)
    low, high = sorted([100.0, 100.0 * (1.0 + climb)])
    assert found["lo_ns"] <= low + 5.0
    assert found["hi_ns"] >= high - 5.0
    assert not found["two_states"]


@pytest.mark.parametrize("count", [12, 40, 500])
@pytest.mark.parametrize("first", [0.3, 1.0, -0.3])
def test_a_warm_up_that_ends_is_no_drift(count: int, first: float) -> None:
    noise = np.random.default_rng(count).normal(1.0, 0.002, count)
    found = _core.statistics(100.0 * (1.0 + first * np.exp(-np.arange(count) * 4.0 / count)) * noise)
    assert found["drift"] == 0.0


def test_equal_samples_have_no_noise() -> None:
    found = _core.statistics(np.full(12, 123.5))
    assert (found["lo_ns"], found["median_ns"], found["hi_ns"], found["noise"]) == (123.5, 123.5, 123.5, 0.0)


@pytest.mark.parametrize(
    "samples",
    [np.zeros(0), np.ones(4, np.float32), np.ones(4, np.int64), b"12345678", np.ones(4, ">f8")],
    ids=["empty", "float32", "int64", "bytes", "other byte order"],
)
def test_only_float64_is_allowed(samples: object) -> None:
    with pytest.raises(ValueError, match="float64"):
        _core.statistics(samples)


def test_only_contiguous_arrays_are_allowed() -> None:
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        _core.statistics(np.ones(8)[::2])
    with pytest.raises(TypeError):
        _core.statistics([1.0, 2.0])
