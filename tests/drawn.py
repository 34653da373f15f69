"""What a picture shows: its words and where they stand, for tests of all kinds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from bwprof.plot.canvas import DARK, Drawing


def render(picture: Drawing, *, dark: bool = False) -> Axes:
    """A picture laid out as it is drawn, in a figure of its own size, at 72 dots an inch; no pixel is colored."""
    ground = DARK if dark else "white"
    figure = Figure(figsize=picture.size, layout="constrained", dpi=72, facecolor=ground)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(facecolor=ground)
    picture.draw(axes, picture.inner)
    figure.draw_without_rendering()
    return axes


def words(axes: Axes) -> list[Text]:
    """Every text that is seen."""
    figure: Any = axes.get_figure()
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if _is_seen(text, axes)]


def _is_seen(text: Text, axes: Axes) -> bool:
    """Tick labels beyond the ends of an axis are kept, and not drawn."""
    for axis in (axes.xaxis, axes.yaxis):
        for which in ("major", "minor"):
            ticks = axis.get_major_ticks() if which == "major" else axis.get_minor_ticks()
            low, high = sorted(axis.get_view_interval())
            for tick in ticks:
                if text in (tick.label1, tick.label2):
                    slack = 1e-9 * (abs(low) + abs(high))
                    return bool(low - slack <= tick.get_loc() <= high + slack)
    return True


def overlapping(axes: Axes) -> list[tuple[str, str]]:
    """Texts that cover each other, by more than a pixel."""
    boxes = [(text.get_text(), box) for text in words(axes) if (box := _box(text)) is not None]
    return [
        (one, other)
        for (one, a), (other, b) in combinations(boxes, 2)
        if a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 1 and b[1] < a[3] - 1
    ]


def outside(axes: Axes) -> list[str]:
    """Texts that the figure cuts off."""
    figure: Any = axes.get_figure()
    width, height = figure.bbox.width, figure.bbox.height
    found = [(text.get_text(), box) for text in words(axes) if (box := _box(text)) is not None]
    return [text for text, box in found if box[0] < -1 or box[1] < -1 or box[2] > width + 1 or box[3] > height + 1]


def _box(text: Text) -> tuple[float, float, float, float] | None:
    renderer = text.get_figure().canvas.get_renderer()  # type: ignore[union-attr]
    box = Text.get_window_extent(text, renderer)
    return (box.x0, box.y0, box.x1, box.y1) if box.width and box.height else None
