"""The hypotheses: data, causes before the symptoms that they have, roofs and waiting last.

A memory roof is one that is reached: "DRAM below 70 %" proves nothing, as a kernel at half of the bandwidth may wait
for latency, for its barriers or for a grid that is too small. What lies between two thresholds is left open.
"""

from __future__ import annotations

from bwprof.analysis.causes.rules import rule
from bwprof.analysis.diagnosis import access, launch, limits
from bwprof.analysis.diagnosis.judging import NEAR_BEST_RATE, NEAR_PEAK, NEAR_PIPE, NEAR_STREAM, WAITING, Hypothesis

_DRAM = ("dram_pct", "dram_gb_s", "dram_bytes_read", "dram_bytes_written", "pct_attainable")
_RATE = ("tensor_pct", "fma_pct", "sm_pct", "issue_pct", "valu_busy_pct", "tflops")
_WAITS = ("stall_reasons",)

HYPOTHESES: tuple[Hypothesis, ...] = (
    Hypothesis(
        "clock_held_down",
        "a clock that is held down",
        ("throttle", "sm_clock_mhz"),
        f"the driver names a reason, and the clock is below {100 * limits.CLOCK.no:g} % of the highest",
        "the driver says why it lowers the clock; ncu lowers it itself to the base clock, which is no fault",
        ("cool it, or raise the power limit", "measure again", "ncu: --clock-control none"),
        limits.clock_held_down,
    ),
    Hypothesis(
        "launch_bound",
        "its launch",
        ("time_ms", "timer_floor_us", "wall_ms"),
        f"time at most {limits.AT_FLOOR.yes:g} empty launches (not known: {limits.SHORT_US.yes:g} us), or kernels "
        f"less than {limits.HOST.yes:g} % of the wall time",
        "a third of the time is then that of a kernel which does nothing",
        (*rule("latency").fixes, *rule("host_bound").fixes[1:]),
        limits.launch_bound,
    ),
    Hypothesis(
        "small_grid",
        "too small a grid",
        ("blocks", "waves", "multiprocessors", "sm_cycles_ratio"),
        f"fewer blocks than multiprocessors, or over {100 * launch.TAIL:g} % of all rounds empty, of a single one, too",
        "multiprocessors without a block add nothing; blocks of equal work take whole rounds",
        ("more, smaller blocks", "split the reduction among blocks", "a persistent grid of as many blocks as fit"),
        launch.small_grid,
    ),
    Hypothesis(
        "spills",
        "spilled registers",
        ("local_bytes", "l2_bytes"),
        f"local memory is {access.SPILLED.yes:g} % of the traffic (harmless up to {access.SPILLED.no:g} %)",
        "local memory is what registers spill to, and arrays whose index only the run knows; it goes through L1",
        ("fewer sums a thread", *rule("spills").fixes[:3], "indices that the compiler knows"),
        access.spills,
    ),
    Hypothesis(
        "uncoalesced",
        "uncoalesced accesses",
        ("load_efficiency_pct", "store_efficiency_pct", "sectors_per_load", "sectors_per_store", "lines_per_load"),
        f"less than {access.EFFICIENCY.yes:g} % of the sectors used (fine from {access.EFFICIENCY.no:g} %), or more "
        f"than {access.SLACK * access.WIDEST:g} sectors a request, or {access.SLACK * access.LINES:g} lines in busy L1",
        "32 lanes of 4, 8 or 16 bytes side by side need 4, 8 or 16 sectors: no width explains more than 16; fewer may "
        "still be too many for narrow lanes, which the efficiency tells",
        rule("uncoalesced").fixes,
        access.uncoalesced,
    ),
    Hypothesis(
        "bank_conflicts",
        "bank conflicts in shared memory",
        ("bank_conflicts", "shared_wavefronts", "lds_bank_conflict_pct", *_WAITS),
        f"conflicts over {access.CONFLICTS:g} % of the wavefronts, and {access.SHARED_WAITS.yes:g} % of the stalls "
        "wait for shared memory",
        "a bare count says nothing: a large kernel has millions in a hundredth of its accesses",
        rule("bank_conflicts").fixes,
        access.bank_conflicts,
    ),
    Hypothesis(
        "divergence",
        "divergent warps",
        ("active_threads", *_WAITS),
        f"at most {access.ACTIVE.yes:g} of 32 threads take part in an instruction (fine from {access.ACTIVE.no:g})",
        "a warp runs the branches of its threads one after the other; those that took another wait, and cost as much",
        ("threads of a warp on the same branch", "sort the work by its kind", "predicates instead of branches"),
        access.divergence,
    ),
    Hypothesis(
        "materialised",
        "intermediates that go through memory",
        ("algorithmic_bytes_read", "algorithmic_bytes_written", "bytes_read", "bytes_written"),
        f"over {access.STORED:g} times the compulsory bytes",
        "what is written to be read again moves twice",
        rule("materialised").fixes,
        access.materialised,
    ),
    Hypothesis(
        "cache_thrash",
        "data that the caches did not keep",
        ("traffic_ratio", *_DRAM[:4]),
        f"counted over {access.THRASH:g} times the bytes that it must move, while it waits for memory",
        "counters agree with formulas within 2 %; what is more was fetched again",
        rule("extra_traffic").fixes,
        access.cache_thrash,
    ),
    Hypothesis(
        "low_occupancy",
        "low occupancy",
        ("occupancy_pct", "theoretical_occupancy_pct", "occupancy_limiter", *_WAITS),
        f"occupancy below {launch.OCCUPANCY:g} %, resources hold it there, no roof is near, few warps are ready",
        "50 to 75 % hide most latencies; a kernel at a roof needs no more warps",
        rule("low_occupancy").fixes,
        launch.low_occupancy,
    ),
    Hypothesis(
        "barriers",
        "barriers",
        _WAITS,
        f"{launch.BARRIERS.yes:g} % of the stalls (fine up to {launch.BARRIERS.no:g} %)",
        "warps that wait for each other ask for nothing",
        ("fewer barriers", "two buffers instead of one and a barrier", "smaller blocks", "even work between barriers"),
        launch.barriers,
    ),
    Hypothesis(
        "shared_memory_bound",
        "loads from shared memory",
        ("shared_pct", "shared_wavefronts", *_WAITS),
        f"{access.SHARED_BOUND.yes:g} % of the stalls wait for shared memory ({access.SHARED_BOUND.no:g} % where it is "
        f"busy {NEAR_PIPE.yes:g} % of the cycles), without conflicts to blame",
        "a load for each product or two: its pipe gives 128 bytes a cycle, whatever the arithmetic could do",
        ("more sums a thread in registers", "wider loads (16 bytes)", "tensor cores fed by ldmatrix"),
        access.shared_memory_bound,
    ),
    Hypothesis(
        "issue_bound",
        "instruction issue",
        ("issue_pct", "sm_cycles_ratio"),
        f"an instruction issued in {NEAR_PIPE.yes:g} % of the cycles (far below {NEAR_PIPE.no:g} %), no pipe near",
        "a scheduler issues one instruction a cycle at most, whatever it is: addresses, loops and loads take the turns "
        "of arithmetic",
        ("wider loads", "more sums a thread for what it loads", "constant strides", "unroll"),
        limits.issue_bound,
    ),
    Hypothesis(
        "compute_bound",
        "arithmetic",
        (*_RATE, *_WAITS),
        f"a pipe busy {NEAR_PIPE.yes:g} % of the cycles (far below {NEAR_PIPE.no:g} %), or FLOPs at "
        f"{NEAR_BEST_RATE.yes:g} % of the best rate",
        "dependencies and issue leave a pipe little above 70 %; between, warps ready to issue tell",
        rule("compute").fixes,
        limits.compute_bound,
    ),
    Hypothesis(
        "memory_bound",
        "the memory's bandwidth",
        _DRAM,
        f"at least {NEAR_STREAM.yes:g} % of what a stream of its bytes reaches (far below {NEAR_STREAM.no:g} %), or "
        f"{NEAR_PEAK.yes:g} % of theory ({NEAR_PEAK.no:g} %)",
        "plain streams reach 85 to 95 % of the theoretical bandwidth",
        rule("at_memory_roof").fixes,
        limits.memory_bound,
    ),
    Hypothesis(
        "latency_bound",
        "the memory's latency",
        (*_DRAM, "occupancy_pct", "sectors_per_load", *_WAITS),
        f"no roof is near, {WAITING.yes:g} % of the stalls wait for memory (few below {WAITING.no:g} %), "
        "and fewer bytes are in flight than latency x bandwidth",
        "Little's law: bandwidth is bytes in flight over latency",
        rule("low_bytes_in_flight").fixes,
        limits.latency_bound,
    ),
)
