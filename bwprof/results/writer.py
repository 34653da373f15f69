"""Where a run's rows go, as soon as they are there."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from bwprof.results import csv_file, json_file, pairs, schema
from bwprof.results.atomic import Claim, atomic_write, is_plain_target, is_stream
from bwprof.results.csv_file import CsvWriter
from bwprof.results.schema import RowDict

_log = logging.getLogger("bwprof.sweep")

# The JSON file is whole at every replacement, so its cost grows with the run: at most this share of the time.
_JSON_SHARE = 0.03

_JSON_MIN_SECONDS = 0.5

Target = Path | TextIO

Claims = dict[str, Claim]  # by the file's real path


def claim_files(targets: Iterable[Target]) -> Claims:
    """The right to write the files among these; OSError when another bwprof has one of them.

    Whoever goes on with a file takes it before reading: another may be about to finish it.
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
    """Give the files back, and what is known of rows only there stays; safe to call again."""
    for claim in claims.values():
        claim.release(keep=True)


class _Attempts:
    """Tries one thing after the other; the first OSError is raised when all were tried."""

    def __init__(self) -> None:
        self._first: OSError | None = None

    @contextmanager
    def one(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._first = self._first or error

    def __enter__(self) -> _Attempts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None and self._first is not None:
            raise self._first


class Store:
    """Rows in memory, in CSV files (row by row) and in JSON files (replaced as a whole).

    What a JSON file does not have yet stands line by line in its `Claim`, raw samples included.

    Raises
    ------
    OSError
        From the constructor, `add`, `replace` and `finish`, when a file cannot be written. Rows are kept in memory, and
        the other files are written, even so.
    """

    def __init__(
        self,
        run: dict[str, Any],
        *,
        csv_targets: Sequence[Target] = (),
        json_targets: Sequence[Target] = (),
        rows: Sequence[RowDict] = (),
        samples: Sequence[list[float] | None] = (),
        claims: Claims | None = None,  # those that are held already
    ) -> None:
        self.run = run
        self.rows: list[RowDict] = list(rows)
        self.samples: list[list[float] | None] = list(samples)
        self._by_configuration: dict[tuple[object, ...], list[RowDict]] = {}
        for row in self.rows:
            self._by_configuration.setdefault(pairs.configuration_key(row), []).append(row)
        self._stale_csv = pairs.fill_comparisons(self.rows)
        self._json_targets: list[Target] = []  # those that are no files: pipes, devices
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
            for json_target in json_targets:
                claim = self._claim_of(json_target)
                if isinstance(json_target, Path) and claim is not None:
                    self._json_files.append((json_target, claim))
                else:
                    self._json_targets.append(self._opened_once(json_target))
            self._write_json()
        except BaseException:
            self.close()
            raise
        # Files first: a reader that has gone must not keep a row from them.
        self._writers.sort(key=lambda writer: writer.path is None)

    def add(self, row: RowDict, samples: list[float] | None = None) -> int:
        """One finished row; on disk when this returns. Its number is for `replace`."""
        self.rows.append(_tidied(row))
        self.samples.append(samples)
        self._by_configuration.setdefault(pairs.configuration_key(row), []).append(row)
        self._record(row, samples)
        return len(self.rows) - 1

    def replace(self, number: int, row: RowDict, samples: list[float] | None = None) -> None:
        """A row that was measured again takes the place of the one that `add` gave that number.

        A file that is written row by row gets it as one row more, whose `replaces` names the other one; whoever reads
        leaves that one out then, and the finished files do not have it. A pipe, which nobody can rewrite, keeps the
        first. The same row, with more to say, keeps its samples.
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
        self._by_configuration.setdefault(pairs.configuration_key(row), []).append(row)
        self._stale_csv = True
        self._record(row, samples, again=True)

    def amend(self, number: int, said: RowDict) -> None:
        """What the row of that number says now; it is written anew with the JSON file, and in the CSV file at the end.

        At once: wherever an interrupt comes, the row is whole, and what was written before is known to be stale.
        """
        self._stale_csv = True
        self.rows[number].update(schema.normalise_row(self.rows[number] | said))

    def _record(self, row: RowDict, samples: list[float] | None, *, again: bool = False) -> None:
        """Write a new row down wherever that can be done."""
        same = self._by_configuration[pairs.configuration_key(row)]
        others = [other for other in same if other is not row]
        before = [dict(other) for other in others]
        pairs.fill_comparisons(same)
        self._stale_csv |= before != others
        # The run's metadata are complete with its first row.
        due = len(self.rows) == 1 or self._json_is_due()
        with _Attempts() as attempts:
            for _, claim in self._json_files:
                with attempts.one():
                    due |= not claim.append(json_file.row_text(row, samples) + "\n")  # somebody else has removed it
            for writer in self._writers:
                if again and writer.path is None:
                    continue
                with attempts.one():
                    writer.append(row)
            if due:
                with attempts.one():
                    self._write_json()

    def write_metadata(self) -> None:
        """What was put into `run` stands in the JSON files when this returns; pipes get it with the rest."""
        self._write_json()

    def _json_is_due(self) -> bool:
        return time.monotonic() - self._json_written >= max(_JSON_MIN_SECONDS, self._json_cost / _JSON_SHARE)

    def finish(self, status: str) -> None:
        """The run has ended: comparisons everywhere, JSON complete, files read back and closed."""
        self.run["status"] = status
        self.run["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with _Attempts() as attempts:
                for writer in self._writers:
                    with attempts.one():
                        writer.finish(self.rows, stale=self._stale_csv)
                        if writer.path is not None:
                            _read_back(writer.path, csv_file.read_csv, len(self.rows))
                with attempts.one():
                    self._write_json(last=True)
                for target, claim in self._json_files:
                    with attempts.one():
                        _read_back(target, lambda path: json_file.read_json(path)[0], len(self.rows))
                        claim.clear()
        finally:
            self.close()

    def _write_json(self, *, last: bool = False) -> None:
        """Replace the files; pipes get the `last` document only, whose lines are kept until it was read back."""
        if not self._json_targets and not self._json_files:
            return
        started = time.monotonic()
        document = json_file.json_text(self.rows, self.samples, self.run)
        with _Attempts() as attempts:
            for path, claim in self._json_files:
                with attempts.one():
                    atomic_write(path, document)
                    if not last:
                        claim.clear()
            for target in self._json_targets:
                with attempts.one():
                    if isinstance(target, Path):
                        atomic_write(target, document)
                    elif last:
                        target.write(document)
                        target.flush()
        self._json_written = time.monotonic()
        self._json_cost = self._json_written - started

    def _claim_of(self, target: Target) -> Claim | None:
        return self._claims.get(os.path.realpath(target)) if isinstance(target, Path) else None

    def _opened_once(self, target: Target) -> Target:
        """A pipe gets one document, at the end, and its reader no end before."""
        if not isinstance(target, Path) or not is_stream(target):
            return target
        self._opened.append(target.open("a", encoding="utf-8"))
        return self._opened[-1]

    def rescue(self) -> str:
        """All rows as CSV text: the last resort when nothing can be written."""
        return csv_file.csv_text(self.rows)

    def close(self) -> None:
        """Close the files; safe to call again."""
        closable: list[CsvWriter | TextIO] = [*self._writers, *self._opened]
        for held in closable:
            with suppress(OSError):
                held.close()
        release_claims(self._claims)


def _tidied(row: RowDict) -> RowDict:
    """The row as files hold it, in place: what callers show is what was written."""
    whole = schema.normalise_row(row)
    row.clear()
    row.update(whole)
    return row


def _read_back(path: Path, read: Callable[[Path], Sequence[RowDict]], count: int) -> None:
    """OSError when a file that was written does not give its rows back."""
    try:
        found = len(read(path))
    except ValueError as error:
        raise OSError(errno.EIO, f"what was written cannot be read back: {error}", str(path)) from None
    if found != count:
        raise OSError(errno.EIO, f"what was written cannot be read back: {found} rows of {count}", str(path))
