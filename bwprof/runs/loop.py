"""Measure the items of a run in order, device after device, on any executor; estimate and budget their time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from bwprof import _core
from bwprof.hardware import Choice
from bwprof.measuring.grade import update_slowdown
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, MeasuredItem, Outcome, make_unmeasured
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs import store as stored_roofs
from bwprof.roofs.model import Roofs, RoofsArgument, match_roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs.channel import RunTimeoutError
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.runs.progress import SilentProgress

MAX_TIME = "--max-total-seconds"
Item_contra = TypeVar("Item_contra", bound=MeasuredItem, contravariant=True)
T = TypeVar("T", bound=MeasuredItem)


class Executor(Protocol[Item_contra]):
    """Open a device and measure items on it, in this process or another. Deadlines are times of time.monotonic()."""

    def open(self, deadline: float | None) -> dict[str, Any]:
        """Return the device's facts; raise RunTimeoutError when the deadline passes first."""

    def obtain_roofs(self, request: RoofRequest, deadline: float | None) -> Roofs | None:
        """Return stored or new roofs; None when they cannot be measured before the deadline."""

    def set_context(self, context: Context) -> None:
        """Set what the rows of this run share."""

    def measure(self, item: Item_contra, max_seconds: float, deadline: float | None, /) -> Outcome:
        """Measure one item; stop at the deadline."""

    def close(self) -> None:
        """Release the device."""


def ran_out_of_time(row: RowDict) -> bool:
    """Return whether a row was skipped because the run's time was over.

    A file stores the reason only as text. The option's name stands in this reason and in no other skipped row's.
    """
    return row["status"] == "skipped" and MAX_TIME in (row["reason"] or "")


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """The time limits of a run, in seconds; `started`, `until` and `deadline` are times of time.monotonic()."""

    target_seconds: float | None  # of all cases together
    max_total_seconds: float | None  # the most of the whole run
    started: float
    option: str = MAX_TIME  # the name of `max_total_seconds`, for messages
    max_seconds: float | None = None  # the most sampling of one case; None: DEFAULT_CASE_SECONDS
    until: float | None = None  # the end of this device's share, in a run over several devices

    @property
    def deadline(self) -> float | None:
        """The end of the run, or of this device's share; None: no limit."""
        if self.until is not None:
            return self.until
        return None if self.max_total_seconds is None else self.started + self.max_total_seconds

    def left(self) -> float:
        """Return the seconds until the deadline; infinite without one."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def share(self, begun: float, cases_left: int) -> float | None:
        """Return the next case's seconds of sampling, of a run that began at `begun`; None: no time is left."""
        target = math.inf if self.target_seconds is None else begun + self.target_seconds - time.monotonic()
        left = self.left()
        return share_seconds(min(target, left), cases_left, self.max_seconds) if left > 0 else None

    def half(self) -> float | None:
        """Return the time at which half of the remaining time is over; None without a limit."""
        return None if self.deadline is None else self.deadline - self.left() / 2


