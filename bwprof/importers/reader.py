"""Read profilers' files line by line, with their kernels' names, units and numbers.

Reading is bounded, runs nothing, and every error names its line.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import stat
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from bwprof.results.csv_file import split_cells
from bwprof.text.parsing import quote_text

if TYPE_CHECKING:
    import pandas as pd

_LONGEST = 64  # letters of a short name

_READ = 1024  # of a long one

_OPENING, _CLOSING = "(<[{", ")>]}"

_UNNAMED = re.compile(r"(\(anonymous namespace\)|\(anonymous\)|<unnamed>|\{anonymous\})::")

_MARK = "\0"  # of a namespace without a name: no kernel's name holds one

_SIGNS = re.compile(r"[()<>\[\]{}, \0]")

_SCOPE = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]*::")

_CAST = re.compile(r"\([A-Za-z_][\w ]*\)(?=-?[0-9])")

_PLAIN = re.compile(
    r"(?:const )?(?:(?:un)?signed )?(?:(?:bool|char|short|int|long|float|double|void|signed|unsigned)(?: |\b))+[*& ]*"
    r"|-?[0-9]+[uUlL]*|true|false"
)


def simplify_name(kernel: str) -> str:
    """A demangled name as ncu's pages print it: without namespaces, and without the types of a template's numbers.

    Examples
    --------
    >>> simplified("void at::native::fill<(int)4, std::array<char *, (unsigned long)1>>(int, T2)")
    'void fill<4, array<char *, 1>>(int, T2)'
    """
    return _CAST.sub("", _SCOPE.sub("", _UNNAMED.sub("", kernel)))


def shorten_name(kernel: str) -> str:
    """A demangled name without what it returns and takes; of a long one without namespaces, too, and of its template
    arguments what tells kernels apart: names before numbers and plain types.

    Examples
    --------
    >>> short_name("void ns::copy<float4, (int)4>(const float4 *, float4 *, unsigned long)")
    'ns::copy<float4, (int)4>'
    >>> short_name("ampere_sgemm_128x64_tn")
    'ampere_sgemm_128x64_tn'
    >>> short_name("void at::vectorized_elementwise_kernel<4, at::FillFunctor<float>, std::array<char*, 1>>(int)")
    'vectorized_elementwise_kernel<4, FillFunctor<float>, ...>'
    """
    name = _UNNAMED.sub(_MARK, kernel[:_READ].replace(_MARK, ""))
    name = _without_returned(name.removesuffix(" [clone .kd]").strip())
    bare = _before(name, "(")
    if _MARK in bare:
        bare = bare[max((at + 1 for at in _places(bare, _MARK)), default=0) :].replace(_MARK, "")
    if len(bare) > _LONGEST and "<" in bare:
        bare = _fitted(bare)
    if len(bare) > _LONGEST:
        bare = f"{bare[: _LONGEST - 3]}..."
    return bare or kernel[:_LONGEST]


def _fitted(name: str) -> str:
    """A long name with as many of its template arguments as there is room for."""
    plain = simplify_name(name)
    if len(plain) <= _LONGEST:
        return plain
    head, given = _arguments(plain)
    named = [one for one in given if not _PLAIN.fullmatch(one)]
    fits = ""
    for listed in (given, named, [_named(one) for one in named]) if named else ():
        more = f"{head}<{', '.join(listed)}{', ...' if len(listed) < len(given) else ''}>"
        count = next((at for at, one in enumerate(listed, start=1) if not _PLAIN.fullmatch(one)), 1)
        while len(more) > _LONGEST and len(made := f"{head}<{', '.join(listed[:count])}, ...>") <= _LONGEST:
            fits, count = made, count + 1
        if len(more) <= _LONGEST:
            return more
        if fits:
            return fits
    return f"{head or _before(plain, '<')}<...>"


def _arguments(name: str) -> tuple[str, list[str]]:
    """A name before its template arguments, and these; nothing of a name that does not end with them."""
    head = _before(name, "<")
    if not (name.startswith(f"{head}<") and name.endswith(">")):
        return "", []
    inside = name[len(head) + 1 : -1].strip()
    commas = list(_places(inside, ","))
    parts = zip([-1, *commas], [*commas, len(inside)], strict=True)
    return head, [inside[start + 1 : end].strip() for start, end in parts]


def _named(argument: str) -> str:
    """A template argument without numbers and plain types in it."""
    head, given = _arguments(argument)
    kept = [_named(one) for one in given if not _PLAIN.fullmatch(one)]
    return f"{head}<{', '.join(kept)}>" if kept else head or argument


def _places(name: str, signs: str) -> Iterator[int]:
    """Where signs (brackets, blanks, commas) stand within no brackets; an opening one is outside of its own."""
    depth = 0
    for found in _SIGNS.finditer(name):
        letter = found[0]
        if not depth and letter in signs:
            yield found.start()
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING and depth:
            depth -= 1


def _outside(name: str) -> str:
    """What of a name is within no brackets."""
    parts: list[str] = []
    depth = start = 0
    for found in _SIGNS.finditer(name):
        if found[0] in _OPENING:
            if not depth:
                parts.append(name[start : found.start()])
            depth += 1
        elif found[0] in _CLOSING and depth:
            depth -= 1
            start = found.end()
    return "".join(parts if depth else [*parts, name[start:]])


def _before(name: str, sign: str) -> str:
    """A name up to the first `sign` that is within no brackets."""
    return name[: next((at for at in _places(name, sign) if at), len(name))].rstrip()


def _without_returned(name: str) -> str:
    """A name without the type before it: what ends at the last blank outside of brackets, before its parameters."""
    head = _before(name, "(")
    if "operator" in head and "operator" in _outside(head):
        return name
    return name[max((at + 1 for at in _places(head, " ")), default=0) :]


_MISSING = ["", "n/a", "nan", "no data"]  # the most frequent ones, so that their columns are numbers at once

LONGEST_LINE = 64 << 20  # letters: a launch of ncu has thousands of metrics, not millions

_MOST_FILES = 10_000

_MOST_COMMAS = 2_000_000  # in a line: each may make a cell

_CELLS_AT_ONCE = 8_000_000  # more than any reader asks for

_RECORDS_AT_ONCE = 16

_BLOCK = 1 << 20

_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # what PowerShell's > writes


def file_error(path: Path, line: int | None, said: str) -> ValueError:
    """What a malformed file raises: where, what was found, what is needed."""
    return ValueError(f"{quote_text(path)}{f', line {line}' if line else ''}: {said}")


@contextmanager
def open_binary(path: Path) -> Iterator[BufferedReader]:
    """A regular file's bytes; ValueError for what is none, so that no pipe or device is waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as raw:  # waits for nobody
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise file_error(path, None, "this is no regular file: a profiler's file is needed")
        yield raw


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A regular file as text, see `opened_raw`.

    Bytes that are no UTF-8 become U+FFFD: a kernel's name may hold some. A NUL is in no text: ValueError.
    """
    with open_binary(path) as raw:
        start = raw.peek(4096)[:4096]
        encoding = detect_encoding(start)
        if encoding != "utf-16" and b"\0" in start:
            raise file_error(path, None, "this is no text: a file that a profiler wrote as CSV or JSON is needed")
        with io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="") as stream:
            yield stream


def detect_encoding(start: bytes) -> str:
    """The encoding of a text that begins so."""
    return "utf-16" if start[:2] in _UTF16 else "utf-8-sig"


def find_csv_files(folder: Path) -> list[Path]:
    """The CSV files below a folder, by name; ValueError for a folder of very many files, which no profiler leaves."""
    found: list[Path] = []
    seen = 0
    for inner, _, names in os.walk(folder):
        seen += 1 + len(names)
        if seen > _MOST_FILES:
            raise file_error(
                folder, None, f"more than {_MOST_FILES} files lie below it: name the one that rocprof wrote to"
            )
        found += [Path(inner, name) for name in names if name.lower().endswith(".csv")]
    return sorted(found)


class FileLines:
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
        raise file_error(
            self._path, number + block.count("\n") + 1, f"it has more than {more}: no profiler writes such lines"
        )


def read_lines(path: Path, stream: TextIO) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, without their ends, each with its number.

    Raises
    ------
    ValueError
        For a line of more than `LONGEST_LINE` letters.
    """
    for number, line in enumerate(FileLines(path, stream), start=1):
        if text := line.rstrip("\r\n"):
            yield number, text


