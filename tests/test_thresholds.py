"""The statistics of a comparison, against published tables, the rule of pairs, and simulations."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwprof.records.regression import statistics
from bwprof.records.regression.statistics import Spread
from bwprof.results.pairs import times_differ


# Student's t, from printed tables (Abramowitz and Stegun, table 26.10).
@pytest.mark.parametrize(
    ("freedom", "chance", "value"),
    [
        (1, 0.95, 6.314),
        (4, 0.975, 2.776),
        (5, 0.999, 5.893),
        (10, 0.95, 1.812),
        (120, 0.975, 1.980),
        (3, 0.9995, 12.924),
    ],
)
def test_student(freedom: float, chance: float, value: float) -> None:
    assert statistics.student_quantile(freedom, chance) == pytest.approx(value, abs=6e-4)


def test_student_of_many_degrees_is_normal() -> None:
    assert statistics.student_quantile(1e6, 0.975) == pytest.approx(1.959964, abs=1e-4)
    assert statistics.student_quantile(math.inf, 0.975) == pytest.approx(1.959964, abs=1e-6)
    assert statistics.student_quantile(2, 0.5) == pytest.approx(0.0, abs=1e-9)


def test_gamma_functions() -> None:
    """Digamma at 1 is minus Euler's constant, trigamma at 1 pi^2 / 6, at a half pi^2 / 2."""
    assert statistics._digamma(1) == pytest.approx(-0.5772156649)
    assert statistics._digamma(0.5) == pytest.approx(-0.5772156649 - 2 * math.log(2))
    assert statistics._trigamma(1) == pytest.approx(math.pi**2 / 6)
    assert statistics._trigamma(0.5) == pytest.approx(math.pi**2 / 2)
    assert statistics._trigamma_inverse(math.pi**2 / 6) == pytest.approx(1)


def test_all_cases_share_the_chance_of_a_false_alarm() -> None:
    each = statistics.chance_per_case(63)
    assert 1 - (1 - each) ** 63 == pytest.approx(0.05)
    assert statistics.chance_per_case(1) == 0.05
    assert statistics.chance_per_case(0) == 0.05


def test_spread_of_processes() -> None:
    assert statistics.log_variance([1.0]) is None
    found = statistics.log_variance([1.0, math.exp(0.02), math.exp(-0.02)])
    assert found == Spread(pytest.approx(0.0004), 2.0)  # (0 + 0.02^2 + 0.02^2) / 2
    same = statistics.log_variance([3.0, 3.0, 3.0])
    assert same is not None
    assert same.variance == pytest.approx(1e-8), "no timer is that sure"


def test_pooled_weighs_by_degrees() -> None:
    one, other = Spread(4.0, 3.0), Spread(1.0, 1.0)
    assert statistics.pool_spreads(one, other) == Spread(3.25, 4.0)
    assert statistics.pool_spreads(one, None) == statistics.pool_spreads(None, one) == one
    assert statistics.pool_spreads(None, None) is None


def test_a_prior_is_what_the_cases_have_in_common() -> None:
    """Variances of 4 degrees around 1e-6 scatter by chance alone, so that the prior has its largest weight."""
    draw = random.Random(1)
    variances = [1e-6 * sum(draw.gauss(0, 1) ** 2 for _ in range(4)) / 4 for _ in range(400)]
    found = statistics.fit_prior([Spread(value, 4.0) for value in variances])
    assert found is not None
    assert found.freedom == 10.0
    assert found.variance == pytest.approx(1e-6, rel=0.15)
    # Where each has its own over four decades, it says little.
    wide = [value * 10 ** draw.uniform(-2, 2) for value in variances]
    little = statistics.fit_prior([Spread(value, 4.0) for value in wide])
    assert little is not None
    assert little.freedom < 1.5
    assert statistics.fit_prior([Spread(1e-6, 4.0)] * 7) is None, "too few to learn from"


def test_the_threshold_of_one_case_follows_students_t() -> None:
    """Five processes with a standard deviation of 1 %: Student's t of 4 degrees times the noise of a difference."""
    test = statistics.learned_test(Spread(1e-4, 4.0), (5, 1), 0.0, statistics.chance_per_case(1))
    noise = 0.01 * math.sqrt(1 / 5 + 1)
    assert test.noise == pytest.approx(noise)
    assert test.threshold == pytest.approx(2.776 * noise, rel=1e-3), "never within the 95 % interval"
    of_many = statistics.learned_test(Spread(1e-4, 4.0), (5, 1), 0.0, 0.001)
    assert of_many.threshold == pytest.approx(7.173 * noise, rel=1e-3)
    assert of_many.smallest() == pytest.approx((7.173 + 2.132) * noise, rel=1e-3)
    assert of_many.smallest(times=2) > of_many.smallest()
    assert test.interval(0.05) == pytest.approx((0.05 - 2.776 * noise, 0.05 + 2.776 * noise), rel=1e-3)


def test_thresholds_have_a_minimum() -> None:
    quiet = statistics.learned_test(Spread(1e-8, 4.0), (5, 1), 0.0, 0.001)
    assert quiet.threshold == math.log1p(0.01)
    assert statistics.learned_test(Spread(1e-8, 4.0), (5, 1), 0.0, 0.001, least=0.04).threshold == math.log1p(0.04)
    wide = statistics.learned_test(Spread(1e-8, 4.0), (5, 1), 0.02, 0.001)
    assert wide.noise == pytest.approx(0.02, rel=1e-3)
    assert math.isinf(statistics.learned_test(Spread(1e-8, 4.0), (5, 1), math.inf, 0.001).threshold)


