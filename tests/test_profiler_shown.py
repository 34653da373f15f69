"""Rows of other profilers on a terminal: lines that fit, short names, messages with the next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import bwprof
from bwprof.cli import main
from bwprof.cli.commands.importers import as_text, launch_table
from bwprof.importers.rocprof_session import RocprofSession

LONG = "void at::<unnamed>::fill<" + "at::native::functor<float>, " * 40 + "int>(float*)"
ROW: dict[str, Any] = {
    "kernel": LONG,
    "case": "fill<...>",
    "launch": 3,
    "grid_blocks": 1024,
    "block_threads": 256,
    "registers": 44,
    "device": "NVIDIA H200",
    "compute_capability": "9.0",
    "time_ms": 0.2,
    "sectors_per_store": 4.0,
    "load_efficiency_pct": 0.0,
    "store_efficiency_pct": 100.0,
    "stall_reasons": "not_selected=3.63;wait=1.86;math_pipe_throttle=1.68;dispatch_stall=1.08;selected=1.00",
}


def figures(*rows: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The cells of each figure's line."""
    table = launch_table(rows)
    assert table is not None
    return {line[0]: line[2:] for line in table.lines}


def test_launches_stand_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    path.write_text(as_text(pd.DataFrame([ROW, ROW | {"kernel": "void fill(float*)"}]), "json"))
    assert main(["import", "ncu", str(path)]) == 0
    out = capsys.readouterr().out
    assert LONG not in out
    assert "void fill(float*)" in out
    assert max(map(len, out.splitlines())) <= 80
    found = figures(ROW, ROW | {"time_ms": 1.5, "registers": None})
    assert found["time_ms"] == ("0.2", "1.5")
    assert found["registers"] == ("44", "-")
    assert found["stall not_selected"] == ("44",) * 2
    assert "stall selected" not in found


def test_figures_that_no_launch_has_are_left_out() -> None:
    assert "sectors_per_load" not in figures(ROW)
    assert figures(ROW)["store_efficiency_pct"] == ("100",)


def test_long_names_are_left_out_of_markdown() -> None:
    assert LONG not in as_text(pd.DataFrame([ROW]), "md")
    assert "| kernel |" in as_text(pd.DataFrame([ROW | {"kernel": "void fill(float*)"}]), "md")


def test_bytes_of_a_caller_have_a_line() -> None:
    found = figures(ROW | {"bytes_read": 1 << 20, "bytes_written": 0, "bandwidth_gb_s": 5.24288})
    names = ("bytes_read", "bytes_written", "bandwidth_gb_s")
    assert [found[name] for name in names] == [("1 MiB",), ("0 B",), ("5.24288",)]


def test_an_error_names_the_missing_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ncu", "capture", "python3", "bench.py", "--n", "4"]) == 2
    message = capsys.readouterr().err
    assert " -- PROGRAM" in message.splitlines()[0]
    assert "--n 4" in message


def test_a_frame_is_refused_as_a_row() -> None:
    with pytest.raises(TypeError, match=r"^row .*\.iloc\[0\]"):
        bwprof.stall_table(pd.DataFrame([ROW]))
    assert bwprof.stall_table(pd.DataFrame([ROW]).iloc[0])["reason"].tolist()[0] == "not_selected"


def test_results_before_the_run_are_refused(tmp_path: Path) -> None:
    session = RocprofSession(tmp_path / "counted")
    with pytest.raises(FileNotFoundError, match=r"\bcounted\b.*\bbuild_command\b"):
        session.parse_results()
