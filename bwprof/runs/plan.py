"""Make a plan: the cases of a request, its grids expanded, each checked before anything runs."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, TypeVar

from bwprof import registry
from bwprof.hardware import Choice, Device
from bwprof.measuring.operation import CACHES, DEFAULT_CACHE, Spec
from bwprof.runs import suites
from bwprof.runs.suites import Suite, SuiteCase
from bwprof.text.parsing import as_list, describe_unknown, expand_ranges

MAX_CASES = 100_000  # each in its precisions: more is a slip, and would take days

V = TypeVar("V")


def iterate_points(axes: Mapping[str, Sequence[V]]) -> Iterator[dict[str, V]]:
    """Each combination of the values, the last parameter's changing fastest.

    Examples
    --------
    >>> [tuple(point.values()) for point in product({"m": [1, 2], "n": [3, 4]})]
    [(1, 3), (1, 4), (2, 3), (2, 4)]
    """
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def parse_axes(params: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
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
        axes[name] = (value,) if one else tuple(itertools.islice(value, MAX_CASES + 1))
        points *= len(axes[name])
        if not axes[name]:
            raise ValueError(f"{name} has no values")
    if points > MAX_CASES:
        raise ValueError(f"{points} points are more than a sweep can have ({MAX_CASES})")
    return axes


def format_label(value: Any) -> Any:
    """A parameter as a column holds it: numbers, truth and text as they are, all else by its name."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # NumPy's scalars
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(getattr(value, "__name__", value))


def parse_whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """A parameter's values where it takes whole numbers: one, or an iterable of them, ranges among them.

    Raises
    ------
    ValueError
        For a parameter without values, and one that is no whole number.
    """
    items = as_list(value, name)
    if not items:
        raise ValueError(f"{name} has no values")
    return tuple(registry.parse_param(name, item, name) for item in expand_ranges(items, name))


_log = logging.getLogger("bwprof.sweep")

EVERY_VARIANT = "all"

BOTH_CACHES = "both"

DEFAULT_CASE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What was asked for; None and empty mean "as the suite or the operation has it"."""

    operations: tuple[str, ...] = ()
    params: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kv_lens: tuple[int, ...] | None = None
    seq_lengths: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    suite: str | None = None
    backend: str | None = None
    device: Device | Sequence[Device] = None
    seed: int = 0
    timer: str | None = None
    counters: bool = False
    metrics: tuple[str, ...] = ()
    target_seconds: float | None = None
    rel_ci: float | None = None
    max_seconds: float | None = None
    only: tuple[str, ...] = ()  # patterns of the shell over the names of cases and operations


@dataclass(frozen=True, slots=True)
class Plan:
    """The cases of a run, where they come from, the seconds they should take together, and the most of sampling for
    each.
    """

    specs: tuple[Spec, ...]
    suite: str | None
    target_seconds: float | None
    max_seconds: float | None = None


def expand_caches(asked: tuple[str, ...]) -> tuple[str, ...]:
    """The caches of a row each, "both" spelt out; cold when none was asked for.

    Raises
    ------
    ValueError
        For an unknown one.
    """
    for cache in asked:
        if cache not in (*CACHES, BOTH_CACHES):
            raise ValueError(describe_unknown("cache", cache, (*CACHES, BOTH_CACHES)))
    return CACHES if BOTH_CACHES in asked else tuple(dict.fromkeys(asked)) or (DEFAULT_CACHE,)


def make_plan(request: SweepRequest, backend: str) -> Plan:
    """The cases that a request stands for on a backend.

    Raises
    ------
    ValueError
        For anything unknown, out of range or contradictory; the message names it and the nearest right name.
    """
    precisions = tuple(registry.check_precision(name) for name in request.precisions)
    expand_caches(request.caches)
    registry.check_timer(request.timer, backend)
    registry.check_seed(request.seed)
    request = _with_cases(replace(request, metrics=registry.check_metrics(request.metrics, backend)))
    suite = _chosen_suite(request)
    entries = _entries(request, suite, backend)
    asked_of = [(entry, _overridden(entry, request)) for entry in entries]
    entries = [entry for _, entry in asked_of]
    _check_used(request, entries, backend)
    asked = bool(precisions)
    chosen = precisions or (suite.precisions_on(backend) if suite else ("fp32", "fp16"))
    specs: list[Spec] = []
    left: list[SuiteCase] = []  # entries of which `only` leaves something
    total = 0
    for own, entry in asked_of:
        count = math.prod(len(values) for values in entry.params.values())
        total += count
        if count > MAX_CASES:
            raise ValueError(f"{entry.name}: the lists of parameters make {count} cases: allowed are {MAX_CASES}")
        if total > MAX_CASES:
            raise ValueError(f"the suite makes more than {MAX_CASES} cases, which is the most there can be")
        try:
            found = _expanded(entry, request, chosen, asked, backend, own)
            specs += found
            left += [entry] if found else []
        except ValueError as error:
            if suite is None:
                raise
            raise ValueError(f"suite {suite.name}, case '{entry.name}': {error}") from None
    _check_only(request.only, entries, specs)
    if request.only and left:
        _check_used(request, left, backend)
    specs = drop_duplicates(specs)
    if not specs:
        raise ValueError(f"nothing to measure on {backend} with precision {', '.join(chosen)}")
    # Whoever says how long each case may take wants that, and not the suite's wish.
    target = suite.target_on(backend) if suite and request.max_seconds is None else None
    return Plan(tuple(specs), suite.name if suite else None, request.target_seconds or target, request.max_seconds)


def make_plans(request: SweepRequest, choices: Sequence[Choice], *, runs: bool = True) -> list[tuple[Choice, Plan]]:
    """The same for each of several devices; ValueError where no case has a kernel, unless nothing `runs`."""
    plans = {choice.backend: make_plan(request, choice.backend) for choice in choices}
    specs = [(spec, backend) for backend, plan in plans.items() for spec in plan.specs]
    if runs:
        registry.check_kernels((spec.operation, spec.variant, spec.precision, backend) for spec, backend in specs)
    return [(choice, plans[choice.backend]) for choice in choices]


def drop_duplicates(specs: Sequence[Spec], *, whatever: tuple[str, ...] = ()) -> list[Spec]:
    """The same without those that are equal to an earlier one, `whatever` these fields are: a value listed twice, an
    entry copied.
    """
    told = [field.name for field in fields(Spec) if field.name not in ("params", *whatever)]
    values = attrgetter(*told)
    seen: dict[tuple[object, ...], Spec] = {}
    for spec in specs:
        seen.setdefault((values(spec), *sorted(spec.params.items())), spec)
    return list(seen.values())


def _named(pattern: str, *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _check_only(only: tuple[str, ...], entries: Sequence[SuiteCase], specs: Sequence[Spec]) -> None:
    """Each pattern must leave some case: one that does not is a slip."""
    known = dict.fromkeys(name for entry in entries for name in (entry.name, entry.operation))
    for pattern in only:
        if not _named(pattern, *known) and not _named(pattern, *(spec.case for spec in specs)):
            raise ValueError(describe_unknown("case or operation", pattern, known, where="only"))


def _with_cases(request: SweepRequest) -> SweepRequest:
    """The same where names of a suite's cases stand in the place of operations: of that suite, else of the default one,
    these alone. Where all names are operations, too, operations are meant.
    """
    known = {operation["name"] for operation in registry.operations()}
    if request.only or known.issuperset(request.operations):
        return request
    suite = request.suite or "default"
    cases = {entry.name for entry in suites.load(suite).cases}
    if not cases.issuperset(request.operations):
        _check_alike(request.operations, known, cases, suite)
        return request
    return replace(request, operations=(), suite=suite, only=request.operations)


def _check_alike(names: Sequence[str], known: Set[str], cases: Set[str], suite: str) -> None:
    """ValueError for operations among cases, of which neither knows the others' names."""
    case = next((name for name in names if name in cases - known), None)
    operation = next((name for name in names if name in known - cases), None)
    if case is not None and operation is not None:
        raise ValueError(
            f"{case} is a case of the suite {suite}, {operation} an operation: name operations alone, or cases alone"
        )


