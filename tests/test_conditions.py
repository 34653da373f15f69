"""Conditions in rows: columns, the flag, the second try after heat; and, on a GPU, what its sensors say.

How readings are taken and NVML's failures are tested from C: tests/native/check_conditions.c and check_nvml.c."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import references

import bwprof
from bwprof import _core, hardware
from bwprof.measuring import operation as specs
from bwprof.measuring import row as measuring_row
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context
from bwprof.results.schema import empty_row

QUIET = {
    "sm_clock_mhz": 1755.0, "mem_clock_mhz": 3201.0, "power_w": 412.5, "temperature_c": 61.0, "energy_j": math.nan,
    "throttle": "none", "readings": 2, "reading_us": 80.0, "note": "",
}  # fmt: skip
HOT = QUIET | {"throttle": "sw_thermal"}
CAPPED = QUIET | {"throttle": "sw_power_cap", "energy_j": 0.25}
UNKNOWN = QUIET | dict.fromkeys(("sm_clock_mhz", "power_w"), math.nan) | {"throttle": ""}


def answers(*values: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """A function that gives these one after the other, then fails."""
    left: Iterator[dict[str, Any]] = iter(values)
    return lambda: next(left)


# ---- without a GPU ----


@pytest.mark.parametrize(
    ("throttle", "hot"),
    [
        ("", False), ("none", False), ("sw_power_cap", False), ("hw_slowdown;power_brake", False),
        ("sw_thermal", True), ("sw_power_cap;hw_thermal", True),
    ],
)  # fmt: skip
def test_heat_is_distinguished_from_other_reasons(throttle: str, hot: bool) -> None:
    assert measuring_row.is_hot({"throttle": throttle}) is hot


def test_a_cool_measurement_is_taken_once() -> None:
    result, waited = measuring_row.measure_cool(answers({"conditions": CAPPED}), answers())
    assert (result["conditions"], waited) == (CAPPED, 0.0)


def test_after_heat_there_is_one_more_measurement() -> None:
    pauses: list[float] = []
    result, waited = measuring_row.measure_cool(
        answers({"conditions": HOT}, {"conditions": QUIET}), answers(HOT, HOT, QUIET), pause=pauses.append
    )
    assert result["conditions"] == QUIET
    assert len(pauses) == 3
    assert waited == pytest.approx(sum(pauses))


def test_the_wait_for_a_cool_device_ends() -> None:
    polled: list[int] = []
    result, waited = measuring_row.measure_cool(
        answers({"conditions": HOT}, {"conditions": HOT}), lambda: HOT, lambda: polled.append(1), pause=lambda _: None
    )
    assert result["conditions"] == HOT
    assert waited == pytest.approx(measuring_row.COOL_SECONDS, abs=0.1)
    assert len(polled) >= 10


def test_the_wait_can_be_interrupted() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measuring_row.measure_cool(answers({"conditions": HOT}), lambda: HOT, interrupt, pause=lambda _: None)


def test_no_second_try_without_time_for_it() -> None:
    result, waited = measuring_row.measure_cool(answers({"conditions": HOT}), answers(), deadline=0.0)
    assert (result["conditions"], waited) == (HOT, 0.0)


def test_columns_of_conditions() -> None:
    row = empty_row()
    measuring_row.add_conditions(row, CAPPED)
    names = ("energy_j", "power_w", "sm_clock_mhz", "mem_clock_mhz", "temperature_c", "throttle")
    assert [row[name] for name in names] == [0.25, 412.5, 1755.0, 3201.0, 61.0, "sw_power_cap"]
    measuring_row.add_conditions(row, UNKNOWN)
    assert [row[name] for name in names] == [None, None, None, 3201.0, 61.0, None]


def measured_with(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any], deadline: float | None = None) -> Any:
    """The row of a small CPU case whose measurements have these conditions, one after the other."""
    next_conditions = answers(*found)

    class Measured(references.CaseWithin):
        def measure(self, **options: Any) -> dict[str, Any]:
            return self.case.measure(**options) | {"conditions": next_conditions()}

    monkeypatch.setattr(specs, "_core", SimpleNamespace(**vars(_core) | {"Case": Measured}))
    spec = Spec("copy", "stream_copy", "fp32", {"elements": 4096}, None, None, "hot", 0)
    context = Context("run-1", "cpu", {}, None)
    with _core.Device("cpu") as device:
        return specs.measure(device, spec, context, max_seconds=0.0, deadline=deadline).row


def test_a_throttled_row_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    row = measured_with(monkeypatch, CAPPED)
    assert row["status"] == "ok"
    assert row["throttle"] == "sw_power_cap"
    assert "throttled" in row["flags"].split(";")
    assert "(sw_power_cap)" in row["reason"]


@pytest.mark.parametrize("found", [QUIET, UNKNOWN])
def test_rows_are_not_flagged_without_a_reason(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]) -> None:
    row = measured_with(monkeypatch, found)
    assert "throttled" not in row["flags"]
    assert row["throttle"] == (found["throttle"] or None)


def test_a_row_after_heat_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU has no sensors: the wait ends at once."""
    row = measured_with(monkeypatch, HOT, QUIET)
    assert "throttled" not in row["flags"]
    assert "0.05 s" in row["reason"]


