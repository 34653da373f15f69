"""Roofs from hand-made points: every expected number below is worked out by hand."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import row

from bwprof import _core, hardware
from bwprof.measuring import grade, operation
from bwprof.measuring.row import Context, Outcome
from bwprof.roofs import survey
from bwprof.roofs.model import Rate, RoofCheck, RoofPoint, Roofs

pytestmark = pytest.mark.usefixtures("ordinary_cache")

# read: 100 GB/s at 1 MB (10 us), 200 GB/s at 100 MB; write: 50 and 100; copy (half read): 80 and 160 GB/s.
POINTS = (
    RoofPoint("r", 1.0, 1_000_000, 10e-6),
    RoofPoint("r", 1.0, 100_000_000, 500e-6),
    RoofPoint("w", 0.0, 1_000_000, 20e-6),
    RoofPoint("w", 0.0, 100_000_000, 1000e-6),
    RoofPoint("c", 0.5, 1_000_000, 12.5e-6),
    RoofPoint("c", 0.5, 100_000_000, 625e-6),
)
ROOFS = Roofs("Test CPU", "", "6.1", "0", 2e-6, POINTS)
FACTS = {"name": "Test CPU", "uuid": "", "driver": "6.1", "peak_gb_s": 250.0, "peak_tflops": {"fp32": 1.0}}


@pytest.mark.parametrize(
    ("read", "written", "gb_s"),
    [
        (100_000_000, 0, 200.0),
        (0, 100_000_000, 100.0),
        (50_000_000, 50_000_000, 160.0),
        (1_000_000_000, 0, 200.0),  # beyond the curve: its last value
        # Time per byte is halfway between copy's 6.25 and read's 5 ps/B: 5.625 ps/B.
        (75_000_000, 25_000_000, 1000 / 5.625),
        # Halfway between write's 10 and copy's 6.25 ps/B: 8.125 ps/B.
        (25_000_000, 75_000_000, 1000 / 8.125),
        (1_000_000, 0, 100.0),
        # 10 MB is 9/99 of the way from 1 MB (10 us) to 100 MB (500 us): 54.545 us.
        (10_000_000, 0, 10e6 / (10 + 490 / 11) / 1e3),
        # Below the curve the time goes down to the floor with the bytes: 2 us + 8 us / 10 for 0.1 MB.
        (100_000, 0, 0.1e6 / 2.8e-6 / 1e9),
    ],
)
def test_attainable(read: int, written: int, gb_s: float) -> None:
    assert ROOFS.attainable_gb_s(read, written) == pytest.approx(gb_s)


def test_ceiling_is_the_largest_size_whatever_the_case() -> None:
    assert ROOFS.ceiling_gb_s(1000, 0) == pytest.approx(200.0)
    assert ROOFS.ceiling_gb_s(0, 1) == pytest.approx(100.0)
    assert ROOFS.ceiling_gb_s(3, 1) == pytest.approx(1000 / 5.625)


def test_unknown_roofs_are_nan() -> None:
    empty = Roofs("Test CPU", "", "6.1", "0", 2e-6, ())
    assert math.isnan(empty.attainable_gb_s(1, 1))
    assert math.isnan(empty.ceiling_gb_s(1, 1))
    assert math.isnan(ROOFS.attainable_gb_s(0, 0))


def test_a_stream_grades_itself_at_100_percent() -> None:
    for point in POINTS:
        read = round(point.total_bytes * point.read_fraction)
        assert ROOFS.attainable_gb_s(read, point.total_bytes - read) == pytest.approx(point.gb_s)


def test_roofs_survive_json_and_know_their_device() -> None:
    assert Roofs.from_dict(json.loads(json.dumps(ROOFS.to_dict()))) == ROOFS
    assert ROOFS.belongs_to(FACTS)
    assert not ROOFS.belongs_to({**FACTS, "driver": "6.2"})


def test_sizes_start_with_both_ends() -> None:
    found = survey.coarse_sizes(1 << 16, 1 << 30)
    assert found[:2] == [1 << 30, 1 << 16]
    assert sorted(found) == pytest.approx([1 << bits for bits in range(16, 31, 2)], rel=1e-4)
    assert survey.coarse_sizes(1 << 16, 1 << 16) == [1 << 16]


def graded(**more: object) -> dict[str, object]:
    """A row of 100 MB read at 150 GB/s, 1 GFLOP."""
    made = row("a", "fp32", gb_s=150.0, timer_floor_us=2.0, flops=10**9, noise=0.001)
    made.update(bytes_read=100_000_000, bytes_written=0, time_ms=100e6 / 150e9 * 1e3, arithmetic_intensity=10.0)
    made["tflops"] = 10**9 / (made["time_ms"] / 1e3) / 1e12
    made.update(more)
    grade.grade_row(made, FACTS, ROOFS)
    return made


def test_grade_fills_the_roof_columns() -> None:
    made = graded()
    assert made["peak_gb_s"] == 250.0
    assert made["pct_peak"] == pytest.approx(60.0)
    assert made["pct_ceiling"] == pytest.approx(75.0)
    assert made["pct_attainable"] == pytest.approx(75.0)
    # 10 FLOP/B at 200 GB/s would be 2 TFLOP/s, above the arithmetic peak of 1.
    assert made["roofline_tflops"] == 1.0
    assert made["tflops"] == pytest.approx(1.5)
    assert made["pct_roofline"] == pytest.approx(150.0)
    assert made["bound"] == "compute"
    assert made["measured_tflops"] is None
    below = graded(arithmetic_intensity=2.0)
    assert below["roofline_tflops"] == pytest.approx(0.4)
    assert below["bound"] == "memory"


def test_bound_latency_and_without_a_peak() -> None:
    assert graded(time_ms=5.9e-3)["bound"] == "latency"  # 5.9 us is below 3 x 2 us
    assert graded(time_ms=6.1e-3)["bound"] == "compute"
    assert graded(flops=0)["bound"] == "memory"
    unknown = graded(precision="bf16")
    assert unknown["peak_tflops"] is None
    assert unknown["roofline_tflops"] is None
    assert unknown["bound"] == "memory", "no arithmetic peak, no ridge: but it is near the stream"
    assert graded(precision="bf16", bandwidth_gb_s=100.0)["bound"] is None, "it is not, at half of it"


def test_the_side_of_the_ridge_is_the_measured_roofs() -> None:
    """At 200 GB/s, 1 TFLOP/s in theory is a ridge at 5 FLOP/B, and 0.75 measured one at 3.75."""
    measured = replace(ROOFS, rates=(Rate("fp32", "gemm", "x", 64, 0.75, 0.74, 0.0),))
    made = graded(arithmetic_intensity=4.0, bandwidth_gb_s=100.0, tflops=0.4)
    assert (made["ridge"], made["bound"], made["limiter"]) == (pytest.approx(5.0), "memory", "memory")
    assert made["pct_limit"] == made["pct_attainable"] == pytest.approx(50.0)
    grade.grade_row(made, FACTS, measured)
    assert (made["ridge"], made["bound"], made["limiter"]) == (pytest.approx(3.75), "compute", "compute")
    assert made["pct_limit"] == pytest.approx(100 * 0.4 / 0.75)


def test_a_kernel_far_below_both_roofs_limits_itself() -> None:
    made = graded(flops=0, tflops=0.0, bandwidth_gb_s=99.0, arithmetic_intensity=0.0)
    assert (made["bound"], made["limiter"], made["pct_limit"]) == ("memory", "kernel", pytest.approx(49.5))
    assert graded(time_ms=5.9e-3)["limiter"] == "latency"


@pytest.mark.parametrize(("gb_s", "flags"), [(251.0, ""), (252.0, "above_attainable")])
def test_more_than_the_theoretical_bandwidth_is_flagged(gb_s: float, flags: str) -> None:
    """Of a peak of 250 GB/s, without a measured roof."""
    made = finished(100e6 / gb_s, roofs=replace(ROOFS, points=()))
    assert made["flags"] == flags
    assert ("theoretical peak" in str(made["reason"])) == bool(flags)


def test_a_hot_row_has_no_dram_roof() -> None:
    made = graded(cache="hot", bandwidth_gb_s=900.0)
    assert [made[name] for name in ("ceiling_gb_s", "attainable_gb_s", "pct_attainable", "pct_peak", "bound")] == [
        None
    ] * 5


def result_of(median_ns: float, **more: object) -> dict[str, Any]:
    """A case's measurement without doubts."""
    return {
        "median_ns": median_ns,
        "lo_ns": median_ns,
        "hi_ns": median_ns,
        "min_ns": median_ns,
        "noise": 0.001,
        "count": 10,
        "samples_ns": [median_ns] * 10,
        "converged": True,
        "timer": "monotonic",
        "cache": "cold",
        "cold": True,
        "cache_note": "",
        "variant_note": "",
        "buffer_sets": 4,
        "launches_per_sample": 1,
        "timer_floor_ns": 2000.0,
        "host_launch_ns": math.nan,
        "transform_ns": math.nan,
        "footprint_bytes": 100_000_000,
        "verified": True,
        "max_error": 0.0,
        "tolerance": 1e-5,
        "rows_checked": 3,
        "rows_total": 7,
        "reason": "",
        "waited_share": math.nan,
        "stolen_share": math.nan,
        "pressed_share": math.nan,
        **dict.fromkeys(("slowed_share", "reference_ns", "best_reference_ns"), math.nan),
        "late_samples": 0,
        "flush_bytes": 0,
        "conditions": {
            **dict.fromkeys(("energy_j", "power_w", "sm_clock_mhz", "mem_clock_mhz", "temperature_c"), math.nan),
            "throttle": "",
        },
        **more,
    }


