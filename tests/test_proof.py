"""Proof bundles, and files with the classic columns."""

from __future__ import annotations

import csv
import dataclasses
import errno
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from commands import DRAW, Here, run_folder
from rows import pair, row

import bwprof
from bwprof.records import proof
from bwprof.results import frame
from bwprof.runs import executors

SIX = ["operation", "precision", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"]
TINY = ["--backend", "cpu", "-p", "N=16", "-p", "K=16", "--cache", "hot"]


def report(**more: Any) -> bwprof.BandwidthReport:
    """Return the report of 1 607 424 B read and 1 792 B written in 2.43265 us."""
    return bwprof.BandwidthReport(
        **{
            "operation": "decode_gemm",
            "precision": "FP16",
            "time_ms": 0.00243265,
            "bandwidth_gb_s": 661.509,
            "bytes_read": 1607424,
            "bytes_written": 1792,
        }
        | more
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without pictures, which take longer than the rest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bwprof.plot.bars.save", lambda *_: None)
    return tmp_path


def test_proof_bundle_integration(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle holds the measured values exactly; another report of the run joins it; all are read back."""
    monkeypatch.setattr("bwprof.plot.bars.save", DRAW)
    code, out, err = here("gemm", *TINY, "-p", "M=1,2", "--proof-bundle", "--classic-csv", "old.csv")
    assert code == 0, err
    run = run_folder(tmp_path)
    bundle = tmp_path / ".test-results" / "bandwidth" / run.name
    assert str(bundle.relative_to(tmp_path)) in err
    names = {path.name for path in bundle.iterdir()}
    pictures = {"bandwidth_comparison.png", "bandwidth_comparison.svg"}
    assert names == {"bandwidth_report.json", "metadata.json", "results.csv", "results.json", "artifacts", *pictures}
    assert (bundle / "bandwidth_comparison.png").read_bytes() == (run / "bandwidth_comparison.png").read_bytes()

    result = json.loads((bundle / "bandwidth_report.json").read_text())
    measured = bwprof.load(run)
    assert list(result["run"]) == [
        *("run_id", "device", "driver", "bwprof_version", "git_commit", "argv", "started", "finished"),
    ]
    assert result["run"]["run_id"] == run.name
    assert result["run"]["device"] == measured["device"][0]
    assert result["run"]["argv"][:1] == ["gemm"]
    assert len(result["reports"]) == len(measured) == 4
    for found, (_, line) in zip(result["reports"], measured.iterrows(), strict=True):
        assert list(found)[:10] == [*SIX, "status", "case", "variant", "verified"]
        assert found["precision"] == line["precision"].upper()
        moved = (found["bytes_read"] + found["bytes_written"]) / (found["time_ms"] * 1e6)
        assert found["bandwidth_gb_s"] == pytest.approx(moved)
        assert found["verified"] is True
    metadata = json.loads((bundle / "metadata.json").read_text())
    assert {name: metadata.get(name) for name in result["run"]} == result["run"]
    assert metadata["status"] == "complete"

    again = [bwprof.load(bundle / name) for name in ("bandwidth_report.json", "results.json")]
    for data in (*again, bwprof.load(bundle)):
        pd.testing.assert_frame_equal(data, measured)
        assert data.attrs["run"]["run_id"] == run.name
    assert bwprof.rows(bwprof.load(bundle))[0].samples_ns, "raw samples are in results.json"
    bwprof.BandwidthReport.from_row(bwprof.rows(measured)[0]).save_to_proof_bundle(run.name)
    assert len(bwprof.load(bundle / "bandwidth_report.json")) == 5
    assert out.count("gemm") >= 2, "the summary is printed as ever"


# ---- one report ----


def test_fields_have_this_order() -> None:
    later = ["case", "variant", "backend", "device", "run_id", "timestamp", "flags", "verified"]
    assert [field.name for field in dataclasses.fields(bwprof.BandwidthReport)] == [*SIX, *later]


def test_a_report_is_written_as_the_requirement_shows_it(folder: Path, snapshot: Callable[[str], None]) -> None:
    path = report().save_to_proof_bundle("nightly_7.a-b")
    assert path == Path(".test-results/bandwidth/nightly_7.a-b/bandwidth_report.json")
    snapshot(path.read_text())
    values = ["decode_gemm", "FP16", 0.00243265, 661.509, 1607424, 1792]
    assert list(json.loads(path.read_text()).items()) == list(zip(SIX, values, strict=True))
    (found,) = bwprof.rows(bwprof.load(path))
    assert (found.operation, found.precision, found.time_ms) == ("decode_gemm", "fp16", 0.00243265)
    assert (found.bandwidth_gb_s, found.bytes_read, found.bytes_written, found.status) == (661.509, 1607424, 1792, "ok")
    assert found.flags is None, "nobody has said that nothing is to be doubted"
    assert bwprof.load(path.parent).equals(bwprof.load(path)), "the folder is read as well"


def test_reports_of_one_run_become_a_list(folder: Path) -> None:
    for number in (1, 2, 3):
        path = report(case=f"case {number}", device="Card", timestamp=f"2026-01-0{number}").save_to_proof_bundle(
            "r", "x"
        )
    found = json.loads(path.read_text())
    assert [one["case"] for one in found] == ["case 1", "case 2", "case 3"]
    assert bwprof.load(path)["case"].tolist() == ["case 1", "case 2", "case 3"]
    metadata = json.loads((path.parent / "metadata.json").read_text())
    wanted = {"run_id": "r", "device": "Card", "started": "2026-01-01", "finished": "2026-01-03"}
    assert {name: metadata[name] for name in wanted} == wanted
    assert bwprof.load(path).attrs["run"]["device"] == "Card"
    report().save_to_proof_bundle("other", "x")
    assert len(bwprof.load(path)) == 3, "another run has a file of its own"


def test_a_report_of_a_row() -> None:
    one = row("decode", "fp16", verified=True, flags="noisy")
    found = bwprof.BandwidthReport.from_row(one)
    assert dataclasses.asdict(found) == {name: one.get(name) for name in dataclasses.asdict(found)}
    data = frame.from_rows([one])
    assert bwprof.BandwidthReport.from_row(data.iloc[0]) == found
    assert bwprof.BandwidthReport.from_row(bwprof.rows(data)[0]) == found
    broken = row("decode", "fp16", gb_s=None, status="failed", reason="wrong result")
    with pytest.raises(ValueError, match=r"time_ms is None.*wrong result"):
        bwprof.BandwidthReport.from_row(broken)


def test_a_measured_function_goes_into_a_bundle(folder: Path) -> None:
    measured = bwprof.measure(
        lambda: None,
        name="mine",
        bytes_read=8,
        bytes_written=8,
        device="cpu",
        cache="hot",
        max_seconds=0.01,
        roofs=False,
    )
    path = bwprof.BandwidthReport.from_row(measured).save_to_proof_bundle(measured.run_id)
    (found,) = bwprof.rows(bwprof.load(path))
    assert (found.operation, found.time_ms, found.precision) == ("mine", measured.time_ms, "")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"time_ms": None}, "time_ms is None: a time above 0"),
        ({"time_ms": float("nan")}, "time_ms is nan"),
        ({"bandwidth_gb_s": "fast"}, "bandwidth_gb_s is 'fast'"),
        ({"bytes_read": -1}, "bytes_read is -1: allowed is a whole number"),
        ({"bytes_written": 1.5}, "bytes_written is 1.5"),
        ({"operation": None}, "operation is None: text is needed"),
        ({"verified": "perhaps"}, "column verified: 'perhaps' is not True or False"),
    ],
)
def test_impossible_reports_are_refused(more: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=words):
        report(**more).save_to_proof_bundle("run")
    assert not (folder / ".test-results").exists()


# ---- a run's name cannot leave its folder ----

HOSTILE = [
    *(
        "..",
        ".",
        "",
        "../x",
        "a/b",
        "/tmp/x",
        "a\\b",
        "a\0b",
        "a\nb",
        " a",
        "a b",
        ".hidden",
        "..x",
        "~",
        "$HOME",
        "a:b",
    ),
    *("r\u0443n", "\uff0e\uff0e", "a\u2215b", "a\u202eb", "\u0661", "é", "x" * 129, None, 5, b"run", Path("run")),
]


@pytest.mark.parametrize("run_id", HOSTILE, ids=repr)
def test_unsafe_run_ids_are_refused(run_id: Any, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"run_id is .*128"):
        report().save_to_proof_bundle(run_id)
    if run_id is not None:
        with pytest.raises(ValueError, match=r"run_id is .*128"):
            bwprof.save_proof_bundle(frame.from_rows(pair("a", 1, 2)), run_id)
    assert list(folder.iterdir()) == []


def test_an_unsafe_run_id_of_a_frame_is_refused(folder: Path) -> None:
    for run, rows in (({"run_id": "../x"}, pair("a", 1, 2)), ({}, pair("a", 1, 2, run_id="/x"))):
        with pytest.raises(ValueError, match=r"run_id is '.*x'"):
            bwprof.save_proof_bundle(frame.from_rows(rows, run))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("run_id", ["a", "-", "_", "0", "a..b", "A-Z_a.z.", "x" * 128])
def test_plain_run_ids_are_allowed(run_id: str, folder: Path) -> None:
    assert report().save_to_proof_bundle(run_id).parent.parent == Path(".test-results/bandwidth")


@pytest.mark.parametrize("what", ["run", "run/bandwidth_report.json", "run/metadata.json", "run/artifacts"])
def test_links_out_of_the_folder_are_not_followed(what: str, folder: Path) -> None:
    outside = folder / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    link = folder / "root" / what
    link.parent.mkdir(parents=True)
    link.symlink_to(outside if "." not in what else outside / "kept")
    for save in (
        lambda: report().save_to_proof_bundle("run", folder / "root"),
        lambda: bwprof.save_proof_bundle(frame.from_rows(pair("a", 1, 2)), "run", folder / "root"),
    ):
        with pytest.raises(ValueError, match=f"{what} is a symbolic link"):
            save()
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("kept", "kept")]


# ---- files that are there ----


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"reports": []}', '[{"operation": "x"}]', '{"format": "bwprof-results"}', "[1]"]
)
def test_other_files_are_not_replaced(content: str, folder: Path) -> None:
    path = report().save_to_proof_bundle("run")
    path.write_text(content)
    with pytest.raises(ValueError, match=r"bandwidth_report\.json"):
        report().save_to_proof_bundle("run")
    with pytest.raises(ValueError, match=r"bandwidth_report\.json"):
        bwprof.save_proof_bundle(frame.from_rows(pair("a", 1, 2)), "run")
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"operation": "gemm"}], "report 1: precision, time_ms, bandwidth_gb_s, bytes_read, bytes_written is missing"),
        ([vars(pair) | {"operation": 1, "precision": []}], "report 1: "),
        ({"run": 5, "reports": []}, "its run is no object"),
        ({"run": {}, "reports": [5]}, "report 1: 5 is not a row"),
    ],
)
def test_damaged_bundles_are_refused(content: Any, words: str, folder: Path) -> None:
    (folder / "bandwidth_report.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"bandwidth_report.json.*{words}"):
        bwprof.load(folder / "bandwidth_report.json")


def test_damaged_metadata_lose_no_report(folder: Path) -> None:
    path = report().save_to_proof_bundle("run")
    (path.parent / "metadata.json").write_text("{")
    assert len(bwprof.load(path)) == 1
    report().save_to_proof_bundle("run")
    assert json.loads((path.parent / "metadata.json").read_text())["run_id"] == "run"


# ---- a frame ----


def test_saving_a_frame_again_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bwprof.plot.bars.save", lambda _data, path: path.with_suffix(".png").write_bytes(b"a picture"))
    data = frame.from_rows(pair("decode", 100, 90), {"run_id": "r1", "argv": ["x"]}, [[1.0], [2.0]])
    first = bwprof.save_proof_bundle(data, root="proof")
    before = {path.name: path.read_bytes() for path in first.iterdir() if path.suffix in (".json", ".csv")}
    assert bwprof.save_proof_bundle(data, root="proof") == first == Path("proof/r1")
    assert {path.name: path.read_bytes() for path in first.iterdir() if path.suffix in (".json", ".csv")} == before
    assert (first / "bandwidth_comparison.png").read_bytes() == b"a picture"
    assert bwprof.load(first, samples=True)["samples_ns"].tolist() == [[1.0], [2.0]]


def test_other_rows_are_replaced_only_with_force(folder: Path) -> None:
    one, other = (frame.from_rows(pair(name, 100, 90)) for name in ("one", "other"))
    path = bwprof.save_proof_bundle(one, "r", "proof")
    with pytest.raises(FileExistsError, match=r"results\.json.*force=True"):
        bwprof.save_proof_bundle(other, "r", "proof")
    assert bwprof.load(path)["case"].unique().tolist() == ["one"]
    report().save_to_proof_bundle("r", "proof")
    bwprof.save_proof_bundle(other, "r", "proof", force=True)
    found = json.loads((path / "bandwidth_report.json").read_text())["reports"]
    assert [one.get("case") for one in found] == [None, "other", "other"], "a report that was saved alone stays"


def test_rows_without_a_run_get_a_name(folder: Path) -> None:
    data = pd.concat([frame.from_rows(pair(name, 100, 90, run_id=name)) for name in ("a", "b")], ignore_index=True)
    path = bwprof.save_proof_bundle(data)
    assert len(bwprof.load(path)) == 4
    assert bwprof.save_proof_bundle(data.iloc[:2]).name == "a", "the run that all of them have"


def test_a_run_without_bandwidth_has_no_picture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bwprof.plot.bars.save", DRAW)
    failed = frame.from_rows([row("x", "fp16", gb_s=None, status="failed")])
    path = bwprof.save_proof_bundle(failed, "none")
    assert not list(path.glob("*.png"))
    assert bwprof.load(path / "bandwidth_report.json")["status"].tolist() == ["failed"]


def test_the_commit_is_that_of_the_working_directory(folder: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    path = report().save_to_proof_bundle("run")
    assert json.loads((path.parent / "metadata.json").read_text())["git_commit"] == commit


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gemm", "--proof-bundle", "kv_copy"], "--proof-bundle kv_copy would be a folder: put operations before"),
        (["gemm", "--proof-bundle", "file/x"], "cannot be written: Not a directory"),
        (["gemm", "--proof-bundle", ""], "--proof-bundle is ''"),
        (["gemm", "--classic-csv", ""], "--classic-csv is ''"),
        (["gemm", "--classic-csv", "file"], "file exists already: name another file, or replace it with --force"),
        (["gemm", "--classic-csv", "no/x.csv"], "--classic-csv no/x.csv"),
        (["gemm", "--trace", "folder"], "--trace folder is a folder"),
        (["gemm", "--prometheus", "folder/"], "--prometheus folder is a folder"),
        (["gemm", "--trace", "dangling"], "--trace dangling"),
        (
            ["gemm", "--classic-csv", "-", "--csv", "-"],
            "--csv - and --classic-csv - cannot both have the standard output",
        ),
        (["gemm", "--classic-csv", "a.csv", "--csv", "a.csv"], "a.csv cannot be both"),
    ],
)
def test_impossible_outputs_are_refused_before_measuring(
    arguments: list[str], words: str, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("something")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("no/such")
    code, out, err = here(*arguments, *TINY)
    assert (code, out) == (2, "")
    assert words in err
    assert (tmp_path / "file").read_text() == "something"
    assert not list(tmp_path.glob("bwprof-results/*"))


def interrupted_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt before the case of this number is measured."""
    real = executors.LocalExecutor.measure
    count = iter(range(1000))

    def measure(self: executors.LocalExecutor, *argument: Any) -> Any:
        if next(count) == number:
            raise KeyboardInterrupt
        return real(self, *argument)

    monkeypatch.setattr(executors.LocalExecutor, "measure", measure)


def test_an_interrupted_run_writes_finished_rows_and_resume_adds_the_rest(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupted_at(3, patch)
        others = ["--proof-bundle=proof", "--classic-csv", "old.csv"]
        assert here("gemm", *TINY, "-p", "M=1,2,4", *others)[0] == 130
    run = run_folder(tmp_path)
    bundle = tmp_path / "proof" / run.name
    assert len(bwprof.load(bundle / "bandwidth_report.json")) == len(bwprof.load("old.csv")) == 3
    report(case="mine").save_to_proof_bundle(run.name, "proof")
    code, _, err = here("--resume", str(run), "--proof-bundle=proof", "--classic-csv", "old.csv")
    assert (code, "old.csv exists already" in err) == (2, True)
    assert here("--resume", str(run), *others, "--force")[0] == 0
    found = bwprof.load(bundle / "bandwidth_report.json")
    assert len(found) == 7
    assert found["case"].tolist().count("mine") == 1
    assert len(bwprof.load("old.csv")) == 6
    assert json.loads((bundle / "metadata.json").read_text())["status"] == "complete"


def test_a_full_disk_at_the_end_loses_no_row(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = here("gemm", *TINY, "--classic-csv", "/dev/full")
    assert code == 3
    assert "/dev/full: " in err

    def full(path: Path, *_arguments: Any, **_more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(proof, "atomic_write", full)
    code, out, err = here("gemm", *TINY, "--proof-bundle", "proof")
    assert code == 3
    assert "bandwidth_report.json" in err or "metadata.json" in err
    assert os.strerror(errno.ENOSPC) in err
    assert "gemm" in out, "the summary is printed"


# ---- the nine classic columns ----

# The requirement's own example.
CLASSIC = """\
operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written
decode_gemm,FP32,1,896,896,0.00298333,1078.8,3214848,3584
decode_gemm,FP16,1,896,896,0.00243265,661.509,1607424,1792
kv_append,FP16,,,,0.00170102,616.439,524288,524288
"""


def classic_frame() -> pd.DataFrame:
    """Return rows whose classic columns are `CLASSIC`, beside rows without results."""
    lines = [
        ("gemm", "decode_gemm", "fp32", 1, 896, 896, 0.00298333, 1078.8, 3214848, 3584),
        ("gemm", "decode_gemm", "fp16", 1, 896, 896, 0.00243265, 661.509, 1607424, 1792),
        ("kv_append", "kv_append", "fp16", None, None, None, 0.00170102, 616.439, 524288, 524288),
    ]
    names = ("operation", "case", "precision", "M", "N", "K", *SIX[2:])
    rows = [row("", "") | dict(zip(names, line, strict=True)) for line in lines]
    others = [row(status, "fp16", status=status, gb_s=None) for status in ("failed", "skipped")]
    predicted = row("predicted", "fp16", status="predicted")
    return frame.from_rows([*rows[:2], *others, rows[2], predicted])


def test_the_classic_columns_are_those_of_the_requirement(tmp_path: Path) -> None:
    path = bwprof.save(classic_frame(), tmp_path / "old.csv", classic=True)
    assert path.read_text() == CLASSIC
    found = bwprof.load(path)
    assert found["operation"].tolist() == ["decode_gemm", "decode_gemm", "kv_append"]
    assert found["precision"].tolist() == ["fp32", "fp16", "fp16"]


def test_classic_columns_are_csv_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.csv"):
        bwprof.save(classic_frame(), tmp_path / "old.json", classic=True)
    with pytest.raises(TypeError, match="classic is 'yes'"):
        bwprof.save(classic_frame(), tmp_path / "old.csv", classic="yes")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_classic_columns_to_standard_output(here: Here) -> None:
    code, out, err = here("gemm", "kv_append", *TINY, "--classic-csv", "-")
    assert code == 0
    lines = list(csv.reader(io.StringIO(out)))
    assert lines[0] == [*SIX[:2], "M", "N", "K", *SIX[2:]]
    assert [line[:5] for line in lines[1:]] == [
        ["gemm N=16 K=16", "FP32", "1", "16", "16"],
        ["gemm N=16 K=16", "FP16", "1", "16", "16"],
        ["kv_append", "FP32", "", "", ""],
        ["kv_append", "FP16", "", "", ""],
    ]
    assert "limiter" in err, "the summary makes room"
