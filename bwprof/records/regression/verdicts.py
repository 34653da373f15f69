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
from bwprof.records.regression.distributions import Shift, fits_time, measure_shift
from bwprof.records.regression.statistics import ChangeTest, Spread
from bwprof.records.source import Source
from bwprof.results import schema
from bwprof.results.pairs import DEFAULT_GATE, find_disturbances, find_doubts, split_flags
from bwprof.results.schema import RowDict
from bwprof.text.parsing import finite_or_none

FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
FAILED, DISTURBED_WORD, NOT_COMPARABLE = "failed", "disturbed", "not_comparable"
ONLY_IN_BASE, ONLY_IN_NEW = "only_in_base", "only_in_new"
ONE_SIDED = (ONLY_IN_BASE, ONLY_IN_NEW)
VERDICTS = (SLOWER, FAILED, ONLY_IN_BASE, UNDECIDED, DISTURBED_WORD, NOT_COMPARABLE, FASTER, ONLY_IN_NEW, SAME)
LEAST_DISTURBANCE = 0.10  # a fraction
_DOUBTED_INTERVALS = ("two_states", "drifting")  # flags of rows whose interval covers the median too seldom


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A case: its row on each side, None where a side lacks it, with the processes' medians, ms, and samples, ns."""

    base: RowDict | None
    new: RowDict | None
    base_ms: tuple[float, ...] = ()
    new_ms: tuple[float, ...] = ()
    base_ns: tuple[Sequence[float], ...] = ()
    new_ns: tuple[Sequence[float], ...] = ()

    @property
    def row(self) -> RowDict:
        """The row that names the case: the new one, else the base's."""
        row = self.new if self.new is not None else self.base
        assert row is not None
        return row


def pair_cases(base: Source, new: Source) -> list[JoinedRows]:
    """Pair the cases of two sides, in the base's order; then list what only the new side has.

    Rows with equal keys are a pair. Of the others, these are, in this order: rows of different variants, where each
    side has one of the case; rows of the same variant on another device, backend or timer; rows of different variants
    there, where each side has one.
    """
    base_keys, new_keys = unique_keys(base.rows, new.rows)
    places = {key: place for place, key in enumerate(new_keys)}
    partner = {place: places[key] for place, key in enumerate(base_keys) if key in places}
    _pair_rest(base, new, partner, variantless_key, only_single=True)
    _pair_rest(base, new, partner, lambda row: (*portable_key(row), row.get("variant")), only_single=False)
    _pair_rest(base, new, partner, portable_key, only_single=True)
    paired = set(partner.values())
    pairs = [_join_rows(base, place, new, partner.get(place)) for place in range(len(base.rows))]
    return pairs + [_join_rows(base, None, new, place) for place in range(len(new.rows)) if place not in paired]


def _pair_rest(
    base: Source, new: Source, partner: dict[int, int], key: Callable[[RowDict], CaseKey], *, only_single: bool
) -> None:
    """Pair what has no partner yet by another key: in order, or only where each side has a single row."""
    paired = set(partner.values())
    rest_base = [place for place in range(len(base.rows)) if place not in partner]
    rest_new = [place for place in range(len(new.rows)) if place not in paired]
    if not rest_base or not rest_new:
        return
    counts = [Counter(key(row) for row in side.rows) for side in (base, new)]
    labels = sorted(set(schema.extra_names(base.rows)) & set(schema.extra_names(new.rows)))

    def group(side: Source, places: list[int]) -> dict[CaseKey, list[int]]:
        groups: dict[CaseKey, list[int]] = {}
        for place in places:
            row, own = side.rows[place], key(side.rows[place])
            # Only the caller's own columns distinguish the rows of a swept function.
            more = [str(row.get(name)) for name in labels] if any(count[own] > 1 for count in counts) else []
            groups.setdefault((*own, *more), []).append(place)
        return groups

    new_groups = group(new, rest_new)
    for group_key, places in group(base, rest_base).items():
        others = new_groups.get(group_key, [])
        if not only_single or len(places) == len(others) == 1:
            partner.update(zip(places, others, strict=False))


