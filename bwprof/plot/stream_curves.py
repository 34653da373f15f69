"""Roofs of a device over the bytes moved, and the ridges of devices over the years."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof import registry
from bwprof.plot import inputs, styles
from bwprof.plot.canvas import Drawing, Inches, cut, draws
from bwprof.plot.sweeps import INNER, SIZE
from bwprof.results.reader import load
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import ridge as ridge_of
from bwprof.roofs.model import Roofs
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import measured_or_none, parse_names, parse_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "os^DvPX"
_HOT: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (4, 2))}
_HOT_IS_FAR = 4.0  # hot over cold streams from which on the axis is logarithmic
_PEAK: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (5, 3))}
_CACHE: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (1, 1.5))}
_TREND: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (4, 3))}
_CROSS: dict[str, Any] = {"marker": "x", "markersize": 7, "markeredgewidth": 2}
_YEAR_WIDTH = 0.62  # of a year, for the devices of one year side by side
_LONGEST = 30  # letters of a device's name


@draws
def roofs(data: Any, ax: Axes | None = None) -> Drawing:
    """Draw the bandwidth of plain streams over the bytes that they move: the roofs of rows.

    Hollow marks are doubtful points; dashed lines are streams whose bytes may be in the cache.

    Parameters
    ----------
    data : bwprof.Roofs, pandas.DataFrame or path
        Roofs, a frame or the folder or file of a run that measured them, or a file of `bwprof roofs export`.

    Raises
    ------
    ValueError
        When the run has no roofs.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.roofs(bwprof.load_example("h200")).get_ylabel()
    'bandwidth (GB/s)'
    """
    found, facts = _read_roofs(data)
    if not found.points and not found.hot_points:
        raise ValueError("there is nothing to draw: the roofs have no streams")

    def draw(ax: Axes, room: Inches) -> None:
        handles = _draw_streams(ax, found)
        _scale_axes(ax, found)
        styles.add_legend_above(ax, [*handles, *_draw_facts(ax, facts)], room)
        when = f"measured {cut(found.measured[:16].replace('T', ' '), 16)} UTC" if found.measured else ""
        styles.add_title(
            ax, "What plain streams reach, over the bytes they move", [cut(found.device or "", 60), when], room
        )
        ax.set_xlabel("bytes read and written (B)")
        ax.set_ylabel("bandwidth (GB/s)")
        styles.finish_axes(ax, grid="both")

    return Drawing(SIZE, INNER, draw)


def _read_roofs(data: Any) -> tuple[Roofs, Mapping[str, Any]]:
    from bwprof.analysis.gains import read_run_roofs
    from bwprof.roofs import store

    if isinstance(data, Roofs):
        return data, {}
    if isinstance(data, (str, os.PathLike)):
        path = parse_path(data, "data")
        read = store.read(path)
        try:
            return read, inputs.device_facts(load(path))
        except ValueError:  # a file of roofs alone
            return read, {}
    frame = inputs.read_frame(data)
    found = read_run_roofs(frame)
    if found is None:
        raise ValueError("there is nothing to draw: the frame's metadata hold no roofs (load the run's folder)")
    return found, inputs.device_facts(frame)


def _draw_streams(ax: Axes, found: Roofs) -> list[Any]:
    """Draw the streams, those within the cache dashed; return the legend's entries."""
    colors, every = styles.ink(ax), (*found.points, *found.hot_points)
    handles: list[Any] = []
    for place, name in enumerate(dict.fromkeys(point.stream for point in every)):
        color, mark = styles.part_style(place)[0], {"marker": _MARKERS[place % len(_MARKERS)]}
        handles.append(styles.line_handle(cut(name, 24), color=color, markersize=4.5, **mark))
        for points, size, line in ((found.points, 4.5, {"linewidth": 1.5}), (found.hot_points, 3.5, _HOT)):
            own = sorted((point for point in points if point.stream == name), key=lambda point: point.total_bytes)
            at = [(float(point.total_bytes), point.gb_s) for point in own]
            ax.plot(*styles.split_points(at), color=color, zorder=2.5 if line is _HOT else 3, **line)
            styles.draw_marks(ax, at, [bool(point.doubt) for point in own], color, markersize=size, zorder=3.1, **mark)
    handles += [styles.line_handle("in the cache", color=colors.text, **_HOT)] if found.hot_points else []
    if any(point.doubt for point in every):
        handles.append(styles.ring_handle("hollow: in doubt", colors.text, markersize=4.5))
    return handles


