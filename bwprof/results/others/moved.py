"""The bytes that a caller says calls of a name move: a name may be a pattern, its bytes a pair or a `bwprof.Cost`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from bwprof.text import amount, quoted, shown, unknown

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
