"""Make a plan: expand a request into cases, and check each before anything runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, TypeVar

from bwprof import registry
from bwprof.hardware import Choice, Device
from bwprof.measuring.operation import CACHES, DEFAULT_CACHE, Spec
from bwprof.runs import suites
from bwprof.runs.suites import Suite, SuiteCase
from bwprof.text.parsing import as_list, check_known, describe_unknown, expand_ranges

MAX_CASES = 100_000  # more is a mistake, and would take days
V = TypeVar("V")


def iterate_points(axes: Mapping[str, Sequence[V]]) -> Iterator[dict[str, V]]:
    """Yield each combination of the values; the last parameter changes fastest.

    Examples
    --------
    >>> [tuple(point.values()) for point in iterate_points({"m": [1, 2], "n": [3, 4]})]
    [(1, 3), (1, 4), (2, 3), (2, 4)]
    """
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def parse_axes(params: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return each parameter's values: those of an iterable; text, mappings and all else are one value.

    ValueError for a parameter without values, and for more than `MAX_CASES` combinations.
    """
    axes = {}
    points = 1
    for name, value in params.items():
        several = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
        several = several and getattr(value, "ndim", 1) != 0
        axes[name] = tuple(itertools.islice(value, MAX_CASES + 1)) if several else (value,)
        points *= len(axes[name])
        if not axes[name]:
            raise ValueError(f"{name} has no values")
    if points > MAX_CASES:
        raise ValueError(f"{points} points are more than a sweep can have ({MAX_CASES})")
    return axes


def format_label(value: Any) -> Any:
    """Return a parameter as a column holds it: numbers, booleans and text unchanged, all else by its name."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # NumPy's scalars
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(getattr(value, "__name__", value))


def parse_whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """Return a parameter's whole numbers, with ranges expanded; ValueError for none, and for any other value."""
    items = as_list(value, name)
    if not items:
        raise ValueError(f"{name} has no values")
    return tuple(registry.parse_param(name, item, name) for item in expand_ranges(items, name))


EVERY_VARIANT = "all"
BOTH_CACHES = "both"
DEFAULT_PRECISIONS = ("fp32", "fp16")
DEFAULT_CASE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What to measure; None and empty mean the suite's or the operation's own values."""

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
    only: tuple[str, ...] = ()  # shell patterns for names of cases and operations


@dataclass(frozen=True, slots=True)
class Plan:
    """The cases of a run, their suite, the seconds they should take together, and the most sampling of each."""

    specs: tuple[Spec, ...]
    suite: str | None
    target_seconds: float | None
    max_seconds: float | None = None


def expand_caches(caches: tuple[str, ...]) -> tuple[str, ...]:
    """Return the caches of a row each, with "both" expanded; cold when empty. ValueError for an unknown one."""
    for cache in caches:
        check_known("cache", cache, (*CACHES, BOTH_CACHES))
    return CACHES if BOTH_CACHES in caches else tuple(dict.fromkeys(caches)) or (DEFAULT_CACHE,)


def make_plan(request: SweepRequest, backend: str) -> Plan:
    """Return the cases of a request on a backend; ValueError for what is unknown, out of range or contradictory."""
    request = _resolve_cases(_check_request(request, backend))
    suite = None
    if request.suite is not None or not (request.operations or request.seq_lengths):
        suite = suites.load("default" if request.suite is None else request.suite)
    specs = _expand_entries(_choose_entries(request, suite, backend), request, suite, backend)
    # A limit for each case replaces the suite's target for all.
    target = suite.target_on(backend) if suite and request.max_seconds is None else None
    return Plan(tuple(specs), suite.name if suite else None, request.target_seconds or target, request.max_seconds)


def _expand_entries(
    originals: Sequence[SuiteCase], request: SweepRequest, suite: Suite | None, backend: str
) -> list[Spec]:
    """Return the cases of all entries; ValueError for none, for too many, and for what no entry with a case has."""
    entries = [_override(entry, request) for entry in originals]
    _check_used(request, entries, backend)
    total = sum(math.prod(map(len, entry.params.values())) for entry in entries)
    if total > MAX_CASES:
        raise ValueError(f"the lists of parameters make {total} cases: allowed are {MAX_CASES}")
    default = suite.precisions_on(backend) if suite else DEFAULT_PRECISIONS
    specs: list[Spec] = []
    selected: list[SuiteCase] = []  # the entries with cases that `only` selects
    for entry, original in zip(entries, originals, strict=True):
        try:
            cases = expand_entry(entry, request, default, backend, original)
        except ValueError as error:
            where = f"suite {suite.name}, case '{entry.name}': " if suite else ""
            raise ValueError(f"{where}{error}") from None
        specs += cases
        selected += [entry] if cases else []
    if request.only:
        _check_only(request.only, entries, specs)
        _check_used(request, selected or entries, backend)
    if not specs:
        raise ValueError(f"nothing to measure on {backend} with precision {', '.join(request.precisions or default)}")
    return drop_duplicates(specs)


def _check_request(request: SweepRequest, backend: str) -> SweepRequest:
    """Return the request with precisions and metrics by their names; ValueError for unknown names and numbers."""
    precisions = tuple(registry.check_precision(name) for name in request.precisions)
    expand_caches(request.caches)
    registry.check_timer(request.timer, backend)
    registry.check_seed(request.seed)
    return replace(request, precisions=precisions, metrics=registry.check_metrics(request.metrics, backend))


def _check_only(only: tuple[str, ...], entries: Sequence[SuiteCase], specs: Sequence[Spec]) -> None:
    """Raise ValueError for a pattern that matches no case."""
    known = dict.fromkeys(name for entry in entries for name in (entry.name, entry.operation))
    for pattern in only:
        if not _matches(pattern, *known, *(spec.case for spec in specs)):
            raise ValueError(describe_unknown("case or operation", pattern, known, where="only"))


def make_plans(request: SweepRequest, choices: Sequence[Choice], *, runs: bool = True) -> list[tuple[Choice, Plan]]:
    """Return a plan for each device; ValueError where no case has a kernel, unless nothing `runs`."""
    plans = {choice.backend: make_plan(request, choice.backend) for choice in choices}
    specs = [(spec, backend) for backend, plan in plans.items() for spec in plan.specs]
    if runs:
        registry.check_kernels((spec.operation, spec.variant, spec.precision, backend) for spec, backend in specs)
    return [(choice, plans[choice.backend]) for choice in choices]


def drop_duplicates(specs: Sequence[Spec], *, ignore: tuple[str, ...] = ()) -> list[Spec]:
    """Return the cases without those that equal an earlier one in all fields but `ignore`."""
    values = attrgetter(*(field.name for field in fields(Spec) if field.name not in ("params", *ignore)))
    seen: dict[tuple[object, ...], Spec] = {}
    for spec in specs:
        seen.setdefault((values(spec), *sorted(spec.params.items())), spec)
    return list(seen.values())


def _matches(pattern: str, *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _resolve_cases(request: SweepRequest) -> SweepRequest:
    """Move names of a suite's cases from `operations` to `only`; names that are all operations stay."""
    known = {operation["name"] for operation in registry.operations()}
    if request.only or known.issuperset(request.operations):
        return request
    suite = request.suite or "default"
    cases = {entry.name for entry in suites.load(suite).cases}
    if cases.issuperset(request.operations):
        return replace(request, operations=(), suite=suite, only=request.operations)
    case = next((name for name in request.operations if name in cases - known), None)
    operation = next((name for name in request.operations if name in known - cases), None)
    if case is not None and operation is not None:
        raise ValueError(
            f"{case} is a case of the suite {suite}, {operation} an operation: name operations alone, or cases alone"
        )
    return request


