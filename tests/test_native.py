"""csrc/measure and csrc/api driven from C, with a fake backend that fails and miscalculates on demand,
csrc/cuda/libraries/nvml.c with a fake library, and what csrc/cpu reads of a machine with a planted one (tests/native).

Compiled here, with the sanitizers where BWPROF_SANITIZED_CHECKS asks for them. Every check is a test, and runs in its
own process, a fork of one that runs them all.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from compiled import FLAGS, NATIVE, call, clean_environment, compile_checks, sanitizers

from bwprof import _core


def check_names() -> list[str]:
    """What `checks --list` prints, read from the tables, so that nothing is compiled while tests are collected."""
    names = []
    for path in sorted(NATIVE.glob("check_*.c")):
        for name, per_op in re.findall(r'\{"(\w+)", (true|false), \w+\}', path.read_text()):
            operations = [operation["name"] for operation in _core.operations()]
            names += [f"{name}/{operation}" for operation in operations] if per_op == "true" else [name]
    return names


@dataclass
class Checks:
    program: Path
    environment: dict[str, str] = field(default_factory=clean_environment)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="session")
def checks(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Checks:
    name = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(name[0]) is None:
        pytest.skip(f"no C compiler: {name[0]} was not found")
    folder = tmp_path_factory.mktemp("native")
    flags, options = sanitizers(name, folder)
    program = compile_checks(source_tree / "csrc", folder, name, flags)
    library = folder / "libfake_nvml.so"
    call([*name, *FLAGS, "-shared", "-fPIC", str(NATIVE / "libraries" / "fake_nvml.c"), "-o", str(library)])
    return Checks(program, clean_environment() | options | {"BWPROF_TEST_NVML": str(library)})


@pytest.fixture(scope="session")
def outcomes(checks: Checks) -> dict[str, tuple[int, str]]:
    """Each check's exit status, and its output."""
    done = subprocess.run([checks.program, "--all"], env=checks.environment, capture_output=True, check=False)
    left, found = done.stdout, {}
    while left:
        line, _, left = left.partition(b"\n")
        name, status, printed = line.split()
        found[name.decode()] = int(status), left[: int(printed)].decode(errors="replace")
        left = left[int(printed) :]
    assert done.returncode == 0, f"ended after {list(found)[-1:]}: {done.stderr!r}"
    return found


@pytest.mark.parametrize("name", check_names())
def test_check(outcomes: dict[str, tuple[int, str]], name: str) -> None:
    status, printed = outcomes[name]
    assert status == 0, f"exit status {status}\n{printed}"


@pytest.mark.parametrize(("elems", "size"), [(256, 210), (512, 144), (1024, 600)])
def test_the_largest_block_follows_from_the_table_of_types(
    source_tree: Path, tmp_path: Path, elems: int, size: int
) -> None:
    elems_max, size_max = max(elems, 256), max(size, 144)  # Q4_K has the largest block
    header = (source_tree / "csrc/base/types/dtype.h").read_text()
    row = f'X(NEW, "new", BITS, {elems}, {size}, 0, 0, 1.0, \' \', "planted") X(I32,'
    (tmp_path / "base/types").mkdir(parents=True)
    (tmp_path / "base/types/dtype.h").write_text(header.replace("X(I32,", row, 1))
    source = tmp_path / "planted.c"
    source.write_text(
        '#include "base/types/dtype.h"\n'
        f'_Static_assert(BW_BLOCK_ELEMS_MAX == {elems_max} && BW_BLOCK_BYTES_MAX == {size_max}, "");\n'
    )
    call([*(shlex.split(os.environ.get("CC", "")) or ["cc"]), *FLAGS, "-fsyntax-only", f"-I{tmp_path}", str(source)])


@pytest.mark.parametrize(
    "use",
    [
        "bw_vf_store(out, bw_vf_load_as(BW_I32, data, 0))",
        "bw_vf_store(out, bw_vf_load_as_upto(BW_I32, data, 0, 1))",
        "bw_vf_store_as(BW_I32, out, 0, bw_vf_set(1.0f))",
        "bw_vf_store_as_upto(BW_I32, out, 0, bw_vf_set(1.0f), 1)",
    ],
)
def test_a_type_that_kernels_do_not_know_is_not_read_as_another(source_tree: Path, tmp_path: Path, use: str) -> None:
    """Its size is known, as that of a type whose conversion was forgotten."""
    header = (source_tree / "csrc/cpu/simd/simd.h").read_text()
    size = "case BW_FP32: return sizeof(float);"
    assert header.count(size) == 1
    (tmp_path / "cpu/simd").mkdir(parents=True)
    (tmp_path / "cpu/simd/simd.h").write_text(header.replace(size, "case BW_I32: " + size))
    source, program = tmp_path / "planted.c", tmp_path / "planted"
    source.write_text(f"""#include "base/checked.h"
#include "cpu/simd/simd.h"
int main(void) {{
    float data[64] = {{0}}, out[64] = {{0}};
    {use};
    return out[0] != data[0];
}}
""")
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    call([*compiler, *FLAGS, "-DBW_ISA=portable", f"-I{tmp_path}", str(source), "-lm", "-o", str(program)])
    assert subprocess.run([program], check=False).returncode == -signal.SIGABRT


def test_every_check_is_a_test(checks: Checks) -> None:
    done = checks.run("--list")
    assert sorted(done.stdout.split()) == sorted(check_names())
    assert len(check_names()) > 100


def ranks_of(checks: Checks, most: int) -> dict[int, tuple[int, int] | None]:
    rows = [[int(word) for word in line.split()] for line in checks.run("--ranks", str(most)).stdout.splitlines()]
    return {count: (low, high) if found else None for count, found, low, high in rows}


def test_median_ranks_against_tables(checks: Checks) -> None:
    """Ranks (from 1) that tables of the sign test give for 95 %."""
    ranks = ranks_of(checks, 100)
    assert [ranks[count] for count in range(1, 6)] == [None] * 5
    published = {6: (1, 6), 9: (2, 8), 10: (2, 9), 12: (3, 10), 15: (4, 12), 20: (6, 15), 25: (8, 18), 50: (18, 33)}
    for count, (low, high) in (published | {100: (40, 61)}).items():
        assert ranks[count] == (low - 1, high - 1), count


def test_median_ranks_against_exact_binomials(checks: Checks) -> None:
    """In whole numbers: the narrowest symmetric interval that misses with at most 1 in 20."""
    ranks = ranks_of(checks, 4096)
    for count in [*range(1, 260), 511, 512, 777, 1000, 1001, 2048, 3001, 4095, 4096]:
        dropped, below, ways = -1, 0, 1
        for successes in range(count // 2):
            below += ways
            if 40 * below > 2**count:
                break
            dropped = successes
            ways = ways * (count - successes) // (successes + 1)
        assert ranks[count] == (None if dropped < 0 else (dropped, count - 1 - dropped)), count
