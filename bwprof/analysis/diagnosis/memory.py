"""Judge hypotheses about memory accesses: unused bytes, repeated bytes, conflicts and spills."""

from __future__ import annotations

import math
from functools import cache

from bwprof import _core
from bwprof.analysis.diagnosis.figures import SECTOR, WARP, RowFigures, ratio
from bwprof.analysis.diagnosis.hypothesis import (
    BANDWIDTH,
    CANNOT_TELL,
    NEAR_PIPE,
    PIPES,
    REFUTED,
    STALLS,
    SUPPORTED,
    WAITING,
    Band,
    Judgement,
    Need,
    at_roof,
    conclude,
    gain_without,
    leave_open,
    near_memory,
    refute,
    support,
)
from bwprof.analysis.rules import find_rule
from bwprof.text.formatting import format_bytes

EFFICIENCY = Band(find_rule("uncoalesced").threshold, 80.0)  # percent of the sectors
WIDEST = 16.0  # sectors of a request of 16 bytes a lane, the most that a lane can load
LINES = 4.0  # 128-byte lines that such a request touches
SLACK = 1.25  # factor over the ideal, for rows that begin in the middle of a sector
L2_OF_STREAM = 1.8  # L2 counts 1.4 to 1.6 bytes for each byte of a stream
CONFLICTS = find_rule("bank_conflicts").threshold  # percent of the wavefronts
SHARED_WAITS = Band(15.0, 10.0)  # percent of the stalls
SHARED_BOUND = Band(50.0, 35.0)
ACTIVE = Band(16.0, 24.0)  # threads of a warp: half of them idle, a quarter idle
SPILLED = Band(5.0, 1.0)  # percent of the traffic
THRASH = find_rule("extra_traffic").threshold
THRASH_FAR = 1.5  # likewise for a kernel that latency limits
WORTH = 1.05  # speed-ups below this are harmless
STORED = find_rule("materialised").threshold
_LEAST_EXCESS = 256 * 1024  # bytes for code, page tables and descriptors
_TRAFFIC_MATTERS = Band(60.0, 40.0)  # percent of DRAM's roof
_TRAFFIC_WAITS = 30.0  # percent of the stalls that wait for memory
_OF_MEMORY = ("long_scoreboard", "lg_throttle", "mio_throttle", "tex_throttle", "drain")
_OF_SHARED = ("short_scoreboard", "mio_throttle")
_EFFICIENCY = Need("load_efficiency_pct", "", "full")
_SHARED = Need("shared_pct", "--metrics bank_conflicts", "full")
_L1 = Need("l1_pct", "--metrics caches", "full")
_LOCAL = Need("local_bytes", "--metrics sectors", "full")
_COUNTERS = Need("counted DRAM bytes beside stated ones", "--counters, with bytes_read= and bytes_written=", "memory")
COMPULSORY_BYTES = Need("the bytes that it must move", "--bytes NAME=READ,WRITTEN; bytes_read= and bytes_written=", "")


def uncoalesced(figures: RowFigures) -> Judgement:
    """Check for sectors of which a warp uses little."""
    known = (
        (figures.number("load_efficiency_pct", "load_efficiency"), "loads"),
        (figures.number("store_efficiency_pct"), "stores"),
    )
    worst, kind = min(((pct, word) for pct, word in known if pct > 0), default=(math.nan, ""))
    if math.isnan(worst):
        return _judge_sectors(figures)
    evidence = f"{kind} use {worst:.3g} % of the sectors that they touch"
    verdict = EFFICIENCY.place(worst)
    harmless = _judge_harmless(figures, evidence) if verdict == SUPPORTED else None
    gain = figures.bounded(100 / worst, useless=True)
    return harmless or conclude(verdict, evidence, gain, between=": partly in vain")


