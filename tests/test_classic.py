"""`bwprof.benchmark_bandwidth` writes a suite in the nine classic columns."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pandas as pd
import pytest

import bwprof
from bwprof import _core
from bwprof.errors import SweepError
from bwprof.results.atomic import Claim
from bwprof.runs import api

pytestmark = pytest.mark.usefixtures("one_thread")

HEADER = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"
SUITE = """
text = "two cases"
precisions = ["fp32", "fp16"]

[[case]]
name = "decode_gemm"
operation = "gemm"
params = { M = 1, N = 64, K = 32 }
cache = "hot"

[[case]]
name = "append"
operation = "kv_append"
params = { batch = 1, seq_len = 4, num_kv_heads = 2, head_dim = 8 }
cache = "hot"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.toml"
    path.write_text(SUITE)
    return path


def test_a_suite_in_classic_columns(suite: Path, tmp_path: Path) -> None:
    """FP32 precedes FP16; M, N and K are empty where they do not apply; bytes are calculated by hand."""
    path = tmp_path / "classic.csv"
    path.write_text("older")
    seen: list[int] = []
    frame = bwprof.benchmark_bandwidth(
        path, suite=suite, device="cpu", progress=lambda done, _total, _row: seen.append(done)
    )
    lines = [line.split(",") for line in path.read_text().splitlines()]
    assert ",".join(lines[0]) == HEADER
    assert [line[:5] + line[7:] for line in lines[1:]] == [
        ["decode_gemm", "FP32", "1", "64", "32", str((32 + 64 * 32) * 4), str(64 * 4)],
        ["decode_gemm", "FP16", "1", "64", "32", str((32 + 64 * 32) * 2), str(64 * 2)],
        ["append", "FP32", "", "", "", str(2 * 4 * 2 * 8 * 4), str(2 * 4 * 2 * 8 * 4)],
        ["append", "FP16", "", "", "", str(2 * 4 * 2 * 8 * 2), str(2 * 4 * 2 * 8 * 2)],
    ]
    for line, row in zip(lines[1:], bwprof.rows(frame), strict=True):
        assert (float(line[5]), float(line[6])) == (row["time_ms"], row["bandwidth_gb_s"])
    assert seen[-1] == 4
    assert sorted(found.name for found in tmp_path.iterdir()) == ["classic.csv", "suite.toml"]


def test_a_case_that_fails_leaves_no_file(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = api.run_sweep

    def failing(*given: object) -> pd.DataFrame:
        frame = run(*given)  # type: ignore[arg-type]
        frame.loc[1, ["status", "reason"]] = ["failed", "a wrong result"]
        return frame

    monkeypatch.setattr(sys.modules["bwprof.sweep"], "run_sweep", failing)
    with pytest.raises(SweepError, match=r"1 of 4.*decode_gemm fp16.*wrong") as caught:
        bwprof.benchmark_bandwidth(tmp_path / "classic.csv", suite=suite, device="cpu")
    assert len(caught.value.frame) == 4
    assert [found.name for found in tmp_path.iterdir()] == ["suite.toml"]


def test_unwritable_targets_fail_before_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "Device", None)  # nothing is measured
    with pytest.raises(ValueError, match="the classic columns"):
        bwprof.benchmark_bandwidth(tmp_path / "classic.json")
    with pytest.raises(FileNotFoundError, match=r"no/classic\.csv"):
        bwprof.benchmark_bandwidth(tmp_path / "no" / "classic.csv")
    with pytest.raises(ValueError, match="nightly"):
        bwprof.benchmark_bandwidth(tmp_path / "classic.csv", suite="nightly", device="cpu")
    claim = Claim(tmp_path / "classic.csv")
    with pytest.raises(OSError, match="another bwprof") as caught:
        bwprof.benchmark_bandwidth(tmp_path / "classic.csv")
    assert caught.value.errno == errno.EBUSY
    claim.release()
    assert list(tmp_path.iterdir()) == []
