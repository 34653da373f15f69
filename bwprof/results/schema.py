"""The columns of a row and their values, schema v1.

A row is a dict from column to value, None for what is missing. `data/columns.csv` has the columns' order, type, unit
and meaning; the operations' parameters are columns too, from the registry.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bwprof import _core
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import finite_or_none, is_bool, repr_short

ValueKind = Literal["text", "integer", "number", "boolean"]
Better = Literal["higher", "lower", ""]

SCHEMA_VERSION = 1
SAMPLES = "samples_ns"  # a frame may have this column too
RowDict = dict[str, Any]
DTYPES: dict[ValueKind, str] = {"text": "string", "integer": "Int64", "number": "float64", "boolean": "boolean"}
KIND_TEXTS = {"text": "text", "integer": "a whole number", "number": "a number", "boolean": "True or False"}
STATUSES = ("ok", "skipped", "failed", "predicted")
MOST_TEXT = 32_000  # characters: the limit of spreadsheets; Python's CSV reader stops at 131 072

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
    """A column of results: `text` says what it holds, `group` is its topic, `better` the direction of improvement.

    `title` is its name in a heading, without the unit; "" for `name` with blanks.
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
        """Title and unit, for a heading or an axis: time (ms)."""
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
def all_columns() -> tuple[Column, ...]:
    """Return every column, in the order of the files: nine classic ones, the case, its parameters, then by topic."""
    params: dict[str, Column] = {}
    for param in (param for operation in _core.operations() for param in operation["params"]):
        params.setdefault(param["name"], Column(param["name"], "integer", param["text"], param["unit"] or "", "case"))
    names = dict.fromkeys((*_PARAM_ORDER, *params))
    own = [params[name] for name in names if name in params and name not in CLASSIC_NAMES]
    return (*_COLUMNS[:10], *own, *_COLUMNS[10:])


@cache
def column_names() -> tuple[str, ...]:
    """Return the columns' names, in order."""
    return tuple(column.name for column in all_columns())


@cache
def column_kinds() -> dict[str, ValueKind]:
    """Return the columns' kinds, by name."""
    return {column.name: column.kind for column in all_columns()}


@cache
def _columns_by_name() -> dict[str, Column]:
    return {column.name: column for column in all_columns()}


def find_column(name: str) -> Column:
    """Return the column of a name; KeyError for an unknown name."""
    return _columns_by_name()[name]


@cache
def param_names() -> tuple[str, ...]:
    """Return every parameter of any operation."""
    params = {param["name"] for operation in _core.operations() for param in operation["params"]}
    return tuple(name for name in column_names() if name in params)


def empty_row() -> RowDict:
    """Return a row with no value."""
    return dict.fromkeys(column_names())


def clean_text(text: str) -> str:
    """Return text that every file can hold: one line, no lone surrogates, at most 32 000 characters.

    Cut text ends with its length and a digest, so that different texts stay different.
    """
    if "\n" in text or "\r" in text:
        text = re.sub(r"\r\n|[\r\n]", " ", text)
    text = escape_surrogates(text)
    if len(text) > MOST_TEXT:
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
        note = f"... ({len(text)} letters, sha256 {digest})"
        text = text[: MOST_TEXT - len(note)] + note
    return text


def escape_surrogates(text: str) -> str:
    """Replace lone surrogates (bytes that are not UTF-8) by escape sequences."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def clean_value(value: Any) -> Any:
    """Return a value for a column of your own: None for missing, clean text, Python's own scalars, JSON for containers.

    Raise ValueError for containers that are nested too deep.
    """
    if value is None or type(value) is int:  # the most frequent values
        return value
    if is_missing(value):
        return None
    if isinstance(value, str):
        return clean_text(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return clean_value(value.item())
    if not isinstance(value, (list, tuple, dict)) and type(value).__hash__ is not None:
        return value
    try:
        text = json.dumps(value, ensure_ascii=False, default=lambda item: getattr(item, "tolist", item.__str__)())
    except (TypeError, ValueError):  # keys that are not str, or a container in itself
        text = str(value)
    except RecursionError:
        raise ValueError(f"a {type(value).__name__} in a column of your own is nested too deep") from None
    return clean_text(text)


def parse_samples(values: Any) -> list[float] | None:
    """Return a row's raw samples, None for missing ones; ValueError for anything but a list of times in ns."""
    if is_missing(values):
        return None
    items = list(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes, dict)) else [None]
    times = [time for time in map(finite_or_none, items) if time is not None and time >= 0]
    if len(times) != len(items):
        raise ValueError(f"column {SAMPLES} holds {repr_short(values)}: a list of times in ns is needed, or None")
    return times


