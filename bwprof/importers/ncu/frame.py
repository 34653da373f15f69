"""Make a frame of a page's launches: a row for each, in the columns of bwprof's own rows."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bwprof.importers.frames import make_frame
from bwprof.importers.ncu import metrics
from bwprof.importers.ncu.metrics import FigureSource
from bwprof.importers.ncu.pages import KERNEL_NAMES, Metric, PageLaunches
from bwprof.importers.reader import parse_number, shorten_name, simplify_name
from bwprof.results.schema import clean_value
from bwprof.text.formatting import plural

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    LaunchFigures = NDArray[np.float64]

_GB = 1e9
_SIZE = re.compile(r"\(?\s*(\d{1,18})\s*,\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\)?", re.ASCII)
_NUMBERS = {"Context": "context", "Stream": "stream", "Device": "device_index", "Process ID": "pid"}
_USED = {"ID", *KERNEL_NAMES, "Block Size", "Grid Size", "CC", *_NUMBERS}
_DIGITS = 15  # significant ones of a figure that was scaled
_MOST_PCT = 101  # counts of two passes may make a share of a bit more than 100 %
_HALF_PRECISION = (
    "flops: instructions on half precision count as on pairs, as in ncu's roofline; some are of one number, or move a "
    "constant"
)
_PEAK_UNKNOWN = "pct_peak is ncu's own DRAM throughput where the page has no peak"


def build_frame(launches: PageLaunches, source: str, tool: str = "ncu") -> pd.DataFrame:
    """Build the frame that `bwprof.importers.parse_ncu` returns."""
    figures = _Figures(launches)
    with np.errstate(all="ignore"):
        columns = {name: figures.first(sources) for name, sources in metrics.FIGURES.items()}
        columns |= _sizes(launches, figures)
        negative = _drop_negative(columns)  # before other figures are made of them
        excessive = _drop_excessive(columns)
        columns |= _dram(columns, figures)
        columns |= _arithmetic(columns, figures)
        negative += _drop_negative(columns)
    data = _texts(launches, figures)
    data |= {name: _round_digits(values) for name, values in columns.items() if values is not None}
    notes = launches.notes
    if figures.own_pct:
        notes.append(_PEAK_UNKNOWN)
    if negative:
        notes.append(f"left out: {plural(negative, 'negative figure')}, which cannot be")
    if excessive:
        notes.append(f"left out: {plural(excessive, 'share')} beyond 100 %, which cannot be")
    if figures.estimated is not None:
        data["estimated"] = figures.estimated
    others = {name: values for name, values in _others(launches).items() if name not in data}
    frame = make_frame(data | others, source=source, tool=tool, notes=notes)
    frame.attrs["page"] = launches.page
    frame.attrs["units"] = {name: metric.unit for name, metric in launches.metrics.items() if metric.unit}
    return frame


def _drop_negative(columns: dict[str, LaunchFigures | None]) -> int:
    """Replace negative figures by NaN; return how many there were."""
    dropped = 0
    for name, values in columns.items():
        if values is not None and (values < 0).any():
            dropped += int((values < 0).sum())
            columns[name] = np.where(values < 0, np.nan, values)
    return dropped


def _drop_excessive(columns: dict[str, LaunchFigures | None]) -> int:
    """Limit shares to 100 %; replace those far above, and shares of nothing, by NaN; return how many were far above."""
    dropped = 0
    for name in metrics.PARTS:
        values = columns.get(name)
        if values is not None:
            far = values > _MOST_PCT
            dropped += int(far.sum())
            values = np.where(far, np.nan, np.minimum(values, 100))
            columns[name] = np.where(values == 0, np.nan, values) if name in metrics.OF_NOTHING else values
    return dropped


class _Figures:
    """Figures of a page by their sources: NaN where a launch has none, None where no launch has any."""

    def __init__(self, launches: PageLaunches) -> None:
        self._launches = launches
        self.own_pct = False
        self.estimated: list[str | None] | None = None

    def first(self, sources: tuple[FigureSource, ...]) -> LaunchFigures | None:
        """Return each launch's figure from the first source that it has."""
        result: LaunchFigures | None = None
        for source in sources:
            result = _fill(result, self._of(source))
        return None if result is None or np.isnan(result).all() else result

    def count_runs(self, name: str) -> LaunchFigures | None:
        """Return how often threads ran an instruction: in all, else per cycle times cycles."""
        runs = self.first((FigureSource((name,)),))
        if runs is None:
            per_cycle, cycles = self.first((FigureSource((name + metrics.PER_CYCLE,)),)), self.first(metrics.CYCLES)
            runs = None if per_cycle is None or cycles is None else per_cycle * cycles
        return runs

    def stalls(self) -> dict[str, LaunchFigures]:
        reasons = {name: reason for name in self._launches.metrics if (reason := metrics.stall_reason(name))}
        figures = {reason: self.first((FigureSource((name,)),)) for name, reason in reasons.items()}
        return {reason: values for reason, values in figures.items() if values is not None}

    def _of(self, source: FigureSource) -> LaunchFigures | None:
        above = self._sum(source.names, source.unit)
        if above is None or not source.over:
            return None if above is None else above * source.times
        below = self._sum(source.over, "")
        if below is None:
            return None
        quotient = divide(above, below, source.times)
        return np.where((above == 0) & (below == 0), source.nothing, quotient)

    def _sum(self, names: tuple[str, ...], unit: str) -> LaunchFigures | None:
        parts = [self._launches.metrics[name] for name in names if name in self._launches.metrics]
        allowed = {unit} if unit == "s" else {unit, ""}  # a page without units has base units
        if len(parts) < len(names) or (unit and not {part.unit for part in parts} <= allowed):
            return None
        return cast("LaunchFigures", np.sum([part.values for part in parts], axis=0))


