"""The registry's precisions and types are what tests/precisions knows of them."""

from __future__ import annotations

import numpy as np
import pytest
from precisions import PRECISIONS, ROLES, TYPES

from bwprof import _core, registry

on_each_type = pytest.mark.parametrize("name", TYPES)


def decoded(dtype: str, data: bytes) -> np.ndarray:
    return np.frombuffer(_core.decode(dtype, data), dtype=np.float32)


def test_every_precision_has_its_module() -> None:
    names = {row["name"] for row in _core.precisions()}
    assert not names - set(PRECISIONS), "tests/precisions has no module for these: add one as its __init__ says"
    assert not set(PRECISIONS) - names, "BW_PRECISIONS has no row for these: remove their modules"
    blocks = {row["name"]: (row["block_elems"], row["block_bytes"]) for row in _core.dtypes()}
    assert blocks == {name: kind.block for name, kind in TYPES.items()}, "TYPES and BW_DTYPES differ"


@pytest.mark.parametrize("name", PRECISIONS)
def test_roles_and_bytes(name: str) -> None:
    row = next(row for row in _core.precisions() if row["name"] == name)
    assert tuple(row[role] for role in ROLES) == PRECISIONS[name].roles
    assert tuple(row[f"{role}_scales"] for role in ROLES[:3]) == PRECISIONS[name].scales
    bits = [8 * TYPES[kind].block[1] / TYPES[kind].block[0] for kind in PRECISIONS[name].roles[:3] if kind]
    assert registry.is_narrow(name) == (min(bits) < 16)
    cost = _core.cost("gemm", name, {"M": 1, "N": 4096, "K": 4096})
    assert (cost["bytes_read"], cost["bytes_written"]) == PRECISIONS[name].gemm_bytes


@on_each_type
def test_values_are_stored_as_by_hand(name: str) -> None:
    values, stored = TYPES[name].encoded
    assert _core.encode(name, np.float32(values)).hex() == stored


@on_each_type
def test_all_bytes_decode(name: str) -> None:
    size = TYPES[name].block[1]
    data = bytes(range(256)) * size + np.random.default_rng(3).bytes(256 * size)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(decoded(name, data), TYPES[name].decode(data).astype(np.float32))


SIGNED_BYTES = [name for name, kind in TYPES.items() if kind.block == (1, 1) and kind.decode(b"\x80\xff").min() < 0]


@pytest.mark.parametrize("name", SIGNED_BYTES)
def test_a_byte_is_the_nearest_value_or_the_even_one_of_two(name: str) -> None:
    table = TYPES[name].decode(bytes(range(256))).astype(np.float64)
    numbers = np.unique(table[~np.isnan(table)])
    finite = numbers[np.isfinite(numbers)]
    between = (finite[1:] + finite[:-1]) / 2
    values = np.concatenate([finite, between, np.nextafter(between, np.inf, dtype=np.float32)]).astype(np.float32)
    for value, found in zip(values.tolist(), decoded(name, _core.encode(name, values)).tolist(), strict=True):
        distance = np.abs(finite - value)
        nearest = [finite[i] for i in np.flatnonzero(distance == distance.min())]
        even = [near for near in nearest if _core.encode(name, np.float32([near]))[0] % 2 == 0]
        assert found == (nearest[0] if len(nearest) == 1 else even[0]), value
    ends = decoded(name, _core.encode(name, np.float32([1e9, -1e9, np.inf])))
    assert ends.tolist() == [numbers[-1], numbers[0], numbers[-1]]


def test_narrower_precisions_have_fewer_bits_in_each_role() -> None:
    assert registry.narrower_precisions("fp32")[:2] == ["fp16", "bf16"]
    assert registry.narrower_precisions("bf16")[:2] == ["fp8_e4m3", "int8"]
    assert "q4_0" in registry.narrower_precisions("int8", ("weight",))
    assert [registry.narrower_precisions(name) for name in ("q4_0", "tf32", "unknown")] == [[], [], []]


def test_a_new_precision_has_spellings() -> None:
    assert {"fp6", "e3m2", "float6", "f6e3m2", "float6e3m2fn"} < {*registry._spellings("fp6_e3m2")}
    assert set(registry._spellings("q8_0")) == {"q8"}
