"""Run a model's steps: each shape is measured once, and every row that has it gets the figures.

Rows without a kernel, or for a device that is not at hand, are predicted from measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bwprof import registry
from bwprof._core import __version__
from bwprof.analysis.prediction import DEFAULT_EFFICIENCY
from bwprof.analysis.prediction.catalogue import Card, resolve_card
from bwprof.analysis.prediction.efficiency import Efficiency
from bwprof.analysis.prediction.efficiency import efficiency as learn
from bwprof.analysis.prediction.predict import (
    interleave_devices,
    predict_rows,
    resolve_card_for_model,
    resolve_efficiency,
)
from bwprof.analysis.prediction.streams import Streams
from bwprof.analysis.prediction.workload import PredictedCase
from bwprof.llm.figures import gain, part_from_row
from bwprof.llm.workload import LABELS, LAYER, ModelRequest, StepPart, StepPoint
from bwprof.measuring.chain import Chain
from bwprof.measuring.operation import DEFAULT_CACHE, Spec
from bwprof.measuring.row import Context, Outcome, make_unmeasured
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.model import Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs.loop import Executor, rank_doubt
from bwprof.runs.plan import Plan
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import check_mapping, measured_or_none

if TYPE_CHECKING:
    import pandas as pd

SpecType = TypeVar("What", Spec, Chain)


@dataclass(frozen=True, slots=True)
class Piece(Generic[SpecType]):
    """An operation of a step, or a layer of it in one graph (a `Chain`), as a run measures it."""

    spec: SpecType
    point: StepPoint
    labels: dict[str, Any]
    more: int = 0  # bytes read beside the operation's: see `bwprof.llm.workload.StepPart`

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

    def blank_row(self, context: Context) -> RowDict:
        """Its row before it has run."""
        return self.spec.blank_row(context) | self.labels


AnyPiece = Piece[Spec] | Piece[Chain]


def list_pieces(question: ModelRequest) -> list[Piece[Spec]]:
    """Every operation of every step that is asked for, in their order."""
    return [_piece(question, point, part) for point in question.points for part in question.parts(point)]


def list_all_pieces(question: ModelRequest, backend: str) -> list[Piece[Chain]]:
    """A layer of each step in one graph, where that is asked for and the backend has kernels for it. They come behind
    the pieces: what runs graphs on a second stream may slow all that follows (`bwprof.hardware.open_device`).
    """
    found = [_layer(question, point) for point in question.points] if question.chain else []
    predicted = registry.is_predicted
    return [
        one for one in found if not any(predicted(spec.operation, spec.precision, backend) for spec in one.spec.specs)
    ]


def list_all_pieces(question: ModelRequest, backend: str) -> list[AnyPiece]:
    """All that a run measures on a backend."""
    return [*list_pieces(question), *list_all_pieces(question, backend)]


def _layer(question: ModelRequest, point: StepPoint) -> Piece[Chain]:
    parts = question.parts(point, one_layer=True)
    specs = [_piece(question, point, part).spec for part in parts for _ in range(part.count)]
    labels = _labels(question, point, LAYER, 0)  # no step launches it: it adds nothing to a sum
    return Piece(Chain(f"{point.title} {LAYER}", LAYER, point.weights, tuple(specs), labels), point, labels)


def _piece(question: ModelRequest, point: StepPoint, part: StepPart) -> Piece[Spec]:
    case = f"{point.title} {part.role}"  # the formats are no part of it, so that FP16 is compared with FP32
    spec = Spec(case, part.operation, part.precision, part.params, None, None, DEFAULT_CACHE, 0)
    return Piece(spec, point, _labels(question, point, part.role, part.count), part.more)


def _labels(question: ModelRequest, point: StepPoint, role: str, count: int) -> dict[str, Any]:
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


def make_plan(pieces: Sequence[Piece[Spec]], *, max_seconds: float | None = None) -> Plan:
    """The cases, as a run's file keeps them."""
    return Plan(tuple(piece.spec for piece in pieces), None, None, max_seconds)


PieceKey = tuple[str, ...]


def piece_key(labels: Mapping[str, Any]) -> PieceKey:
    """What tells a piece, and its row, from the others of a model's run."""
    return tuple(str(labels.get(name)) for name in ("phase", "role", "step_batch", "context", "weights", "kv", "count"))


LaunchShape = tuple[str, str, tuple[tuple[str, int], ...]]


def _shape(operation: str, precision: str, params: dict[str, int]) -> LaunchShape:
    return operation, precision, tuple(sorted(params.items()))


def launch_shape(row: RowDict) -> LaunchShape | None:
    """What a row has in common with its copies; None for one that no operation known here gives, a layer's say."""
    try:
        params = {name: row[name] for name in registry.param_names(row["operation"])}
    except ValueError:
        return None
    return None if None in params.values() else _shape(row["operation"], row["precision"], params)


# A row that no kernel runs, with the time that the device's roofs and the rows measured so far give it.
Predict = Callable[[RowDict, Roofs, Sequence[RowDict]], RowDict]


