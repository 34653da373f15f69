"""The checklist: sixteen items, each pass, fail, or unknown with the option that measures it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from bwprof.analysis.rules import checklist

# By the item's place: columns that pass it just so, and that fail it.
CASES: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {
    0: ({"load_efficiency": 80.0}, {"load_efficiency": 79.9}),
    1: ({"traffic_ratio": 1.1}, {"traffic_ratio": 1.11}),
    2: ({"bank_conflicts": 1, "shared_wavefronts": 100}, {"bank_conflicts": 2, "shared_wavefronts": 100}),
    3: (
        {"sectors_per_load": 5.0, "ideal_sectors_per_load": 4},
        {"sectors_per_load": 5.1, "ideal_sectors_per_load": 4},
    ),
    4: ({"occupancy_pct": 50.0}, {"occupancy_pct": 49.0}),
    5: ({"warp_primitives": True}, {"warp_primitives": False}),
    6: ({"active_threads": 28.0}, {"active_threads": 27.9}),
    7: ({"unrolled": True}, {"unrolled": False}),
    8: (
        {"bytes_read": 1, "bytes_written": 1, "algorithmic_bytes_read": 1, "algorithmic_bytes_written": 1},
        {"bytes_read": 1, "bytes_written": 1, "algorithmic_bytes_read": 2, "algorithmic_bytes_written": 1},
    ),
    9: ({"sm_cycles_ratio": 1.1}, {"sm_cycles_ratio": 1.2}),
    10: ({"stall_reasons": "barrier=1;wait=9;selected=1"}, {"stall_reasons": "barrier=1.2;wait=9;selected=9"}),
    11: (
        {"traffic_ratio": 1.1},
        {
            "traffic_ratio": 1.0,
            "bytes_read": 1,
            "bytes_written": 1,
            "algorithmic_bytes_read": 2,
            "algorithmic_bytes_written": 1,
        },
    ),
    12: ({"block_threads": 256}, {"block_threads": 100}),
    13: ({"waves_per_sm": 1.8}, {"waves_per_sm": 2.1}),
    14: ({"theoretical_occupancy_pct": 50.0}, {"theoretical_occupancy_pct": 37.5}),
}
BUILT = {"build": {"cuda_archs": "80 86 90a 100 ptx80", "isas": "avx512 portable"}, "facts": {"major": 9, "minor": 0}}


def test_sixteen_items_in_four_groups() -> None:
    found = checklist({"time_ms": 1.0})
    assert found.columns.tolist() == ["Group", "Item", "Result", "Figure"]
    assert found["Group"].value_counts(sort=False).to_dict() == {
        "Memory": 4,
        "Compute": 4,
        "Algorithm": 4,
        "Configuration": 4,
    }
    assert set(found["Result"]) == {"unknown"}
    assert (found["Figure"].str.len() > 5).all()


@pytest.mark.parametrize("place", CASES)
def test_an_item_passes_and_fails(place: int) -> None:
    good, bad = (checklist({"time_ms": 1.0, **columns}).iloc[place] for columns in CASES[place])
    assert (good["Result"], bad["Result"]) == ("pass", "fail")
    assert good["Figure"] != bad["Figure"]


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        ({"major": 9, "minor": 0}, "pass"),
        ({"major": 8, "minor": 0}, "pass"),
        ({"major": 8, "minor": 9}, "pass"),  # 8.6's code
        ({"major": 10, "minor": 3}, "pass"),
        ({"major": 9, "minor": 1}, "fail"),  # 9.0a's is for 9.0 alone
        ({"major": 12, "minor": 0}, "fail"),  # translated from PTX by the driver
        ({"runtime": "avx512"}, "pass"),
        ({}, "unknown"),
    ],
)
def test_built_for_the_device(facts: dict[str, Any], result: str) -> None:
    data = pd.DataFrame([{"time_ms": 1.0}])
    assert checklist(data)["Result"].tolist()[15] == "unknown"
    data.attrs["run"] = BUILT | {"facts": facts}
    assert checklist(data)["Result"].tolist()[15] == result


@pytest.mark.parametrize(
    ("place", "option"),
    [(1, "--counters"), (2, "--metrics bank_conflicts"), (4, "--metrics occupancy"), (10, "--metrics stalls")],
)
def test_an_unknown_item_names_the_option_that_measures_it(place: int, option: str) -> None:
    assert checklist({"time_ms": 1.0})["Figure"].tolist()[place] == option
    on_cpu = checklist({"time_ms": 1.0, "backend": "cpu"})["Figure"].tolist()
    assert ("GPU" in on_cpu[place], option in on_cpu[place]) == (True, False)


def test_low_occupancy_at_a_roof_passes() -> None:
    memory = {"time_ms": 1.0, "bandwidth_gb_s": 95.0, "attainable_gb_s": 100.0, "flops": 0, "occupancy_pct": 12.0}
    assert checklist(memory)["Result"].tolist()[4] == "pass"
    assert checklist(memory | {"bandwidth_gb_s": 85.0})["Result"].tolist()[4] == "fail"


def test_less_than_a_wave_fails() -> None:
    found = checklist({"time_ms": 1.0, "waves_per_sm": 0.9}).iloc[13]
    assert found["Result"] == "fail"


def test_of_several_rows_the_worst_is_named() -> None:
    rows = [
        {"case": "a", "time_ms": 1.0, "occupancy_pct": 60.0},
        {"case": "b", "time_ms": 1.0, "occupancy_pct": 20.0},
        {"case": "c", "time_ms": 1.0, "occupancy_pct": 10.0},
        {"case": "d", "time_ms": 1.0},
        {"case": "failed", "time_ms": None, "occupancy_pct": 1.0},
    ]
    found = checklist(pd.DataFrame(rows)).iloc[4]
    assert found["Result"] == "fail"
    assert all(text in found["Figure"] for text in ("1 of 3 rows", "c 10 %", "1 unknown (--metrics occupancy)"))
    passed = checklist(rows[:1] * 2).iloc[4]
    assert (passed["Result"], passed["Figure"][:6]) == ("pass", "2 of 2")


def test_an_empty_frame() -> None:
    assert set(checklist(pd.DataFrame())["Result"]) == {"unknown"}
