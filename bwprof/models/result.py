"""The result of a model's steps: the answer in a sentence, tables behind it, and the frame that it all follows from."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bwprof.models import figures, predicting
from bwprof.models.architecture import Architecture
from bwprof.models.figures import Estimate, Format, Layer, Room, Step
from bwprof.models.question import AS_STORED, LABELS, Question
from bwprof.models.steps import DECODE, PREFILL
from bwprof.text import figure_text

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from bwprof.analysis.forecast.cards import Card

Table = tuple[str, list[dict[str, str]]]  # its title, and its lines by heading

_BOUND = {
    "memory": "is memory-bound",
    "compute": "is compute-bound",
    "latency": "is bound by the latency of its launches",
    "kernel": "is held up by its kernels, not by the device",
}
_PHASES = {DECODE: "Decode", PREFILL: "Prefill"}


class ModelStep:
    """The steps of a model, measured or predicted. Shown as its answer with tables behind it, in notebooks, too.

    Attributes
    ----------
    frame : pandas.DataFrame
        As `bwprof.sweep` gives it, a row per operation of each step, with more columns: model, phase, role, count (how
        often the step launches it), step_batch, context, weights, kv.
    steps : pandas.DataFrame
        A line per step: time_ms, tokens_s, mbu_pct (bytes of weights and cache by the time, of the theoretical peak),
        limit_pct (of what the device sustains), limiter, weight_bytes, kv_bytes, moved_bytes, fits.
    operations : pandas.DataFrame
        A line per operation of each step: what it takes of the step's time.
    formats : pandas.DataFrame
        The first step in every format: measured, else predicted from its own operations and the other bytes.
    room : pandas.DataFrame
        The largest batch, and the longest context, that fits the memory beside the weights.
    left_out : pandas.DataFrame
        What the sum leaves out, with its bytes and, where they can be told, its time.
    layers : pandas.DataFrame
        With `chain`: a layer's operations in one graph, beside the sum of their own times.

    Examples
    --------
    >>> import bwprof
    >>> step = bwprof.model_step("llama-3.1-8b", batch=[1, 16], device="H100-SXM")
    >>> step.answer.partition(";")[0], step.steps["limiter"].tolist()
    ('Decode is memory-bound', ['memory', 'memory'])
    """

    def __init__(
        self,
        question: Question,
        frame: pd.DataFrame,
        *,
        memory_bytes: int | None = None,
        card: Card | None = None,
    ) -> None:
        from bwprof.results.frame import to_rows

        self.question = question
        self.frame = frame
        self._memory = question.memory_bytes or memory_bytes
        self._card = card
        for name in ("count", "step_batch", "context"):
            frame[name] = frame[name].astype("Int64")
        rows = to_rows(frame)
        self._steps = figures.steps_of(question, rows, memory_bytes)
        self._layers = figures.layers_of(question, self._steps, rows)

    @property
    def model(self) -> Architecture:
        """The model's sizes."""
        return self.question.model

    @property
    def _first(self) -> Step:
        """The step that the answer is about: the first that has a time, else the first."""
        return next((step for step in self._steps if step.time_ms is not None), self._steps[0])

    @property
    def time_ms(self) -> float | None:
        """Of the first step; None where it was not found out, or the model does not fit."""
        return self._first.time_ms

    @property
    def tokens_s(self) -> float | None:
        """Tokens a second of the first step: new ones, of all sequences."""
        return self._first.tokens_s

    @property
    def mbu_pct(self) -> float | None:
        """Model bandwidth utilisation of the first step, %."""
        return self._first.mbu_pct

    @cached_property
    def _formats(self) -> list[Format]:
        return figures.formats_of(self.question, self._steps, self._first, self._best_ms)

    @cached_property
    def _rooms(self) -> list[Room]:
        return figures.rooms_of(self.question, self._memory) if self._memory else []

    @cached_property
    def _left_out(self) -> list[Estimate]:
        return figures.left_out(self.question, self._first, self._stream_gb_s)

    @property
    def _best_ms(self) -> figures.Best | None:
        card = self._card
        return None if card is None else lambda parts: predicting.best_ms(parts, card)

    @property
    def _stream_gb_s(self) -> Callable[[int, int], float] | None:
        card = self._card
        if card is None:
            return None
        return lambda read, written: (read + written) / float(card.streams.seconds(read, written)) / 1e9

    # ---- in a sentence ----

    @property
    def answer(self) -> str:
        """What limits the first step, how fast it is, and what narrower weights would bring."""
        return _answer(self._first, self.model, self._formats)

    # ---- as frames ----

    @property
    def steps(self) -> pd.DataFrame:
        """A line per step."""
        import pandas as pd

        return pd.DataFrame([_step_line(self.question, step) for step in self._steps])

    @property
    def operations(self) -> pd.DataFrame:
        """A line per operation of each step, with its share of the step's time."""
        import pandas as pd

        return pd.DataFrame([line for step in self._steps for line in _operation_lines(step)])

    @property
    def formats(self) -> pd.DataFrame:
        """The first step in every format."""
        import pandas as pd

        half = _half(self._formats)
        lines = [
            {
                "weights": line.weights,
                "kv": line.kv,
                "weight_bytes": line.weight_bytes,
                "fits": line.fits,
                "time_ms": line.time_ms,
                "tokens_s": _tokens_s(self._first, line.time_ms),
                "speedup_vs_fp16": half / line.time_ms if half and line.time_ms else None,
                "source": line.source,
            }
            for line in self._formats
        ]
        return pd.DataFrame(lines)

    @property
    def room(self) -> pd.DataFrame:
        """What fits the memory: a line per pair of formats and context, or batch."""
        import pandas as pd

        lines: list[dict[str, Any]] = []
        for room in self._rooms:
            formats = {"weights": room.weights, "kv": room.kv}
            lines += [{**formats, "context": at, "largest_batch": most} for at, most in room.batches.items()]
            lines += [{**formats, "batch": of, "longest_context": most} for of, most in room.contexts.items()]
        names = ["weights", "kv", "context", "largest_batch", "batch", "longest_context"]
        whole = pd.DataFrame(lines, columns=names)
        return whole.astype(dict.fromkeys(names[2:], "Int64"))

    @property
    def left_out(self) -> pd.DataFrame:
        """What the sum leaves out."""
        import pandas as pd

        names = ("what", "count", "bytes", "time_ms")
        return pd.DataFrame([{name: getattr(item, name) for name in names} for item in self._left_out])

    @property
    def layers(self) -> pd.DataFrame:
        """One layer's operations in one graph, measured (together_ms), beside the sum of their own times (sum_ms);
        empty where that was not asked for.
        """
        import pandas as pd

        lines = [
            {
                "phase": layer.point.phase,
                "batch": layer.point.batch,
                "context": layer.point.context,
                "weights": layer.point.weights,
                "kv": layer.point.kv,
                "together_ms": layer.together_ms,
                "sum_ms": layer.sum_ms,
                "reason": layer.reason or None,
            }
            for layer in self._layers
        ]
        names = ["phase", "batch", "context", "weights", "kv", "together_ms", "sum_ms", "reason"]
        return pd.DataFrame(lines, columns=names)

    # ---- as text ----

    def tables(self) -> list[Table]:
        """Every table that is shown, as text: a title, and lines by heading."""
        found = [("Steps", [_shown_step(step) for step in self._steps])]
        if self._first.time_ms is not None:
            half = _half(self._formats)
            found.append((f"Operations: {self._first.point.title}", _shown_operations(self._first)))
            found.append(("Formats of that step", [_shown_format(line, self._first, half) for line in self._formats]))
        if self._rooms:
            found.append((_room_title(self.question, self._memory or 0), [_shown_room(room) for room in self._rooms]))
        stored = self.question.stored
        if stored is not None:
            found.append(("Weights as stored", [_shown_type(name, held) for name, held in stored.types.items()]))
        if self._layers:
            found.append(
                (
                    "A layer's operations back to back (on a GPU: one graph), and the sum of their own times",
                    [*map(_shown_layer, self._layers)],
                )
            )
        return found

    def notes(self) -> list[str]:
        """What the figures assume, and what they leave out."""
        untimed = {step.point.weights: step.missing for step in self._steps if step.missing and _may_fit(step)}
        notes = [f"No time for weights {_format(name)}: {missing}." for name, missing in untimed.items()]
        return notes + _notes(self.question, self._first, self._left_out)

    def renderables(self, screen: Any) -> list[RenderableType]:
        """The answer, the tables and the notes, for a rich console."""
        from bwprof.terminal import table

        result: list[RenderableType] = [self.answer, ""]
        for title, lines in self.tables():
            headers = list(lines[0])
            grid = table(screen, title, headers, numbers=[name for name in headers if name not in _WORDS])
            for line in lines:
                grid.add_row(*line.values())
            result += [grid, ""]
        return [*result, "\n".join(_wrapped(self.notes()))]

    def __str__(self) -> str:
        from bwprof.terminal import console

        text = io.StringIO()
        screen = console(text)
        for renderable in self.renderables(screen):
            screen.print(renderable)
        return text.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        from bwprof.listing import html_table

        body = "".join(html_table(lines, title) for title, lines in self.tables())
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        return f"<p><b>{escape(self.answer)}</b></p>{body}<ul>{notes}</ul>"

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> ModelStep:
        """The result again, from a frame that `bwprof.load` read of a model's run.

        Raises
        ------
        ValueError
            For a frame that is no model's, or without its metadata (a CSV file has none: load the run's folder).
        """
        missing = [name for name in LABELS if name not in frame.columns]
        run = frame.attrs.get("run", {})
        if missing or "model" not in run:
            said = f"column {missing[0]} is missing" if missing else "its metadata are missing: load the run's folder"
            raise ValueError(f"no model's frame: {said}")
        facts = run.get("facts") or {}
        return cls(
            Question.from_dict(run["model"]),
            frame.copy(),
            memory_bytes=facts.get("memory_bytes"),
            card=predicting.card_of_run(run),
        )


