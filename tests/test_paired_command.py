"""``bwprof ab``: processes of their own for both sides, interpreters, revisions, and sides that misbehave."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from commands import GIVE_UP_SECONDS, csv_rows, environment
from words import words

import bwprof
from bwprof import errors
from bwprof.cli import main, output
from bwprof.cli.commands import experiments
from bwprof.experiments import ab_process
from bwprof.experiments.ab_process import Place, ProcessSide
from bwprof.experiments.ab_run import ABTable
from bwprof.experiments.ab_sides import Call, SideError
from bwprof.runs.channel import NoInterrupts

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ["--device", "cpu", "--cache", "hot", "--threads", "1", "--rel-ci", "90%", "--quiet", "--max-seconds"]

# What is prepared is renewed without a new process: quickly.
KERNELS = """
import os, time

def once():
    return lambda: sum(range(3000))

def thrice():
    return lambda: [sum(range(3000)) for _ in range(3)] and None

def boom():
    raise ZeroDivisionError("no such tile")

def crash():
    os._exit(7)

def plain():
    sum(range(3000))

def hang():
    while True:
        time.sleep(0.05)

def told():
    with open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return lambda: sum(range(3000))

number = 3
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of kernels, in which the command runs."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str, seconds: str = "60") -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["ab", *arguments, *QUICK, seconds])
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    return code, shown.out, shown.err


