"""Sweeps: a figure over one parameter as lines, and over two as a heatmap."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.bottleneck import STEP, find_cliffs_along
from bwprof.analysis.summarize import ordered_precisions
from bwprof.plot import canvas, inputs, styles
from bwprof.plot.canvas import cut
from bwprof.results import schema
from bwprof.results.pairs import moved_bytes
from bwprof.results.schema import Column, RowDict
from bwprof.text.formatting import format_bytes, format_figure, plural
from bwprof.text.parsing import measured_or_nan, measured_or_none, parse_name, quote_text, repr_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE, INNER = (9.0, 5.2), (7.6, 4.2)  # inches
_MOST_LINES = 12
_LONGEST = 44  # letters of a name
_OTHER_COLUMNS = ("operation", "variant", "cache", "kv_lens", "device", "device_uuid", "hostname", "run_id")
_LAST_RESORT = ("variant", "run_id")  # split lines only where a line would have two rows at one place
_UNNAMED = ("device_uuid", "run_id")  # split lines without a name in the legend

# Of lines in one precision.
_DASHES: tuple[Any, ...] = ("-", (6, 1.5), (3, 1, 1, 1), (1, 1), (3, 3), (5, 1, 1, 1, 1, 1))
_DASHES += ((1, 3), (2, 1), (5, 3), (4, 1, 2, 1), (3, 2, 1, 2), (1, 1, 1, 3))
_DOTS: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (1, 1.5))}
_LOG_FROM = 4.0  # largest over smallest value from which on an axis is logarithmic
_BINARY_FROM = 4096  # numbers with a binary suffix


@dataclass(frozen=True, slots=True)
class _Line:
    """Rows along the parameter, and their points; `apart` names it beside other lines of its precision."""

    apart: str
    precision: str
    rows: list[RowDict]
    points: list[tuple[float, float]]


@canvas.draws
def lines(data: Any, ax: Axes | None = None, *, x: str | None = None, y: str = "bandwidth_gb_s") -> canvas.Drawing:
    """Draw a figure over a parameter: a line for each precision, beside what plain streams of the same bytes reach.

    Dotted vertical lines show where the bytes that a launch touches fill the cache. Hollow marks are rows with flags,
    or predictions.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results, with several values of a parameter.
    x : str, optional
        The parameter, or any other column of numbers; by default the parameter with the most values.
    y : str
        The column to draw: bandwidth_gb_s, time_ms or another column of numbers.

    Raises
    ------
    ValueError
        For a missing classic column, no parameter with two values, and nothing to draw.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", N=[64, 128], K=64, backend="cpu", cache="hot", roofs=False, precision="fp32")
    >>> bwprof.plot.lines(frame).get_xlabel()
    'N'
    """
    rows, frame = inputs.read_rows(data)
    inputs.check_column("y", y)
    usable = [row for row in inputs.require_numbers(rows, y) if inputs.is_drawable(row)]
    parameters = count_values(usable)
    if x is not None:
        _require_column(usable, x, "x")
    elif not parameters:
        raise ValueError("no parameter has two values: a line needs a sweep over one (x= names any other column)")
    name = x if x is not None else next(iter(parameters))
    drawn = inputs.require_numbers(usable, name)
    every = _split_lines(drawn, name, y, parameters)
    if len(every) > _MOST_LINES:
        every.sort(key=lambda line: len(line.rows) < 2)
    found = every[:_MOST_LINES]
    devices = inputs.device_names(drawn)
    operations = list(dict.fromkeys(str(row["operation"]) for row in drawn))
    notes = [cut(own[0], _LONGEST) for own in (operations, devices) if len(own) == 1]
    notes += canvas.note_left_out(len(found), len(every), "lines")
    notes += inputs.note_rows([row for row in rows if not inputs.is_drawable(row)] + drawn)
    cache = measured_or_none(inputs.device_facts(frame).get("cache_bytes")) if len(devices) < 2 else None

    def draw(ax: Axes, room: canvas.Inches) -> None:
        handles = _draw_lines(ax, found, _find_column(name), _find_column(y), cache or math.inf)
        styles.add_legend_above(ax, handles, room)
        _label_axes(ax, _find_column(name), _find_column(y))
        title = f"{_figure_title(_find_column(y))} over {_find_column(name).title or name}"
        styles.add_title(ax, title, notes, room)
        styles.finish_axes(ax, grid="both")

    return canvas.Drawing(SIZE, INNER, draw)


def count_values(rows: Sequence[RowDict]) -> dict[str, int]:
    """Count the values of each parameter that has several, and of other numbers of the caller; the most first."""
    counts = {name: len({row.get(name) for row in rows} - {None}) for name in schema.param_names()}
    for name in _own_names(rows):
        own = {row.get(name) for row in rows} - {None}
        if name not in counts and all(measured_or_none(value) is not None for value in own):
            counts[name] = len(own)
    return dict(sorted(((name, count) for name, count in counts.items() if count > 1), key=lambda item: -item[1]))


def _own_names(rows: Sequence[RowDict]) -> list[str]:
    """Return the caller's own columns, without the places of a shape in a model's steps."""
    return [name for name in schema.extra_names(rows) if name not in ("count", "role", *STEP) or "model" not in rows[0]]


def _require_column(rows: Sequence[RowDict], name: str, argument: str) -> None:
    """Raise ValueError where no row has a column."""
    if not any(parse_name(name, argument) in row for row in rows):
        inputs.check_column(argument, name)
        raise ValueError(f"{argument}: no row has a column {quote_text(name)}")


def _find_column(name: str) -> Column:
    """Return a column of the schema, or one for a name of the caller."""
    try:
        return schema.find_column(name)
    except KeyError:
        return Column(name, "number", "")


def _figure_title(column: Column) -> str:
    return column.title or column.name.replace("_", " ")


def _label_axes(ax: Axes, x: Column, y: Column) -> None:
    """Label axes; without the unit where that is the column's name."""
    texts = [column.label if column.unit != column.name else column.name for column in (x, y)]
    ax.set_xlabel(texts[0], parse_math=False)
    ax.set_ylabel(texts[1], parse_math=False)


