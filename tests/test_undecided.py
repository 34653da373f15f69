"""Undecided cases, cases whose samples have two states, and second tries."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from suites_of_states import KINDS, STEPS, Case, make_sides, make_suite
from test_compare import baseline, of, run, timed
from test_compare_command import bw, saved

import bwprof
from bwprof.records import baselines
from bwprof.records.baselines import Baseline
from bwprof.records.regression import comparison as causes
from bwprof.records.regression.comparison import Comparison, compare_sources
from bwprof.records.regression.statistics import measure_shift
from bwprof.records.source import load_source, make_source
from bwprof.results.schema import RowDict
from bwprof.runs import remeasure

__all__ = ["bw"]

WIDE = {"time_ms_lo": 0.7, "time_ms_hi": 1.6}


def of_samples(samples: Sequence[float], **more: Any) -> Baseline:
    """Return a run of one case with these samples, in ns, and an interval over all of them."""
    ordered = sorted(samples)
    ends = {"time_ms_lo": ordered[0] / 1e6, "time_ms_hi": ordered[-1] / 1e6}
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2e6
    return make_source("run", [timed("a", middle, **{**ends, **more})], [list(samples)])


def coins(seed: int, share: float = 0.5, factor: float = 1.0, count: int = 200) -> list[float]:
    """Return samples of 40 us, or with the chance `share` of 80 us."""
    toss = random.Random(seed)
    return [factor * (80e3 if toss.random() < share else 40e3) * math.exp(toss.gauss(0, 0.002)) for _ in range(count)]


def verdict(base: Baseline, new: Baseline, **options: Any) -> str:
    return compare_sources(base, new, **options).lines[0].verdict


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.5, 0.7])
def test_a_wide_interval_is_undecided(factor: float) -> None:
    wide = [timed("a", factor, time_ms_lo=0.6 * factor, time_ms_hi=1.7 * factor)]
    for base in ([timed("a", 1.0, **WIDE)], baseline(0.0005)):
        found = of(bwprof.compare(base, [*wide, *run()[1:]]), "a")
        assert found["verdict"] == "undecided"
        assert found["smallest_pct"] > 50


@pytest.mark.parametrize("factor", [0.999, 1.001])
@pytest.mark.parametrize("ends", [(0.6, 1.0), (1.0, 1.7)])
@pytest.mark.parametrize("wide_base", [True, False])
def test_an_interval_that_is_wide_on_one_side_is_undecided(
    factor: float, ends: tuple[float, float], wide_base: bool
) -> None:
    wide, sure = timed("a", factor, time_ms_lo=ends[0], time_ms_hi=ends[1]), timed("a", 1.0)
    assert bwprof.compare([wide if wide_base else sure], [sure if wide_base else wide])["verdict"].item() == "undecided"
    if not wide_base:
        assert of(bwprof.compare(baseline(0.0005), [wide, *run()[1:]]), "a")["verdict"] == "undecided"


def test_processes_far_apart_are_undecided() -> None:
    learned = bwprof.compare(baseline(0.2), run(a=0.5))
    assert of(learned, "a")["verdict"] == "undecided"
    assert set(learned["verdict"]) == {"undecided"}, "nor do those that look alike"


@pytest.mark.parametrize("fail_on", ["slower", "any", "5%", "20%", "never"])
def test_a_gate_is_incomplete_for_undecided_cases(bw: Here, fail_on: str) -> None:
    base, new = saved("x", run()), saved("y", [timed("a", 1.0, **WIDE), *run()[1:]])
    code, out, _ = bw("compare", base, new, "--fail-on", fail_on, "--no-confirm", "--json", "it.json", "--github")
    assert code == (0 if fail_on == "never" else 3)
    document = json.loads(Path("it.json").read_text())
    assert (document["undecided"], document["failed"]) == (["a fp32"], [])
    assert document["counts"] == {"undecided": 1, "same": 9}
    smallest = bwprof.compare(base, new)["smallest_pct"].iloc[0]
    assert f"a fp32 ({smallest:+.1f} %)" in " ".join(out.split())
    assert out.count("::error ") == (fail_on != "never")


def test_a_slower_case_fails_beside_an_undecided_one(bw: Here) -> None:
    new = saved("y", [timed("a", 1.0, **WIDE), *run(b=0.2)[1:]])
    assert bw("compare", saved("x", run()), new, "--fail-on", "5%", "--no-confirm")[0] == 1


def test_a_slower_case_whose_interval_exceeds_the_gate_is_undecided(bw: Here) -> None:
    """The interval reaches from 4 to 70 %."""
    base, ends = saved("x", run()), {"time_ms_lo": 1.039, "time_ms_hi": 1.7}
    found = compare_sources(load_source(base), load_source([timed("a", 1.04, **ends)]))
    assert found.lines[0].verdict == "slower"
    code = bw("compare", base, saved("y", [timed("a", 1.04, **ends), *run()[1:]]), "--fail-on", "5%", "--no-confirm")[0]
    assert code == 3


def test_an_interval_within_the_gate_passes_it(bw: Here) -> None:
    new = saved("y", [timed("a", 1.0, spread=0.06), *run()[1:]])
    base = saved("x", run())
    assert [bw("compare", base, new, "--fail-on", word, "--no-confirm")[0] for word in ("5%", "20%")] == [3, 0]


def test_a_disturbed_row_with_a_wide_interval_passes_no_gate(bw: Here) -> None:
    new = saved("y", [timed("a", 1.0, flags="noisy", disturbed_pct=20.0, **WIDE), *run()[1:]])
    assert bw("compare", saved("x", run()), new, "--fail-on", "5%", "--no-confirm")[0] == 3


@pytest.mark.parametrize("flag", ["two_states", "drifting"])
def test_a_row_with_two_states_is_undecided_without_samples(flag: str) -> None:
    for slower in (0.0, 0.5):
        found = bwprof.compare(run(), [timed("a", 1 + slower, flags=flag), *run()[1:]])
        assert found["verdict"].tolist() == ["undecided", *["same"] * 9]


def test_all_samples_slower_by_a_factor_are_a_change() -> None:
    base = of_samples(coins(1))
    assert verdict(base, of_samples(coins(2, factor=1.5))) == "slower"
    assert verdict(of_samples(coins(2, factor=1.5)), base) == "faster"
    assert verdict(base, of_samples(coins(2, factor=1.5)), metric="bandwidth_gb_s") == "slower"
    flagged = of_samples(coins(2, factor=1.5), flags="two_states")
    assert verdict(base, flagged) == "slower", "its samples say so"
    found = compare_sources(base, of_samples(coins(2, factor=1.5)))
    assert found.lines[0].change == pytest.approx(0.5, abs=0.02)
    assert found.lines[0].smallest < 0.1, "much less than what the medians would show"


@pytest.mark.parametrize(("before", "after"), [(0.4, 0.6), (0.3, 0.7), (0.1, 0.9)])
def test_other_shares_of_two_states_are_undecided(before: float, after: float) -> None:
    """The median doubles, and the intervals do not overlap."""
    base, new = of_samples(coins(1, before)), of_samples(coins(2, after))
    for one in (base, new):
        time = one.rows[0]["time_ms"]
        one.rows[0] |= {"time_ms_lo": 0.99 * time, "time_ms_hi": 1.01 * time}
    assert verdict(base, new) == "undecided"
    assert verdict(new, base) == "undecided"


def test_samples_outweigh_a_narrow_interval() -> None:
    """Both medians are of the fast state; 42 % of the samples are slow."""
    base, new = of_samples(coins(1, 0.42)), of_samples(coins(3, 0.42))
    for one in (base, new):
        time = one.rows[0]["time_ms"]
        one.rows[0] |= {"time_ms_lo": 0.999 * time, "time_ms_hi": 1.001 * time}
    assert abs(new.rows[0]["time_ms"] / base.rows[0]["time_ms"] - 1) < 0.01
    assert verdict(base, new) == "undecided"


def test_samples_of_another_measurement_are_ignored() -> None:
    base, new = of_samples(coins(1, 0.0)), of_samples(coins(2, 0.0))
    for name in ("time_ms", "time_ms_lo", "time_ms_hi"):
        new.rows[0][name] *= 1.2
    assert verdict(base, new) == "slower"


def test_a_shift_is_the_same_in_every_quantile() -> None:
    base = coins(1)
    found = measure_shift([base], [[1.25 * value for value in base]], None, 0.05)
    assert found is not None
    assert found.middle == pytest.approx([math.log(1.25)] * 5)
    assert all(low < math.log(1.25) < high for low, high in zip(found.low, found.high, strict=True))
    assert found.high[2] - found.low[2] > math.log(2), "the median's interval spans both states"
    assert found.high[0] - found.low[0] < 0.05
    assert found.is_longer(0.03)
    assert not found.is_longer(0.03, -1)


def test_the_interval_of_a_shift_has_the_variation_between_processes() -> None:
    """Student's t of four degrees of freedom is 2.7764; a mean of three has a third of the variance, a difference twice
    that.
    """
    side = [[math.exp(step)] * 30 for step in (-0.01, 0.0, 0.01)]
    found = measure_shift(side, side, None, 0.05)
    assert found is not None
    assert found.high == pytest.approx([2.7764 * 0.01 * math.sqrt(2 / 3)] * 5, rel=1e-4)


@pytest.mark.parametrize(("base", "new"), [(1, 1), (5, 1), (5, 5)])
def test_suites_with_states_raise_no_alarm_and_hide_no_change(base: int, new: int) -> None:
    """Of 24 cases a few have two states, and as many have two states and are slower."""
    draw = random.Random(4)
    states = [Case(f"s{step}{kind}", 0.002, step, kind) for step in STEPS for kind in KINDS[:2]]
    slow = [Case(f"slow{one.name}", one.wander, one.step, one.kind) for one in states]
    factors = {one.name: 1.5 for one in slow} | {"quiet0": 1.1, "quiet1": 1.1}
    for _ in range(8):
        found = compare_sources(*make_sides(draw, make_suite(draw, [*states, *slow], 24), base, new, factors))
        verdicts = {line.pair.row["case"]: line.verdict for line in found.lines}
        assert [name for name, word in verdicts.items() if word == "slower" and name not in factors] == []
        assert {verdicts["quiet0"], verdicts["quiet1"]} == {"slower"}
        assert {verdicts[one.name] for one in slow} <= {"slower", "undecided"}
        assert {verdicts[f"quiet{place}"] for place in range(2, 12)} == {"same"}


def test_five_processes_find_what_one_does_not() -> None:
    draw, slower = random.Random(5), {f"quiet{place}": 1.02 for place in range(20)}
    counts = []
    for base, new, tries in ((1, 1, 1), (5, 1, 2), (5, 5, 1)):
        lines = compare_sources(*make_sides(draw, make_suite(draw, [], 40), base, new, slower), tries=tries).lines
        called = {line.pair.row["case"] for line in lines if line.verdict == "slower"}
        counts.append(len(called))
        assert called <= set(slower)
    assert counts[0] <= 1
    assert min(counts[1:]) >= 18


def test_power_prints_how_often_two_percent_are_found(bw: Here) -> None:
    baselines.write_baseline(baseline(0.0005))
    new = saved("new", run())

    def cell(base: str) -> str:
        out = bw("compare", base, new, "--power")[1]
        return (
            next(line for line in out[out.index("smallest change") :].splitlines() if line.startswith("a fp32"))
            .split("|")[5]
            .strip()
        )

    assert cell("main") == "100"
    assert cell(new) == "0"


# Second tries.


def tried(found: Comparison, row: RowDict) -> str:
    return found.after_second_try({0: row}).lines[0].verdict


def test_a_second_try_clears_an_undecided_case_but_never_fails_it() -> None:
    found = compare_sources(load_source(run()), load_source([timed("a", 1.0, **WIDE), *run()[1:]]))
    assert found.lines[0].is_doubted("slower")
    assert tried(found, timed("a", 1.001)) == "same"
    assert tried(found, timed("a", 1.5)) == "undecided", "once is not twice"
    assert tried(found, timed("a", 1.0, **WIDE)) == "undecided"


def test_a_second_try_with_a_wide_interval_clears_nothing() -> None:
    found = compare_sources(load_source(run()), load_source(run(a=0.5)))
    assert tried(found, timed("a", 1.0, **WIDE)) == "undecided"
    assert tried(found, timed("a", 1.0)) == "same"
    suspect = compare_sources(
        load_source(run()), load_source([timed("a", 1.5, flags="noisy", disturbed_pct=20.0), *run()[1:]])
    )
    assert tried(suspect, timed("a", 1.0, **WIDE)) == "undecided"


def answering(*times: float) -> tuple[Callable[..., list[RowDict]], list[int]]:
    """Return a function that measures these times one after the other, and the list of its numbers of cases."""
    left, counts = list(times), []

    def measure(rows: Sequence[RowDict], *_: object, **__: object) -> list[RowDict]:
        counts.append(len(rows))
        time = left.pop(0)
        return [timed(row["case"], time) for row in rows]

    return measure, counts


def test_the_function_measures_again_as_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    measure, counts = answering(1.0)
    monkeypatch.setattr(remeasure, "measure_again", measure)
    new = run(a=0.10, b=0.10)
    assert bwprof.compare(run(), new)["verdict"].tolist()[:2] == ["slower", "slower"]
    assert counts == []
    assert bwprof.compare(run(), new, confirm=True)["verdict"].tolist()[:2] == ["same", "same"]
    assert counts == [2]
    with pytest.raises(TypeError, match="confirm is 'yes'"):
        bwprof.compare(run(), new, confirm="yes")  # type: ignore[arg-type]


def test_a_single_process_is_confirmed_up_to_five_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case with one state a process is slower by chance once, not five times."""
    measure, counts = answering(1.10, 1.10, 1.0)
    monkeypatch.setattr(remeasure, "measure_again", measure)
    assert of(bwprof.compare(run(), run(a=0.10), confirm=True), "a")["verdict"] == "same"
    assert counts == [1, 1, 1]
    measure, counts = answering(1.10)
    monkeypatch.setattr(remeasure, "measure_again", measure)
    assert of(bwprof.compare(baseline(), run(a=0.10), confirm=True), "a")["verdict"] == "slower"
    assert counts == [1]