def _join_rows(base: Source, place: int | None, new: Source, other: int | None) -> JoinedRows:
    return JoinedRows(
        None if place is None else base.rows[place],
        None if other is None else new.rows[other],
        () if place is None or not base.process_ms else base.process_ms[place],
        () if other is None or not new.process_ms else new.process_ms[other],
        _samples(base, place),
        _samples(new, other),
    )


def _samples(side: Source, place: int | None) -> tuple[Sequence[float], ...]:
    """Return the samples of each process; none where they are unknown, or those of another measurement."""
    if place is None or not side.samples:
        return ()
    case = side.cases[place] if side.cases else BaselineCase((side.rows[place],), (side.samples[place],))
    by_process: dict[object, Sequence[float]] = {}
    for number in case.timed:
        samples, time = case.samples[number], case.rows[number]["time_ms"]
        if samples is not None and fits_time(samples, time):
            by_process.setdefault(case.process(number), samples)
    return tuple(by_process.values())


@dataclass(frozen=True, slots=True)
class Terms:
    """How a case is tested.

    `gate`: a fraction. `tries`: the measurements that must agree. `chance`: of a false alarm. `variation`, `prior`: how
    the case, and all cases, vary between processes; None where that is unknown.
    """

    gate: float | None
    tries: int
    chance: float
    variation: Spread | None
    prior: Spread | None

    @property
    def limit(self) -> float:
        """The largest change, a logarithm, that may hide in a case that is the same."""
        least = 0.0 if self.variation is None else statistics.LEAST
        return math.log1p(max(DEFAULT_GATE if self.gate is None else self.gate, least))

    def least(self, processes: int) -> float:
        """Return the smallest difference, a logarithm, that counts, for a number of new processes."""
        if self.variation is None:
            return self.limit
        return math.log1p(statistics.smallest_threshold(self.gate, max(self.tries, processes)))


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """A pair with its verdict.

    `base` and `new` are the metric's values, `difference` the logarithm of new / base, `test` its threshold; None where
    there is no comparison. `hidden` is the largest change for the worse, a logarithm, that the data allow. `suspect`:
    disturbed, and slower by more than the disturbance explains. `terms` are those of a second try, too.
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

    @property
    def values(self) -> tuple[MetricValue, MetricValue]:
        """The values of a case that both sides measured."""
        assert self.base is not None
        assert self.new is not None
        return self.base, self.new


def judge_pairs(
    pairs: Sequence[JoinedRows], metric: str, gate: float | None, *, across: bool, tries: int = 1
) -> list[CaseVerdict]:
    """Judge each pair; `tries`: how many measurements must agree before one for the worse counts."""
    lines = [_read_values(pair, metric, across=across) for pair in pairs]
    terms = iter(_make_terms([line for line in lines if line.base is not None], gate, tries))
    return [line if line.base is None else _decide(weigh_values(line, next(terms), metric), metric) for line in lines]


def judge_second_try(line: CaseVerdict, row: RowDict, metric: str) -> CaseVerdict:
    """Compare the same base with a second measurement, disturbed or not."""
    assert line.terms is not None
    samples = getattr(row, "samples_ns", None)
    known = (samples,) if samples and fits_time(samples, positive_number(row.get("time_ms")) or 0.0) else ()
    second = _read_values(replace(line.pair, new=row, new_ms=(), new_ns=known), metric, across=True)
    return second if second.base is None else weigh_values(second, line.terms, metric)


def weigh_values(line: CaseVerdict, terms: Terms, metric: str) -> CaseVerdict:
    """Compare two values by their samples where both sides have some, else by their intervals."""
    pair, sign = line.pair, -1 if higher_is_better(metric) else 1
    test, least = _make_test(line, terms), terms.least(len(line.values[1].processes))
    low, high = sorted(sign * end for end in _difference_interval(line, test))
    sure = max(high, -low) <= terms.limit
    verdict = find_verdict(line.difference, test, metric)
    line = replace(line, verdict=verdict, test=test, hidden=high, terms=terms)
    shift = None if metric == "traffic_ratio" else measure_shift(pair.base_ns, pair.new_ns, terms.prior, terms.chance)
    if shift is not None:
        sure &= not shift.may_exceed(terms.limit)
        line = _weigh_shift(line, test, shift, sign, least)
    elif any(flag in _DOUBTED_INTERVALS for row in (pair.base, pair.new) if row for flag in split_flags(row)):
        line, sure = replace(line, verdict=SAME, hidden=math.inf), False
    return replace(line, verdict=UNDECIDED) if line.verdict == SAME and not sure else line


def _weigh_shift(line: CaseVerdict, test: ChangeTest, shift: Shift, sign: int, least: float) -> CaseVerdict:
    assert line.terms is not None
    verdict = SLOWER if shift.is_longer(least) else FASTER if (-shift).is_longer(least) else SAME
    if verdict != line.verdict and abs(shift.size) <= shift.reach:
        verdict = SAME
    hidden = max(line.hidden, shift.middle[2] + shift.inside, *shift.high[:2])
    noise = shift.reach / statistics.student_quantile(math.inf, 1 - line.terms.chance)
    difference = line.difference
    if verdict not in (SAME, line.verdict):  # the medians alone do not show the change
        difference, test = sign * shift.size, replace(test, noise=noise)
    if shift.reach < test.threshold:
        test = replace(test, threshold=max(least, shift.reach), scatter=noise)
    return replace(line, verdict=verdict, difference=difference, test=test, hidden=hidden)


def find_verdict(difference: float, test: ChangeTest, metric: str) -> str:
    """Return the verdict of a difference, the logarithm of new / base, by the test alone."""
    if not abs(difference) > test.threshold:
        return SAME
    return FASTER if (difference > 0) == higher_is_better(metric) else SLOWER


def is_slower(line: CaseVerdict, metric: str, allowance: float) -> bool:
    """Return whether a line is slower by more than an `allowance`, a logarithm, beyond its threshold."""
    worse = -line.difference if higher_is_better(metric) else line.difference
    return line.verdict == SLOWER and line.test is not None and worse - allowance > line.test.threshold


def disturbance_allowance(base: RowDict, new: RowDict) -> float:
    """Return how much, as a logarithm, a disturbance may have slowed a new row down; 0 without one.

    Disturbances only slow launches down: one of the base hides a change for the worse, and never makes one. The
    allowance is the largest of: the share of time that others took on a CPU, or where unmeasured the samples' spread;
    what a throttled clock lost; and `LEAST_DISTURBANCE`, from which on samples and reference streams are flagged.
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


