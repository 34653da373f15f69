"""Experts of a model: how many a batch takes, and that all of their products together have every token."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bwprof
from bwprof.llm import architecture, checkpoints, workload
from bwprof.llm.architecture import Architecture
from bwprof.llm.workload import DECODE, PREFILL, ModelRequest, StepPart, StepPoint

MIXTRAL = architecture.find_model("mixtral-8x7b")  # 8 experts, 2 a token, 3 matrices of 4096 x 14336 each, 32 layers
QWEN = checkpoints.from_dict(  # Qwen3-30B-A3B
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


def point(phase: str = DECODE, batch: int = 1, context: int = 4096) -> StepPoint:
    return StepPoint(phase, batch, context, "fp16", "fp16")


def experts(model: Architecture, at: StepPoint, layout: str = "fused") -> list[StepPart]:
    return [part for part in workload.list_parts(model, at, layout) if part.role.startswith("expert ")]


def flops(parts: list[StepPart]) -> int:
    """By the cost model, at each part's own count."""
    return sum(part.count * bwprof.cost(part.operation, precision="fp16", **part.params).flops for part in parts)


@pytest.mark.parametrize("layout", ["fused", "separate"])
@pytest.mark.parametrize(
    ("model", "at", "launches", "tokens"),
    [
        # 8 (1 - 0.75^16) = 7.9198 experts of each of 32 layers: 253.4 in all.
        (MIXTRAL, point(batch=16), {7: 3, 8: 29}, 1024),
        # One token: two experts of each layer. Two: 8 (1 - 0.75^2) = 3.5 of each.
        (MIXTRAL, point(), {2: 32}, 64),
        (MIXTRAL, point(batch=2), {3: 16, 4: 16}, 128),
        # 100 tokens leave nobody out.
        (MIXTRAL, point(PREFILL, 1, 100), {8: 32}, 6400),
        # 128 (1 - (15/16)^16) = 82.4225 of each of 48 layers: 3956.3 in all.
        (QWEN, point(batch=16), {82: 28, 83: 20}, 6144),
        # 128 (1 - (15/16)^128) = 127.9670: 6142.4 in all.
        (QWEN, point(PREFILL, 1, 128), {127: 2, 128: 46}, 49152),
    ],
)
def test_experts_of_a_layer_are_one_launch(
    model: Architecture, at: StepPoint, launches: dict[int, int], tokens: int, layout: str
) -> None:
    """Every launch reads the matrices of all experts that have tokens once, and has every token."""
    parts = experts(model, at, layout)
    for product in {part.role.removesuffix(", fuller") for part in parts}:
        of_product = [part for part in parts if part.role.removesuffix(", fuller") == product]
        assert {part.params["active"]: part.count for part in of_product} == launches
    matrices = 3 * model.hidden * model.ffn
    assert flops(parts) == 2 * matrices * tokens
    read = sum(part.count * workload.bytes_read_by(part, model) for part in parts)
    assert read == 2 * matrices * sum(active * count for active, count in launches.items())


def test_mean_number_of_experts_of_a_batch() -> None:
    """By chance: 16 tokens of 2 experts each leave one of 8 alone with a chance of 0.75 ** 16."""
    assert workload.distinct_experts(8, 2, 16) == pytest.approx(8 * (1 - 0.75**16))
    many = {part.role: part for part in workload.list_parts(MIXTRAL, point(batch=16))}
    assert many["router"].params | {"M": 16, "N": 8, "K": 4096} == many["router"].params
    assert "gate up" not in {part.role for part in workload.list_parts(MIXTRAL, point())}


def test_numbers_of_experts_at_the_limits() -> None:
    assert workload.distinct_experts(4, 4, 1) == 4
    assert workload.distinct_experts(8, 2, 1) == 2
    assert workload.distinct_experts(0, 0, 5) == 0


@settings(deadline=None)
@given(
    st.integers(1, 300).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most))),
    st.integers(1, 5000),
    st.integers(1, 100),
)
def test_launches_have_all_tokens_and_experts(choice: tuple[int, int], tokens: int, layers: int) -> None:
    """A launch a layer with all tokens, of as many experts as have tokens on average, within half of one in all."""
    model = Architecture("x", 64, 32, layers, 2, 2, 32, 10, experts=choice[0], experts_per_token=choice[1])
    parts = [part for part in experts(model, point(batch=tokens)) if part.role.startswith("expert down")]
    distinct = choice[0] * (1 - (1 - choice[1] / choice[0]) ** tokens)
    assert all(part.params["tokens"] == tokens * choice[1] and part.params["N"] == 64 for part in parts)
    assert sum(part.count for part in parts) == layers
    taken = sum(part.count * part.params["active"] for part in parts)
    assert taken == pytest.approx(layers * distinct, abs=max(0.501, 0.01001 * layers))


