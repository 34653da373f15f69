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
        needed = "a bwprof.Schedule is needed, a mapping of its numbers, or one of torch.profiler.schedule"
        raise TypeError(f"schedule is {repr_short(schedule)}: {needed}")
    choose = schedule

    def phase(step: int) -> Phase:
        action = choose(step)
        if isinstance(action, Phase):
            return action
        name = str(getattr(action, "name", action))
        if name not in _ACTIONS:
            allowed = ", ".join(_ACTIONS)
            raise ValueError(f"the schedule says {repr_short(action)} of step {step}: allowed are {allowed}")
        return _ACTIONS[name]

    return phase
