"""Files of results with any value in any column: numbers that are none, words that nobody knows; every reader copes."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from past import started

import bwprof
from bwprof.cli import main
from bwprof.results import frame, schema

NUMBERS = (-0.0, 0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf, -1, 1e99, 1e-99, 2**62, "")
WORDS = ("network", "=1+1", "\x1b[31mred\x9b\u202e", "", "a;b;;c", "nan", "{}", "%s", "x" * 300)
REFUSED = ("soon", [1], {"a": 1}, True, 10**400, "1e9 B")
CENTRAL = tuple("time_ms bandwidth_gb_s measured_tflops attainable_gb_s peak_gb_s pct_limit".split())
READERS = (
    *(
        "report {file}",
        "report --checklist {file}",
        "report {file} -o {out}.html --force",
        "report {file} -o {out}.md --force",
    ),
    *(
        "show --view all {file}",
        "show --view roofline {file}",
        "analyze {file}",
        "analyze --json {file}",
        "analyze --md {file}",
    ),
    *("diagnose {file}", "outliers {file}", "outliers --csv {file}", "compare {good} {file}", "compare {file} {good}"),
    *(
        "compare {good} {file} --json -",
        "compare {good} {file} --md -",
        "compare {good} {file} --csv -",
    ),
    *("history --folder {folder}", "history --folder {folder} --csv", "history * --folder {folder}"),
    "predict gemm -p M=1,128 --device H200 --efficiency {file}",
)
PICTURES = ("comparison", "comparison --panels", "roofline", "lines", "heatmap", "speedup", "compare {good}")


@cache
def good() -> list[dict[str, Any]]:
    """Rows of several operations, each in two precisions, with all that a device tells of them."""
    data = bwprof.load_example("h200")
    chosen = data["case"].isin(["decode_gemm", "prefill_gemm", "stream_read", "prefill_attention"])
    return frame.to_rows(data[chosen & data["precision"].isin(["fp32", "fp16"])])


def spoilt(kinds: Iterable[str], values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """For each column of these kinds two rows that have some of the values there, by turns."""
    place, turns = 0, cycle(values)
    for column in schema.all_columns():
        for value in islice(turns, 2) if column.kind in kinds and column.name != "schema_version" else ():
            whole = column.kind != "integer" or isinstance(value, int) or value == ""
            cell = value if whole and (value or column.name != "operation") else -1
            yield {**good()[place % len(good())], column.name: cell, "timestamp": started(1 + place % 28)}
            place += 1


def write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    document = {"format": "bwprof-results", "schema_version": 1, "run": {"run_id": "r", "status": "complete"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document | {"rows": list(rows)}))
    return path


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hostile")
    sweep = [row | {"M": m, "N": n} for m in (1, 2, 4) for n in (64, 128) for row in good()[2:4]]
    numbers, words = list(spoilt(("number", "integer"), NUMBERS)), list(spoilt(("text",), WORDS))
    return {
        "out": folder / "made",
        "folder": folder / "runs",
        "good": write(folder / "good.json", good()),
        "numbers": write(folder / "runs" / "numbers" / "results.json", numbers),
        "words": write(folder / "runs" / "words" / "results.json", words),
        "few numbers": write(folder / "few numbers.json", [*sweep, *numbers[::11]]),
        "few words": write(folder / "few words.json", [*sweep, *words[::7]]),
    }


def read(places: dict[str, Path], words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints that may not fail."""
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        code = main([word.format(**places) for word in words])
    out, err = capsys.readouterr()
    refused = words[0] == "predict" and "error: " in err  # of several devices, of a batch of none
    assert (code, "Traceback" in err) == (2 * refused, False), err[-300:]
    assert not set("\x1b\x9b\u202e") & set(out + err) or {"--csv", "csv", "--json", "json"} & set(words)
    return out + err


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("kind", ["numbers", "words"])
def test_commands_read_any_cell(
    places: dict[str, Path], capsys: pytest.CaptureFixture[str], kind: str, command: str
) -> None:
    read(places | {"file": places[kind]}, command.split(), capsys)


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("kind", ["few numbers", "few words"])
def test_pictures_take_any_cell(
    places: dict[str, Path], capsys: pytest.CaptureFixture[str], kind: str, picture: str
) -> None:
    read(places, ["plot", *picture.split(), str(places[kind]), "-o", f"{places['out']}.svg", "--force"], capsys)


@pytest.mark.parametrize("name", CENTRAL)
@pytest.mark.parametrize("value", [-0.0, 1e308, math.nan, -1, 5e-324])
def test_functions_take_a_column_of_it(name: str, value: float) -> None:
    """Of a file, and of a frame that nobody has read."""
    data = frame.from_rows(good()).astype({name: "float64"})
    data[name] = value
    for given in (data, frame.from_rows(row | {name: None} for row in good())):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            for function in (bwprof.summary, bwprof.view, bwprof.diagnose):
                assert isinstance(function(given), pd.DataFrame)


@pytest.mark.parametrize("name", ["time_ms", "measured_tflops", "peak_gb_s", "bandwidth_gb_s"])
@pytest.mark.parametrize("value", [-0.0, 0, 1e308, 5e-324, math.nan, math.inf, -1])
def test_an_impossible_measurement_is_unknown(tmp_path: Path, name: str, value: float) -> None:
    rows = [row | {name: value} for row in good()]
    for given in (bwprof.load(write(tmp_path / "a.json", rows)), frame.from_rows(rows)):
        assert given[name].isna().all()
        assert {row[name] for row in bwprof.rows(given.assign(**{name: value}))} == {None}


@pytest.mark.parametrize("value", REFUSED, ids=str)
@pytest.mark.parametrize("name", ["time_ms", "power_w"])
def test_non_numbers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: Any) -> None:
    path = write(tmp_path / "a.json", [good()[0] | {name: value}])
    assert main(["show", str(path)]) == 2
    assert f"column {name}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["limiter", "bound", "status", "variant", "flags"])
@pytest.mark.parametrize("command", ["show --view all", "report", "analyze"])
def test_an_unknown_word_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, command: str) -> None:
    rows = [row | {name: "network", "pct_limit": 40.0} for row in good()]
    path = write(tmp_path / "a.json", rows)
    text = read({}, [*command.split(), str(path)], capsys)
    unnamed = {("analyze", "bound"), ("report", "bound"), ("analyze", "variant"), ("analyze", "limiter")}
    assert "network" in text or (command, name) in unnamed, "which names neither, or its own limiter"


@pytest.mark.parametrize("name", schema.column_names())
def test_every_file_is_written_and_read_again(tmp_path: Path, name: str) -> None:
    kind = schema.column_kinds()[name]
    values = NUMBERS if kind == "number" else WORDS if kind == "text" and name != "operation" else ()
    rows = [good()[0] | {name: value} for value in values]
    data = frame.from_rows(rows or good())
    for path in (tmp_path / "a.json", tmp_path / "a.csv"):
        again = bwprof.load(bwprof.save(data, path))
        assert len(again) == len(data)
        if kind == "number":
            assert again[name].tolist() == pytest.approx(data[name].tolist(), nan_ok=True)
