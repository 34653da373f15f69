"""Compare two files of ncu, launch by launch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Set
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.importers.detect import load
from bwprof.importers.frames import COLUMNS as KNOWN
from bwprof.importers.reader import simplify_name
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import finite_or_none, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

BOTH, ONLY_BASE, ONLY_NEW = "both", "only_in_base", "only_in_new"
LAUNCHES, STALL = "launches", "stall "  # figures that are no columns
COLUMNS = (
    *("pair", "case", "kernel", "side", "base_launch", "new_launch", "figure", "unit", "base", "new", "difference"),
    "ratio",
)

# The compared figures of a launch, in this order.
FIGURES = (
    *("time_ms", "dram_bytes_read", "dram_bytes_written", "dram_gb_s", "pct_peak", "dram_pct", "sm_pct", "tensor_pct"),
    *("fma_pct", "occupancy_pct", "theoretical_occupancy_pct", "waves", "grid_blocks", "block_threads", "registers"),
    *("shared_bytes", "sectors_per_load", "sectors_per_store", "load_efficiency_pct", "store_efficiency_pct"),
    *("bank_conflicts", "shared_wavefronts", "local_bytes", "l1_hit_pct", "l2_hit_pct", "l2_bytes", "active_threads"),
    "flops",
)
ALONE = (
    "times under a profiler (clocks locked or not, flushed caches, replayed passes) compare with each other alone: "
    "bwprof ab and bwprof compare measure without one"
)
_UNITS = {column.name: column.unit for column in KNOWN}
_UNNAMED = re.compile(r"|(cuda:|GPU )\d+")  # a device by its number
_MOST_STALLS = 3  # of each side
_MOST_NAMES = 6  # of figures that a note lists
_SAME_CLOCK = 0.03

_Row = dict[str, Any]
LaunchPair = tuple[_Row | None, _Row | None, int]


def ncu_compare(base: str | PathLike[str] | pd.DataFrame, new: str | PathLike[str] | pd.DataFrame) -> pd.DataFrame:
    """Compare two files of Nsight Compute, launch by launch.

    Parameters
    ----------
    base, new : path, or pandas.DataFrame
        Before and after: pages and reports of ncu, rows of them that bwprof wrote, or frames of `parse_ncu`. The first
        launch of a kernel is paired with the first of the same name, the second with the second, and so on; names
        with and without namespaces are equal. Where no name is on both sides and each has one kernel, these two are
        compared.

    Returns
    -------
    pandas.DataFrame
        A row for each pair of launches and figure: pair (a number), case (the kernel's short name),
        kernel, side ("both"), base_launch and new_launch (their numbers in the files), figure (a column of
        `bwprof.importers.frames.COLUMNS`, or "stall REASON", the three most frequent of each side, % of all waiting),
        unit, base, new (NaN: not in that file), difference (new - base) and ratio (new / base). A kernel, or further
        launches of one, on one side alone are one row: side "only_in_base" or "only_in_new", figure "launches".
        ``attrs["notes"]`` has other differences of the sides: device, clock, what was counted.

    Raises
    ------
    ValueError, OSError
        For a file without launches (a time line, results of bwprof), and two files without a kernel in common.

    Examples
    --------
    >>> import pandas as pd
    >>> from bwprof.importers import ncu_compare
    >>> before = pd.DataFrame({"kernel": ["copy"], "launch": [0], "time_ms": [0.5], "registers": [32]})
    >>> compared = ncu_compare(before, before.assign(time_ms=0.4)).set_index("figure")
    >>> float(compared.loc["time_ms", "ratio"]), float(compared.loc["registers", "difference"])
    (0.8, 0.0)
    """
    import pandas as pd

    before, after = _load_launches(base, "base"), _load_launches(new, "new")
    notes: list[str] = []
    pairs = list(_pair_launches(_rows(before), _rows(after), notes))
    lines = [(number, *line) for number, pair in enumerate(pairs) for line in _lines(*pair)]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    text = dict.fromkeys(("case", "kernel", "side", "figure", "unit"), "string")
    numbers = dict.fromkeys(("base", "new", "difference", "ratio"), "float64")
    frame = frame.astype({**text, "pair": "int64", "base_launch": "Int64", "new_launch": "Int64", **numbers})
    frame.attrs = {
        "base": str(before.attrs.get("source") or "base"),
        "new": str(after.attrs.get("source") or "new"),
        "notes": (*notes, *_describe_sides([(old, now) for old, now, _ in pairs if old and now])),
    }
    return frame


def _load_launches(side: Any, name: str) -> pd.DataFrame:
    """Return a side's frame; ValueError where it has no launches of kernels."""
    import pandas as pd

    if not isinstance(side, (str, PathLike, pd.DataFrame)):
        raise TypeError(f"{name} is {repr_short(side)}: a path or a frame of parse_ncu is needed")
    frame = side if isinstance(side, pd.DataFrame) else load(side)
    source = name if isinstance(side, pd.DataFrame) else quote_text(side)
    if "kernel" not in frame.columns:
        raise ValueError(
            f"{source} has no column kernel: launches that ncu measured are needed (bwprof compare is for results)"
        )
    if "count" in frame.columns:
        raise ValueError(f"{source} is a time line, a row for each name: launches that ncu measured are needed")
    return frame


def _rows(frame: pd.DataFrame) -> list[_Row]:
    records = frame[[name for name in frame.columns if name in _UNITS]].to_dict(orient="records")
    return [{str(name): None if is_missing(value) else value for name, value in row.items()} for row in records]


def _pair_launches(before: list[_Row], after: list[_Row], notes: list[str]) -> Iterator[LaunchPair]:
    """Yield paired launches, and once the launches of a kernel that one side alone has, with their number."""
    old, new = _by_name(before, set(map(_name, after))), _by_name(after, set(map(_name, before)))
    if not set(old) & set(new):
        if len(old) != 1 or len(new) != 1:
            sides = [[quote_text(_case(rows[0])) for rows in groups.values()] for groups in (old, new)]
            has = [", ".join([*names[:3], "..."] if len(names) > 3 else names) or "none" for names in sides]
            raise ValueError(
                f"no kernel is on both sides: one has {has[0]}, the other {has[1]}; --kernel TEXT chooses one kernel "
                "of each side, whose names contain it"
            )
        (name,), (rows,) = old, new.values()
        notes.append(f"kernels of different names are compared: {_case(old[name][0])} and {_case(rows[0])}")
        new = {name: rows}
    for name in [*old, *(name for name in new if name not in old)]:
        lefts, rights = old.get(name, []), new.get(name, [])
        yield from ((left, right, 1) for left, right in zip(lefts, rights, strict=False))
        if len(lefts) > len(rights):
            yield lefts[len(rights)], None, len(lefts) - len(rights)
        elif len(rights) > len(lefts):
            yield None, rights[len(lefts)], len(rights) - len(lefts)


def _name(row: _Row) -> str:
    return str(row.get("kernel") or "")


def _by_name(rows: list[_Row], others: Set[str]) -> dict[str, list[_Row]]:
    """Group a side's rows by name; by the other side's name where a page left out namespaces and types."""
    names = set(map(_name, rows))
    simple = {simplify_name(name): name for name in others - names}
    shorter = {name: simple.get(simplify_name(name), name) for name in names - others}
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        name = _name(row)
        letters = iter(name)
        other = shorter.get(name, name)
        is_shorter = all(letter in letters for letter in other)  # all of its letters, in their order
        groups.setdefault(other if is_shorter else name, []).append(row)
    return groups


def _case(row: _Row) -> str:
    return str(row.get("case") or row.get("kernel") or "a kernel without a name")


def _lines(base: _Row | None, new: _Row | None, launches: int) -> Iterator[tuple[Any, ...]]:
    """Yield a row's values for each figure that either side has."""
    row = base or new or {}
    name = (_case(row), row.get("kernel"))
    if base is None or new is None:
        side, counts = (ONLY_NEW, (0.0, float(launches))) if base is None else (ONLY_BASE, (float(launches), 0.0))
        yield *name, side, None, None, LAUNCHES, "", *counts, counts[1] - counts[0], math.nan
        return
    numbers = (base.get("launch"), new.get("launch"))
    for figure, (old, now) in _figures(base, new).items():
        if not (math.isnan(old) and math.isnan(now)):
            ratio = now / old if old > 0 else math.nan
            yield *name, BOTH, *numbers, figure, _UNITS.get(figure, "%"), old, now, now - old, ratio


def _figures(base: _Row, new: _Row) -> dict[str, tuple[float, float]]:
    figures = {name: (_number(base.get(name)), _number(new.get(name))) for name in FIGURES}
    sides = [values.parse_stalls(str(row.get("stall_reasons") or "")) for row in (base, new)]
    most = [reason for side in sides for reason in sorted(side, key=lambda reason: -side[reason])[:_MOST_STALLS]]
    for reason in dict.fromkeys(most):  # a side that counted stalls, and not this one, has 0
        old, now = (side.get(reason, 0.0) if side else math.nan for side in sides)
        figures[STALL + reason] = (old, now)
    return figures


def _number(value: Any) -> float:
    number = finite_or_none(value)
    return math.nan if number is None else number


def _describe_sides(pairs: list[tuple[_Row, _Row]]) -> Iterator[str]:
    """Yield other differences of the sides: devices, clocks, and what was counted."""
    for old, now in sorted({(_device(old), _device(now)) for old, now in pairs}):
        if old != now and not _UNNAMED.fullmatch(old) and not _UNNAMED.fullmatch(now):
            yield f"the devices differ: {quote_text(old)} and {quote_text(now)}"
    ratios = [_number(now.get("sm_clock_mhz")) / (_number(old.get("sm_clock_mhz")) or math.nan) for old, now in pairs]
    most = max((abs(math.log(ratio)) for ratio in ratios if ratio > 0), default=0.0)
    if most > math.log1p(_SAME_CLOCK):
        yield f"the multiprocessors' clocks differ by up to {100 * math.expm1(most):.0f} %, and times with them"
    for side, name in enumerate(("base", "new")):
        if lacks := _list_lacking(pairs, side):
            more = ", ..." if len(lacks) > _MOST_NAMES else ""
            yield f"{name} was not counted with: {', '.join(lacks[:_MOST_NAMES])}{more}"


def _device(row: _Row) -> str:
    return str(row.get("device") or "")


def _list_lacking(pairs: list[tuple[_Row, _Row]], side: int) -> list[str]:
    """Return the figures that one side lacks in all pairs and the other has in all."""
    unknown = {
        name: [[math.isnan(_number(row.get(name))) for row in pair] for pair in pairs] for name in FIGURES if pairs
    }
    return [name for name, found in unknown.items() if all(pair[side] and not pair[1 - side] for pair in found)]


def sum_times(compared: pd.DataFrame) -> tuple[float, float, int]:
    """Return the time of all pairs that have both times, ms before and after, and the number of these pairs."""
    times = compared[(compared["figure"] == "time_ms") & compared["base"].notna() & compared["new"].notna()]
    return float(times["base"].sum()), float(times["new"].sum()), len(times)
