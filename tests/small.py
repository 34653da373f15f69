"""Small cases of whatever the registry holds, for tests that need many of them."""

from __future__ import annotations

from bwprof import _core
from bwprof.registry import variant_names

# Small values for whatever parameters an operation has; those not named keep their defaults.
SMALL = {
    "elements": 3000, "M": 4, "N": 48, "K": 40, "batch": 2, "seq_len": 5, "kv_len": 24, "num_heads": 4,
    "num_kv_heads": 2, "head_dim": 16, "tokens": 6, "hidden": 48,
}  # fmt: skip


def small_cases(backend: str | None = None) -> list[tuple[str, str, dict[str, int]]]:
    """Every operation in every precision that it has, or that the backend has a kernel for."""
    return [
        (op["name"], precision, {p["name"]: SMALL[p["name"]] for p in op["params"] if p["name"] in SMALL})
        for op in _core.operations()
        for precision in op["precisions"]
        if backend is None or variant_names(op["name"], backend, precision)
    ]
