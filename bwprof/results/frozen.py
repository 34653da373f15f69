"""A run's metadata as a frame carries it: read-only, so that pandas' copies of a frame can share it.

pandas copies `DataFrame.attrs` deeply at every operation; a run's plan and roofs have some thousand values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from bwprof.results import compare
from bwprof.results.schema import Row

Samples = Sequence[Sequence[float] | None]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("a run's metadata are read-only: change a copy, dict(...) or list(...)")


class FrozenList(list[Any]):
    """A list that cannot be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed; json.dumps writes it as any other."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, _memo: object) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class Run(FrozenDict):
    """A run's metadata; beside them the raw samples of its rows, for `bwprof.save`.

    Examples
    --------
    >>> import copy
    >>> run = Run({"run_id": "a", "plan": [{"case": "decode"}]})
    >>> run["plan"][0]["case"], copy.deepcopy(run) is run
    ('decode', True)
    """

    __slots__ = ("_samples",)

    def __init__(
        self, metadata: Mapping[str, Any], samples: Mapping[tuple[object, ...], Samples] | None = None
    ) -> None:
        super().__init__({str(name): _frozen(value) for name, value in metadata.items()})
        self._samples = samples or {}

    @classmethod
    def of(cls, metadata: Mapping[str, Any], rows: Iterable[Row], samples: Samples) -> Run:
        """A run with the raw samples of these rows; they belong to the rows' identities, not to their places."""
        found: dict[tuple[object, ...], list[Sequence[float] | None]] = {}
        for row, values in zip(rows, samples, strict=True):
            if values is not None:
                found.setdefault(compare.identity(row), []).append(values)
        return cls(metadata, found)

    def samples_of(self, rows: Iterable[Row]) -> list[Sequence[float] | None]:
        """Each row's raw samples, ns per launch; None where they are not known.

        Nothing but their order tells apart rows that are the same in all: where some of them are gone, nobody knows
        which.
        """
        keys = [compare.identity(row) for row in rows]
        count = Counter(keys)
        left = {key: list(values) for key, values in self._samples.items() if len(values) <= count[key]}
        return [left[key].pop(0) if left.get(key) else None for key in keys]

    def __reduce__(self) -> tuple[Any, ...]:
        return Run, (dict(self), self._samples)


def _frozen(value: Any) -> Any:
    if isinstance(value, (FrozenDict, FrozenList)):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({str(name): _frozen(item) for name, item in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList(_frozen(item) for item in value)
    return value
