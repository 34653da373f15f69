"""Baselines: saving, loading, refusing damaged files, and the command ``bwprof baseline``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import killing
import pandas as pd
import pytest
from commands import PLANT, make_brief, plant_in_child
from rows import load_samples, pair, row

import bwprof
from bwprof.cli import main
from bwprof.cli import runner as sweep_command
from bwprof.measuring import row as measuring_row
from bwprof.records import baselines
from bwprof.results import frame
from bwprof.runs import executors

TINY = ["gemm", "-p", "N=16", "-p", "K=16", "--precision", "fp32", "--device", "cpu", "--cache", "hot"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run ``bwprof baseline ...`` with short cases in this process; return exit code, standard output and error."""
    make_brief(monkeypatch)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["baseline", *arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out, printed.err

    return call


def a_run(number: int = 1, **more: Any) -> pd.DataFrame:
    """A frame with raw samples."""
    rows = [found | {"run_id": f"run-{number}"} | more for found in pair("decode", 100 + number, 90 + number)]
    return frame.from_rows(rows, {"run_id": f"run-{number}", "started": "then"}, [[1.0, 2.0], [3.0]])


# ---- saved whole, or not at all ----


@pytest.mark.parametrize(
    "what",
    [
        killing.killed_at_every_step,
        killing.failing_at_every_step,
        killing.full_disk,
        killing.killed_at_any_moment,
        killing.at_once,
        killing.one_wins,
        killing.reports_at_once,
        killing.reports_killed_at_every_step,
    ],
    ids=lambda what: what.__name__,
)
def test_a_crash_leaves_the_old_or_the_new_file_whole(what: Callable[[Path], int], folder: Path) -> None:
    script = [sys.executable, killing.__file__, what.__name__, str(folder / "kept")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" steps\n")


# ---- from Python ----


def test_every_source_makes_a_baseline(folder: Path) -> None:
    data = a_run()
    run = folder / "run"
    run.mkdir()
    sources = [
        data,
        bwprof.save(data, run / "results.json"),
        run,
        bwprof.save(data, folder / "r.csv"),
        bwprof.rows(data),
    ]
    for number, source in enumerate(sources):
        path = bwprof.save_baseline(f"b{number}", source)
        assert path == Path(f".bwprof/baselines/b{number}.json")
        found = bwprof.load_baseline(f"b{number}")
        assert [stored["time_ms"] for stored in found.rows] == [5000 / 91e6, 10000 / 101e6], (
            "in the order of their names"
        )
        assert found.samples == ([None, None] if number == 3 else [[3.0], [1.0, 2.0]])
        assert (found.device, found.processes[0]["run_id"]) == ("Test CPU", "run-1")
    copied = bwprof.save_baseline("copy", "baseline:b0")
    assert baselines.read_baseline(copied).cases == bwprof.load_baseline("b0").cases
    assert bwprof.baselines().names() == ["b0", "b1", "b2", "b3", "b4", "copy"]


def test_measured_rows_and_sweeps_make_a_baseline(folder: Path) -> None:
    swept = bwprof.sweep("gemm", N=16, K=16, precision="fp32", device="cpu", cache="hot", roofs=False)
    measured = bwprof.measure(lambda: None, name="nothing", device="cpu", cache="hot", roofs=False, max_seconds=0.01)
    bwprof.save_baseline("both", swept, measured)
    found = bwprof.load_baseline("both")
    assert [stored["case"] for stored in found.rows] == ["gemm N=16 K=16", "nothing"]
    assert all(found.samples)
    assert found.samples[1] == pytest.approx(measured.samples_ns, abs=0.001)
    assert found.run["facts"]["name"] == found.device


@pytest.mark.parametrize("source", [[1, 2, 3], ["a", "b"], ["concat"]], ids=str)
def test_a_baseline_holds_the_median_of_each_process(source: list[Any], folder: Path) -> None:
    runs = [a_run(number) for number in (1, 2, 3)]
    if source == ["a", "b"]:
        bwprof.save_baseline("two", *runs[:2])
        runs = [bwprof.load_baseline("two"), runs[2]]
    if source == ["concat"]:
        runs = [pd.concat(runs, ignore_index=True)]
    bwprof.save_baseline("all", *runs)
    found = bwprof.load_baseline("all")
    assert [sorted(times) for times in found.process_ms] == [
        pytest.approx([5000 / 93e6, 5000 / 92e6, 5000 / 91e6]),
        pytest.approx([10000 / 103e6, 10000 / 102e6, 10000 / 101e6]),
    ]
    assert [process["run_id"] for process in found.processes] == ["run-1", "run-2", "run-3"]


def test_labels_distinguish_cases_of_a_function(folder: Path) -> None:
    runs = [frame.from_rows([row("f", "", n=n, run_id=f"r{run}") for n in (1, 2)]) for run in (1, 2)]
    bwprof.save_baseline("f", *runs)
    found = bwprof.load_baseline("f")
    assert [stored["n"] for stored in found.rows] == [1, 2]
    assert [len(times) for times in found.process_ms] == [2, 2]


def test_a_baseline_is_replaced_only_with_force(folder: Path) -> None:
    path = bwprof.save_baseline("main", a_run(1))
    before = path.read_text()
    with pytest.raises(FileExistsError, match=r"baseline 'main' already.*main\.json.*force=True"):
        bwprof.save_baseline("main", a_run(2))
    assert path.read_text() == before
    bwprof.save_baseline("main", a_run(2), force=True)
    assert bwprof.load_baseline("main").run["run_id"] == "run-2"
    assert bwprof.delete_baseline("main") == path
    assert bwprof.baselines() == []


@pytest.mark.parametrize(
    "name", ["..", "../x", "a/b", "/etc/x", ".hidden", "", "a\0b", "a b", "m\u0430in", "x" * 129, None, 5]
)
def test_unsafe_names_are_refused(name: Any, folder: Path) -> None:
    for use in (bwprof.load_baseline, bwprof.delete_baseline, lambda argument: bwprof.save_baseline(argument, a_run())):
        with pytest.raises(ValueError, match="128"):
            use(name)
    assert list(folder.iterdir()) == []


def test_symbolic_links_are_neither_read_nor_replaced(command: Callable[..., Any], folder: Path) -> None:
    """The target of a link stays unchanged; deleting a baseline removes the link alone."""
    bwprof.save(a_run(), folder / "1.json")
    other = folder / "other.txt"
    other.write_text("mine")
    Path(".bwprof/baselines").mkdir(parents=True)
    for name, target in (("main", other), ("gone", folder / "nowhere")):
        Path(f".bwprof/baselines/{name}.json").symlink_to(target)
        for arguments in (["1.json"], ["--repeat", "2", *TINY]):
            code, _, err = command("save", name, *arguments, "--force")
            assert (code, f"{name}.json" in err) == (2, True), err
            assert Path(f".bwprof/baselines/{name}.json").is_symlink()
    assert other.read_text() == "mine"
    assert not (folder / "nowhere").exists()
    code, _, err = command("list")
    assert (code, "gone.json" in err, "Errno" in err) == (3, True, False)
    assert command("delete", "main", "gone")[0] == 0
    assert other.read_text() == "mine"


def test_sources_without_measured_cases_are_refused(folder: Path) -> None:
    failed = frame.from_rows([row("decode", "fp16", gb_s=None, status="failed", reason="broken")])
    for sources, words in (
        ((), "baseline 'x' needs a run"),
        ((a_run().iloc[:0],), "run-1 is empty: it holds no rows"),
        ((failed,), "frame holds no measured case"),
        ((a_run(1), a_run(1)), "run run-1 is given twice"),
    ):
        with pytest.raises(ValueError, match=words):
            bwprof.save_baseline("x", *sources)
    assert bwprof.baselines() == []


# ---- files that others have touched ----


def test_a_truncated_file_is_refused(folder: Path) -> None:
    path = bwprof.save_baseline("main", a_run())
    whole = path.read_text()
    end = len(whole.rstrip())
    for cut in range(0, end, 97):
        path.write_text(whole[:cut])
        with pytest.raises(ValueError, match=r"main\.json.*--force"):
            bwprof.load_baseline("main")
    assert bwprof.baselines()["main"]["problem"].startswith(".bwprof/baselines/main.json ")
    path.write_text(whole[:end])
    assert bwprof.load_baseline("main").run["run_id"] == "run-1"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "bwprof-results"}, "'bwprof-results'.*baseline save NAME"),
        ({"format": "asv"}, "'asv'"),
        ({"version": 2}, "version 2; .* up to 1"),
        ({"version": "1"}, "version '1'; .* up to 1"),
        ({"schema_version": 99}, "has schema version 99; this bwprof reads up to"),
        ({"cases": []}, "cases"),
        ({"cases": None}, "is not a whole baseline .cases, run or processes are missing"),
        ({"run": []}, "cases, run or processes are missing"),
        ({"cases": [{"case": {}, "processes": []}]}, "case 1: .*processes"),
        ({"cases": [[]]}, "case 1: .* is no case with its processes"),
        (
            {"cases": [{"case": {"operation": "x"}, "processes": [{"time_ms": "soon"}]}]},
            "case 1: column time_ms: 'soon'",
        ),
        ({"cases": [{"case": {}, "processes": [{}]}]}, "case 1: operation and precision must not be empty"),
    ],
)
def test_foreign_files_are_refused(change: dict[str, Any], words: str, folder: Path) -> None:
    path = bwprof.save_baseline("main", a_run())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=f"^{path}.*{words}"):
        bwprof.load_baseline("main")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"", b"[]", b"null", b"[" * 5000, b"1" * 5000, b"operation,precision"]
)
def test_errors_name_the_damaged_file(content: bytes, folder: Path) -> None:
    path = bwprof.save_baseline("main", a_run())
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{path} is not a"):
        bwprof.load_baseline("main")
    bwprof.save_baseline("main", a_run(), force=True)


