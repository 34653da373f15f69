"""Read profilers' files line by line; parse their kernel names, units and numbers.

Reading is bounded and runs nothing. Every error names its line.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import numpy as np

from bwprof.results.csv_file import split_cells
from bwprof.text.parsing import quote_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST = 64  # letters of a short name
_READ = 1024  # letters of a long name that are read
_OPENING, _CLOSING = "(<[{", ")>]}"
_MARK = "\0"  # replaces a namespace without a name: no kernel's name holds a NUL
_UNNAMED = re.compile(r"(\(anonymous namespace\)|\(anonymous\)|<unnamed>|\{anonymous\})::")
_SIGNS = re.compile(r"[()<>\[\]{}, \0]")
_BRACKETS = re.compile(r"([()<>\[\]{}])")
_SCOPE = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]*::")
_CAST = re.compile(r"\([A-Za-z_][\w ]*\)(?=-?[0-9])")
_WORD = re.compile(r"[A-Za-z_]\w*")
_PLAIN = re.compile(
    r"(?:const )?(?:(?:un)?signed )?(?:(?:bool|char|short|int|long|float|double|void|signed|unsigned)(?: |\b))+[*& ]*"
    r"|-?[0-9]+[uUlL]*|true|false"
)


def simplify_name(kernel: str) -> str:
    """Remove namespaces, and the types of template numbers, from a demangled name, as ncu's pages do.

    Examples
    --------
    >>> simplify_name("void at::native::fill<(int)4, std::array<char *, (unsigned long)1>>(int, T2)")
    'void fill<4, array<char *, 1>>(int, T2)'
    """
    return _CAST.sub("", _SCOPE.sub("", _UNNAMED.sub("", kernel)))


def shorten_name(kernel: str) -> str:
    """Remove the return type and the parameters from a demangled name.

    A name that is still too long loses its namespaces, then template arguments: numbers and plain types first.

    Examples
    --------
    >>> shorten_name("void ns::copy<float4, (int)4>(const float4 *, float4 *, unsigned long)")
    'ns::copy<float4, (int)4>'
    >>> shorten_name("ampere_sgemm_128x64_tn")
    'ampere_sgemm_128x64_tn'
    >>> shorten_name("void at::vectorized_elementwise_kernel<4, at::FillFunctor<float>, std::array<char*, 1>>(int)")
    'vectorized_elementwise_kernel<4, FillFunctor<float>, ...>'
    """
    name = _UNNAMED.sub(_MARK, kernel[:_READ].replace(_MARK, ""))
    name = _cut(_without_return_type(name.removesuffix(" [clone .kd]").strip()), "(")
    if _MARK in name:
        name = name[max((at + 1 for at in _places(name, _MARK)), default=0) :].replace(_MARK, "")
    if len(name) > _LONGEST and "<" in name:
        name = _fit_arguments(name)
    if len(name) > _LONGEST:
        name = f"{name[: _LONGEST - 3]}..."
    return name or kernel[:_LONGEST]


def base_name(kernel: str) -> str | None:
    """Return a kernel's bare name, as ``ncu --kernel-name`` filters by it; None where it is no plain word.

    Examples
    --------
    >>> base_name("void ns::copy<float4, (int)4>(const float4 *, float4 *)")
    'copy'
    """
    words = _outside(_cut(_UNNAMED.sub("", kernel), "(")).split()
    name = words[-1].rpartition("::")[2] if words else ""
    return name if _WORD.fullmatch(name) and name != "operator" else None


def _fit_arguments(name: str) -> str:
    """Shorten a name to as many of its template arguments as fit."""
    plain = simplify_name(name)
    if len(plain) <= _LONGEST:
        return plain
    head, arguments = _split_arguments(plain)
    special = [argument for argument in arguments if not _PLAIN.fullmatch(argument)]
    for choice in (arguments, special, [_special_part(argument) for argument in special]) if special else ():
        more = ", ..." if len(choice) < len(arguments) else ""
        fitting = [f"{head}<{', '.join(choice)}{more}>"]
        first = next((at for at, argument in enumerate(choice, start=1) if not _PLAIN.fullmatch(argument)), 1)
        fitting += [f"{head}<{', '.join(choice[:count])}, ...>" for count in range(len(choice), first - 1, -1)]
        if found := next((text for text in fitting if len(text) <= _LONGEST), None):
            return found
    return f"{head or _cut(plain, '<')}<...>"


def _split_arguments(name: str) -> tuple[str, list[str]]:
    """Split a name that ends with template arguments into the part before and the arguments."""
    head = _cut(name, "<")
    if not (name.startswith(f"{head}<") and name.endswith(">")):
        return "", []
    inside = name[len(head) + 1 : -1].strip()
    commas = list(_places(inside, ","))
    parts = zip([-1, *commas], [*commas, len(inside)], strict=True)
    return head, [inside[start + 1 : end].strip() for start, end in parts]


def _special_part(argument: str) -> str:
    """Remove numbers and plain types from a template argument."""
    head, arguments = _split_arguments(argument)
    special = [_special_part(inner) for inner in arguments if not _PLAIN.fullmatch(inner)]
    return f"{head}<{', '.join(special)}>" if special else head or argument


def _places(name: str, signs: str) -> Iterator[int]:
    """Find signs (brackets, blanks, commas) outside all brackets; an opening bracket is outside of its own."""
    depth = 0
    for match in _SIGNS.finditer(name):
        letter = match[0]
        if not depth and letter in signs:
            yield match.start()
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING and depth:
            depth -= 1


def _outside(name: str) -> str:
    """Remove all brackets and their contents."""
    parts, depth = [], 0
    for part in _BRACKETS.split(name):
        if part and part in _OPENING:
            depth += 1
        elif part and part in _CLOSING:
            depth = max(0, depth - 1)
        elif not depth:
            parts.append(part)
    return "".join(parts)


def _cut(name: str, sign: str) -> str:
    """Cut a name at the first `sign` outside brackets, its first letter aside."""
    return name[: next((at for at in _places(name, sign) if at), len(name))].rstrip()


def _without_return_type(name: str) -> str:
    head = _cut(name, "(")
    if "operator" in head and "operator" in _outside(head):
        return name
    return name[max((at + 1 for at in _places(head, " ")), default=0) :]


LONGEST_LINE = 64 << 20  # letters: a launch of ncu has thousands of metrics, not millions
_MOST_FILES = 10_000
_MOST_COMMAS = 2_000_000  # in a line: each may make a cell
_BLOCK = 1 << 20
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # PowerShell's > writes it


def file_error(path: Path, line: int | None, problem: str) -> ValueError:
    """Return the error for a malformed file, with the file and the line."""
    return ValueError(f"{quote_text(path)}{f', line {line}' if line else ''}: {problem}")


@contextmanager
def open_binary(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file; ValueError for a pipe or a device, which could block for ever."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as raw:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise file_error(path, None, "this is no regular file: a profiler's file is needed")
        yield raw


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a regular file as text; ValueError for one with NULs.

    Bytes that are no UTF-8 become U+FFFD: kernels' names may hold some.
    """
    with open_binary(path) as raw:
        start = raw.peek(4096)[:4096]
        encoding = detect_encoding(start)
        if encoding != "utf-16" and b"\0" in start:
            raise file_error(path, None, "this is no text: a file that a profiler wrote as CSV or JSON is needed")
        with io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="") as stream:
            yield stream


