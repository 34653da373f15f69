"""The four streams."""

from __future__ import annotations

import numpy as np

from operations import F32, RESULT, ROUNDOFF, Arrays, Operation, Shape

SHAPES: list[Shape] = [{"elements": n} for n in (1, 3, 1023, 1024, 2048, 4099, 70_001, 1 << 20, 1_100_003)]
SMALL = {"elements": 3000}


def checksums(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    raw = bits["a"] + bytes(-len(bits["a"]) % 4096)
    words = np.frombuffer(raw, dtype=np.uint32).reshape(-1, 1024)
    return {"checksum": words.sum(axis=1, dtype=np.uint64).astype(np.uint32).view(np.int32)}


def pattern(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"b": (np.arange(p["elements"]) % 64 - 32) / 32}


def copy(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"b": x["a"]}


def triad(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"c": x["a"] + 0.5 * x["b"]}


OPERATIONS = {
    "stream_read": Operation(
        shapes=SHAPES, small=SMALL, reference=checksums, worked=[("bf16", {"elements": 1000}, 2_000, 0, 0)]
    ),
    "stream_write": Operation(
        shapes=SHAPES, small=SMALL, reference=pattern, worked=[("fp32", {"elements": 1000}, 0, 4_000, 0)]
    ),
    "stream_copy": Operation(
        shapes=SHAPES, small=SMALL, reference=copy, worked=[("fp16", {"elements": 1000}, 2_000, 2_000, 0)]
    ),
    "stream_triad": Operation(
        shapes=SHAPES,
        small=SMALL,
        reference=triad,
        allowed_error=lambda precision, p: ROUNDOFF[RESULT[precision]] + 2 * F32,
        worked=[("fp32", {"elements": 1000}, 8_000, 4_000, 2_000)],
    ),
}
