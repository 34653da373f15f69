"""Who may include whom, who may know what: CONTRIBUTING's layers, checked on sources."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

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
    "cpu": set[str](),
    "cpu/simd/vectors": set[str](),
    "cpu/simd": {"cpu", "cpu/simd/vectors"},
    "cuda/kernels/common": set[str](),
    "cuda/runtime": set[str](),
    "cuda/launch": {"cuda/runtime"},
    "cuda/devices": {"cuda/launch", "cuda/runtime"},
    "cuda/libraries": {"cuda/runtime"},
    "cuda/kernels": {"cuda/kernels/common", "cuda/launch", "cuda/libraries", "cuda/runtime"},
    "cuda/timing": {"cuda/launch", "cuda/libraries", "cuda/runtime"},
    "cuda/profiling": {"cuda/launch", "cuda/libraries", "cuda/runtime", "cuda/timing"},
    "cuda/backend.c": {"cuda/devices", "cuda/libraries", "cuda/profiling", "cuda/runtime", "cuda/timing"},
}
# Files that know nothing of their neighbors on the same floor but what bears their own name.
APART = {"ops/families"}
LONGEST_FILE, LARGEST_FOLDER = 600, 15
# The parts of a case (csrc/measure/case), and which of them each may include; only `case` puts them together.
CASE_PARTS = {
    "spec": set[str](),
    "choice": {"spec"},
    "rotation": {"choice", "spec"},
    "buffers": {"rotation", "choice", "spec"},
    "reference": {"spec"},
    "verify": {"buffers", "reference", "choice", "spec"},
    "case": {"verify", "rotation", "buffers", "reference", "choice", "spec"},
}
# The parts of the Python package, and which others each may import beside GROUND. `cli`, `__init__` and `__main__` may
# import everything, and nothing imports `cli` but what runs as `python -m`. CONTRIBUTING.md has the same table.
GROUND = {"errors", "text"}
_WORKING = {"_core", "environment", "hardware", "registry"}
MAY_IMPORT: dict[str, set[str]] = {
    **{part: {"_core", "text"} for part in sorted(GROUND)},
    "config": {"_core"},
    "registry": {"_core"},
    "environment": {"_core"},
    "costs": {"_core", "registry"},
    "hardware": {"_core", "registry"},
    "results": {"_core", "registry"},
    "roofs": {"_core", "costs", "hardware", "results"},
    "measuring": _WORKING | {"costs", "results", "roofs"},
    "case": _WORKING | {"costs", "measuring", "results", "roofs"},
    "analysis": {"_core", "costs", "measuring", "registry", "results", "roofs"},
    "kernels": {"_core", "analysis", "hardware", "registry"},
    "runs": _WORKING | {"measuring", "results", "roofs"},
    "experiments": _WORKING | {"analysis", "kernels", "measuring", "results", "roofs", "runs"},
    "llm": _WORKING | {"analysis", "costs", "measuring", "results", "roofs", "runs"},
    "plot": {"analysis", "registry", "results", "roofs"},
    "records": {"_core", "analysis", "environment", "plot", "registry", "results", "runs"},
    "profiler": _WORKING | {"costs", "measuring", "results", "roofs"},
    "torch": {"profiler"},
    "pytest_plugin": _WORKING | {"case", "measuring", "records", "results", "roofs", "runs"},
    "report": {"_core", "analysis", "llm", "plot", "records", "registry", "results", "roofs"},
    "importers": {"_core", "analysis", "environment", "registry", "results"},
    "sweep": _WORKING | {"measuring", "results", "roofs", "runs"},
    "info": _WORKING | {"measuring", "results", "roofs", "runs"},
    "selftest": _WORKING | {"measuring", "results", "roofs", "runs"},
}
# Modules that stand for themselves: what they may import, whatever their folder may. They see rows, never a device.
DEVICE_FREE = {
    "text.parsing": set[str](),
    "measuring.grade": {"results.schema", "roofs.disturbance", "roofs.limiter", "roofs.model"},
    "roofs.limiter": {"text.formatting", "text.parsing"},
    "llm.architecture": {"text.formatting", "text.parsing"},
    "llm.checkpoints": {"llm.architecture", "llm.workload", "registry", "text.formatting", "text.parsing"},
    "llm.workload": {"_core", "costs", "llm.architecture", "registry", "text.formatting", "text.parsing"},
    "llm.figures": {"costs", "llm.workload", "registry", "roofs.limiter", "text.formatting", "text.parsing"},
    "measuring.callables": {"text.formatting", "text.parsing"},
}
# Of parts that open devices, the modules that a part which sees none may import, and no others.
PURE_MODULES = {
    "analysis": {"measuring.grade", "roofs.limiter", "roofs.model"},
    "plot": {"roofs.limiter", "roofs.model", "roofs.store"},
    "report": {"llm.result", "roofs.limiter", "roofs.model"},
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
        "ops/families/norm.c": '#include "ops/families/norm.h"\n#include "ops/op.h"\n',
        "ops/families/gemm.c": '#include "ops/families/norm.h"\n',
        "cpu/simd/vectors/avx2.h": '#include "cpu/simd/simd.h"\n',
        "cuda/other.c": "",
        "cuda/runtime/device.h": "",
        "cuda/runtime/open.c": '#include "cuda/launch/service.h"\n',
        "cuda/launch/service.h": '#include "cuda/runtime/device.h"\n',
        "cuda/kernels/kv/move.cu": '#include "cuda/launch/service.h"\n#include "cuda/kernels/gemm/gemm.h"\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert [
        line.replace("may not include ", "").replace("stands on ", "") for line in misplaced_includes(tmp_path)
    ] == [
        "base/status.h: base/types/dtype.h",
        "cpu/simd/vectors/avx2.h: cpu/simd/simd.h",
        "cuda/kernels/kv/move.cu: cuda/kernels/gemm/gemm.h",
        "cuda/other.c: no floor",
        "cuda/runtime/open.c: cuda/launch/service.h",
        "ops/families/gemm.c: ops/families/norm.h",
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
    for name, text in files.items():
        (tmp_path / name).write_text(text)
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


def test_the_package_does_not_grow() -> None:
    """Lines without and within importers, files, folders: these limits only fall."""
    files = sorted(PACKAGE.rglob("*.py"))
    lines = {path: len(path.read_text().splitlines()) for path in files}
    importers = sum(count for path, count in lines.items() if "importers" in path.relative_to(PACKAGE).parts)
    assert sum(lines.values()) - importers <= 39_100
    assert importers <= 4_510
    assert len(files) <= 173
    assert len({path.parent for path in files}) <= 22


def bad_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that say nothing about what they name."""
    words = re.compile(r"(^|_)(told|said|asked|given|kept|held|stated|shown|telling|rungs?)(_|s?$)", re.IGNORECASE)
    names = {getattr(node, key, None) for node in nodes for key in ("id", "attr", "name", "arg")}
    return {name for name in names if isinstance(name, str) and words.search(name)}


