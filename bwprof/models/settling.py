"""What in a model's run follows from other rows: copies of a shape's measurement, and predictions made of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bwprof._core import __version__
from bwprof.models import predicting
from bwprof.models.question import LABELS, LAYER
from bwprof.models.running import Shape, shape_of
from bwprof.results.schema import Row
from bwprof.results.writer import Store
from bwprof.roofs import Roofs
from bwprof.runs.loop import doubt

_OWN = ("case", *LABELS)  # what a copy does not share with its original


def settle(store: Store) -> None:
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
    made: dict[Shape, Row] = {}
    for number, row in enumerate(store.rows):
        shape = shape_of(row)
        if row["status"] != "predicted" or shape is None:
            continue
        if shape not in made:
            made[shape] = predicting.filled(row, roofs, measured)
        fresh = made[shape]
        if fresh["time_ms"] != row["time_ms"]:
            now = {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"), "bwprof_version": __version__}
            store.replace(number, dict(fresh) | {name: row[name] for name in _OWN} | now)


def _measured_shape(row: Row) -> Shape | None:
    return shape_of(row) if row["status"] == "ok" and row["role"] != LAYER else None


def _final(rows: Sequence[Row]) -> dict[Shape, int]:
    """Of each shape that was measured the number of the row that counts: the least disturbed, of those the first."""
    found: dict[Shape, int] = {}
    for number, row in enumerate(rows):
        shape = _measured_shape(row)
        if shape is not None and (shape not in found or doubt(row) < doubt(rows[found[shape]])):
            found[shape] = number
    return found


def _roofs(run: dict[str, Any]) -> Roofs | None:
    """Those that the run's rows are held against."""
    try:
        found = Roofs.from_dict(run["roofs"]) if run.get("roofs") else None
    except ValueError:
        return None
    return found if found is not None and found.points else None
