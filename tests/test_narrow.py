"""Narrow types and the precisions made of them: their bits, bytes and inputs, against definitions written anew here."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references
from hypothesis import given, settings
from hypothesis import strategies as st
from operations import OPERATIONS, ROUNDOFF
from precisions import PRECISIONS, ROLES, TYPES, Precision, scale_bytes, stored_bytes
from references import on_each_device
from test_decode import each_plan
from test_inputs import mix64

import bwprof
from bwprof import _core, cli, registry
from bwprof.cli.commands.sweep import main_sweep

kernel_device, opened = references.kernel_device, references.opened


def decoded(dtype: str, data: bytes) -> np.ndarray:
    return np.frombuffer(_core.decode(dtype, data), dtype=np.float32)


# ---- bits ----


def test_q4_0_is_off_by_half_a_scale_at_most() -> None:
    values, stored = TYPES["q4_0"].encoded
    assert np.abs(decoded("q4_0", bytes.fromhex(stored)) - np.float32(values)).max() == 0.125


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-100, 100, width=32), min_size=32, max_size=32))
def test_q4_0_encodes_like_its_definition(values: list[float]) -> None:
    x = np.array(values, dtype=np.float32)
    d = np.float32(x[np.abs(x).argmax()]) / np.float32(-8)
    inverse = np.float32(1) / d if np.float16(d) else np.float32(0)
    q = np.minimum(15, np.floor(x * inverse + np.float32(8.5))).astype(np.int64)
    stored = _core.encode("q4_0", x)
    assert np.frombuffer(stored[:2], dtype="<f2")[0] == np.float16(d)
    assert list(stored[2:]) == (q[:16] | q[16:] << 4).tolist()
    np.testing.assert_array_equal(decoded("q4_0", stored), TYPES["q4_0"].decode(stored).astype(np.float32))


@pytest.mark.parametrize("place", [32, 47, 63])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 524160.0, -524160.0, 1e6, -1e9, 3e38])
def test_what_q4_0_cannot_hold_spoils_its_own_block_alone(wrong: float, place: int) -> None:
    """A NaN makes NaN of its block; what FP16's largest scale does not reach saturates, beside zeros."""
    values = np.linspace(-1, 1, 96, dtype=np.float32)
    values[place] = wrong
    found = decoded("q4_0", _core.encode("q4_0", values))
    expected = np.zeros(32)
    expected[place - 32] = np.copysign(8 * 65504, wrong)
    np.testing.assert_array_equal(found[32:64], np.full(32, np.nan) if np.isnan(wrong) else expected)
    others = np.delete(np.arange(96), np.s_[32:64])
    assert np.abs(found[others] - values[others]).max() < 0.1


def test_a_q4_0_block_of_two_infinities_is_numbers() -> None:
    values = np.array([np.inf, -np.inf, *np.linspace(-3e5, 3e5, 30)], dtype=np.float32)
    found = decoded("q4_0", _core.encode("q4_0", values))
    assert found[:2].tolist() == [8 * 65504, -7 * 65504]
    assert np.abs(found[2:] - values[2:]).max() <= 65504 / 2


def test_the_last_block_is_filled_up_with_zeros() -> None:
    values = np.linspace(-1, 1, 33, dtype=np.float32)
    stored = _core.encode("q4_0", values)
    assert len(stored) == 36
    assert stored == _core.encode("q4_0", np.pad(values, (0, 31)))


# ---- inputs: hashed bits ----


def hashed(seed: int, operand: int, indices: np.ndarray) -> np.ndarray:
    """32 bits for each index, as csrc/base/types/input.h defines them (indices below 2**32)."""
    key = mix64((mix64(seed) + operand) & (1 << 64) - 1)
    x = indices.astype(np.uint32) ^ np.uint32(key & 0xFFFFFFFF)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    x = (x ^ np.uint32(key >> 32) ^ (x >> np.uint32(16))) * np.uint32(0x9E3779B1)
    return x ^ (x >> np.uint32(15))


