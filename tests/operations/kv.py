"""kv_append, kv_gather, kv_copy, rope and rope_append."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from precisions import TYPES

from operations import F32, RESULT, ROUNDOFF, Arrays, Operation, Shape
from operations.attention import HEAD_DIMS

APPENDS = [
    (1, 1, 0, 1, 1),
    (3, 5, 11, 2, 64),
    (2, 17, 3, 1, 80),
    (1, 9, 30, 3, 33),
    (2, 7, 3, 3, 8),
    (4, 128, 60, 8, 128),
]
GATHERS = [(1, 1, 1, 1), (3, 61, 2, 64), (2, 100, 1, 80), (1, 37, 3, 33), (2, 300, 8, 128), (2, 1401, 8, 128)]
COPIES = [(1, 1, 1, 1), (3, 61, 2, 64), (1, 37, 3, 33), (2, 2000, 8, 128), (1, 4001, 3, 67)]
GATHERED = {"kv_len": 4096, "num_kv_heads": 2, "head_dim": 64, "page_size": 16}
PROMPTS = {"batch": 8, "seq_len": 128, "num_kv_heads": 2, "head_dim": 64}


LARGEST = {"int8": 127, "fp8_e4m3": 448}


def nearest(dtype: str, numbers: np.ndarray) -> np.ndarray:
    """Numbers within LARGEST to the type's nearest, of two as near the one whose bits are even."""
    table = TYPES[dtype].decode(bytes(range(128)))  # ascending; no sign
    table = table[: np.searchsorted(table, LARGEST[dtype]) + 1].astype(np.float32)
    between = np.append(table[1:] + table[:-1], np.inf) / 2
    sizes = np.abs(numbers)
    below = np.searchsorted(between, sizes)
    return np.copysign(table[below + below % 2 * (between[below] == sizes)], numbers)


