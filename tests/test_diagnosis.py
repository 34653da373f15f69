"""Hypotheses: planted causes, recorded rows, contradictions, Little's law."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from planted import KERNELS, Draw, as_bwprof, as_profiled, counted, finite

import bwprof
from bwprof.analysis.diagnosis.diagnose import COLUMNS, HYPOTHESES, diagnose_rows
from bwprof.analysis.diagnosis.figures import RowFigures
from bwprof.analysis.diagnosis.hypothesis import CANNOT_TELL, REFUTED, SUPPORTED, Band
from bwprof.analysis.rules import checklist, find_rule
from bwprof.measuring import function

SEEDS = 12
NOTHING: dict[str, Any] = {"device": "cpu", "max_seconds": 0.01, "roofs": False}
# What profilers' files without the bytes that must move do not tell.
OPEN = {
    "profiled": {"thrashing", "unfused", "throttled"},
    "stated": {"throttled"},
}
# An H200's copy of 1 GiB under ncu, by hand from its file.
COPY: dict[str, Any] = {
    "case": "cpy",
    "device": "NVIDIA H200",
    "compute_capability": "9.0",
    "time_ms": 0.501504,
    "dram_bytes_read": 1073794048,
    "dram_bytes_written": 1050453760,
    "dram_gb_s": 4235.75,
    "peak_gb_s": 4811.6,
    "dram_pct": 88.03,
    "sm_pct": 9.70,
    "occupancy_pct": 77.89,
    "theoretical_occupancy_pct": 100.0,
    "waves": 248.24,
    "load_efficiency_pct": 100.0,
    "sectors_per_load": 16.0,
    "bank_conflicts": 0,
    "local_bytes": 0,
    "stall_reasons": "long_scoreboard=131.36;wait=2.46;drain=2.02;short_scoreboard=1.83;branch_resolving=0.36;"
    "no_instruction=0.34;not_selected=0.19;mio_throttle=0.1;math_pipe_throttle=0.07;dispatch_stall=0.03;selected=1",
}


def verdicts(row: dict[str, Any], **options: Any) -> dict[str, str]:
    found = bwprof.diagnose(row, **options)
    return dict(zip(found["hypothesis"], found["verdict"], strict=True))


def verdict_of(row: dict[str, Any], name: str) -> dict[str, Any]:
    found = bwprof.diagnose(row)
    return found[found["hypothesis"] == name].iloc[0].to_dict()


def planted(form: str) -> tuple[Counter[tuple[str, str]], list[tuple[str, str]]]:
    """Count first verdicts by planted cause, and list wrong claims."""
    rows = []
    for (make, _, _), seed in itertools.product(KERNELS, range(SEEDS)):
        draw = Draw(1000 * seed + len(make.__name__))
        row = counted(make(draw), draw)
        assert finite(row)
        if form == "bwprof":
            row = as_bwprof(row, draw)
        elif form != "whole":
            row = as_profiled(row, stated=form == "stated")
        rows.append(row)
    first: Counter[tuple[str, str]] = Counter()
    wrong = []
    for (make, cause, also), names in zip(_each(), supported(rows), strict=True):
        first[make.__name__, names[0] if names else "-"] += 1
        wrong += [(make.__name__, name) for name in names if name != cause and name not in also]
    return first, wrong


def _each() -> list[tuple[Any, str, set[str]]]:
    return [found for found, _ in itertools.product(KERNELS, range(SEEDS))]


def supported(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [[entry.hypothesis.name for entry in found.of(SUPPORTED)] for found in diagnose_rows(rows)]


@pytest.mark.parametrize("form", ["whole", "bwprof", "profiled", "stated"])
def test_planted_causes_are_found_and_nothing_else(form: str) -> None:
    first, wrong = planted(form)
    assert not wrong
    outcome = [(make.__name__, cause) for make, cause, _ in KERNELS if make.__name__ not in OPEN.get(form, ())]
    right = sum(first[pair] for pair in outcome)
    assert right >= 0.9 * SEEDS * len(outcome), {pair: count for pair, count in first.items() if pair not in outcome}


def test_missing_figures_cause_no_wrong_verdict() -> None:
    """A third of a profiler's columns is left out at random."""
    rows = []
    for (make, _, _), seed in itertools.product(KERNELS, range(SEEDS)):
        draw, hide = Draw(77 * seed), random.Random(seed)
        row = as_profiled(counted(make(draw), draw), stated=True)
        rows.append({name: value for name, value in row.items() if hide.random() > 0.35})
    wrong = []
    for (make, cause, also), names in zip(_each(), supported(rows), strict=True):
        # without the intermediates' bytes there is but the traffic that they make
        traffic = {"cache_thrash"} if make.__name__ == "unfused" else set()
        wrong += [(make.__name__, name) for name in set(names) - {cause} - also - traffic]
    assert not wrong


