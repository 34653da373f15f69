"""Where baselines are kept: a folder of files, one each."""

from __future__ import annotations

import math
import os
from os import PathLike
from pathlib import Path

from bwprof.listing import Listing
from bwprof.records import baseline as documents
from bwprof.records.baseline import Baseline
from bwprof.records.holding import held
from bwprof.records.names import plain_name
from bwprof.results.files import atomic_write, refuse_foreign
from bwprof.text import nearest, path_of, quoted, read_number, truth

FOLDER = ".bwprof/baselines"  # below the working directory: in a repository it can be committed
_MISSING = frozenset({"na", "nan", "nat", "none", "null"})
_LISTED = 10  # names that a message lists


def folder_of(folder: str | PathLike[str] | None) -> Path:
    """Where baselines are, unless `folder` says otherwise."""
    return Path(FOLDER) if folder is None else path_of(folder, "folder")


def file_of(name: str, folder: str | PathLike[str] | None = None) -> Path:
    """A baseline's file; ValueError for a name that is none, and for one that tables read as a missing value."""
    plain = plain_name(name, "the name of a baseline")
    if plain.lower() in _MISSING or plain.startswith("-") or math.isinf(read_number(plain)):
        raise ValueError(f"the name of a baseline is '{plain}': tables and shells misread it; use another name")
    return folder_of(folder) / f"{plain}.json"


class Baselines(Listing):
    """The baselines of a folder."""

    kind = "baseline"


def baselines(*, folder: str | PathLike[str] | None = None) -> Baselines:
    """The baselines that are there.

    Parameters
    ----------
    folder : path, optional
        Where baselines are; ``.bwprof/baselines`` below the working directory when left out.

    Returns
    -------
    list of dict
        By name: name, cases, processes (that measured them), device, driver, saved, and problem: why the file cannot be
        read, "" where it can. It shows itself as a table, and is indexed by names, too.

    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     bwprof.baselines(folder=folder)["main"]["cases"]
    63
    """
    found = Baselines()
    for name in names(folder):
        line: dict[str, object] = {"name": name, "cases": 0, "processes": 0}
        line |= {"device": "", "driver": "", "saved": "", "problem": ""}
        try:
            known = documents.read(folder_of(folder) / f"{name}.json")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None)
            line["problem"] = f"{quoted(folder_of(folder) / name)}.json: {reason}" if reason else str(error)
        else:
            line |= {"cases": len(known.cases), "processes": known.most_processes}
            line |= {"device": known.device, "driver": known.driver, "saved": known.saved}
        found.append(line)
    return found


def names(folder: str | PathLike[str] | None = None) -> list[str]:
    """The names of the baselines that are there, in order; none where there is no folder."""
    try:
        found = sorted(path.stem for path in folder_of(folder).iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    return [name for name in found if not name.startswith(".")]


def missing(name: str, folder: str | PathLike[str] | None = None) -> FileNotFoundError:
    """The error for a name that no baseline has; it offers the nearest one."""
    known = names(folder)
    near = nearest(name, known, likeness=0.5)
    hint = f"did you mean '{near}'? " if near else ""
    listed = ", ".join(known[:_LISTED]) + (f" and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
    there = f"there: {listed}" if known else f"'bwprof baseline save {quoted(name)}' makes one"
    return FileNotFoundError(f"no baseline '{quoted(name)}' in {quoted(folder_of(folder))}: {hint}{there}")


def load_baseline(name: str, *, folder: str | PathLike[str] | None = None) -> Baseline:
    """Read a baseline.

    Parameters
    ----------
    name : str
        What it was saved as.
    folder : path, optional
        Where baselines are; ``.bwprof/baselines`` below the working directory when left out.

    Returns
    -------
    Baseline
        Its `rows` (one a case), their raw `samples`, `process_ms` (the medians of each process), `device`, `driver`,
        `run` (metadata).

    Raises
    ------
    FileNotFoundError
        When there is none of that name: the message offers the nearest one.
    ValueError
        For a name that is none, and a file that is no whole baseline, or one of a later bwprof.
    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     bwprof.load_baseline("main", folder=folder).driver
    '580.159.04'
    """
    path = file_of(name, folder)
    try:
        return documents.read(path)
    except FileNotFoundError:
        raise missing(name, folder) from None


def delete_baseline(name: str, *, folder: str | PathLike[str] | None = None) -> Path:
    """Remove a baseline's file, whatever it holds; gives its path.

    Raises
    ------
    FileNotFoundError
        When there is none of that name.
    OSError
        When it cannot be removed, or another process is saving it.
    Examples
    --------
    >>> import bwprof, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = bwprof.save_baseline("main", bwprof.load_example("h200"), folder=folder)
    ...     bwprof.delete_baseline("main", folder=folder).name
    'main.json'
    """
    path = file_of(name, folder)
    if not os.path.lexists(path):
        raise missing(name, folder)
    with held(path):
        path.unlink()
    return path


def write(baseline: Baseline, *, folder: str | PathLike[str] | None = None, force: bool = False) -> Path:
    """Write a baseline's file in one step, and give its path.

    Raises
    ------
    FileExistsError
        When there is one of that name and `force` was not given.
    OSError
        When it cannot be written; an older file is then whole.
    """
    path = file_of(baseline.name, folder)
    content = documents.text(baseline)
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path):
        check_free(baseline.name, folder, force=force)
        atomic_write(path, content, check=lambda found: documents.parse(found, str(path), baseline.name))
    return path


def prepare(name: str, folder: str | PathLike[str] | None = None, *, force: bool = False) -> None:
    """Before anything is measured for it: the name is free, and the folder can be written to.

    Raises
    ------
    FileExistsError, OSError, ValueError
        As `write` would.
    """
    check_free(name, folder, force=force)
    path = file_of(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path):
        pass


def check_free(name: str, folder: str | PathLike[str] | None = None, *, force: bool = False) -> None:
    """FileExistsError when a baseline of that name is there and may not be replaced, ValueError for a link."""
    path = file_of(name, folder)
    refuse_foreign(path)
    if not truth(force, "force") and os.path.lexists(path):
        raise FileExistsError(f"there is a baseline '{name}' already ({path}): --force (force=True) replaces it")
