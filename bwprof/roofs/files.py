"""A device's roofs in a file of their own: measured on one machine, used on another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bwprof import results
from bwprof.results.files import atomic_write
from bwprof.roofs import store
from bwprof.roofs.model import Roofs
from bwprof.text import quoted, shown

FORMAT = "bwprof-roofs"
VERSION = 1


def export(roofs: Roofs, path: Path) -> None:
    """Write roofs to a file, replacing it in one step; OSError where that cannot be done."""
    lasting = replace(roofs, source="", checks=(), unconfirmed="")
    found = {"format": FORMAT, "version": VERSION, "roofs": lasting.to_dict()}
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
    place = results.located(path)
    if not place.exists():
        raise FileNotFoundError(f"no such file or folder: {quoted(path)}")
    found = _exported(place)
    if found is None:
        found = results.read_rows(place)[2].get("roofs")
        if not found:
            raise ValueError(f"{quoted(path)}: there are no roofs in it")
    try:
        return replace(Roofs.from_dict(dict(found)), source=str(path), checks=(), unconfirmed="")
    except ValueError as error:
        raise ValueError(f"{quoted(path)}: {error}") from None


def _exported(path: Path) -> dict[str, Any] | None:
    """What `export`, or `store.save`, wrote there; None for a file of another kind."""
    try:
        found = json.loads(store.read_text(path))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if "identity" in found and isinstance(found.get("roofs"), dict):
        return dict(found["roofs"])
    if found.get("format") != FORMAT:
        return None
    if found.get("version") != VERSION:
        version = shown(found.get("version"))
        raise ValueError(
            f"{quoted(path)} was written by another version of bwprof: its version is {version}, not {VERSION}"
        )
    roofs = found.get("roofs")
    return roofs if isinstance(roofs, dict) else {}
