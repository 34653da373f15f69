"""Going on with a run, and the folder of a new one: nothing that stands there already is lost."""

from __future__ import annotations

import errno
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rows import load_samples, row, write_json

import bwprof
from bwprof import environment, registry
from bwprof.cli import output
from bwprof.cli import runner as command
from bwprof.cli.commands.sweep import main_sweep
from bwprof.measuring.operation import Spec
from bwprof.results import csv_file, reader, schema
from bwprof.results.atomic import Claim
from bwprof.roofs.model import Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import loop
from bwprof.runs.executors import LocalExecutor
from bwprof.runs.metadata import find_remaining

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ["gemm", "-p", "M=1,2,3", "-p", "N=8", "-p", "K=8", "--precision", "fp32", "--cache", "hot", "--backend", "cpu"]


class Here(LocalExecutor):
    """What the command's child process does, without a process; no roofs."""

    def __init__(self, backend: str, index: int, _interrupts: object, **_: object) -> None:
        super().__init__(backend, index)

    def obtain_roofs(self, wanted: RoofRequest, deadline: float | None) -> Roofs | None:  # noqa: ARG002
        return None


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ChildExecutor", Here)
    monkeypatch.setattr(loop, "DEFAULT_CASE_SECONDS", 0.05)


def spec(m: int, variant: str | None = None, **more: Any) -> Spec:
    params = registry.complete_params("gemm", "fp32", {"M": m, "N": 896, "K": 896})
    return Spec("a", "gemm", "fp32", params, more.pop("kv_lens", None), variant, "cold", 0, **more)


def of(m: int, **more: Any) -> dict[str, Any]:
    return {**row("a", "fp32"), "M": m, **more}


# ---- which rows and which cases ----


def test_finished_rows_stand_for_their_cases() -> None:
    rows = [of(2), of(1, status="skipped", reason="too big"), of(3, status="failed")]
    remaining, missing, strangers = find_remaining([spec(m) for m in (1, 2, 3, 4)], rows)
    assert (remaining, [found.params["M"] for found in missing], strangers) == ([0, 1], [3, 4], 0)


def test_a_row_that_ran_out_of_time_is_measured_again() -> None:
    rows = [of(1, status="skipped", reason="the 3 s of --max-total-seconds were over")]
    assert find_remaining([spec(1)], rows) == ([], [spec(1)], 0)


def test_cases_that_name_their_variant_choose_first() -> None:
    rows = [of(1, variant="blocked"), of(1, variant="naive")]
    specs = [spec(1), spec(1, "blocked"), spec(1, "vector")]
    assert find_remaining(specs, rows) == ([0, 1], [spec(1, "vector")], 0)
    assert find_remaining([spec(1)], rows[1:]) == ([0], [], 0)


@pytest.mark.parametrize(
    "change",
    [
        {"M": 7},
        {"K": 8},
        {"case": "b"},
        {"seed": 1},
        {"cache": "hot"},
        {"precision": "fp16"},
        {"operation": "nothing that there is"},
        {"kv_lens": "1;2"},
        {"status": "failed", "case": "b"},
    ],
)
def test_rows_of_no_case_stay(change: dict[str, Any]) -> None:
    """Of an older plan, another version, another tool: finished or not, nobody measures them again."""
    assert find_remaining([spec(1)], [of(1, **change), of(1)]) == ([0, 1], [], 1)


def test_a_second_row_of_one_case_stays() -> None:
    assert find_remaining([spec(1)], [of(1), of(1)]) == ([0, 1], [], 1)


def test_cases_of_many_lengths() -> None:
    """The row's text of them was cut."""
    lens = tuple(range(20_000))
    found = dict(spec(1).params)
    one = Spec("a", "gemm", "fp32", found, lens, None, "cold", 0)
    other = Spec("a", "gemm", "fp32", found, (*lens[:-1], 7), None, "cold", 0)
    described = schema.normalize_row(of(1, kv_lens=";".join(map(str, lens))))
    assert find_remaining([one, other], [described]) == ([0], [other], 0)


# ---- the command ----


def resumable(folder: Path, rows: list[dict[str, Any]], plan: list[Spec]) -> None:
    run = {"run_id": "run-1", "backend": "cpu", "device_index": 0, "device": "x", "plan": [s.to_dict() for s in plan]}
    folder.mkdir(parents=True)
    write_json(folder / reader.JSON_NAME, rows, [[1.0]] * len(rows), run)
    (folder / reader.CSV_NAME).write_text(csv_file.csv_text(rows))


def test_resuming_preserves_unknown_rows_and_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resumable(tmp_path / "run", [of(1), of(9), of(2, color="red")], [spec(1), spec(2)])
    assert main_sweep(["--resume", str(tmp_path / "run")]) == 0
    assert re.search(r"no case of.*: 1$", capsys.readouterr().err, re.MULTILINE)
    for path in (tmp_path / "run", tmp_path / "run" / reader.CSV_NAME):
        found = bwprof.load(path)
        assert found["M"].tolist() == [1, 9, 2]
        assert found["color"].tolist()[2] == "red"
    assert load_samples(tmp_path / "run") == [[1.0]] * 3


