"""What a run did when, as a trace: what was prepared, each case while it was measured, and one launch of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bwprof.results.export import Slice, TraceDocument, counter_points
from bwprof.results.schema import RowDict
from bwprof.runs.progress import SilentProgress

_FIGURES = (
    "bytes_read",
    "bytes_written",
    "flops",
    "time_ms",
    "bandwidth_gb_s",
    "pct_attainable",
    "bound",
    "samples",
    "flags",
    "status",
    "reason",
)


class Timeline(SilentProgress):
    """Notes what it is told, and tells another one."""

    def __init__(self, shown: SilentProgress | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._shown = shown or SilentProgress()
        self._clock = clock
        self._began = clock()
        self._since: tuple[str, float] | None = None  # what goes on now
        self._stages: list[Slice] = []
        self._cases: dict[str, list[tuple[str, float, float, RowDict]]] = {}  # by device: name, begin, duration

    def telling(self, shown: SilentProgress) -> Timeline:
        """Itself, which tells this one from now on."""
        self._shown = shown
        return self

    def stage(self, text: str) -> None:
        self._turn_to(text)
        self._shown.stage(text)

    def ahead(self, least: float, most: float) -> None:
        self._shown.ahead(least, most)

    def begin(self, total: int) -> None:
        self._turn_to(None)
        self._shown.begin(total)

    def case(self, title: str) -> None:
        self._turn_to(title)
        self._shown.case(title)

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:
        self._measured(row)
        self._shown.row(row, samples)

    def again(self, row: RowDict) -> None:
        self._measured(row, " once more")
        self._shown.again(row)

    def _measured(self, row: RowDict, more: str = "") -> None:
        if self._since is not None:  # else it had no turn
            name = " ".join(str(row[part]) for part in ("case", "precision", "variant") if row[part]) + more
            where = f"{row['backend']} {row['device'] or ''} {row['device_uuid'] or ''}".strip()
            _, begin = self._since
            self._cases.setdefault(where, []).append((name, begin, self._now() - begin, row))
            self._since = None

    def end(self) -> None:
        self._turn_to(None)
        self._shown.end()

    def text(self, run: Mapping[str, Any]) -> str:
        """The trace so far of a run with that metadata."""
        trace = TraceDocument({"run_id": str(run.get("run_id", ""))})
        process = trace.process("bwprof")
        trace.track(process, "run", self._stages)
        for device, measured in self._cases.items():
            cases = [Slice(name, begin, lasted, _figures(row)) for name, begin, lasted, row in measured]
            process = trace.process(device)
            trace.track(process, "cases, while they were measured", cases)
            timed = [case for case in cases if case.figures.get("time_ms") is not None]
            launches = [replace(case, duration_us=case.figures["time_ms"] * 1e3) for case in timed]
            trace.track(process, "one launch of each case, of median time", launches)
            trace.counter(process, "GB/s", counter_points(cases, "bandwidth_gb_s"))
        return trace.text()

    def _now(self) -> float:
        return (self._clock() - self._began) * 1e6

    def _turn_to(self, name: str | None) -> None:
        """What went on is over; now something else does, or nothing that has a name."""
        now = self._now()
        if self._since is not None:
            before, begin = self._since
            self._stages.append(Slice(before, begin, now - begin))
        self._since = None if name is None else (name, now)


def _figures(row: RowDict) -> dict[str, Any]:
    """What a row says now: what comes after it may have made it doubtful."""
    return {figure: row[figure] for figure in _FIGURES if row[figure] is not None}
