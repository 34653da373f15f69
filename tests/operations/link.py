"""Copies over the link between host and device: what arrives is what was there."""

from __future__ import annotations

from operations import Arrays, Operation, Shape
from operations.stream import SHAPES, SMALL


def copy(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"b": x["a"]}


def exchange(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"b": x["a"], "d": x["c"]}


# Of what crosses the link, what comes to the device counts as read, what leaves it as written.
OPERATIONS = {
    "host_to_device": Operation(
        shapes=SHAPES, small=SMALL, reference=copy, worked=[("fp16", {"elements": 1000}, 2_000, 0, 0)]
    ),
    "device_to_host": Operation(
        shapes=SHAPES, small=SMALL, reference=copy, worked=[("fp32", {"elements": 1000}, 0, 4_000, 0)]
    ),
    "host_device_exchange": Operation(
        shapes=SHAPES, small=SMALL, reference=exchange, worked=[("bf16", {"elements": 1000}, 2_000, 2_000, 0)]
    ),
}
