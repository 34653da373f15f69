"""What a test asks of a row: "80% attainable", "500 GB/s"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bwprof.text import finite_number, quoted, read_number, shown, unknown

SHARES = ("attainable", "ceiling", "limit", "peak", "roofline")
_FORM = re.compile(r"\s*([0-9.eE+]+)\s*(%|[A-Za-z]+/s)\s*([A-Za-z]*)\s*")
_UNITS = {"gb/s": 1.0, "tb/s": 1e3}


@dataclass(frozen=True, slots=True)
class Asked:
    """A column, and the least that it should be."""

    column: str
    least: float
    said: str

    def measured(self, row: Mapping[str, Any]) -> float | None:
        """The row's value; None where it is not known."""
        return finite_number(row.get(self.column))

    def reached(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has as much."""
        found = self.measured(row)
        return found is not None and found >= self.least

    def told(self, row: Mapping[str, Any]) -> str:
        """The row's value in the words that it was asked in."""
        found, speed = self.measured(row), finite_number(row.get("bandwidth_gb_s"))
        gb_s = "no bandwidth" if speed is None else f"{speed:.4g} GB/s"
        if self.column == "bandwidth_gb_s":
            return gb_s
        share = self.column.removeprefix("pct_")
        return f"{gb_s}, its share of {share} is not known" if found is None else f"{found:.1f} % {share} ({gb_s})"


def parsed(at_least: object) -> Asked:
    """What `at_least` says.

    Raises
    ------
    ValueError
        For anything but a number with "GB/s" or "TB/s", or a percentage with one of `SHARES`.

    Examples
    --------
    >>> parsed("80% attainable").column, parsed("1.5 TB/s").least
    ('pct_attainable', 1500.0)
    """
    match = _FORM.fullmatch(at_least) if isinstance(at_least, str) else None
    number = finite_number(read_number(match[1])) if match else None
    if match is None or number is None or number <= 0:
        raise ValueError(_allowed(at_least))
    unit, share = match[2].lower(), match[3].lower()
    if unit == "%":
        if share not in SHARES:
            raise ValueError(unknown("share in at_least", share, SHARES) if share else _allowed(at_least))
        return Asked(f"pct_{share}", number, f"{number:g} % {share}")
    if unit not in _UNITS or share:
        raise ValueError(_allowed(at_least))
    return Asked("bandwidth_gb_s", number * _UNITS[unit], f"{number * _UNITS[unit]:g} GB/s")


def _allowed(given: object) -> str:
    said = f"'{quoted(given)}'" if isinstance(given, str) else shown(given)
    return f"at_least is {said}: allowed are '500 GB/s', '1.5 TB/s', and '80% ' with one of {', '.join(SHARES)}"