_MOST = 1e30  # of any measured value: its powers and ratios are finite
_SIGNED = frozenset({"temperature_c", "schema_version"})
_UNBOUNDED = frozenset({"time_ms_hi", "max_error"})  # infinite: with too few samples, for a result of NaN
_POSITIVE = frozenset({"time_ms", "time_ms_hi", "time_ms_min", "bandwidth_gb_s"})


@cache
def range_of(name: str) -> tuple[float, float, float]:
    """Return the least and the greatest number of a column, and 0 if it may be 0 too, else NaN.

    Times, rates and shares of roofs are positive. Numbers outside are damage and become missing.
    """
    known = _columns_by_name().get(name)
    positive = name in _POSITIVE or (known is not None and known.group in ("roofs", "comparison"))
    least = -_MOST if name in _SIGNED or known is None else 1 / _MOST
    return least, math.inf if name in _UNBOUNDED else _MOST, math.nan if positive else 0.0


def parse_value(value: Any, kind: ValueKind, limits: tuple[float, float, float] = (-math.inf, math.inf, 0.0)) -> Any:
    """Return a value as rows hold it: None, str, int, float or bool; None for a number outside `limits`.

    Raise TypeError or ValueError for a value of another kind.
    """
    if is_missing(value):
        return None
    if kind == "text":
        if isinstance(value, (dict, list, tuple)):
            raise TypeError("text is needed")
        return clean_text(str(value))
    if isinstance(value, str) and not value.strip():
        return None
    if kind == "boolean":
        key = value.strip().lower() if isinstance(value, str) else value
        if key not in _BOOLEANS:
            raise ValueError("True or False is needed")
        return _BOOLEANS[key]
    least, most, zero = limits
    if kind == "integer":
        integer = _integer(value)
        return None if integer is None or integer < 0 < least else integer
    if is_bool(value):
        raise TypeError("a number is needed")
    number = float(value)
    return number + 0.0 if least <= number <= most or number == zero else None  # -0.0 + 0.0 is 0.0


def _integer(value: Any) -> int | None:
    try:
        integer = operator.index(value) if not isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        number = float(value)
        if math.isnan(number):
            return None
        if not number.is_integer():
            raise ValueError("not a whole number") from None
        integer = int(number)
    if not -(2**63) <= integer < 2**63:
        raise ValueError("not a number of 64 bits")
    return integer


_BOOLEANS = {"nan": None, "true": True, "1": True, 1: True, "false": False, "0": False, 0: False}


def parse_cell(name: str, value: Any, kind: ValueKind) -> Any:
    """Return a column's value as `parse_value` does; ValueError with the column's name for a wrong one."""
    try:
        return parse_value(value, kind, range_of(name))
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"column {name}: {repr_short(value)} is not {KIND_TEXTS[kind]}") from None


def normalize_row(row: RowDict) -> RowDict:
    """Return a row with every column in order, each of its kind, then the columns of your own."""
    kinds = column_kinds()
    filled = {name: value for name, value in row.items() if value is not None and name in kinds}
    known = {name: parse_cell(name, value, kinds[name]) for name, value in filled.items()}
    return empty_row() | known | {clean_text(name): clean_value(row[name]) for name in row if name not in kinds}


def extra_names(rows: Iterable[RowDict]) -> list[str]:
    """Return the names of the rows' own columns, in order of appearance."""
    known = column_kinds()
    return list(dict.fromkeys(name for row in rows for name in row if name not in known))


def check_version(version: Any, source: str) -> None:
    """Raise ValueError for results of a later bwprof, and for anything but a version; None is allowed."""
    if version is None or (type(version) is int and 1 <= version <= SCHEMA_VERSION):
        return
    newer = ": install a newer one" if type(version) is int and version > SCHEMA_VERSION else ""
    reads = f"this bwprof reads up to {SCHEMA_VERSION}{newer}"
    raise ValueError(f"{source} has schema version {repr_short(version)}; {reads}")