def _split_lines(rows: Sequence[RowDict], x: str, y: str, parameters: Mapping[str, int]) -> list[_Line]:
    """Split rows by precision and by the columns that distinguish them, and sort each line along the parameter."""
    where = _splitting_columns(rows, x, parameters)
    groups: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        groups.setdefault((row["precision"], *map(row.get, where)), []).append(row)
    order = ordered_precisions(rows)
    result = []
    for key, own in sorted(groups.items(), key=lambda item: order.index(str(item[0][0]))):
        pairs = zip(where, key[1:], strict=True)
        words = [_format_value(name, value, parameters) for name, value in pairs if name not in _UNNAMED]
        own.sort(key=lambda row: float(row[x]))
        points = [(float(row[x]), float(row[y])) for row in own]
        result.append(_Line(cut(" ".join(filter(None, words)), _LONGEST - 8), str(key[0]), own, points))
    return result


def _splitting_columns(rows: Sequence[RowDict], x: str, parameters: Mapping[str, int]) -> list[str]:
    names = dict.fromkeys((*parameters, *schema.param_names(), *_OTHER_COLUMNS))
    where = [name for name in names if name not in (x, *_LAST_RESORT) and len({row.get(name) for row in rows}) > 1]
    for name in _LAST_RESORT:
        keys = {(row["precision"], row[x], *map(row.get, where)) for row in rows}
        where += [name] if len(keys) < len(rows) else []
    for name in ("case", *_own_names(rows)):
        where += [name] if name not in (x, *where) and _distinguishes(rows, name, where, x) else []
    return where


def _distinguishes(rows: Sequence[RowDict], label: str, where: Sequence[str], x: str) -> bool:
    """Return whether lines by the columns `where` would join values of a label of which one is at several places."""
    lines: dict[tuple[object, ...], dict[object, set[object]]] = {}
    for row in rows:
        line = lines.setdefault((row["precision"], *map(row.get, where)), {})
        line.setdefault(row.get(label), set()).add(row[x])
    return any(len(line) > 1 and any(len(places) > 1 for places in line.values()) for line in lines.values())


def _format_value(name: str, value: Any, parameters: Mapping[str, int]) -> str:
    if value is None or (name not in parameters and name in schema.param_names()):  # the operation says that
        return ""
    if name == "kv_lens":
        return registry.case_name("", str(value)) or str(value)
    return f"{name}={value:g}" if name in parameters else f"({value})" if name == "cache" else str(value)


