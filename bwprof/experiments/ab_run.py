"""Run comparisons: in this process, or in one process for each interpreter and revision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bwprof import _core, environment
from bwprof.experiments import ab_session, worktrees
from bwprof.experiments.ab_process import DEFAULT_TURN_SECONDS, Place, ProcessSide, check_python
from bwprof.experiments.ab_result import ABTable, row_of
from bwprof.experiments.ab_session import NAMES, ABMeasurement, StopRule
from bwprof.experiments.ab_sides import ABSide, ABTask, CallSide, SideError, SideInfo, later_timer
from bwprof.experiments.ab_worker import side_of
from bwprof.hardware import Choice
from bwprof.measuring.operation import Spec
from bwprof.measuring.verify import Expected
from bwprof.runs import metadata
from bwprof.runs.interrupts import InterruptSource


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Interpreters and revisions: none, one for both sides, or one for each; the repository and its build command.

    Raises
    ------
    ValueError
        For more than two, a single revision, a build of nothing, and an interpreter that there is not.
    """

    python: tuple[str, ...] = ()
    revision: tuple[str, ...] = ()
    repository: str = "."
    build: str | None = None
    threads: int | None = None
    turn_seconds: float = DEFAULT_TURN_SECONDS

    def __post_init__(self) -> None:
        if len(self.python) > 2:
            raise ValueError(f"there are {len(self.python)} interpreters: allowed are one for both sides, or two")
        if len(self.revision) not in (0, 2):
            raise ValueError(
                f"there is one revision too {'many' if len(self.revision) > 2 else 'few'}: A's and B's are needed"
            )
        if self.build is not None and not self.revision:
            raise ValueError("a build goes with revisions: name A's and B's")
        found = []
        for number, given in enumerate(self.python):
            try:
                found.append(check_python(given))
            except ValueError as error:
                raise ValueError(f"side {'AB'[number]}: {error}" if len(self.python) == 2 else str(error)) from None
        object.__setattr__(self, "python", tuple(found))

    @property
    def apart(self) -> bool:
        """Whether either side needs an interpreter or a folder of its own."""
        return bool(self.python or self.revision)


SideMaker = Callable[[int, ABTask], ProcessSide]


@contextmanager
def open_places(
    wanted: PlaceRequest, choice: Choice, stops: InterruptSource, say: Callable[[str], object] = lambda _: None
) -> Iterator[tuple[SideMaker, Sequence[str]]]:
    """What makes side 0 and side 1 of a comparison, while the revisions are checked out; and the revisions' commits."""
    pythons = (*wanted.python, *wanted.python, None, None) if len(wanted.python) == 1 else (*wanted.python, None, None)
    with ExitStack() as stack:
        found: list[worktrees.Revision] = []
        if wanted.revision:
            out = worktrees.checked_out(Path(wanted.repository), wanted.revision, wanted.build, stops.check, say)
            found = stack.enter_context(out)

        def make(number: int, what: ABTask) -> ProcessSide:
            one = found[number] if found else None
            place = Place(
                choice.backend,
                choice.index,
                wanted.threads,
                pythons[number],
                one.folder if one else None,
                one.paths if one else (),
                f"revision {one.name} ({one.commit[:10]})" if one else "",
            )
            return ProcessSide(what, place, stops, turn_seconds=wanted.turn_seconds)

        yield make, [one.commit for one in found]


_SAME = "A and B are the same: whatever is seen is noise"


@dataclass(frozen=True, slots=True)
class ABPair:
    """One comparison: what is compared, what its sides are called, and how they are made.

    `sides` opens nothing; whatever it gives is ended by it. `note` is said of the row.
    """

    case: str
    cache: str
    names: tuple[str, str]
    sides: Callable[[], Any]  # a context manager of two sides
    note: str = ""


def start_table(choice: Choice, how: StopRule, argv: Sequence[str] | None, sides: Mapping[str, Any]) -> ABTable:
    """The table of a run that begins."""
    run = metadata.describe(environment.new_run_id(), choice, argv)
    return ABTable(run | {"how": asdict(how), **sides})


