"""Compare two sides: one line for each case, as a frame."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.records.keys import METRICS, geometric_mean, positive_number, unique_keys
from bwprof.records.regression import causes
from bwprof.records.regression.verdicts import (
    FASTER,
    NOT_COMPARABLE,
    SAME,
    SLOWER,
    CaseVerdict,
    judge_again,
    judge_pairs,
    pair_cases,
    to_ratio,
)
from bwprof.results import schema
from bwprof.results.pairs import DEFAULT_GATE
from bwprof.results.schema import RowDict
from bwprof.text.formatting import is_missing, plural
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
_OF_ROW = ("case", "precision", "variant", "operation", "cache")
_TEXTS = frozenset([*_OF_ROW, "verdict", "cause", "reason", "parameters"])
_COUNTS = frozenset(("base_processes", "new_processes"))
_SELF_EXPLAINING = ("cache", "variant", "device")  # columns whose values need no name beside them


@dataclass(frozen=True)
class Gate:
    """The lines that a gate finds, by index; `suspects` are disturbed, and seem slower."""

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
        return [line for line in self.lines if line.is_tested]

    @cached_property
    def labels(self) -> list[str]:
        """For each line the parameters that distinguish it from others of the same case and precision."""
        rows = [line.pair.row for line in self.lines]
        names = (*schema.param_names(), "kv_lens", "cache", "variant", "device", *schema.extra_names(rows))
        values: dict[object, set[str]] = {}
        for row in rows:
            for name in names:
                values.setdefault((row.get("case"), row.get("precision"), name), set()).add(str(row.get(name)))
        return [
            " ".join(
                str(row[name]) if name in _SELF_EXPLAINING else f"{name}={row[name]}"
                for name in names
                if len(values[row.get("case"), row.get("precision"), name]) > 1 and not is_missing(row.get(name))
            )
            for row in rows
        ]

    @cached_property
    def names(self) -> list[str]:
        """Each line's name: case, precision, and what distinguishes it."""
        words = ((line.pair.row.get("case"), line.pair.row.get("precision")) for line in self.lines)
        return [
            " ".join(quote_text(word) for word in (case, precision, label) if word)
            for (case, precision), label in zip(words, self.labels, strict=True)
        ]

    def apply_gate(self, fail_on: str | float) -> Gate:
        """Apply a gate: `fail_on` is one of `FAIL_ON` or a fraction, as in `CaseVerdict.fails`."""
        lines = [] if fail_on == "never" else list(enumerate(self.lines))
        return Gate(
            fail_on,
            failed=[place for place, line in lines if line.fails(fail_on)],
            missing=[place for place, line in lines if line.is_missing()],
            suspects=[place for place, line in lines if line.is_suspected(fail_on)],
            undecided=[place for place, line in lines if line.is_undecided(fail_on)],
        )

    def cause(self, place: int) -> str:
        """Return the probable cause of a line's difference; "" without one."""
        line = self.lines[place]
        base, new = line.pair.base, line.pair.new
        if not line.is_tested or base is None or new is None or line.verdict in (SAME, NOT_COMPARABLE):
            return ""
        explain = line.verdict in (SLOWER, FASTER)
        return causes.find_causes(base, new, slower=line.badness > 0, conditions=self.conditions, explain=explain)

    def after_second_try(self, tries: Mapping[int, RowDict | str]) -> Comparison:
        """Return the comparison after second measurements of lines, by index; a text says why there was none."""
        lines, second_tries = list(self.lines), dict(self.second_tries)
        for place, row in tries.items():
            lines[place], second_tries[place] = judge_again(lines[place], row)
        confirmed = self.confirmed or any(not isinstance(row, str) for row in tries.values())
        return replace(self, lines=tuple(lines), confirmed=confirmed, second_tries=second_tries)

    def frame(self) -> pd.DataFrame:
        """Return a row for each line; see `bwprof.compare`."""
        import pandas as pd

        records = [self._record(place, line) for place, line in enumerate(self.lines)]
        types = {name: "string" if name in _TEXTS else "Int64" if name in _COUNTS else "float64" for name in COLUMNS}
        data = pd.DataFrame(records, columns=list(COLUMNS), dtype=object).astype(types)
        data.attrs = {"base": self.base, "new": self.new, "metric": self.metric, "gate": self.gate}
        return data

    def _record(self, place: int, line: CaseVerdict) -> dict[str, Any]:
        pair, (low, high) = line.pair, line.interval
        times = _read_times("base", pair.base, pair.base_case) | _read_times("new", pair.new, pair.new_case)
        base_ms, new_ms = times["base_ms"], times["new_ms"]
        return times | {
            **{name: pair.row.get(name) for name in _OF_ROW},
            "speedup": base_ms / new_ms if new_ms > 0 and base_ms > 0 else math.nan,
            "change_pct": 100 * line.change,
            "verdict": line.verdict,
            "ratio": to_ratio(line.difference),
            "ratio_lo": low,
            "ratio_hi": high,
            "threshold_pct": 100 * line.limit,
            "smallest_pct": 100 * line.smallest,
            "base_processes": len(line.base.processes) or None,
            "new_processes": len(line.new.processes) or None,
            "cause": self.cause(place) or None,
            "reason": line.reason or None,
            "parameters": self.labels[place],
        }


