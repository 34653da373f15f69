"""Devices to predict for: from the catalogue of data sheets, from numbers, or from measured roofs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import _core, registry
from bwprof.analysis.prediction.streams import Streams, bundled_streams
from bwprof.roofs.model import Roofs
from bwprof.text.parsing import describe_unknown, nearest_name, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

_FILE = Path(__file__).parents[2] / "data" / "devices.toml"
_MAKERS = ("nvidia", "amd", "tesla")
_MODEL = re.compile(r"(?!\d+gb).*\d")  # a word with a number that is no size


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
    import tomllib

    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def entries() -> tuple[Entry, ...]:
    """List the devices of the catalogue, in its order."""
    lists = ("aliases", "family", "checked", "unconfirmed")
    sheets = _read_datasheets()["device"]
    return tuple(Entry(**{**sheet, **{name: tuple(sheet.get(name, ())) for name in lists}}) for sheet in sheets)


def fallback_types() -> dict[str, str]:
    """Return the arithmetic that replaces a missing type: {"bf16": "fp16", ...}."""
    types: dict[str, str] = _read_datasheets()["instead"]
    return types


@cache
def arithmetic_types() -> tuple[str, ...]:
    """List the types of arithmetic of which a device has a rate, in the registry's order."""
    known = {name for entry in entries() for name in entry.tflops}
    return tuple(name for name in registry.precision_names() if name in known)


def find(name: str) -> Entry | None:
    """Find the device of an id or of a driver's name; None for an unknown one."""
    plain = _plain(name)
    return next((entry for entry in entries() if plain in map(_plain, (entry.id, *entry.aliases))), None)


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
    ids, words = [entry.id for entry in entries()], {*_words(name)}
    same = [entry for entry in sorted(entries(), key=lambda entry: -entry.bandwidth_gb_s) if words & _models(entry)]
    near = max(same, key=lambda entry: len(words & {*_words(entry.id)})).id if same else ""
    has_number = bool(re.search(r"\d", name))
    if not same and has_number:  # only cards of the same letters are near
        typed = name.lower()
        letters = re.match(r"[a-z]*", typed)
        candidates = {own.lower(): own for own in ids if letters and re.match(rf"{letters[0]}(?![a-z])", own.lower())}
        near = candidates.get(nearest_name(typed, candidates, likeness=0.7) or "", "")
    raise ValueError(
        f"{describe_unknown('device', name, ids, meant=near if near or has_number else None)}; "
        "any other by its numbers, as in "
        "'bandwidth=3200,fp16=400' (GB/s, TFLOP/s), or by its measured roofs (a bwprof.Roofs; --roofs FILE)"
    )


def _plain(name: str) -> str:
    """Reduce a name to letters and digits, without the maker."""
    return "".join(_words(name))


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _MAKERS]