class PiecesExecutor:
    """An executor of pieces over one of cases: it measures a shape when it is asked for the first time.

    What has no kernel gets the time that `predict` gives it, where the device's roofs are known. What is measured
    later, or again, may change rows that are there already: `bwprof.llm.executor`. Steps that do not fit the
    device's memory are not measured: their rows say so.
    """

    def __init__(
        self, question: ModelRequest, inner: Executor[Spec | Chain], predict: Predict, earlier: Sequence[RowDict] = ()
    ) -> None:
        self._question = question
        self._inner = inner
        self._predict = predict
        self._context: Context | None = None
        self._found: dict[LaunchShape, Outcome] = {}
        self._owner: dict[LaunchShape, PieceKey] = {}
        for row in earlier:
            shape = launch_shape(row) if row["status"] == "ok" else None
            if shape is not None:
                self._found[shape] = Outcome(dict(row))

    def open(self, deadline: float | None) -> dict[str, Any]:
        """The device's facts."""
        return self._inner.open(deadline)

    def obtain_roofs(self, wanted: RoofRequest, deadline: float | None) -> Roofs | None:
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
            return make_unmeasured(piece, self._context, "skipped", refused)
        spec = piece.spec
        if isinstance(spec, Chain):
            return self._inner.measure(spec, max_seconds, deadline)
        shape = _shape(spec.operation, spec.precision, spec.params)
        key = piece_key(piece.labels)
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

    def _why_not(self, point: StepPoint) -> str:
        """Why a step is not measured; "" where it is."""
        assert self._context is not None
        memory = self._question.memory_bytes or self._context.facts.get("memory_bytes")
        if not memory:
            return ""
        fit = self._question.fit(point, memory)
        if fit.fits:
            return ""
        return (
            f"the model does not fit: {format_bytes(fit.weights)} of weights and {format_bytes(fit.kv)} of KV cache, "
            f"{format_bytes(fit.usable)} can be used"
        )


def card_of_run(run: Mapping[str, Any]) -> Card | None:
    """The device of a run, as its predictions saw it: by what it was predicted for and the streams that were scaled to
    it, or by its roofs; None without both.
    """
    try:
        if run.get("roofs"):
            roofs = Roofs.from_dict(dict(check_mapping(run["roofs"], "roofs")))
            return resolve_card(roofs) if roofs.points else None
        asked = run.get("predict_device")
        streams = run.get("predict_streams")
        own = None if streams is None else Streams.from_dict(streams)
        return resolve_card(asked, own) if isinstance(asked, str) else None
    except (TypeError, ValueError):  # of a file that is not bwprof's own writing
        return None


def best_ms(parts: Sequence[StepPart], card: Card) -> list[float]:
    """What parts would take at the device's roofs, a launch each."""
    cases = [_case(part, part.more) for part in parts]
    return [float(value) for value in predict_rows(cases, card, 1.0)["time_ms"]]


def memory_bytes(card: Card) -> int | None:
    """A device's memory, as it reports it, else as its data sheet has it."""
    return None if math.isnan(card.memory_gb) else round(card.memory_gb * 1e9)


def predict_steps(
    question: ModelRequest, devices: Sequence[str | Roofs], efficiency: Any = DEFAULT_EFFICIENCY, run_id: str = ""
) -> pd.DataFrame:
    """A model's rows on devices that are not at hand: as measuring gives them, status "predicted".

    Raises
    ------
    ValueError
        For a device that is not known, with the nearest name.
    """
    model = resolve_efficiency(efficiency)
    frames = [_predicted_on(question, device, model, run_id) for device in devices]
    return frames[0] if len(frames) == 1 else interleave_devices(frames)


def _predicted_on(question: ModelRequest, device: str | Roofs, model: float | Efficiency, run_id: str) -> pd.DataFrame:
    card = resolve_card_for_model(device, model)
    memory = memory_bytes(card)
    pieces = list_pieces(question)
    whole = predict_rows([_case(piece.spec, piece.more) for piece in pieces], card, model)
    from bwprof.results.frame import from_rows, to_rows

    rows = [
        _labelled(row, piece, question, memory) | {"run_id": run_id or None}
        for row, piece in zip(to_rows(whole), pieces, strict=True)
    ]
    known = dict(whole.attrs.get("run", {}))
    known |= {"run_id": run_id, "model": question.to_dict(), "device": card.name}
    known |= {"facts": {"name": card.name, "memory_bytes": memory}}
    if isinstance(device, Roofs):
        known["roofs"] = device.to_dict()
    else:
        known["predict_device"] = device if "=" in device else card.name
    if isinstance(device, str) and isinstance(model, Efficiency):
        known["predict_streams"] = model.streams.as_measured.to_dict()
    return from_rows(rows, known)


def _case(work: StepPart | Spec, more: int) -> PredictedCase:
    return PredictedCase(work.operation, work.params, work.precision, more=more)


def _labelled(row: RowDict, piece: Piece[Spec], question: ModelRequest, memory: int | None) -> RowDict:
    reason = (row["reason"] or "").removeprefix("predicted: ") or None
    row = row | {"case": piece.spec.case, "seed": None, "reason": reason} | piece.labels
    known = question.memory_bytes or memory
    if known and not question.fit(piece.point, known).fits:
        return row | {"status": "skipped", "reason": "the model does not fit", "time_ms": None, "bandwidth_gb_s": None}
    return row


