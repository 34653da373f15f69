"""Looks of pictures: colors, hatches and markers of precisions; titles, legends, marks and texts on any ground."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from bwprof import registry
from bwprof.plot.canvas import DARK, LEGEND_INCHES, Inches, cut, measure_width
from bwprof.plot.inputs import is_doubtful, is_predicted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Style:
    """The color, hatch and marker of a precision in every picture."""

    color: str
    hatch: str
    marker: str


# The first colors are those of Okabe and Ito and a violet, which differ for people with color-blindness too.
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

# Theirs, and those of further precisions, which differ as much for most people.
_MORE_COLORS = ("#3300FF", "#AAAA55", "#DD1144", "#8888EE", "#CC00AA", "#556633", "#554488", "#CC9999")
_COLORS = (*(look.color for look in _STYLES), *_MORE_COLORS, "#338811", "#CC6655", "#AA55BB")

# Each color with a hatch and a marker, then with those of the place before, of the second before, ...: 242 differ.
_LOOKS = [
    replace(_STYLES[(place - turn - place // len(_STYLES)) % len(_STYLES)], color=color)
    for turn, (place, color) in product(range(len(_STYLES)), enumerate(_COLORS))
]

# Parts of a whole: Paul Tol's bright colors, and hatches.
_PART_COLORS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
_PART_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++")


def style(precision: str) -> Style:
    """Return the style of a precision, in any spelling."""
    return styles([precision])[precision]


def styles(precisions: Iterable[str]) -> dict[str, Style]:
    """Return the styles of the precisions of one picture: by place in the registry, of unknown ones the next free."""
    known = registry.precision_names()
    spare, count = _LOOKS[len(known) :], max(1, len(_COLORS) - len(known))  # of which `count` repeat no color
    chosen: dict[str, Style] = {}
    for name in dict.fromkeys(precisions):
        if (canonical := registry.precision_name(name)) in known:
            chosen[name] = _LOOKS[known.index(canonical)]
        else:
            first = sum(map(ord, name)) % count
            order = (*spare[first:count], *spare[:first], *spare[count:])
            chosen[name] = next((free for free in order if free not in chosen.values()), order[0])
    return chosen


def part_style(place: int) -> tuple[str, str]:
    """Return the color and the hatch of a part of a whole; 49 parts differ."""
    count = len(_PART_COLORS)
    return _PART_COLORS[place % count], _PART_HATCHES[(place + place // count) % count]


@dataclass(frozen=True, slots=True)
class Ink:
    """Colors that are readable on a ground: text, minor text, grid lines, warnings, and the ground itself."""

    text: str
    soft: str
    grid: str
    alarm: str
    ground: str


_ON_LIGHT = ("#222222", "#555555", "#DDDDDD", "#B00020")
_ON_DARK = ("#EEEEEE", "#BBBBBB", "#444444", "#FF8A80")

# The color on a dark ground of each color on white paper; white letters on bars stay white.
ON_DARK = {**dict(zip(_ON_LIGHT, _ON_DARK, strict=True)), "#FFFFFF": DARK}


def ink(ax: Axes, *, outside: bool = False) -> Ink:
    """Return the colors for text on axes, or `outside` them on their figure."""
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
    """Return white where it is readable on a color, with a contrast of 4.5; else black."""
    return "#FFFFFF" if luminance(color) <= 0.1833 else "#000000"


def luminance(color: Any) -> float:
    """Return a color's relative luminance, 0 to 1, as WCAG 2 defines it."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def finish_axes(ax: Axes, *, grid: Literal["x", "y", "both", ""] = "") -> None:
    """Set frame, grid and text colors of finished axes."""
    inner, outer = ink(ax), ink(ax, outside=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(outer.soft)
    if grid:
        ax.grid(axis=grid, color=inner.grid, linewidth=0.6)
        ax.set_axisbelow(True)
    ax.tick_params(which="both", color=outer.soft, labelcolor=outer.text)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title):  # type: ignore[attr-defined]
        text.set_color(outer.text)


def finish_lines(ax: Axes, names: Sequence[str], each: float, *, points: float = 8.5) -> None:
    """Finish axes with a line of `each` inches for each name, in letters of at most `points`."""
    ax.set_yticks(range(len(names)), list(names), parse_math=False)
    finish_axes(ax, grid="x")
    ax.tick_params(axis="y", length=0, labelsize=min(points, 72 * each * 0.8))


def add_title(ax: Axes, title: str, notes: Sequence[str], room: Inches, *, points: float = 11.0) -> None:
    """Add a title, and a line of the notes that are not empty, in letters that fit the width."""
    title = title[:1].upper() + title[1:]
    lines = list(filter(None, [title, ", ".join(filter(None, notes))]))
    widest = max((measure_width(line, 10.0) for line in lines), default=0.1)
    size = max(6.0, min(points, 10.0 * room[0] / max(widest, 0.1)))
    ax.set_title("\n".join(lines), loc="left", fontsize=size, parse_math=False)


