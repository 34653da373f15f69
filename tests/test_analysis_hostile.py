"""No analysis raises, warns, or changes its input, whatever the frame holds."""

from __future__ import annotations

import io
import math
import random
from contextlib import suppress
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

import bwprof
from bwprof.analysis.answer import Answer
from bwprof.analysis.bandwidth import speed_of_light, utilization_table
from bwprof.analysis.bottleneck import bottlenecks, match_rules, strengths
from bwprof.analysis.rules import checklist
from bwprof.cli.commands.results import print_answer
from bwprof.results import frame, schema

WORDS = {
    "precision": ["fp32", "fp16", "fp8_e4m3", "weird"],
    "operation": ["gemm", "attention_decode", "mine"],
    "status": ["ok", "ok", "failed", "predicted"],
    "cache": ["cold", "cold", "hot"],
    "bound": ["memory", "compute", "latency"],
    "limiter": ["memory", "compute", "latency", "kernel"],
    "flags": ["", "noisy", "throttled;noisy"],
    "stall_reasons": ["", "long_scoreboard=3;wait=1", "a=b;;=", "selected=3"],
    "kv_lens": ["", "1;2"],
}
NUMBERS = [0.0, 1e-9, 0.5, 1.0, 100.0, 1e6, math.nan, math.inf, -1.0]
OTHERS = "count step_batch context load_efficiency wall_ms predicted_ms waves_per_sm block_threads".split()


def value(dice: random.Random, name: str, kind: str) -> Any:
    if dice.random() < 0.15:
        return None
    if name in WORDS or kind == "text":
        return dice.choice(WORDS.get(name, ["", "x", "a b", "\x1b[31m", "p|q"]))
    return {
        "boolean": lambda: dice.random() < 0.5,
        "integer": lambda: dice.choice([0, 1, 2, 64, 10**6, 10**12]),
        "number": lambda: dice.choice(NUMBERS),
    }[kind]()


def any_frame(dice: random.Random) -> pd.DataFrame:
    columns = [(column.name, column.kind) for column in schema.all_columns() if dice.random() < 0.5]
    kinds = dict.fromkeys(OTHERS, "number") | {column.name: column.kind for column in schema.all_columns()}
    columns += [(name, kinds[name]) for name in OTHERS if dice.random() < 0.3]
    columns += [(name, "text") for name in schema.CLASSIC_NAMES[:2] if name not in dict(columns)]
    rows = [{name: value(dice, name, kind) for name, kind in columns} for _ in range(dice.choice([0, 1, 2, 8]))]
    plain = pd.DataFrame(rows, columns=list(dict(columns)))
    return dice.choice([lambda: plain, lambda: frame.from_rows(rows), lambda: pd.concat([plain, plain])])()


@pytest.mark.parametrize("seed", range(12))
def test_any_frame_has_an_answer(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(3):
        data = any_frame(dice)
        before = data.copy()
        bwprof.BandwidthAnalysis.from_frame(data, peak_gb_s=10.0)
        for analysis in (bottlenecks, strengths, utilization_table, checklist, match_rules):
            analysis(data)
        answer = Answer(data)
        # Pairs are read of frames with all classic columns, which must hold what they should.
        if not set(schema.CLASSIC_NAMES) <= set(data.columns):
            answer.lines()
            answer.to_dict(with_checklist=True)
        for _, row in data.iterrows():
            speed_of_light(row)
            with suppress(ValueError):
                found = bwprof.BandwidthAnalysis.from_row(row)
                assert found.summary()
                assert found.bottleneck_description()
        pd.testing.assert_frame_equal(data, before)


def test_rows_with_almost_no_figures() -> None:
    """`<NA>` is neither true nor false."""
    row = bwprof.frame({"bytes_read": 8, "time_ms": 1.0, "peak_gb_s": 1.0}).iloc[0]
    assert bwprof.BandwidthAnalysis.from_row(row).bytes_total == 8
    assert speed_of_light(row).startswith("Memory Throughput: unknown")
    for wrong in (3, None, "row"):
        with pytest.raises(TypeError, match="row is"):
            bwprof.BandwidthAnalysis.from_row(wrong)  # type: ignore[arg-type]


def test_a_step_that_takes_no_time() -> None:
    screen = Console(file=io.StringIO(), width=80)
    row = {"operation": "gemm", "precision": "fp16", "status": "ok", "time_ms": 1.0, "attainable_gb_s": 1.0, "flops": 0}
    sizes = {"M": 1, "N": 64, "K": 64, "bytes_read": 8320, "bytes_written": 128, "bandwidth_gb_s": 0.9, "count": 0}
    print_answer([row | sizes], None, screen)
    assert "memory 1 of 1" in screen.file.getvalue().splitlines()[0]  # type: ignore[attr-defined]


def test_whole_numbers_of_hundreds_of_digits() -> None:
    """Analyses accept the count of a damaged file; a model's step refuses it."""
    data = bwprof.load_example("h200_llama")
    data["count"] = pd.Series([10**400, *data["count"].tolist()[1:]], data.index, dtype=object)
    assert len(bottlenecks(data))
    with pytest.raises(ValueError, match=r"column count .*64 bits"):
        bwprof.ModelStep.from_frame(data)
