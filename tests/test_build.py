"""setup.py itself: what it compiles again, how it links, how it chooses CUDA, and how it fails.

A tiny source tree stands in for csrc, and a shell script for nvcc, so that no test needs a GPU or a toolkit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="65")

MODULE = """
#include <Python.h>
#include "base/value.h"
#include "build_info.h"
static struct PyModuleDef tiny_module = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_core",
    .m_doc = BW_BUILD_VERSION "|" BW_BUILD_CUDA_REASON "|" BW_BUILD_CUDA_VERSION "|" BW_BUILD_CUDA_ARCHS
             "|" BW_BUILD_ISAS};
PyMODINIT_FUNC PyInit__core(void) { return bw_value() == 1 ? PyModuleDef_Init(&tiny_module) : NULL; }
"""
ISA_HEADER = """
/* X(<isa>, <machine>, "<flags>") */
#define ISAS(X) \\
    X(plain, any, "") \\
    X(wide, any, "-DWIDE=1") \\
    X(other, no_such_machine, "-mno-such-flag")
"""
EVERYTHING = {
    "base/value.o",
    "base/alone.o",
    "python/module.o",
    "cpu/simd/kernel.plain.o",
    "cpu/simd/kernel.wide.o",
}
NVCC = """#!/bin/sh
case "$*" in
  *--version*) echo "Cuda compilation tools, release $FAKE_CUDA, V$FAKE_CUDA.88";;
  *--list-gpu-code*) printf '%s\\n' sm_80 sm_86 sm_90 sm_100 sm_120;;
  *--dryrun*) echo '#$ INCLUDES="-I{home}/include"' >&2; echo '#$ LIBRARIES=  "-L{home}/lib"' >&2;;
  *) echo "kernels.cu(7): error: no such thing" >&2; exit 2;;
