"""What csrc/cuda works out on the host, without a card: its arithmetic, how it divides work among
blocks, and what a launch is prepared from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiled import FLAGS, call, clean_environment, sanitizers
from test_cupti import NATIVE, Native, includes  # noqa: F401 - a fixture

# Each program, and what of the tree it is built from.
PROGRAMS = {
    "check_plans": (
        "csrc/base/names.c",
        "csrc/base/types/dtype.c",
        "csrc/base/status.c",
        "csrc/cuda/kernels/attention/decode/divide.cc",
        "csrc/cuda/kernels/attention/decode/runs.cc",
    ),
    "check_prepared": (
        "csrc/base/status.c",
        "csrc/cuda/launch/prepared.c",
        "csrc/cuda/launch/tensor_map.c",
    ),
    "check_marks": ("csrc/base/status.c", "csrc/cuda/timing/marks.c"),
}
CHECKS = [
    (name, check)
    for name in PROGRAMS
    for check in re.findall(r'\{"(\w+)", check_\w+\}', (NATIVE / f"{name}.cc").read_text())
]


@pytest.fixture(scope="session")
def programs(
    source_tree: Path,
    includes: list[str],  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Native]:
    folder = tmp_path_factory.mktemp("cuda_host")
    flags, options = sanitizers(["cc"], folder)
    plain = ["-std=c++17", *(flag for flag in FLAGS if flag != "-std=c11"), *flags, *includes]
    built = {}
    for name, sources in PROGRAMS.items():
        objects = []
        for source in (*(source_tree / source for source in sources), NATIVE / f"{name}.cc"):
            objects.append(str(folder / f"{name}-{source.stem}.o"))
            if source.suffix == ".c":
                call(["cc", *FLAGS, *flags, *includes, "-c", str(source), "-o", objects[-1]])
            else:
                call(["c++", *plain, "-c", str(source), "-o", objects[-1]])
        call(["c++", *flags, *objects, "-lm", "-o", str(folder / name)])
        built[name] = Native(folder / name, folder / name, clean_environment() | options)
    return built


@pytest.mark.parametrize(("name", "check"), CHECKS)
def test_check(programs: dict[str, Native], name: str, check: str) -> None:
    done = programs[name].run(check)
    assert done.returncode == 0, done.stdout + done.stderr
