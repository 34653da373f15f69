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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from bwprof.plot.styles import DARK
from bwprof.results.atomic import atomic_write
from bwprof.text.parsing import describe_unknown, escape_controls, parse_int, quote_text, repr_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")


def _import_matplotlib() -> None:
    """Import matplotlib without a backend in MPLBACKEND that it refuses: files need no screen."""
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend


if os.environ.get("MPLBACKEND") and "matplotlib" not in sys.modules:
    with contextlib.suppress(ImportError):  # the first function that draws reports it
        _import_matplotlib()

log = logging.getLogger("bwprof.plot")
Inches = tuple[float, float]  # width and height
MOST_LINES = 150  # cases of a picture with a line for each
LEAST_INCHES = 0.12  # height of such a line
_DPI = (10, 2000)


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
            check_axes(ax)
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


def draws(build: Callable[P, Drawing]) -> Callable[P, Axes]:
    """Turn a function that returns a Drawing into one that draws it on its second argument, `ax`.

    Its docstring gets the section on what it returns; `inspect.unwrap` returns the function again.
    """

    @wraps(build)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Axes:
        ax: Any = args[1] if len(args) > 1 else kwargs.get("ax")
        return build(*args, **kwargs).on(ax)

    returns = "\n    Returns\n    -------\n    matplotlib.axes.Axes\n"
    draw.__doc__ = (build.__doc__ or "").replace("\n    Raises\n", f"{returns}\n    Raises\n")
    draw.__signature__ = inspect.signature(build).replace(return_annotation="Axes")  # type: ignore[attr-defined]
    return draw


def measure_axes(ax: Axes) -> Inches:
    """Return the width and the height of axes in their present layout, inches."""
    figure: Any = ax.figure  # a part of a figure has no size in inches of its own
    place = ax.get_position()
    return float(place.width * figure.bbox.width / figure.dpi), float(place.height * figure.bbox.height / figure.dpi)


def check_axes(ax: Any) -> None:
    """Raise TypeError for anything but axes, ValueError for axes on which no picture can be drawn."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(f"ax is {repr_short(ax)}: axes of matplotlib are needed, as figure.add_subplot() makes them")
    if ax.name != "rectilinear":
        raise ValueError(f"ax is of the projection {ax.name!r}: plain axes are needed, as figure.add_subplot() makes")
    if ax.figure is None:
        raise ValueError("ax belongs to no figure: it was removed from it")


def count_lines(height: float) -> int:
    """Return how many readable lines fit a height in inches."""
    return max(1, min(MOST_LINES, int(height / LEAST_INCHES + 1e-6)))


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


def measure_labels(names: Iterable[str], points: float) -> float:
    """Return the width that tick labels take at the left of axes, with their margin, inches."""
    return max((measure_width(name, points) for name in names), default=0.0) + 0.3


def count_columns(labels: Sequence[str], width: float, points: float) -> int:
    """Return how many columns of a legend fit a width in inches."""
    widths = [measure_width(label, points) + 4.5 * points / 72 for label in labels]
    for columns in range(min(8, len(labels)), 1, -1):
        lines, longer = divmod(len(labels), columns)
        ends = [0, *accumulate(lines + (place < longer) for place in range(columns))]
        if sum(max(widths[first:end]) for first, end in pairwise(ends)) <= width:
            return columns
    return 1


def endings() -> list[str]:
    """List the endings of pictures, without a dot, that matplotlib can write."""
    from matplotlib.backend_bases import FigureCanvasBase

    return sorted(FigureCanvasBase.get_supported_filetypes())


def check_dpi(value: Any, name: str) -> int:
    """Return dots per inch; raise ValueError with `name` for what is none, too few or too many."""
    dpi = parse_int(value, name)
    if not _DPI[0] <= dpi <= _DPI[1]:
        raise ValueError(f"{name} is {quote_text(dpi)}: allowed are {_DPI[0]} to {_DPI[1]}")
    return dpi


def check_ending(target: Path) -> None:
    """Raise ValueError for a file whose ending is no format of a picture."""
    known = endings()
    if target.suffix.lower().removeprefix(".") not in known:
        raise ValueError(
            describe_unknown("ending of a picture", target.suffix or target.name, [f".{name}" for name in known])
        )


def write_figure(
    size: Inches, draw: Callable[[Figure], object], targets: Sequence[Path], *, dpi: int = 150, dark: bool = False
) -> list[Path]:
    """Draw a figure once and write each target in the format of its ending; return the targets.

    It opens no window and changes no global state.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    for target in targets:
        check_ending(target)
    figure = Figure(figsize=size, facecolor=DARK if dark else "white")
    figure.set_layout_engine("none")
    FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")  # a letter that the font lacks
        draw(figure)
        for target in targets:
            ending, content = target.suffix.lower().removeprefix("."), io.BytesIO()
            _lay_out(figure, ending, dpi)
            figure.savefig(content, dpi=dpi, format=ending, facecolor="auto")
            atomic_write(target, content.getvalue())
    return list(targets)


def _lay_out(figure: Figure, ending: str, dpi: int) -> None:
    """Lay out a figure with the text widths of a format.

    A figure with a layout engine of its own would be drawn twice for each file.
    """
    from matplotlib.backend_bases import get_registered_canvas_class
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    canvas = get_registered_canvas_class(ending)(figure)
    figure.dpi = canvas.fixed_dpi or dpi
    ConstrainedLayoutEngine().execute(figure)
