"""Sweep over a caller's function: a row for each combination of its parameters."""

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
from bwprof.measuring.row import Context, Outcome, make_failed_by
from bwprof.results.schema import RowDict
from bwprof.roofs.model import Roofs, RoofsArgument
from bwprof.roofs.obtain import RoofRequest
from bwprof.runs import api, metadata
from bwprof.runs.api import RunOptions
from bwprof.runs.loop import TimeBudget
from bwprof.runs.plan import format_label, iterate_points

if TYPE_CHECKING:
    import pandas as pd

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
    known: tuple[str, ...]  # names of all options, to find misspelt ones
    grid: frozenset[str] = frozenset()  # parameters of grid=, which may have any name
    rel_ci: float | None = None
    max_seconds: float | None = None


def sweep_callable(request: CallRequest, options: RunOptions) -> pd.DataFrame:
    """Measure every combination; see `bwprof.sweep`."""
    limits = TimeBudget(
        None,
        options.max_total_seconds,
        time.monotonic(),
        option="max_total_seconds",
        max_seconds=request.max_seconds,
    )
    _check_axes(request, options.labels)
    _check_options(request)
    choice = hardware.choose_current(request.backend, request.device)
    registry.check_timer(request.options.get("timer"), choice.backend)
    registry.check_metrics(request.options.get("metrics", ()), choice.backend)
    run_data = metadata.describe(environment.new_run_id(), choice, None)
    return api.measure_device(
        [CallPoint(request, params, cache) for params in iterate_points(request.axes) for cache in request.caches],
        CallExecutor(choice, request, run_data["run_id"], options, limits),
        run_data,
        limits,
        replace(options, roofs="auto" if options.roofs else False, labels={}),  # the executor has the others
    )


def _check_axes(request: CallRequest, labels: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError for parameters that the function or their columns cannot take."""
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
        names = ", ".join(request.axes) or "nothing"
        raise TypeError(f"{name_callable(request.function)} cannot be called with {names}: {error}") from None


def _check_options(request: CallRequest) -> None:
    """Raise ValueError or TypeError for options that suit no call; functions of the arguments are checked later."""
    options = {name: value for name, value in request.options.items() if not (name in WORK and callable(value))}
    options.pop("name", None)
    Subject(request.function, request.options.get("name") or name_callable(request.function), **options)


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
        name = self.request.options.get("name") or name_callable(self.request.function)
        return {"name": name, "precision": precision, "cache": self.cache, "labels": labels}

    def blank_row(self, context: Context) -> RowDict:
        return functions.blank_row(Subject(self.request.function, **self._name_row()), context)

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
        self._device: _core.Device | None = None
        self._contexts: Contexts | None = None

    def open(self, deadline: float | None) -> dict[str, Any]:  # noqa: ARG002 - a call cannot be interrupted
        opening = hardware.borrow_current(self._choice.backend, self._choice.index)
        _, self._device = self._opened.enter_context(opening)
        self._contexts = self._make_contexts(False)
        check_threads(self._threads, self._contexts.threads)
        return hardware.facts(self._device)

    def obtain_roofs(self, request: RoofRequest, deadline: float | None) -> Roofs | None:  # noqa: ARG002 - read again below
        self._contexts = self._make_contexts(self._options.roofs, recalibrate=request.recalibrate)
        return self._contexts.of(self._threads).roofs

    def _make_contexts(self, roofs: RoofsArgument, *, recalibrate: bool = False) -> Contexts:
        assert self._device is not None
        return Contexts(
            self._run_id,
            self._device,
            roofs,
            self._request.caches,
            recalibrate=recalibrate,
            deadline=self._limits.half,
            labels=self._options.labels,
        )

    def set_context(self, context: Context) -> None:
        """Do nothing: each row has the context of its threads."""

    def measure(self, point: CallPoint, max_seconds: float, deadline: float | None, /) -> Outcome:
        """Measure a point; an error becomes a failed row."""
        assert self._device is not None
        assert self._contexts is not None
        context = self._contexts.of(self._threads)
        row = point.blank_row(context)
        try:
            subject = point.subject(on_host=bool(_core.backend_facts(self._device.backend)["runs_on_host"]))
            row = functions.blank_row(subject, context)  # now with the bytes
            return functions.measure_on(
                self._device,
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
