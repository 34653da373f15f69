"""tests/benchmarks/sass.py with a shell script as cuobjdump and texts as objects."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
READ = "_ZN48_GLOBAL__N__76dfc2d8_9_stream_cu_02b34e8118stream_read_kernelEPKcPil"
COPY = "_ZN48_GLOBAL__N__76dfc2d8_9_stream_cu_02b34e8118stream_tile_kernelINS_7copy_opItEEEEvT_l"
TRIAD = "_ZN48_GLOBAL__N__76dfc2d8_9_stream_cu_02b34e8118stream_tile_kernelINS_8triad_opIfEEEEvT_l"
TENSOR = "_ZN48_GLOBAL__N__76dfc2d8_9_tensor_cu_02b34e8118gemm_tensor_kernelI6__halfEEvPKT_S4_S4_PS2_llll"
FLOAT = "_ZN48_GLOBAL__N__76dfc2d8_9_ladder_cu_02b34e8118attention_shared_kernelIfEEvPKT_S3_S3_PS1_"
BF16 = FLOAT.replace("IfE", "I13__nv_bfloat16E")


@pytest.fixture
def sass(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(HERE / "benchmarks"))
    import sass

    yield sass
    for name in ("sass", "common"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def code(lines: list[str]) -> str:
    """Format instructions as cuobjdump does, with addresses and bits."""
    return "".join(
        f"        /*{16 * i:04x}*/    {line} ;    /* 0x000fe200078e00ff */\n" for i, line in enumerate(lines)
    )


def loads(count: int, kind: str = "EF", first: int = 8) -> list[str]:
    return [f"LDG.E.{kind}.128 R{first + 4 * i}, desc[UR4][R2.64+{512 * i:#x}]" for i in range(count)]


STREAM = {
    READ: [*loads(8), "IADD3 R4, R8, R9, R10", *loads(8), "@P0 IADD3 R4, R8, R9, R10", "EXIT"],
    COPY: [*loads(4), "STG.E.EF.128 desc[UR4][R4.64], R8"],
    TRIAD: [*loads(8), "FFMA R8, R12, 3, R8"],
}


@pytest.fixture
def run(
    sass: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Return status and output of the script for objects: a source's path, its kernels' instructions by name."""
    tool = tmp_path / "bin" / "cuobjdump"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\ncat "$2"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")

    def run(arch: str, **objects: dict[str, list[str]]) -> tuple[int, str]:
        paths = []
        for source, kernels in objects.items():
            path = tmp_path / f"{source}.cu.o"
            path.parent.mkdir(exist_ok=True)
            functions = "".join(f"\t\tFunction : {name}\n{code(lines)}" for name, lines in kernels.items())
            path.write_text(f"Fatbin elf code:\n================\narch = {arch}\n\n\tcode for {arch}\n{functions}")
            paths.append(str(path))
        monkeypatch.setattr(sys, "argv", ["sass.py", *paths])
        with pytest.raises(SystemExit) as stopped:
            sass.main()
        status = stopped.value.code
        return status if isinstance(status, int) else -1, capsys.readouterr().out

    return run