def test_a_copy_at_the_roof() -> None:
    found = verdicts(COPY)
    assert found["memory_bound"] == SUPPORTED
    refuted = ("latency_bound", "bank_conflicts", "low_occupancy", "compute_bound", "uncoalesced", "spills")
    assert {found[name] for name in refuted} == {REFUTED}
    assert verdict_of(COPY, "memory_bound")["expected_gain"] == pytest.approx(1 / 0.8803)
    (sentence,) = [row.sentence for row in diagnose_rows(COPY)]
    assert sentence.startswith("cpy: ")
    assert all(text in sentence for text in ("the memory's bandwidth", "88 %", "only fewer bytes"))


def test_seventy_percent_of_dram_leave_the_bound_open() -> None:
    """At 69 % of the peak, stalls or a busy pipe decide; the share alone does not."""
    row = {"time_ms": 1.0, "dram_pct": 55.0, "sm_pct": 20.0}
    assert verdicts(row | {"dram_pct": 69.0})["memory_bound"] == CANNOT_TELL
    assert verdicts(row)["memory_bound"] == REFUTED
    assert verdicts(row)["latency_bound"] == CANNOT_TELL
    assert "stall_reasons" in verdict_of(row, "latency_bound")["needs"]
    assert verdicts(row | {"stall_reasons": "long_scoreboard=9;wait=1"})["latency_bound"] == SUPPORTED
    assert verdicts(row | {"stall_reasons": "long_scoreboard=2;wait=8"})["latency_bound"] == REFUTED
    assert verdicts(row | {"sm_pct": 80.0, "tensor_pct": 80.0})["compute_bound"] == SUPPORTED


@pytest.mark.parametrize(
    ("row", "name", "busy"),
    [
        ({"tensor_pct": 64.0, "sm_pct": 64.0, "stall_reasons": "not_selected=9;wait=1"}, "compute_bound", 64.0),
        ({"valu_busy_pct": 64.0, "mem_unit_stalled_pct": 0.5}, "compute_bound", 64.0),
        ({"sm_pct": 80.0, "fma_pct": 5.0, "issue_pct": 20.0, "stall_reasons": "wait=10"}, "compute_bound", 80.0),
        ({"sm_pct": 80.0, "fma_pct": 5.0, "issue_pct": 80.0, "stall_reasons": "wait=10"}, "issue_bound", 80.0),
    ],
)
def test_the_gain_is_what_the_busy_roof_leaves(row: dict[str, Any], name: str, busy: float) -> None:
    """A unit that is busy 64 % of the time leaves a gain of 1 / 0.64 at most."""
    found = verdict_of({"time_ms": 1.0, **row}, name)
    assert (found["verdict"], found["expected_gain"]) == (SUPPORTED, pytest.approx(100 / busy))


