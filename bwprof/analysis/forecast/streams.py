"""What a plain stream of some bytes takes on a device, for whole arrays; and how that carries over to another."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.roofs.model import Roofs

if TYPE_CHECKING:
    import numpy as np

_FILE = Path(__file__).with_name("streams.json")

Array = Any  # a NumPy array of floats


@dataclass(frozen=True, slots=True)
class Curve:
    """One stream over size: bytes, ascending, and seconds, which never fall."""

    read_fraction: float
    sizes: np.ndarray[Any, Any]
    seconds: np.ndarray[Any, Any]

    def times(self, total: Array, floor: float) -> Array:
        """Seconds for so many bytes, as `bwprof.Roofs` has them: straight lines between the measured sizes."""
        import numpy as np

        first, last = self.seconds[0], self.seconds[-1]
        low = min(floor, first)
        below = low + (first - low) * total / self.sizes[0]
        within = np.interp(total, self.sizes, self.seconds)
        beyond = total * (last / self.sizes[-1])
        return np.where(total < self.sizes[0], below, np.where(total > self.sizes[-1], beyond, within))


@dataclass(frozen=True, slots=True)
class Streams:
    """A device's streams over size, by read fraction, and the time of an empty launch."""

    curves: tuple[Curve, ...]
    floor_seconds: float
    measured_on: str
    scaled: bool = False

    @classmethod
    def of(cls, roofs: Roofs) -> Streams:
        """Those of measured roofs; ValueError where they have none."""
        import numpy as np

        if not roofs.points:
            raise ValueError(f"the roofs of {roofs.device or 'this device'} hold no stream")
        found: dict[str, list[Any]] = {}
        for point in roofs.points:
            found.setdefault(point.stream, []).append(point)
        curves = []
        for points in found.values():
            points.sort(key=lambda point: point.total_bytes)
            seconds = np.array([point.seconds for point in points])
            curves.append(
                Curve(
                    points[-1].read_fraction,
                    np.array([float(point.total_bytes) for point in points]),
                    np.minimum.accumulate(seconds[::-1])[::-1],  # fewer bytes never need more time
                )
            )
        curves.sort(key=lambda curve: curve.read_fraction)
        return cls(tuple(curves), roofs.floor_seconds, roofs.device)

    def seconds(self, read: Array, written: Array) -> Array:
        """What a stream of these bytes and of their mix takes, its launch included; an empty launch for no bytes."""
        import numpy as np

        total = read + written
        moved = np.where(total > 0, total, 1.0)
        fraction = read / moved
        curves = self._around(float(fraction.min(initial=1.0)), float(fraction.max(initial=0.0)))
        before = found = curves[0].times(moved, self.floor_seconds)
        for low, high in pairwise(curves):
            after = high.times(moved, self.floor_seconds)
            share = (fraction - low.read_fraction) / (high.read_fraction - low.read_fraction)
            found = np.where(share > 0, before + np.minimum(share, 1.0) * (after - before), found)
            before = after
        return np.where(total > 0, found, self.floor_seconds)

    def _around(self, least: float, most: float) -> tuple[Curve, ...]:
        """The curves that mixes from `least` to `most` lie on or between."""
        mixes = [curve.read_fraction for curve in self.curves]
        first = max(bisect_right(mixes, least) - 1, 0)
        last = min(bisect_left(mixes, most), len(mixes) - 1)
        return self.curves[min(first, last) : last + 1]

    def ceiling_gb_s(self, read: Array, written: Array) -> Array:
        """What a stream of this mix reaches at the largest size that was measured, GB/s; NaN for no bytes."""
        import numpy as np

        total = read + written
        fraction = read / np.where(total > 0, total, 1.0)
        mixes = [curve.read_fraction for curve in self.curves]
        slowness = [curve.seconds[-1] / curve.sizes[-1] for curve in self.curves]
        return np.where(total > 0, 1e-9 / np.interp(fraction, mixes, slowness), np.nan)

    def carried_over(self, bandwidth: float, latency: float, floor_seconds: float | None = None) -> Streams:
        """Those of another device, with so many times the bandwidth and so many times the latency.

        A stream takes a latency and its bytes over the bandwidth of a large one: each is scaled by itself.
        """
        import numpy as np

        curves = []
        for curve in self.curves:
            moving = curve.sizes * (curve.seconds[-1] / curve.sizes[-1])
            waiting = np.maximum(curve.seconds - moving, 0.0)
            seconds = waiting * latency + (curve.seconds - waiting) / bandwidth
            curves.append(Curve(curve.read_fraction, curve.sizes, np.minimum.accumulate(seconds[::-1])[::-1]))
        floor = self.floor_seconds * latency if floor_seconds is None else floor_seconds
        return Streams(tuple(curves), floor, self.measured_on, scaled=True)


@cache
def default() -> Streams:
    """The streams that come with bwprof, of the device that they name."""
    import numpy as np

    found = json.loads(_FILE.read_text(encoding="utf-8"))
    curves = tuple(
        Curve(curve["read_fraction"], np.array(curve["bytes"], float), np.array(curve["microseconds"]) * 1e-6)
        for curve in found["curves"]
    )
    return Streams(curves, found["floor_microseconds"] * 1e-6, found["device"])
