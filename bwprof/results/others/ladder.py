"""A ladder's file: what `bwprof ablation --json` writes."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.results import jsonfile
from bwprof.results.files import read_text

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "bwprof-ladder"


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

    found = jsonfile.document(read_text(Path(path)), str(path))
    rows = found.get("rows") if isinstance(found, dict) and found.get("format") == FORMAT else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is no ladder: a file is needed that bwprof ablation --json wrote")
    return pd.DataFrame(rows)