def test_bad_names_are_found() -> None:
    text = "def as_told(kept):\n    x.said = heights_held = kept\n    return forgiven, askeds\n"
    assert bad_names(ast.walk(ast.parse(text))) == {"as_told", "kept", "said", "heights_held", "askeds"}


def test_names_say_what_they_name() -> None:
    assert {path.name: found for path in sorted(PACKAGE.rglob("*.py")) if (found := bad_names(nodes_of(path)))} == {}


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


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """A file of Python, its module first."""
    return list(ast.walk(ast.parse(path.read_text())))


def docstrings(nodes: Iterable[ast.AST]) -> set[ast.AST]:
    found: set[ast.AST] = set()
    for node in nodes:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            found |= {
                line.value for line in body if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
            }
    return found


def words_of(node: ast.AST) -> list[str]:
    """The names that a piece of Python code spells out, strings included."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.findall(r"\w+", node.value)
    values = [getattr(node, attribute, None) for attribute in ("id", "attr", "name", "arg")]
    return [value for value in values if isinstance(value, str)]


def test_python_names_no_operation() -> None:
    """What Python knows of operations comes from the registry; suites, which are data, may name them."""
    names = {operation["name"] for operation in _core.operations()}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = nodes_of(path)
        texts = docstrings(nodes)
        for node in nodes:
            spelled = [] if node in texts else [word for word in words_of(node) if word in names]
            wrong += [f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}: names {word}" for word in spelled]
    assert not wrong, "\n".join(wrong)


def modules_of(root: Path) -> dict[str, Path]:
    """Every module of a package by its name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join([root.name, *(parts[:-1] if parts[-1] == "__init__" else parts)])] = path
    return found


