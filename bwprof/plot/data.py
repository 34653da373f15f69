"""What pictures are asked to draw: a frame, a run's folder or file, rows. Here it becomes a frame."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bwprof.results import columns
from bwprof.results.reader import load
from bwprof.results.schema import RowDict
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import check_frame, measured_or_none, repr_short

if TYPE_CHECKING:
    import pandas as pd

_LEAST = ("operation", "precision")  # what rows made by hand cannot do without


def frame_of(data: Any) -> pd.DataFrame:
    """A frame of a frame, of whatever has one (`frame`), of a path to results, of a row, or of rows.

    Raises
    ------
    TypeError
        For anything else.
    FileNotFoundError, ValueError
        For a path without results; rows that lack what every row needs.
    """
    import pandas as pd

    data = to_pandas(data)
    if isinstance(data, pd.DataFrame):
        check_frame(data)
        return data
    if isinstance(data, (str, os.PathLike)):
        return load(data)
    if isinstance(getattr(data, "frame", None), pd.DataFrame):
        return frame_of(data.frame)
    rows = [data] if isinstance(data, Mapping) else data
    if not isinstance(rows, (list, tuple)) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(f"data is {repr_short(data)}: a frame is needed, a run's folder, a file of results, or rows")
    from bwprof.results.frame import frame

    for name in _LEAST if rows else ():
        if not any(row.get(name) for row in rows):
            raise ValueError(f"the rows have no column {name}")
    return frame(rows)


def rows_of(data: Any) -> tuple[list[RowDict], pd.DataFrame]:
    """The rows of what was given, their limits and their comparison with FP32 filled in, and the frame.

    A shape that stands in several of a model's steps is there once.
    """
    from bwprof.analysis.values import drop_repeated_shapes
    from bwprof.results.frame import rows_with_comparisons
    from bwprof.roofs.limiter import with_limits

    frame = drop_repeated_shapes(frame_of(data))
    return rows_with_comparisons(with_limits(frame)), frame


def predicted(row: Mapping[str, Any]) -> bool:
    """Whether nobody has measured a row."""
    return bool(row.get("status") == "predicted")


def doubted(row: Mapping[str, Any]) -> bool:
    """Whether a row has flags, or its result is not right."""
    return bool(row.get("flags")) or row.get("verified") is False


def hollow(row: Mapping[str, Any]) -> bool:
    """Whether a row's mark has no filling: it is doubted or only predicted."""
    return doubted(row) or predicted(row)


def remarks(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a title says of rows: those without a time, which are not drawn, and that nobody checked the others."""
    found = list(rows)
    states = Counter(str(row.get("status")) for row in found if row.get("status") not in (None, "ok", "predicted"))
    said = [f"not drawn: {' and '.join(f'{count} {name}' for name, count in states.items())}"] if states else []
    measured = [row for row in found if row.get("status") == "ok"]
    unknown = bool(measured) and all(row.get("verified") is None and not row.get("flags") for row in measured)
    return [*said, "results not checked"] if unknown else said


def why_hollow(rows: Iterable[Mapping[str, Any]]) -> str:
    """What a legend says of the marks without a filling; "" where there are none."""
    marked = [row for row in rows if hollow(row)]
    kinds = {"predicted": predicted, "see flags": doubted}
    reasons = [word for word, is_so in kinds.items() if any(map(is_so, marked))]
    return f"hollow: {', or '.join(reasons)}" if reasons else ""


def need(rows: Iterable[RowDict], *names: str) -> list[RowDict]:
    """The rows that have numbers in all these columns; ValueError with the column that none has."""
    found = list(rows)
    if not found:
        raise ValueError("there are no rows to draw")
    for name in names:
        found = [row for row in found if measured_or_none(row.get(name)) is not None]
        if not found:
            raise ValueError(f"there is nothing to draw: no row has a number in column {name}")
    return found


def need_columns(data: Any, *names: str, what: str) -> pd.DataFrame:
    """Take a frame; TypeError for what is none, ValueError for one that lacks a column, or has one twice."""
    import pandas as pd

    frame = to_pandas(data)
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"data is {repr_short(frame)}: a frame is needed, {what}")
    check_frame(frame)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"not {what}: column {', '.join(missing)} is missing")
    return frame


def number_column(name: str, given: str) -> columns.Column:
    """A column with numbers that was asked for; ValueError for another, with the nearest right name."""
    from bwprof.text.parsing import describe_unknown, parse_name

    parse_name(given, name)
    known = {column.name: column for column in columns.all_columns() if column.kind in ("number", "integer")}
    if given not in known:
        raise ValueError(f"{name}: {describe_unknown('column of numbers', given, known, see='bwprof columns')}")
    return known[given]


def facts_of(frame: pd.DataFrame) -> Mapping[str, Any]:
    """What the metadata of a frame's run say of its device; nothing where there are none."""
    run = frame.attrs.get("run")
    found = run.get("facts") if isinstance(run, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def device_of(rows: Iterable[RowDict]) -> list[str]:
    """The devices of rows, each once."""
    return list(dict.fromkeys(str(row["device"]) for row in rows if row.get("device")))
