"""`bwprof.Row`: one finished row, and the metadata of its run.

The metadata are read-only: pandas copies `DataFrame.attrs` deeply at every operation, and a run's plan and roofs have
thousands of values that the copies can share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from bwprof.results import columns, pairs, schema
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import format_short
from bwprof.text.listing import format_html_table
from bwprof.text.parsing import finite_or_none, nearest_name, quote_text

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


class RunMetadata(FrozenDict):
    """A run's metadata; beside them the raw samples of its rows, for `bwprof.save`.

    Examples
    --------
    >>> import copy
    >>> run = RunMetadata({"run_id": "a", "plan": [{"case": "decode"}]})
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
    def of(cls, metadata: Mapping[str, Any], rows: Iterable[RowDict], samples: Samples) -> RunMetadata:
        """A run with the raw samples of these rows; they belong to the rows' identities, not to their places."""
        found: dict[tuple[object, ...], list[Sequence[float] | None]] = {}
        for row, values in zip(rows, samples, strict=True):
            if values is not None:
                found.setdefault(pairs.row_identity(row), []).append(values)
        return cls(metadata, found)

    def samples_of(self, rows: Iterable[RowDict]) -> list[Sequence[float] | None]:
        """Each row's raw samples, ns per launch; None where they are not known.

        Nothing but their order tells apart rows that are the same in all: where some of them are gone, nobody knows
        which.
        """
        keys = [pairs.row_identity(row) for row in rows]
        count = Counter(keys)
        left = {key: list(values) for key, values in self._samples.items() if len(values) <= count[key]}
        return [left[key].pop(0) if left.get(key) else None for key in keys]

    def __reduce__(self) -> tuple[Any, ...]:
        return RunMetadata, (dict(self), self._samples)


def _frozen(value: Any) -> Any:
    if isinstance(value, (FrozenDict, FrozenList)):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({str(name): _frozen(item) for name, item in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList(_frozen(item) for item in value)
    return value


class Row(dict[str, Any]):
    """A row: every column of `bwprof.columns()`, and the caller's labels; None where something is not known.

    A dict, whose values are attributes as well: ``row["time_ms"]``, ``row.time_ms``.

    Attributes
    ----------
    samples_ns : list of float
        The raw samples, ns per launch; empty where there are none.

    Examples
    --------
    >>> row = Row({"case": "decode", "status": "ok", "time_ms": 0.5}, [4.9e5, 5.0e5, 5.1e5])
    >>> row.time_ms, row["time_ms"], len(row.samples_ns)
    (0.5, 0.5, 3)
    """

    samples_ns: list[float]

    def __init__(
        self,
        values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        samples_ns: Sequence[float] = (),
    ) -> None:
        super().__init__(values)
        own = self.pop(schema.SAMPLES, None)  # where a mapping of one's own, and a frame's record, has them
        self.samples_ns = list(samples_ns or ([] if formatting.is_missing(own) else own))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            near = None if name.startswith("_") else nearest_name(quote_text(name), map(str, self), likeness=0.6)
            hint = f": did you mean '{near}'?" if near else ""
            raise AttributeError(f"this row has no column '{quote_text(name)}'{hint}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == schema.SAMPLES:
            object.__setattr__(self, name, value)
        else:
            self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise AttributeError(f"this row has no column '{quote_text(name)}'")
        del self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in self if isinstance(name, str))]

    def __reduce__(self) -> tuple[type[Row], tuple[dict[str, Any], list[float]]]:
        return type(self), (dict(self), self.samples_ns)

    def copy(self) -> Row:
        """A row of its own with the same values."""
        return type(self)(self, self.samples_ns)

    def __repr__(self) -> str:
        return f"<{self._title()}: {self._said()}>"

    def _title(self) -> str:
        words = (self.get("case") or self.get("operation"), self.get("precision"), self.get("variant"))
        return " ".join(quote_text(word) for word in words if word and not formatting.is_missing(word))

    def _said(self) -> str:
        """The row in a line, without its name."""
        known = {name: value for name, value in self.items() if not formatting.is_missing(value)}
        if "time_ms" not in known:
            return ": ".join(quote_text(word) for word in map(known.get, ("status", "reason")) if word) or "no time"
        words = [f"{_figure(known['time_ms'])} ms"]
        if "time_ms_lo" in known and "time_ms_hi" in known:
            words[0] += f" ({_between(known['time_ms_lo'], known['time_ms_hi'])})"
        if "bandwidth_gb_s" in known:
            words.append(f"{_figure(known['bandwidth_gb_s'])} GB/s")
        share, stream = finite_or_none(known.get("pct_limit")), finite_or_none(known.get("pct_attainable"))
        if share is not None:
            limiter = f" ({quote_text(known['limiter'])})" if known.get("limiter") else ""
            words.append(f"{format_short(share, '.0f')} % of limit{limiter}")
        elif stream is not None:  # whose FLOPs nobody knows
            words.append(f"{format_short(stream, '.0f')} % of attainable")
        words += [quote_text(known[name]) for name in ("cache", "timer", "device") if known.get(name)]
        flags = f"; flags: {quote_text(known['flags'])}" if known.get("flags") else ""
        return ", ".join(words) + flags

    def _repr_html_(self) -> str:
        """The columns that are known, with their units, as a notebook shows them."""
        units = {column.name: column.unit for column in columns.all_columns()}
        lines = [
            {"column": name, "value": _format_field(value), "unit": units.get(name, "")}
            for name, value in ((str(name), value) for name, value in self.items())
            if not formatting.is_missing(value) and value != ""
        ]
        return format_html_table(lines, self._title(), named=True)


def _between(low: Any, high: Any) -> str:
    """An interval; of few samples, or of ones that resemble their neighbours, an end may be 0 or infinite."""
    starts, ends = finite_or_none(low) != 0 and low != -math.inf, high != math.inf
    if starts and ends:
        return f"{_figure(low)} to {_figure(high)}"
    if starts or ends:
        return f"{_figure(low)} or more" if starts else f"{_figure(high)} or less"
    return "too few samples for an interval"


def _figure(value: Any) -> str:
    """A number in four digits; whatever else stands in its place as it is."""
    found = finite_or_none(value)
    return quote_text(value) if found is None else f"{found:.4g}"


def _format_field(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
