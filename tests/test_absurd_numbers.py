"""Numbers that nobody has measured, in others' files: no warning, no wide table, and a plain answer."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from pathlib import Path

import pandas as pd
import pytest
from rows import pair

import bwprof
from bwprof.analysis.bandwidth import BandwidthAnalysis, utilization_table
from bwprof.cli import main
from bwprof.results import frame
from bwprof.text.formatting import format_bytes, format_figure, format_seconds, format_short
from bwprof.text.parsing import measured_or_none

HEADER = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"
ABSURD = ("1e308", "1e-320", "1e99", "1e-99", "-1", "0", "-0.0", "inf", "1e400", "nan", "1e300")
COMMANDS = ("report", "show", "show --view roofline", "show --view all", "analyze", "analyze --md", "analyze --json")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine columns, each time beside each bandwidth in FP32 and FP16, and one row that is right."""
    lines = [HEADER, "gemm,fp32,2,8,8,0.004,402.3,1607424,1792", "gemm,fp16,2,8,8,0.002,402.3,803712,896"]
    for number, (time, speed) in enumerate(itertools.product(ABSURD, ("1e308", "402.3", "1e-320"))):
        other = ABSURD[number % len(ABSURD)]
        lines += [f"op{number},fp32,1,8,8,{time},{speed},1607424,1792", f"op{number},fp16,1,8,8,{other},{speed},9,9"]
    path = tmp_path_factory.mktemp("absurd") / "bare.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def whole(bare: Path) -> Path:
    """The same in rows that know their roofs."""
    rows = []
    for number, text in enumerate(ABSURD):
        made = pair(
            f"c{number}", 990.0, 980.0, attainable_gb_s=1e3, peak_gb_s=float(text), flops=7, measured_tflops=1e9
        )
        rows += [row | {"time_ms": float(text), "tflops": 1e300} for row in made[:1]] + made[1:]
    return bwprof.save(frame.from_rows(rows), bare.parent / "whole.csv")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(bare: Path, whole: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    for path in (bare, whole):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert main([*command.split(), str(path)]) == 0
        out, err = capsys.readouterr()
        assert not err
        if "--json" in command:
            json.loads(out)
        elif "--md" in command:
            assert max(len(cell) for line in out.splitlines() for cell in line.split("|")) < 250
        else:
            assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("command", ["report --checklist", "outliers", "plot -o"])
def test_other_commands(whole: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    drawn = [str(whole.with_suffix(".svg"))] if "plot" in command else []
    assert main([*command.split(), *drawn, str(whole)]) == 0
    assert capsys.readouterr().err == "".join(f"bwprof: the picture is {path}\n" for path in drawn)


def test_efficiency_ignores_absurd_times() -> None:
    recorded = bwprof.load_example("h200")
    spoilt = pd.concat([recorded, *(recorded.assign(time_ms=float(text)) for text in ABSURD if text not in ("1e99",))])
    spoilt = spoilt[(spoilt["time_ms"] != 1e-99)]
    ours, theirs = (
        bwprof.predict("gemm", M=[1, 128], efficiency=bwprof.efficiency(data)) for data in (spoilt, recorded)
    )
    assert ours["time_ms"].tolist() == pytest.approx(theirs["time_ms"].tolist(), rel=1e-9)
    with pytest.raises(ValueError, match="nothing to learn from"):
        bwprof.efficiency(recorded.assign(time_ms=5e-324))


def test_an_absurd_time_counts_as_missing() -> None:
    row = {"case": "copy", "time_ms": 1e-320, "bytes_read": 2e9, "bytes_written": 1e9, "peak_gb_s": 800.0}
    assert utilization_table(row).empty
    with pytest.raises(ValueError, match="time_ms"):
        BandwidthAnalysis.from_row(row)
    found = bwprof.summary(frame.from_rows([line | {"time_ms": 1e308} for line in pair("copy", 990.0, 980.0)]))
    assert found["speedup_vs_fp32"].isna().all()


def test_numbers_are_short() -> None:
    assert [measured_or_none(value) for value in (0.0, 1e-101, -1e-99, 1e100, 1e101, math.inf, None, "3", True)] == [
        *(0.0, None, -1e-99, 1e100, None, None, None, None, None)
    ]
    assert (format_short(1e9, ".2f"), format_short(1e10, ".2f"), format_short(-1e200, ".0f")) == (
        "1000000000.00"[:0] + "1e+09",
        "1e+10",
        "-1e+200",
    )
    assert (format_figure(4814.3, whole_from=100), format_figure(1e300, whole_from=100)) == ("4814", "1e+300")
    small = [format_figure(value, whole_from=100) for value in (0.0, 0.004, 0.03176, 0.0999, 0.1, 0.104)]
    assert small == ["0.00", "0.004", "0.032", "0.1", "0.10", "0.10"], "0 is what is nothing at all"
    assert [format_seconds(0.9996 * unit) for unit in (1, 1e-3, 1e-6)] == ["1 s", "1 ms", "1 us"]
    assert [format_seconds(0.9994 * unit) for unit in (1, 1e-3, 1e-6)] == ["999 ms", "999 us", "999 ns"]
    assert (format_seconds(1e305), format_seconds(80), format_seconds(1e-323)) == ("1e+305 s", "1m20s", "9.88e-315 ns")
    assert (format_bytes(1e308), format_bytes(1500)) == ("9.09e+295 TiB", "1.46 KiB")
