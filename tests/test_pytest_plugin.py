"""The pytest plugin: fixture, mark, options and summary, in pytest sessions of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas
import pytest
from conftest import NO_CUDA

import bwprof
from bwprof import hardware
from bwprof.pytest_plugin import fixture

pytest_plugins = ["pytester"]
PLUGIN = "bwprof.pytest_plugin.plugin"
ROOT = Path(bwprof.__file__).resolve().parent.parent
LOADED = (fixture, pandas)  # once, for all sessions in this process: what one imports is gone after it
# A measurement that takes no time, of so many ms; the real ones are tested on their own.
PRETEND = """
import itertools
import pytest
import bwprof
from bwprof.results import schema
from bwprof.results.row import Row
from bwprof.pytest_plugin import fixture

TIMES = itertools.cycle({times})

@pytest.fixture(autouse=True)
def _pretend(monkeypatch):
    def measured(what, options):
        row, ms = schema.empty_row(), next(TIMES)
        flags = "noisy" if ms < 0 else ""
        ms = abs(ms)
        row.update(operation=str(what), precision=options.get("precision", "fp32"), status="ok", time_ms=ms,
                   time_ms_lo=ms * 0.999, time_ms_hi=ms * 1.001, bandwidth_gb_s=100 / ms, bytes_read=100_000_000,
                   pct_attainable=50 / ms, attainable_gb_s=200.0, flags=flags, backend="cpu", device="D", cache="cold",
                   timer="monotonic", samples=3, kv_lens=options.get("kv_lens"))
        return Row(row, [ms * 1e6] * 3)
    monkeypatch.setattr(fixture, "_row", measured)
    monkeypatch.setattr(fixture, "_fresh", lambda row, options: measured(row["operation"], options))
"""


@pytest.fixture
def inside(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for tests, whose sessions do not change this one's environment."""
    pytester.syspathinsert(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # A conftest.py that is written twice in a second, at the same length, would run as the first one's bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return pytester


def run(inside: pytest.Pytester, *options: str, times: str = "[1.0]") -> pytest.RunResult:
    inside.makeconftest(PRETEND.format(times=times))
    return inside.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *options)


def test_nothing_is_imported_before_it_is_used(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        import sys

        def test_it():
            assert "bwprof.pytest_plugin.plugin" in sys.modules
            assert not {"bwprof.pytest_plugin.fixture", "bwprof.records", "pandas"} & set(sys.modules)
        """
    )
    result = inside.runpytest_subprocess("-p", PLUGIN)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*= bandwidth =*")


def test_measures_an_operation_and_a_function(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        def test_both(bandwidth):
            how = dict(device="cpu", cache="hot", roofs=False, max_seconds=0.02)
            row = bandwidth("gemm", M=4, N=16, K=16, precision="fp32", **how)
            assert (row.operation, row.status, row.case.partition("::")[2]) == ("gemm", "ok", "test_both")
            a = bytearray(1 << 16)
            row = bandwidth(lambda: bytes(a), bytes_read=len(a), bytes_written=len(a), name="copy", **how)
            assert (row.operation, row.case[-3:], row.bytes_read) == ("copy", " #2", 1 << 16)
            assert bandwidth.check(row, at_least="0.0001 GB/s") is row
            assert bandwidth(bytes, case="mine", **how).case == "mine"
        """
    )
    result = inside.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*= bandwidth =*", "*test_both*fp32*", "*test_both #2*", "mine *"])


