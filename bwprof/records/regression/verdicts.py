"""Verdicts: faster, slower, same, undecided, or why a case cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.records.keys import (
    CaseKey,
    MetricValue,
    case_key,
    common_labels,
    extend_repeated,
    format_metric,
    list_differences,
    portable_names,
    positive_number,
    read_metric,
    unique_keys,
    variantless_names,
)
from bwprof.records.regression import statistics
from bwprof.records.regression.statistics import ChangeTest, Shift, Spread, fits_time, measure_shift
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
_NO_CASE = BaselineCase((), ())
_NO_VALUE = MetricValue(math.nan, math.nan, math.nan, ())
_NO_TEST = ChangeTest(math.nan, math.nan, math.inf, between_processes=False)


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """A case: on each side the row that represents it, None where a side lacks it, and the rows of all processes."""

    base: RowDict | None
    new: RowDict | None
    base_case: BaselineCase = _NO_CASE
    new_case: BaselineCase = _NO_CASE

    @property
    def row(self) -> RowDict:
        """The row that names the case: the new one, else the base's."""
        return self.new or self.base or {}


def pair_cases(base: Baseline, new: Baseline) -> list[JoinedRows]:
    """Pair the cases of two sides, in the base's order; then list what only the new side has.

    Rows with equal keys are a pair. Of the others, these are: rows of different variants, where each side has one of
    the case; rows of the same variant on another device, backend or timer; rows of different variants there.
    """
    rows = base.rows, new.rows
    base_keys, new_keys = unique_keys(*rows)
    places = {key: place for place, key in enumerate(new_keys)}
    partner = {place: places[key] for place, key in enumerate(base_keys) if key in places}
    _pair_rest(rows, partner, variantless_names(), only_single=True)
    _pair_rest(rows, partner, (*portable_names(), "variant"), only_single=False)
    _pair_rest(rows, partner, portable_names(), only_single=True)
    pairs = [JoinedRows(row, None, case) for row, case in zip(rows[0], base.cases, strict=True)]
    for place, other in partner.items():
        pairs[place] = replace(pairs[place], new=rows[1][other], new_case=new.cases[other])
    alone = set(range(len(new.cases))).difference(partner.values())
    return pairs + [JoinedRows(None, rows[1][place], new_case=new.cases[place]) for place in sorted(alone)]


def _pair_rest(
    sides: Sequence[Sequence[RowDict]], partner: dict[int, int], names: Sequence[str], *, only_single: bool
) -> None:
    """Pair what has no partner yet by other columns: in order, or only where each side has a single row."""
    paired = set(partner), set(partner.values())
    if any(len(done) == len(rows) for done, rows in zip(paired, sides, strict=True)):
        return
    # Only the caller's own columns distinguish the rows of a swept function.
    keys = extend_repeated([[case_key(row, names) for row in rows] for rows in sides], sides, common_labels(sides))
    groups: list[dict[CaseKey, list[int]]] = [{}, {}]
    for group, done, side in zip(groups, paired, keys, strict=True):
        for place, key in enumerate(side):
            if place not in done:
                group.setdefault(key, []).append(place)
    for key, places in groups[0].items():
        others = groups[1].get(key, [])
        if not only_single or len(places) == len(others) == 1:
            partner.update(zip(places, others, strict=False))


@dataclass(frozen=True, slots=True)
class Terms:
    """How a case is tested: `tries` measurements must agree, `chance` is that of a false alarm.

    `variation`, `prior`: how the case, and all cases, vary between processes; None where that is unknown.
    """

    metric: str
    gate: float | None
    tries: int
    chance: float
    variation: Spread | None
    prior: Spread | None

    @property
    def worse(self) -> int:
        """The sign of a difference for the worse."""
        return -1 if schema.find_column(self.metric).better == "higher" else 1

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


