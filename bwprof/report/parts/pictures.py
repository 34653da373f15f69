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
    from bwprof.analysis import values
    from bwprof.plot.kinds import bars

    timed = data[values.numbers(data, "bandwidth_gb_s") > 0]
    if not len(timed):
        return None
    few, count = _first_cases(timed, most)
    return drawn(
        "comparison",
        lambda target: bars.picture(few).write([target]),
        "The bandwidth of each case in each precision, beside the roof that applies",
        _left_out(count, most),
    )


def roofline(data: pd.DataFrame, most: int) -> Block | None:
    """Rows with FLOPs below their roofs, of the first `most` cases; None where there are none, or no roofs."""
    from bwprof.analysis import values
    from bwprof.plot.kinds import rooflines

    known = (values.numbers(data, "tflops") > 0) & (values.numbers(data, "arithmetic_intensity") > 0)
    if not known.any():
        return None
    few, count = _first_cases(data, most)
    return drawn(
        "roofline",
        lambda target: rooflines.picture(few).write([target]),
        "Roofline: the arithmetic rate of each row over its intensity, below the roofs of memory and arithmetic",
        _left_out(count, most),
    )


def _first_cases(data: pd.DataFrame, most: int) -> tuple[pd.DataFrame, int]:
    """The rows of the first cases, and how many there are."""
    from bwprof.analysis import values

    case = values.words(data, "case").astype(str)
    names = case.where(case != "", values.words(data, "operation").astype(str))
    kept = list(dict.fromkeys(names))
    return data[names.isin(kept[:most])], len(kept)


def _left_out(count: int, most: int) -> str:
    return f"The first {most} of {count} cases; the table of all rows has the others." if count > most else ""
