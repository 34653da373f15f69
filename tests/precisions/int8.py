"""Whole numbers from -128 to 127; a NaN becomes 0."""

import math

import numpy as np

from precisions import ROWS, Precision, StoredType

ROUNDED = [-1e9, -128.6, -127.5, -0.5, 0.5, 1.5, 2.5, 126.5, 127.2, 1e9, math.nan]

PRECISION = Precision(
    roles=("int8", "int8", "int8", "fp16", "int8"),
    scales=(ROWS, ROWS, ROWS),
    gemm_bytes=(16_797_700, 8_192),  # 4096 + 4096*4096, and a scale of 4 for each of 1 + 4096 rows; 4096 * 2
    types={
        "int8": StoredType(
            block=(1, 1),
            decode=lambda data: np.frombuffer(data, np.int8).astype(np.float32),
            encoded=(ROUNDED, "808080000002027e7f7f00"),
        )
    },
)
