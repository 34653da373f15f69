"""The device of a marked test, and the right to time on it."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from bwprof import _core, hardware
from bwprof.hardware import Choice
from bwprof.text import shown


def device_of(marks: Sequence[Any]) -> Any:
    """The device that the nearest mark names, None for what it leaves open.

    Raises
    ------
    ValueError
        For a mark with other arguments, and what names no device.
    """
    for mark in marks:
        given = {**dict(zip(("device",), mark.args, strict=False)), **mark.kwargs}
        if len(mark.args) > 1 or set(given) - {"device"}:
            raise ValueError(f"pytest.mark.bandwidth has {shown(given)}: allowed is device= alone, such as 'cuda:0'")
        if given.get("device") is not None:
            hardware.parse(given["device"])
            return given["device"]
    return None


def why_absent(marks: Sequence[Any]) -> str:
    """Why the marks' device cannot be used here; "" where it can."""
    device = device_of(marks)
    try:
        hardware.choose(None, device)
    except (_core.UnavailableError, ValueError) as error:
        return f"no device {device}: {error}" if device is not None else str(error)
    return ""


@cache
def _name(backend: str, index: int) -> str:
    """A device's, whatever number it has in this process."""
    with hardware.opened(backend, index) as device:
        known = device.facts().get("uuid") or index
    return re.sub(r"[^A-Za-z0-9-]+", "-", f"{backend}-{known}")


@contextmanager
def alone_on(choice: Choice) -> Iterator[None]:
    """Nobody else who asks times on the device inside: other workers of pytest-xdist, and other sessions, wait."""
    path = Path(tempfile.gettempdir()) / f"bwprof-{os.getuid()}-{_name(choice.backend, choice.index)}.lock"
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
