"""Blocks of 256: scales d and m in FP16, 6 bits s and t for each 32, whole numbers q of 4 bits: values d s q - m t."""

import numpy as np

from precisions import Precision, StoredType, fp16_scales


def decode(data: bytes) -> np.ndarray:
    blocks = np.frombuffer(data, np.uint8).reshape(-1, 144)
    packed, halves = blocks[:, 4:16].astype(np.int64), blocks[:, 16:].reshape(-1, 4, 32)
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.hstack([first % 64, third % 16 + first // 64 * 16])
    minima = np.hstack([second % 64, third // 16 + second // 64 * 16])
    q = np.stack([halves & 15, halves >> 4], axis=2).reshape(-1, 8, 32)
    products = (fp16_scales(blocks) * scales)[:, :, None] * q
    return (products - (fp16_scales(blocks, 2) * minima)[:, :, None]).reshape(-1)


PRECISION = Precision(
    roles=("fp16", "q4_k", None, "fp16", "fp16"),
    gemm_bytes=(9_445_376, 8_192),  # 4096*4096/256 blocks of 144, and 4096 activations of 2; 4096 * 2
    types={
        "q4_k": StoredType(
            block=(256, 144),
            decode=decode,
            # d = 1 and every s is 63, in two pieces of the last four groups; no minima
            encoded=(
                [63.0 * (i % 16) for i in range(256)],
                "003c0000" + "ff" * 4 + "00" * 4 + "0f" * 4 + bytes(17 * (i % 16) for i in range(128)).hex(),
            ),
        )
    },
)
