"""Fixtures that every test may use: devices, taken from the registry, and the source tree."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from commands import Here

os.environ.setdefault("MPLBACKEND", "Agg")

# Cold samples rotate through, or flush, several times the last-level cache. A virtual machine may report its host's, of
# hundreds of megabytes: twice the time of all tests, to no test's gain. Most ask what becomes of rows, not how cold
# they were: for them the cache is smaller still (`ordinary_cache` is for the others).
_CACHE_MIB, _ORDINARY_MIB = "BWPROF_CPU_CACHE_MIB", "32"
os.environ[_CACHE_MIB] = "4"

# What is imported and collected stays until the end: no search for garbage goes through it (pytest_collection_finish).
# Of what tests make most is gone soon, so that a search at every seven hundredth object would be for nothing.
gc.disable()
gc.set_threshold(50_000, 20, 20)

# Started with signals ignored (`nohup ... &`), the tests of interrupts would wait in vain. What is caught here has its
# default in the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Roofs that tests measure are not those of the user whose machine this is. Set here, so that child processes have it.
_CACHE = tempfile.mkdtemp(prefix="bwprof-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHE
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)


def _link_bytecode(prefix: Path) -> None:
    """Bytecode beside the sources of Python and of packages is found where all bytecode is looked for, too."""
    for root in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}:
        for folder, folders, files in os.walk(root):
            inner = Path(folder)
            if inner.name != "__pycache__":
                folders[:] = [name for name in folders if name not in ("tests", "site-packages")]
                continue
            beside = prefix / inner.parent.relative_to(inner.anchor)
            beside.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # of another file system or somebody else: it is made anew
                for name in files:
                    os.link(inner / name, beside / name)


# What hundreds of child processes would each make again is made once, for both processes of `-n 2`: the fonts' list,
# and bytecode even where none may be written beside the sources.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # references are small, and a processor is a process's
    os.environ["MPLCONFIGDIR"] = str(Path(_CACHE, "matplotlib"))
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(_CACHE, "bytecode"))
        _link_bytecode(Path(_CACHE, "bytecode"))

try:
    from bwprof import _core
except ImportError as error:
    pytest.exit(f"bwprof._core cannot be imported ({error}); build it first: pip install -e '.[test]'", 2)

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOTS = Path(__file__).resolve().parent / "snapshots"
BACKENDS: dict[str, dict[str, Any]] = {backend["name"]: backend for backend in _core.backends()}
NO_CUDA = "" if BACKENDS["cuda"]["devices"] else f"no CUDA device: {BACKENDS['cuda']['reason']}"


def device_params() -> list[Any]:
    """One pytest parameter per device there is; a backend without one gives a parameter that is skipped, with why."""
    params = []
    for name, backend in BACKENDS.items():
        marks = [pytest.mark.cuda] if name == "cuda" else []
        if not backend["devices"]:
            reason = f"no {name} device: {backend['reason']}"
            params.append(pytest.param((name, 0), id=name, marks=[*marks, pytest.mark.skip(reason=reason)]))
        params += [pytest.param((name, d["index"]), id=f"{name}{d['index']}", marks=marks) for d in backend["devices"]]
    return params


# Files whose tests share what takes seconds to make: programs, a browser, kernels, pictures; some with each other.
_SHARING = (
    "build cublaslt cuda_host cupti layers library native notebooks packaging plot_kinds plot_names report_page".split()
)
_TOGETHER = {**{f"test_{name}.py": name for name in _SHARING}, "test_plan_call.py": "cupti", "test_nvtx.py": "cupti"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write texts of today: snapshots/, guide.md")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `-n 2`, tests go to the process that is free, a function's together, so that both end at the same time.

    What is made for a whole file is made in one of them. The order is that of the files: by their number of tests the
    longest, which stand alone, would be the last, and one process would wait for the other."""
    if config.getoption("dist") != "load":
        return None  # someone chose
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _TOGETHER.get(Path(file).name) or nodeid.partition("[")[0]

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of two processes that read all test files one begins with the last: of a fresh tree's files, whose assertions
    pytest rewrites, each then finds what the other has written."""
    report = yield
    everything = collector.config.args_source is not pytest.Config.ArgsSource.ARGS
    if isinstance(collector, pytest.Dir) and everything and os.environ.get("PYTEST_XDIST_WORKER", "")[-1:] == "1":
        with suppress(ImportError):
            import_module("matplotlib.pyplot")
        for found in reversed(report.result or ()):
            if isinstance(found, pytest.Module):
                with suppress(Exception, pytest.skip.Exception):  # which collecting it will meet again, and tell
                    found.obj  # noqa: B018
    return report


@pytest.fixture(autouse=True)
def _gpu_in_turns(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of several processes of tests one at a time has the GPU."""
    if NO_CUDA or "PYTEST_XDIST_WORKER" not in os.environ or not request.node.get_closest_marker("cuda"):
        yield
        return
    with (tmp_path_factory.getbasetemp().parent / "gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close what a test drew: pyplot warns, which is an error here, from twenty open figures on."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "sanitize" not in config.option.markexpr:  # others run the same kernels on more shapes
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("sanitize")])
        items[:] = [item for item in items if not item.get_closest_marker("sanitize")]
    if not NO_CUDA:
        return
    for item in items:
        if item.get_closest_marker("cuda") and not item.get_closest_marker("skip"):
            item.add_marker(pytest.mark.skip(reason=NO_CUDA))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _short_cases() -> Iterator[None]:
    """What a sweep in this process samples is enough for its rows, and no more: hardly any tiny case converges."""
    from bwprof.runs import loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "DEFAULT_CASE_SECONDS", 0.01)
        yield


