"""Verdicts: faster, slower, same, undecided, or why a case cannot be compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bwprof.records.baselines import BaselineCase
from bwprof.records.keys import (
    CaseKey,
    MetricValue,
    higher_is_better,
    list_differences,
    portable_key,
    positive_number,
    read_metric,
    unique_keys,
    variantless_key,
)
from bwprof.records.regression import statistics
from bwprof.records.regression.distributions import fits_time, measure_shift
from bwprof.records.regression.statistics import ChangeTest, Spread
from bwprof.records.source import Source
from bwprof.results import schema
from bwprof.results.pairs import DEFAULT_GATE, find_disturbances, find_doubts, split_flags
from bwprof.results.schema import RowDict
from bwprof.text.parsing import finite_or_none, quote_text


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A case: its row on each side, None where a side lacks it; of the processes behind each the medians, ms, and the
    samples, ns, that belong to them.

    `others`: where a side lacks it, the variants of the same case there that nothing belongs to.
    """

    base: RowDict | None
    new: RowDict | None
    base_ms: tuple[float, ...] = ()
    new_ms: tuple[float, ...] = ()
    base_ns: tuple[Sequence[float], ...] = ()
    new_ns: tuple[Sequence[float], ...] = ()
    others: tuple[str, ...] = ()

    @property
    def row(self) -> RowDict:
        """The row that says which case it is."""
        found = self.new if self.new is not None else self.base
        assert found is not None
        return found


def pair_cases(base: Source, new: Source) -> list[JoinedRows]:
    """The cases of two sides, in the base's order, then what only the new side has.

    Rows with the same key are a pair. Of what is left, a row of another variant is, where each side has just one of the
    case; then the same variant on another device, backend or timer; at last another one there, of which there is one.
    """
    base_keys, new_keys = unique_keys(base.rows, new.rows)
    place_of = {told: place for place, told in enumerate(new_keys)}
    partner: dict[int, int] = {}
    for place, told in enumerate(base_keys):
        if told in place_of:
            partner[place] = place_of[told]
    _join_rest(base, new, partner, variantless_key, only_single=True)
    _join_rest(base, new, partner, _bare_variant, only_single=False)
    _join_rest(base, new, partner, portable_key, only_single=True)
    taken = set(partner.values())
    found = [_pair(base, place, new, partner.get(place)) for place in range(len(base.rows))]
    found += [_pair(base, None, new, place) for place in range(len(new.rows)) if place not in taken]
    return _with_others(found)


def _with_others(pairs: list[JoinedRows]) -> list[JoinedRows]:
    """What one side lacks, with the variants of the same case that the other one lacks."""
    single = [pair for pair in pairs if pair.base is None or pair.new is None]
    found: dict[tuple[bool, CaseKey], list[str]] = {}
    for pair in single:
        found.setdefault((pair.base is None, variantless_key(pair.row)), []).append(
            str(pair.row.get("variant") or "unnamed")
        )
    if len({of_new for of_new, _ in found}) < 2:
        return pairs
    return [
        replace(pair, others=tuple(found.get((pair.base is not None, variantless_key(pair.row)), ())))
        if pair.base is None or pair.new is None
        else pair
        for pair in pairs
    ]


def _bare_variant(row: RowDict) -> CaseKey:
    return (*portable_key(row), row.get("variant"))


def _join_rest(
    base: Source, new: Source, partner: dict[int, int], key: Callable[[RowDict], CaseKey], *, only_single: bool
) -> None:
    """Pairs of what has no partner yet, by another key; in order, or only where there is no choice."""
    taken = set(partner.values())
    open_base = [place for place in range(len(base.rows)) if place not in partner]
    open_new = [place for place in range(len(new.rows)) if place not in taken]
    if not open_base or not open_new:
        return
    told = [[key(row) for row in one.rows] for one in (base, new)]
    # A function that was swept has rows that its arguments tell apart, which are the caller's own columns.
    unclear = {found for keys in told for found, count in Counter(keys).items() if count > 1}
    own = sorted(set(schema.extra_names(base.rows)) & set(schema.extra_names(new.rows)))

    def grouped(side: Source, keys: list[CaseKey], places: list[int]) -> dict[CaseKey, list[int]]:
        found: dict[CaseKey, list[int]] = {}
        for place in places:
            labels = tuple(str(side.rows[place].get(name)) for name in own) if keys[place] in unclear else ()
            found.setdefault((*keys[place], *labels), []).append(place)
        return found

    right = grouped(new, told[1], open_new)
    for one, places in grouped(base, told[0], open_base).items():
        others = right.get(one, [])
        if not only_single or len(places) == len(others) == 1:
            partner.update(zip(places, others, strict=False))


