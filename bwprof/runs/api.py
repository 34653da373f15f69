"""The Python function's run: in this process, into a frame."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import environment, hardware
from bwprof.errors import SweepError, attach_frame
from bwprof.hardware import Choice
from bwprof.measuring.row import Outcome
from bwprof.results.atomic import atomic_write, has_content
from bwprof.results.row import Row
from bwprof.results.writer import Store
from bwprof.roofs.model import RoofsArgument
from bwprof.runs import metadata, plan
from bwprof.runs.local import LocalExecutor
from bwprof.runs.loop import Executor, T, TimeBudget
from bwprof.runs.metadata import DevicePart, Finisher, finish_nothing
from bwprof.runs.progress import CallbackProgress, SilentProgress, choose_progress
from bwprof.runs.timeline import Timeline
from bwprof.text.parsing import is_bool, parse_bool, parse_path, parse_seconds, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

ProgressArgument = bool | Callable[[int, int, Row], object] | None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run in this process goes, whatever it measures: what limits it, what its rows are held against, where they
    go, and who is told. See `bwprof.sweep`.

    Raises
    ------
    TypeError, ValueError
        For what none of them can be, and for two that contradict each other.
    """

    max_total_seconds: float | None = None
    roofs: RoofsArgument = "auto"
    recalibrate: bool = False
    labels: Mapping[str, Any] = field(default_factory=dict)
    output: str | PathLike[str] | None = None
    force: bool = False
    progress: ProgressArgument = None
    trace: str | PathLike[str] | None = None
    nvtx: bool | None = None

    def __post_init__(self) -> None:
        if parse_bool(self.recalibrate, "recalibrate") and self.roofs != "auto":
            raise ValueError("roofs= and recalibrate=True contradict each other: leave one out")
        parse_bool(self.force, "force")
        if self.nvtx is not None:
            parse_bool(self.nvtx, "nvtx")
        if not (self.progress is None or is_bool(self.progress) or callable(self.progress)):
            raise TypeError(f"progress is {repr_short(self.progress)}: allowed are True, False and a callable")
        if self.trace is not None:
            self._check_trace(parse_path(self.trace, "trace"))
        if self.max_total_seconds is not None:
            object.__setattr__(self, "max_total_seconds", parse_seconds(self.max_total_seconds, "max_total_seconds"))

    def _check_trace(self, target: Path) -> None:
        """What would keep it from being written, before anything is measured."""
        if has_content(target) and not self.force:
            said = "exists already: name another file, or replace it with force=True"
            raise FileExistsError(errno.EEXIST, said, str(target))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(target))
        if self.output is not None and os.path.realpath(target) == os.path.realpath(parse_path(self.output, "output")):
            raise ValueError(f"trace and output are both {quote_text(target)}: name another file for one of them")
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "its folder is not there", str(target))


class DeviceLostError(Exception):
    """Only a new process can use the device again."""


def run_sweep(request: plan.SweepRequest, how: RunOptions) -> pd.DataFrame:
    """Measure what was asked for; see `bwprof.sweep`."""
    started = time.monotonic()
    choices = hardware.choose_devices(request.backend, request.device)
    made = plan.make_plans(request, choices)
    choice, first = made[0]
    run_data = metadata.describe_run(environment.new_run_id(), first, choice, None, how.roofs)
    limits = TimeBudget(first.target_seconds, how.max_total_seconds, started, max_seconds=first.max_seconds)
    return measure_devices(
        metadata.make_parts(made, run_data),
        lambda one: LocalExecutor(one.backend, one.index, nvtx=how.nvtx),
        run_data,
        limits,
        how,
    )


def measure_device(
    items: Sequence[T],
    executor: Executor[T],
    run_data: dict[str, Any],
    limits: TimeBudget,
    how: RunOptions,
    settle: Finisher = finish_nothing,
) -> pd.DataFrame:
    """Measure all of them on one device; see `parts_into_frame`."""
    choice = Choice(run_data["backend"], run_data["device_index"], run_data["device"], "", "")
    return measure_devices(
        [DevicePart(choice, items, run_data)], lambda _choice: executor, run_data, limits, how, settle
    )


def measure_devices(
    parts: Sequence[DevicePart[T]],
    executor_of: Callable[[Choice], Executor[T]],
    run_data: dict[str, Any],
    limits: TimeBudget,
    how: RunOptions,
    settle: Finisher = finish_nothing,
) -> pd.DataFrame:
    """Measure all of them, with executors that are closed afterwards; the rows, which are in `output` as well."""
    store = _store_of(run_data, how.output, force=how.force)
    wanted = how.progress
    progress = Timeline(CallbackProgress(wanted) if callable(wanted) else choose_progress(quiet=not wanted))
    with _keeping_rows(store, progress), _keeping_trace(progress, store, how.trace):
        try:
            metadata.measure_parts(
                parts,
                executor_of,
                store,
                limits=limits,
                progress=progress,
                given=how.roofs,
                recalibrate=how.recalibrate,
                labels=how.labels,
                after=_stop_when_lost,
            )
        finally:
            settle(store)
    return _frame_of(store)


def _frame_of(store: Store) -> pd.DataFrame:
    """A run's rows so far."""
    from bwprof.results import frame as frames

    return frames.from_rows(store.rows, store.run, store.samples)


@contextmanager
def _keeping_rows(store: Store, progress: SilentProgress) -> Iterator[None]:
    """Around a run: its files are finished however it ends, and what ends it early has the finished rows as `frame`."""
    ending: BaseException | None = None
    try:
        try:
            yield
        finally:
            progress.end()
    except BaseException as error:
        ending = error
    interrupted = isinstance(ending, KeyboardInterrupt)
    try:
        store.finish("interrupted" if interrupted else "failed" if ending is not None else "complete")
    except (KeyboardInterrupt, OSError) as error:
        if ending is None:
            ending = error
        else:
            ending.add_note(f"beside that, results could not be written: {error}")
    if isinstance(ending, DeviceLostError):
        raise SweepError(str(ending), _frame_of(store)) from None
    if ending is None:
        return
    kept = attach_frame(ending, _frame_of(store))
    if kept is ending:
        raise ending
    raise kept from ending


@contextmanager
def _keeping_trace(timeline: Timeline, store: Store, target: str | PathLike[str] | None) -> Iterator[None]:
    """Around a run: its trace is written however it ends."""
    try:
        yield
    finally:
        if target is not None:
            atomic_write(parse_path(target, "trace"), timeline.text(store.run))


def _stop_when_lost(outcome: Outcome) -> None:
    """DeviceLostError after a row that cost the device."""
    if outcome.fatal:
        row = outcome.row
        cause = row["counters_status"] if row["status"] == "ok" else row["reason"]
        raise DeviceLostError(f"the device is lost, only a new process can use it again: {cause}")


def _store_of(run_data: dict[str, Any], output: str | PathLike[str] | None, *, force: bool) -> Store:
    """Where a run's rows go: memory, and the file that was named; `force` replaces one that holds something."""
    if output is None:
        return Store(run_data)
    try:
        path = Path(output)
    except TypeError:
        raise ValueError(f"output is {repr_short(output)}: a file ending in .csv or .json is needed") from None
    ending = path.suffix.lower()
    if ending not in (".csv", ".json"):
        raise ValueError(f"output is {repr_short(str(output))}: a file ending in .csv or .json is needed")
    if not force and has_content(path):
        said = "exists already: name another file, or replace it with force=True"
        raise FileExistsError(errno.EEXIST, said, str(path))
    return Store(run_data, csv_targets=[path]) if ending == ".csv" else Store(run_data, json_targets=[path])
