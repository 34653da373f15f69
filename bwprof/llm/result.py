"""The result of a model's steps: the answer in a sentence, tables, notes, and the frames that they come from."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from bwprof.analysis.prediction.catalog import CUSTOM_DEVICE
from bwprof.llm import executor, figures
from bwprof.llm.figures import BOTH, FormatComparison, StepFigures
from bwprof.llm.workload import AS_STORED, DECODE, LABELS, ModelRequest, OmittedWork
from bwprof.results.frame import to_rows
from bwprof.text.document import DocumentTable, make_table
from bwprof.text.formatting import format_figure, format_short, is_missing, require_frame
from bwprof.text.listing import format_html_table
from bwprof.text.parsing import check_mapping, parse_bytes, repr_short
from bwprof.text.terminal import PLAIN_WIDTH, make_console, new_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bwprof.analysis.prediction.catalog import Card

_Lines = list[dict[str, Any]]


class ModelStep:
    """The steps of a model, measured or predicted; printed as its answer and tables, also in notebooks.

    Attributes
    ----------
    frame : pandas.DataFrame
        As `bwprof.sweep` returns it, a row per operation of each step, with the columns model, phase, role, count
        (launches of the step), step_batch, context, weights, kv.
    model : Architecture
    time_ms, tokens_s, mbu_pct : float or None
        The first step's time, new tokens per second of all its sequences, and model bandwidth utilization, %. None if
        the time is unknown, or the model does not fit.
    others : list of ModelStep
        The steps on further devices, which only `steps` and `frame` include.

    Examples
    --------
    >>> import bwprof
    >>> step = bwprof.model_step("llama-3.1-8b", batch=[1, 16], device="H100-SXM")
    >>> step.answer.partition(";")[0], step.steps["limiter"].tolist()
    ('Decode is memory-bound', ['memory', 'memory'])
    """

    def __init__(
        self,
        request: ModelRequest,
        frame: pd.DataFrame,
        *,
        memory_bytes: int | None = None,
        card: Card | None = None,
    ) -> None:
        self.request, self.model, self.frame, self._card = request, request.model, frame, card
        self._memory = request.memory_bytes or memory_bytes
        for name in ("count", "step_batch", "context"):
            try:
                frame[name] = frame[name].astype("Int64")
            except (OverflowError, TypeError, ValueError):
                raise ValueError(f"column {name} of a model's step holds more than whole numbers of 64 bits") from None
        rows = to_rows(frame)
        self._steps = figures.compute_steps(request, rows, memory_bytes)
        if not self._steps:
            raise ValueError("the rows hold no step of a model")
        self._layers = figures.compute_layers(request, self._steps, rows)
        self._first = next((step for step in self._steps if step.time_ms is not None), self._steps[0])
        best = None if card is None else lambda parts: executor.best_ms(parts, card)
        self._formats = FormatComparison(request, self._steps, self._first, best)
        self.time_ms, self.tokens_s, self.mbu_pct = self._first.time_ms, self._first.tokens_s, self._first.mbu_pct
        self.others: list[ModelStep] = []

    # ---- as frames ----

    @property
    def steps(self) -> pd.DataFrame:
        """A line per step and device.

        mbu_pct: bytes of weights and cache by the time, in percent of the theoretical peak; limit_pct: of what the
        device sustains.
        """
        return pd.DataFrame(self._step_lines)

    @property
    def _step_lines(self) -> _Lines:
        by_device = zip(*(result._steps for result in (self, *self.others)), strict=True)
        names = ("time_ms", "tokens_s", "mbu_pct", "limit_pct", "limiter", "measured_pct")
        return [
            {
                "model": self.model.name,
                "device": _device_of(step) or None,
                **asdict(step.point),
                **{name: getattr(step, name) for name in names},
                "weight_bytes": self.request.weight_bytes(step.point.weights),
                "kv_bytes": (step.fit or self.request.fit(step.point, 1)).kv,
                "read_bytes": step.read_bytes,
                "moved_bytes": step.moved_bytes,
                "fits": None if step.fit is None else step.fit.fits,
                "reason": step.missing or None,
            }
            for steps in by_device
            for step in steps
        ]

    @property
    def operations(self) -> pd.DataFrame:
        """A line per operation of each step, with its share of the step's time."""
        return pd.DataFrame([line for step in self._steps for line in figures.operation_lines(step)]).drop(
            columns="shape"
        )

    @property
    def formats(self) -> pd.DataFrame:
        """The first step in every format: measured, else predicted from its own operations and the other bytes."""
        names = ["weights", "kv", "weight_bytes", "fits", "time_ms", "tokens_s", "speedup_vs_fp16", "source"]
        return pd.DataFrame(self._format_lines, columns=names)

    @cached_property
    def _format_lines(self) -> _Lines:
        lines = [asdict(line) for line in self._formats.formats]
        fp16_ms = next((line["time_ms"] for line in lines if line["weights"] == "fp16"), None)
        for line in lines:
            time_ms = line["time_ms"]
            line["tokens_s"] = self._first.point.tokens / time_ms * 1e3 if time_ms else None
            line["speedup_vs_fp16"] = fp16_ms / time_ms if fp16_ms and time_ms else None
        return lines

    @property
    def room(self) -> pd.DataFrame:
        """The largest batch by context, and the longest context by batch (missing: any), that fit the memory.

        token_bytes: what one more token of a sequence adds to its cache at that context.
        """
        names = ["weights", "kv", "context", "largest_batch", "batch", "longest_context", "token_bytes"]
        return pd.DataFrame(self._room_lines, columns=names).astype(dict.fromkeys(names[2:], "Int64"))

    @cached_property
    def _room_lines(self) -> _Lines:
        return figures.compute_room(self.request, self._memory) if self._memory else []

    @property
    def left_out(self) -> pd.DataFrame:
        """Work that the sum omits, with its bytes and, if known, its time."""
        return pd.DataFrame([asdict(item) for item in self._omitted])

    @cached_property
    def _omitted(self) -> list[OmittedWork]:
        seconds = None if self._card is None else self._card.streams.seconds
        return figures.time_omitted(self.request, self._first, seconds)

    @property
    def layers(self) -> pd.DataFrame:
        """The time of one layer's operations in one graph (together_ms), and the sum of their own times (sum_ms).

        Empty without `chain`.
        """
        return pd.DataFrame(
            self._layers, columns=["phase", "batch", "context", "weights", "kv", "together_ms", "sum_ms", "reason"]
        )

    # ---- as text ----

    @property
    def answer(self) -> str:
        """What limits the first step, its tokens per second, and the gain of narrower weights or a narrower cache.

        Or that it does not fit.
        """
        step = self._first
        text = self._describe_step(step) if step.may_fit else self._describe_misfit(step)
        context, limit = max(each.point.context for each in self._steps), self.model.max_context
        if 0 < limit < context:
            trained = f"{limit} tokens that {self.model.name} was made for (max_position_embeddings)"
            text += f" Context {context} is beyond the {trained}."
        return text

    def _describe_step(self, step: StepFigures) -> str:
        name, point = self.model.name, step.point
        if step.time_ms is None or step.tokens_s is None:
            return f"{name}: no time for a step of {point.phase} ({step.missing})"
        phase = "Decode" if point.phase == DECODE else "Prefill"
        bound = f"{phase} {_BOUND[step.limiter]}" if step.limiter in _BOUND else f"{phase} of {name}"
        tokens = f"{_format_tokens(step.tokens_s)} tokens/s"
        share = ""
        if step.limit_pct is not None:
            share = f"{format_short(step.limit_pct, '.0f')} % of what this device sustains"
        elif step.mbu_pct is not None and step.measured_pct:
            share = f"{format_short(step.mbu_pct, '.0f')} % of the theoretical bandwidth"
        if step.measured_pct:
            parts = [f"{bound}: {share}" if share else bound, tokens]
        else:
            parts = [bound, f"{tokens} predicted{f' at {share}' if share else ''}"]
        parts += _describe_gain(step.time_ms, self._formats.offers())
        size = f"batch {point.batch}, context {point.context}, weights {format_name(point.weights)}"
        text = f"{'; '.join(parts)}. {name}, {size}, cache {format_name(point.kv)}{_on_device(step)}."
        return text + self._describe_too_large()

    def _describe_too_large(self) -> str:
        points = [step.point for step in self._steps if not step.may_fit]
        sizes = [
            f"weights {format_name(p.weights)}, cache {format_name(p.kv)}, batch {p.batch}, context {p.context}"
            for p in points[:2]
        ]
        sizes += [f"and {len(points) - 2} more"] if len(points) > 2 else []
        return f" Too large for the memory: {'; '.join(sizes)}." if sizes else ""

    def _describe_misfit(self, step: StepFigures) -> str:
        fit, point = step.fit, step.point
        assert fit is not None
        text = (
            f"{self.model.name}, weights {format_name(point.weights)}{_on_device(step)}, does not fit: "
            f"{_format_gb(fit.weights)} of weights and {_format_gb(fit.kv)} of KV cache (batch {point.batch}, context "
            f"{point.context}), of {_format_gb(fit.memory)} of memory {_format_gb(fit.usable)} can be used "
            f"({fit.reserve:.0%} is left for activations and scratch)."
        )
        narrower = [line for line in self._formats.formats if line.fits and line.weight_bytes < fit.weights]
        if narrower:
            widest = max(narrower, key=lambda line: line.weight_bytes)
            return f"{text} With weights {format_name(widest.weights)} it does: {_format_gb(widest.weight_bytes)}."
        count = -(-(fit.weights + fit.kv) // max(1, fit.usable))
        return f"{text} It would take {count} such devices, or a smaller model."

    def tables(self) -> list[DocumentTable]:
        """Return every printed table."""
        first, stored = self._first, self.request.stored
        has_time = first.time_ms is not None
        formats = [line | ({} if line["time_ms"] else {"source": None}) for line in self._format_lines if has_time]
        share = f"{self.request.reserve:.0%} of them left for activations and scratch"
        tables = (
            _make_table("Steps", self._step_lines, _DEVICE_STEPS if self.others else _STEPS),
            _make_table(
                f"Operations: {first.point.title}", figures.operation_lines(first) if has_time else [], _OPERATIONS
            ),
            _make_table("Formats of that step", formats, _FORMATS),
            _make_table(f"What fits {_format_gb(self._memory or 0)}, {share}", *_room_table(self._room_lines)),
            _make_table(
                "Weights as stored",
                [{"type": name, **line} for name, line in (stored.types if stored is not None else {}).items()],
                _TYPES,
            ),
            _make_table(
                "A layer's operations back to back (on a GPU: one graph), and the sum of their own times",
                [{**layer, "status": layer["reason"] or "ok"} for layer in self._layers],
                _LAYERS,
            ),
        )
        return [table for table in tables if table is not None]

    def notes(self) -> list[str]:
        """Return what the figures assume, and what they omit."""
        untimed = {step.point.weights: step.missing for step in self._steps if step.missing and step.may_fit}
        notes = [f"No time for weights {format_name(name)}: {missing}." for name, missing in untimed.items()]
        if not self._memory:
            notes.append("Whether it fits is not known: name the memory (memory=, in bytes; --memory 24G).")
        elif self.request.memory_bytes is None and self._card is not None and self._card.memory_of == "data sheet":
            notes.append("The memory is the data sheet's: a device may report more or less (memory=, --memory).")
        return notes + _note_model(self.request) + _note_step(self._first, self._omitted)

    def renderables(self, screen: Any) -> list[RenderableType]:
        """Return the answer, the tables and the notes, for a rich console."""
        result: list[RenderableType] = [_wrap([self.answer], screen.width), ""]
        for block in self.tables():
            grid = new_table(screen, block.caption, block.headings, numbers=[*block.numbers])
            for line in block.lines:
                grid.add_row(*line)
            result += [grid, ""]
        return [*result, _wrap(self.notes(), screen.width)]

    def __str__(self) -> str:
        text = io.StringIO()
        screen = make_console(text)
        for renderable in self.renderables(screen):
            screen.print(renderable)
        return text.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = "".join(
            format_html_table([dict(zip(block.headings, line, strict=True)) for line in block.lines], block.caption)
            for block in self.tables()
        )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        return f"<p><b>{escape(self.answer)}</b></p>{body}<ul>{notes}</ul>"

    # ---- from a frame ----

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> ModelStep:
        """Make the result from a frame, such as `bwprof.load` reads from a model's run.

        Raises
        ------
        TypeError
            For what is no frame.
        ValueError
            For a frame without a model's columns or metadata (a CSV file has none: load the run's folder).
        """
        frame = require_frame(frame)
        run = check_mapping(frame.attrs.get("run"), "the frame's attrs['run']")
        devices = list(frame["device"].unique()) if "device" in frame.columns else []
        if len(devices) > 1:
            return cls._from_devices(frame, devices, run.get("devices"))
        missing = [name for name in LABELS if name not in frame.columns]
        if missing or "model" not in run:
            what = f"column {missing[0]} is missing" if missing else "its metadata are missing: load the run's folder"
            raise ValueError(f"no model's frame: {what}")
        facts = run.get("facts") or {}
        if not isinstance(facts, Mapping):
            raise ValueError(f"facts of the frame's attrs['run'] are {repr_short(facts)}: an object is needed")
        memory = facts.get("memory_bytes")
        return cls(
            ModelRequest.from_dict(run["model"]),
            frame.copy(),
            memory_bytes=None if memory is None else parse_bytes(memory, "memory_bytes of the frame's facts"),
            card=executor.card_of_run(run),
        )

    @classmethod
    def _from_devices(cls, frame: pd.DataFrame, devices: list[str], runs: Any) -> ModelStep:
        results = []
        for device in devices:
            if not isinstance(runs, Mapping) or not isinstance(runs.get(device), Mapping):
                raise ValueError(f"no model's frame of several devices: metadata of {repr_short(device)} are missing")
            own = frame[frame["device"] == device].reset_index(drop=True)
            own.attrs = {**frame.attrs, "run": runs[device]}
            results.append(cls.from_frame(own))
        first, *first.others = results
        first.frame = frame.copy()
        return first


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


def format_name(name: str) -> str:
    """Return a format as tables name it."""
    return "as stored" if name == AS_STORED else name.upper()


def _format_number(value: float) -> str:
    return f"{value:.3g}" if value < 1 else format_figure(value, whole_from=1000)


def _format_tokens(value: float) -> str:
    return format_short(value, ",.0f").replace(",", " ") if value >= 100 else f"{value:.3g}"


def _format_gb(count: float) -> str:
    return f"{format_short(count / 1e9, '.3g' if count < 999.5e9 else '.0f')} GB"


def _giga(value: float) -> str:
    return f"{value / 1e9:.3g}"


def _micro(value: float) -> str:
    return _format_number(value * 1e3)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


# Heading -> key of a line, and the function or specification that formats it.
_Columns = dict[str, tuple[str, Callable[[Any], object] | str]]


def _same(*names: str) -> _Columns:
    return {name: (name, str) for name in names}


_FORMAT: _Columns = {"weights": ("weights", format_name), "cache": ("kv", format_name)}

_STEPS: _Columns = {
    **_same("phase", "batch", "context"),
    **_FORMAT,
    "ms": ("time_ms", _format_number),
    "tokens/s": ("tokens_s", _format_tokens),
    "MBU %": ("mbu_pct", ".0f"),
    "% of limit": ("limit_pct", ".0f"),
    "limiter": ("limiter", str),
    "GB moved": ("moved_bytes", _giga),
    "measured %": ("measured_pct", ".0f"),
    "fits": ("fits", _yes_no),
}

_DEVICE_STEPS: _Columns = _same("device") | _STEPS

_OPERATIONS: _Columns = {
    **_same("role", "shape", "precision", "count"),
    "us each": ("time_ms", _micro),
    "ms": ("step_ms", _format_number),
    "share %": ("share_pct", ".1f"),
    "% of limit": ("limit_pct", ".0f"),
    **_same("limiter", "status"),
}

_FORMATS: _Columns = {
    **_FORMAT,
    "GB of weights": ("weight_bytes", _giga),
    "fits": ("fits", _yes_no),
    "ms": ("time_ms", _format_number),
    "tokens/s": ("tokens_s", _format_tokens),
    "x FP16": ("speedup_vs_fp16", ".2f"),
    "source": ("source", str),
}

_TYPES: _Columns = {
    **_same("type", "tensors"),
    "GB": ("bytes", lambda value: f"{value / 1e9:.4g}"),
    "GB a token": ("token_bytes", lambda value: f"{value / 1e9:.4g}"),
}

_LAYERS: _Columns = {
    **_same("phase", "batch", "context"),
    **_FORMAT,
    "us together": ("together_ms", _micro),
    "us, sum": ("sum_ms", _micro),
    "together / sum": ("ratio", ".3f"),
    "status": ("status", str),
}

# Headings of columns of text.
_TEXT_COLUMNS = {
    *("device", "phase", "weights", "cache", "limiter", "role"),
    *("shape", "precision", "status", "source", "type", "fits"),
}


def _room_table(room: _Lines) -> tuple[_Lines, _Columns]:
    columns: _Columns = {**_FORMAT, "GB of weights": ("weight_bytes", _giga), **_same("KB of cache a token")}
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for line in room:
        cells = table.setdefault((line["weights"], line["kv"]), {**line, "sizes": {}})
        if "token_bytes" in line:
            cells["sizes"][f"{line['token_bytes'] / 1e3:.4g}"] = None
            name, value = f"largest batch\nat {line['context']}", line["largest_batch"]
        else:
            name, value = f"longest context\nof batch {line['batch']}", line["longest_context"]
        cells[name] = "any" if value is None else value
        columns |= _same(name)
    return [{**cells, "KB of cache a token": ", ".join(cells["sizes"])} for cells in table.values()], columns


def _make_table(title: str, lines: Sequence[Mapping[str, Any]], columns: _Columns) -> DocumentTable | None:

    def write(value: Any, form: Callable[[Any], object] | str) -> object:
        if is_missing(value):
            return None
        return format_short(value, form) if isinstance(form, str) else form(value)

    cells = [[write(line[key], form) for key, form in columns.values()] for line in lines]
    numbers = [name for name in columns if name not in _TEXT_COLUMNS]
    return make_table(list(columns), cells, numbers=numbers, caption=title)


# ---- sentences ----

_BOUND = {
    "memory": "is memory-bound",
    "compute": "is compute-bound",
    "latency": "is bound by the latency of its launches",
    "kernel": "is held up by its kernels, not by the device",
}

_TWO_DIGITS_FROM = 1.05  # a gain below is written with three digits, and is not worth naming beside a larger one


def _device_of(step: StepFigures) -> str:
    return next((str(row["device"]) for row in step.rows if row.get("device")), "")


def _on_device(step: StepFigures) -> str:
    device = _device_of(step)
    return f", on {'the device given' if device == CUSTOM_DEVICE else device}" if device else ""


def _describe_gain(time_ms: float, offers: Mapping[str, figures.StepFormat]) -> list[str]:
    """Return the largest gain of a single change; with the others if they matter."""
    times = {name: time_ms / line.time_ms for name, line in offers.items() if line.time_ms}
    single = {name: gain for name, gain in times.items() if name != BOTH}
    if not single:
        return []
    best = max(single, key=lambda name: single[name])
    verb = "bring" if offers[best].source == "measured" else "would bring"
    if times.pop(best) < 1.005:
        return [f"{best} {verb} nothing"]
    others = ", ".join(f"{name} {_format_gain(gain)}" for name, gain in times.items())
    matter = any(gain >= _TWO_DIGITS_FROM for name, gain in single.items() if name != best)
    return [f"{best} {verb} {_format_gain(single[best])}" + (f" ({others})" if matter else "")]


def _format_gain(gain: float) -> str:
    return f"{gain:{'.3g' if gain < _TWO_DIGITS_FROM else '.2g'}} \u00d7"


def _note_model(request: ModelRequest) -> list[str]:
    model = request.model
    products = "Separate products: q, k, v, gate and up each."
    if request.layout == "fused":
        products = "Fused products: q, k and v in one, gate and up in one."
    notes = [
        f"{model.parameters / 1e9:.3g} billion weights. {products} Attention over a cache of that context, the new "
        "token included."
    ]
    if model.experts:
        notes.append(
            f"{model.experts_per_token} of {model.experts} experts a token. A batch reads the experts of all its "
            "tokens: the mean number if tokens choose at random. Each product of a layer's experts is one launch (t: "
            'tokens, e: experts that have any). In "fuller" layers one more expert has tokens.'
        )
    if request.stored is not None and any(point.weights == AS_STORED for point in request.points):
        notes.append(
            "Weights as stored: a type without a kernel here, or without one beside BF16, is timed as the nearest "
            "precision (the column precision); sizes and what fits are the file's own."
        )
    return notes


def _note_step(step: StepFigures, omitted: Sequence[OmittedWork]) -> list[str]:
    notes = []
    if step.time_ms is not None:
        reasons = (row["reason"] for row in step.rows if row["status"] == "predicted")
        notes += [f"Predicted: {reason}." for reason in reasons if reason][:1]
        if not any(row.get("attainable_gb_s") for row in step.rows):
            notes.append(
                "% of limit, and what limits, is not known without the device's roofs: measure with them (without "
                "--no-roofs, roofs=False)."
            )
    unfused = f"{', '.join(item.what for item in omitted)}: {sum(item.count for item in omitted)} launches unfused"
    omitted_ms = sum(item.time_ms or 0.0 for item in omitted)
    if omitted_ms and step.time_ms:
        share = format_short(100 * omitted_ms / step.time_ms, ".0f")
        unfused += f", about {_format_number(omitted_ms)} ms ({share} % of the step)"
    launches = sum(int(row["count"]) for row in step.rows)
    return [
        *notes,
        f"Left out: {unfused}; communication between devices; the gaps between {launches} launches outside a CUDA "
        "graph.",
        "MBU: bytes of weights and cache that the step reads, by its time, of the theoretical peak. % of limit: of the "
        "roof that each operation is nearer to, by time. measured %: the measured share of that time.",
    ]


def _wrap(lines: Sequence[str], width: int) -> str:
    return "\n".join(textwrap.fill(line, min(width, PLAIN_WIDTH), subsequent_indent="  ") for line in lines)