def test_a_deadline_forbids_the_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    row = measured_with(monkeypatch, HOT, deadline=time.monotonic() + 1.0)
    assert "throttled" in row["flags"]
    assert "measured again" not in row["reason"]


def test_the_cpu_knows_no_conditions(cpu: _core.Device) -> None:
    now = cpu.conditions()
    assert all(math.isnan(now[name]) for name in ("sm_clock_mhz", "power_w", "temperature_c", "energy_j"))
    assert now["throttle"] == ""
    assert "no sensors" in now["note"]
    assert cpu.management()["ecc"] is None
    assert set(hardware.facts(cpu)) == set(cpu.facts())
    frame = bwprof.sweep("stream_copy", elements=4096, cache="hot", backend="cpu", roofs=False)
    assert frame["power_w"].isna().all()
    assert frame["throttle"].isna().all()
    assert not frame["flags"].str.contains("throttled").any()


# ---- on a GPU ----

BUSY = ("gemm", "fp16", {"M": 4096, "N": 4096, "K": 4096})
COPY = ("stream_copy", "fp32", {"elements": 1 << 27})


@pytest.fixture(scope="module")
def gpu() -> Iterator[_core.Device]:
    with _core.Device("cuda") as device:
        if not device.management()["library"]:
            pytest.skip(f"no NVML: {device.management()['note']}")
        yield device


def sampled(device: _core.Device, work: tuple[str, str, dict[str, int]], seconds: float) -> dict[str, Any]:
    """As many samples as fit into the time."""
    with _core.Case(device, *work) as case:
        return case.measure(precision_target=1e-9, max_seconds=seconds)


@pytest.mark.cuda
def test_sensors_of_the_gpu(gpu: _core.Device) -> None:
    found = sampled(gpu, BUSY, 0.5)["conditions"]
    assert found["note"] == ""
    assert found["readings"] >= 5
    assert 1000 <= found["sm_clock_mhz"] <= 3500
    assert found["mem_clock_mhz"] == pytest.approx(gpu.facts()["memory_clock_khz"] / 1e3, rel=0.1)
    assert 50 < found["power_w"] < 1500
    assert 20 <= found["temperature_c"] <= 95
    assert found["throttle"]


@pytest.mark.cuda
def test_readings_are_a_small_part_of_the_time(gpu: _core.Device) -> None:
    """50 in a second and the last one, fewer where the driver was slow to answer; one takes microseconds (20 on an
    H200) wherever nobody else asks the driver, whom it may keep waiting for milliseconds."""
    found = [sampled(gpu, COPY, 0.5)["conditions"] for _ in range(4)]
    assert min(one["reading_us"] for one in found) < 1e3
    for one in found:
        assert one["readings"] <= 27
        assert one["reading_us"] > 1e3 or one["readings"] >= 5


