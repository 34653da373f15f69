"""Recognize the files of other profilers, and read the bytes that a caller states for names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bwprof.text.formatting import plural
from bwprof.text.parsing import describe_unknown, parse_bytes, quote_text, repr_short

CallBytes = tuple[int, int, int | None]


def parse_call_bytes(name: str, value: Any) -> CallBytes:
    """Bytes that one call reads and writes, and its FLOPs; ValueError for what is none."""
    parts = ("bytes_read", "bytes_written", "flops")
    if all(hasattr(value, part) for part in parts):  # a bwprof.Cost
        read, written, flops = (parse_bytes(getattr(value, part), f"{part} of {quote_text(name)}") for part in parts)
        return read, written, flops
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"bytes of {quote_text(name)} are {repr_short(value)}: (bytes_read, bytes_written) are needed")
    read, written = value
    return (
        parse_bytes(read, f"bytes_read of {quote_text(name)}"),
        parse_bytes(written, f"bytes_written of {quote_text(name)}"),
        None,
    )


def mean_call_bytes(name: str, value: Any, calls: float) -> tuple[CallBytes, bool]:
    """Return the mean work of so many calls, and whether it varies: a list has each call's own, in any order."""
    entries = value if isinstance(value, (tuple, list)) else ()
    if not entries or not all(isinstance(one, (tuple, list)) or hasattr(one, "bytes_read") for one in entries):
        return parse_call_bytes(name, value), False
    if len(value) != calls:
        raise ValueError(f"bytes of {quote_text(name)} are those of {plural(len(value), 'call')}: it has {calls:g}")
    each = [parse_call_bytes(name, one) for one in value]
    read, written, flops = zip(*each, strict=True)
    total = None if None in flops else round(sum(flops) / calls)
    return (round(sum(read) / calls), round(sum(written) / calls), total), len(set(each)) > 1


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a name is meant by what was given for it: itself, or a pattern ("*gemm*")."""
    return name == pattern or fnmatchcase(name, pattern)


def match_patterns(given: Mapping[str, Any], found: Collection[str]) -> dict[str, str]:
    """For each name that bytes are known of, what was given for it: its own name, else the first pattern.

    Raises
    ------
    ValueError
        For one that no name is, with the nearest.
    """
    names: dict[str, str] = {}
    for pattern in given:
        matching = [name for name in found if matches_pattern(name, pattern)]
        if not matching:
            raise ValueError(describe_unknown("name", pattern, found, where="bytes"))
        for name in matching:
            if name in given:
                names[name] = name
            names.setdefault(name, pattern)
    return names


FORMAT = "bwprof-profile"  # of the JSON files of such rows

_FIRST = "kernel"  # the first column of such rows, which have these, too

_ALSO = {"case", "status"}

_THEIRS = {"Kernel Name", "KernelName", "Kernel_Name"}

_READERS = "bwprof.importers.load(path), and bwprof diagnose FILE"


def is_table(names: Sequence[str]) -> bool:
    """Whether these are the columns of rows that bwprof made of another profiler's file."""
    return bool(names) and names[0] == _FIRST and set(names) >= _ALSO


def is_document(found: Mapping[str, Any]) -> bool:
    """The same of a JSON document; those of the first version did not name their format."""
    told = found.get("format")
    return told == FORMAT or (told is None and {"source", "tool", "notes", "rows"} <= set(found))


def describe_table(names: Sequence[str]) -> str:
    """What reads a table that is no result file; "" where that is not known."""
    if is_table(names):
        return f"; it holds what another profiler measured: it is read by {_READERS}"
    theirs = _THEIRS & set(names) or (names and names[0].startswith("=="))
    return f"; it looks like a profiler's file: those are read by {_READERS}" if theirs else ""


def describe_document(found: Any) -> str:
    """The same of a JSON document."""
    if isinstance(found, Mapping) and is_document(found):
        return f"; it holds what another profiler measured: it is read by {_READERS}"
    if isinstance(found, Mapping) and "traceEvents" in found:
        return f"; it looks like a trace: those are read by {_READERS}"
    return ""