def measure_pair(
    pair: ABPair,
    how: StopRule,
    table: ABTable,
    check: Callable[[], object],
    compared: Callable[[Sequence[ABSide]], Any],
) -> ABMeasurement:
    """One comparison; its row is in the table however it ends.

    `compared` gets the sides once both are open, and says whether their results agree: (verified, note).
    """
    found = ABMeasurement(how)
    verdict: list[tuple[bool | None, str]] = []
    environments = ["", ""]
    try:
        with pair.sides() as sides:

            def may_compare(opened: Sequence[SideInfo]) -> None:
                environments[:] = [environment_of(side) for side in sides]
                table.run.setdefault("facts", facts_of(sides[0]))
                for name, one, side in zip(NAMES, opened, sides, strict=True):
                    table.run[name.lower()] = table.run.get(name.lower(), {}) | describe_side(side, one)
                check_same_work(opened)
                verdict.append(compared(sides))

            ab_session.Comparison(
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


def check_same_work(opened: Sequence[SideInfo]) -> None:
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


def environment_of(side: ABSide) -> str:
    """Where a side runs, in words."""
    if not isinstance(side, ProcessSide):
        return ""
    versions = side.hello.get("versions", {})
    told = " ".join(f"{name} {versions[name]}" for name in ("python", "bwprof") if name in versions)
    return ", ".join(part for part in (side.label, told, str(side.hello.get("executable", ""))) if part)


def facts_of(side: ABSide) -> dict[str, Any]:
    """What is known of the device."""
    return side.facts if isinstance(side, ProcessSide) else {}


def describe_side(side: ABSide, opened: SideInfo) -> dict[str, Any]:
    """What the metadata say of a side."""
    if not isinstance(side, ProcessSide):
        return {"title": opened.title}
    told = {name: side.hello.get(name) for name in ("versions", "executable")}
    return {"title": opened.title, **told, "revision": side.label or None}


def compare_nothing(_sides: Sequence[ABSide]) -> tuple[bool | None, str]:
    """Results in two other processes are not compared; operations were verified by each for itself."""
    return None, ""


def compare_outputs(tolerance: float | None) -> Callable[[Sequence[ABSide]], tuple[bool | None, str]]:
    """B's array held against A's, where both return one; without a tolerance nothing is judged."""

    def compared(sides: Sequence[ABSide]) -> tuple[bool | None, str]:
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


def make_local_pairs(works: Sequence[tuple[ABTask, ABTask]], device: _core.Device) -> list[ABPair]:
    """Comparisons in this process, both sides on one open device."""
    return [_pair(pair, _local([side_of(device, one, Path.cwd()) for one in pair])) for pair in works]


def make_call_pair(names: tuple[str, str], sides: tuple[CallSide, CallSide], cache: str) -> ABPair:
    """The same of two functions."""
    return ABPair(names[0] if names[0] == names[1] else f"{names[0]} and {names[1]}", cache, names, _local(sides))


def make_process_pairs(
    works: Sequence[tuple[ABTask, ABTask]], make: Callable[[int, ABTask], ProcessSide]
) -> list[ABPair]:
    """Comparisons with a process for each side; `make` makes side 0 or 1."""

    def sides_of(pair: tuple[ABTask, ABTask]) -> Callable[[], Any]:
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


def _local(sides: Sequence[ABSide]) -> Callable[[], Any]:
    @contextmanager
    def opened() -> Iterator[Sequence[ABSide]]:
        try:
            yield sides
        finally:
            for side in sides:
                side.close()

    return opened


def _pair(works: tuple[ABTask, ABTask], sides: Callable[[], Any]) -> ABPair:
    one, other = works
    names = (_name(one), _name(other))
    if isinstance(one, Spec):
        return ABPair(f"{one.case} {one.precision}", one.cache, names, sides)
    case = one.title if names[0] == names[1] else f"{names[0]} and {names[1]}"
    return ABPair(case, one.cache, names, sides)


def _name(work: ABTask) -> str:
    if isinstance(work, Spec):
        return f"{work.operation}:{work.variant}" if work.variant else work.operation
    return work.name


def add_note(pairs: Sequence[ABPair], *, same: bool) -> list[ABPair]:
    """The pairs with a word on sides that are the same."""
    return [replace(pair, note=_SAME) if same else pair for pair in pairs]