def detect_encoding(start: bytes) -> str:
    """Return the encoding of a text that begins with these bytes."""
    return "utf-16" if start[:2] in _UTF16 else "utf-8-sig"


def find_csv_files(folder: Path) -> list[Path]:
    """Return the CSV files below a folder, by name; ValueError where more than 10 000 files lie there."""
    paths: list[Path] = []
    seen = 0
    for inner, _, names in os.walk(folder):
        seen += 1 + len(names)
        if seen > _MOST_FILES:
            raise file_error(folder, None, f"more than {_MOST_FILES} files lie below it: name rocprof's own folder")
        paths += [Path(inner, name) for name in names if name.lower().endswith(".csv")]
    return sorted(paths)


class FileLines:
    """Iterate over a file's lines, none longer than `LONGEST_LINE`.

    `ended` is whether the last line that was read has its line end.
    """

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
                excess = f"{LONGEST_LINE} letters" if len(rest) == LONGEST_LINE else ""
                if not excess and rest.count(",") > _MOST_COMMAS:
                    excess = f"{_MOST_COMMAS} commas"
                if excess:
                    line = number + block.count("\n") + 1
                    raise file_error(self._path, line, f"it has more than {excess}: no profiler writes such lines")
                block += rest
            self.ended = block[-1] == "\n"
            lines = [f"{line}\n" for line in block.split("\n")]
            number += len(lines) - 1
            yield lines[:-1] if self.ended else lines


