"""Judge each hypothesis on the figures of a row."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from itertools import chain

from bwprof import registry
from bwprof.analysis import values
from bwprof.analysis.diagnosis.figures import SECTOR, WARP, RowFigures, first, largest, ratio
from bwprof.analysis.diagnosis.hypothesis import (
    BANDWIDTH,
    CANNOT_TELL,
    ISSUE,
    NEAR_PIPE,
    PIPES,
    REFUTED,
    STALLS,
    SUPPORTED,
    WAITING,
    Band,
    Judgment,
    Need,
    at_roof,
    busiest_pipe,
    busy_part,
    conclude,
    gain_without,
    leave_open,
    near_memory,
    near_rate,
    refute,
    support,
)
from bwprof.analysis.rules import find_rule
from bwprof.roofs.limiter import FLOOR_FACTOR
from bwprof.text.formatting import format_bytes, format_seconds, plural

SAME = 0.85  # a unit that reaches this share of the busiest one is that one, counted in another pass
READY = 30.0  # percent of the stalls: warps that could issue and were not chosen
IDLE = 2.0  # percent of the time: AMD's memory units stall less where bandwidth is no limit
AT_FLOOR = Band(FLOOR_FACTOR, FLOOR_FACTOR + 1)  # empty launches

# A kernel of a profiler's file that takes longer is no mere launch; an empty one takes 1 to 2 us.
SHORT_US = Band(3.0, 10.0)
HOST = Band(90.0, 97.0)  # percent of the time in which kernels run
CLOCK = Band(85.0, 95.0)  # percent of the highest
POWER = "sw_power_cap"  # the driver's power limit, which a busy pipe reaches by itself

# L2 counts 1.5 bytes for each byte of a stream: 60 % of this share of the theoretical bandwidth is far from the roof.
BY_L2 = 1.2
COUNTED = Need("counted DRAM bytes", "--counters", "memory")
EMPTY = Need("an empty launch's time", "bwprof.measure", "")
_ENOUGH = 1.2  # of the bytes in flight that are needed
_NEITHER = ": neither near nor far"
OCCUPANCY = find_rule("low_occupancy").threshold  # percent
HIDDEN = 20.0  # percent of the stalls that are warps ready to issue: from here on more warps find no turn
TAIL = 20.0  # percent of the rounds of blocks that is empty
UNEVEN = Band(1.5, 1.1)  # busiest over mean multiprocessor
BARRIERS = Band(30.0, 15.0)  # percent of the stalls

_RESOURCES = {
    "shared": "shared memory",
    "registers": "registers",
    **dict.fromkeys(("threads", "warps"), "the size of its blocks"),
    "blocks": "the number of blocks that fit",
}

_RESIDENT = Need("theoretical_occupancy_pct, occupancy_limiter", "bwprof variants", "full")

# Accesses to memory
EFFICIENCY = Band(find_rule("uncoalesced").threshold, 80.0)  # percent of the sectors
WIDEST = 16.0  # sectors of a request of 16 bytes a lane, the most that a lane can load
LINES = 4.0  # 128-byte lines that such a request touches
SLACK = 1.25  # factor over the ideal, for rows that begin in the middle of a sector
MOST_SECTORS, MOST_LINES = SLACK * WIDEST, SLACK * LINES
L2_OF_STREAM = 1.8  # L2 counts 1.4 to 1.6 bytes for each byte of a stream
CONFLICTS = find_rule("bank_conflicts").threshold  # percent of the wavefronts
SHARED_WAITS = Band(15.0, 10.0)  # percent of the stalls
SHARED_BOUND = Band(50.0, 35.0)
ACTIVE = Band(16.0, 24.0)  # threads of a warp: half of them idle, a quarter idle
SPILLED = Band(5.0, 1.0)  # percent of the traffic
THRASH = find_rule("extra_traffic").threshold
THRASH_FAR = 1.5  # likewise for a kernel that latency limits
WORTH = 1.05  # speed-ups below this are harmless
STORED = find_rule("materialized").threshold
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


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def memory_bound(figures: RowFigures) -> Judgment:
    """Compare the bytes that DRAM moved with the bandwidth roof."""
    if figures.hot:
        return leave_open("inputs lie in the cache: DRAM does not limit", Need("a cold row", "--cache cold", ""))
    if not figures.memory.known:
        stalled = figures.number("mem_unit_stalled_pct")
        if stalled < IDLE:
            return refute(f"memory units stalled {stalled:.2g} % of the time")
        return leave_open("how near it is to the bandwidth is not known", BANDWIDTH)
    verdict, evidence = near_memory(figures, doubted=figures.unsure), figures.memory.text
    if verdict != SUPPORTED and figures.memory.least:
        return leave_open(f"{evidence}, by the bytes stated: more may have been moved", COUNTED)
    if verdict == SUPPORTED and figures.small:
        at_best = 100 * ratio(figures.number("attainable_gb_s"), figures.number("ceiling_gb_s", "peak_gb_s"))
        roof = "the best stream" if figures.has("ceiling_gb_s") else "the theoretical bandwidth"
        evidence = f"{evidence}, {at_best:.0f} % of {roof} as they are so few"
    return conclude(verdict, evidence, ratio(100, figures.memory.pct), between=_NEITHER)


def compute_bound(figures: RowFigures) -> Judgment:
    """Compare the arithmetic pipes, or the FLOPs, with what they can do."""
    pipe, pct = next(iter(figures.pipes.items()), ("", math.nan))
    parts = [f"{name} pipe {value:.3g} %" for name, value in figures.pipes.items()]
    parts += [figures.arithmetic.text] if figures.arithmetic.known else []
    evidence = "; ".join(parts)
    if near_rate(figures, doubted=figures.unsure) == SUPPORTED or pct >= NEAR_PIPE.yes:
        return support(evidence, 100 / largest(pct, figures.arithmetic.pct))
    if pct >= NEAR_PIPE.no:
        ready = figures.waiting("not_selected")
        if ready >= READY:
            more = f"{ready:.0f} % of the waiting warps could issue, and others did"
            return support(f"{evidence}; {more}", figures.bounded(100 / pct))
        if figures.number("mem_unit_stalled_pct") < IDLE:
            return support(f"{evidence}; memory units hardly stalled", 100 / pct)
    busiest = figures.busy("sm_pct")
    evidence = "; ".join([*parts, *([] if math.isnan(busiest) else [f"busiest part {busiest:.3g} %"])])
    return _busy_unit(figures, evidence) if busiest >= NEAR_PIPE.yes else _no_busy_unit(figures, evidence, pipe, pct)


def _busy_unit(figures: RowFigures, evidence: str) -> Judgment:
    """Judge a unit that is busy: a pipe of arithmetic other than FMA and tensor cores, or no arithmetic."""
    busiest, issued, shared = figures.busy("sm_pct"), figures.busy("issue_pct"), figures.shared_busy
    memory = figures.waiting("short_scoreboard", "mio_throttle", "lg_throttle", "tex_throttle", "long_scoreboard")
    if issued >= SAME * busiest:
        return refute(f"{evidence}: it is the schedulers, which issue in {issued:.3g} % of the cycles")
    idle = max(shared, figures.busy("l1_pct")) < NEAR_PIPE.no  # special functions wait in the queue of loads
    if memory >= WAITING.no and not idle:
        return refute(f"{evidence}: that of loads and stores, by what warps wait for ({memory:.0f} %)")
    if shared >= SAME * busiest:
        return refute(f"{evidence}: it is shared memory, busy {shared:.3g} % of the cycles")
    needs = [need for need, value in ((STALLS, memory), (ISSUE, issued)) if math.isnan(value)]
    if needs:
        return leave_open(f"{evidence}: a pipe of arithmetic or another part", *needs)
    return support(f"{evidence}: a pipe other than FMA and tensor cores", 100 / busiest)


def _no_busy_unit(figures: RowFigures, evidence: str, pipe: str, pct: float) -> Judgment:
    """Judge a row of which no unit is known to be busy."""
    busiest = figures.busy("sm_pct")
    has_rate = figures.has("arithmetic_intensity") or figures.has("measured_tflops")  # of all pipes, not of some
    rate_far = near_rate(figures) == REFUTED and has_rate
    if busiest < NEAR_PIPE.no or (pipe and pct < NEAR_PIPE.no and (rate_far or len(figures.pipes) > 1)):
        return refute(evidence)
    if not pipe and math.isnan(busiest):
        if rate_far:
            return refute(evidence)
        return leave_open(evidence or "no pipe was counted, and its FLOPs are not known", PIPES)
    if near_memory(figures) == SUPPORTED:
        return refute(f"{evidence}; memory is nearer ({figures.memory.text})")
    return leave_open(evidence + _NEITHER, *(() if pipe else (PIPES,)))


def issue_bound(figures: RowFigures) -> Judgment:
    """Check for schedulers that issue in nearly every cycle while no pipe is busy."""
    issued = figures.busy("issue_pct")
    if at_roof(figures):
        return refute(at_roof(figures))
    if math.isnan(issued):
        if figures.busy("sm_pct") < NEAR_PIPE.no:
            return refute(f"no part of the multiprocessors is busy ({figures.number('sm_pct'):.3g} %)")
        return leave_open("how often an instruction was issued was not counted", ISSUE)
    evidence, pct = f"an instruction in {issued:.3g} % of the cycles", busiest_pipe(figures)[1]
    verdict = NEAR_PIPE.place(issued, doubted=figures.unsure)
    if not figures.has("fma_pct") and verdict != REFUTED:
        return leave_open(f"{evidence}: of arithmetic or of others", PIPES)
    if pct > 0:
        evidence = f"{evidence}, while the busiest of the FMA and tensor pipes is at {pct:.3g} %"
    return conclude(verdict, evidence, figures.bounded(ratio(100, issued)), between=_NEITHER)


def latency_bound(figures: RowFigures) -> Judgment:
    """Check for warps that wait for memory far from both roofs: too few bytes are in flight."""
    if at_roof(figures):
        return refute(f"{at_roof(figures)}: waiting is what a roof looks like")
    launch = launch_bound(figures)
    if launch.verdict == SUPPORTED:
        return refute("its time is a launch's")
    share = figures.waiting("long_scoreboard")
    flight = _flight_text(figures)
    if math.isnan(share):
        return leave_open(_join("what warps wait for was not counted", flight), STALLS)
    evidence = f"{share:.0f} % of the stalls wait for memory"
    verdict = WAITING.place(share, doubted=figures.unsure)
    if verdict != SUPPORTED:
        return conclude(verdict, evidence, between=": neither most nor few")
    if not figures.memory.known:
        return leave_open(f"{evidence}, at its full bandwidth or far from it", BANDWIDTH)
    evidence = _join(evidence, figures.memory.text, flight)
    if figures.memory.least:
        return leave_open(f"{evidence}, by the bytes stated", COUNTED)
    if near_memory(figures) == CANNOT_TELL:
        return leave_open(f"{evidence}: neither near the memory roof nor far")
    if launch.verdict != REFUTED:
        return leave_open(f"{evidence}; {launch.evidence}", *launch.needs)
    if busy_part(figures):
        return refute(f"{evidence}, but {busy_part(figures)}")
    return _judge_flight(figures, evidence) or support(evidence, figures.bounded(gain_without(share)))


def _judge_flight(figures: RowFigures, evidence: str) -> Judgment | None:
    """Leave latency open where L2 may be full, or where enough bytes are in flight; None elsewhere."""
    if not figures.has("l2_pct") and figures.l2_gb_s > BY_L2 * figures.number("peak_gb_s"):
        need = Need("l2_pct", "--metrics caches", "full")
        return leave_open(f"{evidence}; L2 moved {figures.l2_gb_s:.0f} GB/s, and may be what is full", need)
    if figures.in_flight_least > _ENOUGH * figures.in_flight_needed and figures.memory.pct < WAITING.no:
        need = Need("l1_hit_pct, l2_hit_pct, load_efficiency_pct", "", "full")
        return leave_open(f"{evidence}: enough, so that caches or the access pattern must be what is slow", need)
    return None


def _flight_text(figures: RowFigures) -> str:
    """Write Little's law in words; "" where a figure is missing."""
    need, least = figures.in_flight_needed, figures.in_flight_least
    if math.isnan(need) or math.isnan(least):
        return ""
    source = "" if figures.latency_known else " assumed"
    return (
        f"{format_bytes(least)} in flight with one load a warp, of {format_bytes(need)} that the full bandwidth needs "
        f"({figures.latency_us:g} us of latency{source})"
    )