def outcome(median_ns: float, roofs: Roofs = ROOFS, **more: object) -> Outcome:
    """A row as measuring makes it from a result: 100 MB read, 10^6 FLOP."""
    made = row("a", "fp32", flops=10**6, arithmetic_intensity=0.01)
    made.update(bytes_read=100_000_000, bytes_written=0, status=None, flags=None)
    result = result_of(median_ns, **more)
    made["cache"] = result["cache"]
    return operation.finish_row(made, result, Context("run-1", "cpu", FACTS, roofs))


def finished(median_ns: float, roofs: Roofs = ROOFS, **more: object) -> dict[str, object]:
    return outcome(median_ns, roofs, **more).row


def test_flags() -> None:
    clean = finished(600_000.0)  # 166.7 GB/s of 200
    assert clean["flags"] == ""
    assert clean["reason"] is None
    assert clean["bandwidth_gb_s"] == pytest.approx(100e6 / 600e-6 / 1e9)
    assert clean["host_launch_us"] is None
    assert finished(480_000.0)["flags"] == "", "208 GB/s is within 5 % of 200"
    fast = finished(450_000.0)
    assert fast["flags"] == "above_attainable"
    assert "111 %" in str(fast["reason"])
    assert finished(600_000.0, converged=False)["flags"] == "not_converged"
    warm = finished(600_000.0, cold=False, cache_note="the cache note")
    assert warm["flags"] == "not_cold"
    assert warm["reason"] == "the cache note"
    assert "near_timer_floor" in str(finished(5_900.0)["flags"]).split(";")


