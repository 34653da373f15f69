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

_LEAST_TICKS = 3  # of the processors' clocks, which count in steps: fewer are no measurement

# Columns of a processor's line in /proc/stat, in ticks: user, nice, system, then idle and iowait, irq, softirq, steal.
_BUSY = (0, 1, 2, 5, 6, 7)


@dataclass(slots=True)
class Others:
    """`share`: processor time of other processes over all that there was; 0 until known, and where it is not."""

    share: float = 0.0


def busy_seconds(text: str, processors: set[int], ticks_per_second: float) -> float | None:
    """Time that these processors have worked, for anybody, from the text of /proc/stat; None when it does not say."""
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
    """Fills an `Others` at the end of the block; not on a GPU, whose speed the host's processes do not touch."""
    others = Others()
    if not _core.backend_facts(backend)["runs_on_host"]:
        yield others
        return
    processors = os.sched_getaffinity(0)
    begun = _now(processors)
    yield others
    ended = _now(processors)
    if begun is None or ended is None:
        return
    wall, busy, own = (end - begin for begin, end in zip(begun, ended, strict=True))
    if wall > 0 and busy - own >= _LEAST_TICKS / os.sysconf("SC_CLK_TCK"):
        others.share = (busy - own) / (wall * len(processors))


def _now(processors: set[int]) -> tuple[float, float, float] | None:
    """Wall, busy and this process's own seconds; None where the system does not tell."""
    try:
        busy = busy_seconds(STATISTICS.read_text(), processors, os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError):
        return None
    return None if busy is None else (time.monotonic(), busy, time.process_time())


NOISY_WAITED = 0.02  # of the sampling time

NOISY_THROTTLED = 0.02

NOISY_STOLEN = 0.05

NOISY_PRESSED = 0.01

_MOST_SHARE = 0.99  # of which something can be told

NOISY_SLOWED = 0.10  # most reference streams; where nobody disturbs them they differ by about half of that


@dataclass(frozen=True, slots=True)
class References:
    """What the reference streams beside a measurement took, ns: the upper quartile of its own, and the lowest median of
    any that its device's handle had seen until then; `slowed` is by how much they were seen to be slower than they can,
    `others` how many times longer everything else may have made the samples take.
    """

    upper_ns: float
    best_ns: float
    slowed: float
    others: float = 1.0

    @classmethod
    def of(cls, result: Mapping[str, float]) -> References | None:
        """Of a measurement's result; None where there were none."""
        slowed = result["slowed_share"]
        found = cls(result["reference_ns"], result["best_reference_ns"], slowed, _longer(result) or 1.0)
        return found if found.best_ns > 0 and slowed < math.inf and not _is_throttled(result) else None

    def held_against(self, best_ns: float) -> float:
        """`slowed`, once a stream has been seen that may be better than those until then."""
        return max(self.slowed, self.upper_ns / best_ns - 1)

    def prolonged_pct(self, slowed: float) -> float:
        """The same as the function of this name says, once `slowed` is known."""
        return 100 * ((1 + max(slowed, 0.0)) * self.others - 1)


def prolonged_pct(result: Mapping[str, float]) -> float | None:
    """How much longer others may have made the launches take, in percent; None where nothing is known (a GPU).

    Where threads waited for a CPU for half of the time, what they did may have taken twice as long; likewise of each
    share, and all of them together.
    """
    others, slowed = _longer(result), result["slowed_share"]
    if others is None and math.isnan(slowed):
        return None
    return 100 * ((1 if math.isnan(slowed) else 1 + max(slowed, 0.0)) * (others or 1.0) - 1)


def _longer(result: Mapping[str, float]) -> float | None:
    """How many times longer the launches may have taken for all but their memory; None where nothing is known."""
    shares = [result.get(f"{name}_share", math.nan) for name in ("waited", "throttled", "stolen", "pressed")]
    known = [min(share, _MOST_SHARE) for share in shares if not math.isnan(share)]
    return 1 / math.prod(1 - share for share in known) if known else None


def describe_disturbances(result: dict[str, Any]) -> list[str]:
    """What a measurement says of others (processes, the hypervisor's other guests) that used the CPUs meanwhile, and of
    the container's quota.

    A share that is not known is NaN, and above no limit.
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
    """What reference streams say that were slowed by that share; nothing of one that is ordinary."""
    return [_SLOWED.format(f"{share:.0%}")] if share > NOISY_SLOWED else []


def replace_disturbance(reason: str | None, said: str) -> str:
    """A row's reason with what `slowed_by` says now, in the place of what it said before."""
    found, count = _SLOWED_BEFORE.subn(said, reason or "")
    return found if count else f"{reason}; {said}" if reason else said


_SLOWED = "a reference stream beside the samples took {} longer than it can: others use the memory"

_SLOWED_BEFORE = re.compile(_SLOWED.format(r"\S+"))
