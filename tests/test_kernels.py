"""Every operation x precision x variant x instruction set against NumPy float64, on shapes that divide into no tiles.

The registry lists what is tested: test_operations.py fails where one has no shapes and no reference.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import references
from operations import OPERATIONS
from operations.attention import attention
from references import CUDA_MARKS, INSTRUCTION_SETS, REGISTRY, SPACING, check, decode, excess
from test_decode import each_plan

from bwprof import _core

kernel_device, opened = references.kernel_device, references.opened


def test_a_result_near_zero_may_err_by_half_a_subnormal_number():
    """FP16's subnormal numbers are 2^-24 apart: relative errors of rounding are unbounded."""
    expected = np.array([2.0**-24 * part for part in (0.3, 1.5, 2.5, 1000.25)])
    rounded = np.round(expected / 2.0**-24) * 2.0**-24
    limit = OPERATIONS["gemm"].allowed_error("fp16", {"K": 64})
    assert (np.float16(expected) == rounded).all()
    assert (np.abs(rounded[:1] - expected[:1]) > limit * expected[:1]).all()
    for one in range(expected.size):  # each a row of its own, whose scale is no larger
        alone = np.s_[one : one + 1]
        assert excess(rounded[alone], expected[alone], limit, SPACING["fp16"]).max() <= 1
        wrong = rounded[alone] + 2.0**-24 * (1 if rounded[one] >= expected[one] else -1)
        assert excess(wrong, expected[alone], limit, SPACING["fp16"]).max() > 1 or expected[one] > 2.0**-15
    assert np.isnan(excess(np.array([np.nan]), np.array([1.0]), limit, SPACING["fp16"])).all()


def kernel_params(operations: Collection[str] = OPERATIONS) -> list[Any]:
    """Return a parameter per kernel: variants of the operations, precisions and devices. Those with the same references
    are neighbors.
    """
    found = [
        (operation, precision, variant["name"], (backend, isa))
        for backend, isa in [*(("cpu", isa) for isa in INSTRUCTION_SETS), ("cuda", "")]
        for operation, entry in REGISTRY.items()
        if operation in operations
        for variant in entry["variants"].get(backend, [])
        for precision in variant["precisions"]
    ]
    return [
        pytest.param(
            (backend, isa),
            operation,
            variant,
            precision,
            id="-".join((isa or backend, operation, variant, precision)),
            marks=CUDA_MARKS if backend == "cuda" else [],
        )
        for operation, precision, variant, (backend, isa) in sorted(found, key=lambda row: row[:2])
    ]


@pytest.mark.parametrize(
    ("kernel_device", "operation", "variant", "precision"), kernel_params(), indirect=["kernel_device"]
)
def test_kernel_against_float64(kernel_device, operation, variant, precision):
    refusals, shapes = [], OPERATIONS[operation].shapes_on(kernel_device.backend)
    for shape in shapes:
        params = {name: value for name, value in shape.items() if name != "kv_lens"}
        rows = kernel_device.variants(operation, precision, params, shape.get("kv_lens"))
        assert any(not row["refuses"] for row in rows), f"no variant runs {shape}"
        assert sum(row["default"] for row in rows) == 1
        refusal = next(row["refuses"] for row in rows if row["name"] == variant)
        if refusal:
            refusals.append(refusal)
            continue
        try:
            check(kernel_device, operation, variant, precision, shape)
        except _core.UnavailableError as error:
            pytest.skip(str(error))
    if len(refusals) == len(shapes):
        pytest.skip(f"refused every shape: {sorted(set(refusals))}")


# Why a kernel may be without a shape of the grid; whatever else refuses one is a gap.
GRID_REFUSALS = {"head_dim must be 64 or 128", "wgmma and TMA need compute capability 9.0",
                 "clusters of blocks need compute capability 9.0",
                 "caches of 8 bits must have rows of 16 bytes or a multiple, at most 255 query heads per K/V head and "
                 "65535 entries", "head_dim must be a multiple of 16", "head_dim above 128"}  # fmt: skip


