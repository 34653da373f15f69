"""`bwprof.diagnose`: hypotheses held against the figures of rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.analysis.diagnosis.access import WORTH
from bwprof.analysis.diagnosis.figures import BEYOND, Figures
from bwprof.analysis.diagnosis.hypotheses import HYPOTHESES
from bwprof.analysis.diagnosis.judging import (
    BANDWIDTH,
    CANNOT_TELL,
    PIPES,
    REFUTED,
    SUPPORTED,
    Hypothesis,
    Judgement,
    Need,
    near_memory,
    share_text,
    untold,
)
from bwprof.text import and_text, finite_number, shown

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("case", "hypothesis", "verdict", "evidence", "threshold", "fixes", "expected_gain", "needs")
VERDICTS = (SUPPORTED, CANNOT_TELL, REFUTED)  # as they are ranked
MEMORY, CLOCK = "memory_bound", "clock_held_down"
_ROOFS = (MEMORY, "compute_bound")
_ON_HOST = (*_ROOFS, "launch_bound", "materialised", CLOCK)  # what a CPU's rows tell of, whose work nothing counts
_OF_OPERATORS = (*_ROOFS, "materialised")  # which are no launch
_HOST = "nothing is counted on a CPU"
# What tells it of an AMD card.
_ROCPROF = {
    BANDWIDTH: Need(
        BANDWIDTH.figure, "--peak GB/S or parse_rocprof(path, peak_gb_s=...), of profile_memory's counters", ""
    ),
    PIPES: Need("VALUBusy, MemUnitStalled", "counters of RocprofSession", ""),
}
_NAMED = 3  # of the figures that a sentence says are missing
_AGAIN = Need("figures that agree", "measure again", "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a hypothesis."""

    hypothesis: Hypothesis
    judgement: Judgement

    @property
    def verdict(self) -> str:
        """supported, refuted or cannot tell."""
        return self.judgement.verdict


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One row, what it is called, and the verdicts on it, ranked: supported ones first, causes before symptoms."""

    place: int
    case: str
    row: dict[str, Any]
    doubts: tuple[str, ...]
    small: bool
    position: str
    verdicts: tuple[Verdict, ...]

    def of(self, verdict: str) -> list[Verdict]:
        """Those of one verdict."""
        return [found for found in self.verdicts if found.verdict == verdict]

    @property
    def sentence(self) -> str:
        """The answer."""
        told = self.of(SUPPORTED)
        clock = CLOCK in (found.hypothesis.name for found in told)
        named = [flag for flag in self.doubts if flag != "throttled" or not clock]
        doubt = f" (in doubt: {', '.join(named)})" if named else ""
        if not told:
            return f"{self.case}{doubt}: {self._open()}."
        first, *rest = told
        also = f", and by {and_text([found.hypothesis.said for found in rest])}" if rest else ""
        limit = f"limited by {first.hypothesis.said} ({first.judgement.evidence}){also}"
        return f"{self.case}{doubt}: {limit}{self._gain(first)}."

    def _gain(self, first: Verdict) -> str:
        """What to hope for."""
        if first.hypothesis.name == MEMORY:
            return (
                "; larger launches, or several as one, reach more"
                if self.small
                else "; only fewer bytes make it faster"
            )
        gain = first.judgement.gain
        return f"; without that at most {gain_text(gain)} as fast" if gain >= WORTH else ""

    def _open(self) -> str:
        """Where nothing is supported."""
        open_ones = self.of(CANNOT_TELL)
        if len(open_ones) == len(self.verdicts) and len({found.judgement for found in open_ones}) == 1:
            return open_ones[0].judgement.evidence
        parts = [self.position] if self.position else []
        far = [found.hypothesis.said for found in self.of(REFUTED) if found.hypothesis.name in _ROOFS]
        parts += [f"not limited by {' or '.join(far)}"] if far else []
        named = [need for found in open_ones for need in found.judgement.needs if need.is_told]
        needs = Counter(need.figure for need in [need for need in named if need.is_asked] or named)
        if any(found.judgement.evidence == _HOST for found in open_ones):
            return "; ".join([*parts, f"more cannot be told: {_HOST}"])
        parts.append(f"more cannot be told yet, missing: {_few(needs)}" if needs else "nothing else stands out")
        return "; ".join(parts)


def gain_text(gain: float) -> str:
    """A time ratio for people: '1.14 times', '33 times'."""
    return f"{gain:.3g} times" if gain < 1e4 else f"{gain:.1g} times"


def diagnose(data: Any, *, latency_us: float | None = None) -> pd.DataFrame:
    """Why a kernel is as slow as it is: hypotheses, each supported or refuted by its figures, or left open.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        Of `bwprof.measure(fn, counters=True, metrics="all")` or `bwprof.sweep`, or of another profiler's file that
        `bwprof.profilers` read. Only columns are looked at; more of them settle more. `bytes_read` and `bytes_written`
        may be added to a profiler's rows: what the kernel has to move.
    latency_us : float, optional
        Of the device's memory under load, for Little's law; else the row's `memory_latency_us`, else 0.7 is assumed,
        and said to be.

    Returns
    -------
    pandas.DataFrame
        A line for each row and hypothesis: case, hypothesis, verdict ("supported", "refuted", "cannot tell"), evidence,
        threshold with its reason, fixes, expected_gain (how many times as fast it would be at most without this: worked
        out from the row's figures; NaN where they do not tell), needs (what would settle it: bwprof's option, or the
        preset of `bwprof.profilers.ncu_command`). Of each row the supported ones come first, causes before what follows
        from them, then the open ones. ``attrs["answers"]`` holds a sentence for each row.

    Raises
    ------
    ValueError
        For a latency that is no positive number.
    TypeError
        For data that are no rows.

    Notes
    -----
    A kernel is memory-bound near the bandwidth roof (of a stream of its bytes where one was measured), which "DRAM
    below 70 %" does not tell: far from both roofs it is what warps wait for that does. Rows that doubt themselves
    (`flags`) must lie a tenth beyond a threshold; figures that contradict each other leave a hypothesis open.

    Examples
    --------
    >>> import bwprof
    >>> row = {"case": "copy", "time_ms": 0.5, "dram_pct": 88.0, "sm_pct": 9.7, "bank_conflicts": 0}
    >>> found = bwprof.diagnose(row).set_index("hypothesis")["verdict"]
    >>> found["memory_bound"], found["latency_bound"], found["spills"]
    ('supported', 'refuted', 'cannot tell')
    """
    import pandas as pd

    found = diagnoses(data, latency_us=latency_us)
    lines = [_line(row, verdict) for row in found for verdict in row.verdicts]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    text = [name for name in COLUMNS if name != "expected_gain"]
    frame = frame.astype(dict.fromkeys(text, "string") | {"expected_gain": float})
    frame.attrs["answers"] = tuple(row.sentence for row in found)
    return frame


def answer(data: Any, *, latency_us: float | None = None) -> list[str]:
    """What limits each row, a sentence each.

    Examples
    --------
    >>> answer({"case": "copy", "time_ms": 0.5, "dram_pct": 88.0})
    ["copy: limited by the memory's bandwidth (88 % of the theoretical bandwidth); only fewer bytes make it faster."]
    """
    return [row.sentence for row in diagnoses(data, latency_us=latency_us)]


def diagnoses(data: Any, *, latency_us: float | None = None) -> list[Diagnosis]:
    """The same as objects."""
    latency = None if latency_us is None else finite_number(latency_us)
    if latency_us is not None and not (latency is not None and latency > 0):
        raise ValueError(f"latency_us is {shown(latency_us)}: a positive number of microseconds is needed")
    frame = values.as_frame(values.row_of(data) if hasattr(data, "to_dict") and not hasattr(data, "columns") else data)
    rows = _rows(frame)
    return [_diagnosis(at, name, row, latency) for at, (name, row) in enumerate(zip(_names(frame), rows, strict=True))]


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row by its columns, without ncu's metrics under their own names, of which there are thousands: the columns
    made of them are what is looked at.
    """
    bare = frame.copy(deep=False)
    bare.attrs = {}  # else each column that is taken copies them
    names = [str(name) for name in bare.columns]
    kept = [at for at, name in enumerate(names) if "__" not in name]
    columns = [bare.iloc[:, at].tolist() for at in kept]
    labels = [names[at] for at in kept]
    if not columns:
        return [{} for _ in range(len(frame))]
    return [dict(zip(labels, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _names(frame: pd.DataFrame) -> list[str]:
    """What rows are called; several launches of a kernel by their numbers, too."""
    names = values.labels(frame)
    if "kernel" in frame.columns and "case" not in frame.columns:
        kernels = values.words(frame, "kernel").astype(str).tolist()
        names = [
            kernel.partition("(")[0].removeprefix("void ") or name for kernel, name in zip(kernels, names, strict=True)
        ]
    often = Counter(names)
    numbers = frame["launch"].tolist() if "launch" in frame.columns else list(range(len(names)))
    return [
        f"{name} (launch {number})" if often[name] > 1 and "launch" in frame.columns else name
        for name, number in zip(names, numbers, strict=True)
    ]


def _diagnosis(at: int, name: str, row: dict[str, Any], latency_us: float | None) -> Diagnosis:
    figures = Figures(row, latency_us)
    why = _unmeasured(figures)
    made = [Verdict(found, untold(why, _AGAIN) if why else _judged(found, figures)) for found in HYPOTHESES]
    ranked = sorted(made, key=lambda found: (VERDICTS.index(found.verdict), found.judgement.follows))
    return Diagnosis(
        at,
        name,
        row,
        tuple(figures.doubts),
        figures.small,
        _position(figures),
        tuple(ranked),
    )


def _position(figures: Figures) -> str:
    """Where it is in words, neither near the memory roof nor certainly far from it; "" elsewhere."""
    verdict = near_memory(figures, doubted=figures.unsure)
    if not figures.memory.known or verdict == SUPPORTED:
        return ""
    if figures.memory.pct > BEYOND:
        return f"at {share_text(figures.memory)}, which cannot be"
    if figures.memory.least:
        return f"at {share_text(figures.memory)}, by the bytes stated"
    return f"between roof and latency ({share_text(figures.memory)})" if verdict == CANNOT_TELL else ""


def _unmeasured(figures: Figures) -> str:
    status = figures.word("status")
    if status in ("", "ok"):
        return ""
    reason = figures.word("reason")
    return f"nothing was measured: {status}" + (f" ({reason})" if reason else "")


def _judged(hypothesis: Hypothesis, figures: Figures) -> Judgement:
    """The verdict; none on figures that cannot be right."""
    wrong = [said for columns, said in figures.contradictions if columns & set(hypothesis.columns)]
    if wrong:
        return untold(f"contradictory: {'; '.join(wrong)}", _AGAIN)
    if figures.on_host and hypothesis.name not in (_OF_OPERATORS if figures.is_operator else _ON_HOST):
        return untold(_HOST)
    found = hypothesis.judge(figures)
    if figures.on_host:
        return dataclasses.replace(found, needs=tuple(need for need in found.needs if not need.preset))
    if figures.of_amd:  # whose figures neither bwprof counts nor ncu
        needs = tuple(_ROCPROF.get(need, Need(need.figure, "", "")) for need in found.needs)
        return dataclasses.replace(found, needs=needs)
    return found


def _line(row: Diagnosis, found: Verdict) -> tuple[Any, ...]:
    held, told = found.hypothesis, found.judgement
    doubt = f" (in doubt: {', '.join(row.doubts)})" if row.doubts and told.verdict != CANNOT_TELL else ""
    needs = "; ".join(map(str, told.needs))
    threshold = f"{held.threshold}: {held.because}"
    fixes = "; ".join(held.fixes) if told.verdict == SUPPORTED else ""
    return row.case, held.name, told.verdict, told.evidence + doubt, threshold, fixes, told.gain, needs


def _few(names: Counter[str]) -> str:
    """Some of many names, the most frequent first, and how many more there are."""
    often = sorted(names, key=lambda name: -names[name])
    told = [name for name in often if not any(other.startswith(f"{name} ") for other in often)]
    if len(told) <= _NAMED + 1:
        return ", ".join(told)
    return f"{', '.join(told[:_NAMED])} and {len(told) - _NAMED} more figures"
