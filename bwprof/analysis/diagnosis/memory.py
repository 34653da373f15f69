"""Hypotheses of how memory is accessed: what is fetched in vain, or twice, what collides, what spills."""

from __future__ import annotations

import math
from functools import cache

from bwprof import _core
from bwprof.analysis.diagnosis.figures import SECTOR, WARP, RowFigures, ratio
from bwprof.analysis.diagnosis.hypothesis import (
    BANDWIDTH,
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
    gain_without,
    leave_open,
    near_memory,
    refute,
    support,
)
from bwprof.analysis.rules import find_rule
from bwprof.text.formatting import format_bytes

EFFICIENCY = Band(find_rule("uncoalesced").threshold, 80.0)

WIDEST = 16.0  # sectors of a request in which each lane loads 16 bytes, the most that it can

LINES = 4.0  # of 128 bytes, that such a request touches

SLACK = 1.25  # over the ideal: rows that begin in the midst of a sector

L2_OF_STREAM = 1.8  # L2 counts what passes it and what it fetches: 1.4 to 1.6 bytes for a byte of a stream

CONFLICTS = find_rule("bank_conflicts").threshold  # percent of the wavefronts

SHARED_WAITS = Band(15.0, 10.0)  # percent of the stalls, from where on shared memory is worth a look

SHARED_BOUND = Band(50.0, 35.0)

ACTIVE = Band(16.0, 24.0)  # threads of a warp: half of them idle, and a quarter

SPILLED = Band(5.0, 1.0)  # percent of the traffic

THRASH = find_rule("extra_traffic").threshold

THRASH_FAR = 1.5  # likewise, where latency counts and not bandwidth: a third of the trips to DRAM are in vain

WORTH = 1.05  # times as fast: what brings less is harmless

STORED = find_rule("materialised").threshold

_LEAST_EXCESS = 256 * 1024  # bytes: code, page tables and descriptors are fetched, too

_TRAFFIC_MATTERS = Band(60.0, 40.0)  # percent of DRAM's roof

_OF_MEMORY = ("long_scoreboard", "lg_throttle", "mio_throttle", "tex_throttle", "drain")

_OF_SHARED = ("short_scoreboard", "mio_throttle")

_EFFICIENCY = Need("load_efficiency_pct", "", "full")

_SHARED = Need("shared_pct", "--metrics bank_conflicts", "full")

_L1 = Need("l1_pct", "--metrics caches", "full")

_LOCAL = Need("local_bytes", "--metrics sectors", "full")

_COUNTERS = Need("counted DRAM bytes beside stated ones", "--counters, with bytes_read= and bytes_written=", "memory")

COMPULSORY_BYTES = Need("the bytes that it must move", "--bytes NAME=READ,WRITTEN; bytes_read= and bytes_written=", "")


def uncoalesced(figures: RowFigures) -> Judgement:
    """Sectors are fetched of which a warp uses little."""
    known = [
        (figures.number(*names), said)
        for names, said in (
            (("load_efficiency_pct", "load_efficiency"), "loads"),
            (("store_efficiency_pct",), "stores"),
        )
    ]
    worst, said = min(((pct, word) for pct, word in known if pct > 0), default=(math.nan, ""))
    if math.isnan(worst):
        return _by_sectors(figures)
    evidence = f"{said} use {worst:.3g} % of the sectors that they touch"
    verdict = EFFICIENCY.place(worst)
    if verdict == SUPPORTED:
        gain = figures.bounded(100 / worst, useless=True)
        return _unfelt(figures, evidence) or support(evidence, gain)
    return refute(evidence) if verdict == REFUTED else leave_open(f"{evidence}: partly in vain")


