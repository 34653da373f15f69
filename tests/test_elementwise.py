"""Element-wise operations: the mask of dropout, the accuracy of gelu, values that are no numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import references
from operations.elementwise import dropout_numbers, mask

from bwprof import _core

kernel_device, opened = references.kernel_device, references.opened
CHAIN = "bias_relu_dropout_residual"


def run(device: Any, operation: str, precision: str, params: dict[str, int], variant: str, **given: Any) -> np.ndarray:
    with _core.Case(device, operation, precision, params, variant=variant) as case:
        operands = {operand["name"]: operand for operand in case.operands}
        bits = {
            name: _core.encode(precision, np.broadcast_to(np.float32(values), operands[name]["shape"]).copy())
            for name, values in given.items()
        }
        return references.decode(operands["out"], case.run(bits)["out"])


def test_known_answers_of_philox() -> None:
    """Random123's, of a counter and a key of zeros."""
    words = dropout_numbers(0, 8).astype(np.uint32).reshape(4, 2)
    assert [hex(low | high << 16) for low, high in words.tolist()] == [
        "0x5f6fb709",
        "0xd893f64",
        "0x4f121f81",
        "0x4f730a48",
    ]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("variant", ["unfused", "fused"])
@pytest.mark.parametrize(("percent", "seed"), [(0, 3), (10, 0), (50, 1 << 33), (99, (1 << 63) - 1)])
def test_every_kernel_has_the_mask_of_the_reference(kernel_device, precision, variant, percent, seed):
    """Bit for bit, and as many elements stay as chance allows."""
    params = {"tokens": 37, "hidden": 4099, "dropout_percent": percent, "mask_seed": seed}
    found = run(kernel_device, CHAIN, precision, params, variant, x=1, bias=0, residual=0).reshape(-1)
    stays = mask(params, found.size)
    assert ((found != 0) == stays).all()
    assert (found[stays] == found[stays][0]).all()
    assert found[stays][0] == pytest.approx(100 / (100 - percent), rel=4e-3)
    share = percent / 100
    assert abs(stays.mean() - (1 - share)) <= 5 * math.sqrt(share * (1 - share) / found.size) + 2.0**-17


def test_masks_differ_by_seed_and_neighbors_do_not_follow_each_other() -> None:
    numbers = [dropout_numbers(seed, 1 << 18) / 65536 for seed in (0, 1)]
    assert abs(np.corrcoef(*numbers)[0, 1]) < 0.01
    for lag in (1, 2, 7, 8, 64):
        assert abs(np.corrcoef(numbers[0][lag:], numbers[0][:-lag])[0, 1]) < 0.01


def test_what_an_unfused_chain_moves(kernel_device):
    """9 n elements and the bias against 3 n, of two bytes."""
    params = {"tokens": 10, "hidden": 100}
    moved = {}
    for variant in ("unfused", "fused"):
        with _core.Case(kernel_device, CHAIN, "fp16", params, variant=variant) as case:
            moved[variant] = case.cost["algorithmic_bytes_read"] + case.cost["algorithmic_bytes_written"]
    assert moved == {"unfused": 2 * (9 * 1000 + 100), "fused": 2 * (3 * 1000 + 100)}


def test_gelu_beside_the_error_function(kernel_device):
    """Within 1e-7 of the size of results, from far below zero to far above."""
    x = np.concatenate([np.linspace(-10, 10, 20_001), np.linspace(-0.01, 0.01, 101), [-1e30, 1e30]]).astype(np.float32)
    name = kernel_device.variants("gelu", "fp32", {"elements": x.size})[-1]["name"]
    found = run(kernel_device, "gelu", "fp32", {"elements": x.size}, name, x=x)
    expected = [0.5 * value * math.erfc(-value * math.sqrt(0.5)) for value in x.tolist()]
    assert (np.abs(found - expected) <= 8 * 2.0**-24 * np.maximum(np.abs(expected), 0.34)).all()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("operation", "names"), [("relu", "x"), ("gelu", "x"), ("silu_mul", "gate up"), (CHAIN, "x")])
def test_a_nan_stays_one_and_large_numbers_overflow_nothing(kernel_device, operation, names, precision):
    values = np.float32([np.nan, np.inf, 300.0, -300.0, 0.0] * 40)
    params = {"tokens": 1, "hidden": 200, "dropout_percent": 0} if operation == CHAIN else {"elements": 200}
    given = {name: values if name == names.split()[0] else 1.0 for name in names.split()}
    if operation == CHAIN:
        given |= {"bias": 0, "residual": 0}
    for variant in kernel_device.variants(operation, precision, params):
        found = run(kernel_device, operation, precision, params, variant["name"], **given).reshape(-1)
        assert np.isnan(found[0::5]).all()
        assert (found[1::5] == np.inf).all()
        assert (found[2::5] == 300).all()
        assert (np.abs(found[3::5]) < 1e-6).all()
        assert (found[4::5] == 0).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_largest_negative_gates_close(kernel_device, precision):
    gates = np.float32([-90, -1e3, -1e30, -1e36, -3e38] * 20)
    (variant,) = kernel_device.variants("silu_mul", precision, {"elements": 100})
    found = run(kernel_device, "silu_mul", precision, {"elements": 100}, variant["name"], gate=gates, up=1.0)
    assert (np.abs(found) < 1e-30).all()


@pytest.mark.parametrize("hidden", [9, 64])
def test_a_nan_is_no_number_in_eight_bits(cpu, hidden):
    for variant in cpu.variants("silu_mul_quantize", "fp8_e4m3", {"tokens": 2, "hidden": hidden}):
        params = {"tokens": 2, "hidden": hidden}
        with _core.Case(cpu, "silu_mul_quantize", "fp8_e4m3", params, variant=variant["name"]) as case:
            up = np.ones((2, hidden), np.float16)
            up[1, 3] = np.nan
            out = np.frombuffer(case.run({"gate": np.ones_like(up).tobytes(), "up": up.tobytes()})["out"], np.uint8)
        assert ((out.reshape(2, hidden) & 0x7F) == 0x7F).tolist() == (np.isnan(up)).tolist()


@pytest.mark.parametrize("kernel_device", references.DEVICES[-1:], indirect=True)
@pytest.mark.parametrize("operation", ["relu", "stream_copy"])
@pytest.mark.parametrize("elements", [(1 << 27) - 1, 1 << 27, (1 << 27) + 2053])
def test_large_arrays_on_a_gpu(kernel_device, operation, elements):
    """From 256 MiB on by other blocks."""
    with _core.Case(kernel_device, operation, "fp16", {"elements": elements}) as case:
        verdict = case.verify(budget_s=0.2)
    assert verdict["verified"], verdict["reason"]
