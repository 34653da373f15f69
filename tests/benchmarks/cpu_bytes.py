"""8 bits on a CPU: moves and decodes of caches, and products of bytes, each beside what it is compared with.

The two are measured by turns, some rounds; of each the shortest time counts.

    python tests/benchmarks/cpu_bytes.py --rounds 5
"""

from __future__ import annotations

import argparse
from typing import Any

from common import gb_s, machine, measure, show, table

from bwprof import _core

HEADS = {"num_kv_heads": 8, "head_dim": 128}
CACHE = {"batch": 4, "kv_len": 8192, **HEADS}
DECODE = {"batch": 8, "kv_len": 8192, "num_heads": 32, **HEADS}
GEMM = {"N": 4096, "K": 4096}
Case = tuple[str, str, dict[str, int]]


def pairs() -> list[tuple[Case, Case]]:
    """What is measured, and what beside it: a copy of as many bytes, FP16, FP32."""
    found: list[tuple[Case, Case]] = []
    for precision in ("int8", "fp8_e4m3", "fp8_e5m2"):
        appended = {"batch": 4, "seq_len": 8192, "kv_len": 0, **HEADS}
        moves: list[tuple[str, dict[str, int]]] = [
            ("kv_append", appended), ("kv_copy", CACHE), ("kv_gather", CACHE | {"page_size": 16})
        ]  # fmt: skip
        for operation, params in moves:
            cost = _core.cost(operation, precision, params)
            moved = cost["bytes_read"] + cost["bytes_written"]
            found.append(((operation, precision, params), ("stream_copy", "fp32", {"elements": moved // 8})))
        found.append((("attention_decode", precision, DECODE), ("attention_decode", "fp16", DECODE)))
        found += [
            (("gemm", precision, {"M": m, **GEMM}), ("gemm", "fp32", {"M": m, **GEMM})) for m in (1, 2, 8, 16, 32, 128)
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="longest measurement of a case")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    args = parser.parse_args()
    rows: list[list[object]] = []
    with _core.Device("cpu") as device:
        show(machine(device))
        for pair in pairs():
            name = " ".join(map(str, [*pair[0][:2], *pair[0][2].values()]))
            if args.only not in name:
                continue
            best: list[Any] = [None, None]
            for _ in range(args.rounds):
                for i, (operation, precision, params) in enumerate(pair):
                    result, cost, variant = measure(device, operation, precision, params, max_seconds=args.seconds)
                    best[i] = min(best[i] or (1e30, {}, ""), (result["min_ns"], cost, variant), key=lambda x: x[0])
            (own_ns, cost, variant), (other_ns, _, other) = best
            rows.append([name, variant, own_ns / 1e3, gb_s(cost, own_ns), f"{' '.join(pair[1][:2])} {other}",
                         other_ns / own_ns])  # fmt: skip
    table("8 bits on a CPU", ["case", "variant", "us", "GB/s", "beside", "x as fast"], rows)


if __name__ == "__main__":
    main()
