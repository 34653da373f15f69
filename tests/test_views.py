"""Few columns of many: `bwprof.view`, and the commands that print them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from rich.console import Console
from rows import pair, row

import bwprof
from bwprof.analysis.summarize import VIEWS
from bwprof.cli import main
from bwprof.cli.render import print_view
from bwprof.results import frame, schema

if TYPE_CHECKING:
    from commands import Here

SHORT = ["case", "precision", "variant", "time_ms", "bandwidth_gb_s", "pct_limit", "limiter", "flags"]


@pytest.fixture
def rows() -> pd.DataFrame:
    """Three cases; one has a long name and long flags, one failed."""
    known = {"attainable_gb_s": 125.0, "timer_floor_us": 0.001}
    broken = row("broken", "fp16", gb_s=None, status="failed", reason="out of luck")
    long = row("a_very_long_name_of_a_case kv_len=32768", "fp8_e4m3", flags="near_timer_floor;noisy;throttled")
    return frame.from_rows([*pair("plain", 100.0, 80.0, **known), long, broken])


def test_the_short_view(rows: pd.DataFrame) -> None:
    found = bwprof.view(rows)
    assert list(found) == SHORT
    assert found["case"].tolist() == rows["case"].tolist()
    assert found["pct_limit"].tolist()[:2] == pytest.approx([80.0, 64.0]), "worked out: 100 and 80 of 125 GB/s"
    assert found["limiter"].tolist()[:2] == ["memory", "memory"]


def test_every_view_and_columns_of_ones_own(rows: pd.DataFrame) -> None:
    assert {"arithmetic_intensity", "ridge", "attainable_gb_s"} <= set(bwprof.view(rows, "roofline"))
    groups = {column.name: column.group for column in schema.all_columns()}
    counted = {name for name, group in groups.items() if group in ("counters", "metrics")}
    assert set(bwprof.view(rows, "counters")) == {"case", "precision", "variant"} | counted
    labeled = rows.assign(rack="r7")
    assert list(bwprof.view(labeled, "all")) == [*schema.column_names(), "rack"]
    assert list(bwprof.view(labeled, columns=["rack", "M"])) == ["rack", "M"]
    assert bwprof.view(labeled[2:], columns="rack").index.tolist() == [2, 3], "the frame's index"


def test_several_devices_have_a_column(rows: pd.DataFrame) -> None:
    two = pd.concat([rows.assign(device_uuid="GPU-1", hostname="n1"), rows.assign(device_uuid="GPU-2", hostname="n1")])
    assert list(bwprof.view(two)) == ["device_uuid", *SHORT]


def test_nine_classic_columns_are_enough() -> None:
    line = ["decode", "fp16", 1, 896, 896, 0.004, 402.3, 1607424, 1792]
    found = bwprof.view(pd.DataFrame([line], columns=list(schema.CLASSIC_NAMES)))
    assert list(found) == SHORT
    assert found["case"].tolist() == ["decode"]
    assert found["flags"].isna().all()


def test_unknown_names_suggest_the_nearest(rows: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"'shrt'.*'short'"):
        bwprof.view(rows, "shrt")
    with pytest.raises(ValueError, match=r"'tme_ms'.*'time_ms'"):
        bwprof.view(rows, columns="case,tme_ms")
    assert len(schema.column_names()) > 90
    for given, said in (
        ("tme_m", f"'time_ms', 'time_ms_lo' or 'time_ms_hi'? All {len(schema.column_names())}: bwprof columns"),
        ("qqqqqq", f"unknown column 'qqqqqq': All {len(schema.column_names())}: bwprof columns, bwprof.columns()"),
    ):
        with pytest.raises(ValueError, match="unknown column") as caught:
            bwprof.view(rows, columns=given)
        assert said in str(caught.value)
        assert len(str(caught.value)) < 150
    with pytest.raises(ValueError, match=r"'tmy'.*the frame's own"):
        bwprof.view(rows.assign(tmy=1), columns="tmx")
    with pytest.raises(ValueError, match="columns is ''"):
        bwprof.view(rows, columns="")
    with pytest.raises(ValueError, match="column time_ms is missing"):
        bwprof.view(rows.drop(columns="time_ms"))


@pytest.mark.parametrize("width", [40, 80, 120, 300])
@pytest.mark.parametrize("which", VIEWS)
def test_a_table_fits_its_screen(rows: pd.DataFrame, which: str, width: int) -> None:
    text = io.StringIO()
    print_view(rows, Console(file=text, width=width, color_system=None), which=which)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width or width == 40, "of 40 letters nobody makes a table, but it must not fail"
    if width >= 80:
        assert "0.0001" in text.getvalue() or which not in ("short", "all"), "numbers are not broken"
    if which == "short":
        assert len([line for line in lines if line.startswith("plain")]) == 2 or width == 40
        assert sum("precision" in line for line in lines) == 1 or width == 40, "one table"
        assert any("luck: broken fp16" in line for line in lines) or width == 40


def test_empty_columns_are_listed_below_the_table(rows: pd.DataFrame) -> None:
    text = io.StringIO()
    print_view(rows, Console(file=text, width=120, color_system=None), which="counters")
    head, _, notes = text.getvalue().partition("no values: ")
    assert "traffic_" not in head
    assert "traffic_ratio" in notes
    text = io.StringIO()
    print_view(rows, Console(file=text, width=120), columns="case,traffic_ratio")
    assert "traffic_" in text.getvalue(), "asked for"
    print_view(rows[:0], Console(file=text, width=120))


def test_show_prints_a_stored_run(rows: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(bwprof.save(rows, tmp_path / "a.json"))
    assert main(["show", path]) == 0
    shown = capsys.readouterr().out
    assert "limiter" in shown
    assert main(["show", path, "--view", "short"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["show", path, "--columns", "case,N"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()][2] == ["plain", "|896"]
    for wrong, said in [
        (["show", path, "--columns", "cse"], "unknown column 'cse': did you mean 'case'"),
        (["show", path, "--view", "rooflin"], "unknown view 'rooflin': did you mean 'roofline'"),
        (["show", str(tmp_path / "no")], "no such file or folder"),
    ]:
        assert main(wrong) == 2
        assert said in capsys.readouterr().err


def test_a_sweep_prints_selected_columns(here: Here) -> None:
    tiny = ["gemm", "--backend", "cpu", "-p", "N=16", "-p", "K=16", "--cache", "hot", "--precision", "fp32"]
    code, out, _ = here(*tiny, "--columns", "case,N,status", "--output", "a.json")
    assert code == 0
    assert [line.split("|") for line in out.splitlines()][-1][0].strip() == "gemm N=16 K=16"
    assert "ok" in out
    assert "GB/s" not in out
    code, _, err = here(*tiny, "--columns", "staus", "--output", "b.json")
    assert (code, Path("b.json").exists()) == (2, False)
    assert re.search("'staus'.*'status'", err)


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}])
def test_output_into_a_pipe_is_plain(rows: pd.DataFrame, tmp_path: Path, more: dict[str, str]) -> None:
    path = str(bwprof.save(rows, tmp_path / "a.csv"))
    command = [sys.executable, "-m", "bwprof", "show", path, "--view", "all"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **more}, check=True)
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_a_reader_that_ends_early_is_no_error(rows: pd.DataFrame, tmp_path: Path) -> None:
    path = str(bwprof.save(rows, tmp_path / "a.csv"))
    head = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m bwprof show {path} | head -1"], capture_output=True, check=True
    )
    assert head.stderr == b""


@pytest.mark.parametrize("example", ["h200", "h200_llama"])
def test_a_row_is_a_line_at_eighty_columns(example: str) -> None:
    """Names are whole, and each row of the recorded runs stands in one line of each of two or three tables."""
    data = bwprof.load_example(example)
    screen = Console(file=io.StringIO(), width=80, highlight=False, markup=False, color_system=None)
    print_view(data, screen, which="roofline")
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    notes = [number for number, line in enumerate(lines) if line.startswith(("  predicted", "  no values"))]
    lines = lines[: min(notes, default=None)]
    for name, count in data["case"].value_counts().items():
        held = [line for line in lines if line.startswith(f"{name} ")]
        assert len(held) in (2 * count, 3 * count)
    assert not any(line.startswith("  ") and len(line.split()) == 1 for line in lines if "_" not in line)
