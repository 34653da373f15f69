"""Rows of kernels that are slow for a known cause: what counters must show, worked out from the cause, with noise.

A card and a kernel are drawn at random; time, bytes and shares follow from each other as on a real one (time is bytes
over the bandwidth that the bytes in flight allow, turns of shared memory are what the conflicts make of them, ...).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Card:
    """A GPU: multiprocessors, warps each, GB/s in theory and of a stream, TFLOP/s, MHz, compute capability."""

    name: str
    units: int
    warps: int
    peak: float
    stream: float
    tflops: float
    clock: float
    arch: str


CARDS = (
    Card("NVIDIA H200", 132, 64, 4814.0, 4300.0, 66.9, 1980.0, "9.0"),
    Card("NVIDIA A100-SXM4-80GB", 108, 64, 2039.0, 1800.0, 19.5, 1410.0, "8.0"),
    Card("NVIDIA L4", 58, 48, 300.0, 265.0, 30.3, 2040.0, "8.9"),
)


class Draw:
    """Random numbers of one kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.card = self.random.choice(CARDS)

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def waits(self, **shares: float) -> str:
        """Stall reasons with these shares of the waiting (percent); the rest is spread over what always occurs."""
        whole = self.between(3, 80)
        rest = ("wait", "branch_resolving", "no_instruction", "drain", "dispatch_stall", "not_selected")
        left = 100 - sum(shares.values())
        weights = {name: self.between(0.5, 1.5) for name in rest if name not in shares}
        spread = {name: left * weight / sum(weights.values()) for name, weight in weights.items()}
        found = {name: whole * pct / 100 * self.between(0.97, 1.03) for name, pct in {**shares, **spread}.items()}
        return ";".join(f"{name}={value:.3f}" for name, value in {**found, "selected": 1.0}.items())


def kernel(draw: Draw, share: float, useful: float, **changes: Any) -> Row:
    """A kernel that keeps DRAM busy for `share` percent of a stream's bandwidth, of whose bytes `useful` (0 to 1) are
    what it must move. Everything else is as it should be, but for `changes`.
    """
    card = draw.card
    must = draw.between(2e8, 2e9)
    counted = must / useful * draw.between(0.995, 1.005)
    time_ms = counted / (share / 100 * card.stream * 1e9) * 1e3
    registers, threads = draw.random.choice((24, 32, 40)), 256
    resident = {24: 100.0, 32: 100.0, 40: 75.0}[registers] if card.warps == 64 else 100.0
    blocks = int(card.units * draw.between(60, 400))
    row: Row = {
        "device": card.name,
        "status": "ok",
        "time_ms": time_ms,
        "dram_bytes_read": counted * 0.6,
        "dram_bytes_written": counted * 0.4,
        "dram_gb_s": counted / time_ms / 1e6,
        "peak_gb_s": card.peak,
        "dram_pct": 100 * counted / time_ms / 1e6 / card.peak,
        "sm_pct": draw.between(5, 35),
        "fma_pct": draw.between(1, 25),
        "tensor_pct": 0.0,
        "occupancy_pct": resident * draw.between(0.75, 0.97),
        "theoretical_occupancy_pct": resident,
        "occupancy_limiter": "registers",
        "stall_reasons": draw.waits(long_scoreboard=draw.between(70, 90)),
        "bank_conflicts": 0,
        "shared_wavefronts": int(must / 512),
        "sectors_per_load": 16.0,
        "sectors_per_store": 16.0,
        "load_efficiency_pct": draw.between(96, 100),
        "store_efficiency_pct": 100.0,
        "lines_per_load": 4.0,
        "local_bytes": 0,
        "l2_bytes": 1.5 * counted,
        "issue_pct": draw.between(3, 35),
        "shared_pct": draw.between(0, 10),
        "l1_pct": draw.between(10, 45),
        "l2_pct": draw.between(20, 60),
        "active_threads": draw.between(30, 32),
        "sm_cycles_ratio": draw.between(1.0, 1.05),
        "registers": registers,
        "block_threads": threads,
        "shared_bytes": 0,
        "grid_blocks": blocks,
        "waves": blocks / (card.units * (card.warps * resident / 100) / (threads / 32)),
        "multiprocessors": card.units,
        "compute_capability": card.arch,
        "sm_clock_mhz": card.clock * draw.between(0.97, 1.0),
        "bytes_read": must * 0.6,
        "bytes_written": must * 0.4,
        "timer_floor_us": 0.6,
        "throttle": "none",
        "flags": "",
        "verified": True,
        "cache": "cold",
    }
    return row | changes


def plain_copy(draw: Draw) -> Row:
    return kernel(draw, draw.between(93, 102), 1.0)


