"""Load what a comparison takes as a side: files, folders, frames, rows or baselines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.records import baselines
from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.results import reader
from bwprof.results.schema import RowDict
from bwprof.text.formatting import to_pandas
from bwprof.text.parsing import check_mapping, quote_text, repr_short

PREFIX = "baseline:"


def make_source(
    name: str,
    rows: Sequence[RowDict],
    samples: Sequence[Sequence[float] | None] | None = None,
    run: Mapping[str, Any] | None = None,
) -> Baseline:
    """Make a side of a run: each row is a case of its own, and no processes are known.

    `samples` are each row's raw samples, ns per launch; None where they are not known.
    """
    listed = [None if values is None else list(values) for values in samples or [None] * len(rows)]
    cases = tuple(BaselineCase((row,), (values,)) for row, values in zip(rows, listed, strict=True))
    return Baseline(name, cases, run or {})


def load_source(source: Any, *, folder: str | PathLike[str] | None = None, name: str = "") -> Baseline:
    """Load the rows of a source, as `bwprof.compare` takes it; `folder` has the baselines.

    `name` replaces the source's name in tables. A missing file or baseline raises FileNotFoundError, an unreadable or
    empty one ValueError, anything else TypeError.
    """
    if isinstance(source, (str, PathLike)):
        loaded = _load_text(str(source), folder)
    elif isinstance(source, Baseline):
        loaded = source
    else:
        loaded = _load_frame(source)
    if not loaded.cases:
        raise ValueError(f"{name or loaded.name} is empty: it holds no rows")
    return replace(loaded, name=name) if name else loaded


def _load_frame(source: Any) -> Baseline:
    from bwprof.results import frame

    source = to_pandas(source)
    is_frame = type(source).__name__ == "DataFrame"
    if not is_frame and not isinstance(source, Iterable):
        raise TypeError(
            f"{repr_short(source)} holds no rows: a run folder, a result file, a baseline, a frame or rows are needed"
        )
    data = source if is_frame else frame.frame(source)
    rows = frame.to_rows(data)
    run = dict(check_mapping(data.attrs.get("run"), "the frame's attrs['run']"))
    return make_source(str(run.get("run_id") or "frame"), rows, frame.samples_of(data, rows), run)


def _load_text(text: str, folder: str | PathLike[str] | None) -> Baseline:
    if not text:
        raise ValueError("'' is given: a run folder, a result file or a baseline is needed")
    if text.startswith(PREFIX):
        return baselines.load_baseline(text.removeprefix(PREFIX), folder=folder)
    path = Path(text)
    if is_baseline(path):
        return baselines.read_baseline(path)
    if path.exists():
        return _load_run(text)
    try:
        baselines.baseline_path(text, folder)
    except ValueError:  # it has a slash, say
        raise FileNotFoundError(f"no such file or folder: {quote_text(text)}") from None
    try:
        return baselines.load_baseline(text, folder=folder)
    except FileNotFoundError as error:
        if reader.find_recorded(path).exists():
            return _load_run(text)
        raise FileNotFoundError(f"no such file or folder: {quote_text(text)}; {error}") from None


def _load_run(text: str) -> Baseline:
    rows, samples, run = reader.read_rows(Path(text))
    reader.warn_of_unfinished(Path(text), run)
    return make_source(text, rows, samples, run)


def is_baseline(path: Path) -> bool:
    """Return whether the first bytes of a file, which may be damaged, are a baseline's."""
    if not path.is_file():  # a pipe would lose its first lines
        return False
    try:
        with path.open("rb") as stream:
            return json.dumps(baselines.FORMAT).encode() in stream.read(200)
    except OSError:  # reading it raises the same error
        return False