@lru_cache(maxsize=2)
def quantize(dtype: str, numbers: bytes, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and scales of FP16 heads, both divided in FP32."""
    heads = np.frombuffer(numbers, np.float16).reshape(-1, head_dim).astype(np.float32)
    scales = np.abs(heads).max(axis=-1) / np.float32(LARGEST[dtype])
    return nearest(dtype, heads / np.where(scales, scales, np.float32(1))[..., None]), scales


def append(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    result = {}
    for name in ("k", "v"):
        new = {"": x[name]}
        if f"{name}_cache_scale" in x:  # of whatever type
            held = x[f"{name}_cache"].reshape(-1)
            dtype = next(one for one in LARGEST if np.array_equal(TYPES[one].decode(bits[f"{name}_cache"]), held))
            values, scales = quantize(dtype, bits[name], p["head_dim"])
            new = {"": values.reshape(x[name].shape), "_scale": scales.reshape(x[name].shape[:-1])}
        for what, values in new.items():
            cache = x[f"{name}_cache{what}"].copy()
            if p["page_size"]:
                rows = cache.reshape(-1, *cache.shape[2:])
                assert len(set(x["slots"].tolist())) == x["slots"].size  # a slot written twice would be ambiguous
                rows[x["slots"]] = values
            else:
                cache[:, p["kv_len"] :] = values.reshape(p["batch"], p["seq_len"], *cache.shape[2:])
            result[f"{name}_cache{what}"] = cache
    return result


def gather(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    assert sorted(x["table"].ravel().tolist()) == list(range(x["table"].size))
    caches = {name.replace("_cache", ""): cache for name, cache in x.items() if "_cache" in name}
    if p["dequantize"] and "k_scale" in caches:
        products = {name: caches[name].astype(np.float32) * caches[f"{name}_scale"][..., None] for name in "kv"}
        caches = {name: product.astype(np.float16) for name, product in products.items()}
    return {
        name: cache[x["table"]].reshape(p["batch"], -1, *cache.shape[2:])[:, : p["kv_len"]]
        for name, cache in caches.items()
    }


def copy(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {f"{name[0]}_copy{name[1:]}": values for name, values in x.items()}


def turn(heads: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Heads (tokens, heads, D) by angles (tokens, 2, D / 2): pairs as complex numbers, times complex numbers."""
    half = heads.shape[-1] // 2
    points = heads[..., :half] + 1j * heads[..., half:]
    points = points * (angles[:, 0] + 1j * angles[:, 1])[:, None]
    return np.concatenate([points.real, points.imag], axis=-1)


def rope(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {f"{name}_out": turn(x[name], x["angles"]) for name in "qk"}


def rope_append(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    angles = np.tile(x["angles"][p["kv_len"] :], (p["batch"], 1, 1))
    return {"q_out": turn(x["q"], angles), **append(x | {"k": turn(x["k"], angles)}, p, bits)}


def rope_error(precision: str, p: Shape) -> float:
    return ROUNDOFF[RESULT[precision]] + 9 * F32  # products of up to 1, outputs of 0.47 on average


def grid(*lengths: Shape) -> dict[str, list[Shape]]:
    """Every head_dim of models with each of these lengths."""
    shapes = [{**some, "num_kv_heads": 3, "head_dim": head_dim} for head_dim in HEAD_DIMS for some in lengths]
    return {"cpu": shapes, "cuda": shapes}


def heads_grid(*lengths: Shape) -> dict[str, list[Shape]]:
    """The same, with query heads."""
    return {device: [{**shape, "num_heads": 5} for shape in shapes] for device, shapes in grid(*lengths).items()}


OPERATIONS = {
    "kv_append": Operation(
        shapes=[
            {"batch": b, "seq_len": s, "kv_len": kv, "num_kv_heads": g, "head_dim": d, "page_size": page}
            for b, s, kv, g, d in APPENDS
            for page in (0, 1, 7, 16)
        ],
        # K alone fills it
        gpu_shapes=[
            {"batch": 3, "seq_len": 733, "kv_len": 60, "num_kv_heads": 8, "head_dim": 128, "page_size": page}
            for page in (0, 1, 7, 16)
        ],
        small={"batch": 2, "seq_len": 5, "kv_len": 24, "num_kv_heads": 2, "head_dim": 16},
        reference=append,
        worked=[
            # 8*128 = 1024 tokens, 2*1024*2*64*2
            ("fp16", PROMPTS, 524_288, 524_288, 0),
            # paged: 8 bytes of slot id per token more
            ("fp16", {**PROMPTS, "page_size": 16}, 532_480, 524_288, 0),
            # 1024 new tokens in FP16: 2*1024*2*64*2 = 524288; a cache of bytes, 2*1024*2 = 4096 heads of 64 + 4
            ("int8", PROMPTS, 524_288, 278_528, 0),
        ],
        grid=grid(*({"batch": 2, "seq_len": 5, "kv_len": 23, "page_size": page} for page in (0, 7))),
    ),
    "kv_gather": Operation(
        shapes=[
            {"batch": b, "kv_len": kv, "num_kv_heads": g, "head_dim": d, "page_size": page, "dequantize": number % 2}
            for page in (1, 16, 13)
            for number, (b, kv, g, d) in enumerate([*GATHERS, *GATHERS[1:]])
        ],
        small={"batch": 2, "kv_len": 24, "num_kv_heads": 2, "head_dim": 16},
        reference=gather,
        worked=[
            # 2*4096*2*64*2 = 2097152, 4096/16 page ids of 4 bytes
            ("fp16", GATHERED, 2_098_176, 2_097_152, 0),
            # a page begun counts whole: ceil(17/16) = 2 ids
            ("fp32", {"kv_len": 17, "num_kv_heads": 1, "head_dim": 4, "page_size": 16}, 552, 544, 0),
            # 2*4096*2 = 16384 heads of 64 + 4 bytes, 256 page ids of 4
            ("fp8_e4m3", GATHERED, 1_115_136, 1_114_112, 0),
            # the same read, 16384 heads of 64 elements of 2 bytes written
            ("int8", {**GATHERED, "dequantize": 1}, 1_115_136, 2_097_152, 0),
            ("fp32", {**GATHERED, "dequantize": 1}, 4_195_328, 4_194_304, 0),
        ],
        grid=grid({"batch": 2, "kv_len": 23, "page_size": 7}, {"batch": 2, "kv_len": 23, "dequantize": 1}),
    ),
    "kv_copy": Operation(
        shapes=[{"batch": b, "kv_len": kv, "num_kv_heads": g, "head_dim": d} for b, kv, g, d in COPIES],
        small={"batch": 2, "kv_len": 24, "num_kv_heads": 2, "head_dim": 16},
        reference=copy,
        worked=[
            # 2*32768*8*128*4
            ("fp32", {"kv_len": 32768, "num_kv_heads": 8, "head_dim": 128}, 268_435_456, 268_435_456, 0),
            # 2*10*3 = 60 heads of 8 + 4 bytes
            ("int8", {"kv_len": 10, "num_kv_heads": 3, "head_dim": 8}, 720, 720, 0),
        ],
        grid=grid({"batch": 2, "kv_len": 23}),
    ),
    "rope": Operation(
        shapes=[
            {"tokens": t, "num_heads": h, "num_kv_heads": g, "head_dim": d}
            for t, h, g, d in [
                (1, 1, 1, 2),
                (5, 3, 2, 64),
                (7, 7, 1, 72),
                (33, 5, 3, 14),
                (2, 2, 2, 4100),
                (110, 32, 8, 128),
            ]
        ],
        gpu_shapes=[{"tokens": 4099, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}],
        small={"tokens": 6, "num_heads": 3, "num_kv_heads": 2, "head_dim": 16},
        reference=rope,
        allowed_error=rope_error,
        worked=[
            # 7*(4 + 2)*16 = 672 elements of 2 bytes, 7*16 angles of 4; 3*672
            ("fp16", {"tokens": 7, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}, 1_792, 1_344, 2_016),
            ("fp32", {"tokens": 1, "num_heads": 1, "num_kv_heads": 1, "head_dim": 2}, 24, 16, 12),
        ],
        grid=heads_grid({"tokens": 7}),
    ),
    "rope_append": Operation(
        shapes=[
            {
                "batch": b,
                "seq_len": s,
                "kv_len": kv,
                "num_heads": h,
                "num_kv_heads": g,
                "head_dim": d,
                "page_size": page,
            }
            for b, s, kv, h, g, d in [
                (1, 1, 0, 1, 1, 2),
                (3, 5, 11, 7, 1, 64),
                (2, 17, 3, 2, 2, 72),
                (1, 9, 30, 5, 3, 14),
                (2, 60, 7, 32, 8, 128),
            ]
            for page in (0, 1, 7)
        ],
        small={"batch": 2, "seq_len": 5, "kv_len": 24, "num_heads": 3, "num_kv_heads": 2, "head_dim": 16},
        reference=rope_append,
        allowed_error=rope_error,
        worked=[
            # 1024 tokens: (14 + 2*2)*64 = 1152 elements read, as many written, of 2 bytes, 128*64 angles of 4;
            # 3*1024*(14 + 2)*64
            ("fp16", PROMPTS | {"num_heads": 14}, 2_392_064, 2_359_296, 3_145_728),
            ("bf16", PROMPTS | {"num_heads": 14, "page_size": 16}, 2_400_256, 2_359_296, 3_145_728),
        ],
        grid=heads_grid(*({"batch": 2, "seq_len": 5, "kv_len": 23, "page_size": page} for page in (0, 7))),
    ),
}
