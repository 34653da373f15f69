"""Which files in C may include and know which, and how large files are: CONTRIBUTING's layers, checked on sources."""

from __future__ import annotations

import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from test_imports import write_tree

from bwprof import _core

CSRC = Path(__file__).resolve().parent.parent / "csrc"
PACKAGE = Path(_core.__file__).resolve().parent

# Which folders of csrc a folder may include.
MAY_INCLUDE = {
    "base": {"base"},
    "ops": {"base", "ops"},
    "backend": {"base", "ops", "backend"},
    "measure": {"base", "ops", "backend", "measure"},
    "cpu": {"base", "ops", "backend", "cpu"},
    "cuda": {"base", "ops", "backend", "cuda"},
    "python": {"base", "ops", "backend", "measure", "python"},
    "api": {"base", "ops", "backend", "measure", "api"},
}
# The floors within a layer, and which others of it each may include; "cuda/kernels" is any family's folder of its own.
FLOORS = {
    "base": set[str](),
    "base/types": {"base"},
    "ops": set[str](),
    "ops/families": {"ops"},
    "ops/list.h": {"ops/families"},
    "ops/registry.c": {"ops", "ops/list.h"},
    "cpu": set[str](),
    "cpu/simd/vectors": set[str](),
    "cpu/simd": {"cpu", "cpu/simd/vectors"},
    "cuda/runtime": set[str](),
    "cuda/launch": {"cuda/runtime"},
    "cuda/kernels/common": {"cuda/launch", "cuda/runtime"},
    "cuda/devices": {"cuda/launch", "cuda/runtime"},
    "cuda/libraries": {"cuda/launch", "cuda/runtime"},
    "cuda/kernels": {"cuda/kernels/common", "cuda/launch", "cuda/libraries", "cuda/runtime"},
    "cuda/timing": {"cuda/launch", "cuda/libraries", "cuda/runtime"},
    "cuda/profiling": {"cuda/launch", "cuda/libraries", "cuda/runtime", "cuda/timing"},
    "cuda/backend.c": {"cuda/runtime"},
}
# Files that know nothing of their neighbors on the same floor but what bears their own name.
APART = {"ops/families"}
LONGEST_FILE, LARGEST_FOLDER = 600, 15
# The parts of a case (csrc/measure/case), and which of them each may include; only `case` puts them together.
CASE_PARTS = {
    "choice": set[str](),
    "reference": set(),
    "buffers": {"choice", "reference"},
    "verify": {"buffers"},
    "case": {"verify"},
}
WRITTEN_BY_THE_BUILD = {"build_info.h", "suite_table.h"}
# Folders that know operations only through their descriptors.
KNOW_NO_OPERATION = {"api", "base", "backend", "measure", "python"}
NAMES_OPERATIONS = {"api/operations.c"}  # the functions of the C library that are called after one
DESCRIPTOR_HEADERS = {"ops/op.h"}
# System headers that belong to a folder or two.
ONLY_IN = {
    ("python",): re.compile(r"Python\.h|structmember\.h|cpython/"),
    ("cuda",): re.compile(r"cuda|cublas|cupti|nvml|nvtx|cooperative_groups|mma\.h|cute?/|cutlass/"),
    ("cpu",): re.compile(r"immintrin\.h|x86intrin\.h|arm_neon\.h|arm_sve\.h|cpuid\.h"),
    ("api", "base", "cpu", "cuda"): re.compile(r"pthread\.h|sched\.h"),
}
SUFFIXES = {".c", ".h", ".cu", ".cuh", ".cpp", ".cc"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.MULTILINE)
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)

# A function that other files may call, at its definition, and a call of one.
DEFINITION = re.compile(
    r"^(?!static\b|typedef\b)[A-Za-z_][\w \t*&:<>,]*?\b((?:bw|core)_\w+)\([^;{}]*\)\s*\{", re.MULTILINE
)
CALL = re.compile(r"\b((?:bw|core)_\w+)\(")

pytestmark = pytest.mark.usefixtures("source_tree")


def sources(csrc: Path = CSRC) -> list[Path]:
    return sorted(path for path in csrc.rglob("*") if path.suffix in SUFFIXES)


