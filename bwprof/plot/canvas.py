"""What all pictures share: sizes, names that can be drawn, files and their endings."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.styles import DARK
from bwprof.results.atomic import atomic_write
from bwprof.text.parsing import describe_unknown, escape_controls, parse_int, quote_text, repr_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle


def bar(ax: Axes, left: float, middle: float, width: float, height: float, **look: Any) -> Rectangle:
    """Draw a lying bar on axes that have their limits."""
    from matplotlib.patches import Rectangle

    made = Rectangle((left, middle - height / 2), width, height, **look)
    ax.add_patch(made)
    return made


def _import_matplotlib() -> None:
    """Import matplotlib; ignore a backend in MPLBACKEND that it refuses, since files need no screen."""
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
    with contextlib.suppress(ImportError):  # whatever draws says that it is missing
        _import_matplotlib()

log = logging.getLogger("bwprof.plot")

Inches = tuple[float, float]  # width and height

# Of pictures with a line for each case: those beyond are left out, which is said, as nobody reads so many.
MOST_LINES = 150

LEAST_INCHES = 0.12

_SHORT = 20  # letters of a name

_DPI = (10, 2000)

_LEAST_HEAD = 8  # letters of a name before its lengths


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn on axes of so many inches, and the size of a figure of its own, in which they are `inner`."""

    size: Inches
    inner: Inches
    draw: Callable[[Axes, Inches], object]

    def on(self, ax: Axes | None) -> Axes:
        """Draw it on the axes given, else on a new figure of pyplot's, which a notebook shows."""
        if ax is not None:
            check_axes(ax)
            self.draw(ax, measure_axes(ax))
            return ax
        import matplotlib.pyplot as plt

        made = plt.figure(figsize=self.size, layout="constrained").add_subplot()
        self.draw(made, self.inner)
        return made

    def write(self, targets: Sequence[Path], *, dpi: int = 150, dark: bool = False) -> list[Path]:
        """Draw it once and write it to each target, in the format of its ending; returns the targets."""
        write_figure(self.size, lambda ax: self.draw(ax, self.inner), targets, dpi=dpi, dark=dark)
        return list(targets)


def measure_axes(ax: Axes) -> Inches:
    """Width and height of axes, as they are laid out now."""
    figure: Any = ax.figure  # or a part of one, which has no inches of its own
    place = ax.get_position()
    return float(place.width * figure.bbox.width / figure.dpi), float(place.height * figure.bbox.height / figure.dpi)


def check_axes(ax: Any) -> None:
    """TypeError for what are no axes, ValueError for those on which no picture can be drawn."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(f"ax is {repr_short(ax)}: axes of matplotlib are needed, as figure.add_subplot() makes them")
    if ax.name != "rectilinear":
        raise ValueError(f"ax is of the projection {ax.name!r}: plain axes are needed, as figure.add_subplot() makes")
    if ax.figure is None:
        raise ValueError("ax belongs to no figure: it was removed from it")


def count_lines(height: float) -> int:
    """How many cases stand below each other in so many inches, and can be read."""
    return max(1, min(MOST_LINES, int(height / LEAST_INCHES + 1e-6)))


def note_left_out(shown: int, count: int, what: str) -> list[str]:
    """Say, in a title and in the log, where there is room for the first ones alone; [] where all are shown."""
    said = [] if shown == count else [f"the first {shown} of {count} {what}"]
    for words in said:
        log.warning("the picture shows %s", words)
    return said


def cut(text: str, most: int) -> str:
    """A name as it is drawn: in one line, no control characters, which SVG cannot hold, and room left for the rest.

    Lengths, which stand at the end of a case's name and may be all that tells two apart, are kept.
    """
    safe = escape_controls(" ".join(text.split()))
    if len(safe) <= most:
        return safe
    head, mark, lengths = safe.rpartition(" kv_lens=")
    room = most - 1 - len(mark + lengths)
    if mark and room < _LEAST_HEAD:
        return "\u2026" + safe[1 - most :]
    return f"{head[:room]}\u2026{mark}{lengths}" if mark else safe[: most - 1] + "\u2026"


def distinguish_names(names: Sequence[str]) -> tuple[str, list[str]]:
    """The words that all names share, which need not stand beside each, and what then tells each from the others; short
    names stay whole.
    """
    words = {name: name.split() for name in names}
    shared = [word for word in next(iter(words.values()), []) if all(word in own for own in words.values())]
    brief = {name: " ".join(word for word in own if word not in shared) for name, own in words.items()}
    short = max(map(len, names), default=0) <= _SHORT
    if short or not all(brief.values()) or len(set(brief.values())) < len(brief):
        return "", list(names)
    return " ".join(shared), [brief[name] for name in names]


def wrap_name(text: str, letters: int, most: int) -> str:
    """A name in lines of so many letters, broken between words; beyond the `most` lines it is cut."""
    return "\n".join(textwrap.wrap(cut(text, letters * most), letters, max_lines=most, placeholder="\u2026"))


@lru_cache(maxsize=4096)
def measure_width(text: str, points: float) -> float:
    """How wide a text is drawn, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks
        width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=points), False)
    return float(width) / 72