def test_a_wrong_result_is_a_failed_row() -> None:
    made = finished(600_000.0, verified=False, reason="element 3 is 5, 4 was expected")
    assert made["status"] == "failed"
    assert "element 3" in str(made["reason"])


def test_the_measured_rate_stands_beside_the_peak() -> None:
    rates = (Rate("fp32", "a", "v", 8, 0.75, 0.7, 0.01), Rate("fp16", "a", "v", 8, 3.0, 2.9, 0.01))
    made = finished(600_000.0, roofs=replace(ROOFS, rates=rates))
    assert (made["peak_tflops"], made["measured_tflops"]) == (1.0, 0.75)


@pytest.mark.parametrize(("share", "flags"), [(1.04, ""), (1.14, "noisy_roof")])
def test_a_row_that_beats_the_measured_rate_says_so(share: float, flags: str) -> None:
    """One yardstick: the rate that was measured, which a kernel may beat up to the theoretical one."""
    best = 10**6 / 600e-6 / 1e12 / share  # 10^6 FLOP in 600 us
    made = finished(600_000.0, roofs=replace(ROOFS, rates=(Rate("fp32", "a", "v", 8, best, best, 0.01),)))
    assert (made["flags"], made["pct_limit"]) == (flags, pytest.approx(100 * share))
    message = f"114 % of the best arithmetic rate measured, {best:.4g} TFLOP/s: that is no roof for it (1 in theory)"
    assert made["reason"] == (message if flags else None)
    assert finished(600_000.0)["measured_tflops"] is None


