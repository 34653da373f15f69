"""Bandwidth, time or another figure over a parameter: a line for each precision and whatever else tells rows apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.bottleneck import STEP
from bwprof.analysis.cliffs import find_cliffs_along
from bwprof.analysis.summarize import ordered_precisions
from bwprof.plot.canvas import Drawing, Inches, cut, note_left_out
from bwprof.plot.data import device_of, facts_of, hollow, need, number_column, remarks, rows_of, why_hollow
from bwprof.plot.legends import add_legend_above, add_title, draw_marks, line_handle, ring_handle
from bwprof.plot.styles import finish_axes, ink, styles
from bwprof.results import schema
from bwprof.results.columns import Column
from bwprof.results.pairs import moved_bytes
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_bytes
from bwprof.text.parsing import measured_or_none, parse_name, quote_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (9.0, 5.2)

_MOST_LINES = 12

_LONGEST = 44

_APART = ("operation", "variant", "cache", "kv_lens", "device", "device_uuid", "hostname", "run_id")

_SELDOM = ("variant", "run_id")  # only where rows are not told apart without

# Of lines in one precision.
_DASHES = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (3, 3)), (0, (8, 1, 1, 1, 1, 1)))

_LOGARITHMIC = 4.0  # largest over smallest value, from which on an axis is one of factors

_TIMES = "ms"

_LEAST_BINARY = 4096  # from which on a binary suffix is shorter

_LEAST_APART = 0.035  # of an axis: ticks nearer to each other cover each other's words


@dataclass(frozen=True, slots=True)
class _Line:
    """Rows along the parameter, in its order."""

    label: str
    precision: str
    rows: list[RowDict]

    @property
    def apart(self) -> str:
        """What it is called beside the other lines in its precision."""
        return self.label.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class _Plan:
    x: Column
    y: Column
    lines: list[_Line]
    title: str
    notes: list[str]
    cache_bytes: float | None

    def points(self, line: _Line) -> list[tuple[float, float]]:
        return [(float(row[self.x.name]), float(row[self.y.name])) for row in line.rows]


def lines(data: Any, ax: Axes | None = None, *, x: str | None = None, y: str = "bandwidth_gb_s") -> Axes:
    """A figure over a parameter, a line per precision, with what plain streams of the same bytes attain.

    Dotted lines show where the bytes that a launch touches fill the cache; hollow marks are rows in doubt (flags), or
    predicted.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, a file of results, with several values of a parameter.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.
    x : str, optional
        The parameter, or any other column of numbers; when left out the parameter with the most values.
    y : str
        What is drawn: bandwidth_gb_s, time_ms or another column of numbers.

    Raises
    ------
    ValueError
        When a classic column is missing, no parameter has two values, or there is nothing to draw.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", N=[64, 128], K=64, backend="cpu", cache="hot", roofs=False, precision="fp32")
    >>> bwprof.plot.lines(frame).get_xlabel()
    'N'
    """
    return picture(data, x=x, y=y).on(ax)


def picture(data: Any, *, x: str | None = None, y: str = "bandwidth_gb_s") -> Drawing:
    """The same as a picture to be drawn or written."""
    plan = _plan(data, x, y)
    return Drawing(_SIZE, (_SIZE[0] - 1.4, _SIZE[1] - 1.0), lambda ax, room: _draw(ax, plan, room))


def count_values(rows: Sequence[RowDict]) -> dict[str, int]:
    """The parameters with several values, and how many, those with the most first."""
    counts = {name: len({row.get(name) for row in rows} - {None}) for name in schema.param_names()}
    counts |= {name: count for name, count in _own_counts(rows).items() if name not in counts}
    return dict(sorted(((name, count) for name, count in counts.items() if count > 1), key=lambda found: -found[1]))


def _own_counts(rows: Sequence[RowDict]) -> dict[str, int]:
    """Of labels that are the caller's own and hold numbers; where a shape stands in a model's steps is none."""
    found = {name: {row.get(name) for row in rows} - {None} for name in _own_names(rows)}
    return {name: len(values) for name, values in found.items() if all(measured_or_none(v) is not None for v in values)}


def _own_names(rows: Sequence[RowDict]) -> list[str]:
    return [name for name in schema.extra_names(rows) if name not in ("count", "role", *STEP) or "model" not in rows[0]]


def _tells_apart(rows: Sequence[RowDict], label: str, where: Sequence[str], x: str) -> bool:
    """Whether lines by the columns `where` would join values of a label of which one stands at several places."""
    lines: dict[tuple[object, ...], dict[object, set[object]]] = {}
    for row in rows:
        line = lines.setdefault((row["precision"], *(row.get(name) for name in where)), {})
        line.setdefault(row.get(label), set()).add(row[x])
    return any(len(line) > 1 and any(len(places) > 1 for places in line.values()) for line in lines.values())


def _plan(data: Any, x: str | None, y: str) -> _Plan:
    rows, frame = rows_of(data)
    column = number_column("y", y)
    usable = [row for row in need(rows, y) if row["status"] in ("ok", "predicted")]
    choice = count_values(usable)
    name = _chosen(usable, x, choice)
    drawn = [row for row in need(usable, name) if row[name] is not None]
    found = _lines(drawn, name, choice)
    if len(found) > _MOST_LINES:
        found.sort(key=lambda line: len(line.rows) < 2)
    notes = note_left_out(min(len(found), _MOST_LINES), len(found), "lines")
    notes += remarks([row for row in rows if row["status"] not in ("ok", "predicted")] + drawn)
    devices = device_of(drawn)
    operations = list(dict.fromkeys(str(row["operation"]) for row in drawn))
    words = [cut(found, _LONGEST) for found in (operations if len(operations) == 1 else [])]
    words += [cut(devices[0], _LONGEST)] if len(devices) == 1 else []
    cache = measured_or_none(facts_of(frame).get("cache_bytes")) if len(devices) < 2 else None
    return _Plan(find_column(name), column, found[:_MOST_LINES], ", ".join(words), notes, cache or None)


def _chosen(rows: Sequence[RowDict], x: str | None, choice: Mapping[str, int]) -> str:
    if x is None:
        if not choice:
            raise ValueError("no parameter has two values: a line needs a sweep over one (x= names any other column)")
        return next(iter(choice))
    if not any(parse_name(x, "x") in row for row in rows):
        number_column("x", x)
        raise ValueError(f"x: no row has a column {quote_text(x)}")
    return x


def find_column(name: str) -> Column:
    """A column of the schema, or a caller's own."""
    try:
        return schema.find_column(name)
    except KeyError:
        return Column(name, "number", "")


