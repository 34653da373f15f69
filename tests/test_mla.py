"""mla_decode: mistakes that `verify` must find, every plan of a GPU, values that only some keys may reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import references
from mistakes import Attention, encoded, inputs_of, keys_to_try
from operations.attention import DEEPSEEK, LONG_DEEPSEEKS, LONG_LENGTHS, latent_attention
from references import check, decode, on_each_device
from test_decode import each_plan
from test_mutations import missed

from bwprof import _core

kernel_device, opened = references.kernel_device, references.opened


@on_each_device
@pytest.mark.parametrize("precision", ["bf16", "fp8_e4m3", "int8"])
def test_verify_finds_every_mistake(kernel_device, precision):
    """Keys left out, taken twice or exchanged, heads exchanged; with scales also 64 scales of neighbors."""
    params = {"batch": 2, "kv_len": 3000, "num_heads": 20, **DEEPSEEK}
    if all(variant["refuses"] for variant in kernel_device.variants("mla_decode", precision, params)):
        pytest.skip(f"no kernel for {precision}")
    with _core.Case(kernel_device, "mla_decode", precision, params, seed=7) as case:
        assert case.verify()["verified"]
        problem = Attention(case)
        right = case.verify(outputs={"out": encoded(case, "out", problem.right())})
        assert right["verified"], right["reason"]
        passed, tried = missed(case, problem.mutations(keys_to_try(problem.keys, 2)))
        if precision == "fp8_e4m3":
            x = inputs_of(case)
            scales = x["cache_scale"]
            x["cache_scale"] = np.concatenate([scales[:, :1024], scales[:, 1023:1087], scales[:, 1088:]], axis=1)
            wrong = latent_attention(x, case.params, {})["out"]
            assert not case.verify(outputs={"out": encoded(case, "out", wrong)})["verified"]
    assert tried > 20
    assert passed == []


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_keys_beyond_an_entry_reach_nothing_and_its_own_all_heads(kernel_device, precision):
    params = {"num_heads": 70, **DEEPSEEK, "kv_len": 150}
    lengths = [150, 1, 70, 128]
    for variant in kernel_device.variants("mla_decode", precision, params, lengths):
        if variant["refuses"]:
            continue
        options = {"kv_lens": lengths, "variant": variant["name"]}
        with _core.Case(kernel_device, "mla_decode", precision, params, **options) as case:
            operands = {operand["name"]: operand for operand in case.operands}
            bits = case.inputs()
            cache = decode(operands["cache"], bits["cache"]).copy()
            for entry, length in enumerate(lengths):
                cache[entry, length:] = np.nan
            given = {"cache": _core.encode(precision, cache.astype(np.float32))}
            assert case.run(given) == case.run({}), variant["name"]
            cache[2, 69, 0, 575] = np.nan
            given = {"cache": _core.encode(precision, cache.astype(np.float32))}
            found = decode(operands["out"], case.run(given)["out"])
            assert np.isnan(found[2]).all(), variant["name"]
            assert np.isfinite(found[[0, 1, 3]]).all(), variant["name"]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp8_e4m3"])
@pytest.mark.parametrize(
    "shape",
    [{"batch": b, "kv_len": kv, "num_heads": h} for b, kv, h in LONG_DEEPSEEKS[1:4]]
    + [{"num_heads": h, "kv_lens": LONG_LENGTHS[0]} for h in (16, 200)],
    ids=str,
)
def test_every_plan(precision, shape):
    with _core.Device("cuda") as device:
        each_plan(device, lambda: check(device, "mla_decode", "hopper", precision, shape | DEEPSEEK))


@on_each_device
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("trend", [1, -1])
def test_scores_that_rise_and_fall(kernel_device, precision, trend):
    """By 9 per hundred keys, and by another rate per head, so that maxima change; one key has the largest score."""
    heads, kv_len = 66, 700
    shape = {"batch": 2, "kv_len": kv_len, "num_heads": heads, **DEEPSEEK}

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(19)
        arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in ("q", "cache")}
        arrays["q"][..., 570] = np.arange(heads) % 5 / (4 if precision == "fp32" else 2)
        ramp = trend * 0.045 * np.sqrt(192) * np.arange(float(kv_len))
        ramp[4 * kv_len // 9] = 100 * np.sqrt(192)
        arrays["cache"][:, :, 0, 570] = np.round(np.clip(ramp, -2000, 2000))
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}

    for variant in kernel_device.variants("mla_decode", precision, shape):
        if not variant["refuses"]:
            check(kernel_device, "mla_decode", variant["name"], precision, shape, given)


@on_each_device
def test_the_widest_keys_of_extreme_bytes(kernel_device):
    """768 products of 127 and the largest word there is exceed 32 bits."""
    shape = {"batch": 1, "kv_len": 2, "num_heads": 1, "latent_dim": 512, "rope_dim": 256}

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        cache = np.array([[127], [-127]], np.int8).repeat(768, 1)
        scales = np.full(2, 1 / (127 * 128), np.float32)
        q = np.full(768, 2.0, np.float32)
        return {"q": _core.encode("fp16", q), "cache": cache.tobytes(), "cache_scale": scales.tobytes()}

    for variant in kernel_device.variants("mla_decode", "int8", shape):
        if not variant["refuses"]:
            check(kernel_device, "mla_decode", variant["name"], "int8", shape, given)
