"""Failing device calls, closed handles, and second threads.

test_native.py has the same for csrc/measure, with a fake backend.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from commands import GIVE_UP_SECONDS
from operations import small_cases

import bwprof
from bwprof import _core, hardware

SMALL_COPY = ("stream_copy", "fp32", {"elements": 4096})
GATHERED = ("stream_copy", "fp32", {"elements": 1 << 19})  # an output too large to be downloaded whole
MIB = 1 << 20


# ---- closed handles ----


def test_a_closed_case_raises(cpu: _core.Device) -> None:
    case = _core.Case(cpu, *SMALL_COPY)
    case.launch()
    case.close()
    case.close()
    uses: list[Callable[[], Any]] = [
        case.launch,
        case.verify,
        case.measure,
        case.inputs,
        case.memory_needed,
        lambda: case.run({}),
        lambda: case.__enter__().operation,
    ]
    for use in uses:
        with pytest.raises(ValueError, match="this Case is closed"):
            use()
    for name in ("operation", "precision", "variant", "params", "cost", "operands"):
        with pytest.raises(ValueError, match="this Case is closed"):
            getattr(case, name)


def test_a_closed_device_raises() -> None:
    device = _core.Device("cpu")
    device.close()
    device.close()
    uses: list[Callable[[], Any]] = [
        device.facts,
        device.memory,
        device.floor_ns,
        device.conditions,
        device.management,
        lambda: device.variants("gemm", "fp32", {}),
        lambda: device.backend,
        lambda: device._inject_fault(0),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="this Device is closed"):
            use()
    with pytest.raises(ValueError, match="Device is closed"):
        _core.Case(device, *SMALL_COPY)


def test_a_device_with_open_cases_stays_open() -> None:
    with _core.Device("cpu") as device:
        case = _core.Case(device, *SMALL_COPY)
        with pytest.raises(ValueError, match="1 Case objects"):
            device.close()
        case.launch()
        case.close()


def test_handles_are_made_once(cpu: _core.Device) -> None:
    with _core.Case(cpu, *SMALL_COPY) as case, pytest.raises(ValueError, match="open already"):
        case.__init__(cpu, *SMALL_COPY)  # type: ignore[misc]
    with pytest.raises(ValueError, match="open already"):
        cpu.__init__("cpu")  # type: ignore[misc]


def test_uninitialized_handles_raise() -> None:
    """__new__ without __init__ is a closed handle, not a crash."""
    with pytest.raises(ValueError, match="closed"):
        _core.Device.__new__(_core.Device).facts()
    with pytest.raises(ValueError, match="closed"):
        _core.Case.__new__(_core.Case).launch()


def test_a_closed_case_leaves_others_alone(cpu: _core.Device) -> None:
    first, second = _core.Case(cpu, *SMALL_COPY), _core.Case(cpu, *SMALL_COPY, seed=2)
    first.launch()
    second.launch()
    first.close()
    assert second.verify()["verified"]
    second.close()


@pytest.mark.parametrize(("backend", "index"), [("cpu", 1), ("cpu", -1), ("tpu", 0)])
def test_missing_devices_raise(backend: str, index: int) -> None:
    with pytest.raises(ValueError, match=r"allowed (is|are)"):
        _core.Device(backend, index)


def test_the_cpu_has_no_calls_to_make_fail(cpu: _core.Device) -> None:
    with pytest.raises(_core.UnsupportedError, match="no calls"):
        cpu._inject_fault(1)


@pytest.mark.parametrize("use", ["launch", "measure"])
def test_a_signal_while_memory_is_touched(use: str) -> None:
    """The call ends and frees its memory; the limit is half of it."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def handler(*_: object) -> None:
        raise InterruptedError("a signal")

    before, base = signal.signal(signal.SIGALRM, handler), resident()
    with _core.Device("cpu") as device, _core.Case(device, "stream_write", "fp32", {"elements": 128 * MIB}) as case:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.002)  # before the second look for signals, after 20 ms
            with pytest.raises(InterruptedError, match="a signal"):
                getattr(case, use)()
            assert resident() - base < 256 * MIB
        finally:
            signal.signal(signal.SIGALRM, before)


# ---- threads ----


