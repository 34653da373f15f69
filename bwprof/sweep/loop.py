"""The loop over a plan's cases: time budget, roofs, rows. Where the cases run is an executor's business."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from bwprof.roofs import Roofs, Wanted
from bwprof.sweep.measure import Context, Outcome, unmeasured
from bwprof.sweep.plan import DEFAULT_CASE_SECONDS, Spec
from bwprof.sweep.progress import Progress
from bwprof.sweep.store import Store

_SAMPLING_SHARE = 0.5  # of a case's time; the rest is filling, verification and warming up
_LEAST_SECONDS = 0.05


class Executor(Protocol):
    """Opens a device and runs cases on it, here or in another process."""

    def open(self, deadline: float | None) -> dict[str, Any]:
        """The device's facts; OutOfTimeError when they are not there at `deadline`, a time.monotonic()."""
        ...

    def obtain_roofs(self, wanted: Wanted, deadline: float | None) -> Roofs | None:
        """The device's roofs, stored or new; None when they cannot be measured, or not until `deadline`."""
        ...

    def set_context(self, context: Context) -> None:
        """What the rows of this run share."""
        ...

    def measure(self, spec: Spec, max_seconds: float, deadline: float | None) -> Outcome:
        """One case, which must not go on after `deadline`."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


class OutOfTimeError(Exception):
    """--max-time was over before an answer came."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: what the cases should take together; what the whole run, which began at `started`, may take at most.

    `started` and `deadline` are times of time.monotonic().
    """

    target_seconds: float | None
    max_time: float | None
    started: float

    @property
    def deadline(self) -> float | None:
        """When the run must be over; None for no limit."""
        return None if self.max_time is None else self.started + self.max_time

    def left(self) -> float:
        """Seconds until then; infinite without a limit."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()


def prepare(
    executor: Executor,
    run: dict[str, Any],
    specs: Sequence[Spec],
    *,
    limits: Limits,
    progress: Progress,
    with_roofs: bool = True,
    recalibrate: bool = False,
) -> Context:
    """Open the device and get its roofs, both into `run`, the run's metadata, as far as `limits` allow.

    Cold rows are held against cold roofs, hot ones against the cache's own limit; what nobody needs is not measured.
    Half of the time that is left may go to the roofs. A device that takes too long to open leaves no time for any case.
    """
    progress.stage("opening the device")
    facts: dict[str, Any] = {}
    roofs: Roofs | None = None
    with suppress(OutOfTimeError):
        run["facts"] = facts = executor.open(limits.deadline)
        roofs = None if recalibrate else _earlier_roofs(run, facts)
        caches = {spec.cache for spec in specs}
        if roofs is None and with_roofs and limits.left() > 0 and caches:
            progress.stage("looking for the roofs")
            half = None if limits.deadline is None else limits.deadline - limits.left() / 2
            roofs = executor.obtain_roofs(Wanted("cold" in caches, "hot" in caches, recalibrate), half)
        run["roofs"] = roofs.to_dict() if roofs else None
    context = Context(run["run_id"], run["backend"], facts, roofs)
    executor.set_context(context)
    return context


def _earlier_roofs(run: dict[str, Any], facts: dict[str, Any]) -> Roofs | None:
    """The roofs of the run that is resumed, if they are this device's."""
    if not run.get("roofs"):
        return None
    try:
        found = Roofs.from_dict(run["roofs"])
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    return found if found.points and found.belongs_to(facts) else None


def run_cases(
    specs: Sequence[Spec],
    executor: Executor,
    context: Context,
    store: Store,
    *,
    limits: Limits,
    progress: Progress,
    after: Callable[[Outcome], None] | None = None,
) -> None:
    """Measure the cases in order; every one of them leaves a row in the store.

    Parameters
    ----------
    after : callable, optional
        Called with each outcome once its row is stored.
    """
    begun = time.monotonic()
    progress.begin(len(specs))
    for number, spec in enumerate(specs):
        if limits.left() <= 0:
            outcome = unmeasured(spec, context, "skipped", f"the {limits.max_time:g} s of --max-time were over")
        else:
            progress.case(spec.title)
            target = math.inf if limits.target_seconds is None else begun + limits.target_seconds - time.monotonic()
            seconds = case_seconds(min(target, limits.left()), len(specs) - number)
            outcome = executor.measure(spec, seconds, limits.deadline)
        store.add(outcome.row, outcome.samples)
        progress.row(outcome.row)
        if after is not None:
            after(outcome)


def case_seconds(seconds_left: float, cases_left: int) -> float:
    """Seconds of sampling for the next case, so that all that are left fit into what is left."""
    share = seconds_left / cases_left * _SAMPLING_SHARE
    return min(DEFAULT_CASE_SECONDS, max(_LEAST_SECONDS, share))
