"""What is said of a case: faster, slower, the same, or why it cannot be said."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bwprof.records.comparing import thresholds
from bwprof.records.comparing.pairs import Pair
from bwprof.records.comparing.thresholds import Spread, Test
from bwprof.records.comparing.values import Value, higher_is_better, positive, value
from bwprof.records.keys import unlike
from bwprof.results.difference import DEFAULT_GATE, disturbances, doubts
from bwprof.results.schema import Row
from bwprof.text import finite_number, quoted

FASTER, SLOWER, SAME = "faster", "slower", "same"
FAILED, DISTURBED_WORD, NOT_COMPARABLE = "failed", "disturbed", "not_comparable"
ONLY_IN_BASE, ONLY_IN_NEW = "only_in_base", "only_in_new"
LEAST_DISTURBANCE = 0.10  # a fraction
ONE_SIDED = (ONLY_IN_BASE, ONLY_IN_NEW)
VERDICTS = (SLOWER, FAILED, ONLY_IN_BASE, DISTURBED_WORD, NOT_COMPARABLE, FASTER, ONLY_IN_NEW, SAME)


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair with what is said of it.

    `base` and `new` are the metric's values, `difference` the logarithm of new / base, `test` what it is held against;
    None where there is nothing to hold. `suspect`: disturbed, and slower by more than that explains.
    """

    pair: Pair
    verdict: str
    reason: str = ""
    base: Value | None = None
    new: Value | None = None
    difference: float = math.nan
    test: Test | None = None
    suspect: bool = False


def judge(pairs: Sequence[Pair], metric: str, gate: float | None, *, across: bool, tries: int = 1) -> list[Judged]:
    """A verdict for each pair; `tries`: how many measurements must agree before one for the worse counts."""
    found = [_measured(pair, metric, across=across) for pair in pairs]
    tests = _tests([one for one in found if one.test is None and one.base is not None], gate, tries)
    return [one if one.base is None else _decided(one, tests[id(one)], metric) for one in found]


def verdict_of(difference: float, test: Test, metric: str) -> str:
    """By the test alone; `difference` is the logarithm of new / base."""
    if not abs(difference) > test.threshold:
        return SAME
    return FASTER if (difference > 0) == higher_is_better(metric) else SLOWER


def is_slower(difference: float, test: Test, metric: str, widening: float = 0.0) -> bool:
    """Whether a difference is one for the worse when a `widening`, of its interval, is taken off."""
    return (-difference if higher_is_better(metric) else difference) - widening > test.threshold


def widening(base: Row, new: Row) -> float:
    """How much, as a logarithm, what disturbed a new row may have made it slower than it is; 0 where nothing did.

    A disturbance only ever makes a launch take longer, so that one of the base hides a slow-down and makes none. On a
    CPU it is what others took of processors and memory meanwhile, under a held clock what it lost; and never less than
    what the flags stand for: samples, or reference streams, a tenth apart. Where nobody measured what others took, it
    is the spread of the samples.
    """
    if not disturbances(new):
        return 0.0
    taken = finite_number(new.get("disturbed_pct"))
    share = (finite_number(new.get("noise")) or 0.0) if taken is None else taken / 100
    clocks = [
        before / now - 1
        for name in ("sm_clock_mhz", "mem_clock_mhz")
        if (before := positive(base.get(name))) and (now := positive(new.get(name)))
    ]
    return math.log1p(max(LEAST_DISTURBANCE, share, *clocks))


def _measured(pair: Pair, metric: str, *, across: bool) -> Judged:
    """Both values, or why there is no comparison."""
    base, new = pair.base, pair.new
    if new is None:
        return Judged(pair, ONLY_IN_BASE, f"the new side does not have it{_others(pair)}")
    if base is None:
        return Judged(pair, ONLY_IN_NEW, f"the base does not have it{_others(pair)}")
    if base["status"] != "ok":
        same = new["status"] == base["status"]
        said = f"{base['status']} {'on both sides' if same else 'in the base'}"
        return Judged(pair, NOT_COMPARABLE, _with_reason(said, base))
    if new["status"] in ("failed", "skipped"):
        return Judged(pair, FAILED, _with_reason(str(new["status"]), new))
    if new.get("verified") is False:  # whatever it was, it was not this work
        return Judged(pair, FAILED, _with_reason("its result is wrong", new))
    if base.get("verified") is False:
        return Judged(pair, NOT_COMPARABLE, _with_reason("its result is wrong in the base", base))
    if new["status"] != "ok":
        return Judged(pair, NOT_COMPARABLE, f"{new['status']}: not measured")
    apart = [] if across else unlike(base, new)
    if apart:
        return Judged(pair, NOT_COMPARABLE, f"{'; '.join(apart)} (--across compares all the same)")
    one, other = value(base, pair.base_ms, metric), value(new, pair.new_ms, metric)
    if isinstance(one, str):
        return Judged(pair, NOT_COMPARABLE, f"in the base {one}")
    if isinstance(other, str):
        return Judged(pair, NOT_COMPARABLE if metric == "traffic_ratio" else FAILED, other)
    if not (0 < one.middle < math.inf and 0 < other.middle < math.inf):
        return Judged(pair, NOT_COMPARABLE, f"{metric} is beyond what numbers hold")
    return Judged(pair, "", "", one, other, math.log(other.middle) - math.log(one.middle))


