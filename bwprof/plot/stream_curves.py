"""A device's roofs over the bytes moved, and the ridge of devices over the years."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.plot.canvas import Drawing, Inches, cut
from bwprof.plot.data import facts_of, frame_of, predicted, rows_of
from bwprof.plot.legends import add_legend_above, add_title, draw_marks, line_handle, ring_handle
from bwprof.plot.styles import finish_axes, ink, part_style, styles
from bwprof.results.reader import load
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import ridge as ridge_of
from bwprof.roofs.model import RoofPoint, Roofs
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import measured_or_none, parse_names, parse_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bwprof.analysis.prediction.catalogue import Entry

_SIZE = (9.0, 5.2)

_MARKERS = "os^DvPX"

_HOT_DASH = (0, (4, 2))

_HOT_IS_FAR = 4.0  # times the cold streams: from there on the axis is one of factors


def roofs(data: Any, ax: Axes | None = None) -> Axes:
    """What plain streams reach on a device over the bytes that they move: the roofs that rows are held against.

    Hollow marks are points in doubt; dashed lines are streams whose bytes may be in the cache.

    Parameters
    ----------
    data : bwprof.Roofs, pandas.DataFrame or path
        Roofs, a frame or the folder or file of a run that measured them, or a file of `bwprof roofs export`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.

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
    return picture(data).on(ax)


def picture(data: Any) -> Drawing:
    """The same as a picture to be drawn or written."""
    found, facts = _roofs_and_facts(data)
    if not found.points and not found.hot_points:
        raise ValueError("there is nothing to draw: the roofs have no streams")
    return Drawing(_SIZE, (_SIZE[0] - 1.4, _SIZE[1] - 1.0), lambda ax, room: _draw(ax, found, facts, room))


def _roofs_and_facts(data: Any) -> tuple[Roofs, Mapping[str, Any]]:
    """Roofs, and what is known of their device besides."""
    from bwprof.analysis.gains import read_run_roofs
    from bwprof.roofs import store

    if isinstance(data, Roofs):
        return data, {}
    if isinstance(data, (str, os.PathLike)):
        path = parse_path(data, "data")
        read = store.read(path)
        try:
            return read, facts_of(load(path))
        except ValueError:  # a file of roofs alone
            return read, {}
    frame = frame_of(data)
    found = read_run_roofs(frame)
    if found is None:
        raise ValueError("there is nothing to draw: the frame's metadata hold no roofs (load the run's folder)")
    return found, facts_of(frame)


def _draw(ax: Axes, found: Roofs, facts: Mapping[str, Any], room: Inches) -> None:
    colors = ink(ax)
    names = list(dict.fromkeys(point.stream for point in (*found.points, *found.hot_points)))
    looks = {name: (part_style(place)[0], _MARKERS[place % len(_MARKERS)]) for place, name in enumerate(names)}
    for points, hot in ((found.points, False), (found.hot_points, True)):
        for name in names:
            own = sorted((point for point in points if point.stream == name), key=lambda point: point.total_bytes)
            _curve(ax, own, looks[name], hot=hot)
    handles = [
        line_handle(cut(name, 24), color=color, marker=marker, markersize=4.5)
        for name, (color, marker) in looks.items()
    ]
    if found.hot_points:
        handles.append(line_handle("in the cache", color=colors.text, linestyle=_HOT_DASH))
    if any(point.doubt for point in (*found.points, *found.hot_points)):
        handles.append(ring_handle("hollow: in doubt", colors.text, markersize=4.5))
    _axes(ax, found)
    handles += _lines(ax, facts, colors.soft)
    add_legend_above(ax, handles, room)
    words = [cut(found.device, 60)] if found.device else []
    words += [f"measured {cut(found.measured[:16].replace('T', ' '), 16)} UTC"] if found.measured else []
    add_title(ax, "What plain streams reach, over the bytes they move", words, room)
    ax.set_xlabel("bytes read and written (B)")
    ax.set_ylabel("bandwidth (GB/s)")
    finish_axes(ax, grid="both")


def _curve(ax: Axes, points: Sequence[RoofPoint], look: tuple[str, str], *, hot: bool) -> None:
    color, marker = look
    at = [(float(point.total_bytes), point.gb_s) for point in points]
    line: dict[str, Any] = {"linewidth": 1.1, "linestyle": _HOT_DASH, "zorder": 2.5}
    xs, ys = [x for x, _ in at], [y for _, y in at]
    ax.plot(xs, ys, color=color, **line if hot else {"linewidth": 1.5, "linestyle": "-", "zorder": 3})
    doubts = [bool(point.doubt) for point in points]
    draw_marks(ax, at, doubts, color, marker=marker, markersize=3.5 if hot else 4.5, zorder=3.1)


