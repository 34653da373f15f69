"""Nsight Compute: files that are damaged or hostile, reports, command lines, and the commands that print them."""

from __future__ import annotations

import json
import math
import random
import re
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from profiled import DETAILS, FIRST, RAW, WHO, details_page, quoted, raw_page

import bwprof
from bwprof import environment
from bwprof.errors import UnavailableError
from bwprof.importers import capture
from bwprof.importers.frames import COLUMNS
from bwprof.importers.ncu.command import PRESETS, ncu_capture, ncu_command
from bwprof.importers.ncu.parse import build_import_command, parse_ncu

TIME = ("gpu__time_duration.sum", "ns", "5000")
NOTHING = [
    b"",
    b"\n\n\n",
    b"\xff\xfe",
    b"\x7fELF\x02\x01\x01" + bytes(200),
    b"hello, world\n",
    b'{"traceEvents": []}\n',
]


def page(folder: Path, text: str | bytes) -> Path:
    path = folder / "page.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("content", NOTHING)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = page(tmp_path, content)
    with pytest.raises(ValueError, match=r"no (page|text)") as raised:
        parse_ncu(path)
    assert str(raised.value).startswith(str(path))


def test_missing_files_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    import os

    with pytest.raises(FileNotFoundError):
        parse_ncu(tmp_path / "none.csv")
    with pytest.raises(OSError, match="directory"):
        parse_ncu(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="no regular file"):
        parse_ncu(tmp_path / "pipe")
    with pytest.raises((TypeError, ValueError), match="path"):
        parse_ncu(7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (quoted([WHO]), "no launch"),
        (quoted([[*WHO, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]), "no launch"),
        (quoted([[*WHO, "Section Name", "Metric Name", "Metric Unit"]]), "lacks Metric Value"),
        (raw_page([TIME], [*FIRST, "1", "2"]), r"line 4: 13 .*\b12\b"),
        (raw_page([TIME], FIRST, [*FIRST, "1"]), r"line 4: 11 .*\b12\b"),
        (raw_page([TIME]) + '"1"x,"2"\n', "line 4: .*CSV"),
        (quoted([[*WHO, TIME[0]], [""] * 12]) + '"0","1', "line 3: .*ends"),
        (quoted([[*WHO, *map(str, range(100_001))]]), "more than 100000"),
    ],
)
def test_an_error_names_the_damaged_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_ncu(page(tmp_path, text))


@pytest.mark.parametrize("source", [RAW, DETAILS])
def test_a_page_may_be_cut_off_anywhere(tmp_path: Path, source: Path) -> None:
    """The reader refuses it, or returns the launches before the cut as in the whole page."""
    content, whole = source.read_bytes(), parse_ncu(source)
    rows = set()
    for end in [*range(0, len(content), 97 if source == RAW else 31), len(content) - 1]:
        path = page(tmp_path, content[:end])
        try:
            found = parse_ncu(path)
        except ValueError as error:
            assert str(error).startswith(str(path))  # noqa: PT017 - most of them are
            continue
        rows.add(len(found))
        for name in {"time_ms", "dram_bytes_read", "dram_pct", "kernel"} & set(found.columns):
            for cut, right in zip(found[name], whole[name], strict=False):
                assert cut == right or cut != cut  # noqa: PLR0124 - NaN
    assert rows == {1, 2}


def test_a_cut_is_noted(tmp_path: Path) -> None:
    content = RAW.read_text()
    found = parse_ncu(page(tmp_path, content[:-200]))
    assert len(found) == 1
    assert any("cut off" in note for note in found.attrs["notes"])


