"""Two files of a profiler, launch beside launch: what became of each figure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Set
from os import PathLike
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.importers.detect import load
from bwprof.importers.frames import COLUMNS as KNOWN
from bwprof.importers.reader import simplify_name
from bwprof.text.formatting import is_missing, plural
from bwprof.text.parsing import finite_or_none, quote_text, repr_short

if TYPE_CHECKING:
    import pandas as pd

BOTH, ONLY_BASE, ONLY_NEW = "both", "only_in_base", "only_in_new"

LAUNCHES, STALL = "launches", "stall "  # figures that are no columns

COLUMNS = (
    "pair",
    "case",
    "kernel",
    "side",
    "base_launch",
    "new_launch",
    "figure",
    "unit",
    "base",
    "new",
    "difference",
    "ratio",
)

# Of a launch, in this order.
FIGURES = (
    "time_ms",
    "dram_bytes_read",
    "dram_bytes_written",
    "dram_gb_s",
    "pct_peak",
    "dram_pct",
    "sm_pct",
    "tensor_pct",
    "fma_pct",
    "occupancy_pct",
    "theoretical_occupancy_pct",
    "waves",
    "grid_blocks",
    "block_threads",
    "registers",
    "shared_bytes",
    "sectors_per_load",
    "sectors_per_store",
    "load_efficiency_pct",
    "store_efficiency_pct",
    "bank_conflicts",
    "shared_wavefronts",
    "local_bytes",
    "l1_hit_pct",
    "l2_hit_pct",
    "l2_bytes",
    "active_threads",
    "flops",
)

ALONE = (
    "times under a profiler (clocks locked or not, flushed caches, replayed passes) compare with each other alone: "
    "bwprof ab and bwprof compare measure without one"
)

_UNITS = {column.name: column.unit for column in KNOWN}

_UNNAMED = re.compile(r"|(cuda:|GPU )\d+")  # a device by its number

_MOST_STALLS = 3  # of each side

_SAME_CLOCK = 0.03

_Row = dict[str, Any]


def ncu_compare(base: str | PathLike[str] | pd.DataFrame, new: str | PathLike[str] | pd.DataFrame) -> pd.DataFrame:
    """What became of a program's kernels: two files of Nsight Compute, launch beside launch.

    Parameters
    ----------
    base, new : path, or pandas.DataFrame
        Before and after: pages and reports of ncu, rows of them that bwprof wrote, or frames of `parse_ncu`. The first
        launch of a kernel is held against the first of the same name, the second against the second, and so on; one
        that a page has without namespaces is the same as whole. Where no name is on both sides and each has one kernel,
        these two are compared.

    Returns
    -------
    pandas.DataFrame
        A line for each pair of launches and figure: pair (a number), case (the kernel's short name),
        kernel, side ("both"), base_launch and new_launch (their numbers in the files), figure (a column of
        `bwprof.importers.frames.COLUMNS`, or "stall REASON", the three most frequent of each side, % of all waiting),
        unit, base, new (NaN: not in that file), difference (new - base) and ratio (new / base). A kernel, or further
        launches of one, that one side alone has are one line: side "only_in_base" or "only_in_new", figure "launches".
        ``attrs["notes"]`` says what makes the two sides differ besides: device, clock, what was counted.

    Raises
    ------
    ValueError
        For a file that is none, a time line, results of bwprof's, and two files without a kernel in common.
    OSError
        When a file cannot be read.

    Notes
    -----
    ncu locks the clocks unless it is told not to, flushes the caches before each pass and runs launches one by one: its
    times compare with each other alone. `bwprof.ab` and `bwprof.compare` say what a change brings without a profiler.

    Examples
    --------
    >>> import pandas as pd
    >>> from bwprof.importers import ncu_compare
    >>> before = pd.DataFrame({"kernel": ["copy"], "launch": [0], "time_ms": [0.5], "registers": [32]})
    >>> found = ncu_compare(before, before.assign(time_ms=0.4)).set_index("figure")
    >>> float(found.loc["time_ms", "ratio"]), float(found.loc["registers", "difference"])
    (0.8, 0.0)
    """
    import pandas as pd

    one, other = _launches(base, "base"), _launches(new, "new")
    notes: list[str] = []
    pairs = list(_pairs(one, other, notes))
    lines = [(number, *line) for number, pair in enumerate(pairs) for line in _lines(*pair)]
    frame = pd.DataFrame(lines, columns=list(COLUMNS))
    text = dict.fromkeys(("case", "kernel", "side", "figure", "unit"), "string")
    numbers = dict.fromkeys(("base", "new", "difference", "ratio"), "float64")
    frame = frame.astype({**text, "pair": "int64", "base_launch": "Int64", "new_launch": "Int64", **numbers})
    both = [(mine, yours) for mine, yours, _ in pairs if mine and yours]
    frame.attrs = {
        "base": str(one.attrs.get("source") or "base"),
        "new": str(other.attrs.get("source") or "new"),
        "notes": (*notes, *_differing(both)),
    }
    return frame


def _launches(given: Any, name: str) -> pd.DataFrame:
    """A side's frame; ValueError for what has no launches of kernels."""
    import pandas as pd

    if not isinstance(given, (str, PathLike, pd.DataFrame)):
        raise TypeError(f"{name} is {repr_short(given)}: a path or a frame of parse_ncu is needed")
    found = given if isinstance(given, pd.DataFrame) else load(given)
    source = name if isinstance(given, pd.DataFrame) else quote_text(given)
    if "kernel" not in found.columns:
        raise ValueError(
            f"{source} has no column kernel: launches that ncu measured are needed (bwprof compare is for results)"
        )
    if "count" in found.columns:
        raise ValueError(f"{source} is a time line, a row for each name: launches that ncu measured are needed")
    return found


def _rows(found: pd.DataFrame) -> list[_Row]:
    there = [name for name in found.columns if name in _UNITS]
    records = found[there].to_dict(orient="records")
    return [{str(name): None if is_missing(value) else value for name, value in row.items()} for row in records]


LaunchPair = tuple[_Row | None, _Row | None, int]


def _pairs(base: pd.DataFrame, new: pd.DataFrame, notes: list[str]) -> Iterator[LaunchPair]:
    """Launches that belong together; what one side alone has once, with how many launches that are."""
    one, other = _rows(base), _rows(new)
    mine, yours = _by_name(one, set(map(_name, other))), _by_name(other, set(map(_name, one)))
    if not set(mine) & set(yours):
        if len(mine) != 1 or len(yours) != 1:
            raise ValueError(
                f"no kernel is on both sides: one has {_named(mine)}, the other {_named(yours)}; of two kernels with "
                "different names one of each side alone is needed (--kernel TEXT, which both contain)"
            )
        (old,), (rows,) = mine, yours.values()
        notes.append(f"kernels of different names are compared: {_case(mine[old][0])} and {_case(rows[0])}")
        yours = {old: rows}
    for name, listed in mine.items():
        others = yours.get(name, [])
        yield from ((left, right, 1) for left, right in zip(listed, others, strict=False))
        if len(listed) > len(others):
            yield listed[len(others)], None, len(listed) - len(others)
        elif len(others) > len(listed):
            yield None, others[len(listed)], len(others) - len(listed)
    for name, listed in yours.items():
        if name not in mine:
            yield None, listed[0], len(listed)


def _name(row: _Row) -> str:
    return str(row.get("kernel") or "")


def _by_name(rows: list[_Row], others: Set[str]) -> dict[str, list[_Row]]:
    """A side's rows by name; by the other side's where that is the same with less: pages leave out namespaces and
    types, reports do not.
    """
    names = set(map(_name, rows))
    less = {simplify_name(name): name for name in others - names}
    called = {name: less.get(simplify_name(name), name) for name in names - others}
    found: dict[str, list[_Row]] = {}
    for row in rows:
        name = _name(row)
        other = called.get(name, name)
        found.setdefault(other if _is_left(other, name) else name, []).append(row)
    return found


def _is_left(less: str, name: str) -> bool:
    """Whether it is what is left of a name when letters are taken out."""
    letters = iter(name)
    return all(letter in letters for letter in less)


def _named(found: Mapping[str, list[_Row]]) -> str:
    listed = [quote_text(_case(rows[0])) for rows in list(found.values())[:3]]
    more = f" and {plural(len(found) - 3, 'other')}" if len(found) > 3 else ""
    return f"{', '.join(listed) or 'none'}{more}"


def _case(row: _Row) -> str:
    return str(row.get("case") or row.get("kernel") or "a kernel without a name")


def _lines(base: _Row | None, new: _Row | None, launches: int) -> Iterator[tuple[Any, ...]]:
    """A line a figure that either side has."""
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
    found = {name: (_number(base.get(name)), _number(new.get(name))) for name in FIGURES}
    mine, yours = (values.parse_stalls(str(row.get("stall_reasons") or "")) for row in (base, new))
    most = [name for side in (mine, yours) for name in sorted(side, key=lambda one: -side[one])[:_MOST_STALLS]]
    for reason in dict.fromkeys(most):
        found[STALL + reason] = (_share(mine, reason), _share(yours, reason))
    return found


def _number(value: Any) -> float:
    found = finite_or_none(value)
    return math.nan if found is None else found


def _share(side: Mapping[str, float], reason: str) -> float:
    """Of a side that counted why warps wait, none means 0."""
    return side.get(reason, 0.0) if side else math.nan


def _differing(pairs: list[tuple[_Row, _Row]]) -> Iterator[str]:
    """What makes two sides differ besides their kernels."""
    devices = {tuple(str(row.get("device") or "") for row in pair) for pair in pairs}
    for one, other in sorted(devices):
        if one != other and not any(_UNNAMED.fullmatch(name) for name in (one, other)):
            yield f"the devices differ: {quote_text(one)} and {quote_text(other)}"
    clocks = [(_number(one.get("sm_clock_mhz")), _number(other.get("sm_clock_mhz"))) for one, other in pairs]
    most = max((abs(math.log(now / old)) for old, now in clocks if old > 0 and now > 0), default=0.0)
    if most > math.log1p(_SAME_CLOCK):
        yield f"the multiprocessors' clocks differ by up to {100 * math.expm1(most):.0f} %, and times with them"
    for place, name in enumerate(("base", "new")):
        missing = [one for one in FIGURES if pairs and all(_lacks(pair, place, one) for pair in pairs)]
        if missing:
            yield f"{name} was not counted with: {', '.join(missing[:6])}{', ...' if len(missing) > 6 else ''}"


def _lacks(pair: tuple[_Row, _Row], place: int, name: str) -> bool:
    """Whether a side lacks a figure that the other has."""
    return math.isnan(_number(pair[place].get(name))) and not math.isnan(_number(pair[1 - place].get(name)))


def sum_times(found: pd.DataFrame) -> tuple[float, float, int]:
    """The time of all pairs together that have both, ms before and after, and how many they are."""
    times = found[(found["figure"] == "time_ms") & found["base"].notna() & found["new"].notna()]
    return float(times["base"].sum()), float(times["new"].sum()), len(times)
