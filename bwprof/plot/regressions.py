"""The picture of a comparison: a row a case, its ratio with its interval, and what the gate takes for noise."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.canvas import Drawing, Inches, beside, cut, log, save_one
from bwprof.plot.data import need_columns
from bwprof.plot.labels import legend_over_lines, make_handle
from bwprof.plot.styles import Ink, dress, ink
from bwprof.results import schema
from bwprof.text import formatting
from bwprof.text.formatting import plural
from bwprof.text.parsing import measurable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Okabe and Ito's colours, and marks that tell without them.
_LOOKS = {
    "slower": ("#D55E00", "v"),
    "same": ("", "o"),  # the colour of lesser words
    "faster": ("#0072B2", "^"),
    "undecided": ("#E69F00", "D"),
    "disturbed": ("#CC79A7", "x"),
}

_AROUND_INCHES, _MARGIN_INCHES, _MOST_INCHES, _LEAST_INCHES = 1.05, 1.5, 60.0, 2.6

_ROW_INCHES = ((80, 0.21, 8.0), (200, 0.165, 7.0), (math.inf, 0.125, 6.0))  # up to so many rows: height, letters

_LONGEST_NAME = 60

_LOGARITHMIC = 1.5  # a ratio from which on the axis is one of factors

# Factors for an axis, most wanted first.
_FACTORS = (1, 0.1, 10, 0.01, 100, 0.001, 1000, 0.5, 2, 0.2, 5, 0.3, 3, 0.7, 1.5, 0.05, 20, 0.02, 50)

_APART = 0.07  # of the axis: two of them closer than this would run into each other

_NEEDED = ("case", "precision", "verdict", "ratio", "ratio_lo", "ratio_hi", "threshold_pct")


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    verdict: str
    ratio: float
    low: float
    high: float
    limit: float


def ratios(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Each case's ratio, new / base, with its 95 % interval, sorted; the band is what the gate takes for noise.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.compare`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's, of a fitting size, when left out.

    Raises
    ------
    ValueError
        When it is no comparison, or no case of it was compared.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.load_example("h200")
    >>> bwprof.plot.ratios(bwprof.compare(frame, frame)).get_xlabel()
    'change of the time (%)'
    """
    return picture(data).on(ax)


