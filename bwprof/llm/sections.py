"""A model's steps as text: the answer in a sentence, tables, notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from typing import Any

from bwprof.analysis.prediction.catalogue import CUSTOM_DEVICE
from bwprof.llm.figures import BOTH, FormatComparison, FormatOffer, LayerTime, MemoryRoom, StepFigures
from bwprof.llm.workload import AS_STORED, DECODE, ModelRequest, OmittedWork
from bwprof.text.document import DocumentTable, make_table
from bwprof.text.formatting import format_figure, format_short, is_missing

_BOUND = {
    "memory": "is memory-bound",
    "compute": "is compute-bound",
    "latency": "is bound by the latency of its launches",
    "kernel": "is held up by its kernels, not by the device",
}

_TWO_DIGITS_FROM = 1.05  # a gain below is written with three digits, and is not worth naming beside a larger one

# ---- the answer ----


def answer(step: StepFigures, steps: Sequence[StepFigures], formats: FormatComparison) -> str:
    """Return what limits a step, its tokens per second, and the gain of narrower formats; or that it does not fit."""
    text = _describe_step(step, steps, formats) if step.may_fit else _does_not_fit(step, formats)
    return text + _beyond_context(formats.request, steps)


def _describe_step(step: StepFigures, steps: Sequence[StepFigures], formats: FormatComparison) -> str:
    name, point = formats.request.model.name, step.point
    if step.time_ms is None or step.tokens_s is None:
        return f"{name}: no time for a step of {point.phase} ({step.missing})"
    phase = "Decode" if point.phase == DECODE else "Prefill"
    bound = f"{phase} {_BOUND[step.limiter]}" if step.limiter in _BOUND else f"{phase} of {name}"
    tokens = f"{_tokens(step.tokens_s)} tokens/s"
    share = ""
    if step.limit_pct is not None:
        share = f"{format_short(step.limit_pct, '.0f')} % of what this device sustains"
    elif step.mbu_pct is not None and step.measured_pct:
        share = f"{format_short(step.mbu_pct, '.0f')} % of the theoretical bandwidth"
    if step.measured_pct:
        parts = [f"{bound}: {share}" if share else bound, tokens]
    else:
        parts = [bound, f"{tokens} predicted{f' at {share}' if share else ''}"]
    gain = _describe_gain(formats.offers())
    size = f"batch {point.batch}, context {point.context}, weights {format_name(point.weights)}"
    which = f"{name}, {size}, cache {format_name(point.kv)}{_on_device(step)}"
    return f"{'; '.join([*parts, *gain])}. {which}.{_too_large(steps)}"


def device_of(step: StepFigures) -> str:
    """Return the device of a step's rows; "" if they have none."""
    return next((str(row["device"]) for row in step.rows if row.get("device")), "")


def _on_device(step: StepFigures) -> str:
    device = device_of(step)
    return f", on {'the device given' if device == CUSTOM_DEVICE else device}" if device else ""


def _too_large(steps: Sequence[StepFigures]) -> str:
    with_cache = len({step.point.kv for step in steps}) > 1
    names: dict[str, None] = {}
    for point in (step.point for step in steps if not step.may_fit):
        cache = f"cache {format_name(point.kv)}, " if with_cache else ""
        names[f"weights {format_name(point.weights)}, {cache}batch {point.batch}, context {point.context}"] = None
    more = f"; and {len(names) - 2} more" if len(names) > 2 else ""
    return f" Too large for the memory: {'; '.join([*names][:2])}{more}." if names else ""


def _beyond_context(request: ModelRequest, steps: Sequence[StepFigures]) -> str:
    limit = request.model.max_context
    beyond = sorted({step.point.context for step in steps if 0 < limit < step.point.context})
    if not beyond:
        return ""
    more = f" and {len(beyond) - 3} more" if len(beyond) > 3 else ""
    which = f"Context {beyond[0]} is" if len(beyond) == 1 else f"Contexts {', '.join(map(str, beyond[:3]))}{more} are"
    return f" {which} beyond the {limit} tokens that {request.model.name} was made for (max_position_embeddings)."


def _describe_gain(offers: Sequence[FormatOffer]) -> list[str]:
    """Return the largest gain of a single change; with the others if they matter."""
    single = [offer for offer in offers if offer.name != BOTH]
    if not single:
        return []
    best = max(single, key=lambda offer: offer.times)
    verb = "bring" if best.is_measured else "would bring"
    if best.times < 1.005:
        return [f"{best.name} {verb} nothing"]
    others = ", ".join(f"{offer.name} {_times(offer)}" for offer in offers if offer is not best)
    matter = any(offer.times >= _TWO_DIGITS_FROM for offer in single if offer is not best)
    return [f"{best.name} {verb} {_times(best)}" + (f" ({others})" if matter else "")]


