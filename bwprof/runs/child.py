"""Run cases in a child process, so that a crash costs its own row and nothing else.

Requests and answers are JSON lines. The child's standard output is the command's standard error, so that nothing that
a library prints gets into the data.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Protocol

from bwprof import _core
from bwprof.measuring.chain import Chain
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome, make_unmeasured
from bwprof.roofs.disturbance import References
from bwprof.roofs.model import Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import estimate
from bwprof.runs.interrupts import InterruptSource
from bwprof.runs.local import LocalExecutor
from bwprof.runs.loop import MAX_TIME, RunTimeoutError
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.text.formatting import format_seconds
from bwprof.text.terminal import escape_stream

_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from bwprof.runs.child import main; main()"

_FLAGS = {"-I": "isolated", "-E": "ignore_environment", "-s": "no_user_site", "-S": "no_site"}


def command_line(request_fd: int, answer_fd: int) -> list[str]:
    """How this process is started: with the command's own search path, and with nothing of the working directory."""
    passed_on = [option for option, name in _FLAGS.items() if getattr(sys.flags, name)]
    path = json.dumps([folder for folder in sys.path if isinstance(folder, str)])
    return [sys.executable, "-P", *passed_on, "-c", _START, path, str(request_fd), str(answer_fd)]


def main() -> None:
    """Serve requests until the command closes its end."""
    request_fd, answer_fd = int(sys.argv[2]), int(sys.argv[3])
    serve(RunWorker, request_fd, answer_fd)


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
    sys.stderr = escape_stream(sys.stderr)
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


class RunWorker:
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
                found = self._executor.obtain_roofs(RoofRequest(**request["wanted"]), request["deadline"])
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
        interrupts: InterruptSource,
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
        except RunTimeoutError:
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

    def obtain_roofs(self, wanted: RoofRequest, deadline: float | None) -> Roofs | None:
        """The device's roofs, stored or new; None, with a warning, when measuring them goes wrong."""
        request = {"do": "roofs", "wanted": asdict(wanted), "deadline": deadline}
        try:
            answer = self._ask(request, _first(_with_grace(deadline), _ROOFS_SECONDS))
        except RunTimeoutError:
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
            self._ask({"do": "context", "context": context_to_dict(context)}, _first(None, _OPEN_SECONDS))

    def measure(self, spec: Spec | Chain, max_seconds: float, deadline: float | None) -> Outcome:
        """One case, or several as one, in the child; a child that dies leaves a failed row."""
        if self._context is None:
            raise RuntimeError("set_context comes before measure")
        until = _with_grace(deadline)
        longer = max(0.0, max_seconds - DEFAULT_CASE_SECONDS)  # of sampling than the estimate knows of
        cases = spec.specs if isinstance(spec, Chain) else (spec,)
        estimated = longer + sum(estimate.estimate_limit(case, self._context.facts, self._backend) for case in cases)
        limit = self._max_case_seconds or estimated
        try:
            if self._child is None:
                self.open(until)
                self.set_context(self._context)
            kind = "chain" if isinstance(spec, Chain) else "case"
            request = {"do": kind, "spec": spec.to_dict(), "max_seconds": max_seconds, "deadline": deadline}
            answer = self._ask(request, _first(until, limit))
        except ChildDiedError as error:
            return make_unmeasured(spec, self._context, "failed", f"the process that ran this case {error}")
        except _core.UnavailableError as error:
            self.close()
            return make_unmeasured(spec, self._context, "failed", f"the device could not be opened again: {error}")
        except RunTimeoutError:
            ended = "the process that ran this case was ended"
            if until is not None and time.monotonic() >= until:
                return make_unmeasured(
                    spec, self._context, "skipped", f"not finished when {MAX_TIME} was over: {ended}"
                )
            reason = f"not finished within {format_seconds(limit)} (--max-case-seconds allows more): {ended}"
            return make_unmeasured(spec, self._context, "failed", reason)
        if "error" in answer:
            return make_unmeasured(spec, self._context, "failed", answer["error"])
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

    def __init__(self, command: Callable[[int, int], list[str]] = command_line, folder: str | None = None) -> None:
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

    def ask(self, request: dict[str, Any], interrupts: InterruptSource, until: float) -> dict[str, Any]:
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
                    raise RunTimeoutError
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
