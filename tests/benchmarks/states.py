"""Suites of 63 cases, three of which have two states, 3 %, 10 % and twice apart: how often does `bwprof compare` alarm?

    python3 tests/benchmarks/states.py [--suites 200]

A line for what chooses the state (each sample; blocks of a run, which switches ten times; the process), for the share
of the slow state, and for how many processes each side has. alarms: suites without a change in which any case is called
slower; "confirmed": by default, when what fails is measured again. +10 %: quiet cases, 10 % slower, that are called so.
+50 %: cases with two states, 50 % slower, that are called slower, undecided, faster, the same. undecided: unchanged
suites in which a quiet case is undecided.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from common import table

sys.path.insert(0, str(Path(__file__).parents[1]))

from suites_of_states import KINDS, STEPS, Case, make_sides, make_suite, measure_case

from bwprof.records.regression.compare import confirm_changes
from bwprof.records.regression.comparison import compare_sources
from bwprof.results.row import Row
from bwprof.runs import remeasure

PROCESSES = ((1, 1), (5, 1), (5, 5))


def simulated(kind: str, share: float, base: int, new: int, suites: int) -> list[str]:
    """A line of the table."""
    draw = random.Random(f"{kind} {base} {new}")
    states = [Case(f"states{step}", 0.002, step, kind, share) for step in STEPS]
    changed = {one.name: 1.5 for one in states} | {f"quiet{place}": 1.1 for place in range(20)}
    counts: Counter[str] = Counter()
    for _ in range(suites):
        cases = {case.name: case for case in make_suite(draw, states)}

        def measure(rows: list[Any], *_: Any, named: dict[str, Case] = cases, **__: Any) -> list[Row]:
            return [Row(*measure_case(draw, named[row["case"]], 1.0, "again")) for row in rows]

        remeasure.measure_again = measure
        pair = make_sides(draw, list(cases.values()), base, new, {})
        counts["alarms"] += compare_sources(*pair).counts["slower"] > 0
        found = compare_sources(*pair, tries=2)
        counts["undecided"] += any(
            line.verdict == "undecided" for line in found.lines if line.pair.row["case"].startswith("quiet")
        )
        counts["confirmed"] += confirm_changes(found, pair[1], "slower", quiet=True).counts["slower"] > 0
        for line in compare_sources(*make_sides(draw, list(cases.values()), base, new, changed)).lines:
            name = line.pair.row["case"]
            if name in changed:
                counts[f"{'10' if name.startswith('quiet') else '50'} {line.verdict}"] += 1
    words = ("slower", "undecided", "faster", "same")
    shares = [f"{100 * counts[name] / suites:.1f}" for name in ("alarms", "confirmed", "undecided")]
    fifty = " / ".join(f"{100 * counts[f'50 {word}'] / suites / len(states):.1f}" for word in words)
    return [f"{kind}, {share:g}", f"{base} v {new}", *shares, f"{100 * counts['10 slower'] / suites / 20:.2f}", fifty]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", type=int, default=200)
    options = parser.parse_args()
    heads = ["state of", "processes", "alarms %", "confirmed %", "undecided %", "+10 % found"]
    heads += ["+50 %: slower / undecided / faster / same %"]
    kinds = [*((kind, 0.5) for kind in KINDS), ("process", 0.15)]
    lines = [simulated(*kind, base, new, options.suites) for kind in kinds for base, new in PROCESSES]
    table(f"{options.suites} suites", heads, lines)


if __name__ == "__main__":
    main()