def test_a_doubtful_roof_flags_its_rows() -> None:
    """A row of 100 MB read is held against the read stream's largest point; one of 1 MB against both of its points."""
    doubtful = replace(POINTS[0], uncertainty=0.07)
    noisy = replace(POINTS[1], noise=0.2)
    assert finished(600_000.0, roofs=replace(ROOFS, points=(doubtful, *POINTS[1:])))["flags"] == ""
    made = finished(600_000.0, roofs=replace(ROOFS, points=(POINTS[0], noisy, *POINTS[2:])))
    assert made["flags"] == "noisy_roof"
    assert "disturbed" in str(made["reason"])
    slowed = replace(POINTS[1], throttle="sw_thermal")
    made = finished(600_000.0, roofs=replace(ROOFS, points=(POINTS[0], slowed, *POINTS[2:])))
    assert made["flags"] == "noisy_roof"
    assert "sw_thermal" in str(made["reason"])
    for point, message in (
        (replace(POINTS[1], others_share=0.3), "30 % of the processors"),
        (replace(POINTS[1], disturbance="threads waited for a CPU 9% of the time"), "waited for a CPU 9%"),
        (replace(POINTS[1], beaten=0.37), "was beaten by 37 %"),
    ):
        made = finished(600_000.0, roofs=replace(ROOFS, points=(POINTS[0], point, *POINTS[2:])))
        assert made["flags"] == "noisy_roof"
        assert message in str(made["reason"])
    fine = replace(POINTS[1], others_share=0.04)
    assert finished(600_000.0, roofs=replace(ROOFS, points=(POINTS[0], fine, *POINTS[2:])))["flags"] == ""
    unconfirmed = finished(600_000.0, roofs=replace(ROOFS, unconfirmed="the machine is busy"))
    assert (unconfirmed["flags"], unconfirmed["reason"]) == ("noisy_roof", "the machine is busy")
    in_between = replace(ROOFS, points=(doubtful, *POINTS[1:]))
    assert " 7 % only" in in_between.doubt(1_000_000, 0)
    assert " 7 % only" in in_between.doubt(50_000_000, 0)
    assert in_between.doubt(0, 50_000_000) == "", "the write stream is not in doubt"
    assert " 7 % only" in in_between.doubt(40_000_000, 10_000_000), "between copy and read"
    assert in_between.doubt(10_000_000, 40_000_000) == "", "between write and copy"


def test_a_row_far_above_its_roof_puts_the_roof_in_doubt() -> None:
    """100 MB at 200 GB/s take 500 us. Only where nothing else explains it: the cache, noise, a near floor."""

    def beaten_by(median_ns: float, **more: Any) -> float:
        return outcome(median_ns, **more).beaten

    assert beaten_by(400_000.0) == pytest.approx(0.25)
    assert beaten_by(460_000.0) == 0.0, "108.7 %: flagged, and no more"
    for more in (
        {"noise": 0.2},
        {"noise": 0.06},
        {"converged": False},
        {"cold": False},
        {"waited_share": 0.3},
        {"timer_floor_ns": 300_000.0},
        {"roofs": replace(ROOFS, points=(POINTS[0], replace(POINTS[1], noise=0.2), *POINTS[2:]))},
    ):
        assert beaten_by(400_000.0, **more) == 0.0, more
    fastest = RoofPoint("c", 0.5, 100_000_000, 200e-6)
    assert beaten_by(100_000.0, roofs=replace(ROOFS, hot_points=(fastest,)), cache="hot") == pytest.approx(1.0)
    assert beaten_by(170_000.0, roofs=replace(ROOFS, hot_points=(fastest,)), cache="hot") == 0.0


def test_the_points_behind_a_row() -> None:
    assert ROOFS.behind(100_000_000, 0) == (POINTS[1],)
    assert ROOFS.behind(50_000_000, 0) == POINTS[:2]
    assert set(ROOFS.behind(40_000_000, 10_000_000)) == {*POINTS[:2], *POINTS[4:]}
    assert ROOFS.behind(1, 0) == (POINTS[0],)
    assert ROOFS.behind(0, 0) == ROOFS.behind(1, 1, hot=True) == ()
    marked = ROOFS.beaten(ROOFS.behind(100_000_000, 0), 0.2)
    assert [point.beaten for point in marked.points] == [0.0, 0.2, 0.0, 0.0, 0.0, 0.0]
    assert marked.beaten((POINTS[1],), 0.1) == marked, "the most that was seen"