def generated_q4_0(seed: int, operand: int, rows: int, row: int) -> bytes:
    """Five hashed words a block, each row with blocks of its own."""
    words = hashed(seed, operand, np.arange(rows * -(-row // 32) * 5)).reshape(-1, 5)
    scales = (words[:, :1] & 0x83FF | 0x2C00).astype("<u2").view(np.uint8)
    return np.hstack([scales, words[:, 1:].astype("<u4").view(np.uint8).reshape(-1, 16)]).tobytes()


@pytest.mark.parametrize(("rows", "row"), [(5, 33), (3, 64), (7, 1)])
def test_generated_q4_0_is_the_defined_hash(rows: int, row: int) -> None:
    params = {"M": 2, "N": rows, "K": row}
    with _core.Device("cpu") as device, _core.Case(device, "gemm", "q4_0", params, seed=9) as case:
        assert case.inputs()["B"] == generated_q4_0(9, 1, rows, row)


def test_generated_q4_0_has_both_signs_and_a_size_of_about_one() -> None:
    stored = generated_q4_0(3, 0, 1, 32 << 14)
    values = TYPES["q4_0"].decode(stored)
    assert abs(values.mean()) < 0.01
    assert (values**2).mean() == pytest.approx(1 / 5.1062, rel=0.01)  # what references take its size for


# ---- bytes ----


def role_bytes(p: Precision, role: str, rows: int, columns: int) -> int:
    return stored_bytes(p.roles[ROLES.index(role)], rows, columns)


def gemm_bytes(p: Precision, x: dict[str, int]) -> tuple[int, int]:
    scales = scale_bytes(p, "activation", x["M"], x["K"]) + scale_bytes(p, "weight", x["N"], x["K"])
    operands = role_bytes(p, "activation", x["M"], x["K"]) + role_bytes(p, "weight", x["N"], x["K"])
    result = role_bytes(p, "result", 1, x["M"] * x["N"])
    return operands + scales + x["beta"] * result, result


def cache_bytes(p: Precision, heads: int, dim: int) -> int:
    return role_bytes(p, "cache", 1, heads * dim) + scale_bytes(p, "cache", heads, dim)


def decode_bytes(p: Precision, x: dict[str, int]) -> tuple[int, int]:
    query = role_bytes(p, "result", 1, x["batch"] * x["num_heads"] * x["head_dim"])
    return query + cache_bytes(p, 2 * x["batch"] * x["kv_len"] * x["num_kv_heads"], x["head_dim"]), query


def append_bytes(p: Precision, x: dict[str, int]) -> tuple[int, int]:
    tokens = x["batch"] * x["seq_len"]
    heads = 2 * tokens * x["num_kv_heads"]
    slots = 8 * tokens if x["page_size"] else 0
    return role_bytes(p, "result", 1, heads * x["head_dim"]) + slots, cache_bytes(p, heads, x["head_dim"])


def copy_bytes(p: Precision, x: dict[str, int]) -> tuple[int, int]:
    moved = cache_bytes(p, 2 * x["batch"] * x["kv_len"] * x["num_kv_heads"], x["head_dim"])
    return moved, moved


MODELS = {
    "gemm": (gemm_bytes, {"M": 300, "N": 5000, "K": 5000, "beta": 1}),
    "attention_decode": (decode_bytes, {"batch": 40, "kv_len": 9000, "num_kv_heads": 16, "head_dim": 256}),
    "kv_append": (append_bytes, {"batch": 40, "seq_len": 900, "num_kv_heads": 16, "head_dim": 300, "page_size": 70}),
    "kv_copy": (copy_bytes, {"batch": 40, "kv_len": 9000, "num_kv_heads": 16, "head_dim": 300}),
}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_follow_the_roles_of_a_precision(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MODELS)))
    model, largest = MODELS[name]
    precision = data.draw(st.sampled_from(registry.operation(name)["precisions"]))
    zero = ("beta", "page_size")
    shape = {key: data.draw(st.integers(0 if key in zero else 1, most), label=key) for key, most in largest.items()}
    if "num_kv_heads" in shape and "num_heads" in registry.param_names(name):
        shape["num_heads"] = shape["num_kv_heads"] * data.draw(st.integers(1, 8))
    cost = _core.cost(name, precision, shape)
    assert (cost["bytes_read"], cost["bytes_written"]) == model(PRECISIONS[precision], shape)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PRECISIONS)), st.integers(1, 300), st.integers(1, 700))
