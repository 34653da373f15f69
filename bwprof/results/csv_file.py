"""Results as CSV: appended row by row, so that it is the record that survives a crash."""

from __future__ import annotations

import csv
import io
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

from bwprof import registry
from bwprof.results import pairs, schema
from bwprof.results.atomic import Claim, append_text, atomic_write, file_state, is_plain_target, read_text, write_all
from bwprof.results.exchange import describe_table
from bwprof.results.schema import RowDict
from bwprof.text.parsing import quote_text

_log = logging.getLogger("bwprof.results")

# Includes apostrophes that the cell has already, so that exactly the added one is removed again.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")

_SEPARATORS = (",", ";", "\t")  # as spreadsheets write files
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)
_INDEX = re.compile(r"|index|level_\d+|unnamed: \d+", re.IGNORECASE)  # names of a frame's index


def header_line(more: Sequence[str] = ()) -> str:
    """Return the header with its line end; `more` are columns that are not the schema's."""
    return _format_lines([(*schema.column_names(), *more)])


def row_line(row: RowDict, more: Sequence[str] = ()) -> str:
    """Return a row's line; missing cells are empty."""
    values = schema.normalize_row(row)
    return _format_lines([[values.get(name) for name in (*schema.column_names(), *more)]])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, (int, float)) else quoted_formula(schema.clean_text(str(value)))


def quoted_formula(cell: str) -> str:
    """Return a cell's text, with an apostrophe before what a spreadsheet would run as a formula."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unquoted_formula(cell: str) -> str:
    """Undo `quoted_formula`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def csv_text(rows: Iterable[RowDict]) -> str:
    """Return header and rows."""
    listed = list(rows)
    more = schema.extra_names(listed)
    return header_line(more) + "".join(row_line(row, more) for row in listed)


def classic_text(rows: Iterable[RowDict]) -> str:
    """Return the rows with a time in the nine classic columns, for older tools; see `bwprof.save`."""
    normalized = [schema.normalize_row(row) for row in rows]
    timed = [row for row in normalized if row["status"] in (None, "ok") and row["time_ms"] is not None]
    groups = pairs.group_precisions(timed, normalized)
    names = zip(pairs.label_groups(groups, hot=False), groups, strict=True)
    name_of = {id(row): name for name, group in names for row in group.rows.values()}
    lines: list[Iterable[Any]] = [schema.CLASSIC_NAMES]
    for row in timed:
        classic = row | {"operation": name_of[id(row)], "precision": classic_precision(row["precision"] or "")}
        lines.append([classic[name] for name in schema.CLASSIC_NAMES])
    return _format_lines(lines)


def classic_precision(name: str) -> str:
    """Return a precision as classic files name it, FP16; names of your own stay."""
    return name.upper() if registry.precision_name(name.upper()) != name.upper() else name


def _format_lines(lines: Iterable[Iterable[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_cell(value) for value in line] for line in lines)
    return buffer.getvalue()


class CsvWriter:
    """A CSV file that grows by one flushed row at a time; pipes, devices and streams are written to as they are.

    The header is written at once, to detect a file that cannot be written before anything is measured. A file that
    another process removes or changes is written again, with all rows. `rows` are those of a resumed run; `claim` is
    the claim on the file, if there is one already. Raise OSError from the constructor or `append`, when the file cannot
    be written or another bwprof writes it.
    """

    def __init__(self, target: Path | TextIO, *, rows: Iterable[RowDict] = (), claim: Claim | None = None) -> None:
        self._rows = list(rows)
        self._more = schema.extra_names(self._rows)
        self._stream = None if isinstance(target, Path) else target
        self._pipe: FileIO | None = None
        self._state: tuple[int, int, int] | None = None  # of the file as it was written; None if it lacks a row
        self.path = target if isinstance(target, Path) and is_plain_target(target) else None
        self._claim = None if self.path is None else claim or Claim(self.path)
        try:
            if self.path is not None:
                self._renew(self.path)  # in one step: the rows of a resumed run are never lost
            else:
                if isinstance(target, Path):
                    self._pipe = FileIO(target, "a")  # unbuffered: a failed write is not repeated later
                self._write(csv_text(self._rows))
        except OSError:
            self.close()
            raise

    def append(self, row: RowDict) -> None:
        """Append a row; it is on disk on return."""
        self._rows.append(row)
        new = [name for name in schema.extra_names([row]) if name not in self._more]
        line = row_line(row, self._more)
        if self.path is None:
            self._write(line)  # the header cannot be changed any more
        elif self._state is None or new or self._was_changed(self.path):
            self._renew(self.path)
        else:
            device, inode, size = self._state
            self._state = None
            append_text(self.path, line)
            self._state = device, inode, size + len(line.encode())

    def _was_changed(self, path: Path) -> bool:
        """Log a warning if another process has removed or changed the file."""
        before, now = self._state, file_state(path)
        if before == now or before is None:
            return False
        what = "removed" if now is None else "changed" if now[:2] == before[:2] else "replaced"
        _log.warning("%s was %s by another process: it is written again, with all rows", path, what)
        return True

    def _renew(self, path: Path) -> None:
        """Write the whole file in one step."""
        self._more = schema.extra_names(self._rows)
        atomic_write(path, csv_text(self._rows))
        self._state = file_state(path)

    def _write(self, content: str) -> None:
        if self._stream is not None:
            self._stream.write(content)
            self._stream.flush()
        if self._pipe is not None:
            write_all(self._pipe.fileno(), content, self._pipe.name)

    def finish(self, rows: Iterable[RowDict], *, stale: bool = True) -> None:
        """Write the whole file in one step if rows, or the file, have changed; nothing for a pipe or a terminal."""
        if self.path is None:
            return
        before, self._rows = self._rows, list(rows)
        if stale or self._state is None or len(before) != len(self._rows) or self._was_changed(self.path):
            self._renew(self.path)

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if self._pipe is not None:
            self._pipe.close()
        if self._claim is not None:
            self._claim.release()


def read_csv(path: Path) -> list[RowDict]:
    """Read the rows of a CSV file; see `parse_csv`."""
    return parse_csv(read_text(path), str(path))


def parse_csv(content: str, source: str) -> list[RowDict]:
    """Parse the rows of a file's text, which may have only the nine classic columns; `source` names the file.

    Spreadsheets' separators (semicolons with decimal commas, tabs), empty rows and a frame's index are allowed. A last
    line that a crash cut off is left out with a warning. Raise ValueError for another header, and a value that its
    column cannot hold.
    """
    by = max(_SEPARATORS, key=content.lstrip("\r\n").partition("\n")[0].count)
    try:
        lines = split_cells(content, by=by)
    except csv.Error as error:
        raise ValueError(f"{source} is not a bwprof result file: {error}") from None
    body = [(number, values) for number, values in enumerate(lines, start=1) if any(map(str.strip, values))]
    if body and body[0][1][0] == "sep=":  # a spreadsheet's own first line
        del body[0]
    header = _header(body[0][1] if body else [], source)
    if body[1:] and (not content.endswith("\n") and len(body[-1][1]) < len(header)):
        _log.warning("%s: the last line is cut off and left out", source)
        body.pop()
    rows = []
    for number, values in body[1:]:
        try:
            rows.append(_parse_line(header, values, by, source))
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}") from None
    for name in schema.extra_names(rows[:1]):
        for row, value in zip(rows, _guess_values([row[name] for row in rows]), strict=True):
            row[name] = value
    return rows


