"""All rows of all runs below a folder, in one frame: `bwprof.history`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.records.folders import run_folders
from bwprof.records.reading import Reader, Run
from bwprof.results import unfinished
from bwprof.results.difference import DEFAULT_GATE
from bwprof.text import fraction, path_of, quoted, shown, unknown, whole_number, words

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "bwprof-results"
_LISTED = 5  # runs that a message lists
_MOST_NAMES = 40  # of cases, likewise
_log = logging.getLogger("bwprof.records")

Progress = Callable[[int, int], object]


def history(
    folder: str | PathLike[str] = FOLDER,
    case: str | Iterable[str] | None = None,
    precision: str | Iterable[str] | None = None,
    *,
    operation: str | Iterable[str] | None = None,
    device: str | Iterable[str] | None = None,
    last: int | None = None,
    gate: float | str = DEFAULT_GATE,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """What all runs below a folder have measured, over time.

    Parameters
    ----------
    folder : path
        Where run folders are, at any depth; hidden folders are left out. What `bwprof.sweep` leaves by itself is
        ``bwprof-results``.
    case, precision, operation, device : str or iterable of str, optional
        Only rows with one of these; patterns of the shell (``"attention*"``) will do. A row's `case` is asked for, or
        its operation's name.
    last : int, optional
        Only the last so many runs of those that have such rows; they are compared with the runs before them all the
        same.
    gate : float or str
        The smallest difference worth a word, as a fraction or as "3%": see `bwprof.results.difference.differ`.
    progress : callable, optional
        Gets (done, total) while runs are read.

    Returns
    -------
    pandas.DataFrame
        One row per run and case, the earliest run first; texts are categories (``groupby(..., observed=True)``), times
        UTC. `series` numbers what is measured again and again: the same case, precision, cache and timer on the same
        device of the same host; where a run has several variants, devices of one name or labels, each of them. `ratio`
        is the time over that of the series' run before (rows without a time, and disturbed ones, are stepped over),
        `change` is "slower" or "faster" where the two differ, "undecided" where they do beyond the gate and their
        intervals overlap, and `marks` names what changed besides: driver, bwprof's
        version, variant, device. ``attrs["unread"]`` holds the folders that could not be read, and why.

    Raises
    ------
    FileNotFoundError
        When there is no such folder.
    ValueError
        For a name that nothing there has, with the nearest one.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "monday").mkdir()
    >>> _ = bwprof.save(bwprof.load_example("h200"), folder / "monday" / "results.json")
    >>> found = bwprof.history(folder, case="decode_gemm*", precision="fp16")
    >>> found[["case", "precision"]].drop_duplicates().shape[0] == found["series"].nunique()
    True
    """
    root = path_of(folder, "folder")
    if not root.is_dir():
        said = "it is no folder" if root.exists() else "no such folder; a sweep makes one"
        raise FileNotFoundError(f"{quoted(folder)}: {said}")
    asked = {"case": case, "precision": precision, "operation": operation, "device": device}
    wanted = {name: words(name, value) for name, value in asked.items() if value is not None}
    if precision is not None:
        wanted["precision"] = tuple(map(registry.precision_name, wanted["precision"]))
    most = None if last is None else whole_number(last, "last")
    if most is not None and most < 1:
        raise ValueError(f"last is {shown(last)}: a number of runs from 1 is needed")
    known = fraction(gate, "gate")

    from bwprof.records import frames

    reader, runs = Reader(), []
    found = run_folders(root)
    for number, path in enumerate(found, start=1):
        run = reader.read(root, path)
        runs += [] if run is None else [run]
        if progress is not None:
            progress(number, len(found))
    runs.sort(key=lambda run: (run.about["started"], run.about["run_id"], run.path))
    frame = frames.read(reader, runs, lambda cases: _chosen(cases, wanted), most, known)
    frame.attrs |= {"folder": str(folder), "runs": len(found), "unread": dict(sorted(reader.problems.items()))}
    _warn(root, reader.problems, runs)
    return frame


def _warn(root: Path, unread: Mapping[str, str], runs: Sequence[Run]) -> None:
    """Log which folders have no rows here, and which runs may lack cases."""
    states = {run.path: run.about["run_status"] for run in runs}
    partial = [f"{quoted(path)} ({quoted(state)})" for path, state in states.items() if unfinished({"status": state})]
    if partial:
        more = f" and {len(partial) - _LISTED} more" if len(partial) > _LISTED else ""
        _log.warning("not complete, cases may be missing: %s%s", ", ".join(partial[:_LISTED]), more)
    for path, why in list(unread.items())[:_LISTED]:
        _log.warning("%s cannot be read and is left out: %s", quoted(root / path), quoted(why))
    if len(unread) > _LISTED:
        _log.warning("%d more runs cannot be read and are left out: attrs['unread'] names them", len(unread) - _LISTED)


def _chosen(cases: Sequence[Mapping[str, Any]], wanted: Mapping[str, Sequence[str]]) -> list[bool]:
    """Of each case whether it is asked for; ValueError for a name that none of them has."""
    chosen = [True] * len(cases)
    for name, patterns in wanted.items():
        columns = ("case", "operation") if name == "case" else (name,)
        values = [[str(case[column]) for column in columns if case[column]] for case in cases]
        for pattern in patterns if cases else ():
            if not any(fnmatchcase(value, pattern) for found in values for value in found):
                there = sorted({found[0] for found in values if found})
                raise ValueError(unknown(name, pattern, _near(pattern, there)))
        for place, found in enumerate(values):
            chosen[place] &= any(fnmatchcase(value, pattern) for value in found for pattern in patterns)
    return chosen


def _near(pattern: str, there: Sequence[str]) -> Sequence[str]:
    """Of very many names those that are like it."""
    if len(there) <= _MOST_NAMES:
        return there
    import difflib

    return difflib.get_close_matches(pattern, there, n=_MOST_NAMES, cutoff=0.3) or there[:_MOST_NAMES]
