"""The command `bwprof model`: runs that are kept and gone on with, predictions, mistakes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pretended import ROLES, TINY, Pretended

import bwprof
from bwprof.cli import runner as command
from bwprof.cli.commands import model as model_command
from bwprof.cli.commands.sweep import main_sweep as sweep_main
from bwprof.llm import architecture
from bwprof.llm.result import ModelStep
from bwprof.measuring.row import Outcome

pytestmark = pytest.mark.usefixtures("one_thread")


class Here(Pretended):
    """What the command's child process does, without a process."""

    made: list[Here] = []  # noqa: RUF012 - of one test

    def __init__(self, _backend: str, _index: int, _interrupts: object, **_: object) -> None:
        super().__init__()
        Here.made.append(self)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The command with a pretended device, in an empty folder."""
    Here.made.clear()
    monkeypatch.setattr(command, "ChildExecutor", Here)
    monkeypatch.setattr(command, "_draw", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


def run_folder(folder: Path) -> Path:
    return next((folder / "bwprof-results").iterdir())


def test_the_command_stores_a_run(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        model_command.main_model(["config.json", "--device", "cpu", "--context", "16,32", "--weights", "fp16,fp32"])
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("Decode is memory-bound: 80")
    for title in ("Steps", "Operations: decode b=1 c=16", "Formats of that step", "What fits 100 GB"):
        assert title in out
    assert max(map(len, out.splitlines())) <= 120
    found = bwprof.load(run_folder(quick))
    assert len(found) == 4 * 7
    assert ModelStep.from_frame(found).tokens_s is not None
    csv = pd.read_csv(run_folder(quick) / "results.csv")
    assert csv["role"].tolist()[:7] == ROLES
    assert found["speedup_vs_fp32"].notna().any()


def test_the_command_resumes_a_run(
    quick: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the middle loses nothing; what is left is measured, and no shape twice."""
    given = ["config.json", "--device", "cpu", "--context", "16,32", "--prefill"]
    real = Here.measure

    def interrupted(self: Here, spec: Any, max_seconds: float, deadline: float | None) -> Outcome:
        if len(self.measured) == 5:
            raise KeyboardInterrupt
        return real(self, spec, max_seconds, deadline)

    monkeypatch.setattr(Here, "measure", interrupted)
    assert model_command.main_model(given) == 130
    folder = run_folder(quick)
    assert f"bwprof model --resume {folder.relative_to(quick)}" in capsys.readouterr().err
    monkeypatch.setattr(Here, "measure", real)
    assert model_command.main_model(["--resume", folder.name]) == 0
    found = bwprof.load(folder)
    assert sorted(found["role"].value_counts().items()) == sorted((role, 4) for role in ROLES)
    measured = [(spec.operation, tuple(sorted(spec.params.items()))) for made in Here.made for spec in made.measured]
    assert len(measured) == len(set(measured))
    assert ModelStep.from_frame(found).tokens_s is not None
    assert model_command.main_model(["--resume", folder.name]) == 0  # nothing is left to do
    assert Here.made[-1].measured == []