def _choose_entries(request: SweepRequest, suite: Suite | None, backend: str) -> list[SuiteCase]:
    """Return the suite's entries of the operations; without a suite an entry for each, or for each over query heads."""
    operations = request.operations
    for name in operations:
        registry.operation(name)  # raises for an unknown one
    if suite is None:
        known = [row["name"] for row in registry.operations() if row["family"] == "attention"]
        return [SuiteCase(name, name) for name in dict.fromkeys(operations or known)]
    entries = [entry for entry in suite.cases if entry.runs_on(backend)]
    if not entries:
        raise ValueError(f"suite {suite.name} has no case for backend {backend}")
    present = {entry.operation for entry in entries}
    if absent := ", ".join(name for name in operations if name not in present):
        raise ValueError(f"suite {suite.name} has no case of {absent} on {backend}")
    return [entry for entry in entries if entry.operation in (operations or present)]


def _length_param(operation: str) -> str | None:
    known = registry.param_names(operation)
    return next((name for name in ("seq_len", "kv_len") if name in known), None)


def _override(entry: SuiteCase, request: SweepRequest) -> SuiteCase:
    """Return the entry with those of the request's parameters that its operation has."""
    known = registry.param_names(entry.operation)
    params = dict(entry.params)
    length = _length_param(entry.operation)
    if request.seq_lengths and length:
        params[length] = request.seq_lengths
    params |= {name: values for name, values in request.params.items() if name in known}
    takes = registry.operation(entry.operation)["takes_kv_lens"]
    kv_lens = request.kv_lens if request.kv_lens is not None and takes else entry.kv_lens
    return replace(entry, params=params, kv_lens=kv_lens)


