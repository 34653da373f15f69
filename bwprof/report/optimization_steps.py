"""The steps of an optimization: the row of a case in each run, what changed, and the goals."""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof import registry
from bwprof.analysis.bottleneck import Finding, rank_losses
from bwprof.analysis.rules import AT_ROOF, RuleInputs
from bwprof.analysis.values import as_frame
from bwprof.records.regression.comparison import Comparison, compare_sources
from bwprof.records.regression.verdicts import pair_cases
from bwprof.records.source import load_source, make_source
from bwprof.report.run import ReportRun
from bwprof.results import schema
from bwprof.results.atomic import read_text
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure, format_short
from bwprof.text.parsing import (
    describe_unknown,
    finite_or_none,
    is_bool,
    measured_or_nan,
    number_or_nan,
    parse_path,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    from bwprof.records.regression.verdicts import CaseVerdict

# Figures of goals beside the columns of numbers, with their units.
_OWN_FIGURES = {"speedup": "x", "speedup_vs_torch": "x", "bottlenecks_fixed": "", "verified": ""}
NO_PEER = "no run has a row of PyTorch's of the same bytes (a variant, case or operation called torch...)"

# What measures the columns of a group.
_NEEDS = {
    "counters": "--counters measures it",
    "metrics": "--metrics all measures it",
    "roofs": "measure without --no-roofs",
}
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
_COMPARISON = re.compile(r"\s*(>=|<=|==|>|<)\s*([^\s%x]+)\s*(%|x)?\s*")
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: a figure, its limit, and its value; NaN where it was not measured, and `why`: what would measure it."""

    name: str
    compare: str
    limit: float
    value: float = math.nan
    why: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is reached; a value that was not measured is not."""
        return not math.isnan(self.value) and bool(_COMPARE[self.compare](self.value, self.limit))

    @property
    def result(self) -> str:
        return "pass" if self.passed else "fail"

    @property
    def target(self) -> str:
        if self.name == "verified":
            return "all results verified" if self.limit else "results not verified"
        return f"{self.compare} {self.limit:g}{self._unit}"

    @property
    def figure(self) -> str:
        value = self.value
        if math.isnan(value):
            return f"{NOT_MEASURED}: {self.why}" if self.why else NOT_MEASURED
        if self.name == "verified":
            return "yes" if value else "no"
        if self.name == "bottlenecks_fixed":
            return f"{value:.0f}"
        number = format_figure(value, whole_from=1000) if 0.1 <= value < 1e9 else format_short(value, ".4g")
        return f"{number}{self._unit}"

    @property
    def _unit(self) -> str:
        if self.name in _OWN_FIGURES:
            return _OWN_FIGURES[self.name]
        return f" {schema.find_column(self.name).unit}".rstrip()


def read_goals(goals: str | PathLike[str] | Mapping[str, Any] | None) -> list[Goal]:
    """Read goals from a mapping of figures to comparisons, as {"bandwidth_gb_s": ">200"}, or from such a TOML file."""
    if goals is None:
        return []
    table, where = goals, "goals"
    if not isinstance(table, Mapping):
        path = parse_path(goals, "goals")
        where = quote_text(path)
        try:
            table = tomllib.loads(read_text(path))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ValueError(f"{where} is not a TOML file: {error}") from None
    if isinstance(inner := table.get("goals"), Mapping):
        for name in (name for name in table if name != "goals"):
            raise ValueError(f"{where}: {quote_text(name)} is outside goals, and would be ignored: move it into them")
        table = inner
    if not table:
        raise ValueError(f'{where} holds no goals: lines such as bandwidth_gb_s = ">200" are needed')
    return [_read_goal(str(name), value, where) for name, value in table.items()]


def _read_goal(name: str, text: Any, where: str) -> Goal:
    numbers = (column.name for column in schema.all_columns() if column.kind in ("number", "integer"))
    figures = [*_OWN_FIGURES, *numbers]
    if name not in figures:
        see = "bwprof columns, and " + ", ".join(_OWN_FIGURES)
        raise ValueError(describe_unknown("goal", name, figures, where=where, see=see))
    if name == "verified":
        if not is_bool(text):
            raise ValueError(f"{where}: {name} is {repr_short(text)}: true is needed")
        return Goal(name, "==", float(bool(text)))
    parts = _COMPARISON.fullmatch(text) if isinstance(text, str) else None
    limit = finite_or_none(number_or_nan(parts[2])) if parts is not None else None
    if parts is None or limit is None:
        compare = ", ".join(_COMPARE)
        raise ValueError(f'{where}: {name} is {repr_short(text)}: a comparison is needed, as ">=0.5" ({compare})')
    return Goal(name, parts[1], limit)


# The figure of each rule, and its unit. Rules that are not here say yes or no, or doubt the row: the share of the roof
# is their figure.
FIGURES = {
    "spills": ("local-memory sectors", ""),
    "host_bound": ("share of the time that kernels run", " %"),
    "uncoalesced": ("load efficiency", " %"),
    "bank_conflicts": ("wavefronts that are conflicts", " %"),
    "materialized": ("bytes over the compulsory ones", "x"),
    "unused_sectors": ("bytes over the compulsory ones", "x"),
    "extra_traffic": ("counted over needed bytes", "x"),
    "low_bytes_in_flight": ("stalls that wait for memory", " %"),
    "low_occupancy": ("occupancy", " %"),
    "narrow_slower": ("bandwidth over FP32's", "x"),
    "slower_than_predicted": ("time over the predicted", "x"),
}
_FIXED_SHARE = 0.5  # of lost time: a bottleneck with less than this left is fixed
_OPPOSITE = {"<": ">=", ">": "<=", ">=": "<"}
_PEERS = ("torch", "pytorch")  # how a variant, case or operation of PyTorch's begins
_Track = tuple[RowDict | None, ...]  # the row of one case in every run; None where a run lacks it


class FixFigure(NamedTuple):
    """The figure of a fix, before and after, and its target, which it reaches where `gap_pct` is 0."""

    name: str
    before: str
    after: str
    target: str
    gap_pct: float


def _make_figure(name: str, unit: str, before: float, after: float, compare: str, limit: float) -> FixFigure:
    def text(value: float) -> str:
        if math.isnan(value):
            return NOT_MEASURED
        if value == round(value):
            return f"{format_short(value, '.0f')}{unit}"
        return f"{format_figure(value, whole_from=1000) if value > 0.01 else f'{value:.3g}'}{unit}"

    reached = before >= limit if compare in (">", ">=") else before <= limit
    gap = 0.0 if reached else 100 * abs(before - limit) / abs(limit) if limit else math.nan
    return FixFigure(name, text(before), text(after), f"{compare} {text(limit)}", gap)


@dataclass(frozen=True)
class OptimizationStep:
    """The change from one run to the next: the row before and after, and their comparison.

    `changes` names what differs, with "old to new". Speed-ups are NaN where they are not known: `by_roof` is what the
    roof allowed before, `by_bytes` that of fewer bytes alone, `predicted` the row's or the registry's. `variant` is the
    registry's entry of the variant after, if the one before precedes it.
    """

    number: int
    base: ReportRun
    new: ReportRun
    before: RowDict
    after: RowDict
    comparison: Comparison
    finding: Finding | None
    changes: Mapping[str, str]
    variant: Mapping[str, Any]
    speedup: float
    by_roof: float
    by_bytes: float
    predicted: float
    figure: FixFigure

    @property
    def verdict(self) -> CaseVerdict:
        return self.comparison.lines[0]

    @property
    def name(self) -> str:
        """The two variants, if they differ; else the run's name."""
        return self.changes.get("variant", self.new.name)


def _make_step(number: int, runs: tuple[ReportRun, ReportRun], rows: tuple[RowDict, RowDict]) -> OptimizationStep:
    both = [make_source(run.name, [row], None, run.metadata) for run, row in zip(runs, rows, strict=True)]
    finding, (before, after) = _find_loss(rows[0]), rows
    stored = [number_of(row, "algorithmic_bytes_read") + number_of(row, "algorithmic_bytes_written") for row in rows]
    pairs = {"variant": [row.get("variant") for row in rows]}
    pairs |= {name: [run.metadata.get(name) for run in runs] for name in ("git_commit", "commit")}
    pairs |= {name: [row.get(name) for row in rows] for name in ("bwprof_version", "driver")}
    following = {(old["name"], new["name"]): new for old, new in pairwise(find_variants(after))}
    variant = following.get((before.get("variant"), after.get("variant")), {})
    predicted = number_of(after, "predicted_gain")
    changes = {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and all(pair)}
    rest = finding.time_ms - finding.lost_ms if finding else 0.0  # which the roof allows
    return OptimizationStep(
        number,
        *runs,
        *rows,
        compare_sources(*both),
        finding,
        changes={name.replace("_", " "): f"{old} to {new}" for name, (old, new) in changes.items()},
        variant=variant,
        speedup=float(before["time_ms"]) / float(after["time_ms"]),
        by_roof=finding.time_ms / rest if finding and rest > 0 else math.nan,
        by_bytes=stored[0] / stored[1] if min(stored) > 0 else math.nan,
        predicted=number_of(variant, "predicted") if math.isnan(predicted) else predicted,
        figure=_choose_figure(finding, rows),
    )


def _choose_figure(finding: Finding | None, rows: Sequence[RowDict]) -> FixFigure:
    """Return the figure of the first cause; the share of the roof, or the bandwidth, where the cause has none."""
    rule = next(iter(finding.causes), None) if finding else None
    if rule is not None and rule.id in FIGURES:
        before, after = (float(rule.applies(RuleInputs(as_frame([row])))[1][0]) for row in rows)
        return _make_figure(*FIGURES[rule.id], before, after, _OPPOSITE[rule.compare], rule.threshold)
    before, after = (number_of(row, "pct_limit") for row in rows)
    if not math.isnan(before):
        return _make_figure("share of the roof", " %", before, after, ">=", AT_ROOF)
    before, after = (number_of(row, "bandwidth_gb_s") for row in rows)
    return _make_figure("bandwidth", " GB/s", before, after, ">", before)


@dataclass(frozen=True)
class Story:
    """An optimization: its runs, the rows of each case, those of the case that it is about, and the steps."""

    runs: tuple[ReportRun, ...]
    tracks: tuple[_Track, ...]
    rows: tuple[RowDict, ...]
    steps: tuple[OptimizationStep, ...]

    @property
    def name(self) -> str:
        return " ".join(str(self.first[name]) for name in ("case", "precision") if self.first.get(name))

    @property
    def first(self) -> RowDict:
        return self.rows[0]

    @property
    def last(self) -> RowDict:
        return self.rows[-1]

    @property
    def several(self) -> bool:
        """Whether all runs have a time of several cases."""
        return sum(all(map(_is_timed, track)) for track in self.tracks) > 1

    def speedup(self, row: RowDict) -> float:
        """Return the first row's time over a row's."""
        return float(self.first["time_ms"]) / float(row["time_ms"])

    def vs_torch(self, row: RowDict) -> float:
        """Return PyTorch's time over a row's, of the same bytes in the same precision; NaN where no run measured it."""
        own = number_of(row, "speedup_vs_torch")
        if not math.isnan(own):
            return own
        same = ("precision", "bytes_read", "bytes_written", "cache")
        times = [
            float(other["time_ms"])
            for run in self.runs
            for other in run.rows
            if any(str(other.get(name) or "").lower().startswith(_PEERS) for name in ("variant", "case", "operation"))
            and all(other.get(name) == row.get(name) for name in same)
            and _is_timed(other)
            and row.get("bytes_read")
        ]
        return min(times) / float(row["time_ms"]) if times else math.nan

    def measure(self, goal: Goal) -> Goal:
        """Return a goal with the value of its figure, or with what would measure it."""
        if goal.name not in _OWN_FIGURES:
            why = _NEEDS.get(schema.find_column(goal.name).group, "")
            return replace(goal, value=number_of(self.last, goal.name), why=why)
        found, fixed = self.fixed()
        checked = [row["verified"] for row in self.runs[-1].rows if row["time_ms"] is not None]
        known = any(value is not None for value in checked)
        value, why = {
            "speedup": (self.speedup(self.last), ""),
            "speedup_vs_torch": (self.vs_torch(self.last), NO_PEER),
            "bottlenecks_fixed": (len(fixed) if found else math.nan, "no row of the first run falls short of a roof"),
            "verified": (float(all(checked)) if known else math.nan, "the last run has no results of a verification"),
        }[goal.name]
        return replace(goal, value=value, why=why)

    def fixed(self, top: int = 3) -> tuple[list[Finding], list[Finding]]:
        """Return the rows that lost the most time in the first run, and those that lose less than half of it now.

        The row of the optimization is among them, first where others lost more.
        """
        firsts = [(track[0] or {}, track[-1]) for track in self.tracks]
        pairs = [pair for pair in firsts if pair[0].get("status") == "ok"] or firsts
        every = rank_losses(as_frame([first for first, _ in pairs]), None)
        found = every[:top]
        own = next((finding for finding in every if pairs[finding.place][0] is self.first), None)
        if own is not None and own not in found:
            found = [own, *found[: top - 1]]
        fixed = []
        for finding in found:
            last = pairs[finding.place][1]
            now = _find_loss(last) if _is_timed(last) else finding
            fixed += [finding] if now is None or now.lost_ms < _FIXED_SHARE * finding.lost_ms else []
        return found, fixed


def read_story(runs: Sequence[ReportRun], *, case: str | None = None, precision: str | None = None) -> Story:
    """Read the optimization that runs are the steps of; they need one device, and a case in common."""
    if len(runs) < 2:
        raise ValueError("an optimization has two runs at least: the one before, and one for each change")
    first, *others = (load_source(run.data, name=run.name) for run in runs)
    partners = [
        {id(pair.base): pair.new for pair in pair_cases(first, other) if pair.base is not None} for other in others
    ]
    tracks: list[_Track] = [(row, *(found.get(id(row)) for found in partners)) for row in first.rows]
    complete = [[row for row in track if row is not None] for track in tracks if all(map(_is_timed, track))]
    if not complete:
        names = ", ".join(run.name for run in runs)
        raise ValueError(f"the runs have no case in common that each has a time of: {names}")
    rows = _choose_rows(complete, case, precision)
    _check_devices(runs, rows)
    steps = [
        _make_step(number, both, changed)
        for number, (both, changed) in enumerate(zip(pairwise(runs), pairwise(rows), strict=True), 1)
    ]
    return Story(tuple(runs), tuple(tracks), tuple(rows), tuple(steps))


def _check_devices(runs: Sequence[ReportRun], rows: Sequence[RowDict]) -> None:
    devices = [(run.name, str(row["device"])) for run, row in zip(runs, rows, strict=True) if row.get("device")]
    if len({device for _, device in devices}) > 1:
        found = ", ".join(f"{quote_text(name)}: {quote_text(device)}" for name, device in devices)
        raise ValueError(f"the runs are of different devices ({found}): use one device, or compare with --kind run")


def _choose_rows(tracks: Sequence[list[RowDict]], case: str | None, precision: str | None) -> list[RowDict]:
    """Return the rows of a case and a precision; by default those that lost, or took, the most time at first."""
    for name, value in (("case", case), ("precision", precision)):
        if value is not None:
            there = dict.fromkeys(str(track[0].get(name)) for track in tracks)
            names = (value, registry.precision_name(value) if name == "precision" else value)
            tracks = [track for track in tracks if str(track[0].get(name)) in names]
            if not tracks:
                known = ", ".join(map(quote_text, there))
                raise ValueError(f"no {name} '{quote_text(value)}' is in all runs: there are {known}")
    findings = rank_losses(as_frame([track[0] for track in tracks]), 1)
    return tracks[findings[0].place] if findings else max(tracks, key=lambda track: float(track[0]["time_ms"]))


def _find_loss(row: RowDict | None) -> Finding | None:
    return next(iter(rank_losses(as_frame([row]), 1)), None)


def number_of(row: Mapping[str, Any], name: str) -> float:
    return measured_or_nan(row.get(name))


def _is_timed(row: RowDict | None) -> bool:
    return row is not None and row.get("status") in ("ok", "predicted") and number_of(row, "time_ms") > 0


def find_variants(row: RowDict) -> Sequence[Mapping[str, Any]]:
    """Return the registry's variants of a row's operation; none for a function of the caller."""
    try:
        variants: Mapping[str, Any] = registry.operation(str(row.get("operation")))["variants"]
    except ValueError:
        return []
    return variants.get(str(row.get("backend")), [])  # type: ignore[no-any-return]