def _chosen_suite(request: SweepRequest) -> Suite | None:
    if request.suite is not None:
        return suites.load(request.suite)
    if request.operations or request.seq_lengths:
        return None
    return suites.load("default")


def _entries(request: SweepRequest, suite: Suite | None, backend: str) -> list[SuiteCase]:
    if suite is None:
        names = request.operations or tuple(_with_sequences())
        for name in names:
            registry.operation(name)
        return [SuiteCase(name=name, operation=name) for name in dict.fromkeys(names)]
    for name in request.operations:
        registry.operation(name)
    found = [entry for entry in suite.cases if entry.backends is None or backend in entry.backends]
    if request.operations:
        found = [entry for entry in found if entry.operation in request.operations]
        present = {entry.operation for entry in found}
        absent = [name for name in request.operations if name not in present]
        if absent:
            raise ValueError(f"suite {suite.name} has no case of {', '.join(absent)} on {backend}")
    if not found:
        raise ValueError(f"suite {suite.name} has no case for backend {backend}")
    return found


def _with_sequences() -> list[str]:
    """Operations over sequences and query heads: what --seq-lengths means when no operation is named."""
    names = [operation["name"] for operation in registry.operations()]
    return [name for name in names if "num_heads" in registry.param_names(name) and _length_param(name)]


def _length_param(operation: str) -> str | None:
    known = registry.param_names(operation)
    return next((name for name in ("seq_len", "kv_len") if name in known), None)


def _overridden(entry: SuiteCase, request: SweepRequest) -> SuiteCase:
    """The entry with the request's parameters, where its operation has them."""
    known = registry.param_names(entry.operation)
    params = dict(entry.params)
    length = _length_param(entry.operation)
    if request.seq_lengths and length:
        params[length] = request.seq_lengths
    params.update({name: values for name, values in request.params.items() if name in known})
    takes = registry.operation(entry.operation)["takes_kv_lens"]
    kv_lens = request.kv_lens if request.kv_lens is not None and takes else entry.kv_lens
    return replace(entry, params=params, kv_lens=kv_lens)


