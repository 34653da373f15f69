"""What pictures are asked for by mistake, or by damaged data: a sentence, or as much of it as can be drawn."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rows import pair

import bwprof
from bwprof import plot
from bwprof.cli.commands.plot import main_plot
from bwprof.plot import bars, gains, regressions, stream_curves
from bwprof.results import frame

ROWS = [made for n in (16, 64) for m in (1, 4) for made in pair(f"case {n} {m}", 100.0 + n, 80.0 + m, N=n, M=m)]


def compared() -> pd.DataFrame:
    return bwprof.compare(frame.from_rows(pair("a", 100.0, 80.0)), frame.from_rows(pair("a", 50.0, 81.0)))


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The history of two runs."""
    folder = tmp_path_factory.mktemp("past")
    for day in (1, 2):
        when = {"run_id": f"run-{day}", "timestamp": f"2026-01-0{day}T00:00:00.000+00:00"}
        (folder / f"{day}").mkdir()
        bwprof.save(frame.from_rows(pair("a", 100.0 + day, 80.0, **when)), folder / f"{day}" / "results.json")
    return bwprof.history(folder)


def axes() -> Axes:
    figure = Figure(dpi=40)
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def drawn(function: Callable[..., Axes], data: Any) -> Axes:
    made = function(data, ax=axes())
    made.get_figure().canvas.draw()
    return made


