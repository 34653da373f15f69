"""The speed-up of a narrower precision by each case's limiter."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rows import row

import bwprof
from bwprof.analysis.gains import summarize_speedup
from bwprof.llm import figures
from bwprof.results import frame
from bwprof.roofs.model import RoofPoint, Roofs

# 1 x 4096 x 4096 in FP16: 2 x (16 777 216 + 4096) bytes read, 8192 written; in FP8 with a scale of four bytes for each
# row of both operands: 16 777 216 + 4096 + 4 x 4097 read, 8192 written.
WIDE = (2 * (4096 * 4096 + 4096), 2 * 4096)
NARROW = 4096 * 4096 + 4096 + 4 * 4097 + 2 * 4096
RATIO = sum(WIDE) / NARROW
FLOPS = 2 * 4096 * 4096


def case(
    name: str = "a", *, gb_s: float = 4000.0, of: float = 4200.0, precision: str = "fp16", **more: Any
) -> dict[str, Any]:
    """Make a product, which memory limits by default."""
    read, written = WIDE
    time_ms = (read + written) / gb_s / 1e6
    rest = {"M": 1, "N": 4096, "K": 4096, "attainable_gb_s": of, "flops": FLOPS, "tflops": FLOPS / time_ms / 1e9}
    rest |= {"peak_tflops": 1000.0, "timestamp": name, "bound": "memory", "backend": "cuda"}
    return row(name, precision, gb_s=gb_s, bytes_read=read, bytes_written=written, time_ms=time_ms, **(rest | more))


def bought(*rows: dict[str, Any], from_: str = "fp16", to: str = "fp8_e4m3") -> dict[str, Any]:
    """Return the speed-up of the first row."""
    return dict(bwprof.speedup(frame.from_rows(rows), from_, to).iloc[0])


def test_bytes_by_the_rows_own_parameters() -> None:
    assert bwprof.cost("gemm", precision="fp8_e4m3", M=1, N=4096, K=4096).bytes == NARROW
    found = bought(case())
    assert found["byte_ratio"] == pytest.approx(RATIO)
    assert (found["efficiency_ratio"], found["efficiency_source"]) == (1.0, "assumed: 1")
    assert found["speedup"] == pytest.approx(RATIO)
    assert found["time_ms_then"] == pytest.approx(found["time_ms"] / RATIO)
    assert (found["limiter"], found["status"], found["count"]) == ("memory", "predicted", 1.0)


def test_lengths_of_a_batch_count() -> None:
    sizes = {"batch": 2, "num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
    now, then = (
        bwprof.cost("attention_decode", precision=precision, kv_lens=[100, 200], **sizes)
        for precision in ("fp16", "int8")
    )
    dims = dict.fromkeys(("M", "N", "K", "beta"))
    arguments = case(operation="attention_decode", kv_lens="100;200", kv_len=200, **sizes, **dims)
    found = bought(arguments | {"bytes_read": now.bytes_read, "bytes_written": now.bytes_written}, to="int8")
    assert found["byte_ratio"] == pytest.approx(now.bytes / then.bytes)


@pytest.mark.parametrize(
    ("changes", "limiter"),
    [
        ({"tflops": 970.0, "flops": 10**13}, "compute"),
        ({"timer_floor_us": 100.0}, "latency"),
        ({"of": 9000.0}, "kernel"),
    ],
)
def test_no_gain_where_bytes_do_not_limit(changes: dict[str, Any], limiter: str) -> None:
    found = bought(case(**changes))
    assert (found["limiter"], found["speedup"]) == (limiter, 1.0)
    assert found["time_ms_then"] == found["time_ms"]
    assert "promise nothing" in found["reason"]


@pytest.mark.parametrize(
    ("changes", "gains"),
    [
        ({}, True),
        ({"limiter": "memory", "bound": "compute"}, True),  # right of the ridge, but nearer to what so few bytes reach
        ({"limiter": "kernel"}, False),
        ({"limiter": "latency"}, False),
        ({"limiter": None, "bound": "latency", "attainable_gb_s": None, "peak_tflops": None}, False),
        ({"limiter": None, "of": 9000.0}, False),  # below half of its roof, though no column says so
        ({"limiter": None, "tflops": 970.0, "flops": 10**13}, False),
    ],
)
def test_a_models_step_agrees_with_speedup(changes: dict[str, Any], gains: bool) -> None:
    """A model's tables and `speedup` use one rule."""
    found = case(**changes)
    assert (bought(found)["speedup"] > 1) == gains
    assert (figures.gain(found, 2.0, 1.0) < 1) == gains
    assert figures.gain(found, 1.0, 2.0) == 2.0, "a wider one takes longer anyway"