def test_a_matrix_takes_its_values_and_scales(name: str, rows: int, columns: int) -> None:
    kind = PRECISIONS[name]
    expected = role_bytes(kind, "weight", rows, columns) + scale_bytes(kind, "weight", rows, columns)
    assert _core.matrix_bytes(name, "weight", rows, columns) == expected
    assert _core.matrix_bytes(name, "result", rows, columns) == role_bytes(kind, "result", rows, columns)


@pytest.mark.parametrize(
    "words",
    [("fp7", "weight", 1, 1), ("fp16", "query", 1, 1), ("fp16", "weight", -1, 1), ("fp32", "weight", 1 << 61, 4)],
)
def test_no_bytes_of_what_is_no_matrix(words: tuple[str, str, int, int]) -> None:
    with pytest.raises(ValueError, match=r"unknown|no bytes|larger"):
        _core.matrix_bytes(*words)


def test_lengths_are_summed_with_their_scales() -> None:
    cost = bwprof.cost("attention_decode", precision="int8", kv_lens=[100, 50], num_heads=6, num_kv_heads=2, head_dim=8)
    # q 2*6*8*2 = 192; 2*150*2 = 600 heads of 8 bytes and a scale of 4
    assert (cost.bytes_read, cost.bytes_written, cost.flops) == (192 + 7_200, 192, 28_800)


# ---- what verification sees ----

SHAPE = {"M": 2, "N": 5, "K": 300}
SPOILED = {
    "B_scale": lambda data: data[-2:] + data[:-2],  # each group's scale is another's
    "B_zero": lambda data: bytes(byte ^ 0x11 for byte in data),
    "B_whole_scale": lambda data: np.float32(np.frombuffer(data, np.float32) * 1.01).tobytes(),
    "B": lambda data: bytes(byte >> 4 | (byte & 15) << 4 for byte in data),  # halves of a byte in the other order
}
HALVES = ("fp16", "bf16")
NARROW = [name for name, kind in PRECISIONS.items() if kind.roles[0] in HALVES and kind.roles[1] not in HALVES]


@pytest.mark.parametrize(("operation", "variant"), [("gemm", None), ("gemm", "separate"), ("weight_dequantize", None)])
@pytest.mark.parametrize("name", NARROW)
def test_a_wrong_scale_zero_point_or_order_is_beyond_the_tolerance(
    name: str, operation: str, variant: str | None
) -> None:
    """What a kernel with such a fault would write lies further from the reference than verification allows."""
    shape = {key: SHAPE[key] for key in registry.param_names(operation) if key in SHAPE}
    with _core.Device("cpu") as device, _core.Case(device, operation, name, shape, seed=5) as case:
        operands = {operand["name"]: operand for operand in case.operands}
        inputs = case.inputs()
        right = references.reference(operation, case, operands, inputs)["D"]
        limit = OPERATIONS[operation].allowed_error(name, shape | {"variant": variant})

        def worst(bits: dict[str, bytes]) -> float:
            found = references.decode(operands["D"], case.run(bits)["D"])
            return float(references.excess(found, right, limit, references.SPACING[operands["D"]["dtype"]]).max())

        assert worst({}) <= 1
        for spoiled in SPOILED.keys() & inputs.keys():
            assert worst({spoiled: SPOILED[spoiled](inputs[spoiled])}) > 1, spoiled


@pytest.mark.cuda
@pytest.mark.parametrize("name", NARROW)
def test_each_plan_of_a_gpu_is_right(name: str) -> None:
    """Few, many and long rows of B, and numbers of rows of A of which each has kernels of its own."""
    shapes = [(1, 5000, 512), (2, 67, 768), (3, 1030, 2304), (8, 45, 8192), (16, 4301, 256), (29, 70, 4352)]
    with _core.Device("cuda") as device:
        for m, n, k in shapes:

            def verify(shape: dict[str, int]) -> None:
                with _core.Case(device, "gemm", name, shape, variant="fused") as case:
                    result = case.verify(0.01)
                    assert result["verified"], f"{shape}: {result['reason']}"

            each_plan(device, partial(verify, {"M": m, "N": n, "K": k}))


