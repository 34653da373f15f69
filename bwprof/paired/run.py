"""Comparisons one after the other: in this process, or with a process for each side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bwprof import _core, environment
from bwprof.hardware import Choice
from bwprof.measuring.outputs import Expected
from bwprof.measuring.spec import Spec
from bwprof.paired import session
from bwprof.paired.process import ProcessSide
from bwprof.paired.result import Table, row_of
from bwprof.paired.session import NAMES, Found, How
from bwprof.paired.sides import CallSide, Opened, Side, SideError, later_timer
from bwprof.paired.work import Work
from bwprof.paired.worker import side_of
from bwprof.runs import metadata

_SAME = "A and B are the same: whatever is seen is noise"


@dataclass(frozen=True, slots=True)
class Pair:
    """One comparison: what is compared, what its sides are called, and how they are made.

    `sides` opens nothing; whatever it gives is ended by it. `note` is said of the row.
    """

    case: str
    cache: str
    names: tuple[str, str]
    sides: Callable[[], Any]  # a context manager of two sides
    note: str = ""


def start(choice: Choice, how: How, argv: Sequence[str] | None, sides: Mapping[str, Any]) -> Table:
    """The table of a run that begins."""
    run = metadata.describe(environment.new_run_id(), choice, argv)
    return Table(run | {"how": asdict(how), **sides})


def measure(
    pair: Pair, how: How, table: Table, check: Callable[[], object], compared: Callable[[Sequence[Side]], Any]
) -> Found:
    """One comparison; its row is in the table however it ends.

    `compared` gets the sides once both are open, and says whether their results agree: (verified, note).
    """
    found = Found(how)
    verdict: list[tuple[bool | None, str]] = []
    environments = ["", ""]
    try:
        with pair.sides() as sides:

            def may_compare(opened: Sequence[Opened]) -> None:
                environments[:] = [environment_of(side) for side in sides]
                table.run.setdefault("facts", facts_of(sides[0]))
                for name, one, side in zip(NAMES, opened, sides, strict=True):
                    table.run[name.lower()] = table.run.get(name.lower(), {}) | told_of(side, one)
                same_work(opened)
                verdict.append(compared(sides))

            session.compare(
                sides,
                how,
                into=found,
                backend=table.run["backend"],
                later_timer=later_timer,
                check=check,
                may_compare=may_compare,
            )
    finally:
        verified, note = verdict[0] if verdict else (None, "")
        if found.opened and all(one.verified for one in found.opened):
            verified = True
        told = {
            "case": pair.case,
            "cache": pair.cache,
            "a": pair.names[0],
            "b": pair.names[1],
            "a_environment": environments[0] or None,
            "b_environment": environments[1] or None,
        }
        notes = "; ".join(said for said in (pair.note, note) if said)
        table.add(row_of(found, table.run, told, verified=verified, notes=notes), found)
    return found


def same_work(opened: Sequence[Opened]) -> None:
    """SideError where two sides say that they do different work."""
    for name in ("operation", "precision", "shape"):
        values = [getattr(side, name) for side in opened]
        if None not in values and values[0] != values[1]:
            said = [tuple(value) if isinstance(value, list) else value for value in values]
            what = "returns an array of shape" if name == "shape" else f"measures the {name}"
            raise SideError(f"A {what} {said[0]}, B {said[1]}: a ratio of times needs two sides that do the same work")
    one, other = (side.params or {} for side in opened)
    for name in one.keys() & other.keys():
        if one[name] != other[name]:
            raise SideError(
                f"A measures {name} = {one[name]}, B {name} = {other[name]}: a ratio of times needs two sides that do "
                "the same work"
            )


def environment_of(side: Side) -> str:
    """Where a side runs, in words."""
    if not isinstance(side, ProcessSide):
        return ""
    versions = side.hello.get("versions", {})
    told = " ".join(f"{name} {versions[name]}" for name in ("python", "bwprof") if name in versions)
    return ", ".join(part for part in (side.label, told, str(side.hello.get("executable", ""))) if part)


def facts_of(side: Side) -> dict[str, Any]:
    """What is known of the device."""
    return side.facts if isinstance(side, ProcessSide) else {}


def told_of(side: Side, opened: Opened) -> dict[str, Any]:
    """What the metadata say of a side."""
    if not isinstance(side, ProcessSide):
        return {"title": opened.title}
    told = {name: side.hello.get(name) for name in ("versions", "executable")}
    return {"title": opened.title, **told, "revision": side.label or None}


def nothing_compared(_sides: Sequence[Side]) -> tuple[bool | None, str]:
    """Results in two other processes are not compared; operations were verified by each for itself."""
    return None, ""


def outputs_compared(tolerance: float | None) -> Callable[[Sequence[Side]], tuple[bool | None, str]]:
    """B's array held against A's, where both return one; without a tolerance nothing is judged."""

    def compared(sides: Sequence[Side]) -> tuple[bool | None, str]:
        one, other = (side.returned if isinstance(side, CallSide) else None for side in sides)
        if getattr(one, "shape", None) is None or getattr(other, "shape", None) is None:
            if tolerance is not None:
                raise SideError("tolerance= goes with functions that return arrays, and these return none")
            return None, ""
        try:
            verdict = Expected(other, one, tolerance).compare()
        except (TypeError, ValueError) as error:
            if tolerance is not None:
                raise SideError(f"what A and B return cannot be compared: {error}") from None
            return None, ""
        if verdict.wrong and tolerance is not None:
            raise SideError(f"B returns something else than A: {verdict.wrong}")
        return (
            verdict.verified or None,
            "" if verdict.verified else f"B held against A: {verdict.wrong or verdict.note}",
        )

    return compared


def pairs_here(works: Sequence[tuple[Work, Work]], device: _core.Device) -> list[Pair]:
    """Comparisons in this process, both sides on one open device."""
    return [_pair(pair, _local([side_of(device, one, Path.cwd()) for one in pair])) for pair in works]


def calls_here(names: tuple[str, str], sides: tuple[CallSide, CallSide], cache: str) -> Pair:
    """The same of two functions."""
    return Pair(names[0] if names[0] == names[1] else f"{names[0]} and {names[1]}", cache, names, _local(sides))


def pairs_apart(works: Sequence[tuple[Work, Work]], make: Callable[[int, Work], ProcessSide]) -> list[Pair]:
    """Comparisons with a process for each side; `make` makes side 0 or 1."""

    def sides_of(pair: tuple[Work, Work]) -> Callable[[], Any]:
        @contextmanager
        def sides() -> Iterator[list[ProcessSide]]:
            made = [make(number, one) for number, one in enumerate(pair)]
            try:
                yield made
            finally:
                for side in made:
                    side.end()

        return sides

    return [_pair(pair, sides_of(pair)) for pair in works]


def _local(sides: Sequence[Side]) -> Callable[[], Any]:
    @contextmanager
    def opened() -> Iterator[Sequence[Side]]:
        try:
            yield sides
        finally:
            for side in sides:
                side.close()

    return opened


def _pair(works: tuple[Work, Work], sides: Callable[[], Any]) -> Pair:
    one, other = works
    names = (_name(one), _name(other))
    if isinstance(one, Spec):
        return Pair(f"{one.case} {one.precision}", one.cache, names, sides)
    case = one.title if names[0] == names[1] else f"{names[0]} and {names[1]}"
    return Pair(case, one.cache, names, sides)


def _name(work: Work) -> str:
    if isinstance(work, Spec):
        return f"{work.operation}:{work.variant}" if work.variant else work.operation
    return work.name


def with_note(pairs: Sequence[Pair], *, same: bool) -> list[Pair]:
    """The pairs with a word on sides that are the same."""
    return [replace(pair, note=_SAME) if same else pair for pair in pairs]
