"""Recognize the files of other profilers; check the bytes per call that a caller states."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bwprof.text.formatting import plural
from bwprof.text.parsing import describe_unknown, parse_bytes, quote_text, repr_short

CallBytes = tuple[int, int, int | None]


def parse_call_bytes(name: str, value: Any) -> CallBytes:
    """Return the bytes that one call reads and writes, and its FLOPs; ValueError for anything else."""
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
    """Return the mean bytes per call, and whether calls differ: a list has each call's own bytes."""
    entries = value if isinstance(value, (tuple, list)) else ()
    if not entries or not all(isinstance(entry, (tuple, list)) or hasattr(entry, "bytes_read") for entry in entries):
        return parse_call_bytes(name, value), False
    if len(value) != calls:
        raise ValueError(f"bytes of {quote_text(name)} are those of {plural(len(value), 'call')}: it has {calls:g}")
    calls_bytes = [parse_call_bytes(name, entry) for entry in value]
    read, written, flops = zip(*calls_bytes, strict=True)
    total = None if None in flops else round(sum(flops) / calls)
    return (round(sum(read) / calls), round(sum(written) / calls), total), len(set(calls_bytes)) > 1


def matches_pattern(name: str, pattern: str) -> bool:
    """Return whether a name is equal to a pattern or matches it ("*gemm*")."""
    return name == pattern or fnmatchcase(name, pattern)


def match_patterns(patterns: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """Return, for each name with bytes, its key in the mapping: the name itself, else the first pattern that matches.

    Raise ValueError for a key that no name matches, with the nearest name.
    """
    keys: dict[str, str] = {}
    for pattern in patterns:
        matching = [name for name in names if matches_pattern(name, pattern)]
        if not matching:
            raise ValueError(describe_unknown("name", pattern, names, where="bytes"))
        for name in matching:
            if name in patterns:
                keys[name] = name
            keys.setdefault(name, pattern)
    return keys


FORMAT = "bwprof-profile"  # of the JSON files of such rows

# The first column of such rows, and others.
_FIRST, _ALSO = "kernel", {"case", "status"}
_THEIRS = {"Kernel Name", "KernelName", "Kernel_Name"}
_READERS = "bwprof.importers.load(path), and bwprof diagnose FILE"


def is_table(names: Sequence[str]) -> bool:
    """Return whether these are the columns of rows that bwprof made from another profiler's file."""
    return bool(names) and names[0] == _FIRST and set(names) >= _ALSO


def is_document(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON document has such rows."""
    return document.get("format") == FORMAT


def describe_table(names: Sequence[str]) -> str:
    """Return how to read a table that is no result file; "" if unknown."""
    if is_table(names):
        return f"; it holds what another profiler measured: it is read by {_READERS}"
    is_profile = _THEIRS & set(names) or (names and names[0].startswith("=="))
    return f"; it looks like a profiler's file: those are read by {_READERS}" if is_profile else ""


def describe_document(document: Any) -> str:
    """Return how to read a JSON document that is no result file; "" if unknown."""
    if isinstance(document, Mapping) and is_document(document):
        return f"; it holds what another profiler measured: it is read by {_READERS}"
    if isinstance(document, Mapping) and "traceEvents" in document:
        return f"; it looks like a trace: those are read by {_READERS}"
    return ""
