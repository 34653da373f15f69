"""The rules: each has rows that trigger it, and rows that must not."""

from __future__ import annotations

from typing import Any

import pytest

from bwprof.analysis.bottleneck import match_rules
from bwprof.analysis.rules import RULES
from bwprof.analysis.values import as_frame
from bwprof.measuring.grade import WAITED

# What makes a row memory-limited, with 80 % of the attainable bandwidth; arithmetic- and kernel-limited likewise.
MEMORY = {"time_ms": 1.0, "bandwidth_gb_s": 800.0, "attainable_gb_s": 1000.0, "flops": 0, "bound": "memory"}
COMPUTE = MEMORY | {
    "bandwidth_gb_s": 10.0,
    "flops": 6 * 10**11,
    "tflops": 600.0,
    "peak_tflops": 1000.0,
    "bound": "compute",
}
KERNEL = MEMORY | {"bandwidth_gb_s": 300.0}
EXCESS = {"bytes_read": 60, "bytes_written": 40, "algorithmic_bytes_read": 90, "algorithmic_bytes_written": 61}
STALLS = "long_scoreboard={};wait=50;selected=900"
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("uncoalesced", {"load_efficiency": 49.9}, {"load_efficiency": 50.0}),
    ("extra_traffic", {"traffic_ratio": 1.11}, {"traffic_ratio": 1.1}),
    (
        "materialized",
        EXCESS,
        EXCESS | {"algorithmic_bytes_written": 60},
    ),
    ("unused_sectors", {"operation": "strided_read", **EXCESS}, {"operation": "gemm", **EXCESS}),
    ("materialized", {"operation": "gemm", **EXCESS}, {"operation": "strided_read", **EXCESS}),
    ("at_memory_roof", MEMORY | {"bandwidth_gb_s": 900.0}, MEMORY | {"bandwidth_gb_s": 899.0}),
    ("at_memory_roof", MEMORY | {"bandwidth_gb_s": 990.0}, COMPUTE | {"pct_attainable": 95.0}),
    (
        "low_bytes_in_flight",
        MEMORY | {"bandwidth_gb_s": 699.0, "stall_reasons": STALLS.format(50)},
        MEMORY | {"bandwidth_gb_s": 699.0, "stall_reasons": STALLS.format(49)},
    ),
    (
        "low_bytes_in_flight",
        KERNEL | {"stall_reasons": STALLS.format(99)},
        MEMORY | {"bandwidth_gb_s": 700.0, "stall_reasons": STALLS.format(99)},
    ),
    (
        "low_bytes_in_flight",
        KERNEL | {"stall_reasons": STALLS.format(99)},
        COMPUTE | {"stall_reasons": STALLS.format(99)},
    ),
    (
        "bank_conflicts",
        {"bank_conflicts": 101, "shared_wavefronts": 1000},
        {"bank_conflicts": 100, "shared_wavefronts": 1000},
    ),
    ("bank_conflicts", {"bank_conflicts": 1, "shared_wavefronts": 2}, {"bank_conflicts": 5, "shared_wavefronts": 0}),
    ("low_occupancy", {"occupancy_pct": 49.9}, {"occupancy_pct": 50.0}),
    (
        "low_occupancy",
        MEMORY | {"occupancy_pct": 20.0},
        MEMORY | {"bandwidth_gb_s": 900.0, "occupancy_pct": 20.0},
    ),
    ("spills", {"local_sectors": 1}, {"local_sectors": 0}),
    ("latency", {"bound": "latency"}, {"bound": "memory"}),
    ("latency", {"flags": "noisy;near_timer_floor"}, {"flags": "noisy"}),
    ("latency", MEMORY | {"timer_floor_us": 334.0}, MEMORY | {"timer_floor_us": 333.0}),
    ("host_bound", {"wall_ms": 1.12}, {"wall_ms": 1.11}),
    ("host_bound", {"reason": "cold; " + WAITED.format(11)}, {"reason": WAITED.format(10)}),
    ("compute", COMPUTE, MEMORY),
    ("narrow_slower", {"bandwidth_vs_fp32": 0.89}, {"bandwidth_vs_fp32": 0.9}),
    ("narrow_slower", KERNEL | {"bandwidth_vs_fp32": 0.44}, COMPUTE | {"bandwidth_vs_fp32": 0.44}),
    # 100 GB/s of 333: predicted are 0.3003 ms, and an empty launch beside them
    (
        "slower_than_predicted",
        KERNEL | {"bandwidth_gb_s": 300.0, "attainable_gb_s": 1000.0},
        KERNEL | {"bandwidth_gb_s": 300.0, "attainable_gb_s": 1000.0, "timer_floor_us": 40.0},
    ),
    ("slower_than_predicted", {"predicted_ms": 0.33}, {"predicted_ms": 0.34}),
    ("throttled", {"flags": "throttled"}, {"flags": "not_throttled"}),
    ("noisy", {"flags": "not_converged;noisy"}, {"flags": "noisy_roof"}),
]


def matching_rules(data: Any) -> list[list[str]]:
    return [[rule.id for rule, _ in row] for row in match_rules(as_frame(data))]


def rules(row: dict[str, Any]) -> list[str]:
    return matching_rules({"time_ms": 1.0, **row})[0]


@pytest.mark.parametrize(("name", "row", "other"), CASES)
def test_a_rule_matches_one_row_and_not_the_other(name: str, row: dict[str, Any], other: dict[str, Any]) -> None:
    assert name in rules(row)
    assert name not in rules(other)


def test_every_rule_has_such_rows() -> None:
    assert sorted({name for name, _, _ in CASES}) == sorted(rule.id for rule in RULES)


def test_unknown_figures_match_no_rule() -> None:
    assert matching_rules([{"time_ms": 1.0}, {}, {"case": "a", "load_efficiency": None, "flags": None}]) == [[], [], []]
    assert matching_rules([]) == []


def test_rules_of_many_rows_agree_with_each_row() -> None:
    rows = [{"time_ms": 1.0, **row} for _, speaks, silent in CASES for row in (speaks, silent)]
    assert matching_rules(rows) == [rules(row) for row in rows]


def test_thresholds_and_fixes() -> None:
    rules = {rule.id: rule for rule in RULES}
    thresholds = {
        "uncoalesced": 50,
        "extra_traffic": 1.1,
        "materialized": 1.5,
        "at_memory_roof": 90,
        "low_bytes_in_flight": 50,
        "bank_conflicts": 10,
        "low_occupancy": 50,
        "host_bound": 90,
        "narrow_slower": 0.9,
        "slower_than_predicted": 3,
    }
    assert {name: rules[name].threshold for name in thresholds} == thresholds
    assert "pad [M][K+1]" in rules["bank_conflicts"].fixes
    assert all(rule.fixes and all(rule.fixes) for rule in RULES)
