"""Diagnoses of an H200's figures for kernels whose cause is known."""

from __future__ import annotations

from typing import Any

import pytest

import bwprof
from bwprof.analysis.diagnosis.diagnose import diagnose_rows
from bwprof.analysis.diagnosis.figures import RowFigures
from bwprof.analysis.diagnosis.hypothesis import CANNOT_TELL, REFUTED, SUPPORTED

CARD: dict[str, Any] = {
    "device": "NVIDIA H200",
    "backend": "cuda",
    "status": "ok",
    "cache": "cold",
    "peak_gb_s": 4814.3,
    "sm_clock_mhz": 1980.0,
    "throttle": "none",
    "flags": "",
    "timer_floor_us": 0.58,
}
# An array of 512 bytes a thread in local memory: 8 MiB are stated, 2.2 GB went through DRAM.
SPILLING: dict[str, Any] = CARD | {
    "time_ms": 0.7688,
    "bytes_read": 4325376,
    "bytes_written": 4325376,
    "bandwidth_gb_s": 11.25,
    "attainable_gb_s": 2463.6,
    "ceiling_gb_s": 4223.1,
    "pct_attainable": 0.4568,
    "dram_bytes_read": 776838400,
    "dram_bytes_written": 1420929792,
    "dram_gb_s": 2858.8,
    "dram_pct": 58.58,
    "l2_bytes": 3855904032,
    "traffic_ratio": 254.06,
    "tensor_pct": 0.0,
    "fma_pct": 7.36,
    "sm_pct": 16.3,
    "occupancy_pct": 91.68,
    "stall_reasons": "long_scoreboard=82.67;lg_throttle=4.03;wait=1.56",
    "sectors_per_load": 4.0,
    "sectors_per_store": 4.0,
}
# Eight chains of multiply-adds a thread: faster than the best product of the library, as FP32 products go.
LOOP: dict[str, Any] = CARD | {
    "time_ms": 4.643,
    "flops": 283467841536,
    "tflops": 61.05,
    "measured_tflops": 50.82,
    "peak_tflops": 66.91,
    "fma_pct": 91.4,
    "tensor_pct": 0.0,
    "sm_pct": 99.99,
    "dram_pct": 0.0012,
    "stall_reasons": "not_selected=12.82;math_pipe_throttle=0.29",
}
# A library's FP16 product, 8192 each way: the power limit holds the clock of a busy tensor pipe.
PRODUCT: dict[str, Any] = CARD | {
    "time_ms": 1.605,
    "tflops": 685.1,
    "measured_tflops": 755.2,
    "peak_tflops": 1070.5,
    "tensor_pct": 98.0,
    "fma_pct": 0.02,
    "sm_pct": 98.0,
    "dram_pct": 20.35,
    "sm_clock_mhz": 1485.0,
    "throttle": "sw_power_cap",
    "flags": "throttled;not_converged",
    "stall_reasons": "barrier=6.44;gmma=3.85;long_scoreboard=3.84;mio_throttle=3.18;wait=1.54",
}


def names(row: dict[str, Any]) -> list[str]:
    (found,) = diagnose_rows(row)
    return [entry.hypothesis.name for entry in found.of(SUPPORTED)]


def verdict(row: dict[str, Any], name: str) -> str:
    return str(bwprof.diagnose(row).set_index("hypothesis").loc[name, "verdict"])


def test_a_stream_of_the_bytes_that_were_moved_is_the_roof() -> None:
    """2.198 GB take 0.520 ms at the ceiling, and few bytes 1.5 us more: 68 % of 0.769 ms, not 116 %."""
    by_hand = 100 * (2197768192 / 4223.1e9 + 8650752 * (1 / 2463.6e9 - 1 / 4223.1e9)) / 0.7688e-3
    assert RowFigures(SPILLING).memory.pct == pytest.approx(by_hand, rel=1e-3)
    assert RowFigures(SPILLING).contradictions == []
    assert RowFigures(SPILLING | {"ceiling_gb_s": None}).memory.pct == pytest.approx(116, rel=0.01)


def test_excess_written_bytes_are_spills_not_cache_thrash() -> None:
    """The kernel reads no data again; only local memory's traffic shows the origin of its writes."""
    assert verdict(SPILLING, "cache_thrash") == CANNOT_TELL
    assert names(SPILLING)[:1] != ["cache_thrash"]
    assert names(SPILLING | {"local_bytes": 2_800_000_000})[0] == "spills"
    assert verdict(SPILLING | {"scratch_size": 0.0}, "cache_thrash") == SUPPORTED, "no thread has local memory"
    reread = SPILLING | {"dram_bytes_read": 2193442816, "dram_bytes_written": 4325376}
    assert verdict(reread, "cache_thrash") == SUPPORTED