def test_littles_law() -> None:
    """32 warps on each of 132 multiprocessors, 128 bytes each: 540 672 bytes in flight; 0.5 us x 4 TB/s: 2 MB."""
    row = {
        "device": "NVIDIA H200",
        "time_ms": 1.0,
        "dram_pct": 20.0,
        "peak_gb_s": 4000.0,
        "occupancy_pct": 50.0,
        "sectors_per_load": 4.0,
        "stall_reasons": "long_scoreboard=9;wait=1",
    }
    figures = RowFigures(row, 0.5)
    assert figures.in_flight_least == pytest.approx(132 * 32 * 128)
    assert figures.in_flight_needed == pytest.approx(2e6)
    message = verdict_of(row, "latency_bound")
    assert "528 KiB in flight" in message["evidence"]
    assert all(text in message["evidence"] for text in ("0.7 us", "assumed"))
    outcome = bwprof.diagnose(row, latency_us=0.5).set_index("hypothesis").loc["latency_bound", "evidence"]
    assert ("1.91 MiB" in outcome, "(0.5 us" in outcome, "assumed" in outcome) == (True, True, False)
    # one block of 4 warps has 4 loads of 128 bytes in flight, whatever its occupancy
    assert RowFigures(row | {"grid_blocks": 1, "block_threads": 128}).in_flight_least == 512
    # as many bytes in flight as it takes, and yet far from the roof: not for want of them
    assert verdicts(row | {"sectors_per_load": 32.0, "latency": 1})["latency_bound"] == CANNOT_TELL


def test_waiting_for_l2_is_not_dram_s_latency() -> None:
    """L2 moves 6 TB/s where DRAM has 4: L2's bandwidth may be the limit."""
    row = {"time_ms": 1.0, "dram_pct": 10.0, "peak_gb_s": 4000.0, "stall_reasons": "long_scoreboard=9;wait=1"}
    assert verdicts(row)["latency_bound"] == SUPPORTED
    assert verdicts(row | {"l2_bytes": 600 * 10**6})["latency_bound"] == SUPPORTED
    found = verdict_of(row | {"l2_bytes": 6 * 10**9}, "latency_bound")
    assert (found["verdict"], "L2 moved 6000 GB/s" in found["evidence"]) == (CANNOT_TELL, True)


def test_flops_of_one_pipe_do_not_refute_others() -> None:
    """A profiler counts FMA instructions, which a kernel on tensor cores hardly has."""
    row = {"time_ms": 1.0, "dram_pct": 10.0, "flops": 10**6, "peak_tflops": 60.0}
    assert verdicts(row)["compute_bound"] == CANNOT_TELL
    assert verdicts(row | {"fma_pct": 2.0})["compute_bound"] == CANNOT_TELL
    assert verdicts(row | {"fma_pct": 2.0, "tensor_pct": 85.0})["compute_bound"] == SUPPORTED
    assert verdicts(row | {"fma_pct": 2.0, "tensor_pct": 1.0})["compute_bound"] == REFUTED
    assert verdicts(row | {"sm_pct": 9.0})["compute_bound"] == REFUTED
    assert verdicts(row | {"arithmetic_intensity": 0.1})["compute_bound"] == REFUTED, "bwprof's are stated, altogether"


def test_sectors_are_compared_with_the_width_of_access() -> None:
    row = {"time_ms": 1.0, "dram_pct": 30.0}
    assert verdicts(row | {"sectors_per_load": 32.0})["uncoalesced"] == SUPPORTED
    assert verdicts(row | {"sectors_per_load": 16.0})["uncoalesced"] == CANNOT_TELL, "16 bytes a lane, or 4 with gaps"
    assert verdicts(row | {"sectors_per_load": 4.0})["uncoalesced"] == CANNOT_TELL
    assert verdicts(row | {"sectors_per_load": 4.0, "precision": "fp32"})["uncoalesced"] == REFUTED
    assert verdicts(row | {"sectors_per_load": 4.0, "precision": "fp16"})["uncoalesced"] == CANNOT_TELL
    moved = {"bytes_read": 10**9, "bytes_written": 0, "l2_bytes": 15 * 10**8, "traffic_ratio": 1.0}
    assert verdicts(row | moved | {"sectors_per_load": 16.0})["uncoalesced"] == REFUTED
    assert verdicts(row | {"sectors_per_load": 32.0, "load_efficiency_pct": 99.0})["uncoalesced"] == REFUTED


