"""What the compiler made of the CUDA kernels: which of them spill registers, and how many loads those that memory
limits have in flight before the first of them is waited for.

Reads SASS of the objects under build/, one of each source (or of those given), with cuobjdump. A turn is a stretch of
loads from global memory that ends where one of their results is used: a kernel has as many bytes on their way as its
longest turns load. Asynchronous copies to shared memory are counted at their waits: as many as a wait leaves under way.
Fails where one of RULES is broken or names no kernel, and where a kernel has instructions that spill to local memory
which ALLOWANCES do not grant it.

    BWPROF_CUDA_ARCHS=90a python setup.py build_ext --inplace && python tests/benchmarks/sass.py
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Named:
    """Kernels of `source`, the end of a path, whose mangled name has `kernel` in it."""

    source: str
    kernel: str

    def of(self, path: str) -> bool:
        return f"/{path}".endswith(f"/{self.source}")

    def names(self, kernel: str) -> bool:
        return re.search(self.kernel, kernel) is not None


@dataclass(frozen=True)
class Rule(Named):
    """They have at least `turns` turns of `loads` loads, a number that may come out of those that `kernel` finds in the
    name. What counts is whose opcode has `counted` in it."""

    loads: int | Callable[..., int]
    turns: int
    why: str
    counted: str = "LDG"

    def asks(self, name: str) -> int | None:
        """For how many loads a turn; None where it says nothing of this kernel."""
        match = re.search(self.kernel, name)
        if match is None:
            return None
        return self.loads if isinstance(self.loads, int) else self.loads(*map(int, match.groups()))


@dataclass(frozen=True)
class Allowance(Named):
    """They may have `most` instructions that spill where they are assembled for `archs`."""

    archs: tuple[str, ...]
    most: int
    why: str

    def __post_init__(self) -> None:
        tuned = any(arch.startswith("sm_90") for arch in self.archs)
        assert not tuned or self.why == BESIDE_LOOPS, "kernels are tuned for 9.0: no loop spills there"


STREAMED = r"LDG.*\.NA\b"  # past L1: K and V, and B of few rows of A
ONCE = r"LDG.*\.EF\b"  # evicted first: streams and moves
COPIES = "LDGSTS"
BESIDE_LOOPS = "before, between and after its loops; six in the careful one"
HALF = r"I(?:6__half|13__nv_bfloat16)"

RULES = [
    # <a_rows, b_rows, steps, split, vectors>: a turn loads `steps` steps of B's rows, and of A's. Two of each: the
    # loop's turn, and the last, partial one. Many rows of A, which come from L1, do not fit beside their sums: the
    # source promises B's loads, and most of A's are asked for before B's first is waited for.
    Rule(
        "gemv.cu",
        r"gemm_gemv_kernelI.*Li([124])ELi(\d)ELi(\d)ELi\dELb1E",
        lambda a_rows, b_rows, steps: steps * (a_rows + b_rows),
        2,
        "all of a turn's rows",
    ),
    Rule(
        "gemv.cu",
        r"gemm_gemv_kernelI.*Li(?:4|8|16)ELi(\d)ELi(\d)ELi\dELb1E",
        lambda b_rows, steps: b_rows * steps,
        2,
        "all of a turn's rows of B",
        STREAMED,
    ),
    Rule("gemv.cu", r"gemm_gemv_kernelIfLi8ELi\dELi\dELi\dELb1E", 12, 2, "all of a turn's rows"),
    Rule("gemv.cu", r"gemm_gemv_kernelI.*Li(?:8|16)ELi\dELi\dELi\dELb1E", 10, 2, "most of a turn's rows"),
    # <exact, quads, tiles, steps, ...>: `steps` steps of `tiles` tiles of B, and of so many times four rows of A.
    Rule(
        "gemm/skinny.cu",
        r"gemm_skinny_kernelI.*Lb[01]ELi(\d)ELi(\d)ELi(\d)E",
        lambda quads, tiles, steps: steps * (quads + tiles),
        2,
        "all of a turn's rows",
    ),
    # <padded, tiles, warps, resident, runs>: of each 128 elements of a row a lane loads 8 vectors of K, 8 of V and 4 of
    # the queries. The loop's turn is the next step's K and, once this one's V is used, its V. A run asks for its next
    # part's keys while a part ends, for their V later where registers are short.
    Rule("direct.cu", rf"direct_kernel{HALF}Li(\d+)E", lambda padded: padded * 5 // 32, 1, "K, V and the queries"),
    Rule("direct.cu", rf"direct_kernel{HALF}Li(\d+)E", lambda padded: padded // 8, 2, "a step of K and V", STREAMED),
    Rule(
        "direct.cu",
        rf"direct_kernel{HALF}Li(64|128|192)ELi1ELi8ELi\dELb1E",
        lambda padded: padded // 8,
        3,
        "the next part's K and V",
        STREAMED,
    ),
    Rule(
        "direct.cu",
        rf"direct_kernel{HALF}Li(\d+)ELi1ELi\d+ELi\dELb1E",
        lambda padded: padded // 16,
        3,
        "the next part's K",
        STREAMED,
    ),
    Rule("direct.cu", r"direct_kernelIfLi64E", 20, 1, "K, V and the queries"),
    Rule("direct.cu", r"direct_kernelIfLi64E", 16, 2, "a step of K and V", STREAMED),
    # <padded, tiles, ...>: the same.
    Rule(
        "cluster_sm90.cu",
        r"cluster_kernelI.*Li(\d+)ELi(\d)E",
        lambda padded, tiles: padded // 8 * tiles + padded // 32,
        1,
        "K, V and the queries",
    ),
    Rule(
        "cluster_sm90.cu",
        r"cluster_kernelI.*Li(\d+)ELi(\d)E",
        lambda padded, tiles: padded // 8 * tiles,
        2,
        "a step of K and V",
        STREAMED,
    ),
    # <tiles, ...> and <warps, tiles, ...>: all of a block's keys, and 2 loads of the queries. A tile has 4 of K, and 4
    # of V or, where four warps take each other's too, 16 of its words.
    Rule("oneshot.cu", rf"oneshot_kernel{HALF}Li(\d)E", lambda tiles: 2 + 4 * tiles + 16 * tiles, 1, "all keys"),
    Rule("oneshot.cu", rf"oneshot_sums_kernel{HALF}Li\dELi(\d)E", lambda tiles: 2 + 8 * tiles, 1, "all keys"),
    # A whole segment's loads, and the last one's.
    Rule("stream.cu", r"stream_read_kernel", 8, 2, "a segment"),
    Rule("stream.cu", r"tile_kernelI.*copy_op", 4, 1, "a tile", ONCE),
    Rule("stream.cu", r"tile_kernelI.*triad_op", 8, 1, "a tile of both operands", ONCE),
    # `together`: a unit of K and one of V; else pages are moved two units at a time.
    Rule("move.cu", r"kv_move_kernelI.*Lb1E", 2, 1, "K and V", ONCE),
    Rule("move.cu", r"kv_gather_pages_kernelI", 2, 1, "two units", ONCE),
    # <padded, heads>: all that the ring holds but the step's K, which is waited for first: 11 groups of copies where it
    # has six stages, 3 where it has two.
    Rule("staged_fp32.cu", r"lanesILi64ELi8EELb1E", 11 * 2, 1, "the ring's keys", COPIES),
    Rule("staged_fp32.cu", r"lanesILi(?:64|128)ELi4EELb1E", 3 * 4, 1, "the ring's keys", COPIES),
    Rule("staged_fp32.cu", r"lanesILi192ELi\dEELb1E", 3 * 6, 1, "the ring's keys", COPIES),
    Rule("staged_fp32.cu", r"lanesILi256ELi8EELb1E", 3 * 4, 1, "the ring's keys", COPIES),
    Rule("staged_fp32.cu", r"lanesILi256ELi4EELb1E", 3 * 8, 1, "the ring's keys", COPIES),
    # <padded, blocks>: tiles of K and of V are groups of their own, five, three or (32 heads of 128 elements) two
    # of them in a ring; all but the one that is used and the next one are under way.
    Rule("split_fp32.cu", r"split_kernelILi64E", 3 * 8, 2, "the ring's keys", COPIES),
    Rule("split_fp32.cu", r"split_kernelILi128ELi1E", 16, 2, "the ring's keys", COPIES),
    # <eights, rows of B, warps, stages>: 32 lanes copy four rows of A and B at once.
    Rule(
        "skinny_fp32.cu",
        r"gemm_skinny_float_kernelILi(\d)ELi(\d+)ELi\dELi(\d)E",
        lambda eights, rows, stages: (stages - 2) * (2 * eights + rows // 4),
        1,
        "the ring's rows",
        COPIES,
    ),
    # <padded, vectors, wide, ...>: the same, of 16 keys a warp, in rings of four stages (64 elements) or three. `wide`
    # waits for the queries first, and then for a step's K and V at once.
    *(
        Rule(source, rf"tensor_kernelILi{padded}ELb1ELi{wide}E", loads, turns, "the ring's keys", COPIES)
        for source in ("staged_fp16.cu", "staged_bf16.cu", "wide_sm90.cu")
        for padded, wide, loads, turns in (
            (64, "[124]", 6 * 4, 1),
            (64, "[124]", 4 * 4, 2),
            (128, "[124]", 4 * 8, 1),
            (128, "[124]", 2 * 8, 2),
        )
    ),
    *(
        Rule(source, rf"tensor_kernelILi{padded}ELb1ELi0E", loads, 1, "the ring's keys", COPIES)
        for source in ("staged_fp16.cu", "staged_bf16.cu")
        for padded, loads in ((64, 5 * 4), (128, 3 * 8))
    ),
]
# nvcc 13.0 runs out of registers for cards that nothing here is tuned for; saving some would change the code of 9.0.
# There only what stands beside a kernel's loops may spill.
ALLOWANCES = [
    Allowance("split_fp32.cu", r"split_kernelILi64ELi2E", ("sm_80", "sm_86", "sm_90", "sm_90a"), 5, BESIDE_LOOPS),
    Allowance("split_fp32.cu", r"split_kernelILi128ELi2E", ("sm_80", "sm_86", "sm_90", "sm_90a"), 42, BESIDE_LOOPS),
    Allowance("split_fp32.cu", r"split_kernelILi64ELi2E", ("sm_120",), 10, BESIDE_LOOPS),
    Allowance("split_fp32.cu", r"split_kernelILi128ELi2E", ("sm_120",), 60, BESIDE_LOOPS),
    Allowance(
        "gemm/skinny.cu", r"skinny_kernelI.*Lb0ELi4ELi4ELi2ELb1ELi4ELi4E", ("sm_120",), 20, "6 loads a turn of 16"
    ),
    Allowance("direct.cu", rf"direct_kernel{HALF}Li128ELi1ELi12ELi1ELb1E", ("sm_80",), 2, "once a part of a run"),
    Allowance("direct.cu", rf"direct_kernel{HALF}Li128ELi1ELi12ELi1ELb1E", ("sm_120",), 6, "once a part of a run"),
    Allowance("direct.cu", rf"direct_kernel{HALF}Li256ELi1ELi8ELi1ELb1E", ("sm_120",), 3, "once a part of a run"),
    Allowance(
        "tf32.cu", r"tf32_kernelILi256ELi1ELi32ELb1ELb0ELi1ELi8E", ("sm_86",), 6, "a load a tile of 480 products"
    ),
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


def turns_of(text: str) -> list[list[str]]:
    """The opcodes of each turn's loads."""
    turns: list[list[str]] = []
    loads: list[str] = []
    waited: set[int] = set()
    for opcode, operands in instructions(text):
        first, _, rest = operands.partition(",")
        if opcode.startswith(USED_FIRST):
            first, rest = "", operands
        if waited & registers(rest):
            turns.append(loads)
            waited, loads = set(), []
        if opcode.startswith("LDG."):
            words = 4 if ".128" in opcode else 2 if ".64" in opcode else 1
            waited |= registers(first, words)
            loads.append(opcode)
    return [*turns, loads] if loads else turns


