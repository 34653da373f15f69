"""Choose the steps of a program that a `Profiler` times, as `torch.profiler.schedule` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from bwprof.text.parsing import describe_unknown, parse_int, repr_short


class Phase(Enum):
    """What a step is for."""

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
            value, least = getattr(self, field.name), int(field.name == "active")
            number = parse_int(value, field.name)
            if number < least:
                raise ValueError(f"{field.name} is {repr_short(value)}: at least {least} is needed")
            object.__setattr__(self, field.name, number)

    def __call__(self, step: int) -> Phase:
        """Return the phase of a step, counted from 0; raise ValueError for anything but a whole number."""
        cycle, place = divmod(parse_int(step, "step") - self.skip_first, self.wait + self.warmup + self.active)
        if cycle < 0 or 0 < self.repeat <= cycle or place < self.wait:
            return Phase.OFF
        if place < self.wait + self.warmup:
            return Phase.WARM_UP
        return Phase.LAST if place == self.wait + self.warmup + self.active - 1 else Phase.ACTIVE


ScheduleArgument = Schedule | Mapping[str, int] | Callable[[int], Any] | None

# The names of torch.profiler.ProfilerAction.
_ACTIONS = {"NONE": Phase.OFF, "WARMUP": Phase.WARM_UP, "RECORD": Phase.ACTIVE, "RECORD_AND_SAVE": Phase.LAST}


def make_schedule(schedule: ScheduleArgument) -> Callable[[int], Phase] | None:
    """Return the schedule that an argument stands for; raise TypeError or ValueError for anything else."""
    if schedule is None or isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, Mapping):
        names = [field.name for field in fields(Schedule)]
        for name in schedule:
            if name not in names:
                raise ValueError(describe_unknown("name", name, names, where="schedule"))
        return Schedule(**schedule)
    if not callable(schedule):
        raise TypeError(
            f"schedule is {repr_short(schedule)}: a bwprof.Schedule is needed, a mapping of its numbers, or one of "
            "torch.profiler.schedule"
        )
    choose = schedule

    def phase(step: int) -> Phase:
        action = choose(step)
        if isinstance(action, Phase):
            return action
        name = str(getattr(action, "name", action))
        if name not in _ACTIONS:
            raise ValueError(
                f"the schedule says {repr_short(action)} of step {step}: {', '.join(_ACTIONS)} are allowed"
            )
        return _ACTIONS[name]

    return phase


class ScheduleFollower:
    """A base class that switches `enabled` on and off by a schedule; without one it stays as it is."""

    __slots__ = ("_in_callback", "_phase", "_ready", "_schedule", "_step")

    enabled: Any  # a property of the subclass

    def reset(self) -> None:
        """Forget what was timed."""
        raise NotImplementedError

    def _follow(
        self, schedule: Callable[[int], Phase] | None, *, enabled: bool, ready: Callable[[Any], object] | None
    ) -> None:
        self._ready, self._step, self._phase, self._in_callback = ready, 0, Phase.OFF, False
        self._schedule = schedule if enabled else None
        self.enabled = enabled and schedule is None
        if self._schedule is not None:
            self._enter(self._schedule(0))

    @property
    def step_num(self) -> int:
        """The number of steps so far."""
        return self._step

    def step(self) -> None:
        """End a step of the program; the schedule chooses what the next one is for.

        Without a schedule steps are only counted. The end of a warm-up, and that of a cycle, wait for the ranges that
        were timed. Ranges that run meanwhile continue, unless the next step is not timed: then they are dropped.
        """
        if self._in_callback:
            raise RuntimeError("on_trace_ready calls step(): the program does that, after each of its steps")
        before = self._phase
        self._step += 1
        if self._schedule is None:
            return
        phase = self._schedule(self._step)
        if before is Phase.LAST:
            self._call_back()
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

    def _call_back(self) -> None:
        if self._ready is None:
            return
        self._in_callback = True
        try:
            self._ready(self)
        finally:
            self._in_callback = False

    def _finish_steps(self) -> None:
        active = self._phase in (Phase.ACTIVE, Phase.LAST)
        self._phase, self._schedule = Phase.OFF, None
        if active:
            self._call_back()
