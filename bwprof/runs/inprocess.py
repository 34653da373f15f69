"""The Python function's run: in this process, into a frame."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from bwprof import environment, hardware
from bwprof.errors import SweepError
from bwprof.measuring.row import Outcome
from bwprof.results import frame as frames
from bwprof.results.files import holds_something
from bwprof.results.row import Row
from bwprof.results.writer import Store
from bwprof.roofs import Given
from bwprof.runs import loop, metadata, plan
from bwprof.runs.local import LocalExecutor
from bwprof.runs.loop import Executor, Limits, T
from bwprof.runs.progress import Callback, Progress, on_stderr
from bwprof.text import shown


class DeviceLostError(Exception):
    """Only a new process can use the device again."""


def run(
    request: plan.Request,
    *,
    max_total_seconds: float | None,
    roofs: Given,
    recalibrate: bool,
    labels: Mapping[str, Any],
    output: str | PathLike[str] | None,
    force: bool,
    progress: bool | Callable[[int, int, Row], object] | None,
) -> pd.DataFrame:
    """Measure what was asked for; see `bwprof.sweep`."""
    started = time.monotonic()
    max_total_seconds = seconds_of(max_total_seconds, "max_total_seconds")
    choice = hardware.choose(request.backend, request.device)
    made = plan.make(request, choice.backend)
    return into_frame(
        made.specs,
        LocalExecutor(choice.backend, choice.index),
        metadata.describe_run(environment.new_run_id(), made, choice, None),
        Limits(made.target_seconds, max_total_seconds, started, max_seconds=made.max_seconds),
        roofs=roofs,
        recalibrate=recalibrate,
        labels=labels,
        output=output,
        force=force,
        progress=progress,
    )


def into_frame(
    items: Sequence[T],
    executor: Executor[T],
    run_data: dict[str, Any],
    limits: Limits,
    *,
    roofs: Given,
    recalibrate: bool,
    labels: Mapping[str, Any],
    output: str | PathLike[str] | None,
    force: bool,
    progress: bool | Callable[[int, int, Row], object] | None,
) -> pd.DataFrame:
    """Measure all of them, with an executor that is closed afterwards; the rows, which are in `output` as well."""
    store = _store_of(run_data, output, force=force)
    shown = _progress_of(progress)
    with _keeping_rows(store, shown):
        try:
            context = loop.prepare(
                executor,
                run_data,
                items,
                limits=limits,
                progress=shown,
                given=roofs,
                recalibrate=recalibrate,
                labels=labels,
            )
            loop.run_cases(items, executor, context, store, limits=limits, progress=shown, after=_stop_when_lost)
        finally:
            executor.close()
    return _frame_of(store)


def _frame_of(store: Store) -> pd.DataFrame:
    """A run's rows so far."""
    return frames.from_rows(store.rows, store.run, store.samples)


@contextmanager
def _keeping_rows(store: Store, shown: Progress) -> Iterator[None]:
    """Around a run: its files are finished however it ends, and what ends it early has the finished rows as `frame`."""
    ending: BaseException | None = None
    try:
        try:
            yield
        finally:
            shown.end()
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
    try:
        ending.frame = _frame_of(store)  # type: ignore[attr-defined]
    except AttributeError:  # an exception that takes no attributes
        raise SweepError(f"{type(ending).__name__}: {ending}", _frame_of(store)) from ending
    raise ending


def seconds_of(given: Any, name: str) -> float | None:
    """A time limit in seconds; None where there is none.

    Raises
    ------
    ValueError
        For what is no positive number.
    """
    if given is None:
        return None
    try:
        seconds = float(given) if hasattr(given, "__float__") or hasattr(given, "__index__") else 0.0
    except (TypeError, ValueError, OverflowError):
        seconds = 0.0
    if not seconds > 0 or isinstance(given, bool):
        raise ValueError(f"{name} is {shown(given)}, a positive number of seconds is needed")
    return seconds


def _stop_when_lost(outcome: Outcome) -> None:
    """DeviceLostError after a row that cost the device."""
    if outcome.fatal:
        row = outcome.row
        cause = row["counters_status"] if row["status"] == "ok" else row["reason"]
        raise DeviceLostError(f"the device is lost, only a new process can use it again: {cause}")


def _progress_of(wanted: bool | Callable[[int, int, Row], object] | None) -> Progress:
    """What shows a run: a caller's function, standard error, or nothing."""
    if callable(wanted):
        return Callback(wanted)
    return on_stderr(quiet=not wanted)


def _store_of(run_data: dict[str, Any], output: str | PathLike[str] | None, *, force: bool) -> Store:
    """Where a run's rows go: memory, and the file that was named; `force` replaces one that holds something."""
    if output is None:
        return Store(run_data)
    try:
        path = Path(output)
    except TypeError:
        raise ValueError(f"output is {shown(output)}: a file ending in .csv or .json is needed") from None
    ending = path.suffix.lower()
    if ending not in (".csv", ".json"):
        raise ValueError(f"output is {shown(str(output))}: a file ending in .csv or .json is needed")
    if not force and holds_something(path):
        said = "exists already: name another file, or replace it with force=True"
        raise FileExistsError(errno.EEXIST, said, str(path))
    return Store(run_data, csv_targets=[path]) if ending == ".csv" else Store(run_data, json_targets=[path])
