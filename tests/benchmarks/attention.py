"""Our CPU prefill attention (flash and unfused) against the rate of OpenBLAS's sgemm.

Attention is two matrix products and a softmax: its FLOP rate (causal pairs only are counted) is held against that of a
plain product by NumPy in FP32 with the same number of threads, in the same run. Decode attention, which is bound by
memory, is held against stream_read over the bytes of its cache, both cold.

    python tests/benchmarks/attention.py --seconds 1
"""

from __future__ import annotations

import argparse
import os

PREFILLS = [(1, 512, 14, 2, 64, 1), (1, 1024, 8, 8, 128, 1), (1, 1024, 8, 2, 128, 0), (2, 333, 7, 1, 80, 1)]
DECODES = [(1, 4096, 14, 2, 64), (8, 4096, 14, 2, 64), (1, 32768, 32, 8, 128)]


def prefill_rows(device: object, blas: float, seconds: float) -> list[list[object]]:
    from common import measure

    from bwprof import _core

    offered = next(op for op in _core.operations() if op["name"] == "attention_prefill")["variants"]["cpu"]
    names = ("batch", "seq_len", "num_heads", "num_kv_heads", "head_dim", "causal")
    rows: list[list[object]] = []
    for values in PREFILLS:
        for precision in ("fp32", "fp16"):
            for variant in (row["name"] for row in offered):
                params = dict(zip(names, values, strict=True))
                ours, cost, _ = measure(
                    device, "attention_prefill", precision, params, cache="hot", max_seconds=seconds, variant=variant
                )
                rate = cost["flops"] / ours["median_ns"]
                rows.append([" ".join(map(str, values)), precision, variant, rate, blas, rate / blas])
    return rows


def decode_rows(device: object, seconds: float) -> list[list[object]]:
    from common import gb_s, measure

    names = ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim")
    rows: list[list[object]] = []
    for values in DECODES:
        ours, cost, variant = measure(
            device, "attention_decode", "fp16", dict(zip(names, values, strict=True)), max_seconds=seconds
        )
        elements = cost["bytes_read"] // 2
        read, read_cost, _ = measure(device, "stream_read", "fp16", {"elements": elements}, max_seconds=seconds)
        rate, roof = gb_s(cost, ours["median_ns"]), gb_s(read_cost, read["median_ns"])
        rows.append([" ".join(map(str, values)), variant, rate, roof, rate / roof])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each row (default: 0.5)")
    options = parser.parse_args()
    from bwprof import _core

    with _core.Device("cpu") as device:
        os.environ["OPENBLAS_NUM_THREADS"] = str(device.facts()["units"])  # before NumPy is loaded
        import numpy as np
        from common import machine, seconds_of, show, table

        show(machine(device))
        rng = np.random.default_rng(1)
        a, b = rng.standard_normal((1024, 2048), np.float32), rng.standard_normal((2048, 2048), np.float32)
        blas = 2 * 1024 * 2048 * 2048 / seconds_of(lambda: a @ b, options.seconds)[0] / 1e9
        heads = ["batch seq H G D causal", "precision", "variant", "GFLOP/s", "OpenBLAS sgemm", "ours / BLAS"]
        table("Prefill, hot; OpenBLAS at 1024x2048x2048", heads, prefill_rows(device, blas, options.seconds))
        heads = ["batch L H G D", "variant", "ours GB/s", "stream_read", "ours / read"]
        table("Decode, FP16, cold", heads, decode_rows(device, options.seconds))


if __name__ == "__main__":
    main()
