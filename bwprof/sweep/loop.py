"""The loop over a plan's cases: time budget, roofs, rows. Where the cases run is an executor's business."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bwprof.roofs import Roofs
from bwprof.sweep.measure import Context, Outcome, unmeasured
from bwprof.sweep.plan import DEFAULT_CASE_SECONDS, Spec
from bwprof.sweep.progress import Progress
from bwprof.sweep.store import Store

_SAMPLING_SHARE = 0.5  # of a case's time; the rest is filling, verification and warming up
_LEAST_SECONDS = 0.05


class Executor(Protocol):
    """Opens a device and runs cases on it, here or in another process."""

    def open(self) -> dict[str, Any]:
        """The device's facts."""
        ...

    def obtain_roofs(self, *, cold: bool, hot: bool, recalibrate: bool) -> Roofs | None:
        """The device's roofs (see `bwprof.roofs.obtain`); None when they cannot be measured."""
        ...

    def set_context(self, context: Context) -> None:
        """What the rows of this run share."""
        ...

    def measure(self, spec: Spec, max_seconds: float, deadline: float | None) -> Outcome:
        """One case; `deadline` is a time.monotonic() after which it must not go on."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


def roofs_for(specs: Sequence[Spec], executor: Executor, *, recalibrate: bool) -> Roofs | None:
    """The roofs that these cases are held against: cold ones for cold rows, the cache's own for hot rows."""
    cold, hot = (any(spec.cache == cache for spec in specs) for cache in ("cold", "hot"))
    return executor.obtain_roofs(cold=cold, hot=hot, recalibrate=recalibrate) if cold or hot else None


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: what the cases should take together, and what the whole run may take at most."""

    target_seconds: float | None
    max_time: float | None


def run_cases(
    specs: Sequence[Spec],
    executor: Executor,
    context: Context,
    store: Store,
    *,
    limits: Limits,
    started: float,
    progress: Progress,
    after: Callable[[Outcome], None] | None = None,
) -> None:
    """Measure the cases in order; every one of them leaves a row in the store.

    Parameters
    ----------
    started : float
        time.monotonic() at the start of the run: `max_time` counts from there.
    after : callable, optional
        Called with each outcome once its row is stored.
    """
    deadline = None if limits.max_time is None else started + limits.max_time
    begun = time.monotonic()
    progress.begin(len(specs))
    for number, spec in enumerate(specs):
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            outcome = unmeasured(spec, context, "skipped", f"the {limits.max_time:g} s of --max-time were over")
        else:
            progress.case(spec.title)
            seconds = _case_seconds(limits.target_seconds, now - begun, len(specs) - number)
            if deadline is not None:
                seconds = min(seconds, max(_LEAST_SECONDS, deadline - now))
            outcome = executor.measure(spec, seconds, deadline)
        store.add(outcome.row, outcome.samples)
        progress.row(outcome.row)
        if after is not None:
            after(outcome)


def _case_seconds(target: float | None, elapsed: float, cases_left: int) -> float:
    """Seconds of sampling for the next case, so that all that are left fit into the target."""
    if target is None:
        return DEFAULT_CASE_SECONDS
    share = (target - elapsed) / cases_left * _SAMPLING_SHARE
    return min(DEFAULT_CASE_SECONDS, max(_LEAST_SECONDS, share))