def _fill(values: LaunchFigures | None, others: LaunchFigures | None) -> LaunchFigures | None:
    """Fill unknown values by others."""
    if values is None or others is None:
        return others if values is None else values
    return np.where(np.isnan(values), others, values)


def divide(above: LaunchFigures, below: LaunchFigures, times: float = 1.0) -> LaunchFigures:
    """Return times * above / below; NaN where below is not positive, or the result is infinite."""
    quotient = times * above / below
    return np.where((below > 0) & np.isfinite(quotient), quotient, np.nan)


def _sizes(launches: PageLaunches, figures: _Figures) -> dict[str, LaunchFigures | None]:
    """Return blocks of the grid and threads of a block: as the launch has them, else as ncu counted them."""
    sizes: dict[str, LaunchFigures | None] = {}
    for column, name, sources in (
        ("grid_blocks", "Grid Size", metrics.GRID),
        ("block_threads", "Block Size", metrics.BLOCK),
    ):
        axes = [_SIZE.fullmatch(text or "") for text in launches.identity.get(name, ())]
        products = [math.prod(map(int, size.groups())) if size else math.nan for size in axes]
        sizes[column] = _fill(np.array(products, np.float64) if products else None, figures.first(sources))
    return sizes


def _dram(columns: dict[str, LaunchFigures | None], figures: _Figures) -> dict[str, LaunchFigures | None]:
    """Return DRAM's rate and peak, GB/s, and their quotient, %."""
    rate = figures.first(metrics.DRAM_RATE)
    rate = None if rate is None else rate / _GB
    read, written, time = columns["dram_bytes_read"], columns["dram_bytes_written"], columns["time_ms"]
    if read is not None and written is not None and time is not None:
        rate = _fill(divide(read + written, time, 1e3 / _GB), rate)
    peak: LaunchFigures | None = None
    width, clock = figures.first(metrics.DRAM_WIDTH), columns["mem_clock_mhz"]
    if width is not None and clock is not None:
        peak = width * clock * 1e6 / _GB
    bits, kilohertz = figures.first(metrics.BUS_BITS), figures.first(metrics.BUS_KHZ)
    if bits is not None and kilohertz is not None:
        peak = _fill(peak, 2 * kilohertz * 1e3 * bits / 8 / _GB)  # two transfers a cycle
    share = None if rate is None or peak is None else divide(rate, peak, 100)
    own = columns["dram_pct"]
    if own is not None and (share is None or bool((np.isnan(share) & ~np.isnan(own)).any())):
        share = _fill(share, own)
        figures.own_pct = True
    return {"dram_gb_s": rate, "peak_gb_s": peak, "pct_peak": share}


def _arithmetic(columns: dict[str, LaunchFigures | None], figures: _Figures) -> dict[str, LaunchFigures | None]:
    """Return FLOPs by the instructions that threads ran, where all kinds were counted, and the peak, TFLOP/s.

    The peak is that of the kind of nearly all FLOPs, where no tensor core ran.
    """
    by_kind: dict[str, LaunchFigures] = {}
    for kind, name, flops_each in metrics.FLOPS:
        runs = figures.count_runs(name)
        if runs is None:
            return {}
        by_kind[kind] = flops_each * runs + by_kind.get(kind, 0.0)
    plain = cast("LaunchFigures", np.sum(list(by_kind.values()), axis=0))
    tensor, tensor_pct = figures.first((FigureSource(metrics.TENSOR_FLOPS),)), columns["tensor_pct"]
    busy = np.zeros_like(plain) if tensor_pct is None else tensor_pct
    flops = plain + tensor if tensor is not None else np.where(busy > 0, np.nan, plain)
    half = (by_kind["h"] > 0) & ~np.isnan(flops)
    if half.any():
        figures.estimated = [_HALF_PRECISION if is_half else None for is_half in half]
    if tensor is None and tensor_pct is None:
        return {"flops": flops}
    peak: LaunchFigures | None = None
    clock = columns["sm_clock_mhz"]
    for kind, sources in metrics.WIDTHS.items():  # single precision first: the peak of a kernel without FLOPs
        width = figures.first(sources)
        if width is not None and clock is not None:
            most = by_kind[kind] >= metrics.MOST_OF_THEM * plain
            peak = _fill(peak, np.where(most, width * clock / 1e6, np.nan))
    return {"flops": flops, "peak_tflops": None if peak is None else np.where(busy > 0, np.nan, peak)}


