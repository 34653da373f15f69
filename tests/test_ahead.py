"""What a GPU's child does ahead: it opens the device that is being looked for, and begins a case while the row of the
one before is written. Here the CPU is taken for a GPU.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import plant_in_child

from bwprof import _core, hardware
from bwprof.cli.commands.sweep import main_sweep
from bwprof.hardware import Choice
from bwprof.measuring.row import Outcome
from bwprof.results.csv_file import read_csv
from bwprof.results.writer import Store
from bwprof.runs import StoppedError, executors, plan
from bwprof.runs.channel import ChildProcess, Interrupts, RunTimeoutError
from bwprof.runs.executors import ChildExecutor, open_early
from bwprof.runs.loop import DevicePart, RunLoop, TimeBudget
from bwprof.runs.plan import SweepRequest

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = (1, 2, 3)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent to the child, and what was waited for, in order."""
    facts, found = _core.backend_facts, []
    send, receive = ChildProcess.send, ChildProcess.receive
    monkeypatch.setattr(_core, "backend_facts", lambda name: facts(name) | {"runs_on_host": False})

    def noted_send(self: ChildProcess, request: dict[str, Any]) -> None:
        found.append(f"{request['do']} {request.get('spec', {}).get('params', {}).get('M', '')}".strip())
        send(self, request)

    def noted_receive(self: ChildProcess, *arguments: Any) -> dict[str, Any]:
        found.append("wait")
        return receive(self, *arguments)

    monkeypatch.setattr(ChildProcess, "send", noted_send)
    monkeypatch.setattr(ChildProcess, "receive", noted_receive)
    return found


def measure(
    path: Path, after: Callable[[ChildExecutor, Interrupts, Outcome], object] = lambda *_: None, early: bool = False
) -> list[dict[str, Any]]:
    """Measure three products in a child; return the rows that are on disk, whatever ended the run."""
    request = SweepRequest(("gemm",), {"M": SIZES, "N": (16,), "K": (16,)}, precisions=("fp32",), backend="cpu")
    run: dict[str, Any] = {"run_id": "r", "backend": "cpu"}
    store = Store(run, csv_targets=[path])
    limits = TimeBudget(None, None, time.monotonic(), max_seconds=0.01)
    with Interrupts() as interrupts:
        executor = ChildExecutor("cpu", 0, interrupts, opening=open_early(None) if early else None)
        loop = RunLoop(store, limits, roofs=False, after=lambda outcome: after(executor, interrupts, outcome))
        part = DevicePart(Choice("cpu", 0, "", "", ""), plan.make_plan(request, "cpu").specs, run)
        try:
            loop.measure_parts([part], lambda _: executor)
        finally:
            rows = read_csv(path)
            store.close()
    return rows


def test_a_case_begins_before_the_row_of_the_one_before_is_written(tmp_path: Path, log: list[str]) -> None:
    known: list[int] = []
    rows = measure(tmp_path / "a.csv", lambda *_: known.append(len(log)))
    assert [(row["status"], row["M"]) for row in rows] == [("ok", size) for size in SIZES]
    assert log == ["open", "wait", "context", "wait", "case 1", "wait", "case 2", "wait", "case 3", "wait"]
    assert [log[:count][-1] for count in known] == ["case 2", "case 3", "wait"]


def test_a_child_that_dies_ahead_costs_the_row_that_it_had_begun(tmp_path: Path, log: list[str]) -> None:
    def kill(executor: ChildExecutor, _: Interrupts, outcome: Outcome) -> None:
        if outcome.row["M"] == 1:
            assert executor._child is not None
            os.kill(executor._child._process.pid, signal.SIGKILL)

    rows = measure(tmp_path / "a.csv", kill)
    assert [(row["status"], row["M"]) for row in rows] == [("ok", 1), ("failed", 2), ("ok", 3)]
    assert "SIGKILL" in rows[1]["reason"]
    assert log.count("open") == 2


def test_ctrl_c_between_cases_loses_no_row(tmp_path: Path, log: list[str]) -> None:
    def stop(_: ChildExecutor, interrupts: Interrupts, outcome: Outcome) -> None:
        if outcome.row["M"] == 2:
            interrupts.signal = signal.SIGINT

    with pytest.raises(StoppedError):
        measure(tmp_path / "a.csv", stop)
    assert [row["M"] for row in read_csv(tmp_path / "a.csv")] == [1, 2]
    assert log[-2:] == ["case 3", "wait"]


