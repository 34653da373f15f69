"""--max-total-seconds: it covers the whole run, and what hangs is ended."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import PLANT, TINY, csv_rows, finished

import bwprof
from bwprof import _core
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome, make_unmeasured
from bwprof.results.writer import Store
from bwprof.roofs import survey
from bwprof.roofs.model import RoofPoint, Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import loop, plan
from bwprof.runs.channel import RunTimeoutError
from bwprof.runs.loop import TimeBudget
from bwprof.runs.plan import SweepRequest

pytestmark = pytest.mark.usefixtures("one_thread")

OVER = "the {} s of --max-total-seconds were over"
# A child that hangs leaves a mark; when it is there, so many seconds have passed by the clock of the command's process:
# a machine that is slow has all the time that it needs until then.
TOTAL_SECONDS = 1000
LATER = """
import os, signal, time
from types import SimpleNamespace
from bwprof.runs import loop
from bwprof.runs import channel, executors
executors._GRACE_SECONDS = channel._END_SECONDS = 0.3
channel._LONGEST_WAIT = 0.05
clock = SimpleNamespace(monotonic=lambda: time.monotonic() + {seconds} * os.path.exists({mark!r}))
channel.time = executors.time = loop.time = clock
def hang(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open({mark!r}, "w").close()
    time.sleep(600)
"""


def cold_specs(count: int) -> tuple[Spec, ...]:
    sizes = tuple(range(1, count + 1))
    request = SweepRequest(("gemm",), {"M": sizes, "N": (8,), "K": (8,)}, precisions=("fp32",), backend="cpu")
    return plan.make_plan(request, "cpu").specs


class Executor:
    """Notes the deadlines that it is given; takes so many seconds to open, by the clock of `loop`."""

    def __init__(self, clock: SimpleNamespace, *, opens_in: float = 0.0, opens: bool = True) -> None:
        self.clock, self.opens_in, self.opens = clock, opens_in, opens
        self.deadlines: dict[str, float | None] = {}
        self.seconds: list[float] = []
        self.context: Context | None = None

    def open(self, deadline: float | None) -> dict[str, Any]:
        self.deadlines["open"] = deadline
        self.clock.now += self.opens_in
        if not self.opens:
            raise RunTimeoutError
        return {"name": "toy", "uuid": "", "driver": "1"}

    def obtain_roofs(self, _wanted: RoofRequest, deadline: float | None) -> Roofs | None:
        self.deadlines["roofs"] = deadline
        return None

    def set_context(self, context: Context) -> None:
        self.context = context

    def measure(self, spec: Spec, max_seconds: float, deadline: float | None) -> Outcome:
        assert self.context is not None
        self.seconds.append(max_seconds)
        self.deadlines["case"] = deadline
        self.clock.now += 1.0
        return make_unmeasured(spec, self.context, "failed", "a toy")

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock of our own for the loop and the roofs; it stands at 1000 s."""
    made = SimpleNamespace(now=1000.0)
    for module in (loop, survey):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now, process_time=lambda: 0.0))
    monkeypatch.setattr(loop, "DEFAULT_CASE_SECONDS", plan.DEFAULT_CASE_SECONDS)
    return made


def run_loop(executor: Executor, limits: TimeBudget, cases: int) -> list[tuple[str, str]]:
    """Status and reason of each case's row."""
    run: dict[str, Any] = {"run_id": "r", "backend": "cpu"}
    store, specs = Store(run), cold_specs(cases)
    job = loop.RunLoop(store, limits)
    job.run_cases(specs, executor, job.prepare(executor, run, specs))
    return [(row["status"], row["reason"]) for row in store.rows]


def test_the_limit_counts_from_the_start_of_the_run(clock: SimpleNamespace) -> None:
    """It began 4 s ago and takes 3 s to open: of 12 s 5 are left, 2.5 for the roofs, 5 cases of 1 s."""
    executor = Executor(clock, opens_in=3.0)
    rows = run_loop(executor, TimeBudget(None, 12.0, started=996.0), cases=7)
    assert executor.deadlines == {"open": 1008.0, "roofs": 1005.5, "case": 1008.0}
    assert [status for status, _ in rows] == ["failed"] * 5 + ["skipped"] * 2
    assert rows[-1][1] == OVER.format(12)
    shares = [(5 - done) / (7 - done) * 0.5 for done in range(5)]
    assert executor.seconds == pytest.approx(shares), "what is left is shared by the cases that are left"