def _draw_lines(ax: Axes, found: Sequence[_Line], x: Column, y: Column, cache_bytes: float) -> list[Any]:
    """Draw lines, streams, cliffs, and where the cache is full; return the legend's entries."""
    colors, looks = styles.ink(ax), styles.styles(line.precision for line in found)
    aparts = list(dict.fromkeys(line.apart for line in found))
    dashes: dict[str, Any] = {apart: (0, _DASHES[place]) if place else "-" for place, apart in enumerate(aparts)}
    for line in found:
        look = looks[line.precision]
        points = styles.split_points(line.points)
        ax.plot(*points, color=look.color, linewidth=1.5, linestyle=dashes[line.apart], zorder=2.8)
        hollow = [inputs.is_hollow(row) for row in line.rows]
        styles.draw_marks(ax, line.points, hollow, look.color, marker=look.marker, markersize=5, zorder=3.2)
    handles: list[Any] = [
        styles.line_handle(cut(name, 16).upper(), color=look.color, marker=look.marker, markersize=5)
        for name, look in looks.items()
    ]
    for apart, dash in dashes.items() if len(aparts) > 1 else ():
        handles.append(styles.line_handle(apart or "(without)", color=colors.text, linestyle=dash))
    handles += _draw_streams(ax, found, y)
    handles += _draw_cliffs(ax, found, x, y)
    _scale_axes(ax, found, y)
    handles += _draw_capacity(ax, found, cache_bytes)
    return handles + styles.mark_doubts((row for line in found for row in line.rows), colors)


def _draw_streams(ax: Axes, found: Sequence[_Line], y: Column) -> list[Any]:
    """Draw what plain streams of the same bytes reach, where bandwidths or times are drawn."""
    if y.name != "bandwidth_gb_s" and y.unit != "ms":
        return []
    looks = styles.styles(line.precision for line in found)
    look: dict[str, Any] = {"linewidth": 1.0, "linestyle": ":"}
    drawn: set[tuple[tuple[float, float], ...]] = set()
    for line in found:
        points = []
        for row, (x, _) in zip(line.rows, line.points, strict=True):
            rate = measured_or_none(row.get("attainable_gb_s")) or 0.0
            if rate > 0:
                points.append((x, rate if y.unit != "ms" else (moved_bytes(row) or 0) / rate / 1e6))
        key = tuple((x, round(value, 6)) for x, value in points)
        if len(points) > 1 and key not in drawn:
            drawn.add(key)
            ax.plot(*styles.split_points(points), color=looks[line.precision].color, zorder=2.5, **look)
    label = f"{schema.find_column('attainable_gb_s').title}: a plain stream of the same bytes"
    return [styles.line_handle(label, color=styles.ink(ax).soft, **look)] if drawn else []


def _draw_cliffs(ax: Axes, found: Sequence[_Line], x: Column, y: Column) -> list[Any]:
    """Draw rings around rows that take more time than their neighbors' work explains."""
    swept, alarm = x.name in schema.param_names() or not x.group, styles.ink(ax).alarm
    rows = [cliff.slow for line in found if swept for cliff in find_cliffs_along(line.rows, x.name)]
    look: dict[str, Any] = {"marker": "o", "markersize": 10, "markeredgecolor": alarm}
    points = styles.split_points([(float(row[x.name]), float(row[y.name])) for row in rows])
    ax.plot(*points, color="none", linewidth=0, zorder=3.3, **look)
    return [styles.ring_handle("cliff: more time than its work explains", alarm, **look)] if rows else []


def _scale_axes(ax: Axes, found: Sequence[_Line], y: Column) -> None:
    xs, ys = styles.split_points([point for line in found for point in line.points])
    if min(xs) > 0 and max(xs) >= _LOG_FROM * min(xs):
        ax.set_xscale("log", base=2 if all(x.is_integer() for x in xs) else 10)
        _set_ticks(ax, sorted(set(xs)))
    if y.unit == "ms" and min(ys) > 0 and max(ys) >= _LOG_FROM * min(ys):
        ax.set_yscale("log")
    elif min(ys) >= 0:
        ax.set_ylim(bottom=0)


