"""Measured times against an independent clock.

Other processes make a single time on a shared machine too long, never too short: the shortest times of many are
compared, taken in turns, until both sides have met a quiet moment.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bwprof import _core

pytestmark = pytest.mark.usefixtures("ordinary_cache")

ROUNDS = 24


def shortest_launch_ns(case: _core.Case, launches: int) -> int:
    """By Python's clock, launch by launch; each is waited for."""
    shortest = 1 << 62
    for _ in range(launches):
        started = time.perf_counter_ns()
        case.launch()
        shortest = min(shortest, time.perf_counter_ns() - started)
    return shortest


def agree(measure: Callable[[], float], witness: Callable[[], float], tolerance: float) -> tuple[float, float]:
    """The shortest times that either side ever saw, after as many rounds as it takes them to agree."""
    ours = theirs = math.inf
    for _ in range(ROUNDS):
        ours, theirs = min(ours, measure()), min(theirs, witness())
        if abs(ours / theirs - 1.0) <= tolerance:
            break
    return ours, theirs


def sampled(case: _core.Case, **options: Any) -> dict[str, Any]:
    measured = case.measure(cache="hot", verify_budget_s=0.0, **options)
    assert measured["verified"], measured["reason"]
    return measured


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[_core.Device]:
    """The CPU with one thread: it needs one processor to itself for a moment, which every busy machine has."""
    monkeypatch.setenv("BWPROF_CPU_THREADS", "1")
    with _core.Device("cpu") as device:
        yield device


def of_milliseconds(device: _core.Device) -> _core.Case:
    """A case whose launch takes a millisecond or two, so that many fit into the time that each side looks: with fewer
    rows where it takes more, as a sanitizer makes it."""
    for rows in (64, 16, 4):
        case = _core.Case(device, "gemm", "fp32", {"M": rows, "N": 1024, "K": 1024})
        case.launch()
        if shortest_launch_ns(case, 3) < 4e6:
            return case
        case.close()
    return _core.Case(device, "gemm", "fp32", {"M": 1, "N": 1024, "K": 1024})


def test_profiler_timing(one_thread: _core.Device) -> None:
    """A launch of a millisecond or two, within 10 % of perf_counter around the same launch.

    An error of method, such as a wrong count of launches or a wrong unit, is at least a factor of two."""
    with of_milliseconds(one_thread) as case:
        ours, theirs = agree(
            lambda: sampled(case, min_samples=12, max_seconds=0.15)["min_ns"],
            lambda: shortest_launch_ns(case, 48),  # as long as ours looks
            0.10,
        )
    assert theirs > 2e5, "too short a case to be timed from Python"
    assert ours == pytest.approx(theirs, rel=0.10)


def test_short_launches_are_timed_in_batches(one_thread: _core.Device) -> None:
    """Launches of microseconds: a loop of them by Python's clock costs a microsecond or two more each, so the time in a
    replay must lie below it, and above the same loop less the time of an empty one."""
    params = {"elements": 1 << 16}
    with _core.Case(one_thread, "stream_copy", "fp32", params) as case:
        measured = sampled(case, min_samples=20, max_seconds=0.1)
        assert measured["launches_per_sample"] * measured["median_ns"] >= 0.2e6
        loop_ns = min(measured["min_ns"] * 20, shortest_launch_ns(case, 2000))
        for _ in range(ROUNDS):
            ours = min(measured["min_ns"], sampled(case, min_samples=20, max_seconds=0.05)["min_ns"])
            loop_ns = min(loop_ns, shortest_launch_ns(case, 2000))
            if ours <= loop_ns * 1.1:
                break
    assert 0 < ours <= loop_ns * 1.1


def test_samples_fit_in_the_time_that_passed(device: _core.Device) -> None:
    """What is claimed to have been spent in launches cannot be more than the whole call took by another clock."""
    with _core.Case(device, "stream_triad", "fp32", {"elements": 1 << 20}) as case:
        case.launch()
        started = time.perf_counter_ns()
        measured = sampled(case, min_samples=30, max_seconds=0.2)
        elapsed = time.perf_counter_ns() - started
    spent = sum(measured["samples_ns"]) * measured["launches_per_sample"] + measured["warmup_ns"]
    assert 0 < spent <= elapsed
    assert len(measured["samples_ns"]) == measured["count"] >= 30


