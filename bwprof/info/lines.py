"""What `bwprof.info` found, in pairs of words for people."""

from __future__ import annotations

import math
from typing import Any

from bwprof.hardware import amd_gpu
from bwprof.roofs import Roofs
from bwprof.text import bytes_text


def about(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The build, its libraries and the host."""
    lines = [(f"build: {name}", _said(value)) for name, value in found["build"].items()]
    for backend in found["backends"]:
        state = f"{len(backend['devices'])} device(s)" if backend["built"] else "not in this build"
        lines.append((f"backend {backend['name']}", f"{state}{': ' if backend['reason'] else ''}{backend['reason']}"))
    lines += [("AMD GPU", amd_gpu())] if amd_gpu() else []
    lines += [(name, str(value)) for name, value in found["versions"].items() if name == "python"]
    lines += [(name, value) for name, value in found["packages"].items()]
    for name, tool in found["profilers"].items():
        where = "not found" if tool is None else f"{tool['version'] or 'version unknown'} {tool['path']}"
        lines.append((f"profiler {name}", where))
    lines += [(f"environment: {name}", value) for name, value in found["environment"].items() if value is not None]
    lines.append(("host", f"{found['host']['platform']}, {found['host']['cpu_count']} CPUs"))
    return lines


def device_lines(device: dict[str, Any]) -> list[tuple[str, str]]:
    """One device: what is known of it, what works, its roofs."""
    if "error" in device:
        return [("not usable", device["error"])]
    lines = [
        ("memory", f"{bytes_text(device['memory_free_bytes'])} free of {bytes_text(device['memory_total_bytes'])}")
    ]
    for name, value in device["facts"].items():
        if value is None or (value in ("", 0) and name not in ("ecc", "persistence")) or name == "memory_bytes":
            continue
        lines.append((name, bytes_text(value) if name.endswith("_bytes") else _said(value)))
    lines += [(f"library {library['name']}", _library(library)) for library in device["libraries"]]
    lines += [(f"works: {name}", said) for name, said in device["works"].items()]
    return lines + _roof_lines(device["roofs"])


def _roof_lines(stored: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Stored roofs: the ceilings, the arithmetic rates, and where they come from."""
    if stored is None:
        return [("roofs", "none stored for this device, driver, version and settings: the next sweep measures them")]
    roofs = Roofs.from_dict(stored)
    lines = [("roofs", f"measured {roofs.measured} by bwprof {roofs.bwprof_version}, driver {roofs.driver}")]
    lines.append(("roofs: file", roofs.source))
    for point in roofs.ceilings():
        doubt = f"; in doubt: {point.doubt}" if point.doubt else f" +- {100 * point.uncertainty:.1f} %"
        lines.append((f"ceiling {point.stream}", f"{point.gb_s:.4g} GB/s at {bytes_text(point.total_bytes)}{doubt}"))
    sizes = [point.total_bytes for point in roofs.points]
    if sizes:
        span = f"{bytes_text(min(sizes))} to {bytes_text(max(sizes))}"
        doubtful = sum(bool(point.doubt) for point in roofs.points)
        lines.append(("size curve", f"{len(sizes)} points, {span}; {doubtful} in doubt"))
    for rate in roofs.rates:
        what = f"{rate.operation} {rate.variant}, {rate.size} cubed; median {rate.median_tflops:.4g}"
        lines.append((f"best rate {rate.precision}", f"{rate.tflops:.4g} TFLOP/s ({what})"))
    return lines


def _library(found: dict[str, str]) -> str:
    """Version and file, or why there is none."""
    where = f"{found['version']} {found['path']}".strip() if found["path"] else "none"
    return f"{where} ({found['purpose']})" + (f": {found['note']}" if found["note"] else "")


def _said(value: Any) -> str:
    if isinstance(value, dict):
        known = [f"{name} {_said(item)}" for name, item in value.items() if not _unknown(item)]
        return ", ".join(known) or "unknown"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_said, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _unknown(value):
        return "unknown"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
