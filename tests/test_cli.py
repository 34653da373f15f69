"""The command: what it writes, what it says about bad input, and what it keeps when things go wrong.

Everything that is measured here is tiny; the roofs are left out by a planted module where they are not the point.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from commands import DRAW, GIVE_UP_SECONDS, PLANT, TINY, Here, command, csv_rows, finished, run_folder
from words import words

import bwprof
from bwprof import _core
from bwprof.cli import COMMANDS, main
from bwprof.cli.commands.sweep import main_sweep
from bwprof.measuring import operation as measuring
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Outcome, make_unmeasured
from bwprof.results.exchange import OPENING
from bwprof.runs import executors, suites

pytestmark = pytest.mark.usefixtures("one_thread")

# ---- a whole run


def test_full_benchmark_suite(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite with a case of every operation, in FP32 and FP16, as the default one runs, but small."""
    monkeypatch.setattr("bwprof.plot.bars.save", DRAW)
    lines = ["target_seconds = 1"]
    operations = [
        operation
        for operation in bwprof.operations()
        if {"fp32", "fp16"} <= {*operation["precisions"]} and operation["variants"]["cpu"]
    ]
    for number, operation in enumerate(operations):
        small = {"elements": 5000, "kv_len": 40, "seq_len": 24, "M": 3, "N": 40, "K": 24, "num_heads": 14}
        names = [param["name"] for param in operation["params"] if param["name"] in small]
        params = ", ".join(f"{name} = {small[name]}" for name in names)
        lines += [
            "[[case]]",
            f'name = "case_{number}"',
            f'operation = "{operation["name"]}"',
            f"params = {{ {params} }}",
            'cache = "hot"',
        ]
    (tmp_path / "small.toml").write_text("\n".join(lines))
    code, out, err = here("--suite", "small.toml", "--backend", "cpu")
    assert code == 0, err
    folder = run_folder(tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["bandwidth_comparison.png", "bandwidth_comparison.svg", "results.csv", "results.json"]
    frame = bwprof.load(folder)
    assert len(frame) == 2 * len(operations)
    assert (frame["status"] == "ok").all(), frame[["case", "reason"]]
    assert frame["verified"].all()
    assert frame["rows_checked"].between(1, frame["rows_total"]).all()
    assert frame.loc[frame["operation"] == "gemm", "rows_total"].tolist() == [9, 9], "3 rows of 40 in parts of 16"
    assert (frame["time_ms"] > 0).all()
    expected = (frame["bytes_read"] + frame["bytes_written"]) / frame["time_ms"] / 1e6
    assert frame["bandwidth_gb_s"].tolist() == pytest.approx(expected.tolist())
    half = frame[frame["precision"] == "fp16"]
    product = half["bandwidth_vs_fp32"] * half["byte_ratio_vs_fp32"]
    assert half["speedup_vs_fp32"].tolist() == pytest.approx(product.tolist())
    assert bwprof.load(folder / "results.csv").shape == frame.shape
    assert frame.attrs["run"]["status"] == "complete"
    assert frame.attrs["run"]["run_id"] == folder.name == frame.loc[0, "run_id"]
    assert all(f"case_{number}" in out for number in range(len(operations)))
    assert "measuring cpu:0" in err


def test_json_holds_samples_and_metadata(here: Here) -> None:
    code, out, err = here("gemm", *TINY, "--precision", "fp32", "--json", "-")
    assert code == 0, err
    document = json.loads(out)
    (row,) = document["rows"]
    assert len(row["samples_ns"]) == row["samples"] >= 10
    median = sorted(row["samples_ns"])[len(row["samples_ns"]) // 2]
    assert row["time_ms"] * 1e6 == pytest.approx(median, rel=0.5)
    run = document["run"]
    assert run["argv"][0] == "gemm"
    assert run["facts"]["name"] == row["device"]
    assert {"host", "versions", "build", "environment", "started", "finished", "plan"} <= set(run)
    assert "NVIDIA_TF32_OVERRIDE" in run["environment"]


def test_csv_to_standard_output_is_nothing_but_csv(here: Here) -> None:
    code, out, err = here("gemm", *TINY, "-p", "M=1,2", "--csv", "-")
    assert code == 0, err
    rows = csv_rows(out)
    assert [(row["M"], row["precision"]) for row in rows] == [
        ("1", "fp32"),
        ("1", "fp16"),
        ("2", "fp32"),
        ("2", "fp16"),
    ]
    assert rows[1]["speedup_vs_fp32"], "compared as soon as it is there"
    assert "GB/s" in err, "the summary goes where it does not disturb"


def test_output_to_one_file(here: Here, tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.json"):
        code, _, err = here("gemm", *TINY, "--output", name, "--quiet")
        assert (code, err) == (0, "")
        assert len(bwprof.load(tmp_path / name)) == 2
    assert not (tmp_path / "bwprof-results").exists()


def test_a_case_that_does_not_fit_is_a_skipped_row(here: Here) -> None:
    size = ["-p", "M=1", "-p", "N=4Mi", "-p", "K=4Mi"]
    code, out, err = here("gemm", "--backend", "cpu", *size, "--precision", "fp32", "--csv", "-")
    assert code == 0, err
    (row,) = csv_rows(out)
    assert row["status"] == "skipped"
    assert "64 TiB" in row["reason"], "4Mi x 4Mi x 4 bytes"
    assert "free" in row["reason"]
    assert row["time_ms"] == ""
    assert row["bytes_read"] == str(2**44 * 4 + 2**22 * 4)


def test_a_precision_that_the_backend_lacks_is_a_skipped_row(here: Here) -> None:
    code, out, err = here("gemm", *TINY, "--precision", "fp32,tf32", "--csv", "-")
    assert code == 0, err
    assert [(row["precision"], row["status"]) for row in csv_rows(out)] == [("fp32", "ok"), ("tf32", "skipped")]
    assert csv_rows(out)[1]["reason"]


# ---- options that measure nothing


def test_dry_run_lists_the_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep(["gemm", *TINY, "-p", "M=1", "--dry-run", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "2 cases on cpu:0" in out
    assert "1.06 KiB" in out, "(16 + 256) x 4 bytes are read"
    assert not list(tmp_path.iterdir())


def test_list_names_everything_that_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep(["--list"]) == 0
    out = capsys.readouterr().out
    for operation in bwprof.operations():
        assert operation["name"] in out
        for variants in operation["variants"].values():
            for variant in variants:
                assert variant["name"] in out
    assert all(f"suite {name}:" in out for name in suites.list_suites())


def test_once_launches_each_case_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep(["gemm", *TINY, "--once", "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("launched gemm") == 2
    assert {"--once", "--output"} <= words(shown.err)
    assert not list(tmp_path.iterdir())
    assert main_sweep(["gemm", *TINY, "--cache", "both", "--recalibrate", "--once"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("launched gemm") == 2
    assert "--recalibrate left aside" in shown.err


def test_once_continues_after_a_failing_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Spec.open

    def open_case(spec: Spec, device: _core.Device, **how: bool) -> _core.Case:
        if spec.precision == "fp32":
            raise _core.UnavailableError("no cuBLASLt")
        return real(spec, device, **how)

    monkeypatch.setattr(Spec, "open", open_case)
    assert main_sweep(["gemm", *TINY, "--once"]) == 3
    err = capsys.readouterr().err
    case = ["gemm", "N=16", "K=16"]
    found = [re.split("[ :]+", line) for line in err.splitlines()]
    assert ["failed", *case, "fp32", "hot", "no", "cuBLASLt"] in [line[:8] for line in found]
    assert ["launched", *case, "fp16", "hot"] in [line[:6] for line in found]


def test_a_run_without_roofs(tmp_path: Path) -> None:
    """No roofs, and as many samples as the cases have time for together."""
    arguments = ["gemm", *TINY, "--precision", "fp32,fp16", "--quiet"]
    assert (
        main_sweep([*arguments, "--no-roofs", "--target-seconds", "0.2", "--output", str(tmp_path / "rows.json")]) == 0
    )
    frame = bwprof.load(tmp_path / "rows.json")
    run = frame.attrs["run"]
    assert (run["roofs"], run["target_seconds"]) == (None, 0.2)
    assert frame["status"].tolist() == ["ok"] * 2
    assert frame["ceiling_gb_s"].isna().all()
    sampled = (frame["samples"] * frame["launches_per_sample"] * frame["time_ms"] / 1e3).tolist()
    assert all(seconds < 1.0 for seconds in sampled), "0.05 s each; without the option, up to 2"


def test_the_typed_time_overrides_the_suites() -> None:
    from bwprof.runs import plan

    wished = plan.SweepRequest(suite="default", target_seconds=3.5)
    assert plan.make_plan(wished, "cpu").target_seconds == 3.5
    suite = suites.load("default").target_on("cpu")
    assert plan.make_plan(plan.SweepRequest(suite="default"), "cpu").target_seconds == suite
    assert plan.make_plan(plan.SweepRequest(("gemm",)), "cpu").target_seconds is None


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: bwprof {command}")
    assert "%%" not in out


def test_help_has_examples_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_sweep(["--help"]) == 0
    out = capsys.readouterr().out
    for word in ("Examples:", "GB/s", "exit codes", "--resume", "--once", "--seq-lengths"):
        assert word in out


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gem"], "unknown operation 'gem': did you mean 'gemm'?"),
        (["gemm", "-p", "M=0"], "M"),
        (["gemm", "-p", "M=-3"], "-3"),
        (["gemm", "-p", "M=1Gi", "-p", "N=1Gi", "-p", "K=1Gi"], "gemm"),
        (["gemm", "-p", "M=99999999999999999999"], "64 bits"),
        (["gemm", "-p", "M=abc"], "'abc' is not a whole number"),
        (["gemm", "-p", "M"], "NAME=V1,V2,... is needed"),
        (["gemm", "-p", "M=1", "-p", "M=2"], "--param M is given twice"),
        (["gemm", "-p", "L=1"], "unknown parameter of gemm 'L'"),
        (["attention_decode", "-p", "kv_lens=1,2"], "lengths are given by --kv-lens 100,7000 (in Python kv_lens=["),
        (["gemm", "--precision", "fp23"], "unknown precision 'fp23': did you mean 'fp32'?"),
        (["gemm", "--precision", "int4"], "unknown precision 'int4': did you mean 'int4_g128'?"),
        (["gemm", "--precision", "uint8"], "unknown precision 'uint8': did you mean 'int8'?"),
        (["gemm", "--backend", "cpuu"], "unknown backend 'cpuu': did you mean 'cpu'?"),
        (["gemm", "--backend", "cpu", "--device", "9"], "has no device 9: allowed are 0"),
        (["gemm", "--cache", "warm"], "unknown cache 'warm'"),
        (["gemm", "--seed", "-1"], "seed is -1"),
        (["gemm", "--max-total-seconds", "0"], "--max-total-seconds is '0'"),
        (["gemm", "--max-total-seconds", "soon"], "--max-total-seconds is 'soon'"),
        (["gemm", "--target-seconds", "0"], "--target-seconds is '0'"),
        (["gemm", "--target-seconds", "inf"], "--target-seconds is 'inf'"),
        (["gemm", "--no-roofs", "--recalibrate"], "--no-roofs and --recalibrate contradict each other"),
        (["attention_decode", "-p", "num_heads=7", "-p", "num_kv_heads=2"], "num_heads"),
        (["--suite", "defolt"], "unknown suite 'defolt': did you mean 'default'?"),
        (["--suite", "absent.toml"], "absent.toml"),
        (["--resume", "20200101-000000-dead"], "unknown run '20200101-000000-dead'"),
        (["--resume", "x", "gemm"], "leave out OPERATION"),
        (["gemm", "--csv", "-", "--json", "-"], "cannot both"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_exit_code_2(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main_sweep(arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""
    assert not (tmp_path / "bwprof-results").exists() or not list((tmp_path / "bwprof-results").iterdir())


def test_a_suite_with_a_mistake_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[case]]\noperation = "gemm"\nparms = { M = 1 }\n')
    assert main_sweep(["--suite", str(path)]) == 2
    assert {"1", "gemm", "parms", "params"} <= words(capsys.readouterr().err)


def test_an_unavailable_backend_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    missing = [row["name"] for row in bwprof._core.backends() if not row["devices"]]
    if not missing:
        pytest.skip("every backend has a device")
    assert main_sweep(["gemm", "--backend", missing[0]]) == 2
    assert f"backend '{missing[0]}' has no device" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder.toml").mkdir()
    assert main_sweep(["--suite", str(tmp_path / "folder.toml")]) == 2
    assert "folder.toml" in capsys.readouterr().err


def test_unwritable_output_is_refused_before_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main_sweep(["gemm", *TINY, "--output", str(tmp_path / "file" / "below")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main_sweep(["gemm", *TINY, "--output", str(tmp_path), "--csv", "/dev/full"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert main_sweep(["gemm", *TINY, "--output", str(tmp_path), "--json", str(tmp_path / "no" / "x.json")]) == 2
    assert Path("/dev/full").is_char_device()


# ---- things that go wrong in the middle


def test_a_full_disk_in_the_middle_prints_the_finished_rows(tmp_path: Path) -> None:
    """A file-size limit lets the header through and stops the second row; no process below it may write bytecode, which
    would be cut off in silence."""
    limit = """
        import os, resource, sys
        if "bwprof.sweep" in " ".join(sys.orig_argv):
            sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
            resource.setrlimit(resource.RLIMIT_FSIZE, (2800, 2800))
    """
    code, out, err = finished(
        "gemm", *TINY, "-p", "M=1,2,3", "--output", "rows.csv", folder=tmp_path, plant=textwrap.dedent(limit)
    )
    assert code == 3
    assert "results cannot be written" in err
    rescued = csv_rows(err[err.index("operation,precision") :])
    assert len(rescued) >= 1
    assert rescued[0]["status"] == "ok"
    assert out == ""


def test_a_case_that_ends_its_process_fails_and_the_others_are_measured(tmp_path: Path) -> None:
    plant = PLANT.format(
        body="if spec.params['M'] == 2: os.kill(os.getpid(), signal.SIGSEGV)\n    if spec.params['M'] == 3: os._exit(7)"
    )
    code, out, err = finished(
        "gemm", *TINY, "-p", "M=1,2,3,4", "--precision", "fp32", "--csv", "-", folder=tmp_path, plant=plant
    )
    assert code == 3, err
    rows = csv_rows(out)
    assert [row["status"] for row in rows] == ["ok", "failed", "failed", "ok"]
    assert "signal 11 (SIGSEGV)" in rows[1]["reason"]
    assert "exit code 7" in rows[2]["reason"]
    assert rows[1]["M"] == "2"
    assert rows[1]["time_ms"] == ""


def test_a_wrong_result_is_a_failed_row_without_a_time(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    real = measuring.finish_row

    def planted(row: Any, result: Any, *rest: Any) -> Any:
        if row["M"] == 2:
            result.update(verified=False, max_error=1.0, reason="D[0, 3] is 1, the reference says 2")
        return real(row, result, *rest)

    monkeypatch.setattr(measuring, "finish_row", planted)
    code, out, err = here("gemm", *TINY, "-p", "M=1,2", "--precision", "fp32", "--csv", "-")
    assert code == 3
    right, wrong = csv_rows(out)
    assert (right["status"], right["verified"]) == ("ok", "True")
    assert (wrong["status"], wrong["verified"], wrong["time_ms"]) == ("failed", "False", "")
    assert re.match(r"wrong.*: D\[0,\s3\].* 1,.* 2$", wrong["reason"])
    assert "D[0, 3]" in err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os._exit(9)", "the process that opens the device ended with exit code 9"),
        ("raise _core.UnavailableError('gone')", "gone"),
    ],
)
def test_a_device_that_cannot_be_opened_is_exit_code_2(tmp_path: Path, body: str, said: str) -> None:
    plant = f"""
import os
from bwprof import _core
from bwprof.runs import executors
def planted(self):
    {body}
executors.LocalExecutor.open = planted
"""
    code, out, err = finished("gemm", *TINY, folder=tmp_path, plant=plant)
    assert (code, out) == (2, "")
    assert f"bwprof: error: {said}" in err
    assert not list((tmp_path / "bwprof-results").iterdir()), "no folder without rows"


def test_output_of_a_case_stays_out_of_the_data(tmp_path: Path) -> None:
    plant = PLANT.format(body="os.write(1, b'chatter of a library\\n'); print('more chatter')")
    code, out, err = finished("gemm", *TINY, "--csv", "-", folder=tmp_path, plant=plant)
    assert code == 0, err
    assert "chatter" not in out
    assert "chatter of a library" in err


def test_max_time_skips_what_is_left(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    real = executors.measuring.measure

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.2)
        return real(*arguments, **options)

    monkeypatch.setattr(executors.measuring, "measure", slow)
    code, out, err = here("gemm", *TINY, "-p", "M=1,2,3,4,5,6", "--max-total-seconds", "1.5", "--csv", "-")
    assert code == 0, err
    rows = csv_rows(out)
    assert len(rows) == 12
    assert rows[0]["status"] == "ok"
    assert rows[-1]["status"] == "skipped"
    assert "--max-total-seconds" in rows[-1]["reason"]


def wait_for_rows(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = list((folder / "bwprof-results").glob("*/results.csv"))
        if found and found[0].read_text().count("\n") > count:
            return
        time.sleep(0.02)
    pytest.fail(f"no {count} rows: {process.communicate()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_keeps_the_finished_rows_and_resume_goes_on(
    here: Here, tmp_path: Path, number: signal.Signals
) -> None:
    slow = PLANT.format(body="time.sleep(60 if spec.params['M'] == 3 else 0)")
    (tmp_path / "m.prom").write_text(OPENING)
    late = ["--trace", "t.json", "--prometheus", "m.prom", "--classic-csv", "c.csv"]
    process = command("gemm", *TINY, "-p", "M=1,2,3,4", "--precision", "fp32", *late, folder=tmp_path, plant=slow)
    wait_for_rows(process, tmp_path, 2)
    children = child_processes(process.pid)
    process.send_signal(number)
    _, err = process.communicate(timeout=GIVE_UP_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not [pid for pid in children if Path(f"/proc/{pid}/cmdline").exists()], "the child has gone"
    folder = run_folder(tmp_path)
    before = bwprof.load(folder)
    assert before["M"].tolist() == [1, 2]
    assert before.attrs["run"]["status"] == "interrupted"
    assert f"--resume {folder.relative_to(tmp_path)}" in err
    assert "results are in t.json" in err
    names = [event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]]
    assert sum("M=2 " in name for name in names) == 2, f"the case, and one launch of it: {names}"
    assert "m.prom" not in err
    assert "c.csv" not in err
    assert not (tmp_path / "c.csv").exists()
    assert (tmp_path / "m.prom").read_text() == OPENING, "of a part of the cases there are no metrics"

    code, _, err = here("--resume", folder.name)
    assert code == 0, err
    after = bwprof.load(folder)
    assert after["M"].tolist() == [1, 2, 3, 4]
    assert set(after["run_id"]) == {folder.name}
    assert after["timestamp"].tolist()[:2] == before["timestamp"].tolist(), "finished rows are not measured again"
    assert len(bwprof.load(folder / "results.csv")) == 4


def child_processes(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_resume_measures_failed_cases_again(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = executors.measuring.measure

    def failing(device: Any, spec: Any, context: Any, **options: Any) -> Outcome:
        if spec.params["M"] == 1:
            return make_unmeasured(spec, context, "failed", "planted")
        return real(device, spec, context, **options)

    with monkeypatch.context() as patch:
        patch.setattr(executors.measuring, "measure", failing)
        assert here("gemm", *TINY, "-p", "M=1,2")[0] == 3
    folder = run_folder(tmp_path)
    assert bwprof.load(folder)["status"].tolist() == ["failed", "failed", "ok", "ok"]
    code, _, err = here("--resume", str(folder), "--quiet")
    assert (code, err) == (0, "")
    frame = bwprof.load(folder)
    assert sorted(zip(frame["M"], frame["precision"], frame["status"], strict=True)) == [
        (1, "fp16", "ok"),
        (1, "fp32", "ok"),
        (2, "fp16", "ok"),
        (2, "fp32", "ok"),
    ]


def test_a_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    process = command("gemm", *TINY, "-p", "M=1,2,3,4", "--csv", "-", folder=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(GIVE_UP_SECONDS) == 141
    assert "Traceback" not in err
    assert "results cannot be written" in err


# ---- the Python function


def test_sweep_in_python(here: Here, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    frame = bwprof.sweep(
        "gemm",
        M=[1, 2],
        N=16,
        K=16,
        precision="fp32",
        backend="cpu",
        cache="hot",
        roofs=False,
        output=tmp_path / "rows.json",
        progress=lambda done, total, _row: seen.append((done, total)),
    )
    assert frame["M"].tolist() == [1, 2]
    assert seen == [(1, 2), (2, 2)]
    assert frame.attrs["run"]["status"] == "complete"
    assert len(bwprof.load(tmp_path / "rows.json")) == 2


def test_a_lost_device_raises_with_the_finished_rows(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    real = executors.measuring.measure

    def lost(device: Any, spec: Any, context: Any, **options: Any) -> Outcome:
        if spec.params["M"] == 2:
            return Outcome(make_unmeasured(spec, context, "failed", "illegal address").row, fatal=True)
        return real(device, spec, context, **options)

    monkeypatch.setattr(executors.measuring, "measure", lost)
    with pytest.raises(bwprof.SweepError, match="illegal address") as caught:
        bwprof.sweep("gemm", M=[1, 2, 3], N=16, K=16, precision="fp32", backend="cpu", cache="hot", roofs=False)
    assert caught.value.frame["status"].tolist() == ["ok", "failed"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"operations": "gem"}, "did you mean 'gemm'"),
        ({"operations": "gemm", "M": 0}, "M"),
        ({"operations": "gemm", "M": 1.5}, "M is 1.5, a whole number is needed"),
        ({"operations": "gemm", "M": []}, "M has no values"),
        ({"operations": "gemm", "presicion": "fp16"}, "unknown argument 'presicion': did you mean 'precision'"),
        ({"operations": "gemm", "MM": 1}, "unknown argument 'MM': did you mean 'M'"),
        ({"operations": "gemm", "kv_len": 1}, "unknown parameter of gemm 'kv_len'"),
        ({"operations": "gemm", "max_total_seconds": -1}, "max_total_seconds is -1"),
        ({"operations": "gemm", "output": "rows.xlsx"}, "a file ending in .csv or .json is needed"),
    ],
)
def test_bad_arguments_of_the_function(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bwprof.sweep(**options)
