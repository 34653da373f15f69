"""IEEE 754 binary32."""

import numpy as np

from precisions import Precision, StoredType

PRECISION = Precision(
    roles=("fp32", "fp32", "fp32", "fp32", "fp32"),
    gemm_bytes=(67_125_248, 16_384),  # (4096 + 4096*4096) * 4; 4096 * 4
    types={
        "fp32": StoredType(
            block=(1, 4),
            decode=lambda data: np.frombuffer(data, np.float32),
            encoded=([1.0, -2.5], "0000803f000020c0"),
            rounded=lambda values: values,
            spacing=2.0**-149,
        )
    },
)
