"""Hypotheses about bounds: memory, arithmetic, latency, the clock, and how a kernel is launched."""

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
from bwprof.text.formatting import format_bytes, format_seconds

SAME = 0.85  # of the busiest part: one that is as busy is that part, counted in another pass

READY = 30.0  # of the stalls: warps that could issue, and were not chosen

IDLE = 2.0  # percent of the time in which AMD's memory units stall: none that the bandwidth limits

AT_FLOOR = Band(FLOOR_FACTOR, FLOOR_FACTOR + 1)  # empty launches

# No kernel of a profiler's file that took so long is a launch alone; one this short is (an empty one takes 1 to 2 us).
SHORT_US = Band(3.0, 10.0)

HOST = Band(90.0, 97.0)  # percent of the time in which kernels run

CLOCK = Band(0.85, 0.95)  # of the highest

POWER = "sw_power_cap"  # what the driver calls its power limit: a busy pipe reaches it by itself, at no fault of others

# Over the theoretical bandwidth of DRAM: L2 counts 1.5 bytes for each of a stream, of which 60 % are far from the roof.
BY_L2 = 1.2

COUNTED = Need("counted DRAM bytes", "--counters", "memory")

EMPTY = Need("an empty launch's time", "bwprof.measure", "")

_ENOUGH = 1.2  # of the bytes in flight that are needed


def memory_bound(figures: RowFigures) -> Judgement:
    """Near the bandwidth roof, by the bytes that DRAM really moved."""
    if figures.hot:
        return leave_open(
            "inputs lie in the cache: DRAM is not what it waits for", Need("a cold row", "--cache cold", "")
        )
    if not figures.memory.known:
        stalled = figures.number("mem_unit_stalled_pct")
        if stalled < IDLE:
            return refute(f"memory units stalled {stalled:.2g} % of the time")
        return leave_open("how near it is to the bandwidth is not known", BANDWIDTH)
    verdict, said = near_memory(figures, doubted=figures.unsure), share_text(figures.memory)
    if verdict != SUPPORTED and figures.memory.least:
        return leave_open(f"{said}, by the bytes stated: more may have been moved", COUNTED)
    if verdict == CANNOT_TELL:
        return leave_open(f"{said}: neither near nor far")
    if verdict == REFUTED:
        return refute(said)
    if figures.small:
        at_best = 100 * ratio(figures.number("attainable_gb_s"), figures.number("ceiling_gb_s", "peak_gb_s"))
        roof = "the best stream" if figures.has("ceiling_gb_s") else "the theoretical bandwidth"
        said = f"{said}, {at_best:.0f} % of {roof} as they are so few"
    return support(said, 100 / figures.memory.pct)


def compute_bound(figures: RowFigures) -> Judgement:
    """A pipe, or the FLOPs, near what they can do."""
    verdict = near_rate(figures, doubted=figures.unsure)
    busy = figures.pipes
    pipe, pct = next(iter(busy.items()), ("", math.nan))
    said = "; ".join([f"{name} pipe {value:.3g} %" for name, value in busy.items()])
    if figures.arithmetic.known:
        said = "; ".join(filter(None, (said, share_text(figures.arithmetic))))
    if verdict == SUPPORTED or pct >= NEAR_PIPE.yes:
        used = max(value for value in (pct, figures.arithmetic.pct) if not math.isnan(value))
        return support(said, 100 / used)
    ready = figures.waiting("not_selected")
    if pct >= NEAR_PIPE.no and ready >= READY:
        gain = figures.bounded(100 / pct)
        return support(f"{said}; {ready:.0f} % of the waiting warps could issue, and others did", gain)
    if pct >= NEAR_PIPE.no and figures.number("mem_unit_stalled_pct") < IDLE:
        return support(f"{said}; memory units hardly stalled", 100 / pct)
    return _other_pipe(figures, said, pipe, pct)


