"""Read models: the config.json of transformers, and GGUF files as llama.cpp runs them.

GGUF needs the package `gguf` (``pip install 'bwprof[gguf]'``).
"""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from bwprof import registry
from bwprof.llm.architecture import MAX_LAYERS, MAX_SIZE, Architecture, check_int, windowed_layers
from bwprof.llm.workload import StoredWeights
from bwprof.text.parsing import describe_unknown, quote_text, repr_short

_MAX_BYTES = 10_000_000

_LAYER_TYPES = ("sliding_attention", "full_attention")

# Whether layer `i`, from 0, attends within the window.
_WINDOWED: dict[str, Callable[[int, Mapping[str, Any]], bool]] = {
    "": lambda _i, _fields: False,
    "all": lambda _i, _fields: True,
    "alternate": lambda i, _fields: i % 2 == 0,
    "pattern": lambda i, fields: (i + 1) % fields["sliding_window_pattern"] != 0,
    "optional": lambda i, fields: bool(fields.get("use_sliding_window")) and i >= fields["max_window_layers"],
    "optional_alternate": lambda i, fields: (
        bool(fields.get("use_sliding_window")) and i % 2 == 0 and i < fields["max_window_layers"]
    ),
    "optional_all": lambda _i, fields: bool(fields.get("use_sliding_window")),
}


def list_families() -> list[str]:
    """List the known values of model_type."""
    return list(_families())


def read_config(path: Path) -> tuple[Architecture, Mapping[str, Any]]:
    """Read a config.json; return the model and the file's content.

    ValueError for a file that is no config.json, an unknown architecture, and a size out of range; OSError for a file
    that cannot be read.
    """
    source = quote_text(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{source}: no config.json: it is no file")
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"{source}: no config.json: it has more than {_MAX_BYTES} bytes")
    try:
        config = json.loads(content)
    except RecursionError:
        raise ValueError(f"{source}: no config.json: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{source}: no config.json: {quote_text(error)}") from None
    name = path.parent.name or path.stem if path.name == "config.json" else path.stem
    return from_dict(config, name=name, source=source), config


def from_dict(config: object, *, name: str = "", source: str = "config") -> Architecture:
    """Return the model of a config.json's content; ValueError as `read_config`, with `source` first."""
    try:
        return _architecture_of(config, name)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


class _Config:
    """The fields of a config.json with the defaults of its family."""

    def __init__(self, config: object) -> None:
        if not isinstance(config, Mapping):
            raise ValueError(f"a JSON object is needed, not {repr_short(config)}")
        self.family = _family_of(config)
        inside = _families()[self.family].get("inside")
        inner: Any = config
        if inside is not None:
            inner, self.family = config.get(inside["field"], {}), inside["as"]
            if not isinstance(inner, Mapping):
                raise ValueError(f"{inside['field']} is {repr_short(inner)}: a JSON object is needed")
        self.rules = _families()[self.family]
        self.defaults: Mapping[str, Any] = self.rules.get("defaults", {})
        self.fields = {**self.defaults, **{key: value for key, value in inner.items() if value is not None}}
        if inner.get("sliding_window", 0) is None:  # null: no window, rather than the default
            self.fields["sliding_window"] = 0

    def name_of(self, field: str) -> str:
        """Return the family's own name of a field."""
        return str(self.rules.get("fields", {}).get(field, field))

    def size(self, field: str, *default: int, least: int = 1, most: int = MAX_SIZE) -> int:
        """Return an integer field; ValueError if it is missing without a default, or out of range."""
        name = self.name_of(field)
        value = self.fields.get(name, default[0] if default else None)
        if value is None:
            raise ValueError(f"{name} is missing")
        return check_int(name, value, least, most)