def test_a_failed_check_prints_value_threshold_and_reason(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        def test_slow(bandwidth):
            bandwidth.check(bandwidth("gemm", M=1), at_least="80% attainable")

        def test_share(bandwidth):
            bandwidth.check(bandwidth("gemm", M=1), at_least="10% peak")

        def test_fast(bandwidth):
            bandwidth.check(bandwidth("gemm", M=1), at_least="0.1 TB/s")
        """
    )
    result = run(inside)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "E *bandwidth too low",
            "E *measured: 50.0 % attainable (100 GB/s)",
            "E *required: at least 80 % attainable",
            "E *row: *1 ms*",
            "E *retry: *measured again in a fresh process; this is the better one",
            "E *measured: 100 GB/s, its share of peak is not known",
            "E *roofs='auto'*",
        ]
    )


def test_a_row_below_the_threshold_is_measured_again_in_a_fresh_process(inside: pytest.Pytester) -> None:
    """Measurements of this process are made a thousand times slower, those of a fresh process are not."""
    inside.makeconftest(
        """
        import pytest
        from bwprof.pytest_plugin import fixture

        measure = fixture._row

        @pytest.fixture(autouse=True)
        def _slow_here(monkeypatch):
            def slow(what, options):
                row = measure(what, options)
                row["bandwidth_gb_s"] /= 1000
                return row
            monkeypatch.setattr(fixture, "_row", slow)
        """
    )
    inside.makepyfile(
        """
        HOW = dict(device="cpu", cache="hot", roofs=False, max_seconds=0.02, rel_ci="50%", seed=3)

        def test_operation(bandwidth):
            row = bandwidth("stream_copy", elements=1 << 16, case="copied", **HOW)
            row = bandwidth.check(row, at_least=f"{row.bandwidth_gb_s * 20} GB/s")
            assert (row.case, row.seed, row.cache, len(row.samples_ns) > 9) == ("copied", 3, "hot", True)

        def test_function(bandwidth):
            a = bytearray(1 << 16)
            row = bandwidth(lambda: bytes(a), bytes_read=len(a), device="cpu", roofs=False, max_seconds=0.02, name="f")
            bandwidth.check(row, at_least=f"{row.bandwidth_gb_s * 20} GB/s")
        """
    )
    result = inside.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*measured again in this process, where the function is*", "FAILED *::test_function*"])


def test_without_a_fresh_process_the_row_is_measured_again_here(inside: pytest.Pytester) -> None:
    inside.makepyfile('def test_it(bandwidth): bandwidth.check(bandwidth("gemm"), at_least="900 GB/s")')
    inside.makeconftest(PRETEND.format(times="[1.0]").replace("measured(row[", "'it is gone' or (row["))
    result = inside.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *retry: *measured again in this process (it is gone); *the better one"])


def test_a_disturbed_row_is_measured_once_more(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        def test_it(bandwidth):
            row = bandwidth.check(bandwidth("gemm"), at_least="90 GB/s")
            assert row.time_ms == 1.0 and row.flags == ""
        """
    )
    result = run(inside, times="[-2.0, 1.0]")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_it* 1 *100 *50.0*"])  # the better one is the session's


