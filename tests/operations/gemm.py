"""gemm, moe_gemm, linear_relu_dropout, and what becomes of weights."""

from __future__ import annotations

import numpy as np

from operations import ACTIVATION, COMPUTE, F32, RESULT, ROUNDOFF, Arrays, Operation, Shape


def gemm(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"D": scaled(x, "A") @ scaled(x, "B").T + (x["C"] if p["beta"] else 0)}


def scaled(x: Arrays, name: str) -> np.ndarray:
    """A matrix, less its zero points, times its scales."""
    values = x[name]
    if f"{name}_zero" in x:
        values = values - spread(x[f"{name}_zero"], values.shape)
    if f"{name}_scale" in x:
        values = values * spread(x[f"{name}_scale"], values.shape)
    return values * x.get(f"{name}_whole_scale", 1)


def spread(groups: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Scales of rows, of so many columns of them, or of so many rows, too: one for each element."""
    groups = groups.reshape(len(groups), -1)
    for axis, size in enumerate(shape):
        each = next(each for each in (1, 16, 32, 64, 128, size) if -(-size // each) == groups.shape[axis])
        groups = np.repeat(groups, each, axis).take(range(size), axis)
    return groups


def moe_gemm(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    """The routing must be what the parameters say."""
    rows, counts = x["rows"], np.diff(x["offsets"])
    assert x["offsets"][0] == 0
    assert counts.sum() == p["tokens"] * p["top_k"]
    assert np.count_nonzero(counts) == p["active"]
    assert np.ptp(counts[counts > 0]) <= 1
    taken = {*zip(rows.tolist(), np.repeat(np.arange(p["experts"]), counts).tolist(), strict=True)}
    assert len(taken) == rows.size  # no token takes an expert twice
    assert np.bincount(rows, minlength=p["tokens"]).tolist() == [p["top_k"]] * p["tokens"]
    return {"D": experts_product(x)}


def experts_product(x: Arrays) -> np.ndarray:
    """Each row of D from its token and its expert."""
    b = scaled({**x, "B": x["B"].reshape(-1, x["B"].shape[-1])}, "B").reshape(x["B"].shape)
    experts = np.repeat(np.arange(len(b)), np.diff(x["offsets"]))
    a = scaled(x, "A")
    return np.stack([b[expert] @ a[token] for token, expert in zip(x["rows"], experts, strict=True)])


def allowed_error(precision: str, p: Shape) -> float:
    """One rounding; FP32 sums of K products, in any order, some units truncating; of E4M3, 54 units of sums of 13 bits.

    `separate` rounds each weight, too: by a roundoff over the root of 3 on average, which sums of K such errors are
    below five times of.
    """
    weights = 5 * ROUNDOFF[ACTIVATION[precision]] / np.sqrt(3) if p.get("variant") == "separate" else 0
    cuts = 54 * 2.0**-13 if COMPUTE[precision] == "fp8_e4m3" else 0.0
    return ROUNDOFF[RESULT[precision]] + weights + cuts + F32 * (8 * np.sqrt(p["K"]) + p["K"] / 4)


def typical_error(precision: str, p: Shape) -> tuple[float, float] | None:
    """Tensor cores cut sums of 128 products of E4M3: 33 cuts for 32 products, each evenly up to 6.6 units of 2^-13.

    Elements of a row have A's factors in common."""
    if COMPUTE[precision] != "fp8_e4m3":
        return None
    return 6.6 * np.sqrt(33 / 32 / 3) * 2.0**-13, 1 / (1 / p["N"] + 1 / p["K"])


def linear(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    sums = x["A"] @ x["B"].T + x["bias"]
    stays = numbers(p["mask_seed"], sums.size).reshape(sums.shape) >= (p["dropout_percent"] * 65536 + 50) // 100
    return {"D": np.where(stays, np.maximum(sums, 0) * 100 / (100 - p["dropout_percent"]), 0)}


def numbers(seed: int, count: int) -> np.ndarray:
    """Philox4x32 with 7 rounds: calls 0, 1, ..., eight numbers of 16 bits each."""
    low = np.uint64(0xFFFFFFFF)
    call = np.arange(-(-count // 8), dtype=np.uint64)
    c, key = [call & low, call >> 32, 0 * call, 0 * call], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(7):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ key[0], right & low, left >> 32 ^ c[3] ^ key[1], left & low]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return np.stack([word >> half & 0xFFFF for word in c for half in (0, 16)], axis=1).reshape(-1)[:count]


def linear_error(precision: str, p: Shape) -> float:
    """gemm's, of sums larger than what relu and dropout leave; `unfused` rounds sums and what relu leaves, too.

    Of sums and bias of mean square (K + 3) / 9, relu leaves half; those that stay grow by what others lose.
    """
    stay = 1 - p["dropout_percent"] / 100
    twice = 2 + np.sqrt(18 / stay / (p["K"] + 3)) if p.get("variant") == "unfused" else 0
    return allowed_error(precision, p) * np.sqrt(2 / stay) + twice * ROUNDOFF[RESULT[precision]]


def dequantize(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"D": scaled(x, "B")}


def repack(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    """For 16 rows each: tiles of 4 blocks' words, [row][word][block], of elements 8 c to 8 c + 7; then those of scales.

    A word's half bytes are elements 0, 4, 2, 6, 1, 5, 3, 7.
    """
    blocks = np.frombuffer(bits["B"], np.uint8).reshape(p["N"], -1, 18)
    quants = np.concatenate([blocks[:, :, 2:] & 15, blocks[:, :, 2:] >> 4], axis=2)
    eights = quants.reshape(*quants.shape[:2], 4, 8)[..., [0, 4, 2, 6, 1, 5, 3, 7]]
    words = eights[..., 0::2] | eights[..., 1::2] << 4  # bytes
    parts = []
    for row in range(0, p["N"], 16):
        starts = range(0, blocks.shape[1], 4)
        parts += [words[row : row + 16, at : at + 4].transpose(0, 2, 1, 3).reshape(-1) for at in starts]
        parts += [blocks[row : row + 16, at : at + 4, :2].reshape(-1) for at in starts]
    return {"D": np.concatenate(parts).view(np.int8).reshape(p["N"], -1).astype(np.float32)}


WEIGHTS = [
    {"N": n, "K": k}
    for n, k in [(1, 1), (3, 29), (13, 257), (1, 2000), (19, 300), (45, 4096), (33, 768), (16, 256), (131, 1288)]
]

OPERATIONS = {
    "weight_dequantize": Operation(
        shapes=WEIGHTS,
        small={"N": 48, "K": 40},
        reference=dequantize,
        allowed_error=lambda precision, p: ROUNDOFF[RESULT[precision]] + F32,
        worked=[
            # 4096*128 blocks of 18 bytes; 4096*4096 values of 2
            ("q4_0", {"N": 4096, "K": 4096}, 9_437_184, 33_554_432, 0),
            # rows of 65 bytes, two scales of 2 and a byte of zero points; 5*130*2
            ("int4_g128", {"N": 5, "K": 130}, 350, 1_300, 0),
        ],
    ),
    "weight_repack": Operation(
        shapes=WEIGHTS,
        small={"N": 48, "K": 40},
        reference=repack,
        # rows of 5 blocks of 18 bytes
        worked=[("q4_0", {"N": 7, "K": 150}, 630, 630, 0)],
    ),
    "gemm": Operation(
        shapes=[
            {"M": m, "N": n, "K": k, "beta": beta}
            for m, n, k, beta in [
                *((1, 1, 1, 0), (1, 1, 1, 1), (1, 13, 7, 0), (1, 896, 896, 0), (1, 129, 4096, 1), (2, 67, 130, 0)),
                *((5, 31, 257, 1), (8, 200, 512, 0), (17, 5, 3, 1), (32, 96, 80, 0), (61, 59, 127, 0)),
                *((128, 130, 64, 1), (131, 257, 263, 0), (3, 2, 2000, 0), (131, 264, 200, 1), (300, 520, 72, 0)),
                *((1, 1027, 768, 0), (2, 61, 2440, 0), (4, 33, 1032, 1), (7, 17, 24, 0), (9, 131, 344, 0)),
                *((13, 40, 4104, 1), (16, 77, 1048, 1), (24, 41, 1000, 1), (29, 3, 2052, 0)),
                # Narrow weights eight at a time: tiles of 256; few and long rows of B.
                *((2, 67, 768, 0), (4, 45, 256, 0), (6, 35, 8192, 1), (16, 61, 512, 1), (29, 40, 1280, 1)),
                # Activations of 8 bits: rows of 16, an addend, groups of 128 that end with a row and within.
                *((5, 400, 304, 1), (150, 208, 272, 1), (12, 4304, 144, 0)),
                # The same with a last tile of fewer.
                *((2, 40, 2080, 1), (5, 33, 480, 0), (16, 17, 288, 0)),
            ]
        ],
        gpu_shapes=[
            {"M": m, "N": n, "K": k, "beta": beta}
            for m, n, k, beta in [
                # FP32 through shared memory: blocks of 32 rows of B and of 16, several turns of a warp and fewer.
                *((12, 2305, 100, 0), (17, 2203, 68, 1), (25, 2180, 132, 0)),
                # Many rows of B: more than all multiprocessors take at once.
                *((11, 2503, 264, 1), (10, 4301, 72, 0), (3, 8501, 256, 1), (11, 8501, 256, 0)),
                # Long sums, which tensor cores may not add up alone in E4M3.
                (20, 136, 4096, 0),
            ]
        ],
        small={"M": 4, "N": 48, "K": 40},
        reference=gemm,
        allowed_error=allowed_error,
        typical_error=typical_error,
        worked=[
            # (1*896 + 896*896) * 4 read, 896 * 4 written, 2*896*896
            ("fp32", {"M": 1, "N": 896, "K": 896}, 3_214_848, 3_584, 1_605_632),
            ("tf32", {"M": 1, "N": 896, "K": 896}, 3_214_848, 3_584, 1_605_632),
            ("fp16", {"M": 1, "N": 896, "K": 896}, 1_607_424, 1_792, 1_605_632),
            ("bf16", {"M": 1, "N": 896, "K": 896}, 1_607_424, 1_792, 1_605_632),
            # (128*896 + 4864*896) * 2, 128*4864*2, 2*128*4864*896
            ("fp16", {"M": 128, "N": 4864, "K": 896}, 8_945_664, 1_245_184, 1_115_684_864),
            # C is read too: (6 + 12 + 8) * 4, 8 * 4, 2*2*4*3
            ("fp32", {"M": 2, "N": 4, "K": 3, "beta": 1}, 104, 32, 48),
            # 4096 rows of 128 blocks of 18 bytes = 9437184, and 4096 activations of 2; 4096 results of 2; 2*4096*4096
            ("q4_0", {"M": 1, "N": 4096, "K": 4096}, 9_445_376, 8_192, 33_554_432),
            # a row of 33 weights takes two blocks: 5*2*18 = 180, 3*33*2 = 198, C 3*5*2 = 30
            ("q4_0", {"M": 3, "N": 5, "K": 33, "beta": 1}, 408, 30, 990),
            # a byte each of 4096 + 4096*4096, a scale of 4 bytes for each of 1 + 4096 rows
            ("int8", {"M": 1, "N": 4096, "K": 4096}, 16_797_700, 8_192, 33_554_432),
            ("fp8_e4m3", {"M": 1, "N": 4096, "K": 4096}, 16_797_700, 8_192, 33_554_432),
            # no scales of activations: 3*130*2 + 5*130 + 5*4
            ("int8_w8a16", {"M": 3, "N": 5, "K": 130}, 1_450, 30, 3_900),
            # rows of 65 bytes, two scales of 2 and a byte of zero points: 3*130*2 + 5*(65 + 4 + 1)
            ("int4_g128", {"M": 3, "N": 5, "K": 130}, 1_130, 30, 3_900),
            # rows of 65 bytes and 9 scales, one of 4: 3*130*2 + 5*(65 + 9) + 4
            ("nvfp4", {"M": 3, "N": 5, "K": 130}, 1_154, 30, 3_900),
        ],
    ),
    "linear_relu_dropout": Operation(
        shapes=[
            dict(zip(("M", "N", "K", "dropout_percent", "mask_seed"), shape, strict=True))
            for shape in [
                *((1, 1, 1, 0, 0), (1, 13, 7, 10, 1), (1, 896, 896, 10, 2), (1, 129, 4096, 50, 3), (2, 67, 130, 0, 4)),
                *((5, 31, 257, 10, 5), (8, 200, 512, 10, 6), (17, 5, 3, 20, 7), (61, 59, 127, 99, 8)),
                # Seeds of more than 32 bits; rows of D that are multiples of eight, of two, and odd.
                *((128, 136, 64, 10, 2**40 + 9), (131, 264, 200, 37, 2**62), (130, 130, 72, 10, 11)),
                *((300, 520, 72, 1, 12), (29, 33, 1040, 10, 17)),
                # One row of B and few for each warp; shares of K.
                *((1, 1027, 768, 10, 13), (1, 300, 200, 10, 14), (3, 2, 2000, 10, 15), (16, 40, 4104, 10, 16)),
            ]
        ],
        small={"M": 4, "N": 48, "K": 40, "dropout_percent": 30, "mask_seed": 7},
        reference=linear,
        allowed_error=linear_error,
        worked=[
            # (2*4096*4096 + 4096) * 2 read, 4096*4096 * 2 written, 2*4096^3
            ("fp16", {"M": 4096}, 67_117_056, 33_554_432, 137_438_953_472),
            # (4096 + 4096*4096 + 4096) * 2 read, 4096 * 2 written, 2*4096^2
            ("bf16", {}, 33_570_816, 8_192, 33_554_432),
            # (6 + 12 + 4) * 4, 8 * 4, 2*2*4*3
            ("fp32", {"M": 2, "N": 4, "K": 3}, 88, 32, 48),
        ],
    ),
    "moe_gemm": Operation(
        shapes=[
            dict(zip(("tokens", "experts", "top_k", "active", "N", "K"), shape, strict=True))
            for shape in [
                *((1, 1, 1, 0, 1, 1), (1, 7, 3, 3, 13, 7), (5, 4, 2, 3, 37, 29), (3, 8, 8, 8, 129, 72)),
                *((61, 2, 1, 0, 40, 257), (35, 9, 3, 7, 77, 344)),
                # Tiles of many tokens.
                *((300, 3, 1, 3, 136, 72), (131, 2, 2, 2, 264, 200)),
                # Pieces of 256: 1 to 29 tokens an expert; long rows of B.
                *((11, 13, 5, 11, 131, 256), (7, 2, 1, 2, 71, 8192), (2, 5, 2, 4, 67, 512), (29, 3, 2, 2, 95, 1280)),
            ]
        ],
        gpu_shapes=[
            {"tokens": 1, "experts": 128, "top_k": 8, "active": 0, "N": 96, "K": 768},
            {"tokens": 1, "experts": 16, "top_k": 2, "active": 0, "N": 2503, "K": 256},
            # Several tiles of 128 rows an expert, the last one of few; groups of 128 that end within.
            {"tokens": 150, "experts": 3, "top_k": 2, "active": 2, "N": 384, "K": 272},
        ],
        small={"tokens": 5, "experts": 4, "top_k": 2, "active": 3, "N": 24, "K": 40},
        reference=moe_gemm,
        allowed_error=allowed_error,
        worked=[
            # 8 of 128 matrices of 1536*2048*2, a token of 2048*2, 8 rows' and 129 offsets' 4; 8*1536*2; 2*8*1536*2048
            ("fp16", {}, 50_336_292, 24_576, 50_331_648),
            # 16 tokens leave 128*(15/16)^16 = 45.6 experts alone: 82*1536*2048*2 + 16*2048*2 + 128*4 + 129*4
            ("fp16", {"tokens": 16}, 515_965_956, 393_216, 805_306_368),
            # rows of 65 bytes, two scales of 2 and a byte of zero points: 3*5*(65 + 4 + 1) + 2*130*2 + 4*4 + 5*4
            ("int4_g128", {"tokens": 2, "experts": 4, "top_k": 2, "active": 3, "N": 5, "K": 130}, 1_606, 40, 5_200),
            # a row of 33 weights takes two blocks of 18: 3*5*36 + 2*33*2 + 4*4 + 5*4
            ("q4_0", {"tokens": 2, "experts": 4, "top_k": 2, "active": 3, "N": 5, "K": 33}, 708, 40, 1_320),
            # a scale of 4 for each of 3*5 rows: 3*5*(130 + 4) + 2*130*2 + 4*4 + 5*4
            ("int8_w8a16", {"tokens": 2, "experts": 4, "top_k": 2, "active": 3, "N": 5, "K": 130}, 2_566, 40, 5_200),
            # a byte each, a scale of 4 for each row of both: 3*5*(130 + 4) + 2*(130 + 4) + 4*4 + 5*4
            ("int8", {"tokens": 2, "experts": 4, "top_k": 2, "active": 3, "N": 5, "K": 130}, 2_314, 40, 5_200),
            # 3 experts' 3 squares high, 2 wide: 3*384*130 + 9*2*4 + 2*(130 + 2*4) + 4*4 + 5*4
            (
                "fp8_block",
                {"tokens": 2, "experts": 4, "top_k": 2, "active": 3, "N": 384, "K": 130},
                150_144,
                3_072,
                399_360,
            ),
            # rows of 65 bytes and 9 scales, one of 4 for all: 3*5*(65 + 9) + 2*130*2 + 4 + 4*4 + 5*4
            ("nvfp4", {"tokens": 2, "experts": 4, "top_k": 2, "active": 3, "N": 5, "K": 130}, 1_670, 40, 5_200),
        ],
    ),
}
