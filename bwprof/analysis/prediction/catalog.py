"""Devices to predict for, with the times of their streams: from data sheets, from numbers, or from measured roofs."""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bwprof import registry
from bwprof.roofs.model import Roofs
from bwprof.text.parsing import describe_unknown, nearest_name, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_DATA = Path(__file__).parents[2] / "data"
_MAKERS = ("nvidia", "amd", "tesla")
_MODEL = re.compile(r"(?!\d+gb).*\d")  # a word with a number that is no size
_FAR = 2.0**64  # bytes: more than any transfer has
Array = Any  # a NumPy array of floats


@dataclass(frozen=True, slots=True)
class Entry:
    """One device: dense TFLOP/s by type of arithmetic, bandwidth in GB/s; None for what is not known.

    `source` is the maker's document, `checked` lists pages that agree with it, `unconfirmed` the figures that none of
    them has. `family` lists words for the device. The device reports `memory_bytes`, the data sheet says `memory_gb`.
    `theory` has the figures of bwprof's own rows where they differ: memory clock x bus width, boost clock x units.
    """

    id: str
    arch: str
    year: int
    bandwidth_gb_s: float
    tflops: dict[str, float]
    memory_gb: float
    source: str
    vendor: str = "NVIDIA"
    aliases: tuple[str, ...] = ()
    l2_mib: float | None = None
    units: int | None = None
    clock_mhz: float | None = None
    floor_us: float | None = None
    note: str = ""
    family: tuple[str, ...] = ()
    memory_bytes: int | None = None
    checked: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    theory: dict[str, float] | None = None


@cache
def _read_datasheets() -> dict[str, Any]:
    return tomllib.loads((_DATA / "devices.toml").read_text(encoding="utf-8"))


@cache
def entries() -> tuple[Entry, ...]:
    """List the devices of the catalog, in its order."""
    lists = ("aliases", "family", "checked", "unconfirmed")
    sheets = _read_datasheets()["device"]
    return tuple(Entry(**{**sheet, **{name: tuple(sheet.get(name, ())) for name in lists}}) for sheet in sheets)


@cache
def arithmetic_types() -> tuple[str, ...]:
    """List the types of arithmetic of which a device has a rate, in the registry's order."""
    known = {name for entry in entries() for name in entry.tflops}
    return tuple(name for name in registry.precision_names() if name in known)


def find(name: str) -> Entry | None:
    """Find the device of an id or of a driver's name; None for an unknown one."""
    words = "".join(_words(name))
    names = ((entry, own) for entry in entries() for own in (entry.id, *entry.aliases))
    return next((entry for entry, own in names if words == "".join(_words(own))), None)


def find_similar(name: str) -> list[Entry]:
    """Find the device of a name, else those that have all of its words and a model's number, by bandwidth.

    Examples
    --------
    >>> [[entry.id for entry in find_similar(name)] for name in ("h100", "GeForce 4090", "mi300", "80GB", "a10")]
    [['H100-SXM', 'H100-PCIe'], ['RTX-4090'], ['MI300X'], [], []]
    """
    exact, words = find(name), set(_words(name))
    if exact is not None:
        return [exact]
    similar = []
    for entry in entries():
        size = f"{entry.memory_gb:g}"
        known = {*_models(entry), *_words(f"{entry.id} {' '.join(entry.aliases)}"), size, f"{size}g", f"{size}gb"}
        if words <= known and words & _models(entry):
            similar.append(entry)
    return sorted(similar, key=lambda entry: -entry.bandwidth_gb_s)


def _models(entry: Entry) -> set[str]:
    """Collect the words of a device with its model's number: 4090, rtx4090."""
    words = _words(" ".join((entry.id, *entry.family)))
    return {word for word in (*words, *map("".join, pairwise(words))) if _MODEL.match(word)}


