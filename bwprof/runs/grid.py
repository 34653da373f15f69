"""Grids: the product of the lists of values of some parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bwprof import registry
from bwprof.text import several, spread

MOST_CASES = 100_000  # each in its precisions: more is a slip, and would take days

V = TypeVar("V")


def product(axes: Mapping[str, Sequence[V]]) -> Iterator[dict[str, V]]:
    """Each combination of the values, the last parameter's changing fastest.

    Examples
    --------
    >>> [tuple(point.values()) for point in product({"m": [1, 2], "n": [3, 4]})]
    [(1, 3), (1, 4), (2, 3), (2, 4)]
    """
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def axes_of(params: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Each parameter's values: those of a list, tuple, range, array or other iterable; text and all else is one value.

    Raises
    ------
    ValueError
        For a parameter without values, or a product that is too large.
    """
    axes = {}
    points = 1
    for name, value in params.items():
        single = isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable)
        one = single or getattr(value, "ndim", 1) == 0
        axes[name] = (value,) if one else tuple(itertools.islice(value, MOST_CASES + 1))
        points *= len(axes[name])
        if not axes[name]:
            raise ValueError(f"{name} has no values")
    if points > MOST_CASES:
        raise ValueError(f"{points} points are more than a sweep can have ({MOST_CASES})")
    return axes


def label_of(value: Any) -> Any:
    """A parameter as a column holds it: numbers, truth and text as they are, all else by its name."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # NumPy's scalars
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(getattr(value, "__name__", value))


def whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """A parameter's values where it takes whole numbers: one, or an iterable of them, ranges among them.

    Raises
    ------
    ValueError
        For a parameter without values, and one that is no whole number.
    """
    items = several(value, name)
    if not items:
        raise ValueError(f"{name} has no values")
    return tuple(registry.value_of(name, item, name) for item in spread(items, name))