def _check_used(request: SweepRequest, entries: Sequence[SuiteCase], backend: str) -> None:
    """Every parameter, precision and variant asked for must belong to some operation that is measured."""
    operations = list(dict.fromkeys(entry.operation for entry in entries))
    precisions = {name: None for operation in operations for name in registry.operation(operation)["precisions"]}
    for name in request.precisions:
        if registry.check_precision(name) not in precisions:
            raise ValueError(f"no precision {name} of {', '.join(operations)}: allowed are {', '.join(precisions)}")
    params = {name: None for operation in operations for name in registry.param_names(operation)}
    for name, values in request.params.items():
        if name not in params:
            raise ValueError(registry.describe_unknown_param(", ".join(operations), name, params))
        if not values:
            raise ValueError(f"parameter {name} has no values")
    variants = {name: None for operation in operations for name in registry.variant_names(operation, backend)}
    for name in request.variants:
        if name != EVERY_VARIANT and name not in variants:
            raise ValueError(describe_unknown(f"variant on {backend}", name, [*variants, EVERY_VARIANT]))
    if request.seq_lengths and not any(_length_param(operation) for operation in operations):
        raise ValueError(f"--seq-lengths: {', '.join(operations)} has neither seq_len nor kv_len")
    if request.kv_lens is not None and not any(registry.operation(name)["takes_kv_lens"] for name in operations):
        raise ValueError(f"kv_lens: {', '.join(operations)} takes none")


def _name_parameters(own: SuiteCase, entry: SuiteCase, precision: str) -> list[str]:
    """The parameters that a case's name ends with, so that no two rows are called the same: those of which it has
    several values, and those that were asked for and are not what the suite, or the operation, has.
    Lengths are always told.
    """
    fixed = {name: values[0] for name, values in entry.params.items() if len(set(values)) == 1}
    asked = [name for name, value in fixed.items() if set(own.params.get(name, ())) != {value}]
    try:
        unusual = registry.unusual_params(entry.operation, precision, fixed, entry.kv_lens) if asked else []
    except ValueError:  # these alone do not fit together
        unusual = asked
    told = {name for name in asked if name in own.params or name in unusual}
    return [name for name in entry.params if name not in fixed or name in told]


def _expanded(
    entry: SuiteCase,
    request: SweepRequest,
    chosen: tuple[str, ...],
    asked: bool,
    backend: str,
    own: SuiteCase | None = None,
) -> list[Spec]:
    """An entry's cases; `own` is the entry before the request's parameters took the place of some of its."""
    allowed = registry.operation(entry.operation)["precisions"]
    wanted = chosen if asked else (entry.precisions or chosen)
    # A suite's precisions are what its operations may choose from; one that the user names is answered for
    # every case, if only by a skipped row.
    if not asked and entry.precisions is None:
        wanted = tuple(name for name in wanted if name in allowed)
    order = registry.precision_names()
    precisions = sorted(dict.fromkeys(wanted), key=order.index)
    caches = expand_caches(request.caches or entry.caches or ())
    turns = _turns(entry, request, precisions, backend)
    told = _name_parameters(own or entry, entry, next((name for name in precisions if name in allowed), allowed[0]))
    specs = []
    for params in iterate_points(entry.params):
        named = " ".join([entry.name, *(f"{name}={params[name]}" for name in told)])
        case = registry.case_name(named, entry.kv_lens)
        if request.only and not any(_named(one, case, entry.name, entry.operation) for one in request.only):
            continue
        whole: dict[str, dict[str, int]] = {}
        for precision in precisions:
            usable = precision if precision in allowed else allowed[0]
            found = registry.complete_params(entry.operation, usable, params, entry.kv_lens)
            whole[precision] = next((same for same in whole.values() if same == found), found)
        specs += [
            Spec(
                case,
                entry.operation,
                precision,
                whole[precision],
                entry.kv_lens,
                variant,
                cache,
                request.seed,
                request.timer,
                request.counters,
                request.metrics,
                request.rel_ci,
            )
            for cache in caches
            for precision, variant in turns
        ]
    return specs


def _turns(
    entry: SuiteCase, request: SweepRequest, precisions: Sequence[str], backend: str
) -> list[tuple[str, str | None]]:
    """Precisions and variants in their order: a variant's precisions follow each other, so that they are compared under
    the same conditions.
    """
    found = [(name, variant) for name in precisions for variant in _variants(entry, request, name, backend)]
    variants = list(dict.fromkeys(variant for _, variant in found))
    return sorted(found, key=lambda turn: variants.index(turn[1]))


def _variants(entry: SuiteCase, request: SweepRequest, precision: str, backend: str) -> list[str | None]:
    """The variants to run; [None] leaves the choice to the device."""
    of_operation = registry.variant_names(entry.operation, backend)
    wanted = request.variants or entry.variants or ()
    if EVERY_VARIANT in wanted:
        return list(registry.variant_names(entry.operation, backend, precision)) or [None]
    named: list[str | None] = [name for name in dict.fromkeys(wanted) if name in of_operation]
    if request.variants:
        return named or [None]
    return list(dict.fromkeys(wanted)) or [None]
