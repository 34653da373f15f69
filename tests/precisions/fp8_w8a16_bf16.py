"""E4M3 as weights alone, a scale in FP32 for each row; BF16 beside them."""

from precisions import ROWS, Precision

PRECISION = Precision(
    roles=("bf16", "fp8_e4m3", None, "bf16", "bf16"),
    scales=(None, ROWS, None),
    gemm_bytes=(16_801_792, 8_192),  # 4096*4096, 4096 scales of 4, and 4096 activations of 2; 4096 * 2
)
