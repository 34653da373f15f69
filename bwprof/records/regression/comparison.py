"""Compare two sides: a line for each case, as a frame."""

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


def join_runs(base: Source, new: Source) -> tuple[Source, Source, list[str]]:
    """Both sides, no case more than once on either because several runs have it; and what was joined, in words.

    Rows of a case in one run stay as they are: what they differ in is not in their columns. On the new side a row that
    failed stands for its case, however well another run went: no failure is silent.
    """
    keys = keys_within_runs(base.rows, new.rows)
    notes: list[str] = []
    sides = [
        _join_processes(side, told, notes, failures=side is new) if not side.cases else side
        for side, told in zip((base, new), keys, strict=True)
    ]
    return sides[0], sides[1], notes


def _join_processes(side: Source, keys: Sequence[CaseKey], notes: list[str], *, failures: bool) -> Source:
    groups: dict[CaseKey, list[int]] = {}
    for place, told in enumerate(keys):
        groups.setdefault(told, []).append(place)
    if len(groups) == len(keys):
        return side
    samples = side.samples or [None] * len(side.rows)
    cases = [
        BaselineCase(tuple(side.rows[n] for n in places), tuple(samples[n] for n in places))
        for places in groups.values()
    ]
    bad = [next((n for n, row in enumerate(kept.rows) if failures and _failed(row)), None) for kept in cases]
    standing = [kept.middle if place is None else place for kept, place in zip(cases, bad, strict=True)]
    several = [kept for kept in cases if len(kept.rows) > 1]
    processes = max(kept.processes for kept in several)
    times = max(len(kept.rows) for kept in several)
    where = "one process, which counts once" if processes == 1 else f"up to {processes} processes"
    notes.append(
        f"{quote_text(side.name)}: {plural(len(several), 'case')} measured up to {times} times, in {where}: "
        "the medians are joined by their geometric mean"
    )
    return replace(
        side,
        rows=[kept.rows[place] for kept, place in zip(cases, standing, strict=True)],
        samples=[kept.samples[place] for kept, place in zip(cases, standing, strict=True)],
        learnt=[kept.process_ms if place is None else () for kept, place in zip(cases, bad, strict=True)],
        cases=tuple(cases),
    )


def _failed(row: RowDict) -> bool:
    return row["status"] == "failed" or row.get("verified") is False


_BARE = ("cache", "variant", "device")  # which say themselves what they are

FAIL_ON = ("slower", "any", "never")

_TEXTS = ("case", "precision", "variant")

_NUMBERS = ("base_ms", "new_ms", "speedup", "change_pct", "base_gb_s", "new_gb_s")

_MORE_NUMBERS = (
    *("ratio", "ratio_lo", "ratio_hi", "threshold_pct", "smallest_pct"),
    *("base_ms_lo", "base_ms_hi", "new_ms_lo", "new_ms_hi"),
)

_MORE_TEXTS = ("cause", "reason", "operation", "cache", "parameters")

COLUMNS = (*_TEXTS, *_NUMBERS, "verdict", *_MORE_NUMBERS, "base_processes", "new_processes", *_MORE_TEXTS)


@dataclass(frozen=True)
class Gate:
    """What a gate finds, by the places of lines: what fails, what was measured in the base alone, what was disturbed
    and seems slower, and where a change that fails may hide.
    """

    fail_on: str | float
    failed: list[int]
    missing: list[int]
    suspects: list[int]
    undecided: list[int]

    @property
    def unsettled(self) -> list[int]:
        """The places of the lines that pass no gate."""
        return [*self.missing, *self.suspects, *self.undecided]