def _check_used(request: SweepRequest, entries: Sequence[SuiteCase], backend: str) -> None:
    """Raise ValueError for a parameter, precision or variant that no operation of the entries has."""
    operations = list(dict.fromkeys(entry.operation for entry in entries))
    listed = ", ".join(operations)

    def union(names_of: Callable[[str], Iterable[str]]) -> list[str]:
        return list(dict.fromkeys(name for operation in operations for name in names_of(operation)))

    precisions = union(lambda operation: registry.operation(operation)["precisions"])
    for name in request.precisions:
        if name not in precisions:
            raise ValueError(f"no precision {name} of {listed}: allowed are {', '.join(precisions)}")
    params = union(registry.param_names)
    for name, values in request.params.items():
        if name not in params:
            raise ValueError(registry.describe_unknown_param(listed, name, params))
        if not values:
            raise ValueError(f"parameter {name} has no values")
    variants = [*union(lambda operation: registry.variant_names(operation, backend)), EVERY_VARIANT]
    for name in request.variants:
        check_known(f"variant on {backend}", name, variants)
    if request.seq_lengths and not any(map(_length_param, operations)):
        raise ValueError(f"--seq-lengths: {listed} has neither seq_len nor kv_len")
    if request.kv_lens is not None and not any(registry.operation(name)["takes_kv_lens"] for name in operations):
        raise ValueError(f"kv_lens: {listed} takes none")


def expand_entry(
    entry: SuiteCase, request: SweepRequest, default: tuple[str, ...], backend: str, original: SuiteCase | None = None
) -> list[Spec]:
    """Return the cases of an entry with the request's parameters; `original` is the entry without them.

    `default` are the precisions of entries without their own, where the request names none.
    """
    precisions = _choose_precisions(entry, request, default)
    turns = _order_turns(entry, request, precisions, backend)
    named = _name_parameters(original or entry, entry, _usable(entry, *precisions))
    options = request.seed, request.timer, request.counters, request.metrics, request.rel_ci
    specs: list[Spec] = []
    for params in iterate_points(entry.params):
        name = " ".join([entry.name, *(f"{param}={params[param]}" for param in named)])
        case = registry.case_name(name, entry.kv_lens)
        if request.only and not any(_matches(pattern, case, entry.name, entry.operation) for pattern in request.only):
            continue
        complete: dict[str, dict[str, int]] = {}  # precisions share equal dicts: plans are large
        for precision in precisions:
            found = registry.complete_params(entry.operation, _usable(entry, precision), params, entry.kv_lens)
            complete[precision] = next((same for same in complete.values() if same == found), found)
        for cache in expand_caches(request.caches or entry.caches or ()):
            for precision, variant in turns:
                identity = case, entry.operation, precision, complete[precision], entry.kv_lens, variant, cache
                specs.append(Spec(*identity, *options))
    return specs


def _usable(entry: SuiteCase, *precisions: str) -> str:
    """Return the first precision that the operation has, else the operation's own first."""
    allowed: list[str] = registry.operation(entry.operation)["precisions"]
    return next((name for name in precisions if name in allowed), allowed[0])


def _choose_precisions(entry: SuiteCase, request: SweepRequest, default: tuple[str, ...]) -> list[str]:
    allowed = registry.operation(entry.operation)["precisions"]
    # The request's precisions give each case a row, maybe a skipped one; the suite's are only those that fit.
    chosen = request.precisions or entry.precisions or tuple(name for name in default if name in allowed)
    return sorted(dict.fromkeys(chosen), key=registry.precision_names().index)


def _order_turns(
    entry: SuiteCase, request: SweepRequest, precisions: Sequence[str], backend: str
) -> list[tuple[str, str | None]]:
    """Return (precision, variant) pairs; a variant's precisions follow each other, under the same conditions."""
    turns = [(name, variant) for name in precisions for variant in _list_variants(entry, request, name, backend)]
    variants = list(dict.fromkeys(variant for _, variant in turns))
    return sorted(turns, key=lambda turn: variants.index(turn[1]))


def _name_parameters(original: SuiteCase, entry: SuiteCase, precision: str) -> list[str]:
    """Return the parameters in a case's name, which make it unique.

    They are those with several values, and those of the request that differ from the suite or the operation. Lengths
    are always part of the name.
    """
    fixed = {name: values[0] for name, values in entry.params.items() if len(set(values)) == 1}
    changed = [name for name, value in fixed.items() if set(original.params.get(name, ())) != {value}]
    try:
        unusual = registry.unusual_params(entry.operation, precision, fixed, entry.kv_lens) if changed else []
    except ValueError:  # these alone do not fit together
        unusual = changed
    named = {name for name in changed if name in original.params or name in unusual}
    return [name for name in entry.params if name not in fixed or name in named]


def _list_variants(entry: SuiteCase, request: SweepRequest, precision: str, backend: str) -> list[str | None]:
    """Return the variants to run; [None] leaves the choice to the device."""
    names = request.variants or entry.variants or ()
    if EVERY_VARIANT in names:
        return list(registry.variant_names(entry.operation, backend, precision)) or [None]
    known = registry.variant_names(entry.operation, backend)
    chosen: list[str | None] = [name for name in dict.fromkeys(names) if not request.variants or name in known]
    return chosen or [None]
