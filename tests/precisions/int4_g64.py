"""Whole numbers q of 4 bits; 64 of a row share a scale s in FP16 and a zero point z of 4 bits: values (q - z) s."""

from precisions import Precision

PRECISION = Precision(
    roles=("fp16", "uint4", None, "fp16", "fp16"),
    scales=(None, {"type": "fp16", "rows": 1, "columns": 64, "zero": "uint4", "whole": None}, None),
    # 4096*4096/2, for each of 4096*64 groups 2 and 1/2, and 4096 activations of 2; 4096 * 2
    gemm_bytes=(9_052_160, 8_192),
)
