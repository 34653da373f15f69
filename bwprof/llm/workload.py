"""The workload of a step: its launches (`steps.toml` with a model's sizes) and the bytes it stores and reads."""

from __future__ import annotations

import ast
import math
import operator
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from bwprof import _core, registry
from bwprof.llm.architecture import Architecture
from bwprof.text.parsing import describe_unknown, finite_or_none, parse_bytes, repr_short

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
class StepPoint:
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
class StepPart:
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
class OmittedWork:
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
    return registry.check_precision(str(given), list_formats(role), what)


@cache
def list_formats(role: str) -> tuple[str, ...]:
    """The precisions that all operations with weights, or with the KV cache, take."""
    names = {entry["operation"] for entry in _lists()["operation"] if entry["formats"] == role}
    return tuple(
        name for name in registry.precision_names() if all(name in registry.operation(of)["precisions"] for of in names)
    )


def kv_format(weights: str) -> str:
    """The KV cache's precision where nobody says: as wide as the weights, but not narrower than 16 bits."""
    return weights if weights in list_formats(KV) and not registry.is_narrow(weights) else "fp16"


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


def list_parts(
    model: Architecture,
    point: StepPoint,
    layout: str = "fused",
    stored: Mapping[str, Mapping[str, float]] | None = None,
    *,
    one_layer: bool = False,
) -> list[StepPart]:
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
            whole = registry.complete_params(entry["operation"], precision, params)
            names = entry["role"], entry["operation"], precision
            found.append(StepPart(*names, whole, times, entry["formats"], entry.get("tensor", "")))
    return found


def list_omitted(model: Architecture, point: StepPoint) -> list[OmittedWork]:
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
        found.append(OmittedWork(entry["what"], count, moved))
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


def _values(whole: Architecture, point: StepPoint, *, one_layer: bool = False) -> dict[str, int]:
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
    found = tomllib.loads((Path(__file__).parents[1] / "data" / "steps.toml").read_text("utf-8"))
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


RESERVE = 0.1  # of the memory, for activations, scratch and what else is there: vLLM's default leaves as much

_MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that a step needs and that there are; `reserve` is the share of the memory that it leaves alone."""

    weights: int
    kv: int
    memory: int
    reserve: float

    @property
    def usable(self) -> int:
        """What weights and cache may take."""
        return int(self.memory * (1 - self.reserve))

    @property
    def fits(self) -> bool:
        """Whether they do."""
        return self.weights + self.kv <= self.usable


@cache
def _type_bytes(precision: str, role: str) -> tuple[int, int, int]:
    """Of an operand's type: bytes of a block, its elements, and bytes of a scale (0 where there is none)."""
    roles = next(found for found in _core.precisions() if found["name"] == precision)
    types = {found["name"]: found for found in _core.dtypes()}
    kind = types[roles[role]]
    narrow = kind["narrow"] and roles["scale"]
    return kind["block_bytes"], kind["block_elems"], types[roles["scale"]]["block_bytes"] if narrow else 0