_NO_TERMS = Terms("time_ms", None, 1, math.nan, None, None)


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """A pair with its verdict; `base`, `new` and `test` have no numbers where there is no comparison.

    `difference` is the logarithm of new / base, `hidden` the largest change for the worse, a logarithm, that the data
    allow. `suspect`: disturbed, and slower by more than the disturbance explains.
    """

    pair: JoinedRows
    verdict: str
    reason: str = ""
    base: MetricValue = _NO_VALUE
    new: MetricValue = _NO_VALUE
    difference: float = math.nan
    test: ChangeTest = _NO_TEST
    suspect: bool = False
    hidden: float = math.inf
    terms: Terms = _NO_TERMS

    @property
    def is_tested(self) -> bool:
        """Whether the two values were compared."""
        return bool(self.base.processes)

    @property
    def change(self) -> float:
        """The metric's change, a fraction; NaN where there is none."""
        return to_fraction(self.difference)

    @property
    def badness(self) -> float:
        """How much worse the new side is, as a logarithm; negative where it is better."""
        return self.terms.worse * self.difference

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of new / base; NaN where there is none."""
        low, high = self.test.interval(self.difference)
        return to_ratio(low), to_ratio(high)

    @property
    def limit(self) -> float:
        """The smallest change for the worse that counts, a fraction; negative for a rate."""
        return to_fraction(self.terms.worse * self.test.threshold)

    @property
    def smallest(self) -> float:
        """The smallest change for the worse that is found with 95 % probability."""
        return to_fraction(self.terms.worse * self.test.smallest(times=self.terms.tries))

    def fails(self, fail_on: str | float) -> bool:
        """Return whether the line fails a gate: "slower", "any", "never", or a fraction that its interval reaches."""
        if fail_on == "never" or self.verdict not in (SLOWER, FASTER):
            return False
        if isinstance(fail_on, str):
            return fail_on == "any" or self.verdict == SLOWER
        low, high = self.interval
        longer = 1 / low if self.limit < 0 else high  # a rate counts as the time behind it
        return self.verdict == SLOWER and longer - 1 >= fail_on

    def is_suspected(self, fail_on: str | float) -> bool:
        """Return whether a disturbed line would fail."""
        return self.suspect and replace(self, verdict=SLOWER).fails(fail_on)

    def is_undecided(self, fail_on: str | float) -> bool:
        """Return whether a change that fails the gate may hide in a line that does not fail."""
        open_verdict = self.verdict in (UNDECIDED, DISTURBED_WORD, SLOWER) and not self.suspect
        if fail_on == "never" or not open_verdict or not self.is_tested or self.fails(fail_on):
            return False
        if fail_on == "any" and self.verdict == UNDECIDED:
            return True
        return self.hidden > (self.terms.limit if isinstance(fail_on, str) else math.log1p(fail_on))

    def is_doubted(self, fail_on: str | float) -> bool:
        """Return whether the line fails, or may fail: it is worth a second try."""
        return self.fails(fail_on) or self.is_suspected(fail_on) or self.is_undecided(fail_on)

    def is_missing(self) -> bool:
        """Return whether only the base measured the case."""
        base, new = self.pair.base, self.pair.new
        gone = base is not None and base["status"] == "ok" and (new is None or new["status"] != "ok")
        return self.verdict == FAILED or gone

    def with_reason(self, reason: str, verdict: str = "") -> CaseVerdict:
        """Return the line with one more reason, and another verdict if there is one."""
        reasons = filter(None, (self.reason, reason))
        return replace(self, reason="; ".join(reasons), verdict=verdict or self.verdict)


def to_ratio(logarithm: float) -> float:
    """Return new / base; infinity where that overflows."""
    return math.inf if logarithm >= 700 else math.exp(logarithm)


def to_fraction(logarithm: float) -> float:
    """Return new / base - 1; infinity where that overflows."""
    return math.inf if logarithm >= 700 else math.expm1(logarithm)


def judge_pairs(
    pairs: Sequence[JoinedRows], metric: str, gate: float | None, *, across: bool, tries: int = 1
) -> list[CaseVerdict]:
    """Judge each pair; `tries`: how many measurements must agree before one for the worse counts."""
    lines = [_read_values(pair, metric, across=across) for pair in pairs]
    spreads = [
        statistics.pool_spreads(*(statistics.log_variance(value.processes) for value in (line.base, line.new)))
        for line in lines
    ]
    devices = [line.pair.row.get("device") for line in lines]
    known = [(device, spread) for device, spread in zip(devices, spreads, strict=True) if spread is not None]
    priors = {one: statistics.fit_prior([spread for device, spread in known if device == one]) for one, _ in known}
    chance = statistics.chance_per_case(sum(line.is_tested for line in lines))
    for place, (line, device, spread) in enumerate(zip(lines, devices, spreads, strict=True)):
        if line.is_tested:
            prior = priors.get(device)
            variation = None if spread is None else statistics.moderate_spread(spread, prior)
            lines[place] = _decide(_weigh_values(line, Terms(metric, gate, tries, chance, variation, prior)))
    return lines


def _read_values(pair: JoinedRows, metric: str, *, across: bool) -> CaseVerdict:
    base, new = pair.base, pair.new
    if base is None or new is None:
        verdict, side = (ONLY_IN_BASE, "the new side") if new is None else (ONLY_IN_NEW, "the base")
        return CaseVerdict(pair, verdict, f"{side} does not have it")
    if obstacle := _find_obstacle(base, new, across=across):
        return CaseVerdict(pair, *obstacle)
    before, after = (
        read_metric(row, case.process_ms, metric) for row, case in ((base, pair.base_case), (new, pair.new_case))
    )
    if isinstance(before, str):
        return CaseVerdict(pair, NOT_COMPARABLE, f"in the base {before}")
    if isinstance(after, str):
        return CaseVerdict(pair, NOT_COMPARABLE if metric == "traffic_ratio" else FAILED, after)
    if not (0 < before.middle < math.inf and 0 < after.middle < math.inf):
        return CaseVerdict(pair, NOT_COMPARABLE, f"{metric} is beyond what numbers hold")
    return CaseVerdict(pair, "", "", before, after, math.log(after.middle) - math.log(before.middle))


def _find_obstacle(base: RowDict, new: RowDict, *, across: bool) -> tuple[str, str] | None:
    """Return the verdict of rows without comparable values, and why."""
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
    return (NOT_COMPARABLE, f"{'; '.join(differences)} (--across compares all the same)") if differences else None


def _add_reason(text: str, row: RowDict) -> str:
    return f"{text}: {row['reason']}" if row.get("reason") else text


def _weigh_values(line: CaseVerdict, terms: Terms) -> CaseVerdict:
    """Compare two values by their samples where both sides have some, else by their intervals."""
    pair, test = line.pair, _make_test(line, terms)
    low, high = sorted(terms.worse * end for end in _difference_interval(line, test))
    sure = max(high, -low) <= terms.limit
    changed = SLOWER if terms.worse * line.difference > 0 else FASTER
    verdict = changed if abs(line.difference) > test.threshold else SAME
    line = replace(line, verdict=verdict, test=test, hidden=high, terms=terms)
    shift = None
    if terms.metric != "traffic_ratio":
        samples = _process_samples(pair.base_case), _process_samples(pair.new_case)
        shift = measure_shift(*samples, terms.prior, terms.chance)
    if shift is not None:
        sure &= not shift.may_exceed(terms.limit)
        line = _weigh_shift(line, test, shift, terms)
    elif any(flag in _DOUBTED_INTERVALS for row in (pair.base, pair.new) if row for flag in split_flags(row)):
        line, sure = replace(line, verdict=SAME, hidden=math.inf), False
    return replace(line, verdict=UNDECIDED) if line.verdict == SAME and not sure else line


def _process_samples(case: BaselineCase) -> list[Sequence[float]]:
    """Return the samples of each process; none where they are unknown, or those of another measurement."""
    by_process: dict[object, Sequence[float]] = {}
    for place in case.timed:
        samples = case.samples[place]
        if samples is not None and fits_time(samples, case.rows[place]["time_ms"]):
            by_process.setdefault(case.process(place), samples)
    return list(by_process.values())


def _weigh_shift(line: CaseVerdict, test: ChangeTest, shift: Shift, terms: Terms) -> CaseVerdict:
    least = terms.least(len(line.new.processes))
    verdict = SLOWER if shift.is_longer(least) else FASTER if shift.is_longer(least, -1) else SAME
    if verdict != line.verdict and abs(shift.size) <= shift.reach:
        verdict = SAME
    hidden = max(line.hidden, shift.middle[2] + shift.inside, *shift.high[:2])
    noise = shift.reach / statistics.student_quantile(math.inf, 1 - terms.chance)
    difference = line.difference
    if verdict not in (SAME, line.verdict):  # the medians alone do not show the change
        difference, test = terms.worse * shift.size, replace(test, noise=noise)
    if shift.reach < test.threshold:
        test = replace(test, threshold=max(least, shift.reach), scatter=noise)
    return replace(line, verdict=verdict, difference=difference, test=test, hidden=hidden)


def _make_test(line: CaseVerdict, terms: Terms) -> ChangeTest:
    base, new = line.base, line.new
    if terms.variation is None:
        lower, upper = (base, new) if line.difference > 0 else (new, base)
        facing = _reach(lower)[1], _reach(upper)[0]
        return statistics.plain_test(facing, math.expm1(terms.limit), terms.chance)
    counts = len(base.processes), len(new.processes)
    within = statistics.standard_error(new.low, new.high)
    least = math.expm1(terms.least(counts[1]))
    return statistics.learned_test(terms.variation, counts, within, terms.chance, least=least)


def _reach(value: MetricValue) -> tuple[float, float]:
    """Return how far an interval reaches downwards and upwards, in logarithms."""
    down = math.log(value.middle) - math.log(value.low) if 0 < value.low < math.inf else math.inf
    up = math.log(value.high) - math.log(value.middle) if 0 < value.high < math.inf else math.inf
    return max(down, 0.0), max(up, 0.0)


def _difference_interval(line: CaseVerdict, test: ChangeTest) -> tuple[float, float]:
    """Return the 95 % interval of the difference: the wider one of the test's and that of the values' intervals."""
    # Where the test knows the variation between processes, the base's own interval does not count.
    down, up = (0.0, 0.0) if test.between_processes else _reach(line.base)
    below, above = _reach(line.new)
    low, high = test.interval(line.difference)
    return min(low, line.difference - math.hypot(up, below)), max(high, line.difference + math.hypot(down, above))


def _decide(line: CaseVerdict) -> CaseVerdict:
    """Change the verdict where a side was disturbed or is unverified, and name the doubts."""
    base, new = line.pair.base or {}, line.pair.new or {}
    disturbed = _describe_flags(base, new, find_disturbances)
    if disturbed:
        allowance = disturbance_allowance(base, new)
        suspect = _is_slower(line, allowance)
        if suspect and allowance:
            disturbed += f"; slower by more than the {100 * math.expm1(allowance):.0f} % that this may explain"
        elif suspect:
            disturbed += "; slower all the same: the base was no quicker than it seems"
        line = replace(line, suspect=suspect, hidden=line.hidden - allowance)
        return line.with_reason(disturbed, DISTURBED_WORD)
    if line.verdict != SLOWER and base.get("verified") and "unverified" in split_flags(new):
        return line.with_reason(_add_reason("verified in the base, unverified in the new run", new), NOT_COMPARABLE)
    few = math.isinf(line.test.threshold)
    return line.with_reason("too few samples to tell" if few else _describe_flags(base, new, find_doubts))


def _describe_flags(base: RowDict, new: RowDict, flags: Callable[[RowDict], list[str]]) -> str:
    return ", ".join(f"{flag} in the {side}" for side, row in (("base", base), ("new run", new)) for flag in flags(row))


def _is_slower(line: CaseVerdict, allowance: float) -> bool:
    """Return whether a line is slower by more than an `allowance`, a logarithm, beyond its threshold."""
    return line.verdict == SLOWER and line.badness - allowance > line.test.threshold


def disturbance_allowance(base: RowDict, new: RowDict) -> float:
    """Return how much, as a logarithm, a disturbance may have slowed a new row down; 0 without one.

    One of the base never makes a change for the worse. The allowance is the largest of: the share of time that others
    took on a CPU, or where unmeasured the samples' spread; what a throttled clock lost; and `LEAST_DISTURBANCE`.
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


