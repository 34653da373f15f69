"""Results as CSV: appended row by row, so that it is the record that survives a crash."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import logging
import os
import re
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from bwprof.results import schema
from bwprof.results.files import atomic_write, is_plain_target
from bwprof.results.schema import Row

_log = logging.getLogger("bwprof.results")

# With the apostrophes that are there already, so that exactly the one that was added is taken off again.
_FORMULA = re.compile(r"'*[=+\-@\t]")


def header_line() -> str:
    """The first line, with its line end."""
    return _line(schema.names())


def row_line(row: Row) -> str:
    """One row's line; missing is empty."""
    values = []
    for column in schema.columns():
        value = schema.normalise(row.get(column.name), column.kind)
        values.append("" if value is None else repr(value) if isinstance(value, float) else quoted_formula(value))
    return _line(values)


def quoted_formula(value: Any) -> str:
    """A cell's text: what a spreadsheet would run as a formula has an apostrophe before it; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else str(value)


def unquoted_formula(cell: str) -> str:
    """The inverse of `quoted_formula`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def text(rows: Iterable[Row]) -> str:
    """Header and rows."""
    return header_line() + "".join(row_line(row) for row in rows)


def _line(values: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue()


def _written_by_another(path: Path) -> OSError:
    return OSError(errno.EBUSY, "another bwprof is writing to it", str(path))


def _refuse_if_written(path: Path) -> None:
    """Two runs that replace one file would lose each other's rows."""
    try:
        with FileIO(path, "r") as file:
            if not _locked(file.fileno()):
                raise _written_by_another(path)
    except (FileNotFoundError, PermissionError):
        return


def _locked(number: int) -> bool:
    """Take the lock that every writer holds while it writes; True as well where the file system has none."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


class CsvWriter:
    """A CSV file that grows by one flushed row at a time.

    The header is written at once, so that a file that cannot be written is noticed before anything is measured.

    Raises
    ------
    OSError
        From the constructor or `append`, when the file cannot be written.
    """

    def __init__(self, target: Path | TextIO, *, rows: Iterable[Row] = ()) -> None:
        self._stream = None if isinstance(target, Path) else target
        self._path = target if isinstance(target, Path) else None
        self._plain = self._path is not None and is_plain_target(self._path)
        self._file: FileIO | None = None
        if self._path is not None and self._plain:
            _refuse_if_written(self._path)
            # What a resumed run keeps is never lost: the old file is replaced in one step, then appended to.
            atomic_write(self._path, text(rows))
        if self._path is not None:
            # Unbuffered: what could not be written is not tried again behind our back.
            self._file = FileIO(self._path, "a")
            if self._plain and not _locked(self._file.fileno()):
                self.close()
                raise _written_by_another(self._path)
        if not self._plain:
            try:
                self._write(text(rows))
            except OSError:
                self.close()
                raise

    def append(self, row: Row) -> None:
        """One row, on disk when this returns."""
        self._write(row_line(row))
        if self._plain and self._file is not None:
            os.fdatasync(self._file.fileno())

    def _write(self, content: str) -> None:
        if self._stream is not None:
            self._stream.write(content)
            self._stream.flush()
        if self._file is not None:
            data = memoryview(content.encode("utf-8"))
            try:
                while data:
                    data = data[self._file.write(data) :]
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._path)) from None

    def rewrite(self, rows: Iterable[Row]) -> None:
        """Replace the whole file in one step (nothing happens on a pipe or a terminal)."""
        if self._path is not None and self._plain:
            atomic_write(self._path, text(rows))

    def close(self) -> None:
        """Close the file (standard output stays open)."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> CsvWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> list[Row]:
    """The rows of a CSV of ours, or of a bare nine-column one.

    A last line that was cut off by a crash is left out with a warning.

    Raises
    ------
    ValueError
        For a file that does not start with the nine classic columns, or holds something else than its columns say.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a bwprof result file: it is not text") from None
    try:
        lines = list(csv.reader(io.StringIO(content)))
    except csv.Error as error:
        raise ValueError(f"{path} is not a bwprof result file: {error}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    if tuple(header[: len(schema.CLASSIC_NAMES)]) != schema.CLASSIC_NAMES:
        raise ValueError(
            f"{path} is not a bwprof result file: its header must start with {','.join(schema.CLASSIC_NAMES)}, "
            f"not with '{','.join(header)[:100]}'"
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has the column {', '.join(twice)} twice")
    body = [values for values in lines[1:] if values]
    if body and (not content.endswith("\n") and len(body[-1]) != len(header)):
        _log.warning("%s: the last line is cut off and left out", path)
        body.pop()
    return [
        _parsed(path, number, dict(zip(header, values, strict=False)), header, values)
        for number, values in enumerate(body, start=2)
    ]


def _parsed(path: Path, number: int, found: dict[str, str], header: list[str], values: list[str]) -> Row:
    if len(values) != len(header):
        raise ValueError(f"{path}, line {number}: {len(values)} values for {len(header)} columns")
    row: dict[str, Any] = {name: (unquoted_formula(value) or None) for name, value in found.items()}
    try:
        return completed(schema.normalise_row(row), bare="status" not in header, source=str(path))
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None


def completed(row: Row, *, bare: bool, source: str) -> Row:
    """A row that was read, with what older files leave out."""
    schema.check_version(row["schema_version"], source)
    if row["precision"] is None and not bare:
        row["precision"] = ""  # a caller's function need not have one
    if row["operation"] is None or row["precision"] is None:
        raise ValueError("operation and precision must not be empty")
    row["precision"] = row["precision"].strip().lower()
    if row["status"] is not None and row["status"] not in schema.STATUSES:
        raise ValueError(f"unknown status '{row['status']}': allowed are {', '.join(schema.STATUSES)}")
    if bare:
        row["status"] = "ok" if row["time_ms"] is not None else "failed"
    if row["case"] is None:
        row["case"] = row["operation"]
    if row["flags"] is None and row["status"] == "ok" and not bare:
        row["flags"] = ""
    return row
