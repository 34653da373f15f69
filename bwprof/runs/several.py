"""A run over one device or several, one after the other: what each measures, and what the run writes down of it.

The metadata of a run over several devices are those of the first, as if it were alone; beside them `devices` has a
dict for each, with its facts, its roofs, and the plan where that is not the first's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from bwprof import _core
from bwprof.hardware import Choice
from bwprof.measuring.row import Context, Outcome, unmeasured
from bwprof.results.schema import Row
from bwprof.results.writer import Store
from bwprof.roofs import Given
from bwprof.runs import loop
from bwprof.runs.loop import Executor, Limits, T
from bwprof.runs.plan import Plan
from bwprof.runs.progress import Progress

DEVICES = "devices"  # of the run's metadata

# Called when no row will come any more, the run having been interrupted perhaps: rows that follow from others.
Settle = Callable[[Store], None]


def as_it_is(_store: Store) -> None:
    """Where no row follows from others."""


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What is measured on one device; `run` are that part's metadata, the run's own where it is the only one."""

    choice: Choice
    items: Sequence[T]
    run: dict[str, Any]
    target_seconds: float | None = None


def parts_of(made: Sequence[tuple[Choice, Plan]], data: dict[str, Any]) -> list[Part[Any]]:
    """A part for each device, and their metadata within the run's (`data`, which are the first one's)."""
    if len(made) == 1:
        return [Part(choice, plan.specs, data, plan.target_seconds) for choice, plan in made]
    first = made[0][1]
    found = []
    for choice, plan in made:
        own = {
            "run_id": data["run_id"],
            "backend": choice.backend,
            "device_index": choice.index,
            "device": choice.name,
            "device_reason": choice.reason,
            "target_seconds": plan.target_seconds,
            "plan": None if plan.specs == first.specs else [spec.to_dict() for spec in plan.specs],
        }
        found.append(Part(choice, plan.specs, own, plan.target_seconds))
    data[DEVICES] = [part.run for part in found]
    return found


def measure(
    parts: Sequence[Part[T]],
    executor_of: Callable[[Choice], Executor[T]],
    store: Store,
    *,
    limits: Limits,
    progress: Progress,
    given: Given = "auto",
    recalibrate: bool = False,
    labels: Mapping[str, Any] | None = None,
    after: Callable[[Outcome], None] | None = None,
) -> None:
    """Measure every part, one after the other; each has an even share of the time that is left.

    Of several devices one that cannot be opened costs its own rows: they fail, and `--resume` tries them again.
    """
    for number, part in enumerate(parts):
        if len(parts) > 1 and not part.items:
            continue
        executor = executor_of(part.choice)
        own = limits if len(parts) == 1 else _share(limits, part, len(parts) - number)
        try:
            try:
                context = loop.prepare(
                    executor,
                    part.run,
                    part.items,
                    limits=own,
                    progress=progress,
                    given=given,
                    recalibrate=recalibrate,
                    labels=labels,
                )
            except (_core.UnavailableError, _core.DeviceError) as error:
                if len(parts) == 1:
                    raise
                _fail(part, store, str(error), labels)
                continue
            if len(parts) > 1:
                # A device's facts stand in the file before its first row: by them the rows are known to be its own.
                if number == 0:
                    store.run |= {name: part.run[name] for name in ("facts", "roofs") if name in part.run}
                store.write_metadata()
            loop.run_cases(part.items, executor, context, store, limits=own, progress=progress, after=after)
        finally:
            executor.close()


def _share(limits: Limits, part: Part[T], parts: int) -> Limits:
    """The limits of a part when so many parts are left, it among them."""
    until = None if limits.deadline is None else time.monotonic() + limits.left() / parts
    return replace(limits, target_seconds=part.target_seconds, until=until)


def _fail(part: Part[T], store: Store, reason: str, labels: Mapping[str, Any] | None) -> None:
    facts = {"name": part.choice.name}
    context = Context(part.run["run_id"], part.choice.backend, facts, None, dict(labels or {}))
    for item in part.items:
        store.add(unmeasured(item, context, "failed", f"the device could not be opened: {reason}").row)


def owners(rows: Sequence[Row], runs: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """Which part's device each row was measured on, by backend and UUID; None where that cannot be told."""
    if len(runs) == 1:
        return [0] * len(rows)
    known = {
        (run["backend"], (run.get("facts") or {}).get("uuid") or None): number
        for number, run in enumerate(runs)
        if run.get("facts")
    }
    return [known.get((row["backend"], row["device_uuid"] or None)) for row in rows]


def is_part(run: object) -> bool:
    """Whether that can be the metadata of a part, as a file has them."""
    if not isinstance(run, dict) or not isinstance(run.get("facts") or {}, dict):
        return False
    return isinstance(run.get("backend"), str) and type(run.get("device_index")) is int
