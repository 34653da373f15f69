"""Noisy neighbors: what is seen of them on a CPU, and which rows are flagged for it."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import bwprof
from bwprof import _core
from bwprof.measuring import grade
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome
from bwprof.results import csv_file, json_file
from bwprof.results.pairs import is_comparable
from bwprof.results.schema import RowDict, empty_row
from bwprof.results.writer import Store
from bwprof.roofs import model
from bwprof.runs import loop, plan
from bwprof.runs.channel import Interrupts
from bwprof.runs.executors import ChildExecutor, LocalExecutor
from bwprof.runs.plan import SweepRequest
from bwprof.runs.progress import SilentProgress, Timeline

pytestmark = pytest.mark.usefixtures("ordinary_cache")

QUIET = {
    "waited_share": 0.006, "throttled_share": 0.0, "stolen_share": 0.0, "pressed_share": 0.0, "slowed_share": 0.09,
    "late_samples": 1, "count": 20,
}  # fmt: skip
UNKNOWN = dict.fromkeys(("waited_share", "throttled_share", "stolen_share", "pressed_share", "slowed_share"), math.nan)


@pytest.fixture
def crowded_cpu() -> Iterator[int]:
    """A process that never rests, on the last CPU that the tests may use."""
    cpu = max(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{cpu}]); print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield cpu
        other.kill()


def test_a_crowded_cpu_is_seen_and_flagged(crowded_cpu: int) -> None:
    """Two on one CPU have half of it each; a fifth is enough to be sure."""
    with _core.Device("cpu") as device, _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 20}) as case:
        measured = case.measure(cache="hot", max_seconds=0.5, precision_target=1e-9)
    if math.isnan(measured["waited_share"]):
        pytest.skip("this system does not tell how long threads wait (/proc/self/task/*/schedstat)")
    assert 0.2 < measured["waited_share"] < 1.1
    row = bwprof.sweep("stream_copy", elements=1 << 24, precision="fp32", backend="cpu", cache="hot", roofs=False).iloc[
        0
    ]
    assert "noisy" in row["flags"].split(";")
    assert "waited for a CPU" in row["reason"]


@pytest.mark.parametrize(
    ("found", "spread", "message"),
    [
        ({}, 0.05, ""),
        (UNKNOWN, 0.09, ""),  # a GPU's
        ({}, 0.12, "wide spread: half of the samples lie 12% apart"),
        ({"waited_share": 0.03}, 0.01, "threads waited for a CPU 3% of the time"),
        ({"late_samples": 3}, 0.01, "in 3 of 20 samples the GPU waited for the host"),
        ({"throttled_share": 0.03}, 0.01, "the container's own CPU quota held threads back 3% of the time"),
        ({"stolen_share": 0.3}, 0.01, "the hypervisor took the CPUs 30% of the time"),
        ({"pressed_share": 0.05}, 0.01, "processes waited for memory 5% of the time"),
        ({"slowed_share": 0.12}, 0.01, "a reference stream beside the samples took 12% longer"),
    ],
)
def test_causes_of_a_noisy_row(found: dict[str, Any], spread: float, message: str) -> None:
    row = empty_row() | {"noise": spread}
    assert message in "; ".join(grade.find_disturbances(row, QUIET | found))
    assert bool(message) == bool(grade.find_disturbances(row, QUIET | found))


def test_a_quota_also_slows_the_reference_streams() -> None:
    """It slows reference streams as well, which then say nothing of others."""
    slow = QUIET | {"throttled_share": 0.4, "slowed_share": 1.5, "reference_ns": 2e6, "best_reference_ns": 1e6}
    (reason,) = model.describe_disturbances(slow)
    assert "quota" in reason
    assert "40%" in reason
    assert model.References.of(slow) is None
    assert model.References.of(slow | {"throttled_share": math.nan}) is not None


def test_disturbed_rows_are_not_compared() -> None:
    for flags, expected in [
        ("", True),
        (None, True),
        ("not_converged", True),
        ("noisy;x", False),
        ("throttled", False),
    ]:
        assert is_comparable({"status": "ok", "flags": flags}) is expected
    assert not is_comparable({"status": "failed", "flags": ""})


def test_waiting_of_more_threads_than_cpus_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWPROF_CPU_THREADS", str(2 * len(os.sched_getaffinity(0))))
    with _core.Device("cpu") as device, _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 16}) as case:
        assert math.isnan(case.measure(cache="hot", max_seconds=0.05)["waited_share"])
        assert f"threads pinned to {len(os.sched_getaffinity(0))} CPUs; pages of" in device.facts()["note"]


def test_reference_streams_are_run_where_there_is_time_for_them() -> None:
    with _core.Device("cpu") as device, _core.Case(device, "stream_copy", "fp32", {"elements": 1 << 16}) as case:
        options = {"cache": "hot", "precision_target": 1e-9}
        assert math.isnan(case.measure(max_seconds=0.05, **options)["slowed_share"])
        assert case.measure(max_seconds=0.2, **options)["slowed_share"] >= 0.0


# ---- second tries ----


def tried(flags: str, time_ms: float, *, width: float = 0.01, status: str = "ok", backend: str = "cpu") -> RowDict:
    return empty_row() | {
        "status": status,
        "backend": backend,
        "flags": flags,
        "time_ms": time_ms,
        "time_ms_lo": time_ms * (1 - width),
        "time_ms_hi": time_ms * (1 + width),
        "reason": None if status == "ok" else "it broke",
    }


@pytest.mark.parametrize(
    ("first", "second", "remaining", "message"),
    [
        (tried("noisy", 1.0), tried("", 0.9), 0.9, "the other try, 1 ms, was disturbed"),
        (tried("noisy", 1.0), tried("noisy", 0.9, width=0.005), 0.9, "the other try, 1 ms, was disturbed"),
        (tried("noisy", 1.0), tried("noisy", 1.1, width=0.02), 1.1, "the other try, 1 ms, was disturbed"),
        (tried("", 1.0), tried("noisy", 0.9), 1.0, "the other try, 0.9 ms, was disturbed"),
        (tried("noisy", 1.0), tried("", 0.0, status="failed"), 1.0, "the other try failed: it broke"),
        (tried("noisy", 1.0), tried("", 0.0, status="skipped"), 1.0, "the other try skipped: it broke"),
    ],
)
def test_the_better_of_two_tries(first: RowDict, second: RowDict, remaining: float, message: str) -> None:
    row = loop.choose_better(first, second)
    assert (row["status"], row["time_ms"]) == ("ok", remaining)
    assert row["reason"] == f"measured twice: {message}"


def test_only_a_cpus_disturbed_rows_are_tried_again() -> None:
    assert loop.is_disturbed(tried("near_timer_floor;noisy", 1.0))
    assert not loop.is_disturbed(tried("not_converged;noisy_roof", 1.0))
    assert not loop.is_disturbed(tried("noisy", 1.0, backend="cuda"))
    assert not loop.is_disturbed(tried("noisy", 1.0, status="failed"))


class Executor:
    """Its first tries are disturbed where M is odd; each try takes a second of `clock`."""

    def __init__(self, clock: SimpleNamespace, *, always: bool = False, broken_after: int = 1 << 30) -> None:
        self.clock, self.always, self.broken_after = clock, always, broken_after
        self.tries: list[int] = []

    def measure(self, spec: Spec, _max_seconds: float, _deadline: float | None) -> Outcome:
        number = spec.params["M"]
        flags = "noisy" if number % 2 and (self.always or number not in self.tries) else ""
        self.tries.append(number)
        if len(self.tries) > self.broken_after:
            raise KeyboardInterrupt
        self.clock.now += 1.0
        found = {name: value for name, value in tried(flags, float(len(self.tries))).items() if value is not None}
        row = spec.blank_row(CONTEXT) | found
        return Outcome(row, [float(len(self.tries))])


CONTEXT = Context("run-1", "cpu", {"name": "toy"}, None)


def run(
    executor: Executor,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    max_total_seconds: float,
    progress: SilentProgress | None = None,
) -> None:
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: executor.clock.now))
    request = SweepRequest(
        ("gemm",), {"M": tuple(range(count)[1:]), "N": (8,), "K": (8,)}, precisions=("fp32",), backend="cpu"
    )
    specs = plan.make_plan(request, "cpu").specs
    limits = loop.TimeBudget(None, max_total_seconds, 0.0)
    loop.RunLoop(store, limits, progress or SilentProgress()).run_cases(specs, executor, CONTEXT)


def test_disturbed_cases_are_measured_again_at_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of 20 cases ten are disturbed, and a quarter of 20 seconds lets five of them have another try, in their order."""
    executor = Executor(SimpleNamespace(now=0.0))
    store = Store({"run_id": "run-1"}, csv_targets=[tmp_path / "x.csv"], json_targets=[tmp_path / "x.json"])
    run(executor, 21, monkeypatch, store, 1e9)
    assert executor.tries == [*range(1, 21), 1, 3, 5, 7, 9]
    lines = csv_file.read_csv(tmp_path / "x.csv")
    assert [row["time_ms"] for row in lines] == [float(number) for number in range(1, 26)], "both tries, until the end"
    assert [bool(row["replaces"]) for row in lines] == [False] * 20 + [True] * 5
    store.finish("complete")
    expected = [21.0, 2.0, 22.0, 4.0, 23.0, 6.0, 24.0, 8.0, 25.0, *map(float, range(10, 21))]
    for rows, samples in (
        (store.rows, None),
        (csv_file.read_csv(tmp_path / "x.csv"), None),
        json_file.read_json(tmp_path / "x.json")[:2],
    ):
        assert [row["time_ms"] for row in rows] == expected
        assert [row["M"] for row in rows] == list(range(1, 21))
        assert [row["flags"] for row in rows[:12]] == [""] * 10 + ["noisy", ""]
        assert samples is None or samples == [[time_ms] for time_ms in expected]
    assert store.rows[0]["reason"] == loop.choose_better(tried("noisy", 1.0), tried("", 2.0))["reason"]