# What a prediction says of a row that could not be measured; all else the row has already.
_FILLED = (
    *("time_ms", "time_ms_lo", "time_ms_hi", "bandwidth_gb_s", "tflops", "attainable_gb_s", "ceiling_gb_s"),
    *("peak_gb_s", "pct_peak", "pct_ceiling", "pct_attainable", "pct_roofline", "pct_limit"),
    *("roofline_tflops", "ridge", "bound", "limiter"),
)


def predict_row(row: RowDict, roofs: Roofs, measured: Sequence[RowDict]) -> RowDict:
    """A row that no kernel runs with its time, on the device whose roofs and measured rows these are.

    Its kernel is taken to be as good as the one that was measured on the same shape in another precision; where there
    is none, as the measured rows teach.
    """
    part, card = part_from_row(row), resolve_card(roofs)
    best = best_ms([part], card)[0]
    alike = next((other for other in measured if _same_shape(row, other)), None)
    if alike is not None:
        expected = alike["time_ms"] * gain(alike, best_ms([part_from_row(alike)], card)[0], best)
        floor = card.streams.floor_seconds * 1e3  # which no kernel's share of its roof makes longer
        share = (best - floor) / (expected - floor) if expected > best > floor else 1.0
        found = _predicted(part, roofs, share)
        said = f"as good as the kernel of {alike['precision']} measured on this shape, {share:.0%} of the nearer roof"
    else:
        try:
            from bwprof.results.frame import from_rows

            found = _predicted(part, roofs, learn(from_rows(measured), roofs) if measured else DEFAULT_EFFICIENCY)
        except ValueError:  # nothing to learn from in these rows
            found = _predicted(part, roofs, DEFAULT_EFFICIENCY)
        said = str(found["reason"]).removeprefix("predicted: ")
    found |= _of_the_driver(found, [row, *measured])
    return row | {name: found[name] for name in _FILLED} | {"reason": said}


def _of_the_driver(found: RowDict, rows: Sequence[RowDict]) -> RowDict:
    """The theoretical bandwidth as measured rows of the device have it, which is not quite the data sheet's."""
    peak = next((value for row in rows if (value := measured_or_none(row.get("peak_gb_s")))), None)
    speed = measured_or_none(found["bandwidth_gb_s"])
    return {} if peak is None or speed is None else {"peak_gb_s": peak, "pct_peak": 100 * speed / peak}


def _predicted(part: StepPart, roofs: Roofs, efficiency: Any) -> RowDict:
    from bwprof.results.frame import to_rows

    return to_rows(predict_rows([_case(part, part.more)], roofs, efficiency))[0]


def _same_shape(row: RowDict, other: RowDict) -> bool:
    names = registry.param_names(row["operation"])
    return row["operation"] == other["operation"] and all(row[name] == other[name] for name in names)


_OWN = ("case", *LABELS)  # what a copy does not share with its original


def fill_predictions(store: Store) -> None:
    """Make copies and predictions anew of the rows that finally count: of those that were measured last, or again.

    For the end of a run, an interrupted one among them, whose rows are those of a run before, too.
    """
    final = _final(store.rows)
    for number, row in enumerate(store.rows):
        shape = _measured_shape(row)
        origin = number if shape is None else final[shape]
        if store.rows[origin]["time_ms"] != row["time_ms"]:
            copy = dict(store.rows[origin]) | {name: row[name] for name in _OWN}
            store.replace(number, copy, store.samples[origin])
    roofs = _roofs(store.run)
    if roofs is None:
        return
    measured = [store.rows[number] for number in sorted(final.values())]
    made: dict[LaunchShape, RowDict] = {}
    for number, row in enumerate(store.rows):
        shape = launch_shape(row)
        if row["status"] != "predicted" or shape is None:
            continue
        if shape not in made:
            made[shape] = predict_row(row, roofs, measured)
        fresh = made[shape]
        if fresh["time_ms"] != row["time_ms"]:
            now = {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"), "bwprof_version": __version__}
            store.replace(number, dict(fresh) | {name: row[name] for name in _OWN} | now)


def _measured_shape(row: RowDict) -> LaunchShape | None:
    return launch_shape(row) if row["status"] == "ok" and row["role"] != LAYER else None


def _final(rows: Sequence[RowDict]) -> dict[LaunchShape, int]:
    """Of each shape that was measured the number of the row that counts: the least disturbed, of those the first."""
    found: dict[LaunchShape, int] = {}
    for number, row in enumerate(rows):
        shape = _measured_shape(row)
        if shape is not None and (shape not in found or rank_doubt(row) < rank_doubt(rows[found[shape]])):
            found[shape] = number
    return found


def _roofs(run: dict[str, Any]) -> Roofs | None:
    """Those that the run's rows are held against."""
    try:
        found = Roofs.from_dict(run["roofs"]) if run.get("roofs") else None
    except ValueError:
        return None
    return found if found is not None and found.points else None
