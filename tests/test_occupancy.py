"""Theoretical occupancy against values by hand and the CUDA toolkit's header."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import ROOT, call

import bwprof
from bwprof.analysis import occupancy_model as occupancies
from bwprof.analysis.occupancy_model import occupancy

WITNESS = ROOT / "tests" / "native_cuda" / "occupancy_witness.c"
# Of a multiprocessor, from CUDA's programming guide: warps, KiB of shared memory. What the header knows by itself are
# blocks, units and which sizes of shared memory there are.
HARDWARE = {
    "8.0": (64, 164),
    "8.6": (48, 100),
    "8.7": (48, 164),
    "8.9": (48, 100),
    "9.0": (64, 228),
    "10.0": (64, 228),
    "10.1": (48, 228),
    "10.3": (64, 228),
    "11.0": (48, 228),
    "12.0": (48, 100),
    "12.1": (48, 100),
}
LIMITS = ("registers", "shared", "threads", "blocks")
Point = tuple[tuple[int, int, int], int, dict[str, int]]


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "blocks", "pct", "limiter"),
    [
        ("9.0", 64, 0, 256, 4, 50.0, "registers"),
        ("9.0", 32, 0, 256, 8, 100.0, "threads"),
        ("8.9", 64, 0, 256, 4, 66.7, "registers"),
        ("8.9", 40, 40960, 256, 2, 33.3, "shared"),
        ("9.0", 40, 40960, 256, 5, 62.5, "shared"),
        ("9.0", 255, 0, 256, 1, 12.5, "registers"),
        ("9.0", 32, 0, 96, 21, 98.4, "threads"),
        ("9.0", 32, 0, 32, 32, 50.0, "blocks"),
        ("8.0", 128, 0, 128, 4, 25.0, "registers"),
        ("12.0", 64, 0, 256, 4, 66.7, "registers"),
    ],
)
def test_worked_values(
    arch: str, registers: int, shared: int, threads: int, blocks: int, pct: float, limiter: str
) -> None:
    found = occupancy(registers, shared, threads, arch)
    assert (found.active_blocks, round(found.theoretical_pct, 1), found.limiter) == (blocks, pct, limiter)
    assert found.active_warps == blocks * ((threads + 31) // 32)
    assert found.max_warps == (48 if arch in ("8.9", "12.0") else 64)
    assert tuple(found.limits) == LIMITS
    assert min(found.limits.values()) == found.limits[found.limiter] == blocks


def test_a_profiler_agrees() -> None:
    """Nsight Compute's limits of a copy on an H200."""
    found = bwprof.occupancy(16, 0, 256)
    assert found.limits == {"registers": 16, "shared": 228, "threads": 8, "blocks": 32}
    assert (found.theoretical_pct, found.limiter) == (100.0, "threads")


def test_the_text() -> None:
    theory, achieved, limiter = occupancy(64, 0, 256).text(45).splitlines()
    assert (theory, achieved) == ("Theoretical Occupancy: 50%", "Achieved Occupancy: 45%")
    assert limiter.startswith("Limiter: Registers (64")
    assert "--metrics occupancy" in occupancy(64, 0, 256).text().splitlines()[1]
    assert occupancy(64, 0, 256).text(np.float32(62.5)).splitlines()[1] == "Achieved Occupancy: 62.5%"


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ((64, 0, 256, "8.9"), "Registers (64 per thread, 40 max for 100%)"),
        ((64, 0, 96, "9.0"), "Registers (64 per thread, 32 max for 98.4%)"),
        ((40, 40960, 256, "9.0"), "Shared memory (40960 bytes per block, 28160 max for 100%)"),
        ((32, 0, 32, "9.0"), "Blocks (32 threads each, 32 per multiprocessor, 64 needed for 100%)"),
        ((32, 0, 96, "9.0"), "Threads (96 per block, 63 of 64 warps)"),
        ((32, 0, 256, "9.0"), "Threads (256 per block, 64 of 64 warps: full)"),
    ],
)
def test_the_limiter_in_words(kernel: tuple[int, int, int, str], message: str) -> None:
    assert occupancy(*kernel).text().splitlines()[2] == f"Limiter: {message}"


@pytest.mark.parametrize("arch", HARDWARE)
@pytest.mark.parametrize("threads", [32, 96, 160, 256, 1024])
def test_the_text_names_the_most_that_lifts_the_limit(arch: str, threads: int) -> None:
    """The largest number in the text reaches the best occupancy, and one more does not."""
    best = occupancy(0, 0, threads, arch).active_blocks

    def most(of: occupancies.Occupancy) -> int:
        return int(of.text().splitlines()[2].split(", ")[1].split(" ")[0])

    registers = most(occupancy(255, 0, threads, arch))
    assert occupancy(registers, 0, threads, arch).active_blocks == best > occupancy(255, 0, threads, arch).active_blocks
    assert occupancy(registers + 1, 0, threads, arch).active_blocks < best
    shared = most(occupancy(0, 300_000, threads, arch))
    assert occupancy(0, shared, threads, arch).active_blocks == best
    assert occupancy(0, shared + 1, threads, arch).active_blocks < best


@pytest.mark.parametrize(
    ("kernel", "note"),
    [
        ((32, 0, 256), ""),
        ((32, 0, 100), "100 threads are no multiple of 32: the last warp's other lanes idle"),
        ((32, 57344, 256), ""),
        ((255, 0, 512), "it does not run: a block may have 65536 registers, in units of 256 for a warp"),
        ((32, 232449, 256), "it does not run: a block may have 232448 bytes of shared memory"),
        ((64, 57216, 256), ""),
    ],
)  # fmt: skip
def test_notes(kernel: tuple[int, int, int], note: str) -> None:
    found = occupancy(*kernel)
    assert found.note == note
    assert (found.theoretical_pct == 0) == ("does not run" in note)


