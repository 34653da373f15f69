"""Roofs as data: measured points, interpolation, doubts; the argument `roofs=`; signs of disturbance."""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, TypeVar, cast

from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import check_known, repr_short

# Limits from which a point is in doubt.
UNCERTAINTY_LIMIT = 0.02  # half the width of the median's 95 % interval, over the median
NOISE_LIMIT = 0.10  # interquartile range over the median
OTHERS_LIMIT = 0.05  # other processes' share of the processor time

T = TypeVar("T")
DEVIATION_LIMIT = 0.03  # two measurements of a point that differ by more contradict each other


@dataclass(frozen=True, slots=True)
class RoofPoint:
    """One stream at one size: `total_bytes` read and written in `seconds`; the result is verified.

    `seconds` is the median of a cold point. It is the fastest sample of a hot point, which is a limit, and of one in
    doubt: disturbances only slow a sample.
    """

    stream: str
    read_fraction: float
    total_bytes: int
    seconds: float
    uncertainty: float = 0.0  # half the width of the median's 95 % confidence interval, over the median
    noise: float = 0.0  # interquartile range over the median
    throttle: str = ""  # why the clock was held down
    disturbance: str = ""  # what else ran on the device
    others_share: float = 0.0  # of a CPU's time that other processes took
    beaten: float = 0.0  # the fraction by which a row was faster than the point allows
    tries: int = 0  # new measurements that were no better

    @property
    def key(self) -> tuple[str, int]:
        """What other measurements of the point share."""
        return self.stream, self.total_bytes

    @property
    def gb_s(self) -> float:
        """Bandwidth in GB/s."""
        return self.total_bytes / self.seconds / 1e9

    @property
    def doubt(self) -> str:
        """Why the point is in doubt; "" when it is not."""
        others = f"{100 * self.others_share:.0f} % of the processors"
        noise = f"noise {100 * self.noise:.0f} %" if self.noise > NOISE_LIMIT else ""
        causes = (
            (self.beaten, f"was beaten by {100 * self.beaten:.0f} %: it was probably measured too low"),
            (self.others_share > OTHERS_LIMIT, f"was measured while other processes took {others}"),
            (self.disturbance, f"was measured while others disturbed it ({self.disturbance})"),
            (self.uncertainty > UNCERTAINTY_LIMIT, f"is known to {100 * self.uncertainty:.0f} % only"),
            (noise, f"was measured while others disturbed it ({noise})"),
            (self.throttle, f"was measured while the clock was held down ({self.throttle})"),
        )
        text = next((text for holds, text in causes if holds), "")
        return text and f"the roof ({self.stream} of {format_bytes(self.total_bytes)}) {text}"