def _other_pipe(figures: RowFigures, said: str, pipe: str, pct: float) -> Judgement:
    """Neither FMA nor tensor pipe, nor the FLOPs, are near: is another pipe?"""
    busiest, issued, shared = figures.busy("sm_pct"), figures.busy("issue_pct"), figures.shared_busy
    said = "; ".join(filter(None, (said, "" if math.isnan(busiest) else f"busiest part {busiest:.3g} %")))
    memory = figures.waiting("short_scoreboard", "mio_throttle", "lg_throttle", "tex_throttle", "long_scoreboard")
    if busiest >= NEAR_PIPE.yes:
        if issued >= SAME * busiest:
            return refute(f"{said}: it is the schedulers, which issue in {issued:.3g} % of the cycles")
        idle = max(shared, figures.busy("l1_pct")) < NEAR_PIPE.no  # special functions wait in the queue of loads
        if memory >= WAITING.no and not idle:
            return refute(f"{said}: that of loads and stores, by what warps wait for ({memory:.0f} %)")
        if shared >= SAME * busiest:
            return refute(f"{said}: it is shared memory, busy {shared:.3g} % of the cycles")
        if math.isnan(memory) or math.isnan(issued):
            needs = [need for need, value in ((STALLS, memory), (ISSUE, issued)) if math.isnan(value)]
            return leave_open(f"{said}: a pipe of arithmetic or another part", *needs)
        return support(f"{said}: a pipe other than FMA and tensor cores", 100 / busiest)
    stated = figures.has("arithmetic_intensity") or figures.has("measured_tflops")  # not counted of some pipes alone
    rate_far = near_rate(figures) == REFUTED and stated
    if busiest < NEAR_PIPE.no or (pipe and pct < NEAR_PIPE.no and (rate_far or len(figures.pipes) > 1)):
        return refute(said)
    if not pipe and math.isnan(busiest):
        if rate_far:
            return refute(said)
        return leave_open(said or "no pipe was counted, and its FLOPs are not known", PIPES)
    if near_memory(figures) == SUPPORTED:
        return refute(f"{said}; memory is nearer ({share_text(figures.memory)})")
    return leave_open(f"{said}: neither near nor far", *(() if pipe else (PIPES,)))


def issue_bound(figures: RowFigures) -> Judgement:
    """The schedulers issue in nearly every cycle, and what they issue keeps no pipe busy: too many instructions."""
    issued = figures.busy("issue_pct")
    near = at_roof(figures)
    if near:
        return refute(near)
    if math.isnan(issued):
        if figures.busy("sm_pct") < NEAR_PIPE.no:
            return refute(f"no part of the multiprocessors is busy ({figures.number('sm_pct'):.3g} %)")
        return leave_open("how often an instruction was issued was not counted", ISSUE)
    said = f"an instruction in {issued:.3g} % of the cycles"
    verdict = NEAR_PIPE.place(issued, doubted=figures.unsure)
    if not figures.has("fma_pct") and verdict != REFUTED:
        return leave_open(f"{said}: of arithmetic or of others", PIPES)
    if busiest_pipe(figures) > 0:
        said = f"{said}, while the busiest of the FMA and tensor pipes is at {busiest_pipe(figures):.3g} %"
    if verdict == SUPPORTED:
        return support(said, figures.bounded(100 / issued))
    return refute(said) if verdict == REFUTED else leave_open(f"{said}: neither near nor far")


def latency_bound(figures: RowFigures) -> Judgement:
    """Far from both roofs, and most warps wait for memory: too few bytes are on their way."""
    near = at_roof(figures)
    if near:
        return refute(f"{near}: waiting is what a roof looks like")
    launch = launch_bound(figures)
    if launch.verdict == SUPPORTED:
        return refute("its time is a launch's")
    share = figures.waiting("long_scoreboard")
    flight = _flight(figures)
    if math.isnan(share):
        return leave_open("; ".join(filter(None, ("what warps wait for was not counted", flight))), STALLS)
    said = f"{share:.0f} % of the stalls wait for memory"
    verdict = WAITING.place(share, doubted=figures.unsure)
    if verdict != SUPPORTED:
        return refute(said) if verdict == REFUTED else leave_open(f"{said}: neither most nor few")
    if not figures.memory.known:
        return leave_open(f"{said}, at its full bandwidth or far from it", BANDWIDTH)
    said = "; ".join(filter(None, (said, share_text(figures.memory), flight)))
    if figures.memory.least:
        return leave_open(f"{said}, by the bytes stated", COUNTED)
    if near_memory(figures) == CANNOT_TELL:
        return leave_open(f"{said}: neither near the memory roof nor far")
    if launch.verdict != REFUTED:
        return leave_open(f"{said}; {launch.evidence}", *launch.needs)
    if busy_part(figures):
        return refute(f"{said}, but {busy_part(figures)}")
    if not figures.has("l2_pct") and figures.l2_gb_s > BY_L2 * figures.number("peak_gb_s"):
        need = Need("l2_pct", "--metrics caches", "full")
        return leave_open(f"{said}; L2 moved {figures.l2_gb_s:.0f} GB/s, and may be what is full", need)
    if figures.in_flight_least > _ENOUGH * figures.in_flight_needed and figures.memory.pct < WAITING.no:
        need = Need("l1_hit_pct, l2_hit_pct, load_efficiency_pct", "", "full")
        return leave_open(f"{said}: enough, so that caches or the access pattern must be what is slow", need)
    return support(said, figures.bounded(gain_without(share)))


