"""Show the progress of a run as a bar on a terminal, as lines elsewhere, or not at all; record it as a trace."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

from bwprof.results.exchange import Slice, TraceDocument, counter_points
from bwprof.results.row import Row as PublicRow
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import find_grade
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import escape_controls
from bwprof.text.terminal import make_console


class SilentProgress:
    """Show nothing; the base of the other kinds."""

    total = done = 0  # cases of a device

    def stage(self, text: str) -> None:
        """Show what is being prepared."""

    def ahead(self, least: float, most: float) -> None:
        """Show the estimated seconds of the cases that follow."""

    def begin(self, total: int) -> None:
        """Begin a device's cases."""
        self.total, self.done = total, 0

    def case(self, text: str) -> None:
        """Show the case that runs now."""

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:  # noqa: ARG002 - for others
        """Show a finished case; `samples` are its raw samples, ns per launch."""
        self.done += 1

    def again(self, row: RowDict) -> None:
        """Show the row of a second try, which may replace the first."""

    def end(self) -> None:
        """End the display; may be called again."""


class LineProgress(SilentProgress):
    """Write one line per finished case."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def stage(self, text: str) -> None:
        self._write(f"bwprof: {text}")

    def ahead(self, least: float, most: float) -> None:
        self._write(f"bwprof: {format_time_range(least, most)}")

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:
        super().row(row, samples)
        self._write(f"[{self.done:{len(str(self.total))}}/{self.total}] {describe_row(row)}")

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


_BAR_WIDTH = 24
_BESIDE = 24  # columns of count, times and gaps beside the bar


class BarProgress(SilentProgress):
    """Show a bar with the current case and the time left; finished cases scroll by above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        screen = make_console(stream)
        self._title_width = max(8, min(48, screen.width - _BAR_WIDTH - _BESIDE))
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_BAR_WIDTH),
            MofNCompleteColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(compact=True),
            console=screen,
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("starting", total=None)

    def stage(self, text: str) -> None:
        title = escape_controls(text)[: self._title_width].ljust(self._title_width)
        self._bar.update(self._task, description=title)

    case = stage

    def ahead(self, least: float, most: float) -> None:
        self._bar.console.print(f"bwprof: {format_time_range(least, most)}")

    def begin(self, total: int) -> None:
        self._bar.reset(self._task, total=total)

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:  # noqa: ARG002 - a bar has none
        measured = row["status"] == "ok"  # else the reason is shown in full
        self._bar.console.print(describe_row(row), no_wrap=measured, overflow="ellipsis" if measured else "fold")
        self._bar.advance(self._task)

    def end(self) -> None:
        self._bar.stop()


class CallbackProgress(SilentProgress):
    """Call the user's function with (done, total, row)."""

    def __init__(self, function: Callable[[int, int, PublicRow], object]) -> None:
        self._function = function

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:
        super().row(row, samples)
        self._function(self.done, self.total, PublicRow(row, samples))


def choose_progress(*, quiet: bool = False) -> SilentProgress:
    """Return a bar where standard error is a terminal, else lines; nothing when quiet."""
    if quiet:
        return SilentProgress()
    return BarProgress(sys.stderr) if sys.stderr.isatty() else LineProgress(sys.stderr)


def _name_row(row: RowDict) -> str:
    return " ".join(str(row[part]) for part in ("case", "precision", "variant") if row[part])


def describe_row(row: RowDict) -> str:
    """Format a finished row in one line."""
    name = _name_row(row)
    if row["status"] != "ok":
        return f"{name}: {row['status']}: {row['reason']}"
    time_ms = row["time_ms"]
    words = [f"{name}: {time_ms:.4g} ms" if time_ms >= 1 else f"{name}: {time_ms * 1e3:.4g} us"]
    if row["bandwidth_gb_s"] is not None:
        words.append(f"{row['bandwidth_gb_s']:.4g} GB/s")
    if row["flops"]:
        words.append(f"{row['tflops'] * 1e3:.4g} GFLOP/s")
    grade = find_grade(row)
    if grade is not None:
        words.append(f"{grade[0]:.0f} % of {'the arithmetic rate' if grade[1] else 'attainable'}")
    if row["flags"]:
        words.append(f"[{row['flags']}]")
    return ", ".join(words)


def format_time_range(least: float, most: float) -> str:
    """Format an estimate in seconds."""
    shortest, longest = format_seconds(least), format_seconds(most)
    return f"about {shortest}" if shortest == longest else f"{shortest} to {longest}: less where cases settle soon"


_FIGURES = (
    *("bytes_read", "bytes_written", "flops", "time_ms", "bandwidth_gb_s", "pct_attainable", "bound", "samples"),
    *("flags", "status", "reason"),
)


class Timeline(SilentProgress):
    """Record the progress of a run and forward it to another `SilentProgress`."""

    def __init__(self, progress: SilentProgress | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.inner = progress or SilentProgress()  # that it forwards to
        self._clock = clock
        self._began = clock()
        self._current: tuple[str, float] | None = None  # name and begin
        self._stages: list[Slice] = []
        self._cases: dict[str, list[tuple[str, float, float, RowDict]]] = {}  # by device: name, begin, duration

    def stage(self, text: str) -> None:
        self._switch_to(text)
        self.inner.stage(text)

    def ahead(self, least: float, most: float) -> None:
        self.inner.ahead(least, most)

    def begin(self, total: int) -> None:
        self._switch_to(None)
        self.inner.begin(total)

    def case(self, text: str) -> None:
        self._switch_to(text)
        self.inner.case(text)

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:
        self._record(row)
        self.inner.row(row, samples)

    def again(self, row: RowDict) -> None:
        self._record(row, " once more")
        self.inner.again(row)

    def _record(self, row: RowDict, suffix: str = "") -> None:
        if self._current is not None:  # else it did not run
            where = f"{row['backend']} {row['device'] or ''} {row['device_uuid'] or ''}".strip()
            _, begin = self._current
            self._cases.setdefault(where, []).append((_name_row(row) + suffix, begin, self._now() - begin, row))
            self._current = None

    def end(self) -> None:
        self._switch_to(None)
        self.inner.end()

    def text(self, run: Mapping[str, Any]) -> str:
        """Return the trace so far as JSON; `run` is the run's metadata."""
        trace = TraceDocument({"run_id": str(run.get("run_id", ""))})
        process = trace.process("bwprof")
        trace.track(process, "run", self._stages)
        for device, measured in self._cases.items():
            cases = []
            for name, begin, lasted, row in measured:
                figures = {figure: row[figure] for figure in _FIGURES if row[figure] is not None}
                cases.append(Slice(name, begin, lasted, figures))  # now: later rows may have added a flag
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