def uncoalesced_streaming(draw: Draw) -> Row:
    """Each lane its own sector: an eighth of what is fetched is used."""
    waits = draw.waits(long_scoreboard=draw.between(40, 60), lg_throttle=draw.between(20, 35))
    return kernel(
        draw, draw.between(82, 97), 0.125, load_efficiency_pct=12.5, sectors_per_load=32.0, stall_reasons=waits
    )


def uncoalesced_in_cache(draw: Draw) -> Row:
    """The same, where the other lanes' sectors are found in L2: DRAM moves what it must, slowly."""
    used = draw.between(12, 40)
    waits = draw.waits(long_scoreboard=draw.between(40, 65), lg_throttle=draw.between(15, 30))
    return kernel(
        draw,
        draw.between(8, 35),
        1.0,
        load_efficiency_pct=used,
        sectors_per_load=32.0,
        l2_hit_pct=80.0,
        stall_reasons=waits,
    )


def conflicts(draw: Draw) -> Row:
    """Each access to shared memory takes 8, 16 or 32 turns."""
    ways, accesses = draw.random.choice((8, 16, 32)), 10**6
    waiting = draw.between(60, 90)
    waits = draw.waits(mio_throttle=waiting * 0.6, short_scoreboard=waiting * 0.4)
    return kernel(
        draw,
        draw.between(3, 30),
        1.0,
        bank_conflicts=accesses * (ways - 1),
        shared_wavefronts=accesses * ways,
        shared_bytes=4096,
        shared_pct=draw.between(75, 100),
        l1_pct=100.0,
        sm_pct=draw.between(20, 45),
        stall_reasons=waits,
    )


def one_block(draw: Draw) -> Row:
    """One block has one multiprocessor's share of the bandwidth, at the very best."""
    row = kernel(draw, 100 / draw.card.units * draw.between(0.4, 1.0), 1.0)
    waves = 1 / (draw.card.units * draw.card.warps / 8)
    return row | {
        "grid_blocks": 1,
        "waves": waves,
        "occupancy_pct": 800 / draw.card.warps,
        "sm_cycles_ratio": float(draw.card.units),
    }


def tail(draw: Draw) -> Row:
    """A little more than a round of blocks: the second round is nearly empty."""
    waves = draw.between(1.05, 1.25)
    waits = draw.waits(long_scoreboard=draw.between(20, 35), short_scoreboard=5.0)
    return kernel(draw, 95 * waves / 2 * draw.between(0.75, 0.98), 1.0, waves=waves, stall_reasons=waits) | {
        "grid_blocks": int(waves * draw.card.units * 8),
        "sm_cycles_ratio": 2 / waves,
    }


def quarter(draw: Draw) -> Row:
    """The FMA pipe of every fourth multiprocessor is busy, the others have no block."""
    row = fma_bound(draw)
    blocks = draw.card.units // 4
    resident = draw.card.warps // 32
    return row | {
        "grid_blocks": blocks,
        "waves": blocks / (resident * draw.card.units),
        "sm_cycles_ratio": draw.card.units / blocks,
        "tflops": row["tflops"] / 4,
        "flops": row["flops"] / 4,
        "occupancy_pct": 3200 / draw.card.warps,
        "dram_pct": row["dram_pct"] / 4,
        "dram_gb_s": row["dram_gb_s"] / 4,
        "time_ms": row["time_ms"] * 4,
    }


def special_functions(draw: Draw) -> Row:
    """Their unit is busy; warps wait in the queue that loads from shared memory go through, too."""
    busy = draw.between(78, 98)
    waits = draw.waits(mio_throttle=draw.between(20, 40), short_scoreboard=draw.between(15, 35))
    changes = {"sm_pct": busy, "fma_pct": busy / 4, "issue_pct": busy / 3, "l1_pct": draw.between(1, 30)}
    return kernel(draw, draw.between(1, 20), 1.0, stall_reasons=waits, shared_pct=draw.between(0, 3), **changes)


def issuing(draw: Draw) -> Row:
    """Addresses, loops and loads: an instruction in nearly every cycle, few of them arithmetic."""
    busy = draw.between(78, 95)
    waits = draw.waits(not_selected=draw.between(20, 28), wait=draw.between(20, 28), short_scoreboard=15.0)
    changes = {"sm_pct": busy, "issue_pct": busy, "fma_pct": busy * draw.between(0.2, 0.5), "shared_bytes": 32768}
    return kernel(draw, draw.between(1, 30), 1.0, stall_reasons=waits, shared_pct=draw.between(20, 55), **changes)


def divergent(draw: Draw) -> Row:
    """Threads of a warp that each go their own way."""
    busy = draw.between(40, 90)
    waits = draw.waits(branch_resolving=draw.between(15, 30), wait=draw.between(20, 40))
    changes = {"sm_pct": busy, "issue_pct": busy, "fma_pct": busy * draw.between(0.1, 0.4)}
    return kernel(draw, draw.between(1, 30), 1.0, stall_reasons=waits, active_threads=draw.between(1.2, 12), **changes)


