"""Device handles that are closed and used again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import bwprof
from bwprof import _core, hardware, registry
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome
from bwprof.runs import executors


class Handle:
    """The part of a GPU handle that closing uses."""

    def __init__(self, backend: str, index: int = 0) -> None:
        self.backend, self.index, self.stream = backend, index, 0 if backend == "cpu" else 1
        self.error: Exception | None = None
        self.closed = self.rests = 0

    def release_profilers(self) -> None:
        self.rests += 1
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_idle", {})
    monkeypatch.setattr(_core, "Device", Handle)
    monkeypatch.setattr(_core, "current_device", lambda _backend: 0)


@pytest.mark.usefixtures("handles")
def test_a_gpu_handle_is_used_again() -> None:
    """Devices opened one after the other share a handle; open ones have different handles."""
    first = hardware.open_device("cuda", 0)
    second = hardware.open_device("cuda", 0)
    assert first is not second
    hardware.close_device(first)
    assert (first.rests, first.closed) == (1, 0)
    assert hardware.open_device("cuda", 1) is not first
    assert hardware.open_device("cuda", 0) is first
    with pytest.raises(KeyError), hardware.borrow_device("cuda", 0):
        raise KeyError
    hardware.close_device(second)
    assert hardware.open_device("cuda", 0) is second


@pytest.mark.usefixtures("handles")
@pytest.mark.parametrize("error", [_core.DeviceError("lost"), _core.UnavailableError("opened before a fork")])
def test_a_broken_handle_is_not_used_again(error: Exception) -> None:
    first = hardware.open_device("cuda", 0)
    first.error = error
    hardware.close_device(first)
    assert first.closed == 1
    assert hardware.open_device("cuda", 0) is not first


@pytest.mark.usefixtures("handles")
def test_a_handle_that_could_not_count_is_not_used_again() -> None:
    """A handle remembers why it could not count."""
    first = hardware.open_device("cuda", 0)
    assert hardware.note_counting(first, {"counters_status": "ok"}) == {"counters_status": "ok"}
    hardware.note_counting(first, {"counters_status": None})
    hardware.close_device(first)
    assert hardware.open_device("cuda", 0) is first
    hardware.note_counting(first, {"counters_status": "another CUPTI user is active"})
    hardware.close_device(first)
    assert first.closed == 1
    assert hardware.open_device("cuda", 0) is not first
    assert not hardware._single


@pytest.mark.usefixtures("handles")
@pytest.mark.parametrize(("cache", "closed"), [("hot", 0), ("cold", 1)])
def test_a_hot_row_with_counters_keeps_its_handle(monkeypatch: pytest.MonkeyPatch, cache: str, closed: int) -> None:
    """Hot rows are not counted, so that the handle remembers no failure."""
    row = {"counters_status": "not counted: what the row says", "cache": cache}
    monkeypatch.setattr(executors.measuring, "measure", lambda *_, **__: Outcome(row))
    executor = executors.LocalExecutor("cuda", 0)
    handle = executor.device
    executor.set_context(Context("run", "cuda", {}, None))
    spec = Spec("a", "gemm", "fp32", {}, None, None, cache, 0, counters=True)
    assert executor.measure(spec, 1.0, None).row is row
    executor.close()
    assert handle.closed == closed
    assert (hardware.open_device("cuda", 0) is handle) == (cache == "hot")


@pytest.mark.usefixtures("handles")
def test_a_fork_does_not_use_its_parents_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    first = hardware.open_device("cuda", 0)
    hardware.close_device(first)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert hardware.open_device("cuda", 0) is not first


@pytest.mark.usefixtures("handles")
def test_a_cpu_is_closed() -> None:
    """Its threads end."""
    device = hardware.open_device("cpu", 0)
    hardware.close_device(device)
    assert device.closed == 1
    assert hardware.open_device("cpu", 0) is not device


def test_an_environment_variable_sets_the_cache_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotation of cold samples follows it, also with fewer threads."""
    monkeypatch.setenv("BWPROF_CPU_CACHE_MIB", "7")
    with _core.Device("cpu", 0) as device:
        with _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 14}) as case:
            assert case.measure(flush="read", max_seconds=0.0, verify_budget_s=0.0)["flush_bytes"] == 4 * 7 << 20
        device.limit_threads(1)
        facts = device.facts()
    assert facts["cache_bytes"] == 7 << 20
    assert "7 MiB by BWPROF_CPU_CACHE_MIB" in facts["note"]


