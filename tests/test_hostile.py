"""What others do to the command: files and words not meant well, signals, children that stop, absurd numbers."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import GIVE_UP_SECONDS, PLANT, TINY, Here, command, environment, finished, plant_in_child, run_folder
from rows import pair, row
from words import words

import bwprof
from bwprof import _core
from bwprof.cli import runner as sweep_command
from bwprof.cli.commands import sweep
from bwprof.cli.commands.plot import main_plot as plot_main
from bwprof.cli.commands.results import main_report as report_main
from bwprof.cli.commands.sweep import main_sweep
from bwprof.cli.guard import guarded
from bwprof.measuring.operation import Spec
from bwprof.results import csv_file
from bwprof.results import frame as results_frame
from bwprof.runs import channel, executors, loop, plan
from bwprof.runs.channel import ChildProcess, Interrupts, RunTimeoutError
from bwprof.runs.executors import ChildExecutor
from bwprof.runs.plan import SweepRequest
from bwprof.runs.progress import BarProgress

pytestmark = pytest.mark.usefixtures("one_thread")

ESCAPE = "\x1b]0;title\x07"  # sets a terminal's title
SPELLED = r"\x1b]0;title\x07"
ONE = ["gemm", *TINY, "-p", "M=1", "--precision", "fp32"]


# ---- the child and its surroundings


def test_the_child_runs_nothing_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "sys", "logging", "bwprof"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [os.path.abspath(folder) for folder in sys.path if folder])
    with Interrupts() as interrupts:
        executor = ChildExecutor("cpu", 0, interrupts)
        assert executor.open(None)["name"]
        executor.close()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("flags", "passed"),
    [({}, []), ({"isolated": 1}, ["-I"]), ({"ignore_environment": 1, "no_user_site": 1}, ["-E", "-s"])],
)
def test_the_child_is_as_isolated_as_the_command(
    flags: dict[str, int], passed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    none = dict.fromkeys(("isolated", "ignore_environment", "no_user_site", "no_site"), 0)
    monkeypatch.setattr(sys, "flags", SimpleNamespace(**{**none, **flags}))
    line = executors.command_line(3, 4)
    assert line[1 : line.index("-c")] == ["-P", *passed]
    assert json.loads(line[-3]) == sys.path


def test_a_child_whose_command_was_killed_ends_quietly() -> None:
    request_read, request = os.pipe()
    answer, answer_write = os.pipe()
    with subprocess.Popen(
        executors.command_line(request_read, answer_write),
        pass_fds=(request_read, answer_write),
        stderr=subprocess.PIPE,
    ) as orphan:
        for fd in (request_read, answer_write, answer):
            os.close(fd)
        os.write(request, b'{"do": "open", "backend": "cpu", "index": 0}\n{"do": "op')
        os.close(request)
        assert orphan.stderr is not None
        assert orphan.stderr.read() == b""
    assert orphan.returncode == 1


# ---- words of others


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self) -> bool:
        return True


def test_control_characters_of_arguments_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["gem" + ESCAPE], ["--suite", f"{ESCAPE}.toml"], [f"--{ESCAPE}"], ["--resume", ESCAPE]):
        assert main_sweep(arguments) == 2
        err = capsys.readouterr().err
        assert SPELLED in err
        assert "\x1b" not in err


def test_control_characters_of_a_foreign_run_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        *pair(f"a{ESCAPE}", 100.0, 80.0, flags="noisy", variant=f"v{ESCAPE}"),
        row("b", "fp32", gb_s=None, status="failed", reason=f"no\u202e{ESCAPE}"),
    ]
    (tmp_path / "a.csv").write_text(csv_file.csv_text(rows))
    assert report_main([str(tmp_path / "a.csv")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count(SPELLED) >= 3
    assert report_main([str(tmp_path / f"{ESCAPE}.csv")]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_control_characters_in_data_are_escaped_on_a_terminal(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a file they go as they are."""
    (tmp_path / "a.toml").write_text('[[case]]\nname = "a"\noperation = "gemm"\nparams = {M = 1, N = 8, K = 8}\n')
    real = results_frame.schema.parse_value
    monkeypatch.setattr(
        csv_file.schema, "parse_value", lambda value, *more: real(value + ESCAPE if value == "a" else value, *more)
    )
    arguments = ["--suite", "a.toml", "--cache", "hot", "--backend", "cpu", "--precision", "fp32", "--csv", "-"]
    assert ESCAPE in here(*arguments, "--quiet")[1]
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    assert main_sweep([*arguments, "--quiet"]) == 0
    assert SPELLED in shown.getvalue()
    assert "\x1b" not in shown.getvalue()


