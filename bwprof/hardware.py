"""Which devices there are, and which one a run takes when nobody says."""

from __future__ import annotations

import logging
import operator
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from bwprof import _core, registry
from bwprof.text.listing import Listing
from bwprof.text.parsing import is_bool, repr_short

_log = logging.getLogger("bwprof.measure")

_NAME = re.compile(r"(?P<backend>[a-z]+)(:(?P<index>[0-9]{1,9}))?|(?P<alone>[0-9]{1,9})")

_DRM, _AMD_DRIVER, _AMD_VENDOR = "/sys/class/drm", "/dev/kfd", "0x1002"

_GPU_SIGNS = ("/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/nvidiactl")


class Devices(Listing):
    """Devices: a list of dicts, also by the names that `device=` takes; shown as a table."""

    kind = "device"

    def names_of(self, item: dict[str, Any]) -> Sequence[str]:
        """As `device=` has it; the backend alone is its first device."""
        return f"{item['backend']}:{item['index']}", item["backend"]

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        """A device's line in the table."""
        return {
            "device": self.names_of(item)[0],
            "name": str(item.get("name") or item.get("facts", {}).get("name", "")),
        }


UNWATCHED = (
    "no tool takes NVTX ranges of this process: start it under nsys or ncu --nvtx, on a GPU; or name the tool's "
    "library in NVTX_INJECTION64_PATH"
)


class Holder:
    """What holds a device, or memory of it: a copy would close the original's."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise TypeError: `copy` and `pickle` ask here."""
        name = type(self).__name__
        raise TypeError(f"a {name} holds a device and cannot be copied or pickled: make another {name}")


