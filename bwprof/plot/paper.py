"""What all pictures share: names that can be drawn, files and their endings."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.text import spelt, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def cut(text: str, most: int) -> str:
    """A name as it is drawn: in one line, no control characters, which SVG cannot hold, and room left for the rest."""
    safe = spelt(" ".join(text.split()))
    return safe if len(safe) <= most else safe[: most - 1] + "\u2026"


def endings() -> list[str]:
    """The endings of files, without a dot, that matplotlib can write pictures to."""
    from matplotlib.backend_bases import FigureCanvasBase

    return sorted(FigureCanvasBase.get_supported_filetypes())


def check_ending(target: Path) -> None:
    """ValueError for a file whose ending says no format of a picture."""
    known = endings()
    if target.suffix.lower().removeprefix(".") not in known:
        raise ValueError(unknown("ending of a picture", target.suffix or target.name, [f".{name}" for name in known]))


def write_figure(
    size: tuple[float, float], draw: Callable[[Axes], object], targets: Sequence[Path], *, dpi: int = 150
) -> None:
    """Draw once, on so many inches, and write it to each target in the format of its ending; no window is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure.add_subplot())
    for target in targets:
        content = io.BytesIO()
        figure.savefig(content, dpi=dpi, format=target.suffix.lower().removeprefix("."))
        target.write_bytes(content.getvalue())