def _read_values(pair: JoinedRows, metric: str, *, across: bool) -> CaseVerdict:
    base, new = pair.base, pair.new
    if base is None or new is None:
        verdict, side = (ONLY_IN_BASE, "the new side") if new is None else (ONLY_IN_NEW, "the base")
        return CaseVerdict(pair, verdict, f"{side} does not have it")
    verdict, reason = _find_obstacle(base, new, across=across)
    if verdict:
        return CaseVerdict(pair, verdict, reason)
    base_value, new_value = read_metric(base, pair.base_ms, metric), read_metric(new, pair.new_ms, metric)
    if isinstance(base_value, str):
        return CaseVerdict(pair, NOT_COMPARABLE, f"in the base {base_value}")
    if isinstance(new_value, str):
        return CaseVerdict(pair, NOT_COMPARABLE if metric == "traffic_ratio" else FAILED, new_value)
    if not (0 < base_value.middle < math.inf and 0 < new_value.middle < math.inf):
        return CaseVerdict(pair, NOT_COMPARABLE, f"{metric} is beyond what numbers hold")
    return CaseVerdict(pair, "", "", base_value, new_value, math.log(new_value.middle) - math.log(base_value.middle))


def _find_obstacle(base: RowDict, new: RowDict, *, across: bool) -> tuple[str, str]:
    """Return the verdict of rows without comparable values, and why; "" where they have some."""
    if base["status"] != "ok":
        where = "on both sides" if new["status"] == base["status"] else "in the base"
        return NOT_COMPARABLE, _add_reason(f"{base['status']} {where}", base)
    if new["status"] in ("failed", "skipped"):
        return FAILED, _add_reason(str(new["status"]), new)
    if new.get("verified") is False:
        return FAILED, _add_reason("its result is wrong", new)
    if base.get("verified") is False:
        return NOT_COMPARABLE, _add_reason("its result is wrong in the base", base)
    if new["status"] != "ok":
        return NOT_COMPARABLE, f"{new['status']}: not measured"
    differences = [] if across else list_differences(base, new)
    if differences:
        return NOT_COMPARABLE, f"{'; '.join(differences)} (--across compares all the same)"
    return "", ""


