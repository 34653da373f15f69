"""Measuring a model's steps: each shape once, whatever roles and steps it stands in; a row for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from bwprof import registry
from bwprof.measuring.chain import Chain
from bwprof.measuring.row import Context, Outcome, unmeasured
from bwprof.measuring.spec import DEFAULT_CACHE, Spec
from bwprof.models.question import LAYER, Question
from bwprof.models.steps import Part, Point
from bwprof.results.schema import Row
from bwprof.roofs import Roofs, Wanted
from bwprof.runs.loop import Executor
from bwprof.runs.plan import Plan
from bwprof.text import bytes_text

What = TypeVar("What", Spec, Chain)


@dataclass(frozen=True, slots=True)
class Piece(Generic[What]):
    """An operation of a step, or a layer of it in one graph (a `Chain`), as a run measures it."""

    spec: What
    point: Point
    labels: dict[str, Any]
    more: int = 0  # bytes read beside the operation's: see `bwprof.models.steps.Part`

    @property
    def title(self) -> str:
        """For progress lines."""
        return self.spec.title

    @property
    def cache(self) -> str:
        """cold: a step's weights have been pushed out since the last one."""
        return self.spec.cache

    @property
    def repeatable(self) -> bool:
        """Where something disturbed it."""
        return self.spec.repeatable

    def blank_row(self, context: Context) -> Row:
        """Its row before it has run."""
        return self.spec.blank_row(context) | self.labels


AnyPiece = Piece[Spec] | Piece[Chain]


def pieces_of(question: Question) -> list[Piece[Spec]]:
    """Every operation of every step that is asked for, in their order."""
    return [_piece(question, point, part) for point in question.points for part in question.parts(point)]


def layers_of(question: Question, backend: str) -> list[Piece[Chain]]:
    """A layer of each step in one graph, where that is asked for and the backend has kernels for it. They come behind
    the pieces: what runs graphs on a second stream may slow all that follows (`bwprof.hardware.open_device`).
    """
    found = [_layer(question, point) for point in question.points] if question.chain else []
    predicted = registry.is_predicted
    return [
        one for one in found if not any(predicted(spec.operation, spec.precision, backend) for spec in one.spec.specs)
    ]


def items_of(question: Question, backend: str) -> list[AnyPiece]:
    """All that a run measures on a backend."""
    return [*pieces_of(question), *layers_of(question, backend)]


def _layer(question: Question, point: Point) -> Piece[Chain]:
    parts = question.parts(point, one_layer=True)
    specs = [_piece(question, point, part).spec for part in parts for _ in range(part.count)]
    labels = _labels(question, point, LAYER, 0)  # no step launches it: it adds nothing to a sum
    return Piece(Chain(f"{point.title} {LAYER}", LAYER, point.weights, tuple(specs), labels), point, labels)


def _piece(question: Question, point: Point, part: Part) -> Piece[Spec]:
    case = f"{point.title} {part.role}"  # the formats are no part of it, so that FP16 is compared with FP32
    spec = Spec(case, part.operation, part.precision, part.params, None, None, DEFAULT_CACHE, 0)
    return Piece(spec, point, _labels(question, point, part.role, part.count), part.more)


def _labels(question: Question, point: Point, role: str, count: int) -> dict[str, Any]:
    return {
        "model": question.model.name,
        "phase": point.phase,
        "role": role,
        "count": count,
        "step_batch": point.batch,
        "context": point.context,
        "weights": point.weights,
        "kv": point.kv,
    }


def plan_of(pieces: Sequence[Piece[Spec]], *, max_seconds: float | None = None) -> Plan:
    """The cases, as a run's file keeps them."""
    return Plan(tuple(piece.spec for piece in pieces), None, None, max_seconds)


Key = tuple[str, ...]


def key_of(labels: Mapping[str, Any]) -> Key:
    """What tells a piece, and its row, from the others of a model's run."""
    return tuple(str(labels.get(name)) for name in ("phase", "role", "step_batch", "context", "weights", "kv", "count"))


