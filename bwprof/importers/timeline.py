"""Group a timeline's launches by name, and add the bytes that a caller states for names."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bwprof.analysis import values as analysis_values
from bwprof.importers.frames import COLUMNS, check_peak, make_frame
from bwprof.importers.reader import file_error, shorten_name
from bwprof.results import exchange, schema
from bwprof.text.parsing import check_mapping, finite_or_none

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

LaunchKind = Literal["kernel", "copy", "fill", "operator"]
MOST_NAMES = 300_000  # of kernels and operators: a program has some thousand
_MOST_LETTERS = 64 << 20  # of all names together
_DIRECTIONS = (("DtoD", (1, 1)), ("HtoD", (0, 1)), ("DtoH", (1, 0)))  # reads and writes of the device's memory
_TEXTS = ("device", "compute_capability", "grid", "block")
_KINDS = {column.name: column.kind for column in COLUMNS}

EventBytes = Mapping[str, "tuple[int, int] | Callable[[dict[str, Any]], tuple[int, int]] | Any"]


class LaunchSetup(NamedTuple):
    """The parameters of a launch; None for what is unknown, or differs between launches of a name."""

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

    @classmethod
    def make(
        cls,
        number: Any,
        device: Mapping[str, Any],
        axes: tuple[Sequence[int] | None, Sequence[int] | None],
        registers: int | None,
        shared_bytes: int | None,
        occupancy_pct: float | None = None,
    ) -> LaunchSetup:
        """Make a setup of a device's number and its facts in the file, and of the axes of grid and block."""
        texts = ["x".join(map(str, sizes)) if sizes else None for sizes in axes]
        products = [math.prod(sizes) if sizes else None for sizes in axes]
        name = capability = processors = None
        if type(number) is int and 0 <= number < 10_000:
            known, major, minor = (device.get(key) for key in ("name", "computeMajor", "computeMinor"))
            name = schema.clean_text(known) if isinstance(known, str) else f"GPU {number}"
            if type(major) is int and type(minor) is int and 0 < major < 1000 and 0 <= minor < 1000:
                capability = f"{major}.{minor}"
            processors = to_count(device.get("numSms", device.get("smCount")))
        return cls._make([name, capability, processors, *texts, *products, registers, shared_bytes, occupancy_pct])

    def common(self, other: LaunchSetup) -> LaunchSetup:
        """Return what two launches have in common."""
        return LaunchSetup._make(mine if mine == yours else None for mine, yours in zip(self, other, strict=True))


def to_count(value: Any) -> int | None:
    """Return a value that can be a count as an integer; None for any other."""
    number = finite_or_none(value)
    return int(number) if number is not None and 0 <= number < 2**62 else None


UNKNOWN = LaunchSetup()


def names_error(path: Path) -> ValueError:
    """Return the error for a file of countless names."""
    return file_error(
        path, None, f"more than {MOST_NAMES} different names, or very long ones: no program has so many kernels"
    )