def test_impossible_values_are_left_out(tmp_path: Path) -> None:
    """Infinite figures, and negative ones where that is impossible, are not in the row; a note counts them."""
    metrics = [
        ("gpu__time_duration.sum", "s", "1e400"),
        ("dram__bytes_read.sum", "Gbyte", "1e308"),
        ("dram__bytes_write.sum", "byte", "-5"),
        ("launch__registers_per_thread", "", "9" * 400),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "nan"),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector", "5"),
        ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "request", "0"),
        ("lts__t_bytes.sum", "Tbyte", "9e300"),
        ("kernel", "", "a metric named as a column"),
    ]
    for text in (raw_page(metrics), details_page([("S", *metric) for metric in metrics])):
        found = parse_ncu(page(tmp_path, text))
        row = found.iloc[0]
        named = ("time_ms", "dram_bytes_read", "dram_bytes_written", "registers", "sm_pct", "sectors_per_load")
        for name in (*named, "l2_bytes", "dram_gb_s"):
            assert name not in found.columns or found[name].isna().all(), name
        assert row["kernel"] == "cpy(int)"
        notes = " ".join(found.attrs["notes"])
        assert "no finite number" in notes
        assert "negative" in notes


def test_columns_and_launches_twice(tmp_path: Path) -> None:
    found = parse_ncu(page(tmp_path, raw_page([TIME, TIME, ("", "", "7")], [*FIRST, "1000", "2", "8"])))
    assert found["time_ms"].tolist() == [0.005, 0.001]
    assert found["launch"].tolist() == [0, 0]
    assert found["column 14"].tolist() == [7, 8]
    assert any("there twice" in note for note in found.attrs["notes"])


def test_a_gigantic_cell(tmp_path: Path) -> None:
    """Cells longer than the CSV module's limit, with and without quotation marks in them; the frame has cut text."""
    for name in ("k" * 300_000, '"k' * 100_000):
        found = parse_ncu(page(tmp_path, raw_page([TIME], who=[*FIRST[:4], name, *FIRST[5:]])))
        assert found["time_ms"].tolist() == [0.005]
        assert len(found["kernel"][0]) <= 32_000
        assert len(found["case"][0]) <= 64


def test_a_line_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bwprof.importers import reader

    monkeypatch.setattr(reader, "LONGEST_LINE", 1000)
    monkeypatch.setattr(reader, "_BLOCK", 100)
    with pytest.raises(ValueError, match=r"line 1: .*\b1000\b"):
        parse_ncu(page(tmp_path, '"ID",' + "x" * 5000))


def test_few_shared_metrics_take_no_more_memory_than_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric of its own for each launch would be a table of their product."""
    from bwprof.importers.ncu import pages

    monkeypatch.setattr(pages, "_SPARE", 1000)
    text = details_page([("S", "m0", "", "1")])
    text += "".join(quoted([[str(at), *FIRST[1:], "S", f"m{at}", "", "1", "", ""]]) for at in range(1, 100))
    with pytest.raises(ValueError, match="share few"):
        parse_ncu(page(tmp_path, text))
    many = [("S", f"m{at}", "", "1") for at in range(100)]  # of the first launch, and one of each other
    text = details_page(many) + "".join(
        quoted([[str(at), *FIRST[1:], "S", "m0", "", "1", "", ""]]) for at in range(1, 90)
    )
    with pytest.raises(ValueError, match="share few"):
        parse_ncu(page(tmp_path, text))


@pytest.mark.parametrize("unit", ["", "(!)", "%"])
def test_a_metric_that_the_first_launch_lacks_has_the_unit_of_the_others(tmp_path: Path, unit: str) -> None:
    name = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    second = ["1", *FIRST[1:], "S", name, "%", "77", "", ""]
    found = parse_ncu(page(tmp_path, details_page([("S", *TIME), ("S", name, unit, "n/a")]) + quoted([second])))
    assert found["sm_pct"].fillna(-1).tolist() == [-1, 77]
    assert found.attrs["units"][name] == "%"


def test_mutated_pages_are_read_or_refused(tmp_path: Path) -> None:
    """Nothing but ValueError comes out, with the file's name; what is read is finite and not negative."""
    words = [b'"', b",", b"\n", b"\0", b'""', b"nan", b"-1", b"1e400", b"9" * 40, b"\xff", b"n/a", b"1.234,5", b'"ID"']
    chance = random.Random(20)
    seeds = [RAW.read_bytes(), DETAILS.read_bytes(), raw_page([TIME]).encode()]
    for _ in range(150):
        content = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 2, 5))):
            at = chance.randrange(len(content))
            content[at : at + chance.choice((0, 1, 20))] = chance.choice(words)
        path = page(tmp_path, bytes(content))
        try:
            found = parse_ncu(path)
        except ValueError as error:
            assert str(error).startswith(str(path))  # noqa: PT017 - many are
        else:
            for name in {"time_ms", "dram_gb_s", "pct_peak"} & set(found.columns):
                assert all(math.isfinite(value) and value >= 0 for value in found[name].dropna())


