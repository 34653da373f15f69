"""What the parts of the self-test share: the bench they work at, and the report that each hands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bwprof import _core
from bwprof.measuring.operation import Spec
from bwprof.runs import plan
from bwprof.runs.plan import SweepRequest

Cell = float | int | str | None


@dataclass(frozen=True, slots=True)
class Bench:
    """An open device and how thoroughly to work. `say` takes a line of progress, `poll` may raise to stop."""

    device: _core.Device
    backend: str
    index: int
    facts: dict[str, Any]
    timers: tuple[str, ...]
    quick: bool
    say: Callable[[str], object]
    poll: Callable[[], object]

    def specs(self) -> list[Spec]:
        """The default suite's cold cases; with `quick` the first and the last case of each operation, narrow."""
        found = list(plan.make_plan(SweepRequest(suite="default"), self.backend).specs)
        if not self.quick:
            return found
        numbers: dict[str, list[int]] = {}
        for number, spec in enumerate(found):
            numbers.setdefault(spec.operation, []).append(number)
        chosen = {number for of_one in numbers.values() for number in (of_one[0], of_one[-1])}
        return [found[number] for number in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class PartReport:
    """A part's table and verdict; `passed` None where nothing is judged."""

    name: str
    title: str
    columns: dict[str, str] = field(default_factory=dict)  # name -> heading
    rows: list[Mapping[str, Cell]] = field(default_factory=list)
    gate: str = ""
    passed: bool | None = None
    summary: list[str] = field(default_factory=list)
    left_out: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)


def fits(case: _core.Case) -> bool:
    """Whether there is memory for a cold measurement."""
    return bool(case.memory_needed("cold")["fits"])


def read_figure(row: Mapping[str, Cell], name: str) -> float:
    """Read a figure of a row; 0 where there is none."""
    return float(row[name] or 0.0)
