"""Comparisons of two runs: pairs, verdicts, causes and the frame, with results calculated by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rows import row

import bwprof
from bwprof.records.baselines import Baseline, BaselineCase, make_baseline
from bwprof.records.regression import comparison as causes
from bwprof.records.regression import report
from bwprof.records.regression.comparison import COLUMNS, compare_sources
from bwprof.records.regression.verdicts import VERDICTS
from bwprof.records.source import load_source, make_source
from bwprof.results import frame
from bwprof.results.schema import RowDict

CASES = tuple("abcdefghij")


def timed(case: str, ms: float, *, spread: float = 0.001, **more: Any) -> RowDict:
    """Return a row of 10 kB with a time and an interval around it."""
    ends = {"time_ms_lo": ms * (1 - spread), "time_ms_hi": ms * (1 + spread)}
    return row(case, "fp32", **{"time_ms": ms, "bandwidth_gb_s": 1e-2 / ms, **ends, "timer": "monotonic", **more})


def run(factor: float = 1.0, name: str = "run-1", **slower: float) -> list[RowDict]:
    """Return ten cases of 1 ms, times `factor`; some are slower by a fraction."""
    return [timed(case, factor * (1 + slower.get(case, 0.0)), run_id=name) for case in CASES]


def baseline(wander: float = 0.002) -> Baseline:
    """Return five processes at -1, -1/2, 0, 1/2 and 1 times `wander` around 1 ms (standard deviation 0.79 `wander`)."""
    steps = (0.0, 0.5, -0.5, 1.0, -1.0)
    runs = [run(math.exp(wander * step), f"run-{number}") for number, step in enumerate(steps)]
    return make_baseline("main", [(rows, [None] * len(rows), {"run_id": rows[0]["run_id"]}) for rows in runs])


def of(found: pd.DataFrame, case: str) -> dict[str, Any]:
    (line,) = found[found["case"] == case].to_dict(orient="records")
    return {str(name): value for name, value in line.items()}


def verdict(base: RowDict, new: RowDict, **options: Any) -> str:
    (line,) = bwprof.compare([base], [new], **options).to_dict(orient="records")
    return str(line["verdict"])


def test_the_frame_has_all_columns_for_each_case() -> None:
    found = bwprof.compare(run(), run(a=0.10, b=-0.10, c=0.02))
    assert tuple(found.columns) == COLUMNS
    promised = ["case", "precision", "variant", "base_ms", "new_ms", "speedup", "change_pct", "base_gb_s", "new_gb_s"]
    assert list(found.columns)[:10] == [*promised, "verdict"]
    assert found["verdict"].tolist() == ["slower", "faster", *["same"] * 8]
    slow = of(found, "a")
    assert (slow["base_ms"], slow["new_ms"]) == (1.0, pytest.approx(1.1))
    assert (slow["speedup"], slow["change_pct"]) == (pytest.approx(1 / 1.1), pytest.approx(10))
    assert (slow["base_gb_s"], slow["new_gb_s"]) == (pytest.approx(0.01), pytest.approx(0.01 / 1.1))
    assert slow["ratio"] == pytest.approx(1.1)
    assert slow["ratio_lo"] < 1.1 < slow["ratio_hi"]
    reach = math.hypot(math.log(1.001), math.log(1 / 0.999))  # of two intervals of 0.1 %
    assert math.log(slow["ratio_hi"] / slow["ratio"]) == pytest.approx(reach, rel=1e-3)
    assert (slow["base_ms_lo"], slow["new_ms_hi"]) == (pytest.approx(0.999), pytest.approx(1.1 * 1.001))
    assert (slow["base_processes"], slow["threshold_pct"]) == (1, pytest.approx(3))


def test_single_runs_need_three_percent_without_a_gate() -> None:
    new = run(a=0.02)
    assert of(bwprof.compare(run(), new), "a")["verdict"] == "same"
    assert of(bwprof.compare(run(), new, gate=0.01), "a")["verdict"] == "slower"
    assert of(bwprof.compare(run(), new, gate="1%"), "a")["verdict"] == "slower"
    wide = [timed("a", 1.02, spread=0.05)]
    found = bwprof.compare([timed("a", 1.0)], wide, gate=0.01)
    assert found["verdict"].tolist() == ["undecided"], "intervals overlap, and 7 % may hide"


def test_thresholds_follow_the_variation_between_processes() -> None:
    quiet = bwprof.compare(baseline(0.0005), run(a=0.03, b=0.015, c=-0.03))
    assert quiet["verdict"].tolist() == ["slower", "same", "faster", *["same"] * 7]
    assert quiet["threshold_pct"].tolist() == pytest.approx([2.0] * 10), "never below 2 % where one try decides"
    twice = compare_sources(load_source(baseline(0.0005)), load_source(run(a=0.015, b=0.005)), tries=2).frame()
    assert twice["verdict"].tolist() == ["slower", *["same"] * 9]
    assert twice["threshold_pct"].tolist() == pytest.approx([1.0] * 10), "nor below 1 % where two do"
    strict = bwprof.compare(baseline(0.0005), run(a=0.015), gate="0.1%")
    assert strict["threshold_pct"].tolist() == pytest.approx([1.0] * 10)
    assert set(quiet["base_processes"]) == {5}
    restless = bwprof.compare(baseline(0.02), run(a=0.02, b=0.05, c=0.3))
    assert restless["verdict"].tolist() == ["undecided", "undecided", "slower", *["undecided"] * 7], "4 % may hide"
    wider = bwprof.compare(baseline(0.02), run(a=0.02, b=0.05, c=0.3), gate=0.08)
    assert wider["verdict"].tolist() == ["same", "undecided", "slower", *["same"] * 7]
    # All cases wander alike: 4 own degrees of freedom and 10 of the others' make t; Sidak's chance of one in ten.
    sd = 0.02 * math.sqrt(2.5 / 4)
    expected = 3.27 * sd * math.sqrt(1 + 1 / 5)  # t of 14 degrees at 1 - 0.005116 is 2.96 to 3.0
    assert restless["threshold_pct"].iloc[0] == pytest.approx(100 * math.expm1(expected), rel=0.15)
    assert (restless["smallest_pct"] > restless["threshold_pct"]).all()
    assert restless["base_ms"].tolist() == pytest.approx([1.0] * 10), "the geometric mean"


def test_two_baselines_have_a_smaller_threshold_than_one() -> None:
    one = bwprof.compare(baseline(0.02), run())["threshold_pct"].iloc[0]
    two = bwprof.compare(baseline(0.02), baseline(0.02))
    assert two["threshold_pct"].iloc[0] < one
    assert set(two["new_processes"]) == {5}


def test_less_bandwidth_and_more_traffic_are_worse() -> None:
    found = bwprof.compare(run(), run(a=0.10, b=-0.10), metric="bandwidth_gb_s")
    assert found["verdict"].tolist()[:3] == ["slower", "faster", "same"]
    assert of(found, "a")["change_pct"] == pytest.approx(100 * (1 / 1.1 - 1))
    assert of(found, "a")["threshold_pct"] == pytest.approx(100 * (1 / 1.03 - 1))
    learned = bwprof.compare(baseline(), run(a=0.10), metric="bandwidth_gb_s")
    assert learned["verdict"].tolist()[:2] == ["slower", "same"]
    more = bwprof.compare(
        [timed("a", 1.0, traffic_ratio=1.0), timed("b", 1.0, traffic_ratio=1.0), timed("c", 1.0)],
        [timed("a", 1.0, traffic_ratio=1.2), timed("b", 1.0, traffic_ratio=1.01), timed("c", 1.0, traffic_ratio=1.0)],
        metric="traffic_ratio",
    )
    assert more["verdict"].tolist() == ["slower", "same", "not_comparable"]
    assert "--counters" in more["reason"].iloc[2]


def test_cases_of_one_side_are_listed() -> None:
    found = bwprof.compare(run()[:3], run()[1:5])
    assert dict(zip(found["case"], found["verdict"], strict=True)) == {
        "a": "only_in_base",
        "b": "same",
        "c": "same",
        "d": "only_in_new",
        "e": "only_in_new",
    }


def test_another_variant_is_compared_and_named() -> None:
    found = bwprof.compare([timed("a", 1.0)], [timed("a", 1.2, variant="tiled")])
    assert (found["verdict"].iloc[0], found["variant"].iloc[0]) == ("slower", "tiled")
    assert found["cause"].iloc[0].endswith(": tiled, before plain")
    several = bwprof.compare(
        [timed("a", 1.0), timed("a", 1.0, variant="tiled")], [timed("a", 1.0), timed("a", 1.0, variant="wide")]
    )
    assert several["verdict"].tolist() == ["same", "same"], "of each one is left"
    unclear = bwprof.compare([timed("a", 1.0)], [timed("a", 1.0, variant="tiled"), timed("a", 1.0, variant="wide")])
    assert unclear["verdict"].tolist() == ["only_in_base", "only_in_new", "only_in_new"]


def test_rows_of_other_arguments_are_not_compared() -> None:
    """Another value in the caller's own column is another case, also on another device."""
    base, new = [timed("f", 1.0, x=1), timed("f", 2.0, x=2)], [timed("f", 2.0, x=2), timed("f", 3.0, x=3)]
    assert bwprof.compare(base, new)["verdict"].tolist() == ["only_in_base", "same", "only_in_new"]
    elsewhere = [one | {"device": "Other"} for one in new]
    assert bwprof.compare(base, elsewhere)["verdict"].tolist() == ["only_in_base", "not_comparable", "only_in_new"]


