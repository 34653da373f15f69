"""Access patterns: which share of the moved bytes is useful."""

from __future__ import annotations

import math
import operator
from enum import Enum
from typing import TYPE_CHECKING, Any

from bwprof import _core, registry
from bwprof.text.parsing import describe_unknown, parse_count, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

SECTOR_BYTES = 32  # what a GPU moves at least

LINE_BYTES = 64  # what a CPU moves at least

WARP = 32  # threads whose addresses a GPU takes together

MEASURED, MODEL, TABLE = "measured", "sector model", "table"

SOURCES = (MEASURED, MODEL, TABLE)

# Rough defaults where neither a measurement nor the model says more: pattern -> efficiency up to which stride.
_TABLE: dict[str, tuple[tuple[float, float], ...]] = {
    "sequential": ((math.inf, 0.95),),
    "coalesced": ((math.inf, 0.90),),
    "strided": ((8, 0.75), (32, 0.50), (math.inf, 0.30)),
    "uncoalesced": ((math.inf, 0.40),),
    "random": ((math.inf, 0.20),),
}

_TEXTS = {
    "sequential": "one walk through memory: every byte of a line is used",
    "coalesced": "the threads of a warp read neighbouring elements: every byte of a sector is used",
    "strided": "neighbouring threads read elements as far apart each time: the rest of each sector is moved unused",
    "uncoalesced": "the threads of a warp read addresses without an order: up to a sector for each",
    "random": "every access at an address of its own: a sector, or a line, for each element",
    "broadcast": "all threads of a warp read the same element: one sector for all of them",
    "misaligned": "neighbouring elements that begin within a sector: one sector more for each request of a warp",
}


class AccessEfficiency(float):
    """Useful over moved bytes, 0 to 1: a float that knows where it comes from.

    Attributes
    ----------
    source : str
        "measured", "sector model" or "table".
    """

    source: str

    def __new__(cls, value: float, source: str) -> AccessEfficiency:
        """A share of 0 to 1, and its source."""
        found = super().__new__(cls, value)
        found.source = source
        return found

    def __repr__(self) -> str:
        return f"{float(self):.4g} ({self.source})"

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.source


