"""The answer first: what limits a run, where its time is lost, what would help; the tables behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import registry
from bwprof.analysis import values
from bwprof.analysis.bandwidth import IMPOSSIBLE
from bwprof.analysis.bottleneck import (
    LEAST,
    Finding,
    bottlenecks,
    compute_losses,
    find_strengths,
    rank_losses,
    strengths,
)
from bwprof.analysis.checks import checklist
from bwprof.analysis.cliffs import find_cliffs
from bwprof.analysis.gains import (
    NO_GAIN,
    explain_equal_bandwidth,
    improvement_table,
    limiter_text,
    list_precisions,
    summarize_speedup,
)
from bwprof.analysis.rules import AT_ROOF, is_at_roof
from bwprof.analysis.utilization import utilization_table
from bwprof.results.columns import CLASSIC_NAMES
from bwprof.roofs.limiter import LIMITERS, ONE_ROOF_SHARE
from bwprof.text.formatting import format_seconds, is_missing, plural
from bwprof.text.parsing import join_words

if TYPE_CHECKING:
    import pandas as pd

# The next narrower precision that one would think of.
NEXT = (("fp16", "fp8_e4m3"), ("bf16", "fp8_e4m3"), ("fp32", "fp16"))

_MOST_FLAGS = 3  # named

_NO_ROOFS = "what the device allows (its roofs) was not measured beside (measure without --no-roofs)"

_NO_WORK = "the rows have no bytes and no FLOPs (state bytes_read=, bytes_written= or flops=)"

_BELOW = (
    f"below {100 * ONE_ROOF_SHARE:.0f} % of the peak arithmetic, the launch or the kernel may limit as well; roofs "
    "tell which (measure without --no-roofs)"
)

_ABOVE = "faster than it allows, which cannot be: check before use (above_attainable)"


@dataclass(frozen=True)
class Answer:
    """What a frame's rows say together.

    Attributes
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep`, `bwprof.load` or others.
    top : int
        How many bottlenecks.
    """

    data: pd.DataFrame
    top: int = 3

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The rows without those that are only predicted, unless all are; a shape that stands in several of a model's
        steps, which differ in their formats, once.
        """
        held = ~values.is_word(self.data, "status", "predicted")
        return values.drop_repeated_shapes(self.data[held] if (held & values.has_time(self.data)).any() else self.data)

    @cached_property
    def usable(self) -> pd.DataFrame:
        """Of them, the rows with a time."""
        return self.measured[values.has_time(self.measured)]

    @cached_property
    def limits(self) -> values.LimiterColumns:
        """What limits them."""
        return values.limiter_columns(self.usable)

    @cached_property
    def findings(self) -> list[Finding]:
        """The bottlenecks."""
        return rank_losses(self.measured, self.top)

    def lines(self) -> list[str]:
        """The answer: what limits, what could be won and by what, how sure that is; nothing that is not known."""
        lines = (self.limiting(), self._impossible(), self.losing(), self.buying(), self.trusting())
        return [line for line in lines if line]

    def _impossible(self) -> str:
        """How many rows are faster than the memory's peak."""
        count = int(self.utilization()["Status"].eq(IMPOSSIBLE).sum())
        text = f"{plural(count, self._noun())} {_are(count)} faster than the memory's peak, which is impossible"
        return f"{text}: bytes, time or peak are wrong." if count else ""

    def limiting(self) -> str:
        """What limits how many rows, and what cannot be told."""
        if not len(self.usable):
            return self._nothing()
        open_, total = int((self.limits.limiter == 0).sum()), len(self.usable)
        peaks = values.numbers(self.usable, "peak_gb_s")[self.limits.limiter == 0] > 0
        if open_ == total:
            work = [values.numbers(self.usable, name) for name in ("bytes_read", "bytes_written", "flops")]
            why = _BELOW if peaks.all() else _NO_ROOFS if any((of > 0).any() for of in work) else _NO_WORK
            return f"What limits {'the ' if total > 1 else ''}{plural(total, self._noun())} is not known: {why}."
        at_roof, above = int(is_at_roof(self.usable, self.limits).sum()), int(values.is_above_roof(self.usable).sum())
        beyond = f"; {above} {'is' if above == 1 else 'are'} {_ABOVE}" if above else ""
        left = f"; of {open_} it is not known what limits {'it' if open_ == 1 else 'them'}" if open_ else ""
        left += f": {_BELOW}" if open_ and peaks.all() else ""
        return f"{self._limited()}; {_at_roof(at_roof, total, predicted=self._is_predicted())}{beyond}{left}."

    def _limited(self) -> str:
        """What limits how many of them."""
        held, total = self._held(), len(self.usable)
        if held[0][1] == total:
            every = _every(total)
            what = f"{every[0].upper()}{every[1:]} {self._noun()}{'s are' if total > 1 else ' is'}"
            return f"{what} limited by {limiter_text(held[0][0], total)}"
        told = [f"{count} by {limiter_text(name, count)}" for name, count in held]
        told[0] = told[0].replace(" by ", f" {_are(held[0][1])} limited by ", 1)
        return f"Of {plural(total, self._noun())}, {join_words(told)}"

    def _nothing(self) -> str:
        """Why there is nothing to conclude."""
        if not len(self.data):
            return "There are no measurements: there is nothing to conclude."
        states = Counter(word or "without a time" for word in values.words(self.data, "status").astype(str))
        why = Counter(word for word in values.words(self.data, "reason").astype(str) if word)
        most = f"; most often: {why.most_common(1)[0][0]}" if why else ""
        told = ", ".join(f"{count} {'without a time' if name == 'ok' else name}" for name, count in states.items())
        what = plural(len(self.data), "measurement")
        return f"None of {what} gave a time ({told}{most}): there is nothing to conclude."

    def _noun(self) -> str:
        """What the rows with a time are."""
        return "prediction" if self._is_predicted() else "measurement"

    def _is_predicted(self) -> bool:
        """Whether nobody has measured any of them."""
        return bool(values.is_word(self.usable, "status", "predicted").all())

    def _held(self) -> list[tuple[str, int]]:
        """How many rows each limiter holds, the most first."""
        found = [(name, int(self.limits.by(name).sum())) for name in LIMITERS]
        return sorted((pair for pair in found if pair[1]), key=lambda pair: -pair[1])

    def brief(self) -> list[str]:
        """The same in a few short lines, for the end of a sweep; none where no row's limiter is known."""
        if not len(self.usable) or not (self.limits.limiter > 0).any():
            return []
        held = ", ".join(f"{name} {count}" for name, count in self._held())
        lines = [f"limited by: {held} of {plural(len(self.usable), 'row')}"]
        if self.findings:
            first = self.findings[0]
            lines.append(f"most time lost: {first.label}: {first.issue}, {first.gain}")
        bought = self.buying()
        return [*lines, bought.partition(";")[0].removesuffix(".")] if bought and NO_GAIN not in bought else lines

    def losing(self) -> str:
        """The time that better kernels would win, and where most of it is."""
        if not self.findings:
            told = len(self.usable) > 0 and bool((self.limits.limiter > 0).any())
            return f"Better kernels would win little: none loses {LEAST:.0f} % of its time or more." if told else ""
        lost = compute_losses(self.usable, self.limits)
        known = ~np.isnan(lost.total_ms)
        whole = float((values.numbers(self.usable, "time_ms") * lost.count)[known].sum())
        first = self.findings[0]
        gone = format_seconds(float(lost.total_ms[known].sum()) / 1e3)
        of = f"Up to {gone} of {format_seconds(whole / 1e3)} could be won by kernels as fast as the device allows"
        return f"{of}; the most in {first.label} ({first.issue}), {first.gain}."

    def buying(self) -> str:
        """What the next narrower precision would bring."""
        there = list_precisions(self.usable) if len(self.usable) else []
        steps = [pair for pair in NEXT if pair[0] in there and not self._only_thought_of(*pair)]
        if not (self.limits.limiter > 0).any() or not _classic(self.data):
            return ""
        lines = (summarize_speedup(self.data, *step) for step in steps)
        return next((f"{line[0].upper()}{line[1:]}." for line in lines if ": not known" not in line), "")

    def _only_thought_of(self, wide: str, narrow: str) -> bool:
        """Whether nothing runs the rows' operations in another precision on their device, a CPU."""
        own = self.usable[values.is_word(self.usable, "precision", wide)]
        pairs = set(
            zip(values.words(own, "operation").astype(str), values.words(own, "backend").astype(str), strict=True)
        )
        return bool(pairs) and all(registry.lacks_kernel(name, narrow, backend) for name, backend in pairs)

    def trusting(self) -> str:
        """How sure the figures are: what was checked, what is doubted, what is left out."""
        total = len(self.usable)
        if not total:
            return ""
        said = [*self._checked(total), *self._doubted(total)]
        without = values.words(self.data[~values.has_time(self.data)], "status").astype(str)
        gone = Counter(name for name in without if name not in ("", "ok", "predicted"))
        said += [
            f"{count} more {name if name == 'failed' else f'{_was(count)} {name}'}" for name, count in gone.items()
        ]
        out = int(values.has_time(self.data).sum()) - total
        said += [f"{plural(out, 'row')} of predicted times, or of another step's shapes, left out"] if out else []
        return f"How sure: {'; '.join(said)}."

    def _checked(self, total: int) -> list[str]:
        """Whether results are right; a time that was predicted has none."""
        if self._noun() == "prediction":
            return ["all of this is predicted, nothing was measured"]
        checked = int((values.words(self.usable, "verified").astype(str).str.lower() == "true").sum())
        if not checked:
            return ["whether the results are right was not checked"]
        done = f"{_was(checked)} checked and {_are(checked)} right"
        if checked == total:
            return [f"{_every(total)} {'results' if total > 1 else 'result'} {done}"]
        return [f"{checked} of {total} results {done}, the other {total - checked} {_was(total - checked)} not checked"]

    def _doubted(self, total: int) -> list[str]:
        """How many rows have flags, and which."""
        if "flags" not in self.usable.columns or self._noun() == "prediction":
            return []
        held = [word for word in values.words(self.usable, "flags").astype(str) if word]
        if not held:
            return ["none carries a warning" if total > 1 else "it carries no warning"]
        names = [name for name, _ in Counter(flag for word in held for flag in word.split(";")).most_common()]
        more = f" and {len(names) - _MOST_FLAGS} more" if len(names) > _MOST_FLAGS else ""
        which = "it carries" if total == 1 else f"{_every(total)} carry" if len(held) == total else ""
        which = which or f"{len(held)} of {total} {'carries' if len(held) == 1 else 'carry'}"
        return [f"{which} a warning ({', '.join(names[:_MOST_FLAGS])}{more}), and {_are(len(held))} less sure"]

    def utilization(self) -> pd.DataFrame:
        """The table of utilisation."""
        found = utilization_table(self.measured)
        guessed = len(found) > 0 and self._is_predicted()
        return found.rename(columns={"Measured BW": "Predicted BW"}) if guessed else found

    def strengths(self) -> pd.DataFrame:
        """What needs no work."""
        return strengths(self.measured)

    def bottlenecks(self) -> pd.DataFrame:
        """What costs the most time."""
        return bottlenecks(self.measured, self.top)

    def cliffs(self) -> list[str]:
        """Where a swept parameter's time jumps, the largest first."""
        found = find_cliffs(self.measured) if _classic(self.measured) else []
        more = [f"and {len(found) - self.top} more"] if len(found) > self.top else []
        return [*(cliff.text for cliff in found[: self.top]), *more]

    def improvement(self) -> tuple[pd.DataFrame, str]:
        """FP32 beside FP16, and why the ratio of bandwidths may be one; empty without such rows."""
        import pandas as pd

        if not _classic(self.data):
            return pd.DataFrame(), ""
        return improvement_table(self.data), explain_equal_bandwidth(self.data)

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
        return {
            "summary": self.lines(),
            "cliffs": self.cliffs(),
            **{name: table.to_dict(orient="records") for name, table in tables.items()},
        }


def fill_peak(data: pd.DataFrame, peak_gb_s: float, name: str) -> pd.DataFrame:
    """Give rows without a theoretical bandwidth this one; ValueError where each row with a time has its own."""
    own = values.numbers(data, "peak_gb_s")
    timed = values.has_time(data)
    if timed.any() and (own[timed] > 0).all():
        raise ValueError(f"--peak is for rows that have no peak_gb_s: all of {name} have one, leave it out")
    return data.assign(peak_gb_s=np.where(own > 0, own, peak_gb_s))


def group_strengths(data: Any) -> list[str]:
    """Strengths in few lines: each with the cases that have it, and their precisions where not all of them do."""
    frame = values.as_frame(data)
    case, operation = (values.words(frame, name).astype(str) for name in ("case", "operation"))
    names = case.where(case != "", operation).tolist()
    told = [label.removeprefix(name).strip() for label, name in zip(values.labels(frame), names, strict=True)]
    held = Counter(name for name, usable in zip(names, values.has_time(frame), strict=True) if usable)
    found: dict[str, dict[str, list[str]]] = {}
    for place, words, _ in find_strengths(frame):
        for word in words:
            found.setdefault(word, {}).setdefault(names[place], []).append(told[place])
    return [
        f"{word}: " + ", ".join(_name_case(name, which, held[name]) for name, which in cases.items())
        for word, cases in found.items()
    ]


def _name_case(name: str, which: list[str], whole: int) -> str:
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


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _every(total: int) -> str:
    return {1: "the", 2: "both"}.get(total, f"all {total}")


def _at_roof(count: int, total: int, *, predicted: bool) -> str:
    """How many are as fast as it gets, or would be."""
    share = f"{AT_ROOF:.0f} % or more of what the device allows"
    if not count and predicted:
        return f"{'none' if total > 1 else 'it'} would{'' if total > 1 else ' not'} run at {share}"
    if not count:
        return f"{'none runs' if total > 1 else 'it does not run'} at {share}"
    who = "it" if total == 1 else _every(total) if count == total else str(count)
    runs = "would run" if predicted else f"already {'runs' if count == 1 else 'run'}"
    return f"{who} {runs} at {share}"


def _classic(data: pd.DataFrame) -> bool:
    return set(CLASSIC_NAMES) <= set(data.columns)
