"""What the C registry knows, as Python looks it up. No operation is named here or anywhere else in Python."""

from __future__ import annotations

import operator
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache, lru_cache
from typing import Any

from bwprof import _core
from bwprof.text.listing import Listing
from bwprof.text.parsing import as_list, describe_unknown, expand_ranges, is_bool, parse_int, quote_text, repr_short

_MOST_NAMED = 3  # lengths that a case's name lists


class Operations(Listing):
    """Operations: a list of dicts, also by name; shown as a table."""

    kind = "operation"

    def cells(self, item: dict[str, Any]) -> dict[str, str]:
        """An operation's line in the table."""
        return {
            "operation": item["name"],
            "parameters": ", ".join(param["name"] for param in item["params"]),
            "precisions": ", ".join(item["precisions"]),
            "what it does": item["text"],
        }


def operations() -> Operations:
    """Every operation that can be measured.

    Returns
    -------
    Operations
        A list of dicts, which ``operations()["gemm"]`` also finds by name; shown as a table, which `frame()` gives.
        Keys: name, family, text, takes_kv_lens, is_stream, is_product, precisions (names), formulas (of bytes_read,
        bytes_written and flops, as `bwprof operations` explains them), params (dicts: name, unit, text, default,
        default_from, minimum, maximum) and variants (backend -> dicts: name, text, precisions, and as rungs of a
        ladder: changes, predicted, because, at; see `bwprof.variants`).

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
    """One operation's description; ValueError with the nearest name when there is none."""
    found = _by_name().get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(describe_unknown("operation", str(name), _by_name()))
    return found


@cache
def _precision_names() -> tuple[str, ...]:
    return tuple(precision["name"] for precision in _core.precisions())


def precision_names() -> list[str]:
    """All precisions, widest first."""
    return list(_precision_names())


# What people call a precision, and what comes nearest of those that there are not; without marks between.
_SPELLINGS = {
    **dict.fromkeys(("fp8", "f8", "float8", "e4m3", "e4m3fn", "fp8e4m3fn", "f8e4m3", "f8e4m3fn"), "fp8_e4m3"),
    **dict.fromkeys(("float8e4m3", "float8e4m3fn"), "fp8_e4m3"),
    **{"half": "fp16", "float16": "fp16", "f16": "fp16", "bfloat16": "bf16", "tfloat32": "tf32", "q4": "q4_0"},
    **dict.fromkeys(("float", "single", "float32", "f32"), "fp32"),
    **dict.fromkeys(("i8", "s8"), "int8"),
}

_NEAREST = {
    **dict.fromkeys(("int4", "uint4", "i4", "w4a16", "nf4", "fp4", "mxfp4", "nvfp4", "awq", "gptq", "q41"), "q4_0"),
    **dict.fromkeys(("4bit", "w4a8", "e2m1"), "q4_0"),
    **dict.fromkeys(("e5m2", "fp8e5m2", "float8e5m2", "fp6"), "fp8_e4m3"),
    **dict.fromkeys(("uint8", "w8a8", "w8a16", "q80", "8bit"), "int8"),
    **dict.fromkeys(("fp64", "double", "float64", "f64"), "fp32"),
}


def _plain(word: str) -> str:
    """Leave out of a precision's name what people write differently."""
    return re.sub(r"[-_. ]", "", str(word).strip().lower().removeprefix("torch."))


def precision_name(word: str) -> str:
    """Return the registry's name of a precision, however it is spelt; any other word as it is.

    Examples
    --------
    >>> [precision_name(word) for word in ("FP8", "bfloat16", "torch.float16", "mine")]
    ['fp8_e4m3', 'bf16', 'fp16', 'mine']
    """
    names = {_plain(name): name for name in _precision_names()}
    found = _plain(word)
    return names.get(found) or _SPELLINGS.get(found) or str(word)


def check_precision(name: str, allowed: Sequence[str] | None = None, kind: str = "precision", where: str = "") -> str:
    """The canonical (lower-case) name; ValueError with the nearest one when it is none of the allowed ones.

    Examples
    --------
    >>> check_precision("int4")
    Traceback (most recent call last):
    ValueError: unknown precision 'int4': did you mean 'q4_0'? Allowed: fp32, tf32, fp16, bf16, fp8_e4m3, int8, q4_0
    """
    names = precision_names() if allowed is None else allowed
    found = precision_name(name)
    if found not in names:
        meant = _NEAREST.get(_plain(found), found if found in _precision_names() else None)
        meant = "" if meant and meant not in names else meant
        raise ValueError(describe_unknown(kind, str(name), names, where=where, meant=meant))
    return found


