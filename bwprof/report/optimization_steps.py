"""The steps of an optimization: a case's row in each run, what changed, and whether the goals are met."""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.bottleneck import Finding, rank_losses
from bwprof.analysis.rules import AT_ROOF, RuleInputs
from bwprof.analysis.values import as_frame
from bwprof.records.regression.comparison import Comparison, compare_sources
from bwprof.records.regression.verdicts import pair_cases
from bwprof.records.source import Source, load_source
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
    measured_or_none,
    number_or_nan,
    parse_path,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    from bwprof.records.regression.verdicts import CaseVerdict

# Beside the columns of numbers.
SPEEDUP, VS_TORCH, FIXED, VERIFIED = "speedup", "speedup_vs_torch", "bottlenecks_fixed", "verified"

_OWN_FIGURES = (SPEEDUP, VS_TORCH, FIXED, VERIFIED)

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}

_WANTED = re.compile(r"\s*(>=|<=|==|>|<)\s*([^\s%x]+)\s*(%|x)?\s*")


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal: a figure's name, what it should be, and what it is; NaN where that was not measured.

    `why` says what would measure it.
    """

    name: str
    compare: str
    wanted: float
    found: float = math.nan
    why: str = ""

    @property
    def measured(self) -> bool:
        """Whether the figure is known."""
        return not math.isnan(self.found)

    @property
    def passed(self) -> bool:
        """Whether it is reached; what was not measured is not."""
        return self.measured and _COMPARE[self.compare](self.found, self.wanted)

    @property
    def result(self) -> str:
        """In a word."""
        return "pass" if self.passed else "fail"

    @property
    def said(self) -> str:
        """What is wanted."""
        if self.name == VERIFIED:
            return "all results verified" if self.wanted else "results not verified"
        return f"{self.compare} {self.wanted:g}{self._unit()}"

    @property
    def figure(self) -> str:
        """What was found."""
        if not self.measured:
            return f"not measured{f': {self.why}' if self.why else ''}"
        if self.name == VERIFIED:
            return "yes" if self.found else "no"
        if self.name == FIXED:
            return f"{self.found:.0f}"
        return f"{_digits(self.found)}{self._unit()}"

    def _unit(self) -> str:
        if self.name in _OWN_FIGURES:
            return "x" if self.name in (SPEEDUP, VS_TORCH) else ""
        unit = schema.find_column(self.name).unit
        return f" {unit}" if unit else ""


def _digits(value: float) -> str:
    return format_figure(value, whole_from=1000) if 0.1 <= value < 1e9 else format_short(value, ".4g")


def read_goals(given: str | PathLike[str] | Mapping[str, Any] | None) -> list[Goal]:
    """Goals of a mapping from names to what is wanted, or of a TOML file of such lines; none for None.

    Raises
    ------
    ValueError
        For an unknown figure, and for what is not wanted of one.

    Examples
    --------
    >>> [goal.said for goal in read_goals({"bandwidth_gb_s": ">200", "verified": True})]
    ['> 200 GB/s', 'all results verified']
    """
    if given is None:
        return []
    if isinstance(given, Mapping):
        wanted, where = given, "goals"
    else:
        where = str(parse_path(given, "goals"))
        try:
            wanted = tomllib.loads(read_text(parse_path(given, "goals")))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ValueError(f"{quote_text(where)} is not a TOML file: {error}") from None
    inner = wanted.get("goals")
    if isinstance(inner, Mapping):
        for name in (name for name in wanted if name != "goals"):
            raise ValueError(
                f"{quote_text(where)}: {quote_text(name)} stands outside goals, and would be ignored: put it into them"
            )
        wanted = inner
    if not wanted:
        raise ValueError(f'{quote_text(where)} holds no goals: lines such as bandwidth_gb_s = ">200" are needed')
    return [_goal(str(name), value, quote_text(where)) for name, value in wanted.items()]


def _goal(name: str, wanted: Any, where: str) -> Goal:
    figures = [
        *_OWN_FIGURES,
        *(column.name for column in columns.all_columns() if column.kind in ("number", "integer")),
    ]
    if name not in figures:
        raise ValueError(
            describe_unknown("goal", name, figures, where=where, see="bwprof columns, and " + ", ".join(_OWN_FIGURES))
        )
    if name == VERIFIED:
        if not is_bool(wanted):
            raise ValueError(f"{where}: {name} is {repr_short(wanted)}: true is needed")
        return Goal(name, "==", float(bool(wanted)))
    found = _WANTED.fullmatch(wanted) if isinstance(wanted, str) else None
    value = finite_or_none(number_or_nan(found[2])) if found is not None else None
    if found is None or value is None:
        raise ValueError(
            f'{where}: {name} is {repr_short(wanted)}: a comparison is needed, as ">=0.5" ({", ".join(_COMPARE)})'
        )
    return Goal(name, found[1], value)


# Of a rule the figure that tells whether its fix helped: its name and unit. A rule that is not here says yes or no,
# or doubts the row: of those the share of the roof tells it.
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

_FIXED_SHARE = 0.5  # of the time that a row lost: a bottleneck of which less is left is gone

_OTHER_SIDE = {"<": ">=", ">": "<=", ">=": "<"}

_PEERS = ("torch", "pytorch")  # what a row's variant, case or operation begins with that is PyTorch's


@dataclass(frozen=True)
class Track:
    """One case in every run; None where a run lacks it."""

    rows: tuple[RowDict | None, ...]

    @property
    def first(self) -> RowDict:
        """The row of the first run."""
        row = self.rows[0]
        assert row is not None
        return row

    @property
    def name(self) -> str:
        """Case and precision."""
        return " ".join(str(self.first[name]) for name in ("case", "precision") if self.first.get(name))

    @property
    def whole(self) -> bool:
        """Whether every run has a time of it."""
        return all(row is not None and _timed(row) for row in self.rows)


@dataclass(frozen=True)
class FixFigure:
    """What a fix is held against: a figure's name, before and after (NaN: not measured), its target and side."""

    name: str
    unit: str
    before: float
    after: float
    target: float
    compare: str

    @property
    def gap_pct(self) -> float:
        """How far the figure before was from the target, in percent of it; 0 where it was reached."""
        beyond = self.before >= self.target if self.compare in (">", ">=") else self.before <= self.target
        if beyond:
            return 0.0
        return 100 * abs(self.before - self.target) / abs(self.target) if self.target else math.nan

    def text(self, value: float) -> str:
        """A value with its unit."""
        return "not measured" if math.isnan(value) else f"{_format_change(value)}{self.unit}"

    @property
    def wanted(self) -> str:
        """The target in words."""
        return f"{self.compare} {_format_change(self.target)}{self.unit}"


