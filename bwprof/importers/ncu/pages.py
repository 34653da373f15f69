"""Read ncu's pages: raw (a line for each launch) and details (a line for each metric), as CSV and as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bwprof.importers.ncu.launches import IDENTITY, KERNEL_NAMES, MOST_COLUMNS, PageLaunches
from bwprof.importers.reader import (
    LONGEST_LINE,
    Unit,
    file_error,
    has_decimal_comma,
    open_text,
    parse_unit,
    read_lines,
    split_fields,
)

_LONGEST = 1 << 16  # letters of a line of text that is parsed
_LAUNCH = re.compile(
    r"\s*(\S.*?)(?: (\(\d+, \d+, \d+\))x(\(\d+, \d+, \d+\)))?(?:, \d{4}-\w+-\d+ [\d:]+)?"
    r", Context (\d+), Stream (\d+)(?:, Device (\d+))?(?:, CC ([\d.]+))?\s*",
    re.ASCII,
)
_LAUNCH_COLUMNS = ("Kernel Name", "Grid Size", "Block Size", "Context", "Stream", "Device", "CC")
_PROCESS_LINE = re.compile(r"\s*\[(\d+)\] (.*)@(\S+)\s*", re.ASCII)
_RULER = re.compile(r"\s*-{3,}(?: +-{3,}){2,}\s*")
_COLUMN = re.compile("-{3,}")
_HEADER = re.compile(r'\s*"?(?:ID|Process ID)"?\s*,')
_METRIC = re.compile(r"[a-z][a-z0-9]*__[\w.:]+")  # a metric's name beside its label (--print-metric-name label-name)
_NANOSECONDS = re.compile("gpu__time_")  # in a page without units: ncu's base unit of times
_CELLS_AT_ONCE = 200_000
_SNIFFED_ROWS = 16  # of a raw page: they show whether figures have a decimal comma
_SNIFFED = 4096  # lines of a details page: likewise
_PROCESS = "Process ID"
_NEEDED = (
    'this is no page of ncu: a line that begins with "ID" is needed, as ncu --csv --page raw (or details) prints it, '
    "or a page that it printed as text"
)
_NO_LAUNCH = "no launch stands below the header: did ncu profile any kernel?"
_CUT_OFF = "the last line is cut off and left out"
_FOREIGN_TABLE = "a line of a section's own table was left out"
_FOREIGN_LINE = "a line that is not the table's (the program's own output, say) was left out"


class TextPage:
    """A page that ncu printed as text: its lines, one after the other."""

    def __init__(self, path: Path) -> None:
        self._launches = PageLaunches(path, "text")
        self._process: dict[str, str] = {}
        self._columns: list[tuple[int, int]] = []
        self._last_line = 0

    def take(self, line: int, text: str) -> None:
        """Take the next line."""
        if line != self._last_line + 1:  # an empty line ends a table
            self._columns = []
        self._last_line = line
        if len(text) > _LONGEST or not text.strip():
            self._columns = []
        elif ", Context " in text and (match := _LAUNCH.fullmatch(text)):
            parts = zip(_LAUNCH_COLUMNS, match.groups(), strict=True)
            identity = {name: part for name, part in parts if part is not None}
            self._launches.begin({"ID": str(self._launches.count), **self._process, **identity})
            self._columns = []
        elif text.lstrip()[:1] == "[" and (match := _PROCESS_LINE.fullmatch(text)):
            self._process = dict(zip(("Process ID", "Process Name", "Host Name"), match.groups(), strict=True))
        elif self._launches.count and _RULER.fullmatch(text):
            self._columns = [match.span() for match in _COLUMN.finditer(text)]
        elif self._columns:
            self._take_metric(line, text)

    def _take_metric(self, line: int, text: str) -> None:
        """Take a metric: its name, its unit, its value; of a summary the last value, the average."""
        (first, end), (unit_first, unit_end), (value_first, _) = self._columns[0], self._columns[1], self._columns[-1]
        name, unit, value = text[first:end].strip(), text[unit_first:unit_end].strip(), text[value_first:].strip()
        if name and value and name != "Metric Name":
            launches = self._launches
            launches.put(line, launches.count - 1, launches.intern(name), value, parse_unit(unit))

    def finish(self) -> PageLaunches:
        """Return the launches; ValueError where there are none, or no metrics."""
        if not self._launches.count or not self._launches.metrics:
            raise file_error(self._launches.path, None, _NEEDED)
        self._launches.remarks.append("read from text that was printed for people: figures are rounded")
        return self._launches.finish()


def read_page(path: Path) -> PageLaunches:
    """Read the launches of a file that ncu printed; ValueError for any other file, with the line."""
    with open_text(path) as stream:
        lines = read_lines(path, stream)
        page = TextPage(path)
        for line, text in lines:
            if _HEADER.match(text) and not text.startswith("=="):
                header = [name.strip() for name in split_fields(path, line, text)]
                if any(name in header for name in KERNEL_NAMES):
                    return _read_table(path, lines, line, header, quotes=text.startswith('"'))
            page.take(line, text)
        return page.finish()


def _read_table(
    path: Path, lines: Iterator[tuple[int, str]], line: int, header: list[str], *, quotes: bool
) -> PageLaunches:
    page = (_DetailsPage if "Metric Name" in header else _RawPage)(path, line, header)
    error: ValueError | None = None
    for start, text in _join_records(page, lines, quotes=quotes):
        if error is not None:
            raise error
        try:
            page.read(start, text)
        except _ShortError as short:  # allowed for the last line of a file that is cut off
            error = short
    if error is not None:
        if not page.has_launches:
            raise error
        page.launches.remarks.append(_CUT_OFF)
    return page.finish()


class _ShortError(ValueError):
    """A record with fewer cells than the header."""


def _join_records(page: _CsvPage, lines: Iterator[tuple[int, str]], *, quotes: bool) -> Iterator[tuple[int, str]]:
    """Yield CSV records: a quoted cell may have several lines; lines of ncu and the program between are left out.

    `quotes`: every record begins with a quotation mark, as the header does.
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
            page.launches.left_out[_FOREIGN_LINE] += 1
        elif text.count('"') % 2:
            parts, start, size = [text], line, len(text)
        else:
            yield line, text
    if parts:
        if not page.has_launches:
            raise file_error(page.path, start, "the file ends within this line: a quotation mark is not closed")
        page.launches.remarks.append(_CUT_OFF)


