"""Read ncu's pages: raw (a line for each launch) and details (a line for each metric), as CSV and as text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bwprof.importers.reader import (
    LONGEST_LINE,
    Unit,
    file_error,
    has_decimal_comma,
    is_missing,
    open_text,
    parse_number,
    parse_numbers,
    parse_unit,
    read_lines,
    split_fields,
)
from bwprof.results.schema import clean_text
from bwprof.text.formatting import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The columns that identify a launch and are no metrics.
IDENTITY = (
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Range Name", "Range", "Kernel Time", "Context"),
    *("Stream", "Block Size", "Grid Size", "Device", "CC", "Invocations"),
)
KERNEL_NAMES = ("Kernel Name", "Range Name", "Range", "Demangled Name", "Function Name")
_MOST_COLUMNS = 100_000  # a full set of ncu has some thousand metrics
_SPARE, _FILL = 10_000_000, 16  # most figures that fill gaps: so many, and so many for each figure of the file
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
_SNIFFED = 4096  # figures, at least, that show whether they have a decimal comma
_PROCESS = "Process ID"
_NEEDED = (
    'this is no page of ncu: a line that begins with "ID" is needed, as ncu --csv --page raw (or details) prints it, '
    "or a page that it printed as text"
)
_ROUNDED = (
    "figures in Kbyte, us and the like are rounded to a few digits: ncu --print-units base (with -i, of a report) "
    "prints them whole"
)
_INFINITE = "a value that is no finite number was left out"
_FOREIGN_TABLE = "a line of a section's own table was left out"
_FOREIGN_LINE = "a line that is not the table's (the program's own output, say) was left out"


class Metric:
    """A metric of a page: `values` in base units, one a launch, NaN where there is none; `texts` has those of text."""

    __slots__ = ("blocks", "numbers", "texts", "unit", "values")

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.blocks: list[tuple[int, NDArray[np.float64]]] = []  # of successive launches, from the first one's number
        self.numbers: dict[int, float] = {}
        self.texts: dict[int, str] = {}
        self.values = np.empty(0)


class PageLaunches:
    """The launches of a page, in their order.

    `identity` has the columns that identify a launch (text), `metrics` all others, `notes` what was left out.
    """

    def __init__(self, path: Path, page: str) -> None:
        self.path, self.page = path, page
        self.count = 0
        self.decimal_comma = self.rounded = False
        self.identity: dict[str, list[str | None]] = {}
        self.metrics: dict[str, Metric] = {}
        self.left_out: Counter[str] = Counter()
        self.remarks: list[str] = []
        self._stored = 0
        self._interned: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        """How the figures differ from the file's, in words."""
        rounded = [_ROUNDED] if self.rounded and self.page != "text" else []
        return self.remarks + rounded + [f"{what}: {plural(many, 'time')}" for what, many in self.left_out.items()]

    def begin(self, identity: dict[str, str]) -> int:
        """Add a launch; return its number."""
        for name, text in identity.items():
            self._identify(name, [text])
        self.count += 1
        return self.count - 1

    def put(self, line: int, launch: int, name: str, written: str, unit: Unit) -> None:
        """Add a metric of a launch; the first value of a launch counts."""
        value = parse_number(written, decimal_comma=self.decimal_comma)
        if value is not None and math.isnan(value):
            if not is_missing(written):
                self.left_out[_INFINITE] += 1
            self._find_metric(line, name, unit.base)  # a column without figures, as a page has it
            return
        metric = self._find_metric(line, name, unit.base)
        if value is not None and metric.unit != unit.base:
            if metric.numbers or metric.texts:
                metric = self._find_metric(line, self.intern(f"{name} ({unit.base or 'no unit'})"), unit.base)
            metric.unit = unit.base
        if launch in metric.numbers or launch in metric.texts:
            self.left_out["a metric that a launch has already was left out"] += 1
            return
        self._stored += 1
        if value is None:
            metric.texts[launch] = self.intern(written)
        else:
            metric.numbers[launch] = unit.of(value)
            self.rounded = self.rounded or (unit.is_scaled and value != 0)

    def add(self, line: int, columns: Iterable[tuple[str, Unit | None, Sequence[str]]]) -> None:
        """Add launches: the cells of each column, and its unit; None for a column that identifies the launch."""
        count = 0
        for name, unit, written in columns:
            count = len(written)
            if unit is None:
                self._identify(name, written)
                continue
            metric = self._find_metric(line, name, unit.base)
            values, texts = parse_numbers(written, decimal_comma=self.decimal_comma)
            self.rounded = self.rounded or (unit.is_scaled and bool(np.any(np.nan_to_num(values))))
            with np.errstate(over="ignore"):
                metric.blocks.append((self.count, values * unit.times / unit.over))
            metric.texts |= {self.count + at: self.intern(text) for at, text in texts.items()}
            self._stored += count
        self.count += count

    def finish(self) -> PageLaunches:
        """Give every column a value for each launch; replace infinite numbers by NaN."""
        size = self.count * len(self.metrics)
        if size - self._stored > _SPARE + _FILL * self._stored:  # the table would be much larger than the file
            raise file_error(self.path, None, f"{len(self.metrics)} metrics, of which {self.count} launches share few")
        infinite = 0
        for metric in self.metrics.values():
            values = metric.values = np.full(self.count, math.nan)
            for first, block in metric.blocks:
                values[first : first + len(block)] = block
            values[list(metric.numbers)] = list(metric.numbers.values())
            infinite += int(np.isinf(values).sum())
            values[np.isinf(values)] = math.nan
        self.left_out += Counter({_INFINITE: infinite})
        for texts in self.identity.values():
            texts.extend([None] * (self.count - len(texts)))
        return self

    def intern(self, text: str) -> str:
        """Return the one cleaned object for equal texts."""
        interned = self._interned.get(text)
        if interned is None:
            interned = self._interned[text] = clean_text(text)
        return interned

    def _identify(self, name: str, written: Sequence[str]) -> None:
        texts = self.identity.setdefault(name, [])
        texts += [None] * (self.count - len(texts))
        texts += map(self.intern, written)

    def _find_metric(self, line: int, name: str, base: str) -> Metric:
        metric = self.metrics.get(name)
        if metric is None:
            if len(self.metrics) >= _MOST_COLUMNS:
                raise file_error(self.path, line, f"more than {_MOST_COLUMNS} metrics: no report of ncu has so many")
            metric = self.metrics[name] = Metric(base)
        return metric


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
            self._process = dict(zip((_PROCESS, "Process Name", "Host Name"), match.groups(), strict=True))
        elif self._launches.count and _RULER.fullmatch(text):
            self._columns = [match.span() for match in _COLUMN.finditer(text)]
        elif self._columns:
            self._take_metric(line, text)

    def _take_metric(self, line: int, text: str) -> None:
        """Take a metric: its name, its unit, its value; of a summary the last value, the average."""
        (first, end), (unit_first, unit_end), *_ = self._columns
        name, unit, value = text[first:end].strip(), text[unit_first:unit_end], text[self._columns[-1][0] :].strip()
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
    if "Metric Name" in header:
        page: _CsvPage = _DetailsPage(path, "summary" if "Average" in header else "details", line, header)
    else:
        page = _RawPage(path, "raw", line, header)
    launches = page.launches
    records = _join_records(page, lines, quotes=quotes)
    try:
        for start, text in records:
            page.read(start, text)
    except _CutError:
        page.flush()
        if not launches.count or next(records, None) is not None:  # it is not the end of a file that is cut off
            raise
        launches.remarks.append("the last line is cut off and left out")
    page.flush()
    if not launches.count:
        raise file_error(path, None, "no launch stands below the header: did ncu profile any kernel?")
    if launches.page == "summary":
        launches.remarks.append("a summary: each row is the average of several launches")
    return launches.finish()