def find_entry(name: str) -> Entry:
    """Find the first similar device; ValueError with the nearest id where there is none."""
    similar = find_similar(name)
    if similar:
        return similar[0]
    ids, words = {entry.id.lower(): entry.id for entry in entries()}, {*_words(name)}
    near = ids.get(nearest_name(name.lower(), ids, likeness=0.7) or "", "")
    same = [entry for entry in entries() if words & _models(entry)]
    if same:
        near = max(same, key=lambda entry: (len(words & {*_words(entry.id)}), entry.bandwidth_gb_s)).id
    raise ValueError(
        f"{describe_unknown('device', name, ids.values(), meant=near)}; any other by its numbers, as in "
        "'bandwidth=3200,fp16=400' (GB/s, TFLOP/s), or by its measured roofs (a bwprof.Roofs; --roofs FILE)"
    )


def _words(name: str) -> list[str]:
    """Split a name into words of letters and digits, without the maker."""
    return [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _MAKERS]


def catalog() -> pd.DataFrame:
    """Tabulate the devices that `bwprof.predict` knows by name.

    Returns
    -------
    pandas.DataFrame
        A row per device: id, vendor, arch, year, bandwidth_gb_s, a column of dense TFLOP/s for each type of arithmetic
        (NaN where it has none), memory_gb, memory_of (its source, "device" or "data sheet"), l2_mib, units, clock_mhz,
        source (the maker's document), checked (pages that agree), unconfirmed (figures that none of them has),
        theory_gb_s and theory_fp16 (the figures of bwprof's own rows where they differ), note, aliases.

    Examples
    --------
    >>> from bwprof.analysis.prediction.catalog import catalog
    >>> catalog().set_index("id").loc["A100-80GB", ["bandwidth_gb_s", "fp16"]].tolist()
    [2039.0, 312.0]
    """
    import pandas as pd

    rows = []
    for entry in entries():
        card, theory = card_from_entry(entry), entry.theory or {}
        row = {name: getattr(entry, name) for name in ("id", "vendor", "arch", "year")}
        row["bandwidth_gb_s"] = card.bandwidth_gb_s
        row |= {name: card.tflops.get(name, math.nan) for name in arithmetic_types()}
        row |= {"memory_gb": card.memory_gb, "memory_of": card.memory_of, "l2_mib": float(entry.l2_mib or math.nan)}
        row |= {"units": card.units, "clock_mhz": card.clock_mhz, "source": entry.source}
        row |= {"checked": "; ".join(entry.checked), "unconfirmed": ", ".join(entry.unconfirmed)}
        row |= {"theory_gb_s": theory.get("bandwidth_gb_s", math.nan), "theory_fp16": theory.get("fp16", math.nan)}
        rows.append(row | {"note": entry.note, "aliases": ", ".join(entry.aliases)})
    return pd.DataFrame(rows)


@dataclass(frozen=True, slots=True)
class Curve:
    """One stream over size: ascending bytes, and seconds that never fall."""

    read_fraction: float
    sizes: np.ndarray[Any, Any]
    seconds: np.ndarray[Any, Any]

    def times(self, total: Array, floor: float) -> Array:
        """Interpolate seconds between the measured sizes, as `bwprof.Roofs` does."""
        first, last = self.seconds[0], self.seconds[-1]
        low = min(floor, first)
        below = low + (first - low) * total / self.sizes[0]
        within = np.interp(total, self.sizes, self.seconds)
        beyond = total * (last / self.sizes[-1])
        return np.where(total < self.sizes[0], below, np.where(total > self.sizes[-1], beyond, within))