Shape = tuple[str, str, tuple[tuple[str, int], ...]]


def _shape(operation: str, precision: str, params: dict[str, int]) -> Shape:
    return operation, precision, tuple(sorted(params.items()))


def shape_of(row: Row) -> Shape | None:
    """What a row has in common with its copies; None for one that no operation known here gives, a layer's say."""
    try:
        params = {name: row[name] for name in registry.param_names(row["operation"])}
    except ValueError:
        return None
    return None if None in params.values() else _shape(row["operation"], row["precision"], params)


# A row that no kernel runs, with the time that the device's roofs and the rows measured so far give it.
Predict = Callable[[Row, Roofs, Sequence[Row]], Row]


class PiecesExecutor:
    """An executor of pieces over one of cases: it measures a shape when it is asked for the first time.

    What has no kernel gets the time that `predict` gives it, where the device's roofs are known. What is measured
    later, or again, may change rows that are there already: `bwprof.models.settling`. Steps that do not fit the
    device's memory are not measured: their rows say so.
    """

    def __init__(
        self, question: Question, inner: Executor[Spec | Chain], predict: Predict, earlier: Sequence[Row] = ()
    ) -> None:
        self._question = question
        self._inner = inner
        self._predict = predict
        self._context: Context | None = None
        self._found: dict[Shape, Outcome] = {}
        self._owner: dict[Shape, Key] = {}
        for row in earlier:
            shape = shape_of(row) if row["status"] == "ok" else None
            if shape is not None:
                self._found[shape] = Outcome(dict(row))

    def open(self, deadline: float | None) -> dict[str, Any]:
        """The device's facts."""
        return self._inner.open(deadline)

    def obtain_roofs(self, wanted: Wanted, deadline: float | None) -> Roofs | None:
        """The device's roofs."""
        return self._inner.obtain_roofs(wanted, deadline)

    def set_context(self, context: Context) -> None:
        """What the rows of this run share."""
        self._context = context
        self._inner.set_context(context)

    def measure(self, piece: AnyPiece, max_seconds: float, deadline: float | None) -> Outcome:
        """One piece: measured, or as its shape was; a second try of the piece that was measured is one."""
        if self._context is None:
            raise RuntimeError("set_context comes before measure")
        refused = self._why_not(piece.point)
        if refused:
            return unmeasured(piece, self._context, "skipped", refused)
        spec = piece.spec
        if isinstance(spec, Chain):
            return self._inner.measure(spec, max_seconds, deadline)
        shape = _shape(spec.operation, spec.precision, spec.params)
        key = key_of(piece.labels)
        again = self._owner.get(shape) == key
        outcome = self._found.get(shape)
        if outcome is None or again:
            outcome = self._inner.measure(spec, max_seconds, deadline)
            if outcome.row["status"] == "predicted" and self._context.roofs is not None:
                measured = [found.row for found in self._found.values() if found.row["status"] == "ok"]
                outcome = replace(outcome, row=self._predict(outcome.row, self._context.roofs, measured))
            if outcome.row["status"] != "skipped":
                self._found[shape] = outcome
        if outcome.row["status"] != "skipped":
            self._owner.setdefault(shape, key)  # also of a run before: its second try is one
        return replace(outcome, row=dict(outcome.row) | {"case": spec.case} | piece.labels)

    def close(self) -> None:
        """Give the device back."""
        self._inner.close()

    def _why_not(self, point: Point) -> str:
        """Why a step is not measured; "" where it is."""
        assert self._context is not None
        memory = self._question.memory_bytes or self._context.facts.get("memory_bytes")
        if not memory:
            return ""
        fit = self._question.fit(point, memory)
        if fit.fits:
            return ""
        return (
            f"the model does not fit: {bytes_text(fit.weights)} of weights and {bytes_text(fit.kv)} of KV cache, "
            f"{bytes_text(fit.usable)} can be used"
        )
