"""OCP E4M3: a sign, four bits of exponent (bias 7), three of significand; S.1111.111 is a NaN."""

import math

import numpy as np

from precisions import ROWS, Precision, StoredType


def value(bits: int) -> float:
    exponent, fraction = bits >> 3 & 15, bits & 7
    if bits & 0x7F == 0x7F:
        return math.nan
    size = fraction / 8 * 2**-6 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
    return -size if bits & 0x80 else size


VALUES = np.array([value(bits) for bits in range(256)])

PRECISION = Precision(
    roles=("fp8_e4m3", "fp8_e4m3", "fp8_e4m3", "fp16", "fp8_e4m3"),
    scales=(ROWS, ROWS, ROWS),
    gemm_bytes=(16_797_700, 8_192),  # 4096 + 4096*4096, and a scale of 4 for each of 1 + 4096 rows; 4096 * 2
    types={
        "fp8_e4m3": StoredType(
            block=(1, 1),
            decode=lambda data: VALUES[np.frombuffer(data, np.uint8)],
            spacing=2.0**-9,
            encoded=([1.0, -2.5, 448.0, 1e9, math.inf, math.nan], "38c27e7e7e7f"),
        )
    },
)
