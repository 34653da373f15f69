"""What the compiler made of the kernels that memory limits: loads in flight before the first of them is waited for.

Reads SASS of the objects under build/ (or of those given) with cuobjdump. A turn is a stretch of loads from global
memory that ends where one of their results is used: a kernel has as many bytes on their way as its longest turns load.
Fails where one of RULES is broken or names no kernel, and where a kernel of these objects spills to local memory.

    BWPROF_CUDA_ARCHS=90a python setup.py build_ext --inplace && python tests/benchmarks/sass.py
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Rule:
    """Kernels of `source` whose mangled name has `kernel` in it: at least `turns` turns of `loads` loads."""

    source: str
    kernel: str
    loads: int
    turns: int
    why: str


RULES = [
    # <a_rows, b_rows, steps, split, vectors>: a turn loads `steps` steps of B's rows, and of A's. Two of each: the
    # loop's turn, and the last, partial one.
    Rule("gemv.cu", r"gemm_gemv_kernelI.*Li1ELi2ELi4ELi4ELb1E", 12, 2, "one row of A"),
    Rule("gemv.cu", r"gemm_gemv_kernelI.*Li1ELi4ELi2ELi1ELb1E", 10, 2, "one row of A, short ones of B"),
    Rule("gemv.cu", r"gemm_gemv_kernelI.*Li2ELi2ELi4ELi4ELb1E", 16, 2, "two rows of A"),
    Rule("gemv.cu", r"gemm_gemv_kernelI.*Li4ELi2ELi[24]ELi\dELb1E", 12, 2, "four rows of A"),
    Rule("gemv.cu", r"gemm_gemv_kernelI.*Li(8|16)ELi\dELi\dELi\dELb1E", 10, 2, "more rows of A"),
    # <exact, quads, tiles, steps, ...>: `steps` steps of `tiles` tiles of B, and of so many times four rows of A.
    Rule("skinny.cu", r"gemm_skinny_kernelI.*Lb[01]ELi1ELi\dELi\dE", 10, 2, "up to 4 rows of A on tensor cores"),
    Rule("skinny.cu", r"gemm_skinny_kernelI.*Lb[01]ELi2ELi\dELi\dE", 12, 2, "up to 8 rows of A on tensor cores"),
    Rule("skinny.cu", r"gemm_skinny_kernelI.*Lb[01]ELi4ELi\dELi\dE", 16, 2, "up to 16 rows of A on tensor cores"),
    # A step of direct decode: 2 x 2 loads of K, 4 of V (twice that for 128 elements), and the queries'.
    Rule("direct.cu", r"direct_kernelI(6__half|13__nv_bfloat16)Li64ELi1E", 10, 1, "a step of K and V"),
    Rule("direct.cu", r"direct_kernelI(6__half|13__nv_bfloat16)Li128E", 18, 1, "a step of K and V"),
    Rule("direct.cu", r"direct_kernelI(6__half|13__nv_bfloat16)Li192E", 24, 1, "a step of K and V"),
    Rule("direct.cu", r"direct_kernelI(6__half|13__nv_bfloat16)Li256E", 32, 1, "a step of K and V"),
    Rule("direct.cu", r"direct_kernelIfLi64E", 20, 1, "a step of K and V"),
    # <tiles, ...> and <warps, tiles, ...>: all of a block's keys, and the queries.
    Rule("oneshot.cu", r"oneshot_kernelI(6__half|13__nv_bfloat16)Li1E", 22, 1, "all keys"),
    Rule("oneshot.cu", r"oneshot_kernelI(6__half|13__nv_bfloat16)Li2E", 42, 1, "all keys"),
    Rule("oneshot.cu", r"oneshot_sums_kernelI(6__half|13__nv_bfloat16)Li8ELi2E", 18, 1, "all keys"),
    Rule("cluster_sm90.cu", r"cluster_kernelI.*Li64ELi1E", 10, 1, "a step of K and V"),
    Rule("cluster_sm90.cu", r"cluster_kernelI.*Li64ELi2E", 18, 1, "a step of K and V"),
    Rule("cluster_sm90.cu", r"cluster_kernelI.*Li128E", 20, 1, "a step of K and V"),
    Rule("stream.cu", r"read", 4, 1, "a stream's read"),
    # Limited by arithmetic: what matters of them here is that they do not spill.
    Rule("fp32.cu", r"attention_flash", 0, 0, "sums in registers"),
    Rule("tf32.cu", r"attention_tf32", 0, 0, "sums in registers"),
    Rule("mma.cu", r"attention_flash", 0, 0, "sums in registers"),
    Rule("hopper_sm90.cu", r"attention_hopper", 0, 0, "sums in registers"),
    Rule("staged_fp32.cu", r"attention_decode_float", 0, 0, "sums in registers"),
    Rule("unfused_mma.cu", r"attention_(scores|output)", 0, 0, "sums in registers"),
]
USED_FIRST = ("ST", "RED", "BRA", "BAR", "EXIT", "CALL", "RET")  # all of their operands are read


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Opcode and operands of each line of cuobjdump -sass."""
    for match in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);", text):
        yield match[1], match[2]


