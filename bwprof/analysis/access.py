"""Access patterns: the share of the moved bytes that is useful."""

from __future__ import annotations

import math
import operator
from enum import Enum
from typing import TYPE_CHECKING, Any

from bwprof import _core, registry
from bwprof.text.parsing import describe_unknown, parse_count, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

SECTOR_BYTES = 32  # the least that a GPU moves
LINE_BYTES = 64  # the least that a CPU moves
WARP = 32  # threads whose addresses a GPU combines

MEASURED, MODEL, TABLE = "measured", "sector model", "table"
SOURCES = (MEASURED, MODEL, TABLE)

# Rough defaults where neither a measurement nor the model applies: pattern -> efficiency up to a stride.
_TABLE: dict[str, tuple[tuple[float, float], ...]] = {
    "sequential": ((math.inf, 0.95),),
    "coalesced": ((math.inf, 0.90),),
    "strided": ((8, 0.75), (32, 0.50), (math.inf, 0.30)),
    "uncoalesced": ((math.inf, 0.40),),
    "random": ((math.inf, 0.20),),
}

_DESCRIPTIONS = {
    "sequential": "one walk through memory: every byte of a line is used",
    "coalesced": "the threads of a warp read neighboring elements: every byte of a sector is used",
    "strided": "neighboring threads read elements as far apart each time: the rest of each sector is moved unused",
    "uncoalesced": "the threads of a warp read addresses without an order: up to a sector for each",
    "random": "every access at an address of its own: a sector, or a line, for each element",
    "broadcast": "all threads of a warp read the same element: one sector for all of them",
    "misaligned": "neighboring elements that begin within a sector: one sector more for each request of a warp",
}


class AccessEfficiency(float):
    """Useful over moved bytes, 0 to 1; its `source` is "measured", "sector model" or "table"."""

    source: str

    def __new__(cls, value: float, source: str) -> AccessEfficiency:
        """Create from a share of 0 to 1 and its source."""
        efficiency = super().__new__(cls, value)
        efficiency.source = source
        return efficiency

    def __repr__(self) -> str:
        return f"{float(self):.4g} ({self.source})"

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.source


class AccessPattern(Enum):
    """How the threads of a kernel, or a loop, walk through memory.

    A strided pattern may have a stride: ``AccessPattern.parse("strided:128")``, or ``AccessPattern("strided:128")``.
    It equals ``AccessPattern.STRIDED``, which has none, but not a pattern of another stride.

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
        """Read a pattern's name, and of a strided one its stride: "strided:128"; ValueError where it is neither."""
        return cls(text)

    @classmethod
    def _missing_(cls, value: object) -> AccessPattern:
        # A pattern with its stride has a value of its own, by which it is pickled.
        name, colon, rest = str(value).strip().lower().partition(":")
        member = next((member for member in cls if member.value == name.strip()), None)
        if member is None:
            raise ValueError(describe_unknown("access pattern", str(value), [member.value for member in cls]))
        if not colon:
            return member
        if member is not cls.STRIDED:
            raise ValueError(f"access pattern '{quote_text(value)}': only strided takes a stride (strided:128)")
        pattern = object.__new__(cls)
        pattern._name_ = "STRIDED"
        pattern._value_ = f"strided:{_check_positive('stride', parse_count(rest, 'stride'))}"
        return pattern

    @property
    def stride(self) -> int | None:
        """Elements from one thread's to the next one's; None where that is open."""
        return int(self.value.partition(":")[2]) if ":" in self.value else None

    @property
    def description(self) -> str:
        """The pattern in a sentence."""
        text = _DESCRIPTIONS[self._kind]
        return text if self.stride is None else f"{text} (a stride of {self.stride} elements)"

    @property
    def _kind(self) -> str:
        return str(self.value).partition(":")[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AccessPattern):
            return NotImplemented
        return self._kind == other._kind and (None in (self.stride, other.stride) or self.stride == other.stride)

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
        """Estimate useful over moved bytes.

        Parameters
        ----------
        stride : int, optional
            Elements from one thread's to the next one's: the pattern's own, else 1.
        element_bytes : int
            Bytes of one element.
        device : str, optional
            "cpu" moves lines of 64 bytes, anything else sectors of 32. A name selects rows of `measured`.
        measured : pandas.DataFrame, optional
            A run of the suite "access", whose reads count with their pct_ceiling. Or columns `pattern` and
            `load_efficiency` (percent), optionally `stride`, `element_bytes` and `device`; the median counts.
        source : str, optional
            "measured", "sector model" or "table"; the default is the first of these that knows the pattern.

        Returns
        -------
        AccessEfficiency
            0 to 1, with its `source`. The sector model gives e / min(32, stride * e) for elements of e bytes.

        Raises
        ------
        ValueError
            For a stride or an element below 1, an unknown source, or one that does not know this pattern.
        """
        stride = _check_positive("stride", stride if stride is not None else self.stride or 1)
        size = _check_positive("element_bytes", element_bytes)
        if source is not None and source not in SOURCES:
            raise ValueError(describe_unknown("source", source, SOURCES))
        backend = str(device or "").partition(":")[0].strip().lower()  # of "cuda:1"; else a device's own name
        is_backend = backend in registry.backend_names()
        unit = LINE_BYTES if is_backend and _core.backend_facts(backend)["runs_on_host"] else SECTOR_BYTES
        known = None if measured is None else _median_efficiency(self._kind, stride, size, device, is_backend, measured)
        estimates = {
            MEASURED: known,
            MODEL: _sector_efficiency(self._kind, stride, size, unit),
            TABLE: next((value for most, value in _TABLE.get(self._kind, ()) if stride <= most), None),
        }
        for name in SOURCES if source is None else (source,):
            value = estimates[name]
            if value is not None:
                return AccessEfficiency(value, name)
        raise ValueError(f"source is '{source}', which does not know the pattern {self.value}: leave it out")


