"""What a plain stream of some bytes takes on a device, for whole arrays; and how that carries over to another."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bwprof.roofs.model import Roofs

_FILE = Path(__file__).parents[2] / "data" / "streams.json"

_FAR = 2.0**64  # bytes: more than any transfer has

Array = Any  # a NumPy array of floats


@dataclass(frozen=True, slots=True)
class Curve:
    """One stream over size: bytes, ascending, and seconds, which never fall."""

    read_fraction: float
    sizes: np.ndarray[Any, Any]
    seconds: np.ndarray[Any, Any]

    def times(self, total: Array, floor: float) -> Array:
        """Seconds for so many bytes, as `bwprof.Roofs` has them: straight lines between the measured sizes."""
        first, last = self.seconds[0], self.seconds[-1]
        low = min(floor, first)
        below = low + (first - low) * total / self.sizes[0]
        within = np.interp(total, self.sizes, self.seconds)
        beyond = total * (last / self.sizes[-1])
        return np.where(total < self.sizes[0], below, np.where(total > self.sizes[-1], beyond, within))


@dataclass(frozen=True)
class Streams:
    """A device's streams over size, by read fraction, and the time of an empty launch.

    `scaled_from` are those of the device `measured_on` where these are another's, worked out from them.
    """

    curves: tuple[Curve, ...]
    floor_seconds: float
    measured_on: str
    scaled_from: Streams | None = None

    @property
    def as_measured(self) -> Streams:
        """Those that are of the device `measured_on`: from which others are scaled, never from scaled ones."""
        return self.scaled_from or self

    @classmethod
    def of(cls, roofs: Roofs) -> Streams:
        """Those of measured roofs; ValueError where they have none."""
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

    @classmethod
    def from_dict(cls, found: Any) -> Streams:
        """Those that `to_dict` wrote; ValueError for what holds none."""
        try:
            device, floor = str(found["device"]), float(found["floor_microseconds"])
            curves = [
                (float(curve["read_fraction"]), np.array(curve["bytes"], float), np.array(curve["microseconds"], float))
                for curve in found["curves"]
            ]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("these are no streams: a device, floor_microseconds and curves are needed") from None
        mixes = [mix for mix, _, _ in curves]
        right = mixes and mixes == sorted(set(mixes)) and all(0 <= mix <= 1 for mix in mixes) and 0 <= floor < math.inf
        if not right or not all(_is_curve(sizes, times) for _, sizes, times in curves):
            raise ValueError("these are no streams: ascending bytes and times of each mix are needed")
        return cls(tuple(Curve(mix, sizes, times * 1e-6) for mix, sizes, times in curves), floor * 1e-6, device)

    def to_dict(self) -> dict[str, Any]:
        """As a file of JSON has them."""
        curves = [
            {
                "read_fraction": own.read_fraction,
                "bytes": own.sizes.tolist(),
                "microseconds": (own.seconds * 1e6).tolist(),
            }
            for own in self.curves
        ]
        return {"device": self.measured_on, "floor_microseconds": self.floor_seconds * 1e6, "curves": curves}

    def seconds(self, read: Array, written: Array) -> Array:
        """What a stream of these bytes and of their mix takes, its launch included; an empty launch for no bytes."""
        sizes, mixes, times, slopes = self._grid
        total = read + written
        moved = np.where(total > 0, total, 1.0)
        fraction = read / moved
        at = np.searchsorted(sizes[1:-1], moved, "right")
        beyond = moved - sizes[at]
        mix = np.searchsorted(mixes[1:-1], fraction, "right")
        share = np.clip((fraction - mixes[mix]) / (mixes[mix + 1] - mixes[mix]), 0.0, 1.0)
        at += mix * len(sizes)
        low = times[at] + beyond * slopes[at]
        at += len(sizes)
        found = low + share * (times[at] + beyond * slopes[at] - low)
        return np.where(total > 0, found, self.floor_seconds)

    @cached_property
    def _grid(self) -> tuple[Array, Array, Array, Array]:
        """Sizes that any stream was measured at, mixes, and of each mix the time at each size and how it goes on: what
        lies between are straight lines. One more size far beyond, and a second mix where there is one.
        """
        curves = self.curves if len(self.curves) > 1 else self.curves * 2
        mixes = np.array([curve.read_fraction for curve in curves])
        if len(self.curves) == 1:
            mixes[1] += 1.0
        sizes = np.unique(np.concatenate([[0.0, _FAR], *(curve.sizes for curve in curves)]))
        times = np.stack([curve.times(sizes, self.floor_seconds) for curve in curves])
        slopes = np.zeros_like(times)
        slopes[:, :-1] = np.diff(times) / np.diff(sizes)
        return sizes, mixes, times.ravel(), slopes.ravel()

    def ceiling_gb_s(self, read: Array, written: Array) -> Array:
        """What a stream of this mix reaches at the largest size that was measured, GB/s; NaN for no bytes."""
        total = read + written
        fraction = read / np.where(total > 0, total, 1.0)
        mixes = [curve.read_fraction for curve in self.curves]
        slowness = [curve.seconds[-1] / curve.sizes[-1] for curve in self.curves]
        return np.where(total > 0, 1e-9 / np.interp(fraction, mixes, slowness), np.nan)

    def carried_over(self, bandwidth: float, latency: float, floor_seconds: float | None = None) -> Streams:
        """Those of another device, with so many times the bandwidth and so many times the latency.

        A stream takes a latency and its bytes over the bandwidth of a large one: each is scaled by itself.
        """
        curves = []
        for curve in self.curves:
            moving = curve.sizes * (curve.seconds[-1] / curve.sizes[-1])
            waiting = np.maximum(curve.seconds - moving, 0.0)
            seconds = waiting * latency + (curve.seconds - waiting) / bandwidth
            curves.append(Curve(curve.read_fraction, curve.sizes, np.minimum.accumulate(seconds[::-1])[::-1]))
        floor = self.floor_seconds * latency if floor_seconds is None else floor_seconds
        return Streams(tuple(curves), floor, self.measured_on, scaled_from=self.as_measured)


def _is_curve(sizes: Array, times: Array) -> bool:
    """Whether these are bytes that ascend and times that never fall, all above zero and finite."""
    if sizes.ndim != 1 or sizes.shape != times.shape or not sizes.size:
        return False
    ascend = (np.diff(sizes) > 0).all() and (np.diff(times) >= 0).all()
    return bool(ascend and sizes[0] > 0 and sizes[-1] < _FAR and times[0] > 0 and times[-1] < math.inf)


@cache
def bundled_streams() -> Streams:
    """The streams that come with bwprof, of the device that they name."""
    return Streams.from_dict(json.loads(_FILE.read_text(encoding="utf-8")))