def test_second_tries_keep_to_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor(SimpleNamespace(now=0.0))
    store = Store({})
    run(executor, 21, monkeypatch, store, 22.0)
    assert executor.tries == [*range(1, 21), 1, 3]
    assert len(store.rows) == 20


def test_an_interrupted_second_try_loses_no_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executor = Executor(SimpleNamespace(now=0.0), broken_after=21)
    store = Store({}, csv_targets=[tmp_path / "x.csv"])
    with pytest.raises(KeyboardInterrupt):
        run(executor, 21, monkeypatch, store, 1e9)
    store.finish("interrupted")
    rows = csv_file.read_csv(tmp_path / "x.csv")
    assert [row["M"] for row in rows] == list(range(1, 21))
    assert [rows[0]["flags"], rows[2]["flags"]] == ["", "noisy"]


# ---- a neighbor that was there from the beginning ----


class Streams(Executor):
    """Beside its n-th try reference streams take so many ns; it judges by those until then, as a device does."""

    def __init__(self, took: list[float], **options: Any) -> None:
        super().__init__(SimpleNamespace(now=0.0), **options)
        self.took = took

    def measure(self, spec: Spec, max_seconds: float, deadline: float | None) -> Outcome:
        outcome = super().measure(spec, max_seconds, deadline)
        seen = self.took[: len(self.tries)]
        described = model.References(seen[-1], min(seen), seen[-1] / min(seen) - 1)
        wider = outcome.row["time_ms"] * (1 + 1e-3 * len(seen))  # from try to try
        row = outcome.row | {"flags": "", "disturbed_pct": 100 * described.slowed, "time_ms_hi": wider}
        if described.slowed > model.NOISY_SLOWED:
            row |= {"flags": "noisy", "reason": model.describe_slowdown(described.slowed)[0]}
        return Outcome(row, outcome.samples, references=described)


