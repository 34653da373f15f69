"""How the card's plans time a function, without a card: csrc/cuda/timing on a toy runtime."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiled import FLAGS, call, clean_environment, sanitizers
from test_cupti import NATIVE, SOURCES, Native, build_library, includes  # noqa: F401 - a fixture

CHECKS = re.findall(r'\{"(\w+)", check_\w+\}', (NATIVE / "check_call.c").read_text())


@pytest.fixture(scope="session")
def program(source_tree: Path, includes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Native:  # noqa: F811
    folder = tmp_path_factory.mktemp("plan_call")
    flags, options = sanitizers(["cc"], folder)
    flags = [*flags, *includes, "-Itests/native_cuda"]
    sources = [*(str(source_tree / source) for source in SOURCES), str(NATIVE / "check_call.c")]
    built = folder / "check_call"
    call(["cc", *FLAGS, *flags, *sources, "-pthread", "-ldl", "-lm", "-o", str(built)])
    return Native(built, build_library(folder, "libcupti.so.13", includes), clean_environment() | options)


@pytest.mark.parametrize("check", CHECKS)
def test_check(program: Native, check: str) -> None:
    done = program.run(check)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_check_is_a_test(program: Native) -> None:
    assert program.run("--list").stdout.split() == CHECKS
