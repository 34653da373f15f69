"""The C library's reports: one kernel's bandwidth, kept in the proof bundles that bwprof itself writes and reads."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shlex
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_library import WARNINGS, flags, run

import bwprof
from bwprof.results.atomic import Claim
from bwprof.results.reader import REPORT_NAMES

OK, INVALID, SYSTEM = 0, 1, 9  # of bwprof.h
FILE = Path(".test-results/bandwidth/run-1/bandwidth_report.json")
SIX = {
    "operation": "gemm",
    "precision": "FP16",
    "time_ms": 0.5,
    "bandwidth_gb_s": 4.0,
    "bytes_read": 1,
    "bytes_written": 2,
}


class Report(ctypes.Structure):
    """`bwprof_report`."""

    _fields_ = (
        ("operation", ctypes.c_char * 64),
        ("precision", ctypes.c_char * 16),
        ("time_ms", ctypes.c_double),
        ("bandwidth_gb_s", ctypes.c_double),
        ("bytes_read", ctypes.c_uint64),
        ("bytes_written", ctypes.c_uint64),
    )


def report(**changed: Any) -> Report:
    values = SIX | changed
    return Report(**{name: value.encode() if isinstance(value, str) else value for name, value in values.items()})


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(bwprof.get_library())
    found.bwprof_last_error.restype = ctypes.c_char_p
    return found


@pytest.fixture
def save(library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Saves below an own working directory; the answer, and why."""
    monkeypatch.chdir(tmp_path)

    def call(given: Report | None, run_id: str | None = "run-1") -> tuple[int, str]:
        name = None if run_id is None else run_id.encode()
        status = library.bwprof_report_save_to_proof_bundle(None if given is None else ctypes.byref(given), name)
        return status, library.bwprof_last_error().decode()

    return call


