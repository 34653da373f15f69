"""`bwprof.diagnose`: test the hypotheses of `bwprof/data/hypotheses.toml` against the figures of rows."""

from __future__ import annotations

import dataclasses
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.analysis import values
from bwprof.analysis.diagnosis import hypothesis as constants
from bwprof.analysis.diagnosis import judges
from bwprof.analysis.diagnosis.figures import BEYOND, RowFigures
from bwprof.analysis.diagnosis.hypothesis import (
    BANDWIDTH,
    CANNOT_TELL,
    PIPES,
    REFUTED,
    SUPPORTED,
    Hypothesis,
    Judgment,
    Need,
    leave_open,
    near_memory,
)
from bwprof.analysis.rules import find_rule
from bwprof.text.parsing import finite_or_none, join_words, repr_short

if TYPE_CHECKING:
    import pandas as pd

_FILE = Path(__file__).parents[2] / "data" / "hypotheses.toml"


def _read_hypotheses() -> Iterator[Hypothesis]:
    for name, sheet in tomllib.loads(_FILE.read_text(encoding="utf-8")).items():
        yield Hypothesis(
            name,
            sheet["cause"],
            tuple(sheet["columns"]),
            sheet["threshold"].format(**{**vars(constants), **vars(judges)}),
            sheet["because"],
            tuple(sheet["fixes"]) if "fixes" in sheet else find_rule(sheet["rule"]).fixes,
            getattr(judges, sheet.get("judge", name)),
        )


HYPOTHESES = tuple(_read_hypotheses())
COLUMNS = ("case", "hypothesis", "verdict", "evidence", "threshold", "fixes", "expected_gain", "needs")
VERDICTS = (SUPPORTED, CANNOT_TELL, REFUTED)  # as they are ranked
MEMORY, CLOCK = "memory_bound", "clock_held_down"
_ROOFS = (MEMORY, "compute_bound")
_ON_HOST = (*_ROOFS, "launch_bound", "materialized", CLOCK)  # hypotheses that need no counters
_OF_OPERATORS = (*_ROOFS, "materialized")  # operators are no launches
_HOST = "nothing is counted on a CPU"

# What provides a figure on an AMD card.
_ROCPROF = {
    BANDWIDTH: Need(
        BANDWIDTH.figure, "--peak GB/S or parse_rocprof(path, peak_gb_s=...), of profile_memory's counters", ""
    ),
    PIPES: Need("VALUBusy, MemUnitStalled", "counters of RocprofSession", ""),
}

_MAX_NAMES = 3  # missing figures that a sentence names
_AGAIN = Need("figures that agree", "measure again", "")