def _set_ticks(ax: Axes, xs: Sequence[float]) -> None:
    """Set ticks at up to 12 values, those apart from others by 3.5 % of the axis, else at powers of two."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    apart = (max(xs) / min(xs)) ** 0.035
    places = [xs[0]]
    for value in xs[1:]:
        places += [value] if value >= apart * places[-1] else []
    few = len(xs) <= 12
    text = count_formatter(places if few else [2.0 ** round(math.log2(value)) for value in xs])
    ax.xaxis.set_major_locator(FixedLocator(places) if few else LogLocator(base=2, numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: text(value))


def count_formatter(values: Sequence[float]) -> Callable[[float], str]:
    """Return a formatter of an axis' numbers: with binary suffixes (4Ki, 1Mi) if all from 4096 on allow it."""
    binary = all(value % 2**10 == 0 for value in values if value >= _BINARY_FROM)

    def text(value: float) -> str:
        for suffix, unit in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)) if binary else ():
            if value >= max(unit, _BINARY_FROM) and value % unit == 0:
                return f"{value / unit:g}{suffix}"
        return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.6g}"

    return text


def _draw_capacity(ax: Axes, found: Sequence[_Line], cache_bytes: float) -> list[Any]:
    """Draw a dotted line where the bytes of a line fill the cache."""
    looks, filled = styles.styles(line.precision for line in found), dict[str, float]()
    for line in found:
        at = _crossing(line, cache_bytes)
        if at is not None and filled.setdefault(f"{at:.4g}", at) == at:
            ax.axvline(at, color=looks[line.precision].color, alpha=0.9, zorder=1, **_DOTS)
    label = f"bytes fill the cache ({format_bytes(cache_bytes)})"
    return [styles.line_handle(label, color=styles.ink(ax).soft, **_DOTS)] if filled else []


def _crossing(line: _Line, capacity: float) -> float | None:
    """Return where the bytes that a launch touches grow beyond a capacity; None where they do not."""
    bytes_ = [measured_or_none(row.get("footprint_bytes")) or float(moved_bytes(row) or 0) for row in line.rows]
    places = [(x, touched) for (x, _), touched in zip(line.points, bytes_, strict=True) if touched > 0 and x > 0]
    for (left, few), (right, many) in pairwise(places):
        if few < capacity <= many and right > left:
            return float(left * (right / left) ** (math.log(capacity / few) / math.log(many / few)))
    return None


_COLORS = "cividis"  # readable for people with color-blindness
_MOST_CELLS = 60  # in one direction


@canvas.draws
def heatmap(
    data: Any,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    value: str = "bandwidth_gb_s",
    precision: str | None = None,
) -> canvas.Drawing:
    """Draw a figure over two parameters; of several rows of a pair the fastest.

    A cell with a cut corner has flags, one with a line across it is a prediction.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results, with two parameters.
    x, y : str, optional
        The parameters; by default those with the most values.
    value : str
        The column to draw: bandwidth_gb_s, time_ms, pct_limit or another column of numbers.
    precision : str, optional
        The precision; by default the first one with the most rows.

    Raises
    ------
    ValueError
        For a missing classic column, fewer than two parameters with several values, and nothing to draw.

    Examples
    --------
    >>> import bwprof
    >>> sizes = {"N": [64, 128], "K": [64, 128]}
    >>> frame = bwprof.sweep("gemm", **sizes, backend="cpu", cache="hot", roofs=False, precision="fp32")
    >>> bwprof.plot.heatmap(frame, x="N").get_ylabel()
    'K'
    """
    inputs.check_column("value", value)
    if precision is not None and not isinstance(precision, str):
        raise TypeError(f"precision is {repr_short(precision)}: a name is needed")
    every = inputs.read_rows(data)[0]
    rows = inputs.require_numbers(filter(inputs.is_drawable, every), value)
    if precision is not None:
        chosen = registry.check_precision(precision, list(dict.fromkeys(row["precision"] for row in rows)))
        rows = [row for row in rows if row["precision"] == chosen]
    group = Counter((row["operation"], row["precision"]) for row in rows).most_common(1)[0][0]
    every = [row for row in every if (row["operation"], row["precision"]) == group]
    rows = [row for row in rows if (row["operation"], row["precision"]) == group]
    names = _choose_parameters(rows, x, y)
    content = _Heatmap(names, value, inputs.require_numbers(rows, *names), every)
    title = f"{_figure_title(_find_column(value))} over {names[0]} and {names[1]}"
    notes = [cut(str(group[0]), _LONGEST), cut(str(group[1]), 16).upper(), *content.notes()]
    xs, ys = content.axes
    inner = (max(5.0, min(len(xs) * 0.72, 14.0)), max(3.2, min(len(ys) * 0.42, 12.0)))

    def draw(ax: Axes, room: canvas.Inches) -> None:
        content.draw(ax, room)
        styles.add_title(ax, title, notes, room)
        styles.finish_axes(ax)
        ax.tick_params(length=0)

    return canvas.Drawing((inner[0] + 1.9, inner[1] + 1.2), inner, draw)


