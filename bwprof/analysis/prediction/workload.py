"""Describe the shapes to predict as arrays: the bytes and FLOPs of an operation in one precision, row by row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bwprof import costs, registry
from bwprof.analysis.prediction.catalog import Card
from bwprof.costs import Cost
from bwprof.text.parsing import expand_ranges, is_range, repr_short

MAX_ROWS = 100_000_000  # each has some hundred columns


class PredictedCase(NamedTuple):
    """One case to predict. Missing parameters take their defaults; the name "" is the operation's.

    `more` bytes are read beside the operation's own, fewer below 0.
    """

    operation: str
    params: Mapping[str, int]
    precision: str
    name: str = ""
    kv_lens: Sequence[int] | None = None
    variant: str | None = None
    more: int = 0


@dataclass(frozen=True)
class Workload:
    """Rows of one operation in one precision: parameters and costs, arrays of one length.

    `names` are the cases' names; None where each is called as the operation is.
    """

    operation: str
    precision: str
    params: dict[str, Any]
    cost: Cost
    names: list[str] | None = None
    kv_lens: str | None = None
    variant: str | None = None

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.cost.flops)

    @cached_property
    def read(self) -> Any:
        """Compulsory bytes read, as floats."""
        return self.cost.bytes_read.astype(float)

    @cached_property
    def written(self) -> Any:
        """Compulsory bytes written, as floats."""
        return self.cost.bytes_written.astype(float)

    @cached_property
    def flops(self) -> Any:
        """FLOPs, as floats."""
        return self.cost.flops.astype(float)

    def in_precision(self, precision: str) -> Workload:
        """Return the same shapes in another precision."""
        return make_workload(self.operation, precision, self.params, kv_lens=self.kv_lens)


def make_workload(
    operation: str,
    precision: str,
    params: Mapping[str, Any],
    *,
    names: list[str] | None = None,
    kv_lens: Sequence[int] | str | None = None,
    variant: str | None = None,
) -> Workload:
    """Compute the costs of shapes, numbers or arrays that are broadcast; raise ValueError as `bwprof.cost` does."""
    precision = registry.check_precision(precision)
    allowed = registry.operation(operation)["precisions"]
    if precision not in allowed:
        raise ValueError(f"{operation} has no precision '{precision}': allowed are {', '.join(allowed)}")
    lengths = registry.parse_lengths(kv_lens)
    columns: dict[str, Any]
    if lengths is not None:
        single: dict[str, Any] = {name: np.asarray(value).item() for name, value in params.items()}
        complete: dict[str, Any] = dict(registry.complete_params(operation, precision, single, lengths))
        batch = costs.cost(operation, precision=precision, kv_lens=lengths, **complete)
        cost = Cost(*(np.array([batch[name]]) for name in batch))
        columns = {name: np.array([value]) for name, value in complete.items()}
        return Workload(operation, precision, columns, cost, names, registry.format_lengths(lengths), variant)
    shapes = costs.param_arrays(operation, dict(params))
    columns = {name: np.atleast_1d(array).ravel() for name, array in shapes.items()}
    cost = costs.cost(operation, precision=precision, **columns)
    return Workload(operation, precision, columns, cost, names, None, variant)


def combine_params(operation: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], list[str] | None]:
    """Combine parameters into columns: every combination of the lists' values, for each row of the arrays.

    Lists, tuples and ranges ("1..64:x2") are swept as their product, the last one fastest, and name the cases. NumPy
    arrays and pandas Series, all of one length, go together row by row. Raise ValueError for parameters without values,
    arrays of different lengths, or too many rows.
    """
    arrays: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {}
    columns: dict[str, Any] = {}
    for name, value in params.items():
        costs.check_numbers(operation, name, value)
        swept = _list_values(value, f"{operation}: {name}")
        if swept is not None:
            lists[name] = swept
        elif np.ndim(value) > 0:
            arrays[name] = np.asarray(value)
        else:
            columns[name] = value
    for name, values in (arrays | lists).items():
        if np.ndim(values) != 1:
            raise ValueError(f"{operation}: {name} is {repr_short(values)}: one dimension of values is needed")
        if not len(values):
            raise ValueError(f"{operation}: {name} has no values")
    lengths = {name: len(values) for name, values in arrays.items()}
    if len({*lengths.values()}) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise ValueError(f"{operation}: arrays go row by row and must be of one length: {counts} values")
    rows, points = max(lengths.values(), default=1), list(itertools.product(*lists.values()))
    if rows * len(points) > MAX_ROWS:
        raise ValueError(f"{operation}: the parameters make {rows * len(points)} rows: allowed are {MAX_ROWS}")
    columns |= {name: np.tile(values, len(points)) for name, values in arrays.items()}
    points_of = zip(lists, zip(*points, strict=True), strict=True)
    columns |= {name: np.repeat(np.asarray(values), rows) for name, values in points_of}
    return columns, None if arrays else _name_cases(operation, lists, points)


def _name_cases(operation: str, lists: Mapping[str, Sequence[Any]], points: Sequence[Any]) -> list[str] | None:
    """Name each point by its parameters that vary; None where none does."""
    varied = {at: name for at, (name, values) in enumerate(lists.items()) if len(set(values)) > 1}
    names = [" ".join([operation, *(f"{name}={point[at]}" for at, name in varied.items())]) for point in points]
    return names if varied else None


def _list_values(value: Any, name: str) -> list[Any] | None:
    """List the values of a list, tuple or range; None for an array and for a single value."""
    if is_range(value):
        return expand_ranges([value], name)
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and not hasattr(value, "__array__")
    return expand_ranges(value, name) if is_list else None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Times of some rows, in seconds, with their uncertainty.

    Nine of ten times lie between `low` and `high`; NaN where nothing was learned. `reason` names the source of the
    times, as one text or one a row; `variant` the kernels, None where they are not known.
    """

    seconds: Any
    low: Any
    high: Any
    reason: Any
    variant: Any = None


def roofs_seconds(work: Workload, card: Card) -> tuple[Any, Any]:
    """Compute the times of streams of the bytes and of the arithmetic (0: not known) on a device."""
    rate, kind = card.rate(work.precision)
    memory = card.streams.seconds(work.read, work.written)
    return memory, work.flops / (rate * 1e12) if kind else 0.0 * memory


def estimate_by_share(
    work: Workload, card: Card, stream: Any, share: float, source: str, bounds: Sequence[float] = (math.nan, math.nan)
) -> Estimate:
    """Estimate times at a share of the nearer roof, and an empty launch; `stream` are times of streams of the bytes.

    The larger and the smaller share of `bounds` give the shortest and the longest time.
    """
    floor = card.streams.floor_seconds
    nearer = np.maximum(np.maximum(stream - floor, 0.0), roofs_seconds(work, card)[1])
    seconds, low, high = (nearer / part + floor for part in (share, *bounds))
    return Estimate(seconds, low, high, f"predicted: {source}; {card.text(work.precision)}")
