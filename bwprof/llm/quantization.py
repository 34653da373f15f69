"""Weights as the quantization_config of a config.json stores them: bytes and precision of every matrix."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bwprof.llm.architecture import Architecture
from bwprof.llm.workload import FUSED_TENSORS, StoredWeights
from bwprof.text.parsing import describe_unknown, parse_names, quote_text

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
        """Count the bytes of a matrix."""
        blocks = -(-rows // (self.block[0] or rows)) * -(-columns // (self.block[1] or columns))
        more = blocks * self.block_bytes + columns * self.column_bytes + self.matrix_bytes
        return rows * columns * self.bits / 8 + more


_LayoutOf = Callable[[str, str], _Layout]  # of a tensor in a module


def check_folder(path: Path, config: Mapping[str, Any]) -> None:
    """Raise ValueError if another file beside a config.json quantises the weights, which is not read."""
    files = [path.with_name(name) for name in _FILES] if path.name == "config.json" else []
    other = next((file for file in files if os.path.lexists(file)), None)
    if other is not None and not any(config.get(name) for name in _FIELDS):
        raise ValueError(
            f"{quote_text(other)} quantises the weights of {quote_text(path)} and is not read: write it as "
            f"quantization_config of config.json; {_ESTIMATE}"
        )


def read_weights(
    model: Architecture, config: Mapping[str, Any], source: str = "config"
) -> tuple[Architecture, StoredWeights | None]:
    """Read how a config.json stores the model's weights; None if it does not quantise them.

    ValueError for an unknown method, or an unknown field of one; the message names it and the `source`.
    """
    inner = config.get("text_config")
    both = [config, inner if isinstance(inner, Mapping) else {}]
    quantization = next((part[name] for part in both for name in _FIELDS if part.get(name)), None)
    kind = next((str(part[name]) for part in both for name in ("torch_dtype", "dtype") if part.get(name)), "")
    label = {"float32": "fp32", "float16": "fp16"}.get(kind.removeprefix("torch."), "bf16")
    plain = _Layout(label, label, 32 if label == "fp32" else 16)
    try:
        return model, None if quantization is None else _stored_weights(model, quantization, plain)
    except ValueError as error:
        raise ValueError(f"{source}: {error}; {_ESTIMATE}") from None


def _stored_weights(model: Architecture, config: Any, plain: _Layout) -> StoredWeights:
    method = config.get("quant_method") if isinstance(config, Mapping) else config
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(describe_unknown("quant_method of quantization_config", method, METHODS, meant=""))
    if model.layers > _MAX_LAYERS:
        raise ValueError(f"a quantised model has {model.layers} layers: allowed are 1 to {_MAX_LAYERS}")
    try:
        layouts = _read_layouts(METHODS[method], config)
        excluded = _Names(name for field in _EXCLUDED for name in parse_names(field, config.get(field) or None))
        scheme = config.get("kv_cache_scheme") or {"num_bits": 0, "type": ""}
        kv = {(0, ""): "", (8, "float"): "fp8_e4m3", (8, "int"): "int8"}[scheme["num_bits"], scheme["type"]]
    except (AttributeError, LookupError, TypeError, re.error) as error:
        raise ValueError(f"quantization_config of {method}: missing, or not read: {quote_text(error)}") from None

    unquantised = {_ROUTER} if config.get("lm_head") is True else {_ROUTER, _HEAD}

    def layout_of(tensor: str, module: str) -> _Layout:
        if tensor in unquantised or excluded.have(module):
            return plain
        return next((layout for names, layout in layouts if names.have(module) or "Linear" in names.literal), plain)

    weights = _count_weights(model, plain, layout_of, kv)
    if not any(layout.label in weights.types for _, layout in layouts):
        raise ValueError(f"quantization_config of {method}: it quantises no matrix of this architecture")
    return weights


_Layouts = list[tuple[Any, _Layout]]  # names of modules, or Linear for all, and their layout


def _read_layouts(
    read: Callable[[Mapping[str, Any]], _Layouts], config: Mapping[str, Any]
) -> list[tuple[_Names, _Layout]]:
    layouts = [(_Names(parse_names("targets", targets)), layout) for targets, layout in read(config)]
    layouts.sort(key=lambda entry: "Linear" in entry[0].literal)  # behind those that name modules
    if not all(type(side) is int and side >= 0 for _, layout in layouts for side in layout.block):
        raise TypeError("a size of groups or blocks")
    return layouts


def _integer_groups(config: Mapping[str, Any]) -> _Layouts:
    """Read awq and gptq: a scale and a zero point for each group of a row; for gptq also the order of columns."""
    if config.get("dynamic"):
        raise LookupError("dynamic")
    method, bits, group = config["quant_method"], config["bits"], max(0, config["group_size"])
    precision, order = {2: "q4_0", 3: "q4_0", 4: "q4_0", 8: "int8"}[bits], 4 * (method == "gptq")
    return [("Linear", _Layout(f"{method} {bits} bits", precision, bits, (1, group), 2 + bits / 8, order))]


def _fp8(config: Mapping[str, Any]) -> _Layouts:
    size = config.get("weight_block_size") or (0, 0)  # without blocks: a scale of the matrix, and one of its input
    return [("Linear", _Layout("fp8", "fp8_e4m3", 8, (size[0], size[1]), 4 if any(size) else 8))]


def _compressed_tensors(config: Mapping[str, Any]) -> _Layouts:
    form = str(config.get("format") or "dense")
    if config.get("sparsity_config") or form.removesuffix("-quantized") not in _FORMATS:
        raise LookupError("sparsity_config" if config.get("sparsity_config") else form)
    groups = config["config_groups"].values()
    return [(group["targets"], _group(group["weights"], packed=form == "pack-quantized")) for group in groups]


def _group(weights: Mapping[str, Any], *, packed: bool) -> _Layout:
    """Read a group of compressed-tensors."""
    kind, size = (weights["num_bits"], weights["type"]), max(0, weights.get("group_size") or 0)
    label = f"compressed-tensors {kind[0]} bits {kind[1]}"
    if kind == (4, "float"):
        return _Layout(label, "q4_0", 4, (1, {16: 16, 32: 32}[size]), 1, matrix_bytes=8)
    precision = {(8, "float"): "fp8_e4m3", (8, "int"): "int8", (4, "int"): "q4_0"}[kind]
    side = weights.get("block_structure") or (128, 128)
    blocks = {"channel": (1, 0), "tensor": (0, 0), "group": (1, size), "block": (side[0], side[1])}
    scale = 2 + (0 if weights.get("symmetric", True) else kind[0] / 8)
    order = 4 * (weights.get("actorder") in ("group", "dynamic"))
    return _Layout(label, precision, kind[0], blocks[weights["strategy"]], scale, order, 16 * packed)


def _bitsandbytes(config: Mapping[str, Any]) -> _Layouts:
    if config.get("load_in_4bit"):
        scale = 1 + 4 / 256 if config.get("bnb_4bit_use_double_quant") else 4
        return [("Linear", _Layout("bitsandbytes 4 bits", "q4_0", 4, (1, 64), scale, matrix_bytes=1024))]
    return [("Linear", {True: _Layout("bitsandbytes 8 bits", "int8", 8, (1, 0), 4)}[config["load_in_8bit"]])]


def _mxfp4(_config: Mapping[str, Any]) -> _Layouts:
    return [("experts", _Layout("mxfp4", "q4_0", 4, (1, 32), 1))]


def _modelopt(config: Mapping[str, Any]) -> _Layouts:
    nvfp4 = _Layout("modelopt NVFP4", "q4_0", 4, (1, 16), 1, matrix_bytes=8)
    fp8 = _Layout("modelopt FP8", "fp8_e4m3", 8, matrix_bytes=8)
    return [("Linear", {"NVFP4": nvfp4, "FP8": fp8}[config["quant_algo"]])]


METHODS: dict[str, Callable[[Mapping[str, Any]], _Layouts]] = {
    "awq": _integer_groups,
    "gptq": _integer_groups,
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
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
        """Return whether a module, or one that contains it, is among the names."""
        parts = module.split(".")
        inner = (".".join(parts[low:high]) for low in range(len(parts)) for high in range(low + 1, len(parts) + 1))
        return any(name in self.literal for name in inner) or any(regex.match(module) for regex in self.patterns)


def _count_weights(model: Architecture, plain: _Layout, layout_of: _LayoutOf, kv: str) -> StoredWeights:
    """Count the model's matrices, each layer's in its layout."""
    types: dict[str, Counter[str]] = defaultdict(Counter)
    table = model.embedding_elements * plain.bits // 8
    types[plain.label].update(tensors=int(table > 0), bytes=table, token_bytes=model.hidden * plain.bits // 8)
    matrices = _Sums(lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    for tensor, rows, columns, count in model.matrices():
        active = model.experts_per_token / max(1, model.experts) if tensor.endswith(_EXPERTS) else 1.0
        names = (tensor, *_products_of(tensor))
        for layout, share in _split_by_layout(model, plain, layout_of, tensor, count if rows * columns else 0):
            size = layout.bytes_of(rows, columns) * share
            types[layout.label].update(tensors=round(share), bytes=round(size), token_bytes=round(size * active))
            for name in names:
                sums = matrices[name][layout.precision]
                sums[:] = [old + new for old, new in zip(sums, (share, size, rows * columns * share), strict=True)]
    _drop_mixed_products(matrices)
    counts = {name: sum(sums[0] for sums in own.values()) for name, own in matrices.items()}
    return StoredWeights(
        sum(line["bytes"] for line in types.values()),
        {label: dict(line) for label, line in types.items()},
        {name: {kind: sums[0] / counts[name] for kind, sums in own.items()} for name, own in matrices.items()},
        {name: {kind: sums[1] / sums[2] for kind, sums in own.items()} for name, own in matrices.items()},
        kv,
    )


_Sums = defaultdict[str, dict[str, list[float]]]  # tensor -> precision -> matrices, bytes, elements


def _products_of(tensor: str) -> list[str]:
    return [fused for fused, members in FUSED_TENSORS.items() if tensor in members]


def _drop_mixed_products(matrices: _Sums) -> None:
    """Drop products whose tensors differ in precision: one product has one precision in a layer."""
    for fused, members in FUSED_TENSORS.items():
        parts = [{kind: sums[0] for kind, sums in matrices[name].items()} for name in members if name in matrices]
        if any(part != parts[0] for part in parts):
            del matrices[fused]


def _split_by_layout(
    model: Architecture, plain: _Layout, layout_of: _LayoutOf, tensor: str, count: int
) -> Iterator[tuple[_Layout, float]]:
    """Yield the layouts of a tensor's matrices, and how many matrices have each."""
    layers = Counter[_Layout]()
    for layer in range(model.layers if count else 0):
        names = [name if tensor == _HEAD else f"model.layers.{layer}.{name}" for name in _MODULES[tensor]]
        each = [layout_of(tensor, name) for name in names]
        layers[plain if plain in each else each[0]] += 1
    for layout, times in layers.items():
        yield layout, count * times / model.layers
