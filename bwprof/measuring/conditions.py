"""The conditions that a case was measured under, and one more try when heat held the clock down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bwprof.measuring.grade import throttle_reasons
from bwprof.results import schema
from bwprof.results.schema import Row

COOL_SECONDS = 3.0  # to wait at most before the second try
_STEP_SECONDS = 0.05
_THERMAL = frozenset({"sw_thermal", "hw_thermal"})
_NUMBERS = ("energy_j", "power_w", "sm_clock_mhz", "mem_clock_mhz", "temperature_c")

Result = dict[str, Any]


def fill(row: Row, conditions: dict[str, Any]) -> None:
    """The row's columns of conditions; what is not known stays empty."""
    row.update({name: None if schema.is_missing(conditions[name]) else conditions[name] for name in _NUMBERS})
    row["throttle"] = conditions["throttle"] or None


def is_hot(conditions: dict[str, Any]) -> bool:
    """Heat held the clock down."""
    return not _THERMAL.isdisjoint(throttle_reasons(conditions))


def may_repeat(deadline: float | None, max_seconds: float) -> Callable[[], bool]:
    """Whether there is time for a second measurement, when asked."""
    return lambda: deadline is None or time.monotonic() + COOL_SECONDS + max_seconds < deadline


def measure_cool(
    measure: Callable[[], Result],
    conditions: Callable[[], dict[str, Any]],
    poll: Callable[[], object] | None = None,
    *,
    may_repeat: Callable[[], bool] = lambda: True,
    pause: Callable[[float], object] = time.sleep,
) -> tuple[Result, float]:
    """Measure; where heat held the clock down, wait until it does no more and measure once again.

    Parameters
    ----------
    measure : callable
        One whole measurement: its result, with `conditions`.
    conditions : callable
        What the device's sensors say now.
    poll : callable, optional
        Called while waiting; what it raises ends the wait.
    may_repeat : callable
        There is time for it.
    pause : callable
        Waits for so many seconds.

    Returns
    -------
    tuple
        The last result, and the seconds waited before it; 0 where there was one measurement only.
    """
    result = measure()
    if not is_hot(result["conditions"]) or not may_repeat():
        return result, 0.0
    waited = 0.0
    while waited < COOL_SECONDS:
        if poll is not None:
            poll()
        pause(_STEP_SECONDS)
        waited += _STEP_SECONDS
        if not is_hot(conditions()):
            break
    return measure(), waited
