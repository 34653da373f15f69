"""One comparison: two sides in turns, until their ratio is known well enough or the time is up. No device here."""

from __future__ import annotations

import math
import random
import statistics as numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bwprof.paired import statistics
from bwprof.paired.sides import Opened, Side, SideError
from bwprof.paired.statistics import Ratio

NAMES = ("A", "B")
PRECISE, OUT_OF_TIME, INTERRUPTED, FAILED = "precise", "time", "interrupted", "failed"

DEFAULT_REL_CI = 0.005
DEFAULT_SECONDS = 30.0

_ORDERS = ((0, 1, 1, 0), (1, 0, 0, 1))
# Samples of a turn, for samples no longer than so many ns: short turns let what drifts touch both sides alike.
_SAMPLES = ((4, 10e6), (2, 100e6))
_LOOKS = 1.05  # units are looked at when there are so many times more: a look at a thousand takes a while
_RENEWALS = 24  # at least, in the time there is


@dataclass(frozen=True, slots=True)
class How:
    """When to stop, what is a difference, and the coin's seed."""

    rel_ci: float = DEFAULT_REL_CI
    max_seconds: float = DEFAULT_SECONDS
    gate: float = statistics.DEFAULT_GATE
    seed: int = 0


@dataclass(slots=True)
class Found:
    """What turns have told so far.

    `units` are logarithms of ratios, `times` the sides' ns of each block, `orders` its turns ("ABBA"). `stopped` says
    why no more were taken, `reason` in words where that needs some; `failed` is the side that could not go on.
    """

    how: How
    opened: list[Opened] = field(default_factory=list)
    orders: list[str] = field(default_factory=list)
    times: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    units: list[float] = field(default_factory=list)
    renewals: int = 0
    seconds: float = 0.0
    stopped: str = ""
    reason: str = ""
    failed: int | None = None
    cause: BaseException | None = None

    @property
    def ratio(self) -> Ratio:
        """B's time over A's."""
        return statistics.ratio_of(self.units)

    @property
    def pairs(self) -> int:
        """Turns of either side."""
        return 2 * len(self.orders)


_T = TypeVar("_T")


def compare(
    sides: Sequence[Side],
    how: How,
    *,
    into: Found,
    backend: str = "",
    later_timer: Callable[[str, str, str], str] = lambda _one, other, _backend: other,
    check: Callable[[], object] = lambda: None,
    may_compare: Callable[[Sequence[Opened]], None] = lambda _opened: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure two sides in turns; `into` gets what they show as they show it, so that whatever ends this keeps it.

    Parameters
    ----------
    sides : sequence of two Side
        Only one is ever asked at a time.
    check : callable
        Called before each turn; what it raises ends the comparison.
    may_compare : callable
        Gets what both sides say of themselves before any turn; SideError where the two do different work.
    """
    try:
        _Comparison(sides, how, into, check, clock).run(backend, later_timer, may_compare)
    except _StoppedError as stopped:
        into.stopped, into.reason = FAILED, str(stopped)
        into.failed, into.cause = stopped.side, stopped.__cause__
    finally:
        if not into.stopped:
            into.stopped = INTERRUPTED


class _StoppedError(Exception):
    """A side could not go on."""

    def __init__(self, side: int | None, text: str) -> None:
        super().__init__(text if side is None else f"side {NAMES[side]}: {text}")
        self.side = side


class _Comparison:
    """The two sides, the coin and the clock."""

    def __init__(
        self,
        sides: Sequence[Side],
        how: How,
        into: Found,
        check: Callable[[], object],
        clock: Callable[[], float],
    ) -> None:
        self._sides, self._how, self._into, self._coin = sides, how, into, random.Random(how.seed)
        self._check, self._clock = check, clock
        self._next_look = statistics.LEAST_UNITS
        self._timer: str | None = None
        self._samples = 1

    def run(
        self,
        backend: str,
        later_timer: Callable[[str, str, str], str],
        may_compare: Callable[[Sequence[Opened]], None],
    ) -> None:
        """All of it."""
        self._into.opened = self._open(self._order()[:2])
        try:
            may_compare(self._into.opened)
        except SideError as error:
            raise _StoppedError(None, str(error)) from None
        timers = [one.timer for one in self._into.opened]
        if timers[0] != timers[1]:
            self._timer = later_timer(timers[0], timers[1], backend)
            self._into.opened = self._open(self._order()[:2])
            timers = [one.timer for one in self._into.opened]
            if timers[0] != timers[1]:
                raise _StoppedError(None, f"A is timed by {timers[0]} and B by {timers[1]}: times of two timers differ")
        longest = max(one.sample_ns for one in self._into.opened)
        self._samples = next((count for count, limit in _SAMPLES if longest <= limit), 1)
        renewable = any(one.renewable for one in self._into.opened)
        started = self._clock()
        opening = 0.0
        while not self._into.stopped:
            begun = self._clock()
            if renewable and self._into.renewals:
                self._open(self._order()[:2])
                opening = self._clock() - begun
            self._into.renewals += renewable or not self._into.renewals
            self._unit(started, opening if renewable else 0.0)
            self._look(started)

    def _order(self) -> tuple[int, ...]:
        return _ORDERS[self._coin.getrandbits(1)]

    def _open(self, order: Sequence[int]) -> list[Opened]:
        found: dict[int, Opened] = {}
        for number in order:  # both are closed first: new buffers need not fit beside the old ones
            self._asked(number, lambda side: side.close())
        for number in order:
            self._check()
            found[number] = self._asked(number, lambda side: side.open(self._timer))
        return [found[0], found[1]]

    def _asked(self, number: int, question: Callable[[Side], _T]) -> _T:
        try:
            return question(self._sides[number])
        except SideError as error:
            raise _StoppedError(number, str(error)) from error.__cause__

    def _unit(self, started: float, opening: float) -> None:
        """Blocks on the same buffers, for about as long as it took to open them; their median is a unit."""
        until = self._clock() + min(opening, self._how.max_seconds / _RENEWALS)
        blocks: list[float] = []
        while True:
            blocks.append(self._block())
            self._into.seconds = self._clock() - started
            if self._clock() >= until:
                break
        self._into.units.append(numbers.median(blocks))

    def _block(self) -> float:
        """Four turns; the logarithm of B's time over A's."""
        order = self._order()
        samples: tuple[list[float], list[float]] = ([], [])
        for number in order:
            self._check()
            samples[number].extend(self._asked(number, lambda side: side.turn(self._samples)))
        times = [statistics.time_of(one) for one in samples]
        if not all(found > 0 and math.isfinite(found) for found in times):
            raise _StoppedError(None, "a launch is shorter than what the timer can tell")
        self._into.orders.append("".join(NAMES[number] for number in order))
        for kept, found in zip(self._into.times, times, strict=True):
            kept.append(found)
        return math.log(times[1] / times[0])

    def _look(self, started: float) -> None:
        """Whether to stop."""
        over = self._clock() - started >= self._how.max_seconds
        count = len(self._into.units)
        if count >= self._next_look:
            self._next_look = max(count + 1, int(count * _LOOKS))
            if self._into.ratio.half_width <= math.log1p(self._how.rel_ci):
                self._into.stopped = PRECISE
                return
        if over:
            self._into.stopped = OUT_OF_TIME


def plain(found: Found) -> dict[str, Any]:
    """The units and orders, for a file."""
    return {
        "log_ratios": list(found.units),
        "orders": list(found.orders),
        "block_ns": [list(one) for one in found.times],
    }
