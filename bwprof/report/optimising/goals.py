"""Goals of an optimisation: what the last run should reach, and whether it does."""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from bwprof.results import schema
from bwprof.results.files import read_text
from bwprof.text import figure_text, finite_number, is_truth, path_of, quoted, read_number, short, shown, unknown

# Beside the columns of numbers.
SPEEDUP, VS_TORCH, FIXED, VERIFIED = "speedup", "speedup_vs_torch", "bottlenecks_fixed", "verified"
OWN = (SPEEDUP, VS_TORCH, FIXED, VERIFIED)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_WANTED = re.compile(r"\s*(>=|<=|==|>|<)\s*([^\s%x]+)\s*(%|x)?\s*")


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal: a figure's name, what it should be, and what it is; NaN where that was not measured.

    `why` says what would measure it.
    """

    name: str
    compare: str
    wanted: float
    found: float = math.nan
    why: str = ""

    @property
    def measured(self) -> bool:
        """Whether the figure is known."""
        return not math.isnan(self.found)

    @property
    def passed(self) -> bool:
        """Whether it is reached; what was not measured is not."""
        return self.measured and _COMPARE[self.compare](self.found, self.wanted)

    @property
    def result(self) -> str:
        """In a word."""
        return "pass" if self.passed else "fail"

    @property
    def said(self) -> str:
        """What is wanted."""
        if self.name == VERIFIED:
            return "all results verified" if self.wanted else "results not verified"
        return f"{self.compare} {self.wanted:g}{self._unit()}"

    @property
    def figure(self) -> str:
        """What was found."""
        if not self.measured:
            return f"not measured{f': {self.why}' if self.why else ''}"
        if self.name == VERIFIED:
            return "yes" if self.found else "no"
        if self.name == FIXED:
            return f"{self.found:.0f}"
        return f"{_digits(self.found)}{self._unit()}"

    def _unit(self) -> str:
        if self.name in OWN:
            return "x" if self.name in (SPEEDUP, VS_TORCH) else ""
        unit = schema.column(self.name).unit
        return f" {unit}" if unit else ""


def _digits(value: float) -> str:
    return figure_text(value, whole_from=1000) if 0.1 <= value < 1e9 else short(value, ".4g")


def read_goals(given: str | PathLike[str] | Mapping[str, Any] | None) -> list[Goal]:
    """Goals of a mapping from names to what is wanted, or of a TOML file of such lines; none for None.

    Raises
    ------
    ValueError
        For an unknown figure, and for what is not wanted of one.

    Examples
    --------
    >>> [goal.said for goal in read_goals({"bandwidth_gb_s": ">200", "verified": True})]
    ['> 200 GB/s', 'all results verified']
    """
    if given is None:
        return []
    if isinstance(given, Mapping):
        wanted, where = given, "goals"
    else:
        where = str(path_of(given, "goals"))
        try:
            wanted = tomllib.loads(read_text(path_of(given, "goals")))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ValueError(f"{quoted(where)} is not a TOML file: {error}") from None
    inner = wanted.get("goals")
    if isinstance(inner, Mapping):
        for name in (name for name in wanted if name != "goals"):
            raise ValueError(
                f"{quoted(where)}: {quoted(name)} stands outside goals, and would be ignored: put it into them"
            )
        wanted = inner
    if not wanted:
        raise ValueError(f'{quoted(where)} holds no goals: lines such as bandwidth_gb_s = ">200" are needed')
    return [_goal(str(name), value, quoted(where)) for name, value in wanted.items()]


def _goal(name: str, wanted: Any, where: str) -> Goal:
    figures = [*OWN, *(column.name for column in schema.columns() if column.kind in ("number", "integer"))]
    if name not in figures:
        raise ValueError(unknown("goal", name, figures, where=where, see="bwprof columns, and " + ", ".join(OWN)))
    if name == VERIFIED:
        if not is_truth(wanted):
            raise ValueError(f"{where}: {name} is {shown(wanted)}: true is needed")
        return Goal(name, "==", float(bool(wanted)))
    found = _WANTED.fullmatch(wanted) if isinstance(wanted, str) else None
    value = finite_number(read_number(found[2])) if found is not None else None
    if found is None or value is None:
        raise ValueError(
            f'{where}: {name} is {shown(wanted)}: a comparison is needed, as ">=0.5" or "<2" ({", ".join(_COMPARE)})'
        )
    return Goal(name, found[1], value)
