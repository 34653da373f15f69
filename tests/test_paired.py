"""A/B comparisons: statistics by published tables, turns on made-up machines."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import bwprof
from bwprof import _core, errors
from bwprof.experiments import ab, ab_run, ab_session, ab_sides
from bwprof.experiments.ab_run import describe_row
from bwprof.experiments.ab_session import (
    FAILED,
    INTERRUPTED,
    OUT_OF_TIME,
    PRECISE,
    Comparison,
    Ratio,
    StopRule,
    ratio_of,
    time_of,
    verdict_of,
)
from bwprof.experiments.ab_sides import Call, CaseSide, SideError, SideInfo, later_timer, task_from_dict, task_to_dict
from bwprof.measuring.operation import Spec
from bwprof.runs.plan import SweepRequest

# ---- statistics


@pytest.mark.parametrize(
    ("count", "critical"), [(8, 0), (9, 1), (10, 3), (12, 7), (15, 15), (20, 37), (25, 68), (30, 109), (50, 373)]
)
def test_the_interval_ends_at_the_critical_signed_ranks(count: int, critical: int) -> None:
    """Wilcoxon's T at 1 %, two-sided, as the tables have it (McCornack 1965): the interval ends at the next pair."""
    assert ab_session._dropped(count, 0.99) == critical + 1


@pytest.mark.parametrize("count", [8, 9, 10, 12])
def test_the_interval_counts_all_signs_of_the_ranks(count: int) -> None:
    sums = sorted(sum(rank for rank in range(1, count + 1) if signs >> (rank - 1) & 1) for signs in range(2**count))
    rare = math.floor(0.005 / 2 * 2**count)  # so many of the smallest sums may be missed at either end
    allowed = [total for total in range(count * (count + 1)) if sum(one <= total for one in sums) <= rare]
    assert ab_session._dropped(count, 0.995) == len(allowed)


def test_too_few_units_are_undecided() -> None:
    found = ratio_of([0.5] * 8)
    assert (found.low, found.high, found.half_width) == (0.0, math.inf, math.inf)
    assert verdict_of(found) == ab_session.UNDECIDED
    assert math.isnan(ratio_of([]).value)
    assert verdict_of(ratio_of([])) == ab_session.UNDECIDED


def test_many_units_follow_the_normal_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = ab_session._dropped(60, 0.99)
    monkeypatch.setattr(ab_session, "_EXACT", 0)
    assert abs(ab_session._dropped.__wrapped__(60, 0.99) - exact) <= 5  # of 1 830 pairs
    monkeypatch.undo()
    rng = np.random.default_rng(1)
    found = ratio_of(rng.normal(math.log(1.03), 0.2, 4001))
    assert found.units == 4001
    assert found.low < 1.03 < found.high
    assert 0.007 < found.half_width < 0.011  # 2.807 x 0.2 / sqrt(4001) = 0.0089


def test_one_disturbed_block_does_not_move_the_ratio() -> None:
    units = [0.020, 0.021, 0.019, 0.020, 0.022, 0.018, 0.020, 0.021, 0.019, 0.020]
    quiet, disturbed = ratio_of(units), ratio_of([*units[:-1], 3.0])
    assert math.log(disturbed.value) == pytest.approx(math.log(quiet.value), abs=0.001)


def test_a_sides_time_is_the_lower_quartile_of_its_samples() -> None:
    assert time_of([5.0]) == 5.0
    assert time_of([4.0, 3.0, 2.0, 1.0]) == 1.0
    assert time_of([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]) == 2.0
    assert time_of([9.0, 2.0, 1.0, 3.0, 40.0, 5.0]) == 2.0


def test_the_interval_of_nine_units_has_all_of_them() -> None:
    ratio = ratio_of([0.01, 0.03, 0.02, 0.02, 0.02, 0.01, 0.03, 0.02, 0.02])
    assert [math.log(value) for value in (ratio.low, ratio.value, ratio.high)] == pytest.approx([0.01, 0.02, 0.03])


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.02, 1.015, 1.025, "slower"),
        (0.98, 0.97, 0.99, "faster"),
        (1.001, 0.998, 1.004, "same"),
        (1.03, 0.97, 1.1, "undecided"),
        (1.004, 1.002, 1.006, "same"),
        (1.009, 1.005, 1.013, "undecided"),
        (1.012, 1.002, 1.022, "undecided"),
    ],
)
def test_a_verdict_needs_ratio_and_interval(value: float, low: float, high: float, verdict: str) -> None:
    """At a gate of 1 % B differs if its ratio is beyond 1 % and the interval beyond half of that."""
    assert verdict_of(Ratio(value, low, high, 90)) == verdict