class AccessPattern(Enum):
    """How the threads of a kernel, or a loop, walk through memory.

    A pattern may have a stride of its own: ``AccessPattern.parse("strided:128")``, or ``AccessPattern("strided:128")``.
    It equals ``AccessPattern.STRIDED``, which leaves the stride open, and not one of another stride.

    Examples
    --------
    >>> AccessPattern.STRIDED.expected_efficiency(stride=2)
    0.5 (sector model)
    >>> AccessPattern.parse("strided:128").expected_efficiency()
    0.125 (sector model)
    >>> AccessPattern.RANDOM.expected_efficiency().source
    'table'
    """

    SEQUENTIAL = "sequential"
    COALESCED = "coalesced"
    STRIDED = "strided"
    UNCOALESCED = "uncoalesced"
    RANDOM = "random"
    BROADCAST = "broadcast"
    MISALIGNED = "misaligned"

    @classmethod
    def parse(cls, text: str) -> AccessPattern:
        """A pattern by its name, and of a strided one its stride in elements: "strided:128".

        Raises
        ------
        ValueError
            For an unknown name (with the nearest one), a stride that is no whole number from 1, or of another pattern.
        """
        if isinstance(text, cls):
            return text
        name, colon, rest = str(text).strip().lower().partition(":")
        found = next((pattern for pattern in cls if pattern.value == name.strip()), None)
        if found is None:
            raise ValueError(describe_unknown("access pattern", str(text), [pattern.value for pattern in cls]))
        if not colon:
            return found
        if found is not cls.STRIDED:
            raise ValueError(f"access pattern '{quote_text(text)}': only strided takes a stride (strided:128)")
        return cls(f"{found.value}:{_stride(parse_count(rest, 'stride'))}")

    @classmethod
    def _missing_(cls, value: object) -> AccessPattern | None:
        """A strided pattern with its stride: a value of its own, by which it is pickled."""
        if not isinstance(value, str):
            raise ValueError(describe_unknown("access pattern", repr_short(value), [pattern.value for pattern in cls]))
        name, colon, rest = value.partition(":")
        if not colon or name != "strided" or not rest.isdecimal() or not int(rest):
            return cls.parse(value)
        made = object.__new__(cls)
        made._name_, made._value_ = "STRIDED", value
        return made

    @property
    def stride(self) -> int | None:
        """Elements from one thread's to the next one's; None where that is left open."""
        return int(self.value.partition(":")[2]) if ":" in self.value else None

    @property
    def description(self) -> str:
        """The pattern in a sentence."""
        text = _TEXTS[self._kind]
        return text if self.stride is None else f"{text} (a stride of {self.stride} elements)"

    @property
    def _kind(self) -> str:
        return str(self.value).partition(":")[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AccessPattern):
            return NotImplemented
        one, two = self.stride, other.stride
        return self._kind == other._kind and (one is None or two is None or one == two)

    def __hash__(self) -> int:
        return hash(self._kind)

    def expected_efficiency(
        self,
        stride: int | None = None,
        element_bytes: int = 4,
        device: str | None = None,
        *,
        measured: pd.DataFrame | None = None,
        source: str | None = None,
    ) -> AccessEfficiency:
        """Useful over moved bytes.

        Parameters
        ----------
        stride : int, optional
            Elements from one thread's to the next one's: the pattern's own, else 1.
        element_bytes : int
            Bytes of one element.
        device : str, optional
            "cpu" moves lines of 64 bytes, anything else sectors of 32. A name chooses among the rows of `measured`.
        measured : pandas.DataFrame, optional
            Measurements of patterns: columns `pattern` and `load_efficiency` (percent), and, where it has them,
            `stride`, `element_bytes` and `device`. Where rows of this pattern are among them, their median counts.
        source : str, optional
            "measured", "sector model" or "table", to ask for one; without it the first of these that knows.

        Returns
        -------
        Efficiency
            0 to 1, with its `source`. The sector model gives e / min(32, stride * e) for elements of e bytes.

        Raises
        ------
        ValueError
            For a stride or an element below 1, an unknown source, or one that does not know this pattern.
        """
        step = _stride(stride if stride is not None else self.stride or 1)
        size = _positive("element_bytes", element_bytes)
        if source is not None and source not in SOURCES:
            raise ValueError(describe_unknown("source", source, SOURCES))
        known = {
            MEASURED: lambda: _from_rows(self._kind, step, size, device, measured),
            MODEL: lambda: _from_sectors(self._kind, step, size, _unit_bytes(device)),
            TABLE: lambda: next((value for most, value in _TABLE.get(self._kind, ()) if step <= most), None),
        }
        for name in SOURCES if source is None else (source,):
            value = known[name]()
            if value is not None:
                return AccessEfficiency(value, name)
        raise ValueError(f"source is '{source}', which does not know the pattern {self.value}: leave it out")


def _from_sectors(kind: str, stride: int, size: int, unit: int) -> float | None:
    """The model, for patterns whose addresses it knows."""
    if kind in ("sequential", "coalesced"):
        return 1.0
    if kind == "strided":
        return size / max(size, min(unit, stride * size))
    if kind == "broadcast":
        return min(1.0, size / unit)
    if kind == "misaligned":
        return WARP * size / (WARP * size + unit) if unit == SECTOR_BYTES else 1.0  # a loop uses both halves of a line
    return None


def _from_rows(kind: str, stride: int, size: int, device: str | None, measured: pd.DataFrame | None) -> float | None:
    """The median of the rows that measured this pattern on this device; None where there are none."""
    if measured is None:
        return None
    import numpy as np

    from bwprof.analysis.values import is_word, numbers

    if not {"pattern", "load_efficiency"} <= set(measured.columns):
        raise ValueError("measured has no columns pattern and load_efficiency (percent)")
    share = numbers(measured, "load_efficiency")
    held = is_word(measured, "pattern", kind, f"{kind}:{stride}") & (share > 0)
    for name, wanted in (("stride", stride), ("element_bytes", size)):
        found = numbers(measured, name)
        held &= (found == wanted) | np.isnan(found)
    if device is not None and "device" in measured.columns and not _backend_of(device):
        held &= is_word(measured, "device", device)
    return min(1.0, float(np.median(share[held])) / 100) if held.any() else None


def _unit_bytes(device: str | None) -> int:
    backend = _backend_of(device)
    return LINE_BYTES if backend and _core.backend_facts(backend)["runs_on_host"] else SECTOR_BYTES


def _backend_of(device: str | None) -> str:
    """The backend that a device is said to be of ("cuda:1"); "" for a device's own name."""
    head = str(device or "").partition(":")[0].strip().lower()
    return head if head in registry.backend_names() else ""


def _stride(value: Any) -> int:
    return _positive("stride", value)


def _positive(name: str, value: Any) -> int:
    try:
        found = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = 0
    if found < 1:
        raise ValueError(f"{name} is {repr_short(value)}: a whole number from 1 is needed")
    return found
