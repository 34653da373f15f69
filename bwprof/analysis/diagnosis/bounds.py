"""Judge hypotheses about bounds: memory, arithmetic, latency, the clock and the launch."""

from __future__ import annotations

import dataclasses
import math

from bwprof.analysis import values
from bwprof.analysis.diagnosis.figures import RowFigures, ratio
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
    Judgement,
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
    share_text,
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
CLOCK = Band(0.85, 0.95)  # of the highest
POWER = "sw_power_cap"  # the driver's power limit, which a busy pipe reaches by itself

# L2 counts 1.5 bytes for each byte of a stream: 60 % of this share of the theoretical bandwidth is far from the roof.
BY_L2 = 1.2
COUNTED = Need("counted DRAM bytes", "--counters", "memory")
EMPTY = Need("an empty launch's time", "bwprof.measure", "")
_ENOUGH = 1.2  # of the bytes in flight that are needed
_NEITHER = ": neither near nor far"


def _join(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def memory_bound(figures: RowFigures) -> Judgement:
    """Compare the bytes that DRAM moved with the bandwidth roof."""
    if figures.hot:
        need = Need("a cold row", "--cache cold", "")
        return leave_open("inputs lie in the cache: DRAM is not what it waits for", need)
    if not figures.memory.known:
        stalled = figures.number("mem_unit_stalled_pct")
        if stalled < IDLE:
            return refute(f"memory units stalled {stalled:.2g} % of the time")
        return leave_open("how near it is to the bandwidth is not known", BANDWIDTH)
    verdict, evidence = near_memory(figures, doubted=figures.unsure), share_text(figures.memory)
    if verdict != SUPPORTED and figures.memory.least:
        return leave_open(f"{evidence}, by the bytes stated: more may have been moved", COUNTED)
    if verdict == SUPPORTED and figures.small:
        at_best = 100 * ratio(figures.number("attainable_gb_s"), figures.number("ceiling_gb_s", "peak_gb_s"))
        roof = "the best stream" if figures.has("ceiling_gb_s") else "the theoretical bandwidth"
        evidence = f"{evidence}, {at_best:.0f} % of {roof} as they are so few"
    return conclude(verdict, evidence, ratio(100, figures.memory.pct), between=_NEITHER)


def compute_bound(figures: RowFigures) -> Judgement:
    """Compare the arithmetic pipes, or the FLOPs, with what they can do."""
    pipe, pct = next(iter(figures.pipes.items()), ("", math.nan))
    evidence = "; ".join([f"{name} pipe {value:.3g} %" for name, value in figures.pipes.items()])
    if figures.arithmetic.known:
        evidence = _join(evidence, share_text(figures.arithmetic))
    if near_rate(figures, doubted=figures.unsure) == SUPPORTED or pct >= NEAR_PIPE.yes:
        return support(evidence, 100 / max(value for value in (pct, figures.arithmetic.pct) if not math.isnan(value)))
    if pct >= NEAR_PIPE.no:
        ready = figures.waiting("not_selected")
        if ready >= READY:
            more = f"{ready:.0f} % of the waiting warps could issue, and others did"
            return support(f"{evidence}; {more}", figures.bounded(100 / pct))
        if figures.number("mem_unit_stalled_pct") < IDLE:
            return support(f"{evidence}; memory units hardly stalled", 100 / pct)
    busiest = figures.busy("sm_pct")
    if not math.isnan(busiest):
        evidence = _join(evidence, f"busiest part {busiest:.3g} %")
    return _busy_unit(figures, evidence) if busiest >= NEAR_PIPE.yes else _no_busy_unit(figures, evidence, pipe, pct)


def _busy_unit(figures: RowFigures, evidence: str) -> Judgement:
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


def _no_busy_unit(figures: RowFigures, evidence: str, pipe: str, pct: float) -> Judgement:
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
        return refute(f"{evidence}; memory is nearer ({share_text(figures.memory)})")
    return leave_open(evidence + _NEITHER, *(() if pipe else (PIPES,)))


def issue_bound(figures: RowFigures) -> Judgement:
    """Check for schedulers that issue in nearly every cycle while no pipe is busy."""
    issued = figures.busy("issue_pct")
    if at_roof(figures):
        return refute(at_roof(figures))
    if math.isnan(issued):
        if figures.busy("sm_pct") < NEAR_PIPE.no:
            return refute(f"no part of the multiprocessors is busy ({figures.number('sm_pct'):.3g} %)")
        return leave_open("how often an instruction was issued was not counted", ISSUE)
    evidence = f"an instruction in {issued:.3g} % of the cycles"
    verdict = NEAR_PIPE.place(issued, doubted=figures.unsure)
    if not figures.has("fma_pct") and verdict != REFUTED:
        return leave_open(f"{evidence}: of arithmetic or of others", PIPES)
    pct = busiest_pipe(figures)[1]
    if pct > 0:
        evidence = f"{evidence}, while the busiest of the FMA and tensor pipes is at {pct:.3g} %"
    return conclude(verdict, evidence, figures.bounded(ratio(100, issued)), between=_NEITHER)


def latency_bound(figures: RowFigures) -> Judgement:
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
    evidence = _join(evidence, share_text(figures.memory), flight)
    if figures.memory.least:
        return leave_open(f"{evidence}, by the bytes stated", COUNTED)
    if near_memory(figures) == CANNOT_TELL:
        return leave_open(f"{evidence}: neither near the memory roof nor far")
    if launch.verdict != REFUTED:
        return leave_open(f"{evidence}; {launch.evidence}", *launch.needs)
    if busy_part(figures):
        return refute(f"{evidence}, but {busy_part(figures)}")
    return _judge_flight(figures, evidence) or support(evidence, figures.bounded(gain_without(share)))


def _judge_flight(figures: RowFigures, evidence: str) -> Judgement | None:
    """Leave latency open where L2 may be full, or where enough bytes are in flight."""
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


def launch_bound(figures: RowFigures) -> Judgement:
    """Compare the time with an empty launch's, and the kernels' time with the wall time."""
    time_us, floor_us = 1e3 * figures.number("time_ms"), figures.number("timer_floor_us")
    share = _kernel_share(figures)
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


def _kernel_share(figures: RowFigures) -> float:
    """Compute the percentage of the wall time in which kernels ran, from `wall_ms` or `reason`."""
    own = 100 * ratio(figures.number("time_ms"), figures.number("wall_ms"))
    if not math.isnan(own) or not figures.word("reason"):
        return own
    return 100 - float(values.waiting_share(values.as_frame({"reason": figures.word("reason")}))[0])


def clock_is_reduced(figures: RowFigures) -> Judgement:
    """Check for a clock below the highest, by the driver's reason or by the catalogue."""
    reason = figures.word("throttle")
    clock, most = figures.number("sm_clock_mhz"), (figures.card and figures.card.clock_mhz) or math.nan
    share = ratio(clock, most)
    at = "" if math.isnan(clock) else f"{clock:.0f} MHz" + ("" if math.isnan(most) else f" of {most:.0f}")
    if reason not in ("", "none") or "throttled" in figures.flags:
        return _judge_throttling(figures, _join(reason or "flag throttled", at), share)
    if reason == "none":
        return refute(_join("the driver did not hold it down", at))
    verdict = CLOCK.place(share)
    if verdict == REFUTED:
        return refute(at)
    by_ncu = ": by the driver, or by ncu itself (--clock-control none lets it run)" if verdict == SUPPORTED else ""
    return leave_open(f"{at or 'the clock is not known'}{by_ncu}", Need("throttle", "a row of bwprof", ""))


def _judge_throttling(figures: RowFigures, evidence: str, share: float) -> Judgement:
    """Judge a clock that the driver holds down at a share of the highest."""
    if share >= CLOCK.no:
        return refute(f"{evidence}: hardly")
    if near_memory(figures) == SUPPORTED:
        return refute(f"{evidence}, which does not matter: {at_roof(figures)}")
    working = near_rate(figures) == SUPPORTED or busiest_pipe(figures)[1] >= NEAR_PIPE.yes
    by_power = figures.word("throttle") == POWER
    return dataclasses.replace(support(evidence, ratio(1, share)), follows=working and by_power)


OCCUPANCY = find_rule("low_occupancy").threshold  # percent
HIDDEN = 20.0  # percent of the stalls that are warps ready to issue: from here on more warps find no turn
TAIL = 0.2  # share of the rounds of blocks that is empty
UNEVEN = Band(1.5, 1.1)  # busiest over mean multiprocessor
BARRIERS = Band(30.0, 15.0)  # percent of the stalls

_RESOURCES = {
    "registers": "registers",
    "shared": "shared memory",
    "threads": "the size of its blocks",
    "warps": "the size of its blocks",
    "blocks": "the number of blocks that fit",
}

_GRID = Need("waves", "--metrics sm", "full")
_RESIDENT = Need("theoretical_occupancy_pct, occupancy_limiter", "bwprof variants", "full")


def low_occupancy(figures: RowFigures) -> Judgement:
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
    return _judge_resources(figures, evidence, figures.bounded(ratio(100.0, pct)))


def _judge_resources(figures: RowFigures, evidence: str, gain: float) -> Judgement:
    """Judge low occupancy by the occupancy that its resources allow, its grid and the roofs."""
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
        needs = dict.fromkeys(need for bound in unknown for need in bound.needs)
        return leave_open(f"{evidence}; it may be near a roof, where that does not matter", *needs)
    return support(evidence, gain)


def small_grid(figures: RowFigures) -> Judgement:
    """Check for fewer blocks than the device holds, or a last round that is mostly empty."""
    waves = figures.waves if figures.waves > 0 else math.nan
    blocks, units = figures.number("grid_blocks"), figures.units
    near = at_roof(figures)
    if math.isnan(waves) and not blocks < units:
        return refute(near) if near else _uneven_units(figures)
    evidence = f"{waves:.3g} waves"
    if blocks < units:
        evidence = f"{plural(int(blocks), 'block')} for {units:.0f} multiprocessors"
    if near:
        return refute(f"{evidence}; {near}")
    if blocks < units:
        return support(evidence, figures.bounded(ratio(units, blocks)))
    rounds = math.ceil(waves)
    empty = (rounds - waves) / rounds
    if empty <= TAIL:
        return refute(evidence)
    what = "the device could hold more blocks" if rounds == 1 else f"{100 * empty:.0f} % of {rounds} rounds are empty"
    return support(f"{evidence}: {what}", figures.bounded(rounds / waves))


def _uneven_units(figures: RowFigures) -> Judgement:
    """Judge, without the grid, how unevenly multiprocessors were busy."""
    uneven = figures.number("sm_cycles_ratio")
    verdict = UNEVEN.place(uneven)
    if verdict == CANNOT_TELL:
        return leave_open("its grid is not known", _GRID)
    evidence = f"the busiest multiprocessor worked {uneven:.3g} times as long as the mean"
    return conclude(verdict, evidence, figures.bounded(uneven))


def barriers(figures: RowFigures) -> Judgement:
    """Check for warps that wait for each other."""
    share = figures.waiting("barrier", "membar")
    if math.isnan(share):
        return leave_open("what warps wait for was not counted", STALLS)
    evidence = f"{share:.0f} % of the stalls are barriers and fences"
    if at_roof(figures):
        return refute(f"{evidence}; {at_roof(figures)}")
    return conclude(BARRIERS.place(share), evidence, figures.bounded(gain_without(share)))
