"""Predictions without a device: times by hand, frames, shapes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy_roofs
from precisions import PRECISIONS

import bwprof
from bwprof.analysis.prediction import catalog
from bwprof.analysis.prediction.catalog import Streams
from bwprof.analysis.prediction.predict import predict_rows
from bwprof.results import schema
from bwprof.roofs import limiter
from bwprof.roofs.limiter import with_limits
from bwprof.roofs.model import Rate, RoofPoint, Roofs

# A stream takes 2 us and its bytes at 1000 GB/s, an empty launch 1 us; FP16 does 100 TFLOP/s.
POINTS = (
    RoofPoint("read", 1.0, 1_000_000, 3e-6),
    RoofPoint("read", 1.0, 1_000_000_000, 1.002e-3),
)
PLAIN = Roofs(
    "Plain GPU",
    "",
    "",
    "0",
    1e-6,
    POINTS,
    rates=(Rate("fp16", "gemm", "any", 4096, 100.0, 100.0, 0.0),),
    measured="now",
)


@pytest.mark.parametrize(
    ("m", "efficiency", "microseconds"),
    [
        # 2 002 000 bytes read, 2 000 written: 2 us and 2.004 us, of which 1 us is the launch.
        (1, 1.0, 4.004),
        (1, 0.5, 1 + 3.004 / 0.5),
        # 2e9 FLOP in 20 us; 6e6 bytes would need 8 us.
        (1000, 1.0, 1 + 20),
        (1000, 0.5, 1 + 20 / 0.5),
    ],
)
def test_the_longer_of_memory_and_arithmetic_and_a_launch(m: int, efficiency: float, microseconds: float) -> None:
    row = bwprof.predict("gemm", device=PLAIN, precision="fp16", M=m, N=1000, K=1000, efficiency=efficiency).iloc[0]
    assert row["time_ms"] * 1e3 == pytest.approx(microseconds, rel=1e-9)
    assert row["bound"] == ("memory" if m == 1 else "compute")
    assert (row["status"], row["device"], row["timer_floor_us"]) == ("predicted", "Plain GPU", 1.0)
    assert row["attainable_gb_s"] == pytest.approx(1e-9 * (row["bytes_read"] + row["bytes_written"]) / _stream(row))
    assert "Plain GPU (now)" in row["reason"]


def _stream(row: pd.Series) -> float:
    return 2e-6 + 1e-12 * (row["bytes_read"] + row["bytes_written"])


def test_streams_are_those_of_the_roofs() -> None:
    """Streams agree with the roofs within, below and beyond the sizes, and between the curves."""
    mine = Streams.of(toy_roofs.ROOFS)
    chance = random.Random(5)
    for _ in range(300):
        total = int(10 ** chance.uniform(2, 10))
        read = chance.choice([0, total, total // 2, chance.randrange(total + 1)])
        expected = 1e-9 * total / toy_roofs.ROOFS.attainable_gb_s(read, total - read)
        found = mine.seconds(np.array([float(read)]), np.array([float(total - read)]))
        assert found[0] == pytest.approx(expected, rel=1e-9)
        ceiling = mine.ceiling_gb_s(np.array([float(read)]), np.array([float(total - read)]))
        assert ceiling[0] == pytest.approx(toy_roofs.ROOFS.ceiling_gb_s(read, total - read), rel=1e-9)
    many = mine.seconds(np.array([0.0, 5e6, 1e7, 0.0]), np.array([1e7, 5e6, 0.0, 0.0]))
    singly = [
        mine.seconds(np.array([r]), np.array([w]))[0] for r, w in [(0.0, 1e7), (5e6, 5e6), (1e7, 0.0), (0.0, 0.0)]
    ]
    assert many.tolist() == pytest.approx(singly)
    assert many[3] == toy_roofs.ROOFS.floor_seconds


def test_the_size_curve_is_scaled_by_bandwidth_and_latency() -> None:
    """At half the bandwidth a large stream takes twice as long, a small one little longer."""
    found = json.loads((Path(catalog.__file__).parents[2] / "data" / "streams.json").read_text())
    curve = next(curve for curve in found["curves"] if curve["stream"] == "stream_read")
    small, large = curve["microseconds"][0], curve["microseconds"][-1]
    moving = curve["bytes"][0] * large / curve["bytes"][-1]
    elements = [curve["bytes"][0] // 4, curve["bytes"][-1] // 4]

    def times(device: str) -> list[float]:
        shapes = pd.DataFrame({"elements": elements})
        frame = bwprof.predict("stream_read", device=device, precision="fp32", shapes=shapes, efficiency=1.0)
        return (frame["time_ms"] * 1e3).tolist()

    assert times("bandwidth=4800") == pytest.approx([small, large], rel=1e-3)
    assert times("bandwidth=2400") == pytest.approx([small - moving + 2 * moving, 2 * large], rel=1e-3)
    assert times("bandwidth=4800,clock=990") == pytest.approx([2 * (small - moving) + moving, large], rel=1e-3)


def test_a_frame_has_the_columns_of_a_sweep(tmp_path: Path) -> None:
    frame = bwprof.predict(["gemm", "kv_copy"], device="L4")
    assert list(frame.columns) == list(schema.column_names())
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        column.name: schema.DTYPES[column.kind] for column in schema.all_columns()
    }
    assert frame["status"].unique().tolist() == ["predicted"]
    assert frame["precision"].tolist() == ["fp32", "fp16", "fp32", "fp16"]
    assert frame["kv_lens"].isna().all()
    for name in ("rows.json", "rows.csv"):
        bwprof.save(frame, tmp_path / name)
        back = bwprof.load(tmp_path / name)
        assert back["time_ms"].tolist() == pytest.approx(frame["time_ms"].tolist())
        assert back["status"].unique().tolist() == ["predicted"]
    # Half the bytes at the same roof, for large shapes: twice as fast.
    assert frame["byte_ratio_vs_fp32"].tolist()[3] == pytest.approx(2)
    assert 1.9 < frame["speedup_vs_fp32"].tolist()[3] <= 2


def test_columns_stay_apart() -> None:
    """Equal columns may share memory, but writing to one must not change another."""
    frame = bwprof.predict("gemm", device="L4", precision="fp16", M=[1, 2])
    frame.loc[0, "case"] = "mine"
    frame.loc[0, "noise"] = 1.0
    assert frame["operation"].tolist() == ["gemm", "gemm"]
    assert frame["case"].tolist() == ["mine", "gemm M=2"]
    assert frame["time_ms_min"].isna().all()


def test_limits_agree_with_derived_ones() -> None:
    frame = bwprof.predict(
        "gemm",
        device="A100-80GB",
        M=[1, 64, 512, 4096],
        N=[64, 4096],
        precision=["fp32", "fp16", "int8"],
    )
    again = with_limits(frame.drop(columns=["ridge", "pct_limit", "limiter"]))
    pd.testing.assert_frame_equal(frame[["ridge", "pct_limit"]], again[["ridge", "pct_limit"]])
    assert frame["limiter"].tolist() == again["limiter"].tolist()
    assert set(frame["limiter"]) == {"memory", "compute"}


@pytest.mark.parametrize("device", [PLAIN, "H200", "bandwidth=1000", "bandwidth=1000,fp16=1"])
@pytest.mark.parametrize("operation", ["gemm", "kv_copy"])
def test_a_predicted_row_is_graded_as_a_measured_one(device: str | Roofs, operation: str) -> None:
    """Bound, limiter and shares of a predicted row follow from its other columns, for any device."""
    shapes = {"M": [1, 64, 4096], "N": [64, 4096]} if operation == "gemm" else {"kv_len": [1, 65536]}
    for row in bwprof.rows(bwprof.predict(operation, device=device, precision="fp16", **shapes)):
        plain = {name: value for name, value in row.items() if name not in ("ridge", "pct_limit", "limiter", "bound")}
        found = limiter.classify_row(plain)
        expected = {"ridge": found.ridge, "pct_limit": found.pct_limit}
        assert {name: row[name] for name in expected} == {
            name: None if math.isnan(value) else pytest.approx(value) for name, value in expected.items()
        }
        assert (row["limiter"], row["bound"]) == (found.limiter, found.bound), row["case"]
        roofline = None
        if row["peak_tflops"] is not None and row["flops"]:
            roofline = pytest.approx(min(row["peak_tflops"], row["arithmetic_intensity"] * row["ceiling_gb_s"] / 1e3))
        assert row["roofline_tflops"] == roofline, "of the peak, as the column says, not of the best measured rate"


def test_lists_are_swept_and_arrays_go_row_by_row() -> None:
    swept = bwprof.predict("gemm", precision="fp16", M=[1, 16], N=[4096, "8Ki"], K=4096)
    assert swept["case"].tolist() == [f"gemm M={m} N={n}" for m in (1, 16) for n in (4096, 8192)]
    assert swept[["M", "N"]].values.tolist() == [[1, 4096], [1, 8192], [16, 4096], [16, 8192]]
    rows = bwprof.predict("gemm", precision="fp16", M=np.array([1, 16]), N=np.array([4096, 8192]), K=4096)
    assert rows[["M", "N"]].values.tolist() == [[1, 4096], [16, 8192]]
    assert rows["time_ms"].tolist() == swept["time_ms"].tolist()[::3]
    shapes = bwprof.predict("gemm", precision="fp16", shapes=pd.DataFrame({"M": [1, 16], "N": [4096, 8192]}), K=4096)
    assert shapes["time_ms"].tolist() == rows["time_ms"].tolist()
    both = bwprof.predict("gemm", precision="fp16", M=np.array([1, 16]), N=[64, 128])
    assert both[["M", "N"]].values.tolist() == [[1, 64], [16, 64], [1, 128], [16, 128]]


def test_many_shapes_agree_with_each_alone() -> None:
    chance = np.random.default_rng(3)
    m, k = chance.integers(1, 5000, 50_000), chance.integers(1, 20_000, 50_000)
    frame = bwprof.predict("gemm", device="MI300X", precision="bf16", M=m, N=777, K=k)
    assert len(frame) == 50_000
    for at in (0, 12_345, 49_999):
        alone = bwprof.predict("gemm", device="MI300X", precision="bf16", M=int(m[at]), N=777, K=int(k[at]))
        assert frame["time_ms"][at] == pytest.approx(alone["time_ms"][0], rel=1e-12)
        assert frame["limiter"][at] == alone["limiter"][0]


def test_rows_of_cases_keep_their_order() -> None:
    cases = [
        ("gemm", {"M": 1}, "fp16"),
        ("kv_copy", {"kv_len": 1024}, "fp16"),
        ("gemm", {"M": 2}, "fp32"),
        ("gemm", {"M": 3}, "fp16"),
    ]
    frame = predict_rows(cases, "H100-SXM")
    assert frame[["operation", "precision"]].values.tolist() == [[name, kind] for name, _, kind in cases]
    assert frame["M"].tolist() == [1, pd.NA, 2, 3]
    single = bwprof.predict("gemm", device="H100-SXM", precision="fp16", M=3)
    assert frame["time_ms"][3] == single["time_ms"][0]


def test_a_frame_is_predicted_again_for_another_device() -> None:
    first = bwprof.predict("gemm", device="H200", precision="fp16", M=[1, 16], N=8192, K=8192)
    frame = bwprof.predict(first, device="H100-SXM")
    assert frame["case"].tolist() == first["case"].tolist()
    assert (frame["time_ms"] / first["time_ms"]).tolist() == pytest.approx([4800 / 3350] * 2, rel=0.05)
    wider = bwprof.predict(first, device="H100-SXM", precision=["fp32", "fp16"])
    assert wider[["M", "precision"]].values.tolist() == [[1, "fp32"], [1, "fp16"], [16, "fp32"], [16, "fp16"]]


def test_batches_of_different_lengths() -> None:
    lengths = (100, 3000)
    whole = {"batch": 2, "kv_len": 3000, "num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
    case = bwprof.analysis.prediction.workload.PredictedCase("attention_decode", whole, "fp16", "mixed", lengths)
    row = predict_rows([case], "L4").iloc[0]
    assert row["kv_lens"] == "100;3000"
    # q and out: 2 x 8 x 64 elements; K and V: 3100 tokens x 2 heads x 64, each.
    assert (row["bytes_read"], row["bytes_written"]) == (2 * (2 * 8 * 64 + 2 * 3100 * 2 * 64), 2 * 2 * 8 * 64)


def test_lengths_as_in_a_sweep() -> None:
    """Each shape gets the same batch; operations without lengths ignore it; costs are those of `bwprof.cost`."""
    heads = {"num_heads": 8, "num_kv_heads": [2, 4], "head_dim": 64}
    frame = bwprof.predict("attention_decode", device="L4", precision=["fp16", "fp32"], kv_lens=[100, "3Ki"], **heads)
    assert frame["kv_lens"].tolist() == ["100;3072"] * 4
    assert frame["num_kv_heads"].tolist() == [2, 4, 2, 4]
    assert frame[["batch", "kv_len"]].drop_duplicates().values.tolist() == [[2, 3072]]
    assert frame["case"].tolist() == ["attention_decode num_kv_heads=2", "attention_decode num_kv_heads=4"] * 2
    for row in bwprof.rows(frame):
        own = {name: row[name] for name in ("num_heads", "num_kv_heads", "head_dim")}
        cost = bwprof.cost("attention_decode", precision=row["precision"], kv_lens=[100, 3072], **own)
        assert (row["bytes_read"], row["flops"]) == (cost.bytes_read, cost.flops)
    table = pd.DataFrame({"num_heads": [8, 8], "num_kv_heads": [2, 4], "head_dim": [64, 64]})
    again = bwprof.predict("attention_decode", device="L4", precision="fp16", kv_lens=[100, 3072], shapes=table)
    assert again["time_ms"].tolist() == frame["time_ms"].tolist()[:2]
    both = bwprof.predict(["attention_decode", "kv_copy"], precision="fp16", kv_lens="1..2:+1")
    assert both["kv_lens"].fillna("").tolist() == ["1;2", ""]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"op": "gemm", "kv_lens": [1, 2]}, "kv_lens: gemm takes none"),
        ({"op": "attention_decode", "kv_lens": []}, "kv_lens"),
        ({"op": "attention_decode", "kv_lens": [1, 2], "batch": 3}, "kv_lens has 2 lengths: .* one per batch entry, 3"),
        ({"op": "attention_decode", "kv_lens": [0, 2]}, "kv_lens"),
        ({"op": "attention_decode", "kv_lens": "some"}, "kv_lens: 'some' is not a whole number"),
        ({"op": "attention_decode", "shapes": pd.DataFrame({"kv_lens": [1]})}, "lengths are given by --kv-lens"),
        ({"op": bwprof.predict("gemm"), "kv_lens": [1]}, "rows to predict have their parameters"),
    ],
)
def test_wrong_lengths(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bwprof.predict(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("precision", "rate"), [("q4_0", 312), ("fp8_e4m3", 312), ("int8", 624)])
def test_formats_without_a_kernel_are_predicted(precision: str, rate: int) -> None:
    cost = bwprof.cost("gemm", precision=precision, M=1, N=4096, K=4096)
    assert (cost.bytes_read, cost.bytes_written) == PRECISIONS[precision].gemm_bytes
    assert cost.flops == 2 * 4096 * 4096
    row = bwprof.predict("gemm", device="A100-80GB", precision=precision).iloc[0]
    assert (row["bytes_read"], row["bytes_written"]) == PRECISIONS[precision].gemm_bytes
    assert (row["status"], row["peak_tflops"]) == ("predicted", rate)
    assert ("the rate of fp16" in row["reason"]) == (precision == "fp8_e4m3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"efficiency": 0}, "efficiency is 0: allowed is a share from 1e-06 to 1"),
        ({"efficiency": 1.5}, "efficiency is 1.5"),
        ({"efficiency": 5e-324}, "efficiency is 5e-324: allowed is a share from 1e-06 to 1"),
        ({"efficiency": float("nan")}, "efficiency is nan"),
        ({"efficiency": 10**400}, "efficiency is 1000"),
        ({"M": [], "precision": "fp16"}, "gemm: M has no values"),
        ({"M": 0}, "M = 0"),
        ({"m": 1}, "unknown parameter of gemm 'm': did you mean 'M'"),
        ({"precision": "fp61"}, "unknown precision 'fp61': did you mean 'fp16'"),
        ({"M": np.array([1, 2]), "N": np.array([1, 2, 3])}, "M has 2, N has 3 values"),
        ({"M": np.array([[1]])}, "one dimension"),
        ({"M": 1.5}, "M is 1.5, a whole number|M must hold whole numbers"),
        ({"shapes": pd.DataFrame({"M": []})}, "shapes has no rows"),
        ({"shapes": pd.DataFrame({"M": [1]}), "M": 2}, "M is given twice"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bwprof.predict("gemm", **arguments)  # type: ignore[arg-type]


def test_other_bad_input() -> None:
    with pytest.raises(ValueError, match=r"operation 'gem': .*'gemm'"):
        bwprof.predict("gem")
    with pytest.raises(ValueError, match=r"^stream_read .*'int8'"):
        bwprof.predict("stream_read", precision="int8")
    with pytest.raises(ValueError, match="no case to predict"):
        predict_rows([])
    with pytest.raises(TypeError, match="efficiency is 'much'"):
        bwprof.predict("gemm", efficiency="much")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hold no stream"):
        bwprof.predict("gemm", device=Roofs("Bare GPU", "", "", "0", 1e-6, ()))


def test_lower_bounds_are_compared_with_nothing() -> None:
    """A ratio of times needs both times; that of bytes does not."""

    def ratios(device: str, op: str = "gemm") -> pd.DataFrame:
        found = bwprof.predict(op, precision=["fp32", "fp16", "fp8_e4m3"], device=device)
        return found.set_index("precision")[["speedup_vs_fp32", "bandwidth_vs_fp32", "byte_ratio_vs_fp32"]]

    assert ratios("bandwidth=3200,fp16=400").isna().any(axis=1).all()
    assert ratios("bandwidth=3200,fp16=400")["byte_ratio_vs_fp32"].notna().all()
    assert ratios("bandwidth=3200,fp16=400", "kv_copy").notna().all(axis=None)
    assert ratios("H200").notna().all(axis=None)
    known = ratios("bandwidth=3200,fp32=40")
    assert known.loc["fp32"].notna().all()


# ---- several devices ----


@pytest.mark.parametrize(
    "devices", ["H100-SXM,bandwidth=3200,fp16=400,h200", ["H100-SXM", "bandwidth=3200,fp16=400", "H200"]]
)
def test_several_devices_side_by_side(devices: str | list[str], tmp_path: Path) -> None:
    """Each row agrees with that of the device alone; a case's rows are together; a repeated device counts once."""
    request: dict[str, Any] = {"precision": ["fp32", "fp16"], "M": [1, 512], "N": 4096, "K": 4096}
    found = bwprof.predict("gemm", device=devices, **request)
    names = ["H100-SXM", "given", "H200"]
    assert found["device"].tolist() == names * 4
    assert found["M"].tolist() == [1] * 3 + [512] * 3 + [1] * 3 + [512] * 3
    for name, one in zip(names, ["H100-SXM", "bandwidth=3200,fp16=400", "H200"], strict=True):
        alone = bwprof.predict("gemm", device=one, **request)
        own = found[found["device"] == name]
        for column in ("time_ms", "speedup_vs_fp32"):
            assert own[column].tolist() == pytest.approx(alone[column].tolist(), nan_ok=True)
    assert list(found.attrs["run"]["devices"]) == names
    bwprof.save(found, tmp_path / "rows.json")
    assert bwprof.load(tmp_path / "rows.json")["device"].tolist() == found["device"].tolist()
    assert bwprof.predict("gemm", device="h100,H100-SXM", **request)["device"].tolist() == ["H100-SXM"] * 4
    with pytest.raises(ValueError, match="device is empty"):
        bwprof.predict("gemm", device=[])
