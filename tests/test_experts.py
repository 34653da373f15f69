"""Experts of a model: how many a batch takes, and that all of their products together have every token."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bwprof
from bwprof.models import architecture, config, steps, storage
from bwprof.models.architecture import Architecture
from bwprof.models.question import Question
from bwprof.models.steps import DECODE, PREFILL, Part, Point

MIXTRAL = architecture.named("mixtral-8x7b")  # 8 experts, 2 a token, 3 matrices of 4096 x 14336 each, 32 layers
QWEN = config.from_dict(  # Qwen3-30B-A3B
    {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
    }
)


def point(phase: str = DECODE, batch: int = 1, context: int = 4096) -> Point:
    return Point(phase, batch, context, "fp16", "fp16")


def experts(model: Architecture, at: Point, layout: str = "fused") -> list[Part]:
    return [part for part in steps.parts(model, at, layout) if part.role.startswith("expert ")]


def flops(parts: list[Part]) -> int:
    """By the cost model, at each part's own count."""
    return sum(part.count * bwprof.cost(part.operation, precision="fp16", **part.params).flops for part in parts)


@pytest.mark.parametrize("layout", ["fused", "separate"])
@pytest.mark.parametrize(
    ("model", "at", "groups", "total", "read"),
    [
        # 8 (1 - 0.75^16) = 7.9198 experts of each of 32 layers: 253 in all, for 32 * 16 * 2 = 1024 = 241 * 4 + 12 * 5.
        # FLOPs 1024 * 2 * 3 * 4096 * 14336, bytes 253 * 2 * 3 * 4096 * 14336.
        (MIXTRAL, point(batch=16), {4: 241, 5: 12}, 360_777_252_864, 89_137_348_608),
        # One token: two experts of each layer, one token each.
        (MIXTRAL, point(), {1: 64}, 64 * 2 * 3 * 4096 * 14336, 64 * 2 * 3 * 4096 * 14336),
        # 100 tokens leave nobody out: 32 * 200 = 256 * 25.
        (MIXTRAL, point(PREFILL, 1, 100), {25: 256}, 6400 * 2 * 3 * 4096 * 14336, 256 * 2 * 3 * 4096 * 14336),
        # 128 (1 - (15/16)^16) = 82.4225 of each of 48 layers: 3956, for 48 * 16 * 8 = 6144 = 1768 * 1 + 2188 * 2.
        (QWEN, point(batch=16), {1: 1768, 2: 2188}, 57_982_058_496, 37_333_499_904),
        # 128 (1 - (15/16)^128) = 127.967: 6142, for 48 * 128 * 8 = 49152 = 6126 * 8 + 16 * 9.
        (QWEN, point(PREFILL, 1, 128), {8: 6126, 9: 16}, 49152 * 2 * 3 * 2048 * 768, 6142 * 2 * 3 * 2048 * 768),
    ],
)
def test_experts_of_a_batch(
    model: Architecture, at: Point, groups: dict[int, int], total: int, read: int, layout: str
) -> None:
    parts = experts(model, at, layout)
    assert {part.params["M"]: part.count for part in parts if part.role.startswith("expert down")} == groups
    assert flops(parts) == total
    assert sum(part.count * storage.read_by(part, model) for part in parts) == read


def test_experts_that_a_batch_takes() -> None:
    """By chance: 16 tokens of 2 experts each leave one of 8 alone with a chance of 0.75 ** 16."""
    assert steps.distinct_experts(8, 2, 16) == pytest.approx(8 * (1 - 0.75**16))
    many = {part.role: part for part in steps.parts(MIXTRAL, point(batch=16))}
    assert many["router"].params | {"M": 16, "N": 8, "K": 4096} == many["router"].params
    assert "gate up" not in {part.role for part in steps.parts(MIXTRAL, point())}


def test_most_experts_are_not_beaten_by_any_draw() -> None:
    assert steps.distinct_experts(4, 4, 1) == 4
    assert steps.distinct_experts(0, 0, 5) == 0


@settings(deadline=None)
@given(
    st.integers(1, 300).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most))),
    st.integers(1, 5000),
    st.integers(1, 100),
)
def test_no_token_is_lost_and_no_expert_is_idle(choice: tuple[int, int], tokens: int, layers: int) -> None:
    """Each token passes its experts of every layer once, whatever is rounded; and the weights read are as many."""
    model = Architecture("x", 64, 32, layers, 2, 2, 32, 10, experts=choice[0], experts_per_token=choice[1])
    parts = [part for part in experts(model, point(batch=tokens)) if part.role.startswith("expert down")]
    assert sum(part.count * part.params["M"] for part in parts) == layers * tokens * choice[1]
    distinct = choice[0] * (1 - (1 - choice[1] / choice[0]) ** tokens)
    assert sum(part.count for part in parts) == pytest.approx(layers * distinct, abs=0.5 + 1e-6 * layers * distinct)
    assert all(part.count > 0 and part.params["M"] > 0 for part in parts)


@pytest.mark.parametrize("model", [MIXTRAL, QWEN], ids=["mixtral", "qwen"])
@pytest.mark.parametrize("batch", [1, 3, 16, 64])
def test_a_layer_has_the_shapes_of_its_step(model: Architecture, batch: int) -> None:
    """What is measured back to back has its own times beside it: of shapes that the step has, in as many launches."""
    asked = Question(model, (point(batch=batch),))
    step = {part.role: part for part in asked.parts(asked.points[0])}
    layer = {part.role: part for part in asked.parts(asked.points[0], one_layer=True)}
    assert {role: part.params for role, part in layer.items()} == {
        role: part.params for role, part in step.items() if role in layer
    }
    downs = [part.count for role, part in layer.items() if role.startswith("expert down")]
    assert sum(downs) == round(steps.distinct_experts(model.experts, model.experts_per_token, batch))
    assert "lm head" not in layer


def test_activations_of_experts_are_of_all_tokens() -> None:
    """16 bits, 2 elements read and one written for each of 1024 tokens of an expert."""
    found = [item for item in steps.left_out(MIXTRAL, point(batch=16)) if "experts" in item.what]
    assert sum(item.count * item.bytes for item in found) == 1024 * 3 * 14336 * 2
    assert sum(item.count for item in found) == 253