def _architecture_of(config: object, name: str) -> Architecture:
    own = _Config(config)
    fields, rules = own.fields, own.rules
    hidden, heads = own.size("hidden_size"), own.size("num_attention_heads")
    layers = own.size("num_hidden_layers", most=MAX_LAYERS)
    if "head_dim" not in fields and hidden % heads:
        raise ValueError(f"head_dim is missing, and hidden_size {hidden} is no multiple of {heads} heads")
    gated = rules.get("gated", True)
    ffn = own.size("intermediate_size", *(() if gated else (4 * hidden,)))
    tied = fields.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        raise ValueError(f"tie_word_embeddings is {repr_short(tied)}: true or false is needed")
    tokens = fields.get("max_position_embeddings", fields.get("n_positions"))  # no operation of a step depends on it
    return Architecture(
        name=str(name or cast("Mapping[str, Any]", config).get("_name_or_path") or own.family),
        hidden=hidden,
        layers=layers,
        num_heads=heads,
        num_kv_heads=own.size("num_key_value_heads", heads),
        head_dim=own.size("head_dim", hidden // heads),
        vocab=own.size("vocab_size"),
        tied_embeddings=tied,
        gated=gated,
        rotary=rules.get("rotary", True),
        positions=own.size("n_positions") if "n_positions" in own.defaults else 0,
        norms=rules.get("norms", 2),
        max_context=tokens if type(tokens) is int and 0 < tokens <= MAX_SIZE else 0,
        **_experts(own, ffn, layers),
        **_window(own, layers),
    )


def _window(config: _Config, layers: int) -> dict[str, int]:
    """Return the window and the number of layers that attend within it."""
    types = config.fields.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or len(types) != layers:
            raise ValueError(f"layer_types is {repr_short(types)}: a list of {layers} is needed")
        for kind in types:
            if kind not in _LAYER_TYPES:
                raise ValueError(describe_unknown("layer type", kind, _LAYER_TYPES))
        count = types.count("sliding_attention")
    elif not config.fields.get("sliding_window"):
        count = 0
    else:
        for name, least in (("sliding_window_pattern", 1), ("max_window_layers", 0)):
            if name in config.fields:
                config.size(name, least=least)
        windowed = _WINDOWED[config.rules.get("window", "")]
        count = sum(windowed(layer, config.fields) for layer in range(layers))
    return {"window": config.size("sliding_window"), "window_layers": count} if count else {}


def _experts(config: _Config, ffn: int, layers: int) -> dict[str, int]:
    if not config.rules.get("experts"):
        return {"ffn": ffn}
    # transformers takes either name.
    count = config.size("num_local_experts" if "num_local_experts" in config.fields else "num_experts")
    dense = config.fields.get("mlp_only_layers", [])
    if not isinstance(dense, list) or not all(type(layer) is int for layer in dense):
        raise ValueError(f"mlp_only_layers is {repr_short(dense)}: a list of whole numbers is needed")
    step, only = config.size("decoder_sparse_step", 1), set(dense)
    dense_layers = sum(layer in only or (layer + 1) % step != 0 for layer in range(layers))
    return {
        "ffn": config.size("moe_intermediate_size", ffn),
        "experts": count,
        "experts_per_token": config.size("num_experts_per_tok"),
        "dense_layers": dense_layers,
        "dense_ffn": ffn if dense_layers else 0,
        "shared_ffn": config.size("shared_expert_intermediate_size", 0, least=0),
    }


def _family_of(config: Mapping[str, Any]) -> str:
    """Return the key of configs.toml, by model_type, else by the class."""
    known = _families()
    kind = config.get("model_type")
    if kind is None:
        classes = config.get("architectures")
        kind = classes[0] if isinstance(classes, list) and classes else None
        if kind is None:
            raise ValueError(f"no model's config.json: it has no model_type; known are {', '.join(known)}")
        family = next((name for name, rules in known.items() if kind in rules["classes"]), None)
    else:
        family = kind if isinstance(kind, str) and kind in known else None
    if family is None:
        raise ValueError(describe_unknown("architecture", kind, known))
    return family


@cache
def _families() -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parents[1] / "data" / "configs.toml").read_text("utf-8"))


# The known values of general.architecture.
_GGUF_FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen2moe", "qwen3", "qwen3moe"),
    *("gemma", "gemma2", "gemma3", "gpt-oss", "gpt2"),
)

# One layer of so many attends to all tokens; in other families with a window, every layer attends within it.
_GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}

_BLOCK = re.compile(r"blk\.\d+\.(\w+)\.weight|(output|token_embd)\.weight")

# A ggml type that is no precision here is timed as the one of these that is nearest in bytes per weight.
_WEIGHT_BYTES = {"q4_0": 18 / 32, "int8": 1.0, "fp16": 2.0, "fp32": 4.0}


