"""Obtain a device's roofs for a run: stored ones that still hold, else new ones."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bwprof import _core, hardware
from bwprof.roofs import store, survey
from bwprof.roofs.model import DEVIATION_LIMIT, RoofCheck, RoofPoint, Roofs

_log = logging.getLogger("bwprof.roofs")
NEW = "measured for this run"

# Points of stored roofs that are measured before use: (read fraction of the nearest stream, height between its smallest
# size, 0, and its largest, 1, on a logarithmic scale, seconds). Several, since mixes and sizes change independently. No
# small sizes on a GPU: in some processes each launch takes 0.18 us more.
_HOST_PROBES = ((0.5, 1.0, 0.12), (1.0, 0.6, 0.06), (0.0, 0.25, 0.06))
_PROBES = ((0.5, 1.0, 0.01), (1.0, 0.75, 0.01), (0.0, 0.6, 0.01))
_LOOKS = 3  # measurements of a point at most; one that differs is measured twice at least
_LONGER = 3  # later measurements take so many times as long
_LOOK_SECONDS = 1.0  # no third measurement after that
_UNCONFIRMED = "the stored roofs could not be confirmed"
_MEND_SECONDS = 0.5  # for stored points in doubt
Poll = Callable[[], object] | None
_Pair = tuple[RoofPoint, RoofPoint]  # a stored point and a new measurement of it
_Points = tuple[RoofPoint, ...]


@dataclass(frozen=True, slots=True)
class RoofRequest:
    """The roofs that a run needs: for cold rows, for hot rows; new ones in any case, or stored ones unchecked."""

    cold: bool = True
    hot: bool = False
    recalibrate: bool = False
    stored: bool = False


def obtain(
    device: _core.Device, request: RoofRequest | None = None, *, deadline: float | None = None, poll: Poll = None
) -> Roofs | None:
    """Return the roofs for a run's rows; None when there was no time for any.

    Stored roofs are used for the same device, driver, version and settings, if a few of their points, measured again,
    are within 3 % (the result's `checks`; none where there was no time). A measured rate is a lower bound, which
    disturbances only lower. If a point is faster now, its new rate is stored at once, all other points are in doubt,
    and all are measured again. If one is slower without a disturbance, all are measured again. If one is slower and the
    machine is busy, the stored roofs stay, and `unconfirmed` says so.

    Points in doubt are stored as such. The next use measures them again for half a second and replaces them by better
    ones. A new point in doubt replaces a stored one without doubt only if it is faster by 3 %.

    After `deadline`, a time.monotonic(), nothing is measured; incomplete roofs are not stored. `poll` is called between
    batches; what it raises ends the measurement.
    """
    request = request or RoofRequest()
    job = _Job(device, store.identity(device.backend, hardware.facts(device)), deadline, poll)
    stored = store.load(job.identity)
    if request.stored:
        return stored
    found = None if request.recalibrate else stored
    if request.cold:
        if found is not None and found.points:
            found = job.check(found)
        else:
            found = replace(job.measure_new("cold"), hot_points=found.hot_points if found else ())
    if request.hot:
        found = job.add_hot(found)
    if found is None:
        return None
    _store_roofs(job.identity, found)
    return found if found.points or found.hot_points else None


def mark_beaten(
    backend: str, facts: dict[str, Any], roofs: Roofs, moved: tuple[int, int], by: float, *, hot: bool = False
) -> Roofs:
    """Put the roof points of a row in doubt that it beat by the fraction `by`; return the roofs.

    `moved` are the row's bytes read and written. The points are also in doubt in the file, so that the next run
    measures them again.
    """
    points = roofs.behind(*moved, hot=hot)
    identity = store.identity(backend, facts)
    stored = store.load(identity)
    if stored is not None and (marked := stored.beaten(points, by)) != stored:
        store.save(identity, marked.with_source())
    return roofs.beaten(points, by)


def _store_roofs(identity: store.Identity, found: Roofs) -> None:
    """Store the roofs; of new ones in doubt only the points that are better than the stored ones."""
    stored = store.load(identity)
    plain = found.with_source()
    if not found.complete or (stored is not None and plain == stored.with_source()):
        return
    doubt = _mostly_doubted(found.points) if found.source == NEW else ""
    if doubt and stored is not None and stored.points and not _mostly_doubted(stored.points):
        pairs = _pairs(found.points, stored.points)
        if not any(_check_of(*pair).too_low for pair in pairs):
            _log.warning("the new roofs are not stored: most of them are in doubt, unlike the stored ones: %s", doubt)
            return
        plain = replace(plain, points=_merge(found.points, _raise_points(stored, pairs).points))
    if doubt:
        _log.warning("most of the new roofs are in doubt, and are measured again at the next use: %s", doubt)
    store.save(identity, plain)


@dataclass(frozen=True, slots=True)
class _Job:
    """Measurements on a device until a deadline, beside what is stored under its identity."""

    device: _core.Device
    identity: store.Identity
    deadline: float | None
    poll: Poll

    def measure_new(self, cache: survey.Cache) -> Roofs:
        """Measure new roofs."""
        return replace(survey.measure(self.device, cache, deadline=self.deadline, poll=self.poll), source=NEW)

    def check(self, stored: Roofs) -> Roofs:
        """Return the stored roofs, checked and mended, or new ones."""
        try:
            looks = self._look(stored)
        except survey.SurveyTimeoutError:
            return stored  # nothing speaks against them
        checks = tuple(_check_of(*look) for look in looks)
        wrong = next((check for check in checks if check.too_low or check.too_high), None)
        doubtful = _mostly_doubted(stored.points) and not any(check.doubt for check in checks)
        if wrong or not checks or doubtful:
            return self._replace(stored, looks, wrong)
        if unclear := next((check for check in checks if check.unclear), None):
            stored = replace(stored, unconfirmed=f"{_UNCONFIRMED} ({unclear}): {unclear.doubt}")
            _log.warning("%s", stored.unconfirmed)
        return replace(stored, checks=checks, points=self._mend(stored.points, "cold"))

    def _look(self, stored: Roofs) -> list[_Pair]:
        """Return a few stored points with new measurements, until one is certainly wrong."""
        end = time.monotonic() + _LOOK_SECONDS
        looks = []
        for point, seconds in _probes(stored.points, self.device.backend):
            now = self._remeasure(point, seconds, end)
            if now is not None:
                looks.append((point, now))
                check = _check_of(point, now)
                if check.too_low or check.too_high:
                    break
        return looks

    def _remeasure(self, point: RoofPoint, seconds: float, end: float) -> RoofPoint | None:
        """Return the best new measurement of a stored point; None when it cannot be measured."""
        best = self._measure(point, "cold", seconds)
        for look in range(1, _LOOKS):
            if best is None or abs(_check_of(point, best).deviation) <= DEVIATION_LIMIT:
                break
            if look > 1 and (not best.doubt or time.monotonic() > end):
                break
            best = survey.choose_better(best, self._measure(point, "cold", _LONGER * seconds))
        return best

    def _measure(self, point: RoofPoint, cache: survey.Cache, seconds: float) -> RoofPoint | None:
        stream = next((stream for stream in survey.list_streams() if stream["name"] == point.stream), None)
        if stream is None:
            return None
        watch = survey.watch_deadline(self.deadline, self.poll)
        with survey.watch_others(self.device.backend) as others:
            found = survey.measure_point(self.device, stream, point.total_bytes, seconds, cache=cache, poll=watch)
        return None if found is None else replace(found, others_share=others.share)

    def _replace(self, stored: Roofs, looks: Sequence[_Pair], wrong: RoofCheck | None) -> Roofs:
        """Measure new roofs in place of the stored ones; return what is best of both."""
        before, too_low = stored.points, wrong is not None and wrong.too_low
        if too_low:  # at once: however this run ends, the old points are not used again
            stored = _raise_points(stored, looks)
            store.save(self.identity, stored.with_source())
        why = str(wrong or "most of them are in doubt")
        _log.warning("the roofs of %s no longer hold (%s): measuring them again", stored.measured or "before", why)
        new = self.measure_new("cold")
        if too_low and not new.points:
            return stored
        if too_low or not wrong:
            pairs = _pairs(new.points, before)
            mostly_low = too_low and 2 * sum(now.seconds < point.seconds for point, now in pairs) > len(pairs)
            return replace(new, points=_merge(new.points, [now for _, now in looks] if mostly_low else stored.points))
        doubt = _mostly_doubted(new.points)
        if not doubt or _doubted_share(new.points) <= _doubted_share(stored.points):
            return new
        checks = tuple(_check_of(*look) for look in looks)
        return replace(stored, checks=checks, unconfirmed=f"{_UNCONFIRMED} ({why}): {doubt}")

    def _mend(self, points: _Points, cache: survey.Cache) -> _Points:
        """Measure points in doubt again, for half a second; the least tried first, then the largest."""
        end = time.monotonic() + _MEND_SECONDS
        seconds = _LONGER * survey.point_seconds(self.device.backend, cache)
        mended = list(points)
        doubted = [index for index, point in enumerate(points) if point.doubt]
        for index in sorted(doubted, key=lambda index: (points[index].tries, -points[index].total_bytes)):
            if time.monotonic() >= end:
                break
            try:
                best = _choose_point(points[index], self._measure(points[index], cache, seconds))
            except survey.SurveyTimeoutError:
                break
            mended[index] = replace(best, tries=points[index].tries + 1) if best.doubt else best
        return tuple(mended)

    def add_hot(self, found: Roofs | None) -> Roofs:
        """Add the roofs of the cache: stored ones, mended, or new ones where there are none or most are in doubt."""
        if found is not None and found.hot_points:
            found = replace(found, hot_points=self._mend(found.hot_points, "hot"))
            if not _mostly_doubted(found.hot_points):
                return found
        new = self.measure_new("hot")
        if found is None:
            return new
        merged = _merge(new.hot_points, found.hot_points) if new.hot_points else found.hot_points
        return replace(found, hot_points=merged, complete=found.complete and new.complete)


def _doubted_share(points: Sequence[RoofPoint]) -> float:
    return sum(bool(point.doubt) for point in points) / len(points) if points else 0.0


def _mostly_doubted(points: Sequence[RoofPoint]) -> str:
    """Return the first doubt where more than half of the points are in doubt; else ""."""
    return next(point.doubt for point in points if point.doubt) if _doubted_share(points) > 0.5 else ""


def _raise_points(stored: Roofs, looks: Sequence[_Pair]) -> Roofs:
    """Return the stored roofs with faster points replaced, and all others in doubt."""
    marked = stored.beaten(stored.points, max(_check_of(*look).deviation for look in looks))
    new = {now.key: now for point, now in looks if now.seconds < point.seconds}
    return replace(stored, points=tuple(new.get(point.key, point) for point in marked.points))


def _probes(points: Sequence[RoofPoint], backend: str) -> list[tuple[RoofPoint, float]]:
    """Return the points to check, without doubt if there are any, and their seconds."""
    candidates = [point for point in points if not point.doubt] or points
    found: dict[RoofPoint, float] = {}
    for fraction, height, seconds in _HOST_PROBES if _core.backend_facts(backend)["runs_on_host"] else _PROBES:
        nearest = min(candidates, key=lambda point: abs(point.read_fraction - fraction))
        curve = [point for point in candidates if point.stream == nearest.stream]
        low, high = (math.log(end(point.total_bytes for point in curve)) for end in (min, max))
        target = low + height * (high - low)
        found.setdefault(min(curve, key=lambda point: abs(math.log(point.total_bytes) - target)), seconds)
    return list(found.items())


def _check_of(point: RoofPoint, now: RoofPoint) -> RoofCheck:
    uncertainty = point.uncertainty + now.uncertainty
    return RoofCheck(point.stream, point.total_bytes, point.gb_s, now.gb_s, uncertainty, now.doubt)


def _choose_point(stored: RoofPoint, now: RoofPoint | None) -> RoofPoint:
    """Return the new measurement of a stored point if it is without doubt, else the better one.

    A stored point that is only in doubt because a row beat it stays if it is the faster one again.
    """
    if now is None or now.doubt:
        return survey.choose_better(stored, now)
    unmarked = replace(stored, beaten=0.0, tries=0)
    return survey.choose_better(unmarked, now) if stored.beaten and not unmarked.doubt else now


def _pairs(new: Iterable[RoofPoint], stored: Iterable[RoofPoint]) -> list[_Pair]:
    """Return (stored, new) points of the same stream and size."""
    found = {point.key: point for point in new}
    return [(point, found[point.key]) for point in stored if point.key in found]


def _merge(new: _Points, stored: Sequence[RoofPoint]) -> _Points:
    """Return the better of each pair, and the other stored points without doubt."""
    merged = {point.key: point for point in (*new, *(point for point in stored if not point.doubt))}
    merged |= {now.key: _choose_point(point, now) for point, now in _pairs(new, stored)}
    return tuple(merged.values())
