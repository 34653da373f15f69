"""Diagnoses against physics by hand: no impossible cause, and no gain beyond a roof."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

import bwprof
from bwprof.analysis.diagnosis.diagnose import diagnose_rows
from bwprof.importers.next_steps import suggest_commands

ROOFS: dict[str, Any] = {"peak_gb_s": 4800.0, "ceiling_gb_s": 4300.0, "measured_tflops": 700.0, "timer_floor_us": 1.5}
IN_VAIN: dict[str, Any] = {"time_ms": 1.0, "peak_gb_s": 4800.0, "load_efficiency_pct": 12.5}


def verdict_of(row: dict[str, Any], name: str) -> pd.Series[Any]:
    return bwprof.diagnose(row).set_index("hypothesis").loc[name]


@pytest.mark.parametrize("pipe", ["tensor_pct", "fma_pct"])
def test_uncoalesced_loads_do_not_limit_what_a_pipe_limits(pipe: str) -> None:
    # At 95 % of a pipe nothing wins more than 1.05 times, however its few loads lie.
    row = {**IN_VAIN, "dram_pct": 8.0, "sm_pct": 95.0, pipe: 95.0}
    found = bwprof.diagnose(row)
    assert verdict_of(row, "uncoalesced")["verdict"] == "cannot tell"
    assert found["hypothesis"][0] == "compute_bound"
    assert found["expected_gain"].max() <= 100 / 95 + 1e-9


@pytest.mark.parametrize("row", [IN_VAIN, {**IN_VAIN, "load_efficiency_pct": None, "sectors_per_load": 30.0}])
def test_uncoalesced_loads_that_nothing_waits_for_are_harmless(row: dict[str, Any]) -> None:
    far = {**row, "dram_pct": 1.0, "sm_pct": 5.0, "tensor_pct": 1.0, "fma_pct": 2.0}
    found = verdict_of({**far, "stall_reasons": "barrier=97;wait=3"}, "uncoalesced")
    assert found["verdict"] == "refuted"
    assert all(text in found["evidence"] for text in (" 0 % of", "harmless"))
    assert verdict_of({**far, "stall_reasons": "lg_throttle=70;barrier=30"}, "uncoalesced")["verdict"] == "supported"
    assert verdict_of(far, "uncoalesced")["verdict"] == "supported"


def test_spills_that_nothing_waits_for_are_harmless() -> None:
    row = {"time_ms": 1.0, "peak_gb_s": 4800.0, "dram_pct": 1.0, "local_bytes": 1e6, "l2_bytes": 1e6}
    assert verdict_of({**row, "stall_reasons": "barrier=97;wait=3"}, "spills")["verdict"] == "refuted"
    assert verdict_of({**row, "stall_reasons": "long_scoreboard=97;wait=3"}, "spills")["verdict"] == "supported"


def test_a_rate_far_beyond_the_best_one_is_no_evidence() -> None:
    # FLOPs of FP8 beside the best rate of FP16.
    row = {**ROOFS, "time_ms": 1.0, "flops": 1300e9, "dram_pct": 20.0, "tflops": 1300.0}
    found = verdict_of(row, "compute_bound")
    assert found["verdict"] == "cannot tell"
    assert "186 %" in found["evidence"]
    assert "arithmetic roof" not in " ".join(bwprof.diagnose(row)["evidence"])
    assert (
        verdict_of({**row, "tflops": 770.0}, "compute_bound")["verdict"] == "supported"
    )  # 110 %: the clock was higher


@pytest.mark.parametrize(("tflops", "peak"), [(798.0, 1071.0), (798.0, None), (847.0, 1071.0)])
def test_evidence_names_a_beaten_best_rate(tflops: float, peak: float | None) -> None:
    """114 and 121 % of the best rate are within theory."""
    row = {**ROOFS, "time_ms": 1.0, "flops": tflops * 1e9, "tflops": tflops, "peak_tflops": peak, "fma_pct": 40.0}
    found = verdict_of(row, "compute_bound")
    assert (found["verdict"], found["expected_gain"]) == ("supported", 1.0)
    message = f"FMA pipe 40 %; {tflops / 7:.3g} % of the best arithmetic rate measured, which it beats"
    assert found["evidence"] == message
    assert "theoretical" not in " ".join(bwprof.diagnose(row)["evidence"])
    within = {**row, "tflops": 686.0, "flops": 686e9}
    evidence = verdict_of(within, "compute_bound")["evidence"]
    assert ("98 % of" in evidence, "beats" in evidence) == (True, False)


def test_a_rate_above_theory_is_a_contradiction() -> None:
    row = {**ROOFS, "time_ms": 1.0, "flops": 1100e9, "tflops": 1100.0, "peak_tflops": 1071.0}
    found = verdict_of(row, "compute_bound")
    assert found["verdict"] == "cannot tell"
    assert all(text in found["evidence"] for text in ("contradictory", "FLOPs", "157 %"))


def test_the_gain_of_arithmetic_is_what_the_nearer_roof_leaves() -> None:
    row = {**ROOFS, "time_ms": 1.0, "flops": 448e9, "tflops": 448.0, "fma_pct": 55.0}
    found = verdict_of({**row, "stall_reasons": "not_selected=50;wait=50"}, "compute_bound")
    assert found["verdict"] == "supported"
    assert found["expected_gain"] == pytest.approx(100 / 64)


def test_no_recorded_gain_is_more_than_the_arithmetic_leaves() -> None:
    data = bwprof.load_example("h200").query("case == 'prefill_attention_4k'")
    left = dict(zip(data["precision"], data["measured_tflops"] / data["tflops"], strict=True))
    assert left["fp32"] < 1 < left["fp16"], "one is faster than the library's best product, another is not"
    for _, row in data.iterrows():
        found = verdict_of(row, "compute_bound")
        assert found["verdict"] == "supported"
        assert found["expected_gain"] == pytest.approx(max(1.0, left[row["precision"]]))


@pytest.mark.parametrize("time_ms", [0.0, -1.0, math.inf, math.nan])
def test_a_missing_time_is_not_a_short_one(time_ms: float) -> None:
    assert verdict_of({**ROOFS, "time_ms": time_ms, "dram_pct": 90.0}, "launch_bound")["verdict"] == "cannot tell"


def test_a_short_kernel_at_the_memory_roof_is_not_called_a_launch() -> None:
    row = {"time_ms": 0.0024, "peak_gb_s": 4800.0, "dram_pct": 80.0}
    assert verdict_of(row, "launch_bound")["verdict"] == "cannot tell"
    assert verdict_of({**row, "dram_pct": 10.0}, "launch_bound")["verdict"] == "supported"


@pytest.mark.parametrize(
    ("waves", "verdict"),
    [
        (0.99, "refuted"),
        (0.8, "refuted"),
        (0.79, "supported"),
        (1.0, "refuted"),
        (1.05, "supported"),
        (4.01, "refuted"),
    ],
)
def test_a_grid_that_all_but_fills_the_device_is_not_too_small(waves: float, verdict: str) -> None:
    # 0.99 waves leave a hundredth empty; 1.05 leave 48 % of two rounds, 4.01 a fifth of five less a bit.
    assert verdict_of({"time_ms": 1.0, "waves": waves, "grid_blocks": 5000}, "small_grid")["verdict"] == verdict


def test_zero_waves_leave_the_grid_unknown() -> None:
    assert verdict_of({"time_ms": 1.0, "waves": 0.0}, "small_grid")["verdict"] == "cannot tell"


def test_streams_far_from_theory_are_not_called_few_bytes() -> None:
    # A CPU whose best stream reaches 40 % of theory, and a large copy at it.
    row = {"backend": "cpu", "time_ms": 1.0, "peak_gb_s": 50.0, "ceiling_gb_s": 20.0, "attainable_gb_s": 20.0}
    message = diagnose_rows({**row, "case": "copy", "pct_attainable": 95.0})[0].sentence
    assert "so few" not in message
    assert "only fewer bytes" in message
    small = diagnose_rows({**row, "case": "copy", "pct_attainable": 95.0, "attainable_gb_s": 5.0})[0].sentence
    assert all(text in small for text in ("25 % of", "the best stream", "so few"))


def test_a_hot_row_may_be_faster_than_a_stream() -> None:
    row = {**ROOFS, "cache": "hot", "time_ms": 0.01, "pct_attainable": 250.0, "load_efficiency_pct": 25.0}
    assert (verdict_of(row, "memory_bound")["verdict"], "cache" in verdict_of(row, "memory_bound")["evidence"]) == (
        "cannot tell",
        True,
    )
    assert verdict_of(row, "uncoalesced")["expected_gain"] == 4.0


def test_a_roof_of_zero_counts_as_missing() -> None:
    row = {"time_ms": 1.0, "pct_attainable": 50.0, "dram_pct": 50.0, "ceiling_gb_s": 0, "peak_gb_s": 4800.0}
    assert verdict_of(row, "memory_bound")["verdict"] == "cannot tell"


def test_an_incredible_gain_is_left_out() -> None:
    row = {"time_ms": 1.0, "local_bytes": 1e12, "l2_bytes": 1.0, "case": "x"}
    assert math.isnan(verdict_of(row, "spills")["expected_gain"])
    assert "times as fast" not in diagnose_rows(row)[0].sentence


def test_rows_of_amd_counters_are_not_sent_to_ncu() -> None:
    row = {"kernel": "subtract_kernel(float*)", "case": "x", "time_ms": 0.05, "SQ_WAVES": 16384.0, "scratch_size": 0.0}
    assert not bwprof.diagnose(row)["needs"].str.contains("ncu").any()
    assert suggest_commands(diagnose_rows(row)[0]) == []


def test_rows_in_a_list_may_be_series() -> None:
    data = bwprof.load_example("h200").head(2)
    rows = [row for _, row in data.iterrows()]
    assert [row.sentence for row in diagnose_rows(rows)] == [row.sentence for row in diagnose_rows(data)]


def test_stalls_of_a_frame_ask_for_a_row() -> None:
    with pytest.raises(TypeError, match="a row is needed"):
        bwprof.stall_table(pd.DataFrame({"stall_reasons": ["wait=1"]}))


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void at::native::(anonymous namespace)::Copy<float, unsigned int, 4>(float*)", "Copy"),
        ("void <unnamed>::softmax<float>(float*)", "softmax"),
        ("foo<int>::bar(int)", "bar"),
        ("std::enable_if<a, b>::type foo<int>()", "foo"),
        ("unsigned int f<2>(int)", "f"),
        ("void f<at::g<h<float> >(T&, float const&)::{lambda(int)#1}>(int, float)", "f"),
        ("void f(int) [clone .kd]", "f"),
        ("sm90_gemm_128x64_nn", "sm90_gemm_128x64_nn"),
        ("$(reboot)", None),
        ("--flag", None),
        ("regex:a", None),
        ("operator+(a)", None),
    ],
)
def test_ncu_gets_the_base_name_of_a_kernel(kernel: str, name: str | None) -> None:
    command = suggest_commands(diagnose_rows({"kernel": kernel, "time_ms": 1.0})[0])[0].command.split()
    arguments = command[command.index("--kernel-name") + 1] if "--kernel-name" in command else None
    assert arguments == name


@pytest.mark.parametrize("size", ["abc", math.inf, 2.5])
def test_sizes_that_no_sweep_can_measure_make_no_command(size: object) -> None:
    row = {"operation": "gemm", "M": size, "N": 4, "K": 4, "time_ms": 1.0, "timer": "cuda_event"}
    assert not any("-p" in step.command.split() for step in suggest_commands(diagnose_rows(row)[0]))


def test_true_is_refused_as_a_size() -> None:
    row = {"operation": "attention_prefill", "causal": True, "time_ms": 1.0, "timer": "cuda_event"}
    assert "causal=1" in suggest_commands(diagnose_rows(row)[0])[0].command


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_bound_is_not_below_what_the_better_variant_reached(precision: str) -> None:
    data = bwprof.load_example("h200")
    rows = data[(data["case"] == "prefill_attention") & (data["precision"] == precision)].set_index("variant")
    found = verdict_of({**rows.loc["unfused"].to_dict(), "variant": "unfused"}, "materialized")
    assert found["expected_gain"] >= rows["time_ms"]["unfused"] / rows["time_ms"]["flash"]


def test_an_impossible_share_is_named() -> None:
    row = {
        "backend": "cpu",
        "case": "copy",
        "time_ms": 1.0,
        "pct_attainable": 190.0,
        "bytes_read": 1,
        "bytes_written": 1,
    }
    assert all(text in diagnose_rows(row)[0].sentence for text in ("copy: at 190 %", "which cannot be;"))
