"""Which of ncu's metrics, by the names that they have on different cards and pages, make which column."""

from __future__ import annotations

import math
from typing import NamedTuple

_STALLED = "smsp__average_warps_issue_stalled_"

_PER_ISSUE = "_per_issue_active.ratio"

_GLOBAL = "pipe_lsu_mem_global_op"

_LOCAL = "l1tex__t_sectors_pipe_lsu_mem_local_op"

_SHARED = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"

_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared"

_PER_SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op"

_FLOP = "sass_thread_inst_executed_op"

# Why warps wait, as the metrics of ncu's section WarpStateStats name it.
STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)


def stall_metric(reason: str) -> str:
    """The metric of a stall: warps that wait for this reason, for each instruction that is issued."""
    return f"{_STALLED}{reason}{_PER_ISSUE}"


def stall_reason(metric: str) -> str | None:
    """The inverse; None for any other metric."""
    if metric.startswith(_STALLED) and metric.endswith(_PER_ISSUE):
        return metric[len(_STALLED) : -len(_PER_ISSUE)]
    return None


class FigureSource(NamedTuple):
    """A column's figure: `times` the sum of the metrics `names`, over the sum of `over` where that is not empty.

    `unit` is what the metrics are in; "" where it says nothing, or pages differ. `nothing` is the figure where both
    sums are 0.
    """

    names: tuple[str, ...]
    times: float = 1.0
    over: tuple[str, ...] = ()
    unit: str = ""
    nothing: float = math.nan


def _one(*names: str, times: float = 1.0, unit: str = "") -> tuple[FigureSource, ...]:
    """The first of some metrics that a launch has."""
    return tuple(FigureSource((name,), times, unit=unit) for name in names)


def _share(*names: str) -> tuple[FigureSource, ...]:
    return _one(*names, unit="%")


