"""A model's run: its answer, and the tables behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bwprof.report.blocks import Section, Table, items, section, table
from bwprof.report.runs import Run

if TYPE_CHECKING:
    from bwprof.models.result import ModelStep


def answer(run: Run) -> list[str]:
    """What limits a step of the model, and how fast it is; [] where the rows do not say."""
    found = _step(run)
    return [] if found is None else [found.answer]


def of_model(run: Run) -> Section | None:
    """The steps, their operations, formats, what fits, and what all of that assumes."""
    found = _step(run)
    if found is None:
        return None
    return section("model", f"Model: {found.model.name}", *map(_table, found.tables()), items(found.notes()))


def _table(found: tuple[str, list[dict[str, str]]]) -> Table | None:
    from bwprof.models.telling import WORDS

    title, lines = found
    headings = [name.replace("\n", " ") for name in lines[0]] if lines else []
    numbers = [name for name in headings if name not in WORDS]
    return table(headings, [list(line.values()) for line in lines], numbers=numbers, caption=title)


def _step(run: Run) -> ModelStep | None:
    from bwprof.models.result import ModelStep

    if run.told.get("model") is None:
        return None
    try:
        return ModelStep.from_frame(run.data)
    except (KeyError, TypeError, ValueError):  # not all of what was asked is there
        return None