def _read_times(side: str, row: RowDict | None, case: BaselineCase) -> dict[str, float]:
    """Return the mean time of all processes; the interval and the bandwidth of one are scaled to it."""
    names = ("time_ms", "time_ms_lo", "time_ms_hi", "bandwidth_gb_s")
    time, low, high, rate = (
        math.nan if row is None or is_missing(row.get(name)) else float(row[name]) for name in names
    )
    times = case.process_ms
    ms = geometric_mean(times) if len(times) > 1 and all(map(positive_number, times)) else time
    if time > 0 and ms > 0:
        low, high, rate = low * (ms / time), high * (ms / time), rate * time / ms
    return {f"{side}_ms": ms, f"{side}_ms_lo": low, f"{side}_ms_hi": high, f"{side}_gb_s": rate}


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
    base: Baseline,
    new: Baseline,
    *,
    gate: float | str | None = None,
    across: bool = False,
    metric: str = "time_ms",
    tries: int = 1,
) -> Comparison:
    """Compare two sides as `bwprof.compare` does; `tries`: how many measurements of a case a gate needs."""
    least = None if gate is None else parse_fraction(gate, "gate")
    if not isinstance(metric, str) or metric not in METRICS:
        raise ValueError(describe_unknown("metric", metric, METRICS))
    base_keys, new_keys = unique_keys(base.rows, new.rows, within_runs=True)
    base, base_notes = _join_runs(base, base_keys, failures=False)
    new, new_notes = _join_runs(new, new_keys, failures=True)
    lines = judge_pairs(pair_cases(base, new), metric, least, across=across, tries=tries)
    notes = (*_list_notes(base, new, lines), *base_notes, *new_notes)
    conditions = causes.compare_conditions(base.run, new.run)
    return Comparison(base.name, new.name, metric, least, tuple(lines), notes, tries, conditions=conditions)


def _join_runs(side: Baseline, keys: Sequence[object], *, failures: bool) -> tuple[Baseline, list[str]]:
    """Join the rows that several runs have of one case; with `failures`, a row that failed represents its case."""
    groups: dict[object, list[BaselineCase]] = {}
    for key, case in zip(keys, side.cases, strict=True):
        groups.setdefault(key, []).append(case)
    if side.processes or len(groups) == len(keys):
        return side, []
    joined = [
        BaselineCase(tuple(case.row for case in group), tuple(case.samples[0] for case in group))
        for group in groups.values()
    ]
    repeated = [case for case in joined if len(case.rows) > 1]
    processes = max(case.processes for case in repeated)
    where = "one process, which counts once" if processes == 1 else f"up to {processes} processes"
    count, times = plural(len(repeated), "case"), max(len(case.rows) for case in repeated)
    note = f"{count} measured up to {times} times, in {where}: times are geometric means of medians"
    cases = map(_choose_failure, joined) if failures else joined
    return replace(side, cases=tuple(cases)), [f"{quote_text(side.name)}: {note}"]


def _choose_failure(case: BaselineCase) -> BaselineCase:
    failed = (row for row in case.rows if row["status"] == "failed" or row.get("verified") is False)
    return next((BaselineCase((row,), (None,)) for row in failed), case)


def _list_notes(base: Baseline, new: Baseline, lines: Sequence[CaseVerdict]) -> list[str]:
    notes = []
    run_id = base.run.get("run_id")
    if run_id is not None and run_id == new.run.get("run_id") and not base.processes:
        notes.append("both sides are the same run: there is nothing to find")
    learned = [line.test.between_processes for line in lines if line.is_tested]
    if not all(learned):
        notes.append(
            f"variation between processes is unknown for {learned.count(False)} of {plural(len(learned), 'case')}: "
            "a case counts as changed where the intervals do not overlap and the medians differ by more than "
            f"{100 * DEFAULT_GATE:g} % (--gate). A state that lasts for a whole process looks like a change: "
            "a baseline of several processes (bwprof baseline save NAME --repeat 5) learns it, --confirm measures again"
        )
    if lines and all(line.pair.base is None or line.pair.new is None for line in lines):
        notes.append("the two sides have no case in common")
    return notes
