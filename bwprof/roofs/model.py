"""Roofs as data: measured points, values between them, how far to trust them; and the argument `roofs=`."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, cast

from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import describe_unknown, repr_short

# A point is in doubt when its time is known less well than this (half the width of the median's 95 % interval), or
# when its samples lie further apart than that (interquartile range / median): somebody else was at work.
UNCERTAINTY_LIMIT = 0.02

NOISE_LIMIT = 0.10

# Processor time that other processes took while the roofs of a CPU were measured, as a share of all there was.
OTHERS_LIMIT = 0.05

# A point contradicts another measurement of it that differs by more than this.
DEVIATION_LIMIT = 0.03


@dataclass(frozen=True, slots=True)
class RoofPoint:
    """One stream at one size: `total_bytes` read and written in `seconds`, a verified result.

    `seconds` is the median's of a cold point, the fastest sample's of a hot one, which stands for a limit, and of one
    in doubt, since a disturbance only makes a sample slower.
    `uncertainty` is half the width of the median's 95 % confidence interval as a fraction of it, `noise` the
    interquartile range over the median, `throttle` why the clock was held down meanwhile ("" when it was not, or nobody
    can tell), `disturbance` what else ran on the device, in words ("" when nothing was seen), `others_share` what other
    processes took of a CPU's time. `beaten` is by how much a row was faster that should not have been (0: by none),
    `tries` how often the point was measured again without becoming better.
    """

    stream: str
    read_fraction: float
    total_bytes: int
    seconds: float
    uncertainty: float = 0.0
    noise: float = 0.0
    throttle: str = ""
    disturbance: str = ""
    others_share: float = 0.0
    beaten: float = 0.0
    tries: int = 0

    @property
    def measurement(self) -> tuple[str, int, float]:
        """What tells this measurement from one of another point, or of another time."""
        return self.stream, self.total_bytes, self.seconds

    @property
    def gb_s(self) -> float:
        """Bandwidth in GB/s."""
        return self.total_bytes / self.seconds / 1e9

    @property
    def doubt(self) -> str:
        """Why this point should not be relied on, in words; "" when it may be."""
        what = f"the roof ({self.stream} of {format_bytes(self.total_bytes)})"
        if self.beaten:
            return f"{what} was beaten by {100 * self.beaten:.0f} %: it was probably measured too low"
        if self.others_share > OTHERS_LIMIT:
            share = f"{100 * self.others_share:.0f} %"
            return f"{what} was measured while other processes took {share} of the processors"
        if self.disturbance:
            return f"{what} was measured while others disturbed it ({self.disturbance})"
        if self.uncertainty > UNCERTAINTY_LIMIT:
            return f"{what} is known to {100 * self.uncertainty:.0f} % only"
        if self.noise > NOISE_LIMIT:
            return f"{what} was measured while others disturbed it (noise {100 * self.noise:.0f} %)"
        if self.throttle:
            return f"{what} was measured while the clock was held down ({self.throttle})"
        return ""


@dataclass(frozen=True, slots=True)
class Rate:
    """The best measured arithmetic rate of one precision: a square matrix product of `size` on the best variant.

    `tflops` is the fastest sample's, `median_tflops` the median's, `noise` the interquartile range over the median.
    """

    precision: str
    operation: str
    variant: str
    size: int
    tflops: float
    median_tflops: float
    noise: float


@dataclass(frozen=True, slots=True)
class RoofCheck:
    """One stored point held against a new measurement.

    `uncertainty` is what both measurements leave open, as a fraction; `doubt` why the new one should not be relied on
    ("" when it may be).
    """

    stream: str
    total_bytes: int
    stored_gb_s: float
    found_gb_s: float
    uncertainty: float = 0.0
    doubt: str = ""

    @property
    def deviation(self) -> float:
        """How much faster (> 0) or slower it is now, as a fraction."""
        return self.found_gb_s / self.stored_gb_s - 1.0

    @property
    def too_low(self) -> bool:
        """The stored one is: nothing makes a stream too quick, so doubt changes nothing."""
        return self.deviation > DEVIATION_LIMIT

    @property
    def too_high(self) -> bool:
        """The stored one is, as far as a measurement can tell that nobody disturbed."""
        return self.deviation < -DEVIATION_LIMIT and not self.doubt

    @property
    def unclear(self) -> bool:
        """The new one is slower, and may be wrong."""
        return self.deviation < -DEVIATION_LIMIT and bool(self.doubt)

    def __str__(self) -> str:
        now = f"{100 * self.deviation:+.1f} % now"
        return f"{self.stream} of {format_bytes(self.total_bytes)}: {self.stored_gb_s:.4g} GB/s stored, {now}"


@dataclass(frozen=True)
class Roofs:
    """Measured roofs of one device. Immutable, and `to_dict`/`from_dict` carry it through JSON.

    Attributes
    ----------
    points : tuple of RoofPoint
        The streams, cold: what rows are graded against.
    hot_points : tuple of RoofPoint
        The streams on one set of buffers, the cache's own limit; empty unless a hot row was asked for.
    rates : tuple of Rate
        Best measured arithmetic rates.
    measured : str
        When, UTC, ISO 8601.
    threads : int
        Of a CPU, that they were measured with; 0 on a GPU.
    source : str
        "measured for this run", or the file that they were stored in.
    complete : bool
        False when a deadline cut the measuring short; such roofs are not stored.
    checks : tuple of Check
        Stored points held against new measurements, where they come from a file.
    unconfirmed : str
        Why those say nothing, in words: the machine is busy now. "" when they agree, or there are none.

    Examples
    --------
    >>> points = tuple(RoofPoint("stream_read", 1.0, size, size / 100e9) for size in (10**6, 10**9))
    >>> Roofs("a device", "", "", "", 1e-6, points).attainable_gb_s(10**8, 0)
    100.0
    """

    device: str
    device_uuid: str
    driver: str
    bwprof_version: str
    floor_seconds: float
    points: tuple[RoofPoint, ...]
    hot_points: tuple[RoofPoint, ...] = ()
    rates: tuple[Rate, ...] = ()
    measured: str = ""
    threads: int = 0
    source: str = ""
    complete: bool = True
    checks: tuple[RoofCheck, ...] = ()
    unconfirmed: str = ""

    def __repr__(self) -> str:
        streams = ", ".join(f"{point.stream} {point.gb_s:.4g}" for point in self.ceilings())
        speeds = f"{streams} GB/s" if streams else "no streams"
        return (
            f"<bwprof.Roofs of {self.device or 'a device'}: {speeds}; measured {self.measured or 'at no known time'}>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Roofs:
        """The inverse of `to_dict`; ValueError, and nothing else, for whatever is no such dictionary."""
        try:
            made = cls(
                **{
                    **found,
                    "points": tuple(RoofPoint(**point) for point in found["points"]),
                    "hot_points": tuple(RoofPoint(**point) for point in found.get("hot_points", ())),
                    "rates": tuple(Rate(**rate) for rate in found.get("rates", ())),
                    "checks": tuple(RoofCheck(**check) for check in found.get("checks", ())),
                }
            )
            parts: tuple[_Part, ...] = (made, *made.points, *made.hot_points, *made.rates, *made.checks)
            for part in parts:
                _check_fields(part)
        except (AttributeError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        for point in (*made.points, *made.hot_points):
            if not (point.seconds >= _LEAST_SECONDS and point.total_bytes > 0 and point.read_fraction <= 1):
                raise ValueError(f"{point} is no point of a roof")
        return made

    def belongs_to(self, facts: dict[str, Any]) -> bool:
        """True when these were measured on that device, with its present driver."""
        return (self.device, self.device_uuid, self.driver) == (facts["name"], facts["uuid"], facts["driver"])

    @cached_property
    def _curves(self) -> list[_Curve]:
        return sorted(_curves(self.points), key=lambda curve: curve.read_fraction)

    @cached_property
    def _hot_curves(self) -> list[_Curve]:
        return _curves(self.hot_points)

    def ceilings(self) -> tuple[RoofPoint, ...]:
        """Each stream at its largest size, by read fraction."""
        return tuple(curve.measured[-1] for curve in self._curves)

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

    def cache_gb_s(self, total_bytes: int) -> float:
        """The fastest of the streams at this many bytes when they may find them in the cache; NaN where not known.

        Whatever their mix: a cache may move bytes both ways at once, so that no mix between two streams can be told
        from them. And the better of the sizes beside it: a cache's bandwidth has peaks that no straight line meets.
        Below the smallest size its bandwidth, which a smaller transfer does not reach.
        """
        if total_bytes <= 0 or not self._hot_curves:
            return math.nan
        return max(point.gb_s for point in self._hot_around(total_bytes))

    def cache_doubt(self, total_bytes: int) -> str:
        """Why `cache_gb_s` should not be relied on, in words; "" when it may be."""
        return _first_doubt(self._hot_around(total_bytes))

    def _hot_around(self, total_bytes: int) -> list[RoofPoint]:
        return [point for curve in self._hot_curves for point in curve.around(total_bytes)]

    def measured_tflops(self, precision: str) -> float:
        """The best measured arithmetic rate of a precision, TFLOP/s; NaN where there is none."""
        return next((rate.tflops for rate in self.rates if rate.precision == precision), math.nan)

    def doubt(self, bytes_read: int, bytes_written: int) -> str:
        """Why the roofs of this many bytes should not be relied on, in words; "" when they may be."""
        total = bytes_read + bytes_written
        if total <= 0 or not self.points:
            return ""
        mix = self._around(bytes_read / total)
        used = [point for curve in mix for size in (total, None) for point in curve.around(size)]
        return self.unconfirmed or _first_doubt(used)

    def behind(self, bytes_read: int, bytes_written: int, *, hot: bool = False) -> tuple[RoofPoint, ...]:
        """The measured points that `attainable_gb_s`, or `cache_gb_s`, of this many bytes is made of."""
        total = bytes_read + bytes_written
        if total <= 0 or not (self.hot_points if hot else self.points):
            return ()
        if hot:
            return tuple(self._hot_around(total))
        return tuple(point for curve in self._around(bytes_read / total) for point in curve.around(total))

    def beaten(self, points: Collection[RoofPoint], by: float) -> Roofs:
        """These roofs with those of the points that they have marked: a row was faster, by such a fraction."""
        known = {point.measurement for point in points}

        def marked(point: RoofPoint) -> RoofPoint:
            return replace(point, beaten=max(by, point.beaten)) if point.measurement in known else point

        return replace(self, points=tuple(map(marked, self.points)), hot_points=tuple(map(marked, self.hot_points)))

    def _around(self, read_fraction: float) -> list[_Curve]:
        """The one or two curves that a mix lies on or between."""
        curves = self._curves
        at = bisect_left([curve.read_fraction for curve in curves], read_fraction)
        if at == len(curves):
            return curves[-1:]
        if at == 0 or curves[at].read_fraction == read_fraction:
            return curves[at : at + 1]
        return curves[at - 1 : at + 1]

    def _seconds_per_byte(self, read_fraction: float, total_bytes: int | None) -> float:
        mix = self._around(read_fraction)
        at = [curve.seconds_per_byte(total_bytes, self.floor_seconds) for curve in mix]
        if len(mix) == 1:
            return at[0]
        low, high = mix[0].read_fraction, mix[1].read_fraction
        return at[0] + (read_fraction - low) / (high - low) * (at[1] - at[0])


_LEAST_SECONDS = 1e-12  # no stream takes less

# Nothing is known of a spread where there were too few samples: that may be infinite.
_MAY_BE_INFINITE = ("uncertainty", "noise")

_AS_THE_SYSTEM_SAYS = ("device", "device_uuid", "driver", "source", "unconfirmed")

_MOST_BYTES = 2**63 - 1

_Part = Roofs | RoofPoint | Rate | RoofCheck


def _check_fields(part: _Part) -> None:
    """ValueError for a field of another type than it should have, or a number or text that cannot be."""
    for field in fields(part):
        value = getattr(part, field.name)
        right = True
        if field.type == "str":
            right = isinstance(value, str) and (value.isprintable() or field.name in _AS_THE_SYSTEM_SAYS)
        elif field.type == "bool":
            right = isinstance(value, bool)
        elif field.type == "int":
            right = type(value) is int and 0 <= value <= _MOST_BYTES
        elif field.type == "float":
            most = math.inf if field.name in _MAY_BE_INFINITE else sys.float_info.max
            right = type(value) in (int, float) and 0 <= float(value) <= most
        if not right:
            raise ValueError(f"{field.name} is {_short(value)}")


def _short(value: object) -> str:
    """A value's text, cut; of a number with too many digits to be written, what it is."""
    try:
        said = repr(value)
    except ValueError:
        return "a number of too many digits"
    return said if len(said) <= 40 else said[:37] + "..."


