"""The pictures of a report, drawn of a frame's rows."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.text.document import Block, Paragraph, SvgPicture

if TYPE_CHECKING:
    import pandas as pd

_MOST_CASES = 60  # of a picture: nobody reads more

_log = logging.getLogger("bwprof.report")


def draw_svg(name: str, write: Callable[[Path], object], text: str, caption: str = "") -> Block:
    """A picture that `write` puts into a file, its letters as letters; without matplotlib words that say so.

    Parameters
    ----------
    name : str
        What its file is called beside a report in Markdown.
    text : str
        What it shows, for those who cannot see it.
    """
    try:
        import matplotlib
    except ImportError as error:
        _log.warning("no pictures: %s", error)
        return Paragraph(f"The picture is left out ({text}): {error}.")
    with tempfile.TemporaryDirectory(prefix="bwprof-report-") as folder:
        target = Path(folder) / "picture.svg"
        # Letters, not their outlines: they can be searched, and read aloud; ids that are the same each time.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            write(target)
        return SvgPicture(name, target.read_text(encoding="utf-8"), text, caption)


def draw_kind(kind: str, data: pd.DataFrame, text: str) -> Block | None:
    """A picture of a kind of `bwprof.plot`, of so many cases as can be read; None where the rows make none.

    `text` says what it shows.
    """
    from bwprof import plot

    few, count = _first_cases(data, _MOST_CASES)
    try:
        made = plot.KINDS[kind].picture(few)
    except ValueError:  # there is nothing to draw: no roofs, no FLOPs, one precision
        return None
    said = f"The first {_MOST_CASES} of {count} cases; the table of all rows has the others."
    return draw_svg(kind, lambda target: made.write([target]), text, said if count > _MOST_CASES else "")


def _first_cases(data: pd.DataFrame, most: int) -> tuple[pd.DataFrame, int]:
    """The rows of the first cases, and how many there are."""
    from bwprof.analysis import values

    case = values.words(data, "case").astype(str)
    names = case.where(case != "", values.words(data, "operation").astype(str))
    kept = list(dict.fromkeys(names))
    return data[names.isin(kept[:most])], len(kept)