def test_statistics_belong_to_the_samples(device: _core.Device) -> None:
    with _core.Case(device, "stream_copy", "fp16", {"elements": 100_003}) as case:
        measured = sampled(case, min_samples=15, max_seconds=0.05)
    samples = np.array(measured["samples_ns"])
    assert measured["median_ns"] == pytest.approx(np.median(samples), rel=1e-12)
    assert measured["min_ns"] == samples.min() > 0
    assert measured["lo_ns"] <= measured["median_ns"] <= measured["hi_ns"]
    assert measured["cache"] == "hot"
    assert (measured["cold"], measured["buffer_sets"], measured["flush_bytes"]) == (False, 1, 0)


def test_floor_is_that_of_an_empty_launch(device: _core.Device) -> None:
    """Kept after the first call, and shorter than a real launch, on many processors and beside other work, too."""
    floor = device.floor_ns()
    assert 0 < floor < 1e5
    assert device.floor_ns() == floor
    with _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 24}) as case:
        measured = sampled(case, min_samples=15, max_seconds=0.05)
    assert measured["timer_floor_ns"] == floor < measured["median_ns"]


def test_poll_stops_a_measurement(device: _core.Device) -> None:
    calls = []

    def poll() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise InterruptedError("enough")

    with _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 16}) as case:
        with pytest.raises(InterruptedError, match="enough"):
            case.measure(cache="hot", poll=poll)
        assert len(calls) == 5
        assert sampled(case, max_seconds=0.0)["count"] >= 10


@pytest.mark.cuda
def test_profiler_timing_on_the_gpu() -> None:
    """A launch of milliseconds (8 GiB moved, or a quarter of what is free), within 5 % of the wall clock around it."""
    with _core.Device("cuda", 0) as device:
        elements = min(1 << 30, device.memory()[0] // 32)
        with _core.Case(device, "stream_copy", "fp32", {"elements": elements}) as case:
            case.launch()
            ours, theirs = agree(
                lambda: sampled(case, max_seconds=0.3)["min_ns"], lambda: shortest_launch_ns(case, 50), 0.05
            )
    assert ours == pytest.approx(theirs, rel=0.05)


@pytest.mark.cuda
def test_profiler_timing_against_torch_events() -> None:
    """The same bytes copied by PyTorch and timed by its events: two kernels, so 15 %, at more than 100 us a launch."""
    torch = pytest.importorskip("torch", reason="needs PyTorch, whose events are the second clock")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    elements = 1 << 28
    source = torch.ones(elements, device="cuda")
    target = torch.empty_like(source)

    def witness() -> float:
        target.copy_(source)
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(20):
            target.copy_(source)
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e6 / 20

    with (
        _core.Device("cuda", 0) as device,
        _core.Case(device, "stream_copy", "fp32", {"elements": elements}) as case,
    ):
        ours, theirs = agree(lambda: sampled(case, max_seconds=0.3)["min_ns"], witness, 0.15)
    assert ours == pytest.approx(theirs, rel=0.15)


def test_one_replay_warms_up_a_case_measured_just_before(one_thread: _core.Device) -> None:
    """A turn of several: two calls say how long one is, one warms up, and the samples; nobody asks for the floor."""
    calls: list[None] = []

    def two_ms() -> None:
        calls.append(None)
        until = time.perf_counter() + 2e-3
        while time.perf_counter() < until:
            pass

    result = one_thread.measure_call(
        two_ms, lambda: None, cache="hot", min_samples=4, max_seconds=0.0, precision_target=1e-9, settled=True
    )
    assert len(calls) == 2 + 1 + 4
    assert len(result["samples_ns"]) == 4
    assert math.isnan(result["timer_floor_ns"])


def test_two_warm_ups_take_max_seconds_together(one_thread: _core.Device) -> None:
    """The first calls are slow, so that a longer plan follows; the others never settle."""
    pauses, calls = random.Random(3), iter([5e-3] * 3)

    def unsettled() -> None:
        time.sleep(next(calls, pauses.uniform(2e-5, 6e-4)))

    found = one_thread.measure_call(unsettled, lambda: None, cache="hot", max_seconds=0.2)
    assert 0 < found["warmup_ns"] < 0.3e9
