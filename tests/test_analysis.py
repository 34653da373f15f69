"""`BandwidthAnalysis`, `utilization_table` and `speed_of_light`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rows import row

import bwprof
from bwprof.analysis.answer import Answer, fill_peak
from bwprof.analysis.bandwidth import speed_of_light, utilization_table
from bwprof.analysis.bottleneck import strengths
from bwprof.results import frame as results_frame

GB = 10**9

# decode_gemm_8b in FP16 on an H200: 1 x 14336 x 4096, 117 477 376 bytes at 3747.07 GB/s; a peak of 132 x 4096 FLOP a
# cycle at 1980 MHz.
H200 = {
    "case": "decode_gemm_8b",
    "operation": "gemm",
    "precision": "fp16",
    "cache": "cold",
    "status": "ok",
    "bytes_read": 117448704,
    "bytes_written": 28672,
    "time_ms": 117477376 / 3747.07e6,
    "bandwidth_gb_s": 3747.07,
    "peak_gb_s": 4814.3,
    "attainable_gb_s": 4269.33,
    "flops": 2 * 14336 * 4096,
    "tflops": 2 * 14336 * 4096 / (117477376 / 3747.07e9) / 1e12,
    "peak_tflops": 1070.53056,
    "bound": "memory",
}
SUMMARY = """\
Memory Bandwidth Analysis: decode_gemm_8b fp16
  Bytes read:     117.45 MB
  Bytes written:  28.67 kB
  Total transfer: 117.48 MB
  Duration:       0.03135 ms
  Bandwidth:      3747.07 GB/s
  Utilization:    77.8 % of peak 4814.30 GB/s (good); 87.8 % of attainable 4269.33 GB/s
  Intensity:      1.00 FLOP/B (memory-bound, ridge 222.4)"""


def analysis(seconds: float = 0.01, peak: float = 800.0, **optional: Any) -> bwprof.BandwidthAnalysis:
    """Analyze a transfer of 3 GB."""
    return bwprof.BandwidthAnalysis.from_operation(2 * GB, GB, seconds, peak, **optional)


@pytest.mark.parametrize(("peak", "utilization", "rating"), [(560.0, 0.5357, "fair"), (800.0, 0.375, "poor")])
def test_hand_values(peak: float, utilization: float, rating: str) -> None:
    found = analysis(peak=peak)
    assert (found.bytes_total, found.bandwidth_gb_s) == (3 * GB, 300.0)
    assert found.utilization == pytest.approx(utilization, abs=5e-5)
    assert found.rating == rating


def test_summary_of_a_row() -> None:
    assert bwprof.BandwidthAnalysis.from_row(H200).summary() == SUMMARY
    assert bwprof.BandwidthAnalysis.from_row(bwprof.Row(H200)).summary() == SUMMARY
    assert bwprof.BandwidthAnalysis.from_row(bwprof.frame(H200).iloc[0]).summary() == SUMMARY


def test_summary_has_a_line_for_each_known_figure() -> None:
    plain = analysis().summary()
    assert plain.splitlines()[0] == "Memory Bandwidth Analysis"
    assert not {"L2", "stall", "Intensity", "attainable"} & set(plain.replace(":", " ").split())
    more = analysis(l2_hit_rate=0.9657, stall_pct=4.4).summary().splitlines()
    assert [line.split(":")[1].strip() for line in more[-2:]] == ["96.6 %", "4.4 %"]


@pytest.mark.parametrize(
    ("gb_s", "rating", "good", "excellent"),
    [
        (400.0, "poor", False, False),
        (400.5, "fair", False, False),
        (600.0, "fair", False, False),
        (600.5, "good", True, False),
        (800.0, "good", True, False),
        (800.5, "excellent", True, True),
        (1000.0, "excellent", True, True),
        (1004.0, "excellent", True, True),
        (1006.0, "impossible", False, False),
        (1786.0, "impossible", False, False),
    ],
)
def test_rating_thresholds_are_exclusive(gb_s: float, rating: str, good: bool, excellent: bool) -> None:
    """The peak is 1000 GB/s, and all shares are exact in binary."""
    found = bwprof.BandwidthAnalysis(int(gb_s * 1e9), 0, 1.0, 1000.0)
    assert found.utilization == gb_s / 1000
    assert (found.rating, found.is_good(), found.is_excellent()) == (rating, good, excellent)
    assert (found.is_good_utilization(), found.is_excellent_utilization()) == (good, excellent)
    whole = pd.DataFrame([{"bytes_read": gb_s * 1e9, "bytes_written": 0, "time_ms": 1000.0, "peak_gb_s": 1000.0}])
    assert bwprof.BandwidthAnalysis.from_frame(whole)["rating"].tolist() == [rating]


def test_more_than_the_peak_is_impossible() -> None:
    """At 375 % of the peak no other figure matters."""
    known = {"flops": 1, "peak_tflops": 1e-3, "bound": "memory", "attainable_gb_s": 310.0}
    for optional in ({}, known):
        found = analysis(peak=80.0, **optional)
        assert found.utilization == 3.75, "not clipped"
        assert {"375", "impossible:"} <= set(found.bottleneck_description().split())
        used = found.summary().splitlines()[6]
        assert all(word in used for word in ("375.0 %", "80.00 GB/s", "impossible"))
    row = {"time_ms": 10.0, "bytes_read": 3 * GB, "bytes_written": 0, "bandwidth_gb_s": 300.0, "peak_gb_s": 80.0}
    assert utilization_table(row)["Status"].tolist() == ["impossible"]
    assert all(word in speed_of_light(row) for word in ("375%", "80.0 GB/s", "impossible"))
    assert "impossible" not in speed_of_light({**row, "peak_gb_s": 299.0})
    assert "375.0 % of peak" not in speed_of_light({**row, "cache": "hot"})
    assert strengths(row).empty
    answer = Answer(pd.DataFrame([row]))
    assert any("impossible" in line or "cannot be" in line for line in answer.lines())
    rated = Answer(fill_peak(pd.DataFrame([{**row, "peak_gb_s": None}]), 80.0, "rows"))
    assert any("impossible" in line for line in rated.lines())


def test_limiter_line_names_missing_bytes_or_roofs() -> None:
    row = {"case": "mine", "time_ms": 1.0, "status": "ok"}
    plain = Answer(pd.DataFrame([{**row, "bytes_read": None, "bytes_written": None}])).limiter_line()
    known = Answer(pd.DataFrame([{**row, "bytes_read": GB, "bytes_written": 0}])).limiter_line()
    assert ("bytes_read=" in plain, "--no-roofs" in plain) == (True, False)
    assert ("bytes_read=" in known, "--no-roofs" in known) == (False, True)


@pytest.mark.parametrize("name", ["duration_s", "peak_gb_s"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_time_and_peak_are_positive(name: str, value: Any) -> None:
    arguments = {"bytes_read": 1, "bytes_written": 1, "duration_s": 1.0, "peak_gb_s": 1.0, name: value}
    with pytest.raises(ValueError, match=rf"^{name} is .*: a positive, finite number is needed"):
        bwprof.BandwidthAnalysis.from_operation(**arguments)


@pytest.mark.parametrize(
    ("optional", "message"),
    [
        ({"bytes_read": -1}, "bytes_read is -1: allowed is a whole number from 0"),
        ({"bytes_written": 1.5}, "bytes_written is 1.5, a whole number is needed"),
        ({"flops": -1}, "flops is -1"),
        ({"attainable_gb_s": 0.0}, "attainable_gb_s is 0.0"),
        ({"peak_tflops": -1.0}, "peak_tflops is -1.0"),
        ({"l2_hit_rate": 96.5}, "l2_hit_rate is 96.5: allowed is 0 to 1"),
        ({"stall_pct": 101}, "stall_pct is 101: allowed is 0 to 100"),
        ({"bound": "memroy"}, "unknown bound 'memroy': did you mean 'memory'"),
    ],
)
def test_values_out_of_range_are_refused(optional: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bwprof.BandwidthAnalysis(
            **{"bytes_read": 1, "bytes_written": 1, "duration_s": 1.0, "peak_gb_s": 1.0, **optional}
        )


def test_an_unknown_argument_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"'lable'.*'label'"):
        analysis(lable="x")


@pytest.mark.parametrize(
    ("optional", "message"),
    [
        ({"bound": "latency"}, "launch latency, not memory: batch or fuse"),
        ({"bound": "memory", "attainable_gb_s": 333.0}, "at the memory roof: only fewer bytes help"),
        (
            {"bound": "memory", "attainable_gb_s": 400.0},
            "75 % of what a stream of the same bytes reaches, a gap of 25 %: the rest is the kernel's",
        ),
        (
            {"bound": "memory", "attainable_gb_s": 700.0},
            "43 % of what a stream of the same bytes reaches, a gap of 57 %: the kernel limits, not the card",
        ),
        (
            {"bound": "memory"},
            "memory-bound at 38 % of the peak; how near to its roof is not known: measure the roofs",
        ),
        # 3 GB in 10 ms at 1000 FLOP/B are 300 TFLOP/s.
        (
            {"flops": 3000 * GB, "peak_tflops": 400.0},
            "arithmetic, not memory: 75 % of the theoretical 400 TFLOP/s",
        ),
        (
            {"flops": 3000 * GB, "peak_tflops": 989.0, "measured_tflops": 700.0},
            "arithmetic, not memory: 43 % of the measured 700 TFLOP/s: the kernel limits, not the card",
        ),
        ({}, "what bounds it is not known: pass flops= and peak_tflops=, or precision= where the device is known"),
        ({"flops": 1}, "what bounds it is not known: pass peak_tflops=, or precision= where the device is known"),
        (
            {"bound": "memory", "attainable_gb_s": 250.0},
            "120 % of what a stream of the same bytes reaches: check the bytes, the time and the roof",
        ),
        (
            {"flops": 3000 * GB, "peak_tflops": 250.0},
            "120 % of the arithmetic peak is impossible: the FLOPs, the time or the peak are wrong",
        ),
    ],
)
def test_the_bottleneck_in_a_sentence(optional: dict[str, Any], message: str) -> None:
    found = analysis(**optional)
    assert found.bottleneck_description() == message
    whole = pd.DataFrame([{"bytes_read": 2 * GB, "bytes_written": GB, "time_ms": 10.0, "peak_gb_s": 800.0, **optional}])
    assert bwprof.BandwidthAnalysis.from_frame(whole)["bottleneck"].tolist() == [message]


def test_high_bandwidth_alone_does_not_imply_a_compute_bound() -> None:
    message = analysis(seconds=0.0038).bottleneck_description()
    assert analysis(seconds=0.0038).is_excellent()
    assert "arithmetic" not in message
    assert "compute" not in message


def test_a_ridge_never_contradicts_the_bound() -> None:
    """224 FLOP/B, right of both ridges at the peak (222, 152), but bound by memory: no ridge is printed."""
    found = bwprof.BandwidthAnalysis(
        2_000_000, 0, 1e-4, 4814.3, 1092.0, 448_000_000, 1070.5, bound="memory", measured_tflops=731.9
    )
    assert found.summary().endswith("224.00 FLOP/B (memory-bound)")
    without = bwprof.BandwidthAnalysis(2_000_000, 0, 1e-4, 4814.3, None, 448_000_000, 1070.5, bound="memory")
    assert without.summary().endswith("224.00 FLOP/B (memory-bound)")


def test_the_ridge_that_implies_the_bound_is_printed() -> None:
    """200 FLOP/B: left of the theoretical ridge of 222, right of the measured one of 149."""
    row = {**H200, "bound": "compute", "flops": 200 * 117477376, "measured_tflops": 718.0}
    assert bwprof.BandwidthAnalysis.from_row(row).summary().endswith("FLOP/B (compute-bound, ridge 149.1)")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bytes_read": None, "bytes_written": None}, "bytes_read and bytes_written are missing"),
        ({"time_ms": None}, "time_ms is missing"),
        ({"time_ms": 0.0}, "time_ms is 0.0: a positive"),
        ({"peak_gb_s": math.nan}, "peak_gb_s is missing: pass peak_gb_s="),
        ({"cache": "hot"}, "cache is 'hot'"),
    ],
)
def test_rows_without_bandwidth_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bwprof.BandwidthAnalysis.from_row({**H200, **changes})


@pytest.mark.parametrize(("moved", "bound"), [(900_000_000, "memory"), (100_000_000, None)])
def test_row_and_frame_agree_without_flops(moved: int, bound: str | None) -> None:
    """A row near a stream of its bytes is memory-bound without FLOPs."""
    row = {"time_ms": 1.0, "bytes_read": moved, "bytes_written": 0, "attainable_gb_s": 1000.0, "peak_gb_s": 1200.0}
    found = bwprof.BandwidthAnalysis.from_row(row)
    assert found.bound == bound
    assert [found.bottleneck_description()] == found.from_frame(pd.DataFrame([row]))["bottleneck"].tolist()


def test_a_callers_peak() -> None:
    found = bwprof.BandwidthAnalysis.from_row({**H200, "peak_gb_s": None}, peak_gb_s=4800.0)
    assert found.peak_gb_s == 4800.0


def test_profilers_counts() -> None:
    """Counted bytes replace stated ones, times add up, and rates are weighted by time."""

    class Results:
        frame = pd.DataFrame(
            {
                "time_ms": [1.0, 3.0],
                "bytes_read": [1, 1],
                "dram_bytes_read": [3_000_000, 5_000_000],
                "dram_bytes_written": [0, 4_000_000],
                "l2_hit_rate": [0.9, 0.5],
            }
        )

    found = bwprof.BandwidthAnalysis.from_profiling_results(Results(), None, 10.0)
    assert (found.bytes_read, found.bytes_written, found.duration_s) == (8_000_000, 4_000_000, 0.004)
    assert found.bandwidth_gb_s == pytest.approx(3.0)
    assert found.l2_hit_rate == pytest.approx(0.6)
    assert bwprof.BandwidthAnalysis.from_profiling_results(Results.frame, 0.002, 10.0).bandwidth_gb_s == pytest.approx(
        6.0
    )
    with pytest.raises(ValueError, match="results hold no bytes_written"):
        bwprof.BandwidthAnalysis.from_profiling_results(Results.frame.drop(columns="dram_bytes_written"), None, 10.0)
    with pytest.raises(ValueError, match="duration_s is None"):
        bwprof.BandwidthAnalysis.from_profiling_results(Results.frame.drop(columns="time_ms"), None, 10.0)


def test_precision_and_device_give_the_bound_of_counted_bytes() -> None:
    """3 GB in 2 ms and 3e12 FLOPs: 1000 FLOP/B, right of the ridge of an A100; 1 FLOP/B lies left of it."""
    make = bwprof.BandwidthAnalysis.from_profiling_results
    counted = {"dram_bytes_read": 2 * GB, "dram_bytes_written": GB, "time_ms": 2.0, "device": "NVIDIA A100-SXM4-80GB"}
    found = make([counted], None, 2039.0, precision="fp16", flops=3000 * GB)
    assert (found.peak_tflops, found.found_bound) == (312.0, "compute")
    assert make([counted | {"flops": 3 * GB}], None, 2039.0, precision="fp16").found_bound == "memory"
    assert make([counted | {"peak_tflops": 100.0}], None, 2039.0, precision="fp16").peak_tflops == 100.0
    unknown = make([counted | {"device": "gfx9"}], None, 20390.0, precision="fp16", flops=1).bottleneck_description()
    assert ("peak_tflops=" in unknown, "flops= and" in unknown) == (True, False)
    with pytest.raises(ValueError, match="unknown precision 'fp17'"):
        make([counted], None, 2039.0, precision="fp17")


def test_diagnosis_gives_the_bound_of_counted_bytes() -> None:
    """The launch with the most time decides; a bound of the caller has precedence."""
    make = bwprof.BandwidthAnalysis.from_profiling_results
    launch = {"dram_bytes_read": 1900 * 10**6, "dram_bytes_written": 0, "time_ms": 1.0, "dram_pct": 92.0}
    busy = {"dram_bytes_read": 10**6, "dram_bytes_written": 0, "time_ms": 3.0, "dram_pct": 1.0, "tensor_pct": 95.0}
    assert make([launch], None, 2000.0).bound == "memory"
    assert make([launch, busy], None, 2000.0).bound == "compute"
    assert make([launch, busy | {"time_ms": 0.5}], None, 2000.0).bound == "memory"
    assert make([launch], None, 2000.0, bound="latency").bound == "latency"


# ---- frames ----


def mixed() -> pd.DataFrame:
    """A good row, and rows without a bandwidth."""
    return results_frame.from_rows(
        [
            H200,
            {**H200, "time_ms": 0.0, "bandwidth_gb_s": math.inf},
            {**H200, "time_ms": None, "bandwidth_gb_s": None, "status": "failed"},
            {**H200, "cache": "hot"},
            {**H200, "peak_gb_s": None, "attainable_gb_s": None, "bound": None, "device": "another"},
            row("odd", "fp16", bytes_read=0),
        ]
    )


def test_frame_agrees_with_its_rows() -> None:
    found = bwprof.BandwidthAnalysis.from_frame(mixed())
    one = bwprof.BandwidthAnalysis.from_row(H200)
    assert found["utilization"].tolist()[0] == pytest.approx(one.utilization)
    assert found["efficiency"].tolist()[0] == pytest.approx(one.efficiency)
    assert found["rating"].fillna("").tolist() == ["good", "", "", "", "", ""]
    assert found["bottleneck"].tolist()[0] == one.bottleneck_description()
    assert found["utilization"].isna().tolist() == [False, True, True, True, True, True]
    assert found["bottleneck"].isna().tolist() == [False, True, True, False, False, True]
    assert found["bottleneck"].tolist()[3].startswith("hot:")
    assert len(found.columns) == len(mixed().columns) + 4


def test_frames_are_not_changed() -> None:
    data = mixed()
    before = data.copy()
    bwprof.BandwidthAnalysis.from_frame(data, peak_gb_s=100.0)
    pd.testing.assert_frame_equal(data, before)


@pytest.mark.parametrize("columns", [[], ["time_ms"], ["operation", "precision", "M", "N", "K", "time_ms"]])
def test_empty_frames(columns: list[str]) -> None:
    found = bwprof.BandwidthAnalysis.from_frame(pd.DataFrame(columns=columns))
    assert found.columns.tolist() == [*columns, "utilization", "efficiency", "rating", "bottleneck"]
    assert utilization_table(pd.DataFrame(columns=columns)).empty


@pytest.mark.parametrize("data", [None, 3, "file.csv", [1, 2]])
def test_other_types_are_refused(data: Any) -> None:
    with pytest.raises(TypeError, match=r"^data is .*DataFrame"):
        bwprof.BandwidthAnalysis.from_frame(data)


def test_repeated_column_names_are_refused() -> None:
    data = pd.DataFrame([[1.0, 2.0]], columns=["time_ms", "time_ms"])
    with pytest.raises(ValueError, match="'time_ms' is there twice"):
        bwprof.BandwidthAnalysis.from_frame(data)


def test_many_rows_agree_with_each_row() -> None:
    """A sentence is formatted once for equal figures; each row must get its own."""
    rng = np.random.default_rng(3)
    rows = [
        {
            "bytes_read": int(rng.integers(1, 10**9)),
            "bytes_written": int(rng.integers(0, 10**8)),
            "time_ms": float(rng.uniform(0.1, 3)),
            "peak_gb_s": 3000.0,
            "attainable_gb_s": float(rng.uniform(200, 2500)) if rng.random() < 0.8 else None,
            "flops": int(rng.integers(1, 10**12)) if rng.random() < 0.8 else None,
            "peak_tflops": float(rng.choice([67.0, 989.0])),
            "measured_tflops": float(rng.choice([51.0, 700.0])) if rng.random() < 0.5 else None,
            "bound": str(rng.choice(["memory", "compute", "latency"])),
        }
        for _ in range(300)
    ]
    found = bwprof.BandwidthAnalysis.from_frame(pd.DataFrame(rows))
    each = [bwprof.BandwidthAnalysis.from_row(row) for row in rows]
    assert found["bottleneck"].tolist() == [one.bottleneck_description() for one in each]
    assert found["rating"].tolist() == [one.rating for one in each]


def test_utilization_table() -> None:
    twice = [H200, {**H200, "variant": "gemv"}, {**H200, "precision": "fp32", "cache": "hot"}]
    found = utilization_table(
        results_frame.from_rows([twice[0] | {"variant": "cublaslt"}, *twice[1:], {**H200, "time_ms": None}])
    )
    assert found.columns.tolist() == ["Kernel", "Measured BW", "Utilization", "Status"]
    assert found.values.tolist() == [
        ["decode_gemm_8b fp16 cublaslt", "3747 GB/s", "77.8 %", "good"],
        ["decode_gemm_8b fp16 gemv", "3747 GB/s", "77.8 %", "good"],
        ["decode_gemm_8b fp32 (hot)", "3747 GB/s", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("found", "memory", "compute"),
    [
        (
            H200,
            "3747 GB/s (78% of peak 4814 GB/s)",
            "3.75 TFLOPS (0.4% of peak 1071 TFLOPS)",
        ),
        ({**H200, "tflops": 4.0}, "3747 GB/s (78% of peak 4814 GB/s)", "4.00 TFLOPS (0.4% of peak 1071 TFLOPS)"),
        (
            {**H200, "peak_gb_s": None, "peak_tflops": math.nan},
            "3747 GB/s (peak unknown)",
            "3.75 TFLOPS (peak unknown)",
        ),
        ({}, "unknown (pass bytes_read=, bytes_written=)", "unknown (pass flops=)"),
        (
            {**H200, "cache": "hot", "tflops": 150.0, "peak_tflops": 312.0},
            "3747 GB/s (hot: out of a cache, not held against memory)",
            "150 TFLOPS (48% of peak 312 TFLOPS)",
        ),
    ],
)
def test_speed_of_light(found: dict[str, Any], memory: str, compute: str) -> None:
    assert speed_of_light(found) == f"Memory Throughput: {memory}\nCompute Throughput: {compute}"


def test_a_callers_peak_gives_the_bound_of_a_frame() -> None:
    """3 GB in 10 ms, 30 FLOP/B: left of the ridge of 400 TFLOP/s over 800 GB/s, right of that over 80 TB/s."""
    row = {"bytes_read": 2 * GB, "bytes_written": GB, "time_ms": 10.0, "flops": 90 * GB, "peak_tflops": 400.0}
    message = [
        bwprof.BandwidthAnalysis.from_frame(pd.DataFrame([row]), peak_gb_s=peak)["bottleneck"].iloc[0]
        for peak in (800.0, 80_000.0)
    ]
    assert message[0].startswith("memory-bound at 38 %")
    assert all(word in message[1] for word in ("arithmetic", "2 %", "theoretical 400 TFLOP/s"))
