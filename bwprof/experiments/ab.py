"""`bwprof.ab`: check two sides, then compare their times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof import hardware, registry
from bwprof.errors import PairedError
from bwprof.experiments import ab_run
from bwprof.experiments.ab_process import DEFAULT_TURN_SECONDS
from bwprof.experiments.ab_result import ABTable
from bwprof.experiments.ab_run import PlaceRequest
from bwprof.experiments.ab_session import DEFAULT_GATE, DEFAULT_REL_CI, DEFAULT_SECONDS, FAILED, StopRule
from bwprof.experiments.ab_sides import ABTask, Call, CallSide, is_call
from bwprof.hardware import Device
from bwprof.measuring.callables import check_callable, name_callable
from bwprof.measuring.operation import Spec
from bwprof.runs import plan
from bwprof.runs.channel import NoInterrupts
from bwprof.runs.plan import expand_caches, iterate_points, parse_axes, parse_whole_numbers
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


@dataclass(frozen=True, slots=True)
class ABOptions:
    """Options of both sides; empty and None are the operation's defaults."""

    params: Mapping[str, Any] = field(default_factory=dict)
    kv_lens: tuple[int, ...] | None = None
    precisions: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    timer: str | None = None
    seed: int = 0


def make_tasks(a: str, b: str, options: ABOptions, backend: str) -> list[tuple[ABTask, ABTask]]:
    """Make the tasks of both sides, a pair for each combination of parameters, precision and cache.

    "copy" and "copy:tiled" name an operation, in its default or a named variant; "module:function" and
    "file.py:function" name a function. ValueError for anything else, for different work, and for values out of range.
    """
    is_operation = _check_names(a, b)
    registry.check_timer(options.timer, backend)
    if not is_operation:
        return list(zip(_make_calls(a, options), _make_calls(b, options), strict=True))
    sides = [_make_specs(text, options, backend) for text in (a, b)]
    for specs in sides:
        registry.check_kernels((spec.operation, spec.variant, spec.precision, backend) for spec in specs)
    return list(zip(*sides, strict=True))


def _check_names(a: str, b: str) -> bool:
    """Return whether both names are of one operation; False for two functions, ValueError for anything else."""
    known = [row["name"] for row in registry.operations()]
    heads = [text.partition(":")[0] for text in (a, b)]
    problems = [
        f"side {side}: {describe_unknown('operation', head, known)}" for side, head in zip("AB", heads, strict=True)
    ]
    for head, text, problem in zip(heads, (a, b), problems, strict=True):
        if head not in known and not is_call(text):
            raise ValueError(f"{problem}; or a function, as module:function or file.py:function")
    operations = [head if head in known else None for head in heads]
    if operations[0] != operations[1]:
        for head, operation, problem in zip(heads, operations, problems, strict=True):
            if operation is None and nearest_name(head, known, likeness=0.7) is not None:
                raise ValueError(problem)
        kinds = [
            f"the operation {operation}" if operation else f"the function {quote_text(text)}"
            for operation, text in zip(operations, (a, b), strict=True)
        ]
        raise ValueError(f"A is {kinds[0]} and B {kinds[1]}: a ratio of times needs two sides that do the same work")
    return operations[0] is not None


def _make_specs(text: str, options: ABOptions, backend: str) -> list[Spec]:
    operation, _, variant = text.partition(":")
    known = registry.variant_names(operation, backend)
    if ":" in text and variant not in known:
        raise ValueError(describe_unknown(f"variant of {operation} on {backend}", variant, known))
    request = plan.SweepRequest(
        operations=(operation,),
        params={name: parse_whole_numbers(name, value) for name, value in options.params.items()},
        kv_lens=options.kv_lens,
        precisions=options.precisions or (DEFAULT_PRECISION,),
        variants=(variant,) if variant else (),
        caches=options.caches,
        seed=options.seed,
        timer=options.timer,
    )
    return [_name_case(spec) for spec in plan.make_plan(request, backend).specs]


