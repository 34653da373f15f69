"""`bwprof.diagnose`: test hypotheses against the figures of rows.

The hypotheses are data: causes come before their symptoms, roofs and waiting last. "DRAM below 70 %" is no proof: a
kernel at half of the bandwidth may wait for latency, for barriers or for a grid that is too small. A figure between two
thresholds leaves a hypothesis open.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.analysis import values
from bwprof.analysis.diagnosis import judges
from bwprof.analysis.diagnosis.figures import BEYOND, RowFigures
from bwprof.analysis.diagnosis.hypothesis import (
    BANDWIDTH,
    CANNOT_TELL,
    NEAR_BEST_RATE,
    NEAR_PEAK,
    NEAR_PIPE,
    NEAR_STREAM,
    PIPES,
    REFUTED,
    SUPPORTED,
    WAITING,
    Hypothesis,
    Judgement,
    Need,
    leave_open,
    near_memory,
    share_text,
)
from bwprof.analysis.rules import find_rule
from bwprof.text.parsing import finite_or_none, join_words, repr_short

if TYPE_CHECKING:
    import pandas as pd

_DRAM = ("dram_pct", "dram_gb_s", "dram_bytes_read", "dram_bytes_written", "pct_attainable")
_RATE = ("tensor_pct", "fma_pct", "sm_pct", "issue_pct", "valu_busy_pct", "tflops")
_WAITS = ("stall_reasons",)

HYPOTHESES: tuple[Hypothesis, ...] = (
    Hypothesis(
        "clock_held_down",
        "a clock that is held down",
        ("throttle", "sm_clock_mhz"),
        f"the driver names a reason, and the clock is below {100 * judges.CLOCK.no:g} % of the highest",
        "the driver says why it lowers the clock; ncu lowers it itself to the base clock, which is no fault",
        ("cool it, or raise the power limit", "measure again", "ncu: --clock-control none"),
        judges.clock_is_reduced,
    ),
    Hypothesis(
        "launch_bound",
        "its launch",
        ("time_ms", "timer_floor_us", "wall_ms"),
        f"time at most {judges.AT_FLOOR.yes:g} empty launches (not known: {judges.SHORT_US.yes:g} us), or kernels "
        f"less than {judges.HOST.yes:g} % of the wall time",
        "a third of the time is then that of a kernel which does nothing",
        (*find_rule("latency").fixes, *find_rule("host_bound").fixes[1:]),
        judges.launch_bound,
    ),
    Hypothesis(
        "small_grid",
        "too small a grid",
        ("grid_blocks", "waves", "multiprocessors", "sm_cycles_ratio"),
        f"fewer blocks than multiprocessors, or over {100 * judges.TAIL:g} % of all rounds empty, of a single one, too",
        "multiprocessors without a block add nothing; blocks of equal work take whole rounds",
        ("more, smaller blocks", "split the reduction among blocks", "a persistent grid of as many blocks as fit"),
        judges.small_grid,
    ),
    Hypothesis(
        "spills",
        "spilled registers",
        ("local_bytes", "l2_bytes"),
        f"local memory is {judges.SPILLED.yes:g} % of the traffic (harmless up to {judges.SPILLED.no:g} %)",
        "local memory is what registers spill to, and arrays whose index only the run knows; it goes through L1",
        ("fewer sums a thread", *find_rule("spills").fixes[:3], "indices that the compiler knows"),
        judges.spills,
    ),
    Hypothesis(
        "uncoalesced",
        "uncoalesced accesses",
        ("load_efficiency_pct", "store_efficiency_pct", "sectors_per_load", "sectors_per_store", "lines_per_load"),
        f"less than {judges.EFFICIENCY.yes:g} % of the sectors used (fine from {judges.EFFICIENCY.no:g} %), or more "
        f"than {judges.SLACK * judges.WIDEST:g} sectors a request, or {judges.SLACK * judges.LINES:g} lines in busy L1",
        "32 lanes of 4, 8 or 16 bytes side by side need 4, 8 or 16 sectors: no width explains more than 16; fewer may "
        "still be too many for narrow lanes, which the efficiency tells",
        find_rule("uncoalesced").fixes,
        judges.uncoalesced,
    ),
    Hypothesis(
        "bank_conflicts",
        "bank conflicts in shared memory",
        ("bank_conflicts", "shared_wavefronts", "lds_bank_conflict_pct", *_WAITS),
        f"conflicts over {judges.CONFLICTS:g} % of the wavefronts, and {judges.SHARED_WAITS.yes:g} % of the stalls "
        "wait for shared memory",
        "a bare count says nothing: a large kernel has millions in a hundredth of its accesses",
        find_rule("bank_conflicts").fixes,
        judges.bank_conflicts,
    ),
    Hypothesis(
        "divergence",
        "divergent warps",
        ("active_threads", *_WAITS),
        f"at most {judges.ACTIVE.yes:g} of 32 threads take part in an instruction (fine from {judges.ACTIVE.no:g})",
        "a warp runs the branches of its threads one after the other; those that took another wait, and cost as much",
        ("threads of a warp on the same branch", "sort the work by its kind", "predicates instead of branches"),
        judges.divergence,
    ),
    Hypothesis(
        "materialised",
        "intermediates that go through memory",
        ("algorithmic_bytes_read", "algorithmic_bytes_written", "bytes_read", "bytes_written"),
        f"over {judges.STORED:g} times the compulsory bytes",
        "what is written to be read again moves twice",
        find_rule("materialised").fixes,
        judges.materialised,
    ),
    Hypothesis(
        "cache_thrash",
        "data that the caches did not keep",
        ("traffic_ratio", *_DRAM[:4]),
        f"counted over {judges.THRASH:g} times the bytes that it must move, while it waits for memory",
        "counters agree with formulas within 2 %; what is more was fetched again",
        find_rule("extra_traffic").fixes,
        judges.cache_thrash,
    ),
    Hypothesis(
        "low_occupancy",
        "low occupancy",
        ("occupancy_pct", "theoretical_occupancy_pct", "occupancy_limiter", *_WAITS),
        f"occupancy below {judges.OCCUPANCY:g} %, resources hold it there, no roof is near, few warps are ready",
        "50 to 75 % hide most latencies; a kernel at a roof needs no more warps",
        find_rule("low_occupancy").fixes,
        judges.low_occupancy,
    ),
    Hypothesis(
        "barriers",
        "barriers",
        _WAITS,
        f"{judges.BARRIERS.yes:g} % of the stalls (fine up to {judges.BARRIERS.no:g} %)",
        "warps that wait for each other ask for nothing",
        ("fewer barriers", "two buffers instead of one and a barrier", "smaller blocks", "even work between barriers"),
        judges.barriers,
    ),
    Hypothesis(
        "shared_memory_bound",
        "loads from shared memory",
        ("shared_pct", "shared_wavefronts", *_WAITS),
        f"{judges.SHARED_BOUND.yes:g} % of the stalls wait for shared memory ({judges.SHARED_BOUND.no:g} % where it is "
        f"busy {NEAR_PIPE.yes:g} % of the cycles), without conflicts to blame",
        "a load for each product or two: its pipe gives 128 bytes a cycle, whatever the arithmetic could do",
        ("more sums a thread in registers", "wider loads (16 bytes)", "tensor cores fed by ldmatrix"),
        judges.shared_memory_bound,
    ),
    Hypothesis(
        "issue_bound",
        "instruction issue",
        ("issue_pct", "sm_cycles_ratio"),
        f"an instruction issued in {NEAR_PIPE.yes:g} % of the cycles (far below {NEAR_PIPE.no:g} %), no pipe near",
        "a scheduler issues one instruction a cycle at most, whatever it is: addresses, loops and loads take the turns "
        "of arithmetic",
        ("wider loads", "more sums a thread for what it loads", "constant strides", "unroll"),
        judges.issue_bound,
    ),
    Hypothesis(
        "compute_bound",
        "arithmetic",
        (*_RATE, *_WAITS),
        f"a pipe busy {NEAR_PIPE.yes:g} % of the cycles (far below {NEAR_PIPE.no:g} %), or FLOPs at "
        f"{NEAR_BEST_RATE.yes:g} % of the best rate",
        "dependencies and issue leave a pipe little above 70 %; between, warps ready to issue tell",
        find_rule("compute").fixes,
        judges.compute_bound,
    ),
    Hypothesis(
        "memory_bound",
        "the memory's bandwidth",
        _DRAM,
        f"at least {NEAR_STREAM.yes:g} % of what a stream of its bytes reaches (far below {NEAR_STREAM.no:g} %), or "
        f"{NEAR_PEAK.yes:g} % of theory ({NEAR_PEAK.no:g} %)",
        "plain streams reach 85 to 95 % of the theoretical bandwidth",
        find_rule("at_memory_roof").fixes,
        judges.memory_bound,
    ),
    Hypothesis(
        "latency_bound",
        "the memory's latency",
        (*_DRAM, "occupancy_pct", "sectors_per_load", *_WAITS),
        f"no roof is near, {WAITING.yes:g} % of the stalls wait for memory (few below {WAITING.no:g} %), "
        "and fewer bytes are in flight than latency x bandwidth",
        "Little's law: bandwidth is bytes in flight over latency",
        find_rule("low_bytes_in_flight").fixes,
        judges.latency_bound,
    ),
)

COLUMNS = ("case", "hypothesis", "verdict", "evidence", "threshold", "fixes", "expected_gain", "needs")
VERDICTS = (SUPPORTED, CANNOT_TELL, REFUTED)  # as they are ranked
MEMORY, CLOCK = "memory_bound", "clock_held_down"
_ROOFS = (MEMORY, "compute_bound")
_ON_HOST = (*_ROOFS, "launch_bound", "materialised", CLOCK)  # hypotheses that need no counters
_OF_OPERATORS = (*_ROOFS, "materialised")  # operators are no launches
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
    """A hypothesis and the judgement on it."""

    hypothesis: Hypothesis
    judgement: Judgement

    @property
    def verdict(self) -> str:
        """supported, refuted or cannot tell."""
        return self.judgement.verdict


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
        gain = f"; without that at most {gain_text(first.judgement.gain)} as fast"
        if first.hypothesis.name == MEMORY:
            more = "larger launches, or several as one, reach more"
            gain = f"; {more if self.figures.small else 'only fewer bytes make it faster'}"
        elif not first.judgement.gain >= judges.WORTH:
            gain = ""
        return f"{name}: limited by {first.hypothesis.cause} ({first.judgement.evidence}){also}{gain}."

    def _describe_open(self) -> str:
        """Describe a row of which no hypothesis is supported."""
        unsettled = self.of(CANNOT_TELL)
        if len(unsettled) == len(self.verdicts) and len({entry.judgement for entry in unsettled}) == 1:
            return unsettled[0].judgement.evidence
        far = [entry.hypothesis.cause for entry in self.of(REFUTED) if entry.hypothesis.name in _ROOFS]
        parts = [_describe_position(self.figures), f"not limited by {' or '.join(far)}" if far else ""]
        missing = _list_missing([need for entry in unsettled for need in entry.judgement.needs if need.has_source])
        if any(entry.judgement.evidence == _HOST for entry in unsettled):
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
    A kernel is memory-bound near the bandwidth roof: that of a stream of its bytes where one was measured, else
    theory. Far from both roofs, the stall reasons decide. Figures of a row with `flags` must pass a threshold by a
    tenth. Figures that contradict each other leave a hypothesis open.

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
    lines = [_table_line(row, entry) for row in diagnoses for entry in row.verdicts]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    frame = frame.astype({name: float if name == "expected_gain" else "string" for name in COLUMNS})
    frame.attrs["answers"] = tuple(row.sentence for row in diagnoses)
    return frame


def diagnose_rows(data: Any, *, latency_us: float | None = None) -> list[Diagnosis]:
    """Diagnose rows as `diagnose` does, and return objects."""
    latency = None if latency_us is None else finite_or_none(latency_us)
    if latency_us is not None and not (latency is not None and latency > 0):
        raise ValueError(f"latency_us is {repr_short(latency_us)}: a positive number of microseconds is needed")
    frame = values.as_frame(values.as_row(data) if hasattr(data, "to_dict") and not hasattr(data, "columns") else data)
    bare = frame.set_axis([str(name) for name in frame.columns], axis=1)
    bare.attrs = {}
    # Not ncu's thousands of metrics, from which the other columns are made.
    rows: list[Any] = bare[[name for name in bare.columns if "__" not in name]].to_dict("records")
    return [_diagnose_row(name, RowFigures(row, latency)) for name, row in zip(_row_names(frame), rows, strict=True)]


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


def _diagnose_row(name: str, figures: RowFigures) -> Diagnosis:
    verdicts = [HypothesisVerdict(hypothesis, _judge(hypothesis, figures)) for hypothesis in HYPOTHESES]
    verdicts.sort(key=lambda entry: (VERDICTS.index(entry.verdict), entry.judgement.follows))
    return Diagnosis(name, figures, tuple(verdicts))


def _describe_position(figures: RowFigures) -> str:
    """Describe a row that is neither near the memory roof nor certainly far from it; "" elsewhere."""
    verdict = near_memory(figures, doubted=figures.unsure)
    if not figures.memory.known or verdict == SUPPORTED:
        return ""
    if figures.memory.pct > BEYOND:
        return f"at {share_text(figures.memory)}, which cannot be"
    if figures.memory.least:
        return f"at {share_text(figures.memory)}, by the bytes stated"
    return f"between roof and latency ({share_text(figures.memory)})" if verdict == CANNOT_TELL else ""


def _judge(hypothesis: Hypothesis, figures: RowFigures) -> Judgement:
    """Judge a hypothesis, but not by figures that are missing or cannot be right."""
    status, reason = figures.word("status"), figures.word("reason")
    if status not in ("", "ok"):
        return leave_open(f"nothing was measured: {status}" + (f" ({reason})" if reason else ""), _AGAIN)
    wrong = [why for columns, why in figures.contradictions if columns & set(hypothesis.columns)]
    if wrong:
        return leave_open(f"contradictory: {'; '.join(wrong)}", _AGAIN)
    if figures.on_host and hypothesis.name not in (_OF_OPERATORS if figures.is_operator else _ON_HOST):
        return leave_open(_HOST)
    judgement = hypothesis.judge(figures)
    needs = judgement.needs
    if figures.on_host:
        needs = tuple(need for need in needs if not need.preset)
    elif figures.of_amd:  # neither bwprof nor ncu counts on AMD cards
        needs = tuple(_ROCPROF.get(need, Need(need.figure, "", "")) for need in needs)
    return dataclasses.replace(judgement, needs=needs)


def _table_line(row: Diagnosis, entry: HypothesisVerdict) -> tuple[Any, ...]:
    hypothesis, judgement = entry.hypothesis, entry.judgement
    doubt = f" (in doubt: {', '.join(row.doubts)})" if row.doubts and judgement.verdict != CANNOT_TELL else ""
    needs = "; ".join(map(str, judgement.needs))
    threshold = f"{hypothesis.threshold}: {hypothesis.because}"
    fixes = "; ".join(hypothesis.fixes) if judgement.verdict == SUPPORTED else ""
    evidence = judgement.evidence + doubt
    return row.case, hypothesis.name, judgement.verdict, evidence, threshold, fixes, judgement.gain, needs


def _list_missing(needs: list[Need]) -> str:
    """List the most frequent figures, and count the rest; a name that begins another one is left out."""
    names = Counter(need.figure for need in [need for need in needs if need.has_option] or needs)
    often = [name for name, _ in names.most_common() if not any(other.startswith(f"{name} ") for other in names)]
    if len(often) <= _MAX_NAMES + 1:
        return ", ".join(often)
    return f"{', '.join(often[:_MAX_NAMES])} and {len(often) - _MAX_NAMES} more figures"
