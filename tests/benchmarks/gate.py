"""The gate of `bwprof compare`: how often does it cry wolf, and what does it find?

    python3 tests/benchmarks/gate.py [--suites 400] [--cases 63] [--seed 0]
    python3 tests/benchmarks/gate.py --recorded FOLDER...

The first simulates suites whose cases wander from process to process in one way or another; the second takes recorded
runs: each FOLDER has runs of one suite on one device in fresh processes, *_default.json, and such with more work,
*_planted.json, whose cost is what the medians of both say.
Every choice of processes is a baseline, every other run new.

alarms: suites of unchanged cases in which any was called slower; "confirmed" where a second process had to say so too;
"alone": by the larger threshold that holds where one try decides.
found: changed cases that were called slower, once and confirmed.
gate 5 %: those of 5 % that also failed `--fail-on 5%`, that is whose interval reached 5 %.
smallest %: the median over the cases of what `--power` says is found; seen: changes of that size that were, confirmed.
x 1.05: recorded unchanged runs, every time of which is taken 1.05 times.

A last table is of a busy CPU: others take a share of it from each new process, the same from the second try, and what
that prolongs a case by is anything up to what the row says they took. Alarms and found as above, by the rule for
disturbed rows; "bare": alarms if what the rows say were not taken off.
    python3 tests/benchmarks/gate.py --busy FILE...
takes result files of one suite, run again and again on a busy CPU (unchanged, each a fresh process, in order): the
quickest tenth of a case's times is its base, every run is a first try and the next one the second.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean, median

import numpy as np
from common import table

from bwprof.records.regression import statistics
from bwprof.records.regression.statistics import ChangeTest
from bwprof.records.regression.verdicts import LEAST_DISTURBANCE, disturbance_allowance
from bwprof.results.pairs import DEFAULT_GATE

PROCESSES = (3, 5, 10)
PLANTED = (0.02, 0.03, 0.05, 0.10)
GATE = 0.05
ONCE = math.log1p(statistics.LEAST_ONCE)
SLOWER = (1.25, 1.56, 2.0, 3.0)  # planted on a busy CPU
NEAR = (0.045, 0.055)  # a recorded change that counts as one of 5 %

Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def even(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """Every case wanders alike: 0.15 %."""
    return random.normal(0, 0.0015, (processes, cases))


def _per_case(random: np.random.Generator, cases: int) -> np.ndarray:
    """0.01 % to 0.6 %, as on an H200."""
    return np.exp(random.uniform(math.log(1e-4), math.log(6e-3), cases))


def uneven(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """Each case has its own."""
    return random.normal(0, 1, (processes, cases)) * _per_case(random, cases)


def heavy(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """Likewise, but as Student's t of 3 degrees."""
    return random.standard_t(3, (processes, cases)) / math.sqrt(3) * _per_case(random, cases)


