"""The steps of an optimization: the row of a case in each run, what changed, and the goals."""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.bottleneck import Finding, rank_losses
from bwprof.analysis.rules import AT_ROOF, RuleInputs
from bwprof.analysis.values import as_frame
from bwprof.records.baselines import Baseline
from bwprof.records.regression.comparison import Comparison, compare_sources
from bwprof.records.regression.verdicts import pair_cases
from bwprof.records.source import load_source, make_source
from bwprof.report.run import ReportRun
from bwprof.results import columns, schema
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

# Figures of goals beside the columns of numbers.
SPEEDUP, VS_TORCH, FIXED, VERIFIED = "speedup", "speedup_vs_torch", "bottlenecks_fixed", "verified"
_OWN_FIGURES = {SPEEDUP: "x", VS_TORCH: "x", FIXED: "", VERIFIED: ""}  # with their units
NO_PEER = "no run has a row of PyTorch's of the same bytes (a variant, case or operation called torch...)"

# What measures the columns of a group.
_NEEDS = {
    "counters": "--counters measures it",
    "metrics": "--metrics all measures it",
    "roofs": "measure without --no-roofs",
}

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_COMPARISON = re.compile(r"\s*(>=|<=|==|>|<)\s*([^\s%x]+)\s*(%|x)?\s*")


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
        return not math.isnan(self.value) and _COMPARE[self.compare](self.value, self.limit)

    @property
    def result(self) -> str:
        return "pass" if self.passed else "fail"

    @property
    def target(self) -> str:
        if self.name == VERIFIED:
            return "all results verified" if self.limit else "results not verified"
        return f"{self.compare} {self.limit:g}{self._unit}"

    @property
    def figure(self) -> str:
        value = self.value
        if math.isnan(value):
            return f"not measured: {self.why}" if self.why else "not measured"
        if self.name == VERIFIED:
            return "yes" if value else "no"
        if self.name == FIXED:
            return f"{value:.0f}"
        number = format_figure(value, whole_from=1000) if 0.1 <= value < 1e9 else format_short(value, ".4g")
        return f"{number}{self._unit}"

    @property
    def _unit(self) -> str:
        if self.name in _OWN_FIGURES:
            return _OWN_FIGURES[self.name]
        unit = schema.find_column(self.name).unit
        return f" {unit}" if unit else ""


def read_goals(goals: str | PathLike[str] | Mapping[str, Any] | None) -> list[Goal]:
    """Read goals from a mapping of figures to comparisons, or from a TOML file of such lines.

    Raises
    ------
    ValueError
        For an unknown figure, and for text that is no comparison.

    Examples
    --------
    >>> [goal.target for goal in read_goals({"bandwidth_gb_s": ">200", "verified": True})]
    ['> 200 GB/s', 'all results verified']
    """
    if goals is None:
        return []
    if isinstance(goals, Mapping):
        table, where = goals, "goals"
    else:
        path = parse_path(goals, "goals")
        where = quote_text(path)
        try:
            table = tomllib.loads(read_text(path))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ValueError(f"{where} is not a TOML file: {error}") from None
    if isinstance(inner := table.get("goals"), Mapping):
        for name in (name for name in table if name != "goals"):
            raise ValueError(
                f"{where}: {quote_text(name)} stands outside goals, and would be ignored: put it into them"
            )
        table = inner
    if not table:
        raise ValueError(f'{where} holds no goals: lines such as bandwidth_gb_s = ">200" are needed')
    return [_read_goal(str(name), value, where) for name, value in table.items()]


def _read_goal(name: str, text: Any, where: str) -> Goal:
    figures = [
        *_OWN_FIGURES,
        *(column.name for column in columns.all_columns() if column.kind in ("number", "integer")),
    ]
    if name not in figures:
        see = "bwprof columns, and " + ", ".join(_OWN_FIGURES)
        raise ValueError(describe_unknown("goal", name, figures, where=where, see=see))
    if name == VERIFIED:
        if not is_bool(text):
            raise ValueError(f"{where}: {name} is {repr_short(text)}: true is needed")
        return Goal(name, "==", float(bool(text)))
    parts = _COMPARISON.fullmatch(text) if isinstance(text, str) else None
    limit = finite_or_none(number_or_nan(parts[2])) if parts is not None else None
    if parts is None or limit is None:
        raise ValueError(
            f'{where}: {name} is {repr_short(text)}: a comparison is needed, as ">=0.5" ({", ".join(_COMPARE)})'
        )
    return Goal(name, parts[1], limit)


