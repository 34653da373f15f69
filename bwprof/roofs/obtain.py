"""A device's roofs for a run: stored ones that still hold, else new ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from bwprof import _core, hardware
from bwprof.roofs import store, survey
from bwprof.roofs.model import OTHERS_LIMIT, Check, RoofPoint, Roofs

_log = logging.getLogger("bwprof.roofs")

NEW = "measured for this run"

# Stored roofs are measured again when a ceiling differs by more than this.
DEVIATION_LIMIT = 0.03
_CHECK_SECONDS = {"cpu": 0.12, "cuda": 0.01}
_MEND_SECONDS = 0.5  # for measuring stored points in doubt again

Poll = Callable[[], object] | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which roofs: those of cold rows, the cache's own for hot rows; and whether to measure whatever is stored."""

    cold: bool = True
    hot: bool = False
    recalibrate: bool = False


def obtain(
    device: _core.Device, wanted: Wanted | None = None, *, deadline: float | None = None, poll: Poll = None
) -> Roofs | None:
    """The roofs that a run's rows are held against; None when there was no time for any.

    Stored roofs are used where they are this device's, this driver's, this version's and these settings' own, and one
    ceiling, measured again, is within 3 % of the stored one; the result's `check` says what was found (None: there was
    no time for it). Points in doubt are measured again. Everything else is measured now, and stored.

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
    stored = None if wanted.recalibrate else store.load(identity)
    found = _checked(device, stored, survey.until(deadline, poll)) if stored else None
    if found is None or (wanted.cold and not found.points):
        hot_points = found.hot_points if found else ()
        measure = survey.measure if wanted.cold else survey.measure_hot
        found = replace(measure(device, deadline=deadline, poll=poll), source=NEW)
        if not found.hot_points:
            found = replace(found, hot_points=hot_points, hot_others_share=stored.hot_others_share if stored else 0.0)
    if wanted.hot and (not found.hot_points or (found.source != NEW and found.hot_others_share > OTHERS_LIMIT)):
        hot = survey.measure_hot(device, deadline=deadline, poll=poll)
        complete = found.complete and hot.complete
        found = replace(found, hot_points=hot.hot_points, hot_others_share=hot.hot_others_share, complete=complete)
    if found.complete and (stored is None or _lasting(found) != _lasting(stored)):
        store.save(identity, _lasting(found))
    return found if found.points or found.hot_points else None


def _lasting(roofs: Roofs) -> Roofs:
    """Without what is true of one run only."""
    return replace(roofs, source="", check=None)


def _checked(device: _core.Device, stored: Roofs, poll: Poll) -> Roofs | None:
    """Stored roofs with their check; None when they are to be measured again."""
    if stored.others_share > OTHERS_LIMIT:
        _log.info("the stored roofs were measured on a busy machine: measuring them again")
        return None
    ceilings = stored.ceilings()
    if not ceilings:
        return stored
    if any(point.doubt for point in ceilings):
        _log.info("the stored ceilings are in doubt: measuring them again")
        return None
    point = min(ceilings, key=lambda point: abs(point.read_fraction - 0.5))
    try:
        now = _again(device, point, poll)
    except survey.OutOfTimeError:
        return stored  # nothing speaks against them
    if now is None:
        return None
    check = Check(point.stream, point.total_bytes, point.gb_s, now.gb_s)
    if abs(check.deviation) > DEVIATION_LIMIT:
        _log.warning("the roofs of %s no longer hold (%s): measuring them again", stored.measured or "before", check)
        return None
    with suppress(survey.OutOfTimeError):
        stored = _mended(device, stored, poll)
    return replace(stored, check=check)


def _again(device: _core.Device, point: RoofPoint, poll: Poll) -> RoofPoint | None:
    """A stored point measured now; once more when that is in doubt or off."""
    stream = next((stream for stream in survey.streams() if stream["name"] == point.stream), None)
    seconds = _CHECK_SECONDS.get(device.backend, 0.12)
    if stream is None:
        return None
    found = survey.measure_point(device, stream, point.total_bytes, seconds, poll=poll)
    if found is not None and (found.doubt or abs(point.seconds / found.seconds - 1) > DEVIATION_LIMIT):
        found = survey.better(found, survey.measure_point(device, stream, point.total_bytes, 3 * seconds, poll=poll))
    return found


def _mended(device: _core.Device, stored: Roofs, poll: Poll) -> Roofs:
    """The stored roofs with their points in doubt measured again, as far as half a second goes."""
    deadline = time.monotonic() + _MEND_SECONDS
    points = list(stored.points)
    for index, point in enumerate(points):
        if point.doubt and time.monotonic() < deadline:
            points[index] = survey.better(point, _again(device, point, poll))
    return replace(stored, points=tuple(points))
