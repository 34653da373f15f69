"""Rows measured once more, as they were measured, in a fresh process on the same device."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bwprof import _core, registry
from bwprof.hardware import devices
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context, Outcome, describe_origin
from bwprof.results.row import Row as PublicRow
from bwprof.results.schema import RowDict
from bwprof.roofs.model import Roofs, RoofsArgument, match_roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs.loop import Executor, ReferenceBook, choose_better, is_disturbed, share_seconds
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
    given: RoofsArgument = False,
) -> list[PublicRow | str]:
    """Each row's case once more, under the row's own conditions: operation, parameters, variant, cache, seed and timer.

    Parameters
    ----------
    rows : sequence of dict
        Rows of the run.
    run : dict
        Its metadata, {} where they are not known: how long each case was sampled, and its plan.
    make : callable
        An executor, whose device lives in a process of its own, of a backend and a device's number.
    given : {False, "stored", "auto"} or Roofs
        What the new rows are held against; what is not stored is not measured for them.
    say : callable
        Gets a sentence when the cases of a device that is at hand begin.

    Returns
    -------
    list
        A new row for each, or in words why there is none.
    """
    found: list[PublicRow | str] = [""] * len(rows)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(tuple(row.get(name) for name in ("backend", "device", "device_uuid", "hostname")), []).append(
            place
        )
    for places in groups.values():
        answers = _on_device([rows[place] for place in places], run, make, progress, say, given)
        for place, answer in zip(places, answers, strict=True):
            found[place] = answer
    return found


def _on_device(
    rows: Sequence[RowDict],
    run: Mapping[str, Any],
    make: MakeExecutor,
    progress: SilentProgress,
    say: Callable[[str], object],
    given: RoofsArgument,
) -> list[PublicRow | str]:
    """The same of rows of one device."""
    numbers = _numbers(rows[0], run)
    if not numbers:
        return [f"{quote_text(rows[0].get('device'))} is not at hand"] * len(rows)
    planned = _planned(run, str(rows[0].get("backend")))
    specs = [_spec_of(row, planned, finite_or_none(run.get("rel_ci"))) for row in rows]
    if all(isinstance(spec, str) for spec in specs):
        return [str(spec) for spec in specs]
    executor, facts, why = _opened(rows[0], numbers, make)
    if executor is None:
        return [spec if isinstance(spec, str) else why for spec in specs]
    count = sum(isinstance(spec, Spec) for spec in specs)
    say(f"measuring again what failed: {plural(count, 'case')} on {quote_text(rows[0].get('device'))}")
    progress.begin(count)
    try:
        roofs = _roofs(executor, facts, given, {str(row["cache"]) for row in rows})
        executor.set_context(Context(f"again-{secrets.token_hex(4)}", str(rows[0]["backend"]), facts, roofs))
        judged = ReferenceBook()
        outcomes = [
            spec if isinstance(spec, str) else _measured(spec, executor, run, judged, progress) for spec in specs
        ]
        judged.rows(one for one in outcomes if isinstance(one, Outcome))
        return [one if isinstance(one, str) else PublicRow(one.row, one.samples or ()) for one in outcomes]
    finally:
        executor.close()


def _roofs(
    executor: Executor[Any], facts: dict[str, Any], given: RoofsArgument, caches: Collection[str]
) -> Roofs | None:
    if isinstance(given, Roofs):
        return match_roofs(given, facts)
    return executor.obtain_roofs(RoofRequest("cold" in caches, "hot" in caches, stored=True), None) if given else None


def _measured(
    spec: Spec, executor: Executor[Any], run: Mapping[str, Any], judged: ReferenceBook, progress: SilentProgress
) -> Outcome:
    """A row; of a disturbed one a second try may be better, as in the run."""
    progress.case(spec.title)
    found = judged.hold(executor.measure(spec, _seconds(run), None))
    if is_disturbed(found.row):
        second = judged.hold(executor.measure(spec, _seconds(run), None))
        found = second if choose_better(found.row, second.row) is second.row else found
    progress.row(found.row)
    return found


def _numbers(row: RowDict, run: Mapping[str, Any]) -> list[int]:
    """The devices here that have the name of the row's; the run's own number first."""
    wanted = row.get("backend"), row.get("device")
    found = [one["index"] for one in devices() if (one["backend"], one["name"]) == wanted]
    return sorted(found, key=lambda number: number != run.get("device_index"))


def _opened(
    row: RowDict, numbers: Sequence[int], make: MakeExecutor
) -> tuple[Executor[Any] | None, dict[str, Any], str]:
    """The row's device, open, and its facts; None, and why, where it is none of these."""
    backend, why = str(row["backend"]), ""
    for number in numbers:
        executor = make(backend, number)
        try:
            facts = executor.open(None)
        except _core.UnavailableError as error:
            why = str(error)
        else:
            if _is_the_same(row, Context("", backend, facts, None)):
                return executor, facts, ""
            why = f"the {quote_text(row.get('device'))} at hand is another one"
        executor.close()
    return None, {}, why


def _is_the_same(row: RowDict, context: Context) -> bool:
    """Whether a device is the one that a row was measured on: by its UUID, else by the machine's name."""
    here = describe_origin(context)
    if row.get("device_uuid") and here["device_uuid"]:
        return bool(row["device_uuid"] == here["device_uuid"])
    return not row.get("hostname") or row["hostname"] == here["hostname"]


def _spec_of(row: RowDict, planned: Mapping[object, Spec], rel_ci: float | None) -> Spec | str:
    """The case behind a row, of the run's plan where it has one; in words why it cannot be measured."""
    if row.get("status") != "ok":
        return f"it is {row.get('status')}"
    known = [operation["name"] for operation in registry.operations()]
    if row.get("operation") not in known:
        return f"{quote_text(row.get('operation'))} is a caller's own function"
    try:
        backend = str(row["backend"])
        spec = planned.get(key_of_row(row))
        return Spec.checked((_from_row(row, rel_ci) if spec is None else _pinned(spec, row)).to_dict(), backend)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"its case cannot be told ({error})"


def _planned(run: Mapping[str, Any], backend: str) -> dict[object, Spec]:
    """The cases of a run's plan that this bwprof can run, as their rows name them."""
    plan = run.get("plan")
    found: dict[object, Spec] = {}
    for given in plan if isinstance(plan, list) else ():
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            spec = Spec.checked(given, backend)
            found[key_of_spec(spec)] = spec
    return found


def _pinned(spec: Spec, row: RowDict) -> Spec:
    """What the device chose when the row was measured, it must choose again."""
    return replace(spec, variant=row.get("variant") or None, timer=row.get("timer") or None)


def _from_row(row: RowDict, rel_ci: float | None) -> Spec:
    names = registry.param_names(str(row["operation"]))
    params = {name: int(row[name]) for name in names if not formatting.is_missing(row.get(name))}
    found = registry.row_lengths(row)
    lens = None if found is None else tuple(found)
    seed = row.get("seed")
    spec = Spec(
        str(row["case"]),
        str(row["operation"]),
        str(row["precision"]),
        params,
        lens,
        None,
        str(row["cache"]),
        0 if seed is None else int(seed),
        rel_ci=rel_ci,
    )
    return _pinned(spec, row)


def _seconds(run: Mapping[str, Any]) -> float:
    """How long the run sampled each case."""
    target, most = finite_or_none(run.get("target_seconds")), finite_or_none(run.get("max_seconds"))
    plan = run.get("plan")
    count = len(plan) if isinstance(plan, list) and plan else 1
    return share_seconds(math.inf if target is None else target, count, most)