def test_a_loop_may_be_faster_than_the_best_product() -> None:
    """120 % of the library's rate are 91 % of what the card can do."""
    assert names(LOOP) == ["compute_bound"]
    assert RowFigures(LOOP).contradictions == []
    assert RowFigures(LOOP | {"tflops": 54.0}).arithmetic.measured, "106 %: its clock was a bit higher"
    impossible = LOOP | {"tflops": 80.0, "fma_pct": None, "sm_pct": None}
    assert verdict(impossible, "compute_bound") == CANNOT_TELL, "120 % of what the card can do"


def test_the_power_limit_follows_from_a_busy_pipe() -> None:
    """A tensor pipe at 98 % causes the lower clock; heat would be a cause of its own."""
    assert names(PRODUCT) == ["compute_bound", "clock_held_down"]
    assert "(in doubt: not_converged)" in diagnose_rows(PRODUCT)[0].sentence, "the clock is told of"
    assert names(PRODUCT | {"throttle": "sw_thermal"}) == ["clock_held_down", "compute_bound"]
    assert names(PRODUCT | {"throttle": "sw_power_cap;hw_thermal"})[0] == "clock_held_down"
    idle = PRODUCT | {"tensor_pct": 20.0, "sm_pct": 20.0, "tflops": 100.0}
    assert names(idle)[0] == "clock_held_down", "nothing that the kernel does needs the power"


# Prefill's variant of padded rows: a shuffle, a load from shared memory and addresses for each multiply-add.
ISSUING: dict[str, Any] = CARD | {
    "time_ms": 7.161,
    "tflops": 4.8,
    "measured_tflops": 755.2,
    "dram_pct": 0.09,
    "tensor_pct": 0.06,
    "fma_pct": 31.17,
    "sm_pct": 80.55,
    "issue_pct": 80.55,
    "shared_pct": 65.76,
    "l1_pct": 69.42,
    "active_threads": 32.0,
    "sm_cycles_ratio": 1.001,
    "occupancy_pct": 37.48,
    "theoretical_occupancy_pct": 37.5,
    "waves": 20.69,
    "bank_conflicts": 339152,
    "shared_wavefronts": 1229145065,
    "stall_reasons": "wait=1.75;not_selected=1.66;short_scoreboard=1.28;long_scoreboard=0.68;math_pipe_throttle=0.32",
}
# GEMM's variant of padded rows: two loads from shared memory for each multiply-add.
SHARED: dict[str, Any] = ISSUING | {
    "time_ms": 2.521,
    "fma_pct": 14.45,
    "sm_pct": 88.56,
    "issue_pct": 44.71,
    "shared_pct": 86.22,
    "l1_pct": 88.93,
    "occupancy_pct": 98.37,
    "theoretical_occupancy_pct": 100.0,
    "bank_conflicts": 1321979,
    "shared_wavefronts": 555754978,
    "stall_reasons": "mio_throttle=16.81;not_selected=8.20;long_scoreboard=3.10;barrier=2.53;wait=1.84",
}
# GEMM's first variant: lanes walk 32 rows of B, and read one element of A all together.
SCATTERED: dict[str, Any] = ISSUING | {
    "time_ms": 34.99,
    "precision": "fp16",
    "bytes_read": 16777216,
    "bytes_written": 8388608,
    "traffic_ratio": 1.063,
    "l2_bytes": 26121807456,
    "fma_pct": 2.41,
    "sm_pct": 5.92,
    "issue_pct": 5.76,
    "shared_pct": 0.0,
    "l1_pct": 97.73,
    "occupancy_pct": 97.43,
    "theoretical_occupancy_pct": 100.0,
    "bank_conflicts": 0,
    "shared_wavefronts": 262144,
    "sectors_per_load": 16.5,
    "sectors_per_store": 2.0,
    "lines_per_load": 16.5,
    "stall_reasons": "lg_throttle=223.68;long_scoreboard=40.20;not_selected=3.43",
}
# Chains of sines: the special function unit is busy, whose queue is that of loads from shared memory.
SINES: dict[str, Any] = ISSUING | {
    "fma_pct": 12.9,
    "sm_pct": 99.66,
    "issue_pct": 26.12,
    "shared_pct": 0.0,
    "l1_pct": 0.01,
    "bank_conflicts": 0,
    "shared_wavefronts": 33792,
    "stall_reasons": "mio_throttle=40;short_scoreboard=20;wait=5",
}


