"""What our GPU kernels reach: a line per kernel and shape, beside a plain stream of the same bytes and beside its
library, all cold, timed by the same code.

`of stream`: the time of a plain read (of a copy, for moves) of as many bytes as the operation must move, over ours.
`x library`: the time of cuBLASLt (our variant of that name) or of cuDNN (by PyTorch, where that is there; of a ragged
batch where it takes nested tensors) over ours.

    python tests/benchmarks/targets.py --only decode --csv targets.csv
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from common import machine, measure, show, table
from gpu_peers import Peers, dtype_of, ragged_set, sdpa_set

from bwprof import _core

HALVES = ("fp16", "bf16")
GEMMS = [
    *((1, n, k) for n, k in ((14336, 4096), (896, 896), (4864, 896))),
    *((m, n, k) for n, k in ((14336, 4096), (4096, 14336), (28672, 8192), (151936, 896)) for m in (2, 4, 8, 16)),
    *((m, n, k) for m, n, k in ((128, 14336, 4096), (4096, 14336, 4096), (8192, 8192, 8192))),
]
# batch, keys, heads, K/V heads, head_dim
DECODES = [
    (1, 4096, 14, 2, 64), (8, 4096, 14, 2, 64), (1, 32768, 32, 8, 128),
    *((batch, 8192, 8 * group, 8, 128) for batch in (16, 64) for group in (1, 4, 8)),
    (4, 4096, 40, 2, 128), (4, 4096, 64, 2, 128), (4, 4096, 128, 2, 128), (16, 8192, 24, 2, 64), (16, 8192, 64, 2, 128),
    (64, 8192, 32, 2, 128), (64, 8192, 64, 2, 128),
]  # fmt: skip
# Batches of entries that have lengths of their own, up to RAGGED_MOST keys.
RAGGED_BATCHES, RAGGED_MOST, RAGGED_HEADS = (16, 64), 8192, (32, 8, 128)
WIDE_HEADS = [(16, 8192, 32, 8, dim) for dim in (128, 160, 192, 256)]
PREFILLS = [
    *((1, length, 14, 2, 64) for length in (2048, 16384)), (4, 4096, 32, 8, 64),
    *((1, length, 32, 8, 128) for length in (2048, 4096, 16384)), (4, 4096, 32, 8, 128),
]  # fmt: skip
MOVES = [(8, 2048), (16, 8192), (1, 32768)]
PAGE, MOVE_HEADS, MOVE_DIM = 16, 8, 128
HEADS = ["case", "precision", "ours", "us", "TFLOP/s", "of stream", "x library"]
Row = list[object]
Ours = tuple[float, dict[str, int], str]  # ns, cost, variant


def moved_by(ours: Ours) -> int:
    return ours[1]["bytes_read"] + ours[1]["bytes_written"]


class Bench:
    def __init__(self, device: _core.Device, peers: Peers | None) -> None:
        self.device = device
        self.peers = peers
        self.streams: dict[tuple[str, int], float] = {}

    def ours(self, operation: str, precision: str, params: dict[str, int], **options: Any) -> Ours:
        result, cost, variant = measure(self.device, operation, precision, params, **options)
        return float(result["median_ns"]), cost, variant

    def stream_ns(self, operation: str, ours: Ours) -> float:
        """A plain stream of as many bytes, read and written together."""
        key = (operation, total_bytes := moved_by(ours))
        if key not in self.streams:
            moved = 8 if operation == "stream_copy" else 4
            self.streams[key] = self.ours(operation, "fp32", {"elements": total_bytes // moved})[0]
        return self.streams[key]

    def cublaslt_ns(self, precision: str, params: dict[str, int]) -> float | None:
        try:
            return self.ours("gemm", precision, params, variant="cublaslt")[0]
        except (ValueError, _core.UnavailableError) as error:
            sys.stderr.write(f"gemm {params} {precision}: {error}\n")
            return None

    def cudnn_ns(self, made_by: Callable[..., Any], *shape: Any, precision: str, ours: Ours) -> float | None:
        """The time of what `sdpa_set` or `ragged_set` makes of a shape; None where there is none."""
        if self.peers is None or precision not in HALVES:
            return None
        from torch.nn.attention import SDPBackend

        torch = self.peers.torch
        make_set = made_by(torch, *shape, dtype_of(torch, precision), SDPBackend.CUDNN_ATTENTION)
        found, why = self.peers.time_or_why(make_set, moved_by(ours))
        if found is None:
            sys.stderr.write(f"cuDNN {shape} {precision}: {why}\n")
        return found


def row(label: str, precision: str, ours: Ours, stream: float | None, library: float | None) -> Row:
    ns, cost, variant = ours
    return [
        label,
        precision,
        variant,
        ns / 1e3,
        cost["flops"] / ns / 1e3,
        "" if stream is None else f"{100 * stream / ns:.1f} %",
        "" if library is None else f"{library / ns:.3f}",
    ]


def gemms(bench: Bench) -> Iterator[Row]:
    for m, n, k in GEMMS:
        for precision in ("fp32", *HALVES) if m <= 16 else ("tf32", *HALVES):
            params = {"M": m, "N": n, "K": k}
            variant = None if m <= 16 else "wgmma"
            ours = bench.ours("gemm", precision, params, variant=variant)
            stream = bench.stream_ns("stream_read", ours) if m <= 16 else None
            yield row(f"{m} x {n} x {k}", precision, ours, stream, bench.cublaslt_ns(precision, params))


def decodes(bench: Bench) -> Iterator[Row]:
    shapes = [(shape, precision) for shape in DECODES for precision in HALVES]
    shapes += [(shape, "fp32") for shape in WIDE_HEADS] + [(shape, "fp16") for shape in WIDE_HEADS[1:]]
    for (batch, keys, heads, kv_heads, dim), precision in shapes:
        params = {"batch": batch, "kv_len": keys, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim}
        ours = bench.ours("attention_decode", precision, params)
        shape = (batch, 1, keys, heads, kv_heads, dim)
        library = bench.cudnn_ns(sdpa_set, shape, precision=precision, ours=ours)
        label = f"{batch} x {keys}, {heads}/{kv_heads} x {dim}"
        yield row(label, precision, ours, bench.stream_ns("stream_read", ours), library)


def ragged_lengths(batch: int) -> dict[str, list[int]]:
    """The longest entry has RAGGED_MOST keys, the others evenly less, or one in eight many and the rest few."""
    chance = random.Random(batch)
    even = [RAGGED_MOST - (RAGGED_MOST - 12) * entry // (batch - 1) for entry in range(batch)]
    many = [RAGGED_MOST, *(chance.randint(RAGGED_MOST // 2, RAGGED_MOST) for _ in range(batch // 8 - 1))]
    few = [chance.randint(16, RAGGED_MOST // 16) for _ in range(batch - len(many))]
    return {"even": chance.sample(even, batch), "uneven": chance.sample(many + few, batch)}


def ragged(bench: Bench) -> Iterator[Row]:
    params = dict(zip(("num_heads", "num_kv_heads", "head_dim"), RAGGED_HEADS, strict=True))
    heads, kv_heads, dim = RAGGED_HEADS
    for batch in RAGGED_BATCHES:
        for kind, lengths in ragged_lengths(batch).items():
            label = f"{batch} x {min(lengths)}..{max(lengths)} {kind}, {heads}/{kv_heads} x {dim}"
            for precision in ("fp32", *HALVES):
                ours = bench.ours("attention_decode", precision, params, kv_lens=lengths)
                library = bench.cudnn_ns(ragged_set, lengths, RAGGED_HEADS, precision=precision, ours=ours)
                yield row(label, precision, ours, bench.stream_ns("stream_read", ours), library)


def prefills(bench: Bench) -> Iterator[Row]:
    for batch, length, heads, kv_heads, dim in PREFILLS:
        params = {"batch": batch, "seq_len": length, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim}
        params["causal"] = 1
        label = f"{batch} x {length}, {heads}/{kv_heads} x {dim}"
        for precision in ("fp32", "tf32", *HALVES):
            ours = bench.ours("attention_prefill", precision, params)
            shape = (batch, length, length, heads, kv_heads, dim)
            library = bench.cudnn_ns(sdpa_set, shape, precision=precision, ours=ours)
            yield row(label, precision, ours, None, library)
        if length <= 4096:
            for precision, variant in (("fp16", "flash"), ("fp16", "unfused"), ("fp32", "unfused")):
                ours = bench.ours("attention_prefill", precision, params, variant=variant)
                yield row(label, precision, ours, None, None)


def moves(bench: Bench) -> Iterator[Row]:
    for precision in ("fp32", "fp16"):
        for batch, length in MOVES:
            shape = {"batch": batch, "num_kv_heads": MOVE_HEADS, "head_dim": MOVE_DIM}
            for operation, length_name, paged in (
                ("kv_append", "seq_len", False),
                ("kv_append", "seq_len", True),
                ("kv_gather", "kv_len", True),
                ("kv_copy", "kv_len", False),
            ):
                params = shape | {length_name: length} | ({"page_size": PAGE} if paged else {})
                if operation == "kv_append":
                    params["kv_len"] = 0
                ours = bench.ours(operation, precision, params)
                label = f"{operation}{' paged' if paged else ''} {batch} x {length}"
                yield row(label, precision, ours, bench.stream_ns("stream_copy", ours), None)


def main() -> None:
    work = {"gemm": gemms, "decode": decodes, "ragged": ragged, "prefill": prefills, "moves": moves}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=work, default=list(work), help="what to measure (default: all)")
    parser.add_argument("--csv", metavar="FILE", help="the tables' rows, with their group first")
    options = parser.parse_args()
    with _core.Device("cuda", 0) as device:
        try:
            import torch

            peers = Peers(torch, device) if torch.cuda.is_available() else None
        except ImportError:
            peers = None
        show(f"{machine(device)}; cold; cuDNN {'by PyTorch ' + torch.__version__ if peers else 'not there'}")
        bench = Bench(device, peers)
        rows: list[Row] = []
        for name in options.only:
            found = []
            for line in work[name](bench):
                found.append(line)
                if options.csv:
                    rows.append([name, *line])
                    with open(options.csv, "w", newline="", encoding="utf-8") as file:
                        csv.writer(file).writerows([["group", *HEADS], *rows])
            table(name, HEADS, found)


if __name__ == "__main__":
    main()
