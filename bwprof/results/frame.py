"""Rows as a pandas DataFrame with fixed types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from bwprof.results import compare, schema
from bwprof.results.schema import Row


def from_rows(rows: Iterable[Row], run: dict[str, Any] | None = None) -> pd.DataFrame:
    """A frame with every column of the schema, in its order and type; `attrs` hold the run's metadata.

    Whatever else the rows have (a caller's labels) follows in columns of pandas' own choice.
    """
    listed = list(rows)
    data: dict[str, Any] = {}
    for column in schema.columns():
        values = [schema.normalise(row.get(column.name), column.kind) for row in listed]
        if column.kind == "number":
            values = [float("nan") if value is None else value for value in values]
        data[column.name] = pd.Series(values, dtype=schema.DTYPES[column.kind])
    more = dict.fromkeys(name for row in listed for name in row if name not in data)
    data |= {name: pd.Series([row.get(name) for row in listed]) for name in more}
    frame = pd.DataFrame(data, columns=[*schema.names(), *more])
    frame.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": dict(run or {})}
    return frame


def to_rows(frame: pd.DataFrame) -> list[Row]:
    """The rows of a frame, also of one that has only the nine classic columns.

    Raises
    ------
    ValueError
        When a classic column is missing.
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"a pandas.DataFrame is needed, not {type(frame).__name__}; bwprof.load reads one from a file")
    missing = [name for name in schema.CLASSIC_NAMES if name not in frame.columns]
    if missing:
        raise ValueError(f"not a bwprof frame: column {', '.join(missing)} is missing")
    rows = []
    for record in frame.to_dict(orient="records"):
        row = schema.normalise_row({str(name): value for name, value in record.items()})
        row["precision"] = str(row["precision"]).strip().lower()
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
