"""Compute the time of a plain stream of bytes on a device, and scale it to another device."""

from __future__ import annotations

import json
import math
from collections import defaultdict
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
    """One stream over size: ascending bytes, and seconds that never fall."""

    read_fraction: float
    sizes: np.ndarray[Any, Any]
    seconds: np.ndarray[Any, Any]

    def times(self, total: Array, floor: float) -> Array:
        """Interpolate seconds between the measured sizes, as `bwprof.Roofs` does."""
        first, last = self.seconds[0], self.seconds[-1]
        low = min(floor, first)
        below = low + (first - low) * total / self.sizes[0]
        within = np.interp(total, self.sizes, self.seconds)
        beyond = total * (last / self.sizes[-1])
        return np.where(total < self.sizes[0], below, np.where(total > self.sizes[-1], beyond, within))


@dataclass(frozen=True)
class Streams:
    """A device's streams over size, by read fraction, and the time of an empty launch.

    `scaled_from` are those of the device `measured_on`, from which these were computed for another one.
    """

    curves: tuple[Curve, ...]
    floor_seconds: float
    measured_on: str
    scaled_from: Streams | None = None

    @property
    def as_measured(self) -> Streams:
        """The streams of the device `measured_on`, from which others are scaled."""
        return self.scaled_from or self

    @classmethod
    def of(cls, roofs: Roofs) -> Streams:
        """Read the streams of measured roofs; ValueError where they have none."""
        if not roofs.points:
            raise ValueError(f"the roofs of {roofs.device or 'this device'} hold no stream")
        streams: dict[str, list[Any]] = defaultdict(list)
        for point in roofs.points:
            streams[point.stream].append(point)
        curves = []
        for points in streams.values():
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
    def from_dict(cls, data: Any) -> Streams:
        """Read streams that `to_dict` wrote; ValueError for anything else."""
        try:
            device, floor = str(data["device"]), float(data["floor_microseconds"])
            curves = [
                (float(curve["read_fraction"]), np.array(curve["bytes"], float), np.array(curve["microseconds"], float))
                for curve in data["curves"]
            ]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("these are no streams: a device, floor_microseconds and curves are needed") from None
        mixes = [mix for mix, _, _ in curves]
        right = mixes and mixes == sorted(set(mixes)) and all(0 <= mix <= 1 for mix in mixes) and 0 <= floor < math.inf
        if not right or not all(_is_curve(sizes, times) for _, sizes, times in curves):
            raise ValueError("these are no streams: ascending bytes and times of each mix are needed")
        return cls(tuple(Curve(mix, sizes, times * 1e-6) for mix, sizes, times in curves), floor * 1e-6, device)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain types, for JSON."""
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
        """Compute the time of a stream of this mix, launch included; an empty launch for no bytes."""
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
        seconds = low + share * (times[at] + beyond * slopes[at] - low)
        return np.where(total > 0, seconds, self.floor_seconds)

    @cached_property
    def _grid(self) -> tuple[Array, Array, Array, Array]:
        """All measured sizes and one far beyond, mixes (at least two), and each mix's times and slopes at the sizes."""
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
        """Compute the rate of a stream of this mix at the largest measured size, GB/s; NaN for no bytes."""
        total = read + written
        fraction = read / np.where(total > 0, total, 1.0)
        mixes = [curve.read_fraction for curve in self.curves]
        slowness = [curve.seconds[-1] / curve.sizes[-1] for curve in self.curves]
        return np.where(total > 0, 1e-9 / np.interp(fraction, mixes, slowness), np.nan)

    def scale(self, bandwidth: float, latency: float, floor_seconds: float | None = None) -> Streams:
        """Scale to a device with `bandwidth` times the bandwidth and `latency` times the latency.

        A stream takes a latency, and its bytes over the bandwidth of a large stream; each part is scaled by itself.
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
    """Check for ascending bytes and times that never fall, positive and finite."""
    if sizes.ndim != 1 or sizes.shape != times.shape or not sizes.size:
        return False
    ascend = (np.diff(sizes) > 0).all() and (np.diff(times) >= 0).all()
    return bool(ascend and sizes[0] > 0 and sizes[-1] < _FAR and times[0] > 0 and times[-1] < math.inf)


@cache
def bundled_streams() -> Streams:
    """Read the streams that come with bwprof."""
    return Streams.from_dict(json.loads(_FILE.read_text(encoding="utf-8")))
