"""Run A/B comparisons: in this process, or in one process for each interpreter and revision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bwprof import _core, environment
from bwprof.experiments import worktrees
from bwprof.experiments.ab_process import DEFAULT_TURN_SECONDS, Place, ProcessSide, check_python
from bwprof.experiments.ab_result import ABTable, row_of
from bwprof.experiments.ab_session import NAMES, ABMeasurement, Comparison, StopRule
from bwprof.experiments.ab_sides import ABSide, ABTask, CallSide, SideError, SideInfo, later_timer
from bwprof.experiments.ab_worker import side_of
from bwprof.hardware import Choice
from bwprof.measuring.callables import Expected
from bwprof.measuring.operation import Spec
from bwprof.runs import metadata
from bwprof.runs.channel import InterruptSource

SideMaker = Callable[[int, ABTask], ProcessSide]
Sides = Callable[[], Any]  # makes a context manager of two sides
Verdict = tuple[bool | None, str]  # verified, note


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Interpreters and revisions: none, one for both sides, or one for each; the repository and its build command."""

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
            amount = "many" if len(self.revision) > 2 else "few"
            raise ValueError(f"there is one revision too {amount}: A's and B's are needed")
        if self.build is not None and not self.revision:
            raise ValueError("a build goes with revisions: name A's and B's")
        paths = []
        for side, name in zip(NAMES, self.python, strict=False):
            try:
                paths.append(check_python(name))
            except ValueError as error:
                raise ValueError(f"side {side}: {error}" if len(self.python) == 2 else str(error)) from None
        object.__setattr__(self, "python", tuple(paths))

    @property
    def apart(self) -> bool:
        """Whether the sides need processes of their own."""
        return bool(self.python or self.revision)


@contextmanager
def open_places(
    request: PlaceRequest, choice: Choice, stops: InterruptSource, say: Callable[[str], object] = lambda _: None
) -> Iterator[tuple[SideMaker, Sequence[str]]]:
    """Check out the revisions; give the function that makes side 0 or 1, and the revisions' commits."""
    pythons = request.python * 2 if len(request.python) == 1 else request.python or (None, None)
    with ExitStack() as stack:
        revisions: list[worktrees.Revision] = []
        if request.revision:
            folder = Path(request.repository)
            checkout = worktrees.checked_out(folder, request.revision, request.build, stops.check, say)
            revisions = stack.enter_context(checkout)

        def make(side: int, task: ABTask) -> ProcessSide:
            place = Place(choice.backend, choice.index, request.threads, pythons[side])
            if revisions:
                revision = revisions[side]
                label = f"revision {revision.name} ({revision.commit[:10]})"
                place = replace(place, folder=revision.folder, paths=revision.paths, label=label)
            return ProcessSide(task, place, stops, turn_seconds=request.turn_seconds)

        yield make, [revision.commit for revision in revisions]


@dataclass(frozen=True, slots=True)
class ABPair:
    """One comparison: its case, its sides' names, and how to open them; `note` goes into the row's reason."""

    case: str
    cache: str
    names: tuple[str, str]
    sides: Sides
    note: str = ""


def start_table(choice: Choice, rule: StopRule, argv: Sequence[str] | None, more: Mapping[str, Any]) -> ABTable:
    """Make the table of a run that begins."""
    run = metadata.describe(environment.new_run_id(), choice, argv)
    return ABTable(run | {"how": asdict(rule), **more})


def measure_pair(
    pair: ABPair,
    rule: StopRule,
    table: ABTable,
    check: Callable[[], object],
    compare: Callable[[Sequence[ABSide]], Verdict],
) -> ABMeasurement:
    """Measure one comparison; `table` gets its row however it ends.

    `compare` gets the open sides and compares their results: (verified, note).
    """
    measurement = ABMeasurement(rule)
    verdict: Verdict = (None, "")
    labels = {"case": pair.case, "cache": pair.cache, "a": pair.names[0], "b": pair.names[1]}
    environments: dict[str, str | None] = {"a_environment": None, "b_environment": None}
    try:
        with pair.sides() as sides:

            def check_pair(opened: Sequence[SideInfo]) -> None:
                nonlocal verdict
                table.run.setdefault("facts", sides[0].facts if isinstance(sides[0], ProcessSide) else {})
                for name, info, side in zip(("a", "b"), opened, sides, strict=True):
                    own = {"title": info.title}
                    if isinstance(side, ProcessSide):
                        environments[f"{name}_environment"] = side.environment or None
                        own |= side.metadata
                    table.run[name] = table.run.get(name, {}) | own
                check_same_work(opened)
                verdict = compare(sides)

            backend = table.run["backend"]
            Comparison(sides, measurement, backend, later_timer, check, check_pair).run()
    finally:
        verified, note = verdict
        if measurement.opened and all(info.verified for info in measurement.opened):
            verified = True
        notes = "; ".join(filter(None, (pair.note, note)))
        row = row_of(measurement, table.run, labels | environments, verified=verified, notes=notes)
        table.add(row, measurement)
    return measurement


