"""Blocks of a scale d in FP16 and 32 whole numbers q of 8 bits: values d q."""

import numpy as np

from precisions import Precision, StoredType, fp16_scales


def decode(data: bytes) -> np.ndarray:
    blocks = np.frombuffer(data, np.uint8).reshape(-1, 34)
    return (blocks[:, 2:].view(np.int8) * fp16_scales(blocks)).reshape(-1)


PRECISION = Precision(
    roles=("fp16", "q8_0", None, "fp16", "fp16"),
    gemm_bytes=(17_833_984, 8_192),  # 4096*4096/32 blocks of 34, and 4096 activations of 2; 4096 * 2
    types={
        "q8_0": StoredType(
            block=(32, 34),
            decode=decode,
            # d = 1, as 127 is the largest; halves away from zero
            encoded=(
                [*range(-14, 15), 0.5, -1.5, 127.0],
                "003c" + "f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e01fe7f",
            ),
        )
    },
)