GPU = """
from bwprof import _core
facts = _core.backend_facts
_core.backend_facts = lambda name: facts(name) | {"runs_on_host": False}
"""


@pytest.mark.parametrize(("plant", "opened"), [(GPU, 1), ("", 2)])
def test_the_default_gpu_is_opened_ahead(
    plant: str, opened: int, tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child looks for it by itself, before anybody waits; where it finds a CPU it leaves that alone."""
    plant_in_child(monkeypatch, tmp_path, plant)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # for both: the CPU is the default
    rows = measure(tmp_path / "a.csv", early=True)
    assert [row["status"] for row in rows] == ["ok"] * 3
    assert log[:3] == (["open", "wait", "context"] if opened == 1 else ["open", "wait", "open"])
    assert log.count("open") == opened


def test_another_device_than_the_one_that_was_opened(log: list[str]) -> None:
    with Interrupts() as interrupts:
        executor = ChildExecutor("cpu", 1, interrupts, opening=open_early(None))
        with pytest.raises(_core.UnavailableError, match="1"):
            executor.open(None)
        executor.close()
    assert log == ["open", "wait", "open", "wait"]


def test_on_a_cpu_nothing_is_measured_beside_the_writing(tmp_path: Path) -> None:
    begun: list[Any] = []

    def look(executor: ChildExecutor, *_: Any) -> None:
        begun.append(executor._begun)

    assert len(measure(tmp_path / "a.csv", look)) == 3
    assert begun == [None] * 3


def test_a_gpu_may_be_there_where_its_driver_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_GPU_SIGNS", (str(tmp_path / "none"),))
    assert not hardware.may_have_gpu()
    (tmp_path / "none").touch()
    assert hardware.may_have_gpu()


def test_a_child_ends_before_the_next_one_starts(log: list[str]) -> None:
    """Nobody waits for it meanwhile."""
    with Interrupts() as interrupts:
        first, second = (ChildExecutor("cpu", 0, interrupts, lingers=True) for _ in range(2))
        first.open(None)
        assert first._child is not None
        process = first._child._process
        first.close()
        second.open(None)
        assert process.returncode is not None
        second.close()
    assert log == ["open", "wait"] * 2


@pytest.mark.parametrize(("words", "opened"), [(["gem"], 1), (["gem", "--device", "cpu"], 0), (["--list"], 0)])
def test_a_child_that_no_run_uses_is_ended(words: list[str], opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    unused = SimpleNamespace(end=lambda: calls.append("end"))
    monkeypatch.setattr(hardware, "may_have_gpu", lambda: True)
    monkeypatch.setattr(executors, "open_early", lambda _nvtx: calls.append("open") or unused)
    assert main_sweep(words) == (0 if words == ["--list"] else 2)
    assert calls == ["open", "end"] * opened


def test_a_child_whose_end_is_interrupted_is_ended_once() -> None:
    """A second time would close descriptors that are other files by then."""
    ends = []

    def end() -> None:
        ends.append(1)
        raise KeyboardInterrupt

    executor = ChildExecutor("cpu", 0, Interrupts(), lingers=True)
    executor._child = SimpleNamespace(end=end)
    with pytest.raises(KeyboardInterrupt):
        executor._end_child()
    executor.close()
    assert len(ends) == 1


def test_an_answer_that_lies_there_is_taken_after_its_time() -> None:
    child = ChildProcess(executors.command_line)
    with Interrupts() as interrupts:
        child.send({"do": "open", "backend": "", "index": 0, "nvtx": False})
        answers, inbox = child._answer, os.pipe()
        os.write(inbox[1], b'{"facts": {}}\n')
        child._answer = inbox[0]
        assert child.receive(interrupts, time.monotonic() - 1) == {"facts": {}}
        with pytest.raises(RunTimeoutError):
            child.receive(interrupts, time.monotonic() - 1)
        child._answer = answers
    child.end()
    for fd in inbox:
        os.close(fd)