@pytest.mark.parametrize(
    ("column", "words"),
    [("device", "another device: Test CPU, Other"), ("driver", "another driver: 1, Other"), ("timer", "another timer")],
)
def test_other_devices_drivers_and_timers_need_across(column: str, words: str) -> None:
    base, new = timed("a", 1.0, driver="1"), timed("a", 1.5, **{"driver": "1", column: "Other"})
    found = bwprof.compare([base], [new])
    assert found["verdict"].tolist() == ["not_comparable"]
    assert found[["ratio", "change_pct"]].isna().all(axis=None)
    assert found["reason"].iloc[0].startswith(words)
    across = bwprof.compare([base], [new], across=True)
    assert across["verdict"].tolist() == ["slower"]
    assert f"{column}" in across["cause"].iloc[0]


@pytest.mark.parametrize("flag", ["noisy", "throttled"])
def test_disturbed_rows_have_no_verdict(flag: str) -> None:
    for base, new in ((flag, ""), ("", flag)):
        found = bwprof.compare([timed("a", 1.0, flags=base)], [timed("a", 2.0, flags=new)])
        assert found["verdict"].tolist() == ["disturbed"]
        assert flag in found["reason"].iloc[0]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"flags": "near_timer_floor;unverified"}, "unverified"),
        ({"flags": "above_attainable"}, "above_attainable"),
        ({"flags": "near_timer_floor"}, ""),
    ],
)
def test_a_faster_row_with_doubts_has_a_reason(more: dict[str, Any], word: str) -> None:
    found = of(bwprof.compare([timed("a", 1.0)], [timed("a", 0.5, **more)]), "a")
    assert found["verdict"] == "faster"
    assert found["reason"] == f"{word} in the new run" if word else pd.isna(found["reason"])