def test_a_row_that_stays_disturbed_fails_with_a_note(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        def test_it(bandwidth):
            bandwidth.check(bandwidth("gemm"), at_least="90 GB/s")
        """
    )
    result = run(inside, times="[-2.0, -3.0]")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *disturbed (noisy) both times", "E *measured: 50 GB/s", "E *alone*"])


@pytest.mark.parametrize(
    ("text", "column", "least"),
    [
        ("80% attainable", "pct_attainable", 80.0),
        (" 70 % Peak ", "pct_peak", 70.0),
        ("60%limit", "pct_limit", 60.0),
        ("500 GB/s", "bandwidth_gb_s", 500.0),
        ("1.5TB/s", "bandwidth_gb_s", 1500.0),
    ],
)
def test_thresholds_are_parsed(text: str, column: str, least: float) -> None:
    found = fixture.parse_threshold(text)
    assert (found.column, found.least) == (column, least)


@pytest.mark.parametrize(
    "argument", ["80%", "80", "fast", "", "GB/s", "-5 GB/s", "0% peak", "nan% peak", "5 GB/s peak", "5 MB/s", 80, None]
)
def test_other_thresholds_are_refused(argument: object) -> None:
    with pytest.raises(ValueError, match=r"at_least is .*'500 GB/s'.*ceiling"):
        fixture.parse_threshold(argument)


def test_a_misspelled_share_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean 'attainable'"):
        fixture.parse_threshold("80% attainble")


TWO = """
    def test_one(bandwidth):
        bandwidth("gemm", precision="fp16")

    def test_two(bandwidth):
        bandwidth("gemm")
"""


def test_a_case_with_lengths_is_found_in_the_baseline(inside: pytest.Pytester) -> None:
    inside.makepyfile('def test_one(bandwidth):\n    bandwidth("attention_decode", kv_lens="9;5")')
    run(inside, "--bwprof-save", "main").assert_outcomes(passed=1)
    output = run(inside, "--bwprof-baseline", "main", times="[1.2]")
    output.stdout.fnmatch_lines(["*test_one kv_lens=9,5*+20.0 % slower*"])


def test_a_session_becomes_a_baseline_of_the_next(inside: pytest.Pytester) -> None:
    inside.makepyfile(TWO)
    saved = run(inside, "--bwprof-save", "main")
    saved.assert_outcomes(passed=2)
    saved.stdout.fnmatch_lines(["*baseline 'main' (2 cases) is in *main.json"])
    stored = bwprof.load_baseline("main", folder=inside.path / ".bwprof" / "baselines")
    assert [row["case"].partition("::")[2] for row in stored.rows] == ["test_one", "test_two"]
    assert stored.samples == [[1e6] * 3] * 2

    output = run(inside, "--bwprof-baseline", "main", times="[1.2, 1.0]")
    output.assert_outcomes(passed=2)
    output.stdout.fnmatch_lines(["*test_one*+20.0 % slower*", "*test_two*+0.0 % same*"])
    # The first row and its second measurement; test_two is as it was.
    failed = run(inside, "--bwprof-baseline", "main", "--bwprof-fail-on", "5%", times="[1.2, 1.2, 1.0]")
    failed.assert_outcomes(passed=1, failed=1)
    failed.stdout.fnmatch_lines(
        ["slower than baseline 'main': *test_one: +20.0 %", "*measured again: 1.2 ms*", "*in a fresh process"]
    )
    # Slow only once: by chance.
    run(inside, "--bwprof-baseline", "main", "--bwprof-fail-on", "5%", times="[1.2, 1.0]").assert_outcomes(passed=2)


def test_a_second_measurement_in_the_same_process_needs_a_larger_change(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        def test_operation(bandwidth):
            bandwidth("gemm")

        def test_function(bandwidth):
            bandwidth(len)
        """
    )
    for number in "123456":
        run(inside, "--bwprof-save", number, times=f"[1.0, 1.000{number}]").assert_outcomes(passed=2)
    folder = inside.path / ".bwprof" / "baselines"
    bwprof.save_baseline("main", *(f"baseline:{number}" for number in "123456"), folder=folder)
    gate = ("--bwprof-baseline", "main", "--bwprof-fail-on", "slower")
    output = run(inside, *gate, times="[1.015]")
    output.assert_outcomes(passed=1, failed=1)
    output.stdout.fnmatch_lines(["slower than *test_operation: +1.5 %", "*test_function*+1.5 % same*"])
    run(inside, *gate, times="[1.025]").assert_outcomes(failed=2)


def test_a_baseline_of_disturbed_rows_has_a_warning(inside: pytest.Pytester) -> None:
    inside.makepyfile(TWO)
    saved = run(inside, "--bwprof-save", "main", times="[-1.0, 1.0]")
    saved.stdout.fnmatch_lines(["baseline 'main': 1 of 2 cases disturbed (noisy) in each run: *"])


def test_a_sessions_baseline_is_replaced_only_with_force(inside: pytest.Pytester) -> None:
    inside.makepyfile(TWO)
    folder = ("--bwprof-dir", "kept")
    run(inside, "--bwprof-save", "main", *folder).assert_outcomes(passed=2)
    path = inside.path / "kept" / "main.json"
    before = path.read_text()
    again = run(inside, "--bwprof-save", "main", *folder)
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["*there is a baseline 'main' already; --bwprof-force replaces it"])
    assert path.read_text() == before
    run(inside, "--bwprof-save", "main", "--bwprof-force", *folder, times="[3.0]").assert_outcomes(passed=2)
    assert path.read_text() != before