@dataclass(frozen=True)
class Streams:
    """A device's streams over size, by read fraction, and the time of an empty launch.

    `scaled_from` are those of the device `measured_on`, from which these were computed for another one.
    """

    curves: tuple[Curve, ...]
    floor_seconds: float
    measured_on: str
    scaled_from: Streams | None = None

    @property
    def as_measured(self) -> Streams:
        """The streams of the device `measured_on`, from which others are scaled."""
        return self.scaled_from or self

    @classmethod
    def of(cls, roofs: Roofs) -> Streams:
        """Read the streams of measured roofs; ValueError where they have none."""
        if not roofs.points:
            raise ValueError(f"the roofs of {roofs.device or 'this device'} hold no stream")
        curves = []
        for stream in dict.fromkeys(point.stream for point in roofs.points):
            points = [point for point in roofs.points if point.stream == stream]
            points.sort(key=lambda point: point.total_bytes)
            seconds = np.array([point.seconds for point in points])
            curves.append(
                Curve(
                    points[-1].read_fraction,
                    np.array([float(point.total_bytes) for point in points]),
                    np.minimum.accumulate(seconds[::-1])[::-1],  # fewer bytes never need more time
                )
            )
        curves.sort(key=lambda curve: curve.read_fraction)
        return cls(tuple(curves), roofs.floor_seconds, roofs.device)

    @classmethod
    def from_dict(cls, data: Any) -> Streams:
        """Read streams that `to_dict` wrote; ValueError for anything else."""
        try:
            device, floor = str(data["device"]), float(data["floor_microseconds"])
            curves = [
                (float(curve["read_fraction"]), np.array(curve["bytes"], float), np.array(curve["microseconds"], float))
                for curve in data["curves"]
            ]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("these are no streams: a device, floor_microseconds and curves are needed") from None
        mixes = [mix for mix, _, _ in curves]
        right = mixes and mixes == sorted(set(mixes)) and all(0 <= mix <= 1 for mix in mixes) and 0 <= floor < math.inf
        if not right or not all(_is_curve(sizes, times) for _, sizes, times in curves):
            raise ValueError("these are no streams: ascending bytes and times of each mix are needed")
        return cls(tuple(Curve(mix, sizes, times * 1e-6) for mix, sizes, times in curves), floor * 1e-6, device)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain types, for JSON."""
        curves = [
            {
                "read_fraction": own.read_fraction,
                "bytes": own.sizes.tolist(),
                "microseconds": (own.seconds * 1e6).tolist(),
            }
            for own in self.curves
        ]
        return {"device": self.measured_on, "floor_microseconds": self.floor_seconds * 1e6, "curves": curves}

    def seconds(self, read: Array, written: Array) -> Array:
        """Compute the time of a stream of this mix, launch included; an empty launch for no bytes."""
        total = np.asarray(read + written, float)
        fraction = read / np.where(total > 0, total, 1.0)
        times = [curve.times(total, self.floor_seconds) for curve in self.curves]
        seconds = times[0]
        for (less, more), (low, high) in zip(pairwise(self.curves), pairwise(times), strict=True):
            share = (fraction - less.read_fraction) / (more.read_fraction - less.read_fraction)
            seconds = np.where(share > 0, low + np.minimum(share, 1.0) * (high - low), seconds)
        return np.where(total > 0, seconds, self.floor_seconds)

    def ceiling_gb_s(self, read: Array, written: Array) -> Array:
        """Compute the rate of a stream of this mix at the largest measured size, GB/s; NaN for no bytes."""
        total = read + written
        fraction = read / np.where(total > 0, total, 1.0)
        mixes = [curve.read_fraction for curve in self.curves]
        slowness = [curve.seconds[-1] / curve.sizes[-1] for curve in self.curves]
        return np.where(total > 0, 1e-9 / np.interp(fraction, mixes, slowness), np.nan)

    def scale(self, bandwidth: float, latency: float, floor_seconds: float | None = None) -> Streams:
        """Scale to a device with `bandwidth` times the bandwidth and `latency` times the latency.

        A stream takes a latency, and its bytes over the bandwidth of a large stream; each part is scaled by itself.
        """
        curves = []
        for curve in self.curves:
            moving = curve.sizes * (curve.seconds[-1] / curve.sizes[-1])
            waiting = np.maximum(curve.seconds - moving, 0.0)
            seconds = waiting * latency + (curve.seconds - waiting) / bandwidth
            curves.append(Curve(curve.read_fraction, curve.sizes, np.minimum.accumulate(seconds[::-1])[::-1]))
        floor = self.floor_seconds * latency if floor_seconds is None else floor_seconds
        return Streams(tuple(curves), floor, self.measured_on, scaled_from=self.as_measured)


def _is_curve(sizes: Array, times: Array) -> bool:
    """Check for ascending bytes and times that never fall, positive and finite."""
    if sizes.ndim != 1 or sizes.shape != times.shape or not sizes.size:
        return False
    ascend = (np.diff(sizes) > 0).all() and (np.diff(times) >= 0).all()
    return bool(ascend and sizes[0] > 0 and sizes[-1] < _FAR and times[0] > 0 and times[-1] < math.inf)


@cache
def bundled_streams() -> Streams:
    """Read the streams that come with bwprof."""
    return Streams.from_dict(json.loads((_DATA / "streams.json").read_text(encoding="utf-8")))


CUSTOM_DEVICE = "given"  # the name of a device that is described by numbers

_NUMBERS = ("bandwidth", "memory", "clock", "units", "floor")  # of a device, beside its rates
_LEAST, _MOST = 1e-6, 1e9  # bounds of each number


@dataclass(frozen=True, slots=True)
class Card:
    """A device as a prediction uses it; NaN for what is not known.

    `tflops` are dense rates by type of arithmetic, `best` the best measured ones by precision, `streams` the times of
    plain streams. `source` describes the origin of the figures, `memory_of` that of the memory.
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
        """Return the arithmetic roof of a precision in TFLOP/s, measured or else dense, and its type of arithmetic."""
        return (self.best[precision], precision) if precision in self.best else self.dense(precision)

    def dense(self, precision: str) -> tuple[float, str]:
        """Return the dense rate of a precision and its type of arithmetic; NaN and "" where it is not known."""
        instead, types = _read_datasheets()["instead"], registry.precision_types(precision)
        kinds = (str(types[role]["name"]) for role in ("compute", "result"))
        kind = next((kind for kind in kinds if kind in (*self.tflops, *instead)), "")
        while kind and kind not in self.tflops:
            kind = instead.get(kind, "")
        return (self.tflops[kind], kind) if kind else (math.nan, "")

    def text(self, precision: str) -> str:
        """Describe the figures that a prediction in a precision uses."""
        text = self.source
        if self.streams.scaled_from:
            text += f"; streams over size scaled from those of {self.streams.measured_on}"
        kind, own = self.rate(precision)[1], registry.precision_types(precision)["compute"]["name"]
        if not kind:
            text += f"; no arithmetic rate is known for {precision}: by memory alone, a lower bound of what calculates"
        elif kind not in (precision, own):
            text += f"; {precision} calculated at the rate of {kind}"
        return text


