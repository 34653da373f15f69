"""The answer first: what limits a run, where its time is lost, what would help; the tables behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof.analysis import values
from bwprof.analysis.causes.checks import checklist
from bwprof.analysis.causes.losses import losses
from bwprof.analysis.causes.ranking import Finding, bottlenecks, ranked, strengths, strong
from bwprof.analysis.causes.rules import AT_ROOF
from bwprof.analysis.improvement import improvement_table, precisions_of, why_the_same
from bwprof.analysis.narrowing import speedup_line
from bwprof.analysis.utilization import utilization_table
from bwprof.results.schema import CLASSIC_NAMES, is_missing
from bwprof.roofs.limits import LIMITERS
from bwprof.text import counted, seconds_text

if TYPE_CHECKING:
    import pandas as pd

# The next narrower precision that one would think of.
NEXT = (("fp16", "fp8_e4m3"), ("bf16", "fp8_e4m3"), ("fp32", "fp16"))
_LIMITS = {
    "memory": "memory",
    "compute": "arithmetic",
    "latency": "launch latency",
    "kernel": "the kernel itself (below half of its roof)",
}


@dataclass(frozen=True)
class Answer:
    """What a frame's rows say together.

    Attributes
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep`, `bwprof.load` or others.
    top : int
        How many bottlenecks.
    peak_gb_s : float, optional
        For rows that have no theoretical bandwidth of their own.
    """

    data: pd.DataFrame
    top: int = 3
    peak_gb_s: float | None = None

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The rows without those that are only predicted, unless all are; a shape that stands in several of a model's
        steps, which differ in their formats, once.
        """
        held = ~values.is_word(self.data, "status", "predicted")
        return values.once(self.data[held] if (held & values.usable(self.data)).any() else self.data)

    @cached_property
    def usable(self) -> pd.DataFrame:
        """Of them, the rows with a time."""
        return self.measured[values.usable(self.measured)]

    @cached_property
    def limits(self) -> values.Limits:
        """What limits them."""
        return values.limits_of(self.usable)

    @cached_property
    def findings(self) -> list[Finding]:
        """The bottlenecks."""
        return ranked(self.measured, self.top)

    def has_peaks(self) -> bool:
        """Whether there are rows, and each knows its theoretical bandwidth."""
        return len(self.usable) > 0 and bool((values.numbers(self.usable, "peak_gb_s") > 0).all())

    def lines(self) -> list[str]:
        """The answer: what limits, what is lost, what a narrower precision would buy; nothing that is not known."""
        return [line for line in (self.limiting(), self.losing(), self.buying(), self.leaving_out()) if line]

    def limiting(self) -> str:
        """What limits how many rows, and what cannot be told."""
        if not len(self.usable):
            return f"none of {_rows(len(self.data))} has a time: there is nothing to say"
        open_, total = int((self.limits.limiter == 0).sum()), len(self.usable)
        if open_ == total:
            return f"what limits is not known of {_rows(total)}: no roofs are beside them (measure without --no-roofs)"
        held = [f"{count} by {_LIMITS[name]}" for name, count in self._held()]
        held[0] = held[0].replace(" by ", f" of {_rows(total)} {'are' if total != 1 else 'is'} limited by ", 1)
        at_roof = int(((self.limits.pct_limit >= AT_ROOF) & self.limits.by("memory", "compute")).sum())
        said = f"{', '.join(held)}; {at_roof} at {'their' if total != 1 else 'its'} roof"
        return said + (f"; of {open_} it is not known" if open_ else "")

    def _held(self) -> list[tuple[str, int]]:
        """How many rows each limiter holds, the most first."""
        found = [(name, int(self.limits.by(name).sum())) for name in LIMITERS]
        return sorted((pair for pair in found if pair[1]), key=lambda pair: -pair[1])

    def brief(self) -> list[str]:
        """The same in a few short lines, for the end of a sweep; none where no row's limiter is known."""
        if not len(self.usable) or not (self.limits.limiter > 0).any():
            return []
        held = ", ".join(f"{name} {count}" for name, count in self._held())
        lines = [f"limited by: {held} of {_rows(len(self.usable))}"]
        if self.findings:
            first = self.findings[0]
            lines.append(f"most time lost: {first.label}: {first.issue}, {first.gain}")
        bought = self.buying().partition(";")[0]
        return [*lines, bought] if bought and "no gain" not in bought else lines

    def losing(self) -> str:
        """The time lost against the roofs, and where most of it is."""
        if not self.findings:
            return ""
        lost = losses(self.usable, self.limits)
        known = ~np.isnan(lost.total_ms)
        whole = float((values.numbers(self.usable, "time_ms") * lost.count)[known].sum())
        first = self.findings[0]
        gone = seconds_text(float(lost.total_ms[known].sum()) / 1e3)
        of = f"{gone} of {seconds_text(whole / 1e3)} are lost against the roofs"
        return f"{of}; most by {first.label}: {first.issue}, {first.gain}"

    def buying(self) -> str:
        """What the next narrower precision would bring."""
        there = precisions_of(self.usable) if len(self.usable) else []
        step = next((pair for pair in NEXT if pair[0] in there), None)
        if step is None or not (self.limits.limiter > 0).any() or not _classic(self.data):
            return ""
        line = speedup_line(self.data, *step)
        return "" if ": not known" in line else line

    def leaving_out(self) -> str:
        """The rows that nothing but what narrower formats bring is said of."""
        count = int(values.usable(self.data).sum()) - len(self.usable)
        return f"left out: {_rows(count)} whose times are predicted, or stand in another step already" if count else ""

    def utilization(self) -> pd.DataFrame:
        """The table of utilisation."""
        return utilization_table(self.measured, peak_gb_s=self.peak_gb_s)

    def strengths(self) -> pd.DataFrame:
        """What needs no work."""
        return strengths(self.measured)

    def bottlenecks(self) -> pd.DataFrame:
        """What costs the most time."""
        return bottlenecks(self.measured, self.top)

    def improvement(self) -> tuple[pd.DataFrame, str]:
        """FP32 beside FP16, and why the ratio of bandwidths may be one; empty without such rows."""
        import pandas as pd

        if not _classic(self.data):
            return pd.DataFrame(), ""
        return improvement_table(self.data), why_the_same(self.data)

    def checklist(self) -> pd.DataFrame:
        """The sixteen questions."""
        return checklist(self.data)

    def to_dict(self, *, with_checklist: bool = False) -> dict[str, Any]:
        """Everything in plain types, for JSON."""
        tables = {
            "utilization": self.utilization(),
            "strengths": self.strengths(),
            "bottlenecks": self.bottlenecks(),
            "improvement": self.improvement()[0],
        }
        if with_checklist:
            tables["checklist"] = self.checklist()
        return {"summary": self.lines(), **{name: table.to_dict(orient="records") for name, table in tables.items()}}


def grouped_strengths(data: Any) -> list[str]:
    """Strengths in few lines: each with the cases that have it, and their precisions where not all of them do."""
    frame = values.as_frame(data)
    case, operation = (values.words(frame, name).astype(str) for name in ("case", "operation"))
    names = case.where(case != "", operation).tolist()
    told = [label.removeprefix(name).strip() for label, name in zip(values.labels(frame), names, strict=True)]
    held = Counter(name for name, usable in zip(names, values.usable(frame), strict=True) if usable)
    found: dict[str, dict[str, list[str]]] = {}
    for place, words, _ in strong(frame):
        for word in words:
            found.setdefault(word, {}).setdefault(names[place], []).append(told[place])
    return [
        f"{word}: " + ", ".join(_told(name, which, held[name]) for name, which in cases.items())
        for word, cases in found.items()
    ]


def _told(name: str, which: list[str], whole: int) -> str:
    """A case, and which of its rows where these are not all."""
    return name if len(which) == whole or not any(which) else f"{name} ({', '.join(which)})"


def markdown(table: pd.DataFrame) -> str:
    """A frame of words as a table in Markdown.

    Examples
    --------
    >>> import pandas as pd
    >>> print(markdown(pd.DataFrame({"Kernel": ["copy"], "Status": ["good"]})))
    | Kernel | Status |
    |---|---|
    | copy | good |
    """
    lines = [list(map(_cell, table.columns)), *([_cell(cell) for cell in row] for row in table.itertuples(index=False))]
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * len(table.columns), *rows[1:]])


def _cell(value: Any) -> str:
    return "" if is_missing(value) else str(value).replace("|", "\\|").replace("\n", " ")


def _rows(count: int) -> str:
    return counted(count, "row")


def _classic(data: pd.DataFrame) -> bool:
    return set(CLASSIC_NAMES) <= set(data.columns)