def _flight(figures: RowFigures) -> str:
    """Little's law in words; "" where it cannot be worked out."""
    need, least = figures.in_flight_needed, figures.in_flight_least
    if math.isnan(need) or math.isnan(least):
        return ""
    source = "" if figures.latency_known else " assumed"
    return (
        f"{format_bytes(least)} in flight with one load a warp, of {format_bytes(need)} that the full bandwidth needs "
        f"({figures.latency_us:g} us of latency{source})"
    )


def launch_bound(figures: RowFigures) -> Judgement:
    """The time is a launch's, or the GPU waits for the host between kernels."""
    time_us, floor_us = 1e3 * figures.number("time_ms"), figures.number("timer_floor_us")
    share = _kernel_share(figures)
    if HOST.place(share) == SUPPORTED:
        return support(f"kernels run {share:.0f} % of the time", ratio(100.0, share))
    if not time_us > 0:
        return leave_open("its time is not known", Need("time", "bwprof.measure", "roofline"))
    if time_us > floor_us:
        floors = ratio(time_us, floor_us)
        said = f"{floors:.3g} times an empty launch ({format_seconds(time_us * 1e-6)})"
        verdict = SUPPORTED if "near_timer_floor" in figures.flags else AT_FLOOR.place(floors)
        gain = time_us / (time_us - floor_us)
    else:
        said, gain = format_seconds(time_us * 1e-6), math.nan
        verdict = SHORT_US.place(time_us)
        if floor_us >= time_us or "near_timer_floor" in figures.flags:
            verdict = SUPPORTED
        elif verdict == SUPPORTED and at_roof(figures):
            return leave_open(f"{said}, but {at_roof(figures)}", EMPTY)
    if verdict == SUPPORTED:
        return support(said, gain)
    return refute(said) if verdict == REFUTED else leave_open(f"{said}: neither a launch nor far from one", EMPTY)


def _kernel_share(figures: RowFigures) -> float:
    """Percent of the wall time in which kernels ran, by a column `wall_ms` or what `reason` says."""
    own = 100 * ratio(figures.number("time_ms"), figures.number("wall_ms"))
    if not math.isnan(own) or not figures.word("reason"):
        return own
    return 100 - float(values.waiting_share(values.as_frame({"reason": figures.word("reason")}))[0])


def clock_is_reduced(figures: RowFigures) -> Judgement:
    """The clock was below what it could be: by the driver's word, or beside the highest that is known."""
    said = figures.word("throttle")
    clock, most = figures.number("sm_clock_mhz"), figures.card.clock_mhz if figures.card else None
    share = ratio(clock, most or math.nan)
    at = "" if math.isnan(clock) else f"{clock:.0f} MHz" + (f" of {most:.0f}" if most else "")
    if said not in ("", "none") or "throttled" in figures.flags:
        said = "; ".join(filter(None, (said or "flag throttled", at)))
        if share >= CLOCK.no:
            return refute(f"{said}: hardly")
        if near_memory(figures) == SUPPORTED:
            return refute(f"{said}, which does not matter: {at_roof(figures)}")
        working = near_rate(figures) == SUPPORTED or busiest_pipe(figures) >= NEAR_PIPE.yes
        own = working and figures.word("throttle") == POWER
        return dataclasses.replace(support(said, ratio(most or math.nan, clock)), follows=own)
    if said == "none":
        return refute("; ".join(filter(None, ("the driver did not hold it down", at))))
    verdict = CLOCK.place(share)
    if verdict == REFUTED:
        return refute(at)
    need = Need("throttle", "a row of bwprof", "")
    if verdict == SUPPORTED:
        return leave_open(f"{at}: by the driver, or by ncu itself (--clock-control none lets it run)", need)
    return leave_open(at or "the clock is not known", need)


