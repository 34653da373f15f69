"""Sizes, names and files of pictures."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from bwprof.results.atomic import atomic_write
from bwprof.text.parsing import describe_unknown, escape_controls, parse_int, quote_text, repr_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The import of matplotlib fails for a backend that it refuses; files need no screen.
if (_backend := os.environ.get("MPLBACKEND")) and "matplotlib" not in sys.modules:
    del os.environ["MPLBACKEND"]
    with contextlib.suppress(ImportError, ValueError):  # the first function that draws reports an ImportError
        import matplotlib as _matplotlib

        _matplotlib.rcParams["backend"] = _backend
    os.environ["MPLBACKEND"] = _backend

log = logging.getLogger("bwprof.plot")
P = ParamSpec("P")
Inches = tuple[float, float]  # width and height
DARK = "#14171A"  # a dark ground
MOST_LINES = 150  # cases of a picture with a line for each
LEGEND_INCHES = 0.17  # height of a legend's line of 8 points
_AROUND_INCHES = 1.05  # title and axis


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture: `draw(axes, inches)` draws it on axes of this size.

    A figure of its own has the size `size`, and its axes have the size `inner`, both in inches.
    """

    size: Inches
    inner: Inches
    draw: Callable[[Axes, Inches], object]

    def on(self, ax: Axes | None) -> Axes:
        """Draw on `ax`; on a new figure of pyplot without one, so that a notebook shows it."""
        if ax is not None:
            self.draw(ax, measure_axes(ax))
            return ax
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=self.size, layout="constrained").add_subplot()
        self.draw(ax, self.inner)
        return ax

    def write(self, targets: Sequence[Path], *, dpi: int = 150, dark: bool = False) -> list[Path]:
        """Draw once and write each target in the format of its ending; return the targets."""

        def draw(figure: Figure) -> None:
            self.draw(figure.add_subplot(facecolor=figure.get_facecolor()), self.inner)

        return write_figure(self.size, draw, targets, dpi=dpi, dark=dark)


_AXES_TEXT = """\
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot of a fitting size.

    Returns
    -------
    matplotlib.axes.Axes
"""


def draws(build: Callable[P, Drawing]) -> Callable[P, Axes]:
    """Turn a function that returns a Drawing into one that draws it on its second argument, `ax`.

    Its docstring gets what all say of the axes. `inspect.unwrap` returns the function again.
    """

    @wraps(build)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Axes:
        ax: Any = args[1] if len(args) > 1 else kwargs.get("ax")
        return build(*args, **kwargs).on(ax)

    draw.__doc__ = (build.__doc__ or "").replace("\n    Raises\n", f"{_AXES_TEXT}\n    Raises\n")
    draw.__signature__ = inspect.signature(build).replace(return_annotation="Axes")  # type: ignore[attr-defined]
    return draw


def measure_axes(ax: Any) -> Inches:
    """Return the width and the height of axes in their present layout, inches.

    Raise TypeError for other objects, ValueError for axes on which no picture can be drawn.
    """
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(f"ax is {repr_short(ax)}: axes of matplotlib are needed, as figure.add_subplot() makes them")
    if ax.name != "rectilinear":
        raise ValueError(f"ax is of the projection {ax.name!r}: plain axes are needed, as figure.add_subplot() makes")
    figure: Any = ax.figure  # a part of a figure has no size in inches of its own
    if figure is None:
        raise ValueError("ax belongs to no figure: it was removed from it")
    place = ax.get_position()
    return float(place.width * figure.bbox.width / figure.dpi), float(place.height * figure.bbox.height / figure.dpi)


def draw_lines(
    names: Sequence[str],
    each: float,
    draw: Callable[[Axes, int, Inches], object],
    *,
    width: float = 9.5,
    height: float | None = None,
    points: float = 8.5,
    least: float = 0.12,
) -> Drawing:
    """Return a picture with a line for each name; `draw(axes, count, inches)` draws the first ones.

    A line is `each` inches high, or less in a picture of a certain `height`, but not less than `least`. Names have
    `points`.
    """
    drawn = names[:MOST_LINES]
    inner = len(drawn) * each + 3 * LEGEND_INCHES if height is None else height - _AROUND_INCHES

    def draw_first(ax: Axes, room: Inches) -> None:
        draw(ax, max(1, min(len(drawn), int((room[1] - 3 * LEGEND_INCHES) / least + 1e-6))), room)

    names_width = max((measure_width(name, points) for name in drawn), default=0.0) + 0.3
    return Drawing((width, inner + _AROUND_INCHES), (width - names_width, inner), draw_first)


