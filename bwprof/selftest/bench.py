"""What the parts of the self-test share: the bench, the loop over cases, the report."""

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
    """An open device and how thoroughly to test it. `say` takes a line of progress, `poll` may raise to stop."""

    device: _core.Device
    backend: str
    index: int
    facts: dict[str, Any]
    timers: tuple[str, ...]
    quick: bool
    say: Callable[[str], object]
    poll: Callable[[], object]

    def specs(self) -> list[Spec]:
        """Return the default suite's cold cases; with `quick` the first and last of each operation."""
        specs = list(plan.make_plan(SweepRequest(suite="default"), self.backend).specs)
        if not self.quick:
            return specs
        last = {spec.operation: number for number, spec in enumerate(specs)}
        first = {spec.operation: number for number, spec in reversed(list(enumerate(specs)))}
        return [specs[number] for number in sorted({*first.values(), *last.values()})]

    def measure_specs(
        self, name: str, measure: Callable[[Spec, _core.Case], Mapping[str, Cell] | None]
    ) -> tuple[list[Mapping[str, Cell]], str]:
        """Return the rows that `measure` makes of the cases, and which are left out and why.

        Raises
        ------
        bwprof.errors.UnavailableError
            When the first case with a row needs what the device lacks.
        """
        rows: list[Mapping[str, Cell]] = []
        left_out: list[str] = []
        specs = self.specs()
        for number, spec in enumerate(specs, start=1):
            self.poll()
            self.say(f"{name}: {number} of {len(specs)}: {spec.title}")
            try:
                with spec.open(self.device) as case:
                    if not fits(case):
                        left_out.append(f"{spec.title}: too little memory")
                    elif row := measure(spec, case):
                        rows.append(row)
            except (_core.UnsupportedError, _core.UnavailableError, MemoryError) as error:
                if isinstance(error, _core.UnavailableError) and not rows:
                    raise
                left_out.append(f"{spec.title}: {error}")
        return rows, "; ".join(left_out)


@dataclass(frozen=True, slots=True)
class PartReport:
    """A part's table and verdict; `passed` is None where nothing is judged."""

    name: str
    title: str
    columns: dict[str, str] = field(default_factory=dict)  # name -> heading
    rows: list[Mapping[str, Cell]] = field(default_factory=list)
    gate: str = ""
    passed: bool | None = None
    summary: list[str] = field(default_factory=list)
    left_out: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return asdict(self)


def fits(case: _core.Case) -> bool:
    """Return whether there is memory for a cold measurement."""
    return bool(case.memory_needed("cold")["fits"])


def read_figure(row: Mapping[str, Cell], name: str) -> float:
    """Return a figure of a row; 0 where there is none."""
    return float(row[name] or 0.0)
