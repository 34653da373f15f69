"""`bwprof.diagnose`: test hypotheses against the figures of rows.

The hypotheses are data: causes come before their symptoms, roofs and waiting last. A memory roof counts when it is
reached. "DRAM below 70 %" proves nothing: a kernel at half of the bandwidth may wait for latency, for its barriers or
for a grid that is too small. What lies between two thresholds stays open.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.analysis.diagnosis import bounds, memory
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
from bwprof.analysis.diagnosis.memory import WORTH
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
        f"the driver names a reason, and the clock is below {100 * bounds.CLOCK.no:g} % of the highest",
        "the driver says why it lowers the clock; ncu lowers it itself to the base clock, which is no fault",
        ("cool it, or raise the power limit", "measure again", "ncu: --clock-control none"),
        bounds.clock_is_reduced,
    ),
    Hypothesis(
        "launch_bound",
        "its launch",
        ("time_ms", "timer_floor_us", "wall_ms"),
        f"time at most {bounds.AT_FLOOR.yes:g} empty launches (not known: {bounds.SHORT_US.yes:g} us), or kernels "
        f"less than {bounds.HOST.yes:g} % of the wall time",
        "a third of the time is then that of a kernel which does nothing",
        (*find_rule("latency").fixes, *find_rule("host_bound").fixes[1:]),
        bounds.launch_bound,
    ),
    Hypothesis(
        "small_grid",
        "too small a grid",
        ("grid_blocks", "waves", "multiprocessors", "sm_cycles_ratio"),
        f"fewer blocks than multiprocessors, or over {100 * bounds.TAIL:g} % of all rounds empty, of a single one, too",
        "multiprocessors without a block add nothing; blocks of equal work take whole rounds",
        ("more, smaller blocks", "split the reduction among blocks", "a persistent grid of as many blocks as fit"),
        bounds.small_grid,
    ),
    Hypothesis(
        "spills",
        "spilled registers",
        ("local_bytes", "l2_bytes"),
        f"local memory is {memory.SPILLED.yes:g} % of the traffic (harmless up to {memory.SPILLED.no:g} %)",
        "local memory is what registers spill to, and arrays whose index only the run knows; it goes through L1",
        ("fewer sums a thread", *find_rule("spills").fixes[:3], "indices that the compiler knows"),
        memory.spills,
    ),
    Hypothesis(
        "uncoalesced",
        "uncoalesced accesses",
        ("load_efficiency_pct", "store_efficiency_pct", "sectors_per_load", "sectors_per_store", "lines_per_load"),
        f"less than {memory.EFFICIENCY.yes:g} % of the sectors used (fine from {memory.EFFICIENCY.no:g} %), or more "
        f"than {memory.SLACK * memory.WIDEST:g} sectors a request, or {memory.SLACK * memory.LINES:g} lines in busy L1",
        "32 lanes of 4, 8 or 16 bytes side by side need 4, 8 or 16 sectors: no width explains more than 16; fewer may "
        "still be too many for narrow lanes, which the efficiency tells",
        find_rule("uncoalesced").fixes,
        memory.uncoalesced,
    ),
    Hypothesis(
        "bank_conflicts",
        "bank conflicts in shared memory",
        ("bank_conflicts", "shared_wavefronts", "lds_bank_conflict_pct", *_WAITS),
        f"conflicts over {memory.CONFLICTS:g} % of the wavefronts, and {memory.SHARED_WAITS.yes:g} % of the stalls "
        "wait for shared memory",
        "a bare count says nothing: a large kernel has millions in a hundredth of its accesses",
        find_rule("bank_conflicts").fixes,
        memory.bank_conflicts,
    ),
    Hypothesis(
        "divergence",
        "divergent warps",
        ("active_threads", *_WAITS),
        f"at most {memory.ACTIVE.yes:g} of 32 threads take part in an instruction (fine from {memory.ACTIVE.no:g})",
        "a warp runs the branches of its threads one after the other; those that took another wait, and cost as much",
        ("threads of a warp on the same branch", "sort the work by its kind", "predicates instead of branches"),
        memory.divergence,
    ),
    Hypothesis(
        "materialised",
        "intermediates that go through memory",
        ("algorithmic_bytes_read", "algorithmic_bytes_written", "bytes_read", "bytes_written"),
        f"over {memory.STORED:g} times the compulsory bytes",
        "what is written to be read again moves twice",
        find_rule("materialised").fixes,
        memory.materialised,
    ),
    Hypothesis(
        "cache_thrash",
        "data that the caches did not keep",
        ("traffic_ratio", *_DRAM[:4]),
        f"counted over {memory.THRASH:g} times the bytes that it must move, while it waits for memory",
        "counters agree with formulas within 2 %; what is more was fetched again",
        find_rule("extra_traffic").fixes,
        memory.cache_thrash,
    ),
    Hypothesis(
        "low_occupancy",
        "low occupancy",
        ("occupancy_pct", "theoretical_occupancy_pct", "occupancy_limiter", *_WAITS),
        f"occupancy below {bounds.OCCUPANCY:g} %, resources hold it there, no roof is near, few warps are ready",
        "50 to 75 % hide most latencies; a kernel at a roof needs no more warps",
        find_rule("low_occupancy").fixes,
        bounds.low_occupancy,
    ),
    Hypothesis(
        "barriers",
        "barriers",
        _WAITS,
        f"{bounds.BARRIERS.yes:g} % of the stalls (fine up to {bounds.BARRIERS.no:g} %)",
        "warps that wait for each other ask for nothing",
        ("fewer barriers", "two buffers instead of one and a barrier", "smaller blocks", "even work between barriers"),
        bounds.barriers,
    ),
    Hypothesis(
        "shared_memory_bound",
        "loads from shared memory",
        ("shared_pct", "shared_wavefronts", *_WAITS),
        f"{memory.SHARED_BOUND.yes:g} % of the stalls wait for shared memory ({memory.SHARED_BOUND.no:g} % where it is "
        f"busy {NEAR_PIPE.yes:g} % of the cycles), without conflicts to blame",
        "a load for each product or two: its pipe gives 128 bytes a cycle, whatever the arithmetic could do",
        ("more sums a thread in registers", "wider loads (16 bytes)", "tensor cores fed by ldmatrix"),
        memory.shared_memory_bound,
    ),
    Hypothesis(
        "issue_bound",
        "instruction issue",
        ("issue_pct", "sm_cycles_ratio"),
        f"an instruction issued in {NEAR_PIPE.yes:g} % of the cycles (far below {NEAR_PIPE.no:g} %), no pipe near",
        "a scheduler issues one instruction a cycle at most, whatever it is: addresses, loops and loads take the turns "
        "of arithmetic",
        ("wider loads", "more sums a thread for what it loads", "constant strides", "unroll"),
        bounds.issue_bound,
    ),
    Hypothesis(
        "compute_bound",
        "arithmetic",
        (*_RATE, *_WAITS),
        f"a pipe busy {NEAR_PIPE.yes:g} % of the cycles (far below {NEAR_PIPE.no:g} %), or FLOPs at "
        f"{NEAR_BEST_RATE.yes:g} % of the best rate",
        "dependencies and issue leave a pipe little above 70 %; between, warps ready to issue tell",
        find_rule("compute").fixes,
        bounds.compute_bound,
    ),
    Hypothesis(
        "memory_bound",
        "the memory's bandwidth",
        _DRAM,
        f"at least {NEAR_STREAM.yes:g} % of what a stream of its bytes reaches (far below {NEAR_STREAM.no:g} %), or "
        f"{NEAR_PEAK.yes:g} % of theory ({NEAR_PEAK.no:g} %)",
        "plain streams reach 85 to 95 % of the theoretical bandwidth",
        find_rule("at_memory_roof").fixes,
        bounds.memory_bound,
    ),
    Hypothesis(
        "latency_bound",
        "the memory's latency",
        (*_DRAM, "occupancy_pct", "sectors_per_load", *_WAITS),
        f"no roof is near, {WAITING.yes:g} % of the stalls wait for memory (few below {WAITING.no:g} %), "
        "and fewer bytes are in flight than latency x bandwidth",
        "Little's law: bandwidth is bytes in flight over latency",
        find_rule("low_bytes_in_flight").fixes,
        bounds.latency_bound,
    ),
)

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
class HypothesisVerdict:
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
    verdicts: tuple[HypothesisVerdict, ...]

    def of(self, verdict: str) -> list[HypothesisVerdict]:
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
        also = f", and by {join_words([found.hypothesis.said for found in rest])}" if rest else ""
        limit = f"limited by {first.hypothesis.said} ({first.judgement.evidence}){also}"
        return f"{self.case}{doubt}: {limit}{self._gain(first)}."

    def _gain(self, first: HypothesisVerdict) -> str:
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
        `bwprof.importers` read. Only columns are looked at; more of them settle more. `bytes_read` and `bytes_written`
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
        preset of `bwprof.importers.ncu_command`). Of each row the supported ones come first, causes before what follows
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

    found = diagnose_rows(data, latency_us=latency_us)
    lines = [_line(row, verdict) for row in found for verdict in row.verdicts]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    text = [name for name in COLUMNS if name != "expected_gain"]
    frame = frame.astype(dict.fromkeys(text, "string") | {"expected_gain": float})
    frame.attrs["answers"] = tuple(row.sentence for row in found)
    return frame


def diagnose_rows(data: Any, *, latency_us: float | None = None) -> list[str]:
    """What limits each row, a sentence each.

    Examples
    --------
    >>> answer({"case": "copy", "time_ms": 0.5, "dram_pct": 88.0})
    ["copy: limited by the memory's bandwidth (88 % of the theoretical bandwidth); only fewer bytes make it faster."]
    """
    return [row.sentence for row in diagnose_rows(data, latency_us=latency_us)]


def diagnose_rows(data: Any, *, latency_us: float | None = None) -> list[Diagnosis]:
    """The same as objects."""
    latency = None if latency_us is None else finite_or_none(latency_us)
    if latency_us is not None and not (latency is not None and latency > 0):
        raise ValueError(f"latency_us is {repr_short(latency_us)}: a positive number of microseconds is needed")
    frame = values.as_frame(values.as_row(data) if hasattr(data, "to_dict") and not hasattr(data, "columns") else data)
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
    figures = RowFigures(row, latency_us)
    why = _unmeasured(figures)
    made = [
        HypothesisVerdict(found, leave_open(why, _AGAIN) if why else _judged(found, figures)) for found in HYPOTHESES
    ]
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


def _position(figures: RowFigures) -> str:
    """Where it is in words, neither near the memory roof nor certainly far from it; "" elsewhere."""
    verdict = near_memory(figures, doubted=figures.unsure)
    if not figures.memory.known or verdict == SUPPORTED:
        return ""
    if figures.memory.pct > BEYOND:
        return f"at {share_text(figures.memory)}, which cannot be"
    if figures.memory.least:
        return f"at {share_text(figures.memory)}, by the bytes stated"
    return f"between roof and latency ({share_text(figures.memory)})" if verdict == CANNOT_TELL else ""


def _unmeasured(figures: RowFigures) -> str:
    status = figures.word("status")
    if status in ("", "ok"):
        return ""
    reason = figures.word("reason")
    return f"nothing was measured: {status}" + (f" ({reason})" if reason else "")


def _judged(hypothesis: Hypothesis, figures: RowFigures) -> Judgement:
    """The verdict; none on figures that cannot be right."""
    wrong = [said for columns, said in figures.contradictions if columns & set(hypothesis.columns)]
    if wrong:
        return leave_open(f"contradictory: {'; '.join(wrong)}", _AGAIN)
    if figures.on_host and hypothesis.name not in (_OF_OPERATORS if figures.is_operator else _ON_HOST):
        return leave_open(_HOST)
    found = hypothesis.judge(figures)
    if figures.on_host:
        return dataclasses.replace(found, needs=tuple(need for need in found.needs if not need.preset))
    if figures.of_amd:  # whose figures neither bwprof counts nor ncu
        needs = tuple(_ROCPROF.get(need, Need(need.figure, "", "")) for need in found.needs)
        return dataclasses.replace(found, needs=needs)
    return found


def _line(row: Diagnosis, found: HypothesisVerdict) -> tuple[Any, ...]:
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
