"""Weights as the quantization_config of a config.json stores them: bytes of every matrix, and how it is timed."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from bwprof.llm.architecture import Architecture
from bwprof.llm.workload import FUSED_TENSORS, StoredWeights
from bwprof.text.parsing import describe_unknown, parse_names, quote_text

METHODS = ("awq", "gptq", "fp8", "compressed-tensors", "bitsandbytes", "mxfp4", "modelopt")

_FIELDS = ("quantization_config", "compression_config", "quantization")  # of transformers, its past, MLX

_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")  # of others, beside config.json

_ESTIMATE = "for an estimate, delete it from the file and name a precision of the weights: q4_0, fp8, ..."

_FORMATS = ("pack", "float", "int", "naive", "nvfp4-pack", "mxfp4-pack", "mixed-precision", "dense")

_LEFT = ("ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules")

_HEAD, _ROUTER, _EXPERTS = "output", "ffn_gate_inp", "_exps"

_MOST_LAYERS, _MOST_PATTERNS = 1000, 100

# What modules are called whose matrices GGUF names so: of Llama's kind, of Mixtral's and of GPT-OSS'.
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
    """How a matrix is stored, and the precision that it is timed in: bits an element, bytes of each block of rows x
    columns (0: all of them), of each column, and of the whole.
    """

    label: str
    precision: str
    bits: int
    block: tuple[int, int] = (0, 0)
    block_bytes: float = 0.0
    column_bytes: int = 0
    matrix_bytes: int = 0

    def bytes_of(self, rows: int, columns: int) -> float:
        """Count what a matrix takes."""
        blocks = -(-rows // (self.block[0] or rows)) * -(-columns // (self.block[1] or columns))
        more = blocks * self.block_bytes + columns * self.column_bytes + self.matrix_bytes
        return rows * columns * self.bits / 8 + more


def read_weights(
    model: Architecture, config: Mapping[str, Any], source: str = "config"
) -> tuple[Architecture, StoredWeights | None]:
    """Read how a config.json says that the model's weights are stored; None where it does not quantise them.

    Raises
    ------
    ValueError
        For a method, or a field of one, that is not read; the message names it and the `source`.
    """
    inner = config.get("text_config")
    both = [config, inner if isinstance(inner, Mapping) else {}]
    found = next((one[name] for one in both for name in _FIELDS if one.get(name)), None)
    kind = next((str(one[name]) for one in both for name in ("torch_dtype", "dtype") if one.get(name)), "")
    label = {"float32": "fp32", "float16": "fp16"}.get(kind.removeprefix("torch."), "bf16")
    plain = _Layout(label, label, 32 if label == "fp32" else 16)
    try:
        return model, None if found is None else _stored(model, found, plain)
    except ValueError as error:
        raise ValueError(f"{source}: {error}; {_ESTIMATE}") from None


def _stored(model: Architecture, found: Any, plain: _Layout) -> StoredWeights:
    method = found.get("quant_method") if isinstance(found, Mapping) else found
    if method not in METHODS:
        raise ValueError(describe_unknown("quant_method of quantization_config", method, METHODS, meant=""))
    if model.layers > _MOST_LAYERS:
        raise ValueError(f"a quantised model has {model.layers} layers: allowed are 1 to {_MOST_LAYERS}")
    try:
        layouts = [(_Names(parse_names("targets", targets)), layout) for targets, layout in _layouts(method, found)]
        layouts.sort(key=lambda entry: "Linear" in entry[0].literal)  # behind those that name modules
        left = _Names(name for field in _LEFT for name in parse_names(field, found.get(field) or None))
        scheme = found.get("kv_cache_scheme") or {"num_bits": 0, "type": ""}
        kv = {(0, ""): "", (8, "float"): "fp8_e4m3", (8, "int"): "int8"}[scheme["num_bits"], scheme["type"]]
        if not all(type(side) is int and side >= 0 for _, layout in layouts for side in layout.block):
            raise TypeError("a size of groups or blocks")
    except (AttributeError, LookupError, TypeError, re.error) as error:
        raise ValueError(f"quantization_config of {method}: missing, or not read: {quote_text(error)}") from None

    def layout_of(tensor: str, module: str) -> _Layout:
        head = tensor == _HEAD and found.get("lm_head") is not True
        if head or tensor == _ROUTER or left.have(module):
            return plain
        return next((layout for names, layout in layouts if names.have(module) or "Linear" in names.literal), plain)

    counted = _counted(model, plain, layout_of, kv)
    if not any(layout.label in counted.types for _, layout in layouts):
        raise ValueError(f"quantization_config of {method}: it quantises no matrix of this architecture")
    return counted


def _layouts(method: str, found: Mapping[str, Any]) -> Iterator[tuple[Any, _Layout]]:
    """What is stored how: names of modules, or Linear for all, and their layout."""
    if method == "compressed-tensors":
        form = str(found.get("format") or "dense")
        if found.get("sparsity_config") or form.removesuffix("-quantized") not in _FORMATS:
            raise LookupError("sparsity_config" if found.get("sparsity_config") else form)
        for group in found["config_groups"].values():
            yield group["targets"], _group(group["weights"], packed=form == "pack-quantized")
    elif method == "mxfp4":
        yield "experts", _Layout(method, "q4_0", 4, (1, 32), 1)
    elif method == "modelopt":
        nvfp4 = _Layout("modelopt NVFP4", "q4_0", 4, (1, 16), 1, matrix_bytes=8)
        fp8 = _Layout("modelopt FP8", "fp8_e4m3", 8, matrix_bytes=8)
        yield "Linear", {"NVFP4": nvfp4, "FP8": fp8}[found["quant_algo"]]
    elif method == "fp8":
        size = found.get("weight_block_size") or (0, 0)  # of the whole matrix: a scale of it, and one of its input
        yield "Linear", _Layout(method, "fp8_e4m3", 8, (size[0], size[1]), 4 if any(size) else 8)
    elif method == "bitsandbytes" and found.get("load_in_4bit"):
        scale = 1 + 4 / 256 if found.get("bnb_4bit_use_double_quant") else 4
        yield "Linear", _Layout(f"{method} 4 bits", "q4_0", 4, (1, 64), scale, matrix_bytes=1024)
    elif method == "bitsandbytes":
        yield "Linear", {True: _Layout(f"{method} 8 bits", "int8", 8, (1, 0), 4)}[found["load_in_8bit"]]
    elif found.get("dynamic"):
        raise LookupError("dynamic")
    else:  # a scale and a zero point for each group of a row; of GPTQ the order of columns
        bits, group = found["bits"], max(0, found["group_size"])
        precision, order = {2: "q4_0", 3: "q4_0", 4: "q4_0", 8: "int8"}[bits], 4 * (method == "gptq")
        yield "Linear", _Layout(f"{method} {bits} bits", precision, bits, (1, group), 2 + bits / 8, order)


def _group(weights: Mapping[str, Any], *, packed: bool) -> _Layout:
    """A group of compressed-tensors."""
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


class _Names:
    """Names of modules, whole or in part, with wildcards, or expressions behind `re:`."""

    def __init__(self, names: Iterable[str]) -> None:
        plain = [name.replace("language_model.", "").strip(".") for name in names]
        self.literal = {name for name in plain if not name.startswith("re:") and not set(name) & set("*?[")}
        others = [name for name in dict.fromkeys(plain) if name not in self.literal]
        slow = re.compile(r"\)[*+?{]|(?:[*+?{].*){5}")  # of a name that is no module's
        refused = [name for name in plain if re.search(r"experts\.\d", name)] + [*filter(slow.search, others)]
        if refused or len(others) > _MOST_PATTERNS:
            raise LookupError(f"modules by '{(refused or others)[0]}'")
        self.patterns = [
            re.compile(name[3:] if name.startswith("re:") else rf"(.*\.)?{fnmatch.translate(name)[:-2]}(\..*)?$")
            for name in others
        ]

    def have(self, module: str) -> bool:
        """Say whether a module, or one that it is in, is among them."""
        parts = module.split(".")
        inner = (".".join(parts[low:high]) for low in range(len(parts)) for high in range(low + 1, len(parts) + 1))
        return any(name in self.literal for name in inner) or any(one.match(module) for one in self.patterns)


def _counted(model: Architecture, plain: _Layout, layout_of: Any, kv: str) -> StoredWeights:
    """Count the model's matrices, each layer's in its layout."""
    types: dict[str, Counter[str]] = defaultdict(Counter)
    table = model.embedding_elements * plain.bits // 8
    types[plain.label].update(tensors=int(table > 0), bytes=table, token_bytes=model.hidden * plain.bits // 8)
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    for tensor, rows, columns, count in model.matrices():
        layers = Counter[_Layout]()
        for layer in range(model.layers if rows * columns * count else 0):
            names = [name if tensor == _HEAD else f"model.layers.{layer}.{name}" for name in _MODULES[tensor]]
            each = [layout_of(tensor, name) for name in names]
            layers[plain if plain in each else each[0]] += 1
        active = model.experts_per_token / max(1, model.experts) if tensor.endswith(_EXPERTS) else 1.0
        for layout, times in layers.items():
            share = count * times / model.layers
            size = layout.bytes_of(rows, columns) * share
            types[layout.label].update(tensors=round(share), bytes=round(size), token_bytes=round(size * active))
            for name in (tensor, *(fused for fused, members in FUSED_TENSORS.items() if tensor in members)):
                sums = found[name][layout.precision]
                sums[:] = [old + new for old, new in zip(sums, (share, size, rows * columns * share), strict=True)]
    for fused, members in FUSED_TENSORS.items():  # one product has one precision in a layer
        parts = [{kind: sums[0] for kind, sums in found[name].items()} for name in members if name in found]
        if any(part != parts[0] for part in parts):
            del found[fused]
    whole = {name: sum(sums[0] for sums in own.values()) for name, own in found.items()}
    return StoredWeights(
        sum(line["bytes"] for line in types.values()),
        {label: dict(line) for label, line in types.items()},
        {name: {kind: sums[0] / whole[name] for kind, sums in own.items()} for name, own in found.items()},
        {name: {kind: sums[1] / sums[2] for kind, sums in own.items()} for name, own in found.items()},
        kv,
    )