def code(path: Path) -> str:
    """The file without its comments; line numbers stay."""

    def keep_lines(match: re.Match[str]) -> str:
        text = match[0]
        return text if text.startswith('"') else "\n" * text.count("\n") or " "

    return COMMENT.sub(keep_lines, path.read_text())


def folder_of(path: Path) -> str:
    return path.relative_to(CSRC).parts[0]


def includes(path: Path) -> list[tuple[bool, str]]:
    """(is a quoted include, what)."""
    return [(match[1] == '"', match[2]) for match in INCLUDE.finditer(code(path))]


def test_every_folder_is_a_known_layer() -> None:
    assert {path.name for path in CSRC.iterdir() if path.is_dir()} <= set(MAY_INCLUDE)
    assert not [path.name for path in CSRC.iterdir() if path.is_file()]


def test_no_file_includes_a_layer_above_it() -> None:
    wrong = []
    for path in sources():
        for quoted, what in includes(path):
            if not quoted or what in WRITTEN_BY_THE_BUILD:
                continue
            layer = what.split("/")[0]
            if not (CSRC / what).is_file():
                wrong.append(f"{path.relative_to(CSRC)}: '{what}' is no path from csrc/")
            elif layer not in MAY_INCLUDE[folder_of(path)]:
                wrong.append(f"{path.relative_to(CSRC)}: may not include {what}")
    assert not wrong, "\n".join(wrong)


def floor_of(file: str) -> str:
    """Of a path from csrc/; "" where its layer has no floors."""
    family = re.match(r"cuda/kernels/[^/]+(?=/)", file)
    if family:
        return family[0]
    return max((floor for floor in FLOORS if f"{file}/".startswith(f"{floor}/")), key=len, default="")


def misplaced_includes(csrc: Path) -> list[str]:
    """Includes within a layer that FLOORS and APART do not have, and files that stand on no floor."""
    wrong = []
    for path in sources(csrc):
        file = path.relative_to(csrc).as_posix()
        floor = floor_of(file)
        if not floor and any(other.split("/")[0] == file.split("/")[0] for other in FLOORS):
            wrong.append(f"{file}: stands on no floor")
        allowed = FLOORS.get(floor, FLOORS["cuda/kernels"]) | {floor}
        for quoted, what in includes(path) if floor else []:
            below = floor_of(what)
            same_layer = quoted and what.split("/")[0] == file.split("/")[0]
            apart = below == floor and floor in APART and Path(what).stem != path.stem
            if same_layer and (below not in allowed or apart):
                wrong.append(f"{file}: may not include {what}")
    return wrong


def test_every_file_includes_its_own_floor_and_those_below() -> None:
    wrong = misplaced_includes(CSRC)
    assert not wrong, "\n".join(wrong)


def test_floors_stand_on_each_other() -> None:
    """FLOORS itself has no circle, and no floor that is not there."""
    list(TopologicalSorter(FLOORS).static_order())
    assert set().union(*FLOORS.values()) <= set(FLOORS)
    assert not [floor for floor in FLOORS if not (CSRC / floor).exists()]


def test_a_misplaced_include_is_found(tmp_path: Path) -> None:
    files = {
        "base/status.h": '#include "base/types/dtype.h"\n',
        "base/types/dtype.h": '#include "base/status.h"\n',
        "ops/op.h": '#include "base/types/dtype.h"\n',
        "ops/families/rows.c": '#include "ops/families/rows.h"\n#include "ops/op.h"\n',
        "ops/families/gemm.c": '#include "ops/families/rows.h"\n',
        "cpu/simd/vectors/avx2.h": '#include "cpu/simd/simd.h"\n',
        "cuda/other.c": "",
        "cuda/runtime/device.h": "",
        "cuda/runtime/open.c": '#include "cuda/launch/service.h"\n',
        "cuda/launch/service.h": '#include "cuda/runtime/device.h"\n',
        "cuda/kernels/kv/move.cu": '#include "cuda/launch/service.h"\n#include "cuda/kernels/gemm/gemm.h"\n',
    }
    write_tree(tmp_path, files)
    assert [
        line.replace("may not include ", "").replace("stands on ", "") for line in misplaced_includes(tmp_path)
    ] == [
        "base/status.h: base/types/dtype.h",
        "cpu/simd/vectors/avx2.h: cpu/simd/simd.h",
        "cuda/kernels/kv/move.cu: cuda/kernels/gemm/gemm.h",
        "cuda/other.c: no floor",
        "cuda/runtime/open.c: cuda/launch/service.h",
        "ops/families/gemm.c: ops/families/rows.h",
    ]


