"""`bwprof.Row`: one finished row, and the metadata of its run.

The metadata are read-only, so that copies share them: pandas deep-copies `DataFrame.attrs` at every operation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Self

from bwprof.results import pairs, schema
from bwprof.results.schema import RowDict
from bwprof.text import formatting
from bwprof.text.formatting import format_short
from bwprof.text.listing import format_html_table
from bwprof.text.parsing import finite_or_none, nearest_name, quote_text

Samples = Sequence[Sequence[float] | None]
_SamplesByRow = Mapping[tuple[object, ...], Samples]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("a run's metadata are read-only: change a copy, dict(...) or list(...)")


class _Frozen:
    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self


class FrozenList(_Frozen, list[Any]):
    """A list that cannot be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class FrozenDict(_Frozen, dict[str, Any]):
    """A dict that cannot be changed; json.dumps writes it as any other."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class RunMetadata(FrozenDict):
    """A run's metadata, with the raw samples of its rows for `bwprof.save`."""

    __slots__ = ("_samples",)

    def __init__(self, metadata: Mapping[str, Any], samples: _SamplesByRow | None = None) -> None:
        super().__init__({str(name): _frozen(value) for name, value in metadata.items()})
        self._samples = samples or {}

    @classmethod
    def of(cls, metadata: Mapping[str, Any], rows: Iterable[RowDict], samples: Samples) -> RunMetadata:
        """Return a run with the raw samples of these rows, by the rows' identities."""
        by_identity: dict[tuple[object, ...], list[Sequence[float] | None]] = {}
        for row, values in zip(rows, samples, strict=True):
            if values is not None:
                by_identity.setdefault(pairs.row_identity(row), []).append(values)
        return cls(metadata, by_identity)

    def samples_of(self, rows: Iterable[RowDict]) -> list[Sequence[float] | None]:
        """Return each row's raw samples in ns per launch; None if unknown.

        Only their order distinguishes equal rows: if some of them are missing, their samples are unknown.
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
    """A row: every column of `bwprof.columns()`, and your labels; None for what is missing.

    A dict whose values are attributes too: ``row["time_ms"]``, ``row.time_ms``. `samples_ns` are the raw samples in ns
    per launch; may be empty.

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
        column = self.pop(schema.SAMPLES, None)  # from a frame's record, or a mapping of your own
        self.samples_ns = list(samples_ns or ([] if formatting.is_missing(column) else column))

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
        """Return a copy."""
        return type(self)(self, self.samples_ns)

    def __repr__(self) -> str:
        return f"<{self._title()}: {self._summary()}>"

    def _title(self) -> str:
        names = (self.get("case") or self.get("operation"), self.get("precision"), self.get("variant"))
        return " ".join(quote_text(name) for name in names if name and not formatting.is_missing(name))

    def _summary(self) -> str:
        known = {name: value for name, value in self.items() if not formatting.is_missing(value)}
        if "time_ms" not in known:
            return ": ".join(quote_text(word) for word in map(known.get, ("status", "reason")) if word) or "no time"
        parts = [f"{_format_figure(known['time_ms'])} ms{_format_interval(known)}"]
        if "bandwidth_gb_s" in known:
            parts.append(f"{_format_figure(known['bandwidth_gb_s'])} GB/s")
        limit, attainable = finite_or_none(known.get("pct_limit")), finite_or_none(known.get("pct_attainable"))
        if limit is not None:
            limiter = f" ({quote_text(known['limiter'])})" if known.get("limiter") else ""
            parts.append(f"{format_short(limit, '.0f')} % of limit{limiter}")
        elif attainable is not None:
            parts.append(f"{format_short(attainable, '.0f')} % of attainable")
        parts += [quote_text(known[name]) for name in ("cache", "timer", "device") if known.get(name)]
        flags = f"; flags: {quote_text(known['flags'])}" if known.get("flags") else ""
        return ", ".join(parts) + flags

    def _repr_html_(self) -> str:
        units = {column.name: column.unit for column in schema.all_columns()}
        known = {name: value for name, value in self.items() if not formatting.is_missing(value) and value != ""}
        texts = {name: f"{value:.5g}" if isinstance(value, float) else str(value) for name, value in known.items()}
        lines = [{"column": str(name), "value": text, "unit": units.get(name, "")} for name, text in texts.items()]
        return format_html_table(lines, self._title(), named=True)


def _format_interval(known: Mapping[str, Any]) -> str:
    """Format a time's interval, if it is known; with few samples an end may be 0 or infinite."""
    if "time_ms_lo" not in known or "time_ms_hi" not in known:
        return ""
    low, high = known["time_ms_lo"], known["time_ms_hi"]
    starts, ends = finite_or_none(low) != 0 and low != -math.inf, high != math.inf
    if starts and ends:
        return f" ({_format_figure(low)} to {_format_figure(high)})"
    if starts or ends:
        return f" ({_format_figure(low)} or more)" if starts else f" ({_format_figure(high)} or less)"
    return " (too few samples for an interval)"


def _format_figure(value: Any) -> str:
    number = finite_or_none(value)
    return quote_text(value) if number is None else f"{number:.4g}"
