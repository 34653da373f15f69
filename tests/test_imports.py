"""What modules of the Python package may import and name: CONTRIBUTING's table of parts, checked on sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from bwprof import _core

PACKAGE = Path(_core.__file__).resolve().parent

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
    "formats": {"_core", "registry"},
    "hardware": {"_core", "registry"},
    "results": {"_core", "registry"},
    "roofs": {"_core", "costs", "hardware", "results"},
    "measuring": _WORKING | {"costs", "results", "roofs"},
    "case": _WORKING | {"costs", "formats", "measuring", "results", "roofs"},
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

pytestmark = pytest.mark.usefixtures("source_tree")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """A file of Python, its module first."""
    return list(ast.walk(ast.parse(path.read_text())))


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
        is_main, lazy = path.name == "__main__.py", {""} if path.name == "__init__.py" else set[str]()
        for name in sorted(imports_of(path, known)):
            other, inner = part_of(name), name.partition(".")[2]
            pure = PURE_MODULES.get(part, set())
            if other in {part_of(f".{found}") for found in pure} and inner not in pure:
                wrong.append(f"{where}: may import {', '.join(sorted(pure))} only of those parts, not {name}")
            elif alone is not None and inner not in alone:
                wrong.append(f"{where}: may import {', '.join(sorted(alone))} only, not {name}")
            elif other not in {part, *MAY_IMPORT[part], *ground, *lazy} and not (is_main and other == "cli"):
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


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def toy_package(folder: Path, files: dict[str, str]) -> Path:
    return write_tree(folder / "bwprof", files)


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
