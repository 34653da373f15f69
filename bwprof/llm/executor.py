"""Run a model's steps: measure each shape once, copy its figures to all rows of that shape.

All rows of a device that is not at hand are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bwprof import registry
from bwprof.analysis.prediction import DEFAULT_EFFICIENCY
from bwprof.analysis.prediction.catalog import Card, Streams, resolve_card
from bwprof.analysis.prediction.efficiency import Efficiency
from bwprof.analysis.prediction.predict import (
    interleave_devices,
    predict_rows,
    resolve_card_for_model,
    resolve_efficiency,
)
from bwprof.analysis.prediction.workload import PredictedCase
from bwprof.llm.workload import LABELS, LAYER, ModelRequest, StepPart, StepPoint
from bwprof.measuring.function import Chain
from bwprof.measuring.operation import DEFAULT_CACHE, Spec
from bwprof.measuring.row import Context, Outcome, make_unmeasured
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.model import Roofs
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs.loop import Executor, rank_doubt
from bwprof.runs.plan import Plan
from bwprof.text.parsing import check_mapping

if TYPE_CHECKING:
    import pandas as pd

_TOO_LARGE = "the model does not fit the memory"

SpecType = TypeVar("SpecType", Spec, Chain)


@dataclass(frozen=True, slots=True)
class Piece(Generic[SpecType]):
    """An operation of a step, or a layer of it in one graph (a `Chain`), as the run loop measures it."""

    spec: SpecType
    point: StepPoint
    labels: dict[str, Any]
    more: int = 0  # bytes read beyond the operation's: see `bwprof.llm.workload.StepPart`

    @property
    def title(self) -> str:
        return self.spec.title

    @property
    def cache(self) -> str:
        """Cold: other weights replace a step's weights in the cache."""
        return self.spec.cache

    @property
    def repeatable(self) -> bool:
        return self.spec.repeatable

    def blank_row(self, context: Context) -> RowDict:
        return self.spec.blank_row(context) | self.labels


AnyPiece = Piece[Spec] | Piece[Chain]


def list_pieces(request: ModelRequest) -> list[Piece[Spec]]:
    """List every operation of every requested step."""
    return [_make_piece(request, point, part) for point in request.points for part in request.parts(point)]


def list_all_pieces(request: ModelRequest) -> list[AnyPiece]:
    """List all pieces of a run: the operations, then the layers in one graph if they are requested.

    Layers come last: a second stream for graphs may slow what follows (`bwprof.hardware.open_device`).
    """
    layers: list[Piece[Chain]] = []
    for point in request.points if request.chain else ():
        parts = request.parts(point, one_layer=True)
        specs = tuple(_make_piece(request, point, part).spec for part in parts for _ in range(part.count))
        labels = _labels(request, point, LAYER, 0)  # no step launches it: it adds nothing to a sum
        layers.append(Piece(Chain(f"{point.title} {LAYER}", LAYER, point.weights, specs, labels), point, labels))
    return [*list_pieces(request), *layers]


def _make_piece(request: ModelRequest, point: StepPoint, part: StepPart) -> Piece[Spec]:
    case = f"{point.title} {part.role}"  # without the formats, so that FP16 can be compared with FP32
    spec = Spec(case, part.operation, part.precision, part.params, None, None, DEFAULT_CACHE, 0)
    return Piece(spec, point, _labels(request, point, part.role, part.count), part.more)


def _labels(request: ModelRequest, point: StepPoint, role: str, count: int) -> dict[str, Any]:
    values = (request.model.name, point.phase, role, count, point.batch, point.context, point.weights, point.kv)
    return dict(zip(LABELS, values, strict=True))


def make_plan(pieces: Sequence[Piece[Spec]], *, max_seconds: float | None = None) -> Plan:
    """Return the cases, as a run's file stores them."""
    return Plan(tuple(piece.spec for piece in pieces), None, None, max_seconds)


PieceKey = tuple[str, ...]


def piece_key(labels: Mapping[str, Any]) -> PieceKey:
    """Return what identifies a piece, and its row, in a model's run."""
    return tuple(str(labels.get(name)) for name in LABELS if name != "model")


LaunchShape = tuple[Any, ...]  # operation, precision, parameters


def launch_shape(row: RowDict) -> LaunchShape | None:
    """Return what a row has in common with its copies; None for a row of no known operation, such as a layer."""
    try:
        params = {name: row[name] for name in registry.param_names(row["operation"])}
    except ValueError:
        return None
    return None if None in params.values() else (row["operation"], row["precision"], tuple(sorted(params.items())))