def _first_doubt(points: Iterable[RoofPoint]) -> str:
    return next((point.doubt for point in points if point.doubt), "")


class _Curve:
    """One stream over size.

    Between neighbouring sizes time is a latency plus bytes over bandwidth: a straight line. Fewer bytes never need
    more time: where a larger size was measured to be quicker, the smaller ones are held to its time.
    """

    def __init__(self, points: Iterable[RoofPoint]) -> None:
        self.measured = sorted(points, key=lambda point: point.total_bytes)
        self.read_fraction = self.measured[-1].read_fraction
        lowered: list[RoofPoint] = []
        least = math.inf
        for point in reversed(self.measured):
            least = min(least, point.seconds)
            lowered.append(replace(point, seconds=least))
        self._points = lowered[::-1]
        self._sizes = [point.total_bytes for point in self._points]

    def around(self, total_bytes: int | None) -> list[RoofPoint]:
        """The one or two measured points that a size lies on or between; None means the largest."""
        if total_bytes is None:
            return self.measured[-1:]
        at = bisect_left(self._sizes, total_bytes)
        if at == len(self._sizes):
            return self.measured[-1:]
        if at == 0 or self._sizes[at] == total_bytes:
            return self.measured[at : at + 1]
        return self.measured[at - 1 : at + 1]

    def seconds_per_byte(self, total_bytes: int | None, floor_seconds: float) -> float:
        """Seconds per byte at a size; None means the largest. Beyond the largest it stays what it is there."""
        first, last = self._points[0], self._points[-1]
        if total_bytes is None or total_bytes >= last.total_bytes:
            return last.seconds / last.total_bytes
        if total_bytes <= first.total_bytes:
            # Below the smallest size the time shrinks towards that of an empty launch, in proportion to the bytes.
            floor = min(floor_seconds, first.seconds)
            return (floor + (first.seconds - floor) * total_bytes / first.total_bytes) / total_bytes
        for low, high in pairwise(self._points):
            if total_bytes <= high.total_bytes:
                weight = (total_bytes - low.total_bytes) / (high.total_bytes - low.total_bytes)
                return (low.seconds + weight * (high.seconds - low.seconds)) / total_bytes
        raise AssertionError("a size within the curve lies between two of its points")


