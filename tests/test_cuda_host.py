"""What csrc/cuda works out on the host, without a card: its arithmetic, and how it divides work among blocks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiled import FLAGS, call, clean_environment, sanitizers
from test_cupti import NATIVE, Native, includes  # noqa: F401 - a fixture

CHECKS = re.findall(r'\{"(\w+)", check_\w+\}', (NATIVE / "check_plans.cc").read_text())


@pytest.fixture(scope="session")
def program(source_tree: Path, includes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Native:  # noqa: F811
    folder = tmp_path_factory.mktemp("cuda_host")
    flags, options = sanitizers(["cc"], folder)
    objects = []
    for name in ("base/dtype", "base/status"):
        objects.append(folder / f"{Path(name).name}.o")
        call(["cc", *FLAGS, *flags, "-c", str(source_tree / "csrc" / f"{name}.c"), "-o", str(objects[-1])])
    plain = ["-std=c++17", *(flag for flag in FLAGS if flag != "-std=c11"), *flags, *includes]
    for source in (source_tree / "csrc/cuda/kernels/attention/decode/plan.cc", NATIVE / "check_plans.cc"):
        objects.append(folder / f"{source.stem}.o")
        call(["c++", *plain, "-x", "c++", "-c", str(source), "-o", str(objects[-1])])
    built = folder / "check_plans"
    call(["c++", *flags, *map(str, objects), "-lm", "-o", str(built)])
    return Native(built, built, clean_environment() | options)


@pytest.mark.parametrize("check", CHECKS)
def test_check(program: Native, check: str) -> None:
    done = program.run(check)
    assert done.returncode == 0, done.stdout + done.stderr
