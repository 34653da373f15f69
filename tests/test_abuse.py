"""Streams that are closed or full, files that others made, and arguments of the wrong kind: a sentence each time."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import IN_ONE, Here, environment
from words import words

import bwprof
from bwprof import _core
from bwprof.cli.commands.sweep import main_sweep
from bwprof.results import csv_file, reader, schema
from bwprof.runs.suites import parse

pytestmark = pytest.mark.usefixtures("one_thread")

SECONDS = 300  # no run is waited for longer; on a busy machine it may take a minute
QUICK = ["--no-roofs", "--target-seconds", "0.1"]
SMALL = ["gemm", "-p", "M=1", "-p", "N=8", "-p", "K=8", "--precision", "fp32", "--cache", "hot", "--backend", "cpu"]
TINY = [*SMALL, *QUICK]
CLASSIC = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"
# The code of the command, when whoever reads what it wrote, in a >(...), has ended as well.
ENDS = "code=$?; [[ -z $! ]] || wait $!; exit $code"
HEAD = {"format": "bwprof-results", "schema_version": 1, "run": {}}
ROW = {"operation": "gemm", "precision": "fp32", "M": 1, "N": 8, "K": 8, "time_ms": 1.0, "status": "ok"}


def in_shell(line: str, folder: Path, plant: str = "", *, draws: bool = False) -> tuple[int, str]:
    """Exit code and standard error of `line`, where $B is the command, with code planted into it and its child."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; B='{shlex.quote(sys.executable)} -m bwprof'; {line}"],
        cwd=folder,
        env=environment(folder, plant, draws=draws),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


# ---- streams ----


@pytest.mark.parametrize("what", ["--help", "--version", "sweep --list", "sweep --dry-run", "info", "info --json"])
def test_a_full_standard_output_is_one_sentence(tmp_path: Path, what: str) -> None:
    code, said = in_shell(f"$B {what} >/dev/full", tmp_path)
    assert code == 3
    assert said.strip().endswith(os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "2> >(exec true)"])
def test_progress_that_cannot_be_written_stops_nothing(tmp_path: Path, where: str) -> None:
    sweep = "sweep stream_copy -p elements=512,1024,2048 --backend cpu --precision fp32 --cache hot --output rows.csv"
    code, _ = in_shell(f"$B {sweep} {where} >/dev/null", tmp_path)
    assert code == 0
    assert bwprof.load(tmp_path / "rows.csv")["status"].tolist() == ["ok"] * 3


@pytest.mark.parametrize("what", ["--help", "sweep --list", "info", "columns", "operations"])
def test_a_closed_pipe_gives_no_message(tmp_path: Path, what: str) -> None:
    code, said = in_shell(f"$B {what} | true", tmp_path)
    assert said == ""
    assert code in (0, 141)  # 0 when all was written before the reader went


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path: Path, closed: str) -> None:
    """With a picture where all three are closed, so that the first files that anything opens get their numbers."""
    line = f"$B --list {closed} && $B {shlex.join(TINY)} {closed}"
    code, _ = in_shell(line, tmp_path, draws=closed.startswith("<"))
    assert code == 0
    (folder,) = (tmp_path / "bwprof-results").iterdir()
    assert bwprof.load(folder)["status"].tolist() == ["ok"]


@pytest.mark.parametrize("module", ["bwprof", "bwprof.sweep"])
def test_an_interrupt_while_modules_are_loaded(tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'bwprof.cli.commands.sweep':\n"
        "            signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    code, said = in_shell(f"PYTHONPATH={tmp_path}:$PYTHONPATH {sys.executable} -m {module} --list", tmp_path)
    assert (code, said) == (130, "bwprof: interrupted\n")


# ---- outputs ----


def test_one_file_cannot_be_csv_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "same")
    assert main_sweep([*TINY, "--output", str(tmp_path), "--csv", target, "--json", f"{tmp_path}/./same"]) == 2
    assert {"CSV", "JSON"} <= words(capsys.readouterr().err)
    assert not list(tmp_path.glob("*"))


