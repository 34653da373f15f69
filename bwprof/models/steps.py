"""What one step of a model launches: `steps.toml` with a model's sizes put in. Nothing here is measured."""

from __future__ import annotations

import ast
import math
import operator
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bwprof import registry
from bwprof.models.architecture import Architecture

DECODE, PREFILL = "decode", "prefill"
LAYOUTS = ("fused", "separate")
WEIGHTS, KV = "weights", "kv"

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, slots=True)
class Point:
    """One step: of how many sequences, with how many tokens in each one's cache afterwards, stored in what.

    `stored` says of GGUF tensors in which precisions, and in how many layers each, they are: those of `weights` then.
    """

    phase: str
    batch: int
    context: int
    weights: str
    kv: str

    @property
    def tokens(self) -> int:
        """New tokens, of all sequences."""
        return self.batch if self.phase == DECODE else self.batch * self.context

    @property
    def title(self) -> str:
        """As the names of its cases begin."""
        return f"{self.phase} b={self.batch} c={self.context}"


@dataclass(frozen=True, slots=True)
class Part:
    """An operation of a step, and how often the step launches it. It reads `more` bytes than the operation does in its
    precision, fewer below 0, where a file stores the weights in another way.
    """

    role: str
    operation: str
    precision: str
    params: dict[str, int]
    count: int
    formats: str
    tensor: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a step does beside its operations: launches, bytes that they must move, and how long that would take (None:
    unknown).
    """

    what: str
    count: int
    bytes: int
    time_ms: float | None = None


def check_format(given: object, role: str) -> str:
    """A precision that weights, or the KV cache, can have; ValueError with the nearest one for any other."""
    what = f"precision of {'the KV cache' if role == KV else 'weights'}"
    return registry.check_precision(str(given), formats_of(role), what)


@cache
def formats_of(role: str) -> tuple[str, ...]:
    """The precisions that all operations with weights, or with the KV cache, take."""
    names = {entry["operation"] for entry in _lists()["operation"] if entry["formats"] == role}
    return tuple(
        name for name in registry.precision_names() if all(name in registry.operation(of)["precisions"] for of in names)
    )


def kv_format(weights: str) -> str:
    """The KV cache's precision where nobody says: as wide as the weights, but not narrower than 16 bits."""
    return weights if weights in formats_of(KV) and not registry.is_narrow(weights) else "fp16"


def distinct_experts(experts: int, experts_per_token: int, tokens: int) -> float:
    """How many experts get a token, on average, if each token takes its own ones by chance.

    Examples
    --------
    >>> distinct_experts(8, 2, 1), round(distinct_experts(8, 2, 16), 2)
    (2.0, 7.92)
    """
    if not experts:
        return 0.0
    return float(experts * (1 - (1 - experts_per_token / experts) ** tokens))


def parts(
    model: Architecture,
    point: Point,
    layout: str = "fused",
    stored: Mapping[str, Mapping[str, float]] | None = None,
    *,
    one_layer: bool = False,
) -> list[Part]:
    """Every operation of a step.

    Parameters
    ----------
    stored : mapping, optional
        Tensor -> precision -> share of its matrices, for weights of several precisions; others are `point.weights`.
    one_layer : bool
        Only those of a layer, of the kind that there are most of, in the shapes that the step has.

    Raises
    ------
    ValueError
        For sizes that an operation does not take.
    """
    values = _values(model, point, one_layer=one_layer)
    found = []
    for entry in _lists()["operation"]:
        if point.phase not in entry.get("phases", (DECODE, PREFILL)) or entry.get("layout", layout) != layout:
            continue
        if one_layer and not entry.get("layer", True):
            continue
        count = _evaluated(entry["count"], values)
        if not count:
            continue
        params = {name: _evaluated(text, values) for name, text in entry["params"].items()}
        own = point.kv if entry["formats"] == KV else point.weights
        shares = (stored or {}).get(entry.get("tensor", ""), {own: 1.0})
        for precision, times in _divided(count, shares):
            whole = registry.complete(entry["operation"], precision, params)
            names = entry["role"], entry["operation"], precision
            found.append(Part(*names, whole, times, entry["formats"], entry.get("tensor", "")))
    return found