@dataclass(frozen=True)
class OptimizationStep:
    """From one run to the next: the row before and after, what was wrong before, how sure the difference is."""

    number: int
    base: ReportRun
    new: ReportRun
    before: RowDict
    after: RowDict
    comparison: Comparison

    @cached_property
    def finding(self) -> Finding | None:
        """What was wrong with the row before; None where no roof tells."""
        return next(iter(rank_losses(as_frame([self.before]), 1)), None)

    @property
    def speedup(self) -> float:
        """Time before over time after."""
        return float(self.before["time_ms"]) / float(self.after["time_ms"])

    @property
    def possible(self) -> float:
        """The speed-up that the roof allowed before; NaN where no roof is known."""
        found = self.finding
        if found is None:
            return math.nan
        rest = found.time_ms - found.lost_ms
        return found.time_ms / rest if rest > 0 else math.nan

    @property
    def by_bytes(self) -> float:
        """The speed-up that fewer bytes alone promise; NaN where both kernels move as many."""
        before, after = (_stored(row) for row in (self.before, self.after))
        return before / after if before > 0 and after > 0 and before != after else math.nan

    @cached_property
    def rung(self) -> Mapping[str, Any]:
        """The variant after, as the registry has it, if the one before is the rung below it; {} where it is not."""
        row, ladder = self.after, find_variants(self.after)
        names = [variant["name"] for variant in ladder]
        place = names.index(row["variant"]) if row.get("variant") in names else 0
        below = place > 0 and names[place - 1] == self.before.get("variant")
        return ladder[place] if below else {}

    @property
    def foretold(self) -> float:
        """The speed-up that was predicted before anything was measured: of the rows, or of the ladder; else NaN."""
        own, rung = find_variants(self.after, "predicted_gain"), finite_or_none(self.rung.get("predicted"))
        return own if not math.isnan(own) or rung is None else rung

    @property
    def same_bytes(self) -> bool:
        """Whether both kernels are known to move as many."""
        before, after = (_stored(row) for row in (self.before, self.after))
        return before > 0 and before == after

    @property
    def judged(self) -> CaseVerdict:
        """How sure the difference is."""
        return self.comparison.lines[0]

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """What is known to differ: name, before, after."""
        pairs: list[tuple[str, Any, Any]] = [("variant", self.before.get("variant"), self.after.get("variant"))]
        for name in ("git_commit", "commit"):
            pairs.append((name.replace("_", " "), self.base.told.get(name), self.new.told.get(name)))
        for name in ("bwprof_version", "driver"):
            pairs.append((name.replace("_", " "), self.before.get(name), self.after.get(name)))
        return [(name, str(one), str(other)) for name, one, other in pairs if one != other and one and other]

    @property
    def name(self) -> str:
        """What the fix is called: its variant where that is another one, else its run."""
        before, after = self.before.get("variant"), self.after.get("variant")
        return f"{before} to {after}" if before and after and before != after else self.new.name

    @cached_property
    def figure(self) -> FixFigure:
        """The figure of what was wrong; the share of the roof, or the bandwidth, where that is no figure."""
        rules = [] if self.finding is None else self.finding.causes
        rule = next((rule for rule in rules if rule.id in FIGURES), None)
        if rule is not None and rules[0] is rule:
            name, unit = FIGURES[rule.id]
            before, after = (
                float(rule.applies(RuleInputs(as_frame([row])))[1][0]) for row in (self.before, self.after)
            )
            return FixFigure(name, unit, before, after, rule.threshold, _OTHER_SIDE[rule.compare])
        shares = [find_variants(row, "pct_limit") for row in (self.before, self.after)]
        if not math.isnan(shares[0]):
            return FixFigure("share of the roof", " %", shares[0], shares[1], AT_ROOF, ">=")
        speeds = [find_variants(row, "bandwidth_gb_s") for row in (self.before, self.after)]
        return FixFigure("bandwidth", " GB/s", speeds[0], speeds[1], speeds[0], ">")


