"""OCP E5M2, binary16's upper byte, as weights; a scale in FP32 for each row."""

import math

import numpy as np

from precisions import ROWS, Precision, StoredType

# 57344 is the largest: from 61440 on, half of the way to 65536, it is an infinity
ROUNDED = [1.0, -2.5, 57344.0, 61439.0, 61440.0, -math.inf, math.nan, 1.125, 1.375, 2.0**-16, 2.0**-17, 3 * 2.0**-17]

PRECISION = Precision(
    roles=("fp16", "fp8_e5m2", None, "fp16", "fp16"),
    scales=(None, ROWS, None),
    gemm_bytes=(16_801_792, 8_192),  # 4096*4096, 4096 scales of 4, and 4096 activations of 2; 4096 * 2
    types={
        "fp8_e5m2": StoredType(
            block=(1, 1),
            decode=lambda data: (np.frombuffer(data, np.uint8).astype(np.uint16) << 8).view(np.float16),
            encoded=(ROUNDED, "3cc17b7b7cfc7e3c3e010002"),
        )
    },
)
