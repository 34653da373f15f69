"""Names beside points that cover neither each other nor a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist

from bwprof.plot.styles import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

_RADII = np.array((6.5, 13.0, 24.0, 38.0, 55.0, 75.0))  # distances of a name from its point, points
_ANGLES = np.radians((20, -20, 160, 200, 90, -90, 50, -50, 130, -130))
_FEW, _NEAR = 12, 3  # more names than this use the first three radii alone: long leaders would cross
_FAR = 9.0  # from this radius on a thin line leads to the name


class Labels(Artist):
    """Places annotations around their points each time the figure is drawn, and hides those without room.

    Earlier annotations choose first. A name keeps clear of `points` where possible, and of `lines` where that costs
    nothing; both are in data coordinates. No leader crosses another name.
    """

    def __init__(
        self,
        notes: Sequence[Annotation],
        points: Sequence[tuple[float, float]],
        lines: Sequence[tuple[float, float]] = (),
    ) -> None:
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
        leaders: list[Any] = []  # of the names so far: a point, and the middle of its name
        radii = _RADII if len(self._notes) <= _FEW else _RADII[:_NEAR]
        for note in self._notes:
            note.set_visible(True)
            note.xyann = (0.0, 0.0)
            at = transform.transform(note.xy)
            corners, candidates, ways = _candidates(at, _text_extent(note, renderer), radii, scale)
            free = (candidates[:, :2] >= frame[:2]).all(1) & (candidates[:, 2:] <= frame[2:]).all(1)
            far = np.repeat(radii >= _FAR, len(_ANGLES))
            free &= ~_overlaps(candidates, boxes).any(1) & ~_crosses(leaders, candidates).any(0)
            free &= ~(far & _crosses(ways, boxes).any(1))
            if len(radii) < len(_RADII):
                free &= _count_inside(points, candidates, 0) == 0
            cost = 4.0 * _count_inside(points, candidates, 3 * scale) + _count_inside(lines, candidates, 0)
            chosen = _choose(np.where(free, cost + np.repeat(radii, len(_ANGLES)) / 40, np.inf), radii)
            note.set_visible(chosen is not None)
            if chosen is None:
                continue
            note.xyann = tuple((corners[chosen] - at) / scale)
            if note.arrow_patch is not None:
                note.arrow_patch.set_visible(bool(far[chosen]))
            boxes.append(candidates[chosen])
            leaders += [ways[chosen]] if far[chosen] else []


def _candidates(at: Any, extent: Any, radii: Any, scale: float) -> tuple[Any, Any, Any]:
    """Return the lower left corners, the padded boxes and the leaders of all places of a name, pixels."""
    dx, dy = np.cos(_ANGLES), np.sin(_ANGLES)
    left = np.select((dx > 0.1, dx < -0.1), (0.0, -extent.width), -0.5 * extent.width)
    steps = scale * radii[:, None, None] * np.stack((dx, dy), 1)
    size = np.array((extent.width, extent.height))
    corners = (at + steps + np.stack((left, -extent.height * (0.5 - 0.5 * dy)), 1)).reshape(-1, 2)
    boxes = np.hstack((corners - 1.5 * scale, corners + size + 1.5 * scale))
    return corners, boxes, np.stack((np.broadcast_to(at, corners.shape), corners + size / 2), 1)


def _choose(cost: Any, radii: Any) -> int | None:
    """Return the cheapest place within the first radius that has one without a penalty, else of all."""
    nearest = np.minimum.accumulate(cost.reshape(len(radii), -1).min(axis=1))
    enough = np.flatnonzero(nearest < radii / 40 + 0.5)
    last = enough[0] + 1 if len(enough) else len(radii)
    place = int(np.argmin(cost[: last * len(_ANGLES)]))
    return place if np.isfinite(cost[place]) else None


def _text_extent(note: Annotation, renderer: Any) -> Any:
    from matplotlib.text import Text

    note.update_positions(renderer)
    return Text.get_window_extent(note, renderer)


def _overlaps(boxes: Any, others: Sequence[Any]) -> Any:
    """Return which boxes overlap which others, (boxes, others)."""
    one, other = np.asarray(boxes)[:, None], np.array(others, float).reshape(1, -1, 4)
    return ((other[..., :2] < one[..., 2:]) & (other[..., 2:] > one[..., :2])).all(-1)


def _crosses(ways: Any, boxes: Any) -> Any:
    """Return which straight ways go through which boxes, (ways, boxes)."""
    ends = np.array(ways, float).reshape(-1, 1, 2, 2)
    start, along = ends[:, :, 0], ends[:, :, 1] - ends[:, :, 0]
    shares = np.array(boxes, float).reshape(1, -1, 2, 2) - start[:, :, None]  # of the way, where it meets each side
    shares /= np.where(along, along, 1e-9)[:, :, None]
    enters, leaves = shares.min(axis=2).max(axis=-1), shares.max(axis=2).min(axis=-1)
    return (enters < leaves) & (enters < 1) & (leaves > 0)


def _count_inside(points: Any, boxes: Any, pad: float) -> Any:
    """Return how many points lie in each box, which is `pad` pixels larger."""
    one = boxes[:, None]
    return ((points > one[..., :2] - pad) & (points < one[..., 2:] + pad)).all(-1).sum(1)


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
            zorder=2.9,  # below marks, above the lines that its ground covers
        )
        for text, at, color in names
    ]
    for note in notes:
        note.set_in_layout(False)
    labels = Labels(notes, points, lines)
    ax.add_artist(labels)
    return labels