# Where the package spells a backend's name all the same: PyTorch's own module, and the lines of /proc/stat.
MAY_NAME_A_BACKEND = {"hardware.py": {"torch_cuda", "current_device"}, "roofs/survey.py": {"busy_seconds"}}


def backends_named(nodes: Sequence[ast.AST]) -> set[str]:
    """Functions ("" outside any) that hold a backend's name as a text of its own, or in an attribute; no docstrings."""
    names = {backend["name"] for backend in _core.backends()}
    texts = docstrings(nodes)
    holder: dict[ast.AST, str] = {}  # the innermost function's name: of a tree's nodes the outer come first
    found = set()
    for node in nodes:
        inside = node.name if isinstance(node, ast.FunctionDef) else holder.get(node, "")
        holder.update(dict.fromkeys(ast.iter_child_nodes(node), inside))
        if isinstance(node, ast.Constant) and node.value in names and node not in texts:
            found.add(inside)
    return found


def test_backends_named_are_found() -> None:
    text = 'A = {"cpu": 1}\ndef f(x):\n    """cpu"""\n    return x == "cuda"\ndef g(x):\n    return "no cuda here"\n'
    assert backends_named(list(ast.walk(ast.parse(text)))) == {"", "f"}


def test_python_names_no_backend() -> None:
    """What Python knows of a kind of device is what `_core.backend_facts` says; suites are data, and may name one."""
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        named = backends_named(nodes_of(path)) - MAY_NAME_A_BACKEND.get(file, set())
        wrong += [f"{file}: names a backend in {name or 'the module'}" for name in sorted(named)]
    assert not wrong, "\n".join(wrong)


def imports_of(path: Path, modules: Collection[str]) -> set[str]:
    """The package's modules that a file of it imports, also in functions and for types; not what `python -m` runs."""
    found: set[str] = set()
    nodes = nodes_of(path)
    scripts = [
        node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
    ]
    script = {inner for node in scripts for inner in ast.walk(node)}
    for node in (node for node in nodes if node not in script):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name in modules}


def part_of(module: str) -> str:
    """The part of the package that a module belongs to: a folder, or a file beside the folders."""
    return module.split(".")[1] if "." in module else ""


def misplaced_imports(root: Path) -> list[str]:
    """Imports that MAY_IMPORT, GROUND and DEVICE_FREE do not have."""
    modules = modules_of(root)
    known = {*modules, f"{root.name}._core"}
    wrong = []
    for module, path in modules.items():
        part, alone = part_of(module), DEVICE_FREE.get(module.partition(".")[2])
        if part in ("", "__main__", "cli"):  # what users import; the commands, which may use everything
            continue
        where = str(path.relative_to(root))
        if part not in MAY_IMPORT:
            wrong.append(f"{where}: MAY_IMPORT has no part {part}")
            continue
        ground = set() if part in GROUND else GROUND
        is_main = path.name == "__main__.py"
        for name in sorted(imports_of(path, known)):
            other, inner = part_of(name), name.partition(".")[2]
            pure = PURE_MODULES.get(part, set())
            if other in {part_of(f".{found}") for found in pure} and inner not in pure:
                wrong.append(f"{where}: may import {', '.join(sorted(pure))} only of those parts, not {name}")
            elif alone is not None and inner not in alone:
                wrong.append(f"{where}: may import {', '.join(sorted(alone))} only, not {name}")
            elif other not in {part, *MAY_IMPORT[part], *ground} and not (is_main and other == "cli"):
                wrong.append(f"{where}: may not import {name}")
    return wrong