@dataclass(frozen=True, slots=True)
class DevicePart(Generic[T]):
    """What is measured on one device; `run` is its metadata: the run's own where there is one device only."""

    choice: Choice
    items: Sequence[T]
    run: dict[str, Any]
    target_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunLoop:
    """Measure items and store a row for each; `after` is called with each outcome once its row is stored."""

    store: Store
    limits: TimeBudget
    progress: SilentProgress = field(default_factory=SilentProgress)
    roofs: RoofsArgument = "auto"
    recalibrate: bool = False
    labels: Mapping[str, Any] = field(default_factory=dict)
    after: Callable[[Outcome], object] = lambda _: None
    again_share: float | None = None  # second tries take this share of the cases' time; None: AGAIN_SHARE

    def measure_parts(self, parts: Sequence[DevicePart[T]], executor_of: Callable[[Choice], Executor[T]]) -> None:
        """Measure every part in turn; each gets an even share of the remaining time.

        Of several devices, one that cannot be opened leaves failed rows; `--resume` tries them again.
        """
        several = len(parts) > 1
        for number, part in enumerate(parts):
            if several and not part.items:
                continue
            job = self
            if several:
                share = self.limits.left() / (len(parts) - number)
                until = None if self.limits.deadline is None else time.monotonic() + share
                job = replace(self, limits=replace(self.limits, target_seconds=part.target_seconds, until=until))
            with closing(executor_of(part.choice)) as executor:
                try:
                    context = job.prepare(executor, part.run, part.items)
                except (_core.UnavailableError, _core.DeviceError) as error:
                    if not several:
                        raise
                    self._add_failed(part, f"the device could not be opened: {error}")
                    continue
                if several:
                    # The facts must be in the file before the device's first row: they tell which rows are its own.
                    if number == 0:
                        self.store.run |= {name: part.run[name] for name in ("facts", "roofs") if name in part.run}
                    self.store.write_json()
                job.run_cases(part.items, executor, context)

    def _add_failed(self, part: DevicePart[T], reason: str) -> None:
        facts = {"name": part.choice.name}
        context = Context(part.run["run_id"], part.choice.backend, facts, None, dict(self.labels))
        for item in part.items:
            self.store.add(make_unmeasured(item, context, "failed", reason).row)

    def prepare(self, executor: Executor[T], run: dict[str, Any], items: Sequence[T]) -> Context:
        """Open the device and get its roofs; write both into `run`, the device's metadata.

        Only the roofs that the items need are measured, in at most half of the remaining time. A device that opens too
        late leaves no time for any case.
        """
        self.progress.stage("opening the device")
        facts: dict[str, Any] = {}
        found: Roofs | None = None
        with suppress(RunTimeoutError):
            run["facts"] = facts = executor.open(self.limits.deadline)
            if isinstance(self.roofs, Roofs):
                found = match_roofs(self.roofs, facts)
            elif self.roofs and not self.recalibrate:
                found = _earlier_roofs(run, facts)
            caches = {item.cache for item in items}
            if found is None and self.roofs and self.limits.left() > 0 and caches:
                self.progress.stage("looking for the roofs")
                request = RoofRequest("cold" in caches, "hot" in caches, self.recalibrate, self.roofs == "stored")
                found = executor.obtain_roofs(request, self.limits.half())
            if self.roofs or "roofs" not in run:  # else finished rows of a resumed run may have used the roofs in it
                run["roofs"] = found.to_dict() if found else None
        context = Context(run["run_id"], run["backend"], facts, found, dict(self.labels))
        executor.set_context(context)
        return context

    def run_cases(self, items: Sequence[T], executor: Executor[T], context: Context) -> None:
        """Measure items in order; each leaves a row in the store.

        At the end, CPU rows that other processes disturbed are measured once more, for a limited time. The undisturbed
        or later row stays; a CSV file holds the first one until the run ends. However the run ends, each row is
        compared with the fastest reference stream of all rows: a neighbor that was busy from the start is only visible
        once it stops.
        """
        begun, limits = time.monotonic(), self.limits
        tried: list[tuple[int, T, float]] = []
        book = ReferenceBook()
        specs = [item for item in items if isinstance(item, Spec)]
        if specs and len(specs) == len(items):  # the time of a caller's function is not known ahead
            target, most = limits.target_seconds, limits.max_seconds
            self.progress.ahead(*estimate_cases(specs, context.facts, context.backend, target, most))
        self.progress.begin(len(items))
        begin: Callable[[T, float, float | None], None] | None = getattr(executor, "begin", None)
        ahead: float | None = None  # seconds of sampling of a case that the child has begun
        try:
            for number, item in enumerate(items):
                seconds = limits.share(begun, len(items) - number) if ahead is None else ahead
                if seconds is None:
                    reason = f"the {limits.max_total_seconds:g} s of {limits.option} were over"
                    outcome = make_unmeasured(item, context, "skipped", reason)
                else:
                    self.progress.case(item.title)
                    outcome = book.compare(executor.measure(item, seconds, limits.deadline))
                ahead = limits.share(begun, len(items) - number - 1) if begin and number + 1 < len(items) else None
                if begin and ahead is not None:
                    begin(items[number + 1], ahead, limits.deadline)
                tried.append((self.store.add(outcome.row, outcome.samples), item, seconds or 0.0))
                book.add(tried[-1][0], outcome)
                self.progress.row(outcome.row, outcome.samples or ())
                self.after(outcome)
            self._amend_rows(book)
            disturbed = [entry for entry in tried if entry[1].repeatable and is_disturbed(self.store.rows[entry[0]])]
            share = AGAIN_SHARE if self.again_share is None else self.again_share
            self._measure_again(disturbed, executor, book, share * (time.monotonic() - begun))
        finally:
            self._amend_rows(book)

    def _amend_rows(self, book: ReferenceBook) -> None:
        for number, row, changed in book.list_changes():
            if self.store.rows[number] is row:  # else an interrupt came while a second try replaced it
                self.store.amend(number, changed)

    def _measure_again(
        self, disturbed: Sequence[tuple[int, T, float]], executor: Executor[T], book: ReferenceBook, seconds_left: float
    ) -> None:
        """Measure (row number, item, seconds of sampling) a second time, as many as there is time for."""
        until = time.monotonic() + min(seconds_left, self.limits.left())
        if disturbed:
            self.progress.stage("measuring disturbed cases again")
        for number, item, seconds in disturbed:
            if time.monotonic() >= until:
                return
            self.progress.case(item.title)
            outcome = book.compare(executor.measure(item, min(seconds, self.limits.left()), self.limits.deadline))
            row = choose_better(self.store.rows[number], outcome.row)
            self.store.replace(number, row, outcome.samples if row is outcome.row else None)
            if row is outcome.row:
                book.add(number, outcome)
            self.progress.again(outcome.row)


