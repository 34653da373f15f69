"""Copies in a model's run follow rows that were measured again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pretended import ROLES, TINY, Pretended
from rows import write_json

import bwprof
from bwprof.cli import runner as command
from bwprof.cli.commands import model as model_command
from bwprof.llm.result import ModelStep
from bwprof.measuring.row import Outcome
from bwprof.results import csv_file, json_file
from bwprof.results.schema import RowDict
from bwprof.roofs.model import RoofPoint, Roofs
from bwprof.runs import executors, loop

SLOW = 10.0  # times as long as undisturbed


def roofs() -> Roofs:
    """Streams of 200 GB/s at every size, and no floor: twice what the pretended device's operations reach."""
    streams = {"stream_read": 1.0, "stream_write": 0.0, "stream_copy": 0.5}
    sizes = (1 << 10, 1 << 16, 1 << 24, 1 << 32)
    points = [RoofPoint(name, share, size, size / 200e9) for name, share in streams.items() for size in sizes]
    return Roofs("Test", "", "", "", 1e-12, tuple(points))


class Disturbed(Pretended):
    """A CPU whose first try of each shape is disturbed, and ten times as slow. Each try takes a second of its clock."""

    clock = SimpleNamespace(now=0.0)
    broken_at = 1 << 30  # which call a Ctrl-C comes in
    tries: list[Any] = []  # noqa: RUF012 - of one test

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(facts={"uuid": "", "driver": "", "units": 1}, roofs=roofs())

    def measure(self, spec: Any, max_seconds: float, deadline: float | None) -> Outcome:
        if len(Disturbed.tries) == Disturbed.broken_at:
            raise KeyboardInterrupt
        Disturbed.clock.now += 1.0
        shape = (spec.operation, spec.precision, *sorted(spec.params.items()))
        first = shape not in Disturbed.tries
        Disturbed.tries.append(shape)
        outcome = super().measure(spec, max_seconds, deadline)
        if first and outcome.row["status"] == "ok":
            for name in ("time_ms", "time_ms_lo", "time_ms_hi"):
                outcome.row[name] *= SLOW
            outcome.row.update(flags="noisy", bandwidth_gb_s=100.0 / SLOW, pct_attainable=80.0 / SLOW)
        return Outcome(outcome.row, outcome.samples and [time * (SLOW if first else 1.0) for time in outcome.samples])


