"""Measuring roofs: the streams over size, where they bend most closely, and the best arithmetic rates."""

from __future__ import annotations

import heapq
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

from bwprof import _core, hardware
from bwprof.roofs import disturbance
from bwprof.roofs.model import DEVIATION_LIMIT, Rate, RoofPoint, Roofs

_log = logging.getLogger("bwprof.roofs")

Poll = Callable[[], object] | None

Cache = Literal["cold", "hot"]

PRECISION = "fp32"

SMALLEST_BYTES = 64 * 1024

# A launch is cold by rotating over at most about this many buffer sets, past four times the cache; smaller streams
# would need a flush before every sample, which costs more than the curve's lower end is worth.
_MOST_SETS = 1024

_CACHE_FACTOR = 4

_MENDING = 3  # so many times as long, for one in doubt

_PRECISION_TARGET = 0.01

# The first sizes are this factor apart. Between two of them the middle is measured next, and the halves of whichever
# interval the straight line missed by most, until it misses by less than _BEND or the sizes are closer than _CLOSEST.
_STEP = 4.0

_BEND = 0.004

_CLOSEST = 1.04

_RATE_SECONDS = 0.03

_RATES_SHARE = 2.0  # rates are measured first when a deadline is further away than so many of the streams' budgets

_REST_SECONDS = 1.0

_PRODUCT_SECONDS = 8e-3  # a product may take so long at the peak rate ...

_PRODUCT_SIZE = 4096  # ... and has this size where no peak is known


class SurveyTimeoutError(Exception):
    """The deadline is over."""


def watch_deadline(deadline: float | None, poll: Poll) -> Callable[[], None]:
    """`poll` that also raises OutOfTimeError at a deadline, a time.monotonic()."""

    def watch() -> None:
        if poll is not None:
            poll()
        if deadline is not None and time.monotonic() >= deadline:
            raise SurveyTimeoutError

    return watch


def measure(
    device: _core.Device,
    *,
    budget_seconds: float | None = None,
    deadline: float | None = None,
    poll: Poll = None,
) -> Roofs:
    """Measure the arithmetic rates, then the streams, cold, for as long as the budget lasts.

    Every stream gets its largest and its smallest size even when the budget is short. Streams or sizes that do not
    fit into memory are left out; without any the roofs are empty and everything held against them is NaN.

    Parameters
    ----------
    device : bwprof._core.Device
        An open device.
    budget_seconds : float, optional
        For the streams; 6 s on a CPU and 1.9 s on a GPU when left out.
    deadline : float, optional
        A time.monotonic() after which nothing more is measured; the roofs are then not `complete`. When it comes before
        both ends of every stream's curve are there, there are no points: a part of them would stand for mixes that it
        does not know.
    poll : callable, optional
        Called between batches; what it raises ends the measurement.
    """
    budget = budget_seconds if budget_seconds is not None else _core.backend_facts(device.backend)["cold_streams_s"]
    watch = watch_deadline(deadline, poll)
    rates: tuple[Rate, ...] = ()
    complete = deadline is None or time.monotonic() + _RATES_SHARE * budget < deadline
    if complete:  # else the streams need the time more
        rates = measure_rates(device, poll=poll)
        _rest(device, poll)
    with disturbance.watch_others(device.backend) as others:
        survey = _Survey(device, "cold", budget, watch)
        points = survey.points()
    complete = complete and survey.complete
    return replace(_blank(device), points=_beside(points, others), rates=rates, complete=complete)


def measure_hot(
    device: _core.Device,
    *,
    budget_seconds: float | None = None,
    deadline: float | None = None,
    poll: Poll = None,
) -> Roofs:
    """The same for streams on one set of buffers, from sizes within the cache to four times the cache: no other roof.

    The budget is 1.8 s on a CPU and 0.9 s on a GPU when left out; the other arguments are those of `measure`.
    """
    budget = budget_seconds if budget_seconds is not None else _core.backend_facts(device.backend)["hot_streams_s"]
    with disturbance.watch_others(device.backend) as others:
        survey = _Survey(device, "hot", budget, watch_deadline(deadline, poll))
        points = survey.points()
    return replace(_blank(device), hot_points=_beside(points, others), complete=survey.complete)


