"""attention_decode with divided keys: long rows, many blocks, clusters, NaN."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references
from references import check, decode, on_each_device

from bwprof import _core

kernel_device, opened = references.kernel_device, references.opened

PLANS = 28  # the most that a shape has


def each_plan(device: _core.Device, run: Callable[[], object]) -> None:
    """Run with each plan that a search could choose, one after another."""
    try:
        for plan in range(1, PLANS + 1):
            device._force_plan(plan)
            run()
    except _core.UnsupportedError:  # there are no more
        assert plan > 1
    finally:
        device._force_plan(0)


def verify_often(device: _core.Device, precision: str, params: dict[str, Any]) -> None:
    """A launch leaves its scratch, its tickets and its counts as it found them."""
    sizes = {name: value for name, value in params.items() if name != "kv_lens"}
    lengths = params.get("kv_lens")
    with _core.Case(device, "attention_decode", precision, sizes, kv_lens=lengths, variant="splitkv") as case:
        for _ in range(2):
            result = case.verify(0.005)
            assert result["verified"], result["reason"]
            assert result["rows_checked"] > 0


def test_no_shape_has_more_plans(source_tree: Path) -> None:
    assert f"plans_most = {PLANS};" in (source_tree / "csrc/cuda/kernels/attention/decode/plan.h").read_text()


# Batch (or the entries' lengths), keys, heads, K/V heads, head_dim.
LONG_DECODES = [
    *(
        (1, 20011, 3, 1, 64),
        (9, 1501, 16, 8, 40),
        ([9000, 1, 5003], 9000, 8, 2, 128),
        ([9000, 1, 5003], 9000, 40, 2, 128),
    ),
]
# On a GPU also:
SHARED_DECODES = [
    # Blocks of twelve warps, and entries of fewer blocks than share out the longest one's sums.
    *(([4000, 1, 40, 1700, 3999, 900], 4000, 8, 4, 80), (3, 3001, 64, 1, 64)),
    # Two warps, with 16 heads each, may share keys, and four.
    *((17, 1099, 64, 1, 128), (34, 1099, 64, 1, 128)),
    ([1 + 16 * i if i % 4 == 1 else 1100 - 13 * i for i in range(20)], 1100, 64, 1, 120),
    # Two, four and six splits: a warp puts eight, four or two records together at once, FP32's in two turns.
    *((20, 200, 8, 1, 256), (40, 200, 8, 1, 128), (24, 333, 7, 1, 120)),
]


def params_of(shape: tuple[Any, ...]) -> dict[str, Any]:
    batch, keys, heads, kv_heads, head_dim = shape
    params = {"kv_len": keys, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim}
    return params | ({"kv_lens": batch} if isinstance(batch, list) else {"batch": batch})


@on_each_device
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", LONG_DECODES, ids=lambda shape: "x".join(map(str, shape[1:])))
def test_decode_over_more_keys_than_blocks_combine_at_once(kernel_device, precision, shape):
    check(kernel_device, "attention_decode", None, precision, params_of(shape))


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("shape", SHARED_DECODES, ids=lambda shape: "x".join(map(str, shape[1:])))
def test_decode_whose_warps_and_blocks_share_keys(precision, shape):
    with _core.Device("cuda") as device:
        check(device, "attention_decode", None, precision, params_of(shape))


PLANNED_DECODES = [
    # More blocks than run at once, large ones and small ones: those that wait must leave room for the others.
    *((133, 1196, 9, 1, 64), (133, 905, 17, 1, 128), (67, 2263, 64, 1, 128), (180, 6132, 2, 1, 24)),
    *((133, 3804, 1, 1, 64), (133, 1773, 1, 1, 24), (34, 500, 8, 8, 128)),
    # Many heads: in FP32 one tile of 16 and two, groups of several blocks, rows and keys that fill no ring and no tile.
    *((3, 1001, 5, 1, 128), (1, 77, 16, 1, 68), (2, 515, 17, 1, 128), (2, 300, 66, 2, 100), (1, 9, 40, 1, 128)),
    *((40, 1500, 24, 2, 64), (4, 2100, 100, 1, 64), (1, 20000, 12, 2, 36)),
    # Clusters of eight blocks, of four, of two.
    *((4, 3001, 32, 2, 128), (3, 2047, 24, 2, 112), (1, 640, 32, 2, 64), (8, 3001, 24, 2, 64), (13, 999, 16, 1, 128)),
    *((33, 4099, 9, 1, 128), (12, 3333, 24, 2, 72)),
    # Blocks that meet their keys at one go, 64, 128 or 256 of them: whole blocks and others, few splits and many.
    *((1, 640, 7, 1, 64), (1, 601, 7, 1, 64), (1, 1216, 8, 2, 64), (1, 1217, 15, 3, 64), (2, 8192, 1, 1, 64)),
    *((4, 1024, 14, 2, 64), (4, 1000, 14, 2, 64), (1, 4096, 14, 2, 64), (1, 4095, 14, 2, 64), (9, 1024, 7, 1, 64)),
    *((8, 1000, 6, 2, 64), (1, 8192, 14, 2, 64), (2, 4003, 16, 2, 64), (12, 1024, 14, 2, 64), (12, 1000, 6, 2, 64)),
    *((1, 16384, 6, 2, 64), (1, 16000, 10, 2, 64)),
    # Each kind of blocks once more, of entries that are equally long and of others.
    *((3, 3001, 14, 2, 64), (1, 1500, 8, 1, 128), (9, 2049, 16, 4, 128), (5, 700, 12, 4, 80), (4, 1999, 8, 2, 160)),
    *((40, 300, 8, 8, 128), (40, 300, 8, 8, 64), (2, 1999, 40, 1, 128), (5, 1000, 72, 2, 64), (2, 1500, 24, 2, 192)),
    *(([3000, 501, 2500, 1, 2000, 1001], 3000, 16, 4, 128), ([1 + 167 * i for i in range(12)], 2000, 14, 2, 64)),
    *(([1 + 37 * i for i in range(24)], 900, 8, 4, 96), ([1 + 257 * i for i in range(8)], 1800, 40, 2, 128)),
    *(([1 + 133 * i for i in range(9)], 1200, 8, 2, 256), ([1, 400, 800, 17, 533, 266], 800, 9, 1, 72)),
    # Runs of parts, of an entry two to twenty-three.
    ([9000, 1, 5003, 20011, 70, 3000], 20011, 8, 8, 128),
    ([1 + i * 22 % 31 * 387 for i in range(12)], 11611, 8, 1, 128),
    *(([1 + i * 37 % 29 * 150 for i in range(24)], 4201, 8, 8, head_dim) for head_dim in (64, 192)),
    *(([1 + i * 37 % 29 * 97 for i in range(40)], 2717, 8, 4, head_dim) for head_dim in (80, 160)),
    *(
        ([1 + 100 * i for i in range(1, 33)], 3201, 5, 5, 96),
        ([1 + i * 37 % 29 * 290 for i in range(9)], 8121, 8, 8, 256),
    ),
    # Keys that an entry's blocks share: the last tile whole, or of one key, or of 15; all at once, or in turns.
    *((1, keys, 32, 8, 128) for keys in (12288, 12289, 20015)),
    *((3, 40001, group, 1, 128) for group in (1, 3, 7)),
    *((3, 3500, 40, 8, head_dim) for head_dim in (104, 160, 192, 256)),
    *((11, 8191, 8, 8, 128), (21, 8192, 16, 4, 128)),
    # Few heads and many short rows, which FP32 may take through shared memory.
    *((11, 4096, 4, 4, 64), (11, 4001, 16, 4, 64), (5, 13000, 12, 4, 44)),
    ([4000, *(1 + i * 4000 // 11 for i in range(10))], 4000, 28, 4, 64),
]


# BF16 takes the kernels of FP16: every third shape. Caches of 8 bits have rows of whole 16 bytes.
PLANNED = [
    (precision, shape)
    for place, shape in enumerate(PLANNED_DECODES)
    for precision in (
        *("fp32", "fp16", "bf16")[: 2 if place % 3 else 3],
        *([] if shape[-1] % 16 else [("fp8_e4m3", "int8")[place % 2]]),
    )
]


@pytest.mark.cuda
@pytest.mark.parametrize(("precision", "shape"), PLANNED, ids=lambda value: str(value).replace(" ", "")[-30:])
def test_every_plan_of_a_decode(precision, shape):
    batch, keys, _, kv_heads, head_dim = shape
    elements = (sum(batch) if isinstance(batch, list) else batch * keys) * kv_heads * head_dim
    with _core.Device("cuda") as device:
        each_plan(device, lambda: verify_often(device, precision, params_of(shape)))
        if elements < 8_000_000:  # else too much to work out whole
            each_plan(device, lambda: check(device, "attention_decode", "splitkv", precision, params_of(shape)))


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp8_e4m3", "int8"])
@pytest.mark.parametrize("head_dim", [64, 128, 192, 256])
def test_scales_of_values_may_be_of_any_size(precision, head_dim):
    """A weight times a scale of V is not rounded to FP16 as it is: it may be far below FP16's numbers, or beyond."""
    params = {"batch": 1, "kv_len": 700, "num_heads": 10, "num_kv_heads": 5, "head_dim": head_dim}
    least, most = (2.0**-6, 448.0) if precision == "fp8_e4m3" else (1.0, 127.0)
    rng, ramp = np.random.default_rng(19), np.linspace(0, 1, 700)
    large, few = rng.uniform(most / 2, most, (700, head_dim)), least * (rng.random((700, head_dim)) < 0.1)
    heads = [
        (large, 1e-5 + 0 * ramp),
        (few, 1e5 + 0 * ramp),
        (large, np.where(ramp > 0.3, 0, 1e-5)),
        (large, 2.0 ** (-140 * ramp)),
        (large, 2.0 ** (140 * ramp - 140)),
    ]

    def given(operands: dict[str, Any]) -> dict[str, bytes]:
        values, scales = (np.stack(part, axis=1)[None].astype(np.float32) for part in zip(*heads, strict=True))
        return {"v": _core.encode(precision, values), "v_scale": scales.tobytes()}

    with _core.Device("cuda") as device:
        each_plan(device, lambda: check(device, "attention_decode", "splitkv", precision, params, given))


