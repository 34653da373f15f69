"""A model's steps in words and tables: the answer in a sentence, lines of frames, lines of tables, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bwprof.analysis.prediction.catalogue import CUSTOM_DEVICE
from bwprof.llm import figures
from bwprof.llm.architecture import Architecture
from bwprof.llm.figures import BOTH, FormatOffer, MemoryRoom, StepFigures, StepFormat
from bwprof.llm.workload import AS_STORED, DECODE, PREFILL, ModelRequest, OmittedWork, StepPoint
from bwprof.text.formatting import format_figure, format_short

_BOUND = {
    "memory": "is memory-bound",
    "compute": "is compute-bound",
    "latency": "is bound by the latency of its launches",
    "kernel": "is held up by its kernels, not by the device",
}

_PHASES = {DECODE: "Decode", PREFILL: "Prefill"}


def may_fit(step: StepFigures) -> bool:
    """Whether its memory is enough, or not known."""
    return step.fit is None or step.fit.fits


# ---- the answer ----


def _beyond_context(model: Architecture, steps: Sequence[StepFigures]) -> str:
    """The contexts beyond what the model was made for, which are computed all the same."""
    beyond = sorted({step.point.context for step in steps if 0 < model.max_context < step.point.context})
    if not beyond:
        return ""
    more = f" and {len(beyond) - 3} more" if len(beyond) > 3 else ""
    which = f"Context {beyond[0]} is" if len(beyond) == 1 else f"Contexts {', '.join(map(str, beyond[:3]))}{more} are"
    return f" {which} beyond the {model.max_context} tokens that {model.name} was made for (max_position_embeddings)."


def answer(
    step: StepFigures,
    name: str,
    formats: Sequence[StepFormat],
    steps: Sequence[StepFigures],
    offers: Sequence[FormatOffer],
    cached: StepFormat | None,
) -> str:
    """What limits a step, how fast it is, and what narrower formats would bring; or that it, or others, do not fit."""
    point = step.point
    if step.fit is not None and not may_fit(step):
        return _does_not_fit(step, name, formats, cached)
    if step.time_ms is None or step.tokens_s is None:
        return f"{name}: no time for a step of {point.phase} ({step.missing})"
    phase = _PHASES[point.phase]
    said = [f"{phase} {_BOUND[step.limiter]}" if step.limiter in _BOUND else f"{phase} of {name}"]
    tokens = f"{_figure(step.tokens_s)} tokens/s"
    if not step.measured_pct:
        share = (
            ""
            if step.limit_pct is None
            else f" at {format_short(step.limit_pct, '.0f')} % of what this device sustains"
        )
        said.append(f"{tokens} predicted{share}")
    else:
        if step.limit_pct is not None:
            said[0] += f": {format_short(step.limit_pct, '.0f')} % of what this device sustains"
        elif step.mbu_pct is not None:
            said[0] += f": {format_short(step.mbu_pct, '.0f')} % of the theoretical bandwidth"
        said.append(tokens)
    brings = _gain(offers)
    if brings:
        said.append(brings)
    formats_said = f"weights {format_name(point.weights)}, cache {format_name(point.kv)}"
    which = f"{name}, batch {point.batch}, context {point.context}, {formats_said}{_on(step)}"
    return f"{'; '.join(said)}. {which}.{_too_large(steps)}"


def _on(step: StepFigures) -> str:
    """The device that the rows are of, or for; "" where they do not say it."""
    device = _device(step)
    return f", on {'the device given' if device == CUSTOM_DEVICE else device}" if device else ""


def _device(step: StepFigures) -> str:
    return next((str(row["device"]) for row in step.rows if row.get("device")), "")


def _too_large(steps: Sequence[StepFigures]) -> str:
    """Which of the steps that were asked for do not fit, where others do."""
    refused = [step.point for step in steps if not may_fit(step)]
    caches = {step.point.kv for step in steps}
    names = [*dict.fromkeys(_named(point, with_cache=len(caches) > 1) for point in refused)]
    more = f"; and {len(names) - 2} more" if len(names) > 2 else ""
    return f" Too large for the memory: {'; '.join(names[:2])}{more}." if names else ""


def _named(point: StepPoint, *, with_cache: bool) -> str:
    cache = f"cache {format_name(point.kv)}, " if with_cache else ""
    return f"weights {format_name(point.weights)}, {cache}batch {point.batch}, context {point.context}"


def _gain(offers: Sequence[FormatOffer]) -> str:
    """What narrower weights or a narrower cache bring: the one that brings more, and the others where they matter."""
    single = [offer for offer in offers if offer.said != BOTH]
    if not single:
        return ""
    best = max(single, key=lambda offer: offer.times)
    verb = "bring" if best.is_measured else "would bring"
    if best.times < 1.005:
        return f"{best.said} {verb} nothing"
    told = [f"{offer.said} {_times(offer)}" for offer in offers if offer is not best]
    matter = any(offer.times >= _WORTH for offer in single if offer is not best)
    return f"{best.said} {verb} {_times(best)}" + (f" ({', '.join(told)})" if matter else "")


_WORTH = 1.05  # a gain that is worth its words


def _times(offer: FormatOffer) -> str:
    return f"{offer.times:{'.3g' if offer.times < _LEAST_OF_TWO_FIGURES else '.2g'}} \u00d7"


_LEAST_OF_TWO_FIGURES = 1.05  # below it two figures say 1, and that is nothing


def _does_not_fit(step: StepFigures, name: str, formats: Sequence[StepFormat], cached: StepFormat | None) -> str:
    fit, point = step.fit, step.point
    assert fit is not None
    needed = (
        f"{_gb(fit.weights)} of weights and {_gb(fit.kv)} of KV cache (batch {point.batch}, context {point.context})"
    )
    said = f"{name}, weights {format_name(point.weights)}{_on(step)}, does not fit: {needed}, of {_gb(fit.memory)} of "
    said += f"memory {_gb(fit.usable)} can be used ({fit.reserve:.0%} is left for activations and scratch)."
    others = [line for line in formats if line.fits and line.weight_bytes < fit.weights]
    if others:
        widest = max(others, key=lambda line: line.weight_bytes)
        return f"{said} With weights {format_name(widest.weights)} it does: {_gb(widest.weight_bytes)}."
    if cached is not None:
        weights = "" if cached.weights == point.weights else f"weights {format_name(cached.weights)} and "
        return f"{said} With {weights}cache {format_name(cached.kv)} it does: {_gb(cached.kv_bytes)} of KV cache."
    count = -(-(fit.weights + fit.kv) // max(1, fit.usable))
    return f"{said} It would take {count} such devices, or a smaller model."


# ---- lines of frames ----


def step_line(question: ModelRequest, step: StepFigures) -> dict[str, Any]:
    """A step's line of a frame."""
    figure_names = ("time_ms", "tokens_s", "mbu_pct", "limit_pct", "limiter", "measured_pct")
    return {
        "model": question.model.name,
        "device": _device(step) or None,
        **asdict(step.point),
        **{name: getattr(step, name) for name in figure_names},
        "weight_bytes": question.weight_bytes(step.point.weights),
        "kv_bytes": (step.fit or question.fit(step.point, 1)).kv,
        "read_bytes": step.read_bytes,
        "moved_bytes": step.moved_bytes,
        "fits": None if step.fit is None else step.fit.fits,
        "reason": step.missing or None,
    }


