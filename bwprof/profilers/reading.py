"""Files of other profilers, read line by line: bounded, never run, every complaint with its line."""

from __future__ import annotations

import csv
import io
import os
import stat
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bwprof.results.csvfile import cells_of
from bwprof.text import quoted

if TYPE_CHECKING:
    import pandas as pd

_MISSING = ["", "n/a", "nan", "no data"]  # the most frequent ones, so that their columns are numbers at once
LONGEST_LINE = 64 << 20  # letters: a launch of ncu has thousands of metrics, not millions
_MOST_FILES = 10_000
_MOST_COMMAS = 2_000_000  # in a line: each may make a cell
_CELLS_AT_ONCE = 8_000_000  # more than any reader asks for
_RECORDS_AT_ONCE = 16
_BLOCK = 1 << 20
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # what PowerShell's > writes


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
        start = raw.peek(4096)[:4096]
        encoding = encoding_of(start)
        if encoding != "utf-16" and b"\0" in start:
            raise wrong(path, None, "this is no text: a file that a profiler wrote as CSV or JSON is needed")
        with io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="") as stream:
            yield stream


def encoding_of(start: bytes) -> str:
    """The encoding of a text that begins so."""
    return "utf-16" if start[:2] in _UTF16 else "utf-8-sig"


def csv_files(folder: Path) -> list[Path]:
    """The CSV files below a folder, by name; ValueError for a folder of very many files, which no profiler leaves."""
    found: list[Path] = []
    seen = 0
    for inner, _, names in os.walk(folder):
        seen += 1 + len(names)
        if seen > _MOST_FILES:
            raise wrong(folder, None, f"more than {_MOST_FILES} files lie below it: name the one that rocprof wrote to")
        found += [Path(inner, name) for name in names if name.lower().endswith(".csv")]
    return sorted(found)


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
                    self._refuse(number, block, f"{LONGEST_LINE} letters")
                if rest.count(",") > _MOST_COMMAS:
                    self._refuse(number, block, f"{_MOST_COMMAS} commas")
                block += rest
            self.ended = block[-1] == "\n"
            lines = [f"{line}\n" for line in block.split("\n")]
            number += len(lines) - 1
            yield lines[:-1] if self.ended else lines

    def _refuse(self, number: int, block: str, more: str) -> None:
        raise wrong(
            self._path, number + block.count("\n") + 1, f"it has more than {more}: no profiler writes such lines"
        )


def numbered_lines(path: Path, stream: TextIO) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, without their ends, each with its number.

    Raises
    ------
    ValueError
        For a line of more than `LONGEST_LINE` letters.
    """
    for number, line in enumerate(Lines(path, stream), start=1):
        if text := line.rstrip("\r\n"):
            yield number, text


def cells(path: Path, number: int, text: str) -> list[str]:
    """The cells of a CSV record, however long; `number` is its line's.

    Raises
    ------
    ValueError
        For what is no CSV.
    """
    if text[:1] == '"' == text[-1:]:
        found = text[1:-1].split('","')
        if text.count('"') == 2 * len(found):  # every cell is quoted, and no quotation mark is within any
            return found
    try:
        rows = cells_of(text, strict=True)
    except csv.Error as error:
        raise wrong(path, number, f"this is no CSV: {error}") from None
    if len(rows) != 1:
        raise wrong(path, number, "this is no CSV: a quotation mark is not closed")
    return rows[0]


def parsed_columns(lines: Sequence[str], texts: Sequence[bool]) -> list[Sequence[str] | array[float]] | None:
    """The columns of CSV records all of whose cells are quoted, with no quotation mark in any: as numbers where pandas
    finds nothing else, as text where it does, and where `texts` says so; None where it cannot tell.
    """
    import pandas as pd

    joined = "\n".join(lines)
    if "\0" in joined:
        return None
    missing: Any = {at: _MISSING for at, text in enumerate(texts) if not text}
    try:
        found = pd.read_csv(
            io.StringIO(joined),
            header=None,
            names=range(len(texts)),
            dtype={at: str for at, text in enumerate(texts) if text},
            na_values=missing,
            keep_default_na=False,
            low_memory=False,
            index_col=False,
        )
    except (ValueError, OverflowError):
        return None
    if len(found) != len(lines):
        return None
    return [_column(found[at]) for at in range(len(texts))]


def _column(found: pd.Series[Any]) -> Sequence[str] | array[float]:
    if found.dtype.kind in "iuf":
        return array("d", found.to_numpy(dtype="float64").tobytes())
    return ["" if isinstance(cell, float) else str(cell) for cell in found.tolist()]


def records(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """The records of CSV lines, each with the number of the line it ends on."""
    found = _Records(path, lines)
    while record := found.take(1):
        yield found.line, record[0]


def batches(path: Path, lines: Iterator[str], most: int) -> Iterator[list[list[str]]]:
    """The records of CSV lines in lists of `most`, or fewer of very many cells.

    Where they stand is found again by `line_of` when that is asked.
    """
    found = _Records(path, lines)
    batch: list[list[str]] = []
    cells = 0
    while taken := found.take(min(_RECORDS_AT_ONCE, most - len(batch))):
        batch += taken
        cells += sum(map(len, taken))
        if len(batch) >= most or cells >= _CELLS_AT_ONCE:
            yield batch
            batch, cells = [], 0
    if batch:
        yield batch


class _Records:
    """The records of CSV lines; ValueError with the line for what is no CSV."""

    def __init__(self, path: Path, lines: Iterator[str]) -> None:
        self._path, self._reader = path, csv.reader(lines, strict=True)

    @property
    def line(self) -> int:
        """The line that was read last."""
        return self._reader.line_num

    def take(self, most: int) -> list[list[str]]:
        """The next ones, at most so many; none at the end."""
        try:
            return list(islice(self._reader, most))
        except csv.Error as error:
            raise wrong(self._path, self.line, f"this is no CSV: {error}") from None


def line_of(path: Path, record: int) -> int:
    """The line on which a record ends, counted from 0 with the header; of records with nothing in them none counts."""
    with opened(path) as stream:
        found = (line for line, cells in records(path, iter(Lines(path, stream))) if cells)
        return next(islice(found, record, None), 0)
