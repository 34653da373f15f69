"""Rank bottlenecks: how much time each row loses against its roof, why, and what helps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis import values
from bwprof.analysis.rules import AT_ROOF, RULES, BottleneckRule, RuleInputs
from bwprof.roofs.limiter import LIMITERS
from bwprof.text.formatting import ShortFloat, format_figure, format_seconds, format_short
from bwprof.text.parsing import repr_short

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# The columns that tell one step of a model from another; rows of a step add up.
STEP = ("model", "phase", "step_batch", "context", "weights", "kv", "device", "run_id")

DECODE = "decode"  # the phase in which each sequence gets one new token


@dataclass(frozen=True, slots=True)
class Losses:
    """Per row: percent of its time lost (NaN where no roof is known), ms of a launch lost, launches that it counts for.

    Of a model's step also the ms of the whole step, and the new tokens that it gives; NaN elsewhere.
    """

    pct: NDArray[np.float64]
    lost_ms: NDArray[np.float64]
    count: NDArray[np.float64]
    step_ms: NDArray[np.float64]
    tokens: NDArray[np.float64]

    @property
    def total_ms(self) -> NDArray[np.float64]:
        """Lost over all launches; NaN where not known."""
        return self.lost_ms * self.count

    def tokens_s(self, place: int) -> tuple[float, float]:
        """Tokens a second of the row's step, as it is and without what this row loses; NaN where there is no step."""
        step, lost, tokens = (float(found[place]) for found in (self.step_ms, self.total_ms, self.tokens))
        return tokens / step * 1e3 if step > 0 else math.nan, tokens / (step - lost) * 1e3 if step > lost else math.nan


def compute_losses(data: pd.DataFrame, limits: values.LimiterColumns) -> Losses:
    """The losses of a frame's rows, whose limits are known."""
    time_ms = np.where(values.has_time(data), values.numbers(data, "time_ms"), math.nan)
    pct = np.clip(100 - limits.pct_limit, 0, 100)
    count = values.counts(data)
    step_ms = np.full(len(data), math.nan)
    tokens = np.full(len(data), math.nan)
    if "count" in data.columns and len(data):
        step_ms, tokens = _steps(data, values.total_ms(data))
    return Losses(np.where(np.isnan(time_ms), math.nan, pct), time_ms * pct / 100, count, step_ms, tokens)