def spilling(draw: Draw) -> Row:
    """Registers go to local memory and back: through L1, and some of it further."""
    part = draw.between(0.2, 0.7)
    waits = draw.waits(long_scoreboard=draw.between(25, 38), lg_throttle=draw.between(20, 30))
    row = kernel(draw, draw.between(15, 60), 1.0, registers=255, stall_reasons=waits)
    # 255 registers hold one block of 8 warps
    return row | {
        "local_bytes": int(row["l2_bytes"] * part / (1 - part)),
        "occupancy_pct": 98 * 8 / draw.card.warps,
        "theoretical_occupancy_pct": 800 / draw.card.warps,
    }


def tiny(draw: Draw) -> Row:
    """Nothing but a launch."""
    row = kernel(draw, 5.0, 1.0)
    time_ms = 0.6e-3 * draw.between(1.05, 2.6)
    scale = time_ms / row["time_ms"]
    for name in ("dram_bytes_read", "dram_bytes_written", "bytes_read", "bytes_written", "l2_bytes"):
        row[name] *= scale
    return row | {"time_ms": time_ms, "flags": "near_timer_floor", "grid_blocks": 1, "waves": 0.001, "registers": 16}


def fma_bound(draw: Draw) -> Row:
    busy = draw.between(75, 97)
    waits = draw.waits(not_selected=draw.between(25, 50), math_pipe_throttle=draw.between(10, 30))
    changes = {"fma_pct": busy, "sm_pct": busy + 1, "issue_pct": busy + 1, "stall_reasons": waits, "l1_hit_pct": 90.0}
    row = kernel(draw, draw.between(2, 40), 1.0, **changes)
    tflops = draw.card.tflops * busy / 100
    return row | {"flops": tflops * row["time_ms"] * 1e9, "tflops": tflops, "peak_tflops": draw.card.tflops}


def tensor_bound(draw: Draw) -> Row:
    """Large tiles: one block a multiprocessor, by registers and shared memory, which does not matter."""
    busy = draw.between(72, 92)
    waits = draw.waits(math_pipe_throttle=draw.between(30, 50), wait=draw.between(20, 30))
    return kernel(
        draw,
        draw.between(5, 45),
        1.0,
        tensor_pct=busy,
        fma_pct=2.0,
        sm_pct=busy,
        occupancy_pct=12.4,
        theoretical_occupancy_pct=12.5,
        stall_reasons=waits,
        registers=168,
        threads=256,
    )


def dependent_loads(draw: Draw) -> Row:
    """One load of 4 bytes a lane in flight for each warp: bandwidth is bytes in flight over latency."""
    card, resident = draw.card, draw.between(55, 95)
    flying = resident / 100 * card.warps * card.units * 128
    share = 100 * flying / (draw.between(0.6, 0.8) * 1e-6) / (card.stream * 1e9)
    waits = draw.waits(long_scoreboard=draw.between(80, 96))
    return kernel(
        draw,
        min(share, 65.0),
        1.0,
        occupancy_pct=resident,
        theoretical_occupancy_pct=100.0,
        sectors_per_load=4.0,
        sectors_per_store=4.0,
        stall_reasons=waits,
    )


def few_warps(draw: Draw) -> Row:
    """200 registers a thread: one block of 256 fits (9 warps of 6 656 of 65 536), of whose loads too few fly."""
    could = 800 / draw.card.warps
    waits = draw.waits(long_scoreboard=draw.between(55, 75), wait=draw.between(10, 20))
    return kernel(
        draw,
        draw.between(20, 55),
        1.0,
        registers=200,
        occupancy_pct=could * draw.between(0.9, 0.99),
        theoretical_occupancy_pct=could,
        stall_reasons=waits,
    )


def thrashing(draw: Draw) -> Row:
    return kernel(draw, draw.between(82, 98), 1 / draw.between(1.4, 5))


def unfused(draw: Draw) -> Row:
    """Intermediates are algorithmic bytes: DRAM moves them, and no more."""
    times = draw.between(2.5, 20)
    row = kernel(draw, draw.between(82, 98), 1 / times)
    return row | {
        "algorithmic_bytes_read": times * row["bytes_read"],
        "algorithmic_bytes_written": times * row["bytes_written"],
    }


def throttled(draw: Draw) -> Row:
    row = fma_bound(draw)
    slower = draw.between(0.5, 0.8)
    clock = row["sm_clock_mhz"] * slower
    return row | {
        "throttle": "sw_thermal",
        "flags": "throttled",
        "sm_clock_mhz": clock,
        "time_ms": row["time_ms"] / slower,
        "tflops": row["tflops"] * slower,
        "dram_pct": row["dram_pct"] * slower,
        "dram_gb_s": row["dram_gb_s"] * slower,
    }


