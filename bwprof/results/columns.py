"""The columns: which there are, in which order, of which type, and what tables, pictures and reports call them.

The parameters of the operations are columns too: they are read from the registry, so that a new operation's
parameters need no change here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from bwprof import _core

ValueKind = Literal["text", "integer", "number", "truth"]

# Words of the column `flags`.
FLAGS = {
    "above_attainable": "faster than a stream of the same bytes or a peak: bytes, time or roof are wrong",
    "near_timer_floor": "within three times an empty launch",
    "not_cold": "inputs may have been in the cache",
    "not_converged": "the confidence interval is wider than asked",
    "two_states": "the samples lie in two states: one median is not all that there is to say",
    "drifting": "call by call slower, or faster: the row's reason has the rate",
    "bytes_vary": "calls moved different bytes: their mean is shown, and the rate is all bytes over all time",
    "throttled": "the clock was held down",
    "noisy": "the samples lie far apart, or something else used the CPUs or their memory: see the row's reason",
    "noisy_roof": "what it is graded against is itself in doubt: see the row's reason",
    "single_thread": "ran on one thread: the reason says whether it is held against the roofs of one",
    "event_bias": "timed by event pairs, which add a few microseconds",
    "unverified": "the result was not checked",
}

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what tables, pictures and reports call it.

    `text` says in a line what it holds, `unit` in what ("" for none), `group` which columns it belongs with, and
    `better` which way it should go, where it should go any way. `title` is its name in a heading, without the unit.
    """

    name: str
    kind: ValueKind
    text: str
    unit: str = ""
    group: str = ""
    better: Better = ""
    title: str = ""

    @property
    def label(self) -> str:
        """For a heading or an axis: the title with the unit.

        Examples
        --------
        >>> Column("time_ms", "number", "median time", "ms", title="time").label
        'time (ms)'
        """
        title = self.title or self.name.replace("_", " ")
        return f"{title} ({self.unit})" if self.unit else title


# Where a column's name, with blanks, would repeat its unit or say too little.
_TITLES = {
    "time_ms_lo": "time, lower end",
    "time_ms_hi": "time, upper end",
    "time_ms_min": "fastest time",
    "timer_floor_us": "empty launch",
    "host_launch_us": "host time of a launch",
    "flops": "floating-point operations",
    "tflops": "arithmetic rate",
    "peak_gb_s": "theoretical peak",
    "ceiling_gb_s": "ceiling",
    "attainable_gb_s": "attainable",
    "pct_peak": "share of the peak",
    "pct_ceiling": "share of the ceiling",
    "pct_attainable": "share of the attainable",
    "pct_roofline": "share of the roofline",
    "peak_tflops": "peak arithmetic rate",
    "roofline_tflops": "roofline",
    "measured_tflops": "measured arithmetic rate",
    "dram_gb_s": "counted bandwidth",
    "energy_j": "energy",
    "power_w": "power",
    "sm_clock_mhz": "multiprocessor clock",
    "mem_clock_mhz": "memory clock",
    "temperature_c": "temperature",
    "speedup_vs_fp32": "time gain over FP32",
    "bandwidth_vs_fp32": "bandwidth over FP32's",
    "byte_ratio_vs_fp32": "FP32's bytes over these",
    "pct_limit": "share of the limit",
    "tensor_pct": "tensor pipe",
    "fma_pct": "FMA pipe",
    "occupancy_pct": "occupancy",
    "dram_pct": "DRAM throughput",
    "sm_pct": "multiprocessor throughput",
}


def _columns(kind: ValueKind, group: str, unit: str = "", better: Better = "", **texts: str) -> list[Column]:
    return [Column(name, kind, text, unit, group, better, _TITLES.get(name, "")) for name, text in texts.items()]