def save_ratios(data: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write `ratios` into a file, whose ending says the format; returns its path."""
    return save_one(path, lambda targets: picture(data).write(targets))


def picture(data: pd.DataFrame, *, most: int | None = None) -> Drawing:
    """The same as a picture to be drawn or written, of the `most` largest changes."""
    data = need_columns(data, *_NEEDED, what="a comparison, which bwprof.compare makes")
    lines, left_out = _lines(data, most)
    each, points = _row(len(lines))
    width, height = 9.0, max(_LEAST_INCHES, _MARGIN_INCHES + len(lines) * each)
    inner = (width - beside((line.name for line in lines), points), height - _AROUND_INCHES)
    return Drawing((width, height), inner, lambda ax, room: _draw(ax, lines, left_out, data.attrs, room))


def _lines(data: pd.DataFrame, wanted: int | None) -> tuple[list[_Line], str]:
    """What is drawn, the largest ratio first, and what is said of those for which there is no room."""
    found = []
    for record in data.to_dict(orient="records"):
        ratio = measurable(record["ratio"])
        if ratio is not None and ratio > 0 and record["verdict"] in _LOOKS:
            told = (record["case"], record["precision"], record.get("parameters"))
            name = " ".join(str(word) for word in told if not formatting.is_missing(word) and word)
            low, high = (_number(record[end]) for end in ("ratio_lo", "ratio_hi"))
            threshold = _number(record["threshold_pct"])
            limit = abs(math.log1p(threshold / 100)) if threshold > -100 else math.nan
            found.append(_Line(cut(name, _LONGEST_NAME), record["verdict"], ratio, low, high, limit))
    if not found:
        raise ValueError("there is nothing to draw: no case was compared")
    found.sort(key=lambda line: -line.ratio)
    apart = len(data) - len(found)
    words = [f"not drawn: {plural(apart, 'case')} that could not be compared"] if apart else []
    most = int((_MOST_INCHES - _MARGIN_INCHES) / _ROW_INCHES[-1][1])
    kept = sorted(found, key=lambda line: -abs(math.log(line.ratio)))[: most if wanted is None else min(most, wanted)]
    if len(kept) == len(found):
        return found, ", ".join(words)
    left_out = f"the {len(kept)} largest changes of {len(found)}"
    if wanted is None:
        log.warning("the picture shows %s", left_out)
    return sorted(kept, key=lambda line: -line.ratio), ", ".join([left_out, *words])


def _number(value: Any) -> float:
    """A number as it is, infinite ones too; NaN for anything else."""
    return float(value) if isinstance(value, numbers.Real) and not formatting.is_missing(value) else math.nan


def _row(count: int) -> tuple[float, float]:
    """Inches of a row, and points of its letters."""
    return next((height, letters) for most, height, letters in _ROW_INCHES if count <= most)


def _draw(ax: Axes, lines: Sequence[_Line], left_out: str, attrs: Any, room: Inches) -> None:
    colors = ink(ax)
    height = legend_over_lines(ax, _handles(lines, colors), len(lines), room)
    letters = min(_row(len(lines))[1], 72 * height * 0.72)
    low, high, factors = _range(lines)

    def at(ratio: float) -> float:
        """Where a ratio is drawn: the axis is one of factors, or of percent."""
        kept = min(max(ratio, low), high)
        return kept if factors else 100 * (kept - 1)

    if factors:
        ax.set_xscale("log")
    for place, line in enumerate(lines):
        color, mark = _LOOKS[line.verdict][0] or colors.soft, _LOOKS[line.verdict][1]
        reach = min(line.limit, 50.0)
        left, right = at(math.exp(-reach)), at(math.exp(reach))
        ax.barh(place, right - left, left=left, height=1.0, color=colors.grid, linewidth=0)
        ax.plot([at(line.low), at(line.high)], [place, place], color=color, linewidth=1.4, solid_capstyle="butt")
        size = min(5.5, 24 * height)
        ax.plot([at(line.ratio)], [place], color=color, marker=mark, markersize=size, linestyle="none")
    ax.axvline(at(1.0), color=colors.text, linewidth=0.8)
    ax.set_yticks(range(len(lines)), [line.name for line in lines], fontsize=letters, parse_math=False)
    ax.set_xlim(at(low), at(high))
    _axis(ax, attrs, factors=factors)
    sides = [cut(str(attrs[name]), 48) for name in ("new", "base") if attrs.get(name)]
    words = [" against ".join(sides)] if len(sides) == 2 else []
    ax.set_title("\n".join([*words, *([left_out] if left_out else [])]), loc="left", fontsize=9, parse_math=False)
    dress(ax, grid="x")
    ax.tick_params(axis="y", length=0)


def _range(lines: Sequence[_Line]) -> tuple[float, float, bool]:
    """The axis: all ratios, and bands and intervals where there is room; whether it is one of factors."""
    middles = [math.log(line.ratio) for line in lines]
    ends = [math.log(end) for line in lines for end in (line.low, line.high) if 0 < end < math.inf]
    bands = [sign * line.limit for line in lines if math.isfinite(line.limit) for sign in (-1, 1)]
    room = 3 * max(map(abs, middles)) + 0.05
    wanted = [*middles, *(min(max(end, -room), room) for end in (*ends, *bands)), -0.01, 0.01]
    low, high = 1.08 * min(wanted), 1.08 * max(wanted)
    return math.exp(low), math.exp(high), max(-low, high) > math.log(_LOGARITHMIC)


def _axis(ax: Axes, attrs: Any, *, factors: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    column = schema.column(str(attrs.get("metric", "time_ms")))
    title = column.title or column.name.replace("_", " ")
    if factors:
        ax.set_xlabel(f"{title}, new / base")
        low, high = ax.get_xlim()
        steps: list[float] = []
        for step in _FACTORS:
            near = any(abs(math.log(step / other)) < _APART * math.log(high / low) for other in steps)
            steps += [step] if low <= step <= high and not near else []
        ax.set_xticks(steps, [f"{step:g}x" for step in steps])
        ax.xaxis.set_minor_locator(NullLocator())
        return
    ax.set_xlabel(f"change of the {title} (%)")
    ax.xaxis.set_major_locator(MaxNLocator(9))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.3g}" if abs(value) > 1e-9 else "0"))


def _handles(lines: Sequence[_Line], colors: Ink) -> list[Any]:
    """The legend's entries."""
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for verdict, (color, mark) in _LOOKS.items():
        count = sum(line.verdict == verdict for line in lines)
        if count:
            look: dict[str, Any] = {"color": color or colors.soft, "marker": mark, "linewidth": 1.4}
            handles.append(make_handle(f"{verdict} ({count})", **look))
    return [*handles, Patch(facecolor=colors.grid, label="taken for noise")]
