"""A file of results, whoever wrote it: bwprof's own, or another profiler's, told by what is in it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.importers import frames
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.ncu.parse import is_report, parse_ncu
from bwprof.importers.nsys import parse_nsys
from bwprof.importers.reader import detect_encoding, find_csv_files, open_binary
from bwprof.importers.rocprof.parse import parse_rocprof
from bwprof.results import json_file
from bwprof.results.foreign import is_table
from bwprof.text.parsing import parse_path

if TYPE_CHECKING:
    import pandas as pd

_BEGINNING = 1 << 16  # bytes in which a file says what it is

_MOST_TABLES = 100

_SQLITE = b"SQLite format 3\0"

_GZIP = b"\x1f\x8b"

_ROCPROF = ("KernelName", "Kernel_Name")

_NCU = "Kernel Name"

_PRINTED = re.compile(r"\), (?:[^,]+, )?Context [0-9]+, Stream [0-9]+")  # ncu's page as text names a launch so

OURS = "bwprof"

SAVED = "saved"  # rows that bwprof made of another profiler's file, and wrote

# The kinds of files of others, and what writes one.
OTHERS = {"ncu": "ncu", "rocprof": "rocprof or rocprofv3", "trace": "torch.profiler", "nsys": "nsys (as SQLite)"}


def detect_kind(path: str | PathLike[str]) -> str:
    """Whose results a file or folder holds: "bwprof", "saved" (see `SAVED`), or a name of OTHERS.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    place = parse_path(path, "path")
    if place.is_dir():
        ours = (place / "results.json").exists()
        return "rocprof" if not ours and any(map(_of_rocprof, _tables(place))) else OURS
    if not place.is_file():
        return OURS  # whose reader says what is wrong with it
    with place.open("rb") as stream:
        start = stream.read(_BEGINNING)
    if start.startswith(_SQLITE):
        return "nsys"
    if is_report(place):
        return "ncu"
    if start.startswith(_GZIP):
        return OURS if _is_packed_run(start) else "trace"
    text = start.decode(detect_encoding(start), "replace")
    if frames.is_saved_json(text):
        return SAVED
    if text.lstrip()[:1] in ("{", "[") and not _PRINTED.search(text):  # that page begins with "[its process]"
        return "trace" if '"traceEvents"' in text or '"ph"' in text else OURS
    return _of_table(text)


def _is_packed_run(start: bytes) -> bool:
    """Whether gzip packed results of ours there."""
    try:
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, _BEGINNING)
    except zlib.error:
        return False
    return json_file.FORMAT.encode() in text or text.startswith(b"operation,")


def _of_table(text: str) -> str:
    """Whose CSV, by the line that names its columns; lines of ncu's log may come before it."""
    for line in text.splitlines():
        names = [word.strip().strip('"') for word in line.split(",")]
        if is_table(names):
            return SAVED
        if (names[0] in ("ID", "Process ID") and _NCU in names) or _PRINTED.search(line):
            return "ncu"
        if any(name in names for name in _ROCPROF):
            return "rocprof"
        if "Instances" in names and "Name" in names:
            return "nsys"
        if "operation" in names:
            return OURS
    return "ncu" if "==PROF==" in text else OURS


def _tables(folder: Path) -> list[Path]:
    """The first CSV files below a folder; none where there are too many files to look at."""
    try:
        return find_csv_files(folder)[:_MOST_TABLES]
    except ValueError:
        return []


def _of_rocprof(path: Path) -> bool:
    try:
        with open_binary(path) as stream:
            start = stream.read(_BEGINNING)
    except (OSError, ValueError):  # ValueError: no file, but a pipe, say
        return False
    return _of_table(start.decode(detect_encoding(start), "replace")) == "rocprof"


def load(path: str | PathLike[str]) -> pd.DataFrame:
    """The rows of a file, whoever wrote it: ncu, rocprof, torch.profiler, Nsight Systems or bwprof.

    Parameters
    ----------
    path : path
        A page or a report of ncu, a CSV file or a folder of rocprof or rocprofv3, a trace of torch.profiler, an export
        of nsys; rows of these that bwprof's commands wrote (``--csv``, ``--json``); a run's folder or a result file of
        bwprof. What is in it says which.

    Returns
    -------
    pandas.DataFrame
        As `parse_ncu`, `parse_rocprof`, `parse_chrome_trace`, `parse_nsys` and `bwprof.load` return it.

    Raises
    ------
    ValueError
        For a file that is none of these, or is damaged.
    OSError
        When it cannot be read.

    Examples
    --------
    >>> import bwprof
    >>> from bwprof.importers import load
    >>> bwprof.diagnose(load("profile.json")).attrs["answers"]  # doctest: +SKIP
    """
    from bwprof.results import reader

    kind = detect_kind(path)
    if kind == OURS:
        try:
            return reader.load(path)
        except ValueError as error:
            writers = ", ".join(OTHERS.values())
            raise ValueError(f"{error} (read are results of bwprof, and files of {writers})") from None
    if kind == SAVED:
        return frames.read_saved(parse_path(path, "path"))
    parse: dict[str, Callable[[str | PathLike[str]], pd.DataFrame]] = {
        "ncu": parse_ncu,
        "rocprof": parse_rocprof,
        "trace": parse_chrome_trace,
        "nsys": parse_nsys,
    }
    return parse[kind](path)
