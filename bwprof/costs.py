"""Bytes and FLOPs of operations, worked out without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bwprof import _core, registry
from bwprof.text.parsing import as_list, describe_unknown, is_bool, repr_short


@dataclass(frozen=True, slots=True)
class Cost:
    """What an operation must move and compute; integers, or int64 arrays of one shape.

    `bytes_read` and `bytes_written` are compulsory traffic (each operand moved once); the algorithmic bytes add
    what a variant's intermediates move. `flops` counts multiply and add separately. Fields can also be read as
    ``cost["bytes_read"]``, and ``dict(cost)`` works. Equal are costs all of whose numbers are, arrays of one shape.

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
        """bytes_read + bytes_written."""
        return self.bytes_read + self.bytes_written

    @property
    def arithmetic_intensity(self) -> Any:
        """FLOPs per compulsory byte."""
        return self.flops / self.bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cost):
            return NotImplemented
        pairs = [(self[name], other[name]) for name in self]
        if all(isinstance(value, int) for pair in pairs for value in pair):
            return all(mine == others for mine, others in pairs)
        import numpy as np

        return all(np.array_equal(mine, others) for mine, others in pairs)

    def __hash__(self) -> int:
        return hash(tuple(self[name] for name in self))

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """The names of the fields."""
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
    """Compulsory and algorithmic traffic, FLOPs and footprint of an operation.

    Parameters
    ----------
    operation : str
        A name from `bwprof.operations()`.
    precision : str
        What the operands are stored in. Formats that no backend has a kernel for are known here, too.
    kv_lens : sequence of int, or str, optional
        One length per batch entry, for operations that take it (scalar parameters only): a list, tuple, array or
        Series of whole numbers, or text, "100,7Ki" or "100;7168", with ranges ("1Ki..8Ki:x2") as for parameters.
    backend, variant : str, optional
        Add what this variant's intermediates move to the algorithmic bytes.
    **params : int or array-like of int
        The operation's parameters, "4Ki" among them; arrays are broadcast against each other. Those left out take their
        defaults.

    Returns
    -------
    Cost
        Of integers, or of int64 arrays when a parameter is an array.

    Raises
    ------
    ValueError
        For unknown names, values out of range, sizes that overflow 64 bits.

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
        _check_variant(operation, backend, variant)
    if all(_is_single(value) for value in params.values()):
        whole = registry.complete_params(operation, precision, params, kv_lens)
        return Cost(**_core.cost(operation, precision, whole, kv_lens, backend, variant))
    if kv_lens is not None:
        raise ValueError("kv_lens goes with scalar parameters only")
    return _cost_of_arrays(operation, precision, params, backend, variant)


def _check_variant(operation: str, backend: str | None, variant: Any) -> None:
    """ValueError for what is no variant of the operation on the backend, with the nearest name."""
    if backend is None:
        raise ValueError(f"variant is {repr_short(variant)}: it needs a backend, whose variants differ")
    known = registry.variant_names(operation, backend)
    if not isinstance(variant, str) or variant not in known:
        raise ValueError(describe_unknown(f"variant of {operation} on {backend}", variant, known))


def _is_single(value: Any) -> bool:
    return isinstance(value, str) or (hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0)


def _cost_of_arrays(
    operation: str, precision: str, params: dict[str, Any], backend: str | None, variant: str | None
) -> Cost:
    import numpy as np

    columns = param_arrays(operation, params)
    values = np.ascontiguousarray(np.stack([array.ravel() for array in columns.values()], axis=1))
    out = np.empty((values.shape[0], len(fields(Cost))), dtype=np.int64)
    _core.cost_many(operation, precision, values.data, out.data, backend, variant)
    shape = next(iter(columns.values())).shape
    return Cost(**{field.name: out[:, column].reshape(shape) for column, field in enumerate(fields(Cost))})


def param_arrays(operation: str, params: dict[str, Any]) -> dict[str, Any]:
    """Every parameter of an operation as an int64 array, all of one shape: those given, and the defaults of the rest.

    Raises
    ------
    ValueError
        For names that it does not have (with the nearest one), and what is no whole number of 64 bits.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    for name, value in params.items():
        check_numbers(operation, name, value)
        array = np.asarray(value)
        if array.dtype.kind in "UO":  # "4Ki" among them
            numbers = [registry.parse_param(name, item, f"{operation}: {name}") for item in array.ravel().tolist()]
            array = np.array(numbers, dtype=object).reshape(array.shape)
            if all(-(2**63) <= number < 2**63 for number in numbers):
                array = array.astype(np.int64)
        if array.size == 0 and isinstance(value, (list, tuple)):
            array = array.astype(np.int64)  # NumPy makes floats of an empty list
        if array.dtype.kind not in "iub":
            raise ValueError(f"{operation}: {name} must hold whole numbers, not {array.dtype}")
        if np.any(array > np.iinfo(np.int64).max):
            raise ValueError(f"{operation}: {name} holds {array.max()}, which does not fit in 64 bits")
        arrays[name] = array.astype(np.int64)
    known = registry.param_names(operation)
    for name in arrays:
        if name not in known:
            raise ValueError(registry.describe_unknown_param(operation, name, known))
    columns: dict[str, Any] = {}
    for param in registry.operation(operation)["params"]:
        source = param["default_from"]
        fallback = columns[source] if source else np.int64(param["default"])
        columns[param["name"]] = arrays.get(param["name"], fallback)
    broadcast = np.broadcast_arrays(*columns.values())
    return dict(zip(columns, broadcast, strict=True))


def check_numbers(operation: str, name: str, value: Any) -> None:
    """ValueError for what an array would take for numbers: bytes, and truth where the parameter is no flag."""
    said = f"{operation}: {name}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        as_list(value, said)
    if name not in registry.flag_names() and _holds_truth(value):
        raise ValueError(f"{said} is {repr_short(value)}: whole numbers are needed, not True or False")


def _holds_truth(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_truth(value[at]) for at in map([*map(type, value)].index, set(map(type, value))))
    dtype = getattr(value, "dtype", None)
    return is_bool(value) or (dtype is not None and str(dtype) in ("bool", "boolean"))


def bandwidth_gb_s(bytes: Any, seconds: Any) -> Any:
    """bytes / seconds / 1e9, in GB/s (10^9 bytes), for numbers or anything `numpy.asarray` takes.

    Zero seconds give inf (or nan for zero bytes), never an exception.

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
