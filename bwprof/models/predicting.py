"""Times of a model's operations that are not measured: on a device that is not at hand, or without a kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.forecast.cards import Card, card_of
from bwprof.analysis.forecast.efficiencies import Efficiency
from bwprof.analysis.forecast.efficiencies import efficiency as learn
from bwprof.analysis.forecast.prediction import DEFAULT_EFFICIENCY, beside, card_for, model_of, predict_rows
from bwprof.analysis.forecast.streams import Streams
from bwprof.analysis.forecast.work import Case
from bwprof.measuring.spec import Spec
from bwprof.models.figures import gain, part_of
from bwprof.models.question import Question
from bwprof.models.running import Piece, pieces_of
from bwprof.models.steps import Part
from bwprof.results.frame import from_rows, to_rows
from bwprof.results.schema import Row
from bwprof.roofs import Roofs
from bwprof.text import mapping, measurable

if TYPE_CHECKING:
    import pandas as pd


def card_of_run(run: Mapping[str, Any]) -> Card | None:
    """The device of a run, as its predictions saw it: by what it was predicted for and the streams that were scaled to
    it, or by its roofs; None without both.
    """
    try:
        if run.get("roofs"):
            roofs = Roofs.from_dict(dict(mapping(run["roofs"], "roofs")))
            return card_of(roofs) if roofs.points else None
        asked = run.get("predict_device")
        streams = run.get("predict_streams")
        own = None if streams is None else Streams.from_dict(streams)
        return card_of(asked, own) if isinstance(asked, str) else None
    except (TypeError, ValueError):  # of a file that is not bwprof's own writing
        return None


def best_ms(parts: Sequence[Part], card: Card) -> list[float]:
    """What parts would take at the device's roofs, a launch each."""
    cases = [_case(part, part.more) for part in parts]
    return [float(value) for value in predict_rows(cases, card, 1.0)["time_ms"]]


def memory_bytes(card: Card) -> int | None:
    """A device's memory, as it reports it, else as its data sheet has it."""
    return None if math.isnan(card.memory_gb) else round(card.memory_gb * 1e9)


def predicted(
    question: Question, devices: Sequence[str | Roofs], efficiency: Any = DEFAULT_EFFICIENCY, run_id: str = ""
) -> pd.DataFrame:
    """A model's rows on devices that are not at hand: as measuring gives them, status "predicted".

    Raises
    ------
    ValueError
        For a device that is not known, with the nearest name.
    """
    model = model_of(efficiency)
    frames = [_predicted_on(question, device, model, run_id) for device in devices]
    return frames[0] if len(frames) == 1 else beside(frames)


def _predicted_on(question: Question, device: str | Roofs, model: float | Efficiency, run_id: str) -> pd.DataFrame:
    card = card_for(device, model)
    memory = memory_bytes(card)
    pieces = pieces_of(question)
    whole = predict_rows([_case(piece.spec, piece.more) for piece in pieces], card, model)
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


def _case(work: Part | Spec, more: int) -> Case:
    return Case(work.operation, work.params, work.precision, more=more)


def _labelled(row: Row, piece: Piece[Spec], question: Question, memory: int | None) -> Row:
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


def filled(row: Row, roofs: Roofs, measured: Sequence[Row]) -> Row:
    """A row that no kernel runs with its time, on the device whose roofs and measured rows these are.

    Its kernel is taken to be as good as the one that was measured on the same shape in another precision; where there
    is none, as the measured rows teach.
    """
    part, card = part_of(row), card_of(roofs)
    best = best_ms([part], card)[0]
    alike = next((other for other in measured if _same_shape(row, other)), None)
    if alike is not None:
        expected = alike["time_ms"] * gain(alike, best_ms([part_of(alike)], card)[0], best)
        floor = card.streams.floor_seconds * 1e3  # which no kernel's share of its roof makes longer
        share = (best - floor) / (expected - floor) if expected > best > floor else 1.0
        found = _predicted(part, roofs, share)
        said = f"as good as the kernel of {alike['precision']} measured on this shape, {share:.0%} of the nearer roof"
    else:
        try:
            found = _predicted(part, roofs, learn(from_rows(measured), roofs) if measured else DEFAULT_EFFICIENCY)
        except ValueError:  # nothing to learn from in these rows
            found = _predicted(part, roofs, DEFAULT_EFFICIENCY)
        said = str(found["reason"]).removeprefix("predicted: ")
    found |= _of_the_driver(found, [row, *measured])
    return row | {name: found[name] for name in _FILLED} | {"reason": said}


def _of_the_driver(found: Row, rows: Sequence[Row]) -> Row:
    """The theoretical bandwidth as measured rows of the device have it, which is not quite the data sheet's."""
    peak = next((value for row in rows if (value := measurable(row.get("peak_gb_s")))), None)
    speed = measurable(found["bandwidth_gb_s"])
    return {} if peak is None or speed is None else {"peak_gb_s": peak, "pct_peak": 100 * speed / peak}


def _predicted(part: Part, roofs: Roofs, efficiency: Any) -> Row:
    return to_rows(predict_rows([_case(part, part.more)], roofs, efficiency))[0]


def _same_shape(row: Row, other: Row) -> bool:
    names = registry.param_names(row["operation"])
    return row["operation"] == other["operation"] and all(row[name] == other[name] for name in names)
