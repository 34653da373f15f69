"""What is compared, kept or looked at, from whatever people have of it: rows, raw samples, metadata, learnt wander."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import compress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.records import baselines
from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.results import reader
from bwprof.results.schema import RowDict
from bwprof.text.formatting import plural, to_pandas
from bwprof.text.parsing import check_mapping, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "baseline:"


@dataclass(frozen=True, slots=True)
class Source:
    """Rows with what belongs to each of them.

    Attributes
    ----------
    name : str
        What it is called in a table.
    rows : list of dict
        Whole rows of the schema.
    samples : list
        Each row's raw samples, ns per launch; None where they are not known.
    run : dict
        The run's metadata.
    learnt : list of tuple
        Of each row the medians, in ms, of the processes that measured its case for a baseline; () of a run.
    cases, processes : tuple
        Of a baseline, and of several runs joined: all rows of each case; of a baseline each process's run_id, started
        and finished.
    """

    name: str
    rows: list[RowDict]
    samples: list[list[float] | None] = field(default_factory=list)
    run: Mapping[str, Any] = field(default_factory=dict)
    learnt: list[tuple[float, ...]] = field(default_factory=list)
    cases: tuple[BaselineCase, ...] = ()
    processes: tuple[Mapping[str, Any], ...] = ()

    def only(self, patterns: Sequence[str]) -> Source:
        """Leave the rows whose case, or operation, a pattern matches."""
        left = [
            any(fnmatchcase(str(row[of]), one) for of in ("case", "operation") for one in patterns) for row in self.rows
        ]
        if not any(left):
            rows = f"{plural(len(left), 'row')} of {quote_text(self.name)}"
            raise ValueError(f"--only '{quote_text(','.join(patterns))}': none is left of {rows}")
        return replace(
            self,
            rows=list(compress(self.rows, left)),
            samples=list(compress(self.samples, left)),
            learnt=list(compress(self.learnt, left)),
            cases=tuple(compress(self.cases, left)),
        )


def load_source(source: Any, *, folder: str | PathLike[str] | None = None, name: str = "") -> Source:
    """What a source holds.

    Parameters
    ----------
    source : str, path, pandas.DataFrame, row, iterable of rows, or Baseline
        A run folder, or one with a single run in it, a .json or .csv file of results, a baseline's file,
        "baseline:NAME"; a text that is no file's name is a baseline's, too. A frame of `bwprof.sweep` or `bwprof.load`,
        and rows of `bwprof.measure`.
    folder : path, optional
        Where baselines are.
    name : str
        What to call it, instead of its file's name.

    Raises
    ------
    FileNotFoundError
        When there is no such file, and no such baseline.
    ValueError
        When it cannot be read, or holds no rows.
    TypeError
        For anything else.
    """
    if isinstance(source, Source):
        return source
    found = _found(source, folder, name)
    if not found.rows:
        raise ValueError(f"{found.name} is empty: it holds no rows")
    return found


def _found(source: Any, folder: str | PathLike[str] | None, name: str) -> Source:
    if isinstance(source, Baseline):
        return _of_baseline(source, name or source.name)
    if isinstance(source, (str, PathLike)):
        return _of_text(source, folder, name)
    source = to_pandas(source)
    if type(source).__name__ == "DataFrame":
        return _of_frame(source, name)
    if isinstance(source, Iterable):
        from bwprof.results import frame

        return _of_frame(frame.frame(source), name)
    raise TypeError(
        f"{repr_short(source)} holds no rows: a run folder, a result file, a baseline, a frame or rows are needed"
    )


def _of_text(source: str | PathLike[str], folder: str | PathLike[str] | None, name: str) -> Source:
    text = str(source)
    if not text:
        raise ValueError("'' is given: a run folder, a result file or a baseline is needed")
    if text.startswith(PREFIX):
        wanted = text.removeprefix(PREFIX)
        return _of_baseline(baselines.load_baseline(wanted, folder=folder), name or wanted)
    path = Path(text)
    if not path.exists():
        return _of_name(text, folder, name)
    if is_baseline(path):
        found = baselines.read_baseline(path)
        return _of_baseline(found, name or found.name)
    return _of_run(path, name or text)


def _of_run(path: Path, name: str) -> Source:
    rows, samples, run = reader.read_rows(path)
    reader.warn_of_unfinished(path, run)
    return Source(name, rows, samples, run, [()] * len(rows))


def _of_name(text: str, folder: str | PathLike[str] | None, name: str) -> Source:
    """A text that is no path's: a baseline's name, or neither."""
    try:
        baselines.baseline_path(text, folder)
    except ValueError:  # it has a slash, say
        raise FileNotFoundError(f"no such file or folder: {quote_text(text)}") from None
    try:
        return _of_baseline(baselines.load_baseline(text, folder=folder), name or text)
    except FileNotFoundError as error:
        if reader.find_recorded(Path(text)).exists():
            return _of_run(Path(text), name or text)
        raise FileNotFoundError(f"no such file or folder: {quote_text(text)}; {error}") from None


def is_baseline(path: Path) -> bool:
    """Whether a file is a baseline by its first lines; a damaged one too."""
    if not path.is_file():  # of a pipe the first lines would be gone
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(200)
    except OSError:  # said when it is read
        return False
    return json.dumps(baselines.FORMAT).encode() in head


def _of_baseline(found: Baseline, name: str) -> Source:
    return Source(name, found.rows, found.samples, found.run, found.process_ms, found.cases, found.processes)


def _of_frame(data: pd.DataFrame, name: str) -> Source:
    from bwprof.results import frame

    rows = frame.to_rows(data)
    run = dict(check_mapping(data.attrs.get("run"), "the frame's attrs['run']"))
    samples = [None if values is None else list(values) for values in frame.samples_of(data, rows)]
    return Source(name or str(run.get("run_id") or "frame"), rows, samples, run, [()] * len(rows))
