"""Columns and rows as frames, and back: `bwprof.columns`, `bwprof.frame`, `bwprof.rows`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bwprof.results import schema
from bwprof.results.row import Row
from bwprof.text import as_pandas, listed, shown

if TYPE_CHECKING:
    import pandas as pd


TOLD = ("name", "unit", "group", "better", "text")  # of each column


def columns() -> pd.DataFrame:
    """What the columns of a row are.

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
    import pandas as pd

    return pd.DataFrame([[getattr(column, name) for name in TOLD] for column in schema.columns()], columns=list(TOLD))


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
    from bwprof.results import frame as frames

    given = [rows] if isinstance(rows, Mapping) else listed(rows, "rows", "rows are needed")
    for row in given:
        if not isinstance(row, Mapping):
            raise TypeError(f"{shown(row)} is no row: bwprof.Row or another mapping is needed")
        for name in row:
            if not isinstance(name, str):
                raise TypeError(f"a column is called {shown(name)}: a str is needed")
    own = [getattr(row, frames.SAMPLES, None) or row.get(frames.SAMPLES) for row in given]
    samples = [frames.checked_samples(values) for values in own]
    whole = [{name: value for name, value in row.items() if name != frames.SAMPLES} for row in given]
    return frames.from_rows(map(schema.normalise_row, whole), None, samples)


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
    from bwprof.results import frame as frames

    data = as_pandas(data)
    found = frames.to_rows(data)
    return [Row(row, values or ()) for row, values in zip(found, frames.samples_of(data, found), strict=True)]