def _judge_lines(figures: RowFigures) -> Judgement | None:
    """Judge the lines that a load touches, which take the L1 cache a turn each; None where they are few."""
    lines, sectors = figures.number("lines_per_load"), figures.number("sectors_per_load")
    if not lines > SLACK * LINES or not sectors < 2 * lines:
        return None
    evidence = (
        f"a load touches {lines:.3g} lines, {sectors / lines:.3g} of 4 sectors of each; ideal are {LINES:g} lines"
    )
    busy, queued = figures.busy("l1_pct"), figures.waiting("lg_throttle")
    if busy >= NEAR_PIPE.yes or queued >= WAITING.yes:
        why = f"L1 is busy {busy:.3g} %" if busy >= NEAR_PIPE.yes else f"{queued:.0f} % of the stalls queue for L1"
        return _judge_harmless(figures, evidence) or support(f"{evidence}; {why}", figures.bounded(lines))
    return leave_open(evidence, _L1) if math.isnan(busy) else None


def _judge_harmless(figures: RowFigures, evidence: str) -> Judgement | None:
    """Judge useless traffic where another roof limits, or where no warp waits for it; None elsewhere."""
    near, waiting = at_roof(figures), figures.waiting(*_OF_MEMORY)
    if near_memory(figures) == SUPPORTED:
        return None
    if near:
        return leave_open(f"{evidence}, but {near}")
    if waiting < SHARED_WAITS.no:
        return refute(f"{evidence}, but {waiting:.0f} % of the stalls wait for memory: harmless here")
    return None


def _judge_sectors(figures: RowFigures) -> Judgement:
    """Judge sectors of a request where their use was not counted."""
    most = max((figures.number(name) for name in ("sectors_per_load", "sectors_per_store")), key=_nan_last)
    if math.isnan(most):
        need = Need("sectors_per_load", "--metrics sectors", "memory")
        return leave_open("sectors of a request were not counted", need)
    evidence = f"{most:.3g} sectors a request"
    ideal = WARP * _element_bytes(figures.word("precision").lower()) / SECTOR  # of single elements; 0: not known
    if most > SLACK * WIDEST:
        evidence = f"{evidence}, where even 16 bytes a lane need {WIDEST:.0f}"
        gain = figures.bounded(most / (ideal or WIDEST), useless=True)
        return _judge_harmless(figures, evidence) or support(evidence, gain)
    by_lines = _judge_lines(figures)
    if by_lines:
        return by_lines
    if most == 0:
        return refute("no requests of single lanes: nothing but bulk copies")
    if most <= SLACK * (ideal or 2.0):
        return refute(f"{evidence}: no more than single elements need")
    through = ratio(figures.number("l2_bytes"), figures.algorithmic)
    if figures.traffic_ratio <= THRASH and through <= L2_OF_STREAM:
        return refute(f"{evidence}; neither L2 nor DRAM moved more than the bytes stated")
    return leave_open(f"{evidence}: ideal for wide accesses, too many for narrow ones", _EFFICIENCY)


def _nan_last(value: float) -> float:
    return -1.0 if math.isnan(value) else value


@cache
def _element_bytes(precision: str) -> float:
    """Return the bytes of an activation; 0 for an unknown precision."""
    types = {dtype["name"]: dtype["block_bytes"] / dtype["block_elems"] for dtype in _core.dtypes()}
    stored = {entry["name"]: entry["activation"] or entry["cache"] for entry in _core.precisions()}
    return float(types.get(stored.get(precision, ""), 0.0))


def bank_conflicts(figures: RowFigures) -> Judgement:
    """Check for conflicts as a share of all accesses to shared memory, and for warps that wait for them."""
    conflicts, turns = figures.number("bank_conflicts"), figures.number("shared_wavefronts")
    share = 100 * ratio(conflicts, turns) if figures.has("bank_conflicts") else figures.number("lds_bank_conflict_pct")
    if conflicts == 0 or (turns == 0 and not conflicts > 0) or share == 0:
        return refute("no bank conflicts")
    if math.isnan(share):
        need = Need("shared_wavefronts", "--metrics bank_conflicts", "full")
        some = f"{conflicts:.0f} conflicts, of an unknown number of accesses"
        return leave_open(some if conflicts > 0 else "bank conflicts were not counted", need)
    evidence = f"{share:.3g} % of the accesses to shared memory are conflicts"
    if share <= CONFLICTS:
        return refute(evidence)
    if at_roof(figures):
        return refute(f"{evidence}; {at_roof(figures)}")
    waiting = figures.waiting(*_OF_SHARED)
    if math.isnan(waiting):
        return leave_open(evidence, STALLS)
    evidence = f"{evidence}; {waiting:.0f} % of the stalls wait for shared memory"
    verdict, gain = SHARED_WAITS.place(waiting), figures.bounded(gain_without(waiting * share / 100))
    if verdict == REFUTED or gain < WORTH:
        return refute(f"{evidence}: harmless here")
    return conclude(verdict, evidence, gain)


