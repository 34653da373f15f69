"""Read models: the config.json of transformers, and GGUF files as llama.cpp runs them.

GGUF needs the package `gguf` (``pip install 'bwprof[gguf]'``).
"""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bwprof.llm.architecture import Architecture, windowed_layers
from bwprof.llm.workload import StoredWeights
from bwprof.text.parsing import describe_unknown, quote_text, repr_short

_MOST_BYTES = 10_000_000

# Whether layer `i`, from 0, attends within the window.
_WINDOWED: dict[str, Callable[[int, Mapping[str, Any]], bool]] = {
    "": lambda _i, _found: False,
    "all": lambda _i, _found: True,
    "alternate": lambda i, _found: i % 2 == 0,
    "pattern": lambda i, found: (i + 1) % found["sliding_window_pattern"] != 0,
    "asked": lambda i, found: bool(found.get("use_sliding_window")) and i >= found["max_window_layers"],
    "asked_alternate": lambda i, found: (
        bool(found.get("use_sliding_window")) and i % 2 == 0 and i < found["max_window_layers"]
    ),
    "asked_all": lambda _i, found: bool(found.get("use_sliding_window")),
}


def list_families() -> list[str]:
    """The values of model_type that are known."""
    return list(_families())


def read_config(path: Path) -> tuple[Architecture, Mapping[str, Any]]:
    """The model of a config.json, and the file's content.

    Raises
    ------
    ValueError
        For a file that is none, an architecture that is not known, and a size that is none; the message names it.
    OSError
        When it cannot be read.
    """
    source = quote_text(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{source}: no config.json: it is no file")
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{source}: no config.json: it has more than {_MOST_BYTES} bytes")
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError(f"{source}: no config.json: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{source}: no config.json: {quote_text(error)}") from None
    name = path.parent.name or path.stem if path.name == "config.json" else path.stem
    return from_dict(found, name=name, source=source), found


def from_dict(config: object, *, name: str = "", source: str = "config") -> Architecture:
    """The model of a config.json's content; `source` is what messages call it.

    Raises
    ------
    ValueError
        As `read_gguf`.
    """
    try:
        return _from_dict(config, name)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _from_dict(config: object, name: str) -> Architecture:
    if not isinstance(config, Mapping):
        raise ValueError(f"a JSON object is needed, not {repr_short(config)}")
    family = _family_of(config)
    rules = _families()[family]
    given: Mapping[str, Any] = config
    if "inside" in rules:
        given, family = config.get(rules["inside"]["field"], {}), rules["inside"]["as"]
        if not isinstance(given, Mapping):
            raise ValueError(f"{rules['inside']['field']} is {repr_short(given)}: a JSON object is needed")
        rules = _families()[family]
    found = {**rules.get("defaults", {}), **{key: value for key, value in given.items() if value is not None}}
    if given.get("sliding_window", 0) is None:  # none, in so many words
        found["sliding_window"] = 0
    fields: dict[str, str] = rules.get("fields", {})

    def size(field: str, *other: int, least: int = 1) -> int:
        named = fields.get(field, field)
        value = found.get(named, other[0] if other else None)
        if value is None:
            raise ValueError(f"{named} is missing")
        if type(value) is not int or not least <= value < 2**31:
            raise ValueError(f"{named} is {repr_short(value)}: a whole number from {least} to {2**31 - 1} is needed")
        return value

    hidden, heads, layers = size("hidden_size"), size("num_attention_heads"), size("num_hidden_layers")
    if layers > 100_000:
        raise ValueError(f"{fields.get('num_hidden_layers', 'num_hidden_layers')} is {layers}: allowed are 1 to 100000")
    if "head_dim" not in found and hidden % heads:
        raise ValueError(f"head_dim is missing, and hidden_size {hidden} is no multiple of {heads} heads")
    gated = rules.get("gated", True)
    ffn = size("intermediate_size", *(() if gated else (4 * hidden,)))
    tied = found.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        raise ValueError(f"tie_word_embeddings is {repr_short(tied)}: true or false is needed")
    tokens = found.get("max_position_embeddings", found.get("n_positions"))  # no operation of a step depends on it
    return Architecture(
        name=str(name or config.get("_name_or_path") or family),
        hidden=hidden,
        layers=layers,
        num_heads=heads,
        num_kv_heads=size("num_key_value_heads", heads),
        head_dim=size("head_dim", hidden // heads),
        vocab=size("vocab_size"),
        tied_embeddings=tied,
        gated=gated,
        rotary=rules.get("rotary", True),
        positions=size("n_positions") if "n_positions" in rules.get("defaults", {}) else 0,
        norms=rules.get("norms", 2),
        max_context=tokens if type(tokens) is int and 0 < tokens < 2**31 else 0,
        **_experts(found, rules, ffn, layers, size),
        **_window(found, rules, layers, size),
    )


Size = Callable[..., int]


def _window(found: Mapping[str, Any], rules: Mapping[str, Any], layers: int, size: Size) -> dict[str, int]:
    """The window, and how many layers attend within it."""
    types = found.get("layer_types")
    if types is not None:
        if not isinstance(types, list) or len(types) != layers:
            raise ValueError(f"layer_types is {repr_short(types)}: a list of {layers} is needed")
        for kind in types:
            if kind not in ("sliding_attention", "full_attention"):
                raise ValueError(describe_unknown("layer type", kind, ["sliding_attention", "full_attention"]))
        count = types.count("sliding_attention")
    elif not found.get("sliding_window"):
        count = 0
    else:
        for name in ("sliding_window_pattern", "max_window_layers"):
            if name in found:
                size(name, least=0 if name == "max_window_layers" else 1)
        count = sum(_WINDOWED[rules.get("window", "")](layer, found) for layer in range(layers))
    return {"window": size("sliding_window"), "window_layers": count} if count else {}


def _experts(found: Mapping[str, Any], rules: Mapping[str, Any], ffn: int, layers: int, size: Size) -> dict[str, int]:
    if not rules.get("experts"):
        return {"ffn": ffn}
    # Two names of one thing: transformers takes either.
    count = size("num_local_experts") if "num_local_experts" in found else size("num_experts")
    only = found.get("mlp_only_layers", [])
    if not isinstance(only, list) or not all(type(layer) is int for layer in only):
        raise ValueError(f"mlp_only_layers is {repr_short(only)}: a list of whole numbers is needed")
    step, only = size("decoder_sparse_step", 1), set(only)
    dense = sum(layer in only or (layer + 1) % step != 0 for layer in range(layers))
    return {
        "ffn": size("moe_intermediate_size", ffn),
        "experts": count,
        "experts_per_token": size("num_experts_per_tok"),
        "dense_layers": dense,
        "dense_ffn": ffn if dense else 0,
        "shared_ffn": size("shared_expert_intermediate_size", 0, least=0),
    }


def _family_of(config: Mapping[str, Any]) -> str:
    """The key of configs.toml, by model_type, else by the class."""
    known = _families()
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in known:
        return kind
    classes = config.get("architectures")
    named = classes[0] if isinstance(classes, list) and classes else None
    if kind is None:
        for family, rules in known.items():
            if named in rules["classes"]:
                return family
    given = kind if kind is not None else named
    if given is None:
        raise ValueError(f"no model's config.json: it has no model_type; known are {', '.join(known)}")
    raise ValueError(describe_unknown("architecture", given, known))


@cache
def _families() -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parents[1] / "data" / "configs.toml").read_text("utf-8"))