# The figure of each rule, and its unit. Rules that are not here say yes or no, or doubt the row: the share of the roof
# is their figure.
FIGURES = {
    "spills": ("local-memory sectors", ""),
    "host_bound": ("share of the time that kernels run", " %"),
    "uncoalesced": ("load efficiency", " %"),
    "bank_conflicts": ("wavefronts that are conflicts", " %"),
    "materialised": ("bytes over the compulsory ones", "x"),
    "extra_traffic": ("counted over needed bytes", "x"),
    "low_bytes_in_flight": ("stalls that wait for memory", " %"),
    "low_occupancy": ("occupancy", " %"),
    "narrow_slower": ("bandwidth over FP32's", "x"),
    "slower_than_predicted": ("time over the predicted", "x"),
}
_FIXED_SHARE = 0.5  # of lost time: a bottleneck with less than this left is fixed
_OPPOSITE = {"<": ">=", ">": "<=", ">=": "<"}
_PEERS = ("torch", "pytorch")  # how a variant, case or operation of PyTorch's begins


@dataclass(frozen=True)
class Track:
    """The row of one case in every run; None where a run lacks it."""

    rows: tuple[RowDict | None, ...]

    @property
    def first(self) -> RowDict:
        return self.rows[0] or {}

    @property
    def name(self) -> str:
        return " ".join(str(self.first[name]) for name in ("case", "precision") if self.first.get(name))

    @property
    def complete(self) -> bool:
        return all(row is not None and _is_timed(row) for row in self.rows)


@dataclass(frozen=True)
class FixFigure:
    """The figure of a fix: before and after (NaN: not measured), and its target."""

    name: str
    unit: str
    before: float
    after: float
    compare: str
    limit: float

    @property
    def gap_pct(self) -> float:
        """The distance of the figure before from its target, percent of the target; 0 where it was reached."""
        if self.before >= self.limit if self.compare in (">", ">=") else self.before <= self.limit:
            return 0.0
        return 100 * abs(self.before - self.limit) / abs(self.limit) if self.limit else math.nan

    @property
    def target(self) -> str:
        return f"{self.compare} {self.text(self.limit)}"

    def text(self, value: float) -> str:
        if math.isnan(value):
            return "not measured"
        if value == round(value):
            return f"{format_short(value, '.0f')}{self.unit}"
        return f"{format_figure(value, whole_from=1000) if value > 0.01 else f'{value:.3g}'}{self.unit}"


@dataclass(frozen=True)
class OptimizationStep:
    """The change from one run to the next: the row before and after, and their comparison."""

    number: int
    base: ReportRun
    new: ReportRun
    before: RowDict
    after: RowDict
    comparison: Comparison

    @cached_property
    def finding(self) -> Finding | None:
        """The bottleneck of the row before; None without a roof."""
        return _find_loss(self.before)

    @property
    def verdict(self) -> CaseVerdict:
        return self.comparison.lines[0]

    @property
    def speedup(self) -> float:
        return float(self.before["time_ms"]) / float(self.after["time_ms"])

    @property
    def by_roof(self) -> float:
        """The speed-up that the roof allowed before; NaN without a roof."""
        rest = self.finding.time_ms - self.finding.lost_ms if self.finding else 0.0
        return self.finding.time_ms / rest if self.finding and rest > 0 else math.nan

    @property
    def by_bytes(self) -> float:
        """The speed-up by fewer bytes alone; 1 for equal bytes, NaN for unknown ones."""
        before, after = map(_stored_bytes, (self.before, self.after))
        return before / after if before > 0 and after > 0 else math.nan

    @cached_property
    def variant(self) -> Mapping[str, Any]:
        """The variant after in the registry, if the one before precedes it there; else {}."""
        variants = find_variants(self.after)
        pair = (self.before.get("variant"), self.after.get("variant"))
        return next((new for old, new in pairwise(variants) if (old["name"], new["name"]) == pair), {})

    @property
    def predicted(self) -> float:
        """The speed-up that the row, or the registry, predicts; else NaN."""
        own, known = measured_or_nan(self.after.get("predicted_gain")), finite_or_none(self.variant.get("predicted"))
        return known if math.isnan(own) and known is not None else own

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """The differences: name, before, after."""
        names = (("git_commit", "commit"), ("bwprof_version", "driver"))
        pairs: list[tuple[str, Any, Any]] = [("variant", self.before.get("variant"), self.after.get("variant"))]
        pairs += [(name, self.base.metadata.get(name), self.new.metadata.get(name)) for name in names[0]]
        pairs += [(name, self.before.get(name), self.after.get(name)) for name in names[1]]
        return [(name.replace("_", " "), str(a), str(b)) for name, a, b in pairs if a != b and a and b]

    @property
    def name(self) -> str:
        """The two variants, if they differ; else the run's name."""
        before, after = self.before.get("variant"), self.after.get("variant")
        return f"{before} to {after}" if before and after and before != after else self.new.name

    @cached_property
    def figure(self) -> FixFigure:
        """The figure of the first cause; the share of the roof, or the bandwidth, where the cause has none."""
        both = (self.before, self.after)
        rule = next(iter(self.finding.causes), None) if self.finding else None
        if rule is not None and rule.id in FIGURES:
            before, after = (float(rule.applies(RuleInputs(as_frame([row])))[1][0]) for row in both)
            return FixFigure(*FIGURES[rule.id], before, after, _OPPOSITE[rule.compare], rule.threshold)
        before, after = (measured_or_nan(row.get("pct_limit")) for row in both)
        if not math.isnan(before):
            return FixFigure("share of the roof", " %", before, after, ">=", AT_ROOF)
        before, after = (measured_or_nan(row.get("bandwidth_gb_s")) for row in both)
        return FixFigure("bandwidth", " GB/s", before, after, ">", before)


