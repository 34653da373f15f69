"""Roofs: how fast plain streams move memory on a device, by read/write mix and by size.

The four streams are measured as a curve over the bytes they move. A case is then held against the stream of its own
mix and size: between the streams' mixes the time per byte is interpolated over the read fraction, between sizes the
time over the bytes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from bwprof import _core

_log = logging.getLogger("bwprof.roofs")

SMALLEST_BYTES = 64 * 1024
# A launch is cold by rotating over at most about this many buffer sets, past four times the cache; smaller streams
# would need a flush before every sample, which costs more than the curve's lower end is worth.
_MOST_SETS = 1024
_CACHE_FACTOR = 4
# On a CPU the rotation passes the caches whatever a launch's size, and first touches of memory are dear.
LARGEST_BYTES = {"cpu": 256 * 1024**2, "cuda": 1024**3}
PRECISION = "fp32"

# Seconds for all ceilings and the curve.
BUDGET_SECONDS = {"cpu": 2.8, "cuda": 1.8}


class _OutOfTimeError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class RoofPoint:
    """One stream at one size: `total_bytes` read and written in `seconds`."""

    stream: str
    read_fraction: float
    total_bytes: int
    seconds: float

    @property
    def gb_s(self) -> float:
        """Bandwidth in GB/s."""
        return self.total_bytes / self.seconds / 1e9


@dataclass(frozen=True)
class Roofs:
    """Measured roofs of one device. Immutable, and `to_dict`/`from_dict` carry it through JSON."""

    device: str
    device_uuid: str
    driver: str
    bwprof_version: str
    floor_seconds: float
    points: tuple[RoofPoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Roofs:
        """The inverse of `to_dict`; TypeError or KeyError for anything else."""
        points = tuple(RoofPoint(**point) for point in found["points"])
        return cls(**{**found, "points": points})

    def belongs_to(self, facts: dict[str, Any]) -> bool:
        """True when these were measured on that device, with its present driver."""
        return (self.device, self.device_uuid, self.driver) == (facts["name"], facts["uuid"], facts["driver"])

    @cached_property
    def _curves(self) -> list[tuple[float, list[RoofPoint]]]:
        """Per stream: its read fraction at the largest size, and its points by size; ordered by fraction."""
        curves: dict[str, list[RoofPoint]] = {}
        for point in self.points:
            curves.setdefault(point.stream, []).append(point)
        ordered = [sorted(points, key=lambda point: point.total_bytes) for points in curves.values()]
        return sorted(((points[-1].read_fraction, points) for points in ordered), key=lambda curve: curve[0])

    def attainable_gb_s(self, bytes_read: int, bytes_written: int) -> float:
        """What a plain stream of these bytes and this mix reaches, cold; NaN where nothing is known."""
        total = bytes_read + bytes_written
        if total <= 0 or not self.points:
            return math.nan
        return 1e-9 / self._seconds_per_byte(bytes_read / total, total)

    def ceiling_gb_s(self, bytes_read: int, bytes_written: int) -> float:
        """The same at the largest size measured: the ceiling of this mix."""
        total = bytes_read + bytes_written
        if total <= 0 or not self.points:
            return math.nan
        return 1e-9 / self._seconds_per_byte(bytes_read / total, None)

    def _seconds_per_byte(self, read_fraction: float, total_bytes: int | None) -> float:
        known = [(fraction, self._on_curve(points, total_bytes)) for fraction, points in self._curves]
        if read_fraction <= known[0][0]:
            return known[0][1]
        for (low, at_low), (high, at_high) in pairwise(known):
            if read_fraction <= high:
                weight = (read_fraction - low) / (high - low) if high > low else 0.0
                return at_low + weight * (at_high - at_low)
        return known[-1][1]

    def _on_curve(self, points: list[RoofPoint], total_bytes: int | None) -> float:
        """Seconds per byte of one stream at a size; None means its largest."""
        first, last = points[0], points[-1]
        if total_bytes is None or total_bytes >= last.total_bytes:
            return last.seconds / last.total_bytes
        if total_bytes <= first.total_bytes:
            # Below the smallest size the time shrinks towards that of an empty launch, in proportion to the bytes.
            floor = min(self.floor_seconds, first.seconds)
            return (floor + (first.seconds - floor) * total_bytes / first.total_bytes) / total_bytes
        for low, high in pairwise(points):
            if total_bytes <= high.total_bytes:
                # Between neighbouring sizes time is a latency plus bytes over bandwidth: a straight line.
                weight = (total_bytes - low.total_bytes) / (high.total_bytes - low.total_bytes)
                return (low.seconds + weight * (high.seconds - low.seconds)) / total_bytes
        return last.seconds / last.total_bytes


def sizes(smallest_bytes: int, largest_bytes: int) -> list[int]:
    """Sizes to measure, in an order that makes every prefix a useful curve: ends first, then halving the gaps."""
    smallest = min(smallest_bytes, largest_bytes)
    count = max(1, round(math.log2(largest_bytes / smallest)))
    grid = [round(smallest * (largest_bytes / smallest) ** (step / count)) for step in range(count + 1)]
    order = [count, 0]
    gaps = [(0, count)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle not in (low, high):
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return list(dict.fromkeys(grid[step] for step in order))


def measure(
    device: _core.Device,
    *,
    budget_seconds: float | None = None,
    deadline: float | None = None,
    poll: Callable[[], object] | None = None,
) -> Roofs:
    """Measure the streams on a device, largest size first, for as long as the budget lasts.

    Every stream gets its largest and its smallest size even when the budget is short. Streams or sizes that do not
    fit into memory are left out; without any the roofs are empty and everything held against them is NaN.

    Parameters
    ----------
    device : bwprof._core.Device
        An open device.
    budget_seconds : float, optional
        2.8 s on a CPU and 1.8 s on a GPU when left out.
    deadline : float, optional
        A time.monotonic() after which nothing more is measured. When it comes before both ends of every stream's curve
        are there, the roofs are empty: a part of them would stand for mixes that it does not know.
    poll : callable, optional
        Called between batches; what it raises ends the measurement.
    """
    facts = device.facts()
    budget = budget_seconds if budget_seconds is not None else BUDGET_SECONDS.get(device.backend, 2.8)
    streams = [operation for operation in _core.operations() if operation["is_stream"]]
    ends = 2 * len(streams)
    largest = min(LARGEST_BYTES.get(device.backend, 1024**3), max(SMALLEST_BYTES, device.memory()[0] // 8))
    smallest = max(SMALLEST_BYTES, _CACHE_FACTOR * facts["cache_bytes"] // _MOST_SETS)
    plan = [(stream, size) for size in sizes(smallest, largest) for stream in streams]
    started = time.monotonic()
    points: list[RoofPoint] = []

    def watch() -> None:
        if poll is not None:
            poll()
        if deadline is not None and time.monotonic() >= deadline:
            raise _OutOfTimeError

    for number, (stream, size) in enumerate(plan):
        left = budget - (time.monotonic() - started)
        if left <= 0 and number >= ends:
            break
        per_point = max(0.01, min(0.12, left / (len(plan) - number) / 3))
        try:
            watch()
            point = _measure_point(device, stream, size, per_point, watch)
        except _OutOfTimeError:
            if number < ends:
                _log.warning("no time for the roofs: rows are not held against any")
                points.clear()
            break
        if point is not None:
            points.append(point)
    _log.debug("%d of %d roof points in %.2f s", len(points), len(plan), time.monotonic() - started)
    return Roofs(
        device=facts["name"],
        device_uuid=facts["uuid"],
        driver=facts["driver"],
        bwprof_version=_core.__version__,
        floor_seconds=device.floor_ns() / 1e9,
        points=tuple(points),
    )


def _measure_point(
    device: _core.Device,
    stream: dict[str, Any],
    total_bytes: int,
    seconds: float,
    poll: Callable[[], object] | None,
) -> RoofPoint | None:
    """A stream whose operands together have about `total_bytes`; None when it cannot be measured."""
    (param,) = (param["name"] for param in stream["params"])
    per_element = _core.cost(stream["name"], PRECISION, {param: 1024})
    moved = per_element["bytes_read"] + per_element["bytes_written"]
    elements = max(1, total_bytes * 1024 // moved)
    try:
        with _core.Case(device, stream["name"], PRECISION, {param: elements}) as case:
            need = case.memory_needed("cold")
            if not need["fits"]:
                return None
            result = case.measure(
                cache="cold", max_seconds=seconds, precision_target=0.01, verify_budget_s=0.0, poll=poll
            )
            cost = case.cost
    except (_core.UnsupportedError, MemoryError) as error:
        _log.info("roof %s at %d bytes left out: %s", stream["name"], total_bytes, error)
        return None
    if not result["verified"] or not result["median_ns"] > 0:
        _log.warning("roof %s at %d bytes left out: %s", stream["name"], total_bytes, result["reason"])
        return None
    total = cost["bytes_read"] + cost["bytes_written"]
    return RoofPoint(stream["name"], cost["bytes_read"] / total, total, result["median_ns"] / 1e9)
