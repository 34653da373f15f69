"""What a model's weights and KV cache take: bytes stored, bytes that a step reads of them, and what fits a memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from bwprof import _core
from bwprof.models.architecture import Architecture
from bwprof.models.steps import WEIGHTS, Part

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


def further_token_bytes(model: Architecture, precision: str, context: int) -> int:
    """What a further token adds to a cache of so many: nothing in layers whose window is full."""
    return kv_bytes(model, precision, 1, context + 1) - kv_bytes(model, precision, 1, context)


def stored_part(part: Part, sizes: Mapping[str, Mapping[str, float]]) -> Part:
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


def read_by(part: Part, model: Architecture) -> int:
    """Bytes of weights, or of the KV cache, that one launch of a part reads."""
    params = part.params
    if part.formats == WEIGHTS:
        rows, columns = (params[name] for name in ("N", "K"))
        return matrix_bytes(rows, columns, part.precision) + part.more
    keys = params["kv_len"] if "num_heads" in params else 0  # an append reads none
    return params["batch"] * keys * kv_token_bytes(model, part.precision)


def most_sequences(model: Architecture, weights: int, kv: str, context: int, fit: Fit) -> int:
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
