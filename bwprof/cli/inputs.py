"""The rows of results that a command is about: what it reads, and what --only leaves of that."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.cli.options import read_fraction, split
from bwprof.results.reader import load
from bwprof.text.formatting import plural
from bwprof.text.parsing import parse_names, quote_text

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 12  # words of a column that a message has


def RESULT(parser: ArgumentParser, **more: Any) -> None:
    """Add the word that names results, and the option that chooses among their rows."""
    text = "a run's folder, a .csv or .json file of results, or a recorded run: h100, h200 (see bwprof --help)"
    parser.add_argument("results", metavar="RUN|FILE", help=text, **more)
    read_fraction(parser)


def load_rows(name: str, only: Sequence[str]) -> pd.DataFrame:
    """The rows of results that --only leaves."""
    return select_rows(load(name), only)


def select_rows(data: pd.DataFrame, only: Sequence[str], precision: str | None = None) -> pd.DataFrame:
    """The rows that --only and --precision leave; ValueError where that is none of those there are."""
    import numpy as np

    from bwprof.analysis import values

    left = np.ones(len(data), bool)
    if precision is not None:
        left &= values.is_word(data, "precision", *map(registry.precision_name, parse_names("--precision", precision)))
    patterns = split(only, "--only")
    if patterns:
        named = [values.words(data, name).astype(str) for name in ("case", "operation", "kernel")]
        left &= [any(fnmatchcase(name, one) for name in row for one in patterns) for row in zip(*named, strict=True)]
    if len(data) and not left.any():
        asked = [("only", ",".join(patterns)), ("precision", precision)]
        said = " and ".join(f"--{name} '{quote_text(value)}'" for name, value in asked if value)
        there = [f"{name}s are {_listed(data, name)}" for name in ("case", "precision") if name in data.columns]
        raise ValueError(f"{said}: none is left of {plural(len(data), 'row')}: {'; '.join(there)}")
    return data if left.all() else data[left]


def _listed(data: pd.DataFrame, name: str) -> str:
    """The words of a column, the first of many."""
    found = list(dict.fromkeys(map(quote_text, data[name].dropna().astype(str))))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED]) or 'not known'}{more}"