@pytest.mark.parametrize(
    ("kernel_device", "operation", "variant", "precision"),
    kernel_params([name for name, entry in OPERATIONS.items() if entry.grid]),
    indirect=["kernel_device"],
)
def test_every_group_with_every_head_dim(kernel_device, operation, variant, precision):
    refusals, done = set(), 0
    for shape in OPERATIONS[operation].grid[kernel_device.backend]:
        params = {name: value for name, value in shape.items() if name != "kv_lens"}
        rows = kernel_device.variants(operation, precision, params, shape.get("kv_lens"))
        if refusal := next(row["refuses"] for row in rows if row["name"] == variant):
            assert refusal in GRID_REFUSALS, shape
            refusals.add(refusal)
            continue
        check(kernel_device, operation, variant, precision, shape)
        done += 1
    if not done:
        pytest.skip(f"refused every shape: {sorted(refusals)}")


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(("variant", "head_dim"), [("flash", 64), ("flash", 80), ("flash", 128), ("hopper", 64)])
@pytest.mark.parametrize("causal", [0, 1])
def test_prefill_by_the_longer_tiles_of_a_full_grid(variant, head_dim, precision, causal):
    """Tiles of 128 and 192 queries run if there are several per multiprocessor."""
    one = {"batch": 1, "seq_len": 203, "kv_len": 331, "num_heads": 14, "num_kv_heads": 2, "head_dim": head_dim,
           "causal": causal}  # fmt: skip
    with _core.Device("cuda") as device:
        many = one | {"batch": 1 + 3 * device.facts()["units"] // 28}
        rows = device.variants("attention_prefill", precision, many)
        if refusal := next(row["refuses"] for row in rows if row["name"] == variant):
            pytest.skip(f"{variant}: {refusal}")
        few_tiles, many_tiles = (
            [kernel[name] for name in ("symbol", "threads", "dynamic_shared_bytes")]
            for shape in (one, many)
            for kernel in device.kernels("attention_prefill", precision, shape, variant)
        )
        assert few_tiles != many_tiles, "the same kernel: nothing new is tested"
        check(device, "attention_prefill", variant, precision, many)


@pytest.mark.sanitize
@pytest.mark.parametrize(
    ("kernel_device", "operation", "variant", "precision"),
    [param for param in kernel_params() if param.values[0][0] == "cuda" and param.values[2] != "cublaslt"],
    indirect=["kernel_device"],
)
def test_own_kernels_on_few_shapes(kernel_device, operation, variant, precision):
    """compute-sanitizer's racecheck is a hundred times slower; kernels of libraries are left out."""
    done, most = 0, 3 if operation == "attention_decode" else 2
    for shape in reversed(OPERATIONS[operation].shapes):
        params = {name: value for name, value in shape.items() if name != "kv_lens"}
        rows = kernel_device.variants(operation, precision, params, shape.get("kv_lens"))
        if done < most and not next(row["refuses"] for row in rows if row["name"] == variant):
            check(kernel_device, operation, variant, precision, shape)
            done += 1
    if not done:
        pytest.skip(f"{variant} refuses every shape")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_gemm_on_a_callers_arrays(kernel_device, precision):
    """The arrays have normal values of very different sizes."""

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(11)
        return {
            name: _core.encode(precision, rng.standard_normal(operands[name]["shape"]).astype(np.float32))
            for name in ("A", "B")
        }

    missing = ""
    for variant in kernel_device.variants("gemm", precision, {"M": 33, "N": 65, "K": 129}):
        if not variant["refuses"]:
            try:
                check(kernel_device, "gemm", variant["name"], precision, {"M": 33, "N": 65, "K": 129}, given)
            except _core.UnavailableError as error:
                missing = str(error)
    if missing:
        pytest.skip(f"all variants are right but one that could not run: {missing}")


def check_variants(device: Any, operation: str, precision: str, shape: dict[str, int], given: Any) -> None:
    for variant in device.variants(operation, precision, shape):
        if not variant["refuses"]:
            check(device, operation, variant["name"], precision, shape, given)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_softmax_survives_large_scores(kernel_device, precision):
    """Scores of +-100 and more: exponentials must be taken relative to the largest one."""

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(13)
        scale = {"q": 8.0, "k": 4.0, "v": 1.0}
        return {
            name: _core.encode(
                precision, np.sign(rng.standard_normal(operands[name]["shape"])).astype(np.float32) * size
            )
            for name, size in scale.items()
        }

    heads = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64}
    prefill = {"batch": 1, "seq_len": 29, "kv_len": 67, **heads, "causal": 1}
    check_variants(kernel_device, "attention_prefill", precision, prefill, given)
    check_variants(kernel_device, "attention_decode", precision, {"batch": 2, "kv_len": 333, **heads}, given)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("columns", [37, 2051, 40_000])
