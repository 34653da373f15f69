"""Shapes, NumPy references and costs by hand of each operation.

A module of this folder, one for each family, defines OPERATIONS: operations by name. This package gathers them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

from bwprof import _core
from bwprof.registry import variant_names

Arrays = dict[str, np.ndarray]
Shape = dict[str, Any]  # parameters, and the list kv_lens

ROUNDOFF = {t["name"]: t["roundoff"] for t in _core.dtypes()}
ACTIVATION = {p["name"]: p["activation"] for p in _core.precisions()}
RESULT = {p["name"]: p["result"] for p in _core.precisions()}
COMPUTE = {p["name"]: p["compute"] for p in _core.precisions()}
F32 = ROUNDOFF["fp32"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """How an operation is checked."""

    # Every kernel runs on these: sizes of 1, primes, tails. The sanitizers of GPUs run the last ones only.
    shapes: list[Shape]
    # And on these those of a GPU, where so many rows make a difference; sanitizers leave them out.
    gpu_shapes: list[Shape] = field(default_factory=list)
    # A quick case, which many tests run. It names every size.
    small: Shape
    # The outputs in NumPy, from inputs in float64 (in float32 where allowed_error is 0), parameters and stored bits.
    reference: Callable[[Arrays, Shape, dict[str, bytes]], Arrays]
    # Costs calculated by hand: precision, parameters, bytes read, bytes written, FLOPs.
    worked: list[tuple[str, Shape, int, int, int]]
    # By precision and parameters; relative to the larger of the value and the outputs' root mean square; 0 = equal.
    allowed_error: Callable[[str, Shape], float] = lambda precision, p: 0.0
    # Where rows are bounded, too: the root mean square of a row's errors, relative as above, and how many independent
    # errors such a row has; None = they are not.
    typical_error: Callable[[str, Shape], tuple[float, float] | None] = lambda precision, p: None
    # More shapes for every kernel, by backend: those of models.
    grid: dict[str, list[Shape]] = field(default_factory=dict)

    def shapes_on(self, backend: str) -> list[Shape]:
        return self.shapes + (self.gpu_shapes if backend == "cuda" else [])


def _gather_operations() -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        new = import_module(module.name).OPERATIONS
        assert not found.keys() & new.keys(), f"{module.name} describes an operation that another module describes"
        found |= new
    return found


OPERATIONS = _gather_operations()


def small_cases(backend: str | None = None) -> list[tuple[str, str, Shape]]:
    """Every operation in every precision that it has, or that the backend has a kernel for."""
    return [
        (op["name"], precision, dict(OPERATIONS[op["name"]].small))
        for op in _core.operations()
        if op["name"] in OPERATIONS  # else test_operations.py fails
        for precision in op["precisions"]
        if backend is None or variant_names(op["name"], backend, precision)
    ]
