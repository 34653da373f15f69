"""The row, schema v1: what its columns (`bwprof.results.columns`) hold.

A row is a plain dict from column to value, with None for "not measured"; frames, CSV and JSON are made from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from bwprof import _core
from bwprof.results.columns import Column, ValueKind, all_columns
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import is_bool, repr_short

SCHEMA_VERSION = 1

SAMPLES = "samples_ns"  # the column of raw samples that a frame may have beside these

RowDict = dict[str, Any]

DTYPES: dict[ValueKind, str] = {"text": "string", "integer": "Int64", "number": "float64", "truth": "boolean"}

STATUSES = ("ok", "skipped", "failed", "predicted")

MOST_TEXT = 32_000  # letters: a cell of a spreadsheet holds so many, and 131 072 are too many for Python's CSV reader

_BREAK = re.compile(r"\r\n|[\r\n]")


@cache
def column_names() -> tuple[str, ...]:
    """The columns' names, in order."""
    return tuple(column.name for column in all_columns())


@cache
def column_kinds() -> dict[str, ValueKind]:
    """Column -> kind."""
    return {column.name: column.kind for column in all_columns()}


@cache
def _by_name() -> dict[str, Column]:
    return {column.name: column for column in all_columns()}


def find_column(name: str) -> Column:
    """The column of a name; KeyError where there is none."""
    return _by_name()[name]


@cache
def param_names() -> tuple[str, ...]:
    """Every parameter of any operation, the classic ones included."""
    given = {param["name"] for operation in _core.operations() for param in operation["params"]}
    return tuple(name for name in column_names() if name in given)


def empty_row() -> RowDict:
    """A row of which nothing is known yet."""
    return dict.fromkeys(column_names())


def clean_text(text: str) -> str:
    """Text as every file can hold it: one line, no lone surrogates, at most `MOST_TEXT` letters.

    What is cut says how long it was, and carries a digest: other texts stay other texts.

    Examples
    --------
    >>> clean("two\\r\\nlines")
    'two lines'
    """
    if "\n" in text or "\r" in text:
        text = _BREAK.sub(" ", text)
    text = escape_surrogates(text)
    if len(text) > MOST_TEXT:
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
        note = f"... ({len(text)} letters, sha256 {digest})"
        text = text[: MOST_TEXT - len(note)] + note
    return text


def escape_surrogates(text: str) -> str:
    """Text without lone surrogates (bytes of an argument that were no text): they become words, as in a repr."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def clean_value(value: Any) -> Any:
    """A value of a column that is not the schema's: missing is None, text is `clean`, NumPy's scalars are Python's.

    What holds several values is text, JSON's, as a key of rows needs it, and a CSV file.

    Raises
    ------
    ValueError
        For what is nested too deep to be gone through.

    Examples
    --------
    >>> free([1, "a"]), free({"tile": (64, 64)})
    ('[1, "a"]', '{"tile": [64, 64]}')
    """
    if value is None or type(value) is int:  # most are: a key asks for many
        return value
    if is_missing(value):
        return None
    if isinstance(value, str):
        return clean_text(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return clean_value(value.item())
    if isinstance(value, (list, tuple, dict)) or type(value).__hash__ is None:
        return clean_text(_json_text(value))
    return value


def _json_text(value: Any) -> str:
    """What holds several values as JSON, and what JSON has no word for as Python shows it."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_simpler)
    except (TypeError, ValueError):  # keys that are no names, or it holds itself
        return str(value)
    except RecursionError:
        raise ValueError(f"a {type(value).__name__} in a column of your own is nested too deep") from None