def shared_memory_bound(figures: RowFigures) -> Judgement:
    """Check for warps that wait for shared memory without conflicts: too many loads for their products."""
    if at_roof(figures):
        return refute(at_roof(figures))
    waiting, busy = figures.waiting(*_OF_SHARED), figures.shared_busy
    if math.isnan(waiting):
        return leave_open("what warps wait for was not counted", STALLS)
    if figures.number("shared_wavefronts") == 0 or figures.number("shared_bytes") == 0:
        return refute("it uses no shared memory")
    evidence = f"{waiting:.0f} % of the stalls wait for shared memory, or for the queue to it"
    verdict = SHARED_BOUND.place(waiting)
    is_busy = busy >= NEAR_PIPE.yes
    if is_busy and waiting >= SHARED_BOUND.no:  # a busy unit limits only where warps queue for it
        verdict, evidence = SUPPORTED, f"shared memory is busy {busy:.3g} % of the cycles; {evidence}"
    elif busy < NEAR_PIPE.no and figures.busy("sm_pct") >= NEAR_PIPE.yes:
        other = f"another part {figures.busy('sm_pct'):.3g} %: special functions wait in that queue, too"
        return refute(f"{evidence}, which is busy {busy:.3g} % of the cycles, {other}")
    if verdict == REFUTED:
        return refute(evidence)
    quiet = NEAR_PIPE.no if math.isnan(busy) else NEAR_PIPE.yes
    if not is_busy and not figures.busy("sm_pct") < quiet:
        need = _SHARED if math.isnan(busy) else PIPES
        return leave_open(f"{evidence}: special functions wait in that queue, too", need)
    return _without_conflicts(figures, verdict, evidence, ratio(100.0, busy) if is_busy else gain_without(waiting))


def _without_conflicts(figures: RowFigures, verdict: str, evidence: str, gain: float) -> Judgement:
    """Judge waiting for shared memory by whether bank conflicts explain it."""
    conflicts = bank_conflicts(figures)
    if conflicts.verdict == SUPPORTED:
        return refute(f"{evidence}: for bank conflicts")
    if verdict == SUPPORTED and conflicts.verdict == REFUTED:
        return support(evidence, figures.bounded(gain))
    return leave_open(evidence, *conflicts.needs)


def divergence(figures: RowFigures) -> Judgement:
    """Check for warps of which few threads take part in an instruction."""
    active = figures.number("active_threads")
    if math.isnan(active):
        need = Need("active_threads", "--metrics sm", "full")
        return leave_open("how many threads take part was not counted", need)
    evidence = f"{active:.3g} of {WARP} threads take part in an instruction"
    verdict = ACTIVE.place(active)
    if verdict != SUPPORTED:
        return conclude(verdict, evidence, between=": not all, not few")
    if near_memory(figures) == SUPPORTED:
        return refute(f"{evidence}, which does not matter: {at_roof(figures)}")
    waiting = figures.waiting(*_OF_MEMORY)
    if waiting >= WAITING.yes:
        return leave_open(f"{evidence}, but {waiting:.0f} % of the stalls wait for memory")
    if math.isnan(waiting):
        return leave_open(evidence, STALLS)
    return support(evidence, figures.bounded(ratio(WARP, active)))


