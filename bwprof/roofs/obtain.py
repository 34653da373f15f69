"""A device's roofs for a run: stored ones that still hold, else new ones."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bwprof import _core, hardware
from bwprof.roofs import neighbours, store, survey
from bwprof.roofs.model import DEVIATION_LIMIT, Check, RoofPoint, Roofs

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
class Wanted:
    """Which roofs: those of cold rows, the cache's own for hot rows; whether to measure whatever is stored, or to take
    what is stored as it is.
    """

    cold: bool = True
    hot: bool = False
    recalibrate: bool = False
    stored: bool = False


def obtain(
    device: _core.Device, wanted: Wanted | None = None, *, deadline: float | None = None, poll: Poll = None
) -> Roofs | None:
    """The roofs that a run's rows are held against; None when there was no time for any.

    Stored roofs are used where they are this device's, this driver's, this version's and these settings' own, and
    nothing speaks against them: a few of their points, measured again, are within 3 % of the stored ones (the result's
    `checks`; none where there was no time). Where one is faster now, or slower though nothing disturbs it, all are
    measured again. Where one is slower and the machine is busy, the stored ones stay, and `unconfirmed` says so.

    Points in doubt are stored as such, measured again at the next use as far as half a second goes, and replaced only
    by better ones. New roofs most of whose points are in doubt take the place of no better ones in the file.

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
    wanted = wanted or Wanted()
    identity = store.identity(device.backend, hardware.facts(device))
    stored = store.load(identity)
    if wanted.stored:
        return stored
    found = None if wanted.recalibrate else stored
    if wanted.cold:
        if found is not None and found.points:
            found = _held(device, found, deadline, poll)
        else:
            new = survey.measure(device, deadline=deadline, poll=poll)
            found = replace(new, source=NEW, hot_points=found.hot_points if found else ())
    if wanted.hot:
        found = _with_hot(device, found, deadline, poll)
    if found is None:
        return None
    _keep(identity, found, stored)
    return found if found.points or found.hot_points else None