@pytest.fixture
def allowed(sass: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow two kernels of one ladder.cu to spill on one card."""
    monkeypatch.setattr(
        sass,
        "ALLOWANCES",
        [
            sass.Allowance("prefill/ladder.cu", "shared_kernelIfE", ("sm_120",), 4, "for a test"),
            sass.Allowance("prefill/ladder.cu", "shared_kernelI13__nv_bfloat16E", ("sm_120",), 6, "for a test"),
        ],
    )


@pytest.mark.parametrize(
    ("lines", "turns"),
    [
        (loads(4), [4]),
        ([*loads(4), "IADD3 R4, R11, R2, RZ"], [4]),  # R11 is the fourth word of the first
        ([*loads(4), "MOV R8, R2", *loads(2)], [6]),  # nothing that was loaded is read
        ([*loads(2), "FADD R0, R8, R9", *loads(3)], [2, 3]),
        ([*loads(2), "@!P1 FADD R0, R8, R9", *loads(3)], [2, 3]),
        ([*loads(2), "@UP0 STG.E desc[UR4][R2.64], R8", *loads(3)], [2, 3]),
        (["LDG.E R2, desc[UR4][R4.64]", "LDG.E R6, desc[UR4][R2.64]"], [1, 1]),  # the second's address
        (["LDG.E.64 R2, desc[UR4][R4.64]", "LDG.E R6, desc[UR4][R3.U32]"], [1, 1]),
        (["LDG.E R3, desc[UR4][R4.64]", "LDG.E R6, desc[UR4][R2.64]"], [1, 1]),  # half of its address
        (["LDG.E R2, desc[UR4][R4.64]", "LDGSTS.E.BYPASS.128 [R9], desc[UR4][R6.64]", "LDGDEPBAR"], [1]),
        (["LDS.128 R8, [R2]", "FADD R0, R8, R9"], []),
    ],
)
def test_loads_are_counted_up_to_their_first_use(sass: Any, lines: list[str], turns: list[int]) -> None:
    assert [len(turn) for turn in sass.turns_of(code(lines))] == turns


def test_copies_are_counted_at_their_waits(sass: Any) -> None:
    copy, commit = "LDGSTS.E.BYPASS.LTC128B.128 [R9+0x80], desc[UR4][R6.64], P0", "LDGDEPBAR"
    lines = [*[copy] * 4, commit, *[copy] * 4, commit, "DEPBAR.LE SB0, 0x3", commit, "DEPBAR.LE SB0, 0x0"]
    assert sass.copies_of(code(lines)) == [12, 0]
    assert sass.copies_of(code(["WARPGROUP.DEPBAR.LE gsb0, 0x1", "DEPBAR.LE SB0, 0x1"])) == [], "of other things"


def test_kernels_that_meet_the_rules_pass(run: Callable[..., tuple[int, str]]) -> None:
    status, said = run("sm_90a", stream=STREAM, tensor={TENSOR: ["FADD R0, R1, R2"]})
    assert status == 0, said
    assert "4 kernels, 0 rules" in said


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (READ, [*loads(8), "IADD3 R4, R8, R9, R10", *loads(4), "IADD3 R4, R8, R9, R10", *loads(4)]),
        (COPY, [*loads(2), "STG.E.EF.128 desc[UR4][R4.64], R8", *loads(2)]),
        (TRIAD, [*loads(4), *loads(4, "NA", first=24)]),  # of another kind
    ],
)
def test_a_kernel_that_waits_too_early_fails(run: Callable[..., tuple[int, str]], name: str, lines: list[str]) -> None:
    status, said = run("sm_90a", stream=STREAM | {name: lines})
    assert status == 1
    assert "3 kernels, 1 rules" in said


def test_a_spill_fails_without_a_rule_too(run: Callable[..., tuple[int, str]]) -> None:
    for line in ("STL [R1+0x4], R8", "@P0 LDL.LU.64 R4, [R1]"):
        status, said = run("sm_90a", stream=STREAM, tensor={TENSOR: ["FADD R0, R1, R2", line]})
        assert status == 1
        assert [row.split()[1:3] for row in said.splitlines() if "in local memory" in row] == [
            ["gemm_tensor_kernelI6__halfEEvPKT_S4_S4_PS2_llll", "sm_90a"]
        ]


@pytest.mark.parametrize(
    ("arch", "spills", "status"), [("sm_120", 4, 0), ("sm_120", 5, 1), ("sm_100", 1, 1), ("sm_90a", 1, 1)]
)
def test_an_allowance_is_for_a_number_of_spills_on_a_card(
    run: Callable[..., tuple[int, str]], allowed: None, arch: str, spills: int, status: int
) -> None:
    kernels = {FLOAT: ["STL [R1], R8"] * spills, BF16: ["FADD R0, R1, R2"]}
    assert run(arch, **{"prefill/ladder": kernels})[0] == status
    assert run(arch, **{"gemm/ladder": kernels})[0] == 1, "another file of that name"


def test_a_rule_or_an_allowance_without_kernels_fails(run: Callable[..., tuple[int, str]], allowed: None) -> None:
    status, said = run("sm_90a", stream={READ: STREAM[READ], COPY: STREAM[COPY]})
    assert status == 1
    assert re.search(r"stream\.cu is .*triad_op", said)
    kernels = {FLOAT: ["FADD R0, R1, R2"]}
    assert run("sm_120", **{"prefill/ladder": kernels})[0] == 1, "BF16 is allowed some and is not there"
    assert run("sm_90a", **{"prefill/ladder": kernels})[0] == 0, "but not on this card"


def test_rules_name_sources_and_allowances_no_tuned_card(sass: Any) -> None:
    paths = [str(path.relative_to(HERE.parent)) for path in HERE.parent.glob("csrc/cuda/**/*.cu")]
    for one in [*sass.RULES, *sass.ALLOWANCES]:
        assert sum(one.of(path) for path in paths) == 1, one
    tuned = [one for one in sass.ALLOWANCES if "sm_90a" in one.archs]
    assert all(one.why == sass.BESIDE_LOOPS for one in tuned)
    assert not [one for one in sass.ALLOWANCES if one.most < 1]


def test_a_source_without_an_object_fails(sass: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (
        "csrc/cuda/a/one.cu",
        "csrc/cuda/two.cu",
        "build/cuda-x/cuda/a/one.cu.o",
        "build/cuda-x/cuda/old.cu.o",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.setattr(sass, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"csrc/cuda/two\.cu has no object"):
        sass.find_objects()
    (tmp_path / "build/cuda-x/cuda/two.cu.o").touch()
    found = [str(path.relative_to(tmp_path / "build/cuda-x/cuda")) for path in sass.find_objects()]
    assert found == ["a/one.cu.o", "two.cu.o"]
