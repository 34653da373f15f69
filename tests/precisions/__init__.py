"""What the tests know of each precision, none of it from the code under test.

A module of this folder, with the precision's name, defines PRECISION. This package gathers them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

import numpy as np

ROLES = ("activation", "weight", "cache", "result", "compute", "scale")


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What a precision is made of, and how a type that it brings stores values."""

    # Types of the ROLES.
    roles: tuple[str | None, ...]
    # Bytes that gemm reads and writes with M=1, N=4096, K=4096, calculated by hand.
    gemm_bytes: tuple[int, int]
    # The type of `block` and what follows, where it is not called like the precision.
    type_name: str = ""
    # Elements and bytes of a block of the type.
    block: tuple[int, int] | None = None
    # Values of stored blocks.
    decode: Callable[[bytes], np.ndarray] | None = None
    # Values, and their stored bytes by hand.
    encoded: tuple[list[float], str] | None = None
    # Of a type of more than 8 bits: FP32 values rounded to it, and the distance between neighboring values near zero.
    rounded: Callable[[np.ndarray], np.ndarray] | None = None
    spacing: float | None = None


def drop_bits(values: np.ndarray, dropped: int) -> np.ndarray:
    """Round FP32 values to the nearest even without their last bits."""
    bits = values.view(np.uint32).astype(np.uint64)
    half = np.uint64((1 << (dropped - 1)) - 1)
    odd = (bits >> np.uint64(dropped)) & np.uint64(1)
    return ((bits + half + odd) >> np.uint64(dropped) << np.uint64(dropped)).astype(np.uint32).view(np.float32)


PRECISIONS: dict[str, Precision] = {
    module.name: import_module(f"{__name__}.{module.name}").PRECISION for module in iter_modules(__path__)
}
TYPES = {precision.type_name or name: precision for name, precision in PRECISIONS.items() if precision.block}
