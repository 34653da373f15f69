"""Which devices there are, and which one a run takes when nobody says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bwprof import _core, registry
from bwprof.names import shown

_GPU_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/nvidiactl")


def devices() -> list[dict[str, Any]]:
    """Every device that this build can use, the preferred one first.

    Returns
    -------
    list of dict
        Keys: backend, index, name.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.devices()[-1]["backend"]
    'cpu'
    """
    return [
        {"backend": backend["name"], "index": device["index"], "name": device["name"]}
        for backend in _core.backends()
        for device in backend["devices"]
    ]


@dataclass(frozen=True, slots=True)
class Choice:
    """The device of a run and, in words, why it is this one."""

    backend: str
    index: int
    name: str
    reason: str
    warning: str


def choose(backend: str | None = None, index: int | None = None) -> Choice:
    """The device to measure: the named one, else the preferred backend's first.

    Raises
    ------
    ValueError
        For an unknown backend, or a device number that it does not have.
    bwprof._core.UnavailableError
        For a backend without a device; the message says why.
    """
    rows = {row["name"]: row for row in _core.backends()}
    if backend is not None:
        row = rows[registry.check_backend(backend)]
        return _device_of(row, index, f"asked for with backend {row['name']}", "")
    missing: dict[str, str] = {}
    for row in rows.values():
        if row["devices"]:
            return _device_of(row, index, _why_this(row["name"], missing), _unused_gpu(rows))
        missing[row["name"]] = _why_none(row)
    raise _core.UnavailableError(f"no device at all: {_said(missing)}")


def torch_cuda() -> Any:
    """PyTorch's CUDA module if it is in use; it is never imported here."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def current_device(backend: str) -> int:
    """The device that code of this thread works on when it does not say."""
    cuda = torch_cuda() if backend == "cuda" else None
    return int(cuda.current_device()) if cuda is not None else _core.current_device(backend)


@contextmanager
def current_device_kept(backend: str) -> Iterator[None]:
    """Afterwards the thread's current device is what it was before: whatever is done with a handle makes its own so."""
    before = current_device(backend)
    try:
        yield
    finally:
        if current_device(backend) != before:
            _core.make_current(backend, before)


# GPUs that are open and that nobody uses, by backend and number; of this process.
_idle: dict[tuple[int, str, int], list[_core.Device]] = {}
# Handles not to be taken again, by id() while they are open.
_single: set[int] = set()


def open_device(backend: str, index: int) -> _core.Device:
    """A device handle of one's own until it is given to `close_device`.

    A GPU that was given back stays open and is taken first. Every new handle brings a stream, and once a process has
    run graphs on a second stream, or has made eight, each kernel that anybody in it launches starts 0.18 us later, for
    good (seen on an H200, driver 580): a program that measures now and then should not become slower by it.
    """
    idle = _idle.get((os.getpid(), backend, index))
    return idle.pop() if idle else _core.Device(backend, index)


def close_device(device: _core.Device) -> None:
    """Give a handle back, its cases and profilers closed."""
    kept = bool(device.stream) and id(device) not in _single
    _single.discard(id(device))
    if kept:
        try:
            device.rest()
        except (
            _core.DeviceError,
            _core.UnavailableError,
        ):  # not well, or of the process before a fork
            kept = False
    if kept:
        _idle.setdefault((os.getpid(), device.backend, device.index), []).append(device)
    else:
        device.close()


def counted(device: _core.Device, found: dict[str, Any]) -> dict[str, Any]:
    """`found`, as counting gave it. A handle remembers why it could not count: the next one should ask anew."""
    if found.get("counters_status") not in (None, "ok"):
        _single.add(id(device))
    return found


@contextmanager
def opened(backend: str, index: int) -> Iterator[_core.Device]:
    """`open_device` and `close_device` around a block, after which the current device is what it was."""
    with current_device_kept(backend):
        device = open_device(backend, index)
        try:
            yield device
        finally:
            close_device(device)


def _why_this(chosen: str, missing: dict[str, str]) -> str:
    """Why a backend was taken that nobody named, and what that means for the figures."""
    if not missing:
        return (
            f"the first choice where there is one; --backend names another; the figures are this {chosen} device's own"
        )
    return f"{_said(missing)}; the figures are this {chosen}'s own and say nothing about {', '.join(missing)} devices"


def _said(missing: dict[str, str]) -> str:
    return "; ".join(f"no {name} device: {why}" for name, why in missing.items())


def facts(device: _core.Device) -> dict[str, Any]:
    """What is known of a device: the runtime's facts with the management library's.

    Returns
    -------
    dict
        `_core.Device.facts()`, where `driver` is the driver's full version if that is known and `driver_cuda` then the
        CUDA version that it supports; on a GPU beside them ecc and persistence (bool or None), power_limit_w,
        management_library (its file) and management_note (what is not known, and why).
    """
    found, more = device.facts(), device.management()
    if not more["library"] and not more["note"]:
        return found
    if more["driver"]:
        found["driver_cuda"], found["driver"] = found["driver"], more["driver"]
    found.update({name: more[name] for name in ("ecc", "persistence", "power_limit_w")})
    found.update({f"management_{name}": more[name] for name in ("library", "note")})
    return found


def _why_none(row: dict[str, Any]) -> str:
    if not row["built"]:
        why = _core.build.get("cuda_reason")
        return f"this build is without it ({why})" if why else "this build is without it"
    return row["reason"] or "none found"


def _device_of(row: dict[str, Any], index: int | None, reason: str, warning: str) -> Choice:
    if not row["devices"]:
        raise _core.UnavailableError(f"backend '{row['name']}' has no device: {_why_none(row)}")
    wanted = row["devices"][0]["index"] if index is None else index
    for device in row["devices"]:
        if device["index"] == wanted:
            return Choice(row["name"], wanted, device["name"], reason, warning)
    allowed = ", ".join(str(device["index"]) for device in row["devices"])
    raise ValueError(f"backend '{row['name']}' has no device {shown(wanted)}: allowed are {allowed}")


def _unused_gpu(rows: dict[str, Any]) -> str:
    """What to say when the build has no GPU code but the machine has a GPU; "" otherwise."""
    idle = [row for row in rows.values() if not row["built"]]
    if not idle or not any(os.path.exists(path) for path in _GPU_SIGNS):
        return ""
    return (
        f"this machine has an NVIDIA GPU, but this build of bwprof is CPU-only ({_core.build.get('cuda_reason', '')}): "
        "install nvcc (CUDA_HOME or PATH) and install bwprof again to measure it"
    )
