"""The look of a precision, the same in every picture, and of whatever else is drawn on a light or a dark ground."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bwprof import registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Style:
    """A precision's look, the same in every picture: readable without colour too."""

    color: str
    hatch: str
    marker: str


# Okabe and Ito's colours, and a violet: people with colour-blindness tell them apart, on light and on dark grounds.
_STYLES = {
    "fp32": Style("#0072B2", "", "o"),
    "fp16": Style("#E69F00", "////", "s"),
    "bf16": Style("#009E73", "....", "^"),
    "tf32": Style("#CC79A7", "xxxx", "D"),
    "fp8_e4m3": Style("#D55E00", "\\\\\\\\", "v"),
    "int8": Style("#56B4E9", "----", "P"),
    "q4_0": Style("#6B4EE6", "++++", "X"),
}

# Of precisions that are a caller's own.
_SPARE = (
    Style("#AA3377", "||||", "<"),
    Style("#7A4B00", "oooo", ">"),
    Style("#777777", "//..", "p"),
    Style("#9A2D4F", "\\\\..", "*"),
)

# Of parts of a whole, in their order: Paul Tol's bright colours, with a hatch each.
_PARTS = (
    ("#4477AA", ""),
    ("#EE6677", "////"),
    ("#228833", "...."),
    ("#CCBB44", "\\\\\\\\"),
    ("#66CCEE", "xxxx"),
    ("#AA3377", "----"),
    ("#BBBBBB", "++++"),
)


def style(precision: str) -> Style:
    """The look of a precision, however it is spelt."""
    return _STYLES.get(registry.precision_name(precision)) or _SPARE[sum(map(ord, precision)) % len(_SPARE)]


def styles(precisions: Iterable[str]) -> dict[str, Style]:
    """The looks of precisions that stand in one picture: two of a caller's own differ as long as there are looks."""
    found: dict[str, Style] = {}
    for name in dict.fromkeys(precisions):
        first = _SPARE.index(style(name)) if style(name) in _SPARE else 0
        spare = [_SPARE[(first + step) % len(_SPARE)] for step in range(len(_SPARE))]
        free = [look for look in spare if look not in found.values()]
        found[name] = (free or spare)[0] if style(name) in _SPARE else style(name)
    return found


def part_style(place: int) -> tuple[str, str]:
    """Colour and hatch of the part of a whole at a place."""
    return _PARTS[place % len(_PARTS)]


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours that can be read on a ground: words, lesser words, lines behind the data, a warning, the ground."""

    text: str
    soft: str
    grid: str
    alarm: str
    ground: str


_ON_LIGHT = ("#222222", "#555555", "#DDDDDD", "#B00020")

_ON_DARK = ("#EEEEEE", "#BBBBBB", "#444444", "#FF8A80")

DARK = "#14171A"

# What a picture's inks on white paper are on a dark ground; white letters stand on bars, and stay.
ON_DARK = {**dict(zip(_ON_LIGHT, _ON_DARK, strict=True)), "#FFFFFF": DARK}


def ink(ax: Axes, *, outside: bool = False) -> Ink:
    """What to write with on some axes, or `outside` them, on their figure."""
    from matplotlib.colors import to_hex

    ground = _ground(ax, outside=outside)
    return Ink(*(_ON_DARK if luminance(ground) < 0.18 else _ON_LIGHT), to_hex(ground))


def readable(color: Any) -> str:
    """Black or white: what can be read on a colour."""
    return "#FFFFFF" if luminance(color) <= 0.1833 else "#000000"  # white while that is 4.5 times as bright


def luminance(color: Any) -> float:
    """A colour's relative luminance, 0 to 1, as WCAG 2 defines it."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _ground(ax: Axes, *, outside: bool) -> tuple[float, float, float]:
    """What is seen behind: the axes' own colour over the figure's, over white paper."""
    from matplotlib.colors import to_rgba

    figure: Any = ax.figure
    layers = [] if outside else [ax.get_facecolor()]
    layers += [figure.get_facecolor(), getattr(figure, "figure", figure).get_facecolor()]
    seen = (1.0, 1.0, 1.0)
    for layer in reversed(layers):
        *parts, alpha = to_rgba(layer)
        red, green, blue = (alpha * part + (1 - alpha) * under for part, under in zip(parts, seen, strict=True))
        seen = red, green, blue
    return seen


Grid = Literal["x", "y", "both", ""]


def finish_axes(ax: Axes, *, grid: Grid = "") -> None:
    """What all pictures share, when all is drawn: a frame of two sides, lines behind, words that can be read."""
    inner, outer = ink(ax), ink(ax, outside=True)
    ax.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(outer.soft)
    if grid:
        ax.grid(axis=grid, color=inner.grid, linewidth=0.6)
        ax.set_axisbelow(True)
    ax.tick_params(which="both", color=outer.soft, labelcolor=outer.text)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title):  # type: ignore[attr-defined]
        text.set_color(outer.text)