def split_cells(content: str, *, by: str = ",", strict: bool = False) -> list[list[str]]:
    """Return every line's cells, of any length.

    `strict` raises csv.Error for characters behind a quoted cell, and for an open quotation.
    """
    csv.field_size_limit(sys.maxsize)
    return list(csv.reader(io.StringIO(content, newline=""), delimiter=by, strict=strict))


def _header(cells: list[str], source: str) -> list[str]:
    """Return the columns' names, "" for a frame's index; ValueError if they are not those of a result file."""
    stripped = [name.strip() for name in cells]
    count = len(schema.CLASSIC_NAMES)
    places = range(len(stripped))
    start = next((at for at in places if tuple(stripped[at : at + count]) == schema.CLASSIC_NAMES), None)
    if start is None:
        raise ValueError(
            f"{source} is not a bwprof result file: its header must start with {','.join(schema.CLASSIC_NAMES)}, "
            f"not with '{quote_text(','.join(stripped)[:100])}'{describe_table(stripped)}"
        )
    stripped[:start] = ["" if _INDEX.fullmatch(name) else name for name in stripped[:start]]
    known = {*schema.column_names(), ""}
    header = [short if short in known else unquoted_formula(name) for name, short in zip(cells, stripped, strict=True)]
    repeated = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if repeated:
        raise ValueError(f"{source} has the column {', '.join(repeated)} twice")
    return header


def _parse_line(header: list[str], values: list[str], by: str, source: str) -> RowDict:
    if not any(map(str.strip, values[len(header) :])):
        values = values[: len(header)]
    if len(values) != len(header):
        raise ValueError(f"{len(values)} values for {len(header)} columns")
    row: RowDict = {name: unquoted_formula(value) or None for name, value in zip(header, values, strict=True) if name}
    for name, kind in schema.column_kinds().items() if by == ";" else ():
        if kind != "text" and _DECIMAL_COMMA.fullmatch(row.get(name) or ""):
            row[name] = row[name].replace(",", ".")
    return complete_row(schema.normalize_row(row), bare="status" not in header, source=source)


def _guess_values(cells: list[str | None]) -> list[Any]:
    """Convert a column of your own to numbers or booleans if all its cells are those, as written: '007' stays text."""
    values = [None if cell is None else _guess(cell) for cell in cells]
    kinds = {type(value) for value in values if value is not None}
    return values if kinds <= {int, float} or kinds <= {bool} else list(cells)


def _guess(cell: str) -> Any:
    if cell in ("True", "False"):
        return cell == "True"
    try:
        value = int(cell) if cell.lstrip("-").isdigit() else float(cell)
    except ValueError:
        return cell
    return value if repr(value) == cell else cell


def complete_row(row: RowDict, *, bare: bool, source: str) -> RowDict:
    """Add to a row what older files lack; ValueError for a row without operation or precision."""
    schema.check_version(row["schema_version"], source)
    if row["precision"] is None and not bare:
        row["precision"] = ""  # a function of your own may have none
    if not row["operation"] or row["precision"] is None:
        raise ValueError("operation and precision must not be empty")
    row["precision"] = registry.precision_name(row["precision"].strip().lower() if bare else row["precision"])
    if bare:
        row["status"] = "ok" if row["time_ms"] is not None else "failed"
    row["case"] = registry.case_name(row["case"] or row["operation"], row["kv_lens"])
    if row["flags"] is None and row["status"] == "ok" and not bare:
        row["flags"] = ""
    return row
