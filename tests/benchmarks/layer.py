"""A decode step of one layer of a model, built from PyTorch's modules, against the sum of our operations.

The layer is captured in a CUDA graph and timed as `gpu_peers.py` times: nn.Linear for q, k and v together, o, gate and
up together, and down; scaled_dot_product_attention over the KV cache by whichever backend is quickest; the new keys and
values copied into it. Once with those operations alone, which are the ones that the sum has, and once with what it
leaves out (norms, rotary embeddings, additions, the activation function). Needs PyTorch with CUDA; no network.

    python tests/benchmarks/layer.py --model llama-3.1-8b --batch 1 16 --context 4096 8192
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from common import machine, show, table

import bwprof
from bwprof import _core
from bwprof.llm import architecture
from bwprof.llm.architecture import Architecture
from bwprof.measuring.callables import do_nothing_with

COLD_CACHE_FACTOR = 4


def layer_of(
    torch: Any, model: Architecture, batch: int, context: int, *, whole: bool, backend: Any
) -> tuple[Callable[[], Any], int]:
    """A layer's step as a function that enqueues it, and the bytes that it touches; `whole`: with what the sum leaves
    out.
    """
    nn, functional = torch.nn, torch.nn.functional
    heads, groups, size = model.num_heads, model.num_kv_heads, model.head_dim
    options = {"device": "cuda", "dtype": torch.float16}

    def linear(columns: int, rows: int) -> Any:
        return nn.Linear(columns, rows, bias=False, **options)

    qkv = linear(model.hidden, (heads + 2 * groups) * size)
    out = linear(heads * size, model.hidden)
    gate_up = linear(model.hidden, 2 * model.ffn)
    down = linear(model.ffn, model.hidden)
    norms = [nn.RMSNorm(model.hidden, **options) for _ in range(2)]
    keys, values = (torch.randn(batch, groups, context, size, **options) for _ in range(2))
    angles = torch.rand(size // 2, device="cuda")
    cosine, sine = (f(angles).to(torch.float16).repeat(2) for f in (torch.cos, torch.sin))
    given = torch.randn(batch, model.hidden, **options)

    def turned(x: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    def step() -> Any:
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(backend) if backend is not None else nullcontext():
            x = norms[0](given) if whole else given
            q, k, v = qkv(x).split((heads * size, groups * size, groups * size), dim=-1)
            q = q.view(batch, heads, 1, size)
            k, v = (part.view(batch, groups, 1, size) for part in (k, v))
            if whole:
                q, k = turned(q), turned(k)
            keys[:, :, context - 1 :].copy_(k)
            values[:, :, context - 1 :].copy_(v)
            mixed = functional.scaled_dot_product_attention(q, keys, values, enable_gqa=heads != groups)
            attended = out(mixed.reshape(batch, heads * size))
            if whole:
                attended = attended + given
            gate, up = gate_up(norms[1](attended) if whole else attended).chunk(2, dim=-1)
            # Without the activation the product takes a half as it lies there, in strided rows.
            inner = functional.silu(gate) * up if whole else gate
            result = down(inner)
            return result + attended if whole else result

    held = [keys, values, *(module.weight for module in (qkv, out, gate_up, down))]
    return step, sum(tensor.numel() * tensor.element_size() for tensor in held)


def peer_us(torch: Any, device: _core.Device, model: Architecture, batch: int, context: int, *, whole: bool) -> float:
    """PyTorch's layer, by the quickest backend of its attention."""
    kinds = torch.nn.attention.SDPBackend
    found = []
    for backend in (kinds.FLASH_ATTENTION, kinds.EFFICIENT_ATTENTION, kinds.CUDNN_ATTENTION, kinds.MATH):
        with torch.cuda.stream(torch.cuda.ExternalStream(device.stream)):
            step, touched = layer_of(torch, model, batch, context, whole=whole, backend=backend)
            sets = max(1, -(-COLD_CACHE_FACTOR * device.facts()["cache_bytes"] // touched))
            more = [layer_of(torch, model, batch, context, whole=whole, backend=backend)[0] for _ in range(sets - 1)]
            steps = [step, *more]
            try:
                result = device.measure_call(
                    lambda number, steps=steps: steps[number](),
                    do_nothing_with,
                    stream=device.stream,
                    sets=sets,
                    footprint_bytes=touched,
                    timer="graph",
                )
                found.append(result["median_ns"] / 1e3)
            except (RuntimeError, _core.UnavailableError):  # not for these shapes; what cannot be captured
                pass
        del step, more, steps
        torch.cuda.empty_cache()
    return min(found)


def ours_us(model: Architecture, batch: int, context: int) -> tuple[float, float, float]:
    """A layer of ours: the sum of its operations, all of them in one graph, and what the sum leaves out, estimated."""
    step = bwprof.model_step(model.one_layer, batch=batch, context=context, device="cuda", chain=True)
    line = step.layers.iloc[0]
    left = step.left_out.set_index("what")
    per_layer = left.drop(index=["token embedding", "sampling"])["time_ms"].sum()
    # Of the norms one is behind the last layer.
    extra = left.loc["norms", "time_ms"] / left.loc["norms", "count"]
    return 1e3 * line["sum_ms"], 1e3 * line["together_ms"], 1e3 * (per_layer - extra)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="llama-3.1-8b", help="a model without experts")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--context", type=int, nargs="+", default=[4096])
    options = parser.parse_args()
    import torch

    model = architecture.find_model(options.model)
    points = [(batch, context) for batch in options.batch for context in options.context]
    # Our sums first: graphs on a second stream slow what follows in a process.
    ours = [ours_us(model, *point) for point in points]
    rows: list[list[object]] = []
    with _core.Device("cuda", 0) as device:
        show(f"{machine(device)}; PyTorch {torch.__version__}; {options.model}, FP16, one layer")
        for (batch, context), (total, together, left) in zip(points, ours, strict=True):
            same = peer_us(torch, device, model, batch, context, whole=False)
            whole = peer_us(torch, device, model, batch, context, whole=True)
            errors = [f"{100 * (our / peer - 1):+.1f}" for our, peer in ((total, same), (total + left, whole))]
            rows.append(
                [f"batch {batch}, context {context}", total, together, same, *errors[:1], left, whole, *errors[1:]]
            )
    heads = ["step", "our sum us", "one graph us", "torch us", "error %", "left out us", "torch, whole us", "error %"]
    table("errors: our sum against the same operations; with what it leaves out (estimated) against all", heads, rows)


if __name__ == "__main__":
    main()
