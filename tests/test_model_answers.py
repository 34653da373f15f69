"""The answer of a model's step: the gains it offers, the device it names, the contexts it warns of."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

import bwprof
from bwprof.llm.result import ModelStep, spare_columns


def offers_of(answer: str) -> dict[str, float]:
    """Return the changes that an answer offers, and the gain of each."""
    sentence = answer.partition("bring ")
    first = re.search(r"; ([^;]+?) (?:would )?$", sentence[0])
    if first is None:
        return {}
    others = re.findall(r"(?:\(|, )([\w ]+?) ([\d.]+) \u00d7", sentence[2])
    gain = re.match(r"([\d.]+) \u00d7", sentence[2])
    return {first[1]: float(gain[1]) if gain else 1.0} | {name: float(times) for name, times in others}


def answer_of(model: Any = "llama-3.1-8b", device: str = "H200", **options: Any) -> str:
    return bwprof.model_step(model, device=device, **options).answer


def test_the_largest_gain_comes_first() -> None:
    """In a long context an FP8 cache halves most bytes; smaller gains follow in parentheses."""
    long = bwprof.model_step("llama-3.1-8b", batch=16, context=32768, kv=["fp16", "fp8"], device="H200")
    now, narrow = long.steps["time_ms"]
    both = bwprof.model_step("llama-3.1-8b", batch=16, context=32768, weights="fp8", kv="fp8", device="H200").time_ms
    found = offers_of(long.answer)
    assert list(found) == ["FP8 KV cache", "FP8 weights", "both"]
    assert found["FP8 KV cache"] == pytest.approx(now / narrow, abs=0.06)
    assert found["both"] == pytest.approx(now / both, abs=0.06)
    assert found["FP8 weights"] < found["FP8 KV cache"] < found["both"]


@pytest.mark.parametrize(
    ("options", "offers"),
    [
        ({}, {"FP8 weights": 1.8}),  # a cache of 0.5 GB beside 16 GB of weights
        ({"context": 32768, "weights": "q4_0"}, {"FP8 KV cache": 1.3}),  # no weights are narrower
        ({"context": 131072}, {"FP8 KV cache": 1.3, "FP8 weights": 1.3, "both": 1.9}),  # 17 GB beside 16
        ({"context": 32768, "weights": "q4_0", "kv": "fp8"}, {}),
        # The cache of FP32 weights becomes as narrow as they do.
        (
            {"model": "qwen2.5-7b", "context": 131072, "weights": "fp32", "kv": "fp32"},
            {"FP16 weights and cache": 2.0},
        ),
        # A gain of 3 % has three digits.
        ({"model": "qwen2.5-0.5b", "context": 2**20, "weights": "fp8", "kv": "fp8"}, {"Q4_0 weights": 1.03}),
    ],
)
def test_offers_name_the_change_and_its_gain(options: dict[str, Any], offers: dict[str, float]) -> None:
    assert offers_of(answer_of(**options)) == offers


TINY = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100},
}


@pytest.mark.parametrize(
    ("model", "contexts", "numbers"),
    [
        ("llama-3.1-8b", [131072], []),
        ("llama-3.1-8b", [4096, 131073], ["131073", "131072"]),
        ("llama-3.1-8b", [200000, 200002, 200001], ["200002", "131072"]),
        (TINY, [10**6], []),  # without max_position_embeddings
        (TINY | {"max_position_embeddings": "many"}, [10**6], []),
        (TINY | {"max_position_embeddings": 2048}, [4096], ["4096", "2048"]),
    ],
)
def test_a_context_beyond_the_models_is_named(model: Any, contexts: list[int], numbers: list[str]) -> None:
    """The times are computed all the same."""
    found = bwprof.model_step(model, context=contexts, device="H200")
    assert found.steps["time_ms"].notna().all()
    assert re.findall(r"\d+", found.answer.partition("on H200.")[2].replace(found.model.name, "")) == numbers
    assert ModelStep.from_frame(found.frame).answer == found.answer


def test_a_context_beyond_the_models_is_named_without_a_time() -> None:
    large = answer_of("llama-3.1-70b", context=10**6, device="L4")
    assert "does not fit" in large
    assert "1000000" in large
    assert "131072" in large


@pytest.mark.parametrize(
    ("device", "name"),
    [("A100-80GB", "on A100-80GB"), ("bandwidth=3200,fp16=400,memory=80", "on the device given"), ("L4", "on L4")],
)
def test_the_answer_names_the_device(device: str, name: str) -> None:
    answer = answer_of(device=device)
    facts = ("llama-3.1-8b", "batch 1", "context 4096", "weights FP16", "cache FP16", name)
    assert all(fact in answer for fact in facts)
    assert "tokens/s" in answer
    large = answer_of("llama-3.1-70b", device=device)
    assert all(fact in large for fact in ("llama-3.1-70b", "weights FP16", name, "does not fit"))
    assert "tokens/s" not in large


def test_sizes_of_a_step_that_does_not_fit() -> None:
    large = answer_of(batch=8, context=131072)
    assert "137 GB" in large
    assert "2 such devices" in large
    assert "3 such devices" in answer_of(batch=16, context=131072)
    assert "1623 GB" in answer_of("llama-3.1-405b", weights="fp32", kv="fp32")
    both = answer_of(batch=[1, 8], context=131072, kv=["fp16", "fp8"])
    too_large = both.partition("Too large")[2]
    assert all(fact in too_large for fact in ("cache FP16", "batch 8", "context 131072"))
    assert "batch 1," not in too_large
    assert "FP8" not in too_large


def test_a_format_without_a_time_has_no_source_in_the_table() -> None:
    found = bwprof.model_step("mixtral-8x7b", weights="q4_0", device="H100-SXM")
    table = next(table for table in found.tables() if table.caption == "Formats of that step")
    lines = [dict(zip(table.headings, line, strict=True)) for line in table.lines]
    assert {line["source"] for line in lines if line["ms"] == "-"} == {"-"}
    assert {line["source"] for line in lines if line["ms"] != "-"} == {"predicted"}


def test_a_narrow_screen_keeps_contexts_that_differ() -> None:
    pytest.importorskip("rich")
    from bwprof.text.terminal import make_console

    def spared(*contexts: int) -> list[str]:
        found = bwprof.model_step("llama-3.1-8b", context=contexts, device="H200")
        steps = next(part for part in found.renderables(make_console(io.StringIO())) if not isinstance(part, str))
        return spare_columns(steps)

    assert "context" in spared(4096)
    assert "context" not in spared(4096, 131072)
    assert "measured %" not in spared(4096, 131072), "it tells predicted from measured"
