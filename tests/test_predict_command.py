"""The commands ``bwprof predict`` and ``bwprof roofs``: what they print and write, and how they end."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import toy_roofs
from words import words

import bwprof
from bwprof import hardware
from bwprof.cli import main
from bwprof.roofs import store
from bwprof.roofs.model import Roofs


def test_the_table_names_the_variants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "gemm", "-p", "M=1,16", "--precision", "fp16", "--device", "A100-80GB"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split("|")[0].strip() for line in lines[2:4]] == ["gemm M=1", "gemm M=16"]
    assert re.search("A100-80GB: predicted: 90%.*2039 GB/s", out)
    assert not err


def test_different_reasons_name_their_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "gemm", "-p", "M=1", "--precision", "fp32,fp16", "--device", "bandwidth=10,fp16=4"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "given, gemm fp32: predicted: " in out
    assert "given, gemm fp16: predicted: " in out
    assert out.index("given, gemm fp32") < out.index("no arithmetic rate") < out.index("given, gemm fp16")


def test_lower_bounds_are_marked_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a rate of FP32 its product seems faster than FP16's, by memory alone; a copy calculates nothing."""
    asked = ["gemm", "kv_copy", "-p", "M=1,4096", "--precision", "fp32,fp16", "--device", "bandwidth=3200,fp16=400"]
    assert main(["predict", *asked]) == 0
    out = capsys.readouterr().out
    cells = {tuple(map(str.strip, line.split("|")))[:2]: line.split("|")[2:] for line in out.splitlines()[2:8]}
    gemm, half, copy = (cells[name] for name in (("gemm M=4096", "fp32"), ("gemm M=4096", "fp16"), ("kv_copy", "fp32")))
    assert gemm[0].strip().startswith(">= ")
    assert gemm[1].strip().startswith("<= ")
    assert [cell.strip() for cell in gemm[2:]] == ["-", "-"]
    assert "=" not in "".join([*half, *copy])
    assert "\n>=: " in out
    assert {"lower", "bound"} <= words(out)
    assert main(["predict", *asked[:-1], "H200"]) == 0
    assert ">=" not in capsys.readouterr().out