def test_conflicts_count_by_their_share_and_where_warps_wait_for_them() -> None:
    row = {"time_ms": 1.0, "dram_pct": 5.0, "bank_conflicts": 31_000_000, "shared_wavefronts": 32_000_000}
    waiting = row | {"stall_reasons": "mio_throttle=60;short_scoreboard=20;wait=20"}
    found = verdict_of(waiting, "bank_conflicts")
    assert found["verdict"] == SUPPORTED
    # without conflicts 80 % of the waiting would take a 32nd part
    assert found["expected_gain"] == pytest.approx(1 / (1 - 0.8 * 31 / 32))
    assert verdicts(row | {"stall_reasons": "long_scoreboard=95;short_scoreboard=5"})["bank_conflicts"] == REFUTED
    assert verdicts(waiting | {"shared_wavefronts": 10**9})["bank_conflicts"] == REFUTED, "a million in 3 %"
    assert verdicts({"time_ms": 1.0, "bank_conflicts": 31})["bank_conflicts"] == CANNOT_TELL
    assert verdicts({"time_ms": 1.0, "bank_conflicts": 0})["bank_conflicts"] == REFUTED


def test_low_occupancy_matters_only_far_from_roofs() -> None:
    waits = {"stall_reasons": "long_scoreboard=70;wait=28;not_selected=2"}
    # one block of 8 of 64 warps, by registers: 256 threads of 168 take 43 008 of 65 536
    launch = {"registers": 168, "block_threads": 256, "shared_bytes": 0, "compute_capability": "9.0", "waves": 20.0}
    row = {"time_ms": 1.0, "dram_pct": 30.0, "sm_pct": 20.0, "occupancy_pct": 12.0, **launch, **waits}
    found = verdict_of(row, "low_occupancy")
    assert found["verdict"] == SUPPORTED
    assert "limited by registers" in found["evidence"]
    assert verdicts(row | {"dram_pct": 90.0})["low_occupancy"] == REFUTED
    assert verdicts(row | {"tensor_pct": 80.0, "sm_pct": 80.0})["low_occupancy"] == REFUTED
    assert verdicts(row | {"registers": 32})["low_occupancy"] == REFUTED, "the grid's doing, or its tail's"
    without = {name: value for name, value in row.items() if name not in launch}
    assert verdicts(without)["low_occupancy"] == CANNOT_TELL


def test_grids_and_tails() -> None:
    row = {"time_ms": 1.0, "dram_pct": 20.0, "multiprocessors": 132, "compute_capability": "9.0"}
    one = verdict_of(row | {"grid_blocks": 1}, "small_grid")
    assert (one["verdict"], one["expected_gain"]) == (SUPPORTED, 5.0)  # 132 times, but the roof is 5 times away
    assert one["evidence"].startswith("1 block for 132")
    # 256 threads of 32 registers: 8 blocks a multiprocessor, 1 056 at once; 1 200 take two rounds, 43 % empty
    fits = {"registers": 32, "block_threads": 256, "shared_bytes": 0}
    found = verdict_of(row | fits | {"grid_blocks": 1200}, "small_grid")
    assert found["verdict"] == SUPPORTED
    assert found["expected_gain"] == pytest.approx(2 * 1056 / 1200)
    assert "43 % of 2" in found["evidence"]
    assert verdicts(row | fits | {"grid_blocks": 2112})["small_grid"] == REFUTED
    assert verdicts(row | {"sm_cycles_ratio": 4.0})["small_grid"] == SUPPORTED
    assert verdicts(row)["small_grid"] == CANNOT_TELL


