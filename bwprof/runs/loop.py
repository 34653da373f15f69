"""The loop over what a run measures: time budget, roofs, rows. Where and how that is done is an executor's business."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bwprof import _core
from bwprof.measuring.grade import update_slowdown
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, MeasuredItem, Outcome, make_unmeasured
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.disturbance import References
from bwprof.roofs.model import Roofs, RoofsArgument, match_roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import estimate
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.runs.progress import SilentProgress

MAX_TIME = "--max-total-seconds"

_AGAIN_SHARE = estimate.AGAIN_SHARE

Item_contra = TypeVar("Item_contra", bound=MeasuredItem, contravariant=True)

T = TypeVar("T", bound=MeasuredItem)


class Executor(Protocol[Item_contra]):
    """Opens a device and measures items of its kind on it, here or in another process."""

    def open(self, deadline: float | None) -> dict[str, Any]:
        """The device's facts; OutOfTimeError when they are not there at `deadline`, a time.monotonic()."""
        ...

    def obtain_roofs(self, wanted: RoofRequest, deadline: float | None) -> Roofs | None:
        """The device's roofs, stored or new; None when they cannot be measured, or not until `deadline`."""
        ...

    def set_context(self, context: Context) -> None:
        """What the rows of this run share."""
        ...

    def measure(self, item: Item_contra, max_seconds: float, deadline: float | None, /) -> Outcome:
        """One item, which must not go on after `deadline`."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


class RunTimeoutError(Exception):
    """--max-total-seconds was over before an answer came."""


def ran_out_of_time(row: RowDict) -> bool:
    """Whether a row, maybe read from a file, was not measured because the command's time was over.

    A file has nothing but the reason for people: the option's name is in it here and in what a child process leaves
    (`bwprof.runs.child`), and in no other skipped row's.
    """
    return row["status"] == "skipped" and MAX_TIME in (row["reason"] or "")


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Seconds: what the cases should take together; what the whole run, which began at `started`, may take at most, and
    the sampling of each case (None: `DEFAULT_CASE_SECONDS`).

    `started`, `until` and `deadline` are times of time.monotonic().
    """

    target_seconds: float | None
    max_total_seconds: float | None
    started: float
    option: str = MAX_TIME  # what `max_total_seconds` is called where it was given
    max_seconds: float | None = None
    until: float | None = None  # of a run over several devices: when this one's share is over

    @property
    def deadline(self) -> float | None:
        """When the run, or this device's share of it, must be over; None for no limit."""
        if self.until is not None:
            return self.until
        return None if self.max_total_seconds is None else self.started + self.max_total_seconds

    def left(self) -> float:
        """Seconds until then; infinite without a limit."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def half(self) -> float | None:
        """When half of that will be over; None for no limit."""
        return None if self.deadline is None else self.deadline - self.left() / 2


def prepare_device(
    executor: Executor[T],
    run: dict[str, Any],
    items: Sequence[T],
    *,
    limits: TimeBudget,
    progress: SilentProgress,
    given: RoofsArgument = "auto",
    recalibrate: bool = False,
    labels: Mapping[str, Any] | None = None,
) -> Context:
    """Open the device and get its roofs, both into `run`, the run's metadata, as far as `limits` allow.

    Cold rows are held against cold roofs, hot ones against the cache's own limit; what nobody needs is not measured.
    Half of the time that is left may go to the roofs. A device that takes too long to open leaves no time for any case.
    """
    progress.stage("opening the device")
    facts: dict[str, Any] = {}
    roofs: Roofs | None = None
    with suppress(RunTimeoutError):
        run["facts"] = facts = executor.open(limits.deadline)
        if isinstance(given, Roofs):
            roofs = match_roofs(given, facts)
        elif given and not recalibrate:
            roofs = _earlier_roofs(run, facts)
        caches = {item.cache for item in items}
        if roofs is None and given and limits.left() > 0 and caches:
            progress.stage("looking for the roofs")
            wanted = RoofRequest("cold" in caches, "hot" in caches, recalibrate, given == "stored")
            roofs = executor.obtain_roofs(wanted, limits.half())
        if given or "roofs" not in run:  # the rows that a resumed run keeps may have been held against some
            run["roofs"] = roofs.to_dict() if roofs else None
    context = Context(run["run_id"], run["backend"], facts, roofs, dict(labels or {}))
    executor.set_context(context)
    return context


def _earlier_roofs(run: dict[str, Any], facts: dict[str, Any]) -> Roofs | None:
    """The roofs of the run that is resumed, if they are this device's."""
    if not run.get("roofs"):
        return None
    try:
        found = Roofs.from_dict(run["roofs"])
    except ValueError:
        return None
    same_threads = found.threads in (0, facts.get("units"))
    return found if found.points and same_threads and found.belongs_to(facts) else None


