"""List, choose and open devices."""

from __future__ import annotations

import logging
import operator
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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
    """Devices, also indexed by the names that `device=` takes."""

    kind = "device"

    def names_of(self, item: dict[str, Any]) -> Sequence[str]:
        """Return the name for `device=`, and the backend, which means its first device."""
        return f"{item['backend']}:{item['index']}", item["backend"]

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        return {
            "device": self.names_of(item)[0],
            "name": str(item.get("name") or item.get("facts", {}).get("name", "")),
        }


UNWATCHED = (
    "no tool takes NVTX ranges of this process: start it under nsys or ncu --nvtx, on a GPU; or name the tool's "
    "library in NVTX_INJECTION64_PATH"
)


class Holder:
    """An object that holds a device or its memory: a copy would close the original's."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} holds a device and cannot be copied or pickled: make another {name}")


def devices() -> Devices:
    """List every device that this build can use, the preferred one first.

    Returns
    -------
    Devices
        Dicts of backend, index and name, also indexed by name: ``devices()["cuda:1"]``; `frame()` returns the table.

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
    """The device of a run and the reason for it."""

    backend: str
    index: int
    name: str
    reason: str
    warning: str


class NamedDevice(Protocol):
    """An object that names a backend and perhaps a number, like PyTorch's `torch.device`."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...


Device = int | str | NamedDevice | None
EVERY_DEVICE = "all"


def parse_device(device: Device, backend: str | None = None) -> tuple[str | None, int | None]:
    """Return backend and number of `device=`, each None if open; `backend="cpu"` is the same as `device="cpu"`.

    A device is "cpu", "cuda", "cuda:1", a number on the backend (1, "1"), an object that names one, or None. Raise
    ValueError for anything else, an unknown backend, and a backend that contradicts the device.

    Examples
    --------
    >>> parse_device("cuda:1"), parse_device("cpu"), parse_device(1, "cuda"), parse_device("1"), parse_device(None)
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
        with suppress(TypeError):  # an array
            return None, int(device.__index__())
    elif isinstance(getattr(device, "type", None), str):  # a torch.device
        return registry.check_backend(device.type), None if device.index is None else int(device.index)
    known = [name for backend in registry.backend_names() for name in (f"'{backend}'", f"'{backend}:0'")]
    raise ValueError(f"device is {repr_short(device)}: allowed are a number and names like {', '.join(known)}")


def choose_device(backend: str | None = None, device: Device = None) -> Choice:
    """Choose the device to measure: the named one, else the first of the preferred backend.

    Raise ValueError for an unknown backend or device (see `parse_device`); UnavailableError for a backend without a
    device; the message has the reason.
    """
    backend, index = parse_device(device, backend)
    rows = {row["name"]: row for row in _core.backends()}
    if backend is not None:
        return _device_of(rows[backend], index, f"asked for with backend {backend}", "")
    missing: list[str] = []
    for name, row in rows.items():
        if row["devices"]:
            reason = "the first choice where there is one; --backend names another"
            reason = f"{'; '.join(missing) or reason}; the figures are this {name} device's own"
            return _device_of(row, index, reason, _unused_gpu(rows))
        missing.append(f"no {name} device: {_why_none(row)}")
    raise _core.UnavailableError(f"no device at all: {'; '.join(missing)}")


def choose_devices(backend: str | None = None, device: Device | Sequence[Device] = None) -> tuple[Choice, ...]:
    """Choose the devices to measure, each once: a list, or text with commas ("0,1", "cuda:0,cpu").

    "all" means every device of the named backend, else of the preferred one that has any. Raise ValueError,
    UnavailableError as `choose_device` does, and for an empty list.
    """
    names: list[Any] = list(device) if isinstance(device, (list, tuple)) else [device]
    if isinstance(device, str) and "," in device:
        names = [name.strip() for name in device.split(",")]
    if not names:
        raise ValueError(f"device is {repr_short(device)}: at least one device is needed")
    choices: dict[tuple[str, int], Choice] = {}
    for name in names:
        if isinstance(name, str) and name.strip().lower() == EVERY_DEVICE:
            first = choose_device(backend)
            row = next(row for row in _core.backends() if row["name"] == first.backend)
            each = [replace(first, index=device["index"], name=device["name"]) for device in row["devices"]]
        else:
            each = [choose_device(backend, name)]
        for choice in each:
            choices.setdefault((choice.backend, choice.index), choice)
    return tuple(choices.values())


def torch_cuda() -> Any:
    """Return PyTorch's CUDA module if it is in use; never import it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def current_device(backend: str) -> int:
    """Return the device that this thread's code uses by default."""
    cuda = torch_cuda() if backend == "cuda" else None
    return int(cuda.current_device()) if cuda is not None else _core.current_device(backend)


@contextmanager
def preserve_current_device(backend: str) -> Iterator[None]:
    """Restore the thread's current device after the block, because handles change it."""
    before = current_device(backend)
    try:
        yield
    finally:
        if current_device(backend) != before:
            _core.make_current(backend, before)


# Open GPUs that are not in use, by process, backend and number.
_idle: dict[tuple[int, str, int], list[_core.Device]] = {}