@pytest.fixture(autouse=True)
def disturbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Measure with that CPU, in an empty folder; second tries have a quarter of the time."""
    monkeypatch.setattr(Disturbed, "clock", SimpleNamespace(now=0.0))
    monkeypatch.setattr(Disturbed, "tries", [])
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: Disturbed.clock.now))
    monkeypatch.setattr(executors, "LocalExecutor", Disturbed)
    monkeypatch.setattr(command, "ChildExecutor", Disturbed)
    monkeypatch.setattr(command, "_draw", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


GIVEN = ["config.json", "--device", "cpu", "--context", "16,32", "--weights", "fp16,fp8"]


def undisturbed_ms(row: RowDict) -> float:
    """At 100 GB/s."""
    return float(row["bytes_read"] + row["bytes_written"]) / 1e8


def check(rows: list[RowDict]) -> None:
    """Rows of one shape have one time."""
    seen: dict[tuple[object, ...], float] = {}
    for row in rows:
        if row["status"] == "ok":
            shape = tuple(row[name] for name in ("operation", "precision", "M", "N", "K", "kv_len"))
            assert seen.setdefault(shape, row["time_ms"]) == row["time_ms"], row["case"]
            assert row["time_ms"] in (undisturbed_ms(row), pytest.approx(SLOW * undisturbed_ms(row)))


def test_copies_follow_second_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "AGAIN_SHARE", 1e9)
    found = bwprof.model_step(TINY, context=[16, 32], weights=["fp16", "fp8"], device="cpu")
    rows = bwprof.rows(found.frame)
    check(rows)
    assert [row["time_ms"] for row in rows if row["status"] == "ok"] == [
        undisturbed_ms(row) for row in rows if row["status"] == "ok"
    ]
    speedup = found.steps["time_ms"][0] / found.steps["time_ms"][2]
    assert "FP8 weights" in found.answer
    assert "\u00d7" in found.answer, "it offers a gain"
    assert speedup == pytest.approx(found.formats.set_index("weights").loc["int8", "speedup_vs_fp16"], rel=0.02)


def test_copies_are_alike_without_time_for_second_tries(disturbed: Path) -> None:
    """A quarter of 14 seconds is enough for a few rows of the first step."""
    bwprof.model_step(TINY, context=[16, 32], weights=["fp16", "fp8"], device="cpu", output=disturbed / "step.json")
    rows, samples, _ = json_file.read_json(disturbed / "step.json")
    check(rows)
    again = [row["role"] for row in rows if row["context"] == 16 and "measured twice" in (row["reason"] or "")]
    assert again[:3] == ["qkv", "kv append", "attention"]
    asked = [(row["context"], row["role"], row["precision"]) for row in rows]
    copy = asked.index((32, "qkv", "fp16"))
    assert (rows[copy]["time_ms"], rows[copy]["flags"]) == (undisturbed_ms(rows[copy]), "")
    assert samples[copy] == samples[asked.index((16, "qkv", "fp16"))]


@pytest.mark.parametrize("broken_at", [5, 14, 15, 17])
def test_an_interrupted_run_is_consistent_and_resumes(
    disturbed: Path, monkeypatch: pytest.MonkeyPatch, broken_at: int
) -> None:
    """Ctrl-C comes in the first tries and between second ones: no row is lost, and copies are alike."""
    monkeypatch.setattr(loop, "AGAIN_SHARE", 1e9)
    monkeypatch.setattr(Disturbed, "broken_at", broken_at)
    assert model_command.main_model(GIVEN) == 130
    folder = next((disturbed / "bwprof-results").iterdir())
    before = json_file.read_json(folder / "results.json")[0]
    check(before)
    monkeypatch.setattr(Disturbed, "broken_at", 1 << 30)
    assert model_command.main_model(["--resume", folder.name]) == 0
    for rows in (json_file.read_json(folder / "results.json")[0], csv_file.read_csv(folder / "results.csv")):
        check(rows)
        assert len(rows) == 4 * 7
        kept = {(row["case"], row["weights"]): row["time_ms"] for row in before if row["flags"] == ""}
        assert kept.items() <= {(row["case"], row["weights"]): row["time_ms"] for row in rows}.items()
    assert ModelStep.from_frame(bwprof.load(folder)).tokens_s is not None


def test_resuming_repairs_a_run_killed_between_second_tries(disturbed: Path) -> None:
    """The file has the second try of one row, but the first try in its copy."""
    assert model_command.main_model(GIVEN) == 0
    folder = next((disturbed / "bwprof-results").iterdir())
    rows, samples, run = json_file.read_json(folder / "results.json")
    for row in rows:
        if row["role"] == "qkv" and (row["context"], row["status"]) != (16, "ok"):
            row |= {"time_ms": 7.0, "flags": "noisy", "time_ms_lo": 1.0, "time_ms_hi": 9.0}
    write_json(folder / "results.json", rows, samples, run)
    (folder / "results.csv").unlink()
    with pytest.raises(AssertionError):
        check(rows)
    assert model_command.main_model(["--resume", folder.name]) == 0
    check(json_file.read_json(folder / "results.json")[0])


def test_a_resumed_run_measures_disturbed_shapes_again(disturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a disturbed row is measured again, without the remark of a second try."""
    monkeypatch.setattr(loop, "AGAIN_SHARE", 1e9)
    monkeypatch.setattr(Disturbed, "broken_at", 7)
    assert model_command.main_model([*GIVEN[:-2], "--weights", "fp16"]) == 130
    folder = next((disturbed / "bwprof-results").iterdir())
    monkeypatch.setattr(Disturbed, "broken_at", 1 << 30)
    assert model_command.main_model(["--resume", folder.name]) == 0
    rows = json_file.read_json(folder / "results.json")[0]
    check(rows)
    twice = [row for row in rows if "measured twice" in (row["reason"] or "")]
    assert all(row["flags"] == "" for row in twice)
    assert {row["role"] for row in twice} == {*ROLES} - {"qkv"}, "that one had both of its rows already"
