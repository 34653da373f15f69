"""Run a sweep in this process and return its rows as a frame."""

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
    """The options of a run in this process: limits, roofs, output, progress. See `bwprof.sweep`.

    Raises
    ------
    TypeError, ValueError
        For a value out of range, and for two options that contradict each other.
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
        """Raise before anything is measured where the trace could not be written."""
        _check_new(target, force=self.force)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(target))
        if self.output is not None and os.path.realpath(target) == os.path.realpath(parse_path(self.output, "output")):
            raise ValueError(f"trace and output are both {quote_text(target)}: name another file for one of them")
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "its folder is not there", str(target))


class DeviceLostError(Exception):
    """Only a new process can use the device again."""


def run_sweep(request: plan.SweepRequest, options: RunOptions) -> pd.DataFrame:
    """Measure a request; see `bwprof.sweep`."""
    started = time.monotonic()
    choices = hardware.choose_devices(request.backend, request.device)
    plans = plan.make_plans(request, choices)
    choice, first = plans[0]
    run_data = metadata.describe_run(environment.new_run_id(), first, choice, None, options.roofs)
    limits = TimeBudget(first.target_seconds, options.max_total_seconds, started, max_seconds=first.max_seconds)
    return measure_devices(
        metadata.make_parts(plans, run_data),
        lambda choice: LocalExecutor(choice.backend, choice.index, nvtx=options.nvtx),
        run_data,
        limits,
        options,
    )


def measure_device(
    items: Sequence[T],
    executor: Executor[T],
    run_data: dict[str, Any],
    limits: TimeBudget,
    options: RunOptions,
    finish: Finisher = finish_nothing,
) -> pd.DataFrame:
    """Measure items on one device; see `measure_devices`."""
    choice = Choice(run_data["backend"], run_data["device_index"], run_data["device"], "", "")
    return measure_devices(
        [DevicePart(choice, items, run_data)], lambda _choice: executor, run_data, limits, options, finish
    )


def measure_devices(
    parts: Sequence[DevicePart[T]],
    executor_of: Callable[[Choice], Executor[T]],
    run_data: dict[str, Any],
    limits: TimeBudget,
    options: RunOptions,
    finish: Finisher = finish_nothing,
) -> pd.DataFrame:
    """Measure all parts; return their rows, which are in `output` as well. Executors are closed afterwards."""
    store = _make_store(run_data, options.output, force=options.force)
    choice = options.progress
    progress = Timeline(CallbackProgress(choice) if callable(choice) else choose_progress(quiet=not choice))
    with _finish_files(store, progress), _write_trace(progress, store, options.trace):
        try:
            metadata.measure_parts(
                parts,
                executor_of,
                store,
                limits=limits,
                progress=progress,
                roofs=options.roofs,
                recalibrate=options.recalibrate,
                labels=options.labels,
                after=_stop_when_lost,
            )
        finally:
            finish(store)
    return _make_frame(store)


def _make_frame(store: Store) -> pd.DataFrame:
    from bwprof.results import frame as frames

    return frames.from_rows(store.rows, store.run, store.samples)


@contextmanager
def _finish_files(store: Store, progress: SilentProgress) -> Iterator[None]:
    """Finish a run's files however it ends; an exception gets the finished rows as its `frame`."""
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
        raise SweepError(str(ending), _make_frame(store)) from None
    if ending is None:
        return
    raised = attach_frame(ending, _make_frame(store))
    if raised is ending:
        raise ending
    raise raised from ending


@contextmanager
def _write_trace(timeline: Timeline, store: Store, target: str | PathLike[str] | None) -> Iterator[None]:
    """Write a run's trace however it ends."""
    try:
        yield
    finally:
        if target is not None:
            atomic_write(parse_path(target, "trace"), timeline.text(store.run))


def _stop_when_lost(outcome: Outcome) -> None:
    """Raise DeviceLostError after a row that lost the device."""
    if outcome.fatal:
        row = outcome.row
        cause = row["counters_status"] if row["status"] == "ok" else row["reason"]
        raise DeviceLostError(f"the device is lost, only a new process can use it again: {cause}")


def _check_new(path: Path, *, force: bool) -> None:
    if has_content(path) and not force:
        message = "exists already: name another file, or replace it with force=True"
        raise FileExistsError(errno.EEXIST, message, str(path))


def _make_store(run_data: dict[str, Any], output: str | PathLike[str] | None, *, force: bool) -> Store:
    """Return the store of a run's rows: memory, and the output file."""
    if output is None:
        return Store(run_data)
    try:
        path = Path(output)
    except TypeError:
        raise ValueError(f"output is {repr_short(output)}: a file ending in .csv or .json is needed") from None
    ending = path.suffix.lower()
    if ending not in (".csv", ".json"):
        raise ValueError(f"output is {repr_short(str(output))}: a file ending in .csv or .json is needed")
    _check_new(path, force=force)
    return Store(run_data, csv_targets=[path]) if ending == ".csv" else Store(run_data, json_targets=[path])