def spills(figures: RowFigures) -> Judgement:
    """Compare local memory's traffic with all traffic."""
    local = figures.local_bytes
    if math.isnan(local):
        return leave_open("traffic of local memory was not counted", _LOCAL)
    if local == 0:
        return refute("no traffic of local memory")
    others = max((figures.number("l2_bytes"), figures.counted, figures.algorithmic), key=_nan_last)
    if math.isnan(others):
        return leave_open(f"{format_bytes(local)} of local memory, beside an unknown amount", BANDWIDTH)
    share = 100 * local / (local + others)
    evidence = f"{format_bytes(local)} of local memory, {share:.3g} % of the traffic"
    verdict = SPILLED.place(share)
    if verdict == REFUTED:
        return refute(f"{evidence}: harmless")
    harmless = _judge_harmless(figures, evidence) if verdict == SUPPORTED else None
    return harmless or conclude(verdict, evidence, figures.bounded(gain_without(share), useless=True))


def cache_thrash(figures: RowFigures) -> Judgement:
    """Check for DRAM traffic beyond the bytes that the kernel has to move."""
    excess = figures.traffic_ratio
    if figures.hot or math.isnan(excess):
        known = not math.isnan(figures.counted) and (figures.as_counted or math.isnan(figures.moved))
        need = COMPULSORY_BYTES if known else _COUNTERS
        return leave_open("counted bytes beside those that it must move are not known", need)
    evidence = f"{excess:.3g} times the bytes that it must move came from or went to DRAM"
    if excess <= THRASH or figures.counted - figures.algorithmic < _LEAST_EXCESS:
        return refute(evidence)
    written = ratio(figures.number("dram_bytes_written"), figures.written)
    if written > THRASH_FAR and math.isnan(figures.local_bytes):
        return leave_open(f"{evidence}, {written:.3g} times those to write: of data, or of spilled registers", _LOCAL)
    return _judge_traffic(figures, evidence, excess)


def _judge_traffic(figures: RowFigures, evidence: str, excess: float) -> Judgement:
    """Judge whether excess traffic costs time: DRAM is busy, or warps wait for it."""
    busy, waiting = figures.memory.pct, figures.waiting("long_scoreboard")
    verdict = _TRAFFIC_MATTERS.place(busy)
    gain = figures.bounded(excess, useless=True)
    if verdict == SUPPORTED:
        return support(f"{evidence}; DRAM is {busy:.0f} % {figures.memory.of}", gain)
    if waiting >= WAITING.yes and excess >= THRASH_FAR:
        return support(f"{evidence}; {waiting:.0f} % of the stalls wait for memory", gain)
    if verdict == REFUTED and waiting < _TRAFFIC_WAITS:
        return refute(f"{evidence}, but it does not wait for memory ({busy:.0f} % {figures.memory.of})")
    return leave_open(evidence, *(need for need, pct in ((BANDWIDTH, busy), (STALLS, waiting)) if math.isnan(pct)))


def materialised(figures: RowFigures) -> Judgement:
    """Check for intermediates that are written and read again."""
    stored, real = ratio(figures.algorithmic, figures.moved), ratio(figures.counted, figures.moved)
    if math.isnan(stored):
        need = Need("algorithmic_bytes_read, _written", "an operation of bwprof", "")
        return leave_open("what it must move is not known", need)
    if not figures.has("algorithmic_bytes_read", "algorithmic_bytes_written"):
        return _judge_counted(figures, real)
    if stored <= STORED:
        return refute(f"it moves {stored:.3g} times the compulsory bytes")
    evidence = f"with its intermediates it moves {stored:.3g} times the compulsory bytes"
    if not math.isnan(real):
        evidence = f"{evidence}; DRAM moved {real:.3g} times as many"
    verdict = CANNOT_TELL if real <= STORED else SUPPORTED
    return conclude(verdict, evidence, figures.bounded(stored, useless=True), between=": most stayed in the cache")


def _judge_counted(figures: RowFigures, real: float) -> Judgement:
    """Judge intermediates by DRAM's bytes, of a kernel whose intermediates are not known."""
    if figures.as_counted:
        return leave_open("its bytes are the counted ones: what of them must move is not known", COMPULSORY_BYTES)
    if real <= STORED and not figures.hot:
        return refute(f"DRAM moved {real:.3g} times the bytes stated")
    if math.isnan(real):
        return leave_open("whether it stores intermediates is not known", _COUNTERS)
    return leave_open(f"DRAM moved {real:.3g} times the bytes stated: whether it stores intermediates is not known")
