"""Lines: bandwidth, time or another figure over a parameter, by precision and by what else differs between rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.bottleneck import STEP, find_cliffs_along
from bwprof.analysis.summarize import ordered_precisions
from bwprof.plot import inputs
from bwprof.plot.canvas import Drawing, Inches, cut, draws, note_left_out
from bwprof.plot.legends import add_legend_above, add_title, capitalize, draw_marks, line_handle, ring_handle
from bwprof.plot.styles import Ink, Style, finish_axes, ink, styles
from bwprof.results import schema
from bwprof.results.pairs import moved_bytes
from bwprof.results.schema import Column, RowDict
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import measured_or_none, parse_name, quote_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE, INNER = (9.0, 5.2), (7.6, 4.2)  # inches
_MOST_LINES = 12
_LONGEST = 44  # letters of a name
_OTHER_COLUMNS = ("operation", "variant", "cache", "kv_lens", "device", "device_uuid", "hostname", "run_id")
_LAST_RESORT = ("variant", "run_id")  # split lines only where a line would have two rows at one place
_UNNAMED = ("device_uuid", "run_id")  # split lines without a name in the legend

# Of lines in one precision.
_DASHES = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (3, 3)), (0, (8, 1, 1, 1, 1, 1)))
_DOTS: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (1, 1.5))}
_LOG_FROM = 4.0  # largest over smallest value from which on an axis is logarithmic
_BINARY_FROM = 4096  # numbers with a binary suffix
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Line:
    """Rows along the parameter, and their points; `apart` names it beside other lines of its precision."""

    apart: str
    precision: str
    rows: list[RowDict]
    points: Points


@dataclass(frozen=True, slots=True)
class _LinePlot:
    """Everything that is drawn; the cache's size in bytes."""

    x: Column
    y: Column
    lines: list[_Line]
    notes: list[str]
    cache_bytes: float | None


@draws
def lines(data: Any, ax: Axes | None = None, *, x: str | None = None, y: str = "bandwidth_gb_s") -> Drawing:
    """Draw a figure over a parameter: a line for each precision, beside what plain streams of the same bytes reach.

    Dotted vertical lines show where the bytes that a launch touches fill the cache. Hollow marks are rows with flags,
    or predictions.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results, with several values of a parameter.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.
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
    >>> bwprof.plot.series.lines(frame).get_xlabel()
    'N'
    """
    content = _read_content(data, x, y)
    return Drawing(SIZE, INNER, lambda ax, room: _draw(ax, content, room))


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


def _read_content(data: Any, x: str | None, y: str) -> _LinePlot:
    rows, frame = inputs.read_rows(data)
    column = inputs.number_column("y", y)
    usable = [row for row in inputs.require_numbers(rows, y) if inputs.is_drawable(row)]
    parameters = count_values(usable)
    name = _check_x(usable, x, parameters)
    drawn = inputs.require_numbers(usable, name)
    every = _split_lines(drawn, name, y, parameters)
    if len(every) > _MOST_LINES:
        every.sort(key=lambda line: len(line.rows) < 2)
    devices = inputs.device_names(drawn)
    operations = list(dict.fromkeys(str(row["operation"]) for row in drawn))
    words = [cut(own[0], _LONGEST) for own in (operations, devices) if len(own) == 1]
    notes = [", ".join(words)] if words else []
    notes += note_left_out(min(len(every), _MOST_LINES), len(every), "lines")
    notes += inputs.note_rows([row for row in rows if not inputs.is_drawable(row)] + drawn)
    cache = measured_or_none(inputs.device_facts(frame).get("cache_bytes")) if len(devices) < 2 else None
    return _LinePlot(find_column(name), column, every[:_MOST_LINES], notes, cache or None)


def _check_x(rows: Sequence[RowDict], x: str | None, parameters: Mapping[str, int]) -> str:
    if x is None:
        if not parameters:
            raise ValueError("no parameter has two values: a line needs a sweep over one (x= names any other column)")
        return next(iter(parameters))
    require_column(rows, x, "x")
    return x


def require_column(rows: Sequence[RowDict], name: str, argument: str) -> None:
    """Raise ValueError where no row has a column."""
    if not any(parse_name(name, argument) in row for row in rows):
        inputs.number_column(argument, name)
        raise ValueError(f"{argument}: no row has a column {quote_text(name)}")


def find_column(name: str) -> Column:
    """Return a column of the schema, or one for a name of the caller."""
    try:
        return schema.find_column(name)
    except KeyError:
        return Column(name, "number", "")