def launch_bound(figures: RowFigures) -> Judgment:
    """Compare the time with an empty launch's, and the kernels' time with the wall time."""
    time_us, floor_us = 1e3 * figures.number("time_ms"), figures.number("timer_floor_us")
    share = first(
        100 * ratio(figures.number("time_ms"), figures.number("wall_ms")),
        100 - values.parse_waiting(figures.word("reason")),
    )
    if HOST.place(share) == SUPPORTED:
        return support(f"kernels run {share:.0f} % of the time", ratio(100.0, share))
    if not time_us > 0:
        return leave_open("its time is not known", Need("time", "bwprof.measure", "roofline"))
    evidence, gain = format_seconds(time_us * 1e-6), math.nan
    flagged = "near_timer_floor" in figures.flags
    if time_us > floor_us:
        floors = ratio(time_us, floor_us)
        evidence = f"{floors:.3g} times an empty launch ({evidence})"
        verdict = SUPPORTED if flagged else AT_FLOOR.place(floors)
        gain = time_us / (time_us - floor_us)
    else:
        verdict = SUPPORTED if floor_us >= time_us or flagged else SHORT_US.place(time_us)
        if verdict == SUPPORTED and not flagged and not floor_us >= time_us and at_roof(figures):
            return leave_open(f"{evidence}, but {at_roof(figures)}", EMPTY)
    return conclude(verdict, evidence, gain, between=": neither a launch nor far from one", need=EMPTY)


