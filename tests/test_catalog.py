"""The catalog of devices, and devices by numbers: figures, sources, unknown names."""

from __future__ import annotations

import math

import pytest

import bwprof
from bwprof.analysis.prediction.catalog import catalog, entries, find, resolve_card
from bwprof.roofs.limiter import ridge

IDS = (
    "A100-40GB A100-80GB H100-PCIe H100-SXM H200 B200 L4 L40S RTX-3090 RTX-4090 RTX-5090 "
    "MI250X MI300X RX-7900-XT RX-7900-XTX"
)


def test_every_device_has_sources() -> None:
    frame = catalog().set_index("id")
    assert list(frame.index) == IDS.split()
    assert frame["source"].str.contains("https://").all()
    assert frame[["bandwidth_gb_s", "fp32", "fp16", "memory_gb", "year"]].notna().all(axis=None)
    # What no page confirmed is named by the column that holds it.
    for names in frame["unconfirmed"]:
        assert {name for name in names.split(", ") if name} <= set(frame.columns)


@pytest.mark.parametrize(
    ("device", "ridge_fp16"),
    [("A100-80GB", 153.0), ("A100-40GB", 200.6), ("L4", 403), ("H100-SXM", 295), ("H200", 206)],
)
def test_ridges_by_the_data_sheets(device: str, ridge_fp16: float) -> None:
    row = catalog().set_index("id").loc[device]
    assert ridge(row["fp16"], row["bandwidth_gb_s"]) == pytest.approx(ridge_fp16, rel=3e-3)


def test_rates_are_dense() -> None:
    """8 bits are twice as fast as 16 on every tensor core; a sparse rate would be four times as fast."""
    for entry in entries():
        if "fp8_e4m3" in entry.tflops:
            assert entry.tflops["fp8_e4m3"] / entry.tflops["fp16"] == pytest.approx(2, rel=0.02), entry.id
    assert catalog().set_index("id").loc["L4", "fp16"] == 121  # 242 with sparsity
    assert catalog().set_index("id").loc["RX-7900-XT", "bandwidth_gb_s"] == 800


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("nvidia h200", "H200"),
        ("rtx 4090", "RTX-4090"),
        ("a100-80gb", "A100-80GB"),
    ],
)
def test_names_of_drivers_and_people(name: str, id: str) -> None:
    found = find(name)
    assert found is not None
    assert found.id == id


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'H201': .*'H200'.* A100-40GB.*bandwidth="):
        bwprof.predict("gemm", device="H201")
    with pytest.raises(ValueError, match="unknown device 'AMD EPYC'"):
        bwprof.predict("gemm", device="AMD EPYC")
    for other in ("L40", "h20", "rtx", "80GB", "H100 NVL"):  # other cards, and words of several
        with pytest.raises(ValueError, match=f"unknown device '{other}'"):
            bwprof.predict("gemm", device=other)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("H100 94GB", "H100-SXM"),
        ("3090 Ti 12GB", "RTX-3090"),
        ("a100-nvl-40gb", "A100-40GB"),
        ("rtx4091", "RTX-4090"),
        ("v100", ""),  # another card, not a slip
        ("t4", ""),
        ("a6000", ""),
    ],
)
def test_a_hint_is_a_card_of_the_same_number(name: str, near: str) -> None:
    with pytest.raises(ValueError, match="unknown device") as caught:
        bwprof.predict("gemm", device=name)
    assert str(caught.value).partition("did you mean ")[2].partition("?")[0] == (f"'{near}'" if near else "")