def _sector_efficiency(kind: str, stride: int, size: int, unit: int) -> float | None:
    """Model patterns with known addresses by the sectors or lines that they touch."""
    if kind in ("sequential", "coalesced"):
        return 1.0
    if kind == "strided":
        return size / max(size, min(unit, stride * size))
    if kind == "broadcast":
        return min(1.0, size / unit)
    if kind == "misaligned":
        return WARP * size / (WARP * size + unit) if unit == SECTOR_BYTES else 1.0  # a loop uses both halves of a line
    return None


def _median_efficiency(
    kind: str, stride: int, size: int, device: str | None, is_backend: bool, measured: pd.DataFrame
) -> float | None:
    import numpy as np

    from bwprof.analysis.values import is_word, map_distinct, numbers

    if {"operation", "precision", "stride", "granule_bytes", "pct_ceiling"} <= set(measured.columns):  # of a run
        kind = {"sequential": "strided", "coalesced": "strided", "uncoalesced": "random"}.get(kind, kind)
        bits = map_distinct(measured, "precision", registry.narrowest_bits, math.nan)
        sizes, readers, offset = (numbers(measured, name) for name in ("granule_bytes", "readers", "offset"))
        kinds = np.select([sizes > 0, readers > 1, offset > 0], ["random", "broadcast", "misaligned"], "strided")
        sizes = np.where(sizes > 0, sizes, bits / 8)
        reads = map_distinct(measured, "operation", registry.is_pattern, missing=False)
        reads &= ~(numbers(measured, "bytes_written") > 0) & is_word(measured, "status", "ok")
        reads &= ~is_word(measured, "cache", "hot")
        made: dict[str, Any] = {"pattern": kinds, "element_bytes": sizes, "load_efficiency": measured["pct_ceiling"]}
        measured = measured.assign(**made)[reads]
    if not {"pattern", "load_efficiency"} <= set(measured.columns):
        raise ValueError("measured has no columns pattern and load_efficiency (percent)")
    share = numbers(measured, "load_efficiency")
    rows = is_word(measured, "pattern", kind, f"{kind}:{stride}") & (share > 0)
    for name, value in (("stride", stride), ("element_bytes", size)):
        column = numbers(measured, name)
        rows &= (column == value) | np.isnan(column)
    place = "backend" if is_backend else "device"
    if device and place in measured.columns:
        rows &= is_word(measured, place, device.partition(":")[0].lower() if is_backend else device)
    return min(1.0, float(np.median(share[rows])) / 100) if rows.any() else None


def _check_positive(name: str, value: Any) -> int:
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} is {repr_short(value)}: a whole number from 1 is needed")
    return number
