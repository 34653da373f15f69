"""IEEE 754 binary16."""

import numpy as np

from precisions import Precision, StoredType

PRECISION = Precision(
    roles=("fp16", "fp16", "fp16", "fp16", "fp16"),
    gemm_bytes=(33_562_624, 8_192),  # (4096 + 4096*4096) * 2; 4096 * 2
    types={
        "fp16": StoredType(
            block=(1, 2),
            decode=lambda data: np.frombuffer(data, np.float16),
            encoded=([1.0, -2.5, 65519.0, 65520.0, 1e30, -1e30], "003c00c1ff7b007c007c00fc"),
            rounded=lambda values: values.astype(np.float16).astype(np.float32),
            spacing=2.0**-24,
        )
    },
)
