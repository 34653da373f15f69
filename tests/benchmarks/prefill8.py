"""Prefill over caches in FP8 on a GPU, beside FP16: speed, and what rounding the factors costs.

The error is the root mean square of a result's distance from FP32 arithmetic on the same stored values (`padded`),
relative to the results'.

    python tests/benchmarks/prefill8.py --lengths 4096 16384
"""

from __future__ import annotations

import argparse

import numpy as np
from common import machine, measure, show, table

from bwprof import _core

HEADS = {
    128: {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
    64: {"num_heads": 14, "num_kv_heads": 2, "head_dim": 64},
}
KERNELS = {"fp16": "hopper", "fp8_e4m3": "hopper_fp8"}


def relative_error(device: _core.Device, precision: str, params: dict[str, int]) -> float:
    """Of a precision's kernel, in percent."""
    found = []
    for variant in (KERNELS[precision], "padded"):
        with _core.Case(device, "attention_prefill", precision, params, variant=variant) as case:
            found.append(np.frombuffer(case.run({})["out"], np.float16).astype(np.float64))
    return float(100 * np.sqrt(np.mean((found[0] - found[1]) ** 2) / np.mean(found[1] ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 16384], metavar="TOKENS")
    parser.add_argument("--seconds", type=float, default=0.3, help="longest measurement of a case")
    args = parser.parse_args()
    speeds: list[list[object]] = []
    errors: list[list[object]] = []
    with _core.Device("cuda") as device:
        show(machine(device))
        for heads in HEADS.values():
            for length in args.lengths:
                for causal in (0, 1):
                    params = {"batch": 1, "seq_len": length, **heads, "causal": causal}
                    fp16 = None
                    for precision, variant in KERNELS.items():
                        result, cost, _ = measure(
                            device, "attention_prefill", precision, params, variant=variant, max_seconds=args.seconds
                        )
                        time_ns = float(result["median_ns"])
                        fp16 = fp16 or time_ns
                        figures = (time_ns / 1e3, cost["flops"] / time_ns / 1e3, fp16 / time_ns)
                        name = f"{length} x {heads['num_heads']}/{heads['num_kv_heads']} x {heads['head_dim']}"
                        speeds.append([name, "causal" if causal else "full", precision, *figures])
            for keys in (256, 2048, 16384):
                few = {"batch": 1, "seq_len": 128, "kv_len": keys, **heads, "causal": 0}
                errors.append(
                    [f"{keys} keys x {heads['head_dim']}", *(relative_error(device, p, few) for p in KERNELS)]
                )
    table("Prefill", ["tokens and heads", "mask", "precision", "us", "TFLOP/s", "x FP16"], speeds)
    table("Error, % of the results' size", ["rows", *KERNELS], errors)


if __name__ == "__main__":
    main()
