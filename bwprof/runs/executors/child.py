"""Runs cases in a child process, so that one that crashes costs its own row and nothing else."""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from bwprof import _core
from bwprof.measuring.chain import Chain
from bwprof.measuring.row import Context, Outcome, unmeasured
from bwprof.measuring.spec import Spec
from bwprof.roofs import Roofs, Wanted
from bwprof.roofs.signs import References
from bwprof.runs import estimate
from bwprof.runs.executors import worker
from bwprof.runs.interrupts import Stops
from bwprof.runs.loop import MAX_TIME, OutOfTimeError
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.text import seconds_text

_log = logging.getLogger("bwprof.sweep")

_GRACE_SECONDS = 3.0  # for an answer to come back after its time is over
_END_SECONDS = 2.0  # for the child to go by itself
_KILLED_SECONDS = 10.0  # for one that was killed, whose memory goes first
_OPEN_SECONDS = 600.0  # for a device to open, where no deadline comes first
_ROOFS_SECONDS = 1800.0  # for the roofs, likewise
_LONGEST_WAIT = 3600.0  # a selector takes no more than some days


class ChildDiedError(Exception):
    """The child process ended instead of answering; the text says how."""


class ChildExecutor:
    """An executor whose device lives in a child process that is started anew when it dies."""

    def __init__(
        self,
        backend: str,
        index: int,
        interrupts: Stops,
        *,
        max_case_seconds: float | None = None,
        nvtx: bool | None = None,
    ) -> None:
        self._nvtx = nvtx
        self._max_case_seconds = max_case_seconds
        self._backend = backend
        self._index = index
        self._interrupts = interrupts
        self._child: Child | None = None
        self._context: Context | None = None

    def open(self, deadline: float | None) -> dict[str, Any]:
        """The device's facts; UnavailableError when it cannot be opened, OutOfTimeError when it was not in time."""
        request = {"do": "open", "backend": self._backend, "index": self._index, "nvtx": self._nvtx}
        try:
            answer = self._ask(request, _first(deadline, _OPEN_SECONDS))
        except OutOfTimeError:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            raise _core.UnavailableError(
                f"the process that opens the device did not come back within {_OPEN_SECONDS:g} s and was ended"
            ) from None
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
            answer = self._ask(request, _first(_with_grace(deadline), _ROOFS_SECONDS))
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
            self._ask({"do": "context", "context": worker.context_to_dict(context)}, _first(None, _OPEN_SECONDS))

    def measure(self, spec: Spec | Chain, max_seconds: float, deadline: float | None) -> Outcome:
        """One case, or several as one, in the child; a child that dies leaves a failed row."""
        if self._context is None:
            raise RuntimeError("set_context comes before measure")
        until = _with_grace(deadline)
        longer = max(0.0, max_seconds - DEFAULT_CASE_SECONDS)  # of sampling than the estimate knows of
        cases = spec.specs if isinstance(spec, Chain) else (spec,)
        estimated = longer + sum(estimate.limit_seconds(case, self._context.facts, self._backend) for case in cases)
        limit = self._max_case_seconds or estimated
        try:
            if self._child is None:
                self.open(until)
                self.set_context(self._context)
            kind = "chain" if isinstance(spec, Chain) else "case"
            request = {"do": kind, "spec": spec.to_dict(), "max_seconds": max_seconds, "deadline": deadline}
            answer = self._ask(request, _first(until, limit))
        except ChildDiedError as error:
            return unmeasured(spec, self._context, "failed", f"the process that ran this case {error}")
        except _core.UnavailableError as error:
            self.close()
            return unmeasured(spec, self._context, "failed", f"the device could not be opened again: {error}")
        except OutOfTimeError:
            ended = "the process that ran this case was ended"
            if until is not None and time.monotonic() >= until:
                return unmeasured(spec, self._context, "skipped", f"not finished when {MAX_TIME} was over: {ended}")
            reason = f"not finished within {seconds_text(limit)} (--max-case-seconds allows more): {ended}"
            return unmeasured(spec, self._context, "failed", reason)
        if "error" in answer:
            return unmeasured(spec, self._context, "failed", answer["error"])
        if answer["fatal"]:
            self.close()
        told = answer["references"] and References(**answer["references"])
        return Outcome(answer["row"], answer["samples"], answer["fatal"], references=told)

    def _ask(self, request: dict[str, Any], until: float) -> dict[str, Any]:
        if self._child is None:
            try:
                self._child = Child()
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


def _first(deadline: float | None, seconds: float) -> float:
    """The time.monotonic() that comes first: the deadline, or so many seconds from now."""
    end = time.monotonic() + seconds
    return end if deadline is None else min(deadline, end)


def _with_grace(deadline: float | None) -> float | None:
    return None if deadline is None else deadline + _GRACE_SECONDS


class Child:
    """A process that answers lines, and its two pipes."""

    def __init__(
        self, command: Callable[[int, int], list[str]] = worker.command_line, folder: str | None = None
    ) -> None:
        request_read, self._request = os.pipe()
        try:
            self._answer, answer_write = os.pipe()
        except OSError:
            os.close(request_read)
            os.close(self._request)
            raise
        os.set_blocking(self._request, False)  # a process that does not read must not hold up this one
        self._buffer = b""
        try:
            # Its own process group: Ctrl-C goes to the command, which decides. File descriptor 2 for both outputs.
            self._process = subprocess.Popen(
                command(request_read, answer_write),
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=(request_read, answer_write),
                process_group=0,
                cwd=folder,
            )
        except BaseException:
            os.close(self._request)
            os.close(self._answer)
            raise
        finally:
            os.close(request_read)
            os.close(answer_write)

    def ask(self, request: dict[str, Any], interrupts: Stops, until: float) -> dict[str, Any]:
        """Send one line, wait for one line, until a time.monotonic()."""
        unsent = memoryview((json.dumps(request) + "\n").encode())
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer, selectors.EVENT_READ)
            selector.register(interrupts.wakeup_fd, selectors.EVENT_READ)
            selector.register(self._request, selectors.EVENT_WRITE)
            while b"\n" not in self._buffer:
                interrupts.check()
                left = until - time.monotonic()
                if left <= 0:
                    raise OutOfTimeError
                for key, _ in selector.select(min(left, _LONGEST_WAIT)):
                    if key.fd == self._answer:
                        self._receive()
                    elif key.fd == self._request:
                        unsent = unsent[self._send(unsent) :]
                        if not unsent:
                            selector.unregister(self._request)
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _send(self, data: memoryview) -> int:
        try:
            return os.write(self._request, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise ChildDiedError(self._how_it_ended()) from None

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
            self._process.wait(_KILLED_SECONDS)
        except subprocess.TimeoutExpired:
            _log.warning("process %d hangs in the driver and could not be ended", self._process.pid)
            threading.Thread(target=self._process.wait, daemon=True).start()  # it may go yet, and leaves nothing then
