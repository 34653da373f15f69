"""Measure roofs: bandwidths of streams over size, more of them where curves bend, and the best arithmetic rates."""

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
_PRODUCT_SECONDS = 4e-3  # of a product at the peak rate
_ASSUMED_TFLOPS = 67.0  # where no peak is known


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
    cache: Cache = "cold",
    *,
    budget_seconds: float | None = None,
    deadline: float | None = None,
    poll: Poll = None,
) -> Roofs:
    """Measure cold streams, after the arithmetic rates; or hot streams, which are up to four times the cache.

    Hot streams work on one set of buffers. Every stream gets its largest and smallest size even when the budget is
    short. Streams and sizes that do not fit into memory are left out. After `deadline`, a time.monotonic(), nothing is
    measured, and the roofs are not `complete`. Without both ends of every curve there are no points at all: some would
    stand for mixes that were not measured. `poll` is called between batches; what it raises ends the measurement.
    """
    budget = budget_seconds
    if budget is None:
        budget = float(_core.backend_facts(device.backend)[f"{cache}_streams_s"])
    rates: tuple[Rate, ...] = ()
    complete = cache == "hot" or deadline is None or time.monotonic() + _RATES_SHARE * budget < deadline
    if cache == "cold" and complete:  # else the streams need the time
        rates = measure_rates(device, poll)
        _wait_for_full_clock(device, poll)
    with watch_others(device.backend) as others:
        survey = _Survey(device, cache, budget, watch_deadline(deadline, poll))
        found = survey.points()
    points = tuple(replace(point, others_share=others.share) for point in found)
    roofs = replace(_blank(device), rates=rates, complete=complete and survey.complete)
    return replace(roofs, hot_points=points) if cache == "hot" else replace(roofs, points=points)


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
    order = [count, 0]
    gaps = [(0, count)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle not in (low, high):
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return list(dict.fromkeys(round(smallest * (largest_bytes / smallest) ** (step / count)) for step in order))


class _Survey:
    """Measure the curves of all streams within a time budget."""

    def __init__(self, device: _core.Device, cache: Cache, budget_seconds: float, poll: Poll) -> None:
        self._device, self._cache, self._poll = device, cache, poll
        self._deadline = time.monotonic() + budget_seconds
        self._most_seconds = point_seconds(device.backend, cache)
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
        return tuple(point for curve in self._found.values() for _, point in sorted(curve.items()))

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _limits(self) -> tuple[int, int]:
        cache_bytes = _CACHE_FACTOR * self._device.facts()["cache_bytes"]
        fitting = max(SMALLEST_BYTES, self._device.memory()[0] // 8)
        largest = min(_core.backend_facts(self._device.backend)["largest_stream_bytes"], fitting)
        if self._cache == "hot":
            return SMALLEST_BYTES, max(SMALLEST_BYTES, min(largest, cache_bytes or largest))
        return max(SMALLEST_BYTES, cache_bytes // _MOST_SETS), largest

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
            again = self._measure(name, point.total_bytes, _MENDING * self._most_seconds)
            self._found[name][point.total_bytes] = choose_better(point, again)

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
        seconds = max(min(0.01, self._most_seconds), min(self._most_seconds, share_seconds))
        start = time.monotonic()
        point = self._measure(name, size, seconds)
        spent = time.monotonic() - start
        if point is not None and point.doubt and self._left() > (self._required + 2) * spent:
            point = choose_better(point, self._measure(name, size, _MENDING * seconds))
        if point is not None:
            self._found[name][point.total_bytes] = point
        return point

    def _measure(self, name: str, size: int, seconds: float) -> RoofPoint | None:
        return measure_point(self._device, self._streams[name], size, seconds, cache=self._cache, poll=self._poll)


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
    measured = _measure_case(device, (stream["name"], PRECISION, {param: elements}), cache, seconds, poll)
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
    device: _core.Device, identity: tuple[str, str, dict[str, int]], cache: Cache, seconds: float, poll: Poll
) -> tuple[dict[str, Any], dict[str, int], str] | None:
    """Measure (operation, precision, parameters); return result, cost and variant, or None where the device cannot."""
    operation, precision, params = identity
    what = f"{operation} {precision} {params}"
    try:
        with _core.Case(device, operation, precision, params) as case:
            if not case.memory_needed(cache)["fits"]:
                return None
            result = case.measure(
                cache=cache, max_seconds=seconds, precision_target=_PRECISION_TARGET, verify_budget_s=0.0, poll=poll
            )
            measured = result, case.cost, case.variant
    except (_core.UnsupportedError, _core.UnavailableError, MemoryError) as error:
        _log.info("no roof of %s: %s", what, error)
        return None
    if not result["verified"] or not min(result["median_ns"], result["min_ns"]) > 0:
        _log.warning("no roof of %s: %s", what, result["reason"])
        return None
    return measured


def measure_rates(device: _core.Device, poll: Poll = None) -> tuple[Rate, ...]:
    """Measure the rate of a large square matrix product for each precision of the device, on its default variant."""
    peaks = device.facts()["peak_tflops"]
    slowest = min((peak for peak in peaks.values() if peak > 0), default=_ASSUMED_TFLOPS)
    compute = {precision["name"]: precision["compute"] for precision in _core.precisions()}
    rates = []
    for operation in _core.operations():
        for precision in operation["precisions"] if operation["is_product"] else ():
            if compute[precision] != precision:  # its products are another precision's
                continue
            size = product_size(peaks[precision] if peaks[precision] > 0 else slowest)
            params = {param["name"]: size for param in operation["params"] if param["unit"]}
            # Hot: the cache does not matter to a product of this size, and one set of buffers is made sooner.
            measured = _measure_case(device, (operation["name"], precision, params), "hot", _RATE_SECONDS, poll)
            if measured is not None:
                result, cost, variant = measured
                fastest, median = (cost["flops"] / result[time_ns] / 1e3 for time_ns in ("min_ns", "median_ns"))
                rates.append(Rate(precision, operation["name"], variant, size, fastest, median, result["noise"]))
    return tuple(rates)


def product_size(peak_tflops: float) -> int:
    """Return the largest power of two n whose 2 n^3 FLOP take at most 4 ms at a rate.

    Examples
    --------
    >>> product_size(0.2), product_size(66.9), product_size(989.0)
    (512, 4096, 8192)
    """
    return int(2 ** math.floor(math.log2(peak_tflops * 1e12 * _PRODUCT_SECONDS / 2) / 3))


STATISTICS = Path("/proc/stat")
_LEAST_TICKS = 3  # of the processors' clocks: fewer are within the clocks' resolution

# Words of a processor's line in /proc/stat, in ticks: user, nice, system, then idle and iowait, irq, softirq, steal.
_BUSY = (1, 2, 3, 6, 7, 8)


@dataclass(slots=True)
class Others:
    """`share`: processor time of other processes over all processor time; 0 where unknown."""

    share: float = 0.0


def busy_seconds(text: str, processors: set[int], ticks_per_second: float) -> float | None:
    """Return the seconds that these processors were busy, from the text of /proc/stat; None where it lacks them."""
    names = {f"cpu{number}" for number in processors}
    lines = [words for words in map(str.split, text.splitlines()) if words and words[0] in names]
    try:
        ticks = sum(int(words[column]) for words in lines for column in _BUSY)
    except (IndexError, ValueError):
        return None
    return ticks / ticks_per_second if len(lines) == len(names) else None


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
