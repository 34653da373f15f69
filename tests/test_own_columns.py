"""Own columns with several values: every reader and every file has them as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import pair, row

import bwprof
from bwprof.cli import main
from bwprof.results import csv_file, frame, json_file

SEVERAL = {
    "list": [64, "x"],
    "object": {"tile": [64, 64]},
    "empty": [],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return rows of each case and precision that differ only in such a column, of enough shapes for every picture."""
    rows = []
    for number in range(6):
        for held in ([number], {"tile": number}):
            made = pair("c", 990.0, 980.0, attainable_gb_s=1e3, peak_gb_s=2e3, flops=7, M=1 << number % 3)
            rows += [one | {"mine": held, "run_id": "r"} for one in made]
    path = tmp_path_factory.mktemp("own") / "run.json"
    document = json.loads(json_file.json_text(rows, [None] * len(rows), {}))
    for place, one in enumerate(document["rows"]):
        one["mine"] = rows[place]["mine"]  # as another program writes it
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "command",
    ["analyze", "diagnose", "report", "report --checklist", "show --view all", "outliers", "compare {0}", "plot lines"],
)
def test_commands(run: Path, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.format(run).split()
    drawn = ["-o", str(tmp_path / "a.svg")] if "plot" in words else []
    assert main([*words, str(run), *drawn]) == 0
    assert "Error" not in capsys.readouterr().err


@pytest.mark.parametrize("held", SEVERAL.values(), ids=list(SEVERAL))
def test_own_columns_are_the_same_in_every_file(held: Any, tmp_path: Path) -> None:
    made = bwprof.frame([row("a", "fp32", mine=held)])
    texts = {json.dumps(held)}
    for name in ("a.csv", "a.json"):
        texts.add(bwprof.load(bwprof.save(made, tmp_path / name))["mine"][0])
    assert texts == {made["mine"][0]}


def test_infinities_and_nan_in_json() -> None:
    own: dict[Any, Any] = {(1, 2): np.arange(2)}
    itself: list[Any] = []
    itself.append(itself)
    told = bwprof.frame([row("a", "fp32", array=np.arange(3), keys=own, itself=itself, tuple=(1,), some={1})])
    assert told[["array", "keys", "itself", "tuple", "some"]].iloc[0].tolist() == [
        "[0, 1, 2]",
        "{(1, 2): array([0, 1])}",
        "[[...]]",
        "[1]",
        '"{1}"',
    ]


def test_deep_values_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match=r"a list.*nested"):
        bwprof.frame([row("a", "fp32", mine=deep)])
    while deep:  # piece by piece: letting go of all at once may go too deep, too
        deep = deep[0]


def test_a_csv_line_and_a_frame_have_the_same_text() -> None:
    made = row("a", "fp32", mine=[1, "b"])
    assert csv_file.row_line(made, ["mine"]).rstrip().endswith('"[1, ""b""]"')
    assert frame.to_rows(frame.from_rows([made]))[0]["mine"] == '[1, "b"]'