def catalogue() -> pd.DataFrame:
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
    >>> from bwprof.analysis.prediction.catalogue import catalogue
    >>> catalogue().set_index("id").loc["A100-80GB", ["bandwidth_gb_s", "fp16"]].tolist()
    [2039.0, 312.0]
    """
    import pandas as pd

    rows = []
    for entry in entries():
        card, theory = card_from_entry(entry), entry.theory or {}
        row = {name: getattr(entry, name) for name in ("id", "vendor", "arch", "year")}
        row["bandwidth_gb_s"] = card.bandwidth_gb_s
        row |= {name: card.tflops.get(name, math.nan) for name in arithmetic_types()}
        row |= {"memory_gb": card.memory_gb, "memory_of": card.memory_of, "l2_mib": _float_or_nan(entry.l2_mib)}
        row |= {"units": card.units, "clock_mhz": card.clock_mhz, "source": entry.source}
        row |= {"checked": "; ".join(entry.checked), "unconfirmed": ", ".join(entry.unconfirmed)}
        row |= {f"theory_{unit}": theory.get(name, math.nan) for unit, name in _THEORY.items()}
        rows.append(row | {"note": entry.note, "aliases": ", ".join(entry.aliases)})
    return pd.DataFrame(rows)


_THEORY = {"gb_s": "bandwidth_gb_s", "fp16": "fp16"}


def _float_or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


CUSTOM_DEVICE = "given"  # the name of a device that is described by numbers

# The numbers that describe a device, beside its rates: the Card's field, and the factor to its unit.
_NUMBERS = {
    "bandwidth": ("bandwidth_gb_s", 1.0),
    "memory": ("memory_gb", 1.0),
    "clock": ("clock_mhz", 1.0),
    "units": ("units", 1.0),
    "floor": ("floor_seconds", 1e-6),
}

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
        kind: str | None = compute_type(precision)
        while kind is not None and kind not in self.tflops:
            kind = fallback_types().get(kind)
        return (math.nan, "") if kind is None else (self.tflops[kind], kind)

    def text(self, precision: str) -> str:
        """Describe the figures that a prediction in a precision uses."""
        text = self.source
        if self.streams.scaled_from:
            text += f"; streams over size scaled from those of {self.streams.measured_on}"
        kind = self.rate(precision)[1]
        if not kind:
            text += f"; no arithmetic rate is known for {precision}: by memory alone, a lower bound of what calculates"
        elif kind not in (precision, compute_type(precision)):
            text += f"; {precision} calculated at the rate of {kind}"
        return text


@cache
def compute_type(precision: str) -> str:
    """Return the type of arithmetic of a precision."""
    return next(str(entry["compute"]) for entry in _core.precisions() if entry["name"] == precision)


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
    """Return a device as predictions use it.

    Parameters
    ----------
    device : str, Roofs or Card
        An id of the catalogue or a driver's name for it, numbers ("bandwidth=3200,fp16=400"), or measured roofs.
    streams : Streams, optional
        The streams that are scaled to a device without measured ones; the default comes with bwprof.

    Raises
    ------
    ValueError
        For an unknown name (with the nearest one), and for numbers out of range.
    TypeError
        For any other object.
    """
    if isinstance(device, Card):
        return device
    if isinstance(device, Roofs):
        return card_from_roofs(device)
    if not isinstance(device, str):
        raise TypeError(
            f"device is {repr_short(device)}: a name, numbers ('bandwidth=3200,fp16=400') or a bwprof.Roofs"
        )
    return _device_from_numbers(device, streams) if "=" in device else card_from_entry(find_entry(device), streams)


def card_from_entry(entry: Entry, streams: Streams | None = None) -> Card:
    """Make a card from a data sheet."""
    card = Card(
        entry.id,
        float(entry.bandwidth_gb_s),
        {name: float(rate) for name, rate in entry.tflops.items()},
        streams or bundled_streams(),
        _describe_entry(entry),
        (entry.memory_bytes or entry.memory_gb * 1e9) / 1e9,
        _float_or_nan(entry.clock_mhz),
        _float_or_nan(entry.units),
        memory_of="device" if entry.memory_bytes else "data sheet",
    )
    return _with_curve(card, streams, None if entry.floor_us is None else entry.floor_us * 1e-6)


def _describe_entry(entry: Entry) -> str:
    text = f"{entry.bandwidth_gb_s:g} GB/s and dense rates of the data sheet"
    if entry.theory:
        own = entry.theory
        text += f" ({entry.tflops['fp16']:g} TFLOP/s fp16), not the {own['bandwidth_gb_s']:g} GB/s and "
        text += f"{own['fp16']:g} TFLOP/s (clock x width, clock x units) of rows measured on one"
    return text


def card_from_roofs(roofs: Roofs) -> Card:
    """Make a card from measured roofs; other figures come from the catalogue where it has the device."""
    entry = find(roofs.device)
    known = (
        card_from_entry(entry) if entry else Card(roofs.device or CUSTOM_DEVICE, math.nan, {}, bundled_streams(), "")
    )
    return replace(
        known,
        name=roofs.device or CUSTOM_DEVICE,
        streams=Streams.of(roofs),
        best={rate.precision: rate.tflops for rate in roofs.rates},
        source=f"the measured roofs of {roofs.device or 'a device'} ({roofs.measured or 'at no known time'})",
    )


def _device_from_numbers(text: str, streams: Streams | None) -> Card:
    """Make a card from numbers; ValueError with the part that is wrong, and what is allowed."""
    rates = arithmetic_types()
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        name = registry.precision_name(name)
        if not equals or not name or not value:
            raise ValueError(f"device is '{quote_text(text)}': '{quote_text(part)}' is no NAME=NUMBER")
        if name not in (*_NUMBERS, *rates):
            raise ValueError(
                describe_unknown("number of a device", name, (*_NUMBERS, *rates), where=f"'{quote_text(text)}'")
            )
        if name in numbers:
            raise ValueError(f"device is '{quote_text(text)}': {name} is given twice")
        numbers[name] = _number(value, name)
    if "bandwidth" not in numbers:
        raise ValueError(f"device is '{quote_text(text)}': bandwidth= is missing (GB/s)")
    fields: dict[str, Any] = {
        field: numbers[name] * unit for name, (field, unit) in _NUMBERS.items() if name in numbers
    }
    floor = fields.pop("floor_seconds", None)
    card = Card(
        CUSTOM_DEVICE,
        tflops={name: numbers[name] for name in rates if name in numbers},
        streams=streams or bundled_streams(),
        source=f"the numbers given ({text})",
        **fields,
    )
    return _with_curve(card, streams, floor)


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not _LEAST <= value <= _MOST or not text[-1].isdigit() or "_" in text:
        raise ValueError(f"{name} is '{quote_text(text)}': allowed is a number from {_LEAST:g} to {_MOST:g}")
    return value


def _with_curve(card: Card, streams: Streams | None, floor: float | None) -> Card:
    """Scale a measured device's streams to a card: the bandwidth part by bandwidth, the latency part by the clock."""
    base = (streams or bundled_streams()).as_measured
    origin = find(base.measured_on)
    # The bandwidth of a device outside the catalogue is that of its largest read.
    bandwidth = float(origin.bandwidth_gb_s) if origin else float(base.ceiling_gb_s(1.0, 0.0))
    clock = origin.clock_mhz if origin else None
    latency = clock / card.clock_mhz if clock and not math.isnan(card.clock_mhz) else 1.0
    return replace(card, streams=base.scale(card.bandwidth_gb_s / bandwidth, latency, floor))