def test_a_failed_write_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bwprof.save(frame.from_rows(ROWS), "results.json")
    Path("a.png").write_bytes(b"older")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be cut off in silence
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        code = main_plot(["results.json", "-o", "a.png", "--force"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (code, Path("a.png").read_bytes()) == (3, b"older")
    assert "a.png" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "results.json"]


@pytest.mark.parametrize("projection", ["polar", "3d", "mollweide"])
def test_only_plain_axes_are_drawn_on(projection: str, past: pd.DataFrame) -> None:
    figure = Figure()
    for function, data in ((bars.comparison, ROWS), (regressions.ratios, compared()), (regressions.trend, past)):
        with pytest.raises(ValueError, match=f"'{projection}'"):
            function(data, ax=figure.add_subplot(projection=projection))


@pytest.mark.parametrize("value", [5, "x", Figure(), np.zeros(1), plt])
def test_objects_that_are_no_axes_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^ax is"):
        bars.comparison(ROWS, ax=value)


def test_axes_without_a_figure_are_refused() -> None:
    gone = Figure().add_subplot()
    gone.remove()
    with pytest.raises(ValueError, match=r"^ax .* figure"):
        bars.comparison(ROWS, ax=gone)


def test_axes_of_a_subfigure_are_measured() -> None:
    """The axes have half of 12 inches, and 4 of 5."""
    from bwprof.plot.canvas import measure_axes

    figure = Figure(figsize=(12, 5))
    FigureCanvasAgg(figure)
    made = figure.subfigures(1, 2)[0].subplots()
    made.set_position((0.25, 0.1, 0.5, 0.8))
    assert measure_axes(made) == pytest.approx((3.0, 4.0))
    bars.comparison(ROWS, ax=made)
    figure.canvas.draw()


@pytest.mark.parametrize("function", [regressions.ratios, gains.ablation, regressions.trend])
def test_other_objects_than_frames_are_refused(function: Callable[..., Axes]) -> None:
    for value in (None, 5, [], {}):
        with pytest.raises(TypeError, match=r"comparison|ladder|history"):
            function(value)
    with pytest.raises(FileNotFoundError if function is gains.ablation else TypeError, match="path"):
        function("path")


def test_hostile_files_of_ablations(tmp_path: Path) -> None:
    """A file is drawn, or refused by its name."""
    path = tmp_path / "ladder.json"
    variant = {"version": "<b>$x^2$", "kind": "variant", "status": "ok", "precision": "fp32", "speedup_vs_first": 1.0}
    for odd in ("x", None, [1], {"a": 1}, True, 1e308, -1.0):
        rows = [
            variant | {"predicted_gain": odd, "flags": odd},
            variant | {"speedup_vs_first": odd, "predicted_gain": 2.0},
        ]
        path.write_text(json.dumps({"format": "bwprof-ladder", "rows": rows}))
        assert drawn(gains.ablation, path).get_yticklabels()
    for wrong in ([], {}, {"format": "bwprof-ladder"}, {"format": "bwprof-ladder", "rows": [1]}, {"format": 5}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=r"ladder\.json .*ablation"):
            gains.ablation(path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"ladder\.json"):
        gains.ablation(path)
    table, names = tmp_path / "ladder.csv", ",".join(variant)
    for odd in ("x", "1e308", "-1", "nan", "NA"):
        lines = [f"{names},predicted_gain", f"NA,variant,ok,fp32,1.0,{odd}", f"=1+1,variant,ok,fp32,{odd},2.0"]
        table.write_text("\n".join(lines))
        assert [label.get_text() for label in drawn(gains.ablation, table).get_yticklabels()] == ["NA", "=1+1"]
    for wrong in ("", "\n", "version,kind\na,b\n", f"{names},predicted_gain\na,b\n1,2,3,4,5,6,7,8\n"):
        table.write_text(wrong)
        with pytest.raises(ValueError, match=r"ladder\.csv .*ablation"):
            gains.ablation(table)


@pytest.mark.parametrize("twice", ["ratios", "trend"])
def test_repeated_columns_are_refused(twice: str, past: pd.DataFrame) -> None:
    data = compared() if twice == "ratios" else past
    with pytest.raises(ValueError, match="'case' is there twice"):
        getattr(plot, twice)(pd.concat([data, data[["case"]]], axis=1), ax=axes())
    with pytest.raises(ValueError, match="2 levels of names"):
        getattr(plot, twice)(pd.concat({"x": data}, axis=1), ax=axes())


@pytest.mark.parametrize("odd", [1e308, 5e-324, "x", None, 1j, -1.0, 0.0, float("inf"), 10**30])
def test_odd_numbers_in_a_row_leave_the_other_rows(odd: Any, past: pd.DataFrame) -> None:
    ratios = compared().astype(object)
    ratios.loc[ratios.index[0], ["ratio", "ratio_lo", "ratio_hi", "threshold_pct"]] = [odd] * 4
    assert any("fp16" in word.get_text() for word in drawn(regressions.ratios, ratios).get_yticklabels())
    times = past.astype(object)
    times.loc[times.index[0], ["time_ms", "time_ms_lo", "time_ms_hi"]] = [odd] * 3
    assert drawn(regressions.trend, times).get_title(loc="left") == "a"


def test_a_history_in_any_form_is_drawn(past: pd.DataFrame) -> None:
    named = past.set_index(pd.Index(range(len(past)), name="case"))
    for value in (past.astype("category"), past.astype(object), named):
        assert drawn(regressions.trend, value).get_title(loc="left") == "a"


def test_a_phase_is_not_parsed_as_a_formula() -> None:
    data = bwprof.load_example("h200_llama").head(14).assign(phase="$\\frac$")
    assert "$\\frac$" in drawn(plot.model, data).get_xlabel()


def test_a_heatmap_of_failed_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        plot.heatmap(frame.from_rows([{**row, "status": "failed"} for row in ROWS]), ax=axes())


def test_a_heatmap_needs_two_parameters() -> None:
    with pytest.raises(ValueError, match=r"x and y.*\bM\b"):
        plot.heatmap(ROWS, x="M", y="M", ax=axes())
    with pytest.raises(TypeError, match="precision is 5"):
        plot.heatmap(ROWS, precision=5, ax=axes())  # type: ignore[arg-type]


def test_ridges_of_one_precision_and_of_unknown_devices() -> None:
    """Of a thousand unknown devices five are named."""
    legend: Any = stream_curves.ridge(ax=axes(), precisions="fp32").get_legend()
    assert "FP32" in legend.get_texts()[0].get_text()
    with pytest.raises(ValueError, match="precisions is 5"):
        stream_curves.ridge(ax=axes(), precisions=5)  # type: ignore[arg-type]
    rows = [made for n in range(1000) for made in pair("a", 1.0, 1.0, device=f"card {n}")]
    with pytest.raises(ValueError, match=r"card 4 .*\b995\b"):
        stream_curves.ridge(rows, ax=axes())


def test_write_takes_one_path_and_refuses_wrong_arguments(tmp_path: Path) -> None:
    assert plot.write(ROWS, str(tmp_path / "a.svg")) == [tmp_path / "a.svg"]
    for value, error, content in (
        ({"dpi": 5}, ValueError, "dpi is 5: allowed are 10 to 2000"),
        ({"dpi": "x"}, ValueError, "dpi: 'x' is not a whole number"),
        ({"kind": []}, ValueError, "unknown kind of picture"),
        ({"targets": 5}, TypeError, "targets is 5: files are needed"),
        ({"targets": [b"x"]}, TypeError, "a path is needed"),
    ):
        arguments: dict[str, Any] = {"targets": [tmp_path / "b.png"], **value}
        with pytest.raises(error, match=content):
            plot.write(ROWS, **arguments)


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        (["--panels", "--dark", "-o", "a.png"], "--dark is no option of --panels"),
        (["--panels", "--layout", "slide", "-o", "a.png"], "--layout is no option of --panels"),
        (["--output-dir", ""], "--output-dir is ''"),
    ],
)
def test_conflicting_options_are_refused(
    arguments: list[str],
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    bwprof.save(frame.from_rows(ROWS), "results.json")
    assert main_plot(["results.json", *arguments]) == 2
    assert content in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