_CLASSIC = (
    Column("operation", "text", "operation measured", group="case"),
    Column("precision", "text", "storage type of the operands", group="case"),
    Column("M", "integer", "rows of the result", group="case"),
    Column("N", "integer", "columns of the result", group="case"),
    Column("K", "integer", "reduction length", group="case"),
    Column("time_ms", "number", "median time of one launch", "ms", "time", "lower", "time"),
    Column(
        "bandwidth_gb_s",
        "number",
        "(bytes_read + bytes_written) / time; a GB is 10^9 bytes",
        "GB/s",
        "time",
        "higher",
        "effective bandwidth",
    ),
    Column("bytes_read", "integer", "compulsory bytes read: each operand once", "B", "work"),
    Column("bytes_written", "integer", "compulsory bytes written", "B", "work"),
)

CLASSIC_NAMES = tuple(column.name for column in _CLASSIC)

# Parameters that have their place; others follow in the registry's order.
_PARAM_ORDER = ("batch", "seq_len", "kv_len", "num_heads", "num_kv_heads", "head_dim", "page_size", "causal")

_IDENTITY = [
    *_columns("text", "case", "tokens", kv_lens="lengths of a batch's entries, joined by ';', where they differ"),
    *_columns(
        "text",
        "case",
        backend="cuda or cpu",
        device="device's name",
        variant="kernel that ran",
        status="ok, skipped, failed or predicted",
        reason="why, in plain words",
    ),
]

_METHOD = [
    *_columns(
        "text",
        "method",
        timer="graph, events or cupti on a GPU, monotonic on a CPU",
        cache="cold: inputs outside the cache at every launch; hot: one buffer set",
    ),
    *_columns(
        "integer",
        "method",
        buffer_sets="sets of buffers rotated through",
        launches_per_sample="launches timed together",
        samples="samples taken",
    ),
    *_columns("truth", "method", converged="the confidence interval became narrow enough within the time limit"),
    *_columns("integer", "method", seed="seed of the inputs"),
]

_TIME = [
    *_columns(
        "number",
        "time",
        "ms",
        "lower",
        time_ms_lo="lower end of the median's 95 % confidence interval, 0 where samples tell none; predicted: of what "
        "holds nine of ten times",
        time_ms_hi="upper end",
        time_ms_min="fastest sample",
    ),
    *_columns("number", "time", "", "lower", noise="interquartile range / median"),
    *_columns("number", "time", "us", timer_floor_us="time of an empty kernel under the same timer"),
    *_columns("number", "time", "us", "lower", host_launch_us="host time to start one launch"),
]

_WORK = [
    *_columns(
        "integer",
        "work",
        "FLOP",
        flops="floating-point operations, multiply and add counted separately",
    ),
    *_columns("number", "work", "TFLOP/s", "higher", tflops="flops / time; a TFLOP is 10^12 operations"),
    *_columns("number", "work", "FLOP/B", arithmetic_intensity="flops per compulsory byte"),
    *_columns(
        "integer",
        "work",
        "B",
        "lower",
        algorithmic_bytes_read="bytes this variant reads, intermediates included",
        algorithmic_bytes_written="bytes this variant writes, intermediates included",
    ),
    *_columns("integer", "work", "B", footprint_bytes="memory that one launch touches"),
]

_ROOFS = [
    *_columns(
        "number",
        "roofs",
        "GB/s",
        peak_gb_s="theoretical memory bandwidth",
        ceiling_gb_s="best measured by a plain stream of the same read/write mix",
        attainable_gb_s="what a plain stream of the same bytes and mix reaches, cold",
    ),
    *_columns(
        "number",
        "roofs",
        "%",
        "higher",
        pct_peak="bandwidth / peak",
        pct_ceiling="bandwidth / ceiling",
        pct_attainable="bandwidth / attainable: the grade of a kernel at any size",
    ),
    *_columns(
        "number",
        "roofs",
        "TFLOP/s",
        peak_tflops="dense arithmetic rate: theoretical on a GPU, measured in registers on a CPU",
        roofline_tflops="min(peak_tflops, arithmetic_intensity x ceiling)",
    ),
    *_columns("number", "roofs", "%", "higher", pct_roofline="tflops / roofline"),
    *_columns("text", "roofs", bound="what limits it: memory, compute or latency"),
]

