"""Look up operations, precisions, backends and variants in the C registry; no Python module names an operation."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache, lru_cache
from typing import Any

from bwprof import _core
from bwprof.text.listing import Listing
from bwprof.text.parsing import as_list, describe_unknown, expand_ranges, parse_bytes, parse_int, quote_text, repr_short

_MOST_NAMED = 3  # lengths in a case's name
_ROLES = ("activation", "weight", "cache", "result", "compute")
_OPERANDS = ("activation", "weight", "cache")  # roles that make a precision narrower than another


class Operations(Listing):
    """Operations: a list of dicts, also indexed by name; displays as a table."""

    kind = "operation"

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        return {
            "operation": item["name"],
            "parameters": ", ".join(param["name"] for param in item["params"]),
            "precisions": ", ".join(item["precisions"]),
            "what it does": item["text"],
        }


def operations() -> Operations:
    """List every operation that can be measured.

    Returns
    -------
    Operations
        Dicts, also indexed by name: ``operations()["gemm"]``; `frame()` returns the table. Keys: name, family, text,
        takes_kv_lens, is_stream, is_link, is_product, precisions (names), formulas (bytes_read, bytes_written, flops),
        params (dicts: name, unit, text, default, default_from, minimum, maximum) and variants (backend -> dicts: name,
        text, precisions, changes, predicted, because, at; see `bwprof.variants`).

    Examples
    --------
    >>> import bwprof
    >>> [operation["name"] for operation in bwprof.operations() if operation["is_stream"]]
    ['stream_read', 'stream_write', 'stream_copy', 'stream_triad']
    >>> [param["name"] for param in bwprof.operations()["gemm"]["params"]]
    ['M', 'N', 'K', 'beta']
    """
    return Operations(_core.operations())


@cache
def _by_name() -> dict[str, dict[str, Any]]:
    return {operation["name"]: operation for operation in _core.operations()}


def operation(name: str) -> dict[str, Any]:
    """Return an operation's description; ValueError with the nearest name for an unknown one."""
    description = _by_name().get(name) if isinstance(name, str) else None
    if description is None:
        raise ValueError(describe_unknown("operation", str(name), _by_name()))
    return description


def is_link(operation_name: str) -> bool:
    """Return whether an operation's roof is the link between host and device."""
    return bool(_by_name().get(operation_name, {}).get("is_link"))


def is_pattern(operation_name: str) -> bool:
    """Return whether an operation is an access pattern: what it moves and does not use is no intermediate."""
    return _by_name().get(operation_name, {}).get("family") == "access"


def precision_names() -> list[str]:
    """Return all precisions, widest first."""
    return [precision["name"] for precision in _core.precisions()]


# Spellings without marks: other beginnings of names, whole words, and the nearest precision of words that are none.
_PREFIXES = {"fp": ("f", "float"), "bf": ("bfloat",), "tf": ("tfloat",), "int": ("i", "s")}
_WORDS = {"half": "fp16", "float": "fp32", "single": "fp32"}
_NEAREST = {
    "int4_g128": "int4 uint4 i4 w4a16 w4a8 nf4 awq gptq 4bit",
    "q4_0": "q41",
    "mxfp4": "fp4 e2m1",
    "fp8_e4m3": "fp6",
    "int8": "uint8 w8a8 8bit",
    "int8_w8a16": "w8a16",
    "fp32": "fp64 double float64 f64",
}


def _plain(word: str) -> str:
    """Remove the marks in which spellings of a precision differ."""
    return re.sub(r"[-_. ]", "", str(word).strip().lower().removeprefix("torch."))


def precision_name(word: str) -> str:
    """Return the registry's name of a precision, for any spelling (bfloat16, torch.half); another word as it is."""
    return _names_by_spelling().get(_plain(word)) or str(word)


@cache
def _names_by_spelling() -> dict[str, str]:
    spelled = {spelling: name for name in reversed(precision_names()) for spelling in _spellings(name)}
    return spelled | _WORDS | {_plain(name): name for name in precision_names()}