def test_control_characters_of_a_case_are_escaped_in_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    bar = BarProgress(screen)
    bar.begin(1)
    bar.case(f"a{ESCAPE}")
    bar.row(row(f"b{ESCAPE}", "fp32", gb_s=None, status="failed", reason=ESCAPE))
    bar.end()
    assert "\x1b]0" not in screen.getvalue()
    assert SPELLED in screen.getvalue()


# ---- signals


def wait_until_it_waits(process: subprocess.Popen[str]) -> None:
    """Until the process has slept through ten looks at it."""
    asleep = 0
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while asleep < 10:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("option", "number"),
    [("--csv", signal.SIGINT), ("--json", signal.SIGHUP), ("--csv", signal.SIGTERM)],
)
def test_a_signal_ends_the_wait_for_a_pipe(tmp_path: Path, option: str, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    process = command("gemm", *TINY, option, "pipe.toml", folder=tmp_path)
    wait_until_it_waits(process)
    process.send_signal(number)
    _, err = process.communicate(timeout=GIVE_UP_SECONDS)
    assert (process.returncode, err) == (130, "bwprof: interrupted\n")
    assert not list(tmp_path.glob("bwprof-results/*")), "no folder without rows"


def test_a_signal_ends_a_dry_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Spec] = []

    def estimated(_device: object, _facts: object, spec: Spec, *_: object) -> list[str]:
        seen.append(spec)
        signal.raise_signal(signal.SIGTERM)
        return [""] * 10

    monkeypatch.setattr(sweep, "_estimated", estimated)
    assert main_sweep(["gemm", "-p", "M=1,2,3", "--backend", "cpu", "--dry-run"]) == 130
    assert len(seen) == 1
    assert capsys.readouterr().err == "bwprof: interrupted\n"


def drawing(how: str) -> Any:
    """A picture that never ends, during which a signal comes, or that fails in a way of its own."""

    def save(*_: object) -> None:
        if how == "signal":
            signal.raise_signal(signal.SIGHUP)
        if how == "fails":
            raise KeyError("dpi")
        end = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < end:
            time.sleep(0.01)

    return save


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("signal", 130, "1 ok"),
        ("hangs", 0, "the picture could not be drawn: it was not finished within 0.1 s"),
        ("fails", 0, "the picture could not be drawn: 'dpi'"),
    ],
)
def test_a_failing_picture_loses_no_row_and_no_summary(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, code: int, said: str
) -> None:
    monkeypatch.setattr("bwprof.plot.bars.save", drawing(how))
    monkeypatch.setattr(sweep_command, "_PICTURE_SECONDS", 0.1 if how == "hangs" else 60.0)
    monkeypatch.setattr(sweep_command, "_PICTURE_LEAST_SECONDS", 0.1)
    begun = time.monotonic()
    got, out, err = here(*ONE)
    assert time.monotonic() - begun < GIVE_UP_SECONDS
    assert (got, said in err) == (code, True), err
    assert "gemm N=16" in out
    assert len(bwprof.load(run_folder(tmp_path))) == 1


# A signal while the command, for its picture, loads NumPy, which cannot be loaded twice.
LOADING = """
import os, signal, sys
def seen(event, given):
    if event == "import" and given[0] == "numpy.linalg" and "bwprof.cli.runner" in sys.modules:
        os.kill(os.getpid(), signal.SIGTERM)
sys.addaudithook(seen)
"""


def test_a_signal_while_the_pictures_modules_are_loaded(tmp_path: Path) -> None:
    code, out, err = finished(*ONE, folder=tmp_path, plant=LOADING, draws=True)
    assert code == 130
    assert "gemm N=16" in out
    assert "1 ok" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_handlers_are_set(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    """While its modules are loaded: an exit code and a line, as later."""
    before = signal.getsignal(number)
    assert guarded(lambda: guarded(lambda: signal.raise_signal(number) or 0)) == 130
    assert capsys.readouterr().err == "bwprof: interrupted\n"
    assert signal.getsignal(number) == before


def test_a_command_in_another_thread_handles_no_signal() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(guarded(lambda: 0)))
    thread.start()
    thread.join()
    assert codes == [0]


