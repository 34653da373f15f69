"""What the commands that predict share: what predictions take for their kernels, and where their rows go."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof import results
from bwprof.analysis.forecast.prediction import DEFAULT_EFFICIENCY
from bwprof.cli.shared import options
from bwprof.cli.shared.guard import data_stream
from bwprof.text import path_text

if TYPE_CHECKING:
    import pandas as pd


def efficiency_of(given: str | None) -> float | pd.DataFrame:
    """What predictions take for their kernels, from an option: a share, or measured results."""
    if given is None:
        return DEFAULT_EFFICIENCY
    if results.located(Path(given)).exists():
        return results.load(given)
    return options.share(given, "--efficiency", ", or a run's folder or file")


def write(found: pd.DataFrame, targets: Mapping[str, str], *, quiet: bool = False) -> None:
    """Predictions as files, or on the standard output."""
    from bwprof.results import csvfile, frame, jsonfile

    for kind, name in targets.items():
        if name != "-":
            results.save(found, name)
            if not quiet:
                sys.stderr.write(f"bwprof: predictions are in {path_text(name)}\n")
            continue
        rows = frame.to_rows(found)
        text = csvfile.text(rows) if kind == "csv" else jsonfile.text(rows, [None] * len(rows), found.attrs["run"])
        data_stream(f"--{kind} -").write(text)
