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

# The columns that tell one step of a model from another; the times of a step's rows add up.
STEP = ("model", "phase", "step_batch", "context", "weights", "kv", "device", "run_id")
DECODE = "decode"  # the phase in which each sequence gets one new token


@dataclass(frozen=True, slots=True)
class Losses:
    """Per row: percent of its time lost (NaN without a roof), ms lost by a launch, and its number of launches.

    Rows of a model's step also have the step's ms and its new tokens, others NaN.
    """

    pct: NDArray[np.float64]
    lost_ms: NDArray[np.float64]
    count: NDArray[np.float64]
    step_ms: NDArray[np.float64]
    tokens: NDArray[np.float64]

    @property
    def total_ms(self) -> NDArray[np.float64]:
        """Ms lost over all launches."""
        return self.lost_ms * self.count

    def tokens_s(self, place: int) -> tuple[float, float]:
        """Compute tokens/s of a row's step, with and without the row's loss; NaN where there is no step."""
        step, lost, tokens = (float(column[place]) for column in (self.step_ms, self.total_ms, self.tokens))
        return tokens / step * 1e3 if step > 0 else math.nan, tokens / (step - lost) * 1e3 if step > lost else math.nan


def compute_losses(data: pd.DataFrame, limits: values.LimiterColumns) -> Losses:
    """Compute how much time each row loses against its roof."""
    time_ms = np.where(values.has_time(data), values.numbers(data, "time_ms"), math.nan)
    pct = np.clip(100 - limits.pct_limit, 0, 100)
    step_ms, tokens = _step_columns(data)
    lost_pct = np.where(np.isnan(time_ms), math.nan, pct)
    return Losses(lost_pct, time_ms * pct / 100, values.counts(data), step_ms, tokens)