@pytest.mark.usefixtures("kernels")
def test_three_times_the_work_fails_the_gate(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(
        capsys, "kernels:once", "kernels.py:thrice", "--fail-on", "2%", "--json", "o.json", "--csv", "o.csv"
    )
    assert code == 1
    assert "B is slower" in out
    assert {"--fail-on", "2%", "kernels:once", "kernels.py:thrice", "slower"} <= words(err)
    document = json.loads(Path("o.json").read_text())
    (row,) = document["rows"]
    assert (document["paired"], row["verdict"], row["cache"], row["a"]) == (1, "slower", "hot", "kernels:once")
    assert 2 < row["ratio"] < 4.5
    assert len(row["log_ratios"]) == row["units"] == row["renewals"] == 9
    assert row["pairs"] == 2 * len(row["orders"])
    assert set("".join(row["orders"])) == {"A", "B"}
    assert document["run"]["b"]["executable"] == sys.executable
    assert (document["run"]["status"], document["run"]["b"]["revision"]) == ("complete", None)
    (line,) = csv.DictReader(io.StringIO(Path("o.csv").read_text()))
    assert float(line["ratio"]) == row["ratio"]
    assert line["verdict"] == "slower"
    code, _, err = said(capsys, "kernels:once", "kernels:once", "--json", "o.json")
    assert (code, "exists already" in err) == (2, True)


@pytest.mark.usefixtures("kernels")
def test_undecided_cases_do_not_pass_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    short = [*QUICK, "0.001"]
    assert main(["ab", "kernels:once", "kernels:thrice", *short, "--fail-on", "2%"]) == 3
    said = capsys.readouterr().err
    assert {"--fail-on", "2%", "kernels:once", "kernels:thrice", "undecided"} <= words(said)
    assert {"9", "--max-seconds", "0.001"} <= words(said)
    assert main(["ab", "kernels:once", "kernels:thrice", *short]) == 0, "no gate was asked for"


# The interval's upper end, the verdict, what stopped it; the exit code of --fail-on 2%, and what it says.
GATES = [
    (1.03, "undecided", "time", 3, "undecided: B may be 3.00 % slower (why); --max-seconds is 60: more would tell"),
    (1.03, "undecided", "precise", 3, "undecided: B may be 3.00 % slower (why); --rel-ci is 1%: less would tell"),
    (1.015, "undecided", "time", 0, ""),  # not by as much, whatever it is
    (1.03, "same", "time", 0, ""),
    (1.06, "slower", "time", 1, "B is slower"),
]


@pytest.mark.parametrize(("high", "verdict", "stopped", "code", "words"), GATES)
def test_a_gate_judges_the_interval(
    high: float, verdict: str, stopped: str, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"case": "x", "ratio": high - 0.005, "ratio_hi": high, "verdict": verdict, "stopped": stopped}
    options = Namespace(fail_on=0.02, max_seconds=60.0, rel_ci=0.01)
    rows = [row | {"reason": "why"}]
    assert experiments.judge_rows(ABTable({}, rows), options) == code
    assert capsys.readouterr().err == (f"bwprof: --fail-on 2%: x: {words}\n" if words else "")
    slow = rows[0] | {"ratio": 2.0, "ratio_hi": 2.1, "verdict": "slower"}
    assert experiments.judge_rows(ABTable({}, [slow, *rows]), options) == 1, "one that is slower is said first of all"


def test_an_operation_in_two_interpreters(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is verified by its own; the same on both sides is said to be."""
    twice = ["--python", sys.executable, "--python", sys.executable]
    code, out, _ = said(capsys, "gemm", "-p", "M=2", "-p", "N=32", "-p", "K=32", *twice, "--csv", "-", seconds="0.001")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["case"], row["verified"], row["operation"]) for row in rows] == [
        (" ".join(["gemm", "M=2", "N=32", "K=32", "fp32"]), "True", "gemm"),
    ]
    assert all("are the same" in row["reason"] for row in rows)
    assert f"bwprof {bwprof.__version__}, {sys.executable}" in rows[0]["b_environment"]


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        ("kernels:once", "kernels:boom", "side B: ZeroDivisionError: no such tile"),
        ("kernels:crash", "kernels:once", "side A: its process (PYTHON) ended with exit code 7"),
        ("kernels:once", "kernels:nothing", "side B: AttributeError: module 'kernels' has no attribute 'nothing'"),
        ("kernels:number", "kernels:once", "side A: TypeError: number is 3"),
        ("nowhere:x", "kernels:once", "side A: ModuleNotFoundError: No module named 'nowhere'"),
        ("kernels:once", "other.py:x", "side B: FileNotFoundError"),
    ],
)
@pytest.mark.usefixtures("kernels")
def test_a_failing_side_is_named(a: str, b: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, a, b)
    assert code == 3
    assert error.replace("PYTHON", sys.executable) in err


@pytest.mark.usefixtures("kernels")
def test_rows_that_cannot_be_written_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is full costs neither the table nor the other file; its data are on standard error."""

    def write(path: Path, text: str) -> None:
        if path.name == "o.json":
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        path.write_text(text)

    monkeypatch.setattr(output, "atomic_write", write)
    code, out, err = said(capsys, "kernels:once", "kernels:once", "--json", "o.json", "--csv", "o.csv", seconds="0.001")
    assert code == 3
    assert "kernels:once" in out
    head, _, document = err.partition("bwprof: what was measured follows as JSON, so that it is not lost:\n")
    assert "o.json: File too large" in head
    (row,) = json.loads(document)["rows"]
    assert row["pairs"] > 0
    (line,) = csv_rows(Path("o.csv").read_text())
    assert (line["case"], int(line["pairs"])) == (row["case"], row["pairs"])


def gone(pid: int) -> bool:
    """Whether a process has ended, within a while."""
    until = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < until:
        state = Path(f"/proc/{pid}/stat")
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_hanging_side_is_ended(kernels: Path) -> None:
    with NoInterrupts() as stops:
        place = Place("cpu", 0, threads=1, folder=kernels)
        side = ProcessSide(Call("kernels:hang", cache="hot"), place, stops)
        side._start()
        assert side._child is not None
        pid = side._child._process.pid
        side._turn_seconds = 0.2
        with pytest.raises(SideError, match="within 200 ms"):
            side.open()
        assert gone(pid)


@pytest.mark.parametrize(("name", "anew"), [("kernels:plain", True), ("kernels:once", False)])
def test_only_a_new_process_gives_a_plain_function_other_memory(name: str, anew: bool, kernels: Path) -> None:
    with NoInterrupts() as stops:
        side = ProcessSide(Call(name, cache="hot"), Place("cpu", 0, threads=1, folder=kernels), stops)
        pids = []
        for _ in range(2):
            assert side.open().renewable
            assert len(side.turn(3)) == 3
            assert side._child is not None
            pids.append(side._child._process.pid)
        side.end()
    assert (pids[0] != pids[1]) == anew
    assert all(map(gone, pids))


def python(folder: Path, name: str, line: str) -> str:
    """An interpreter that is a script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def other_bwprof(folder: Path, **files: str) -> str:
    """An interpreter with another bwprof."""
    package = folder / "other" / "bwprof"
    package.mkdir(parents=True)
    for name, text in files.items():
        path = package / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return python(folder, "python", f'PYTHONPATH={folder / "other"} exec {sys.executable} -S "$@"')


ANSWERING = """
import json, os, sys
def main():
    os.read(int(sys.argv[2]), 4096)
    os.write(int(sys.argv[3]), b'{"answer": {"protocol": 99}}\\n')
    os.read(int(sys.argv[2]), 4096)
"""


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"__init__": "__version__ = '0.0.9'"}, "the bwprof of PATH (0.0.9) cannot be imported: ModuleNotFoundError"),
        ({"__init__": "1 / 0"}, "the bwprof of PATH (None) cannot be imported: ZeroDivisionError"),
        (
            {"__init__": "", "experiments_in___init__": "", "experiments_in_ab_process": ANSWERING},
            "the bwprof of PATH speaks another protocol (99, this one 1)",
        ),
    ],
)
def test_an_interpreter_with_another_bwprof(
    files: dict[str, str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = other_bwprof(tmp_path, **files)
    code, _, err = said(capsys, "gemm", "--python", sys.executable, "--python", other)
    assert (code, "side B: " in err) == (3, True)
    assert error.replace("PATH", other) in err


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (f'exec {sys.executable} -I -S "$@"', "has no bwprof: install it there"),
        ("exit 0", "ended with exit code 0: is it a Python of 3.11 or later?"),
        ("read line <&$5; echo nonsense >&$6; sleep 60", "an answer that cannot be read"),
    ],
)
def test_an_interpreter_without_bwprof(
    line: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = python(tmp_path, "python", line.replace("<&$5", "</dev/fd/$4").replace(">&$6", ">/dev/fd/$5"))
    code, _, err = said(capsys, "gemm", "--python", other, "--python", sys.executable)
    assert code == 3
    assert f"side A: {'its process (' if 'exit code' in error else ''}{other}" in err
    assert error in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["gemm"], "only A was named"),
        (["gemm", "--python", "/nowhere/python", "--python", "sh"], "no interpreter '/nowhere/python'"),
        (["gemm", "gemm", "--rev", "HEAD"], "revisions are HEAD"),
        (["gemm", "gemm", "--json", "nowhere/o.json"], "there is no folder nowhere"),
        (["gemm", "gemm", "--json", "o.txt"], "the name must end in .json"),
        (["gemm", "gemm", "--fail-on", "much"], "--fail-on is 'much'"),
        (["k:a", "k:a", "--precision", "fp16"], "precision goes with operations"),
    ],
)
def test_inputs_that_the_command_refuses(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, *arguments)
    assert code == 2
    assert error in err


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bwprof", "ab", *arguments, "--device", "cpu", "--cache", "hot", "--threads", "1"],
        cwd=folder,
        env=environment(folder),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def measuring(process: subprocess.Popen[str], folder: Path) -> list[int]:
    """The sides' processes, once both have got fresh buffers twice: they have taken turns then."""
    until = time.monotonic() + GIVE_UP_SECONDS
    pids = folder / "pids"
    while not pids.exists() or len(pids.read_text().splitlines()) < 6:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    return [int(line) for line in pids.read_text().split()]


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(kernels: Path) -> None:
    options = ["--rel-ci", "0.0001%", "--max-seconds", "600", "--json", "o.json"]
    process = started(kernels, "kernels:told", "kernels:told", *options)
    pids = measuring(process, kernels)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=GIVE_UP_SECONDS)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert "bwprof: interrupted: " in err
    (row,) = json.loads((kernels / "o.json").read_text())["rows"]
    assert (row["stopped"], row["pairs"] > 0) == ("interrupted", True)
    assert "kernels:told" in out
    assert all(map(gone, pids))


def test_a_command_that_is_killed_leaves_no_process(kernels: Path) -> None:
    process = started(kernels, "kernels:told", "kernels:told", "--rel-ci", "0.0001%", "--max-seconds", "600")
    pids = measuring(process, kernels)
    process.kill()
    process.communicate(timeout=GIVE_UP_SECONDS)
    assert len(set(pids)) == 2
    assert all(map(gone, pids))


# ---- revisions


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two revisions of a package that has to be built: HEAD does three times the work."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "nobody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "nobody@example.org")
    folder = tmp_path / "package"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for times in (1, 3):
        (folder / "built.in").write_text(f"times = {times}\n")
        (folder / "parts.py").write_text(
            "import built\ndef work():\n    return lambda: [sum(range(3000)) for _ in range(built.times)] and None\n"
        )
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", str(times))
        git(folder, "tag", f"v{times}")
    return folder


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_two_revisions_are_built_and_removed_again(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["parts:work", "--rev", "v1", "--rev", "HEAD", "--repo", str(repository)]
    code, out, _ = said(capsys, *asked, "--build", "cp built.in built.py", "--fail-on", "50%")
    assert code == 1
    assert f"revision v1 ({git(repository, 'rev-parse', 'v1')[:10]})" in out
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert not (repository / "built.py").exists()
    code, _, err = said(capsys, *asked)
    assert (code, "side A: " in err or "'built'" in err) == (3, True)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--rev", "v1", "--rev", "v9"], "side B: REPO has no revision 'v9'"),
        (["--rev", "v1", "--rev", "v3", "--build", "exit 3"], "side A: the build ended with exit code 3"),
    ],
)
def test_unavailable_revisions(
    more: list[str], error: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, "parts:work", *more, "--repo", str(repository))
    assert code == 2
    assert error.replace("REPO", str(repository)) in err
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("how", ["as it is", "gone", "locked"])
def test_foreign_worktrees_are_untouched(how: str, repository: Path, tmp_path: Path) -> None:
    """One that is missing is on a disk that is not mounted, say; ours are forgotten whatever became of them."""
    git(repository, "worktree", "add", "--quiet", "--detach", str(tmp_path / "mine"), "v1")
    shutil.rmtree(tmp_path / "mine")
    with ab_process.checked_out(repository, ["v1", "v3"], None, lambda: None) as found:
        if how == "gone":
            shutil.rmtree(found[0].folder)
        elif how == "locked":
            git(repository, "worktree", "lock", str(found[1].folder))
    listed = git(repository, "worktree", "list", "--porcelain")
    assert [line.split()[1] for line in listed.splitlines() if line.startswith("worktree ")] == [
        str(repository),
        str(tmp_path / "mine"),
    ]
    assert not found[0].folder.parent.exists()


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no git repository"):
        bwprof.ab("parts:work", revision=["a", "b"], repository=tmp_path, device="cpu")


def test_a_side_of_python_in_a_process_raises_with_the_frame(kernels: Path) -> None:
    options: dict[str, Any] = {"device": "cpu", "cache": "hot", "python": sys.executable, "max_seconds": 1}
    with pytest.raises(errors.PairedError, match="side B: ZeroDivisionError") as caught:
        bwprof.ab("kernels:once", "kernels:boom", **options)
    assert caught.value.frame["stopped"].tolist() == ["failed"]
    assert os.path.samefile(kernels, Path.cwd())
