"""Our CPU gemm against NumPy's OpenBLAS, and the decode GEMV against the read stream.

Both sides multiply the same shapes with the same number of threads, again and again on the same arrays (hot); NumPy's
are FP32. The GEMV of a decode step is bound by memory: it is held against stream_read over the same bytes, both cold.

    python tests/benchmarks/gemm.py --shapes 32x896x896 256x2048x2048
"""

from __future__ import annotations

import argparse
import os

SHAPES = ["1x896x896", "32x896x896", "128x896x896", "128x4864x896", "16x4096x4096", "512x2048x2048"]


def gemm_rows(device: object, shapes: list[str], seconds: float) -> list[list[object]]:
    import numpy as np
    from common import measure, seconds_of

    rows: list[list[object]] = []
    for shape in shapes:
        m, n, k = (int(word) for word in shape.split("x"))
        rng = np.random.default_rng(1)
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k), np.float32)
        out = np.empty((m, n), np.float32)
        median, best = seconds_of(lambda: np.matmul(a, b.T, out=out), seconds)  # noqa: B023
        for precision in ("fp32", "fp16", "bf16"):
            ours, cost, variant = measure(
                device, "gemm", precision, {"M": m, "N": n, "K": k}, cache="hot", max_seconds=seconds
            )
            rate = cost["flops"] / ours["median_ns"]
            blas = cost["flops"] / (median * 1e9)
            row = [shape, precision, variant, rate, blas, median * 1e9 / ours["median_ns"], best * 1e9 / ours["min_ns"]]
            rows.append(row)
    return rows


def gemv_rows(device: object, seconds: float) -> list[list[object]]:
    from common import gb_s, measure

    rows: list[list[object]] = []
    for n, k in ((896, 896), (4096, 4096), (14336, 4096)):
        ours, cost, variant = measure(device, "gemm", "fp32", {"M": 1, "N": n, "K": k}, max_seconds=seconds)
        read, read_cost, _ = measure(device, "stream_read", "fp32", {"elements": n * k}, max_seconds=seconds)
        rate, roof = gb_s(cost, ours["median_ns"]), gb_s(read_cost, read["median_ns"])
        best = gb_s(cost, ours["min_ns"]) / gb_s(read_cost, read["min_ns"])
        rows.append([f"1x{n}x{k}", variant, rate, roof, rate / roof, best])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="MxNxK", help="default: " + " ".join(SHAPES))
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each side of each shape (default: 0.5)")
    options = parser.parse_args()
    from bwprof import _core

    with _core.Device("cpu") as device:
        os.environ["OPENBLAS_NUM_THREADS"] = str(device.facts()["units"])  # before NumPy is loaded
        from common import machine, show, table

        show(machine(device))
        rows = gemm_rows(device, options.shapes, options.seconds)
        heads = ["M x N x K", "precision", "variant", "ours GFLOP/s", "OpenBLAS FP32", "ours / BLAS", "best"]
        table("Ratios above 1: ours is faster", heads, rows)
        heads = ["GEMV", "variant", "ours GB/s", "stream_read", "ours / read", "best"]
        table("FP32, cold", heads, gemv_rows(device, options.seconds))


if __name__ == "__main__":
    main()
