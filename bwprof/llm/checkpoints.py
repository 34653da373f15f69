"""Read models: the config.json of transformers, its quantization_config, and GGUF files as llama.cpp runs them.

GGUF needs the package `gguf` (``pip install 'bwprof[gguf]'``).
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bwprof import registry
from bwprof.llm.architecture import MAX_LAYERS, MAX_SIZE, Architecture, check_int, windowed_layers
from bwprof.llm.workload import FUSED_TENSORS, StoredWeights
from bwprof.text.parsing import check_known, parse_names, quote_text, repr_short

_MAX_BYTES = 10_000_000


def list_families() -> list[str]:
    """List the known values of model_type."""
    return list(_families())


@cache
def _families() -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parents[1] / "data" / "configs.toml").read_text("utf-8"))


def read_config(path: Path) -> tuple[Architecture, StoredWeights | None]:
    """Read a config.json; return the model and how its weights are stored, None if they are not quantized.

    ValueError for a file that is no config.json, an unknown architecture, a size out of range, and another file that
    quantizes the weights beside it; OSError for a file that cannot be read.
    """
    source = quote_text(path)
    try:
        if path.exists() and not path.is_file():  # a pipe would wait
            raise ValueError("it is no file")
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source}: no config.json: {quote_text(error)}") from None
    name = path.parent.name or path.stem if path.name == "config.json" else path.stem
    model = from_dict(config, name=name, source=source)
    others = [path.with_name(other) for other in _FILES] if path.name == "config.json" else []
    for other in filter(os.path.lexists, others):
        if not any(config.get(field) for field in _FIELDS):
            raise ValueError(
                f"{quote_text(other)} quantizes the weights of {source} and is not read: write it as "
                f"quantization_config of config.json; {_ESTIMATE}"
            )
    return model, read_weights(model, config, source)


def from_dict(config: object, *, name: str = "", source: str = "config") -> Architecture:
    """Return the model of a config.json's content; ValueError as `read_config`, with `source` first."""
    try:
        if not isinstance(config, Mapping):
            raise ValueError(f"a JSON object is needed, not {repr_short(config)}")
        return _Config(config).read(str(name or config.get("_name_or_path") or ""))
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