# Blocks that meet 64 keys at one go, in many splits and in few, 128 and 256 of them; more keys; groups above 8.
RISING = [(2, 3001, 7, 64), (2, 1000, 7, 64), (9, 1024, 7, 64), (9, 2001, 7, 64), (1, 16384, 3, 64)]
RISING += [(2, 3001, heads, head_dim) for heads, head_dim in ((8, 128), (12, 64), (20, 128), (40, 64), (64, 128))]
RISING += [(2, 3001, 3, 160), (2, 3001, 8, 192), (2, 3001, 12, 176)]
RISING_NARROW = [(9, 1024, 7, 64), (2, 3001, 8, 128), (40, 700, 4, 128), (2, 3001, 8, 192), (2, 3001, 3, 256)]


def rising(precision: str, shape: dict[str, int], trend: int, operands: dict[str, Any]) -> dict[str, bytes]:
    """What a caller gives: scores rise by 9 per hundred keys, by another rate per head, so that maxima change; one key
    has the largest score. (FP32: 4.5, because scores of several hundred have fewer digits than the tolerance needs.)
    """
    rng, head_dim, kv_len = np.random.default_rng(19), shape["head_dim"], shape["kv_len"]
    arrays = {name: rng.integers(-8, 9, operands[name]["shape"]) / 8 for name in "qkv"}
    arrays["q"][..., 0] = np.arange(shape["num_heads"]) % 5 / (4 if precision == "fp32" else 2)
    ramp = trend * 0.045 * np.sqrt(head_dim) * np.arange(float(kv_len))
    ramp[4 * kv_len // 9] = 100 * np.sqrt(head_dim)
    # Whole numbers below 2048, which FP16 holds; BF16 rounds them.
    steps = np.round(np.clip(ramp, -2000, 2000))
    arrays["k"][:, :, 0, 0] = steps
    if "k_scale" not in operands:
        return {name: _core.encode(precision, array.astype(np.float32)) for name, array in arrays.items()}
    # Scales rise in place of elements, which are whole here, and the others' part of a score with them.
    arrays["k"], arrays["v"] = (np.round(arrays[name]) for name in "kv")
    arrays["k"][:, :, 0, 0] = np.sign(steps) * 8
    scales = np.broadcast_to(np.maximum(np.abs(steps), 1) / 8, operands["k_scale"]["shape"][:2])[..., None]
    given = {name: _core.encode(operands[name]["dtype"], array.astype(np.float32)) for name, array in arrays.items()}
    return given | {"k_scale": scales.astype(np.float32).tobytes()}


@pytest.mark.cuda
@pytest.mark.parametrize("trend", [1, -1])
@pytest.mark.parametrize(
    ("precision", "sizes"),
    [
        *((precision, sizes) for precision in ("fp32", "fp16", "bf16") for sizes in RISING),
        *((precision, sizes) for precision in ("fp8_e4m3", "int8") for sizes in RISING_NARROW),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_decode_follows_scores_that_rise_and_fall(precision, sizes, trend):
    shape = dict(zip(("batch", "kv_len", "num_heads", "head_dim"), sizes, strict=True)) | {"num_kv_heads": 1}
    with _core.Device("cuda") as device:
        each_plan(
            device,
            lambda: check(
                device, "attention_decode", "splitkv", precision, shape, partial(rising, precision, shape, trend)
            ),
        )


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
        # The next case of this shape knows what the search found.
        with _core.Case(device, "attention_decode", "fp16", params, variant="splitkv") as case:
            assert case.cost["algorithmic_bytes_read"] - case.cost["bytes_read"] == extra[-1]
    assert extra[-1] in extra[:-1]
    assert len(set(extra)) > 1


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8_e4m3"])
@pytest.mark.parametrize(("heads", "head_dim"), [(7, 64), (7, 128), (20, 96)])
def test_decode_passes_a_nan_on_whatever_its_bits(kernel_device, heads, head_dim, precision):
    """A NaN with all bits set must not look like a kernel's mark."""
    params = {"batch": 1, "kv_len": 300, "num_heads": heads, "num_kv_heads": 1, "head_dim": head_dim}
    with _core.Case(kernel_device, "attention_decode", precision, params) as case:
        size = next(len(data) for name, data in case.inputs().items() if name == "v")
        out = case.run({**case.inputs(), "v": b"\xff" * size})
        operand = next(row for row in case.operands if row["name"] == "out")
        assert np.isnan(decode(operand, out["out"])).all()
