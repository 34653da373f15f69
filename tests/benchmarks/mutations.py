"""What `verify` sees of a kernel's mistakes, at the sizes of the default suite, and what it grants to right kernels.

The first table: wrong results that differ from the right one by one mistake (tests/mistakes.py), how many of them were
caught, and the weakest one's error as a multiple of the tolerance (above 1: caught). The second: right results with the
roundings that kernels of each kind make, worked out here; below 1: they pass.

    python tests/benchmarks/mutations.py --places 200
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SUITE = ROOT.parent / "bwprof" / "data" / "suites" / "default.toml"
ROWS_OF_PREFILL = 8  # the last queries of a prefill stand for all: they attend most keys, and each change least


def cases() -> Iterator[tuple[str, str, dict[str, int], list[str]]]:
    """Name, operation, parameters, precisions of the suite's cases. A decode is a prefill of one query, so that it can
    be held to what a variant that rounds its weights may do."""
    for case in tomllib.loads(SUITE.read_text())["case"]:
        units = {"Ki": 1 << 10, "Mi": 1 << 20}
        params = {
            name: int(value[:-2]) * units[value[-2:]] if isinstance(value, str) else value
            for name, value in case["params"].items()
        }
        operation = case["operation"]
        if operation == "attention_prefill":
            params |= {"kv_len": params["seq_len"], "seq_len": ROWS_OF_PREFILL}
        if operation == "attention_decode":
            operation, params = "attention_prefill", params | {"seq_len": 1}
        yield case["name"], operation, params, ["fp32", "fp16", "bf16"]


def tried(device: Any, case: tuple[str, str, dict[str, int], list[str]], places: int) -> Iterator[list[object]]:
    """A line for each kind of mistake."""
    from mistakes import Attention, Product, keys_to_try, move_mutations

    from bwprof import _core

    name, operation, params, precisions = case
    for precision in precisions:
        for variant in ["unfused", "flash"] if operation == "attention_prefill" else [None]:
            with _core.Case(device, operation, precision, params, variant=variant, seed=7) as content:
                first = content.verify(outputs=content.run({}))  # every output given: only the rows are worked out
                if operation == "attention_prefill":
                    mutations = Attention(content).mutations(keys_to_try(params["kv_len"], places))
                elif operation == "gemm":
                    mutations = Product(content).mutations(keys_to_try(params["K"], places // 4))
                else:
                    mutations = move_mutations(content, keys_to_try(1 << 15, 2))
                ratios: dict[str, list[float]] = {}
                for mutation in mutations:
                    verdict = content.verify(outputs=mutation.outputs)
                    limit = verdict["tolerance"]
                    wrong = float("inf") if verdict["max_error"] else 0.0
                    ratios.setdefault(mutation.kind, []).append(verdict["max_error"] / limit if limit else wrong)
                rounds = {"unfused": "weights too", "flash": "once"}.get(variant, "")
                seen = f"{first['rows_checked']}/{first['rows_total']}"
                for kind, found in ratios.items():
                    caught = sum(ratio > 1 for ratio in found)
                    yield [name, precision, rounds, seen, kind, f"{caught}/{len(found)}", min(found)]


# ---- right results, rounded as kernels round ----


def rounded(precision: str, values: np.ndarray) -> np.ndarray:
    from mistakes import decode

    from bwprof import _core

    if precision == "fp32":
        return values.astype(np.float32).astype(np.float64)
    return (
        decode(precision, _core.encode(precision, values.astype(np.float32))).reshape(values.shape).astype(np.float64)
    )


def truncated(values: np.ndarray) -> np.ndarray:
    """To the 24 bits of a float's significand, towards zero, as tensor cores add."""
    exponent = np.frexp(values)[1]
    return np.ldexp(np.trunc(np.ldexp(values, 24 - exponent)), exponent - 24)