def _scale_axes(ax: Axes, found: Roofs) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(base=2, numticks=11))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
    cold, hot = (max((point.gb_s for point in own), default=0.0) for own in (found.points, found.hot_points))
    if cold and hot > _HOT_IS_FAR * cold:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)


def _draw_facts(ax: Axes, facts: Mapping[str, Any]) -> list[Any]:
    """Draw the peak and the size of the cache; return the legend's entries."""
    handles, color = [], styles.ink(ax).soft
    peak, cache = (measured_or_none(facts.get(name)) for name in ("peak_gb_s", "cache_bytes"))
    left, right = ax.get_xlim()
    if peak:
        ax.axhline(peak, zorder=1, color=color, **_PEAK)
        handles.append(styles.line_handle(f"theoretical peak: {peak:.4g} GB/s", color=color, **_PEAK))
    if cache and left < cache < right:
        ax.axvline(cache, zorder=1, color=color, **_CACHE)
        handles.append(styles.line_handle(f"size of the cache ({format_bytes(cache)})", color=color, **_CACHE))
    return handles


class _Ridge(NamedTuple):
    device: str
    precision: str
    at: tuple[float, float]  # the year, devices of one year side by side, and FLOP/B
    unconfirmed: bool  # by a data sheet
    measured: float  # the ridge of rows; 0 without any


@draws
def ridge(data: Any = None, ax: Axes | None = None, *, precisions: Sequence[str] | None = None) -> Drawing:
    """Draw the ridges (FLOP/B) of the catalog's devices over their years, of theoretical rates.

    Below its ridge an operation waits for memory: a higher ridge needs more FLOPs for each byte.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows, optional
        Results of a device of the catalog; its measured ridges are marked.
    precisions : sequence of str, optional
        The precisions of the arithmetic; by default FP32, FP16 and FP8.

    Raises
    ------
    ValueError
        For a precision without rates in the catalog, and for results of devices that the catalog lacks.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.ridge().get_ylabel()
    'ridge (FLOP/B)'
    """
    from bwprof.analysis.prediction import catalog

    known = catalog.arithmetic_types()
    names = ("fp32", "fp16", "fp8_e4m3") if precisions is None else parse_names("precisions", precisions)
    chosen = [registry.check_precision(name, known, "arithmetic of the catalog") for name in names]
    if not chosen:
        raise ValueError("precisions is empty: at least one is needed")
    measured = {} if data is None else _measured_ridges(inputs.read_rows(data)[0], chosen)
    ridges = _read_ridges(chosen, measured)

    def draw(ax: Axes, room: Inches) -> None:
        _draw_ridges(ax, ridges, room)
        ax.set_xlabel("year")
        ax.set_ylabel("ridge (FLOP/B)")
        title = "The ridge by year: FLOPs a byte must feed before arithmetic limits"
        styles.add_title(ax, title, ["theoretical dense rates and bandwidths of the catalog"], room)
        styles.finish_axes(ax, grid="y")

    return Drawing((SIZE[0], 5.6), (INNER[0], 4.6), draw)