class _CutError(ValueError):
    """A record that is not whole."""


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
        raise _CutError(file_error(page.path, start, "the file ends within this line: a quotation mark is not closed"))


class _CsvPage:
    """A page as CSV: its header, and records until there are enough to put them together."""

    def __init__(self, path: Path, page: str, line: int, header: list[str]) -> None:
        self.path = path
        self.launches = PageLaunches(path, page)
        self._rows: list[tuple[int, list[str]]] = []
        self.begin(line, header)

    def begin(self, line: int, header: list[str]) -> None:
        """Take a header: the first one, or that of a page that was appended to this one."""
        self.flush()
        if len(header) > _MOST_COLUMNS:
            raise file_error(self.path, line, f"{len(header)} columns: no page of ncu has more than {_MOST_COLUMNS}")
        if twice := len(header) - len(set(header)):
            self.launches.remarks.append(f"of {twice} columns that are there twice the first was read")
        self.header = header

    def read(self, line: int, text: str) -> None:
        """Take a record: a launch or a metric, or another header."""
        cells = split_fields(self.path, line, text)
        if cells[0].strip() != self.header[0]:
            if self.accepts(line, cells):
                self._rows.append((line, cells[: len(self.header)]))  # a tail of empty cells may be any length
                if len(self._rows) * len(self.header) >= _CELLS_AT_ONCE:
                    self.flush()
            return
        header = [name.strip() for name in cells]
        if ("Metric Name" in header) != ("Metric Name" in self.header):
            raise file_error(self.path, line, "a page of another kind begins here: split the file before this line")
        self.begin(line, header)

    def flush(self) -> None:
        """Put the records that were read into the launches."""
        rows, self._rows = self._rows, []
        if rows:
            if not self.launches.count:
                self.launches.decimal_comma = has_decimal_comma(self.figures(rows[:_SNIFFED]))
            self.put(rows)

    def accepts(self, line: int, cells: list[str]) -> bool:
        """Whether a record is of the table; ValueError for a damaged one."""
        raise NotImplementedError

    def figures(self, rows: list[tuple[int, list[str]]]) -> Iterator[str]:
        """Yield the cells that are figures."""
        raise NotImplementedError

    def put(self, rows: list[tuple[int, list[str]]]) -> None:
        """Put records into the launches."""
        raise NotImplementedError

    def check_length(self, line: int, cells: list[str], least: int) -> None:
        """Refuse a record that has too few cells, or more than the header."""
        problem = f"{len(cells)} cells for {len(self.header)} columns"
        if len(cells) < least:
            raise _CutError(file_error(self.path, line, problem))
        if len(cells) > len(self.header) and any(cells[len(self.header) :]):
            raise file_error(self.path, line, problem)


