"""Element-wise, row and layout operations and chains of them, beside plain streams and PyTorch, eager and compiled.

A line each: GB/s, percent of what streams of the same bytes reach in the same run, gains over PyTorch where it is
installed (results are compared first, on a small case), and a chain's gain over `unfused` beside that in bytes.

    python tests/benchmarks/fusion.py --device cuda --only relu gelu --precisions fp16
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from common import machine, measure, show, show_row

from bwprof import _core
from bwprof.measuring.callables import do_nothing_with

Params = dict[str, int]
Eager = Callable[[Any, dict[str, Any], Params], Any]


def turn(torch: Any, x: Any, angles: Any) -> Any:
    low, high = x.float().chunk(2, -1)
    cosine, sine = angles[:, 0, None], angles[:, 1, None]
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).to(x.dtype)


def rope_append(torch: Any, t: dict[str, Any], p: Params) -> Any:
    angles = t["angles"][p["kv_len"] :].repeat(p["batch"], 1, 1)
    q, k = turn(torch, t["q"], angles), turn(torch, t["k"], angles)
    for new, stored in ((k, t["k_cache"]), (t["v"], t["v_cache"])):
        stored[:, p["kv_len"] :] = new.view(p["batch"], p["seq_len"], *stored.shape[2:])
    return t["k_cache"], t["v_cache"], q


def silu_mul_quantize(torch: Any, t: dict[str, Any], p: Params) -> Any:
    y = torch.nn.functional.silu(t["gate"].float()) * t["up"].float()
    scale = y.abs().amax(-1, keepdim=True) / 448
    return (y / scale).to(torch.float8_e4m3fn), scale[:, 0]


def rms_norm(torch: Any, x: Any, weight: Any) -> Any:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)


def residual_rmsnorm(torch: Any, t: dict[str, Any], p: Params) -> Any:
    total = t["x"] + t["residual"]
    return total, rms_norm(torch, total, t["weight"])


def dropout(torch: Any, x: Any, p: Params) -> Any:
    return torch.nn.functional.dropout(x, p["dropout_percent"] / 100)


EAGER: dict[str, Eager] = {
    "relu": lambda torch, t, p: torch.relu(t["x"]),
    "gelu": lambda torch, t, p: torch.nn.functional.gelu(t["x"]),
    "residual_add": lambda torch, t, p: t["x"] + t["residual"],
    "silu_mul": lambda torch, t, p: torch.nn.functional.silu(t["gate"]) * t["up"],
    "bias_relu_dropout_residual": lambda torch, t, p: dropout(torch, torch.relu(t["x"] + t["bias"]), p) + t["residual"],
    "softmax": lambda torch, t, p: torch.softmax(t["x"], -1),
    "logsumexp": lambda torch, t, p: torch.logsumexp(t["x"], -1),
    "rmsnorm": lambda torch, t, p: rms_norm(torch, t["x"], t["weight"]),
    "layernorm": lambda torch, t, p: torch.nn.functional.layer_norm(
        t["x"], t["weight"].shape, t["weight"], t["bias"], 1e-5
    ),
    "residual_rmsnorm": residual_rmsnorm,
    "rope": lambda torch, t, p: (turn(torch, t["q"], t["angles"]), turn(torch, t["k"], t["angles"])),
    "rope_append": rope_append,
    "silu_mul_quantize": silu_mul_quantize,
    "linear_relu_dropout": lambda torch, t, p: dropout(
        torch, torch.relu(torch.nn.functional.linear(t["A"], t["B"], t["bias"])), p
    ),
    "transpose": lambda torch, t, p: t["in"].transpose(1, 2).contiguous(),
    "permute": lambda torch, t, p: t["in"].transpose(1, 2).contiguous(),
}
# By operation: an anchor of 65 536 x 4 096 elements, and an array of 1 GiB where its elements have two bytes.
TOKENS: list[Params] = [{"tokens": 65_536, "hidden": 4096}, {"tokens": 65_536, "hidden": 8192}]
ROWS: list[Params] = [{"rows": 65_536, "columns": 4096}, {"rows": 65_536, "columns": 8192}]
HEADS_OF_8B = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
SHAPES: dict[str, list[Params]] = {
    **{name: [{"elements": 1 << 28}, {"elements": 1 << 29}] for name in ("relu", "gelu", "residual_add", "silu_mul")},
    **dict.fromkeys(("bias_relu_dropout_residual", "rmsnorm", "layernorm", "residual_rmsnorm"), TOKENS),
    **dict.fromkeys(("softmax", "logsumexp"), ROWS),
    "rope": [{"tokens": 65_536, **HEADS_OF_8B}],
    "rope_append": [{"batch": 16, "seq_len": 4096, "kv_len": 0, **HEADS_OF_8B}],
    "silu_mul_quantize": [{"tokens": 16_384, "hidden": 14_336}],
    "linear_relu_dropout": [{"M": 4096, "N": 4096, "K": 4096}, {"M": 1, "N": 4096, "K": 4096}],
    "transpose": [{"rows": 16_384, "columns": 16_384}, {"batch": 64, "rows": 256, "columns": 3136}],
    "permute": [{"batch": 16, "seq_len": 4096, "num_heads": 32, "head_dim": 128}],
}
# What has one precision alone.
ONLY = {"silu_mul_quantize": "fp8_e4m3"}
CHECKED = {"dropout_percent": 0}  # results are compared where nothing is drawn at random
# By the share that is read; and the bytes of an element in FP32.
STREAMS = {1.0: ("stream_read", 4), 2 / 3: ("stream_triad", 12), 0.5: ("stream_copy", 8), 0.0: ("stream_write", 4)}
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}
HEADS = ["case", "precision", "variant", "us", "GB/s", "% stream", "x eager", "x compiled", "x unfused", "in bytes"]
WIDTHS = [42, 9, 9, 8, 7, 8, 8, 10, 9, 8]


@dataclass(frozen=True)
class Bench:
    device: _core.Device
    where: str
    seconds: float
    torch: Any

    def time(self, *case: Any, **options: Any) -> tuple[float, dict[str, int], str]:
        result, cost, variant = measure(self.device, *case, max_seconds=self.seconds, **options)
        return float(result["median_ns"]), cost, variant

    @cache  # noqa: B019 (one for the whole script)
    def stream_ns(self, mix: float, total: int) -> float:
        name, each = STREAMS[mix]
        return self.time(name, "fp32", {"elements": max(1, total // each)})[0]

    def attainable_ns(self, cost: dict[str, int]) -> float:
        """Between two mixes the time of a byte is linear in the share that is read, as roofs have it."""
        total, mixes = cost["bytes_read"] + cost["bytes_written"], sorted(STREAMS)
        times = [self.stream_ns(mix, total) for mix in mixes]
        return float(np.interp(cost["bytes_read"] / total, mixes, times))

    def tensors(self, case: _core.Case, *, drawn: bool) -> dict[str, Any]:
        """The operands by name, with the case's own values; or floats `drawn`, so that no large one is copied."""
        torch, found = self.torch, {}
        own = {} if drawn and all(o["dtype"] in ("fp32", "fp16", "bf16") for o in case.operands) else case.inputs()
        for operand in case.operands:
            name, shape = operand["name"], operand["shape"]
            dtype = getattr(torch, TYPES.get(operand["dtype"], operand["dtype"]))
            if name in own:
                found[name] = torch.frombuffer(bytearray(own[name]), dtype=dtype).reshape(shape).to(self.where)
            else:
                found[name] = torch.empty(shape, dtype=dtype, device=self.where)
                if operand["role"] != "out":
                    found[name].uniform_(-1, 1)
        return found

    def check(self, operation: str, precision: str, params: Params) -> None:
        """End the script where our results of a small case are not PyTorch's."""
        whole = _core.complete(operation, precision, params)
        small = {name: CHECKED.get(name, min(value, 96)) for name, value in whole.items()}
        with _core.Case(self.device, operation, precision, small) as case, self.torch.no_grad():
            peer = EAGER[operation](self.torch, self.tensors(case, drawn=False), dict(case.params))
            ours = case.run({})
            outs = [operand for operand in case.operands if operand["role"] != "in"]
            for operand, theirs in zip(outs, peer if isinstance(peer, tuple) else (peer,), strict=True):
                raw = self.torch.frombuffer(bytearray(ours[operand["name"]]), dtype=theirs.dtype)
                a, b = (x.double().cpu().numpy().reshape(-1) for x in (raw, theirs))
                allowed = 8 * self.torch.finfo(theirs.dtype).eps * np.maximum(abs(b), math.sqrt((b**2).mean()))
                if not (abs(a - b) <= allowed).all():
                    raise SystemExit(f"{operation} {precision}: {operand['name']} is off by {abs(a - b).max():.2g}")

    def peer_ns(self, function: Eager, case: _core.Case) -> float | None:
        torch, touched = self.torch, case.cost["bytes_read"] + case.cost["bytes_written"]
        count = min(2048, max(1, -(-4 * self.device.facts()["cache_bytes"] // touched)))
        sets, params = [self.tensors(case, drawn=True) for _ in range(count)], dict(case.params)
        options = {} if self.where == "cpu" else {"stream": self.device.stream}
        on = torch.cuda.ExternalStream(self.device.stream) if options else None
        with torch.no_grad(), torch.cuda.stream(on):
            for number in range(3):  # compiles
                function(torch, sets[number % count], params)
            for timer in [None] if not options else ["graph", "events"]:  # no graph captures PyTorch's random numbers
                try:
                    result = self.device.measure_call(
                        lambda number: function(torch, sets[number], params), do_nothing_with, sets=count,
                        footprint_bytes=touched, max_seconds=self.seconds, timer=timer, **options,
                    )  # fmt: skip
                    return float(result["median_ns"])
                except (RuntimeError, _core.UnavailableError) as error:
                    show(f"  {timer}: {str(error).splitlines()[0][:100]}")
        return None

    def add(self, operation: str, params: Params, precision: str) -> None:
        ns, cost, variant = self.time(operation, precision, params)
        total, gains, unfused = cost["bytes_read"] + cost["bytes_written"], ["", ""], ["", ""]
        if "unfused" in {row["name"] for row in self.device.variants(operation, precision, params)} - {variant}:
            other, more, _ = self.time(operation, precision, params, variant="unfused")
            unfused = [other / ns, (more["algorithmic_bytes_read"] + more["algorithmic_bytes_written"]) / total]
        if self.torch is not None and operation in EAGER:
            self.check(operation, precision, params)
            with _core.Case(self.device, operation, precision, params) as case:
                functions = (EAGER[operation], self.torch.compile(EAGER[operation]))
                times = [self.peer_ns(function, case) for function in functions]
            gains = [peer / ns if peer else "" for peer in times]
        label = f"{operation} {'x'.join(map(str, params.values()))}"
        rates = [ns / 1e3, total / ns, 100 * self.attainable_ns(cost) / ns]
        show_row([label, precision, variant, *rates, *gains, *unfused], WIDTHS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES), metavar="OPERATION")
    parser.add_argument("--precisions", nargs="+", default=["fp16"], choices=["fp32", "fp16", "bf16"])
    parser.add_argument("--shapes", type=int, default=2, help="how many of an operation's shapes")
    parser.add_argument("--seconds", type=float, default=0.1, help="longest measurement of a case")
    parser.add_argument("--no-peers", action="store_true", help="without PyTorch")
    args = parser.parse_args()
    torch = import_module("torch") if not args.no_peers and find_spec("torch") else None
    with _core.Device(args.device) as device:
        show(machine(device))
        show_row(HEADS, WIDTHS)
        bench = Bench(device, args.device, args.seconds, torch)
        for operation, asked in product(args.only, args.precisions):
            for params in SHAPES[operation][: args.shapes]:
                bench.add(operation, params, ONLY.get(operation, asked))


if __name__ == "__main__":
    main()