def _simpler(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


_MOST = 1e30  # of anything that is measured: its powers and ratios are floats

_SIGNED = frozenset({"temperature_c", "schema_version"})

_BOUNDLESS = frozenset({"time_ms_hi", "max_error"})  # infinite: of too few samples, of a result that is no number

_POSITIVE = frozenset({"time_ms", "time_ms_hi", "time_ms_min", "bandwidth_gb_s"})


@cache
def range_of(name: str) -> tuple[float, float, float]:
    """Return the least and the greatest number that a column can hold, and 0 where it can hold that too, else NaN.

    A time, a rate or a share of a roof is positive and finite. What is beyond the limits is damage: nobody knows it.
    """
    known = _by_name().get(name)
    positive = name in _POSITIVE or (known is not None and known.group in ("roofs", "comparison"))
    least = -_MOST if name in _SIGNED or known is None else 1 / _MOST
    return least, math.inf if name in _BOUNDLESS else _MOST, math.nan if positive else 0.0


def parse_value(value: Any, kind: ValueKind, limits: tuple[float, float, float] = (-math.inf, math.inf, 0.0)) -> Any:
    """A value as rows hold it: None, str, int, float or bool; None for a number beyond `limits`.

    Raises
    ------
    ValueError
        When the value cannot be read as `kind`.
    """
    if is_missing(value):
        return None
    if kind == "text":
        if isinstance(value, (dict, list, tuple)):
            raise TypeError("text is needed")
        return clean_text(str(value))
    if kind == "truth":
        return _truth(value)
    if isinstance(value, str) and not value.strip():
        return None
    least, most, zero = limits
    if kind == "integer":
        whole = _integer(value)
        return None if whole is None or whole < 0 < least else whole
    if is_bool(value):
        raise TypeError("a number is needed")
    number = float(value)
    return number + 0.0 if least <= number <= most or number == zero else None  # -0.0 + 0.0 is 0.0


def _integer(value: Any) -> int | None:
    """ValueError for a fraction, infinity, and what a column of 64 bits cannot hold."""
    try:
        whole = operator.index(value) if not isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        number = float(value)
        if math.isnan(number):
            return None
        if not number.is_integer():
            raise ValueError(f"{repr_short(value)} is not a whole number") from None
        whole = int(number)
    if not -(2**63) <= whole < 2**63:
        raise ValueError(f"{repr_short(value)} does not fit in 64 bits")
    return whole


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("", "nan"):
            return None
        if lowered in ("true", "1"):
            return True
        if lowered in ("false", "0"):
            return False
        raise ValueError(f"{repr_short(value)} is neither True nor False")
    if value not in (0, 1):
        raise ValueError(f"{repr_short(value)} is neither True nor False")
    return bool(value)


def parse_cell(name: str, value: Any, kind: ValueKind) -> Any:
    """The same of a column; what is raised names it."""
    try:
        return parse_value(value, kind, range_of(name))
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"column {name}: {repr_short(value)} is not {describe_kind(kind)}") from None


def normalise_row(row: RowDict) -> RowDict:
    """Every column once, in order, in the kinds of the schema; then the columns that are not the schema's."""
    result: RowDict = {}
    for column in all_columns():
        result[column.name] = parse_cell(column.name, row.get(column.name), column.kind)
    for name, value in row.items():
        if name not in result:
            result[clean_text(name)] = clean_value(value)
    return result


def extra_names(rows: Iterable[RowDict]) -> list[str]:
    """The columns of rows that are not the schema's (a caller's labels), in the order in which they come."""
    known = column_kinds()
    return list(dict.fromkeys(name for row in rows for name in row if name not in known))


def describe_kind(kind: ValueKind) -> str:
    """What a column of a kind holds, in words."""
    return {"text": "text", "integer": "a whole number", "number": "a number", "truth": "True or False"}[kind]


def check_version(version: Any, source: str) -> None:
    """ValueError for results written by a later bwprof, and for what is no version; None was written by others."""
    if version is None or (type(version) is int and 1 <= version <= SCHEMA_VERSION):
        return
    if type(version) is int and version > SCHEMA_VERSION:
        raise ValueError(
            f"{source} has schema version {version}; this bwprof reads up to {SCHEMA_VERSION}: install a newer one"
        )
    raise ValueError(f"{source} has schema version {repr_short(version)}: a whole number from 1 is needed")