def _earlier_roofs(run: dict[str, Any], facts: dict[str, Any]) -> Roofs | None:
    """Return the roofs of the resumed run if they are this device's."""
    try:
        found = Roofs.from_dict(run["roofs"]) if run.get("roofs") else None
    except ValueError:
        return None
    if found is None or not found.points or found.threads not in (0, facts.get("units")):
        return None
    return found if found.belongs_to(facts) else None


class ReferenceBook:
    """Compare the rows of one device with the fastest reference stream of all, also one beside a later row."""

    def __init__(self) -> None:
        self._best_ns = math.inf
        self._outcomes: dict[int, Outcome] = {}

    def compare(self, outcome: Outcome) -> Outcome:
        """Compare the outcome's row with the streams so far, its own included; return the outcome."""
        if outcome.references is not None:
            self._best_ns = min(self._best_ns, outcome.references.best_ns)
            outcome.row.update(update_slowdown(outcome.row, outcome.references, self._best_ns))
        return outcome

    def add(self, number: int, outcome: Outcome) -> None:
        """Store a compared row under its number."""
        self._outcomes[number] = outcome

    def list_changes(self) -> Iterator[tuple[int, RowDict, RowDict]]:
        """Yield (number, row, changed columns) of the rows that a later stream changes."""
        for number, outcome in self._outcomes.items():
            seen = outcome.references
            if seen is not None and (changed := update_slowdown(outcome.row, seen, self._best_ns)):
                yield number, outcome.row, changed


def finish_rows(outcomes: Iterable[Outcome]) -> list[RowDict]:
    """Return the rows of one device, each compared with the fastest reference stream of all."""
    finished, book = list(outcomes), ReferenceBook()
    for number, outcome in enumerate(finished):
        book.add(number, book.compare(outcome))
    for _, row, changed in book.list_changes():
        row.update(changed)
    return [outcome.row for outcome in finished]


def is_disturbed(row: RowDict) -> bool:
    """Return whether a second try may be better: a CPU row that is noisy. A GPU's rows are noisy for other reasons."""
    noisy = row["status"] == "ok" and "noisy" in (row["flags"] or "").split(";")
    return noisy and bool(_core.backend_facts(row["backend"])["runs_on_host"])


def choose_better(first: RowDict, second: RowDict) -> RowDict:
    """Return the later of two tries of a case, unless it failed, or was disturbed and the first was not.

    Speed and spread decide nothing: that would favor times that are too short, or too sure. The row's `reason` names
    the other try.
    """
    chosen, other = (first, second) if rank_doubt(second) > rank_doubt(first) else (second, first)
    if other["status"] == "ok":
        note = f"measured twice: the other try, {other['time_ms']:.4g} ms, was disturbed"
    else:
        note = f"measured twice: the other try {other['status']}: {other['reason']}"
    chosen["reason"] = f"{chosen['reason']}; {note}" if chosen["reason"] else note
    return chosen


def rank_doubt(row: RowDict) -> tuple[bool, bool]:
    """Return a sort key for rows of one case: measured undisturbed, disturbed, others."""
    return row["status"] != "ok", is_disturbed(row)


def share_seconds(seconds_left: float, cases_left: int, most: float | None = None) -> float:
    """Return the seconds of sampling for the next case: an even share of the time left, at most `most`."""
    return _core.case_seconds(seconds_left, cases_left, DEFAULT_CASE_SECONDS if most is None else most)


AGAIN_SHARE = 0.25  # second tries take this share of the cases' time

