"""Record a run as a trace: its stages, each case while it was measured, and one launch of each case."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bwprof.results.exchange import Slice, TraceDocument, counter_points
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
    """Record the progress of a run and forward it to another `SilentProgress`."""

    def __init__(self, progress: SilentProgress | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._next = progress or SilentProgress()
        self._clock = clock
        self._began = clock()
        self._current: tuple[str, float] | None = None  # name and begin
        self._stages: list[Slice] = []
        self._cases: dict[str, list[tuple[str, float, float, RowDict]]] = {}  # by device: name, begin, duration

    def forward_to(self, progress: SilentProgress) -> Timeline:
        """Forward to `progress` from now on; return self."""
        self._next = progress
        return self

    def stage(self, text: str) -> None:
        self._switch_to(text)
        self._next.stage(text)

    def ahead(self, least: float, most: float) -> None:
        self._next.ahead(least, most)

    def begin(self, total: int) -> None:
        self._switch_to(None)
        self._next.begin(total)

    def case(self, title: str) -> None:
        self._switch_to(title)
        self._next.case(title)

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:
        self._record(row)
        self._next.row(row, samples)

    def again(self, row: RowDict) -> None:
        self._record(row, " once more")
        self._next.again(row)

    def _record(self, row: RowDict, suffix: str = "") -> None:
        if self._current is not None:  # else it did not run
            name = " ".join(str(row[part]) for part in ("case", "precision", "variant") if row[part]) + suffix
            where = f"{row['backend']} {row['device'] or ''} {row['device_uuid'] or ''}".strip()
            _, begin = self._current
            self._cases.setdefault(where, []).append((name, begin, self._now() - begin, row))
            self._current = None

    def end(self) -> None:
        self._switch_to(None)
        self._next.end()

    def text(self, run: Mapping[str, Any]) -> str:
        """Return the trace so far as JSON; `run` is the run's metadata."""
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

    def _switch_to(self, name: str | None) -> None:
        """End the current stage and begin another; None: nothing with a name."""
        now = self._now()
        if self._current is not None:
            before, begin = self._current
            self._stages.append(Slice(before, begin, now - begin))
        self._current = None if name is None else (name, now)


def _figures(row: RowDict) -> dict[str, Any]:
    """Return the row's figures now: later rows may have added a flag."""
    return {figure: row[figure] for figure in _FIGURES if row[figure] is not None}