def test_instructions_in_every_cycle_are_no_arithmetic() -> None:
    assert names(ISSUING) == ["issue_bound"]
    assert verdict(ISSUING, "compute_bound") == REFUTED
    assert verdict(ISSUING | {"issue_pct": None}, "compute_bound") == CANNOT_TELL, "a pipe, or the schedulers"
    assert verdict(ISSUING | {"issue_pct": None}, "issue_bound") == CANNOT_TELL


def test_warps_that_would_wait_for_a_busy_part_are_not_missing() -> None:
    """Resources limit the occupancy to 37.5 %, but the schedulers are busy: more warps would wait longer."""
    assert verdict(ISSUING, "low_occupancy") == REFUTED
    idle = ISSUING | {"issue_pct": 20.0, "sm_pct": 20.0, "shared_pct": 10.0, "l1_pct": 12.0, "fma_pct": 9.0}
    waits = "long_scoreboard=40;wait=60"
    assert verdict(idle | {"stall_reasons": waits, "dram_pct": 20.0}, "low_occupancy") == SUPPORTED
    assert verdict(idle | {"stall_reasons": waits, "dram_pct": 20.0, "l1_pct": 95.0}, "low_occupancy") == REFUTED


def test_busy_shared_memory_is_the_cause_whatever_warps_wait_for() -> None:
    """49 % of the stalls are below the threshold of waiting, but shared memory is busy 86 % of the time."""
    assert names(SHARED) == ["shared_memory_bound"]
    derived = SHARED | {"shared_pct": None}
    assert RowFigures(derived).shared_busy == pytest.approx(100 * 555754978 / (2.521e-3 * 1980e6 * 132), rel=1e-6)
    assert names(derived) == ["shared_memory_bound"]
    ready = SHARED | {"stall_reasons": "not_selected=1.76;short_scoreboard=0.92;dispatch_stall=0.82;wait=1.08"}
    assert names(ready) == [], "busy, but hardly a warp waits for it"


def test_lines_of_a_load_tell_that_it_is_scattered() -> None:
    """16.5 sectors may be 16 bytes a lane; in 16.5 lines they are one sector of each line."""
    assert names(SCATTERED) == ["uncoalesced"]
    assert names(SCATTERED | {"lines_per_load": 4.2}) == []
    assert names(SCATTERED | {"lines_per_load": 8.25}) == [], "two sectors of each: rows of 64 bytes, all used"
    assert verdict(SCATTERED | {"l1_pct": 30.0, "stall_reasons": "wait=1"}, "uncoalesced") != SUPPORTED


def test_special_functions_wait_where_shared_memory_does() -> None:
    assert names(SINES) == ["compute_bound"]
    assert verdict(SINES, "shared_memory_bound") == REFUTED
    assert verdict(SINES | {"sm_pct": None, "shared_pct": None}, "shared_memory_bound") == CANNOT_TELL


def test_few_active_threads_are_divergence() -> None:
    row = ISSUING | {"issue_pct": 91.5, "sm_pct": 91.5, "active_threads": 1.33}
    assert names(row)[0] == "divergence"
    assert names(row | {"active_threads": 20.0}) == ["issue_bound"]
    waiting = row | {"stall_reasons": "long_scoreboard=90;wait=10"}
    assert verdict(waiting, "divergence") == CANNOT_TELL, "its warps wait for memory"


def test_a_busy_pipe_of_a_quarter_of_the_device_is_a_small_grid() -> None:
    """Shares of the active cycles exclude the 99 multiprocessors without a block."""
    row = LOOP | {"tflops": 15.2, "issue_pct": 99.6, "sm_cycles_ratio": 4.02, "time_ms": 0.58}
    assert names(row) == ["small_grid"]
    assert names(row | {"sm_cycles_ratio": None, "grid_blocks": 33}) == ["small_grid"]
    assert verdict(row, "issue_bound") == REFUTED


def test_a_full_l2_cache_is_not_latency() -> None:
    row = CARD | {
        "time_ms": 1.0,
        "dram_pct": 20.0,
        "dram_gb_s": 960.0,
        "l2_pct": 85.0,
        "l2_bytes": 7e9,
        "stall_reasons": "long_scoreboard=90;wait=10",
    }
    assert verdict(row, "latency_bound") == REFUTED
    assert verdict(row | {"l2_pct": 30.0, "l2_bytes": 2e9}, "latency_bound") == SUPPORTED
