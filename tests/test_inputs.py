"""Generated inputs: the same bits everywhere, made anew here from their definition."""

from __future__ import annotations

import numpy as np
import pytest
from precisions import TYPES

from bwprof import _core
from bwprof.registry import variant_names

ROUNDED = {name: kind.rounded for name, kind in TYPES.items() if kind.rounded}
MASK64 = (1 << 64) - 1


def mix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def expected_values(seed: int, operand: int, count: int) -> np.ndarray:
    """The definition of csrc/base/types/input.h in NumPy's 32-bit arithmetic (indices below 2**32)."""
    key = mix64((mix64(seed) + operand) & MASK64)
    offset, mask = np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)
    x = np.arange(count, dtype=np.uint32) ^ offset
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    x = (x ^ mask ^ (x >> np.uint32(16))) * np.uint32(0x9E3779B1)
    x ^= x >> np.uint32(15)
    return (x.view(np.int32) >> 8).astype(np.float32) / np.float32(1 << 23)


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 5])
@pytest.mark.parametrize("precision", ROUNDED)
def test_inputs_are_the_defined_hash(device, precision, seed):
    if not variant_names("gemm", device.backend, precision):
        pytest.skip(f"{device.backend} has no {precision} kernels, so no case can be made there")
    with _core.Case(device, "gemm", precision, {"M": 37, "N": 53, "K": 101}, seed=seed) as case:
        bits = case.inputs()
    for operand, (name, elems) in enumerate((("A", 37 * 101), ("B", 53 * 101))):
        values = np.frombuffer(_core.decode(precision, bits[name]), dtype=np.float32)
        np.testing.assert_array_equal(values, ROUNDED[precision](expected_values(seed, operand, elems)))


def test_inputs_are_uniform():
    values = expected_values(3, 0, 1 << 20).astype(np.float64)
    assert abs(values.mean()) < 4 / np.sqrt(3 * values.size)  # four standard errors
    assert values.var() == pytest.approx(1 / 3, rel=0.01)
    assert values.min() >= -1
    assert values.max() < 1
    counts, _ = np.histogram(values, bins=64, range=(-1, 1))
    assert counts.min() > 0.95 * values.size / 64


@pytest.mark.parametrize("precision", ROUNDED)
def test_encoding_rounds_to_nearest_even(precision):
    rng = np.random.default_rng(5)
    values = np.concatenate(
        [
            rng.standard_normal(5000).astype(np.float32),
            rng.standard_normal(5000).astype(np.float32) * np.float32(2.0**-20),
            np.array([0.0, -0.0, 1.0, 65504.0, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, np.inf, -np.inf], dtype=np.float32),
            (1 + np.arange(512) * 2.0**-12).astype(np.float32),  # ties of FP16 among them
        ]
    )
    decoded = np.frombuffer(_core.decode(precision, _core.encode(precision, values)), dtype=np.float32)
    np.testing.assert_array_equal(decoded, ROUNDED[precision](values))
    nan = np.frombuffer(_core.decode(precision, _core.encode(precision, np.array([np.nan], np.float32))), np.float32)
    assert np.isnan(nan[0])


@pytest.mark.parametrize("precision", ROUNDED)
def test_values_need_no_alignment(precision):
    """Under UBSan (`.ci/run`) a load that assumes one is an error."""
    values = np.linspace(-3, 3, 37, dtype=np.float32)
    bits = _core.encode(precision, values)
    for skew in (1, 2, 3):
        assert _core.encode(precision, memoryview(bytes(skew) + values.tobytes())[skew:]) == bits
        assert _core.decode(precision, memoryview(bytes(skew) + bits)[skew:]) == _core.decode(precision, bits)


def test_conversion_refuses_broken_buffers():
    with pytest.raises(ValueError, match="float32"):
        _core.encode("fp16", b"123")
    with pytest.raises(ValueError, match="unknown type"):
        _core.decode("fp7", b"12")
