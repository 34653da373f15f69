"""Efficiencies learned from rows of a known model, and transferred to other shapes and devices."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bwprof
from bwprof.analysis.prediction.catalog import resolve_card
from bwprof.analysis.prediction.efficiency import Neighbors, transfer_times
from bwprof.roofs.model import RoofPoint, Roofs

GRID = {"M": [1, 8, 64, 512], "N": [1024, 4096, 16384], "K": [1024, 4096, 16384]}
BETWEEN = {"M": [1, 24, 200], "N": [2048, 9000], "K": [2000, 8192]}


def measured(device: str = "H200", precision: str = "fp16", **params: object) -> pd.DataFrame:
    """Make rows of a known model: 2 us of waiting, streams at 0.95 and products at 0.6 of the roof."""
    frame = bwprof.predict("gemm", device=device, precision=precision, efficiency=1.0, **(params or GRID))
    return with_truth(frame, device)


def with_truth(frame: pd.DataFrame, device: str) -> pd.DataFrame:
    card = resolve_card(device)
    read, written, flops = (frame[name].to_numpy(float) for name in ("bytes_read", "bytes_written", "flops"))
    memory = card.streams.seconds(read, written) / 0.95
    rates = [card.rate(precision)[0] for precision in frame["precision"]]
    frame["time_ms"] = 1e3 * (2e-6 + np.hypot(memory, flops / np.array(rates) / 0.6e12))
    frame["status"], frame["variant"], frame["reason"] = "ok", "true", None
    return frame


def errors(model: object, truth: pd.DataFrame, device: str) -> np.ndarray:
    found = bwprof.predict(truth, device=device, efficiency=model)  # type: ignore[arg-type]
    return (found["time_ms"] / truth["time_ms"] - 1).to_numpy(float)


def test_shapes_between_those_learned_from() -> None:
    model = bwprof.efficiency(measured())
    assert np.abs(errors(model, measured(), "H200")).max() < 0.05
    assert np.abs(errors(model, measured(**BETWEEN), "H200")).max() < 0.08
    row = model.frame().iloc[0]
    assert (row["operation"], row["precision"], row["rows"]) == ("gemm", "fp16", 36)
    assert 0.3 < row["efficiency"] < 0.8
    assert "36 rows of gemm" in repr(model)


def test_little_output_leaves_units_idle() -> None:
    """132 units compute tiles of 128 x 128 results; fewer tiles than units take as long as one for each unit."""

    def tiled(device: str = "H200", **params: object) -> pd.DataFrame:
        frame = bwprof.predict("gemm", device=device, precision="fp16", efficiency=1.0, **params)
        card = resolve_card(device)
        tiles = np.ceil(frame["M"] / 128) * np.ceil(frame["N"] / 128)
        rounds = np.maximum(tiles / card.units, 1.0) * card.units / tiles  # how many times longer than with all units
        arithmetic = frame["flops"] * rounds / (0.7e12 * card.rate("fp16")[0])
        memory = card.streams.seconds(frame["bytes_read"].to_numpy(float), 0.0)
        frame["time_ms"] = 1e3 * (2e-6 + np.maximum(arithmetic, memory))
        frame["status"], frame["variant"], frame["reason"] = "ok", "true", None
        return frame

    few = {"M": [64, 128, 512, 2048], "N": [256, 1024, 4096], "K": [512, 4096, 32768]}
    between = {"M": [256, 1024], "N": [512, 2048], "K": [1024, 2048, 16384]}
    model = bwprof.efficiency(tiled(**few))
    for device, most in (("H200", 0.12), ("H100-SXM", 0.12), ("L40S", 0.3)):  # this one: 142 units, a third of the rate
        assert np.abs(errors(model, tiled(device, **between), device)).max() < most


def test_another_device_with_the_same_arithmetic() -> None:
    """The memory part follows the bandwidth, and the rest stays."""
    model = bwprof.efficiency(measured())
    assert np.abs(errors(model, measured("H100-SXM", **BETWEEN), "H100-SXM")).max() < 0.12
    assert np.median(np.abs(errors(model, measured("H100-SXM", **BETWEEN), "H100-SXM"))) < 0.05


def test_another_device_with_slower_arithmetic() -> None:
    model = bwprof.efficiency(measured())
    assert np.median(np.abs(errors(model, measured("A100-80GB", **BETWEEN), "A100-80GB"))) < 0.12


def test_learned_times_have_an_interval() -> None:
    model = bwprof.efficiency(measured())
    frame = bwprof.predict(
        "gemm", device="H200", precision="fp16", efficiency=model, M=[64, 60, 200_000], N=4096, K=4096
    )
    assert (frame["time_ms_lo"] < frame["time_ms"]).all()
    assert (frame["time_ms"] < frame["time_ms_hi"]).all()
    learned, near, far = frame["time_ms_hi"] / frame["time_ms_lo"]
    assert learned < 1.2
    assert near < 1.4
    assert far > 1.1 * near
    elsewhere = bwprof.predict("gemm", device="L4", precision="fp16", efficiency=model, M=64, N=4096, K=4096)
    assert (elsewhere["time_ms_hi"] / elsewhere["time_ms_lo"])[0] > learned
    assert frame["variant"].tolist() == ["true"] * 3
    assert "36 rows on H200" in frame["reason"][0]


def test_a_frame_of_rows_is_an_efficiency() -> None:
    rows = measured()
    first = bwprof.predict("gemm", device="L4", precision="fp16", efficiency=rows, M=5)
    again = bwprof.predict("gemm", device="L4", precision="fp16", efficiency=bwprof.efficiency(rows), M=5)
    assert first["time_ms"].tolist() == again["time_ms"].tolist()


def test_an_unmeasured_precision_takes_the_nearest_one() -> None:
    both = pd.concat([measured(), measured(precision="fp32")], ignore_index=True)
    model = bwprof.efficiency(both)
    for request, taken in (("bf16", "fp16"), ("fp8_e4m3", "fp16"), ("tf32", "fp32")):
        frame = bwprof.predict("gemm", device="H200", precision=request, efficiency=model, M=8, N=4096, K=4096)
        own = bwprof.predict("gemm", device="H200", precision=taken, efficiency=model, M=8, N=4096, K=4096)
        assert f"in {taken}, none in {request}" in frame["reason"][0]
        width = [found["time_ms_hi"][0] / found["time_ms_lo"][0] for found in (frame, own)]
        assert width[0] > 1.2 * width[1]


def test_few_rows_of_a_precision_are_helped_by_many_of_another() -> None:
    """Three rows shift the fit of another precision, unless they have a kernel of their own."""
    few = {"M": [1], "N": [1024, 4096, 16384], "K": [1024]}
    rows = pd.concat([measured(), measured(precision="bf16", **few)], ignore_index=True)
    model = bwprof.efficiency(rows)
    assert np.abs(errors(model, measured(precision="bf16", **BETWEEN), "H200")).max() < 0.1
    found = bwprof.predict("gemm", device="H200", precision="bf16", efficiency=model, M=[1], N=512, K=512)
    assert all(text in found["reason"].iloc[0] for text in ("3 rows on H200", "36 in fp16"))
    assert model.frame()["rows"].tolist() == [36, 3]
    assert model.rows == 39
    other = measured(precision="bf16", M=[4096], N=[4096, 8192, 16384], K=[4096])
    other["time_ms"] *= 1.8
    model = bwprof.efficiency(pd.concat([measured(), other], ignore_index=True))
    further = measured(precision="bf16", M=[8192], N=[4096], K=[8192])
    further["time_ms"] *= 1.8
    assert np.abs(errors(model, further, "H200")).max() < 0.25


def test_the_nearest_precision_moves_most_nearly_as_many_bytes() -> None:
    """A copy in FP8 moves as many bytes as one in INT8, one in FP32 four times as many."""
    grid = {"batch": [1, 2, 4], "kv_len": [512, 1024, 4096, 16384], "num_kv_heads": [1, 2, 8]}

    def copies(precision: str, params: dict[str, list[int]]) -> pd.DataFrame:
        frame = bwprof.predict("kv_copy", device="H200", precision=precision, efficiency=1.0, **params)
        return with_truth(frame, "H200")

    def reason(*more: pd.DataFrame) -> str:
        rows = pd.concat([copies("fp32", grid), copies("fp8_e4m3", grid), *more], ignore_index=True)
        model = bwprof.efficiency(rows)
        found = bwprof.predict("kv_copy", device="H200", precision="int8", efficiency=model, kv_len=2048)
        return str(found["reason"].iloc[0])

    assert "fp8_e4m3, none in int8" in reason()
    few = copies("int8", {"batch": [1], "kv_len": [1024, 8192]})
    assert all(text in reason(few) for text in ("2 rows on H200", "36 in fp8_e4m3"))


def test_the_fastest_variant_is_the_default() -> None:
    slow = measured()
    slow["time_ms"], slow["variant"] = slow["time_ms"] * 3, "slow"
    model = bwprof.efficiency(pd.concat([measured(), slow], ignore_index=True))
    case = bwprof.analysis.prediction.workload.PredictedCase("gemm", {"M": 8, "N": 4096, "K": 4096}, "fp16")
    default, request = (
        bwprof.analysis.predict_rows([case._replace(variant=variant)], "H200", model) for variant in (None, "slow")
    )
    assert (default["variant"][0], request["variant"][0]) == ("true", "slow")
    assert request["time_ms"][0] / default["time_ms"][0] == pytest.approx(3, rel=0.1)
    with pytest.raises(ValueError, match=r"variant of gemm .*'slo'.*'slow'"):
        bwprof.analysis.predict_rows([case._replace(variant="slo")], "H200", model)


def test_an_unmeasured_operation_takes_the_median_of_the_others() -> None:
    rows = measured()
    model = bwprof.efficiency(rows)
    row = bwprof.predict("kv_copy", device="H200", precision="fp16", efficiency=model).iloc[0]
    middle = float(np.median(model.learned["gemm", "fp16", None].efficiency))
    alone = bwprof.predict("kv_copy", device="H200", precision="fp16", efficiency=middle).iloc[0]
    assert row["time_ms"] == pytest.approx(alone["time_ms"])
    assert row["time_ms_hi"] / row["time_ms_lo"] > 1.3
    assert all(text in row["reason"] for text in ("kv_copy", f"{middle:.0%} of the nearer roof"))


def test_rows_in_doubt_are_not_learned_from() -> None:
    rows = measured()
    doubted = rows.copy()
    doubted["time_ms"] *= 0.01
    doubted["flags"] = "noisy"
    failed, hot = rows.assign(status="failed", time_ms=1e-6), rows.assign(cache="hot", time_ms=1e-6)
    untimed = rows.assign(time_ms=np.nan)
    model = bwprof.efficiency(pd.concat([rows, doubted, failed, hot, untimed], ignore_index=True))
    assert model.rows == len(rows)
    # Throttled by its power limit is how a card works.
    assert bwprof.efficiency(rows.assign(flags="throttled;not_converged")).rows == len(rows)
    # A roof in doubt, but where that says no more than that a row beats the best product.
    assert bwprof.efficiency(pd.concat([rows, rows.assign(flags="noisy_roof")])).rows == len(rows)
    faster = rows.assign(flags="noisy_roof", tflops=60.0, measured_tflops=50.0, peak_tflops=67.0)
    assert bwprof.efficiency(faster).rows == len(rows)


def test_a_file_with_nine_columns(tmp_path: Path) -> None:
    rows = measured()
    path = tmp_path / "classic.csv"
    rows[list(bwprof.results.schema.CLASSIC_NAMES)].to_csv(path, index=False)
    classic = bwprof.load(path)
    with pytest.raises(ValueError, match=r"no device: .*device="):
        bwprof.efficiency(classic)
    model = bwprof.efficiency(classic, device="H200")
    assert np.abs(errors(model, rows, "H200")).max() < 0.05


def test_few_rows_give_a_median_and_a_wide_range() -> None:
    model = bwprof.efficiency(measured(M=[1], N=[4096], K=[4096]))
    frame = bwprof.predict("gemm", device="H200", precision="fp16", efficiency=model, M=[1, 64], N=4096, K=4096)
    assert frame["time_ms_hi"][0] / frame["time_ms_lo"][0] > 2
    assert frame["time_ms"][0] == pytest.approx(measured(M=[1], N=[4096], K=[4096])["time_ms"][0], rel=1e-6)


def test_roofs_that_came_with_the_rows_are_the_devices_own() -> None:
    points = (RoofPoint("read", 1.0, 1 << 20, 3e-6), RoofPoint("read", 1.0, 1 << 30, 1.1e-3))
    roofs = Roofs("Test GPU", "", "", "0", 1e-6, points, measured="then")
    rows = measured().assign(device="Test GPU")
    with pytest.raises(ValueError, match=r"^Test GPU .*catalog.*device="):
        bwprof.efficiency(rows)
    assert bwprof.efficiency(rows, device=roofs).card.streams.floor_seconds == 1e-6
    rows.attrs = {"run": {"roofs": roofs.to_dict()}}
    model = bwprof.efficiency(rows)
    assert model.card.name == "Test GPU"
    back = bwprof.predict(rows, device=roofs, efficiency=model)
    assert (back["time_ms"] / rows["time_ms"]).to_numpy() == pytest.approx(1, rel=0.05)


def test_a_device_whose_launch_takes_no_time() -> None:
    card = resolve_card("H200")
    card = replace(card, streams=replace(card.streams, floor_seconds=0.0))
    model = bwprof.efficiency(measured(), card)
    assert np.abs(errors(model, measured(), "H200")).max() < 0.06


def test_unusable_rows_are_refused() -> None:
    rows = measured()
    with pytest.raises(ValueError, match="nothing to learn from"):
        bwprof.efficiency(rows.iloc[:0])
    with pytest.raises(ValueError, match="nothing to learn from"):
        bwprof.efficiency(bwprof.predict("gemm"))  # predicted, not measured
    with pytest.raises(ValueError, match=r"several devices \(H200, L4\)"):
        bwprof.efficiency(pd.concat([rows, rows.assign(device="L4")], ignore_index=True))
    with pytest.raises(TypeError, match=r"a pandas\.DataFrame is needed"):
        bwprof.efficiency([1])  # type: ignore[arg-type]


def test_a_transferred_time_changes_part_by_part() -> None:
    """By hand, with the exponent 5/4: of 5 us a stream takes 3 us, what is beside it (5^1.25 - 3^1.25)^0.8 = 2.742 us;
    of half the bandwidth they are 6 us and 2.742 us, and make (6^1.25 + 2.742^1.25)^0.8 = 7.745 us.
    """
    here, there = resolve_card("bandwidth=1000,fp16=100"), resolve_card("bandwidth=500,fp16=50")
    nothing = np.zeros(1)
    times = transfer_times(np.array([5e-6]), np.array([3e-6]), np.array([6e-6]), nothing, (here, there), "fp16")
    assert times[0] == pytest.approx(7.745e-6, rel=1e-3)
    # Arithmetic alone follows its rate, whatever the memory does.
    times = transfer_times(
        np.array([4e-6]), np.array([1e-9]), np.array([2e-9]), np.array([4e-6]), (here, there), "fp16"
    )
    assert times[0] == pytest.approx(8e-6, rel=1e-3)
    # What leaves units idle there makes it longer.
    some = np.array([4e-6]), np.array([1e-9]), np.array([2e-9]), np.array([4e-6])
    assert transfer_times(*some, (here, there), "fp16", busier=1.5)[0] == pytest.approx(12e-6, rel=1e-3)
    # A stream alone follows the bandwidth.
    times = transfer_times(np.array([3e-6]), np.array([3e-6]), np.array([6e-6]), nothing, (here, there), "fp16")
    assert times[0] == pytest.approx(6e-6, rel=1e-6)


def test_what_arithmetic_cannot_need_is_not_hidden_behind_memory() -> None:
    """By hand, in us: of 5 a stream takes 3 (6 there) and arithmetic 1, a share of 1 / hypot(1, 3) = 0.3162.

    All of the rest as arithmetic is (5^8 - 3^8)^(1/8) = 4.989, there (6^8 + 4.989^8)^(1/8) = 6.156; as what waits for
    memory it makes 7.745 (above). Of at most 2, it makes 3.0145 with the stream, beside which are
    (5^1.25 - 3.0145^1.25)^0.8: together 7.733 there.
    """
    cards = resolve_card("bandwidth=1000,fp16=100"), resolve_card("bandwidth=500,fp16=100")
    times = np.array([5e-6]), np.array([3e-6]), np.array([6e-6]), np.array([1e-6])
    assert transfer_times(*times, cards, "fp16")[0] == pytest.approx(0.6838 * 7.745e-6 + 0.3162 * 6.156e-6, rel=1e-3)
    found = transfer_times(*times, cards, "fp16", hidden=2e-6)
    assert found[0] == pytest.approx(0.6838 * 7.745e-6 + 0.3162 * 7.733e-6, rel=1e-3)


def test_parameters_unlike_all_others_are_doubted() -> None:
    """Points that differ in size alone do not vary a parameter: 5 powers of two add a tenth of doubt."""
    x = np.linspace(0, 20, 41)[:, None]
    found = Neighbors(x, np.zeros((41, 1)), 0.1 * x[:, 0])
    _, doubt, _ = found(np.array([[10.0], [10.0]]), np.array([[0.0], [5.0]]))
    assert doubt[0] < 0.01
    assert doubt[1] == pytest.approx(0.1, rel=0.02)


def test_between_points_and_far_from_them() -> None:
    """Values between points follow a smooth function; far away they are the median, with the whole spread as error."""
    x = np.linspace(0, 20, 21)[:, None]
    values = np.sin(x[:, 0] / 5)
    found = Neighbors(x, np.zeros((21, 1)), values)
    between, error, nearest = found(np.array([[3.5], [10.2]]), np.zeros((2, 1)))
    assert between == pytest.approx(np.sin(np.array([3.5, 10.2]) / 5), abs=0.02)
    assert nearest.tolist() == [4, 10] or nearest.tolist() == [3, 10]
    far, doubt, _ = found(np.array([[500.0]]), np.zeros((1, 1)))
    assert far[0] == pytest.approx(np.median(values), abs=0.01)
    assert doubt[0] > 0.9 * np.std(values) > error.max()


def test_more_points_than_the_limit() -> None:
    x = np.linspace(0, 20, 1000)[:, None]
    found = Neighbors(x, np.zeros((1000, 1)), np.sin(x[:, 0]))
    assert found.count == 400
    values, _, nearest = found(np.array([[7.0]]), np.zeros((1, 1)))
    assert values[0] == pytest.approx(math.sin(7), abs=0.05)
    assert x[found.sample[nearest[0]], 0] == pytest.approx(7, abs=0.1)


CARDS = {"h100": "H100-SXM", "h200": "H200"}


@cache
def _learn_rows(name: str) -> tuple[bwprof.Efficiency, bwprof.Efficiency, pd.DataFrame]:
    """Learn from an example's run with and without its metadata; also return the fastest row of each shape."""
    run = bwprof.load_example(name)
    sound = ~run["flags"].fillna("").str.contains("noisy") & (run["status"] == "ok") & (run["cache"] == "cold")
    rows = run[sound].sort_values("time_ms").drop_duplicates(["operation", "precision", "case"])
    bare = run.copy()
    bare.attrs = {}
    return bwprof.efficiency(run), bwprof.efficiency(bare), rows.reset_index(drop=True)


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("device", ["H100-SXM", "H200", "A100-80GB"])
def test_rows_without_their_run_give_nearly_the_same_times(name: str, device: str) -> None:
    """A run has its card's own streams; without it, bundled ones of an H200 are scaled by data sheets.

    Cards reach shares of their data sheets that differ by some percent. Predictions may change by little more.
    """
    *learned, rows = _learn_rows(name)
    own, scaled = (bwprof.predict(rows, device=device, efficiency=model) for model in learned)
    assert (scaled["attainable_gb_s"] / own["attainable_gb_s"]).to_numpy() == pytest.approx(1, rel=0.06)
    ratio = scaled["time_ms"] / own["time_ms"]
    assert ratio.median() == pytest.approx(1, abs=0.01)
    assert ratio.quantile([0.1, 0.9]).to_numpy() == pytest.approx(1, abs=0.12)
    assert ((scaled["time_ms"] > own["time_ms_lo"]) & (scaled["time_ms"] < own["time_ms_hi"])).mean() > 0.95
    if device == CARDS[name]:
        for found in (own, scaled):
            again = found["time_ms"] / rows["time_ms"]
            assert again.median() == pytest.approx(1, abs=0.01)
            assert again.to_numpy() == pytest.approx(1, rel=0.15)


