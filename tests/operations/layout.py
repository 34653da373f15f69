"""transpose and permute."""

from __future__ import annotations

from operations import Arrays, Operation, Shape

# Sizes of 1, primes, tiles and their tails; rows of 16 bytes, and of fewer.
MATRICES = [
    (1, 1, 1), (3, 1, 77), (2, 91, 1), (1, 37, 45), (2, 64, 64), (3, 136, 72), (1, 257, 1031), (2, 1003, 520),
    (1, 520, 1003), (65, 5, 3), (1, 2100, 17), (1, 72, 3000),
]  # fmt: skip
LARGE = [(1, 2056, 4104), (3, 1025, 1027), (70_000, 8, 8)]
HEADS = [(1, 1, 1, 1), (2, 7, 3, 24), (1, 33, 5, 80), (3, 130, 8, 128), (2, 19, 2, 67), (1, 257, 1, 64), (2, 1, 9, 256)]


def transpose(x: Arrays, p: Shape, bits: dict[str, bytes]) -> Arrays:
    return {"out": x["in"].swapaxes(1, 2)}


OPERATIONS = {
    "transpose": Operation(
        shapes=[{"batch": b, "rows": r, "columns": c} for b, r, c in MATRICES],
        gpu_shapes=[{"batch": b, "rows": r, "columns": c} for b, r, c in LARGE],
        small={"batch": 2, "rows": 40, "columns": 72},
        reference=transpose,
        # 3*5*7 elements of 2 bytes, there and back
        worked=[("bf16", {"batch": 3, "rows": 5, "columns": 7}, 210, 210, 0)],
    ),
    "permute": Operation(
        shapes=[{"batch": b, "seq_len": s, "num_heads": h, "head_dim": d} for b, s, h, d in HEADS],
        gpu_shapes=[{"batch": 3, "seq_len": 2053, "num_heads": 9, "head_dim": 128}],
        small={"batch": 2, "seq_len": 24, "num_heads": 3, "head_dim": 16},
        reference=transpose,
        # 2*10*3*8 elements of 4 bytes
        worked=[("fp32", {"batch": 2, "seq_len": 10, "num_heads": 3, "head_dim": 8}, 1_920, 1_920, 0)],
    ),
}
