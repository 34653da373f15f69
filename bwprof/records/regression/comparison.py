"""Compare two sides: one line for each case, with the probable causes of its change, as a frame."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.records.keys import METRICS, geometric_mean, positive_number, unique_keys
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
from bwprof.results.pairs import DEFAULT_GATE, split_flags
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure, is_missing, plural
from bwprof.text.parsing import check_known, describe_unknown, finite_or_none, parse_fraction, quote_text

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
        return find_causes(base, new, slower=line.badness > 0, conditions=self.conditions, explain=explain)

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
    check_known("metric", metric, METRICS)
    base_keys, new_keys = unique_keys(base.rows, new.rows, within_runs=True)
    base, base_notes = _join_runs(base, base_keys, failures=False)
    new, new_notes = _join_runs(new, new_keys, failures=True)
    lines = judge_pairs(pair_cases(base, new), metric, least, across=across, tries=tries)
    notes = (*_list_notes(base, new, lines), *base_notes, *new_notes)
    conditions = compare_conditions(base.run, new.run)
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


# The smallest changes of a clock, traffic, a counter or a roof that count, as fractions.
_CLOCK, _TRAFFIC, _COUNTED, _ROOF = 0.01, 0.02, 0.05, 0.03
_CLOCKS = {"sm_clock_mhz": "the multiprocessors' clock", "mem_clock_mhz": "the memory's clock"}
_ROOFS = {"attainable_gb_s": "memory", "ceiling_gb_s": "memory", "measured_tflops": "compute"}  # the limiter of each
_SAME_SETS = 0.5  # of the buffer sets
_MOST_CAUSES = 3
_MOST_CONDITIONS = 4

# A kernel has the same value of these each time: another value is another kernel.
_COUNTED_NAMES = ("shared_wavefronts", "sectors_per_load", "sectors_per_store", "l2_bytes")

# The parts of a run's metadata, and those of their entries that may change times; none: all entries.
_CONDITIONS = {
    "facts": ("note", "units", "power_limit_w", "ecc", "cache_bytes", "runtime"),
    "host": ("cpu_count", "name"),
    "environment": (),
}


def _list_causes(base: RowDict, new: RowDict, slower: bool) -> Iterator[str]:
    """Describe each probable cause, the likeliest first; "" for those that do not apply."""
    yield _describe_other(base, new, {"variant": "another variant ran:"})
    yield _find_throttle(base, new, slower)
    yield _describe_first(base, new, _CLOCKS, -_CLOCK, slower)
    (before, unit), (now, other) = _traffic(base), _traffic(new)
    yield _describe_figure("DRAM traffic", before, now, unit, _TRAFFIC, slower) if unit == other else ""
    yield _find_algorithm(base, new)
    yield _find_method(base, new)
    yield _find_roof(base, new, slower)
    names = {"driver": "driver", "bwprof_version": "bwprof", "timer": "timer", "device": "device"}
    ground = _describe_other(base, new, names)
    yield f"not the same ground: {ground}" if ground else ""


def _find_throttle(base: RowDict, new: RowDict, slower: bool) -> str:
    fast, slow = ([word for word in str(row.get("throttle") or "").split(";") if word] for row in (base, new))
    if not slower:
        fast, slow = slow, fast
    words = [word for word in slow if word != "none" and word not in fast]
    when = "now" if slower else "before"
    return f"the clock was held down {when}: {quote_text(', '.join(words))}" if words else ""


def _traffic(row: RowDict) -> tuple[float | None, str]:
    parts = [finite_or_none(row.get(name)) for name in ("dram_bytes_read", "dram_bytes_written")]
    total = positive_number(math.fsum(part for part in parts if part is not None)) if None not in parts else None
    return (row.get("traffic_ratio"), "x the modeled bytes") if total is None else (total / 1e6, "MB")


def _find_algorithm(base: RowDict, new: RowDict) -> str:
    names = {name: name for name in _COUNTED_NAMES if base.get("variant") == new.get("variant")}
    texts = (_describe_first(base, new, names, _COUNTED, slower) for slower in (True, False))
    text = next(filter(None, texts), "")
    return f"another algorithm of this variant ran: {text}" if text else ""


def _find_method(base: RowDict, new: RowDict) -> str:
    before, now = positive_number(base.get("buffer_sets")), positive_number(new.get("buffer_sets"))
    texts = []
    if before is not None and now is not None and min(before, now) < _SAME_SETS * max(before, now):
        texts.append(f"{now:.0f} buffer sets, before {before:.0f}")
    for word in ("not_cold", "event_bias", "single_thread"):
        flagged = word in split_flags(new)
        if flagged != (word in split_flags(base)):
            texts.append(f"{word} {'now' if flagged else 'before'}")
    return f"measured in another way: {', '.join(texts)}" if texts else ""


def _find_roof(base: RowDict, new: RowDict, slower: bool) -> str:
    limiters = {row.get("limiter") for row in (base, new)} - {None, ""}
    # A roof that limits neither row explains nothing; without known limiters, each roof may.
    names = [name for name, limiter in _ROOFS.items() if limiter in limiters or not limiters]
    titles = {name: f"the device's roof ({schema.find_column(name).title})" for name in names}
    return _describe_first(base, new, titles, -_ROOF, slower)


def _describe_other(base: RowDict, new: RowDict, names: Mapping[str, str]) -> str:
    return "; ".join(
        f"{label} {quote_text(new[name])}, before {quote_text(base[name])}"
        for name, label in names.items()
        if base.get(name) and new.get(name) and base[name] != new[name]
    )


def _describe_first(base: RowDict, new: RowDict, names: Mapping[str, str], least: float, slower: bool) -> str:
    """Describe the first of several columns that changed as `_describe_figure` says."""
    for name, what in names.items():
        figures = base.get(name), new.get(name), schema.find_column(name).unit
        if text := _describe_figure(what, *figures, least, slower):
            return text
    return ""


def _describe_figure(what: str, before: Any, now: Any, unit: str, least: float, slower: bool) -> str:
    """Describe a change of a figure by more than `least`, a fraction, that makes a row slower; negative: a fall."""
    old, new = positive_number(before), positive_number(now)
    if old is None or new is None:
        return ""
    change = (new / old if slower else old / new) - 1
    if change * math.copysign(1, least) <= abs(least):
        return ""
    verb = "rose" if new > old else "fell"
    figures = f"{format_figure(new, whole_from=100)} {unit}".strip(), format_figure(old, whole_from=100)
    return f"{what} {verb} by {100 * abs(new / old - 1):.1f} %: {figures[0]}, before {figures[1]}"


def find_causes(base: RowDict, new: RowDict, *, slower: bool, conditions: str = "", explain: bool = False) -> str:
    """Return the probable causes, the likeliest first, and the runs' different conditions of `compare_conditions`.

    `slower`: the new row is the worse one. With `explain`, a text without any says which option may show it.
    """
    texts = list(filter(None, _list_causes(base, new, slower)))
    text = "; ".join([*texts[:_MOST_CAUSES], *filter(None, [conditions])])
    if text or not explain:
        return text
    hint = f": --counters on both sides would say whether it moves {'more' if slower else 'fewer'} bytes"
    counted = all(row.get("counters_status") == "ok" for row in (base, new))
    return f"not known from these rows{'' if counted else hint}"


def compare_conditions(base: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the differences between two runs' metadata that may change times; "" without one.

    A value that one run lacks is no difference, except of the environment.
    """
    texts = []
    for part, names in _CONDITIONS.items():
        after, ago = (run[part] if isinstance(run.get(part), Mapping) else {} for run in (new, base))
        for name in names or dict.fromkeys((*after, *ago)):
            now, before = _facts(after.get(name)), _facts(ago.get(name))
            added, removed = _without(now, before), _without(before, now)
            if (added or removed) and (not names or (now and before)):
                texts.append(f"{name} {added or 'unset'}, before {removed or 'unset'}")
    return f"the runs differ: {'; '.join(texts[:_MOST_CONDITIONS])}" if texts else ""


def _without(facts: list[str], others: list[str]) -> str:
    return quote_text(", ".join(fact for fact in facts if fact not in others))


def _facts(value: Any) -> list[str]:
    """Return the parts of a note, or a value as text; nothing for an unknown one."""
    return [] if value is None or value == "" else str(value).split("; ")
