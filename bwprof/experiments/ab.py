"""`bwprof.ab`: check what is compared before anything runs, then compare it."""

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
from bwprof.runs.interrupts import NoInterrupts
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
    """What both sides have in common; empty and None mean as the operation has it."""

    params: Mapping[str, Any] = field(default_factory=dict)
    kv_lens: tuple[int, ...] | None = None
    precisions: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    timer: str | None = None
    seed: int = 0


def is_operation(text: str) -> bool:
    """Whether a text names an operation of bwprof's, with or without a variant."""
    return text.partition(":")[0] in {known["name"] for known in registry.operations()}


def make_tasks(a: str, b: str, options: ABOptions, backend: str) -> list[tuple[ABTask, ABTask]]:
    """What both sides run, a pair for each combination of parameters, precision and cache.

    "copy" and "copy:tiled" are an operation, in its default or a named variant; "module:function" and
    "file.py:function" a function.

    Raises
    ------
    ValueError
        For what is neither, two that do different work, and anything unknown or out of range.
    """
    known = [row["name"] for row in registry.operations()]
    for side, text in (("A", a), ("B", b)):
        if not is_operation(text) and not is_call(text):
            said = describe_unknown("operation", text.partition(":")[0], known)
            raise ValueError(f"side {side}: {said}; or a function, as module:function or file.py:function")
    operations = [text.partition(":")[0] if is_operation(text) else None for text in (a, b)]
    if operations[0] != operations[1]:
        named = [
            f"the operation {one}" if one else f"the function {quote_text(text)}"
            for one, text in zip(operations, (a, b), strict=True)
        ]
        for side, text, operation in zip("AB", (a, b), operations, strict=True):
            head = text.partition(":")[0]
            if operation is None and nearest_name(head, known, likeness=0.7) is not None:
                raise ValueError(f"side {side}: {describe_unknown('operation', head, known)}")
        raise ValueError(f"A is {named[0]} and B {named[1]}: a ratio of times needs two sides that do the same work")
    registry.check_timer(options.timer, backend)
    if operations[0] is None:
        return list(zip(_calls(a, options), _calls(b, options), strict=True))
    sides = [_specs(text, options, backend) for text in (a, b)]
    for specs in sides:
        registry.check_kernels((spec.operation, spec.variant, spec.precision, backend) for spec in specs)
    return list(zip(*sides, strict=True))


def _specs(text: str, options: ABOptions, backend: str) -> list[Spec]:
    operation, _, variant = text.partition(":")
    if ":" in text and variant not in registry.variant_names(operation, backend):
        known = registry.variant_names(operation, backend)
        raise ValueError(describe_unknown(f"variant of {operation} on {backend}", variant, known))
    asked = plan.SweepRequest(
        operations=(operation,),
        params={name: parse_whole_numbers(name, value) for name, value in options.params.items()},
        kv_lens=options.kv_lens,
        precisions=options.precisions or (DEFAULT_PRECISION,),
        variants=(variant,) if variant else (),
        caches=options.caches,
        seed=options.seed,
        timer=options.timer,
    )
    return [_name_case(spec) for spec in plan.make_plan(asked, backend).specs]


def _name_case(spec: Spec) -> Spec:
    """A case is called by whatever is not the operation's default."""
    if spec.precision not in registry.operation(spec.operation)["precisions"]:
        allowed = ", ".join(registry.operation(spec.operation)["precisions"])
        raise ValueError(f"{spec.operation} has no precision {spec.precision}: allowed are {allowed}")
    told = registry.unusual_params(spec.operation, spec.precision, spec.params, spec.kv_lens)
    named = " ".join([spec.operation, *(f"{name}={spec.params[name]}" for name in told)])
    return replace(spec, case=registry.case_name(named, spec.kv_lens))


