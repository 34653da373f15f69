"""What a run shows while it goes on: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from bwprof.results.row import Row as PublicRow
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import find_grade
from bwprof.text.formatting import format_seconds
from bwprof.text.parsing import escape_controls
from bwprof.text.terminal import make_console


class SilentProgress:
    """Shows nothing; the base of those that do."""

    def stage(self, text: str) -> None:
        """What is being prepared."""

    def ahead(self, least: float, most: float) -> None:
        """How many seconds the cases that follow take, by an estimate."""

    def begin(self, total: int) -> None:
        """That many cases follow, of one device."""

    def case(self, title: str) -> None:
        """The case that runs now."""

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:
        """A case is finished; its raw samples, ns per launch."""

    def again(self, row: RowDict) -> None:
        """A second try of a finished case is over; its row, which may take the first one's place."""

    def end(self) -> None:
        """No more cases; safe to call again."""


class LineProgress(SilentProgress):
    """One line per finished case."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = 0
        self._done = 0

    def stage(self, text: str) -> None:
        self._say(f"bwprof: {text}")

    def ahead(self, least: float, most: float) -> None:
        self._say(f"bwprof: {format_time_range(least, most)}")

    def begin(self, total: int) -> None:
        self._total, self._done = total, 0

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:  # noqa: ARG002 - a line has none
        self._done += 1
        width = len(str(self._total))
        self._say(f"[{self._done:{width}}/{self._total}] {describe_row(row)}")

    def _say(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


_BAR_WIDTH = 24

_BESIDE = 24  # columns that count, times and gaps take beside the bar


class BarProgress(SilentProgress):
    """A bar with the current case and the time left; finished cases scroll by above it, a line each."""

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
        self._bar.update(self._task, description=self._cut(text))

    def ahead(self, least: float, most: float) -> None:
        self._bar.console.print(f"bwprof: {format_time_range(least, most)}")

    def begin(self, total: int) -> None:
        self._bar.reset(self._task, total=total)

    def case(self, title: str) -> None:
        self._bar.update(self._task, description=self._cut(title))

    def _cut(self, text: str) -> str:
        return escape_controls(text)[: self._title_width].ljust(self._title_width)

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:  # noqa: ARG002 - a bar has none
        measured = row["status"] == "ok"  # why one is not is told to the end
        self._bar.console.print(describe_row(row), no_wrap=measured, overflow="ellipsis" if measured else "fold")
        self._bar.advance(self._task)

    def end(self) -> None:
        self._bar.stop()


class CallbackProgress(SilentProgress):
    """Calls the user's function with (done, total, row)."""

    def __init__(self, function: Callable[[int, int, PublicRow], object]) -> None:
        self._function = function
        self._total = 0
        self._done = 0

    def begin(self, total: int) -> None:
        self._total, self._done = total, 0

    def row(self, row: RowDict, samples: Sequence[float] = ()) -> None:
        self._done += 1
        self._function(self._done, self._total, PublicRow(row, samples))


def choose_progress(*, quiet: bool = False) -> SilentProgress:
    """Return a bar where standard error is a terminal, lines where it is not; nothing when quiet."""
    if quiet:
        return SilentProgress()
    return BarProgress(sys.stderr) if sys.stderr.isatty() else LineProgress(sys.stderr)


def describe_row(row: RowDict) -> str:
    """A finished row in one line."""
    name = " ".join(str(part) for part in (row["case"], row["precision"], row["variant"]) if part)
    if row["status"] != "ok":
        return f"{name}: {row['status']}: {row['reason']}"
    words = [f"{name}: {_time(row['time_ms'])}"]
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
    """An estimate of seconds in words."""
    shortest, longest = format_seconds(least), format_seconds(most)
    return f"about {shortest}" if shortest == longest else f"{shortest} to {longest}: less where cases settle soon"


def _time(milliseconds: Any) -> str:
    return f"{milliseconds:.4g} ms" if milliseconds >= 1 else f"{milliseconds * 1e3:.4g} us"