@dataclass(frozen=True)
class Story:
    """An optimisation: its runs, the cases that all of them have, the one that it is about, the steps between."""

    runs: tuple[ReportRun, ...]
    tracks: tuple[Track, ...]
    track: Track
    steps: tuple[OptimizationStep, ...]

    @property
    def first(self) -> RowDict:
        """The row before anything was changed."""
        return self.track.first

    @property
    def last(self) -> RowDict:
        """The row after everything."""
        row = self.track.rows[-1]
        assert row is not None
        return row

    def vs_torch(self, row: RowDict) -> float:
        """How fast PyTorch is beside a row of this case: its time over the row's; NaN where no run measured it."""
        own = find_variants(row, "speedup_vs_torch")
        if not math.isnan(own):
            return own
        peers = [find_variants(other, "time_ms") for run in self.runs for other in run.rows if _is_peer(other, row)]
        times = [time for time in peers if time > 0]
        return min(times) / float(row["time_ms"]) if times else math.nan

    def fixed(self, top: int = 3) -> tuple[list[Finding], list[Finding]]:
        """What lost the most time in the first run, and what of that is gone in the last: less than half is left.

        The row that all is about is among them, the first one where others lost more.
        """
        held = [track for track in self.tracks if track.first["status"] == "ok"] or list(self.tracks)
        every = rank_losses(as_frame([track.first for track in held]), None)
        found = every[:top]
        own = next((finding for finding in every if held[finding.place] is self.track), None)
        if own is not None and own not in found:
            found = [own, *found[: top - 1]]
        return found, [finding for finding in found if _is_gone(finding, held[finding.place].rows[-1])]


def _is_gone(finding: Finding, last: RowDict | None) -> bool:
    if last is None or not _timed(last):
        return False
    now = next(iter(rank_losses(as_frame([last]), 1)), None)
    return now is None or now.lost_ms < _FIXED_SHARE * finding.lost_ms