# ---- a limit for every case


def test_a_stopped_child_fails_its_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    body = "if spec.params['M'] == 2: os.kill(os.getpid(), signal.SIGSTOP)"
    plant_in_child(monkeypatch, tmp_path, PLANT.format(body=body))
    monkeypatch.setattr(channel, "_END_SECONDS", 0.2)
    arguments = ["gemm", *TINY, "-p", "M=1,2,3", "--precision", "fp32", "--output", str(tmp_path / "a.csv")]
    assert main_sweep([*arguments, "--max-case-seconds", "2"]) == 3
    frame = bwprof.load(tmp_path / "a.csv")
    assert frame["status"].tolist() == ["ok", "failed", "ok"]
    assert {"2", "--max-case-seconds"} <= words(frame.loc[1, "reason"])


def spec_of(**params: int) -> Spec:
    return plan.make_plan(SweepRequest(("gemm",), {name: (value,) for name, value in params.items()}), "cpu").specs[0]


def test_a_case_may_take_ten_minutes_and_fifty_times_its_estimate() -> None:
    """At 2 TFLOP/s a product of 2^39 multiplications and additions takes 0.55 s, ten of them 5.5 s."""
    facts = {"peak_gb_s": 100.0, "peak_tflops": {"fp32": 2.0}}
    assert 600 < loop.estimate_limit(spec_of(M=1, N=1, K=1), facts, "cpu") < 660
    size = 2**13
    launch = 2 * size**3 / 2e12
    fill = 3 * size**2 * 4 / 85e9 / 0.1
    expected = 600 + 50 * (10 * launch + fill)
    assert loop.estimate_limit(spec_of(M=size, N=size, K=size), facts, "cpu") == pytest.approx(expected, rel=1e-3)
    assert loop.estimate_limit(spec_of(M=1, N=1, K=1), {}, "cpu") > 600, "nothing is known of the device"


def test_the_default_limit_of_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_child(monkeypatch, tmp_path, PLANT.format(body="time.sleep(600)"))
    monkeypatch.setattr(loop, "estimate_limit", lambda *_: 0.3)
    assert main_sweep([*ONE, "--output", str(tmp_path / "a.csv"), "--quiet"]) == 3
    assert "within 300 ms" in bwprof.load(tmp_path / "a.csv").loc[0, "reason"]


def test_a_device_that_hangs_in_opening_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = "import time\nfrom bwprof.runs import executors\nexecutors.LocalExecutor.open = lambda _: time.sleep(600)\n"
    plant_in_child(monkeypatch, tmp_path, plant)
    monkeypatch.setattr(executors, "_OPEN_SECONDS", 0.5)
    monkeypatch.setattr(channel, "_END_SECONDS", 0.2)
    with Interrupts() as interrupts:
        executor = ChildExecutor("cpu", 0, interrupts)
        with pytest.raises(_core.UnavailableError, match=r"within 0\.5 s"):
            executor.open(None)
        executor.close()


