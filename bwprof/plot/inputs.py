"""Data of pictures: frames, rows, and what legends and titles report of rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bwprof.results import schema
from bwprof.results.reader import load
from bwprof.results.schema import RowDict
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import check_frame, describe_unknown, measured_or_none, parse_name, repr_short

if TYPE_CHECKING:
    import pandas as pd


def read_frame(data: Any) -> pd.DataFrame:
    """Return the frame of a frame, an object with the attribute `frame`, a path to results, a row, or rows."""
    import pandas as pd

    data = to_pandas(data)
    if isinstance(data, pd.DataFrame):
        check_frame(data)
        return data
    if isinstance(data, (str, os.PathLike)):
        return load(data)
    if isinstance(getattr(data, "frame", None), pd.DataFrame):
        return read_frame(data.frame)
    rows = [data] if isinstance(data, Mapping) else data
    if not isinstance(rows, (list, tuple)) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(f"data is {repr_short(data)}: a frame is needed, a run's folder, a file of results, or rows")
    from bwprof.results.frame import frame

    for name in ("operation", "precision") if rows else ():
        if not any(row.get(name) for row in rows):
            raise ValueError(f"the rows have no column {name}")
    return frame(rows)


def read_rows(data: Any) -> tuple[list[RowDict], pd.DataFrame]:
    """Return rows with their limits and their comparison with FP32, and the frame.

    A shape of several steps of a model is one row.
    """
    from bwprof.analysis.values import drop_repeated_shapes
    from bwprof.results.frame import rows_with_comparisons
    from bwprof.roofs.limiter import with_limits

    frame = drop_repeated_shapes(read_frame(data))
    return rows_with_comparisons(with_limits(frame)), frame


def is_drawable(row: Mapping[str, Any]) -> bool:
    """Return whether a row has a time: measured or predicted."""
    return row.get("status") in ("ok", "predicted")


def is_predicted(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a prediction."""
    return bool(row.get("status") == "predicted")


def is_doubtful(row: Mapping[str, Any]) -> bool:
    """Return whether a row has flags or a wrong result."""
    return bool(row.get("flags")) or row.get("verified") is False


def is_hollow(row: Mapping[str, Any]) -> bool:
    """Return whether a row's mark is hollow: doubtful or predicted."""
    return is_doubtful(row) or is_predicted(row)


def note_rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the title's notes on rows: how many have no time, and whether nobody checked the results."""
    rows = list(rows)
    states = Counter(str(row.get("status")) for row in rows if row.get("status") and not is_drawable(row))
    notes = [f"not drawn: {' and '.join(f'{count} {name}' for name, count in states.items())}"] if states else []
    measured = [row for row in rows if row.get("status") == "ok"]
    unchecked = bool(measured) and all(row.get("verified") is None and not row.get("flags") for row in measured)
    return [*notes, "results not checked"] if unchecked else notes


def require_numbers(rows: Iterable[RowDict], *names: str) -> list[RowDict]:
    """Return the rows with numbers in all these columns; raise ValueError with the column that none has."""
    rows = list(rows)
    if not rows:
        raise ValueError("there are no rows to draw")
    for name in names:
        rows = [row for row in rows if measured_or_none(row.get(name)) is not None]
        if not rows:
            raise ValueError(f"there is nothing to draw: no row has a number in column {name}")
    return rows


def require_columns(data: Any, *names: str, what: str) -> pd.DataFrame:
    """Return a frame; raise TypeError for anything else, ValueError for missing or repeated columns."""
    import pandas as pd

    frame = to_pandas(data)
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"data is {repr_short(frame)}: a frame is needed, {what}")
    check_frame(frame)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"not {what}: column {', '.join(missing)} is missing")
    return frame


def check_column(argument: str, name: str) -> None:
    """Raise ValueError for what is no column of numbers, with the nearest right name."""
    known = [column.name for column in schema.all_columns() if column.kind in ("number", "integer")]
    if parse_name(name, argument) not in known:
        raise ValueError(f"{argument}: {describe_unknown('column of numbers', name, known, see='bwprof columns')}")


def device_facts(frame: pd.DataFrame) -> Mapping[str, Any]:
    """Return the facts on the device in a frame's metadata; {} where there are none."""
    run = frame.attrs.get("run")
    facts = run.get("facts") if isinstance(run, Mapping) else None
    return facts if isinstance(facts, Mapping) else {}


def device_names(rows: Iterable[RowDict]) -> list[str]:
    """Return the devices of rows, each once."""
    return list(dict.fromkeys(str(row["device"]) for row in rows if row.get("device")))
