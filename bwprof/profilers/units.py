"""Units as profilers write them, and numbers as the locales of their users do."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

MISSING = frozenset({"", "-", "n/a", "na", "nan", "-nan", "none", "null", "no data", "inf", "-inf", "+inf", "infinity"})

# 49 152 bytes of shared memory are "49.15 Kbyte" to ncu: its prefixes are powers of ten.
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"ns": 10**9, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**3, "s": 1}  # parts of a second
_LONG_SECONDS = re.compile(r"(n|u|m|)sec(?:ond)?s?")
_SCALED = re.compile(r"([kmgt]i?)?(byte|hz)s?")


class Unit(NamedTuple):
    """What a figure is multiplied with and divided by to be in `base`: byte, s, hz, byte/s, %, or as it was written."""

    times: float
    over: float
    base: str

    @property
    def is_scaled(self) -> bool:
        """Whether figures are shortened to be in it: ncu's own units are byte, ns and hz."""
        return self.times > 1 or self.over in (10**3, 10**6)

    def of(self, value: float) -> float:
        """A figure in base units."""
        return value * self.times / self.over


@lru_cache(maxsize=4096)
def unit(written: str) -> Unit:
    """The unit that a profiler wrote: Kbyte, usecond, Gbyte/second, cycle/nsecond, %; unknown ones stay as they are.

    Examples
    --------
    >>> unit("Mbyte"), unit("us").base, unit("Gbyte/second").of(2.5), unit("inst/cycle").base
    (Unit(times=1000000, over=1, base='byte'), 's', 2500000000.0, 'inst/cycle')
    """
    told = written.strip()
    upper, slash, lower = told.partition("/")
    above, below = _simple(upper), _simple(lower)
    base = f"{above.base}{slash}{below.base}"
    return Unit(above.times * below.over, above.over * below.times, "hz" if base in ("cycle/s", "1/s") else base)


def _simple(written: str) -> Unit:
    told = written.strip()
    lowered = told.lower()
    if long := _LONG_SECONDS.fullmatch(lowered):
        lowered = f"{long[1]}s"
    if lowered in _SECONDS:
        return Unit(1, _SECONDS[lowered], "s")
    if scaled := _SCALED.fullmatch(lowered):
        return Unit(_PREFIXES[scaled[1] or ""], 1, scaled[2])
    return Unit(1, 1, told)


_DIGITS = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+"
_EXPONENT = r"(?:[eE][-+]?[0-9]{1,4})?"
_NUMBER = re.compile(rf"[-+]?(?:(?:{_DIGITS})(?:\.[0-9]*)?|\.[0-9]+){_EXPONENT}")
_COLUMN = re.compile(rf"(?:(?:[-+]?(?:{_DIGITS})(?:\.[0-9]*)?)?\n)*")  # of plain or grouped numbers, or nothing
_SPACED = re.compile("(?<=[0-9])['\u2019\u00a0\u2009\u202f ](?=[0-9]{3})")
_INSTANCES = re.compile(r"([^\s(]+)\s+\(.*\)", re.DOTALL)  # --print-metric-instances: 12 (3; 4; 5)
_SWAPPED = str.maketrans(",.", ".,")


def is_missing(written: str) -> bool:
    """Whether a cell says that there is no figure."""
    told = written.strip()
    return told.lower() in MISSING or told.startswith("(!)")


def number(written: str, *, decimal_comma: bool = False) -> float | None:
    """The number of a cell; NaN where nothing was measured (empty, n/a, no finite number), None where it is text.

    Of a metric with its instances the aggregate is meant.

    Examples
    --------
    >>> number("1,073,741,824"), number("88,59", decimal_comma=True), number("n/a"), number("CachePreferNone")
    (1073741824.0, 88.59, nan, None)
    """
    told = written.strip()
    if decimal_comma or not _NUMBER.fullmatch(told):  # most are plain numbers
        if is_missing(told):
            return math.nan
        if found := _INSTANCES.fullmatch(told):
            told = found[1]
        if decimal_comma:
            told = told.translate(_SWAPPED)
        if not _NUMBER.fullmatch(told):
            told = _SPACED.sub("", told)
            if not _NUMBER.fullmatch(told):
                return None
    value = float(told.replace(",", ""))
    return value if math.isfinite(value) else math.nan


def numbers(cells: Sequence[str], *, decimal_comma: bool = False) -> array[float] | None:
    """The numbers of many cells at once; None where one of them is not plainly one: `number` tells."""
    if not decimal_comma:
        try:
            return array("d", map(float, cells))
        except ValueError:
            pass
    joined = "\n".join(cells)
    if len(joined) < len(cells):
        return array("d", [math.nan]) * len(cells)
    if decimal_comma:
        joined = joined.translate(_SWAPPED)
    if joined.count("\n") != len(cells) - 1 or not _COLUMN.fullmatch(f"{joined}\n"):
        return None
    plain = joined.replace(",", "").split("\n")
    return array("d", [float(cell) if cell else math.nan for cell in plain])


_COMMA_ENDS = re.compile(r"[-+]?(?:[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]*|[0-9]+,(?:[0-9]{1,2}|[0-9]{4,}))")
_POINT_ENDS = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]*|[0-9]+\.(?:[0-9]{1,2}|[0-9]{4,}))")


def comma_is_decimal(cells: Iterable[str]) -> bool:
    """Whether figures were written with a decimal comma, "1.234,56": some can be nothing else, and none has a point."""
    found = False
    for written in cells:
        cell = _SPACED.sub("", written) if "," in written else written
        if _POINT_ENDS.fullmatch(cell):
            return False
        found = found or ("," in cell and bool(_COMMA_ENDS.fullmatch(cell)))
    return found
