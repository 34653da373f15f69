"""A side in a process of its own, in whatever interpreter: asked, waited for, and ended when it does not come back."""

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
from bwprof.runs import child as runs_worker
from bwprof.runs.child import Child, ChildDiedError
from bwprof.runs.interrupts import InterruptSource
from bwprof.runs.loop import RunTimeoutError
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import quote_text

_ANSWERS = {"make": "facts", "open": "opened", "turn": "samples"}

DEFAULT_TURN_SECONDS = 300.0  # for one answer, opening included

# Any interpreter can run this; what it cannot do it says in the words of the protocol, once it was asked.
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
    said = {"missing": getattr(error, "name", None), "version": version, "error": text}
    os.write(int(sys.argv[3]), (json.dumps(said) + "\\n").encode())
    sys.exit(1)
main()
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a side runs: an interpreter (None: this one), the folder that it is in, what is imported from first, and
    the device.
    """

    backend: str
    index: int
    threads: int | None = None
    python: str | None = None
    folder: Path | None = None
    paths: tuple[str, ...] = ()
    label: str = ""  # what else people should know of it: a revision


def check_python(given: str) -> str:
    """An interpreter's path; ValueError where there is none."""
    found = shutil.which(given)
    if found is None:
        why = "it cannot be executed" if Path(given).is_file() else "there is no such file"
        said = "an environment's bin/python is needed" if Path(given).is_dir() else why
        raise ValueError(f"no interpreter '{quote_text(given)}': {said}")
    return os.path.abspath(found)


class ProcessSide:
    """A side whose process is started when it is first opened."""

    def __init__(
        self, what: ab_sides.ABTask, place: Place, stops: InterruptSource, *, turn_seconds: float = DEFAULT_TURN_SECONDS
    ) -> None:
        self._work, self._place, self._stops, self._turn_seconds = what, place, stops, turn_seconds
        self._child: Child | None = None
        self._renewable = True  # as far as is known
        self.label = place.label
        self.hello: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}

    def open(self, timer: str | None = None) -> SideInfo:
        """Open the side in its process, which is started for it: anew, where only that gives it other buffers."""
        if not self._renewable:
            self.end()
        if self._child is None:
            self._start()
        opened = SideInfo.from_dict(self._asked({"do": "open", "timer": timer})["opened"])
        self._renewable = opened.renewable
        return replace(opened, renewable=True)

    def turn(self, samples: int) -> list[float]:
        """So many samples."""
        return [float(found) for found in self._asked({"do": "turn", "samples": samples})["samples"]]

    def close(self) -> None:
        """Free what it holds; the process stays, for another opening."""
        if self._child is not None:
            self._asked({"do": "close"})

    def end(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _start(self) -> None:
        folder = self._place.folder or Path.cwd()
        try:
            self._child = Child(self._command, str(folder))
        except OSError as error:
            raise SideError(f"{self._python} could not be started: {error.strerror or error}") from None
        self.hello = self._asked({"do": "hello"}, starting=True)
        if self.hello.get("protocol") != PROTOCOL:
            self.end()
            raise SideError(self._why_not())
        self.facts = self._asked(
            {
                "do": "make",
                "backend": self._place.backend,
                "index": self._place.index,
                "threads": self._place.threads,
                "work": ab_sides.task_to_dict(self._work),
                "folder": str(folder),
            }
        )["facts"]

    @property
    def _python(self) -> str:
        return self._place.python or sys.executable

    def _command(self, request_fd: int, answer_fd: int) -> list[str]:
        paths = [*self._place.paths]
        if isinstance(self._work, ab_sides.Call) and not paths:
            paths.append(str(self._place.folder or Path.cwd()))  # as `python -m` has it
        flags: list[str] = []
        if self._place.python is None:
            line = runs_worker.command_line(request_fd, answer_fd)
            flags = line[1 : line.index("-c")]
            paths += json.loads(line[-3])
        return [self._python, *flags, "-c", _START, json.dumps(paths), str(request_fd), str(answer_fd)]

    def _asked(self, request: dict[str, Any], *, starting: bool = False) -> dict[str, Any]:
        """The answer; SideError for one that is an error, and when none comes."""
        assert self._child is not None
        try:
            answer = self._child.ask(request, self._stops, time.monotonic() + self._turn_seconds)
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
        except (ValueError, RecursionError):  # as JSON has it
            self.end()
            raise SideError(f"{self._python} answered with something that is no JSON") from None
        except BaseException:
            self.end()
            raise
        if "error" in answer and not starting:
            raise SideError(str(answer["error"]))
        wanted = _ANSWERS.get(request["do"])
        if wanted is not None and wanted not in answer:
            self.end()
            raise SideError(f"{self._python} answered with something else than was asked")
        return answer

    def _why_not(self) -> str:
        missing, version = self.hello.get("missing"), self.hello.get("version")
        if missing == "bwprof":
            return f"{self._python} has no bwprof: install it there ({self._python} -m pip install bwprof)"
        if isinstance(missing, str) and missing.startswith("bwprof.experiments"):
            return (
                f"the bwprof of {self._python} ({version}) knows nothing of paired measurements: install this version"
            )
        if "error" in self.hello:
            return f"bwprof cannot be imported in {self._python}: {self.hello['error']}"
        theirs = self.hello.get("protocol")
        return (
            f"the bwprof of {self._python} speaks another protocol ({theirs}, this one {PROTOCOL}): install one version"
        )