def test_a_case_that_is_no_longer_measured_has_failed() -> None:
    base = timed("a", 1.0)
    none = {"time_ms": None, "bandwidth_gb_s": None}
    failed = timed("a", 1.0, **none, status="failed", reason="out of memory")
    skipped = timed("a", 1.0, **none, status="skipped", reason="too large")
    predicted = timed("a", 1.0, status="predicted")
    assert verdict(base, failed) == verdict(base, skipped) == "failed"
    assert bwprof.compare([base], [failed])["reason"].tolist() == ["failed: out of memory"]
    assert verdict(failed, base) == verdict(skipped, skipped) == verdict(base, predicted) == "not_comparable"


def test_a_wrong_result_is_a_failure() -> None:
    right, wrong = timed("a", 1.0, verified=True), timed("a", 0.5, verified=False, reason="output[0] is 2, not 1")
    assert verdict(right, wrong) == "failed"
    assert bwprof.compare([right], [wrong])["reason"].item().endswith("is 2, not 1")
    assert verdict(wrong, right) == "not_comparable"


@pytest.mark.parametrize(("ms", "phrase"), [(0.5, "not_comparable"), (1.0, "not_comparable"), (2.0, "slower")])
def test_an_unverified_row_is_not_faster_than_a_verified_one(ms: float, phrase: str) -> None:
    base, new = timed("a", 1.0, verified=True), timed("a", ms, flags="unverified", reason="output[0] is 2")
    assert verdict(base, new) == phrase
    assert verdict(base, new | {"flags": ""}) != "not_comparable", "nobody said that it is"
    assert verdict(timed("a", 1.0, flags="unverified"), new) != "not_comparable", "as before"
    if phrase == "not_comparable":
        words = "verified in the base, unverified in the new run: output[0] is 2"
        assert bwprof.compare([base], [new])["reason"].tolist() == [words]