def axis_label(column: Column) -> str:
    """Return a column's label; without the unit where that is the name."""
    return column.label if column.unit != column.name else column.name


def figure_title(column: Column) -> str:
    """Return a column's title, or its name in words."""
    return column.title or column.name.replace("_", " ")


def _split_lines(rows: Sequence[RowDict], x: str, y: str, parameters: Mapping[str, int]) -> list[_Line]:
    """Split rows by precision and by the columns that distinguish them, and sort each line along the parameter."""
    where = _splitting_columns(rows, x, parameters)
    groups: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        groups.setdefault((row["precision"], *(row.get(name) for name in where)), []).append(row)
    order = {name: place for place, name in enumerate(ordered_precisions(rows))}
    result = []
    for key, own in sorted(groups.items(), key=lambda item: order[str(item[0][0])]):
        first = cut(str(key[0]), 16).upper()
        pairs = zip(where, key[1:], strict=True)
        words = [_format_value(name, value, parameters) for name, value in pairs if name not in _UNNAMED]
        own.sort(key=lambda row: float(row[x]))
        points = [(float(row[x]), float(row[y])) for row in own]
        label = cut(" ".join(filter(None, [first, *words])), _LONGEST)
        result.append(_Line(label.partition(" ")[2], str(key[0]), own, points))
    return result


def _splitting_columns(rows: Sequence[RowDict], x: str, parameters: Mapping[str, int]) -> list[str]:
    names = dict.fromkeys((*parameters, *schema.param_names(), *_OTHER_COLUMNS))
    where = [name for name in names if name not in (x, *_LAST_RESORT) and len({row.get(name) for row in rows}) > 1]
    for name in _LAST_RESORT:
        keys = [(row["precision"], row[x], *(row.get(other) for other in where)) for row in rows]
        if len(set(keys)) < len(keys):
            where.append(name)
    for name in ("case", *_own_names(rows)):
        if name not in (x, *where) and _distinguishes(rows, name, where, x):
            where.append(name)
    return where


def _distinguishes(rows: Sequence[RowDict], label: str, where: Sequence[str], x: str) -> bool:
    """Return whether lines by the columns `where` would join values of a label of which one is at several places."""
    lines: dict[tuple[object, ...], dict[object, set[object]]] = {}
    for row in rows:
        line = lines.setdefault((row["precision"], *(row.get(name) for name in where)), {})
        line.setdefault(row.get(label), set()).add(row[x])
    return any(len(line) > 1 and any(len(places) > 1 for places in line.values()) for line in lines.values())


def _format_value(name: str, value: Any, parameters: Mapping[str, int]) -> str:
    if value is None:
        return ""
    if name == "kv_lens":
        return registry.case_name("", str(value)) or str(value)
    return f"{name}={value:g}" if name in parameters else f"({value})" if name == "cache" else str(value)


def _draw(ax: Axes, content: _LinePlot, room: Inches) -> None:
    colors, looks = ink(ax), styles(line.precision for line in content.lines)
    aparts = list(dict.fromkeys(line.apart for line in content.lines))
    dashes = {apart: _DASHES[place % len(_DASHES)] for place, apart in enumerate(aparts)}
    for line in content.lines:
        look = looks[line.precision]
        dash: Any = dashes[line.apart]
        ax.plot(*inputs.split_points(line.points), color=look.color, linewidth=1.5, linestyle=dash, zorder=2.8)
        hollow = [inputs.is_hollow(row) for row in line.rows]
        draw_marks(ax, line.points, hollow, look.color, marker=look.marker, markersize=5, zorder=3.2)
    handles: list[Any] = [
        line_handle(cut(name, 16).upper(), color=look.color, marker=look.marker, markersize=5)
        for name, look in looks.items()
    ]
    for apart, dash in dashes.items() if len(aparts) > 1 else ():
        handles.append(line_handle(apart or "(without)", color=colors.text, linestyle=dash))
    handles += _draw_streams(ax, content, looks, colors)
    handles += _draw_cliffs(ax, content, colors)
    _scale_axes(ax, content)
    handles += _draw_capacity(ax, content, looks, colors)
    if text := inputs.explain_hollow(row for line in content.lines for row in line.rows):
        handles.append(ring_handle(text, colors.text))
    add_legend_above(ax, handles, room)
    if len(aparts) > len(_DASHES):
        _name_ends(ax, content.lines, colors.text)
    title = f"{figure_title(content.y)} over {content.x.title or content.x.name}"
    add_title(ax, capitalize(title), content.notes, room)
    ax.set_xlabel(axis_label(content.x), parse_math=False)
    ax.set_ylabel(axis_label(content.y), parse_math=False)
    finish_axes(ax, grid="both")


