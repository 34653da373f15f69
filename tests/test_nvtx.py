"""NVTX: the ranges that a tool receives, by a recorder of the tests' own, without a GPU; on one by that and by ncu."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compiled import FLAGS, call, clean_environment, sanitizers
from test_cupti import CXX_SOURCES, NATIVE, Native, build_program, includes  # noqa: F401 - a fixture

import bwprof
from bwprof.cli import main

SOURCES = ("csrc/base/status.c", "csrc/cuda/runtime/attachments.c", "csrc/cuda/runtime/nvtx.c")
CASE = ["gemm", "-p", "M=1", "-p", "N=256", "-p", "K=256", "--precision", "fp32"]


def has_nvtx(flags: list[str]) -> bool:
    return any(Path(flag.removeprefix("-isystem"), "nvtx3/nvToolsExt.h").is_file() for flag in flags)


@pytest.fixture(scope="session")
def recorder(source_tree: Path, includes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    if not has_nvtx(includes):
        pytest.skip("needs NVTX's headers, which come with CUDA's")
    target = tmp_path_factory.mktemp("nvtx") / "recorder.so"
    call(["cc", *FLAGS, *includes, "-shared", "-fPIC", str(NATIVE / "nvtx_recorder.c"), "-o", str(target)])
    return target


@pytest.fixture(scope="session")
def program(recorder: Path, includes: list[str]) -> Path:  # noqa: F811
    flags, _ = sanitizers(["cc"], recorder.parent)
    target = recorder.parent / "check_nvtx"
    sources = [*SOURCES, str(NATIVE / "check_nvtx.c")]
    call(["cc", *FLAGS, *flags, *includes, *sources, "-pthread", "-ldl", "-o", str(target)])
    return target


def watched(recorder: Path, log: Path) -> dict[str, str]:
    """The variables of a process that the recorder watches."""
    return {"NVTX_INJECTION64_PATH": str(recorder), "BWPROF_NVTX_LOG": str(log)}


def read_log(log: Path) -> list[str]:
    """The recorder's log; the numbers of categories as their names."""
    lines = log.read_text().splitlines()
    names = dict(re.findall(r"^category (\d+) (.+)$", "\n".join(lines), re.MULTILINE)) | {"0": "-"}
    assert len(set(names.values())) == len(names), "a category is named once"
    found = [line for line in lines if not line.startswith("category")]
    return [re.sub(r"category (\d+)", lambda number: names[number[1]], line) for line in found]


def test_a_tool_receives_the_ranges(program: Path, recorder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [program], env=clean_environment() | watched(recorder, log), capture_output=True, text=True, check=True
    )
    assert done.stdout == "watched 1\n"
    moved, escaped = "measure gemm bytes 123456789012", 'a "b" é range'
    assert read_log(log) == [
        "domain bwprof",
        f"push {moved}",
        "push  - bytes 0",
        "pop",
        "pop",
        f"start {escaped}",
        f"start {moved}",
        "end 1",
        "end 2",
        "destroy",
    ]


