"""How the card's plans time a function, without a card: csrc/cuda/timing on a toy runtime."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_cupti import NATIVE, Native, build_program, includes  # noqa: F401 - a fixture

CHECKS = re.findall(r'\{"(\w+)", check_\w+\}', (NATIVE / "check_call.c").read_text())


@pytest.fixture(scope="session")
def program(source_tree: Path, includes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Native:  # noqa: F811
    return build_program(tmp_path_factory, includes, "check_call")


@pytest.mark.parametrize("check", CHECKS)
def test_check(program: Native, check: str) -> None:
    done = program.run(check)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_check_is_a_test(program: Native) -> None:
    assert program.run("--list").stdout.split() == CHECKS
