"""The child process that runs a command's cases: JSON lines in, JSON lines out, one answer per request.

Its standard output is the command's standard error, so that nothing a library prints can get into the data.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from bwprof import _core
from bwprof.measuring.chain import Chain
from bwprof.measuring.row import Context
from bwprof.measuring.spec import Spec
from bwprof.roofs import Roofs, Wanted
from bwprof.runs.executors.local import LocalExecutor
from bwprof.terminal import spelling

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from bwprof.runs.executors.worker import main; main()"
)
_FLAGS = {"-I": "isolated", "-E": "ignore_environment", "-s": "no_user_site", "-S": "no_site"}


def command_line(request_fd: int, answer_fd: int) -> list[str]:
    """How this process is started: with the command's own search path, and with nothing of the working directory."""
    passed_on = [option for option, name in _FLAGS.items() if getattr(sys.flags, name)]
    path = json.dumps([folder for folder in sys.path if isinstance(folder, str)])
    return [sys.executable, "-P", *passed_on, "-c", _START, path, str(request_fd), str(answer_fd)]


def main() -> None:
    """Serve requests until the command closes its end."""
    request_fd, answer_fd = int(sys.argv[2]), int(sys.argv[3])
    serve(Worker, request_fd, answer_fd)


class Answering(Protocol):
    """What is asked, line by line."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        ...

    def close(self) -> None:
        """Nobody asks any more."""
        ...


def serve(make: Callable[[Callable[[], None]], Answering], request_fd: int, answer_fd: int) -> None:
    """Answer every line of `request_fd` with one line on `answer_fd`, until the command closes its end.

    What `make` makes answers; it gets a function to call now and then, which ends an orphan.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides when to stop
    sys.stderr = spelling(sys.stderr)
    logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", level=logging.WARNING)
    worker = make(_stop_when_orphaned(os.getppid()))
    with os.fdopen(request_fd, encoding="utf-8") as requests, os.fdopen(answer_fd, "w", encoding="utf-8") as answers:
        for line in requests:
            if not line.endswith("\n"):  # the command ended in the middle of it
                break
            answer = json.dumps(worker.answer(json.loads(line))) + "\n"
            try:
                answers.write(answer)
                answers.flush()
            except BrokenPipeError:
                os._exit(1)  # nobody is left to hear of it
    worker.close()


def _stop_when_orphaned(parent: int) -> Callable[[], None]:
    """A poll function that ends this process when the command that it works for has gone."""

    def poll() -> None:
        if os.getppid() != parent:
            os._exit(1)

    return poll


class Worker:
    """The state behind the requests: an executor and its run's context."""

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll = poll
        self._executor: LocalExecutor | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; errors that people should read come back as {"error": ...}."""
        try:
            if request["do"] == "open":
                self._executor = LocalExecutor(
                    request["backend"], request["index"], poll=self._poll, nvtx=request.get("nvtx")
                )
                return {"facts": self._executor.open()}
            if self._executor is None:
                return {"error": "no device is open"}
            if request["do"] == "roofs":
                found = self._executor.obtain_roofs(Wanted(**request["wanted"]), request["deadline"])
                return {"roofs": found.to_dict() if found else None}
            if request["do"] == "context":
                self._executor.set_context(context_from_dict(request["context"]))
                return {}
            # The monotonic clock is the system's: the command's deadline is this process's too.
            kind: type[Spec | Chain] = Chain if request["do"] == "chain" else Spec
            spec = kind.from_dict(request["spec"])
            outcome = self._executor.measure(spec, request["max_seconds"], request["deadline"])
            told = outcome.references and asdict(outcome.references)
            return {"row": outcome.row, "samples": outcome.samples, "fatal": outcome.fatal, "references": told}
        except (_core.UnavailableError, _core.DeviceError, ValueError, MemoryError, OSError) as error:
            return {"error": str(error) or type(error).__name__}

    def close(self) -> None:
        """Close the device."""
        if self._executor is not None:
            self._executor.close()


def context_to_dict(context: Context) -> dict[str, Any]:
    """Plain types for JSON."""
    return {**asdict(context), "roofs": context.roofs.to_dict() if context.roofs else None}


def context_from_dict(found: dict[str, Any]) -> Context:
    """The inverse of `context_to_dict`."""
    return Context(**{**found, "roofs": Roofs.from_dict(found["roofs"]) if found["roofs"] else None})