@on_each_device
@pytest.mark.parametrize("m", [1, 3, 16])
@pytest.mark.parametrize("name", [name for name in NARROW if PRECISIONS[name].roles[0] == "bf16"])
def test_activations_in_bf16_have_its_range(kernel_device: Any, name: str, m: int) -> None:
    """A power of two that all of A is multiplied by, beyond FP16's range, is one of D's."""
    shape = {"M": m, "N": 33, "K": 512}
    for variant in kernel_device.variants("gemm", name, shape):
        if variant["refuses"]:
            continue
        with _core.Case(kernel_device, "gemm", name, shape, variant=variant["name"]) as case:
            a, plain = decoded("bf16", case.inputs()["A"]), decoded("bf16", case.run({})["D"])
            for factor in (np.float32(2.0**100), np.float32(2.0**-60)):
                found = decoded("bf16", case.run({"A": _core.encode("bf16", a * factor)})["D"])
                np.testing.assert_array_equal(found, plain * factor, err_msg=variant["name"])


@pytest.mark.cuda
def test_repacked_weights_follow_a_callers() -> None:
    """A launch after other weights were given reads those, not what was repacked before."""
    shape = {"M": 3, "N": 45, "K": 512}
    with _core.Device("cuda") as device, _core.Case(device, "gemm", "q4_0", shape, variant="repacked") as case:
        operands = {operand["name"]: operand for operand in case.operands}
        before, bits = case.run({})["D"], case.inputs()
        for given in (bits | {"B": bits["B"][18:] + bits["B"][:18]}, bits):  # each block in its neighbor's place
            found = references.decode(operands["D"], case.run({"B": given["B"]})["D"])
            right = references.reference("gemm", case, operands, given)["D"]
            limit = OPERATIONS["gemm"].allowed_error("q4_0", shape)
            assert references.excess(found, right, limit, references.SPACING["fp16"]).max() <= 1
        assert case.run({})["D"] == before


def cut(values: np.ndarray, bit: np.ndarray) -> np.ndarray:
    """Numbers without what lies 13 bits below a power of two, towards zero."""
    unit = 2.0 ** (np.floor(np.log2(np.maximum(bit, 2.0**-40))) - 13)
    return np.trunc(values / unit) * unit


def tensor_core_sums(a: np.ndarray, b: np.ndarray, together: int) -> np.ndarray:
    """Dot products of rows by steps of 32, as Hopper adds up E4M3; FP32 adds up those of so many elements."""
    totals, products = np.zeros(len(a)), a * b
    for start in range(0, a.shape[1], together):
        total = np.zeros((len(a), 1))
        for step in range(start, start + together, 32):
            terms = np.hstack([total, products[:, step : step + 32]])
            largest = np.abs(terms).max(1, keepdims=True)
            total = cut(cut(terms, largest).sum(1, keepdims=True), largest)
        totals += total[:, 0]
    return totals


@pytest.mark.parametrize("columns", [2048, 4096])
def test_only_short_sums_of_e4m3_on_tensor_cores_are_exact_enough(columns: int) -> None:
    """Each row of sums of 128 is; each of sums over all columns is not, though its elements might be."""
    stored = np.random.default_rng(columns).integers(0, 256, (2, 1000, columns), dtype=np.uint8) & 0xBF
    a, b = TYPES["fp8_e4m3"].decode(stored.tobytes()).reshape(stored.shape)
    expected, shape = (a * b).sum(1).reshape(10, 100), {"N": 100, "K": columns}
    of_rows = OPERATIONS["gemm"].typical_error("fp8_e4m3", shape)
    assert of_rows is not None
    limit = OPERATIONS["gemm"].allowed_error("fp8_e4m3", shape)
    errors = []
    for together in (128, columns):
        found = np.float16(tensor_core_sums(a, b, together)).astype(np.float64).reshape(expected.shape)
        assert references.excess(found, expected, limit, references.SPACING["fp16"]).max() <= 1
        errors.append(references.excess_of_rows(found, expected, of_rows[0], ROUNDOFF["fp16"], of_rows[1]))
    short, long = errors
    assert 0.2 < short.min() < short.max() < 1 < long.min()