def copies_of(text: str) -> list[int]:
    """How many asynchronous copies each wait for some leaves under way: its groups, each as large as the one before."""
    found, group, last = [], 0, 0
    for opcode, operands in instructions(text):
        if opcode.startswith(COPIES):
            group += 1
        elif opcode.startswith("LDGDEPBAR"):
            group, last = 0, group or last
        elif opcode.startswith("DEPBAR") and last:
            found.append(int(operands.rpartition(",")[2], 16) * last)
    return found


def counts_of(text: str, counted: str) -> list[int]:
    """What a rule is held against, the most first."""
    if counted == COPIES:
        return sorted(copies_of(text), reverse=True)
    return sorted((sum(bool(re.search(counted, opcode)) for opcode in turn) for turn in turns_of(text)), reverse=True)


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


def find_objects() -> list[Path]:
    """All of a build's: a source without one would pass unread."""
    objects = []
    for source in sorted(path.relative_to(ROOT / "csrc") for path in ROOT.glob("csrc/cuda/**/*.cu")):
        found = sorted(ROOT.glob(f"build/cuda*/{source}.o"))
        if not found:
            raise SystemExit(f"csrc/{source} has no object under build/: build with BWPROF_CUDA=1 first")
        objects += found
    return objects


@dataclass
class Finding:
    """A kernel for an architecture: what it has, and what is wrong with that."""

    arch: str
    name: str
    longest: list[int]  # loads of its longest turns
    spills: int
    granted: int
    ruled: bool
    wrong: list[str]

    def row(self, source: str) -> list[object]:
        short = re.sub(r"^_ZN?\d*_GLOBAL__N__\w*?_cu_[0-9a-f]{8}\d*", "", self.name)
        spills = f"{self.spills} of {self.granted} allowed" if self.granted else self.spills
        said = "; ".join(self.wrong) or "ok"
        return [f"{source} {short[:80]}", self.arch, " ".join(map(str, self.longest[:4])), spills, said]