def _choose_parameters(rows: Sequence[RowDict], x: str | None, y: str | None) -> tuple[str, str]:
    for argument, name in (("x", x), ("y", y)):
        if name is not None:
            _require_column(rows, name, argument)
    counts = count_values(rows)
    rest = [name for name in counts if name not in (x, y)]
    first, second = (name if name is not None else (rest.pop(0) if rest else None) for name in (x, y))
    if first is None or second is None:
        there = ", ".join(counts) or "none"
        raise ValueError(f"a heatmap needs two parameters with several values each, and there are: {there}")
    if first == second:
        raise ValueError(f"x and y are both {quote_text(first)}: a heatmap needs two parameters")
    return first, second


def _choose_lists(rows: Sequence[RowDict], names: Sequence[str]) -> list[str | None]:
    """Return all lists of lengths; where a cell would have several, the one with the most rows."""
    lists = Counter(row["kv_lens"] for row in rows)
    cells = [{tuple(map(row.get, (*names, *more))) for row in rows} for more in ((), ("kv_lens",))]
    return list(lists) if len(cells[0]) == len(cells[1]) else [lists.most_common(1)[0][0]]


def _find_place(row: RowDict, names: tuple[str, str]) -> tuple[float, float]:
    return measured_or_nan(row.get(names[0])), measured_or_nan(row.get(names[1]))