@cache
def is_narrow(precision: str) -> bool:
    """Whether a precision stores some operands in 8 bits or fewer."""
    types = {found["name"] for found in _core.dtypes() if found["narrow"]}
    roles = next((found for found in _core.precisions() if found["name"] == precision), {})
    return any(roles.get(role) in types for role in ("activation", "weight", "cache"))


def is_predicted(operation_name: str, precision: str, backend: str) -> bool:
    """Whether no kernel of a backend takes an operation in a narrow precision: only its bytes and FLOPs are known."""
    described = precision in operation(operation_name)["precisions"] and is_narrow(precision)
    return described and not variant_names(operation_name, backend, precision)


def lacks_kernel(operation_name: str, precision: str, backend: str) -> bool:
    """Whether nothing runs an operation in a precision on a host's processor, which has what this build has. Of other
    devices that is not said: a build without their backend knows none of their kernels.
    """
    hosts = [name for name in backend_names() if _core.backend_facts(name)["runs_on_host"]]
    return backend in hosts and operation_name in _by_name() and not variant_names(operation_name, backend, precision)


def backend_names() -> list[str]:
    """All backends, built or not, preferred first."""
    return [backend["name"] for backend in _core.backends()]


def check_backend(name: str) -> str:
    """The canonical (lower-case) name; ValueError with the nearest one when there is none."""
    lowered = str(name).strip().lower()
    if lowered not in backend_names():
        gpus = [found for found in backend_names() if not _core.backend_facts(found)["runs_on_host"]]
        raise ValueError(
            describe_unknown("backend", str(name), backend_names(), meant=gpus[0] if lowered == "gpu" else None)
        )
    return lowered


def timer_names(backend: str) -> list[str]:
    """The timers of a backend, its own first."""
    return [name for row in _core.backends() if row["name"] == backend for name in row["timers"]]


def check_timer(name: str | None, backend: str) -> None:
    """ValueError with the nearest one for a timer that the backend does not have; None is its own."""
    known = timer_names(backend)
    if name is not None and name not in known:
        raise ValueError(describe_unknown(f"timer on {backend}", name, known))


def metric_names(backend: str) -> list[str]:
    """The groups of metrics that a backend can count by replaying a launch."""
    return [name for row in _core.backends() if row["name"] == backend for name in row["metrics"]]


def check_metrics(names: Sequence[str], backend: str) -> tuple[str, ...]:
    """The groups meant, "all" for every one, a column ending in _pct for its group.

    Raises
    ------
    ValueError
        With the nearest name for one that there is not.
    """
    known = metric_names(backend)
    names = [name if name in known else name.removesuffix("_pct") for name in names]
    allowed = [*known, "all"] if known else []
    if names and not known:
        raise ValueError(f"the {backend} backend counts no metrics: leave them out, or measure on a GPU")
    for name in names:
        if name not in allowed:
            raise ValueError(describe_unknown(f"metric on {backend}", name, allowed))
    return tuple(known) if "all" in names else tuple(dict.fromkeys(names))


def check_seed(seed: int) -> int:
    """The seed of generated inputs; ValueError when it is not within 0 to 2^63 - 1."""
    try:
        found = -1 if is_bool(seed) else operator.index(seed)
    except TypeError:  # an array's, too
        found = -1
    if not 0 <= found < 2**63:
        raise ValueError(f"seed is {repr_short(seed)}: allowed are 0 to 2^63 - 1")
    return found


@cache
def _param_names(operation_name: str) -> tuple[str, ...]:
    return tuple(param["name"] for param in operation(operation_name)["params"])


def param_names(operation_name: str) -> list[str]:
    """The operation's parameters in their order."""
    return list(_param_names(operation(operation_name)["name"]))


def variant_names(operation_name: str, backend: str, precision: str | None = None) -> list[str]:
    """The operation's variants on a backend, cheapest rung first; only those of `precision` when it is given."""
    rows = operation(operation_name)["variants"].get(backend, [])
    return [row["name"] for row in rows if precision is None or precision in row["precisions"]]