def _name_case(spec: Spec) -> Spec:
    """Name a case after its parameters that differ from the operation's defaults."""
    precisions = registry.operation(spec.operation)["precisions"]
    if spec.precision not in precisions:
        raise ValueError(f"{spec.operation} has no precision {spec.precision}: allowed are {', '.join(precisions)}")
    unusual = registry.unusual_params(spec.operation, spec.precision, spec.params, spec.kv_lens)
    name = " ".join([spec.operation, *(f"{name}={spec.params[name]}" for name in unusual)])
    return replace(spec, case=registry.case_name(name, spec.kv_lens))


def _make_calls(text: str, options: ABOptions) -> list[ABTask]:
    for name, value in (("precision", options.precisions or None), ("kv_lens", options.kv_lens)):
        if value is not None:
            raise ValueError(f"{name} goes with operations, not with a function")
    points: Sequence[dict[str, Any]] = list(iterate_points(parse_axes(options.params)))
    return [Call(text, point, cache, options.timer) for point in points for cache in expand_caches(options.caches)]


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
    99.5 % interval come from whole blocks of turns by Wilcoxon's signed ranks (reasons and sources:
    `bwprof/experiments/ab_session.py`).

    Operations are verified on both sides first, and get new buffers again and again, because the place of buffers in
    the caches can change a small case by a tenth. A function's arrays stay where they are: let A and B use the same
    arrays, or return from the function the callable to measure; the call then prepares it, and is repeated.

    Parameters
    ----------
    a, b : callable or str
        Two functions without arguments, as in `bwprof.measure`; or names: an operation, "gemm", one of its variants,
        "gemm:tiled", or a function, "module:function" or "file.py:function". Without `b`, A runs on both sides, in two
        interpreters or two revisions.
    python : str or iterable of str, optional
        Interpreters that have bwprof, one for each side or one for both. The sides are then processes.
    revision : iterable of str, optional
        Two git revisions. Each is checked out in a worktree, imported from there, and removed afterwards.
    repository : path
        The repository of the revisions.
    build : str, optional
        A shell command that builds a worktree ("python setup.py build_ext --inplace").
    precision, cache, kv_lens, timer, device, backend
        As in `bwprof.sweep`; the default precision is FP32. Several precisions and caches are for names alone.
    stream : optional
        The stream of two callables, as in `bwprof.measure`.
    tolerance : float, optional
        The largest allowed absolute difference of the arrays that two callables return. Without it, a difference is
        noted in `verified` and `reason`.
    threads : int, optional
        The number of a CPU's threads. One thread scatters least on a busy machine.
    rel_ci : float or str
        Stop when half of the ratio's interval is at most this, 0.005 or "0.5%".
    max_seconds : float
        Stop each comparison after so many seconds, counted from the first opening of both sides.
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
        A row for each case: case, a, b, verdict on B ("faster", "slower", "same", "undecided"), ratio (B's time divided
        by A's) with ratio_lo and ratio_hi, a_time_ms and b_time_ms (medians over blocks of the lower quartile of their
        samples), pairs, units, stopped ("precise", "time"), reason, verified, device and environments.
        ``attrs["run"]`` is the metadata, ``attrs["pairs"]`` holds the logarithms, orders and times behind each row.

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
    if a is None:
        raise TypeError("a is None: a function, or the name of an operation or a function, is needed")
    request = PlaceRequest(
        parse_names("python", python),
        parse_names("revision", revision),
        str(repository),
        build,
        None if threads is None else check_threads(parse_int(threads, "threads"), "threads"),
        parse_seconds(max_turn_seconds, "max_turn_seconds"),
    )
    rule = StopRule(
        parse_fraction(rel_ci, "rel_ci"),
        parse_seconds(max_seconds, "max_seconds"),
        parse_fraction(gate, "gate"),
        registry.check_seed(parse_int(seed, "seed")),
    )
    options = ABOptions(
        params,
        registry.parse_lengths(kv_lens),
        parse_names("precision", precision),
        parse_names("cache", cache),
        timer,
        rule.seed,
    )
    b = complete_b(b, a, request)
    where = (backend, device)
    if isinstance(a, str) and isinstance(b, str):
        for name, value in (("stream", stream), ("tolerance", tolerance)):
            if value is not None:
                raise ValueError(f"{name}= goes with two callables, not with names")
        return _compare_names((a, b), options, request, where, rule)
    if isinstance(a, str) or isinstance(b, str) or b is None:
        raise TypeError(f"a is {repr_short(a)} and b is {repr_short(b)}: two callables or two names are needed")
    _refuse_for_callables(options, request)
    return _compare_functions((a, b), options, stream, tolerance, where, request.threads, rule)


