"""`bwprof analyze`, `bwprof report --checklist`, and what a sweep says at its end."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from rows import pair, row
from words import numbers

import bwprof
from bwprof.analysis.answer import Answer, group_strengths
from bwprof.cli import main
from bwprof.cli.commands.results import print_answer
from bwprof.results import frame
from bwprof.text.document import format_markdown_table, make_frame_table

ROOFS = {"attainable_gb_s": 1000.0, "flops": 0, "bound": "memory"}


def rows() -> list[dict[str, Any]]:
    """A case at its roof in both precisions, one whose FP16 is slow, one that failed."""
    return [
        *pair("roof", 990.0, 980.0, **ROOFS),
        *pair("slow", 950.0, 300.0, traffic_ratio=1.5, **ROOFS),
        row("broken", "fp16", gb_s=None, status="failed", reason="wrong result", **ROOFS),
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return bwprof.save(frame.from_rows(rows()), tmp_path / "run.json")


def analyze(*arguments: object) -> int:
    return main(["analyze", *map(str, arguments)])


def test_the_answer_first(run: Path, capsys: pytest.CaptureFixture[str], snapshot: Callable[..., None]) -> None:
    assert analyze(run) == 0
    out = capsys.readouterr().out
    # 10 kB and 5 kB at these rates take 42.4 ns, of which the slow one takes 16.7 and loses 70 %.
    assert numbers(out.partition("\n\n")[0])[:6] == [4, 3, 1, 90, 3, 12.4]
    snapshot(out)
    assert max(map(len, out.splitlines())) <= 120


def test_predicted_rows_are_no_bottlenecks_beside_measured_ones() -> None:
    """A model in three formats: an operation that was measured once, and one that only FP16 has a kernel for."""
    step = {"model": "m", "phase": "decode", "step_batch": 1, "context": 10, "kv": "fp16", "count": 2}
    cache = {**row("cache", "fp16", gb_s=300.0, **ROOFS), **step}
    product = {**row("product", "fp16", gb_s=500.0, **ROOFS), **step}
    guessed = [
        {**product, "precision": name, "bandwidth_gb_s": 100.0, "status": "predicted", "weights": name}
        for name in ("fp8_e4m3", "q4_0")
    ]
    copies = [{**cache, "weights": name} for name in ("fp16", "fp8_e4m3", "q4_0")]
    found = Answer(frame.from_rows([copies[0], {**product, "weights": "fp16"}, *copies[1:], *guessed]))
    assert found.utilization()["Kernel"].tolist() == ["cache fp16", "product fp16"]
    assert sorted(finding.label for finding in found.findings) == ["cache fp16", "product fp16"]
    assert "Limits of 2 measurements" in found.lines()[0]
    assert re.search("left out: 4 rows", found.lines()[-1])
    assert Answer(frame.from_rows(guessed)).utilization()["Kernel"].tolist() == ["product fp8_e4m3", "product q4_0"]


def test_the_number_of_bottlenecks(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(run, "--top", "1") == 0
    assert capsys.readouterr().out.count("impact:") == 1


def test_as_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(run, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["summary", "cliffs", "utilization", "strengths", "bottlenecks", "improvement"]
    assert found["bottlenecks"][0]["Kernel"] == "slow fp16"
    assert found["improvement"][1]["Time speed-up"] == "0.63x"
    assert analyze(run, "--json", "--checklist") == 0
    assert len(json.loads(capsys.readouterr().out)["checklist"]) == 16


def test_as_markdown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(run, "--md", "--checklist") == 0
    out = capsys.readouterr().out
    rows_of = [line.strip("| ").split(" | ") for line in out.splitlines()]
    assert ["Priority", "Kernel", "Issue", "Impact", "Fix", "Expected gain", "Evidence"] in rows_of
    assert ["slow", "950", "300", "0.32x", "2.00x", "0.63x"] in rows_of
    assert out.count("\n| Memory | ") == 4


@pytest.mark.parametrize("form", [[], ["--md"]])
def test_without_a_peak_utilization_is_a_line(
    tmp_path: Path, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = [{**one, "peak_gb_s": None} for one in rows()]
    path = bwprof.save(frame.from_rows(unknown), tmp_path / "run.json")
    assert analyze(path, *form) == 0
    out = capsys.readouterr().out
    assert "Utilization" in out
    assert "Status" not in out
    assert analyze(path, "--peak", "1000", *form) == 0
    out = capsys.readouterr().out
    assert "Status" in out


def test_classic_columns_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.csv"
    header = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"
    lines = ["a,FP32,1,896,896,0.00298333,1078.8,3214848,3584", "a,FP16,1,896,896,0.00243265,661.509,1607424,1792"]
    path.write_text("\n".join([header, *lines, "a,BF16,,,,0,inf,1,1"]) + "\n")
    assert analyze(path, "--peak", "4814.3") == 0
    out = capsys.readouterr().out
    assert out.startswith("Limits of 2 measurements")
    assert ["a fp32", "1079 GB/s", "22.4 %", "poor"] in [re.split(r" *\| *", line.strip()) for line in out.splitlines()]
    assert "\nBottlenecks: none" in out
    assert "0.61x" in out


def test_a_peak_gives_limits_for_classic_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1000 GB/s: 95 and 47.5 % in FP32 and FP16 of one, 40 % of the other; 60 % and more is memory's."""
    path = tmp_path / "old.csv"
    named = [*pair("near", 950.0, 475.0), row("far", "fp32", gb_s=400.0)]
    bwprof.save(frame.from_rows(named), path, classic=True)
    assert analyze(path, "--peak", "1000", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert numbers(found["summary"][0]) == [3, 1, 2, 60, 90, 1]
    assert found["bottlenecks"][0]["Evidence"].startswith("95 % ")
    assert "limiter memory" in found["bottlenecks"][0]["Evidence"]
    assert [line["Utilization"] for line in found["utilization"]] == ["95.0 %", "47.5 %", "40.0 %"]


def test_the_table_of_utilization_comes_last(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, titles in (
        ([], ["Limits of 4 measurements", "\nBottlenecks", "\nStrengths", "\nWhat fewer bits gain", "\nUtilization"]),
        (
            ["--md"],
            ["# What", "## Bottlenecks", "## Strengths", "## What fewer bits gain", "About 1x", "## Utilization"],
        ),
    ):
        assert analyze(bwprof.save(bwprof.load(run).assign(peak_gb_s=1000.0), run), *form) == 0
        out = capsys.readouterr().out
        assert sorted(titles, key=out.index) == titles


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--top", "0"], "--top is 0: a whole number from 1 is needed"),
        (["--top", "many"], "--top: 'many' is not a whole number"),
        (["--peak", "fast"], "--peak is 'fast': a bandwidth in GB/s is needed"),
        (["--peak", "-1"], "--peak is '-1'"),
        (["--peak", "1e-300"], "--peak is '1e-300'"),
        (["--peak", "1e308"], "--peak is '1e308'"),
        (["--json", "--md"], "not allowed with argument"),
    ],
)
def test_bad_options(run: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(run, *arguments) == 2
    assert said in capsys.readouterr().err


def test_no_such_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(tmp_path / "none.json") == 2
    assert "no such file" in capsys.readouterr().err


def test_checklist(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--checklist"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n    unknown ") + out.count("\n    fail ") + out.count("\n    pass ") == 16
    assert re.search(r"fail\s+shared.*1\.1.*: 0 of 2", out)
    assert analyze(run, "--checklist") == 0
    assert "Checklist" in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_the_terminal(width: int) -> None:
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_answer(rows(), Path("bwprof-results/20260101-000000-abcdef12"), screen)
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    assert ("memory 3, kernel 1" in lines[0], numbers(lines[0])) == (True, [3, 1, 4])
    assert "slow fp16" in lines[1]
    if width == 120:
        assert len(lines) <= 4
        assert lines[-1] == "more: bwprof analyze bwprof-results/20260101-000000-abcdef12"


@pytest.mark.parametrize(
    "some",
    [
        [],
        [row("a", "fp16")],  # no roof
        [row("a", "fp16", gb_s=None, status="failed")],
        [row("a", "fp16", cache="hot", **ROOFS)],
    ],
)
def test_a_sweep_without_limits_prints_no_answer(some: list[dict[str, Any]]) -> None:
    screen = Console(file=io.StringIO(), width=80)
    print_answer(some, Path("run"), screen)
    assert screen.file.getvalue() == ""  # type: ignore[attr-defined]


def test_an_answer_without_rows() -> None:
    assert Answer(pd.DataFrame()).lines() == ["There are no measurements."]
    assert re.match(r"No time .*failed 1;.*wr", Answer(frame.from_rows(rows()[-1:])).lines()[0])
    failed = [row(name, "fp16", status="failed", reason="out of memory") | {"time_ms": None} for name in "abc"]
    (line,) = Answer(frame.from_rows(failed)).lines()
    assert (numbers(line), "out of memory" in line) == ([3, 3], True)
    assert Answer(pd.DataFrame()).to_dict(with_checklist=True)["bottlenecks"] == []


def test_the_answer_names_the_gain(snapshot: Callable[..., None]) -> None:
    sizes = bwprof.cost("gemm", precision="fp16", M=1, N=896, K=896)
    moved = {"bytes_read": sizes.bytes_read, "bytes_written": sizes.bytes_written}
    half = row("a", "fp16", gb_s=950.0, backend="cuda", **moved, **ROOFS)
    snapshot("\n".join(Answer(frame.from_rows([half])).lines()))


@pytest.mark.parametrize(
    ("flags", "verified", "said"),
    [
        (["", ""], [True, True], "results verified: 2 of 2; rows with warnings: 0."),
        (
            ["noisy", "noisy;throttled"],
            [True, True],
            "results verified: 2 of 2; rows with warnings: 2 (noisy, throttled).",
        ),
        (["noisy", ""], [True, None], "results verified: 1 of 2; rows with warnings: 1 (noisy)."),
        (["", ""], [None, None], "results verified: 0 of 2; rows with warnings: 0."),
    ],
)
def test_confidence_of_the_answer(flags: list[str], verified: list[bool | None], said: str) -> None:
    held = [row(f"c{n}", "fp16", gb_s=950.0, flags=flags[n], verified=verified[n], **ROOFS) for n in range(2)]
    assert said in Answer(frame.from_rows(held)).lines()[-1]
    guessed = Answer(frame.from_rows([one | {"status": "predicted"} for one in held])).lines()
    assert "all predicted" in guessed[-1]
    assert guessed[0].startswith("Limits of 2 predictions")
    assert numbers(guessed[0])[1:] == [2, 90, 2]
    slow = [one | {"status": "predicted", "bandwidth_gb_s": 600.0, "time_ms": 1.5 * one["time_ms"]} for one in held]
    assert numbers(Answer(frame.from_rows(slow)).lines()[0])[-2:] == [90, 0]


def test_predicted_rows_are_no_strengths() -> None:
    held = row("a", "fp16", gb_s=950.0, **ROOFS)
    assert Answer(frame.from_rows([held])).strengths()["Strength"].tolist() == ["at the memory roof"]
    guessed = Answer(frame.from_rows([held | {"status": "predicted"}]))
    assert len(guessed.strengths()) == 0
    assert guessed.utilization().columns[1] == "Predicted BW"


def test_counts_use_singular_and_plural() -> None:
    near, far = (row(name, "fp16", gb_s=speed, **ROOFS) for name, speed in (("a", 950.0), ("b", 300.0)))
    open_ = row("c", "fp16", gb_s=950.0)
    failed = row("d", "fp16", status="failed") | {"time_ms": None}
    skipped = failed | {"case": "e", "status": "skipped"}
    said = Answer(frame.from_rows([near, near, open_, failed, skipped])).lines()
    assert (numbers(said[0]), "not known 1." in said[0]) == ([3, 2, 1, 90, 2], True)
    assert said[-1].endswith("failed: 1; skipped: 1.")
    for some, count in (([far], 0), ([far, far], 0), ([near, far], 1)):
        assert numbers(Answer(frame.from_rows(some)).lines()[0])[-2:] == [90, count]


def test_rows_above_their_roof_are_counted_apart() -> None:
    """It is counted apart, with the flag and, in a file that has none, without."""
    near = row("a", "fp16", gb_s=950.0, peak_gb_s=1100.0, **ROOFS)
    beyond = row("b", "fp16", gb_s=1300.0, peak_gb_s=1100.0, pct_attainable=130.0, **ROOFS)
    for flags in ("above_attainable", ""):
        answer = Answer(frame.from_rows([near, {**beyond, "flags": flags}]))
        assert numbers(answer.lines()[0])[-3:] == [90, 1, 1]
        assert "above_attainable" in answer.lines()[0]
        assert answer.utilization()["Status"].tolist() == ["excellent", "impossible"]
        assert numbers(Answer(frame.from_rows([{**beyond, "flags": flags}] * 2)).lines()[0])[-3:] == [90, 0, 2]


def test_strengths_in_few_lines() -> None:
    data = frame.from_rows([*pair("a b", 990.0, 980.0, **ROOFS), *pair("c", 990.0, 100.0, **ROOFS)])
    (line,) = group_strengths(data)
    assert line.endswith("a b, c (fp32)")


def test_markdown_cells() -> None:
    table = make_frame_table(pd.DataFrame({"a|b": ["x|y", None]}))
    assert format_markdown_table(table).splitlines() == ["| a\\|b |", "|---|", "| x\\|y |", "| - |"]
    assert format_markdown_table(make_frame_table(pd.DataFrame({"a": []}))) == ""


@pytest.mark.parametrize("form", ["--json", "--md"])
def test_data_for_a_closed_stream(run: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bwprof.cli.guard.is_closed", lambda _stream: True)
    assert analyze(run, form) == 2
