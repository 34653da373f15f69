"""gemm, and what becomes of its weights."""

from __future__ import annotations

import numpy as np

from operations import F32, RESULT, ROUNDOFF, Arrays, Operation, Shape


def gemm(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"D": x["A"] @ weights(x).T + (x["C"] if p["beta"] else 0)}


def weights(x: Arrays) -> np.ndarray:
    """B, less its zero points, times its scales: of rows, or of groups of a row."""
    values = x["B"]
    if "B_zero" in x:
        values = values - spread(x["B_zero"], values.shape[1])
    if "B_scale" in x:
        values = values * spread(x["B_scale"], values.shape[1])
    return values * x.get("B_whole_scale", 1)


def spread(groups: np.ndarray, columns: int) -> np.ndarray:
    if groups.ndim == 1:
        return groups[:, None]
    size = next(size for size in (16, 32, 64, 128) if -(-columns // size) == groups.shape[1])
    return np.repeat(groups, size, axis=1)[:, :columns]


def allowed_error(precision: str, p: Shape) -> float:
    """One rounding; FP32 sums of K products, in any order, some units truncating.

    `separate` rounds each weight, too: by a roundoff over the root of 3 on average, which sums of K such errors are
    below five times of.
    """
    weights = 5 * ROUNDOFF["fp16"] / np.sqrt(3) if p.get("variant") == "separate" else 0
    return ROUNDOFF[RESULT[precision]] + weights + F32 * (8 * np.sqrt(p["K"]) + p["K"] / 4)


def dequantize(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"D": weights(x)}


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
            # 4096*128 blocks of 18 bytes; 4096*4096 values of 2; a difference and a product each
            ("q4_0", {"N": 4096, "K": 4096}, 9_437_184, 33_554_432, 33_554_432),
            # rows of 65 bytes, two scales of 2 and a byte of zero points; 5*130*2; 2*5*130
            ("int4_g128", {"N": 5, "K": 130}, 350, 1_300, 1_300),
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
                *((13, 40, 4104, 1), (16, 77, 1048, 1), (11, 2503, 264, 1), (10, 4301, 72, 0)),
                # FP32 through shared memory: blocks of 32 rows of B and of 16, several turns of a warp and fewer.
                *((12, 2305, 100, 0), (17, 2203, 68, 1), (25, 2180, 132, 0), (24, 41, 1000, 1), (29, 3, 2052, 0)),
                # Narrow weights eight at a time: tiles of 256; few, many and long rows of B.
                *((2, 67, 768, 0), (4, 45, 256, 0), (6, 35, 8192, 1), (3, 8501, 256, 1)),
                *((16, 61, 512, 1), (11, 8501, 256, 0), (29, 40, 1280, 1)),
            ]
        ],
        small={"M": 4, "N": 48, "K": 40},
        reference=gemm,
        allowed_error=allowed_error,
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
}
