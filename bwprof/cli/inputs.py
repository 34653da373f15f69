"""The rows of results that a command reads."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bwprof import registry
from bwprof.cli.options import ONLY, split
from bwprof.results.reader import load
from bwprof.text.formatting import plural
from bwprof.text.parsing import parse_names, quote_text

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMES = 12  # in a message
_RESULT_HELP = "a run's folder, a .csv or .json file of results, or a recorded run: h100, h200 (see bwprof --help)"

RESULT = f"""\
results=RUN|FILE  {_RESULT_HELP}
{ONLY}"""

RESULTS = f"""\
results=RUN|FILE+  {_RESULT_HELP}
{ONLY}"""


def load_rows(name: str, only: Sequence[str]) -> pd.DataFrame:
    """Read the rows of results that --only selects."""
    return select_rows(load(name), only)


def select_rows(data: pd.DataFrame, only: Sequence[str], precision: str | None = None) -> pd.DataFrame:
    """Select the rows that --only and --precision match; ValueError where they match none."""
    import numpy as np

    from bwprof.analysis import values

    matches = np.ones(len(data), bool)
    if precision is not None:
        names = map(registry.precision_name, parse_names("--precision", precision))
        matches &= values.is_word(data, "precision", *names)
    patterns = split(only, "--only")
    if patterns:
        columns = [values.words(data, name).astype(str) for name in ("case", "operation", "kernel")]
        matches &= [
            any(fnmatchcase(name, pattern) for name in row for pattern in patterns)
            for row in zip(*columns, strict=True)
        ]
    if len(data) and not matches.any():
        options = [("only", ",".join(patterns)), ("precision", precision)]
        filters = " and ".join(f"--{name} '{quote_text(value)}'" for name, value in options if value)
        known = [f"{name}s are {_list_words(data, name)}" for name in ("case", "precision") if name in data.columns]
        raise ValueError(f"{filters}: none is left of {plural(len(data), 'row')}: {'; '.join(known)}")
    return data if matches.all() else data[matches]


def _list_words(data: pd.DataFrame, name: str) -> str:
    words = list(dict.fromkeys(map(quote_text, data[name].dropna().astype(str))))
    more = f" and {len(words) - _MOST_NAMES} more" if len(words) > _MOST_NAMES else ""
    return f"{', '.join(words[:_MOST_NAMES]) or 'not known'}{more}"