def check_same_work(opened: Sequence[SideInfo]) -> None:
    """Raise SideError if two sides report different operations, precisions, shapes or parameters."""
    need = "a ratio of times needs two sides that do the same work"
    a, b = opened
    for name in ("operation", "precision", "shape"):
        values = [getattr(info, name) for info in opened]
        if None not in values and values[0] != values[1]:
            texts = [tuple(value) if isinstance(value, list) else value for value in values]
            what = "returns an array of shape" if name == "shape" else f"measures the {name}"
            raise SideError(f"A {what} {texts[0]}, B {texts[1]}: {need}")
    for name, value in (a.params or {}).items():
        if b.params and name in b.params and b.params[name] != value:
            raise SideError(f"A measures {name} = {value}, B {name} = {b.params[name]}: {need}")


def compare_nothing(_sides: Sequence[ABSide]) -> Verdict:
    """Compare no results: two processes verify their operations each for itself."""
    return None, ""


def compare_outputs(tolerance: float | None) -> Callable[[Sequence[ABSide]], Verdict]:
    """Return a function that compares B's array with A's; without a tolerance a difference is only noted."""

    def compare(sides: Sequence[ABSide]) -> Verdict:
        a, b = (side.returned if isinstance(side, CallSide) else None for side in sides)
        if getattr(a, "shape", None) is None or getattr(b, "shape", None) is None:
            if tolerance is not None:
                raise SideError("tolerance= goes with functions that return arrays, and these return none")
            return None, ""
        try:
            verdict = Expected(b, a, tolerance).compare()
        except (TypeError, ValueError) as error:
            if tolerance is not None:
                raise SideError(f"what A and B return cannot be compared: {error}") from None
            return None, ""
        if verdict.wrong and tolerance is not None:
            raise SideError(f"B returns something else than A: {verdict.wrong}")
        return verdict.verified or None, "" if verdict.verified else f"B against A: {verdict.wrong or verdict.note}"

    return compare


def make_local_pairs(tasks: Sequence[tuple[ABTask, ABTask]], device: _core.Device) -> list[ABPair]:
    """Make comparisons in this process, both sides on one open device."""
    return [
        _make_pair(pair, partial(_open_local, [side_of(device, task, Path.cwd()) for task in pair])) for pair in tasks
    ]


def make_call_pair(names: tuple[str, str], sides: tuple[CallSide, CallSide], cache: str) -> ABPair:
    """Make the comparison of two functions in this process."""
    return ABPair(_case_name(*names), cache, names, partial(_open_local, sides))


def make_process_pairs(tasks: Sequence[tuple[ABTask, ABTask]], make: SideMaker) -> list[ABPair]:
    """Make comparisons with a process for each side; `make` makes side 0 or 1."""
    return [_make_pair(pair, partial(_open_processes, pair, make)) for pair in tasks]


@contextmanager
def _open_local(sides: Sequence[ABSide]) -> Iterator[Sequence[ABSide]]:
    try:
        yield sides
    finally:
        for side in sides:
            side.close()


@contextmanager
def _open_processes(pair: tuple[ABTask, ABTask], make: SideMaker) -> Iterator[list[ProcessSide]]:
    sides = [make(number, task) for number, task in enumerate(pair)]
    try:
        yield sides
    finally:
        for side in sides:
            side.end()


def _make_pair(pair: tuple[ABTask, ABTask], sides: Sides) -> ABPair:
    task = pair[0]
    names = (_task_name(task), _task_name(pair[1]))
    if isinstance(task, Spec):
        return ABPair(f"{task.case} {task.precision}", task.cache, names, sides)
    return ABPair(task.title if names[0] == names[1] else _case_name(*names), task.cache, names, sides)


def _case_name(a: str, b: str) -> str:
    return a if a == b else f"{a} and {b}"


def _task_name(task: ABTask) -> str:
    if isinstance(task, Spec):
        return f"{task.operation}:{task.variant}" if task.variant else task.operation
    return task.name


def add_note(pairs: Sequence[ABPair], *, same: bool) -> list[ABPair]:
    """Note in the pairs of equal sides that their differences are noise."""
    return [replace(pair, note="A and B are the same: any difference is noise") if same else pair for pair in pairs]