def test_checks_tell_a_wrong_roof_from_a_busy_machine() -> None:
    """Too quick is never a neighbor's doing; too slow says something only where nobody disturbed."""

    def message(found: float, doubt: str = "", uncertainty: float = 0.0) -> list[bool]:
        check = RoofCheck("r", 1, 100.0, found, uncertainty, doubt)
        return [check.too_low, check.too_high, check.unclear]

    assert message(102.9) == message(97.1) == message(97.1, "noise") == [False, False, False]
    assert message(103.1) == message(140.0, "noise", 0.3) == message(120.0, "noise", 2.0) == [True, False, False]
    assert message(96.9) == [False, True, False]
    assert message(60.0, "noise") == message(96.9, "noise", 0.3) == [False, False, True]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([10**400, -1, 2**63, 2**64]) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_from_dict_returns_roofs_or_raises_value_error(data: st.DataObject) -> None:
    """Any field of any part replaced by anything; what is taken can be graded against."""
    whole = replace(
        ROOFS,
        hot_points=POINTS,
        rates=(Rate("fp32", "a", "v", 8, 1.0, 1.0, 0.0),),
        checks=(RoofCheck("r", 1, 1.0, 1.0),),
    ).to_dict()
    found = json.loads(json.dumps(whole))
    where = data.draw(st.sampled_from(["", "points", "hot_points", "rates", "checks"]))
    part = found[where][0] if where else found
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(ANYTHING)
    try:
        roofs = Roofs.from_dict(found)
    except ValueError:
        return
    for read, written in ((100_000_000, 0), (10, 10), (2**62, 2**62), (0, 5_000_000)):
        assert not roofs.attainable_gb_s(read, written) < 0
        assert not roofs.cache_gb_s(read) < 0
        assert isinstance(roofs.doubt(read, written) + roofs.cache_doubt(read), str)


def test_a_hot_row_has_the_limit_of_the_cache() -> None:
    """100 MB in 100 us are 1000 GB/s; the fastest hot stream of as many bytes reaches 790 (+ 25 %: 987) or 810."""
    hot = {"cache": "hot", "buffer_sets": 1}
    for gb_s, flags in ((790.0, "above_attainable"), (810.0, "")):
        limit = RoofPoint("c", 0.5, 100_000_000, 0.1 / gb_s)
        slower = RoofPoint("r", 1.0, 100_000_000, 1.0)
        made = finished(100_000.0, roofs=replace(ROOFS, hot_points=(limit, slower)), **hot)
        assert made["flags"] == flags
        assert made["attainable_gb_s"] is None
    assert finished(100_000.0, **hot)["flags"] == "", "nothing is known of the cache"
    noisy = RoofPoint("c", 0.5, 100_000_000, 0.1 / 790.0, noise=0.3)
    beside = replace(limit, others_share=0.2)
    for doubtful in (replace(ROOFS, hot_points=(noisy,)), replace(ROOFS, hot_points=(beside,))):
        assert finished(75_000.0, roofs=doubtful, **hot)["flags"] == "noisy_roof"
        assert finished(200_000.0, roofs=doubtful, **hot)["flags"] == "", "500 GB/s are no question"


def test_the_caches_limit_between_and_beyond_its_sizes() -> None:
    """r: 1 MB in 10 us (100 GB/s), 3 MB in 10 us (300 GB/s). w: 50 GB/s everywhere."""
    hot = (
        RoofPoint("r", 1.0, 1_000_000, 10e-6),
        RoofPoint("r", 1.0, 3_000_000, 10e-6),
        RoofPoint("w", 0.0, 1_000_000, 20e-6),
        RoofPoint("w", 0.0, 3_000_000, 60e-6),
    )
    found = replace(ROOFS, hot_points=hot)
    assert found.cache_gb_s(1_000_000) == pytest.approx(100.0)
    assert found.cache_gb_s(2_000_000) == pytest.approx(300.0), "the better of its neighbors"
    assert found.cache_gb_s(9_000_000) == pytest.approx(300.0)
    assert found.cache_gb_s(500_000) == pytest.approx(100.0)
    assert math.isnan(ROOFS.cache_gb_s(1_000_000))
    assert math.isnan(found.cache_gb_s(0))


