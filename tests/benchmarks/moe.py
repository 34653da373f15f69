"""Products of experts of Qwen3-30B-A3B and Mixtral-8x7B on a GPU, in formats of weights.

Time, share of a plain read of as many bytes, gain over FP16, and PyTorch's grouped product of BF16 (which takes rows
that are sorted already) beside it.

    python tests/benchmarks/moe.py --batches 1 16 64 --csv moe.csv
"""

from __future__ import annotations

import argparse
import csv
from typing import Any

from common import gb_s, machine, measure, show, table
from gpu_peers import Peers
from narrow import read_ns

from bwprof import _core

# Experts and how many a token takes, N and K. A token's rows of down are as many tokens that take one expert each.
PRODUCTS = {
    "qwen3 gate up": (128, 8, 1536, 2048),
    "qwen3 down": (128, 8, 2048, 768),
    "mixtral gate up": (8, 2, 28672, 4096),
    "mixtral down": (8, 2, 4096, 14336),
}
PRECISIONS = ["fp16", "fp8_w8a16", "int4_g128"]


def params_of(name: str, batch: int) -> dict[str, int]:
    experts, top_k, n, k = PRODUCTS[name]
    sizes = {"experts": experts, "N": n, "K": k}
    active = _core.complete("moe_gemm", "fp16", {**sizes, "tokens": batch, "top_k": top_k})["active"]
    if name.endswith("down"):
        return {**sizes, "tokens": batch * top_k, "top_k": 1, "active": active}
    return {**sizes, "tokens": batch, "top_k": top_k, "active": active}


def peer_ns(device: _core.Device, params: dict[str, int], touched: int) -> float | None:
    """PyTorch's grouped product of the same rows an expert; None without PyTorch or its kernel."""
    try:
        import torch
    except ImportError:
        return None
    rows = params["tokens"] * params["top_k"]
    active, experts = params["active"], params["experts"]
    counts = [0] * experts
    for slot in range(active):
        counts[slot * experts // active] = rows // active + (slot < rows % active)

    def make_set() -> Any:
        ends = torch.tensor(counts, device="cuda").cumsum(0).to(torch.int32)
        a = torch.rand(rows, params["K"], dtype=torch.bfloat16, device="cuda")
        b = torch.rand(experts, params["N"], params["K"], dtype=torch.bfloat16, device="cuda").transpose(1, 2)
        return lambda: torch._grouped_mm(a, b, ends)

    return Peers(torch, device).time_or_why(make_set, touched)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--products", nargs="+", default=list(PRODUCTS), choices=list(PRODUCTS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64], metavar="TOKENS")
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--variant", help="instead of the default")
    parser.add_argument("--seconds", type=float, default=0.05, help="longest measurement of a case")
    parser.add_argument("--peer", action="store_true", help="also time PyTorch")
    parser.add_argument("--csv", help="also write the rows to this file")
    args = parser.parse_args()
    heads = ["product", "tokens", "experts", "format", "variant", "us", "GB/s", "% of a read", "x FP16", "x PyTorch"]
    rows: list[list[object]] = []
    with _core.Device(args.device) as device:
        show(machine(device))
        for name in args.products:
            for batch in args.batches:
                fp16 = peer = None
                params = params_of(name, batch)
                for precision in args.precisions:
                    options = {"max_seconds": args.seconds, "variant": args.variant}
                    result, cost, variant = measure(device, "moe_gemm", precision, params, **options)
                    time_ns = float(result["median_ns"])
                    if precision == "fp16":
                        fp16, touched = time_ns, cost["bytes_read"] + cost["bytes_written"]
                        peer = peer_ns(device, params, touched) if args.peer else None
                    read = read_ns(device, cost["bytes_read"], args.seconds)
                    figures = [time_ns / 1e3, gb_s(cost, time_ns), 100 * read / time_ns]
                    gains = [other / time_ns if other else "-" for other in (fp16, peer)]
                    rows.append([name, batch, params["active"], precision, variant, *figures, *gains])
    table("Experts in each format", heads, rows)
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([heads, *rows])


if __name__ == "__main__":
    main()
