"""`bwprof.ab`: check two sides, then compare their times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import _core, hardware, registry
from bwprof.errors import PairedError
from bwprof.experiments import ab_run
from bwprof.experiments.ab_process import DEFAULT_TURN_SECONDS, PlaceRequest, open_places
from bwprof.experiments.ab_run import ABPair, ABTable
from bwprof.experiments.ab_session import DEFAULT_GATE, DEFAULT_REL_CI, DEFAULT_SECONDS, FAILED, StopRule
from bwprof.experiments.ab_sides import ABSide, ABTask, Call, CallSide, is_call, side_of
from bwprof.hardware import Device
from bwprof.measuring.callables import check_callable, name_callable
from bwprof.measuring.operation import Spec
from bwprof.runs import plan
from bwprof.runs.channel import NoInterrupts
from bwprof.runs.plan import SweepRequest, expand_caches, iterate_points, parse_axes, parse_whole_numbers
from bwprof.text.parsing import (
    describe_unknown,
    nearest_name,
    parse_fraction,
    parse_int,
    parse_names,
    parse_seconds,
    quote_text,
    repr_short,
)

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_PRECISION = "fp32"


def make_tasks(
    a: str, b: str, params: Mapping[str, Any], options: SweepRequest, backend: str
) -> list[tuple[ABTask, ABTask]]:
    """Make the tasks of both sides, a pair for each combination of parameters, precision and cache.

    "copy" and "copy:tiled" name an operation, in its default or a named variant; "module:function" and
    "file.py:function" name a function. ValueError for anything else, for different work, and for values out of range.
    """
    is_operation = _check_names(a, b)
    registry.check_timer(options.timer, backend)
    if not is_operation:
        return list(zip(_make_calls(a, params, options), _make_calls(b, params, options), strict=True))
    sides = [_make_specs(text, params, options, backend) for text in (a, b)]
    for specs in sides:
        registry.check_kernels((spec.operation, spec.variant, spec.precision, backend) for spec in specs)
    return list(zip(*sides, strict=True))


def _check_names(a: str, b: str) -> bool:
    """Return whether both names are of one operation; False for two functions, ValueError for anything else."""
    known = [row["name"] for row in registry.operations()]
    heads = [text.partition(":")[0] for text in (a, b)]
    mixed = any(head in known for head in heads)
    for side, head, text in zip("AB", heads, (a, b), strict=True):
        misspelled = mixed and nearest_name(head, known, likeness=0.7) is not None
        if head not in known and (misspelled or not is_call(text)):
            problem = f"side {side}: {describe_unknown('operation', head, known)}"
            raise ValueError(f"{problem}; or a function, as module:function or file.py:function")
    if mixed and heads[0] != heads[1]:
        raise ValueError(f"A is {quote_text(a)} and B {quote_text(b)}: one operation or two functions are needed")
    return mixed


def _make_specs(text: str, params: Mapping[str, Any], options: SweepRequest, backend: str) -> list[Spec]:
    operation, _, variant = text.partition(":")
    if ":" in text:
        registry.check_variant(operation, backend, variant)
    request = replace(
        options,
        operations=(operation,),
        params={name: parse_whole_numbers(name, value) for name, value in params.items()},
        precisions=options.precisions or (DEFAULT_PRECISION,),
        variants=(variant,) if variant else (),
    )
    return [_name_case(spec) for spec in plan.make_plan(request, backend).specs]


def _name_case(spec: Spec) -> Spec:
    """Name a case after its parameters that differ from the operation's defaults."""
    unusual = registry.unusual_params(spec.operation, spec.precision, spec.params, spec.kv_lens)
    name = " ".join([spec.operation, *(f"{name}={spec.params[name]}" for name in unusual)])
    return replace(spec, case=registry.case_name(name, spec.kv_lens))


def _make_calls(text: str, params: Mapping[str, Any], options: SweepRequest) -> list[ABTask]:
    _refuse({"precision": options.precisions, "kv_lens": options.kv_lens}, "operations, not with a function")
    points: Sequence[dict[str, Any]] = list(iterate_points(parse_axes(params)))
    return [Call(text, point, cache, options.timer) for point in points for cache in expand_caches(options.caches)]


def _refuse(arguments: Mapping[str, object], others: str) -> None:
    """Raise ValueError for arguments that go with other sides."""
    for name, value in arguments.items():
        if value not in (None, ()):
            raise ValueError(f"{name} goes with {others}")


