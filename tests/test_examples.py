"""Recorded runs that come with bwprof, and the script that records them."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from rows import pair, write_json

import bwprof
from bwprof.cli import main
from bwprof.records.source import load_source
from bwprof.results import frame, reader

HERE = Path(__file__).resolve().parent
NAMES = tuple(reader.recorded_runs())


def test_there_are_examples_and_they_are_small() -> None:
    assert {"h100", "h200"} <= set(NAMES)
    assert (
        sum(path.stat().st_size for path in (Path(bwprof.__file__).parent / "data" / "examples").glob("*.gz"))
        <= 1_000_000
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_a_run_like_any_other(name: str, tmp_path: Path) -> None:
    found = bwprof.load_example(name)
    run = found.attrs["run"]
    assert name.partition("_")[0].upper() in run["device"]
    assert set(found["device"]) == {run["device"]}
    model = "model" in found
    assert set(found["status"]) == ({"ok", "predicted"} if model else {"ok"}), "formats that no kernel has"
    assert len(run["commit"]) == 40
    assert set(run["commit"]) <= set("0123456789abcdef")
    assert run["facts"]["driver"]
    assert run["versions"]["bwprof"] == found["bwprof_version"].iloc[0]
    again = bwprof.load(bwprof.save(found, tmp_path / "a.json"), samples=True)
    assert len(again) == len(found)
    measured = again[again["status"] == "ok"]
    assert all(len(values) == count for values, count in zip(measured["samples_ns"], measured["samples"], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_results_take_an_example(name: str) -> None:
    found = bwprof.load_example(name)
    assert len(bwprof.summary(found)) > 0
    measured = found[found["status"] == "ok"]
    assert measured["limiter"].notna().all()
    assert bwprof.view(measured)["limiter"].notna().all()
    assert bwprof.Roofs.from_dict(found.attrs["run"]["roofs"]).points


@pytest.mark.parametrize(
    "words",
    [
        "analyze h200",
        "show h100",
        "report h200_llama",
        "outliers h200 h200",
        "compare h200 h200",
        "diagnose h200 --only kv_copy",
        "plot roofs h200 -o roofs.svg",
        "predict gemm --roofs h200 --efficiency h200",
        "baseline save one h200 --dir kept",
    ],
)
def test_commands_take_the_name_of_an_example(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 0


@pytest.mark.parametrize(
    "words",
    [
        "analyze h200",
        "show h200",
        "report h200",
        "report h200 -o page.md",
        "outliers h200 h200",
        "compare h200 h200 --all",
        "diagnose h200",
        "plot comparison h200 -o bars.svg",
        "predict --suite default",
    ],
)
def test_only_chooses_rows(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of cases or operations select rows; no match is an error."""
    monkeypatch.chdir(tmp_path)
    assert main([*words.split(), "--only", "kv_copy*"]) == 0
    said = capsys.readouterr().out + "".join(path.read_text() for path in tmp_path.glob("*.md"))
    assert "outliers" in words or "kv_copy" in said
    assert "gemm" not in said
    assert main([*words.split(), "--only", "nothing", *(["--force"] if "-o" in words else [])]) == 2
    assert "nothing" in capsys.readouterr().err


def test_only_selects_rows_samples_and_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["baseline", "save", "one", "h200"]) == 0
    whole = load_source("one")
    found = whole.only(["kv_copy"])
    places = [place for place, row in enumerate(whole.rows) if row["operation"] == "kv_copy"]
    assert len(places) == 3
    for name in ("rows", "samples", "process_ms", "cases"):
        assert list(getattr(found, name)) == [getattr(whole, name)[place] for place in places]


