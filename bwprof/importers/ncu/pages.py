"""ncu's pages: raw (a line for each launch) and details (a line for each metric), as CSV and as text."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from bwprof.importers.ncu.launches import IDENTITY, KERNEL_NAMES, MOST_COLUMNS, PageLaunches
from bwprof.importers.reader import (
    LONGEST_LINE,
    Unit,
    file_error,
    has_decimal_comma,
    open_text,
    parse_unit,
    parsed_columns,
    read_lines,
    split_cells,
)

_LONGEST = 1 << 16  # letters of a line that is looked at

_LAUNCH = re.compile(
    r"\s*(?P<name>\S.*?)"
    r"(?: (?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\)))?"
    r"(?:, \d{4}-\w+-\d+ [\d:]+)?, Context (?P<context>\d+), Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>[\d.]+))?\s*",
    re.ASCII,
)

_PROCESS_LINE = re.compile(r"\s*\[(\d+)\] (.*)@(\S+)\s*", re.ASCII)

_RULER = re.compile(r"\s*-{3,}(?: +-{3,}){2,}\s*")

_COLUMN = re.compile("-{3,}")

_NEEDED = (
    'this is no page of ncu: a line that begins with "ID" is needed, as ncu --csv --page raw (or details) prints it, '
    "or a page that it printed as text"
)


class TextPage:
    """Lines of a text, one after the other, and the launches in them."""

    def __init__(self, path: Path) -> None:
        self._launches = PageLaunches(path, "text")
        self._process: dict[str, str] = {}
        self._columns: list[tuple[int, int]] = []
        self._before = 0  # the number of the line before this one

    def take(self, line: int, text: str) -> None:
        """The next line."""
        if line != self._before + 1:  # an empty one ends a table
            self._columns = []
        self._before = line
        if len(text) > _LONGEST or not text.strip():
            self._columns = []
        elif ", Context " in text and (found := _LAUNCH.fullmatch(text)):
            self._begin(found.groupdict())
        elif text.lstrip()[:1] == "[" and (found := _PROCESS_LINE.fullmatch(text)):
            self._process = dict(zip(("Process ID", "Process Name", "Host Name"), found.groups(), strict=True))
        elif self._launches.count and _RULER.fullmatch(text):
            self._columns = [found.span() for found in _COLUMN.finditer(text)]
        elif self._columns:
            self._row(line, text)

    def _begin(self, found: dict[str, str | None]) -> None:
        named = {
            "ID": str(self._launches.count),
            **self._process,
            "Kernel Name": found["name"],
            "Context": found["context"],
            "Stream": found["stream"],
            "Block Size": found["block"],
            "Grid Size": found["grid"],
            "Device": found["device"],
            "CC": found["cc"],
        }
        self._launches.begin({name: text for name, text in named.items() if text is not None})
        self._columns = []

    def _row(self, line: int, text: str) -> None:
        """A metric: its name, its unit, its value (of a summary the last: the average)."""
        (first, end), (unit_first, unit_end), (value_first, _) = self._columns[0], self._columns[1], self._columns[-1]
        name, of, value = text[first:end].strip(), text[unit_first:unit_end].strip(), text[value_first:].strip()
        if name and value and name != "Metric Name":
            launches = self._launches
            launches.put(line, launches.count - 1, launches.shared(name), value, parse_unit(of))

    def finish(self) -> PageLaunches:
        """The launches; ValueError where there is none, or nothing is known of any."""
        if not self._launches.count or not self._launches.metrics:
            raise file_error(self._launches.path, None, _NEEDED)
        self._launches.told.append("read from text that was printed for people: figures are rounded")
        return self._launches.finish()


_HEADER = re.compile(r'\s*"?(?:ID|Process ID)"?\s*,')

_NAME = re.compile(r"[a-z][a-z0-9]*__[\w.:]+")  # a metric's own name, beside its label (--print-metric-name label-name)

_AT_ONCE = 200_000  # cells that are turned into numbers at once

_LETTERS_AT_ONCE = 16 << 20  # or letters

_SNIFFED_ROWS = 16

_SNIFFED = 4096  # lines of a details page that say how figures are written

_NANOSECONDS = re.compile("gpu__time_")  # of a page without units: ncu's base unit of times

_CUT_OFF = "the last line is cut off and left out"

_TABLES = "a line of a section's own table was left out"

_PROCESS = "Process ID"

_OTHERS = "a line that is not the table's (the program's own output, say) was left out"


def read_page(path: Path) -> PageLaunches:
    """The launches of a file that ncu printed.

    Raises
    ------
    ValueError
        For anything else, with the line; OSError for what cannot be opened.
    """
    with open_text(path) as stream:
        lines = read_lines(path, stream)
        printed = TextPage(path)
        for line, text in lines:
            if _HEADER.match(text) and not text.startswith("=="):
                header = [name.strip() for name in split_cells(path, line, text)]
                if any(name in header for name in KERNEL_NAMES):
                    return _table(path, lines, line, header, quotes=text.startswith('"'))
            printed.take(line, text)
        return printed.finish()


def _table(path: Path, lines: Iterator[tuple[int, str]], line: int, header: list[str], *, quotes: bool) -> PageLaunches:
    if "Metric Name" in header:
        page: _Raw | _Details = _Details(path, line, header)
    else:
        page = _Raw(path, line, header)
    last: ValueError | None = None
    for at, text in _records(page, lines, quotes=quotes):
        if last is not None:
            raise last
        try:
            page.read(at, text)
        except _ShortError as error:  # a file that is cut off has one such line, the last
            last = error
    if last is not None:
        if not page.has_launches:
            raise last
        page.launches.told.append(_CUT_OFF)
    return page.finish()


class _ShortError(ValueError):
    """A record with fewer cells than the header, or one that does not end."""


def _records(page: _Page, lines: Iterator[tuple[int, str]], *, quotes: bool) -> Iterator[tuple[int, str]]:
    """CSV records without what ncu and the program print between them; a quoted cell may have several lines.

    `quotes`: every record begins with a quotation mark, as the header did.
    """
    parts: list[str] = []
    size = start = line = 0
    for line, text in lines:
        if parts:
            parts.append(text)
            size += len(text)
            if size > LONGEST_LINE:
                raise file_error(page.path, start, "a quotation mark is not closed")
            if text.count('"') % 2:
                yield start, "\n".join(parts)
                parts = []
        elif text[:1] != '"' and (text.startswith("==") or not text.strip()):
            continue
        elif text[:1] != '"' and (quotes or "," not in text):
            page.launches.left_out[_OTHERS] += 1
        elif text.count('"') % 2:
            parts, start, size = [text], line, len(text)
        else:
            yield line, text
    if parts:
        if not page.has_launches:
            raise file_error(page.path, start, "the file ends within this line: a quotation mark is not closed")
        page.launches.told.append(_CUT_OFF)


class _Page:
    """A table that is being read, and its header."""

    def __init__(self, path: Path, kind: str, line: int, header: list[str]) -> None:
        self.path = path
        self.launches = PageLaunches(path, kind)
        self.begin(line, header)

    @property
    def has_launches(self) -> bool:
        return self.launches.count > 0

    def begin(self, line: int, header: list[str]) -> None:
        """A header: the first one, or another's, where files were put behind each other."""
        if len(header) > MOST_COLUMNS:
            raise file_error(self.path, line, f"{len(header)} columns: no page of ncu has more than {MOST_COLUMNS}")
        twice = len(header) - len(set(header))
        if twice:
            self.launches.told.append(f"of {twice} columns that are there twice the first was read")
        self.header = header

    def read(self, line: int, text: str) -> None:
        """A record: a launch, a metric, or a header."""
        found = split_cells(self.path, line, text)
        if found[0].strip() == self.header[0]:
            header = [name.strip() for name in found]
            if ("Metric Name" in header) != ("Metric Name" in self.header):
                raise file_error(
                    self.path, line, "a page of another kind begins here: read each one as a file of its own"
                )
            self.begin(line, header)
        else:
            self.take(line, found)

    def take(self, line: int, found: list[str]) -> None:
        """The cells of a record that is no header."""
        raise NotImplementedError

    def fit(self, line: int, found: list[str], least: int) -> None:
        """ValueError for a record that has too few cells, or more than the header."""
        if len(found) < least:
            raise _ShortError(file_error(self.path, line, f"{len(found)} cells for {len(self.header)} columns"))
        if len(found) > len(self.header) and any(found[len(self.header) :]):
            raise file_error(self.path, line, f"{len(found)} cells for {len(self.header)} columns")


