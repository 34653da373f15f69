"""A run's metadata: when, where, with what, its plan, and which cases of it have rows (for ``--resume``).

A run over several devices has the metadata of the first, as if it were alone; `devices` has a dict for each, with its
facts, its roofs, and its plan where that differs from the first's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Generic

from bwprof import _core, environment, registry
from bwprof.hardware import Choice
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome, make_unmeasured
from bwprof.results import schema
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.model import ROOF_CHOICES, Roofs, RoofsArgument, check_roofs
from bwprof.runs import loop
from bwprof.runs.loop import Executor, T, TimeBudget, ran_out_of_time
from bwprof.runs.plan import Plan
from bwprof.runs.progress import SilentProgress
from bwprof.text.parsing import repr_short

_CHOICE, _PASSED = "roofs_choice", "given"


def describe_run(
    run_id: str, plan: Plan, choice: Choice, argv: Sequence[str] | None, roofs: RoofsArgument = "auto"
) -> dict[str, Any]:
    """The metadata at the start of a run of operations."""
    return (
        describe(run_id, choice, argv)
        | {
            "suite": plan.suite,
            "target_seconds": plan.target_seconds,
            "max_seconds": plan.max_seconds,
            "seed": plan.specs[0].seed,
            "plan": [spec.to_dict() for spec in plan.specs],
        }
        | describe_roofs(roofs)
    )


def describe_roofs(given: RoofsArgument) -> dict[str, Any]:
    """What rows are held against, as `--resume` reads it: `roofs=` of the sweep, and "given" for those that it got."""
    if isinstance(given, Roofs):
        return {_CHOICE: _PASSED, "roofs": given.to_dict()}
    return {_CHOICE: given}


def read_roofs_argument(data: dict[str, Any]) -> RoofsArgument:
    """The inverse; "auto" for a run of before there was a choice.

    Raises
    ------
    ValueError
        For a word that is none, and given roofs that are damaged.
    """
    found = data.get(_CHOICE, "auto")
    if found == _PASSED:
        return Roofs.from_dict(data.get("roofs") or {})
    if found is not False and found not in ROOF_CHOICES:
        raise ValueError(f"its {_CHOICE} is {repr_short(found)}")
    return check_roofs(found)


def describe(run_id: str, choice: Choice, argv: Sequence[str] | None) -> dict[str, Any]:
    """The metadata of any run at its start; facts and roofs follow when the device is open."""
    return {
        "run_id": run_id,
        "status": "running",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": None,
        "argv": list(argv) if argv is not None else None,
        "backend": choice.backend,
        "device_index": choice.index,
        "device": choice.name,
        "device_reason": choice.reason,
        "host": environment.host_facts(),
        "versions": environment.package_versions(),
        "git_commit": environment.git_commit(),
        "build": dict(_core.build),
        "environment": environment.environment_variables(),
    }


_FINISHED = ("ok", "skipped", "predicted")

_Key = tuple[object, ...]


def find_remaining(specs: Sequence[Spec], rows: Sequence[RowDict]) -> tuple[list[int], list[Spec], int]:
    """The rows to keep, the cases that have none among them, and how many of those rows belong to no case.

    Every row stands for one case. A row that is left out failed, or ran out of time, and its case is measured again.
    """
    keys = [key_of_spec(spec) for spec in specs]
    asked = set(keys)
    waiting: dict[_Key, dict[str | None, deque[int]]] = {}  # finished rows by case and variant
    kept: list[int] = []
    strangers = 0
    for place, row in enumerate(rows):
        key = key_of_row(row)
        if key not in asked:
            kept.append(place)
            strangers += 1
        elif is_finished(row):
            waiting.setdefault(key, {}).setdefault(row["variant"], deque()).append(place)
    found: set[int] = set()  # of the cases
    # Cases that name their variant choose first: those that name none take whatever row is left.
    for number, spec in sorted(enumerate(specs), key=lambda numbered: numbered[1].variant is None):
        taken = _taken(waiting.get(keys[number], {}), spec.variant)
        if taken is not None:
            kept.append(taken)
            found.add(number)
    spare = [place for variants in waiting.values() for places in variants.values() for place in places]
    missing = [spec for number, spec in enumerate(specs) if number not in found]
    return sorted(kept + spare), missing, strangers + len(spare)


def is_finished(row: RowDict) -> bool:
    """Whether a row stands for its case: measured, or never to be."""
    return row["status"] in _FINISHED and not ran_out_of_time(row)


def _taken(variants: dict[str | None, deque[int]], wanted: str | None) -> int | None:
    """The first row that is left, of the variant that is wanted; it is taken away."""
    if wanted is None:
        places = min((found for found in variants.values() if found), key=lambda found: found[0], default=None)
    else:
        places = variants.get(wanted)
    return places.popleft() if places else None


def key_of_spec(spec: Spec) -> _Key:
    """What a case has in common with its row, whichever variant was chosen."""
    lens = registry.format_lengths(spec.kv_lens)
    params = tuple(spec.params.get(name) for name in _param_names(spec.operation))
    lens = lens and schema.clean_text(lens)
    return schema.clean_text(spec.case), spec.operation, spec.precision, spec.seed, lens, spec.cache, params


def key_of_row(row: RowDict) -> _Key:
    """The same of a row."""
    params = tuple(row[name] for name in _param_names(row["operation"]))
    return row["case"], row["operation"], row["precision"], row["seed"], row["kv_lens"], row["cache"], params


@cache
def _param_names(operation: str) -> tuple[str, ...]:
    try:
        return tuple(registry.param_names(operation))
    except ValueError:  # no operation that this bwprof knows
        return ()


DEVICES = "devices"  # of the run's metadata

# Called when no row will come any more, the run having been interrupted perhaps: rows that follow from others.
Finisher = Callable[[Store], None]


def finish_nothing(_store: Store) -> None:
    """Where no row follows from others."""


@dataclass(frozen=True, slots=True)
class DevicePart(Generic[T]):
    """What is measured on one device; `run` are that part's metadata, the run's own where it is the only one."""

    choice: Choice
    items: Sequence[T]
    run: dict[str, Any]
    target_seconds: float | None = None


def make_parts(made: Sequence[tuple[Choice, Plan]], data: dict[str, Any]) -> list[DevicePart[Any]]:
    """A part for each device, and their metadata within the run's (`data`, which are the first one's)."""
    if len(made) == 1:
        return [DevicePart(choice, plan.specs, data, plan.target_seconds) for choice, plan in made]
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
        found.append(DevicePart(choice, plan.specs, own, plan.target_seconds))
    data[DEVICES] = [part.run for part in found]
    return found


def measure_parts(
    parts: Sequence[DevicePart[T]],
    executor_of: Callable[[Choice], Executor[T]],
    store: Store,
    *,
    limits: TimeBudget,
    progress: SilentProgress,
    given: RoofsArgument = "auto",
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
                context = loop.prepare_device(
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


def _share(limits: TimeBudget, part: DevicePart[T], parts: int) -> TimeBudget:
    """The limits of a part when so many parts are left, it among them."""
    until = None if limits.deadline is None else time.monotonic() + limits.left() / parts
    return replace(limits, target_seconds=part.target_seconds, until=until)


def _fail(part: DevicePart[T], store: Store, reason: str, labels: Mapping[str, Any] | None) -> None:
    facts = {"name": part.choice.name}
    context = Context(part.run["run_id"], part.choice.backend, facts, None, dict(labels or {}))
    for item in part.items:
        store.add(make_unmeasured(item, context, "failed", f"the device could not be opened: {reason}").row)


def find_owners(rows: Sequence[RowDict], runs: Sequence[Mapping[str, Any]]) -> list[int | None]:
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
