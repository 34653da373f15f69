"""A thousand cases leave no host memory, device memory, threads and files behind."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from operations import small_cases

from bwprof import _core
from bwprof.measuring.callables import do_nothing

CASES = 1000
WARM_UP = 2 * len(small_cases())
MIB = 1 << 20


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def threads_since(before: set[str]) -> set[str]:
    """Return new threads that stay: a joined thread may be listed for a moment."""
    deadline = time.monotonic() + 10.0
    while (found := threads() - before) and time.monotonic() < deadline:
        time.sleep(0.001)
    return found


def use(device: _core.Device, name: str, precision: str, params: dict[str, int], *, measure: bool) -> None:
    try:
        case = _core.Case(device, name, precision, params)
    except _core.UnsupportedError:
        return  # not on this device; creating the error is part of the exercise
    with case:
        outputs = case.run(case.inputs())
        assert outputs
        assert case.verify(0.0)["verified"]
        if measure:
            assert case.measure(cache="hot", max_seconds=0.0, verify_budget_s=0.0)["verified"]


def run_cases(device: _core.Device, count: int) -> None:
    for i, one in enumerate(islice(cycle(small_cases()), count)):
        use(device, *one, measure=i % 53 == 0)


def fail_cases(device: _core.Device, count: int) -> None:
    """Fail to open a case in every way."""
    attempts: list[tuple[Any, ...]] = [
        ("gemm", "fp32", {"M": 0}),
        ("gemm", "fp33", {}),
        ("germ", "fp32", {}),
        ("gemm", "fp32", {"Q": 1}),
        ("kv_copy", "fp32", {"batch": 1 << 30, "kv_len": 1 << 30}),
        ("attention_prefill", "fp16", {"num_heads": 7, "num_kv_heads": 2}),
    ]
    for attempt in islice(cycle(attempts), count):
        with pytest.raises(ValueError, match=r"\w"):
            _core.Case(device, *attempt)
    with _core.Case(device, "gemm", "fp32", {"M": 2, "N": 3, "K": 4}) as case:
        for _ in range(count):
            with pytest.raises(ValueError, match="A"):
                case.run({"A": b"too short"})


def growth(work: Callable[[int], None]) -> int:
    """Return the growth of the resident set over CASES, after caches and pools are full."""
    if "libasan" in Path("/proc/self/maps").read_text():
        pytest.skip("AddressSanitizer keeps freed memory for a while: the resident set says nothing")
    work(WARM_UP)
    before = resident_bytes()
    work(CASES)
    return resident_bytes() - before


def test_no_host_memory_is_lost(device: _core.Device) -> None:
    """A leak of a small buffer set (24 KB) or of a reference row per case is several MiB."""
    assert growth(lambda count: run_cases(device, count)) < 4 * MIB


def test_no_host_memory_is_lost_by_failing(device: _core.Device) -> None:
    assert growth(lambda count: fail_cases(device, count)) < MIB


def use_functions(device: _core.Device, count: int) -> None:
    """Measure functions, some of which raise, and profile ranges."""
    stream = device.stream
    with _core.Case(device, "stream_copy", "fp32", {"elements": 100}) as case, _core.Device(device.backend) as other:
        case.launch()
        for i in range(count):
            if i % 97 == 0:
                other.measure_call(case.enqueue, do_nothing, stream=stream, cache="hot", max_seconds=0.0, timer=None)
            with pytest.raises(ZeroDivisionError):
                other.measure_call(lambda: 1 / 0, do_nothing, stream=stream, cache="hot", max_seconds=0.0)
            profiler = _core.Profiler()
            profiler.open(other, stream, 4)
            profiler.switch(True)
            for name in ("a", "b", f"name {i}"):
                profiler.start(name)
                profiler.stop(name)
            assert len(profiler.events()) == 3
            if i % 2:
                profiler.close()


def test_no_host_memory_is_lost_by_functions(cpu: _core.Device) -> None:
    assert growth(lambda count: use_functions(cpu, count)) < 2 * MIB


def test_no_references_are_lost_by_functions(cpu: _core.Device) -> None:
    def function() -> None:
        pass

    before = sys.getrefcount(function), sys.getrefcount(cpu), sys.getrefcount(None)
    for _ in range(50):
        cpu.measure_call(function, do_nothing, cache="hot", max_seconds=0.0)
    assert (sys.getrefcount(function), sys.getrefcount(cpu)) == before[:2]
    assert abs(sys.getrefcount(None) - before[2]) < 1000


def test_no_references_are_lost(cpu: _core.Device) -> None:
    """A Case holds its Device only while it is open."""
    gc.collect()  # of tests before
    before = sys.getrefcount(cpu)
    case = _core.Case(cpu, "gemm", "fp32", {"M": 1})
    assert sys.getrefcount(cpu) == before + 1
    case.close()
    assert sys.getrefcount(cpu) == before
    case.close()
    run_cases(cpu, 40)
    assert sys.getrefcount(cpu) == before


@pytest.mark.parametrize("backend", [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.cuda)])
def test_devices_give_back_threads_and_files(backend: str) -> None:
    def open_and_close() -> None:
        with _core.Device(backend) as device, _core.Case(device, "stream_copy", "fp32", {"elements": 100}) as case:
            case.launch()

    for _ in range(3):
        open_and_close()
    gc.collect()
    before = threads(), open_files()
    for _ in range(30):
        open_and_close()
    assert not threads_since(before[0])
    assert open_files() == before[1]


def test_handles_dropped_without_closing_leak_nothing(cpu: _core.Device) -> None:
    """The last reference closes a case, then its device."""
    before = threads()
    device = _core.Device("cpu")
    case = _core.Case(device, "stream_copy", "fp32", {"elements": 100})
    case.launch()
    del device, case
    gc.collect()
    assert not threads_since(before)


@pytest.mark.cuda
def test_no_device_memory_is_lost() -> None:
    """Other processes change the GPU's free memory, so the smallest of three growths counts."""
    with _core.Device("cuda") as device:
        run_cases(device, WARM_UP)
        lost = []
        for _ in range(3):
            before = device.memory()[0]
            run_cases(device, CASES // 3)
            lost.append(before - device.memory()[0])
    assert min(lost) <= 0, f"{min(lost)} bytes of device memory were not given back"
