"""Every kind of picture: words that cover nothing and can be read; odd rows; nothing global touched."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawn import outside, overlapping, render, words
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rows import pair, row

import bwprof
from bwprof import plot
from bwprof.plot import bars as plot_bars
from bwprof.plot import gains, stream_curves, sweeps
from bwprof.plot.canvas import DARK
from bwprof.plot.styles import luminance
from bwprof.results import frame
from bwprof.text.formatting import format_bytes

FUNCTIONS: dict[str, Callable[..., Axes]] = {name: getattr(plot, name) for name in plot.KINDS}


def swept(values: dict[str, list[int]], **more: Any) -> pd.DataFrame:
    """A sweep over parameters in two precisions, with roofs: bytes grow with every parameter."""
    made = []
    for number, sizes in enumerate(pd.MultiIndex.from_product(values.values())):
        value = dict(zip(values, sizes, strict=True))
        for precision, share in (("fp32", 1.0), ("fp16", 0.5)):
            moved = int(share * 4000 * np.prod(sizes))
            speeds = {"gb_s": 100.0 + number, "attainable_gb_s": 150.0 + number, "bytes_read": moved}
            extra = {"flops": 8 * moved, "footprint_bytes": moved, **value, **more}
            made.append(row(f"case {number}", precision, **speeds, **extra))
    found = frame.from_rows(made)
    found.attrs["run"] = {"facts": {"cache_bytes": 200_000}}
    return found


@cache
def data_for(kind: str) -> pd.DataFrame:
    """Something that the kind draws: recorded, or swept."""
    if kind == "model":
        return bwprof.load_example("h200_llama")
    if kind in ("lines", "heatmap"):
        return swept({"N": [16, 32, 64, 128], "M": [1, 4]})
    return bwprof.load_example("h200")


@cache
def drawn(kind: str) -> Axes:
    """That picture on dark ground, once for all tests."""
    return render(plot.KINDS[kind].picture(data_for(kind)), dark=True)


def read_texts(axes: Axes) -> str:
    return "\n".join(text.get_text() for text in words(axes))


@pytest.mark.parametrize("kind", plot.KINDS)
def test_texts_do_not_overlap_and_are_inside_the_figure(kind: str) -> None:
    axes = drawn(kind)
    assert overlapping(axes) == []
    assert outside(axes) == []
    figure: Any = axes.get_figure()
    assert (figure.axes, figure.texts, figure.legends) == ([axes], [], [])


def test_overlapping_texts_are_found() -> None:
    figure = Figure(figsize=(3, 3), dpi=72)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.2, 0.2, 0.7, 0.7))
    axes.text(0.5, 0.5, "one")
    axes.text(0.52, 0.51, "two")
    axes.text(0.9, 0.2, "at the right edge")
    figure.canvas.draw()
    assert overlapping(axes) == [("one", "two")]
    assert outside(axes) == ["at the right edge"]


def hollow_marks(axes: Axes) -> set[float]:
    """How high the points stand whose marks are filled with the ground's color."""
    ground = axes.get_facecolor()
    lines = [line for line in axes.lines if line.get_marker() not in ("None", "|")]
    unfilled = [line for line in lines if mpl.colors.same_color(line.get_markerfacecolor(), ground)]
    return {float(y) for line in unfilled for y in np.atleast_1d(line.get_ydata())}


@pytest.mark.parametrize("kind", ["roofline", "lines"])
def test_predictions_are_hollow(kind: str) -> None:
    rows = swept({"N": [16, 32, 64]}).to_dict("records")
    for made in rows:
        made["tflops"] = made["bandwidth_gb_s"]
    rows[1] |= {"status": "predicted", "bandwidth_gb_s": 77.0, "tflops": 77.0}
    axes = FUNCTIONS[kind](frame.from_rows(rows))
    assert hollow_marks(axes) == {77.0}
    assert "hollow: predicted" in legend_words(axes)
    rows[2]["flags"] = "noisy"
    both = legend_words(FUNCTIONS[kind](frame.from_rows(rows)))
    assert any("predicted" in word and "flags" in word for word in both)
    rows[1]["status"] = "ok"
    assert "hollow: see flags" in legend_words(FUNCTIONS[kind](frame.from_rows(rows)))