@pytest.mark.parametrize("model", [MIXTRAL, QWEN], ids=["mixtral", "qwen"])
@pytest.mark.parametrize("batch", [1, 3, 16, 64])
def test_one_layer_has_the_shapes_of_the_step(model: Architecture, batch: int) -> None:
    """A layer in one graph has the shapes of the step, in as many launches."""
    asked = ModelRequest(model, (point(batch=batch),))
    step = {part.role: part for part in asked.parts(asked.points[0])}
    layer = {part.role: part for part in asked.parts(asked.points[0], one_layer=True)}
    assert {role: part.params for role, part in layer.items()} == {
        role: part.params for role, part in step.items() if role in layer
    }
    assert sum(part.count for role, part in layer.items() if role.startswith("expert down")) == 1
    assert "lm head" not in layer


def test_activations_of_experts_are_of_all_tokens() -> None:
    """16 bits, 2 elements read and one written for each of 1024 tokens of an expert; a launch a layer."""
    found = [item for item in workload.list_omitted(MIXTRAL, point(batch=16)) if "experts" in item.what]
    assert sum(item.count * item.bytes for item in found) == 1024 * 3 * 14336 * 2
    assert sum(item.count for item in found) == 32


def test_experts_take_the_time_of_their_bytes() -> None:
    """46 GB at 3350 GB/s are 13.8 ms; at 90 % of that 15.3, and launches are not many."""
    step = bwprof.model_step(QWEN, batch=16, device="H100-SXM")
    rows = step.frame[step.frame["role"].str.startswith("expert")]
    bytes_moved = (rows["count"] * (rows["bytes_read"] + rows["bytes_written"])).sum()
    assert (rows["count"] * rows["time_ms"]).sum() < 1.1 * bytes_moved / 3350e9 / 0.9 * 1e3
    assert "t=128 e=82 2048x768" in str(step)


def test_rows_of_other_shapes_keep_their_bytes() -> None:
    """Bytes are those of the rows; no other format is predicted from them."""
    step = bwprof.model_step(MIXTRAL, batch=16, memory="200G", device="H200")
    frame = step.frame.copy()
    frame.attrs = step.frame.attrs
    down = frame["role"] == "expert down"
    frame.loc[down, ["active", "count"]] = [2, 10]  # were 3 launches of 7
    frame.loc[down, "status"] = "ok"
    old = bwprof.ModelStep.from_frame(frame)
    assert step.steps["read_bytes"][0] - old.steps["read_bytes"][0] == (3 * 7 - 10 * 2) * 4096 * 14336 * 2
    assert old.time_ms is not None
    assert old.formats["time_ms"].notna().sum() == 1


def test_sizes_and_bytes_of_experts_in_a_gguf_file() -> None:
    """A token reads 2 of 8 experts: a quarter of their bytes. A size may be listed for each layer."""
    sizes = {"embedding_length": 64, "attention.head_count": [4, 4], "block_count": 2, "feed_forward_length": 128}
    sizes |= {"expert_count": 8, "expert_used_count": 2, "vocab_size": 100}
    fields = {"general.architecture": "llama", **{f"llama.{name}": size for name, size in sizes.items()}}
    experts = SimpleNamespace(name="blk.0.ffn_up_exps.weight", n_bytes=800, shape=[64, 128, 8])

    def read_field(key: str) -> SimpleNamespace | None:
        return SimpleNamespace(contents=lambda: fields[key]) if key in fields else None

    reader = SimpleNamespace(tensors=[experts], get_field=read_field)
    model = checkpoints._gguf_architecture(reader, "moe")
    assert (model.num_heads, model.experts, model.experts_per_token) == (4, 8, 2)
    assert (model.window, model.window_layers, model.vocab) == (0, 0, 100)
    assert checkpoints._bytes_read_by_token(experts, model) == 200


@pytest.mark.parametrize(("top_k", "batch"), [(2, 24), (8, 28)])
def test_no_count_of_a_deep_model_is_negative(top_k: int, batch: int) -> None:
    """200 layers, and a mean of experts just below a whole number."""
    model = replace(MIXTRAL if top_k == 2 else QWEN, layers=200)
    parts = experts(model, point(batch=batch))
    assert all(part.count > 0 and part.params["active"] <= model.experts for part in parts)
    launches = {
        role: sum(part.count for part in parts if part.role.startswith(role))
        for role in ("expert gate up", "expert down")
    }
    assert launches == {"expert gate up": 200, "expert down": 200}