def test_two_runs_of_one_device() -> None:
    """The attainable rate is that of any prediction for the device, and no kernel is faster than its bytes."""
    runs = pd.concat([bwprof.load_example("h100"), bwprof.load_example("h100_llama")])
    large = {"batch": 16, "num_kv_heads": 8}
    row = bwprof.predict("attention_decode", device="H100-SXM", precision="fp16", efficiency=runs, **large).iloc[0]
    alone = bwprof.predict("attention_decode", device="H100-SXM", precision="fp16", **large).iloc[0]
    assert row["attainable_gb_s"] == alone["attainable_gb_s"]
    assert row["bandwidth_gb_s"] < 1.02 * row["attainable_gb_s"]


@pytest.mark.parametrize("device", ["L4", "A100-80GB", "MI300X", "H200", "bandwidth=300,fp16=120"])
def test_streams_are_scaled_once(device: str) -> None:
    """A learned model predicts its own rows, whatever its streams were scaled from."""
    rows = measured(device)
    model = bwprof.efficiency(rows, None if "=" not in device else device)
    back = bwprof.predict(rows, device=device, efficiency=model)
    assert back["attainable_gb_s"].tolist() == rows["attainable_gb_s"].tolist()
    assert (back["time_ms"] / rows["time_ms"]).to_numpy() == pytest.approx(1, rel=0.05)
    elsewhere = bwprof.predict(rows, device="RTX-4090", efficiency=model)
    plain = bwprof.predict(rows, device="RTX-4090")
    assert elsewhere["attainable_gb_s"].tolist() == plain["attainable_gb_s"].tolist()
