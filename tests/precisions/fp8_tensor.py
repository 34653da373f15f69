"""E4M3 activations and weights, each with one scale in FP32."""

from precisions import WHOLE, Precision

PRECISION = Precision(
    roles=("fp8_e4m3", "fp8_e4m3", None, "fp16", "fp8_e4m3"),
    scales=(WHOLE, WHOLE, None),
    gemm_bytes=(16_781_320, 8_192),  # 4096 + 4096*4096, and a scale of 4 for each of two; 4096 * 2
)