def read_lines(path: Path, stream: TextIO) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, without their ends, each with its number."""
    for number, line in enumerate(FileLines(path, stream), start=1):
        if text := line.rstrip("\r\n"):
            yield number, text


def split_fields(path: Path, number: int, text: str) -> list[str]:
    """Split the CSV record of line `number`; ValueError for what is no CSV."""
    if text[:1] == '"' == text[-1:]:
        fields = text[1:-1].split('","')
        if text.count('"') == 2 * len(fields):  # every cell is quoted, and none holds a quotation mark
            return fields
    try:
        rows = split_cells(text, strict=True)
    except csv.Error as error:
        raise file_error(path, number, f"this is no CSV: {error}") from None
    if len(rows) != 1:
        raise file_error(path, number, "this is no CSV: a quotation mark is not closed")
    return rows[0]


def read_records(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of CSV lines, each with the number of the line it ends on."""
    reader = csv.reader(lines, strict=True)
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error as error:
        raise file_error(path, reader.line_num, f"this is no CSV: {error}") from None


def read_complete(
    path: Path, lines: FileLines, notes: list[str], *, unended: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and the records of its width, each with its line.

    A last line that is cut off is left out, with a note; `unended`: one that has all cells counts.
    """
    width = 0
    last: tuple[int, list[str]] | None = None
    for record in read_records(path, iter(lines)):
        if record[1]:
            if last is not None:
                width = width or len(last[1])
                check_width(path, last, width)
                yield last
            last = record
    if last is None:
        return
    if not lines.ended:
        if not unended or len(last[1]) < width:
            notes.append(f"line {last[0]} is cut off and left out: the file is not whole")
            return
        notes.append("the last line has no end: if the file was cut off there, so may its last figure be")
    check_width(path, last, width or len(last[1]))
    yield last


def check_width(path: Path, record: tuple[int, list[str]], width: int) -> None:
    """Refuse a record with more or fewer cells than the header."""
    line, cells = record
    if len(cells) != width:
        raise file_error(path, line, f"it has {len(cells)} cells where the header has {width}: the file is damaged")


_MISSING = {"", "-", "n/a", "na", "nan", "-nan", "none", "null", "no data", "inf", "-inf", "+inf", "infinity"}

# 49 152 bytes of shared memory are "49.15 Kbyte" to ncu: its prefixes are powers of ten.
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"ns": 10**9, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**3, "s": 1}  # parts of a second
_LONG_SECONDS = re.compile(r"(n|u|m|)sec(?:ond)?s?")
_SCALED = re.compile(r"([kmgt]i?)?(byte|hz)s?")


class Unit(NamedTuple):
    """The factor and the divisor that turn a figure into `base`: byte, s, hz, byte/s, %, or the unit as written."""

    times: float
    over: float
    base: str

    @property
    def is_scaled(self) -> bool:
        """Whether figures in this unit are rounded: ncu's own units are byte, ns and hz."""
        return self.times > 1 or self.over in (10**3, 10**6)

    def of(self, value: float) -> float:
        """Convert a figure to base units."""
        return value * self.times / self.over


@lru_cache(maxsize=4096)
def parse_unit(written: str) -> Unit:
    """Parse a profiler's unit: Kbyte, usecond, Gbyte/second, cycle/nsecond, %; unknown ones stay as they are.

    Examples
    --------
    >>> parse_unit("Mbyte"), parse_unit("us").base, parse_unit("Gbyte/second").of(2.5), parse_unit("inst/cycle").base
    (Unit(times=1000000, over=1, base='byte'), 's', 2500000000.0, 'inst/cycle')
    """
    upper, slash, lower = written.strip().partition("/")
    above, below = _parse_simple_unit(upper), _parse_simple_unit(lower)
    base = f"{above.base}{slash}{below.base}"
    return Unit(above.times * below.over, above.over * below.times, "hz" if base in ("cycle/s", "1/s") else base)


def _parse_simple_unit(written: str) -> Unit:
    text = written.strip()
    lowered = text.lower()
    if long := _LONG_SECONDS.fullmatch(lowered):
        lowered = f"{long[1]}s"
    if lowered in _SECONDS:
        return Unit(1, _SECONDS[lowered], "s")
    if scaled := _SCALED.fullmatch(lowered):
        return Unit(_PREFIXES[scaled[1] or ""], 1, scaled[2])
    return Unit(1, 1, text)


_DIGITS = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+"
_NUMBER = re.compile(rf"[-+]?(?:(?:{_DIGITS})(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,4}})?")
_SPACED = re.compile("(?<=[0-9])['\u2019\u00a0\u2009\u202f ](?=[0-9]{3})")
_INSTANCES = re.compile(r"([^\s(]+)\s+\(.*\)", re.DOTALL)  # --print-metric-instances: 12 (3; 4; 5)
_SWAPPED = str.maketrans(",.", ".,")
_COMMA_ENDS = re.compile(r"[-+]?(?:[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]*|[0-9]+,(?:[0-9]{1,2}|[0-9]{4,}))")
_POINT_ENDS = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]*|[0-9]+\.(?:[0-9]{1,2}|[0-9]{4,}))")


