"""The processes of an A/B comparison: a side in its own interpreter or git revision, and what runs there.

The command asks, the side's process answers, both in JSON lines (`bwprof.runs.channel`).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bwprof import _core, hardware
from bwprof.experiments import ab_sides
from bwprof.experiments.ab_sides import ABSide, ABTask, SideError, SideInfo, describe_error, shift_memory
from bwprof.hardware import Choice
from bwprof.runs.channel import (
    ChildDiedError,
    ChildProcess,
    InterruptSource,
    RunTimeoutError,
    python_flags,
    search_path,
    serve,
)
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import quote_text

PROTOCOL = 1  # version of requests and answers

DEFAULT_TURN_SECONDS = 300.0  # for one answer, opening included

_PARENT_SECONDS = 1.0  # between two looks for the command
_CHECK_SECONDS = 0.05  # between two looks at a build

# ---- in the side's process ----


def main() -> None:
    """Answer requests until the command closes its end."""
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    serve(lambda _poll: ABWorker(), int(sys.argv[2]), int(sys.argv[3]))


def _exit_with(parent: int) -> None:
    """Exit when the command is gone, even while a function hangs."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


class ABWorker:
    """The side that answers the requests."""

    def __init__(self) -> None:
        self._device: _core.Device | None = None
        self._side: ABSide | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request: {"answer": what it asks for}, or {"error": text} for an exception."""
        try:
            return {"answer": self._answer(**request)}
        except (Exception, SystemExit) as error:  # a user's module may raise anything, and call sys.exit()
            return {"error": describe_error(error)}

    def _answer(self, do: str, **arguments: Any) -> Any:
        if do == "hello":
            versions = {"bwprof": _core.__version__, "python": platform.python_version()}
            return {"protocol": PROTOCOL, "versions": versions, "executable": sys.executable}
        if do == "make":
            return self._make(**arguments)
        if self._side is None:
            raise SideError("nothing was made")
        if do == "open":
            return asdict(self._side.open(**arguments))
        if do == "turn":
            return self._side.turn(**arguments)
        self._side.close()
        return None

    def _make(self, backend: str, index: int, threads: int | None, work: dict[str, Any], folder: str) -> dict[str, Any]:
        self._device = hardware.open_device(backend, index)
        if threads is not None:
            self._device.limit_threads(threads)
        with shift_memory(self._device):
            self._side = ab_sides.side_of(self._device, ab_sides.task_from_dict(work), Path(folder))
        return hardware.facts(self._device)

    def close(self) -> None:
        if self._side is not None:
            self._side.close()
        if self._device is not None:
            hardware.close_device(self._device)


# ---- in the command ----

# Any interpreter can run this; it reports an import error as its answer to the first request.
_START = """
import sys, json, os
if sys.path and sys.path[0] == "": del sys.path[0]
sys.path[:0] = json.loads(sys.argv[1])
try:
    from bwprof.experiments.ab_process import main
except BaseException as error:
    os.read(int(sys.argv[2]), 1 << 16)
    version = getattr(sys.modules.get("bwprof"), "__version__", None)
    text = "%s: %s" % (type(error).__name__, error)
    answer = {"missing": getattr(error, "name", None), "version": version, "error": text}
    os.write(int(sys.argv[3]), (json.dumps({"answer": answer}) + "\\n").encode())
    sys.exit(1)
main()
"""


@dataclass(frozen=True, slots=True)
class Revision:
    """A git revision, its commit, and its worktree."""

    name: str
    commit: str
    folder: Path

    @property
    def label(self) -> str:
        return f"revision {self.name} ({self.commit[:10]})"

    @property
    def paths(self) -> list[str]:
        """The first folders of the import path."""
        inner = self.folder / "src"
        return [*([str(inner)] if inner.is_dir() else []), str(self.folder)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a side runs: device, interpreter (None: this one), revision, and working folder (None: its own or here)."""

    backend: str
    index: int
    threads: int | None = None
    python: str | None = None
    revision: Revision | None = None
    folder: Path | None = None


SideMaker = Callable[[int, ABTask], "ProcessSide"]


