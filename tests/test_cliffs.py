"""Cliffs of a sweep: time that the step of work does not explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from matplotlib.colors import same_color
from rows import row

import bwprof
from bwprof.analysis.answer import Answer
from bwprof.analysis.bottleneck import find_cliffs
from bwprof.plot.styles import ink
from bwprof.results import frame


def swept(points: Sequence[tuple[int, float]], name: str = "kv_len", **more: Any) -> list[dict[str, Any]]:
    """Make rows along a parameter; bytes grow with it, and times are known to 1 %."""
    return [
        row(f"decode {name}={size}", "fp32", bytes_read=8000 * size, **{name: size}, time_ms=ms, flops=size)
        | {"time_ms_lo": 0.99 * ms, "time_ms_hi": 1.01 * ms}
        | more
        for size, ms in points
    ]


def found(*rows: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the values before and after each cliff."""
    return [(cliff.fast[cliff.name], cliff.slow[cliff.name]) for cliff in find_cliffs(frame.from_rows(rows))]


def test_a_step_of_time_beyond_the_step_of_work() -> None:
    """Work grows by 15264 / 14994 = 1.018, time by 4 / 3 = 1.333; elsewhere both grow alike."""
    rows = swept([(7497, 1.5), (14994, 3.0), (15264, 4.0), (30528, 8.0)])
    (cliff,) = find_cliffs(frame.from_rows(reversed(rows)))
    assert (cliff.name, cliff.fast["kv_len"], cliff.slow["kv_len"]) == ("kv_len", 14994, 15264)
    assert (cliff.work, cliff.time) == pytest.approx((15264 / 14994, 4 / 3))
    assert cliff.text.split()[:4] == ["decode", "kv_len=15264", "fp32:", "33"]
    assert cliff.text.index("kv_len=14994") < cliff.text.index("1.8 %")


def test_a_smaller_case_that_takes_longer() -> None:
    assert set(found(*swept([(1000, 1.0), (2000, 2.3), (2100, 2.0)]))) == {(1000, 2000), (2100, 2000)}
    assert found(*swept([(2000, 2.04), (2100, 2.0)])) == [], "less than the gate of 3 %"


@pytest.mark.parametrize(
    ("factor", "spread", "is_one"), [(1.09, 0.001, False), (1.11, 0.001, True), (1.2, 0.05, True), (1.2, 0.1, False)]
)
def test_the_step_exceeds_the_threshold_and_both_intervals(factor: float, spread: float, is_one: bool) -> None:
    """At 1.2 +- 10 % the interval begins at 1.08, below the 1.1 that the work explains."""
    rows = swept([(1000, 1.0), (1500, 1.5 * factor)])
    for one in rows:
        one |= {"time_ms_lo": (1 - spread) * one["time_ms"], "time_ms_hi": (1 + spread) * one["time_ms"]}
    assert bool(found(*rows)) == is_one


def test_work_is_the_larger_of_bytes_and_flops() -> None:
    """Four times the FLOPs of the same bytes explain four times the time."""
    few, many = swept([(1000, 1.0), (1001, 4.0)])
    assert found(few, many) == [(1000, 1001)]
    assert found(few, many | {"flops": 4000}) == []


@pytest.mark.parametrize(
    "other",
    [{"flags": "noisy"}, {"status": "predicted"}, {"precision": "fp16"}, {"M": 2}, {"device": "B"}, {"mine": 3}],
)
def test_other_configurations_are_not_compared(other: dict[str, Any]) -> None:
    """Doubtful and predicted times, and rows in which more than the parameter differs."""
    few, many = swept([(1000, 1.0), (1010, 2.0)])
    assert found(few, many) == [(1000, 1010)]
    assert found(few, many | other) == []


def test_variants_are_lines_of_their_own_where_both_ran() -> None:
    slow = swept([(1000, 10.0), (2000, 20.0)], variant="unfused")
    fast = swept([(1000, 1.0), (2000, 2.0)], variant="flash")
    assert found(*slow, *fast) == []
    (cliff,) = find_cliffs(frame.from_rows([fast[0], slow[1]]))
    named = [
        word for word in cliff.text.replace("(", " ").replace(")", " ").split() if word in ("100", "unfused", "flash")
    ]
    assert named == ["100", "unfused", "flash"], "the device's choice is one line"


def test_two_parameters_and_a_column_of_the_caller() -> None:
    rows = [one | {"batch": batch} for batch in (1, 2) for one in swept([(1000, batch), (1010, 2.0 * batch)])]
    for one in rows:
        one |= {"bytes_read": one["bytes_read"] * one["batch"], "bytes_written": one["bytes_written"] * one["batch"]}
    assert sorted(found(*rows)) == [(1000, 1010), (1000, 1010)]
    own = [one | {"kv_len": None, "size": one["kv_len"]} for one in swept([(1000, 1.0), (1010, 2.0)])]
    assert [cliff.name for cliff in find_cliffs(frame.from_rows(own))] == ["size"]


@pytest.mark.parametrize("name", ["h100", "h200", "h200_llama"])
def test_a_suite_is_no_sweep(name: str) -> None:
    assert find_cliffs(bwprof.load_example(name)) == []


def test_the_answer_and_the_picture_name_them() -> None:
    data = frame.from_rows(swept([(1000, 1.0), (1010, 2.0), (2020, 6.0), (2030, 8.0)]))
    texts = [cliff.text for cliff in find_cliffs(data)]
    assert Answer(data, top=2).cliffs() == [*texts[:2], "and 1 more"]
    assert Answer(data).to_dict()["cliffs"] == texts
    axes = bwprof.plot.lines(data, y="time_ms")
    rings = [line for line in axes.lines if same_color(line.get_markeredgecolor(), ink(axes).alarm)]
    assert sorted(rings[0].get_xydata().tolist()) == [[1010, 2.0], [2020, 6.0], [2030, 8.0]]