def _pair(base: Source, place: int | None, new: Source, other: int | None) -> JoinedRows:
    return JoinedRows(
        None if place is None else base.rows[place],
        None if other is None else new.rows[other],
        () if place is None or not base.learnt else base.learnt[place],
        () if other is None or not new.learnt else new.learnt[other],
        _samples(base, place),
        _samples(new, other),
    )


def _samples(side: Source, place: int | None) -> tuple[Sequence[float], ...]:
    """Those of each process that counts; none where they are not known, or are those of another measurement."""
    if place is None or not side.samples:
        return ()
    kept = side.cases[place] if side.cases else BaselineCase((side.rows[place],), (side.samples[place],))
    found: dict[object, Sequence[float]] = {}
    for number in kept.timed:
        samples, time = kept.samples[number], kept.rows[number]["time_ms"]
        if samples is not None and fits_time(samples, time):
            found.setdefault(kept.process(number), samples)
    return tuple(found.values())


FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"

FAILED, DISTURBED_WORD, NOT_COMPARABLE = "failed", "disturbed", "not_comparable"

ONLY_IN_BASE, ONLY_IN_NEW = "only_in_base", "only_in_new"

LEAST_DISTURBANCE = 0.10  # a fraction

_DOUBTED_INTERVALS = ("two_states", "drifting")  # flags of rows whose interval covers the median too seldom

ONE_SIDED = (ONLY_IN_BASE, ONLY_IN_NEW)

