"""Colours, hatches and markers of precisions, and colours of text on a light or a dark ground."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bwprof import registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Style:
    """The colour, hatch and marker of a precision in every picture."""

    color: str
    hatch: str
    marker: str


# Of the registry's precisions in their order, then of unknown ones. The colours are those of Okabe and Ito and a
# violet, which differ for people with colour-blindness too; then spare ones.
_STYLES = (
    Style("#0072B2", "", "o"),
    Style("#CC79A7", "xxxx", "D"),
    Style("#E69F00", "////", "s"),
    Style("#009E73", "....", "^"),
    Style("#D55E00", "\\\\\\\\", "v"),
    Style("#56B4E9", "----", "P"),
    Style("#6B4EE6", "++++", "X"),
    Style("#AA3377", "||||", "<"),
    Style("#7A4B00", "oooo", ">"),
    Style("#777777", "//..", "p"),
    Style("#9A2D4F", "\\\\..", "*"),
)

# Parts of a whole: Paul Tol's bright colours, with a hatch each.
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
    """Return the style of a precision, in any spelling."""
    known, name = registry.precision_names(), registry.precision_name(precision)
    if name in known:
        return _STYLES[known.index(name) % len(_STYLES)]
    spare = _spare_styles()
    return spare[sum(map(ord, precision)) % len(spare)]


def _spare_styles() -> tuple[Style, ...]:
    return _STYLES[len(registry.precision_names()) :] or _STYLES


def styles(precisions: Iterable[str]) -> dict[str, Style]:
    """Return the styles of the precisions of one picture; unknown ones differ while there are spare styles."""
    chosen: dict[str, Style] = {}
    spare = _spare_styles()
    for name in dict.fromkeys(precisions):
        own = style(name)
        if registry.precision_name(name) not in registry.precision_names():
            first = spare.index(own)
            spare = (*spare[first:], *spare[:first])
            own = next((free for free in spare if free not in chosen.values()), own)
        chosen[name] = own
    return chosen


def part_style(place: int) -> tuple[str, str]:
    """Return the colour and the hatch of a part of a whole."""
    return _PARTS[place % len(_PARTS)]


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours that are readable on a ground: text, minor text, grid lines, warnings, and the ground itself."""

    text: str
    soft: str
    grid: str
    alarm: str
    ground: str


_ON_LIGHT = ("#222222", "#555555", "#DDDDDD", "#B00020")
_ON_DARK = ("#EEEEEE", "#BBBBBB", "#444444", "#FF8A80")
DARK = "#14171A"

# The colour on a dark ground of each colour on white paper; white letters on bars stay white.
ON_DARK = {**dict(zip(_ON_LIGHT, _ON_DARK, strict=True)), "#FFFFFF": DARK}


def ink(ax: Axes, *, outside: bool = False) -> Ink:
    """Return the colours for text on axes, or `outside` them on their figure."""
    from matplotlib.colors import to_hex, to_rgba

    figure: Any = ax.figure
    layers = [getattr(figure, "figure", figure).get_facecolor(), figure.get_facecolor()]
    layers += [] if outside else [ax.get_facecolor()]
    ground = (1.0, 1.0, 1.0)  # white paper below everything that is transparent
    for layer in layers:
        *parts, alpha = to_rgba(layer)
        red, green, blue = (alpha * part + (1 - alpha) * under for part, under in zip(parts, ground, strict=True))
        ground = red, green, blue
    return Ink(*(_ON_DARK if luminance(ground) < 0.18 else _ON_LIGHT), to_hex(ground))


def readable(color: Any) -> str:
    """Return white where it is readable on a colour, with a contrast of 4.5; else black."""
    return "#FFFFFF" if luminance(color) <= 0.1833 else "#000000"


def luminance(color: Any) -> float:
    """Return a colour's relative luminance, 0 to 1, as WCAG 2 defines it."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def finish_axes(ax: Axes, *, grid: Literal["x", "y", "both", ""] = "") -> None:
    """Set frame, grid and text colours of finished axes."""
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
