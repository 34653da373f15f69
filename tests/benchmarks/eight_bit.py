"""Products of activations and weights of eight bits on a GPU: every variant that takes a shape, beside PyTorch's
_int_mm and _scaled_mm (scales of rows, one for each operand, and those of blocks).

Time, GB/s, TFLOP/s, share of the roof (the longer of a plain read of as many bytes and the arithmetic at twice FP16's
peak), gain over FP16's default variant, and over PyTorch.

    python tests/benchmarks/eight_bit.py --rows 1 16 128 4096 --csv eight_bit.csv
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable
from typing import Any

from common import gb_s, machine, measure, show, table
from gpu_peers import Peers
from narrow import read_ns

from bwprof import _core

PRECISIONS = ("fp8_e4m3", "fp8_tensor", "fp8_block", "int8")


def peer_sets(torch: Any, precision: str, m: int, n: int, k: int) -> dict[str, Callable[[], Callable[[], object]]]:
    """Buffer sets of what PyTorch has, by name."""

    def whole() -> Callable[[], object]:
        a, b = (torch.randint(-128, 128, (rows, k), dtype=torch.int8, device="cuda") for rows in (m, n))
        out = torch.empty(m, n, dtype=torch.int32, device="cuda")
        return lambda: torch._int_mm(a, b.t(), out=out)

    def scaled(by_rows: bool, dtype: Any) -> Callable[[], object]:
        a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
        a_scale = torch.rand((m, 1) if by_rows else (), device="cuda")
        b_scale = torch.rand((1, n) if by_rows else (), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=dtype)

    def blocks() -> Callable[[], object]:
        a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
        a_scale = torch.rand(k // 128, m, device="cuda").t()
        b_scale = torch.rand(n // 128, k // 128, device="cuda").t()
        return lambda: torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16)

    return {
        "int8": {"_int_mm": whole},
        "fp8_e4m3": {"by rows": lambda: scaled(True, torch.bfloat16)},  # it writes no FP16
        "fp8_tensor": {"whole": lambda: scaled(False, torch.float16)},
        "fp8_block": {"blocks": blocks},
    }[precision]


def case_rows(peers: Peers, m: int, n: int, k: int, seconds: float) -> list[list[object]]:
    """A row for each variant of each precision."""
    device, params, rows = peers.device, {"M": m, "N": n, "K": k}, []
    fp16 = float(measure(device, "gemm", "fp16", params, max_seconds=seconds)[0]["median_ns"])
    for precision in PRECISIONS:
        roof = 0.0
        touched = m * k + n * k + 2 * m * n
        found = {
            name: peers.time_or_why(make, touched)[0] or math.nan
            for name, make in peer_sets(peers.torch, precision, m, n, k).items()
        }
        for variant in device.variants("gemm", precision, params):
            if variant["refuses"] or variant["name"] == "coalesced":
                continue
            result, cost, name = measure(
                device, "gemm", precision, params, variant=variant["name"], max_seconds=seconds
            )
            time_ns, peak = float(result["median_ns"]), 2 * device.facts()["peak_tflops"]["fp16"]
            moved = cost["bytes_read"] + cost["bytes_written"]
            roof = roof or max(read_ns(device, moved, seconds), cost["flops"] / peak / 1e3)
            figures = (time_ns / 1e3, gb_s(cost, time_ns), cost["flops"] / time_ns / 1e3, 100 * roof / time_ns)
            mark = " *" if variant["default"] else ""
            versus = ", ".join(f"{peer}: {ns / time_ns:.3g}" for peer, ns in found.items())
            rows.append([f"{m}x{n}x{k}", precision, name + mark, *figures, fp16 / time_ns, versus])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128, 4096], metavar="M")
    parser.add_argument("--shape", type=int, nargs=2, default=(14336, 4096), metavar=("N", "K"))
    parser.add_argument("--seconds", type=float, default=0.1, help="longest measurement of a case")
    parser.add_argument("--csv", help="also write the rows to this file")
    args = parser.parse_args()
    import torch

    heads = ["product", "precision", "variant", "us", "GB/s", "TFLOP/s", "% of roof", "x FP16", "x PyTorch's"]
    with _core.Device("cuda") as device, torch.no_grad():
        show(f"{machine(device)}; PyTorch {torch.__version__}; * the default")
        peers = Peers(torch, device)
        rows = [row for m in args.rows for row in case_rows(peers, m, *args.shape, args.seconds)]
    table("Products of eight bits", heads, rows)
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([heads, *rows])


if __name__ == "__main__":
    main()