# Column -> where its figure comes from: the first that a launch has. What ncu calls a metric comes first, then what it
# is called on other cards or was in other versions, then its label on the details page.
FIGURES: dict[str, tuple[FigureSource, ...]] = {
    "time_ms": _one(
        "gpu__time_duration.sum",
        "gpu__time_duration.avg",
        "gpu__time_duration.max",
        "gpu__time_duration_measured_user.sum",
        "gpu__time_duration_measured_wallclock.sum",
        "gpu__time_active.sum",
        "Duration",
        times=1e3,
        unit="s",
    ),
    "dram_bytes_read": (
        *_one("dram__bytes_read.sum", "dram__bytes_op_read.sum", unit="byte"),  # op: from GB20x on
        *_one("dram__sectors_read.sum", "dram__sectors_op_read.sum", times=32),
    ),
    "dram_bytes_written": (
        *_one("dram__bytes_write.sum", "dram__bytes_op_write.sum", unit="byte"),
        *_one("dram__sectors_write.sum", "dram__sectors_op_write.sum", times=32),
    ),
    "dram_pct": _share(
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput",
    ),
    "sm_pct": _share(
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__throughput.avg.pct_of_peak_sustained_active",
        "Compute (SM) Throughput",
        "SM [%]",
    ),
    "tensor_pct": _share(
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
    ),
    "fma_pct": _share(
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "occupancy_pct": _share(
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "smsp__warps_active.avg.pct_of_peak_sustained_active",
        "Achieved Occupancy",
    ),
    "theoretical_occupancy_pct": _share("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"),
    "registers": _one("launch__registers_per_thread", "Registers Per Thread"),
    "shared_bytes": (
        FigureSource(("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")),
        FigureSource(("Static Shared Memory Per Block", "Dynamic Shared Memory Per Block")),
    ),
    "waves": _one("launch__waves_per_multiprocessor", "Waves Per SM"),
    "multiprocessors": _one("launch__sm_count", "device__attribute_multiprocessor_count", "# SMs"),
    "sm_clock_mhz": _one(
        "gpc__cycles_elapsed.avg.per_second",
        "sm__cycles_elapsed.avg.per_second",
        "smsp__cycles_elapsed.avg.per_second",
        "SM Frequency",
        times=1e-6,
        unit="hz",
    ),
    "mem_clock_mhz": _one("dram__cycles_elapsed.avg.per_second", "DRAM Frequency", times=1e-6, unit="hz"),
    "bank_conflicts": (FigureSource((f"{_SHARED}_op_ld.sum", f"{_SHARED}_op_st.sum")), *_one(f"{_SHARED}.sum")),
    "shared_wavefronts": (
        FigureSource((f"{_WAVEFRONTS}_op_ld.sum", f"{_WAVEFRONTS}_op_st.sum")),
        *_one(f"{_WAVEFRONTS}.sum"),
    ),
    **{
        f"sectors_per_{what}": (
            *_one(f"l1tex__average_t_sectors_per_request_{_GLOBAL}_{op}.ratio"),
            # 0 where there are no requests, as the metric itself is
            FigureSource(
                (f"l1tex__t_sectors_{_GLOBAL}_{op}.sum",), over=(f"l1tex__t_requests_{_GLOBAL}_{op}.sum",), nothing=0.0
            ),
        )
        for what, op in (("load", "ld"), ("store", "st"))
    },
    **{
        f"{what}_efficiency_pct": (
            *_share(f"{_PER_SECTOR}_{op}.pct"),
            FigureSource((f"{_PER_SECTOR}_{op}.ratio",), 100, (f"{_PER_SECTOR}_{op}.max_rate",)),
            *_one(f"{_PER_SECTOR}_{op}.ratio", times=100 / 32, unit="byte/sector"),
        )
        for what, op in (("load", "ld"), ("store", "st"))
    },
    "issue_pct": _share(
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "Issue Slots Busy",
    ),
    "shared_pct": _share(f"{_WAVEFRONTS}.avg.pct_of_peak_sustained_active"),
    "l1_pct": _share(
        "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",
        "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_pct": _share("lts__t_sectors.avg.pct_of_peak_sustained_elapsed"),
    "lines_per_load": (
        FigureSource((f"l1tex__t_set_accesses_{_GLOBAL}_ld.sum",), over=(f"l1tex__t_requests_{_GLOBAL}_ld.sum",)),
    ),
    "sm_cycles_ratio": (FigureSource(("sm__cycles_active.max",), over=("sm__cycles_active.avg",)),),
    "local_bytes": (FigureSource((f"{_LOCAL}_ld.sum", f"{_LOCAL}_st.sum"), 32),),
    "l1_hit_pct": _share("l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate"),
    "l2_hit_pct": _share("lts__t_sector_hit_rate.pct", "L2 Hit Rate"),
    "l2_bytes": (*_one("lts__t_bytes.sum", unit="byte"), *_one("lts__t_sectors.sum", times=32)),
    "active_threads": _one(
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__average_thread_inst_executed_per_inst_executed.ratio",  # as it is called since 2025
        "Avg. Active Threads Per Warp",
    ),
}

# DRAM's rate where bytes and time do not tell it; its peak: bytes a cycle * clock, or what the device says of its bus.
DRAM_RATE = _one("dram__bytes.sum.per_second", "Memory Throughput", "Memory Throughput (byte/s)", unit="byte/s")

DRAM_WIDTH = _one("dram__bytes.sum.peak_sustained", unit="byte/cycle")

BUS_BITS = _one("device__attribute_global_memory_bus_width", "device__attribute_fb_bus_width")

BUS_KHZ = _one("device__attribute_max_mem_frequency_khz", "device__attribute_memory_clock_rate")

GRID = _one("launch__grid_size", "Grid Size")

BLOCK = _one("launch__block_size", "Block Size")

# What allows a multiprocessor no more blocks, in the order in which it is named where several allow as few.
LIMITS: dict[str, tuple[FigureSource, ...]] = {
    "warps": _one("launch__occupancy_limit_warps", "Block Limit Warps"),
    "registers": _one("launch__occupancy_limit_registers", "Block Limit Registers"),
    "shared": _one("launch__occupancy_limit_shared_mem", "Block Limit Shared Mem"),
    "blocks": _one("launch__occupancy_limit_blocks", "Block Limit SM"),
    "barriers": _one("launch__occupancy_limit_barriers", "Block Limit Barriers"),
}

# Columns of which 0 says that there was nothing to take a share of.
OF_NOTHING = ("load_efficiency_pct", "store_efficiency_pct")

# Shares of what was counted: none is beyond 100, but counts of two passes may be.
PARTS = ("occupancy_pct", "theoretical_occupancy_pct", "l1_hit_pct", "l2_hit_pct", *OF_NOTHING)

# FLOPs of an instruction, and the metric of how often threads ran it: in all, or a cycle (the mean one).
# Instructions on half precision are of pairs, as ncu's roofline has it (derived__..._hfma_pred_on_x4, ..._hadd_..._x2).
_COUNTED = {"add": 1, "mul": 1, "fma": 2}

FLOPS = tuple(
    (kind, f"smsp__{_FLOP}_{kind}{op}_pred_on.sum", flops * (2 if kind == "h" else 1))
    for kind in "fhd"
    for op, flops in _COUNTED.items()
)

PER_CYCLE = ".per_cycle_elapsed"

CYCLES = _one("smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "smsp__cycles_elapsed.max", "Elapsed Cycles")

# FLOPs a cycle, at most, of each kind of instruction.
WIDTHS = {
    kind: _one(f"derived__sm__{_FLOP}_{kind}fma_pred_on_x{most}") for kind, most in (("f", 2), ("h", 4), ("d", 2))
}

MOST_OF_THEM = 0.9  # of the FLOPs, for one kind's peak to be that of a kernel

# What tensor cores did, in FLOPs (Hopper); all of them, or it is not known how many there were.
TENSOR_FLOPS = tuple(
    f"sm__ops_path_tensor_src_{kind}.sum"
    for kind in ("fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp64", "fp8_sparsity_off", "fp8_sparsity_on")
)