@pytest.mark.parametrize("time", [0.0, -1.0, math.inf, math.nan, None])
def test_impossible_times(time: float | None) -> None:
    base, new = timed("a", 1.0), timed("a", 1.0) | {"time_ms": time}
    assert verdict(base, new) == "failed"
    assert verdict(new, base) == "not_comparable"
    assert "its time_ms is" in bwprof.compare([base], [new])["reason"].iloc[0]


def test_intervals_that_are_missing_or_infinite() -> None:
    without = {"time_ms_lo": None, "time_ms_hi": None}
    assert verdict(timed("a", 1.0, **without), timed("a", 1.04, **without)) == "slower", "the gate alone decides"
    endless = {"time_ms_lo": 0.0, "time_ms_hi": math.inf}
    found = bwprof.compare([timed("a", 1.0)], [timed("a", 2.0, **endless)])
    assert (found["verdict"].iloc[0], found["threshold_pct"].iloc[0]) == ("undecided", math.inf)
    assert found["reason"].notna().all()
    learned = bwprof.compare(baseline(), [timed("a", 2.0, **endless)])
    assert of(learned, "a")["verdict"] == "undecided", "twice the time is not the same"


def test_rows_with_equal_keys_are_compared_in_order() -> None:
    found = bwprof.compare([timed("a", 1.0), timed("a", 2.0)], [timed("a", 1.0), timed("a", 2.4), timed("a", 3.0)])
    assert found["verdict"].tolist() == ["same", "slower", "only_in_new"]


def several(*factors: float, process: str = "") -> list[RowDict]:
    """Return a run of all cases for each factor, in processes of their own or all in one."""
    return [
        one | {"process": process or f"p{number}"}
        for number, factor in enumerate(factors)
        for one in run(factor, f"{process}{number}")
    ]


def test_several_runs_of_a_side_are_joined() -> None:
    """The result is that of a baseline of these runs."""
    two = bwprof.compare(several(1.0, 1.02), run(a=0.10))
    assert len(two) == 10
    assert two["base_ms"].tolist() == pytest.approx([math.sqrt(1.02)] * 10)
    assert set(two["base_processes"]) == {2}
    runs = [(rows, [None] * 10, {"run_id": rows[0]["run_id"]}) for rows in (several(1.0, 1.02)[:10], run(1.02, "1"))]
    stored = bwprof.compare(make_baseline("main", runs), run(a=0.10))
    pd.testing.assert_frame_equal(two, stored, check_flags=False)
    new = bwprof.compare(run(), several(1.0, 1.02, 1.04))
    assert (len(new), set(new["new_processes"])) == (10, {3})


