"""Functions that run on one of a CPU's threads, and the roofs of fewer threads than there are."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bwprof
from bwprof import _core, hardware
from bwprof.measuring import row as contexts
from bwprof.measuring.row import Outcome
from bwprof.roofs import store, survey
from bwprof.roofs.model import RoofPoint, Roofs
from bwprof.runs import loop

MIB = 1 << 20
WORK: dict[str, Any] = {"device": "cpu", "bytes_read": MIB, "bytes_written": MIB, "max_seconds": 0.0}
GB_S = {1: 10.0, 2: 20.0, 3: 25.0}  # attainable with so many threads


def roofs_for(device: _core.Device) -> Roofs:
    """Copying reaches GB_S."""
    facts = hardware.facts(device)
    point = RoofPoint("copy", 0.5, 2 * MIB, 2 * MIB / GB_S[facts["units"]] / 1e9)
    return Roofs(facts["name"], facts["uuid"], facts["driver"], "", 0.0, (point,), threads=facts["units"])


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU of three threads, whatever the machine has, nothing stored, and roofs that take no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BWPROF_CPU_THREADS", "3")
    monkeypatch.setattr(contexts, "obtain", lambda device, *_, **__: roofs_for(device))


@pytest.fixture
def alone(three: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function runs on one thread."""
    monkeypatch.setattr(contexts, "is_single_threaded", lambda _: True)


# ---- fewer threads ----


def test_a_handle_of_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWPROF_CPU_THREADS", "3")
    with _core.Device("cpu") as device:
        whole = hardware.facts(device)
        assert whole["units"] == 3
        device.limit_threads(1)
        facts = hardware.facts(device)
        assert facts["units"] == 1
        assert facts["note"].startswith("1 thread ")
        assert facts["peak_tflops"]["fp32"] > 0
        assert device.floor_ns() > 0
        assert store.path_of(store.identity("cpu", facts)) != store.path_of(store.identity("cpu", whole))
        with _core.Case(device, "gemm", "fp32", {"M": 7, "N": 33, "K": 65}) as case:
            assert case.verify()["verified"]
            with pytest.raises(ValueError, match="is open"):
                device.limit_threads(1)
        for wrong in (0, -1, 2, 2**40, "x", 1.5, None):
            with pytest.raises(ValueError, match="threads"):
                device.limit_threads(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="this Device is closed"):
        device.limit_threads(1)


def test_limiting_threads_is_atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWPROF_CPU_THREADS", "2")
    interval = sys.getswitchinterval()
    seen: set[str] = set()
    with _core.Device("cpu") as device:
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                seen.add(repr(device.facts()))

        thread = threading.Thread(target=look)
        before = repr(device.facts())
        sys.setswitchinterval(1e-5)
        try:
            thread.start()
            device.limit_threads(1)
        finally:
            over.set()
            thread.join()
            sys.setswitchinterval(interval)
        assert seen <= {before, repr(device.facts())}


def test_roofs_record_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWPROF_CPU_THREADS", "2")
    with _core.Device("cpu") as device:
        assert survey._blank(device).threads == 2
        device.limit_threads(1)
        assert survey._blank(device).threads == 1


@pytest.mark.cuda
def test_a_gpu_has_no_threads_to_limit() -> None:
    with _core.Device("cuda") as device, pytest.raises(_core.UnsupportedError, match="not done by threads"):
        device.limit_threads(1)


# ---- which functions run on one ----


@pytest.mark.parametrize(
    ("wall", "all_threads", "this_one", "is_alone"),
    [
        (10.0, 10.0, 10.0, True),
        (10.0, 10.5, 10.0, True),  # a little of something else
        (10.0, 20.0, 10.0, False),
        (10.0, 5.0, 5.0, True),  # beside a neighbor who had the CPU for half the time
        (10.0, 10.0, 5.0, False),  # two threads beside two neighbors
        (10.0, 0.1, 0.1, False),  # it waits for somebody else to do it
        (10.0, 10.0, 0.1, False),  # another thread does it
    ],
)
def test_single_threaded_by_the_clocks(
    monkeypatch: pytest.MonkeyPatch, wall: float, all_threads: float, this_one: float, is_alone: bool
) -> None:
    clocks = iter([(100.0, 50.0, 7.0), (100.0 + wall, 50.0 + all_threads, 7.0 + this_one)])
    monkeypatch.setattr(contexts, "_clocks", clocks.__next__)
    assert contexts.is_single_threaded(lambda: None) is is_alone


def test_single_threaded_by_real_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    def hands_over() -> None:
        thread = threading.Thread(target=spin)
        thread.start()
        thread.join()

    monkeypatch.setattr(contexts, "_AT_WORK", 0.0)  # others may have this machine's CPUs meanwhile
    assert contexts.is_single_threaded(spin)
    assert not contexts.is_single_threaded(hands_over)


# ---- what they are held against ----


@pytest.mark.usefixtures("alone")
def test_a_single_threaded_function_has_the_roofs_of_one_thread() -> None:
    row = bwprof.measure(lambda: None, roofs="auto", **WORK)
    assert row["attainable_gb_s"] == pytest.approx(10.0)
    assert row["pct_attainable"] == pytest.approx(100 * row["bandwidth_gb_s"] / 10.0)
    assert "single_thread" in row["flags"].split(";")
    assert "one (of 3)" in row["reason"]


