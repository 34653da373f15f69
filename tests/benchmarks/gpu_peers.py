"""Our GPU kernels against PyTorch's: gemm against torch.matmul, attention against every backend of
scaled_dot_product_attention that takes the case, kv_gather against index_select, kv_copy and stream_copy against copy_.

Both sides are timed by the same code on the same stream: a CUDA graph of many launches that walks over rotating buffer
sets worth four times the L2, between two events on a stream that is held back meanwhile; the same warm-up and the same
stop rule. Needs PyTorch with CUDA; no network.

    python tests/benchmarks/gpu_peers.py --only gemm decode --csv peers.csv
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from common import gb_s, machine, measure, show, table

from bwprof import _core
from bwprof.measuring.callables import do_nothing_with

GEMMS = [
    (1, 896, 896), (32, 896, 896), (128, 896, 896), (128, 4864, 896), (1, 14336, 4096), (16, 14336, 4096),
    (1, 28672, 8192), (4096, 14336, 4096),
]  # fmt: skip
DECODES = [
    (1, 4096, 14, 2, 64), (1, 32768, 32, 8, 128), (16, 8192, 32, 8, 128), (64, 8192, 32, 8, 128), (4, 4096, 64, 2, 128),
    (16, 8192, 64, 2, 128),
]  # fmt: skip
PREFILLS = [(1, 512, 14, 2, 64), (1, 2048, 14, 2, 64), (1, 4096, 32, 8, 128), (4, 4096, 32, 8, 128)]
SETS_MOST = 2048
COLD_CACHE_FACTOR = 4


class Peers:
    """PyTorch's side: sets of tensors, and our own timer around its calls, on our own stream."""

    def __init__(self, torch: Any, device: _core.Device) -> None:
        self.torch = torch
        self.device = device
        self.cache_bytes = device.facts()["cache_bytes"]

    def time_ns(
        self, make_set: Callable[[], Callable[[], object]], touched_bytes: int, max_seconds: float = 2.0
    ) -> float:
        """make_set allocates one buffer set and returns its launch."""
        torch = self.torch
        sets = min(SETS_MOST, max(1, -(-COLD_CACHE_FACTOR * self.cache_bytes // touched_bytes)))
        with torch.cuda.stream(torch.cuda.ExternalStream(self.device.stream)):
            launches = [make_set() for _ in range(sets)]
            result = self.device.measure_call(
                lambda number: launches[number](),
                do_nothing_with,
                stream=self.device.stream,
                sets=sets,
                footprint_bytes=touched_bytes,
                timer="graph",
                max_seconds=max_seconds,
            )
        launches.clear()
        torch.cuda.empty_cache()
        if not result["cold"]:
            raise RuntimeError(f"not cold: {result['cache_note']}")
        return float(result["median_ns"])

    def time_or_why(
        self, make_set: Callable[[], Callable[[], object]], touched_bytes: int, max_seconds: float = 2.0
    ) -> tuple[float | None, str]:
        """The time, or why there is none: not for this type, head or group; out of memory; what no graph captures.

        An exception holds the frames that it went through, and they the tensors: the memory is given back when it and
        its frames are gone, before anybody measures again."""
        try:
            return self.time_ns(make_set, touched_bytes, max_seconds), ""
        except (RuntimeError, TypeError, ValueError, _core.UnavailableError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0][:100]
            failure: BaseException | None = error
            while failure is not None:
                traceback.clear_frames(failure.__traceback__)
                failure = failure.__cause__ or failure.__context__
        gc.collect()  # what refers to itself in a circle
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
        return None, why


def dtype_of(torch: Any, precision: str) -> Any:
    return {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]


def versus(ours: dict[str, Any], cost: dict[str, int], peer_ns: float) -> list[object]:
    ns = ours["median_ns"]
    return [ns / 1e3, peer_ns / 1e3, gb_s(cost, ns), cost["flops"] / ns / 1e3, peer_ns / ns]


def gemm_rows(peers: Peers, device: _core.Device) -> list[list[object]]:
    torch, rows = peers.torch, []
    for m, n, k in GEMMS:
        for precision in ("fp32", "tf32", "fp16", "bf16"):
            ours, cost, variant = measure(device, "gemm", precision, {"M": m, "N": n, "K": k})
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            dtype = dtype_of(torch, precision)

            def make_set(shape: tuple[int, int, int] = (m, n, k), dtype: Any = dtype) -> Callable[[], object]:
                a = torch.rand(shape[0], shape[2], device="cuda").mul_(2).sub_(1).to(dtype)
                b = torch.rand(shape[1], shape[2], device="cuda").mul_(2).sub_(1).to(dtype)
                out = torch.empty(shape[0], shape[1], device="cuda", dtype=dtype)
                return lambda: torch.matmul(a, b.t(), out=out)

            peer = peers.time_ns(make_set, cost["bytes_read"] + cost["bytes_written"])
            rows.append([f"{m}x{n}x{k}", precision, variant, "matmul", *versus(ours, cost, peer)])
    return rows


def sdpa_set(
    torch: Any, shape: tuple[int, int, int, int, int, int], dtype: Any, backend: Any
) -> Callable[[], Callable[[], object]]:
    """Buffer sets for one backend of PyTorch's attention; shape: batch, queries, keys, heads, K/V heads, head_dim."""
    from torch.nn.attention import sdpa_kernel

    batch, queries, keys, heads, kv_heads, dim = shape

    def make_set() -> Callable[[], object]:
        q = torch.rand(batch, queries, heads, dim, device="cuda").to(dtype).transpose(1, 2)
        k, v = (torch.rand(batch, keys, kv_heads, dim, device="cuda").to(dtype).transpose(1, 2) for _ in range(2))

        def launch() -> object:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=queries > 1, enable_gqa=heads != kv_heads
                )

        return launch

    return make_set


def ragged_set(
    torch: Any, lengths: Sequence[int], heads: tuple[int, int, int], dtype: Any, backend: Any
) -> Callable[[], Callable[[], object]]:
    """The same for a decode of entries that have lengths of their own, as PyTorch takes them: in nested tensors, of
    `heads` query heads, K/V heads and head_dim."""
    from torch.nn.attention import sdpa_kernel

    query_heads, kv_heads, dim = heads

    def nested(counts: Sequence[int], of: int) -> Any:
        ends = torch.tensor([0, *counts], device="cuda").cumsum(0)
        values = torch.rand(sum(counts), of, dim, device="cuda").to(dtype)
        limits = {"min_seqlen": min(counts), "max_seqlen": max(counts)}
        return torch.nested.nested_tensor_from_jagged(values, ends, **limits).transpose(1, 2)

    def make_set() -> Callable[[], object]:
        q, k, v = nested([1] * len(lengths), query_heads), nested(lengths, kv_heads), nested(lengths, kv_heads)

        def launch() -> object:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=query_heads != kv_heads)

        return launch

    return make_set


def attention_rows(peers: Peers, device: _core.Device, *, decode: bool) -> list[list[object]]:
    from torch.nn.attention import SDPBackend

    torch, rows = peers.torch, []
    backends = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    for batch, length, heads, kv_heads, dim in DECODES if decode else PREFILLS:
        for precision in ("fp32", "fp16", "bf16"):
            params = {"batch": batch, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim}
            params |= {"kv_len": length} if decode else {"seq_len": length, "causal": 1}
            operation = "attention_decode" if decode else "attention_prefill"
            ours, cost, variant = measure(device, operation, precision, params)
            queries = 1 if decode else length
            label = f"{batch} x {length}, {heads}/{kv_heads} x {dim}"
            dtype = dtype_of(torch, precision)
            for name in backends:
                backend = getattr(SDPBackend, name)

                make_set = sdpa_set(torch, (batch, queries, length, heads, kv_heads, dim), dtype, backend)
                peer, why = peers.time_or_why(make_set, cost["bytes_read"] + cost["bytes_written"])
                if peer is None:
                    sys.stderr.write(f"{label} {precision}: {name} passed over: {why}\n")
                    continue
                rows.append([label, precision, variant, name, *versus(ours, cost, peer)])
    return rows


def move_rows(peers: Peers, device: _core.Device) -> list[list[object]]:
    torch, rows = peers.torch, []
    page, heads, dim = 16, 8, 128
    for precision in ("fp32", "fp16"):
        dtype = dtype_of(torch, precision)
        for batch, length in ((8, 512), (1, 32768), (16, 8192)):
            params = {"batch": batch, "kv_len": length, "num_kv_heads": heads, "head_dim": dim, "page_size": page}
            ours, cost, variant = measure(device, "kv_gather", precision, params)
            pages = batch * length // page

            def gather(pages: int = pages, dtype: Any = dtype) -> Callable[[], object]:
                caches = [torch.rand(pages, page, heads, dim, device="cuda").to(dtype) for _ in range(2)]
                outs = [torch.empty_like(cache) for cache in caches]
                ids = torch.randperm(pages, device="cuda")
                return lambda: [torch.index_select(c, 0, ids, out=o) for c, o in zip(caches, outs, strict=True)]

            peer = peers.time_ns(gather, cost["bytes_read"] + cost["bytes_written"])
            rows.append(
                [f"kv_gather {batch} x {length}", precision, variant, "index_select", *versus(ours, cost, peer)]
            )

            del params["page_size"]
            ours, cost, variant = measure(device, "kv_copy", precision, params)

            def copy(pages: int = pages, dtype: Any = dtype) -> Callable[[], object]:
                caches = [torch.rand(pages, page, heads, dim, device="cuda").to(dtype) for _ in range(2)]
                outs = [torch.empty_like(cache) for cache in caches]
                return lambda: [o.copy_(c) for c, o in zip(caches, outs, strict=True)]

            peer = peers.time_ns(copy, cost["bytes_read"] + cost["bytes_written"])
            rows.append([f"kv_copy {batch} x {length}", precision, variant, "copy_", *versus(ours, cost, peer)])
    for exponent in (22, 26, 28):
        ours, cost, variant = measure(device, "stream_copy", "fp32", {"elements": 1 << exponent})

        def plain(elements: int = 1 << exponent) -> Callable[[], object]:
            source = torch.rand(elements, device="cuda")
            target = torch.empty_like(source)
            return lambda: target.copy_(source)

        peer = peers.time_ns(plain, cost["bytes_read"] + cost["bytes_written"])
        rows.append([f"stream_copy 2^{exponent}", "fp32", variant, "copy_", *versus(ours, cost, peer)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = ["gemm", "prefill", "decode", "moves"]
    parser.add_argument("--only", nargs="+", choices=groups, default=groups, help="what to compare (default: all)")
    parser.add_argument("--csv", metavar="FILE", help="the tables' rows, with their group first")
    parser.add_argument("--index", type=int, default=0, help="CUDA device (default: 0)")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        raise SystemExit("gpu_peers.py needs PyTorch") from None
    if not torch.cuda.is_available():
        raise SystemExit("gpu_peers.py needs a PyTorch with CUDA, and a GPU")
    torch.cuda.set_device(options.index)
    heads = ["case", "precision", "ours", "peer", "ours us", "peer us", "ours GB/s", "ours TFLOP/s", "peer / ours"]
    with _core.Device("cuda", options.index) as device, torch.no_grad():
        show(f"{machine(device)}; PyTorch {torch.__version__}; cold; ratios above 1: ours is faster")
        peers = Peers(torch, device)
        work: dict[str, Callable[[], list[list[object]]]] = {
            "gemm": lambda: gemm_rows(peers, device),
            "prefill": lambda: attention_rows(peers, device, decode=False),
            "decode": lambda: attention_rows(peers, device, decode=True),
            "moves": lambda: move_rows(peers, device),
        }
        rows: list[list[object]] = []
        for name in options.only:
            found = work[name]()
            table(name, heads, found)
            rows += [[name, *row] for row in found]
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["group", *heads], *rows])


if __name__ == "__main__":
    main()