def test_time_never_falls_with_the_bytes() -> None:
    """Points as a machine gives them: 2 MB were quicker than 1 MB, which is then held to their time."""
    curve = [(1, 10e-6), (2, 9e-6), (4, 11e-6), (8, 11e-6), (100, 80e-6)]
    found = replace(ROOFS, points=tuple(RoofPoint("r", 1.0, size * 1_000_000, seconds) for size, seconds in curve))
    sizes = [1000 * step for step in range(10, 120_000, 37)]
    times = [size / found.attainable_gb_s(size, 0) for size in sizes]
    assert all(later >= earlier * (1 - 1e-12) for earlier, later in pairwise(times))
    assert found.attainable_gb_s(1_000_000, 0) == pytest.approx(1e6 / 9e-6 / 1e9)
    for size, seconds in curve[1:]:
        assert found.attainable_gb_s(size * 1_000_000, 0) == pytest.approx(size * 1e6 / seconds / 1e9)


def test_between_mixes_the_slower_and_the_faster_stream_are_the_limits() -> None:
    for read in range(0, 101):
        gb_s = ROOFS.attainable_gb_s(read * 1_000_000, (100 - read) * 1_000_000)
        low, high = (100.0, 160.0) if read <= 50 else (160.0, 200.0)
        assert low * (1 - 1e-12) <= gb_s <= high * (1 + 1e-12)


def test_busy_seconds_of_processors() -> None:
    """Two processors, ticks of 10 ms: cpu0 worked 100 + 20 + 30 + 1 + 2 + 3 ticks, cpu2 ten times as much."""
    text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 20 30 999 999 1 2 3 0 0\ncpu1 7 7 7 7 7 7 7 7 0 0\n"
    text += "cpu2 1000 200 300 9 9 10 20 30 0 0\nintr 1 2 3\n"
    assert survey.busy_seconds(text, {0, 2}, 100.0) == pytest.approx(1.56 + 15.6)
    assert survey.busy_seconds(text, {0, 3}, 100.0) is None, "a processor that is not listed"
    assert survey.busy_seconds("cpu0 1 2 3", {0}, 100.0) is None, "an old kernel's line"
    assert survey.busy_seconds("", {0}, 100.0) is None