def test_launches_and_clocks() -> None:
    assert verdicts({"time_ms": 1.1e-3, "timer_floor_us": 0.6})["launch_bound"] == SUPPORTED
    assert verdict_of({"time_ms": 1.2e-3, "timer_floor_us": 0.6}, "launch_bound")["expected_gain"] == pytest.approx(2.0)
    assert verdicts({"time_ms": 6e-3, "timer_floor_us": 0.6})["launch_bound"] == REFUTED
    assert verdicts({"time_ms": 6e-3})["launch_bound"] == CANNOT_TELL
    assert verdicts({"time_ms": 1.0, "wall_ms": 2.0})["launch_bound"] == SUPPORTED
    assert verdicts({"time_ms": 0.9e-3, "timer_floor_us": 0.6})["launch_bound"] == SUPPORTED
    hot = {"device": "NVIDIA H200", "time_ms": 1.0, "throttle": "sw_thermal", "sm_clock_mhz": 1485.0}
    assert verdict_of(hot, "clock_held_down")["expected_gain"] == pytest.approx(1980 / 1485)
    assert verdicts(hot | {"dram_pct": 90.0})["clock_held_down"] == REFUTED, "memory has a clock of its own"
    assert verdicts(hot | {"sm_clock_mhz": 1980.0})["clock_held_down"] == REFUTED
    assert verdicts(hot | {"throttle": "none"})["clock_held_down"] == REFUTED
    assert verdicts(hot | {"throttle": None})["clock_held_down"] == CANNOT_TELL, "ncu holds it down itself"


def test_traffic_and_intermediates() -> None:
    row = {"time_ms": 1.0, "bytes_read": 9 * 10**8, "bytes_written": 10**8, "peak_gb_s": 4000.0}
    twice = row | {"dram_bytes_read": 29 * 10**8, "dram_bytes_written": 10**8}  # 3 TB/s: 75 %
    assert verdict_of(twice, "cache_thrash")["expected_gain"] == pytest.approx(3.0)
    assert verdicts(twice)["memory_bound"] == SUPPORTED
    stored = twice | {"algorithmic_bytes_read": 29 * 10**8, "algorithmic_bytes_written": 10**8}
    assert verdicts(stored)["materialized"] == SUPPORTED
    assert verdicts(stored)["cache_thrash"] == REFUTED
    assert verdicts(stored | {"algorithmic_bytes_read": 14 * 10**8})["materialized"] == REFUTED, "1.5 times, not more"
    only_reads = {name: value for name, value in twice.items() if name != "bytes_written"}
    assert verdicts(only_reads)["cache_thrash"] == CANNOT_TELL


def test_spills_count_by_their_traffic() -> None:
    row = {"time_ms": 1.0, "dram_pct": 40.0, "l2_bytes": 10**9}
    found = verdict_of(row | {"local_bytes": 10**9}, "spills")
    assert (found["verdict"], found["expected_gain"]) == (SUPPORTED, pytest.approx(2.0))
    assert verdicts(row | {"local_bytes": 10**6})["spills"] == REFUTED
    assert verdicts(row | {"local_sectors": 10**8})["spills"] == SUPPORTED
    assert verdicts(row)["spills"] == CANNOT_TELL


def test_without_counters_far_from_the_roof_is_not_certain() -> None:
    """A kernel may move eight times the stated bytes; the moved ones count."""
    row = {"time_ms": 1.0, "pct_attainable": 12.0, "stall_reasons": "long_scoreboard=9;wait=1"}
    assert verdicts(row)["memory_bound"] == CANNOT_TELL
    assert "--counters" in verdict_of(row, "memory_bound")["needs"]
    assert verdicts(row)["latency_bound"] == CANNOT_TELL
    assert verdicts(row | {"pct_attainable": 92.0})["memory_bound"] == SUPPORTED
    known = {"bytes_read": 10**8, "bytes_written": 10**8}
    counted = known | {"dram_bytes_read": 15 * 10**8, "dram_bytes_written": 10**8}
    assert verdicts(row | counted)["memory_bound"] == SUPPORTED, "8 x 12 %"


@pytest.mark.parametrize(
    ("change", "hypothesis"),
    [
        ({"dram_pct": 140.0}, "memory_bound"),
        ({"dram_pct": 20.0}, "memory_bound"),  # its bytes over its time make 88 %
        ({"bank_conflicts": 10, "shared_wavefronts": 2}, "bank_conflicts"),
        ({"load_efficiency_pct": 250.0}, "uncoalesced"),
        ({"occupancy_pct": 90.0, "theoretical_occupancy_pct": 50.0}, "low_occupancy"),
        ({"pct_attainable": 150.0}, "memory_bound"),
    ],
)
def test_contradictions_leave_hypotheses_open(change: dict[str, Any], hypothesis: str) -> None:
    found = verdict_of(COPY | change, hypothesis)
    assert found["verdict"] == CANNOT_TELL
    assert found["evidence"].startswith("contradictory: ")