def split_cells(path: Path, number: int, text: str) -> list[str]:
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
        rows = split_cells(text, strict=True)
    except csv.Error as error:
        raise file_error(path, number, f"this is no CSV: {error}") from None
    if len(rows) != 1:
        raise file_error(path, number, "this is no CSV: a quotation mark is not closed")
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


def read_records(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """The records of CSV lines, each with the number of the line it ends on."""
    found = _Records(path, lines)
    while record := found.take(1):
        yield found.line, record[0]


def file_error(path: Path, lines: Iterator[str], most: int) -> Iterator[list[list[str]]]:
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
            raise file_error(self._path, self.line, f"this is no CSV: {error}") from None


def read_complete(path: Path, record: int) -> int:
    """The line on which a record ends, counted from 0 with the header; of records with nothing in them none counts."""
    with open_text(path) as stream:
        found = (line for line, cells in read_records(path, iter(FileLines(path, stream))) if cells)
        return next(islice(found, record, None), 0)


MISSING = frozenset({"", "-", "n/a", "na", "nan", "-nan", "none", "null", "no data", "inf", "-inf", "+inf", "infinity"})

# 49 152 bytes of shared memory are "49.15 Kbyte" to ncu: its prefixes are powers of ten.
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}

_SECONDS = {"ns": 10**9, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**3, "s": 1}  # parts of a second

_LONG_SECONDS = re.compile(r"(n|u|m|)sec(?:ond)?s?")

_SCALED = re.compile(r"([kmgt]i?)?(byte|hz)s?")


