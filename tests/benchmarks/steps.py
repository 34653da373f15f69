"""Cliffs: what a little more work costs, along lengths and rows that no power of two picks.

Walks decode over kv_len, prefill over seq_len and gemm over M on a GPU, and prints for each case the worst step of
time beyond that of its work, the share of sizes that reach nearly the rate of the best smaller one, and by how much a
size is slower than a larger one.

    python tests/benchmarks/steps.py --only decode --precisions fp32 --stride 1088
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from common import machine, measure, show, table

from bwprof import _core

DECODES = [(4, 28, 4, 128), (8, 14, 2, 64), (1, 32, 8, 128), (16, 64, 8, 128)]  # batch, heads, K/V heads, head_dim
NEAR = 1.05  # times what the best size so far takes for its work


class Point(NamedTuple):
    """One size of a case: its work, in FLOPs or bytes, and its time."""

    size: int
    variant: str
    work: float
    microseconds: float


def decode_cases(lengths: Sequence[int]) -> Iterator[tuple[str, str, list[tuple[int, dict[str, int]]]]]:
    for batch, heads, kv_heads, dim in DECODES:
        shape = {"batch": batch, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim}
        yield (f"decode {batch}x L x{heads}/{kv_heads}x{dim}", "attention_decode",
               [(length, shape | {"kv_len": length}) for length in lengths])  # fmt: skip


def prefill_cases(lengths: Sequence[int]) -> Iterator[tuple[str, str, list[tuple[int, dict[str, int]]]]]:
    shape = {"batch": 1, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "causal": 1}
    yield ("prefill 1x L x32/8x128", "attention_prefill",
           [(length, shape | {"seq_len": length}) for length in lengths])  # fmt: skip


def gemm_cases(rows: Sequence[int]) -> Iterator[tuple[str, str, list[tuple[int, dict[str, int]]]]]:
    yield "gemm Mx14336x4096", "gemm", [(m, {"M": m, "N": 14336, "K": 4096}) for m in rows]


def work_of(operation: str, cost: dict[str, int]) -> float:
    """What time should follow: FLOPs of prefill, bytes of the others."""
    return float(cost["flops"] if operation == "attention_prefill" else cost["bytes_read"] + cost["bytes_written"])


def summary(points: Sequence[Point]) -> list[object]:
    """The worst step beyond the work's, where it is, the share of points near the best so far, and by how much a point
    is slower than a larger one."""
    steps = [
        (after.microseconds / before.microseconds / (after.work / before.work), f"{before.size} -> {after.size}")
        for before, after in pairwise(points)
    ]
    worst, where = max(steps)
    best, near = float("inf"), 0.0
    for point in points:
        best = min(best, point.microseconds / point.work)
        near += (point.microseconds / point.work <= NEAR * best) / len(points)
    later = [min(after.microseconds for after in points[i + 1 :]) for i in range(len(points) - 1)]
    slower = max(point.microseconds / least for point, least in zip(points, later, strict=False))
    return [100 * (worst - 1), where, 100 * near, 100 * (slower - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["decode", "prefill", "gemm"], default=["decode", "gemm"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "fp16"])
    parser.add_argument("--stride", type=int, default=272, help="keys between two lengths (default: 272)")
    parser.add_argument("--rows", type=int, nargs="+", default=[*range(1, 41), *range(48, 321, 8)], metavar="M")
    parser.add_argument("--seconds", type=float, default=0.1, help="time for each point (default: 0.1)")
    parser.add_argument("--csv", metavar="FILE", help="every point")
    options = parser.parse_args()
    cases = {
        "decode": decode_cases(range(8192, 20001, options.stride)),
        "prefill": prefill_cases(range(512, 4097, 96)),
        "gemm": gemm_cases(options.rows),
    }
    lines, rows = [], []
    with _core.Device("cuda", 0) as device:
        show(machine(device))
        for name, operation, sizes in (case for group in options.only for case in cases[group]):
            for precision in options.precisions:
                points = []
                for size, params in sizes:
                    found, cost, variant = measure(device, operation, precision, params, max_seconds=options.seconds)
                    points.append(Point(size, variant, work_of(operation, cost), found["median_ns"] / 1e3))
                rows.append([name, precision, *summary(points)])
                lines += [[name, precision, *point] for point in points]
    heads = ["case", "precision", "worst step %", "at", f"% within {100 * NEAR - 100:.0f} %", "slower than a larger %"]
    table("Steps beyond the work's", heads, rows)
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["case", "precision", *Point._fields], *lines])


if __name__ == "__main__":
    main()
