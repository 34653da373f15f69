"""`bwprof.formats`: numbers, errors and bytes of each format by hand, ggml's own package, and products in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from precisions import PRECISIONS, ROLES, TYPES, scale_bytes, stored_bytes

import bwprof
from bwprof import _core, formats, registry

NAMES = [name for name in PRECISIONS if registry.variant_names("gemm", "cpu", name)]
BLOCKS = ("q4_0", "q8_0", "q4_k")


KINDS = {"int8_w8a16": "int8", **dict.fromkeys(("fp8_w8a16", "fp8_e4m3", "fp8_tensor", "fp8_block"), "fp8")}


def random_weights(rows: int, columns: int) -> np.ndarray:
    """Rows of different sizes, the first of zeros."""
    sizes = np.array([0, *np.exp2(np.arange(rows - 1) - 2.0)])
    return (np.random.default_rng(columns).standard_normal((rows, columns)) * sizes[:, None]).astype(np.float32)


def ranges(weights: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest of each group of a row and zero, at each of its numbers; 0 columns: the row."""
    low, high = np.zeros_like(weights), np.zeros_like(weights)
    for start in range(0, weights.shape[1], columns or weights.shape[1]):
        group = np.s_[:, start : start + (columns or weights.shape[1])]
        low[group] = np.minimum(weights[group].min(1, keepdims=True), 0)
        high[group] = np.maximum(weights[group].max(1, keepdims=True), 0)
    return low, high


@pytest.mark.parametrize(
    ("name", "weights", "parts"),
    [
        ("fp16", [[1.0, -2.0]], {"B": [[1.0, -2.0]]}),
        ("bf16", [[1.0, -2.0]], {"B": [[0x3F80, 0xC000]]}),
        ("int8_w8a16", [[127, -63.5, 2.5], [0, 0, 0]], {"B": [[127, -64, 2], [0, 0, 0]], "B_scale": [1, 0]}),
        ("int8_w8a16", [[-190 * 2.0**-149]], {"B": [[-127]], "B_scale": [2.0**-149]}),  # 190/127 of the least number
        ("fp8_w8a16", [[224, -0.5, 0.53125]], {"B": [[0x7E, 0xB8, 0x38]], "B_scale": [0.5]}),  # 1.0625 is 1
        ("fp8_tensor", [[224, -0.5], [0.53125, 0]], {"B": [[0x7E, 0xB8], [0x38, 0]], "B_scale": [0.5]}),
        # 1.25 and 1.75 keep two bits, 1.125 is 1: 28672 / 57344 is the scale
        ("fp8_e5m2", [[28672, -0.625, 0.5625]], {"B": [[0x7B, 0xBD, 0x3C]], "B_scale": [0.5]}),
        # a range of 7.5: a scale of 0.5, zero is 6; 1.25 is 8.5, so 8
        ("int4_g32", [[-3, 0, 4.5, 1.25]], {"B": [[0x60, 0x8F]], "B_scale": [[0.5]], "B_zero": [[6]]}),
        (
            "int4_g64",
            [[15, 3] + [0] * 62 + [-15, 0]],
            {"B": [[0x3F] + [0] * 31 + [0xF0]], "B_scale": [[1, 1]], "B_zero": [[0xF0]]},
        ),
        ("mxfp4", [[0.5, -1, 7.9], [8, 1, -0.5]], {"B": [[0xA1, 0x07], [0x16, 0x08]], "B_scale": [[127], [128]]}),
        # 1344 / (6 * 448) for all; scales 448, and 1 for the second group
        (
            "nvfp4",
            [[1344] + [0] * 15 + [3, -1.5, 1]],
            {"B": [[7] + [0] * 7 + [0xD7, 4]], "B_whole_scale": [0.5], "B_scale": [[0x7E, 0x38]]},
        ),
        ("q4_0", [[(i - 16) / 8 for i in range(32)]], {"B": [list(bytes.fromhex(TYPES["q4_0"].encoded[1]))]}),
        ("q8_0", [[-127, 1]], {"B": [[0x00, 0x3C, 0x81, 1] + [0] * 30]}),
    ],
)  # fmt: skip
def test_numbers_by_hand(name: str, weights: list[list[float]], parts: dict[str, Any]) -> None:
    found = formats.quantize(weights, name)
    assert {key: part.tolist() for key, part in found.items()} == parts