def _times(offer: FormatOffer) -> str:
    return f"{offer.times:{'.3g' if offer.times < _TWO_DIGITS_FROM else '.2g'}} \u00d7"


def _does_not_fit(step: StepFigures, formats: FormatComparison) -> str:
    fit, point = step.fit, step.point
    assert fit is not None
    text = (
        f"{formats.request.model.name}, weights {format_name(point.weights)}{_on_device(step)}, does not fit: "
        f"{_gb(fit.weights)} of weights and {_gb(fit.kv)} of KV cache (batch {point.batch}, context {point.context}), "
        f"of {_gb(fit.memory)} of memory {_gb(fit.usable)} can be used ({fit.reserve:.0%} is left for activations and "
        "scratch)."
    )
    narrower = [line for line in formats.formats if line.fits and line.weight_bytes < fit.weights]
    if narrower:
        widest = max(narrower, key=lambda line: line.weight_bytes)
        return f"{text} With weights {format_name(widest.weights)} it does: {_gb(widest.weight_bytes)}."
    cached = formats.fitting_cache()
    if cached is not None:
        weights = "" if cached.weights == point.weights else f"weights {format_name(cached.weights)} and "
        return f"{text} With {weights}cache {format_name(cached.kv)} it does: {_gb(cached.kv_bytes)} of KV cache."
    count = -(-(fit.weights + fit.kv) // max(1, fit.usable))
    return f"{text} It would take {count} such devices, or a smaller model."


# ---- tables ----

# Columns that a narrow screen drops, in this order.
_SPARE = (
    *("GB moved", "MBU %", "precision", "count", "share %"),
    *("KB of cache a token", "context", "limiter", "% of limit"),
)


def spare_columns(grid: object) -> list[str]:
    """Return the columns that a narrow screen drops: not the context if it differs between lines."""
    contexts = next((set(column.cells) for column in getattr(grid, "columns", ()) if column.header == "context"), set())
    return [name for name in _SPARE if name != "context" or len(contexts) < 2]


# Headings of columns of text.
_TEXT_COLUMNS = {
    *("device", "phase", "weights", "cache", "limiter", "role"),
    *("shape", "precision", "status", "source", "type", "fits"),
}


def format_name(name: str) -> str:
    """Return a format as tables name it."""
    return "as stored" if name == AS_STORED else name.upper()


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1 else format_figure(value, whole_from=1000)


def _tokens(value: float) -> str:
    return format_short(value, ",.0f").replace(",", " ") if value >= 100 else f"{value:.3g}"


def _gb(count: float) -> str:
    return f"{format_short(count / 1e9, '.3g' if count < 999.5e9 else '.0f')} GB"


def _percent(value: float) -> str:
    return format_short(value, ".0f")


def _giga(value: float) -> str:
    return f"{value / 1e9:.3g}"


def _micro(value: float) -> str:
    return _number(value * 1e3)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


_Columns = dict[str, tuple[str, Callable[[Any], object]]]  # heading -> key of a line, format


def _same(*names: str) -> _Columns:
    return {name: (name, str) for name in names}


_FORMAT: _Columns = {"weights": ("weights", format_name), "cache": ("kv", format_name)}

STEPS: _Columns = {
    **_same("phase", "batch", "context"),
    **_FORMAT,
    "ms": ("time_ms", _number),
    "tokens/s": ("tokens_s", _tokens),
    "MBU %": ("mbu_pct", _percent),
    "% of limit": ("limit_pct", _percent),
    "limiter": ("limiter", str),
    "GB moved": ("moved_bytes", _giga),
    "measured %": ("measured_pct", _percent),
    "fits": ("fits", _yes_no),
}

DEVICE_STEPS: _Columns = _same("device") | STEPS

OPERATIONS: _Columns = {
    **_same("role", "shape", "precision", "count"),
    "us each": ("time_ms", _micro),
    "ms": ("step_ms", _number),
    "share %": ("share_pct", lambda value: format_short(value, ".1f")),
    "% of limit": ("limit_pct", _percent),
    **_same("limiter", "status"),
}

FORMATS: _Columns = {
    **_FORMAT,
    "GB of weights": ("weight_bytes", _giga),
    "fits": ("fits", _yes_no),
    "ms": ("time_ms", _number),
    "tokens/s": ("tokens_s", _tokens),
    "x FP16": ("speedup_vs_fp16", lambda value: format_short(value, ".2f")),
    "source": ("source", str),
}

TYPES: _Columns = {
    **_same("type", "tensors"),
    "GB": ("bytes", lambda value: f"{value / 1e9:.4g}"),
    "GB a token": ("token_bytes", lambda value: f"{value / 1e9:.4g}"),
}

LAYERS: _Columns = {
    **_same("phase", "batch", "context"),
    **_FORMAT,
    "us together": ("together_ms", _micro),
    "us, sum": ("sum_ms", _micro),
    "together / sum": ("ratio", lambda value: format_short(value, ".3f")),
    "status": ("status", str),
}


def room_columns(room: MemoryRoom) -> _Columns:
    """Return the columns of what fits: a largest batch for each context, a longest context for each batch."""
    columns: _Columns = {
        **_FORMAT,
        "GB of weights": ("weight_bytes", _giga),
        "KB of cache a token": (
            "token_bytes",
            lambda sizes: ", ".join(dict.fromkeys(f"{size / 1e3:.4g}" for size in sizes.values())),
        ),
    }
    for context in room.batches:
        columns[f"largest batch\nat {context}"] = ("batches", itemgetter(context))
    for batch in room.contexts:
        columns[f"longest context\nof batch {batch}"] = ("contexts", partial(_context_of, batch))
    return columns


def _context_of(batch: int, contexts: Mapping[int, int | None]) -> object:
    return "any" if contexts[batch] is None else contexts[batch]


def make_step_table(title: str, lines: Sequence[Mapping[str, Any]], columns: _Columns) -> DocumentTable | None:
    """Return a table of text; None without lines."""
    cells = [[None if is_missing(line[key]) else write(line[key]) for key, write in columns.values()] for line in lines]
    return make_table(
        list(columns), cells, numbers=[name for name in columns if name not in _TEXT_COLUMNS], caption=title
    )


def describe_shape(row: Mapping[str, Any]) -> str:
    """Return the sizes of a product, else batch and lengths."""
    if row["M"] is not None:
        return "x".join(str(row[name]) for name in ("M", "N", "K"))
    names = {"batch": "b", "seq_len": "s", "kv_len": "kv"}
    return " ".join(f"{letter}={row[name]}" for name, letter in names.items() if row.get(name) is not None)


def layer_line(layer: LayerTime) -> dict[str, Any]:
    """Return a line of the table of layers."""
    ratio = layer.together_ms / layer.sum_ms if layer.together_ms and layer.sum_ms else None
    return asdict(layer) | asdict(layer.point) | {"ratio": ratio, "status": layer.reason or "ok"}


def room_title(request: ModelRequest, memory: int) -> str:
    """Return the title of the table of what fits."""
    return f"What fits {_gb(memory)}, {request.reserve:.0%} of them left for activations and scratch"


# ---- notes ----


def notes(request: ModelRequest, step: StepFigures, omitted: Sequence[OmittedWork]) -> list[str]:
    """Return what the figures assume, and what they omit."""
    model = request.model
    products = "Separate products: q, k, v, gate and up each."
    if request.layout == "fused":
        products = "Fused products: q, k and v in one, gate and up in one."
    lines = [
        f"{model.parameters / 1e9:.3g} billion weights. {products} Attention over a cache of that context, the new "
        "token included."
    ]
    if model.experts:
        lines.append(
            f"{model.experts_per_token} of {model.experts} experts a token. A batch reads the experts of all its "
            "tokens: the mean number if tokens choose at random. A layer's experts are one launch a product, as "
            "engines group them; in fuller layers each expert has a token more."
        )
    if request.stored is not None and any(point.weights == AS_STORED for point in request.points):
        lines.append(
            "Weights as stored: types without kernels here are timed as the precision nearest in size (the column "
            "precision); sizes and what fits are the file's own."
        )
    if step.time_ms is not None:
        lines += _notes_on_limits(step)
    times = [item.time_ms for item in omitted if item.time_ms is not None]
    unfused = f"{', '.join(item.what for item in omitted)}: {sum(item.count for item in omitted)} launches unfused"
    if times and step.time_ms:
        unfused += (
            f", about {_number(sum(times))} ms ({format_short(100 * sum(times) / step.time_ms, '.0f')} % of the step)"
        )
    lines.append(
        f"Left out: {unfused}; communication between devices; the gaps between {step.launches} launches outside a "
        "CUDA graph."
    )
    lines.append(
        "MBU: bytes of weights and cache that the step reads, by its time, of the theoretical peak. % of limit: of the "
        "roof that each operation is nearer to, by time. measured %: the measured share of that time."
    )
    return lines


def _notes_on_limits(step: StepFigures) -> list[str]:
    reasons = [row["reason"] for row in step.rows if row["status"] == "predicted" and row["reason"]]
    lines = [f"Predicted: {reasons[0]}."] if reasons else []
    if all(row.get("attainable_gb_s") is None for row in step.rows):
        lines.append(
            "% of limit, and what limits, is not known without the device's roofs: measure with them (without "
            "--no-roofs, roofs=False)."
        )
    return lines


def wrap_lines(lines: Sequence[str], width: int) -> str:
    """Wrap paragraphs for a terminal."""
    import textwrap

    from bwprof.text.terminal import PLAIN_WIDTH

    return "\n".join(textwrap.fill(line, min(width, PLAIN_WIDTH), subsequent_indent="  ") for line in lines)
