"""Whether the search for a decode's plan finds the fastest: times each plan of a shape, and the one that it chooses.

python tests/benchmarks/plans.py --csv plans.csv
"""

from __future__ import annotations

import argparse
import csv
import random
from contextlib import suppress

from common import machine, measure, show, table

from bwprof import _core

MOST = 28  # plans of a shape
# batch, keys, heads, K/V heads, head_dim
HALVES = [
    (1, 32768, 32, 8, 128), (4, 20011, 20, 4, 128), (8, 4096, 32, 8, 128), (64, 8192, 32, 8, 128),
    (23, 5003, 24, 2, 128), (16, 8192, 64, 2, 128), (1, 4096, 14, 2, 64), (8, 4096, 14, 2, 64), (11, 8192, 32, 8, 128),
    (20, 8192, 32, 2, 128), (4, 4096, 40, 2, 128), (4, 4096, 64, 2, 128), (4, 4096, 128, 2, 128),
    (64, 8192, 64, 2, 128), (16, 8192, 24, 2, 64), (16, 8192, 8, 8, 128), (16, 8192, 32, 8, 256), (6, 1500, 56, 8, 128),
    (64, 512, 32, 8, 64), (1, 8192, 32, 8, 128), (2, 4096, 14, 2, 64), (9, 2048, 32, 8, 128), (1, 32768, 16, 1, 128),
    (64, 300, 256, 32, 128),
]  # fmt: skip
FLOATS = [
    (1, 32768, 32, 8, 128), (4, 15264, 28, 4, 128), (8, 12816, 14, 2, 64), (1, 18528, 32, 8, 128),
    (23, 5003, 24, 2, 128), (16, 8192, 64, 2, 128), (4, 20011, 20, 4, 128), (16, 8192, 32, 8, 160),
    (1, 4096, 14, 2, 64),
]  # fmt: skip
# Entries with lengths of their own: how many, the longest, heads, K/V heads, head_dim.
RAGGED = [
    (4, 8192, 32, 8, 128), (16, 8192, 32, 8, 128), (64, 8192, 32, 8, 128), (8, 8192, 8, 1, 128), (8, 8192, 32, 8, 64),
    (4, 8192, 14, 2, 64), (8, 8192, 32, 2, 128), (32, 2000, 32, 8, 128), (128, 512, 32, 8, 128), (3, 32768, 32, 8, 128),
]  # fmt: skip
NAMES = ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim")


def median_us(
    device: _core.Device, precision: str, shape: tuple[int, ...], lengths: list[int] | None, seconds: float
) -> float:
    params = dict(zip(NAMES, shape, strict=True))
    options = {"variant": "splitkv", "kv_lens": lengths, "max_seconds": seconds}
    return float(measure(device, "attention_decode", precision, params, **options)[0]["median_ns"]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.1, help="longest measurement of a plan")
    parser.add_argument("--csv", help="also write the rows to this file")
    args = parser.parse_args()
    chance = random.Random(3)
    cases: list[tuple[str, tuple[int, ...], list[int] | None]] = [
        *(("fp16", shape, None) for shape in HALVES),
        *(("fp32", shape, None) for shape in FLOATS),
        *(("fp16", s, [*(chance.randint(100, s[1]) for _ in range(s[0] - 1)), s[1]]) for s in RAGGED),
    ]
    heads = ["decode", "precision", "chosen us", "best us", "plan", "chosen / best"]
    rows: list[list[object]] = []
    with _core.Device("cuda") as device:
        show(machine(device))
        for precision, shape, lengths in cases:
            case = (device, precision, shape, lengths, args.seconds)
            device._force_plan(0)
            chosen = median_us(*case)
            forced = []
            with suppress(_core.UnsupportedError):  # there are no more
                for plan in range(1, MOST + 1):
                    device._force_plan(plan)
                    forced.append(median_us(*case))
            device._force_plan(0)
            chosen = min(chosen, median_us(*case))
            best = min(forced)
            label = "x".join(map(str, shape)) + (" ragged" if lengths else "")
            rows.append([label, precision, chosen, best, forced.index(best) + 1, chosen / best])
    table("The chosen plan beside the fastest", heads, rows)
    ratios = sorted(float(str(row[-1])) for row in rows)
    show(f"{len(rows)} shapes: median {ratios[len(rows) // 2]:.3f}, worst {ratios[-1]:.3f}")
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            csv.writer(file).writerows([heads, *rows])


if __name__ == "__main__":
    main()
