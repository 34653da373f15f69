"""Run cases in this process, as the Python functions do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from bwprof import _core, hardware
from bwprof.measuring import function as functions
from bwprof.measuring import operation as measuring
from bwprof.measuring.contexts import update_context
from bwprof.measuring.function import Chain
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome
from bwprof.roofs import obtain
from bwprof.roofs.model import Roofs
from bwprof.roofs.obtain import RoofRequest

_log = logging.getLogger("bwprof.sweep")


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