def _calls(text: str, options: ABOptions) -> list[ABTask]:
    for name, is_given in (("precision", options.precisions != ()), ("kv_lens", options.kv_lens is not None)):
        if is_given:
            raise ValueError(f"{name} goes with operations, not with a function")
    points: Sequence[dict[str, Any]] = list(iterate_points(parse_axes(options.params)))
    return [Call(text, point, cache, options.timer) for point in points for cache in plan.expand_caches(options.caches)]


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
    """Which of two is faster, by how much: measured turn by turn, for machines that drift.

    A and B take short turns, A B B A or B A A B by a coin, until the ratio of their times is known well enough or the
    time is up. What drifts meets both; what disturbs makes single samples longer, and is left out. The ratio and its
    99.5 % interval come from whole blocks by Wilcoxon's signed ranks (`experiments/ab_session.py` gives the reasons and
    sources), so that neither drift nor neighbours that resemble each other make it narrower than it is.

    Operations are verified on both sides first, and get fresh buffers again and again: where buffers lie in the caches
    is luck, and can make a tenth of a small case's time. A function's arrays are the caller's, and stay where they are:
    let A and B work on the same ones, or return from the function the one to measure; the call then is its preparation,
    and is made again.

    Parameters
    ----------
    a, b : callable or str
        Two functions, called without arguments, as `bwprof.measure` has them; an operation, "gemm", or one of its
        variants, "gemm:tiled"; or a function by its name, "module:function" or "file.py:function". Without `b` it is A
        on either side, which needs two interpreters or two revisions.
    python : str or iterable of str, optional
        Interpreters, one for A and one for B or one for both, each with a bwprof of its own. The sides then are
        processes, of which only one works at a time.
    revision : iterable of str, optional
        Two git revisions, which are checked out beside each other in worktrees, imported from first, and removed again.
    repository : path
        Of the revisions.
    build : str, optional
        A command for the shell that makes a worktree ready ("python setup.py build_ext --inplace").
    precision, cache, kv_lens, timer, device, backend
        As in `bwprof.sweep`, where FP32 is the precision when none is named; precisions and caches are for names, but
        two callables have one cache, too.
    stream : optional
        That two callables enqueue on, as in `bwprof.measure`.
    tolerance : float, optional
        Where two callables return arrays: the largest absolute difference that is right. Without it the arrays are
        compared, too, and the row's `verified` and `reason` tell.
    threads : int, optional
        On a CPU: so many of its threads work. One scatters least on a busy machine.
    rel_ci : float or str
        Stop when half of the ratio's interval is no wider than this, 0.005 or "0.5%".
    max_seconds : float
        The most for one comparison, after both sides were first opened.
    gate : float or str
        The smallest difference worth a word, 0.01 or "1%": what is smaller is called the same.
    seed : int
        Of the coin, and of the generated inputs.
    max_turn_seconds : float
        For one answer of a side's process, which is then ended.
    **params : int, str or iterable of them
        Parameters, as in `bwprof.sweep`; lists make a row for each combination. Of functions by name the arguments.

    Returns
    -------
    pandas.DataFrame
        A row for each case: case, a, b, verdict ("faster", "slower", "same", "undecided": what B is), ratio (B's time
        divided by A's) with ratio_lo and ratio_hi, a_time_ms and b_time_ms (medians over blocks of the lower quartile
        of their samples), pairs, units, stopped ("precise", "time"), reason, verified, device and environments.
        ``attrs["run"]`` is the metadata, ``attrs["pairs"]`` the logarithms, orders and times that each row comes from.

    Raises
    ------
    ValueError
        For what is unknown, out of range or contradictory, before anything runs.
    bwprof.errors.PairedError
        When a side cannot go on: it raises an exception (its cause), gives a wrong result, crashes, hangs. The message
        names the side, `frame` holds what was measured.

    Whatever else ends it early (Ctrl-C) has the rows so far as `frame`.

    Examples
    --------
    >>> import bwprof, numpy as np
    >>> x = np.ones(1 << 15)
    >>> once, twice = lambda: x.sum(), lambda: (x.sum(), x.sum())
    >>> row = bwprof.ab(once, twice, cache="hot", device="cpu", rel_ci=0.1, max_seconds=2).iloc[0]
    >>> row["verdict"]
    'slower'
    """
    for name, given in (("a", a), ("b", b)):
        if not isinstance(given, str):
            check_callable(given, name)
    if a is None:
        raise TypeError("a is None: a function, or the name of an operation or a function, is needed")
    wanted = PlaceRequest(
        parse_names("python", python),
        parse_names("revision", revision),
        str(repository),
        build,
        None if threads is None else check_threads(parse_int(threads, "threads"), "threads"),
        parse_seconds(max_turn_seconds, "max_turn_seconds"),
    )
    how = StopRule(
        parse_fraction(rel_ci, "rel_ci"),
        parse_seconds(max_seconds, "max_seconds"),
        parse_fraction(gate, "gate"),
        _seed(seed),
    )
    given_options = ABOptions(
        params,
        registry.parse_lengths(kv_lens),
        parse_names("precision", precision),
        parse_names("cache", cache),
        timer,
        how.seed,
    )
    other = complete_b(b, a, wanted)
    if callable(a) and callable(other):
        _refuse_for_callables(given_options, wanted)
        return _functions((a, other), given_options, stream, tolerance, (backend, device), wanted.threads, how)
    if not (isinstance(a, str) and isinstance(other, str)):
        raise TypeError(f"a is {repr_short(a)} and b is {repr_short(b)}: two callables or two names are needed")
    for name, value in (("stream", stream), ("tolerance", tolerance)):
        if value is not None:
            raise ValueError(f"{name}= goes with two callables, not with names")
    return _named((a, other), given_options, wanted, (backend, device), how)