def fake(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name on PATH, before all others."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(environment, "PROFILERS", dict.fromkeys(environment.PROFILERS, ()))


@pytest.mark.usefixtures("nothing_installed")
def test_a_report_where_no_ncu_is(tmp_path: Path) -> None:
    report = tmp_path / "a report.ncu-rep"
    report.write_bytes(b"NVR\0whatever")
    with pytest.raises(UnavailableError) as raised:
        parse_ncu(report)
    assert shlex.join(build_import_command(report)) in str(raised.value)
    assert shlex.quote("a report.csv") in str(raised.value)
    with pytest.raises(UnavailableError, match="ncu -i"):  # by how it begins
        parse_ncu(report.rename(tmp_path / "renamed"))
    with pytest.raises(FileNotFoundError):
        parse_ncu(tmp_path / "none.ncu-rep")


def test_a_report_through_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "x; echo.ncu-rep"
    report.write_bytes(b"NVR\0")
    condition = f'[ "$2" = "{report}" ] && [ "$*" = "-i $2 --csv --page raw --print-units base{{}}" ]'
    for names in (" --rename-kernels 0", ""):  # an older one does not know the option
        fake(tmp_path, "ncu", f"{condition.format(names)} && cat {RAW}", monkeypatch)
        found = parse_ncu(report)
    assert found["time_ms"].tolist() == parse_ncu(RAW)["time_ms"].tolist()
    assert found.attrs["source"] == str(report)
    fake(tmp_path, "ncu", "echo 'file is damaged' >&2; exit 3", monkeypatch)
    with pytest.raises(ValueError, match=r"code 3\b.*file is damaged"):
        parse_ncu(report)
    fake(tmp_path, "ncu", "echo nothing of use", monkeypatch)
    with pytest.raises(ValueError, match="no page of ncu"):
        parse_ncu(report)
    fake(tmp_path, "ncu", "echo nothing of use; echo no such driver >&2", monkeypatch)
    with pytest.raises(ValueError, match=r"no page.*no such driver$"):
        parse_ncu(report)
    fake(tmp_path, "ncu", 'echo "$0: dirname: not found" >&2', monkeypatch)  # a script that goes on without its words
    with pytest.raises(ValueError, match=r"/ncu\).*/ncu: dirname: not found$"):
        parse_ncu(report)
    fake(tmp_path, "ncu", "exec sleep 30", monkeypatch)
    with pytest.raises(UnavailableError, match="longer than"):
        parse_ncu(report, timeout_s=0.05)


_STAND_IN = """
import sys
assert "numpy" not in sys.modules, "beside NumPy the real one ends its process"
FIGURES = {
    "gpu__time_duration.sum": (5000, "ns"), "dram__bytes_read.sum": (640.0, "byte"), "none": (None, ""),
    "launch__func_cache_config": ("CachePreferNone", ""), "launch__stream_id": (13, ""), "empty": ("", ""),
    "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed": (0.0, "%"), "group:memory__chart": ("", ""),
    "LTS.TriageCompute.lts__throughput.avg.pct_of_peak_sustained_elapsed": (0.0, "%"), "temp": (float("nan"), ""),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": (0.0, "%"),
    "launch__block_dim_x": (256, "block"), "launch__block_dim_y": (2, "block"), "launch__block_dim_z": (1, "block"),
    "device__attribute_compute_capability_major": (9, ""), "device__attribute_compute_capability_minor": (0, ""),
}
class Metric:
    def __init__(self, name): self.name = name
    def value(self): return FIGURES[self.name][0]
    def has_value(self): return "Triage" not in self.name  # sampled: of its instances alone
    def unit(self): return FIGURES[self.name][1]
class Action:
    NameBase_FUNCTION, NameBase_DEMANGLED = 0, 1
    def name(self, base=0): return ("k", "void ns::k<(int)4, std::array<char *, (unsigned long)1>>(int, T2)")[base]
    def metric_names(self): return tuple(FIGURES)
    def metric_by_name(self, name): return Metric(name) if name in FIGURES else None
class Range:
    def num_actions(self): return 2
    def action_by_idx(self, index): return Action()
    def range_by_idx(self, index): return self
    def __init__(self, name): self.count = "empty" not in name
    def num_ranges(self): return self.count
def load_report(name):
    if "bad" in name: raise RuntimeError("no such format")
    return Range(name)
"""


@pytest.mark.usefixtures("nothing_installed")
def test_a_report_through_nvidias_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in has the names of NVIDIA's module, which comes with Nsight Compute."""
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "ncu_report.py").write_text(_STAND_IN)
    monkeypatch.syspath_prepend(str(tmp_path / "module"))
    paths = [tmp_path / f"{name}.ncu-rep" for name in ("good", "empty", "bad")]
    for path in paths:
        path.write_bytes(b"NVR\0")
    found = parse_ncu(paths[0])
    assert found["time_ms"].tolist() == [0.005, 0.005]
    assert found["dram_bytes_read"].tolist() == [640, 640]
    assert found["kernel"][0] in _STAND_IN
    assert found["kernel"][0].startswith("void ns::k<(int)4,")
    assert found["kernel"][0].endswith("(int, T2)")
    assert found["case"][0] == "k<4, array<char *, 1>>"
    assert found.attrs["tool"] == "ncu_report"
    sampled = "LTS.TriageCompute.lts__throughput.avg.pct_of_peak_sustained_elapsed"
    assert found[[sampled, "temp", "none", "empty", "pid", "Host Name", "Process Name"]].isna().all(axis=None)
    assert found["sm_pct"].tolist() == [0, 0]
    assert not [name for name in found if ":" in name]
    assert found[["block", "block_threads", "stream", "compute_capability"]].iloc[0].tolist() == [
        "256x2x1",
        512,
        13,
        "9.0",
    ]
    older = _STAND_IN.replace(
        "def has_value(self): return", "def kind(self): return 2\n    def has_value(self, of): return of == 2 and"
    )
    (tmp_path / "module" / "ncu_report.py").write_text(older)
    pd.testing.assert_frame_equal(parse_ncu(paths[0]), found)
    with pytest.raises(ValueError, match="holds no launch"):
        parse_ncu(paths[1])
    with pytest.raises(ValueError, match=r"ncu_report .*RuntimeError: no such"):
        parse_ncu(paths[2])
    (tmp_path / "module" / "ncu_report.py").write_text("import os\nos.abort()\n")
    with pytest.raises(ValueError, match=r"ncu_report .*code -6"):
        parse_ncu(paths[0])
    (tmp_path / "module" / "ncu_report.py").write_text("import _no_such_library\n")
    with pytest.raises(UnavailableError, match=r"ncu_report.*_no_such_library"):
        parse_ncu(paths[0])


