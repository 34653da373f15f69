"""Titles, legends, marks and texts of axes; legends within the axes, which grow for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.plot.canvas import Inches, count_columns, measure_width
from bwprof.plot.styles import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LINE_INCHES = 0.17  # height of a legend's line of 8 points


def add_title(ax: Axes, title: str, notes: Sequence[str], room: Inches, *, points: float = 11.0) -> None:
    """Add a title, and a line of the notes that are not empty, in letters that fit the width."""
    lines = list(filter(None, [title, ", ".join(filter(None, notes))]))
    widest = max(measure_width(line, 10.0) for line in lines)
    size = max(6.0, min(points, 10.0 * room[0] / max(widest, 0.1)))
    ax.set_title("\n".join(lines), loc="left", fontsize=size, parse_math=False)


def capitalize(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def line_handle(label: str, **look: Any) -> Any:
    """Make a legend's entry for a line, or for a mark where `linewidth` is 0."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def ring_handle(label: str, color: str, *, face: str = "none", **look: Any) -> Any:
    """Make a legend's entry for hollow marks."""
    ring = {"linewidth": 0, "marker": "o", "markersize": 5, "color": face, "markeredgecolor": color}
    return line_handle(label, **ring | look)


def star_handle(label: str, color: str) -> Any:
    """Make a legend's entry for numbers with a star."""
    return line_handle(label, linewidth=0, marker="$*$", color=color)


def bar_handle(label: str, color: str, hatch: str, ground: str) -> Any:
    """Make a legend's entry for bars."""
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 1, 1, facecolor=color, hatch=hatch, label=label, edgecolor=ground, linewidth=0)


def draw_bar(
    ax: Axes, left: float, middle: float, width: float, height: float, color: str, *, hollow: bool = False, **look: Any
) -> str:
    """Draw a horizontal bar, with an outline alone where it is `hollow`, and return the colour of its face."""
    from matplotlib.patches import Rectangle

    ground = ink(ax).ground
    face, edge = (ground, color) if hollow else (color, ground)
    look = {"facecolor": face, "edgecolor": edge, "linewidth": 0.8 if hollow else 0} | look
    ax.add_patch(Rectangle((left, middle - height / 2), width, height, **look))
    return face


def draw_marks(
    ax: Axes, points: Sequence[tuple[float, float]], hollow: Sequence[bool], color: str, **look: Any
) -> None:
    """Draw marks; those where `hollow` is True without a filling."""
    for empty, fill in ((False, color), (True, ink(ax).ground)):
        own = [point for point, is_hollow in zip(points, hollow, strict=True) if is_hollow == empty]
        xs, ys = [x for x, _ in own], [y for _, y in own]
        ax.plot(xs, ys, color=fill, markeredgecolor=color, linewidth=0, **look)


def write_after(ax: Axes, text: str, end: tuple[float, float], color: str, *, gap: float = 4.0, **look: Any) -> None:
    """Write a text after the end of a bar, `gap` points apart."""
    place: dict[str, Any] = {"xytext": (gap, 0), "textcoords": "offset points", "va": "center_baseline"}
    ax.annotate(text, end, color=color, parse_math=False, **place | look)


def add_legend(ax: Axes, handles: Sequence[Any], **options: Any) -> Any:
    """Add a legend in the colours of its axes, whose texts are not parsed as formulas."""
    inner = ink(ax)
    defaults = {"fontsize": 8, "framealpha": 0.9, "borderaxespad": 0.3, "columnspacing": 1.4}
    colors = {"facecolor": inner.ground, "edgecolor": "none", "labelcolor": inner.text}
    legend = ax.legend(handles=list(handles), **defaults | colors | options)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def add_legend_above(ax: Axes, handles: Sequence[Any], room: Inches) -> None:
    """Add a legend above the data, and extend the y axis for it."""
    columns, inches = _measure(handles, room, 8.0)
    share = min(0.6, inches / max(room[1], 0.5))
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log":
        ax.set_ylim(low, low * (high / low) ** (1 / (1 - share)))
    else:
        ax.set_ylim(low, low + (high - low) / (1 - share))
    add_legend(ax, handles, loc="upper left", ncols=columns, handlelength=2.2, labelspacing=0.3)


def add_legend_over_lines(
    ax: Axes, handles: Sequence[Any], count: int, room: Inches, *, points: float = 8.0, more: float = 0.0
) -> float:
    """Add a legend above `count` lines of equal height, from the top down, and `more` inches.

    Returns
    -------
    float
        The height of a line, inches.
    """
    columns, inches = _measure(handles, room, points)
    each = max((room[1] - inches - more) / count, 0.02)
    ax.set_ylim(count - 0.5, -0.5 - (inches + more) / each)
    add_legend(ax, handles, loc="upper left", ncols=columns, fontsize=points, handlelength=1.6, labelspacing=0.35)
    return each


def _measure(handles: Sequence[Any], room: Inches, points: float) -> tuple[int, float]:
    """Return a legend's columns, and its height in inches."""
    columns = count_columns([str(handle.get_label()) for handle in handles], room[0], points)
    return columns, (-(-len(handles) // columns) * LINE_INCHES + 0.08) * points / 8