@dataclass(frozen=True)
class Comparison:
    """What `compared` finds: the two names, how it was compared, and a line for each case."""

    base: str
    new: str
    metric: str
    gate: float | None
    lines: tuple[CaseVerdict, ...]
    notes: tuple[str, ...] = ()
    tries: int = 1  # how many measurements of a case must say so before it counts
    confirmed: bool = False  # cases that fail were measured twice
    again: Mapping[int, str] = field(default_factory=dict)  # what came of it, by a line's place
    conditions: str = ""  # what differs between the runs as wholes

    @cached_property
    def counts(self) -> Counter[str]:
        """How many lines have each verdict."""
        return Counter(line.verdict for line in self.lines)

    @property
    def judged(self) -> int:
        """How many lines have a verdict that is one: faster, slower or the same; an undecided line has none."""
        return sum(self.counts[word] for word in (FASTER, SLOWER, SAME))

    @property
    def tested(self) -> list[CaseVerdict]:
        """The lines that something was held against."""
        return [line for line in self.lines if line.test is not None]

    @property
    def processes(self) -> int:
        """How many processes the base has learnt from; 1 where it is a plain run."""
        return max((len(line.base.processes) for line in self.tested if line.base is not None), default=1)

    def change(self, line: CaseVerdict) -> float:
        """The metric's, as a fraction; NaN where there is none."""
        return _exp(line.difference) - 1 if line.difference > 1 else math.expm1(line.difference)

    def interval(self, line: CaseVerdict) -> tuple[float, float]:
        """The 95 % interval of new / base; NaN where there is none."""
        if line.test is None:
            return math.nan, math.nan
        low, high = line.test.interval(line.difference)
        return _exp(low), _exp(high)

    def limit(self, line: CaseVerdict) -> float:
        """The smallest change for the worse that is called one, as a fraction: of a rate it is negative."""
        return math.nan if line.test is None else _exp(self._worse * line.test.threshold) - 1

    def smallest(self, line: CaseVerdict) -> float:
        """The smallest that is found with 95 % probability, likewise."""
        if line.test is None:
            return math.nan
        return _exp(self._worse * line.test.smallest(times=self.tries)) - 1

    @property
    def _worse(self) -> int:
        return -1 if higher_is_better(self.metric) else 1

    def badness(self, line: CaseVerdict) -> float:
        """How much worse the new side is, as a logarithm; negative where it is better."""
        return self._worse * line.difference

    def fails(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Whether a gate fails for a line: `fail_on` is one of `FAIL_ON` or a fraction, of which a change fails that is
        one for the worse and whose interval reaches that far.
        """
        if fail_on == "never" or line.verdict not in (SLOWER, FASTER):
            return False
        if isinstance(fail_on, str):
            return fail_on == "any" or line.verdict == SLOWER
        low, high = self.interval(line)
        longer = 1 / low if higher_is_better(self.metric) else high  # the same of a time and of the rate that it makes
        return line.verdict == SLOWER and longer - 1 >= fail_on

    def doubted(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Whether a line is worth a second try: it fails, or may."""
        return self.fails(line, fail_on) or self.suspected(line, fail_on) or self.undecided(line, fail_on)

    def undecided(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Whether a change that fails the gate may hide in a line: it is undecided, disturbed and that wide, or slower
        by less than the gate, as far as can be told.
        """
        wide = line.verdict in (UNDECIDED, DISTURBED_WORD, SLOWER) and not line.suspect
        if fail_on == "never" or not wide or line.terms is None or self.fails(line, fail_on):
            return False
        if fail_on == "any" and line.verdict == UNDECIDED:
            return True
        return line.hidden > (line.terms.limit if isinstance(fail_on, str) else math.log1p(fail_on))

    def suspected(self, line: CaseVerdict, fail_on: str | float) -> bool:
        """Whether a line was disturbed, and would fail all the same: nobody has measured it again yet."""
        return line.suspect and self.fails(replace(line, verdict=SLOWER), fail_on)

    def apply_gate(self, fail_on: str | float) -> Gate:
        """Apply a gate: `fail_on` as in `fails`."""

        def places(test: Callable[[CaseVerdict], bool]) -> list[int]:
            return [place for place, line in enumerate(self.lines) if fail_on != "never" and test(line)]

        return Gate(
            fail_on,
            places(lambda line: self.fails(line, fail_on)),
            places(_is_missing),
            places(lambda line: self.suspected(line, fail_on)),
            places(lambda line: self.undecided(line, fail_on)),
        )

    def cause(self, place: int) -> str:
        """Why a line differs, probably; "" where it does not."""
        line = self.lines[place]
        base, new = line.pair.base, line.pair.new
        if line.test is None or base is None or new is None:
            return ""
        if line.verdict in (SLOWER, FASTER, DISTURBED_WORD, UNDECIDED):
            find = causes.explain_change if line.verdict in (SLOWER, FASTER) else causes.find_causes
            return find(base, new, slower=self.badness(line) > 0, conditions=self.conditions)
        beyond = abs(line.difference) > math.log1p(statistics.LEAST) or place in self.again
        return causes.describe_noise(self.change(line), abs(self.limit(line))) if beyond else ""

    def after_second_try(self, tries: Mapping[int, RowDict | str]) -> Comparison:
        """The same when lines, by their places, were measured once more in a fresh process: both must say the same.

        A text stands for a try that could not be made; that line stays. One that was disturbed clears nothing. A line
        that was disturbed at first is slower when both tries are so by more than what disturbed them explains.
        """
        lines, said = list(self.lines), {}
        for place, row in tries.items():
            lines[place], said[place] = self._second(lines[place], row)
        measured = any(not isinstance(row, str) for row in tries.values())
        return replace(self, lines=tuple(lines), confirmed=self.confirmed or measured, again={**self.again, **said})

    def _second(self, line: CaseVerdict, row: RowDict | str) -> tuple[CaseVerdict, str]:
        if isinstance(row, str):
            said = f"not measured again: {row}"
            return self._once(line, said), said
        if row["status"] != "ok":
            said = f"measured again, it {row['status']}: {row['reason']}"
            return replace(line, reason=_join_reasons(line.reason, said)), said
        apart = [] if line.pair.new is None else list_differences(line.pair.new, row)
        if apart:
            said = f"not measured again: {'; '.join(apart)}"
            return self._once(line, said), said
        second = None if line.terms is None else judge_second_try(line, row, self.metric)
        if second is None or second.new is None:
            said = f"measured again: {'nothing to hold it against' if second is None else second.reason}"
            return replace(line, reason=_join_reasons(line.reason, said)), said
        said = f"measured again: {format_metric(second.new.middle, self.metric)}, {100 * self.change(second):+.1f} %"
        disturbed = find_disturbances(row)
        if disturbed:
            said = f"{said}, {', '.join(disturbed)}"
        if line.suspect:
            return self._second_of_suspect(line, second, said)
        if second.verdict == line.verdict:
            return replace(line, reason=_join_reasons(line.reason, f"{said}: {line.verdict} as well")), said
        cleared = second.verdict == SAME
        verdict = DISTURBED_WORD if disturbed and line.verdict != UNDECIDED else SAME if cleared else UNDECIDED
        more = f"{line.verdict.replace('_', ' ')} at first; {said}"
        more = more if cleared else f"{more}: {second.verdict}"
        return replace(line, verdict=verdict, reason=_join_reasons(line.reason, more)), said

    def _once(self, line: CaseVerdict, said: str) -> CaseVerdict:
        """A line that there was no second try of: what one try decides must be further off."""
        least = statistics.smallest_threshold(self.gate, 1)
        learnt = line.test is not None and line.test.learnt
        if line.suspect or not learnt or abs(line.difference) > math.log1p(least):
            return replace(line, reason=_join_reasons(line.reason, said))
        more = f"{line.verdict} at first; {said}; a single try needs {100 * least:g} %"
        verdict = SAME if line.terms is not None and line.hidden <= line.terms.limit else UNDECIDED
        return replace(line, verdict=verdict, reason=_join_reasons(line.reason, more))

    def _second_of_suspect(self, line: CaseVerdict, second: CaseVerdict, said: str) -> tuple[CaseVerdict, str]:
        """Of a line that was disturbed and seemed slower."""
        assert second.pair.base is not None
        assert second.pair.new is not None
        wider = disturbance_allowance(second.pair.base, second.pair.new)
        if is_slower(second, self.metric, wider):
            verdict, more = SLOWER, ": slower as well"
        elif find_disturbances(second.pair.new):
            verdict, more = DISTURBED_WORD, ": no more than that explains"
        else:
            verdict, more = (UNDECIDED, f": {UNDECIDED}") if second.verdict == UNDECIDED else (SAME, "")
        hidden = second.hidden - wider
        return replace(
            line, verdict=verdict, suspect=False, hidden=hidden, reason=_join_reasons(line.reason, f"{said}{more}")
        ), said

    def frame(self) -> pd.DataFrame:
        """A row for each line; see `bwprof.compare`."""
        import pandas as pd

        labels = distinguish_lines(self.lines)
        records = [self._record(place, labels[place]) for place in range(len(self.lines))]
        types = dict.fromkeys(COLUMNS, "string") | dict.fromkeys((*_NUMBERS, *_MORE_NUMBERS), "float64")
        types |= dict.fromkeys(("base_processes", "new_processes"), "Int64")
        data = {name: pd.Series([record[name] for record in records], dtype=types[name]) for name in COLUMNS}
        found = pd.DataFrame(data)
        found.attrs = {"base": self.base, "new": self.new, "metric": self.metric, "gate": self.gate}
        return found

    def _record(self, place: int, label: str) -> dict[str, Any]:
        line = self.lines[place]
        row, base, new = line.pair.row, line.pair.base, line.pair.new
        low, high = self.interval(line)
        base_ms, new_ms = _ms(line, base, new=False), _ms(line, new, new=True)
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


def parse_fail_on(given: str | None, name: str) -> str | float:
    """What a gate fails on: one of `FAIL_ON`, or a fraction; ValueError with the option's `name` for anything else."""
    if given is None:
        return "never"
    if given in FAIL_ON:
        return given
    if not any(letter.isdigit() for letter in given):
        raise ValueError(describe_unknown(name, given, (*FAIL_ON, "5%")))
    return parse_fraction(given, name)


def compare_sources(
    base: Source,
    new: Source,
    *,
    gate: float | str | None = None,
    across: bool = False,
    metric: str = "time_ms",
    tries: int = 1,
) -> Comparison:
    """Two sides, case by case; see `bwprof.compare`. `tries`: how many measurements of a case a gate will ask for."""
    least = None if gate is None else parse_fraction(gate, "gate")
    base, new, several = join_runs(base, new)
    lines = judge_pairs(pair_cases(base, new), check_metric(metric), least, across=across, tries=tries)
    notes = (*_notes(base, new, lines), *several)
    conditions = causes.compare_conditions(base.run, new.run)
    return Comparison(base.name, new.name, metric, least, tuple(lines), notes, tries, conditions=conditions)


def _is_missing(line: CaseVerdict) -> bool:
    """Whether it was measured before and is not now."""
    base, new = line.pair.base, line.pair.new
    gone = base is not None and base["status"] == "ok" and (new is None or new["status"] != "ok")
    return line.verdict == FAILED or gone


def _notes(base: Source, new: Source, lines: Sequence[CaseVerdict]) -> list[str]:
    """What a reader should know of the whole."""
    notes = []
    runs = [one.run.get("run_id") for one in (base, new)]
    if runs[0] is not None and runs[0] == runs[1] and not any(base.learnt):
        notes.append("both sides are the same run: there is nothing to find")
    plain = [line for line in lines if line.test is not None and not line.test.learnt]
    if plain:
        some = "1 case's" if len(plain) == 1 else f"{len(plain)} cases'"
        share = "the cases'" if len(plain) == sum(line.test is not None for line in lines) else some
        notes.append(
            f"{share} wander between processes is not known: one counts as changed where the intervals do not overlap "
            f"and the medians are more than {100 * DEFAULT_GATE:g} % apart (--gate). A state that lasts for a whole "
            "process looks like a change: a baseline of several processes (bwprof baseline save NAME --repeat 5) "
            "learns it, --confirm measures again"
        )
    if lines and not any(line.pair.base is not None and line.pair.new is not None for line in lines):
        notes.append("the two sides have no case in common")
    return notes


def distinguish_lines(lines: Sequence[CaseVerdict]) -> list[str]:
    """What tells lines of one name apart: the parameters in which they differ."""
    rows = [line.pair.row for line in lines]
    names = (*schema.param_names(), "kv_lens", "cache", "variant", "device", *schema.extra_names(rows))
    named: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        named.setdefault((row.get("case"), row.get("precision")), []).append(place)
    found = [""] * len(rows)
    for places in named.values():
        if len(places) < 2:
            continue
        differing = [name for name in names if len({str(rows[place].get(name)) for place in places}) > 1]
        for place in places:
            told = [(name, rows[place].get(name)) for name in differing]
            found[place] = " ".join(
                str(said) if name in _BARE else f"{name}={said}"
                for name, said in told
                if not formatting.is_missing(said)
            )
    return found


def _ms(line: CaseVerdict, row: RowDict | None, *, new: bool) -> float:
    """A side's time: the geometric mean over its processes."""
    times = line.pair.new_ms if new else line.pair.base_ms
    return geometric_mean(times) if len(times) > 1 and all(map(positive_number, times)) else _number(row, "time_ms")


def _end_ms(row: RowDict | None, name: str, ms: float) -> float:
    """Of the interval within a process, which goes with the mean of all of them."""
    found, time = _number(row, name), _number(row, "time_ms")
    return found * (ms / time) if time > 0 and ms > 0 else found


def _gb_s(row: RowDict | None, ms: float) -> float:
    found, time = _number(row, "bandwidth_gb_s"), _number(row, "time_ms")
    return found * time / ms if time > 0 and ms > 0 else found


def _number(row: RowDict | None, name: str) -> float:
    found = None if row is None else row.get(name)
    return math.nan if found is None or formatting.is_missing(found) else float(found)


def _exp(value: float) -> float:
    """Infinite where it overflows."""
    return math.inf if value >= 700 else math.exp(value)


def _join_reasons(*words: str) -> str:
    return "; ".join(word for word in words if word)