class _Config:
    """The fields of a config.json with the defaults of its family."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.family = _find_family(config)
        inside = _families()[self.family].get("inside")
        inner: Any = config
        if inside is not None:
            inner, self.family = config.get(inside["field"], {}), inside["as"]
            if not isinstance(inner, Mapping):
                raise ValueError(f"{inside['field']} is {repr_short(inner)}: a JSON object is needed")
        self.rules = _families()[self.family]
        self.fields = {**self.rules["defaults"], **{key: value for key, value in inner.items() if value is not None}}
        if inner.get("sliding_window", 0) is None:  # null: no window, rather than the default
            self.fields["sliding_window"] = 0

    def size(self, field: str, *default: int, least: int = 1, most: int = MAX_SIZE) -> int:
        """Return an integer field; ValueError if it is missing without a default, or out of range."""
        name = self.rules.get("fields", {}).get(field, field)
        if name not in self.fields and not default:
            raise ValueError(f"{name} is missing")
        return check_int(name, self.fields.get(name, *default), least, most)

    def read(self, name: str) -> Architecture:
        fields, rules = self.fields, self.rules
        hidden, heads = self.size("hidden_size"), self.size("num_attention_heads")
        layers = self.size("num_hidden_layers", most=MAX_LAYERS)
        if "head_dim" not in fields and hidden % heads:
            raise ValueError(f"head_dim is missing, and hidden_size {hidden} is no multiple of {heads} heads")
        gated = rules.get("gated", True)
        ffn = self.size("intermediate_size", *(() if gated else (4 * hidden,)))
        tied = fields.get("tie_word_embeddings", False)
        if not isinstance(tied, bool):
            raise ValueError(f"tie_word_embeddings is {repr_short(tied)}: true or false is needed")
        tokens = fields.get("max_position_embeddings", fields.get("n_positions"))  # no operation depends on it
        window_layers = self._count_windowed(layers)
        sizes = {
            "name": name or self.family,
            "hidden": hidden,
            "ffn": ffn,
            "layers": layers,
            "num_heads": heads,
            "num_kv_heads": self.size("num_key_value_heads", heads),
            "head_dim": self.size("head_dim", hidden // heads),
            "vocab": self.size("vocab_size"),
            "tied_embeddings": tied,
            "window": self.size("sliding_window") if window_layers else 0,
            "window_layers": window_layers,
            "gated": gated,
            "rotary": rules.get("rotary", True),
            "positions": self.size("n_positions") if "n_positions" in rules["defaults"] else 0,
            "norms": rules.get("norms", 2),
            "max_context": tokens if type(tokens) is int and 0 < tokens <= MAX_SIZE else 0,
        }
        return Architecture(**sizes | (self._read_experts(ffn, layers) if rules.get("experts") else {}))

    def _count_windowed(self, layers: int) -> int:
        types = self.fields.get("layer_types")
        if types is not None:
            if not isinstance(types, list) or len(types) != layers:
                raise ValueError(f"layer_types is {repr_short(types)}: a list of {layers} is needed")
            for kind in types:
                check_known("layer type", kind, ("sliding_attention", "full_attention"))
            return types.count("sliding_attention")
        if not self.fields.get("sliding_window"):
            return 0
        for name, least in (("sliding_window_pattern", 1), ("max_window_layers", 0)):
            if name in self.fields:
                self.size(name, least=least)
        rule = compile(self.rules.get("window", "False"), "configs.toml", "eval")  # bwprof's own, no user's text
        values = {"use_sliding_window": False, **self.fields}
        return sum(bool(eval(rule, {"__builtins__": {}}, {**values, "i": layer})) for layer in range(layers))

    def _read_experts(self, ffn: int, layers: int) -> dict[str, int]:
        # transformers takes either name.
        count = self.size("num_local_experts" if "num_local_experts" in self.fields else "num_experts")
        dense = self.fields.get("mlp_only_layers", [])
        if not isinstance(dense, list) or not all(type(layer) is int for layer in dense):
            raise ValueError(f"mlp_only_layers is {repr_short(dense)}: a list of whole numbers is needed")
        step, only = self.size("decoder_sparse_step", 1), set(dense)
        dense_layers = sum(layer in only or (layer + 1) % step != 0 for layer in range(layers))
        return {
            "ffn": self.size("moe_intermediate_size", ffn),
            "experts": count,
            "experts_per_token": self.size("num_experts_per_tok"),
            "dense_layers": dense_layers,
            "dense_ffn": ffn if dense_layers else 0,
            "shared_ffn": self.size("shared_expert_intermediate_size", 0, least=0),
        }


def _find_family(config: Mapping[str, Any]) -> str:
    """Return the key of configs.toml, by model_type, else by the class."""
    known, kind = _families(), config.get("model_type")
    if kind is None:
        classes = config.get("architectures")
        kind = classes[0] if isinstance(classes, list) and classes else None
        if kind is None:
            raise ValueError(f"no model's config.json: it has no model_type; known are {', '.join(known)}")
        kind = next((name for name, rules in known.items() if kind in rules["classes"]), kind)
    check_known("architecture", kind, known)
    return kind


# ---- quantization_config ----

_FIELDS = ("quantization_config", "compression_config", "quantization")  # of transformers, its past, MLX

_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")  # of others, beside config.json

_ESTIMATE = "for an estimate, delete it from the file and name a precision of the weights: q4_0, fp8, ..."

_FORMATS = ("pack", "float", "int", "naive", "nvfp4-pack", "mxfp4-pack", "mixed-precision", "dense")

_EXCLUDED = ("ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules")

_HEAD, _ROUTER, _EXPERTS = "output", "ffn_gate_inp", "_exps"
_MAX_LAYERS, _MAX_PATTERNS = 1000, 100

# Modules by GGUF's name of their matrix: of Llama's kind, of Mixtral's and of GPT-OSS'.
_MODULES = {
    **{f"attn_{name}": (f"self_attn.{name}_proj",) for name in "qkv"},
    **{"attn_output": ("self_attn.o_proj",), _ROUTER: ("mlp.gate", "mlp.router"), _HEAD: ("lm_head",)},
}

for _name, _mixtral, _fused in (("gate", "w1", "gate_up"), ("up", "w3", "gate_up"), ("down", "w2", "down")):
    _MODULES[f"ffn_{_name}"] = (f"mlp.{_name}_proj",)
    _MODULES[f"ffn_{_name}_shexp"] = (f"mlp.shared_expert.{_name}_proj",)
    _others = (f"mlp.experts.{_fused}_proj", f"block_sparse_moe.experts.0.{_mixtral}")
    _MODULES[f"ffn_{_name}{_EXPERTS}"] = (f"mlp.experts.0.{_name}_proj", *_others)


class _Layout(NamedTuple):
    """How a matrix is stored, and the precision in which it is timed.

    Bits of an element, and bytes of each block of rows x columns (0: all of them), of each column, of the matrix.
    """

    label: str
    precision: str
    bits: int
    block: tuple[int, int] = (0, 0)
    block_bytes: float = 0.0
    column_bytes: int = 0
    matrix_bytes: int = 0

    def bytes_of(self, rows: int, columns: int) -> float:
        blocks = -(-rows // (self.block[0] or rows)) * -(-columns // (self.block[1] or columns))
        more = blocks * self.block_bytes + columns * self.column_bytes + self.matrix_bytes
        return rows * columns * self.bits / 8 + more


def read_weights(model: Architecture, config: Mapping[str, Any], source: str = "config") -> StoredWeights | None:
    """Read how a config.json stores the model's weights; None if it does not quantize them.

    ValueError for an unknown method, or an unknown field of one; the message names it and the `source`.
    """
    inner = config.get("text_config")
    both = [config, inner if isinstance(inner, Mapping) else {}]
    quantization = next((part[name] for part in both for name in _FIELDS if part.get(name)), None)
    kind = next((str(part[name]) for part in both for name in ("torch_dtype", "dtype") if part.get(name)), "")
    label = {"float32": "fp32", "float16": "fp16"}.get(kind.removeprefix("torch."), "bf16")
    plain = _Layout(label, label, 32 if label == "fp32" else 16)
    try:
        return None if quantization is None else _stored_weights(model, quantization, plain)
    except ValueError as error:
        raise ValueError(f"{source}: {error}; {_ESTIMATE}") from None


def _stored_weights(model: Architecture, config: Any, plain: _Layout) -> StoredWeights:
    method: Any = config.get("quant_method") if isinstance(config, Mapping) else config
    check_known("quant_method of quantization_config", method, METHODS, meant="")
    if model.layers > _MAX_LAYERS:
        raise ValueError(f"a quantized model has {model.layers} layers: allowed are 1 to {_MAX_LAYERS}")
    try:
        layouts = _read_layouts(METHODS[method], config, plain.label)
        excluded = _Names(name for field in _EXCLUDED for name in parse_names(field, config.get(field) or None))
        scheme = config.get("kv_cache_scheme") or {"num_bits": 0, "type": ""}
        kv = {(0, ""): "", (8, "float"): "fp8_e4m3", (8, "int"): "int8"}[scheme["num_bits"], scheme["type"]]
    except (AttributeError, LookupError, TypeError, re.error) as error:
        raise ValueError(f"quantization_config of {method}: missing, or not read: {quote_text(error)}") from None
    unquantized = {_ROUTER} if config.get("lm_head") is True else {_ROUTER, _HEAD}

    def layout_of_module(module: str) -> _Layout:
        named = (layout for names, layout in layouts if names.have(module) or "Linear" in names.literal)
        return plain if excluded.have(module) else next(named, plain)

    def layout_of(tensor: str, layer: int) -> _Layout:
        if tensor in unquantized:
            return plain
        names = [name if tensor == _HEAD else f"model.layers.{layer}.{name}" for name in _MODULES[tensor]]
        each = [layout_of_module(name) for name in names]
        return plain if plain in each else each[0]

    weights = _count_weights(model, plain, layout_of, kv)
    if not any(layout.label in weights.types for _, layout in layouts):
        raise ValueError(f"quantization_config of {method}: it quantizes no matrix of this architecture")
    return weights


_Layouts = list[tuple[Any, _Layout]]  # names of modules, or Linear for all, and their layout


def _read_layouts(
    read: Callable[[Mapping[str, Any]], _Layouts], config: Mapping[str, Any], activation: str
) -> list[tuple[_Names, _Layout]]:
    def beside_activation(layout: _Layout) -> _Layout:
        """Return the layout in the precision beside these activations, if there is one."""
        name = f"{layout.precision}_{activation}"
        return layout._replace(precision=name) if name in registry.precision_names() else layout

    layouts = [(_Names(parse_names("targets", targets)), beside_activation(layout)) for targets, layout in read(config)]
    for side in (side for _, layout in layouts for side in layout.block):
        if type(side) is not int or side < 0:
            raise TypeError("a size of groups or blocks")
    return sorted(layouts, key=lambda entry: "Linear" in entry[0].literal)  # all modules, behind those that are named


def _integer_groups(config: Mapping[str, Any]) -> _Layouts:
    """Read awq and gptq: a scale and a zero point for each group of a row; for gptq also the order of columns."""
    if config.get("dynamic"):
        raise LookupError("dynamic")
    method, bits, group = config["quant_method"], config["bits"], max(0, config["group_size"])
    four, order = _int4(group), 4 * (method == "gptq")
    precision = {2: four, 3: four, 4: four, 8: "int8_w8a16"}[bits]
    return [("Linear", _Layout(f"{method} {bits} bits", precision, bits, (1, group), 2 + bits / 8, order))]


def _int4(group: int) -> str:
    """Return the precision of 4-bit weights with the nearest size of groups; 0: a row each."""
    return f"int4_g{min((32, 64, 128), key=lambda size: abs(size - (group or 128)))}"


def _fp8(config: Mapping[str, Any]) -> _Layouts:
    size: Any = config.get("weight_block_size") or ()
    if any(size):
        return [("Linear", _Layout("fp8", "fp8_block", 8, (size[0], size[1]), 4))]
    return [("Linear", _Layout("fp8", "fp8_tensor", 8, matrix_bytes=8))]  # one scale for the matrix, one for its input


def _compressed_tensors(config: Mapping[str, Any]) -> _Layouts:
    form = str(config.get("format") or "dense")
    if config.get("sparsity_config") or form.removesuffix("-quantized") not in _FORMATS:
        raise LookupError("sparsity_config" if config.get("sparsity_config") else form)
    groups = config["config_groups"].values()
    return [(group["targets"], _group(group, packed=form == "pack-quantized")) for group in groups]


def _group(group: Mapping[str, Any], *, packed: bool) -> _Layout:
    weights, weight_only = group["weights"], not group.get("input_activations")
    kind, size = (weights["num_bits"], weights["type"]), max(0, weights.get("group_size") or 0)
    label = f"compressed-tensors {kind[0]} bits {kind[1]}"
    if kind == (4, "float"):
        return _Layout(label, {16: "nvfp4", 32: "mxfp4"}[size], 4, (1, size), 1, matrix_bytes=8)
    fp8 = {"tensor": "fp8_tensor", "block": "fp8_block"}.get(weights["strategy"], "fp8_e4m3")
    eight = {"float": "fp8_w8a16", "int": "int8_w8a16"} if weight_only else {"float": fp8, "int": "int8"}
    precision = {8: eight, 4: {"int": _int4(size)}}[kind[0]][kind[1]]
    side = weights.get("block_structure") or (128, 128)
    blocks = {"channel": (1, 0), "tensor": (0, 0), "group": (1, size), "block": (side[0], side[1])}
    scale = 2 + (0 if weights.get("symmetric", True) else kind[0] / 8)
    order = 4 * (weights.get("actorder") in ("group", "dynamic"))
    return _Layout(label, precision, kind[0], blocks[weights["strategy"]], scale, order, 16 * packed)


def _bitsandbytes(config: Mapping[str, Any]) -> _Layouts:
    if config.get("load_in_4bit"):
        scale = 1 + 4 / 256 if config.get("bnb_4bit_use_double_quant") else 4
        return [("Linear", _Layout("bitsandbytes 4 bits", "int4_g64", 4, (1, 64), scale, matrix_bytes=1024))]
    return [("Linear", {True: _Layout("bitsandbytes 8 bits", "int8", 8, (1, 0), 4)}[config["load_in_8bit"]])]


def _modelopt(config: Mapping[str, Any]) -> _Layouts:
    nvfp4 = _Layout("modelopt NVFP4", "nvfp4", 4, (1, 16), 1, matrix_bytes=8)
    fp8 = _Layout("modelopt FP8", "fp8_tensor", 8, matrix_bytes=8)
    return [("Linear", {"NVFP4": nvfp4, "FP8": fp8}[config["quant_algo"]])]


METHODS: dict[str, Callable[[Mapping[str, Any]], _Layouts]] = {
    "awq": _integer_groups,
    "gptq": _integer_groups,
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": lambda _config: [("experts", _Layout("mxfp4", "mxfp4", 4, (1, 32), 1))],
    "modelopt": _modelopt,
}


class _Names:
    """Names of modules, whole or in part, with wildcards, or expressions behind `re:`."""

    def __init__(self, names: Iterable[str]) -> None:
        plain = [name.replace("language_model.", "").strip(".") for name in names]
        self.literal = {name for name in plain if not name.startswith("re:") and not set(name) & set("*?[")}
        patterns = [name for name in dict.fromkeys(plain) if name not in self.literal]
        slow = re.compile(r"\)[*+?{]|(?:[*+?{].*){5}")  # backtracks for long
        refused = [name for name in plain if re.search(r"experts\.\d", name)] + [*filter(slow.search, patterns)]
        if refused or len(patterns) > _MAX_PATTERNS:
            raise LookupError(f"modules by '{(refused or patterns)[0]}'")
        self.patterns = [
            re.compile(name[3:] if name.startswith("re:") else rf"(.*\.)?{fnmatch.translate(name)[:-2]}(\..*)?$")
            for name in patterns
        ]

    def have(self, module: str) -> bool:
        parts = module.split(".")
        inner = (".".join(parts[low:high]) for low in range(len(parts)) for high in range(low + 1, len(parts) + 1))
        return any(name in self.literal for name in inner) or any(regex.match(module) for regex in self.patterns)


def _count_weights(
    model: Architecture, plain: _Layout, layout_of: Callable[[str, int], _Layout], kv: str
) -> StoredWeights:
    """Count the model's matrices; `layout_of` returns the layout of a tensor in a layer."""
    types: dict[str, Counter[str]] = defaultdict(Counter)
    table = model.embedding_elements * plain.bits // 8
    types[plain.label].update(tensors=int(table > 0), bytes=table, token_bytes=model.hidden * plain.bits // 8)
    sums: _Sums = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    for tensor, rows, columns, count in model.matrices():
        active = model.experts_per_token / max(1, model.experts) if tensor.endswith(_EXPERTS) else 1.0
        fused = [name for name, members in FUSED_TENSORS.items() if tensor in members]
        layers = model.layers if rows * columns * count else 0
        for layout, times in Counter(layout_of(tensor, layer) for layer in range(layers)).items():
            share = count * times / model.layers
            size = layout.bytes_of(rows, columns) * share
            types[layout.label].update(tensors=round(share), bytes=round(size), token_bytes=round(size * active))
            for own in (sums[name][layout.precision] for name in (tensor, *fused)):
                own[:] = [old + new for old, new in zip(own, (share, size, rows * columns * share), strict=True)]
    total_bytes = sum(line["bytes"] for line in types.values())
    return StoredWeights(total_bytes, {label: dict(line) for label, line in types.items()}, *_divide(sums), kv)


_Sums = dict[str, dict[str, list[float]]]  # tensor or fused product -> precision -> matrices, bytes, elements


def _divide(sums: _Sums) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Return the shares of the precisions, and the bytes of a weight, of tensors and products with one precision."""
    shares, sizes = {}, {}
    for name, kinds in sums.items():
        total = sum(own[0] for own in kinds.values())
        shares[name] = {kind: own[0] / total for kind, own in kinds.items()}
        sizes[name] = {kind: own[1] / own[2] for kind, own in kinds.items()}
    for name, members in FUSED_TENSORS.items():
        parts = [shares[member] for member in members if member in shares]
        if any(part != parts[0] for part in parts):
            del shares[name], sizes[name]
    return shares, sizes


# ---- GGUF ----

# The known values of general.architecture.
_GGUF_FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen2moe", "qwen3", "qwen3moe"),
    *("gemma", "gemma2", "gemma3", "gpt-oss", "gpt2"),
)

# One layer of so many attends to all tokens; in other families with a window, every layer attends within it.
_GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}

_BLOCK = re.compile(r"blk\.\d+\.(\w+)\.weight|(output|token_embd)\.weight")

# A ggml type that is no precision here is timed as the one of these that is nearest in bytes per weight.
_WEIGHT_BYTES = {"q4_0": 18 / 32, "q8_0": 34 / 32, "fp16": 2.0, "fp32": 4.0}


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
    try:
        if path.exists() and not path.is_file():  # a pipe would wait
            raise ValueError("it is no file")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("GGUF is not its beginning")
        reader = gguf.GGUFReader(path)
    except OSError:
        raise
    except Exception as error:  # the package has no exceptions of its own for damaged files
        raise ValueError(f"{source}: no GGUF file: {quote_text(error)}") from None
    try:
        model = _gguf_architecture(reader, path.stem)
        return model, _gguf_weights(reader, model)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _gguf_architecture(reader: Any, name: str) -> Architecture:
    kind = _gguf_value(reader, "general.architecture")
    check_known("architecture", kind, _GGUF_FAMILIES)
    shapes = {tensor.name: [int(size) for size in tensor.shape] for tensor in reader.tensors}

    def size(key: str, default: int | None = None) -> int:
        value = _gguf_value(reader, f"{kind}.{key}")
        if isinstance(value, list) and len(set(map(str, value))) == 1:  # one for each layer
            value = value[0]
        value = default if value is None else value
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