def judge(source: str, kernels: Iterable[tuple[str, str, str]]) -> Iterator[Finding]:
    """`source` is its path; of each kernel its architecture, name and SASS."""
    rules = [rule for rule in RULES if rule.of(source)]
    allowances = [allowance for allowance in ALLOWANCES if allowance.of(source)]
    for arch, name, text in kernels:
        wrong = []
        asked = [(rule, loads) for rule in rules if (loads := rule.asks(name)) is not None]
        for rule, loads in asked:
            if sum(count >= loads for count in counts_of(text, rule.counted)) < rule.turns:
                wrong.append(f"{rule.why}: {rule.turns} turns of {loads} loads")
        spills = sum(opcode.startswith(("LDL", "STL")) for opcode, _ in instructions(text))
        granted = max((a.most for a in allowances if arch in a.archs and a.names(name)), default=0)
        if spills > granted:
            wrong.append(f"at most {granted} instructions that spill" if granted else "no registers in local memory")
        counted = COPIES if any(rule.counted == COPIES for rule, _ in asked) else "LDG"
        yield Finding(arch, name, counts_of(text, counted), spills, granted, bool(asked), wrong)


def unmet(source: str, findings: Sequence[Finding]) -> Iterator[str]:
    """Rules and allowances that name none of an object's kernels: those were renamed."""
    archs = {finding.arch for finding in findings}
    named: list[Named] = [*RULES, *(allowance for allowance in ALLOWANCES if archs & set(allowance.archs))]
    for one in named:
        if one.of(source) and not any(one.names(finding.name) for finding in findings):
            yield f"no kernel of {one.source} is {one.kernel}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="*", type=Path, help="objects or cubins (default: those under build/)")
    options = parser.parse_args()
    from common import show, table

    paths = options.objects or find_objects()
    cuobjdump = find_cuobjdump()
    kernels, broken, rows, missed = 0, 0, list[list[object]](), list[str]()
    for path in paths:
        source = path.as_posix().removesuffix(".o")
        findings = list(judge(source, kernels_of(cuobjdump, path)))
        kernels += len(findings)
        broken += sum(bool(finding.wrong) for finding in findings)
        rows += [finding.row(path.name.removesuffix(".o")) for finding in findings if finding.ruled or finding.spills]
        missed += unmet(source, findings)
    table("Loads in flight", ["kernel", "for", "longest turns", "spills", "should have"], rows)
    for line in missed:
        show(line)
    show(f"\n{kernels} kernels, {broken + len(missed)} rules broken")
    sys.exit(1 if broken or missed or not kernels else 0)


if __name__ == "__main__":
    main()