def matrix_bytes(rows: int, columns: int, precision: str) -> int:
    """A matrix of weights, its rows' scales included."""
    size, elems, scale = _type_bytes(precision, "weight")
    return rows * (-(-columns // elems) * size + scale)


def kv_token_bytes(model: Architecture, precision: str) -> int:
    """K and V of one token in one layer, with the scales of each head."""
    size, elems, scale = _type_bytes(precision, "cache")
    return 2 * model.num_kv_heads * (-(-model.head_dim // elems) * size + scale)


def kv_bytes(model: Architecture, precision: str, batch: int, context: int) -> int:
    """The cache of so many sequences of so many tokens; layers with a window keep no more than it."""
    full = model.layers - model.window_layers
    tokens = full * context + model.window_layers * min(model.window, context)
    return batch * tokens * kv_token_bytes(model, precision)


def next_token_bytes(model: Architecture, precision: str, context: int) -> int:
    """What a further token adds to a cache of so many: nothing in layers whose window is full."""
    return kv_bytes(model, precision, 1, context + 1) - kv_bytes(model, precision, 1, context)


def stored_part(part: StepPart, sizes: Mapping[str, Mapping[str, float]]) -> StepPart:
    """Give a part what its weights take in a file beyond what they take in its precision, at so many bytes a weight."""
    size = sizes.get(part.tensor, {}).get(part.precision)
    if size is None:
        return part
    rows, columns = part.params["N"], part.params["K"]
    return replace(part, more=round(rows * columns * size) - matrix_bytes(rows, columns, part.precision))


def weight_bytes(model: Architecture, precision: str) -> int:
    """All matrices, and the embeddings: in 16 bits where the matrices are narrower, since nothing multiplies them."""
    matrices = sum(count * matrix_bytes(rows, columns, precision) for _, rows, columns, count in model.matrices())
    size, elems, _ = _type_bytes(precision, "result")
    return matrices + model.embedding_elements * size // elems


def bytes_read_by(part: StepPart, model: Architecture) -> int:
    """Bytes of weights, or of the KV cache, that one launch of a part reads."""
    params = part.params
    if part.formats == WEIGHTS:
        rows, columns = (params[name] for name in ("N", "K"))
        return matrix_bytes(rows, columns, part.precision) + part.more
    keys = params["kv_len"] if "num_heads" in params else 0  # an append reads none
    return params["batch"] * keys * kv_token_bytes(model, part.precision)


def largest_batch(model: Architecture, weights: int, kv: str, context: int, fit: Fit) -> int:
    """The largest batch whose caches fit beside the weights; 0 where not even the weights do."""
    left = fit.usable - weights
    return max(0, left // kv_bytes(model, kv, 1, context)) if left > 0 else 0


def longest_context(model: Architecture, weights: int, kv: str, batch: int, fit: Fit) -> int | None:
    """The longest context of so many sequences that fits, tokens; 0 where there is none, None where any does: the
    caches of layers that all have a window grow no further.
    """
    low, high = 0, _MOST_TOKENS
    while low < high:
        middle = (low + high + 1) // 2
        fits = weights + kv_bytes(model, kv, batch, middle) <= fit.usable
        low, high = (middle, high) if fits else (low, middle - 1)
    return low if low < _MOST_TOKENS else None


# The columns that a model's rows have beside the schema's.
LABELS = ("model", "phase", "role", "count", "step_batch", "context", "weights", "kv")

LAYER = "layer"  # the role of a row that stands for a layer's operations in one graph

AS_STORED = "stored"  # the weights' format of a file that says how each tensor is stored

# Tensors of one product in the layout "fused".
FUSED_TENSORS = {"fused_qkv": ("attn_q", "attn_k", "attn_v")} | {
    f"fused_gate_up{ending}": (f"ffn_gate{ending}", f"ffn_up{ending}") for ending in ("", "_exps", "_shexp")
}

_MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """What a file says of its weights: of each type its bytes and how many of them a token reads, and in which of our
    precisions each tensor's matrices are timed (shares of them), with the bytes of a weight of theirs (`sizes`; the
    precision's own where it has none). `kv` is the precision of the cache that it names.
    """

    total_bytes: int
    types: dict[str, dict[str, int]] = field(default_factory=dict)
    tensors: dict[str, dict[str, float]] = field(default_factory=dict)
    sizes: dict[str, dict[str, float]] = field(default_factory=dict)
    kv: str = ""

    @property
    def is_fused(self) -> bool:
        """Whether it says how products of several tensors are stored."""
        return "fused_qkv" in self.tensors


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model, its steps, and the share of the memory that they leave alone."""

    model: Architecture
    points: tuple[StepPoint, ...]
    layout: str = "fused"
    reserve: float = RESERVE
    memory_bytes: int | None = None  # None: the device's
    stored: StoredWeights | None = None
    chain: bool = False  # a layer in one graph as well

    def parts(self, point: StepPoint, *, one_layer: bool = False) -> list[StepPart]:
        """A step's operations, or those of one layer: see `steps.parts`."""
        if point.weights != AS_STORED or self.stored is None:
            return list_parts(self.model, point, self.layout, one_layer=one_layer)
        plain = replace(point, weights="fp16")
        launches = list_parts(self.model, plain, self.layout_of(AS_STORED), self.stored.tensors, one_layer=one_layer)
        return [stored_part(part, self.stored.sizes) for part in launches]

    def layout_of(self, weights: str) -> str:
        """The layout of products with the weights in a format: separate where a file knows no other."""
        return self.layout if weights != AS_STORED or self.stored is None or self.stored.is_fused else "separate"

    def check_roles(self, point: StepPoint, roles: Iterable[object]) -> None:
        """ValueError for a role that no operation of the step has, with the nearest that one has."""
        known = sorted({part.role for part in self.parts(point)})
        for role in roles:
            if role not in known:
                raise ValueError(f"column role: {describe_unknown(f'role in a {point.phase} step', role, known)}")

    def weight_bytes(self, weights: str) -> int:
        """What the weights take in a precision, or as a file stores them."""
        if weights == AS_STORED and self.stored is not None:
            return self.stored.total_bytes
        return weight_bytes(self.model, weights)

    def fit(self, point: StepPoint, memory_bytes: int) -> Fit:
        """Whether a step fits a memory, or the one that was given."""
        kv = kv_bytes(self.model, point.kv, point.batch, point.context)
        return Fit(self.weight_bytes(point.weights), kv, self.memory_bytes or memory_bytes, self.reserve)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        stored = self.stored
        return {
            "architecture": self.model.to_dict(),
            "points": [list(astuple(point)) for point in self.points],
            "layout": self.layout,
            "reserve": self.reserve,
            "memory_bytes": self.memory_bytes,
            "chain": self.chain,
            "stored": stored and asdict(stored),
        }

    @classmethod
    def from_dict(cls, found: Any) -> ModelRequest:
        """The inverse of `to_dict`, of a file that may not be bwprof's own writing; ValueError for what is none."""
        if not isinstance(found, Mapping):
            raise ValueError(f"model is {repr_short(found)}: an object is needed")
        try:
            points = tuple(StepPoint(str(p[0]), int(p[1]), int(p[2]), str(p[3]), str(p[4])) for p in found["points"])
            stored = found.get("stored")
            question = cls(
                Architecture.from_dict(found["architecture"]),
                points,
                str(found["layout"]),
                check_reserve(found["reserve"]),
                None if found.get("memory_bytes") is None else parse_bytes(found["memory_bytes"], "memory_bytes"),
                _stored(stored) if stored else None,
                bool(found.get("chain", False)),
            )
        except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"no model's run: {type(error).__name__}: {error}") from None
        check_points(question)
        return question


def _stored(found: Mapping[str, Any]) -> StoredWeights:
    """The inverse of what `Question.to_dict` makes of it; ValueError for numbers that are none."""
    types = {str(kind): dict(line.items()) for kind, line in found["types"].items()}
    tensors = {str(name): dict(shares.items()) for name, shares in found["tensors"].items()}
    for count in (found["total_bytes"], *(count for line in types.values() for count in line.values())):
        if type(count) is not int or not 0 <= count < 2**63:
            raise ValueError(f"a number of stored is {repr_short(count)}: allowed are 0 to 2^63 - 1")
    sizes = {str(name): dict(shares.items()) for name, shares in found.get("sizes", {}).items()}
    for shares, most in ((tensors, 1), (sizes, 1024)):
        for share in (share for own in shares.values() for share in own.values()):
            known = finite_or_none(share)
            if known is None or not 0 <= known <= most:
                raise ValueError(f"a share, or a size, of stored is {repr_short(share)}: allowed are 0 to {most}")
    return StoredWeights(found["total_bytes"], types, tensors, sizes, str(found.get("kv", "")))


def make_points(
    *,
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    weights: tuple[str, ...],
    kvs: tuple[str, ...],
    prefill: bool,
    stored: StoredWeights | None,
) -> tuple[StepPoint, ...]:
    """The product of what was asked for, checked; `stored`: how a file has the weights, and the cache.

    Raises
    ------
    ValueError
        For what is out of range, or not known.
    """
    for name, numbers in (("batch", batches), ("context", contexts)):
        for number in numbers:
            if not 1 <= number < 2**31:
                raise ValueError(f"{name} is {number}: allowed are 1 to {2**31 - 1}")
    first = [AS_STORED] if stored else ["fp16"]
    formats = [AS_STORED if stored and name == AS_STORED else check_format(name, WEIGHTS) for name in weights or first]
    caches = [check_format(name, KV) for name in kvs]
    own = stored.kv if stored else ""
    pairs = [(w, kv) for w in formats for kv in (caches or [own if own and w == AS_STORED else kv_format(w)])]
    found = [
        StepPoint(phase, batch, context, w, kv)
        for phase in ((DECODE, PREFILL) if prefill else (DECODE,))
        for w, kv in pairs
        for context in contexts
        for batch in batches
    ]
    points = tuple(dict.fromkeys(found))
    if not 0 < len(points) <= _MOST_POINTS:
        raise ValueError(f"{len(points)} steps are asked for: allowed are 1 to {_MOST_POINTS}")
    return points


def check_points(question: ModelRequest) -> None:
    """ValueError where a step cannot be expanded: a size that an operation does not take, a format that is none."""
    if question.layout not in LAYOUTS:
        raise ValueError(describe_unknown("layout", question.layout, LAYOUTS))
    for point in question.points:
        if point.phase not in (DECODE, PREFILL):
            raise ValueError(describe_unknown("phase", point.phase, (DECODE, PREFILL)))
        if point.weights != AS_STORED or question.stored is None:
            check_format(point.weights, WEIGHTS)
        check_format(point.kv, KV)
        try:
            question.parts(point)
        except ValueError as error:
            raise ValueError(f"{question.model.name}, {point.title}: {error}") from None


def check_reserve(given: Any) -> float:
    """The share of the memory that weights and caches leave alone; ValueError when it is none."""
    share = finite_or_none(given)
    if share is None or not 0 <= share < 1:
        raise ValueError(f"reserve is {repr_short(given)}: a share of the memory from 0 to below 1 is needed")
    return share