EIGHT = [name for name, kind in PRECISIONS.items() if kind.scales[0]]


@pytest.mark.cuda
@pytest.mark.parametrize("name", EIGHT)
def test_products_of_eight_bits_and_their_faults_on_a_gpu(name: str) -> None:
    """Each variant is right, and what it makes of numbers and scales in other places is not."""
    with _core.Device("cuda") as device:
        for m, k in ((5, 304), (16, 4096), (77, 1040)):
            shape = {"M": m, "N": 400, "K": k, "beta": m % 2}
            for variant in device.variants("gemm", name, shape):
                if variant["refuses"]:
                    continue
                with _core.Case(device, "gemm", name, shape, variant=variant["name"], seed=5) as case:
                    inputs, what = case.inputs(), f"{variant['name']} {shape}"
                    assert case.verify(0.05)["verified"], what
                    for part in ("A", "A_scale", "B_scale"):
                        other = inputs[part][4:] + inputs[part][:4]  # each scale is another's, four numbers further
                        if len(other) > 4:
                            assert not case.verify(0.05, case.run({part: other}))["verified"], f"{part} {what}"


@pytest.mark.cuda
def test_verify_finds_sums_that_tensor_cores_add_up_alone() -> None:
    """PyTorch lets them, or has FP32 add up sums of 128."""
    torch = pytest.importorskip("torch")
    shape = {"M": 64, "N": 256, "K": 4096}
    with _core.Device("cuda") as device, _core.Case(device, "gemm", "fp8_tensor", shape) as case:
        stored = {name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, data in case.inputs().items()}
        a, b = (stored[name].cuda().view(torch.float8_e4m3fn).reshape(-1, 4096) for name in "AB")
        scales = (stored[f"{name}_scale"].cuda().view(torch.float32).reshape(()) for name in "AB")
        product = partial(torch._scaled_mm, a, b.t(), *scales, out_dtype=torch.float16)
        found = [product(use_fast_accum=fast).cpu().numpy().tobytes() for fast in (False, True)]
        assert [case.verify(0.05, {"D": bits})["verified"] for bits in found] == [True, False]


@on_each_device
def test_sums_of_bytes_at_their_largest(kernel_device: Any) -> None:
    """128 * 128 so many times, times 2^-17, is 16 383.875, in FP16 16384; one more might not fit 32 bits."""
    shape = {"M": 5, "N": 7, "K": 131071}
    ends = {name: np.full((shape[name], shape["K"]), -128, np.int8).tobytes() for name in "MN"}
    scales = {"A_scale": np.ones(5, np.float32).tobytes(), "B_scale": np.full(7, 2.0**-17, np.float32).tobytes()}
    for row in kernel_device.variants("gemm", "int8", shape):
        if row["refuses"] or row["name"] == "naive":
            continue
        with _core.Case(kernel_device, "gemm", "int8", shape, variant=row["name"]) as case:
            found = case.run({"A": ends["M"], "B": ends["N"]} | scales)["D"]
        assert set(decoded("fp16", found).tolist()) == {16384.0}, row["name"]
    longer = kernel_device.variants("gemm", "int8", shape | {"K": 131072})
    assert all(row["refuses"] for row in longer if row["name"] in ("words", "bytes"))


@on_each_device
@pytest.mark.parametrize("head_dim", [5, 16])
@pytest.mark.parametrize("precision", ["fp8_e4m3", "int8"])
def test_gather_multiplies_every_byte(kernel_device: Any, precision: str, head_dim: int) -> None:
    """NaN among them, by scales whose products are subnormal, ordinary and infinite in FP16."""
    shape = {"batch": 2, "kv_len": 50, "num_kv_heads": 3, "head_dim": head_dim, "page_size": 7, "dequantize": 1}
    with _core.Case(kernel_device, "kv_gather", precision, shape) as case:
        inputs = case.inputs()
        stored = np.resize(np.arange(256, dtype=np.uint8), (16, 7, 3, head_dim))
        scales = np.frombuffer(inputs["k_cache_scale"], np.float32).reshape(16, 7, 3, 1)
        scales = scales * np.exp2(np.arange(3, dtype=np.float32) * 20 - 20)[:, None]
        found = case.run({"k_cache": stored.tobytes(), "k_cache_scale": scales.tobytes()})["k"]
    with np.errstate(over="ignore"):
        wanted = (TYPES[precision].decode(stored.tobytes()).reshape(stored.shape).astype(np.float32) * scales).astype(
            np.float16
        )
    pages = np.frombuffer(inputs["table"], np.int32).reshape(2, 8)
    wanted = wanted[pages].reshape(2, 56, 3, head_dim)[:, :50]
    assert np.isinf(wanted).any()
    assert np.isnan(wanted).any() == (precision == "fp8_e4m3")
    np.testing.assert_array_equal(np.frombuffer(found, np.float16).reshape(wanted.shape), wanted)


