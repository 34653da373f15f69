"""Rows of other profilers on a terminal: lines that fit, names that bury no figures, messages that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import bwprof
from bwprof.cli import main
from bwprof.cli.commands.importers import as_text, block
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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_launch_fits_the_screen(width: int) -> None:
    lines = block(ROW, width)
    assert lines[0] == f"launch 3: fill<...> (a name of {len(LONG)} letters: --json)"
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(lines).split())
    assert "launched 1024 blocks of 256 threads, 44 registers a thread" in words
    assert "dispatch_stall 1.08, selected 1.00 warps an issued instruction" in words


def test_a_name_that_fits_is_whole() -> None:
    assert block(ROW | {"kernel": "void fill(float*)"}, 80)[0] == "launch 3: void fill(float*)"


def test_no_share_of_accesses_that_there_are_not() -> None:
    (line,) = (line for line in block(ROW, 120) if line.startswith("  access"))
    assert line.split("access")[1].strip() == "4 sectors a store, 100 % of stored sectors written"


def test_long_names_are_left_out_of_markdown() -> None:
    assert LONG not in as_text(pd.DataFrame([ROW]), "md")
    assert "| kernel |" in as_text(pd.DataFrame([ROW | {"kernel": "void fill(float*)"}]), "md")


def test_bytes_of_a_caller_have_a_line() -> None:
    row = ROW | {"bytes_read": 1 << 20, "bytes_written": 0, "bandwidth_gb_s": 5.24288}
    (line,) = (line for line in block(row, 120) if "must move" in line)
    assert line.split("must move")[1].strip() == "1 MiB read, 0 B written, 5.24 GB/s"


def test_an_error_names_the_missing_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ncu", "capture", "python3", "bench.py", "--n", "4"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("usage: bwprof ncu capture [options] -- PROGRAM [ARGUMENT ...]\n")
    assert "unrecognized arguments: --n 4" in message


def test_a_frame_is_no_row() -> None:
    with pytest.raises(TypeError, match=r"^row is a frame: a row is needed, frame\.iloc\[0\] say$"):
        bwprof.stall_table(pd.DataFrame([ROW]))
    assert bwprof.stall_table(pd.DataFrame([ROW]).iloc[0])["reason"].tolist()[0] == "not_selected"


def test_results_before_the_run_are_a_sentence(tmp_path: Path) -> None:
    session = RocprofSession(tmp_path / "counted")
    with pytest.raises(FileNotFoundError, match="run the command of build_command where the GPU is"):
        session.parse_results()