@pytest.fixture
def large_cache_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a last-level cache of 4 GiB; skip on machines with a large one."""
    monkeypatch.delenv("BWPROF_CPU_CACHE_MIB", raising=False)
    with _core.Device("cpu", 0) as device:
        if device.facts()["cache_bytes"] > 64 << 20:
            pytest.skip("this machine's cache is large")
    monkeypatch.setenv("BWPROF_CPU_CACHE_MIB", "4096")


@pytest.mark.usefixtures("large_cache_reported")
def test_a_cache_that_no_core_holds_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reported size is 4 GiB: cold samples rotate through the measured size, and the row has a note."""
    with _core.Device("cpu", 0) as device:
        facts = device.facts()
        assert 32 << 20 <= facts["cache_bytes"] < 4096 << 20
        assert f"less than {facts['cache_bytes'] >> 19} MiB" in facts["note"]
        with _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 20}) as case:
            found = case.measure(max_seconds=0.0, verify_budget_s=0.0)
            assert (found["cold"], found["buffer_sets"]) == (True, 4 * facts["cache_bytes"] >> 23)
            assert "measured to hold" in found["cache_note"]
            assert case.measure(cache="hot", max_seconds=0.0, verify_budget_s=0.0)["cache_note"] == ""
    with _core.Device("cpu", 0) as device:
        assert device.facts()["cache_bytes"] == facts["cache_bytes"], "measured once"
    monkeypatch.setenv("BWPROF_CPU_CACHE_MIB", "64")
    with _core.Device("cpu", 0) as device:
        assert device.facts()["cache_bytes"] == 64 << 20, "as stated"


@pytest.mark.usefixtures("large_cache_reported")
def test_an_interrupt_waits_until_a_cache_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt follows the measurement, whose result stays."""
    with _core.Device("cpu", 0) as device:
        monkeypatch.setenv("BWPROF_CPU_CACHE_MIB", "2048")
        _core.Device("cpu", 0).close()  # whose answer is the last one
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)

        def interrupted() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            device.limit_threads(1)
            time.sleep(10)

        try:
            with pytest.raises(KeyboardInterrupt):
                interrupted()
        finally:
            signal.signal(signal.SIGALRM, before)
        assert device.facts()["cache_bytes"] < 2048 << 20


class Thread:
    """The current device of a thread on a machine of three GPUs."""

    def __init__(self) -> None:
        self.current, self.used = 2, set[int]()

    def use(self, index: int) -> None:
        self.current = index
        self.used.add(index)


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Thread:
    """Using a handle or a case of a device makes the device current."""
    thread = Thread()

    class Device(Handle):
        def __init__(self, backend: str, index: int = 0) -> None:
            super().__init__(backend, index)
            thread.use(index)

        def __getattribute__(self, name: str) -> Any:
            if name in ("release_profilers", "close", "memory", "facts", "management"):
                thread.use(object.__getattribute__(self, "index"))
            return object.__getattribute__(self, name)

        def memory(self) -> tuple[int, int]:
            return (1, 2)

        def facts(self) -> dict[str, Any]:
            return {"name": "toy", "driver": "1"}

        def management(self) -> dict[str, str]:
            return {"library": "", "note": ""}

    class Case:
        params: ClassVar[dict[str, int]] = {}
        operands: ClassVar[list[Any]] = []
        operation, variant, precision = "stream_copy", "v", "fp32"
        cost: ClassVar[dict[str, int]] = dict.fromkeys(
            ("bytes_read", "bytes_written", "flops", "algorithmic_bytes_read", "algorithmic_bytes_written"), 1
        ) | {"footprint_bytes": 1}

        def __init__(self, device: Device, *_: object, **__: object) -> None:
            thread.use(device.index)
            self.device = device

        def __getattr__(self, name: str) -> Callable[..., Any]:
            def work(*_: object, **__: object) -> dict[str, Any]:
                thread.use(self.device.index)
                if name == "inputs":
                    raise _core.DeviceError("lost")
                told = {"verified": True, "variant": self.variant, "cost": self.cost}
                return {} if name != "measure" else MEASURED | told

            return work

    rows = [
        {"name": "cuda", "devices": [{"index": i, "name": "toy"} for i in range(3)], "built": True, "timers": ["graph"]}
    ]
    monkeypatch.setattr(hardware, "_idle", {})
    monkeypatch.setattr(_core, "Device", Device)
    monkeypatch.setattr(_core, "Case", Case)
    monkeypatch.setattr(_core, "backends", lambda: rows)
    monkeypatch.setattr(_core, "current_device", lambda _backend: thread.current)
    monkeypatch.setattr(_core, "make_current", lambda _backend, index: thread.use(index))
    monkeypatch.setattr(registry, "check_backend", lambda name: name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return thread


MEASURED = dict.fromkeys(("median_ns", "lo_ns", "hi_ns", "min_ns", "noise"), 1.0) | {"samples_ns": []}


def test_a_case_on_another_device_leaves_the_current_one(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method, also one that fails, restores the current device."""
    monkeypatch.setattr("bwprof.case.finish_row", lambda row, *_: Outcome(row, None))

    def seen() -> bool:
        used, thread.used = 1 in thread.used, set()
        return used and thread.current == 2

    case = bwprof.Case("stream_copy", elements=64, backend="cuda", device=1)
    assert seen()
    for work in (case.run, case.verify, case.measure, case.memory_needed):
        work()
        assert seen(), work
    with pytest.raises(_core.DeviceError):
        case.inputs()
    assert seen()
    case.close()
    assert seen()