def _by_lines(figures: RowFigures) -> Judgement | None:
    """What the lines that a load touches tell, each of which takes the L1 cache a turn; None where nothing."""
    lines, sectors = figures.number("lines_per_load"), figures.number("sectors_per_load")
    if not lines > SLACK * LINES or not sectors < 2 * lines:
        return None
    said = f"a load touches {lines:.3g} lines, {sectors / lines:.3g} of 4 sectors of each; side by side lanes {LINES:g}"
    busy, queued = figures.busy("l1_pct"), figures.waiting("lg_throttle")
    if busy >= NEAR_PIPE.yes or queued >= WAITING.yes:
        why = f"L1 is busy {busy:.3g} %" if busy >= NEAR_PIPE.yes else f"{queued:.0f} % of the stalls queue for L1"
        return _unfelt(figures, said) or support(f"{said}; {why}", figures.bounded(lines))
    return leave_open(said, _L1) if math.isnan(busy) else None


def _unfelt(figures: RowFigures, said: str) -> Judgement | None:
    """What becomes of traffic in vain where something else is what limits: another roof, or no warp waits for it."""
    near, waiting = at_roof(figures), figures.waiting(*_OF_MEMORY)
    if near_memory(figures) == SUPPORTED:
        return None
    if near:
        return leave_open(f"{said}, but {near}")
    if waiting < SHARED_WAITS.no:
        return refute(f"{said}, but {waiting:.0f} % of the stalls wait for memory: harmless here")
    return None


def _by_sectors(figures: RowFigures) -> Judgement:
    """Without a word about what is used: only what no width of access explains is certain."""
    most = max((figures.number(name) for name in ("sectors_per_load", "sectors_per_store")), key=_or_zero)
    if math.isnan(most):
        return leave_open(
            "sectors of a request were not counted", Need("sectors_per_load", "--metrics sectors", "memory")
        )
    said = f"{most:.3g} sectors a request"
    ideal = WARP * _element_bytes(figures.word("precision").lower()) / SECTOR  # of single elements; 0: not known
    if most > SLACK * WIDEST:
        said = f"{said}, where even 16 bytes a lane need {WIDEST:.0f}"
        gain = figures.bounded(most / (ideal or WIDEST), useless=True)
        return _unfelt(figures, said) or support(said, gain)
    by_lines = _by_lines(figures)
    if by_lines:
        return by_lines
    if most == 0:
        return refute("no requests of single lanes: nothing but bulk copies")
    if most <= SLACK * (ideal or 2.0):
        return refute(f"{said}: no more than single elements need")
    through = ratio(figures.number("l2_bytes"), figures.algorithmic)
    if figures.traffic_ratio <= THRASH and through <= L2_OF_STREAM:
        return refute(f"{said}; neither L2 nor DRAM moved more than the bytes stated")
    return leave_open(f"{said}: ideal for wide accesses, too many for narrow ones", _EFFICIENCY)


def _or_zero(value: float) -> float:
    return -1.0 if math.isnan(value) else value


@cache
def _element_bytes(precision: str) -> float:
    """Of an activation; 0 for what is no precision."""
    types = {found["name"]: found["block_bytes"] / found["block_elems"] for found in _core.dtypes()}
    stored = {found["name"]: found["activation"] or found["cache"] for found in _core.precisions()}
    return float(types.get(stored.get(precision, ""), 0.0))


