"""Axes of pictures: dates, units of ticks, which points a line joins; backends that cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drawn import overlapping, render
from matplotlib.collections import LineCollection
from rows import row

import bwprof
from bwprof import plot
from bwprof.plot import regressions, rooflines, styles, sweeps
from bwprof.plot.sweeps import count_formatter
from bwprof.results import frame

# ---- dates ----


@pytest.mark.parametrize(
    ("first", "last", "offset"),
    [
        ("2026-01-10T23:30+00:00", "2026-01-11T00:30+00:00", "2026-Jan-10 to 2026-Jan-11 UTC"),
        ("2026-01-10T18:30-05:00", "2026-01-11T05:30+05:00", "2026-Jan-10 to 2026-Jan-11 UTC"),  # the same two
        ("2025-12-28T12:00+00:00", "2026-01-04T12:00+00:00", "2025-Dec-28 to 2026-Jan-04 UTC"),
        ("2026-01-10T10:30+00:00", "2026-01-10T15:30+00:00", "2026-Jan-10 UTC"),
        ("2024-02-28T23:30+00:00", "2024-03-01T00:30+00:00", "2024-Feb-28 to 2024-Mar-01 UTC"),  # no tick on the 28th
        ("2026-01-31T23:30+00:00", "2026-02-28T00:30+00:00", "2026-Jan-31 to 2026-Feb-28 UTC"),  # none in January
        ("2025-09-10T23:30+00:00", "2026-02-11T00:30+00:00", "2025-Sep-10 to 2026-Feb-11 UTC"),
        ("2019-03-01T00:30+00:00", "2026-02-11T00:30+00:00", "2019-Mar-01 to 2026-Feb-11 UTC"),  # ticks are years
    ],
)
def test_a_trend_names_the_first_and_the_last_date(first: str, last: str, offset: str, tmp_path: Path) -> None:
    for number, when in enumerate((first, last)):
        (tmp_path / f"{number}").mkdir()
        rows = frame.from_rows([row("a", "fp32", timestamp=when, run_id=f"run-{number}")])
        rows.attrs["run"] = {"started": when, "run_id": f"run-{number}"}
        bwprof.save(rows, tmp_path / f"{number}" / "results.json")
    axes = regressions.trend(bwprof.history(tmp_path))
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    assert axes.xaxis.get_offset_text().get_text() == offset


# ---- units ----


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([512, 4096, 16384], ["512", "4Ki", "16Ki"]),
        ([4096, 20480, 1 << 20], ["4Ki", "20Ki", "1Mi"]),
        ([896, 4864, 14336], ["896", "4864", "14336"]),
        ([4096, 128256], ["4096", "128256"]),
        ([1, 1000, 5000], ["1", "1000", "5000"]),
        ([0.5, 1.5], ["0.5", "1.5"]),
    ],
)
def test_numbers_of_one_axis_have_one_unit_system(values: list[float], texts: list[str]) -> None:
    assert list(map(count_formatter(values), values)) == texts


def test_crowded_ticks_are_left_out() -> None:
    rows = [row(f"a {length}", "fp32", gb_s=100.0 + length, kv_len=length) for length in (1000, 1024, 5000, 20_000)]
    axes = render(plot.KINDS["lines"].picture(frame.from_rows(rows), x="kv_len"))
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1000", "5000", "20000"]
    assert overlapping(axes) == []


# ---- what a line joins ----


def joined(rows: list[Any], **options: Any) -> set[tuple[float, ...]]:
    """The places along the parameter that each line of a picture joins."""
    axes = sweeps.lines(frame.from_rows(rows), **options)
    own = [
        line for line in axes.lines if line.get_linestyle() != "None" and line.get_color() == styles.style("fp32").color
    ]
    return {tuple(map(float, line.get_xdata())) for line in own}


def test_a_line_joins_rows_of_one_shape_only() -> None:
    """One has a window, the other none; two labels of the caller's own; two cases with lengths of their own."""
    lengths = (1, 2, 4, 8)
    window = [row(f"a {M}", "fp32", M=M, gb_s=10.0 + M, seq_len=64 if M > 2 else None) for M in lengths]
    labels = [row(f"a {M}", "fp32", M=M, gb_s=10.0 + M, engine="x" if M > 2 else "y") for M in lengths]
    cases = [row("b" if M > 2 else "c", "fp32", M=M, gb_s=10.0 + M) for M in lengths]
    for rows in (window, labels, cases):
        assert joined(rows, x="M") == {(1.0, 2.0), (4.0, 8.0)}
    sizes = [row(f"size {M}", "fp32", M=M, gb_s=10.0 + M, size=f"size {M}") for M in lengths]
    assert joined(sizes, x="M") == {(1.0, 2.0, 4.0, 8.0)}


def test_a_roofline_joins_the_precisions_of_one_shape() -> None:
    work = {"flops": 10**6, "arithmetic_intensity": 8.0}
    rows = [
        row("mine", precision, M=M, tflops=0.1 * M * share, **work | {"arithmetic_intensity": 8.0 / share})
        for M in (1, 4)
        for precision, share in (("fp32", 1.0), ("fp16", 0.5))
    ]
    axes = rooflines.roofline(frame.from_rows(rows))
    (lines,) = (found for found in axes.collections if isinstance(found, LineCollection))
    ends = {tuple(round(float(y), 6) for _, y in path.vertices) for path in lines.get_paths()}
    assert ends == {(0.1, 0.05), (0.4, 0.2)}


# ---- predictions ----


def roof_words(rows: list[Any]) -> tuple[str, str, str]:
    """A roofline's title, and what its legend says of the roof of memory and of FP16's."""
    axes = rooflines.roofline(frame.from_rows(rows))
    legend = axes.get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    memory = next(text for text in texts if text.startswith("roof") and "theoretical" not in text)
    return axes.get_title(loc="left").partition("\n")[0], memory.split()[1], next(t for t in texts if "FP16" in t)


def test_a_roofline_labels_predicted_roofs() -> None:
    roofs = {"ceiling_gb_s": 100.0, "measured_tflops": 50.0, "flops": 10**6, "arithmetic_intensity": 8.0}
    rows = [row("a", name, backend="cuda", tflops=0.8, **roofs) for name in ("fp32", "fp16")]
    guess = {"status": "predicted"}
    assert roof_words(rows) == ("Roofline", "measured:", "FP16: 50.0 measured (TFLOP/s)")
    assert roof_words([rows[0], rows[1] | guess]) == ("Roofline", "measured:", "FP16: 50.0 predicted (TFLOP/s)")
    every = roof_words([one | guess for one in rows])
    assert every == ("Predicted roofline", "predicted:", "FP16: 50.0 predicted (TFLOP/s)")


# ---- backends ----


@pytest.mark.parametrize(
    ("first", "backend"),
    [("bwprof.plot", "nonsense"), ("bwprof.plot", "TkAgg"), ("bwprof.report", "module://no_such_module")],
)
def test_files_are_written_whatever_the_backend(backend: str, first: str, tmp_path: Path) -> None:
    bwprof.save(bwprof.load_example("h200").head(4), tmp_path / "rows.json")
    arguments = {
        "bwprof.plot": ["comparison", "rows.json", "-o", "x.svg"],
        "bwprof.report": ["rows.json", "-o", "x.html"],
    }
    run = subprocess.run(
        [sys.executable, "-m", first, *arguments[first]],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "<svg" in next(tmp_path.glob("x.*")).read_text()