def test_a_run_on_another_device_leaves_the_current_one(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors.obtain, "obtain", lambda device, *_, **__: thread.use(device.index))
    monkeypatch.setattr(
        executors.measuring, "measure", lambda device, *_, **__: thread.use(device.index) or Outcome({}, None)
    )
    executor = executors.LocalExecutor("cuda", 1)
    executor.set_context(object())
    for work in (
        executor.open,
        lambda: executor.obtain_roofs(None, None),
        lambda: executor.measure(Spec("a", "gemm", "fp32", {}, None, None, "cold", 0), 1.0, None),
        executor.close,
    ):
        work()
        assert 1 in thread.used
        assert thread.current == 2
        thread.used.clear()
    with hardware.borrow_device("cuda", 0):
        assert thread.current == 0
    assert thread.current == 2


def test_closing_a_case_twice(cpu: _core.Device) -> None:
    case = bwprof.Case("stream_copy", elements=64, backend="cpu")
    case.close()
    case.close()
    with pytest.raises(ValueError, match="closed"):
        case.verify()


# ---- the card ----


@pytest.mark.cuda
def test_cases_in_turn_share_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a case frees the hardware counters for other users."""
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


def test_a_case_follows_the_threads_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case is opened again after a change of the affinity mask; the old handle is closed."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one processor alone")
    opened: list[_core.Device] = []
    monkeypatch.setattr(hardware, "open_device", lambda *where: opened.append(_core.Device(*where)) or opened[-1])
    threads = len(os.listdir("/proc/self/task"))
    try:
        with bwprof.Case("stream_read", elements=1 << 16, backend="cpu") as case:
            for mask in (set(allowed), {allowed[0]}, {allowed[1]}, {allowed[1]}):
                os.sched_setaffinity(0, mask)
                case.measure(max_seconds=0.01, roofs=False)
            assert [device.facts()["units"] for device in opened] == [len(allowed), 1, 1]
            opened.clear()
            case.close()
            os.sched_setaffinity(0, allowed)
            with pytest.raises(ValueError, match="closed"):
                case.measure(max_seconds=0.01, roofs=False)
            assert opened == []
        bwprof.Case("stream_read", elements=1 << 16, backend="cpu")  # dropped, which closes it
    finally:
        os.sched_setaffinity(0, allowed)
    opened.clear()
    assert len(os.listdir("/proc/self/task")) == threads, "no thread is left"
