"""Bytes and FLOPs against numbers calculated by hand. The arithmetic is beside each, also in tests/operations."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from operations import OPERATIONS
from precisions import PRECISIONS, TYPES, scale_bytes

from bwprof import _core
from bwprof.registry import variant_names

# operation, precision, parameters, bytes_read, bytes_written, flops
WORKED = [(name, *row) for name, operation in OPERATIONS.items() for row in operation.worked]


@pytest.mark.parametrize(("operation", "precision", "params", "read", "written", "flops"), WORKED)
def test_worked_values(operation, precision, params, read, written, flops):
    cost = _core.cost(operation, precision, params)
    assert (cost["bytes_read"], cost["bytes_written"], cost["flops"]) == (read, written, flops)
    assert cost["algorithmic_bytes_read"] == read
    assert cost["algorithmic_bytes_written"] == written


def scales_of(precision, role):
    """Return a function of a matrix's rows and columns: bytes of its scales."""
    kind = PRECISIONS[precision]
    return lambda rows, columns: scale_bytes(kind, role, rows, columns)


@pytest.mark.parametrize(("operation", "precision", "params", "read", "written", "flops"), WORKED)
def test_formulas_as_text(operation, precision, params, read, written, flops):
    """Evaluating the printed formula gives the values calculated by hand."""
    described = next(found for found in _core.operations() if found["name"] == operation)
    roles = next(found for found in _core.precisions() if found["name"] == precision)
    sizes = {found["name"]: found["block_bytes"] / found["block_elems"] for found in _core.dtypes()}
    whole = _core.complete(operation, precision, params)
    names = {f"e_{role}": sizes.get(roles[role], 0) for role in ("activation", "weight", "cache", "result")}
    names["e_cache"] = names["e_cache"] or names["e_activation"]
    names |= {f"{role}_scales": scales_of(precision, role) for role in ("activation", "weight", "cache")}
    names |= whole | {"keys": whole.get("batch", 1) * whole.get("kv_len", 1), "ceil": math.ceil}
    if "K" in whole:  # of a row's last weights the whole block counts
        block, _ = TYPES[roles["weight"]].block
        names["e_weight"] *= block * math.ceil(whole["K"] / block) / whole["K"]
    worked = [eval(text, {}, names) for text in described["formulas"].values()]
    assert list(described["formulas"]) == ["bytes_read", "bytes_written", "flops"]
    assert worked == pytest.approx([read, written, flops], rel=1e-12)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("m", "unfused", "fused", "ratio"),
    [
        # A and B and bias; D five times (the product, relu and dropout write it, two of them read it), and once
        (4096, (2 * 4096**2 + 4096) + 5 * 4096**2, (2 * 4096**2 + 4096) + 4096**2, 2.333),
        (1, (4096 + 4096**2 + 4096) + 5 * 4096, (4096 + 4096**2 + 4096) + 4096, 1.001),
    ],
)
def test_what_fusion_saves_a_linear_layer(backend, m, unfused, fused, ratio):
    if not _core.operations()[0]["variants"].get(backend):
        pytest.skip(f"{backend} is not in this build")
    moved = []
    for variant in ("unfused", "fused"):
        cost = _core.cost("linear_relu_dropout", "fp16", {"M": m}, backend=backend, variant=variant)
        moved.append(cost["algorithmic_bytes_read"] + cost["algorithmic_bytes_written"])
    assert moved == [2 * unfused, 2 * fused]
    assert moved[0] / moved[1] == pytest.approx(ratio, abs=5e-4)


def test_lengths_are_summed():
    heads = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 8}
    cost = _core.cost("attention_decode", "fp32", heads, kv_lens=[100, 50])
    # q 2*6*8 = 96, k and v 2*(100+50)*2*8 = 4800 elements of 4 bytes; out 96; 4*6*8*150
    assert cost["bytes_read"] == (96 + 4_800) * 4
    assert cost["bytes_written"] == 96 * 4
    assert cost["flops"] == 28_800


def test_unfused_attention_stores_its_scores():
    params = {"seq_len": 512, "num_heads": 14, "num_kv_heads": 2, "head_dim": 64, "causal": 1}
    cost = _core.cost("attention_prefill", "fp16", params, backend="cpu", variant="unfused")
    # scores and weights, written and read once each: 2*14*512*512*2 = 14680064 each way on top
    assert cost["algorithmic_bytes_read"] == 1_179_648 + 14_680_064
    assert cost["algorithmic_bytes_written"] == 917_504 + 14_680_064
    assert cost["bytes_read"] == 1_179_648
    # weights lie where the scores did: q and out 2 * 917504, k and v 2 * 131072, 14*512*512*2 of scores
    assert cost["footprint_bytes"] == 1_179_648 + 917_504 + 7_340_032


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_separate_moves_eight_times_the_bytes(backend):
    if "separate" not in variant_names("gemm", backend, "q4_0"):
        pytest.skip(f"{backend} is not in this build")
    cost = _core.cost("gemm", "q4_0", {"M": 1, "N": 4096, "K": 4096}, backend=backend, variant="separate")
    # 4096*4096*2 = 33554432 written and read on top of 9445376 read and 8192 written; 76562432 in all
    assert (cost["algorithmic_bytes_read"], cost["algorithmic_bytes_written"]) == (42_999_808, 33_562_624)
    assert (cost["bytes_read"], cost["bytes_written"]) == (9_445_376, 8_192)
    assert cost["footprint_bytes"] == 9_453_568 + 33_554_432


