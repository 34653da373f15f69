"""The picture: right bars, one look per precision, and no global state touched."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from rows import pair, row

import bwprof
from bwprof.cli.commands.plot import main_plot as plot_main
from bwprof.plot import bars as plot_bars
from bwprof.plot import styles as looks_module
from bwprof.results import frame


def test_bars_show_the_bandwidths() -> None:
    rows = [*pair("a", 100.0, 80.0), *pair("b", 50.0, 60.0)]
    axes = bwprof.plot.comparison(frame.from_rows(rows))
    assert sorted(bar.get_width() for bar in axes.patches) == [50.0, 60.0, 80.0, 100.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlabel() == "effective bandwidth (GB/s)"
    content = [text.get_text() for text in axes.texts]
    assert "1.60\u00d7" in content
    assert "2.40\u00d7" in content


def test_the_nearer_roof_is_marked() -> None:
    """At 50 % of the arithmetic rate the mark is at twice the bandwidth; that of the stream is not drawn."""
    limited = {"pct_limit": 50.0, "pct_attainable": 20.0, "attainable_gb_s": 500.0, "limiter": "compute"}
    near = {"pct_limit": 40.0, "pct_attainable": 40.0, "attainable_gb_s": 250.0, "limiter": "kernel"}
    rows = [row("a", "fp32", gb_s=100.0, **limited), row("b", "fp32", gb_s=100.0, **near)]
    axes = plot_bars.comparison(frame.from_rows(rows))
    marks = {(float(line.get_xdata()[0]), line.get_marker()) for line in axes.lines}
    assert marks == {(200.0, "None"), (200.0, "D"), (250.0, "None")}
    legend = axes.get_legend()
    assert legend is not None
    content = [text.get_text() for text in legend.get_texts()]
    assert [text.split()[0] for text in content[1:]] == ["attainable:", "arithmetic"]


def test_a_number_beyond_a_roof_has_no_ground() -> None:
    """The number of a short bar is right of its roof, on the picture's ground."""
    near = {"attainable_gb_s": 60.0, "pct_attainable": 50.0, "limiter": "memory"}
    axes = plot_bars.comparison(
        frame.from_rows([row("long", "fp32", gb_s=1000.0), row("a", "fp32", gb_s=30.0, **near)])
    )
    number = next(text for text in axes.texts if text.get_text() == "30.0")
    assert number.get_position()[0] > 60.0
    assert number.get_bbox_patch() is None
    assert number.get_color() == looks_module.ink(axes).text


def test_a_number_does_not_cover_the_roof_below_its_bar_end() -> None:
    """The number's ground would hide the mark."""
    over = {"attainable_gb_s": 4459.0, "pct_attainable": 100.5, "limiter": "memory"}
    figure = Figure(figsize=(10.5, 4))
    axes = plot_bars.comparison(frame.from_rows([row("a", "fp32", gb_s=4483.0, **over)]), figure.add_subplot())
    figure.canvas.draw()
    number = next(text for text in axes.texts if text.get_text() == "4483")
    start, roof = axes.transData.transform([(0.0, 0.0), (4459.0, 0.0)])[:, 0]
    around = number.get_window_extent()
    assert start < around.x0 < around.x1 < roof - 2


def test_a_missing_precision_is_explained_beside_the_dots() -> None:
    """Above 20 cases, where a dot or a roof is near the axis."""
    rows = [row(f"case {number}", "fp32", gb_s=1000.0) for number in range(21)]
    rows += [row("odd", "fp32", gb_s=40.0, attainable_gb_s=90.0), row("odd", "fp16", gb_s=None, status="skipped")]
    axes = plot_bars.comparison(frame.from_rows(rows))
    reason = next(text for text in axes.texts if text.get_text() == "FP16 skipped")
    assert reason.get_position()[0] > 90.0


