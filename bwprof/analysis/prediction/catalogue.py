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
    """One device: dense TFLOP/s by type of arithmetic, bandwidth in GB/s, None for what is not known.

    `source` is the maker's document, `checked` pages that repeat its figures and were read, `unconfirmed` the figures
    that none of those had. `family` are words that stand for it; `memory_bytes` is what it reports, `memory_gb` what it
    is sold with. `theory` are the figures that bwprof's own rows have for such a card, where they are not the
    document's: memory clock x bus width, and boost clock x units.
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
    """Every device of the catalogue, in its order."""
    lists = ("aliases", "family", "checked", "unconfirmed")
    return tuple(
        Entry(**{**one, **{name: tuple(one.get(name, ())) for name in lists}}) for one in _read_datasheets()["device"]
    )


def fallback_types() -> dict[str, str]:
    """The arithmetic that a device calculates in which has none of a type: {"bf16": "fp16", ...}."""
    found: dict[str, str] = _read_datasheets()["instead"]
    return found


@cache
def arithmetic_types() -> tuple[str, ...]:
    """The types of arithmetic of which some device has a rate, in the order of the registry's precisions."""
    from bwprof import registry

    known = {name for entry in entries() for name in entry.tflops}
    return tuple(name for name in registry.precision_names() if name in known)


def find(name: str) -> Entry | None:
    """The device of an id, or of a driver's name for it; None where the catalogue does not have it."""
    wanted = _plain(name)
    return next((entry for entry in entries() if wanted in map(_plain, (entry.id, *entry.aliases))), None)


def find_similar(name: str) -> list[Entry]:
    """Find the device of a name, else those that have all of its words, the number of a model among them; the one with
    the most bandwidth first.

    Examples
    --------
    >>> [[entry.id for entry in alike(name)] for name in ("h100", "GeForce 4090", "mi300", "80GB", "a10")]
    [['H100-SXM', 'H100-PCIe'], ['RTX-4090'], ['MI300X'], [], []]
    """
    exact, asked = find(name), set(_words(name))
    if exact is not None:
        return [exact]
    found = []
    for entry in entries():
        size = f"{entry.memory_gb:g}"
        known = {*_models(entry), *_words(f"{entry.id} {' '.join(entry.aliases)}"), size, f"{size}g", f"{size}gb"}
        if asked <= known and asked & _models(entry):
            found.append(entry)
    return sorted(found, key=lambda entry: -entry.bandwidth_gb_s)


def _models(entry: Entry) -> set[str]:
    """Collect the words of a device with its model's number: 4090, rtx4090."""
    words = _words(" ".join((entry.id, *entry.family)))
    return {word for word in (*words, *map("".join, pairwise(words))) if _MODEL.match(word)}


def find_entry(name: str) -> Entry:
    """The first of those; ValueError with the nearest id where there is none."""
    found = find_similar(name)
    if not found:
        typed, words = name.lower(), {*_words(name)}
        same = [entry for entry in sorted(entries(), key=lambda one: -one.bandwidth_gb_s) if words & _models(entry)]
        near = max(same, key=lambda entry: len(words & {*_words(entry.id)})).id if same else ""
        ids = [entry.id for entry in entries()]
        if not same and re.search(r"\d", name):  # a card of another letter is another card
            letters = re.match(r"[a-z]*", typed)
            begun = {one.lower(): one for one in ids if letters and re.match(rf"{letters[0]}(?![a-z])", one.lower())}
            near = begun.get(nearest_name(typed, begun, likeness=0.7) or "", "")
        said = describe_unknown("device", name, ids, meant=near if near or re.search(r"\d", name) else None)
        raise ValueError(
            f"{said}; any other by its numbers, as in 'bandwidth=3200,fp16=400' (GB/s, TFLOP/s), or by its measured "
            "roofs (a bwprof.Roofs; --roofs FILE)"
        )
    return found[0]


def _plain(name: str) -> str:
    """A name without what people write differently: case, blanks, dashes, the maker's."""
    return "".join(_words(name))


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _MAKERS]


def catalogue() -> pd.DataFrame:
    """The devices that `bwprof.predict` knows by name.

    Returns
    -------
    pandas.DataFrame
        A row per device: id, vendor, arch, year, bandwidth_gb_s, a column of dense TFLOP/s for each type of arithmetic
        (NaN where it has none), memory_gb (what such a card reports, else what it is sold with: memory_of says
        "device" or "data sheet"), l2_mib, units, clock_mhz, source (the maker's document), checked (pages
        that were read and agree), unconfirmed (the figures that none of them has), theory_gb_s and theory_fp16 (what
        bwprof's own rows have instead), note, aliases.

    Examples
    --------
    >>> from bwprof.analysis.prediction.catalogue import catalogue
    >>> catalogue().set_index("id").loc["A100-80GB", ["bandwidth_gb_s", "fp16"]].tolist()
    [2039.0, 312.0]
    """
    import pandas as pd

    nan = float("nan")
    rows = [
        {
            "id": entry.id,
            "vendor": entry.vendor,
            "arch": entry.arch,
            "year": entry.year,
            "bandwidth_gb_s": float(entry.bandwidth_gb_s),
            **{name: float(entry.tflops.get(name, nan)) for name in arithmetic_types()},
            "memory_gb": (entry.memory_bytes or entry.memory_gb * 1e9) / 1e9,
            "memory_of": "device" if entry.memory_bytes else "data sheet",
            "l2_mib": nan if entry.l2_mib is None else float(entry.l2_mib),
            "units": nan if entry.units is None else float(entry.units),
            "clock_mhz": nan if entry.clock_mhz is None else float(entry.clock_mhz),
            "source": entry.source,
            "checked": "; ".join(entry.checked),
            "unconfirmed": ", ".join(entry.unconfirmed),
            "theory_gb_s": (entry.theory or {}).get("bandwidth_gb_s", nan),
            "theory_fp16": (entry.theory or {}).get("fp16", nan),
            "note": entry.note,
            "aliases": ", ".join(entry.aliases),
        }
        for entry in entries()
    ]
    return pd.DataFrame(rows)


