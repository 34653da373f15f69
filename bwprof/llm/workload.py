"""The workload of a model's step: its launches (`steps.toml` with a model's sizes), the bytes it stores and reads."""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from bwprof import _core, registry
from bwprof.llm.architecture import Architecture, check_int
from bwprof.text.parsing import check_known, finite_or_none, parse_bytes, repr_short

DECODE, PREFILL = "decode", "prefill"
LAYOUTS = ("fused", "separate")
WEIGHTS, KV = "weights", "kv"

LABELS = ("model", "phase", "role", "count", "step_batch", "context", "weights", "kv")  # columns of a model's rows
LAYER = "layer"  # the role of a row that measures a layer's operations in one graph
AS_STORED = "stored"  # the weights' format of a file that stores each tensor in its own precision

# The tensors of a product in the layout "fused".
FUSED_TENSORS = {"fused_qkv": ("attn_q", "attn_k", "attn_v")} | {
    f"fused_gate_up{ending}": (f"ffn_gate{ending}", f"ffn_up{ending}") for ending in ("", "_exps", "_shexp")
}

RESERVE = 0.1  # the share of the memory for activations and scratch; vLLM's default is the same
MAX_TOKENS, _MAX_POINTS = 2**31 - 1, 1000


@dataclass(frozen=True, slots=True)
class StepPoint:
    """One step: its phase, sequences, tokens in each sequence's cache afterwards, and formats of weights and cache."""

    phase: str
    batch: int
    context: int
    weights: str
    kv: str

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.batch if self.phase == DECODE else self.batch * self.context

    @property
    def title(self) -> str:
        """The beginning of its cases' names."""
        return f"{self.phase} b={self.batch} c={self.context}"


@dataclass(frozen=True, slots=True)
class StepPart:
    """An operation of a step, and how often the step launches it.

    `more`: bytes that it reads beyond those of its precision, negative for fewer, for weights that a file stores in
    another format.
    """

    role: str
    operation: str
    precision: str
    params: dict[str, int]
    count: int
    formats: str
    tensor: str = ""
    more: int = 0

    @property
    def weight_rows(self) -> int:
        """Rows of the weights that the part reads, of all active experts."""
        return self.params["N"] * self.params.get("active", 1)


@dataclass(frozen=True, slots=True)
class OmittedWork:
    """Work of a step beside its operations: launches, bytes, and their time (None: unknown)."""

    what: str
    count: int
    bytes: int
    time_ms: float | None = None


def check_format(name: object, role: str) -> str:
    """Return a precision of the weights or the KV cache; ValueError with the nearest one for an unknown name."""
    what = f"precision of {'the KV cache' if role == KV else 'weights'}"
    return registry.check_precision(str(name), list_formats(role), what)


@cache
def list_formats(role: str) -> tuple[str, ...]:
    """List the precisions that all operations with weights, or with the KV cache, take."""
    operations = {entry["operation"] for entry in _read_steps()["operation"] if entry["formats"] == role}
    taken = [registry.operation(name)["precisions"] for name in operations]
    return tuple(name for name in registry.precision_names() if all(name in precisions for precisions in taken))


def kv_format(weights: str) -> str:
    """Return the cache's default precision: BF16 beside BF16 results, FP32 beside FP32, else FP16."""
    result = registry.precision_types(weights).get("result", {}).get("name")
    return result if result in (weights, "bf16") else "fp16"


def distinct_experts(experts: int, experts_per_token: int, tokens: int) -> float:
    """Return the mean number of experts that get a token if each token chooses at random."""
    return float(experts * (1 - (1 - experts_per_token / experts) ** tokens)) if experts else 0.0


def list_parts(
    model: Architecture,
    point: StepPoint,
    layout: str = "fused",
    stored: Mapping[str, Mapping[str, float]] | None = None,
    *,
    one_layer: bool = False,
) -> list[StepPart]:
    """List the operations of a step, or of one layer of the most frequent kind.

    `stored`: tensor -> precision -> share of its matrices; other tensors are in `point.weights`. ValueError for sizes
    that an operation does not take.
    """
    values = _expression_values(model, point, one_layer=one_layer)
    parts = []
    for entry in _read_steps()["operation"]:
        if point.phase not in entry.get("phases", (DECODE, PREFILL)) or entry.get("layout", layout) != layout:
            continue
        count = _evaluate(entry["count"], values) if entry.get("layer", True) or not one_layer else 0
        if not count:
            continue
        params = {name: _evaluate(text, values) for name, text in entry["params"].items()}
        own, tensor = point.kv if entry["formats"] == KV else point.weights, entry.get("tensor", "")
        for precision, launches in _split_launches(count, (stored or {}).get(tensor, {own: 1.0})):
            complete = registry.complete_params(entry["operation"], precision, params)
            names = entry["role"], entry["operation"], precision
            parts.append(StepPart(*names, complete, launches, entry["formats"], tensor))
    return parts


