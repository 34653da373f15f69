"""attention_prefill, attention_decode and mla_decode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from operations import F32, RESULT, ROUNDOFF, Arrays, Operation, Shape

HEADS = [(1, 1, 1), (7, 1, 80), (14, 2, 64), (6, 3, 256), (4, 4, 33), (32, 8, 128), (20, 1, 40)]
PREFILLS = [(1, 1, 1), (2, 37, 37), (1, 130, 130), (1, 19, 83), (3, 65, 65), (1, 64, 200), (2, 3, 129)]
LONG_PREFILLS = [((3, 1, 64), (2, 301, 700)), ((5, 1, 128), (1, 270, 270)), ((2, 2, 128), (2, 140, 515))]
LONG_PREFILLS += [((3, 1, 72), (1, 70, 150)), ((8, 1, 192), (1, 135, 140)), ((5, 5, 160), (1, 40, 290))]
DECODES = [(1, 1), (3, 61), (1, 4099), (2, 129), (5, 7), (1, 1000), (2, 517)]
# Long rows, straight into registers and (groups above 8) through shared memory; clusters of 8 blocks
LONG_DECODES = [((10, 2, 160), (1, 307)), ((24, 3, 192), (1, 211)), ((8, 1, 256), (1, 523)), ((20, 1, 256), (1, 131))]
LONG_DECODES += [((36, 2, 176), (2, 97)), ((8, 2, 132), (3, 229)), ((2, 2, 192), (2, 703)), ((7, 1, 144), (1, 421))]
LONG_DECODES += [((3, 1, 161), (1, 173))]
# Groups above 8: 16 heads in a warp; the others' in other blocks or, where columns are many, in other warps
LONG_DECODES += [((64, 1, 128), (34, 61)), ((48, 1, 128), (67, 41)), ((40, 1, 72), (1, 163)), ((34, 2, 128), (2, 531))]
LONG_DECODES += [((20, 1, 64), (1, 777)), ((80, 1, 64), (1, 345)), ((15, 3, 128), (5, 331)), ((5, 1, 72), (1, 163))]
# mla_decode: rows of any size, then DeepSeek's: batch, kv_len, num_heads
LATENTS = [(1, 1, 1, 1, 1), (2, 37, 7, 24, 5), (1, 130, 6, 80, 16), (3, 61, 3, 256, 32), (1, 67, 5, 129, 33)]
DEEPSEEK = {"latent_dim": 512, "rope_dim": 64}
DEEPSEEKS = [(2, 1, 16), (1, 257, 5), (1, 131, 128), (1, 65, 130)]
# On a GPU also: a block's part of the keys ends within an entry, at its end, or holds several of them.
LONG_DEEPSEEKS = [(1, 16384, 128), (1, 9001, 16), (5, 1339, 128), (150, 70, 64), (3, 4096, 256), (64, 640, 1)]
LONG_LENGTHS = [[4097, 1, 63, 64, 65, 2500], [1] * 140, [8, 700, 3000, 129, 5, 64, 191]]
QWEN = {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64}  # as Qwen2.5-0.5B
TINY = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4}

DECODE_SHAPES: list[Shape] = [
    *(
        {"batch": b, "kv_len": kv, "num_heads": h, "num_kv_heads": g, "head_dim": d}
        for (h, g, d), (b, kv) in [*zip(HEADS, DECODES, strict=True), *LONG_DECODES]
    ),
    {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64, "kv_lens": [1, 300, 257, 16]},
    {"num_heads": 7, "num_kv_heads": 1, "head_dim": 80, "kv_lens": [2049, 3], "kv_len": 2100},
    {"num_heads": 6, "num_kv_heads": 1, "head_dim": 188, "kv_lens": [1, 5, 318, 17]},
    {"num_heads": 6, "num_kv_heads": 2, "head_dim": 160, "kv_lens": [601, 1, 3, 322, 18]},
    {"num_heads": 11, "num_kv_heads": 1, "head_dim": 164, "kv_lens": [2, 259, 33]},
    {"num_heads": 64, "num_kv_heads": 2, "head_dim": 128, "kv_lens": [1, 517, 15, 128, 300]},
    {"num_heads": 64, "num_kv_heads": 1, "head_dim": 72, "kv_lens": [130, 1, 401, 16]},
    {"num_heads": 3, "num_kv_heads": 1, "head_dim": 64, "kv_lens": [1, 16, 600, 17, 128, 129, 5, 2, 3, 1021]},
    # The sanitizers' three: through shared memory, a warp's keys its own and two warps'; straight into registers
    {"num_heads": 20, "num_kv_heads": 1, "head_dim": 128, "kv_lens": [201, 17]},
    {"batch": 34, "kv_len": 40, "num_heads": 64, "num_kv_heads": 1, "head_dim": 72},
    {"batch": 1, "kv_len": 89, "num_heads": 16, "num_kv_heads": 2, "head_dim": 96},
]

# What models have, each with each: query heads of a K/V head, and head_dim.
GROUPS, HEAD_DIMS = (1, 3, 5, 7, 8), (64, 72, 80, 96, 128, 160, 192, 256)
# Lengths that no tile divides: of several tiles on a GPU; on a CPU, whose kernels have small ones or none, short.
GRID_PREFILLS = {"cpu": (7, 21), "cuda": (139, 331)}  # queries and keys
GRID_DECODES = {"cpu": (37, [21, 1, 16]), "cuda": (1301, [517, 1, 1733, 16, 130])}  # keys; those of a ragged batch


def attention(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    q, (k, v) = x["q"], (x[name] * x.get(f"{name}_scale", np.ones(1))[..., None] for name in "kv")
    batch, queries, heads, dim = q.shape
    keys, groups = k.shape[1:3]
    # The query heads of a K/V head together: batch, K/V head, query head, query, dim or key. Their rows are one matrix.
    apart, as_one = (batch, groups, heads // groups, queries, -1), (batch, groups, heads // groups * queries, -1)
    grouped = q.reshape(batch, queries, groups, heads // groups, dim).transpose(0, 2, 3, 1, 4)
    scores = (grouped.reshape(as_one) @ k.transpose(0, 2, 3, 1)).reshape(apart) / np.sqrt(dim)
    allowed = np.ones((batch, 1, 1, queries, keys), dtype=bool)
    if p.get("causal"):
        allowed &= np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
    if "kv_lens" in x:
        allowed &= (np.arange(keys) < x["kv_lens"][:, None])[:, None, None, None, :]
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out = (weights.reshape(as_one) @ v.transpose(0, 2, 1, 3)).reshape(apart)
    return {"out": out.transpose(0, 3, 1, 2, 4).reshape(*q.shape[:3], -1)}


def latent_attention(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    """Queries are made as much larger as scores are when they are divided by sqrt(latent / 4 + rope)."""
    latent, rope = p["latent_dim"], p["rope_dim"]
    rows = x["cache"] * x["cache_scale"][..., None] if "cache_scale" in x else x["cache"]
    q = x["q"] * np.sqrt((latent + rope) / (latent / 4 + rope))
    return attention({**x, "q": q, "k": rows, "v": rows[..., :latent]}, p, bits)


def allowed_error(precision: str, p: Shape) -> float:
    """The result, the weights and the scores may each be rounded."""
    # TF32 rounds queries and weights, not the result; so may a prefill that multiplies in FP8.
    of_factors = precision == "tf32" or (precision == "fp8_e4m3" and "seq_len" in p)
    unit = ROUNDOFF[precision if of_factors else RESULT[precision]]
    if precision == "fp8_e4m3" and p.get("causal"):  # early rows, means of few values, are larger than most
        first = p["kv_len"] - p["seq_len"] + 1
        unit *= np.sqrt(1 / first / np.mean(1 / np.arange(first, p["kv_len"] + 1)))
    key_dim = p["latent_dim"] + p["rope_dim"] if "latent_dim" in p else p["head_dim"]
    return 6 * unit + F32 * (32 + 8 * np.sqrt(key_dim) + 8 * np.sqrt(p["kv_len"]))


def cross(backend: str, pair_of: Callable[[Shape], list[Shape]]) -> list[Shape]:
    """Two shapes of every group with every head_dim; on a CPU, one of the two by turns."""
    found = []
    for place, head_dim in enumerate(HEAD_DIMS):
        for turn, group in enumerate(GROUPS, place):
            pair = pair_of({"num_heads": 2 * group, "num_kv_heads": 2, "head_dim": head_dim})
            found += pair if backend == "cuda" else [pair[turn % 2]]
    return found


def prefill_grid(backend: str) -> list[Shape]:
    queries, keys = GRID_PREFILLS[backend]
    lengths = {"batch": 1, "seq_len": queries, "kv_len": keys}
    return cross(backend, lambda heads: [{**lengths, **heads, "causal": c} for c in (0, 1)])


def decode_grid(backend: str) -> list[Shape]:
    keys, ragged = GRID_DECODES[backend]
    return cross(backend, lambda heads: [{"batch": 2, "kv_len": keys, **heads}, {**heads, "kv_lens": ragged}])


def latent_grid() -> list[Shape]:
    plain = [{"batch": b, "kv_len": kv, "num_heads": h, **DEEPSEEK} for b, kv, h in LONG_DEEPSEEKS]
    return plain + [{"num_heads": h, **DEEPSEEK, "kv_lens": lens} for lens in LONG_LENGTHS for h in (24, 128)]


OPERATIONS = {
    "attention_prefill": Operation(
        shapes=[
            {"batch": b, "seq_len": s, "kv_len": kv, "num_heads": h, "num_kv_heads": g, "head_dim": d, "causal": c}
            for (h, g, d), (b, s, kv) in [*zip(HEADS, PREFILLS, strict=True), *LONG_PREFILLS]
            for c in (0, 1)
        ],
        small={"batch": 2, "seq_len": 5, "kv_len": 24, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16},
        reference=attention,
        allowed_error=allowed_error,
        worked=[
            # q 512*14*64*2 = 917504, k and v 2*512*2*64*2 = 262144; pairs 512*513/2 = 131328, times 4*14*64 = 3584
            ("fp16", {"seq_len": 512, **QWEN, "causal": 1}, 1_179_648, 917_504, 470_679_552),
            # not causal: the same bytes, 512*512 pairs
            ("fp16", {"seq_len": 512, **QWEN, "causal": 0}, 1_179_648, 917_504, 939_524_096),
            # 3 queries at the end of 5 keys: they attend 3 + 4 + 5 = 12; q has 3*2*4 = 24 elements, k and v 40
            ("fp32", {"seq_len": 3, "kv_len": 5, **TINY, "causal": 1}, 256, 96, 384),
            # q and out 3*2*4*2 = 48; k and v 2*5*1 = 10 heads of 4 + 4 bytes
            ("int8", {"seq_len": 3, "kv_len": 5, **TINY, "causal": 1}, 128, 48, 384),
        ],
        grid={backend: prefill_grid(backend) for backend in GRID_PREFILLS},
    ),
    "attention_decode": Operation(
        shapes=DECODE_SHAPES,
        small={"batch": 2, "kv_len": 24, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16},
        reference=attention,
        allowed_error=allowed_error,
        worked=[
            # (14*64 + 2*4096*2*64) * 2, 14*64*2, 4*14*64*4096
            ("fp16", {"kv_len": 4096, **QWEN}, 2_098_944, 1_792, 14_680_064),
            # batch 8: eight times as much
            ("fp16", {"batch": 8, "kv_len": 4096, **QWEN}, 16_791_552, 14_336, 117_440_512),
            # q 14*64*2 = 1792; k and v 2*4096*2 = 16384 heads of 64 bytes and a scale of 4
            ("fp8_e4m3", {"kv_len": 4096, **QWEN}, 1_115_904, 1_792, 14_680_064),
        ],
        grid={backend: decode_grid(backend) for backend in GRID_DECODES},
    ),
    "mla_decode": Operation(
        shapes=[
            *({"batch": b, "kv_len": kv, "num_heads": h, "latent_dim": r, "rope_dim": p} for b, kv, h, r, p in LATENTS),
            *({"batch": b, "kv_len": kv, "num_heads": h, **DEEPSEEK} for b, kv, h in DEEPSEEKS),
            {"num_heads": 6, "latent_dim": 40, "rope_dim": 8, "kv_lens": [1, 300, 64, 17], "kv_len": 310},
            {"num_heads": 20, **DEEPSEEK, "kv_lens": [1, 64, 130]},
            {"batch": 1, "kv_len": 150, "num_heads": 66, **DEEPSEEK},
        ],
        small={"batch": 2, "kv_len": 24, "num_heads": 4, "latent_dim": 16, "rope_dim": 4},
        reference=latent_attention,
        allowed_error=allowed_error,
        worked=[
            # q 128*576*2 = 147456, the cache 4096*576*2 = 4718592; out 128*512*2; 2*128*4096*(576 + 512)
            ("fp16", {"kv_len": 4096, "num_heads": 128, **DEEPSEEK}, 4_866_048, 131_072, 1_140_850_688),
            # q 3*2*6*4 = 144, the cache 3*5*6*4 = 360; out 3*2*4*4; 2*3*5*2*(6 + 4)
            ("fp32", {"batch": 3, "kv_len": 5, "num_heads": 2, "latent_dim": 4, "rope_dim": 2}, 504, 96, 600),
            # q 128*576*2; 4096 rows of 576 bytes and a scale of 4
            ("fp8_e4m3", {"kv_len": 4096, "num_heads": 128, **DEEPSEEK}, 2_523_136, 131_072, 1_140_850_688),
        ],
        grid={"cpu": [{"num_heads": 12, **DEEPSEEK, "kv_lens": [70, 1]}], "cuda": latent_grid()},
    ),
}
