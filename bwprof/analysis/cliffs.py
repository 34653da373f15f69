"""Where a sweep's time jumps: a step of time beyond the step of work, or less work that takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bwprof.results import schema
from bwprof.results.pairs import configuration_key, is_comparable, times_differ
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_short
from bwprof.text.parsing import measured_or_none

BEYOND = 0.10  # of the time that follows from the step of work

_TIMES = ("time_ms", "time_ms_lo", "time_ms_hi")


@dataclass(frozen=True, slots=True)
class Cliff:
    """Two neighbours along a parameter: `slow` takes more time than its work explains, beside `fast`."""

    name: str
    fast: RowDict
    slow: RowDict
    work: float  # of `slow` over that of `fast`; below 1 where it has less

    @property
    def time(self) -> float:
        """The time of `slow` over that of `fast`."""
        return float(self.slow["time_ms"] / self.fast["time_ms"])

    @property
    def text(self) -> str:
        """Say it in a line: "decode kv_len=15264 fp32: 33 % more time than kv_len=14994 for 1.8 % more work"."""
        before, after = (f"{self.name}={row[self.name]:g}" for row in (self.fast, self.slow))
        case = str(self.slow.get("case") or self.slow.get("operation"))
        named = f"{case if after in case else f'{case} {after}'} {self.slow['precision']}"
        work = f"{_percent(max(self.work, 1 / self.work))} % {'more' if self.work > 1 else 'less'} work"
        old, new = (row.get("variant") for row in (self.fast, self.slow))
        kernels = "" if old == new else f" ({new} instead of {old})"
        return f"{named}: {_percent(self.time)} % more time than {before} for {work}{kernels}"


def find_cliffs(data: Any) -> list[Cliff]:
    """Find the cliffs of a frame along each parameter that varies alone, the largest first."""
    from bwprof.results.frame import to_rows

    rows = to_rows(data)
    own = schema.extra_names(rows)
    found: list[Cliff] = []
    for name in (*schema.param_names(), *own):
        lines: dict[tuple[object, ...], list[RowDict]] = {}
        for row in rows:
            if measured_or_none(row.get(name)) is not None:
                rest = (row["precision"], *(row.get(other) for other in own if other != name))
                lines.setdefault((*configuration_key(row, without=(name, "case", "run_id")), *rest), []).append(row)
        found += [cliff for line in lines.values() for cliff in find_cliffs_along(line, name)]
    return sorted(found, key=lambda cliff: -cliff.time / cliff.work)


def find_cliffs_along(rows: Sequence[RowDict], name: str) -> list[Cliff]:
    """Find the cliffs of rows that one parameter tells apart, or the variant where the parameter has equal values."""
    timed = [row for row in rows if is_comparable(row) and (measured_or_none(row["time_ms"]) or 0) > 0]
    several = len({row[name] for row in timed}) < len(timed)
    parts: dict[object, list[RowDict]] = {}
    for row in timed:
        parts.setdefault((row.get("variant"), row.get("run_id")) if several else None, []).append(row)
    pairs = [pair for part in parts.values() for pair in pairwise(sorted(part, key=_work))]
    return [cliff for less, more in pairs if (cliff := _between(less, more, name)) is not None]


def _between(less: RowDict, more: RowDict, name: str) -> Cliff | None:
    """The cliff between two rows in the order of their work, if there is one."""
    ratios = [after / before for before, after in zip(_work(less), _work(more), strict=True) if before > 0 < after]
    work = max(ratios, default=1.0)
    if work <= 1:
        return None
    scaled = {column: less[column] * work for column in _TIMES if less.get(column) is not None}
    if more["time_ms"] > scaled["time_ms"] and times_differ(scaled, more, gate=BEYOND):
        return Cliff(name, less, more, work)
    if more["time_ms"] < less["time_ms"] and times_differ(more, less):
        return Cliff(name, more, less, 1 / work)
    return None


def _work(row: RowDict) -> tuple[float, float]:
    return float((row["bytes_read"] or 0) + (row["bytes_written"] or 0)), float(row.get("flops") or 0)


def _percent(ratio: float) -> str:
    pct = 100 * (ratio - 1)
    return format_short(pct, ".0f" if pct >= 10 else ".2g")
