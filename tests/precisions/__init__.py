"""What the tests know of each precision, none of it from the code under test.

A module of this folder, with the precision's name, defines PRECISION. This package gathers them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

ROLES = ("activation", "weight", "cache", "result", "compute")
ROWS = {"type": "fp32", "rows": 1, "columns": 0, "zero": None, "whole": None}  # a scale for each row
WHOLE = ROWS | {"rows": 0}  # one for the whole matrix


@dataclass(frozen=True, kw_only=True)
class StoredType:
    """How a type stores values."""

    # Elements and bytes of a block.
    block: tuple[int, int]
    # Values of stored blocks.
    decode: Callable[[bytes], np.ndarray]
    # Values, and their stored bytes by hand.
    encoded: tuple[list[float], str]
    # Of a type of more than 8 bits: FP32 values rounded to it, and the distance between neighboring values near zero.
    rounded: Callable[[np.ndarray], np.ndarray] | None = None
    spacing: float | None = None


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What a precision is made of, and the types that it brings."""

    # Types of the ROLES.
    roles: tuple[str | None, ...]
    # Bytes that gemm reads and writes with M=1, N=4096, K=4096, calculated by hand.
    gemm_bytes: tuple[int, int]
    # Of activations, weights and caches, as `_core.precisions` has them.
    scales: tuple[dict[str, Any] | None, ...] = (None, None, None)
    types: dict[str, StoredType] = field(default_factory=dict)


def drop_bits(values: np.ndarray, dropped: int) -> np.ndarray:
    """Round FP32 values to the nearest even without their last bits."""
    bits = values.view(np.uint32).astype(np.uint64)
    half = np.uint64((1 << (dropped - 1)) - 1)
    odd = (bits >> np.uint64(dropped)) & np.uint64(1)
    return ((bits + half + odd) >> np.uint64(dropped) << np.uint64(dropped)).astype(np.uint32).view(np.float32)


def half_bytes(data: bytes) -> np.ndarray:
    """Return the two numbers of four bits in each byte, the lower half first."""
    stored = np.frombuffer(data, np.uint8)
    return np.stack([stored & 15, stored >> 4], axis=-1).reshape(-1)


def fp16_scales(blocks: np.ndarray, at: int = 0) -> np.ndarray:
    """Return the FP16 number at a byte of each block, as a column."""
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float64)


PRECISIONS: dict[str, Precision] = {
    module.name: import_module(f"{__name__}.{module.name}").PRECISION for module in iter_modules(__path__)
}
TYPES = {name: kind for precision in PRECISIONS.values() for name, kind in precision.types.items()}


def stored_bytes(dtype: str | None, rows: int, row: int) -> int:
    """Rows that begin with a block of their own."""
    if dtype is None:
        return 0
    elems, size = TYPES[dtype].block
    return rows * -(-row // elems) * size


def scale_bytes(p: Precision, role: str, rows: int, columns: int) -> int:
    """Scales, zero points that begin a byte in each row of groups, and a scale of the whole."""
    scaling = p.scales[ROLES.index(role)]
    if scaling is None:
        return 0
    high = -(-rows // scaling["rows"]) if scaling["rows"] else 1
    wide = -(-columns // scaling["columns"]) if scaling["columns"] else 1
    whole = stored_bytes(scaling["whole"], 1, 1)
    return stored_bytes(scaling["type"], 1, high * wide) + stored_bytes(scaling["zero"], high, wide) + whole
