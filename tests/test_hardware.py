"""Device handles that are given back and taken again."""

from __future__ import annotations

import os

import pytest

import bwprof
from bwprof import _core, hardware
from bwprof.sweep import local
from bwprof.sweep.measure import Context, Outcome
from bwprof.sweep.plan import Spec


class Handle:
    """A GPU's handle, as far as giving back goes."""

    def __init__(self, backend: str, index: int = 0) -> None:
        self.backend, self.index, self.stream = backend, index, 0 if backend == "cpu" else 1
        self.error: Exception | None = None
        self.closed = self.rests = 0

    def rest(self) -> None:
        self.rests += 1
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_idle", {})
    monkeypatch.setattr(_core, "Device", Handle)


@pytest.mark.usefixtures("handles")
def test_a_gpu_is_taken_again() -> None:
    """One after the other: the same handle, at rest in between. At the same time: each its own."""
    first = hardware.open_device("cuda", 0)
    second = hardware.open_device("cuda", 0)
    assert first is not second
    hardware.close_device(first)
    assert (first.rests, first.closed) == (1, 0)
    assert hardware.open_device("cuda", 1) is not first
    assert hardware.open_device("cuda", 0) is first
    with pytest.raises(KeyError), hardware.opened("cuda", 0):
        raise KeyError
    hardware.close_device(second)
    assert hardware.open_device("cuda", 0) is second


@pytest.mark.usefixtures("handles")
@pytest.mark.parametrize("error", [_core.DeviceError("lost"), _core.UnavailableError("opened before a fork")])
def test_a_handle_that_is_not_well_is_not_taken_again(error: Exception) -> None:
    first = hardware.open_device("cuda", 0)
    first.error = error
    hardware.close_device(first)
    assert first.closed == 1
    assert hardware.open_device("cuda", 0) is not first


@pytest.mark.usefixtures("handles")
def test_a_handle_that_could_not_count_is_not_taken_again() -> None:
    """It would remember why, whether or not that still holds."""
    first = hardware.open_device("cuda", 0)
    assert hardware.counted(first, {"counters_status": "ok"}) == {"counters_status": "ok"}
    hardware.counted(first, {"counters_status": None})
    hardware.close_device(first)
    assert hardware.open_device("cuda", 0) is first
    hardware.counted(first, {"counters_status": "another CUPTI user is active"})
    hardware.close_device(first)
    assert first.closed == 1
    assert hardware.open_device("cuda", 0) is not first
    assert not hardware._single


@pytest.mark.usefixtures("handles")
@pytest.mark.parametrize(("cache", "closed"), [("hot", 0), ("cold", 1)])
def test_a_hot_row_with_counters_keeps_its_handle(monkeypatch: pytest.MonkeyPatch, cache: str, closed: int) -> None:
    """Of a hot row nothing is counted: the handle was not asked, and remembers nothing."""
    row = {"counters_status": "not counted: what the row says", "cache": cache}
    monkeypatch.setattr(local.measuring, "measure", lambda *_, **__: Outcome(row))
    executor = local.LocalExecutor("cuda", 0)
    handle = executor.device
    executor.set_context(Context("run", "cuda", {}, None))
    spec = Spec("a", "gemm", "fp32", {}, None, None, cache, 0, counters=True)
    assert executor.measure(spec, 1.0, None).row is row
    executor.close()
    assert handle.closed == closed
    assert (hardware.open_device("cuda", 0) is handle) == (cache == "hot")


@pytest.mark.usefixtures("handles")
def test_a_fork_does_not_take_its_parents_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    first = hardware.open_device("cuda", 0)
    hardware.close_device(first)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert hardware.open_device("cuda", 0) is not first


@pytest.mark.usefixtures("handles")
def test_a_cpu_is_closed() -> None:
    """Its threads are not kept."""
    device = hardware.open_device("cpu", 0)
    hardware.close_device(device)
    assert device.closed == 1
    assert hardware.open_device("cpu", 0) is not device


def test_closing_a_case_twice(cpu: _core.Device) -> None:
    case = bwprof.Case("stream_copy", elements=64, backend="cpu")
    case.close()
    case.close()
    with pytest.raises(ValueError, match="closed"):
        case.verify()


# ---- the card ----


@pytest.mark.cuda
def test_cases_in_turn_share_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the hardware counters are given back with the case: the next one, or another tool, may count."""
    opened = []
    make = _core.Device

    def count(backend: str, index: int) -> _core.Device:
        opened.append(make(backend, index))
        return opened[-1]

    monkeypatch.setattr(hardware, "_idle", {})
    monkeypatch.setattr(_core, "Device", count)
    said = set()
    for _ in range(3):
        with bwprof.Case("stream_copy", elements=1 << 20, backend="cuda") as case:
            assert case.measure(max_seconds=0.05).verified
    assert len(opened) == 1
    for _ in range(2):
        with bwprof.Case("stream_copy", elements=1 << 20, backend="cuda") as case:
            said.add(case.count()["counters_status"])
    assert len(opened) == (1 if said == {"ok"} else 2), "a handle that could not count is not taken again"
    with make("cuda") as other, _core.Case(other, "stream_copy", "fp32", {"elements": 1 << 20}) as case:
        said.add(case.count()["counters_status"])
    assert len(said) == 1
