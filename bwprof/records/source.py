"""Load rows with their raw samples and metadata from files, folders, frames, rows or baselines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import compress
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.records import baselines
from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.results import reader
from bwprof.results.schema import RowDict
from bwprof.text.formatting import plural, to_pandas
from bwprof.text.parsing import check_mapping, quote_text, repr_short

PREFIX = "baseline:"


@dataclass(frozen=True, slots=True)
class Source:
    """Rows with what belongs to each of them.

    Attributes
    ----------
    name : str
        Its name in tables.
    rows : list of dict
        Complete rows of the schema.
    samples : list
        Each row's raw samples, ns per launch; None where they are not known.
    run : dict
        The run's metadata.
    process_ms : list of tuple
        For each row of a baseline the median times, ms, of the processes that measured its case; () for each row of a
        run.
    cases, processes : tuple
        All rows of each case of a baseline, or of several runs; of a baseline also each process's run_id, started and
        finished.
    """

    name: str
    rows: list[RowDict]
    samples: list[list[float] | None] = field(default_factory=list)
    run: Mapping[str, Any] = field(default_factory=dict)
    process_ms: list[tuple[float, ...]] = field(default_factory=list)
    cases: tuple[BaselineCase, ...] = ()
    processes: tuple[Mapping[str, Any], ...] = ()

    def only(self, patterns: Sequence[str]) -> Source:
        """Select the rows whose case or operation matches one of the patterns."""
        matches = [
            any(fnmatchcase(str(row[name]), pattern) for name in ("case", "operation") for pattern in patterns)
            for row in self.rows
        ]
        if not any(matches):
            rows = f"{plural(len(matches), 'row')} of {quote_text(self.name)}"
            raise ValueError(f"--only '{quote_text(','.join(patterns))}': none is left of {rows}")
        return replace(
            self,
            rows=list(compress(self.rows, matches)),
            samples=list(compress(self.samples, matches)),
            process_ms=list(compress(self.process_ms, matches)),
            cases=tuple(compress(self.cases, matches)),
        )


def load_source(source: Any, *, folder: str | PathLike[str] | None = None, name: str = "") -> Source:
    """Load the rows of a source, as `bwprof.compare` takes it; `folder` has the baselines.

    `name` replaces the file's name in tables. A missing file or baseline raises FileNotFoundError, an unreadable or
    empty one ValueError, anything else TypeError.
    """
    if isinstance(source, Source):
        return source
    loaded = _load(source, folder, name)
    if not loaded.rows:
        raise ValueError(f"{loaded.name} is empty: it holds no rows")
    return loaded


def _load(source: Any, folder: str | PathLike[str] | None, name: str) -> Source:
    if isinstance(source, Baseline):
        return _from_baseline(source, name)
    if isinstance(source, (str, PathLike)):
        return _from_text(str(source), folder, name)
    source = to_pandas(source)
    if type(source).__name__ != "DataFrame" and not isinstance(source, Iterable):
        raise TypeError(
            f"{repr_short(source)} holds no rows: a run folder, a result file, a baseline, a frame or rows are needed"
        )
    from bwprof.results import frame

    data = source if type(source).__name__ == "DataFrame" else frame.frame(source)
    rows = frame.to_rows(data)
    run = dict(check_mapping(data.attrs.get("run"), "the frame's attrs['run']"))
    samples = [None if values is None else list(values) for values in frame.samples_of(data, rows)]
    return Source(name or str(run.get("run_id") or "frame"), rows, samples, run, [()] * len(rows))


def _from_text(text: str, folder: str | PathLike[str] | None, name: str) -> Source:
    if not text:
        raise ValueError("'' is given: a run folder, a result file or a baseline is needed")
    if text.startswith(PREFIX):
        return _from_baseline(baselines.load_baseline(text.removeprefix(PREFIX), folder=folder), name)
    path = Path(text)
    if is_baseline(path):
        return _from_baseline(baselines.read_baseline(path), name)
    return _from_run(path, name or text) if path.exists() else _from_name(text, folder, name)


def _from_run(path: Path, name: str) -> Source:
    rows, samples, run = reader.read_rows(path)
    reader.warn_of_unfinished(path, run)
    return Source(name, rows, samples, run, [()] * len(rows))


def _from_name(text: str, folder: str | PathLike[str] | None, name: str) -> Source:
    """Load the baseline, or the recorded run, of that name."""
    try:
        baselines.baseline_path(text, folder)
    except ValueError:  # it has a slash, say
        raise FileNotFoundError(f"no such file or folder: {quote_text(text)}") from None
    try:
        return _from_baseline(baselines.load_baseline(text, folder=folder), name)
    except FileNotFoundError as error:
        if reader.find_recorded(Path(text)).exists():
            return _from_run(Path(text), name or text)
        raise FileNotFoundError(f"no such file or folder: {quote_text(text)}; {error}") from None


def is_baseline(path: Path) -> bool:
    """Return whether the first bytes of a file, which may be damaged, are a baseline's."""
    if not path.is_file():  # a pipe would lose its first lines
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(200)
    except OSError:  # reading it raises the same error
        return False
    return json.dumps(baselines.FORMAT).encode() in head


def _from_baseline(baseline: Baseline, name: str) -> Source:
    return Source(
        name or baseline.name,
        baseline.rows,
        baseline.samples,
        baseline.run,
        baseline.process_ms,
        baseline.cases,
        baseline.processes,
    )