esac
"""
# Runs setup.py for each line it reads, in a process of its own: a fork of one that has loaded setuptools already,
# which takes longer than most of these builds.
RUNS = """
import json, os, runpy, sys, sysconfig, tomllib
import setuptools.command.build_ext, setuptools.errors
for line in sys.stdin:
    tree, environment, log = json.loads(line)
    child = os.fork()
    if child == 0:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(tree)
        for stream in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        sys.argv[:] = ["setup.py", "build_ext", "--inplace"]
        sys.platform = environment["FAKE_PLATFORM"]
        runpy.run_path("setup.py", run_name="__main__")
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Build = Callable[..., "Done"]


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """`python setup.py build_ext --inplace` in a tree."""
    log = tmp_path_factory.mktemp("builds") / "log"
    plain = {
        "BWPROF_CUDA": "0",
        "BWPROF_CUDA_ARCHS": "",
        "BWPROF_SANITIZE": "",
        "BWPROF_WERROR": "",
        "FAKE_CUDA": "13.0",
        "FAKE_PLATFORM": "linux",
    }
    with subprocess.Popen(
        [sys.executable, "-c", RUNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as runs:
        assert runs.stdin is not None
        assert runs.stdout is not None

        def call(tree: Path, **environment: str) -> Done:
            log.unlink(missing_ok=True)
            print(json.dumps([str(tree), os.environ | plain | environment, str(log)]), file=runs.stdin)
            return Done(int(runs.stdout.readline()), log.read_text())

        yield call
        runs.stdin.close()


def make_tree(source_tree: Path, tree: Path) -> Path:
    files = {
        "csrc/base/value.h": "int bw_value(void);\n",
        "csrc/base/value.c": '#include "base/value.h"\nint bw_value(void) { return 1; }\n',
        "csrc/base/alone.c": "int bw_alone(void);\nint bw_alone(void) { return 2; }\n",
        "csrc/python/module.c": MODULE,
        "csrc/cpu/isa.h": ISA_HEADER,
        "csrc/cpu/simd/kernel.c": "#define JOIN(a, b) a##b\n#define NAME(isa) JOIN(bw_kernel_, isa)\n"
        "int NAME(BW_ISA)(void);\nint NAME(BW_ISA)(void) { return 0; }\n",
        "bwprof/__init__.py": "",
        "bwprof/include/bwprof.h": "#define BWPROF_API\nBWPROF_API int bw_alone(void);\n",
        "README.md": "A tree to build.\n",
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(source_tree / name, tree / name)
    return tree


@pytest.fixture
def tree(source_tree: Path, tmp_path: Path) -> Path:
    return make_tree(source_tree, tmp_path / "tree")


@pytest.fixture(scope="module")
def built_once(source_tree: Path, build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = make_tree(source_tree, tmp_path_factory.mktemp("built") / "tree")
    assert compiled(build(tree)) == EVERYTHING
    return tree


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """A tree whose objects are all made, and fresh: a copy, its times kept."""
    return shutil.copytree(built_once, tmp_path / "tree", symlinks=True)


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """A CUDA toolkit whose nvcc answers questions and compiles nothing."""
    home = tmp_path / "toolkit"
    for name, text in {
        "include/cuda_runtime.h": "",
        "lib/libcudart_static.a": "!<arch>\n",
        "bin/nvcc": NVCC.replace("{home}", str(home)),
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "bin/nvcc").chmod(0o755)
    return home


def compiled(done: Done) -> set[str]:
    assert done.returncode == 0, done.stdout
    return set(re.findall(r"^bwprof:   (\S+) [\d.]+ s$", done.stdout, flags=re.MULTILINE))


def module_doc(tree: Path) -> list[str]:
    script = "import bwprof._core as c; print(c.__file__); print(c.__doc__)"
    done = subprocess.run([sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, check=True)
    where, doc = done.stdout.splitlines()
    assert Path(where).is_relative_to(tree)
    return doc.split("|")


def test_a_module_refuses_the_library_of_another_build(build: Build, built: Path) -> None:
    """Its private functions may take other arguments."""
    module_doc(built)
    library = built / "bwprof/lib/libbwprof.so"
    before = library.read_bytes()
    (built / "csrc/base/alone.c").write_text("int bw_alone(void);\nint bw_alone(void) { return 3; }\n")
    assert compiled(build(built)) == {"base/alone.o"}
    module_doc(built)
    library.write_bytes(before)
    with pytest.raises(subprocess.CalledProcessError) as failure:
        module_doc(built)
    assert "ImportError" in failure.value.stderr
    assert "BWPROF_PRIVATE_" in failure.value.stderr


def touch(path: Path) -> None:
    """As an editor would: newer than every object made so far."""
    later = time.time() + 2
    os.utime(path, (later, later))


def test_rebuilds_what_changed_and_nothing_else(build: Build, built: Path) -> None:
    assert compiled(build(built)) == set()
    touch(built / "csrc/base/alone.c")
    assert compiled(build(built)) == {"base/alone.o"}


def test_a_kernel_file_may_be_one_instruction_sets_own(build: Build, built: Path) -> None:
    """By its name: `kernel_wide.c` is compiled for `wide` alone, `kernel_other.c` not at all on this machine, and
    `two_words.c`, whose last word names no instruction set, for each. The table of the family takes its variant."""
    simd = built / "csrc/cpu/simd"
    name = "#define JOIN(a, b) a##b\n#define NAME(isa) JOIN(bw_words_, isa)\n"
    (simd / "kernel_wide.c").write_text(
        "#if !WIDE\n#error\n#endif\nint bw_own_wide(void);\nint bw_own_wide(void) { return 9; }\n"
    )
    (simd / "kernel_other.c").write_text("#error\n")
    (simd / "two_words.c").write_text(
        f"{name}int bw_own_wide(void);\nextern int (*const NAME(BW_ISA)[])(void);\n"
        "int (*const NAME(BW_ISA)[])(void) = {\n#if WIDE\n    bw_own_wide,\n#endif\n    0};\n"
    )
    made = {f"cpu/simd/{file}.o" for file in ("two_words.plain", "two_words.wide", "kernel_wide.wide")}
    assert compiled(build(built)) == made


def test_invariants_are_asserted_under_a_sanitizer_alone(build: Build, built: Path) -> None:
    (built / "csrc/base/alone.c").write_text("#ifdef NDEBUG\n#error released\n#endif\nint bw_alone;\n")
    assert "error released" in build(built).stdout.replace("#", "")
    assert build(built, BWPROF_SANITIZE="undefined").returncode == 0


def test_a_header_rebuilds_those_who_include_it(build: Build, built: Path) -> None:
    touch(built / "csrc/base/value.h")
    assert compiled(build(built)) == {"base/value.o", "python/module.o"}


def test_another_command_rebuilds(build: Build, built: Path) -> None:
    assert compiled(build(built, BWPROF_WERROR="1")) == EVERYTHING
    assert compiled(build(built, BWPROF_WERROR="1", CFLAGS="-DMORE=1")) == EVERYTHING


def test_one_object_per_instruction_set_of_this_machine(built_once: Path) -> None:
    assert module_doc(built_once)[4] == "plain wide"


def test_version_comes_from_pyproject(built_once: Path) -> None:
    declared = re.search(r'^version = "(.*)"$', (built_once / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert declared is not None
    assert module_doc(built_once)[0] == declared[1]


def test_compile_error_shows_the_compilers_words(build: Build, built: Path) -> None:
    (built / "csrc/base/alone.c").write_text("int bw_alone(void) { return nothing; }\n")
    done = build(built)
    assert done.returncode != 0
    assert "csrc/base/alone.c does not compile" in done.stdout
    assert "nothing" in done.stdout


def test_a_missing_definition_is_named(build: Build, built: Path) -> None:
    """What a new operation's line in the list asks for, and nobody wrote."""
    (built / "csrc/base/alone.c").write_text("extern int bw_op_new;\nint *bw_alone(void) { return &bw_op_new; }\n")
    (built / "csrc/base/value.c").unlink()
    (built / "csrc/base/user.c").write_text('#include "base/value.h"\nint bw_user(void) { return bw_value(); }\n')
    done = build(built)
    assert done.returncode != 0
    assert "bw_op_new, bw_value" in done.stdout


def test_werror(build: Build, built: Path) -> None:
    (built / "csrc/base/alone.c").write_text("static int unused(void) { return 1; }\n")
    assert build(built).returncode == 0
    assert build(built, BWPROF_WERROR="1").returncode != 0


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"BWPROF_CUDA": "yes"}, "BWPROF_CUDA is 'yes': allowed are auto, 1, 0"),
        ({"BWPROF_SANITIZE": "adress"}, "BWPROF_SANITIZE: unknown 'adress': allowed are address, undefined"),
    ],
)
def test_wrong_settings_are_refused(build: Build, tree: Path, environment: dict[str, str], message: str) -> None:
    done = build(tree, **environment)
    assert done.returncode != 0
    assert message in done.stdout


def with_kernels(tree: Path) -> Path:
    (tree / "csrc/cuda").mkdir()
    (tree / "csrc/cuda/kernels.cu").write_text("__global__ void kernel() {}\n")
    return tree


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_another_system_is_refused_with_what_works(build: Build, tree: Path, platform: str) -> None:
    done = build(tree, FAKE_PLATFORM=platform)
    assert done.returncode != 0
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("error: "))
    assert f"this is {platform}" in line
    assert "WSL 2" in line
    assert not list(tree.rglob("*.o"))


def test_a_build_without_cuda_has_the_reason(build: Build, built: Path) -> None:
    compiled(build(with_kernels(built)))
    reason, *rest = module_doc(built)[1:4]
    assert reason.startswith("BWPROF_CUDA=0 ")
    assert rest == ["", ""]


def test_cuda_demanded_but_absent(build: Build, tree: Path, tmp_path: Path) -> None:
    if Path("/usr/local/cuda/bin/nvcc").exists():
        pytest.skip("this machine has nvcc in its usual place")
    tools = {name: shutil.which(name) for name in ("cc", "gcc", "ld", "as")}
    (tmp_path / "bin").mkdir()
    for name, path in tools.items():
        if path:
            (tmp_path / "bin" / name).symlink_to(path)
    absent = {"PATH": str(tmp_path / "bin"), "CUDA_HOME": "", "CUDA_PATH": ""}
    done = build(with_kernels(tree), BWPROF_CUDA="1", **absent)
    assert done.returncode != 0
    assert re.search(r"BWPROF_CUDA=1\b.*\bnvcc\b", done.stdout)
    compiled(build(tree, BWPROF_CUDA="auto", **absent))
    assert re.search(r"\bnvcc\b.*\bCUDA_HOME\b", module_doc(tree)[1])


def test_a_failing_nvcc_is_an_error_with_the_setting_that_avoids_it(build: Build, tree: Path, toolkit: Path) -> None:
    done = build(with_kernels(tree), BWPROF_CUDA="auto", CUDA_HOME=str(toolkit))
    assert done.returncode != 0
    (on,) = (line for line in done.stdout.splitlines() if "13.0.88" in line)
    assert f"{toolkit}/bin/nvcc" in on
    (built_for,) = (line for line in done.stdout.splitlines() if "PTX" in line)
    assert re.findall(r"\d+a?", built_for.partition("architectures")[2]) == ["80", "86", "90a", "100", "120", "80"]
    assert "kernels.cu(7): error:" in done.stdout
    assert "BWPROF_CUDA=0" in done.stdout


SM90 = "compute_90a,code=[sm_90a]"


@pytest.mark.parametrize(
    ("name", "archs", "flags"),
    [
        ("kernels", "", "compute_80,code=[sm_80,sm_86,sm_90a,sm_100,sm_120,compute_80]"),
        ("kernels", "100,90a,86", "compute_80,code=[sm_100,sm_90a,sm_86]"),
        ("kernels", "90a", "compute_80,code=[sm_90a]"),
        ("kernels", "100f,100", "compute_80,code=[sm_100]"),
        ("kernels_sm90", "", SM90),
        ("kernels_sm90", "80", SM90),
        ("kernels_fp8", "", "compute_89,code=[sm_89,sm_90a,sm_100,sm_120,compute_89]"),
        ("kernels_fp8", "80", "compute_89,code=[sm_89]"),
        ("kernels_fp8", "90a", "compute_89,code=[sm_90a]"),
    ],
)
def test_what_is_compiled_once_is_assembled_for_every_architecture(
    build: Build, tree: Path, toolkit: Path, name: str, archs: str, flags: str
) -> None:
    with_kernels(tree)
    (tree / "csrc/cuda/kernels.cu").rename(tree / f"csrc/cuda/{name}.cu")
    done = build(tree, BWPROF_CUDA="1", CUDA_HOME=str(toolkit), BWPROF_CUDA_ARCHS=archs)
    assert re.findall(r"-gencode '?arch=([^ ']+)", done.stdout) == [flags]


@pytest.mark.parametrize(("cuda", "count"), [("12.9", 0), ("13.0", 1)])
def test_code_is_compressed_for_size_where_every_driver_reads_it(
    build: Build, tree: Path, toolkit: Path, cuda: str, count: int
) -> None:
    """The drivers of CUDA 12.0 to 12.3, which run what nvcc 12.9 compiles, do not."""
    done = build(with_kernels(tree), BWPROF_CUDA="1", CUDA_HOME=str(toolkit), FAKE_CUDA=cuda)
    assert "kernels.cu does not compile" in done.stdout
    assert done.stdout.count("--compress-mode=size") == count


def test_sanitizers_reach_what_nvcc_compiles_for_the_host(build: Build, tree: Path, toolkit: Path) -> None:
    (tree / "csrc/cuda").mkdir()
    (tree / "csrc/cuda/host.cc").write_text("int bw_host;\n")
    done = build(tree, BWPROF_CUDA="1", CUDA_HOME=str(toolkit), BWPROF_SANITIZE="address,undefined")
    (words,) = re.findall(r"-Xcompiler (\S+)", done.stdout)
    sanitizing = {"-fsanitize=address", "-fsanitize=undefined", "-fno-sanitize-recover=undefined"}
    assert sanitizing < set(words.split(","))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"FAKE_CUDA": "11.8"}, "is CUDA 11.8; bwprof needs 12.0 or newer"),
        ({"BWPROF_CUDA_ARCHS": "90a,sm80"}, "'sm80' is no architecture"),
        ({"BWPROF_CUDA_ARCHS": "native"}, "'native' is no architecture"),
        ({"BWPROF_CUDA_ARCHS": "70"}, "does not offer '70'; it offers 80, 86, 90, 100, 120"),
    ],
)
def test_toolkit_and_architectures_are_checked(
    build: Build, tree: Path, toolkit: Path, environment: dict[str, str], message: str
) -> None:
    done = build(with_kernels(tree), BWPROF_CUDA="1", CUDA_HOME=str(toolkit), **environment)
    assert done.returncode != 0
    assert message in done.stdout


def test_incomplete_toolkit(build: Build, tree: Path, toolkit: Path) -> None:
    (toolkit / "include/cuda_runtime.h").unlink()
    done = build(with_kernels(tree), BWPROF_CUDA="1", CUDA_HOME=str(toolkit))
    if Path("/usr/include/cuda_runtime.h").exists():
        pytest.skip("the system has a toolkit of its own in /usr/include")
    assert done.returncode != 0
    assert "has no cuda_runtime.h" in done.stdout
    assert "BWPROF_CUDA=0" in done.stdout