def test_exponentials_of_large_and_of_infinite_elements(kernel_device, precision, columns):
    """In a part of a warp, a block and tiles of a long row; a row of nothing but -infinity sums up to nothing."""

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        x = np.random.default_rng(19).uniform(-1, 1, (5, columns)).astype(np.float32)
        x *= np.array([[6e4], [20], [1], [1], [-6e4]], np.float32)
        x[2, ::2] = -np.inf
        x[3] = -np.inf
        x[3, columns // 2] = -6e4
        return {"x": _core.encode(precision, x)}

    shape = {"rows": 5, "columns": columns}
    check_variants(kernel_device, "softmax", precision, shape, given)
    check_variants(kernel_device, "logsumexp", precision, shape, given)
    nothing = {"x": _core.encode(precision, np.full((5, columns), -np.inf, np.float32))}
    for operation, expected in (("softmax", np.nan), ("logsumexp", -np.inf)):
        for variant in kernel_device.variants(operation, precision, shape):
            with _core.Case(kernel_device, operation, precision, shape, variant=variant["name"]) as case:
                operands = {operand["name"]: operand for operand in case.operands}
                found = decode(operands["out"], case.run(nothing)["out"])
                np.testing.assert_array_equal(found, np.full_like(found, expected), variant["name"])


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("heads", "head_dim", "trend"), [(2, 64, 1), (2, 64, -1), (2, 128, 1), (2, 256, 1), (300, 64, 1), (300, 128, 1)]
)
def test_prefill_follows_scores_that_rise_and_fall_over_many_tiles(precision, heads, head_dim, trend):
    """Scores rise by 9 per hundred keys, so that maxima change; 300 heads choose the kernels of large grids. One key
    has the largest score.
    """
    shape = {"batch": 1, "seq_len": 150, "kv_len": 700, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim,
             "causal": 1}  # fmt: skip

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(17)
        arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in "qkv"}
        arrays["q"][..., 0] = 2.0
        ramp = trend * 0.045 * np.sqrt(head_dim) * np.arange(700.0)
        ramp[333] = 21 * np.sqrt(head_dim)
        arrays["k"][0, :, 0, 0] = np.round(8 * ramp) / 8  # scores have no more digits than FP32 keeps of sums
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}

    with _core.Device("cuda") as device:
        for variant in device.variants("attention_prefill", precision, shape):
            if variant["refuses"] or variant["name"] in ("unfused", "strided", "shared", "padded"):
                continue
            with _core.Case(device, "attention_prefill", precision, shape, variant=variant["name"]) as case:
                operands = {operand["name"]: operand for operand in case.operands}
                bits = given(operands)
                found = decode(operands["out"], case.run(bits)["out"])[:, :, -2:]
                x = {name: decode(operands[name], bits[name]) for name in bits}
                x["q"] = x["q"][:, :, -2:]
                expected = attention(x, case.params, bits)["out"]
            limit = OPERATIONS["attention_prefill"].allowed_error(precision, shape)
            assert excess(found, expected, limit, SPACING[precision]).max() <= 1, variant["name"]


NARROW_PREFILL = {"batch": 1, "seq_len": 70, "kv_len": 300, "num_heads": 6, "num_kv_heads": 2, "causal": 1}


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp8_e4m3", "int8"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_verify_finds_one_wrong_scale_in_a_prefill(precision, head_dim):
    """What a kernel writes is right; what it writes from one wrong scale of a key or a value is found to be wrong,
    however many roundings the kernel is allowed."""
    shape = NARROW_PREFILL | {"head_dim": head_dim}
    with _core.Device("cuda") as device:
        for variant in device.variants("attention_prefill", precision, shape):
            if variant["refuses"]:
                continue
            with _core.Case(device, "attention_prefill", precision, shape, variant=variant["name"], seed=7) as case:
                assert case.verify()["verified"], variant["name"]
                bits = case.inputs()
                for name, factor in (("k_scale", 8.0), ("v_scale", 0.0), ("v_scale", 2.0)):
                    for key in (0, 133, 229, 230):
                        scales = np.frombuffer(bits[name], np.float32).reshape(300, 2).copy()
                        scales[key, 1] *= factor
                        wrong = case.run({name: scales.tobytes()})
                        assert not case.verify(outputs=wrong)["verified"], (variant["name"], name, factor, key)