def test_doubtful_rows_must_be_further_from_the_threshold() -> None:
    row = {"time_ms": 1.0, "pct_attainable": 82.0}
    assert verdicts(row)["memory_bound"] == SUPPORTED
    for flag in ("noisy", "unverified", "not_cold", "above_attainable"):
        assert verdicts(row | {"flags": flag})["memory_bound"] == CANNOT_TELL
        sure = verdict_of(row | {"flags": flag, "pct_attainable": 95.0}, "memory_bound")
        assert (sure["verdict"], f"(in doubt: {flag})" in sure["evidence"]) == (SUPPORTED, True)
    assert diagnose_rows({"case": "a", "flags": "noisy", "time_ms": 1.0, "pct_attainable": 95.0})[
        0
    ].sentence.startswith("a (in doubt: noisy): ")


def test_rows_without_a_measurement_are_open() -> None:
    for row in ({}, {"case": "a", "time_ms": None}, {"time_ms": math.inf}):
        assert set(verdicts(row).values()) == {CANNOT_TELL}
    failed = {"case": "a", "status": "failed", "reason": "no room", "dram_pct": 95.0}
    assert set(verdicts(failed).values()) == {CANNOT_TELL}
    (sentence,) = [row.sentence for row in diagnose_rows(failed)]
    assert (sentence.startswith("a: "), sentence.endswith("failed (no room).")) == (True, True)
    hot = {"cache": "hot", "time_ms": 1.0, "pct_attainable": 300.0}
    assert verdicts(hot)["memory_bound"] == CANNOT_TELL
    assert RowFigures({"time_ms": 1.0, "flops": 0}).arithmetic.pct == 0.0
    assert RowFigures({"time_ms": 1.0, "pct_attainable": 0.5}).memory.pct == 0.5


def test_open_answers_name_what_is_missing_and_every_open_verdict_can_be_settled() -> None:
    (outcome,) = [row.sentence for row in diagnose_rows({"case": "a", "time_ms": 1.0, "dram_pct": 30.0})]
    assert all(text in outcome for text in ("not limited by", "the memory's bandwidth", "missing: ", "stall_reasons"))
    assert "throttle" not in outcome, "no option measures it"
    found = bwprof.diagnose({"case": "a", "time_ms": 1.0})
    assert (found.loc[found["verdict"] == CANNOT_TELL, "needs"] != "").all()


def test_rows_of_a_cpu_need_no_counters() -> None:
    row = {"case": "a", "backend": "cpu", "time_ms": 1.0, "timer_floor_us": 0.1}
    found = bwprof.diagnose(row | {"pct_attainable": 30.0}).set_index("hypothesis")
    assert "CPU" in found.loc["bank_conflicts", "evidence"]
    assert not found["needs"].str.contains("ncu|--metrics|--counters").any()
    (sentence,) = [row.sentence for row in diagnose_rows(row | {"pct_attainable": 30.0})]
    assert all(text in sentence for text in ("a: at 30 %", "by the bytes stated", "counted on a CPU"))
    assert "the memory's bandwidth" in diagnose_rows(row | {"pct_attainable": 95.0})[0].sentence