def everywhere(store: Store, folder: Path) -> list[list[RowDict]]:
    """A finished run's rows, in memory and of both files, which hold the same samples."""
    rows, samples, _ = json_file.read_json(folder / "x.json")
    assert samples == store.samples
    return [store.rows, csv_file.read_csv(folder / "x.csv"), rows]


def test_a_later_stream_that_is_better_flags_earlier_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A neighbor goes after three of eight cases, whose streams are 5, 30 and 25 % slower than the best there is; two
    have another try, the second of which is beside it again. The best stream of all is beside that of the second case.
    """
    took = [1.05e6, 1.3e6, 1.25e6, 1e6, 1.02e6, 1e6, 1.04e6, 1.05e6]
    executor = Streams([*took, 0.94e6, 1.2e6])
    store = Store({}, csv_targets=[tmp_path / "x.csv"], json_targets=[tmp_path / "x.json"])
    timeline = Timeline(clock=lambda: executor.clock.now)
    run(executor, 9, monkeypatch, store, 1e9, timeline)
    assert executor.tries == [*range(1, 9), 2, 3]
    store.finish("complete")
    for rows in everywhere(store, tmp_path):
        assert [row["time_ms"] for row in rows] == [1.0, 9.0, 10.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        assert [row["flags"] for row in rows] == ["noisy", "", "noisy", "", "", "", "noisy", "noisy"]
        slower = [taken / 0.94e6 for taken in [took[0], 0.94e6, 1.2e6, *took[3:]]]
        assert [row["disturbed_pct"] for row in rows] == pytest.approx([100 * (one - 1) for one in slower])
        assert rows[0]["reason"] == model.describe_slowdown(slower[0] - 1)[0]
        assert "2 ms" in rows[1]["reason"]
        (message,) = model.describe_slowdown(slower[2] - 1)
        assert rows[2]["reason"].startswith(f"{message}; measured twice: ")
        assert "3 ms" in rows[2]["reason"]
    events = json.loads(timeline.text({}))["traceEvents"]
    flags = [event["args"].get("flags") for event in events if event.get("args", {}).get("time_ms") == 1.0]
    assert flags == ["noisy", "noisy"], "of the case, and of one launch"


def test_an_interrupted_run_compares_rows_with_its_best_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executor = Streams([1.2e6, 1e6, 1e6, 1e6], broken_after=3)
    store = Store({}, csv_targets=[tmp_path / "x.csv"], json_targets=[tmp_path / "x.json"])
    with pytest.raises(KeyboardInterrupt):
        run(executor, 9, monkeypatch, store, 1e9)
    store.finish("interrupted")
    for rows in everywhere(store, tmp_path):
        assert [row["flags"] for row in rows] == ["noisy", "", ""]


def interrupted_everywhere(functions: set[str], run: Callable[[], None]) -> Iterator[int]:
    """Run it again and again, each time with an interrupt one line further within these functions, until none comes."""
    for step in itertools.count(1):
        left = step

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_qualname not in functions:
                return None
            left -= event == "line"
            if left == 0:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            run()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if left > 0:
            return
        yield step


def test_an_interrupt_leaves_files_that_agree_and_whole_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wherever it comes while rows are judged, or take another's place. Nothing is said twice, and a flag in one file
    is in all.
    """
    took = [1.2e6, 1.3e6, 1.05e6, 1e6, 0.9e6, 1.2e6, 0.98e6]
    runs: list[tuple[Store, Streams]] = []

    def once() -> None:
        store = Store({}, csv_targets=[tmp_path / "x.csv"], json_targets=[tmp_path / "x.json"])
        runs.append((store, Streams(took)))
        run(runs[-1][1], 5, monkeypatch, store, 1e9)

    functions = {"_judge", "Judged.settle", "Store.replace", "Store.amend"}
    steps = 0
    for steps in interrupted_everywhere(functions, once):
        store, executor = runs.pop()
        store.finish("interrupted")
        memory, csv, json_ = everywhere(store, tmp_path)
        assert memory == csv == json_, steps
        assert [row["M"] for row in memory] == list(dict.fromkeys(executor.tries))
        for row in memory:
            described = model.describe_slowdown((row["disturbed_pct"] or 0.0) / 100)
            assert row["status"] == "ok"
            assert ("noisy" in row["flags"]) == bool(described), (steps, row["flags"], row["disturbed_pct"])
            assert (row["reason"] or "").count("a reference stream") == len(described)
            assert all(one in (row["reason"] or "") for one in described), (steps, row["reason"])
    assert steps > 10