CUSTOM_DEVICE = "given"  # the name of a device that is known by its numbers only

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
        others = fallback_types()
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


def split_devices(device: object) -> list[Any]:
    """Split a list of devices, or a text with commas: those between numbers of one device stay.

    Examples
    --------
    >>> each_device("h100,bandwidth=3200,fp16=400,H200")
    ['h100', 'bandwidth=3200,fp16=400', 'H200']
    """
    if not isinstance(device, str) or all("=" in part for part in device.split(",")):
        return list(device) if isinstance(device, (list, tuple)) else [device]
    return [part.strip() for part in re.split(r",(?!(?!\s*bandwidth)\s*\w+\s*=)", device)]


def resolve_card(device: object, streams: Streams | None = None) -> Card:
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
        return card_from_roofs(device)
    if not isinstance(device, str):
        raise TypeError(
            f"device is {repr_short(device)}: a name, numbers ('bandwidth=3200,fp16=400') or a bwprof.Roofs"
        )
    return _device_from_numbers(device, streams) if "=" in device else card_from_entry(find_entry(device), streams)


def card_from_entry(entry: Entry, streams: Streams | None = None) -> Card:
    """A device of the datasheets."""
    card = Card(
        entry.id,
        float(entry.bandwidth_gb_s),
        {name: float(rate) for name, rate in entry.tflops.items()},
        streams or bundled_streams(),
        _describe_entry(entry),
        (entry.memory_bytes or entry.memory_gb * 1e9) / 1e9,
        math.nan if entry.clock_mhz is None else float(entry.clock_mhz),
        math.nan if entry.units is None else float(entry.units),
        memory_of="device" if entry.memory_bytes else "data sheet",
    )
    return _with_curve(card, streams, None if entry.floor_us is None else entry.floor_us * 1e-6)


def _describe_entry(entry: Entry) -> str:
    """Which figures are used, and where a device's own rows have others."""
    said = f"{entry.bandwidth_gb_s:g} GB/s and dense rates of the data sheet"
    if entry.theory:
        own = entry.theory
        said += f" ({entry.tflops['fp16']:g} TFLOP/s fp16), not the {own['bandwidth_gb_s']:g} GB/s and "
        said += f"{own['fp16']:g} TFLOP/s (clock x width, clock x units) of rows measured on one"
    return said


def card_from_roofs(roofs: Roofs) -> Card:
    """A device by its own roofs; what they do not tell is the catalogue's, where it has the device."""
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
    """A device by its numbers; ValueError with the part that is wrong, and what is allowed."""
    rates = arithmetic_types()
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        name = registry.precision_name(name)
        if not equals or not name or not value:
            raise ValueError(f"device is '{quote_text(text)}': '{quote_text(part)}' is no NAME=NUMBER")
        if name not in (*_NUMBERS, *rates):
            raise ValueError(
                describe_unknown("number of a device", name, (*_NUMBERS, *rates), where=f"'{quote_text(text)}'")
            )
        if name in found:
            raise ValueError(f"device is '{quote_text(text)}': {name} is given twice")
        found[name] = _number(value, name)
    if "bandwidth" not in found:
        raise ValueError(f"device is '{quote_text(text)}': bandwidth= is missing (GB/s)")
    numbers: dict[str, Any] = {field: found[name] * unit for name, (field, unit) in _NUMBERS.items() if name in found}
    floor = numbers.pop("floor_seconds", None)
    card = Card(
        CUSTOM_DEVICE,
        numbers.pop("bandwidth_gb_s"),
        {name: found[name] for name in rates if name in found},
        streams or bundled_streams(),
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
        raise ValueError(f"{name} is '{quote_text(text)}': allowed is a number from {_LEAST:g} to {_MOST:g}")
    return value


def _with_curve(card: Card, streams: Streams | None, floor: float | None) -> Card:
    """The card with a measured device's curve scaled to it: its memory by bandwidth, its latency by the clock."""
    base = (streams or bundled_streams()).as_measured
    origin = find(base.measured_on)
    # A device that the catalogue does not have is known by its largest read.
    bandwidth = float(origin.bandwidth_gb_s) if origin else float(base.ceiling_gb_s(1.0, 0.0))
    clock = origin.clock_mhz if origin else None
    latency = clock / card.clock_mhz if clock and not math.isnan(card.clock_mhz) else 1.0
    return replace(card, streams=base.carried_over(card.bandwidth_gb_s / bandwidth, latency, floor))