def modes(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """Half of the cases have two states, 0.9 % apart, of which a process has one."""
    states = random.integers(0, 2, (processes, cases)) * (random.random(cases) < 0.5) * 0.009
    return states + random.normal(0, 5e-4, (processes, cases))


def modes_apart(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """Likewise, 1.5 % apart: further than the least threshold, so that only processes that show both are a help."""
    states = random.integers(0, 2, (processes, cases)) * (random.random(cases) < 0.5) * 0.015
    return states + random.normal(0, 5e-4, (processes, cases))


def outliers(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """One median in two hundred is 1.5 % too slow."""
    return uneven(random, processes, cases) + (random.random((processes, cases)) < 0.005) * 0.015


def drifting(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """Beside its own wander the machine walks, by 0.2 % from one process to the next, and all cases with it."""
    walk = np.cumsum(random.normal(0, 0.002, (processes, 1)), axis=0)
    return uneven(random, processes, cases) + walk


def drifting_far(random: np.random.Generator, processes: int, cases: int) -> np.ndarray:
    """Likewise, by 1 %: no stored baseline can do anything there (see `bwprof ab`)."""
    walk = np.cumsum(random.normal(0, 0.01, (processes, 1)), axis=0)
    return uneven(random, processes, cases) + walk


NOISES: tuple[Draw, ...] = (even, uneven, heavy, modes, outliers, drifting, drifting_far, modes_apart)


def tests_of(base: np.ndarray, within: Sequence[float]) -> list[ChangeTest]:
    """The tests of a baseline's cases, of logarithms (processes by cases), against one new process."""
    spreads = [statistics.log_variance(np.exp(values).tolist()) for values in base.T]
    known = [one for one in spreads if one is not None]
    of_all, chance = statistics.fit_prior(known), statistics.chance_per_case(len(known))
    return [
        statistics.learned_test(statistics.moderate_spread(one, of_all), (len(base), 1), width, chance)
        for one, width in zip(known, within, strict=True)
    ]


def reached(tests: Sequence[ChangeTest]) -> np.ndarray:
    """How far a case must be off for its interval to reach the gate."""
    return np.array([math.log1p(GATE) - (test.interval(0.0)[1]) for test in tests])


def simulated(draw: Draw, processes: int, suites: int, cases: int, seed: int) -> list[str]:
    """A line of the table."""
    random = np.random.default_rng([seed, processes, NOISES.index(draw)])
    alarms = confirmed = alone = 0
    found = {change: [0, 0] for change in PLANTED}
    gated = seen = 0
    smallest = []
    for _ in range(suites):
        noise = draw(random, processes + 2, cases)
        tests = tests_of(noise[:processes], [0.0005] * cases)
        limit = np.array([test.threshold for test in tests])
        smallest.append(median(test.smallest(times=2) for test in tests))
        apart = noise[processes:] - noise[:processes].mean(axis=0)
        least = np.array([test.smallest(times=2) for test in tests])
        seen += int((apart + least > limit).all(axis=0).sum())
        alarms += bool((apart[0] > limit).any())
        alone += bool((apart[0] > np.maximum(limit, ONCE)).any())
        confirmed += bool((apart > limit).all(axis=0).any())
        for change, counts in found.items():
            slower = apart + math.log1p(change) > limit
            counts[0] += int(slower[0].sum())
            counts[1] += int(slower.all(axis=0).sum())
            if change == GATE:
                gated += int((slower.all(axis=0) & (apart[0] + math.log1p(change) >= reached(tests))).sum())
    shares = [f"{100 * once / suites / cases:.1f} / {100 * both / suites / cases:.1f}" for once, both in found.values()]
    return [
        draw.__name__,
        str(processes),
        f"{100 * alarms / suites:.1f} / {100 * confirmed / suites:.1f} / {100 * alone / suites:.1f}",
        *shares,
        f"{100 * gated / suites / cases:.1f}",
        f"{100 * math.expm1(fmean(smallest)):.2f}",
        f"{100 * seen / suites / cases:.1f}",
    ]


def busy(taken: float, suites: int, cases: int, seed: int) -> list[str]:
    """A line of the last table: others take up to so much, a fraction of the time."""
    random = np.random.default_rng([seed, int(100 * taken)])
    counts = dict.fromkeys(("alarms", "confirmed", "bare"), 0)
    found = dict.fromkeys(SLOWER, 0)
    for _ in range(suites):
        noise = uneven(random, 7, cases) * 3  # a CPU's
        tests = tests_of(noise[:5], [0.005] * cases)
        limit = np.array([test.threshold for test in tests])
        took = np.log1p(random.uniform(0, taken, cases) * random.uniform(0.8, 1.2, (2, cases)))
        off = noise[5:] - noise[:5].mean(axis=0) + took * random.random(cases)
        sure = off - np.maximum(took, math.log1p(LEAST_DISTURBANCE))
        counts["alarms"] += bool((sure[0] > limit).any())
        counts["confirmed"] += bool((sure > limit).all(axis=0).any())
        counts["bare"] += bool((off > limit).all(axis=0).any())
        for factor in SLOWER:
            found[factor] += int((sure + math.log(factor) > limit).all(axis=0).sum())
    shares = [f"{100 * count / suites:.1f}" for count in counts.values()]
    return [f"{100 * taken:.0f}", *shares, *(f"{100 * count / suites / cases:.1f}" for count in found.values())]


def recorded_busy(paths: Sequence[Path]) -> list[str]:
    """The same of recorded runs, two of which are compared as single processes are: by 3 % and intervals."""
    runs = []
    for path in paths:
        rows = json.loads(path.read_text())["rows"]
        runs.append({(row["case"], row["precision"]): row for row in rows if row["status"] == "ok"})
    names = set.intersection(*map(set, runs))
    base = {name: sorted(runs, key=lambda run: run[name]["time_ms"])[len(runs) // 10][name] for name in names}

    def sure(run: dict, name: tuple[str, str], *, bare: bool = False) -> float:
        """How far a case's interval is above the base's, what disturbed it taken off."""
        row, before = run[name], base[name]
        low = math.log(row["time_ms_lo"]) if row["time_ms_lo"] else -math.inf
        return low - math.log(before["time_ms"]) - (0 if bare else disturbance_allowance(before, row))

    def beyond(factor: float, *, bare: bool = False) -> list[dict]:
        least = math.log1p(DEFAULT_GATE) - math.log(factor)
        return [{name: sure(run, name, bare=bare) > least for name in names} for run in runs]

    def twice(found: Sequence[dict]) -> list[list[bool]]:
        return [[one[name] and other[name] for name in names] for one, other in pairwise(found)]

    first, bare = beyond(1.0), twice(beyond(1.0, bare=True))
    both = len(runs) - 1
    shares = [
        f"{sum(any(one.values()) for one in first)} of {len(runs)}",
        *(f"{sum(map(any, tries))} of {both}" for tries in (twice(first), bare)),
    ]
    found = [sum(map(sum, twice(beyond(factor)))) for factor in SLOWER]
    return ["recorded", *shares, *(f"{100 * count / both / len(names):.1f}" for count in found)]


def read(folder: Path, kind: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Logarithms of the times (runs by cases), their standard errors, and the cases' names."""
    runs = [json.loads(path.read_text())["rows"] for path in sorted(folder.glob(f"*_{kind}.json"))]
    times = np.log([[row["time_ms"] for row in rows] for rows in runs])
    widths = [[statistics.standard_error(row["time_ms_lo"], row["time_ms_hi"]) for row in rows] for rows in runs]
    return times, np.array(widths), [f"{row['case']} {row['precision']}" for row in runs[0]]


def splits(count: int, processes: int) -> Iterator[tuple[list[int], list[int]]]:
    """Every choice of so many processes, and those that are left."""
    for chosen in combinations(range(count), processes):
        yield list(chosen), [number for number in range(count) if number not in chosen]


def slower(base: np.ndarray, times: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Of each case whether a new process's time says so."""
    limit = np.array([test.threshold for test in tests_of(base, widths.tolist())])
    return np.asarray(times - base.mean(axis=0) > limit)


def recorded(folders: Sequence[Path], processes: int) -> list[str]:
    """A line of the table."""
    names = (
        "suites",
        "alarms",
        "alone",
        "pairs",
        "confirmed",
        "tries",
        "found",
        "twice",
        "both",
        "times",
        "times found",
        "gated",
    )
    counts = dict.fromkeys(names, 0)
    for folder in folders:
        same, widths, _ = read(folder, "default")
        more, more_widths, _ = read(folder, "planted")
        change = np.expm1(np.median(more, axis=0) - np.median(same, axis=0))
        planted = (change > NEAR[0]) & (change < NEAR[1])
        for base, rest in splits(len(same), processes):
            unchanged = {number: slower(same[base], same[number], widths[number]) for number in rest}
            changed = [
                slower(same[base], times, width)[planted] for times, width in zip(more, more_widths, strict=True)
            ]
            counts["suites"] += len(rest)
            counts["alarms"] += sum(bool(one.any()) for one in unchanged.values())
            counts["alone"] += sum(
                bool((unchanged[number] & (same[number] - same[base].mean(axis=0) > ONCE)).any()) for number in rest
            )
            for number in rest:
                tests = tests_of(same[base], widths[number].tolist())
                off = same[number] - same[base].mean(axis=0) + math.log1p(GATE)
                found = off > np.array([test.threshold for test in tests])
                counts["times"] += len(off)
                counts["times found"] += int(found.sum())
                counts["gated"] += int((found & (off >= reached(tests))).sum())
            pairs = list(combinations(rest, 2))
            counts["pairs"] += len(pairs)
            counts["confirmed"] += sum(bool((unchanged[one] & unchanged[other]).any()) for one, other in pairs)
            counts["tries"] += sum(len(one) for one in changed)
            counts["found"] += sum(int(one.sum()) for one in changed)
            twice = list(combinations(changed, 2))
            counts["twice"] += sum(len(one) for one, _ in twice)
            counts["both"] += sum(int((one & other).sum()) for one, other in twice)
    return [str(processes), *(str(value) for value in counts.values())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", type=int, default=400)
    parser.add_argument("--cases", type=int, default=63)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recorded", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--busy", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    busy_heads = ["taken to, %", "alarms %", "confirmed %", "bare %", *(f"x {factor} found" for factor in SLOWER)]
    if options.busy:
        table("a busy CPU", busy_heads, [recorded_busy(options.busy)])
        return
    if options.recorded:
        heads = [
            "P",
            "A/A suites",
            "alarms",
            "alone",
            "pairs",
            "confirmed",
            "5 % tries",
            "found",
            "tries twice",
            "found",
        ]
        heads += ["x 1.05", "found", "gate 5 %"]
        table("recorded", heads, [recorded(options.recorded, processes) for processes in (3, 4, 5)])
        return
    heads = [
        "noise",
        "P",
        "alarms / confirmed / alone %",
        *(f"{100 * change:.0f} % found" for change in PLANTED),
        "gate 5 %",
        "smallest %",
        "seen",
    ]
    lines = [
        simulated(draw, processes, options.suites, options.cases, options.seed)
        for draw in NOISES
        for processes in PROCESSES
    ]
    table(f"{options.suites} suites of {options.cases} cases", heads, lines)
    some = [busy(taken, options.suites, options.cases, options.seed) for taken in (0.1, 0.5, 1.5)]
    table("a busy CPU, baselines of 5", busy_heads, some)


if __name__ == "__main__":
    main()