@pytest.mark.parametrize(
    ("flags", "reason", "before", "slowed", "expected"),
    [
        ("", None, 0.0, 0.09, ("", None)),
        ("", None, 0.0, 0.2, ("noisy", "{new}")),
        ("near_timer_floor", "why", 0.09, 0.2, ("near_timer_floor;noisy", "why; {new}")),
        ("noisy", "wide spread", 0.05, 0.2, ("noisy", "wide spread; {new}")),
        ("noisy;unverified", "a; {old}; b", 0.12, 0.2, ("noisy;unverified", "a; {new}; b")),
        ("noisy", "{old}", 0.12, 0.2, ("noisy", "{new}")),
        ("noisy", "cut sho", 0.12, 0.2, ("noisy", "cut sho; {new}")),
    ],
)
def test_columns_of_a_row_with_slower_streams(
    flags: str, reason: str | None, before: float, slowed: float, expected: tuple[str, str | None]
) -> None:
    words = {
        "old": "".join(model.describe_slowdown(before)),
        "new": "".join(model.describe_slowdown(slowed)),
    }
    shares = {"waited_share": 0.5, "stolen_share": math.nan, "pressed_share": 0.0}
    row = empty_row() | {
        "flags": flags,
        "reason": reason and reason.format(**words),
        "disturbed_pct": model.prolonged_pct(shares | {"slowed_share": before}),
    }
    took = {"reference_ns": 1e6 * (1 + before), "best_reference_ns": 1e6, "slowed_share": before}
    seen = model.References.of(shares | took)
    assert seen is not None
    for _ in range(2):
        row |= grade.update_slowdown(row, seen, 1e6 * (1 + before) / (1 + slowed))
    assert (row["flags"], row["reason"]) == (expected[0], expected[1] and expected[1].format(**words))
    assert row["disturbed_pct"] == pytest.approx(model.prolonged_pct(shares | {"slowed_share": slowed}))