def _may_fit(step: Step) -> bool:
    return step.fit is None or step.fit.fits


# ---- the answer ----


def _answer(step: Step, model: Architecture, formats: Sequence[Format]) -> str:
    name, point = model.name, step.point
    if step.fit is not None and not _may_fit(step):
        return _does_not_fit(step, name, formats)
    if step.time_ms is None or step.tokens_s is None:
        return f"{name}: no time for a step of {point.phase} ({step.missing})"
    phase = _PHASES[point.phase]
    said = [f"{phase} {_BOUND[step.limiter]}" if step.limiter in _BOUND else f"{phase} of {name}"]
    tokens = f"{_figure(step.tokens_s)} tokens/s"
    if not step.measured_pct:
        share = "" if step.limit_pct is None else f" at {step.limit_pct:.0f} % of what this device sustains"
        said.append(f"{tokens} predicted{share}")
    else:
        if step.limit_pct is not None:
            said[0] += f": {step.limit_pct:.0f} % of what this device sustains"
        elif step.mbu_pct is not None:
            said[0] += f": {step.mbu_pct:.0f} % of the theoretical bandwidth"
        said.append(tokens)
    gain = _gain(step, formats)
    if gain:
        said.append(gain)
    where = f"batch {point.batch}, context {point.context}, weights {_format(point.weights)}, cache {_format(point.kv)}"
    return f"{'; '.join(said)}. {name}, {where}."


