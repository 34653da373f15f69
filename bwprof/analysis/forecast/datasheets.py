"""Devices that are not at hand: what their makers' documents say of them, each figure with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.text import nearest, unknown

if TYPE_CHECKING:
    import pandas as pd

_FILE = Path(__file__).with_name("devices.toml")
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
def _document() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@cache
def entries() -> tuple[Entry, ...]:
    """Every device of the catalogue, in its order."""
    lists = ("aliases", "family", "checked", "unconfirmed")
    return tuple(
        Entry(**{**one, **{name: tuple(one.get(name, ())) for name in lists}}) for one in _document()["device"]
    )


def instead() -> dict[str, str]:
    """The arithmetic that a device calculates in which has none of a type: {"bf16": "fp16", ...}."""
    found: dict[str, str] = _document()["instead"]
    return found


@cache
def arithmetic() -> tuple[str, ...]:
    """The types of arithmetic of which some device has a rate, in the order of the registry's precisions."""
    from bwprof import registry

    known = {name for entry in entries() for name in entry.tflops}
    return tuple(name for name in registry.precision_names() if name in known)


def find(name: str) -> Entry | None:
    """The device of an id, or of a driver's name for it; None where the catalogue does not have it."""
    wanted = _plain(name)
    return next((entry for entry in entries() if wanted in map(_plain, (entry.id, *entry.aliases))), None)


def alike(name: str) -> list[Entry]:
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


def entry_of(name: str) -> Entry:
    """The first of those; ValueError with the nearest id where there is none."""
    found = alike(name)
    if not found:
        typed, words = name.lower(), {*_words(name)}
        same = [entry for entry in sorted(entries(), key=lambda one: -one.bandwidth_gb_s) if words & _models(entry)]
        near = max(same, key=lambda entry: len(words & {*_words(entry.id)})).id if same else ""
        ids = [entry.id for entry in entries()]
        if not same and re.search(r"\d", name):  # a card of another letter is another card
            letters = re.match(r"[a-z]*", typed)
            begun = {one.lower(): one for one in ids if letters and re.match(rf"{letters[0]}(?![a-z])", one.lower())}
            near = begun.get(nearest(typed, begun, likeness=0.7) or "", "")
        said = unknown("device", name, ids, meant=near if near or re.search(r"\d", name) else None)
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
    >>> from bwprof.analysis import catalogue
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
            **{name: float(entry.tflops.get(name, nan)) for name in arithmetic()},
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