def line_handle(label: str, **look: Any) -> Any:
    """Make a legend's entry for a line, or for a mark where `linewidth` is 0."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def ring_handle(label: str, color: str, *, face: str = "none", **look: Any) -> Any:
    """Make a legend's entry for hollow marks."""
    ring = {"linewidth": 0, "marker": "o", "markersize": 5, "color": face, "markeredgecolor": color}
    return line_handle(label, **ring | look)


def bar_handle(label: str, color: str, hatch: str, ground: str) -> Any:
    """Make a legend's entry for bars."""
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 1, 1, facecolor=color, hatch=hatch, label=label, edgecolor=ground, linewidth=0)


def mark_doubts(rows: Iterable[Mapping[str, Any]], colors: Ink) -> list[Any]:
    """Make a legend's entry for the hollow marks of predicted and doubtful rows; [] where there are none."""
    rows = list(rows)
    reasons = {"predicted": any(map(is_predicted, rows)), "see flags": any(map(is_doubtful, rows))}
    words = [word for word, applies in reasons.items() if applies]
    return [ring_handle(f"hollow: {', or '.join(words)}", colors.text)] if words else []


def explain_bars(rows: Iterable[Mapping[str, Any]], colors: Ink) -> list[Any]:
    """Make a legend's entries for hollow bars and for numbers with a star, with the flags, the most frequent first."""
    rows, handles = list(rows), []
    if any(map(is_predicted, rows)):
        handles.append(ring_handle("hollow: predicted", colors.text, face=colors.ground, marker="s"))
    texts = [str(row["flags"] or "wrong result") for row in rows if is_doubtful(row)]
    if flags := Counter(flag for text in texts for flag in text.split(";")).most_common():
        label = cut(", ".join(flag for flag, _ in flags), 60)
        handles.append(line_handle(f"{label}: see flags", linewidth=0, marker="$*$", color=colors.text))
    return handles


def draw_bar(
    ax: Axes, left: float, middle: float, width: float, height: float, color: str, *, hollow: bool = False, **look: Any
) -> str:
    """Draw a horizontal bar, with an outline alone where it is `hollow`, and return the color of its face."""
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
        ax.plot(*split_points(own), color=fill, markeredgecolor=color, linewidth=0, **look)


def split_points(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the x and the y values of points."""
    return [x for x, _ in points], [y for _, y in points]


def draw_ways(ax: Axes, ways: Sequence[Sequence[tuple[float, float]]], color: Any, width: float, **look: Any) -> None:
    """Draw straight lines through points; they do not widen the axes."""
    from matplotlib.collections import LineCollection

    ax.add_collection(LineCollection(ways, colors=color, linewidths=width, **look), autolim=False)


def write_after(ax: Axes, text: str, end: tuple[float, float], color: str, *, gap: float = 4.0, **look: Any) -> None:
    """Write a text after the end of a bar, `gap` points apart."""
    place: dict[str, Any] = {"xytext": (gap, 0), "textcoords": "offset points", "va": "center_baseline"}
    ax.annotate(text, end, color=color, parse_math=False, **place | look)


def add_legend(ax: Axes, handles: Sequence[Any], **options: Any) -> None:
    """Add a legend in the colors of its axes, whose texts are not parsed as formulas."""
    inner = ink(ax)
    defaults = {"fontsize": 8, "framealpha": 0.9, "borderaxespad": 0.3, "columnspacing": 1.4}
    colors = {"facecolor": inner.ground, "edgecolor": "none", "labelcolor": inner.text}
    legend = ax.legend(handles=list(handles), **defaults | colors | options)
    for text in legend.get_texts():
        text.set_parse_math(False)


def add_legend_above(ax: Axes, handles: Sequence[Any], room: Inches) -> None:
    """Add a legend above the data, and extend the y axis for it."""
    columns, inches = _measure_legend(handles, room, 8.0)
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
    """Add a legend and `more` inches above `count` lines of equal height; return the height of a line, inches."""
    columns, inches = _measure_legend(handles, room, points)
    each = max((room[1] - inches - more) / count, 0.02)
    ax.set_ylim(count - 0.5, -0.5 - (inches + more) / each)
    if handles:
        add_legend(ax, handles, loc="upper left", ncols=columns, fontsize=points, handlelength=1.6, labelspacing=0.35)
    return each


def _measure_legend(handles: Sequence[Any], room: Inches, points: float) -> tuple[int, float]:
    """Return the columns of a legend that fits a width, and its height in inches."""
    import numpy as np

    widths = [measure_width(str(handle.get_label()), points) + 4.5 * points / 72 for handle in handles]
    columns = max(1, min(8, len(handles)))
    while columns > 1 and sum(map(max, np.array_split(widths, columns))) > room[0]:
        columns -= 1
    return columns, (-(-len(handles) // columns) * LEGEND_INCHES + 0.08) * points / 8