def test_threads_name_a_category_once(program: Path, recorder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    subprocess.run(
        [program, "threads"], env=clean_environment() | watched(recorder, log), capture_output=True, check=True
    )
    named = re.findall(r"^category \d+ (.+)$", log.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(f"category {number}" for number in range(40))


@pytest.mark.parametrize("path", [None, "/nowhere/tool.so"])
def test_without_a_tool(program: Path, path: str | None) -> None:
    """Without a tool marks do nothing; `time` prints the cost of a pair of marks."""
    variables = {} if path is None else {"NVTX_INJECTION64_PATH": path}
    for argument, pattern in ((), r"watched 0\n"), (("time",), r"pair_ns \d+\.\d+\n"):
        done = subprocess.run(
            [program, *argument], env=clean_environment() | variables, capture_output=True, text=True, check=True
        )
        assert re.fullmatch(pattern, done.stdout)


def test_timed_launches_alone_are_between_marks(
    recorder: Path,
    includes: list[str],  # noqa: F811
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Not the kernel that holds the stream back (5555 ns), not the flush."""
    native: Native = build_program(tmp_path_factory, includes, "check_cupti", CXX_SOURCES)
    done = native.run("marks", **watched(recorder, tmp_path / "log"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = read_log(tmp_path / "log")
    marks = [f"push {name} toy bytes 4194304" for name in ("toy fp32 plain", "measure")]
    launch = [*marks, "kernel 1000", "kernel 2000", "pop", "pop"]
    first = lines.index(launch[0])
    assert lines[first : first + 12] == launch * 2
    outside = lines[:first] + lines[first + 12 :]
    assert "kernel 5555" in outside[first:], "the replay that lies in no range"
    assert outside.count("kernel 1000") == outside.count("kernel 2000") == 2
    assert not {line for line in outside if line.startswith("push")}


TINY = ["stream_copy", "-p", "elements=64", "--precision", "fp32", "--backend", "cpu"]
NOBODY = "no tool takes NVTX ranges of this process: start it under nsys or ncu --nvtx"


@pytest.mark.parametrize("how", [["--once"], [*"--no-roofs --max-seconds 0 --output rows.csv --quiet --force".split()]])
def test_the_option_warns_where_no_tool_watches(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for option, warned in (("--nvtx", True), ("--no-nvtx", False)):
        assert main(["sweep", *TINY, *how, option]) == 0
        assert (f"--nvtx: {NOBODY}" in capfd.readouterr().err) == warned


def enabled_profiler(*, at_once: bool) -> bwprof.Profiler:
    profiler = bwprof.Profiler(device="cpu", nvtx=True, enabled=at_once)
    profiler.enabled = True
    return profiler


def test_the_functions_warn_where_no_tool_watches(caplog: pytest.LogCaptureFixture) -> None:
    request: dict[str, Any] = {"elements": 64, "precision": "fp32", "device": "cpu", "roofs": False, "max_seconds": 0}
    bwprof.sweep("stream_copy", **request)
    bwprof.sweep("stream_copy", nvtx=False, **request)
    assert NOBODY not in caplog.text
    bwprof.sweep("stream_copy", nvtx=True, **request)
    assert NOBODY in caplog.text
    for enabled in (True, False):
        with pytest.warns(RuntimeWarning, match=NOBODY) as found:
            profiler = enabled_profiler(at_once=enabled)
        assert [Path(one.filename).name for one in found] == [Path(__file__).name]
        profiler.set_bytes("large", 2**63 - 1, 2**63 - 1)
        with profiler.range("large"):
            pass
        profiler.close()
    bwprof.Profiler(device="cpu", nvtx=False).close()


def test_nvtx_is_true_or_false() -> None:
    wrong: Any = "no"
    with pytest.raises(TypeError, match=r"nvtx is 'no': .*True"):
        bwprof.Profiler(device="cpu", nvtx=wrong)
    with pytest.raises(TypeError, match=r"nvtx is 'no': .*True"):
        bwprof.sweep("stream_copy", nvtx=wrong)
    with pytest.raises(ValueError, match=r"\bnvtx\b.*\bcallable\b"):
        bwprof.sweep(lambda: None, nvtx=True, device="cpu")


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120, check=False
    )


def sweep_log(recorder: Path, log: Path, *options: str) -> list[str]:
    command = (sys.executable, "-m", "bwprof.sweep", *CASE, "--backend", "cuda", "--variant", "naive")
    done = run(*command, *options, **watched(recorder, log))
    assert done.returncode == 0, done.stderr
    return read_log(log) if log.exists() else []


MOVED = 4 * (256 + 256 * 256 + 256)
LAUNCH = [f"push gemm N=256 K=256 fp32 naive gemm bytes {MOVED}", f"push measure gemm bytes {MOVED}", "pop", "pop"]


@pytest.mark.cuda
def test_a_launch_on_the_gpu_is_marked(recorder: Path, tmp_path: Path) -> None:
    found = sweep_log(recorder, tmp_path / "log", "--once")
    assert found == ["domain bwprof", "push case gemm", *LAUNCH, "pop", "destroy"]
    assert sweep_log(recorder, tmp_path / "other", "--once", "--no-nvtx") == ["domain bwprof", "destroy"]


@pytest.mark.cuda
def test_a_sweep_on_the_gpu_is_marked(recorder: Path, tmp_path: Path) -> None:
    """Samples alone are in the case's range; what comes before and after them in others."""
    found = sweep_log(recorder, tmp_path / "log", "--no-roofs", "--max-seconds", "0.05", "--output", str(tmp_path))
    case = found[found.index("push case gemm") :]
    before = ["push case gemm", "push verify gemm", "pop", "push warmup gemm", "pop"]
    assert case[: len(before)] == before
    after = ["push verify gemm", "pop", "pop"]
    samples = case[len(before) : case.index(after[0], len(before))]
    assert len(samples) >= 10 * len(LAUNCH)
    assert samples == LAUNCH * (len(samples) // len(LAUNCH))
    assert case[len(before) + len(samples) :][: len(after)] == after


@pytest.mark.cuda
def test_ranges_on_the_gpu_are_marked(recorder: Path, tmp_path: Path) -> None:
    program = """
import bwprof
with bwprof.Profiler(device="cuda", nvtx=True) as profiler:
    profiler.set_bytes("a", 3, 4)
    profiler.start("a")
    profiler.start("é")
    profiler.stop("a")
    profiler.enabled = False
"""
    done = run(sys.executable, "-c", program, **watched(recorder, tmp_path / "log"))
    assert done.returncode == 0, done.stderr
    starts = [f"start {name}" for name in ("a range bytes 7", "é range")]
    assert read_log(tmp_path / "log")[1:5] == [*starts, "end 1", "end 2"]


@pytest.mark.cuda
@pytest.mark.parametrize("named", ["measure", "gemm N=256 K=256 fp32 naive"])
def test_ncu_sees_the_measured_launches_only(named: str) -> None:
    tool = shutil.which("ncu")
    if tool is None:
        pytest.skip("needs ncu")
    command = [sys.executable, "-m", "bwprof.sweep", *CASE, "--backend", "cuda", "--variant", "naive", "--once"]
    where = f"bwprof@{named}/"
    ask = ["--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--csv", "--print-units", "base"]
    done = run(tool, "--nvtx", "--nvtx-include", where, *ask, *command)
    if "ERR_NVGPUCTRPERM" in done.stdout or "LibraryNotLoaded" in done.stdout + done.stderr:
        pytest.skip("ncu may not count here")
    kernels = [line for line in done.stdout.splitlines() if "gpu__time_duration.sum" in line]
    assert len(kernels) == 1, done.stdout + done.stderr
    assert "naive" in kernels[0]