@dataclass(frozen=True, slots=True)
class Rate:
    """The best measured arithmetic rate of a precision: a square matrix product of `size`.

    `tflops` is that of the fastest sample, `noise` the interquartile range over the median.
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
    """A stored point compared with a new measurement; `uncertainty` is that of both, `doubt` that of the new one."""

    stream: str
    total_bytes: int
    stored_gb_s: float
    found_gb_s: float
    uncertainty: float = 0.0
    doubt: str = ""

    @property
    def deviation(self) -> float:
        """The fraction by which it is faster (> 0) or slower now."""
        return self.found_gb_s / self.stored_gb_s - 1.0

    @property
    def too_low(self) -> bool:
        """Whether the stored one is too low; a disturbance does not matter, since it makes no stream faster."""
        return self.deviation > DEVIATION_LIMIT

    @property
    def too_high(self) -> bool:
        """Whether the stored one is too high, by a new measurement without doubt."""
        return self.deviation < -DEVIATION_LIMIT and not self.doubt

    @property
    def unclear(self) -> bool:
        """Whether the new one is slower but in doubt."""
        return self.deviation < -DEVIATION_LIMIT and bool(self.doubt)

    def __str__(self) -> str:
        now = f"{100 * self.deviation:+.1f} % now"
        return f"{self.stream} of {format_bytes(self.total_bytes)}: {self.stored_gb_s:.4g} GB/s stored, {now}"


@dataclass(frozen=True)
class Roofs:
    """Measured roofs of one device: immutable, with `to_dict` and `from_dict` for JSON.

    Attributes
    ----------
    points : tuple of RoofPoint
        Cold streams, the roofs of cold rows.
    hot_points : tuple of RoofPoint
        Streams on one set of buffers, the limit of hot rows; empty where no hot row was measured.
    rates : tuple of Rate
        Best measured arithmetic rates.
    measured : str
        Time of the measurement, UTC, ISO 8601.
    threads : int
        Threads of a CPU; 0 on a GPU.
    source : str
        "measured for this run", or the file of stored roofs.
    complete : bool
        False when a deadline ended the measurement; such roofs are not stored.
    checks : tuple of RoofCheck
        Stored points compared with new measurements.
    unconfirmed : str
        Why the checks are inconclusive; "" otherwise.

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
        """Return plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Roofs:
        """Read what `to_dict` returns; ValueError for any other object."""
        try:
            plain = {"hot_points": (), "rates": (), "checks": (), **found}
            roofs = cls(**plain | {name: tuple(kind(**part) for part in plain[name]) for name, kind in _PARTS.items()})
            for part in (roofs, *roofs.points, *roofs.hot_points, *roofs.rates, *roofs.checks):
                _check_fields(part)
        except (AttributeError, KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        for point in (*roofs.points, *roofs.hot_points):
            if not (point.seconds >= _LEAST_SECONDS and point.total_bytes > 0 and point.read_fraction <= 1):
                raise ValueError(f"{point} is no point of a roof")
        return roofs

    def with_source(self, source: str = "") -> Roofs:
        """Return the roofs with a source and without the checks of a run."""
        return replace(self, source=source, checks=(), unconfirmed="")

    def belongs_to(self, facts: dict[str, Any]) -> bool:
        """Return whether they are roofs of the device with these facts, with its current driver."""
        return (self.device, self.device_uuid, self.driver) == (facts["name"], facts["uuid"], facts["driver"])

    @cached_property
    def _curves(self) -> list[_Curve]:
        return sorted(_curves(self.points), key=lambda curve: curve.read_fraction)

    @cached_property
    def _hot_curves(self) -> list[_Curve]:
        return _curves(self.hot_points)

    def ceilings(self) -> tuple[RoofPoint, ...]:
        """Return each stream at its largest size, by read fraction."""
        return tuple(curve.measured[-1] for curve in self._curves)

    def attainable_gb_s(self, bytes_read: int, bytes_written: int) -> float:
        """Return the GB/s of a cold stream of these bytes; NaN where it is unknown."""
        return self._interpolate(bytes_read, bytes_written, bytes_read + bytes_written)

    def ceiling_gb_s(self, bytes_read: int, bytes_written: int) -> float:
        """Return the GB/s of this mix at the largest size measured; NaN where it is unknown."""
        return self._interpolate(bytes_read, bytes_written, math.inf)

    def cache_gb_s(self, total_bytes: int) -> float:
        """Return the GB/s of the fastest hot stream near this many bytes; NaN where it is unknown.

        The mix is ignored: a cache may move bytes both ways at once, so mixes cannot be interpolated. The better of the
        neighboring sizes counts: a cache's bandwidth has peaks.
        """
        return max((point.gb_s for point in self._hot_around(total_bytes)), default=math.nan)

    def cache_doubt(self, total_bytes: int) -> str:
        """Return why `cache_gb_s` is in doubt; "" when it is not."""
        return _first_doubt(self._hot_around(total_bytes))

    def _hot_around(self, total_bytes: int) -> list[RoofPoint]:
        return [point for curve in self._hot_curves if total_bytes > 0 for point in curve.around(total_bytes)]

    def measured_tflops(self, precision: str) -> float:
        """Return the best measured arithmetic rate of a precision, TFLOP/s; NaN where there is none."""
        return next((rate.tflops for rate in self.rates if rate.precision == precision), math.nan)

    def doubt(self, bytes_read: int, bytes_written: int) -> str:
        """Return why the roofs of these bytes are in doubt; "" when they are not."""
        total = bytes_read + bytes_written
        if total <= 0 or not self.points:
            return ""
        mix = self._around(bytes_read / total)
        used = [point for curve in mix for size in (total, math.inf) for point in curve.around(size)]
        return self.unconfirmed or _first_doubt(used)

    def behind(self, bytes_read: int, bytes_written: int, *, hot: bool = False) -> tuple[RoofPoint, ...]:
        """Return the measured points behind `attainable_gb_s`, or `cache_gb_s`, of these bytes."""
        total = bytes_read + bytes_written
        if hot or total <= 0:
            return tuple(self._hot_around(total)) if hot else ()
        return tuple(point for curve in self._around(bytes_read / total) for point in curve.around(total))

    def beaten(self, points: Collection[RoofPoint], by: float) -> Roofs:
        """Return the roofs with these points in doubt: a row was faster by the fraction `by`."""
        known = {(*point.key, point.seconds) for point in points}  # what no other measurement shares

        def marked(point: RoofPoint) -> RoofPoint:
            return replace(point, beaten=max(by, point.beaten)) if (*point.key, point.seconds) in known else point

        return replace(self, points=tuple(map(marked, self.points)), hot_points=tuple(map(marked, self.hot_points)))

    def _around(self, read_fraction: float) -> list[_Curve]:
        """Return the one or two curves that a mix lies on or between."""
        return _find_neighbors(self._curves, lambda curve: curve.read_fraction, read_fraction)

    def _interpolate(self, bytes_read: int, bytes_written: int, size: float) -> float:
        """Return the GB/s of a mix at a size; inf: the largest. Seconds per byte are linear in the read fraction."""
        total = bytes_read + bytes_written
        if total <= 0 or not self.points:
            return math.nan
        read_fraction = bytes_read / total
        mix = self._around(read_fraction)
        at = [curve.seconds_per_byte(size, self.floor_seconds) for curve in mix]
        if len(mix) == 1:
            return 1e-9 / at[0]
        low, high = mix[0].read_fraction, mix[1].read_fraction
        return 1e-9 / (at[0] + (read_fraction - low) / (high - low) * (at[1] - at[0]))


_LEAST_SECONDS = 1e-12  # no stream takes less
_MAY_BE_INFINITE = ("uncertainty", "noise")  # after too few samples
_FREE_TEXT = ("device", "device_uuid", "driver", "source", "unconfirmed")
_MOST_BYTES = 2**63 - 1
_PARTS: dict[str, Any] = {"points": RoofPoint, "hot_points": RoofPoint, "rates": Rate, "checks": RoofCheck}


def _check_fields(part: Any) -> None:
    """Raise ValueError for a field of a wrong type, and for an impossible number or text."""
    for field in fields(part):
        value = getattr(part, field.name)
        right = True
        if field.type == "str":
            right = isinstance(value, str) and (value.isprintable() or field.name in _FREE_TEXT)
        elif field.type == "bool":
            right = isinstance(value, bool)
        elif field.type == "int":
            right = type(value) is int and 0 <= value <= _MOST_BYTES
        elif field.type == "float":
            most = math.inf if field.name in _MAY_BE_INFINITE else sys.float_info.max
            right = type(value) in (int, float) and 0 <= float(value) <= most
        if not right:
            raise ValueError(f"{field.name} is {repr_short(value)}")


def _first_doubt(points: Iterable[RoofPoint]) -> str:
    return next((point.doubt for point in points if point.doubt), "")


class _Curve:
    """One stream over size.

    Between neighboring sizes, time is linear in the bytes. Fewer bytes never take longer: a smaller size takes at most
    the time of a larger one.
    """

    def __init__(self, points: Iterable[RoofPoint]) -> None:
        self.measured = sorted(points, key=_size_of)
        self.read_fraction = self.measured[-1].read_fraction
        least = [*accumulate((point.seconds for point in reversed(self.measured)), min)][::-1]
        self._points = [replace(point, seconds=time) for point, time in zip(self.measured, least, strict=True)]

    def around(self, total_bytes: float) -> list[RoofPoint]:
        """Return the one or two measured points that a size lies on or between."""
        return _find_neighbors(self.measured, _size_of, total_bytes)

    def seconds_per_byte(self, total_bytes: float, floor_seconds: float) -> float:
        """Return the seconds per byte at a size; above the largest size: those of the largest."""
        near = _find_neighbors(self._points, _size_of, total_bytes)
        low, high = near[0], near[-1]
        if total_bytes >= high.total_bytes:
            return high.seconds / high.total_bytes
        if low is high:
            # Below the smallest size, the time shrinks towards an empty launch, in proportion to the bytes.
            floor = min(floor_seconds, low.seconds)
            return (floor + (low.seconds - floor) * total_bytes / low.total_bytes) / total_bytes
        weight = (total_bytes - low.total_bytes) / (high.total_bytes - low.total_bytes)
        return (low.seconds + weight * (high.seconds - low.seconds)) / total_bytes


def _size_of(point: RoofPoint) -> int:
    return point.total_bytes


def _find_neighbors(items: list[T], key: Callable[[T], float], value: float) -> list[T]:
    """Return the one or two sorted items that a value lies on or between; outside the items the nearest one."""
    at = bisect_left(items, value, key=key)
    if 0 < at < len(items) and key(items[at]) != value:
        return items[at - 1 : at + 1]
    return items[at : at + 1] or items[-1:]


def _curves(points: Iterable[RoofPoint]) -> list[_Curve]:
    by_stream: dict[str, list[RoofPoint]] = {}
    for point in points:
        by_stream.setdefault(point.stream, []).append(point)
    return [_Curve(found) for found in by_stream.values()]


ROOF_CHOICES = ("auto", "stored")
RoofsArgument = Literal["auto", "stored", False] | Roofs


def check_roofs(roofs: object) -> RoofsArgument:
    """Return the argument `roofs=`, checked; TypeError or ValueError for any other value.

    "auto": stored roofs that still hold, else measured now and stored; "stored": stored ones, unchecked, if any; False:
    none; or a `Roofs`.
    """
    if roofs is False or isinstance(roofs, Roofs):
        return roofs
    if not isinstance(roofs, str):
        raise TypeError(f"roofs is {repr_short(roofs)}: allowed are 'auto', 'stored', False and a bwprof.Roofs")
    check_known("roofs", roofs, ROOF_CHOICES)
    return cast("RoofsArgument", roofs)


def match_roofs(roofs: Roofs, facts: dict[str, object]) -> Roofs:
    """Return the roofs if they are of the device with these facts; else raise ValueError."""
    if not roofs.belongs_to(facts):
        raise ValueError(f"these roofs are of {roofs.device}, the device is {facts['name']}")
    return roofs


# Shares of the sampling time, from which limit on they are signs of disturbance, and the signs in words.
_THROTTLED = "throttled_share"
_SIGNS = (
    ("waited_share", 0.02, "threads waited for a CPU {:.0%} of the time"),
    (_THROTTLED, 0.02, "the container's own CPU quota held threads back {:.0%} of the time"),
    ("stolen_share", 0.05, "the hypervisor took the CPUs {:.0%} of the time"),
    ("pressed_share", 0.01, "processes waited for memory {:.0%} of the time"),
)
_MOST_SHARE = 0.99  # larger shares make the ratio infinite
NOISY_SLOWED = 0.10  # undisturbed reference streams differ by about half of that
_SLOWED = "a reference stream beside the samples took {} longer than it can: others use the memory"
_SLOWED_BEFORE = re.compile(_SLOWED.format(r"\S+"))


@dataclass(frozen=True, slots=True)
class References:
    """Times of the reference streams beside a measurement."""

    upper_ns: float  # the upper quartile of its own streams
    best_ns: float  # the lowest median that the device's handle has seen until then
    slowed: float  # the fraction by which its streams are slower than the best
    others: float = 1.0  # the factor by which everything but memory may have prolonged the samples

    @classmethod
    def of(cls, result: Mapping[str, float]) -> References | None:
        """Read the references of a measurement's result; None where it has none."""
        slowed = result["slowed_share"]
        found = cls(result["reference_ns"], result["best_reference_ns"], slowed, _prolonging_factor(result) or 1.0)
        is_throttled = any(name == _THROTTLED for name, _ in _find_signs(result))
        return found if found.best_ns > 0 and slowed < math.inf and not is_throttled else None

    def compare(self, best_ns: float) -> float:
        """Return `slowed` once a stream took `best_ns`."""
        return max(self.slowed, self.upper_ns / best_ns - 1)