def _name_ends(ax: Axes, lines: Sequence[_Line], color: str) -> None:
    """Name lines that differ in colour alone, at the end where they are further apart."""
    from bwprof.plot.labels import name_points

    first, last = (sorted(line.points[end][1] for line in lines) for end in (0, -1))
    end = 0 if min(b - a for a, b in pairwise(first)) > min(b - a for a, b in pairwise(last)) else -1
    ends: dict[str, tuple[float, float]] = {}
    for line in lines:
        ends[line.apart] = max(ends.get(line.apart, (0.0, 0.0)), line.points[end])
    names = [(name, at, color) for name, at in ends.items() if name]
    name_points(ax, names, [point for line in lines for point in line.points])


def _draw_streams(ax: Axes, content: _LinePlot, looks: Mapping[str, Style], colors: Ink) -> list[Any]:
    if content.y.name != "bandwidth_gb_s" and content.y.unit != "ms":
        return []
    drawn: set[tuple[tuple[float, float], ...]] = set()
    look: dict[str, Any] = {"linewidth": 1.0, "linestyle": ":"}
    for line in content.lines:
        points = []
        for row, (x, _) in zip(line.rows, line.points, strict=True):
            rate = measured_or_none(row.get("attainable_gb_s"))
            if rate and rate > 0:
                points.append((x, rate if content.y.unit != "ms" else (moved_bytes(row) or 0) / rate / 1e6))
        key = tuple((x, round(y, 6)) for x, y in points)
        if len(points) > 1 and key not in drawn:
            drawn.add(key)
            ax.plot(*inputs.split_points(points), color=looks[line.precision].color, zorder=2.5, **look)
    label = f"{schema.find_column('attainable_gb_s').title}: a plain stream of the same bytes"
    return [line_handle(label, color=colors.soft, **look)] if drawn else []


def _draw_cliffs(ax: Axes, content: _LinePlot, colors: Ink) -> list[Any]:
    """Draw rings around rows that take more time than their neighbours' work explains."""
    swept = content.x.name in schema.param_names() or not content.x.group
    rows = [cliff.slow for line in content.lines if swept for cliff in find_cliffs_along(line.rows, content.x.name)]
    points = [(float(row[content.x.name]), float(row[content.y.name])) for row in rows]
    look: dict[str, Any] = {"marker": "o", "markersize": 10, "markeredgecolor": colors.alarm}
    ax.plot(*inputs.split_points(points), color="none", linewidth=0, zorder=3.3, **look)
    return [ring_handle("cliff: more time than its work explains", colors.alarm, **look)] if rows else []


def _scale_axes(ax: Axes, content: _LinePlot) -> None:
    xs, ys = inputs.split_points([point for line in content.lines for point in line.points])
    if min(xs) > 0 and max(xs) >= _LOG_FROM * min(xs):
        ax.set_xscale("log", base=2 if all(x.is_integer() for x in xs) else 10)
        _set_ticks(ax, sorted(set(xs)))
    if content.y.unit == "ms" and min(ys) > 0 and max(ys) >= _LOG_FROM * min(ys):
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


def _draw_capacity(ax: Axes, content: _LinePlot, looks: Mapping[str, Style], colors: Ink) -> list[Any]:
    drawn: list[float] = []
    for line in content.lines if content.cache_bytes is not None else ():
        at = _crossing(line, content.cache_bytes or 0.0)
        if at is not None and not any(abs(at - other) < 1e-3 * at for other in drawn):
            drawn.append(at)
            ax.axvline(at, color=looks[line.precision].color, alpha=0.9, zorder=1, **_DOTS)
    label = f"bytes fill the cache ({format_bytes(content.cache_bytes or 0)})"
    return [line_handle(label, color=colors.soft, **_DOTS)] if drawn else []


def _crossing(line: _Line, capacity: float) -> float | None:
    """Return where the bytes that a launch touches grow beyond a capacity; None where they do not."""
    bytes_ = [measured_or_none(row.get("footprint_bytes")) or float(moved_bytes(row) or 0) for row in line.rows]
    places = [(x, touched) for (x, _), touched in zip(line.points, bytes_, strict=True) if touched > 0 and x > 0]
    for (left, few), (right, many) in pairwise(places):
        if few < capacity <= many and right > left:
            share = math.log(capacity / few) / math.log(many / few)
            return float(left * (right / left) ** share)
    return None
