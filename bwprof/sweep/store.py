"""Where a run's rows go, as soon as they are there."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from bwprof.results import compare, csvfile, jsonfile
from bwprof.results.csvfile import CsvWriter
from bwprof.results.files import atomic_write, is_stream
from bwprof.results.schema import Row

_log = logging.getLogger("bwprof.sweep")

# The JSON file is whole at every replacement, so its cost grows with the run: at most this share of the time.
_JSON_SHARE = 0.03
_JSON_MIN_SECONDS = 0.5


class Store:
    """Rows in memory, in CSV files (row by row) and in JSON files (replaced as a whole).

    Raises
    ------
    OSError
        From the constructor, `add` and `finish`, when a file cannot be written. Rows are kept in memory even so.
    """

    def __init__(
        self,
        run: dict[str, Any],
        *,
        csv_targets: Sequence[Path | TextIO] = (),
        json_targets: Sequence[Path | TextIO] = (),
        rows: Sequence[Row] = (),
        samples: Sequence[list[float] | None] = (),
    ) -> None:
        self.run = run
        self.rows: list[Row] = list(rows)
        self._samples: list[list[float] | None] = list(samples)
        self._by_configuration: dict[tuple[object, ...], list[Row]] = {}
        for row in self.rows:
            self._by_configuration.setdefault(compare.configuration(row), []).append(row)
        self._stale_csv = compare.fill(self.rows)
        self._json_targets: list[Path | TextIO] = []
        self._opened: list[TextIO] = []
        self._json_cost = 0.0
        self._json_written = 0.0
        self._writers: list[CsvWriter] = []
        try:
            for target in csv_targets:
                self._writers.append(CsvWriter(target, rows=self.rows))
            for json_target in json_targets:
                self._json_targets.append(self._opened_once(json_target))
            self._write_json(streams=False)
        except OSError:
            self.close()
            raise

    def add(self, row: Row, samples: list[float] | None = None) -> None:
        """One finished row; on disk when this returns."""
        self.rows.append(row)
        self._samples.append(samples)
        same = self._by_configuration.setdefault(compare.configuration(row), [])
        same.append(row)
        before = [dict(other) for other in same[:-1]]
        compare.fill(same)
        self._stale_csv |= before != same[:-1]
        for writer in self._writers:
            writer.append(row)
        if time.monotonic() - self._json_written >= max(_JSON_MIN_SECONDS, self._json_cost / _JSON_SHARE):
            self._write_json(streams=False)

    def replace(self, number: int, row: Row, samples: list[float] | None) -> None:
        """A better row of the same case, or the same one with more to say (samples None: as they were).

        Memory and JSON have it from now on, a CSV file when the run ends: until then the earlier one, and a pipe for
        good.
        """
        earlier = self.rows[number]
        same = self._by_configuration[compare.configuration(earlier)]
        same[next(place for place, other in enumerate(same) if other is earlier)] = row
        self.rows[number] = row
        if samples is not None:
            self._samples[number] = samples
        compare.fill(same)
        self._stale_csv = True

    def finish(self, status: str) -> None:
        """The run has ended: comparisons everywhere, JSON complete, files closed."""
        self.run["status"] = status
        self.run["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            if self._stale_csv:
                for writer in self._writers:
                    writer.rewrite(self.rows)
            self._write_json(streams=True)
        finally:
            self.close()

    def _write_json(self, *, streams: bool) -> None:
        if not self._json_targets:
            return
        started = time.monotonic()
        document = jsonfile.text(self.rows, self._samples, self.run)
        for target in self._json_targets:
            if isinstance(target, Path):
                atomic_write(target, document)
            elif streams:
                target.write(document)
                target.flush()
        self._json_written = time.monotonic()
        self._json_cost = self._json_written - started

    def _opened_once(self, target: Path | TextIO) -> Path | TextIO:
        """A pipe gets one document, at the end, and its reader no end before."""
        if not isinstance(target, Path) or not is_stream(target):
            return target
        self._opened.append(target.open("a", encoding="utf-8"))
        return self._opened[-1]

    def rescue(self) -> str:
        """All rows as CSV text: the last resort when nothing can be written."""
        return csvfile.text(self.rows)

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers:
            with suppress(OSError):
                writer.close()
        for stream in self._opened:
            with suppress(OSError):
                stream.close()
