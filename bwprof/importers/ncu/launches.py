"""What a page of ncu holds, launch by launch: what was launched, and its metrics in base units."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.importers.reader import Unit, file_error, is_missing, numbers, parse_number
from bwprof.results.schema import clean_text
from bwprof.text.formatting import plural

if TYPE_CHECKING:
    import numpy as np

# What says which launch it was, and is no metric.
IDENTITY = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Range Name",
    "Range",
    "Kernel Time",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
    "Invocations",
)

KERNEL_NAMES = ("Kernel Name", "Range Name", "Range", "Demangled Name", "Function Name")

MOST_COLUMNS = 100_000  # a full set of ncu has some thousand metrics

_ROUNDED = (
    "figures in Kbyte, us and the like are rounded to a few digits: ncu --print-units base (with -i, of a report) "
    "prints them whole"
)

_ENDLESS = "a value that is no finite number was left out"

_SPARE, _FILL = 10_000_000, 16  # figures that are not in the file: so many, and so many for each that is


class Metric:
    """A metric's value for each launch, in base units, NaN where there is none; and what is text instead."""

    __slots__ = ("texts", "unit", "values")

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.values: array[float] = array("d")
        self.texts: dict[int, str] = {}

    def pad(self, count: int) -> int:
        """NaN for the launches until then; how many they were."""
        short = count - len(self.values)
        if short > 0:
            self.values.extend(array("d", [math.nan]) * short)
        return max(short, 0)

    def has(self, launch: int) -> bool:
        """Whether a launch has a value."""
        return launch in self.texts or (launch < len(self.values) and self.values[launch] == self.values[launch])


class PageLaunches:
    """The launches of a page, in their order.

    `identity` has the columns that say which launch it was (text), `metrics` all others; `notes` what was left out.
    """

    def __init__(self, path: Path, page: str) -> None:
        self.path, self.page = path, page
        self.count = 0
        self.decimal_comma = self.rounded = False
        self.identity: dict[str, list[str | None]] = {}
        self.metrics: dict[str, Metric] = {}
        self.left_out: Counter[str] = Counter()
        self.told: list[str] = []
        self._stored = self._padded = 0
        self._same: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        """What is not as in the file, in words."""
        rounded = [_ROUNDED] if self.rounded and self.page != "text" else []
        return self.told + rounded + [f"{what}: {plural(many, 'time')}" for what, many in self.left_out.items()]

    def begin(self, identity: dict[str, str]) -> int:
        """A new launch; its number."""
        launch = self.count
        self.count += 1
        for name, text in identity.items():
            listed = self.identity.get(name)
            if listed is not None and len(listed) == launch:  # as nearly always
                listed.append(self.shared(text))
            else:
                self._identify(name, [text], launch)
        return launch

    def put(self, line: int, launch: int, name: str, written: str, given: Unit) -> None:
        """A metric of a launch, under a name that is `shared`; of one that is there already the first value stays."""
        try:
            value: float | None = None if self.decimal_comma or "," in written or "_" in written else float(written)
        except ValueError:
            value = None
        if value is None or value - value != 0:
            value = parse_number(written, decimal_comma=self.decimal_comma)
            if value is not None and math.isnan(value):
                if not is_missing(written):
                    self.left_out[_ENDLESS] += 1
                if name not in self.metrics:  # a column without figures, as a page has it
                    self._new(line, name, given.base)
                return
        metric = self.metrics.get(name)
        if metric is None:
            metric = self._new(line, name, given.base)
        elif value is not None and not metric.values and not metric.texts:  # so far a column without figures
            metric.unit = given.base
        elif value is not None and metric.unit != given.base:
            other = self.shared(f"{name} ({given.base or 'no unit'})")
            metric = self.metrics.get(other) or self._new(line, other, given.base)
        held = len(metric.values)
        if (held > launch or metric.texts) and metric.has(launch):
            self.left_out["a metric that a launch has already was left out"] += 1
            return
        self._stored += 1
        if held < launch:
            self._padded += metric.pad(launch)
            self._check_filled(line)
        if value is None:
            metric.pad(launch + 1)
            metric.texts[launch] = self.shared(written)
            return
        scaled = given.of(value)
        self.rounded = self.rounded or (given.is_scaled and scaled != 0)
        if not math.isfinite(scaled):
            self.left_out[_ENDLESS] += 1
        elif len(metric.values) == launch:
            metric.values.append(scaled)
        else:
            metric.values[launch] = scaled

    def add(self, line: int, columns: Iterable[tuple[str, Unit | None, Sequence[str] | array[float]]]) -> None:
        """Some launches at once: the cells of each column, with its unit; None: it says which launch it was."""
        first = count = self.count
        for name, given, written in columns:
            count = first + len(written)
            if given is None:
                self._identify(name, [str(cell) for cell in written], first)
                continue
            metric = self.metrics.get(name)
            if metric is None:
                metric = self._new(line, name, given.base)
            self._padded += metric.pad(first)
            self._fill(metric, first, written, given)
            self._stored += len(written)
        self.count = count
        self._check_filled(line)

    def _fill(self, metric: Metric, first: int, written: Sequence[str] | array[float], given: Unit) -> None:
        import numpy as np

        found = written if isinstance(written, array) else numbers(written, decimal_comma=self.decimal_comma)
        if found is None:
            found = array("d")
            for launch, cell in enumerate(map(str, written), start=first):
                value = parse_number(cell, decimal_comma=self.decimal_comma)
                if value is None:
                    metric.texts[launch] = self.shared(cell)
                found.append(math.nan if value is None else value)
        if given.times == given.over:
            metric.values.extend(found)
            return
        self.rounded = self.rounded or (given.is_scaled and bool(np.any(np.nan_to_num(np.frombuffer(found)))))
        with np.errstate(over="ignore"):
            metric.values.frombytes((np.frombuffer(found) * given.times / given.over).tobytes())

    def finish(self) -> PageLaunches:
        """All columns as long as there are launches, and no number in them that is not finite."""
        import numpy as np

        for metric in self.metrics.values():
            self._padded += max(0, self.count - len(metric.values))
        self._check_filled(0)
        for metric in self.metrics.values():
            metric.pad(self.count)
            endless = np.isinf(np.frombuffer(metric.values))
            if endless.any():
                np.frombuffer(metric.values)[endless] = math.nan
                self.left_out[_ENDLESS] += int(endless.sum())
        for listed in self.identity.values():
            listed.extend([None] * (self.count - len(listed)))
        return self

    def numbers_of(self, name: str) -> np.ndarray | None:
        """A metric's values, NaN where there is none; None where no launch has it."""
        import numpy as np

        metric = self.metrics.get(name)
        return None if metric is None else np.frombuffer(metric.values)

    def shared(self, text: str) -> str:
        """One object for texts that are the same."""
        found = self._same.get(text)
        if found is None:
            found = self._same[text] = clean_text(text)
        return found

    def _identify(self, name: str, written: Sequence[str], first: int) -> None:
        listed = self.identity.setdefault(name, [])
        listed += [None] * (first - len(listed))
        listed += [self.shared(cell) for cell in written]

    def _check_filled(self, line: int) -> None:
        """What is stored must not be much more than what was read."""
        if self._padded > _SPARE + _FILL * self._stored:
            raise file_error(self.path, line, f"{len(self.metrics)} metrics, of which {self.count} launches share few")

    def _new(self, line: int, name: str, base: str) -> Metric:
        if len(self.metrics) >= MOST_COLUMNS:
            raise file_error(self.path, line, f"more than {MOST_COLUMNS} metrics: no report of ncu has so many")
        metric = self.metrics[name] = Metric(base)
        return metric
