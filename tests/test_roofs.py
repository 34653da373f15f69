"""Roofs from hand-made points: every expected number below is worked out by hand."""

from __future__ import annotations

import json
import math

import pytest
from rows import row

from bwprof import _core, roofs
from bwprof.roofs import RoofPoint, Roofs
from bwprof.sweep import measure
from bwprof.sweep.measure import Context

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


def test_nothing_known_is_nan() -> None:
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
    found = roofs.sizes(1 << 16, 1 << 30)
    assert found[:2] == [1 << 30, 1 << 16]
    assert sorted(found) == pytest.approx([1 << bits for bits in range(16, 31)], rel=1e-4)
    assert roofs.sizes(1 << 16, 1 << 16) == [1 << 16]


def graded(**more: object) -> dict[str, object]:
    """A row of 100 MB read at 150 GB/s, 1 GFLOP."""
    made = row("a", "fp32", gb_s=150.0, timer_floor_us=2.0, flops=10**9, noise=0.001)
    made.update(bytes_read=100_000_000, bytes_written=0, time_ms=100e6 / 150e9 * 1e3, arithmetic_intensity=10.0)
    made["tflops"] = 10**9 / (made["time_ms"] / 1e3) / 1e12
    made.update(more)
    measure.grade(made, Context("run-1", "cpu", FACTS, ROOFS))
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
    assert unknown["bound"] is None, "no arithmetic peak, no ridge"


def test_a_hot_row_is_not_held_against_dram() -> None:
    made = graded(cache="hot", bandwidth_gb_s=900.0)
    assert [made[name] for name in ("ceiling_gb_s", "attainable_gb_s", "pct_attainable", "pct_peak", "bound")] == [
        None
    ] * 5


def finished(median_ns: float, **more: object) -> dict[str, object]:
    """A row as measuring makes it from a result: 100 MB read, 10^9 FLOP."""
    made = row("a", "fp32", flops=10**6, arithmetic_intensity=0.01)
    made.update(bytes_read=100_000_000, bytes_written=0, status=None, flags=None)
    result = {
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
        "footprint_bytes": 100_000_000,
        "verified": True,
        "max_error": 0.0,
        "tolerance": 1e-5,
        "rows_checked": 3,
        "rows_total": 7,
        "reason": "",
        "waited_share": math.nan,
        "stolen_share": math.nan,
        "conditions": {
            **dict.fromkeys(("energy_j", "power_w", "sm_clock_mhz", "mem_clock_mhz", "temperature_c"), math.nan),
            "throttle": "",
        },
    }
    result.update(more)
    return measure._finished(made, result, Context("run-1", "cpu", FACTS, ROOFS)).row


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
    warm = finished(600_000.0, cold=False, cache_note="the inputs may be in the cache")
    assert warm["flags"] == "not_cold"
    assert warm["reason"] == "the inputs may be in the cache"
    assert "near_timer_floor" in str(finished(5_900.0)["flags"]).split(";")


def test_a_wrong_result_is_a_failed_row() -> None:
    made = finished(600_000.0, verified=False, reason="element 3 is 5, 4 was expected")
    assert made["status"] == "failed"
    assert "element 3" in str(made["reason"])


def test_measured_roofs_of_the_cpu() -> None:
    with _core.Device("cpu", 0) as device:
        found = roofs.measure(device, budget_seconds=0.3)
    streams = {row["name"] for row in _core.operations() if row["is_stream"]}
    assert {point.stream for point in found.points} == streams
    assert all(point.seconds > 0 for point in found.points)
    assert found.attainable_gb_s(10**8, 10**8) > 0
