"""A device's roofs for a run: stored ones that still hold, else new ones."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bwprof import _core, hardware
from bwprof.roofs import disturbance, store, survey
from bwprof.roofs.model import DEVIATION_LIMIT, RoofCheck, RoofPoint, Roofs

_log = logging.getLogger("bwprof.roofs")

NEW = "measured for this run"

# Which points of stored roofs are measured again before they are used: of the stream with the nearest read fraction
# the one so far up its sizes (0 the smallest, 1 the largest, in factors), for so many seconds. One mix at one size
# would say nothing of other mixes and sizes. On a GPU no small ones: in some processes each launch takes 0.18 us more.
_HOST_PROBES = ((0.5, 1.0, 0.12), (1.0, 0.6, 0.06), (0.0, 0.25, 0.06))

_PROBES = ((0.5, 1.0, 0.01), (1.0, 0.75, 0.01), (0.0, 0.6, 0.01))

_LOOKS = 3  # at most at each: what differs is looked at twice at least before it is believed

_LONGER = 3  # times as long, after the first look

_LOOK_SECONDS = 1.0  # no third look after that

_MEND_SECONDS = 0.5  # for measuring stored points in doubt again

Poll = Callable[[], object] | None


@dataclass(frozen=True, slots=True)
class RoofRequest:
    """Which roofs: those of cold rows, the cache's own for hot rows; whether to measure whatever is stored, or to take
    what is stored as it is.
    """

    cold: bool = True
    hot: bool = False
    recalibrate: bool = False
    stored: bool = False


def obtain(
    device: _core.Device, wanted: RoofRequest | None = None, *, deadline: float | None = None, poll: Poll = None
) -> Roofs | None:
    """The roofs that a run's rows are held against; None when there was no time for any.

    Stored roofs are used where they are this device's, this driver's, this version's and these settings' own, and
    nothing speaks against them: a few of their points, measured again, are within 3 % of the stored ones (the result's
    `checks`; none where there was no time). A measured rate is a lower bound of what memory can do, and a disturbance
    only lowers it: where a point is faster now, whatever disturbs it, the new rate takes its place in the file at once,
    all other points are in doubt, and all are measured again. Where one is slower though nothing disturbs it, all are
    measured again. Where one is slower and the machine is busy, the stored ones stay, and `unconfirmed` says so.

    Points in doubt are stored as such, measured again at the next use as far as half a second goes, and replaced only
    by better ones. A new point in doubt takes the place of a stored one without doubt only if it is faster by 3 %.

    Parameters
    ----------
    device : bwprof._core.Device
        An open device.
    wanted : Wanted, optional
        Those of cold rows when left out. Streams within the cache are measured only for hot rows.
    deadline : float, optional
        A time.monotonic() after which nothing more is measured. What it cut short is not stored.
    poll : callable, optional
        Called between batches; what it raises ends the measurement.
    """
    wanted = wanted or RoofRequest()
    identity = store.identity(device.backend, hardware.device_facts(device))
    stored = store.load(identity)
    if wanted.stored:
        return stored
    found = None if wanted.recalibrate else stored
    if wanted.cold:
        if found is not None and found.points:
            found = _check_stored(device, identity, found, deadline, poll)
        else:
            new = survey.measure(device, deadline=deadline, poll=poll)
            found = replace(new, source=NEW, hot_points=found.hot_points if found else ())
    if wanted.hot:
        found = _with_hot(device, found, deadline, poll)
    if found is None:
        return None
    _keep(identity, found)
    return found if found.points or found.hot_points else None


def mark_beaten(
    backend: str, facts: dict[str, Any], roofs: Roofs, moved: tuple[int, int], by: float, *, hot: bool = False
) -> Roofs:
    """A row of so many bytes, read and written, was faster than the roofs allow, by a fraction, for no known reason.

    The points that it was held against are in doubt from now on: in what is returned, and in the file, if they are
    from there, so that the next run measures them again.
    """
    points = roofs.behind(*moved, hot=hot)
    identity = store.identity(backend, facts)
    stored = store.load(identity)
    if stored is not None and (marked := stored.beaten(points, by)) != stored:
        store.save(identity, _lasting(marked))
    return roofs.beaten(points, by)


def _lasting(roofs: Roofs) -> Roofs:
    """Without what is true of one run only."""
    return replace(roofs, source="", checks=(), unconfirmed="")


def _keep(identity: store.Identity, found: Roofs) -> None:
    """Store what was found; of a survey in doubt only what is better than the stored points."""
    stored = store.load(identity)
    lasting = _lasting(found)
    if not found.complete or (stored is not None and lasting == _lasting(stored)):
        return
    doubt = _mostly_doubted(found.points) if found.source == NEW else ""
    if doubt and stored is not None and stored.points and not _mostly_doubted(stored.points):
        pairs = _pairs(found.points, stored.points)
        if not any(_check_of(*pair).too_low for pair in pairs):
            _log.warning("the new roofs are not stored: most of them are in doubt, unlike the stored ones: %s", doubt)
            return
        lasting = replace(lasting, points=_merged(found.points, _raised(stored, pairs).points))
    if doubt:
        _log.warning("most of the new roofs are in doubt, and are measured again at the next use: %s", doubt)
    store.save(identity, lasting)


def _doubted_share(points: Sequence[RoofPoint]) -> float:
    return sum(bool(point.doubt) for point in points) / len(points) if points else 0.0


def _mostly_doubted(points: Sequence[RoofPoint]) -> str:
    """Why the first of them is in doubt, where more than half are; else ""."""
    return next(point.doubt for point in points if point.doubt) if _doubted_share(points) > 0.5 else ""


# ---- whether stored roofs hold ----


def _check_stored(
    device: _core.Device, identity: store.Identity, stored: Roofs, deadline: float | None, poll: Poll
) -> Roofs:
    """Stored roofs, looked at and mended, or new ones in their place."""
    watch, before = survey.watch_deadline(deadline, poll), stored.points
    try:
        looks = tuple(_looks(device, stored, watch))
    except survey.SurveyTimeoutError:
        return stored  # nothing speaks against them
    checks = tuple(_check_of(*look) for look in looks)
    against = next((check for check in checks if check.too_low or check.too_high), None)
    low = against is not None and against.too_low
    if low:  # at once: whatever ends this run, nobody takes the old points again
        stored = _raised(stored, looks)
        store.save(identity, _lasting(stored))
    if against or not checks or (_mostly_doubted(stored.points) and not any(check.doubt for check in checks)):
        why = str(against or "most of them are in doubt")
        _log.warning("the roofs of %s no longer hold (%s): measuring them again", stored.measured or "before", why)
        new = replace(survey.measure(device, deadline=deadline, poll=poll), source=NEW)
        if low and not new.points:
            return stored
        if low or not against:
            pairs = _pairs(new.points, before)
            all_low = low and 2 * sum(now.seconds < point.seconds for point, now in pairs) > len(pairs)
            others = tuple(now for _, now in looks) if all_low else stored.points
            return replace(new, points=_merged(new.points, others))
        doubt = _mostly_doubted(new.points)
        if not doubt or _doubted_share(new.points) <= _doubted_share(stored.points):
            return new
        unconfirmed = f"the stored roofs could not be confirmed ({why}): {doubt}"
        return replace(stored, checks=checks, unconfirmed=unconfirmed)
    unclear = next((check for check in checks if check.unclear), None)
    if unclear:
        unconfirmed = f"the stored roofs could not be confirmed ({unclear}): {unclear.doubt}"
        _log.warning("%s", unconfirmed)
        stored = replace(stored, unconfirmed=unconfirmed)
    return replace(stored, checks=checks, points=_mended(device, stored.points, "cold", watch))


def _looks(device: _core.Device, stored: Roofs, poll: Poll) -> Iterator[tuple[RoofPoint, RoofPoint]]:
    """A few points and new measurements of them, until one is certain to be wrong."""
    end = time.monotonic() + _LOOK_SECONDS
    for point, seconds in _probes(stored.points, device.backend):
        now = _looked_at(device, point, seconds, end, poll)
        if now is not None:
            yield point, now
            check = _check_of(point, now)
            if check.too_low or check.too_high:
                return


def _raised(stored: Roofs, looks: Collection[tuple[RoofPoint, RoofPoint]]) -> Roofs:
    """Stored roofs, some of which were measured to be quicker: these points are new, and all others in doubt."""
    marked = stored.beaten(stored.points, max(_check_of(*look).deviation for look in looks))
    new = {(now.stream, now.total_bytes): now for point, now in looks if now.seconds < point.seconds}
    return replace(stored, points=tuple(new.get((point.stream, point.total_bytes), point) for point in marked.points))


def _probes(points: Sequence[RoofPoint], backend: str) -> list[tuple[RoofPoint, float]]:
    """The points to look at, of those without doubt if there are any, and for how long."""
    candidates = [point for point in points if not point.doubt] or points
    found: dict[RoofPoint, float] = {}
    for fraction, height, seconds in _HOST_PROBES if _core.backend_facts(backend)["runs_on_host"] else _PROBES:
        nearest = min(candidates, key=lambda point: abs(point.read_fraction - fraction))
        curve = [point for point in candidates if point.stream == nearest.stream]
        low, high = (math.log(end(point.total_bytes for point in curve)) for end in (min, max))
        target = low + height * (high - low)
        found.setdefault(min(curve, key=lambda point: abs(math.log(point.total_bytes) - target)), seconds)
    return list(found.items())


def _looked_at(device: _core.Device, point: RoofPoint, seconds: float, end: float, poll: Poll) -> RoofPoint | None:
    """The best of new measurements of a stored point; None when it cannot be measured."""
    best = _again(device, point, "cold", seconds, poll)
    if best is None:
        return None
    for look in range(1, _LOOKS):
        enough = look > 1 and (not best.doubt or time.monotonic() > end)
        if enough or abs(_check_of(point, best).deviation) <= DEVIATION_LIMIT:
            break
        best = survey.choose_better(best, _again(device, point, "cold", _LONGER * seconds, poll))
    return best


def _check_of(point: RoofPoint, now: RoofPoint) -> RoofCheck:
    uncertainty = point.uncertainty + now.uncertainty
    return RoofCheck(point.stream, point.total_bytes, point.gb_s, now.gb_s, uncertainty, now.doubt)


def _again(device: _core.Device, point: RoofPoint, cache: survey.Cache, seconds: float, poll: Poll) -> RoofPoint | None:
    """A stored point measured now."""
    stream = next((stream for stream in survey.list_streams() if stream["name"] == point.stream), None)
    if stream is None:
        return None
    with disturbance.watch_others(device.backend) as others:
        found = survey.measure_point(device, stream, point.total_bytes, seconds, cache=cache, poll=poll)
    return None if found is None else replace(found, others_share=others.share)


# ---- points in doubt ----


def _mended(
    device: _core.Device, points: tuple[RoofPoint, ...], cache: survey.Cache, poll: Poll
) -> tuple[RoofPoint, ...]:
    """The points with those in doubt measured again, as far as half a second goes; the least tried, largest first."""
    end = time.monotonic() + _MEND_SECONDS
    seconds = survey.point_seconds(device.backend, cache)
    mended = list(points)
    doubted = [index for index, point in enumerate(points) if point.doubt]
    for index in sorted(doubted, key=lambda index: (points[index].tries, -points[index].total_bytes)):
        if time.monotonic() >= end:
            break
        try:
            best = _better(points[index], _again(device, points[index], cache, _LONGER * seconds, poll))
            mended[index] = replace(best, tries=points[index].tries + 1) if best.doubt else best
        except survey.SurveyTimeoutError:
            break
    return tuple(mended)


def _better(stored: RoofPoint, now: RoofPoint | None) -> RoofPoint:
    """The new measurement of a stored point if it is without doubt, else the better one. A point that is in doubt for
    being beaten alone stays if it is the quicker one again.
    """
    if now is None or now.doubt:
        return survey.choose_better(stored, now)
    unmarked = replace(stored, beaten=0.0, tries=0)
    return survey.choose_better(unmarked, now) if stored.beaten and not unmarked.doubt else now


def _pairs(new: Iterable[RoofPoint], stored: Iterable[RoofPoint]) -> list[tuple[RoofPoint, RoofPoint]]:
    """Stored points beside new ones of the same stream and size."""
    found = {(point.stream, point.total_bytes): point for point in new}
    beside = ((point, found.get((point.stream, point.total_bytes))) for point in stored)
    return [(point, now) for point, now in beside if now is not None]


def _merged(new: tuple[RoofPoint, ...], stored: tuple[RoofPoint, ...]) -> tuple[RoofPoint, ...]:
    """The better one of each; of points that were not measured anew those without doubt."""
    sure = (point for point in stored if not point.doubt)
    found = {(point.stream, point.total_bytes): point for point in (*new, *sure)}
    found |= {(now.stream, now.total_bytes): _better(point, now) for point, now in _pairs(new, stored)}
    return tuple(found.values())


def _with_hot(device: _core.Device, found: Roofs | None, deadline: float | None, poll: Poll) -> Roofs:
    """Roofs with the cache's own: stored ones, mended, or new ones where there are none, or most are in doubt."""
    if found is not None and found.hot_points:
        mended = _mended(device, found.hot_points, "hot", survey.watch_deadline(deadline, poll))
        found = replace(found, hot_points=mended)
        if not _mostly_doubted(mended):
            return found
    new = replace(survey.measure_hot(device, deadline=deadline, poll=poll), source=NEW)
    if found is None:
        return new
    merged = _merged(new.hot_points, found.hot_points) if new.hot_points else found.hot_points
    return replace(found, hot_points=merged, complete=found.complete and new.complete)
