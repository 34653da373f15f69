"""Words of others: spelled where they are printed, no formulas where they are written as CSV, never obeyed."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from past import timed, write
from rows import pair

import bwprof
from bwprof.cli import main
from bwprof.experiments.ab_run import COLUMNS, ABTable
from bwprof.importers import frames
from bwprof.results import csv_file, frame

FORMULAS = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")
OBEYED = ("\x1b]0;title\x07", "\x1b[31m", "\x9b31m", "\u202e", "\x07")


def cells(text: str) -> list[str]:
    return [cell for line in csv.reader(io.StringIO(text)) for cell in line]


def assert_no_formula(text: str) -> None:
    assert [cell for cell in cells(text) if cell[:1] in "=+@\t\r" and cell] == []
    assert [cell for cell in cells(text) if cell[:1] == "-" and not cell[1:2].isdigit() and cell != "-inf"] == []


@pytest.fixture(params=FORMULAS)
def formula(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(tmp_path: Path, formula: str) -> Path:
    """A run whose cases, labels and their names are formulas."""
    rows = [timed(f"{formula}{one}", "fp32", 1.0, **{formula: formula}, variant=formula) for one in ("a", "b")]
    return write(tmp_path / "runs", 1, rows)


def test_files_of_rows_have_no_formula(tmp_path: Path, run: Path, formula: str) -> None:
    data = bwprof.load(run)
    for path in (bwprof.save(data, tmp_path / "a.csv"), bwprof.save(data, tmp_path / "b.csv", classic=True)):
        assert_no_formula(path.read_text())
    again = bwprof.load(tmp_path / "a.csv")
    assert list(again.columns) == list(data.columns)
    assert again["case"].tolist() == data["case"].tolist()


@pytest.mark.parametrize(
    "command", ["compare {run} {run} --csv -", "history --folder {runs} --csv", "outliers {run} --csv"]
)
def test_tables_have_no_formula(run: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(command.format(run=run, runs=run.parent).split()) == 0
    out = capsys.readouterr().out
    assert "a" in out
    assert_no_formula(out)


def test_other_writers_have_no_formula(formula: str) -> None:
    made = pd.DataFrame({formula: [formula], "kernel": [formula], "kind": pd.Categorical([formula]), "x": [-1.5]})
    for text in (frame.format_csv(made), frames.to_csv(made)):
        assert_no_formula(text)
        assert cells(text)[-1] == "-1.5", "a number stays one"
    table = ABTable({})
    table.rows.append(dict.fromkeys(COLUMNS, 0) | {"case": formula, "a": formula})
    assert_no_formula(table.csv_text())


def test_names_are_whole_in_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    rows = [one for word in OBEYED for one in pair(f"a{word}b", 990.0, 980.0, variant=word, device="".join(OBEYED))]
    bwprof.save(frame.from_rows(rows), path)
    commands = (
        ["plot", "comparison", str(path), "-o", str(tmp_path / "x.svg")],
        ["compare", str(path), str(path)],
        ["show", str(path)],
        ["compare", str(path), str(path), "--md", "-"],
        ["analyze", "--md", str(path)],
    )
    code = "import json, sys; from bwprof.cli import main; sys.exit(sum(map(main, json.loads(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"MPLBACKEND": "agg"},
    )
    assert done.returncode == 0, done.stderr
    assert [word for word in OBEYED if word.encode("unicode_escape").decode() not in done.stdout] == []
    assert not set("\x1b\x9b\x07\u202e") & set(done.stdout + done.stderr)


def test_data_in_a_pipe_are_not_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, 1, [timed("a\x9bb", "fp32", 1.0)])
    assert main(["history", "--folder", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["case"] == "a\x9bb"
    assert (
        csv_file.parse_csv(bwprof.save(bwprof.load(folder), tmp_path / "a.csv").read_text(), "a")[0]["case"] == "a\x9bb"
    )
