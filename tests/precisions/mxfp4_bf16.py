"""MXFP4 with BF16 beside the weights."""

from precisions import Precision

PRECISION = Precision(
    roles=("bf16", "fp4_e2m1", None, "bf16", "bf16"),
    scales=(None, {"type": "e8m0", "rows": 1, "columns": 32, "zero": None, "whole": None}, None),
    gemm_bytes=(8_921_088, 8_192),  # 4096*4096/2, 4096*128 scales of 1, and 4096 activations of 2; 4096 * 2
)