class _Heatmap:
    """Rows of one operation and precision over two parameters: of several rows of a cell the fastest."""

    def __init__(self, names: tuple[str, str], value: str, rows: Sequence[RowDict], every: Sequence[RowDict]) -> None:
        self.names, self.value = names, value
        self.lists = _choose_lists(rows, names)
        self.rows = [row for row in rows if row["kv_lens"] in self.lists]
        self.others = len(rows) - len(self.rows)
        lists = {row["kv_lens"] for row in every} if not self.others else self.lists
        self.failed = [row for row in every if not inputs.is_drawable(row) and row["kv_lens"] in lists]
        slowest_first = sorted(self.rows, key=lambda row: -(measured_or_none(row.get("time_ms")) or math.inf))
        self.fastest = {_find_place(row, names): row for row in slowest_first}
        xs, ys = zip(*self.fastest, strict=True)
        self.every = sorted(set(xs)), sorted(set(ys))
        self.axes = self.every[0][:_MOST_CELLS], self.every[1][:_MOST_CELLS]
        self.cells = {place: self.fastest[key] for place, key in self._places() if key in self.fastest}
        failed = {_find_place(row, names) for row in self.failed} - self.fastest.keys()
        self.gaps = [place for place, key in self._places() if key in failed]

    def _places(self) -> list[tuple[tuple[int, int], tuple[float, float]]]:
        """Return the column and the line of each cell with its values."""
        return [
            ((column, line), (x, y)) for column, x in enumerate(self.axes[0]) for line, y in enumerate(self.axes[1])
        ]

    def notes(self) -> list[str]:
        """Return the title's notes: the device, what is drawn, and what marks mean."""
        lengths = registry.case_name("", self.lists[0]) if self.lists[0] and len(self.lists) == 1 else ""
        notes = [cut(name, _LONGEST) for name in inputs.device_names(self.rows)[:1]]
        notes += [lengths, f"not drawn: {plural(self.others, 'row')} of other kv_lens" if self.others else ""]
        notes += ["the fastest of several rows"] if len(self.fastest) < len(self.rows) else []
        for name, drawn, every in zip(self.names, self.axes, self.every, strict=True):
            notes += canvas.note_left_out(len(drawn), len(every), f"values of {name}")
        predicted = "\u2571 predicted" if self._crossed() else "predicted"
        notes += [predicted] if self._find(inputs.is_predicted) else []
        notes += ["\u25e5 see flags"] if self._find(inputs.is_doubtful) else []
        notes += ["\u00d7 failed or skipped"] if self.gaps else []
        others = inputs.note_rows([*self.rows, *self.failed])
        return notes + [note for note in others if not (self.gaps and note.startswith("not drawn"))]

    def _find(self, test: Callable[[RowDict], bool]) -> list[tuple[int, int]]:
        return [place for place, row in self.cells.items() if test(row)]

    def _crossed(self) -> list[tuple[int, int]]:
        """Return the cells of predictions; none where all are, as lines through all cells would distinguish none."""
        predicted = self._find(inputs.is_predicted)
        return predicted if len(predicted) < len(self.cells) else []

    def draw(self, ax: Axes, room: canvas.Inches) -> None:
        """Draw the cells, their marks and numbers, and the scale of their colors."""
        import numpy as np
        from matplotlib import colormaps
        from matplotlib.colors import Normalize

        column, (xs, ys) = _find_column(self.value), self.axes
        grid = np.full((len(ys), len(xs)), np.nan)
        for (x, y), row in self.cells.items():
            grid[y, x] = row[self.value]
        low, high = (0.0, 100.0) if column.unit == "%" else (float(np.nanmin(grid)), float(np.nanmax(grid)))
        norm, colors = Normalize(low, max(high, low + 1e-12 * abs(low) + 1e-300)), colormaps[_COLORS]
        edges = [np.arange(len(values) + 1) - 0.5 for values in self.axes]
        look: dict[str, Any] = {"norm": norm, "cmap": colors, "edgecolors": styles.ink(ax).ground, "linewidth": 0.5}
        image = ax.pcolormesh(*edges, np.ma.masked_invalid(grid), **look)
        paints = {place: colors(norm(float(row[self.value]))) for place, row in self.cells.items()}
        size = (room[0] / len(xs), room[1] / len(ys))
        self._mark(ax, size, paints)
        self._write_numbers(ax, size, paints)
        for axis, values, inches in zip((ax.xaxis, ax.yaxis), self.axes, room, strict=True):
            step = max(1, round(len(values) * 0.45 / max(inches, 0.5)))
            axis.set_ticks(range(0, len(values), step), list(map(count_formatter(values), values[::step])))
        ax.set_xlim(-0.5, len(xs) - 0.5)
        ax.set_ylim(-0.5, len(ys) - 0.5)
        _label_axes(ax, *map(_find_column, self.names))
        outer, scale, figure = styles.ink(ax, outside=True), ax.inset_axes((1.02, 0.0, 0.025, 1.0)), ax.get_figure()
        figure.colorbar(image, cax=scale).outline.set_visible(False)  # type: ignore[union-attr]
        scale.tick_params(color=outer.soft, labelcolor=outer.text, labelsize=8)
        scale.set_ylabel(column.label, color=outer.text, fontsize=9)

    def _mark(self, ax: Axes, size: canvas.Inches, paints: Mapping[tuple[int, int], Any]) -> None:
        """Draw a line across predictions, a corner in doubtful cells, and a cross for failed rows."""
        from matplotlib.collections import PolyCollection

        width, height = 0.18, 0.18 * size[0] / size[1]  # of a corner, as wide as high
        ways = [[(x - 0.5, y - 0.5), (x + 0.5, y + 0.5)] for x, y in self._crossed()]
        styles.draw_ways(ax, ways, [styles.readable(paints[place]) for place in self._crossed()], 0.7)
        doubtful = self._find(inputs.is_doubtful)
        corners = [[(x + 0.5 - width, y + 0.5), (x + 0.5, y + 0.5), (x + 0.5, y + 0.5 - height)] for x, y in doubtful]
        faces = [styles.readable(paints[place]) for place in doubtful]
        ax.add_collection(PolyCollection(corners, facecolors=faces, linewidths=0), autolim=False)
        ax.plot(*styles.split_points(self.gaps), "x", color=styles.ink(ax).soft, markersize=5)

    def _write_numbers(self, ax: Axes, size: canvas.Inches, paints: Mapping[tuple[int, int], Any]) -> None:
        """Write each cell's value where it is readable, in a gap of the line that crosses the cell."""
        texts = {place: format_figure(float(row[self.value]), whole_from=100) for place, row in self.cells.items()}
        crossed = set(self._crossed())
        widest = max(canvas.measure_width(text, 10.0) for text in texts.values())
        points = min(8.0, 10.0 * 0.85 * size[0] / widest, 72 * size[1] * 0.6)
        for place, text in texts.items() if points >= 4.5 else ():
            color = paints[place]
            gap = {"facecolor": color, "edgecolor": "none", "pad": 1.0} if place in crossed else None
            look: dict[str, Any] = {"fontsize": points, "color": styles.readable(color), "bbox": gap}
            ax.text(*place, text, ha="center", va="center_baseline", **look)
