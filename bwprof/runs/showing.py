"""How a run is shown where it is: in a notebook, on a terminal, in a file."""

from __future__ import annotations

import sys

from bwprof.runs.notebook import NotebookBar, in_notebook
from bwprof.runs.progress import Bar, Lines, Progress


def shown_here(*, quiet: bool = False) -> Progress:
    """A bar in a notebook and on standard error that is a terminal, lines where it is not; nothing when quiet."""
    if quiet:
        return Progress()
    if in_notebook():
        return NotebookBar()
    return Bar(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