@pytest.mark.parametrize(("high", "exceeds"), [(1.03, None), (1.015, False), (None, None)])
def test_an_undecided_b_may_exceed_a_limit(high: float | None, exceeds: bool | None) -> None:
    assert ab_session.exceeds_limit(1.01, high, ab_session.UNDECIDED, 0.02) is exceeds


@pytest.mark.parametrize(
    ("text", "is_call"), [("kernels.attention:decode", True), ("bench/old.py:run", True), ("copy", False)]
)
def test_names_of_functions(text: str, is_call: bool) -> None:
    assert ab_sides.is_call(text) is is_call


def test_a_limit_is_exceeded_only_by_a_slower_b() -> None:
    assert ab_session.exceeds_limit(1.03, 1.04, ab_session.SLOWER, 0.02)
    assert ab_session.exceeds_limit(1.015, 1.02, ab_session.SLOWER, 0.02) is False
    assert ab_session.exceeds_limit(1.5, 1.6, ab_session.UNDECIDED, 0.02) is None


# ---- turns on made-up machines


class Machine:
    """A clock that advances as sides work, on a machine that drifts and has bursts of other work."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.busy = 0
        self.random = random.Random(seed)

    def clock(self) -> float:
        return self.now

    def launch(self, ns: float) -> float:
        drift = 1 + 0.25 * math.sin(self.now / 3.0) + 0.02 * self.now
        burst = 1 + self.random.expovariate(1) if self.random.random() < 0.3 else 1.0
        taken = ns * drift * burst * (1 + abs(self.random.gauss(0, 0.004)))
        self.now += taken * 1e-9
        return taken


class FakeSide:
    """A side on such a machine; `luck` is the cost of badly placed buffers."""

    def __init__(self, machine: Machine, ns: float, luck: float = 0.0, **told: Any) -> None:
        self._machine, self._ns, self._luck = machine, ns, luck
        self._told: dict[str, Any] = {"title": "fake", "timer": "graph", "renewable": luck > 0} | told
        self._now_ns = ns
        self.asked: list[str] = []

    def open(self, timer: str | None = None) -> SideInfo:
        self.asked.append(f"open {timer}")
        self._now_ns = self._ns * (1 + self._luck * self._machine.random.random())
        self._machine.now += 0.02
        return SideInfo(**{"sample_ns": 1e6, **self._told} | ({"timer": timer} if timer else {}))

    def turn(self, samples: int) -> list[float]:
        assert self._machine.busy == 0, "one works at a time"
        self._machine.busy += 1
        self.asked.append(f"turn {samples}")
        found = [self._machine.launch(self._now_ns) for _ in range(samples)]
        self._machine.busy -= 1
        return found

    def close(self) -> None:
        self.asked.append("close")


def compared(sides: Sequence[Any], machine: Machine, how: StopRule | None = None, **options: Any) -> Comparison:
    found = Comparison(sides, how or StopRule(max_seconds=6.0), clock=machine.clock, **options)
    found.run()
    return found


def alarms(ratio: float, luck: float, seconds: float, tries: int = 40) -> list[str]:
    verdicts = []
    for seed in range(tries):
        machine = Machine(seed)
        sides = [FakeSide(machine, 1e6, luck), FakeSide(machine, 1e6 * ratio, luck)]
        found = compared(sides, machine, StopRule(max_seconds=seconds, seed=seed))
        verdicts.append(verdict_of(found.ratio, found.rule.gate))
    return verdicts


@pytest.mark.parametrize("luck", [0.0, 0.2])
def test_equal_sides_are_same_on_a_drifting_machine(luck: float) -> None:
    verdicts = alarms(1.0, luck, 3.0)
    assert verdicts.count("slower") + verdicts.count("faster") <= 1
    if not luck:
        assert verdicts.count("same") >= 35


def test_two_percent_are_found_on_a_drifting_machine() -> None:
    assert alarms(1.02, 0.0, 6.0).count("slower") >= 38
    assert alarms(1 / 1.02, 0.0, 6.0, 10).count("faster") >= 9


def test_the_seed_decides_the_orders() -> None:
    orders = []
    for _ in range(2):
        machine = Machine(7)
        orders.append(compared([FakeSide(machine, 1e6), FakeSide(machine, 1e6)], machine, StopRule(seed=3)).orders)
    assert orders[0] == orders[1]
    assert set(orders[0]) == {"ABBA", "BAAB"}
    machine = Machine(7)
    other = compared([FakeSide(machine, 1e6), FakeSide(machine, 1e6)], machine, StopRule(seed=4)).orders
    assert other[:20] != orders[0][:20]


def test_it_stops_if_the_ratio_is_precise_or_the_time_is_over() -> None:
    machine = Machine(1)
    sides = [FakeSide(machine, 1e6), FakeSide(machine, 1e6)]
    found = compared(sides, machine, StopRule(rel_ci=0.5, max_seconds=100.0))
    assert (found.stopped, len(found.units), found.pairs) == (PRECISE, ab_session.LEAST_UNITS, 18)
    found = compared(sides, machine, StopRule(rel_ci=1e-6, max_seconds=0.5))
    assert found.stopped == OUT_OF_TIME
    assert found.seconds == pytest.approx(0.5, abs=0.1)
    found = compared(sides, machine, StopRule(max_seconds=1e-9))
    assert (found.stopped, len(found.units)) == (OUT_OF_TIME, 1), "one block is measured in any case"


@pytest.mark.parametrize(("sample_ns", "samples"), [(1e6, 4), (50e6, 2), (2e9, 1)])
def test_turns_of_slow_launches_are_shorter(sample_ns: float, samples: int) -> None:
    machine = Machine(1)
    sides = [FakeSide(machine, 1e6), FakeSide(machine, 1e6, sample_ns=sample_ns)]
    compared(sides, machine, StopRule(max_seconds=0.01))
    assert f"turn {samples}" in sides[0].asked
    assert f"turn {samples}" in sides[1].asked


def test_a_unit_is_the_time_on_the_same_buffers() -> None:
    machine = Machine(1)
    sides = [FakeSide(machine, 1e6, 0.1), FakeSide(machine, 1e6, 0.1)]
    found = compared(sides, machine, StopRule(rel_ci=1e-6, max_seconds=3.0))
    assert found.renewals == len(found.units) > ab_session.LEAST_UNITS
    assert len(found.orders) > 1.5 * len(found.units), "about as long is measured as it takes to open them"
    assert sides[0].asked.count("open None") == found.renewals
    kept = [FakeSide(machine, 1e6), FakeSide(machine, 1e6)]
    found = compared(kept, machine, StopRule(rel_ci=1e-6, max_seconds=1.0))
    assert (found.renewals, len(found.units)) == (1, len(found.orders))


def test_two_timers_are_not_compared() -> None:
    """Both sides use the later of two timers."""
    machine = Machine(1)
    sides = [FakeSide(machine, 1e6, timer="cupti"), FakeSide(machine, 1e6, timer="events")]
    found = compared(sides, machine, later_timer=lambda _one, _other: "events")
    assert [one.timer for one in found.opened] == ["events", "events"]
    assert "open events" in sides[0].asked

    class Stubborn(FakeSide):
        def open(self, timer: str | None = None) -> SideInfo:  # noqa: ARG002 - which it does not have
            return super().open()

    found = compared([Stubborn(machine, 1e6, timer="cupti"), sides[1]], machine)
    assert (found.stopped, found.failed) == (FAILED, None)
    assert {"cupti", "events"} <= set(found.reason.replace(":", "").split())
    assert later_timer("monotonic", "monotonic", "cpu") == "monotonic"


def failing(error: BaseException, after: int) -> type[FakeSide]:
    class Failing(FakeSide):
        def turn(self, samples: int) -> list[float]:
            if sum(word.startswith("turn") for word in self.asked) >= after:
                raise error
            return super().turn(samples)

    return Failing


def test_a_failed_side_is_named_and_the_units_stay() -> None:
    machine = Machine(1)
    cause = ZeroDivisionError("by zero")
    error = SideError("ZeroDivisionError: by zero")
    error.__cause__ = cause
    found = compared([FakeSide(machine, 1e6), failing(error, 20)(machine, 1e6)], machine, StopRule(rel_ci=1e-6))
    assert (found.stopped, found.failed, found.reason) == (FAILED, 1, f"side B: {error}")
    assert found.cause is cause
    assert len(found.units) == 10


def test_an_interrupt_keeps_the_units() -> None:
    machine = Machine(1)
    sides = [failing(KeyboardInterrupt(), 21)(machine, 1e6), FakeSide(machine, 1e6)]
    found = Comparison(sides, StopRule(rel_ci=1e-6), clock=machine.clock)
    with pytest.raises(KeyboardInterrupt):
        found.run()
    assert (found.stopped, len(found.units)) == (INTERRUPTED, 10)


def test_a_time_of_zero_fails() -> None:
    machine = Machine(1)
    found = compared([FakeSide(machine, 0.0), FakeSide(machine, 1e6)], machine)
    assert (found.stopped, found.failed, found.orders) == (FAILED, None, [])
    assert "resolution" in found.reason


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"shape": [3, 4]}, {"shape": [4, 3]}, r"shape of A is \[3, 4\], of B \[4, 3\]"),
        ({"operation": "x"}, {"operation": "y"}, "operation of A is x, of B y"),
        ({"params": {"M": 1, "more": 2}}, {"params": {"M": 2}}, "M of A is 1, of B 2"),
    ],
)
def test_different_work_is_not_compared(one: dict[str, Any], other: dict[str, Any], said: str) -> None:
    base: dict[str, Any] = {"title": "", "timer": "", "sample_ns": 1.0, "renewable": False}
    with pytest.raises(SideError, match=said):
        ab_run.check_same_work([SideInfo(**base, **one), SideInfo(**base, **other)])
    ab_run.check_same_work([SideInfo(**base, **one), SideInfo(**base)])


def test_an_opening_moves_the_buffers(cpu: _core.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random amount of memory is allocated before the buffers of a side."""
    drawn: list[int] = []

    def randrange(least: int, most: int) -> int:
        drawn.append(most)
        return least

    monkeypatch.setattr("bwprof.experiments.ab_sides.random.randrange", randrange)
    ((work, _),) = ab.make_tasks("gemm", "gemm", {"M": 2, "N": 8, "K": 8}, SweepRequest(caches=("hot",)), "cpu")
    assert isinstance(work, Spec)
    side = CaseSide(cpu, work)
    assert side.open().renewable
    assert side.open().verified
    side.close()
    assert len(drawn) == 2