class Busy:
    """A measurement in another thread, until it is stopped."""

    def __init__(self, case: _core.Case) -> None:
        self.case, self.running, self.stop = case, threading.Event(), threading.Event()
        self.outcome: BaseException | None = None
        self.thread = threading.Thread(target=self.work)

    def poll(self) -> None:
        self.running.set()
        if self.stop.is_set():
            raise InterruptedError("told to stop")

    def work(self) -> None:
        try:
            self.case.measure(cache="hot", precision_target=1e-12, max_seconds=60.0, poll=self.poll)
        except BaseException as error:
            self.outcome = error
            self.running.set()

    def __enter__(self) -> Busy:
        self.thread.start()
        assert self.running.wait(300.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(300.0)
        assert not self.thread.is_alive()


@pytest.fixture
def slow_case() -> Iterator[_core.Case]:
    """Return a case whose 4096 samples take longer than the test."""
    with _core.Device("cpu") as device, _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 20}) as case:
        yield case
        case.close()


def test_a_second_thread_is_refused(slow_case: _core.Case) -> None:
    with Busy(slow_case) as busy:
        for use in (slow_case.launch, slow_case.verify, slow_case.inputs, slow_case.measure):
            with pytest.raises(RuntimeError, match="another thread"):
                use()
    assert isinstance(busy.outcome, InterruptedError)
    assert slow_case.verify()["verified"]


def test_closing_waits_for_the_other_thread(slow_case: _core.Case) -> None:
    """A case stays allocated while it is measured."""
    with Busy(slow_case) as busy:
        threading.Timer(0.05, busy.stop.set).start()
        slow_case.close()
        assert busy.stop.is_set()
    assert isinstance(busy.outcome, InterruptedError)


def test_two_threads_that_close() -> None:
    """Each returns when the case is closed, so that the device can be closed."""
    device = _core.Device("cpu")
    case = _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 20})
    wrong: list[BaseException] = []

    def close() -> None:
        case.close()
        try:
            device.close()
        except ValueError as error:
            wrong.append(error)

    closers = [threading.Thread(target=close) for _ in range(3)]
    with Busy(case) as busy:
        for closer in closers:
            closer.start()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        with suppress(ValueError):  # closed, as far as others can see
            while case.operation and time.monotonic() < deadline:
                time.sleep(0.001)
        busy.stop.set()
        for closer in closers:
            closer.join()
    assert not wrong


def test_a_signal_ends_the_wait_of_closing(slow_case: _core.Case) -> None:
    """The case stays open, and closes later."""

    def handler(*_: object) -> None:
        raise InterruptedError("a signal")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Busy(slow_case) as busy:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(InterruptedError, match="a signal"):
                slow_case.close()
            assert not busy.stop.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert slow_case.verify()["verified"]


def test_a_signal_handler_closes_what_is_being_closed(slow_case: _core.Case) -> None:
    """The handler does not wait for the call that it interrupts."""
    handled = threading.Event()

    def handler(*_: object) -> None:
        slow_case.close()
        handled.set()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Busy(slow_case) as busy:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            threading.Thread(target=lambda: handled.wait(60.0) and busy.stop.set()).start()
            slow_case.close()
            assert handled.is_set()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_fork_while_another_thread_closes() -> None:
    """The child has no such thread: it closes case and device itself."""
    device = _core.Device("cpu")
    case = _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 20})
    with Busy(case) as busy:
        closer = threading.Thread(target=case.close)
        closer.start()
        with suppress(ValueError):  # closed, as far as others can see
            while case.operation:
                time.sleep(0.001)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                case.close()
                device.close()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        busy.stop.set()
        closer.join()
    device.close()


@pytest.mark.parametrize("dropped", [False, True])
def test_a_case_closes_beside_a_busy_thread(dropped: bool) -> None:
    """The busy thread lets others close cases of its device between its calls."""
    wrong: list[BaseException] = []
    closed = threading.Event()

    with _core.Device("cpu") as device, _core.Case(device, *SMALL_COPY) as busy:

        def call() -> None:
            end = time.monotonic() + GIVE_UP_SECONDS
            try:
                while not closed.is_set() and time.monotonic() < end:
                    busy.launch()
            except BaseException as error:
                wrong.append(error)

        cases = [_core.Case(device, *SMALL_COPY) for _ in range(20)]
        thread = threading.Thread(target=call)
        thread.start()
        while cases:
            case = cases.pop()
            if not dropped:
                case.close()
            del case
        in_time = thread.is_alive() or bool(wrong)
        closed.set()
        thread.join()
    assert in_time
    assert not wrong