@pytest.mark.parametrize(
    ("name", "taken", "others"),
    [
        ("h100", "H100-SXM", ["H100-PCIe"]),
        ("a100", "A100-80GB", ["A100-40GB"]),
        ("A100 PCIe", "A100-40GB", []),
        ("GeForce 4090", "RTX-4090", []),
        ("4090", "RTX-4090", []),
        ("mi300", "MI300X", []),
        ("7900", "RX-7900-XTX", ["RX-7900-XT"]),
        ("7900xt", "RX-7900-XT", []),
        ("rx7900", "RX-7900-XTX", ["RX-7900-XT"]),
        ("mi250", "MI250X", []),
        ("h100 80", "H100-SXM", ["H100-PCIe"]),
        ("a100-40g", "A100-40GB", []),
        ("RTX4090 24GB", "RTX-4090", []),
        ("Tesla L4", "L4", None),
        ("h200 sxm", "H200", None),
    ],
)
def test_the_nearest_device_is_logged(
    name: str, taken: str, others: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert find(name) is None or others is None
    assert bwprof.predict("gemm", device=name)["device"].unique().tolist() == [taken]
    step = bwprof.model_step("qwen2.5-0.5b", device=name)
    assert step.frame.attrs["run"]["predict_device"] == taken
    message = [record.getMessage() for record in caplog.records]
    assert len(message) == (0 if others is None else 2)  # once for each function
    assert all(word in line for line in message for word in (name, taken, *(others or ())))


def test_memory_is_the_reported_size() -> None:
    """Measured devices have their reported memory, others that of the data sheet, which a step notes."""
    known = catalog().set_index("id")
    for card, example in (("H100-SXM", "h100"), ("H200", "h200")):
        facts = bwprof.load_example(example).attrs["run"]["facts"]
        assert known.loc[card, "memory_gb"] * 1e9 == pytest.approx(facts["memory_bytes"])
    assert known["memory_of"].value_counts().to_dict() == {"data sheet": len(known) - 2, "device": 2}
    large = bwprof.model_step("llama-3.1-70b", weights="fp8", device="H100-SXM")
    assert large.steps["fits"].tolist() == [True]
    notes = {card: " ".join(bwprof.model_step("qwen2.5-0.5b", device=card).notes()) for card in known.index}
    sold = ["The memory is the data sheet's" in notes[card] for card in known.index]
    assert sold == (known["memory_of"] == "data sheet").tolist()


def test_the_data_sheet_is_used_where_rows_have_other_figures() -> None:
    frame = bwprof.predict("gemm", device="H200", precision="fp16")
    assert frame[["peak_gb_s", "peak_tflops"]].values.tolist() == [[4800.0, 989.4]]
    assert all(text in frame["reason"][0] for text in ("4814 GB/s", "1071 TFLOP/s"))
    assert frame.attrs["run"]["predicted_for"] == "H200"


def test_a_device_by_its_numbers() -> None:
    card = resolve_card("bandwidth=3200, fp16=400,memory=96,clock=1500,units=100,floor=2")
    assert (card.bandwidth_gb_s, card.tflops, card.memory_gb) == (3200, {"fp16": 400}, 96)
    assert (card.clock_mhz, card.units, card.streams.floor_seconds) == (1500, 100, 2e-6)
    assert card.rate("bf16") == (400, "fp16")
    assert math.isnan(card.rate("fp32")[0])


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ("fp16=400", "bandwidth= is missing"),
        ("bandwidth=0", "bandwidth is '0': allowed is a number from 1e-06 to 1e\\+09"),
        ("bandwidth=-1", "bandwidth is '-1'"),
        ("bandwidth=1e308", "bandwidth is '1e308': allowed is a number from 1e-06 to 1e\\+09"),
        ("bandwidth=1,floor=1e-300", "floor is '1e-300'"),
        ("bandwidth=nan", "bandwidth is 'nan'"),
        ("bandwidth=1e999", "bandwidth is '1e999'"),
        ("bandwidth=1_000", "bandwidth is '1_000'"),
        ("bandwidth=3TB", "bandwidth is '3TB'"),
        ("bandwidth=3,bandwidth=4", "bandwidth is given twice"),
        ("bandwidth=3,,fp16=1", "'' is no NAME=NUMBER"),
        ("bandwidth=3,bandwith=4", "unknown number of a device 'bandwith': did you mean 'bandwidth'"),
        ("bandwidth=3,fp9=4", "unknown number of a device 'fp9'"),
    ],
)
def test_wrong_numbers_of_a_device_are_refused(numbers: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bwprof.predict("gemm", device=numbers)


def test_a_device_of_another_type() -> None:
    with pytest.raises(TypeError, match=r"^device is 3: "):
        bwprof.predict("gemm", device=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("bandwidth", ["1e-6", "1e9"])
@pytest.mark.parametrize("others", ["fp32=1e-6,clock=1e9,floor=1e-6", "fp32=1e9,clock=1e-6,floor=1e9"])
@pytest.mark.parametrize("efficiency", [1e-6, 1.0])
def test_numbers_at_their_limits_give_times(bandwidth: str, others: str, efficiency: float) -> None:
    """NumPy must not warn: tests treat warnings as errors."""
    device = f"bandwidth={bandwidth},{others}"
    found = bwprof.predict(["gemm", "stream_read"], device, precision="fp32", efficiency=efficiency)
    assert all(0 < ms < math.inf for ms in found["time_ms"])
