"""Generated suites: quiet cases, and cases whose samples have two states; some become slower."""

from __future__ import annotations

import array
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rows import row

from bwprof import _core
from bwprof.records.baselines import Baseline, make_baseline
from bwprof.records.source import make_source
from bwprof.results.schema import RowDict

SAMPLES = 100
WITHIN = 0.004  # of samples, a standard deviation
SWITCHES = 10  # of a run whose states are sticky
KINDS = ("sample", "block", "process")  # what chooses the state
STEPS = (1.03, 1.10, 2.0)  # between the states


@dataclass(frozen=True, slots=True)
class Case:
    """A case: its standard deviation between processes, and its states."""

    name: str
    wander: float
    step: float = 1.0
    kind: str = ""
    share: float = 0.5  # of the slow state


def make_suite(draw: random.Random, states: Sequence[Case], cases: int = 63) -> list[Case]:
    """Return as many `cases`: `states`, and quiet ones."""
    quiet = [Case(f"quiet{place}", draw.uniform(0.001, 0.003)) for place in range(cases - len(states))]
    return [*quiet, *states]


def measure_case(draw: random.Random, case: Case, factor: float, process: str) -> tuple[RowDict, list[float]]:
    """Return the rows and samples of one process."""
    level = math.log(1e5 * factor) + draw.gauss(0, case.wander)
    states = list(_states(draw, case))
    samples = [math.exp(level + slow * math.log(case.step) + draw.gauss(0, WITHIN)) for slow in states]
    found = _core.statistics(array.array("d", samples))
    names = {"time_ms": "median_ns", "time_ms_lo": "lo_ns", "time_ms_hi": "hi_ns"}
    times: dict[str, Any] = {name: found[source] / 1e6 for name, source in names.items()}
    times["bandwidth_gb_s"] = 1e-2 / times["time_ms"]
    return row(case.name, "fp32", run_id=process, process=process, timer="monotonic", **times), samples


def _states(draw: random.Random, case: Case) -> Iterator[bool]:
    slow = draw.random() < case.share
    for _ in range(SAMPLES):
        if case.kind == "sample" or (case.kind == "block" and draw.random() < SWITCHES / SAMPLES):
            slow = draw.random() < case.share
        yield slow


def make_sides(
    draw: random.Random, cases: Sequence[Case], base: int, new: int, factors: dict[str, float]
) -> list[Baseline]:
    """Return both sides of a comparison; the new one is slower by each case's factor."""
    found = []
    for name, processes in (("base", base), ("new", new)):
        runs = []
        for number in range(processes):
            process = f"{name}{number}"
            slower = factors if name == "new" else {}
            rows = [measure_case(draw, case, slower.get(case.name, 1.0), process) for case in cases]
            runs.append(([one for one, _ in rows], [samples for _, samples in rows], {"run_id": process}))
        found.append(
            make_baseline(name, runs) if processes > 1 else make_source(name, list(runs[0][0]), list(runs[0][1]))
        )
    return found