def prolonged_pct(result: Mapping[str, float]) -> float | None:
    """Return how much others may have prolonged the launches, in percent; None where it is unknown (a GPU).

    Threads that waited for a CPU half of the time may have taken twice as long. The factors of all shares multiply.
    """
    others, slowed = _prolonging_factor(result), result["slowed_share"]
    if others is None and math.isnan(slowed):
        return None
    return multiply_slowdown(0.0 if math.isnan(slowed) else slowed, others or 1.0)


def multiply_slowdown(slowed: float, others: float) -> float:
    """Return, in percent, what a slowdown of the memory and the factor of all other causes prolong together."""
    return 100 * ((1 + max(slowed, 0.0)) * others - 1)


def _prolonging_factor(result: Mapping[str, float]) -> float | None:
    """Return the factor of all causes but memory; None where none is known."""
    shares = [result.get(name, math.nan) for name, _, _ in _SIGNS]
    known = [min(share, _MOST_SHARE) for share in shares if not math.isnan(share)]
    return 1 / math.prod(1 - share for share in known) if known else None


def describe_disturbances(result: dict[str, Any]) -> list[str]:
    """Return signs, in words, that other processes, other guests or the container's quota slowed the CPUs.

    A quota that holds threads back slows the reference streams as well.
    """
    found = dict(_find_signs(result))
    return [*found.values(), *(() if _THROTTLED in found else describe_slowdown(result["slowed_share"]))]


def _find_signs(result: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the shares above their limits, with the signs; an unknown share is NaN, which is above no limit."""
    return [(name, sign.format(result[name])) for name, least, sign in _SIGNS if result.get(name, 0.0) > least]


def describe_slowdown(share: float) -> list[str]:
    """Return a sentence on reference streams that were slowed by this share; none for an ordinary share."""
    return [_SLOWED.format(f"{share:.0%}")] if share > NOISY_SLOWED else []


def replace_disturbance(reason: str | None, text: str) -> str:
    """Return a row's reason with the sentence of `describe_slowdown` replaced or added."""
    found, count = _SLOWED_BEFORE.subn(text, reason or "")
    return found if count else f"{reason}; {text}" if reason else text