def legend_words(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def marked(kind: str) -> Axes:
    """A picture of four sizes: measured, predicted, flagged and failed, the last in FP16 alone."""
    made = swept({"N": [16, 32], "M": [1, 4]}).to_dict("records")
    changes: list[dict[str, Any]] = [{}, {"status": "predicted"}, {"flags": "noisy"}, {"status": "failed"}]
    for place, one in enumerate(made):
        one.update(changes[place // 2] if place % 2 else {})
        if one["status"] == "failed":
            one.update({"time_ms": None, "bandwidth_gb_s": None, "tflops": None})
        if kind == "model":
            step = {"phase": "decode", "step_batch": 1, "context": 1, "weights": str(place // 2), "kv": "fp16"}
            one.update({"count": 1, "role": one["precision"], **step})
    options = {"precision": "fp16"} if kind == "heatmap" else {}
    return render(plot.KINDS[kind].picture(made, **options))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("comparison", ["hollow: predicted", "noisy: see flags", "FP16 failed"]),
        ("roofline", ["hollow: predicted, or see flags", "not drawn: 1 failed"]),
        ("lines", ["hollow: predicted, or see flags", "not drawn: 1 failed"]),
        ("heatmap", ["\u2571 predicted", "\u25e5 see flags", "\u00d7 failed or skipped"]),
        ("speedup", ["hollow: predicted", "see flags", "not drawn: 1 failed"]),
        ("model", ["hollow: predicted", "see flags", "not drawn: 1 step without all times"]),
    ],
)
def test_predicted_flagged_and_failed_rows_are_explained(kind: str, expected: list[str]) -> None:
    text = read_texts(marked(kind))
    assert [words for words in expected if words not in text] == []
    assert "results not checked" not in text  # of what has a flag is known more


def test_predicted_flagged_and_failed_rows_are_marked() -> None:
    """One cell is crossed, one has a corner cut off, one failed; of the parts one is hollow, and one has a star."""
    heatmap = marked("heatmap")
    assert [len(marks.get_paths()) for marks in heatmap.collections[1:]] == [1, 1]
    gaps = [text.get_position() for text in heatmap.texts if text.get_bbox_patch() is not None]
    assert gaps == [tuple(heatmap.collections[1].get_paths()[0].vertices.mean(axis=0))]  # the line strikes no number
    for kind, bars in (("speedup", 3), ("model", 6)):
        axes = marked(kind)
        ground = axes.get_facecolor()
        drawn = [bar for bar in axes.patches if bar.get_width() > 1e-9]
        assert len(drawn) == bars
        assert sum(mpl.colors.same_color(bar.get_facecolor(), ground) for bar in drawn) == 1
        stars = [text.get_text() for text in words(axes) if text.get_text().endswith("*")]
        assert len(stars) == 1


def test_unverified_results_are_noted() -> None:
    rows = [row("a", "fp32"), row("a", "fp16", bytes_read=4000)]
    for kind in ("comparison", "speedup"):
        assert "results not checked" in read_texts(render(plot.KINDS[kind].picture(rows)))
        checked = [one | {"verified": True} for one in rows]
        assert "results not checked" not in read_texts(render(plot.KINDS[kind].picture(checked)))


def test_predicted_rows_have_no_measured_ridge() -> None:
    data = bwprof.load_example("h200")
    assert "measured" in read_texts(render(plot.KINDS["ridge"].picture(data)))
    guessed = data.assign(status=pd.Series(["predicted"] * len(data), data.index, dtype="string"))
    with pytest.raises(ValueError, match="catalog"):
        plot.KINDS["ridge"].picture(guessed)


def test_sizes_distinguish_cases_of_one_name() -> None:
    rows = [row("gemm", "fp32", N=size, K=64) for size in (16, 32)]
    labels = [text.get_text() for text in plot_bars.comparison(rows).get_yticklabels()]
    assert labels == ["gemm N=16", "gemm N=32"]


@pytest.mark.parametrize("count", [2, 25])
def test_a_predicted_bar_or_dot_is_hollow(count: int) -> None:
    rows = [row(f"case {number}", "fp32", status="predicted" if number else "ok") for number in range(count)]
    axes = plot_bars.comparison(frame.from_rows(rows))
    if count < 20:
        ground = axes.get_facecolor()
        assert [mpl.colors.same_color(bar.get_facecolor(), ground) for bar in axes.patches] == [False, True]
    else:
        assert hollow_marks(axes) == set(range(1, count))
    assert "hollow: predicted" in legend_words(axes)
    assert "hollow: predicted" not in legend_words(plot_bars.comparison(frame.from_rows(rows[:1])))


def test_a_shape_of_several_steps_is_drawn_once() -> None:
    """The attention belongs to the step of each weight format, and was measured once."""
    read_texts = [text.get_text() for text in plot_bars.comparison(bwprof.load_example("h200_llama")).get_yticklabels()]
    assert len(read_texts) == len(set(read_texts)) == 32


@pytest.mark.parametrize("kind", plot.KINDS)
def test_axes_have_units(kind: str) -> None:
    axes = drawn(kind)
    units = {
        "comparison": ("(GB/s)", ""),
        "roofline": ("(FLOP/B)", "(TFLOP/s)"),
        "lines": ("N", "(GB/s)"),
        "heatmap": ("N", "M"),
        "speedup": ("(x)", ""),
        "model": ("(ms)", ""),
        "roofs": ("(B)", "(GB/s)"),
        "ridge": ("year", "(FLOP/B)"),
    }[kind]
    assert axes.get_xlabel().partition("\n")[0].endswith(units[0])
    assert axes.get_ylabel().endswith(units[1])
    if kind == "heatmap":
        assert axes.child_axes[0].get_ylabel() == "effective bandwidth (GB/s)"


@pytest.mark.parametrize("kind", plot.KINDS)
def test_texts_are_readable_on_a_dark_ground(kind: str) -> None:
    """WCAG requires a contrast of 4.5; texts with a ground of their own are compared with that."""
    axes = drawn(kind)
    for text in words(axes):
        patch: Any = text.get_bbox_patch()
        ground = patch.get_facecolor() if patch is not None else DARK
        if kind == "heatmap" and text in axes.texts:
            continue  # upon its cell, as `readable` has it
        one, other = sorted((luminance(text.get_color()), luminance(ground[:3] if patch is not None else ground)))
        assert (other + 0.05) / (one + 0.05) >= 4.5, text.get_text()


@pytest.mark.parametrize("kind", plot.KINDS)
def test_every_kind_draws_on_axes_and_changes_no_global_settings(kind: str) -> None:
    before, figures = dict(mpl.rcParams), plt.get_fignums()
    axes = Figure(figsize=(5, 4)).subplots(2, 2)[0, 0]
    assert FUNCTIONS[kind](data_for(kind), ax=axes) is axes
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == figures
    axes.get_figure().canvas.draw()


@pytest.mark.parametrize("kind", plot.KINDS)
def test_every_kind_takes_data_axes_and_its_options(kind: str) -> None:
    """Other arguments are keywords."""
    parameters = list(inspect.signature(FUNCTIONS[kind]).parameters.values())
    assert [parameter.name for parameter in parameters[:2]] == ["data", "ax"]
    assert {parameter.kind for parameter in parameters[2:]} <= {inspect.Parameter.KEYWORD_ONLY}
    assert {parameter.name for parameter in parameters[2:]} == set(plot.KINDS[kind].options)


def test_paths_rows_and_results_of_models_are_drawn(tmp_path: Any) -> None:
    rows = [*pair("a", 100.0, 80.0), *pair("b", 50.0, 60.0)]
    path = bwprof.save(frame.from_rows(rows), tmp_path / "results.json")
    for value in (path, str(path), tmp_path, rows, frame.from_rows(rows)):
        axes = plot_bars.comparison(value, ax=Figure().add_subplot())
        assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [len(plot_bars.comparison(rows[0], ax=Figure().add_subplot()).patches)] == [1]
    llama = bwprof.load_example("h200_llama")
    result = type("Result", (), {"frame": llama})()
    assert plot.model(result, ax=Figure().add_subplot()).get_xlabel() == "time per token (ms)"


@pytest.mark.parametrize("value", [5, [1], object(), {1, 2}])
def test_other_objects_than_data_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"^data is"):
        plot_bars.comparison(value)


HOSTILE = [
    "a$b_{$^\\frac",
    "two\nlines\r\n\tthree",
    "x" * 300,
    "".join(map(chr, range(0x20))) + "\x7f\x9f\ud800\ufffe\u202eabc<&>",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "",
]


@pytest.mark.parametrize("kind", ["comparison", "roofline", "lines", "heatmap", "speedup"])
def test_any_name_can_be_drawn(kind: str) -> None:
    data = swept({"N": [16, 64], "M": [1, 4]})
    parts = []
    for name in HOSTILE:
        part = data.copy()
        for column in ("case", "device", "variant", "flags"):  # as objects: Arrow's texts hold no lone surrogate
            text = f"{name}{len(parts)}" if column == "case" else name
            part[column] = pd.Series([text] * len(part), part.index, dtype=object)
        parts.append(part)
    parts[1]["precision"] = pd.Series([HOSTILE[3] + "9"] * len(parts[1]), parts[1].index, dtype=object)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        axes = render(plot.KINDS[kind].picture(pd.concat(parts, ignore_index=True)))
    assert overlapping(axes) == []
    assert outside(axes) == []


def test_any_name_of_a_models_operation_can_be_drawn() -> None:
    data = bwprof.load_example("h200_llama").head(28).copy()
    names = dict(zip(data["role"].unique(), HOSTILE, strict=False))
    data["role"] = pd.Series([names.get(role, role) for role in data["role"]], data.index, dtype=object)
    data["model"] = HOSTILE[2]
    axes = render(plot.KINDS["model"].picture(data))
    assert overlapping(axes) == outside(axes) == []


ODD: dict[str, dict[str, Any]] = {
    "no speed": {"bandwidth_gb_s": float("nan")},
    "no time": {"time_ms": float("nan")},
    "endless": {"bandwidth_gb_s": float("inf"), "tflops": float("inf"), "time_ms": float("inf")},
    "nothing": {"bandwidth_gb_s": 0.0, "time_ms": 0.0, "tflops": 0.0},
    "below": {"bandwidth_gb_s": -1.0, "time_ms": -1.0, "tflops": -1.0, "attainable_gb_s": -5.0},
    "huge": {"bandwidth_gb_s": 1e99, "time_ms": 1e-99, "tflops": 1e99, "attainable_gb_s": 1e99},
    "no roofs": {"attainable_gb_s": float("nan"), "peak_gb_s": float("nan"), "ceiling_gb_s": float("nan")},
    "no bytes": {"bytes_read": pd.NA, "bytes_written": pd.NA, "footprint_bytes": pd.NA},
}


SWEPT = ("comparison", "roofline", "lines", "heatmap", "speedup")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", SWEPT)
def test_odd_numbers_in_every_row_are_drawn_or_refused(kind: str, odd: str) -> None:
    """The picture is drawn, or the error says that there is nothing to draw."""
    data = swept({"N": [16, 64], "M": [1, 4]}, tflops=3.0).assign(**ODD[odd])
    figure, refused = Figure(dpi=40), ""
    try:
        FUNCTIONS[kind](data, ax=figure.add_subplot())
        figure.canvas.draw()
    except ValueError as error:
        refused = str(error)
    assert not refused or "nothing to draw" in refused or "no rows" in refused


@pytest.mark.parametrize("kind", SWEPT)
def test_odd_numbers_in_some_rows_leave_the_rest(kind: str) -> None:
    data = swept({"N": [16, 64, 256], "M": [1, 4, 16]}, tflops=3.0)
    for place, values in enumerate(ODD.values()):
        for name, value in values.items():
            data.loc[data.index[place], name] = value
    render(plot.KINDS[kind].picture(data))


@pytest.mark.parametrize(
    ("kind", "missing", "words_of"),
    [
        ("comparison", "bandwidth_gb_s", "column bandwidth_gb_s is missing"),
        ("roofline", "precision", "column precision is missing"),
        ("lines", "time_ms", "column time_ms is missing"),
        ("speedup", "bytes_read", "column bytes_read is missing"),
        ("model", "role", "not a model's frame: column role is missing"),
        ("roofs", "", "metadata hold no roofs"),
    ],
)
def test_a_missing_column_is_named(kind: str, missing: str, words_of: str) -> None:
    data = bwprof.load_example("h200_llama") if kind == "model" else swept({"N": [16, 64]})
    with pytest.raises(ValueError, match=words_of):
        FUNCTIONS[kind](data.drop(columns=[missing] if missing else []))


@pytest.mark.parametrize("kind", plot.KINDS)
def test_empty_frames_are_refused(kind: str) -> None:
    """The ridge needs rows of a known device."""
    with pytest.raises(ValueError, match=r"no rows|nothing|device|model"):
        FUNCTIONS[kind](frame.from_rows([]))


def test_rows_need_a_precision() -> None:
    with pytest.raises(ValueError, match="column precision"):
        plot_bars.comparison([{"operation": "mine", "time_ms": 1.0}])


@pytest.mark.parametrize("kind", ["comparison", "speedup"])
def test_a_page_has_at_most_150_lines(kind: str) -> None:
    """150 cases of 0.26 or 0.27 inches."""
    rows = [made for number in range(151) for made in pair(f"case {number}", 100.0, 80.0)]
    assert 40 < plot.KINDS[kind].picture(rows).size[1] < 43


# ---- what each kind shows ----


def test_a_roofline_distinguishes_measured_from_theoretical_roofs() -> None:
    """FP32 at 50 TFLOP/s measured and 60 theoretical, memory at 100 and 125 GB/s: ridges at 500 and 480 FLOP/B."""
    roofs = {"ceiling_gb_s": 100.0, "peak_gb_s": 125.0, "measured_tflops": 50.0, "peak_tflops": 60.0}
    work = {"flops": 10**6, "arithmetic_intensity": 8.0, "tflops": 0.8, "backend": "cuda"}
    rows = [row("a", "fp32", **roofs, **work), row("copy", "fp32", flops=0, backend="cuda", **roofs)]
    axes = render(plot.KINDS["roofline"].picture(rows))
    straight = [line for line in axes.lines if len(line.get_xdata()) == 2]
    ends = {tuple(np.round(line.get_xydata()[-1], 3)): line.is_dashed() for line in straight}
    bends = {place: dashed for place, dashed in ends.items() if place[0] < axes.get_xlim()[1] * 0.99}
    assert bends == {(500.0, 50.0): False, (480.0, 60.0): True}
    text = read_texts(axes)
    assert "ridge FP32: 500 FLOP/B" in text
    guessed = [*rows, *(rows[0] | {"status": "predicted", "peak_gb_s": 120.0, "case": name} for name in "bcd")]
    words_of = legend_words(render(plot.KINDS["roofline"].picture(guessed)))
    assert ["125"] in [re.findall(r"\d+", word) for word in words_of if "theoretical: memory" in word]
    assert ["50.0", "60.0"] in [re.findall(r"[\d.]+", word.partition(":")[2]) for word in legend_words(axes)]
    assert "without FLOPs: copy" in text


def test_a_roofline_of_a_cpu_has_no_theoretical_roof() -> None:
    """Its peak rate is measured in registers."""
    rows = [row("a", "fp32", flops=10**6, arithmetic_intensity=8.0, tflops=0.8, peak_tflops=2.0, ceiling_gb_s=100.0)]
    text = read_texts(render(plot.KINDS["roofline"].picture(rows)))
    assert "2.00 in registers" in text
    assert "theoretical" not in text


def test_no_mark_of_a_roofline_hides_another() -> None:
    """Three precisions on one spot, of which one is doubted."""
    roofs = {"ceiling_gb_s": 100.0, "measured_tflops": 50.0, "flops": 10**6, "backend": "cuda"}
    there = {"arithmetic_intensity": 8.0, "tflops": 0.8, **roofs}
    rows = [row("a", name, **there) for name in ("fp32", "tf32")] + [row("a", "fp16", flags="noisy", **there)]
    rows += [row("b", "fp32", arithmetic_intensity=2.0, tflops=0.1, **roofs)]
    axes = render(plot.KINDS["roofline"].picture(rows))
    marks = [
        (line.get_markersize(), line.get_zorder(), line.get_marker())
        for line in axes.lines
        if line.get_linewidth() == 0 and (8.0, 0.8) in map(tuple, line.get_xydata())
    ]
    assert len(marks) == len({size for size, *_ in marks}) == len({marker for *_, marker in marks}) == 3
    assert sorted(marks) == sorted(marks, key=lambda mark: -mark[1]), "the smaller ones above"
    assert min(later - earlier for earlier, later in pairwise(sorted(size for size, *_ in marks))) >= 2
    assert "on one spot" in read_texts(axes)
    apart = read_texts(render(plot.KINDS["roofline"].picture([rows[0], rows[3]])))
    assert "on one spot" not in apart


def test_lines_have_streams_and_the_cache() -> None:
    """Bytes are 4000 N: they fill the cache of 200 000 bytes at N = 50, and half of them at N = 100."""
    axes = render(plot.KINDS["lines"].picture(swept({"N": [16, 32, 64, 128]})))
    upright = [float(line.get_xdata()[0]) for line in axes.lines if list(line.get_ydata()) == [0, 1]]
    assert upright == pytest.approx([50.0, 100.0])
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [list(line.get_ydata()) for line in dotted] == [[150.0, 151.0, 152.0, 153.0]]
    assert {"attainable", "bytes"} <= {word.partition(":")[0].split()[0] for word in legend_words(axes)}
    assert f"({format_bytes(200_000)})" in read_texts(axes)
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["16", "32", "64", "128"]


def test_lines_of_a_model_are_split_by_shapes() -> None:
    """N and K name the lines, not the columns of steps."""
    made = legend_words(sweeps.lines(bwprof.load_example("h200_llama")))
    assert [word for word in made if "count" in word or "step_batch" in word or "context" in word] == []
    assert {"N=6144 K=4096", "N=128256 K=4096"} <= set(made)


def test_lines_of_other_columns_and_unknown_ones() -> None:
    data = swept({"N": [16, 32], "M": [1, 4]})
    axes = sweeps.lines(data, ax=Figure().add_subplot(), x="M", y="time_ms")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("M", "time (ms)")
    with pytest.raises(ValueError, match=r"^y: .*'time_m'.*'time_ms'"):
        sweeps.lines(data, y="time_m")
    with pytest.raises(ValueError, match=r"^x: .*'Q'"):
        sweeps.lines(data, x="Q")
    with pytest.raises(ValueError, match="no parameter"):
        sweeps.lines(swept({"N": [16]}))


def test_a_heatmap_has_a_cell_for_each_pair() -> None:
    axes = drawn("heatmap")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["16", "32", "64", "128"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "4"]
    assert sorted(text.get_text() for text in axes.texts) == [str(100 + number) for number in range(8)]
    with pytest.raises(ValueError, match=r"two parameters .*: N$"):
        sweeps.heatmap(swept({"N": [16, 32]}))
    with pytest.raises(ValueError, match="unknown precision 'fp64'"):
        sweeps.heatmap(data_for("heatmap"), precision="fp64")


def test_a_speedup_is_bytes_times_bandwidths() -> None:
    """Half the bytes at 0.8 of the bandwidth: 1.6, with 1.6 to 2 lost; at 1.2 of it: 2.4, with 2 to 2.4 gained."""
    axes = render(plot.KINDS["speedup"].picture([*pair("a", 100.0, 80.0), *pair("b", 50.0, 60.0)]))
    bars = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches)
    assert np.allclose(bars, [(1, 1.6), (1, 2), (1.6, 2), (2, 2.4)])
    factors = [re.findall(r"[\d.]+", text.get_text()) for text in axes.texts]
    assert factors == [["1.60", "2.00", "0.80"], ["2.40", "2.00", "1.20"]]
    data = [*pair("a", 100.0, 80.0), row("a", "int8", gb_s=80.0, bytes_read=2000)]
    axes = render(plot.KINDS["speedup"].picture(data))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a fp32->fp16", "a fp16->int8"]
    assert len({bar.get_facecolor() for bar in axes.patches if bar.get_x() == 1.0}) == 2
    with pytest.raises(ValueError, match=r"bf16 .*fp32, fp16"):
        gains.speedup(pair("a", 100.0, 80.0), to="bf16")


def test_a_models_steps_add_up() -> None:
    """As `bwprof.model_step` adds them: the recorded step at batch 1 takes 4.12 ms."""
    axes = drawn("model")
    data = data_for("model").query("phase == 'decode' and step_batch == 1 and weights == 'fp16'")
    total = float((data["time_ms"] * data["count"]).sum())
    first = [bar for bar in axes.patches if abs(bar.get_y() + bar.get_height() / 2) < 0.01]
    assert sum(bar.get_width() for bar in first) == pytest.approx(total)
    assert f"{total:.3g} ms, {1e3 / total:.0f} tokens/s" in read_texts(axes)
    with pytest.raises(ValueError, match="unknown phase 'decod'"):
        plot.model(data_for("model"), phase="decod")


def test_roofs_are_read_from_objects_and_files(tmp_path: Any) -> None:
    from bwprof.analysis.gains import read_run_roofs
    from bwprof.roofs import store

    found = read_run_roofs(bwprof.load_example("h200"))
    assert found is not None
    store.export(found, tmp_path / "roofs.json")
    (tmp_path / "stored.json").write_text(json.dumps({"identity": {}, "roofs": found.to_dict()}))
    for value in (found, tmp_path / "roofs.json", tmp_path / "stored.json"):
        axes = stream_curves.roofs(value, ax=Figure().add_subplot())
        read = next(line for line in axes.lines if len(line.get_xdata()) > 3)
        first = [point for point in found.points if point.stream == found.points[0].stream]
        points = sorted((point.total_bytes, point.gb_s) for point in first)
        assert np.allclose(read.get_xydata(), points)
    text = read_texts(drawn("roofs"))
    assert "4814 GB/s" in text
    assert "(60 MiB)" in text


def test_ridges_stand_at_their_years() -> None:
    """H200: 989.4 TFLOP/s and 4800 GB/s are 206 FLOP/B, of 2023."""
    axes = drawn("ridge")
    squares = [tuple(point) for line in axes.lines if line.get_marker() == "s" for point in line.get_xydata()]
    assert any(abs(y - 206.125) < 1e-3 and round(x) == 2023 for x, y in squares)
    assert "measured" in read_texts(axes), "the recorded run is of a device of the catalog"
    with pytest.raises(ValueError, match="'fp31'"):
        stream_curves.ridge(precisions=["fp31"])
    with pytest.raises(ValueError, match=r"catalog.*Test CPU"):
        stream_curves.ridge(pair("a", 100.0, 80.0))
