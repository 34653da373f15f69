"""Launches of a timeline grouped by name, and the bytes that a caller states for them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bwprof.analysis import values as analysis_values
from bwprof.importers.frames import COLUMNS, check_peak, make_frame
from bwprof.importers.reader import file_error, shorten_name
from bwprof.results import foreign, schema
from bwprof.text.parsing import check_mapping

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

LaunchKind, LaunchKind, LaunchKind, LaunchKind = "kernel", "copy", "fill", "operator"

_DIRECTIONS = (("DtoD", (1, 1)), ("HtoD", (0, 1)), ("DtoH", (1, 0)))  # of the device's memory: read, written


class LaunchSetup(NamedTuple):
    """How something was launched; None for what is not known, or was not the same each time."""

    device: str | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    grid: str | None = None
    block: str | None = None
    blocks: int | None = None
    threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy_pct: float | None = None

    def both(self, other: LaunchSetup) -> LaunchSetup:
        """What two launches have in common."""
        common: list[Any] = [mine if mine == yours else None for mine, yours in zip(self, other, strict=True)]
        return LaunchSetup._make(common)


UNKNOWN = LaunchSetup()

MOST_NAMES = 300_000  # of kernels and operators: a program has some thousand

_MOST_LETTERS = 64 << 20  # of all names together

_TEXTS = ("device", "compute_capability", "grid", "block")


def names_error(path: Path) -> ValueError:
    """What a file of countless names raises."""
    return file_error(
        path, None, f"more than {MOST_NAMES} different names, or very long ones: no program has so many kernels"
    )


class TimelineLaunches:
    """All launches, by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._letters = 0
        self._codes = array("q")
        self._times_ms = array("d")
        self._moved = array("d")  # bytes, of copies and fills; NaN where they are not known
        self._places: dict[tuple[str, str], int] = {}
        self._setups: list[LaunchSetup] = []

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, name: str, kind: str, time_ms: float, setup: LaunchSetup, bytes_moved: int | None = None) -> None:
        """One launch."""
        before = len(self._setups)
        place = self.place(name, kind, setup)
        if place < before and (known := self._setups[place]) is not setup and known != setup:
            self._setups[place] = known.both(setup)
        self._codes.append(place)
        self._times_ms.append(time_ms)
        self._moved.append(np.nan if bytes_moved is None else bytes_moved)

    def add_many(self, names: list[tuple[str, str]], codes: NDArray[np.int64], times_ms: NDArray[np.float64]) -> None:
        """Many launches at once: of each the place of its name and kind in `names`, whose setups are added apart."""
        places = np.array([self.place(name, kind) for name, kind in names], np.int64)
        self._codes.frombytes(places[codes].astype(np.int64).tobytes())
        self._times_ms.frombytes(times_ms.astype(np.float64).tobytes())
        self._moved.extend(array("d", [np.nan]) * len(codes))

    def place(self, name: str, kind: str, setup: LaunchSetup = UNKNOWN) -> int:
        """The place of a name, with how it was launched where that is not known yet."""
        if len(name) > schema.MOST_TEXT:
            name = schema.clean_text(name)
        place = self._places.setdefault((name, kind), len(self._setups))
        if place == len(self._setups):
            self._setups.append(setup)
            self._letters += len(name)
            if place >= MOST_NAMES or self._letters > _MOST_LETTERS:
                raise names_error(self._path)
        return place

    def frame(
        self,
        *,
        source: str,
        tool: str,
        notes: list[str],
        bytes: Mapping[str, Any] | None,
        whole_ms: float | None = None,
    ) -> pd.DataFrame:
        """A row for each name, the longest in all first; shares are of `whole_ms`, else of all launches' time."""
        codes, times = np.frombuffer(self._codes, np.int64), np.frombuffer(self._times_ms, np.float64)
        order = np.lexsort((times, codes))
        times, moves = times[order], np.frombuffer(self._moved, np.float64)[order]
        counts = np.bincount(codes, minlength=len(self._setups))
        ends = np.cumsum(counts)
        begins = ends - counts
        totals = np.bincount(codes, np.frombuffer(self._times_ms, np.float64), len(self._setups))
        ranked = np.argsort(-totals, kind="stable")
        middle = (begins + (counts - 1) // 2, begins + counts // 2)
        whole = float(totals.sum()) if whole_ms is None else whole_ms
        keys = list(self._places)
        names = {key: schema.clean_text(key[0]) for key in keys}
        data: dict[str, Any] = {
            "kernel": [names[keys[place]] for place in ranked],
            "case": [_case(names[keys[place]], keys[place][1]) for place in ranked],
            "kind": [keys[place][1] for place in ranked],
            "status": ["ok"] * len(ranked),
            "count": counts[ranked],
            "time_ms": ((times[middle[0]] + times[middle[1]]) / 2)[ranked],
            "total_ms": totals[ranked],
            "min_ms": times[begins][ranked],
            "max_ms": times[ends - 1][ranked],
            "share_pct": 100 * totals[ranked] / whole if whole > 0 else np.full(len(ranked), np.nan),
        }
        setups = [self._setups[place] for place in ranked]
        data |= _of_setups(setups)
        least, most, total = (one.reduceat(moves, begins)[ranked] for one in (np.minimum, np.maximum, np.add))
        data |= bytes_columns(data, bytes, setups, (total / counts[ranked], least < most))
        return make_frame(data, source=source, tool=tool, notes=notes)


def _case(name: str, kind: str) -> str:
    return shorten_name(name) if kind == LaunchKind else name


def _of_setups(setups: list[LaunchSetup]) -> dict[str, Any]:
    """The columns that any launch has."""
    found: dict[str, Any] = {}
    for number, name in enumerate(LaunchSetup._fields):
        values = [setup[number] for setup in setups]
        if any(value is not None for value in values):
            numbers = [np.nan if value is None else value for value in values]
            found[name] = values if name in _TEXTS else np.array(numbers, np.float64)
    if "occupancy_pct" in found:
        said = "occupancy_pct: PyTorch's estimate from the launch's size"
        found["estimated"] = [None if np.isnan(value) else said for value in found["occupancy_pct"]]
    return found


def bytes_columns(
    data: Mapping[str, Any],
    bytes: Mapping[str, Any] | None,
    setups: Sequence[LaunchSetup] = (),
    recorded: tuple[NDArray[np.float64], NDArray[np.bool_]] | None = None,
) -> dict[str, Any]:
    """Bytes of one call of each name and its bandwidth: as the caller says, and of copies and fills as `recorded`.

    Where calls move different bytes (`recorded` has the means, and whether they vary), the rate is all bytes over all
    time, and `flags` says `bytes_vary`.
    """
    given = check_mapping(bytes, "bytes")
    names = data["kernel"]
    told = foreign.match_patterns(given, dict.fromkeys(names)) if given else {}
    read, written = np.full(len(names), np.nan), np.full(len(names), np.nan)
    means, varies = (read.copy(), np.zeros(len(names), bool)) if recorded is None else recorded
    counts, over_ms = data.get("count", np.ones(len(names))), np.array(data["time_ms"], np.float64)
    for place, name in enumerate(names):
        if name in told:
            value = given[told[name]]
            if callable(value) and not hasattr(value, "bytes_read"):
                setup = setups[place]._asdict() if setups else {}
                value = value({column: np.asarray(values[place]).item() for column, values in data.items()} | setup)
            (read[place], written[place], _), varies[place] = foreign.mean_call_bytes(name, value, counts[place])
        elif means[place] >= 0:
            share = (0, 1) if data["kind"][place] == LaunchKind else _direction(name)
            read[place], written[place] = (means[place] * part for part in share)
        if varies[place]:
            over_ms[place] = data["total_ms"][place] / counts[place]
    if np.isnan(read).all():
        return {}
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = (read + written) / over_ms / 1e6
    flags = {"flags": ["bytes_vary" if one else None for one in varies]} if varies.any() else {}
    rate[~np.isfinite(rate)] = np.nan
    return {"bytes_read": read, "bytes_written": written, "bandwidth_gb_s": rate, **flags}


def _direction(name: str) -> tuple[float, float]:
    """How often a copy's bytes are read from the device's memory and written to it; NaN where its name does not say."""
    return next((way for word, way in _DIRECTIONS if word in name), (np.nan, np.nan))


_KINDS = {column.name: column.kind for column in COLUMNS}


def add_bytes(found: pd.DataFrame, bytes: Mapping[str, Any]) -> pd.DataFrame:
    """The rows with `bytes_read`, `bytes_written` and `bandwidth_gb_s` by kernel's name or pattern.

    Raises
    ------
    ValueError
        For a name that no kernel has, and for what are no bytes.
    """
    if "kernel" not in found.columns:
        raise ValueError("bytes are for kernels of a profiler's file: rows of bwprof have theirs")
    data = {"kernel": found["kernel"].fillna("").tolist(), "time_ms": np.full(len(found), np.nan)}
    data |= {
        name: analysis_values.numbers(found, name) for name in ("time_ms", "count", "total_ms") if name in found.columns
    }
    return _filled(found, bytes_columns(data, bytes), over=True)


def add_peak(found: pd.DataFrame, peak_gb_s: float) -> pd.DataFrame:
    """The rows with the memory's theoretical bandwidth where they have none, and the share of it.

    Raises
    ------
    ValueError
        Where all have one.
    """
    if "peak_gb_s" in found.columns and found["peak_gb_s"].notna().all():
        raise ValueError("--peak is for rows that have no peak_gb_s: all have one, leave it out")
    filled = _filled(found, {"peak_gb_s": np.full(len(found), peak_gb_s)}, over=False)
    if "dram_gb_s" not in found.columns:
        return filled
    rate, peak = (analysis_values.numbers(filled, name) for name in ("dram_gb_s", "peak_gb_s"))  # a row's own counts
    share = np.divide(100 * rate, peak, out=np.full(len(found), np.nan), where=peak > 0)
    made = _filled(filled, {"pct_peak": share}, over=False)
    made.attrs["notes"] = (*made.attrs.get("notes", ()), *check_peak(made))
    return made


def _filled(found: pd.DataFrame, more: Mapping[str, Any], *, over: bool) -> pd.DataFrame:
    """A frame with further figures, in the columns' order: `over` those it has, or where it has none."""
    import pandas as pd

    made = found.copy()
    for name, figures in more.items():
        dtype: Any = schema.DTYPES[_KINDS[name]]
        numbers = figures if _KINDS[name] == "text" else np.asarray(figures, np.float64)
        given: Any = pd.Series(numbers, index=found.index).astype(dtype)
        if name in found.columns:
            given = given.fillna(found[name]) if over else found[name].fillna(given)
        made[name] = given
    known = [name for name in _KINDS if name in made.columns]
    first = known if "kernel" in made.columns else []
    ordered = made[[*first, *(name for name in made.columns if name not in first)]]
    ordered.attrs = dict(found.attrs)
    return ordered
