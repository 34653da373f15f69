"""Write a run's rows to its files while it runs."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from bwprof.results import csv_file, json_file, pairs, schema
from bwprof.results.atomic import Claim, atomic_write, is_plain_target, is_stream
from bwprof.results.csv_file import CsvWriter
from bwprof.results.schema import RowDict

_log = logging.getLogger("bwprof.sweep")

# The JSON file is replaced as a whole, at a cost that grows with the run: this share of the time at most.
_JSON_SHARE = 0.01
_JSON_MIN_SECONDS = 0.5
Target = Path | TextIO
Claims = dict[str, Claim]  # by the file's real path


def claim_files(targets: Iterable[Target]) -> Claims:
    """Claim the files among the targets; OSError if another process has one.

    A resumed run claims its files before it reads them, because another process may be about to finish them.
    """
    claims: Claims = {}
    try:
        for target in targets:
            if isinstance(target, Path) and is_plain_target(target):
                name = os.path.realpath(target)
                claims[name] = claims.get(name) or Claim(target)
    except BaseException:
        release_claims(claims)
        raise
    return claims


def release_claims(claims: Claims) -> None:
    """Release the claims; lines that only the hidden files have stay. May be called again."""
    for claim in claims.values():
        claim.release(keep=True)


@contextmanager
def _attempts() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Try several things, each in `with attempt():`; then raise the first OSError."""
    errors: list[OSError] = []

    @contextmanager
    def attempt() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            errors.append(error)

    yield attempt
    if errors:
        raise errors[0]


