"""Blocks of a scale d in FP16 and 32 whole numbers q of 4 bits, those of the first half low: values d (q - 8)."""

import numpy as np

from precisions import Precision, StoredType


def decode(data: bytes) -> np.ndarray:
    blocks = np.frombuffer(data, np.uint8).reshape(-1, 18)
    scales, halves = blocks[:, :2].copy().view("<f2").astype(np.float64), blocks[:, 2:].astype(np.int64)
    return ((np.hstack([halves & 15, halves >> 4]) - 8) * scales).reshape(-1)


PRECISION = Precision(
    roles=("fp16", "q4_0", None, "fp16", "fp16"),
    gemm_bytes=(9_445_376, 8_192),  # 4096*4096/32 blocks of 18, and 4096 activations of 2; 4096 * 2
    types={
        "q4_0": StoredType(
            block=(32, 18),
            decode=decode,
            # d = 0.25, the quotient of the largest value, -2, and -8
            encoded=([(i - 16) / 8 for i in range(32)], "0034809191a2a2b3b3c4c4d5d5e6e6f7f7f8"),
        )
    },
)
