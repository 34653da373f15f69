"""Wrong results, one mistake each, for whatever checks results to find.

Outputs are worked out in NumPy float64 from a case's own inputs at its real size, changed as a kernel's mistake would
change them (a key left out, taken twice, read from its neighbor's place ...), rounded once, and handed to `verify`.
That is the hardest case: a kernel's own rounding would add to what is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bwprof import _core

Arrays = dict[str, np.ndarray]
PAGE = 16  # tokens


def decode(dtype: str, data: Any) -> np.ndarray:
    return np.frombuffer(_core.decode(dtype, data), dtype=np.float32)


def inputs_of(case: Any) -> Arrays:
    """The case's generated float inputs; integers as they are."""
    found: Arrays = {}
    bits = case.inputs()
    for operand in case.operands:
        name = operand["name"]
        if name in bits:
            integers = {"int32": np.int32, "int64": np.int64}.get(operand["dtype"])
            values = np.frombuffer(bits[name], integers) if integers else decode(operand["dtype"], bits[name])
            found[name] = values.reshape(operand["shape"])
    return found


@dataclass(frozen=True)
class Mutation:
    kind: str
    where: str
    outputs: dict[str, Any]  # stored bits


def encoded(case: Any, name: str, values: np.ndarray) -> bytes:
    dtype = next(operand["dtype"] for operand in case.operands if operand["name"] == name)
    return _core.encode(dtype, np.ascontiguousarray(values, dtype=np.float32))


# ---- attention ----