def units() -> dict[str, set[str]]:
    """The files by their paths without a suffix, and which of each other they include."""
    graph: dict[str, set[str]] = {}
    for path in sources():
        users = graph.setdefault(path.relative_to(CSRC).with_suffix("").as_posix(), set())
        users |= {what.rpartition(".")[0] for quoted, what in includes(path) if quoted}
    return {unit: (used & graph.keys()) - {unit} for unit, used in graph.items()}


def test_no_files_include_each_other_in_a_circle() -> None:
    list(TopologicalSorter(units()).static_order())


def calls(csrc: Path) -> dict[str, set[str]]:
    """The files in C that define functions for others, and which of each other's they call."""
    texts = {path: code(path) for path in sources(csrc) if path.suffix in {".c", ".cc", ".cu"}}
    owner = {name: path for path, text in texts.items() for name in DEFINITION.findall(text)}
    return {
        str(path.relative_to(csrc)): {
            str(owner[name].relative_to(csrc)) for name in CALL.findall(text) if owner.get(name, path) != path
        }
        for path, text in texts.items()
    }


def call_circle(csrc: Path) -> set[str]:
    """Files in C that call each other in a circle, if there are any."""
    graph = calls(csrc)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return set(error.args[1])
    return set()


def test_no_files_call_each_other_in_a_circle() -> None:
    assert not call_circle(CSRC)


def test_a_call_circle_is_found(tmp_path: Path) -> None:
    files = {
        "text.c": "void bw_text(int size) {\n    bw_need(size);\n}\n",
        "library.c": "/* bw_file(1) */\nint *bw_need(int size) {\n    return say(size);\n}\n",
        "file.c": "static int bw_need_one(void) {\n}\nint bw_file(void) {\n    bw_text(1);\n}\n",
    }
    write_tree(tmp_path, files)
    assert not call_circle(tmp_path)
    (tmp_path / "library.c").write_text("int *bw_need(\n    int size) {\n    return bw_file();\n}\n")
    assert call_circle(tmp_path) == {"text.c", "library.c", "file.c"}


def test_every_file_in_c_opens_with_a_comment() -> None:
    assert not [str(path) for path in sources() if not path.read_text().startswith(("/* ", "// "))]


@pytest.mark.parametrize("root", [CSRC, PACKAGE], ids=["csrc", "bwprof"])
def test_files_are_short_and_folders_small(root: Path) -> None:
    files = [path for path in root.rglob("*") if path.suffix in SUFFIXES | {".py"}]
    long = [path for path in files if len(path.read_text().splitlines()) > LONGEST_FILE]
    folders = Counter(path.parent for path in files)
    large = [folder for folder, count in folders.items() if count > LARGEST_FOLDER]
    assert not [str(path.relative_to(root.parent)) for path in [*long, *large]]


def test_files_of_tests_are_short(source_tree: Path) -> None:
    files = [path for path in (source_tree / "tests").rglob("*") if path.suffix in SUFFIXES | {".py"}]
    assert Path(__file__).name in {path.name for path in files}
    assert not [str(path) for path in files if len(path.read_text().splitlines()) > LONGEST_FILE]


def test_the_package_does_not_grow() -> None:
    """Lines without and within importers, files, folders: these limits only fall."""
    files = sorted(PACKAGE.rglob("*.py"))
    lines = {path: len(path.read_text().splitlines()) for path in files}
    importers = sum(count for path, count in lines.items() if "importers" in path.relative_to(PACKAGE).parts)
    assert sum(lines.values()) - importers <= 39_037
    assert importers <= 4_510
    assert len(files) <= 170
    assert len({path.parent for path in files}) <= 21