def _others(pair: Pair) -> str:
    if not pair.others:
        return ""
    variants = ", ".join(map(quoted, pair.others))
    return (
        f", but other variants of the case: {variants}; which of them is held against which cannot be told: leave one "
        "on each side, or give them one name"
    )


def _with_reason(said: str, row: Row) -> str:
    return f"{said}: {row['reason']}" if row.get("reason") else said


def _tests(found: Sequence[Judged], gate: float | None, tries: int) -> dict[int, Test]:
    """What each is held against. The cases of a device wander alike, more or less; all share the family's chance."""
    by_device: dict[object, list[tuple[Judged, Spread]]] = {}
    for one in found:
        own = _spread(one)
        if own is not None:
            by_device.setdefault(one.pair.row.get("device"), []).append((one, own))
    chance = thresholds.alone(len(found))
    least = thresholds.smallest_threshold(gate, tries)
    tests: dict[int, Test] = {}
    for members in by_device.values():
        of_all = thresholds.prior([own for _, own in members])
        for one, own in members:
            assert one.base is not None
            assert one.new is not None
            counts = len(one.base.processes), len(one.new.processes)
            wander = thresholds.moderated(own, of_all)
            within = thresholds.standard_error(one.new.low, one.new.high)
            tests[id(one)] = thresholds.learnt_test(wander, counts, within, chance, least=least)
    for one in found:
        if id(one) not in tests:
            tests[id(one)] = thresholds.plain_test(_reaches(one), DEFAULT_GATE if gate is None else gate)
    return tests


def _spread(one: Judged) -> Spread | None:
    assert one.base is not None
    assert one.new is not None
    return thresholds.pooled(thresholds.spread(one.base.processes), thresholds.spread(one.new.processes))


def _reaches(one: Judged) -> tuple[float, float]:
    """How far the two intervals reach towards each other, in logarithms."""
    assert one.base is not None
    assert one.new is not None
    lower, upper = (one.base, one.new) if one.difference > 0 else (one.new, one.base)
    up = math.log(lower.high) - math.log(lower.middle) if 0 < lower.high < math.inf else math.inf
    down = math.log(upper.middle) - math.log(upper.low) if 0 < upper.low < math.inf else math.inf
    return max(up, 0.0), max(down, 0.0)


def _decided(one: Judged, test: Test, metric: str) -> Judged:
    base, new = one.pair.base, one.pair.new
    assert base is not None
    assert new is not None
    verdict, reason = verdict_of(one.difference, test, metric), _told(base, new, doubts)
    disturbed, suspect = _told(base, new, disturbances), False
    if disturbed:
        verdict, reason = DISTURBED_WORD, disturbed
        wider = widening(base, new)
        suspect = is_slower(one.difference, test, metric, wider)
        if suspect:
            more = "all the same: the base was no quicker than it seems"
            if wider:
                more = f"by more than the {100 * math.expm1(wider):.0f} % that this may explain"
            reason = f"{disturbed}; slower {more}"
    elif verdict != SLOWER and base.get("verified") and _is_unverified(new):
        verdict, reason = NOT_COMPARABLE, _with_reason("verified in the base, unverified in the new run", new)
    elif math.isinf(test.threshold):
        verdict, reason = NOT_COMPARABLE, "too few samples to tell"
    return Judged(one.pair, verdict, reason, one.base, one.new, one.difference, test, suspect)


def _told(base: Row, new: Row, words: Callable[[Row], list[str]]) -> str:
    sides = (("base", base), ("new run", new))
    return ", ".join(f"{word} in the {where}" for where, row in sides for word in words(row))


def _is_unverified(row: Row) -> bool:
    return "unverified" in str(row.get("flags") or "").split(";")