@pytest.mark.parametrize("arch", ["9.0", "90", "sm_90", "SM_90a", " 9.0a ", "compute_90", 9.0, 90, "09.0"])
def test_names_of_an_architecture(arch: Any) -> None:
    assert occupancy(64, 0, 256, arch).arch == "9.0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": 1025}, "threads is 1025: allowed is a whole number from 1 to 1024"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": -32}, "threads is -32"),
        ({"threads": True}, "threads is True"),
        ({"threads": 256.0}, "threads is 256.0, a whole number is needed"),
        ({"threads": [256]}, r"threads is \[256\]"),
        ({"threads": None}, "threads is None"),
        ({"threads": "many"}, "threads: 'many' is not a whole number"),
        ({"registers": 256}, "registers is 256: allowed is a whole number from 0 to 255"),
        ({"registers": -1}, "registers is -1"),
        ({"registers": 10**5000}, "registers is an int of too many digits"),
        ({"registers": float("nan")}, "registers is nan"),
        ({"shared_bytes": -1}, "shared_bytes is -1"),
        ({"shared_bytes": 2**63}, "shared_bytes is 9223372036854775808"),
        ({"arch": "7.5"}, "arch is '7.5': allowed are 8.0, 8.6, .*12.1"),
        ({"arch": "13.0"}, "arch is '13.0'"),
        ({"arch": ""}, "arch is ''"),
        ({"arch": None}, "arch is 'None'"),
        ({"arch": 9}, "arch is '9'"),
        ({"arch": "\x1b[31m9.0"}, r"arch is '\\x1b\[31m9.0'"),
        ({"arch": "9" * 10_000}, r"\(10000 characters\)"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        occupancy(**({"registers": 32, "shared_bytes": 0, "threads": 256} | arguments))


@pytest.mark.parametrize("achieved", [-1, 100.5, float("nan"), float("inf"), "45", True, [45]])
def test_what_was_achieved_is_a_percentage(achieved: Any) -> None:
    with pytest.raises(ValueError, match=r"^achieved_pct is .* 100$"):
        occupancy(32, 0, 256).text(achieved)


def test_numbers_of_other_types() -> None:
    plain = occupancy(32, 4096, 256)
    assert occupancy(np.int32(32), np.int64(4096), np.uint8(64)) == occupancy(32, 4096, 64)
    assert occupancy(32, "4Ki", 256) == plain  # type: ignore[arg-type]


def test_occupancy_is_immutable() -> None:
    found = occupancy(64, 0, 256)
    assert pickle.loads(pickle.dumps(found)) == found == copy.deepcopy(found)
    assert hash(found) == hash(occupancy(64, 0, 256))
    assert dataclasses.asdict(found)["limits"] == {"registers": 4, "shared": 228, "threads": 8, "blocks": 32}
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.limiter = "blocks"  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.limits["blocks"] = 1


def toolkit() -> Path | None:
    """Find the folder of the toolkit's header."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and str(Path(nvcc).resolve().parent.parent)]
    folders = [Path(home) / "include" for home in (*homes, "/usr/local/cuda") if home]
    return next((folder for folder in folders if (folder / "cuda_occupancy.h").is_file()), None)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    include = toolkit()
    if include is None or not shutil.which("cc"):
        pytest.skip("needs a C compiler and the CUDA toolkit's cuda_occupancy.h (nvcc, CUDA_HOME or /usr/local/cuda)")
    program = tmp_path_factory.mktemp("occupancy") / "witness"
    call(["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-isystem{include}", str(WITNESS), "-o",
          str(program)])  # fmt: skip
    return program


def points(program: Path, arch: str) -> list[Point]:
    """Compute occupancies by the header; a resource that does not limit has the limit of the blocks."""
    warps, shared_kib = HARDWARE[arch]
    words = [str(program), *arch.split("."), str(warps), str(shared_kib)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(f"this toolkit's cuda_occupancy.h does not know {arch}")
    assert done.returncode == 0, done.stderr
    found = []
    for line in done.stdout.splitlines():
        registers, shared, threads, active, *limits = map(int, line.split())
        if registers == 0:
            limits[0] = limits[3]
        found.append(((registers, shared, threads), active, dict(zip(LIMITS, limits, strict=True))))
    return found


def differences(found: list[Point], arch: str) -> list[str]:
    wrong = []
    for kernel, active, limits in found:
        ours = occupancy(*kernel, arch)
        if (ours.active_blocks, ours.limits) != (active, limits):
            wrong.append(f"{arch} {kernel}: {ours.active_blocks} {dict(ours.limits)}, the header {active} {limits}")
    return wrong


def test_every_architecture_is_compared_with_the_header() -> None:
    assert set(HARDWARE) == set(occupancies.ARCHITECTURES)


@pytest.mark.parametrize("arch", HARDWARE)
def test_the_toolkits_header_agrees(witness: Path, arch: str) -> None:
    found = points(witness, arch)
    wrong = differences(found, arch)
    assert len(found) >= 10_000
    assert not wrong, f"{len(wrong)} of {len(found)}\n" + "\n".join(wrong[:10])


@pytest.mark.parametrize(
    ("name", "value"), [("_RESERVED", 2048), ("_REGISTER_UNIT", 128), ("_QUARTERS", 1), ("WARP", 64)]
)
def test_a_wrong_rule_is_found(witness: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    found = points(witness, "9.0")
    monkeypatch.setattr(occupancies, name, value)
    assert differences(found, "9.0")