@pytest.mark.parametrize("operation", [op["name"] for op in _core.operations()])
def test_a_case_has_the_footprint_that_its_cost_says(operation):
    with _core.Device("cpu") as device:
        for variant in next(op for op in _core.operations() if op["name"] == operation)["variants"]["cpu"]:
            params = {"num_heads": 4, "kv_len": 100} if operation.startswith(("attention", "mla")) else {}
            params |= {"seq_len": 64} if operation == "attention_prefill" else {}
            precision = "fp16" if "fp16" in variant["precisions"] else variant["precisions"][0]
            with _core.Case(device, operation, precision, params, variant=variant["name"]) as case:
                said = _core.cost(operation, precision, params, backend="cpu", variant=variant["name"])
                assert said == case.cost, variant["name"]


UNFUSED = [
    # 2*7*5*2 more are read, and twice 7*4 of maxima; 7*5*2 + 7*4 written
    ("logsumexp", {"rows": 7, "columns": 5}, 196, 98),
    ("residual_rmsnorm", {"tokens": 7, "hidden": 5}, 70, 0),  # the sum, 7*5*2, is read again
]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize(("operation", "params", "read", "written"), UNFUSED)
def test_what_is_not_fused_moves_more(operation, params, read, written, backend):
    if backend == "cuda" and not _core.build["cuda"]:
        pytest.skip(f"built without CUDA: {_core.build['cuda_reason']}")
    cost = _core.cost(operation, "fp16", params, None, backend, "unfused")
    assert cost["algorithmic_bytes_read"] - cost["bytes_read"] == read
    assert cost["algorithmic_bytes_written"] - cost["bytes_written"] == written


SPLIT_DECODES = [
    # 4096 keys in 64 splits of 64 (few enough for one block each); 64 splits * 14 heads * 4 records of 72 bytes; a part
    # of 16 bytes says where each split lies
    ("fp16", {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64}, [4096], 258_048, 64),
    # the second entry has one split, which stores nothing
    ("fp16", {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64}, [4096, 64], 258_048, 65),
    # 40 elements take 3 records, the last one half empty: (64 + 2) splits * 14 heads * 3 * 72 bytes
    ("fp32", {"num_heads": 14, "num_kv_heads": 2, "head_dim": 40}, [4096, 85], 199_584, 66),
    ("fp16", {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64}, [16], 0, 1),
]


@pytest.mark.skipif(not _core.build["cuda"], reason=f"built without CUDA: {_core.build['cuda_reason']}")
@pytest.mark.parametrize(("precision", "heads", "kv_lens", "stored", "parts"), SPLIT_DECODES)
def test_a_split_decode_stores_its_parts(precision, heads, kv_lens, stored, parts):
    """The number of multiprocessors is 132, without a device."""
    cost = _core.cost("attention_decode", precision, heads, kv_lens, "cuda", "splitkv")
    assert cost["algorithmic_bytes_read"] - cost["bytes_read"] == stored + 16 * parts
    assert cost["algorithmic_bytes_written"] - cost["bytes_written"] == stored


PLAIN_DECODES = [
    # 396 blocks (3 for each of 132 multiprocessors) for 14 query heads: 28 splits of 147 keys, of 64 + 2 floats each
    ("split", [4096], 28 * 14 * 66 * 4),
    # 14 splits of 293 keys, and one of the second entry's
    ("split", [4096, 64], (14 + 1) * 14 * 66 * 4),
    # few K/V heads: 64 keys a block
    ("grouped", [4096], 64 * 14 * 66 * 4),
    ("simple", [4096], 0),
]


@pytest.mark.skipif(not _core.build["cuda"], reason=f"built without CUDA: {_core.build['cuda_reason']}")
@pytest.mark.parametrize(("variant", "kv_lens", "extra"), PLAIN_DECODES)
def test_a_plain_split_decode_stores_its_parts(variant, kv_lens, extra):
    shape = {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64}
    cost = _core.cost("attention_decode", "fp16", shape, kv_lens, "cuda", variant)
    assert cost["algorithmic_bytes_read"] - cost["bytes_read"] == extra
    assert cost["algorithmic_bytes_written"] - cost["bytes_written"] == extra


def test_arithmetic_intensity_of_a_published_case():
    """8192 x 8192 x 128 in FP16: 2*M*N*K / bytes = 124.1 FLOP per byte."""
    cost = _core.cost("gemm", "fp16", {"M": 8192, "N": 8192, "K": 128})
    intensity = cost["flops"] / (cost["bytes_read"] + cost["bytes_written"])
    assert intensity == pytest.approx(124.12, abs=0.01)