class TimelineLaunches:
    """All launches of a timeline, grouped by name and kind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._letters = 0
        self._codes = array("q")
        self._times_ms = array("d")
        self._bytes = array("d")  # of copies and fills; NaN where unknown
        self._places: dict[tuple[str, LaunchKind], int] = {}
        self._setups: list[LaunchSetup] = []

    def __len__(self) -> int:
        return len(self._codes)

    def add(
        self, name: str, kind: LaunchKind, time_ms: float, setup: LaunchSetup, bytes_moved: int | None = None
    ) -> None:
        """Add a launch; its name keeps the parameters that all its launches have in common."""
        place = self.place(name, kind, setup)
        if self._setups[place] is not setup:
            self._setups[place] = self._setups[place].common(setup)
        self._codes.append(place)
        self._times_ms.append(time_ms)
        self._bytes.append(np.nan if bytes_moved is None else bytes_moved)

    def add_many(
        self, places: NDArray[np.int64], times_ms: NDArray[np.float64], bytes_moved: NDArray[np.float64]
    ) -> None:
        """Add launches of names at these places."""
        self._codes.frombytes(places.tobytes())
        self._times_ms.frombytes(times_ms.tobytes())
        self._bytes.frombytes(bytes_moved.tobytes())

    def place(self, name: str, kind: LaunchKind, setup: LaunchSetup = UNKNOWN) -> int:
        """Return the place of a name; a new name gets this setup."""
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
        self, *, source: str, tool: str, notes: list[str], bytes: EventBytes | None, span_ms: float | None = None
    ) -> pd.DataFrame:
        """Make a row for each name, the longest in total first; shares are of `span_ms`, else of all launches' time."""
        import pandas as pd

        codes, times = np.frombuffer(self._codes, np.int64), np.frombuffer(self._times_ms)
        moved = np.frombuffer(self._bytes)
        groups = pd.DataFrame({"time": times, "bytes": moved}).groupby(codes)
        totals = np.bincount(codes, times)
        order = np.argsort(-totals, kind="stable")
        figures = groups["time"].agg(["size", "median", "min", "max"]).iloc[order]
        extremes = groups["bytes"].agg(["min", "max"]).iloc[order]
        means = (np.bincount(codes, moved) / np.bincount(codes))[order]  # NaN where any launch's bytes are unknown
        whole = float(totals.sum()) if span_ms is None else span_ms
        keys = list(self._places)
        kinds = [keys[place][1] for place in order]
        names = [schema.clean_text(keys[place][0]) for place in order]
        setups = [self._setups[place] for place in order]
        data: dict[str, Any] = {
            "kernel": names,
            "case": [shorten_name(name) if kind == "kernel" else name for name, kind in zip(names, kinds, strict=True)],
            "kind": kinds,
            "status": ["ok"] * len(order),
            "count": figures["size"].to_numpy(),
            "time_ms": figures["median"].to_numpy(),
            "total_ms": totals[order],
            "min_ms": figures["min"].to_numpy(),
            "max_ms": figures["max"].to_numpy(),
            "share_pct": 100 * totals[order] / whole if whole > 0 else np.full(len(order), np.nan),
        }
        data |= _setup_columns(setups)
        varies = (extremes["min"] < extremes["max"]).to_numpy() & ~np.isnan(means)
        data |= bytes_columns(data, bytes, setups, (means, varies))
        return make_frame(data, source=source, tool=tool, notes=notes)


def _setup_columns(setups: list[LaunchSetup]) -> dict[str, Any]:
    """Return the setups' columns that any launch has."""
    columns: dict[str, Any] = {}
    for name, values in zip(LaunchSetup._fields, zip(*setups, strict=True), strict=True):
        if any(value is not None for value in values):
            columns[name] = list(values) if name in _TEXTS else np.array(values, np.float64)
    if "occupancy_pct" in columns:
        estimate = "occupancy_pct: PyTorch's estimate from the launch's size"
        columns["estimated"] = [None if np.isnan(value) else estimate for value in columns["occupancy_pct"]]
    return columns


def bytes_columns(
    data: Mapping[str, Any],
    bytes: EventBytes | None,
    setups: Sequence[LaunchSetup] = (),
    recorded: tuple[NDArray[np.float64], NDArray[np.bool_]] | None = None,
) -> dict[str, Any]:
    """Return the bytes of one call of each name and its bandwidth.

    Bytes are the caller's (`bytes`), else those of copies and fills in the file: `recorded` has their means, and
    whether they vary. Where they vary, the bandwidth is all bytes over all time, and `flags` has `bytes_vary`.
    """
    callers = check_mapping(bytes, "bytes")
    names = data["kernel"]
    keys = exchange.match_patterns(callers, dict.fromkeys(names)) if callers else {}
    read, written = np.full(len(names), np.nan), np.full(len(names), np.nan)
    means, varies = (read.copy(), np.zeros(len(names), bool)) if recorded is None else recorded
    counts, times_ms = data.get("count", np.ones(len(names))), np.array(data["time_ms"], np.float64)
    for place, name in enumerate(names):
        if name in keys:
            value = callers[keys[name]]
            if callable(value) and not hasattr(value, "bytes_read"):
                value = value(_row(data, setups, place))
            (read[place], written[place], _), varies[place] = exchange.mean_call_bytes(name, value, counts[place])
        elif means[place] >= 0:
            ways = _find_direction(name, data["kind"][place])
            read[place], written[place] = (means[place] * way for way in ways)
        if varies[place]:
            times_ms[place] = data["total_ms"][place] / counts[place]
    if np.isnan(read).all():
        return {}
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = (read + written) / times_ms / 1e6
    rate[~np.isfinite(rate)] = np.nan
    flags = {"flags": ["bytes_vary" if vary else None for vary in varies]} if varies.any() else {}
    return {"bytes_read": read, "bytes_written": written, "bandwidth_gb_s": rate, **flags}


