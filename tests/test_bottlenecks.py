"""Bottlenecks, strengths, and two precisions side by side."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from rows import pair, row

import bwprof
from bwprof.analysis.bandwidth import utilization_table
from bwprof.analysis.bottleneck import bottlenecks, rank_losses, strengths
from bwprof.analysis.gains import explain_equal_bandwidth, improvement_table
from bwprof.analysis.rules import find_rule
from bwprof.results import frame


def slow(case: str, time_ms: float, percent: float, **more: Any) -> dict[str, Any]:
    """Make a memory-limited row at a percentage of its stream."""
    rest = {"bandwidth_gb_s": 10.0 * percent, "attainable_gb_s": 1000.0, "flops": 0, "bound": "memory", "cache": "cold"}
    return {"case": case, "precision": "fp16", "status": "ok", "time_ms": time_ms, **rest, **more}


def won(data: pd.DataFrame) -> list[list[str]]:
    """Return the lost time and the whole time of each line."""
    return [gain.removeprefix("up to ").split(" of ") for gain in bottlenecks(data)["Expected gain"]]


def test_rows_that_lose_most_time_in_order_of_priority() -> None:
    """a loses 0.6 of 1 ms, b 2 of 10 ms, c 0.45 of 0.5 ms, d too little. Priority 1 comes first."""
    data = pd.DataFrame([slow("a", 1.0, 40), slow("b", 10.0, 80), slow("c", 0.5, 10), slow("d", 100.0, 95.5)])
    found = bottlenecks(data)
    assert found.columns.tolist() == ["Priority", "Kernel", "Issue", "Impact", "Fix", "Expected gain", "Evidence"]
    assert found[["Priority", "Kernel", "Impact"]].values.tolist() == [
        ["1 (HIGH)", "a fp16", "2.5x bandwidth loss"],
        ["1 (HIGH)", "c fp16", "10x bandwidth loss"],
        ["2 (MED)", "b fp16", "20% bandwidth loss"],
    ]
    assert won(data) == [["600 us", "1 ms"], ["450 us", "500 us"], ["2 ms", "10 ms"]]
    assert bottlenecks(data, top=2)["Kernel"].tolist() == ["a fp16", "b fp16"]
    assert bottlenecks(data, top=1)["Kernel"].tolist() == ["b fp16"]
    assert bottlenecks(data, top=None)["Kernel"].tolist() == bottlenecks(data, top=99)["Kernel"].tolist()


@pytest.mark.parametrize(
    ("percent", "priority"),
    [(50.0, "1 (HIGH)"), (50.1, "2 (MED)"), (80.0, "2 (MED)"), (80.1, "3 (LOW)"), (95.0, "3 (LOW)"), (95.1, None)],
)
def test_priorities(percent: float, priority: str | None) -> None:
    assert bottlenecks(slow("a", 1.0, percent))["Priority"].tolist() == ([priority] if priority else [])


def test_launches_count() -> None:
    """32 launches of 0.1 ms lose more than one of 2 ms; the step takes 5.2 ms for 8 sequences."""
    model = {"model": "m", "phase": "decode", "step_batch": 8, "context": 100}
    rows = [slow("often", 0.1, 50, count=32, **model), slow("once", 2.0, 50, count=1, **model)]
    found = bottlenecks(pd.DataFrame(rows))
    assert found["Kernel"].tolist() == ["often fp16", "once fp16"]
    assert won(pd.DataFrame(rows)) == [
        ["1.6 ms", f"the step's 5.2 ms: {8000 / 5.2:.0f} to {8000 / 3.6:.0f} tokens/s"],
        ["1 ms", f"the step's 5.2 ms: {8000 / 5.2:.0f} to {8000 / 4.2:.0f} tokens/s"],
    ]


def test_steps_are_separate() -> None:
    """Two batches of a model, and a prefill, which makes a token for each of its context."""
    rows = [
        slow("a", 1.0, 50, count=2, model="m", phase="decode", step_batch=1, context=100),
        slow("a", 4.0, 50, count=1, model="m", phase="decode", step_batch=16, context=100),
        slow("a", 3.0, 50, count=1, model="m", phase="prefill", step_batch=2, context=100),
    ]
    found = {one.step_ms: (one.tokens_s, one.tokens_s_then) for one in rank_losses(pd.DataFrame(rows))}
    assert found == {
        2.0: pytest.approx((500.0, 1000.0)),
        4.0: pytest.approx((4000.0, 8000.0)),
        3.0: pytest.approx((2e5 / 3, 4e5 / 3)),
    }


def test_a_step_with_a_gap_has_no_tokens() -> None:
    rows = [slow("a", 1.0, 50, count=2), slow("b", None, 50, count=1) | {"bandwidth_gb_s": None}]  # type: ignore[arg-type]
    (found,) = rank_losses(pd.DataFrame(rows))
    ((lost, whole),) = won(pd.DataFrame(rows))
    assert (lost, whole.split()[:2], "2 launches" in whole) == ("1 ms", ["2", "ms"], True)
    assert math.isnan(found.tokens_s)


def test_a_row_with_count_zero_does_not_affect_its_step() -> None:
    """A layer that runs as one graph has count 0 beside its parts, with a time or without."""
    beside = slow("layer", None, 50, count=0) | {"bandwidth_gb_s": None}  # type: ignore[arg-type]
    for layer in (beside, slow("layer", 3.0, 50, count=0)):
        (found,) = rank_losses(pd.DataFrame([slow("a", 1.0, 50, count=2), layer]))
        assert (found.label, found.step_ms, found.tokens_s_then) == ("a fp16", 2.0, pytest.approx(1000.0))


def test_causes_in_order_and_doubts_first() -> None:
    counted = {"load_efficiency": 25.0, "traffic_ratio": 2.0, "occupancy_pct": 30.0}
    (found,) = rank_losses(pd.DataFrame([slow("a", 1.0, 40, flags="noisy", **counted)]))
    assert [rule.id for rule, _ in found.rules] == ["noisy", "uncoalesced", "extra_traffic", "low_occupancy"]
    uncoalesced, noisy = find_rule("uncoalesced"), find_rule("noisy")
    assert found.issue.split("; ") == [noisy.issue, uncoalesced.issue]
    assert found.fix.split("; ") == [*noisy.fixes, *uncoalesced.fixes]
    reached, limiter, flag, load, traffic, occupancy = found.evidence.split("; ")
    assert (reached[:4], limiter, flag) == ("40 %", "limiter kernel", "flag noisy")
    assert (load, traffic[:5], occupancy) == ("load efficiency 25 %", "2.00x", "occupancy 30 %")


def test_an_unknown_cause_names_the_options_that_find_it() -> None:
    (found,) = rank_losses(pd.DataFrame([slow("a", 1.0, 60)]))
    assert (found.causes, "not measured" in found.issue) == ([], True)
    assert "--counters --metrics all" in found.fix
    (found,) = rank_losses(pd.DataFrame([slow("a", 1.0, 60, backend="cpu")]))
    on_cpu = found.fix
    assert "CPU" in on_cpu
    (found,) = rank_losses(pd.DataFrame([slow("a", 1.0, 10, backend="cpu")]))
    assert ([rule.id for rule in found.causes], found.fix) == (["slower_than_predicted"], on_cpu)


def test_fixes_for_a_cpu_exclude_those_for_gpus() -> None:
    right = {"flops": 10**9, "tflops": 0.6, "measured_tflops": 1.0, "peak_tflops": 1.0, "bandwidth_gb_s": 1.0}
    rows = [slow("a", 1.0, 60, backend=backend, **right, bound="compute") for backend in ("cpu", "cuda")]
    found = {one.on_host: one.fix for one in rank_losses(frame.from_rows(rows))}
    assert found == {True: "more ILP", False: "; ".join(find_rule("compute").fixes)}


def test_arithmetic_is_compared_with_its_own_roof() -> None:
    """One row reaches 600 of 1000 TFLOP/s and 3 % of a stream; the others are far below both roofs."""
    near = slow("near", 1.0, 3, flops=6 * 10**11, tflops=600.0, peak_tflops=1000.0, bound="compute")
    far = slow("far", 1.0, 20, flops=3 * 10**11, tflops=300.0, peak_tflops=1000.0, bound="compute")
    nearer_memory = slow("nearer", 1.0, 40, flops=3 * 10**11, tflops=300.0, peak_tflops=1000.0, bound="compute")
    found = {one.label: one for one in rank_losses(pd.DataFrame([near, far, nearer_memory]))}
    assert (found["near fp16"].impact, found["near fp16"].issue) == ("40% arithmetic rate loss", "arithmetic limits")
    assert found["far fp16"].impact == "3.3x arithmetic rate loss"
    sides = {label: (one.side, one.limiter, one.evidence.split()[0]) for label, one in found.items()}
    assert (sides["far fp16"], sides["nearer fp16"][::2]) == (("compute", "kernel", "30"), ("memory", "40"))


def test_rows_without_a_roof_or_a_time_are_left_out() -> None:
    data = pd.DataFrame(
        [
            slow("ok", 1.0, 50),
            slow("failed", 1.0, 50, status="failed"),
            slow("skipped", 1.0, 50, status="skipped"),
            slow("zero", 0.0, 50),
            slow("none", math.nan, 50),
            slow("no roof", 1.0, 50, attainable_gb_s=None),
            slow("hot", 1.0, 50, cache="hot"),
        ]
    )
    assert bottlenecks(data, top=None)["Kernel"].tolist() == ["ok fp16"]


@pytest.mark.parametrize("data", [pd.DataFrame(), pd.DataFrame(columns=["time_ms", "count"]), [], {"case": "a"}])
def test_empty_data_give_empty_tables(data: Any) -> None:
    assert bottlenecks(data).empty
    assert strengths(data).empty


@pytest.mark.parametrize("top", [0, -1, 1.5, "3", True])
def test_top_is_a_whole_number(top: Any) -> None:
    with pytest.raises(ValueError, match=r"^top is .* None"):
        bottlenecks(pd.DataFrame(), top=top)


def test_a_repeated_index_changes_nothing() -> None:
    """`pandas.concat` keeps the index of its parts."""
    data = pd.concat([pd.DataFrame([slow("a", 1.0, 40)]), pd.DataFrame([slow("b", 2.0, 40)])])
    assert bottlenecks(data)["Kernel"].tolist() == ["b fp16", "a fp16"]
    assert len(bwprof.BandwidthAnalysis.from_frame(data)) == 2


def test_labels_name_formats_that_tell_rows_apart() -> None:
    """Steps with FP16 and Q4_0 weights share the shape of attention."""
    rows = [
        slow("attention", time_ms, 40, weights=weights, kv=kv, count=2, step_batch=1, context=16, model="toy")
        for time_ms, weights, kv in ((4.0, "fp16", "fp16"), (3.0, "q4_0", "fp16"), (2.0, "q4_0", "int8"))
    ]
    assert bottlenecks(pd.DataFrame(rows))["Kernel"].str.partition(" (")[2].tolist() == [
        "weights fp16, cache fp16)",
        "weights q4_0, cache fp16)",
        "weights q4_0, cache int8)",
    ]
    assert bottlenecks(pd.DataFrame(rows[:2]))["Kernel"].tolist() == [
        "attention fp16 (weights fp16)",
        "attention fp16 (weights q4_0)",
    ]
    hot = pd.DataFrame(rows[1:]).assign(cache="hot", peak_gb_s=1000.0)
    assert utilization_table(hot)["Kernel"].str.partition(" (")[2].tolist() == ["cache fp16, hot)", "cache int8, hot)"]
    assert bottlenecks(rows[0])["Kernel"].tolist() == ["attention fp16"], "there is no other"


@pytest.mark.parametrize("name", ["h100_llama", "h200_llama"])
def test_bottlenecks_of_a_model_have_unique_names(name: str) -> None:
    assert bottlenecks(bwprof.load_example(name), top=None)["Kernel"].is_unique


def test_a_mixed_frame_of_two_devices_and_of_predicted_rows() -> None:
    rows = [
        slow("a", 1.0, 40, device="one"),
        slow("a", 2.0, 40, device="another"),
        slow("a", 4.0, 40, device="another", status="predicted"),
    ]
    assert won(pd.DataFrame(rows)) == [["2.4 ms", "4 ms"], ["1.2 ms", "2 ms"], ["600 us", "1 ms"]]


# ---- strengths ----


def test_strengths() -> None:
    counted = {"algorithmic_bytes_read": 100, "algorithmic_bytes_written": 0, "bytes_read": 100, "bytes_written": 0}
    rows = [
        slow("roof", 1.0, 90),
        slow("below", 1.0, 89.9),
        slow("exact", 1.0, 50, traffic_ratio=1.02, **counted),
        slow("more", 1.0, 50, traffic_ratio=1.021, **counted),
        slow("stored", 1.0, 50, traffic_ratio=0.3, **(counted | {"algorithmic_bytes_read": 1500})),
        slow("both", 1.0, 99, traffic_ratio=1.0),
        slow("doubted", 1.0, 120, flags="above_attainable"),
        slow("compute", 1.0, 3, flops=95 * 10**10, tflops=950.0, peak_tflops=1000.0, bound="compute"),
    ]
    memory, exact, compute = "at the memory roof", "no extra traffic", "at the arithmetic roof"
    found = strengths(pd.DataFrame(rows))
    assert found["Kernel"].tolist() == ["roof fp16", "exact fp16", "both fp16", "compute fp16"]
    assert found["Strength"].str.split("; ").tolist() == [[memory], [exact], [memory, exact], [compute]]
    assert found["Evidence"].str.findall(r"[\d.]+").tolist() == [["90"], ["1.02"], ["99", "1.00"], ["95"]]


# ---- two precisions ----

HEADER = ["Operation", "FP32 (GB/s)", "FP16 (GB/s)", "Improvement", "Bytes ratio", "Time speed-up"]


def test_improvement_of_an_h200() -> None:
    """1 x 896 x 896: 1079 and 662 GB/s of half the bytes: 0.61x, and 1.23x in time; 1 x 14336 x 4096: 0.88x, 1.75x."""
    rows = [
        row("small", "fp32", bytes_read=3214848, time_ms=0.00298333, bytes_written=3584, gb_s=1078.8),
        row("small", "fp16", bytes_read=1607424, time_ms=0.00243265, bytes_written=1792, gb_s=661.509),
        row("large", "fp32", bytes_read=234897408, bytes_written=57344, gb_s=4279.0, time_ms=234954752 / 4279e6),
        row("large", "fp16", bytes_read=117448704, bytes_written=28672, gb_s=3747.0, time_ms=117477376 / 3747e6),
        row("alone", "fp32"),
    ]
    found = improvement_table(frame.from_rows(rows))
    assert found.columns.tolist() == HEADER
    assert found.values.tolist() == [
        ["small", "1079", "662", "0.61x", "2.00x", "1.23x"],
        ["large", "4279", "3747", "0.88x", "2.00x", "1.75x"],
    ]


def test_classic_columns_are_enough() -> None:
    names = ["operation", "precision", "M", "N", "K", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"]
    rows = [["a", "FP32", 1, 2, 3, 2.0, 1.0, 2000000, 0], ["a", "fp16", 1, 2, 3, 1.0, 1.0, 1000000, 0]]
    assert improvement_table(pd.DataFrame(rows, columns=names)).values.tolist() == [
        ["a", "1.00", "1.00", "1.00x", "2.00x", "2.00x"]
    ]
    assert bottlenecks(pd.DataFrame(rows, columns=names)).empty


def test_steps_keep_their_activations() -> None:
    """A BF16 product does not stand for what fewer bits bring beside FP16; without FP16 it does."""
    times = {"fp16": 2.0, "bf16": 1.9, "int4_g128": 1.0, "int4_g128_bf16": 0.5}
    rows = [row("a", name, time_ms=time, bytes_read=1000, bytes_written=0) for name, time in times.items()]
    assert improvement_table(frame.from_rows(rows))["Operation"].tolist() == ["a fp16->int4_g128"]
    assert improvement_table(frame.from_rows(rows[1::2]))["Operation"].tolist() == ["a bf16->int4_g128_bf16"]


def test_variants_tell_cases_apart() -> None:
    rows = [*pair("a", 100.0, 50.0, variant="unfused"), *pair("a", 100.0, 100.0, variant="flash")]
    found = improvement_table(frame.from_rows(rows))
    assert found["Operation"].tolist() == ["a unfused", "a flash"]
    assert found["Time speed-up"].tolist() == ["1.00x", "2.00x"]


def test_steps_to_fewer_bits() -> None:
    """FP32, FP16, then the fastest of 8 and of 4 bits: 2 x 0.8, 2 x 0.9 and 2 x 0.4 in time, the last one a loss."""
    rows = [*pair("a", 100.0, 80.0), row("a", "tf32", gb_s=400.0), row("alone", "int8")]
    rows += [row("a", "int8_w8a16", gb_s=72.0, bytes_read=2000), row("a", "fp8_e4m3", gb_s=60.0, bytes_read=2000)]
    rows += [row("a", "mxfp4", gb_s=20.0, bytes_read=1000), row("a", "q4_0", gb_s=28.8, bytes_read=1000)]
    found = improvement_table(frame.from_rows(rows))
    assert found.columns.tolist() == ["Operation", "Before (GB/s)", "After (GB/s)", *HEADER[3:]]
    assert found.values.tolist() == [
        ["a fp32->fp16", "100", "80.0", "0.80x", "2.00x", "1.60x"],
        ["a fp16->int8_w8a16", "80.0", "72.0", "0.90x", "2.00x", "1.80x"],
        ["a int8_w8a16->q4_0", "72.0", "28.8", "0.40x", "2.00x", "0.80x"],
    ]
    assert improvement_table(frame.from_rows(rows), to="fp8")["Time speed-up"].tolist() == ["2.40x"]
    assert improvement_table(frame.from_rows(rows), to="FP32").columns.tolist()[2] == "FP32 (GB/s)"


def test_equal_bandwidth_at_the_roof_is_explained() -> None:
    roof = {"attainable_gb_s": 1000.0}
    at_roof = frame.from_rows([*pair("a", 990.0, 980.0, **roof), *pair("b", 500.0, 490.0, **roof)])
    assert explain_equal_bandwidth(at_roof).endswith("takes less time (a).")
    assert explain_equal_bandwidth(at_roof[at_roof["case"] == "b"]) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"to": "fp61"}, "'fp61'.*'fp16'"),
        ({"from_": "x"}, "unknown precision 'x'"),
        ({"from_": "fp16", "to": "half"}, "to is 'fp16', as from_ is"),
    ],
)
def test_wrong_pairs_of_precisions_are_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        improvement_table(frame.from_rows([]), **arguments)
