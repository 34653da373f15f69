"""`bwprof history`: tables that fit into 80 columns, data for others, pictures of times over time."""

from __future__ import annotations

import io
import json
import re
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import matplotlib.dates
import pandas as pd
import pytest
from matplotlib.figure import Figure
from past import timed, week, write
from words import words

from bwprof.cli import main
from bwprof.plot import regressions, styles
from bwprof.records.history import history


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error."""
    capsys.readouterr()
    assert main(["history", *arguments]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def changing(root: Path) -> None:
    """Five days: FP32 becomes slower on the fourth, with another driver and version."""
    for day in range(1, 6):
        more = {"driver": "580.159.04", "bwprof_version": "0.1.0"}
        if day >= 4:
            more = {"driver": "590.10.01", "bwprof_version": "0.2.0"}
        slower = 1.08 if day >= 4 else 1.0
        rows = [
            timed("decode_attention_32k", "fp32", 0.002 * slower, **more),
            timed("decode_attention_32k", "fp16", 0.001, **more),
        ]
        write(root, day, rows)


def test_an_interval_wider_than_its_time_is_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 1.0) | {"time_ms_lo": 0.5, "time_ms_hi": 6.5}])  # half of it: 3 ms
    out, _ = printed(capsys, "a", "--folder", str(tmp_path))
    assert "|300 |" in out
    assert "inf" not in out


def test_the_last_state_of_every_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changing(tmp_path)
    out, err = printed(capsys, "--folder", str(tmp_path))
    lines = out.splitlines()
    assert lines[0].strip() == "Test CPU on box"
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[3:5]]
    assert cells[0][:5] == ["decode_attention_32k", "fp32", "5", "2.16 us", "4.63"]
    assert cells[0][5:] == ["+0.0 %", "slower 2026-01-04"]
    assert cells[1][-1] == ""
    assert re.search("5 runs, 2026-01-01.*2026-01-05;.*1 change", out)
    assert max(map(len, lines)) <= 80
    assert err == ""


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"status": "predicted"}, "predicted"),
        ({"flags": "not_cold;noisy"}, "noisy"),
        ({"flags": "unverified"}, "unverified"),
        ({"flags": "not_cold"}, ""),
    ],
)
def test_a_doubtful_time_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, str], word: str
) -> None:
    """Also where it is the last of its case: the table of all cases shows nothing else of it."""
    write(tmp_path, 1, [timed("a", "fp32", 0.002)])
    write(tmp_path, 2, [timed("a", "fp32", 0.001) | more])
    out, _ = printed(capsys, "--folder", str(tmp_path))
    (line,) = [line for line in out.splitlines() if line.startswith("a ")]
    assert "1 us" in line
    phrase = line.split("|")[-1].strip()
    assert phrase.startswith(word) if word else "not_cold" not in phrase


def test_the_runs_of_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changing(tmp_path)
    out, _ = printed(capsys, "decode*", "--dir", str(tmp_path), "--precision", "fp32")
    lines = out.splitlines()
    assert lines[0].strip() == "decode_attention_32k fp32 plain"
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[3:8]]
    assert cells[3] == [
        "2026-01-04 10:00",
        "2.16 us",
        "0.1",
        "4.63",
        "slower +8.0 %",
        "; ".join(["driver 580.159.04 -> 590.10.01", "bwprof 0.1.0 -> 0.2.0"]),
    ]
    assert [line[4] for line in cells[:3]] == ["", "+0.0 %", "+0.0 %"]
    out, _ = printed(capsys, "decode*", "--dir", str(tmp_path), "--last", "2", "--precision", "fp32")
    assert [line[:10] for line in out.splitlines()[3:5]] == ["2026-01-04", "2026-01-05"]
    assert "slower +8.0 %" in out


def test_a_narrow_terminal(tmp_path: Path) -> None:
    """Words of the last column are folded, not the figures."""
    from rich.console import Console

    from bwprof.cli.commands.history import runs_table

    changing(tmp_path)
    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    screen.print(runs_table(screen, history(tmp_path, precision="fp32")))
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("slower +8.0 %" in line for line in lines)


def test_long_tables_show_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(1, 24):
        write(tmp_path, day, [timed("a", "fp32", 1.0)])
    out, _ = printed(capsys, "a", "--folder", str(tmp_path))
    assert {"20", "23", "--last"} <= words(out)
    assert "2026-01-23" in out
    assert "2026-01-03" not in out


def test_results_as_frames_of_other_libraries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changing(tmp_path)
    out, _ = printed(capsys, "--folder", str(tmp_path), "--csv")
    found = pd.read_csv(io.StringIO(out))
    assert found["change"].fillna("").tolist() == ["", ""] * 3 + ["slower", "", "", ""]
    out, _ = printed(capsys, "--folder", str(tmp_path), "--json", "--last", "1")
    assert [one["run_id"] for one in json.loads(out)] == ["run-05", "run-05"]
    assert json.loads(out)[0]["started"].startswith("2026-01-05T10:00:00")


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["decod", "--folder", "."], "unknown case 'decod': did you mean 'decode'?"),
        (["--folder", "nowhere"], "nowhere: no such folder"),
        (["--folder", ".", "--last", "0"], "last is 0"),
        (["--folder", ".", "--last", "x"], "--last: 'x' is not a whole number"),
        (["--folder", ".", "--gate", "300%"], "gate is '300%'"),
        (["--folder", ".", "--plot", "x.xyz"], "unknown ending of a picture '.xyz'"),
        (["--folder", ".", "--csv", "--json"], "not allowed with"),
        (["--folder", "empty", "--plot", "x.png"], "there are no times to draw"),
    ],
)
def test_wrong_options_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    phrase: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    week(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    _, err = printed(capsys, *arguments, code=2)
    assert phrase in err


def test_no_runs_and_runs_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no runs" in printed(capsys, "--folder", str(tmp_path))[0]
    write(tmp_path, 1, [])
    assert "1 runs without rows" in printed(capsys, "--folder", str(tmp_path))[0]


def test_unreadable_runs_are_named_beside_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    week(tmp_path)
    (tmp_path / "odd\nname\x1b[31m").mkdir()
    (tmp_path / "odd\nname\x1b[31m" / "results.json").write_text("{}")
    out, err = printed(capsys, "--folder", str(tmp_path))
    assert "decode" in out
    assert err.count("cannot be read") == 1
    assert "\x1b" not in err


def test_control_characters_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 1, [timed("a\x1b[31m [bold]", "fp32", 1.0, variant="\u202e", device="[red]")])
    for arguments in ([], ["a*"]):
        out, _ = printed(capsys, *arguments, "--folder", str(tmp_path))
        assert "\\x1b[31m [bold]" in out
        assert "\x1b" not in out
    assert regressions.save_trend(history(tmp_path), tmp_path / "x.svg").read_text().startswith("<?xml")


def test_progress_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    week(tmp_path)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert main(["history", "--folder", str(tmp_path)]) == 0
    assert "reading runs" in screen.getvalue()
    capsys.readouterr()


# ---- the picture ----


def drawn(data: pd.DataFrame) -> tuple[Figure, list[str]]:
    """A figure with the trend in it, and all its texts."""
    figure = Figure(figsize=(9.5, 4.2))
    ax = figure.add_subplot()
    assert regressions.trend(data, ax) is ax
    figure.canvas.draw()
    return figure, [text.get_text() for text in ax.texts]


def test_lines_marks_and_triangles(tmp_path: Path) -> None:
    changing(tmp_path)
    figure, words = drawn(history(tmp_path))
    (ax,) = figure.axes
    assert words == ["driver 590.10.01\nbwprof 0.2.0"]
    lines = {line.get_label(): line for line in ax.lines if not str(line.get_label()).startswith("_")}
    assert [label.split("\n")[0] for label in lines] == ["FP32", "FP16"]
    slower = [line for line in ax.lines if line.get_marker() == "^" and len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in slower] == [[pytest.approx(108.0)]]  # of the median, 0.002 ms
    assert ax.get_ylabel() == "time (% of median)"
    upright = [
        line for line in ax.lines if len(set(map(str, line.get_xdata()))) == 1 and list(line.get_ydata()) == [0, 1]
    ]
    assert len(upright) == 1


def test_a_precision_has_its_mark_and_no_mark_hides_another(tmp_path: Path) -> None:
    """Four times that are one: each mark is its precision's, as in every picture, smaller than those below it."""
    write(tmp_path, 1, [timed("a", precision, 0.002) for precision in ("fp32", "tf32", "fp16", "bf16")])
    figure, _ = drawn(history(tmp_path))
    lines = [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]
    assert [line.get_marker() for line in lines] == [
        styles.style(name).marker for name in ("fp32", "tf32", "fp16", "bf16")
    ]
    sizes = [line.get_markersize() for line in lines]
    assert sizes == sorted(set(sizes), reverse=True)