# Handles that are not used again, by id() while they are open.
_single: set[int] = set()


def open_device(backend: str, index: int) -> _core.Device:
    """Return a device handle for sole use, until `close_device`.

    Closed handles of a GPU stay open and are used again, because every new handle makes a stream: after graphs on a
    second stream, or eight streams, every kernel launch of the process takes 0.18 us longer (H200, driver 580).
    """
    idle = _idle.get((os.getpid(), backend, index))
    return idle.pop() if idle else _core.Device(backend, index)


def close_device(device: _core.Device) -> None:
    """Return a handle, after its cases and profilers are closed."""
    if device.stream and id(device) not in _single:
        with suppress(_core.DeviceError, _core.UnavailableError):  # lost, or from before a fork
            device.release_profilers()
            _idle.setdefault((os.getpid(), device.backend, device.index), []).append(device)
            return
    _single.discard(id(device))
    device.close()


def note_counting(device: _core.Device, values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` of counting; after a failure, which a handle remembers, it is not used again."""
    if values.get("counters_status") not in (None, "ok"):
        _single.add(id(device))
    return values


@contextmanager
def borrow_device(backend: str, index: int) -> Iterator[_core.Device]:
    """Open a device for the block, and restore the current device."""
    with preserve_current_device(backend):
        device = open_device(backend, index)
        try:
            yield device
        finally:
            close_device(device)


def choose_current(backend: str | None, device: Device) -> Choice:
    """Choose the named device, else the current one, which a caller's own code uses."""
    backend, index = parse_device(device, backend)
    if index is None:
        choice = choose_device(backend)
        if choice.warning:
            _log.warning(choice.warning)
        backend, index = choice.backend, current_device(choice.backend)
    return choose_device(backend, index)


@contextmanager
def borrow_current(backend: str | None, device: Device) -> Iterator[tuple[Choice, _core.Device]]:
    """Open the chosen device for the block, and make it current."""
    choice = choose_current(backend, device)
    with borrow_device(choice.backend, choice.index) as handle:
        _core.make_current(choice.backend, choice.index)  # an idle handle is not current
        yield choice, handle


def stream_handle(stream: Any, device: int) -> int:
    """Return a stream as an int, PyTorch's current one for None; TypeError for anything but a stream."""
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


def facts(device: _core.Device) -> dict[str, Any]:
    """Return the facts of a device, from the runtime and the management library.

    They are `_core.Device.facts()`; `driver` is the driver's full version if that is known, then `driver_cuda` is the
    CUDA version that it supports. On a GPU also ecc and persistence (bool or None), power_limit_w, link and link_gb_s
    (to the host: each direction in theory), management_library (its file) and management_note (what is unknown, why).
    """
    facts, more = device.facts(), device.management()
    if not more["library"] and not more["note"]:
        return facts
    if more["driver"]:
        facts["driver_cuda"], facts["driver"] = facts["driver"], more["driver"]
    facts.update({name: more[name] for name in ("ecc", "persistence", "power_limit_w", "link", "link_gb_s")})
    facts.update({f"management_{name}": more[name] for name in ("library", "note")})
    return facts


def _why_none(row: dict[str, Any]) -> str:
    reason: str = row["reason"]
    return reason or "none found" if row["built"] else f"this build is without it ({reason or 'no reason is known'})"


def _device_of(row: dict[str, Any], index: int | None, reason: str, warning: str) -> Choice:
    if not row["devices"]:
        raise _core.UnavailableError(f"backend '{row['name']}' has no device: {_why_none(row)}")
    number = row["devices"][0]["index"] if index is None else index
    for device in row["devices"]:
        if device["index"] == number:
            return Choice(row["name"], number, device["name"], reason, warning)
    allowed = ", ".join(str(device["index"]) for device in row["devices"])
    raise ValueError(f"backend '{row['name']}' has no device {repr_short(number)}: allowed are {allowed}")


def _unused_gpu(rows: dict[str, Any]) -> str:
    """Return a warning if the machine has a GPU that this build, or bwprof, cannot measure; else ""."""
    idle = [row for row in rows.values() if not row["built"]]
    if any(row["devices"] and not _core.backend_facts(name)["runs_on_host"] for name, row in rows.items()):
        return ""
    if not idle or not may_have_gpu():
        return describe_amd_gpu()
    return (
        f"this machine has an NVIDIA GPU, but this build of bwprof is CPU-only ({idle[0]['reason']}): "
        "install nvcc (CUDA_HOME or PATH) and install bwprof again to measure it"
    )


def may_have_gpu() -> bool:
    """Return whether an NVIDIA driver's files exist, without calling it."""
    return any(map(os.path.exists, _GPU_SIGNS))


def describe_amd_gpu() -> str:
    """Return what works with an AMD GPU; "" without one."""
    vendors = (path.read_text() for path in Path(_DRM).glob("card*/device/vendor"))
    if not os.path.exists(_AMD_DRIVER) and not any(vendor.strip() == _AMD_VENDOR for vendor in vendors):
        return ""
    return (
        "this machine has an AMD GPU, which bwprof does not measure: its CPU backend works here, and what rocprof "
        "measured is read (bwprof import rocprof FILE)"
    )