class Attention:
    """softmax(q k^T / sqrt(D)) v of every (batch, query, head) row, kept as sums that a key can be taken out of.

    In mla_decode v is the beginning of k, and D a quarter of it and what is behind it."""

    def __init__(self, case: Any) -> None:
        self.case = case
        x = inputs_of(case)
        latent, rope = (case.params.get(name, 0) for name in ("latent_dim", "rope_dim"))
        self.q, self.k = x["q"], x["cache" if latent else "k"]
        if "cache_scale" in x:
            self.k = self.k * x["cache_scale"][..., None]
        self.v = self.k[..., :latent] if latent else x["v"]
        self.batch, self.queries, self.heads = self.q.shape[:3]
        self.dim = self.v.shape[-1]
        divisor = np.sqrt(latent / 4 + rope if latent else self.dim)
        self.keys, self.kv_heads = self.k.shape[1:3]
        self.group = self.heads // self.kv_heads
        shape = (self.batch, self.kv_heads, self.queries, self.group)
        self.scores = np.empty((*shape, self.keys))
        self.weights = np.empty((*shape, self.keys))  # before they are divided by their sum
        self.sums = np.empty((*shape, self.dim))
        reach = self.keys - self.queries
        hidden = np.arange(self.keys) > reach + np.arange(self.queries)[:, None, None]
        for b in range(self.batch):
            for g in range(self.kv_heads):
                q = self.q[b, :, g * self.group : (g + 1) * self.group].astype(np.float64)
                scores = q @ self.k[b, :, g].astype(np.float64).T / divisor
                if case.params.get("causal"):
                    scores = np.where(hidden, -np.inf, scores)
                self.scores[b, g] = scores
                self.weights[b, g] = np.exp(scores - scores.max(axis=-1, keepdims=True))
                self.sums[b, g] = self.weights[b, g] @ self.v[b, :, g].astype(np.float64)
        self.totals = self.weights.sum(axis=-1)

    def out(self, sums: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """(B, G, S, H / G, D) sums as the output's (B, S, H, D)."""
        return (sums / totals[..., None]).transpose(0, 2, 1, 3, 4).reshape(*self.q.shape[:3], self.dim)

    def right(self) -> np.ndarray:
        return self.out(self.sums, self.totals)

    def parts(self, weights_of: np.ndarray, values_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What these keys add to sums and totals, with the weights of one list and the values of the other."""
        weights = self.weights[..., weights_of]
        values = self.v[:, values_of].astype(np.float64).transpose(0, 2, 1, 3)  # (B, G, keys, D)
        return np.einsum("bgshl,bgld->bgshd", weights, values), weights.sum(axis=-1)

    def replaced(self, old: np.ndarray, k_from: np.ndarray, v_from: np.ndarray) -> np.ndarray:
        """Keys `old` with the K rows of `k_from` and the V rows of `v_from` instead."""
        taken, lost = self.parts(old, old)
        put, gained = self.parts(k_from, v_from)
        return self.out(self.sums - taken + put, self.totals - lost + gained)

    def of_keys(self, first: int, count: int) -> Iterator[tuple[str, np.ndarray]]:
        """Keys first .. first + count - 1, every mistake in turn."""
        keys = np.arange(first, min(first + count, self.keys))
        other = keys + count if first + 2 * count <= self.keys else keys - count
        none = keys[:0]
        yield "dropped", self.replaced(keys, none, none)
        yield "doubled", self.replaced(none, keys, keys)
        if other[0] >= 0:
            yield "shifted", self.replaced(keys, other, other)
            yield "K shifted", self.replaced(keys, other, keys)
            yield "V shifted", self.replaced(keys, keys, other)

    def mutations(self, keys: list[int]) -> Iterator[Mutation]:
        for count, what in ((1, "key"), (PAGE, "page")):
            for key in sorted({key // count * count for key in keys}):
                for kind, out in self.of_keys(key, count):
                    yield Mutation(f"{what} {kind}", str(key), {"out": encoded(self.case, "out", out)})
        right = self.right()
        for head in range(0, self.heads, max(1, self.heads // 4)):
            out = right.copy()
            out[:, :, head] = right[:, :, (head + 1) % self.heads] if self.heads > 1 else 0.0
            yield Mutation("row shifted", f"head {head}", {"out": encoded(self.case, "out", out)})
            out[:, :, head] = np.nan
            yield Mutation("row dropped", f"head {head}", {"out": encoded(self.case, "out", out)})


def keys_to_try(keys: int, some: int, seed: int = 5) -> list[int]:
    """The first and last ones, those at borders of tiles, pages and splits, and some from anywhere."""
    borders = {0, 1, keys - 2, keys - 1, *(border + side for border in (16, 64, 256, keys // 2) for side in (-1, 0))}
    anywhere = np.random.default_rng(seed).integers(0, keys, some)
    return sorted(key for key in borders | {int(key) for key in anywhere} if 0 <= key < keys)


# ---- gemm ----


class Product:
    """D = A B^T."""

    def __init__(self, case: Any) -> None:
        self.case = case
        x = inputs_of(case)
        self.a, self.b = x["A"], x["B"]
        self.d = np.concatenate([self.a.astype(np.float64) @ rows.T for rows in self.blocks(self.b)], axis=1)

    @staticmethod
    def blocks(b: np.ndarray) -> Iterator[np.ndarray]:
        for first in range(0, b.shape[0], 2048):
            yield b[first : first + 2048].astype(np.float64)

    def part(self, a_steps: np.ndarray, b_steps: np.ndarray) -> np.ndarray:
        return self.a[:, a_steps].astype(np.float64) @ self.b[:, b_steps].astype(np.float64).T

    def mutations(self, steps: list[int]) -> Iterator[Mutation]:
        for count, what in ((1, "k"), (8, "k-step of 8"), (32, "k-step of 32")):
            for first in sorted({step // count * count for step in steps}):
                old = np.arange(first, min(first + count, self.a.shape[1]))
                other = old + count if first + 2 * count <= self.a.shape[1] else old - count
                for kind, change in (
                    ("dropped", -self.part(old, old)),
                    ("doubled", self.part(old, old)),
                    ("shifted", self.part(other, other) - self.part(old, old)),
                    ("of B shifted", self.part(old, other) - self.part(old, old)),
                ):
                    yield self.mutation(f"{what} {kind}", first, self.d + change)
        for name, axis in (("row", 0), ("column", 1)):
            for index in sorted({0, self.d.shape[axis] // 3, self.d.shape[axis] - 1}):
                if self.d.shape[axis] < 2:
                    continue
                wrong = self.d.copy()
                place = (index, slice(None)) if axis == 0 else (slice(None), index)
                wrong[place] = np.take(self.d, (index + 1) % self.d.shape[axis], axis)
                yield self.mutation(f"{name} shifted", index, wrong)
                wrong[place] = np.nan
                yield self.mutation(f"{name} dropped", index, wrong)

    def mutation(self, kind: str, where: int, values: np.ndarray) -> Mutation:
        return Mutation(kind, str(where), {"D": encoded(self.case, "D", values)})


# ---- moves ----


def move_mutations(case: Any, tokens: list[int], page: int = PAGE) -> Iterator[Mutation]:
    """Tokens, and pages of them, left out or written with their neighbor's values. Each output is taken as rows of one
    token: its last axes are heads and head_dim."""
    outputs = {operand["name"]: operand for operand in case.operands if operand["role"] != "in"}
    right = {name: np.frombuffer(data, np.uint8).copy() for name, data in case.run({}).items()}
    for name, operand in outputs.items():
        width = right[name].size // int(np.prod(operand["shape"][:-2]))
        rows = right[name].reshape(-1, width)
        for count, what in ((1, "row"), (page, "page")):
            for token in sorted({min(token, len(rows) - 1) // count * count for token in tokens}):
                here = slice(token, min(token + count, len(rows)))
                held = rows[here].copy()
                there = token + count if token + 2 * count <= len(rows) else token - count
                if there >= 0:
                    rows[here] = rows[there : there + len(held)].copy()
                    yield Mutation(f"{what} shifted", f"{name} {token}", right)
                rows[here] = 255
                yield Mutation(f"{what} dropped", f"{name} {token}", right)
                rows[here] = held