def _beside(points: tuple[RoofPoint, ...], others: disturbance.Others) -> tuple[RoofPoint, ...]:
    """The points with what other processes took while all of them were measured."""
    return tuple(replace(point, others_share=others.share) for point in points)


def _rest(device: _core.Device, poll: Poll) -> None:
    """Wait until the clock is no longer held down: products at full power would leave that to the streams."""
    deadline = time.monotonic() + _REST_SECONDS
    while time.monotonic() < deadline and device.conditions()["throttle"] not in ("", "none"):
        if poll is not None:
            poll()
        time.sleep(0.02)


def _blank(device: _core.Device) -> Roofs:
    facts = hardware.device_facts(device)
    return Roofs(
        device=facts["name"],
        device_uuid=facts["uuid"],
        driver=facts["driver"],
        bwprof_version=_core.__version__,
        threads=facts["units"] if _core.backend_facts(device.backend)["runs_on_host"] else 0,
        floor_seconds=device.floor_ns() / 1e9,
        points=(),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def list_streams() -> list[dict[str, Any]]:
    """The operations that roofs are made of."""
    return [operation for operation in _core.operations() if operation["is_stream"]]


def coarse_sizes(smallest_bytes: int, largest_bytes: int) -> list[int]:
    """The first sizes to measure, in an order that makes every prefix a useful curve: ends first, then the gaps."""
    smallest = min(smallest_bytes, largest_bytes)
    count = max(1, round(math.log(largest_bytes / smallest, _STEP)))
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


class _Survey:
    """The curves of all streams within a time budget."""

    def __init__(self, device: _core.Device, cache: Cache, budget_seconds: float, poll: Poll) -> None:
        self._device, self._cache, self._poll = device, cache, poll
        self._budget = budget_seconds
        self._deadline = time.monotonic() + budget_seconds
        self._streams = {stream["name"]: stream for stream in list_streams()}
        self._found: dict[str, dict[int, RoofPoint]] = {name: {} for name in self._streams}
        self._owed = 0  # points that are still to come whatever the time
        self.complete = True

    def points(self) -> tuple[RoofPoint, ...]:
        """Measure; without both ends of every curve there are none."""
        try:
            self._coarse()
            self._mend()
            self._refine()
        except SurveyTimeoutError:
            self.complete = False
            if self._owed:
                _log.warning("no time for the roofs: rows are not held against any")
                return ()
        found = tuple(point for curve in self._found.values() for _, point in sorted(curve.items()))
        spent = self._budget - self._left()
        _log.debug("%d %s roof points in %.2f s", len(found), self._cache, spent)
        return found

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _limits(self) -> tuple[int, int]:
        facts = self._device.facts()
        fitting = max(SMALLEST_BYTES, self._device.memory()[0] // 8)
        largest = min(_core.backend_facts(self._device.backend)["largest_stream_bytes"], fitting)
        if self._cache == "hot":
            cache_bytes = _CACHE_FACTOR * facts["cache_bytes"] or largest
            return SMALLEST_BYTES, max(SMALLEST_BYTES, min(largest, cache_bytes))
        return max(SMALLEST_BYTES, _CACHE_FACTOR * facts["cache_bytes"] // _MOST_SETS), largest

    def _coarse(self) -> None:
        plan = [(name, size) for size in coarse_sizes(*self._limits()) for name in self._streams]
        for number, (name, size) in enumerate(plan):
            self._owed = max(0, 2 * len(self._streams) - number)
            if self._left() <= 0 and not self._owed:
                return
            if self._poll is not None:
                self._poll()
            self._take(name, size, self._left() / (len(plan) - number) / 3)
        self._owed = 0

    def _mend(self) -> None:
        """Points in doubt once more: a few good ones are worth more than many that nobody should rely on."""
        doubted = [(name, point) for name, curve in self._found.items() for point in curve.values() if point.doubt]
        for name, point in sorted(doubted, key=lambda found: -found[1].total_bytes):
            if self._left() <= 0:
                return
            self._found[name][point.total_bytes] = self._longer(name, point, point.total_bytes, self._point_seconds())

    def _refine(self) -> None:
        """The middle of every interval, worst first; 1 stands for not yet known."""
        todo = [
            (-1.0, -high / low, name, low, high)
            for name, curve in self._found.items()
            for low, high in pairwise(sorted(curve))
        ]
        heapq.heapify(todo)
        while todo and self._left() > 0:
            _, _, name, low, high = heapq.heappop(todo)
            if high < low * _CLOSEST:
                continue
            middle = self._take(name, round(math.sqrt(low * high)), self._left() / 4)
            if middle is None or not low < middle.total_bytes < high:
                continue
            at_low, at_high = self._found[name][low], self._found[name][high]
            weight = (middle.total_bytes - low) / (high - low)
            missed = abs(at_low.seconds + weight * (at_high.seconds - at_low.seconds) - middle.seconds) / middle.seconds
            if missed < _BEND:
                continue
            # A smooth curve's halves are missed by a quarter as much, a step by just as much: something between.
            for part in ((low, middle.total_bytes), (middle.total_bytes, high)):
                heapq.heappush(todo, (-missed / 2, -part[1] / part[0], name, *part))

    def _take(self, name: str, size: int, share_seconds: float) -> RoofPoint | None:
        """One point; one that is in doubt gets a second, longer try while there is time."""
        most = self._point_seconds()
        seconds = max(min(0.01, most), min(most, share_seconds))
        begun = time.monotonic()
        point = measure_point(self._device, self._streams[name], size, seconds, cache=self._cache, poll=self._poll)
        spent = time.monotonic() - begun
        if point is not None and point.doubt and self._left() > (self._owed + 2) * spent:
            point = self._longer(name, point, size, seconds)
        if point is not None:
            self._found[name][point.total_bytes] = point
        return point

    def _longer(self, name: str, point: RoofPoint, size: int, seconds: float) -> RoofPoint:
        """A point in doubt, or a better one of a longer try."""
        again = measure_point(
            self._device, self._streams[name], size, _MENDING * seconds, cache=self._cache, poll=self._poll
        )
        return choose_better(point, again)

    def _point_seconds(self) -> float:
        return point_seconds(self._device.backend, self._cache)


def point_seconds(backend: str, cache: Cache) -> float:
    """How long a point is sampled at most."""
    return float(_core.backend_facts(backend)[f"{cache}_point_s"])


def choose_better(one: RoofPoint, other: RoofPoint | None) -> RoofPoint:
    """The quicker of two measurements of a point: nothing makes a stream too quick. One without doubt may be slower by
    as much as two measurements may differ.
    """
    if other is None:
        return one
    quick, slow = sorted((one, other), key=lambda point: point.seconds)
    near = slow.seconds <= quick.seconds * (1 + DEVIATION_LIMIT)
    return slow if near and quick.doubt and not slow.doubt else quick


def measure_point(
    device: _core.Device,
    stream: dict[str, Any],
    total_bytes: int,
    seconds: float,
    *,
    cache: Cache = "cold",
    poll: Poll = None,
) -> RoofPoint | None:
    """A stream whose operands together have about `total_bytes`; None when it cannot be measured."""
    (param,) = (param["name"] for param in stream["params"])
    per_element = _core.cost(stream["name"], PRECISION, {param: 1024})
    moved = per_element["bytes_read"] + per_element["bytes_written"]
    elements = max(1, round(total_bytes * 1024 / moved))
    with _left_out(f"roof {stream['name']} at {total_bytes} bytes"):
        with _core.Case(device, stream["name"], PRECISION, {param: elements}) as case:
            if not case.memory_needed(cache)["fits"]:
                return None
            result = case.measure(
                cache=cache, max_seconds=seconds, precision_target=_PRECISION_TARGET, verify_budget_s=0.0, poll=poll
            )
            cost = case.cost
        if not result["verified"] or not result["median_ns"] > 0:
            _log.warning("roof %s at %d bytes left out: %s", stream["name"], total_bytes, result["reason"])
            return None
        total = cost["bytes_read"] + cost["bytes_written"]
        point = RoofPoint(
            stream=stream["name"],
            read_fraction=cost["bytes_read"] / total,
            total_bytes=total,
            seconds=result["median_ns"] / 1e9,
            uncertainty=_uncertainty(result),
            noise=result["noise"],
            throttle=result["conditions"]["throttle"].replace("none", ""),
            disturbance="; ".join(disturbance.describe_disturbances(result)),
        )
        return replace(point, seconds=result["min_ns"] / 1e9) if cache == "hot" or point.doubt else point
    return None


def _uncertainty(result: dict[str, Any]) -> float:
    median = result["median_ns"]
    widest: float = max(result["hi_ns"] - median, median - result["lo_ns"]) / median
    return min(widest, 1.0)  # too few samples give an infinite interval, which JSON does not have


@contextmanager
def _left_out(what: str) -> Iterator[None]:
    """What this device cannot measure, or has no memory for, is left out, not an error."""
    try:
        yield
    except (_core.UnsupportedError, _core.UnavailableError, MemoryError) as error:
        _log.info("%s left out: %s", what, error)


def measure_rates(device: _core.Device, *, poll: Poll = None) -> tuple[Rate, ...]:
    """The best rate of a large square matrix product, per precision that the device has.

    The operation is the registry's product on the device's own choice of variant (a library where there is one). Its
    size is the largest power of two whose product takes at most 8 ms at the peak rate.
    """
    peaks = device.facts()["peak_tflops"]
    compute = {known["name"]: known["compute"] for known in _core.precisions()}
    found = []
    for operation in _core.operations():
        if not operation["is_product"]:
            continue
        for precision in operation["precisions"]:
            if compute[precision] != precision:  # its products are another precision's
                continue
            rate = _measure_rate(device, operation, precision, peaks.get(precision, math.nan), poll)
            if rate is not None:
                found.append(rate)
    return tuple(found)


def product_size(peak_tflops: float) -> int:
    """The largest power of two n whose 2 n^3 FLOP take at most 8 ms at a rate; 4096 where that is unknown.

    Examples
    --------
    >>> product_size(0.2), product_size(66.9), product_size(989.0)
    (512, 4096, 8192)
    """
    if not peak_tflops > 0:
        return _PRODUCT_SIZE
    return int(2 ** math.floor(math.log2(peak_tflops * 1e12 * _PRODUCT_SECONDS / 2) / 3))


def _measure_rate(
    device: _core.Device, operation: dict[str, Any], precision: str, peak_tflops: float, poll: Poll
) -> Rate | None:
    size = product_size(peak_tflops)
    params = {param["name"]: size for param in operation["params"] if param["unit"]}
    with _left_out(f"{precision} rate"):
        with _core.Case(device, operation["name"], precision, params) as case:
            if not case.memory_needed("hot")["fits"]:
                return None
            # Hot: a product this large is no matter of where its operands are, and one set is made in less time.
            result = case.measure(
                cache="hot",
                max_seconds=_RATE_SECONDS,
                precision_target=_PRECISION_TARGET,
                verify_budget_s=0.0,
                poll=poll,
            )
            flops, variant = case.cost["flops"], case.variant
        if not result["verified"] or not result["min_ns"] > 0:
            _log.warning("%s rate left out: %s", precision, result["reason"])
            return None
        return Rate(
            precision=precision,
            operation=operation["name"],
            variant=variant,
            size=size,
            tflops=flops / result["min_ns"] / 1e3,
            median_tflops=flops / result["median_ns"] / 1e3,
            noise=result["noise"],
        )
    return None