# What differs between the runs, and what is shown first.


@pytest.mark.parametrize(
    ("before", "after", "phrase"),
    [
        (
            {"facts": {"note": "2 threads pinned to 2 CPUs; governor: x"}},
            {"facts": {"note": "1 thread pinned to 1 CPU; governor: x"}},
            "1 thread pinned to 1 CPU, before 2 threads pinned to 2 CPUs",
        ),
        ({"host": {"cpu_count": 8}}, {"host": {"cpu_count": 4}}, "cpu_count 4, before 8"),
        (
            {"facts": {"power_limit_w": 700.0}},
            {"facts": {"power_limit_w": 350.0}},
            "power_limit_w 350.0, before 700.0",
        ),
        ({"environment": {"OMP_NUM_THREADS": None}}, {"environment": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS 1"),
        ({"host": {"cpu_count": 8}}, {"host": {}}, ""),
        ({}, {"facts": 7}, ""),
    ],
)
def test_differences_between_the_runs_are_causes(before: dict[str, Any], after: dict[str, Any], phrase: str) -> None:
    found = compare_sources(make_source("x", run(), run=before), make_source("y", run(a=0.10), run=after))
    assert causes.compare_conditions(before, after) == found.conditions
    assert (phrase in found.cause(0)) if phrase else ("the runs differ" not in found.cause(0))
    assert found.cause(1) == ""


def test_another_device_is_printed_once_and_first(bw: Here) -> None:
    other = [one | {"device": "Other"} for one in run()]
    base, new = saved("x", run()), saved("y", other)
    out = bw("compare", base, new)[1]
    assert " ".join(out.split()).count("Test CPU, Other") == 1
    assert out.startswith("not comparable")
    assert "|" not in out
    assert sum("|" in line for line in bw("compare", base, new, "--all")[1].splitlines()) >= 10