def test_a_gate_that_judges_no_row_fails(inside: pytest.Pytester) -> None:
    inside.makepyfile(TWO)
    run(inside, "--bwprof-save", "main").assert_outcomes(passed=2)
    path = inside.path / ".bwprof" / "baselines" / "main.json"
    path.write_text(path.read_text().replace('"device": "D"', '"device": "E"'))
    output = run(inside, "--bwprof-baseline", "main")
    assert output.ret == pytest.ExitCode.OK
    output.stdout.fnmatch_lines(["*test_one*not comparable*", "2 of 2 rows not comparable: another device: E, D*"])
    gated = run(inside, "--bwprof-baseline", "main", "--bwprof-fail-on", "5%")
    assert gated.ret == pytest.ExitCode.TESTS_FAILED
    gated.stdout.fnmatch_lines(["--bwprof-fail-on failed: baseline 'main' could judge none of the rows"])


def test_a_gate_fails_for_an_undecided_row(inside: pytest.Pytester) -> None:
    inside.makepyfile(TWO)
    run(inside, "--bwprof-save", "main").assert_outcomes(passed=2)
    path = inside.path / ".bwprof" / "baselines" / "main.json"
    path.write_text(re.sub(r'"time_ms_lo": [0-9.]+', '"time_ms_lo": 0.5', path.read_text(), count=1))
    assert run(inside, "--bwprof-baseline", "main").ret == pytest.ExitCode.OK
    gated = run(inside, "--bwprof-baseline", "main", "--bwprof-fail-on", "5%")
    assert gated.ret == pytest.ExitCode.TESTS_FAILED
    gated.stdout.fnmatch_lines(["--bwprof-fail-on failed: undecided, with the smallest detectable change: *test_one*"])


def test_a_new_test_is_no_regression(inside: pytest.Pytester) -> None:
    inside.makepyfile(TWO)
    run(inside, "--bwprof-save", "main").assert_outcomes(passed=2)
    inside.makepyfile(TWO + "\n    def test_three(bandwidth):\n        bandwidth('gemm', precision='bf16')\n")
    result = run(inside, "--bwprof-baseline", "main", "--bwprof-fail-on", "5%")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_three*only in new*", "1 of 3 rows only in new: *"])


MEASURES = "def test_it(bandwidth):\n    bandwidth('gemm', M=1)\n"


@pytest.mark.parametrize(("rootdir", "other"), [(".", "a"), ("a", ".")])
def test_a_moved_rootdir_finds_the_baselines_tests(inside: pytest.Pytester, rootdir: str, other: str) -> None:
    (inside.mkdir("a") / "test_it.py").write_text(MEASURES)
    gate = ("--bwprof-baseline", "old", "--bwprof-fail-on", "5%", f"--rootdir={other}", "-c", "/dev/null", "a")
    saved = run(inside, "--bwprof-save", "old", f"--rootdir={rootdir}", "-c", "/dev/null", "a")
    saved.assert_outcomes(passed=1)
    result = run(inside, *gate)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*only in new*")
    run(inside, *gate, times="[2.0]").assert_outcomes(failed=1)