def registers(operand: str, count: int = 1) -> set[int]:
    """Those that an operand names; an address ending in .64 takes two."""
    found: set[int] = set()
    for match in re.finditer(r"\bR(\d+)(\.64)?", operand):
        found |= set(range(int(match[1]), int(match[1]) + max(count, 2 if match[2] else 1)))
    return found


def turns_of(text: str) -> list[int]:
    """How many loads each turn has."""
    turns, waited, loads = [], set[int](), 0
    for opcode, operands in instructions(text):
        first, _, rest = operands.partition(",")
        if opcode.startswith(USED_FIRST):
            first, rest = "", operands
        if waited & registers(rest):
            turns.append(loads)
            waited, loads = set(), 0
        if opcode.startswith("LDG"):
            words = 4 if ".128" in opcode else 2 if ".64" in opcode else 1
            waited |= registers(first, words)
            loads += 1
    return [*turns, loads] if loads else turns


def kernels_of(cuobjdump: str, path: Path) -> Iterator[tuple[str, str, str]]:
    """Architecture, mangled name and SASS of each kernel."""
    done = subprocess.run([cuobjdump, "-sass", str(path)], capture_output=True, text=True, check=True)
    for part in re.split(r"\n\s*code for ", done.stdout)[1:]:
        arch = part.split(maxsplit=1)[0]
        for kernel in part.split("Function : ")[1:]:
            name, _, text = kernel.partition("\n")
            yield arch, name.strip(), text


def find_cuobjdump() -> str:
    folders = [str(Path(home, "bin")) for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    found = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=os.pathsep.join(folders))
    if found is None:
        raise SystemExit("cuobjdump was not found: it comes with the CUDA toolkit; put it on PATH or set CUDA_HOME")
    return found


def judge(path: Path, cuobjdump: str) -> Iterator[list[object]]:
    """A line for each kernel that a rule names: what it has, and what is wrong with it."""
    source = path.name.removesuffix(".o")
    rules = [rule for rule in RULES if rule.source == source]
    for arch, name, text in kernels_of(cuobjdump, path):
        spills = sum(opcode.startswith(("LDL", "STL")) for opcode, _ in instructions(text))
        turns = sorted(turns_of(text), reverse=True)
        wanted = [rule for rule in rules if re.search(rule.kernel, name)]
        wrong = [
            f"{rule.why}: {rule.turns} turns of {rule.loads} loads"
            for rule in wanted
            if sum(n >= rule.loads for n in turns) < rule.turns
        ]
        if spills:
            wrong.append("no registers in local memory")
        if wanted or wrong:
            short = re.sub(r"^_ZN?\d*_GLOBAL__N__\w*?_cu_[0-9a-f]{8}\d*", "", name)
            yield [f"{source} {short[:80]}", arch, " ".join(map(str, turns[:4])), spills, "; ".join(wrong) or "ok"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="*", type=Path, help="objects or cubins (default: those under build/)")
    options = parser.parse_args()
    from common import show, table

    sources = {rule.source for rule in RULES}
    paths = options.objects or sorted(path for path in ROOT.glob("build/cuda*/**/*.cu.o") if path.stem in sources)
    if not paths:
        raise SystemExit("no objects with CUDA under build/: build with BWPROF_CUDA=1 first")
    cuobjdump = find_cuobjdump()
    rows = [row for path in paths for row in judge(path, cuobjdump)]
    table("Loads in flight", ["kernel", "for", "longest turns", "spills", "should have"], rows)
    broken = sum(row[-1] != "ok" for row in rows)
    given = {path.name.removesuffix(".o") for path in paths}
    for rule in RULES:
        if rule.source in given and not any(re.search(rule.kernel, str(row[0])) for row in rows):
            show(f"no kernel of {rule.source} is {rule.kernel} ({rule.why})")
            broken += 1
    show(f"\n{len(rows)} kernels, {broken} rules broken")
    sys.exit(1 if broken or not rows else 0)


if __name__ == "__main__":
    main()
