"""Runs cases in a child process, so that one that crashes costs its own row and nothing else."""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from bwprof import _core
from bwprof.roofs import Roofs, Wanted
from bwprof.sweep import worker
from bwprof.sweep.interrupts import Interrupts
from bwprof.sweep.loop import OutOfTimeError
from bwprof.sweep.measure import Context, Outcome, unmeasured
from bwprof.sweep.plan import Spec

_log = logging.getLogger("bwprof.sweep")

_GRACE_SECONDS = 3.0  # for an answer to come back after its time is over
_END_SECONDS = 2.0  # for the child to go by itself


class ChildDiedError(Exception):
    """The child process ended instead of answering; the text says how."""


class ChildExecutor:
    """An executor whose device lives in a child process that is started anew when it dies."""

    def __init__(self, backend: str, index: int, interrupts: Interrupts) -> None:
        self._backend = backend
        self._index = index
        self._interrupts = interrupts
        self._child: _Child | None = None
        self._context: Context | None = None

    def open(self, deadline: float | None) -> dict[str, Any]:
        """The device's facts; UnavailableError when it cannot be opened, OutOfTimeError when it was not in time."""
        try:
            answer = self._ask({"do": "open", "backend": self._backend, "index": self._index}, deadline)
        except ChildDiedError as error:
            raise _core.UnavailableError(f"the process that opens the device {error}") from None
        if "error" in answer:
            raise _core.UnavailableError(answer["error"])
        facts: dict[str, Any] = answer["facts"]
        return facts

    def obtain_roofs(self, wanted: Wanted, deadline: float | None) -> Roofs | None:
        """The device's roofs, stored or new; None, with a warning, when measuring them goes wrong."""
        request = {"do": "roofs", "wanted": asdict(wanted), "deadline": deadline}
        try:
            answer = self._ask(request, _with_grace(deadline))
        except OutOfTimeError:
            _log.warning("the roofs could not be measured: the process did not come back in time and was ended")
            return None
        except ChildDiedError as error:
            _log.warning("the roofs could not be measured: the process %s", error)
            return None
        if "error" in answer:
            _log.warning("the roofs could not be measured: %s", answer["error"])
            return None
        return Roofs.from_dict(answer["roofs"]) if answer["roofs"] else None

    def set_context(self, context: Context) -> None:
        """What the rows of this run share."""
        self._context = context
        if self._child is not None:
            self._ask({"do": "context", "context": worker.context_to_dict(context)})

    def measure(self, spec: Spec, max_seconds: float, deadline: float | None) -> Outcome:
        """One case, in the child; a child that dies leaves a failed row."""
        if self._context is None:
            raise RuntimeError("set_context comes before measure")
        until = _with_grace(deadline)
        try:
            if self._child is None:
                self.open(until)
                self.set_context(self._context)
            request = {"do": "case", "spec": spec.to_dict(), "max_seconds": max_seconds, "deadline": deadline}
            answer = self._ask(request, until)
        except ChildDiedError as error:
            return unmeasured(spec, self._context, "failed", f"the process that ran this case {error}")
        except _core.UnavailableError as error:
            self.close()
            return unmeasured(spec, self._context, "failed", f"the device could not be opened again: {error}")
        except OutOfTimeError:
            reason = "not finished when --max-time was over: the process that ran this case was ended"
            return unmeasured(spec, self._context, "skipped", reason)
        if "error" in answer:
            return unmeasured(spec, self._context, "failed", answer["error"])
        if answer["fatal"]:
            self.close()
        return Outcome(answer["row"], answer["samples"], answer["fatal"])

    def _ask(self, request: dict[str, Any], until: float | None = None) -> dict[str, Any]:
        if self._child is None:
            try:
                self._child = _Child()
            except OSError as error:
                raise ChildDiedError(f"could not be started: {error}") from None
        try:
            return self._child.ask(request, self._interrupts, until)
        except BaseException:
            # Whatever happened, this child's next line would answer an old question.
            self.close()
            raise

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()
            self._child = None


def _with_grace(deadline: float | None) -> float | None:
    return None if deadline is None else deadline + _GRACE_SECONDS


class _Child:
    """The process and its two pipes."""

    def __init__(self) -> None:
        request_read, self._request = os.pipe()
        try:
            self._answer, answer_write = os.pipe()
        except OSError:
            os.close(request_read)
            os.close(self._request)
            raise
        self._buffer = b""
        command = [sys.executable, "-c", worker.START, json.dumps(sys.path), str(request_read), str(answer_write)]
        try:
            # Its own process group: Ctrl-C goes to the command, which decides. File descriptor 2 for both outputs.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(request_read, answer_write), process_group=0
            )
        except BaseException:
            os.close(self._request)
            os.close(self._answer)
            raise
        finally:
            os.close(request_read)
            os.close(answer_write)

    def ask(self, request: dict[str, Any], interrupts: Interrupts, until: float | None) -> dict[str, Any]:
        """Send one line, wait for one line."""
        try:
            os.write(self._request, (json.dumps(request) + "\n").encode())
        except BrokenPipeError:
            raise ChildDiedError(self._how_it_ended()) from None
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer, selectors.EVENT_READ)
            selector.register(interrupts.wakeup_fd, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                interrupts.check()
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise OutOfTimeError
                for key, _ in selector.select(left):
                    if key.fd == self._answer:
                        self._receive()
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _receive(self) -> None:
        data = os.read(self._answer, 1 << 16)
        if not data:
            raise ChildDiedError(self._how_it_ended())
        self._buffer += data

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        hint = "; often the system had run out of memory" if -code == signal.SIGKILL else ""
        return f"was ended by signal {-code} ({name}{hint})"

    def end(self) -> None:
        """Close the pipes and make sure that the process is gone."""
        for fd in (self._request, self._answer):
            with suppress(OSError):
                os.close(fd)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._bury()

    def _bury(self) -> None:
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            _log.warning("process %d hangs in the driver and could not be ended", self._process.pid)
