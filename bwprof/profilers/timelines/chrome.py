"""`parse_chrome_trace`: what torch.profiler recorded, from the trace that it wrote."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.profilers.reading import wrong
from bwprof.profilers.timelines.launches import COPY, FILL, KERNEL, OPERATOR, UNKNOWN, Launches, Setup
from bwprof.profilers.timelines.stream import Trace
from bwprof.results import schema
from bwprof.text import finite_number, path_of, quoted

if TYPE_CHECKING:
    import pandas as pd

# PyTorch's categories (libkineto's ActivityType), in small letters; later versions prefix those of devices.
_ON_DEVICE = {
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": FILL,
    "memset": FILL,
}
_ON_HOST = {"cpu_op": OPERATOR, "operator": OPERATOR, "user_annotation": OPERATOR}
_TOLD = ("device", "registers per thread", "shared memory", "est. achieved occupancy %")
_MOST_MS = 1e12  # thirty years
_MOST_SETUPS = 100_000  # kept at once, so that equal ones are made once

Bytes = Mapping[str, "tuple[int, int] | Callable[[dict[str, Any]], tuple[int, int]] | Any"]


def parse_chrome_trace(path: str | PathLike[str], *, bytes: Bytes | None = None) -> pd.DataFrame:
    """The kernels of a trace that `torch.profiler` wrote (`export_chrome_trace`), a row for each name.

    Where it has no kernels, copies or fills (a CPU), each operator is a row, with those that it called in its time.

    Parameters
    ----------
    path : str or path
        JSON, or packed by gzip: an object with ``traceEvents``, or a list of events, which need not have its end.
    bytes : mapping, optional
        What one call moves, by name: (bytes_read, bytes_written), a `bwprof.Cost`, a list of as many as there are calls
        where these differ, or a function that is given the row as a dict (``kernel``, ``grid``, ``block``, ``count``,
        ...) and gives them. A name may be a pattern ("*gemm*"), of which the first that matches counts.

    Returns
    -------
    pandas.DataFrame
        The longest in all first: ``kernel``, ``kind`` (kernel, copy, fill, operator), ``count``, ``time_ms`` (the
        median of one), ``total_ms``, ``min_ms``, ``max_ms``, ``share_pct`` (of all kernels' time; on a CPU of the
        trace's), ``device``, ``grid``, ``block``, ``registers``, ``shared_bytes`` and ``occupancy_pct`` (PyTorch's
        estimate) where each launch had the same; with bytes ``bytes_read``, ``bytes_written`` and ``bandwidth_gb_s``
        (their sum over ``time_ms``, 10^9 bytes a second); where calls move different bytes ``flags`` is ``bytes_vary``,
        the bytes are means and the bandwidth is all bytes over all time. ``attrs["notes"]`` says what was left out.

    Raises
    ------
    ValueError
        For what is no trace or damaged, with its line; for a name in `bytes` that it does not have.
    OSError
        When it cannot be read.

    Examples
    --------
    >>> from bwprof.profilers import parse_chrome_trace
    >>> frame = parse_chrome_trace("trace.json.gz", bytes={"*gemm*": (a.nbytes + b.nbytes, c.nbytes)})  # doctest: +SKIP
    >>> frame[["kernel", "count", "time_ms", "bandwidth_gb_s"]]  # doctest: +SKIP
    """
    place = path_of(path, "path")
    trace = Trace(place)
    reader = _Reader(place, trace)
    reader.read()
    on_device = len(reader.on_device) > 0
    found = reader.on_device if on_device else reader.on_host
    notes = [*trace.notes, *reader.notes()]
    if not len(found):
        seen = ", ".join(f"{quoted(name)} ({count})" for name, count in reader.categories.most_common(5))
        said = f"its events are of the categories {seen}" if seen else "it has no events of any category"
        raise wrong(place, None, f"no kernel and no operator is in it: {said}")
    if not on_device:
        notes.append("it has no kernels: these are operators on a CPU, those that they called in their time")
    whole_ms = None if on_device else max(0.0, (reader.end_us - reader.begin_us) / 1e3)
    return found.frame(source=place.name, tool="torch.profiler", notes=notes, bytes=bytes, whole_ms=whole_ms)


class _Reader:
    """Goes through a trace's events."""

    def __init__(self, path: Path, trace: Trace) -> None:
        self._trace = trace
        self._setups: dict[Any, Setup] = {}
        self._odd = 0
        self.on_device, self.on_host = Launches(path), Launches(path)
        self.categories: Counter[str] = Counter()
        self.begin_us, self.end_us = float("inf"), float("-inf")

    def read(self) -> None:
        for event in self._trace:
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            category = event.get("cat")
            if not isinstance(category, str):
                continue
            kind = _ON_DEVICE.get(category) or _ON_DEVICE.get(category.lower())
            if kind is not None:
                self._add(self.on_device, event, kind, self._setup(event.get("args")))
            elif (kind := _ON_HOST.get(category) or _ON_HOST.get(category.lower())) is not None:
                if self._add(self.on_host, event, kind, UNKNOWN):
                    self._span(event)
            elif category in self.categories or len(self.categories) < 100:
                self.categories[schema.clean(category)[:80]] += 1

    def notes(self) -> list[str]:
        """What was left out."""
        return [f"{self._odd} events have no name, or no time that could be, and are left out"] if self._odd else []

    def _add(self, launches: Launches, event: Mapping[str, Any], kind: str, setup: Setup) -> bool:
        name: Any = event.get("name")
        took: Any = event.get("dur")
        if type(took) not in (int, float) or not isinstance(name, str) or not 0 <= took <= 1e3 * _MOST_MS:
            self._odd += 1
            return False
        args = event.get("args")
        count = _count(args.get("bytes")) if kind in (COPY, FILL) and isinstance(args, dict) else None
        launches.add(name, kind, took / 1e3, setup, count)
        return True

    def _span(self, event: Mapping[str, Any]) -> None:
        begin: Any = event.get("ts")
        if type(begin) in (int, float) and abs(begin) < 1e300:
            self.begin_us = min(self.begin_us, begin)
            self.end_us = max(self.end_us, begin + event["dur"])

    def _setup(self, args: Any) -> Setup:
        if not isinstance(args, dict):
            return UNKNOWN
        grid, block = _axes(args.get("grid")), _axes(args.get("block"))
        numbers = [value if type(value) in (int, float) else None for value in map(args.get, _TOLD)]
        key = (grid, block, *numbers)
        found = self._setups.get(key)
        if found is None:
            if len(self._setups) >= _MOST_SETUPS:
                self._setups.clear()
            found = self._setups[key] = self._new_setup(key)
        return found

    def _new_setup(self, key: tuple[Any, ...]) -> Setup:
        grid, block, device, registers, shared, occupancy = key
        name, capability, units = self._device(device)
        return Setup(
            name,
            capability,
            units,
            "x".join(map(str, grid)) if grid else None,
            "x".join(map(str, block)) if block else None,
            math.prod(grid) if grid else None,
            math.prod(block) if block else None,
            _count(registers),
            _count(shared),
            _percent(occupancy),
        )

    def _device(self, number: Any) -> tuple[str | None, str | None, int | None]:
        """A device's name, compute capability and multiprocessors, as the trace says them."""
        listed = self._trace.devices
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, dict) and type(number) is int and one.get("id") == number:
                major, minor = one.get("computeMajor"), one.get("computeMinor")
                known = type(major) is int and type(minor) is int and 0 < major < 1000 and 0 <= minor < 1000
                name = one.get("name")
                return (
                    schema.clean(name) if isinstance(name, str) else f"GPU {number}",
                    f"{major}.{minor}" if known else None,
                    _count(one.get("numSms")),
                )
        return (f"GPU {number}", None, None) if type(number) is int and 0 <= number < 10_000 else (None, None, None)


def _axes(given: Any) -> tuple[int, ...] | None:
    """A grid's or a block's three sizes."""
    if isinstance(given, list) and len(given) == 3 and all(type(size) is int and 0 < size < 2**31 for size in given):
        return tuple(given)
    return None


def _count(value: Any) -> int | None:
    number = finite_number(value)
    return int(number) if number is not None and 0 <= number < 2**62 else None


def _percent(value: Any) -> float | None:
    number = finite_number(value)
    return number if number is not None and 0 <= number <= 100 else None
