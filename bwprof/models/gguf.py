"""Models from GGUF files, as llama.cpp runs them: sizes from the metadata, bytes of the weights as they are stored.

Reading them takes the package `gguf` (``pip install 'bwprof[gguf]'``).
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from bwprof.models.architecture import Architecture, windowed_layers
from bwprof.models.question import Stored
from bwprof.text import quoted, shown, unknown

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


def read(path: Path) -> tuple[Architecture, Stored]:
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
    source = quoted(path)
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
        raise ValueError(f"{source}: no GGUF file that can be read: {quoted(error)}") from None
    try:
        model = _architecture(reader, path.stem)
        return model, _stored(reader, model)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _architecture(reader: Any, name: str) -> Architecture:
    kind = _value(reader, "general.architecture")
    if kind not in _KNOWN:
        raise ValueError(unknown("architecture", kind, _KNOWN))
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
            raise ValueError(f"{kind}.{key} is {shown(value)}: a whole number is needed")
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


def _stored(reader: Any, model: Architecture) -> Stored:
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
    return Stored(sum(line["bytes"] for line in types.values()), types, shares)


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
