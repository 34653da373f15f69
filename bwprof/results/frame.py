"""Convert rows to a DataFrame with fixed types, and back: `bwprof.columns`, `frame`, `rows`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bwprof import registry
from bwprof.results import pairs, schema
from bwprof.results.csv_file import quoted_formula
from bwprof.results.row import Row, RunMetadata, Samples
from bwprof.results.schema import RowDict
from bwprof.text.formatting import require_frame, to_pandas
from bwprof.text.parsing import list_items, repr_short

# Instances: pandas would look names up for each column.
_TYPES: dict[schema.ValueKind, Any] = {kind: pd.api.types.pandas_dtype(name) for kind, name in schema.DTYPES.items()}


def from_rows(
    rows: Iterable[RowDict], run: Mapping[str, Any] | None = None, samples: Samples | None = None
) -> pd.DataFrame:
    """Return a frame with every column of the schema, in its order and type.

    `attrs` hold the run's metadata, read-only. Columns of your own follow, in types that pandas chooses. Raw samples
    (ns per launch, a list per row) are not in the frame, but `bwprof.save` writes them.
    """
    listed = [schema.normalize_row(row) for row in rows]
    data = {column.name: _column([row[column.name] for row in listed], column.kind) for column in schema.all_columns()}
    for name in schema.extra_names(listed):
        values = [row.get(name) for row in listed]
        large = any(type(value) is int and abs(value) > 2**53 for value in values)  # a float would change it
        data[name] = pd.Series(values, dtype=object if large else None)
    frame = pd.DataFrame(data, index=pd.RangeIndex(len(listed)))
    metadata = RunMetadata(run or {})
    if samples is not None:
        metadata = RunMetadata.of(metadata, map(_as_read, listed), samples)
    frame.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": metadata}
    return frame


def from_columns(data: Mapping[str, Any], count: int, run: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return the frame that `from_rows` would make, from whole columns: fast for millions of rows.

    A column is an array, one value for every row, or absent. Integer arrays have no missing values; numbers may be NaN,
    texts None.
    """
    index = pd.RangeIndex(count)
    columns: dict[str, Any] = {}
    constants: dict[tuple[schema.ValueKind, Any], Any] = {}
    for column in schema.all_columns():
        value, dtype = data.get(column.name), _TYPES[column.kind]
        if isinstance(value, np.ndarray):
            columns[column.name] = pd.array(value, dtype=dtype)
            continue
        if (column.kind, value) not in constants:
            constants[column.kind, value] = pd.Series(pd.array([value], dtype=dtype).repeat(count), index=index)
        columns[column.name] = constants[column.kind, value]
    # With copy-on-write, pandas 3, equal columns share their memory.
    frame = pd.DataFrame(columns, index=index, copy=int(pd.__version__.split(".")[0]) < 3)
    frame.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": RunMetadata(run or {})}
    return frame


def _column(values: list[Any], kind: schema.ValueKind) -> Any:
    if kind == "number":
        return np.array([math.nan if value is None else value for value in values], dtype=float)
    if kind == "text":
        return pd.array(values, dtype=_TYPES["text"])
    known = np.array([value or 0 for value in values], dtype=np.int64 if kind == "integer" else bool)
    missing = np.array([value is None for value in values], dtype=bool)
    return (pd.arrays.IntegerArray if kind == "integer" else pd.arrays.BooleanArray)(known, missing)


def format_csv(frame: pd.DataFrame) -> str:
    """Return any frame as CSV text without formulas."""

    def escape(value: Any) -> Any:
        return quoted_formula(schema.clean_text(value)) if isinstance(value, str) else value

    safe = frame.rename(columns=lambda name: escape(str(name)))
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(dtype):
            safe.isetitem(place, frame.iloc[:, place].astype(object).map(escape).to_numpy())
    with np.errstate(invalid="ignore"):  # NumPy 1.24.0 warns of each NaN that becomes text
        return safe.to_csv(index=False)


def samples_of(frame: pd.DataFrame, rows: Sequence[RowDict]) -> list[Sequence[float] | None]:
    """Return each row's raw samples, from the frame's column `samples_ns`, else from its run.

    Raise ValueError for a column of that name that holds something else.
    """
    if schema.SAMPLES in frame.columns:
        return [schema.parse_samples(values) for values in frame[schema.SAMPLES]]
    run = frame.attrs.get("run")
    return run.samples_of(rows) if isinstance(run, RunMetadata) else [None] * len(rows)