class HypothesisVerdict(NamedTuple):
    """A hypothesis and the judgment on it."""

    hypothesis: Hypothesis
    judgment: Judgment

    @property
    def verdict(self) -> str:
        """supported, refuted or cannot tell."""
        return self.judgment.verdict


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One row, its name, and the verdicts on it: supported ones first, causes before symptoms."""

    case: str
    figures: RowFigures
    verdicts: tuple[HypothesisVerdict, ...]

    @property
    def row(self) -> Mapping[str, Any]:
        """The row."""
        return self.figures.row

    @property
    def doubts(self) -> list[str]:
        """The flags that doubt its figures."""
        return self.figures.doubts

    def of(self, verdict: str) -> list[HypothesisVerdict]:
        """Select the hypotheses with one verdict."""
        return [entry for entry in self.verdicts if entry.verdict == verdict]

    @property
    def sentence(self) -> str:
        """What limits the row."""
        causes = self.of(SUPPORTED)
        clock = CLOCK in (entry.hypothesis.name for entry in causes)
        flags = [flag for flag in self.doubts if flag != "throttled" or not clock]
        name = self.case + (f" (in doubt: {', '.join(flags)})" if flags else "")
        if not causes:
            return f"{name}: {self._describe_open()}."
        first, *rest = causes
        also = f", and by {join_words([entry.hypothesis.cause for entry in rest])}" if rest else ""
        gain = f"; without that at most {gain_text(first.judgment.gain)} as fast"
        if first.hypothesis.name == MEMORY:
            more = "larger launches, or several as one, reach more"
            gain = f"; {more if self.figures.small else 'only fewer bytes make it faster'}"
        elif not first.judgment.gain >= judges.WORTH:
            gain = ""
        return f"{name}: limited by {first.hypothesis.cause} ({first.judgment.evidence}){also}{gain}."

    def _describe_open(self) -> str:
        """Describe a row of which no hypothesis is supported."""
        unsettled = self.of(CANNOT_TELL)
        if len(unsettled) == len(self.verdicts) and len({entry.judgment for entry in unsettled}) == 1:
            return unsettled[0].judgment.evidence
        far = [entry.hypothesis.cause for entry in self.of(REFUTED) if entry.hypothesis.name in _ROOFS]
        parts = [_describe_position(self.figures), f"not limited by {' or '.join(far)}" if far else ""]
        missing = _list_missing([need for entry in unsettled for need in entry.judgment.needs if need.has_source])
        if any(entry.judgment.evidence == _HOST for entry in unsettled):
            parts.append(f"more cannot be told: {_HOST}")
        else:
            parts.append(f"more cannot be told yet, missing: {missing}" if missing else "nothing else stands out")
        return "; ".join(filter(None, parts))


def gain_text(gain: float) -> str:
    """Format a speed-up: '1.14 times', '33 times'."""
    return f"{gain:.3g} times" if gain < 1e4 else f"{gain:.1g} times"


def diagnose(data: Any, *, latency_us: float | None = None) -> pd.DataFrame:
    """Explain why a kernel is slow: support, refute or leave open each hypothesis by the row's figures.

    Parameters
    ----------
    data : pandas.DataFrame, or a row
        From `bwprof.measure(fn, counters=True, metrics="all")`, `bwprof.sweep`, or a profiler's file that
        `bwprof.importers` reads. More columns settle more hypotheses. To a profiler's rows you may add `bytes_read`
        and `bytes_written`: the bytes that the kernel has to move.
    latency_us : float, optional
        Latency of the device's memory under load, for Little's law. The default is the row's `memory_latency_us`,
        else 0.7, which the evidence marks as assumed.

    Returns
    -------
    pandas.DataFrame
        A line for each row and hypothesis: case, hypothesis, verdict ("supported", "refuted", "cannot tell"), evidence,
        threshold with its reason, fixes, expected_gain (the speed-up at most without this cause; NaN where it is not
        known), needs (what would settle it: bwprof's option, or the preset of `bwprof.importers.ncu_command`). Each
        row's supported hypotheses come first, causes before symptoms, then the open ones. ``attrs["answers"]`` holds
        a sentence for each row.

    Raises
    ------
    ValueError
        For a latency that is no positive number.
    TypeError
        For data that are no rows.

    Notes
    -----
    A kernel is memory-bound near the bandwidth roof: that of a measured stream of its bytes, else theory. Far from both
    roofs, the stall reasons decide. Figures of a row with `flags` must pass a threshold by a tenth.

    Examples
    --------
    >>> import bwprof
    >>> row = {"case": "copy", "time_ms": 0.5, "dram_pct": 88.0, "sm_pct": 9.7, "bank_conflicts": 0}
    >>> found = bwprof.diagnose(row).set_index("hypothesis")["verdict"]
    >>> found["memory_bound"], found["latency_bound"], found["spills"]
    ('supported', 'refuted', 'cannot tell')
    """
    import pandas as pd

    diagnoses = diagnose_rows(data, latency_us=latency_us)
    lines = [_table_line(row, *entry) for row in diagnoses for entry in row.verdicts]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    frame = frame.astype({name: float if name == "expected_gain" else "string" for name in COLUMNS})
    frame.attrs["answers"] = tuple(row.sentence for row in diagnoses)
    return frame


def _table_line(row: Diagnosis, hypothesis: Hypothesis, judgment: Judgment) -> tuple[Any, ...]:
    doubt = f" (in doubt: {', '.join(row.doubts)})" if row.doubts and judgment.verdict != CANNOT_TELL else ""
    threshold, evidence = f"{hypothesis.threshold}: {hypothesis.because}", judgment.evidence + doubt
    fixes = "; ".join(hypothesis.fixes) if judgment.verdict == SUPPORTED else ""
    needs = "; ".join(map(str, judgment.needs))
    return row.case, hypothesis.name, judgment.verdict, evidence, threshold, fixes, judgment.gain, needs


def diagnose_rows(data: Any, *, latency_us: float | None = None) -> list[Diagnosis]:
    """Diagnose rows as `diagnose` does, and return objects."""
    latency = None if latency_us is None else finite_or_none(latency_us)
    if latency_us is not None and not (latency is not None and latency > 0):
        raise ValueError(f"latency_us is {repr_short(latency_us)}: a positive number of microseconds is needed")
    frame = values.as_frame(values.as_row(data) if getattr(data, "ndim", 0) == 1 else data)
    bare = frame.set_axis([str(name) for name in frame.columns], axis=1)
    bare.attrs = {}
    # Not ncu's thousands of metrics, from which the other columns are made.
    rows: list[Any] = bare[[name for name in bare.columns if "__" not in name]].to_dict("records")
    rows = rows or [{} for _ in range(len(frame))]  # pandas 2.0 has no records of rows without columns
    diagnoses = []
    for name, row in zip(_row_names(frame), rows, strict=True):
        figures = RowFigures(row, latency)
        verdicts = [HypothesisVerdict(hypothesis, _judge(hypothesis, figures)) for hypothesis in HYPOTHESES]
        verdicts.sort(key=lambda entry: (VERDICTS.index(entry.verdict), entry.judgment.follows))
        diagnoses.append(Diagnosis(name, figures, tuple(verdicts)))
    return diagnoses


def _row_names(frame: pd.DataFrame) -> list[str]:
    """Name rows; number the launches of a kernel that has several."""
    names = values.labels(frame)
    if "kernel" in frame.columns and "case" not in frame.columns:
        kernels = values.words(frame, "kernel").astype(str)
        names = [
            kernel.partition("(")[0].removeprefix("void ") or name for kernel, name in zip(kernels, names, strict=True)
        ]
    if "launch" not in frame.columns:
        return names
    often = Counter(names)
    return [
        f"{name} (launch {number})" if often[name] > 1 else name
        for name, number in zip(names, frame["launch"].tolist(), strict=True)
    ]


def _describe_position(figures: RowFigures) -> str:
    """Describe a row that is neither near the memory roof nor certainly far from it; "" elsewhere."""
    verdict = near_memory(figures, doubted=figures.unsure)
    if not figures.memory.known or verdict == SUPPORTED:
        return ""
    if figures.memory.pct > BEYOND:
        return f"at {figures.memory.text}, which cannot be"
    if figures.memory.least:
        return f"at {figures.memory.text}, by the bytes stated"
    return f"between roof and latency ({figures.memory.text})" if verdict == CANNOT_TELL else ""


def _judge(hypothesis: Hypothesis, figures: RowFigures) -> Judgment:
    """Judge a hypothesis, but not by figures that are missing or cannot be right."""
    status, reason = figures.word("status"), figures.word("reason")
    if status not in ("", "ok"):
        return leave_open(f"nothing was measured: {status}" + (f" ({reason})" if reason else ""), _AGAIN)
    wrong = [why for columns, why in figures.contradictions if columns & set(hypothesis.columns)]
    if wrong:
        return leave_open(f"contradictory: {'; '.join(wrong)}", _AGAIN)
    if figures.on_host and hypothesis.name not in (_OF_OPERATORS if figures.is_operator else _ON_HOST):
        return leave_open(_HOST)
    judgment = hypothesis.judge(figures)
    needs = judgment.needs
    if figures.on_host:
        needs = tuple(need for need in needs if not need.preset)
    elif figures.of_amd:  # neither bwprof nor ncu counts on AMD cards
        needs = tuple(_ROCPROF.get(need, Need(need.figure, "", "")) for need in needs)
    return dataclasses.replace(judgment, needs=needs)


def _list_missing(needs: list[Need]) -> str:
    """List the most frequent figures, and count the rest; a name that begins another one is left out."""
    names = Counter(need.figure for need in [need for need in needs if need.has_option] or needs)
    often = [name for name, _ in names.most_common() if not any(other.startswith(f"{name} ") for other in names)]
    if len(often) <= _MAX_NAMES + 1:
        return ", ".join(often)
    return f"{', '.join(often[:_MAX_NAMES])} and {len(often) - _MAX_NAMES} more figures"
