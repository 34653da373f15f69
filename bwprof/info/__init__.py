"""What this machine and this build offer. ``python -m bwprof.info`` prints it."""

from __future__ import annotations

from typing import Any

__all__ = ["info"]


def info() -> dict[str, Any]:
    """Devices, build, libraries and versions.

    Returns
    -------
    dict
        Keys: version, build (what was compiled in, and why or why not), host, versions, environment, backends (name,
        text, built, reason, devices), devices (backend, index, facts, memory_free_bytes, memory_total_bytes, roofs, or
        an error in words), libraries (name -> state in words). A device's roofs are those that earlier sweeps stored
        (`bwprof.roofs.Roofs.to_dict()`; None where there are none that still hold): nothing is measured here.

    Examples
    --------
    >>> import bwprof
    >>> sorted(bwprof.info())
    ['backends', 'build', 'devices', 'environment', 'host', 'libraries', 'version', 'versions']
    """
    from bwprof import _core
    from bwprof.sweep import metadata

    backends = _core.backends()
    return {
        "version": _core.__version__,
        "build": dict(_core.build),
        "host": metadata.host(),
        "versions": metadata.versions(),
        "environment": metadata.environment(),
        "backends": backends,
        "devices": [_device(row["name"], device["index"]) for row in backends for device in row["devices"]],
        "libraries": _libraries(),
    }


def _device(backend: str, index: int) -> dict[str, Any]:
    from bwprof import _core, hardware
    from bwprof.roofs import store

    try:
        with _core.Device(backend, index) as device:
            free, total = device.memory()
            facts = hardware.facts(device)
            roofs = store.load(store.identity(backend, facts))
            return {
                "backend": backend,
                "index": index,
                "facts": facts,
                "memory_free_bytes": free,
                "memory_total_bytes": total,
                "roofs": roofs.to_dict() if roofs else None,
            }
    except (_core.UnavailableError, _core.DeviceError, MemoryError, OSError) as error:
        return {"backend": backend, "index": index, "error": str(error)}


def _libraries() -> dict[str, str]:
    """Package -> version, or that it is not there. Shared libraries are looked for when a case first needs them."""
    from importlib import metadata as packages

    found = {}
    for name in ("numpy", "pandas", "matplotlib", "rich"):
        try:
            found[name] = packages.version(name)
        except packages.PackageNotFoundError:
            found[name] = "not installed"
    return found
