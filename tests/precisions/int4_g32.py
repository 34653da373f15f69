"""Whole numbers q of 4 bits; 32 of a row share a scale s in FP16 and a zero point z of 4 bits: values (q - z) s."""

import math

import numpy as np

from precisions import Precision, StoredType, half_bytes

PRECISION = Precision(
    roles=("fp16", "uint4", None, "fp16", "fp16"),
    scales=(None, {"type": "fp16", "rows": 1, "columns": 32, "zero": "uint4", "whole": None}, None),
    # 4096*4096/2, for each of 4096*128 groups 2 and 1/2, and 4096 activations of 2; 4096 * 2
    gemm_bytes=(9_707_520, 8_192),
    types={
        "uint4": StoredType(
            block=(2, 1),
            decode=lambda data: half_bytes(data).astype(np.float32),
            encoded=([0.0, 15.0, 7.5, 100.0, -3.0, math.nan], "f0f800"),
        )
    },
)
