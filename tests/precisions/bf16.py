"""FP32's upper half."""

import numpy as np

from precisions import Precision, StoredType, drop_bits

PRECISION = Precision(
    roles=("bf16", "bf16", "bf16", "bf16", "bf16"),
    gemm_bytes=(33_562_624, 8_192),  # (4096 + 4096*4096) * 2; 4096 * 2
    types={
        "bf16": StoredType(
            block=(1, 2),
            decode=lambda data: (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32),
            encoded=([1.0, -2.5], "803f20c0"),
            rounded=lambda values: drop_bits(values, 16),
            spacing=2.0**-133,
        )
    },
)