def operation_lines(step: StepFigures) -> list[dict[str, Any]]:
    """The lines of its operations."""
    lines = []
    for row in step.rows:
        once = row["time_ms"]
        every = None if once is None else int(row["count"]) * once
        lines.append(
            {
                **asdict(step.point),
                **{name: row[name] for name in ("role", "operation", "precision")},
                "count": int(row["count"]),
                "time_ms": once,
                "step_ms": every,
                "share_pct": 100 * every / step.time_ms if every is not None and step.time_ms else None,
                "limit_pct": figures.limit_pct(row),
                "limiter": figures.limiter(row),
                "status": row["status"],
            }
        )
    return lines


def half(formats: Sequence[StepFormat]) -> float | None:
    """The time in FP16; None where there is none."""
    return next((line.time_ms for line in formats if line.weights == "fp16"), None)


def tokens_s(step: StepFigures, time_ms: float | None) -> float | None:
    """Tokens a second of a step that takes so long."""
    if time_ms is None or step.time_ms is None or step.tokens_s is None:
        return None
    return step.tokens_s * step.time_ms / time_ms


# ---- lines of tables ----

# Columns that a narrow screen does without, the first ones first; none that tells what is only predicted.
_SPARE = (
    *("GB moved", "MBU %", "precision", "count", "share %"),
    *("KB of cache a token", "context", "limiter", "% of limit"),
)


