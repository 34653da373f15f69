"""Models with a quantization_config: bytes stored, bytes read, times, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bwprof
from bwprof.llm import workload
from bwprof.llm.model_step import load_model

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "data/quantized_models.json").read_text())
DEVICE = "bandwidth=3000,fp16=1000,memory=1000"
SMALL = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
# Of each layer: q, k, v, o, gate, up, down, rows x columns.
MATRICES = [(512, 512), (256, 512), (256, 512), (512, 512), (1024, 512), (1024, 512), (512, 1024)]
PLAIN = 2 * 2 * 1000 * 512  # table and head, 16 bits
FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True}


def compressed(weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **more}


def config_of(name: str) -> dict[str, Any]:
    found = FACTS[name]
    return {**FACTS["families"][found["of"]], "quantization_config": found["quantization_config"]}


@pytest.mark.parametrize("name", [name for name in FACTS if name != "families"])
def test_bytes_of_published_models(name: str) -> None:
    """Bytes stored and read by a token, norms and biases aside: 0.1 % at most."""
    config, found = config_of(name), FACTS[name]
    model, stored = load_model(config)
    assert stored is not None
    assert stored.total_bytes == pytest.approx(found["weight_bytes"], rel=0.0015)
    step = bwprof.model_step(config, kv="fp16", device=DEVICE)
    line = step.steps.iloc[0]
    assert (line["weights"], line["weight_bytes"]) == ("stored", stored.total_bytes)
    assert line["read_bytes"] - line["kv_bytes"] == pytest.approx(found["read_bytes"], rel=0.0015)
    weights = step.frame[step.frame["operation"].isin(["gemm", "moe_gemm"])]
    moved = (weights["count"] * weights["bytes_read"]).sum()  # by which times are predicted
    assert moved == pytest.approx(found["read_bytes"], rel=0.01)
    assert workload.kv_bytes(model, "fp16", 1, 4096) == found["cache_bytes_at_4096"]


@pytest.mark.parametrize(
    ("quantization", "precision", "size"),
    [
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            "int4_g128_bf16",
            lambda r, c: r * c / 2 + r * c / 128 * 2.5,
        ),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": 64},
            "int8_w8a16",
            lambda r, c: r * c + r * c / 64 * 3 + 4 * c,
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": -1},
            "int4_g128_bf16",
            lambda r, c: r * c / 2 + r * 2.5 + 4 * c,
        ),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            "fp8_block",
            lambda r, c: r * c + 4 * (r // 128) * (c // 128),
        ),
        ({"quant_method": "fp8"}, "fp8_tensor", lambda r, c: r * c + 8),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", lambda r, c: r * c + 4 * r),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            "int4_g64",
            lambda r, c: r * c / 2 + r * c / 64 + 4 * r * c / 16384 + 1024,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", lambda r, c: r * c / 2 + r * c / 16 + 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8_tensor", lambda r, c: r * c + 8),
        (compressed(FLOAT8 | {"strategy": "channel"}), "fp8_w8a16_bf16", lambda r, c: r * c + 2 * r),
        (compressed(FLOAT8 | {"strategy": "tensor"}), "fp8_w8a16_bf16", lambda r, c: r * c + 2),
        (
            compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}, format="pack-quantized"),
            "int4_g32",
            lambda r, c: r * c / 2 + 2 * r * c / 32 + 16,
        ),
        (
            compressed({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64, "symmetric": False}),
            "int4_g64",
            lambda r, c: r * c / 2 + 2.5 * r * c / 64,
        ),
        (
            compressed({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
            "nvfp4",
            lambda r, c: r * c / 2 + r * c / 16 + 8,
        ),
    ],
)
def test_every_scheme_has_its_bytes_and_a_precision(quantization: dict[str, Any], precision: str, size: Any) -> None:
    _, stored = load_model(SMALL | {"quantization_config": quantization})
    assert stored is not None
    assert stored.total_bytes == pytest.approx(PLAIN + 2 * sum(size(*matrix) for matrix in MATRICES), abs=len(MATRICES))
    assert stored.types["bf16"]["bytes"] == PLAIN
    assert set(stored.tensors["ffn_up"]) == {precision}


@pytest.mark.parametrize(
    ("kind", "strategy", "precision"),
    [
        *(("float", "channel", "fp8_e4m3"), ("float", "tensor", "fp8_tensor"), ("float", "block", "fp8_block")),
        *(("int", "channel", "int8"), ("int", "tensor", "int8")),
    ],
)
def test_quantized_activations_have_products_of_eight_bits(kind: str, strategy: str, precision: str) -> None:
    eight = {"num_bits": 8, "type": kind, "strategy": strategy}
    quantization = compressed(eight)
    quantization["config_groups"]["group_0"]["input_activations"] = eight
    _, stored = load_model(SMALL | {"quantization_config": quantization})
    assert stored is not None
    assert set(stored.tensors["ffn_up"]) == {precision}


@pytest.mark.parametrize(
    ("left", "count"),
    [
        (["lm_head"], 0),
        (["model.layers.0.self_attn.q_proj"], 1),
        (["model.layers.1.self_attn"], 4),
        (["self_attn"], 8),
        (["model.layers.*.mlp*"], 6),
        (["re:.*mlp\\.(gate|up)_proj"], 4),
        (["re:model\\.layers\\.[0-9]\\.mlp.*"], 6),
        (["model.language_model.layers.1.mlp.down_proj"], 1),
        (["model.layers.1."], 7),
        (["gate"], 0),  # a router's name, no part of gate_proj
    ],
)
def test_excluded_modules_stay_in_16_bits(left: list[str], count: int) -> None:
    for field in ("modules_to_not_convert", "ignore"):
        quantization = {"quant_method": "fp8", field: left}
        _, stored = load_model(SMALL | {"quantization_config": quantization})
        assert stored is not None
        assert stored.types["bf16"]["tensors"] == 2 + count
        assert stored.types["fp8"]["tensors"] == 14 - count


def test_a_quantized_head() -> None:
    """Products of q, k and v are separate if one of them is stored in another way."""
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}
    _, stored = load_model(SMALL | {"quantization_config": gptq})
    assert stored is not None
    assert stored.types["bf16"]["bytes"] == PLAIN / 2
    mixed = SMALL | {"quantization_config": {"quant_method": "fp8", "ignore": ["model.layers.0.self_attn.v_proj"]}}
    roles = bwprof.model_step(mixed, device=DEVICE).frame
    assert {"q", "k", "v"} < set(roles["role"])
    assert roles[roles["role"] == "v"].set_index("precision")["count"].to_dict() == {"fp8_tensor": 1, "bf16": 1}


def test_groups_of_compressed_tensors_have_targets() -> None:
    four = {"num_bits": 4, "type": "int", "strategy": "channel"}
    groups = {
        "group_0": {"targets": ["Linear"], "weights": FLOAT8 | {"strategy": "channel"}},
        "group_1": {"targets": ["re:.*down_proj"], "weights": four},
    }
    for found in (groups, dict(reversed(groups.items()))):
        quantization = {"quant_method": "compressed-tensors", "config_groups": found, "ignore": []}
        _, stored = load_model(SMALL | {"quantization_config": quantization})
        assert stored is not None
        assert stored.types["compressed-tensors 4 bits int"]["tensors"] == 2


def test_the_scheme_gives_the_precision_of_the_cache() -> None:
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    quantization = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": scheme}
    config = SMALL | {"quantization_config": quantization}
    assert bwprof.model_step(config, device=DEVICE).steps["kv"].tolist() == ["fp8_e4m3"]
    assert bwprof.model_step(config, kv="bf16", device=DEVICE).steps["kv"].tolist() == ["bf16"]
    assert bwprof.model_step(config, weights="bf16", device=DEVICE).steps["kv"].tolist() == ["bf16"]


def test_a_quantized_step_in_other_formats(tmp_path: Path) -> None:
    """Times follow the stored bytes; a saved step is loaded unchanged."""
    config = config_of("llama-3.1-8b-w4a16")
    step = bwprof.model_step(config, weights=["stored", "fp16"], device=DEVICE, output=tmp_path / "step.json")
    times = step.steps.set_index("weights")["time_ms"]
    formats = step.formats.set_index("weights")["time_ms"]
    alone = bwprof.model_step(config, device=DEVICE).formats.set_index("weights")["time_ms"]
    assert formats["fp16"] == pytest.approx(times["fp16"])
    assert alone["fp16"] == pytest.approx(times["fp16"], rel=0.02)  # worked out from the step as stored
    again = bwprof.ModelStep.from_frame(bwprof.load(tmp_path / "step.json"))
    assert again.steps.equals(step.steps)
    assert again.request == step.request


def test_gpt_oss_fits_one_device_by_its_name() -> None:
    """It is published in MXFP4: 65 GB for 117 billion weights."""
    step = bwprof.model_step("gpt-oss-120b", device="H100-SXM")
    assert step.steps["fits"].tolist() == [True]
    assert step.steps["weight_bytes"].tolist() == [pytest.approx(65.25e9, rel=0.002)]


def test_a_token_adds_nothing_to_a_full_window() -> None:
    """36 layers, of which 18 keep 128 tokens: 2 x 8 x 64 x 2 bytes each."""
    room = bwprof.model_step("gpt-oss-120b", context=[64, 4096], device="H100-SXM").room
    assert room.dropna(subset=["context"])["token_bytes"].tolist() == [36 * 2048, 18 * 2048]


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        ({"quant_method": "hqq"}, "unknown quant_method of quantization_config 'hqq': Allowed: awq, gptq, fp8"),
        ({"bits": 4}, "unknown quant_method of quantization_config 'None'"),
        ("awq", "unknown quant_method of quantization_config 'awq'|quantization_config"),
        ({"quant_method": "gptq", "bits": 5, "group_size": 128}, "gptq: missing, or not read: 5"),
        ({"quant_method": "gptq", "group_size": 128}, "gptq: missing, or not read: 'bits'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "all"}, "gptq: missing, or not read"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "fp8: missing, or not read"),
        ({"quant_method": "fp8", "weight_block_size": [-128, 128]}, "fp8: missing, or not read"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "fp8: missing, or not read"),
        ({"quant_method": "fp8", "ignore": ["re:(a+)+b"]}, "modules by 're:"),
        ({"quant_method": "fp8", "ignore": ["re:.*a.*b.*c.*d.*e"]}, "modules by 're:"),
        ({"quant_method": "fp8", "ignore": 3}, "ignore"),
        ({"quant_method": "fp8", "ignore": ["model.layers.1.mlp.experts.7.up_proj"]}, "modules by 'model.layers.1"),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 4, "type": "int"}}, "missing, or not read"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "modelopt: missing, or not read: 'W4A8_AWQ'"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes: missing, or not read"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors: missing, or not read: 'config_groups'"),
        (compressed({"num_bits": 6, "type": "float"}), "compressed-tensors: missing, or not read"),
        (compressed(FLOAT8 | {"strategy": "channel"}, sparsity_config={"format": "x"}), "sparsity_config"),
        (compressed({"num_bits": 4, "type": "int", "strategy": "channel"}, format="marlin-24"), "marlin-24"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*up_proj": {}}}, "gptq: .*dynamic"),
        ({"quant_method": "mxfp4"}, "mxfp4: it quantizes no matrix"),  # it is of experts alone
    ],
)
def test_unknown_quantization_is_refused(quantization: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"config: .*{said}"):
        load_model(SMALL | {"quantization_config": quantization})


@pytest.mark.parametrize("field", ["compression_config", "quantization"])
def test_other_names_of_the_field_are_read(field: str) -> None:
    """Earlier versions of transformers, and MLX, use them."""
    _, stored = load_model(SMALL | {field: compressed(FLOAT8 | {"strategy": "channel"})})
    assert stored is not None
    assert stored.types["compressed-tensors 8 bits float"]["tensors"] == 14
    with pytest.raises(ValueError, match="quant_method"):
        load_model(SMALL | {field: {"group_size": 64, "bits": 4}})


@pytest.mark.parametrize(
    ("kind", "precision"), [("float16", "int4_g128"), ("bfloat16", "int4_g128_bf16"), ("float32", "int4_g128")]
)
def test_activations_have_the_dtype_of_the_file(kind: str, precision: str) -> None:
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 128}
    _, stored = load_model(SMALL | {"torch_dtype": kind, "quantization_config": quantization})
    assert stored is not None
    assert set(stored.tensors["ffn_up"]) == {precision}


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
def test_other_matrices_have_the_dtype_of_the_file(kind: str) -> None:
    _, stored = load_model(SMALL | {"torch_dtype": kind, "quantization_config": {"quant_method": "fp8"}})
    assert stored is not None
    label = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}[kind]
    assert stored.types[label]["bytes"] == PLAIN * (2 if label == "fp32" else 1)


def test_a_quantization_file_beside_the_config_is_refused(tmp_path: Path) -> None:
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(SMALL))
        assert load_model(folder)[1] is None
        (folder / name).symlink_to("nowhere")
        with pytest.raises(ValueError, match=name):
            load_model(folder)
        (folder / name).unlink()
        (folder / name).write_text("{}")
        with pytest.raises(ValueError, match=name):
            load_model(folder)
        (folder / "config.json").write_text(json.dumps(SMALL | {"quantization_config": {"quant_method": "fp8"}}))
        assert load_model(folder)[1] is not None
