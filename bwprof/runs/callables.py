"""Sweeps over a caller's function: the product of its parameters' lists, one row each."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from bwprof import _core, environment, hardware, registry
from bwprof.hardware import Choice
from bwprof.measuring import function as functions
from bwprof.measuring.callables import check_finished, name_callable, wrap_with_wait
from bwprof.measuring.contexts import Contexts, check_threads
from bwprof.measuring.function import WORK, Subject
from bwprof.measuring.operation import DEFAULT_REL_CI
from bwprof.measuring.row import Context, Outcome, make_failed
from bwprof.results.schema import RowDict
from bwprof.roofs.model import Roofs, RoofsArgument
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import api, metadata
from bwprof.runs.api import RunOptions
from bwprof.runs.loop import TimeBudget
from bwprof.runs.plan import format_label, iterate_points

if TYPE_CHECKING:
    import pandas as pd

OPTIONS = (*WORK, "stream", "sets", "name", "check", "roof_threads")  # of a sweep over a function alone


@dataclass(frozen=True, slots=True)
class CallRequest:
    """What was asked for."""

    function: Callable[..., object]
    axes: dict[str, tuple[Any, ...]]
    options: dict[str, Any]  # of Subject, work included
    caches: tuple[str, ...]
    backend: str | None
    device: hardware.Device
    known: tuple[str, ...]  # every option's name: a parameter that is nearly one is a slip
    grid: frozenset[str] = frozenset()  # parameters that were named as such, and may be called anything
    rel_ci: float | None = None
    max_seconds: float | None = None


def sweep_callable(request: CallRequest, how: RunOptions) -> pd.DataFrame:
    """Measure every point; see `bwprof.sweep`."""
    limits = TimeBudget(
        None,
        how.max_total_seconds,
        time.monotonic(),
        option="max_total_seconds",
        max_seconds=request.max_seconds,
    )
    _check_axes(request, how.labels)
    _check_options(request)
    choice = hardware.choose_current(request.backend, request.device)
    registry.check_timer(request.options.get("timer"), choice.backend)
    registry.check_metrics(request.options.get("metrics", ()), choice.backend)
    run_data = metadata.describe(environment.new_run_id(), choice, None)
    return api.measure_device(
        [CallPoint(request, params, cache) for params in iterate_points(request.axes) for cache in request.caches],
        CallExecutor(choice, request, run_data["run_id"], how, limits),
        run_data,
        limits,
        replace(how, roofs="auto" if how.roofs else False, labels={}),  # which ones, the executor knows
    )


def _check_axes(request: CallRequest, labels: Mapping[str, Any]) -> None:
    """ValueError or TypeError for parameters that the function does not take, or whose columns cannot hold them."""
    for name, value in labels.items():
        functions.check_label(name, value)
        if name in request.axes:
            raise ValueError(f"'{name}' is a parameter and a label: take another name for the label")
    for name, values in request.axes.items():
        for value in values:
            if name != "precision":
                functions.check_label(name, format_label(value))
    try:
        signature: inspect.Signature | None = inspect.signature(request.function)
    except (TypeError, ValueError):  # some builtins have none
        signature = None
    own = signature.parameters.keys() if signature is not None else set()
    functions.check_spelling(request.axes.keys() - own - request.grid, request.known)
    if signature is None:
        return
    try:
        signature.bind(**dict.fromkeys(request.axes))
    except TypeError as error:
        given = ", ".join(request.axes) or "nothing"
        raise TypeError(f"{name_callable(request.function)} cannot be called with {given}: {error}") from None


def _check_options(request: CallRequest) -> None:
    """ValueError or TypeError for options that no point could be measured with."""
    asked = request.options.items()
    options = {name: value for name, value in asked if name != "name" and not (name in WORK and callable(value))}
    Subject(request.function, request.options.get("name") or name_callable(request.function), **options)


@dataclass(frozen=True, slots=True)
class CallPoint:
    """One call to measure: the function with its arguments."""

    request: CallRequest
    params: dict[str, Any]
    cache: str
    repeatable: ClassVar[bool] = False

    @property
    def title(self) -> str:
        """For progress lines: the arguments."""
        return " ".join(f"{name}={value}" for name, value in self.params.items())

    def _named(self) -> dict[str, Any]:
        """What `Subject` is told whatever is called: the row's name, precision and labels."""
        labels = {name: format_label(value) for name, value in self.params.items()}
        precision = str(labels.pop("precision", ""))
        name = self.request.options.get("name") or name_callable(self.request.function)
        return {"name": name, "precision": precision, "cache": self.cache, "labels": labels}

    def blank_row(self, context: Context) -> RowDict:
        """The row before anything has run."""
        return functions.blank_row(Subject(self.request.function, **self._named()), context)

    def subject(self, *, on_host: bool) -> Subject:
        """What is measured: what the function returns for the arguments, if that is callable, else the call itself."""
        options = dict(self.request.options) | self._named()
        for work in WORK:  # a number, or a function of the arguments
            if callable(options.get(work)):
                options[work] = options[work](**self.params)
        if callable(options.get("check")):
            options["check"] = functools.partial(options["check"], **self.params)

        def call() -> object:
            return self.request.function(**self.params)

        made = call()
        check_finished(made, options["name"])
        function: Callable[..., object] = made if callable(made) else call
        if function is call and options.get("sets") is not None:
            raise TypeError(f"with sets= {options['name']} must return a function that takes a set's number")
        if function is call and on_host:
            return Subject(wrap_with_wait(call, made, options["name"]), tried=True, **options)
        return Subject(function, tried=function is call, **options)


