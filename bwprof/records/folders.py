"""The run folders below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bwprof import results

_NAMES = (results.JSON_NAME, results.CSV_NAME)


def run_folders(root: Path) -> list[str]:
    """Return the path of each run folder at or below `root`, from there.

    A link to a run folder counts, as long as the folder itself is not among the others; links to other folders are not
    followed, and hidden folders not entered: nothing is walked through twice.

    Raises
    ------
    OSError
        When `root` itself cannot be read.
    """
    top = os.fspath(root)
    found = ["."] if is_run(top) else []
    linked: list[str] = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for name, is_link in _subfolders(top, inside):
            path = f"{inside}{name}"
            if is_run(f"{top}/{path}"):
                (linked if is_link else found).append(path)
            elif not is_link:
                waiting.append(f"{path}/")
    known = {os.path.realpath(f"{top}/{path}") for path in found} if linked else set()
    for path in sorted(linked):
        real = os.path.realpath(f"{top}/{path}")
        if real not in known:
            known.add(real)
            found.append(path)
    return found


def is_run(folder: str) -> bool:
    """Return whether a folder has a file of results."""
    return any(os.path.exists(f"{folder}/{name}") for name in _NAMES)


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
