"""No option is taken and then left aside without a word: it is used, or refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import toy_roofs
from pretended import TINY
from rows import pair

import bwprof
from bwprof.cli import main
from bwprof.cli.commands.sweep import main_sweep as sweep_main
from bwprof.results import frame
from bwprof.roofs import store


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a model, roofs and a run, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    store.export(toy_roofs.ROOFS, tmp_path / "roofs.json")
    bwprof.save(frame.from_rows(pair("copy", 990.0, 980.0, peak_gb_s=1000.0)), tmp_path / "run.csv")
    bwprof.save(frame.from_rows(pair("copy", 990.0, 980.0, peak_gb_s=None)), tmp_path / "bare.csv")
    return tmp_path


def refused(given: str, said: str, capsys: pytest.CaptureFixture[str], command: Any = main) -> None:
    before = sorted(Path().iterdir())
    assert command(given.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    "option",
    [
        "--chain",
        "--backend cuda",
        "--max-seconds 1",
        "--max-case-seconds 1",
        "--max-total-seconds 1",
        "--roofs auto",
        "--roofs stored",
        "--no-roofs",
        "--recalibrate",
    ],
)
def test_a_predicted_model_takes_no_option_of_measuring(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    name = option.split(maxsplit=1)[0]
    said = f"nothing is measured for a prediction: leave out {name}, or name a device of this machine"
    refused(f"model config.json --device L4 {option}", said, capsys)


@pytest.mark.parametrize(
    "given",
    [
        {"chain": True},
        {"backend": "cpu"},
        {"max_seconds": 1},
        {"max_total_seconds": 1},
        {"roofs": "stored"},
        {"roofs": False},
        {"recalibrate": True},
        {"progress": True},
        {"progress": print},
    ],
)
def test_a_predicted_model_takes_no_argument_of_measuring(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"nothing is measured for a prediction: leave out {next(iter(given))}, or"):
        bwprof.model_step(TINY, context=16, device="L4", **given)


def test_options_of_a_prediction() -> None:
    same = bwprof.model_step(TINY, context=16, device="L4", progress=False, roofs="auto", chain=False).time_ms
    assert same == bwprof.model_step(TINY, context=16, device="L4").time_ms
    found = bwprof.model_step(TINY, context=16, roofs=toy_roofs.ROOFS, predict=True).frame
    assert found["device"].unique().tolist() == ["Test GPU"]


def test_a_prediction_is_for_one_device(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for device in ("L4", "cpu"):
        said = f"device '{device}' and roofs both say what to predict for: leave one out"
        refused(f"model config.json --device {device} --predict --roofs roofs.json", said, capsys)
    assert main(["model", "config.json", "--context", "16", "--predict", "--roofs", "roofs.json"]) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "model --list config.json --batch 2",
            "--list prints the models that are known by name: leave out MODEL, --b",
        ),
        ("model --list --chain", "leave out --chain"),
        ("predict --devices gemm", "--devices lists devices: leave out OPERATION"),
        ("predict --devices --csv - -p M=1", "leave out --param, --csv"),
        ("predict gemm --force", "--force replaces the files of --csv and --json"),
        ("roofs list --force", "--force replaces the file that export writes: list has none"),
        ("roofs import roofs.json --force", "import has none"),
        ("roofs --backend nothing", "unknown backend 'nothing'"),
        ("roofs --backend cpu --device cuda", "they contradict each other"),
        ("roofs --device gpu", "device is 'gpu'"),
        ("roofs --device cpu:99", "no device 99"),
        ("show run.csv --view short --columns case", "not allowed with argument"),
        ("analyze run.csv --peak 2000", "--peak is for rows that have no peak_gb_s: all of run.csv have one"),
    ],
)
def test_options_that_would_do_nothing(folder: Path, capsys: pytest.CaptureFixture[str], given: str, said: str) -> None:
    assert main(given.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_options_that_do_something(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (
        "predict gemm --csv new.csv --force",
        "roofs --backend cpu",
        "roofs --device CPU",
        "show run.csv --view all",
        "show bare.csv",
        "analyze bare.csv --peak 2000",
    ):
        assert main(given.split()) == 0, given
    assert "cpu:0" in capsys.readouterr().out


def test_columns_and_quiet_exclude_each_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused("gemm --quiet --columns case", "--columns says what to print, --quiet prints nothing", capsys, sweep_main)
