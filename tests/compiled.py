"""Compiles the checks of tests/native: csrc/measure and csrc/api with a fake backend, nvml.c, the CPU's memory."""

from __future__ import annotations

import os
import shlex
import subprocess
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "tests" / "native"
_BUILT_FROM: dict[str, list[str]] = tomllib.loads((NATIVE / "checks.toml").read_text())
_LANGUAGE = shlex.split("-std=c11 -g1 -Wall -Wextra -Werror -D_GNU_SOURCE -pthread")
FLAGS = [*_LANGUAGE, "-O1", "-Icsrc", "-Itests/native"]
SANITIZE = shlex.split("-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer")
WRAP = "-Wl," + ",".join(f"--wrap={name}" for name in _BUILT_FROM["wrapped"])


def clean_environment() -> dict[str, str]:
    """Without what a sanitizer's run of the whole test suite has set for Python."""
    drop = ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "CFLAGS")
    return {name: value for name, value in os.environ.items() if name not in drop}


def call(command: list[str]) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}"


def sanitizers(compiler: list[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """Flags and environment: where BWPROF_SANITIZED_CHECKS asks for them, which takes twice the time, the sanitizers if
    a program built with them runs, leak detection if that works here."""
    if not os.environ.get("BWPROF_SANITIZED_CHECKS"):
        return [], {}
    source, program = folder / "probe.c", folder / "probe"
    source.write_text("int main(void) { return 0; }\n")
    command = [*compiler, *SANITIZE, str(source), "-o", str(program)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return [], {}
    for leaks in ("1", "0"):
        # It finds leaks in no process that is being traced.
        options = {"ASAN_OPTIONS": f"detect_leaks={leaks}", "UBSAN_OPTIONS": "print_stacktrace=1"}
        environment = clean_environment() | options
        if subprocess.run([program], env=environment, capture_output=True, check=False).returncode == 0:
            return SANITIZE, options
    return [], {}


def compile_checks(csrc: Path, folder: Path, compiler: Sequence[str], flags: Sequence[str] = ()) -> Path:
    """The program, in `folder`, from a tree of C sources."""
    sources = [path for layer in _BUILT_FROM["layers"] for path in sorted((csrc / layer).rglob("*.c"))]
    sources += [csrc / name for name in _BUILT_FROM["sources"]]
    sources += sorted(NATIVE.glob("*.c"))
    objects = [folder / f"{path.parent.name}_{path.stem}.o" for path in sources]
    include = [f"-I{csrc}", f"-I{NATIVE}", f"-I{ROOT / 'bwprof' / 'include'}", f"-I{folder}"]
    # As setup.py writes it, as far as it is asked.
    (folder / "build_info.h").write_text('#define BW_BUILD_VERSION "of the checks"\n')

    often_run = (*(csrc / layer for layer in _BUILT_FROM["layers"]), NATIVE / "fake.c")

    def compile_one(source: Path, target: Path) -> None:
        # What runs once and for a moment takes longer to optimize.
        level = "-O1" if any(map(source.is_relative_to, often_run)) else "-O0"
        call([*compiler, *_LANGUAGE, level, *include, *flags, "-c", str(source), "-o", str(target)])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(compile_one, sources, objects))
    program = folder / "checks"
    call([*compiler, "-pthread", *flags, WRAP, *map(str, objects), "-lm", "-ldl", "-o", str(program)])
    return program
