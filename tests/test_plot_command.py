"""`bwprof plot`: a kind by its name, all that fit, what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from rows import pair, row
from words import words as words_of

import bwprof
from bwprof import plot
from bwprof.cli import main as bwprof_command
from bwprof.cli.commands.plot import main_plot
from bwprof.results import frame


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over a parameter in two precisions, and a run of a model's."""
    folder = tmp_path_factory.mktemp("kept")
    rows = []
    for size in (16, 64):
        work = {
            "N": size,
            "flops": 1000 * size,
            "measured_tflops": 1.0,
            "ceiling_gb_s": 200.0,
            "attainable_gb_s": 150.0,
        }
        rows += pair(f"case {size}", 100.0, 80.0 + size, **work)
    bwprof.save(frame.from_rows(rows), folder / "results.json")
    bwprof.save(bwprof.load_example("h200_llama").head(14), folder / "llama.json")
    return folder


@pytest.fixture
def here(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["results.json", "-o", "a.svg"], "a.svg"),
        (["roofline", "results.json", "--dpi", "40"], "roofline.png"),
        (["roofline", "-o", "r.pdf", "results.json", "--dark"], "r.pdf"),
        (["lines", "results.json", "-y", "time_ms", "-o", "l.svg"], "l.svg"),
        (["speedup", "results.json", "--from", "fp32", "--to", "FP16", "-o", "s.svg"], "s.svg"),
        (["model", "llama.json", "--phase", "decode", "-o", "m.svg"], "m.svg"),
        (["ridge", "--precision", "fp32,fp16", "-o", "y.svg"], "y.svg"),
        (["comparison", "results.json", "--layout", "slide", "--dpi", "30", "-o", "c.png"], "c.png"),
        (["compare", "results.json", "results.json", "-o", "ratios.svg"], "ratios.svg"),
        (
            ["comparison", "--input", "results.json", "--output-dir", "p", "--format", "svg"],
            "p/bandwidth_comparison.svg",
        ),
    ],
)
def test_a_kind_is_drawn_by_its_name(
    arguments: list[str], file: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_plot(arguments) == 0
    assert (here / file).stat().st_size > 1000
    assert f"the picture is {file}" in capsys.readouterr().err


def test_every_kind_that_fits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_plot(["--input", "results.json", "--output-dir", "plots/", "--dpi", "30", "--format", "png,svg"]) == 0
    names = ["bandwidth_comparison", "lines", "roofline", "speedup"]
    assert sorted(path.name for path in (here / "plots").iterdir()) == [
        f"{name}.{ending}" for name in names for ending in ("png", "svg")
    ]
    shown = capsys.readouterr()
    assert shown.out.splitlines()[:2] == ["plots/bandwidth_comparison.png", "plots/bandwidth_comparison.svg"]
    absent = re.findall(r"^bwprof: no (\w+): .*?bwprof (\w+) ", shown.err, re.MULTILINE)
    assert {("heatmap", "sweep"), ("model", "model"), ("ridge", "predict")} <= set(absent)
    inner = ("frame", "metadata", "column", "x=", "there is nothing")
    assert not [word for word in inner if word in shown.err], "what a shell's user has never heard of"


def test_a_file_that_other_tools_wrote(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine columns, precisions in capital letters; the case is what the column operation says."""
    (here / "benchmark.csv").write_text(
        "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written\n"
        "decode_gemm,FP32,1,896,896,0.00298333,1078.8,3214848,3584\n"
        "decode_gemm,FP16,1,896,896,0.00243265,661.509,1607424,1792\n"
        "kv_append,FP16,,,,0.00170102,616.439,524288,524288\n"
    )
    assert main_plot(["--input", "benchmark.csv", "--output-dir", "plots", "--dpi", "30"]) == 0
    assert sorted(path.name for path in (here / "plots").iterdir()) == ["bandwidth_comparison.png", "speedup.png"]
    assert re.search("no roofline: .*FLOPs", capsys.readouterr().err)


def test_several_runs_are_drawn_together(here: Path) -> None:
    more = [row("case 256", name, N=256, flops=1) for name in ("fp32", "fp16")]
    bwprof.save(frame.from_rows(more), here / "more.csv")
    assert main_plot(["lines", "results.json", "more.csv", "-o", "l.svg"]) == 0
    assert "<!-- 256 -->" in (here / "l.svg").read_text()


def test_a_trend_of_a_folder(here: Path) -> None:
    for number in range(2):
        (here / "runs" / f"{number}").mkdir(parents=True)
        shutil.copy(here / "results.json", here / "runs" / f"{number}")
    assert main_plot(["trend", "runs", "--case", "case 1*", "-o", "t.svg", "--dark"]) == 0
    text = (here / "t.svg").read_text()
    assert "case 16" in text
    assert "case 64" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: RUN|FILE"),
        (["roofline"], "required: RUN|FILE"),
        (["roofl", "results.json"], "unknown kind of picture 'roofl': did you mean 'roofline'?"),
        (["gone.csv", "-o", "x.svg"], "no such file or folder: gone.csv"),
        (["results.json"], "required: -o"),
        (["results.json", "--dpi", "5"], "--dpi is 5: allowed are 10 to 2000"),
        (["results.json", "-o", "x.txt"], "unknown ending of a picture '.txt'"),
        (["results.json", "-o", "x.svg", "--output-dir", "p"], "exclude each other"),
        (["results.json", "-o", "x.svg", "--format", "svg"], "--format is of the files in --output-dir"),
        (["roofline", "results.json", "--layout", "slide"], "--layout is no option of the kind roofline"),
        (["results.json", "-x", "N"], "-x is no option of the kind comparison"),
        (["results.json", "--layout", "slid", "-o", "x.svg"], "unknown layout 'slid': did you mean 'slide'?"),
        (["lines", "results.json", "--panels"], "--panels is no option of the kind lines"),
        (["heatmap", "results.json"], "needs two parameters with several values each, and there are: N"),
        (["speedup", "results.json", "--to", "fp99"], "unknown precision 'fp99'"),
        (["compare", "results.json"], "compare needs BASE and NEW, and there are 1"),
        (["trend", "a", "b"], "'b' is one too many"),
        (["roofs", "results.json"], "there are no roofs in it"),
        (["--input", "results.json", "--output-dir", "p", "--format", "exe"], "unknown ending of a picture '.exe'"),
    ],
)
def test_unusable_arguments_draw_nothing(
    arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.rglob("*"))
    assert main_plot(arguments) == 2
    assert words in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


def test_help_lists_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_plot(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in (*plot.KINDS, "compare", "trend"))


def test_an_unknown_kind_is_refused_in_python() -> None:
    with pytest.raises(ValueError, match="'pie'"):
        plot.write(frame.from_rows(pair("a", 100.0, 80.0)), [Path("x.png")], kind="pie")


@pytest.mark.parametrize(
    "arguments",
    [
        "plot results.json -o bandwidth_comparison.svg",
        "plot roofline results.json --output-dir . --format svg",
        "plot --input results.json --output-dir . --format svg",
        "plot compare results.json results.json -o x.svg",
        "compare results.json results.json --plot x.svg",
        "history --folder . --plot x.svg",
    ],
)
def test_an_existing_picture_stays_without_force(
    arguments: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And none beside it is drawn."""
    names = ("bandwidth_comparison", "roofline", "x")
    for name in names:
        (here / f"{name}.svg").write_text("old")
    before = sorted(here.iterdir())
    assert bwprof_command(arguments.split()) == 2
    assert "--force" in words_of(capsys.readouterr().err)
    assert sorted(here.iterdir()) == before
    assert {(here / f"{name}.svg").read_text() for name in names} == {"old"}
    assert bwprof_command([*arguments.split(), "--force"]) == 0
    assert any((here / f"{name}.svg").read_text().startswith("<?xml") for name in names)


@pytest.mark.parametrize(
    ("arguments", "ending"), [("ablation gemm --device cpu -o {}", "svg"), ("selftest cache --json {}", "json")]
)
def test_existing_files_are_refused_before_measuring(
    arguments: str, ending: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / f"x.{ending}").write_text("old")
    assert bwprof_command(arguments.format(f"x.{ending}").split()) == 2
    err = capsys.readouterr().err
    assert {f"x.{ending}", "--force"} <= words_of(err)
    (here / f"folder.{ending}").mkdir()
    assert bwprof_command(arguments.format(f"folder.{ending}").split()) == 2
    assert f"folder.{ending}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("loop.svg", "-o loop.svg: Too many levels of symbolic links"),
        ("dangling.svg", "-o dangling.svg: there is no folder"),
        (f"{'x' * 300}.svg", "File name too long"),
        ("results.json/x.svg", "-o results.json/x.svg: Not a directory"),
        ("absent/x.svg", "there is no folder absent that can be written to"),
        ("./x.svg", "--md x.svg and -o ./x.svg cannot both have the same file"),
        ("linked/x.svg", "--md x.svg and -o linked/x.svg cannot both have the same file"),
    ],
)
def test_an_unwritable_picture_is_refused_first(
    output: str, words: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bwprof.experiments import ablation

    (here / "loop.svg").symlink_to("loop.svg")
    (here / "dangling.svg").symlink_to(here / "gone" / "x.svg")
    (here / "linked").symlink_to(".")
    monkeypatch.setattr(ablation, "ablation", lambda *_, **__: pytest.fail("measured before it looked"))
    assert bwprof_command(["ablation", "gemm", "--device", "cpu", "--md", "x.svg", "-o", output]) == 2
    assert words in capsys.readouterr().err