VERDICTS = (SLOWER, FAILED, ONLY_IN_BASE, UNDECIDED, DISTURBED_WORD, NOT_COMPARABLE, FASTER, ONLY_IN_NEW, SAME)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a case is tested by: the gate, a fraction; how many measurements must agree; the chance of a false alarm;
    how the case, and how all cases wander between processes, None where that is not known.
    """

    gate: float | None
    tries: int
    chance: float
    wander: Spread | None
    of_all: Spread | None

    @property
    def limit(self) -> float:
        """The largest change, a logarithm, that may hide in a case that is the same."""
        least = 0.0 if self.wander is None else statistics.LEAST
        return math.log1p(max(DEFAULT_GATE if self.gate is None else self.gate, least))

    def least(self, processes: int) -> float:
        """The smallest difference, a logarithm, that is one for so many new processes."""
        if self.wander is None:
            return self.limit
        return math.log1p(statistics.smallest_threshold(self.gate, max(self.tries, processes)))


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """A pair with what is said of it.

    `base` and `new` are the metric's values, `difference` the logarithm of new / base, `test` what it is held against;
    None where there is nothing to hold. `hidden` is the largest change for the worse, a logarithm, that the data allow.
    `suspect`: disturbed, and slower by more than that explains. `terms` are those of a second try, too.
    """

    pair: JoinedRows
    verdict: str
    reason: str = ""
    base: MetricValue | None = None
    new: MetricValue | None = None
    difference: float = math.nan
    test: ChangeTest | None = None
    suspect: bool = False
    hidden: float = math.inf
    terms: Terms | None = None


def judge_pairs(
    pairs: Sequence[JoinedRows], metric: str, gate: float | None, *, across: bool, tries: int = 1
) -> list[CaseVerdict]:
    """A verdict for each pair; `tries`: how many measurements must agree before one for the worse counts."""
    found = [_measured(pair, metric, across=across) for pair in pairs]
    terms = _terms([one for one in found if one.base is not None], gate, tries)
    return [one if one.base is None else _decided(weigh_values(one, terms[id(one)], metric), metric) for one in found]


def judge_second_try(line: CaseVerdict, row: RowDict, metric: str) -> CaseVerdict:
    """The same base with a second measurement as the new side: the verdict of both, whatever disturbed them."""
    assert line.terms is not None
    samples = getattr(row, "samples_ns", None)
    known = (samples,) if samples and fits_time(samples, positive_number(row.get("time_ms")) or 0.0) else ()
    found = _measured(replace(line.pair, new=row, new_ms=(), new_ns=known), metric, across=True)
    return found if found.base is None else weigh_values(found, line.terms, metric)


def weigh_values(one: CaseVerdict, terms: Terms, metric: str) -> CaseVerdict:
    """The verdict of two values, by the samples where both sides have some, else by their intervals."""
    assert one.new is not None
    pair, sign = one.pair, -1 if higher_is_better(metric) else 1
    test, least = _test(one, terms), terms.least(len(one.new.processes))
    low, high = sorted(sign * end for end in _ends(one, test))
    verdict, sure = verdict_of(one.difference, test, metric), max(high, -low) <= terms.limit
    shift = None if metric == "traffic_ratio" else measure_shift(pair.base_ns, pair.new_ns, terms.of_all, terms.chance)
    if shift is not None:
        alone, verdict = verdict, SLOWER if shift.is_longer(least) else FASTER if (-shift).is_longer(least) else SAME
        if verdict != alone and abs(shift.size) <= shift.reach:
            verdict = SAME
        sure &= not shift.may_exceed(terms.limit)
        high = max(high, shift.middle[2] + shift.inside, *shift.high[:2])
        noise = shift.reach / statistics.student_quantile(math.inf, 1 - terms.chance)
        if verdict not in (SAME, alone):  # the medians do not show it
            one = replace(one, difference=sign * shift.size)
            test = replace(test, noise=noise)
        if shift.reach < test.threshold:
            test = replace(test, threshold=max(least, shift.reach), scatter=noise)
    elif any(word in _DOUBTED_INTERVALS for row in (pair.base, pair.new) if row for word in split_flags(row)):
        verdict, sure, high = SAME, False, math.inf
    if verdict == SAME and not sure:
        verdict = UNDECIDED
    return replace(one, verdict=verdict, test=test, hidden=high, terms=terms)


def verdict_of(difference: float, test: ChangeTest, metric: str) -> str:
    """By the test alone; `difference` is the logarithm of new / base."""
    if not abs(difference) > test.threshold:
        return SAME
    return FASTER if (difference > 0) == higher_is_better(metric) else SLOWER


def is_slower(one: CaseVerdict, metric: str, widening: float) -> bool:
    """Whether a line is slower, also when a `widening`, of its interval, is taken off."""
    worse = -one.difference if higher_is_better(metric) else one.difference
    return one.verdict == SLOWER and one.test is not None and worse - widening > one.test.threshold


def disturbance_allowance(base: RowDict, new: RowDict) -> float:
    """How much, as a logarithm, what disturbed a new row may have made it slower than it is; 0 where nothing did.

    A disturbance only ever makes a launch take longer, so that one of the base hides a slow-down and makes none. On a
    CPU it is what others took of processors and memory meanwhile, under a held clock what it lost; and never less than
    what the flags stand for: samples, or reference streams, a tenth apart. Where nobody measured what others took, it
    is the spread of the samples.
    """
    if not find_disturbances(new):
        return 0.0
    taken = finite_or_none(new.get("disturbed_pct"))
    share = (finite_or_none(new.get("noise")) or 0.0) if taken is None else taken / 100
    clocks = [
        before / now - 1
        for name in ("sm_clock_mhz", "mem_clock_mhz")
        if (before := positive_number(base.get(name))) and (now := positive_number(new.get(name)))
    ]
    return math.log1p(max(LEAST_DISTURBANCE, share, *clocks))


def _measured(pair: JoinedRows, metric: str, *, across: bool) -> CaseVerdict:
    """Both values, or why there is no comparison."""
    base, new = pair.base, pair.new
    if new is None:
        return CaseVerdict(pair, ONLY_IN_BASE, f"the new side does not have it{_others(pair)}")
    if base is None:
        return CaseVerdict(pair, ONLY_IN_NEW, f"the base does not have it{_others(pair)}")
    if base["status"] != "ok":
        same = new["status"] == base["status"]
        said = f"{base['status']} {'on both sides' if same else 'in the base'}"
        return CaseVerdict(pair, NOT_COMPARABLE, _with_reason(said, base))
    if new["status"] in ("failed", "skipped"):
        return CaseVerdict(pair, FAILED, _with_reason(str(new["status"]), new))
    if new.get("verified") is False:  # whatever it was, it was not this work
        return CaseVerdict(pair, FAILED, _with_reason("its result is wrong", new))
    if base.get("verified") is False:
        return CaseVerdict(pair, NOT_COMPARABLE, _with_reason("its result is wrong in the base", base))
    if new["status"] != "ok":
        return CaseVerdict(pair, NOT_COMPARABLE, f"{new['status']}: not measured")
    apart = [] if across else list_differences(base, new)
    if apart:
        return CaseVerdict(pair, NOT_COMPARABLE, f"{'; '.join(apart)} (--across compares all the same)")
    one, other = read_metric(base, pair.base_ms, metric), read_metric(new, pair.new_ms, metric)
    if isinstance(one, str):
        return CaseVerdict(pair, NOT_COMPARABLE, f"in the base {one}")
    if isinstance(other, str):
        return CaseVerdict(pair, NOT_COMPARABLE if metric == "traffic_ratio" else FAILED, other)
    if not (0 < one.middle < math.inf and 0 < other.middle < math.inf):
        return CaseVerdict(pair, NOT_COMPARABLE, f"{metric} is beyond what numbers hold")
    return CaseVerdict(pair, "", "", one, other, math.log(other.middle) - math.log(one.middle))


def _others(pair: JoinedRows) -> str:
    if not pair.others:
        return ""
    variants = ", ".join(map(quote_text, pair.others))
    return (
        f", but other variants of the case: {variants}; which of them is held against which cannot be told: leave one "
        "on each side, or give them one name"
    )


def _with_reason(said: str, row: RowDict) -> str:
    return f"{said}: {row['reason']}" if row.get("reason") else said


def _terms(found: Sequence[CaseVerdict], gate: float | None, tries: int) -> dict[int, Terms]:
    """What each is tested by. The cases of a device wander alike, more or less; all share the family's chance."""
    by_device: dict[object, list[Spread]] = {}
    spreads = [_spread(one) for one in found]
    for one, own in zip(found, spreads, strict=True):
        if own is not None:
            by_device.setdefault(one.pair.row.get("device"), []).append(own)
    priors = {device: statistics.fit_prior(members) for device, members in by_device.items()}
    chance, terms = statistics.chance_per_case(len(found)), {}
    for one, own in zip(found, spreads, strict=True):
        of_all = priors.get(one.pair.row.get("device"))
        wander = None if own is None else statistics.moderate_spread(own, of_all)
        terms[id(one)] = Terms(gate, tries, chance, wander, of_all)
    return terms


