"""A ladder's file: what `bwprof ablation` writes with `--json` or `--csv`."""

from __future__ import annotations

import io
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.results import jsonfile
from bwprof.results.files import read_text

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "bwprof-ladder"
# What a ladder cannot do without; a table that lacks one of them is another.
COLUMNS = ("version", "kind", "status", "speedup_vs_first", "predicted_gain", "precision")
_NUMBERS = ("speedup_vs_first", "measured_gain", "predicted_gain")


def read(path: str | PathLike[str]) -> pd.DataFrame:
    """The rungs, as `bwprof.ablation` gave them, without what it says of the run.

    Raises
    ------
    ValueError
        For a file that holds no ladder.
    OSError
        When it cannot be read.
    """
    import pandas as pd

    content = read_text(Path(path))
    if Path(path).suffix.lower() == ".csv":
        return _of_csv(content, str(path))
    found = jsonfile.document(content, str(path))
    rows = found.get("rows") if isinstance(found, dict) and found.get("format") == FORMAT else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _no_ladder(str(path))
    return pd.DataFrame(rows)


def _of_csv(content: str, source: str) -> pd.DataFrame:
    import pandas as pd

    try:
        found = pd.read_csv(io.StringIO(content), keep_default_na=False, na_values=[""])
    except ValueError:  # of pandas' own kinds: no columns, lines that are longer than the first
        raise _no_ladder(source) from None
    if not set(COLUMNS) <= set(found.columns):
        raise _no_ladder(source)
    for name in (name for name in _NUMBERS if name in found):  # else one cell of text makes texts of all
        found[name] = pd.to_numeric(found[name], errors="coerce")
    return found


def _no_ladder(source: str) -> ValueError:
    return ValueError(f"{source} is no ladder: a file is needed that bwprof ablation --json, or --csv, wrote")


def is_one(path: str | PathLike[str]) -> bool:
    """Whether a file holds a ladder."""
    try:
        read(path)
    except (OSError, ValueError):
        return False
    return True
