"""When two measurements differ: the rule, in one place."""

from __future__ import annotations

import math
from typing import Any

from bwprof.results.schema import Row, is_missing

DEFAULT_GATE = 0.03
DISTURBED = frozenset({"noisy", "throttled"})


def comparable(row: Row) -> bool:
    """Whether a row's time is worth comparing: measured, and not flagged as disturbed.

    Examples
    --------
    >>> comparable({"status": "ok", "flags": "near_timer_floor"}), comparable({"status": "ok", "flags": "noisy"})
    (True, False)
    """
    return row["status"] == "ok" and not disturbances(row)


def disturbances(row: Row) -> list[str]:
    """The flags that make a row's time tell nothing."""
    return [word for word in flags_of(row) if word in DISTURBED]


def doubts(row: Row) -> list[str]:
    """What makes a row doubtful, however well it was timed: a result that nobody checked, bytes that cannot be.

    Examples
    --------
    >>> doubts({"flags": "near_timer_floor;unverified"}), doubts({"flags": "above_attainable", "verified": False})
    (['unverified'], ['unverified', 'above_attainable'])
    """
    flags, verified = flags_of(row), row.get("verified")
    wrong = not is_missing(verified) and not verified
    unchecked = ["unverified"] if "unverified" in flags or wrong else []
    return unchecked + [word for word in flags if word == "above_attainable"]


def flags_of(row: Row) -> list[str]:
    """Return a row's flags, as words."""
    found = row.get("flags")
    return [] if is_missing(found) else str(found).split(";")


def differ(one: Row, other: Row, *, gate: float = DEFAULT_GATE) -> bool:
    """Whether two rows have different times.

    Their 95 % confidence intervals must not overlap, and their medians must differ by more than `gate` of the smaller
    one. The interval tells the scatter within a measurement; the gate is for what changes between measurements: other
    addresses, another clock, another process. The default comes from A/A comparisons (``python -m bwprof.selftest
    repeat``).

    What cannot be said to be the same differs: a gate must not be passed by a case that crashed. Without a time on
    either side the answer is True; where an interval is missing, the gate alone decides; one of too few samples is
    infinite, and overlaps with all.

    Parameters
    ----------
    one, other : dict
        Rows with time_ms, time_ms_lo and time_ms_hi; None and NaN are missing.
    gate : float
        The smallest difference worth a word, as a fraction.

    Examples
    --------
    >>> fast = {"time_ms": 1.00, "time_ms_lo": 0.99, "time_ms_hi": 1.01}
    >>> slow = {"time_ms": 1.05, "time_ms_lo": 1.04, "time_ms_hi": 1.06}
    >>> differ(fast, slow), differ(fast, slow, gate=0.1), differ(fast, fast)
    (True, False, False)
    >>> differ(fast, {"time_ms": None}), differ(fast, {"time_ms": 1.02}), differ(fast, {"time_ms": 1.04})
    (True, False, True)
    """
    if not (_is_time(one.get("time_ms")) and _is_time(other.get("time_ms"))):
        return True
    first, second = sorted((one, other), key=lambda row: float(row["time_ms"]))
    high: Any = first.get("time_ms_hi")
    low: Any = second.get("time_ms_lo")
    apart = is_missing(high) or is_missing(low) or float(high) < float(low)
    return bool(apart and second["time_ms"] - first["time_ms"] > gate * first["time_ms"])


def _is_time(value: Any) -> bool:
    return not is_missing(value) and math.isfinite(value)