def test_square_gemm_intensity_is_a_third_of_its_size():
    for precision, divisor in (("fp16", 3), ("fp32", 6)):
        cost = _core.cost("gemm", precision, {"M": 4096, "N": 4096, "K": 4096})
        assert cost["flops"] / (cost["bytes_read"] + cost["bytes_written"]) == pytest.approx(4096 / divisor)


def test_many_shapes_at_once_equal_one_by_one():
    shapes = np.array([[1, 896, 896, 0], [128, 4864, 896, 0], [7, 11, 13, 1]], dtype=np.int64)
    out = np.empty((3, 6), dtype=np.int64)
    _core.cost_many("gemm", "fp16", shapes, out)
    for row, (m, n, k, beta) in zip(out, shapes.tolist(), strict=True):
        single = _core.cost("gemm", "fp16", {"M": m, "N": n, "K": k, "beta": beta})
        assert row.tolist() == list(single.values())
    assert out[1, 0] == 8_945_664


def test_costs_in_unaligned_buffers() -> None:
    """A build with BWPROF_SANITIZE=undefined reports unaligned accesses."""
    shapes = np.array([[1, 2, 3, 0], [4, 5, 6, 1]])
    aligned = np.empty((2, 6), np.int64)
    _core.cost_many("gemm", "fp32", shapes, aligned)
    for offset in (1, 4):
        values, out = bytearray(offset) + shapes.tobytes(), bytearray(offset + aligned.nbytes)
        _core.cost_many("gemm", "fp32", memoryview(values)[offset:], memoryview(out)[offset:])
        assert out[offset:] == aligned.tobytes()


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**63, -(2**70)])
@pytest.mark.parametrize("name", ["M", "N", "K"])
def test_sizes_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=rf"{name} = {value}"):
        _core.cost("gemm", "fp32", {name: value})


def test_overflow_is_an_error_not_a_number():
    big = 2**31 - 1
    with pytest.raises(ValueError, match="overflow"):
        _core.cost("gemm", "fp32", {"M": big, "N": big, "K": big})
    with pytest.raises(ValueError, match="overflow"):
        _core.cost("attention_decode", "fp32", {"batch": big, "kv_len": big, "num_heads": 4096})
    with pytest.raises(ValueError, match="overflow"):  # 3 pages each: the rows of the cache alone pass 2^63
        _core.cost("kv_append", "fp32", {"batch": big, "seq_len": big, "kv_len": big, "page_size": big - 1})


@pytest.mark.parametrize(
    ("operation", "params", "message"),
    [
        ("attention_decode", {"num_heads": 14, "num_kv_heads": 4}, "num_heads = 14 is not a multiple of"),
        ("attention_prefill", {"seq_len": 8, "kv_len": 4}, "kv_len = 4 is less than seq_len = 8"),
        ("attention_prefill", {"head_dim": 257}, "head_dim = 257: allowed is 1 to 256"),
        ("gemm", {"m": 1}, "gemm has no parameter 'm': allowed are M, N, K, beta"),
        ("gemm", {"M": 1.5}, "M = 1.5: allowed is a whole number"),
        ("gemm", {"beta": 2}, "beta = 2: allowed is 0 to 1"),
    ],
)
def test_bad_parameters_are_refused(operation, params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        _core.cost(operation, "fp32", params)


def test_bad_lengths_are_refused():
    with pytest.raises(ValueError, match=r"kv_lens\[1\] = 0"):
        _core.cost("attention_decode", "fp32", {}, kv_lens=[4, 0])
    with pytest.raises(ValueError, match=r"kv_lens has 2.*3"):
        _core.cost("attention_decode", "fp32", {"batch": 3}, kv_lens=[4, 5])
    with pytest.raises(ValueError, match="gemm takes no kv_lens"):
        _core.cost("gemm", "fp32", {}, kv_lens=[4])


def test_errors_of_unknown_names_list_the_allowed_ones():
    with pytest.raises(ValueError, match=r"operation 'gem':.*stream_read,.*gemm"):
        _core.cost("gem", "fp32", {})
    with pytest.raises(ValueError, match=r"precision 'fp8':.*fp32, tf32, fp16"):
        _core.cost("gemm", "fp8", {})
    with pytest.raises(ValueError, match=r"kv_copy.*tf32"):
        _core.cost("kv_copy", "tf32", {})


def test_defaults_come_from_earlier_parameters():
    params = _core.complete("attention_prefill", "fp16", {"seq_len": 77, "num_heads": 6})
    assert params["kv_len"] == 77
    assert params["num_kv_heads"] == 6
    lengths = _core.complete("attention_decode", "fp16", {}, kv_lens=[3, 9, 5])
    assert lengths["batch"] == 3
    assert lengths["kv_len"] == 9
