"""Bars whose hatch is made of lines: browsers print a pattern as an image of the whole picture, for each bar."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]  # left, bottom, right, top
Line = tuple[float, float, float, float]

_APART_POINTS = 14.0  # lines of a letter in a hatch; two letters halve it
_LINE_POINTS = 0.8
_DOT_POINTS = 1.0
_LEAST_POINTS = 1.5
_BOTH = {"x": "/\\", "+": "-|"}


class Bar(Rectangle):
    """A rectangle with matplotlib's hatches, but for circles, each line of which is drawn, in the edge's colour."""

    def set_hatch(self, hatch: str | None) -> None:
        """As a patch's."""
        self._hatch = None  # which the base class would draw as a pattern
        self._letters = hatch or ""
        self.stale = True

    def get_hatch(self) -> str:
        """As a patch's."""
        return self._letters

    def draw(self, renderer: Any) -> None:
        """The rectangle, then the lines."""
        super().draw(renderer)
        extents = self.get_path().get_extents(self.get_transform()).extents
        if not self._letters or not self.get_visible() or not np.isfinite(extents).all():
            return
        clip = self.get_clip_box()
        box = _within(extents, extents if clip is None else clip.extents)
        lines = list(strokes(self._letters, box, renderer.points_to_pixels(1.0)))
        if not lines:
            return
        # Tenths of a pixel: a file is written in as few digits as possible.
        points = np.round(np.array(lines, float).reshape(-1, 2), 1)
        pen = renderer.new_gc()
        self._set_gc_clip(pen)  # type: ignore[attr-defined]
        pen.set_foreground(self.get_edgecolor())
        pen.set_linewidth(_LINE_POINTS)
        pen.set_alpha(self.get_alpha())
        codes = np.tile([Path.MOVETO, Path.LINETO], len(lines))
        renderer.draw_path(pen, Path(points, codes), IdentityTransform())
        pen.restore()


def bar(ax: Axes, left: float, middle: float, width: float, height: float, **look: Any) -> Bar:
    """A lying bar on axes whose limits are set otherwise."""
    made = Bar((left, middle - height / 2), width, height, **look)
    ax.add_patch(made)
    return made


def in_legend(*, orig_handle: Any, xdescent: float, ydescent: float, width: float, height: float, **_: Any) -> Bar:
    """What stands for a bar in a legend."""
    return Bar((-xdescent, -ydescent), width, height, hatch=orig_handle.get_hatch())


def _within(box: Any, clip: Any) -> Box:
    left, bottom, right, top = map(float, box)
    return max(left, clip[0]), max(bottom, clip[1]), min(right, clip[2]), min(top, clip[3])


def strokes(hatch: str, box: Box, scale: float) -> Iterator[Line]:
    """The lines of a hatch within a box, all in pixels, of which `scale` are a point.

    Examples
    --------
    >>> list(strokes("-", (0, 0, 10, 20), 1.0))
    [(0, 0.0, 10, 0.0), (0, 14.0, 10, 14.0)]
    """
    left, bottom, right, top = box
    if right <= left or top <= bottom:
        return
    letters = "".join(_BOTH.get(letter, letter) for letter in hatch)
    for letter in dict.fromkeys(letters):
        apart = scale * max(_LEAST_POINTS, _APART_POINTS / letters.count(letter))
        if letter == "-":
            yield from ((left, y, right, y) for y in _steps(bottom, top, apart))
        elif letter == "|":
            yield from ((x, bottom, x, top) for x in _steps(left, right, apart))
        elif letter in "/\\":
            yield from _slanted(box, apart * math.sqrt(2), rising=letter == "/")
        else:  # dots, in rows of which every other one is shifted
            half = scale * _DOT_POINTS / 2
            for row, y in enumerate(_steps(bottom + apart / 2, top, apart * 0.8)):
                places = _steps(left + half, right - half, apart, shift=apart / 2 * (row % 2))
                yield from ((x - half, y, x + half, y) for x in places)


def _steps(first: float, last: float, apart: float, shift: float = 0.0) -> list[float]:
    """Multiples of a distance, so that bars beside each other continue each other's lines."""
    start = math.ceil((first - shift) / apart)
    return [shift + place * apart for place in range(start, math.floor((last - shift) / apart) + 1)]


def _slanted(box: Box, apart: float, *, rising: bool) -> Iterator[Line]:
    """Lines at 45 degrees, cut at the box."""
    left, bottom, right, top = box
    if rising:
        for start in _steps(bottom - right, top - left, apart):
            one, other = max(left, bottom - start), min(right, top - start)
            yield one, one + start, other, other + start
    else:
        for start in _steps(bottom + left, top + right, apart):
            one, other = max(left, start - top), min(right, start - bottom)
            yield one, start - one, other, start - other
