"""A device to predict for: from the catalogue, from numbers, or from measured roofs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from bwprof import _core, registry
from bwprof.analysis.forecast import datasheets
from bwprof.analysis.forecast.datasheets import Entry
from bwprof.analysis.forecast.streams import Streams, default
from bwprof.roofs.model import Roofs
from bwprof.text import quoted, shown, unknown

GIVEN = "given"  # the name of a device that is known by its numbers only
# What a device may be given by, beside its rates: the Card's field, and the factor to its unit.
_NUMBERS = {
    "bandwidth": ("bandwidth_gb_s", 1.0),
    "memory": ("memory_gb", 1.0),
    "clock": ("clock_mhz", 1.0),
    "units": ("units", 1.0),
    "floor": ("floor_seconds", 1e-6),
}
_LEAST, _MOST = 1e-6, 1e9  # of each of them: what is further off is no device's, and times are no floats


@dataclass(frozen=True, slots=True)
class Card:
    """What a prediction knows of a device.

    `tflops` are dense rates by type of arithmetic, `best` the best measured ones by precision, `streams` what plain
    streams take on it. NaN: not known. `source` says where all that is from, in words, `memory_of` whose figure the
    memory is.
    """

    name: str
    bandwidth_gb_s: float
    tflops: dict[str, float]
    streams: Streams
    source: str
    memory_gb: float = math.nan
    clock_mhz: float = math.nan
    units: float = math.nan
    best: dict[str, float] = field(default_factory=dict)
    memory_of: str = ""

    def rate(self, precision: str) -> tuple[float, str]:
        """The arithmetic roof of a precision, TFLOP/s, and whose rate it is: the best measured one, else the dense."""
        return (self.best[precision], precision) if precision in self.best else self.dense(precision)

    def dense(self, precision: str) -> tuple[float, str]:
        """The dense rate that a precision runs at, and of which arithmetic it is; NaN and "" where none is known."""
        kind: str | None = compute_type(precision)
        others = datasheets.instead()
        while kind is not None:
            if kind in self.tflops:
                return self.tflops[kind], kind
            kind = others.get(kind)
        return math.nan, ""

    def text(self, precision: str) -> str:
        """Which of its figures a prediction in a precision rests on."""
        said = self.source
        if self.streams.scaled_from:
            said += f"; streams over size scaled from those of {self.streams.measured_on}"
        kind = self.rate(precision)[1]
        if not kind:
            said += f"; no arithmetic rate is known for {precision}: by memory alone, a lower bound of what calculates"
        elif kind not in (precision, compute_type(precision)):
            said += f"; {precision} calculated at the rate of {kind}"
        return said


@cache
def compute_type(precision: str) -> str:
    """What arithmetic a precision is calculated in."""
    return next(str(found["compute"]) for found in _core.precisions() if found["name"] == precision)


def each_device(device: object) -> list[Any]:
    """Split a list of devices, or a text with commas: those between numbers of one device stay.

    Examples
    --------
    >>> each_device("h100,bandwidth=3200,fp16=400,H200")
    ['h100', 'bandwidth=3200,fp16=400', 'H200']
    """
    if not isinstance(device, str) or all("=" in part for part in device.split(",")):
        return list(device) if isinstance(device, (list, tuple)) else [device]
    return [part.strip() for part in re.split(r",(?!(?!\s*bandwidth)\s*\w+\s*=)", device)]


def card_of(device: object, streams: Streams | None = None) -> Card:
    """The device that was asked for.

    Parameters
    ----------
    device : str, Roofs or Card
        An id of the catalogue or a driver's name for it, numbers ("bandwidth=3200,fp16=400"), or measured roofs.
    streams : Streams, optional
        Those whose measured curve is scaled to this device where it has none of its own; else those that come with
        bwprof.

    Raises
    ------
    ValueError
        For an unknown name (with the nearest one), and numbers that cannot be.
    TypeError
        For anything else.
    """
    if isinstance(device, Card):
        return device
    if isinstance(device, Roofs):
        return measured(device)
    if not isinstance(device, str):
        raise TypeError(f"device is {shown(device)}: a name, numbers ('bandwidth=3200,fp16=400') or a bwprof.Roofs")
    return _given(device, streams) if "=" in device else of_entry(datasheets.entry_of(device), streams)


def of_entry(entry: Entry, streams: Streams | None = None) -> Card:
    """A device of the datasheets."""
    card = Card(
        entry.id,
        float(entry.bandwidth_gb_s),
        {name: float(rate) for name, rate in entry.tflops.items()},
        streams or default(),
        _document(entry),
        (entry.memory_bytes or entry.memory_gb * 1e9) / 1e9,
        math.nan if entry.clock_mhz is None else float(entry.clock_mhz),
        math.nan if entry.units is None else float(entry.units),
        memory_of="device" if entry.memory_bytes else "data sheet",
    )
    return _with_curve(card, streams, None if entry.floor_us is None else entry.floor_us * 1e-6)


def _document(entry: Entry) -> str:
    """Which figures are used, and where a device's own rows have others."""
    said = f"{entry.bandwidth_gb_s:g} GB/s and dense rates of the data sheet"
    if entry.theory:
        own = entry.theory
        said += f" ({entry.tflops['fp16']:g} TFLOP/s fp16), not the {own['bandwidth_gb_s']:g} GB/s and "
        said += f"{own['fp16']:g} TFLOP/s (clock x width, clock x units) of rows measured on one"
    return said