def _step_columns(data: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the time (NaN where a row has none) and the new tokens of each row's step."""
    import pandas as pd

    if "count" not in data.columns or not len(data):
        return np.full(len(data), math.nan), np.full(len(data), math.nan)
    counted = ~np.isnan(values.numbers(data, "count"))
    names = [name for name in STEP if name in data.columns]
    keys = [values.words(data, name).astype(str) for name in names] or [pd.Series("", data.index)]
    times = pd.Series(values.total_ms(data), data.index).groupby(keys, sort=False)
    step_ms = times.transform(lambda step: step.sum(skipna=False)).to_numpy(float)
    batch = values.numbers(data, "step_batch")
    batch = np.where(batch > 0, batch, 1.0)
    decoding = values.words(data, "phase").isin(["", DECODE]).to_numpy(bool)
    tokens = np.where(decoding, batch, batch * values.numbers(data, "context"))
    return np.where(counted, step_ms, math.nan), np.where(counted, tokens, math.nan)


COLUMNS = ("Priority", "Kernel", "Issue", "Impact", "Fix", "Expected gain", "Evidence")
STRENGTHS = ("Kernel", "Strength", "Evidence")

# Percent of a row's time that is lost from which on it has a priority; rows that lose less are not listed.
PRIORITIES = ((50.0, "1 (HIGH)"), (20.0, "2 (MED)"), (5.0, "3 (LOW)"))
LEAST = PRIORITIES[-1][0]

SAME_TRAFFIC = 1.02

_DOUBTS = ("throttled", "noisy")
_DOUBTED = (*_DOUBTS, "above_attainable", "not_cold", "noisy_roof")

_COUNT = "measure with --counters --metrics all: they tell the cause"
_ON_HOST = "compare its variants: nothing is counted on a CPU"
_GPU_WORDS = ("GPU", "CUDA", "tensor cores", "divergence", "--counters")  # of fixes for GPUs only

_ROOFS = {"memory": "a stream of its bytes", "compute": "the arithmetic roof", "peak": "the memory's peak"}
_LOSSES = {"memory": "bandwidth", "compute": "arithmetic rate", "peak": "bandwidth"}


def bottlenecks(data: Any, top: int | None = 3) -> pd.DataFrame:
    """Rank the rows that lose the most time, with the cause that their columns show, and what helps.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.sweep`, `bwprof.load`, `bwprof.predict` or others. The loss is measured against the roof that
        applies (`pct_limit`); rows without a roof are not ranked. A column `count` says how often a launch happens.
    top : int, optional
        How many rows at most; None for all.

    Returns
    -------
    pandas.DataFrame
        Columns Priority, Kernel, Issue, Impact, Fix, Expected gain, Evidence, by priority, then by lost time. HIGH: at
        least half of a row's time is lost, MED: a fifth, LOW: a twentieth. Rows of a model's step show the gain of the
        step, in tokens/s, too.

    Raises
    ------
    ValueError
        If `top` is no whole number from 1.

    Examples
    --------
    >>> row = {"case": "decode", "time_ms": 3.0, "bandwidth_gb_s": 300.0, "attainable_gb_s": 900.0, "flops": 0}
    >>> bottlenecks(row)[["Priority", "Kernel", "Impact"]].values.tolist()
    [['1 (HIGH)', 'decode', '3x bandwidth loss']]
    """
    return tabulate_findings(rank_losses(values.as_frame(data), top))


def tabulate_findings(findings: Sequence[Finding]) -> pd.DataFrame:
    """Tabulate findings as `bottlenecks` does."""
    import pandas as pd

    lines = [finding.line() for finding in sort_by_priority(findings)]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype("string")


def sort_by_priority(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings by priority; those of one priority stay in their order."""
    return sorted(findings, key=lambda finding: finding.priority)


@dataclass(frozen=True, slots=True)
class Finding:
    """One row that loses time: its place in the frame, its name, the rules that match it, and its figures."""

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
        """The rules that match, without those that doubt the figures."""
        return [rule for rule, _ in self.rules if rule.id not in _DOUBTS]

    @property
    def issue(self) -> str:
        """What is wrong in a few words, after what makes that doubtful."""
        flags = ", ".join(rule.id for rule, _ in self.rules if rule.id in _DOUBTS)
        doubts = [f"{flags}: to be read with care"] if flags else []
        return "; ".join([*doubts, self.causes[0].issue if self.causes else "below its roof, cause not measured"])

    @property
    def impact(self) -> str:
        """The loss against the roof that applies: '3x bandwidth loss', '40% bandwidth loss'."""
        what = _LOSSES.get(self.side, "time")
        if self.pct >= 100:
            return f"no {what} to speak of"
        if self.pct > 50:
            times = 100 / (100 - self.pct)
            return f"{format_short(times, '.0f') if times >= 9.5 else f'{times:.2g}'}x {what} loss"
        return f"{format_short(self.pct, '.0f')}% {what} loss"

    @property
    def fix(self) -> str:
        """What helps against the first cause; without a cause, what would find it."""
        doubts = [fix for rule, _ in self.rules if rule.id in _DOUBTS for fix in rule.fixes]
        fixes = self.causes[0].fixes if self.causes else (_COUNT,)
        if self.on_host:
            fixes = tuple(fix for fix in fixes if not any(word in fix for word in _GPU_WORDS)) or (_ON_HOST,)
        return "; ".join(dict.fromkeys([*doubts, *fixes]))

    @property
    def gain(self) -> str:
        """The time won at the roof; of a model's step also tokens/s."""
        lost, total = (format_seconds(time * self.count / 1e3) for time in (self.lost_ms, self.time_ms))
        if math.isnan(self.step_ms):
            often = f" over {format_short(self.count, '.0f')} launches" if self.count != 1 else ""
            return f"up to {lost} of {total}{often}"
        text = f"up to {lost} of the step's {format_seconds(self.step_ms / 1e3)}"
        if math.isnan(self.tokens_s_then):
            return text
        now, then = (format_figure(rate, whole_from=100) for rate in (self.tokens_s, self.tokens_s_then))
        return f"{text}: {now} to {then} tokens/s"

    @property
    def evidence(self) -> str:
        """The figures of its columns."""
        reached = f"{format_short(100 - self.pct, '.0f')} % of {_ROOFS.get(self.side, 'its roof')}"
        figures = [rule.evidence.format(ShortFloat(figure)) for rule, figure in self.rules]
        limit = f"limiter {self.limiter}" if self.limiter else ""
        return "; ".join(filter(None, (reached, limit, *figures)))

    def line(self) -> dict[str, str]:
        """Return a line of the table."""
        cells = (self.priority, self.label, self.issue, self.impact, self.fix, self.gain, self.evidence)
        return dict(zip(COLUMNS, cells, strict=True))


def rank_losses(data: pd.DataFrame, top: int | None = 3) -> list[Finding]:
    """Rank the rows that lose time, the most first, each with the rules that match it."""
    if top is not None and (isinstance(top, bool) or not hasattr(top, "__index__") or int(top) < 1):
        raise ValueError(f"top is {repr_short(top)}: a whole number from 1 is needed, or None for all")
    limits = values.limiter_columns(data)
    losses = compute_losses(data, limits)
    with np.errstate(invalid="ignore"):
        places = np.flatnonzero((losses.pct >= LEAST) & (losses.total_ms > 0))
    places = places[np.argsort(-losses.total_ms[places], kind="stable")][: None if top is None else int(top)]
    if not len(places):
        return []
    few = data.iloc[places]
    rules = match_rules(few)
    time_ms, sides = values.numbers(few, "time_ms"), _roof_sides(few, values.limiter_columns(few))
    names, hosts = values.labels_at(data, places), values.on_host(few)
    return [
        Finding(
            place=place,
            label=names[at],
            limiter=("", *LIMITERS)[limits.limiter[place]],
            side=sides[at],
            pct=float(losses.pct[place]),
            time_ms=float(time_ms[at]),
            lost_ms=float(losses.lost_ms[place]),
            count=float(losses.count[place]),
            step_ms=float(losses.step_ms[place]),
            tokens_s=losses.tokens_s(place)[0],
            tokens_s_then=losses.tokens_s(place)[1],
            on_host=bool(hosts[at]),
            rules=tuple(rules[at]),
        )
        for at, place in enumerate(places.tolist())
    ]


def match_rules(data: pd.DataFrame) -> list[list[tuple[BottleneckRule, float]]]:
    """Match the rules with each row, in their order, and return their figures."""
    inputs = RuleInputs(data)
    rows: list[list[tuple[BottleneckRule, float]]] = [[] for _ in range(len(data))]
    for rule in RULES:
        matches, figures = rule.applies(inputs)
        for place in np.flatnonzero(matches):
            rows[place].append((rule, float(figures[place])))
    return rows


def _roof_sides(data: pd.DataFrame, limits: values.LimiterColumns) -> list[str]:
    """Name the roof against which each row is measured; the nearer one where neither limits."""
    memory = values.pct_attained(data)
    with np.errstate(invalid="ignore"):
        nearer = limits.by("kernel", "latency") & (np.abs(memory - limits.pct_limit) > 1e-3 * limits.pct_limit)
    sides = np.where(limits.by("compute") | nearer, "compute", np.where(np.isnan(memory), "peak", "memory"))
    return [str(side) for side in sides]


def strengths(data: Any) -> pd.DataFrame:
    """Tabulate what needs no work: rows at their roof, and rows that move no more bytes than they must.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        As for `bottlenecks`.

    Returns
    -------
    pandas.DataFrame
        Columns Kernel, Strength, Evidence: rows that reach 90 % of a stream of their bytes (or of the arithmetic roof,
        where that is nearer), or whose counted traffic is at most 1.02 times the bytes that they need. Predicted rows,
        and rows whose flags doubt these figures, are left out.

    Examples
    --------
    >>> row = {"case": "copy", "time_ms": 1.0, "bandwidth_gb_s": 950.0, "attainable_gb_s": 1000.0, "flops": 0}
    >>> strengths(row).values.tolist()
    [['copy', 'at the memory roof', '95 % of attainable']]
    """
    import pandas as pd

    frame = values.as_frame(data)
    rows = find_strengths(frame)
    names = values.labels_at(frame, np.array([place for place, _, _ in rows], np.int64))
    lines = [(name, "; ".join(words), "; ".join(texts)) for name, (_, words, texts) in zip(names, rows, strict=True)]
    return pd.DataFrame(lines, columns=list(STRENGTHS)).astype("string")


def find_strengths(data: pd.DataFrame) -> list[tuple[int, list[str], list[str]]]:
    """Find the rows that need no work: their places, their strengths, and the evidence."""
    limits, attained = values.limiter_columns(data), values.pct_attained(data)
    traffic, stored = values.numbers(data, "traffic_ratio"), values.stored_ratio(data)
    sound = values.has_time(data) & ~values.is_word(data, "status", "predicted")
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
    rows = []
    for place in np.flatnonzero(streams | computes | exact).tolist():
        own = [(name, text.format(ShortFloat(figure[place]))) for mask, name, text, figure in kinds if mask[place]]
        rows.append((place, [name for name, _ in own], [text for _, text in own]))
    return rows
