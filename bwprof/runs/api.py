"""Run a sweep in this process, over operations or over a caller's function; return its rows as a frame."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bwprof import _core, environment, hardware, registry
from bwprof.errors import SweepError, attach_frame
from bwprof.hardware import Choice
from bwprof.measuring.callables import check_finished, name_callable, wrap_with_wait
from bwprof.measuring.function import WORK, Subject, blank_row, check_label, check_spelling, measure_on
from bwprof.measuring.operation import DEFAULT_REL_CI
from bwprof.measuring.row import Context, Contexts, Outcome, check_threads, make_failed_by
from bwprof.results.atomic import atomic_write, has_content
from bwprof.results.row import Row
from bwprof.results.schema import RowDict
from bwprof.results.writer import Store
from bwprof.roofs.model import Roofs, RoofsArgument
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import metadata, plan
from bwprof.runs.executors import LocalExecutor
from bwprof.runs.loop import DevicePart, Executor, RunLoop, T, TimeBudget
from bwprof.runs.metadata import Finisher, finish_nothing
from bwprof.runs.plan import format_label, iterate_points
from bwprof.runs.progress import CallbackProgress, Timeline, choose_progress
from bwprof.text.parsing import is_bool, parse_bool, parse_path, parse_seconds, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

ProgressArgument = bool | Callable[[int, int, Row], object] | None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run in this process: limits, roofs, output, progress. See `bwprof.sweep`."""

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


def measure_devices(
    parts: Sequence[DevicePart[T]],
    executor_of: Callable[[Choice], Executor[T]],
    run_data: dict[str, Any],
    limits: TimeBudget,
    options: RunOptions,
    finish: Finisher = finish_nothing,
) -> pd.DataFrame:
    """Measure all parts; return their rows, which are in `output` as well. Executors are closed afterwards.

    The files are finished however the run ends; an exception gets the finished rows as its `frame`.
    """
    store = _make_store(run_data, options.output, force=options.force)
    show = options.progress
    timeline = Timeline(CallbackProgress(show) if callable(show) else choose_progress(quiet=not show))

    def make_frame() -> pd.DataFrame:
        from bwprof.results import frame as frames

        return frames.from_rows(store.rows, store.run, store.samples)

    def stop_when_lost(outcome: Outcome) -> None:
        if outcome.fatal:
            row = outcome.row
            cause = row["counters_status"] if row["status"] == "ok" else row["reason"]
            message = f"the device is lost, only a new process can use it again: {cause}"
            raise SweepError(message, make_frame())

    def write_trace() -> None:
        if options.trace is not None:
            atomic_write(parse_path(options.trace, "trace"), timeline.text(store.run))

    ending: BaseException | None = None
    try:
        with ExitStack() as ends:  # each of them happens, whatever the others raise; the last one first
            for end in (timeline.end, write_trace, lambda: finish(store)):
                ends.callback(end)
            loop = RunLoop(store, limits, timeline, options.roofs, options.recalibrate, options.labels, stop_when_lost)
            loop.measure_parts(parts, executor_of)
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
    frame = make_frame()
    if ending is None:
        return frame
    raised = attach_frame(ending, frame)
    if raised is ending:
        raise ending
    raise raised from ending


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


OPTIONS = (*WORK, "stream", "sets", "name", "check", "roof_threads")  # only of sweeps over a function


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A function, its parameters and the options of the sweep."""

    function: Callable[..., object]
    axes: dict[str, tuple[Any, ...]]
    options: dict[str, Any]  # of Subject
    caches: tuple[str, ...]
    backend: str | None
    device: hardware.Device
    known: tuple[str, ...]  # names of all options, to find misspelled ones
    grid: frozenset[str] = frozenset()  # parameters of grid=, which may have any name
    rel_ci: float | None = None
    max_seconds: float | None = None

    @property
    def name(self) -> Any:
        """The operation's name in the rows: the option, or the function's."""
        return self.options.get("name") or name_callable(self.function)


def sweep_callable(request: CallRequest, options: RunOptions) -> pd.DataFrame:
    """Measure every combination; see `bwprof.sweep`."""
    limits = TimeBudget(None, options.max_total_seconds, time.monotonic(), "max_total_seconds", request.max_seconds)
    _check_axes(request, options.labels)
    # Options that suit no call are refused here; functions of the arguments are checked at each point.
    fixed = {name: value for name, value in request.options.items() if not (name in WORK and callable(value))}
    Subject(request.function, **fixed | {"name": request.name})
    choice = hardware.choose_current(request.backend, request.device)
    registry.check_timer(request.options.get("timer"), choice.backend)
    registry.check_metrics(request.options.get("metrics", ()), choice.backend)
    run_data = metadata.describe(environment.new_run_id(), choice, None)
    items = [CallPoint(request, params, cache) for params in iterate_points(request.axes) for cache in request.caches]
    return measure_devices(
        [DevicePart(choice, items, run_data)],
        lambda choice: CallExecutor(choice, request, run_data["run_id"], options, limits),
        run_data,
        limits,
        replace(options, roofs="auto" if options.roofs else False, labels={}),  # the executor has the others
    )


def _check_axes(request: CallRequest, labels: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError for parameters that the function or their columns cannot take."""
    for name, value in labels.items():
        check_label(name, value)
        if name in request.axes:
            raise ValueError(f"'{name}' is a parameter and a label: take another name for the label")
    for name, values in request.axes.items():
        for value in values:
            if name != "precision":
                check_label(name, format_label(value))
    try:
        signature: inspect.Signature | None = inspect.signature(request.function)
    except (TypeError, ValueError):  # some builtins have none
        signature = None
    own = signature.parameters.keys() if signature is not None else set()
    check_spelling(request.axes.keys() - own - request.grid, request.known)
    if signature is None:
        return
    try:
        signature.bind(**dict.fromkeys(request.axes))
    except TypeError as error:
        names = ", ".join(request.axes) or "nothing"
        raise TypeError(f"{name_callable(request.function)} cannot be called with {names}: {error}") from None


