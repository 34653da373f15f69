"""The bandwidths of each case in a panel of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.looks import style
from bwprof.plot.paper import cut, note_left_out, write_panels
from bwprof.results import schema
from bwprof.text import figure_text, spelt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 60  # panels that somebody looks at; which are left out is said
_COLUMNS = 3
_LONGEST = 40  # letters of a panel's title


def write(means: Mapping[str, Mapping[str, float]], target: Path, *, dpi: int) -> None:
    """Draw a panel for each case: its precisions' bandwidths in GB/s; the format is that of the target's ending.

    Raises
    ------
    ValueError
        When there is nothing to draw.
    """
    if not means:
        raise ValueError("there are no rows to draw")
    cases = list(means)[:MOST]
    note_left_out(len(cases), len(means), "cases")
    columns = min(_COLUMNS, len(cases))
    lines = math.ceil(len(cases) / columns)

    def draw(figure: Figure) -> None:
        for number, case in enumerate(cases):
            _draw(figure.add_subplot(lines, columns, number + 1), case, means[case])

    write_panels((3.6 * columns, 2.6 * lines), draw, [target], dpi=dpi)


def _draw(ax: Axes, case: str, means: Mapping[str, float]) -> None:
    from bwprof.plot.hatches import Bar

    names: Sequence[str] = list(means)
    for place, name in enumerate(names):
        look = style(name)
        ground: dict[str, Any] = {"edgecolor": "white", "linewidth": 0}
        ax.add_patch(Bar((place - 0.35, 0), 0.7, means[name], facecolor=look.color, hatch=look.hatch, **ground))
        ax.text(place, means[name], figure_text(means[name], whole_from=100), ha="center", va="bottom", fontsize=8)
    ax.set_xticks(range(len(names)), [spelt(name).upper() for name in names], fontsize=8, parse_math=False)
    ax.set_title(cut(case, _LONGEST), fontsize=9, parse_math=False)
    ax.set_ylabel(schema.column("bandwidth_gb_s").unit, fontsize=8)
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylim(0, 1.15 * max(means.values()) or 1.0)
    ax.spines[["top", "right"]].set_visible(False)
