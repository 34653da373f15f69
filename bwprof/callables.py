"""A caller's functions: what they are called, and whether a call of them does any work."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from bwprof.text import shown


def nothing() -> None:
    """What calling a function costs, for the floor."""


def nothing_of(number: int) -> None:
    """The same for a function that takes a set's number."""


def only_makes(function: Callable[..., object]) -> bool:
    """Whether a call gives a coroutine or a generator, and does none of its work."""
    while isinstance(function, functools.partial):
        function = function.func
    return any(
        test(one)
        for one in (function, type(function).__call__)
        for test in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    )


def refuse_coroutine(returned: object, what: str) -> None:
    """TypeError for what a call returned instead of doing its work."""
    if inspect.iscoroutine(returned):
        returned.close()  # else Python says that nobody waited for it
        raise TypeError(f"{what} returned a coroutine: calling it does no work")


def check_callable(given: object, name: str) -> None:
    """TypeError for what is neither None nor a function that does its work when it is called."""
    if given is None:
        return
    if not callable(given):
        raise TypeError(f"{name} is {shown(given)}, a callable is needed")
    if only_makes(given):
        raise TypeError(f"{name} is {shown(given)}: calling it only makes a coroutine or generator, it does no work")


def name_of(fn: Any) -> str:
    """What a callable is called."""
    inner = getattr(fn, "func", fn)  # functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__))