SideArgument = str | Callable[[], object]


def ab(
    a: SideArgument,
    b: SideArgument | None = None,
    *,
    python: str | Iterable[str] | None = None,
    revision: str | Iterable[str] | None = None,
    repository: str | PathLike[str] = ".",
    build: str | None = None,
    precision: str | Iterable[str] | None = None,
    cache: str | Iterable[str] | None = None,
    kv_lens: str | Sequence[int | str] | None = None,
    timer: str | None = None,
    stream: Any = None,
    tolerance: float | None = None,
    device: Device = None,
    backend: str | None = None,
    threads: int | None = None,
    rel_ci: float | str = DEFAULT_REL_CI,
    max_seconds: float = DEFAULT_SECONDS,
    gate: float | str = DEFAULT_GATE,
    seed: int = 0,
    max_turn_seconds: float = DEFAULT_TURN_SECONDS,
    **params: Any,
) -> pd.DataFrame:
    """Compare the times of two sides, measured in turn on one device.

    A and B take short turns, A B B A or B A A B by a coin, so that drift affects both. The ratio of their times and its
    99.5 % interval come from whole blocks of turns by Wilcoxon's signed ranks (`bwprof/experiments/ab_session.py`).

    Operations are verified on both sides first, and get new buffers again and again, because the place of buffers in
    the caches can change a small case by a tenth. A function's arrays stay where they are: let A and B use the same
    arrays, or return from the function the callable to measure.

    Parameters
    ----------
    a, b : callable or str
        Two functions without arguments, as in `bwprof.measure`; or names: an operation, "gemm", one of its variants,
        "gemm:tiled", or a function, "module:function" or "file.py:function". Without `b`, A runs on both sides, in two
        interpreters or two revisions.
    python : str or iterable of str, optional
        Interpreters that have bwprof, one for each side or one for both. The sides are then processes.
    revision : iterable of str, optional
        Two git revisions of `repository`. Each is checked out in a worktree, built by the shell command `build`,
        imported from there, and removed afterwards.
    precision, cache, kv_lens, timer, device, backend
        As in `bwprof.sweep`; the default precision is FP32. Several precisions and caches are for names alone.
    stream : optional
        The stream of two callables, as in `bwprof.measure`.
    tolerance : float, optional
        The largest allowed absolute difference of the arrays that two callables return. Without it, a difference is
        noted in `verified` and `reason`.
    threads : int, optional
        The number of a CPU's threads. One thread scatters least on a busy machine.
    rel_ci, max_seconds : float or str, float
        Stop when half of the ratio's interval is at most `rel_ci`, 0.005 or "0.5%", or after so many seconds of a
        comparison, counted from the first opening of both sides.
    gate : float or str
        The smallest relevant difference, 0.01 or "1%".
    seed : int
        The seed of the coin and of the generated inputs.
    max_turn_seconds : float
        End a side's process that needs more seconds for an answer.
    **params : int, str or iterable of them
        Parameters, as in `bwprof.sweep`; lists make a row for each combination. For functions by name, their arguments.

    Returns
    -------
    pandas.DataFrame
        A row for each case: verdict on B ("faster", "slower", "same", "undecided"), ratio (B's time divided by A's)
        with ratio_lo and ratio_hi, a_time_ms and b_time_ms (medians over blocks of the lower quartile of their
        samples), stopped ("precise", "time"), reason, verified, environments and more. ``attrs["run"]`` is the
        metadata, ``attrs["pairs"]`` holds the logarithms, orders and times behind each row.

    Raises
    ------
    ValueError
        For anything unknown, out of range or contradictory, before the measurement.
    bwprof.errors.PairedError
        If a side raises an exception (its cause), gives a wrong result, crashes or hangs. The message names the side;
        `frame` holds the rows so far, as it does for any other exception, such as KeyboardInterrupt.

    Examples
    --------
    >>> import bwprof, numpy as np
    >>> x = np.ones(1 << 15)
    >>> once, twice = lambda: x.sum(), lambda: (x.sum(), x.sum())
    >>> row = bwprof.ab(once, twice, cache="hot", device="cpu", rel_ci=0.1, max_seconds=2).iloc[0]
    >>> row["verdict"]
    'slower'
    """
    for name, side in (("a", a), ("b", b)):
        if not isinstance(side, str):
            check_callable(side, name)
    request = PlaceRequest(
        parse_names("python", python),
        parse_names("revision", revision),
        str(repository),
        build,
        None if threads is None else parse_int(threads, "threads"),
        parse_seconds(max_turn_seconds, "max_turn_seconds"),
    )
    rule = StopRule(
        parse_fraction(rel_ci, "rel_ci"),
        parse_seconds(max_seconds, "max_seconds"),
        parse_fraction(gate, "gate"),
        registry.check_seed(parse_int(seed, "seed")),
    )
    lengths, precisions = registry.parse_lengths(kv_lens), parse_names("precision", precision)
    caches = parse_names("cache", cache)
    options = SweepRequest(kv_lens=lengths, precisions=precisions, caches=caches, timer=timer, seed=rule.seed)
    b = complete_b(b, a, request)
    where = (backend, device)
    if isinstance(a, str) and isinstance(b, str):
        _refuse({"stream": stream, "tolerance": tolerance}, "two callables, not with names")
        return _compare_names((a, b), params, options, request, where, rule)
    if not callable(a) or not callable(b):
        raise TypeError(f"a is {repr_short(a)} and b is {repr_short(b)}: two callables or two names are needed")
    named = {"precision": precisions, "kv_lens": lengths, "python": request.python, "revision": request.revision}
    _refuse({**named, **dict.fromkeys(params, True)}, "names, not with two callables")
    return _compare_functions((a, b), options, stream, tolerance, where, request, rule)


