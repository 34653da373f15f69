"""Sweeps over a caller's function: the product of its parameters' lists, one row each."""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof import _core, hardware, registry
from bwprof.callables import name_of, refuse_coroutine
from bwprof.measuring import case as measure
from bwprof.measuring import function as functions
from bwprof.measuring.case import Outcome
from bwprof.measuring.contexts import Contexts, Given, check_roofs
from bwprof.measuring.function import WORK, Subject
from bwprof.runs import inprocess, metadata
from bwprof.runs.loop import Limits, case_seconds
from bwprof.runs.plan import MOST_CASES

if TYPE_CHECKING:
    import pandas as pd


OPTIONS = (*WORK, "stream", "sets", "name", "check", "roof_threads")  # of a sweep over a function alone


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for."""

    function: Callable[..., object]
    axes: dict[str, tuple[Any, ...]]
    options: dict[str, Any]  # of Subject, work included
    caches: tuple[str, ...]
    backend: str | None
    device: int | str | None
    known: tuple[str, ...]  # every option's name: a parameter that is nearly one is a slip


def axes_of(params: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Each parameter's values: those of a list, tuple, range, array or other iterable; text and all else is one value.

    Raises
    ------
    ValueError
        For a parameter without values, or a product that is too large.
    """
    axes = {}
    points = 1
    for name, value in params.items():
        single = isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable)
        one = single or getattr(value, "ndim", 1) == 0
        axes[name] = (value,) if one else tuple(itertools.islice(value, MOST_CASES + 1))
        points *= len(axes[name])
        if not axes[name]:
            raise ValueError(f"{name} has no values")
    if points > MOST_CASES:
        raise ValueError(f"{points} points are more than a sweep can have ({MOST_CASES})")
    return axes


def run(
    request: Request,
    *,
    max_time: float | None,
    with_roofs: Given,
    recalibrate: bool,
    output: str | PathLike[str] | None,
    progress: bool | Callable[[int, int, dict[str, Any]], object] | None,
) -> pd.DataFrame:
    """Measure every point; see `bwprof.sweep`."""
    limits = Limits(None, inprocess.seconds_of(max_time), time.monotonic())
    check_roofs(with_roofs)
    _check_axes(request)
    _check_options(request)
    points = [
        (dict(zip(request.axes, values, strict=True)), cache)
        for values in itertools.product(*request.axes.values())
        for cache in request.caches
    ]
    shown = inprocess.progress_of(progress)
    choice = hardware.chosen(request.backend, request.device)
    registry.check_timer(request.options.get("timer"), choice.backend)
    run_data = metadata.describe(metadata.new_run_id(), choice, None)
    store = inprocess.store_of(run_data, output)
    with inprocess.keeping_rows(store, shown), hardware.opened_chosen(choice.backend, choice.index) as (_, device):
        run_data["facts"] = hardware.facts(device)
        given = with_roofs if limits.left() > 0 else False
        if given:
            shown.stage("looking for the roofs")
        contexts = Contexts(
            run_data["run_id"],
            device,
            given,
            request.caches,
            recalibrate=recalibrate,
            deadline=lambda: None if limits.deadline is None else limits.deadline - limits.left() / 2,
        )
        found = contexts.of(request.options.get("roof_threads")).roofs
        run_data["roofs"] = found.to_dict() if found else None
        shown.begin(len(points))
        for number, (params, cache) in enumerate(points):
            shown.case(" ".join(f"{name}={value}" for name, value in params.items()))
            outcome = _point(device, request, params, cache, contexts, limits, len(points) - number)
            store.add(outcome.row, outcome.samples)
            shown.row(outcome.row)
            inprocess.stop_when_lost(outcome)
    return inprocess.frame_of(store)


def _check_axes(request: Request) -> None:
    """ValueError or TypeError for parameters that the function does not take, or whose columns cannot hold them."""
    for name, values in request.axes.items():
        for value in values:
            if name != "precision":
                functions.check_label(name, _label(value))
    try:
        signature: inspect.Signature | None = inspect.signature(request.function)
    except (TypeError, ValueError):  # some builtins have none
        signature = None
    own = signature.parameters.keys() if signature is not None else set()
    functions.check_spelling(request.axes.keys() - own, request.known)
    if signature is None:
        return
    try:
        signature.bind(**dict.fromkeys(request.axes))
    except TypeError as error:
        given = ", ".join(request.axes) or "nothing"
        raise TypeError(f"{name_of(request.function)} cannot be called with {given}: {error}") from None


def _check_options(request: Request) -> None:
    """ValueError or TypeError for options that no point could be measured with."""
    asked = request.options.items()
    options = {name: value for name, value in asked if name != "name" and not (name in WORK and callable(value))}
    Subject(request.function, request.options.get("name") or name_of(request.function), **options)


def _point(
    device: _core.Device,
    request: Request,
    params: dict[str, Any],
    cache: str,
    contexts: Contexts,
    limits: Limits,
    points_left: int,
) -> Outcome:
    """One point. What goes wrong in it becomes a failed row; only Ctrl-C and the like end the sweep."""
    labels = {name: _label(value) for name, value in params.items()}
    precision = str(labels.pop("precision", ""))
    name = request.options.get("name") or name_of(request.function)
    subject = Subject(request.function, name, precision=precision, cache=cache, labels=labels)
    context = contexts.of(request.options.get("roof_threads"))
    if limits.left() <= 0:
        reason = f"the {limits.max_time:g} s of max_time were over"
        return measure.ended(functions.blank_row(subject, context), "skipped", reason)
    seconds = case_seconds(limits.left(), points_left)
    try:
        subject = _subject(request, name, params, precision, labels, cache)
        return functions.measure_on(device, subject, contexts, max_seconds=seconds, deadline=limits.deadline)
    except (_core.UnsupportedError, MemoryError) as error:
        return measure.ended(functions.blank_row(subject, context), "skipped", str(error) or "out of memory")
    except Exception as error:
        fatal = bool(getattr(error, "fatal", False))
        return measure.ended(
            functions.blank_row(subject, context), "failed", f"{type(error).__name__}: {error}", fatal=fatal
        )


def _subject(
    request: Request, name: str, params: dict[str, Any], precision: str, labels: dict[str, Any], cache: str
) -> Subject:
    """What is measured at a point: what the function returns for it, if that is callable, else the function itself."""
    options = dict(request.options)
    options.pop("name", None)
    for work in WORK:  # a number, or a function of the point's parameters
        if callable(options.get(work)):
            options[work] = options[work](**params)
    if callable(options.get("check")):
        options["check"] = functools.partial(options["check"], **params)

    def call() -> object:
        return request.function(**params)

    made = call()
    refuse_coroutine(made, name)
    function = made if callable(made) else call
    if function is call and options.get("sets") is not None:
        raise TypeError(f"with sets= {name} must return a function that takes a set's number")
    return Subject(function, name, precision=precision, labels=labels, cache=cache, **options)


def _label(value: Any) -> Any:
    """A parameter as a column holds it: numbers, truth and text as they are, all else by its name."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # NumPy's scalars
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(getattr(value, "__name__", value))