def _curves(points: Iterable[RoofPoint]) -> list[_Curve]:
    by_stream: dict[str, list[RoofPoint]] = {}
    for point in points:
        by_stream.setdefault(point.stream, []).append(point)
    return [_Curve(found) for found in by_stream.values()]


ROOF_CHOICES = ("auto", "stored")

RoofsArgument = Literal["auto", "stored", False] | Roofs


def check_roofs(given: object) -> RoofsArgument:
    """What rows are held against.

    "auto": the device's roofs, the stored ones where they hold, else measured now and stored; "stored": the stored ones
    as they are, if there are any; False: none; or roofs that one has.

    Raises
    ------
    ValueError
        For another word.
    TypeError
        For anything else.
    """
    if given is False or isinstance(given, Roofs):
        return given
    if not isinstance(given, str):
        raise TypeError(f"roofs is {repr_short(given)}: allowed are 'auto', 'stored', False and a bwprof.Roofs")
    if given not in ROOF_CHOICES:
        raise ValueError(describe_unknown("roofs", given, ROOF_CHOICES))
    return cast("RoofsArgument", given)


def match_roofs(given: Roofs, facts: dict[str, object]) -> Roofs:
    """The roofs, if they are of the device with these facts; else ValueError."""
    if not given.belongs_to(facts):
        raise ValueError(f"these roofs are of {given.device}, the device is {facts['name']}")
    return given
