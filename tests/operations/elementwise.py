"""Element-wise operations and their chain."""

from __future__ import annotations

import math

import numpy as np

from operations import F32, RESULT, ROUNDOFF, Arrays, Operation, Shape

SHAPES: list[Shape] = [{"elements": n} for n in (1, 3, 1023, 2048, 4099, 70_001, 1 << 20, 1_100_003)]
SMALL: Shape = {"elements": 3000}
LITTLE = 0xFFFFFFFF


def dropout_numbers(seed: int, count: int) -> np.ndarray:
    """Philox4x32 with 7 rounds, from its paper: 16 bits for each of so many elements, eight of them from a counter."""
    counters = np.arange(-(-count // 8), dtype=np.uint64)
    words = [counters & LITTLE, counters >> 32, 0 * counters, 0 * counters]
    keys = [seed & LITTLE, seed >> 32]
    for _ in range(7):
        products = [np.uint64(0xD2511F53) * words[0], np.uint64(0xCD9E8D57) * words[2]]
        words = [
            (products[1] >> 32) ^ words[1] ^ np.uint64(keys[0]),
            products[1] & LITTLE,
            (products[0] >> 32) ^ words[3] ^ np.uint64(keys[1]),
            products[0] & LITTLE,
        ]
        keys = [(keys[0] + 0x9E3779B9) & LITTLE, (keys[1] + 0xBB67AE85) & LITTLE]
    return np.stack([part for word in words for part in (word & 0xFFFF, word >> 16)], axis=1).reshape(-1)[:count]


def mask(p: Shape, count: int) -> np.ndarray:
    return dropout_numbers(p["mask_seed"], count) >= (p["dropout_percent"] * 65536 + 50) // 100


def gelu(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"out": x["x"] * [0.5 * math.erfc(-value * math.sqrt(0.5)) for value in x["x"]]}


def chain(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    kept = mask(p, x["x"].size).reshape(x["x"].shape)
    grown = np.maximum(x["x"] + x["bias"], 0) * kept * (100 / (100 - p["dropout_percent"]))
    return {"out": grown + x["residual"]}


def chain_error(precision: str, p: Shape) -> float:
    """Of intermediate results that are stored, too; grown ones are at most the result's size + 1."""
    growth = 100 / (100 - p["dropout_percent"])
    unit = ROUNDOFF[RESULT[precision]]
    return unit + (1 + 1 / math.sqrt((1 + growth) / 3)) * (2 * unit + 4 * F32)


def simple(flops: int, inputs: int, reference: object, units: float) -> Operation:
    n = 1000
    return Operation(
        shapes=SHAPES,
        small=SMALL,
        reference=reference,  # type: ignore[arg-type]
        allowed_error=lambda precision, p: ROUNDOFF[RESULT[precision]] + units * F32 if units else 0.0,
        worked=[
            ("bf16", {"elements": n}, 2 * n * inputs, 2 * n, flops * n),
            ("fp32", {"elements": 7}, 28 * inputs, 28, 7 * flops),
        ],
    )


OPERATIONS = {
    "relu": simple(1, 1, lambda x, p, bits: {"out": np.maximum(x["x"], 0)}, 0),
    "gelu": simple(5, 1, gelu, 12),
    "residual_add": simple(1, 2, lambda x, p, bits: {"out": x["x"] + x["residual"]}, 2),
    "silu_mul": simple(5, 2, lambda x, p, bits: {"out": x["gate"] / (1 + np.exp(-x["gate"])) * x["up"]}, 12),
    "bias_relu_dropout_residual": Operation(
        shapes=[
            {"tokens": t, "hidden": h, "dropout_percent": d, "mask_seed": s}
            for t, h, d, s in [
                (1, 1, 0, 0), (7, 1, 50, 1), (1, 7, 99, 2), (3, 37, 10, 3), (300, 13, 30, 1 << 40), (40, 4104, 10, 5),
                (211, 4099, 25, (1 << 63) - 1), (1, 1_100_003, 10, 0), (256, 4096, 10, 0),
            ]
        ],
        small={"tokens": 6, "hidden": 48, "dropout_percent": 30, "mask_seed": 1},
        reference=chain,
        allowed_error=chain_error,
        # (2*7 + 1)*5*2 read, 7*5*2 written, 4*7*5
        worked=[("fp16", {"tokens": 7, "hidden": 5}, 150, 70, 140)],
    ),
}  # fmt: skip
