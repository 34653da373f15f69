"""Find where time is lost: bottlenecks with their cause and what helps, their opposite, and cliffs of a sweep."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from bwprof.analysis import values
from bwprof.analysis.rules import AT_ROOF, RULES, BottleneckRule, RuleInputs
from bwprof.results import schema
from bwprof.results.frame import to_rows
from bwprof.results.pairs import configuration_key, is_comparable, times_differ
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import LIMITERS
from bwprof.text.formatting import ShortFloat, format_figure, format_seconds, format_short
from bwprof.text.parsing import measured_or_none, repr_short

# The columns that tell one step of a model from another; the times of a step's rows add up.
STEP = ("model", "phase", "step_batch", "context", "weights", "kv", "device", "run_id")

COLUMNS = ("Priority", "Kernel", "Issue", "Impact", "Fix", "Expected gain", "Evidence")

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
    lines = [
        (found.priority, found.label, found.issue, found.impact, found.fix, found.gain, found.evidence)
        for found in sort_by_priority(findings)
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype("string")


def sort_by_priority(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings by priority; those of one priority stay in their order."""
    return sorted(findings, key=lambda finding: finding.priority)


@dataclass(frozen=True, slots=True)
class Finding:
    """One row that loses time: its place in the frame, its name, the rules that match it, and its figures.

    `step_ms` and `tokens` are the time and the new tokens of its model's step, NaN without one.
    """

    place: int
    label: str
    limiter: str
    side: str
    on_host: bool
    rules: tuple[tuple[BottleneckRule, float], ...]
    pct: float
    time_ms: float
    lost_ms: float
    count: float
    step_ms: float
    tokens: float

    @property
    def tokens_s(self) -> float:
        """Tokens/s of the step."""
        return self.tokens / self.step_ms * 1e3 if self.step_ms > 0 else math.nan

    @property
    def tokens_s_then(self) -> float:
        """Tokens/s of the step without the loss."""
        rest = self.step_ms - self.lost_ms * self.count
        return self.tokens / rest * 1e3 if rest > 0 else math.nan

    @property
    def priority(self) -> str:
        """By the share of its time that is lost."""
        return next((name for least, name in PRIORITIES if self.pct >= least), "")

    @property
    def _doubts(self) -> list[BottleneckRule]:
        return [rule for rule, _ in self.rules if rule.id in _DOUBTS]

    @property
    def causes(self) -> list[BottleneckRule]:
        """The rules that match, without those that doubt the figures."""
        return [rule for rule, _ in self.rules if rule.id not in _DOUBTS]

    @property
    def issue(self) -> str:
        """What is wrong in a few words, after what makes that doubtful."""
        issue = self.causes[0].issue if self.causes else "below its roof, cause not measured"
        return "; ".join([*(rule.issue for rule in self._doubts), issue])

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
        fixes = self.causes[0].fixes if self.causes else (_COUNT,)
        if self.on_host:
            fixes = tuple(fix for fix in fixes if not any(word in fix for word in _GPU_WORDS)) or (_ON_HOST,)
        return "; ".join(dict.fromkeys([*(fix for rule in self._doubts for fix in rule.fixes), *fixes]))

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


def compute_losses(data: pd.DataFrame, limits: values.LimiterColumns) -> pd.DataFrame:
    """Compute how much time each row loses against its roof: a frame, its index the places of rows.

    Columns are pct (of its time; NaN without a roof), time_ms, lost_ms (of a launch), count (launches), total_ms (lost
    by all launches), step_ms and tokens (of the model's step; NaN where there is none, or a row of it has no time).
    """
    time_ms = np.where(values.has_time(data), values.numbers(data, "time_ms"), math.nan)
    pct = np.where(np.isnan(time_ms), math.nan, np.clip(100 - limits.pct_limit, 0, 100))
    losses = pd.DataFrame({"pct": pct, "time_ms": time_ms, "lost_ms": time_ms * pct / 100})
    losses["count"] = values.counts(data)
    losses["total_ms"] = losses["lost_ms"] * losses["count"]
    losses[["step_ms", "tokens"]] = math.nan
    if "count" in data.columns and len(data):
        keys = [values.words(data, name).astype(str).to_numpy() for name in STEP if name in data.columns]
        steps = pd.Series(values.total_ms(data)).groupby(keys or np.zeros(len(data)), sort=False)
        batch = values.numbers(data, "step_batch")
        batch = np.where(batch > 0, batch, 1.0)
        # A decode step makes one token for each sequence, a prefill one for each token of its context.
        decoding = values.words(data, "phase").isin(["", "decode"]).to_numpy(bool)
        losses["step_ms"] = steps.transform(lambda step: step.sum(skipna=False))
        losses["tokens"] = np.where(decoding, batch, batch * values.numbers(data, "context"))
        losses.loc[np.isnan(values.numbers(data, "count")), ["step_ms", "tokens"]] = math.nan
    return losses