class Store:
    """Rows in memory, in CSV files (row by row) and in JSON files (replaced as a whole).

    Rows that a JSON file lacks are lines of its `Claim`, raw samples included. The constructor, `add`, `replace` and
    `finish` raise OSError if a file cannot be written; the rows stay in memory, and the other files are written.
    """

    def __init__(
        self,
        run: dict[str, Any],
        *,
        csv_targets: Sequence[Target] = (),
        json_targets: Sequence[Target] = (),
        rows: Sequence[RowDict] = (),
        samples: Sequence[list[float] | None] = (),
        claims: Claims | None = None,
    ) -> None:
        self.run = run
        self.rows: list[RowDict] = list(rows)
        self.samples: list[list[float] | None] = list(samples)
        self._by_configuration: defaultdict[tuple[object, ...], list[RowDict]] = defaultdict(list)
        for row in self.rows:
            self._by_configuration[pairs.configuration_key(row)].append(row)
        self._stale_csv = pairs.fill_comparisons(self.rows)
        self._json_targets: list[Target] = []  # pipes and devices
        self._opened: list[TextIO] = []
        self._json_cost = 0.0
        self._json_written = 0.0
        self._writers: list[CsvWriter] = []
        self._claims: Claims = dict(claims or {})
        self._json_files: list[tuple[Path, Claim]] = []
        try:
            self._claims |= claim_files(t for t in (*csv_targets, *json_targets) if self._claim_of(t) is None)
            for target in csv_targets:
                self._writers.append(CsvWriter(target, rows=self.rows, claim=self._claim_of(target)))
            for target in json_targets:
                claim = self._claim_of(target)
                if isinstance(target, Path) and claim is not None:
                    self._json_files.append((target, claim))
                elif isinstance(target, Path) and is_stream(target):  # it gets one document at the end
                    self._opened.append(target.open("a", encoding="utf-8"))
                    self._json_targets.append(self._opened[-1])
                else:
                    self._json_targets.append(target)
            self.write_json()
        except BaseException:
            self.close()
            raise
        # Files first: an error of a pipe must not delay their rows.
        self._writers.sort(key=lambda writer: writer.path is None)

    def add(self, row: RowDict, samples: list[float] | None = None) -> int:
        """Add a finished row, on disk on return; return its number for `replace`."""
        self.rows.append(_tidied(row))
        self.samples.append(samples)
        self._record(row, samples)
        return len(self.rows) - 1

    def replace(self, number: int, row: RowDict, samples: list[float] | None = None) -> None:
        """Replace the row of a number by a second measurement.

        A file written row by row gets a further row, whose `replaces` names the first one; readers leave the first one
        out, and finished files do not have it. A pipe has only the first one. The same row, with more values, keeps its
        samples.
        """
        before = self.rows[number]
        if row is before:
            self.amend(number, {})
            return
        row["replaces"] = before["timestamp"]
        self.rows[number] = _tidied(row)
        self.samples[number] = samples
        same = self._by_configuration[pairs.configuration_key(before)]
        same[:] = [other for other in same if other is not before]
        self._stale_csv = True
        self._record(row, samples, repeated=True)

    def amend(self, number: int, values: RowDict) -> None:
        """Change values of a row; the JSON file gets them at its next replacement, the CSV file at the end.

        An interrupt at any point leaves a whole row, and the files marked as stale.
        """
        self._stale_csv = True
        self.rows[number].update(schema.normalize_row(self.rows[number] | values))

    def _record(self, row: RowDict, samples: list[float] | None, *, repeated: bool = False) -> None:
        """Write a new row to all files."""
        same = self._by_configuration[pairs.configuration_key(row)]
        before = [dict(other) for other in same]
        same.append(row)
        pairs.fill_comparisons(same)
        self._stale_csv |= before != same[:-1]
        # With its first row the run's metadata are complete.
        pause = max(_JSON_MIN_SECONDS, self._json_cost / _JSON_SHARE)
        due = len(self.rows) == 1 or time.monotonic() - self._json_written >= pause
        with _attempts() as attempt:
            for _, claim in self._json_files:
                with attempt():
                    due |= not claim.append(json_file.row_text(row, samples) + "\n")  # another process removed it
            for writer in self._writers:
                if repeated and writer.path is None:
                    continue
                with attempt():
                    writer.append(row)
            if due:
                with attempt():
                    self.write_json()

    def finish(self, status: str) -> None:
        """End the run: fill comparisons, write and read back the files, and close them."""
        self.run["status"] = status
        self.run["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with _attempts() as attempt:
                for writer in self._writers:
                    with attempt():
                        writer.finish(self.rows, stale=self._stale_csv)
                        if writer.path is not None:
                            _read_back(writer.path, csv_file.read_csv, len(self.rows))
                with attempt():
                    self.write_json(last=True)
                for target, claim in self._json_files:
                    with attempt():
                        _read_back(target, lambda path: json_file.read_json(path)[0], len(self.rows))
                        claim.clear()
        finally:
            self.close()

    def write_json(self, *, last: bool = False) -> None:
        """Replace the JSON files, rows and metadata; pipes get only the `last` document."""
        if not self._json_targets and not self._json_files:
            return
        started = time.monotonic()
        document = json_file.json_text(self.rows, self.samples, self.run)
        with _attempts() as attempt:
            for path, claim in self._json_files:
                with attempt():
                    atomic_write(path, document)
                    if not last:
                        claim.clear()
            for target in self._json_targets:
                with attempt():
                    if isinstance(target, Path):
                        atomic_write(target, document)
                    elif last:
                        target.write(document)
                        target.flush()
        self._json_written = time.monotonic()
        self._json_cost = self._json_written - started

    def _claim_of(self, target: Target) -> Claim | None:
        return self._claims.get(os.path.realpath(target)) if isinstance(target, Path) else None

    def rescue(self) -> str:
        """Return all rows as CSV text, if no file can be written."""
        return csv_file.csv_text(self.rows)

    def close(self) -> None:
        """Close the files; may be called again."""
        closable: list[CsvWriter | TextIO] = [*self._writers, *self._opened]
        for file in closable:
            with suppress(OSError):
                file.close()
        release_claims(self._claims)


def _tidied(row: RowDict) -> RowDict:
    """Normalize a row in place: callers see what was written."""
    values = schema.normalize_row(row)
    row.clear()
    row.update(values)
    return row


def _read_back(path: Path, read: Callable[[Path], Sequence[RowDict]], count: int) -> None:
    """Raise OSError if a written file does not return its rows."""
    try:
        found = f"{len(read(path))} rows of {count}"
    except ValueError as error:
        found = str(error)
    if found != f"{count} rows of {count}":
        raise OSError(errno.EIO, f"what was written cannot be read back: {found}", str(path))