# ---- tasks


def test_operations_and_functions_by_name() -> None:
    pairs = ab.make_tasks("gemm:naive", "gemm", {"M": [1, 2]}, SweepRequest(precisions=("fp32", "fp16")), "cpu")
    assert [(a.case, a.precision, a.variant, b.variant) for a, b in pairs] == [  # type: ignore[union-attr]
        ("gemm", "fp32", "naive", None),
        ("gemm", "fp16", "naive", None),
        ("gemm M=2", "fp32", "naive", None),
        ("gemm M=2", "fp16", "naive", None),
    ]
    ((call, other),) = ab.make_tasks("a.b:c", "file.py:c", {"n": 3}, SweepRequest(caches=("hot",)), "cpu")
    assert (call, other) == (Call("a.b:c", {"n": 3}, "hot"), Call("file.py:c", {"n": 3}, "hot"))
    for work in (*pairs[0], call):
        assert task_from_dict(task_to_dict(work)) == work


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("gem", "gemm", "side A: unknown operation 'gem': did you mean 'gemm'"),
        ("gemm", "gem:naive", "side B: unknown operation 'gem': did you mean 'gemm'"),
        ("gemm:nave", "gemm", "unknown variant of gemm on cpu 'nave': did you mean 'naive'"),
        ("gemm", "kernels:new", "A is gemm and B kernels:new"),
        ("gemm", "kv_append", "A is gemm and B kv_append"),
        ("k:a", "k b", "side B: unknown operation 'k b'"),
    ],
)
def test_sides_that_cannot_be_compared_are_refused(a: str, b: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ab.make_tasks(a, b, {}, SweepRequest(), "cpu")


# ---- bwprof.ab


QUICK: dict[str, Any] = {"device": "cpu", "cache": "hot", "threads": 1, "rel_ci": 0.9, "max_seconds": 60}


def working(amount: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(amount):
            sum(range(1000))

    return work


def test_three_times_the_work_is_slower() -> None:
    found = bwprof.ab(working(2), working(6), **QUICK)
    (row,) = found.to_dict(orient="records")
    assert (row["verdict"], row["stopped"], row["verified"]) == ("slower", "precise", None)
    assert 2 < row["ratio"] < 4.5
    assert row["ratio_lo"] < row["ratio"] < row["ratio_hi"]
    assert row["b_time_ms"] > row["a_time_ms"] > 0
    assert row["pairs"] == 2 * len(found.attrs["pairs"][0]["orders"]) == 2 * row["units"]
    assert found.attrs["run"]["how"]["rel_ci"] == 0.9
    assert found.attrs["run"]["status"] == "complete"
    assert "B is slower" in describe_row(row)
    assert f"{100 * (row['ratio'] - 1):+.2f} %" in describe_row(row)


def test_variants_are_verified_and_measured_in_this_process() -> None:
    found = bwprof.ab("gemm:naive", "gemm:naive", M=2, N=32, K=32, **QUICK)
    (row,) = found.to_dict(orient="records")
    assert (row["a"], row["verified"], row["operation"]) == ("gemm:naive", True, "gemm")
    assert row["case"].split() == ["gemm", "M=2", "N=32", "K=32", "fp32"]
    assert row["renewals"] == row["units"]
    assert "noise" in row["reason"], "A and B do not differ"
    assert row["a_gb_s"] > 0


def test_an_exception_of_a_side_is_the_cause() -> None:
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    with pytest.raises(errors.PairedError, match="side B: ZeroDivisionError") as caught:
        bwprof.ab(working(1), broken, **QUICK)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.frame["stopped"].tolist() == ["failed"]


def test_arrays_are_compared() -> None:
    ones, twos = np.ones(8), np.full(8, 2.0)
    (row,) = bwprof.ab(lambda: ones, ones.copy, **QUICK).to_dict(orient="records")
    assert row["verified"] is True
    (row,) = bwprof.ab(lambda: ones, lambda: twos, **QUICK).to_dict(orient="records")
    assert row["verified"] is None
    assert "B against A" in row["reason"]
    with pytest.raises(errors.PairedError, match=r"B .* tolerance 0.5"):
        bwprof.ab(lambda: ones, lambda: twos, tolerance=0.5, **QUICK)
    with pytest.raises(errors.PairedError, match=r"shape .*\[8\], .*\[4\]"):
        bwprof.ab(lambda: ones, lambda: ones[:4], **QUICK)


def test_an_interrupt_has_the_rows_so_far() -> None:
    calls = []

    def impatient() -> None:
        calls.append(None)
        if len(calls) > 400:
            raise KeyboardInterrupt
        sum(range(30000))

    with pytest.raises(KeyboardInterrupt) as caught:
        bwprof.ab(working(1), impatient, **QUICK | {"rel_ci": 1e-6})
    (row,) = caught.value.frame.to_dict(orient="records")  # type: ignore[attr-defined]
    assert (row["stopped"], row["pairs"] > 0) == ("interrupted", True)


@pytest.mark.parametrize(
    ("a", "b", "options", "kind", "said"),
    [
        (print, None, {}, ValueError, "only A was named: B is needed as well"),
        (print, "gemm", {}, TypeError, "two callables or two names are needed"),
        (None, print, {}, TypeError, "a is None"),
        (print, 3, {}, TypeError, "b is 3, a callable is needed"),
        (print, print, {"precision": "fp16"}, ValueError, "precision goes with names"),
        (print, print, {"M": 1}, ValueError, "M goes with names"),
        ("gemm", "gemm", {"tolerance": 0.1}, ValueError, "tolerance goes with two callables"),
        ("gemm", "gemm", {"python": ["a", "b", "c"]}, ValueError, "there are 3 interpreters"),
        (
            "gemm",
            "gemm",
            {"python": "/nowhere/python"},
            ValueError,
            "no interpreter ./nowhere/python.",
        ),
        ("gemm", "gemm", {"revision": "HEAD"}, ValueError, "revisions are HEAD"),
        ("gemm", "gemm", {"build": "make"}, ValueError, "a build goes with revisions"),
        ("gemm", "gemm", {"rel_ci": 2}, ValueError, "rel_ci is 2"),
        ("gemm", "gemm", {"max_seconds": 0}, ValueError, "max_seconds is 0"),
        ("gemm", "gemm", {"threads": 0}, ValueError, "threads is 0"),
        ("gemm", "gemm", {"precision": "q4_1"}, ValueError, "unknown precision 'q4_1'"),
        ("gemm", "gemm", {"Q": 1}, ValueError, "unknown parameter of gemm 'Q'"),
    ],
)
def test_arguments_are_checked(a: Any, b: Any, options: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        bwprof.ab(a, b, **{"device": "cpu"} | options)
