"""Describe a run in its metadata, find the cases that ``--resume`` must measure, and measure device after device.

A run over several devices has the metadata of the first; its list `devices` holds a dict for each device: facts, roofs,
and the plan where it differs from the first device's.
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

_FINISHED = ("ok", "skipped", "predicted")
_ROOFS_CHOICE, _ARGUMENT = "roofs_choice", "given"
DEVICES = "devices"  # the key of the devices' metadata
_Key = tuple[object, ...]
Finisher = Callable[[Store], None]  # adds rows that follow from others when no more come, also after an interrupt


def finish_nothing(_store: Store) -> None:
    """Add no rows: a `Finisher`."""


def describe(run_id: str, choice: Choice, argv: Sequence[str] | None) -> dict[str, Any]:
    """Return the metadata at the start of any run; facts and roofs follow when the device is open."""
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


def describe_run(
    run_id: str, plan: Plan, choice: Choice, argv: Sequence[str] | None, roofs: RoofsArgument = "auto"
) -> dict[str, Any]:
    """Return the metadata at the start of a run of operations."""
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


def describe_roofs(roofs: RoofsArgument) -> dict[str, Any]:
    """Return the metadata of a sweep's `roofs=`; `read_roofs_argument` is the inverse."""
    if isinstance(roofs, Roofs):
        return {_ROOFS_CHOICE: _ARGUMENT, "roofs": roofs.to_dict()}
    return {_ROOFS_CHOICE: roofs}


def read_roofs_argument(data: dict[str, Any]) -> RoofsArgument:
    """Return the `roofs=` of a run's metadata; ValueError for an unknown word and damaged roofs."""
    found = data.get(_ROOFS_CHOICE, "auto")
    if found == _ARGUMENT:
        return Roofs.from_dict(data.get("roofs") or {})
    if found is not False and found not in ROOF_CHOICES:
        raise ValueError(f"its {_ROOFS_CHOICE} is {repr_short(found)}")
    return check_roofs(found)


def find_remaining(specs: Sequence[Spec], rows: Sequence[RowDict]) -> tuple[list[int], list[Spec], int]:
    """Return the numbers of the rows that stay, the cases without a row, and how many of those rows have no case.

    Every row stands for one case. A row that failed, or ran out of time, is dropped and its case is measured again.
    """
    keys = [key_of_spec(spec) for spec in specs]
    known = set(keys)
    available: dict[_Key, dict[str | None, deque[int]]] = {}  # finished rows by case and variant
    stay: list[int] = []
    foreign = 0
    for number, row in enumerate(rows):
        key = key_of_row(row)
        if key not in known:
            stay.append(number)
            foreign += 1
        elif is_finished(row):
            available.setdefault(key, {}).setdefault(row["variant"], deque()).append(number)
    measured: set[int] = set()  # numbers of cases
    # Cases with a variant choose first: the others take whatever row is left.
    for case, spec in sorted(enumerate(specs), key=lambda numbered: numbered[1].variant is None):
        taken = _take_row(available.get(keys[case], {}), spec.variant)
        if taken is not None:
            stay.append(taken)
            measured.add(case)
    spare = [number for variants in available.values() for numbers in variants.values() for number in numbers]
    missing = [spec for case, spec in enumerate(specs) if case not in measured]
    return sorted(stay + spare), missing, foreign + len(spare)


def is_finished(row: RowDict) -> bool:
    """Return whether a row stands for its case: it is measured, or never will be."""
    return row["status"] in _FINISHED and not ran_out_of_time(row)


def _take_row(variants: dict[str | None, deque[int]], variant: str | None) -> int | None:
    """Remove and return the first row of the variant (None: of any)."""
    if variant is None:
        numbers = min((queue for queue in variants.values() if queue), key=lambda queue: queue[0], default=None)
    else:
        numbers = variants.get(variant)
    return numbers.popleft() if numbers else None


def key_of_spec(spec: Spec) -> _Key:
    """Return what a case and its row have in common, whichever variant the device chose."""
    lens = registry.format_lengths(spec.kv_lens)
    params = tuple(spec.params.get(name) for name in _param_names(spec.operation))
    lens = lens and schema.clean_text(lens)
    return schema.clean_text(spec.case), spec.operation, spec.precision, spec.seed, lens, spec.cache, params