def test_command_lines() -> None:
    start = "ncu --set full --target-processes all".split()
    assert ncu_command(["./a b", "-n", "4"]) == [*start, "-o", "profile", "./a b", "-n", "4"]
    command = ncu_command("python3 bench.py", "flash_attention_forward_kernel", output="profile_fa1_basic")
    named = ["--kernel-name", "flash_attention_forward_kernel"]
    assert command == [*start, *named, "-o", "profile_fa1_basic", "python3", "bench.py"]
    assert ncu_command("bench.py --n 2") == [*start, "-o", "profile", sys.executable, "bench.py", "--n", "2"]
    page = ["--csv", "--page", "raw", "--print-units", "base"]
    assert ncu_command("x", output=None) == [*start, *page, "x"]
    assert ncu_command("x", clock_control="base") == [*start, "--clock-control", "base", "-o", "profile", "x"]
    some = ["--kernel-name", "regex:a|b", "--launch-count", "2"]
    assert ncu_command(Path("x y"), "regex:a|b", launch_count=2) == [*start, *some, "-o", "profile", "x y"]


def test_presets() -> None:
    assert list(PRESETS) == ["full", "memory", "compute", "roofline", "stalls", "access", "speed"]
    assert PRESETS["roofline"] == ("--set", "roofline")
    assert PRESETS["speed"] == ("--section", "SpeedOfLight")
    conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op"
    assert PRESETS["memory"][1].startswith(
        "dram__bytes_read.sum,dram__bytes_write.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,"
        f"{conflicts}_ld.sum,{conflicts}_st.sum,"
    )
    assert "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio" in PRESETS["memory"][1].split(",")
    assert PRESETS["compute"][1].startswith(
        "sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active,"
        "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio,"
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio,"
    )
    assert "sm__pipe_tensor_cycles_active" in PRESETS["compute"][1]
    assert PRESETS["access"][1] == (
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct,"
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,"
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
    )
    stalls = PRESETS["stalls"][1].split(",")
    recorded = [name for name in parse_ncu(RAW).columns if name.startswith("smsp__average_warps_issue_stalled_")]
    assert sorted(stalls) == sorted(recorded)
    for name in PRESETS:
        words = ncu_command("x", preset=name)
        assert not [word for word in words if any(letter.isspace() for letter in word)]
        metrics = words[words.index("--metrics") + 1].split(",") if "--metrics" in words else []
        assert len(metrics) == len(set(metrics))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": ""}, "target is empty"),
        ({"target": []}, "target is empty"),
        ({"target": "'unclosed"}, "target"),
        ({"target": "--set x"}, "target is"),
        ({"target": "x\0y"}, "target"),
        ({"target": ["x", "y\0"]}, "target: .*NUL"),
        ({"target": "x", "kernel": ""}, "kernel is"),
        ({"target": "x", "kernel": "-k"}, "kernel is"),
        ({"target": "x", "output": "-o"}, "output is"),
        ({"target": "x", "preset": "memry"}, "did you mean 'memory'"),
        ({"target": "x", "launch_count": 0}, "1 or more"),
    ],
)
def test_bad_command_lines(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ncu_command(**arguments)


def test_capturing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for ncu writes a report (its last but one argument) and turns it into a page."""
    monkeypatch.chdir(tmp_path)
    script = f'if [ "$1" = -i ]; then cat {RAW}; else echo NVR > "$8.ncu-rep"; fi'
    fake(tmp_path, "ncu", script, monkeypatch)
    assert capture is ncu_capture
    assert len(ncu_capture("./x")) == 2
    assert not list(tmp_path.glob("*.ncu-rep"))
    assert len(ncu_capture("./x", output="stored")) == 2
    assert (tmp_path / "stored.ncu-rep").exists()
    with pytest.raises(ValueError, match="exists already"):
        ncu_capture("./x", output="stored")
    fake(tmp_path, "ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1", monkeypatch)
    with pytest.raises(UnavailableError, match="NVreg_RestrictProfilingToAdminUsers"):
        ncu_capture("./x")
    fake(tmp_path, "ncu", "echo '==ERROR== no such'; printf 'program\\033[0m\\n' >&2; exit 9", monkeypatch)
    with pytest.raises(RuntimeError, match=r"code 9\b.*no such; program\\x1b\[0m$"):
        ncu_capture("./x")
    fake(tmp_path, "ncu", script.replace("; fi", "; exit 1; fi"), monkeypatch)  # as its program does
    assert any("ended with code 1" in note for note in ncu_capture("./x").attrs["notes"])


@pytest.mark.parametrize("output", ["", ".", "..", "/", ".ncu-rep", "no/such", "%p", "-x", " ", "a\0b"])
def test_outputs_that_ncu_cannot_write_are_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    fake(tmp_path, "ncu", "touch ran", monkeypatch)
    with pytest.raises(ValueError, match=r"^output is '"):
        ncu_capture("./x", output=output)
    assert not (tmp_path / "ran").exists()


def test_the_end_of_endless_output_is_read(tmp_path: Path) -> None:
    from bwprof.importers.ncu.parse import read_end

    with (tmp_path / "output").open("w+b") as stream:
        stream.truncate(1 << 34)  # sparse
        stream.seek(0, 2)
        stream.write(b"the end\n")
        assert read_end(stream, 8) == "the end"


@pytest.mark.usefixtures("nothing_installed")
def test_capturing_without_ncu() -> None:
    with pytest.raises(UnavailableError, match=r"ncu --set.*-o profile x$"):
        ncu_capture("x")


@pytest.mark.usefixtures("nothing_installed")
def test_installed_profilers_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bwprof.info import build_lines

    assert environment.find_profilers() == dict.fromkeys(("ncu", "nsys", "rocprof", "rocprofv3"))
    fake(tmp_path, "ncu", "echo 'Nsight Compute (c) 2018-2025'; echo 'Version 2025.3.1.0 (build 3)'", monkeypatch)
    fake(tmp_path, "nsys", "exit 1", monkeypatch)
    fake(tmp_path, "rocprofv3", "echo 'version: 1.0.0, git: x'", monkeypatch)
    found = environment.find_profilers()
    assert found["ncu"] == {"path": str(tmp_path / "ncu"), "version": "2025.3.1.0"}
    assert found["nsys"] == {"path": str(tmp_path / "nsys"), "version": ""}
    assert found["rocprofv3"] == {"path": str(tmp_path / "rocprofv3"), "version": "1.0.0"}
    fake(tmp_path, "nsys", "exec sleep 30", monkeypatch)
    monkeypatch.setattr(environment, "_VERSION_SECONDS", 0.05)
    assert environment.find_profilers()["nsys"] == {"path": str(tmp_path / "nsys"), "version": ""}
    rows = dict(build_lines(bwprof.info()))
    assert rows["profiler rocprof"] == "not found"
    assert rows["profiler ncu"].endswith(str(tmp_path / "ncu"))


def test_the_command_prints_few_launches_in_full(
    capsys: pytest.CaptureFixture[str], snapshot: Callable[..., None]
) -> None:
    from bwprof.cli.commands.importers import main_import

    assert main_import(["ncu", str(RAW)]) == 0
    first, _, launches = capsys.readouterr().out.partition("\n")
    assert first.startswith(f"{RAW}: 2 launches")
    snapshot(launches.lstrip("\n"), "launches")
    assert main_import(["ncu", str(DETAILS)]) == 0
    assert "\nnote: pct_peak " in capsys.readouterr().out


def test_the_command_prints_many_launches_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bwprof.cli import main as bwprof_main
    from bwprof.cli.commands.importers import main_import

    rows = [[str(at), *FIRST[1:4], f"void k{at}<int>(int)", *FIRST[5:], str(1000 * at)] for at in range(1, 7)]
    path = page(tmp_path, raw_page([TIME], *rows))
    assert main_import(["ncu", str(path)]) == 0
    out = capsys.readouterr().out
    assert "7 launches" in out
    assert "7 kernels" in out
    assert [line.split("|")[1].strip() for line in out.splitlines() if "|" in line][-1] == "k6<int>"
    assert main_import(["ncu", str(path), "--kernel", "k3<"]) == 0
    assert "launch 3: void k3<int>(int)" in capsys.readouterr().out
    assert main_import(["ncu", str(path), "--kernel", "gemm"]) == 2
    assert "--kernel gemm" in capsys.readouterr().err
    assert bwprof_main(["ncu", "show", str(path)]) == 0
    assert capsys.readouterr().out == out


def test_the_command_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No cell, and no name of a column, is a formula to a spreadsheet."""
    from bwprof.cli.commands.importers import main_import

    who = [*FIRST[:4], "=cmd|'/c calc'!A1", *FIRST[5:]]
    path = page(tmp_path, raw_page([TIME, ("=1+1", "", "@SUM(1)"), ("negative", "", "-2")], who=who))
    targets = [tmp_path / f"rows.{kind}" for kind in ("csv", "json", "md")]
    arguments = ["ncu", str(path), *(word for kind in targets for word in (f"--{kind.suffix[1:]}", str(kind)))]
    assert main_import(arguments) == 0
    header, line = targets[0].read_text().splitlines()
    assert header.startswith("kernel,launch,case")
    assert header.endswith("gpu__time_duration.sum,'=1+1,negative")
    assert line.startswith("'=cmd|'/c calc'!A1,0,")
    assert line.endswith("5e-06,'@SUM(1),-2.0")
    found = json.loads(targets[1].read_text())
    assert (found["tool"], found["page"], found["rows"][0]["time_ms"]) == ("ncu", "raw", 0.005)
    assert re.search(r"^\|\s*kernel\s*\|\s*launch\s*\|", targets[2].read_text(), re.MULTILINE)
    capsys.readouterr()
    assert main_import(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert main_import(["ncu", str(path), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_the_commands_refuse_unknown_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from bwprof.cli import main as bwprof_main
    from bwprof.cli.commands.importers import READERS, main_import

    assert main_import([]) == 2
    assert main_import(["--help"]) == 0
    out = capsys.readouterr().out
    for name in READERS:
        assert f"bwprof import {name} FILE" in out
    assert main_import(["columns"]) == 0
    rows = [line.split("|")[0].strip() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [name for name in rows if name] == [column.name for column in COLUMNS]
    assert main_import(["nuc", "x"]) == 2
    assert "did you mean 'ncu'" in capsys.readouterr().err
    assert main_import(["ncu", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert bwprof_main(["ncu"]) == 2
    assert bwprof_main(["ncu", "--help"]) == 0
    capsys.readouterr()
    assert bwprof_main(["ncu", "shwo"]) == 2
    assert "did you mean 'show'" in capsys.readouterr().err
    for option, clocks in (((), "none"), (("--clock-control", "base"), "base")):
        command = ["ncu", "capture", "--print-command", "--preset", "speed", "--launches", "2", *option]
        assert bwprof_main([*command, "--", "./a", "-b c"]) == 0
        message = (
            f"ncu --section SpeedOfLight --target-processes all --clock-control {clocks} --launch-count 2 -o profile"
        )
        assert capsys.readouterr().out == f"{message} ./a '-b c'\n"
    assert bwprof_main(["ncu", "capture", "--print-command", "--clock-control", "bose", "--", "./a"]) == 2
    err = capsys.readouterr().err
    for word in ("clock_control", "'bose'", "'base'", "none, base"):
        assert word in err


def test_the_command_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bwprof.cli import main as bwprof_main

    fake(tmp_path, "ncu", f'if [ "$1" = -i ]; then cat {RAW}; else echo NVR > "$8.ncu-rep"; fi', monkeypatch)
    assert bwprof_main(["ncu", "capture", "--timeout", "20", "--", "./x"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("./x: 2 launches")  # and not the report, which is deleted
    assert "(--clock-control none)" in out
    assert bwprof_main(["ncu", "capture", "--clock-control", "base", "--timeout", "20", "--", "./x"]) == 0
    assert "(--clock-control base)" in capsys.readouterr().out