class ProcessSide:
    """A side whose process starts when the side is first opened."""

    def __init__(
        self, task: ABTask, place: Place, stops: InterruptSource, *, turn_seconds: float = DEFAULT_TURN_SECONDS
    ) -> None:
        self._task, self._place, self._stops, self._turn_seconds = task, place, stops, turn_seconds
        self._python = place.python or sys.executable
        self._label = place.revision.label if place.revision else ""
        self._folder = place.folder or (place.revision.folder if place.revision else Path.cwd())
        self._child: ChildProcess | None = None
        self._renewable = True  # until the side reports otherwise
        self._hello: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}

    def open(self, timer: str | None = None) -> SideInfo:
        """Open the side; in a new process if only that gives it new buffers."""
        if not self._renewable:
            self.end()
        if self._child is None:
            self._start()
        info = SideInfo.from_dict(self._request("open", timer=timer))
        self._renewable = info.renewable
        return replace(info, renewable=True)

    def turn(self, samples: int) -> list[float]:
        return [float(sample) for sample in self._request("turn", samples=samples)]

    def close(self) -> None:
        """Free the side's buffers; its process stays for another opening."""
        if self._child is not None:
            self._request("close")

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    @property
    def environment(self) -> str:
        """Revision, versions and interpreter as text."""
        versions = self._hello.get("versions", {})
        texts = " ".join(f"{name} {versions[name]}" for name in ("python", "bwprof") if name in versions)
        return ", ".join(filter(None, (self._label, texts, str(self._hello.get("executable", "")))))

    @property
    def metadata(self) -> dict[str, Any]:
        """Versions, interpreter and revision for the run's metadata."""
        hello = {name: self._hello.get(name) for name in ("versions", "executable")}
        return hello | {"revision": self._label or None}

    def _start(self) -> None:
        place = self._place
        try:
            self._child = ChildProcess(self._command, str(self._folder))
        except OSError as error:
            raise SideError(f"{self._python} could not be started: {error.strerror or error}") from None
        self._hello = self._request("hello")
        if self._hello.get("protocol") != PROTOCOL:
            self.end()
            raise SideError(self._protocol_problem())
        where = {"backend": place.backend, "index": place.index, "threads": place.threads, "folder": str(self._folder)}
        self.facts = self._request("make", work=ab_sides.task_to_dict(self._task), **where)

    def _command(self, request_fd: int, answer_fd: int) -> list[str]:
        paths = self._place.revision.paths if self._place.revision else []
        if isinstance(self._task, ab_sides.Call) and not paths:
            paths.append(str(self._folder))  # as for `python -m`
        flags: list[str] = []
        if self._place.python is None:
            flags = python_flags()
            paths += search_path()
        return [self._python, *flags, "-c", _START, json.dumps(paths), str(request_fd), str(answer_fd)]

    def _request(self, do: str, **arguments: Any) -> Any:
        """Send a request and return its answer; SideError for an error and for no answer."""
        assert self._child is not None
        try:
            answer = self._child.ask({"do": do, **arguments}, self._stops, time.monotonic() + self._turn_seconds)
            if "error" not in answer:
                return answer["answer"]
        except ChildDiedError as error:
            hint = ": is it a Python of 3.11 or later?" if do == "hello" else ""
            problem = f"its process ({self._python}) {error}{hint}"
        except RunTimeoutError:
            limit = format_seconds(self._turn_seconds)
            problem = f"no answer within {limit}: its process was ended (--max-turn-seconds allows more)"
        except (LookupError, TypeError, ValueError, RecursionError) as error:  # not JSON, or no answer of a side
            problem = f"{self._python} gave an answer that cannot be read: {error}"
        except BaseException:
            self.end()
            raise
        else:
            raise SideError(str(answer["error"]))
        self.end()
        raise SideError(problem)

    def _protocol_problem(self) -> str:
        missing, version, error = (self._hello.get(name) for name in ("missing", "version", "error"))
        if missing == "bwprof":
            return f"{self._python} has no bwprof: install it there ({self._python} -m pip install bwprof)"
        if error:
            return f"the bwprof of {self._python} ({version}) cannot be imported: {error}"
        versions = f"{self._hello.get('protocol')}, this one {PROTOCOL}"
        return f"the bwprof of {self._python} speaks another protocol ({versions}): install one version"