def complete_b(b: Any, a: Any, wanted: PlaceRequest) -> Any:
    """B, which is A where two places differ and only A was named; ValueError where nothing differs."""
    if b is not None:
        return b
    if not (wanted.revision or len(wanted.python) == 2):
        raise ValueError("only A was named: B is needed as well, or two interpreters, or two revisions")
    return a


def are_same(names: tuple[str, str], wanted: PlaceRequest, commits: Sequence[str]) -> bool:
    """Whether nothing tells B from A."""
    return names[0] == names[1] and len(set(wanted.python)) < 2 and len(set(commits)) < 2


def _named(
    names: tuple[str, str], options: ABOptions, wanted: PlaceRequest, where: tuple[str | None, Device], how: StopRule
) -> pd.DataFrame:
    choice = hardware.choose_device(*where)
    tasks = make_tasks(*names, options, choice.backend)
    table = ab_run.start_table(choice, how, None, {})
    with ExitStack() as stack:
        if wanted.apart:
            stops = stack.enter_context(NoInterrupts())
            make, commits = stack.enter_context(ab_run.open_places(wanted, choice, stops))
            pairs = ab_run.make_process_pairs(tasks, make)
        else:
            commits = []
            device = stack.enter_context(hardware.borrow_device(choice.backend, choice.index))
            if wanted.threads is not None:
                device.limit_threads(wanted.threads)
            table.run["facts"] = hardware.device_facts(device)
            pairs = ab_run.make_local_pairs(tasks, device)
        return _all(ab_run.add_note(pairs, same=are_same(names, wanted, commits)), how, table, ab_run.compare_nothing)


def _functions(
    functions: tuple[Callable[[], object], Callable[[], object]],
    options: ABOptions,
    stream: Any,
    tolerance: float | None,
    where: tuple[str | None, Device],
    threads: int | None,
    how: StopRule,
) -> pd.DataFrame:
    caches = expand_caches(options.caches)
    names = (name_callable(functions[0]), name_callable(functions[1]))
    with hardware.borrow_current(*where) as (choice, device):
        if threads is not None:
            device.limit_threads(threads)
        table = ab_run.start_table(choice, how, None, {"facts": hardware.device_facts(device)})
        pairs = []
        for cache in caches:
            one, other = (
                CallSide(device, function, cache=cache, timer=options.timer, stream=stream) for function in functions
            )
            pairs.append(ab_run.make_call_pair(names, (one, other), cache))
        noted = ab_run.add_note(pairs, same=functions[0] is functions[1])
        return _all(noted, how, table, ab_run.compare_outputs(tolerance))


def _all(
    pairs: Sequence[ab_run.ABPair],
    how: StopRule,
    table: ABTable,
    compared: Callable[[Sequence[Any]], tuple[bool | None, str]],
) -> pd.DataFrame:
    try:
        for pair in pairs:
            found = ab_run.measure_pair(pair, how, table, lambda: None, compared)
            if found.stopped == FAILED:
                table.finish("failed")
                raise PairedError(found.reason, table.frame()) from found.cause
    except PairedError:
        raise
    except BaseException as error:
        table.finish("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        with suppress(AttributeError):
            error.frame = table.frame()  # type: ignore[attr-defined]
        raise
    table.finish("complete")
    return table.frame()


def _refuse_for_callables(options: ABOptions, wanted: PlaceRequest) -> None:
    given: Mapping[str, Any] = {
        "precision": options.precisions,
        "kv_lens": options.kv_lens is not None,
        "python": wanted.python,
        "revision": wanted.revision,
        **options.params,
    }
    for name, value in given.items():
        if value or (name in options.params):
            raise ValueError(f"{name}= goes with names, not with two callables")


def check_threads(given: int, name: str) -> int:
    """The same; ValueError with `name` for what is no number of threads."""
    if given < 1:
        raise ValueError(f"{name} is {given}: allowed is 1 or more")
    return given


def _seed(given: Any) -> int:
    return registry.check_seed(parse_int(given, "seed"))