def axis_label(column: Column) -> str:
    """A column on an axis: its unit is not said where it is its name."""
    return column.label if column.unit != column.name else column.name


def _lines(rows: Sequence[RowDict], x: str, choice: Mapping[str, int]) -> list[_Line]:
    """Rows by precision, and by what else tells them apart, each along the parameter."""
    names = dict.fromkeys((*choice, *schema.param_names(), *_APART))
    apart = [name for name in names if name != x and len({row.get(name) for row in rows}) > 1]
    where = [name for name in apart if name not in _SELDOM]
    for name in (name for name in apart if name in _SELDOM):  # a variant changes along a line: it is no line's own
        keys = [(row["precision"], row[x], *(row.get(other) for other in where)) for row in rows]
        if len(set(keys)) < len(keys):
            where.append(name)
    for name in ("case", *_own_names(rows)):
        if name not in (x, *where) and _tells_apart(rows, name, where, x):
            where.append(name)
    apart = where
    found: dict[tuple[object, ...], list[RowDict]] = {}
    for row in rows:
        found.setdefault((row["precision"], *(row.get(name) for name in apart)), []).append(row)
    told = [name for name in apart if name not in ("device_uuid", "run_id")]
    order = {name: place for place, name in enumerate(ordered_precisions(rows))}
    result = []
    for key, own in sorted(found.items(), key=lambda item: order[str(item[0][0])]):
        words = [cut(str(key[0]), 16).upper()]
        words += [
            _format_choice(name, value, choice) for name, value in zip(apart, key[1:], strict=True) if name in told
        ]
        along = sorted(own, key=lambda row: float(row[x]))
        result.append(_Line(cut(" ".join(word for word in words if word), _LONGEST), str(key[0]), along))
    return result