def key_of_row(row: RowDict) -> _Key:
    """Return the `key_of_spec` of the row's case."""
    params = tuple(row[name] for name in _param_names(row["operation"]))
    return row["case"], row["operation"], row["precision"], row["seed"], row["kv_lens"], row["cache"], params


@cache
def _param_names(operation: str) -> tuple[str, ...]:
    try:
        return tuple(registry.param_names(operation))
    except ValueError:  # an operation that this bwprof does not know
        return ()


@dataclass(frozen=True, slots=True)
class DevicePart(Generic[T]):
    """What is measured on one device; `run` is its metadata: the run's own where there is one device only."""

    choice: Choice
    items: Sequence[T]
    run: dict[str, Any]
    target_seconds: float | None = None


def make_parts(plans: Sequence[tuple[Choice, Plan]], data: dict[str, Any]) -> list[DevicePart[Any]]:
    """Return a part for each device; write the devices' metadata into `data`, the run's."""
    if len(plans) == 1:
        return [DevicePart(choice, plan.specs, data, plan.target_seconds) for choice, plan in plans]
    first = plans[0][1]
    parts = []
    for choice, plan in plans:
        own = {
            "run_id": data["run_id"],
            "backend": choice.backend,
            "device_index": choice.index,
            "device": choice.name,
            "device_reason": choice.reason,
            "target_seconds": plan.target_seconds,
            "plan": None if plan.specs == first.specs else [spec.to_dict() for spec in plan.specs],
        }
        parts.append(DevicePart(choice, plan.specs, own, plan.target_seconds))
    data[DEVICES] = [part.run for part in parts]
    return parts


def measure_parts(
    parts: Sequence[DevicePart[T]],
    executor_of: Callable[[Choice], Executor[T]],
    store: Store,
    *,
    limits: TimeBudget,
    progress: SilentProgress,
    roofs: RoofsArgument = "auto",
    recalibrate: bool = False,
    labels: Mapping[str, Any] | None = None,
    after: Callable[[Outcome], None] | None = None,
) -> None:
    """Measure every part in turn; each gets an even share of the remaining time.

    Of several devices, one that cannot be opened leaves failed rows; `--resume` tries them again.
    """
    for number, part in enumerate(parts):
        if len(parts) > 1 and not part.items:
            continue
        executor = executor_of(part.choice)
        own = limits
        if len(parts) > 1:
            until = None if limits.deadline is None else time.monotonic() + limits.left() / (len(parts) - number)
            own = replace(limits, target_seconds=part.target_seconds, until=until)
        try:
            try:
                context = loop.prepare_device(
                    executor,
                    part.run,
                    part.items,
                    limits=own,
                    progress=progress,
                    roofs=roofs,
                    recalibrate=recalibrate,
                    labels=labels,
                )
            except (_core.UnavailableError, _core.DeviceError) as error:
                if len(parts) == 1:
                    raise
                _add_failed(part, store, str(error), labels)
                continue
            if len(parts) > 1:
                # The facts must be in the file before the device's first row: they tell which rows are its own.
                if number == 0:
                    store.run |= {name: part.run[name] for name in ("facts", "roofs") if name in part.run}
                store.write_json()
            loop.run_cases(part.items, executor, context, store, limits=own, progress=progress, after=after)
        finally:
            executor.close()


def _add_failed(part: DevicePart[T], store: Store, reason: str, labels: Mapping[str, Any] | None) -> None:
    context = Context(part.run["run_id"], part.choice.backend, {"name": part.choice.name}, None, dict(labels or {}))
    for item in part.items:
        store.add(make_unmeasured(item, context, "failed", f"the device could not be opened: {reason}").row)


def find_owners(rows: Sequence[RowDict], runs: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """Return the number of the part that measured each row, by backend and UUID; None where it is unknown."""
    if len(runs) == 1:
        return [0] * len(rows)
    known = {
        (run["backend"], (run.get("facts") or {}).get("uuid") or None): number
        for number, run in enumerate(runs)
        if run.get("facts")
    }
    return [known.get((row["backend"], row["device_uuid"] or None)) for row in rows]


def is_part(run: object) -> bool:
    """Return whether an object of a file can be the metadata of a part."""
    if not isinstance(run, dict) or not isinstance(run.get("facts") or {}, dict):
        return False
    return isinstance(run.get("backend"), str) and type(run.get("device_index")) is int