def check_kernels(cases: Iterable[tuple[str, str | None, str, str]]) -> None:
    """Raise ValueError where no case (operation, variant if one is named, precision, backend) has a kernel."""

    def runs(name: str, variant: str | None, precision: str, backend: str) -> bool:
        names = variant_names(name, backend, precision)
        return variant in names if variant else bool(names)

    every = list(dict.fromkeys(cases))
    if any(runs(*case) for case in every):
        return
    takes: dict[tuple[str, str], dict[str, None]] = {}
    for name, variant, _, backend in every:
        there = [one for one in operation(name)["precisions"] if runs(name, variant, one, backend)]
        takes.setdefault((backend, ", ".join(there) or "none"), {})[f"{name} {variant or ''}".strip()] = None
    lines = [
        f"{', '.join(names)} on {backend} run{'s' if len(names) == 1 else ''} in {there}"
        for (backend, there), names in takes.items()
    ]
    precisions = ", ".join(dict.fromkeys(case[2] for case in every))
    told = f"{'; '.join(lines)} (bytes and FLOPs alone: --dry-run, bwprof.cost)"
    raise ValueError(f"no kernel takes {precisions}: {told}")


@cache
def flag_names() -> frozenset[str]:
    """The parameters that are 0 or 1, which True and False say as well."""
    every = [param for row in operations() for param in row["params"]]
    wider = {param["name"] for param in every if (param["minimum"], param["maximum"]) != (0, 1)}
    return frozenset(param["name"] for param in every) - wider


def parse_param(name: str, value: Any, said: str) -> int:
    """A parameter's value as a whole number; ValueError, which calls it what is `said`, for anything else."""
    return parse_int(value, said, flag=name in flag_names())


def parse_point(at: str) -> tuple[str, dict[str, int]]:
    """The precision and the parameters that a rung is predicted for.

    Examples
    --------
    >>> predicted_at("fp16 M=1 N=4096")
    ('fp16', {'M': 1, 'N': 4096})
    """
    precision, *params = at.split()
    return precision, {name: int(value) for name, _, value in (param.partition("=") for param in params)}


def parse_lengths(kv_lens: str | int | Iterable[int | str] | None, name: str = "kv_lens") -> tuple[int, ...] | None:
    """The lengths of a batch's entries, in their order, however they are given; None for None.

    One rule for all that takes kv_lens: whole numbers in anything that has an order (lists, NumPy, pandas), one alone,
    or a text with commas, as on a command line, or semicolons, as in a row; texts may be "4Ki" and "1Ki..8Ki:x2".

    Raises
    ------
    ValueError
        For anything else, and for none at all; the message carries `name`. That each is 1 or more, and that there are
        as many as entries, is the operation's to check.

    Examples
    --------
    >>> lengths("100,7Ki"), lengths("100;7000"), lengths(["8..32:x2", 5]), lengths(64)
    ((100, 7168), (100, 7000), (8, 16, 32, 5), (64,))
    """
    if kv_lens is None:
        return None
    if isinstance(kv_lens, (Mapping, Set)):
        raise ValueError(f"{name} is {repr_short(kv_lens)}: lengths in their order are needed, as in [100, 7000]")
    given = as_list(kv_lens, name)
    if isinstance(kv_lens, str):
        given = re.split("[,;]", kv_lens) if kv_lens.strip() else []
    if not given:
        raise ValueError(f"{name} is empty: one length per batch entry is needed, as in 100,7000")
    return tuple(parse_int(length, name) for length in expand_ranges(given, name))


def row_lengths(row: Mapping[str, Any]) -> tuple[int, ...] | None:
    """A row's `kv_lens`, "100;7000", as numbers; None where it has none. ValueError for other text."""
    return parse_lengths(row.get("kv_lens") or None)


def format_lengths(kv_lens: Iterable[int] | None) -> str | None:
    """Lengths as a row's `kv_lens` has them; the inverse of `lengths_of`."""
    return None if kv_lens is None else ";".join(map(str, kv_lens))