def looks(*precisions: str) -> dict[str, tuple[object, str]]:
    """Color and hatch of each precision's bar in a picture of these, which the legend must have, too."""
    rows = [row("a", name, gb_s=10.0 + number) for number, name in enumerate(precisions)]
    axes = plot_bars.comparison(frame.from_rows(rows))
    bars = {bar.get_width(): (bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}
    found = {name: bars[10.0 + number] for number, name in enumerate(precisions)}
    legend = axes.get_legend()
    assert legend is not None
    handles = {text.get_text(): handle for text, handle in zip(legend.get_texts(), legend.get_patches(), strict=False)}
    assert {name: (handles[name.upper()].get_facecolor(), handles[name.upper()].get_hatch()) for name in found} == found
    return found


def test_a_precision_has_the_same_look_in_all_pictures() -> None:
    known = looks("fp32", "fp16", "bf16", "tf32")
    assert len({color for color, _ in known.values()}) == len({hatch for _, hatch in known.values()}) == 4
    other = looks("q4_0", "bf16", "fp16")
    assert (other["bf16"], other["fp16"]) == (known["bf16"], known["fp16"])
    assert looks("fp32", "q4_0")["q4_0"] == other["q4_0"]
    assert not {other["q4_0"]} & set(known.values())


def test_drawing_uses_the_axes_and_changes_no_global_settings() -> None:
    before = dict(mpl.rcParams)
    axes = Figure().add_subplot()
    assert bwprof.plot.comparison(frame.from_rows(pair("a", 100.0, 80.0)), ax=axes) is axes
    assert dict(mpl.rcParams) == before


def test_saving_does_not_import_pyplot(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from rows import pair; from bwprof import plot; from bwprof.results import frame\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"plot.save(frame.from_rows(pair('a', 100.0, 80.0)), {str(tmp_path / 'p')!r})\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    plain = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=plain)
    assert done.stdout == "False\n"


def test_save_writes_png_and_svg(tmp_path: Path) -> None:
    rows = [
        *pair("a", 100.0, 80.0, attainable_gb_s=110.0, peak_gb_s=120.0),
        row("b", "fp32", gb_s=None, status="failed", reason="x", flags=None),
        row("c", "fp16", flags="not_converged", cache="hot"),
    ]
    written = plot_bars.save(frame.from_rows(rows), tmp_path / "picture")
    assert [path.name for path in written] == ["picture.png", "picture.svg"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in written[1].read_text()


def test_failed_hot_and_flagged_rows_are_marked() -> None:
    rows = [
        row("a", "fp32", gb_s=None, status="failed", reason="x"),
        row("b", "fp32", flags="not_converged", cache="hot"),
    ]
    axes = bwprof.plot.comparison(frame.from_rows(rows))
    content = [text.get_text() for text in axes.texts]
    assert "FP32 failed" in content
    assert "100*" in content
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b (hot)"]


@pytest.mark.parametrize(
    ("flags", "content"),
    [
        (["noisy"], "noisy: see flags"),
        (["not_cold", "noisy;not_converged", "noisy", ""], "noisy, not_cold, not_converged: see flags"),
        (["a" * 300], "a" * 59 + "\u2026: see flags"),
    ],
)
def test_the_legend_lists_flags(flags: list[str], content: str) -> None:
    """The most frequent flag comes first."""
    legend = plot_bars.comparison(
        frame.from_rows([row(str(n), "fp32", flags=f) for n, f in enumerate(flags)])
    ).get_legend()
    assert legend is not None
    assert legend.get_texts()[-1].get_text() == content


def test_the_legend_has_no_entry_for_flags_without_flags() -> None:
    legend = plot_bars.comparison(frame.from_rows([row("a", "fp32", flags="")])).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["FP32"]


def test_a_file_of_nine_columns_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written\n"
        "decode,FP32,1,896,896,0.008,400,3200000,0\ndecode,FP16,1,896,896,0.005,320,1600000,0\n"
    )
    axes = bwprof.plot.comparison(bwprof.load(path))
    assert sorted(bar.get_width() for bar in axes.patches) == [320.0, 400.0]


def test_an_empty_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        bwprof.plot.comparison(frame.from_rows([]))


@pytest.mark.parametrize("name", ["a$b_{$^", "x" * 400, "[red]"])
def test_any_name_can_be_drawn(tmp_path: Path, name: str) -> None:
    rows = pair(name, 100.0, 80.0, device="$_{$")
    assert len(plot_bars.save(frame.from_rows(rows), tmp_path / "a")) == 2
    assert plot_bars.save(frame.from_rows(rows), tmp_path / "b.png") == [tmp_path / "b.png", tmp_path / "b.svg"]


def test_infinite_numbers_have_no_bar(tmp_path: Path) -> None:
    rows = [row("a", "fp32", gb_s=50.0), row("a", "fp16", gb_s=float("inf"), attainable_gb_s=float("inf"))]
    plot_bars.save(frame.from_rows(rows), tmp_path / "a")
    axes = plot_bars.comparison(frame.from_rows(rows))
    assert 50 < axes.get_xlim()[1] < 60
    assert "FP16 unknown" in [text.get_text() for text in axes.texts]


def test_a_notebook_gets_a_figure_of_pyplot() -> None:
    before = plt.get_fignums()
    axes = plot_bars.comparison(frame.from_rows(pair("a", 100.0, 80.0)))
    assert plt.gcf() is axes.figure
    assert len(plt.get_fignums()) == len(before) + 1


def test_a_saved_picture_leaves_no_figure_behind(tmp_path: Path) -> None:
    before = plt.get_fignums()
    plot_bars.save(frame.from_rows(pair("a", 100.0, 80.0)), tmp_path / "a")
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("x.pdf", ["x.pdf"]),
        ("x.PDF", ["x.PDF"]),
        ("x.svgz", ["x.svgz"]),
        ("x.png", ["x.png", "x.svg"]),
        ("x.v2", ["x.v2.png", "x.v2.svg"]),
        ("x", ["x.png", "x.svg"]),
    ],
)
def test_the_ending_decides_the_files(tmp_path: Path, name: str, files: list[str]) -> None:
    written = plot_bars.save(frame.from_rows(pair("a", 100.0, 80.0)), tmp_path / name)
    assert [path.name for path in written] == files
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_control_characters_make_a_well_formed_svg(tmp_path: Path) -> None:
    letters = "".join(map(chr, range(0x20))) + "\x7f\x9f\ud800\ufffe<&>--"
    rows = pair(letters, 100.0, 80.0, device=letters, variant=letters, peak_gb_s=100.0)
    rows += [row(letters, letters + "9", gb_s=None, status="failed", flags="noisy")]
    _, svg = plot_bars.save(frame.from_rows(rows), tmp_path / "a")
    xml.etree.ElementTree.parse(svg)