def measure_labels(names: Iterable[str], points: float) -> float:
    """How many inches names take at the left of axes, with what is around them."""
    return max((measure_width(name, points) for name in names), default=0.0) + 0.3


def count_columns(labels: Sequence[str], width: float, points: float) -> int:
    """So many columns of a legend as fit a width, in inches."""
    widths = [measure_width(label, points) + 4.5 * points / 72 for label in labels]
    for columns in range(min(8, len(labels)), 1, -1):
        lines, longer = divmod(len(labels), columns)
        ends = [0, *accumulate(lines + (place < longer) for place in range(columns))]
        if sum(max(widths[first:end]) for first, end in pairwise(ends)) <= width:
            return columns
    return 1


def endings() -> list[str]:
    """The endings of files, without a dot, that matplotlib can write pictures to."""
    from matplotlib.backend_bases import FigureCanvasBase

    return sorted(FigureCanvasBase.get_supported_filetypes())


def check_dpi(given: Any, name: str) -> int:
    """Dots per inch; ValueError with `name` where letters would be none, or the picture too large."""
    dpi = parse_int(given, name)
    if not _DPI[0] <= dpi <= _DPI[1]:
        raise ValueError(f"{name} is {quote_text(dpi)}: allowed are {_DPI[0]} to {_DPI[1]}")
    return dpi


def check_ending(target: Path) -> None:
    """ValueError for a file whose ending says no format of a picture."""
    known = endings()
    if target.suffix.lower().removeprefix(".") not in known:
        raise ValueError(
            describe_unknown("ending of a picture", target.suffix or target.name, [f".{name}" for name in known])
        )


def save_one(path: str | PathLike[str], write: Callable[[Sequence[Path]], list[Path]]) -> Path:
    """Write a picture into one file, whose ending is looked at first; returns its path."""
    target = Path(path)
    check_ending(target)
    return write([target])[0]


def write_figure(
    size: Inches, draw: Callable[[Axes], object], targets: Sequence[Path], *, dpi: int = 150, dark: bool = False
) -> None:
    """Draw once, on so many inches, and write it to each target in the format of its ending; no window is touched."""

    def draw_on(figure: Figure) -> None:
        draw(figure.add_subplot(facecolor=DARK if dark else "white"))

    write_panels(size, draw_on, targets, dpi=dpi, dark=dark)


def write_panels(
    size: Inches, draw: Callable[[Figure], object], targets: Sequence[Path], *, dpi: int = 150, dark: bool = False
) -> None:
    """The same of a figure that is drawn as a whole."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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


def _lay_out(figure: Figure, ending: str, dpi: int) -> None:
    """Give names their room, as the format of the file measures them. A figure with a layout of its own would be drawn
    twice: once for that alone."""
    from matplotlib.backend_bases import get_registered_canvas_class
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    canvas = get_registered_canvas_class(ending)(figure)
    figure.dpi = canvas.fixed_dpi or dpi
    ConstrainedLayoutEngine().execute(figure)
