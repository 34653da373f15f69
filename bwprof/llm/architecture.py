"""The sizes of a decoder-only language model, from which follow a step's operations and the bytes of its weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from bwprof.text.parsing import describe_unknown, repr_short

MAX_SIZE, MAX_LAYERS = 2**31 - 1, 100_000

_POSITIVE = ("hidden", "ffn", "layers", "num_heads", "num_kv_heads", "head_dim", "vocab")


def check_int(name: str, value: Any, least: int, most: int) -> int:
    """Return an int within limits; ValueError with `name` for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {repr_short(value)}: a whole number from {least} to {most} is needed")
    return value


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model's sizes.

    `ffn` is the inner size of the MLP, of each expert if there are `experts`. `dense_layers` of the layers have an
    ordinary MLP of `dense_ffn` instead; every token passes an expert of `shared_ffn` beside its `experts_per_token`.
    `window_layers` attend to the last `window` tokens, the others to all. A `gated` MLP has gate, up and down, else up
    and down. `positions` are rows of learned position embeddings, `norms` those of a layer, `max_context` the tokens
    that the model was trained for (0: unknown).

    Raises
    ------
    ValueError
        For a size out of range, and for sizes that contradict each other.
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
        for field in fields(self):
            value = getattr(self, field.name)
            kind = {"str": str, "bool": bool}.get(str(field.type))
            if kind is None:
                most = MAX_LAYERS if field.name == "layers" else MAX_SIZE
                check_int(field.name, value, int(field.name in _POSITIVE), most)
            elif not isinstance(value, kind):
                raise ValueError(f"{field.name} is {repr_short(value)}: {kind.__name__} is needed")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}: a multiple of num_kv_heads ({self.num_kv_heads}) is needed"
            )
        for name, least, most in (
            ("experts_per_token", min(1, self.experts), self.experts),
            ("window_layers", 0, self.layers),
            ("dense_layers", 0, self.layers if self.experts else 0),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}: allowed are {least} to {most}")
        if bool(self.window) != bool(self.window_layers) or bool(self.dense_layers) != bool(self.dense_ffn):
            raise ValueError("window and window_layers, dense_layers and dense_ffn: both are needed, or both are 0")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Architecture:
        """Read what `dataclasses.asdict` wrote; ValueError for anything else."""
        try:
            return cls(**data)
        except TypeError as error:  # a size is missing, or unknown
            raise ValueError(f"no model: {str(error).partition(') ')[2] or error}") from None

    @property
    def parameters(self) -> int:
        """Elements of all matrices: embeddings, positions, projections, MLPs, routers, head; no norms and biases.

        Examples
        --------
        >>> round(find_model("llama-3.1-8b").parameters / 1e9, 2)
        8.03
        """
        return self.embedding_elements + sum(rows * columns * count for _, rows, columns, count in self.matrices())

    @property
    def one_layer(self) -> Architecture:
        """The model with a single layer, of the most frequent kind."""
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
        """Elements of the token table, unless the head shares it, and of positions."""
        return ((0 if self.tied_embeddings else self.vocab) + self.positions) * self.hidden

    def matrices(self) -> Iterable[tuple[str, int, int, int]]:
        """Yield GGUF's name, rows, columns and number of every matrix that a product takes as weights."""
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
    """List the models that bwprof knows by name."""
    return list(_read_models())


def find_model(name: str) -> Architecture:
    """Return a known model; ValueError with the nearest name for an unknown one."""
    sizes = find_config(name)
    window, every = sizes.pop("sliding_window", 0), sizes.pop("global_every", 0)
    sizes.pop("quantization_config", None)
    sizes["window"], sizes["window_layers"] = window, windowed_layers(sizes["layers"], every) if window else 0
    return Architecture.from_dict(sizes)


def find_config(name: str) -> dict[str, Any]:
    """Return the entry of models.json of a known model; ValueError as `find_model`."""
    for known, sizes in _read_models().items():
        if known.lower() == name.strip().lower():
            return {"name": known, **sizes}
    raise ValueError(describe_unknown("model", name, [*list_models(), "config.json", "FILE.gguf"]))


def windowed_layers(layers: int, global_every: int) -> int:
    """Return how many layers attend within the window if one of `global_every` attends to all; 0: all layers."""
    return layers - layers // global_every if global_every else layers


@cache
def _read_models() -> dict[str, dict[str, Any]]:
    models = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text("utf-8"))
    return {name: sizes for name, sizes in models.items() if not name.startswith("_")}
