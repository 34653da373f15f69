"""The columns of a row: their order, type, unit and meaning (`data/columns.csv`), and what their flags mean.

The operations' parameters are columns too; they come from the registry.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from bwprof import _core

ValueKind = Literal["text", "integer", "number", "boolean"]
Better = Literal["higher", "lower", ""]

# Words of the column `flags`.
FLAGS = {
    "above_attainable": "faster than a stream of the same bytes or a peak: bytes, time or roof are wrong",
    "near_timer_floor": "within three times an empty launch",
    "not_cold": "inputs may have been in the cache",
    "not_converged": "the confidence interval is wider than requested",
    "two_states": "the samples form two groups: one median does not describe them",
    "drifting": "each call slower, or faster, than the one before: the row's reason has the rate",
    "bytes_vary": "calls moved different bytes: their mean is listed, and the rate is all bytes over all time",
    "throttled": "the clock was reduced",
    "noisy": "the samples vary much, or other processes used the CPUs or their memory: see the row's reason",
    "noisy_roof": "the roof it is compared with is in doubt: see the row's reason",
    "single_thread": "ran on one thread: the reason says whether the roofs of one thread were used",
    "event_bias": "timed by event pairs, which add a few microseconds",
    "unverified": "the result was not checked",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of results.

    Attributes
    ----------
    text : str
        What it holds, in a line.
    unit : str
        "" for none.
    group : str
        Its topic.
    better : {"higher", "lower", ""}
        Which direction is an improvement, if any.
    title : str
        Its name in a heading, without the unit; "" for `name` with blanks.
    """

    name: str
    kind: ValueKind
    text: str
    unit: str = ""
    group: str = ""
    better: Better = ""
    title: str = ""

    @property
    def label(self) -> str:
        """Title and unit, for a heading or an axis.

        Examples
        --------
        >>> Column("time_ms", "number", "median time", "ms", title="time").label
        'time (ms)'
        """
        title = self.title or self.name.replace("_", " ")
        return f"{title} ({self.unit})" if self.unit else title


COLUMN_FACTS = ("name", "unit", "group", "better", "text")  # of each column, for people


def _read_columns() -> list[Column]:
    path = Path(__file__).parents[1] / "data" / "columns.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row | {"text": row["text"].format(flags=", ".join(FLAGS))} for row in csv.DictReader(stream)]
    return [Column(**row) for row in rows]  # type: ignore[arg-type] # literals


_COLUMNS = _read_columns()
CLASSIC_NAMES = tuple(column.name for column in _COLUMNS[:9])
METRICS = tuple(column for column in _COLUMNS if column.group == "metrics")
METRIC_NAMES = frozenset(column.name for column in METRICS if column.kind != "text")
COMPARISON_NAMES = tuple(column.name for column in _COLUMNS if column.group == "comparison")

# Parameters with a fixed place; others follow in the registry's order.
_PARAM_ORDER = ("batch", "seq_len", "kv_len", "num_heads", "num_kv_heads", "head_dim", "page_size", "causal")


@cache
def param_columns() -> tuple[Column, ...]:
    """Return a column per parameter of any operation, except those among the nine first columns."""
    columns: dict[str, Column] = {}
    for operation in _core.operations():
        for param in operation["params"]:
            column = Column(param["name"], "integer", param["text"], param["unit"] or "", "case")
            columns.setdefault(param["name"], column)
    names = dict.fromkeys([*(name for name in _PARAM_ORDER if name in columns), *columns])
    return tuple(columns[name] for name in names if name not in CLASSIC_NAMES)


@cache
def all_columns() -> tuple[Column, ...]:
    """Return every column, in the order of the files: nine classic ones, the case, its parameters, then by topic."""
    return (*_COLUMNS[:10], *param_columns(), *_COLUMNS[10:])
