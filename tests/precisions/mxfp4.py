"""OCP E2M1: a sign, two bits of exponent (bias 1), one of significand; 32 of a row share a power of two (E8M0)."""

import math

import numpy as np

from precisions import Precision, StoredType, half_bytes

VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
POWERS = np.array([2.0 ** (bits - 127) for bits in range(255)] + [math.nan])

PRECISION = Precision(
    roles=("fp16", "fp4_e2m1", None, "fp16", "fp16"),
    scales=(None, {"type": "e8m0", "rows": 1, "columns": 32, "zero": None, "whole": None}, None),
    gemm_bytes=(8_921_088, 8_192),  # 4096*4096/2, 4096*128 scales of 1, and 4096 activations of 2; 4096 * 2
    types={
        "fp4_e2m1": StoredType(
            block=(2, 1),
            decode=lambda data: VALUES[half_bytes(data)],
            encoded=([0.5, -6.0, 2.5, 100.0, math.nan, -0.25], "f17487"),
        ),
        "e8m0": StoredType(
            block=(1, 1),
            decode=lambda data: POWERS[np.frombuffer(data, np.uint8)],
            encoded=([1.0, 1.6, 0.25, 2.0**-127, 0.0, -1.0, math.inf], "7f807d0000ffff"),
        ),
    },
)