def beaten(
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


def _keep(identity: store.Identity, found: Roofs, stored: Roofs | None) -> None:
    """Store what was found, unless better is stored."""
    lasting = _lasting(found)
    if not found.complete or (stored is not None and lasting == _lasting(stored)):
        return
    doubt = _mostly_doubted(found.points) if found.source == NEW else ""
    if doubt and stored is not None and stored.points and not _mostly_doubted(stored.points):
        _log.warning("the new roofs are not stored: most of them are in doubt, unlike the stored ones: %s", doubt)
        return
    if doubt:
        _log.warning("most of the new roofs are in doubt, and are measured again at the next use: %s", doubt)
    store.save(identity, lasting)


def _doubted_share(points: Sequence[RoofPoint]) -> float:
    return sum(bool(point.doubt) for point in points) / len(points) if points else 0.0


def _mostly_doubted(points: Sequence[RoofPoint]) -> str:
    """Why the first of them is in doubt, where more than half are; else ""."""
    return next(point.doubt for point in points if point.doubt) if _doubted_share(points) > 0.5 else ""


# ---- whether stored roofs hold ----


def _held(device: _core.Device, stored: Roofs, deadline: float | None, poll: Poll) -> Roofs:
    """Stored roofs, looked at and mended, or new ones in their place."""
    watch = survey.until(deadline, poll)
    try:
        checks = tuple(_checks(device, stored, watch))
    except survey.OutOfTimeError:
        return stored  # nothing speaks against them
    doubted = {(point.stream, point.total_bytes) for point in stored.points if point.doubt}
    off = [check for check in checks if check.too_low or check.too_high or check.unclear]
    # What was in doubt and still is says nothing: another survey would be no better.
    unclear = [
        check for check in off if check.unclear or (check.doubt and (check.stream, check.total_bytes) in doubted)
    ]
    against = [check for check in off if check not in unclear]
    if against or not checks or (_mostly_doubted(stored.points) and not any(check.doubt for check in checks)):
        why = str(against[0]) if against else "most of them are in doubt"
        _log.warning("the roofs of %s no longer hold (%s): measuring them again", stored.measured or "before", why)
        new = replace(survey.measure(device, deadline=deadline, poll=poll), source=NEW)
        doubt = _mostly_doubted(new.points)
        worse = _doubted_share(new.points) > _doubted_share(stored.points)
        if not against:
            return replace(new, points=_merged(new.points, stored.points))
        if not doubt or not worse or any(check.too_low for check in against):
            return new
        unconfirmed = f"the stored roofs could not be confirmed ({why}): {doubt}"
        return replace(stored, checks=checks, unconfirmed=unconfirmed)
    if unclear:
        unconfirmed = f"the stored roofs could not be confirmed ({unclear[0]}): {unclear[0].doubt}"
        _log.warning("%s", unconfirmed)
        stored = replace(stored, unconfirmed=unconfirmed)
    return replace(stored, checks=checks, points=_mended(device, stored.points, "cold", watch))


def _checks(device: _core.Device, stored: Roofs, poll: Poll) -> Iterator[Check]:
    """Looks at a few points, until one is certain to be wrong."""
    end = time.monotonic() + _LOOK_SECONDS
    for point, seconds in _probes(stored.points, device.backend):
        check = _looked_at(device, point, seconds, end, poll)
        if check is not None:
            yield check
            if check.too_low or check.too_high:
                return


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


def _looked_at(device: _core.Device, point: RoofPoint, seconds: float, end: float, poll: Poll) -> Check | None:
    """A stored point held against new measurements of it; None when it cannot be measured."""
    best = _again(device, point, "cold", seconds, poll)
    if best is None:
        return None
    check = _check_of(point, best)
    for look in range(1, _LOOKS):
        enough = look > 1 and (not best.doubt or time.monotonic() > end)
        if enough or abs(check.deviation) <= DEVIATION_LIMIT:
            break
        best = survey.better(best, _again(device, point, "cold", _LONGER * seconds, poll))
        check = _check_of(point, best)
    return check


def _check_of(point: RoofPoint, now: RoofPoint) -> Check:
    uncertainty = point.uncertainty + now.uncertainty
    return Check(point.stream, point.total_bytes, point.gb_s, now.gb_s, uncertainty, now.doubt)


def _again(device: _core.Device, point: RoofPoint, cache: survey.Cache, seconds: float, poll: Poll) -> RoofPoint | None:
    """A stored point measured now."""
    stream = next((stream for stream in survey.streams() if stream["name"] == point.stream), None)
    if stream is None:
        return None
    with neighbours.watched(device.backend) as others:
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
            mended[index] = _better(points[index], _again(device, points[index], cache, _LONGER * seconds, poll))
        except survey.OutOfTimeError:
            break
    return tuple(mended)


def _better(stored: RoofPoint, now: RoofPoint | None) -> RoofPoint:
    """A stored point in doubt, or a better one. One that a row has beaten stays if it is the quicker one again."""
    if now is not None and not now.doubt:
        return survey.better(replace(stored, beaten=0.0, tries=0), now)
    return replace(survey.better(stored, now), tries=stored.tries + 1)


def _merged(new: tuple[RoofPoint, ...], stored: tuple[RoofPoint, ...]) -> tuple[RoofPoint, ...]:
    """The better one of each, where nothing says that the stored ones no longer hold."""
    found = {(point.stream, point.total_bytes): point for point in new}
    for point in stored:
        at = (point.stream, point.total_bytes)
        if at in found:
            found[at] = survey.better(found[at], point)
        elif not point.doubt:
            found[at] = point
    return tuple(found.values())


def _with_hot(device: _core.Device, found: Roofs | None, deadline: float | None, poll: Poll) -> Roofs:
    """Roofs with the cache's own: stored ones, mended, or new ones where there are none, or most are in doubt."""
    if found is not None and found.hot_points:
        mended = _mended(device, found.hot_points, "hot", survey.until(deadline, poll))
        found = replace(found, hot_points=mended)
        if not _mostly_doubted(mended):
            return found
    new = replace(survey.measure_hot(device, deadline=deadline, poll=poll), source=NEW)
    if found is None:
        return new
    if _doubted_share(new.hot_points) > _doubted_share(found.hot_points) or not new.hot_points:
        new = found
    return replace(found, hot_points=new.hot_points, complete=found.complete and new.complete)