class CallExecutor:
    """An executor of points, in this process; the device is the thread's current one from `open` to `close`."""

    def __init__(self, choice: Choice, request: CallRequest, run_id: str, how: RunOptions, limits: TimeBudget) -> None:
        self._choice, self._request, self._run_id, self._how, self._limits = choice, request, run_id, how, limits
        self._threads = request.options.get("roof_threads")
        self._opened = ExitStack()
        self._device: _core.Device | None = None
        self._contexts: Contexts | None = None

    def open(self, deadline: float | None) -> dict[str, Any]:  # noqa: ARG002 - a call cannot be left half-way
        """The device's facts."""
        where = hardware.borrow_current(self._choice.backend, self._choice.index)
        _, self._device = self._opened.enter_context(where)
        self._contexts = self._made(False)
        check_threads(self._threads, self._contexts.threads)
        return hardware.device_facts(self._device)

    def obtain_roofs(self, wanted: RoofRequest, deadline: float | None) -> Roofs | None:  # noqa: ARG002 - asked for anew
        """The roofs of as many threads as rows are held against; those of one may follow when a call asks for it."""
        self._contexts = self._made(self._how.roofs, recalibrate=wanted.recalibrate)
        return self._contexts.of(self._threads).roofs

    def _made(self, given: RoofsArgument, *, recalibrate: bool = False) -> Contexts:
        assert self._device is not None
        caches, half = self._request.caches, self._limits.half
        return Contexts(
            self._run_id,
            self._device,
            given,
            caches,
            recalibrate=recalibrate,
            deadline=half,
            labels=self._how.labels,
        )

    def set_context(self, context: Context) -> None:
        """Nothing: each row has the context of the threads that it is held against."""

    def measure(self, point: CallPoint, max_seconds: float, deadline: float | None, /) -> Outcome:
        """One point. What goes wrong in it becomes a failed row; only Ctrl-C and the like end the sweep."""
        assert self._device is not None
        assert self._contexts is not None
        context = self._contexts.of(self._threads)
        row = point.blank_row(context)
        try:
            subject = point.subject(on_host=bool(_core.backend_facts(self._device.backend)["runs_on_host"]))
            row = functions.blank_row(subject, context)  # which knows the bytes, too
            return functions.measure_on(
                self._device,
                subject,
                self._contexts,
                max_seconds=max_seconds,
                rel_ci=self._request.rel_ci or DEFAULT_REL_CI,
                deadline=deadline,
            )
        except (_core.UnsupportedError, MemoryError) as error:
            return make_failed(row, "skipped", str(error) or "out of memory")
        except Exception as error:
            fatal = bool(getattr(error, "fatal", False))
            return make_failed(row, "failed", f"{type(error).__name__}: {error}", fatal=fatal)

    def close(self) -> None:
        """Give the device back."""
        self._opened.close()
