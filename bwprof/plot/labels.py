"""Titles, legends, and names beside points that cover neither each other nor a point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist

from bwprof.plot.styles import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

_RADII = (6.5, 13.0, 24.0, 38.0, 55.0, 75.0)  # points from what a name belongs to

_ANGLES = tuple(math.radians(angle) for angle in (20, -20, 160, 200, 90, -90, 50, -50, 130, -130))

_FEW, _NEAR = 12, 3  # names, and how many of the radii more of them than these may use

_FAR = 9.0  # from here on a thin line leads to the name


class Labels(Artist):
    """Places annotations around their points each time the figure is drawn; those without room are not shown.

    The earlier ones have the choice. `points` and `lines` (pixels are worked out from data) are kept clear: points if
    at all possible, lines where it costs nothing. No line that leads to a name goes through another name.
    """

    def __init__(
        self,
        notes: Sequence[Annotation],
        points: Sequence[tuple[float, float]],
        lines: Sequence[tuple[float, float]] = (),
    ) -> None:
        super().__init__()
        self.set_zorder(-1)  # before everything that it places
        self.set_in_layout(False)
        self._notes = list(notes)
        self._points = np.array(points, float).reshape(-1, 2)
        self._lines = np.array(lines, float).reshape(-1, 2)

    def draw(self, renderer: Any, *_: Any, **__: Any) -> None:
        """Nothing of its own: it moves the names."""
        ax = self.axes
        if ax is None or not self._notes:
            return
        scale = renderer.points_to_pixels(1.0)
        frame = ax.get_window_extent(renderer)
        transform: Any = ax.transData
        points, lines = transform.transform(self._points), transform.transform(self._lines)
        legend = ax.get_legend()
        radii = _RADII if len(self._notes) <= _FEW else _RADII[:_NEAR]  # of many, long ways cross each other
        taken = [legend.get_window_extent(renderer).extents] if legend is not None else []
        ways: list[tuple[Any, Any]] = []  # of the thin lines, from a point to its name
        for note in self._notes:
            note.set_visible(True)
            note.xyann = (0.0, 0.0)
            size = note.get_window_extent(renderer) if note.arrow_patch is None else _text_extent(note, renderer)
            at = transform.transform(note.xy)
            place = self._best(radii, at, size.width, size.height, scale, frame.extents, taken, ways, points, lines)
            if place is None:
                note.set_visible(False)
                continue
            (x, y), box, way = place
            note.xyann = ((x - at[0]) / scale, (y - at[1]) / scale)
            if note.arrow_patch is not None:
                note.arrow_patch.set_visible(way is not None)
            taken.append(box)
            ways += [] if way is None else [way]

    @staticmethod
    def _best(
        radii: Sequence[float],
        at: Any,
        width: float,
        height: float,
        scale: float,
        frame: Any,
        taken: list[Any],
        ways: list[tuple[Any, Any]],
        points: Any,
        lines: Any,
    ) -> tuple[tuple[float, float], Any, tuple[Any, Any] | None] | None:
        """The lower left corner, the box, and the way to it where it is far; None where there is no room."""
        best: tuple[float, tuple[float, float], Any, tuple[Any, Any] | None] | None = None
        others = np.array(taken, float).reshape(-1, 4)
        for radius in radii:
            for angle in _ANGLES:
                dx, dy = math.cos(angle), math.sin(angle)
                x = at[0] + scale * radius * dx - width * (0 if dx > 0.1 else 1 if dx < -0.1 else 0.5)
                y = at[1] + scale * radius * dy - height * (0.5 - 0.5 * dy)
                pad = 1.5 * scale
                box = np.array([x - pad, y - pad, x + width + pad, y + height + pad])
                if box[0] < frame[0] or box[1] < frame[1] or box[2] > frame[2] or box[3] > frame[3]:
                    continue
                way = (at, np.array([x + width / 2, y + height / 2])) if radius >= _FAR else None
                if _overlaps(others, box) or _crosses(ways, box) or (way and _crosses([way], others)):
                    continue
                covered = _inside(points, box, 0)
                if covered and len(radii) < len(_RADII):
                    continue
                cost = 4.0 * _inside(points, box, 3 * scale) + 1.0 * _inside(lines, box, 0) + radius / 40
                if best is None or cost < best[0]:
                    best = cost, (x, y), box, way
            if best is not None and best[0] < radius / 40 + 0.5:
                break
        return None if best is None else best[1:]


def _text_extent(note: Annotation, renderer: Any) -> Any:
    from matplotlib.text import Text

    note.update_positions(renderer)
    return Text.get_window_extent(note, renderer)


def _overlaps(boxes: Any, box: Any) -> bool:
    hit = (boxes[:, 0] < box[2]) & (boxes[:, 2] > box[0]) & (boxes[:, 1] < box[3]) & (boxes[:, 3] > box[1])
    return bool(hit.any())


def _crosses(ways: Sequence[tuple[Any, Any]], boxes: Any) -> bool:
    """Whether any of the straight ways goes through any of the boxes."""
    ends = np.array(ways, float).reshape(-1, 1, 2, 2)
    start, along = ends[:, :, 0], ends[:, :, 1] - ends[:, :, 0]
    shares = boxes.reshape(1, -1, 2, 2) - start[:, :, None]  # of the way, where it meets each side
    shares /= np.where(along, along, 1e-9)[:, :, None]
    enters, leaves = shares.min(axis=2).max(axis=-1), shares.max(axis=2).min(axis=-1)
    return bool(((enters < leaves) & (enters < 1) & (leaves > 0)).any())


def _inside(points: Any, box: Any, pad: float) -> float:
    hit = (points[:, 0] > box[0] - pad) & (points[:, 0] < box[2] + pad)
    return float((hit & (points[:, 1] > box[1] - pad) & (points[:, 1] < box[3] + pad)).sum())


def name_points(
    ax: Axes,
    names: Sequence[tuple[str, tuple[float, float], str]],
    points: Sequence[tuple[float, float]],
    lines: Sequence[tuple[float, float]] = (),
    *,
    fontsize: float = 7.0,
) -> Labels:
    """Write names (text, point, colour) beside their points, the important ones first, and keep points clear."""
    ground = ink(ax).ground
    notes = [
        ax.annotate(
            text,
            at,
            xytext=(0.0, 0.0),
            textcoords="offset points",
            fontsize=fontsize,
            color=color,
            parse_math=False,
            annotation_clip=False,
            va="bottom",
            ha="left",
            bbox={"boxstyle": "square,pad=0.08", "facecolor": ground, "edgecolor": "none", "alpha": 0.75},
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.4, "shrinkA": 0.0, "shrinkB": 2.0},
        )
        for text, at, color in names
    ]
    for note in notes:
        note.set_in_layout(False)
        note.set_zorder(2.9)  # below marks, above the lines that its ground covers
    placed = Labels(notes, points, lines)
    ax.add_artist(placed)
    return placed
