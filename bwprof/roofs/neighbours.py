"""Who else used the device meanwhile: what is measured on a busy machine is too slow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
def watched(backend: str) -> Iterator[Others]:
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