def test_the_share_of_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 2 s of two processors they worked 1.5 s, of which 0.5 s were ours: others had 1 s of 4."""
    monkeypatch.setattr(survey.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(survey.os, "sysconf", lambda _: 100)
    monkeypatch.setattr(survey.time, "monotonic", iter((10.0, 12.0)).__next__)
    monkeypatch.setattr(survey.time, "process_time", iter((3.0, 3.5)).__next__)
    statistics = tmp_path / "stat"
    monkeypatch.setattr(survey, "STATISTICS", statistics)
    statistics.write_text("cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n")
    with survey.watch_others("cpu") as others:
        statistics.write_text("cpu0 100 0 0 0 0 0 0 0\ncpu1 0 0 0 500 500 0 0 50\n")
    assert others.share == pytest.approx(0.25)
    # 20 ms of others in 100 ms are two ticks of a clock that counts in steps of 10: no measurement.
    monkeypatch.setattr(survey.time, "monotonic", iter((10.0, 10.1)).__next__)
    monkeypatch.setattr(survey.time, "process_time", iter((3.0, 3.0)).__next__)
    statistics.write_text("cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n")
    with survey.watch_others("cpu") as others:
        statistics.write_text("cpu0 1 0 0 0 0 0 0 0\ncpu1 1 0 0 500 500 0 0 0\n")
    assert others.share == 0.0
    with survey.watch_others("cuda") as others:
        pass
    assert others.share == 0.0


def test_product_sizes() -> None:
    """2 n^3 FLOP in 4 ms: 1600 GFLOP/s x 4 ms = 6.4e9 allow n = 1473, 1 TFLOP/s 1259, 67 5117, 2141 16238."""
    assert [survey.product_size(rate) for rate in (1.6, 1.0, 67.0, 2141.0)] == [1024, 1024, 4096, 8192]


def test_measured_roofs(device: _core.Device) -> None:
    found = survey.measure(device, budget_seconds=0.3)
    streams = {row["name"] for row in _core.operations() if row["is_stream"]}
    assert {point.stream for point in found.points} == streams
    assert all(point.seconds > 0 and point.uncertainty >= 0 for point in found.points)
    assert found.belongs_to(hardware.facts(device))
    assert found.threads == (device.facts()["units"] if device.backend == "cpu" else 0)
    assert found.attainable_gb_s(10**8, 10**8) > 0
    assert {rate.precision for rate in found.rates} >= {"fp32", "fp16", "bf16"}
    assert all(rate.tflops >= rate.median_tflops > 0 for rate in found.rates)
    if device.backend == "cpu":  # products of 8 bits, whose peak is unknown, are no longer than those of FP32
        assert len({rate.size for rate in found.rates}) == 1
    assert Roofs.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_measured_hot_roofs(device: _core.Device) -> None:
    found = survey.measure(device, "hot", budget_seconds=0.2)
    assert found.points == ()
    assert found.cache_gb_s(1 << 20) > 0


def test_points_record_disturbances_and_other_processes(cpu: _core.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point what its own samples saw, all of them what others took meanwhile."""
    stream = next(stream for stream in survey.list_streams() if stream["name"] == "stream_read")
    monkeypatch.setattr(survey, "describe_disturbances", lambda _: ["threads waited", "stolen"])
    point = survey.measure_point(cpu, stream, 1 << 16, 0.0, cache="hot")
    assert point is not None
    assert point.disturbance == "threads waited; stolen"

    @contextmanager
    def watched(_: str) -> Iterator[survey.Others]:
        others = survey.Others()
        yield others
        others.share = 0.4

    monkeypatch.setattr(survey, "watch_others", watched)
    monkeypatch.setattr(survey._Survey, "points", lambda _: POINTS)
    monkeypatch.setattr(survey, "measure_rates", lambda *_, **__: ())
    found = [*survey.measure(cpu).points, *survey.measure(cpu, "hot").hot_points]
    assert [point.others_share for point in found] == [0.4] * 2 * len(POINTS)
    assert " 40 % of" in found[0].doubt


@pytest.mark.parametrize("doubt", [[], ["threads waited"]])
def test_a_point_in_doubt_is_its_fastest_sample(
    cpu: _core.Device, monkeypatch: pytest.MonkeyPatch, doubt: list[str]
) -> None:
    class Sampled(contextlib.nullcontext["Sampled"]):
        cost: ClassVar = {"bytes_read": 1 << 20, "bytes_written": 0}
        variant = "simd"

        def __init__(self, *_: object) -> None:
            super().__init__(self)

        def memory_needed(self, _: str) -> dict[str, bool]:
            return {"fits": True}

        def measure(self, **_: object) -> dict[str, Any]:
            times = {"median_ns": 100.0, "lo_ns": 99.0, "hi_ns": 101.0, "min_ns": 60.0, "noise": 0.05}
            return {"verified": True, "conditions": {"throttle": "none"}, **times}

    monkeypatch.setattr(_core, "Case", Sampled)
    monkeypatch.setattr(survey, "describe_disturbances", lambda _: doubt)
    stream = next(stream for stream in survey.list_streams() if stream["name"] == "stream_read")
    point = survey.measure_point(cpu, stream, 1 << 20, 0.1)
    assert point is not None
    assert point.seconds == pytest.approx(60e-9 if doubt else 100e-9)


def test_points_in_doubt_are_measured_again_before_new_ones(cpu: _core.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two tries of each size are in doubt, a third one is not."""
    requested: list[tuple[str, int]] = []

    def point(_: object, stream: dict[str, Any], total: int, seconds: float, **__: object) -> RoofPoint:
        requested.append((stream["name"], total))
        doubt = 0.5 if requested.count(requested[-1]) <= 2 else 0.001
        return RoofPoint(stream["name"], 1.0, total, total / 1e10, doubt)

    monkeypatch.setattr(survey, "measure_point", point)
    made = survey._Survey(cpu, "cold", 5.0, None)
    monkeypatch.setattr(made, "_refine", lambda: requested.append(("refined", 0)))
    points = made.points()
    assert len(points) >= 4 * 2
    assert not any(found.doubt for found in points)
    assert requested[-1] == ("refined", 0)
    assert {requested.count(one) for one in requested[:-1]} == {3}
