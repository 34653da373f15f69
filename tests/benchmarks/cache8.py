"""KV caches of 8 bits on a GPU or a CPU, beside FP16's: decode, append, gather and copy.

Time, bandwidth, share of a stream of as many bytes (a read for decode, else a copy), and gain over FP16.

    python tests/benchmarks/cache8.py --device cuda --only decode copy
"""

from __future__ import annotations

import argparse

from common import gb_s, machine, measure, show, table

from bwprof import _core

PRECISIONS = ("fp16", "fp8_e4m3", "int8")
# batch, keys, heads, K/V heads, head_dim
DECODES = [
    (64, 8192, 32, 8, 128), (1, 32768, 32, 8, 128), (16, 8192, 28, 4, 128), (16, 8192, 64, 8, 64),
    (16, 8192, 64, 8, 128), (16, 8192, 32, 8, 256), (16, 8192, 32, 8, 96), (16, 8192, 64, 4, 128),
    (4, 2048, 32, 8, 128),
]  # fmt: skip
# batch, tokens (new ones of an append), K/V heads, head_dim, page_size
MOVES = [(64, 8192, 8, 128, 16), (16, 2048, 8, 64, 16), (1, 4096, 8, 128, 16)]


def cases(only: list[str], shapes: int) -> list[tuple[str, dict[str, int]]]:
    names = ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim")
    found = [("attention_decode", dict(zip(names, shape, strict=True))) for shape in DECODES[:shapes]]
    for batch, tokens, heads, head_dim, page in MOVES[:shapes]:
        of = {"batch": batch, "num_kv_heads": heads, "head_dim": head_dim}
        found += [("kv_append", of | {"seq_len": tokens, "kv_len": 0, "page_size": size}) for size in (0, page)]
        found += [("kv_gather", of | {"kv_len": tokens, "page_size": page, "dequantize": number}) for number in (0, 1)]
        found += [("kv_copy", of | {"kv_len": tokens})]
    return [case for case in found if case[0].split("_")[1] in only]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--only", nargs="+", default=["decode", "append", "gather", "copy"])
    parser.add_argument("--shapes", type=int, default=len(DECODES), help="how many of the shapes")
    parser.add_argument("--seconds", type=float, default=0.1, help="longest measurement of a case")
    args = parser.parse_args()
    rows: list[list[object]] = []
    with _core.Device(args.device) as device:
        show(machine(device))
        for operation, params in cases(args.only, args.shapes):
            fp16 = None
            for precision in PRECISIONS:
                result, cost, variant = measure(device, operation, precision, params, max_seconds=args.seconds)
                time_ns = float(result["median_ns"])
                fp16 = fp16 or time_ns
                stream, moved = ("stream_read", 4) if operation == "attention_decode" else ("stream_copy", 8)
                elements = {"elements": max(1, (cost["bytes_read"] + cost["bytes_written"]) // moved)}
                roof = float(measure(device, stream, "fp32", elements, max_seconds=args.seconds)[0]["median_ns"])
                name = f"{operation} {'x'.join(map(str, params.values()))}"
                rows.append(
                    [name, precision, variant, time_ns / 1e3, gb_s(cost, time_ns), 100 * roof / time_ns, fp16 / time_ns]
                )
    table("Caches of 8 bits", ["case", "cache", "variant", "us", "GB/s", "% of a stream", "x FP16"], rows)


if __name__ == "__main__":
    main()
