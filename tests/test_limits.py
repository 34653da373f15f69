"""What limits a row: the side of the ridge, the share of the nearer roof, one word (`bwprof.roofs.limiter`)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bwprof
from bwprof import _core, analysis, hardware
from bwprof.analysis.values import limiter_columns
from bwprof.roofs import limiter as roofs_limiter
from bwprof.roofs.model import Rate, RoofPoint, Roofs

# An FP16 row of an H200: 4301 GB/s of streams, 718 TFLOP/s of the best product, 1071 in theory.
H200 = {
    "ceiling_gb_s": 4301.0,
    "attainable_gb_s": 4269.0,
    "peak_gb_s": 4814.0,
    "measured_tflops": 718.0,
    "peak_tflops": 1071.0,
    "timer_floor_us": 1.0,
    "status": "ok",
    "cache": "cold",
}


def row(time_ms: float, moved: int | None, flops: int | None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {**H200, "time_ms": time_ms, "bytes_read": moved, "flops": flops}
    if moved is not None:
        found["bytes_written"] = 0
        found["bandwidth_gb_s"] = moved / time_ms / 1e6
    if flops is not None:
        found["tflops"] = flops / time_ms / 1e9
    return {name: value for name, value in (found | more).items() if value is not None}


@pytest.mark.parametrize(
    ("peak_tflops", "bandwidth_gb_s", "expected"),
    [
        (312, 2039, 153.0),  # A100 of 80 GB
        (312, 1555, 200.6),  # A100 of 40 GB
        (121, 300, 403.3),  # L4
        (989.4, 3350, 295.3),  # H100 SXM
        (989.4, 4800, 206.1),  # H200, data sheet
        (718, 4301, 166.9),  # H200, measured
        (1071, 4301, 249.0),
    ],
)
def test_ridges_of_data_sheets(peak_tflops: float, bandwidth_gb_s: float, expected: float) -> None:
    assert roofs_limiter.ridge(peak_tflops, bandwidth_gb_s) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("operation", "shape", "intensity", "side"),
    [
        ("gemm", {"M": 1024, "N": 1024, "K": 1024}, 1024 / 3, "compute"),  # N / 3 in FP16, not N / 2
        ("gemm", {"M": 64, "N": 64, "K": 64}, 64 / 3, "memory"),
        ("gemm", {"M": 8192, "N": 8192, "K": 128}, 124.1, "memory"),
        # Of a decode step H / G queries share a key and a value of 2 bytes each: H / G operations a byte ...
        ("attention_decode", {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "kv_len": 1 << 15}, 4.0, "memory"),
        ("attention_decode", {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64, "kv_len": 1 << 15}, 7.0, "memory"),
        # ... and of a prompt all its tokens do.
        ("attention_prefill", {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64, "seq_len": 512}, 224.4, "compute"),
        (
            "attention_prefill",
            {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "seq_len": 4096},
            1638.8,
            "compute",
        ),
    ],
)
def test_sides_of_well_known_shapes(operation: str, shape: dict[str, int], intensity: float, side: str) -> None:
    """On an A100 of 80 GB, in FP16."""
    found = bwprof.cost(operation, precision="fp16", **shape).arithmetic_intensity
    assert found == pytest.approx(intensity, rel=1e-3)
    assert roofs_limiter.classify(found, roofs_limiter.ridge(312, 2039)) == side


def test_side_of_a_thin_product() -> None:
    """8192 x 8192 x 128 in FP16: 2 M N K operations over 2 (M K + K N + M N) bytes."""
    intensity = 2 * 8192 * 8192 * 128 / (2 * (8192 * 128 + 128 * 8192 + 8192 * 8192))
    assert intensity == pytest.approx(124.1, abs=0.05)
    assert roofs_limiter.classify(intensity, roofs_limiter.ridge(312, 2039)) == "memory"
    assert roofs_limiter.classify(153.1, 153.0) == roofs_limiter.classify(153.0, 153.0) == "compute"
    assert roofs_limiter.classify(math.nan, 153.0) is None


def test_roofline_below_and_above_the_ridge() -> None:
    assert roofs_limiter.attainable(2.0, 312, 2039) == pytest.approx(4.078)
    assert roofs_limiter.attainable(0, 312, 2039) == 0
    assert roofs_limiter.attainable(math.inf, 312, 2039) == 312
    assert np.isnan(roofs_limiter.attainable([math.nan, 1.0, 1.0], [312, math.nan, 312], [2039, 2039, math.nan])).all()


def test_arrays_as_numbers() -> None:
    """Lists, arrays and columns give the same as each of their numbers alone."""
    peaks, bandwidths = np.array([[312.0, 121.0], [718.0, math.nan]]), pd.Series([2039.0, 300.0])
    found = roofs_limiter.ridge(peaks, bandwidths)
    assert found.shape == (2, 2)
    alone = [[roofs_limiter.ridge(peak, width) for peak, width in zip(line, bandwidths, strict=True)] for line in peaks]
    assert np.array_equal(found, alone, equal_nan=True)
    assert roofs_limiter.classify([1, 1000, math.nan], 153).tolist() == ["memory", "compute", None]
    assert isinstance(roofs_limiter.ridge(np.float32(312), np.int64(2039)), float)


@pytest.mark.parametrize("bad", [0, -1.0, math.inf])
def test_wrong_roofs_are_refused(bad: float) -> None:
    for call in (
        lambda: roofs_limiter.ridge(bad, 1.0),
        lambda: roofs_limiter.ridge(1.0, [1.0, bad]),
        lambda: roofs_limiter.attainable(1.0, bad, 1.0),
        lambda: roofs_limiter.classify(1.0, bad),
    ):
        with pytest.raises(ValueError, match=rf"(peak_tflops|bandwidth_gb_s|ridge) is {float(bad)}: more than zero"):
            call()
    with pytest.raises(ValueError, match=r"^intensity is -1\.0: "):
        roofs_limiter.classify(-1, 2)
    with pytest.raises(TypeError, match="peak_tflops is '312'"):
        roofs_limiter.ridge("312", 2039)


def test_positions() -> None:
    assert "bytes" in roofs_limiter.position(0.94, "memory")
    assert "arithmetic" in roofs_limiter.position(0.94, "compute")
    assert roofs_limiter.position(0.95, "memory") == roofs_limiter.position(1.05, "compute")
    assert "at the roof" in roofs_limiter.position(0.95, "memory")
    assert roofs_limiter.position(1.06, "compute") == "impossible: check the measurement"
    assert roofs_limiter.position(math.nan, "memory") is None
    assert roofs_limiter.position(0.5, None) is None
    assert roofs_limiter.position([0.5, 1.0, math.nan], ["memory", None, "compute"]).tolist() == [
        roofs_limiter.position(0.94, "memory"),
        roofs_limiter.position(0.95, "memory"),
        None,
    ]


# What limits a row, worked out by hand: (row, limiter, pct_limit). 10^9 bytes are 0.2342 ms of a stream of 4269 GB/s,
# and 10^12 operations 1.3928 ms at 718 TFLOP/s.
ROWS = [
    pytest.param(row(0.2500, 10**9, 0), "memory", 93.70, id="a copy at its roof"),
    pytest.param(row(0.2500, 10**9, 10**10), "memory", 93.70, id="left of the ridge"),
    pytest.param(row(1.5000, 10**9, 10**12), "compute", 92.85, id="right of the ridge"),
    pytest.param(row(0.4700, 10**9, 0), "kernel", 49.84, id="a copy at less than half of its roof"),
    pytest.param(row(0.4680, 10**9, 0), "memory", 50.05, id="a copy at half of its roof"),
    pytest.param(row(70.0, 10**9, 10**12), "kernel", 1.99, id="far below both"),
    pytest.param(row(0.0029, 10**6, 0), "latency", 8.08, id="within three empty launches"),
    # Between both ridges, 167 and 249: the measured arithmetic rate is the nearer roof.
    pytest.param(row(0.3000, 10**9, 2 * 10**11), "compute", 92.85, id="between the ridges"),
    pytest.param(row(0.3000, 10**9, 2 * 10**11, measured_tflops=None), "memory", 78.08, id="theory's side"),
    # 800 TFLOP/s beats the best product: one yardstick for all rows of a precision says so.
    pytest.param(row(1.2500, 10**9, 10**12), "compute", 111.42, id="faster than the best product"),
    pytest.param(row(0.3500, 10**9, None), "memory", 66.93, id="no FLOPs, above 60 %"),
    pytest.param(row(0.4000, 10**9, None), None, None, id="no FLOPs, below"),
    pytest.param(row(0.0029, 10**6, None), "latency", None, id="no FLOPs, near the floor"),
    pytest.param(row(1.5000, None, 10**12), "compute", 92.85, id="no bytes"),
    pytest.param(row(3.0000, None, 10**12), None, None, id="no bytes, and slow"),
    # A roof that this size need not reach tells only that it is near.
    pytest.param(row(0.3000, 10**9, 0, attainable_gb_s=None), "memory", 77.50, id="near the ceiling"),
    pytest.param(row(0.9000, 10**9, 0, attainable_gb_s=None), None, None, id="far from the ceiling"),
    pytest.param(row(1.5000, 10**9, 10**12, cache="hot"), "compute", 92.85, id="hot, near the arithmetic"),
    pytest.param(row(0.0500, 10**9, 10**9, cache="hot"), None, None, id="hot"),
    pytest.param(row(1.5000, 0, 10**12), "compute", 92.85, id="nothing moved"),
]


@pytest.mark.parametrize(("cells", "limiter", "pct_limit"), ROWS)
def test_limiter_of_a_row(cells: dict[str, Any], limiter: str | None, pct_limit: float | None) -> None:
    found = roofs_limiter.classify_row(cells)
    assert found.limiter == limiter
    assert found.pct_limit == pytest.approx(math.nan if pct_limit is None else pct_limit, abs=0.006, nan_ok=True)
    if limiter is None and cells["cache"] == "cold":
        assert found.why.startswith("what limits it ")
    else:
        assert found.why is None


def test_a_ridge_from_measured_roofs() -> None:
    """718 instead of 1071 TFLOP/s moves the ridge from 249 to 167, and a kernel of 200 FLOP/B to its other side."""
    cells = row(0.3, 10**9, 2 * 10**11)
    assert (round(roofs_limiter.classify_row(cells).ridge), roofs_limiter.classify_row(cells).side) == (167, "compute")
    cells.pop("measured_tflops")
    assert (round(roofs_limiter.classify_row(cells).ridge), roofs_limiter.classify_row(cells).side) == (249, "memory")
    assert math.isnan(roofs_limiter.classify_row(row(0.3, 10**9, 1, cache="hot")).ridge)


def test_an_unfused_prompt_on_an_h200_limits_itself() -> None:
    """It reaches 0.4 % of the roofline and 1.6 % of a stream, although `bound` is memory."""
    found = roofs_limiter.classify_row(
        H200
        | {
            "time_ms": 0.1170145,
            "timer_floor_us": 0.501152,
            "bytes_read": 1179648,
            "bytes_written": 917504,
            "flops": 470679552,
            "bandwidth_gb_s": 17.92215,
            "tflops": 4.022403,
            "attainable_gb_s": 1092.044,
            "ceiling_gb_s": 4293.297,
            "measured_tflops": 731.868,
            "peak_tflops": 1070.531,
        }
    )
    assert (found.limiter, found.pct_limit) == ("kernel", pytest.approx(1.641, abs=1e-3))
    # 224.4 FLOP/B: right of the ridge at 170.5 that was measured, left of the one at 249.3 in theory.
    assert (found.side, found.ridge) == ("compute", pytest.approx(170.5, abs=0.05))


def test_the_reason_names_the_missing_figure() -> None:
    def why(cells: dict[str, Any]) -> str:
        return str(roofs_limiter.classify_row(cells).why)

    assert "flops= and precision=" in why(row(0.4, 10**9, None))
    assert "precision=" in why(row(0.4, 10**9, 1, measured_tflops=None, peak_tflops=None))
    assert "bytes_read=" in why(row(3.0, None, 10**12))
    assert "roofs='auto'" in why(row(0.9, 10**9, 0, attainable_gb_s=None))
    assert "no roof of" in why({"time_ms": 1.0, "bytes_read": 1, "bytes_written": 1, "bandwidth_gb_s": 1.0})
    assert roofs_limiter.classify_row({"status": "skipped"}).why is None


def test_a_prediction_without_a_time_has_the_slower_roof() -> None:
    def limits_of(flops: int | None) -> roofs_limiter.Limiter:
        made = row(1.0, 10**9, flops, status="predicted", bandwidth_gb_s=None, tflops=None)
        return roofs_limiter.classify_row({name: value for name, value in made.items() if name != "time_ms"})

    assert limits_of(10**12).limiter == "compute"
    assert limits_of(10**9).limiter == "memory"
    assert limits_of(None).limiter is None
    assert math.isnan(limits_of(10**9).pct_limit)


def frame_of_all() -> pd.DataFrame:
    return pd.DataFrame([param.values[0] for param in ROWS])  # type: ignore[union-attr]


def test_frame_agrees_with_classify_row() -> None:
    found = roofs_limiter.with_limits(frame_of_all())
    for place, param in enumerate(ROWS):
        alone = roofs_limiter.classify_row(param.values[0])  # type: ignore[arg-type]
        line = found.iloc[place]
        assert (None if pd.isna(line["limiter"]) else line["limiter"]) == alone.limiter, param.id
        assert np.array_equal(line["pct_limit"], alone.pct_limit, equal_nan=True), param.id
        assert np.array_equal(line["ridge"], alone.ridge, equal_nan=True), param.id
        assert (None if pd.isna(line["reason"]) else line["reason"]) == alone.why, param.id


def test_existing_limits_stay() -> None:
    """Only empty cells are filled; the frame is not changed; a second call changes nothing."""
    before = frame_of_all().assign(limiter=None, reason="throttled")
    before.loc[0, ["limiter", "pct_limit", "ridge"]] = ["latency", 12.0, 3.0]
    copied = before.copy()
    found = roofs_limiter.with_limits(before)
    pd.testing.assert_frame_equal(before, copied)
    assert found.loc[0, ["limiter", "pct_limit", "ridge"]].tolist() == ["latency", 12.0, 3.0]
    assert found.loc[1, "limiter"] == "memory"
    untold = found["limiter"].isna() & (found["cache"] == "cold")
    assert found.loc[untold, "reason"].str.startswith("throttled; what limits it ").all()
    assert (found.loc[~untold, "reason"] == "throttled").all()
    pd.testing.assert_frame_equal(roofs_limiter.with_limits(found), found)


def test_nine_classic_columns_give_no_limiter() -> None:
    classic = pd.DataFrame(
        [["gemm", "fp16", 1, 4096, 4096, 0.01, 3358.7, 33570816, 16384]],
        columns=["operation", "precision", "M", "N", "K", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"],
    )
    found = roofs_limiter.with_limits(classic)
    assert found[["ridge", "pct_limit", "limiter"]].isna().all(axis=None)
    assert found["reason"].item().startswith("what limits it ")
    assert "no roof" in found["reason"].item()
    assert list(found.columns[:9]) == list(classic.columns)
    assert roofs_limiter.with_limits(classic.iloc[:0])["limiter"].empty


def test_frames_of_other_sources() -> None:
    """Texts, infinities and zeros count as unknown."""
    hostile = frame_of_all().astype(object)
    hostile.loc[0, "time_ms"], hostile.loc[1, "bandwidth_gb_s"] = 0, math.inf
    hostile.loc[2, "flops"], hostile.loc[3, "attainable_gb_s"] = "many", "0"
    hostile.loc[5, "measured_tflops"], hostile["peak_gb_s"] = 10**400, 1j
    found = roofs_limiter.with_limits(hostile)
    assert found.loc[0, ["limiter", "pct_limit"]].isna().all()
    assert found.loc[4, "limiter"] == "memory"
    with pytest.raises(ValueError, match="'time_ms' is there twice"):
        roofs_limiter.with_limits(pd.concat([hostile, hostile[["time_ms"]]], axis=1))
    with pytest.raises(TypeError, match=r"DataFrame .*not list"):
        roofs_limiter.with_limits([])  # type: ignore[arg-type]


def test_a_run_of_the_first_schema(source_tree: Path) -> None:
    """A file without these columns gets them from its own roofs."""
    old = bwprof.load(source_tree / "tests/data/first_schema/results.csv")
    assert old[["ridge", "pct_limit", "limiter"]].isna().all(axis=None)
    found = roofs_limiter.with_limits(old)
    assert found["ridge"].tolist() == pytest.approx((1e3 * old["measured_tflops"] / old["ceiling_gb_s"]).tolist())
    assert found["limiter"].tolist() == ["kernel", "kernel", "memory", "memory"]
    assert found["pct_limit"][2:].tolist() == pytest.approx(old["pct_attainable"][2:].tolist())
    assert bwprof.summary(old)["limiter"].tolist() == ["kernel", "memory"]


def test_all_rows_are_compared_with_one_rate() -> None:
    """The faster of two rows has the larger share, whatever an older file holds."""
    more = {"flags": "throttled", "reason": "hot"}
    slow, fast = row(1.45, 10**9, 10**12, **more), row(1.25, 10**9, 10**12, **more)
    old = pd.DataFrame([{**slow, "pct_limit": 96.05}, {**fast, "pct_limit": 74.70}]).assign(limiter="compute")
    found = roofs_limiter.with_limits(old)
    assert found["pct_limit"].tolist() == pytest.approx([96.05, 111.42], abs=0.006)
    assert found["flags"].tolist() == ["throttled", "throttled;noisy_roof"]
    assert found["reason"].tolist()[0] == "hot"
    assert found["reason"].tolist()[1].startswith("hot; 111 % of")
    assert "718 TFLOP/s" in found["reason"].tolist()[1]
    pd.testing.assert_frame_equal(roofs_limiter.with_limits(found), found)
    assert limiter_columns(old).pct_limit.tolist() == pytest.approx([96.05, 111.42], abs=0.006)
    # Beyond theory it is the row that is in doubt.
    assert not roofs_limiter.find_beaten({"tflops": 1072.0, "measured_tflops": 718.0, "peak_tflops": 1071.0})
    assert roofs_limiter.find_beaten({"tflops": 1072.0, "measured_tflops": 718.0})
    assert roofs_limiter.explain_beaten({"tflops": 750.0, "measured_tflops": 718.0}) is None
    half = roofs_limiter.explain_beaten({"flops": 4e11, "time_ms": 0.5, "measured_tflops": 718.0})
    assert str(half).startswith("111 % of"), "800 TFLOP/s"


def test_a_rows_grade() -> None:
    """The grade is the share of the nearer roof, else that of the stream."""
    assert roofs_limiter.find_grade({"pct_limit": 93.0, "pct_attainable": 4.0, "limiter": "compute"}) == (93.0, True)
    assert roofs_limiter.find_grade({"pct_limit": 40.0, "pct_attainable": 40.0, "limiter": "kernel"}) == (40.0, False)
    assert roofs_limiter.find_grade({"pct_limit": 40.0, "pct_attainable": 4.0, "limiter": "kernel"}) == (40.0, True)
    assert roofs_limiter.find_grade({"pct_limit": 70.0, "pct_attainable": None, "limiter": "memory"}) == (70.0, False)
    assert roofs_limiter.find_grade({"pct_limit": None, "pct_attainable": 30.0}) == (30.0, False)
    assert roofs_limiter.find_grade({}) is None


def test_dir_lists_the_public_names() -> None:
    assert {"ridge", "attainable", "classify", "position", "with_limits"} <= set(dir(analysis))
    with pytest.raises(AttributeError, match=r"bwprof\.analysis.*'ridges'"):
        _ = analysis.ridges


# ---- functions of a caller's own ----


def make_roofs(gb_s: float, **rates: float) -> Roofs:
    """Make roofs of the CPU: a rate of streams in GB/s, and rates of products in TFLOP/s."""
    with _core.Device("cpu") as device:
        facts = hardware.facts(device)
    point = RoofPoint("copy", 0.5, 1 << 20, (1 << 20) / gb_s / 1e9)
    made = tuple(Rate(name, "product", "best", 64, rate, rate, 0.0) for name, rate in rates.items())
    threads = facts["units"]
    return Roofs(facts["name"], facts["uuid"], facts["driver"], "", 0.0, (point,), rates=made, threads=threads)


def measured(roofs: Any, **work: Any) -> bwprof.Row:
    """Measure a function of some 100 us with 2 MB: some 20 GB/s."""
    if not work.pop("no_bytes", False):
        work |= {"bytes_read": 10**6, "bytes_written": 10**6}
    return bwprof.measure(
        lambda: sum(range(5000)), device="cpu", roofs=roofs, max_seconds=0.0, roof_threads=None, **work
    )


def test_bytes_alone_give_the_limiter_memory() -> None:
    found = measured(make_roofs(1e-3))  # any machine is faster
    assert (found["limiter"], found["bound"], found["flops"]) == ("memory", "memory", None)
    assert "what limits it" not in found["reason"]
    assert found["pct_limit"] == pytest.approx(found["pct_attainable"], rel=1e-12)


def test_far_below_a_stream_the_reason_names_arguments() -> None:
    found = measured(make_roofs(1e6))
    assert (found["limiter"], found["bound"], found["pct_limit"]) == (None, None, None)
    assert "flops= and precision=" in found["reason"]
    with_flops = measured(make_roofs(1e6, fp32=1e3), flops=1000, precision="fp32")
    assert (with_flops["limiter"], with_flops["bound"]) == ("kernel", "memory")
    assert "what limits it" not in (with_flops["reason"] or "")
    unknown = measured(make_roofs(1e6), flops=1000, precision="mine")
    assert "precision=" in unknown["reason"]


def test_a_function_without_bytes_has_a_reason_that_names_them() -> None:
    assert "bytes_read= and bytes_written=" in measured(make_roofs(1.0), no_bytes=True)["reason"]
    assert "what limits it" not in (measured(False)["reason"] or ""), "that is what False asks for"
    assert "what limits it" not in (measured(make_roofs(1.0), no_bytes=True, cache="hot")["reason"] or "")