def read_gguf(path: Path) -> tuple[Architecture, StoredWeights]:
    """Read a .gguf file; return the model and how its weights are stored.

    ValueError for a file that is no GGUF file, an unknown architecture, and a size out of range; OSError if it
    cannot be read; ImportError without the package `gguf`.
    """
    try:
        gguf: Any = importlib.import_module("gguf")
    except ImportError:
        raise ImportError("a .gguf file is read by the package gguf: pip install 'bwprof[gguf]'") from None
    source = quote_text(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{source}: no GGUF file: it is no file")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{source}: no GGUF file")
    try:
        reader = gguf.GGUFReader(path)
    except OSError:
        raise
    except Exception as error:  # the package has no exceptions of its own for damaged files
        raise ValueError(f"{source}: no GGUF file that can be read: {quote_text(error)}") from None
    try:
        model = _gguf_architecture(reader, path.stem)
        return model, _gguf_weights(reader, model)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _gguf_architecture(reader: Any, name: str) -> Architecture:
    kind = _gguf_value(reader, "general.architecture")
    if kind not in _GGUF_FAMILIES:
        raise ValueError(describe_unknown("architecture", kind, _GGUF_FAMILIES))
    shapes = {tensor.name: [int(size) for size in tensor.shape] for tensor in reader.tensors}

    def size(key: str, default: int | None = None) -> int:
        value = _gguf_value(reader, f"{kind}.{key}")
        if isinstance(value, list):  # one for each layer
            if len(set(map(str, value))) != 1:
                raise ValueError(f"{kind}.{key} differs from layer to layer: one value is needed")
            value = value[0]
        value = default if value is None else value
        if value is None:
            raise ValueError(f"{kind}.{key} is missing")
        if type(value) is not int:
            raise ValueError(f"{kind}.{key} is {repr_short(value)}: a whole number is needed")
        return value

    hidden, heads, layers = size("embedding_length"), size("attention.head_count"), size("block_count")
    table = shapes.get("token_embd.weight", [])
    experts = size("expert_count", 0)
    ffn = size("expert_feed_forward_length", size("feed_forward_length")) if experts else size("feed_forward_length")
    window = size("attention.sliding_window", 0)
    dense = size("leading_dense_block_count", 0) if experts else 0
    return Architecture(
        name=name,
        hidden=hidden,
        ffn=ffn,
        layers=layers,
        num_heads=heads,
        num_kv_heads=size("attention.head_count_kv", heads),
        head_dim=size("attention.key_length", hidden // heads if heads > 0 else 0),
        vocab=table[1] if len(table) == 2 else size("vocab_size"),
        tied_embeddings="output.weight" not in shapes,
        experts=experts,
        experts_per_token=size("expert_used_count", 0),
        dense_layers=dense,
        dense_ffn=size("feed_forward_length") if dense else 0,
        shared_ffn=size("expert_shared_feed_forward_length", 0) if experts else 0,
        window=window,
        window_layers=windowed_layers(layers, _GLOBAL_EVERY.get(kind, 0)) if window else 0,
        gated=kind != "gpt2",
        rotary=kind != "gpt2",
        positions=shapes.get("position_embd.weight", [0, 0])[1],
        norms=4 if kind in ("gemma2", "gemma3") else 2,
        max_context=max(0, min(size("context_length", 0), MAX_SIZE)),
    )


def _gguf_value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    value: Any = None if field is None else field.contents()
    return value.item() if hasattr(value, "item") else value


def _gguf_weights(reader: Any, model: Architecture) -> StoredWeights:
    types: dict[str, Counter[str]] = defaultdict(Counter)
    matrices: dict[str, Counter[str]] = defaultdict(Counter)
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name
        types[kind].update(tensors=1, bytes=int(tensor.n_bytes), token_bytes=_bytes_read_by_token(tensor, model))
        match = _BLOCK.fullmatch(tensor.name)
        if match is not None and len(tensor.shape) >= 2:
            name = match[1] or match[2]
            name = "output" if name == "token_embd" and model.tied_embeddings else name  # the head's weights
            matrices[name][_precision_of(kind, tensor.n_bytes / max(1, tensor.n_elements))] += 1
    shares = {name: {kind: count / own.total() for kind, count in own.items()} for name, own in matrices.items()}
    for name in ("attn_q", "attn_k", "attn_v"):  # a file may store all three in one tensor
        if name not in shares and "attn_qkv" in shares:
            shares[name] = shares["attn_qkv"]
    return StoredWeights(sum(line["bytes"] for line in types.values()), {k: dict(v) for k, v in types.items()}, shares)


def _bytes_read_by_token(tensor: Any, model: Architecture) -> int:
    """Return the bytes that one token reads: its own experts, its own row of a table."""
    size = int(tensor.n_bytes)
    if tensor.name == "position_embd.weight" or (tensor.name == "token_embd.weight" and not model.tied_embeddings):
        return size // max(1, int(tensor.shape[-1]))
    if "_exps." in tensor.name and model.experts:
        return size * model.experts_per_token // model.experts
    return size


def _precision_of(kind: str, weight_bytes: float) -> str:
    name = registry.precision_name(kind)
    if name in registry.precision_names():
        return name
    return min(_WEIGHT_BYTES, key=lambda name: abs(_WEIGHT_BYTES[name] - weight_bytes))