def _row(data: Mapping[str, Any], setups: Sequence[LaunchSetup], place: int) -> dict[str, Any]:
    row = {column: np.asarray(values[place]).item() for column, values in data.items()}
    return row | (setups[place]._asdict() if setups else {})


def _find_direction(name: str, kind: str) -> tuple[float, float]:
    """Return how often a copy or a fill reads and writes the device's memory; NaN where its name has no direction."""
    return (0, 1) if kind == "fill" else next((ways for word, ways in _DIRECTIONS if word in name), (np.nan, np.nan))


def add_bytes(frame: pd.DataFrame, bytes: Mapping[str, Any]) -> pd.DataFrame:
    """Add `bytes_read`, `bytes_written` and `bandwidth_gb_s` to rows, by kernel name or pattern."""
    if "kernel" not in frame.columns:
        raise ValueError("bytes are for kernels of a profiler's file: rows of bwprof have theirs")
    data = {"kernel": frame["kernel"].fillna("").tolist(), "time_ms": np.full(len(frame), np.nan)}
    known = [name for name in ("time_ms", "count", "total_ms") if name in frame.columns]
    data |= {name: analysis_values.numbers(frame, name) for name in known}
    return _add_columns(frame, bytes_columns(data, bytes), replace=True)


def add_peak(frame: pd.DataFrame, peak_gb_s: float) -> pd.DataFrame:
    """Add the memory's theoretical bandwidth to rows that have none, and their share of it; ValueError if all do."""
    if "peak_gb_s" in frame.columns and frame["peak_gb_s"].notna().all():
        raise ValueError("--peak is for rows that have no peak_gb_s: all have one, leave it out")
    filled = _add_columns(frame, {"peak_gb_s": np.full(len(frame), peak_gb_s)}, replace=False)
    if "dram_gb_s" not in frame.columns:
        return filled
    rate, peak = (analysis_values.numbers(filled, name) for name in ("dram_gb_s", "peak_gb_s"))  # a row's own counts
    share = np.divide(100 * rate, peak, out=np.full(len(frame), np.nan), where=peak > 0)
    filled = _add_columns(filled, {"pct_peak": share}, replace=False)
    filled.attrs["notes"] = (*filled.attrs.get("notes", ()), *check_peak(filled))
    return filled


def _add_columns(frame: pd.DataFrame, columns: Mapping[str, Any], *, replace: bool) -> pd.DataFrame:
    """Add columns in the order of `COLUMNS`; values replace those of the frame, or fill its gaps."""
    import pandas as pd

    filled = frame.copy()
    for name, figures in columns.items():
        dtype: Any = schema.DTYPES[_KINDS[name]]
        numbers = figures if _KINDS[name] == "text" else np.asarray(figures, np.float64)
        values: Any = pd.Series(numbers, index=frame.index).astype(dtype)
        if name in frame.columns:
            values = values.fillna(frame[name]) if replace else frame[name].fillna(values)
        filled[name] = values
    first = [name for name in _KINDS if name in filled.columns] if "kernel" in filled.columns else []
    ordered = filled[[*first, *(name for name in filled.columns if name not in first)]]
    ordered.attrs = dict(frame.attrs)
    return ordered
