"""silu_mul_quantize."""

from __future__ import annotations

import numpy as np

from operations import F32, ROUNDOFF, Arrays, Operation, Shape


def silu_mul_quantize(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    y = x["gate"] / (1 + np.exp(-x["gate"])) * x["up"]
    scales = np.abs(y).max(axis=1) / 448
    return {"out": y / scales[:, None], "out_scale": scales}


OPERATIONS = {
    "silu_mul_quantize": Operation(
        shapes=[
            {"tokens": t, "hidden": h}
            for t, h in [(1, 1), (3, 37), (7, 128), (5, 896), (2, 4099), (3, 14336), (1, 16392), (2, 28672), (1, 60008)]
        ],
        small={"tokens": 6, "hidden": 48},
        reference=silu_mul_quantize,
        allowed_error=lambda precision, p: ROUNDOFF["fp8_e4m3"] + 2 * ROUNDOFF["fp16"] + 24 * F32,
        # 2*7*5 numbers of 2 bytes read; 7*5 bytes and 7 scales of 4 written; 5*7*5
        worked=[("fp8_e4m3", {"tokens": 7, "hidden": 5}, 140, 63, 175)],
    ),
}