def list_omitted(model: Architecture, point: StepPoint) -> list[OmittedWork]:
    """List the work that the sum of a step's operations omits, with its bytes in 16 bits."""
    from bwprof.costs import cost

    values = _expression_values(model, point)
    omitted = []
    for entry in _read_steps()["left_out"]:
        count = _evaluate(entry["count"], values)
        if not count:
            continue
        if "operation" in entry:
            params: dict[str, Any] = {name: _evaluate(text, values) for name, text in entry["params"].items()}
            moved = int(cost(entry["operation"], precision="fp16", **params).bytes)
        else:
            moved = 2 * (_evaluate(entry["read"], values) + _evaluate(entry["written"], values))
        omitted.append(OmittedWork(entry["what"], count, moved))
    return omitted


def _split_launches(count: int, shares: Mapping[str, float]) -> Iterator[tuple[str, int]]:
    """Divide launches by shares; cumulative rounding loses none."""
    done, total = 0, 0.0
    for precision, share in shares.items():
        total += share
        launches = round(count * total) - done
        done += launches
        if launches:
            yield precision, launches


def _expression_values(model: Architecture, point: StepPoint, *, one_layer: bool = False) -> dict[str, Any]:
    """Return the names that expressions of steps.toml use."""
    values = asdict(model.one_layer if one_layer else model) | {
        "tokens": point.tokens,
        "batch": point.batch,
        "fresh": 1 if point.phase == DECODE else point.context,
        "context": point.context,
        "mean_taken": distinct_experts(model.experts, model.experts_per_token, point.tokens),
    }
    for name, text in _read_steps()["names"].items():
        values[name] = _evaluate(text, values)
    return values


def _evaluate(text: str, values: dict[str, Any]) -> int:
    return int(eval(_compile(text), {"__builtins__": {}}, values))  # of bwprof's own steps.toml, no user's text


@cache
def _compile(text: str) -> CodeType:
    return compile(text, "steps.toml", "eval")


@cache
def _read_steps() -> dict[str, Any]:
    steps = tomllib.loads((Path(__file__).parents[1] / "data" / "steps.toml").read_text("utf-8"))
    steps["operation"] = [steps["default"] | entry for entry in steps["operation"]]
    return steps


@dataclass(frozen=True, slots=True)
class Fit:
    """A step's bytes of weights and cache, and the device's memory; `reserve` is the share to leave free."""

    weights: int
    kv: int
    memory: int
    reserve: float

    @property
    def usable(self) -> int:
        """The memory for weights and cache, bytes."""
        return int(self.memory * (1 - self.reserve))

    @property
    def fits(self) -> bool:
        return self.weights + self.kv <= self.usable


def matrix_bytes(rows: int, columns: int, precision: str) -> int:
    """Return the bytes of a matrix of weights with its scales."""
    return _core.matrix_bytes(precision, "weight", rows, columns)


def kv_token_bytes(model: Architecture, precision: str) -> int:
    """Return the bytes of K and V of one token in one layer, with each head's scales."""
    return 2 * _core.matrix_bytes(precision, "cache", model.num_kv_heads, model.head_dim)


def kv_bytes(model: Architecture, precision: str, batch: int, context: int) -> int:
    """Return the bytes of a batch's KV cache; layers with a window store no more tokens than it."""
    full = model.layers - model.window_layers
    tokens = full * context + model.window_layers * min(model.window, context)
    return batch * tokens * kv_token_bytes(model, precision)


def weight_bytes(model: Architecture, precision: str) -> int:
    """Return the bytes of all matrices and embeddings; narrow formats store embeddings in 16 bits."""
    matrices = sum(count * matrix_bytes(rows, columns, precision) for _, rows, columns, count in model.matrices())
    return matrices + _core.matrix_bytes(precision, "result", 1, model.embedding_elements)


def bytes_read_by(part: StepPart, model: Architecture) -> int:
    """Return the bytes of weights or KV cache that one launch of a part reads."""
    params = part.params
    if part.formats == WEIGHTS:
        return matrix_bytes(part.weight_rows, params["K"], part.precision) + part.more
    keys = params["kv_len"] if "num_heads" in params else 0  # an append reads none
    return params["batch"] * keys * kv_token_bytes(model, part.precision)


