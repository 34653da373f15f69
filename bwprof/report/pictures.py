"""Pictures of a report."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.text.document import Block, Paragraph, SvgPicture

if TYPE_CHECKING:
    import pandas as pd

_MOST_CASES = 60
_log = logging.getLogger("bwprof.report")


def draw_svg(name: str, write: Callable[[Path], object], text: str, caption: str = "") -> Block:
    """Return the picture that `write` puts into a file; without matplotlib a paragraph instead.

    Parameters
    ----------
    name : str
        The name of its file beside a report in Markdown.
    write : function
        Writes an SVG file.
    text : str
        A description for readers who cannot see it.
    caption : str
        A line below it.
    """
    try:
        import matplotlib
    except ImportError as error:
        _log.warning("no pictures: %s", error)
        return Paragraph(f"The picture is left out ({text}): {error}.")
    with tempfile.TemporaryDirectory(prefix="bwprof-report-") as folder:
        target = Path(folder) / "picture.svg"
        # Letters can be searched and read aloud, which outlines cannot; the salt makes ids the same each time.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            write(target)
        return SvgPicture(name, target.read_text(encoding="utf-8"), text, caption)


def draw_kind(kind: str, data: pd.DataFrame, text: str) -> Block | None:
    """Return a picture of a kind of `bwprof.plot`, of at most 60 cases; None where the rows do not fit it."""
    from bwprof import plot

    few, count = _first_cases(data, _MOST_CASES)
    try:
        picture = plot.KINDS[kind].picture(few)
    except ValueError:
        return None
    caption = f"The first {_MOST_CASES} of {count} cases; the table of all rows has the others."
    return draw_svg(kind, lambda target: picture.write([target]), text, caption if count > _MOST_CASES else "")


def _first_cases(data: pd.DataFrame, most: int) -> tuple[pd.DataFrame, int]:
    """Return the rows of the first cases, and the number of cases."""
    from bwprof.analysis import values

    case = values.words(data, "case").astype(str)
    names = case.where(case != "", values.words(data, "operation").astype(str))
    cases = names.unique()
    return data[names.isin(cases[:most])], len(cases)