def test_a_device_that_cannot_be_opened_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BWPROF_CPU_ISA", "abacus")
    assert main_sweep([*TINY, "--output", str(tmp_path)]) == 2
    assert "BWPROF_CPU_ISA is 'abacus'" in capsys.readouterr().err
    assert not list(tmp_path.glob("*"))


@pytest.mark.parametrize("given", ["0", "-1", "64M", "1048577", "9" * 30, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_an_invalid_cache_size_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BWPROF_CPU_CACHE_MIB", given)
    assert main_sweep([*TINY, "--csv", "-"]) == 2
    assert {"BWPROF_CPU_CACHE_MIB", *given.split(), "1048576"} <= words(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("option", "where"),
    [
        ("--csv - >/dev/full", "the standard output"),
        ("--csv /dev/full", "/dev/full"),
        ("--json /dev/full", "/dev/full"),
    ],
)
def test_a_full_disk_is_named(tmp_path: Path, option: str, where: str) -> None:
    code, said = in_shell(f"$B {shlex.join(TINY)} {option}", tmp_path)
    assert code == 2
    assert re.fullmatch(rf"bwprof: error: .*{re.escape(where)}: {os.strerror(errno.ENOSPC)}\n", said)


# Names of what the command has open already: replaced in one step, they would go on as files that nobody sees.
@pytest.mark.parametrize(
    "option",
    [
        "--csv /dev/stdout >",
        "--csv /dev/fd/3 3>",
        "--csv /proc/self/fd/3 3>>",
        "--csv >(cat >",
    ],
)
def test_csv_in_an_open_file_is_complete(tmp_path: Path, option: str) -> None:
    line = f"$B {shlex.join(TINY)} --output o.json {option} found.csv{')' if '(' in option else ''}"
    code, said = in_shell(f"{line}; {ENDS}", tmp_path, "" if "(" in option else IN_ONE)
    assert code == 0, said
    assert bwprof.load(tmp_path / "found.csv")["M"].tolist() == [1]


@pytest.mark.parametrize("option", ["--json >(cat > found)", "--json /dev/stdout > found", "--json /dev/fd/3 3> found"])
def test_a_pipe_gets_one_json_document(tmp_path: Path, option: str) -> None:
    line = f"$B {shlex.join(TINY)} --output o.csv {option}; {ENDS}"
    code, said = in_shell(line, tmp_path, "" if "(" in option else IN_ONE)
    assert code == 0, said
    assert len(json.loads((tmp_path / "found").read_text())["rows"]) == 1


def test_the_standard_output_has_one_kind_of_data_by_any_name(tmp_path: Path) -> None:
    code, said = in_shell(f"$B {shlex.join(TINY)} --csv /dev/stdout --json -", tmp_path)
    assert code == 2
    assert said.count("\n") == 1
    assert {"--csv", "--json"} <= words(said)


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    row = {**ROW, "run_id": "first"}
    with closing(csv_file.CsvWriter(path)) as first:
        with pytest.raises(OSError, match="another bwprof"):
            csv_file.CsvWriter(path)
        first.append(row)
        first.finish([row])
        assert csv_file.read_csv(path)[0]["run_id"] == "first"
    csv_file.CsvWriter(path).close()


def test_letters_that_the_locale_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[[case]]\nname = "gr\u00f6\u00dfe"\noperation = "gemm"\nparams = {M=1,N=8,K=8}\ncache = "hot"\n'
    )
    plain = "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
    assert in_shell(f"{plain} $B sweep --help|grep -qseq", tmp_path) == (0, "")
    code, said = in_shell(
        f"{plain} $B --suite a.toml --backend cpu --precision fp32 {shlex.join(QUICK)} --output runs > shown",
        tmp_path,
        draws=True,
    )
    assert code == 0, said
    assert "gr\\xf6\\xdfe" in (tmp_path / "shown").read_text()
    (folder,) = (tmp_path / "runs").iterdir()
    assert bwprof.load(folder)["case"].tolist() == ["gr\u00f6\u00dfe"]


def test_a_process_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert main_sweep([*TINY, "--output", str(tmp_path / "runs")]) == 2
    assert "[Errno 2]" in capsys.readouterr().err
    assert not list((tmp_path / "runs").glob("*"))


def test_no_memory_for_the_summary(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("bwprof.cli.render.print_summary", fail)
    code, _, err = here(*TINY, "--output", "runs")
    assert code == 3
    assert err.endswith("out of memory\n")
    assert len(bwprof.load(next((tmp_path / "runs").iterdir()))) == 1


# ---- options and arguments ----


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([""], "OPERATION is ''"),
        ([","], "OPERATION is ','"),
        (["gemm", "--precision", ""], "--precision is ''"),
        (["gemm", "--variant", ","], "--variant is ','"),
        (["gemm", "--cache", " "], "--cache is ' '"),
        (["--output", ""], "--output is ''"),
        (["--csv", ""], "--csv is ''"),
        (["--suite", ""], "--suite is ''"),
        (["--resume", ""], "--resume is ''"),
        (["gemm", "-p", "M=1__0"], "--param M: '1__0' is not a whole number"),
        (["gemm", "-p", "M=" + "9" * 5000], "--param M: a number of 5000 digits does not fit"),
        (["gemm", *(f"-p{name}=" + ",".join(map(str, range(1, 101))) for name in "MNK")], "make 1000000 cases"),
    ],
)
def test_empty_and_contradicting_options(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep([*arguments, "--dry-run"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["folder.toml", "absent.toml"])
def test_a_suite_that_cannot_be_read(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder.toml").mkdir()
    assert main_sweep(["--suite", str(tmp_path / name), "--dry-run"]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"operations": 5}, "operations is 5"),
        ({"operations": ["gemm", 1]}, "operations is"),
        ({"operations": ""}, "operations is ''"),
        ({"operations": "gemm", "precision": 16}, "precision is 16"),
        ({"operations": "gemm", "cache": [None]}, "cache is"),
        ({"operations": "gemm", "M": np.ones((2, 2), int)}, "M is array"),
        ({"operations": "gemm", "M": 1.5}, "M is 1.5"),
        ({"operations": "gemm", "M": b"12"}, "M is b'12'"),
        ({"operations": "gemm", "M": []}, "M has no values"),
        ({"operations": "gemm", "seed": "x"}, "seed: 'x' is not a whole number"),
        ({"operations": "gemm", "seed": -1}, "seed is -1"),
        ({"operations": "gemm", "device": "x"}, "device is 'x'"),
        ({"operations": "gemm", "backend": 5}, "unknown backend '5'"),
        ({"operations": "gemm", "max_total_seconds": "1"}, "max_total_seconds is '1'"),
        ({"operations": "gemm", "max_total_seconds": float("nan")}, "max_total_seconds is nan"),
        ({"operations": "gemm", "max_total_seconds": 10**5000}, "max_total_seconds is an int of too many digits"),
        ({"operations": "gemm", "max_total_seconds": True}, "max_total_seconds is True"),
        ({"operations": []}, "operations is []"),
        ({"operations": "gemm", "precision": []}, "precision is []"),
        ({"operations": "gemm", "timer": 5}, "unknown timer on cpu '5'"),
        ({"operations": "gemm", "output": 5}, "output is 5"),
    ],
)
def test_arguments_of_the_wrong_kind(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        bwprof.sweep(**{"backend": "cpu", **options})


@pytest.mark.parametrize("value", [np.array([1, 2]), 1.5, b"3", None, 2**80])
def test_a_parameter_of_the_wrong_kind(value: Any) -> None:
    with pytest.raises(ValueError, match="gemm: M is"):
        bwprof.Case("gemm", backend="cpu", M=value)


# ---- result files ----


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (CLASSIC + "\n" + "x" * 200_000 + "\n", "line 2: 1 values for 9 columns"),
        (CLASSIC + ",M\ngemm,fp32,1,8,8,1,1,1,1,2\n", "column M twice"),
        (CLASSIC + "\ngemm,fp32,1.5,8,8,1,1,1,1\n", "M: '1.5' is not a whole number"),
        (CLASSIC + "\ngemm,fp32,inf,8,8,1,1,1,1\n", "M: 'inf' is not a whole number"),
        (CLASSIC + "\ngemm,fp32,99999999999999999999,8,8,1,1,1,1\n", "M: '99999999999999999999' is not"),
    ],
)
def test_csv_of_another_tool(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "results.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{re.escape(said)}"):
        bwprof.load(path)


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "9" * 5000,
        *(
            json.dumps({**HEAD, "rows": [row]})
            for row in (
                5,
                [1],
                {**ROW, "M": 1.5},
                {**ROW, "M": float("inf")},
                {**ROW, "M": 2**63},
                {**ROW, "operation": ["gemm"]},
                {**ROW, "samples_ns": "abc"},
                {**ROW, "samples_ns": [1.0, None]},
                {**ROW, "samples_ns": [10**400]},
                {**ROW, "verified": [True]},
                {**ROW, "label": json.loads("[" * 900 + "]" * 900)},
            )
        ),
    ],
)
def test_json_of_another_tool(tmp_path: Path, content: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        bwprof.load(path)


@pytest.mark.parametrize("name", [column.name for column in schema.all_columns() if column.kind != "text"])
def test_a_number_beyond_every_type(tmp_path: Path, name: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**HEAD, "rows": [{**ROW, name: 10**400}]}))
    with pytest.raises(ValueError, match=f"row 1: column {name}: 1000") as caught:
        bwprof.load(path)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("version", [2, 2.0, 1.0, "2", "1", 1e9, 0, -1, True, [1], 10**400])
