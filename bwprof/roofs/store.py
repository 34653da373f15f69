"""Store roofs: a file for each device, driver and version in the user's cache folder, and exported files.

The folder is `$XDG_CACHE_HOME/bwprof`, or `~/.cache/bwprof` where that is unset or relative (XDG Base Directory
Specification).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

from bwprof import _core
from bwprof.results import reader
from bwprof.results.atomic import atomic_write, refuse_foreign
from bwprof.roofs.model import Roofs
from bwprof.text.parsing import quote_text, repr_short

_log = logging.getLogger("bwprof.roofs")
FORMAT = 2
_MOST_BYTES = 4 << 20  # a file of roofs has some ten thousand

# What the file is named after.
_KEY = ("name", "uuid", "driver", "runtime", "units")

# Settings that change the speed or the measurement; stored roofs of others are not used.
_SETTINGS = ("memory_bytes", "cache_bytes", "memory_clock_khz", "bus_bits", "ecc", "power_limit_w", "timer", "note")
Identity = dict[str, Any]


def folder() -> Path:
    """Return the cache folder, which need not exist; RuntimeError where there is no home folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".cache"
    if not base.is_absolute():
        raise RuntimeError(f"the home folder is '{Path.home()}', a path that begins with / is needed")
    return base / "bwprof"


def identity(backend: str, facts: dict[str, Any]) -> Identity:
    """Return what stored roofs must agree on: {"key": device, driver, version; "settings": what changes the speed}.

    `facts` are those of `bwprof.hardware.facts`.
    """
    key: dict[str, Any] = {"format": FORMAT, "bwprof_version": _core.__version__, "backend": backend}
    key |= {name: facts.get(name) for name in _KEY}
    settings: dict[str, Any] = {name: facts.get(name) for name in _SETTINGS}
    settings["kernels"] = _read_build_stamp()
    if not facts.get("uuid"):  # a CPU: its processors decide which memory is near
        settings["processors"] = sorted(os.sched_getaffinity(0))
    # Through JSON, to compare with a file's; NaN becomes None, which equals itself.
    identity: Identity = json.loads(json.dumps({"key": key, "settings": settings}), parse_constant=lambda _: None)
    return identity


def _read_build_stamp() -> list[int]:
    """Return what changes whenever the kernels are compiled: size and time of the library."""
    state = os.stat(Path(_core.__file__).parent / "lib" / "libbwprof.so")
    return [state.st_size, state.st_mtime_ns]


def path_of(identity: Identity) -> Path:
    """Return the file for a device."""
    key = identity["key"]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return folder() / f"roofs-{key['backend']}-{digest}.json"


def load(identity: Identity) -> Roofs | None:
    """Return the stored roofs of a device; None where there are none. A damaged file is ignored with a warning."""
    where = ""
    try:
        path = path_of(identity)
        refuse_foreign(path)
        where = f"{path}: "
        found = json.loads(read_text(path))
        if dict(found["identity"]) != identity:
            _log.info("stored roofs are out of date: %s", path)
            return None
        roofs = Roofs.from_dict(found["roofs"])
        if not roofs.belongs_to(identity["key"]):
            raise ValueError("roofs of another device")
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        _log.warning("stored roofs are ignored: %s%s: %s", where, type(error).__name__, error)
        return None
    return roofs.with_source(str(path))


def read_text(path: Path) -> str:
    """Return a file's text; ValueError for a pipe, a device or a file too large for roofs."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
        raise ValueError("no file of roofs")
    return path.read_text(encoding="utf-8")


def save(identity: Identity, roofs: Roofs) -> Path | None:
    """Write the roofs of a device in one step; return the path, or None with a warning."""
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
    """Write roofs to a file, replacing it in one step; OSError where that fails."""
    found = {"format": EXPORT_FORMAT, "version": VERSION, "roofs": roofs.with_source().to_dict()}
    atomic_write(path, json.dumps(found, indent=1) + "\n")


def read(path: Path) -> Roofs:
    """Read the roofs of an exported file, a stored file, or a run (its folder or JSON file).

    FileNotFoundError where it is missing; ValueError where it has no roofs, or another version of bwprof wrote it.
    """
    place = reader.find_recorded(path)
    if not place.exists():
        raise FileNotFoundError(f"no such file or folder: {quote_text(path)}")
    found = _read_exported(place)
    if found is None:
        found = reader.read_rows(place)[2].get("roofs")
        if not isinstance(found, dict) or not found:
            raise ValueError(f"{quote_text(path)}: there are no roofs in it")
    try:
        return Roofs.from_dict(found).with_source(str(path))
    except ValueError as error:
        raise ValueError(f"{quote_text(path)}: {error}") from None


def _read_exported(path: Path) -> dict[str, Any] | None:
    """Return the roofs of an exported or stored file; None for a file of another kind."""
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or ("identity" not in found and found.get("format") != EXPORT_FORMAT):
        return None
    version = found.get("version", VERSION if "identity" in found else None)
    if version != VERSION:
        raise ValueError(
            f"{quote_text(path)} was written by another version of bwprof: "
            f"its version is {repr_short(version)}, not {VERSION}"
        )
    roofs = found.get("roofs")
    return roofs if isinstance(roofs, dict) else {}