class _Raw(_Page):
    """``--page raw``: a header, a row of units, then a line a launch."""

    def __init__(self, path: Path, line: int, header: list[str]) -> None:
        self._rows: list[list[str]] = []  # launches that wait to be taken together: their cells,
        self._texts: list[str] = []  # or, where all cells are quoted and none holds a quotation mark, their lines
        self._letters = 0
        self._units: list[Unit | None] | None = None
        self._sniffed = False
        super().__init__(path, "raw", line, header)

    @property
    def has_launches(self) -> bool:
        return bool(self._rows or self._texts) or super().has_launches

    def read(self, line: int, text: str) -> None:
        columns = len(self.header)
        plain = text[:1] == '"' == text[-1:] and text.count('","') == columns - 1 and text.count('"') == 2 * columns
        if not plain or self._units is None or text.startswith((self._again, '""')):
            super().read(line, text)
            return
        if self._rows:
            self._flush(line)
        self._texts.append(text)
        self._line = line
        self._letters += len(text)
        if self._letters >= _LETTERS_AT_ONCE:
            self._flush(line)

    def begin(self, line: int, header: list[str]) -> None:
        self._flush(line)
        super().begin(line, header)
        self._units = None
        self._again = f'"{header[0]}"'
        names = [self.launches.shared(name or f"column {number}") for number, name in enumerate(header, start=1)]
        self._columns: dict[str, int] = {}
        for at, name in enumerate(names):
            self._columns.setdefault(name, at)

    def take(self, line: int, found: list[str]) -> None:
        self.fit(line, found, len(self.header))
        if self._units is None:
            has_units = not found[0].strip()
            self._units = self._units_of(found if has_units else [""] * len(self.header), has_units=has_units)
            if has_units:
                return
            self.launches.told.append("the page has no row of units: figures were taken in ncu's base units")
        if not found[0].strip() and not any(cell.strip() for cell in found):
            return
        if self._texts:
            self._flush(line)
        self._rows.append(found if len(found) == len(self.header) else found[: len(self.header)])
        self._line = line
        if len(self._rows) * len(found) >= _AT_ONCE:
            self._flush(line)

    def _units_of(self, found: list[str], *, has_units: bool) -> list[Unit | None]:
        named = zip(self.header, found, strict=False)
        base = [
            parse_unit("ns") if _NANOSECONDS.match(name) and not has_units else parse_unit(cell) for name, cell in named
        ]
        return [
            None if name in IDENTITY or "Domain:" in name else one for name, one in zip(self.header, base, strict=True)
        ]

    def _flush(self, line: int) -> None:
        if not (self._rows or self._texts) or self._units is None:
            return
        if not self._sniffed:
            first = self._rows[:_SNIFFED_ROWS] or [
                split_cells(self.path, line, text) for text in self._texts[:_SNIFFED_ROWS]
            ]
            figures = (cell for row in first for cell, one in zip(row, self._units, strict=True) if one is not None)
            self.launches.decimal_comma = has_decimal_comma(figures)
            self._sniffed = True
        texts, self._texts, self._letters = self._texts, [], 0
        columns: Sequence[Sequence[str] | array[float]] | None = None
        if texts and not self.launches.decimal_comma:
            columns = parsed_columns(texts, [one is None for one in self._units])
        if columns is None:
            self._rows = self._rows or [split_cells(self.path, line, text) for text in texts]
            columns = list(zip(*self._rows, strict=True))
        self._rows = []
        self.launches.add(line, [(name, self._units[at], columns[at]) for name, at in self._columns.items()])

    def finish(self) -> PageLaunches:
        self._flush(self._line if self.has_launches else 0)
        if not self.launches.count:
            raise file_error(self.path, None, "no launch stands below the header: did ncu profile any kernel?")
        return self.launches.finish()


