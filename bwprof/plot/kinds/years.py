"""The ridge of devices by the year in which they came: how much faster arithmetic grows than memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.plot.given import predicted, rows_of
from bwprof.plot.legends import add_title, draw_marks, legend_above, make_handle, make_ring
from bwprof.plot.looks import dress, ink, styles
from bwprof.plot.paper import Inches, Picture, cut
from bwprof.results.schema import Row
from bwprof.roofs.limits import ridge as ridge_of
from bwprof.text import measurable, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bwprof.analysis.forecast.datasheets import Entry

_SIZE = (9.0, 5.6)
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
    return picture(data, precisions=precisions).on(ax)


def picture(data: Any = None, *, precisions: Sequence[str] | None = None) -> Picture:
    """The same as a picture to be drawn or written."""
    from bwprof.analysis.forecast import datasheets

    known = datasheets.arithmetic()
    asked = _PRECISIONS if precisions is None else words("precisions", precisions)
    chosen = [registry.check_precision(name, known, "arithmetic of the catalogue") for name in asked]
    if not chosen:
        raise ValueError("precisions is empty: at least one is needed")
    found = _devices(datasheets.entries(), chosen, {} if data is None else _measured(rows_of(data)[0], chosen))
    return Picture(_SIZE, (_SIZE[0] - 1.4, _SIZE[1] - 1.0), lambda ax, room: _draw(ax, found, chosen, room))


def _measured(rows: Sequence[Row], precisions: Sequence[str]) -> dict[str, dict[str, float]]:
    """The measured ridges of devices that the catalogue has, by their ids."""
    from bwprof.analysis.forecast import datasheets

    found: dict[str, dict[str, list[float]]] = {}
    others: dict[str, None] = {}
    for row in rows:
        entry = datasheets.find(str(row["device"])) if row.get("device") else None
        bend = measurable(row.get("ridge"))
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


def _draw(ax: Axes, found: Sequence[_Device], precisions: Sequence[str], room: Inches) -> None:
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
        make_handle(name.upper(), color=look.color, marker=look.marker, linewidth=0, markersize=6)
        for name, look in looks.items()
    ]
    if any(d.unconfirmed for d in found):
        handles.append(make_ring("hollow: not confirmed by a data sheet", colors.text, markersize=6))
    measured = [(d.x, value, looks[name].color) for d in found for name, value in d.measured.items()]
    cross: dict[str, Any] = {"marker": "x", "markersize": 7, "markeredgewidth": 2}
    for x, value, color in measured:
        ax.plot(x, value, color=color, zorder=3.5, **cross)
    handles += [make_handle("measured", color=colors.text, linewidth=0, **cross)] if measured else []
    handles.append(make_handle("trend", color=colors.soft, linewidth=1, linestyle=(0, (4, 3))))
    ax.set_yscale("log")
    years = sorted({round(d.x) for d in found})
    ax.set_xlim(years[0] - 0.5, years[-1] + 0.5)
    _ticks(ax, years)
    legend_above(ax, handles, room)
    names = [(cut(d.name, _LONGEST), (d.x, max(d.ridges.values())), colors.text) for d in found]
    name_points(ax, names, [*points, *((x, value) for x, value, _ in measured)])
    ax.set_xlabel("year")
    ax.set_ylabel("ridge (FLOP/B)")
    head = "The ridge by year: FLOPs a byte must feed before arithmetic limits"
    add_title(ax, head, ["theoretical dense rates and bandwidths of the catalogue"], room)
    dress(ax, grid="y")


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
