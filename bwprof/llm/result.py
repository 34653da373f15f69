"""The result of a model's steps: the answer in a sentence, tables, and the frame that they come from."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bwprof.llm import executor, figures, sections
from bwprof.llm.architecture import Architecture
from bwprof.llm.figures import FormatComparison, MemoryRoom, StepFigures
from bwprof.llm.sections import format_name, make_step_table
from bwprof.llm.workload import LABELS, ModelRequest, OmittedWork
from bwprof.text.formatting import require_frame
from bwprof.text.parsing import check_mapping, parse_bytes, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from bwprof.analysis.prediction.catalogue import Card
    from bwprof.text.document import DocumentTable

_Lines = list[dict[str, Any]]


class ModelStep:
    """The steps of a model, measured or predicted; printed as its answer and tables, also in notebooks.

    Attributes
    ----------
    frame : pandas.DataFrame
        As `bwprof.sweep` returns it, a row per operation of each step, with the columns model, phase, role, count
        (launches of the step), step_batch, context, weights, kv.
    steps : pandas.DataFrame
        A line per step and device: time_ms, tokens_s, mbu_pct (bytes of weights and cache by the time, in percent of
        the theoretical peak), limit_pct (of what the device sustains), limiter, weight_bytes, kv_bytes, moved_bytes,
        fits.
    operations : pandas.DataFrame
        A line per operation of each step: its share of the step's time.
    formats : pandas.DataFrame
        The first step in every format: measured, else predicted from its own operations and the other bytes.
    room : pandas.DataFrame
        The largest batch, and the longest context (missing: any), that fit the memory beside the weights; token_bytes
        is what one more token of a sequence adds to its cache at that context.
    left_out : pandas.DataFrame
        Work that the sum omits, with its bytes and, if known, its time.
    others : list of ModelStep
        The steps on further devices, which only `steps` and `frame` include.
    layers : pandas.DataFrame
        With `chain`: the time of a layer's operations in one graph, and the sum of their own times.

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
        from bwprof.results.frame import to_rows

        self.request, self.frame, self._card = request, frame, card
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
        self._layers, self._without_layer = figures.compute_layers(request, self._steps, rows)
        self._first = next((step for step in self._steps if step.time_ms is not None), self._steps[0])
        best = None if card is None else lambda parts: executor.best_ms(parts, card)
        self._formats = FormatComparison(request, self._steps, self._first, best)
        self.others: list[ModelStep] = []

    @property
    def model(self) -> Architecture:
        """The model's sizes."""
        return self.request.model

    @property
    def time_ms(self) -> float | None:
        """The first step's time; None if it is unknown, or the model does not fit."""
        return self._first.time_ms

    @property
    def tokens_s(self) -> float | None:
        """New tokens per second of all sequences in the first step."""
        return self._first.tokens_s

    @property
    def mbu_pct(self) -> float | None:
        """Model bandwidth utilisation of the first step, %."""
        return self._first.mbu_pct

    @property
    def answer(self) -> str:
        """What limits the first step, its tokens per second, and the gain of narrower weights or a narrower cache."""
        return sections.answer(self._first, self._steps, self._formats)

    # ---- as frames ----

    @property
    def steps(self) -> pd.DataFrame:
        """A line per step."""
        return _frame(self._step_lines)

    @property
    def _step_lines(self) -> _Lines:
        by_device = zip(*(result._steps for result in (self, *self.others)), strict=True)
        names = ("time_ms", "tokens_s", "mbu_pct", "limit_pct", "limiter", "measured_pct")
        return [
            {
                "model": self.model.name,
                "device": sections.device_of(step) or None,
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
        return _frame([line for step in self._steps for line in _operation_lines(step)]).drop(columns="shape")

    @property
    def formats(self) -> pd.DataFrame:
        """The first step in every format."""
        names = ["weights", "kv", "weight_bytes", "fits", "time_ms", "tokens_s", "speedup_vs_fp16", "source"]
        return _frame(self._format_lines, names)

    @cached_property
    def _format_lines(self) -> _Lines:
        fp16_ms = self._formats.fp16_ms
        return [
            asdict(line)
            | {"tokens_s": self._formats.tokens_s(line.time_ms)}
            | {"speedup_vs_fp16": fp16_ms / line.time_ms if fp16_ms and line.time_ms else None}
            for line in self._formats.formats
        ]

    @property
    def room(self) -> pd.DataFrame:
        """What fits the memory: a line per pair of formats and context, or batch."""
        lines: _Lines = []
        for room in self._rooms:
            formats = {"weights": room.weights, "kv": room.kv}
            for context, batch in room.batches.items():
                fit = {"context": context, "largest_batch": batch, "token_bytes": room.token_bytes[context]}
                lines.append(formats | fit)
            lines += [formats | {"batch": batch, "longest_context": most} for batch, most in room.contexts.items()]
        names = ["weights", "kv", "context", "largest_batch", "batch", "longest_context", "token_bytes"]
        return _frame(lines, names).astype(dict.fromkeys(names[2:], "Int64"))

    @cached_property
    def _rooms(self) -> list[MemoryRoom]:
        return figures.compute_rooms(self.request, self._memory) if self._memory else []

    @property
    def left_out(self) -> pd.DataFrame:
        """Work that the sum omits."""
        return _frame([asdict(item) for item in self._omitted])

    @cached_property
    def _omitted(self) -> list[OmittedWork]:
        if self._card is None:
            return figures.time_omitted(self.request, self._first)
        seconds = self._card.streams.seconds
        return figures.time_omitted(self.request, self._first, lambda r, w: (r + w) / float(seconds(r, w)) / 1e9)

    @property
    def layers(self) -> pd.DataFrame:
        """The time of one layer's operations in one graph (together_ms), and the sum of their own times (sum_ms).

        Empty without `chain`.
        """
        names = ["phase", "batch", "context", "weights", "kv", "together_ms", "sum_ms", "reason"]
        lines = [asdict(layer) | asdict(layer.point) | {"reason": layer.reason or None} for layer in self._layers]
        return _frame(lines, names)

    # ---- as text ----

    def tables(self) -> list[DocumentTable]:
        """Return every printed table."""
        first, stored = self._first, self.request.stored
        has_time = first.time_ms is not None
        types = [{"type": name, **line} for name, line in stored.types.items()] if stored is not None else []
        rooms, room_title = self._rooms, sections.room_title(self.request, self._memory or 0)
        chained = "A layer's operations back to back (on a GPU: one graph), and the sum of their own times"
        operations = _operation_lines(first) if has_time else []
        lines = self._format_lines if has_time else []
        formats = [line if line["time_ms"] is not None else line | {"source": None} for line in lines]
        tables = (
            make_step_table("Steps", self._step_lines, sections.DEVICE_STEPS if self.others else sections.STEPS),
            make_step_table(f"Operations: {first.point.title}", operations, sections.OPERATIONS),
            make_step_table("Formats of that step", formats, sections.FORMATS),
            make_step_table(room_title, [*map(asdict, rooms)], sections.room_columns(rooms[0]) if rooms else {}),
            make_step_table("Weights as stored", types, sections.TYPES),
            make_step_table(chained, [*map(sections.layer_line, self._layers)], sections.LAYERS),
        )
        return [table for table in tables if table is not None]

    def notes(self) -> list[str]:
        """Return what the figures assume, and what they omit."""
        untimed = {step.point.weights: step.missing for step in self._steps if step.missing and step.may_fit}
        notes = [f"No time for weights {format_name(name)}: {missing}." for name, missing in untimed.items()]
        if self._without_layer:
            pairs = dict.fromkeys(f"{format_name(p.weights)} (cache {format_name(p.kv)})" for p in self._without_layer)
            notes.append(f"No layer in one graph of weights {', '.join(pairs)}: predicted, as no kernel runs it here.")
        if not self._memory:
            notes.append("Whether it fits is not known: name the memory (memory=, in bytes; --memory 24G).")
        elif self.request.memory_bytes is None and self._card is not None and self._card.memory_of == "data sheet":
            notes.append("The memory is the data sheet's: a device may report more or less (memory=, --memory).")
        return notes + sections.notes(self.request, self._first, self._omitted)

    def renderables(self, screen: Any) -> list[RenderableType]:
        """Return the answer, the tables and the notes, for a rich console."""
        from bwprof.text.terminal import new_table

        result: list[RenderableType] = [sections.wrap_lines([self.answer], screen.width), ""]
        for block in self.tables():
            grid = new_table(screen, block.caption, block.headings, numbers=[*block.numbers])
            for line in block.lines:
                grid.add_row(*line)
            result += [grid, ""]
        return [*result, sections.wrap_lines(self.notes(), screen.width)]

    def __str__(self) -> str:
        from bwprof.text.terminal import make_console

        text = io.StringIO()
        screen = make_console(text)
        for renderable in self.renderables(screen):
            screen.print(renderable)
        return text.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        from bwprof.text.listing import format_html_table

        body = "".join(
            format_html_table([dict(zip(block.headings, line, strict=True)) for line in block.lines], block.caption)
            for block in self.tables()
        )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        return f"<p><b>{escape(self.answer)}</b></p>{body}<ul>{notes}</ul>"

    @classmethod
    def _from_devices(cls, frame: pd.DataFrame, devices: list[str]) -> ModelStep:
        run = check_mapping(frame.attrs.get("run"), "the frame's attrs['run']")
        runs = run.get("devices")
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
        devices = list(frame["device"].unique()) if "device" in frame.columns else []
        if len(devices) > 1:
            return cls._from_devices(frame, devices)
        missing = [name for name in LABELS if name not in frame.columns]
        run = check_mapping(frame.attrs.get("run"), "the frame's attrs['run']")
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


def _operation_lines(step: StepFigures) -> _Lines:
    lines = []
    for row in step.rows:
        count, once = int(row["count"]), row["time_ms"]
        step_ms = None if once is None else count * once
        lines.append(
            {
                **asdict(step.point),
                **{name: row[name] for name in ("role", "operation", "precision")},
                "shape": sections.describe_shape(row),
                "count": count,
                "time_ms": once,
                "step_ms": step_ms,
                "share_pct": 100 * step_ms / step.time_ms if step_ms is not None and step.time_ms else None,
                "limit_pct": figures.limit_pct(row),
                "limiter": figures.limiter(row),
                "status": row["status"],
            }
        )
    return lines


def _frame(lines: Sequence[Mapping[str, Any]], names: list[str] | None = None) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(lines, columns=names)
