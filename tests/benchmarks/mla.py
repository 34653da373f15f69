"""mla_decode of DeepSeek's sizes on a GPU: time, rates, share of the nearer roof, and PyTorch's attention beside it.

The roofs are measured in the same run: a plain read of as many bytes, and a large product. PyTorch takes the heads as
the queries of one head, whose keys are the cache's rows and whose values are their first 512 elements.

    python tests/benchmarks/mla.py --batch 1 8 64 --kv-len 4096 16384 --heads 16 128 --csv mla.csv
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from typing import Any

from common import gb_s, machine, measure, show, table
from gpu_peers import Peers, dtype_of
from narrow import read_ns

from bwprof import _core

LATENT, ROPE = 512, 64
PRODUCT = {"M": 4096, "N": 14336, "K": 4096}
PEERS = ("EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")


def peer_ns(
    device: _core.Device, precision: str, batch: int, kv_len: int, heads: int, touched_bytes: int
) -> float | None:
    """The fastest of PyTorch's backends; None without PyTorch, or where none takes the case."""
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return None
    dtype, times = dtype_of(torch, precision), []
    for backend in (getattr(SDPBackend, name) for name in PEERS):

        def make_set(backend: Any = backend) -> Any:
            q = torch.rand(batch, 1, heads, LATENT + ROPE, device="cuda").to(dtype)
            cache = torch.rand(batch, 1, kv_len, LATENT + ROPE, device="cuda").to(dtype)

            def launch() -> object:
                with sdpa_kernel(backend):
                    attend = torch.nn.functional.scaled_dot_product_attention
                    return attend(q, cache, cache[..., :LATENT], scale=(LATENT / 4 + ROPE) ** -0.5)

            return launch

        times.append(Peers(torch, device).time_or_why(make_set, touched_bytes)[0])
    return min((time for time in times if time), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--kv-len", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--heads", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--precisions", nargs="+", default=["fp16", "bf16", "fp8_e4m3"])
    parser.add_argument("--no-peers", action="store_true", help="without PyTorch")
    parser.add_argument("--seconds", type=float, default=0.1, help="longest measurement of a case")
    parser.add_argument("--csv", help="also write the rows to this file")
    args = parser.parse_args()
    heads = ["batch x keys, heads", "precision", "variant", "us", "GB/s", "TFLOP/s", "% of roof", "roof", "x PyTorch"]
    rows: list[list[object]] = []
    with _core.Device("cuda") as device:
        show(machine(device))
        result, cost, _ = measure(device, "gemm", "fp16", PRODUCT, max_seconds=args.seconds)
        flops_a_ns = cost["flops"] / result["median_ns"]
        show(f"a large product: {flops_a_ns / 1e3:.0f} TFLOP/s")
        for batch, kv_len, count in product(args.batch, args.kv_len, args.heads):
            params = {"batch": batch, "kv_len": kv_len, "num_heads": count, "latent_dim": LATENT, "rope_dim": ROPE}
            for precision in args.precisions:
                result, cost, variant = measure(device, "mla_decode", precision, params, max_seconds=args.seconds)
                ns = float(result["median_ns"])
                read, compute = read_ns(device, cost["bytes_read"], args.seconds), cost["flops"] / flops_a_ns
                peer = None
                if not args.no_peers and precision in ("fp16", "bf16"):
                    peer = peer_ns(device, precision, batch, kv_len, count, cost["bytes_read"] + cost["bytes_written"])
                rates = [gb_s(cost, ns), cost["flops"] / ns / 1e3, 100 * max(read, compute) / ns]
                roof = "memory" if read > compute else "compute"
                label = f"{batch} x {kv_len}, {count}"
                rows.append([label, precision, variant, ns / 1e3, *rates, roof, peer / ns if peer else ""])
    table("mla_decode", heads, rows)
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([heads, *rows])


if __name__ == "__main__":
    main()