def _add_reason(text: str, row: RowDict) -> str:
    return f"{text}: {row['reason']}" if row.get("reason") else text


def _make_terms(lines: Sequence[CaseVerdict], gate: float | None, tries: int) -> list[Terms]:
    """Return the terms of each line. Cases of one device vary alike; all cases share the family's chance."""
    devices = [line.pair.row.get("device") for line in lines]
    spreads = [_pool_sides(line) for line in lines]
    by_device: dict[object, list[Spread]] = {}
    for device, spread in zip(devices, spreads, strict=True):
        if spread is not None:
            by_device.setdefault(device, []).append(spread)
    priors = {device: statistics.fit_prior(members) for device, members in by_device.items()}
    chance, terms = statistics.chance_per_case(len(lines)), []
    for device, spread in zip(devices, spreads, strict=True):
        prior = priors.get(device)
        variation = None if spread is None else statistics.moderate_spread(spread, prior)
        terms.append(Terms(gate, tries, chance, variation, prior))
    return terms


def _make_test(line: CaseVerdict, terms: Terms) -> ChangeTest:
    base, new = line.values
    if terms.variation is None:
        lower, upper = (base, new) if line.difference > 0 else (new, base)
        facing = _reach(lower)[1], _reach(upper)[0]
        return statistics.plain_test(facing, math.expm1(terms.limit), terms.chance)
    counts = len(base.processes), len(new.processes)
    within = statistics.standard_error(new.low, new.high)
    return statistics.learnt_test(
        terms.variation, counts, within, terms.chance, least=math.expm1(terms.least(counts[1]))
    )


def _pool_sides(line: CaseVerdict) -> Spread | None:
    return statistics.pool_spreads(*(statistics.log_variance(value.processes) for value in line.values))


def _reach(value: MetricValue) -> tuple[float, float]:
    """Return how far an interval reaches downwards and upwards, in logarithms."""
    down = math.log(value.middle) - math.log(value.low) if 0 < value.low < math.inf else math.inf
    up = math.log(value.high) - math.log(value.middle) if 0 < value.high < math.inf else math.inf
    return max(down, 0.0), max(up, 0.0)


def _difference_interval(line: CaseVerdict, test: ChangeTest) -> tuple[float, float]:
    """Return the 95 % interval of the difference: the wider one of the test's and that of the values' intervals.

    Where the test knows the variation between processes, the base's own interval does not count.
    """
    base, new = line.values
    down, up = (0.0, 0.0) if test.between_processes else _reach(base)
    below, above = _reach(new)
    low, high = test.interval(line.difference)
    return min(low, line.difference - math.hypot(up, below)), max(high, line.difference + math.hypot(down, above))


def _decide(line: CaseVerdict, metric: str) -> CaseVerdict:
    base, new, test = line.pair.base, line.pair.new, line.test
    assert base is not None
    assert new is not None
    assert test is not None
    disturbed = _describe_flags(base, new, find_disturbances)
    if disturbed:
        allowance = disturbance_allowance(base, new)
        suspect = is_slower(line, metric, allowance)
        if suspect and allowance:
            disturbed += f"; slower by more than the {100 * math.expm1(allowance):.0f} % that this may explain"
        elif suspect:
            disturbed += "; slower all the same: the base was no quicker than it seems"
        hidden = line.hidden - allowance
        return replace(line, verdict=DISTURBED_WORD, reason=disturbed, suspect=suspect, hidden=hidden)
    if line.verdict != SLOWER and base.get("verified") and "unverified" in split_flags(new):
        reason = _add_reason("verified in the base, unverified in the new run", new)
        return replace(line, verdict=NOT_COMPARABLE, reason=reason)
    few = math.isinf(test.threshold)
    return replace(line, reason="too few samples to tell" if few else _describe_flags(base, new, find_doubts))


def _describe_flags(base: RowDict, new: RowDict, flags: Callable[[RowDict], list[str]]) -> str:
    return ", ".join(f"{flag} in the {side}" for side, row in (("base", base), ("new run", new)) for flag in flags(row))