def error_of_fp8(x: dict[str, np.ndarray], shape: dict[str, int]) -> np.ndarray:
    """What each element may err by where E4M3 holds the queries and there is one K/V head.

    A weight times its value's scale is rounded to E4M3: by 2^-4 of itself, or by 2^-10 where 2^4 is the largest weight
    of a tile of 128 keys times its largest scale. Before that FP16 holds its exponent, of no more than 14, it, its
    value's scale and both's product: 2^-7 of it. Of each of four sums that make a score tensor cores keep 13 bits, of
    which FP16 holds 11; its key's scale is rounded three times."""
    scores = np.einsum("bshd,bld->bhsl", x["q"], x["k"][:, :, 0] * x["k_scale"]) / np.sqrt(shape["head_dim"])
    allowed = np.arange(shape["kv_len"]) <= np.arange(shape["seq_len"])[:, None] + shape["kv_len"] - shape["seq_len"]
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    scales, sizes = x["v_scale"][..., 0], np.abs(x["v"][:, :, 0])
    starts = np.arange(0, shape["kv_len"], 128)
    largest = (
        np.maximum.reduceat(weights, starts, axis=-1) * np.maximum.reduceat(scales, starts, axis=-1)[:, None, None]
    )
    relative = 2.0**-4 + 2.0**-7 + (8 * 2.0**-13 + 7 * 2.0**-11) * np.where(allowed, np.abs(scores), 0).max(axis=-1)
    kept = np.einsum("bhsl,bl,bld->bhsd", weights, scales, sizes) * relative[..., None]
    lost = 2.0**-14 * largest.max(axis=-1)[..., None] * sizes.sum(axis=1)[:, None, None]
    return (kept + lost).transpose(0, 2, 1, 3)


@pytest.mark.cuda
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("trend", [1, -1])
def test_prefill_in_fp8_follows_scales_that_rise_and_fall_over_many_tiles(head_dim, trend):
    """Maxima change, and whole tiles have values of zero or nearly so, whose keys weigh no less."""
    shape = {"batch": 2, "seq_len": 150, "kv_len": 900, "num_heads": 3, "num_kv_heads": 1, "head_dim": head_dim,
             "causal": 1}  # fmt: skip
    rng = np.random.default_rng(29)
    with _core.Device("cuda") as device, _core.Case(device, "attention_prefill", "fp8_e4m3", shape) as case:
        operands = {operand["name"]: operand for operand in case.operands}
        bits = case.inputs()
        q = rng.integers(-7, 8, operands["q"]["shape"]) / 8
        q[..., 5] = 0.875  # the largest of its row
        k_scale = np.broadcast_to(np.exp(trend * np.linspace(-3, 3, 900))[:, None], (2, 900, 1))
        v_scale = np.exp(rng.normal(0, 2, (2, 900, 1)) + 4 * np.sin(np.arange(900) / 90)[:, None])
        v_scale[0, 300:700] = 0.0
        v_scale[1, 300:700] *= 1e-6
        given = {"q": ("fp16", q), "k_scale": ("fp32", k_scale), "v_scale": ("fp32", v_scale)}
        bits |= {name: _core.encode(kind, np.ascontiguousarray(x, np.float32)) for name, (kind, x) in given.items()}
        if case.variant != "hopper_fp8":
            pytest.skip(f"the default is {case.variant}")
        found = decode(operands["out"], case.run(bits)["out"])
        x = {name: decode(operands[name], data) for name, data in bits.items()}
    assert (np.abs(found - attention(x, shape, bits)["out"]) <= error_of_fp8(x, shape)).all()


@pytest.mark.cuda
@pytest.mark.parametrize("head_dim", [64, 128])
def test_prefill_in_fp8_of_the_largest_factors(head_dim):
    """All elements of a query and of a key are their largest, with one sign: no sum of products is larger."""
    shape = {"batch": 1, "seq_len": 70, "kv_len": 300, "num_heads": 2, "num_kv_heads": 1, "head_dim": head_dim,
             "causal": 1}  # fmt: skip
    with _core.Device("cuda") as device, _core.Case(device, "attention_prefill", "fp8_e4m3", shape) as case:
        operands = {operand["name"]: operand for operand in case.operands}
        bits = case.inputs()
        q = np.ones(operands["q"]["shape"], np.float32)
        q[:, ::3] = -1.0
        bits |= {"q": _core.encode("fp16", q), "k": bytes([0x7E]) * len(bits["k"])}
        bits["k_scale"] = np.linspace(0.001, 0.003, 300, dtype=np.float32).tobytes()
        if case.variant != "hopper_fp8":
            pytest.skip(f"the default is {case.variant}")
        found = decode(operands["out"], case.run(bits)["out"])
        x = {name: decode(operands[name], data) for name, data in bits.items()}
    assert (np.abs(found - attention(x, shape, bits)["out"]) <= error_of_fp8(x, shape)).all()


