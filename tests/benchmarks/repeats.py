"""Repeats of the same measurement: how far do their medians lie apart, and how wide are the intervals they claim?

    python3 tests/benchmarks/repeats.py [--backend cpu|cuda] [--repeats 16] [--seconds 2] [--cases 8] [--csv FILE]

Cases of the default suite, spread over it, are measured in turns in one process, each time from a new case. A
half-width is the interval's, relative to the median; the spread of the medians is half of what holds 95 % of them (1.96
standard deviations), so that the two would be alike if nothing changed between the measurements.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from pathlib import Path

from common import machine, show, table

from bwprof import hardware
from bwprof.measuring import operation as measuring
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context
from bwprof.results.pairs import is_comparable
from bwprof.results.schema import RowDict
from bwprof.runs import plan
from bwprof.runs.plan import SweepRequest

HEADS = ["case", "us", "samples", "s each", "half-width %", "spread %", "held %", "converged %", "flagged"]


def chosen(backend: str, cases: int) -> list[Spec]:
    found = list(plan.make_plan(SweepRequest(suite="default"), backend).specs)
    step = max(1.0, len(found) / cases)
    return [found[int(number * step)] for number in range(min(cases, len(found)))]


def half_width(row: RowDict) -> float:
    return float(max(row["time_ms_hi"] - row["time_ms"], row["time_ms"] - row["time_ms_lo"]) / row["time_ms"])


def summary(title: str, rows: list[RowDict], seconds: list[float]) -> list[object]:
    """One line of the table. `held`: intervals that hold the median of all the repeats' medians."""
    medians = [float(row["time_ms"]) for row in rows]
    middle = statistics.median(medians)
    held = sum(row["time_ms_lo"] <= middle <= row["time_ms_hi"] for row in rows) / len(rows)
    return [
        title,
        1e3 * middle,
        round(statistics.fmean(row["samples"] for row in rows)),
        statistics.fmean(seconds),
        100 * statistics.median(map(half_width, rows)),
        100 * 1.96 * statistics.stdev(medians) / middle,
        round(100 * held),
        round(100 * sum(row["converged"] for row in rows) / len(rows)),
        sum(not is_comparable(row) for row in rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend")
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0, help="of sampling at most, each time")
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--csv", type=Path)
    parsed = parser.parse_args()
    choice = hardware.choose_device(parsed.backend, None)
    found: dict[str, list[RowDict]] = {}
    took: dict[str, list[float]] = {}
    with hardware.borrow_device(choice.backend, choice.index) as device:
        show(f"{machine(device)}; {parsed.repeats} repeats, {parsed.seconds:g} s of sampling at most")
        context = Context("repeats", choice.backend, hardware.facts(device), None)
        for _ in range(parsed.repeats):
            for spec in chosen(choice.backend, parsed.cases):
                begun = time.monotonic()
                row = measuring.measure(device, spec, context, max_seconds=parsed.seconds).row
                if row["status"] == "ok":
                    title = spec.title
                    found.setdefault(title, []).append(row)
                    took.setdefault(title, []).append(time.monotonic() - begun)
    lines = [summary(title, rows, took[title]) for title, rows in found.items() if len(rows) > 1]
    table("repeats of one case", HEADS, lines)
    if parsed.csv is not None:
        with parsed.csv.open("w", newline="") as file:
            csv.writer(file).writerows([HEADS, *lines])


if __name__ == "__main__":
    main()
