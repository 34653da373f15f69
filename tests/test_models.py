"""Models from names, config.json and GGUF files: their sizes, the launches of a step, the memory it takes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bwprof
from bwprof import _core
from bwprof.llm import architecture, checkpoints, workload
from bwprof.llm.architecture import Architecture
from bwprof.llm.model_step import load_model
from bwprof.llm.workload import DECODE, PREFILL, StepPart, StepPoint

# Published counts of parameters: of the models' cards, norms and biases included (below 0.1 % of them).
PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-4b": 3_880_263_168,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
}

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}


def parts_of(
    model: Architecture, phase: str = DECODE, batch: int = 1, context: int = 4096, **more: Any
) -> list[StepPart]:
    point = StepPoint(phase, batch, context, more.pop("weights", "fp16"), more.pop("kv", "fp16"))
    return workload.list_parts(model, point, **more)


def by_role(parts: list[StepPart]) -> dict[str, StepPart]:
    assert len({part.role for part in parts}) == len(parts)
    return {part.role: part for part in parts}


def test_weights_are_the_published_ones() -> None:
    assert set(architecture.list_models()) == set(PUBLISHED)
    for name, count in PUBLISHED.items():
        model = architecture.find_model(name)
        assert model.parameters == pytest.approx(count, rel=1e-3), name
        assert workload.weight_bytes(model, "fp16") == 2 * model.parameters
        assert workload.weight_bytes(model, "fp32") == 4 * model.parameters


def test_products_read_all_weights_but_embeddings() -> None:
    """A step reads every matrix once, of the experts those that a token passes."""
    for name in architecture.list_models():
        model = architecture.find_model(name)
        read = sum(
            part.count * workload.bytes_read_by(part, model) for part in parts_of(model) if part.formats == "weights"
        )
        active = model.parameters - model.embedding_elements
        if model.experts:
            active -= 3 * model.ffn * model.hidden * model.layers * (model.experts - model.experts_per_token)
        assert read == 2 * active, name


@pytest.mark.parametrize("precision", workload.list_formats("weights"))
def test_bytes_of_weights_are_those_of_the_cost_model(precision: str) -> None:
    """A product reads its activations, and the weights."""
    cost = bwprof.cost("gemm", precision=precision, M=2, N=96, K=256).bytes_read
    assert workload.matrix_bytes(96, 256, precision) == cost - _core.matrix_bytes(precision, "activation", 2, 256)


@pytest.mark.parametrize("precision", workload.list_formats("kv"))
def test_bytes_of_the_cache_are_those_of_the_cost_model(precision: str) -> None:
    model = architecture.find_model("llama-3.1-8b")
    sizes: dict[str, Any] = {"batch": 3, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    cost = [bwprof.cost("attention_decode", precision=precision, kv_len=keys, **sizes).bytes_read for keys in (7, 8)]
    assert 3 * workload.kv_token_bytes(model, precision) == cost[1] - cost[0]


def test_a_decode_step_of_llama() -> None:
    """Every number by hand."""
    found = by_role(parts_of(architecture.find_model("llama-3.1-8b"), batch=16, context=4096))
    shapes = {
        role: (part.params["M"], part.params["N"], part.params["K"], part.count)
        for role, part in found.items()
        if "M" in part.params
    }
    assert shapes == {
        "qkv": (16, 6144, 4096, 32),
        "o": (16, 4096, 4096, 32),
        "gate up": (16, 28672, 4096, 32),
        "down": (16, 4096, 14336, 32),
        "lm head": (16, 128256, 4096, 1),
    }
    attention, append = found["attention"], found["kv append"]
    assert (attention.params["kv_len"], attention.params["num_kv_heads"], attention.count) == (4096, 8, 32)
    assert (append.params["seq_len"], append.params["kv_len"], append.count) == (1, 4095, 32)
    # A row's bytes are its operation's.
    assert workload.bytes_read_by(attention, architecture.find_model("llama-3.1-8b")) == 16 * 4096 * 2 * 8 * 128 * 2


def test_a_prefill_of_llama() -> None:
    found = by_role(parts_of(architecture.find_model("llama-3.1-8b"), PREFILL, batch=2, context=512))
    assert found["qkv"].params["M"] == found["down"].params["M"] == 1024
    assert found["lm head"].params["M"] == 2  # the last token's alone
    assert found["attention"].params | {"causal": 1} == found["attention"].params
    assert (found["kv append"].params["seq_len"], found["kv append"].params["kv_len"]) == (512, 0)


def test_separate_products_have_the_same_bytes() -> None:
    model = architecture.find_model("qwen2.5-7b")
    fused, apart = parts_of(model), parts_of(model, layout="separate")
    assert [part.role for part in apart][:3] == ["q", "k", "v"]
    assert {"gate", "up"} < {part.role for part in apart}
    read = [sum(part.count * workload.bytes_read_by(part, model) for part in parts) for parts in (fused, apart)]
    assert read[0] == read[1]


def test_layers_with_a_window() -> None:
    found = by_role(parts_of(architecture.find_model("gemma-3-4b"), context=4096))
    assert (found["attention"].count, found["attention"].params["kv_len"]) == (5, 4096)  # 34 // 6 attend to all
    assert (found["attention, window"].count, found["attention, window"].params["kv_len"]) == (29, 1024)
    near = by_role(parts_of(architecture.find_model("gemma-3-4b"), context=100))
    assert near["attention, window"].params["kv_len"] == 100
    assert (
        workload.kv_bytes(architecture.find_model("gemma-3-4b"), "fp16", 2, 4096)
        == 2 * (5 * 4096 + 29 * 1024) * 2 * 4 * 256 * 2
    )


@pytest.mark.parametrize("context", [1, 100, 128, 129, 200, 256, 1000, 4096])
def test_a_prompt_in_layers_with_a_window(context: int) -> None:
    """As many pairs of queries and keys as the window has; each query is read once, and keys no fewer times."""
    found = parts_of(architecture.find_model("gpt-oss-20b"), PREFILL, batch=2, context=context)
    costs = [bwprof.cost(part.operation, precision="fp16", **part.params) for part in found if "window" in part.role]
    pairs = 2 * sum(min(query + 1, 128) for query in range(context))
    # The last stretch is filled up to whole queries, and a kernel's causal mask keeps no other pairs.
    assert sum(cost.flops for cost in costs) == pytest.approx(4 * 64 * 64 * pairs, rel=0.01)
    tokens = 2 * context
    assert sum(cost.bytes_written for cost in costs) == pytest.approx(tokens * 64 * 64 * 2, rel=0.01)
    least = tokens * (64 + 2 * 8) * 64 * 2
    assert least <= sum(cost.bytes_read for cost in costs) <= least * 1.01 + 2 * 128 * 2 * 8 * 64 * 2


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.floats(0.01, 1), min_size=1), st.integers(1, 500))
def test_division_by_shares_loses_no_launch(shares: dict[str, float], count: int) -> None:
    whole = math.fsum(shares.values())
    divided = dict(workload._split_launches(count, {name: share / whole for name, share in shares.items()}))
    assert sum(divided.values()) == count


def test_formats() -> None:
    assert workload.check_format("FP8", "weights") == "fp8_e4m3"
    assert "q4_0" in workload.list_formats("weights")
    assert "q4_0" not in workload.list_formats("kv")
    assert [workload.kv_format(name) for name in ("fp32", "bf16", "q4_0", "int8", "tf32", "mxfp4_bf16")] == (
        "fp32 bf16 fp16 fp16 fp16 bf16"
    ).split()
    with pytest.raises(ValueError, match="KV cache 'q4_0'"):
        workload.check_format("q4_0", "kv")


def test_largest_batch_and_longest_context() -> None:
    """Llama-3.1-8B in FP16 has 16.06 GB of weights and 131 072 bytes of cache a token."""
    model = architecture.find_model("llama-3.1-8b")
    weights = workload.weight_bytes(model, "fp16")
    left = 72_000_000_000 - weights
    assert workload.Fit(weights, 0, 80_000_000_000, 0.1).usable == 72_000_000_000
    assert [workload.Fit(70, kv, 80, 0.1).fits for kv in (2, 3)] == [True, False]
    assert workload.largest_batch(model, "fp16", 4096, left) == left // (4096 * 131_072)
    assert workload.longest_context(model, "fp16", 16, left) == left // (16 * 131_072)
    small = workload.Fit(weights, 0, 17_000_000_000, 0.1).usable - weights
    assert workload.largest_batch(model, "fp16", 4096, small) == 0
    assert workload.longest_context(model, "fp16", 1, small) == 0


def test_longest_context_with_windows() -> None:
    """From the window on only some of the layers grow."""
    model = architecture.find_model("gemma-3-4b")
    token = 2 * 4 * 256 * 2
    usable = (29 * 1024 + 5 * 10_000) * token
    assert workload.longest_context(model, "fp16", 1, usable) == 10_000


def test_any_context_fits_if_all_layers_have_a_window() -> None:
    """The cache stops growing, so there is no longest context."""
    given = LLAMA | {"model_type": "mistral", "sliding_window": 64}
    model = checkpoints.from_dict(given)
    held = workload.kv_bytes(model, "fp16", 1, 64)
    assert workload.longest_context(model, "fp16", 1, held) is None
    assert workload.longest_context(model, "fp16", 1, held - 1) == 63
    assert " any\n" in str(bwprof.model_step(given, device="H200"))


def test_bytes_of_omitted_work() -> None:
    """An addition of n elements reads two and writes one; a norm reads and writes its tokens, and reads its gains."""
    model = architecture.find_model("llama-3.1-8b")
    found = {item.what: item for item in workload.list_omitted(model, StepPoint(DECODE, 4, 100, "fp16", "fp16"))}
    assert (found["residual additions"].count, found["residual additions"].bytes) == (64, 3 * 4 * 4096 * 2)
    assert (found["norms"].count, found["norms"].bytes) == (65, (2 * 4 + 1) * 4096 * 2)
    assert found["activation functions"].bytes == 3 * 4 * 14336 * 2
    assert found["rotary embeddings"].bytes == 2 * 4 * (32 + 8) * 128 * 2


# ---- config.json ----


def test_config_of_llama() -> None:
    found = checkpoints.from_dict(LLAMA, name="llama-3.1-8b")
    assert found == architecture.find_model("llama-3.1-8b")


def test_published_configs_are_the_models_of_their_names() -> None:
    """Published files omit fields that have their default."""
    cases = {
        "qwen2.5-0.5b": {
            "model_type": "qwen2",
            "hidden_size": 896,
            "intermediate_size": 4864,
            "max_window_layers": 21,
            "num_attention_heads": 14,
            "num_hidden_layers": 24,
            "num_key_value_heads": 2,
            "sliding_window": 32768,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
        "mistral-7b-v0.3": {
            "architectures": ["MistralForCausalLM"],
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "sliding_window": None,
            "vocab_size": 32768,
        },
        "mixtral-8x7b": {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_experts_per_tok": 2,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "sliding_window": None,
            "vocab_size": 32000,
        },
        "gemma-2-9b": {
            "model_type": "gemma2",
            "head_dim": 256,
            "hidden_size": 3584,
            "intermediate_size": 14336,
            "num_attention_heads": 16,
            "num_hidden_layers": 42,
            "num_key_value_heads": 8,
            "sliding_window": 4096,
            "vocab_size": 256000,
        },
        "gemma-3-4b": {
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        },
        "gpt-oss-20b": {
            "model_type": "gpt_oss",
            "head_dim": 64,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
            "num_attention_heads": 64,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 24,
            "num_key_value_heads": 8,
            "num_local_experts": 32,
            "sliding_window": 128,
            "vocab_size": 201088,
        },
    }
    for name, content in cases.items():
        known = architecture.find_model(name)
        assert replace(checkpoints.from_dict(content, name=name), max_context=known.max_context) == known, name


def test_config_of_gpt2() -> None:
    found = checkpoints.from_dict({"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12})
    assert found.parameters == pytest.approx(124_439_808, rel=1e-3)
    parts = by_role(parts_of(found, layout="separate", context=100))
    assert parts["up"].params["N"] == 3072
    assert "gate" not in parts
    assert not any(
        item.what == "rotary embeddings"
        for item in workload.list_omitted(found, StepPoint(DECODE, 1, 9, "fp16", "fp16"))
    )


def test_config_with_shared_and_dense_experts() -> None:
    content = LLAMA | {
        "model_type": "qwen2_moe",
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 100,
        "shared_expert_intermediate_size": 300,
        "mlp_only_layers": [0],
        "decoder_sparse_step": 2,
    }
    found = checkpoints.from_dict(content)
    assert (found.experts, found.ffn, found.shared_ffn, found.dense_layers, found.dense_ffn) == (6, 100, 300, 16, 14336)
    parts = by_role(parts_of(found))
    assert (parts["gate up"].count, parts["shared down"].count, parts["expert down"].count) == (16, 16, 16)


def test_optional_windows() -> None:
    asked = LLAMA | {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 30}
    found = checkpoints.from_dict(asked)
    assert (found.window, found.window_layers, found.head_dim) == (64, 2, 128)
    assert checkpoints.from_dict(asked | {"use_sliding_window": False}).window_layers == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "falcon"}, "unknown architecture 'falcon'.*llama.*gpt2"),
        ({"model_type": 7}, "unknown architecture '7'"),
        ({"model_type": "gemma3", "text_config": 3}, "text_config is 3"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": 1e3}, "hidden_size is 1000.0"),
        ({"hidden_size": 2**40}, "hidden_size is 1099511627776"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_key_value_heads": 5}, "num_heads is 32: a multiple of num_kv_heads"),
        ({"num_attention_heads": 3}, "head_dim is missing"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'"),
        ({"layer_types": ["full_attention"]}, "layer_types is"),
        ({"layer_types": ["linear_attention"] * 32}, "unknown layer type 'linear_attention'"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window is missing"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "experts_per_token is 9"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [0.5]}, "mlp_only_layers is"),
    ],
)
def test_a_damaged_config_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^config: .*{said}"):
        checkpoints.from_dict(LLAMA | change)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"null", b"\xff\xfe", b'{"hidden_size": 1}', b"[" * 100_000])
def test_a_file_without_a_config_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json: "):
        load_model(path)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*LLAMA, "layer_types"]), inner),
        max_leaves=8,
    )
)
def test_any_config_is_a_model_or_a_value_error(change: Any) -> None:
    content = LLAMA | change if isinstance(change, dict) else change
    try:
        found: Architecture | str = checkpoints.from_dict(content)
    except ValueError as error:
        found = str(error)
    assert found.startswith("config: ") if isinstance(found, str) else found.parameters > 0


SIZES: dict[str, Any] = {
    **{"name": "x", "hidden": 64, "ffn": 128, "layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16},
    **{"vocab": 100, "experts": 8, "experts_per_token": 2},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 3}, ["name", "3"]),
        ({"gated": 1}, ["gated", "1"]),
        ({"vocab": 2.0}, ["vocab", "2.0"]),
        ({"experts_per_token": 9}, ["experts_per_token", "9", "8"]),
        ({"window": 64}, ["window", "window_layers"]),
        ({"dense_layers": 1}, ["dense_layers", "dense_ffn"]),
        ({"more": 1}, ["more"]),
        ({"hidden": None}, ["hidden"]),
    ],
)
def test_sizes_of_a_damaged_file_are_refused(change: dict[str, Any], words: list[str]) -> None:
    assert Architecture.from_dict(SIZES).experts == 8
    with pytest.raises(ValueError, match=words[0]) as caught:
        Architecture.from_dict(SIZES | change)
    assert all(word in str(caught.value) for word in words)
    with pytest.raises(ValueError, match="hidden"):
        Architecture.from_dict({name: value for name, value in SIZES.items() if name != "hidden"})


def test_a_config_by_its_folder_and_file(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    for path in (folder, str(folder), folder / "config.json"):
        assert load_model(path)[0].name == "mine"
    with pytest.raises(ValueError, match="in this folder"):
        load_model(tmp_path)


def test_an_unknown_model() -> None:
    with pytest.raises(ValueError, match=r"'lama-3.1-8b'.*'llama"):
        load_model("lama-3.1-8b")
    with pytest.raises(ValueError, match="model is 3"):
        load_model(3)  # type: ignore[arg-type]
    assert load_model("LLAMA-3.1-8B")[0].name == "llama-3.1-8b"


# ---- GGUF ----


def gguf_file(path: Path, **changes: Any) -> Path:
    """Two layers, of which one stores its down projection and its values in more bits; no weights of their own for the
    head.
    """
    gguf = pytest.importorskip("gguf", reason="reading GGUF files needs the package gguf")
    import numpy as np

    writer = gguf.GGUFWriter(path, changes.get("arch", "llama"))
    writer.add_block_count(2)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(changes.get("heads", 4))
    writer.add_head_count_kv(2)
    writer.add_context_length(100)
    shapes = {"attn_q": (256, 256), "attn_k": (128, 256), "attn_v": (128, 256), "attn_output": (256, 256)}
    shapes |= {"ffn_gate": (512, 256), "ffn_up": (512, 256), "ffn_down": (256, 512)}
    types = gguf.GGMLQuantizationType

    def add(name: str, rows: int, columns: int, kind: Any) -> None:
        elems, size = gguf.GGML_QUANT_SIZES[kind]
        data = np.zeros((rows, columns // elems * size), dtype=np.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)

    add("token_embd.weight", 1000, 256, types.Q6_K)
    for layer in range(2):
        for name, (rows, columns) in shapes.items():
            more = layer == 1 and name in ("ffn_down", "attn_v")
            add(f"blk.{layer}.{name}.weight", rows, columns, types.Q6_K if more else types.Q4_K)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", np.zeros(256, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf(tmp_path: Path) -> None:
    """Bytes by hand: Q4_K has 144 for 256 weights, Q6_K 210."""
    model, stored = load_model(gguf_file(tmp_path / "small.gguf"))
    assert stored is not None
    assert (model.hidden, model.ffn, model.layers, model.num_heads, model.num_kv_heads) == (256, 512, 2, 4, 2)
    assert (model.head_dim, model.vocab, model.tied_embeddings) == (64, 1000, True)
    attention, mlp = 256 * 256 * 2 + 128 * 256 * 2, 3 * 512 * 256
    six = 1000 * 256 + 128 * 256 + 256 * 512
    four = 2 * (attention + mlp) - (128 * 256 + 256 * 512)
    assert stored.types["Q4_K"] == {"tensors": 12, "bytes": four * 144 // 256, "token_bytes": four * 144 // 256}
    assert stored.types["Q6_K"] == {"tensors": 3, "bytes": six * 210 // 256, "token_bytes": six * 210 // 256}
    assert stored.types["F32"]["bytes"] == 2 * 256 * 4
    assert stored.total_bytes == four * 144 // 256 + six * 210 // 256 + 2048
    point = StepPoint(DECODE, 1, 32, workload.AS_STORED, "fp16")
    asked = workload.ModelRequest(model, (point,), stored=stored)
    found = [(part.role, part.precision, part.count) for part in asked.parts(point)]
    assert ("q", "q4_k", 2) in found
    assert [item for item in found if item[0] in ("v", "down", "lm head")] == [
        ("v", "q4_k", 1),
        ("v", "q8_0", 1),
        ("down", "q4_k", 1),
        ("down", "q8_0", 1),
        ("lm head", "q8_0", 1),
    ]
    assert asked.weight_bytes(workload.AS_STORED) == stored.total_bytes
    step = bwprof.model_step(tmp_path / "small.gguf", device="H200", context=32, weights=["stored", "fp16"])
    assert step.frame.groupby("weights")["role"].nunique().tolist() == [10, 10]  # both as llama.cpp runs them
    assert stored.total_bytes in step.steps["weight_bytes"].tolist()
    assert "Q6_K" in str(step)
    assert workload.ModelRequest.from_dict(json.loads(json.dumps(asked.to_dict()))) == asked
    empty = replace(asked, stored=workload.StoredWeights(0, {"F32": {"tensors": 0}}, {}))
    assert workload.ModelRequest.from_dict(json.loads(json.dumps(empty.to_dict()))) == empty


def test_a_damaged_gguf_file_is_refused(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "falcon.gguf", arch="falcon")
    with pytest.raises(ValueError, match="unknown architecture 'falcon'"):
        load_model(path)
    with pytest.raises(ValueError, match="num_heads is 3"):
        load_model(gguf_file(tmp_path / "heads.gguf", heads=3))
    whole = gguf_file(tmp_path / "small.gguf").read_bytes()
    for place, content in enumerate((b"", b"GGUF", b"PK\3\4", whole[:40], whole[:4] + b"\xff" * 100)):
        damaged = tmp_path / f"damaged{place}.gguf"
        damaged.write_bytes(content)
        with pytest.raises(ValueError, match=f"damaged{place}.gguf: no GGUF file"):
            load_model(damaged)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none.gguf")


def test_gguf_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"pip install 'bwprof\[gguf\]'"):
        load_model(path)


# ---- arguments ----


def test_ranges_of_batches_and_contexts() -> None:
    found = bwprof.model_step("qwen2.5-0.5b", device="H200", batch=["1..4:x2", 6], context="1Ki,2Ki..4Ki:+2Ki").frame
    assert sorted(set(found["step_batch"])) == [1, 2, 4, 6]
    assert sorted(set(found["context"])) == [1024, 2048, 4096]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": "x"}, "batch: 'x' is not a whole number"),
        ({"batch": []}, "batch has no values"),
        ({"context": -1}, "context is -1"),
        ({"context": 2**31}, "context is 2147483648"),
        ({"weights": "fp9"}, "unknown precision of weights 'fp9'"),
        ({"weights": "stored"}, "unknown precision of weights 'stored'"),
        ({"kv": "q4_0"}, "unknown precision of the KV cache"),
        ({"kv": 3}, "kv is 3"),
        ({"layout": "both"}, "unknown layout 'both'"),
        ({"reserve": 1}, "reserve is 1"),
        ({"reserve": math.nan}, "reserve is nan"),
        ({"reserve": 10**400}, "reserve is 1000"),
        ({"memory": 0}, "memory is 0"),
        ({"batch": list(range(1, 50)), "context": list(range(1, 50))}, "2401 steps are requested"),
        ({"device": "A100-90G"}, "did you mean 'A100-80GB'"),
        ({"device": "cpu", "predict": True}, "predict: name a device"),
        ({"device": "cpu", "efficiency": 0.5}, "efficiency goes with predictions"),
    ],
)
def test_arguments_out_of_range_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bwprof.model_step("llama-3.1-8b", **({"device": "H200"} | change))


def test_a_config_with_a_million_dense_layers_takes_no_time() -> None:
    """The time grows with the sum of list and layers, not with their product."""
    others = list(range(10**6, 2 * 10**6))
    experts = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": others}
    found = checkpoints.from_dict(LLAMA | experts | {"num_hidden_layers": 100_000})
    assert found.dense_layers == 0


def test_a_head_that_no_kernel_accepts() -> None:
    model = architecture.Architecture("wide", 512, 512, 1, 1, 1, 512, 100)
    with pytest.raises(ValueError, match=r"^wide, decode .*head_dim"):
        bwprof.model_step(model, context=16, device="H200")