@pytest.mark.parametrize("name", ["int4_g32", "q4_k", "q4_0"])
def test_an_infinite_activation_makes_infinite_sums(name: str) -> None:
    """With zero points and minima, too: NaN is only what 0 times infinity is."""
    a = np.ones((3, 300), np.float16)
    a[1, 5], a[2, 290] = np.inf, -np.inf
    cases = [bwprof.Case("gemm", precision=name, device="cpu", variant=v, M=3, N=40, K=300) for v in ("naive", "gemv")]
    naive, gemv = (case.run(A=a)["D"] for case in cases)
    np.testing.assert_array_equal(np.isfinite(gemv), np.arange(3)[:, None] == np.zeros(40))
    np.testing.assert_array_equal(gemv[1:], naive[1:])
    assert np.isinf(gemv[1:]).mean() > 0.8
    for case in cases:
        case.close()


# ---- what has no kernel ----


@pytest.mark.parametrize("operation", ["gemm", "attention_prefill"])
def test_a_case_without_a_kernel_says_what_is_known(operation: str) -> None:
    with pytest.raises(bwprof.errors.UnsupportedError, match=r"no kernel takes .*bwprof\.cost"):
        bwprof.Case(operation, precision="tf32", device="cpu")


@pytest.mark.parametrize(
    ("words", "runs_in"),
    [
        (["gemm", "--precision", "tf32"], ["gemm on cpu runs in fp32, fp16, bf16, fp8_e4m3, int8"]),
        (["gemm", "--precision", "tf32", "--once"], ["gemm on cpu runs in fp32, fp16, bf16, fp8_e4m3, int8"]),
        (
            ["gemm", "--variant", "blocked", "--precision", "q4_0"],
            ["gemm blocked on cpu runs in fp32, fp16, bf16, fp8_e4m3, int8 "],
        ),
        (
            ["gemm", "kv_copy", "--precision", "tf32"],
            ["gemm on cpu", "kv_copy on cpu runs in fp32, fp16, bf16, fp8_e4m3, int8"],
        ),
    ],
)
def test_a_precision_that_no_case_has_a_kernel_for(
    words: list[str], runs_in: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line before the device is opened, and neither a table nor a folder."""
    assert main_sweep([*words, "--device", "cpu", "--output", str(tmp_path / "runs")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), (tmp_path / "runs").exists()) == ("", 1, False)
    assert all(found in err for found in runs_in)
    with pytest.raises(ValueError, match=r"gemm on cpu .* q4_0\b"):
        bwprof.sweep("gemm", precision="tf32", device="cpu")


@pytest.mark.parametrize(
    "words",
    [
        ["ab", "gemm:naive", "gemm:gemv"],
        ["ablation", "gemm"],
        ["variants", "gemm"],
        ["sweep", "stream_read", "kv_append", "kv_copy", "gemm"],
    ],
)
def test_no_kernel_is_one_line_in_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before the device is opened; operations with the same precisions stand together."""
    assert cli.main([*words, "--precision", "tf32", "--device", "cpu"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no kernel" in err
    assert "tf32" in err
    assert "q4_0" in err
    assert err.count("fp32, fp16, bf16") == (3 if words[0] == "sweep" else 1)


def test_variants_of_a_precision_with_kernels_beside_one_without(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["variants", "gemm", "--precision", "tf32,fp16", "--device", "cpu"]) == 0
    assert "not in this precision" in capsys.readouterr().out
