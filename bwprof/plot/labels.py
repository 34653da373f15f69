"""Names beside points that cover neither each other nor a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.text import Text

from bwprof.plot.styles import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

_RADII = np.array((6.5, 13.0, 24.0, 38.0, 55.0, 75.0))  # distances of a name from its point, points
_ANGLES = np.radians((20, -20, 160, 200, 90, -90, 50, -50, 130, -130))
_FEW, _NEAR = 12, 3  # more names than this use the first three radii alone: long leaders would cross
_FAR = 9.0  # from this radius on a thin line leads to the name
_STEPS = np.linspace(0, 1, 48)[:, None]  # along a leader


class Labels(Artist):
    """Places annotations around their points each time the figure is drawn, and hides those without room.

    Earlier annotations choose first. A name keeps clear of `points` where possible, and of `lines` where that costs
    nothing; both are in data coordinates. No leader crosses another name.
    """

    def __init__(self, notes: Sequence[Annotation], points: Sequence[Any], lines: Sequence[Any]) -> None:
        super().__init__()
        self.set_zorder(-1)  # drawn before everything that it places
        self.set_in_layout(False)
        self._notes = list(notes)
        self._points = np.array(points, float).reshape(-1, 2)
        self._lines = np.array(lines, float).reshape(-1, 2)

    def draw(self, renderer: Any, *_: Any, **__: Any) -> None:
        """Place the annotations."""
        ax = self.axes
        if ax is None or not self._notes:
            return
        scale = renderer.points_to_pixels(1.0)
        frame = ax.get_window_extent(renderer).extents
        transform: Any = ax.transData
        points, lines = transform.transform(self._points), transform.transform(self._lines)
        legend = ax.get_legend()
        boxes = [legend.get_window_extent(renderer).extents] if legend is not None else []
        leaders = np.empty((0, 2))  # points along those of the names so far
        radii = _RADII if len(self._notes) <= _FEW else _RADII[:_NEAR]
        far = np.repeat(radii >= _FAR, len(_ANGLES))
        for note in self._notes:
            note.set_visible(True)
            note.xyann = (0.0, 0.0)
            note.update_positions(renderer)
            at = transform.transform(note.xy)
            corners, places, ways = _candidates(at, Text.get_window_extent(note, renderer), radii, scale)
            free = (places[:, :2] >= frame[:2]).all(1) & (places[:, 2:] <= frame[2:]).all(1)
            free &= ~_overlap(places, boxes).any(1) & ~_contain(places, leaders).any(1)
            struck = _contain(np.reshape(boxes, (-1, 4)), ways.reshape(-1, 2)).any(0)
            free &= ~(far & struck.reshape(len(places), -1).any(1))
            if len(radii) < len(_RADII):
                free &= ~_contain(places, points).any(1)
            cost = 4.0 * _contain(places, points, 3 * scale).sum(1) + _contain(places, lines).sum(1)
            cost = np.where(free, cost + np.repeat(radii, len(_ANGLES)) / 40, np.inf)
            chosen = int(np.argmin(cost))
            note.set_visible(bool(np.isfinite(cost[chosen])))
            if not note.get_visible():
                continue
            note.xyann = tuple((corners[chosen] - at) / scale)
            if note.arrow_patch is not None:
                note.arrow_patch.set_visible(bool(far[chosen]))
            boxes.append(places[chosen])
            leaders = np.vstack((leaders, ways[chosen])) if far[chosen] else leaders


def _candidates(at: Any, extent: Any, radii: Any, scale: float) -> tuple[Any, Any, Any]:
    """Return the lower left corners, the padded boxes, and points along the leaders, of all places of a name."""
    dx, dy = np.cos(_ANGLES), np.sin(_ANGLES)
    left = np.select((dx > 0.1, dx < -0.1), (0.0, -extent.width), -0.5 * extent.width)
    steps = scale * radii[:, None, None] * np.stack((dx, dy), 1)
    size = np.array((extent.width, extent.height))
    corners = (at + steps + np.stack((left, -extent.height * (0.5 - 0.5 * dy)), 1)).reshape(-1, 2)
    boxes = np.hstack((corners - 1.5 * scale, corners + size + 1.5 * scale))
    return corners, boxes, at + _STEPS * (corners + size / 2 - at)[:, None]


def _overlap(boxes: Any, others: Sequence[Any]) -> Any:
    """Return which boxes overlap which others, (boxes, others)."""
    one, other = boxes[:, None], np.reshape(others, (1, -1, 4))
    return ((other[..., :2] < one[..., 2:]) & (other[..., 2:] > one[..., :2])).all(-1)


def _contain(boxes: Any, points: Any, pad: float = 0.0) -> Any:
    """Return which boxes, `pad` pixels larger, contain which points, (boxes, points)."""
    one = boxes[:, None]
    return ((points > one[..., :2] - pad) & (points < one[..., 2:] + pad)).all(-1)


def name_points(
    ax: Axes,
    names: Sequence[tuple[str, tuple[float, float], str]],
    points: Sequence[tuple[float, float]],
    lines: Sequence[tuple[float, float]] = (),
) -> None:
    """Write names (text, point, color) beside their points, the important ones first, and keep points clear."""
    ground = {"boxstyle": "square,pad=0.08", "facecolor": ink(ax).ground, "edgecolor": "none", "alpha": 0.75}
    leader = {"arrowstyle": "-", "linewidth": 0.4, "shrinkA": 0.0, "shrinkB": 2.0}
    place: dict[str, Any] = {"xytext": (0.0, 0.0), "textcoords": "offset points", "va": "bottom", "ha": "left"}
    look: dict[str, Any] = {"fontsize": 7.0, "parse_math": False, "bbox": ground, "annotation_clip": False}
    look |= {"zorder": 2.9, "in_layout": False}  # below marks, above the lines that its ground covers
    notes = [
        ax.annotate(text, at, color=color, arrowprops=leader | {"color": color}, **place, **look)
        for text, at, color in names
    ]
    ax.add_artist(Labels(notes, points, lines))