def _test(one: CaseVerdict, terms: Terms) -> ChangeTest:
    assert one.base is not None
    assert one.new is not None
    counts = len(one.base.processes), len(one.new.processes)
    if terms.wander is None:
        return statistics.plain_test(_reaches(one), math.expm1(terms.limit), terms.chance)
    within = statistics.standard_error(one.new.low, one.new.high)
    return statistics.learnt_test(terms.wander, counts, within, terms.chance, least=math.expm1(terms.least(counts[1])))


def _spread(one: CaseVerdict) -> Spread | None:
    assert one.base is not None
    assert one.new is not None
    return statistics.pool_spreads(
        statistics.log_variance(one.base.processes), statistics.log_variance(one.new.processes)
    )


def _reaches(one: CaseVerdict) -> tuple[float, float]:
    """How far the two intervals reach towards each other, in logarithms."""
    assert one.base is not None
    assert one.new is not None
    lower, upper = (one.base, one.new) if one.difference > 0 else (one.new, one.base)
    return _reach(lower)[1], _reach(upper)[0]


def _reach(found: MetricValue) -> tuple[float, float]:
    """How far an interval reaches downwards and upwards, in logarithms."""
    down = math.log(found.middle) - math.log(found.low) if 0 < found.low < math.inf else math.inf
    up = math.log(found.high) - math.log(found.middle) if 0 < found.high < math.inf else math.inf
    return max(down, 0.0), max(up, 0.0)


def _ends(one: CaseVerdict, test: ChangeTest) -> tuple[float, float]:
    """What the difference may be at least and at most, at 95 %: by the test, and by the intervals where those are
    wider; the base's where processes have not shown more.
    """
    assert one.base is not None
    assert one.new is not None
    down, up = (0.0, 0.0) if test.learnt else _reach(one.base)
    below, above = _reach(one.new)
    low, high = test.interval(one.difference)
    return min(low, one.difference - math.hypot(up, below)), max(high, one.difference + math.hypot(down, above))


def _decided(one: CaseVerdict, metric: str) -> CaseVerdict:
    base, new = one.pair.base, one.pair.new
    assert base is not None
    assert new is not None
    assert one.test is not None
    verdict, reason = one.verdict, _describe_change(base, new, find_doubts)
    disturbed = _describe_change(base, new, find_disturbances)
    if disturbed:
        wider = disturbance_allowance(base, new)
        suspect = is_slower(one, metric, wider)
        if suspect:
            more = "all the same: the base was no quicker than it seems"
            if wider:
                more = f"by more than the {100 * math.expm1(wider):.0f} % that this may explain"
            disturbed = f"{disturbed}; slower {more}"
        return replace(one, verdict=DISTURBED_WORD, reason=disturbed, suspect=suspect, hidden=one.hidden - wider)
    if verdict != SLOWER and base.get("verified") and "unverified" in split_flags(new):
        verdict, reason = NOT_COMPARABLE, _with_reason("verified in the base, unverified in the new run", new)
    elif math.isinf(one.test.threshold):
        reason = "too few samples to tell"
    return replace(one, verdict=verdict, reason=reason)


def _describe_change(base: RowDict, new: RowDict, words: Callable[[RowDict], list[str]]) -> str:
    sides = (("base", base), ("new run", new))
    return ", ".join(f"{word} in the {where}" for where, row in sides for word in words(row))
