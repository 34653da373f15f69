"""Results: the row and its schema, frames, CSV and JSON files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from bwprof.results.schema import Row

__all__ = ["load", "load_samples", "read_rows", "save"]

JSON_NAME = "results.json"
CSV_NAME = "results.csv"


def load(path: str | PathLike[str]) -> pd.DataFrame:
    """Read results.

    Parameters
    ----------
    path : path
        A run folder, a .json or .csv file of ours, or a CSV that has only the nine classic columns (precisions in
        any case: FP32, fp16, ...).

    Returns
    -------
    pandas.DataFrame
        One row per case, with every column of the schema; ``attrs["run"]`` holds the run's metadata where the file
        has it.

    Raises
    ------
    FileNotFoundError
        When there is no such file, or no results in the folder.
    ValueError
        When it is not a result file, or a later bwprof wrote it.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "old.csv"
    >>> header = "operation,precision,M,N,K,time_ms,bandwidth_gb_s,bytes_read,bytes_written"
    >>> _ = path.write_text(header + "\\ndecode,FP16,1,896,896,0.004,402.3,1607424,1792\\n")
    >>> bwprof.load(path)["precision"].tolist()
    ['fp16']
    """
    from bwprof.results import compare, frame

    rows, _, run = read_rows(Path(path))
    if all(row["speedup_vs_fp32"] is None for row in rows):
        compare.fill(rows)
    return frame.from_rows(rows, run)


def load_samples(path: str | PathLike[str]) -> list[list[float] | None]:
    """Raw samples (ns per launch), one list per row of `load(path)`; None where a row has none.

    Raises
    ------
    ValueError
        When the file is not a JSON result file or a run folder.
    """
    found = Path(path)
    if found.is_file() and found.suffix.lower() == ".csv":
        raise ValueError(f"{path} keeps no raw samples: they are in the JSON file")
    return read_rows(found)[1]


def read_rows(path: Path) -> tuple[list[Row], list[list[float] | None], dict[str, Any]]:
    """Rows, raw samples and metadata of a run folder, a JSON or a CSV file."""
    from bwprof.results import csvfile, jsonfile

    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.suffix.lower() == ".json":
        return jsonfile.read(path)
    rows = csvfile.read(path)
    return rows, [None] * len(rows), {}


def _read_folder(folder: Path) -> tuple[list[Row], list[list[float] | None], dict[str, Any]]:
    """The JSON file, and rows that only the CSV file had time to get."""
    from bwprof.results import csvfile, jsonfile

    rows: list[Row] = []
    samples: list[list[float] | None] = []
    run: dict[str, Any] = {}
    if (folder / JSON_NAME).exists():
        rows, samples, run = jsonfile.read(folder / JSON_NAME)
    elif not (folder / CSV_NAME).exists():
        raise FileNotFoundError(f"{folder} holds neither {JSON_NAME} nor {CSV_NAME}")
    if (folder / CSV_NAME).exists():
        seen = {_identity(row) for row in rows}
        for row in csvfile.read(folder / CSV_NAME):
            if _identity(row) not in seen:
                rows.append(row)
                samples.append(None)
    return rows, samples, run


def _identity(row: Row) -> tuple[object, ...]:
    from bwprof.results import compare

    return (*compare.configuration(row), row["precision"], row["variant"], row["timestamp"])


def save(data: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write a frame of results as .csv or .json, by the path's ending, replacing the file in one step.

    Returns
    -------
    pathlib.Path
        Where it was written.

    Raises
    ------
    ValueError
        For another ending, or a frame without the nine classic columns.
    OSError
        When it cannot be written; an older file is then untouched.
    """
    from bwprof.results import csvfile, frame, jsonfile
    from bwprof.results.files import atomic_write

    target = Path(path)
    rows = frame.to_rows(data)
    if target.suffix.lower() == ".json":
        jsonfile.write(target, rows, [None] * len(rows), data.attrs.get("run", {}))
    elif target.suffix.lower() == ".csv":
        atomic_write(target, csvfile.text(rows))
    else:
        raise ValueError(f"{path}: results are saved as .csv or .json")
    return target