def clock_is_reduced(figures: RowFigures) -> Judgment:
    """Check for a clock below the highest, by the driver's reason or by the catalog."""
    reason = figures.word("throttle")
    clock, most = figures.number("sm_clock_mhz"), figures.highest_mhz
    slower = ratio(clock, most)
    share = 100 * slower
    at = "" if math.isnan(clock) else f"{clock:.0f} MHz" + ("" if math.isnan(most) else f" of {most:.0f}")
    if reason not in ("", "none") or "throttled" in figures.flags:
        evidence = _join(reason or "flag throttled", at)
        if share >= CLOCK.no:
            return refute(f"{evidence}: hardly")
        if near_memory(figures) == SUPPORTED:
            return refute(f"{evidence}, which does not matter: {at_roof(figures)}")
        working = near_rate(figures) == SUPPORTED or busiest_pipe(figures)[1] >= NEAR_PIPE.yes
        return dataclasses.replace(support(evidence, ratio(1, slower)), follows=working and reason == POWER)
    if reason == "none":
        return refute(_join("the driver did not hold it down", at))
    verdict = CLOCK.place(share)
    if verdict == REFUTED:
        return refute(at)
    by_ncu = ": by the driver, or by ncu itself (--clock-control none lets it run)" if verdict == SUPPORTED else ""
    return leave_open(f"{at or 'the clock is not known'}{by_ncu}", Need("throttle", "a row of bwprof", ""))