@dataclass(frozen=True)
class Story:
    """An optimization: its runs, the cases of the first run, the one that it is about, and the steps between runs."""

    runs: tuple[ReportRun, ...]
    tracks: tuple[Track, ...]
    track: Track
    steps: tuple[OptimizationStep, ...]

    @property
    def first(self) -> RowDict:
        return self.track.first

    @property
    def last(self) -> RowDict:
        return self.track.rows[-1] or {}

    def vs_torch(self, row: RowDict) -> float:
        """Return PyTorch's time over a row's; NaN where no run measured it."""
        own = measured_or_nan(row.get("speedup_vs_torch"))
        if not math.isnan(own):
            return own
        times = [float(other["time_ms"]) for run in self.runs for other in run.rows if _is_peer(other, row)]
        return min(times) / float(row["time_ms"]) if times else math.nan

    def measure(self, goal: Goal) -> Goal:
        """Return a goal with the value of its figure, or with what would measure it."""
        if goal.name == SPEEDUP:
            return replace(goal, value=float(self.first["time_ms"]) / float(self.last["time_ms"]))
        if goal.name == VS_TORCH:
            return replace(goal, value=self.vs_torch(self.last), why=NO_PEER)
        if goal.name == FIXED:
            found, fixed = self.fixed()
            why = "no row of the first run has a roof that it falls short of"
            return replace(goal, value=len(fixed) if found else math.nan, why=why)
        if goal.name == VERIFIED:
            checked = [row["verified"] for row in self.runs[-1].rows if row["time_ms"] is not None]
            known = any(value is not None for value in checked)
            why = "no row of the last run says whether it was verified"
            return replace(goal, value=float(all(checked)) if known else math.nan, why=why)
        why = _NEEDS.get(schema.find_column(goal.name).group, "")
        return replace(goal, value=measured_or_nan(self.last.get(goal.name)), why=why)

    def fixed(self, top: int = 3) -> tuple[list[Finding], list[Finding]]:
        """Return the rows that lost the most time in the first run, and those that lose less than half of it now.

        The row of the optimization is among them, first where others lost more.
        """
        tracks = [track for track in self.tracks if track.first["status"] == "ok"] or list(self.tracks)
        every = rank_losses(as_frame([track.first for track in tracks]), None)
        found = every[:top]
        own = next((finding for finding in every if tracks[finding.place] is self.track), None)
        if own is not None and own not in found:
            found = [own, *found[: top - 1]]
        return found, [finding for finding in found if _is_fixed(finding, tracks[finding.place].rows[-1])]


def _find_loss(row: RowDict) -> Finding | None:
    return next(iter(rank_losses(as_frame([row]), 1)), None)


