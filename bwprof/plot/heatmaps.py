"""A figure over two parameters, a cell for each pair."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.plot.canvas import Drawing, Inches, cut, measure_width, note_left_out
from bwprof.plot.data import device_of, doubted, need, number_column, predicted, remarks, rows_of
from bwprof.plot.legends import add_title
from bwprof.plot.series import axis_label, count_formatter, count_values, find_column
from bwprof.plot.styles import finish_axes, ink, readable
from bwprof.results.columns import Column
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure, plural
from bwprof.text.parsing import measured_or_none, parse_name, quote_text, repr_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = "cividis"  # made for people with colour-blindness, too

_CELL = (0.72, 0.42)  # inches

_MOST_CELLS = 60  # in one direction

_LARGEST, _LEAST = (14.0, 12.0), (5.0, 3.2)

_AROUND = (1.9, 1.2)

_POINTS, _LEAST_POINTS = 8.0, 4.5

_LONGEST = 44


@dataclass(frozen=True, slots=True)
class _Plan:
    x: Column
    y: Column
    value: Column
    xs: list[float]
    ys: list[float]
    cells: dict[tuple[float, float], float]
    words: list[str]
    predicted: set[tuple[float, float]]
    doubted: set[tuple[float, float]]
    broken: set[tuple[float, float]]


def heatmap(
    data: Any,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    value: str = "bandwidth_gb_s",
    precision: str | None = None,
) -> Axes:
    """A figure over two parameters; of several rows of a pair the fastest.

    A corner of a cell is cut off where its row is in doubt (flags), a line crosses it where it is only predicted.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, a file of results, with several values of two parameters.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.
    x, y : str, optional
        The parameters; when left out those with the most values.
    value : str
        What is drawn: bandwidth_gb_s, time_ms, pct_limit or another column of numbers.
    precision : str, optional
        Of which precision; when left out the first one with the most rows.

    Raises
    ------
    ValueError
        When a classic column is missing, fewer than two parameters have several values, or there is nothing to draw.

    Examples
    --------
    >>> import bwprof
    >>> sizes = {"N": [64, 128], "K": [64, 128]}
    >>> frame = bwprof.sweep("gemm", **sizes, backend="cpu", cache="hot", roofs=False, precision="fp32")
    >>> bwprof.plot.heatmap(frame, x="N").get_ylabel()
    'K'
    """
    return picture(data, x=x, y=y, value=value, precision=precision).on(ax)


def picture(
    data: Any,
    *,
    x: str | None = None,
    y: str | None = None,
    value: str = "bandwidth_gb_s",
    precision: str | None = None,
) -> Drawing:
    """The same as a picture to be drawn or written."""
    plan = _plan(data, x, y, value, precision)
    counts = (len(plan.xs), len(plan.ys))
    inner = [
        max(least, min(count * cell, largest))
        for count, cell, least, largest in zip(counts, _CELL, _LEAST, _LARGEST, strict=True)
    ]
    size = (inner[0] + _AROUND[0], inner[1] + _AROUND[1])
    return Drawing(size, (inner[0], inner[1]), lambda ax, room: _draw(ax, plan, room))


def _plan(data: Any, x: str | None, y: str | None, value: str, precision: str | None) -> _Plan:
    column = number_column("value", value)
    every = rows_of(data)[0]
    rows = need((row for row in every if row["status"] in ("ok", "predicted")), value)
    chosen = _of_one(rows, precision)
    names = _parameters(chosen, x, y)
    chosen = need(chosen, *names)
    lists = _lists(chosen, names)
    kept = [row for row in chosen if row["kv_lens"] in lists]
    others, chosen = len(chosen) - len(kept), kept
    fastest: dict[tuple[float, float], RowDict] = {}
    for row in chosen:
        key = float(row[names[0]]), float(row[names[1]])
        if key not in fastest or _time(row) < _time(fastest[key]):
            fastest[key] = row
    words = [cut(str(chosen[0]["operation"]), _LONGEST), cut(str(chosen[0]["precision"]), 16).upper()]
    words += [cut(name, _LONGEST) for name in device_of(chosen)[:1]]
    words += [registry.case_name("", found) for found in lists if found and len(lists) == 1]
    words += [f"not drawn: {plural(others, 'row')} of other kv_lens"] if others else []
    words += ["the fastest of several rows"] if len(fastest) < len(chosen) else []
    axes = []
    for place, name in enumerate(names):
        found = sorted({key[place] for key in fastest})
        words += note_left_out(min(len(found), _MOST_CELLS), len(found), f"values of {name}")
        axes.append(found[:_MOST_CELLS])
    cells = {key: float(row[value]) for key, row in fastest.items()}
    one = (chosen[0]["operation"], chosen[0]["precision"])
    without = [row for row in every if row["status"] not in ("ok", "predicted")]
    without = [row for row in without if (row["operation"], row["precision"]) == one]
    without = [row for row in without if not others or row["kv_lens"] in lists]
    places = [tuple(measured_or_none(row.get(name)) for name in names) for row in without]
    broken = {(x, y) for x, y in places if x in axes[0] and y in axes[1]} - cells.keys()
    guessed, flagged = ({key for key, row in fastest.items() if is_so(row)} for is_so in (predicted, doubted))
    if guessed == fastest.keys():  # a line through every cell would tell none apart
        words.append("predicted")
        guessed = set()
    words += _explain_marks((guessed, flagged), broken, [*chosen, *without])
    columns = [find_column(name) for name in names]
    return _Plan(columns[0], columns[1], column, axes[0], axes[1], cells, words, guessed, flagged, broken)


def _lists(rows: Sequence[RowDict], names: Sequence[str]) -> set[str | None]:
    """The lists of lengths that are drawn: all or, where a cell would stand for several, the one of most rows."""
    found: dict[tuple[object, ...], set[str | None]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), set()).add(row["kv_lens"])
    if all(len(lists) == 1 for lists in found.values()):
        return set().union(*found.values())
    return {Counter(row["kv_lens"] for row in rows).most_common(1)[0][0]}


def _explain_marks(marks: tuple[object, object], broken: object, rows: Sequence[RowDict]) -> list[str]:
    """What marks of cells mean, and what is said of the rows."""
    said = zip((*marks, broken), ("\u2571 predicted", "\u25e5 see flags", "\u00d7 failed or skipped"), strict=True)
    others = [word for word in remarks(rows) if not word.startswith("not drawn") or not broken]
    return [*(word for there, word in said if there), *others]


def _time(row: RowDict) -> float:
    return measured_or_none(row.get("time_ms")) or float("inf")


def _of_one(rows: Sequence[RowDict], precision: str | None) -> list[RowDict]:
    """The rows of one operation and precision, those with the most rows."""
    there = list(dict.fromkeys(row["precision"] for row in rows))
    if precision is not None and not isinstance(precision, str):
        raise TypeError(f"precision is {repr_short(precision)}: a name is needed")
    wanted = None if precision is None else registry.check_precision(precision, there)
    kept = [row for row in rows if wanted in (None, row["precision"])]
    most = Counter((row["operation"], row["precision"]) for row in kept).most_common(1)[0][0]
    return [row for row in kept if (row["operation"], row["precision"]) == most]


def _parameters(rows: Sequence[RowDict], x: str | None, y: str | None) -> tuple[str, str]:
    for which, name in (("x", x), ("y", y)):
        if name is not None and not any(parse_name(name, which) in row for row in rows):
            number_column(which, name)
            raise ValueError(f"{which}: no row has a column {quote_text(name)}")
    rest = [name for name in count_values(rows) if name not in (x, y)]
    chosen = [name if name is not None else (rest.pop(0) if rest else None) for name in (x, y)]
    if chosen[0] is None or chosen[1] is None:
        found = ", ".join(count_values(rows)) or "none"
        raise ValueError(f"a heatmap needs two parameters with several values each, and there are: {found}")
    if chosen[0] == chosen[1]:
        raise ValueError(f"x and y are both {quote_text(chosen[0])}: a heatmap needs two parameters")
    return chosen[0], chosen[1]


def _draw(ax: Axes, plan: _Plan, room: Inches) -> None:
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    grid = np.full((len(plan.ys), len(plan.xs)), np.nan)
    for row, y in enumerate(plan.ys):
        for place, x in enumerate(plan.xs):
            grid[row, place] = plan.cells.get((x, y), np.nan)
    known = grid[np.isfinite(grid)]
    low, high = (0.0, 100.0) if plan.value.unit == "%" else (float(known.min()), float(known.max()))
    norm, colors = Normalize(low, max(high, low + 1e-12 * abs(low) + 1e-300)), colormaps[_COLORS]
    columns, lines = (np.arange(len(values) + 1) - 0.5 for values in (plan.xs, plan.ys))
    look: dict[str, Any] = {"norm": norm, "cmap": colors, "edgecolors": ink(ax).ground, "linewidth": 0.5}
    image = ax.pcolormesh(columns, lines, np.ma.masked_invalid(grid), **look)
    _marks(ax, plan, room, lambda found: readable(colors(norm(found))))
    at = {(x, y): (row, place) for row, y in enumerate(plan.ys) for place, x in enumerate(plan.xs)}
    crossed = {at[key] for key in plan.predicted if key in at}
    _numbers(ax, grid, room, lambda found: colors(norm(found)), crossed)
    for axis, values, inches in ((ax.xaxis, plan.xs, room[0]), (ax.yaxis, plan.ys, room[1])):
        step = max(1, round(len(values) * 0.45 / max(inches, 0.5)))
        axis.set_ticks(range(0, len(values), step), list(map(count_formatter(values), values[::step])))
    ax.set_xlim(-0.5, len(plan.xs) - 0.5)
    ax.set_ylim(-0.5, len(plan.ys) - 0.5)
    ax.set_xlabel(axis_label(plan.x), parse_math=False)
    ax.set_ylabel(axis_label(plan.y), parse_math=False)
    add_title(ax, _title(plan), plan.words, room)
    finish_axes(ax)
    ax.tick_params(length=0)
    _scale(ax, image, plan)


def _title(plan: _Plan) -> str:
    said = f"{plan.value.title or plan.value.name.replace('_', ' ')} over {plan.x.name} and {plan.y.name}"
    return said[0].upper() + said[1:]


def _marks(ax: Axes, plan: _Plan, room: Inches, color: Any) -> None:
    """Which cells are predicted, in doubt, or have no value as their row failed."""
    from matplotlib.collections import LineCollection, PolyCollection

    at = {(x, y): (place, row) for place, x in enumerate(plan.xs) for row, y in enumerate(plan.ys)}
    corner = 0.09, 0.09 * room[0] / len(plan.xs) * len(plan.ys) / room[1]  # as wide as high
    guessed = [key for key in sorted(plan.predicted) if key in at]
    ways = [[(at[key][0] - 0.5, at[key][1] - 0.5), (at[key][0] + 0.5, at[key][1] + 0.5)] for key in guessed]
    paints = [color(plan.cells[key]) for key in guessed]
    ax.add_collection(LineCollection(ways, colors=paints, linewidths=0.7), autolim=False)
    flagged = [key for key in sorted(plan.doubted) if key in at]
    corners = []
    for key in flagged:
        x, y = at[key][0] + 0.5, at[key][1] + 0.5
        corners.append([(x - 2 * corner[0], y), (x, y), (x, y - 2 * corner[1])])
    paints = [color(plan.cells[key]) for key in flagged]
    ax.add_collection(PolyCollection(corners, facecolors=paints, linewidths=0), autolim=False)
    broken = [at[key] for key in sorted(plan.broken) if key in at]
    if broken:
        ax.plot(*zip(*broken, strict=True), color=ink(ax).soft, marker="x", markersize=5, linewidth=0)


def _numbers(ax: Axes, grid: Any, room: Inches, color: Any, crossed: Collection[tuple[int, int]]) -> None:
    """Each cell's value, in letters that fit it, if they can be read; where a line crosses the cell, in a gap of it."""
    numbers = grid.tolist()
    texts = [["" if math.isnan(found) else format_figure(found, whole_from=100) for found in line] for line in numbers]
    width, height = room[0] / grid.shape[1], room[1] / grid.shape[0]
    widest = max(measure_width(text, 10.0) for line in texts for text in line)
    points = min(_POINTS, 10.0 * 0.85 * width / widest, 72 * height * 0.6)
    if points < _LEAST_POINTS:
        return
    for row, line in enumerate(texts):
        for place, text in enumerate(line):
            if text:
                paint = color(grid[row, place])
                gap = {"facecolor": paint, "edgecolor": "none", "pad": 1.0} if (row, place) in crossed else None
                how: dict[str, Any] = {"fontsize": points, "color": readable(paint), "bbox": gap}
                ax.text(place, row, text, ha="center", va="center_baseline", **how)


def _scale(ax: Axes, image: Any, plan: _Plan) -> None:
    """What the colours stand for, beside the cells."""
    outer = ink(ax, outside=True)
    place = ax.inset_axes((1.02, 0.0, 0.025, 1.0))
    figure: Any = ax.get_figure()
    bar = figure.colorbar(image, cax=place)
    bar.outline.set_visible(False)
    place.tick_params(color=outer.soft, labelcolor=outer.text, labelsize=8)
    place.set_ylabel(plan.value.label, color=outer.text, fontsize=9)