def low_occupancy(figures: RowFigures) -> Judgment:
    """Check for few resident warps, resources as the reason, and stalls that more warps would hide."""
    pct = figures.number("occupancy_pct")
    if math.isnan(pct):
        return leave_open("occupancy was not counted", Need("occupancy_pct", "--metrics occupancy", "compute"))
    evidence = f"occupancy {pct:.3g} %"
    if pct >= OCCUPANCY:
        return refute(evidence)
    ready = figures.waiting("not_selected")
    harmless = at_roof(figures) or busy_part(figures)
    if not harmless and ready >= HIDDEN:
        harmless = f"{ready:.0f} % of the waiting warps are ready to issue"
    if harmless:
        return refute(f"{evidence}, which does not matter: {harmless}")
    limit = figures.theoretical_pct
    if math.isnan(limit):
        return leave_open(f"{evidence}; whether its resources or its grid hold it down is not known", _RESIDENT)
    if limit >= OCCUPANCY:
        return refute(f"{evidence} of {limit:.3g} % that its resources allow: the grid or its tail holds it down")
    evidence = f"{evidence} of at most {limit:.3g} %, limited by {_RESOURCES.get(figures.limiter, 'resources')}"
    if figures.waves < 1:
        return refute(f"{evidence}, but its grid does not fill even that ({figures.waves:.2g} waves)")
    if not figures.waits:
        return leave_open(evidence, STALLS)
    unknown = [bound for bound in (compute_bound(figures), memory_bound(figures)) if bound.verdict != REFUTED]
    if unknown:
        needs = dict.fromkeys(chain.from_iterable(bound.needs for bound in unknown))
        return leave_open(f"{evidence}; it may be near a roof, where that does not matter", *needs)
    return support(evidence, figures.bounded(ratio(100.0, pct)))


