"""The summary: ratios, flags, failures, skips, and the width of its table."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from rows import pair, row

import bwprof
from bwprof import registry
from bwprof.cli import render
from bwprof.results import frame
from bwprof.results.schema import FLAGS, RowDict
from bwprof.text.terminal import PLAIN_WIDTH, make_console


def printed(rows: list[RowDict]) -> str:
    stream = io.StringIO()
    render.print_summary(frame.from_rows(rows), make_console(stream))
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_words_stay_whole_on_a_narrow_terminal(width: int) -> None:
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    rows = pair("prefill_attention_of_many", 100.0, 80.0, variant="cublaslt", limiter="memory")
    render.print_summary(frame.from_rows(rows), screen)
    (line,) = (message for message in screen.file.getvalue().splitlines() if "80.0" in message)  # type: ignore[attr-defined]
    assert all(word in line for word in ("prefill_attention_of_many", "cublaslt", "memory"))


def test_summary_of_one_case_by_hand() -> None:
    rows = pair("decode", 100.0, 80.0, bound="memory", pct_attainable=95.0)
    found = bwprof.summary(frame.from_rows(rows)).iloc[0]
    assert found["case"] == "decode"
    assert (found["fp32_gb_s"], found["fp16_gb_s"]) == (100.0, 80.0)
    assert found["bandwidth_vs_fp32"] == pytest.approx(0.8)
    assert found["byte_ratio_vs_fp32"] == pytest.approx(2.0)
    assert found["speedup_vs_fp32"] == pytest.approx(1.6)
    assert found["fp32_pct_attainable"] == 95.0
    assert found["bound"] == "memory"
    assert found["status"] == "ok"
    assert found["flags"] is pd.NA


def test_the_table_has_shares_of_the_nearer_roof() -> None:
    """FP32 at 93 % of the arithmetic rate and 4 % of a stream, FP16 at 40 % of a stream and 4 % of the rate."""
    rows = pair("product", 4.0, 40.0, attainable_gb_s=100.0, ceiling_gb_s=100.0, peak_tflops=1.0, status="ok")
    rows[0].update(flops=9300 * 10**6, tflops=0.93, time_ms=10.0)
    rows[1].update(flops=400 * 10**6, tflops=0.04, time_ms=10.0)
    found = bwprof.summary(frame.from_rows(rows)).iloc[0]
    assert (found["fp32_pct_limit"], found["fp16_pct_limit"]) == pytest.approx((93.0, 40.0))
    assert found["limiter"] == "compute/kernel"
    (line,) = (line for line in printed(rows).splitlines() if line.startswith("product"))
    assert "93c/40 |compute/kernel" in line


def test_a_share_of_a_stream_stands_in_where_the_nearer_roof_is_not_known() -> None:
    (line,) = (
        message
        for message in printed(pair("a", 9.0, 8.0, pct_attainable=95.0)).splitlines()
        if message.startswith("a ")
    )
    assert line.split("|")[-2].strip() == "95/95"


def test_each_of_narrow_precisions_gets_a_line() -> None:
    """With its time, which GB/s of different bytes does not tell."""
    names = registry.precision_names()[:12]
    lines = printed([row("product", name, gb_s=50.0 + i, bytes_read=4000 // (i + 1)) for i, name in enumerate(names)])
    found = [line.split("|") for line in lines.splitlines() if line.startswith("product")]
    assert [cells[1].strip() for cells in found] == names
    assert [float(cells[4]) for cells in found] == [50.0 + i for i in range(12)]


def test_narrow_precisions_have_no_ratios_without_fp32_and_name_their_caches() -> None:
    names = ["fp16", "q4_0", "mxfp4"]
    cold = [row("product", name, gb_s=50.0, bytes_read=4000) for name in names]
    assert "vs_fp32" not in printed(cold)
    assert "cache" not in printed(cold)
    lines = printed([*cold, *({**line, "cache": "hot"} for line in cold)]).splitlines()
    found = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("product")]
    assert ["hot" in cells for cells in found] == [False] * 3 + [True] * 3


def test_other_precisions_get_their_columns() -> None:
    rows = [*pair("a", 100.0, 80.0), row("a", "bf16", gb_s=81.0, bytes_read=4000)]
    found = bwprof.summary(frame.from_rows(rows))
    assert found.loc[0, "bf16_gb_s"] == 81.0
    assert "tf32_gb_s" not in found


def on_a_terminal(data: pd.DataFrame, width: int) -> str:
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    render.print_summary(data, screen)
    return screen.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", ["h200", "h100"])
def test_the_default_suite_of_a_gpu_is_as_wide_as_a_plain_page(name: str) -> None:
    text = on_a_terminal(bwprof.load_example(name), PLAIN_WIDTH)
    assert "columns have room" not in text
    assert "TF32" in text


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(80, "bytes ratio, GB/s ratio, variant, limiter"), (110, "bytes ratio, GB/s ratio"), (PLAIN_WIDTH, "")],
)
def test_a_narrow_terminal_gets_fewer_columns(width: int, left_out: str) -> None:
    data = bwprof.load_example("h200")
    text = on_a_terminal(data, width)
    assert max(map(len, text.splitlines())) <= width
    note = re.search(r"\((\d+) columns have room for (.*?), too\)", " ".join(text.split()))
    assert (note[2] if note else "") == left_out
    if note:
        assert "columns have room" not in on_a_terminal(data, int(note[1])), "it has"
        assert int(note[1]) <= 140
    lines = [
        " ".join(line.replace("*", "").split()[:2])
        for line in text.splitlines()
        if line.startswith("prefill_attention ")
    ]
    assert lines == ["prefill_attention unfused", "prefill_attention flash"], "they are told apart"
    assert all(
        line.split()[-1] in ("1.98x", "100/100/100/-", "memory") for line in text.splitlines() if "stream_read" in line
    )


def test_a_flag_of_all_rows_is_printed_once() -> None:
    many = [made for number in range(18) for made in pair(f"case_{number}", 100.0, 80.0, flags="noisy")]
    text = printed(many)
    assert text.count("case_7") == 1
    assert "): all 36 rows" in " ".join(text.split())
    for made in many[:2]:
        made["flags"] = ""
    text = " ".join(printed(many).split())
    assert "plain and 9 more" in text
    for made in many[::2]:
        made["flags"] = "noisy"
    many[1]["flags"] = ""
    assert "): every case" in " ".join(printed(many).split()), "of one in a single precision"


def test_flags_failures_and_skips_are_printed() -> None:
    rows = [
        *pair("a", 100.0, 80.0),
        row("b", "fp32", flags="not_converged"),
        row("b", "fp16", flags="not_converged;above_attainable"),
        row("c", "fp32", gb_s=None, status="failed", reason="wrong result: element 7"),
        row("c", "fp16", gb_s=None, status="skipped", reason="needs 2 TiB of memory, 1 GiB are free"),
    ]
    found = bwprof.summary(frame.from_rows(rows)).set_index("case")
    assert found.loc["b", "flags"] == "not_converged;above_attainable(fp16)"
    assert found.loc["c", "status"] == "failed"
    text = printed(rows)
    assert f"not_converged ({FLAGS['not_converged']}): b plain" in text
    assert f"above_attainable ({FLAGS['above_attainable']}): b plain (fp16)" in text
    assert "wrong result: element 7" in text
    assert "2 TiB of memory" in text


@pytest.mark.parametrize(
    ("more", "is_impossible"),
    [
        ({"peak_gb_s": 500.0}, True),
        ({"peak_gb_s": 500.0, "pct_peak": None, "flags": "noisy"}, True),
        ({"peak_gb_s": 500.0, "flags": "above_attainable"}, True),
        ({"tflops": 2.0, "peak_tflops": 1.0}, True),
        ({"peak_gb_s": 999.0}, False),
        ({"peak_gb_s": 500.0, "cache": "hot"}, False),
        ({"peak_gb_s": None}, False),
    ],
)
def test_a_row_beyond_its_peak_is_flagged_without_a_flag_in_its_file(more: dict[str, Any], is_impossible: bool) -> None:
    found = bwprof.summary(frame.from_rows([row("a", "fp32", gb_s=1000.0, cache="cold") | more]))["flags"].fillna("")[0]
    assert found.split(";").count("above_attainable") == is_impossible


def test_a_reason_belongs_to_the_rows_that_have_the_status() -> None:
    rows = [row("a", "fp32", reason="measured twice"), row("a", "fp16", gb_s=None, status="skipped", reason="too big")]
    (note,) = (line for line in printed(rows).splitlines() if line.startswith("  skipped"))
    assert note.split(": ") == ["  skipped", "fp16", "too big", "a plain"]


def test_rows_without_a_time_have_no_table() -> None:
    rows = [row("a", "fp32", gb_s=None, status="skipped", reason="too big")]
    assert printed(rows).split(": ") == ["  skipped", "fp32", "too big", "a plain\n"]


def test_the_table_fits_and_is_ascii_where_there_is_no_terminal() -> None:
    names = ["decode_attention_batch8", "prefill_gemm_medium", "kv_gather"]
    rows = [
        made
        for name in names
        for made in (
            *pair(name, 4321.0, 4210.0, bound="memory", pct_attainable=100.4),
            row(name, "bf16", gb_s=4300.0, pct_attainable=99.0, bound="compute"),
            row(name, "tf32", gb_s=4300.0, pct_attainable=99.0, bound="latency"),
        )
    ]
    text = printed(rows)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 120
    assert "\x1b" not in text
    for name in names:
        assert name in text, "names are not broken"


def test_variants_of_a_case_have_their_own_lines() -> None:
    rows = [*pair("a", 100.0, 80.0, variant="slow"), *pair("a", 200.0, 180.0, variant="fast")]
    assert bwprof.summary(frame.from_rows(rows))["variant"].tolist() == ["slow", "fast"]


def test_summary_of_a_nine_column_file(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written\n"
        "decode,FP32,1,896,896,0.008,400,3200000,0\ndecode,FP16,1,896,896,0.005,320,1600000,0\n"
    )
    found = bwprof.summary(bwprof.load(path)).iloc[0]
    assert (found["fp32_gb_s"], found["fp16_gb_s"]) == (400.0, 320.0)
    assert found["speedup_vs_fp32"] == pytest.approx(1.6)


def test_summary_of_an_empty_and_of_a_foreign_frame() -> None:
    assert bwprof.summary(frame.from_rows([])).empty
    with pytest.raises(ValueError, match="not a bwprof frame"):
        bwprof.summary(pd.DataFrame({"a": [1]}))
