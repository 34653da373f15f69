"""The launches of an ncu page: what identifies each, and its metrics in base units."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bwprof.importers.reader import Unit, file_error, is_missing, parse_number
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
MOST_COLUMNS = 100_000  # a full set of ncu has some thousand metrics
_ROUNDED = (
    "figures in Kbyte, us and the like are rounded to a few digits: ncu --print-units base (with -i, of a report) "
    "prints them whole"
)
_INFINITE = "a value that is no finite number was left out"
_SPARE, _FILL = 10_000_000, 16  # most figures that fill gaps: so many, and so many for each figure of the file


class Metric:
    """A metric's values in base units, one a launch, NaN where there is none; `texts` has those that are text."""

    __slots__ = ("texts", "unit", "values")

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.values: array[float] = array("d")
        self.texts: dict[int, str] = {}

    def pad(self, count: int) -> int:
        """Append NaN up to `count` launches; return how many were appended."""
        short = max(0, count - len(self.values))
        self.values.extend(array("d", [math.nan]) * short)
        return short

    def has(self, launch: int) -> bool:
        """Whether a launch has a value."""
        return launch in self.texts or (launch < len(self.values) and not math.isnan(self.values[launch]))


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
        self._stored = self._padded = 0
        self._interned: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        """How the figures differ from the file's, in words."""
        rounded = [_ROUNDED] if self.rounded and self.page != "text" else []
        return self.remarks + rounded + [f"{what}: {plural(many, 'time')}" for what, many in self.left_out.items()]

    def begin(self, identity: dict[str, str]) -> int:
        """Add a launch; return its number."""
        launch = self.count
        self.count += 1
        for name, text in identity.items():
            self._identify(name, [text], launch)
        return launch

    def put(self, line: int, launch: int, name: str, written: str, unit: Unit) -> None:
        """Add a metric of a launch, under an interned name; the first value of a launch counts."""
        value = parse_number(written, decimal_comma=self.decimal_comma)
        if value is not None and math.isnan(value):
            if not is_missing(written):
                self.left_out[_INFINITE] += 1
            if name not in self.metrics:  # a column without figures, as a page has it
                self._new_metric(line, name, unit.base)
            return
        metric = self._find_metric(line, name, unit.base, is_number=value is not None)
        if metric.has(launch):
            self.left_out["a metric that a launch has already was left out"] += 1
            return
        self._stored += 1
        self._padded += metric.pad(launch)
        self._check_filled(line)
        metric.pad(launch + 1)
        if value is None:
            metric.texts[launch] = self.intern(written)
            return
        scaled = unit.of(value)
        self.rounded = self.rounded or (unit.is_scaled and scaled != 0)
        if math.isfinite(scaled):
            metric.values[launch] = scaled
        else:
            self.left_out[_INFINITE] += 1

    def _find_metric(self, line: int, name: str, base: str, *, is_number: bool) -> Metric:
        """Find or add the metric of a name; numbers in another unit than its own get a metric of their own."""
        metric = self.metrics.get(name) or self._new_metric(line, name, base)
        if is_number and metric.unit != base:
            if metric.values or metric.texts:
                name = self.intern(f"{name} ({base or 'no unit'})")
                return self.metrics.get(name) or self._new_metric(line, name, base)
            metric.unit = base  # so far a column without figures
        return metric

    def add(self, line: int, columns: Iterable[tuple[str, Unit | None, Sequence[str]]]) -> None:
        """Add launches: the cells of each column, and its unit; None for a column that identifies the launch."""
        first = count = self.count
        for name, unit, written in columns:
            count = first + len(written)
            if unit is None:
                self._identify(name, written, first)
                continue
            metric = self.metrics.get(name) or self._new_metric(line, name, unit.base)
            self._padded += metric.pad(first)
            self._append(metric, written, unit)
            self._stored += len(written)
        self.count = count
        self._check_filled(line)

    def _append(self, metric: Metric, written: Sequence[str], unit: Unit) -> None:
        try:
            if self.decimal_comma:
                raise ValueError
            numbers = array("d", map(float, written))
        except ValueError:
            numbers = array("d")
            for launch, cell in enumerate(written, start=len(metric.values)):
                value = parse_number(cell, decimal_comma=self.decimal_comma)
                if value is None:
                    metric.texts[launch] = self.intern(cell)
                numbers.append(math.nan if value is None else value)
        values = np.frombuffer(numbers)
        self.rounded = self.rounded or (unit.is_scaled and bool(np.any(np.nan_to_num(values))))
        with np.errstate(over="ignore"):
            metric.values.frombytes((values * unit.times / unit.over).tobytes())

    def finish(self) -> PageLaunches:
        """Give every column a value for each launch; replace infinite numbers by NaN."""
        for metric in self.metrics.values():
            self._padded += max(0, self.count - len(metric.values))
        self._check_filled(0)
        for metric in self.metrics.values():
            metric.pad(self.count)
            values = np.frombuffer(metric.values)
            infinite = np.isinf(values)
            self.left_out[_INFINITE] += int(infinite.sum())
            values[infinite] = math.nan
        self.left_out = +self.left_out  # without zeros
        for texts in self.identity.values():
            texts.extend([None] * (self.count - len(texts)))
        return self

    def numbers_of(self, name: str) -> NDArray[np.float64] | None:
        """Return a metric's values, NaN where there is none; None where no launch has it."""
        metric = self.metrics.get(name)
        return None if metric is None else np.frombuffer(metric.values)

    def intern(self, text: str) -> str:
        """Return the one cleaned object for equal texts."""
        interned = self._interned.get(text)
        if interned is None:
            interned = self._interned[text] = clean_text(text)
        return interned

    def _identify(self, name: str, written: Sequence[str], first: int) -> None:
        texts = self.identity.setdefault(name, [])
        texts += [None] * (first - len(texts))
        texts += map(self.intern, written)

    def _check_filled(self, line: int) -> None:
        """Refuse a file whose table would be much larger than the file."""
        if self._padded > _SPARE + _FILL * self._stored:
            raise file_error(self.path, line, f"{len(self.metrics)} metrics, of which {self.count} launches share few")

    def _new_metric(self, line: int, name: str, base: str) -> Metric:
        if len(self.metrics) >= MOST_COLUMNS:
            raise file_error(self.path, line, f"more than {MOST_COLUMNS} metrics: no report of ncu has so many")
        metric = self.metrics[name] = Metric(base)
        return metric