_COUNTERS = [
    *_columns(
        "integer",
        "counters",
        "B",
        "lower",
        dram_bytes_read="DRAM bytes read by a cold launch, counted",
        dram_bytes_written="written, likewise",
    ),
    *_columns("number", "counters", "GB/s", dram_gb_s="counted DRAM bytes / time"),
    *_columns("integer", "counters", "B", "lower", l2_bytes="L2 bytes, counted"),
    *_columns("number", "counters", "x", "lower", traffic_ratio="counted / algorithmic bytes, or those stated"),
    *_columns(
        "text", "counters", counters_status="ok, or why nothing was counted and what to do; empty: not asked for"
    ),
]

_CONDITIONS = [
    *_columns(
        "number",
        "conditions",
        "J",
        "lower",
        energy_j="energy of one launch; only where the samples took longer than a second or so",
    ),
    *_columns(
        "number",
        "conditions",
        "W",
        power_w="power between the samples, median; only where they took longer than 0.2 s",
    ),
    *_columns(
        "number",
        "conditions",
        "MHz",
        sm_clock_mhz="multiprocessor clock between the samples, median",
        mem_clock_mhz="memory clock, median",
    ),
    *_columns("number", "conditions", "°C", temperature_c="highest temperature"),
    *_columns(
        "text",
        "conditions",
        throttle="why the clock was held down: sw_power_cap, hw_slowdown, sw_thermal, hw_thermal, power_brake, "
        "joined by ';'; none when it was not",
    ),
]

_TRUST = [
    *_columns("truth", "trust", verified="agreed with the float64 reference before and after the timing"),
    *_columns("number", "trust", "", "lower", max_error="the error nearest to its tolerance, or furthest past it"),
    *_columns("number", "trust", tolerance="what that error may be"),
    *_columns("text", "trust", flags=f"what should make a reader doubt the row: {', '.join(FLAGS)}; joined by ';'"),
]

_COMPARISON = _columns(
    "number",
    "comparison",
    "x",
    "higher",
    speedup_vs_fp32="FP32 time / time of the same configuration",
    bandwidth_vs_fp32="GB/s / FP32 GB/s",
    byte_ratio_vs_fp32="FP32 bytes / bytes; speed-up = byte ratio x bandwidth ratio",
)

_PROVENANCE = [
    *_columns(
        "text",
        "provenance",
        run_id="run that this row belongs to",
        timestamp="when it was measured, UTC",
        device_uuid="device's UUID",
        driver="driver's version (or the CUDA version that it supports); the kernel's release on a CPU",
        bwprof_version="version that measured it",
    ),
    *_columns("integer", "provenance", schema_version="version of these columns"),
]

# Behind all others: columns that came later leave the earlier ones where they were.
_LATER = [
    *_columns(
        "integer",
        "trust",
        rows_checked="rows of the output, or parts of long ones, held against the reference in the last check",
        rows_total="how many of them there are",
    ),
    *_columns(
        "number",
        "roofs",
        "TFLOP/s",
        measured_tflops="best rate of a large matrix product in this precision, measured",
    ),
]

_METRICS = [
    *_columns(
        "number",
        "metrics",
        "%",
        tensor_pct="tensor pipe busy, of its peak over the active cycles (this and what follows: on request)",
        fma_pct="FMA pipe busy, likewise",
        occupancy_pct="warps resident, of the most possible",
    ),
    *_columns("text", "metrics", stall_reasons="why warps waited: reason=warps per issued instruction, joined by ';'"),
    *_columns("integer", "metrics", "", "lower", bank_conflicts="bank conflicts in shared memory"),
    *_columns("integer", "metrics", shared_wavefronts="accesses to shared memory, conflicts included"),
    *_columns(
        "number",
        "metrics",
        sectors_per_load="sectors of 32 bytes for each load request of a warp to global memory",
        sectors_per_store="for each store request, likewise",
    ),
    *_columns("text", "metrics", metrics_status="ok, or which metrics were not counted and why; empty: not asked for"),
]

