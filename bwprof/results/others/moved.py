"""The bytes that a caller says calls of a name move: a name may be a pattern, its bytes a pair, a Cost, or a list."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from bwprof.text import amount, counted, quoted, shown, unknown

Work = tuple[int, int, int | None]


def work(name: str, value: Any) -> Work:
    """Bytes that one call reads and writes, and its FLOPs; ValueError for what is none."""
    parts = ("bytes_read", "bytes_written", "flops")
    if all(hasattr(value, part) for part in parts):  # a bwprof.Cost
        read, written, flops = (amount(getattr(value, part), f"{part} of {quoted(name)}") for part in parts)
        return read, written, flops
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"bytes of {quoted(name)} are {shown(value)}: (bytes_read, bytes_written) are needed")
    read, written = value
    return amount(read, f"bytes_read of {quoted(name)}"), amount(written, f"bytes_written of {quoted(name)}"), None


def mean_work(name: str, value: Any, calls: float) -> tuple[Work, bool]:
    """Return the mean work of so many calls, and whether it varies: a list has each call's own, in any order."""
    entries = value if isinstance(value, (tuple, list)) else ()
    if not entries or not all(isinstance(one, (tuple, list)) or hasattr(one, "bytes_read") for one in entries):
        return work(name, value), False
    if len(value) != calls:
        raise ValueError(f"bytes of {quoted(name)} are those of {counted(len(value), 'call')}: it has {calls:g}")
    each = [work(name, one) for one in value]
    read, written, flops = zip(*each, strict=True)
    total = None if None in flops else round(sum(flops) / calls)
    return (round(sum(read) / calls), round(sum(written) / calls), total), len(set(each)) > 1


def matches(name: str, pattern: str) -> bool:
    """Whether a name is meant by what was given for it: itself, or a pattern ("*gemm*")."""
    return name == pattern or fnmatchcase(name, pattern)


def named(given: Mapping[str, Any], found: Collection[str]) -> dict[str, str]:
    """For each name that bytes are known of, what was given for it: its own name, else the first pattern.

    Raises
    ------
    ValueError
        For one that no name is, with the nearest.
    """
    names: dict[str, str] = {}
    for pattern in given:
        matching = [name for name in found if matches(name, pattern)]
        if not matching:
            raise ValueError(unknown("name", pattern, found, where="bytes"))
        for name in matching:
            if name in given:
                names[name] = name
            names.setdefault(name, pattern)
    return names
