"""The run folders below a folder, and by what it is noticed cheaply that one has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bwprof import results
from bwprof.results.files import claim_path

PLACE = ".bwprof-index"  # the index's folder, in the one that it is of; hidden: `bwprof-results/*` are runs
_SOON_SECONDS = 1.0  # a file as young as that may change once more within one tick of its clock
_UNCERTAIN = "?"
# What a run's rows are read from: its files, and its writer's own.
_NAMES = (results.JSON_NAME, results.CSV_NAME, claim_path(Path(results.JSON_NAME)).name)

Stamp = str


def run_folders(root: Path) -> dict[str, Stamp]:
    """Each run folder at or below `root`, by its path from there, and its stamp: sizes and times of its files.

    A link to a run folder counts, as long as the folder itself is not among the others; links to other folders are not
    followed, and hidden folders not entered: nothing is walked through twice.

    Raises
    ------
    OSError
        When `root` itself cannot be read.
    """
    found: dict[str, Stamp] = {}
    linked: list[tuple[str, str]] = []
    top = os.fspath(root)
    stamp = stamp_of(top)
    if stamp is not None:
        found["."] = stamp
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for name, is_link in _subfolders(top, inside):
            path = f"{inside}{name}"
            stamp = stamp_of(f"{top}/{path}")
            if stamp is None:
                if not is_link:
                    waiting.append(f"{path}/")
            elif is_link:
                linked.append((path, stamp))
            else:
                found[path] = stamp
    if linked:
        known = {os.path.realpath(f"{top}/{path}") for path in found}
        for path, stamp in sorted(linked):
            real = os.path.realpath(f"{top}/{path}")
            if real not in known:
                known.add(real)
                found[path] = stamp
    return found


def _subfolders(top: str, inside: str) -> Iterator[tuple[str, bool]]:
    """Name, and whether it is a link, of each folder in a folder that is not hidden."""
    try:
        with os.scandir(f"{top}/{inside}") as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                is_link = entry.is_symlink()
                if is_link or entry.is_dir(follow_symlinks=False):
                    yield entry.name, is_link
    except OSError:
        if not inside:
            raise  # a folder below it that nobody may read has no runs for us, and no row is lost that was known


def stamp_of(folder: str) -> Stamp | None:
    """What changes with a run's files; None for a folder that holds none.

    That of files which have only just been written is uncertain, and differs from every other.
    """
    parts = []
    youngest = 0
    for name in _NAMES:
        try:
            found = os.stat(f"{folder}/{name}")
        except OSError:
            parts.append("")
        else:
            parts.append(f"{found.st_size}@{found.st_mtime_ns}")
            youngest = max(youngest, found.st_mtime_ns)
    if not (parts[0] or parts[1]):
        return None
    age = time.time() - youngest / 1e9
    return "|".join(parts) + (f"|{_UNCERTAIN}{time.time_ns()}" if 0 <= age < _SOON_SECONDS else "")
