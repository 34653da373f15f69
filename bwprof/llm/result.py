"""The result of a model's steps: the answer in a sentence, tables behind it, and the frame that it all follows from."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bwprof.llm import executor, figures, sections
from bwprof.llm.architecture import Architecture
from bwprof.llm.figures import MemoryRoom, StepFigures, StepFormat
from bwprof.llm.workload import LABELS, ModelRequest, OmittedWork
from bwprof.text.formatting import require_frame
from bwprof.text.parsing import check_mapping, parse_bytes, repr_short

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from bwprof.analysis.prediction.catalogue import Card

TitledTable = tuple[str, list[dict[str, str]]]  # its title, and its lines by heading


class ModelStep:
    """The steps of a model, measured or predicted. Shown as its answer with tables behind it, in notebooks, too.

    Attributes
    ----------
    frame : pandas.DataFrame
        As `bwprof.sweep` gives it, a row per operation of each step, with more columns: model, phase, role, count (how
        often the step launches it), step_batch, context, weights, kv.
    steps : pandas.DataFrame
        A line per step, and device: time_ms, tokens_s, mbu_pct (bytes of weights and cache by the time, of the
        theoretical peak), limit_pct (of what the device sustains), limiter, weight_bytes, kv_bytes, moved_bytes, fits.
    operations : pandas.DataFrame
        A line per operation of each step: what it takes of the step's time.
    formats : pandas.DataFrame
        The first step in every format: measured, else predicted from its own operations and the other bytes.
    room : pandas.DataFrame
        The largest batch, and the longest context (missing where any does), that fits the memory beside the weights;
        token_bytes is what a further token of a sequence adds to its cache at that context.
    left_out : pandas.DataFrame
        What the sum leaves out, with its bytes and, where they can be told, its time.
    others : list of ModelStep
        The steps on the devices behind the first, which all but `steps` and `frame` is about.
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
        question: ModelRequest,
        frame: pd.DataFrame,
        *,
        memory_bytes: int | None = None,
        card: Card | None = None,
    ) -> None:
        from bwprof.results.frame import to_rows

        self.question = question
        self.frame = frame
        self._memory = question.memory_bytes or memory_bytes
        # Without a device that reports its memory it is the catalogue's.
        self._sold = question.memory_bytes is None and card is not None and card.memory_of == "data sheet"
        self._card = card
        for name in ("count", "step_batch", "context"):
            try:
                frame[name] = frame[name].astype("Int64")
            except (OverflowError, TypeError, ValueError):
                raise ValueError(f"column {name} of a model's step holds more than whole numbers of 64 bits") from None
        rows = to_rows(frame)
        self._steps = figures.compute_steps(question, rows, memory_bytes)
        if not self._steps:
            raise ValueError("the rows hold no step of a model")
        self._layers = figures.compute_layers(question, self._steps, rows)
        self.others: list[ModelStep] = []

    @property
    def model(self) -> Architecture:
        """The model's sizes."""
        return self.question.model

    @property
    def _first(self) -> StepFigures:
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
    def _formats(self) -> list[StepFormat]:
        return figures.formats_of(self.question, self._steps, self._first, self._best_ms)

    @cached_property
    def _rooms(self) -> list[MemoryRoom]:
        return figures.rooms_of(self.question, self._memory) if self._memory else []

    @cached_property
    def _left_out(self) -> list[OmittedWork]:
        card = self._card
        if card is None:
            return figures.time_omitted(self.question, self._first)
        seconds = card.streams.seconds
        return figures.time_omitted(self.question, self._first, lambda r, w: (r + w) / float(seconds(r, w)) / 1e9)

    @property
    def _best_ms(self) -> figures.BestTimes | None:
        card = self._card
        return None if card is None else lambda parts: executor.best_ms(parts, card)

    # ---- in a sentence ----

    @property
    def answer(self) -> str:
        """What limits the first step, how fast it is, and what narrower weights, or a narrower cache, would bring."""
        offers = figures.offers_of(self.question, self._steps, self._first, self._formats, self._best_ms)
        cached = figures.cache_that_fits(self.question, self._steps, self._first, self._formats)
        said = sections.answer(self._first, self.model.name, self._formats, self._steps, offers, cached)
        return said + sections._beyond_context(self.model, self._steps)

    # ---- as frames ----

    @property
    def steps(self) -> pd.DataFrame:
        """A line per step."""
        return _frame([sections.step_line(self.question, step) for step in self._each_device()])

    def _each_device(self) -> list[StepFigures]:
        """Each step on this device, then on the others."""
        return [step for steps in zip(*(one._steps for one in (self, *self.others)), strict=True) for step in steps]

    @property
    def operations(self) -> pd.DataFrame:
        """A line per operation of each step, with its share of the step's time."""
        return _frame([line for step in self._steps for line in sections.operation_lines(step)])

    @property
    def formats(self) -> pd.DataFrame:
        """The first step in every format."""
        half = sections.half(self._formats)
        names = ["weights", "kv", "weight_bytes", "fits", "time_ms", "tokens_s", "speedup_vs_fp16", "source"]
        lines = [
            asdict(line)
            | {"tokens_s": sections.tokens_s(self._first, line.time_ms)}
            | {"speedup_vs_fp16": half / line.time_ms if half and line.time_ms else None}
            for line in self._formats
        ]
        return _frame(lines, names)

    @property
    def room(self) -> pd.DataFrame:
        """What fits the memory: a line per pair of formats and context, or batch."""
        lines: list[dict[str, Any]] = []
        for room in self._rooms:
            formats = {"weights": room.weights, "kv": room.kv}
            lines += [
                {**formats, "context": at, "largest_batch": most, "token_bytes": room.token_bytes[at]}
                for at, most in room.batches.items()
            ]
            lines += [{**formats, "batch": of, "longest_context": most} for of, most in room.contexts.items()]
        names = ["weights", "kv", "context", "largest_batch", "batch", "longest_context", "token_bytes"]
        return _frame(lines, names).astype(dict.fromkeys(names[2:], "Int64"))

    @property
    def left_out(self) -> pd.DataFrame:
        """What the sum leaves out."""
        return _frame([asdict(item) for item in self._left_out])

    @property
    def layers(self) -> pd.DataFrame:
        """One layer's operations in one graph, measured (together_ms), beside the sum of their own times (sum_ms);
        empty where that was not asked for.
        """
        names = ["phase", "batch", "context", "weights", "kv", "together_ms", "sum_ms", "reason"]
        lines = [asdict(layer) | asdict(layer.point) | {"reason": layer.reason or None} for layer in self._layers]
        return _frame(lines, names)

    # ---- as text ----

    def tables(self) -> list[TitledTable]:
        """Every table that is shown, as text: a title, and lines by heading."""
        found = [("Steps", [sections.step_cells(step, with_device=bool(self.others)) for step in self._each_device()])]
        if self._first.time_ms is not None:
            half = sections.half(self._formats)
            found.append((f"Operations: {self._first.point.title}", sections.operations_cells(self._first)))
            formats = [sections.format_cells(line, self._first, half) for line in self._formats]
            found.append(("Formats of that step", formats))
        if self._rooms:
            title = sections.room_title(self.question, self._memory or 0)
            found.append((title, [sections.room_cells(room) for room in self._rooms]))
        stored = self.question.stored
        if stored is not None:
            found.append(
                ("Weights as stored", [sections.type_cells(name, held) for name, held in stored.types.items()])
            )
        if self._layers:
            title = "A layer's operations back to back (on a GPU: one graph), and the sum of their own times"
            found.append((title, [*map(sections.layer_line, self._layers)]))
        return found

    def notes(self) -> list[str]:
        """What the figures assume, and what they leave out."""
        untimed = {step.point.weights: step.missing for step in self._steps if step.missing and sections.may_fit(step)}
        notes = [f"No time for weights {sections.format_name(name)}: {missing}." for name, missing in untimed.items()]
        unchained = figures.without_layer(self.question, self._steps, self._layers)
        if unchained:
            pairs = dict.fromkeys(
                f"{sections.format_name(p.weights)} (cache {sections.format_name(p.kv)})" for p in unchained
            )
            notes.append(f"No layer in one graph of weights {', '.join(pairs)}: predicted, as no kernel runs it here.")
        if not self._memory:
            notes.append("Whether it fits is not known: name the memory (memory=, in bytes; --memory 24G).")
        elif self._sold:
            notes.append("The memory is the data sheet's: a device may report more or less (memory=, --memory).")
        return notes + sections.notes(self.question, self._first, self._left_out)

    def renderables(self, screen: Any) -> list[RenderableType]:
        """The answer, the tables and the notes, for a rich console."""
        from bwprof.text.terminal import new_table

        result: list[RenderableType] = ["\n".join(sections.wrap_lines([self.answer], screen.width)), ""]
        for title, lines in self.tables():
            headers = list(lines[0])
            grid = new_table(
                screen, title, headers, numbers=[name for name in headers if name not in sections._TEXT_COLUMNS]
            )
            for line in lines:
                grid.add_row(*line.values())
            result += [grid, ""]
        return [*result, "\n".join(sections.wrap_lines(self.notes(), screen.width))]

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

        body = "".join(format_html_table(lines, title) for title, lines in self.tables())
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        return f"<p><b>{escape(self.answer)}</b></p>{body}<ul>{notes}</ul>"

    @classmethod
    def _of_several(cls, frame: pd.DataFrame, devices: list[str]) -> ModelStep:
        """The steps of several devices, whose metadata say each one's."""
        run = check_mapping(frame.attrs.get("run"), "the frame's attrs['run']")
        runs = run.get("devices")
        each = []
        for device in devices:
            if not isinstance(runs, Mapping) or not isinstance(runs.get(device), Mapping):
                raise ValueError(f"no model's frame of several devices: metadata of {repr_short(device)} are missing")
            own = frame[frame["device"] == device].reset_index(drop=True)
            own.attrs = {**frame.attrs, "run": runs[device]}
            each.append(cls.from_frame(own))
        first, *first.others = each
        first.frame = frame.copy()
        return first

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> ModelStep:
        """The result again, from a frame that `bwprof.load` read of a model's run.

        Raises
        ------
        TypeError
            For what is no frame.
        ValueError
            For a frame that is no model's, or without its metadata (a CSV file has none: load the run's folder).
        """
        frame = require_frame(frame)
        devices = list(frame["device"].unique()) if "device" in frame.columns else []
        if len(devices) > 1:
            return cls._of_several(frame, devices)
        missing = [name for name in LABELS if name not in frame.columns]
        run = check_mapping(frame.attrs.get("run"), "the frame's attrs['run']")
        if missing or "model" not in run:
            said = f"column {missing[0]} is missing" if missing else "its metadata are missing: load the run's folder"
            raise ValueError(f"no model's frame: {said}")
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


def _frame(lines: Sequence[Mapping[str, Any]], names: list[str] | None = None) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(lines, columns=names)