def test_a_baseline_is_planned_without_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["gemm", "-p", "N=64", "-p", "K=64", "--device", "cpu", "--repeat", "3", "--dir", str(tmp_path)]
    assert main(["baseline", "save", "one", *words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.count("gemm N=64 K=64") == 2
    assert "3 fresh processes" in out
    assert not list(tmp_path.iterdir())


def test_a_file_precedes_an_example_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(bwprof.load("h200")) == 63
    Path("h200").mkdir()
    bwprof.save(frame.from_rows(pair("mine", 9.0, 8.0)), "h200/results.json")
    assert bwprof.load("h200")["case"].tolist() == ["mine", "mine"]
    assert len(bwprof.load_example("h200")) == 63
    bwprof.save_baseline("h100", frame.from_rows(pair("mine", 9.0, 8.0)))
    assert bwprof.compare("h100", "h200")["case"].tolist() == ["mine", "mine"], "and so does a baseline"
    with pytest.raises(FileNotFoundError, match=r"h20 \(recorded runs: h100, "):
        bwprof.load("h20")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_no_machine_name(name: str) -> None:
    found = bwprof.load_example(name)
    assert found[["hostname", "device_uuid"]].isna().all(axis=None)
    content = gzip.decompress(
        (Path(bwprof.__file__).parent / "data" / "examples" / f"{name}.json.gz").read_bytes()
    ).decode()
    for word in ("GPU-", '"argv"', '"host"', "/root", "/home", "/tmp", "/usr", "pci_bus_id"):
        assert word not in content


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_llama")])
def test_an_example_of_a_model_answers(name: str) -> None:
    step = bwprof.ModelStep.from_frame(bwprof.load_example(name))
    assert step.answer.startswith("Decode is memory-bound")
    assert "tokens/s" in step.answer


def test_an_unknown_example_is_refused() -> None:
    with pytest.raises(ValueError, match=r"example 'h20'.*'h200'.*h100, h100_llama"):
        bwprof.load_example("h20")
    with pytest.raises(ValueError, match=r"example '\.\./results\.json'.*bwprof\.load"):
        bwprof.load_example("../results.json")
    with pytest.raises(TypeError, match="name is None"):
        bwprof.load_example(None)  # type: ignore[arg-type]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a run with many facts of its machine."""
    run = {
        "run_id": "r",
        "device": "Toy",
        "argv": ["--json", "/home/me/a.json"],
        "host": {"name": "node7", "platform": "Linux"},
        "environment": {"CUDA_VISIBLE_DEVICES": "GPU-50d9368e-e4d7-dccd-b337-562766b65fda"},
        "build": {"cuda_reason": "nvcc at /opt/cuda/bin/nvcc", "cuda_version": "13.0"},
        "facts": {"name": "Toy", "uuid": "GPU-50d9368e-e4d7-dccd-b337-562766b65fda", "driver": "580", "units": 3},
    }
    rows = pair("a", 100.0, 80.0, hostname="node7", device_uuid="GPU-50d9368e-e4d7-dccd-b337-562766b65fda", run_id="r")
    path = tmp_path / "run.json"
    write_json(path, frame.to_rows(frame.from_rows(rows)), [[1.0], [2.0]], run)
    return path


def test_recording_keeps_the_device_and_drops_the_machine(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE / "benchmarks"))
    import record_example

    content = record_example.example_of(recorded, "b05810a")
    assert record_example.example_of(recorded, "b05810a") == content, "byte for byte"
    document = json.loads(gzip.decompress(content))
    assert document["run"] == {
        "run_id": "r",
        "device": "Toy",
        "build": {"cuda_version": "13.0"},
        "facts": {"name": "Toy", "uuid": "", "driver": "580", "units": 3},
        "commit": "b05810a",
    }
    assert [row["samples_ns"] for row in document["rows"]] == [[1.0], [2.0]]
    assert not {"hostname", "device_uuid"} & document["rows"][0].keys()
    with pytest.raises(ValueError, match="'HEAD': 7 to 40"):
        record_example.example_of(recorded, "HEAD")
    for word in ("see /home/me/log", "on GPU-50d9368e-e4d7-dccd-b337-562766b65fda", "node7"):
        rows, samples, run = reader.read_rows(recorded)
        rows[0]["reason"] = word
        write_json(recorded, rows, samples, run)
        with pytest.raises(ValueError, match="where it was made"):
            record_example.example_of(recorded, "b05810a")
    monkeypatch.delitem(sys.modules, "record_example")
