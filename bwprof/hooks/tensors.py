"""What a call of a PyTorch module moves at least: bytes of parameters, of arguments, and of results.

Nothing here imports PyTorch: what has PyTorch's attributes is a tensor.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

from bwprof.callables import leaves_of

_PRECISIONS = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "qint8": "int8",
    "quint8": "int8",
}


def precision_of(tensor: Any) -> str:
    """A tensor's type as rows call it."""
    name = str(tensor.dtype).removeprefix("torch.")
    return _PRECISIONS.get(name, name)


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of PyTorch's."""
    return all(hasattr(value, name) for name in ("element_size", "numel", "dtype", "device"))


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors in arguments or results: themselves, or in lists, tuples, dicts and dataclasses."""
    return filter(is_tensor, leaves_of(value, is_tensor))


def parts_of(tensor: Any) -> list[Any]:
    """The dense tensors that a sparse, nested or quantised one is made of; itself for any other."""
    if hasattr(type(tensor), "__tensor_flatten__"):
        inner = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        return [part for one in inner for part in parts_of(one)]
    layout = str(getattr(tensor, "layout", "")).removeprefix("torch.")
    names = {
        "sparse_coo": ("_indices", "_values"),
        "sparse_csr": ("crow_indices", "col_indices", "values"),
        "sparse_bsr": ("crow_indices", "col_indices", "values"),
        "sparse_csc": ("ccol_indices", "row_indices", "values"),
        "sparse_bsc": ("ccol_indices", "row_indices", "values"),
        "jagged": ("values", "offsets"),
    }.get(layout, ())
    return [getattr(tensor, name)() for name in names] or [tensor]


def bytes_of(tensor: Any) -> int:
    """Distinct bytes of its elements: what is expanded counts once."""
    return sum(_dense_bytes(part) for part in parts_of(tensor))


def _dense_bytes(tensor: Any) -> int:
    whole = int(tensor.numel()) * int(tensor.element_size())
    with suppress(AttributeError, RuntimeError, NotImplementedError, TypeError):
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        distinct = prod(int(size) for size, step in steps if step != 0)
        return min(whole, distinct * int(tensor.element_size()))
    return whole


def weights_of(module: Any) -> list[Any]:
    """A module's tensors: parameters, buffers, packed weights, and what quantised ones keep beside their values."""
    own = [*module.parameters(), *module.buffers()]
    beside = [getattr(one, name, None) for one in own for name in ("quant_state", "SCB")]
    tensors = [one if is_tensor(one) else list(getattr(one, "__dict__", {}).values()) for one in beside]
    return [*own, *packed_in(module), *tensors_in(tensors)]


def packed_in(module: Any) -> list[Any]:
    """The weights of a quantised module of PyTorch's own, which are no parameters; none where they are not known."""
    found = []
    with suppress(AttributeError, RuntimeError, TypeError):
        found = [module.weight(), module.bias()] if hasattr(module, "_packed_params") else []
    return [one for one in found if is_tensor(one)]


def storage_of(tensor: Any) -> int:
    """What two tensors have in common that share memory."""
    with suppress(AttributeError, RuntimeError, NotImplementedError):
        storage = parts_of(tensor)[-1].untyped_storage()
        return int(getattr(storage, "_cdata", 0) or storage.data_ptr())
    return id(tensor)


def _place(tensor: Any) -> Hashable:
    """What two tensors have in common that are the same memory."""
    with suppress(AttributeError, RuntimeError, NotImplementedError):
        return storage_of(tensor), int(parts_of(tensor)[-1].storage_offset()), bytes_of(tensor)
    return storage_of(tensor), 0, 0


def version_of(tensor: Any) -> int | None:
    """How often it was written in place; None where nobody counts (inference mode)."""
    try:
        return int(tensor._version)
    except (AttributeError, RuntimeError, TypeError):
        return None


def each_once(tensors: Iterable[Any]) -> list[Any]:
    """Without those that are the same memory as one before."""
    return list({_place(tensor): tensor for tensor in tensors}.values())


@dataclass(slots=True)
class Before:
    """What a module is about to be called with, and how often all that was written so far."""

    given: list[Any]
    own: list[Any]
    versions: list[int | None] = field(init=False)

    def __post_init__(self) -> None:
        self.given, self.own = each_once(self.given), each_once(self.own)
        self.versions = [version_of(tensor) for tensor in (*self.given, *self.own)]


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that a call moves at least, and the precision of what it makes."""

    read: int
    written: int
    precision: str | None = None


def moved(before: Before, output: Any, *, looked_up: int | None = None, in_place: bool = False) -> Moved:
    """The bytes of a call.

    It reads its parameters, buffers and arguments once, and writes what it makes and what it changes. A view that it
    returns costs nothing; neither does a call that makes nothing but views.

    Parameters
    ----------
    looked_up : int, optional
        Bytes of a table's rows that are read, in place of the module's own.
    in_place : bool
        It says that it writes its argument: counts where nobody counts versions.
    """
    known = [*before.given, *before.own]
    silent = [in_place] * len(before.given) + [False] * len(before.own)  # what is said of those that nobody counts
    changed = [
        tensor
        for tensor, version, said in zip(known, before.versions, silent, strict=True)
        if (said if version is None else version_of(tensor) != version)
    ]
    results = list(tensors_in(output))
    storages = {storage_of(tensor) for tensor in known}
    made = each_once(tensor for tensor in results if storage_of(tensor) not in storages)
    written = sum(map(bytes_of, [*made, *changed]))
    precision = next((precision_of(tensor) for tensor in [*results, *before.given] if _is_floating(tensor)), None)
    if results and not made and not changed:
        return Moved(0, 0, precision)
    own = sum(map(bytes_of, before.own)) if looked_up is None else looked_up
    return Moved(sum(map(bytes_of, before.given)) + own, written, precision)


def _is_floating(tensor: Any) -> bool:
    name = str(tensor.dtype).removeprefix("torch.")
    return "float" in name or name in _PRECISIONS