def _texts(launches: PageLaunches, figures: _Figures) -> dict[str, Any]:
    """Return the columns that are text, and those that identify the launch."""
    count, identity = launches.count, launches.identity
    unknown: list[Any] = [None] * count
    kernels = next((identity[name] for name in KERNEL_NAMES if name in identity), unknown)
    numbers = [_parse_integer(text) for text in identity.get("ID", unknown)]
    columns: dict[str, Any] = {
        "kernel": list(kernels),
        "status": ["ok"] * count,
        "launch": [at if number is None else number for at, number in enumerate(numbers)],
        "case": list(map(_shorten, kernels)),
    }
    for name, column in _NUMBERS.items():
        if name in identity:
            columns[column] = list(map(_parse_integer, identity[name]))
    columns["device"] = _name_devices(launches, columns.get("device_index", unknown))
    if "CC" in identity:
        columns["compute_capability"] = identity["CC"]
    for column, name in (("grid", "Grid Size"), ("block", "Block Size")):
        if name in identity:
            columns[column] = list(map(_format_size, identity[name]))
    texts = {"occupancy_limiter": _limiters(count, figures), "stall_reasons": _stalls(count, figures)}
    return columns | {column: values for column, values in texts.items() if any(values)}


@lru_cache(maxsize=4096)
def _shorten(kernel: str | None) -> str | None:
    return shorten_name(simplify_name(kernel)) if kernel else None


def _name_devices(launches: PageLaunches, indices: list[int | None]) -> list[str | None]:
    names = launches.metrics.get("device__attribute_display_name", Metric("")).texts
    return [names.get(at) or (None if index is None else f"cuda:{index}") for at, index in enumerate(indices)]


@lru_cache(maxsize=4096)
def _format_size(text: str | None) -> str | None:
    size = _SIZE.fullmatch(text or "")
    return "x".join(size.groups()) if size else text or None


@lru_cache(maxsize=4096)
def _parse_integer(text: str | None) -> int | None:
    value = parse_number(text or "")
    return int(value) if value is not None and abs(value) < 2**53 else None


def _limiters(count: int, figures: _Figures) -> list[str | None]:
    """Return what allows a multiprocessor the fewest blocks, the first of `metrics.LIMITS` where several do."""
    limits = {name: values for name, source in metrics.LIMITS.items() if (values := figures.first(source)) is not None}
    if not {"warps", "registers", "shared"} <= limits.keys():
        return [None] * count
    names, table = list(limits), np.stack(list(limits.values()))
    fewest, sums = np.argmin(table, axis=0), table.sum(axis=0)  # NaN where one is unknown
    return [None if np.isnan(total) else names[at] for at, total in zip(fewest, sums, strict=True)]


def _stalls(count: int, figures: _Figures) -> list[str | None]:
    """Return why warps waited as bwprof's rows have it, the most frequent reason first."""
    reasons = figures.stalls()
    names, table = list(reasons), np.array(list(reasons.values())).reshape(len(reasons), count).T
    texts: list[str | None] = []
    for places, values in zip(np.argsort(-table, kind="stable").tolist(), table.tolist(), strict=True):
        texts.append(";".join(f"{names[at]}={values[at]:.2f}" for at in places if values[at] >= 0.005) or None)
    return texts


def _round_digits(values: LaunchFigures) -> LaunchFigures:
    """Round to the digits that scaling leaves exact; NaN for infinite figures."""
    rounded = np.where(np.isfinite(values), values, np.nan)
    long = np.flatnonzero((values % 1 != 0) | (np.abs(values) >= 10**_DIGITS))  # all digits of others are exact
    rounded[long] = [float(f"{value:.{_DIGITS}g}") for value in rounded[long].tolist()]
    return rounded


def _others(launches: PageLaunches) -> dict[str, Any]:
    """Return every metric under its own name, in base units; a column with text is a list of objects."""
    columns: dict[str, Any] = {
        name: [clean_value(text) if text else None for text in texts]
        for name, texts in launches.identity.items()
        if name not in _USED
    }
    for name, metric in launches.metrics.items():
        columns[name] = metric.values
        if metric.texts:
            values = [None if math.isnan(value) else value for value in metric.values.tolist()]
            columns[name] = [metric.texts.get(at, value) for at, value in enumerate(values)]
    return columns
