"""From what was asked for to pieces of work for both sides, each checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bwprof import registry
from bwprof.measuring.spec import Spec
from bwprof.paired.work import Call, Work, is_call
from bwprof.runs import plan
from bwprof.runs.grid import axes_of, product, whole_numbers
from bwprof.text import nearest, quoted, unknown

DEFAULT_PRECISION = "fp32"


@dataclass(frozen=True, slots=True)
class Options:
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


def works(a: str, b: str, options: Options, backend: str) -> list[tuple[Work, Work]]:
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
            said = unknown("operation", text.partition(":")[0], known)
            raise ValueError(f"side {side}: {said}; or a function, as module:function or file.py:function")
    operations = [text.partition(":")[0] if is_operation(text) else None for text in (a, b)]
    if operations[0] != operations[1]:
        named = [
            f"the operation {one}" if one else f"the function {quoted(text)}"
            for one, text in zip(operations, (a, b), strict=True)
        ]
        for side, text, operation in zip("AB", (a, b), operations, strict=True):
            head = text.partition(":")[0]
            if operation is None and nearest(head, known, likeness=0.7) is not None:
                raise ValueError(f"side {side}: {unknown('operation', head, known)}")
        raise ValueError(f"A is {named[0]} and B {named[1]}: a ratio of times needs two sides that do the same work")
    registry.check_timer(options.timer, backend)
    if operations[0] is None:
        return list(zip(_calls(a, options), _calls(b, options), strict=True))
    sides = [_specs(text, options, backend) for text in (a, b)]
    for specs in sides:
        registry.check_kernels((spec.operation, spec.variant, spec.precision, backend) for spec in specs)
    return list(zip(*sides, strict=True))


def _specs(text: str, options: Options, backend: str) -> list[Spec]:
    operation, _, variant = text.partition(":")
    if ":" in text and variant not in registry.variant_names(operation, backend):
        known = registry.variant_names(operation, backend)
        raise ValueError(unknown(f"variant of {operation} on {backend}", variant, known))
    asked = plan.Request(
        operations=(operation,),
        params={name: whole_numbers(name, value) for name, value in options.params.items()},
        kv_lens=options.kv_lens,
        precisions=options.precisions or (DEFAULT_PRECISION,),
        variants=(variant,) if variant else (),
        caches=options.caches,
        seed=options.seed,
        timer=options.timer,
    )
    return [_told(spec) for spec in plan.make(asked, backend).specs]


def _told(spec: Spec) -> Spec:
    """A case is called by whatever is not the operation's default."""
    if spec.precision not in registry.operation(spec.operation)["precisions"]:
        allowed = ", ".join(registry.operation(spec.operation)["precisions"])
        raise ValueError(f"{spec.operation} has no precision {spec.precision}: allowed are {allowed}")
    told = registry.unusual(spec.operation, spec.precision, spec.params, spec.kv_lens)
    named = " ".join([spec.operation, *(f"{name}={spec.params[name]}" for name in told)])
    return replace(spec, case=registry.case_name(named, spec.kv_lens))


def _calls(text: str, options: Options) -> list[Work]:
    for name, is_given in (("precision", options.precisions != ()), ("kv_lens", options.kv_lens is not None)):
        if is_given:
            raise ValueError(f"{name} goes with operations, not with a function")
    points: Sequence[dict[str, Any]] = list(product(axes_of(options.params)))
    return [Call(text, point, cache, options.timer) for point in points for cache in plan.caches_of(options.caches)]
