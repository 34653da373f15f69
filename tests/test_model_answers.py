"""What a model's answer offers, names and warns of."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

import bwprof
from bwprof.llm.result import ModelStep


def test_the_answer_offers_what_helps_most() -> None:
    """Of a long context it is the cache, whose bytes an FP8 one halves; what others bring stands behind it."""
    long = bwprof.model_step("llama-3.1-8b", batch=16, context=32768, kv=["fp16", "fp8"], device="H200")
    now, narrow = long.steps["time_ms"]
    found = re.search(
        r"; FP8 KV cache would bring (\S+) \u00d7 \(FP8 weights (\S+) \u00d7, both (\S+) \u00d7\)\.", long.answer
    )
    assert found is not None, long.answer
    assert float(found[1]) == pytest.approx(now / narrow, abs=0.06)
    both = bwprof.model_step("llama-3.1-8b", batch=16, context=32768, weights="fp8", kv="fp8", device="H200").time_ms
    assert float(found[3]) == pytest.approx(now / both, abs=0.06)
    assert float(found[2]) < float(found[1]) < float(found[3])
    short = bwprof.model_step("llama-3.1-8b", device="H200").answer
    assert "; FP8 weights would bring 1.8 \u00d7. " in short, "a cache of 0.5 GB beside 16 GB of weights"
    cached = bwprof.model_step("llama-3.1-8b", context=32768, weights="q4_0", device="H200").answer
    assert "; FP8 KV cache would bring 1.3 \u00d7. " in cached, "no weights are narrower"
    near = bwprof.model_step("llama-3.1-8b", context=131072, device="H200").answer
    assert "; FP8 KV cache would bring 1.3 \u00d7 (FP8 weights 1.3 \u00d7, both 1.9 \u00d7). " in near, (
        "17 GB beside 16"
    )
    done = bwprof.model_step("llama-3.1-8b", context=32768, weights="q4_0", kv="fp8", device="H200").answer
    assert " bring " not in done


def test_contexts_that_a_model_was_not_made_for_are_named() -> None:
    """Both numbers, of a known name and of a config; they are computed all the same."""

    def told(model: Any, *contexts: int) -> str:
        found = bwprof.model_step(model, context=contexts, device="H200")
        assert found.steps["time_ms"].notna().all()
        return found.answer.partition("cache FP16, on H200.")[2].strip()

    assert told("llama-3.1-8b", 131072) == ""
    said = "beyond the 131072 tokens that llama-3.1-8b was made for (max_position_embeddings)."
    assert told("llama-3.1-8b", 4096, 131073) == f"Context 131073 is {said}"
    many = [200000 + number for number in range(5)]
    assert told("llama-3.1-8b", *many) == f"Contexts 200000, 200001, 200002 and 2 more are {said}"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    tiny = {"model_type": "llama", "num_key_value_heads": 2, "vocab_size": 100, **sizes}
    assert told(tiny, 10**6) == "", "nobody says what it was made for"
    assert told({**tiny, "max_position_embeddings": "many"}, 10**6) == ""
    limited = {**tiny, "max_position_embeddings": 2048}
    assert (
        told(limited, 4096)
        == "Context 4096 is beyond the 2048 tokens that llama was made for (max_position_embeddings)."
    )
    found = bwprof.model_step(limited, context=4096, device="H200")
    assert ModelStep.from_frame(found.frame).answer == found.answer
    large = bwprof.model_step("llama-3.1-70b", context=10**6, device="L4").answer
    assert "does not fit" in large
    assert large.endswith(
        "Context 1000000 is beyond the 131072 tokens that llama-3.1-70b was made for (max_position_embeddings)."
    )


@pytest.mark.parametrize(
    ("device", "said"),
    [("A100-80GB", "on A100-80GB"), ("bandwidth=3200,fp16=400,memory=80", "on the device given"), ("L4", "on L4")],
)
def test_the_answer_names_the_device(device: str, said: str) -> None:
    answer = bwprof.model_step("llama-3.1-8b", device=device).answer
    assert answer.endswith(f"llama-3.1-8b, batch 1, context 4096, weights FP16, cache FP16, {said}.")
    large = bwprof.model_step("llama-3.1-70b", device=device).answer
    assert large.startswith(f"llama-3.1-70b, weights FP16, {said}, does not fit: ")


def test_a_cache_with_which_a_step_fits_is_offered() -> None:
    """Rather than a second device, where no weights are narrow enough; the step that is offered does fit."""
    large = bwprof.model_step("llama-3.1-8b", batch=8, context=131072, device="H200")
    assert "137 GB of KV cache" in large.answer
    assert large.answer.endswith(" With cache FP8_E4M3 it does: 70.9 GB of KV cache.")
    assert bwprof.model_step("llama-3.1-8b", batch=8, context=131072, kv="fp8", device="H200").tokens_s
    more = bwprof.model_step("llama-3.1-8b", batch=14, context=131072, device="H200").answer
    assert more.endswith(" With weights FP8_E4M3 and cache FP8_E4M3 it does: 124 GB of KV cache.")
    assert (
        "It would take 3 such devices"
        in bwprof.model_step("llama-3.1-8b", batch=16, context=131072, device="H200").answer
    )
    both = bwprof.model_step("llama-3.1-8b", batch=[1, 8], context=131072, kv=["fp16", "fp8"], device="H200").answer
    assert both.endswith(" Too large for the memory: weights FP16, cache FP16, batch 8, context 131072.")


def test_a_format_without_a_time_has_no_source_in_the_table() -> None:
    found = bwprof.model_step("mixtral-8x7b", weights="q4_0", device="H100-SXM")
    table = next(table for table in found.tables() if table.caption == "Formats of that step")
    lines = [dict(zip(table.headings, line, strict=True)) for line in table.lines]
    assert {line["source"] for line in lines if line["ms"] == "-"} == {"-"}
    assert {line["source"] for line in lines if line["ms"] != "-"} == {"predicted"}


def test_offers_say_what_they_change_and_by_how_much() -> None:
    """FP32's cache becomes narrow with the weights; a gain of 3 % is not 1 times; thousands of GB have their digits."""
    wide = bwprof.model_step("qwen2.5-7b", context=131072, weights="fp32", kv="fp32", device="H200").answer
    assert "; FP16 weights and cache would bring 2 \u00d7. " in wide
    long = bwprof.model_step("qwen2.5-0.5b", context=2**20, weights="fp8", kv="fp8", device="H200").answer
    assert "; Q4_0 weights would bring 1.03 \u00d7. " in long
    huge = bwprof.model_step("llama-3.1-405b", weights="fp32", kv="fp32", device="H200").answer
    assert "does not fit: 1623 GB of weights" in huge


def test_contexts_that_differ_are_told_on_a_narrow_screen() -> None:
    """They tell the lines apart; what is the same in all goes."""
    pytest.importorskip("rich")
    from bwprof.llm.result import spare_columns
    from bwprof.text.terminal import make_console

    def spared(*contexts: int) -> list[str]:
        found = bwprof.model_step("llama-3.1-8b", context=contexts, device="H200")
        steps = next(part for part in found.renderables(make_console(io.StringIO())) if not isinstance(part, str))
        return spare_columns(steps)

    assert "context" in spared(4096)
    assert "context" not in spared(4096, 131072)
    assert "measured %" not in spared(4096, 131072), "what is predicted says so"
