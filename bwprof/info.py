"""Describe this machine and this build; load the recorded runs that come with it.

``python -m bwprof.info`` prints the description. ``tests/benchmarks/record_example.py`` makes the recorded runs, in
``bwprof/data/examples``.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import _core, environment, hardware, registry
from bwprof.hardware import describe_amd_gpu
from bwprof.roofs import store
from bwprof.roofs.model import Roofs
from bwprof.text.formatting import format_bytes, is_missing
from bwprof.text.listing import format_html_table, format_table
from bwprof.text.parsing import describe_unknown, parse_bool, parse_name

if TYPE_CHECKING:
    import pandas as pd

NOT_PROBED = "not probed (--probe, or probe=True)"


class Info(dict[str, Any]):
    """The result of `info`: a dict that displays as ``bwprof info`` prints it."""

    def _parts(self) -> list[tuple[str, list[dict[str, str]]]]:
        parts = [(f"bwprof {self['version']}", build_lines(self))]
        parts += [(f"{device['backend']}:{device['index']}", device_lines(device)) for device in self["devices"]]
        return [(title, [{"what": name, "value": value} for name, value in lines]) for title, lines in parts]

    def __repr__(self) -> str:
        try:
            return "\n\n".join(f"{title}\n{format_table(lines)}" for title, lines in self._parts())
        except KeyError:  # a changed dict
            return super().__repr__()

    def _repr_html_(self) -> str:
        return "".join(format_html_table(lines, title) for title, lines in self._parts())


def info(*, probe: bool = False) -> Info:
    """Describe devices, build, libraries and versions.

    Parameters
    ----------
    probe : bool
        Try also what may need privileges, such as hardware counters: about two seconds per GPU.

    Returns
    -------
    Info
        A dict that displays as ``bwprof info`` prints it; ``info()["devices"]["cpu:0"]`` is one device.
        Keys: version, build (compiled parts, and reasons for missing ones), host, versions, environment, backends
        (name, text, built, reason, devices), packages (name -> version, or "not installed"), profilers (ncu, nsys,
        rocprof, rocprofv3 -> path and version, or None), and devices: backend and index with either an error, or
        facts, memory_free_bytes, memory_total_bytes, roofs, libraries (opened at run time: dicts of name, purpose,
        path, version, note) and works (sensors, counters and each timer -> "ok", or a reason). A device's roofs are
        the stored ones (`Roofs.to_dict()`; None if there are no valid ones); nothing is measured.

    Examples
    --------
    >>> import bwprof
    >>> sorted(bwprof.info())
    ['backends', 'build', 'devices', 'environment', 'host', 'packages', 'profilers', 'version', 'versions']
    """
    parse_bool(probe, "probe")
    backends = _core.backends()
    devices = [_device(row, device["index"], probe) for row in backends for device in row["devices"]]
    return Info(
        version=_core.__version__,
        build=dict(_core.build),
        host=environment.host_facts(),
        versions=environment.package_versions(),
        environment=environment.environment_variables(),
        backends=backends,
        devices=hardware.Devices(devices),
        packages=_packages(),
        profilers=environment.find_profilers(),
    )


def _device(backend: dict[str, Any], index: int, probe: bool) -> dict[str, Any]:
    description: dict[str, Any] = {"backend": backend["name"], "index": index}
    try:
        with hardware.borrow_device(backend["name"], index) as device:
            free, total = device.memory()
            facts = hardware.facts(device)
            roofs = store.load(store.identity(device.backend, facts))
            return description | {
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
        return description | {"error": str(error)}


def _counters(device: _core.Device) -> str:
    """Return the status of counting a small stream."""
    stream = next(operation for operation in registry.operations() if operation["is_stream"])
    with _core.Case(device, stream["name"], "fp32", {stream["params"][0]["name"]: 1 << 16}) as case:
        return str(hardware.note_counting(device, case.count())["counters_status"])


def _timer(device: _core.Device, name: str, probe: bool) -> str:
    """Return the status of a timer; only the device's default is used without `probe`."""
    from bwprof import _core

    if name != device.facts()["timer"] and not probe:
        return NOT_PROBED
    try:
        return f"ok, an empty launch takes {device.floor_ns(name) / 1e3:.2f} us"
    except _core.UnavailableError as error:
        return str(error)


def _packages() -> dict[str, str]:
    from importlib import metadata as packages

    versions = dict.fromkeys(("numpy", "pandas", "matplotlib", "rich"), "not installed")
    for name in versions:
        with suppress(packages.PackageNotFoundError):
            versions[name] = packages.version(name)
    return versions