def judge_again(line: CaseVerdict, row: RowDict | str) -> tuple[CaseVerdict, bool]:
    """Return a line after a second measurement, and whether there was one; a text says why not."""
    differences = [row] if isinstance(row, str) else list_differences(line.pair.new or {}, row)
    if isinstance(row, str) or (differences and row["status"] == "ok"):
        return _judge_single_try(line, f"not measured again: {'; '.join(differences)}"), False
    if row["status"] != "ok":
        return line.with_reason(f"measured again, it {row['status']}: {row['reason']}"), True
    return _judge_second_try(line, row), True


def _judge_second_try(line: CaseVerdict, row: RowDict) -> CaseVerdict:
    """Return a line after a second measurement: it fails only if both tries agree."""
    case = BaselineCase((row,), (getattr(row, "samples_ns", None) or None,))
    pair, metric = replace(line.pair, new=row, new_case=case), line.terms.metric
    second = _read_values(pair, metric, across=True)
    if not line.is_tested or not second.is_tested:
        why = second.reason if line.is_tested else "no value to compare with"
        return line.with_reason(f"measured again: {why}")
    second = _weigh_values(second, line.terms)
    value = format_metric(second.new.middle, metric)
    disturbed = find_disturbances(row)
    outcome = ", ".join([f"measured again: {value}, {100 * second.change:+.1f} %", *disturbed])
    if line.suspect:
        return _judge_suspect(line, second, outcome)
    if second.verdict == line.verdict:
        return line.with_reason(f"{outcome}: {line.verdict} as well")
    cleared = second.verdict == SAME
    verdict = DISTURBED_WORD if disturbed and line.verdict != UNDECIDED else SAME if cleared else UNDECIDED
    reason = f"{line.verdict.replace('_', ' ')} at first; {outcome}{'' if cleared else f': {second.verdict}'}"
    return line.with_reason(reason, verdict)


