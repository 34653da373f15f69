"""ncu's pages as plain text, as it prints them without ``--csv``: best effort."""

from __future__ import annotations

import re
from pathlib import Path

from bwprof.profilers.nsight.launches import Launches
from bwprof.profilers.reading import wrong
from bwprof.profilers.units import unit

_LONGEST = 1 << 16  # letters of a line that is looked at
_LAUNCH = re.compile(
    r"\s*(?P<name>\S.*?)"
    r"(?: (?P<grid>\(\d+, \d+, \d+\))x(?P<block>\(\d+, \d+, \d+\)))?"
    r"(?:, \d{4}-\w+-\d+ [\d:]+)?, Context (?P<context>\d+), Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>[\d.]+))?\s*",
    re.ASCII,
)
_PROCESS = re.compile(r"\s*\[(\d+)\] (.*)@(\S+)\s*", re.ASCII)
_RULER = re.compile(r"\s*-{3,}(?: +-{3,}){2,}\s*")
_COLUMN = re.compile("-{3,}")
_NEEDED = (
    'this is no page of ncu: a line that begins with "ID" is needed, as ncu --csv --page raw (or details) prints it, '
    "or a page that it printed as text"
)


class Printed:
    """Lines of a text, one after the other, and the launches in them."""

    def __init__(self, path: Path) -> None:
        self._launches = Launches(path, "text")
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
        elif text.lstrip()[:1] == "[" and (found := _PROCESS.fullmatch(text)):
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
            launches.put(line, launches.count - 1, launches.shared(name), value, unit(of))

    def finish(self) -> Launches:
        """The launches; ValueError where there is none, or nothing is known of any."""
        if not self._launches.count or not self._launches.metrics:
            raise wrong(self._launches.path, None, _NEEDED)
        self._launches.told.append("read from text that was printed for people: figures are rounded")
        return self._launches.finish()