def _spellings(name: str) -> list[str]:
    """List the spellings of a precision: of fp8_e4m3 "fp8", "float8", "e4m3", "f8e4m3fn" and others."""
    kind, _, layout = map(_plain, name.partition("_"))
    prefix = kind.rstrip("0123456789")
    kinds = [kind, *(other + kind.removeprefix(prefix) for other in _PREFIXES.get(prefix, ()))]
    layouts = [layout, f"{layout}fn"] if layout.startswith("e") else []  # PyTorch's mark of types without infinities
    # Without a number the first part is no type's name, and parts stand for nothing; nor do they without groups' size.
    return (
        []
        if prefix == kind or layout.startswith(("g", "w"))
        else [*layouts, *(first + last for first in kinds for last in ("", *layouts))]
    )


def check_precision(name: str, allowed: Sequence[str] | None = None, kind: str = "precision", where: str = "") -> str:
    """Return the name of an allowed precision; ValueError with the nearest name for another one."""
    names = precision_names() if allowed is None else allowed
    canonical = precision_name(name)
    if canonical not in names:
        nearest = next((near for near, words in _NEAREST.items() if _plain(canonical) in words.split()), None)
        meant = canonical if canonical in precision_names() else nearest
        meant = "" if meant and meant not in names else meant
        raise ValueError(describe_unknown(kind, str(name), names, where=where, meant=meant))
    return canonical


@cache
def precision_types(precision: str) -> dict[str, dict[str, Any]]:
    """Return the types of a precision's roles as `_core.dtypes` has them; {} for an unknown precision."""
    types = {row["name"]: row for row in _core.dtypes()}
    roles = next((row for row in _core.precisions() if row["name"] == precision), {})
    return {role: types[kind] for role, kind in roles.items() if role in _ROLES and kind in types}


