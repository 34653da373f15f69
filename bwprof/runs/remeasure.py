"""Measure rows once more under their own conditions, in a fresh process on the same device."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bwprof import _core, registry
from bwprof.hardware import devices
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, describe_origin
from bwprof.results.row import Row as PublicRow
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.model import Roofs, RoofsArgument, match_roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs.loop import Executor, RunLoop, TimeBudget, share_seconds
from bwprof.runs.metadata import key_of_row, key_of_spec
from bwprof.runs.progress import SilentProgress
from bwprof.text import formatting
from bwprof.text.formatting import plural
from bwprof.text.parsing import finite_or_none, quote_text

MakeExecutor = Callable[[str, int], Executor[Any]]


def measure_again(
    rows: Sequence[RowDict],
    run: Mapping[str, Any],
    make: MakeExecutor,
    progress: SilentProgress,
    *,
    say: Callable[[str], object] = lambda _: None,
    roofs: RoofsArgument = False,
) -> list[PublicRow | str]:
    """Measure each row's case once more, with the same parameters, variant, cache, seed and timer.

    Return for each row a new row, or the reason (str) why there is none. `run` is the run's metadata ({}: unknown),
    which says how long each case was sampled, and its plan. `make` makes an executor, in a process of its own, from a
    backend and a device's number. `say` gets a sentence when the cases of an available device begin. Roofs that are
    not stored are not measured for the new rows.
    """
    results: list[PublicRow | str] = [""] * len(rows)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(rows):
        device = tuple(row.get(name) for name in ("backend", "device", "device_uuid", "hostname"))
        groups.setdefault(device, []).append(number)
    for numbers in groups.values():
        answers = _measure_group([rows[number] for number in numbers], run, make, progress, say, roofs)
        for number, answer in zip(numbers, answers, strict=True):
            results[number] = answer
    return results


def _measure_group(
    rows: Sequence[RowDict],
    run: Mapping[str, Any],
    make: MakeExecutor,
    progress: SilentProgress,
    say: Callable[[str], object],
    roofs: RoofsArgument,
) -> list[PublicRow | str]:
    """Do what `measure_again` does for rows of one device."""
    first = rows[0]
    numbers = _find_devices(first, run)
    if not numbers:
        return [f"{quote_text(first.get('device'))} is not at hand"] * len(rows)
    planned = _read_plan(run, str(first["backend"]))
    specs = [_find_spec(row, planned, finite_or_none(run.get("rel_ci"))) for row in rows]
    count = sum(isinstance(spec, Spec) for spec in specs)
    executor, facts, why = _open_device(first, numbers, make) if count else (None, {}, "")
    if executor is None:
        return [spec if isinstance(spec, str) else why for spec in specs]
    try:
        say(f"measuring again what failed: {plural(count, 'case')} on {quote_text(first['device'])}")
        caches = {row["cache"] for row in rows}
        found = _find_roofs(executor, facts, roofs, RoofRequest("cold" in caches, "hot" in caches, stored=True))
        context = Context(f"again-{secrets.token_hex(4)}", str(first["backend"]), facts, found)
        executor.set_context(context)
        limits = TimeBudget(None, None, time.monotonic(), max_seconds=_sampling_seconds(run))
        store = Store({})
        loop = RunLoop(store, limits, progress, again_share=math.inf)
        loop.run_cases([spec for spec in specs if isinstance(spec, Spec)], executor, context)
    finally:
        executor.close()
    measured = (PublicRow(row, samples or ()) for row, samples in zip(store.rows, store.samples, strict=True))
    return [spec if isinstance(spec, str) else next(measured) for spec in specs]


def _find_roofs(
    executor: Executor[Any], facts: dict[str, Any], roofs: RoofsArgument, request: RoofRequest
) -> Roofs | None:
    if isinstance(roofs, Roofs):
        return match_roofs(roofs, facts)
    return executor.obtain_roofs(request, None) if roofs else None


def _find_devices(row: RowDict, run: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the devices here with the row's device name, the run's own number first."""
    name = row.get("backend"), row.get("device")
    numbers = [device["index"] for device in devices() if (device["backend"], device["name"]) == name]
    return sorted(numbers, key=lambda number: number != run.get("device_index"))


def _open_device(
    row: RowDict, numbers: Sequence[int], make: MakeExecutor
) -> tuple[Executor[Any] | None, dict[str, Any], str]:
    """Open the row's device; return its executor and facts, or None and why none of the numbers is it."""
    backend, why = str(row["backend"]), ""
    for number in numbers:
        executor = make(backend, number)
        try:
            facts = executor.open(None)
            here = describe_origin(Context("", backend, facts, None))
            # A device is known by its UUID, else by the machine's name.
            name = "device_uuid" if row.get("device_uuid") and here["device_uuid"] else "hostname"
            if not row.get(name) or row[name] == here[name]:
                return executor, facts, ""
            why = f"the {quote_text(row.get('device'))} at hand is another one"
        except _core.UnavailableError as error:
            why = str(error)
        executor.close()
    return None, {}, why


def _find_spec(row: RowDict, planned: Mapping[object, Spec], rel_ci: float | None) -> Spec | str:
    """Return the row's case, from the run's plan where it is there; or the reason why it cannot be measured."""
    if row.get("status") != "ok":
        return f"it is {row.get('status')}"
    known = [operation["name"] for operation in registry.operations()]
    if row.get("operation") not in known:
        return f"{quote_text(row.get('operation'))} is a caller's own function"
    try:
        backend = str(row["backend"])
        spec = planned.get(key_of_row(row)) or _make_spec(row, rel_ci)
        # The device chose the row's variant and timer.
        spec = replace(spec, variant=row.get("variant") or None, timer=row.get("timer") or None)
        return Spec.checked(spec.to_dict(), backend)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"its case cannot be told ({error})"


def _read_plan(run: Mapping[str, Any], backend: str) -> dict[object, Spec]:
    """Return the cases of a run's plan that this bwprof can run, by the keys of their rows."""
    plan = run.get("plan")
    found: dict[object, Spec] = {}
    for entry in plan if isinstance(plan, list) else ():
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            spec = Spec.checked(entry, backend)
            found[key_of_spec(spec)] = spec
    return found


def _make_spec(row: RowDict, rel_ci: float | None) -> Spec:
    names = registry.param_names(str(row["operation"]))
    params = {name: int(row[name]) for name in names if not formatting.is_missing(row.get(name))}
    lens = registry.row_lengths(row)
    identity = str(row["case"]), str(row["operation"]), str(row["precision"]), params
    lens = None if lens is None else tuple(lens)
    return Spec(*identity, lens, None, str(row["cache"]), int(row.get("seed") or 0), rel_ci=rel_ci)


def _sampling_seconds(run: Mapping[str, Any]) -> float:
    """Return how long the run sampled each case."""
    target, most = finite_or_none(run.get("target_seconds")), finite_or_none(run.get("max_seconds"))
    plan = run.get("plan")
    count = len(plan) if isinstance(plan, list) and plan else 1
    return share_seconds(math.inf if target is None else target, count, most)
