"""Measure roofs: bandwidths of streams over size, with more sizes where they bend, and the best arithmetic rates."""

from __future__ import annotations

import heapq
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from bwprof import _core, hardware
from bwprof.roofs.model import DEVIATION_LIMIT, Rate, RoofPoint, Roofs, describe_disturbances

_log = logging.getLogger("bwprof.roofs")
Poll = Callable[[], object] | None
Cache = Literal["cold", "hot"]
PRECISION = "fp32"
SMALLEST_BYTES = 64 * 1024

# A cold launch rotates over at most about this many buffer sets, past four times the cache; smaller streams would need
# a flush before every sample, which takes too long.
_MOST_SETS = 1024
_CACHE_FACTOR = 4
_MENDING = 3  # a point in doubt is sampled so many times as long
_PRECISION_TARGET = 0.01

# The first sizes are this factor apart. Then the middle of the interval with the largest error of linear interpolation
# is measured, until the error is below _BEND or the sizes are closer than _CLOSEST.
_STEP = 4.0
_BEND = 0.004
_CLOSEST = 1.04
_RATE_SECONDS = 0.03
_RATES_SHARE = 2.0  # rates are measured if the deadline leaves so many of the streams' budgets
_REST_SECONDS = 1.0
_PRODUCT_SECONDS = 8e-3  # of a product at the peak rate
_PRODUCT_SIZE = 4096  # where no peak is known


class SurveyTimeoutError(Exception):
    """The deadline is over."""


def watch_deadline(deadline: float | None, poll: Poll) -> Callable[[], None]:
    """Return `poll` with a SurveyTimeoutError at the deadline, a time.monotonic()."""

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
    """Measure the arithmetic rates, then the cold streams, for as long as the budget lasts.

    Every stream gets its largest and smallest size even when the budget is short. Streams and sizes that do not fit
    into memory are left out.

    Parameters
    ----------
    device : bwprof._core.Device
        An open device.
    budget_seconds : float, optional
        For the streams. Default: 6 s on a CPU, 1.9 s on a GPU.
    deadline : float, optional
        A time.monotonic() after which nothing is measured; the roofs are then not `complete`. Without both ends of
        every curve there are no points at all: some would stand for mixes that were not measured.
    poll : callable, optional
        Called between batches; what it raises ends the measurement.
    """
    budget = _budget(device, "cold", budget_seconds)
    rates: tuple[Rate, ...] = ()
    complete = deadline is None or time.monotonic() + _RATES_SHARE * budget < deadline
    if complete:  # else the streams need the time
        rates = measure_rates(device, poll=poll)
        _wait_for_full_clock(device, poll)
    points, all_points = _measure_streams(device, "cold", budget, deadline, poll)
    return replace(_blank(device), points=points, rates=rates, complete=complete and all_points)


def measure_hot(
    device: _core.Device,
    *,
    budget_seconds: float | None = None,
    deadline: float | None = None,
    poll: Poll = None,
) -> Roofs:
    """Measure streams on one set of buffers, up to four times the cache; arguments as for `measure`.

    The default budget is 1.8 s on a CPU and 0.9 s on a GPU.
    """
    points, complete = _measure_streams(device, "hot", _budget(device, "hot", budget_seconds), deadline, poll)
    return replace(_blank(device), hot_points=points, complete=complete)


def _budget(device: _core.Device, cache: Cache, seconds: float | None) -> float:
    return float(_core.backend_facts(device.backend)[f"{cache}_streams_s"]) if seconds is None else seconds


def _measure_streams(
    device: _core.Device, cache: Cache, budget: float, deadline: float | None, poll: Poll
) -> tuple[tuple[RoofPoint, ...], bool]:
    """Return the points, with the share of other processes, and whether the survey is complete."""
    with watch_others(device.backend) as others:
        survey = _Survey(device, cache, budget, watch_deadline(deadline, poll))
        points = survey.points()
    return tuple(replace(point, others_share=others.share) for point in points), survey.complete


def _wait_for_full_clock(device: _core.Device, poll: Poll) -> None:
    """Wait, for a while, until the clock is no longer held down: products at full power may have heated the device."""
    deadline = time.monotonic() + _REST_SECONDS
    while time.monotonic() < deadline and device.conditions()["throttle"] not in ("", "none"):
        if poll is not None:
            poll()
        time.sleep(0.02)


def _blank(device: _core.Device) -> Roofs:
    facts = hardware.facts(device)
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
    """Return the operations that roofs are made of."""
    return [operation for operation in _core.operations() if operation["is_stream"]]