def test_rows_as_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["predict", "gemm", "-p", "M=1,16", "--precision", "fp16", "--device", "bandwidth=3200,fp16=400"]
    assert main([*arguments, "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    frame = bwprof.predict("gemm", device="bandwidth=3200,fp16=400", precision="fp16", M=[1, 16])
    assert [row["status"] for row in rows] == ["predicted"] * 2
    assert [float(row["time_ms"]) for row in rows] == pytest.approx(frame["time_ms"].tolist())
    target = tmp_path / "rows.json"
    assert main([*arguments, "--json", str(target), "--csv", "-"]) == 0
    assert bwprof.load(target)["time_ms"].tolist() == pytest.approx(frame["time_ms"].tolist())
    assert main([*arguments, "--json", str(target)]) == 2
    assert f"{target} exists already" in capsys.readouterr().err
    assert main([*arguments, "--json", str(target), "--force"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--json", "-"]) == 0
    assert [row["M"] for row in json.loads(capsys.readouterr().out)["rows"]] == [1, 16]


def test_a_suite_and_a_measured_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    suite = tmp_path / "mine.toml"
    suite.write_text(
        'precisions = ["fp16"]\n[[case]]\nname = "small"\noperation = "gemm"\nparams = { M = [1, 8], N = 64, K = 64 }\n'
        '[[case]]\nname = "moves"\noperation = "kv_copy"\n'
    )
    assert main(["predict", "--suite", str(suite), "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["case"] for row in rows] == ["small M=1", "small M=8", "moves"]
    learned = bwprof.predict("gemm", device="H200", precision="fp16", M=[1, 8, 64], N=[64, 512])
    learned["status"] = "ok"
    bwprof.save(learned, tmp_path / "run.json")
    arguments = ["predict", "--suite", str(suite), "gemm", "--device", "L4", "--efficiency", str(tmp_path / "run.json")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert re.search("L4: predicted: .*6 rows.*H200", out)
    assert "90 % of times" in out


def test_the_default_suite_is_predicted_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--device", "RX-7900-XTX", "--csv", "-"]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["status"] for row in rows} == {"predicted"}
    assert {row["precision"] for row in rows} == {"fp32", "tf32", "fp16", "bf16"}
    assert all(float(row["time_ms"]) > 0 for row in rows)
    assert not err


def test_operations_without_the_precision_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--suite", "default", "--precision", "q4_0", "--csv", "-"]) == 0
    out, err = capsys.readouterr()
    assert {row["operation"] for row in csv.DictReader(io.StringIO(out))} == {"gemm"}
    assert {"kv_copy", "q4_0"} <= words(err)


def test_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--devices"]) == 0
    out = capsys.readouterr().out
    assert "RX-7900-XTX" in out
    assert "H200 Tensor Core" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gem"], "unknown operation 'gem': did you mean 'gemm'"),
        (["gemm", "--device", "H201"], "did you mean 'H200'"),
        (["gemm", "--device", "bandwidth=0"], "bandwidth is '0'"),
        (["gemm", "--device", "L4", "--roofs", "x.json"], "--device and --roofs both say which device"),
        (["gemm", "--roofs", "nowhere.json"], "no such file or folder: nowhere.json"),
        (["gemm", "--efficiency", "much"], "--efficiency is 'much'"),
        (["gemm", "--efficiency", "120%"], "--efficiency is '120%': a share such as 10% is needed"),
        (["gemm", "-p", "m=1"], "unknown parameter of gemm 'm'"),
        (["attention_decode", "-p", "kv_lens=1,2"], "lengths are given by --kv-lens 100,7000 (in Python kv_lens=["),
        (["gemm", "--kv-lens", "1,2"], "kv_lens: gemm takes none"),
        (["gemm", "--csv", "-", "--json", "-"], "cannot both have the standard output"),
        (["gemm", "--csv", "rows.txt"], "must end in .csv"),
        (["stream_read", "--precision", "q4_0"], "no precision q4_0 of stream_read"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_input_files_are_not_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    bwprof.save(bwprof.load_example("h200"), path)
    before = path.read_bytes()
    given = ["predict", "gemm", "--efficiency", str(path), "--json", str(path), "--force"]
    assert main(given) == 2
    assert "what is read" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_roofs_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "roofs.json"
    store.export(replace(toy_roofs.ROOFS, source="elsewhere", unconfirmed="busy"), path)
    assert store.read(path) == replace(toy_roofs.ROOFS, source=str(path))
    found = bwprof.predict("gemm", device=store.read(path), precision="fp16")
    assert found["device"].tolist() == ["Test GPU"]
    run = tmp_path / "run.json"
    frame = bwprof.predict("gemm")
    frame.attrs = {"run": {"roofs": toy_roofs.ROOFS.to_dict()}}
    bwprof.save(frame, run)
    assert store.read(run).points == toy_roofs.POINTS


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "not a bwprof"),
        ('{"format": "bwprof-roofs", "version": 99, "roofs": {}}', "another version of bwprof"),
        ('{"format": "bwprof-roofs"}', "another version of bwprof"),
        ('{"format": "bwprof-roofs", "version": 1}', "points"),
        ('{"format": "bwprof-roofs", "version": 1, "roofs": {"points": 3}}', "TypeError"),
        ("[" * 100_000, "not a bwprof"),
    ],
)
def test_files_that_hold_no_roofs(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "roofs.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        store.read(path)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Roofs:
    """Roofs that are stored for this machine's own CPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hardware.borrow_current(None, "cpu") as (choice, device):
        facts = hardware.facts(device)
        mine = replace(toy_roofs.ROOFS, device=facts["name"], device_uuid=facts["uuid"], driver=facts["driver"])
        assert store.save(store.identity(choice.backend, facts), mine)
    return mine


def test_roofs_are_listed_exported_and_imported(
    stored: Roofs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["roofs", "--device", "cpu"]) == 0
    assert stored.measured in capsys.readouterr().out.replace("\n", " ")
    path = tmp_path / "mine.json"
    assert main(["roofs", "export", str(path), "--device", "cpu"]) == 0
    assert store.read(path).points == stored.points
    assert main(["roofs", "export", str(path), "--device", "cpu"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["roofs", "export", str(path), "--device", "cpu", "--force"]) == 0
    assert main(["predict", "gemm", "--roofs", str(path), "--csv", "-"]) == 0
    assert stored.device in capsys.readouterr().out
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    capsys.readouterr()
    assert main(["roofs", "export", str(tmp_path / "none.json"), "--device", "cpu"]) == 2
    assert "no roofs are stored" in capsys.readouterr().err
    assert main(["roofs", "import", str(path), "--device", "cpu"]) == 0
    assert main(["roofs", "export", str(tmp_path / "again.json"), "--device", "cpu"]) == 0
    assert store.read(tmp_path / "again.json").points == stored.points


def test_roofs_of_another_device_are_not_imported(
    stored: Roofs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "theirs.json"
    store.export(toy_roofs.ROOFS, path)
    assert main(["roofs", "import", str(path), "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert {str(path), "GPU-1", "580.1", *stored.device.split()} <= words(said)
    assert f"bwprof predict --roofs {path}" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["exprot"], "unknown action 'exprot': did you mean 'export'"),
        (["export"], "a file is needed"),
        (["import"], "a file is needed"),
        (["export", "roofs.csv"], "roofs are exported as .json"),
        (["list", "x.json"], "list takes no file"),
        (["import", "nowhere.json"], "no such file or folder"),
    ],
)
def test_mistakes_about_roofs(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofs", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_several_devices_in_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["predict", "--suite", "default", "--only", "attention*", "--precision", "fp16", "--device", "h100,H200"]
    assert main(given) == 0
    out, err = capsys.readouterr()
    lines = [
        [cell.strip() for cell in line.split("|")] for line in out.splitlines() if " us " in line or " ms " in line
    ]
    assert {line[2] for line in lines} == {"H100-SXM", "H200"}
    assert [line[2] for line in lines[:2]] == ["H100-SXM", "H200"]
    assert lines[0][:2] == lines[1][:2]
    assert {"h100", "H100-SXM", "H100-PCIe"} <= words(err)
    assert main([*given, "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["operation"] for row in rows} == {"attention_prefill", "attention_decode"}
    assert len(rows) == len(lines)
    assert main(["predict", "--suite", "default", "--only", "nothing*"]) == 2