def test_a_kernel_is_measured(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which operation each of the three measures is looked at in tests/native."""
    monkeypatch.setenv("BWPROF_CPU_THREADS", "1")
    found = Report()
    assert library.bwprof_profile_gemm_bandwidth(3, 64, 32, 1, ctypes.byref(found)) == OK
    assert (found.operation, found.precision) == (b"gemm", b"FP16")
    assert (found.bytes_read, found.bytes_written) == ((3 * 32 + 64 * 32) * 2, 3 * 64 * 2)
    assert found.time_ms > 0
    assert found.bandwidth_gb_s == pytest.approx((found.bytes_read + found.bytes_written) / found.time_ms / 1e6)


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("gemm", (0, 8, 8), "M = 0"),
        ("gemm", (8, -1, 8), "N = -1"),
        ("attention", (1, 8, 2, -4), "head_dim = -4"),
        ("kv_cache", (1, 2**31 - 1, 2**31 - 1, 2**31 - 1), "num_kv_heads = 2147483647"),
    ],
)
def test_sizes_that_are_none(library: ctypes.CDLL, name: str, sizes: tuple[int, ...], said: str) -> None:
    found = report()
    assert library[f"bwprof_profile_{name}_bandwidth"](*sizes, 1, ctypes.byref(found)) == INVALID
    assert said in library.bwprof_last_error().decode()
    assert (found.operation, found.time_ms == found.time_ms, found.bytes_read) == (b"", False, 0)
    assert library[f"bwprof_profile_{name}_bandwidth"](*sizes, 1, None) == INVALID
    assert library.bwprof_last_error() == b"out is NULL"


def python_saves(values: dict[str, Any], root: Path) -> str:
    path = bwprof.BandwidthReport(**values).save_to_proof_bundle("run-1", root)
    return path.read_text()


SEVERAL = [
    SIX,
    SIX | {"operation": 'decode_gemm "größe" \\', "time_ms": 0.00243265, "bandwidth_gb_s": 661.509},
    SIX | {"precision": "mine", "time_ms": 1e-7, "bandwidth_gb_s": 0.1 + 0.2, "bytes_read": 2**62},
]


def test_bundles_are_pythons(save: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """One report, then a list of them: the same values by the same names in the same order, laid out alike."""
    for values in SEVERAL:
        assert save(report(**values))[0] == OK
        expected = python_saves(values, tmp_path / "python")
        assert json.loads(FILE.read_text()) == json.loads(expected)
        assert FILE.read_text().count("\n") == expected.count("\n")
        documents = [json.loads(text, object_pairs_hook=list) for text in (FILE.read_text(), expected)]
        assert documents[0] == documents[1]
    assert next(line for line in FILE.read_text().splitlines() if "operation" in line) == '    "operation": "gemm",'
    rows = bwprof.rows(bwprof.load(FILE))
    assert [row["operation"] for row in rows] == [values["operation"] for values in SEVERAL]
    assert [row["precision"] for row in rows] == ["fp16", "fp16", "mine"]
    assert [path.name for path in FILE.parent.iterdir()] == [FILE.name]


def test_the_text_of_a_report(save: Callable[..., tuple[int, str]], snapshot: Callable[..., None]) -> None:
    given = report(
        operation="decode_gemm", time_ms=0.00243265, bandwidth_gb_s=661.509, bytes_read=1607424, bytes_written=1792
    )
    assert save(given)[0] == OK
    snapshot(FILE.read_text())


def test_python_and_c_add_to_one_bundle(save: Callable[..., tuple[int, str]]) -> None:
    root = FILE.parents[1]
    python_saves(SEVERAL[0], root)
    assert save(report(**SEVERAL[1]))[0] == OK
    python_saves(SEVERAL[2], root)
    assert save(report())[0] == OK
    found = [row["operation"] for row in bwprof.rows(bwprof.load(FILE))]
    assert found == [values["operation"] for values in (*SEVERAL, SIX)]
    assert (FILE.parent / "metadata.json").is_file()


def test_threads_save_into_one_bundle(save: Callable[..., tuple[int, str]]) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: save(report(bytes_read=number))[0], range(12)))
    assert answers == [OK] * 12
    assert sorted(row["bytes_read"] for row in json.loads(FILE.read_text())) == list(range(12))
    assert [path.name for path in FILE.parent.iterdir()] == [FILE.name]


def test_a_writer_waits_for_the_lock(save: Callable[..., tuple[int, str]]) -> None:
    FILE.parent.mkdir(parents=True)
    claim = Claim(FILE)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(save(report())[0]))
    thread.start()
    thread.join(0.1)
    assert answers == []
    assert not FILE.exists()
    claim.release()
    thread.join()
    assert answers == [OK]


@pytest.mark.parametrize("run_id", ["", ".", "..", "../x", "a/b", ".hidden", "a b", "größe", "x\n", "y" * 129, None])
def test_run_ids_cannot_leave_the_folder(
    save: Callable[..., tuple[int, str]], tmp_path: Path, run_id: str | None
) -> None:
    status, said = save(report(), run_id)
    assert status == INVALID
    assert said.startswith("run_id is")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"time_ms": 0.0}, "time_ms is 0: a time above 0"),
        ({"time_ms": float("nan")}, "time_ms is nan"),
        ({"time_ms": float("inf")}, "time_ms is inf"),
        ({"bandwidth_gb_s": -1.0}, "bandwidth_gb_s is -1: a number from 0"),
        ({"bandwidth_gb_s": float("nan")}, "bandwidth_gb_s is nan"),
        ({"operation": ""}, "operation is empty"),
        ({"operation": "x" * 64}, "operation has no end: allowed are 63 bytes"),
        ({"precision": "y" * 16}, "precision has no end: allowed are 15 bytes"),
    ],
)
def test_impossible_reports_are_refused(
    save: Callable[..., tuple[int, str]], tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    status, answer = save(report(**changed))
    assert (status, answer[: len(said)]) == (INVALID, said)
    assert save(None) == (INVALID, "report is NULL")
    assert list(tmp_path.iterdir()) == []


ROW = json.dumps(SIX)
ONE = json.dumps(SIX, indent=2) + "\n"
LIST = json.dumps([SIX, SIX], indent=2) + "\n"
NONE = "is not a proof bundle"
OTHERS = {
    "empty": ("", NONE),
    "no JSON": ("hello", NONE),
    "cut off": (ROW[:-1], NONE),
    "cut off in a report": (ONE[:-3], NONE),
    "cut off behind a value": (LIST[:-4], NONE),
    "cut off in a list": (LIST[:-2], NONE),
    "two documents": (f"{ROW}\n{ROW}", NONE),
    "two reports": (ONE + ONE, NONE),
    "two lists": (LIST + LIST, NONE),
    "an empty list": ("[]", NONE),
    "a list with something else": (f"[{ROW}, 1]", NONE),
    "a list that ends with something else": (json.dumps([SIX, 1], indent=2) + "\n", NONE),
    "a report without its bytes": ('{"operation": "gemm"}', NONE),
    "a comma too many": (f"[{ROW},]", NONE),
    "a comma too many at the end": (LIST[:-3] + ",\n]\n", NONE),
    "a result file": ('{"format": "bwprof results 1", ' + ROW[1:], NONE),
    "a result file of several lines": (json.dumps({"format": "bwprof results 1"} | SIX, indent=2) + "\n", NONE),
    "a whole run": (json.dumps({"run": {}, "reports": [SIX]}, indent=2) + "\n", "holds a whole run's results"),
    "too deep": ('{"x": ' + "[" * 2000 + "]" * 2000 + ", " + ROW[1:], NONE),
    "bare NaN": (ROW[:-1] + ', "x": NaN}', NONE),
    "a control character": (ROW[:-1] + ', "x": "\x01"}', NONE),
    "half a character": (ROW[:-1] + ', "x": "\udcc3"}', NONE),
    "half a character at the end": (ROW[:-1] + ', "x": "\udce2\udc82', NONE),
    "a character written too long": (ROW[:-1] + ', "x": "\udcc0\udcaf"}', NONE),
    "a 0": (ROW[:-1] + ', "x": 1}\0', NONE),
    "a 0 in a report": (ONE.replace("gemm", "ge\0m"), NONE),
    "a 0 behind a list": (LIST + "\0", NONE),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_stay_untouched(save: Callable[..., tuple[int, str]], name: str) -> None:
    content, said = OTHERS[name]
    FILE.parent.mkdir(parents=True)
    FILE.write_text(content, errors="surrogateescape")
    status, message = save(report())
    assert status == INVALID
    assert message.startswith(f"{FILE} {said}: ")
    assert "run_id" in message
    assert FILE.read_text(errors="surrogateescape") == content


def test_links_and_folders_are_refused(save: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    FILE.parents[1].mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    FILE.parent.symlink_to(tmp_path / "elsewhere")
    status, message = save(report())
    assert (status, message.partition(" is ")[0]) == (INVALID, str(FILE.parent))
    assert "symbolic link" in message
    FILE.parent.unlink()
    FILE.parent.mkdir()
    FILE.symlink_to(tmp_path / "elsewhere" / "file")
    status, message = save(report())
    assert (status, message.partition(" is ")[0]) == (INVALID, str(FILE))
    assert "symbolic link" in message
    assert list((tmp_path / "elsewhere").iterdir()) == []
    FILE.unlink()
    FILE.mkdir()
    assert save(report())[0] == INVALID
    FILE.rmdir()
    FILE.parent.rmdir()
    FILE.parent.write_text("a file where the folder would be")
    status, message = save(report())
    assert status == SYSTEM
    assert message.endswith(f": {FILE.parent}/.{FILE.name}.writing: {os.strerror(errno.ENOTDIR)}")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
REPORTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=3).map(lambda more: SIX | more)
DOCUMENTS = REPORTS | st.lists(REPORTS, min_size=1, max_size=3) | VALUES | st.lists(VALUES, max_size=2)
LAYOUTS = st.sampled_from([None, 0, 2, "\t"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DOCUMENTS, LAYOUTS, st.booleans())
@example([SIX, SIX | {"a": '\\"]'}], 2, False)
@example([SIX, SIX | {"a": '\\"]'}], None, False)
@example(SIX | {"a\nb": "\x7f\u2028", "-": -0.0, "c": "\n}\n", "d": [{"e": []}]}, 2, True)
def test_documents_are_extended_or_left_untouched(
    save: Callable[..., tuple[int, str]], document: Any, indent: Any, ascii_only: bool
) -> None:
    """Python's own reader reads the file before and after: reports that are laid out as bwprof does it get one more."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    before = json.dumps(document, indent=indent, ensure_ascii=ascii_only) + "\n"
    FILE.write_text(before)
    reports = document if isinstance(document, list) else [document]
    takes = (
        indent == 2
        and bool(reports)
        and all(isinstance(found, dict) and found.keys() >= {*REPORT_NAMES} for found in reports)
    )
    status, _ = save(report())
    after = FILE.read_text()
    assert status == (OK if takes else INVALID)
    assert json.loads(after) == [*reports, SIX] if takes else after == before


SHORT = """
%s
#include <bwprof.h>
int use(bwprof_report *out);
int use(bwprof_report *out) {
    return profile_gemm_bandwidth(1, 2, 3, 1, out) + profile_attention_bandwidth(1, 2, 3, 4, 0, out) +
           profile_kv_cache_bandwidth(1, 2, 3, 4, 1, out);
}
"""
OWN = """
#include <bwprof.h>
static int profile_gemm_bandwidth(void) { return 1; }
int use(void);
int use(void) { return profile_gemm_bandwidth(); }
"""


@pytest.mark.parametrize(("variable", "compiler", "ending"), [("CC", "cc", "c"), ("CXX", "c++", "cpp")])
def test_short_names_need_a_definition(tmp_path: Path, variable: str, compiler: str, ending: str) -> None:
    """Without BWPROF_SHORT_NAMES a program has these names to itself."""
    command = shlex.split(os.environ.get(variable, compiler))
    if shutil.which(command[0]) is None:
        pytest.skip(f"no compiler: {command[0]} was not found")
    for name, source in {"short": SHORT % "#define BWPROF_SHORT_NAMES", "own": OWN}.items():
        (tmp_path / f"{name}.{ending}").write_text(source)
        run(*command, *WARNINGS, *flags("--cflags"), "-c", f"{name}.{ending}", "-o", f"{name}.o", cwd=tmp_path)
    if shutil.which("nm") is not None:
        wanted = {f"bwprof_profile_{name}_bandwidth" for name in ("gemm", "attention", "kv_cache")}
        assert {line.split()[-1] for line in run("nm", "-u", "short.o", cwd=tmp_path).splitlines()} >= wanted