class _Details(_Page):
    """``--page details``: a line for each metric of each launch; with --print-summary for each kernel."""

    def __init__(self, path: Path, line: int, header: list[str]) -> None:
        self._first: list[tuple[int, list[str]]] | None = []
        self._known: dict[tuple[str, ...], int] = {}
        self._names: dict[str, str] = {}  # of metrics: as they are written, and as they are kept
        self._last: list[str] = []
        self._launch = -1
        super().__init__(path, "summary" if "Average" in header else "details", line, header)

    @property
    def has_launches(self) -> bool:
        return bool(self._first) or super().has_launches

    def begin(self, line: int, header: list[str]) -> None:
        self._sniff()
        super().begin(line, header)
        value = "Average" if "Average" in header and "Metric Value" not in header else "Metric Value"
        needed = ("Metric Name", "Metric Unit", value)
        if missing := [name for name in needed if name not in header]:
            raise file_error(self.path, line, f"the header lacks {', '.join(missing)}")
        self._name, self._unit, self._value = (header.index(name) for name in needed)
        self._who = min(self._name, header.index("Section Name") if "Section Name" in header else self._name)
        self._least = max(self._name, self._unit, self._value) + 1
        self._known.clear()
        self._last = []

    def take(self, line: int, found: list[str]) -> None:
        if len(found) < self._least and self._is_foreign(found):
            self.launches.left_out[_TABLES] += 1
            return
        self.fit(line, found, self._least)
        if self._first is None:
            self._put(line, found)
            return
        self._first.append((line, found[: len(self.header)]))  # a tail of empty cells may be any length
        if len(self._first) >= _SNIFFED:
            self._sniff()

    def _is_foreign(self, found: list[str]) -> bool:
        """Whether a record is of a section's own table (--print-details all), and not a launch's that was cut off."""
        at = self.header.index(_PROCESS) if _PROCESS in self.header else len(found)
        return at < len(found) and not found[at].strip().isdecimal()

    def _sniff(self) -> None:
        """How figures are written is known: what was kept back is taken."""
        if self._first:
            kept, self._first = self._first, None
            self.launches.decimal_comma = has_decimal_comma(found[self._value] for _, found in kept)
            for line, found in kept:
                self._put(line, found)

    def _put(self, line: int, found: list[str]) -> None:
        launches = self.launches
        who = found[: self._who]
        if who != self._last:
            self._last = who
            known = self._known.get(tuple(who))
            if known is None:
                named = zip(self.header, who, strict=False)
                known = self._known[tuple(who)] = launches.begin({launches.shared(name): cell for name, cell in named})
            self._launch = known
        written = found[self._name]
        if not written:
            launches.left_out["a rule's remark was left out"] += 1
            return
        name = self._names.get(written)
        if name is None:
            own = _NAME.search(written) if " " in written else None
            name = self._names[written] = launches.shared(own[0] if own else written)
        launches.put(line, self._launch, name, found[self._value], parse_unit(found[self._unit]))

    def finish(self) -> PageLaunches:
        self._sniff()
        if not self.launches.count:
            raise file_error(self.path, None, "no launch stands below the header: did ncu profile any kernel?")
        if self.launches.page == "summary":
            self.launches.told.append("a summary: each row is the average of several launches")
        return self.launches.finish()
