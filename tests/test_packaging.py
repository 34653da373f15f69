"""What is shipped: the sdist's files, a CPU-only build from it, the wheel's content, what the module depends on."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from bwprof import _core

SHIPPED_FOLDERS = (".ci", "bwprof", "csrc", "notebooks", "tests")
SHIPPED_FILES = (
    ".clang-format",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "pyproject.toml",
    "setup.py",
)
LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "*.so", ".ipynb_checkpoints")
# The system's own libraries; everything else is linked in or opened on first use.
ALLOWED_NEEDED = re.compile(r"(libc|libm|libdl|librt|libpthread|ld-linux.*|libpython.*|lib[a-z]*san)\.so.*")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def backend_call(hook: str, output: Path, tree: Path, **environment: str) -> Path:
    """A PEP 517 hook of setuptools, called as a build front end does, without its isolation: no network needed."""
    script = f"from setuptools import build_meta; print('made:' + build_meta.{hook}({str(output)!r}))"
    printed = run(sys.executable, "-c", script, cwd=tree, **environment)
    return output / printed.rpartition("made:")[2].strip()


@dataclass(frozen=True)
class Package:
    version: str
    expected: set[str]  # files of the source tree that are worth shipping
    sdist: Path
    unpacked: Path
    wheel: Path
    clean: dict[str, str]  # the environment that it was built in
    installed: Path


def lay_objects(source_tree: Path, unpacked: Path) -> dict[str, str]:
    """The checkout's CPU-only objects, where there are any, for the build from the sdist, and the environment that they
    were built in. setup.py takes those whose every source and header is there, as old as it was, and compiles the
    others. Without them: what is shipped is the question, not how fast it is."""
    cflags = os.environ.get("CFLAGS", "")
    shared = Path("build", f"c-{platform.machine()}")
    own = Path("build", f"cpu-{platform.machine()}-{sys.implementation.cache_tag}")
    record = source_tree / shared / "base/status.command"
    if record.is_file():
        words = shlex.split(record.read_text().splitlines()[-1])
        flags = words[words.index("-DNDEBUG") + 1 : words.index("-MMD")]
        strict = flags[:1] == ["-Werror"]
        if flags[strict:] == shlex.split(cflags):
            for objects in (shared, own):
                if (source_tree / objects).is_dir():
                    shutil.copytree(source_tree / objects, unpacked / objects)
            return {"BWPROF_WERROR": str(int(strict))}
    return {"CFLAGS": f"{cflags} -O0"}


@pytest.fixture(scope="session")
def package(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """sdist of a clean copy -> CPU-only wheel from the unpacked sdist -> installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("packaging")
    tree = folder / "tree"
    tree.mkdir()
    for name in SHIPPED_FOLDERS:
        if (source_tree / name).is_dir():
            shutil.copytree(source_tree / name, tree / name, ignore=LEFT_BEHIND)
    for name in SHIPPED_FILES:
        shutil.copy(source_tree / name, tree / name)
    expected = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}

    sdist = backend_call("build_sdist", folder, tree)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    clean = {"BWPROF_CUDA": "0", "BWPROF_SANITIZE": "", "BWPROF_CUDA_ARCHS": ""}
    clean |= lay_objects(source_tree, unpacked)
    wheel = backend_call("build_wheel", folder, unpacked, **clean)
    installed = folder / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-index", "--no-deps"]
    run(*pip, "--target", installed, wheel, cwd=folder)
    declared = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"]
    return Package(declared, expected, sdist, unpacked, wheel, clean, installed)


