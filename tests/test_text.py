"""What numbers, sizes, names and ranges become as text, and what typed text becomes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from bwprof import registry
from bwprof.results import csv_file, pairs, schema
from bwprof.text import formatting, parsing

CASES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = [
    (formatting.format_figure, (123.4,), {"whole_from": 100}, "123"),
    (formatting.format_figure, (12.34,), {"whole_from": 100}, "12.3"),
    (formatting.format_figure, (1.234,), {"whole_from": 100}, "1.23"),
    (formatting.format_figure, (0.01234,), {"whole_from": 100}, "0.012"),
    (formatting.format_short, (12345.678, ".2f"), {}, "12345.68"),
    (formatting.format_short, (1e300, ".2f"), {}, "1e+300"),
    (formatting.format_gain, (1.004,), {}, "0 %"),
    (formatting.format_gain, (0.8,), {}, "-20 %"),
    (formatting.format_gain, (0.5,), {}, "-50 %"),
    (formatting.format_gain, (1.65,), {}, "+65 %"),
    (formatting.format_gain, (1.996,), {}, "2.00x"),
    (formatting.format_gain, (12.345,), {}, "12.35x"),
    (formatting.format_gain, (0.0149,), {}, "0.015x"),
    (formatting.plural, (1, "case"), {}, "1 case"),
    (formatting.plural, (63, "case"), {}, "63 cases"),
    (formatting.format_bytes, (268435456,), {}, "256 MiB"),
    (formatting.format_bytes, (1500,), {}, "1.46 KiB"),
    (formatting.format_bytes, (1050453760,), {}, "1002 MiB"),
    (formatting.format_path, ("results/run 1",), {}, "results/run 1"),
    (formatting.format_path, ("r\udce9sultats",), {}, "$'r\\351sultats'"),
    (parsing.escape_controls, ("a\x1b[31mb",), {}, "a\\x1b[31mb"),
    (parsing.join_words, (["a", "b", "c"],), {}, "a, b and c"),
    (parsing.join_words, (["a"],), {}, "a"),
    (parsing.parse_count, ("4Ki", "kv_len"), {}, 4096),
    (parsing.parse_int, ("4Ki", "kv_len"), {}, 4096),
    (formatting.format_short, (123456789012.0, ".0f"), {}, "123456789012"),
    (parsing.parse_bytes, (2**63 - 1, "bytes_read"), {}, 2**63 - 1),
    (parsing.as_list, (3, "M"), {}, [3]),
    (parsing.as_list, ("4Ki", "M"), {}, ["4Ki"]),
    (parsing.as_list, (range(2), "M"), {}, [0, 1]),
    (parsing.expand_ranges, ([1, "2..8:x2", "4Ki"], "M"), {}, [1, 2, 4, 8, 4096]),
    (parsing.parse_seconds, (0, "max_seconds"), {"from_zero": True}, 0.0),
    (parsing.parse_seconds, ("2.5", "--max-seconds"), {"text": True}, 2.5),
    (parsing.parse_fraction, (0.02, "rel_ci"), {}, 0.02),
    (parsing.parse_fraction, ("2%", "rel_ci"), {}, 0.02),
    (schema.clean_text, ("two\r\nlines",), {}, "two lines"),
    (schema.clean_value, ([1, "a"],), {}, '[1, "a"]'),
    (schema.clean_value, ({"tile": (64, 64)},), {}, '{"tile": [64, 64]}'),
    (csv_file.classic_precision, ("fp16",), {}, "FP16"),
    (csv_file.classic_precision, ("fp16 of mine",), {}, "fp16 of mine"),
    (registry.precision_name, ("FP8",), {}, "fp8_e4m3"),
    (registry.precision_name, ("bfloat16",), {}, "bf16"),
    (registry.precision_name, ("torch.float16",), {}, "fp16"),
    (registry.precision_name, ("mine",), {}, "mine"),
    (registry.parse_point, ("fp16 M=1 N=4096",), {}, ("fp16", {"M": 1, "N": 4096})),
    (registry.parse_lengths, ("100,7Ki",), {}, (100, 7168)),
    (registry.parse_lengths, ("100;7000",), {}, (100, 7000)),
    (registry.parse_lengths, (["8..32:x2", 5],), {}, (8, 16, 32, 5)),
    (registry.parse_lengths, (64,), {}, (64,)),
    (registry.case_name, ("decode", None), {}, "decode"),
    (registry.case_name, ("decode", "64;32"), {}, "decode kv_lens=64,32"),
    (registry.case_name, ("decode kv_lens=64,32", (64, 32)), {}, "decode kv_lens=64,32"),
    (registry.case_name, ("decode", [8192, 12, 500, 64]), {}, "decode kv_lens=4 of 12..8192 #2ba358d9"),
    (registry.case_name, ("decode", [64] * 16), {}, "decode kv_lens=16 of 64"),
    (registry.unusual_params, ("gemm", "fp32", {"M": 64, "beta": 0}), {}, ["M"]),
    (pairs.moved_bytes, ({"bytes_read": 8, "bytes_written": 2},), {}, 10),
    (pairs.moved_bytes, ({"bytes_read": 8},), {}, None),
    (pairs.moved_bytes, ({"bytes_read": 8, "bandwidth_gb_s": 4.0, "time_ms": 2e-6},), {}, 8),
    (pairs.find_doubts, ({"flags": "near_timer_floor;unverified"},), {}, ["unverified"]),
    (pairs.find_doubts, ({"flags": "above_attainable", "verified": False},), {}, ["unverified", "above_attainable"]),
]


@pytest.mark.parametrize(("function", "arguments", "options", "expected"), CASES)
def test_values_become_text_and_text_becomes_values(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], expected: Any
) -> None:
    assert function(*arguments, **options) == expected


@pytest.mark.parametrize(
    ("typed", "allowed", "options", "near"),
    [
        ("fp8", ["fp32", "fp16", "fp8_e4m3"], {}, ["fp8_e4m3"]),
        ("int4", ["int8", "q4_0"], {"meant": "q4_0"}, ["q4_0"]),
        ("h100", ["H100-PCIe", "H100-SXM", "H200"], {}, ["H100-PCIe", "H100-SXM"]),
        ("tims", ["time", "times", "case"], {"see": "bwprof columns"}, ["times", "time"]),
        ("zzz", ["fp32"], {}, []),
    ],
)
def test_an_unknown_name_has_suggestions(
    typed: str, allowed: list[str], options: dict[str, Any], near: list[str]
) -> None:
    message = parsing.describe_unknown("name", typed, allowed, **options)
    hint = f"did you mean {parsing.join_words([repr(name) for name in near], 'or')}?"
    assert (hint in message) == bool(near)
    assert repr(typed) in message
    assert ("bwprof columns" if "see" in options else f"Allowed: {', '.join(allowed)}") in message


def test_two_times_differ_beyond_intervals_and_gate() -> None:
    fast = {"time_ms": 1.00, "time_ms_lo": 0.99, "time_ms_hi": 1.01}
    slow = {"time_ms": 1.05, "time_ms_lo": 1.04, "time_ms_hi": 1.06}
    assert pairs.times_differ(fast, slow)
    assert not pairs.times_differ(fast, slow, gate=0.1)
    assert not pairs.times_differ(fast, fast)
    assert [pairs.times_differ(fast, {"time_ms": time}) for time in (None, 1.02, 1.04)] == [True, False, True]
    assert not pairs.times_differ(fast, slow | {"time_ms_lo": -math.inf})


def test_groups_of_a_case_are_distinguished_by_their_variants() -> None:
    rows = [{"case": "prefill", "precision": "fp16", "variant": name} for name in ("unfused", "flash")]
    assert pairs.distinguish_groups(pairs.group_precisions(rows)) == ["unfused", "flash"]
    caches = [{"case": "decode", "precision": "fp16", "variant": "flash", "cache": name} for name in ("cold", "hot")]
    groups = pairs.group_precisions(caches)
    assert pairs.distinguish_groups(groups, hot=False) == ["", "(hot)"]
    assert pairs.distinguish_groups(groups[1:], hot=False) == [""]


@pytest.mark.parametrize("value", [2**63, -1, True])
def test_bytes_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match=r"^bytes_read is "):
        parsing.parse_bytes(value, "bytes_read")


def test_ranges_have_a_largest_count_and_numbers_have_none() -> None:
    assert len(parsing.parse_counts("1..10000:+1", "M")) == 10_000
    with pytest.raises(ValueError, match="holds 10001 values"):
        parsing.parse_counts("1..10001:+1", "M")
    numbers = [1] * 200_000
    assert parsing.expand_ranges(numbers, "M") == numbers