def largest_batch(model: Architecture, kv: str, context: int, left: int) -> int:
    """Return the largest batch whose caches fit so many bytes; 0 if there is none."""
    return max(0, left // kv_bytes(model, kv, 1, context))


def longest_context(model: Architecture, kv: str, batch: int, left: int) -> int | None:
    """Return the longest context of a batch that fits so many bytes, tokens; 0 if there is none.

    None: any context fits, because every layer has a window.
    """
    contexts = range(1, MAX_TOKENS + 1)
    longest = bisect_right(contexts, left, key=lambda context: kv_bytes(model, kv, batch, context))
    return longest if longest < MAX_TOKENS else None


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The weights as a file stores them.

    `types`: type -> tensors, bytes, and token_bytes, those that one token reads. `tensors`: tensor -> precision in
    which its matrices are timed -> share of them. `sizes`: tensor -> precision -> bytes of one weight, if the
    precision's own differ. `kv`: the cache's precision, if the file says so.
    """

    total_bytes: int
    types: dict[str, dict[str, int]] = field(default_factory=dict)
    tensors: dict[str, dict[str, float]] = field(default_factory=dict)
    sizes: dict[str, dict[str, float]] = field(default_factory=dict)
    kv: str = ""

    @property
    def is_fused(self) -> bool:
        """Whether products of several tensors have a precision."""
        return "fused_qkv" in self.tensors

    def resize(self, part: StepPart) -> StepPart:
        """Return a part with the bytes that the file stores beyond those of its precision."""
        size = self.sizes.get(part.tensor, {}).get(part.precision)
        if size is None:
            return part
        rows, columns = part.weight_rows, part.params["K"]
        return replace(part, more=round(rows * columns * size) - matrix_bytes(rows, columns, part.precision))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model, the steps to measure, and how: layout, memory, reserve, and whether a layer in one graph as well.

    ValueError for an unknown format, layout or phase, a share or memory out of range, a size that an operation refuses.
    """

    model: Architecture
    points: tuple[StepPoint, ...]
    layout: str = "fused"
    reserve: float = RESERVE
    memory_bytes: int | None = None  # None: the device's
    stored: StoredWeights | None = None
    chain: bool = False

    def __post_init__(self) -> None:
        share = finite_or_none(self.reserve)
        if share is None or not 0 <= share < 1:
            raise ValueError(
                f"reserve is {repr_short(self.reserve)}: a share of the memory from 0 to below 1 is needed"
            )
        if self.memory_bytes is not None and not 1 <= self.memory_bytes < 2**63:
            raise ValueError(f"memory is {self.memory_bytes}: allowed are 1 to 2^63 - 1 bytes")
        check_known("layout", self.layout, LAYOUTS)
        if not 0 < len(self.points) <= _MAX_POINTS:
            raise ValueError(f"{len(self.points)} steps are requested: allowed are 1 to {_MAX_POINTS}")
        for point in self.points:
            check_known("phase", point.phase, (DECODE, PREFILL))
            if point.weights != AS_STORED or self.stored is None:
                check_format(point.weights, WEIGHTS)
            check_format(point.kv, KV)
            try:
                self.parts(point)
            except ValueError as error:
                raise ValueError(f"{self.model.name}, {point.title}: {error}") from None

    def parts(self, point: StepPoint, *, one_layer: bool = False) -> list[StepPart]:
        """List a step's operations, or those of one layer."""
        if point.weights != AS_STORED or self.stored is None:
            return list_parts(self.model, point, self.layout, one_layer=one_layer)
        plain = replace(point, weights="fp16")
        parts = list_parts(self.model, plain, self.layout_of(AS_STORED), self.stored.tensors, one_layer=one_layer)
        return [self.stored.resize(part) for part in parts]

    def layout_of(self, weights: str) -> str:
        """Return the layout of products: separate for weights that a file stores separately."""
        return self.layout if weights != AS_STORED or self.stored is None or self.stored.is_fused else "separate"

    def weight_bytes(self, weights: str) -> int:
        """Return the bytes of the weights in a format."""
        if weights == AS_STORED and self.stored is not None:
            return self.stored.total_bytes
        return weight_bytes(self.model, weights)

    def fit(self, point: StepPoint, memory_bytes: int) -> Fit:
        kv = kv_bytes(self.model, point.kv, point.batch, point.context)
        return Fit(self.weight_bytes(point.weights), kv, self.memory_bytes or memory_bytes, self.reserve)

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        points = [list(astuple(point)) for point in self.points]
        return {"architecture": data.pop("model"), **data, "points": points}

    @classmethod
    def from_dict(cls, data: Any) -> ModelRequest:
        """Read what `to_dict` wrote; ValueError for anything else."""
        if not isinstance(data, Mapping):
            raise ValueError(f"model is {repr_short(data)}: an object is needed")
        try:
            return cls(
                Architecture.from_dict(data["architecture"]),
                tuple(StepPoint(str(p[0]), int(p[1]), int(p[2]), str(p[3]), str(p[4])) for p in data["points"]),
                str(data["layout"]),
                data["reserve"],
                None if data.get("memory_bytes") is None else parse_bytes(data["memory_bytes"], "memory_bytes"),
                _parse_stored(data["stored"]) if data.get("stored") else None,
                bool(data.get("chain", False)),
            )
        except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"no model's run: {type(error).__name__}: {error}") from None


def _parse_stored(data: Mapping[str, Any]) -> StoredWeights:
    types, tensors, sizes = (
        {str(name): dict(line.items()) for name, line in data.get(key, {}).items()}
        for key in ("types", "tensors", "sizes")
    )
    for count in (data["total_bytes"], *(count for line in types.values() for count in line.values())):
        check_int("a number of stored", count, 0, 2**63 - 1)
    for lines, most in ((tensors, 1), (sizes, 1024)):
        for share in (share for line in lines.values() for share in line.values()):
            known = finite_or_none(share)
            if known is None or not 0 <= known <= most:
                raise ValueError(f"a share, or a size, of stored is {repr_short(share)}: allowed are 0 to {most}")
    return StoredWeights(data["total_bytes"], types, tensors, sizes, str(data.get("kv", "")))
