"""OCP E2M1; 16 of a row share a scale in E4M3, and all one in FP32."""

from precisions import Precision

PRECISION = Precision(
    roles=("fp16", "fp4_e2m1", None, "fp16", "fp16"),
    scales=(None, {"type": "fp8_e4m3", "rows": 1, "columns": 16, "zero": None, "whole": "fp32"}, None),
    # 4096*4096/2, 4096*256 scales of 1, one of 4, and 4096 activations of 2; 4096 * 2
    gemm_bytes=(9_445_380, 8_192),
)
