"""Convert rows to a DataFrame with fixed types, and back: `bwprof.columns`, `frame`, `rows`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bwprof import registry
from bwprof.results import columns as results_columns
from bwprof.results import pairs, schema
from bwprof.results.csv_file import quoted_formula
from bwprof.results.row import Row, RunMetadata, Samples
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import require_frame, to_pandas
from bwprof.text.parsing import list_items, repr_short

SAMPLES = schema.SAMPLES


def from_rows(
    rows: Iterable[RowDict], run: Mapping[str, Any] | None = None, samples: Samples | None = None
) -> pd.DataFrame:
    """A frame with every column of the schema, in its order and type; `attrs` hold the run's metadata, read-only.

    Whatever else the rows have (a caller's labels) follows in columns of pandas' own choice. Raw samples (ns per
    launch, a list per row) are not in the frame, but `bwprof.save` knows them.
    """
    listed = list(rows)
    data: dict[str, Any] = {
        column.name: _column(
            [schema.parse_cell(column.name, row.get(column.name), column.kind) for row in listed], column.kind
        )
        for column in results_columns.all_columns()
    }
    more = schema.extra_names(listed)
    data |= {schema.clean_text(name): _series([schema.clean_value(row.get(name)) for row in listed]) for name in more}
    frame = pd.DataFrame(data, index=pd.RangeIndex(len(listed)))
    known = RunMetadata.of(run or {}, map(_as_read, listed), samples) if samples is not None else RunMetadata(run or {})
    frame.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": known}
    return frame


def from_columns(data: Mapping[str, Any], count: int, run: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """The frame of `count` rows that `from_rows` would make, from whole columns: quick for a million of them.

    A column is one value for every row, an array, or absent. Integers may not be missing in an array, numbers may be
    NaN, texts None.
    """
    same: dict[tuple[results_columns.ValueKind, Any], Any] = {}
    index = pd.RangeIndex(count)
    columns: dict[str, Any] = {}
    for column in results_columns.all_columns():
        value = data.get(column.name)
        if isinstance(value, np.ndarray):
            columns[column.name] = _whole_column(value, column.kind)
        else:
            key = (column.kind, value)
            if key not in same:
                even = _even_column(value, column.kind, count)
                same[key] = pd.Series(even, index=index, copy=False) if _COPIES_ON_WRITE else even
            columns[column.name] = same[key]
    # Columns that are all alike share their memory where pandas copies what is written to, which it knows of Series.
    frame = pd.DataFrame(columns, index=index, copy=not _COPIES_ON_WRITE)
    frame.attrs = {"schema_version": schema.SCHEMA_VERSION, "run": RunMetadata(run or {})}
    return frame


_COPIES_ON_WRITE = int(pd.__version__.split(".")[0]) >= 3

# The type itself: pandas would look for it in its registry for each column.
_TEXT = pd.StringDtype()


def _column(values: list[Any], kind: results_columns.ValueKind) -> Any:
    """Values as rows hold them, as a column of their kind is stored: a Series for each would take ten times as long."""
    if kind == "number":
        return np.array([math.nan if value is None else value for value in values], dtype=float)
    if kind == "text":
        return pd.array(values, dtype=_TEXT)
    known = np.array([value or 0 for value in values], dtype=np.int64 if kind == "integer" else bool)
    return _masked(known, np.array([value is None for value in values], dtype=bool))


def _masked(values: Any, missing: Any) -> Any:
    """Whole numbers, or truth, of which some are missing."""
    return (pd.arrays.BooleanArray if values.dtype == bool else pd.arrays.IntegerArray)(values, missing)


def _whole_column(values: Any, kind: results_columns.ValueKind) -> Any:
    """An array as a column of its kind is stored."""
    if kind == "number":
        return values.astype(float)
    if kind == "text":
        return pd.array(values, dtype=_TEXT)
    return _masked(values.astype(np.int64 if kind == "integer" else bool), np.zeros(len(values), dtype=bool))


def _even_column(value: Any, kind: results_columns.ValueKind, count: int) -> Any:
    """A column that has one value everywhere; None is what nobody knows."""
    if kind == "number":
        return np.full(count, np.nan if value is None else float(value))
    if kind == "text":
        texts = np.empty(count, dtype=object)
        texts.fill(pd.NA if value is None else str(value))  # np.full takes twenty times as long
        return pd.array(texts, dtype=_TEXT)
    known = np.full(count, value or 0, dtype=np.int64 if kind == "integer" else bool)
    return _masked(known, np.full(count, value is None))


def _series(values: list[Any]) -> pd.Series[Any]:
    """A column of pandas' own choice, unless that is one of floats that cannot hold the whole numbers."""
    large = any(type(value) is int and abs(value) > 2**53 for value in values)
    return pd.Series(values, dtype=object if large else None)


def with_samples(frame: pd.DataFrame, samples: Sequence[Sequence[float] | None]) -> pd.DataFrame:
    """The frame with its raw samples in a last column of lists, ns per launch; None where a row has none."""
    frame[SAMPLES] = pd.Series([None if values is None else list(values) for values in samples], dtype=object)
    return frame


def format_csv(frame: pd.DataFrame) -> str:
    """Return any frame as CSV, without formulas. NumPy 1.24.0 warns of each NaN that becomes text."""
    safe = frame.rename(columns=lambda name: _without_formula(str(name)))
    for place, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(dtype):
            safe.isetitem(place, frame.iloc[:, place].astype(object).map(_without_formula).to_numpy())
    with np.errstate(invalid="ignore"):
        return safe.to_csv(index=False)


def _without_formula(value: Any) -> Any:
    return quoted_formula(schema.clean_text(value)) if isinstance(value, str) else value


def samples_of(frame: pd.DataFrame, rows: Sequence[RowDict]) -> list[Sequence[float] | None]:
    """Each row's raw samples: of the frame's own column of them, else those that its run remembers.

    Raises
    ------
    ValueError
        For a column of that name that holds something else.
    """
    if SAMPLES in frame.columns:
        return [checked_samples(values) for values in frame[SAMPLES]]
    run = frame.attrs.get("run")
    return run.samples_of(rows) if isinstance(run, RunMetadata) else [None] * len(rows)


def checked_samples(values: Any) -> list[float] | None:
    """A row's raw samples, None where it has none; ValueError for what is no list of times."""
    if values is None or (isinstance(values, float) and math.isnan(values)) or values is pd.NA:
        return None
    try:
        found = [float(value) for value in values]
    except (TypeError, ValueError):
        found = [-1.0]
    if isinstance(values, (str, bytes)) or not all(0 <= value < math.inf for value in found):
        raise ValueError(f"column {SAMPLES} holds {repr_short(values)}: a list of times in ns is needed, or None")
    return found


def to_rows(data: Any) -> list[RowDict]:
    """The rows of a frame, also of one that has only the nine classic columns; without their raw samples.

    Raises
    ------
    ValueError
        When a classic column is missing, or two columns have one name.
    """
    frame = require_frame(data)
    missing = [name for name in results_columns.CLASSIC_NAMES if name not in frame.columns]
    if missing:
        raise ValueError(f"not a bwprof frame: column {', '.join(missing)} is missing")
    if SAMPLES in frame.columns:
        frame = frame.drop(columns=SAMPLES)
    names = [schema.clean_text(str(name)) for name in frame.columns]
    twice = sorted(name for name, count in Counter(names).items() if count > 1 or not name)
    if twice:
        raise ValueError(f"columns must have names of their own: '{twice[0]}' is none, or there twice")
    rows = []
    for record in _records(frame, names):
        row = _as_read(record)
        if row["status"] is None:
            row["status"] = "ok" if row["time_ms"] is not None else "failed"
        rows.append(row)
    return rows


_ROWS_AT_ONCE = 10_000  # whose values are there twice while they become rows


def _records(frame: pd.DataFrame, columns: list[str]) -> Iterator[RowDict]:
    """What `schema.normalise_row` makes of each row, by columns of one array: a Series for each takes longer."""
    kinds = schema.column_kinds()
    places = {name: place for place, name in enumerate(columns)}
    known = {name for name, dtype in zip(columns, map(str, frame.dtypes), strict=True) if dtype == _dtype(name)}
    own = [name for name in columns if name not in kinds]
    names = [*kinds, *own]
    for start in range(0, len(frame), _ROWS_AT_ONCE):
        values = frame.iloc[start : start + _ROWS_AT_ONCE].to_numpy(dtype=object)
        nothing = [None] * len(values)
        found = [
            _plain(values[:, places[name]].tolist(), name, kind, known=name in known) if name in places else nothing
            for name, kind in kinds.items()
        ]
        found += [[schema.clean_value(value) for value in values[:, places[name]]] for name in own]
        yield from (dict(zip(names, row, strict=True)) for row in zip(*found, strict=True))


def _dtype(name: str) -> str | None:
    """The type of a column of the schema as it calls itself (pandas' `str` equals "string"), None for another."""
    kind = schema.column_kinds().get(name)
    return kind and schema.DTYPES[kind]


def _plain(found: list[Any], name: str, kind: results_columns.ValueKind, *, known: bool) -> list[Any]:
    """A column's values as rows hold them; those of the kind's own type need no look at each."""
    if not known:
        return [schema.parse_cell(name, value, kind) for value in found]
    if kind == "number":
        least, most, zero = schema.range_of(name)
        return [value + 0.0 if least <= value <= most or value == zero else None for value in found]
    if kind == "text":
        missing = formatting.is_missing  # some of pandas' types of text say NaN
        cleaned = {value: None if missing(value) else schema.clean_text(value) for value in dict.fromkeys(found)}
        return [cleaned[value] for value in found]
    if kind == "integer":
        return [None if value is pd.NA or value < 0 else value for value in found]
    return [None if value is pd.NA else value for value in found]


def _as_read(row: RowDict) -> RowDict:
    """The same row with what every row of a file has: a precision, if only "", and a case, if only the operation, that
    tells its lengths.
    """
    precision = registry.precision_name(row.get("precision") or "")
    case = row.get("case") or row.get("operation")
    return row | {"precision": precision, "case": case and registry.case_name(case, row.get("kv_lens"))}


def rows_with_comparisons(data: pd.DataFrame | Any) -> list[RowDict]:
    """Rows of a frame with the comparison columns filled where they are empty."""
    rows = to_rows(data)
    kept = [{name: row[name] for name in results_columns.COMPARISON_NAMES} for row in rows]
    pairs.fill_comparisons(rows)
    for row, before in zip(rows, kept, strict=True):
        row.update({name: value for name, value in before.items() if value is not None})
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
    facts = results_columns.COLUMN_FACTS
    return pd.DataFrame(
        [[getattr(column, name) for name in facts] for column in results_columns.all_columns()], columns=list(facts)
    )


def frame(rows: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of `bwprof.measure`, `bwprof.Case.measure` or your own, as a frame like a sweep's.

    Parameters
    ----------
    rows : iterable of Row, or one
        Any mappings with columns of `bwprof.columns()` and labels of your own will do. A label that holds several
        values (a list, a dict, an array) is JSON's text in the frame, as it is when a file is read.

    Returns
    -------
    pandas.DataFrame
        One row each, with every column; `bwprof.save` keeps the rows' raw samples as long as `attrs` hold them.

    Raises
    ------
    TypeError
        For what is no mapping.
    ValueError
        For a value that its column cannot hold, and `samples_ns` that are no times.

    Examples
    --------
    >>> import bwprof
    >>> row = bwprof.measure(lambda: sum(range(100)), name="sum", M=2, device="cpu", cache="hot", max_seconds=0.05)
    >>> bwprof.frame([row])["M"].tolist()
    [2]
    """

    given = [rows] if isinstance(rows, Mapping) else list_items(rows, "rows", "rows are needed")
    for row in given:
        if not isinstance(row, Mapping):
            raise TypeError(f"{repr_short(row)} is no row: bwprof.Row or another mapping is needed")
        for name in row:
            if not isinstance(name, str):
                raise TypeError(f"a column is called {repr_short(name)}: a str is needed")
    own = [getattr(row, SAMPLES, None) or row.get(SAMPLES) for row in given]
    samples = [checked_samples(values) for values in own]
    whole = [{name: value for name, value in row.items() if name != SAMPLES} for row in given]
    return from_rows(map(schema.normalise_row, whole), None, samples)


def rows(data: pd.DataFrame) -> list[Row]:
    """A frame's rows, one `bwprof.Row` each, with their raw samples where the frame knows them.

    The inverse of `frame`. None stands for what is missing.

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
    found = to_rows(data)
    return [Row(row, values or ()) for row, values in zip(found, samples_of(data, found), strict=True)]