def test_a_frame_and_its_columns() -> None:
    frame = pd.DataFrame([COPY | {"launch": 0}, COPY | {"launch": 1, "dram_pct": None, "dram_gb_s": None}])
    found = bwprof.diagnose(frame)
    assert tuple(found.columns) == COLUMNS
    assert len(found) == 2 * len(HYPOTHESES)
    assert list(dict.fromkeys(found["case"])) == ["cpy (launch 0)", "cpy (launch 1)"]
    assert found.attrs["answers"] == tuple([row.sentence for row in diagnose_rows(frame)])
    order = found["verdict"].map({SUPPORTED: 0, CANNOT_TELL: 1, REFUTED: 2}).to_numpy()
    assert all(np.all(np.diff(order[at : at + len(HYPOTHESES)]) >= 0) for at in (0, len(HYPOTHESES)))
    assert (found.loc[found["verdict"] == SUPPORTED, "fixes"] != "").all()
    assert len(bwprof.diagnose(frame.iloc[:0])) == 0
    pd.testing.assert_frame_equal(bwprof.diagnose(frame.iloc[0]), bwprof.diagnose([COPY | {"launch": 0}]))
    for no_rows in (3, "a", [1]):
        with pytest.raises(TypeError):
            bwprof.diagnose(no_rows)
    for latency in (0, -1, "a", math.nan):
        with pytest.raises(ValueError, match=r"^latency_us is .*positive"):
            bwprof.diagnose(COPY, latency_us=latency)


def test_thresholds_and_fixes_are_the_rules() -> None:
    names = {entry.name: entry for entry in HYPOTHESES}
    assert names["bank_conflicts"].fixes is find_rule("bank_conflicts").fixes
    assert names["latency_bound"].fixes is find_rule("low_bytes_in_flight").fixes
    assert f"over {find_rule('bank_conflicts').threshold:g} %" in names["bank_conflicts"].threshold
    assert f"below {find_rule('low_occupancy').threshold:g} %" in names["low_occupancy"].threshold


def test_bands_in_both_directions() -> None:
    rising, falling = Band(80, 70), Band(50, 80)
    assert [rising.place(value) for value in (80, 75, 69)] == [SUPPORTED, CANNOT_TELL, REFUTED]
    assert [falling.place(value) for value in (50, 60, 81)] == [SUPPORTED, CANNOT_TELL, REFUTED]
    assert [rising.place(value, doubted=True) for value in (87, 89, 66, 60)] == [
        CANNOT_TELL,
        SUPPORTED,
        CANNOT_TELL,
        REFUTED,
    ]
    assert rising.place(math.nan) == CANNOT_TELL


def test_recorded_rows() -> None:
    """First causes in an H200's default suite, judged by eye.

    Memory limits streams and large products, arithmetic limits long attention, intermediates limit unfused attention.
    Decode attention of eight short sequences waits for loads under way. The small product stays open: half of its
    stalls wait for memory.
    """
    frame = bwprof.load_example("h200")
    found = diagnose_rows(frame)
    first, stored = {}, []
    for row, entry in zip(frame.to_dict("records"), found, strict=True):
        outcome = entry.of(SUPPORTED)
        first[row["case"], row["precision"], row["variant"]] = outcome[0].hypothesis.name if outcome else "-"
        if row["variant"] == "unfused":
            stored.append(max(outcome, key=lambda one: one.judgment.gain).hypothesis.name)
    for (case, _, _), name in first.items():
        if case.startswith(("stream", "decode_gemm", "kv_")) or case == "decode_attention_32k":
            assert name == "memory_bound"
        if case == "prefill_attention_4k":
            assert name == "compute_bound"
        if case == "decode_attention_batch8":
            assert name == "latency_bound"
    assert stored == ["materialized"] * 3
    assert first["prefill_attention", "fp32", "unfused"] == "materialized"
    assert first["prefill_gemm_small", "fp32", "cublaslt"] == "-"
    assert first["ffn_gemm", "fp32", "cublaslt"] == "-", "nothing that was counted limits it"


def test_random_rows_never_raise() -> None:
    """Columns hold random values of any type."""
    columns = sorted(
        {name for entry in HYPOTHESES for name in entry.columns} | set(COPY) | {"flags", "reason", "cache"}
    )
    numbers = [None, math.nan, math.inf, -1, 0, 1, 50.0, 100, 1e30, 1e-90, 10**400, True]
    words = ["", "a=b;=;1", "long_scoreboard=1e99;wait=0", "noisy;;", "NVIDIA H200"]
    draw = random.Random(5)
    rows = [{name: draw.choice(numbers + words) for name in columns if draw.random() < 0.7} for _ in range(400)]
    found = bwprof.diagnose(rows)
    assert len(found) == len(rows) * len(HYPOTHESES)
    gains = found["expected_gain"].dropna()
    assert len(gains) > 100
    assert (gains >= 1).all()
    assert np.isfinite(gains).all()