def _steps(data: pd.DataFrame, times: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each row's step: its time, NaN where a row of it has none, and its new tokens."""
    import pandas as pd

    counted = ~np.isnan(values.numbers(data, "count"))
    names = [name for name in STEP if name in data.columns]
    keys = [values.words(data, name).astype(str) for name in names] or [pd.Series("", data.index)]
    whole = pd.Series(times, data.index).groupby(keys, sort=False).transform(lambda found: found.sum(skipna=False))
    batch, context = values.numbers(data, "step_batch"), values.numbers(data, "context")
    batch = np.where(batch > 0, batch, 1.0)
    decoding = values.is_word(data, "phase", DECODE) | (values.words(data, "phase") == "").to_numpy(bool)
    tokens = np.where(decoding, batch, batch * context)
    return np.where(counted, whole.to_numpy(float), math.nan), np.where(counted, tokens, math.nan)


COLUMNS = ("Priority", "Kernel", "Issue", "Impact", "Fix", "Expected gain", "Evidence")

STRENGTHS = ("Kernel", "Strength", "Evidence")

# From so many percent of a row's time lost on; what loses less is not listed.
PRIORITIES = ((50.0, "1 (HIGH)"), (20.0, "2 (MED)"), (5.0, "3 (LOW)"))

LEAST = PRIORITIES[-1][0]

SAME_TRAFFIC = 1.02

_DOUBTS = ("throttled", "noisy")

_DOUBTED = (*_DOUBTS, "above_attainable", "not_cold", "noisy_roof")

_COUNT = "measure with --counters --metrics all: they tell the cause"

_ON_HOST = "compare its variants: nothing is counted on a CPU"

_OF_GPUS = ("GPU", "CUDA", "tensor cores", "divergence", "--counters")  # what helps, or tells, on a GPU only

_ROOFS = {"memory": "a stream of its bytes", "compute": "the arithmetic roof", "peak": "the memory's peak"}

_LOSSES = {"memory": "bandwidth", "compute": "arithmetic rate", "peak": "bandwidth"}


def bottlenecks(data: Any, top: int | None = 3) -> pd.DataFrame:
    """The rows that lose the most time, with the cause that their columns tell, and what helps.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.sweep`, `bwprof.load`, `bwprof.predict` or others. Time is lost against the roof that applies
        (`pct_limit`); what has no roof cannot be ranked. A column `count` says how often each row's launch happens.
    top : int, optional
        How many rows at most; None for all.

    Returns
    -------
    pandas.DataFrame
        Columns Priority, Kernel, Issue, Impact, Fix, Expected gain, Evidence: the rows that lose the most time, by
        priority, and within one the most time lost first. HIGH: at least half of a row's time is lost, MED: a fifth,
        LOW: a twentieth. In the frame of a model's steps the gain is that of the step, as tokens a second, too. All
        figures are the rows' own.

    Raises
    ------
    ValueError
        When `top` is no whole number from 1.

    Examples
    --------
    >>> row = {"case": "decode", "time_ms": 3.0, "bandwidth_gb_s": 300.0, "attainable_gb_s": 900.0, "flops": 0}
    >>> bottlenecks(row)[["Priority", "Kernel", "Impact"]].values.tolist()
    [['1 (HIGH)', 'decode', '3x bandwidth loss']]
    """
    return tabulate_findings(rank_losses(values.as_frame(data), top))


def tabulate_findings(found: Sequence[Finding]) -> pd.DataFrame:
    """Findings as the table of `bottlenecks`."""
    import pandas as pd

    return pd.DataFrame([finding.line() for finding in sort_by_priority(found)], columns=list(COLUMNS)).astype("string")


def sort_by_priority(found: Sequence[Finding]) -> list[Finding]:
    """Findings as people read them: by priority, and those of one as they come."""
    return sorted(found, key=lambda finding: finding.priority)


@dataclass(frozen=True, slots=True)
class Finding:
    """One row that loses time: its place in the frame, what it is called, the rules that speak of it, its figures."""

    place: int
    label: str
    limiter: str
    side: str
    pct: float
    time_ms: float
    lost_ms: float
    count: float
    step_ms: float
    tokens_s: float
    tokens_s_then: float
    on_host: bool
    rules: tuple[tuple[BottleneckRule, float], ...]

    @property
    def priority(self) -> str:
        """By the share of its time that is lost."""
        return next((name for least, name in PRIORITIES if self.pct >= least), "")

    @property
    def causes(self) -> list[BottleneckRule]:
        """The rules that speak of it, without those that doubt its figures."""
        return [rule for rule, _ in self.rules if rule.id not in _DOUBTS]

    @property
    def issue(self) -> str:
        """What is wrong in a few words, after what makes that doubtful."""
        named = [rule.id for rule, _ in self.rules if rule.id in _DOUBTS]
        doubts = [f"{', '.join(named)}: to be read with care"] if named else []
        return "; ".join([*doubts, self.causes[0].issue if self.causes else "below its roof, cause not measured"])

    @property
    def impact(self) -> str:
        """'3x bandwidth loss', '40% bandwidth loss': of the roof that applies."""
        return _impact(self.pct, _LOSSES.get(self.side, "time"))

    @property
    def fix(self) -> str:
        """What helps against the first cause; where there is none, what would tell it."""
        doubts = [fix for rule, _ in self.rules if rule.id in _DOUBTS for fix in rule.fixes]
        fixes = self.causes[0].fixes if self.causes else (_COUNT,)
        if self.on_host:
            fixes = tuple(fix for fix in fixes if not any(word in fix for word in _OF_GPUS)) or (_ON_HOST,)
        return "; ".join(dict.fromkeys([*doubts, *fixes]))

    @property
    def gain(self) -> str:
        """The time won at the roof; of a model's step also the tokens a second."""
        lost, whole = (format_seconds(time * self.count / 1e3) for time in (self.lost_ms, self.time_ms))
        if math.isnan(self.step_ms):
            often = f" over {format_short(self.count, '.0f')} launches" if self.count != 1 else ""
            return f"up to {lost} of {whole}{often}"
        said = f"up to {lost} of the step's {format_seconds(self.step_ms / 1e3)}"
        if math.isnan(self.tokens_s_then):
            return said
        return f"{said}: {_rate(self.tokens_s)} to {_rate(self.tokens_s_then)} tokens/s"

    @property
    def evidence(self) -> str:
        """What its columns say."""
        reached = f"{format_short(100 - self.pct, '.0f')} % of {_ROOFS.get(self.side, 'its roof')}"
        said = [rule.said.format(ShortFloat(figure)) for rule, figure in self.rules]
        limit = f"limiter {self.limiter}" if self.limiter else ""
        return "; ".join(part for part in (reached, limit, *said) if part)

    def line(self) -> dict[str, str]:
        """A line of the table."""
        cells = (self.priority, self.label, self.issue, self.impact, self.fix, self.gain, self.evidence)
        return dict(zip(COLUMNS, cells, strict=True))


def rank_losses(data: pd.DataFrame, top: int | None = 3) -> list[Finding]:
    """The rows that lose time, the most first, each with the rules that speak of it."""
    if top is not None and (isinstance(top, bool) or not hasattr(top, "__index__") or int(top) < 1):
        raise ValueError(f"top is {repr_short(top)}: a whole number from 1 is needed, or None for all")
    limits = values.limiter_columns(data)
    lost = compute_losses(data, limits)
    places = _ranked(lost, None if top is None else int(top))
    if not len(places):
        return []
    few = data.iloc[places]
    spoken = _spoken(few)
    time_ms, sides = values.numbers(few, "time_ms"), _sides(few, values.limiter_columns(few))
    called, hosts = values.labels_at(data, places), values.on_host(few)
    return [
        Finding(
            place=int(place),
            label=called[at],
            limiter=("", *LIMITERS)[limits.limiter[place]],
            side=sides[at],
            pct=float(lost.pct[place]),
            time_ms=float(time_ms[at]),
            lost_ms=float(lost.lost_ms[place]),
            count=float(lost.count[place]),
            step_ms=float(lost.step_ms[place]),
            tokens_s=lost.tokens_s(int(place))[0],
            tokens_s_then=lost.tokens_s(int(place))[1],
            on_host=bool(hosts[at]),
            rules=tuple(spoken[at]),
        )
        for at, place in enumerate(places)
    ]


def _ranked(lost: Losses, top: int | None) -> NDArray[np.int64]:
    """Places of the rows that lose enough, the most time first."""
    total = lost.total_ms
    with np.errstate(invalid="ignore"):
        held = np.flatnonzero((lost.pct >= LEAST) & (total > 0))
    if top is not None and len(held) > top:
        least = np.partition(total[held], len(held) - top)[len(held) - top]
        held = held[total[held] >= least]
    return held[np.argsort(-total[held], kind="stable")][:top]


def _spoken(data: pd.DataFrame) -> list[list[tuple[BottleneckRule, float]]]:
    """Of each row the rules that speak of it, in their order, with their figures."""
    facts = RuleInputs(data)
    found: list[list[tuple[BottleneckRule, float]]] = [[] for _ in range(len(data))]
    for rule in RULES:
        speaks, figures = rule.applies(facts)
        for place in np.flatnonzero(speaks):
            found[place].append((rule, float(figures[place])))
    return found


def match_rules(data: Any) -> list[list[str]]:
    """The ids of the rules that speak of each row, in the rules' order.

    Examples
    --------
    >>> rules_of({"time_ms": 1.0, "traffic_ratio": 1.3, "occupancy_pct": 30.0})
    [['extra_traffic', 'low_occupancy']]
    """
    return [[rule.id for rule, _ in row] for row in _spoken(values.as_frame(data))]


def _sides(data: pd.DataFrame, limits: values.LimiterColumns) -> list[str]:
    """The roof that each row is held against; of one that neither limits the nearer one."""
    memory = values.pct_attained(data)
    with np.errstate(invalid="ignore"):
        other = limits.by("kernel", "latency") & (np.abs(memory - limits.pct_limit) > 1e-3 * limits.pct_limit)
    sides = np.where(limits.by("compute") | other, "compute", np.where(np.isnan(memory), "peak", "memory"))
    return [str(side) for side in sides]


def strengths(data: Any) -> pd.DataFrame:
    """What needs no work: rows at their roof, and rows that move no more bytes than they must.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        As for `bottlenecks`.

    Returns
    -------
    pandas.DataFrame
        Columns Kernel, Strength, Evidence: rows that reach 90 % of a stream of their bytes (or of the arithmetic roof,
        where that is the nearer one), or whose counted traffic is at most 1.02 times the bytes that they need. Rows
        whose flags make these figures doubtful, and predicted ones, are left out.

    Examples
    --------
    >>> row = {"case": "copy", "time_ms": 1.0, "bandwidth_gb_s": 950.0, "attainable_gb_s": 1000.0, "flops": 0}
    >>> strengths(row).values.tolist()
    [['copy', 'at the memory roof', '95 % of attainable']]
    """
    import pandas as pd

    frame = values.as_frame(data)
    found = find_strengths(frame)
    called = values.labels_at(frame, np.array([place for place, _, _ in found], np.int64))
    lines = [(name, "; ".join(words), "; ".join(told)) for name, (_, words, told) in zip(called, found, strict=True)]
    return pd.DataFrame(lines, columns=list(STRENGTHS)).astype("string")


def find_strengths(data: pd.DataFrame) -> list[tuple[int, list[str], list[str]]]:
    """The rows that need no work: their places, what is good about each, and what tells it."""
    limits, attained = values.limiter_columns(data), values.pct_attained(data)
    traffic, stored = values.numbers(data, "traffic_ratio"), values.stored_ratio(data)
    sound = values.has_time(data) & ~values.is_word(data, "status", "predicted")  # what was assumed is no strength
    for flag in _DOUBTED:
        sound &= ~values.has_flag(data, flag)
    with np.errstate(invalid="ignore"):
        streams = sound & (attained >= AT_ROOF)
        computes = sound & ~streams & limits.by("compute") & (limits.pct_limit >= AT_ROOF)
        exact = sound & (traffic <= SAME_TRAFFIC) & ~(traffic * stored > SAME_TRAFFIC)
    kinds = (
        (streams, "at the memory roof", "{:.0f} % of attainable", attained),
        (computes, "at the arithmetic roof", "{:.0f} % of the arithmetic roof", limits.pct_limit),
        (exact, "no extra traffic", "traffic ratio {:.2f}", traffic),
    )
    found = []
    for place in np.flatnonzero(streams | computes | exact).tolist():
        held = [(word, said.format(ShortFloat(figure[place]))) for mask, word, said, figure in kinds if mask[place]]
        found.append((place, [word for word, _ in held], [said for _, said in held]))
    return found


def _impact(pct: float, what: str) -> str:
    """Of what is lost: in times from a half on, in percent below."""
    if pct >= 100:
        return f"no {what} to speak of"
    if pct > 50:
        times = 100 / (100 - pct)
        return f"{format_short(times, '.0f')}x {what} loss" if times >= 9.5 else f"{times:.2g}x {what} loss"
    return f"{format_short(pct, '.0f')}% {what} loss"


def _rate(value: float) -> str:
    return format_figure(value, whole_from=100)
