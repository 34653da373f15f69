"""The process of one side: it answers requests in JSON lines, in its own interpreter."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bwprof import _core, hardware
from bwprof.experiments import ab_sides
from bwprof.experiments.ab_sides import ABSide, CallSide, CaseSide, SideError, describe_error, shift_memory
from bwprof.measuring.operation import Spec
from bwprof.runs.channel import serve

PROTOCOL = 1  # version of requests and answers

_CHECK_SECONDS = 1.0


def main() -> None:
    """Answer requests until the command closes its end."""
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    serve(ABWorker, int(sys.argv[2]), int(sys.argv[3]))


def _exit_with(parent: int) -> None:
    """Exit when the command is gone, even while a function hangs."""
    while os.getppid() == parent:
        time.sleep(_CHECK_SECONDS)
    os._exit(1)


class ABWorker:
    """The side that answers the requests."""

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll = poll
        self._device: _core.Device | None = None
        self._side: ABSide | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; {"error": text} for an exception."""
        try:
            return self._answer(request)
        except (Exception, SystemExit) as error:  # a user's module may raise anything, and call sys.exit()
            return {"error": describe_error(error)}

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "hello":
            versions = {"bwprof": _core.__version__, "python": platform.python_version()}
            return {"protocol": PROTOCOL, "versions": versions, "executable": sys.executable}
        if request["do"] == "make":
            return self._make(request)
        if self._side is None:
            raise SideError("nothing was made")
        if request["do"] == "open":
            return {"opened": asdict(self._side.open(request["timer"]))}
        if request["do"] == "turn":
            return {"samples": self._side.turn(request["samples"])}
        self._side.close()
        return {}

    def _make(self, request: dict[str, Any]) -> dict[str, Any]:
        self._device = hardware.open_device(request["backend"], request["index"])
        if request["threads"] is not None:
            self._device.limit_threads(request["threads"])
        task = ab_sides.task_from_dict(request["work"])
        with shift_memory(self._device):
            self._side = side_of(self._device, task, Path(request["folder"]), self._poll)
        return {"facts": hardware.facts(self._device)}

    def close(self) -> None:
        if self._side is not None:
            self._side.close()
        if self._device is not None:
            hardware.close_device(self._device)


def side_of(
    device: _core.Device, task: ab_sides.ABTask, folder: Path, poll: Callable[[], object] | None = None
) -> ABSide:
    """Make the side that runs a task on an open device."""
    if isinstance(task, Spec):
        return CaseSide(device, task, poll)
    try:
        function = task.function(folder)
    except ValueError as error:
        raise SideError(str(error)) from error
    call = partial(function, **task.params) if task.params else function
    return CallSide(device, call, name=task.title, cache=task.cache, timer=task.timer, poll=poll)