@pytest.mark.parametrize("where", ["the file", "a row"])
def test_an_unknown_schema_version_is_refused(tmp_path: Path, version: Any, where: str) -> None:
    row = {**ROW, "schema_version": version} if where == "a row" else ROW
    head = {**HEAD, "schema_version": version} if where == "the file" else HEAD
    (tmp_path / "results.json").write_text(json.dumps({**head, "rows": [row]}))
    if where == "a row" and version in ("1", 1.0, True):  # what a column of whole numbers reads as 1
        assert len(bwprof.load(tmp_path / "results.json")) == 1
        return
    with pytest.raises(ValueError, match=r"schema.version"):
        bwprof.load(tmp_path / "results.json")


@pytest.mark.parametrize("part", ["run", "plan"])
def test_a_run_that_is_nested_too_deep(tmp_path: Path, part: str) -> None:
    deep = json.loads('{"a":' * 900 + "1" + "}" * 900)
    document = {**HEAD, "run": deep if part == "run" else {"plan": [deep]}, "rows": [ROW]}
    (tmp_path / "results.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="60 levels"):
        bwprof.load(tmp_path / "results.json")


def test_fractions_are_not_rounded_to_whole_numbers() -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        schema.parse_value(1.5, "integer")
    assert schema.parse_value(2.0, "integer") == 2
    assert schema.parse_value(np.int64(3), "integer") == 3


def test_files_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps({**HEAD, "rows": [ROW]}))
    assert len(bwprof.load(tmp_path / "a.json")) == 1
    assert len(parse(b'\xef\xbb\xbf[[case]]\noperation = "gemm"\n', source="a.toml").cases) == 1