def _axes(ax: Axes, found: Roofs) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(base=2, numticks=11))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    cold = max((point.gb_s for point in found.points), default=0.0)
    hot = max((point.gb_s for point in found.hot_points), default=0.0)
    if cold and hot > _HOT_IS_FAR * cold:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)


def _lines(ax: Axes, facts: Mapping[str, Any], color: str) -> list[Any]:
    """The theoretical peak, and the size of the cache."""
    handles = []
    left, right = ax.get_xlim()
    peak, cache = measured_or_none(facts.get("peak_gb_s")), measured_or_none(facts.get("cache_bytes"))
    if peak:
        dash: dict[str, Any] = {"color": color, "linewidth": 1, "linestyle": (0, (5, 3))}
        ax.axhline(peak, zorder=1, **dash)
        handles.append(line_handle(f"theoretical peak: {peak:.4g} GB/s", **dash))
    if cache and left < cache < right:
        dots: dict[str, Any] = {"color": color, "linewidth": 1, "linestyle": (0, (1, 1.5))}
        ax.axvline(cache, zorder=1, **dots)
        handles.append(line_handle(f"size of the cache ({format_bytes(cache)})", **dots))
    return handles


_RIDGE_SIZE = (9.0, 5.6)

_PRECISIONS = ("fp32", "fp16", "fp8_e4m3")  # what is drawn when nobody says which

_SPREAD = 0.62  # of a year, over which its devices stand side by side

_LONGEST = 30

_MOST_NAMED = 5  # devices in a message


@dataclass(frozen=True, slots=True)
class _Device:
    """A device's ridges by precision, FLOP/B, and those of them that no page which was read has."""

    name: str
    x: float
    ridges: dict[str, float]
    unconfirmed: frozenset[str]
    measured: dict[str, float]


def ridge(data: Any = None, ax: Axes | None = None, *, precisions: Sequence[str] | None = None) -> Axes:
    """The ridge (FLOP/B) of the catalogue's devices by the year in which they came, theoretical rates throughout.

    Below its ridge an operation waits for memory: the further up it moves, the more FLOPs a byte must feed.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows, optional
        Results of a device of the catalogue, whose measured ridges are marked, too.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.
    precisions : sequence of str, optional
        Of which arithmetic; FP32, FP16 and FP8 when left out.

    Raises
    ------
    ValueError
        For a precision that no device of the catalogue has a rate of, and results of devices that it does not have.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.ridge().get_ylabel()
    'ridge (FLOP/B)'
    """
    return picture_ridges(data, precisions=precisions).on(ax)


def picture_ridges(data: Any = None, *, precisions: Sequence[str] | None = None) -> Drawing:
    """The same as a picture to be drawn or written."""
    from bwprof.analysis.prediction import catalogue

    known = catalogue.arithmetic_types()
    asked = _PRECISIONS if precisions is None else parse_names("precisions", precisions)
    chosen = [registry.check_precision(name, known, "arithmetic of the catalogue") for name in asked]
    if not chosen:
        raise ValueError("precisions is empty: at least one is needed")
    found = _devices(catalogue.entries(), chosen, {} if data is None else _measured(rows_of(data)[0], chosen))
    return Drawing(
        _RIDGE_SIZE,
        (_RIDGE_SIZE[0] - 1.4, _RIDGE_SIZE[1] - 1.0),
        lambda ax, room: _draw_ridges(ax, found, chosen, room),
    )


def _measured(rows: Sequence[RowDict], precisions: Sequence[str]) -> dict[str, dict[str, float]]:
    """The measured ridges of devices that the catalogue has, by their ids."""
    from bwprof.analysis.prediction import catalogue

    found: dict[str, dict[str, list[float]]] = {}
    others: dict[str, None] = {}
    for row in rows:
        entry = catalogue.find(str(row["device"])) if row.get("device") else None
        bend = measured_or_none(row.get("ridge"))
        if predicted(row):
            continue
        if entry is None:
            others[str(row.get("device"))] = None
        elif bend and bend > 0 and row["precision"] in precisions:
            found.setdefault(entry.id, {}).setdefault(row["precision"], []).append(bend)
    if not found:
        names = ", ".join(cut(name, _LONGEST) for name in list(others)[:_MOST_NAMED]) or "none"
        names += f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        raise ValueError(f"no device of the rows is in the catalogue with a ridge (devices: {names})")
    return {name: {which: median(values) for which, values in own.items()} for name, own in found.items()}