@pytest.mark.parametrize("shared", [False, True])
def test_dropping_a_case_does_not_wait(shared: bool) -> None:
    """Two threads drop a case of the device that the other one measures on, from a poll function that waits for both;
    with `shared` they hold a lock that the other's poll function needs.
    """
    devices = [_core.Device("cpu"), _core.Device("cpu")]
    measured = [_core.Case(device, *SMALL_COPY) for device in devices]
    dropped = [[_core.Case(device, "stream_copy", "fp32", {"elements": MIB})] for device in reversed(devices)]
    for (case,) in dropped:
        case.launch()
    del case
    both, lock, ended = threading.Barrier(2, timeout=GIVE_UP_SECONDS), threading.Lock(), [False, False]

    def drop(cases: list[_core.Case]) -> None:
        if not cases:
            return
        both.wait()
        with lock if shared else threading.Lock():
            cases.clear()
        both.wait()

    def measure(number: int) -> None:
        measured[number].measure(cache="hot", max_seconds=0.01, poll=lambda: drop(dropped[number]))
        ended[number] = True

    threads = [threading.Thread(target=measure, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP_SECONDS)
    assert ended == [True, True]
    for case, device in zip(measured, devices, strict=True):
        case.close()
        device.close()  # which says so where a case is left


def test_a_case_that_is_closed_while_it_is_measured() -> None:
    """The measuring thread gets its row, and may close the case, too."""
    stop, running = threading.Event(), threading.Event()
    found: list[object] = []

    def poll() -> None:
        running.set()
        stop.wait()

    def measure() -> None:
        try:
            with bwprof.Case("stream_copy", elements=4096, device="cpu") as case:
                cases.append(case)
                found.append(case.measure(max_seconds=0.01, poll=poll, roofs=False))
        except BaseException as error:
            found.append(error)

    cases: list[bwprof.Case] = []
    thread = threading.Thread(target=measure)
    thread.start()
    assert running.wait(300.0)
    threading.Timer(0.05, stop.set).start()
    cases[0].close()
    thread.join()
    assert isinstance(found[0], bwprof.Row), found
    assert repr(cases[0]) == "<bwprof.Case, closed>"


def test_a_device_in_use_is_closed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    case = bwprof.Case("stream_copy", elements=4096, device="cpu")

    def refuse(_: object) -> None:
        raise RuntimeError("this cpu device handle is measuring in another thread")

    with monkeypatch.context() as patch:
        patch.setattr(hardware, "close_device", refuse)
        with pytest.raises(RuntimeError, match="another thread"):
            case.close()
    handle = case._device
    case.close()
    assert handle is not None
    with pytest.raises(ValueError, match="this Device is closed"):
        handle.facts()
    assert case._device is None


def test_two_devices_at_once(slow_case: _core.Case) -> None:
    """Two handles of a device have separate states."""
    with Busy(slow_case), _core.Device("cpu") as other, _core.Case(other, *SMALL_COPY) as case:
        assert case.verify()["verified"]


def test_a_case_is_not_closed_by_its_own_poll(slow_case: _core.Case) -> None:
    with pytest.raises(ValueError, match="from within a call"):
        slow_case.measure(cache="hot", poll=slow_case.close)
    assert slow_case.verify()["verified"]


def test_launch_uses_the_generated_inputs(cpu: _core.Device) -> None:
    """After `run` with a caller's arrays the generated inputs are restored."""
    with _core.Case(cpu, *SMALL_COPY) as case:
        generated = case.inputs()
        assert case.run({"a": bytes(4 * 4096)})["b"] == bytes(4 * 4096)
        case.launch()
        assert case.inputs() == generated
        assert case.run({})["b"] == generated["a"]


def test_many_threads_on_one_case() -> None:
    """A call runs or raises "busy", and results stay right."""
    wrong: list[BaseException] = []
    refused = done = 0

    with _core.Device("cpu") as device, _core.Case(device, *SMALL_COPY) as case:
        end = time.monotonic() + 0.5

        def hammer() -> None:
            nonlocal refused, done
            while time.monotonic() < end or not (done or wrong):
                try:
                    assert case.verify(0.0)["verified"]
                    done += 1
                except RuntimeError as error:
                    if "another thread" not in str(error):
                        wrong.append(error)
                    refused += 1
                except BaseException as error:
                    wrong.append(error)

        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert done > 0


def test_threads_that_close_and_use() -> None:
    """One thread opens and closes, others use the case: a closed case raises, and nothing crashes."""
    wrong: list[BaseException] = []

    with _core.Device("cpu") as device:
        current = [_core.Case(device, *SMALL_COPY)]
        end = time.monotonic() + 0.5

        def use() -> None:
            while time.monotonic() < end:
                try:
                    current[0].launch()
                except (ValueError, RuntimeError) as error:
                    if "closed" not in str(error) and "another thread" not in str(error):
                        wrong.append(error)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            old, current[0] = current[0], _core.Case(device, *SMALL_COPY)
            old.close()
        for thread in threads:
            thread.join()
        current[0].close()
    assert not wrong


# ---- CUDA: every call made to fail in turn ----

FAILURES = (_core.DeviceError, _core.MemoryLimitError, _core.UnavailableError, _core.UnsupportedError)


def exercise(device: _core.Device, name: str, precision: str, params: dict[str, int], *, measure: bool) -> bool:
    """Return whether the result is right; raise what the device raises."""
    with _core.Case(device, name, precision, params) as case:
        if measure:
            return bool(case.measure(cache="hot", max_seconds=0.0, verify_budget_s=0.0)["verified"])
        return bool(case.verify(0.0)["verified"])


def fail_in_turn(device: _core.Device, one: tuple[str, str, dict[str, int]], *, measure: bool) -> None:
    started = device._inject_fault(0)
    assert exercise(device, *one, measure=measure)
    calls = device._inject_fault(0) - started
    assert calls > 5
    # The replays of a measurement repeat the same few calls: all of the first ones, then a sample.
    chosen = [*range(1, min(calls, 200) + 1), *range(200, calls + 1, 61)]
    raised: list[Exception] = []
    for call in chosen:
        device._inject_fault(call)
        try:
            # Calls that only give something back, and libraries with a substitute, may fail without harm.
            assert exercise(device, *one, measure=measure), f"a wrong result after call {call} had failed"
        except FAILURES as error:
            raised.append(error)
        finally:
            device._inject_fault(0)
    assert len(raised) > len(chosen) / 2, f"only {len(raised)} of {len(chosen)} failures were reported"
    device_errors = [error for error in raised if isinstance(error, _core.DeviceError)]
    assert all(str(error) for error in raised)
    assert device_errors
    assert all("CUDA call" in str(error) and not error.fatal for error in device_errors)
    assert exercise(device, *one, measure=measure), "the device is not usable any more"


def free_memory_after(device: _core.Device, work: Callable[[], None]) -> int:
    before = device.memory()[0]
    work()
    return before - device.memory()[0]


@pytest.mark.cuda
@pytest.mark.parametrize(
    "one", [*small_cases("cuda"), GATHERED], ids=lambda one: f"{one[0]}-{one[1]}-{min(one[2].values())}"
)
def test_every_cuda_call_fails_in_turn(one: tuple[str, str, dict[str, int]]) -> None:
    with _core.Device("cuda") as device:
        try:
            exercise(device, *one, measure=False)
        except _core.UnsupportedError as error:
            pytest.skip(str(error))
        lost = free_memory_after(device, lambda: fail_in_turn(device, one, measure=False))
        if lost > 0:  # the first failure may load code for good; a leak goes on
            lost = free_memory_after(device, lambda: fail_in_turn(device, one, measure=False))
    assert lost <= 0


@pytest.mark.cuda
def test_every_cuda_call_of_a_measurement_fails_in_turn() -> None:
    with _core.Device("cuda") as device:
        work = ("gemm", "fp16", {"M": 1, "N": 256, "K": 256})
        exercise(device, *work, measure=True)
        lost = free_memory_after(device, lambda: fail_in_turn(device, work, measure=True))
    assert lost <= MIB


@pytest.mark.cuda
def test_every_cuda_call_of_opening_fails_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BWPROF_TEST_CUDA_FAULT", raising=False)
    with _core.Device("cuda") as device:
        device.memory()
    messages = []
    for call in range(1, 200):
        monkeypatch.setenv("BWPROF_TEST_CUDA_FAULT", f"open:{call}")
        try:
            device = _core.Device("cuda")
        except FAILURES as error:
            messages.append(str(error))
            continue
        # The countdown outlives opening: what is left of it belongs to the handle.
        left = call - device._inject_fault(0)
        with suppress(*FAILURES):
            device.close()
        if left > 0:
            break
    assert len(messages) > 3
    assert all("CUDA call" in message for message in messages)
    monkeypatch.delenv("BWPROF_TEST_CUDA_FAULT")
    with _core.Device("cuda") as device:
        assert exercise(device, *SMALL_COPY, measure=False)


@pytest.mark.skipif(not _core.build["cuda"], reason=f"built without CUDA: {_core.build['cuda_reason']}")
def test_counting_devices_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call fails, also without a GPU, and the reason names it."""
    monkeypatch.setenv("BWPROF_TEST_CUDA_FAULT", "count:1")
    row = next(backend for backend in _core.backends() if backend["name"] == "cuda")
    assert row["devices"] == []
    assert row["reason"]
    with pytest.raises(_core.UnavailableError, match="no cuda device"):
        _core.Device("cuda")