@pytest.mark.cuda
@pytest.mark.parametrize("kv_len", [263, 327])
@pytest.mark.parametrize(("sign", "least", "largest"), [(0xB8, 0.7, 1.0), (0x38, 0.0, 1.0), (0xB8, 3.0, 3.5)])
def test_prefill_in_fp8_of_rows_whose_first_tile_is_masked(kv_len, sign, least, largest):
    """Rows that attend nothing of a causal query tile's first tile of keys; scores far below 0, or rising from 0."""
    shape = {"batch": 1, "seq_len": 200, "kv_len": kv_len, "num_heads": 2, "num_kv_heads": 1, "head_dim": 128,
             "causal": 1}  # fmt: skip
    with _core.Device("cuda") as device, _core.Case(device, "attention_prefill", "fp8_e4m3", shape) as case:
        operands = {operand["name"]: operand for operand in case.operands}
        bits = case.inputs()
        bits |= {"q": _core.encode("fp16", np.ones(operands["q"]["shape"], np.float32)),
                 "k": bytes([sign]) * len(bits["k"])}  # fmt: skip
        bits["k_scale"] = np.linspace(least, largest, kv_len, dtype=np.float32).tobytes()
        bits["v_scale"] = np.full(kv_len, 0.01, np.float32).tobytes()
        if case.variant != "hopper_fp8":
            pytest.skip(f"the default is {case.variant}")
        found = decode(operands["out"], case.run(bits)["out"])
        x = {name: decode(operands[name], data) for name, data in bits.items()}
    assert (np.abs(found - attention(x, shape, bits)["out"]) <= error_of_fp8(x, shape)).all()


# Quiet and signaling, of either sign; a number added to the exponent of some makes a number of them.
NANS = {
    "fp32": (np.uint32, (0x7FC00000, 0x7FC00001, 0x7F800001, 0x7FD55555, 0xFFAAAAAA, 0xFFFFFFFF)),
    "fp16": (np.uint16, (0x7E00, 0x7E01, 0x7C01, 0xFEAA, 0xFFFF)),
    "bf16": (np.uint16, (0x7FC0, 0x7FC1, 0x7F81, 0xFFAA, 0xFFFF)),
    "fp8_e4m3": (np.uint8, (0x7F, 0xFF)),
}
LONG_PREFILL = {"batch": 1, "seq_len": 30, "kv_len": 470, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64}
NAN_SHAPES = {
    "attention_prefill": {"batch": 1, "seq_len": 30, "kv_len": 70, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64},
    "attention_decode": {"batch": 1, "kv_len": 300, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64},
}


@pytest.mark.parametrize("precision", list(NANS))
@pytest.mark.parametrize(
    ("operation", "params", "key"),
    [*((name, shape, 41) for name, shape in NAN_SHAPES.items()), ("attention_prefill", LONG_PREFILL, 201)],
)
def test_a_nan_in_q_or_k_reaches_the_rows_that_attend_it_and_no_other(kernel_device, operation, params, key, precision):
    for variant in kernel_device.variants(operation, precision, params):
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, operation, precision, params, variant=variant["name"]) as case:
            operands = {operand["name"]: operand for operand in case.operands}
            bits = case.inputs()
            # The last query's third head; a key of the second K/V head, which its two last heads read.
            for name, place in (("q", (0, -1, 2, 5)), ("k", (0, key, 1, 63))):
                word, payloads = NANS[operands[name]["dtype"]]
                for payload in payloads:
                    given = np.frombuffer(bits[name], word).reshape(operands[name]["shape"]).copy()
                    given[place] = payload
                    out = decode(operands["out"], case.run({name: given.tobytes()})["out"])
                    hit = np.zeros(out.shape, dtype=bool)
                    if name == "q":
                        hit[0, -1, 2] = True
                    else:  # query i of a causal prefill attends the keys up to i + kv_len - 30
                        first = max(0, key - params["kv_len"] + 30) if operation == "attention_prefill" else 0
                        hit[0, first:, 2:] = True
                    np.testing.assert_array_equal(np.isnan(out), hit, err_msg=f"{variant['name']} {name} {payload:#x}")


