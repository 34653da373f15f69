"""FP32 without the last 13 bits of its significand, in 4 bytes."""

import numpy as np

from precisions import Precision, StoredType, drop_bits

PRECISION = Precision(
    roles=("tf32", "tf32", None, "fp32", "tf32"),
    gemm_bytes=(67_125_248, 16_384),  # as FP32
    types={
        "tf32": StoredType(
            block=(1, 4),
            decode=lambda data: np.frombuffer(data, np.float32),
            encoded=([1 + 2.0**-10, 1 + 2.0**-11], "0020803f0000803f"),
            rounded=lambda values: drop_bits(values, 13),
            spacing=2.0**-136,
        )
    },
)