def _gain(step: Step, formats: Sequence[Format]) -> str:
    """What the next narrower weights bring."""
    found = figures.narrower(step.point)
    line = next((line for line in formats if found and line.weights == found[0] and line.time_ms), None)
    if found is None or line is None or line.time_ms is None or step.time_ms is None:
        return ""
    times = step.time_ms / line.time_ms
    verb = "bring" if line.source == "measured" else "would bring"
    if times < 1.005:
        return f"{found[1]} weights {verb} nothing"
    return f"{found[1]} weights {verb} {times:.2g} \u00d7"


def _does_not_fit(step: Step, name: str, formats: Sequence[Format]) -> str:
    fit, point = step.fit, step.point
    assert fit is not None
    needed = (
        f"{_gb(fit.weights)} of weights and {_gb(fit.kv)} of KV cache (batch {point.batch}, context {point.context})"
    )
    said = f"{name}, weights {_format(point.weights)}, does not fit: {needed}, of {_gb(fit.memory)} of memory "
    said += f"{_gb(fit.usable)} can be used ({fit.reserve:.0%} is left for activations and scratch)."
    others = [line for line in formats if line.fits and line.weight_bytes < fit.weights]
    if others:
        widest = max(others, key=lambda line: line.weight_bytes)
        return f"{said} With weights {_format(widest.weights)} it does: {_gb(widest.weight_bytes)}."
    count = -(-(fit.weights + fit.kv) // max(1, fit.usable))
    return f"{said} It would take {count} such devices, or a smaller model."


# ---- lines of frames ----


def _step_line(question: Question, step: Step) -> dict[str, Any]:
    point = step.point
    weights = question.weight_bytes(point.weights)
    kv = step.fit.kv if step.fit is not None else question.fit(point, 1).kv
    return {
        "model": question.model.name,
        "phase": point.phase,
        "batch": point.batch,
        "context": point.context,
        "weights": point.weights,
        "kv": point.kv,
        "time_ms": step.time_ms,
        "tokens_s": step.tokens_s,
        "mbu_pct": step.mbu_pct,
        "limit_pct": step.limit_pct,
        "limiter": step.limiter,
        "measured_pct": step.measured_pct,
        "weight_bytes": weights,
        "kv_bytes": kv,
        "read_bytes": step.read_bytes,
        "moved_bytes": step.moved_bytes,
        "fits": None if step.fit is None else step.fit.fits,
        "reason": step.missing or None,
    }


def _operation_lines(step: Step) -> list[dict[str, Any]]:
    point = step.point
    lines = []
    for row in step.rows:
        once = row["time_ms"]
        every = None if once is None else int(row["count"]) * once
        lines.append(
            {
                "phase": point.phase,
                "batch": point.batch,
                "context": point.context,
                "weights": point.weights,
                "kv": point.kv,
                "role": row["role"],
                "operation": row["operation"],
                "precision": row["precision"],
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


def _half(formats: Sequence[Format]) -> float | None:
    return next((line.time_ms for line in formats if line.weights == "fp16"), None)


def _tokens_s(step: Step, time_ms: float | None) -> float | None:
    if time_ms is None or step.time_ms is None or step.tokens_s is None:
        return None
    return step.tokens_s * step.time_ms / time_ms


# ---- lines of tables ----

# Headings whose columns are words.
_WORDS = {"phase", "weights", "cache", "limiter", "role", "shape", "precision", "status", "source", "type", "fits"}


def _shown_step(step: Step) -> dict[str, str]:
    point = step.point
    return {
        "phase": point.phase,
        "batch": str(point.batch),
        "context": str(point.context),
        "weights": _format(point.weights),
        "cache": _format(point.kv),
        "ms": _number(step.time_ms),
        "tokens/s": "-" if step.tokens_s is None else _figure(step.tokens_s),
        "MBU %": _percent(step.mbu_pct),
        "% of limit": _percent(step.limit_pct),
        "limiter": step.limiter or "-",
        "GB moved": f"{step.moved_bytes / 1e9:.3g}",
        "measured %": _percent(step.measured_pct),
        "fits": "-" if step.fit is None else "yes" if step.fit.fits else "no",
    }


def _shown_operations(step: Step) -> list[dict[str, str]]:
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
        for line, row in zip(_operation_lines(step), step.rows, strict=True)
    ]


def _shape(row: Mapping[str, Any]) -> str:
    """The sizes that tell an operation's shape: a product's, else batch and lengths."""
    if row["M"] is not None:
        return "x".join(str(row[name]) for name in ("M", "N", "K"))
    names = {"batch": "b", "seq_len": "s", "kv_len": "kv"}
    return " ".join(f"{short}={row[name]}" for name, short in names.items() if row.get(name) is not None)


def _shown_format(line: Format, step: Step, half: float | None) -> dict[str, str]:
    tokens = _tokens_s(step, line.time_ms)
    return {
        "weights": _format(line.weights),
        "cache": _format(line.kv),
        "GB of weights": f"{line.weight_bytes / 1e9:.3g}",
        "fits": "-" if line.fits is None else "yes" if line.fits else "no",
        "ms": _number(line.time_ms),
        "tokens/s": "-" if tokens is None else _figure(tokens),
        "x FP16": f"{half / line.time_ms:.2f}" if half and line.time_ms else "-",
        "source": line.source if line.time_ms is not None else "-",
    }


def _room_title(question: Question, memory: int) -> str:
    return f"What fits {_gb(memory)}, {question.reserve:.0%} of them left for activations and scratch"


def _shown_room(room: Room) -> dict[str, str]:
    line = {
        "weights": _format(room.weights),
        "cache": _format(room.kv),
        "GB of weights": f"{room.weight_bytes / 1e9:.3g}",
        "KB of cache a token": f"{room.token_bytes / 1e3:.4g}",
    }
    line |= {f"largest batch\nat {at}": str(most) for at, most in room.batches.items()}
    return line | {f"longest context\nof batch {of}": str(most) for of, most in room.contexts.items()}


def _shown_type(name: str, held: Mapping[str, int]) -> dict[str, str]:
    return {
        "type": name,
        "tensors": str(held["tensors"]),
        "GB": f"{held['bytes'] / 1e9:.4g}",
        "GB a token": f"{held['token_bytes'] / 1e9:.4g}",
    }


def _shown_layer(layer: Layer) -> dict[str, str]:
    point, together, total = layer.point, layer.together_ms, layer.sum_ms
    return {
        "phase": point.phase,
        "batch": str(point.batch),
        "context": str(point.context),
        "weights": _format(point.weights),
        "cache": _format(point.kv),
        "us together": "-" if together is None else _number(together * 1e3),
        "us, sum": "-" if total is None else _number(total * 1e3),
        "together / sum": f"{together / total:.3f}" if together and total else "-",
        "status": layer.reason or "ok",
    }


def _notes(question: Question, step: Step, left_out: Sequence[Estimate]) -> list[str]:
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
            "takes, on average, if they choose by chance. Each is a product of its own here; engines group them."
        )
    if question.stored is not None and any(point.weights == AS_STORED for point in question.points):
        notes.append(
            "Weights as stored: types without kernels here are timed as the precision nearest in size (the column "
            "precision); sizes and what fits are the file's own."
        )
    told = next((row["reason"] for row in step.rows if row["status"] == "predicted" and row["reason"]), None)
    if told is not None and step.time_ms is not None:
        notes.append(f"Predicted: {told}.")
    launches = sum(int(row["count"]) for row in step.rows)
    more = sum(item.count for item in left_out)
    timed = [item.time_ms for item in left_out if item.time_ms is not None]
    said = f"Left out: {', '.join(item.what for item in left_out)}: {more} launches unfused"
    if timed and step.time_ms:
        said += f", about {_number(sum(timed))} ms ({100 * sum(timed) / step.time_ms:.0f} % of the step)"
    notes.append(f"{said}; communication between devices; the {launches} launches' own gaps outside a CUDA graph.")
    notes.append(
        "MBU: bytes of weights and cache that the step reads, by its time, of the theoretical peak. % of limit: of the "
        "roof that each operation is nearer to, by time."
    )
    return notes


def _wrapped(notes: Sequence[str]) -> list[str]:
    import textwrap

    from bwprof.terminal import PLAIN_WIDTH

    return [textwrap.fill(note, PLAIN_WIDTH, subsequent_indent="  ") for note in notes]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1 else figure_text(value, whole_from=1000)


def _percent(value: float | None, *, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _figure(value: float) -> str:
    """A number of tokens with thousands apart."""
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g} GB"


def _format(name: str) -> str:
    return "as stored" if name == AS_STORED else name.upper()
