"""A side in its own process and interpreter: send requests, wait for answers, end the process if none comes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bwprof.experiments import ab_sides
from bwprof.experiments.ab_sides import SideError, SideInfo
from bwprof.experiments.ab_worker import PROTOCOL
from bwprof.runs.channel import (
    ChildDiedError,
    ChildProcess,
    InterruptSource,
    RunTimeoutError,
    python_flags,
    search_path,
)
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import quote_text

_ANSWER_KEYS = {"make": "facts", "open": "opened", "turn": "samples"}

DEFAULT_TURN_SECONDS = 300.0  # for one answer, opening included

# Any interpreter can run this; it reports an import error as its answer to the first request.
_START = """
import sys, json, os
if sys.path and sys.path[0] == "": del sys.path[0]
sys.path[:0] = json.loads(sys.argv[1])
try:
    from bwprof.experiments.ab_worker import main
except BaseException as error:
    os.read(int(sys.argv[2]), 1 << 16)
    version = getattr(sys.modules.get("bwprof"), "__version__", None)
    text = "%s: %s" % (type(error).__name__, error)
    answer = {"missing": getattr(error, "name", None), "version": version, "error": text}
    os.write(int(sys.argv[3]), (json.dumps(answer) + "\\n").encode())
    sys.exit(1)
main()
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a side runs: device, interpreter (None: this one), working folder, and first folders of the import path."""

    backend: str
    index: int
    threads: int | None = None
    python: str | None = None
    folder: Path | None = None
    paths: tuple[str, ...] = ()
    label: str = ""  # for people: the revision


def check_python(name: str) -> str:
    """Return an interpreter's path; ValueError if there is none."""
    path = shutil.which(name)
    if path is None:
        why = "it cannot be executed" if Path(name).is_file() else "there is no such file"
        why = "an environment's bin/python is needed" if Path(name).is_dir() else why
        raise ValueError(f"no interpreter '{quote_text(name)}': {why}")
    return os.path.abspath(path)


class ProcessSide:
    """A side whose process starts when the side is first opened."""

    def __init__(
        self, task: ab_sides.ABTask, place: Place, stops: InterruptSource, *, turn_seconds: float = DEFAULT_TURN_SECONDS
    ) -> None:
        self._task, self._place, self._stops, self._turn_seconds = task, place, stops, turn_seconds
        self._python = place.python or sys.executable
        self._child: ChildProcess | None = None
        self._renewable = True  # until the side reports otherwise
        self.label = place.label
        self.hello: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}

    def open(self, timer: str | None = None) -> SideInfo:
        """Open the side; in a new process if only that gives it new buffers."""
        if not self._renewable:
            self.end()
        if self._child is None:
            self._start()
        info = SideInfo.from_dict(self._request({"do": "open", "timer": timer})["opened"])
        self._renewable = info.renewable
        return replace(info, renewable=True)

    def turn(self, samples: int) -> list[float]:
        return [float(sample) for sample in self._request({"do": "turn", "samples": samples})["samples"]]

    def close(self) -> None:
        """Free the side's buffers; its process stays for another opening."""
        if self._child is not None:
            self._request({"do": "close"})

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    @property
    def environment(self) -> str:
        """Revision, versions and interpreter as text."""
        versions = self.hello.get("versions", {})
        texts = " ".join(f"{name} {versions[name]}" for name in ("python", "bwprof") if name in versions)
        return ", ".join(filter(None, (self.label, texts, str(self.hello.get("executable", "")))))

    @property
    def metadata(self) -> dict[str, Any]:
        """Versions, interpreter and revision for the run's metadata."""
        hello = {name: self.hello.get(name) for name in ("versions", "executable")}
        return hello | {"revision": self.label or None}

    def _start(self) -> None:
        place, folder = self._place, self._place.folder or Path.cwd()
        try:
            self._child = ChildProcess(self._command, str(folder))
        except OSError as error:
            raise SideError(f"{self._python} could not be started: {error.strerror or error}") from None
        self.hello = self._request({"do": "hello"}, starting=True)
        if self.hello.get("protocol") != PROTOCOL:
            self.end()
            raise SideError(self._protocol_problem())
        task = {"work": ab_sides.task_to_dict(self._task), "folder": str(folder)}
        request = {"do": "make", "backend": place.backend, "index": place.index, "threads": place.threads, **task}
        self.facts = self._request(request)["facts"]

    def _command(self, request_fd: int, answer_fd: int) -> list[str]:
        paths = [*self._place.paths]
        if isinstance(self._task, ab_sides.Call) and not paths:
            paths.append(str(self._place.folder or Path.cwd()))  # as for `python -m`
        flags: list[str] = []
        if self._place.python is None:
            flags = python_flags()
            paths += search_path()
        return [self._python, *flags, "-c", _START, json.dumps(paths), str(request_fd), str(answer_fd)]

    def _request(self, request: dict[str, Any], *, starting: bool = False) -> dict[str, Any]:
        """Send a request and return its answer; SideError for an error and for no answer."""
        assert self._child is not None
        try:
            answer = self._child.ask(request, self._stops, time.monotonic() + self._turn_seconds)
            key = _ANSWER_KEYS.get(request["do"])
            if key is not None and key not in answer and "error" not in answer:
                raise ValueError(f"no {key}")
        except ChildDiedError as error:
            self.end()
            hint = ": is it a Python of 3.11 or later?" if starting else ""
            raise SideError(f"its process ({self._python}) {error}{hint}") from None
        except RunTimeoutError:
            self.end()
            limit = format_seconds(self._turn_seconds)
            raise SideError(
                f"no answer within {limit}: its process was ended (--max-turn-seconds allows more)"
            ) from None
        except (ValueError, RecursionError) as error:  # not JSON, or not the answer to the request
            self.end()
            raise SideError(f"{self._python} gave an answer that cannot be read: {error}") from None
        except BaseException:
            self.end()
            raise
        if "error" in answer and not starting:
            raise SideError(str(answer["error"]))
        return answer

    def _protocol_problem(self) -> str:
        missing, version = self.hello.get("missing"), self.hello.get("version")
        if missing == "bwprof":
            return f"{self._python} has no bwprof: install it there ({self._python} -m pip install bwprof)"
        if isinstance(missing, str) and missing.startswith("bwprof.experiments"):
            return f"the bwprof of {self._python} ({version}) has no A/B comparisons: install this version"
        if "error" in self.hello:
            return f"bwprof cannot be imported in {self._python}: {self.hello['error']}"
        theirs = self.hello.get("protocol")
        return (
            f"the bwprof of {self._python} speaks another protocol ({theirs}, this one {PROTOCOL}): install one version"
        )