def note_left_out(drawn: int, count: int, what: str) -> list[str]:
    """Return and log a note where only the first `drawn` of `count` are drawn; [] where all are."""
    if drawn == count:
        return []
    note = f"the first {drawn} of {count} {what}"
    log.warning("the picture shows %s", note)
    return [note]


def cut(text: str, most: int) -> str:
    """Return a name in one line of at most `most` letters, without control characters, which SVG cannot hold.

    Lengths at the end of a case's name stay: only they may tell two cases apart.
    """
    safe = escape_controls(" ".join(text.split()))
    if len(safe) <= most:
        return safe
    head, mark, lengths = safe.rpartition(" kv_lens=")
    room = most - 1 - len(mark + lengths)
    if mark and room < 8:
        return "\u2026" + safe[1 - most :]
    return f"{head[:room]}\u2026{mark}{lengths}" if mark else safe[: most - 1] + "\u2026"


def distinguish_names(names: Sequence[str]) -> tuple[str, list[str]]:
    """Split names into the words that all share, and the rest of each; names of at most 20 letters stay whole."""
    words = {name: name.split() for name in names}
    shared = [word for word in next(iter(words.values()), []) if all(word in own for own in words.values())]
    brief = {name: " ".join(word for word in own if word not in shared) for name, own in words.items()}
    short = max(map(len, names), default=0) <= 20
    if short or not all(brief.values()) or len(set(brief.values())) < len(brief):
        return "", list(names)
    return " ".join(shared), [brief[name] for name in names]


def wrap_name(text: str, letters: int, most: int) -> str:
    """Break a name between words into at most `most` lines of so many letters, and cut the rest."""
    return "\n".join(textwrap.wrap(cut(text, letters * most), letters, max_lines=most, placeholder="\u2026"))


@lru_cache(maxsize=4096)
def measure_width(text: str, points: float) -> float:
    """Return the width of a drawn text, inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks
        width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=points), False)
    return float(width) / 72


def endings() -> list[str]:
    """List the endings of pictures, without a dot, that matplotlib can write."""
    from matplotlib.backend_bases import FigureCanvasBase

    return sorted(FigureCanvasBase.get_supported_filetypes())


def check_dpi(value: Any, name: str) -> int:
    """Return dots per inch; raise ValueError with `name` for what is none, too few or too many."""
    dpi = parse_int(value, name)
    if not 10 <= dpi <= 2000:
        raise ValueError(f"{name} is {quote_text(dpi)}: allowed are 10 to 2000")
    return dpi


def check_ending(target: Path) -> None:
    """Raise ValueError for a file whose ending is no format of a picture."""
    known, ending = [f".{name}" for name in endings()], target.suffix.lower()
    if ending not in known:
        raise ValueError(describe_unknown("ending of a picture", target.suffix or target.name, known))


def write_figure(
    size: Inches, draw: Callable[[Figure], object], targets: Sequence[Path], *, dpi: int = 150, dark: bool = False
) -> list[Path]:
    """Draw a figure once and write each target in the format of its ending; return the targets.

    It opens no window and changes no global state.
    """
    from matplotlib.backend_bases import get_registered_canvas_class
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    for target in targets:
        check_ending(target)
    figure = Figure(figsize=size, facecolor=DARK if dark else "white")
    figure.set_layout_engine("none")  # with an engine matplotlib draws twice for each file
    FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")  # a letter that the font lacks
        draw(figure)
        for target in targets:
            ending, content = target.suffix.lower().removeprefix("."), io.BytesIO()
            # Letters' widths differ by format.
            figure.dpi = get_registered_canvas_class(ending)(figure).fixed_dpi or dpi
            ConstrainedLayoutEngine().execute(figure)
            figure.savefig(content, dpi=dpi, format=ending, facecolor="auto")
            atomic_write(target, content.getvalue())
    return list(targets)