def test_runs_of_one_process_count_once() -> None:
    found = compare_sources(load_source(several(1.0, 1.02, process="p")), load_source(run(a=0.10)))
    assert {len(line.base.processes) for line in found.lines if line.base} == {1}
    assert found.notes[-1].startswith("frame: 10 cases")
    assert "one process" in found.notes[-1]
    assert "10 of 10 cases" in found.notes[0]


def test_a_failure_in_one_of_several_runs_is_not_hidden() -> None:
    new = several(1.0, 1.0)
    new[10] |= {"status": "failed", "reason": "out of memory", "time_ms": None}
    new[11] |= {"verified": False}
    found = bwprof.compare(run(), new)
    assert found["verdict"].tolist()[:3] == ["failed", "failed", "same"]
    assert bwprof.compare(new, run())["verdict"].tolist() == ["same"] * 10, "the base has them all the same"


def test_runs_with_other_drivers_are_not_joined() -> None:
    other = [one | {"driver": str(place // 10)} for place, one in enumerate(several(1.0, 2.0))]
    found = bwprof.compare(other, [one | {"driver": "0"} for one in run()])
    assert found["verdict"].tolist() == ["same"] * 10 + ["only_in_base"] * 10


def test_variants_without_a_name_in_common_are_listed() -> None:
    names = ("one", "two", "three")
    base, new = ([timed("a", 1.0, variant=f"{side} {name}") for name in names] for side in ("old", "new"))
    found = bwprof.compare(base, new)
    assert found["verdict"].tolist() == ["only_in_base"] * 3 + ["only_in_new"] * 3
    assert found["variant"].tolist() == [f"{side} {name}" for side in ("old", "new") for name in names]
    alone = bwprof.compare(base[:1], new[2:])
    assert alone["verdict"].tolist() == ["same"], "of each one is left"
    assert bwprof.compare(run()[:1], run()[1:2])["reason"].notna().all()


def test_parameters_distinguish_lines_of_one_case() -> None:
    rows = [timed("a", 1.0, M=1), timed("a", 1.0, M=2), timed("b", 1.0, M=1)]
    assert bwprof.compare(rows, rows)["parameters"].tolist() == ["M=1", "M=2", ""]


def test_the_same_file_twice_has_a_note(tmp_path: Path) -> None:
    data = frame.from_rows(run(), {"run_id": "run-1"})
    path = bwprof.save(data, tmp_path / "a.json")
    assert set(bwprof.compare(path, path)["verdict"]) == {"same"}
    found = compare_sources(load_source(path), load_source(path))
    assert "the same run" in found.notes[0]
    assert "the same run" not in " ".join(compare_sources(load_source(run()), load_source(run())).notes)


def test_files_with_nine_classic_columns_are_compared(tmp_path: Path) -> None:
    header = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written\n"
    for name, ms in (("a", 0.004), ("b", 0.005)):
        (tmp_path / f"{name}.csv").write_text(f"{header}decode,FP16,1,896,896,{ms},402.3,1607424,1792\n")
    found = bwprof.compare(tmp_path / "a.csv", tmp_path / "b.csv")
    assert found[["case", "precision", "verdict"]].values.tolist() == [["decode", "fp16", "slower"]]
    assert found["change_pct"].iloc[0] == pytest.approx(25)


def test_frames_files_and_baselines_are_alike(tmp_path: Path) -> None:
    base, new = frame.from_rows(run(), {"run_id": "1"}), frame.from_rows(run(a=0.1), {"run_id": "2"})
    paths = [bwprof.save(data, tmp_path / name) for data, name in ((base, "a.json"), (new, "b.csv"))]
    expected = bwprof.compare(base, new)
    pd.testing.assert_frame_equal(bwprof.compare(*paths), expected, check_flags=False)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gate": 0}, ValueError, "gate is 0"),
        ({"gate": "many"}, ValueError, "gate is 'many'"),
        ({"metric": "time"}, ValueError, "unknown metric 'time': did you mean 'time_ms'"),
        ({"across": "yes"}, TypeError, "across is 'yes'"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bwprof.compare(run(), run(), **options)


def test_sides_without_rows() -> None:
    with pytest.raises(ValueError, match="is empty"):
        bwprof.compare(frame.from_rows([]), run())
    with pytest.raises(TypeError):
        bwprof.compare(1, run())


# Of each rule: the columns of base and new that trigger it for a slower row, what it says, and such that must not.
RULES: dict[str, tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]] = {
    "variant": ({}, {"variant": "tiled"}, "another variant ran: tiled, before plain", {"variant": "plain"}),
    "throttled": (
        {"throttle": "none"},
        {"throttle": "sw_power_cap;hw_thermal"},
        "the clock was held down now: sw_power_cap, hw_thermal",
        {"throttle": "none"},
    ),
    "clock": (
        {"sm_clock_mhz": 1980.0},
        {"sm_clock_mhz": 1881.0},
        "the multiprocessors' clock fell by 5.0 %: 1881 MHz, before 1980",
        {"sm_clock_mhz": 1990.0},
    ),
    "traffic": (
        {"dram_bytes_read": 900_000, "dram_bytes_written": 100_000},
        {"dram_bytes_read": 1_020_000, "dram_bytes_written": 100_000},
        "DRAM traffic rose by 12.0 %: 1.12 MB, before 1.00",
        {"dram_bytes_read": 905_000, "dram_bytes_written": 100_000},
    ),
    "algorithm": (
        {"shared_wavefronts": 1000},
        {"shared_wavefronts": 1500},
        "another algorithm of this variant ran: shared_wavefronts rose by 50.0 %: 1500, before 1000",
        {"shared_wavefronts": 1001},
    ),
    "method": (
        {"buffer_sets": 40},
        {"buffer_sets": 4, "flags": "not_cold"},
        "measured in another way: 4 buffer sets, before 40, not_cold now",
        {"buffer_sets": 36},
    ),
    "roofs": (
        {"attainable_gb_s": 4000.0},
        {"attainable_gb_s": 3500.0},
        "the device's roof (attainable) fell by 12.5 %: 3500 GB/s, before 4000",
        {"attainable_gb_s": 3950.0},
    ),
    "ground": (
        {"driver": "1", "bwprof_version": "0.1"},
        {"driver": "2", "bwprof_version": "0.2"},
        "not the same ground: driver 2, before 1; bwprof 0.2, before 0.1",
        {"driver": "1", "bwprof_version": "0.1"},
    ),
}


@pytest.mark.parametrize("id", RULES)
def test_each_cause_applies_or_not(id: str) -> None:
    before, after, phrase, innocent = RULES[id]
    base = timed("a", 1.0, **before)
    assert causes.find_causes(base, timed("a", 1.1, **after), slower=True, explain=True) == phrase
    assert causes.find_causes(base, timed("a", 1.1, **innocent), slower=True) == ""
    assert "--counters" in causes.find_causes(base, timed("a", 1.1, **innocent), slower=True, explain=True)


def test_causes_depend_on_the_direction_of_the_change() -> None:
    """A lower clock explains a slower row, not a faster one."""
    slow, fast = timed("a", 1.1, sm_clock_mhz=1881.0, throttle="sw_thermal"), timed("a", 1.0, sm_clock_mhz=1980.0)
    assert causes.find_causes(slow, fast, slower=True, explain=True).startswith("not known")
    throttle, clock = causes.find_causes(slow, fast, slower=False, explain=True).split("; ")
    assert throttle.endswith("before: sw_thermal")
    assert clock.endswith("1980 MHz, before 1881")


def test_an_unknown_change_suggests_counters() -> None:
    counted = {"counters_status": "ok"}
    assert causes.find_causes(timed("a", 1.0), timed("a", 1.1), slower=True, explain=True).endswith("more bytes")
    assert causes.find_causes(timed("a", 1.1), timed("a", 1.0), slower=False, explain=True).endswith("fewer bytes")
    both = causes.find_causes(timed("a", 1.0, **counted), timed("a", 1.1, **counted), slower=True, explain=True)
    assert "--counters" not in both


@pytest.mark.parametrize(
    ("limiters", "phrase"),
    [
        (("memory", "memory"), ""),
        (("kernel", "kernel"), ""),
        (("compute", "compute"), "(measured arithmetic rate) rose by 9.4 %: 755 TFLOP/s, before 690"),
        (("kernel", "compute"), "(measured arithmetic rate) rose by 9.4 %: 755 TFLOP/s, before 690"),
        ((None, None), "(measured arithmetic rate) rose by 9.4 %: 755 TFLOP/s, before 690"),
    ],
)
def test_a_roof_that_does_not_limit_explains_nothing(limiters: tuple[str | None, str | None], phrase: str) -> None:
    """A higher arithmetic roof does not explain a faster memory-bound case."""
    base, new = (
        timed("a", time) | {"measured_tflops": rate, "limiter": limiter}
        for time, rate, limiter in zip((1.1, 1.0), (690.0, 755.0), limiters, strict=True)
    )
    found = causes.find_causes(base, new, slower=False)
    assert found.endswith(phrase)
    assert bool(found) == bool(phrase)


def test_a_case_is_slower_only_if_both_tries_are() -> None:
    found = compare_sources(load_source(run()), load_source(run(a=0.10, b=0.10, c=0.10)))
    again = found.after_second_try({0: timed("a", 1.09), 1: timed("b", 1.001), 2: "not at hand"})
    assert [line.verdict for line in again.lines[:3]] == ["slower", "same", "slower"]
    assert "+9.0 %: slower" in again.lines[0].reason
    assert again.lines[1].reason.startswith("slower at first; ")
    assert again.lines[1].reason.endswith("1 ms, +0.1 %")
    assert again.lines[2].reason.endswith(": not at hand")
    assert again.second_tries == {0: True, 1: True, 2: False}
    broken = found.after_second_try({0: timed("a", 1.0, status="failed", reason="gone", time_ms=None)})
    assert broken.lines[0].verdict == "slower"
    assert broken.lines[0].reason.endswith(" failed: gone")
    assert broken.second_tries == {0: True}


def test_a_single_try_needs_a_larger_change() -> None:
    found = compare_sources(load_source(baseline(0.0005)), load_source(run(a=0.015, b=0.03)), tries=2)
    assert [line.verdict for line in found.lines[:2]] == ["slower", "slower"]
    again = found.after_second_try({0: "not at hand", 1: "not at hand"})
    assert [line.verdict for line in again.lines[:2]] == ["same", "slower"]
    assert again.lines[0].reason.startswith("slower at first; ")
    assert again.lines[0].reason.endswith(" needs 2 %")
    assert again.lines[1].reason.endswith(": not at hand")


def test_a_disturbed_second_try_clears_nothing() -> None:
    found = compare_sources(load_source(run()), load_source(run(a=0.10, b=0.10)))
    noisy = {"flags": "near_timer_floor;noisy"}
    again = found.after_second_try({0: timed("a", 1.10, **noisy), 1: timed("b", 1.0, **noisy)})
    assert [line.verdict for line in again.lines[:2]] == ["slower", "disturbed"]
    assert "+10.0 %, noisy: slower" in again.lines[0].reason
    assert again.lines[1].reason.startswith("slower at first; ")
    assert again.lines[1].reason.endswith("ms, +0.0 %, noisy")


def test_a_second_try_with_another_driver_does_not_count() -> None:
    found = compare_sources(load_source([timed("a", 1.0, driver="1")]), load_source([timed("a", 1.1, driver="1")]))
    again = found.after_second_try({0: timed("a", 1.0, driver="2")})
    assert again.lines[0].verdict == "slower"
    assert again.lines[0].reason.endswith(" driver: 1, 2")
    assert again.second_tries == {0: False}


@pytest.mark.parametrize(
    ("slow", "fail_on", "fails"),
    [
        (0.10, "slower", True),
        (0.10, 0.05, True),
        (0.0499, 0.05, True),  # 5 % is within its interval
        (0.045, 0.05, False),
        (0.10, "never", False),
        (-0.10, "slower", False),
        (-0.10, "any", True),
        (0.02, "any", False),
    ],
)
@pytest.mark.parametrize("metric", ["time_ms", "bandwidth_gb_s"])
def test_gates(slow: float, fail_on: str | float, fails: bool, metric: str) -> None:
    # A rate falls by 4.8 % where the time rises by 5 %: the same change.
    found = compare_sources(load_source(run()), load_source(run(a=slow)), metric=metric)
    assert found.lines[0].fails(fail_on) == fails
    assert not found.lines[1].fails(fail_on)


_odd = st.sampled_from([None, 0.0, -1.0, 5e-324, 1e-300, 1e-3, 1.0, 1.01, 1e300, math.inf, math.nan])
_COLUMNS = ("time_ms", "time_ms_lo", "time_ms_hi", "bandwidth_gb_s", "traffic_ratio", "sm_clock_mhz")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(_COLUMNS), _odd), min_size=1, max_size=4),
    st.lists(st.dictionaries(st.sampled_from(_COLUMNS), _odd), min_size=1, max_size=4),
    st.sampled_from(["time_ms", "bandwidth_gb_s", "traffic_ratio"]),
    st.booleans(),
)
@example(one=[{"time_ms": 1e-300, "time_ms_lo": 1e300}], other=[{}], metric="bandwidth_gb_s", several=True)
def test_any_figures_get_a_verdict(
    one: list[dict[str, Any]], other: list[dict[str, Any]], metric: str, several: bool
) -> None:
    """Each row gets a verdict that can be formatted, whatever numbers it holds."""
    base, new = ([timed("a", 1.0, M=n) | odd for n, odd in enumerate(odds)] for odds in (one, other))
    ends = [[odd["time_ms_lo"]] if several and odd.get("time_ms_lo") else [] for odd in one]
    cases = [
        BaselineCase(tuple(line | {"time_ms": ms, "process": str(ms)} for ms in (line["time_ms"], *more)), (None,) * 2)
        for line, more in zip(base, ends, strict=True)
    ]
    found = compare_sources(Baseline("base", tuple(cases)), make_source("new", new), metric=metric)
    assert {line.verdict for line in found.lines} <= set(VERDICTS)
    assert len(found.frame()) == max(len(base), len(new))
    assert report.format_summary(found)
    assert all(report.format_change(line) for line in found.tested)
    assert report.detail_lines(found, range(len(found.lines))) is not None
    result = found.after_second_try({place: timed("a", 1.0) for place in range(len(found.lines))})
    assert len(result.lines) == len(found.lines)


def test_huge_differences_are_formatted() -> None:
    disturbed = compare_sources(load_source([timed("a", 1e-29, flags="noisy")]), load_source([timed("a", 1e29)]))
    assert report.format_change(disturbed.lines[0]) == ">999 %"
    slower = compare_sources(load_source([timed("a", 1.0)]), load_source([timed("a", 2e9)]))
    assert report.format_change(slower.lines[0]) == "2e+09x slower"
    assert slower.frame()["change_pct"].iloc[0] == pytest.approx(2e11)