def test_the_same_measured_twice_is_two_lines(here: Here) -> None:
    once = bwprof.sweep("gemm", M=[1, 1], N=8, K=8, backend="cpu", cache="hot", roofs=False)
    assert once["precision"].tolist() == ["fp32", "fp16"], "a value listed twice is measured once"
    both = bwprof.summary(pd.concat([once, once]))
    assert both["speedup_vs_fp32"].tolist() == [once["speedup_vs_fp32"][1]] * 2


@pytest.mark.parametrize("wrong", [None, "results.csv", {}])
def test_invalid_frames(wrong: Any, tmp_path: Path) -> None:
    for function in (bwprof.summary, lambda data: bwprof.save(data, tmp_path / "a.csv")):
        with pytest.raises(TypeError, match=r"pandas\.DataFrame"):
            function(wrong)


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        (None, TypeError, "data is None: a frame is needed, a run's folder, a file of results, or rows"),
        ("results.csv", FileNotFoundError, "no such file or folder: results.csv"),
        ({}, ValueError, "the rows have no column operation"),
    ],
)
def test_data_without_a_picture(
    wrong: Any, kind: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=re.escape(said)):
        bwprof.plot.comparison(wrong)


# ---- other processes ----


def test_a_sweep_error_gets_through_a_pipe() -> None:
    back = pickle.loads(pickle.dumps(bwprof.SweepError("lost", pd.DataFrame({"a": [1]}))))
    assert (str(back), back.frame["a"].tolist()) == ("lost", [1])