def bank_conflicts(figures: RowFigures) -> Judgement:
    """Accesses to shared memory that take several turns, as a share of all turns; and whether warps wait for them."""
    conflicts, turns = figures.number("bank_conflicts"), figures.number("shared_wavefronts")
    share = 100 * ratio(conflicts, turns)
    if not figures.has("bank_conflicts"):
        share = figures.number("lds_bank_conflict_pct")
    if conflicts == 0 or (turns == 0 and not conflicts > 0) or share == 0:
        return refute("no bank conflicts")
    if math.isnan(share):
        need = Need("shared_wavefronts", "--metrics bank_conflicts", "full")
        some = f"{conflicts:.0f} conflicts, of an unknown number of accesses"
        return leave_open(some if conflicts > 0 else "bank conflicts were not counted", need)
    said = f"{share:.3g} % of the accesses to shared memory are conflicts"
    if share <= CONFLICTS:
        return refute(said)
    near = at_roof(figures)
    if near:
        return refute(f"{said}, but it is {near}" if near.startswith("at") else f"{said}, but {near}")
    waiting = figures.waiting(*_OF_SHARED)
    if math.isnan(waiting):
        return leave_open(said, STALLS)
    said = f"{said}; {waiting:.0f} % of the stalls wait for shared memory"
    verdict, gain = SHARED_WAITS.place(waiting), figures.bounded(gain_without(waiting * share / 100))
    if verdict == REFUTED or gain < WORTH:
        return refute(f"{said}: harmless here")
    return support(said, gain) if verdict == SUPPORTED else leave_open(said)


def shared_memory_bound(figures: RowFigures) -> Judgement:
    """Warps wait for shared memory, without conflicts to blame: too many loads for the products made of them."""
    near = at_roof(figures)
    waiting = figures.waiting(*_OF_SHARED)
    if near:
        return refute(near)
    if math.isnan(waiting):
        return leave_open("what warps wait for was not counted", STALLS)
    said = f"{waiting:.0f} % of the stalls wait for shared memory, or for the queue to it"
    if figures.number("shared_wavefronts") == 0 or figures.number("shared_bytes") == 0:
        return refute("it uses no shared memory")
    verdict, conflicts, busy = SHARED_BOUND.place(waiting), bank_conflicts(figures), figures.shared_busy
    if busy >= NEAR_PIPE.yes and waiting >= SHARED_BOUND.no:  # nobody queues for what is merely busy
        verdict, said = SUPPORTED, f"shared memory is busy {busy:.3g} % of the cycles; {said}"
    elif busy < NEAR_PIPE.no and figures.busy("sm_pct") >= NEAR_PIPE.yes:
        other = f"another part {figures.busy('sm_pct'):.3g} %: special functions wait in that queue, too"
        return refute(f"{said}, which is busy {busy:.3g} % of the cycles, {other}")
    if verdict == REFUTED:
        return refute(said)
    if not busy >= NEAR_PIPE.yes and not figures.busy("sm_pct") < (NEAR_PIPE.no if math.isnan(busy) else NEAR_PIPE.yes):
        return leave_open(
            f"{said}: special functions wait in that queue, too", *((_SHARED,) if math.isnan(busy) else (PIPES,))
        )
    if conflicts.verdict == SUPPORTED:
        return refute(f"{said}: for bank conflicts")
    if verdict == SUPPORTED and conflicts.verdict == REFUTED:
        return support(said, figures.bounded(ratio(100.0, busy) if busy >= NEAR_PIPE.yes else gain_without(waiting)))
    return leave_open(said, *conflicts.needs)


def divergence(figures: RowFigures) -> Judgement:
    """Few of a warp's threads take part in its instructions."""
    active = figures.number("active_threads")
    if math.isnan(active):
        return leave_open("how many threads take part was not counted", Need("active_threads", "--metrics sm", "full"))
    said = f"{active:.3g} of {WARP} threads take part in an instruction"
    verdict = ACTIVE.place(active)
    if verdict != SUPPORTED:
        return refute(said) if verdict == REFUTED else leave_open(f"{said}: not all, not few")
    if near_memory(figures) == SUPPORTED:
        return refute(f"{said}, which does not matter: {at_roof(figures)}")
    waiting = figures.waiting(*_OF_MEMORY)
    if waiting >= WAITING.yes:
        return leave_open(f"{said}, but {waiting:.0f} % of the stalls wait for memory")
    if math.isnan(waiting):
        return leave_open(said, STALLS)
    return support(said, figures.bounded(ratio(WARP, active)))