def test_arithmetic_and_launch_bound_the_time() -> None:
    """8.39 us now; half the bytes would take 4.2 us, the arithmetic 6, three launches 7.5."""
    now = case()["time_ms"]
    arithmetic = bought(case(flops=6 * 10**9, tflops=6 * 10**9 / now / 1e9, peak_tflops=1000.0))
    assert arithmetic["time_ms_then"] == pytest.approx(0.006)
    assert arithmetic["reason"] == "arithmetic limits then"
    launching = bought(case(timer_floor_us=2.5))
    assert launching["time_ms_then"] == pytest.approx(0.0075)
    assert launching["reason"] == "launch latency limits then"


def test_the_narrower_precisions_own_rate_counts() -> None:
    """Twice the arithmetic rate in a row of another case: 6 us become 3."""
    now = case()["time_ms"]
    other = case("other", precision="fp8_e4m3", peak_tflops=2000.0, measured_tflops=None)
    found = bought(case(flops=6 * 10**9, tflops=6 * 10**9 / now / 1e9), other)
    assert found["speedup"] == pytest.approx(RATIO)


def test_a_measured_pair_gives_its_own_ratios() -> None:
    narrow = {**case(precision="fp8_e4m3", gb_s=3000.0), "bytes_read": NARROW - 8192}
    narrow["time_ms"] = NARROW / 3000e6
    found = bought(case(), narrow)
    assert (found["status"], found["efficiency_source"]) == ("ok", "measured")
    assert found["efficiency_ratio"] == pytest.approx(0.75)
    assert found["speedup"] == pytest.approx(0.75 * RATIO)


def test_a_predicted_pair_is_marked_as_predicted() -> None:
    """A predicted pair does not change the efficiency of other rows."""
    narrow = {**case("b", precision="fp8_e4m3", gb_s=3000.0), "bytes_read": NARROW - 8192, "status": "predicted"}
    narrow["time_ms"] = NARROW / 3000e6
    found = bought(case("b"), narrow)
    assert (found["status"], found["efficiency_source"]) == ("predicted", "predicted")
    assert bought(case("a"), case("b"), narrow)["efficiency_source"] == "assumed: 1"


def test_pairs_of_other_cases_give_the_efficiency() -> None:
    """One pair of another shape reaches 90 % of its stream in FP8 where FP16 reached 95.2 %."""
    narrow = case("b", precision="fp8_e4m3", gb_s=3780.0)
    found = bought(case("a"), case("b"), narrow)
    assert "1 measured pair" in found["efficiency_source"]
    assert found["efficiency_ratio"] == pytest.approx(0.945)
    other = bought(case("a", operation="stream_read"), case("b"), narrow)
    assert other["efficiency_source"] is not None
    assert math.isnan(other["speedup"])
    assert "has no precision 'fp8_e4m3'" in other["reason"]


def test_pairs_of_a_variant_give_its_efficiency() -> None:
    """`flash` loses a quarter of its bandwidth in FP8, `unfused` half; `other` gets the median of both."""
    pairs = [
        case(name, precision=precision, gb_s=speed, variant=name)
        for name, narrow in (("flash", 3000.0), ("unfused", 2000.0))
        for precision, speed in (("fp16", 4000.0), ("fp8_e4m3", narrow))
    ]
    found = [bought(case("a", variant=name), *pairs)["efficiency_ratio"] for name in ("flash", "unfused", "other")]
    assert found == pytest.approx([0.75, 0.5, 0.625])


