"""Diagnoses of figures that an H200 gave for kernels whose cause is known, by hand from its rows."""

from __future__ import annotations

from typing import Any

import pytest

import bwprof
from bwprof.analysis.diagnosis.figures import Figures
from bwprof.analysis.diagnosis.function import diagnoses
from bwprof.analysis.diagnosis.judging import CANNOT_TELL, SUPPORTED

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
    (found,) = diagnoses(row)
    return [held.hypothesis.name for held in found.of(SUPPORTED)]


def verdict(row: dict[str, Any], name: str) -> str:
    return str(bwprof.diagnose(row).set_index("hypothesis").loc[name, "verdict"])


def test_a_stream_of_the_bytes_that_were_moved_is_the_roof() -> None:
    """2.198 GB take 0.520 ms at the ceiling, and few bytes 1.5 us more: 68 % of 0.769 ms, not 116 %."""
    by_hand = 100 * (2197768192 / 4223.1e9 + 8650752 * (1 / 2463.6e9 - 1 / 4223.1e9)) / 0.7688e-3
    assert Figures(SPILLING).memory.pct == pytest.approx(by_hand, rel=1e-3)
    assert Figures(SPILLING).contradictions == []
    assert Figures(SPILLING | {"ceiling_gb_s": None}).memory.pct == pytest.approx(116, rel=0.01)


def test_bytes_written_in_excess_are_no_thrash_of_the_caches() -> None:
    """Nothing that is read again is written: only local memory's traffic tells where they come from."""
    assert verdict(SPILLING, "cache_thrash") == CANNOT_TELL
    assert names(SPILLING)[:1] != ["cache_thrash"]
    assert names(SPILLING | {"local_bytes": 2_800_000_000})[0] == "spills"
    reread = SPILLING | {"dram_bytes_read": 2193442816, "dram_bytes_written": 4325376}
    assert verdict(reread, "cache_thrash") == SUPPORTED


def test_a_loop_may_be_faster_than_the_best_product() -> None:
    """120 % of the library's rate are 91 % of what the card can do."""
    assert names(LOOP) == ["compute_bound"]
    assert Figures(LOOP).contradictions == []
    impossible = LOOP | {"tflops": 80.0, "fma_pct": None, "sm_pct": None}
    assert verdict(impossible, "compute_bound") == CANNOT_TELL, "120 % of what the card can do"


def test_the_power_limit_follows_from_a_busy_pipe() -> None:
    """A tensor pipe at 98 % is the cause, and the clock that it gets its symptom; heat is a cause of its own."""
    assert names(PRODUCT) == ["compute_bound", "clock_held_down"]
    assert names(PRODUCT | {"throttle": "sw_thermal"}) == ["clock_held_down", "compute_bound"]
    assert names(PRODUCT | {"throttle": "sw_power_cap;hw_thermal"})[0] == "clock_held_down"
    idle = PRODUCT | {"tensor_pct": 20.0, "sm_pct": 20.0, "tflops": 100.0}
    assert names(idle)[0] == "clock_held_down", "nothing that the kernel does needs the power"