class PiecesExecutor:
    """An executor of pieces, by an executor of cases: it measures each shape once.

    It skips steps that do not fit the device's memory. `fill_copies` updates copies after the run.
    """

    def __init__(self, request: ModelRequest, inner: Executor[Spec | Chain], earlier: Sequence[RowDict] = ()) -> None:
        self._request, self._inner = request, inner
        self._context: Context | None = None
        self._outcomes: dict[LaunchShape, Outcome] = {}
        self._owners: dict[LaunchShape, PieceKey] = {}  # the piece that was measured, of each shape
        for row in earlier:
            shape = launch_shape(row) if row["status"] == "ok" else None
            if shape is not None:
                self._outcomes[shape] = Outcome(dict(row))

    def open(self, deadline: float | None) -> dict[str, Any]:
        return self._inner.open(deadline)

    def obtain_roofs(self, wanted: RoofRequest, deadline: float | None) -> Roofs | None:
        return self._inner.obtain_roofs(wanted, deadline)

    def set_context(self, context: Context) -> None:
        self._context = context
        self._inner.set_context(context)

    def measure(self, piece: AnyPiece, max_seconds: float, deadline: float | None) -> Outcome:
        """Measure a piece, or copy the outcome of its shape; the piece that was measured is measured again."""
        if self._context is None:
            raise RuntimeError("set_context comes before measure")
        memory = self._request.memory_bytes or self._context.facts.get("memory_bytes")
        if memory and not self._request.fit(piece.point, memory).fits:
            return make_unmeasured(piece, self._context, "skipped", _TOO_LARGE)
        shape, key = launch_shape(piece.blank_row(self._context)), piece_key(piece.labels)
        if shape is None:
            return self._inner.measure(piece.spec, max_seconds, deadline)
        outcome = self._outcomes.get(shape)
        if outcome is None or self._owners.get(shape) == key:
            outcome = self._inner.measure(piece.spec, max_seconds, deadline)
            if outcome.row["status"] != "skipped":
                self._outcomes[shape] = outcome
        if outcome.row["status"] != "skipped":
            self._owners.setdefault(shape, key)  # also for a shape of an earlier run: its second try is measured
        return replace(outcome, row=dict(outcome.row) | {"case": piece.spec.case} | piece.labels)

    def close(self) -> None:
        self._inner.close()


def card_of_run(run: Mapping[str, Any]) -> Card | None:
    """Return the device that a run's predictions used: of its roofs, else of its catalog entry and scaled streams."""
    try:
        if run.get("roofs"):
            roofs = _read_roofs(run)
            return None if roofs is None else resolve_card(roofs)
        device, streams = run.get("predict_device"), run.get("predict_streams")
        own = None if streams is None else Streams.from_dict(streams)
        return resolve_card(device, own) if isinstance(device, str) else None
    except (TypeError, ValueError):  # a file that bwprof did not write
        return None


def _read_roofs(run: Mapping[str, Any]) -> Roofs | None:
    try:
        roofs = Roofs.from_dict(dict(check_mapping(run["roofs"], "roofs"))) if run.get("roofs") else None
    except (TypeError, ValueError):
        return None
    return roofs if roofs is not None and roofs.points else None


def best_ms(parts: Sequence[StepPart], card: Card) -> list[float]:
    """Return the time of one launch of each part at the device's roofs, ms."""
    cases = [_case(part, part.more) for part in parts]
    return [float(value) for value in predict_rows(cases, card, 1.0)["time_ms"]]


def predict_steps(
    request: ModelRequest, devices: Sequence[str | Roofs], efficiency: Any = DEFAULT_EFFICIENCY
) -> pd.DataFrame:
    """Predict a model's rows on devices that are not at hand; ValueError for an unknown device."""
    model = resolve_efficiency(efficiency)
    frames = [_predict_on(request, device, model) for device in devices]
    return frames[0] if len(frames) == 1 else interleave_devices(frames)


def _predict_on(request: ModelRequest, device: str | Roofs, model: float | Efficiency) -> pd.DataFrame:
    from bwprof.results.frame import from_rows, to_rows

    card = resolve_card_for_model(device, model)
    memory = None if math.isnan(card.memory_gb) else round(card.memory_gb * 1e9)
    usable = request.memory_bytes or memory
    pieces = list_pieces(request)
    predicted = predict_rows([_case(piece.spec, piece.more) for piece in pieces], card, model)
    rows = []
    for row, piece in zip(to_rows(predicted), pieces, strict=True):
        reason = (row["reason"] or "").removeprefix("predicted: ") or None
        own = {"case": piece.spec.case, "seed": None, "reason": reason, "run_id": None} | piece.labels
        if usable and not request.fit(piece.point, usable).fits:
            own |= {"status": "skipped", "reason": _TOO_LARGE, "time_ms": None, "bandwidth_gb_s": None}
        rows.append(row | own)
    run = dict(predicted.attrs.get("run", {})) | {"run_id": "", "model": request.to_dict(), "device": card.name}
    run |= {"facts": {"name": card.name, "memory_bytes": memory}}
    if isinstance(device, Roofs):
        run["roofs"] = device.to_dict()
    else:
        run["predict_device"] = device if "=" in device else card.name
        if isinstance(model, Efficiency):
            run["predict_streams"] = model.streams.as_measured.to_dict()
    return from_rows(rows, run)


def _case(work: StepPart | Spec, more: int) -> PredictedCase:
    return PredictedCase(work.operation, work.params, work.precision, more=more)


_OWN = ("case", *LABELS)  # the columns that a copy does not share with its original


def fill_copies(store: Store) -> None:
    """Update a run's copies from the final row of each shape.

    Called at the end of a run, also of an interrupted or resumed one.
    """
    final = _find_final_rows(store.rows)
    for number, row in enumerate(store.rows):
        shape = _measured_shape(row)
        origin = number if shape is None else final[shape]
        if store.rows[origin]["time_ms"] != row["time_ms"]:
            copy = dict(store.rows[origin]) | {name: row[name] for name in _OWN}
            store.replace(number, copy, store.samples[origin])


def _find_final_rows(rows: Sequence[RowDict]) -> dict[LaunchShape, int]:
    """Return the number of each measured shape's least disturbed row, the first of equal ones."""
    final: dict[LaunchShape, int] = {}
    for number, row in enumerate(rows):
        shape = _measured_shape(row)
        if shape is not None and (shape not in final or rank_doubt(row) < rank_doubt(rows[final[shape]])):
            final[shape] = number
    return final


def _measured_shape(row: RowDict) -> LaunchShape | None:
    return launch_shape(row) if row["status"] == "ok" and row["role"] != LAYER else None
