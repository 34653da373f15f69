"""Formats narrower than FP16 beside FP16 and PyTorch: products, caches, prefill, experts, mla_decode, Q4_0's variants.

Time, GB/s, TFLOP/s, share of the nearer roof, gain over FP16 and over PyTorch. The roofs are measured in the same run:
a plain read (a copy, where much is written) of as many bytes, and a large product of the same types.

    python tests/benchmarks/narrow.py --device cuda --only weights experts --rows 1 8 16 --csv narrow.csv
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from common import gb_s, machine, measure, show, show_row, table
from gpu_peers import Peers

from bwprof import _core, registry

Params = dict[str, int]
Sets = list[Callable[[], Callable[[], object]]]  # each makes a buffer set of PyTorch's and returns its launch

HEADS = ["case", "precision", "variant", "us", "GB/s", "TFLOP/s", "% of roof", "roof", "x FP16", "x PyTorch"]
WIDTHS = [40, 10, 9, 7, 6, 7, 9, 7, 6, 9]
SHAPES = [(14336, 4096), (4096, 14336), (4096, 4096), (128256, 4096)]  # N, K: of Llama-3.1-8B
# batch, keys, heads, K/V heads, head_dim
DECODES = [
    (64, 8192, 32, 8, 128), (1, 32768, 32, 8, 128), (16, 8192, 28, 4, 128), (16, 8192, 64, 8, 64),
    (16, 8192, 64, 8, 128), (16, 8192, 32, 8, 256), (16, 8192, 32, 8, 96), (16, 8192, 64, 4, 128),
    (4, 2048, 32, 8, 128),
]  # fmt: skip
# batch, tokens (new ones of an append), K/V heads, head_dim, page_size
MOVES = [(64, 8192, 8, 128, 16), (16, 2048, 8, 64, 16), (1, 4096, 8, 128, 16)]
PREFILL_HEADS = [(32, 8, 128), (14, 2, 64)]
# Experts and how many a token takes, N and K. A token's rows of down are as many tokens that take one expert each.
EXPERTS = {
    "qwen3 gate up": (128, 8, 1536, 2048),
    "qwen3 down": (128, 8, 2048, 768),
    "mixtral gate up": (8, 2, 28672, 4096),
    "mixtral down": (8, 2, 4096, 14336),
}
# Batch, keys and heads.
LATENT = [
    (64, 4096, 128), (8, 4096, 16), (1, 16384, 128), (64, 4096, 16), (8, 4096, 128), (1, 4096, 16), (1, 4096, 128),
    (8, 16384, 128), (64, 16384, 128),
]  # fmt: skip
MLA = {"latent_dim": 512, "rope_dim": 64}
CACHES = ["fp16", "fp8_e4m3", "int8"]
SLOW = ("naive", "coalesced", "strided", "per_block")  # a measurement of many rows takes minutes
PRECISIONS = {row["name"]: row for row in _core.precisions()}


def formats() -> list[str]:
    """Precisions whose weights alone are narrow."""
    roles = {name: registry.precision_types(name) for name in PRECISIONS}
    weights = {name: kinds for name, kinds in roles.items() if "weight" in kinds}
    return [name for name, kinds in weights.items() if kinds["weight"]["narrow"] and not kinds["activation"]["narrow"]]


# ---- PyTorch's side ----


def matmul_peers(torch: Any, precision: str, params: Params) -> Sets:
    m, n, k = params["M"], params["N"], params["K"]

    def packed() -> Callable[[], object]:
        stored = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        weights = torch.ops.aten._convert_weight_to_int4pack(stored, 8)
        scales = torch.rand(k // 128, n, 2, dtype=torch.bfloat16, device="cuda")
        a = torch.rand(m, k, dtype=torch.bfloat16, device="cuda")
        return lambda: torch.ops.aten._weight_int4pack_mm(a, weights, 128, scales)

    def whole() -> Callable[[], object]:
        a, b = (torch.randint(-128, 128, (rows, k), dtype=torch.int8, device="cuda") for rows in (m, n))
        out = torch.empty(m, n, dtype=torch.int32, device="cuda")
        return lambda: torch._int_mm(a, b.t(), out=out)

    def scaled(a_scales: tuple[int, ...], b_scales: tuple[int, ...], dtype: Any) -> Callable[[], object]:
        a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
        a_scale, b_scale = torch.rand(a_scales, device="cuda"), torch.rand(b_scales, device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=dtype)

    def blocks() -> Callable[[], object]:
        a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
        a_scale, b_scale = (torch.rand(shape, device="cuda").t() for shape in ((k // 128, m), (n // 128, k // 128)))
        return lambda: torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16)

    return {
        "int4_g128": [packed],
        "int4_g128_bf16": [packed],
        "int8": [whole],
        "fp8_e4m3": [lambda: scaled((m, 1), (1, n), torch.bfloat16)],  # it writes no FP16
        "fp8_tensor": [lambda: scaled((), (), torch.float16)],
        "fp8_block": [blocks],
    }.get(precision, [])


def experts_peers(torch: Any, precision: str, params: Params) -> Sets:
    """A grouped product of BF16, of rows that are sorted already."""
    rows, active, experts = params["tokens"] * params["top_k"], params["active"], params["experts"]
    counts = [0] * experts
    for slot in range(active):
        counts[slot * experts // active] = rows // active + (slot < rows % active)

    def grouped() -> Callable[[], object]:
        ends = torch.tensor(counts, device="cuda").cumsum(0).to(torch.int32)
        a = torch.rand(rows, params["K"], dtype=torch.bfloat16, device="cuda")
        b = torch.rand(experts, params["N"], params["K"], dtype=torch.bfloat16, device="cuda").transpose(1, 2)
        return lambda: torch._grouped_mm(a, b, ends)

    return [grouped] if precision == "fp16" else []


def mla_peers(torch: Any, precision: str, params: Params) -> Sets:
    """The heads as the queries of one head, whose keys are the cache's rows, and values their first elements."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    latent, rope = params["latent_dim"], params["rope_dim"]

    def attention(backend: Any) -> Callable[[], object]:
        shape = (params["batch"], 1, params["num_heads"], latent + rope)
        q = torch.rand(*shape, dtype=torch.float16, device="cuda")
        cache = torch.rand(shape[0], 1, params["kv_len"], shape[3], dtype=torch.float16, device="cuda")

        def launch() -> object:
            with sdpa_kernel(backend):
                attend = torch.nn.functional.scaled_dot_product_attention
                return attend(q, cache, cache[..., :latent], scale=(latent / 4 + rope) ** -0.5)

        return launch

    backends = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
    return [partial(attention, one) for one in backends] if precision == "fp16" else []


