"""Titles, and legends within their axes, which are made longer for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.plot.canvas import Inches, count_columns, measure_width
from bwprof.plot.styles import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LINE_INCHES = 0.17  # of 8 points

_LEAST_POINTS = 6.0


def add_title(ax: Axes, head: str, notes: Sequence[str], room: Inches, *, points: float = 11.0) -> None:
    """A title with a line of notes, in letters that fit the width."""
    lines = [head, *([", ".join(notes)] if notes else [])]
    widest = max(measure_width(line, 10.0) for line in lines)
    size = max(_LEAST_POINTS, min(points, 10.0 * room[0] / max(widest, 0.1)))
    ax.set_title("\n".join(lines), loc="left", fontsize=size, parse_math=False)


def line_handle(label: str, **look: Any) -> Any:
    """Make the entry of a legend for a line, or for a mark where `linewidth` is 0."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def ring_handle(label: str, color: str, **look: Any) -> Any:
    """Make the entry of a legend for hollow marks."""
    ring = {"linewidth": 0, "marker": "o", "markersize": 5, "color": "none", "markeredgecolor": color}
    return line_handle(label, **ring | look)


def draw_marks(
    ax: Axes, points: Sequence[tuple[float, float]], hollow: Sequence[bool], color: str, **look: Any
) -> None:
    """Draw marks, some of them without a filling."""
    for empty, fill in ((False, color), (True, ink(ax).ground)):
        own = [point for point, is_empty in zip(points, hollow, strict=True) if is_empty == empty]
        xs, ys = [x for x, _ in own], [y for _, y in own]
        ax.plot(xs, ys, color=fill, markeredgecolor=color, linewidth=0, **look)


def write_after(ax: Axes, text: str, end: tuple[float, float], color: str, *, apart: float = 4.0, **how: Any) -> None:
    """Write a text behind the end of a bar, some points apart."""
    place: dict[str, Any] = {"xytext": (apart, 0), "textcoords": "offset points", "va": "center_baseline"}
    ax.annotate(text, end, color=color, parse_math=False, **place | how)


def add_legend(ax: Axes, handles: Sequence[Any], **where: Any) -> Any:
    """A legend on the ground of its axes, whose words are no formulas."""
    inner = ink(ax)
    options: dict[str, Any] = {"fontsize": 8, "framealpha": 0.9, "borderaxespad": 0.3, "columnspacing": 1.4} | where
    legend = ax.legend(
        handles=list(handles), facecolor=inner.ground, edgecolor="none", labelcolor=inner.text, **options
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def add_legend_above(ax: Axes, handles: Sequence[Any], room: Inches, *, points: float = 8.0) -> None:
    """A legend above all lines."""
    columns, inches = _needed(handles, room, points)
    share = min(0.6, inches / max(room[1], 0.5))
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log":
        ax.set_ylim(low, low * (high / low) ** (1 / (1 - share)))
    else:
        ax.set_ylim(low, low + (high - low) / (1 - share))
    add_legend(ax, handles, loc="upper left", ncols=columns, fontsize=points, handlelength=2.2, labelspacing=0.3)


def add_legend_over_lines(
    ax: Axes, handles: Sequence[Any], count: int, room: Inches, *, points: float = 8.0, more: float = 0.0
) -> float:
    """A legend above so many lines of equal height, from the top down, and `more` inches; the inches of a line."""
    columns, band = _needed(handles, room, points)
    each = max((room[1] - band - more) / count, 0.02)
    ax.set_ylim(count - 0.5, -0.5 - (band + more) / each)
    add_legend(ax, handles, loc="upper left", ncols=columns, fontsize=points, handlelength=1.6, labelspacing=0.35)
    return each


def _needed(handles: Sequence[Any], room: Inches, points: float) -> tuple[int, float]:
    """A legend's columns, and its inches."""
    labels = [str(handle.get_label()) for handle in handles]
    columns = count_columns(labels, room[0], points)
    return columns, (-(-len(labels) // columns) * _LINE_INCHES + 0.08) * points / 8