@pytest.mark.usefixtures("three")
def test_a_function_on_all_threads_has_all_roofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "is_single_threaded", lambda _: False)
    row = bwprof.measure(lambda: None, roofs="auto", **WORK)
    assert row["attainable_gb_s"] == pytest.approx(25.0)
    assert "single_thread" not in row["flags"]


@pytest.mark.usefixtures("alone")
def test_missing_roofs_of_one_thread_are_reported() -> None:
    """Left out, nothing is measured: what is stored decides."""
    assert "single_thread" not in bwprof.measure(lambda: None, **WORK)["flags"], "held against nothing"
    with _core.Device("cpu") as device:
        assert store.save(store.identity("cpu", hardware.facts(device)), roofs_for(device)) is not None
        row = bwprof.measure(lambda: None, **WORK)
        assert row["attainable_gb_s"] == pytest.approx(25.0)
        assert "single_thread" in row["flags"].split(";")
        assert "all 3" in row["reason"]
        whole = roofs_for(device)
        row = bwprof.measure(lambda: None, roofs=whole, **WORK)
        assert (row["attainable_gb_s"], "single_thread" in row["flags"]) == (pytest.approx(25.0), True)
        device.limit_threads(1)
        assert store.save(store.identity("cpu", hardware.facts(device)), roofs_for(device)) is not None
        one = roofs_for(device)
    row = bwprof.measure(lambda: None, **WORK)
    assert (row["attainable_gb_s"], "single_thread" in row["flags"]) == (pytest.approx(10.0), True)
    row = bwprof.measure(lambda: None, roofs=one, **WORK)
    assert (row["attainable_gb_s"], "single_thread" in row["flags"]) == (pytest.approx(10.0), False)
    hot = bwprof.measure(lambda: None, cache="hot", **WORK)
    assert "single_thread" not in hot["flags"], "held against no stream of DRAM"


@pytest.mark.usefixtures("alone")
def test_the_argument_roof_threads() -> None:
    for threads in (1, 2, np.int64(3)):
        row = bwprof.measure(lambda: None, roofs="auto", roof_threads=threads, **WORK)
        assert row["attainable_gb_s"] == pytest.approx(GB_S[int(threads)])
        assert "single_thread" not in row["flags"]
    with _core.Device("cpu") as device:
        device.limit_threads(2)
        two = roofs_for(device)
    assert bwprof.measure(lambda: None, roofs=two, roof_threads=2, **WORK)["attainable_gb_s"] == pytest.approx(20.0)
    with pytest.raises(ValueError, match=r"2 threads.*roof_threads is 1"):
        bwprof.measure(lambda: None, roofs=two, roof_threads=1, **WORK)


@pytest.mark.usefixtures("three")
def test_a_row_that_beats_its_roof_marks_those_of_its_threads() -> None:
    row = {"bytes_read": MIB, "bytes_written": MIB, "cache": "cold"}
    with _core.Device("cpu") as device:
        found = contexts.Contexts("run-1", device, True, ("cold",))
        whole, one = found.of(None), found.of(1)
        found.learn(one, Outcome(row, beaten=0.2))
        for threads, beaten in ((None, 0.0), (1, 0.2)):
            roofs = found.of(threads).roofs
            assert roofs is not None
            assert [point.beaten for point in roofs.points] == [beaten]
        found.learn(whole, Outcome(row))
        assert found.of(None) is whole


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("wrong", ["x", "1", 0, -1, True, 1.5, 4, 10**30, [1]])
def test_wrong_numbers_of_threads(wrong: Any) -> None:
    called: list[int] = []
    message = "roof_threads is .*: allowed is a whole number (1 to 3, the device's|from 1 to the device's) threads"
    with pytest.raises(ValueError, match=message):
        bwprof.measure(lambda: called.append(1), roofs="auto", roof_threads=wrong, **WORK)
    with pytest.raises(ValueError, match="roof_threads is "):
        bwprof.sweep(lambda n: called.append(2 * n), n=[1, 2], device="cpu", roof_threads=wrong)
    assert called == []


def test_roof_threads_need_a_cpu() -> None:
    with pytest.raises(ValueError, match="roof_threads is 1"):
        contexts.check_threads(1, 0)
    assert contexts.check_threads(None, 0) is None


@pytest.mark.usefixtures("alone")
def test_sweeps_over_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread and all of them in one sweep; the roofs of one are obtained once."""
    requested: list[int] = []

    def obtain(device: _core.Device, *_: object, **__: object) -> Roofs:
        requested.append(device.facts()["units"])
        return roofs_for(device)

    def alone_at_calls(call: Callable[[], object]) -> bool:
        call()
        return last[0] == 1

    last = [0]
    monkeypatch.setattr(contexts, "obtain", obtain)
    monkeypatch.setattr(contexts, "is_single_threaded", alone_at_calls)
    monkeypatch.setattr(loop, "share_seconds", lambda *_: 0.0)

    def work(threads: int) -> None:
        last[0] = threads

    frame = bwprof.sweep(work, threads=[1, 3, 1], bytes_read=MIB, bytes_written=MIB, device="cpu")
    assert frame["attainable_gb_s"].tolist() == pytest.approx([10.0, 25.0, 10.0])
    assert ["single_thread" in flags for flags in frame["flags"]] == [True, False, True]
    assert requested == [3, 1]
    frame = bwprof.sweep(work, threads=[1], roof_threads=2, bytes_read=MIB, bytes_written=MIB, device="cpu")
    assert frame["attainable_gb_s"].tolist() == pytest.approx([20.0])
    assert "roof_threads" not in frame
    assert requested == [3, 1, 2]