def to_rows(data: Any) -> list[RowDict]:
    """Return the rows of a frame, which may have only the nine classic columns, without raw samples.

    Raise ValueError when a classic column is missing, or two columns have one name.
    """
    frame = require_frame(data)
    missing = [name for name in schema.CLASSIC_NAMES if name not in frame.columns]
    if missing:
        raise ValueError(f"not a bwprof frame: column {', '.join(missing)} is missing")
    frame = frame.drop(columns=schema.SAMPLES, errors="ignore")
    frame.attrs = {}  # pandas would copy them for each column
    names = [schema.clean_text(str(name)) for name in frame.columns]
    twice = sorted(name for name, count in Counter(names).items() if count > 1 or not name)
    if twice:
        raise ValueError(f"columns must have names of their own: '{twice[0]}' is none, or there twice")
    columns = {name: _to_values(column, name) for name, (_, column) in zip(names, frame.items(), strict=True)}
    # As `schema.normalize_row` orders them.
    ordered = {name: columns.get(name, [None] * len(frame)) for name in dict.fromkeys((*schema.column_names(), *names))}
    rows = [_as_read(dict(zip(ordered, values, strict=True))) for values in zip(*ordered.values(), strict=True)]
    for row in rows:
        if row["status"] is None:
            row["status"] = "ok" if row["time_ms"] is not None else "failed"
    return rows


def _to_values(column: pd.Series[Any], name: str) -> list[Any]:
    """Convert a column to values of rows; a column of the kind's own type needs fewer checks."""
    values, kind = column.tolist(), schema.column_kinds().get(name)
    if kind is None:
        return [schema.clean_value(value) for value in values]
    if str(column.dtype) != schema.DTYPES[kind]:
        return [schema.parse_cell(name, value, kind) for value in values]
    if kind == "number":
        least, most, zero = schema.range_of(name)
        return [value + 0.0 if least <= value <= most or value == zero else None for value in values]  # no -0.0
    if kind == "text":
        cleaned = {value: schema.clean_value(value) for value in dict.fromkeys(values)}
        return [cleaned[value] for value in values]
    return [None if value is pd.NA or (kind == "integer" and value < 0) else value for value in values]


def _as_read(row: RowDict) -> RowDict:
    """Add what every row of a file has: a precision, if only "", and a case with its lengths."""
    precision = registry.precision_name(row.get("precision") or "")
    case = row.get("case") or row.get("operation")
    return row | {"precision": precision, "case": case and registry.case_name(case, row.get("kv_lens"))}


def rows_with_comparisons(data: pd.DataFrame | Any) -> list[RowDict]:
    """Return the rows of a frame with the empty comparison columns filled."""
    rows = to_rows(data)
    filled = [{name: row[name] for name in schema.COMPARISON_NAMES if row[name] is not None} for row in rows]
    pairs.fill_comparisons(rows)
    for row, known in zip(rows, filled, strict=True):
        row.update(known)
    return rows


def columns() -> pd.DataFrame:
    """Describe the columns of a row.

    Returns
    -------
    pandas.DataFrame
        One row per column, in the order of the files: name, unit ("" for none), group (case, time, work, method, roofs,
        counters, conditions, trust, comparison, provenance, metrics), better ("higher", "lower", or "" where neither
        is), text.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.columns().set_index("name")
    >>> found.loc["time_ms", "unit"], found.loc["bandwidth_gb_s", "better"]
    ('ms', 'higher')
    """
    return pd.DataFrame(schema.all_columns())[list(schema.COLUMN_FACTS)]


def frame(rows: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Make a frame from rows of `bwprof.measure`, `bwprof.Case.measure` or your own, with a sweep's columns.

    Parameters
    ----------
    rows : iterable of Row, or one
        Mappings with columns of `bwprof.columns()` and labels of your own. A label that is a list, a dict or an
        array becomes JSON text.

    Returns
    -------
    pandas.DataFrame
        A line per row, with every column; `bwprof.save` writes the raw samples as long as `attrs` hold them.

    Raises
    ------
    TypeError
        For anything but mappings.
    ValueError
        For a value that its column cannot hold, and `samples_ns` that are not times.

    Examples
    --------
    >>> import bwprof
    >>> row = bwprof.measure(lambda: sum(range(100)), name="sum", M=2, device="cpu", cache="hot", max_seconds=0.05)
    >>> bwprof.frame([row])["M"].tolist()
    [2]
    """
    items = [rows] if isinstance(rows, Mapping) else list_items(rows, "rows", "rows are needed")
    for row in items:
        if not isinstance(row, Mapping):
            raise TypeError(f"{repr_short(row)} is no row: bwprof.Row or another mapping is needed")
        for name in row:
            if not isinstance(name, str):
                raise TypeError(f"a column is called {repr_short(name)}: a str is needed")
    samples = [schema.parse_samples(getattr(row, schema.SAMPLES, None) or row.get(schema.SAMPLES)) for row in items]
    values_of = [{name: value for name, value in row.items() if name != schema.SAMPLES} for row in items]
    return from_rows(values_of, None, samples)


def rows(data: pd.DataFrame) -> list[Row]:
    """Return a frame's rows as `bwprof.Row`, with their raw samples if the frame has them; the inverse of `frame`.

    Raises
    ------
    ValueError
        For a frame without the nine classic columns.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.rows(bwprof.load_example("h200"))
    >>> found[0].case, found[0].precision
    ('stream_read', 'fp32')
    """
    data = to_pandas(data)
    row_dicts = to_rows(data)
    return [Row(row, values or ()) for row, values in zip(row_dicts, samples_of(data, row_dicts), strict=True)]