def measured(roofs: Roofs) -> Card:
    """A device by its own roofs; what they do not tell is the catalogue's, where it has the device."""
    entry = datasheets.find(roofs.device)
    known = of_entry(entry) if entry else Card(roofs.device or GIVEN, math.nan, {}, default(), "")
    return replace(
        known,
        name=roofs.device or GIVEN,
        streams=Streams.of(roofs),
        best={rate.precision: rate.tflops for rate in roofs.rates},
        source=f"the measured roofs of {roofs.device or 'a device'} ({roofs.measured or 'at no known time'})",
    )


def _given(text: str, streams: Streams | None) -> Card:
    """A device by its numbers; ValueError with the part that is wrong, and what is allowed."""
    rates = datasheets.arithmetic()
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        name = registry.precision_name(name)
        if not equals or not name or not value:
            raise ValueError(f"device is '{quoted(text)}': '{quoted(part)}' is no NAME=NUMBER")
        if name not in (*_NUMBERS, *rates):
            raise ValueError(unknown("number of a device", name, (*_NUMBERS, *rates), where=f"'{quoted(text)}'"))
        if name in found:
            raise ValueError(f"device is '{quoted(text)}': {name} is given twice")
        found[name] = _number(value, name)
    if "bandwidth" not in found:
        raise ValueError(f"device is '{quoted(text)}': bandwidth= is missing (GB/s)")
    numbers: dict[str, Any] = {field: found[name] * unit for name, (field, unit) in _NUMBERS.items() if name in found}
    floor = numbers.pop("floor_seconds", None)
    card = Card(
        GIVEN,
        numbers.pop("bandwidth_gb_s"),
        {name: found[name] for name in rates if name in found},
        streams or default(),
        f"the numbers given ({text})",
        **numbers,
    )
    return _with_curve(card, streams, floor)


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not _LEAST <= value <= _MOST or not text[-1].isdigit() or "_" in text:
        raise ValueError(f"{name} is '{quoted(text)}': allowed is a number from {_LEAST:g} to {_MOST:g}")
    return value


def _with_curve(card: Card, streams: Streams | None, floor: float | None) -> Card:
    """The card with a measured device's curve scaled to it: its memory by bandwidth, its latency by the clock."""
    base = (streams or default()).as_measured
    origin = datasheets.find(base.measured_on)
    # A device that the catalogue does not have is known by its largest read.
    bandwidth = float(origin.bandwidth_gb_s) if origin else float(base.ceiling_gb_s(1.0, 0.0))
    clock = origin.clock_mhz if origin else None
    latency = clock / card.clock_mhz if clock and not math.isnan(card.clock_mhz) else 1.0
    return replace(card, streams=base.carried_over(card.bandwidth_gb_s / bandwidth, latency, floor))