def test_measured_functions_are_released_after_the_test(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        import gc, weakref

        class Work:
            def __call__(self):
                pass

        seen = []

        def test_first(bandwidth):
            work = Work()
            seen.append(weakref.ref(work))
            bandwidth(work)

        def test_second():
            gc.collect()
            assert seen[0]() is None
        """
    )
    run(inside).assert_outcomes(passed=2)


def test_a_session_that_fails_saves_nothing(inside: pytest.Pytester) -> None:
    inside.makepyfile(TWO + "\n    def test_three():\n        assert False\n")
    result = run(inside, "--bwprof-save", "main")
    result.stdout.fnmatch_lines(["baseline 'main' was not saved: the session failed"])
    assert not (inside.path / ".bwprof").exists()


def test_a_session_that_measures_nothing_cannot_be_saved(inside: pytest.Pytester) -> None:
    inside.makepyfile("def test_it(): pass")
    result = run(inside, "--bwprof-save", "main")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["baseline 'main' was not saved: no test measured anything*"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bwprof-fail-on", "5%"), "--bwprof-fail-on needs what to compare with: --bwprof-baseline NAME"),
        (("--bwprof-baseline", "main"), "*no such file or folder: main; no baseline *main* in *"),
        (("--bwprof-save", "../main"), "*the name of a baseline is '../main': allowed are*"),
        (
            ("--bwprof-baseline", "x", "--bwprof-fail-on", "slow"),
            "*unknown --bwprof-fail-on 'slow': did you mean*",
        ),
    ],
)
def test_wrong_options_end_the_session_before_it_begins(
    inside: pytest.Pytester, options: tuple[str, ...], words: str
) -> None:
    inside.makepyfile(TWO)
    result = run(inside, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}*"])


def test_a_marked_test_is_skipped_where_its_device_is_absent(inside: pytest.Pytester) -> None:
    inside.makepyfile(
        """
        import pytest

        @pytest.mark.bandwidth(device="cpu:7")
        def test_absent(bandwidth):
            bandwidth("gemm")

        @pytest.mark.bandwidth("cpu")
        def test_there(bandwidth):
            assert bandwidth._device == "cpu"

        @pytest.mark.bandwidth(devise="cpu")
        def test_misspelled(bandwidth):
            pass

        @pytest.mark.bandwidth(device="gpu")
        def test_no_device(bandwidth):
            pass

        @pytest.mark.bandwidth("10 Mbit/s", burst=3)
        def test_of_somebody_else():
            pass
        """
    )
    result = run(inside, "-rs", "--strict-markers")
    result.assert_outcomes(passed=2, skipped=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*ValueError: pytest.mark.bandwidth has *devise*: allowed is device= alone*",
            "*ValueError: device is 'gpu': allowed are *",
            "SKIPPED*no device cpu:7: backend 'cpu' has no device 7: allowed are 0",
        ]
    )


@pytest.mark.skipif(not NO_CUDA, reason="there is a CUDA device")
def test_a_test_of_a_gpu_is_skipped_with_a_reason(inside: pytest.Pytester) -> None:
    inside.makepyfile('import pytest\n@pytest.mark.bandwidth(device="cuda")\ndef test_it(bandwidth): pass')
    result = run(inside, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no device cuda: backend 'cuda' has no device: *"])


def test_two_sessions_do_not_measure_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where no other worker's session takes its turn
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    choice = hardware.choose_device("cpu")
    with fixture.lock_device(choice):
        child = """
import fcntl, sys
from bwprof import hardware
from bwprof.pytest_plugin import fixture as device
real = fcntl.flock
def flock(number, how):
    try:
        real(number, how | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("would wait")
device.fcntl.flock = flock
with device.lock_device(hardware.choose_device("cpu")):
    print("free")
"""
        command = [sys.executable, "-c", child]
        inside = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert inside.stderr.strip() == "would wait"
    assert subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout == "free\n"


def test_workers_of_xdist_pass_rows_on(inside: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    inside.makepyfile(TWO)
    inside.makeconftest(PRETEND.format(times="[1.0]"))
    result = inside.runpytest_subprocess(
        *("-p", PLUGIN, "-p", "xdist", "-p", "no:cacheprovider", "-n", "2"), "--bwprof-save", "main"
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*= bandwidth =*", "baseline 'main' (2 cases)*"])
    stored = bwprof.load_baseline("main", folder=inside.path / ".bwprof" / "baselines")
    assert {row["case"].partition("::")[2] for row in stored.rows} == {"test_one", "test_two"}