def _format_choice(name: str, value: Any, choice: Mapping[str, int]) -> str:
    if value is None:
        return ""
    if name == "kv_lens":
        return registry.case_name("", str(value)) or str(value)
    return f"{name}={value:g}" if name in choice else f"({value})" if name == "cache" else str(value)


# ---- drawing ----


def _draw(ax: Axes, plan: _Plan, room: Inches) -> None:
    colors, looks = ink(ax), styles(line.precision for line in plan.lines)
    aparts = list(dict.fromkeys(line.apart for line in plan.lines))
    for line in plan.lines:
        look, dash = looks[line.precision], _dash(aparts.index(line.apart))
        points = plan.points(line)
        ax.plot(*_split(points), color=look.color, linewidth=1.5, linestyle=dash, zorder=2.8)
        marks: dict[str, Any] = {"marker": look.marker, "markersize": 5, "zorder": 3.2}
        draw_marks(ax, points, [hollow(row) for row in line.rows], look.color, **marks)
    handles: list[Any] = [
        line_handle(cut(name, 16).upper(), color=look.color, marker=look.marker, markersize=5)
        for name, look in looks.items()
    ]
    if len(aparts) > 1:
        handles += [
            line_handle(name or "(without)", color=colors.text, linestyle=_dash(place))
            for place, name in enumerate(aparts)
        ]
    handles += _attainable(ax, plan, looks, colors.soft)
    handles += _cliffs(ax, plan, colors.alarm)
    _axes(ax, plan)
    handles += _capacity(ax, plan, looks, colors.soft)
    if reason := why_hollow(row for line in plan.lines for row in line.rows):
        handles.append(ring_handle(reason, colors.text))
    add_legend_above(ax, handles, room)
    if len(aparts) > len(_DASHES):
        _end_names(ax, plan, colors.text)
    words = [*([plan.title] if plan.title else []), *plan.notes]
    first = f"{plan.y.title or plan.y.name.replace('_', ' ')} over {plan.x.title or plan.x.name}"
    add_title(ax, first[0].upper() + first[1:], words, room)
    ax.set_xlabel(axis_label(plan.x), parse_math=False)
    ax.set_ylabel(axis_label(plan.y), parse_math=False)
    finish_axes(ax, grid="both")


def _dash(place: int) -> Any:
    return _DASHES[place % len(_DASHES)]


def _end_names(ax: Axes, plan: _Plan, color: str) -> None:
    """Name the lines that are drawn alike but for the precision's colour, at the end where they are further apart."""
    from bwprof.plot.labels import name_points

    every = [point for line in plan.lines for point in plan.points(line)]
    ends: dict[str, tuple[float, float]] = {}
    first, last = (sorted(plan.points(line)[end][1] for line in plan.lines) for end in (0, -1))
    end = 0 if min(b - a for a, b in pairwise(first)) > min(b - a for a, b in pairwise(last)) else -1
    for line in plan.lines:
        ends[line.apart] = max(ends.get(line.apart, (0.0, 0.0)), plan.points(line)[end])
    name_points(ax, [(name, end, color) for name, end in ends.items() if name], every)


