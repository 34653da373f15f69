"""A caller's functions: what they are called, and whether a call of them does all of its work."""

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

# Methods that ask work whether it is over and wait for it: of futures, results of pools, threads and processes.
_PENDING = (
    *(("done", "result"), ("done", "wait"), ("ready", "get"), ("is_completed", "wait")),
    *(("is_alive", "join"), ("is_set", "wait"), ("poll", "wait")),
)

_CONTAINERS = (list, tuple, set, frozenset, deque, ItemsView, ValuesView, UserList)

_LAZY = ("__dask_graph__", "collect_async")  # of Dask's collections and of Polars' LazyFrame


def do_nothing() -> None:
    """What calling a function costs, for the floor."""


def do_nothing_with(number: int) -> None:
    """The same for a function that takes a set's number."""


def is_generator_function(function: Callable[..., object]) -> bool:
    """Whether a call gives a coroutine or a generator, and does none of its work."""
    while isinstance(function, functools.partial):
        function = function.func
    return any(
        test(one)
        for one in (function, type(function).__call__)
        for test in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    )


def iterate_leaves(value: Any, is_leaf: Callable[[Any], object]) -> Iterator[Any]:
    """Yield what lies in containers, mappings, namespaces and dataclasses that are no leaves themselves; each once."""
    waiting, seen = [value], {id(value)}
    while waiting:
        one = waiting.pop()
        inner: Iterable[Any] = ()
        if is_leaf(one):
            yield one
        elif isinstance(one, Mapping):
            inner = one.values()
        elif isinstance(one, _CONTAINERS):
            inner = one
        elif isinstance(one, SimpleNamespace):
            inner = vars(one).values()
        elif dataclasses.is_dataclass(one) and not isinstance(one, type):
            inner = [getattr(one, field.name, None) for field in dataclasses.fields(one)]
        else:
            yield one
        fresh = [each for each in inner if id(each) not in seen]
        seen.update(map(id, fresh))
        waiting += reversed(fresh)


def check_finished(returned: object, what: str) -> None:
    """Raise TypeError for what a call returned before it did all of its work, where nobody here can wait for it."""
    for one in iterate_leaves(returned, _wait_of):
        if _wait_of(one) is not None:
            continue
        if inspect.iscoroutine(one):
            one.close()  # else Python says that nobody waited for it
        name = f"{what} returned a {type(one).__name__}"
        if _is_elsewhere(one) or any(all(hasattr(type(one), method) for method in pair) for pair in _PENDING):
            raise TypeError(f"{name}: its work may go on after the call; wait for it inside the function")
        if _is_lazy(one):
            raise TypeError(f"{name}: calling it does no work; do all of the work inside the function")


def wrap_with_wait(function: Callable[..., object], returned: object, what: str) -> Callable[..., object]:
    """Return the function, with a wait for its result where what it `returned` is computed beside the host's thread.

    Raises
    ------
    TypeError
        For a result that nobody here can wait for.
    """
    check_finished(returned, what)
    if all(_wait_of(one) is None for one in iterate_leaves(returned, _wait_of)):
        return function

    @functools.wraps(function)
    def finished(*args: Any) -> object:
        made = function(*args)
        for one in iterate_leaves(made, _wait_of):
            if (wait := _wait_of(one)) is not None:
                wait()
        return made

    return finished


def _read_attribute(value: Any, name: str) -> Any:
    """An attribute of a result; None where there is none, or where asking for it raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _wait_of(value: Any) -> Callable[[], object] | None:
    """What waits for a result that is computed beside the host's thread; None where nothing does."""
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
    """Whether it is an array or a tensor in memory that is not the host's."""
    is_away = _read_attribute(value, "is_cpu") is False and _read_attribute(value, "is_meta") is not True
    return is_away or _read_attribute(value, "__cuda_array_interface__") is not None


def _is_lazy(value: Any) -> bool:
    """Whether it does its work when somebody iterates over it, awaits it or asks for it; not a file or a cursor."""
    if any(hasattr(type(value), name) for name in _LAZY) or inspect.isawaitable(value):
        return True
    is_source = isinstance(value, io.IOBase) or _read_attribute(value, "fetchone")
    return isinstance(value, (Iterator, AsyncIterator)) and not is_source


def check_callable(given: object, name: str) -> None:
    """TypeError for what is neither None nor a function that does its work when it is called."""
    if given is None:
        return
    if not callable(given):
        raise TypeError(f"{name} is {repr_short(given)}, a callable is needed")
    if is_generator_function(given):
        raise TypeError(
            f"{name} is {repr_short(given)}: calling it only makes a coroutine or generator, it does no work"
        )


def name_callable(fn: Any) -> str:
    """What a callable is called."""
    inner = getattr(fn, "func", fn)  # functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__))