def _measured_ridges(rows: Sequence[RowDict], precisions: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the median measured ridges by the device's id in the catalog and by precision."""
    from bwprof.analysis.prediction import catalog

    ridges: dict[tuple[str, str], list[float]] = defaultdict(list)
    others: dict[str, None] = {}
    for row in (row for row in rows if not inputs.is_predicted(row)):
        entry = catalog.find(str(row["device"])) if row.get("device") else None
        bend = measured_or_none(row.get("ridge"))
        if entry is None:
            others[str(row.get("device"))] = None
        elif bend and bend > 0 and row["precision"] in precisions:
            ridges[entry.id, row["precision"]].append(bend)
    if not ridges:
        names = ", ".join(cut(name, _LONGEST) for name in list(others)[:5]) or "none"
        names += f" and {len(others) - 5} more" if len(others) > 5 else ""
        raise ValueError(f"no device of the rows is in the catalog with a ridge (devices: {names})")
    return {key: median(bends) for key, bends in ridges.items()}


def _read_ridges(precisions: Sequence[str], measured: Mapping[tuple[str, str], float]) -> list[_Ridge]:
    """Return the ridges of the catalog's devices; those of a year are sorted by their highest one."""
    from bwprof.analysis.prediction import catalog

    years: dict[int, list[tuple[Any, dict[str, float]]]] = defaultdict(list)
    for entry in catalog.entries():
        rates = {name: float(entry.tflops[name]) for name in precisions if name in entry.tflops}
        bends = {name: float(ridge_of(rate, float(entry.bandwidth_gb_s))) for name, rate in rates.items()}
        years[entry.year] += [(entry, bends)] if bends else []
    ridges = []
    for year, own in sorted(years.items()):
        own.sort(key=lambda pair: max(pair[1].values()))
        for place, (entry, bends) in enumerate(own):
            x = year + _YEAR_WIDTH * ((place + 0.5) / len(own) - 0.5)
            doubted = {*bends} if "bandwidth_gb_s" in entry.unconfirmed else {*entry.unconfirmed}
            for name, bend in bends.items():
                found = measured.get((entry.id, name), 0.0)
                ridges.append(_Ridge(entry.id, name, (x, bend), name in doubted, found))
    return ridges


def _draw_ridges(ax: Axes, ridges: Sequence[_Ridge], room: Inches) -> None:
    from bwprof.plot.labels import name_points

    colors, looks, first = styles.ink(ax), styles.styles(ridge.precision for ridge in ridges), ridges[0].at[0]
    devices = {ridge.device: [other.at for other in ridges if other.device == ridge.device] for ridge in ridges}
    styles.draw_ways(ax, list(map(sorted, devices.values())), colors.soft, 0.6, alpha=0.7, zorder=1.5)
    crosses = [(ridge.at[0], ridge.measured) for ridge in ridges if ridge.measured]
    handles = [
        _draw_precision(ax, [ridge for ridge in ridges if ridge.precision == name], look, round(first))
        for name, look in looks.items()
    ]
    if any(ridge.unconfirmed for ridge in ridges):
        handles.append(styles.ring_handle("hollow: not confirmed by a data sheet", colors.text, markersize=6))
    if crosses:
        handles.append(styles.line_handle("measured", color=colors.text, linewidth=0, **_CROSS))
    _set_ticks(ax, range(round(first), round(ridges[-1].at[0]) + 1))
    styles.add_legend_above(ax, [*handles, styles.line_handle("trend", color=colors.soft, **_TREND)], room)
    names = [(cut(device, _LONGEST), max(own), colors.text) for device, own in devices.items()]
    name_points(ax, names, [*(ridge.at for ridge in ridges), *crosses])


def _draw_precision(ax: Axes, ridges: Sequence[_Ridge], look: styles.Style, first: int) -> Any:
    """Draw ridges of one precision, with their trend if the devices of the first year have it; return its handle."""
    points, hollow = [ridge.at for ridge in ridges], [ridge.unconfirmed for ridge in ridges]
    mark: dict[str, Any] = {"marker": look.marker, "markersize": 6}
    styles.draw_marks(ax, points, hollow, look.color, zorder=3, **mark)
    if round(points[0][0]) == first:
        _draw_trend(ax, points, look.color)
    for ridge in ridges:
        ax.plot(ridge.at[0], ridge.measured or math.nan, color=look.color, linewidth=0, zorder=3.5, **_CROSS)
    return styles.line_handle(ridges[0].precision.upper(), color=look.color, linewidth=0, **mark)


def _draw_trend(ax: Axes, points: Sequence[tuple[float, float]], color: str) -> None:
    """Draw the line that fits the logarithms of ridges best."""
    import numpy as np

    xs, ys = np.array(points).T
    if len(set(xs.round())) > 1:
        slope, start = np.polyfit(xs - xs[0], np.log(ys), 1)
        ends = np.array([xs.min(), xs.max()])
        ax.plot(ends, np.exp(start + slope * (ends - xs[0])), color=color, zorder=1, **_TREND)


def _set_ticks(ax: Axes, years: Sequence[int]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_yscale("log")
    ax.set_xlim(years[0] - 0.5, years[-1] + 0.5)
    ax.set_xticks(years, list(map(str, years)))
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if math.isfinite(value) else "")
    ax.yaxis.set_minor_formatter(NullFormatter())
