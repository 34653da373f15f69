"""Where the two sides of a comparison run: interpreters, and revisions in worktrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bwprof.hardware import Choice
from bwprof.paired import revisions
from bwprof.paired.process import DEFAULT_TURN_SECONDS, Place, ProcessSide, check_python
from bwprof.paired.work import Work
from bwprof.runs.interrupts import Stops


@dataclass(frozen=True, slots=True)
class Wanted:
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


Make = Callable[[int, Work], ProcessSide]


@contextmanager
def makers(
    wanted: Wanted, choice: Choice, stops: Stops, say: Callable[[str], object] = lambda _: None
) -> Iterator[tuple[Make, Sequence[str]]]:
    """What makes side 0 and side 1 of a comparison, while the revisions are checked out; and the revisions' commits."""
    pythons = (*wanted.python, *wanted.python, None, None) if len(wanted.python) == 1 else (*wanted.python, None, None)
    with ExitStack() as stack:
        found: list[revisions.Revision] = []
        if wanted.revision:
            out = revisions.checked_out(Path(wanted.repository), wanted.revision, wanted.build, stops.check, say)
            found = stack.enter_context(out)

        def make(number: int, what: Work) -> ProcessSide:
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