# Values of general.architecture.
_KNOWN = ("llama", "mistral", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "gpt-oss", "gpt2")

# Of every so many layers one attends to all tokens; of other architectures all within the window, if there is one.
_GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}

_FOUR_NORMS = ("gemma2", "gemma3")

_BLOCK = re.compile(r"blk\.\d+\.(\w+)\.weight")

_OUTER = re.compile(r"(output|token_embd)\.weight")

# Types of ggml that are one of our precisions; any other is timed as the nearest in size of those behind them.
_SAME = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "Q4_0": "q4_0"}

_STAND_INS = (("q4_0", 18 / 32), ("int8", 1.0), ("fp16", 2.0), ("fp32", 4.0))


def read_gguf(path: Path) -> tuple[Architecture, StoredWeights]:
    """The model of a .gguf file, and how its weights are stored.

    Raises
    ------
    ValueError
        For a file that is none, an architecture that is not known, and a size that is none.
    ImportError
        Without the package `gguf`.
    OSError
        When it cannot be read.
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
    except Exception as error:  # the package has no exceptions of its own: a damaged file raises whatever it meets
        raise ValueError(f"{source}: no GGUF file that can be read: {quote_text(error)}") from None
    try:
        model = _architecture(reader, path.stem)
        return model, _stored(reader, model)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _architecture(reader: Any, name: str) -> Architecture:
    kind = _value(reader, "general.architecture")
    if kind not in _KNOWN:
        raise ValueError(describe_unknown("architecture", kind, _KNOWN))
    shapes = {tensor.name: [int(size) for size in tensor.shape] for tensor in reader.tensors}

    def size(key: str, fallback: int | None = None) -> int:
        value = _value(reader, f"{kind}.{key}")
        if isinstance(value, list):  # of each layer
            if len(set(map(str, value))) != 1:
                raise ValueError(f"{kind}.{key} differs from layer to layer, which is not known here")
            value = value[0]
        value = fallback if value is None else value
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
        norms=4 if kind in _FOUR_NORMS else 2,
        max_context=max(0, min(size("context_length", 0), 2**31 - 1)),
    )


def _value(reader: Any, key: str) -> Any:
    """A field's value; None where there is none."""
    found = reader.get_field(key)
    if found is None:
        return None
    value = found.contents()
    return value.item() if hasattr(value, "item") else value