_LATEST = [
    *_columns(
        "text",
        "provenance",
        replaces="timestamp of an earlier row of the same case, disturbed or made of one that was, which this replaces",
        hostname="machine that measured it",
    ),
    *_columns(
        "number",
        "roofs",
        "FLOP/B",
        ridge="intensity from which on arithmetic takes longer than memory: by measured roofs, else by the peaks",
    ),
    *_columns(
        "number",
        "roofs",
        "%",
        "higher",
        pct_limit="share of the nearer roof: of a stream of these bytes, or of the best arithmetic rate measured",
    ),
    *_columns(
        "text",
        "roofs",
        limiter="what limits it: memory, compute, latency, or kernel (below half of both roofs); empty where not known",
    ),
]

_LATER_METRICS = _columns(
    "number",
    "metrics",
    "%",
    dram_pct="bytes that DRAM moved in the time in which multiprocessors were at work, of the most that it can",
    sm_pct="the busiest pipe of the multiprocessors, of its peak over the active cycles",
)

_LATEST_TRUST = [
    *_columns(
        "text", "provenance", process="word of the process that measured it: its rows wander less than those of several"
    ),
    *_columns(
        "number",
        "trust",
        "%",
        "lower",
        disturbed_pct="how much longer others may have made it take, by what they took of CPUs and memory meanwhile",
    ),
]

_LATEST_METRICS = [
    *_columns(
        "number",
        "metrics",
        "%",
        issue_pct="cycles in which the schedulers issued an instruction, of those in which warps were there",
        shared_pct="shared memory's turns, of the most possible over the active cycles",
        l1_pct="turns of the L1 caches' data, shared memory's in them, likewise",
        l2_pct="sectors that the L2 cache moved, of the most possible in the time of the multiprocessors' work",
    ),
    *_columns(
        "number", "metrics", "threads", active_threads="threads of a warp, of 32, that took part in an instruction"
    ),
    *_columns(
        "number",
        "metrics",
        lines_per_load="lines of 128 bytes for each load request of a warp to global memory",
        sm_cycles_ratio="active cycles of the busiest multiprocessor / their mean",
    ),
    *_columns(
        "integer",
        "metrics",
        "B",
        "lower",
        local_bytes="bytes that went to local memory and back: spilled registers, mostly",
    ),
]

# Of a launch of one kernel: what it is made of, and what it takes of the device.
LAUNCH = (
    *_columns("integer", "metrics", "blocks", grid_blocks="blocks of the grid, altogether"),
    *_columns("integer", "metrics", "threads", block_threads="threads of a block, altogether"),
    *_columns("integer", "metrics", "registers", registers="of a thread"),
    *_columns("integer", "metrics", "B", shared_bytes="shared memory of a block, static and dynamic"),
    *_columns("number", "metrics", "waves", waves="blocks of the grid / blocks that the device holds at once"),
)

METRICS = (*_METRICS, *_LATER_METRICS, *_LATEST_METRICS)

METRIC_NAMES = frozenset(column.name for column in METRICS if column.kind != "text")

COMPARISON_NAMES = tuple(column.name for column in _COMPARISON)


@cache
def param_columns() -> tuple[Column, ...]:
    """One column per parameter of any operation, without those that the classic columns have."""
    found: dict[str, Column] = {}
    for operation in _core.operations():
        for param in operation["params"]:
            column = Column(param["name"], "integer", param["text"], param["unit"] or "", "case")
            found.setdefault(param["name"], column)
    placed = [found.pop(name) for name in _PARAM_ORDER if name in found]
    return tuple(placed + [column for name, column in found.items() if name not in CLASSIC_NAMES])


COLUMN_FACTS = ("name", "unit", "group", "better", "text")  # of each column, for people


@cache
def all_columns() -> tuple[Column, ...]:
    """Every column, in the order of the CSV file."""
    case = Column("case", "text", "configuration's name", group="case")
    groups = (
        _METHOD,
        _TIME,
        _WORK,
        _ROOFS,
        _COUNTERS,
        _CONDITIONS,
        _TRUST,
        _COMPARISON,
        _PROVENANCE,
        _LATER,
        _METRICS,
    )
    rest = [column for group in groups for column in group]
    return (
        *_CLASSIC,
        case,
        *param_columns(),
        *_IDENTITY,
        *rest,
        *_LATEST,
        *_LATER_METRICS,
        *_LATEST_TRUST,
        *_LATEST_METRICS,
        *LAUNCH,
    )