def test_the_other_command_does_not_resume_it(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert model_command.main_model(["config.json", "--device", "cpu", "--context", "16"]) == 0
    assert sweep_main(["--resume", run_folder(quick).name]) == 2
    assert "bwprof model --resume" in capsys.readouterr().err
    assert model_command.main_model(["config.json", "--resume", run_folder(quick).name]) == 2
    assert "leave out MODEL" in capsys.readouterr().err


def test_a_run_with_a_damaged_model_does_not_resume(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert model_command.main_model(["config.json", "--device", "cpu", "--context", "16"]) == 0
    path = run_folder(quick) / "results.json"
    document = json.loads(path.read_text())
    model = document["run"]["model"]
    point = model["points"][0]
    stored = {"points": [[*point[:3], "stored", point[4]]], "layout": "separate"}
    for damaged in (
        3,
        {},
        {"points": [[1]]},
        model | {"reserve": "x"},
        model | {"memory_bytes": math.inf},
        model | {"points": [["decode", math.inf, *point[2:]]]},
        *(
            model | stored | {"stored": {"total_bytes": 1, "types": {}, "tensors": {}} | change}
            for change in (
                {"total_bytes": math.inf},
                {"types": {"Q4_0": {"bytes": "x"}}},
                {"tensors": {"attn_q": 3}},
                {"tensors": {"attn_q": {"fp16": "x"}}},
                {"tensors": {"attn_q": {"fp16": math.inf}}},
            )
        ),
    ):
        document["run"]["model"] = damaged
        path.write_text(json.dumps(document))
        assert model_command.main_model(["--resume", run_folder(quick).name]) == 2
        assert "cannot be resumed" in capsys.readouterr().err


def test_a_run_of_other_operations_does_not_resume(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of a bwprof that took a model's steps to launch something else would add to those that are left."""
    assert model_command.main_model(["config.json", "--device", "cpu", "--context", "16"]) == 0
    path = run_folder(quick) / "results.json"
    document = json.loads(path.read_text())
    document["run"]["plan"][0]["params"]["M"] += 1
    path.write_text(json.dumps(document))
    assert model_command.main_model(["--resume", run_folder(quick).name]) == 2
    assert "launches other operations" in capsys.readouterr().err


def test_the_command_predicts(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert model_command.main_model(["llama-3.1-70b", "--device", "RTX-4090"]) == 0
    assert re.match("llama-3.1-70b,.*FP16,.*RTX-4090, does not", capsys.readouterr().out)
    given = ["config.json", "--device", "H200", "--csv", "-", "--json", "step.json"]
    assert model_command.main_model(given) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 + 7
    assert err.startswith("Decode is ")
    assert ModelStep.from_frame(bwprof.load("step.json")).answer.split(",")[0] in " ".join(err.split())
    assert model_command.main_model(given) == 2
    assert "exists already" in capsys.readouterr().err
    assert json.loads(Path("config.json").read_text()) == TINY
    assert not Here.made


def test_the_run_stores_its_configuration(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No output takes the place of what is read, whatever the options say."""
    for model in ("config.json", "."):
        for device in ("cpu", "H200"):
            assert model_command.main_model([model, "--device", device, "--json", "config.json", "--force"]) == 2
            assert "name another file" in capsys.readouterr().err
            assert json.loads(Path("config.json").read_text()) == TINY


def test_a_prediction_that_cannot_be_written_leaves_no_file(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (quick / "old.json").write_text("{}")
    for more, said in (
        (["--csv", "new.csv", "--json", "old.json"], "replace it with --force"),
        (["--csv", "new.csv", "--json", "new.txt"], "must end in .json"),
        (["--csv", "new.csv", "--json", "new.csv"], "must end in .json"),
        (["--csv", "new.csv", "--output", "folder"], "--output folder: a prediction is kept in a file ending in"),
        (["--csv", "new.csv", "--output", "other.csv"], "one of each"),
    ):
        assert model_command.main_model(["config.json", "--device", "H200", *more]) == 2
        assert said in capsys.readouterr().err
    assert {path.name for path in quick.iterdir()} == {"config.json", "old.json"}
    assert model_command.main_model(["config.json", "--device", "H200", "--output", "new.csv"]) == 0
    assert len(bwprof.load("new.csv")) == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "MODEL is missing"),
        (["nothing"], "unknown model 'nothing'"),
        (["none.json"], "none.json"),
        (["config.json", "--batch", "0"], "batch is 0"),
        (["config.json", "--batch", ","], "--batch: no values"),
        (["config.json", "--context", ""], "--context is ''"),
        (["config.json", "--layout", ""], "--layout is ''"),
        (["x" * 5000], "x… (5000 characters): File name too long"),
        (["config.json", "--batch", "1x"], "--batch: '1x' is not a whole number"),
        (["config.json", "--weights", ","], "--weights is ','"),
        (["config.json", "--reserve", "x"], "--reserve is 'x'"),
        (["config.json", "--reserve", "100%"], "reserve is 1.0"),
        (["config.json", "--memory", "x"], "--memory: 'x'"),
        (["config.json", "--device", "gpu"], "for a prediction: unknown device 'gpu'"),
        (["config.json", "--device", "cpu", "--predict"], "predict: name a device"),
        (["config.json", "--device", "cpu", "--efficiency", "1"], "--efficiency goes with predictions"),
        (["config.json", "--device", "H200", "--efficiency", "x"], "--efficiency is 'x'"),
        (["config.json", "--device", "H200", "--efficiency", "2"], "--efficiency is '2'"),
        (["config.json", "--device", "H200", "--csv", "-", "--json", "-"], "cannot both have the standard output"),
    ],
)
def test_mistakes_in_the_command(quick: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str) -> None:
    assert model_command.main_model(given) == 2
    assert said in capsys.readouterr().err
    assert not (quick / "bwprof-results").exists()


def test_the_list_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert model_command.main_model(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in architecture.list_models())
    assert "config.json of: llama, mistral" in out