def cycle_of(root: Path) -> list[str]:
    """Modules that import each other in a circle, if there are any."""
    modules = modules_of(root)
    known = {*modules, f"{root.name}._core"}
    graph = {module: imports_of(path, known) - {module} for module, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_part_imports_what_it_may() -> None:
    wrong = misplaced_imports(PACKAGE)
    assert not wrong, "\n".join(wrong)


def test_no_part_is_written_down_that_is_not_there() -> None:
    assert set(MAY_IMPORT) <= {part_of(module) for module in modules_of(PACKAGE)}
    assert set().union(*MAY_IMPORT.values()) <= {*MAY_IMPORT, "_core"}
    assert {f"bwprof.{module}" for module in set(DEVICE_FREE).union(*PURE_MODULES.values())} <= set(modules_of(PACKAGE))


def test_parts_stand_on_each_other() -> None:
    """MAY_IMPORT itself has no circle."""
    list(TopologicalSorter({part: below - {part} for part, below in MAY_IMPORT.items()}).static_order())


def test_contributors_read_the_same_table(source_tree: Path) -> None:
    found: dict[str, set[str]] = {}
    for line in (source_tree / "CONTRIBUTING.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| `") else []
        names = [re.fullmatch(r"`(\w+)`", name.strip()) for name in cells[0].split(",")] if len(cells) == 3 else []
        if names and all(name and name[1] in {*MAY_IMPORT, "cli"} for name in names):
            found |= {str(name and name[1]): set(re.findall(r"`(\w+)`", cells[2])) for name in names}
    assert found.pop("cli") == set()
    assert found == MAY_IMPORT


def test_no_modules_import_each_other() -> None:
    assert not cycle_of(PACKAGE)


def toy_package(folder: Path, files: dict[str, str]) -> Path:
    root = folder / "bwprof"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_cycle_is_found(tmp_path: Path) -> None:
    """Also one inside functions, over a package's own module, and over modules in between."""
    files = {
        "__init__.py": "from bwprof.plan import make\n",
        "plan.py": "def make():\n    from bwprof.runs import loop\n",
        "runs/__init__.py": "",
        "runs/loop.py": "import bwprof.text\nfrom bwprof.runs import local\n",
        "runs/local.py": "from bwprof.text import shown\n",
        "text.py": "import json\n",
    }
    assert not cycle_of(toy_package(tmp_path / "none", files))
    found = cycle_of(toy_package(tmp_path / "one", files | {"runs/local.py": "from bwprof.plan import make\n"}))
    assert set(found) == {"bwprof.plan", "bwprof.runs.loop", "bwprof.runs.local"}


def test_a_misplaced_import_is_found(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "text.py": "def shown():\n    from bwprof.results import schema\n",
        "errors.py": "from bwprof import _core, registry\n",
        "registry.py": "from bwprof import _core\n",
        "hardware.py": "",
        "measuring/grade.py": "from bwprof import hardware\nfrom bwprof.results import schema\n",
        "results/__init__.py": "",
        "results/schema.py": "from bwprof.cli import main\n",
        "sweep/__main__.py": "from bwprof.cli import main\n",
        "analysis/__init__.py": "from bwprof.roofs import limiter, obtain\n",
        "roofs/limiter.py": "",
        "roofs/obtain.py": "",
        "cli/__init__.py": "from bwprof.attic import box\n",
        "attic/box.py": "",
    }
    found = misplaced_imports(toy_package(tmp_path, files))
    assert [line.partition(":")[0] for line in found] == [
        "analysis/__init__.py",
        "attic/box.py",
        "errors.py",
        "measuring/grade.py",
        "results/schema.py",
        "text.py",
    ]


def test_every_snapshot_belongs_to_a_test() -> None:
    tests = Path(__file__).parent
    for snapshot in (tests / "snapshots").glob("*.txt"):
        file, test, *_ = re.split(r"[.\[-]", snapshot.name)
        assert f"def test_{test}(" in (tests / f"test_{file}.py").read_text(), snapshot.name
