"""What the commands that predict share: what predictions take for their kernels, and where their rows go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof import results
from bwprof.analysis.forecast.prediction import DEFAULT_EFFICIENCY
from bwprof.cli.shared import options
from bwprof.cli.shared.guard import check_open
from bwprof.results.files import holds_something
from bwprof.text import quoted

if TYPE_CHECKING:
    import pandas as pd


def efficiency_of(given: str | None) -> float | pd.DataFrame:
    """What predictions take for their kernels, from an option: a share, or measured results."""
    if given is None:
        return DEFAULT_EFFICIENCY
    if Path(given).exists():
        return results.load(given)
    return options.share(given, "--efficiency", ", or a run's folder or file")


def targets_of(given: argparse.Namespace, *inputs: str | None) -> dict[str, str]:
    """What is written where, by kind; ValueError before anything is, also for a file that is one of the `inputs`."""
    targets = {kind: name for kind, name in (("csv", given.csv), ("json", given.json)) if name is not None}
    if list(targets.values()).count("-") > 1:
        raise ValueError("--csv - and --json - cannot both have the standard output")
    for kind, name in targets.items():
        if name == "":
            raise ValueError(f"--{kind} is '': a name is needed")
        if name == "-":
            check_open(f"--{kind} -")
        elif Path(name).suffix.lower() != f".{kind}":
            raise ValueError(f"--{kind} {quoted(name)}: the name must end in .{kind}")
        elif any(_same(name, read) for read in inputs):
            raise ValueError(f"--{kind} {quoted(name)} is what is read: name another file for the results")
        elif holds_something(Path(name)) and not given.force:
            raise ValueError(f"{quoted(name)} exists already: name another file, or replace it with --force")
    return targets


def _same(name: str, given: str | None) -> bool:
    return given is not None and Path(name).exists() and Path(given).exists() and Path(name).samefile(given)


def write(found: pd.DataFrame, targets: Mapping[str, str], *, quiet: bool = False) -> None:
    """Predictions as files, or on the standard output."""
    from bwprof.results import csvfile, frame, jsonfile

    for kind, name in targets.items():
        if name != "-":
            results.save(found, name)
            if not quiet:
                sys.stderr.write(f"bwprof: predictions are in {name}\n")
            continue
        rows = frame.to_rows(found)
        text = csvfile.text(rows) if kind == "csv" else jsonfile.text(rows, [None] * len(rows), found.attrs["run"])
        sys.stdout.write(text)
