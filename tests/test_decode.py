"""attention_decode with divided keys: long rows, many blocks, clusters, NaN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references
from references import DEVICES, check, decode, on_each_device

from bwprof import _core

kernel_device, opened = references.kernel_device, references.opened

PLANS = 28  # the most that a shape has


def each_plan(device: _core.Device, run: Callable[[], object]) -> None:
    """Run with each plan that a search could choose, one after another."""
    try:
        for plan in range(1, PLANS + 1):
            device._force_plan(plan)
            try:
                run()
            except _core.UnsupportedError:  # there are no more
                assert plan > 1
                return
    finally:
        device._force_plan(0)


def verify_often(device: _core.Device, precision: str, params: dict[str, Any]) -> None:
    """A launch leaves its scratch, its tickets and its counts as it found them."""
    sizes = {name: value for name, value in params.items() if name != "kv_lens"}
    lengths = params.get("kv_lens")
    with _core.Case(device, "attention_decode", precision, sizes, kv_lens=lengths, variant="splitkv", seed=7) as case:
        for _ in range(3):
            result = case.verify(0.005)
            assert result["verified"], result["reason"]
            assert result["rows_checked"] > 0


def test_no_shape_has_more_plans(source_tree: Path) -> None:
    plan = (source_tree / "csrc/cuda/kernels/attention/decode/plan.h").read_text()
    assert f"bw_decode_plans_most = {PLANS};" in plan


LONG_DECODES = [
    {"batch": 1, "kv_len": 20011, "num_heads": 3, "num_kv_heads": 1, "head_dim": 64},
    {"batch": 9, "kv_len": 1501, "num_heads": 16, "num_kv_heads": 8, "head_dim": 40},
    {"num_heads": 8, "num_kv_heads": 2, "head_dim": 128, "kv_lens": [9000, 1, 5003]},
    {"num_heads": 40, "num_kv_heads": 2, "head_dim": 128, "kv_lens": [9000, 1, 5003]},
    # Blocks of twelve warps, and entries of fewer blocks than share out the longest one's sums.
    {"num_heads": 8, "num_kv_heads": 4, "head_dim": 80, "kv_lens": [4000, 1, 40, 1700, 3999, 900]},
    {"batch": 3, "kv_len": 3001, "num_heads": 64, "num_kv_heads": 1, "head_dim": 64},
    # Two warps, with 16 heads each, may share keys, and four.
    {"batch": 17, "kv_len": 1099, "num_heads": 64, "num_kv_heads": 1, "head_dim": 128},
    {"batch": 34, "kv_len": 1099, "num_heads": 64, "num_kv_heads": 1, "head_dim": 128},
    {
        **{"num_heads": 64, "num_kv_heads": 1, "head_dim": 120},
        "kv_lens": [1 + 16 * i if i % 4 == 1 else 1100 - 13 * i for i in range(20)],
    },
    # Two, four and six splits there: a warp puts eight, four or two records together at once, FP32's in two turns.
    {"batch": 20, "kv_len": 200, "num_heads": 8, "num_kv_heads": 1, "head_dim": 256},
    {"batch": 40, "kv_len": 200, "num_heads": 8, "num_kv_heads": 1, "head_dim": 128},
    {"batch": 24, "kv_len": 333, "num_heads": 7, "num_kv_heads": 1, "head_dim": 120},
]


@on_each_device
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", LONG_DECODES, ids=lambda shape: f"{shape.get('batch', 'ragged')}x{shape['head_dim']}")
def test_decode_over_more_keys_than_blocks_combine_at_once(kernel_device, precision, shape):
    check(kernel_device, "attention_decode", None, precision, shape)


# More blocks than run at once on an H200, large ones first: those that wait must leave room for the others.
CROWDED_DECODES = [
    {"batch": 133, "kv_len": 1196, "num_heads": 9, "num_kv_heads": 1, "head_dim": 64},
    {"batch": 133, "kv_len": 905, "num_heads": 17, "num_kv_heads": 1, "head_dim": 128},
    {"batch": 67, "kv_len": 2263, "num_heads": 64, "num_kv_heads": 1, "head_dim": 128},
    # Several of each K/V head wait for the others: large ones and small ones, in 16 bits; in FP32. (check_plans.cc)
    {"batch": 180, "kv_len": 6132, "num_heads": 2, "num_kv_heads": 1, "head_dim": 24},
    {"batch": 133, "kv_len": 3804, "num_heads": 1, "num_kv_heads": 1, "head_dim": 64},
    {"batch": 133, "kv_len": 1773, "num_heads": 1, "num_kv_heads": 1, "head_dim": 24},
    # In FP32 blocks whose keys go through shared memory, one of each K/V head waiting.
    {"batch": 34, "kv_len": 500, "num_heads": 8, "num_kv_heads": 8, "head_dim": 128},
]


# FP32 on tensor cores: one tile of 16 heads and two, groups of several blocks, rows that fill a ring's and others, keys
# that fill no tile. Batch, keys, heads, K/V heads, head_dim.
SPLIT_DECODES = [
    *((3, 1001, 5, 1, 128), (1, 77, 16, 1, 68), (2, 515, 17, 1, 128), (2, 300, 66, 2, 100), (1, 9, 40, 1, 128)),
    *((40, 1500, 24, 2, 64), (4, 2100, 100, 1, 64), (1, 20000, 12, 2, 36)),
]


@pytest.mark.cuda
@pytest.mark.parametrize("shape", SPLIT_DECODES, ids=str)
def test_decode_of_many_heads_in_fp32(shape):
    names = ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim")
    with _core.Device("cuda") as device:
        each_plan(
            device, lambda: check(device, "attention_decode", "splitkv", "fp32", dict(zip(names, shape, strict=True)))
        )


# On Hopper splits may be a cluster, of eight blocks, of four, of two. Batch, keys, heads, K/V heads, head_dim.
CLUSTERED_DECODES = [
    *((4, 3001, 32, 2, 128), (3, 2047, 24, 2, 112), (1, 640, 32, 2, 64), (8, 3001, 24, 2, 64), (13, 999, 16, 1, 128)),
    *((33, 4099, 9, 1, 128), (12, 3333, 24, 2, 72)),
]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", CLUSTERED_DECODES, ids=str)
def test_decode_whose_splits_are_a_cluster(precision, shape):
    names = ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim")
    with _core.Device("cuda") as device:
        each_plan(
            device,
            lambda: check(device, "attention_decode", "splitkv", precision, dict(zip(names, shape, strict=True))),
        )


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", CROWDED_DECODES, ids=lambda shape: f"{shape['num_heads']}x{shape['head_dim']}")
def test_decode_of_more_blocks_than_run_at_once(precision, shape):
    with _core.Device("cuda") as device:
        each_plan(device, lambda: check(device, "attention_decode", "splitkv", precision, shape))


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("trend", [1, -1])
@pytest.mark.parametrize(
    ("batch", "kv_len", "heads", "head_dim"),
    # Blocks that meet 64 keys at one go, in many splits and in few, 128 and 256 of them; more keys; groups above 8.
    [(2, 3001, 7, 64), (2, 1000, 7, 64), (9, 1024, 7, 64), (9, 2001, 7, 64), (1, 16384, 3, 64)]
    + [(2, 3001, heads, head_dim) for heads, head_dim in ((8, 128), (12, 64), (20, 128), (40, 64), (64, 128))]
    + [(2, 3001, 3, 160), (2, 3001, 8, 192), (2, 3001, 12, 176)],
)
def test_decode_follows_scores_that_rise_and_fall(batch, kv_len, heads, head_dim, trend, precision):
    """Scores rise by 9 per hundred keys, by another rate per head, so that maxima change; one key has the largest
    score. (FP32: 4.5, because scores of several hundred have fewer digits than the tolerance needs.)
    """
    shape = {"batch": batch, "kv_len": kv_len, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim}

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        rng = np.random.default_rng(19)
        arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in "qkv"}
        arrays["q"][..., 0] = np.arange(heads) % 5 / (4 if precision == "fp32" else 2)
        ramp = trend * 0.045 * np.sqrt(head_dim) * np.arange(float(kv_len))
        ramp[4 * kv_len // 9] = 100 * np.sqrt(head_dim)
        # Whole numbers below 2048, which FP16 holds; BF16 rounds them.
        arrays["k"][:, :, 0, 0] = np.round(np.clip(ramp, -2000, 2000))
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}

    with _core.Device("cuda") as device:
        each_plan(device, lambda: check(device, "attention_decode", "splitkv", precision, shape, given))


# Where a block meets its keys at one go, 64, 128 or 256 of them, on an H200 (one shape has too many splits): whole
# blocks and others, few splits and many. (batch, kv_len, num_heads, num_kv_heads)
ONESHOTS = [
    *[(1, 640, 7, 1), (1, 601, 7, 1), (1, 1216, 8, 2), (1, 1217, 15, 3), (2, 8192, 1, 1)],
    *[(4, 1024, 14, 2), (4, 1000, 14, 2), (1, 4096, 14, 2), (1, 4095, 14, 2)],
    *[(9, 1024, 7, 1), (8, 1000, 6, 2), (1, 8192, 14, 2), (2, 4003, 16, 2)],
    *[(12, 1024, 14, 2), (12, 1000, 6, 2), (1, 16384, 6, 2), (1, 16000, 10, 2)],
]


@pytest.mark.parametrize("kernel_device", DEVICES[-1:], indirect=True)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", ONESHOTS, ids=lambda shape: "x".join(map(str, shape)))
def test_decode_of_keys_that_blocks_combine_at_once(kernel_device, precision, shape):
    params = dict(zip(("batch", "kv_len", "num_heads", "num_kv_heads"), shape, strict=True), head_dim=64)
    each_plan(kernel_device, lambda: check(kernel_device, "attention_decode", "splitkv", precision, params))


# Where FP32 keeps to shared memory with few heads: more than 84 MB of K and V on an H200. Too much to work out whole.
@pytest.mark.parametrize("kernel_device", DEVICES[-1:], indirect=True)
@pytest.mark.parametrize(
    ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim", "ragged"),
    [(11, 4096, 4, 4, 64, 0), (11, 4001, 16, 4, 64, 0), (11, 4000, 28, 4, 64, 1), (5, 13000, 12, 4, 44, 0)],
)
def test_decode_of_many_short_rows(kernel_device, batch, kv_len, num_heads, num_kv_heads, head_dim, ragged):
    params = {"batch": batch, "kv_len": kv_len, "num_heads": num_heads}
    params |= {"num_kv_heads": num_kv_heads, "head_dim": head_dim}
    lengths = [kv_len, *(1 + i * kv_len // batch for i in range(batch - 1))] if ragged else None
    with _core.Case(kernel_device, "attention_decode", "fp32", params, kv_lens=lengths, variant="splitkv") as case:
        for _ in range(2):  # a launch leaves its scratch as it found it
            result = case.verify(1.0)
            assert result["verified"], result["reason"]
            assert result["rows_checked"] > 0


# Blocks may take runs of parts (check_plans.cc); of an entry two parts to twenty-three.
RUN_DECODES = [
    *((8, 8, 128, [9000, 1, 5003, 20011, 70, 3000]), (8, 1, 128, [1 + i * 22 % 31 * 387 for i in range(12)])),
    *((8, 8, head_dim, [1 + i * 37 % 29 * 150 for i in range(24)]) for head_dim in (64, 192)),
    *((8, 4, head_dim, [1 + i * 37 % 29 * 97 for i in range(40)]) for head_dim in (80, 160)),
    *((5, 5, 96, [1 + 100 * i for i in range(1, 33)]), (8, 8, 256, [1 + i * 37 % 29 * 290 for i in range(9)])),
]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", RUN_DECODES, ids=lambda shape: f"{len(shape[3])}x{shape[2]}")
def test_decode_by_runs_of_parts(precision, shape):
    num_heads, num_kv_heads, head_dim, lengths = shape
    params = {"batch": len(lengths), "kv_len": max(lengths), "num_heads": num_heads}
    params |= {"num_kv_heads": num_kv_heads, "head_dim": head_dim}
    with _core.Device("cuda") as device:
        each_plan(
            device, lambda: check(device, "attention_decode", "splitkv", precision, params | {"kv_lens": lengths})
        )


# An entry's blocks may share keys (check_plans.cc): the last tile whole, or of one key, or of 15;
# all at once, or in turns.
SHARED_DECODES = [
    *((1, keys, 32, 8, 128) for keys in (12288, 12289, 20015)),
    *((3, 40001, group, 1, 128) for group in (1, 3, 7)),
    *((3, 3500, 40, 8, head_dim) for head_dim in (104, 160, 192, 256)),
    *((11, 8191, 8, 8, 128), (21, 8192, 16, 4, 128)),
]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", SHARED_DECODES, ids=lambda shape: "x".join(map(str, shape)))
def test_decode_of_keys_that_blocks_share(precision, shape):
    params = dict(zip(("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim"), shape, strict=True))
    with _core.Device("cuda") as device:
        each_plan(device, lambda: verify_often(device, precision, params))


# Each kind of blocks, of entries that are equally long and of others. Batch, keys, heads, K/V heads, head_dim, lengths.
EVERY_PLAN = [
    *((3, 3001, 14, 2, 64, 0), (1, 1500, 8, 1, 128, 0), (9, 2049, 16, 4, 128, 0), (5, 700, 12, 4, 80, 0)),
    *((4, 1999, 8, 2, 160, 0), (40, 300, 8, 8, 128, 0), (40, 300, 8, 8, 64, 0), (3, 2047, 24, 2, 112, 0)),
    *((2, 1999, 40, 1, 128, 0), (5, 1000, 72, 2, 64, 0), (2, 1500, 24, 2, 192, 0), (2, 999, 6, 2, 100, 0)),
    *((6, 3000, 16, 4, 128, 1), (12, 2000, 14, 2, 64, 1), (24, 900, 8, 4, 96, 1), (7, 1800, 40, 2, 128, 1)),
    *((9, 1200, 8, 2, 256, 1), (6, 800, 9, 1, 72, 1)),
]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", EVERY_PLAN, ids=lambda shape: "x".join(map(str, shape)))
def test_every_plan_of_a_decode(precision, shape):
    *values, ragged = shape
    params = dict(zip(("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim"), values, strict=True))
    if ragged:
        batch, keys = params.pop("batch"), params.pop("kv_len")
        params["kv_lens"] = [1 + i * 37 % batch * keys // batch for i in range(batch - 1)] + [keys]
    with _core.Device("cuda") as device:
        each_plan(device, lambda: check(device, "attention_decode", "splitkv", precision, params))
        each_plan(device, lambda: verify_often(device, precision, params))


@pytest.mark.cuda
def test_search_for_the_fastest_plan_is_kept_and_its_traffic_counted():
    params = {"batch": 11, "kv_len": 8192, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    extra = []

    def measure() -> None:
        with _core.Case(device, "attention_decode", "fp16", params, variant="splitkv") as case:
            assert case.measure(max_seconds=0.05)["verified"]
            extra.append(case.cost["algorithmic_bytes_read"] - case.cost["bytes_read"])

    with _core.Device("cuda") as device:
        each_plan(device, measure)
        measure()
        # What the search found is known before the next case of this shape runs.
        with _core.Case(device, "attention_decode", "fp16", params, variant="splitkv") as case:
            assert case.cost["algorithmic_bytes_read"] - case.cost["bytes_read"] == extra[-1]
    assert extra[-1] in extra[:-1]
    assert len(set(extra)) > 1


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("heads", "head_dim"), [(7, 64), (7, 128), (20, 96)])
def test_decode_passes_a_nan_on_whatever_its_bits(kernel_device, heads, head_dim, precision):
    """A NaN with all bits set must not look like a kernel's mark."""
    params = {"batch": 1, "kv_len": 300, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim}
    with _core.Case(kernel_device, "attention_decode", precision, params) as case:
        size = next(len(data) for name, data in case.inputs().items() if name == "v")
        out = case.run({**case.inputs(), "v": b"\xff" * size})
        operand = next(row for row in case.operands if row["name"] == "out")
        assert np.isnan(decode(operand, out["out"])).all()