OCCUPANCY = find_rule("low_occupancy").threshold  # percent

HIDDEN = 20.0  # percent of the stalls that are warps ready to issue: from here on more warps would find no turn

TAIL = 0.2  # of the rounds that blocks take, empty

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
    """Few warps are resident, resources are why, and warps wait as if there were too few of them."""
    found, could = figures.number("occupancy_pct"), figures.theoretical_pct
    if math.isnan(found):
        return leave_open("occupancy was not counted", Need("occupancy_pct", "--metrics occupancy", "compute"))
    said = f"occupancy {found:.3g} %"
    if found >= OCCUPANCY:
        return refute(said)
    near = at_roof(figures)
    if near:
        return refute(f"{said}, which does not matter: {near}")
    if busy_part(figures):
        return refute(f"{said}, which does not matter: {busy_part(figures)}")
    ready = figures.waiting("not_selected")
    if ready >= HIDDEN:
        return refute(f"{said}, which does not matter: {ready:.0f} % of the waiting warps are ready to issue")
    if math.isnan(could):
        return leave_open(f"{said}; whether its resources or its grid hold it down is not known", _RESIDENT)
    if could >= OCCUPANCY:
        return refute(f"{said} of {could:.3g} % that its resources allow: the grid or its tail holds it down")
    said = f"{said} of at most {could:.3g} %, limited by {_RESOURCES.get(figures.limiter, 'resources')}"
    if figures.waves < 1:
        return refute(f"{said}, but its grid does not fill even that ({figures.waves:.2g} waves)")
    if math.isnan(ready):
        return leave_open(said, STALLS)
    unknown = [found for found in (compute_bound(figures), memory_bound(figures)) if found.verdict != REFUTED]
    if unknown:
        needs = dict.fromkeys(need for found in unknown for need in found.needs)
        return leave_open(f"{said}; it may be near a roof, where that does not matter", *needs)
    return support(said, figures.bounded(ratio(100.0, found)))


def small_grid(figures: RowFigures) -> Judgement:
    """Fewer blocks than the device holds at once, or a last round that leaves most of it idle."""
    waves = figures.waves if figures.waves > 0 else math.nan
    blocks, units = figures.number("grid_blocks"), figures.units
    near = at_roof(figures)
    if math.isnan(waves) and not blocks < units:
        return _by_units(figures, near)
    said = f"{waves:.3g} waves" if not math.isnan(waves) else f"{blocks:.0f} blocks"
    if blocks < units:
        said = f"{blocks:.0f} {'block' if blocks == 1 else 'blocks'} for {units:.0f} multiprocessors"
    if near:
        return refute(f"{said}; {near}")
    if blocks < units:
        return support(said, figures.bounded(ratio(units, blocks)))
    rounds = math.ceil(waves)
    empty = (rounds - waves) / rounds
    if empty > TAIL and rounds == 1:
        return support(f"{said}: the device could hold more blocks", figures.bounded(ratio(1.0, waves)))
    if empty > TAIL:
        return support(f"{said}: {100 * empty:.0f} % of {rounds} rounds are empty", figures.bounded(rounds / waves))
    return refute(said)


def _by_units(figures: RowFigures, near: str) -> Judgement:
    """Without the grid: how unevenly multiprocessors were busy."""
    uneven = figures.number("sm_cycles_ratio")
    verdict = UNEVEN.place(uneven)
    said = f"the busiest multiprocessor worked {uneven:.3g} times as long as the mean"
    if near:
        return refute(near)
    if verdict == SUPPORTED:
        return support(said, figures.bounded(uneven))
    return refute(said) if verdict == REFUTED else leave_open("its grid is not known", _GRID)


def barriers(figures: RowFigures) -> Judgement:
    """Warps wait for each other."""
    share = figures.waiting("barrier", "membar")
    if math.isnan(share):
        return leave_open("what warps wait for was not counted", STALLS)
    said = f"{share:.0f} % of the stalls are barriers and fences"
    near = at_roof(figures)
    if near:
        return refute(f"{said}; {near}")
    verdict = BARRIERS.place(share)
    if verdict == SUPPORTED:
        return support(said, figures.bounded(gain_without(share)))
    return refute(said) if verdict == REFUTED else leave_open(said)
