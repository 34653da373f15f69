"""The C library: its exports, examples in C, C++, Rust and CUDA, bad use, and numbers equal to Python's.

Programs of tests/api are compiled against the library that lies beside the module; under a sanitizer they are built
with it, too.
"""

from __future__ import annotations

import csv
import ctypes
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from compiled import clean_environment

import bwprof
from bwprof import _core, config
from bwprof.measuring.operation import Spec
from bwprof.roofs.limiter import FLOOR_FACTOR
from bwprof.runs import plan

API = Path(__file__).resolve().parent / "api"
HEADER = Path(bwprof.get_include()) / "bwprof.h"
CHECKS = re.findall(r"NAMED\((\w+)\)[,}]", (API / "bad_use.c").read_text())
WARNINGS = shlex.split("-g -Wall -Wextra -pedantic -Werror")
# Leaks of the library are reported; nothing else may stop a program before its output is complete.
SANITIZER_OPTIONS = {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1", "TSAN_OPTIONS": "die_after_fork=0"}


def sanitizer() -> list[str]:
    """The flags of the sanitizer that the library was built with, if it was."""
    content = Path(bwprof.get_library()).read_bytes()
    found = [name for name, mark in {"address": b"__asan_init", "thread": b"__tsan_init"}.items() if mark in content]
    found += ["undefined"] if b"__ubsan_handle" in content else []
    return [f"-fsanitize={','.join(found)}"] if found else []


def flags(*options: str) -> list[str]:
    """What `python -m bwprof.config` of this package answers, split as a shell splits it."""
    done = subprocess.run(
        [sys.executable, "-m", "bwprof.config", *options],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env=os.environ | {"PYTHONPATH": str(Path(bwprof.__file__).parents[1])},
    )
    return done.stdout.split()


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean_environment() | SANITIZER_OPTIONS | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def compiled(source: str, folder: Path, *command: str) -> Path:
    """A program of tests/api."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no compiler: {command[0]} was not found")
    program = folder / Path(source).stem
    options = [*sanitizer(), *flags("--cflags")]
    run(*command, *WARNINGS, *options, API / source, *flags("--libs"), "-pthread", "-lm", "-o", program, cwd=folder)
    return program


@pytest.fixture(scope="module")
def c_example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("c_example")
    program = compiled("example.c", folder, *shlex.split(os.environ.get("CC", "cc")), "-std=c99")
    return folder, run(program, folder, cwd=folder).splitlines()


@pytest.fixture(scope="module")
def bad_use(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of its files, and its output."""
    folder = tmp_path_factory.mktemp("bad_use")
    program = compiled("bad_use.c", folder, *shlex.split(os.environ.get("CC", "cc")), "-std=c11")
    has_gpu = {backend["name"]: backend["devices"] for backend in _core.backends()}["cuda"]
    environment = {"BWPROF_CPU_THREADS": "2"} | ({"BWPROF_TEST_HAS_GPU": "1"} if has_gpu else {})
    environment["LOCPATH"] = str(folder)
    if shutil.which("localedef"):  # a locale with a decimal comma, of the test's own
        command = ["localedef", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"]
        subprocess.run(command, capture_output=True, check=False)
    return folder, run(program, folder, cwd=folder, **environment)


def test_the_library_exports_the_functions_of_its_header() -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm (binutils) is not installed")
    listing = run("nm", "-D", "--defined-only", bwprof.get_library(), cwd=API)
    exported = {line.split()[-1] for line in listing.splitlines() if line.split()[-2] in "TW"}
    marked = set(re.findall(r"^BWPROF_API [^;]*?(\w+)\(", HEADER.read_text(), re.MULTILINE))
    assert len(marked) >= 24
    assert {name for name in exported if "@@BWPROF_PRIVATE_" not in name} == {f"{name}@@BWPROF_1" for name in marked}


def test_the_library_names_itself_and_stays_loaded() -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf (binutils) is not installed")
    listing = run("readelf", "-dW", bwprof.get_library(), cwd=API)
    assert re.findall(r"\(SONAME\).*\[(.*)\]", listing) == ["libbwprof.so"]
    assert re.search(r"\(FLAGS_1\).*NODELETE", listing), "threads of a device that is open run in what dlclose unmaps"


def test_versions_agree(bad_use: tuple[Path, str]) -> None:
    assert re.search(r"BWPROF_ABI_VERSION 1\b", HEADER.read_text())
    assert json.loads((bad_use[0] / "names.json").read_text())["bwprof_version"] == bwprof.__version__


def test_config_answers_outside_the_source_tree(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(Path(bwprof.get_library()).parent)
    assert flags("--cflags", "--libs", "--include") == [
        f"-I{bwprof.get_include()}",
        f"-L{folder}",
        "-Xlinker",
        f"-rpath={folder}",
        "-lbwprof",
        bwprof.get_include(),
    ]
    with pytest.raises(SystemExit, match="2"):
        config.main([])
    err = capsys.readouterr().err
    assert all(option in err for option in ("--cflags", "--libs", "--include", "--rustc", "--library"))
    assert config.main(["--library"]) == 0
    assert capsys.readouterr().out == bwprof.get_library() + "\n"


def test_config_refuses_a_missing_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "_HERE", tmp_path)
    with pytest.raises(SystemExit, match="1"):
        config.main(["--libs"])
    assert "libbwprof.so" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        config.main(["--cflags"])
    assert "bwprof.h" in capsys.readouterr().err


def test_config_quotes_a_path_with_spaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "a b's"
    for name in ("include/bwprof.h", "lib/libbwprof.so"):
        (here / name).parent.mkdir(parents=True)
        (here / name).touch()
    monkeypatch.setattr(config, "_HERE", here)
    config.main(["--cflags", "--libs"])
    assert shlex.split(capsys.readouterr().out) == [
        f"-I{here}/include",
        f"-L{here}/lib",
        "-Xlinker",
        f"-rpath={here}/lib",
        "-lbwprof",
    ]
    config.main(["--include"])
    assert capsys.readouterr().out == f"{here}/include\n"


@pytest.mark.parametrize(("how", "problem"), [(">/dev/full", "No space left on device"), (">&-", "is closed")])
def test_config_fails_where_its_output_cannot_be_written(how: str, problem: str) -> None:
    run = subprocess.run(
        ["sh", "-c", f'"$0" -m bwprof.config --libs {how}', sys.executable], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (3, "")
    assert run.stderr.startswith("python -m bwprof.config: error: ")
    assert "standard output" in run.stderr
    assert problem in run.stderr
    assert "Traceback" not in run.stderr


COSTS = {
    "gemm": ("gemm", "fp16", {"M": 1, "N": 14336, "K": 4096}),
    "decode": (
        "attention_decode",
        "fp16",
        {"batch": 2, "kv_len": 4096, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
    ),
    "prefill": (
        "attention_prefill",
        "fp32",
        {"batch": 1, "seq_len": 512, "num_heads": 14, "num_kv_heads": 2, "head_dim": 64, "causal": 1},
    ),
    "append": ("kv_append", "bf16", {"batch": 8, "seq_len": 128, "num_kv_heads": 2, "head_dim": 64, "page_size": 16}),
}


def test_the_guides_example(source_tree: Path, tmp_path: Path) -> None:
    """It is compiled as it stands there but for a second report, and its reports are of its hundred ranges, which are
    empty: they are at the floor, and say so.
    """
    (code,) = re.findall(r"```c\n(.*?)```", (source_tree / "notebooks" / "guide.md").read_text(), re.DOTALL)
    line = "    bwprof_profiler_print_report(profiler, stdout);\n"
    assert line in code
    (tmp_path / "engine.c").write_text(
        code.replace(line, f'{line}    bwprof_profiler_write_json(profiler, "ranges.json");\n')
    )
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} was not found")
    options = [*WARNINGS, "-std=c99", *sanitizer(), *flags("--cflags", "--libs")]
    run(*compiler, "engine.c", *options, "-o", "engine", cwd=tmp_path)
    for _ in range(8):  # what else runs may make its ranges longer than the floor's own, or those than these
        title, time, read, written, *end = run(tmp_path / "engine", cwd=tmp_path).splitlines()
        assert title.strip("= ").endswith(": gemm")
        assert time.endswith("(median of 100)")
        assert read.endswith(": 117448704 (117.45 MB)")
        assert written.endswith(": 28672 (0.03 MB)")
        (row,) = csv.DictReader((tmp_path / "ranges.csv").read_text().splitlines())
        assert (row["range"], row["count"]) == ("gemm", "100")
        report = json.loads((tmp_path / "ranges.json").read_text())
        close = float(row["time_ms"]) * 1e3 < 3 * report["floor_us"]
        assert row["flags"] == report["ranges"][0]["flags"] == ("near_timer_floor" if close else "")
        assert end[0].endswith(" GB/s")
        assert ["near_timer_floor" in line for line in end[1:-1]] == [True] * close
        assert set(end[-1]) == {"="}
        same = 1 / 2 < float(row["time_ms"]) * 1e3 / report["floor_us"] < 2
        if same:
            break
    assert same, (row, report)


EMPTY_RANGES = """
#include <bwprof.h>
#include <string.h>
int main(void) {
    char name[401];
    bwprof_profiler *profiler;
    memset(name, 'k', 400);
    if (bwprof_profiler_create("cpu", 0, &profiler)) return 1;
    for (int length = 1; length <= 400; length += 133) {
        name[length] = 0;
        for (int i = 0; i < 100; i++) {
            if (bwprof_profiler_start(profiler, name, NULL) || bwprof_profiler_stop(profiler, name, NULL)) return 2;
        }
        name[length] = 'k';
    }
    if (bwprof_profiler_enable(profiler, 0)) return 3;
    return bwprof_profiler_write_csv(profiler, "ranges.csv") || bwprof_profiler_destroy(profiler);
}
"""


def test_an_empty_range_is_near_the_floor(tmp_path: Path) -> None:
    """Also one with a template's name, and in the report of a profiler that has been switched off."""
    (tmp_path / "empty.c").write_text(EMPTY_RANGES)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} was not found")
    run(*compiler, "empty.c", *sanitizer(), *flags("--cflags", "--libs"), "-o", "empty", cwd=tmp_path)
    for _ in range(8):  # as above
        run(tmp_path / "empty", cwd=tmp_path)
        found = [row["flags"] for row in csv.DictReader((tmp_path / "ranges.csv").read_text().splitlines())]
        if sanitizer():  # to look through a long name takes several times as long then
            found = found[:2]
        if set(found) == {"near_timer_floor"}:
            break
    assert found == ["near_timer_floor"] * (2 if sanitizer() else 4)


@pytest.mark.parametrize("word", COSTS)
def test_costs_equal_pythons(c_example: tuple[Path, list[str]], word: str) -> None:
    operation, precision, params = COSTS[word]
    cost = _core.cost(operation, precision, params)
    (line,) = [line for line in c_example[1] if line.startswith(f"{word} ")]
    assert line == f"{word} {cost['bytes_read']} {cost['bytes_written']} {cost['flops']}"


def test_a_gemm_by_hand(c_example: tuple[Path, list[str]]) -> None:
    """FP16: (1 x 4096 + 14336 x 4096) x 2 bytes read, 14336 x 2 written, 2 x 14336 x 4096 FLOPs."""
    assert f"gemm {(4096 + 14336 * 4096) * 2} {14336 * 2} {2 * 14336 * 4096}" in c_example[1]


def test_the_c_example_measures(c_example: tuple[Path, list[str]]) -> None:
    _, lines = c_example
    assert "ranges 1" in lines
    (measured,) = [line.split() for line in lines if line.startswith("measured ")]
    assert measured[1] == "monotonic"
    assert int(measured[2]) >= 10
    assert measured[3:] == ["1", "1"]


def test_the_c_example_keeps_a_report(c_example: tuple[Path, list[str]]) -> None:
    (row,) = bwprof.rows(bwprof.load(c_example[0] / ".test-results/bandwidth/c-example/bandwidth_report.json"))
    assert (row["operation"], row["precision"], row["bytes_read"]) == ("copy", "fp32", 1 << 20)
    assert row["bandwidth_gb_s"] == pytest.approx((2 << 20) / row["time_ms"] / 1e6)


def test_the_report_has_the_documented_text(c_example: tuple[Path, list[str]]) -> None:
    text = "\n".join(c_example[1])
    found = re.search(
        r"=== Bandwidth Profile: copy ===\nElapsed time: (\d+\.\d{3}) ms \(median of 20\)\n"
        r"Bytes read: 1048576 \(1\.05 MB\)\nBytes written: 1048576 \(1\.05 MB\)\n"
        r"Bandwidth: (\d+\.\d{2}) GB/s\n={29}\n",
        text,
    )
    assert found, text
    with (c_example[0] / "ranges.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["range"] == "copy")
    assert found[1] == f"{float(row['time_ms']):.3f}"
    assert float(row["bandwidth_gb_s"]) == pytest.approx(2 * 1048576 / float(row["time_ms"]) / 1e6)


def test_ranges_are_written_as_pythons_frame(c_example: tuple[Path, list[str]]) -> None:
    with (c_example[0] / "ranges.csv").open() as file:
        rows = list(csv.DictReader(file))
    stored = json.loads((c_example[0] / "ranges.json").read_text())
    with bwprof.Profiler(device="cpu") as profiler:
        assert list(rows[0]) == list(profiler.frame().columns)
    assert [(row["range"], row["count"]) for row in rows] == [("step", "20"), ("copy", "20")]
    for row, same in zip(rows, stored["ranges"], strict=True):
        assert {name: "" if value is None else str(value) for name, value in same.items()} == row
        assert float(row["time_ms_min"]) <= float(row["time_ms"]) <= float(row["time_ms_max"])
    assert (stored["backend"], stored["timer"]) == ("cpu", "monotonic")
    assert not list(c_example[0].glob("*.tmp"))


def test_a_benchmark_is_a_result_file(c_example: tuple[Path, list[str]]) -> None:
    frame = bwprof.load(c_example[0] / "smoke.csv")
    first = (c_example[0] / "smoke.csv").read_text().splitlines()[0]
    assert first.startswith("operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written,")
    specs = plan.make_plan(plan.SweepRequest(suite="smoke"), "cpu").specs
    assert list(zip(frame["case"], frame["precision"], strict=True)) == [(spec.case, spec.precision) for spec in specs]
    assert set(frame["status"]) == {"ok"}
    assert frame["verified"].all()
    for row, spec in zip(bwprof.rows(frame), specs, strict=True):
        cost = _core.cost(spec.operation, spec.precision, spec.params)
        assert (row["bytes_read"], row["bytes_written"]) == (cost["bytes_read"], cost["bytes_written"])
        assert {name: row[name] for name in spec.params} == spec.params
        moved = row["bytes_read"] + row["bytes_written"]
        assert row["bandwidth_gb_s"] == pytest.approx(moved / row["time_ms"] / 1e6)
        near = row["time_ms"] * 1e3 < FLOOR_FACTOR * row["timer_floor_us"]
        assert ("near_timer_floor" in row["flags"].split(";")) == near
    announced = [line for line in c_example[1] if line.startswith("case ")]
    assert announced[0].split()[1:4] == [f"1/{len(specs)}", "stream_copy", "fp32"]
    assert len(announced) == len(specs)


LIST_CASES = """
#include <bwprof.h>
static int show(void *user, const bwprof_case *now) {
    (void)user;
    printf("%s|%s|%s|%s|%s|%llu|%llu\\n", now->name, now->operation, now->precision, now->variant, now->cache,
           (unsigned long long)now->bytes_read, (unsigned long long)now->bytes_written);
    return 0;
}
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        printf("# %s\\n", argv[i]);
        if (bwprof_benchmark_cases("cpu", argv[i], show, NULL)) return 1;
    }
    return 0;
}
"""


def listed(spec: Spec) -> str:
    cost = _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens)
    words = [spec.case, spec.operation, spec.precision, spec.variant or "", spec.cache]
    return "|".join([*words, str(cost["bytes_read"]), str(cost["bytes_written"])])


def test_suites_have_pythons_cases_in_pythons_order(tmp_path: Path) -> None:
    (tmp_path / "cases.c").write_text(LIST_CASES)
    names = ["default", "smoke"]
    command = [*shlex.split(os.environ.get("CC", "cc")), *sanitizer(), "cases.c", *flags("--cflags", "--libs")]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no compiler: {command[0]} was not found")
    run(*command, "-o", "cases", cwd=tmp_path)
    expected = []
    for name in names:
        expected += [f"# {name}", *map(listed, plan.make_plan(plan.SweepRequest(suite=name), "cpu").specs)]
    assert run(tmp_path / "cases", *names, cwd=tmp_path).splitlines() == expected


def test_the_cpp_example(tmp_path: Path) -> None:
    program = compiled("example.cpp", tmp_path, *shlex.split(os.environ.get("CXX", "c++")), "-std=c++11")
    lines = run(program, tmp_path, cwd=tmp_path).splitlines()
    counts = {"ranges": ["3", "1", "1", "1"], "counts": ["10", "5"], "known": ["1", "1"]}
    for word, numbers in counts.items():
        (line,) = (line for line in lines if line.startswith(f"{word} "))
        assert re.findall(r"\d+", line) == numbers
    (refused,) = (line for line in lines if line.startswith("refused 1: "))
    assert "profiler is NULL" in refused
    (row,) = csv.DictReader((tmp_path / "scale.csv").read_text().splitlines())
    assert (row["range"], row["count"], row["bytes_read"]) == ("scale", "10", str(4 << 16))


@pytest.mark.parametrize("options", [["-std=c++11", "-fno-exceptions"], ["-std=c++17"]])
def test_cpp_without_exceptions(tmp_path: Path, options: list[str]) -> None:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    program = compiled("noexcept.cpp", tmp_path, *compiler, *options, "-Wsign-conversion", "-Wnarrowing")
    lines = run(program, tmp_path, cwd=tmp_path).splitlines()
    assert [(line.split()[0], re.findall(r"\d+", line)) for line in lines] == [
        ("none", ["1", "1", "0", "0"]),
        ("known", ["1", "1"]),
        ("refused", ["1"]),
        ("refused", ["9"]),
        ("moved", ["1", "1", "0", "1"]),
    ]


def test_the_rust_example(tmp_path: Path) -> None:
    if sanitizer():
        pytest.skip("the library is built with a sanitizer, which rustc does not link")
    compiler = shutil.which("rustc")
    if compiler is None:
        pytest.skip("rustc is not installed (Debian: apt-get install rustc): the Rust example is not compiled")
    options = ["-D", "warnings", *flags("--rustc")]
    run(compiler, "--edition", "2021", *options, API / "example.rs", "-o", tmp_path / "example", cwd=tmp_path)
    path, refused, of_no_rows = run(tmp_path / "example", cwd=tmp_path).splitlines()
    assert path == ".test-results/bandwidth/rust-example/bandwidth_report.json"
    assert refused.startswith("refused 10 range 'never' ")
    assert of_no_rows.split()[:6] == ["refused", "1", "gemm:", "M", "=", "0:"]
    report = json.loads((tmp_path / path).read_text())
    assert list(report) == ["operation", "precision", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"]
    assert (report["bytes_read"], report["bytes_written"]) == (3214848, 3584)
    assert report["bandwidth_gb_s"] == pytest.approx((3214848 + 3584) / report["time_ms"] / 1e6)
    (row,) = bwprof.rows(bwprof.load(tmp_path / path))
    assert row["operation"] == "decode_gemm"
    assert json.loads((tmp_path / path.replace("example", "and-c")).read_text()) == [report, report]


@pytest.mark.parametrize("name", CHECKS)
def test_bad_use_returns_errors(bad_use: tuple[Path, str], name: str) -> None:
    assert len(CHECKS) >= 16
    assert f"ok {name}\n" in bad_use[1], bad_use[1]


NAMES = [
    "größe 東京",
    'a,b "c"',
    "=1+1",
    "@x",
    "line\\x0abreak\\x09tab",
    "bad \\xff\\xc0\\xaf utf",
    "\\xed\\xa0\\x80 surrogate",
    "back\\slash",
    "\\x1b[31mred\\x7f",
    "'-1",
    "-x",
]


def test_strange_names_are_escaped(bad_use: tuple[Path, str]) -> None:
    folder, _ = bad_use
    lines = (folder / "names.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert len(lines) == len(NAMES) + 1
    formulas = {"=1+1", "@x", "'-1", "-x"}
    assert [row["range"] for row in rows] == [f"'{name}" if name in formulas else name for name in NAMES]
    stored = json.loads((folder / "names.json").read_text())["ranges"]
    control = {"line\\x0abreak\\x09tab": "line\nbreak\ttab", "\\x1b[31mred\\x7f": "\x1b[31mred\x7f"}
    assert [row["range"] for row in stored] == [control.get(name, name) for name in NAMES]
    report = (folder / "names.txt").read_text()
    assert [f"=== Bandwidth Profile: {name} ===" in report for name in NAMES] == [True] * len(NAMES)


def test_numbers_do_not_follow_the_locale(bad_use: tuple[Path, str]) -> None:
    """The strange names' files were written under a locale with a decimal comma."""
    if "1,5 is how the locale writes it" not in bad_use[1]:
        pytest.skip("no locale with a decimal comma: localedef (Debian: locales) made none")
    rows = list(csv.DictReader((bad_use[0] / "names.csv").read_text().splitlines()))
    assert all(None not in row and float(row["bandwidth_gb_s"]) > 0 for row in rows)
    assert " 1500 (0.00 MB)" in (bad_use[0] / "names.txt").read_text()
    for same, row in zip(json.loads((bad_use[0] / "names.json").read_text())["ranges"], rows, strict=True):
        assert same["time_ms"] == float(row["time_ms"])


@pytest.fixture(scope="module")
def nvcc() -> str:
    if sanitizer():
        pytest.skip("the library is built with a sanitizer")
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc")
    return found or pytest.skip("nvcc was not found: the CUDA example is not compiled")


def cuda_program(nvcc: str, name: str, folder: Path) -> Path:
    options = ["-arch=native", "-O2", "-std=c++14"]
    program = folder / name
    run(nvcc, *options, API / f"{name}.cu", *flags("--cflags", "--libs"), "-o", program, cwd=folder)
    return program


def test_nvcc_takes_the_same_words(nvcc: str, tmp_path: Path) -> None:
    """Those that cc takes, although it knows no -Wl."""
    (tmp_path / "engine.c").write_text(
        "#include <bwprof.h>\nint main(void) { return bwprof_abi_version() != BWPROF_ABI_VERSION; }\n"
    )
    run(nvcc, "engine.c", *flags("--cflags", "--libs"), "-o", "engine", cwd=tmp_path)
    run(tmp_path / "engine", cwd=tmp_path)


@pytest.mark.cuda
def test_the_cuda_example(nvcc: str, tmp_path: Path) -> None:
    """512 MB moved by a kernel of its own: ranges, the measurement and a graph agree."""
    printed = run(cuda_program(nvcc, "example", tmp_path), tmp_path, cwd=tmp_path)
    times = {name: float(ms) for name, ms in re.findall(r"^(\w+) ([\d.]+) ms", printed, re.MULTILINE)}
    assert times["range"] == pytest.approx(times["graph"], rel=0.1), printed
    assert times["measured"] == pytest.approx(times["graph"], rel=0.1), printed
    assert "cold 1" in printed
    assert {"read later 1", "still works 1"} <= set(printed.splitlines())


@pytest.mark.cuda
def test_the_classic_benchmark(tmp_path: Path) -> None:
    script = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).cuda_benchmark_bandwidth(b'classic.csv') & 255)"
    run(sys.executable, "-c", script, bwprof.get_library(), cwd=tmp_path)
    frame = bwprof.load(tmp_path / "classic.csv")
    assert len((tmp_path / "classic.csv").read_text().splitlines()[0].split(",")) == 9
    specs = plan.make_plan(plan.SweepRequest(), "cuda").specs
    assert frame["operation"].tolist() == [" ".join(filter(None, [spec.case, spec.variant])) for spec in specs]


@pytest.mark.cuda
def test_marks_in_a_thread_that_has_used_no_cuda() -> None:
    """On the legacy default stream and on the thread's own: the driver has no context there until the runtime makes
    one.
    """
    library = ctypes.CDLL(bwprof.get_library())
    profiler, answers = ctypes.c_void_p(), []
    assert library.bwprof_profiler_create(b"cuda", 0, ctypes.byref(profiler)) == 0

    def mark() -> None:
        for stream in (0, 1, 2):  # cudaStreamLegacy, cudaStreamPerThread
            for call in (library.bwprof_profiler_start, library.bwprof_profiler_stop):
                answers.append(call(profiler, b"range", ctypes.c_void_p(stream)))

    for _ in range(2):
        thread = threading.Thread(target=mark)
        thread.start()
        thread.join()
    count = ctypes.c_int64()
    assert library.bwprof_profiler_count(profiler, b"range", ctypes.byref(count)) == 0
    assert library.bwprof_profiler_destroy(profiler) == 0
    assert (answers, count.value) == ([0] * 12, 6)