def _stored(reader: Any, model: Architecture) -> StoredWeights:
    """What the tensors take, and what one token reads of them: its own experts, its own row of a table."""
    types: dict[str, dict[str, int]] = {}
    matrices: dict[str, dict[str, int]] = {}
    names = {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name
        line = types.setdefault(kind, {"tensors": 0, "bytes": 0, "token_bytes": 0})
        line["tensors"] += 1
        line["bytes"] += int(tensor.n_bytes)
        line["token_bytes"] += _read_by_a_token(tensor, model)
        role = _BLOCK.fullmatch(tensor.name) or _OUTER.fullmatch(tensor.name)
        if role is None or len(tensor.shape) < 2:
            continue
        # A tied table is the head's weights.
        called = "output" if role[1] == "token_embd" and "output.weight" not in names else role[1]
        precision = _precision(kind, tensor.n_bytes / max(1, tensor.n_elements))
        held = matrices.setdefault(called, {})
        held[precision] = held.get(precision, 0) + 1
    shares = {
        called: {name: count / sum(held.values()) for name, count in held.items()} for called, held in matrices.items()
    }
    # q, k and v in one tensor: each as that one is stored.
    for one in ("attn_q", "attn_k", "attn_v"):
        if one not in shares and "attn_qkv" in shares:
            shares[one] = shares["attn_qkv"]
    return StoredWeights(sum(line["bytes"] for line in types.values()), types, shares)


def _read_by_a_token(tensor: Any, model: Architecture) -> int:
    size = int(tensor.n_bytes)
    if tensor.name == "position_embd.weight" or (tensor.name == "token_embd.weight" and not model.tied_embeddings):
        return size // max(1, int(tensor.shape[-1]))
    if "_exps." in tensor.name and model.experts:
        return size * model.experts_per_token // model.experts
    return size


def _precision(kind: str, element_bytes: float) -> str:
    if kind in _SAME:
        return _SAME[kind]
    return min(_STAND_INS, key=lambda stand_in: abs(stand_in[1] - element_bytes))[0]
