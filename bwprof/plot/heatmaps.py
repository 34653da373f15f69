"""Heatmaps: a figure over two parameters, a cell for each pair of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.plot import inputs
from bwprof.plot.canvas import Drawing, Inches, cut, draws, measure_width, note_left_out
from bwprof.plot.legends import add_title, capitalize
from bwprof.plot.series import axis_label, count_formatter, count_values, figure_title, find_column, require_column
from bwprof.plot.styles import finish_axes, ink, readable
from bwprof.results.schema import Column, RowDict
from bwprof.text.formatting import format_figure, plural
from bwprof.text.parsing import measured_or_none, quote_text, repr_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = "cividis"  # readable for people with colour-blindness
_CELL = (0.72, 0.42)  # inches
_MOST_CELLS = 60  # in one direction
_LARGEST, _LEAST, _AROUND = (14.0, 12.0), (5.0, 3.2), (1.9, 1.2)  # of the axes, and around them
_LONGEST = 44  # letters of a name
_Key = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Heatmap:
    """The parameters and their values, a row for each cell, the cells of failed rows, and notes for the title."""

    columns: tuple[Column, Column]
    value: Column
    axes: tuple[list[float], list[float]]
    rows: dict[_Key, RowDict]
    failed: set[_Key]
    notes: list[str]

    def cells(self, test: Callable[[RowDict], bool] = inputs.is_drawable) -> list[tuple[int, int, float]]:
        """Return the column, the line and the value of cells whose row passes a test."""
        xs, ys = self.axes
        chosen = [(key, float(row[self.value.name])) for key, row in self.rows.items() if test(row)]
        return [(xs.index(x), ys.index(y), value) for (x, y), value in chosen]

    @property
    def predicted(self) -> list[tuple[int, int, float]]:
        """The cells of predictions; none where all are, as a line through every cell would distinguish none."""
        cells = self.cells(inputs.is_predicted)
        return cells if len(cells) < len(self.rows) else []


@draws
def heatmap(
    data: Any,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    value: str = "bandwidth_gb_s",
    precision: str | None = None,
) -> Drawing:
    """Draw a figure over two parameters; of several rows of a pair the fastest.

    A cell with a cut corner has flags, one with a line across it is a prediction.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results, with two parameters.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.
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
    >>> bwprof.plot.heatmaps.heatmap(frame, x="N").get_ylabel()
    'K'
    """
    content = _read_content(data, x, y, value, precision)
    width, height = (
        max(least, min(len(values) * cell, largest))
        for values, cell, least, largest in zip(content.axes, _CELL, _LEAST, _LARGEST, strict=True)
    )
    size = (width + _AROUND[0], height + _AROUND[1])
    return Drawing(size, (width, height), lambda ax, room: _draw(ax, content, room))


def _read_content(data: Any, x: str | None, y: str | None, value: str, precision: str | None) -> _Heatmap:
    column = inputs.number_column("value", value)
    every = inputs.read_rows(data)[0]
    names, drawn, failed, notes = _choose_rows(every, x, y, value, precision)
    fastest: dict[_Key, RowDict] = {}
    for row in sorted(drawn, key=lambda row: measured_or_none(row.get("time_ms")) or float("inf")):
        fastest.setdefault((float(row[names[0]]), float(row[names[1]])), row)
    notes += ["the fastest of several rows"] if len(fastest) < len(drawn) else []
    axes: list[list[float]] = []
    for place, name in enumerate(names):
        values = sorted({key[place] for key in fastest})
        notes += note_left_out(min(len(values), _MOST_CELLS), len(values), f"values of {name}")
        axes.append(values[:_MOST_CELLS])
    inside = [(x, y) for x in axes[0] for y in axes[1]]
    cells = {key: fastest[key] for key in inside if key in fastest}
    keys: set[Any] = {tuple(measured_or_none(row.get(name)) for name in names) for row in failed}
    columns = (find_column(names[0]), find_column(names[1]))
    content = _Heatmap(columns, column, (axes[0], axes[1]), cells, keys.intersection(inside) - cells.keys(), notes)
    content.notes.extend(_explain_marks(content, [*drawn, *failed]))
    return content


def _choose_rows(
    every: Sequence[RowDict], x: str | None, y: str | None, value: str, precision: str | None
) -> tuple[tuple[str, str], list[RowDict], list[RowDict], list[str]]:
    """Return the parameters, the rows of one operation, precision and list of lengths, those that failed, and notes."""
    rows = _largest_group(inputs.require_numbers(filter(inputs.is_drawable, every), value), precision)
    names = _choose_parameters(rows, x, y)
    rows = inputs.require_numbers(rows, *names)
    lists = _choose_lists(rows, names)
    drawn = [row for row in rows if row["kv_lens"] in lists]
    first, others = drawn[0], len(rows) - len(drawn)
    same = [row for row in every if all(row[name] == first[name] for name in ("operation", "precision"))]
    failed = [row for row in same if not inputs.is_drawable(row) and (not others or row["kv_lens"] in lists)]
    notes = [
        cut(str(first["operation"]), _LONGEST),
        cut(str(first["precision"]), 16).upper(),
        *(cut(name, _LONGEST) for name in inputs.device_names(drawn)[:1]),
        registry.case_name("", first["kv_lens"]) if first["kv_lens"] and len(lists) == 1 else "",
        f"not drawn: {plural(others, 'row')} of other kv_lens" if others else "",
    ]
    return names, drawn, failed, notes


def _explain_marks(content: _Heatmap, rows: Sequence[RowDict]) -> list[str]:
    marks = (
        (content.cells(inputs.is_predicted), "\u2571 predicted" if content.predicted else "predicted"),
        (content.cells(inputs.is_doubtful), "\u25e5 see flags"),
        (content.failed, "\u00d7 failed or skipped"),
    )
    others = [note for note in inputs.note_rows(rows) if not (content.failed and note.startswith("not drawn"))]
    return [*(note for cells, note in marks if cells), *others]


def _choose_lists(rows: Sequence[RowDict], names: Sequence[str]) -> set[str | None]:
    """Return all lists of lengths; where a cell would have several, the one with the most rows."""
    by_cell: dict[tuple[object, ...], set[str | None]] = {}
    for row in rows:
        by_cell.setdefault(tuple(row[name] for name in names), set()).add(row["kv_lens"])
    if all(len(lists) == 1 for lists in by_cell.values()):
        return set().union(*by_cell.values())
    return {Counter(row["kv_lens"] for row in rows).most_common(1)[0][0]}


def _largest_group(rows: Sequence[RowDict], precision: str | None) -> list[RowDict]:
    """Return the rows of the operation and the precision that have the most."""
    if precision is not None and not isinstance(precision, str):
        raise TypeError(f"precision is {repr_short(precision)}: a name is needed")
    if precision is not None:
        name = registry.check_precision(precision, list(dict.fromkeys(row["precision"] for row in rows)))
        rows = [row for row in rows if row["precision"] == name]
    most = Counter((row["operation"], row["precision"]) for row in rows).most_common(1)[0][0]
    return [row for row in rows if (row["operation"], row["precision"]) == most]


def _choose_parameters(rows: Sequence[RowDict], x: str | None, y: str | None) -> tuple[str, str]:
    for argument, name in (("x", x), ("y", y)):
        if name is not None:
            require_column(rows, name, argument)
    counts = count_values(rows)
    rest = [name for name in counts if name not in (x, y)]
    first, second = (name if name is not None else (rest.pop(0) if rest else None) for name in (x, y))
    if first is None or second is None:
        there = ", ".join(counts) or "none"
        raise ValueError(f"a heatmap needs two parameters with several values each, and there are: {there}")
    if first == second:
        raise ValueError(f"x and y are both {quote_text(first)}: a heatmap needs two parameters")
    return first, second


def _draw(ax: Axes, content: _Heatmap, room: Inches) -> None:
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    xs, ys = content.axes
    drawn = content.cells()
    grid = np.full((len(ys), len(xs)), np.nan)
    for column, line, value in drawn:
        grid[line, column] = value
    low, high = (0.0, 100.0) if content.value.unit == "%" else (float(np.nanmin(grid)), float(np.nanmax(grid)))
    norm, colors = Normalize(low, max(high, low + 1e-12 * abs(low) + 1e-300)), colormaps[_COLORS]
    edges = [np.arange(len(values) + 1) - 0.5 for values in content.axes]
    look: dict[str, Any] = {"norm": norm, "cmap": colors, "edgecolors": ink(ax).ground, "linewidth": 0.5}
    image = ax.pcolormesh(*edges, np.ma.masked_invalid(grid), **look)

    def paint(value: float) -> Any:
        return colors(norm(value))

    _draw_marks(ax, content, room, paint)
    _write_numbers(ax, content, room, drawn, paint)
    for axis, values, inches in ((ax.xaxis, xs, room[0]), (ax.yaxis, ys, room[1])):
        step = max(1, round(len(values) * 0.45 / max(inches, 0.5)))
        axis.set_ticks(range(0, len(values), step), list(map(count_formatter(values), values[::step])))
    ax.set_xlim(-0.5, len(xs) - 0.5)
    ax.set_ylim(-0.5, len(ys) - 0.5)
    ax.set_xlabel(axis_label(content.columns[0]), parse_math=False)
    ax.set_ylabel(axis_label(content.columns[1]), parse_math=False)
    title = f"{figure_title(content.value)} over {content.columns[0].name} and {content.columns[1].name}"
    add_title(ax, capitalize(title), content.notes, room)
    finish_axes(ax)
    ax.tick_params(length=0)
    _add_scale(ax, image, content.value.label)


def _draw_marks(ax: Axes, content: _Heatmap, room: Inches, paint: Any) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    xs, ys = content.axes
    width, height = 0.18, 0.18 * room[0] / len(xs) * len(ys) / room[1]  # of a corner, as wide as high
    predicted, doubtful = content.predicted, content.cells(inputs.is_doubtful)
    ways = [[(x - 0.5, y - 0.5), (x + 0.5, y + 0.5)] for x, y, _ in predicted]
    paints = [readable(paint(value)) for _, _, value in predicted]
    ax.add_collection(LineCollection(ways, colors=paints, linewidths=0.7), autolim=False)
    corners = [[(x + 0.5 - width, y + 0.5), (x + 0.5, y + 0.5), (x + 0.5, y + 0.5 - height)] for x, y, _ in doubtful]
    paints = [readable(paint(value)) for _, _, value in doubtful]
    ax.add_collection(PolyCollection(corners, facecolors=paints, linewidths=0), autolim=False)
    if content.failed:
        columns, lines = [xs.index(x) for x, _ in content.failed], [ys.index(y) for _, y in content.failed]
        ax.plot(columns, lines, "x", color=ink(ax).soft, markersize=5)


def _write_numbers(
    ax: Axes, content: _Heatmap, room: Inches, cells: Sequence[tuple[int, int, float]], paint: Any
) -> None:
    """Write each cell's value where it is readable, in a gap of the line that crosses the cell."""
    texts = [(x, y, value, format_figure(value, whole_from=100)) for x, y, value in cells]
    width, height = (inches / len(values) for inches, values in zip(room, content.axes, strict=True))
    widest = max(measure_width(text, 10.0) for *_, text in texts)
    points = min(8.0, 10.0 * 0.85 * width / widest, 72 * height * 0.6)
    crossed = {(x, y) for x, y, _ in content.predicted}
    for x, y, value, text in texts if points >= 4.5 else ():
        color = paint(value)
        gap = {"facecolor": color, "edgecolor": "none", "pad": 1.0} if (x, y) in crossed else None
        look: dict[str, Any] = {"fontsize": points, "color": readable(color), "bbox": gap}
        ax.text(x, y, text, ha="center", va="center_baseline", **look)


def _add_scale(ax: Axes, image: Any, label: str) -> None:
    outer = ink(ax, outside=True)
    place = ax.inset_axes((1.02, 0.0, 0.025, 1.0))
    figure: Any = ax.get_figure()
    figure.colorbar(image, cax=place).outline.set_visible(False)
    place.tick_params(color=outer.soft, labelcolor=outer.text, labelsize=8)
    place.set_ylabel(label, color=outer.text, fontsize=9)