class _CsvPage:
    """A page as CSV, and its header."""

    def __init__(self, path: Path, kind: str, line: int, header: list[str]) -> None:
        self.path = path
        self.launches = PageLaunches(path, kind)
        self.begin(line, header)

    @property
    def has_launches(self) -> bool:
        return self.launches.count > 0

    def begin(self, line: int, header: list[str]) -> None:
        """Take a header: the first one, or that of a page that was appended to this one."""
        if len(header) > MOST_COLUMNS:
            raise file_error(self.path, line, f"{len(header)} columns: no page of ncu has more than {MOST_COLUMNS}")
        if twice := len(header) - len(set(header)):
            self.launches.remarks.append(f"of {twice} columns that are there twice the first was read")
        self.header = header

    def read(self, line: int, text: str) -> None:
        cells = split_fields(self.path, line, text)
        if cells[0].strip() == self.header[0]:
            header = [name.strip() for name in cells]
            if ("Metric Name" in header) != ("Metric Name" in self.header):
                raise file_error(self.path, line, "a page of another kind begins here: split the file before this line")
            self.begin(line, header)
        else:
            self.take(line, cells)

    def take(self, line: int, cells: list[str]) -> None:
        raise NotImplementedError

    def finish(self) -> PageLaunches:
        if not self.launches.count:
            raise file_error(self.path, None, _NO_LAUNCH)
        return self.launches.finish()

    def check_length(self, line: int, cells: list[str], least: int) -> None:
        """Refuse a record that has too few cells, or more than the header."""
        problem = f"{len(cells)} cells for {len(self.header)} columns"
        if len(cells) < least:
            raise _ShortError(file_error(self.path, line, problem))
        if len(cells) > len(self.header) and any(cells[len(self.header) :]):
            raise file_error(self.path, line, problem)


