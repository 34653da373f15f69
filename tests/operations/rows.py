"""rmsnorm, layernorm, residual_rmsnorm, softmax and logsumexp."""

from __future__ import annotations

from typing import Any

import numpy as np
from precisions import TYPES

from bwprof import _core
from operations import F32, RESULT, ROUNDOFF, Arrays, Operation, Shape

SIZES = [(1, 1), (3, 2), (3, 37), (5, 896), (64, 16), (131, 9), (2, 4099), (1, 9000), (3, 16_384), (2, 33_001)]
# Parts of a warp, blocks and tiles of every size; and so many rows that a block has several.
GPU_SIZES = [(700, 1), (2, 515), (77, 257), (530, 264), (5, 2049), (3, 8191), (2, 70_001), (1, 1 << 20), (9001, 1040)]


def rmsnorm(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    assert x["weight"].min() >= 1
    assert x["weight"].max() <= 2
    return {"out": x["x"] / np.sqrt((x["x"] ** 2).mean(axis=1, keepdims=True) + 1e-5) * x["weight"]}


def layernorm(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    deviation = x["x"] - x["x"].mean(axis=1, keepdims=True)
    return {
        "out": deviation / np.sqrt((deviation**2).mean(axis=1, keepdims=True) + 1e-5) * x["weight"] + x["bias"],
    }


def residual_rmsnorm(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    """The norm is of the sum as it is stored, in the type that x has."""
    narrow = [name for name in ("fp16", "bf16") if np.array_equal(TYPES[name].decode(bits["x"]), x["x"].ravel())]
    dtype = narrow[0] if narrow else "fp32"
    sums = x["x"].astype(np.float32) + x["residual"].astype(np.float32)
    stored = TYPES[dtype].decode(_core.encode(dtype, sums)).astype(np.float64).reshape(sums.shape)
    return {"sum": stored} | rmsnorm({"x": stored, "weight": x["weight"]}, p, bits)


def exponentials(x: Arrays) -> tuple[np.ndarray, np.ndarray]:
    largest = x["x"].max(axis=1, keepdims=True)
    return largest, np.exp(x["x"] - largest)


def softmax(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    _, weights = exponentials(x)
    return {"out": weights / weights.sum(axis=1, keepdims=True)}


def logsumexp(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    largest, weights = exponentials(x)
    return {"out": largest[:, 0] + np.log(weights.sum(axis=1))}


def walk(length: int, more: int) -> float:
    return F32 * (more + 2 * np.sqrt(length))


def norm(reference: Any, worked: list[tuple[str, Shape, int, int, int]], factor: Any = lambda hidden: 1.0) -> Operation:
    return Operation(
        shapes=[{"tokens": t, "hidden": h} for t, h in SIZES],
        gpu_shapes=[{"tokens": t, "hidden": h} for t, h in GPU_SIZES],
        small={"tokens": 6, "hidden": 48},
        reference=reference,
        allowed_error=lambda precision, p: ROUNDOFF[RESULT[precision]] + factor(p["hidden"]) * walk(p["hidden"], 8),
        worked=worked,
    )


def of_rows(
    reference: Any, worked: list[tuple[str, Shape, int, int, int]], unfused: Any = lambda precision: 0.0
) -> Operation:
    return Operation(
        shapes=[{"rows": r, "columns": c} for r, c in SIZES],
        gpu_shapes=[{"rows": r, "columns": c} for r, c in GPU_SIZES],
        small={"rows": 6, "columns": 48},
        reference=reference,
        allowed_error=lambda precision, p: (
            ROUNDOFF[RESULT[precision]]
            + walk(p["columns"], 16)
            + (ROUNDOFF[RESULT[precision]] if p.get("variant") == "unfused" else 0.0)
        ),
        worked=worked,
    )


OPERATIONS = {
    # (7*5 + 5)*2 read, 7*5*2 written, 5*7*5
    "rmsnorm": norm(rmsnorm, [("fp16", {"tokens": 7, "hidden": 5}, 80, 70, 175)]),
    # (7*5 + 5 + 5)*2 read, 7*5*2 written, 7*7*5; of few elements, epsilon may be all that divides
    "layernorm": norm(
        layernorm, [("bf16", {"tokens": 7, "hidden": 5}, 90, 70, 245)], lambda hidden: 317 if hidden < 16 else 4
    ),
    # (7*5 + 7*5 + 5)*4 read, 2*7*5*4 written, 6*7*5
    "residual_rmsnorm": norm(residual_rmsnorm, [("fp32", {"tokens": 7, "hidden": 5}, 300, 280, 210)]),
    # 7*5*2 read and written, 5*7*5
    "softmax": of_rows(softmax, [("fp16", {"rows": 7, "columns": 5}, 70, 70, 175)]),
    # 7*5*4 read, 7*4 written, 4*7*5
    "logsumexp": of_rows(logsumexp, [("fp32", {"rows": 7, "columns": 5}, 140, 28, 140)]),
}
