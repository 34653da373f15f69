"""Models from the config.json that Hugging Face's transformers keep beside the weights."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bwprof.models.architecture import Architecture
from bwprof.text import quoted, shown, unknown

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


def families() -> list[str]:
    """The values of model_type that are known."""
    return list(_families())


def read(path: Path) -> tuple[Architecture, Mapping[str, Any]]:
    """The model of a config.json, and the file's content.

    Raises
    ------
    ValueError
        For a file that is none, an architecture that is not known, and a size that is none; the message names it.
    OSError
        When it cannot be read.
    """
    source = quoted(path)
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
        raise ValueError(f"{source}: no config.json: {quoted(error)}") from None
    name = path.parent.name or path.stem if path.name == "config.json" else path.stem
    return from_dict(found, name=name, source=source), found


def from_dict(config: object, *, name: str = "", source: str = "config") -> Architecture:
    """The model of a config.json's content; `source` is what messages call it.

    Raises
    ------
    ValueError
        As `read`.
    """
    try:
        return _from_dict(config, name)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _from_dict(config: object, name: str) -> Architecture:
    if not isinstance(config, Mapping):
        raise ValueError(f"a JSON object is needed, not {shown(config)}")
    family = _family_of(config)
    rules = _families()[family]
    given: Mapping[str, Any] = config
    if "inside" in rules:
        given, family = config.get(rules["inside"]["field"], {}), rules["inside"]["as"]
        if not isinstance(given, Mapping):
            raise ValueError(f"{rules['inside']['field']} is {shown(given)}: a JSON object is needed")
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
            raise ValueError(f"{named} is {shown(value)}: a whole number from {least} to {2**31 - 1} is needed")
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
        raise ValueError(f"tie_word_embeddings is {shown(tied)}: true or false is needed")
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
            raise ValueError(f"layer_types is {shown(types)}: a list of {layers} is needed")
        for kind in types:
            if kind not in ("sliding_attention", "full_attention"):
                raise ValueError(unknown("layer type", kind, ["sliding_attention", "full_attention"]))
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
        raise ValueError(f"mlp_only_layers is {shown(only)}: a list of whole numbers is needed")
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
    raise ValueError(unknown("architecture", given, known))


@cache
def _families() -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parent / "configs.toml").read_text("utf-8"))
