"""Summarize a run: what limits it, where time is lost, what would help, and the tables behind that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bwprof import registry
from bwprof.analysis import bottleneck, gains, values
from bwprof.analysis.bandwidth import IMPOSSIBLE, utilization_table
from bwprof.analysis.bottleneck import Finding
from bwprof.analysis.rules import AT_ROOF, checklist, is_at_roof
from bwprof.results.schema import CLASSIC_NAMES
from bwprof.roofs.limiter import LIMITERS, ONE_ROOF_SHARE
from bwprof.text.formatting import format_seconds, plural

_MAX_FLAGS = 3  # flags that a line names
_NO_ROOFS = "the device's roofs were not measured (measure without --no-roofs)"
_NO_WORK = "the rows have no bytes and no FLOPs (state bytes_read=, bytes_written= or flops=)"

_BELOW = (
    f"below {100 * ONE_ROOF_SHARE:.0f} % of the peak arithmetic, the launch or the kernel may limit as well; roofs "
    "tell which (measure without --no-roofs)"
)


@dataclass(frozen=True)
class Answer:
    """Summarize the rows of a frame, with the `top` bottlenecks."""

    data: pd.DataFrame
    top: int = 3

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The rows that are not predicted, or all where none is measured; shapes that model steps repeat, once."""
        own = ~values.is_word(self.data, "status", "predicted")
        return values.drop_repeated_shapes(self.data[own] if (own & values.has_time(self.data)).any() else self.data)

    @cached_property
    def usable(self) -> pd.DataFrame:
        """Of them, the rows with a time."""
        return self.measured[values.has_time(self.measured)]

    @cached_property
    def limits(self) -> values.LimiterColumns:
        """What limits the rows with a time."""
        return values.limiter_columns(self.usable)

    @cached_property
    def findings(self) -> list[Finding]:
        """The bottlenecks."""
        return bottleneck.rank_losses(self.measured, self.top)

    @property
    def _is_predicted(self) -> bool:
        return bool(values.is_word(self.usable, "status", "predicted").all())

    def lines(self) -> list[str]:
        """List what limits the rows, what could be won and by what, and how sure that is; only what is known."""
        count = int(self.utilization()["Status"].eq(IMPOSSIBLE).sum())
        lines = (
            self.limiter_line(),
            f"Impossible: {plural(count, 'row')} above the memory's peak: check bytes, time and peak." if count else "",
            self._loss_line(),
            self.narrower_line(),
            self._confidence_line(),
        )
        return [line for line in lines if line]

    def limiter_line(self) -> str:
        """Count the rows that each roof limits, and say why that is not known of others."""
        if not len(self.usable):
            return self._no_time_line()
        total = plural(len(self.usable), "prediction" if self._is_predicted else "measurement")
        unknown = self.limits.limiter == 0
        below_peak = (values.numbers(self.usable, "peak_gb_s")[unknown] > 0).all()
        if unknown.all():
            work = [values.numbers(self.usable, name) > 0 for name in ("bytes_read", "bytes_written", "flops")]
            why = _BELOW if below_peak else _NO_ROOFS if np.any(work) else _NO_WORK
            return f"Limits of {total}: not known: {why}."
        notes = {"kernel": " (below half of the roof)"}
        parts = [f"{gains.limiter_text(name)} {count}{notes.get(name, '')}" for name, count in self._count_limiters()]
        if unknown.any():
            parts.append(f"not known {unknown.sum()}" + (f" ({_BELOW})" if below_peak else ""))
        at_roof, above = is_at_roof(self.usable, self.limits).sum(), values.is_above_roof(self.usable).sum()
        beyond = f"; above the roof, which is impossible (above_attainable): {above}" if above else ""
        return f"Limits of {total}: {', '.join(parts)}. At {AT_ROOF:.0f} % or more of the roof: {at_roof}{beyond}."

    def _no_time_line(self) -> str:
        if not len(self.data):
            return "There are no measurements."
        statuses = values.words(self.data, "status").astype(str).replace("", "ok")
        counts = ", ".join(f"{name} {count}" for name, count in Counter(statuses).items())
        reasons = Counter(filter(None, values.words(self.data, "reason").astype(str))).most_common(1)
        often = f"; most often: {reasons[0][0]}" if reasons else ""
        return f"No time in {plural(len(self.data), 'row')} ({counts}{often})."

    def _count_limiters(self) -> list[tuple[str, int]]:
        """Count the rows of each limiter, the most first."""
        return Counter(LIMITERS[code - 1] for code in sorted(self.limits.limiter) if code).most_common()

    def brief(self) -> list[str]:
        """List the same in a few short lines for the end of a sweep; none where no row's limiter is known."""
        counts = ", ".join(f"{name} {count}" for name, count in self._count_limiters())
        if not counts:
            return []
        lines = [f"limited by: {counts} of {plural(len(self.usable), 'row')}"]
        if self.findings:
            first = self.findings[0]
            lines.append(f"most time lost: {first.label}: {first.issue}, {first.gain}")
        narrower = self.narrower_line()
        if narrower and gains.NO_GAIN not in narrower:
            lines.append(narrower.partition(";")[0].removesuffix("."))
        return lines

    def _loss_line(self) -> str:
        if not self.findings:
            text = f"Better kernels would win little: none loses {bottleneck.LEAST:.0f} % of its time or more."
            return text if (self.limits.limiter > 0).any() else ""
        losses = bottleneck.compute_losses(self.usable, self.limits)
        spent = (losses["time_ms"] * losses["count"])[losses["total_ms"].notna()]
        total, lost = (format_seconds(float(ms) / 1e3) for ms in (spent.sum(), losses["total_ms"].sum()))
        first = self.findings[0]
        return (
            f"Up to {lost} of {total} could be won by kernels as fast as the device allows; "
            f"the most in {first.label} ({first.issue}), {first.gain}."
        )

    def narrower_line(self) -> str:
        """Say what the next narrower precision would bring; "" where that is not known."""
        if not (self.limits.limiter > 0).any() or not _has_classic_columns(self.data):
            return ""
        timed = gains.list_precisions(self.usable)
        narrower = {name: registry.narrower_precisions(name) for name in registry.precision_names() if name in timed}
        for wide in sorted(narrower, key=lambda name: len(narrower[name])):  # the narrowest first
            narrow = next(iter(narrower[wide]), "")
            if narrow and ": not known" not in (line := gains.summarize_speedup(self.data, wide, narrow)):
                return f"{line}."
        return ""

    def _confidence_line(self) -> str:
        """Say what was checked, which rows carry warnings, and what is left out."""
        total = len(self.usable)
        if not total:
            return ""
        checked = int((values.words(self.usable, "verified").astype(str).str.lower() == "true").sum())
        parts = [f"results verified: {checked} of {total}"]
        if self._is_predicted:
            parts = ["all predicted, nothing measured"]
        elif "flags" in self.usable.columns:
            flagged = [word for word in values.words(self.usable, "flags").astype(str) if word]
            names = [name for name, _ in Counter(flag for word in flagged for flag in word.split(";")).most_common()]
            more = f" and {len(names) - _MAX_FLAGS} more" if len(names) > _MAX_FLAGS else ""
            parts.append(f"rows with warnings: {len(flagged)}")
            parts[-1] += f" ({', '.join(names[:_MAX_FLAGS])}{more})" if names else ""
        timed = values.has_time(self.data)
        statuses = Counter(values.words(self.data[~timed], "status").astype(str))
        parts += [f"{name}: {count}" for name, count in statuses.items() if name not in ("", "ok", "predicted")]
        others = int(timed.sum()) - total
        parts += [f"left out: {plural(others, 'row')} of predicted times or repeated shapes"] if others else []
        return f"How sure: {'; '.join(parts)}."

    def utilization(self) -> pd.DataFrame:
        """Tabulate each row's use of the theoretical peak."""
        table = utilization_table(self.measured)
        return table.rename(columns={"Measured BW": "Predicted BW"}) if len(table) and self._is_predicted else table

    def strengths(self) -> pd.DataFrame:
        """Tabulate the rows that need no work."""
        return bottleneck.strengths(self.measured)

    def bottlenecks(self) -> pd.DataFrame:
        """Tabulate the rows that lose the most time."""
        return bottleneck.bottlenecks(self.measured, self.top)

    def cliffs(self) -> list[str]:
        """List where a swept parameter's time jumps, the largest first."""
        cliffs = bottleneck.find_cliffs(self.measured) if _has_classic_columns(self.measured) else []
        more = [f"and {len(cliffs) - self.top} more"] if len(cliffs) > self.top else []
        return [*(cliff.text for cliff in cliffs[: self.top]), *more]

    def improvement(self) -> tuple[pd.DataFrame, str]:
        """Tabulate FP32 beside FP16, and explain ratios of bandwidth near one; empty without such rows."""
        if not _has_classic_columns(self.data):
            return pd.DataFrame(), ""
        return gains.improvement_table(self.data), gains.explain_equal_bandwidth(self.data)

    def checklist(self) -> pd.DataFrame:
        """Tabulate the sixteen questions."""
        return checklist(self.data)

    def to_dict(self, *, with_checklist: bool = False) -> dict[str, Any]:
        """Return everything in plain types, for JSON."""
        tables = {
            "utilization": self.utilization(),
            "strengths": self.strengths(),
            "bottlenecks": self.bottlenecks(),
            "improvement": self.improvement()[0],
        }
        if with_checklist:
            tables["checklist"] = self.checklist()
        records = {name: table.to_dict(orient="records") for name, table in tables.items()}
        return {"summary": self.lines(), "cliffs": self.cliffs(), **records}


