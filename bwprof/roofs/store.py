"""Store roofs: one file for each device, driver and version in the user's cache folder, and files to export.

The folder is `$XDG_CACHE_HOME/bwprof`, or `~/.cache/bwprof` where that is not set (the XDG Base Directory
Specification, which also says that a relative path there counts as none).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

from bwprof import _core
from bwprof.results import reader
from bwprof.results.atomic import atomic_write, refuse_foreign
from bwprof.roofs.model import Roofs
from bwprof.text.parsing import quote_text, repr_short

_log = logging.getLogger("bwprof.roofs")

FORMAT = 2

_MOST_BYTES = 4 << 20  # one of ours has some ten thousand

# What a file is named after: another device, driver or version has a file of its own.
_KEY = ("name", "uuid", "driver", "runtime", "units")

# What must be the same beside that: it changes speed, or how it was measured.
_SETTINGS = ("memory_bytes", "cache_bytes", "memory_clock_khz", "bus_bits", "ecc", "power_limit_w", "timer", "note")

Identity = dict[str, Any]


def folder() -> Path:
    """The cache folder; it need not exist. RuntimeError where there is no home folder either."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    if not base.is_absolute():
        raise RuntimeError(f"the home folder is '{Path.home()}', a path that begins with / is needed")
    return base / "bwprof"


def identity(backend: str, facts: dict[str, Any]) -> Identity:
    """What stored roofs must agree on to be a device's own.

    Parameters
    ----------
    backend : str
        The backend's name.
    facts : dict
        As `bwprof.hardware.device_facts` gives them.

    Returns
    -------
    dict
        Device, driver and version ("key"), and the settings that change its speed ("settings").
    """
    key: dict[str, Any] = {"format": FORMAT, "bwprof_version": _core.__version__, "backend": backend}
    key |= {name: facts.get(name) for name in _KEY}
    settings: dict[str, Any] = {name: facts.get(name) for name in _SETTINGS}
    settings["kernels"] = _build_stamp()
    if not facts.get("uuid"):  # a CPU: which of its processors, and so which memory is near
        settings["processors"] = sorted(os.sched_getaffinity(0))
    # As JSON gives it back, so that comparing with a file's is comparing equals; what is not known equals itself.
    made: Identity = json.loads(json.dumps({"key": key, "settings": settings}), parse_constant=lambda _: None)
    return made


def _build_stamp() -> list[int]:
    """Changes whenever the kernels are compiled anew, which a version under development does not tell."""
    state = os.stat(Path(_core.__file__).parent / "lib" / "libbwprof.so")
    return [state.st_size, state.st_mtime_ns]


def path_of(identity: Identity) -> Path:
    """The file for a device."""
    key = identity["key"]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return folder() / f"roofs-{key['backend']}-{digest}.json"


def load(identity: Identity) -> Roofs | None:
    """The stored roofs of a device; None where there are none, or none that are its own.

    A file that cannot be read, or does not hold roofs, is ignored with a warning.
    """
    path = None
    try:
        refuse_foreign(path_of(identity))
        path = path_of(identity)
        found = json.loads(read_text(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: there is no home folder
        _log.warning("stored roofs are ignored: %s%s", "" if path is None else f"{path}: ", error)
        return None
    try:
        stored = found["identity"]
        if stored != identity:
            _log.info("stored roofs are out of date (%s): %s", ", ".join(_differences(stored, identity)), path)
            return None
        roofs = Roofs.from_dict(found["roofs"])
        key = identity["key"]
        if [roofs.device, roofs.device_uuid, roofs.driver] != [key["name"], key["uuid"], key["driver"]]:
            raise ValueError("roofs of another device")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        _log.warning("stored roofs are ignored: %s is damaged (%s: %s)", path, type(error).__name__, error)
        return None
    return replace(roofs, source=str(path), checks=(), unconfirmed="")


def read_text(path: Path) -> str:
    """A file's text; ValueError for what cannot be one of ours, a pipe that never ends among it."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
        raise ValueError("no file of roofs")
    return path.read_text(encoding="utf-8")


def _differences(stored: Identity, identity: Identity) -> list[str]:
    return [
        name
        for part, values in identity.items()
        for name, value in values.items()
        if stored.get(part, {}).get(name) != value
    ]


def save(identity: Identity, roofs: Roofs) -> Path | None:
    """Write the roofs of a device, in one step; None, with a warning, where that cannot be done."""
    try:
        path = path_of(identity)
        refuse_foreign(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps({"identity": identity, "roofs": roofs.to_dict()}, indent=1) + "\n")
    except (OSError, ValueError, RuntimeError) as error:
        _log.warning("the roofs could not be stored, the next run measures them again: %s", error)
        return None
    return path


EXPORT_FORMAT = "bwprof-roofs"

VERSION = 1


def export(roofs: Roofs, path: Path) -> None:
    """Write roofs to a file, replacing it in one step; OSError where that cannot be done."""
    lasting = replace(roofs, source="", checks=(), unconfirmed="")
    found = {"format": EXPORT_FORMAT, "version": VERSION, "roofs": lasting.to_dict()}
    atomic_write(path, json.dumps(found, indent=1) + "\n")


def read(path: Path) -> Roofs:
    """The roofs of a file that `export` wrote, or of a run (its folder, its JSON file), or one where they are stored.

    Raises
    ------
    FileNotFoundError
        When there is none.
    ValueError
        When there are no roofs in it, or a later bwprof wrote it.
    """
    place = reader.find_recorded(path)
    if not place.exists():
        raise FileNotFoundError(f"no such file or folder: {quote_text(path)}")
    found = _exported(place)
    if found is None:
        found = reader.read_rows(place)[2].get("roofs")
        if not found:
            raise ValueError(f"{quote_text(path)}: there are no roofs in it")
    try:
        return replace(Roofs.from_dict(dict(found)), source=str(path), checks=(), unconfirmed="")
    except ValueError as error:
        raise ValueError(f"{quote_text(path)}: {error}") from None


def _exported(path: Path) -> dict[str, Any] | None:
    """What `export`, or `store.save`, wrote there; None for a file of another kind."""
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if "identity" in found and isinstance(found.get("roofs"), dict):
        return dict(found["roofs"])
    if found.get("format") != EXPORT_FORMAT:
        return None
    if found.get("version") != VERSION:
        version = repr_short(found.get("version"))
        raise ValueError(
            f"{quote_text(path)} was written by another version of bwprof: its version is {version}, not {VERSION}"
        )
    roofs = found.get("roofs")
    return roofs if isinstance(roofs, dict) else {}