# A case is ended when it takes this much longer than estimated: a slow kernel does not hang.
LIMIT_SECONDS = 600.0
LIMIT_FACTOR = 50.0
_FILL_SHARE = 0.1  # inputs are made and checked at about this share of the memory's speed
_LAUNCHES = 10
_START_SECONDS = 2.0  # to start processes, and to draw the picture
_WARM_UP = 1.3  # sampling with its warm-up, over sampling
_RATES_SECONDS, _CHECK_SECONDS = 1.0, 0.5  # to measure arithmetic rates; to check stored roofs
_LATE_SECONDS = DEFAULT_CASE_SECONDS  # sampling of a case that does not converge
_EARLY_SECONDS = _LATE_SECONDS / 4  # and of one that converges early


def estimate_launch(work: Mapping[str, int], precision: str, facts: Mapping[str, Any], backend: str) -> float:
    """Return the seconds of one launch at the device's best."""
    seconds = (work["algorithmic_bytes_read"] + work["algorithmic_bytes_written"]) / _gb_s(facts, backend) / 1e9
    rate = facts.get("peak_tflops", {}).get(precision, math.nan)
    return max(seconds, work["flops"] / rate / 1e12) if rate > 0 else seconds


def estimate_case(
    launch: float, memory_bytes: int, facts: Mapping[str, Any], backend: str, sampling: float = _EARLY_SECONDS
) -> float:
    """Return the seconds of a case: make and check inputs, warm up, sample for `sampling` seconds at least."""
    fill = memory_bytes / _gb_s(facts, backend) / 1e9 / _FILL_SHARE
    return fill + max(_LAUNCHES * launch, _WARM_UP * sampling)


def estimate_cases(
    specs: Sequence[Spec], facts: Mapping[str, Any], backend: str, target: float | None, most: float | None
) -> tuple[float, float]:
    """Return the seconds of a run's cases when all converge early, and when none does.

    `target` is the run's time for all cases, `most` the sampling of each (None: as long as a run does), in seconds.
    """
    longest = _LATE_SECONDS if most is None else most
    share = math.inf if target is None else target / max(1, len(specs))
    free = facts.get("memory_free_bytes", math.inf)

    def add_up(sampling: float) -> float:
        cases = (_estimate_spec(spec, facts, backend, sampling, free) for spec in specs)
        return sum(min(share, seconds) for seconds in cases if seconds is not None)

    return add_up(min(longest, _EARLY_SECONDS)), add_up(longest)


def estimate_run(
    cases: tuple[float, float], facts: dict[str, Any], backend: str, request: RoofRequest | None
) -> tuple[float, float]:
    """Return the least and most seconds of a run from those of its cases; `request` None: no roofs are measured.

    The least assumes a check of stored roofs, the most new roofs and, on a CPU, second tries.
    """
    known = _core.backend_facts(backend)
    least, most = _START_SECONDS + cases[0], _START_SECONDS + cases[1] * (1 + AGAIN_SHARE * known["runs_on_host"])
    if request is None:
        return least, most
    new = _RATES_SECONDS + request.cold * known["cold_streams_s"] + request.hot * known["hot_streams_s"]
    stored = None if request.recalibrate else stored_roofs.load(stored_roofs.identity(backend, facts))
    usable = stored and (stored.points or not request.cold) and (stored.hot_points or not request.hot)
    return least + (_CHECK_SECONDS if usable else new), most + new


def estimate_limit(spec: Spec, facts: Mapping[str, Any], backend: str) -> float:
    """Return the seconds after which a case without a limit is taken to hang."""
    seconds = _estimate_spec(spec, facts, backend, _EARLY_SECONDS)
    return LIMIT_SECONDS if seconds is None else LIMIT_SECONDS + LIMIT_FACTOR * seconds


def _estimate_spec(
    spec: Spec, facts: Mapping[str, Any], backend: str, sampling: float, free: float = math.inf
) -> float | None:
    """Return the seconds of a case; None where the device refuses it, or `free` bytes are too few."""
    try:
        work = _core.cost(spec.operation, spec.precision, spec.params, spec.kv_lens, backend, spec.variant)
    except (ValueError, _core.UnsupportedError):
        return None
    if work["footprint_bytes"] > free:
        return None
    launch = estimate_launch(work, spec.precision, facts, backend)
    return estimate_case(launch, work["footprint_bytes"], facts, backend, sampling)


def _gb_s(facts: Mapping[str, Any], backend: str) -> float:
    peak = facts.get("peak_gb_s", math.nan)
    return peak * 0.85 if peak > 0 else float(_core.backend_facts(backend)["guessed_gb_s"])
