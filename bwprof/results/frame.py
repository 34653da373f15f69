"""Rows as a pandas DataFrame with fixed types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from bwprof.results import compare, schema
from bwprof.results.frozen import Run, Samples
from bwprof.results.schema import Row


def from_rows(
    rows: Iterable[Row], run: Mapping[str, Any] | None = None, samples: Samples | None = None
) -> pd.DataFrame:
    """A frame with every column of the schema, in its order and type; `attrs` hold the run's metadata, read-only.

    Whatever else the rows have (a caller's labels) follows in columns of pandas' own choice. Raw samples (ns per
    launch, a list per row) are not in the frame, but `bwprof.save` knows them.
    """
    listed = list(rows)
    data: dict[str, Any] = {}
    for column in schema.columns():
        values = [schema.normalise(row.get(column.name), column.kind) for row in listed]
        if column.kind == "number":
            values = [float("nan") if value is None else value for value in values]
        data[column.name] = pd.Series(values, dtype=schema.DTYPES[column.kind])
    more = schema.more_names(listed)
    data |= {schema.clean(name): _series([schema.free(row.get(name)) for row in listed]) for name in more}
    frame = pd.DataFrame(data)
    known = Run.of(run or {}, listed, samples) if samples is not None else Run(run or {})
    frame.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": known}
    return frame


def _series(values: list[Any]) -> pd.Series[Any]:
    """A column of pandas' own choice, unless that is one of floats that cannot hold the whole numbers."""
    large = any(type(value) is int and abs(value) > 2**53 for value in values)
    return pd.Series(values, dtype=object if large else None)


def to_rows(frame: pd.DataFrame) -> list[Row]:
    """The rows of a frame, also of one that has only the nine classic columns.

    Raises
    ------
    ValueError
        When a classic column is missing, or two columns have one name.
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"a pandas.DataFrame is needed, not {type(frame).__name__}; bwprof.load reads one from a file")
    missing = [name for name in schema.CLASSIC_NAMES if name not in frame.columns]
    if missing:
        raise ValueError(f"not a bwprof frame: column {', '.join(missing)} is missing")
    names = [schema.clean(str(name)) for name in frame.columns]
    twice = sorted(name for name, count in Counter(names).items() if count > 1 or not name)
    if twice:
        raise ValueError(f"columns must have names of their own: '{twice[0]}' is none, or there twice")
    rows = []
    for record in frame.set_axis(names, axis=1).to_dict(orient="records"):
        row = schema.normalise_row({str(name): value for name, value in record.items()})
        row["precision"] = schema.precision_text(row["precision"] or "")
        row["case"] = row["case"] or row["operation"]
        if row["status"] is None:
            row["status"] = "ok" if row["time_ms"] is not None else "failed"
        rows.append(row)
    return rows


def compared_rows(data: pd.DataFrame | Any) -> list[Row]:
    """Rows of a frame with the comparison columns filled where they are empty."""
    rows = to_rows(data)
    kept = [{name: row[name] for name in schema.COMPARISON_NAMES} for row in rows]
    compare.fill(rows)
    for row, before in zip(rows, kept, strict=True):
        row.update({name: value for name, value in before.items() if value is not None})
    return rows