def rank_losses(data: pd.DataFrame, top: int | None = 3) -> list[Finding]:
    """Rank the rows that lose time, the most first, each with the rules that match it."""
    if top is not None and (isinstance(top, bool) or not hasattr(top, "__index__") or int(top) < 1):
        raise ValueError(f"top is {repr_short(top)}: a whole number from 1 is needed, or None for all")
    limits = values.limiter_columns(data)
    losses = compute_losses(data, limits)
    losses = losses[(losses["pct"] >= LEAST) & (losses["total_ms"] > 0)]
    losses = losses.sort_values("total_ms", ascending=False, kind="stable")[: None if top is None else int(top)]
    places = losses.pop("total_ms").index.to_numpy()
    if not len(places):
        return []
    few = data.iloc[places]
    facts = zip(
        places.tolist(),
        values.labels_at(data, places),
        [("", *LIMITERS)[code] for code in limits.limiter[places]],
        _roof_sides(few, values.limiter_columns(few)),
        values.on_host(few).tolist(),
        map(tuple, match_rules(few)),
        losses.to_dict("records"),
        strict=True,
    )
    return [Finding(*own, **figures) for *own, figures in facts]


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
    frame = values.as_frame(data)
    found = find_strengths(frame).groupby("place").agg("; ".join)
    table = {"Kernel": values.labels_at(frame, found.index.to_numpy(np.int64)), "Strength": found["strength"]}
    return pd.DataFrame(table | {"Evidence": found["evidence"]}).astype("string").reset_index(drop=True)


def find_strengths(data: pd.DataFrame) -> pd.DataFrame:
    """Find the rows that need no work: columns place, strength, evidence; a line for each row and strength."""
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
    lines = [
        (place, name, text.format(ShortFloat(figure[place])))
        for mask, name, text, figure in kinds
        for place in np.flatnonzero(mask).tolist()
    ]
    return pd.DataFrame(lines, columns=["place", "strength", "evidence"]).sort_values("place", kind="stable")


BEYOND = 0.10  # excess over the time that the work explains
_TIMES = ("time_ms", "time_ms_lo", "time_ms_hi")


@dataclass(frozen=True, slots=True)
class Cliff:
    """Two neighbors along a parameter: `slow` takes more time than its work explains."""

    name: str
    fast: RowDict
    slow: RowDict
    work: float  # of `slow` over that of `fast`

    @property
    def time(self) -> float:
        """The time of `slow` over that of `fast`."""
        return float(self.slow["time_ms"] / self.fast["time_ms"])

    @property
    def text(self) -> str:
        """One line: "decode kv_len=15264 fp32: 33 % more time than kv_len=14994 for 1.8 % more work"."""
        before, after = (f"{self.name}={row[self.name]:g}" for row in (self.fast, self.slow))
        case = str(self.slow.get("case") or self.slow.get("operation"))
        named = f"{case if after in case else f'{case} {after}'} {self.slow['precision']}"
        work = f"{_percent(1 + abs(self.work - 1))} % {'more' if self.work > 1 else 'less'} work"
        old, new = (row.get("variant") for row in (self.fast, self.slow))
        kernels = "" if old == new else f" ({new} instead of {old})"
        return f"{named}: {_percent(self.time)} % more time than {before} for {work}{kernels}"


def find_cliffs(data: Any) -> list[Cliff]:
    """Find the cliffs of a frame along each parameter that varies alone, the largest first."""
    rows = to_rows(data)
    own = schema.extra_names(rows)
    cliffs: list[Cliff] = []
    for name in (*schema.param_names(), *own):
        lines: dict[tuple[object, ...], list[RowDict]] = defaultdict(list)
        for row in rows:
            if measured_or_none(row.get(name)) is not None:
                rest = (row["precision"], *(row.get(other) for other in own if other != name))
                lines[*configuration_key(row, without=(name, "case", "run_id")), *rest].append(row)
        cliffs += [cliff for line in lines.values() for cliff in find_cliffs_along(line, name)]
    return sorted(cliffs, key=lambda cliff: -cliff.time / cliff.work)


def find_cliffs_along(rows: Sequence[RowDict], name: str) -> list[Cliff]:
    """Find the cliffs of rows that differ in one parameter, or in the variant where its values repeat."""
    timed = [row for row in rows if is_comparable(row) and (measured_or_none(row["time_ms"]) or 0) > 0]
    repeats = len({row[name] for row in timed}) < len(timed)
    parts: dict[object, list[RowDict]] = defaultdict(list)
    for row in timed:
        parts[(row.get("variant"), row.get("run_id")) if repeats else None].append(row)
    pairs = [pair for part in parts.values() for pair in pairwise(sorted(part, key=_work))]
    return [cliff for less, more in pairs if (cliff := _compare(less, more, name)) is not None]


def _compare(less: RowDict, more: RowDict, name: str) -> Cliff | None:
    """Return the cliff between two rows in the order of their work, if there is one."""
    ratios = [after / before for before, after in zip(_work(less), _work(more), strict=True) if before > 0 < after]
    work = max(ratios, default=1.0)
    if work <= 1:
        return None
    scaled = {column: less[column] * work for column in _TIMES if less.get(column) is not None}
    if more["time_ms"] > scaled["time_ms"] and times_differ(scaled, more, gate=BEYOND):
        return Cliff(name, less, more, work)
    if more["time_ms"] < less["time_ms"] and times_differ(more, less):
        return Cliff(name, more, less, 1 / work)
    return None


def _work(row: RowDict) -> tuple[float, float]:
    return float((row["bytes_read"] or 0) + (row["bytes_written"] or 0)), float(row.get("flops") or 0)


def _percent(ratio: float) -> str:
    pct = 100 * (ratio - 1)
    return format_short(pct, ".0f" if pct >= 10 else ".2g")
