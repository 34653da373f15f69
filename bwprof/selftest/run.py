"""Runs the parts that were asked for on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bwprof import _core, hardware, registry
from bwprof.selftest import cache, counters, repeat, timers
from bwprof.selftest.part import Bench, Report
from bwprof.text import unknown

PARTS: dict[str, Callable[[Bench], Report]] = {
    timers.NAME: timers.run,
    cache.NAME: cache.run,
    counters.NAME: counters.run,
    repeat.NAME: repeat.run,
}


def run(
    parts: Sequence[str],
    *,
    quick: bool,
    backend: str | None,
    device: hardware.Device,
    progress: Callable[[str], object] | None = None,
    poll: Callable[[], object] | None = None,
    show: Callable[[Report], object] | None = None,
) -> dict[str, Any]:
    """The parts' reports as a dict; see `bwprof.selftest`. `show` gets each report when it is there."""
    for name in parts:
        if name not in PARTS:
            raise ValueError(unknown("part of the self-test", name, PARTS))
    choice = hardware.choose(backend, device)
    reports: list[Report] = []
    with hardware.opened(choice.backend, choice.index) as opened:
        facts = hardware.facts(opened)
        bench = Bench(
            device=opened,
            backend=choice.backend,
            index=choice.index,
            facts=facts,
            timers=tuple(registry.timer_names(choice.backend)),
            quick=quick,
            say=progress or (lambda _: None),
            poll=poll or (lambda: None),
        )
        for name, part in PARTS.items():
            if parts and name not in parts:
                continue
            reports.append(part(bench))
            if show is not None:
                show(reports[-1])
    return {
        "passed": all(report.passed is not False for report in reports),
        "bwprof": _core.__version__,
        "backend": choice.backend,
        "device": choice.name,
        "quick": quick,
        "facts": facts,
        "parts": [report.to_dict() for report in reports],
    }
