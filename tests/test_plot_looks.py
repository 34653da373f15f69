"""The looks of precisions: told apart by people with color-blindness, and without color; inks for any ground."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from bwprof import registry
from bwprof.plot.canvas import Drawing
from bwprof.plot.styles import ink, luminance, part_style, readable, style, styles

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009:
# severity 1, for linear RGB.
SIGHTS = {
    "all colors": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
# Linear sRGB to XYZ (IEC 61966-2-1), D65.
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
LEAST = 15.0  # CIE 1976 color difference: 2.3 is just noticeable


def linear(color: str) -> NDArray[np.float64]:
    parts = np.array([int(color[first : first + 2], 16) / 255 for first in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIE L*a*b* of linear RGB."""
    share = XYZ @ np.clip(light, 0, 1) / (XYZ @ np.ones(3))
    curved = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * curved[1] - 16, 500 * (curved[0] - curved[1]), 200 * (curved[1] - curved[2])])


def difference(one: str, other: str, sight: str) -> float:
    seen = [lab(SIGHTS[sight] @ linear(color)) for color in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def test_the_simulation_confuses_red_and_green() -> None:
    """A red and a green of one lightness, which protanopes and deuteranopes confuse and others do not."""
    red, green = "#c04000", "#6a7300"
    assert difference("#000000", "#ffffff", "all colors") == pytest.approx(100, abs=0.01)
    assert difference(red, green, "all colors") > 50
    assert difference(red, green, "deuteranopia") < 15


@pytest.mark.parametrize("sight", SIGHTS)
def test_precisions_differ_in_color(sight: str) -> None:
    for one, other in combinations(map(style, registry.precision_names()[:9]), 2):  # more colors do not differ as much
        assert difference(one.color, other.color, sight) >= LEAST, (one, other)


def test_no_two_precisions_share_a_color() -> None:
    for one, other in combinations(map(style, registry.precision_names()), 2):
        assert difference(one.color, other.color, "all colors") >= LEAST, (one, other)


@pytest.mark.parametrize("sight", SIGHTS)
def test_parts_differ_in_color_and_hatch(sight: str) -> None:
    for one, other in combinations([part_style(place) for place in range(7)], 2):
        assert difference(one[0], other[0], sight) >= LEAST, (one, other)
        assert one[1] != other[1]


def test_precisions_differ_without_color() -> None:
    found = styles([*registry.precision_names(), "mine", "yours", "theirs", "nobody's"])
    first = [*found.values()][:11]  # later ones repeat hatches and markers
    for looks in zip(*((look.color, look.hatch, look.marker) for look in first), strict=True):
        assert len(set(looks)) == len(first)
    assert found["fp16"] == style("fp16") == styles(["fp16", "mine"])["fp16"]


def test_any_number_of_precisions_has_styles() -> None:
    known = registry.precision_names()
    found = styles([*known, *(f"own{number}" for number in range(121 - len(known)))]).values()
    assert len({(look.color, look.hatch) for look in found}) == len({(look.color, look.marker) for look in found})
    assert len({(look.color, look.hatch) for look in found}) == len(found)
    assert len(styles([f"own{number}" for number in range(200)])) == 200


@pytest.mark.parametrize("ground", ["white", "#121212"])
def test_colors_contrast_with_light_and_dark_grounds(ground: str) -> None:
    for look in map(style, registry.precision_names()):
        one, other = sorted((luminance(look.color), luminance(ground)))
        assert (other + 0.05) / (one + 0.05) > 2.2, look


def test_luminance_is_that_of_wcag() -> None:
    """Its examples: black on white is 21 to 1, #777777 on white 4.48."""
    assert (luminance("white") + 0.05) / (luminance("black") + 0.05) == pytest.approx(21)
    assert (luminance("white") + 0.05) / (luminance("#777777") + 0.05) == pytest.approx(4.48, abs=0.005)
    assert (readable("#000080"), readable("#ffff00")) == ("#FFFFFF", "#000000")
    assert readable("#228833") == "#FFFFFF"  # either is 4.6 times as bright or dark: small black letters on green blur


def test_inks_follow_the_ground() -> None:
    """The axes' own color over the figure's; what is clear shows white paper."""
    grounds = []
    for figure_color, axes_color in (("white", "white"), ("black", "none"), ("none", "none"), ("white", "#101010")):
        axes = Figure(facecolor=figure_color).add_subplot(facecolor=axes_color)
        grounds.append((ink(axes).ground, ink(axes, outside=True).ground))
        for outside in (False, True):
            one, other = sorted(luminance(color) for color in (ink(axes, outside=outside).text, grounds[-1][outside]))
            assert (other + 0.05) / (one + 0.05) > 7
    assert grounds == [("#ffffff",) * 2, ("#000000",) * 2, ("#ffffff",) * 2, ("#101010", "#ffffff")]


def test_inks_follow_matplotlibs_style() -> None:
    """Notebooks with a dark theme set such a style."""
    with mpl.rc_context({"figure.facecolor": "black", "axes.facecolor": "black"}):
        assert luminance(ink(Figure().add_subplot()).text) > 0.5


def test_a_picture_is_drawn_once_for_each_file(tmp_path: Path) -> None:
    """Drawing takes most of the time; a layout engine would draw twice."""

    class Mark(Line2D):
        drawn = 0

        def draw(self, renderer: RendererBase) -> None:
            self.drawn += 1
            super().draw(renderer)

    mark = Mark([0, 1], [0, 1])
    targets = [tmp_path / "a.svg", tmp_path / "a.png", tmp_path / "a.pdf"]
    Drawing((3, 2), (3, 2), lambda ax, _: ax.add_line(mark)).write(targets)
    assert mark.drawn == 3


def test_long_names_fit_in_every_format(tmp_path: Path) -> None:
    places = []

    def draw(ax: Axes, _: object) -> None:
        ax.set_yticks([0.5], ["a long name of a case " * 2])
        places.append(ax)

    for ending in ("svg", "png"):
        Drawing((6, 2), (6, 2), draw).write([tmp_path / f"a.{ending}"])
        ax = places.pop()
        left = ax.get_yticklabels()[0].get_window_extent().x0
        assert 0 <= left < 0.1 * ax.figure.bbox.width, ending
