"""The pictures of a report, drawn of a frame's rows."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.report.blocks import Block, Picture, Words

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger("bwprof.report")


def drawn(name: str, write: Callable[[Path], object], text: str, caption: str = "") -> Block:
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
        return Words(f"The picture is left out ({text}): {error}.")
    with tempfile.TemporaryDirectory(prefix="bwprof-report-") as folder:
        target = Path(folder) / "picture.svg"
        # Letters, not their outlines: they can be searched, and read aloud; ids that are the same each time.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            write(target)
        return Picture(name, target.read_text(encoding="utf-8"), text, caption)


def comparison(data: pd.DataFrame, most: int) -> Block | None:
    """The bandwidths of rows with a time, of the first `most` cases that have one; None where none has."""
    from bwprof import plot
    from bwprof.analysis import values

    timed = data[values.numbers(data, "bandwidth_gb_s") > 0]
    if not len(timed):
        return None
    case = values.words(timed, "case").astype(str)
    names = case.where(case != "", values.words(timed, "operation").astype(str))
    kept = list(dict.fromkeys(names))
    few = timed[names.isin(kept[:most])]
    caption = (
        f"The first {most} of {len(kept)} cases; the table of all rows has the others." if len(kept) > most else ""
    )
    return drawn(
        "comparison",
        lambda target: plot.write(few, [target]),
        "Bars: the bandwidth of each case in each precision, beside the roof that applies",
        caption,
    )
