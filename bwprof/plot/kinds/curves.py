"""A device's own roofs: what plain streams reach over the bytes that they move."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bwprof.plot.given import facts_of, frame_of
from bwprof.plot.legends import add_title, draw_marks, legend_above, make_handle, make_ring
from bwprof.plot.looks import dress, ink, part_look
from bwprof.plot.paper import Inches, Picture, cut
from bwprof.results import load
from bwprof.roofs.model import RoofPoint, Roofs
from bwprof.text import bytes_text, measurable, path_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def picture(data: Any) -> Picture:
    """The same as a picture to be drawn or written."""
    found, facts = _given(data)
    if not found.points and not found.hot_points:
        raise ValueError("there is nothing to draw: the roofs have no streams")
    return Picture(_SIZE, (_SIZE[0] - 1.4, _SIZE[1] - 1.0), lambda ax, room: _draw(ax, found, facts, room))


def _given(data: Any) -> tuple[Roofs, Mapping[str, Any]]:
    """Roofs, and what is known of their device besides."""
    from bwprof.analysis.narrowing import roofs_of
    from bwprof.roofs import files

    if isinstance(data, Roofs):
        return data, {}
    if isinstance(data, (str, os.PathLike)):
        path = path_of(data, "data")
        read = files.read(path)
        try:
            return read, facts_of(load(path))
        except ValueError:  # a file of roofs alone
            return read, {}
    frame = frame_of(data)
    found = roofs_of(frame)
    if found is None:
        raise ValueError("there is nothing to draw: the frame's metadata hold no roofs (load the run's folder)")
    return found, facts_of(frame)


def _draw(ax: Axes, found: Roofs, facts: Mapping[str, Any], room: Inches) -> None:
    colors = ink(ax)
    names = list(dict.fromkeys(point.stream for point in (*found.points, *found.hot_points)))
    looks = {name: (part_look(place)[0], _MARKERS[place % len(_MARKERS)]) for place, name in enumerate(names)}
    for points, hot in ((found.points, False), (found.hot_points, True)):
        for name in names:
            own = sorted((point for point in points if point.stream == name), key=lambda point: point.total_bytes)
            _curve(ax, own, looks[name], hot=hot)
    handles = [
        make_handle(cut(name, 24), color=color, marker=marker, markersize=4.5)
        for name, (color, marker) in looks.items()
    ]
    if found.hot_points:
        handles.append(make_handle("in the cache", color=colors.text, linestyle=_HOT_DASH))
    if any(point.doubt for point in (*found.points, *found.hot_points)):
        handles.append(make_ring("hollow: in doubt", colors.text, markersize=4.5))
    _axes(ax, found)
    handles += _lines(ax, facts, colors.soft)
    legend_above(ax, handles, room)
    words = [cut(found.device, 60)] if found.device else []
    words += [f"measured {cut(found.measured[:16].replace('T', ' '), 16)} UTC"] if found.measured else []
    add_title(ax, "What plain streams reach, over the bytes they move", words, room)
    ax.set_xlabel("bytes read and written (B)")
    ax.set_ylabel("bandwidth (GB/s)")
    dress(ax, grid="both")


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
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value)))
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
    peak, cache = measurable(facts.get("peak_gb_s")), measurable(facts.get("cache_bytes"))
    if peak:
        dash: dict[str, Any] = {"color": color, "linewidth": 1, "linestyle": (0, (5, 3))}
        ax.axhline(peak, zorder=1, **dash)
        handles.append(make_handle(f"theoretical peak: {peak:.4g} GB/s", **dash))
    if cache and left < cache < right:
        dots: dict[str, Any] = {"color": color, "linewidth": 1, "linestyle": (0, (1, 1.5))}
        ax.axvline(cache, zorder=1, **dots)
        handles.append(make_handle(f"size of the cache ({bytes_text(cache)})", **dots))
    return handles