def test_fewer_bytes_reach_less_bandwidth() -> None:
    """The curve of the run's roofs: half the bytes take 0.6 of the time."""
    sizes = ((RATIO, sum(WIDE), 1.0), (1.0, NARROW, 0.6))
    points = tuple(
        RoofPoint(stream, fraction, size, share * 1e-5)
        for stream, fraction in (("read", 1.0), ("write", 0.0))
        for _, size, share in sizes
    )
    roofs = Roofs("Test CPU", "", "", "", 1e-7, points)
    data = frame.from_rows([case(of=sum(WIDE) / 1e4)], {"roofs": roofs.to_dict()})
    found = bwprof.speedup(data).iloc[0]
    assert found["speedup"] == pytest.approx(1 / 0.6, rel=2e-3)
    assert found["efficiency_source"].endswith("0.83x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operation": "my_kernel"}, "unknown operation 'my_kernel'"),
        ({"bytes_read": None, "bytes_written": None}, "its bytes are not known"),
        ({"attainable_gb_s": None}, "what limits it is not known"),
    ],
)
def test_an_unknown_speedup_has_a_reason(changes: dict[str, Any], message: str) -> None:
    found = bought({**case(), **changes})
    assert math.isnan(found["speedup"])
    assert message in found["reason"]


@pytest.mark.parametrize(
    ("from_", "to", "message"),
    [
        ("fp17", "fp8_e4m3", "unknown precision 'fp17'"),
        ("fp16", "fp9", "unknown precision 'fp9'"),
        ("fp16", "FP16", "to is 'fp16', as from_ is"),
        ("bf16", "fp8_e4m3", "from_ is 'bf16', and no row with a time has it: there are fp16"),
    ],
)
def test_wrong_precisions_are_refused(from_: str, to: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bwprof.speedup(frame.from_rows([case()]), from_, to)


def test_no_rows() -> None:
    assert bwprof.speedup(frame.from_rows([])).empty
    assert bwprof.speedup(frame.from_rows([{**case(), "status": "failed", "time_ms": None}])).empty
    with pytest.raises(TypeError, match="frame is 3"):
        bwprof.speedup(3)  # type: ignore[arg-type]


# ---- in a line ----


def facts(*rows: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the source and limiters that the line names, and the numbers in each of its parts."""
    line = summarize_speedup(frame.from_rows(rows)).removeprefix("fp8_e4m3 instead of fp16: ")
    parts = {re.sub(r"[^a-z ].*", "", part).strip() or "faster": part for part in line.split("; ")}
    numbers = {name: " ".join(re.findall(r"[\d.]*\d", part)) for name, part in parts.items()}
    return re.findall(r"measured|predicted|own kernel|memory", line), numbers


def test_a_line_for_many_cases() -> None:
    rows = [case("a"), case("b", of=9000.0), case("c", operation="stream_read")]
    assert facts(*rows) == (["predicted", "own kernel"], {"faster": "2.00 1 2", "no gain in": "1 1"})
    assert facts(rows[1]) == (["own kernel"], {"no gain in": "1 1 1"})
    assert facts(rows[2])[1].keys() == {"not known"}


def test_a_line_separates_slower_from_no_gain() -> None:
    """Measured in both precisions: 0.78 times as fast is slower, not "no gain"."""

    def both(name: str, gain: float) -> list[dict[str, Any]]:
        wide = case(name, timestamp="t")
        then = {"bytes_read": NARROW - 8192, "bytes_written": 8192, "time_ms": wide["time_ms"] / gain}
        return [wide, {**wide, "precision": "fp8_e4m3", **then, "bandwidth_gb_s": NARROW / then["time_ms"] / 1e6}]

    quick, same, slow, slower = both("a", 1.5), both("b", 1.0), both("c", 0.78), both("d", 0.5)
    numbers = {"faster": "1.50 1 3", "no gain in": "1 1", "slower in": "1 0.78"}
    assert facts(*quick, *same, *slow) == (["measured", "memory"], numbers)
    assert facts(*quick, *slow, *slower) == (["measured"], {"faster": "1.50 1 3", "slower in": "2 0.50 0.78"})
    assert facts(*slow) == ([], {"no gain in": "1 1", "slower in": "1 0.78"})


def test_a_line_counts_unknown_cases() -> None:
    """A case without a known limit counts neither as a gain nor as none."""
    without = {**case("d"), "attainable_gb_s": None, "ceiling_gb_s": None}
    rows = [without, {**without, "case": "e"}, case("b", of=9000.0)]
    assert facts(*rows) == (["own kernel"], {"no gain in": "1 3 1", "not known in": "2"})
    numbers = {"faster": "2.00 1 4", "no gain in": "1 1", "not known in": "2"}
    assert facts(case("a"), *rows) == (["predicted", "own kernel"], numbers)


def test_a_line_for_a_models_step() -> None:
    """32 launches whose bytes halve, and one of 1 ms that stays."""
    step = {"model": "m", "phase": "decode", "step_batch": 1, "context": 10, "kv": "fp16"}
    rows = [{**case("a"), "count": 32, **step}, {**case("b", of=9000.0), "time_ms": 1.0, "count": 1, **step}]
    now = 32 * rows[0]["time_ms"] + 1
    then = 32 * rows[0]["time_ms"] / RATIO + 1
    layer = {**case("layer"), "count": 0, "status": "skipped", "time_ms": None, **step}
    message = (
        f"fp8_e4m3 instead of fp16 (weights and cache): a step takes {then:.3g} ms instead of {now:.3g} ms, "
        f"{now / then:.2f} times as fast (predicted, if its kernels are as efficient)"
    )
    for beside in ([], [layer]):
        assert summarize_speedup(frame.from_rows([*rows, *beside])) == message


def test_any_frame() -> None:
    """Classic columns of a foreign operation, measured in both precisions."""
    names = ["operation", "precision", "M", "N", "K", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"]
    rows = [["a", "FP32", 1, 2, 3, 2.0, 1.0, 2000000, 0], ["a", "fp16", 1, 2, 3, 1.0, 1.0, 1000000, 0]]
    found = bwprof.speedup(pd.DataFrame(rows, columns=names), "fp32", "fp16").iloc[0]
    assert (found["speedup"], found["efficiency_source"]) == (2.0, "measured")


def test_two_variants_make_no_pair(tmp_path: Path) -> None:
    """In each precision another variant failed, so the remaining rows are of two kernels."""
    made = [
        row("prefill", precision, variant=variant, time_ms=time_ms, status=status)
        for precision, variant, time_ms, status in (
            ("fp32", "unfused", 4.0, "ok"),
            ("fp16", "unfused", 2.0, "failed"),
            ("fp32", "flash", 2.0, "failed"),
            ("fp16", "flash", 0.5, "ok"),
        )
    ]
    assert bwprof.analysis.improvement_table(frame.from_rows(made)).empty
    bwprof.save(frame.from_rows(made), tmp_path / "nine.csv", classic=True)
    names = [line.split(",")[0] for line in (tmp_path / "nine.csv").read_text().splitlines()[1:]]
    assert names == ["prefill unfused", "prefill flash"]


def test_a_pair_is_named_beside_a_variant_without_one() -> None:
    made = [row("prefill", precision, variant="unfused") for precision in ("fp32", "fp16")]
    made.append(row("prefill", "fp32", variant="flash"))
    assert bwprof.analysis.improvement_table(frame.from_rows(made))["Operation"].tolist() == ["prefill unfused"]