def spare_columns(grid: object) -> list[str]:
    """Those of a table: one that tells its lines apart is none of them."""
    contexts = next((set(one.cells) for one in getattr(grid, "columns", ()) if one.header == "context"), set())
    return [name for name in _SPARE if name != "context" or len(contexts) < 2]


# Headings whose columns are words.
_TEXT_COLUMNS = {
    *("device", "phase", "weights", "cache", "limiter", "role"),
    *("shape", "precision", "status", "source", "type", "fits"),
}


def step_cells(step: StepFigures, *, with_device: bool = False) -> dict[str, str]:
    """A step's line of a table."""
    return ({"device": _device(step)} if with_device else {}) | {
        **_point_cells(step.point),
        "ms": _number(step.time_ms),
        "tokens/s": "-" if step.tokens_s is None else _figure(step.tokens_s),
        "MBU %": _percent(step.mbu_pct),
        "% of limit": _percent(step.limit_pct),
        "limiter": step.limiter or "-",
        "GB moved": f"{step.moved_bytes / 1e9:.3g}",
        "measured %": _percent(step.measured_pct),
        "fits": "-" if step.fit is None else "yes" if step.fit.fits else "no",
    }


def _point_cells(point: StepPoint) -> dict[str, str]:
    sizes = {"phase": point.phase, "batch": str(point.batch), "context": str(point.context)}
    return sizes | {"weights": format_name(point.weights), "cache": format_name(point.kv)}


def operations_cells(step: StepFigures) -> list[dict[str, str]]:
    """Its operations' lines."""
    return [
        {
            "role": line["role"],
            "shape": _shape(row),
            "precision": line["precision"],
            "count": str(line["count"]),
            "us each": "-" if line["time_ms"] is None else _number(line["time_ms"] * 1e3),
            "ms": _number(line["step_ms"]),
            "share %": _percent(line["share_pct"], digits=1),
            "% of limit": _percent(line["limit_pct"]),
            "limiter": line["limiter"] or "-",
            "status": line["status"],
        }
        for line, row in zip(operation_lines(step), step.rows, strict=True)
    ]


def _shape(row: Mapping[str, Any]) -> str:
    """The sizes that tell an operation's shape: a product's, else batch and lengths."""
    if row["M"] is not None:
        return "x".join(str(row[name]) for name in ("M", "N", "K"))
    names = {"batch": "b", "seq_len": "s", "kv_len": "kv"}
    return " ".join(f"{short}={row[name]}" for name, short in names.items() if row.get(name) is not None)


def format_cells(line: StepFormat, step: StepFigures, half: float | None) -> dict[str, str]:
    """A format's line."""
    tokens = tokens_s(step, line.time_ms)
    return {
        "weights": format_name(line.weights),
        "cache": format_name(line.kv),
        "GB of weights": f"{line.weight_bytes / 1e9:.3g}",
        "fits": "-" if line.fits is None else "yes" if line.fits else "no",
        "ms": _number(line.time_ms),
        "tokens/s": "-" if tokens is None else _figure(tokens),
        "x FP16": f"{format_short(half / line.time_ms, '.2f')}" if half and line.time_ms else "-",
        "source": line.source if line.time_ms is not None else "-",
    }


def room_title(question: ModelRequest, memory: int) -> str:
    """What stands above the lines of what fits."""
    return f"What fits {_gb(memory)}, {question.reserve:.0%} of them left for activations and scratch"


def room_cells(room: MemoryRoom) -> dict[str, str]:
    """A line of what fits."""
    line = {
        "weights": format_name(room.weights),
        "cache": format_name(room.kv),
        "GB of weights": f"{room.weight_bytes / 1e9:.3g}",
        "KB of cache a token": ", ".join(dict.fromkeys(f"{size / 1e3:.4g}" for size in room.token_bytes.values())),
    }
    line |= {f"largest batch\nat {at}": str(most) for at, most in room.batches.items()}
    return line | {
        f"longest context\nof batch {of}": "any" if most is None else str(most) for of, most in room.contexts.items()
    }


