"""Run cases in this process, or in a child process, so that a crash costs its own row and nothing else."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, ClassVar

from bwprof import _core, hardware
from bwprof.measuring import function as functions
from bwprof.measuring import operation as measuring
from bwprof.measuring.function import Chain
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome, make_unmeasured, update_context
from bwprof.roofs import obtain
from bwprof.roofs.model import References, Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import loop
from bwprof.runs.channel import (
    ChildDiedError,
    ChildProcess,
    InterruptSource,
    RunTimeoutError,
    python_flags,
    search_path,
    serve,
)
from bwprof.runs.loop import MAX_TIME
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.text.formatting import format_seconds

_log = logging.getLogger("bwprof.sweep")
_GRACE_SECONDS = 3.0  # for an answer to come back after its deadline
_OPEN_SECONDS = 600.0  # for a device to open, where no deadline comes first
_ROOFS_SECONDS = 1800.0  # for the roofs, likewise
_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from bwprof.runs.executors import main; main()"


class LocalExecutor:
    """An executor that owns a device handle; between calls the thread's current device is the caller's."""

    def __init__(
        self, backend: str, index: int, *, poll: Callable[[], object] | None = None, nvtx: bool | None = None
    ) -> None:
        self._backend = backend
        self._index = index
        self._poll = poll
        self._nvtx = nvtx  # annotate ranges for tools; True also warns where no tool watches
        self._device: _core.Device | None = None
        self._context: Context | None = None

    @property
    def device(self) -> _core.Device:
        """The open device."""
        if self._device is None:
            self._device = hardware.open_device(self._backend, self._index)
        return self._device

    def open(self, deadline: float | None = None) -> dict[str, Any]:  # noqa: ARG002 - a call cannot be interrupted
        """Return the device's facts, with its free memory as `memory_free_bytes`."""
        with hardware.preserve_current_device(self._backend):
            facts = hardware.facts(self.device)
            if self._nvtx and not self.device.watched:
                _log.warning("--nvtx: %s", hardware.UNWATCHED)
            facts["memory_free_bytes"] = self.device.memory()[0]
        return facts

    def obtain_roofs(self, request: RoofRequest, deadline: float | None) -> Roofs | None:
        with hardware.preserve_current_device(self._backend):
            return obtain.obtain(self.device, request, deadline=deadline, poll=self._poll)

    def set_context(self, context: Context) -> None:
        self._context = context

    def measure(self, spec: Spec | Chain, max_seconds: float, deadline: float | None) -> Outcome:
        if self._context is None:
            raise RuntimeError("set_context comes before measure")
        if isinstance(spec, Chain):
            return functions.measure_chain(self.device, spec, self._context, max_seconds=max_seconds, poll=self._poll)
        with hardware.preserve_current_device(self._backend):
            outcome = measuring.measure(
                self.device,
                spec,
                self._context,
                max_seconds=max_seconds,
                deadline=deadline,
                poll=self._poll,
                nvtx=self._nvtx is not False,
            )
        self._context = update_context(self._context, outcome)
        if spec.cache == "cold":  # a hot row has no counters
            hardware.note_counting(self.device, outcome.row)
        return outcome

    def close(self) -> None:
        if self._device is not None:
            with hardware.preserve_current_device(self._backend):
                hardware.close_device(self._device)
            self._device = None


def command_line(request_fd: int, answer_fd: int) -> list[str]:
    """Return the child's command line: this process's import path, and nothing of the working directory."""
    return [sys.executable, *python_flags(), "-c", _START, json.dumps(search_path()), str(request_fd), str(answer_fd)]


def main() -> None:
    """Serve requests until the command closes its end."""
    serve(RunWorker, int(sys.argv[2]), int(sys.argv[3]))