_THREADS = "BWPROF_CPU_THREADS"
_GIVEN_THREADS = os.environ.get(_THREADS)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Cases on the CPU run on one thread, as do those of commands: for files whose subject is what becomes of rows.
    Before each cold sample all threads read more than the cache, and wait for each other beside another process, which
    disturbs many cases: in this process they have no second try, unless a test gives them the time."""
    from bwprof.runs import loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_THREADS, "1")
        patch.setattr(loop, "AGAIN_SHARE", 0.0)
        yield


@pytest.fixture(scope="module")
def ordinary_cache() -> Iterator[None]:
    """Devices opened meanwhile count with a cache as machines have it: for files on what is cold, or how fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_CACHE_MIB, _ORDINARY_MIB)
        yield


@contextmanager
def _whole_machine() -> Iterator[None]:
    """For a device that outlives a file: all threads, and an ordinary cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_CACHE_MIB, _ORDINARY_MIB)
        if _GIVEN_THREADS is None:
            patch.delenv(_THREADS, raising=False)
        else:
            patch.setenv(_THREADS, _GIVEN_THREADS)
        yield


@pytest.fixture(scope="session", params=device_params())
def device(request: pytest.FixtureRequest) -> Iterator[_core.Device]:
    """Each device in turn, open for the whole session; a test that closes a device opens its own."""
    backend, index = request.param
    with _whole_machine():
        opened = _core.Device(backend, index)
    with opened:
        yield opened


@pytest.fixture(scope="session")
def cpu() -> Iterator[_core.Device]:
    """The CPU, which is always there."""
    with _whole_machine():
        opened = _core.Device("cpu", 0)
    with opened:
        yield opened


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    """The command as a function, in the test's folder: its cases are brief, have no roofs, and run in this process."""
    from commands import Here, make_brief

    make_brief(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return Here(capsys)


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare a whole text with `tests/snapshots/FILE.TEST.txt`; `--update-snapshots` writes that file.

    A line `…` of the file stands for any number of lines, `…` at a line's end for the rest of the line.
    A test that compares several texts names the others: `snapshot(text, "name")`.
    """
    from recipes import fit_output

    file = Path(request.node.path).stem.removeprefix("test_")
    test = re.sub(r"[^\w.-]+", "-", request.node.name.removeprefix("test_"))

    def compare(text: str, name: str = "") -> None:
        path = SNAPSHOTS / f"{'.'.join(filter(None, (file, test, name)))}.txt"
        text = text.rstrip("\n") + "\n"
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        fitted = fit_output(before, text) if before else text
        if request.config.getoption("--update-snapshots"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(fitted, encoding="utf-8")
            return
        assert fitted == before, f"{path.name} differs: --update-snapshots writes today's text"

    return compare


@pytest.fixture(scope="session")
def source_tree() -> Path:
    """The checkout; tests of sources and of packaging are skipped where only the tests were copied."""
    if not (ROOT / "csrc").is_dir() or not (ROOT / "setup.py").is_file():
        pytest.skip("not a source checkout: csrc and setup.py are missing")
    return ROOT