def test_compulsory_bytes_alone_do_not_show_intermediates() -> None:
    """Stated bytes exclude intermediates; counted DRAM bytes beside them decide."""
    known = {"time_ms": 1.0, "bytes_read": 10**9, "bytes_written": 10**9}
    assert verdicts(known)["materialized"] == CANNOT_TELL
    assert "times" not in verdict_of(known, "materialized")["evidence"]
    little = known | {"dram_bytes_read": 1.1e9, "dram_bytes_written": 1e9}
    assert "1.05 times" in verdict_of(little, "materialized")["evidence"]
    assert verdicts(little)["materialized"] == REFUTED
    much = known | {"dram_bytes_read": 9e9, "dram_bytes_written": 1e9}
    assert verdicts(much)["materialized"] == CANNOT_TELL
    own = known | {"algorithmic_bytes_read": 10**9, "algorithmic_bytes_written": 10**9}
    assert verdicts(own)["materialized"] == REFUTED


def test_bytes_of_a_function_do_not_show_intermediates() -> None:
    """Neither stated bytes nor counted ones that replace them decide."""
    row = bwprof.measure(lambda: None, bytes_read=10**6, bytes_written=10**6, **NOTHING)
    assert verdicts(row)["materialized"] == CANNOT_TELL
    checks = checklist(row).set_index("Item")["Result"]
    assert [result for item, result in checks.items() if str(item).startswith("fused")] == ["unknown"]


def test_counted_bytes_are_not_compared_with_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller passes no bytes, or only some, so the row's bytes are the counted ones."""
    counted = {"dram_bytes_read": 3e9, "dram_bytes_written": 2e9, "l2_bytes": 6e9, "counters_status": "ok"}
    monkeypatch.setattr(function, "_count_traffic", lambda *_: dict(counted))
    outcome = {"backend": "cuda", "device": "NVIDIA H200", "time_ms": 2.0, "dram_gb_s": 2500.0, "flags": ""}
    for known in ({}, {"bytes_read": 10**9}):
        row = dict(bwprof.measure(lambda: None, counters=True, **known, **NOTHING)) | outcome
        for name in ("materialized", "cache_thrash"):
            found = verdict_of(row, name)
            assert found["verdict"] == CANNOT_TELL
            assert "--bytes NAME=READ,WRITTEN" in found["needs"]
        assert verdicts(row | {"sectors_per_load": 8.0})["uncoalesced"] == CANNOT_TELL
    row = (
        dict(bwprof.measure(lambda: None, counters=True, bytes_read=3 * 10**9, bytes_written=10**9, **NOTHING))
        | outcome
    )
    assert "1.25 times" in verdict_of(row, "materialized")["evidence"]
    assert verdicts(row)["materialized"] == REFUTED


def test_needs_on_an_amd_card_name_its_counters() -> None:
    needs = verdict_of({"time_ms": 1.0, "mem_unit_stalled_pct": 90.0}, "compute_bound")["needs"]
    assert all(name in needs for name in ("VALUBusy", "MemUnitStalled", "RocprofSession"))


def test_diagnosed_rows_exclude_raw_metrics() -> None:
    """Thousands of raw metrics would slow the diagnosis of many launches."""
    data = pd.DataFrame([COPY | {"sm__throughput.avg": 1.0}] * 2)
    data.attrs = {"units": {"sm__throughput.avg": "%"}}
    rows = [one.row for one in diagnose_rows(data)]
    assert rows == [COPY, COPY]
    assert data.attrs == {"units": {"sm__throughput.avg": "%"}}
    assert [one.row for one in diagnose_rows(pd.DataFrame({"sm__throughput.avg": [1.0, 2.0]}))] == [{}, {}]