def coarse_sizes(smallest_bytes: int, largest_bytes: int) -> list[int]:
    """Return the first sizes, ordered so that every prefix is a useful curve: the ends, then middles of gaps."""
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
    """Measure the curves of all streams within a time budget."""

    def __init__(self, device: _core.Device, cache: Cache, budget_seconds: float, poll: Poll) -> None:
        self._device, self._cache, self._poll = device, cache, poll
        self._budget = budget_seconds
        self._deadline = time.monotonic() + budget_seconds
        self._streams = {stream["name"]: stream for stream in list_streams()}
        self._found: dict[str, dict[int, RoofPoint]] = {name: {} for name in self._streams}
        self._required = 0  # points that are still measured whatever the time
        self.complete = True

    def points(self) -> tuple[RoofPoint, ...]:
        """Measure and return the points; none without both ends of every curve."""
        try:
            self._coarse()
            self._mend()
            self._refine()
        except SurveyTimeoutError:
            self.complete = False
            if self._required:
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
            self._required = max(0, 2 * len(self._streams) - number)
            if self._left() <= 0 and not self._required:
                return
            if self._poll is not None:
                self._poll()
            self._take(name, size, self._left() / (len(plan) - number) / 3)
        self._required = 0

    def _mend(self) -> None:
        """Measure points in doubt once more, the largest first."""
        doubted = [(name, point) for name, curve in self._found.items() for point in curve.values() if point.doubt]
        for name, point in sorted(doubted, key=lambda found: -found[1].total_bytes):
            if self._left() <= 0:
                return
            self._found[name][point.total_bytes] = self._longer(name, point, point.total_bytes, self._point_seconds())

    def _refine(self) -> None:
        """Measure the middles of intervals, the largest error first; 1 stands for an unknown error."""
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
            error = abs(at_low.seconds + weight * (at_high.seconds - at_low.seconds) - middle.seconds) / middle.seconds
            if error < _BEND:
                continue
            # The halves of a smooth curve have a quarter of the error, those of a step all of it: half is in between.
            for part in ((low, middle.total_bytes), (middle.total_bytes, high)):
                heapq.heappush(todo, (-error / 2, -part[1] / part[0], name, *part))

    def _take(self, name: str, size: int, share_seconds: float) -> RoofPoint | None:
        """Measure a point; one in doubt is measured longer while there is time."""
        most = self._point_seconds()
        seconds = max(min(0.01, most), min(most, share_seconds))
        start = time.monotonic()
        point = measure_point(self._device, self._streams[name], size, seconds, cache=self._cache, poll=self._poll)
        spent = time.monotonic() - start
        if point is not None and point.doubt and self._left() > (self._required + 2) * spent:
            point = self._longer(name, point, size, seconds)
        if point is not None:
            self._found[name][point.total_bytes] = point
        return point

    def _longer(self, name: str, point: RoofPoint, size: int, seconds: float) -> RoofPoint:
        """Measure a point in doubt for longer; return the better of both."""
        again = measure_point(
            self._device, self._streams[name], size, _MENDING * seconds, cache=self._cache, poll=self._poll
        )
        return choose_better(point, again)

    def _point_seconds(self) -> float:
        return point_seconds(self._device.backend, self._cache)


def point_seconds(backend: str, cache: Cache) -> float:
    """Return the most seconds of sampling of a point."""
    return float(_core.backend_facts(backend)[f"{cache}_point_s"])


def choose_better(one: RoofPoint, other: RoofPoint | None) -> RoofPoint:
    """Return the faster of two measurements of a point, since nothing makes a stream too fast.

    One without doubt may be slower by as much as two measurements may differ.
    """
    if other is None:
        return one
    fast, slow = sorted((one, other), key=lambda point: point.seconds)
    near = slow.seconds <= fast.seconds * (1 + DEVIATION_LIMIT)
    return slow if near and fast.doubt and not slow.doubt else fast


def measure_point(
    device: _core.Device,
    stream: dict[str, Any],
    total_bytes: int,
    seconds: float,
    *,
    cache: Cache = "cold",
    poll: Poll = None,
) -> RoofPoint | None:
    """Measure a stream whose operands together have about `total_bytes`; None when it cannot be measured."""
    (param,) = (param["name"] for param in stream["params"])
    unit = _core.cost(stream["name"], PRECISION, {param: 1024})
    elements = max(1, round(total_bytes * 1024 / (unit["bytes_read"] + unit["bytes_written"])))
    what = f"roof {stream['name']} at {total_bytes} bytes"
    measured = _measure_case(device, stream["name"], PRECISION, {param: elements}, cache, seconds, what, poll)
    if measured is None:
        return None
    result, cost, _ = measured
    total = cost["bytes_read"] + cost["bytes_written"]
    median = result["median_ns"]
    uncertainty = max(result["hi_ns"] - median, median - result["lo_ns"]) / median
    point = RoofPoint(
        stream=stream["name"],
        read_fraction=cost["bytes_read"] / total,
        total_bytes=total,
        seconds=median / 1e9,
        uncertainty=min(uncertainty, 1.0),  # too few samples have an infinite interval, which JSON lacks
        noise=result["noise"],
        throttle=result["conditions"]["throttle"].replace("none", ""),
        disturbance="; ".join(describe_disturbances(result)),
    )
    return replace(point, seconds=result["min_ns"] / 1e9) if cache == "hot" or point.doubt else point


