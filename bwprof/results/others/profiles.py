"""Files of other profilers' figures, told from results by a look: rows that bwprof made of them, and their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FORMAT = "bwprof-profile"  # of the JSON files of such rows
_FIRST = "kernel"  # the first column of such rows, which have these, too
_ALSO = {"case", "status"}
_THEIRS = {"Kernel Name", "KernelName", "Kernel_Name"}
_READERS = "bwprof.profilers.load(path), and bwprof diagnose FILE"


def is_table(names: Sequence[str]) -> bool:
    """Whether these are the columns of rows that bwprof made of another profiler's file."""
    return bool(names) and names[0] == _FIRST and set(names) >= _ALSO


def is_document(found: Mapping[str, Any]) -> bool:
    """The same of a JSON document; those of the first version did not name their format."""
    told = found.get("format")
    return told == FORMAT or (told is None and {"source", "tool", "notes", "rows"} <= set(found))


def hint_of_table(names: Sequence[str]) -> str:
    """What reads a table that is no result file; "" where that is not known."""
    if is_table(names):
        return f"; it holds what another profiler measured: it is read by {_READERS}"
    theirs = _THEIRS & set(names) or (names and names[0].startswith("=="))
    return f"; it looks like a profiler's file: those are read by {_READERS}" if theirs else ""


def hint_of_document(found: Any) -> str:
    """The same of a JSON document."""
    if isinstance(found, Mapping) and is_document(found):
        return f"; it holds what another profiler measured: it is read by {_READERS}"
    if isinstance(found, Mapping) and "traceEvents" in found:
        return f"; it looks like a trace: those are read by {_READERS}"
    return ""