def split_devices(device: object) -> list[Any]:
    """Split a list of devices, or a text with commas, but not at commas between numbers of one device.

    Examples
    --------
    >>> split_devices("h100,bandwidth=3200,fp16=400,H200")
    ['h100', 'bandwidth=3200,fp16=400', 'H200']
    """
    if not isinstance(device, str) or all("=" in part for part in device.split(",")):
        return list(device) if isinstance(device, (list, tuple)) else [device]
    return [part.strip() for part in re.split(r",(?!(?!\s*bandwidth)\s*\w+\s*=)", device)]


def resolve_card(device: object, streams: Streams | None = None) -> Card:
    """Return a device as predictions use it: of a name, numbers ("bandwidth=3200,fp16=400") or measured roofs.

    `streams` are scaled to a device without measured ones; the default comes with bwprof. Raise ValueError for an
    unknown name (with the nearest one) and for numbers out of range, TypeError for any other object.
    """
    if isinstance(device, Card):
        return device
    if isinstance(device, Roofs):
        return card_from_roofs(device)
    if not isinstance(device, str):
        raise TypeError(f"device is {repr_short(device)}: a name, numbers ('bandwidth=3200') or a bwprof.Roofs")
    return _card_from_numbers(device, streams) if "=" in device else card_from_entry(find_entry(device), streams)


