"""Damaged copies of files: bytes changed, lost, repeated, cut off, and words that readers stumble over put in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WORDS = (
    *(b"", b"0", b"-1", b"1e400", b"-1e400", b"nan", b"inf", b"9" * 25, b"9" * 5000, b"1_0", b"0x1", b" 7 ", b"=1+1"),
    *(b'"', b"'", b",", b"\n", b"\r\n", b"\r", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xae"),
    *(b"{", b"}", b"[", b"]", b"[" * 3000, b'{"a":' * 500, b":", b"\\", b"\\u", b"\\ud800", b"null", b"true", b"NaN"),
    *(b"Infinity", b"n/a", b"%s", b"../../x", b"'; DROP TABLE x; --", b"\x1b[31m", b"1e17", b"2147483648", b"1.5"),
    *(b'"traceEvents"', b'"dur"', b"kernel", b"cpu_op", b"Counter_Name", b"Start_Timestamp", b"dram_bytes_read"),
)


def copies(whole: bytes, count: int, seed: int) -> Iterator[bytes]:
    """So many damaged copies, the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        found = bytearray(whole)
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            _CHANGES[chance.randrange(len(_CHANGES))](found, chance)
        yield bytes(found)


def survives(read: Callable[[Path], Any], path: Path, whole: bytes, count: int, seed: int) -> tuple[int, int]:
    """How many damaged copies were read and how many refused by ValueError; any other exception is raised."""
    good = refused = 0
    for content in copies(whole, count, seed):
        path.write_bytes(content)
        try:
            found = read(path)
        except ValueError as error:
            if path.name not in str(error):
                raise AssertionError(f"this names no file: {error}") from error
            refused += 1
            continue
        assert list(found.index) == list(range(len(found)))
        good += 1
    return good, refused


def _flip(found: bytearray, chance: random.Random) -> None:
    if found:
        found[chance.randrange(len(found))] = chance.randrange(256)


def _bit(found: bytearray, chance: random.Random) -> None:
    if found:
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)


def _cut(found: bytearray, chance: random.Random) -> None:
    del found[chance.randrange(len(found) + 1) :]


def _lose(found: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(found) + 1)
    del found[at : at + chance.choice((1, 1, 4, 30, 300))]


def _repeat(found: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(found) + 1)
    found[at:at] = found[at : at + chance.choice((1, 4, 30, 300))]


def _put(found: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(found) + 1)
    found[at : at + chance.choice((0, 0, 1, 8))] = chance.choice(WORDS)


def _replace_cell(found: bytearray, chance: random.Random) -> None:
    """What lies between two signs that part values becomes another word."""
    places = [at for at, letter in enumerate(found) if letter in b",:\n"]
    if len(places) > 1:
        at = chance.randrange(len(places) - 1)
        found[places[at] + 1 : places[at + 1]] = chance.choice(WORDS)


def _number(found: bytearray, chance: random.Random) -> None:
    places = [at for at, letter in enumerate(found) if letter in b"0123456789"]
    if places:
        found[chance.choice(places)] = chance.choice(b"0123456789-.eE")


_CHANGES = (_flip, _bit, _cut, _lose, _repeat, _put, _put, _replace_cell, _replace_cell, _number)