def type_cells(name: str, held: Mapping[str, int]) -> dict[str, str]:
    """A line of how weights are stored."""
    return {
        "type": name,
        "tensors": str(held["tensors"]),
        "GB": f"{held['bytes'] / 1e9:.4g}",
        "GB a token": f"{held['token_bytes'] / 1e9:.4g}",
    }


def layer_line(layer: FormatOffer) -> dict[str, str]:
    """A line of a layer in one graph."""
    together, total = layer.together_ms, layer.sum_ms
    return {
        **_point_cells(layer.point),
        "us together": "-" if together is None else _number(together * 1e3),
        "us, sum": "-" if total is None else _number(total * 1e3),
        "together / sum": f"{format_short(together / total, '.3f')}" if together and total else "-",
        "status": layer.reason or "ok",
    }


def notes(question: ModelRequest, step: StepFigures, left_out: Sequence[OmittedWork]) -> list[str]:
    """What the figures assume, and what they leave out."""
    model = question.model
    notes = [
        f"{model.parameters / 1e9:.3g} billion weights. "
        + (
            "Fused products: q, k and v in one, gate and up in one."
            if question.layout == "fused"
            else "Separate products: q, k, v, gate and up each."
        )
        + " Attention over a cache of that context, the new token included.",
    ]
    if model.experts:
        notes.append(
            f"{model.experts_per_token} of {model.experts} experts a token; a batch reads those that any of its tokens "
            "takes, on average, if they choose by chance. A layer's experts are one launch a product, as engines group "
            "them; in fuller layers each has a token more."
        )
    if question.stored is not None and any(point.weights == AS_STORED for point in question.points):
        notes.append(
            "Weights as stored: types without kernels here are timed as the precision nearest in size (the column "
            "precision); sizes and what fits are the file's own."
        )
    told = next((row["reason"] for row in step.rows if row["status"] == "predicted" and row["reason"]), None)
    if told is not None and step.time_ms is not None:
        notes.append(f"Predicted: {told}.")
    if step.time_ms is not None and all(row.get("attainable_gb_s") is None for row in step.rows):
        notes.append(
            "% of limit, and what limits, is not known without the device's roofs: measure with them (without "
            "--no-roofs, roofs=False)."
        )
    launches = sum(int(row["count"]) for row in step.rows)
    more = sum(item.count for item in left_out)
    timed = [item.time_ms for item in left_out if item.time_ms is not None]
    said = f"Left out: {', '.join(item.what for item in left_out)}: {more} launches unfused"
    if timed and step.time_ms:
        said += (
            f", about {_number(sum(timed))} ms ({format_short(100 * sum(timed) / step.time_ms, '.0f')} % of the step)"
        )
    notes.append(f"{said}; communication between devices; the {launches} launches' own gaps outside a CUDA graph.")
    notes.append(
        "MBU: bytes of weights and cache that the step reads, by its time, of the theoretical peak. % of limit: of the "
        "roof that each operation is nearer to, by time. measured %: the share of that time which was measured, not "
        "predicted."
    )
    return notes


def wrap_lines(notes: Sequence[str], width: int) -> list[str]:
    """Notes as lines of a terminal so wide."""
    import textwrap

    from bwprof.text.terminal import PLAIN_WIDTH

    return [textwrap.fill(note, min(width, PLAIN_WIDTH), subsequent_indent="  ") for note in notes]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1 else format_figure(value, whole_from=1000)


def _percent(value: float | None, *, digits: int = 0) -> str:
    return "-" if value is None else format_short(value, f".{digits}f")


def _figure(value: float) -> str:
    """A number of tokens with thousands apart."""
    return format_short(value, ",.0f").replace(",", " ") if value >= 100 else f"{value:.3g}"


def _gb(count: float) -> str:
    return f"{format_short(count / 1e9, '.3g' if count < 999.5e9 else '.0f')} GB"


def format_name(name: str) -> str:
    """A format as tables name it."""
    return "as stored" if name == AS_STORED else name.upper()
