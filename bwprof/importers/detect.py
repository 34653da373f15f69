"""Detect who wrote a file of results, bwprof or another profiler, by its content, and load it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.importers import frames
from bwprof.importers.chrome import parse_chrome_trace
from bwprof.importers.ncu.parse import is_report, parse_ncu
from bwprof.importers.nsys import SQLITE, parse_nsys
from bwprof.importers.reader import detect_encoding, find_csv_files, open_binary
from bwprof.importers.rocprof import parse_rocprof
from bwprof.results import json_file
from bwprof.results.exchange import is_table
from bwprof.text.parsing import parse_path

if TYPE_CHECKING:
    import pandas as pd

OURS = "bwprof"
SAVED = "saved"  # rows that bwprof made of another profiler's file, and wrote

# The kinds of other profilers' files: their readers, and the programs that write them.
_READERS: dict[str, tuple[Callable[[str | PathLike[str]], pd.DataFrame], str]] = {
    "ncu": (parse_ncu, "ncu"),
    "rocprof": (parse_rocprof, "rocprof or rocprofv3"),
    "trace": (parse_chrome_trace, "torch.profiler"),
    "nsys": (parse_nsys, "nsys (as SQLite)"),
}

_BEGINNING = 1 << 16  # bytes that show a file's kind
_MOST_TABLES = 100
_GZIP = b"\x1f\x8b"
_ROCPROF = {"KernelName", "Kernel_Name"}
_NCU = "Kernel Name"
_PRINTED = re.compile(r"\), (?:[^,]+, )?Context [0-9]+, Stream [0-9]+")  # a launch in ncu's page as text


def detect_kind(path: str | PathLike[str]) -> str:
    """Return whose results a file or folder holds: "bwprof", "saved" (`SAVED`), "ncu", "rocprof", "trace" or "nsys"."""
    place = parse_path(path, "path")
    if place.is_dir():
        return "rocprof" if not (place / "results.json").exists() and _has_rocprof(place) else OURS
    if not place.is_file():
        return OURS  # its reader raises the error
    with place.open("rb") as stream:
        start = stream.read(_BEGINNING)
    if start.startswith(SQLITE):
        return "nsys"
    if is_report(place):
        return "ncu"
    if start.startswith(_GZIP):
        packed = b""
        with suppress(zlib.error):
            packed = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, _BEGINNING)
        return OURS if json_file.FORMAT.encode() in packed or packed.startswith(b"operation,") else "trace"
    text = start.decode(detect_encoding(start), "replace")
    if frames.is_saved_json(text):
        return SAVED
    if text.lstrip()[:1] in ("{", "[") and not _PRINTED.search(text):  # ncu's page as text begins with "[process]"
        return "trace" if '"traceEvents"' in text or '"ph"' in text else OURS
    return _detect_table(text)


def _detect_table(text: str) -> str:
    """Return whose CSV a text is, by its header; lines of ncu's log may come before it."""
    for line in text.splitlines():
        names = [word.strip().strip('"') for word in line.split(",")]
        if is_table(names):
            return SAVED
        if (names[0] in ("ID", "Process ID") and _NCU in names) or _PRINTED.search(line):
            return "ncu"
        if not _ROCPROF.isdisjoint(names):
            return "rocprof"
        if "Instances" in names and "Name" in names:
            return "nsys"
        if "operation" in names:
            return OURS
    return "ncu" if "==PROF==" in text else OURS


def _has_rocprof(folder: Path) -> bool:
    """Whether one of the first CSV files below a folder is of rocprof; False where too many files lie there."""
    with suppress(ValueError):
        for path in find_csv_files(folder)[:_MOST_TABLES]:
            with suppress(OSError, ValueError), open_binary(path) as stream:  # ValueError: a pipe, for example
                start = stream.read(_BEGINNING)
                if _detect_table(start.decode(detect_encoding(start), "replace")) == "rocprof":
                    return True
    return False


def load(path: str | PathLike[str]) -> pd.DataFrame:
    """Load the rows of a file of ncu, rocprof, torch.profiler, Nsight Systems or bwprof.

    Parameters
    ----------
    path : path
        A page or a report of ncu, a CSV file or a folder of rocprof or rocprofv3, a trace of torch.profiler, an export
        of nsys; rows of these that bwprof's commands wrote (``--csv``, ``--json``); a run's folder or a result file of
        bwprof. The content decides which.

    Returns
    -------
    pandas.DataFrame
        As `parse_ncu`, `parse_rocprof`, `parse_chrome_trace`, `parse_nsys` and `bwprof.load` return it.

    Raises
    ------
    ValueError, OSError
        For a file that is none of these, or is damaged.

    Examples
    --------
    >>> bwprof.diagnose(load("profile.json")).attrs["answers"]  # doctest: +SKIP
    """
    from bwprof.results import reader

    kind = detect_kind(path)
    if kind == OURS:
        try:
            return reader.load(path)
        except ValueError as error:
            writers = ", ".join(writer for _, writer in _READERS.values())
            raise ValueError(f"{error} (read are results of bwprof, and files of {writers})") from None
    if kind == SAVED:
        return frames.read_saved(parse_path(path, "path"))
    parse, _ = _READERS[kind]
    return parse(path)