SHIFTS = 2.0 ** np.arange(-3, 4)[:, None]
E4M3 = TYPES["fp8_e4m3"].decode(bytes(range(127)))
E5M2 = TYPES["fp8_e5m2"].decode(bytes(range(124))).astype(np.float32)
E2M1 = TYPES["fp4_e2m1"].decode(bytes(range(0, 256, 17)))
GROUP, WHOLE = np.arange(8), np.tile(np.arange(16), 2)
KEPT = {
    "int8_w8a16": np.arange(-127, 128) * SHIFTS,
    "fp8_w8a16": np.hstack([E4M3, -E4M3]) * SHIFTS,
    "fp8_tensor": np.hstack([E4M3, -E4M3])[None] / 8,
    "fp8_block": np.kron(SHIFTS[:3], np.ones((128, 1)))[:300] * np.tile(np.hstack([E4M3, -E4M3]), 2)[:500],
    "fp8_e5m2": np.hstack([E5M2, -E5M2]) * SHIFTS,
    "q4_0": (WHOLE - 8) * SHIFTS,
    "q8_0": np.hstack([np.full((8, 1), 127), (np.arange(248) - 127).reshape(8, 31)]) * 2.0 ** (GROUP - 9)[:, None],
    # d 1, m 1/8, the scales and minima of 6 bits of each group, and its numbers
    "q4_k": (np.array([63, 1, 8, 31, 32, 16, 47, 62])[:, None] * WHOLE - 9 * GROUP[:, None] / 8).reshape(1, 256),
    **{f"int4_g{size}": np.tile(WHOLE - WHOLE[:16, None], size // 32) * 0.75 for size in (32, 64, 128)},
    "mxfp4": np.tile(E2M1, 4) * 2.0 ** np.arange(-127, 126)[:, None],
    "nvfp4": np.tile(E2M1, 2) * E4M3[:, None] / 32,
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_every_number_of_a_format_survives(name: str) -> None:
    weights = KEPT[name]
    parts = formats.quantize(weights, name)
    np.testing.assert_array_equal(formats.dequantize(parts, name), weights)


@pytest.mark.parametrize("columns", [1, 33, 300, 512])
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_within_half_a_step(name: str, columns: int) -> None:
    weights = random_weights(6, columns).astype(np.float64)
    parts = formats.quantize(weights, name)
    error = np.abs(formats.dequantize(parts, name, columns) - weights)
    size = np.abs(weights)
    scales = PRECISIONS[name].scales[1]
    each = scales["columns"] if scales else {"q4_k": 256}.get(name, 32)
    low, high = ranges(weights, each)
    if scales and scales["rows"] != 1:  # one for all six rows
        low, high = (np.broadcast_to(end, weights.shape) for end in (low.min(0), high.max(0)))
    largest = np.maximum(high, -low)
    inner = ranges(weights, 32)
    allowed = {
        "fp32": 0 * size,
        "fp16": size * 2.0**-11,
        "bf16": size * 2.0**-8,
        "int8": largest / 127 / 2,
        "fp8": np.maximum(size / 16, largest / 448 * 2.0**-10),
        "fp8_e5m2": np.maximum(size / 8, largest / 57344 * 2.0**-17),
        "q4_0": largest / 8,  # the end that is not -8 steps away has 7
        "q8_0": largest / 127 * (0.5 + 127 / 2**11),  # half a step, and the scale's rounding
        # half a step of the group; 1/126 of the block's largest step, 15 of them, and of its largest minimum
        "q4_k": (inner[1] - inner[0]) / 30 + 16 * (high - low) / 15 / 126 - low / 126,
        "int4": (high - low) / 15 * (0.5 + 15 / 2**11),
        "mxfp4": np.maximum(largest / 16, size / 4),  # from 6 to 8 of its scale, all is 6
        "nvfp4": np.maximum(largest / 24 * (1 + 1 / 16), size / 5),
    }[KINDS.get(kept := name.removesuffix("_bf16"), kept.partition("_g")[0])]
    np.testing.assert_array_less(error, allowed * (1 + 1e-6) + 1e-30)
    kind = PRECISIONS[name]
    stored = stored_bytes(kind.roles[ROLES.index("weight")], 6, columns)
    assert sum(part.nbytes for part in parts.values()) == stored + scale_bytes(kind, "weight", 6, columns)


@pytest.mark.parametrize("columns", [1, 32, 33, 300])
@pytest.mark.parametrize("name", NAMES)
def test_products_with_quantized_weights(name: str, columns: int) -> None:
    """What comes out is the product with the dequantized weights, of a caller's and of generated inputs."""
    a = np.random.default_rng(columns).standard_normal((3, columns)).astype(np.float16)
    given_a: dict[str, Any] = {"A": a}
    if registry.precision_types(name)["activation"]["narrow"]:  # as weights are
        rows = PRECISIONS[name].scales[0]["rows"] or len(a)
        pieces = [formats.quantize(a[start : start + rows], name) for start in range(0, len(a), rows)]
        given_a = {key.replace("B", "A"): np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
        a = np.concatenate([formats.dequantize(piece, name) for piece in pieces])
    numbers = random_weights(6, columns)
    parts = formats.quantize(numbers, name)
    with bwprof.Case("gemm", precision=name, device="cpu", M=3, N=6, K=columns) as case:
        if name in BLOCKS:  # floats are quantized row by row
            np.testing.assert_array_equal(case.run(A=a, B=numbers)["D"], case.run(A=a, **parts)["D"])
        inputs = case.inputs()
        for weights_of, given in ((parts, given_a | parts), (inputs, given_a)):
            weights = formats.dequantize(weights_of, name, columns).astype(np.float64)
            expected = a.astype(np.float64) @ weights.T
            tolerance = 0.01 if name.endswith("bf16") else 1e-3
            found = case.run(**given)["D"]
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    assert (inputs["B"].shape, weights.shape) == ((6, columns), (6, columns))
    assert inputs["B"].dtype == {"fp16": np.float16, "int8": np.int8, "int8_w8a16": np.int8}.get(name, np.float32)


@pytest.mark.parametrize("name", BLOCKS)
def test_ggml_has_the_same_bits(name: str) -> None:
    quants = pytest.importorskip("gguf.quants", reason="comparing with ggml needs the package gguf")
    kind = getattr(pytest.importorskip("gguf").GGMLQuantizationType, name.upper())
    rng = np.random.default_rng(7)
    elems, size = TYPES[name].block
    weights = (rng.standard_normal((100_000, elems)) * np.exp(rng.standard_normal((100_000, 1)))).astype(np.float32)
    stored = rng.integers(0, 256, (100_000, size), dtype=np.uint8)
    stored[:, 1] &= 0xBF  # scales and minima are no infinities
    if name == "q4_k":  # which the package does not quantize to
        stored[:, 3] &= 0xBF
    else:
        np.testing.assert_array_equal(formats.quantize(weights, name)["B"], quants.quantize(weights, kind))
    found, expected = formats.dequantize({"B": stored}, name), quants.dequantize(stored, kind)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("weights", [[[1, np.nan]], [[-np.inf]], [[1e39]], [1.0], [[]], [["a"]], [[[1.0]]], [[1j]]])
def test_what_is_no_matrix_of_finite_numbers_is_refused(weights: Any) -> None:
    with pytest.raises(ValueError, match=r"weights .* needed"):
        formats.quantize(weights, "mxfp4")
    with pytest.raises(ValueError, match="q4_1"):
        formats.quantize([[1.0]], "q4_1")


@pytest.mark.parametrize("name", NAMES)
def test_the_order_in_memory_does_not_matter(name: str) -> None:
    """A transposed matrix, as models and Fortran have it, is what a copy of it is."""
    weights = random_weights(33, 5).T
    parts, same = formats.quantize(weights, name), formats.quantize(weights.copy(), name)
    for key, part in same.items():
        np.testing.assert_array_equal(parts[key], part)
    a = np.ones((33, 2), np.int8 if name == "int8" else np.float32).T
    with bwprof.Case("gemm", precision=name, device="cpu", M=2, N=5, K=33) as case:
        turned = {key: np.asfortranarray(part) for key, part in parts.items()}
        np.testing.assert_array_equal(case.run(A=a, **turned)["D"], case.run(A=a.copy(), **parts)["D"])


def test_bytes_of_another_shape_are_refused() -> None:
    for name in ("q4_0", "int4_g32"):
        parts = formats.quantize(random_weights(3, 64), name)
        with pytest.raises(ValueError, match=r"B has shape \(1, 3, .*\), columns = None: rows of"):
            formats.dequantize(parts | {"B": parts["B"][None]}, name)
        for columns in (-1, 65):
            with pytest.raises(ValueError, match=rf"B has shape .*, columns = {columns}: rows of"):
                formats.dequantize(parts, name, columns)


@pytest.mark.parametrize("name", NAMES)
def test_extremes_are_finite(name: str) -> None:
    weights = [[3e38, -3e38] * 20, [1e-45, -1e-45] * 20]
    assert np.isfinite(formats.dequantize(formats.quantize(weights, name), name)).all() == (name != "fp16")


def test_stored_bytes_have_the_rows_of_their_type() -> None:
    parts = formats.quantize(random_weights(5, 64), "mxfp4")
    with bwprof.Case("gemm", precision="mxfp4", device="cpu", M=1, N=5, K=64) as case:
        with pytest.raises(ValueError, match=r"B has shape \(5, 64\), \(5, 32\) is needed"):
            case.run(B=np.zeros((5, 64), np.uint8))
        as_values = formats.dequantize({"B": parts["B"], "B_scale": np.ones((5, 2))}, "mxfp4")
        scales = np.frombuffer(_core.decode("e8m0", parts["B_scale"]), np.float32).reshape(5, 2)
        found = [case.run(**given)["D"] for given in (parts, {"B": as_values, "B_scale": scales})]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("name", "error"),
    [("q4_0", 0.0862), ("q4_k", 0.0785), ("int4_g128", 0.1009), ("mxfp4", 0.1151), ("nvfp4", 0.0953), ("q8_0", 0.0054)],
)
def test_error_of_normal_weights(name: str, error: float) -> None:
    """Of their spread, as the guide has it."""
    weights = np.random.default_rng(0).standard_normal((64, 4096))
    found = formats.dequantize(formats.quantize(weights, name), name)
    assert np.std(found - weights) == pytest.approx(error, abs=2e-4)
