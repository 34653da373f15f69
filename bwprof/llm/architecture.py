"""The sizes of a decoder-only language model: what decides the operations of its steps and the bytes of its weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from bwprof.text.parsing import describe_unknown, repr_short

_MOST = 2**31 - 1

_MOST_LAYERS = 100_000


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model's sizes, checked.

    `ffn` is the inner size of the MLP, of one expert where there are `experts`; `dense_layers` have an ordinary MLP of
    `dense_ffn` instead, and every token passes one of `shared_ffn` beside its `experts_per_token`. `window_layers`
    attend to the last `window` tokens, the others to all. `gated`: gate, up and down; else up and down. `positions`:
    rows of learned position embeddings. `norms`: of a layer. `max_context`: tokens that it was made for (0: not known).

    Raises
    ------
    ValueError
        For a size that is none, and sizes that contradict each other.
    """

    name: str
    hidden: int
    ffn: int
    layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int
    tied_embeddings: bool = False
    experts: int = 0
    experts_per_token: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    shared_ffn: int = 0
    window: int = 0
    window_layers: int = 0
    gated: bool = True
    rotary: bool = True
    positions: int = 0
    norms: int = 2
    max_context: int = 0

    def __post_init__(self) -> None:
        needed = ("hidden", "ffn", "layers", "num_heads", "num_kv_heads", "head_dim", "vocab")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "name" or field.type == "bool":
                kind: type = bool if field.type == "bool" else str
                if not isinstance(value, kind):
                    raise ValueError(f"{field.name} is {repr_short(value)}: {kind.__name__} is needed")
                continue
            least = 1 if field.name in needed else 0
            most = _MOST_LAYERS if field.name == "layers" else _MOST
            if type(value) is not int or not least <= value <= most:
                raise ValueError(
                    f"{field.name} is {repr_short(value)}: a whole number from {least} to {most} is needed"
                )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}: a multiple of num_kv_heads ({self.num_kv_heads}) is needed"
            )
        if not (1 <= self.experts_per_token <= self.experts or self.experts == self.experts_per_token == 0):
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}: allowed are 1 to experts ({self.experts})"
            )
        for name, most in (("window_layers", self.layers), ("dense_layers", self.layers if self.experts else 0)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} is {getattr(self, name)}: allowed are 0 to {most}")
        if bool(self.window) != bool(self.window_layers) or bool(self.dense_layers) != bool(self.dense_ffn):
            raise ValueError("window and window_layers, dense_layers and dense_ffn are both given or both 0")

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Architecture:
        """The inverse of `to_dict`; ValueError for what is none."""
        known = [field.name for field in fields(cls)]
        for name in found:
            if name not in known:
                raise ValueError(describe_unknown("size of a model", name, known))
        try:
            return cls(**found)
        except TypeError as error:  # a size is missing
            raise ValueError(f"no model: {str(error).partition(') ')[2] or error}") from None

    @property
    def parameters(self) -> int:
        """Elements of all matrices: embeddings, positions, projections, MLPs, routers, head. Norms and biases are not.

        Examples
        --------
        >>> round(named("llama-3.1-8b").parameters / 1e9, 2)
        8.03
        """
        return self.embedding_elements + sum(rows * columns * count for _, rows, columns, count in self.matrices())

    @property
    def one_layer(self) -> Architecture:
        """The same with a single layer, of the kind that there are most of."""
        window, dense = 2 * self.window_layers > self.layers, 2 * self.dense_layers > self.layers
        return replace(
            self,
            layers=1,
            window=self.window if window else 0,
            window_layers=int(window),
            dense_layers=int(dense),
            dense_ffn=self.dense_ffn if dense else 0,
        )

    @property
    def embedding_elements(self) -> int:
        """Of the table of tokens, unless the head shares it, and of positions."""
        return ((0 if self.tied_embeddings else self.vocab) + self.positions) * self.hidden

    def matrices(self) -> Iterable[tuple[str, int, int, int]]:
        """GGUF's name, rows, columns and how many there are, of every matrix that a product has as weights."""
        heads, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        expert_layers = self.layers - self.dense_layers if self.experts else 0
        yield from (("attn_q", heads, self.hidden, self.layers), ("attn_output", self.hidden, heads, self.layers))
        yield from ((name, kv, self.hidden, self.layers) for name in ("attn_k", "attn_v"))
        for ending, size, count in (
            ("", self.dense_ffn if self.experts else self.ffn, self.layers - expert_layers),
            ("_exps", self.ffn, expert_layers * self.experts),
            ("_shexp", self.shared_ffn, expert_layers),
        ):
            yield f"ffn_gate{ending}", size * self.gated, self.hidden, count
            yield f"ffn_up{ending}", size, self.hidden, count
            yield f"ffn_down{ending}", self.hidden, size, count
        yield "ffn_gate_inp", self.experts, self.hidden, expert_layers
        yield "output", self.vocab, self.hidden, 1


def list_models() -> list[str]:
    """The models that bwprof knows by name."""
    return list(_listed())


def find_model(name: str) -> Architecture:
    """A model that bwprof knows; ValueError with the nearest name for one that it does not."""
    listed = {key.lower(): key for key in _listed()}
    key = listed.get(name.strip().lower())
    if key is None:
        raise ValueError(describe_unknown("model", name, [*_listed(), "config.json", "FILE.gguf"]))
    sizes = dict(_listed()[key])
    window, every = sizes.pop("sliding_window", 0), sizes.pop("global_every", 0)
    sizes.pop("quantization_config", None)
    sizes["window"], sizes["window_layers"] = window, windowed_layers(sizes["layers"], every) if window else 0
    return Architecture.from_dict({"name": key, **sizes})


def find_config(name: str) -> dict[str, Any]:
    """What is listed of a known model."""
    return next(sizes for key, sizes in _listed().items() if key.lower() == name.strip().lower())


def windowed_layers(layers: int, global_every: int) -> int:
    """How many layers attend within the window where every so-manieth attends to all; 0: all of them do."""
    return layers - layers // global_every if global_every else layers


@cache
def _listed() -> dict[str, dict[str, Any]]:
    found = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text("utf-8"))
    return {name: sizes for name, sizes in found.items() if not name.startswith("_")}
