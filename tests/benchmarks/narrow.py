"""Products with weights in each format, on a GPU or a CPU.

Time, share of a plain read of as many bytes, gain over FP16, and PyTorch's 4-bit product (groups of 128, BF16) beside
int4_g128 where there is one.

    python tests/benchmarks/narrow.py --device cuda --rows 1 2 4 8 --csv narrow.csv
"""

from __future__ import annotations

import argparse
import csv
from typing import Any

from common import gb_s, machine, measure, show, table
from gpu_peers import Peers

from bwprof import _core, registry

SHAPES = [(14336, 4096), (4096, 14336), (4096, 4096), (128256, 4096)]  # N, K: of Llama-3.1-8B
PEER = "int4_g128"


def formats() -> list[str]:
    """FP16, then the precisions whose weights alone are narrow."""
    roles = {row["name"]: registry.precision_types(row["name"]) for row in _core.precisions()}
    narrow = [
        name
        for name, kinds in roles.items()
        if "weight" in kinds and kinds["weight"]["narrow"] and not kinds["activation"]["narrow"]
    ]
    return ["fp16", *narrow]


def read_ns(device: _core.Device, byte_count: int, seconds: float) -> float:
    """The time of a plain read of as many bytes."""
    elements = {"elements": max(1, byte_count // 4)}
    return float(measure(device, "stream_read", "fp32", elements, max_seconds=seconds)[0]["median_ns"])


def peer_ns(device: _core.Device, m: int, n: int, k: int) -> float | None:
    """PyTorch's product of packed 4-bit weights; None without PyTorch or its kernel."""
    try:
        import torch
    except ImportError:
        return None

    def make_set() -> Any:
        stored = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        packed = torch.ops.aten._convert_weight_to_int4pack(stored, 8)
        scales = torch.rand(k // 128, n, 2, dtype=torch.bfloat16, device="cuda")
        a = torch.rand(m, k, dtype=torch.bfloat16, device="cuda")
        return lambda: torch.ops.aten._weight_int4pack_mm(a, packed, 128, scales)

    return Peers(torch, device).time_or_why(make_set, n * k // 2)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], metavar="M")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="how many of the shapes")
    parser.add_argument("--seconds", type=float, default=0.1, help="longest measurement of a case")
    parser.add_argument("--csv", help="also write the rows to this file")
    args = parser.parse_args()
    heads = ["product", "format", "variant", "us", "GB/s", "% of a read", "x FP16", "x PyTorch"]
    rows: list[list[object]] = []
    with _core.Device(args.device) as device:
        show(machine(device))
        for n, k in SHAPES[: args.shapes]:
            for m in args.rows:
                fp16 = None
                for precision in formats():
                    params = {"M": m, "N": n, "K": k}
                    result, cost, variant = measure(device, "gemm", precision, params, max_seconds=args.seconds)
                    time_ns = float(result["median_ns"])
                    fp16 = fp16 or time_ns
                    read = read_ns(device, cost["bytes_read"], args.seconds)
                    peer = peer_ns(device, m, n, k) if precision == PEER and args.device == "cuda" else None
                    figures = (time_ns / 1e3, gb_s(cost, time_ns), 100 * read / time_ns, fp16 / time_ns)
                    rows.append([f"{m}x{n}x{k}", precision, variant, *figures, peer / time_ns if peer else "-"])
    table("Weights in each format", heads, rows)
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([heads, *rows])


if __name__ == "__main__":
    main()