def test_a_slide_has_cases_below_the_headings_of_their_families() -> None:
    names = ("stream_copy", "gemm", "mine")
    rows = [row(name, "fp32", operation=name) for name in names]
    labels = plot_bars.comparison(frame.from_rows(rows), layout="slide").get_yticklabels()
    assert [label.get_text() for label in labels] == ["stream", "stream_copy", "gemm", "gemm", "other", "mine"]
    assert [label.get_fontweight() for label in labels] == ["bold", "normal"] * 3


# ---- FP32 beside FP16, from the nine classic columns ----

CLASSIC = """\
operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written
decode_gemm,FP32,1,896,896,0.00298333,1078.8,3214848,3584
decode_gemm,FP16,1,896,896,0.00243265,661.509,1607424,1792
kv_append,FP16,,,,0.00170102,616.439,524288,524288
"""
SUMMARY = """\
=== Bandwidth Summary ===

decode_gemm:
  FP32 mean: 1078.80 GB/s
  FP16 mean: 661.51 GB/s
  Speedup: 0.61x (GB/s)
  Time speed-up: 1.23x

kv_append:
  FP16 mean: 616.44 GB/s
"""


@pytest.fixture
def classic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Such a file, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.csv").write_text(CLASSIC)
    return tmp_path


def pixels(path: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def test_the_comparison_of_a_classic_file(classic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0.61 = 661.509 / 1078.8, and 1.23 = 0.00298333 / 0.00243265."""
    assert plot_main(["comparison", "old.csv"]) == 0
    assert capsys.readouterr().out == SUMMARY
    assert pixels(classic / "bandwidth_comparison.png")[0] == 3150, "10.5 inches of 300 dots"


def test_a_panel_for_each_operation(classic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven operations have seven panels."""
    drawn: list[tuple[str, list[float]]] = []
    real = plot_bars._draw_panel

    def draw(ax: Any, case: str, means: Any) -> None:
        real(ax, case, means)
        drawn.append((ax.get_title(), [bar.get_height() for bar in ax.patches]))

    monkeypatch.setattr(plot_bars, "_draw_panel", draw)
    more = "".join(f"op{number},FP32,,,,1,{number + 1},1,1\n" for number in range(4))
    more += f"{'long' * 11},FP32,,,,1,5,1,1\n"
    (classic / "old.csv").write_text(CLASSIC + more)
    assert plot_main(["comparison", "old.csv", "--panels", "--dpi", "50", "-o", "p.png"]) == 0
    assert drawn[:2] == [("decode_gemm", [1078.8, 661.509]), ("kv_append", [616.439])]
    assert drawn[2:6] == [(f"op{number}", [number + 1]) for number in range(4)]
    assert drawn[6] == ("long" * 9 + "lon\u2026", [5]), "a name that is cut says so"
    assert pixels(classic / "p.png") == (540, 390), "three beside each other, at 50 dots an inch"


def test_rows_of_one_operation_are_averaged(classic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "decode_gemm,FP32,2,896,896,0.00598333,921.2,3214848,3584\n"
    (classic / "old.csv").write_text(CLASSIC + more)
    assert plot_main(["comparison", "old.csv", "--panels", "--dpi", "50"]) == 0
    assert "  FP32 mean: 1000.00 GB/s\n" in capsys.readouterr().out


def test_variants_of_a_case_have_their_own_entries(classic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1.0 / 0.5 and 0.4 / 0.1 ms; one mean of both would be 1.4 / 0.6. The classic file says the same."""
    times = {"unfused": {"fp32": 1.0, "fp16": 0.5}, "flash": {"fp32": 0.4, "fp16": 0.1}}
    rows = [
        row("prefill", precision, gb_s=1.0 / ms, time_ms=ms, variant=variant)
        for variant, found in times.items()
        for precision, ms in found.items()
    ]
    rows += [row("decode", "fp32", variant="tiled"), row("decode", "fp16", variant="tensor")]
    bwprof.save(frame.from_rows(rows), "whole.json")
    bwprof.save(frame.from_rows(rows), "nine.csv", classic=True)
    names = [line.split(",")[0] for line in (classic / "nine.csv").read_text().splitlines()[1:]]
    assert names == 2 * ["prefill unfused"] + 2 * ["prefill flash"] + 2 * ["decode"], "the device's choice is one case"
    for name in ("whole.json", "nine.csv"):
        assert plot_main(["comparison", name, "--panels", "--dpi", "50", "-o", f"{name}.png"]) == 0
        content = capsys.readouterr().out.split("\n\n")
        found = {part.partition(":")[0]: part.partition("Time speed-up: ")[2].strip() for part in content[1:3]}
        assert found == {"prefill unfused": "2.00x", "prefill flash": "4.00x"}


def test_devices_and_caches_of_a_case_have_their_own_entries(classic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("decode", "fp32", gb_s=speed, device=name) for name, speed in (("A", 10.0), ("B", 30.0))]
    rows += [row("decode", "fp32", gb_s=90.0, device="B", cache="hot")]
    bwprof.save(frame.from_rows(rows), "nine.csv", classic=True)
    assert plot_main(["comparison", "nine.csv", "--panels", "--dpi", "50"]) == 0
    entries = ["decode [A]:", "  FP32 mean: 10.00 GB/s", "decode [B]:", "  FP32 mean: 30.00 GB/s"]
    entries += ["decode [B] (hot):", "  FP32 mean: 90.00 GB/s"]
    assert [line for line in capsys.readouterr().out.splitlines()[1:] if line] == entries


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["comparison"], "required: RUN|FILE"),
        (["comparison", "gone.csv"], "no such file or folder: gone.csv"),
        (["comparison", "old.csv", "--dpi", "0"], "--dpi is 0: allowed are 10 to 2000"),
        (["comparison", "old.csv", "-o", "x"], "unknown ending of a picture 'x'"),
        (["comparison", "empty.csv", "--panels"], "there are no rows to draw"),
        ([], "required: RUN|FILE"),
    ],
)
def test_an_impossible_comparison_is_refused(
    arguments: list[str], words: str, classic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (classic / "empty.csv").write_text(CLASSIC.splitlines(keepends=True)[0])
    assert plot_main(arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(classic.glob("*.png"))