@dataclass(frozen=True, slots=True)
class CallPoint:
    """A call to measure: the function with its arguments."""

    request: CallRequest
    params: dict[str, Any]
    cache: str
    repeatable: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """The arguments, for progress lines."""
        return " ".join(f"{name}={value}" for name, value in self.params.items())

    def _name_row(self) -> dict[str, Any]:
        """Return the options of `Subject` that name the row."""
        labels = {name: format_label(value) for name, value in self.params.items()}
        precision = str(labels.pop("precision", ""))
        return {"name": self.request.name, "precision": precision, "cache": self.cache, "labels": labels}

    def blank_row(self, context: Context) -> RowDict:
        return blank_row(Subject(self.request.function, **self._name_row()), context)

    def subject(self, *, on_host: bool) -> Subject:
        """Return what to measure: the callable that the function returns for the arguments, or the call itself."""
        options = dict(self.request.options) | self._name_row()
        for work in WORK:  # a number or a function
            if callable(options.get(work)):
                options[work] = options[work](**self.params)
        if callable(options.get("check")):
            options["check"] = functools.partial(options["check"], **self.params)

        def call() -> object:
            return self.request.function(**self.params)

        result = call()
        check_finished(result, options["name"])
        function: Callable[..., object] = result if callable(result) else call
        if function is call and options.get("sets") is not None:
            raise TypeError(f"with sets= {options['name']} must return a function that takes a set's number")
        if function is call and on_host:
            return Subject(wrap_with_wait(call, result, options["name"]), tried=True, **options)
        return Subject(function, tried=function is call, **options)


class CallExecutor:
    """Measure points in this process; the device is the thread's current one from `open` to `close`."""

    def __init__(
        self, choice: Choice, request: CallRequest, run_id: str, options: RunOptions, limits: TimeBudget
    ) -> None:
        self._choice, self._request, self._run_id = choice, request, run_id
        self._options, self._limits = options, limits
        self._threads = request.options.get("roof_threads")
        self._opened = ExitStack()
        self._contexts: Contexts | None = None

    def open(self, deadline: float | None) -> dict[str, Any]:  # noqa: ARG002 - a call cannot be interrupted
        opening = hardware.borrow_current(self._choice.backend, self._choice.index)
        _, device = self._opened.enter_context(opening)
        self._contexts = Contexts(
            self._run_id,
            device,
            self._options.roofs,
            self._request.caches,
            recalibrate=self._options.recalibrate,
            deadline=self._limits.half,
            labels=self._options.labels,
        )
        check_threads(self._threads, self._contexts.threads)
        return hardware.facts(device)

    def obtain_roofs(self, request: RoofRequest, deadline: float | None) -> Roofs | None:  # noqa: ARG002 - set in `open`
        assert self._contexts is not None
        return self._contexts.of(self._threads).roofs

    def set_context(self, context: Context) -> None:
        """Do nothing: each row has the context of its threads."""

    def measure(self, point: CallPoint, max_seconds: float, deadline: float | None, /) -> Outcome:
        """Measure a point; an error becomes a failed row."""
        assert self._contexts is not None
        context = self._contexts.of(self._threads)
        row = point.blank_row(context)
        try:
            subject = point.subject(on_host=bool(_core.backend_facts(self._contexts.device.backend)["runs_on_host"]))
            row = blank_row(subject, context)  # now with the bytes
            return measure_on(
                subject,
                self._contexts,
                max_seconds=max_seconds,
                rel_ci=self._request.rel_ci or DEFAULT_REL_CI,
                deadline=deadline,
            )
        except Exception as error:
            return make_failed_by(error, row)

    def close(self) -> None:
        self._opened.close()
