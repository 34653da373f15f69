"""E4M3 activations with a scale in FP32 for 128 of a row, weights with one for 128 x 128."""

from precisions import ROWS, Precision

PRECISION = Precision(
    roles=("fp8_e4m3", "fp8_e4m3", None, "fp16", "fp8_e4m3"),
    scales=(ROWS | {"columns": 128}, ROWS | {"rows": 128, "columns": 128}, None),
    gemm_bytes=(16_785_536, 8_192),  # 4096 + 4096*4096, and scales of 4: 32, and 32*32; 4096 * 2
)