def _judge_single_try(line: CaseVerdict, outcome: str) -> CaseVerdict:
    """Return a line that cannot be measured again: a single try needs a larger change."""
    least = statistics.smallest_threshold(line.terms.gate, 1)
    if line.suspect or not line.test.between_processes or abs(line.difference) > math.log1p(least):
        return line.with_reason(outcome)
    verdict = SAME if line.hidden <= line.terms.limit else UNDECIDED
    return line.with_reason(f"{line.verdict} at first; {outcome}; a single try needs {100 * least:g} %", verdict)


def _judge_suspect(line: CaseVerdict, second: CaseVerdict, outcome: str) -> CaseVerdict:
    """Return a line that was disturbed and seemed slower, after its second try."""
    new = second.pair.new or {}
    allowance = disturbance_allowance(second.pair.base or {}, new)
    if _is_slower(second, allowance):
        verdict, reason = SLOWER, f"{outcome}: slower as well"
    elif find_disturbances(new):
        verdict, reason = DISTURBED_WORD, f"{outcome}: no more than that explains"
    elif second.verdict == UNDECIDED:
        verdict, reason = UNDECIDED, f"{outcome}: {UNDECIDED}"
    else:
        verdict, reason = SAME, outcome
    return replace(line.with_reason(reason, verdict), suspect=False, hidden=second.hidden - allowance)