class RunWorker:
    """Answer requests in the child: an executor and its run's context."""

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll = poll
        self._executor: LocalExecutor | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request; an error for the user comes back as {"error": message}."""
        try:
            if request["do"] == "open":
                backend, index = request["backend"], request["index"]
                if not backend:  # of `open_early`, whose caller still works: a CPU's facts are measured without it
                    chosen = hardware.choose_device()
                    if _core.backend_facts(chosen.backend)["runs_on_host"]:
                        return {"device": []}
                    backend, index = chosen.backend, chosen.index
                self._executor = LocalExecutor(backend, index, poll=self._poll, nvtx=request.get("nvtx"))
                return {"facts": self._executor.open(), "device": [backend, index]}
            assert self._executor is not None  # a child opens a device first
            if request["do"] == "roofs":
                found = self._executor.obtain_roofs(RoofRequest(**request["roofs"]), request["deadline"])
                return {"roofs": found.to_dict() if found else None}
            if request["do"] == "context":
                context = request["context"]
                roofs = Roofs.from_dict(context["roofs"]) if context["roofs"] else None
                self._executor.set_context(Context(**{**context, "roofs": roofs}))
                return {}
            # The monotonic clock is the system's: the command's deadline holds in this process too.
            kind: type[Spec | Chain] = Chain if request["do"] == "chain" else Spec
            spec = kind.from_dict(request["spec"])
            return asdict(self._executor.measure(spec, request["max_seconds"], request["deadline"]))
        except (_core.UnavailableError, _core.DeviceError, ValueError, MemoryError, OSError) as error:
            return {"error": str(error) or type(error).__name__}

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()


class ChildExecutor:
    """An executor whose device lives in a child process; a new child starts when one dies."""

    _ending: ClassVar[list[threading.Thread]] = []  # of children that are not needed any more

    def __init__(
        self,
        backend: str,
        index: int,
        interrupts: InterruptSource,
        *,
        max_case_seconds: float | None = None,
        nvtx: bool | None = None,
        opening: ChildProcess | None = None,  # that `open_early` started
        lingers: bool = False,  # nobody waits for the child's end before this process ends
    ) -> None:
        self._backend, self._index, self._interrupts = backend, index, interrupts
        self._max_case_seconds, self._nvtx, self._lingers = max_case_seconds, nvtx, lingers
        self._child = opening
        self._context: Context | None = None
        self._begun = opening and self._describe_open()  # a request that was sent, whose answer nobody awaits yet

    def _describe_open(self) -> dict[str, Any]:
        return {"do": "open", "backend": self._backend, "index": self._index, "nvtx": self._nvtx}

    def open(self, deadline: float | None) -> dict[str, Any]:
        try:
            answer = self._request(self._describe_open(), _first(deadline, _OPEN_SECONDS))
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
        if answer["device"] != [self._backend, self._index]:  # `open_early` chose another
            self._end_child()
            return self.open(deadline)
        return dict(answer["facts"])

    def obtain_roofs(self, request: RoofRequest, deadline: float | None) -> Roofs | None:
        """Return the device's stored or new roofs; None, with a warning, when measuring them fails."""
        message = {"do": "roofs", "roofs": asdict(request), "deadline": deadline}
        try:
            answer = self._request(message, _first(_with_grace(deadline), _ROOFS_SECONDS))
        except RunTimeoutError:
            answer = {"error": "the process did not come back in time and was ended"}
        except ChildDiedError as error:
            answer = {"error": f"the process {error}"}
        if "error" in answer:
            _log.warning("the roofs could not be measured: %s", answer["error"])
            return None
        return Roofs.from_dict(answer["roofs"]) if answer["roofs"] else None

    def set_context(self, context: Context) -> None:
        self._context = context
        if self._child is not None:
            plain = {**asdict(context), "roofs": context.roofs.to_dict() if context.roofs else None}
            self._request({"do": "context", "context": plain}, _first(None, _OPEN_SECONDS))

    def begin(self, spec: Spec | Chain, max_seconds: float, deadline: float | None) -> None:
        """Start the next case on a GPU's child. On a CPU, writing rows would disturb it."""
        if self._child is not None and not _core.backend_facts(self._backend)["runs_on_host"]:
            self._begun = _describe_case(spec, max_seconds, deadline)
            self._child.send(self._begun)

    def measure(self, spec: Spec | Chain, max_seconds: float, deadline: float | None) -> Outcome:
        """Measure one case, or several as one, in the child; a child that dies leaves a failed row."""
        context = self._context
        if context is None:
            raise RuntimeError("set_context comes before measure")
        until = _with_grace(deadline)
        limit = self._max_case_seconds
        if not limit:
            cases = spec.specs if isinstance(spec, Chain) else (spec,)
            limit = max(0.0, max_seconds - DEFAULT_CASE_SECONDS)  # sampling beyond what the estimate assumes
            limit += sum(loop.estimate_limit(case, context.facts, self._backend) for case in cases)
        try:
            if self._child is None:
                self.open(until)
                self.set_context(context)
            answer = self._request(_describe_case(spec, max_seconds, deadline), _first(until, limit))
        except ChildDiedError as error:
            return make_unmeasured(spec, context, "failed", f"the process that ran this case {error}")
        except _core.UnavailableError as error:
            self._end_child()
            return make_unmeasured(spec, context, "failed", f"the device could not be opened again: {error}")
        except RunTimeoutError:
            ended = "the process that ran this case was ended"
            if until is not None and time.monotonic() >= until:
                return make_unmeasured(spec, context, "skipped", f"not finished when {MAX_TIME} was over: {ended}")
            reason = f"not finished within {format_seconds(limit)} (--max-case-seconds allows more): {ended}"
            return make_unmeasured(spec, context, "failed", reason)
        if "error" in answer:
            return make_unmeasured(spec, context, "failed", answer["error"])
        if answer["fatal"]:
            self._end_child()
        references = answer["references"] and References(**answer["references"])
        return Outcome(**answer | {"references": references})

    def _request(self, request: dict[str, Any], until: float) -> dict[str, Any]:
        if self._child is None:
            while self._ending:  # the device may be for one process at a time
                self._ending.pop().join()
            try:
                self._child = ChildProcess(command_line)
            except OSError as error:
                raise ChildDiedError(f"could not be started: {error}") from None
        begun, self._begun = self._begun, None
        try:
            if begun == request:
                return self._child.receive(self._interrupts, until)
            return self._child.ask(request, self._interrupts, until)
        except BaseException:
            # This child's next line would answer the abandoned request.
            self._end_child()
            raise

    def close(self) -> None:
        if self._child is not None and self._lingers:
            self._ending.append(threading.Thread(target=self._child.end))  # the process that exits waits for it
            self._ending[-1].start()
            self._child = None
        self._end_child()

    def _end_child(self) -> None:
        child, self._child, self._begun = self._child, None, None  # an interrupt must not end it twice
        if child is not None:
            child.end()


def open_early(nvtx: bool | None) -> ChildProcess | None:
    """Let a child open the device that `hardware.choose_device` chooses, while this process looks for it, too."""
    with suppress(OSError):  # the next start reports the error
        child = ChildProcess(command_line)
        child.send({"do": "open", "backend": "", "index": 0, "nvtx": nvtx})
        return child
    return None


def _describe_case(spec: Spec | Chain, max_seconds: float, deadline: float | None) -> dict[str, Any]:
    kind = "chain" if isinstance(spec, Chain) else "case"
    return {"do": kind, "spec": spec.to_dict(), "max_seconds": max_seconds, "deadline": deadline}


def _first(deadline: float | None, seconds: float) -> float:
    """Return the time.monotonic() that comes first: the deadline, or so many seconds from now."""
    end = time.monotonic() + seconds
    return end if deadline is None else min(deadline, end)


def _with_grace(deadline: float | None) -> float | None:
    return None if deadline is None else deadline + _GRACE_SECONDS
