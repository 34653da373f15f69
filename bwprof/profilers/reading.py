"""Files of other profilers, read line by line: bounded, never run, every complaint with its line."""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from bwprof.text import quoted

LONGEST_LINE = 64 << 20  # bytes: a launch of ncu has thousands of metrics, not millions
_BLOCK = 1 << 20


def wrong(path: Path, line: int | None, said: str) -> ValueError:
    """What a malformed file raises: where, what was found, what is needed."""
    return ValueError(f"{quoted(path)}{f', line {line}' if line else ''}: {said}")


@contextmanager
def opened_raw(path: Path) -> Iterator[BufferedReader]:
    """A regular file's bytes; ValueError for what is none, so that no pipe or device is waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as raw:  # waits for nobody
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise wrong(path, None, "this is no regular file: a profiler's file is needed")
        yield raw


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """A regular file as text, see `opened_raw`.

    Bytes that are no UTF-8 become U+FFFD: a kernel's name may hold some. A NUL is in no text: ValueError.
    """
    with opened_raw(path) as raw:
        if b"\0" in raw.peek(4096)[:4096]:
            raise wrong(path, None, "this is no text: a file that a profiler wrote as CSV or JSON is needed")
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        yield stream


class Lines:
    """A file's lines, none longer than `LONGEST_LINE`; `ended` says whether the last one that was read has its end."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self._path, self._stream = path, stream
        self.ended = True

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[list[str]]:
        number = 0
        while block := self._stream.read(_BLOCK):
            if block[-1] != "\n":
                rest = self._stream.readline(LONGEST_LINE)
                if len(rest) == LONGEST_LINE:
                    said = f"it has more than {LONGEST_LINE} letters: no profiler writes such lines"
                    raise wrong(self._path, number + block.count("\n") + 1, said)
                block += rest
            self.ended = block[-1] == "\n"
            lines = [f"{line}\n" for line in block.split("\n")]
            number += len(lines) - 1
            yield lines[:-1] if self.ended else lines


def records(path: Path, lines: Iterator[str], first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """The records of CSV lines, each with the number of the line it ends on; the first line is number `first`."""
    reader = csv.reader(lines, strict=True)
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise wrong(path, first - 1 + reader.line_num, f"this is no CSV: {error}") from None
        yield first - 1 + reader.line_num, record


def batches(path: Path, lines: Iterator[str], most: int, *, first: int = 1) -> Iterator[list[list[str]]]:
    """The records of CSV lines in lists of `most`; where they stand is found again by `line_of` when that is asked."""
    reader = csv.reader(lines, strict=True)
    while True:
        try:
            batch = list(islice(reader, most))
        except csv.Error as error:
            raise wrong(path, first - 1 + reader.line_num, f"this is no CSV: {error}") from None
        if not batch:
            return
        yield batch


def line_of(path: Path, record: int) -> int:
    """The line on which a record ends, counted from 0 with the header; of records with nothing in them none counts."""
    with opened(path) as stream:
        found = (line for line, cells in records(path, iter(Lines(path, stream))) if cells)
        return next(islice(found, record, None), 0)
