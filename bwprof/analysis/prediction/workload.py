"""Shapes to predict, as arrays: what an operation must move and compute in one precision, row by row."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bwprof import costs, registry
from bwprof.costs import Cost
from bwprof.text.parsing import expand_ranges, is_range, repr_short

MAX_ROWS = 100_000_000  # each has some hundred columns: more is a slip


class PredictedCase(NamedTuple):
    """One case to predict; parameters left out take their defaults, and a name of "" is the operation's. `more` bytes
    are read beside the operation's own, fewer below 0.
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
    """Some rows of one operation in one precision: their parameters and costs, arrays of one length.

    `names` are the cases' names, one each; None where each is called as the operation is.
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
        """How many rows."""
        return len(self.cost.flops)

    @cached_property
    def read(self) -> Any:
        """Compulsory bytes read, as floats."""
        return self.cost.bytes_read.astype(float)

    @cached_property
    def written(self) -> Any:
        """Compulsory bytes written, likewise."""
        return self.cost.bytes_written.astype(float)

    @cached_property
    def flops(self) -> Any:
        """FLOPs, likewise."""
        return self.cost.flops.astype(float)

    def reading(self, more: Any) -> Workload:
        """The same with so many more bytes read."""
        read = {name: self.cost[name] + more for name in ("bytes_read", "algorithmic_bytes_read")}
        return replace(self, cost=replace(self.cost, **read))

    def in_precision(self, precision: str) -> Workload:
        """The same shapes in another precision."""
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
    """The costs of shapes: numbers, or arrays that are broadcast against each other.

    Raises
    ------
    ValueError
        For whatever `bwprof.cost` refuses, in its words.
    """
    precision = registry.check_precision(precision)
    allowed = registry.operation(operation)["precisions"]
    if precision not in allowed:
        raise ValueError(f"{operation} has no precision '{precision}': allowed are {', '.join(allowed)}")
    lengths = registry.parse_lengths(kv_lens)
    if lengths is not None:
        single: dict[str, Any] = {name: np.asarray(value).item() for name, value in params.items()}
        whole: dict[str, Any] = dict(registry.complete_params(operation, precision, single, lengths))
        found = costs.cost(operation, precision=precision, kv_lens=lengths, **whole)
        cost = Cost(*(np.array([found[name]]) for name in found))
        arrays = {name: np.array([value]) for name, value in whole.items()}
        said = registry.format_lengths(lengths)
        return Workload(operation, precision, arrays, cost, names, said, variant)
    columns: dict[str, Any] = {
        name: np.atleast_1d(array).ravel() for name, array in costs.param_arrays(operation, dict(params)).items()
    }
    cost = costs.cost(operation, precision=precision, **columns)
    return Workload(operation, precision, columns, cost, names, None, variant)


def expand_batches(
    operation: str, precision: str, columns: Mapping[str, Any], names: list[str] | None, kv_lens: Sequence[int]
) -> list[Workload]:
    """The shapes that `combined` made, each by itself with a batch of these lengths."""
    count = max((np.size(values) for values in columns.values()), default=1)
    rows = [
        {name: np.asarray(values).ravel()[at % np.size(values)] for name, values in columns.items()}
        for at in range(count)
    ]
    return [
        make_workload(operation, precision, row, names=None if names is None else [names[at]], kv_lens=kv_lens)
        for at, row in enumerate(rows)
    ]


def combine_params(operation: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], list[str] | None]:
    """Parameters as whole arrays: every combination of the lists' values, for each row of the arrays.

    Lists, tuples and ranges ("1..64:x2" among them) are swept as their product, the last one's values changing fastest,
    and give the cases their names; NumPy arrays and pandas Series, all of one length, go row by row together.

    Raises
    ------
    ValueError
        For a parameter without values, arrays of different lengths, or too many rows.
    """
    arrays: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {}
    single: dict[str, Any] = {}
    for name, value in params.items():
        costs.check_numbers(operation, name, value)
        if hasattr(value, "__array__") and np.ndim(value) > 0:
            arrays[name] = np.asarray(value)
        elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and getattr(value, "ndim", 1) > 0:
            lists[name] = list(value) if isinstance(value, range) else expand_ranges(value, f"{operation}: {name}")
        elif is_range(value):
            lists[name] = expand_ranges([value], f"{operation}: {name}")
        else:
            single[name] = value
    for name, values in (arrays | lists).items():
        if np.ndim(values) != 1:
            raise ValueError(f"{operation}: {name} is {repr_short(values)}: one dimension of values is needed")
        if not len(values):
            raise ValueError(f"{operation}: {name} has no values")
    if len({len(values) for values in arrays.values()}) > 1:
        said = ", ".join(f"{name} has {len(values)}" for name, values in arrays.items())
        raise ValueError(f"{operation}: arrays go row by row and must be of one length: {said} values")
    rows = len(next(iter(arrays.values()))) if arrays else 1
    points = list(itertools.product(*lists.values()))
    if rows * len(points) > MAX_ROWS:
        raise ValueError(f"{operation}: the parameters make {rows * len(points)} rows: allowed are {MAX_ROWS}")
    columns = single | {name: np.tile(values, len(points)) for name, values in arrays.items()}
    columns |= {
        name: np.repeat(np.asarray(values), rows) for name, values in zip(lists, zip(*points, strict=True), strict=True)
    }
    swept = {at: name for at, (name, values) in enumerate(lists.items()) if len(set(values)) > 1}
    if arrays or not swept:
        return columns, None
    names = [" ".join([operation, *(f"{name}={point[at]}" for at, name in swept.items())]) for point in points]
    return columns, names


@dataclass(frozen=True, slots=True)
class Estimate:
    """Times of some rows, in seconds, and how far off they may be.

    `low` and `high` hold nine of ten times, by what was learnt; NaN where nothing was. `reason` says what the times are
    from, one text or one a row, `variant` the kernels that they are of, None where that is not known.
    """

    seconds: Any
    low: Any
    high: Any
    reason: Any
    variant: Any = None