def complete_b(b: Any, a: Any, request: PlaceRequest) -> Any:
    """Return B, or A if only that is named and two places differ; ValueError if nothing differs."""
    if b is not None:
        return b
    if not (request.revision or len(request.python) == 2):
        raise ValueError("only A was named: B is needed as well, or two interpreters, or two revisions")
    return a


def are_same(names: tuple[str, str], request: PlaceRequest, commits: Sequence[str]) -> bool:
    """Return whether A and B have the same name, interpreter and revision."""
    return names[0] == names[1] and len(set(request.python)) < 2 and len(set(commits)) < 2


def _compare_names(
    names: tuple[str, str],
    options: ABOptions,
    request: PlaceRequest,
    where: tuple[str | None, Device],
    rule: StopRule,
) -> pd.DataFrame:
    choice = hardware.choose_device(*where)
    tasks = make_tasks(*names, options, choice.backend)
    table = ab_run.start_table(choice, rule, None, {})
    commits: Sequence[str] = []
    with ExitStack() as stack:
        if request.apart:
            stops = stack.enter_context(NoInterrupts())
            make, commits = stack.enter_context(ab_run.open_places(request, choice, stops))
            pairs = ab_run.make_process_pairs(tasks, make)
        else:
            device = stack.enter_context(hardware.borrow_device(choice.backend, choice.index))
            if request.threads is not None:
                device.limit_threads(request.threads)
            table.run["facts"] = hardware.facts(device)
            pairs = ab_run.make_local_pairs(tasks, device)
        pairs = ab_run.add_note(pairs, same=are_same(names, request, commits))
        return _measure_pairs(pairs, rule, table, ab_run.compare_nothing)


def _compare_functions(
    functions: tuple[Callable[[], object], Callable[[], object]],
    options: ABOptions,
    stream: Any,
    tolerance: float | None,
    where: tuple[str | None, Device],
    threads: int | None,
    rule: StopRule,
) -> pd.DataFrame:
    caches = expand_caches(options.caches)
    names = (name_callable(functions[0]), name_callable(functions[1]))
    with hardware.borrow_current(*where) as (choice, device):
        if threads is not None:
            device.limit_threads(threads)
        table = ab_run.start_table(choice, rule, None, {"facts": hardware.facts(device)})
        pairs = []
        for cache in caches:
            a, b = (CallSide(device, call, cache=cache, timer=options.timer, stream=stream) for call in functions)
            pairs.append(ab_run.make_call_pair(names, (a, b), cache))
        pairs = ab_run.add_note(pairs, same=functions[0] is functions[1])
        return _measure_pairs(pairs, rule, table, ab_run.compare_outputs(tolerance))


def _measure_pairs(
    pairs: Sequence[ab_run.ABPair],
    rule: StopRule,
    table: ABTable,
    compare: Callable[[Sequence[Any]], ab_run.Verdict],
) -> pd.DataFrame:
    try:
        for pair in pairs:
            measurement = ab_run.measure_pair(pair, rule, table, lambda: None, compare)
            if measurement.stopped == FAILED:
                table.finish("failed")
                raise PairedError(measurement.reason, table.frame()) from measurement.cause
    except PairedError:
        raise
    except BaseException as error:
        table.finish("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        with suppress(AttributeError):
            error.frame = table.frame()  # type: ignore[attr-defined]
        raise
    table.finish("complete")
    return table.frame()


def _refuse_for_callables(options: ABOptions, request: PlaceRequest) -> None:
    refused: Mapping[str, Any] = {
        "precision": options.precisions or None,
        "kv_lens": options.kv_lens,
        "python": request.python or None,
        "revision": request.revision or None,
        **dict.fromkeys(options.params, True),
    }
    for name, value in refused.items():
        if value is not None:
            raise ValueError(f"{name}= goes with names, not with two callables")


def check_threads(count: int, name: str) -> int:
    """Return a number of threads; ValueError with `name` if it is below 1."""
    if count < 1:
        raise ValueError(f"{name} is {count}: allowed is 1 or more")
    return count
