"""Find signs that something else used the device during a measurement."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bwprof import _core

STATISTICS = Path("/proc/stat")
_LEAST_TICKS = 3  # of the processors' clocks: fewer are within the clocks' resolution

# Columns of a processor's line in /proc/stat, in ticks: user, nice, system, then idle and iowait, irq, softirq, steal.
_BUSY = (0, 1, 2, 5, 6, 7)


@dataclass(slots=True)
class Others:
    """`share`: processor time of other processes over all processor time; 0 where unknown."""

    share: float = 0.0


def busy_seconds(text: str, processors: set[int], ticks_per_second: float) -> float | None:
    """Return the seconds that these processors were busy, from the text of /proc/stat; None where it lacks them."""
    names = {f"cpu{number}" for number in processors}
    total, seen = 0, 0
    for line in text.splitlines():
        name, *numbers = line.split()
        if name not in names:
            continue
        if len(numbers) <= max(_BUSY) or not all(number.isdigit() for number in numbers):
            return None
        total += sum(int(numbers[column]) for column in _BUSY)
        seen += 1
    return total / ticks_per_second if seen == len(names) else None


@contextmanager
def watch_others(backend: str) -> Iterator[Others]:
    """Yield an `Others`, filled at the end of the block; on a GPU it stays 0: the host's processes do not slow it."""
    others = Others()
    if not _core.backend_facts(backend)["runs_on_host"]:
        yield others
        return
    processors = os.sched_getaffinity(0)
    begun = _read_clocks(processors)
    yield others
    ended = _read_clocks(processors)
    if begun is None or ended is None:
        return
    wall, busy, own = (end - begin for begin, end in zip(begun, ended, strict=True))
    if wall > 0 and busy - own >= _LEAST_TICKS / os.sysconf("SC_CLK_TCK"):
        others.share = (busy - own) / (wall * len(processors))


def _read_clocks(processors: set[int]) -> tuple[float, float, float] | None:
    """Return wall, busy and this process's own seconds; None where the system has no counters."""
    try:
        busy = busy_seconds(STATISTICS.read_text(), processors, os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError):
        return None
    return None if busy is None else (time.monotonic(), busy, time.process_time())


NOISY_WAITED = 0.02  # of the sampling time
NOISY_THROTTLED = 0.02
NOISY_STOLEN = 0.05
NOISY_PRESSED = 0.01
_MOST_SHARE = 0.99  # larger shares make the ratio infinite
NOISY_SLOWED = 0.10  # undisturbed reference streams differ by about half of that


@dataclass(frozen=True, slots=True)
class References:
    """Times of the reference streams beside a measurement."""

    upper_ns: float  # the upper quartile of its own streams
    best_ns: float  # the lowest median that the device's handle has seen until then
    slowed: float  # the fraction by which its streams are slower than the best
    others: float = 1.0  # the factor by which everything but memory may have prolonged the samples

    @classmethod
    def of(cls, result: Mapping[str, float]) -> References | None:
        """Read the references of a measurement's result; None where it has none."""
        slowed = result["slowed_share"]
        found = cls(result["reference_ns"], result["best_reference_ns"], slowed, _prolonging_factor(result) or 1.0)
        return found if found.best_ns > 0 and slowed < math.inf and not _is_throttled(result) else None

    def compare(self, best_ns: float) -> float:
        """Return `slowed` once a stream took `best_ns`."""
        return max(self.slowed, self.upper_ns / best_ns - 1)

    def prolonged_pct(self, slowed: float) -> float:
        """Return `prolonged_pct` of the measurement once `slowed` is known."""
        return 100 * ((1 + max(slowed, 0.0)) * self.others - 1)


def prolonged_pct(result: Mapping[str, float]) -> float | None:
    """Return how much others may have prolonged the launches, in percent; None where it is unknown (a GPU).

    Threads that waited for a CPU half of the time may have taken twice as long. The factors of all shares multiply.
    """
    others, slowed = _prolonging_factor(result), result["slowed_share"]
    if others is None and math.isnan(slowed):
        return None
    return 100 * ((1 if math.isnan(slowed) else 1 + max(slowed, 0.0)) * (others or 1.0) - 1)


def _prolonging_factor(result: Mapping[str, float]) -> float | None:
    """Return the factor of all causes but memory; None where none is known."""
    shares = [result.get(f"{name}_share", math.nan) for name in ("waited", "throttled", "stolen", "pressed")]
    known = [min(share, _MOST_SHARE) for share in shares if not math.isnan(share)]
    return 1 / math.prod(1 - share for share in known) if known else None


def describe_disturbances(result: dict[str, Any]) -> list[str]:
    """Return signs, in words, that other processes, other guests or the container's quota slowed the CPUs.

    An unknown share is NaN, which is above no limit.
    """
    waited, stolen = result["waited_share"], result["stolen_share"]
    pressed, slowed = result["pressed_share"], result["slowed_share"]
    found = []
    throttled = _is_throttled(result)
    if waited > NOISY_WAITED:
        cause = "" if throttled else ": something else runs on it"
        found.append(f"threads waited for a CPU {waited:.0%} of the time{cause}")
    if throttled:
        slowed = 0.0  # the streams were held back as well
        found.append(f"the container's own CPU quota held threads back {result['throttled_share']:.0%} of the time")
    if stolen > NOISY_STOLEN:
        found.append(f"the hypervisor took the CPUs {stolen:.0%} of the time")
    if pressed > NOISY_PRESSED:
        found.append(f"processes waited for memory {pressed:.0%} of the time")
    return found + describe_slowdown(slowed)


def _is_throttled(result: Mapping[str, float]) -> bool:
    return result.get("throttled_share", 0.0) > NOISY_THROTTLED


def describe_slowdown(share: float) -> list[str]:
    """Return a sentence on reference streams that were slowed by this share; none for an ordinary share."""
    return [_SLOWED.format(f"{share:.0%}")] if share > NOISY_SLOWED else []


def replace_disturbance(reason: str | None, text: str) -> str:
    """Return a row's reason with the sentence of `describe_slowdown` replaced or added."""
    found, count = _SLOWED_BEFORE.subn(text, reason or "")
    return found if count else f"{reason}; {text}" if reason else text


_SLOWED = "a reference stream beside the samples took {} longer than it can: others use the memory"
_SLOWED_BEFORE = re.compile(_SLOWED.format(r"\S+"))