@pytest.mark.parametrize("took", [0.0, -1.0, math.nan])
def test_a_stream_without_a_time_is_no_reference(took: float) -> None:
    slowed = math.inf if took == 0 else 0.0
    shares = dict.fromkeys(("waited_share", "throttled_share", "stolen_share", "pressed_share"), math.nan)
    result = shares | {"reference_ns": 1e6, "best_reference_ns": took, "slowed_share": slowed}
    assert model.References.of(result) is None


def test_references_come_back_from_a_child() -> None:
    """And from this process: as much as a row of it needs to be held against later ones."""
    spec = plan.make_plan(
        SweepRequest(("stream_copy",), {"elements": (1 << 16,)}, precisions=("fp32",), backend="cpu"), "cpu"
    ).specs[0]
    with Interrupts() as interrupts:
        for executor in (LocalExecutor("cpu", 0), ChildExecutor("cpu", 0, interrupts)):
            facts = executor.open(None)
            executor.set_context(Context("run-1", "cpu", facts, None))
            try:
                outcome = executor.measure(replace(spec, rel_ci=1e-9), 0.25, None)
            finally:
                executor.close()
            assert outcome.references is not None
            assert 0 < outcome.references.best_ns <= outcome.references.upper_ns
            assert outcome.references.compare(outcome.references.best_ns) == outcome.references.slowed
            assert outcome.references.compare(outcome.references.upper_ns / 100) == pytest.approx(99.0)


def test_comparisons_follow_the_row_that_stays() -> None:
    """FP32 at 4 ms, FP16 at 3 ms, and at 2 ms in its second try."""
    store = Store({})
    for precision, time_ms in (("fp32", 4.0), ("fp16", 3.0)):
        store.add(tried("noisy", time_ms) | {"precision": precision, "bytes_read": 8, "bytes_written": 0})
    assert store.rows[1]["speedup_vs_fp32"] == pytest.approx(4 / 3)
    store.replace(1, tried("", 2.0) | {"precision": "fp16", "bytes_read": 8, "bytes_written": 0}, [2e6])
    assert store.rows[1]["speedup_vs_fp32"] == pytest.approx(2.0)


def test_prolonged_pct() -> None:
    """Half of the time taken away is twice the time; a share of each kind counts, one that is not known does not."""
    quiet = {"waited_share": 0.0, "stolen_share": 0.0, "pressed_share": 0.0, "slowed_share": 0.0}
    assert model.prolonged_pct(quiet) == 0
    assert model.prolonged_pct(quiet | {"waited_share": 0.5}) == pytest.approx(100)
    assert model.prolonged_pct(quiet | {"waited_share": 0.5, "stolen_share": 0.2}) == pytest.approx(150)  # 1 / 0.4
    assert model.prolonged_pct(quiet | {"throttled_share": 0.5}) == pytest.approx(100)
    assert model.prolonged_pct(quiet | {"slowed_share": 0.3, "pressed_share": math.nan}) == pytest.approx(30)
    assert model.prolonged_pct(dict.fromkeys(quiet, math.nan)) is None
    assert math.isfinite(model.prolonged_pct(quiet | {"waited_share": 1.0}) or math.inf)