def test_variants_of_a_precision_are_distinct(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 0.002) | {"variant": name} for name in ("one", "two")])
    figure, _ = drawn(history(tmp_path))
    lines = [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]
    assert len({(line.get_fillstyle(), line.get_linestyle()) for line in lines}) == len(lines) == 2


def test_predictions_are_not_drawn_among_measurements(tmp_path: Path) -> None:
    write(tmp_path, 1, [timed("a", "fp32", 0.002)])
    write(tmp_path, 2, [timed("a", "fp32", 0.001) | {"status": "predicted"}])
    figure, _ = drawn(history(tmp_path))
    (line,) = [line for line in figure.axes[0].lines if str(line.get_label()).startswith("FP32")]
    assert len(line.get_xdata()) == 1


@pytest.mark.parametrize("count", [1, 5, 300])
def test_dates_are_readable(tmp_path: Path, count: int) -> None:
    """Three to eight of them, none upon another."""
    week(tmp_path, [1.0])
    one = history(tmp_path)
    whole = pd.concat(
        [
            one.assign(started=one["started"] + timedelta(days=day), time_ms=one["time_ms"] + day / 1e4)
            for day in range(count)
        ],
        ignore_index=True,
    )
    figure, _ = drawn(whole)
    ax = figure.axes[0]
    labels = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
    low, high = ax.get_xlim()
    visible = [box for box, place in zip(labels, ax.get_xticks(), strict=True) if low <= place <= high]
    assert 3 <= len(visible) <= 9
    assert all(left.x1 < right.x0 for left, right in pairwise(visible))
    assert isinstance(ax.xaxis.get_major_formatter(), matplotlib.dates.ConciseDateFormatter)


def test_a_panel_for_each_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [f"case_{number}" for number in range(5)]
    for day in (1, 2):
        write(tmp_path, day, [timed(case, "fp32", 1.0) for case in cases])
    seen: list[list[str]] = []
    real = Figure.savefig

    def look(figure: Figure, *arguments: object, **options: object) -> None:
        seen.append([ax.get_title(loc="left") for ax in figure.axes if ax.axison])
        real(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", look)
    target = regressions.save_trend(history(tmp_path), tmp_path / "trend.png")
    assert target.read_bytes().startswith(b"\x89PNG")
    assert seen == [cases]


def test_a_picture_needs_a_history(tmp_path: Path) -> None:
    week(tmp_path)
    with pytest.raises(ValueError, match="started, series, change, marks"):
        regressions.trend(history(tmp_path).drop(columns=["started", "series", "change", "marks"]))
    with pytest.raises(ValueError, match="no times to draw"):
        regressions.trend(history(tmp_path).assign(time_ms=float("nan")))