def test_every_command_has_a_test(source_tree: Path) -> None:
    from bwprof.cli import COMMANDS

    tests = "".join(path.read_text() for path in sorted((source_tree / "tests").glob("*.py")))
    assert [name for name in COMMANDS if not re.search(rf"main_{name}\b|\[\s*\"{name}\"|\"{name} ", tests)] == []


def test_parts_of_a_case() -> None:
    wrong = []
    for path in sorted((CSRC / "measure" / "case").iterdir()):
        for quoted, what in includes(path):
            if not quoted or not what.startswith("measure/"):
                continue
            folder, _, part = what.removesuffix(".h").rpartition("/")
            allowed = CASE_PARTS[path.stem] | {path.stem}
            if (folder == "measure/case" and part not in allowed) or (folder == "measure" and part != "session"):
                wrong.append(f"{path.name}: may not include {what}")
    assert not wrong, "\n".join(wrong)


def test_system_headers_stay_in_their_folder() -> None:
    wrong = [
        f"{path.relative_to(CSRC)}: <{what}> belongs to csrc/{' and csrc/'.join(owners)}"
        for path in sources()
        for _, what in includes(path)
        for owners, pattern in ONLY_IN.items()
        if pattern.match(what) and not (CSRC / what).is_file() and folder_of(path) not in owners
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_module_the_library_and_the_list_of_backends_include_build_info() -> None:
    users = {path.relative_to(CSRC).as_posix() for path in sources() if (True, "build_info.h") in includes(path)}
    assert users == {"api/library.c", "python/module.c", "backend/registry.c"}


def test_a_new_operation_compiles_no_kernel_anew() -> None:
    """Only what gathers descriptors and tables sees the operation list, not even through another header."""
    users = {path.relative_to(CSRC).as_posix() for path in sources() if (True, "ops/list.h") in includes(path)}
    assert users == {"ops/registry.c", "cpu/simd/table.c", "cuda/backend.c"}


def test_one_place_decides_whether_cuda_is_in() -> None:
    """One #if on BW_WITH_CUDA, in the registry of backends; nothing else may depend on it."""
    found = [
        f"{path.relative_to(CSRC)}: {line.strip()}"
        for path in sources()
        for line in code(path).splitlines()
        if "BW_WITH_CUDA" in line
    ]
    assert found == ["backend/registry.c: #if !BW_WITH_CUDA"]


def test_methods_take_no_session_out_of_an_expression() -> None:
    """What opens and closes a device holds its session; every other method has it within CORE_ASK or CORE_RUN."""
    holders = {
        path.name
        for path in (CSRC / "python").iterdir()
        if re.search(r"(self|device|object\)?)->session\b", code(path))
    }
    assert holders == {"device.c", "case.c"}


def test_cxx_only_under_cuda() -> None:
    cxx = [path for path in sources() if path.suffix in {".cu", ".cuh", ".cpp", ".cc"} and folder_of(path) != "cuda"]
    assert not cxx


@pytest.mark.parametrize("folder", sorted(KNOW_NO_OPERATION))
def test_measuring_and_binding_know_no_operation(folder: str) -> None:
    names = re.compile(r"\b\w*(" + "|".join(operation["name"] for operation in _core.operations()) + r")\w*\b")
    wrong = []
    for path in (path for path in sources() if folder_of(path) == folder):
        named = path.relative_to(CSRC).as_posix() in NAMES_OPERATIONS
        for number, line in enumerate(code(path).splitlines(), 1):
            if names.search(line) and not named:
                wrong.append(f"{path.relative_to(CSRC)}:{number}: names an operation: {line.strip()}")
        for quoted, what in includes(path):
            if quoted and what.startswith("ops/") and what not in DESCRIPTOR_HEADERS:
                wrong.append(f"{path.relative_to(CSRC)}: {what} is an operation's own header")
    assert not wrong, "\n".join(wrong)


def test_every_snapshot_belongs_to_a_test() -> None:
    tests = Path(__file__).parent
    for snapshot in (tests / "snapshots").glob("*.txt"):
        file, test, *_ = re.split(r"[.\[-]", snapshot.name)
        assert f"def test_{test}(" in (tests / f"test_{file}.py").read_text(), snapshot.name
