"""Bytes that a row does not know: no zero, wherever they are used."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import bwprof
from bwprof.analysis.gains import improvement_table
from bwprof.cli import main
from bwprof.results import csv_file, frame, pairs


@pytest.fixture(params=["bytes_read", "bytes_written"])
def unknown(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def recorded() -> list[dict[str, Any]]:
    data = bwprof.load_example("h200")
    return frame.to_rows(data[(data["case"] == "decode_gemm") & data["precision"].isin(["fp32", "fp16"])])


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [row | dict.fromkeys(names) if row["precision"] == "fp32" else row for row in rows]


@pytest.mark.parametrize("form", ["NaN", "null", "csv"])
def test_the_stored_rate_counts(tmp_path: Path, unknown: str, form: str) -> None:
    path = tmp_path / ("a.csv" if form == "csv" else "a.json")
    rows = recorded()
    if form == "csv":
        path.write_text(csv_file.csv_text(without(rows, unknown)))
    else:
        bwprof.save(frame.from_rows(rows), path)
        document = json.loads(path.read_text())
        for one in document["rows"]:
            if one["precision"] == "fp32":
                one[unknown] = math.nan if form == "NaN" else None
        path.write_text(json.dumps(document))
    for table in ("bandwidth_gb_s", "byte_ratio_vs_fp32"):
        expected = frame.from_rows(rows).set_index("precision")[table].to_dict()
        assert bwprof.load(path).set_index("precision")[table].to_dict() == pytest.approx(expected, rel=1e-6)
    whole, lacking = improvement_table(frame.from_rows(rows)), improvement_table(bwprof.load(path))
    assert lacking.equals(whole)


def test_without_bytes_and_rate_the_limiter_is_unknown() -> None:
    rows = without(recorded(), "bytes_read", "bytes_written", "bandwidth_gb_s", "byte_ratio_vs_fp32")
    assert improvement_table(frame.from_rows(rows)).empty
    pairs.fill_comparisons(rows)
    assert {row["byte_ratio_vs_fp32"] for row in rows} == {None}


def test_analysis_finds_no_intermediates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bwprof.save(frame.from_rows(without(recorded(), "bytes_read")), tmp_path / "a.json")
    assert main(["analyze", str(path)]) == 0
    assert "compulsory bytes" not in capsys.readouterr().out