def _split(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _attainable(ax: Axes, plan: _Plan, looks: Mapping[str, Any], color: str) -> list[Any]:
    """What plain streams of the same bytes attain, as a bandwidth or a time."""
    if plan.y.name != "bandwidth_gb_s" and plan.y.unit != _TIMES:
        return []
    drawn = False
    curves: set[tuple[tuple[float, float], ...]] = set()
    for line in plan.lines:
        points = [point for row in line.rows if (point := _stream(row, plan)) is not None]
        key = tuple((x, round(y, 6)) for x, y in points)
        if len(points) > 1 and key not in curves:
            curves.add(key)
            ax.plot(*_split(points), color=looks[line.precision].color, linewidth=1.0, linestyle=":", zorder=2.5)
            drawn = True
    label = f"{schema.find_column('attainable_gb_s').title}: a plain stream of the same bytes"
    return [line_handle(label, color=color, linewidth=1.0, linestyle=":")] if drawn else []


def _stream(row: RowDict, plan: _Plan) -> tuple[float, float] | None:
    attainable = measured_or_none(row.get("attainable_gb_s"))
    if not attainable or attainable < 0:
        return None
    moved = moved_bytes(row) or 0
    value = attainable if plan.y.name == "bandwidth_gb_s" else moved / attainable / 1e6
    return float(row[plan.x.name]), value


def _cliffs(ax: Axes, plan: _Plan, color: str) -> list[Any]:
    """Rings around rows that take more time than their neighbours' work explains."""
    from matplotlib.lines import Line2D

    swept = plan.x.name in schema.param_names() or not plan.x.group
    rows = [cliff.slow for line in plan.lines if swept for cliff in find_cliffs_along(line.rows, plan.x.name)]
    look: dict[str, Any] = {"marker": "o", "markersize": 10, "color": "none", "markeredgecolor": color, "linewidth": 0}
    ax.plot([float(row[plan.x.name]) for row in rows], [float(row[plan.y.name]) for row in rows], zorder=3.3, **look)
    return [Line2D([], [], label="cliff: more time than its work explains", **look)] if rows else []


def _axes(ax: Axes, plan: _Plan) -> None:
    xs = [x for line in plan.lines for x, _ in plan.points(line)]
    ys = [y for line in plan.lines for _, y in plan.points(line)]
    if min(xs) > 0 and max(xs) >= _LOGARITHMIC * min(xs):
        ax.set_xscale("log", base=2 if all(float(x).is_integer() for x in xs) else 10)
        _count_ticks(ax, sorted(set(xs)))
    if plan.y.unit == _TIMES and min(ys) > 0 and max(ys) >= _LOGARITHMIC * min(ys):
        ax.set_yscale("log")
    elif min(ys) >= 0:
        ax.set_ylim(bottom=0)


def _count_ticks(ax: Axes, xs: Sequence[float]) -> None:
    """Ticks at the values themselves while they are few, written as people type them: 4Ki, 1000."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    apart = (max(xs) / min(xs)) ** _LEAST_APART
    places = [xs[0]]
    places += [value for value in xs[1:] if value >= apart * places[-1]]
    few = len(xs) <= 12
    ax.xaxis.set_major_locator(FixedLocator(places) if few else LogLocator(base=2, numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    text = count_formatter(places if few else [2.0 ** round(math.log2(value)) for value in xs])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def count_formatter(values: Sequence[float]) -> Callable[[float], str]:
    """Write the numbers of one axis alike: with binary suffixes (4Ki, 1Mi) if those of 4096 and more allow it."""
    large = [value for value in values if value >= _LEAST_BINARY]
    binary = all(value % 2**10 == 0 for value in large)

    def text(value: float) -> str:
        for suffix, unit in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)) if binary else ():
            if value >= max(unit, _LEAST_BINARY) and value % unit == 0:
                return f"{value / unit:g}{suffix}"
        return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.6g}"

    return text


def _capacity(ax: Axes, plan: _Plan, looks: Mapping[str, Any], color: str) -> list[Any]:
    """Where what a launch touches fills the cache."""
    if plan.cache_bytes is None:
        return []
    drawn: list[float] = []
    for line in plan.lines:
        at = _crossing(line, plan.x.name, plan.cache_bytes)
        if at is not None and not any(abs(at - other) < 1e-3 * at for other in drawn):
            drawn.append(at)
            own = looks[line.precision].color
            ax.axvline(at, color=own, linewidth=1.0, linestyle=(0, (1, 1.5)), alpha=0.9, zorder=1)
    label = f"bytes fill the cache ({format_bytes(plan.cache_bytes)})"
    return [line_handle(label, color=color, linewidth=1.0, linestyle=(0, (1, 1.5)))] if drawn else []


def _crossing(line: _Line, x: str, capacity: float) -> float | None:
    """Where the bytes that a launch touches grow beyond a capacity; None where they do not."""
    found = [(float(row[x]), touched) for row in line.rows if (touched := _touched(row)) > 0 and row[x] > 0]
    for (left, few), (right, many) in pairwise(found):
        if few < capacity <= many and right > left:
            share = math.log(capacity / few) / math.log(many / few)
            return float(left * (right / left) ** share)
    return None


def _touched(row: RowDict) -> float:
    own = measured_or_none(row.get("footprint_bytes"))
    return own if own else float(moved_bytes(row) or 0)
