"""A/A: the same case measured twice. How often does a rule say that the two differ?"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

from bwprof import _core
from bwprof.measuring import operation as measuring
from bwprof.measuring.operation import Spec
from bwprof.measuring.row import Context
from bwprof.results.pairs import DEFAULT_GATE, is_comparable, times_differ
from bwprof.results.schema import RowDict
from bwprof.runs.child import ChildExecutor
from bwprof.runs.interrupts import Interrupts
from bwprof.runs.loop import ReferenceBook
from bwprof.selftest.bench import Bench, Cell, PartReport

NAME = "repeat"

GATES = (0.0, 0.01, DEFAULT_GATE)

ALLOWED_RATE = 0.05

SECONDS = 0.25  # of sampling, each time

CASES = 8

_TITLE = "A/A: how often two measurements of the same thing are said to differ"

_COLUMNS = {
    "where": "measured",
    "gate": "gate",
    "pairs": "pairs",
    "disturbed": "disturbed",
    "false_positives": "said to differ",
    "rate": "rate, %",
    "rate_low": "95 % from",
    "rate_high": "to",
    "median_difference": "median difference, %",
    "worst_difference": "worst, %",
}


def run(bench: Bench) -> PartReport:
    """Pairs in one process, and pairs from processes that each start anew."""
    specs = _chosen(bench.specs())
    context = Context("selftest", bench.backend, bench.facts, None)
    inside = _in_process(bench, specs, context, 4 if bench.quick else 24)
    in_main = threading.current_thread() is threading.main_thread()  # starting processes waits for signals
    fresh = _fresh(bench, specs, context, 4 if bench.quick else 12) if in_main else []
    found = {"one process": _pairs(inside), "fresh processes": _pairs(fresh)}
    rows = [_row(where, gate, pairs) for where, pairs in found.items() if pairs for gate in GATES]
    judged = [row for row in rows if row["gate"] == _gate_text(DEFAULT_GATE) and row["rate"] is not None]
    passed = all(float(row["rate_low"] or 0) <= 100 * ALLOWED_RATE for row in judged) if judged else None
    gate = f"at the default gate ({_gate_text(DEFAULT_GATE)}) no rate that is certainly above {ALLOWED_RATE:.0%}"
    failed = [str(row["reason"]) for row in (*inside, *fresh) if row["status"] != "ok"]
    failed += [] if in_main else ["fresh processes: they are started from the main thread only"]
    worst = max((pair for pairs in found.values() for pair in pairs), key=_difference, default=None)
    summary = [
        f"cases: {', '.join(spec.title for spec in specs)}",
        "pairs with a row flagged noisy or throttled are disturbed: the rule leaves them out",
    ]
    if worst is not None:
        times = " and ".join(f"{row['time_ms'] * 1e3:.2f} us" for row in worst)
        summary.append(f"largest difference of any pair: {worst[0]['case']} {worst[0]['precision']}, {times}")
    return PartReport(NAME, _TITLE, _COLUMNS, rows, gate, passed, summary, "; ".join(dict.fromkeys(failed)))


def _chosen(specs: Sequence[Spec]) -> list[Spec]:
    """So many, spread over the suite."""
    step = max(1, len(specs) / CASES)
    return [specs[int(number * step)] for number in range(min(CASES, len(specs)))]


def _in_process(bench: Bench, specs: Sequence[Spec], context: Context, rounds: int) -> list[RowDict]:
    judged, outcomes = ReferenceBook(), []
    for number in range(rounds):
        bench.say(f"{NAME}: in one process: {number + 1} of {rounds}")
        for spec in specs:
            bench.poll()
            outcome = measuring.measure(bench.device, spec, context, max_seconds=SECONDS, poll=bench.poll)
            if outcome.fatal:
                raise _core.DeviceError(outcome.row["reason"])
            outcomes.append(judged.hold(outcome))
    return judged.rows(outcomes)


def _fresh(bench: Bench, specs: Sequence[Spec], context: Context, rounds: int) -> list[RowDict]:
    rows = []
    with Interrupts() as interrupts:
        for number in range(rounds):
            bench.say(f"{NAME}: in fresh processes: {number + 1} of {rounds}")
            executor = ChildExecutor(bench.backend, bench.index, interrupts)
            executor.set_context(context)
            judged = ReferenceBook()
            try:
                rows += judged.rows([judged.hold(executor.measure(spec, SECONDS, None)) for spec in specs])
            finally:
                executor.close()
    return rows


def _pairs(rows: Sequence[RowDict]) -> list[tuple[RowDict, RowDict]]:
    """First with second, third with fourth: no measurement is in two pairs."""
    by_case: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        if row["status"] == "ok":
            by_case.setdefault((row["case"], row["precision"], row["variant"]), []).append(row)
    return [pair for found in by_case.values() for pair in zip(found[::2], found[1::2], strict=False)]


def _gate_text(gate: float) -> str:
    return "intervals apart" + (f", {100 * gate:g} %" if gate else "")


def _row(where: str, gate: float, pairs: Sequence[tuple[RowDict, RowDict]]) -> Mapping[str, Cell]:
    quiet = [pair for pair in pairs if all(map(is_comparable, pair))]
    positives = sum(times_differ(one, other, gate=gate) for one, other in quiet)
    shares = {}
    if quiet:
        low, high = wilson(positives, len(quiet))
        differences = sorted(map(_difference, quiet))
        shares = {"rate": positives / len(quiet), "rate_low": low, "rate_high": high}
        shares |= {"median_difference": differences[len(differences) // 2], "worst_difference": differences[-1]}
    return dict.fromkeys(_COLUMNS) | {
        "where": where,
        "gate": _gate_text(gate),
        "pairs": len(pairs),
        "disturbed": len(pairs) - len(quiet),
        "false_positives": positives,
        **{name: 100 * share for name, share in shares.items()},
    }


def _difference(pair: tuple[RowDict, RowDict]) -> float:
    """Of the medians, relative to the smaller one."""
    low, high = sorted(row["time_ms"] for row in pair)
    return float(high / low - 1)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion.

    Examples
    --------
    >>> [round(end, 4) for end in wilson(1, 100)]
    [0.0018, 0.0545]
    """
    z = 1.959963984540054
    share = successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)