def test_a_case_gets_no_more_than_it_needs(clock: SimpleNamespace) -> None:
    executor = Executor(clock)
    run_loop(executor, TimeBudget(None, 1e6, started=1000.0), cases=2)
    assert executor.seconds == [plan.DEFAULT_CASE_SECONDS] * 2


def test_without_a_limit_nothing_has_a_deadline(clock: SimpleNamespace) -> None:
    executor = Executor(clock, opens_in=1e6)
    assert [status for status, _ in run_loop(executor, TimeBudget(None, None, started=0.0), cases=2)] == ["failed"] * 2
    assert executor.deadlines == {"open": None, "roofs": None, "case": None}
    assert TimeBudget(None, None, 0.0).left() == math.inf


@pytest.mark.parametrize("opens", [True, False])
def test_no_time_after_opening(clock: SimpleNamespace, opens: bool) -> None:
    executor = Executor(clock, opens_in=2.0, opens=opens)
    assert run_loop(executor, TimeBudget(None, 2.0, started=1000.0), cases=2) == [("skipped", OVER.format(2))] * 2
    assert "roofs" not in executor.deadlines
    assert executor.seconds == []


@pytest.mark.parametrize(("deadline", "points"), [(1000.0, 0), (1007.5, 0), (1008.5, 8), (1011.5, 11)])
def test_roofs_end_at_the_deadline(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, deadline: float, points: int, cpu: _core.Device
) -> None:
    """A second per point; the two ends of four streams are 8 points, and less is worth nothing."""
    assert sum(operation["is_stream"] for operation in _core.operations()) == 4

    def measured(
        _device: object, stream: dict[str, Any], size: int, _seconds: float, *, poll: Any, **_more: Any
    ) -> RoofPoint:
        clock.now += 1.0
        poll()
        return RoofPoint(stream["name"], 0.5, size, 1e-3)

    monkeypatch.setattr(survey, "measure_point", measured)
    found = survey.measure(cpu, budget_seconds=1e9, deadline=deadline)
    assert len(found.points) == points
    assert not found.complete
    assert found.rates == ()


def test_the_python_function_counts_the_roofs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too short for any roof: nothing is held against one, and nothing is lost."""
    points: list[Any] = []
    monkeypatch.setattr(survey, "measure_point", lambda *inputs, **_: points.append(inputs))
    frame = bwprof.sweep("gemm", M=[1, 2], N=8, K=8, precision="fp32", backend="cpu", max_total_seconds=1e-3)
    assert points == []
    assert frame["status"].tolist() == ["skipped"] * 2
    assert frame["reason"].str.contains("--max-total-seconds").all()


def run_that_hangs(folder: Path, cases: str, seconds: float, plant: str) -> tuple[str, list[tuple[str, str]]]:
    """Standard error, and status and reason of each row, of a run in which `hang` takes `seconds`."""
    code, out, err = finished(
        "gemm", *TINY, "-p", cases, "--precision", "fp32", "--max-total-seconds", str(TOTAL_SECONDS), "--csv", "-",
        folder=folder, plant=LATER.format(seconds=seconds, mark=str(folder / "hangs")) + plant,
    )  # fmt: skip
    assert code == 0, err
    return err, [(row["status"], row["reason"]) for row in csv_rows(out)]


def test_a_case_that_hangs_is_ended(tmp_path: Path) -> None:
    plant = PLANT.format(body="if spec.params['M'] == 2: hang()")
    _, (measured, *rest) = run_that_hangs(tmp_path, "M=1,2,3", 2 * TOTAL_SECONDS, plant)
    assert measured[0] == "ok"
    assert [status for status, _ in rest] == ["skipped"] * 2
    assert "not finished" in rest[0][1]
    assert "--max-total-seconds" in rest[0][1]
    assert rest[1][1] == OVER.format(TOTAL_SECONDS)


def test_opening_a_device_has_a_time_limit(tmp_path: Path) -> None:
    rows = run_that_hangs(tmp_path, "M=1,2", 2 * TOTAL_SECONDS, "executors.LocalExecutor.open = hang\n")[1]
    assert rows == [("skipped", OVER.format(TOTAL_SECONDS))] * 2


def test_measuring_roofs_has_a_time_limit(tmp_path: Path) -> None:
    """What is left goes to the cases."""
    plant = "executors.LocalExecutor.obtain_roofs = hang\n"
    err, rows = run_that_hangs(tmp_path, "M=1,2", 0.6 * TOTAL_SECONDS, plant)
    assert "roofs could not" in err
    assert [status for status, _ in rows] == ["ok"] * 2
