"""What a function's rows are graded against: the roofs of all of a device's threads, or of fewer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bwprof import _core, hardware
from bwprof.measuring.row import Context, Outcome
from bwprof.roofs import store
from bwprof.roofs.model import Roofs, RoofsArgument, match_roofs
from bwprof.roofs.obtain import RoofRequest, mark_beaten, obtain
from bwprof.text.parsing import repr_short

# A call runs on one thread when the calling one spends this share of the process's processor time, and is at work (and
# not waiting for another process) for that share of the time at least, which on a busy machine is less than all of it.
_ALONE = 0.9

_AT_WORK = 0.25

_LOOK_SECONDS = 0.005

_STILL_SECONDS = 0.001  # the device's own threads, which flush before calls, look for more work for a tenth of that


def check_threads(given: object, most: int | None = None) -> int | None:
    """`roof_threads` as an int, or None for what is left out.

    Raises
    ------
    ValueError
        For what is no whole number from 1 to `most` (None: not known yet; 0: there are none).
    """
    if given is None:
        return None
    index = getattr(given, "__index__", None)
    threads = 0 if isinstance(given, bool) or index is None else int(index())
    if most == 0:
        raise ValueError(f"roof_threads is {repr_short(given)}: it goes with a CPU, whose work is shared by threads")
    if threads < 1 or (most is not None and threads > most):
        allowed = "from 1 to the device's threads" if most is None else f"1 to {most}, the device's threads"
        raise ValueError(f"roof_threads is {repr_short(given)}: allowed is a whole number {allowed}")
    return threads


def find_roofs(
    device: _core.Device,
    facts: dict[str, Any],
    given: RoofsArgument,
    caches: tuple[str, ...],
    *,
    recalibrate: bool = False,
    deadline: float | None = None,
    poll: Callable[[], object] | None = None,
) -> Roofs | None:
    """The roofs to hold rows of these caches against, as `bwprof.roofs.model.check_roofs` has them."""
    if isinstance(given, Roofs):
        return match_roofs(given, facts)
    if given is False:
        return None
    if given == "stored":
        return store.load(store.identity(device.backend, facts))
    return obtain(device, RoofRequest("cold" in caches, "hot" in caches, recalibrate), deadline=deadline, poll=poll)


def is_single_threaded(call: Callable[[], object]) -> bool:
    """Whether the calling thread does all the work of a call: it is made until some milliseconds are over."""
    time.sleep(_STILL_SECONDS)
    begun = _clocks()
    while True:
        call()
        wall, all_threads, this_one = (now - then for now, then in zip(_clocks(), begun, strict=True))
        if wall >= _LOOK_SECONDS:
            return this_one >= _ALONE * all_threads and this_one >= _AT_WORK * wall


def _clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), time.thread_time()


def update_context(context: Context, outcome: Outcome) -> Context:
    """The context of the rows after this one: if it should not have been as fast as it was, its roofs are in doubt."""
    if not outcome.beaten or context.roofs is None:
        return context
    row = outcome.row
    moved = (row["bytes_read"] or 0, row["bytes_written"] or 0)
    hot = row["cache"] == "hot"
    return replace(
        context, roofs=mark_beaten(context.backend, context.facts, context.roofs, moved, outcome.beaten, hot=hot)
    )


class Contexts:
    """The contexts of a run's rows, by how many threads' roofs they are held against; None stands for all."""

    def __init__(
        self,
        run_id: str,
        device: _core.Device,
        given: RoofsArgument,
        caches: tuple[str, ...],
        *,
        recalibrate: bool = False,
        deadline: Callable[[], float | None] = lambda: None,
        poll: Callable[[], object] | None = None,
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        self._run_id, self._device, self._given, self._caches = run_id, device, given, caches
        self._labels = dict(labels or {})
        self._recalibrate, self._deadline, self._poll = recalibrate, deadline, poll
        self._found: dict[int | None, Context] = {}

    @property
    def given(self) -> RoofsArgument:
        """What rows are held against, as the caller has it."""
        return self._given

    @property
    def threads(self) -> int:
        """Those of the device; 0 on a GPU."""
        runs_on_host = _core.backend_facts(self._device.backend)["runs_on_host"]
        return int(self._device.facts()["units"]) if runs_on_host else 0

    def of(self, threads: int | None) -> Context:
        """The context of so many threads; its roofs are obtained when it is first asked for.

        Raises
        ------
        ValueError
            For more than there are, and for given roofs of another number.
        """
        if threads is not None and check_threads(threads, self.threads) == self.threads:
            threads = None
        if threads not in self._found:
            self._found[threads] = self._make(threads)
        return self._found[threads]

    def _make(self, threads: int | None) -> Context:
        given = self._given
        if threads is None:
            return self._context(self._device)
        if isinstance(given, Roofs) and given.threads != threads:
            said = f"{given.threads} threads" if given.threads else "a number of threads that is not known"
            raise ValueError(f"these roofs are of {said}, roof_threads is {threads}")
        with hardware.borrow_device(self._device.backend, self._device.index) as fewer:
            fewer.limit_threads(threads)
            return self._context(fewer)

    def _context(self, device: _core.Device) -> Context:
        facts = hardware.device_facts(device)
        roofs = find_roofs(
            device,
            facts,
            self._given,
            self._caches,
            recalibrate=self._recalibrate,
            deadline=self._deadline(),
            poll=self._poll,
        )
        return Context(self._run_id, device.backend, facts, roofs, self._labels)

    def for_call(self, context: Context, call: Callable[[], object]) -> tuple[Context, str]:
        """The context for a function that nothing is said of, and what to say where it ran on one thread of many."""
        threads = self.threads
        roofs = context.roofs
        if roofs is None or not roofs.points or min(threads, roofs.threads) <= 1 or not is_single_threaded(call):
            return context, ""
        one = None if isinstance(self._given, Roofs) else self.of(1)
        if one is None or one.roofs is None or not one.roofs.points:
            said = "it ran on one thread, but is held against"
            return context, f"{said} the roofs of all {threads}: roofs='auto' measures those of one"
        return one, f"it ran on one thread, and is held against the roofs of one (of {threads})"

    def learn(self, context: Context, outcome: Outcome) -> None:
        """What a row that was graded in a context says of its roofs."""
        changed = update_context(context, outcome)
        self._found = {threads: changed if known is context else known for threads, known in self._found.items()}
