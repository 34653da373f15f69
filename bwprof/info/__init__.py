"""What this machine and this build offer. ``python -m bwprof.info`` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bwprof import _core

__all__ = ["info"]

NOT_PROBED = "not probed (--probe, or probe=True)"


class Info(dict[str, Any]):
    """What `info` found: a dict that shows itself as ``bwprof info`` prints it."""

    def _parts(self) -> list[tuple[str, list[dict[str, str]]]]:
        from bwprof.info.lines import about, device_lines

        parts = [(f"bwprof {self['version']}", about(self))]
        parts += [(f"{device['backend']}:{device['index']}", device_lines(device)) for device in self["devices"]]
        return [(title, [{"what": name, "value": value} for name, value in lines]) for title, lines in parts]

    def __repr__(self) -> str:
        from bwprof.listing import text_table

        try:
            return "\n\n".join(f"{title}\n{text_table(lines)}" for title, lines in self._parts())
        except KeyError:  # a part of it, or a changed one
            return super().__repr__()

    def _repr_html_(self) -> str:
        from bwprof.listing import html_table

        return "".join(html_table(lines, title) for title, lines in self._parts())


def info(*, probe: bool = False) -> Info:
    """Devices, build, libraries and versions.

    Parameters
    ----------
    probe : bool
        Try what may need privileges, hardware counters above all; it takes about two seconds for each GPU.

    Returns
    -------
    Info
        A dict, shown as ``bwprof info`` prints it; ``info()["devices"]["cpu:0"]`` is one device.
        Keys: version, build (what was compiled in, and why or why not), host, versions, environment, backends (name,
        text, built, reason, devices), packages (name -> version, or that it is not there), profilers (ncu, nsys,
        rocprof, rocprofv3 -> path and version, or None), devices: backend and index with either an error in words, or
        facts, memory_free_bytes, memory_total_bytes, roofs, libraries (opened at run time: dicts of name, purpose,
        path, version, note) and works (sensors, counters and each timer -> "ok", or why not). A device's roofs are
        those that earlier sweeps stored (`bwprof.roofs.Roofs.to_dict()`; None where there are none that still hold):
        nothing is measured here.

    Examples
    --------
    >>> import bwprof
    >>> sorted(bwprof.info())
    ['backends', 'build', 'devices', 'environment', 'host', 'packages', 'profilers', 'version', 'versions']
    """
    from bwprof import _core, environment
    from bwprof.hardware import Devices
    from bwprof.text import truth

    truth(probe, "probe")
    backends = _core.backends()
    found = {
        "version": _core.__version__,
        "build": dict(_core.build),
        "host": environment.host(),
        "versions": environment.versions(),
        "environment": environment.variables(),
        "backends": backends,
        "devices": Devices(_device(row, device["index"], probe) for row in backends for device in row["devices"]),
        "packages": _packages(),
        "profilers": environment.profilers(),
    }
    return Info(found)


def _device(backend: dict[str, Any], index: int, probe: bool) -> dict[str, Any]:
    from bwprof import _core, hardware
    from bwprof.roofs import store

    found: dict[str, Any] = {"backend": backend["name"], "index": index}
    try:
        with hardware.opened(backend["name"], index) as device:
            free, total = device.memory()
            facts = hardware.facts(device)
            roofs = store.load(store.identity(device.backend, facts))
            return found | {
                "facts": facts,
                "memory_free_bytes": free,
                "memory_total_bytes": total,
                "roofs": roofs.to_dict() if roofs else None,
                "libraries": device.libraries(),
                "works": {
                    "sensors": device.conditions()["note"] or "ok",
                    "counters": _counters(device) if probe else NOT_PROBED,
                    **{f"timer {name}": _timer(device, name, probe) for name in backend["timers"]},
                },
            }
    except (_core.UnavailableError, _core.DeviceError, MemoryError, OSError) as error:
        return found | {"error": str(error)}


def _counters(device: _core.Device) -> str:
    """What counting a small stream comes to."""
    from bwprof import _core, hardware, registry

    stream = next(operation for operation in registry.operations() if operation["is_stream"])
    params = {stream["params"][0]["name"]: 1 << 16}
    with _core.Case(device, stream["name"], "fp32", params) as case:
        return str(hardware.counted(device, case.count())["counters_status"])


def _timer(device: _core.Device, name: str, probe: bool) -> str:
    """The device's own timer always works; another one is tried when asked."""
    from bwprof import _core

    if name != device.facts()["timer"] and not probe:
        return NOT_PROBED
    try:
        return f"ok, an empty launch takes {device.floor_ns(name) / 1e3:.2f} us"
    except _core.UnavailableError as error:
        return str(error)


def _packages() -> dict[str, str]:
    """Package -> version, or that it is not there."""
    from importlib import metadata as packages

    found = {}
    for name in ("numpy", "pandas", "matplotlib", "rich"):
        try:
            found[name] = packages.version(name)
        except packages.PackageNotFoundError:
            found[name] = "not installed"
    return found
