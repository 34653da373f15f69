"""Inspect a caller's functions: their names, and whether a call does all of its work."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import sys
from collections import UserList, deque
from collections.abc import AsyncIterator, Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from types import SimpleNamespace
from typing import Any

from bwprof.text.parsing import repr_short

# Methods of pending work: of futures, results of pools, threads and processes.
_PENDING = (
    *(("done", "result"), ("done", "wait"), ("ready", "get"), ("is_completed", "wait")),
    *(("is_alive", "join"), ("is_set", "wait"), ("poll", "wait")),
)

_CONTAINERS = (list, tuple, set, frozenset, deque, ItemsView, ValuesView, UserList)
_LAZY = ("__dask_graph__", "collect_async")  # of Dask's collections and of Polars' LazyFrame


def do_nothing() -> None:
    """Do nothing: what an empty call costs, for the floor."""


def do_nothing_with(number: int) -> None:
    """Do nothing, for functions that take a set's number."""


def is_generator_function(function: Callable[..., object]) -> bool:
    """Return whether a call returns a coroutine or a generator instead of working."""
    while isinstance(function, functools.partial):
        function = function.func
    return any(
        test(candidate)
        for candidate in (function, type(function).__call__)
        for test in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    )


def iterate_leaves(value: Any, is_leaf: Callable[[Any], object]) -> Iterator[Any]:
    """Yield the leaves in containers, mappings, namespaces and dataclasses, each once."""
    waiting, seen = [value], {id(value)}
    while waiting:
        item = waiting.pop()
        inner: Iterable[Any] = ()
        if is_leaf(item):
            yield item
        elif isinstance(item, Mapping):
            inner = item.values()
        elif isinstance(item, _CONTAINERS):
            inner = item
        elif isinstance(item, SimpleNamespace):
            inner = vars(item).values()
        elif dataclasses.is_dataclass(item) and not isinstance(item, type):
            inner = [getattr(item, field.name, None) for field in dataclasses.fields(item)]
        else:
            yield item
        fresh = [each for each in inner if id(each) not in seen]
        seen.update(map(id, fresh))
        waiting += reversed(fresh)


def check_finished(returned: object, what: str) -> None:
    """Raise TypeError for a result whose work is not done, and which cannot be waited for here."""
    for leaf in iterate_leaves(returned, _wait_of):
        if _wait_of(leaf) is not None:
            continue
        if inspect.iscoroutine(leaf):
            leaf.close()  # else Python warns that it was never awaited
        name = f"{what} returned a {type(leaf).__name__}"
        if _is_elsewhere(leaf) or any(all(hasattr(type(leaf), method) for method in pair) for pair in _PENDING):
            raise TypeError(f"{name}: its work may go on after the call; wait for it inside the function")
        if _is_lazy(leaf):
            raise TypeError(f"{name}: calling it does no work; do all of the work inside the function")


def wrap_with_wait(function: Callable[..., object], returned: object, what: str) -> Callable[..., object]:
    """Return the function, with a wait for its result where `returned` is computed elsewhere; TypeError as above."""
    check_finished(returned, what)
    if all(_wait_of(leaf) is None for leaf in iterate_leaves(returned, _wait_of)):
        return function

    @functools.wraps(function)
    def finished(*args: Any) -> object:
        result = function(*args)
        for leaf in iterate_leaves(result, _wait_of):
            if (wait := _wait_of(leaf)) is not None:
                wait()
        return result

    return finished


def _read_attribute(value: Any, name: str) -> Any:
    """Return an attribute of a result; None where it is missing or raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _wait_of(value: Any) -> Callable[[], object] | None:
    """Return what waits for a result that is computed elsewhere; None where nothing does."""
    if isinstance(value, type) or _read_attribute(value, "is_cpu") is True:
        return None
    device = _read_attribute(value, "device")
    if isinstance(kind := _read_attribute(device, "type"), str):  # PyTorch
        wait = getattr(getattr(sys.modules.get("torch"), kind, None), "synchronize", None)
        return wait if wait is None or kind == "mps" else functools.partial(wait, device)
    if type(value).__module__.partition(".")[0] == "mlx":
        return functools.partial(sys.modules["mlx.core"].eval, value)
    for owner, name in ((value, "block_until_ready"), (value, "synchronize"), (device, "synchronize")):
        found: Callable[[], object] | None = _read_attribute(owner, name)
        if callable(found):  # JAX; streams and events; CuPy
            return found
    return getattr(sys.modules.get("numba.cuda"), "synchronize", None) if _is_elsewhere(value) else None


def _is_elsewhere(value: Any) -> bool:
    """Return whether it is an array or tensor outside the host's memory."""
    is_away = _read_attribute(value, "is_cpu") is False and _read_attribute(value, "is_meta") is not True
    return is_away or _read_attribute(value, "__cuda_array_interface__") is not None


def _is_lazy(value: Any) -> bool:
    """Return whether it works only when it is iterated over, awaited or collected; files and cursors do not count."""
    if any(hasattr(type(value), name) for name in _LAZY) or inspect.isawaitable(value):
        return True
    is_source = isinstance(value, io.IOBase) or _read_attribute(value, "fetchone")
    return isinstance(value, (Iterator, AsyncIterator)) and not is_source


def check_callable(value: object, name: str) -> None:
    """Raise TypeError unless it is None, or a function that works when it is called."""
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"{name} is {repr_short(value)}, a callable is needed")
    if is_generator_function(value):
        raise TypeError(
            f"{name} is {repr_short(value)}: calling it only makes a coroutine or generator, it does no work"
        )


def name_callable(fn: Any) -> str:
    """Return the name of a callable."""
    inner = getattr(fn, "func", fn)  # functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__))
