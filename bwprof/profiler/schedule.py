"""Which steps of a program a `Profiler` times, as `torch.profiler.schedule` has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from bwprof.text.parsing import describe_unknown, parse_int, repr_short


class Phase(Enum):
    """What is done with a step."""

    OFF = "off"
    WARM_UP = "warm-up"  # timed, and forgotten
    ACTIVE = "active"
    LAST = "last"  # of a cycle's active steps


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cycles of steps: `wait` without timing, `warmup` timed and forgotten, `active` timed.

    Parameters
    ----------
    wait, warmup, active : int
        Steps of each kind in a cycle; at least one is active.
    repeat : int
        Cycles; 0: without an end.
    skip_first : int
        Steps before the first cycle.

    Examples
    --------
    >>> schedule = Schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [schedule(step).value for step in range(5)]
    ['off', 'warm-up', 'active', 'last', 'off']
    """

    wait: int = 0
    warmup: int = 0
    active: int = 1
    repeat: int = 0
    skip_first: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            number = parse_int(given, field.name)
            if number < (field.name == "active"):
                raise ValueError(
                    f"{field.name} is {repr_short(given)}: at least {int(field.name == 'active')} is needed"
                )
            object.__setattr__(self, field.name, number)

    def __call__(self, step: int) -> Phase:
        """The phase of a step, 0 being the first; ValueError for what is no whole number."""
        cycle, place = divmod(parse_int(step, "step") - self.skip_first, self.wait + self.warmup + self.active)
        if cycle < 0 or 0 < self.repeat <= cycle or place < self.wait:
            return Phase.OFF
        if place < self.wait + self.warmup:
            return Phase.WARM_UP
        return Phase.LAST if place == self.wait + self.warmup + self.active - 1 else Phase.ACTIVE


ScheduleArgument = Schedule | Mapping[str, int] | Callable[[int], Any] | None

# torch.profiler.ProfilerAction's names.
_ACTIONS = {"NONE": Phase.OFF, "WARMUP": Phase.WARM_UP, "RECORD": Phase.ACTIVE, "RECORD_AND_SAVE": Phase.LAST}


def make_schedule(given: ScheduleArgument) -> Callable[[int], Phase] | None:
    """What `schedule=` names.

    Raises
    ------
    TypeError, ValueError
        For what is none.
    """
    if given is None or isinstance(given, Schedule):
        return given
    if isinstance(given, Mapping):
        known = [field.name for field in fields(Schedule)]
        for name in given:
            if name not in known:
                raise ValueError(describe_unknown("name", name, known, where="schedule"))
        return Schedule(**given)
    if not callable(given):
        raise TypeError(
            f"schedule is {repr_short(given)}: a bwprof.Schedule is needed, a mapping of its numbers, or one of "
            "torch.profiler.schedule"
        )
    action = given

    def phase(step: int) -> Phase:
        found = action(step)
        if isinstance(found, Phase):
            return found
        name = str(getattr(found, "name", found))
        if name not in _ACTIONS:
            raise ValueError(f"the schedule says {repr_short(found)} of step {step}: {', '.join(_ACTIONS)} are allowed")
        return _ACTIONS[name]

    return phase


class ScheduleFollower:
    """What follows a schedule; without one it is on, or off, as its `enabled` says."""

    __slots__ = ("_phase", "_ready", "_schedule", "_step", "_telling")

    enabled: Any  # a property of what follows it

    def reset(self) -> None:
        """Forget what was timed."""
        raise NotImplementedError

    def _follow(
        self, schedule: Callable[[int], Phase] | None, *, enabled: bool, ready: Callable[[Any], object] | None
    ) -> None:
        self._schedule, self._ready, self._step = schedule, ready, 0
        self._phase, self._telling = Phase.OFF, False
        if schedule is None:
            self.enabled = enabled
        else:
            self.enabled = False
            if enabled:
                self._enter(schedule(0))
            else:
                self._schedule = None

    @property
    def step_num(self) -> int:
        """How many steps are over."""
        return self._step

    def step(self) -> None:
        """A step of the program is over; its schedule says what is done with the next one.

        Without a schedule steps are counted and no more. The end of a warm-up, and that of a cycle, wait for the
        ranges that were timed. Ranges that run meanwhile go on, unless the next step is not timed: they never were.
        """
        if self._telling:
            raise RuntimeError("on_trace_ready calls step(): the program does that, after each of its steps")
        before = self._phase
        self._step += 1
        if self._schedule is None:
            return
        phase = self._schedule(self._step)
        if before is Phase.LAST:
            self._tell()
        warm = before is Phase.WARM_UP and phase is not Phase.WARM_UP
        if warm or (before is Phase.LAST and phase is not Phase.OFF):
            self.reset()
        self._enter(phase)

    def _enter(self, phase: Phase) -> None:
        if phase is not Phase.OFF and not self.enabled:
            if self._phase is Phase.OFF and self._step:
                self.reset()
            self.enabled = True
        elif phase is Phase.OFF and self.enabled:
            self.enabled = False
        self._phase = phase

    def _tell(self) -> None:
        if self._ready is None:
            return
        self._telling = True
        try:
            self._ready(self)
        finally:
            self._telling = False

    def _finish_steps(self) -> None:
        """The program is over: so is the cycle."""
        active = self._phase in (Phase.ACTIVE, Phase.LAST)
        self._phase = Phase.OFF
        self._schedule = None
        if active:
            self._tell()