def case_name(case: str, kv_lens: str | Iterable[int] | None) -> str:
    """What a case is called: `case` and, unless it has them already, its lengths, so that no two lists read alike; of
    many their number, their range, and a digest of them in their order.

    Examples
    --------
    >>> case_name("decode", None), case_name("decode", "64;32"), case_name("decode kv_lens=64,32", (64, 32))
    ('decode', 'decode kv_lens=64,32', 'decode kv_lens=64,32')
    >>> case_name("decode", [8192, 12, 500, 64]), case_name("decode", [64] * 16)
    ('decode kv_lens=4 of 12..8192 #2ba358d9', 'decode kv_lens=16 of 64')
    """
    if not kv_lens:
        return case
    told = _lengths_name(kv_lens if isinstance(kv_lens, str) else tuple(kv_lens))
    return case if f" {told} " in f" {case} " else f"{case} {told}".strip()


@lru_cache(maxsize=256)  # rows of a file have few lists, which may be long
def _lengths_name(kv_lens: str | tuple[int, ...]) -> str:
    """The lengths' part of a name; "" for a column's text that names none: a caller's own, one that was cut."""
    try:
        found = parse_lengths(kv_lens) or ()
    except ValueError:
        return ""
    if len(found) <= _MOST_NAMED:
        return f"kv_lens={','.join(map(str, found))}"
    least, most = min(found), max(found)
    if least == most:
        return f"kv_lens={len(found)} of {most}"
    digest = zlib.crc32(";".join(map(str, found)).encode())
    return f"kv_lens={len(found)} of {least}..{most} #{digest:08x}"


def describe_unknown_param(operations: str, name: str, known: Iterable[str], *, where: str = "") -> str:
    """One sentence for a parameter that operations do not have; lengths are none, and where they go: in a suite's file,
    which `where` names, beside the parameters.

    Examples
    --------
    >>> unknown_param("gemm", "m", ["M", "N"])
    "unknown parameter of gemm 'm': did you mean 'M'? Allowed: M, N"
    >>> unknown_param("attention_decode", "kv_lens", ["batch", "kv_len"])
    'kv_lens is no parameter: lengths are given by --kv-lens 100,7000 (in Python kv_lens=[100, 7000])'
    """
    if name == "kv_lens":
        if where:
            return f"{where}: kv_lens is no parameter: lengths are a key beside params, kv_lens = [100, 7000]"
        return "kv_lens is no parameter: lengths are given by --kv-lens 100,7000 (in Python kv_lens=[100, 7000])"
    return describe_unknown(f"parameter of {operations}", name, known, where=where)


def complete_params(
    operation_name: str, precision: str, params: Mapping[str, int | str], kv_lens: Sequence[int] | None = None
) -> dict[str, int]:
    """All parameters with their defaults, after every check.

    Raises
    ------
    ValueError
        For a name that the operation does not have (with the nearest one), a value out of range, heads that do not
        divide, sizes that overflow.
    """
    known = param_names(operation_name)
    for name in params:
        if name not in known:
            raise ValueError(describe_unknown_param(operation_name, name, known))
    whole = {name: parse_param(name, value, f"{operation_name}: {name}") for name, value in params.items()}
    for name, value in whole.items():
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{operation_name}: {name} is {repr_short(value)}, which does not fit in 64 bits")
    if kv_lens is not None and not operation(operation_name)["takes_kv_lens"]:
        raise ValueError(f"{operation_name} takes no kv_lens")
    allowed = operation(operation_name)["precisions"]
    if check_precision(precision) not in allowed:
        raise ValueError(
            f"{operation_name} has no precision '{quote_text(precision)}': allowed are {', '.join(allowed)}"
        )
    return _core.complete(operation_name, check_precision(precision), whole, kv_lens)


def unusual_params(
    operation_name: str, precision: str, params: Mapping[str, int | str], kv_lens: Sequence[int] | None = None
) -> list[str]:
    """The parameters whose values are not what they would be if they alone were left out.

    Examples
    --------
    >>> unusual("gemm", "fp32", {"M": 64, "beta": 0})
    ['M']
    """
    whole = complete_params(operation_name, precision, params, kv_lens)

    def differs(name: str) -> bool:
        rest = {other: value for other, value in params.items() if other != name}
        try:
            return complete_params(operation_name, precision, rest, kv_lens)[name] != whole[name]
        except ValueError:  # without it the others do not fit together
            return True

    return [name for name in params if differs(name)]
