"""rmsnorm."""

from __future__ import annotations

import numpy as np

from operations import F32, RESULT, ROUNDOFF, Arrays, Operation, Shape


def rmsnorm(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    assert x["weight"].min() >= 1
    assert x["weight"].max() <= 2
    return {"out": x["x"] / np.sqrt((x["x"] ** 2).mean(axis=1, keepdims=True) + 1e-5) * x["weight"]}


OPERATIONS = {
    "rmsnorm": Operation(
        shapes=[{"tokens": t, "hidden": h} for t, h in [(1, 1), (3, 37), (5, 896), (64, 16), (2, 4099), (1, 9000)]],
        small={"tokens": 6, "hidden": 48},
        reference=rmsnorm,
        allowed_error=lambda precision, p: ROUNDOFF[RESULT[precision]] + F32 * (8 + 2 * np.sqrt(p["hidden"])),
        # (7*5 + 5)*2 read, 7*5*2 written, 5*7*5
        worked=[("fp16", {"tokens": 7, "hidden": 5}, 80, 70, 175)],
    ),
}