def spills(figures: RowFigures) -> Judgement:
    """Local memory's traffic, beside all traffic."""
    local = figures.local_bytes
    if math.isnan(local):
        return leave_open("traffic of local memory was not counted", _LOCAL)
    if local == 0:
        return refute("no traffic of local memory")
    others = max((figures.number("l2_bytes"), figures.counted, figures.algorithmic), key=_or_zero)
    if math.isnan(others):
        return leave_open(f"{format_bytes(local)} of local memory, beside an unknown amount", BANDWIDTH)
    share = 100 * local / (local + others)
    said = f"{format_bytes(local)} of local memory, {share:.3g} % of the traffic"
    verdict = SPILLED.place(share)
    if verdict == SUPPORTED:
        return _unfelt(figures, said) or support(said, figures.bounded(gain_without(share), useless=True))
    return refute(f"{said}: harmless") if verdict == REFUTED else leave_open(said)


def cache_thrash(figures: RowFigures) -> Judgement:
    """DRAM moved more than the kernel has to: the caches did not keep what is used again."""
    found = figures.traffic_ratio
    if figures.hot or math.isnan(found):
        known = not math.isnan(figures.counted) and (figures.as_counted or math.isnan(figures.moved))
        return leave_open(
            "counted bytes beside those that it must move are not known", COMPULSORY_BYTES if known else _COUNTERS
        )
    said = f"{found:.3g} times the bytes that it must move came from or went to DRAM"
    if found <= THRASH or figures.counted - figures.algorithmic < _LEAST_EXCESS:
        return refute(said)
    written = ratio(figures.number("dram_bytes_written"), figures.written)
    if written > THRASH_FAR and math.isnan(figures.local_bytes):
        return leave_open(f"{said}, {written:.3g} times those to write: of data, or of spilled registers", _LOCAL)
    busy, waiting = figures.memory.pct, figures.waiting("long_scoreboard")
    of_memory = _TRAFFIC_MATTERS.place(busy)
    gain = figures.bounded(found, useless=True)
    if of_memory == SUPPORTED:
        return support(f"{said}; DRAM is {busy:.0f} % {figures.memory.of}", gain)
    if waiting >= WAITING.yes and found >= THRASH_FAR:
        return support(f"{said}; {waiting:.0f} % of the stalls wait for memory", gain)
    if of_memory == REFUTED and waiting < 30:
        return refute(f"{said}, but it does not wait for memory ({busy:.0f} % {figures.memory.of})")
    needs = [need for need, pct in ((BANDWIDTH, busy), (STALLS, waiting)) if math.isnan(pct)]
    return leave_open(said, *needs)


def materialised(figures: RowFigures) -> Judgement:
    """Intermediates are written and read again."""
    stored = ratio(figures.algorithmic, figures.moved)
    if math.isnan(stored):
        return leave_open(
            "what it must move is not known", Need("algorithmic_bytes_read, _written", "an operation of bwprof", "")
        )
    real = ratio(figures.counted, figures.moved)
    if not figures.has("algorithmic_bytes_read", "algorithmic_bytes_written"):  # of stated bytes nothing follows
        if figures.as_counted:
            return leave_open("its bytes are the counted ones: what of them must move is not known", COMPULSORY_BYTES)
        if real <= STORED and not figures.hot:
            return refute(f"DRAM moved {real:.3g} times the bytes stated")
        said = "" if math.isnan(real) else f"DRAM moved {real:.3g} times the bytes stated: "
        return leave_open(f"{said}whether it stores intermediates is not known", *((_COUNTERS,) if not said else ()))
    if stored <= STORED:
        return refute(f"it moves {stored:.3g} times the compulsory bytes")
    said = f"with its intermediates it moves {stored:.3g} times the compulsory bytes"
    if math.isnan(real):
        return support(said, figures.bounded(stored, useless=True))
    said = f"{said}; DRAM moved {real:.3g} times as many"
    if real > STORED:
        return support(said, figures.bounded(stored, useless=True))
    return leave_open(f"{said}: most stayed in the cache")