# ---- interpreters and revisions ----


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Interpreters and revisions: none, one for both sides, or one for each; the repository and its build command."""

    python: tuple[str, ...] = ()
    revision: tuple[str, ...] = ()
    repository: str = "."
    build: str | None = None
    threads: int | None = None
    turn_seconds: float = DEFAULT_TURN_SECONDS

    def __post_init__(self) -> None:
        if len(self.python) > 2:
            raise ValueError(f"there are {len(self.python)} interpreters: allowed are one for both sides, or two")
        if len(self.revision) not in (0, 2):
            raise ValueError(f"revisions are {', '.join(self.revision)}: A's and B's are needed")
        if self.build is not None and not self.revision:
            raise ValueError("a build goes with revisions: name A's and B's")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}: allowed is 1 or more")
        paths = [shutil.which(name) for name in self.python]
        if None in paths:
            name = quote_text(self.python[paths.index(None)])
            raise ValueError(f"no interpreter '{name}': an executable file is needed, as an environment's bin/python")
        object.__setattr__(self, "python", tuple(os.path.abspath(path) for path in paths if path is not None))


@contextmanager
def open_places(
    request: PlaceRequest, choice: Choice, stops: InterruptSource, say: Callable[[str], object] = lambda _: None
) -> Iterator[tuple[SideMaker, bool]]:
    """Check out the revisions; give the function that makes side 0 or 1, and whether the places are the same."""
    pythons = request.python * 2 if len(request.python) == 1 else request.python or (None, None)
    checkout: AbstractContextManager[list[Revision]] = nullcontext([])
    if request.revision:
        checkout = checked_out(Path(request.repository), request.revision, request.build, stops.check, say)
    with checkout as revisions:

        def make(side: int, task: ABTask) -> ProcessSide:
            revision = revisions[side] if revisions else None
            place = Place(choice.backend, choice.index, request.threads, pythons[side], revision)
            return ProcessSide(task, place, stops, turn_seconds=request.turn_seconds)

        yield make, pythons[0] == pythons[1] and len({revision.commit for revision in revisions}) < 2


@contextmanager
def checked_out(
    repository: Path,
    names: Sequence[str],
    build: str | None,
    check: Callable[[], object],
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[list[Revision]]:
    """Check each revision out in a worktree and run the shell command `build` there; remove them after the block.

    The output of the command goes to standard error. `check` is called while it runs; an exception of it ends it.
    ValueError for an unknown repository or revision, and for a build that fails.
    """
    commits = _find_commits(repository, names)
    home = Path(tempfile.mkdtemp(prefix="bwprof-ab-"))
    try:
        sides = zip("AB", names, commits, strict=True)
        revisions = {side: Revision(name, commit, home / side) for side, name, commit in sides}
        for side, revision in revisions.items():
            check()
            target = [str(revision.folder), revision.commit]
            added = _git(repository, "worktree", "add", "--quiet", "--detach", *target)
            if added.returncode:
                error = quote_text(added.stderr.strip())
                raise ValueError(f"side {side}: revision {quote_text(revision.name)}: {error}")
            if build is not None:
                say(f"building side {side}, {revision.label}")
                _build(build, revision.folder, side, check)
        yield [*revisions.values()]
    finally:
        remove = ("worktree", "remove", "--force", "--force")
        left = [side for side in "AB" if _git(repository, *remove, str(home / side)).returncode]
        shutil.rmtree(home, ignore_errors=True)
        for side in left:  # git forgets a worktree without a folder; `prune` would forget those of others, too
            _git(repository, *remove, str(home / side))


def _find_commits(repository: Path, names: Sequence[str]) -> list[str]:
    if shutil.which("git") is None:
        raise ValueError("revisions need git, which is not on the PATH")
    if _git(repository, "rev-parse", "--show-toplevel").returncode:
        raise ValueError(f"{quote_text(repository)} is no git repository: --repo names one")
    commits = []
    for side, name in zip("AB", names, strict=False):
        found = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if found.returncode:
            raise ValueError(f"side {side}: {quote_text(repository)} has no revision '{quote_text(name)}'")
        commits.append(found.stdout.strip())
    return commits


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def _build(command: str, folder: Path, side: str, check: Callable[[], object]) -> None:
    process = subprocess.Popen(command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=2, process_group=0)
    try:
        while process.poll() is None:
            check()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CHECK_SECONDS)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with its children
            process.wait()
    if process.returncode:
        code = process.returncode
        reason = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise ValueError(f"side {side}: the build ended with {reason}: {quote_text(command)}")