def is_missing(written: str) -> bool:
    """Whether a cell means that there is no figure."""
    text = written.strip()
    return text.lower() in _MISSING or text.startswith("(!)")


def parse_number(written: str, *, decimal_comma: bool = False) -> float | None:
    """Parse a cell: NaN for a missing or infinite figure, None for text. Of a metric's instances take the aggregate.

    Examples
    --------
    >>> parse_number("1,073,741,824"), parse_number("88,59", decimal_comma=True)
    (1073741824.0, 88.59)
    >>> parse_number("n/a"), parse_number("CachePreferNone")
    (nan, None)
    """
    text = written.strip()
    if decimal_comma or not _NUMBER.fullmatch(text):  # most are plain numbers
        if is_missing(text):
            return math.nan
        if match := _INSTANCES.fullmatch(text):
            text = match[1]
        if decimal_comma:
            text = text.translate(_SWAPPED)
        if not _NUMBER.fullmatch(text):
            text = _SPACED.sub("", text)
            if not _NUMBER.fullmatch(text):
                return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else math.nan


def parse_numbers(cells: Sequence[str], *, decimal_comma: bool = False) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Parse a column's cells as `parse_number` does; return its figures, and the cells that are text by their place."""
    if not decimal_comma:  # nearly all columns are plain numbers
        with suppress(ValueError):
            return np.array(list(map(float, cells))), {}
        if all(map(_NUMBER.fullmatch, cells)):
            return np.array([float(cell.replace(",", "")) for cell in cells]), {}
    values = [parse_number(cell, decimal_comma=decimal_comma) for cell in cells]
    texts = {at: cells[at] for at, value in enumerate(values) if value is None}
    return np.array(values, np.float64), texts


def has_decimal_comma(cells: Iterable[str]) -> bool:
    """Whether figures have a decimal comma, "1.234,56": some can be nothing else, and none has a decimal point."""
    found = False
    for written in cells:
        cell = _SPACED.sub("", written) if "," in written else written
        if _POINT_ENDS.fullmatch(cell):
            return False
        found = found or ("," in cell and bool(_COMMA_ENDS.fullmatch(cell)))
    return found
