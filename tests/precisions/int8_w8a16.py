"""Whole numbers as weights alone, a scale in FP32 for each row."""

from precisions import ROWS, Precision

PRECISION = Precision(
    roles=("fp16", "int8", None, "fp16", "fp16"),
    scales=(None, ROWS, None),
    gemm_bytes=(16_801_792, 8_192),  # 4096*4096, 4096 scales of 4, and 4096 activations of 2; 4096 * 2
)