class _RawPage(_CsvPage):
    """``--page raw``: a header, a row of units, then a line for each launch."""

    def __init__(self, path: Path, line: int, header: list[str]) -> None:
        self._rows: list[list[str]] = []
        self._units: list[Unit | None] | None = None
        self._line = line
        super().__init__(path, "raw", line, header)

    @property
    def has_launches(self) -> bool:
        return bool(self._rows) or super().has_launches

    def begin(self, line: int, header: list[str]) -> None:
        self._flush()
        super().begin(line, header)
        self._units = None
        names = [self.launches.intern(name or f"column {number}") for number, name in enumerate(header, start=1)]
        self._columns: dict[str, int] = {}
        for at, name in enumerate(names):
            self._columns.setdefault(name, at)

    def take(self, line: int, cells: list[str]) -> None:
        self.check_length(line, cells, len(self.header))
        if self._units is None:
            has_units = not cells[0].strip()
            self._units = self._parse_units(cells, has_units=has_units)
            if has_units:
                return
            self.launches.remarks.append("the page has no row of units: figures were taken in ncu's base units")
        if not any(cell.strip() for cell in cells):
            return
        self._rows.append(cells[: len(self.header)])
        self._line = line
        if len(self._rows) * len(cells) >= _CELLS_AT_ONCE:
            self._flush()

    def _parse_units(self, cells: list[str], *, has_units: bool) -> list[Unit | None]:
        units: list[Unit | None] = []
        for name, cell in zip(self.header, cells, strict=False):
            written = cell if has_units else "ns" if _NANOSECONDS.match(name) else ""
            units.append(None if name in IDENTITY or "Domain:" in name else parse_unit(written))
        return units

    def _flush(self) -> None:
        if not self._rows or self._units is None:
            return
        if not self.launches.count:
            rows = self._rows[:_SNIFFED_ROWS]
            figures = (cell for row in rows for cell, unit in zip(row, self._units, strict=True) if unit is not None)
            self.launches.decimal_comma = has_decimal_comma(figures)
        columns = list(zip(*self._rows, strict=True))
        self._rows = []
        self.launches.add(self._line, [(name, self._units[at], columns[at]) for name, at in self._columns.items()])

    def finish(self) -> PageLaunches:
        self._flush()
        return super().finish()


class _DetailsPage(_CsvPage):
    """``--page details``: a line for each metric of each launch; with --print-summary for each kernel."""

    def __init__(self, path: Path, line: int, header: list[str]) -> None:
        self._first: list[tuple[int, list[str]]] | None = []  # lines until it is known how figures are written
        self._launch_numbers: dict[tuple[str, ...], int] = {}
        self._names: dict[str, str] = {}  # metrics as they are written -> by name
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
        self._identity = min(self._name, header.index("Section Name") if "Section Name" in header else self._name)
        self._least = max(self._name, self._unit, self._value) + 1
        self._launch_numbers.clear()

    def take(self, line: int, cells: list[str]) -> None:
        if len(cells) < self._least and self._is_foreign(cells):
            self.launches.left_out[_FOREIGN_TABLE] += 1
            return
        self.check_length(line, cells, self._least)
        if self._first is None:
            self._put(line, cells)
            return
        self._first.append((line, cells[: len(self.header)]))  # a tail of empty cells may be any length
        if len(self._first) >= _SNIFFED:
            self._sniff()

    def _is_foreign(self, cells: list[str]) -> bool:
        """Whether a record is of a section's own table (--print-details all), and not of a launch and cut off."""
        at = self.header.index(_PROCESS) if _PROCESS in self.header else len(cells)
        return at < len(cells) and not cells[at].strip().isdecimal()

    def _sniff(self) -> None:
        """Find out how figures are written from the first lines, and put these."""
        if self._first:
            records, self._first = self._first, None
            self.launches.decimal_comma = has_decimal_comma(cells[self._value] for _, cells in records)
            for line, cells in records:
                self._put(line, cells)

    def _put(self, line: int, cells: list[str]) -> None:
        launches = self.launches
        identity = tuple(cells[: self._identity])
        launch = self._launch_numbers.get(identity)
        if launch is None:
            named = zip(map(launches.intern, self.header), identity, strict=False)
            launch = self._launch_numbers[identity] = launches.begin(dict(named))
        written = cells[self._name]
        if not written:
            launches.left_out["a rule's remark was left out"] += 1
            return
        name = self._names.get(written)
        if name is None:
            match = _METRIC.search(written) if " " in written else None
            name = self._names[written] = launches.intern(match[0] if match else written)
        launches.put(line, launch, name, cells[self._value], parse_unit(cells[self._unit]))

    def finish(self) -> PageLaunches:
        self._sniff()
        if self.launches.page == "summary":
            self.launches.remarks.append("a summary: each row is the average of several launches")
        return super().finish()