def test_a_link_to_a_file_of_the_run(tmp_path: Path) -> None:
    resumable(tmp_path / "run", [of(1)], [spec(1)])
    (tmp_path / "link").symlink_to(tmp_path / "run")
    again = ["--csv", str(tmp_path / "link" / reader.CSV_NAME), "--json", str(tmp_path / "link" / reader.JSON_NAME)]
    assert main_sweep(["--resume", str(tmp_path / "run"), *again]) == 0
    assert len(bwprof.load(tmp_path / "run" / reader.CSV_NAME)) == 1
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", [reader.CSV_NAME, reader.JSON_NAME])
def test_a_run_that_is_being_written_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    resumable(tmp_path / "run", [of(1)], [spec(1)])
    claim = Claim(tmp_path / "run" / name)
    assert main_sweep(["--resume", str(tmp_path / "run")]) == 2
    assert f"{name}: another bwprof" in capsys.readouterr().err
    claim.release()
    assert len(list((tmp_path / "run").iterdir())) == 2


def test_the_folder_of_one_run_is_resumed_where_the_run_is(tmp_path: Path) -> None:
    """`--output r` leaves its run in a folder of `r`: that one goes on, and nothing is put beside it."""
    resumable(tmp_path / "r" / "run", [of(1)], [spec(1), spec(2)])
    assert main_sweep(["--resume", str(tmp_path / "r")]) == 0
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["run"]
    assert bwprof.load(tmp_path / "r")["M"].tolist() == [1, 2]


def test_a_run_whose_json_is_damaged_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resumable(tmp_path / "run", [of(1)], [spec(1)])
    (tmp_path / "run" / reader.JSON_NAME).write_text('{"format"')
    assert main_sweep(["--resume", str(tmp_path / "run")]) == 2
    assert "it has no plan" in capsys.readouterr().err
    assert len(bwprof.load(tmp_path / "run")) == 1


def test_two_runs_of_one_id_have_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(["20260101-000000-aa", "20260101-000000-aa", "20260101-000000-bb"])
    monkeypatch.setattr(environment, "new_run_id", lambda: next(ids))
    parsed = main_sweep.parser().parse_args(["--output", str(tmp_path / "runs")])
    for wanted in ("20260101-000000-aa", "20260101-000000-bb"):
        run_id, made = output.new_targets(parsed)
        assert (run_id, made.folder) == (wanted, tmp_path / "runs" / wanted)
        assert made.files["csv"] == [tmp_path / "runs" / wanted / reader.CSV_NAME]


def test_run_ids_seldom_collide() -> None:
    """32 random bits: of 200 in one second no two are alike (all but one in 200 000 times)."""
    assert len({environment.new_run_id()[-8:] for _ in range(200)}) == 200


def test_an_output_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    parsed = main_sweep.parser().parse_args(["--output", str(tmp_path / "dangling")])
    with pytest.raises(ValueError, match="cannot be written"):
        output.new_targets(parsed)


def test_a_run_that_fails_takes_away_its_own_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, deadline: float | None = None) -> dict[str, Any]:
        (folder,) = tmp_path.iterdir()
        (folder / "notes.txt").write_text("mine")
        raise bwprof._core.UnavailableError("gone")

    monkeypatch.setattr(Here, "open", fail)
    assert main_sweep([*TINY, "--output", str(tmp_path)]) == 2
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


class Gone(io.StringIO):
    """A standard output whose reader goes after some rows, or before the document."""

    encoding = "utf-8"

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.left = lines

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize(("option", "lines", "rows"), [("--csv", 3, 3), ("--json", 0, 3), ("--csv", 1, 1)])
def test_rows_stay_when_the_reader_of_a_pipe_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    lines: int,
    rows: int,
) -> None:
    """Header and two rows get through; or the run is over before anything was read; or the header only."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Gone(lines))
        assert main_sweep([*TINY, option, "-", "--output", str(tmp_path)]) == 3
    (folder,) = tmp_path.iterdir()
    message = capsys.readouterr().err
    assert "Broken pipe" in message
    assert f"{rows} finished rows are kept" in message
    assert f"results are in {folder}" in message
    assert len(bwprof.load(folder)) == rows
    assert len(json.loads((folder / reader.JSON_NAME).read_text())["rows"]) == rows


def test_a_pipe_without_a_reader_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Gone(0))
        patched.setattr("bwprof.cli.guard._silence", lambda number: None)
        assert main_sweep([*TINY, "--csv", "-", "--output", str(tmp_path)]) == 141
    assert "Broken pipe" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "no folder without rows"