def _is_fixed(finding: Finding, last: RowDict | None) -> bool:
    if last is None or not _is_timed(last):
        return False
    now = _find_loss(last)
    return now is None or now.lost_ms < _FIXED_SHARE * finding.lost_ms


def read_story(runs: Sequence[ReportRun], *, case: str | None = None, precision: str | None = None) -> Story:
    """Read the optimization that runs are the steps of.

    Raises
    ------
    ValueError
        For a single run, runs of different devices, and runs without a case in common, or without the one named.
    """
    if len(runs) < 2:
        raise ValueError("an optimisation has two runs at least: the one before, and one for each change")
    tracks = _join_runs([load_source(run.data, name=run.name) for run in runs])
    complete = [track for track in tracks if track.complete]
    if not complete:
        raise ValueError(
            f"the runs have no case in common that each has a time of: {', '.join(run.name for run in runs)}"
        )
    track = _choose_track(complete, case, precision)
    rows = [row for row in track.rows if row is not None]
    _check_devices(runs, rows)
    sources = [make_source(run.name, [row], None, run.metadata) for run, row in zip(runs, rows, strict=True)]
    steps = [
        OptimizationStep(number, base, new, before, after, compare_sources(*both))
        for number, ((base, new), (before, after), both) in enumerate(
            zip(pairwise(runs), pairwise(rows), pairwise(sources), strict=True), 1
        )
    ]
    return Story(tuple(runs), tuple(tracks), track, tuple(steps))


def _check_devices(runs: Sequence[ReportRun], rows: Sequence[RowDict]) -> None:
    devices = [(run.name, str(row["device"])) for run, row in zip(runs, rows, strict=True) if row.get("device")]
    if len({device for _, device in devices}) > 1:
        names = ", ".join(f"{quote_text(name)}: {quote_text(device)}" for name, device in devices)
        raise ValueError(
            f"the runs are of different devices ({names}): an optimisation needs one; --kind run compares several"
        )


def _join_runs(sources: Sequence[Baseline]) -> list[Track]:
    """Return every row of the first run with its counterparts in the others."""
    tracks: list[list[RowDict | None]] = [[row] for row in sources[0].rows]
    for other in sources[1:]:
        partners = {id(pair.base): pair.new for pair in pair_cases(sources[0], other) if pair.base is not None}
        for rows in tracks:
            rows.append(partners.get(id(rows[0])))
    return [Track(tuple(rows)) for rows in tracks]


def _choose_track(tracks: Sequence[Track], case: str | None, precision: str | None) -> Track:
    """Return the track of a case and a precision; by default the one that lost, or took, the most time at first."""
    for name, value in (("case", case), ("precision", precision)):
        if value is not None:
            there = dict.fromkeys(str(track.first.get(name)) for track in tracks)
            names = (value, registry.precision_name(value) if name == "precision" else value)
            tracks = [track for track in tracks if str(track.first.get(name)) in names]
            if not tracks:
                raise ValueError(
                    f"no {name} '{quote_text(value)}' is in all runs: there are {', '.join(map(quote_text, there))}"
                )
    findings = rank_losses(as_frame([track.first for track in tracks]), 1)
    longest = max(range(len(tracks)), key=lambda place: float(tracks[place].first["time_ms"]))
    return tracks[findings[0].place if findings else longest]


def _is_timed(row: RowDict) -> bool:
    return row.get("status") in ("ok", "predicted") and measured_or_nan(row.get("time_ms")) > 0


def find_variants(row: RowDict) -> Sequence[Mapping[str, Any]]:
    """Return the registry's variants of a row's operation; none for a function of the caller."""
    try:
        variants: Mapping[str, Any] = registry.operation(str(row.get("operation")))["variants"]
    except ValueError:
        return []
    return variants.get(str(row.get("backend")), [])  # type: ignore[no-any-return]


def _stored_bytes(row: RowDict) -> float:
    names = ("algorithmic_bytes_read", "algorithmic_bytes_written")
    return sum(measured_or_nan(row.get(name)) for name in names)


def _is_peer(other: RowDict, row: RowDict) -> bool:
    """Return whether a row is PyTorch's of the same work: the same bytes in the same precision."""
    named = any(str(other.get(name) or "").lower().startswith(_PEERS) for name in ("variant", "case", "operation"))
    same = all(other.get(name) == row.get(name) for name in ("precision", "bytes_read", "bytes_written", "cache"))
    return named and same and _is_timed(other) and bool(row.get("bytes_read"))