def complete_b(b: Any, a: Any, request: PlaceRequest) -> Any:
    """Return B, or A if only that is named and two places differ; ValueError if nothing differs."""
    if b is not None:
        return b
    if not (request.revision or len(request.python) == 2):
        raise ValueError("only A was named: B is needed as well, or two interpreters, or two revisions")
    return a


def _compare_names(
    names: tuple[str, str],
    params: Mapping[str, Any],
    options: SweepRequest,
    request: PlaceRequest,
    where: tuple[str | None, Device],
    rule: StopRule,
) -> pd.DataFrame:
    choice = hardware.choose_device(*where)
    tasks = make_tasks(*names, params, options, choice.backend)
    table = ABTable.start(choice, rule)
    with ExitStack() as stack:
        make: Callable[[int, ABTask], ABSide]
        same_place = True
        if request.python or request.revision:
            stops = stack.enter_context(NoInterrupts())
            make, same_place = stack.enter_context(open_places(request, choice, stops))
        else:
            device = stack.enter_context(hardware.borrow_device(choice.backend, choice.index))
            _prepare(device, request, table)
            make = partial(_make_local, device)
        pairs = ab_run.make_pairs(tasks, make, same_place=same_place)
        return _measure_pairs(pairs, rule, table, ab_run.compare_nothing)


def _compare_functions(
    functions: tuple[Callable[[], object], Callable[[], object]],
    options: SweepRequest,
    stream: Any,
    tolerance: float | None,
    where: tuple[str | None, Device],
    request: PlaceRequest,
    rule: StopRule,
) -> pd.DataFrame:
    caches = expand_caches(options.caches)
    a, b = (name_callable(function) for function in functions)
    with hardware.borrow_current(*where) as (choice, device):
        table = ABTable.start(choice, rule)
        _prepare(device, request, table)
        pairs = []
        for cache in caches:
            how: dict[str, Any] = {"cache": cache, "timer": options.timer, "stream": stream}
            sides = [CallSide(device, function, **how) for function in functions]
            pairs.append(ABPair(ab_run.join_names(a, b), cache, (a, b), sides, functions[0] is functions[1]))
        return _measure_pairs(pairs, rule, table, partial(ab_run.compare_outputs, tolerance=tolerance))


def _make_local(device: _core.Device, _side: int, task: ABTask) -> ABSide:
    return side_of(device, task, Path.cwd())


def _prepare(device: _core.Device, request: PlaceRequest, table: ABTable) -> None:
    if request.threads is not None:
        device.limit_threads(request.threads)
    table.run["facts"] = hardware.facts(device)


def _measure_pairs(pairs: Sequence[ABPair], rule: StopRule, table: ABTable, compare: ab_run.Compare) -> pd.DataFrame:
    try:
        for pair in pairs:
            result = ab_run.measure_pair(pair, rule, table, lambda: None, compare)
            if result.stopped == FAILED:
                raise PairedError(result.reason, table.frame()) from result.cause
    except BaseException as error:
        table.finish("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        with suppress(AttributeError):
            error.frame = table.frame()  # type: ignore[attr-defined]
        raise
    table.finish("complete")
    return table.frame()