def run_cases(
    items: Sequence[T],
    executor: Executor[T],
    context: Context,
    store: Store,
    *,
    limits: TimeBudget,
    progress: SilentProgress,
    after: Callable[[Outcome], None] | None = None,
) -> None:
    """Measure cases, or points of a function, in order; every one of them leaves a row in the store.

    Rows of a CPU that other processes disturbed are measured once more when all have had their turn, for a while; the
    row that was not disturbed stays, or the later one. Until the run ends a CSV file has the first one, so that it is
    never without either.
    Each row is held against the best reference stream of them all, however the run ends: a neighbour that was there
    from the beginning is seen once it has gone. Files that are written row by row have that at the end.

    Parameters
    ----------
    after : callable, optional
        Called with each outcome once its row is stored.
    """
    begun = time.monotonic()
    tried: list[tuple[int, T, float]] = []
    judged = ReferenceBook()
    specs = [item for item in items if isinstance(item, Spec)]
    if specs and len(specs) == len(items):  # how long a caller's function takes, nobody knows
        target, most = limits.target_seconds, limits.max_seconds
        progress.ahead(*estimate.estimate_cases(specs, context.facts, context.backend, target, most))
    progress.begin(len(items))
    try:
        for number, item in enumerate(items):
            seconds = 0.0
            if limits.left() <= 0:
                reason = f"the {limits.max_total_seconds:g} s of {limits.option} were over"
                outcome = make_unmeasured(item, context, "skipped", reason)
            else:
                progress.case(item.title)
                target = math.inf if limits.target_seconds is None else begun + limits.target_seconds - time.monotonic()
                seconds = share_seconds(min(target, limits.left()), len(items) - number, limits.max_seconds)
                outcome = judged.hold(executor.measure(item, seconds, limits.deadline))
            tried.append((store.add(outcome.row, outcome.samples), item, seconds))
            judged.keep(tried[-1][0], outcome)
            progress.row(outcome.row, outcome.samples or ())
            if after is not None:
                after(outcome)
        _judge(judged, store)
        doubted = [one for one in tried if one[1].repeatable and is_disturbed(store.rows[one[0]])]
        seconds_left = _AGAIN_SHARE * (time.monotonic() - begun)
        _measure_again(doubted, executor, store, judged, seconds_left, limits, progress)
    finally:
        _judge(judged, store)


class ReferenceBook:
    """Rows of one device, each held against the best reference stream of all: that may be one beside a later row."""

    def __init__(self) -> None:
        self._best_ns = math.inf
        self._kept: dict[int, tuple[RowDict, References]] = {}

    def hold(self, outcome: Outcome) -> Outcome:
        """The outcome; its row is held against the streams so far, its own among them."""
        if outcome.references is not None:
            self._best_ns = min(self._best_ns, outcome.references.best_ns)
            outcome.row.update(update_slowdown(outcome.row, outcome.references, self._best_ns))
        return outcome

    def keep(self, number: int, outcome: Outcome) -> None:
        """The row of that number, which was held."""
        self._kept.pop(number, None)
        if outcome.references is not None:
            self._kept[number] = outcome.row, outcome.references

    def settle(self) -> list[tuple[int, RowDict, RowDict]]:
        """Rows that were kept, by number, and what they say now that all streams since are known, if that is new."""
        held = [(number, row, update_slowdown(row, seen, self._best_ns)) for number, (row, seen) in self._kept.items()]
        return [one for one in held if one[2]]

    def rows(self, outcomes: Iterable[Outcome]) -> list[RowDict]:
        """The rows of outcomes that were held, now that no more will come."""
        kept = list(outcomes)
        for number, outcome in enumerate(kept):
            self.keep(number, outcome)
        for _, row, said in self.settle():
            row.update(said)
        return [outcome.row for outcome in kept]


def _judge(judged: ReferenceBook, store: Store) -> None:
    for number, row, said in judged.settle():
        if store.rows[number] is row:  # else an interrupt came as another took its place
            store.amend(number, said)


def is_disturbed(row: RowDict) -> bool:
    """Whether a second try may be better: other processes come and go on a CPU, a GPU's rows have other reasons."""
    noisy = row["status"] == "ok" and "noisy" in (row["flags"] or "").split(";")
    return noisy and bool(_core.backend_facts(row["backend"])["runs_on_host"])


def _measure_again(
    doubted: Sequence[tuple[int, T, float]],
    executor: Executor[T],
    store: Store,
    judged: ReferenceBook,
    seconds_left: float,
    limits: TimeBudget,
    progress: SilentProgress,
) -> None:
    """Second tries (the row's number, its case, its seconds of sampling) of as many rows as there is time for."""
    until = time.monotonic() + min(seconds_left, limits.left())
    if doubted:
        progress.stage("disturbed cases once more")
    for number, item, seconds in doubted:
        if time.monotonic() >= until:
            return
        progress.case(item.title)
        outcome = judged.hold(executor.measure(item, min(seconds, limits.left()), limits.deadline))
        row = choose_better(store.rows[number], outcome.row)
        store.replace(number, row, outcome.samples if row is outcome.row else None)
        if row is outcome.row:
            judged.keep(number, outcome)
        progress.again(outcome.row)


def choose_better(first: RowDict, second: RowDict) -> RowDict:
    """Of two tries of a case the later one, unless that failed, or was disturbed and the first was not; it says so.

    How fast a try is, or how narrow, decides nothing: that would favour times that are too short, or too sure.
    """
    kept, other = (first, second) if rank_doubt(second) > rank_doubt(first) else (second, first)
    if other["status"] == "ok":
        said = f"measured twice: the other try, {other['time_ms']:.4g} ms, was disturbed"
    else:
        said = f"measured twice: the other try {other['status']}: {other['reason']}"
    kept["reason"] = f"{kept['reason']}; {said}" if kept["reason"] else said
    return kept


def rank_doubt(row: RowDict) -> tuple[bool, bool]:
    """Order rows of one case: those that were measured undisturbed, the disturbed, the others."""
    return row["status"] != "ok", is_disturbed(row)


def share_seconds(seconds_left: float, cases_left: int, most: float | None = None) -> float:
    """Seconds of sampling for the next case, at `most`, so that all that are left fit into what is left."""
    return _core.case_seconds(seconds_left, cases_left, DEFAULT_CASE_SECONDS if most is None else most)
