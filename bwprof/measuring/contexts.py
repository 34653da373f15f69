"""Provide the contexts of a function's rows: the roofs of all of a device's threads, or of fewer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bwprof import _core, hardware
from bwprof.measuring.row import Context, Outcome
from bwprof.roofs import store
from bwprof.roofs.model import Roofs, RoofsArgument, match_roofs
from bwprof.roofs.obtain import RoofRequest, mark_beaten, obtain
from bwprof.text.parsing import repr_short

# A call runs on one thread when the calling thread spends this share of the process's processor time ...
_ALONE = 0.9
_AT_WORK = 0.25  # ... and works for this share of the time: on a busy machine it has to wait, another process may work
_LOOK_SECONDS = 0.005
_STILL_SECONDS = 0.001  # the device's threads, which flush before calls, spin for a tenth of that


def check_threads(value: object, most: int | None = None) -> int | None:
    """Return `roof_threads` as an int, or None; ValueError unless it is 1 to `most` (None: unknown yet; 0: a GPU)."""
    if value is None:
        return None
    index = getattr(value, "__index__", None)
    threads = 0 if isinstance(value, bool) or index is None else int(index())
    if most == 0:
        raise ValueError(f"roof_threads is {repr_short(value)}: it goes with a CPU, whose work is shared by threads")
    if threads < 1 or (most is not None and threads > most):
        allowed = "from 1 to the device's threads" if most is None else f"1 to {most}, the device's threads"
        raise ValueError(f"roof_threads is {repr_short(value)}: allowed is a whole number {allowed}")
    return threads


def find_roofs(
    device: _core.Device,
    facts: dict[str, Any],
    roofs: RoofsArgument,
    caches: tuple[str, ...],
    recalibrate: bool = False,
    *,
    deadline: float | None = None,
    poll: Callable[[], object] | None = None,
) -> Roofs | None:
    """Return the roofs for rows of these caches; `roofs` is as for `bwprof.roofs.model.check_roofs`."""
    if isinstance(roofs, Roofs):
        return match_roofs(roofs, facts)
    if roofs is False:
        return None
    if roofs == "stored":
        return store.load(store.identity(device.backend, facts))
    return obtain(device, RoofRequest("cold" in caches, "hot" in caches, recalibrate), deadline=deadline, poll=poll)


def is_single_threaded(call: Callable[[], object]) -> bool:
    """Return whether the calling thread does all the work of a call; call it for some milliseconds."""
    time.sleep(_STILL_SECONDS)
    start = _clocks()
    while True:
        call()
        wall, all_threads, this_thread = (now - then for now, then in zip(_clocks(), start, strict=True))
        if wall >= _LOOK_SECONDS:
            return this_thread >= _ALONE * all_threads and this_thread >= _AT_WORK * wall


def _clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), time.thread_time()


def update_context(context: Context, outcome: Outcome) -> Context:
    """Return the context for later rows: a row that beat its roofs puts them in doubt."""
    if not outcome.beaten or context.roofs is None:
        return context
    row = outcome.row
    moved = (row["bytes_read"] or 0, row["bytes_written"] or 0)
    hot = row["cache"] == "hot"
    return replace(
        context, roofs=mark_beaten(context.backend, context.facts, context.roofs, moved, outcome.beaten, hot=hot)
    )


@dataclass(slots=True)
class Contexts:
    """The contexts of a run's rows by the number of threads of their roofs; None: all."""

    run_id: str
    device: _core.Device
    roofs: RoofsArgument  # the caller's argument
    caches: tuple[str, ...]
    recalibrate: bool = False
    deadline: Callable[[], float | None] = lambda: None
    poll: Callable[[], object] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    _found: dict[int | None, Context] = field(default_factory=dict, init=False)

    @property
    def threads(self) -> int:
        """The number of the device's threads; 0 on a GPU."""
        runs_on_host = _core.backend_facts(self.device.backend)["runs_on_host"]
        return int(self.device.facts()["units"]) if runs_on_host else 0

    def of(self, threads: int | None) -> Context:
        """Return the context of so many threads; its roofs are obtained at the first call.

        ValueError for more threads than there are, and for the caller's roofs of another number.
        """
        if threads is not None and check_threads(threads, self.threads) == self.threads:
            threads = None
        if threads not in self._found:
            if threads is None:
                self._found[threads] = self._make(self.device)
            elif isinstance(self.roofs, Roofs) and self.roofs.threads != threads:
                own = f"{self.roofs.threads} threads" if self.roofs.threads else "a number of threads that is not known"
                raise ValueError(f"these roofs are of {own}, roof_threads is {threads}")
            else:
                with hardware.borrow_device(self.device.backend, self.device.index) as fewer:
                    fewer.limit_threads(threads)
                    self._found[threads] = self._make(fewer)
        return self._found[threads]

    def _make(self, device: _core.Device) -> Context:
        facts = hardware.facts(device)
        roofs = find_roofs(
            device, facts, self.roofs, self.caches, self.recalibrate, deadline=self.deadline(), poll=self.poll
        )
        return Context(self.run_id, device.backend, facts, roofs, dict(self.labels))

    def for_call(self, context: Context, call: Callable[[], object]) -> tuple[Context, str]:
        """Return the context of a call without `roof_threads`, and a note where it runs on one thread of many."""
        threads = self.threads
        roofs = context.roofs
        if roofs is None or not roofs.points or min(threads, roofs.threads) <= 1 or not is_single_threaded(call):
            return context, ""
        single = None if isinstance(self.roofs, Roofs) else self.of(1)
        if single is None or single.roofs is None or not single.roofs.points:
            note = "it ran on one thread, but is held against"
            return context, f"{note} the roofs of all {threads}: roofs='auto' measures those of one"
        return single, f"it ran on one thread, and is held against the roofs of one (of {threads})"

    def learn(self, context: Context, outcome: Outcome) -> None:
        """Update the context of a graded row."""
        changed = update_context(context, outcome)
        self._found = {threads: changed if known is context else known for threads, known in self._found.items()}