# ---- resuming ----


def spec(**changes: Any) -> dict[str, Any]:
    found = {"case": "gemm", "operation": "gemm", "precision": "fp32", "params": {"M": 1, "N": 8, "K": 8, "beta": 0}}
    return {**found, "kv_lens": None, "variant": None, "cache": "hot", "seed": 0, **changes}


def run_with(plan: Any) -> dict[str, Any]:
    return {"run_id": "r", "backend": "cpu", "device_index": 0, "device": "x", "plan": plan}


def damaged(changes: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    run = run_with([spec()])
    changes(run)
    return run


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({}, "it has no plan"),
        (run_with("abc"), "its plan is 'abc'"),
        (run_with([1]), "case 1 of its plan"),
        (run_with([{}]), "case 1 of its plan: 'kv_lens'"),
        (run_with([spec(extra=1)]), "case 1 of its plan"),
        (run_with([spec(), spec(operation="gem")]), "case 2 of its plan: unknown operation 'gem'"),
        (run_with([spec(precision="fp99")]), "unknown precision 'fp99'"),
        (run_with([spec(params={"M": -1})]), "M = -1"),
        (run_with([spec(params=[1])]), "case 1 of its plan"),
        (run_with([spec(kv_lens=5)]), "case 1 of its plan"),
        (run_with([spec(variant="fast")]), "unknown variant of gemm on cpu 'fast'"),
        (run_with([spec(cache="warm")]), "unknown cache 'warm'"),
        (run_with([spec(seed="x")]), "seed is 'x'"),
        (run_with([spec(case=None)]), "case is None"),
        (damaged(lambda run: run.pop("backend")), "its backend is None"),
        (damaged(lambda run: run.update(device_index=[1])), r"its device_index is [1]"),
        (damaged(lambda run: run.pop("run_id")), "its run_id is None"),
        (damaged(lambda run: run.update(backend="abacus")), "unknown backend 'abacus'"),
    ],
)
def test_a_run_that_cannot_be_resumed(
    tmp_path: Path, run: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / reader.JSON_NAME).write_text(json.dumps({**HEAD, "run": run, "rows": []}))
    (tmp_path / reader.CSV_NAME).write_text(csv_file.header_line())
    assert main_sweep(["--resume", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_results_cannot_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep(["--resume", str(tmp_path)]) == 2
    assert "holds neither" in capsys.readouterr().err
    assert main_sweep(["--resume", str(tmp_path), "--output", "a.csv"]) == 2
    assert {"--output", "a.csv", "folder"} <= words(capsys.readouterr().err)


def test_objects_with_a_device_are_neither_copied_nor_pickled(cpu: _core.Device) -> None:
    with bwprof.Case("stream_copy", elements=64, backend="cpu") as case, bwprof.Profiler(device="cpu") as profiler:
        for one in (case, profiler, cpu, _core.Case(cpu, "stream_copy", "fp32", {"elements": 64}), _core.Profiler()):
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=r"copied|pickle"):
                    way(one)
        case.run()
        with profiler.range("a"):
            pass