def test_sdist_carries_every_source_file(package: Package) -> None:
    with tarfile.open(package.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
    assert sorted(package.expected - names) == []
    extra = {name for name in names - package.expected if Path(name).suffix and ".egg-info" not in name}
    assert extra <= {"setup.cfg"}, sorted(extra)


def test_wheel_carries_the_package_and_nothing_else(package: Package) -> None:
    with zipfile.ZipFile(package.wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = f"bwprof-{package.version}.dist-info/"
    modules = {name for name in package.expected if name.startswith("bwprof/")}
    extension = {name for name in names if re.fullmatch(r"bwprof/_core\.[^/]*\.so", name)}
    assert len(extension) == 1
    library = {"bwprof/lib/libbwprof.so"}
    assert {name for name in names if not name.startswith(info)} == modules | extension | library
    assert {"bwprof/include/bwprof.h", "bwprof/include/bwprof.hpp"} <= names
    assert "bwprof/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in names)
    assert not package.wheel.name.endswith("none-any.whl")


def test_cpu_only_build_runs_from_another_folder(package: Package, tmp_path: Path) -> None:
    script = (
        "import json, bwprof\n"
        "from bwprof import _core\n"
        "first = _core.operations()[0]\n"
        "small = {first['params'][0]['name']: 4099}\n"
        "with _core.Device('cpu') as device, _core.Case(device, first['name'], 'fp32', small) as case:\n"
        "    verified = case.verify()['verified']\n"
        "cuda = [b for b in _core.backends() if b['name'] == 'cuda'][0]\n"
        "print(json.dumps([bwprof.__file__, _core.__file__, _core.__version__, _core.build, cuda, verified]))\n"
    )
    path = str(package.installed)
    printed = run(sys.executable, "-c", script, cwd=tmp_path, PYTHONPATH=path)
    python_file, core_file, core_version, build, cuda, verified = json.loads(printed.splitlines()[-1])
    assert python_file.startswith(path)
    assert core_file.startswith(path)
    assert core_version == package.version
    assert build["cuda"] is False
    assert "BWPROF_CUDA=0" in build["cuda_reason"]
    assert (cuda["built"], cuda["devices"]) == (False, [])
    assert cuda["reason"]
    assert verified is True


def test_an_engine_links_to_the_wheels_library(package: Package, tmp_path: Path) -> None:
    """FP32: (2 x 5 + 3 x 5) x 4 bytes read, 2 x 3 x 4 written, 2 x 2 x 3 x 5 FLOPs."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} was not found")
    (tmp_path / "engine.c").write_text(
        "#include <bwprof.h>\n"
        "int main(void) {\n"
        "    uint64_t read, written, flops;\n"
        '    if (bwprof_gemm_cost(2, 3, 5, "fp32", &read, &written, &flops)) return 1;\n'
        '    printf("%d %d %d\\n", (int)read, (int)written, (int)flops);\n'
        "    return 0;\n"
        "}\n"
    )
    command = [sys.executable, "-m", "bwprof.config", "--cflags", "--libs"]
    flags = run(*command, cwd=tmp_path, PYTHONPATH=str(package.installed)).split()
    assert str(package.installed / "bwprof/include") in flags[0]
    run(*compiler, "engine.c", *flags, "-o", "engine", cwd=tmp_path)
    assert run(tmp_path / "engine", cwd=tmp_path) == "100 24 60\n"


def test_an_editable_install_is_a_path(package: Package, tmp_path: Path) -> None:
    """As a finder of setuptools' it would come after the folder of a script that lies beside the clone."""
    wheel = backend_call("build_editable", tmp_path, package.unpacked, **package.clean)
    with zipfile.ZipFile(wheel) as archive:
        paths = [name for name in archive.namelist() if name.endswith((".pth", ".py"))]
        assert [archive.read(name).decode().strip() for name in paths] == [str(package.unpacked)]
        assert paths[0].endswith(".pth")


def test_console_script(package: Package, tmp_path: Path) -> None:
    script = package.installed / "bin" / "bwprof"
    help_text = run(sys.executable, script, "--help", cwd=tmp_path, PYTHONPATH=str(package.installed))
    assert "usage: bwprof" in help_text


UNRELATED = """
import sys

def test_nothing_of_it_is_there(pytestconfig):
    assert pytestconfig.getoption("bwprof_save") is None
    ours = {name for name in sys.modules if name.startswith("bwprof.")}  # other people's plugins may import NumPy
    assert ours == {"bwprof.pytest_plugin", "bwprof.pytest_plugin.entry", "bwprof.pytest_plugin.plugin"}
"""
USING = """
def test_it(bandwidth):
    row = bandwidth("stream_copy", elements=4099, device="cpu", cache="hot", roofs=False, max_seconds=0.01)
    assert row.status == "ok"
"""
SESSIONS = """
import sys
import bwprof  # before pytest can rewrite its assertions
import pytest

def session(*options):
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-W", "error", *options]))

codes = [session("unrelated.py"), session("-p", "bwprof.pytest_plugin.plugin", "unrelated.py"), session("named")]
codes += [session("using.py"), session("-p", "bwprof", "using.py"), session("-p", "no:bwprof", "using.py")]
print(bwprof.__file__, codes, sep="\\n")
"""


def test_pytest_finds_the_plugin_in_the_wheel(package: Package, tmp_path: Path) -> None:
    """In sessions of one process, which has imported the package; warnings are errors."""
    (tmp_path / "named").mkdir()
    for name, text in {
        "unrelated.py": UNRELATED,
        "using.py": USING,
        "named/conftest.py": 'pytest_plugins = ["bwprof.pytest_plugin.plugin"]\n',
        "named/test_it.py": UNRELATED,
    }.items():
        (tmp_path / name).write_text(text)
    # These are no workers of pytest-xdist, which other people's plugins would warn of.
    alone = {name: "" for name in os.environ if name.startswith("PYTEST_XDIST")}
    printed = run(sys.executable, "-c", SESSIONS, cwd=tmp_path, PYTHONPATH=str(package.installed), **alone)
    file, codes = printed.splitlines()[-2:]
    assert file.startswith(str(package.installed))
    assert json.loads(codes) == [0, 0, 0, 0, 0, 1], printed
    assert "fixture 'bandwidth' not found" in printed


@pytest.fixture(params=["this environment's", "the wheel's"])
def binaries(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """The module and the library."""
    if shutil.which("readelf") is None or shutil.which("nm") is None:
        pytest.skip("readelf and nm (binutils) are not installed")
    folder = Path(_core.__file__).parent
    if request.param == "the wheel's":
        package: Package = request.getfixturevalue("package")
        folder = package.installed / "bwprof"
    return folder / Path(_core.__file__).name, folder / "lib/libbwprof.so"


def dynamic_section(file: Path) -> list[tuple[str, str]]:
    """Return its entries that have text: tag and text."""
    listing = run("readelf", "-dW", file, cwd=file.parent)
    return re.findall(r"\((\w+)\).*\[(.*)\]", listing)


def symbols(file: Path, option: str) -> set[str]:
    """Return the dynamic symbols as nm prints them, with versions."""
    listing = run("nm", "-D", option, file, cwd=file.parent)
    return {line.split()[-1] for line in listing.splitlines()}


def test_both_need_the_system_only(binaries: tuple[Path, Path]) -> None:
    """No libcuda, libcudart, libcublas, libcupti, libnvidia-ml, and no libstdc++."""
    module, library = map(dynamic_section, binaries)
    for section in (module, library):
        needed = [text for tag, text in section if tag == "NEEDED"]
        assert "libc.so.6" in needed
        others = {name for name in needed if not ALLOWED_NEEDED.fullmatch(name)}
        assert others == ({"libbwprof.so"} if section is module else set())
    assert [entry for entry in module if entry[0] in ("RPATH", "RUNPATH")] == [("RPATH", "$ORIGIN/lib")]
    assert not {tag for tag, _ in library} & {"RPATH", "RUNPATH"}


def test_module_exports_its_init_function_only(binaries: tuple[Path, Path]) -> None:
    assert symbols(binaries[0], "--defined-only") == {"PyInit__core"}


def test_library_exports_privately_what_the_module_needs(binaries: tuple[Path, Path]) -> None:
    """In a node whose name only the two share; what engines use is in another."""
    module, library = binaries
    needed = {name for name in symbols(module, "--undefined-only") if name.startswith("bw")}
    assert len(needed) >= 70
    private = {name.replace("@@", "@") for name in symbols(library, "--defined-only") if "@@BWPROF_PRIVATE_" in name}
    assert private == needed
    assert len({name.partition("@")[2] for name in private}) == 1


def test_a_process_has_one_copy_of_the_library() -> None:
    """Also when an engine loads it by its path, before or after the module."""
    script = (
        "import ctypes, os, sys; sys.path.insert(0, sys.argv[1])\n"
        "def engine(): return ctypes.CDLL(sys.argv[2]).bwprof_abi_version()\n"
        "def module(): import bwprof._core; return len(bwprof._core.operations())\n"
        "for name in sys.argv[3:]: assert globals()[name]() > 0\n"
        "lines = [line.split() for line in open('/proc/self/maps')]\n"
        "print(len({line[4] for line in lines if line[5:] and line[5].endswith('libbwprof.so')}))\n"
    )
    folder = Path(_core.__file__).parent
    for order in (("engine", "module"), ("module", "engine")):
        command = (sys.executable, "-c", script, folder.parent, folder / "lib/libbwprof.so", *order)
        assert run(*command, cwd=folder).splitlines()[-1] == "1"
