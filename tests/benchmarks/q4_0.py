"""Q4_0 on a GPU: gemm's variants, what repacking costs and when it has paid, and every format as FP16.

Time, bytes moved over the compulsory ones, share of a plain read, or copy, of as many bytes.

    python tests/benchmarks/q4_0.py
"""

from __future__ import annotations

import argparse

from common import machine, measure, show, table
from narrow import SHAPES, formats, read_ns

from bwprof import _core


def copy_ns(device: _core.Device, byte_count: int, seconds: float) -> float:
    """The time of a copy that reads and writes as many bytes in all."""
    elements = {"elements": max(1, byte_count // 8)}
    return float(measure(device, "stream_copy", "fp32", elements, max_seconds=seconds)[0]["median_ns"])


def compare_variants(device: _core.Device, m: int, n: int, k: int, seconds: float) -> None:
    times: dict[str, float] = {}
    rows: list[list[object]] = []
    params = {"M": m, "N": n, "K": k}
    for row in device.variants("gemm", "q4_0", params):
        if row["refuses"] or (m > 1 and row["name"] in ("strided", "per_block")):  # these take as long as they look
            continue
        result, cost, name = measure(device, "gemm", "q4_0", params, variant=row["name"], max_seconds=seconds)
        times[name] = float(result["median_ns"])
        moved, least = (sum(cost[f"{kind}bytes_{way}"] for way in ("read", "written")) for kind in ("algorithmic_", ""))
        share = 100 * read_ns(device, cost["bytes_read"], seconds) / times[name]
        kernels = device.kernels("gemm", "q4_0", params, name)
        used = [(kernel["registers"], kernel["resident_blocks"], kernel["local_bytes"]) for kernel in kernels]
        rows.append(
            [name, times[name] / 1e3, moved / least, share, *("+".join(map(str, x)) for x in zip(*used, strict=True))]
        )
    heads = ["variant", "us", "x bytes", "% of a read", "registers", "blocks an SM", "spilled"]
    table(f"gemm q4_0 {m}x{n}x{k}", heads, rows)
    if m > 1 or "repacked" not in times:
        return
    result, cost, _ = measure(device, "weight_repack", "q4_0", {"N": n, "K": k}, max_seconds=seconds)
    repack = float(result["median_ns"])
    share = 100 * copy_ns(device, cost["bytes_read"] + cost["bytes_written"], seconds) / repack
    show(f"repacking: {repack / 1e3:.4g} us, {share:.3g} % of a copy")
    for name in ("strided", "fused"):
        saved = times[name] - times["repacked"]
        show(f"it pays over {name} " + (f"after {repack / saved:.3g} tokens" if saved > 0 else "never"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], metavar="M")
    parser.add_argument("--shapes", type=int, default=2, help="how many of the shapes")
    parser.add_argument("--seconds", type=float, default=0.1, help="longest measurement of a case")
    args = parser.parse_args()
    with _core.Device("cuda") as device:
        show(machine(device))
        for n, k in SHAPES[: args.shapes]:
            for m in args.rows:
                compare_variants(device, m, n, k, args.seconds)
        rows: list[list[object]] = []
        for precision in formats()[1:]:
            params = dict(zip("NK", SHAPES[0], strict=True))
            result, cost, _ = measure(device, "weight_dequantize", precision, params, max_seconds=args.seconds)
            moved, time_ns = cost["bytes_read"] + cost["bytes_written"], float(result["median_ns"])
            share = 100 * copy_ns(device, moved, args.seconds) / time_ns
            rows.append([precision, time_ns / 1e3, moved / time_ns, share])
        table("weight_dequantize {}x{}".format(*SHAPES[0]), ["format", "us", "GB/s", "% of a copy"], rows)


if __name__ == "__main__":
    main()