@pytest.mark.cuda
def test_readings_do_not_change_the_time(gpu: _core.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same case with NVML and without, in turn: medians within 1 %."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for attempt in range(6):
        with monkeypatch.context() as patch:
            if attempt % 2:
                patch.setenv("BWPROF_TEST_NVML", "/nowhere/libnvidia-ml.so.1")
            with _core.Device("cuda") as device:
                result = sampled(device, COPY, 0.15)
        assert (result["conditions"]["readings"] == 0) == bool(attempt % 2)
        times[attempt % 2 == 0].append(result["median_ns"])
    assert min(times[True]) == pytest.approx(min(times[False]), rel=0.01)


@pytest.mark.cuda
def test_energy_is_power_times_time(gpu: _core.Device) -> None:
    """Two sensors of the same card, 5 % between them: the counter's energy and the instantaneous power. Launches also
    bear the energy of the pauses between them, which are at most 15 % of the time (energy_busy_least)."""
    if math.isnan(gpu.conditions()["energy_j"]):
        pytest.skip("this GPU counts no energy")
    for _ in range(3):  # the counter is at times so slow to read that a measurement misses its moves
        result = sampled(gpu, COPY, 2.0)
        energy, power = result["conditions"]["energy_j"], result["conditions"]["power_w"]
        if not math.isnan(energy):
            break
    launch_j = power * result["median_ns"] * 1e-9
    assert 0.95 * launch_j <= energy <= 1.05 * launch_j / 0.85
    short = sampled(gpu, COPY, 0.1)["conditions"]
    assert math.isnan(short["energy_j"])
    assert math.isnan(short["power_w"]), "the sensor would tell the power of what ran before"


@pytest.mark.cuda
def test_nvml_and_cuda_mean_the_same_device(gpu: _core.Device) -> None:
    """Asked by PCI bus id, NVML gives CUDA's UUID. (A part of a partitioned GPU has one of its own.)"""
    library = ctypes.CDLL(gpu.management()["library"])
    device, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    assert library.nvmlInit_v2() == 0
    bus_id = gpu.facts()["pci_bus_id"].encode()
    assert library.nvmlDeviceGetHandleByPciBusId_v2(bus_id, ctypes.byref(device)) == 0
    assert library.nvmlDeviceGetUUID(device, uuid, 96) == 0
    library.nvmlShutdown()
    assert uuid.value.decode() == gpu.facts()["uuid"]


@pytest.mark.cuda
def test_facts_of_the_gpu(gpu: _core.Device) -> None:
    found = hardware.facts(gpu)
    assert found["driver"].count(".") >= 1
    assert found["driver"] != found["driver_cuda"] == gpu.facts()["driver"]
    assert found["power_limit_w"] > 50
    assert isinstance(found["persistence"], bool)
    assert found["management_library"].startswith("/")


@pytest.mark.cuda
def test_rows_of_the_gpu(gpu: _core.Device) -> None:
    frame = bwprof.sweep("stream_copy", elements=1 << 24, backend="cuda", roofs=False)
    assert (frame["sm_clock_mhz"] > 300).all()
    assert frame["throttle"].notna().all()
    assert frame["driver"].iloc[0] == gpu.management()["driver"]
    assert frame.attrs["run"]["facts"]["pci_bus_id"] == gpu.facts()["pci_bus_id"]


@pytest.mark.cuda
def test_without_nvml_only_conditions_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWPROF_TEST_NVML", "/nowhere/libnvidia-ml.so.1")
    with _core.Device("cuda") as device:
        result = sampled(device, COPY, 0.05)
        assert result["verified"]
        assert "/nowhere/libnvidia-ml.so.1" in result["conditions"]["note"]
        assert device.conditions()["note"] == device.management()["note"] == result["conditions"]["note"]
        assert device.management()["library"] == ""
        assert hardware.facts(device)["driver"] == device.facts()["driver"]