def synchronizing(draw: Draw) -> Row:
    waits = draw.waits(barrier=draw.between(40, 65), long_scoreboard=draw.between(10, 25))
    return kernel(
        draw, draw.between(10, 55), 1.0, stall_reasons=waits, shared_bytes=16384, theoretical_occupancy_pct=75
    )


def shared_loads(draw: Draw) -> Row:
    """Two loads from shared memory for each product, in different banks."""
    waits = draw.waits(mio_throttle=draw.between(35, 50), short_scoreboard=draw.between(20, 30))
    busy = draw.between(60, 95)
    changes = {
        "shared_bytes": 8448,
        "fma_pct": draw.between(15, 35),
        "sm_pct": busy,
        "shared_pct": busy,
        "l1_pct": busy,
    }
    return kernel(draw, draw.between(2, 25), 1.0, stall_reasons=waits, bank_conflicts=1000, **changes)


# What is planted, the hypothesis that names it, and others that are true of it, too.
KERNELS: tuple[tuple[Callable[[Draw], Row], str, set[str]], ...] = (
    (plain_copy, "memory_bound", set()),
    (uncoalesced_streaming, "uncoalesced", {"memory_bound", "cache_thrash"}),
    (uncoalesced_in_cache, "uncoalesced", {"latency_bound"}),
    (conflicts, "bank_conflicts", set()),
    (one_block, "small_grid", {"latency_bound"}),
    (tail, "small_grid", set()),
    (quarter, "small_grid", set()),
    (special_functions, "compute_bound", set()),
    (issuing, "issue_bound", set()),
    (divergent, "divergence", {"issue_bound"}),
    (spilling, "spills", {"low_occupancy"}),
    (tiny, "launch_bound", {"small_grid"}),
    (fma_bound, "compute_bound", set()),
    (tensor_bound, "compute_bound", set()),
    (dependent_loads, "latency_bound", set()),
    (few_warps, "low_occupancy", {"latency_bound"}),
    (thrashing, "cache_thrash", {"memory_bound"}),
    (unfused, "materialized", {"memory_bound"}),
    (throttled, "clock_held_down", {"compute_bound"}),
    (synchronizing, "barriers", set()),
    (shared_loads, "shared_memory_bound", set()),
)

_OF_BWPROF = {  # what only a profiler that rewrites code can tell, or what follows from others
    "load_efficiency_pct",
    "store_efficiency_pct",
    "multiprocessors",
    "compute_capability",
    "theoretical_occupancy_pct",
    "occupancy_limiter",
    "l1_hit_pct",
    "l2_hit_pct",
}
_OF_PROFILERS = {"timer_floor_us", "throttle", "flags", "verified", "cache", "bytes_read", "bytes_written"}


def as_bwprof(row: Row, draw: Draw) -> Row:
    """The columns that a row of bwprof's has, graded against a stream."""
    kept = {name: value for name, value in row.items() if name not in _OF_BWPROF}
    bandwidth = (row["bytes_read"] + row["bytes_written"]) / row["time_ms"] / 1e6
    algorithmic = row.get("algorithmic_bytes_read", row["bytes_read"]) + row.get(
        "algorithmic_bytes_written", row["bytes_written"]
    )
    counted = row["dram_bytes_read"] + row["dram_bytes_written"]
    return kept | {
        "bandwidth_gb_s": bandwidth,
        "attainable_gb_s": draw.card.stream,
        "pct_attainable": 100 * bandwidth / draw.card.stream,
        "traffic_ratio": counted / algorithmic,
        "precision": "fp32",
    }


def as_profiled(row: Row, *, stated: bool) -> Row:
    """The columns that a profiler's file has, with or without what the kernel had to move."""
    dropped = _OF_PROFILERS - ({"bytes_read", "bytes_written"} if stated else set())
    kept = {name: value for name, value in row.items() if name not in dropped}
    return {name: value for name, value in kept.items() if stated or not name.startswith("algorithmic")}


def counted(row: Row, draw: Draw, noise: float = 0.03) -> Row:
    """What counters make of it: shares, ratios and the time wander by 3 %; a share is no more than 100 %."""
    found = dict(row)
    for name, value in row.items():
        if isinstance(value, float) and (name.endswith("_pct") or name in ("time_ms", "traffic_ratio", "waves")):
            found[name] = value * draw.random.gauss(1, noise)
            if name.endswith("_pct") and name != "pct_attainable":
                found[name] = min(found[name], 100.0)
    return found | {"theoretical_occupancy_pct": row["theoretical_occupancy_pct"]}


def finite(row: Row) -> bool:
    """Whether all of a row's numbers are."""
    return all(math.isfinite(value) for value in row.values() if isinstance(value, (int, float)))