def build_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and value of the build's, the libraries' and the host's facts."""
    lines = [(f"build: {name}", _format_value(value)) for name, value in facts["build"].items()]
    for backend in facts["backends"]:
        state = f"{len(backend['devices'])} device(s)" if backend["built"] else "not in this build"
        lines.append((f"backend {backend['name']}", f"{state}{': ' if backend['reason'] else ''}{backend['reason']}"))
    lines += [("AMD GPU", describe_amd_gpu())] if describe_amd_gpu() else []
    lines += [("python", facts["versions"]["python"]), *facts["packages"].items()]
    for name, tool in facts["profilers"].items():
        where = "not found" if tool is None else f"{tool['version'] or 'version unknown'} {tool['path']}"
        lines.append((f"profiler {name}", where))
    lines += [(f"environment: {name}", value) for name, value in facts["environment"].items() if value is not None]
    lines.append(("host", f"{facts['host']['platform']}, {facts['host']['cpu_count']} CPUs"))
    return lines


def device_lines(device: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and value of a device's facts, capabilities and roofs."""
    if "error" in device:
        return [("not usable", device["error"])]
    free, total = format_bytes(device["memory_free_bytes"]), format_bytes(device["memory_total_bytes"])
    lines = [("memory", f"{free} free of {total}")]
    for name, value in device["facts"].items():
        if value is None or (value in ("", 0) and name not in ("ecc", "persistence")) or name == "memory_bytes":
            continue
        lines.append((name, format_bytes(value) if name.endswith("_bytes") else _format_value(value)))
    for library in device["libraries"]:
        where = f"{library['version']} {library['path']}".strip() if library["path"] else "none"
        note = f": {library['note']}" if library["note"] else ""
        lines.append((f"library {library['name']}", f"{where} ({library['purpose']}){note}"))
    lines += [(f"works: {name}", status) for name, status in device["works"].items()]
    return lines + _roof_lines(device["roofs"])


def _roof_lines(stored: dict[str, Any] | None) -> list[tuple[str, str]]:
    if stored is None:
        return [("roofs", "none stored for this device, driver, version and settings: the next sweep measures them")]
    roofs = Roofs.from_dict(stored)
    lines = [("roofs", f"measured {roofs.measured} by bwprof {roofs.bwprof_version}, driver {roofs.driver}")]
    lines.append(("roofs: file", roofs.source))
    for point in roofs.ceilings():
        doubt = f"; in doubt: {point.doubt}" if point.doubt else f" +- {100 * point.uncertainty:.1f} %"
        lines.append((f"ceiling {point.stream}", f"{point.gb_s:.4g} GB/s at {format_bytes(point.total_bytes)}{doubt}"))
    if roofs.points:
        sizes = [point.total_bytes for point in roofs.points]
        span = f"{format_bytes(min(sizes))} to {format_bytes(max(sizes))}"
        doubtful = sum(bool(point.doubt) for point in roofs.points)
        lines.append(("size curve", f"{len(sizes)} points, {span}; {doubtful} in doubt"))
    for rate in roofs.rates:
        what = f"{rate.operation} {rate.variant}, {rate.size} cubed; median {rate.median_tflops:.4g}"
        lines.append((f"best rate {rate.precision}", f"{rate.tflops:.4g} TFLOP/s ({what})"))
    return lines


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        known = [f"{name} {_format_value(item)}" for name, item in value.items() if not is_missing(item)]
        return ", ".join(known) or "unknown"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_format_value, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_missing(value):
        return "unknown"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def load_example(name: str) -> pd.DataFrame:
    """Load a recorded run, as `bwprof.load` does.

    Parameters
    ----------
    name : str
        "h200" or "h100": the default suite, with hardware counters; "h200_access": the suite access; "h200_llama" or
        "h100_llama": a step of Llama-3.1-8B (`bwprof.ModelStep.from_frame`), with rows predicted where no kernel is.

    Returns
    -------
    pandas.DataFrame
        ``attrs["run"]`` holds the run's metadata: ``"commit"`` is the commit of bwprof that measured it, and
        ``"predicted_again"`` a later one that predicted a model's rows again. The machine's name is removed. Rows with
        `flags`: 8 of the H200's 63 rows, 15 of the H100's.

    Raises
    ------
    ValueError
        For an unknown name.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.load_example("h200")["device"].unique().tolist()
    ['NVIDIA H200']
    """
    from bwprof.results import frame, reader
    from bwprof.roofs.limiter import with_limits

    known = reader.recorded_runs()
    if parse_name(name, "name") not in known:
        hint = "; bwprof.load reads results from a file" if Path(name).suffix else ""
        raise ValueError(describe_unknown("example", name, known) + hint)
    rows, samples, run = reader.read_rows(known[name])
    return with_limits(frame.from_rows(rows, run, samples))  # some runs are older than these columns


if __name__ == "__main__":
    from bwprof.cli import main

    sys.exit(main(["info", *sys.argv[1:]]))