def card_from_entry(entry: Entry, streams: Streams | None = None) -> Card:
    """Make a card from a data sheet."""
    text = f"{entry.bandwidth_gb_s:g} GB/s and dense rates of the data sheet"
    if entry.theory:
        text += f" ({entry.tflops['fp16']:g} TFLOP/s fp16), not the {entry.theory['bandwidth_gb_s']:g} GB/s and "
        text += f"{entry.theory['fp16']:g} TFLOP/s (clock x width, clock x units) of rows measured on one"
    card = Card(
        entry.id,
        float(entry.bandwidth_gb_s),
        {name: float(rate) for name, rate in entry.tflops.items()},
        streams or bundled_streams(),
        text,
        (entry.memory_bytes or entry.memory_gb * 1e9) / 1e9,
        float(entry.clock_mhz or math.nan),
        float(entry.units or math.nan),
        memory_of="device" if entry.memory_bytes else "data sheet",
    )
    return _scale_streams(card, None if entry.floor_us is None else entry.floor_us * 1e-6)


def card_from_roofs(roofs: Roofs) -> Card:
    """Make a card from measured roofs; other figures come from the catalog where it has the device."""
    entry, name = find(roofs.device), roofs.device or CUSTOM_DEVICE
    known = card_from_entry(entry) if entry else Card(name, math.nan, {}, bundled_streams(), "")
    return replace(
        known,
        name=name,
        streams=Streams.of(roofs),
        best={rate.precision: rate.tflops for rate in roofs.rates},
        source=f"the measured roofs of {roofs.device or 'a device'} ({roofs.measured or 'at no known time'})",
    )


def _card_from_numbers(text: str, streams: Streams | None) -> Card:
    """Make a card from numbers; ValueError with the part that is wrong, and what is allowed."""
    rates = arithmetic_types()
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        name = registry.precision_name(name)
        if not name or not value:
            raise ValueError(f"device is '{quote_text(text)}': '{quote_text(part)}' is no NAME=NUMBER")
        if name not in (allowed := (*_NUMBERS, *rates)):
            raise ValueError(describe_unknown("number of a device", name, allowed, where=f"'{quote_text(text)}'"))
        if name in numbers:
            raise ValueError(f"device is '{quote_text(text)}': {name} is given twice")
        numbers[name] = _parse_number(value, name)
    if "bandwidth" not in numbers:
        raise ValueError(f"device is '{quote_text(text)}': bandwidth= is missing (GB/s)")
    card = Card(
        CUSTOM_DEVICE,
        numbers["bandwidth"],
        {name: numbers[name] for name in rates if name in numbers},
        streams or bundled_streams(),
        f"the numbers given ({text})",
        memory_gb=numbers.get("memory", math.nan),
        clock_mhz=numbers.get("clock", math.nan),
        units=numbers.get("units", math.nan),
    )
    return _scale_streams(card, numbers["floor"] * 1e-6 if "floor" in numbers else None)


def _parse_number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not _LEAST <= value <= _MOST or not text[-1].isdigit() or "_" in text:
        raise ValueError(f"{name} is '{quote_text(text)}': allowed is a number from {_LEAST:g} to {_MOST:g}")
    return value


def _scale_streams(card: Card, floor: float | None) -> Card:
    """Scale a measured device's streams to a card: the bandwidth part by bandwidth, the latency part by the clock."""
    base = card.streams.as_measured
    origin = find(base.measured_on)
    # The bandwidth of a device outside the catalog is that of its largest read.
    bandwidth = float(origin.bandwidth_gb_s if origin else base.ceiling_gb_s(1.0, 0.0))
    latency = (origin.clock_mhz if origin and origin.clock_mhz else math.nan) / card.clock_mhz
    latency = 1.0 if math.isnan(latency) else latency
    return replace(card, streams=base.scale(card.bandwidth_gb_s / bandwidth, latency, floor))