def devices() -> Devices:
    """Every device that this build can use, the preferred one first.

    Returns
    -------
    Devices
        A list of dicts, which ``devices()["cuda:1"]`` also finds by name; shown as a table, which `frame()` gives.
        Keys: backend, index, name.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.devices()[-1]["backend"], bwprof.devices()["cpu:0"]["index"]
    ('cpu', 0)
    """
    return Devices(
        {"backend": backend["name"], "index": device["index"], "name": device["name"]}
        for backend in _core.backends()
        for device in backend["devices"]
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """The device of a run and, in words, why it is this one."""

    backend: str
    index: int
    name: str
    reason: str
    warning: str


class NamedDevice(Protocol):
    """What names a device as PyTorch's `torch.device` does."""

    @property
    def type(self) -> str:
        """The backend."""
        ...

    @property
    def index(self) -> int | None:
        """The number on it, if any is named."""
        ...


Device = int | str | NamedDevice | None

EVERY_DEVICE = "all"


def parse_device(device: Device, backend: str | None = None) -> tuple[str | None, int | None]:
    """What `device=` names: a backend and a number, None for what it leaves open. `backend` is another word for "cpu".

    Parameters
    ----------
    device : int, str or torch.device, optional
        "cpu", "cuda", "cuda:1", a number on the backend (1, "1"), or None.

    Raises
    ------
    ValueError
        For anything else, an unknown backend, and two that contradict each other.

    Examples
    --------
    >>> parse("cuda:1"), parse("cpu"), parse(1, "cuda"), parse("1"), parse(None)
    (('cuda', 1), ('cpu', None), ('cuda', 1), (None, 1), (None, None))
    """
    kind, index = _parsed(device)
    named = registry.check_backend(backend) if backend is not None else None
    if kind is not None and named not in (None, kind):
        raise ValueError(f"device is {repr_short(device)} and backend is '{named}': they contradict each other")
    return kind or named, index


def _parsed(device: Any) -> tuple[str | None, int | None]:
    if device is None:
        return None, None
    if isinstance(device, str):
        match = _NAME.fullmatch(device.strip().lower())
        if match and match["backend"] in (None, *registry.backend_names()):
            number = match["index"] or match["alone"]
            return match["backend"], int(number) if number else None
    elif hasattr(device, "__index__") and not is_bool(device):
        with suppress(TypeError):  # of an array, which is no number
            return None, int(device.__index__())
    elif isinstance(getattr(device, "type", None), str):  # a torch.device
        return registry.check_backend(device.type), None if device.index is None else int(device.index)
    known = [name for backend in registry.backend_names() for name in (f"'{backend}'", f"'{backend}:0'")]
    raise ValueError(f"device is {repr_short(device)}: allowed are a number and names like {', '.join(known)}")


def choose_device(backend: str | None = None, device: Device = None) -> Choice:
    """The device to measure: the named one, else the preferred backend's first.

    Raises
    ------
    ValueError
        For an unknown backend, a device number that it does not have, and what names no device (see `parse`).
    bwprof.errors.UnavailableError
        For a backend without a device; the message says why.
    """
    backend, index = parse_device(device, backend)
    rows = {row["name"]: row for row in _core.backends()}
    if backend is not None:
        row = rows[registry.check_backend(backend)]
        return _device_of(row, index, f"asked for with backend {row['name']}", "")
    missing: dict[str, str] = {}
    for row in rows.values():
        if row["devices"]:
            return _device_of(row, index, _why_this(row["name"], missing), _unused_gpu(rows))
        missing[row["name"]] = _why_none(row)
    raise _core.UnavailableError(f"no device at all: {_describe_missing(missing)}")


def choose_devices(backend: str | None = None, device: Device | Sequence[Device] = None) -> tuple[Choice, ...]:
    """The devices to measure, each once: several are named by a list, or a text with commas ("0,1", "cuda:0,cpu").

    "all" is every device of the named backend, else of the preferred one that has any.

    Raises
    ------
    ValueError, bwprof.errors.UnavailableError
        As `choose` does, and for an empty list.

    Examples
    --------
    >>> [choice.backend for choice in choose_several("cpu", "all")], len(choose_several(device=["cpu", "cpu:0"]))
    (['cpu'], 1)
    """
    wanted: list[Any] = list(device) if isinstance(device, (list, tuple)) else [device]
    if isinstance(device, str) and "," in device:
        wanted = [name.strip() for name in device.split(",")]
    if not wanted:
        raise ValueError(f"device is {repr_short(device)}: at least one device is needed")
    found: dict[tuple[str, int], Choice] = {}
    for one in wanted:
        for choice in _each(backend, one):
            found.setdefault((choice.backend, choice.index), choice)
    return tuple(found.values())


def _each(backend: str | None, device: Device) -> list[Choice]:
    """The device, or all of them."""
    if not isinstance(device, str) or device.strip().lower() != EVERY_DEVICE:
        return [choose_device(backend, device)]
    first = choose_device(backend)
    row = next(row for row in _core.backends() if row["name"] == first.backend)
    return [_device_of(row, one["index"], first.reason, first.warning) for one in row["devices"]]


def torch_cuda() -> Any:
    """PyTorch's CUDA module if it is in use; it is never imported here."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def current_device(backend: str) -> int:
    """The device that code of this thread works on when it does not say."""
    cuda = torch_cuda() if backend == "cuda" else None
    return int(cuda.current_device()) if cuda is not None else _core.current_device(backend)


@contextmanager
def preserve_current_device(backend: str) -> Iterator[None]:
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
            device.release_profilers()
        except (
            _core.DeviceError,
            _core.UnavailableError,
        ):  # not well, or of the process before a fork
            kept = False
    if kept:
        _idle.setdefault((os.getpid(), device.backend, device.index), []).append(device)
    else:
        device.close()


def note_counting(device: _core.Device, found: dict[str, Any]) -> dict[str, Any]:
    """`found`, as counting gave it. A handle remembers why it could not count: the next one should ask anew."""
    if found.get("counters_status") not in (None, "ok"):
        _single.add(id(device))
    return found


@contextmanager
def borrow_device(backend: str, index: int) -> Iterator[_core.Device]:
    """`open_device` and `close_device` around a block, after which the current device is what it was."""
    with preserve_current_device(backend):
        device = open_device(backend, index)
        try:
            yield device
        finally:
            close_device(device)


def choose_current(backend: str | None, device: Device) -> Choice:
    """The device that is named, else the one that is current: what a caller's own code works on."""
    backend, index = parse_device(device, backend)
    if index is None:
        choice = choose_device(backend)
        if choice.warning:
            _log.warning(choice.warning)
        backend, index = choice.backend, current_device(choice.backend)
    return choose_device(backend, index)


@contextmanager
def borrow_current(backend: str | None, device: Device) -> Iterator[tuple[Choice, _core.Device]]:
    """The chosen device, open and current."""
    choice = choose_current(backend, device)
    with borrow_device(choice.backend, choice.index) as handle:
        _core.make_current(choice.backend, choice.index)  # which opening does, but not taking one that is open
        yield choice, handle


def stream_handle(stream: Any, device: int) -> int:
    """A stream as an int; see `bwprof.measure`.

    Raises
    ------
    TypeError
        For anything that is no stream.
    """
    if stream is None:
        cuda = torch_cuda()
        return 0 if cuda is None else int(cuda.current_stream(device).cuda_stream)
    if hasattr(stream, "__cuda_stream__"):
        _, handle = stream.__cuda_stream__()
        return operator.index(handle)
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return operator.index(getattr(stream, name))
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise TypeError(
        f"stream is {repr_short(stream)}: "
        "allowed are an int (cudaStream_t) and objects with __cuda_stream__, cuda_stream or ptr"
    )


def _why_this(chosen: str, missing: dict[str, str]) -> str:
    """Why a backend was taken that nobody named, and what that means for the figures."""
    if not missing:
        return (
            f"the first choice where there is one; --backend names another; the figures are this {chosen} device's own"
        )
    others = ", ".join(missing)
    return f"{_describe_missing(missing)}; the figures are this {chosen}'s own and say nothing about {others} devices"


def _describe_missing(missing: dict[str, str]) -> str:
    return "; ".join(f"no {name} device: {why}" for name, why in missing.items())


def device_facts(device: _core.Device) -> dict[str, Any]:
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
        return f"this build is without it ({row['reason']})" if row["reason"] else "this build is without it"
    return row["reason"] or "none found"


def _device_of(row: dict[str, Any], index: int | None, reason: str, warning: str) -> Choice:
    if not row["devices"]:
        raise _core.UnavailableError(f"backend '{row['name']}' has no device: {_why_none(row)}")
    wanted = row["devices"][0]["index"] if index is None else index
    for device in row["devices"]:
        if device["index"] == wanted:
            return Choice(row["name"], wanted, device["name"], reason, warning)
    allowed = ", ".join(str(device["index"]) for device in row["devices"])
    raise ValueError(f"backend '{row['name']}' has no device {repr_short(wanted)}: allowed are {allowed}")


def _unused_gpu(rows: dict[str, Any]) -> str:
    """Say that the machine has a GPU which the build, or bwprof, does not measure; "" otherwise."""
    idle = [row for row in rows.values() if not row["built"]]
    if any(row["devices"] and not _core.backend_facts(name)["runs_on_host"] for name, row in rows.items()):
        return ""
    if not idle or not any(os.path.exists(path) for path in _GPU_SIGNS):
        return describe_amd_gpu()
    return (
        f"this machine has an NVIDIA GPU, but this build of bwprof is CPU-only ({idle[0]['reason']}): "
        "install nvcc (CUDA_HOME or PATH) and install bwprof again to measure it"
    )


def describe_amd_gpu() -> str:
    """Say what works beside an AMD GPU; "" where there is none."""
    vendors = (path.read_text() for path in Path(_DRM).glob("card*/device/vendor"))
    if not os.path.exists(_AMD_DRIVER) and not any(vendor.strip() == _AMD_VENDOR for vendor in vendors):
        return ""
    return (
        "this machine has an AMD GPU, which bwprof does not measure: its CPU backend works here, and what rocprof "
        "measured is read (bwprof import rocprof FILE)"
    )