class _RawPage(_CsvPage):
    """``--page raw``: a header, a row of units, then a line for each launch."""

    def begin(self, line: int, header: list[str]) -> None:
        super().begin(line, header)
        self._units: list[Unit | None] = []
        self._columns: dict[str, int] = {}
        for at, name in enumerate(header):
            self._columns.setdefault(self.launches.intern(name or f"column {at + 1}"), at)

    def accepts(self, line: int, cells: list[str]) -> bool:
        self.check_length(line, cells, len(self.header))
        if not self._units:
            has_units = not cells[0].strip()
            for name, cell in zip(self.header, cells, strict=False):
                written = cell if has_units else "ns" if _NANOSECONDS.match(name) else ""
                self._units.append(None if name in IDENTITY or "Domain:" in name else parse_unit(written))
            if has_units:
                return False
            self.launches.remarks.append("the page has no row of units: figures were taken in ncu's base units")
        return any(map(str.strip, cells))

    def figures(self, rows: list[tuple[int, list[str]]]) -> Iterator[str]:
        for _, cells in rows[:16]:
            yield from (cell for cell, unit in zip(cells, self._units, strict=True) if unit is not None)

    def put(self, rows: list[tuple[int, list[str]]]) -> None:
        columns = list(zip(*(cells for _, cells in rows), strict=True))
        self.launches.add(rows[-1][0], [(name, self._units[at], columns[at]) for name, at in self._columns.items()])


class _DetailsPage(_CsvPage):
    """``--page details``: a line for each metric of each launch; with --print-summary for each kernel."""

    def __init__(self, path: Path, page: str, line: int, header: list[str]) -> None:
        self._launch_numbers: dict[tuple[str, ...], int] = {}
        self._names: dict[str, str] = {}  # metrics as they are written -> by name
        super().__init__(path, page, line, header)

    def begin(self, line: int, header: list[str]) -> None:
        super().begin(line, header)
        value = "Average" if "Average" in header and "Metric Value" not in header else "Metric Value"
        needed = ("Metric Name", "Metric Unit", value)
        if missing := [name for name in needed if name not in header]:
            raise file_error(self.path, line, f"the header lacks {', '.join(missing)}")
        self._name, self._unit, self._value = (header.index(name) for name in needed)
        self._identity = min(self._name, header.index("Section Name") if "Section Name" in header else self._name)
        self._least = max(self._name, self._unit, self._value) + 1
        self._process = header.index(_PROCESS) if _PROCESS in header else self._least
        self._launch_numbers.clear()

    def accepts(self, line: int, cells: list[str]) -> bool:
        # a section's own table (--print-details all) has shorter lines, but so has a launch that is cut off
        if self._process < len(cells) < self._least and not cells[self._process].strip().isdecimal():
            self.launches.left_out[_FOREIGN_TABLE] += 1
            return False
        self.check_length(line, cells, self._least)
        return True

    def figures(self, rows: list[tuple[int, list[str]]]) -> Iterator[str]:
        return (cells[self._value] for _, cells in rows)

    def put(self, rows: list[tuple[int, list[str]]]) -> None:
        launches = self.launches
        for line, cells in rows:
            identity = tuple(cells[: self._identity])
            launch = self._launch_numbers.get(identity)
            if launch is None:
                named = zip(map(launches.intern, self.header), identity, strict=False)
                launch = self._launch_numbers[identity] = launches.begin(dict(named))
            written = cells[self._name]
            if not written:
                launches.left_out["a rule's remark was left out"] += 1
                continue
            name = self._names.get(written)
            if name is None:
                match = _METRIC.search(written) if " " in written else None
                name = self._names[written] = launches.intern(match[0] if match else written)
            launches.put(line, launch, name, cells[self._value], parse_unit(cells[self._unit]))