def test_an_unknown_name_suggests_the_nearest(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'x' in \.bwprof/baselines.*save x"):
        bwprof.load_baseline("x")
    bwprof.save_baseline("h200-driver580", a_run())
    for use in (bwprof.load_baseline, bwprof.delete_baseline):
        with pytest.raises(FileNotFoundError, match="did you mean 'h200-driver580'"):
            use("h200-drver580")


# ---- the command ----


def test_the_command_measures_in_fresh_processes(
    command: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    class Counted(executors.LocalExecutor):
        def __init__(self, backend: str, index: int, _interrupts: object, **_options: object) -> None:
            super().__init__(backend, index)
            opened.append(1)

    monkeypatch.setattr(sweep_command, "ChildExecutor", Counted)
    monkeypatch.setattr(measuring_row, "process_token", lambda: f"process {len(opened)}")
    code, _, err = command("save", "main", "--repeat", "3", *TINY)
    assert code == 0, err
    assert len(opened) == 3
    found = bwprof.load_baseline("main")
    (case,) = found.cases
    runs = [folder / "bwprof-results" / str(process["run_id"]) for process in found.processes]
    assert sorted(runs) == sorted((folder / "bwprof-results").iterdir())
    assert sorted(row["time_ms"] for row in case.rows) == sorted(bwprof.load(run)["time_ms"][0] for run in runs)
    for stored in found.cases:
        assert sorted(map(str, stored.samples)) == sorted(str(load_samples(run)[0]) for run in runs)
    assert found.run["argv"][:3] == ["baseline", "save", "main"]
    assert Path(".bwprof/baselines/main.json").is_file()
    assert ".bwprof/baselines/main.json" in err


def test_each_repetition_runs_in_a_new_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = PLANT.format(body="open('pids', 'a').write(f'{os.getpid()} {os.getppid()}\\n')")
    plant_in_child(monkeypatch, folder, note)
    assert main(["baseline", "save", "main", "--repeat", "2", "--quiet", "--no-roofs", *TINY]) == 0
    lines = [line.split() for line in Path("pids").read_text().splitlines()]
    assert len({child for child, _ in lines}) == 2, "measured again, where it was disturbed, by the same"
    assert {parent for _, parent in lines} == {str(os.getpid())}
    assert len(bwprof.load_baseline("main").cases[0].rows) == 2


def test_the_command_saves_shows_lists_and_deletes(command: Callable[..., Any], folder: Path) -> None:
    for number in (1, 2):
        bwprof.save(a_run(number), folder / f"{number}.json")
    assert command("save", "main", "1.json", "2.json", "--dir", "kept")[0] == 0
    assert (folder / "kept" / "main.json").is_file()
    code, out, _ = command("show", "main", "--store", "kept")
    assert code == 0
    assert {"2 cases", "2 processes"} <= set(out.splitlines()[0].partition(": ")[2].split(", "))
    assert "Test CPU" in out
    line = next(line for line in out.splitlines() if "fp32" in line)
    assert "0.99" in line.split("|")[-1], "101 and 102 GB/s are 0.99 % apart"
    code, out, _ = command("list", "--dir", "kept")
    assert (code, "main" in out) == (0, True)
    bwprof.save(a_run(3, flags="noisy"), folder / "3.json")
    assert command("save", "main", "1.json", "2.json", "3.json", "--dir", "kept", "--force")[0] == 0
    line = next(line for line in command("show", "main", "--dir", "kept")[1].splitlines() if "fp32" in line)
    assert [cell.strip() for cell in line.split("|")[-2:]] == ["2 of 3", "0.99"], "a disturbed process does not count"
    for action in ("delete", "remove"):
        assert command(action, "main", "--dir", "kept")[0] == (0 if action == "delete" else 2)


def test_show_has_a_column_of_doubts(command: Callable[..., Any], folder: Path) -> None:
    rows = [
        row | {"status": status, "flags": flags}
        for row, status, flags in zip(
            pair("decode", 100, 90), ("ok", "predicted"), ("unverified;noisy", ""), strict=True
        )
    ]
    bwprof.save(frame.from_rows(rows, {"run_id": "run-1"}), folder / "1.json")
    assert command("save", "main", "1.json")[0] == 0
    code, out, _ = command("show", "main")
    assert code == 0
    assert "noisy, unverified" in " ".join(next(line for line in out.splitlines() if "fp32" in line).split())
    assert "predicted" in next(line for line in out.splitlines() if "fp16" in line)


def test_an_incomplete_run_is_saved_with_a_warning(command: Callable[..., Any], folder: Path) -> None:
    bwprof.save(frame.from_rows(pair("decode", 100, 90), {"run_id": "r", "status": "interrupted"}), folder / "1.json")
    code, _, err = command("save", "main", "1.json")
    assert (code, "1.json" in err and "interrupted" in err) == (0, True)
    assert len(bwprof.load_baseline("main").rows) == 2


@pytest.mark.parametrize("name", ["nan", "NaN", "inf", "-1", "none", "", "../x", "a/b", "null"])
def test_the_command_refuses_unsafe_names_before_measuring(
    command: Callable[..., Any], folder: Path, name: str
) -> None:
    assert command("save", name)[:2] == (2, "")
    assert list(folder.iterdir()) == []


def test_the_command_refuses_wrong_arguments(command: Callable[..., Any], folder: Path) -> None:
    bwprof.save(a_run(), folder / "1.json")
    assert command("save", "main", "1.json")[0] == 0
    before = Path(".bwprof/baselines/main.json").read_text()
    for arguments, words in (
        (["save", "main", "1.json"], "there is a baseline 'main' already"),
        (["save", "main", "--repeat", "2", *TINY], "there is a baseline 'main' already"),
        (["save", "../x", "1.json"], "the name of a baseline is '../x'"),
        (["save", "x", "--repeat", "0"], "--repeat is 0: allowed is 1 or more"),
        (["save", "x", "--repeat", "two"], "--repeat: 'two' is not a whole number"),
        (["save", "x", "1.json", "--suite", "default"], "leave out --suite, or give --repeat"),
        (["save", "x", "1.json", "1.json"], "run run-1 is given twice"),
        (["save", "x", "gone.json"], "no such file or folder: gone.json"),
        (["save", "x", "--repeat", "2", "gemmm"], "did you mean 'gemm'"),
        (["save"], "the following arguments are required: NAME"),
        (["show", "mian"], "did you mean 'main'"),
        (["delete", "mian"], "did you mean 'main'"),
        (["show", "main", "--dir", ""], "--dir is ''"),
        (["sow", "main"], "unknown command 'sow': did you mean"),
    ):
        code, out, err = command(*arguments)
        assert (code, out) == (2, ""), (arguments, err)
        assert words in err, arguments
    assert Path(".bwprof/baselines/main.json").read_text() == before
    assert not (folder / "bwprof-results").exists(), "nothing was measured in vain"
    assert command("save", "main", "1.json", "--force")[0] == 0


def test_list_names_damaged_baselines(command: Callable[..., Any], folder: Path) -> None:
    path = bwprof.save_baseline("bad", a_run())
    bwprof.save_baseline("good", a_run())
    path.write_text("{")
    code, out, err = command("list")
    assert code == 3
    assert "good" in out
    assert "bad.json" in err
    assert command("delete", "bad")[0] == 0


def test_an_interrupted_command_prints_how_to_save_finished_runs(
    command: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, tokens = iter(range(10)), iter("abcdefghi")
    monkeypatch.setattr(measuring_row, "process_token", lambda: next(tokens))

    class Stopped(executors.LocalExecutor):
        def __init__(self, backend: str, index: int, _interrupts: object, **_options: object) -> None:
            super().__init__(backend, index)
            if next(count) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(sweep_command, "ChildExecutor", Stopped)
    code, _, err = command("save", "main", "--repeat", "4", *TINY)
    assert code == 130
    assert bwprof.baselines() == []
    line = next(line for line in err.splitlines() if "saves what is finished" in line)
    words = line.split("bwprof baseline ")[1].split(" saves what")[0].split()
    assert command(*words)[0] == 0
    (case,) = bwprof.load_baseline("main").cases
    assert len({row["process"] for row in case.rows}) == 2, "whether one of them was disturbed or not"


def test_a_suite_without_a_measured_case_ends_after_one_process(
    command: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = executors.LocalExecutor.measure

    def fails(self: executors.LocalExecutor, *argument: Any) -> Any:
        outcome = real(self, *argument)
        outcome.row.update(status="failed", reason="out of memory", time_ms=None)
        return outcome

    monkeypatch.setattr(executors.LocalExecutor, "measure", fails)
    code, _, err = command("save", "main", "--repeat", "3", *TINY)
    assert code == 3
    assert "out of memory" in err
    assert "saves what is finished" not in err
    assert "process 2 of 3" not in err
    assert bwprof.baselines() == []


def test_load_refuses_a_baseline(folder: Path) -> None:
    path = bwprof.save_baseline("main", a_run())
    with pytest.raises(ValueError, match=f"{path} is not a bwprof result file: it is of the format 'bwprof-baseline'"):
        bwprof.load(path)


# ---- runs of one process ----


def of_process(word: str, *times_ms: float) -> list[pd.DataFrame]:
    """Return a run of one case for each time, all of one process."""
    return [
        frame.from_rows(
            [row("decode", "fp16", time_ms=ms, time_ms_lo=ms, time_ms_hi=ms, run_id=f"{word}{turn}", process=word)]
        )
        for turn, ms in enumerate(times_ms)
    ]


def test_runs_of_one_process_count_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    bwprof.save_baseline("one", *of_process("p", 1.0, 2.0, 4.0))
    found = bwprof.load_baseline("one")
    assert found.process_ms == [(pytest.approx(2.0),)], "their geometric mean"
    assert len(found.cases[0].rows) == 3, "nothing is thrown away"
    assert "'one'" in caplog.text
    assert "3 runs of one" in caplog.text
    assert bwprof.baselines()["one"]["processes"] == 1
    caplog.clear()
    bwprof.save_baseline("two", "baseline:one", *of_process("q", 3.0))
    assert bwprof.load_baseline("two").process_ms == [(pytest.approx(2.0), 3.0)]
    assert "4 runs of 2" in caplog.text
    caplog.clear()
    bwprof.save_baseline("three", *(of_process(word, 1.0)[0] for word in "pqr"))
    assert bwprof.load_baseline("three").process_ms == [(1.0, 1.0, 1.0)]
    assert not caplog.records


def test_disturbed_cases_have_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two, three = (of_process(word, 1.0)[0] for word in "pqr")
    noisy = [data.assign(flags="noisy") for data in (two, three)]
    bwprof.save_baseline("quiet", one, *noisy)
    assert not caplog.records, "another process was not disturbed"
    bwprof.save_baseline("noisy", *noisy)
    assert "'noisy': 1 of 1" in caplog.text
    assert set(bwprof.compare("noisy", one)["verdict"]) == {"disturbed"}


def test_rows_measured_in_this_process_count_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def once() -> bwprof.Row:
        return bwprof.measure(lambda: None, name="f", device="cpu", cache="hot", roofs=False, max_seconds=0.001)

    bwprof.save_baseline("main", once(), once())
    assert [len(times) for times in bwprof.load_baseline("main").process_ms] == [1]
    assert "2 runs of one" in caplog.text


def test_show_and_compare_print_the_same_time(command: Callable[..., Any], folder: Path) -> None:
    for number, data in enumerate([*of_process("p", 1.0, 4.0), *of_process("q", 8.0)]):
        bwprof.save(data, folder / f"{number}.json")
    code, _, err = command("save", "main", "0.json", "1.json", "2.json")
    assert (code, "3 runs of 2" in err) == (0, True)
    out = command("show", "main")[1]
    assert "3 runs of 2" in " ".join(out.split())
    cells = [cell.strip() for cell in next(line for line in out.splitlines() if "fp16" in line).split("|")]
    (line,) = bwprof.compare("main", of_process("r", 4.0)[0]).to_dict(orient="records")
    assert line["base_ms"] == line["base_ms_lo"] == pytest.approx(4.0), "of 2 (of 1 and 4) and 8"
    assert cells[4:7] == ["4", "4", "4"]
    assert cells[-2:] == ["2", "300.00"]
    assert float(cells[7]) == pytest.approx(line["base_gb_s"])


@pytest.mark.parametrize(
    "value", [{"a": ["x" * 30, {"b": [None, "y"]}], "c": ""}, [{"k": "v"}] * 9, {"n": [1] * 38, "t": True}, ["é" * 19]]
)
def test_json_that_fits_a_line_is_on_one_line(value: Any) -> None:
    """The limit is exact to the character."""
    whole = json.dumps(value)
    for depth in range(121):
        lines = baselines._format_json(value, depth)
        assert json.loads(lines) == value
        assert ("\n" not in lines) == (len(whole) + depth <= 120)