def fill_peak(data: pd.DataFrame, peak_gb_s: float, name: str) -> pd.DataFrame:
    """Give rows without a theoretical bandwidth this one; ValueError where each row with a time has its own."""
    own = values.numbers(data, "peak_gb_s")
    timed = values.has_time(data)
    if timed.any() and (own[timed] > 0).all():
        raise ValueError(f"--peak is for rows that have no peak_gb_s: all of {name} have one, leave it out")
    return data.assign(peak_gb_s=np.where(own > 0, own, peak_gb_s))


def group_strengths(data: Any) -> list[str]:
    """List each strength with its cases, and their precisions where not all of a case's rows have it."""
    frame = values.as_frame(data)
    case, operation = (values.words(frame, name).astype(str) for name in ("case", "operation"))
    names = case.where(case != "", operation).tolist()
    totals = Counter(name for name, timed in zip(names, values.has_time(frame), strict=True) if timed)
    rows = [label.removeprefix(name).strip() for label, name in zip(values.labels(frame), names, strict=True)]
    groups: dict[str, dict[str, list[str]]] = {}
    found = bottleneck.find_strengths(frame)
    for place, word in zip(found["place"], found["strength"], strict=True):
        groups.setdefault(word, {}).setdefault(names[place], []).append(rows[place])
    return [
        f"{word}: "
        + ", ".join(
            name if len(own) == totals[name] or not any(own) else f"{name} ({', '.join(own)})"
            for name, own in cases.items()
        )
        for word, cases in groups.items()
    ]


def _has_classic_columns(data: pd.DataFrame) -> bool:
    return set(CLASSIC_NAMES) <= set(data.columns)