def _devices(
    entries: Sequence[Entry], precisions: Sequence[str], measured: Mapping[str, Mapping[str, float]]
) -> list[_Device]:
    """Those of a year side by side, by what they reach."""
    found = []
    for year in sorted({entry.year for entry in entries}):
        own = [(entry, _ridges(entry, precisions)) for entry in entries if entry.year == year]
        own = sorted((pair for pair in own if pair[1]), key=lambda pair: max(pair[1].values()))
        for place, (entry, ridges) in enumerate(own):
            x = year + _SPREAD * ((place + 0.5) / len(own) - 0.5)
            unconfirmed = frozenset(entry.unconfirmed)
            doubted = frozenset(ridges) if "bandwidth_gb_s" in unconfirmed else unconfirmed & set(ridges)
            found.append(_Device(entry.id, x, ridges, doubted, dict(measured.get(entry.id, {}))))
    return found


def _ridges(entry: Entry, precisions: Sequence[str]) -> dict[str, float]:
    rates = {name: entry.tflops[name] for name in precisions if name in entry.tflops}
    return {name: float(ridge_of(float(rate), float(entry.bandwidth_gb_s))) for name, rate in rates.items()}


def _draw_ridges(ax: Axes, found: Sequence[_Device], precisions: Sequence[str], room: Inches) -> None:
    from matplotlib.collections import LineCollection

    from bwprof.plot.labels import name_points

    colors, looks = ink(ax), styles(precisions)
    ways = [[(device.x, min(ends)), (device.x, max(ends))] for device in found if (ends := [*device.ridges.values()])]
    ax.add_collection(LineCollection(ways, colors=colors.soft, linewidths=0.6, alpha=0.7, zorder=1.5), autolim=False)
    points: list[tuple[float, float]] = []
    for name, look in looks.items():
        own = [device for device in found if name in device.ridges]
        at = [(device.x, device.ridges[name]) for device in own]
        doubts = [name in device.unconfirmed for device in own]
        draw_marks(ax, at, doubts, look.color, marker=look.marker, markersize=6, zorder=3)
        points += at
        if min(round(x) for x, _ in at) == round(found[0].x):  # of younger arithmetic there are too few years
            _trend(ax, at, look.color)
    handles: list[Any] = [
        line_handle(name.upper(), color=look.color, marker=look.marker, linewidth=0, markersize=6)
        for name, look in looks.items()
    ]
    if any(d.unconfirmed for d in found):
        handles.append(ring_handle("hollow: not confirmed by a data sheet", colors.text, markersize=6))
    measured = [(d.x, value, looks[name].color) for d in found for name, value in d.measured.items()]
    cross: dict[str, Any] = {"marker": "x", "markersize": 7, "markeredgewidth": 2}
    for x, value, color in measured:
        ax.plot(x, value, color=color, zorder=3.5, **cross)
    handles += [line_handle("measured", color=colors.text, linewidth=0, **cross)] if measured else []
    handles.append(line_handle("trend", color=colors.soft, linewidth=1, linestyle=(0, (4, 3))))
    ax.set_yscale("log")
    years = sorted({round(d.x) for d in found})
    ax.set_xlim(years[0] - 0.5, years[-1] + 0.5)
    _ticks(ax, years)
    add_legend_above(ax, handles, room)
    names = [(cut(d.name, _LONGEST), (d.x, max(d.ridges.values())), colors.text) for d in found]
    name_points(ax, names, [*points, *((x, value) for x, value, _ in measured)])
    ax.set_xlabel("year")
    ax.set_ylabel("ridge (FLOP/B)")
    head = "The ridge by year: FLOPs a byte must feed before arithmetic limits"
    add_title(ax, head, ["theoretical dense rates and bandwidths of the catalogue"], room)
    finish_axes(ax, grid="y")


def _trend(ax: Axes, points: Sequence[tuple[float, float]], color: str) -> None:
    """The line that fits the ridges best, on an axis of factors."""
    import numpy as np

    if len({round(x) for x, _ in points}) < 2:
        return
    xs, ys = np.array([x for x, _ in points]), np.log([y for _, y in points])
    slope, start = np.polyfit(xs - xs[0], ys, 1)
    ends = np.array([xs.min(), xs.max()])
    dash: Any = (0, (4, 3))
    ax.plot(ends, np.exp(start + slope * (ends - xs[0])), color=color, linewidth=1, linestyle=dash, zorder=1)


def _ticks(ax: Axes, years: Sequence[int]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    span = range(years[0], years[-1] + 1)
    ax.set_xticks(list(span), [str(year) for year in span])
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if math.isfinite(value) else ""))
    ax.yaxis.set_minor_formatter(NullFormatter())
