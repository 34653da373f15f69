"""The process of one side: JSON lines in, JSON lines out, as a run's child has it, in an interpreter of its own.

What it says and is asked is `PROTOCOL`: another number is another version, which is not understood.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bwprof import _core, hardware
from bwprof.experiments import ab_sides
from bwprof.experiments.ab_sides import ABSide, CallSide, CaseSide, SideError, describe_error, shift_memory
from bwprof.measuring.operation import Spec
from bwprof.runs.child import serve

PROTOCOL = 1

_LOOK_SECONDS = 1.0


def main() -> None:
    """Serve requests until the command closes its end."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    serve(ABWorker, int(sys.argv[2]), int(sys.argv[3]))


def _end_with(parent: int) -> None:
    """A function that hangs asks nobody whether the command is still there."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


class ABWorker:
    """The side behind the requests."""

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll = poll
        self._device: _core.Device | None = None
        self._side: ABSide | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; what people should read comes back as {"error": ...}."""
        try:
            return self._answer(request)
        except SideError as error:
            return {"error": str(error)}
        except (Exception, SystemExit) as error:  # a function's module may raise anything, and call sys.exit()
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
            return {"opened": self._side.open(request["timer"]).to_dict()}
        if request["do"] == "turn":
            return {"samples": self._side.turn(request["samples"])}
        self._side.close()
        return {}

    def _make(self, request: dict[str, Any]) -> dict[str, Any]:
        self._device = hardware.open_device(request["backend"], request["index"])
        if request["threads"] is not None:
            self._device.limit_threads(request["threads"])
        what = ab_sides.task_from_dict(request["work"])
        with shift_memory(self._device):
            self._side = side_of(self._device, what, Path(request["folder"]), self._poll)
        return {"facts": hardware.device_facts(self._device)}

    def close(self) -> None:
        """Give everything back."""
        if self._side is not None:
            self._side.close()
        if self._device is not None:
            hardware.close_device(self._device)


def side_of(
    device: _core.Device, what: ab_sides.ABTask, folder: Path, poll: Callable[[], object] | None = None
) -> ABSide:
    """What runs a piece of work on an open device."""
    if isinstance(what, Spec):
        return CaseSide(device, what, poll)
    try:
        function = what.function(folder)
    except ValueError as error:
        raise SideError(str(error)) from error
    params = what.params

    def call() -> object:
        return function(**params)

    return CallSide(
        device, call if params else function, name=what.title, cache=what.cache, timer=what.timer, poll=poll
    )
