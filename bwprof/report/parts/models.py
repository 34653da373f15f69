"""A model's run: its answer, and the tables behind it."""

from __future__ import annotations

from bwprof.report.blocks import Section, Table, items, section, table
from bwprof.report.parts import pictures
from bwprof.report.runs import Run


def answer(run: Run) -> list[str]:
    """What limits a step of the model, and how fast it is; [] where the rows do not say."""
    found = run.step
    return [] if found is None else [found.answer]


def of_model(run: Run) -> Section | None:
    """The steps, their operations, formats, what fits, and what all of that assumes."""
    found = run.step
    if found is None:
        return None
    picture = pictures.of_kind("model", run.data, "The time per token, or of a step, by operation")
    title = f"Model: {found.model.name}"
    return section("model", title, picture, *map(_table, found.tables()), items(found.notes()))


def _table(found: tuple[str, list[dict[str, str]]]) -> Table | None:
    from bwprof.models.telling import WORDS

    title, lines = found
    headings = [name.replace("\n", " ") for name in lines[0]] if lines else []
    numbers = [name for name in headings if name not in WORDS]
    return table(headings, [list(line.values()) for line in lines], numbers=numbers, caption=title)
