"""Compare two sides: one line for each case, as a frame."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bwprof.records.baselines import BaselineCase
from bwprof.records.keys import (
    CaseKey,
    check_metric,
    format_metric,
    geometric_mean,
    group_places,
    higher_is_better,
    keys_within_runs,
    list_differences,
    positive_number,
)
from bwprof.records.regression import causes, statistics
from bwprof.records.regression.verdicts import (
    DISTURBED_WORD,
    FAILED,
    FASTER,
    SAME,
    SLOWER,
    UNDECIDED,
    CaseVerdict,
    disturbance_allowance,
    is_slower,
    judge_pairs,
    judge_second_try,
    pair_cases,
)
from bwprof.records.source import Source
from bwprof.results import schema
from bwprof.results.pairs import DEFAULT_GATE, find_disturbances
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import plural
from bwprof.text.parsing import describe_unknown, parse_fraction, quote_text

if TYPE_CHECKING:
    import pandas as pd

FAIL_ON = ("slower", "any", "never")
COLUMNS = (
    *("case", "precision", "variant", "base_ms", "new_ms", "speedup", "change_pct", "base_gb_s", "new_gb_s", "verdict"),
    *("ratio", "ratio_lo", "ratio_hi", "threshold_pct", "smallest_pct"),
    *("base_ms_lo", "base_ms_hi", "new_ms_lo", "new_ms_hi", "base_processes", "new_processes"),
    *("cause", "reason", "operation", "cache", "parameters"),
)
_TEXTS = frozenset(["case", "precision", "variant", "verdict", "cause", "reason", "operation", "cache", "parameters"])
_COUNTS = frozenset(("base_processes", "new_processes"))
_SELF_EXPLAINING = ("cache", "variant", "device")  # columns whose values need no name beside them


def join_runs(base: Source, new: Source) -> tuple[Source, Source, list[str]]:
    """Join the rows that several runs of a side have of one case; return both sides, and notes.

    Rows of a case in one run stay separate: they differ in something that no column has. A row of the new side that
    failed represents its case, so that no failure is silent.
    """
    keys = keys_within_runs(base.rows, new.rows)
    notes: list[str] = []
    sides = [
        side if side.cases else _join_processes(side, side_keys, notes, failures=side is new)
        for side, side_keys in zip((base, new), keys, strict=True)
    ]
    return sides[0], sides[1], notes


def _join_processes(side: Source, keys: Sequence[CaseKey], notes: list[str], *, failures: bool) -> Source:
    groups = group_places(keys).values()
    if len(groups) == len(keys):
        return side
    samples = side.samples or [None] * len(side.rows)
    cases = [BaselineCase(tuple(side.rows[n] for n in places), tuple(samples[n] for n in places)) for places in groups]
    notes.append(_describe_repeats(side.name, [case for case in cases if len(case.rows) > 1]))
    rows, chosen, process_ms = [], [], []
    for case in cases:
        failure = _find_failure(case) if failures else None
        place = case.middle if failure is None else failure
        rows.append(case.rows[place])
        chosen.append(case.samples[place])
        process_ms.append(case.process_ms if failure is None else ())
    return replace(side, rows=rows, samples=chosen, process_ms=process_ms, cases=tuple(cases))


def _find_failure(case: BaselineCase) -> int | None:
    failed = (n for n, row in enumerate(case.rows) if row["status"] == "failed" or row.get("verified") is False)
    return next(failed, None)


def _describe_repeats(name: str, cases: Sequence[BaselineCase]) -> str:
    processes = max(case.processes for case in cases)
    where = "one process, which counts once" if processes == 1 else f"up to {processes} processes"
    times = max(len(case.rows) for case in cases)
    count = plural(len(cases), "case")
    return f"{quote_text(name)}: {count} measured up to {times} times, in {where}: times are geometric means of medians"


@dataclass(frozen=True)
class Gate:
    """The lines that a gate finds, by index: failed ones, those that only the base measured, disturbed ones that seem
    slower, and those where a change that fails may hide.
    """

    fail_on: str | float
    failed: list[int]
    missing: list[int]
    suspects: list[int]
    undecided: list[int]

    @property
    def unsettled(self) -> list[int]:
        """The lines that pass no gate."""
        return [*self.missing, *self.suspects, *self.undecided]


@dataclass(frozen=True)
class Comparison:
    """Two sides compared: their names, the method, and a line for each case."""

    base: str
    new: str
    metric: str
    gate: float | None
    lines: tuple[CaseVerdict, ...]
    notes: tuple[str, ...] = ()
    tries: int = 1  # measurements of a case that must agree before it counts
    confirmed: bool = False  # cases that fail were measured twice
    second_tries: Mapping[int, bool] = field(default_factory=dict)  # whether they were measured, by a line's index
    conditions: str = ""  # differences between the runs

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of lines of each verdict."""
        return Counter(line.verdict for line in self.lines)

    @property
    def judged(self) -> int:
        """The number of lines that are faster, slower or the same."""
        return sum(self.counts[word] for word in (FASTER, SLOWER, SAME))

    @property
    def tested(self) -> list[CaseVerdict]:
        """The lines whose two values were compared."""
        return [line for line in self.lines if line.test is not None]

    @property
    def processes(self) -> int:
        """The number of processes of the base; 1 for a plain run."""
        return max((len(line.base.processes) for line in self.tested if line.base is not None), default=1)

    def change(self, line: CaseVerdict) -> float:
        """Return the metric's change, a fraction; NaN where there is none."""
        return _exp(line.difference) - 1 if line.difference > 1 else math.expm1(line.difference)

    def interval(self, line: CaseVerdict) -> tuple[float, float]:
        """Return the 95 % interval of new / base; NaN where there is none."""
        if line.test is None:
            return math.nan, math.nan
        low, high = line.test.interval(line.difference)
        return _exp(low), _exp(high)

    def limit(self, line: CaseVerdict) -> float:
        """Return the smallest change for the worse that counts, a fraction; negative for a rate."""
        return math.nan if line.test is None else _exp(self._worse * line.test.threshold) - 1

    def smallest(self, line: CaseVerdict) -> float:
        """Return the smallest change for the worse that is found with 95 % probability."""
        if line.test is None:
            return math.nan
        return _exp(self._worse * line.test.smallest(times=self.tries)) - 1

    @property
    def _worse(self) -> int:
        return -1 if higher_is_better(self.metric) else 1

    def badness(self, line: CaseVerdict) -> float:
        """Return how much worse the new side is, as a logarithm; negative where it is better."""
        return self._worse * line.difference

    def fails(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Return whether a gate fails for a line.

        `fail_on` is one of `FAIL_ON`, or a fraction: then a line fails that is slower, and whose interval reaches it.
        """
        if fail_on == "never" or line.verdict not in (SLOWER, FASTER):
            return False
        if isinstance(fail_on, str):
            return fail_on == "any" or line.verdict == SLOWER
        low, high = self.interval(line)
        longer = 1 / low if higher_is_better(self.metric) else high  # a rate counts as the time behind it
        return line.verdict == SLOWER and longer - 1 >= fail_on

    def doubted(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Return whether a line fails, or may fail: it is worth a second try."""
        return self.fails(line, fail_on) or self.suspected(line, fail_on) or self.undecided(line, fail_on)

    def undecided(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Return whether a change that fails the gate may hide in a line that does not fail."""
        open_verdict = line.verdict in (UNDECIDED, DISTURBED_WORD, SLOWER) and not line.suspect
        if fail_on == "never" or not open_verdict or line.terms is None or self.fails(line, fail_on):
            return False
        if fail_on == "any" and line.verdict == UNDECIDED:
            return True
        return line.hidden > (line.terms.limit if isinstance(fail_on, str) else math.log1p(fail_on))

    def suspected(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Return whether a disturbed line would fail."""
        return line.suspect and self.fails(replace(line, verdict=SLOWER), fail_on)

    def apply_gate(self, fail_on: str | float) -> Gate:
        """Apply a gate: `fail_on` as in `fails`."""

        def select(test: Callable[[CaseVerdict], bool]) -> list[int]:
            return [place for place, line in enumerate(self.lines) if fail_on != "never" and test(line)]

        return Gate(
            fail_on,
            select(lambda line: self.fails(line, fail_on)),
            select(_is_missing),
            select(lambda line: self.suspected(line, fail_on)),
            select(lambda line: self.undecided(line, fail_on)),
        )

    def cause(self, place: int) -> str:
        """Return the probable cause of a line's difference; "" without one."""
        line = self.lines[place]
        base, new = line.pair.base, line.pair.new
        if line.test is None or base is None or new is None:
            return ""
        if line.verdict in (SLOWER, FASTER, DISTURBED_WORD, UNDECIDED):
            find = causes.explain_change if line.verdict in (SLOWER, FASTER) else causes.find_causes
            return find(base, new, slower=self.badness(line) > 0, conditions=self.conditions)
        beyond = abs(line.difference) > math.log1p(statistics.LEAST) or place in self.second_tries
        return causes.describe_noise(self.change(line), abs(self.limit(line))) if beyond else ""

    def after_second_try(self, tries: Mapping[int, RowDict | str]) -> Comparison:
        """Return the comparison after second measurements of lines, by index, in fresh processes.

        A line fails only if both tries agree. A text says why there was no second try; such a line keeps its verdict,
        unless a single try needs a larger change. A disturbed try clears nothing. A line that was disturbed at first is
        slower when both tries are, by more than their disturbances explain.
        """
        lines, second_tries = list(self.lines), dict(self.second_tries)
        for place, row in tries.items():
            lines[place], second_tries[place] = self._judge_again(lines[place], row)
        confirmed = self.confirmed or any(not isinstance(row, str) for row in tries.values())
        return replace(self, lines=tuple(lines), confirmed=confirmed, second_tries=second_tries)

    def _judge_again(self, line: CaseVerdict, row: RowDict | str) -> tuple[CaseVerdict, bool]:
        if isinstance(row, str):
            return self._judge_single_try(line, f"not measured again: {row}"), False
        differences = list_differences(line.pair.new or {}, row)
        if differences and row["status"] == "ok":
            return self._judge_single_try(line, f"not measured again: {'; '.join(differences)}"), False
        return self._judge_second_try(line, row), True

    def _judge_second_try(self, line: CaseVerdict, row: RowDict) -> CaseVerdict:
        if row["status"] != "ok":
            return _with_reason(line, f"measured again, it {row['status']}: {row['reason']}")
        second = None if line.terms is None else judge_second_try(line, row, self.metric)
        if second is None or second.new is None:
            return _with_reason(
                line, f"measured again: {'no value to compare with' if second is None else second.reason}"
            )
        figures = f"{format_metric(second.new.middle, self.metric)}, {100 * self.change(second):+.1f} %"
        disturbed = find_disturbances(row)
        outcome = ", ".join([f"measured again: {figures}", *disturbed])
        if line.suspect:
            return self._judge_suspect(line, second, outcome)
        if second.verdict == line.verdict:
            return _with_reason(line, f"{outcome}: {line.verdict} as well")
        cleared = second.verdict == SAME
        verdict = DISTURBED_WORD if disturbed and line.verdict != UNDECIDED else SAME if cleared else UNDECIDED
        reason = f"{line.verdict.replace('_', ' ')} at first; {outcome}{'' if cleared else f': {second.verdict}'}"
        return _with_reason(line, reason, verdict)

    def _judge_single_try(self, line: CaseVerdict, outcome: str) -> CaseVerdict:
        least = statistics.smallest_threshold(self.gate, 1)
        learnt = line.test is not None and line.test.between_processes
        if line.suspect or not learnt or abs(line.difference) > math.log1p(least):
            return _with_reason(line, outcome)
        verdict = SAME if line.terms is not None and line.hidden <= line.terms.limit else UNDECIDED
        return _with_reason(line, f"{line.verdict} at first; {outcome}; a single try needs {100 * least:g} %", verdict)

    def _judge_suspect(self, line: CaseVerdict, second: CaseVerdict, outcome: str) -> CaseVerdict:
        """Return a line that was disturbed and seemed slower, after its second try."""
        assert second.pair.base is not None
        assert second.pair.new is not None
        allowance = disturbance_allowance(second.pair.base, second.pair.new)
        if is_slower(second, self.metric, allowance):
            verdict, reason = SLOWER, f"{outcome}: slower as well"
        elif find_disturbances(second.pair.new):
            verdict, reason = DISTURBED_WORD, f"{outcome}: no more than that explains"
        elif second.verdict == UNDECIDED:
            verdict, reason = UNDECIDED, f"{outcome}: {UNDECIDED}"
        else:
            verdict, reason = SAME, outcome
        return replace(_with_reason(line, reason, verdict), suspect=False, hidden=second.hidden - allowance)

    def frame(self) -> pd.DataFrame:
        """Return a row for each line; see `bwprof.compare`."""
        import pandas as pd

        labels = distinguish_lines(self.lines)
        records = [self._record(place, label) for place, label in enumerate(labels)]
        types = {name: "string" if name in _TEXTS else "Int64" if name in _COUNTS else "float64" for name in COLUMNS}
        data = pd.DataFrame(records, columns=list(COLUMNS), dtype=object).astype(types)
        data.attrs = {"base": self.base, "new": self.new, "metric": self.metric, "gate": self.gate}
        return data

    def _record(self, place: int, label: str) -> dict[str, Any]:
        line = self.lines[place]
        row, base, new = line.pair.row, line.pair.base, line.pair.new
        low, high = self.interval(line)
        base_ms, new_ms = _time_ms(base, line.pair.base_ms), _time_ms(new, line.pair.new_ms)
        return {
            **{name: row.get(name) for name in ("case", "precision", "variant", "operation", "cache")},
            "base_ms": base_ms,
            "new_ms": new_ms,
            "speedup": base_ms / new_ms if new_ms > 0 and base_ms > 0 else math.nan,
            "change_pct": 100 * self.change(line),
            "base_gb_s": _gb_s(base, base_ms),
            "new_gb_s": _gb_s(new, new_ms),
            "verdict": line.verdict,
            "ratio": _exp(line.difference),
            "ratio_lo": low,
            "ratio_hi": high,
            "threshold_pct": 100 * self.limit(line),
            "smallest_pct": 100 * self.smallest(line),
            "base_ms_lo": _end_ms(base, "time_ms_lo", base_ms),
            "base_ms_hi": _end_ms(base, "time_ms_hi", base_ms),
            "new_ms_lo": _end_ms(new, "time_ms_lo", new_ms),
            "new_ms_hi": _end_ms(new, "time_ms_hi", new_ms),
            "base_processes": None if line.base is None else len(line.base.processes),
            "new_processes": None if line.new is None else len(line.new.processes),
            "cause": self.cause(place) or None,
            "reason": line.reason or None,
            "parameters": label,
        }


def parse_fail_on(text: str | None, name: str) -> str | float:
    """Return what a gate fails on, one of `FAIL_ON` or a fraction; `name` is the option's in messages."""
    if text is None:
        return "never"
    if text in FAIL_ON:
        return text
    if not any(letter.isdigit() for letter in text):
        raise ValueError(describe_unknown(name, text, (*FAIL_ON, "5%")))
    return parse_fraction(text, name)


def compare_sources(
    base: Source,
    new: Source,
    *,
    gate: float | str | None = None,
    across: bool = False,
    metric: str = "time_ms",
    tries: int = 1,
) -> Comparison:
    """Compare two sides as `bwprof.compare` does; `tries`: how many measurements of a case a gate needs."""
    least = None if gate is None else parse_fraction(gate, "gate")
    base, new, repeats = join_runs(base, new)
    lines = judge_pairs(pair_cases(base, new), check_metric(metric), least, across=across, tries=tries)
    notes = (*_list_notes(base, new, lines), *repeats)
    conditions = causes.compare_conditions(base.run, new.run)
    return Comparison(base.name, new.name, metric, least, tuple(lines), notes, tries, conditions=conditions)


def _is_missing(line: CaseVerdict) -> bool:
    base, new = line.pair.base, line.pair.new
    gone = base is not None and base["status"] == "ok" and (new is None or new["status"] != "ok")
    return line.verdict == FAILED or gone


def _list_notes(base: Source, new: Source, lines: Sequence[CaseVerdict]) -> list[str]:
    notes = []
    run_id = base.run.get("run_id")
    if run_id is not None and run_id == new.run.get("run_id") and not any(base.process_ms):
        notes.append("both sides are the same run: there is nothing to find")
    learnt = [line.test.between_processes for line in lines if line.test is not None]
    if not all(learnt):
        notes.append(
            f"variation between processes is unknown for {len(learnt) - sum(learnt)} of {plural(len(learnt), 'case')}: "
            "a case counts as changed where the intervals do not overlap and the medians differ by more than "
            f"{100 * DEFAULT_GATE:g} % (--gate). A state that lasts for a whole process looks like a change: "
            "a baseline of several processes (bwprof baseline save NAME --repeat 5) learns it, --confirm measures again"
        )
    if lines and all(line.pair.base is None or line.pair.new is None for line in lines):
        notes.append("the two sides have no case in common")
    return notes


def distinguish_lines(lines: Sequence[CaseVerdict]) -> list[str]:
    """Return for each line the parameters that distinguish it from others of the same case and precision."""
    rows = [line.pair.row for line in lines]
    names = (*schema.param_names(), "kv_lens", "cache", "variant", "device", *schema.extra_names(rows))
    labels = [""] * len(rows)
    for places in group_places([(row.get("case"), row.get("precision")) for row in rows]).values():
        differing = [name for name in names if len({str(rows[place].get(name)) for place in places}) > 1]
        for place in places:
            values = ((name, rows[place].get(name)) for name in differing)
            labels[place] = " ".join(
                str(value) if name in _SELF_EXPLAINING else f"{name}={value}"
                for name, value in values
                if not formatting.is_missing(value)
            )
    return labels


def _time_ms(row: RowDict | None, times: Sequence[float]) -> float:
    return geometric_mean(times) if len(times) > 1 and all(map(positive_number, times)) else _number(row, "time_ms")


def _end_ms(row: RowDict | None, name: str, ms: float) -> float:
    """Scale the interval's end, which is within one process, to the mean of all processes."""
    end, time = _number(row, name), _number(row, "time_ms")
    return end * (ms / time) if time > 0 and ms > 0 else end


def _gb_s(row: RowDict | None, ms: float) -> float:
    rate, time = _number(row, "bandwidth_gb_s"), _number(row, "time_ms")
    return rate * time / ms if time > 0 and ms > 0 else rate


def _number(row: RowDict | None, name: str) -> float:
    value = None if row is None else row.get(name)
    return math.nan if value is None or formatting.is_missing(value) else float(value)


def _exp(logarithm: float) -> float:
    return math.inf if logarithm >= 700 else math.exp(logarithm)  # it overflows


def _with_reason(line: CaseVerdict, reason: str, verdict: str = "") -> CaseVerdict:
    return replace(line, reason="; ".join(filter(None, (line.reason, reason))), verdict=verdict or line.verdict)
