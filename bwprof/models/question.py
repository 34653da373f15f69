"""What is asked of a model: which steps of it, on how much memory; and each step's operations as cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from bwprof.models import steps, storage
from bwprof.models.architecture import Architecture
from bwprof.models.steps import DECODE, KV, PREFILL, WEIGHTS, Part, Point
from bwprof.text import amount, finite_number, shown, unknown

# The columns that a model's rows have beside the schema's.
LABELS = ("model", "phase", "role", "count", "step_batch", "context", "weights", "kv")

LAYER = "layer"  # the role of a row that stands for a layer's operations in one graph

AS_STORED = "stored"  # the weights' format of a file that says how each tensor is stored
# Tensors of one product in the layout "fused".
FUSED = {"fused_qkv": ("attn_q", "attn_k", "attn_v")} | {
    f"fused_gate_up{ending}": (f"ffn_gate{ending}", f"ffn_up{ending}") for ending in ("", "_exps", "_shexp")
}
_MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class Stored:
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
class Question:
    """A model, its steps, and the share of the memory that they leave alone."""

    model: Architecture
    points: tuple[Point, ...]
    layout: str = "fused"
    reserve: float = storage.RESERVE
    memory_bytes: int | None = None  # None: the device's
    stored: Stored | None = None
    chain: bool = False  # a layer in one graph as well

    def parts(self, point: Point, *, one_layer: bool = False) -> list[Part]:
        """A step's operations, or those of one layer: see `steps.parts`."""
        if point.weights != AS_STORED or self.stored is None:
            return steps.parts(self.model, point, self.layout, one_layer=one_layer)
        plain = replace(point, weights="fp16")
        parts = steps.parts(self.model, plain, self.layout_of(AS_STORED), self.stored.tensors, one_layer=one_layer)
        return [storage.stored_part(part, self.stored.sizes) for part in parts]

    def layout_of(self, weights: str) -> str:
        """The layout of products with the weights in a format: separate where a file knows no other."""
        return self.layout if weights != AS_STORED or self.stored is None or self.stored.is_fused else "separate"

    def check_roles(self, point: Point, roles: Iterable[object]) -> None:
        """ValueError for a role that no operation of the step has, with the nearest that one has."""
        known = sorted({part.role for part in self.parts(point)})
        for role in roles:
            if role not in known:
                raise ValueError(f"column role: {unknown(f'role in a {point.phase} step', role, known)}")

    def weight_bytes(self, weights: str) -> int:
        """What the weights take in a precision, or as a file stores them."""
        if weights == AS_STORED and self.stored is not None:
            return self.stored.total_bytes
        return storage.weight_bytes(self.model, weights)

    def fit(self, point: Point, memory_bytes: int) -> storage.Fit:
        """Whether a step fits a memory, or the one that was given."""
        kv = storage.kv_bytes(self.model, point.kv, point.batch, point.context)
        return storage.Fit(self.weight_bytes(point.weights), kv, self.memory_bytes or memory_bytes, self.reserve)

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
    def from_dict(cls, found: Any) -> Question:
        """The inverse of `to_dict`, of a file that may not be bwprof's own writing; ValueError for what is none."""
        if not isinstance(found, Mapping):
            raise ValueError(f"model is {shown(found)}: an object is needed")
        try:
            points = tuple(Point(str(p[0]), int(p[1]), int(p[2]), str(p[3]), str(p[4])) for p in found["points"])
            stored = found.get("stored")
            question = cls(
                Architecture.from_dict(found["architecture"]),
                points,
                str(found["layout"]),
                check_reserve(found["reserve"]),
                None if found.get("memory_bytes") is None else amount(found["memory_bytes"], "memory_bytes"),
                _stored(stored) if stored else None,
                bool(found.get("chain", False)),
            )
        except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"no model's run: {type(error).__name__}: {error}") from None
        check_points(question)
        return question


def _stored(found: Mapping[str, Any]) -> Stored:
    """The inverse of what `Question.to_dict` makes of it; ValueError for numbers that are none."""
    types = {str(kind): dict(line.items()) for kind, line in found["types"].items()}
    tensors = {str(name): dict(shares.items()) for name, shares in found["tensors"].items()}
    for count in (found["total_bytes"], *(count for line in types.values() for count in line.values())):
        if type(count) is not int or not 0 <= count < 2**63:
            raise ValueError(f"a number of stored is {shown(count)}: allowed are 0 to 2^63 - 1")
    sizes = {str(name): dict(shares.items()) for name, shares in found.get("sizes", {}).items()}
    for shares, most in ((tensors, 1), (sizes, 1024)):
        for share in (share for own in shares.values() for share in own.values()):
            known = finite_number(share)
            if known is None or not 0 <= known <= most:
                raise ValueError(f"a share, or a size, of stored is {shown(share)}: allowed are 0 to {most}")
    return Stored(found["total_bytes"], types, tensors, sizes, str(found.get("kv", "")))


def points_of(
    *,
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    weights: tuple[str, ...],
    kvs: tuple[str, ...],
    prefill: bool,
    stored: Stored | None,
) -> tuple[Point, ...]:
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
    formats = [
        AS_STORED if stored and name == AS_STORED else steps.check_format(name, WEIGHTS) for name in weights or first
    ]
    caches = [steps.check_format(name, KV) for name in kvs]
    own = stored.kv if stored else ""
    pairs = [(w, kv) for w in formats for kv in (caches or [own if own and w == AS_STORED else steps.kv_format(w)])]
    found = [
        Point(phase, batch, context, w, kv)
        for phase in ((DECODE, PREFILL) if prefill else (DECODE,))
        for w, kv in pairs
        for context in contexts
        for batch in batches
    ]
    points = tuple(dict.fromkeys(found))
    if not 0 < len(points) <= _MOST_POINTS:
        raise ValueError(f"{len(points)} steps are asked for: allowed are 1 to {_MOST_POINTS}")
    return points


def check_points(question: Question) -> None:
    """ValueError where a step cannot be expanded: a size that an operation does not take, a format that is none."""
    if question.layout not in steps.LAYOUTS:
        raise ValueError(unknown("layout", question.layout, steps.LAYOUTS))
    for point in question.points:
        if point.phase not in (DECODE, PREFILL):
            raise ValueError(unknown("phase", point.phase, (DECODE, PREFILL)))
        if point.weights != AS_STORED or question.stored is None:
            steps.check_format(point.weights, WEIGHTS)
        steps.check_format(point.kv, KV)
        try:
            question.parts(point)
        except ValueError as error:
            raise ValueError(f"{question.model.name}, {point.title}: {error}") from None


def check_reserve(given: Any) -> float:
    """The share of the memory that weights and caches leave alone; ValueError when it is none."""
    share = finite_number(given)
    if share is None or not 0 <= share < 1:
        raise ValueError(f"reserve is {shown(given)}: a share of the memory from 0 to below 1 is needed")
    return share