def test_a_request_larger_than_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets through, and a child that does not read it holds up nobody."""
    plant_in_child(monkeypatch, tmp_path)
    request = {"do": "open", "backend": "cpu", "index": 0, "more": "x" * 2_000_000}
    with Interrupts() as interrupts:
        other = ChildProcess(executors.command_line)
        assert "facts" in other.ask(request, interrupts, time.monotonic() + GIVE_UP_SECONDS)
        os.kill(other._process.pid, signal.SIGSTOP)
        with pytest.raises(RunTimeoutError):
            other.ask(request, interrupts, time.monotonic() + 0.2)
        os.kill(other._process.pid, signal.SIGKILL)
        other.end()


class Unkillable:
    """A process that goes a while after it was killed: the kernel waits for its driver."""

    pid, killed, gone = 1, False, False

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        self.killed = True

    def wait(self, seconds: float | None = None) -> int:
        if seconds is not None:
            raise subprocess.TimeoutExpired("worker", seconds)
        self.gone = True
        return -signal.SIGKILL


def test_a_child_that_does_not_end_is_logged_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = ChildProcess.__new__(ChildProcess)
    hangs = Unkillable()
    for name, value in {"_request": -1, "_answer": -1, "_process": hangs}.items():
        monkeypatch.setattr(other, name, value, raising=False)
    before = set(threading.enumerate())
    other.end()
    for thread in set(threading.enumerate()) - before:
        thread.join(GIVE_UP_SECONDS)
    assert hangs.killed
    assert hangs.gone, "nobody waits for it, and it stays behind as a zombie"
    (record,) = caplog.records
    assert "process 1 " in record.message


# ---- options


@pytest.mark.parametrize(
    "arguments",
    [
        ["--csv", "a", "--csv", "b"],
        ["--json", "a", "--json=b"],
        ["--output", "a", "--output", "b"],
        ["--suite", "a", "--suite", "b"],
        ["--seq-lengths", "1", "--seq-lengths", "2"],
        ["--max-total-seconds", "1", "--max-total-seconds", "2"],
        ["--seed", "0", "--seed", "0"],
        ["--resume", "a", "--resume", "b"],
    ],
)
def test_an_option_given_twice_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep(arguments) == 2
    name = arguments[0]
    first, second = (word for word in " ".join(arguments).replace("=", " ").split() if word != name)
    assert f"{name} is given twice: '{first}' and '{second}'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--csv", "--json", "--output"])
def test_existing_files_are_replaced_only_with_force(here: Here, tmp_path: Path, option: str) -> None:
    name = "rows.json" if option == "--json" else "rows.csv"
    (tmp_path / name).write_text("mine")
    code, _, err = here(*ONE, option, name)
    assert (code, err.count("\n")) == (2, 1)
    assert {name, "--force"} <= words(err)
    assert (tmp_path / name).read_text() == "mine"
    assert not list(tmp_path.glob("bwprof-results/*"))
    assert here(*ONE, option, name, "--force")[0] == 0
    assert len(bwprof.load(tmp_path / name)) == 1
    (tmp_path / name).write_text("")
    assert here(*ONE, option, name)[0] == 0, "an empty file (mktemp's) is nobody's"


def test_a_resumed_run_may_replace_its_own_file(here: Here, tmp_path: Path) -> None:
    assert here(*ONE, "--csv", "rows.csv")[0] == 0
    run = str(run_folder(tmp_path))
    assert here("--resume", run, "--csv", "rows.csv")[0] == 0
    (tmp_path / "other.csv").write_text(csv_file.csv_text([row("a", "fp32")]))
    assert here("--resume", run, "--csv", "other.csv")[0] == 2
    assert bwprof.load(tmp_path / "other.csv")["case"].tolist() == ["a"]


def test_results_are_not_written_over_the_suite(here: Here, tmp_path: Path) -> None:
    text = '[[case]]\noperation = "gemm"\n'
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "link").symlink_to("a.toml")
    for option in (["--csv", "a.toml"], ["--json", "link"]):
        code, _, err = here("--suite", "a.toml", *option, "--force")
        assert code == 2
        assert f"{option[1]} is what is read" in err
    assert (tmp_path / "a.toml").read_text() == text


def test_quiet_shows_warnings(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bwprof.plot.bars.save", drawing("fails"))
    assert {"WARNING", "picture"} <= words(here(*ONE, "--quiet")[2])


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (" ".join([*ONE, "--csv -"]), "--csv -"),
        (" ".join([*ONE, "--json /dev/stdout"]), "--json -"),
        ("info --json", "--json"),
        ("selftest repeat --json -", "--json -"),
    ],
)
def test_data_for_a_closed_stream_are_an_error(tmp_path: Path, line: str, option: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m bwprof {line} >&-"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=GIVE_UP_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert re.fullmatch(rf"bwprof: error: {option}: .* closed\n", done.stderr)


def test_a_dry_run_names_unused_options(here: Here, tmp_path: Path) -> None:
    code, out, err = here(*ONE, "--dry-run", "--csv", "a.csv", "--max-total-seconds", "5")
    assert code == 0
    assert "1 case on cpu:0" in out
    assert {"--dry-run", "--csv", "--max-total-seconds"} <= words(err)
    assert "OPERATION, --csv left aside" in here("gemm", "--list", "--csv", "a.csv")[2]
    assert not (tmp_path / "a.csv").exists()


# ---- absurd numbers


@pytest.mark.parametrize("seconds", ["2147483", "1e300"])
def test_a_time_limit_of_many_years(seconds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_child(monkeypatch, tmp_path)
    arguments = [
        "--max-total-seconds",
        seconds,
        "--max-case-seconds",
        seconds,
        "--output",
        str(tmp_path / "a.csv"),
        "--quiet",
    ]
    assert main_sweep([*ONE, *arguments]) == 0
    assert bwprof.load(tmp_path / "a.csv")["status"].tolist() == ["ok"]


@pytest.mark.parametrize("where", ["", "[on.cpu]\n"])
def test_target_seconds_that_no_float_can_hold(tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.toml").write_text(f'{where}target_seconds = {"9" * 400}\n[[case]]\noperation = "gemm"\n')
    assert main_sweep(["--suite", str(tmp_path / "a.toml"), "--dry-run", "--backend", "cpu"]) == 2
    assert "target_seconds is 999" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"timer": 3}, 2, "case 1 of its plan: timer is 3, text is needed"),
        ({"timer": "sundial"}, 2, "unknown timer on cpu 'sundial'"),
        ({"counters": 3}, 2, "counters is 3"),
        ({"kv_lens": 10**400}, 2, "case 1 of its plan"),
        ({"seed": 10**400}, 2, "seed is 1000"),
        ({"params": {"M": 10**400}}, 2, "does not fit in 64 bits"),
        ({"target_seconds": 10**400}, 0, ""),
        ({"device_index": 10**400}, 2, "has no device 1000"),
    ],
)
def test_a_plan_with_absurd_numbers(here: Here, tmp_path: Path, changes: dict[str, Any], code: int, said: str) -> None:
    spec = {**spec_of(M=1, N=8, K=8).to_dict(), "cache": "hot", "counters": False}
    run = {"run_id": "run-1", "backend": "cpu", "device_index": 0}
    for name, value in changes.items():
        (spec if name in spec else run)[name] = value
    document = {"format": "bwprof-results", "schema_version": 1, "run": {**run, "plan": [spec]}, "rows": []}
    (tmp_path / "results.json").write_text(json.dumps(document))
    got, _, err = here("--resume", str(tmp_path))
    assert (got, said in err) == (code, True), err


# ---- commands that only read


def test_the_commands_of_plot_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(csv_file.csv_text(pair("decode", 100.0, 80.0)))
    assert report_main([str(path)]) == 0
    assert re.search(r"^decode\s*\|plain\s*\|\s*100\s*\|\s*80\.0\s", capsys.readouterr().out, re.MULTILINE)
    for name, start in (("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.png", b"\x89PNG")):
        assert plot_main([str(path), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.csv", "a.pdf", "a.png", "a.svg"]


@pytest.mark.parametrize(
    ("entry", "arguments", "said"),
    [
        (report_main, [], "required: RUN|FILE"),
        (report_main, ["absent"], "no such file or folder: absent"),
        (report_main, ["a.toml"], "a.toml"),
        (plot_main, ["a.csv"], "required: -o"),
        (plot_main, ["a.csv", "-o", "a.csv"], "unknown ending of a picture '.csv'"),
        (plot_main, ["a.csv", "-o", "a"], "unknown ending of a picture 'a'"),
        (plot_main, ["a.csv", "-o", "no/a.svg"], "no/a.svg: there is no folder no that can be written to"),
        (plot_main, ["empty.csv", "-o", "a.svg"], "there are no rows to draw"),
    ],
)
def test_inputs_that_plot_and_report_refuse(
    entry: Any, arguments: list[str], said: str, here: Here, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(csv_file.csv_text(pair("a", 100.0, 80.0)))
    (tmp_path / "empty.csv").write_text(csv_file.header_line())
    (tmp_path / "a.toml").write_text("")
    assert entry(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["plot", "report"])
def test_a_module_that_is_a_command_runs_without_a_warning(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"bwprof.{name}", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert f"usage: bwprof {name}" in done.stdout