# What makes a row of narrow weights a NaN: an operand, a place in its row in bytes, and bits.
NARROW_NANS = {
    "fp8_w8a16": ("B", 300, "ff"), "fp8_e5m2": ("B", 300, "fd"), "int8_w8a16": ("B_scale", 0, "0100c07f"),
    "q8_0": ("B", 5 * 34, "007e"), "q4_0": ("B", 9 * 18, "01fc"), "q4_k": ("B", 144, "007e"),
    "int4_g32": ("B_scale", 22, "007e"), "int4_g64": ("B_scale", 14, "ff7f"), "int4_g128": ("B_scale", 2, "007e"),
    "mxfp4": ("B_scale", 11, "ff"), "nvfp4": ("B_scale", 17, "7f"),
    "fp8_w8a16_bf16": ("B", 300, "ff"), "int4_g128_bf16": ("B_scale", 2, "007e"), "mxfp4_bf16": ("B_scale", 11, "ff"),
}  # fmt: skip


@pytest.mark.parametrize("m", [1, 3, 16])
@pytest.mark.parametrize("precision", list(NARROW_NANS))
def test_a_nan_in_a_or_in_narrow_weights_reaches_its_row_and_no_other(kernel_device, precision, m):
    operand, place, nan = NARROW_NANS[precision]
    n, k, row = 33, 512, 20
    expected = np.zeros((m, n), dtype=bool)
    for variant in kernel_device.variants("gemm", precision, {"M": m, "N": n, "K": k}):
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, "gemm", precision, {"M": m, "N": n, "K": k}, variant=variant["name"]) as case:
            result = next(operand for operand in case.operands if operand["name"] == "D")
            given = {name: bytearray(bits) for name, bits in case.inputs().items()}
            for name, at, bits in (
                (operand, len(given[operand]) // n * row + place, bytes.fromhex(nan)),
                ("A", ((m - 1) * k + 301) * 2, b"\xff\x7f"),
            ):
                planted = given[name].copy()
                planted[at : at + len(bits)] = bits
                expected[:] = False
                expected[(m - 1) if name == "A" else slice(None), slice(None) if name == "A" else row] = True
                out = decode(result, case.run({name: bytes(planted)})["D"])
                np.testing.assert_array_equal(np.isnan(out), expected, err_msg=f"{variant['name']} {name}")


@pytest.mark.cuda
@pytest.mark.parametrize(("precision", "m"), [("int4_g32", 1), ("q8_0", 9)])
def test_fused_with_more_rows_of_b_than_a_block_sums_at_once(precision, m):
    with _core.Device("cuda") as device:
        params = {"M": m, "N": device.facts()["units"] * 2 * 17 * 16 + 3, "K": 4096}
        with _core.Case(device, "gemm", precision, params, variant="fused") as case:
            result = case.verify(budget_s=0.2)
    assert result["verified"], result["reason"]


# A block's keys, several blocks' and a step's, however a kernel divides them. (batch, kv_len, heads of a K/V head,
# head_dim)
ENDLESS = [(1, 500, 4, 64), (9, 1024, 4, 64), (9, 2048, 4, 64), (1, 700, 4, 128), (1, 700, 12, 128), (1, 700, 4, 160)]


def endless(batch: int, kv_len: int, heads: int, head_dim: int) -> dict[str, int]:
    return {"batch": batch, "kv_len": kv_len, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("operation", "params", "head", "keys"),
    [
        # One key; all that every query attends but one, whole tiles among them.
        ("attention_prefill", NAN_SHAPES["attention_prefill"], 1, slice(41, 42)),
        ("attention_prefill", LONG_PREFILL, 1, slice(201, 202)),
        ("attention_prefill", LONG_PREFILL, 1, slice(0, 440)),
        # The first five sixths of the last entry's: who meets only these has a maximum of minus infinity.
        *(("attention_decode", endless(*shape), 0, slice(0, 5 * shape[1] // 6)) for shape in ENDLESS),
    ],
)
def test_keys_of_infinite_scores_below_zero_weigh_nothing(kernel_device, operation, params, head, keys, precision):
    """An element of K is infinite, and q has negative values there."""

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(23)
        arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in "qkv"}
        arrays["q"][..., 5] = -1.0
        arrays["k"][-1, keys, head, 5] = np.inf
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}

    check_variants(kernel_device, operation, precision, params, given)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", ENDLESS, ids=lambda shape: "x".join(map(str, shape)))
def test_an_entry_without_a_finite_score_is_nan_and_no_other_is(kernel_device, shape, precision):
    params = endless(shape[0] + 1, *shape[1:])
    for variant in kernel_device.variants("attention_decode", precision, params):
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, "attention_decode", precision, params, variant=variant["name"]) as case:
            operands = {operand["name"]: operand for operand in case.operands}
            given = {name: decode(operands[name], data) for name, data in case.inputs().items()}
            given["q"][..., 5] = -1.0
            given["k"][-1, ..., 5] = np.inf
            bits = {name: _core.encode(precision, given[name].astype(np.float32)) for name in given}
            found = decode(operands["out"], case.run(bits)["out"])
        assert np.isnan(found[-1]).all(), variant["name"]
        assert np.isfinite(found[:-1]).all(), variant["name"]


def test_indices_of_a_caller_out_of_range_are_refused(kernel_device):
    with _core.Case(kernel_device, "kv_gather", "fp32", {"kv_len": 32, "page_size": 16}) as case:
        with pytest.raises(ValueError, match=r"is 2:.*0 to 1"):
            case.run({"table": np.array([0, 2], dtype=np.int32)})
        with pytest.raises(ValueError, match="element 0 is -1"):
            case.run({"table": np.array([-1, 0], dtype=np.int32)})
        askew = np.zeros(9, dtype=np.uint8)[1:].view(np.int32)
        askew[:] = [1, 0]
        assert not askew.flags.aligned
        assert case.run({"table": askew}) == case.run({"table": np.array([1, 0], dtype=np.int32)})


def test_bad_arrays_are_refused(kernel_device):
    with _core.Case(kernel_device, "gemm", "fp32", {"M": 2, "N": 3, "K": 4}) as case:
        with pytest.raises(ValueError, match=r"A:.*4 bytes:.*32"):
            case.run({"A": np.zeros(1, dtype=np.float32)})
        with pytest.raises(ValueError, match=r"gemm.*input.*'D'"):
            case.run({"D": np.zeros((2, 3), dtype=np.float32)})
    with pytest.raises(ValueError, match="this Case is closed"):
        case.run({})


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_verify_reports_the_rows_it_checked(kernel_device, operation):
    for precision in REGISTRY[operation]["precisions"]:
        shape = OPERATIONS[operation].shapes[-1]
        params = {name: value for name, value in shape.items() if name != "kv_lens"}
        if all(v["refuses"] for v in kernel_device.variants(operation, precision, params, shape.get("kv_lens"))):
            continue
        with _core.Case(kernel_device, operation, precision, params, kv_lens=shape.get("kv_lens")) as case:
            verdict = case.verify(budget_s=0.02)
        assert verdict["verified"], verdict["reason"]
        assert verdict["max_error"] <= verdict["tolerance"]
        assert verdict["rows_checked"] >= min(4, verdict["rows_total"])


# M, N, K, beta of which two to eight blocks make a tile together: unequal shares of K, blocks that finish no columns.
FEW_TILES = [(40, 136, 8208, 1), (150, 1112, 4112, 0), (16, 24, 1024, 0)]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp8_e4m3", "fp8_tensor", "fp8_block", "int8"])
def test_every_tile_of_eight_bits(precision):
    """Rows that fill no tile, several tiles a block, groups of 128 that end within a step and before four of them."""
    with _core.Device("cuda") as device:
        for m, n, k, beta in [
            (1, 8, 16, 0),
            (70, 264, 1040, 0),
            (333, 776, 400, 1),
            (200, 1040, 2176, 0),
            (2200, 4616, 144, 0),
            *FEW_TILES,
        ]:
            shape = {"M": m, "N": n, "K": k, "beta": beta}
            each_plan(device, lambda shape=shape: check(device, "gemm", "wgmma", precision, shape))


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
def test_few_tiles_of_wgmma(precision):
    with _core.Device("cuda") as device:
        for m, n, k, beta in FEW_TILES:
            check(device, "gemm", "wgmma", precision, {"M": m, "N": n, "K": k, "beta": beta})