class Unit(NamedTuple):
    """What a figure is multiplied with and divided by to be in `base`: byte, s, hz, byte/s, %, or as it was written."""

    times: float
    over: float
    base: str

    @property
    def is_scaled(self) -> bool:
        """Whether figures are shortened to be in it: ncu's own units are byte, ns and hz."""
        return self.times > 1 or self.over in (10**3, 10**6)

    def of(self, value: float) -> float:
        """A figure in base units."""
        return value * self.times / self.over


@lru_cache(maxsize=4096)
def parse_unit(written: str) -> Unit:
    """The unit that a profiler wrote: Kbyte, usecond, Gbyte/second, cycle/nsecond, %; unknown ones stay as they are.

    Examples
    --------
    >>> unit("Mbyte"), unit("us").base, unit("Gbyte/second").of(2.5), unit("inst/cycle").base
    (Unit(times=1000000, over=1, base='byte'), 's', 2500000000.0, 'inst/cycle')
    """
    told = written.strip()
    upper, slash, lower = told.partition("/")
    above, below = _simple(upper), _simple(lower)
    base = f"{above.base}{slash}{below.base}"
    return Unit(above.times * below.over, above.over * below.times, "hz" if base in ("cycle/s", "1/s") else base)


def _simple(written: str) -> Unit:
    told = written.strip()
    lowered = told.lower()
    if long := _LONG_SECONDS.fullmatch(lowered):
        lowered = f"{long[1]}s"
    if lowered in _SECONDS:
        return Unit(1, _SECONDS[lowered], "s")
    if scaled := _SCALED.fullmatch(lowered):
        return Unit(_PREFIXES[scaled[1] or ""], 1, scaled[2])
    return Unit(1, 1, told)


_DIGITS = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+"

_EXPONENT = r"(?:[eE][-+]?[0-9]{1,4})?"

_NUMBER = re.compile(rf"[-+]?(?:(?:{_DIGITS})(?:\.[0-9]*)?|\.[0-9]+){_EXPONENT}")

_COLUMN = re.compile(rf"(?:(?:[-+]?(?:{_DIGITS})(?:\.[0-9]*)?)?\n)*")  # of plain or grouped numbers, or nothing

_SPACED = re.compile("(?<=[0-9])['\u2019\u00a0\u2009\u202f ](?=[0-9]{3})")

_INSTANCES = re.compile(r"([^\s(]+)\s+\(.*\)", re.DOTALL)  # --print-metric-instances: 12 (3; 4; 5)

_SWAPPED = str.maketrans(",.", ".,")


def is_missing(written: str) -> bool:
    """Whether a cell says that there is no figure."""
    told = written.strip()
    return told.lower() in MISSING or told.startswith("(!)")


def parse_number(written: str, *, decimal_comma: bool = False) -> float | None:
    """The number of a cell; NaN where nothing was measured (empty, n/a, no finite number), None where it is text.

    Of a metric with its instances the aggregate is meant.

    Examples
    --------
    >>> number("1,073,741,824"), number("88,59", decimal_comma=True), number("n/a"), number("CachePreferNone")
    (1073741824.0, 88.59, nan, None)
    """
    told = written.strip()
    if decimal_comma or not _NUMBER.fullmatch(told):  # most are plain numbers
        if is_missing(told):
            return math.nan
        if found := _INSTANCES.fullmatch(told):
            told = found[1]
        if decimal_comma:
            told = told.translate(_SWAPPED)
        if not _NUMBER.fullmatch(told):
            told = _SPACED.sub("", told)
            if not _NUMBER.fullmatch(told):
                return None
    value = float(told.replace(",", ""))
    return value if math.isfinite(value) else math.nan


def numbers(cells: Sequence[str], *, decimal_comma: bool = False) -> array[float] | None:
    """The numbers of many cells at once; None where one of them is not plainly one: `number` tells."""
    if not decimal_comma:
        try:
            return array("d", map(float, cells))
        except ValueError:
            pass
    joined = "\n".join(cells)
    if len(joined) < len(cells):
        return array("d", [math.nan]) * len(cells)
    if decimal_comma:
        joined = joined.translate(_SWAPPED)
    if joined.count("\n") != len(cells) - 1 or not _COLUMN.fullmatch(f"{joined}\n"):
        return None
    plain = joined.replace(",", "").split("\n")
    return array("d", [float(cell) if cell else math.nan for cell in plain])


_COMMA_ENDS = re.compile(r"[-+]?(?:[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]*|[0-9]+,(?:[0-9]{1,2}|[0-9]{4,}))")

_POINT_ENDS = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]*|[0-9]+\.(?:[0-9]{1,2}|[0-9]{4,}))")


def has_decimal_comma(cells: Iterable[str]) -> bool:
    """Whether figures were written with a decimal comma, "1.234,56": some can be nothing else, and none has a point."""
    found = False
    for written in cells:
        cell = _SPACED.sub("", written) if "," in written else written
        if _POINT_ENDS.fullmatch(cell):
            return False
        found = found or ("," in cell and bool(_COMMA_ENDS.fullmatch(cell)))
    return found