def small_grid(figures: RowFigures) -> Judgment:
    """Check for fewer blocks than the device holds, or a last round that is mostly empty."""
    waves = figures.waves if figures.waves > 0 else math.nan
    blocks, units = figures.number("grid_blocks"), figures.units
    near = at_roof(figures)
    if math.isnan(waves) and not blocks < units:
        uneven = figures.number("sm_cycles_ratio")
        verdict = REFUTED if near else UNEVEN.place(uneven)
        worked = f"the busiest multiprocessor worked {uneven:.3g} times as long as the mean"
        if verdict == CANNOT_TELL:
            return leave_open("its grid is not known", Need("waves", "--metrics sm", "full"))
        return conclude(verdict, near or worked, figures.bounded(uneven))
    evidence = f"{waves:.3g} waves"
    if blocks < units:
        evidence = f"{plural(int(blocks), 'block')} for {units:.0f} multiprocessors"
    if near:
        return refute(f"{evidence}; {near}")
    if blocks < units:
        return support(evidence, figures.bounded(ratio(units, blocks)))
    rounds = math.ceil(waves)
    empty = 100 * (rounds - waves) / rounds
    if empty <= TAIL:
        return refute(evidence)
    what = "the device could hold more blocks" if rounds == 1 else f"{empty:.0f} % of {rounds} rounds are empty"
    return support(f"{evidence}: {what}", figures.bounded(rounds / waves))


def barriers(figures: RowFigures) -> Judgment:
    """Check for warps that wait for each other."""
    share = figures.waiting("barrier", "membar")
    if math.isnan(share):
        return leave_open("what warps wait for was not counted", STALLS)
    evidence = f"{share:.0f} % of the stalls are barriers and fences"
    if at_roof(figures):
        return refute(f"{evidence}; {at_roof(figures)}")
    return conclude(BARRIERS.place(share), evidence, figures.bounded(gain_without(share)))


def uncoalesced(figures: RowFigures) -> Judgment:
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


def _judge_lines(figures: RowFigures) -> Judgment | None:
    """Judge the lines that a load touches, which take the L1 cache a turn each; None where they are few."""
    lines, sectors = figures.number("lines_per_load"), figures.number("sectors_per_load")
    if not lines > MOST_LINES or not sectors < 2 * lines:
        return None
    evidence = (
        f"a load touches {lines:.3g} lines, {sectors / lines:.3g} of 4 sectors of each; ideal are {LINES:g} lines"
    )
    busy, queued = figures.busy("l1_pct"), figures.waiting("lg_throttle")
    if busy >= NEAR_PIPE.yes or queued >= WAITING.yes:
        why = f"L1 is busy {busy:.3g} %" if busy >= NEAR_PIPE.yes else f"{queued:.0f} % of the stalls queue for L1"
        return _judge_harmless(figures, evidence) or support(f"{evidence}; {why}", figures.bounded(lines))
    return leave_open(evidence, _L1) if math.isnan(busy) else None


def _judge_harmless(figures: RowFigures, evidence: str) -> Judgment | None:
    """Judge useless traffic where another roof limits, or where no warp waits for it; None elsewhere."""
    near, waiting = at_roof(figures), figures.waiting(*_OF_MEMORY)
    if near_memory(figures) == SUPPORTED:
        return None
    if near:
        return leave_open(f"{evidence}, but {near}")
    if waiting < SHARED_WAITS.no:
        return refute(f"{evidence}, but {waiting:.0f} % of the stalls wait for memory: harmless here")
    return None