PEERS = {"gemm": matmul_peers, "moe_gemm": experts_peers, "mla_decode": mla_peers}


# ---- ours ----


class Bench:
    """Measures cases, prints and collects their rows."""

    def __init__(self, device: _core.Device, seconds: float, peers: Peers | None, large: int) -> None:
        self.device, self.seconds, self.peers = device, seconds, peers
        self.large = large  # M, N and K of a product that memory does not hold up
        self.rates: dict[str, float] = {}
        self.rows: list[list[object]] = []

    def measure(self, *case: Any, **options: Any) -> tuple[float, dict[str, int], str]:
        result, cost, variant = measure(self.device, *case, max_seconds=self.seconds, **options)
        return float(result["median_ns"]), cost, variant

    def stream_ns(self, cost: dict[str, int]) -> float:
        """The time of a plain read of as many bytes, or of a copy."""
        read, written = cost["bytes_read"], cost["bytes_written"]
        operation, each = ("stream_copy", 8) if 4 * written > read else ("stream_read", 4)
        return self.measure(operation, "fp32", {"elements": max(1, (read + written) // each)})[0]

    def flops_a_ns(self, operation: str, precision: str) -> float:
        """Of a large product in the types that the precision multiplies in; decode widens caches of 8 bits."""
        compute = "fp16" if operation.endswith("decode") else PRECISIONS[precision]["compute"]
        if compute not in self.rates:
            ns, cost, _ = self.measure("gemm", compute, {"M": self.large, "N": self.large, "K": self.large})
            self.rates[compute] = cost["flops"] / ns
        return self.rates[compute]

    def peer_ns(self, operation: str, precision: str, params: Params, cost: dict[str, int]) -> float | None:
        """The time of the fastest that PyTorch has; None without one."""
        if self.peers is None or operation not in PEERS:
            return None
        touched = cost["bytes_read"] + cost["bytes_written"]
        sets = PEERS[operation](self.peers.torch, precision, params)
        times = [self.peers.time_or_why(make, touched, self.seconds)[0] for make in sets]
        return min((time for time in times if time), default=None)

    def add(self, operation: str, params: Params, precisions: Sequence[str], *, every_variant: bool = False) -> None:
        """A row for each precision, or for each of its variants; FP16, with which others are compared, is the first."""
        fp16 = self.measure(operation, "fp16", params)[0] if precisions[0] == "fp16" else None
        label = f"{operation} {'x'.join(map(str, params.values()))}"
        for precision in precisions:
            found = self.device.variants(operation, precision, params) if every_variant and precision != "fp16" else []
            names = [
                row["name"] for row in found if not row["refuses"] and (params.get("M") == 1 or row["name"] not in SLOW)
            ] or [None]
            measured = [self.measure(operation, precision, params, variant=name) for name in names]
            cost = measured[0][1]
            memory, compute = self.stream_ns(cost), cost["flops"] / self.flops_a_ns(operation, precision)
            peer = self.peer_ns(operation, precision, params, cost)
            for ns, _, variant in measured:
                rates = [gb_s(cost, ns), cost["flops"] / ns / 1e3, 100 * max(memory, compute) / ns]
                roof = "memory" if memory > compute else "compute"
                gains = [other / ns if other else "" for other in (fp16, peer)]
                self.rows.append([label, precision, variant, ns / 1e3, *rates, roof, *gains])
                show_row(self.rows[-1], WIDTHS)


# ---- sections ----


def measure_weights(bench: Bench, rows: list[int], shapes: int) -> None:
    for (n, k), m in product(SHAPES[:shapes], rows):
        bench.add("gemm", {"M": m, "N": n, "K": k}, ["fp16", *formats()])


def measure_eight(bench: Bench, rows: list[int], shapes: int) -> None:
    """Activations and weights of eight bits: every variant."""
    eight = [name for name, row in PRECISIONS.items() if row["activation_scales"]]
    for (n, k), m in product(SHAPES[: min(shapes, 1)], rows):
        bench.add("gemm", {"M": m, "N": n, "K": k}, ["fp16", *eight], every_variant=True)


def measure_q4_0(bench: Bench, rows: list[int], shapes: int) -> None:
    """Its variants; then what repacking it takes, and every format as FP16."""
    for (n, k), m in product(SHAPES[: min(shapes, 2)], rows):
        bench.add("gemm", {"M": m, "N": n, "K": k}, ["q4_0"], every_variant=True)
    for n, k in SHAPES[: min(shapes, 2)]:
        bench.add("weight_repack", {"N": n, "K": k}, ["q4_0"])
        bench.add("weight_dequantize", {"N": n, "K": k}, formats())


def measure_caches(bench: Bench, rows: list[int], shapes: int) -> None:
    names = ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim")
    for shape in DECODES[:shapes]:
        bench.add("attention_decode", dict(zip(names, shape, strict=True)), CACHES)
    for batch, tokens, heads, head_dim, page in MOVES[:shapes]:
        of = {"batch": batch, "num_kv_heads": heads, "head_dim": head_dim}
        for size in (0, page):
            bench.add("kv_append", of | {"seq_len": tokens, "kv_len": 0, "page_size": size}, CACHES)
        for dequantize in (0, 1):
            bench.add("kv_gather", of | {"kv_len": tokens, "page_size": page, "dequantize": dequantize}, CACHES)
        bench.add("kv_copy", of | {"kv_len": tokens}, CACHES)


def measure_prefill(bench: Bench, rows: list[int], shapes: int) -> None:
    for (heads, kv_heads, head_dim), length, causal in product(PREFILL_HEADS, (4096, 16384), (0, 1)):
        of = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": head_dim, "causal": causal}
        bench.add("attention_prefill", {"batch": 1, "seq_len": length, **of}, ["fp16", "fp8_e4m3"])


def measure_experts(bench: Bench, rows: list[int], shapes: int) -> None:
    for (name, (experts, top_k, n, k)), tokens in product(EXPERTS.items(), (1, 4, 16, 64)):
        params = {"tokens": tokens, "experts": experts, "top_k": top_k, "N": n, "K": k}
        params["active"] = _core.complete("moe_gemm", "fp16", params)["active"]
        if name.endswith("down"):
            params |= {"tokens": tokens * top_k, "top_k": 1}
        bench.add("moe_gemm", params, ["fp16", "fp8_w8a16", "fp8_e4m3", "fp8_block", "int8", "int4_g128"])


def measure_mla(bench: Bench, rows: list[int], shapes: int) -> None:
    for batch, keys, heads in LATENT[:shapes]:
        bench.add("mla_decode", {"batch": batch, "kv_len": keys, "num_heads": heads, **MLA}, CACHES[:2])


SECTIONS = {
    name.removeprefix("measure_"): section for name, section in globals().items() if name.startswith("measure_")
}


def prefill_error(device: _core.Device, precision: str, head_dim: int, keys: int) -> float:
    """The root mean square of the default variant's distance from FP32 arithmetic on the same stored values
    (`padded`), in percent of the results'."""
    params = {"batch": 1, "seq_len": 128, "kv_len": keys, "num_heads": 8, "num_kv_heads": 2, "head_dim": head_dim}
    found = []
    for variant in (None, "padded"):
        with _core.Case(device, "attention_prefill", precision, params | {"causal": 0}, variant=variant) as case:
            found.append(np.frombuffer(case.run({})["out"], np.float16).astype(np.float64))
    return float(100 * np.sqrt(np.mean((found[0] - found[1]) ** 2) / np.mean(found[1] ** 2)))


def make_peers(device: _core.Device) -> Peers | None:
    """PyTorch's side, where it is installed."""
    try:
        import torch
    except ImportError:
        return None
    return Peers(torch, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16], metavar="M", help="of products")
    parser.add_argument("--shapes", type=int, default=len(DECODES), help="how many of a section's shapes")
    parser.add_argument("--seconds", type=float, default=0.05, help="longest measurement of a case")
    parser.add_argument("--no-peers", action="store_true", help="without PyTorch")
    parser.add_argument("--csv", help="also write the rows to this file")
    args = parser.parse_args()
    everything: list[list[object]] = []
    with _core.Device(args.device) as device:
        show(machine(device))
        on_gpu = args.device == "cuda"
        peers = make_peers(device) if on_gpu and not args.no_peers else None
        bench = Bench(device, args.seconds, peers, large=4096 if on_gpu else 512)
        for name in args.only:
            bench.rows = []
            show(f"\n{name}")
            show_row(HEADS, WIDTHS)
            SECTIONS[name](bench, args.rows, args.shapes)
            everything += bench.rows
            if name == "prefill" and on_gpu:
                shapes = list(product((64, 128), (256, 2048, 16384)))
                errors = [
                    [f"{keys} keys x {d}", *(prefill_error(device, p, d, keys) for p in CACHES[:2])]
                    for d, keys in shapes
                ]
                table("error of prefill, % of the results' size", ["rows", *CACHES[:2]], errors)
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([HEADS, *everything])


if __name__ == "__main__":
    main()