def narrowest_bits(precision: str) -> float:
    """Return the whole bits of a precision's narrowest operand; scales are not counted."""
    types = precision_types(precision)
    return min((types[role]["bits"] // 1 for role in _OPERANDS if role in types), default=math.nan)


def is_narrow(precision: str) -> bool:
    """Return whether a precision stores some operands in fewer than 16 bits."""
    return narrowest_bits(precision) < 16


@cache
def narrower_precisions(precision: str, roles: tuple[str, ...] = _OPERANDS) -> list[str]:
    """List the precisions with fewer bits in each of these roles, widest first; none for one that lacks a role."""

    def bits(name: str) -> list[float]:  # whole ones: scales, inside blocks or beside values, are not counted
        return [precision_types(name).get(role, {}).get("bits", math.nan) // 1 for role in roles]

    pairs = {name: zip(bits(name), bits(precision), strict=True) for name in precision_names()}
    return sorted((name for name in pairs if all(new < old for new, old in pairs[name])), key=bits, reverse=True)


def backend_names() -> list[str]:
    """Return all backends, preferred ones first, built or not."""
    return [backend["name"] for backend in _core.backends()]


def check_backend(name: str) -> str:
    """Return a backend's name in lower case; ValueError with the nearest name for an unknown one."""
    lowered, names = str(name).strip().lower(), backend_names()
    if lowered not in names:
        gpu = next(backend for backend in names if not _core.backend_facts(backend)["runs_on_host"])
        raise ValueError(describe_unknown("backend", str(name), names, meant=gpu if lowered == "gpu" else None))
    return lowered


def timer_names(backend: str) -> list[str]:
    """Return the timers of a backend, its default first."""
    return [name for row in _core.backends() if row["name"] == backend for name in row["timers"]]


def check_timer(name: str | None, backend: str) -> None:
    """Raise ValueError for a timer that the backend lacks; None is its default."""
    known = timer_names(backend)
    if name is not None and name not in known:
        raise ValueError(describe_unknown(f"timer on {backend}", name, known))


def metric_names(backend: str) -> list[str]:
    """Return the groups of metrics that a backend can count."""
    return [name for row in _core.backends() if row["name"] == backend for name in row["metrics"]]


def check_metrics(names: Sequence[str], backend: str) -> tuple[str, ...]:
    """Return the groups of metrics: "all" means every one, a column ending in _pct its group.

    Raise ValueError for an unknown metric, with the nearest name, and for a backend without metrics.
    """
    known = metric_names(backend)
    if names and not known:
        raise ValueError(f"the {backend} backend counts no metrics: leave them out, or measure on a GPU")
    names = [name if name in known else name.removesuffix("_pct") for name in names]
    for name in names:
        if name not in (*known, "all"):
            raise ValueError(describe_unknown(f"metric on {backend}", name, [*known, "all"]))
    return tuple(known) if "all" in names else tuple(dict.fromkeys(names))


def check_seed(seed: int) -> int:
    """Return the seed of generated inputs; ValueError outside 0 to 2^63 - 1, and for text."""
    try:
        return parse_bytes(None if isinstance(seed, str) else seed, "seed")
    except ValueError:
        raise ValueError(f"seed is {repr_short(seed)}: allowed are 0 to 2^63 - 1") from None


def param_names(operation_name: str) -> list[str]:
    """Return the operation's parameters in order."""
    return [param["name"] for param in operation(operation_name)["params"]]


def variant_names(operation_name: str, backend: str, precision: str | None = None) -> list[str]:
    """Return the operation's variants on a backend, simplest first; with `precision` only those that support it."""
    rows = operation(operation_name)["variants"].get(backend, [])
    return [row["name"] for row in rows if precision is None or precision in row["precisions"]]


def check_variant(operation_name: str, backend: str, variant: Any) -> None:
    """Raise ValueError, with the nearest name, for an unknown variant; None is the backend's choice."""
    known = variant_names(operation_name, backend)
    if variant is not None and variant not in known:
        raise ValueError(describe_unknown(f"variant of {operation_name} on {backend}", variant, known))


def check_kernels(cases: Iterable[tuple[str, str | None, str, str]]) -> None:
    """Raise ValueError if no case (operation, variant or None, precision, backend) has a kernel."""

    def runs(name: str, variant: str | None, precision: str, backend: str) -> bool:
        names = variant_names(name, backend, precision)
        return variant in names if variant else bool(names)

    cases = list(dict.fromkeys(cases))
    if any(runs(*case) for case in cases):
        return
    names_by_support: dict[tuple[str, str], dict[str, None]] = {}
    for name, variant, _, backend in cases:
        supported = [each for each in operation(name)["precisions"] if runs(name, variant, each, backend)]
        key = (backend, ", ".join(supported) or "none")
        names_by_support.setdefault(key, {})[f"{name} {variant or ''}".strip()] = None
    lines = [
        f"{', '.join(names)} on {backend} run{'s' if len(names) == 1 else ''} in {supported}"
        for (backend, supported), names in names_by_support.items()
    ]
    precisions = ", ".join(dict.fromkeys(case[2] for case in cases))
    lines += ["only a GPU has a link to the host"] if any(is_link(case[0]) for case in cases) else []
    raise ValueError(f"no kernel takes {precisions}: {'; '.join(lines)} (bytes and FLOPs alone: bwprof.cost)")


@cache
def flag_names() -> frozenset[str]:
    """Return the parameters that are 0 or 1, which may be False or True."""
    params = [param for row in operations() for param in row["params"]]
    others = {param["name"] for param in params if (param["minimum"], param["maximum"]) != (0, 1)}
    return frozenset(param["name"] for param in params) - others


def parse_param(name: str, value: Any, label: str) -> int:
    """Return a parameter's value as an int; ValueError, with `label`, for anything else."""
    return parse_int(value, label, flag=name in flag_names())


def parse_point(at: str) -> tuple[str, dict[str, int]]:
    """Return the precision and the parameters of a prediction's `at`: "fp16 M=1 N=4096"."""
    precision, *params = at.split()
    return precision, {name: int(value) for name, _, value in (param.partition("=") for param in params)}


def parse_lengths(kv_lens: str | int | Iterable[int | str] | None, name: str = "kv_lens") -> tuple[int, ...] | None:
    """Return the lengths of a batch's entries in order; None for None.

    Allowed are whole numbers in an ordered container (list, NumPy, pandas), a single one, and text with commas or
    semicolons; texts may be "4Ki" and "1Ki..8Ki:x2". Raise ValueError for anything else, and for no lengths; the
    message has `name`. The operation checks their range and number.
    """
    if kv_lens is None:
        return None
    if isinstance(kv_lens, (Mapping, Set)):
        raise ValueError(f"{name} is {repr_short(kv_lens)}: lengths in their order are needed, as in [100, 7000]")
    items = as_list(kv_lens, name)
    if isinstance(kv_lens, str):
        items = re.split("[,;]", kv_lens) if kv_lens.strip() else []
    if not items:
        raise ValueError(f"{name} is empty: one length per batch entry is needed, as in 100,7000")
    return tuple(parse_int(length, name) for length in expand_ranges(items, name))


def row_lengths(row: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return a row's `kv_lens`, "100;7000", as numbers, or None; ValueError for other text."""
    return parse_lengths(row.get("kv_lens") or None)


def format_lengths(kv_lens: Iterable[int] | None) -> str | None:
    """Return lengths as a row's `kv_lens`; the inverse of `row_lengths`."""
    return None if kv_lens is None else ";".join(map(str, kv_lens))


def case_name(case: str, kv_lens: str | Iterable[int] | None) -> str:
    """Return a case's name with its lengths, so that different lengths have different names.

    Of more than three lengths the name has their number, their range and a digest.
    """
    if not kv_lens:
        return case
    suffix = _lengths_name(kv_lens if isinstance(kv_lens, str) else tuple(kv_lens))
    return case if f" {suffix} " in f" {case} " else f"{case} {suffix}".strip()


@lru_cache(maxsize=256)  # a file has few different lists, which may be long
def _lengths_name(kv_lens: str | tuple[int, ...]) -> str:
    """Return the lengths' part of a name; "" for text that has no lengths."""
    try:
        numbers = parse_lengths(kv_lens) or ()
    except ValueError:
        return ""
    if len(numbers) <= _MOST_NAMED:
        return f"kv_lens={','.join(map(str, numbers))}"
    least, most = min(numbers), max(numbers)
    if least == most:
        return f"kv_lens={len(numbers)} of {most}"
    digest = zlib.crc32(";".join(map(str, numbers)).encode())
    return f"kv_lens={len(numbers)} of {least}..{most} #{digest:08x}"


def describe_unknown_param(operations: str, name: str, known: Iterable[str], *, where: str = "") -> str:
    """Return the message for an unknown parameter; for `kv_lens`, where it belongs. `where` names a suite's file."""
    if name == "kv_lens":
        if where:
            return f"{where}: kv_lens is no parameter: lengths are a key beside params, kv_lens = [100, 7000]"
        return "kv_lens is no parameter: lengths are given by --kv-lens 100,7000 (in Python kv_lens=[100, 7000])"
    return describe_unknown(f"parameter of {operations}", name, known, where=where)


def complete_params(
    operation_name: str, precision: str, params: Mapping[str, int | str], kv_lens: Sequence[int] | None = None
) -> dict[str, int]:
    """Return all parameters, with their defaults, after every check.

    Raise ValueError for an unknown parameter (with the nearest name), a value out of range, head numbers that do not
    divide, and sizes that overflow.
    """
    known = param_names(operation_name)
    for name in params:
        if name not in known:
            raise ValueError(describe_unknown_param(operation_name, name, known))
    values = {name: parse_param(name, value, f"{operation_name}: {name}") for name, value in params.items()}
    for name, value in values.items():
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{operation_name}: {name} is {repr_short(value)}, which does not fit in 64 bits")
    if kv_lens is not None and not operation(operation_name)["takes_kv_lens"]:
        raise ValueError(f"{operation_name} takes no kv_lens")
    canonical, allowed = check_precision(precision), operation(operation_name)["precisions"]
    if canonical not in allowed:
        raise ValueError(
            f"{operation_name} has no precision '{quote_text(precision)}': allowed are {', '.join(allowed)}"
        )
    return _core.complete(operation_name, canonical, values, kv_lens)


def unusual_params(
    operation_name: str, precision: str, params: Mapping[str, int | str], kv_lens: Sequence[int] | None = None
) -> list[str]:
    """Return the parameters whose values differ from their defaults, the others being equal."""
    values = complete_params(operation_name, precision, params, kv_lens)

    def differs(name: str) -> bool:
        rest = {other: value for other, value in params.items() if other != name}
        try:
            return complete_params(operation_name, precision, rest, kv_lens)[name] != values[name]
        except ValueError:  # the others need it
            return True

    return [name for name in params if differs(name)]