def _judge_sectors(figures: RowFigures) -> Judgment:
    """Judge sectors of a request where their use was not counted."""
    most = largest(figures.number("sectors_per_load"), figures.number("sectors_per_store"))
    if math.isnan(most):
        return leave_open("sectors were not counted", Need("sectors_per_load", "--metrics sectors", "memory"))
    evidence = f"{most:.3g} sectors a request"
    ideal = WARP * _element_bytes(figures.word("precision").lower()) / SECTOR  # of single elements; 0: not known
    if most > MOST_SECTORS:
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


@cache
def _element_bytes(precision: str) -> float:
    """Return the bytes of an activation; 0 for an unknown precision."""
    types = registry.precision_types(precision)
    stored = types.get("activation") or types.get("cache")
    return stored["bits"] / 8 if stored else 0.0


def bank_conflicts(figures: RowFigures) -> Judgment:
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


def shared_memory_bound(figures: RowFigures) -> Judgment:
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


def _without_conflicts(figures: RowFigures, verdict: str, evidence: str, gain: float) -> Judgment:
    """Judge waiting for shared memory by whether bank conflicts explain it."""
    conflicts = bank_conflicts(figures)
    if conflicts.verdict == SUPPORTED:
        return refute(f"{evidence}: for bank conflicts")
    if verdict == SUPPORTED and conflicts.verdict == REFUTED:
        return support(evidence, figures.bounded(gain))
    return leave_open(evidence, *conflicts.needs)


def divergence(figures: RowFigures) -> Judgment:
    """Check for warps of which few threads take part in an instruction."""
    active = figures.number("active_threads")
    if math.isnan(active):
        return leave_open("active threads were not counted", Need("active_threads", "--metrics sm", "full"))
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


def spills(figures: RowFigures) -> Judgment:
    """Compare local memory's traffic with all traffic."""
    local = figures.local_bytes
    if math.isnan(local):
        return leave_open("traffic of local memory was not counted", _LOCAL)
    if local == 0:
        return refute("no traffic of local memory")
    others = largest(figures.number("l2_bytes"), figures.counted, figures.algorithmic)
    if math.isnan(others):
        return leave_open(f"{format_bytes(local)} of local memory, beside an unknown amount", BANDWIDTH)
    share = 100 * local / (local + others)
    evidence = f"{format_bytes(local)} of local memory, {share:.3g} % of the traffic"
    verdict = SPILLED.place(share)
    if verdict == REFUTED:
        return refute(f"{evidence}: harmless")
    harmless = _judge_harmless(figures, evidence) if verdict == SUPPORTED else None
    return harmless or conclude(verdict, evidence, figures.bounded(gain_without(share), useless=True))


def cache_thrash(figures: RowFigures) -> Judgment:
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


def _judge_traffic(figures: RowFigures, evidence: str, excess: float) -> Judgment:
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


def materialized(figures: RowFigures) -> Judgment:
    """Check for intermediates that are written and read again."""
    if registry.is_pattern(figures.word("operation")):
        return refute("an access pattern stores no intermediates")
    stored, real = ratio(figures.algorithmic, figures.moved), ratio(figures.counted, figures.moved)
    if math.isnan(stored):
        need = Need("algorithmic_bytes_read, _written", "an operation of bwprof", "")
        return leave_open("what it must move is not known", need)
    if not figures.has("algorithmic_bytes_read", "algorithmic_bytes_written"):
        if figures.as_counted:
            return leave_open("its bytes are the counted ones: what of them must move is not known", COMPULSORY_BYTES)
        if real <= STORED and not figures.hot:
            return refute(f"DRAM moved {real:.3g} times the bytes stated")
        known = "" if math.isnan(real) else f"DRAM moved {real:.3g} times the bytes stated: "
        return leave_open(f"{known}whether it stores intermediates is not known", *(() if known else (_COUNTERS,)))
    if stored <= STORED:
        return refute(f"it moves {stored:.3g} times the compulsory bytes")
    evidence = f"with its intermediates it moves {stored:.3g} times the compulsory bytes"
    if not math.isnan(real):
        evidence = f"{evidence}; DRAM moved {real:.3g} times as many"
    verdict = CANNOT_TELL if real <= STORED else SUPPORTED
    return conclude(verdict, evidence, figures.bounded(stored, useless=True), between=": most stayed in the cache")