def test_standard_error_of_an_interval() -> None:
    assert statistics.standard_error(math.exp(-0.0196), math.exp(0.0196)) == pytest.approx(0.01, rel=1e-4)
    for low, high in ((0.0, 1.0), (1.0, math.inf), (2.0, 1.0), (math.nan, 1.0)):
        assert math.isinf(statistics.standard_error(low, high))


_times = st.floats(0.5, 2.0)
_widths = st.floats(0.0, 0.1)


@settings(max_examples=300, deadline=None)
@given(_times, _times, _widths, _widths, st.sampled_from([0.01, 0.03, 0.1]))
def test_single_processes_follow_the_rule_of_pairs(one: float, other: float, a: float, b: float, gate: float) -> None:
    first = {"time_ms": one, "time_ms_lo": one * (1 - a), "time_ms_hi": one * (1 + a)}
    second = {"time_ms": other, "time_ms_lo": other * (1 - b), "time_ms_hi": other * (1 + b)}
    low, high = sorted((first, second), key=lambda row: row["time_ms"])
    reaches = (math.log(low["time_ms_hi"] / low["time_ms"]), math.log(high["time_ms"] / high["time_ms_lo"]))
    test = statistics.plain_test(reaches, gate)
    difference = abs(math.log(other / one))
    if not math.isclose(difference, test.threshold, abs_tol=1e-9):  # at the very edge rounding decides
        assert (difference > test.threshold) == times_differ(first, second, gate=gate)


def test_normal_noise_raises_few_false_alarms() -> None:
    """Suites of 63 cases that vary as on an H200: few false alarms, and 5 % is found, with a fixed seed."""
    draw = random.Random(12)
    suites, cases, processes = 60, 63, 5
    alarms = confirmed = found = 0
    chance = statistics.chance_per_case(cases)
    for _ in range(suites):
        sds = [math.exp(draw.uniform(math.log(1e-4), math.log(6e-3))) for _ in range(cases)]
        noise = [[draw.gauss(0, sd) for _ in range(processes + 2)] for sd in sds]
        spreads = [statistics.log_variance([math.exp(value) for value in values[:processes]]) for values in noise]
        known = [one for one in spreads if one is not None]
        of_all = statistics.fit_prior(known)
        slower = []
        for values, own in zip(noise, known, strict=True):
            test = statistics.learned_test(statistics.moderate_spread(own, of_all), (processes, 1), 0.0005, chance)
            middle = sum(values[:processes]) / processes
            first, second = values[processes] - middle, values[processes + 1] - middle
            slower.append((first > test.threshold, second > test.threshold))
            found += min(first, second) + math.log(1.05) > test.threshold
        alarms += any(one for one, _ in slower)
        confirmed += any(one and other for one, other in slower)
    assert alarms <= 0.05 * suites
    assert confirmed == 0
    assert found >= 0.95 * suites * cases


@pytest.mark.parametrize(("processes", "share", "times"), [(2, 0.03, 30.0), (2, 0.1, 10.0), (3, 0.03, 30.0)])
def test_two_processes_raise_few_false_alarms(processes: int, share: float, times: float) -> None:
    """A few cases vary far more than the others: at most one suite of twenty has a false alarm."""
    draw = random.Random(5)
    suites, cases = 100, 63
    alarms = 0
    for _ in range(suites):
        sds = [0.002 * (times if draw.random() < share else 1.0) for _ in range(cases)]
        noise = [[draw.gauss(0, sd) for _ in range(processes + 1)] for sd in sds]
        spreads = [statistics.log_variance([math.exp(value) for value in values[:processes]]) for values in noise]
        known = [one for one in spreads if one is not None]
        of_all, slower = statistics.fit_prior(known), False
        for values, own in zip(noise, known, strict=True):
            wander = statistics.moderate_spread(own, of_all)
            test = statistics.learned_test(wander, (processes, 1), 0.0, statistics.chance_per_case(cases))
            slower |= values[-1] - sum(values[:-1]) / processes > test.threshold
        alarms += slower
    assert alarms <= 0.08 * suites  # 5 %, and what chance adds to a hundred suites


def test_the_smallest_change_is_found_95_times_in_100() -> None:
    """Cases that vary by 1 % are slowed by the smallest change that their test finds 95 times in 100."""
    draw = random.Random(3)
    cases, processes = 4000, 5
    found = 0
    for _ in range(cases):
        values = [draw.gauss(0, 0.01) for _ in range(processes + 1)]
        own = statistics.log_variance([math.exp(value) for value in values[:processes]])
        assert own is not None
        test = statistics.learned_test(own, (processes, 1), 0.0, 0.001)
        found += values[-1] + test.smallest() - sum(values[:processes]) / processes > test.threshold
    assert found / cases == pytest.approx(0.95, abs=0.015)


def test_one_try_needs_twice_the_change_of_two() -> None:
    found = [statistics.smallest_threshold(gate, tries) for gate, tries in ((None, 1), (None, 2), (0.001, 1))]
    assert found == [0.02, 0.01, 0.01]