def read_story(runs: Sequence[ReportRun], *, case: str | None = None, precision: str | None = None) -> Story:
    """The optimisation that some runs tell.

    Raises
    ------
    ValueError
        For a single run, runs of different devices, runs that have no case in common, and one asked for that they do
        not have.
    """
    if len(runs) < 2:
        raise ValueError("an optimisation has two runs at least: the one before, and one for each change")
    sides = [load_source(run.data, name=run.name) for run in runs]
    tracks = _tracks(sides)
    whole = [track for track in tracks if track.whole]
    if not whole:
        raise ValueError(
            f"the runs have no case in common that each has a time of: {', '.join(run.name for run in runs)}"
        )
    track = _about(whole, case, precision)
    _check_device(runs, track)
    steps = []
    for number, (base, new) in enumerate(pairwise(runs), 1):
        before, after = track.rows[number - 1], track.rows[number]
        assert before is not None
        assert after is not None
        found = compare_sources(_alone(base, before), _alone(new, after))
        steps.append(OptimizationStep(number, base, new, before, after, found))
    return Story(tuple(runs), tuple(tracks), track, tuple(steps))


def _check_device(runs: Sequence[ReportRun], track: Track) -> None:
    """ValueError where a time changed because the device did."""
    told = [
        (run.name, str(row["device"])) for run, row in zip(runs, track.rows, strict=True) if row and row.get("device")
    ]
    if len({device for _, device in told}) > 1:
        names = ", ".join(f"{quote_text(name)}: {quote_text(device)}" for name, device in told)
        raise ValueError(
            f"the runs are of different devices ({names}): an optimisation is told of one device; a report of another "
            "kind (--kind run) sets devices beside each other"
        )


def _alone(run: ReportRun, row: RowDict) -> Source:
    return Source(run.name, [row], [None], run.told, [()])


def _tracks(sides: Sequence[Source]) -> list[Track]:
    """Every row of the first run, and what stands for it in the others."""
    found: list[list[RowDict | None]] = [[row] for row in sides[0].rows]
    for other in sides[1:]:
        partner = {id(pair.base): pair.new for pair in pair_cases(sides[0], other) if pair.base is not None}
        for rows in found:
            rows.append(partner.get(id(rows[0])))
    return [Track(tuple(rows)) for rows in found]


def _about(tracks: Sequence[Track], case: str | None, precision: str | None) -> Track:
    """The track that was asked for, or the one that lost the most time at first, or took the most."""
    held = list(tracks)
    for name, wanted in (("case", case), ("precision", precision)):
        if wanted is not None:
            there = dict.fromkeys(str(track.first.get(name)) for track in held)
            names = (wanted, registry.precision_name(wanted) if name == "precision" else wanted)
            held = [track for track in held if str(track.first.get(name)) in names]
            if not held:
                raise ValueError(
                    f"no {name} '{quote_text(wanted)}' is in all runs: there are {', '.join(map(quote_text, there))}"
                )
    findings = rank_losses(as_frame([track.first for track in held]), 1)
    if findings:
        return held[findings[0].place]
    return max(held, key=lambda track: float(track.first["time_ms"]))


def _timed(row: RowDict) -> bool:
    time = measured_or_none(row.get("time_ms"))
    return row.get("status") in ("ok", "predicted") and time is not None and time > 0


def find_variants(row: RowDict) -> Sequence[Mapping[str, Any]]:
    """List the variants that the registry has of a row's operation; none of a function of the caller's."""
    try:
        found: Mapping[str, Any] = registry.operation(str(row.get("operation")))["variants"]
    except ValueError:
        return []
    return found.get(str(row.get("backend")), [])  # type: ignore[no-any-return]


def find_variants(row: RowDict, name: str) -> float:
    """A number that may have been measured; NaN for anything else."""
    return measured_or_nan(row.get(name))


def _stored(row: RowDict) -> float:
    return find_variants(row, "algorithmic_bytes_read") + find_variants(row, "algorithmic_bytes_written")


def _is_peer(other: RowDict, row: RowDict) -> bool:
    """Whether a row is PyTorch's of the same work: the same bytes in the same precision."""
    named = any(str(other.get(name) or "").lower().startswith(_PEERS) for name in ("variant", "case", "operation"))
    same = all(other.get(name) == row.get(name) for name in ("precision", "bytes_read", "bytes_written", "cache"))
    return named and same and _timed(other) and bool(row.get("bytes_read"))


def _format_change(value: float) -> str:
    if value == round(value):
        return format_short(value, ".0f")
    return format_figure(value, whole_from=1000) if value > 0.01 else f"{value:.3g}"
