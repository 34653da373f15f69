"""int4_g128 with BF16 beside the weights, whose scales are FP16 as they were."""

from precisions import Precision

PRECISION = Precision(
    roles=("bf16", "uint4", None, "bf16", "bf16"),
    scales=(None, {"type": "fp16", "rows": 1, "columns": 128, "zero": "uint4", "whole": None}, None),
    # 4096*4096/2, for each of 4096*32 groups 2 and 1/2, and 4096 activations of 2; 4096 * 2
    gemm_bytes=(8_724_480, 8_192),
)
