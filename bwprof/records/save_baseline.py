"""Saving a baseline: of runs, files, frames and rows, each run a process."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from bwprof.records import baselines
from bwprof.records.baselines import Baseline, BaselineRun, make_baseline
from bwprof.records.source import Source, load_source
from bwprof.results.pairs import find_disturbances
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import plural
from bwprof.text.parsing import quote_text

_log = logging.getLogger("bwprof.records")


def save_baseline(name: str, *sources: Any, folder: str | PathLike[str] | None = None, force: bool = False) -> Path:
    """Save what later measurements are held against.

    Of several runs, each measured in a process of its own, the baseline learns how far the medians of each case wander
    between processes (`bwprof baseline save NAME --repeat 5` in a shell measures and saves them); of one run nothing.

    Parameters
    ----------
    name : str
        Letters A-Z a-z, digits, '.', '_' and '-'.
    *sources : str, path, pandas.DataFrame, row, iterable of rows, or Baseline
        Run folders, result files, frames of `bwprof.sweep`, rows of `bwprof.measure`; "baseline:NAME" for one that is
        there. Runs of one process (the column `process`; in older files: rows of one run id) agree more than those of
        several do: they count once, their medians joined by the geometric mean, and a warning says so,
        as it does of cases that were disturbed each time.
    folder : path, optional
        Where baselines are; ``.bwprof/baselines`` below the working directory when left out.
    force : bool
        Replace a baseline of that name.

    Returns
    -------
    pathlib.Path
        The file: plain JSON with a line a value, in a stable order, replaced in one step.

    Raises
    ------
    FileExistsError
        When there is one of that name and `force` was not given.
    ValueError
        For a name that is none, a source without a measured case, and a run that is given twice.
    OSError
        When it cannot be written, or another process is saving it; an older file is then whole.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     found = bwprof.load_baseline("main", folder=folder)
    ...     path.name, found.device, len(found.rows)
    ('main.json', 'NVIDIA H200', 63)
    """
    baselines.check_free(name, folder, force=force)
    if not sources:
        raise ValueError(f"baseline '{quote_text(name)}' needs a run: its folder, a result file, a frame or rows")
    made = join_sources(name, [load_source(source, folder=folder) for source in sources])
    path = baselines.write_baseline(made, folder=folder, force=force)
    for told in list_doubts(made):
        _log.warning("%s", told)
    return path


def list_doubts(made: Baseline) -> list[str]:
    """What a baseline has not learnt although it has several runs, and which cases it can judge nothing by."""
    found = []
    if made.joined:
        found.append(
            f"baseline '{quote_text(made.name)}' is of {made.joined}: how far times wander between processes shows in "
            "fresh ones (bwprof baseline save NAME --repeat 5, or a run of the script for each)"
        )
    return [*found, *filter(None, [describe_disturbed(made.name, made.rows)])]


def describe_disturbed(name: str, rows: Sequence[RowDict]) -> str:
    """How many of a baseline's rows are disturbed, for want of others, in words; "" for none."""
    flags = [words for row in rows if (words := find_disturbances(row))]
    if not flags:
        return ""
    said = ", ".join(dict.fromkeys(word for words in flags for word in words))
    return (
        f"baseline '{quote_text(name)}': {len(flags)} of {plural(len(rows), 'case')} disturbed ({said}) each time it "
        "was measured, and is no ground to judge by: save it anew when nothing else uses the device, or compare turn "
        "by turn (bwprof ab)"
    )


def join_sources(name: str, sources: Sequence[Source]) -> Baseline:
    """A baseline of sides, not yet saved; ValueError for a side without a time, and for a run that is there twice."""
    runs: list[BaselineRun] = []
    seen: set[str] = set()
    for source in sources:
        if not any(map(is_measured, source.rows)):
            told = next((f" ({row['status']}: {row['reason']})" for row in source.rows if row.get("reason")), "")
            raise ValueError(
                f"{quote_text(source.name)} holds no measured case{told}: nothing could be held against it"
            )
        own = _processes(source)
        twice = sorted(seen.intersection(own) - {""})
        if twice:
            raise ValueError(f"run {quote_text(twice[0])} is given twice: each process counts once")
        seen.update(own)
        runs += own.values()
    return make_baseline(name, runs, saved=datetime.now(UTC).isoformat(timespec="seconds"))


def is_measured(row: RowDict) -> bool:
    """Whether a row has a time that others can be held against."""
    given = row["time_ms"]
    return row["status"] == "ok" and not formatting.is_missing(given) and 0 < given < math.inf


def _processes(source: Source) -> dict[str, BaselineRun]:
    """A side's rows by their run's id, "" where they have none; of a baseline all rows of all processes."""
    found: dict[str, tuple[list[RowDict], list[list[float] | None]]] = {}
    for row, values in _all_rows(source):
        rows, samples = found.setdefault(str(row.get("run_id") or ""), ([], []))
        rows.append(row)
        samples.append(values)
    told = {str(known.get("run_id")): known for known in (*source.processes, source.run)}
    return {
        run_id: (rows, samples, told.get(run_id) or ({"run_id": run_id} if run_id else source.run))
        for run_id, (rows, samples) in found.items()
    }


def _all_rows(source: Source) -> Iterable[tuple[RowDict, list[float] | None]]:
    if source.cases:
        for kept in source.cases:
            yield from zip(kept.rows, kept.samples, strict=True)
    else:
        yield from zip(source.rows, source.samples or [None] * len(source.rows), strict=True)
