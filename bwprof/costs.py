"""Bytes and FLOPs of operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bwprof import _core, registry
from bwprof.text.parsing import as_list, is_bool, repr_short


@dataclass(frozen=True, slots=True)
class Cost:
    """The bytes and FLOPs of an operation; integers, or int64 arrays of one shape.

    `bytes_read` and `bytes_written` are compulsory traffic (each operand once); the algorithmic bytes include a
    variant's intermediates. `flops` counts multiplications and additions separately. Fields are items too,
    ``cost["bytes_read"]``, and ``dict(cost)`` works. Costs are equal if all their numbers are.

    Examples
    --------
    >>> found = cost("stream_copy", precision="fp32", elements=1024)
    >>> found.bytes_read, found["bytes_written"], found.bytes, found.flops
    (4096, 4096, 8192, 0)
    """

    bytes_read: Any
    bytes_written: Any
    flops: Any
    algorithmic_bytes_read: Any
    algorithmic_bytes_written: Any
    footprint_bytes: Any

    @property
    def bytes(self) -> Any:
        """Return bytes_read + bytes_written."""
        return self.bytes_read + self.bytes_written

    @property
    def arithmetic_intensity(self) -> Any:
        """Return FLOPs per compulsory byte."""
        return self.flops / self.bytes

    def __eq__(self, other: object) -> bool:
        import numpy as np

        return isinstance(other, Cost) and all(np.array_equal(self[name], other[name]) for name in self)

    def __hash__(self) -> int:
        return hash(tuple(self[name] for name in self))

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Return the names of the fields."""
        return [field.name for field in fields(self)]


def cost(
    operation: str,
    *,
    precision: str = "fp32",
    kv_lens: str | Sequence[int | str] | None = None,
    backend: str | None = None,
    variant: str | None = None,
    **params: Any,
) -> Cost:
    """Calculate traffic, FLOPs and footprint of an operation, without running it.

    Parameters
    ----------
    operation : str
        A name from `bwprof.operations()`.
    precision : str
        Storage type of the operands; types without a kernel are allowed.
    kv_lens : sequence of int, or str, optional
        One length per batch entry, for operations with `kv_lens` and scalar parameters: a list, tuple, array or Series
        of whole numbers, or text, "100,7Ki" or "100;7168", with ranges ("1Ki..8Ki:x2").
    backend, variant : str, optional
        Include this variant's intermediates in the algorithmic bytes.
    **params : int or array-like of int
        The operation's parameters, also as text ("4Ki"); arrays are broadcast. Others take their defaults.

    Returns
    -------
    Cost
        Integers, or int64 arrays if a parameter is an array.

    Raises
    ------
    ValueError
        For unknown names, values out of range, and sizes beyond 64 bits.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.cost("gemm", precision="fp16", M=1, N=896, K=896).bytes_read
    1607424
    """
    precision = registry.check_precision(precision)
    kv_lens = registry.parse_lengths(kv_lens)
    if backend is not None:
        backend = registry.check_backend(backend)
    if variant is not None:
        if backend is None:
            raise ValueError(f"variant is {repr_short(variant)}: it needs a backend, whose variants differ")
        registry.check_variant(operation, backend, variant)
    scalars = [isinstance(v, str) or (hasattr(v, "__index__") and not getattr(v, "ndim", 0)) for v in params.values()]
    if all(scalars):
        values = registry.complete_params(operation, precision, params, kv_lens)
        return Cost(**_core.cost(operation, precision, values, kv_lens, backend, variant))
    if kv_lens is not None:
        raise ValueError("kv_lens goes with scalar parameters only")
    import numpy as np

    columns = param_arrays(operation, params)
    points = np.ascontiguousarray(np.stack([array.ravel() for array in columns.values()], axis=1))
    out = np.empty((points.shape[0], len(fields(Cost))), dtype=np.int64)
    _core.cost_many(operation, precision, points.data, out.data, backend, variant)
    shape = next(iter(columns.values())).shape
    return Cost(**{field.name: out[:, column].reshape(shape) for column, field in enumerate(fields(Cost))})


def param_arrays(operation: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return every parameter of an operation as an int64 array of one shape, defaults included.

    Raise ValueError for unknown names (with the nearest one), and anything but whole numbers of 64 bits.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    known = registry.param_names(operation)
    for name, value in params.items():
        if name not in known:
            raise ValueError(registry.describe_unknown_param(operation, name, known))
        check_numbers(operation, name, value)
        array = np.asarray(value)
        if array.dtype.kind in "UO":
            numbers = [registry.parse_param(name, item, f"{operation}: {name}") for item in array.ravel().tolist()]
            array = np.array(numbers, dtype=object).reshape(array.shape)
        if array.dtype.kind not in "iubO" and not (array.size == 0 and isinstance(value, (list, tuple))):
            raise ValueError(f"{operation}: {name} must hold whole numbers, not {array.dtype}")
        for number in (array.max(), array.min()) if array.size else ():
            if not -(2**63) <= int(number) < 2**63:
                raise ValueError(f"{operation}: {name} holds {repr_short(int(number))}, which does not fit in 64 bits")
        arrays[name] = array.astype(np.int64)
    columns: dict[str, Any] = {}
    for param in registry.operation(operation)["params"]:
        source = param["default_from"]
        columns[param["name"]] = arrays.get(param["name"], columns[source] if source else np.int64(param["default"]))
    return dict(zip(columns, np.broadcast_arrays(*columns.values()), strict=True))


def check_numbers(operation: str, name: str, value: Any) -> None:
    """Raise ValueError for bytes, and for booleans unless the parameter is a flag; an array would accept both."""
    label = f"{operation}: {name}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        as_list(value, label)
    if name not in registry.flag_names() and _holds_truth(value):
        raise ValueError(f"{label} is {repr_short(value)}: whole numbers are needed, not True or False")


def _holds_truth(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_truth(value[at]) for at in map([*map(type, value)].index, set(map(type, value))))
    dtype = getattr(value, "dtype", None)
    return is_bool(value) or (dtype is not None and str(dtype) in ("bool", "boolean"))


def bandwidth_gb_s(bytes: Any, seconds: Any) -> Any:
    """Return bytes / seconds / 1e9, in GB/s (10^9 bytes), for numbers or array-likes.

    Zero seconds give inf, or nan for zero bytes.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.bandwidth_gb_s(4_000_000_000, 2.0)
    2.0
    """
    if isinstance(bytes, (int, float)) and isinstance(seconds, (int, float)):
        return _core.bandwidth_gb_s(bytes, seconds)
    import numpy as np

    with np.errstate(all="ignore"):
        return np.asarray(bytes, "float64") / np.asarray(seconds, "float64") * 1e-9
