"""Names of the version before: they work for one release, and say what they are called now."""

from __future__ import annotations

import functools
import math
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from bwprof.text import Unbounded, finite_number

_P = ParamSpec("_P")
_R = TypeVar("_R")
_IMPORT = "<frozen importlib._bootstrap>"
_PACKAGE = os.path.dirname(__file__) + os.sep


def line_outside() -> tuple[int, FrameType]:
    """The line outside this package that led to the asking function: its stacklevel for a warning, and its frame."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level, frame


def warn(old: str, new: str) -> None:
    """A DeprecationWarning at the line, outside this package, that used the old name."""
    level, frame = line_outside()
    if frame.f_code.co_filename == _IMPORT:  # `from bwprof import name` looks whether there is one, and then takes it
        return
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=level)


def any_target(value: Any) -> Any:
    """`precision_target`, which could be 1 and more, as a `rel_ci`."""
    found = math.inf if value == math.inf else finite_number(value)
    return Unbounded(found) if found is not None and found >= 1 else value


def renamed(**names: str | tuple[str, Callable[[Any], Any]]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """A function that takes keywords (old name = new name) by their old names as well.

    A new name may come with a function of what the old one could be, which gives what the new one can.

    Examples
    --------
    >>> @renamed(max_time="max_seconds")
    ... def wait(*, max_seconds):
    ...     return max_seconds
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     wait(max_time=3), str(said[0].message)
    (3, 'max_time= is now max_seconds=')
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for old in names.keys() & kwargs.keys():
                found = names[old]
                new, value_of = (found, None) if isinstance(found, str) else found
                if new in kwargs:
                    raise TypeError(f"{function.__name__}() got {new}= and {old}=, its old name: leave {old}= out")
                warn(f"{old}=", f"{new}=")
                given = kwargs.pop(old)
                kwargs[new] = given if value_of is None else value_of(given)
            return function(*args, **kwargs)

        return called

    return decorate