def left_out(model: Architecture, point: Point) -> list[LeftOut]:
    """What the sum of a step's operations does not have, with the bytes that it must move in 16 bits."""
    from bwprof.costs import cost

    values = _values(model, point)
    found = []
    for entry in _lists()["left_out"]:
        count = _evaluated(entry["count"], values)
        if not count:
            continue
        if "operation" in entry:
            params: dict[str, Any] = {name: _evaluated(text, values) for name, text in entry["params"].items()}
            moved = int(cost(entry["operation"], precision="fp16", **params).bytes)
        else:
            moved = 2 * (_evaluated(entry["read"], values) + _evaluated(entry["written"], values))
        found.append(LeftOut(entry["what"], count, moved))
    return found


def _divided(count: int, shares: Mapping[str, float]) -> Iterator[tuple[str, int]]:
    """So many launches, shared out; each share's end is rounded, so that none is lost."""
    done, total = 0, 0.0
    for precision, share in shares.items():
        total += share
        times = round(count * total) - done
        done += times
        if times:
            yield precision, times


def _expert_values(model: Architecture, tokens: int, *, one_layer: bool) -> dict[str, int]:
    """Count the launches of experts: one a layer, of the matrices of all experts that have tokens, side by side. Layers
    of one token more make up for the fraction of a mean.
    """
    layers = model.layers - model.dense_layers if model.experts else 0
    taken = distinct_experts(model.experts, model.experts_per_token, tokens) if layers else 1.0
    share, least = math.modf(round(tokens * model.experts_per_token / taken, 9))
    fuller = round(layers * share)
    if one_layer and layers:
        of_kind = model.one_layer.layers - model.one_layer.dense_layers
        fuller, layers = of_kind * round(fuller / layers), of_kind
    return {
        "expert_layers": layers,
        "expert_tokens": int(least),
        "expert_launches": layers - fuller,
        "fuller_launches": fuller,
        "taken_ffn": _rows(taken * model.ffn),
        "taken_hidden": _rows(taken * model.hidden),
    }


def _rows(mean: float) -> int:
    """Make whole rows of a mean: a multiple of 16 where it has a fraction."""
    whole = round(mean)
    return whole if math.isclose(mean, whole, rel_tol=1e-12) else max(16, 16 * round(mean / 16))


def _values(whole: Architecture, point: Point, *, one_layer: bool = False) -> dict[str, int]:
    """The numbers that expressions know."""
    experts = _expert_values(whole, point.tokens, one_layer=one_layer)
    model = whole.one_layer if one_layer else whole
    later_windows = (point.context - 1) // model.window if model.window else 0
    alike = ("hidden", "ffn", "vocab", "layers", "head_dim", "experts", "shared_ffn", "norms", "window_layers")
    return {
        **{name: getattr(model, name) for name in alike},
        "tokens": point.tokens,
        "batch": point.batch,
        "fresh": 1 if point.phase == DECODE else point.context,
        "context": point.context,
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "gates": 2 if model.gated else 1,
        "dense_layers": model.dense_layers if model.experts else model.layers,
        "dense_ffn": model.dense_ffn if model.experts else model.ffn,
        "has_shared": int(model.shared_ffn > 0),
        "full_layers": model.layers - model.window_layers,
        "window": min(model.window, point.context),
        "later_windows": later_windows,
        "has_later_windows": int(later_windows > 0),
        "rotary": int(model.rotary),
        **experts,
    }


def _evaluated(text: str, values: Mapping[str, int]) -> int:
    """An expression of steps.toml."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        assert isinstance(node, ast.Constant)
        return int(node.value)  # type: ignore[arg-type]  # steps.toml has whole numbers only

    return value(_parsed(text))


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@cache
def _lists() -> dict[str, list[dict[str, Any]]]:
    found = tomllib.loads((Path(__file__).parent / "steps.toml").read_text("utf-8"))
    found["operation"] = [found["default"] | entry for entry in found["operation"]]
    return {name: [one for entry in found[name] for one in _with_fuller(entry)] for name in ("operation", "left_out")}


def _with_fuller(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """An entry, and the one of layers whose experts have a token more."""
    if "expert_launches" not in entry["count"]:
        return [entry]

    def fuller(text: str) -> str:
        return text.replace("expert_tokens", "(expert_tokens + 1)").replace("expert_launches", "fuller_launches")

    other = {name: fuller(value) if isinstance(value, str) else value for name, value in entry.items()}
    other["params"] = {name: fuller(text) for name, text in entry.get("params", {}).items()}
    label = "role" if "role" in entry else "what"
    return [entry, other | {label: f"{entry[label]}, fuller"}]