def attention_outputs(problem: Any, precision: str) -> Iterator[tuple[str, np.ndarray]]:
    weights, values = problem.weights, problem.v.astype(np.float64).transpose(0, 2, 1, 3)
    product = "bgshl,bgld->bgshd"
    top = np.maximum.accumulate(problem.scores, axis=-1)
    online = rounded(
        precision, np.exp(problem.scores - top)
    )  # relative to the largest so far, as flash kernels keep it
    largest = problem.scores.max(axis=-1, keepdims=True)
    out = np.einsum(product, online * np.exp(top - largest), values)
    yield "tensor cores: weights rounded", out / problem.totals[..., None]
    stored = np.exp(rounded(precision, problem.scores) - largest)
    stored = rounded(precision, stored / stored.sum(axis=-1, keepdims=True))
    yield "unfused: scores and weights stored", np.einsum(product, stored, values)
    total = np.zeros_like(problem.sums)
    kept = rounded(precision, weights)
    for first in range(0, problem.keys, 16):  # a product on tensor cores: 16 keys a step
        step = np.einsum(product, kept[..., first : first + 16], values[:, :, first : first + 16])
        total = truncated(total + step)
    yield "the same in one chain of truncated sums", total / problem.totals[..., None]


def product_outputs(problem: Any) -> Iterator[tuple[str, np.ndarray]]:
    a, b = problem.a.astype(np.float64), problem.b.astype(np.float64)
    for wide in (8, 16):
        total = np.zeros((a.shape[0], b.shape[0]))
        for first in range(0, a.shape[1], wide):
            total = truncated(total + a[:, first : first + wide] @ b[:, first : first + wide].T)
        yield f"tensor cores: sums truncated, {wide} products a step", total
    parts = np.array_split(np.arange(a.shape[1]), 8)
    yield (
        "split K: eight partial sums in FP32",
        np.sum([(a[:, part] @ b[:, part].T).astype(np.float32) for part in parts], axis=0),
    )
    high = [decode_tf32(x) for x in (a, b)]
    low = [decode_tf32(x - h) for x, h in zip((a, b), high, strict=True)]
    yield "three TF32 products", high[0] @ high[1].T + low[0] @ high[1].T + high[0] @ low[1].T


def decode_tf32(values: np.ndarray) -> np.ndarray:
    return rounded("tf32", values)


def granted(device: Any) -> Iterator[list[object]]:
    from mistakes import Attention, Product, encoded

    from bwprof import _core

    for keys, heads, kv_heads, dim in ((512, 14, 2, 64), (4096, 14, 2, 64), (4096, 32, 8, 128), (32768, 32, 8, 128)):
        params = {
            "batch": 1, "seq_len": 1, "kv_len": keys, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim,
        }  # fmt: skip
        for precision in ("fp32", "fp16", "bf16"):
            with _core.Case(device, "attention_prefill", precision, params, variant="unfused", seed=7) as case:
                problem = Attention(case)
                for kind, sums in attention_outputs(problem, precision):
                    out = sums.transpose(0, 2, 1, 3, 4).reshape(problem.q.shape)
                    verdict = case.verify(budget_s=20, outputs={"out": encoded(case, "out", out)})
                    yield [f"{keys} keys, head_dim {dim}", precision, kind, *shares(verdict)]
    for inner in (896, 4096, 14336):
        for precision in ("fp32", "fp16", "bf16"):
            with _core.Case(device, "gemm", precision, {"M": 16, "N": 256, "K": inner}, seed=7) as case:
                for kind, values in product_outputs(Product(case)):
                    verdict = case.verify(budget_s=20, outputs={"D": encoded(case, "D", values)})
                    yield [f"K = {inner}", precision, kind, *shares(verdict)]


def shares(verdict: dict[str, Any]) -> list[float]:
    return [verdict["max_error"], verdict["tolerance"], verdict["max_error"] / verdict["tolerance"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=100, help="keys (products: a quarter of that) tried anywhere")
    parser.add_argument(
        "--case", default="", help="only cases whose names hold this; 'none' for the second table alone"
    )
    options = parser.parse_args()
    from common import table

    from bwprof import _core

    with _core.Device("cpu") as device:
        for case in cases():
            if options.case in case[0]:
                heads = ["case", "precision", "rounds", "rows checked", "mistake", "caught", "weakest"]
                table("Mistakes", heads, list(tried(device, case, options.places)))
        heads = ["size", "precision", "rounds like", "error", "tolerance", "share"]
        table("Right results", heads, list(granted(device)))


if __name__ == "__main__":
    main()