def _measure_case(
    device: _core.Device,
    operation: str,
    precision: str,
    params: dict[str, int],
    cache: Cache,
    seconds: float,
    what: str,
    poll: Poll,
) -> tuple[dict[str, Any], dict[str, int], str] | None:
    """Measure a case; return result, cost and variant, or None, logged, where the device cannot."""
    try:
        with _core.Case(device, operation, precision, params) as case:
            if not case.memory_needed(cache)["fits"]:
                return None
            result = case.measure(
                cache=cache, max_seconds=seconds, precision_target=_PRECISION_TARGET, verify_budget_s=0.0, poll=poll
            )
            measured = result, case.cost, case.variant
    except (_core.UnsupportedError, _core.UnavailableError, MemoryError) as error:
        _log.info("%s left out: %s", what, error)
        return None
    if not result["verified"] or not min(result["median_ns"], result["min_ns"]) > 0:
        _log.warning("%s left out: %s", what, result["reason"])
        return None
    return measured


def measure_rates(device: _core.Device, *, poll: Poll = None) -> tuple[Rate, ...]:
    """Measure the rate of a large square matrix product for each precision of the device, on its default variant."""
    peaks = device.facts()["peak_tflops"]
    compute = {precision["name"]: precision["compute"] for precision in _core.precisions()}
    rates = [
        _measure_rate(device, operation, precision, peaks.get(precision, math.nan), poll)
        for operation in _core.operations()
        if operation["is_product"]
        for precision in operation["precisions"]
        if compute[precision] == precision  # else its products are another precision's
    ]
    return tuple(rate for rate in rates if rate is not None)


def product_size(peak_tflops: float) -> int:
    """Return the largest power of two n whose 2 n^3 FLOP take at most 8 ms at a rate; 4096 where it is unknown.

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
    # Hot: the cache does not matter to a product of this size, and one set of buffers is made sooner.
    measured = _measure_case(
        device, operation["name"], precision, params, "hot", _RATE_SECONDS, f"{precision} rate", poll
    )
    if measured is None:
        return None
    result, cost, variant = measured
    return Rate(
        precision=precision,
        operation=operation["name"],
        variant=variant,
        size=size,
        tflops=cost["flops"] / result["min_ns"] / 1e3,
        median_tflops=cost["flops"] / result["median_ns"] / 1e3,
        noise=result["noise"],
    )


STATISTICS = Path("/proc/stat")
_LEAST_TICKS = 3  # of the processors' clocks: fewer are within the clocks' resolution

# Columns of a processor's line in /proc/stat, in ticks: user, nice, system, then idle and iowait, irq, softirq, steal.
_BUSY = (0, 1, 2, 5, 6, 7)


@dataclass(slots=True)
class Others:
    """`share`: processor time of other processes over all processor time; 0 where unknown."""

    share: float = 0.0


def busy_seconds(text: str, processors: set[int], ticks_per_second: float) -> float | None:
    """Return the seconds that these processors were busy, from the text of /proc/stat; None where it lacks them."""
    names = {f"cpu{number}" for number in processors}
    total, seen = 0, 0
    for line in text.splitlines():
        name, *numbers = line.split()
        if name not in names:
            continue
        if len(numbers) <= max(_BUSY) or not all(number.isdigit() for number in numbers):
            return None
        total += sum(int(numbers[column]) for column in _BUSY)
        seen += 1
    return total / ticks_per_second if seen == len(names) else None


@contextmanager
def watch_others(backend: str) -> Iterator[Others]:
    """Yield an `Others`, filled at the end of the block; on a GPU it stays 0: the host's processes do not slow it."""
    others = Others()
    if not _core.backend_facts(backend)["runs_on_host"]:
        yield others
        return
    processors = os.sched_getaffinity(0)
    begun = _read_clocks(processors)
    yield others
    ended = _read_clocks(processors)
    if begun is None or ended is None:
        return
    wall, busy, own = (end - begin for begin, end in zip(begun, ended, strict=True))
    if wall > 0 and busy - own >= _LEAST_TICKS / os.sysconf("SC_CLK_TCK"):
        others.share = (busy - own) / (wall * len(processors))


def _read_clocks(processors: set[int]) -> tuple[float, float, float] | None:
    """Return wall, busy and this process's own seconds; None where the system has no counters."""
    try:
        busy = busy_seconds(STATISTICS.read_text(), processors, os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError):
        return None
    return None if busy is None else (time.monotonic(), busy, time.process_time())
