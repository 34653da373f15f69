"""The comparison: effective bandwidths of each case, a bar per precision, with the roofs that they stand below."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.analysis.summary import ordered_precisions
from bwprof.plot.looks import style
from bwprof.plot.paper import cut, endings, write_figure
from bwprof.results import schema
from bwprof.results.schema import Row
from bwprof.roofs.limits import graded, with_limits
from bwprof.text import figure_text, measurable, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from bwprof.results.compare import Group

_log = logging.getLogger("bwprof.plot")


# Of the mark of the nearer roof: a stream, or arithmetic.
_ROOF_COLORS = {False: "#222222", True: "#B00020"}
# Of the picture's height; cases beyond it are left out, which is said: nobody reads so many.
_MOST_INCHES = 60.0
_MARGIN_INCHES = 1.9
_LONGEST_DOUBTS = 60  # characters of the flags in the legend
_WIDTH_LETTERS = 150  # of the names' and the legend's size, in the picture's width
_HANDLE_LETTERS = 8  # what a line of the legend takes beside its text
_LONGEST_NAME = 96  # characters of a name that leave room for the bars
_LONGEST_PRECISION = 16


def comparison(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Effective bandwidth per case, one bar per precision, with the nearer roof: a plain stream's, or arithmetic.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.sweep` or `bwprof.load`; a frame with the nine classic columns will do.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's, of a fitting size, when left out: a notebook shows it.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        When a classic column is missing, or there is nothing to draw.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", N=64, K=64, backend="cpu", cache="hot", roofs=False)
    >>> bwprof.plot.comparison(frame).get_xlabel()
    'effective bandwidth (GB/s)'
    """
    groups, precisions, left_out = _shown(data)
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=_size(groups, precisions), layout="constrained").add_subplot()
    _draw(ax, groups, precisions, left_out)
    return ax


def save(data: pd.DataFrame, path: str | PathLike[str]) -> list[Path]:
    """Write `comparison` as path.png and path.svg; returns both paths. No window and no global state is touched.

    One of these endings may stand in `path` already. Another ending of a picture that matplotlib can write (.pdf, ...)
    gives that one file.
    """
    ending = Path(path).suffix.lower()
    if ending not in (".png", ".svg") and ending.removeprefix(".") in endings():
        return write(data, [Path(path)])
    base = os.fspath(path).removesuffix(".png").removesuffix(".svg")
    return write(data, [Path(f"{base}{name}") for name in (".png", ".svg")])


def write(data: pd.DataFrame, targets: Sequence[Path], *, dpi: int = 150) -> list[Path]:
    """Draw `comparison` once and write it to each target, in the format of its ending; returns the targets."""
    groups, precisions, left_out = _shown(data)
    write_figure(_size(groups, precisions), lambda ax: _draw(ax, groups, precisions, left_out), targets, dpi=dpi)
    return list(targets)


def _shown(data: pd.DataFrame) -> tuple[list[Group], list[str], str]:
    """What is drawn: the cases, their precisions, and what is said of those for which there is no room."""
    from bwprof.results import compare, frame

    rows = frame.compared_rows(with_limits(data))
    groups = compare.groups(rows)
    if not groups:
        raise ValueError("there are no rows to draw")
    present = {row["precision"] for row in rows}
    precisions = [name for name in ordered_precisions(rows) if name in present]
    most = max(1, int((_MOST_INCHES - _MARGIN_INCHES) / _case_inches(precisions)))
    left_out = f"the first {most} of {len(groups)} cases" if len(groups) > most else ""
    if left_out:
        _log.warning("the picture shows %s", left_out)
    return groups[:most], precisions, left_out


def _size(groups: Sequence[Group], precisions: Sequence[str]) -> tuple[float, float]:
    """Width and height in inches."""
    return 10.5, _MARGIN_INCHES + len(groups) * _case_inches(precisions)


def _case_inches(precisions: Sequence[str]) -> float:
    return max(0.34, 0.17 * len(precisions) + 0.10)


def _draw(ax: Axes, groups: Sequence[Group], precisions: Sequence[str], left_out: str) -> None:
    thickness = 0.8 / len(precisions)
    longest = _longest(groups)
    for place, group in enumerate(groups):
        for slot, precision in enumerate(precisions):
            row = group.rows.get(precision)
            if row is not None:
                center = place + (slot - (len(precisions) - 1) / 2) * thickness
                _bar(ax, row, center, thickness, longest)
        _gain(ax, group, place)
    if any(group.rows.get("fp16", {}).get("speedup_vs_fp32") for group in groups):
        heading = "FP16 speed-up\nin time"
        ax.annotate(
            heading, (1.07, 1.0), xycoords="axes fraction", ha="right", va="bottom", fontsize=8, color="#222222"
        )
    _ceiling(ax, groups)
    _legend(ax, groups, precisions)
    ax.set_yticks(range(len(groups)), [_label(group, groups) for group in groups], fontsize=8.5, parse_math=False)
    ax.set_ylim(len(groups) - 0.45, -0.55)
    ax.set_xlim(0, longest * 1.07)
    ax.set_xlabel(schema.column("bandwidth_gb_s").label)
    ax.set_title(_title(groups, left_out), loc="left", fontsize=11, parse_math=False)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _longest(groups: Sequence[Group]) -> float:
    """The largest value that the axis must hold, GB/s."""
    rows = [row for group in groups for row in group.rows.values()]
    values = [value for row in rows for value in (row.get("bandwidth_gb_s"), _roof(row)[0])]
    return max([value for value in values if value and measurable(value)], default=1.0)


def _roof(row: Row) -> tuple[float | None, bool]:
    """The bandwidth at which a row would be at its nearer roof, GB/s, and whether that is the arithmetic one."""
    grade, bandwidth = graded(row), row.get("bandwidth_gb_s")
    if grade is not None and grade[1] and grade[0] > 0 and bandwidth:
        return 100 * bandwidth / grade[0], True
    return row.get("attainable_gb_s"), False


def _bar(ax: Axes, row: Row, center: float, thickness: float, longest: float) -> None:
    look = style(row["precision"])
    value = row.get("bandwidth_gb_s")
    if value is None or measurable(value) is None:
        said = cut(str(row["status"] if value is None else value), _LONGEST_PRECISION)
        ax.text(longest * 0.004, center, said, va="center", fontsize=6.5, color="#888888", style="italic")
        return
    ax.barh(
        center,
        value,
        height=thickness * 0.92,
        color=look.color,
        hatch=look.hatch,
        edgecolor="white",
        linewidth=0,
    )
    end = value
    roof, arithmetic = _roof(row)
    if roof is not None and measurable(roof):
        half = thickness * 0.46
        color = _ROOF_COLORS[arithmetic]
        ax.plot([roof] * 2, [center - half, center + half], color=color, linewidth=1.6, solid_capstyle="butt")
        if arithmetic:  # told from the other roof without its colour, too
            ax.plot(roof, center, color=color, marker="D", markersize=2.6, linewidth=0)
        if value <= roof < value + longest * 0.09:
            end = roof + longest * 0.005 * arithmetic
    doubted = "*" if row.get("flags") else ""
    ax.text(
        end + longest * 0.006,
        center,
        figure_text(value, whole_from=100) + doubted,
        va="center",
        fontsize=6.5,
        color="#333333",
    )


def _gain(ax: Axes, group: Group, place: int) -> None:
    """Right of the axes: how much faster FP16 is in time."""
    gain = group.rows.get("fp16", {}).get("speedup_vs_fp32")
    if gain is not None:
        ax.annotate(
            f"{short(gain, '.2f')}\u00d7",
            (1.07, place),
            xycoords=("axes fraction", "data"),
            va="center",
            ha="right",
            fontsize=8.5,
            color="#222222",
        )


def _ceiling(ax: Axes, groups: Sequence[Group]) -> None:
    """The theoretical peak where it is known and near enough to show."""
    peaks = {row["peak_gb_s"] for group in groups for row in group.rows.values() if measurable(row.get("peak_gb_s"))}
    if len(peaks) == 1:
        ax.axvline(peaks.pop(), color="#555555", linewidth=1, linestyle=(0, (5, 3)), zorder=0.5)


def _legend(ax: Axes, groups: Sequence[Group], precisions: Sequence[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = [row for group in groups for row in group.rows.values()]
    handles: list[Any] = [
        Patch(
            facecolor=style(name).color,
            hatch=style(name).hatch,
            edgecolor="white",
            linewidth=0,
            label=cut(name, _LONGEST_PRECISION).upper(),
        )
        for name in precisions
    ]
    marked = {arithmetic for roof, arithmetic in map(_roof, rows) if roof}
    told = {False: f"{schema.column('attainable_gb_s').title}: a plain stream of the same bytes"}
    told[True] = "arithmetic roof, where it is nearer"
    handles += [
        Line2D(
            [],
            [],
            color=_ROOF_COLORS[arithmetic],
            linewidth=0,
            marker="D" if arithmetic else "|",
            markersize=4 if arithmetic else 9,
            markeredgewidth=1.6,
            label=told[arithmetic],
        )
        for arithmetic in sorted(marked)
    ]
    if len({row["peak_gb_s"] for row in rows if measurable(row.get("peak_gb_s"))}) == 1:
        peak = schema.column("peak_gb_s").title
        handles.append(Line2D([], [], color="#555555", linewidth=1, linestyle=(0, (5, 3)), label=peak))
    doubts = Counter(flag for row in rows if row.get("flags") for flag in str(row["flags"]).split(";"))
    if doubts:
        label = cut(", ".join(name for name, _ in doubts.most_common()), _LONGEST_DOUBTS)
        handles.append(Line2D([], [], linewidth=0, marker="$*$", color="#333333", label=f"{label}: see flags"))
    legend = ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        borderaxespad=4.5,
        ncols=_legend_columns(
            [str(handle.get_label()) for handle in handles], max(len(_label(group, groups)) for group in groups)
        ),
        fontsize=8,
        frameon=False,
        columnspacing=1.6,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _legend_columns(labels: Sequence[str], longest_name: int) -> int:
    """So many columns as fit beside the names, right of which the legend begins."""
    room = _WIDTH_LETTERS - longest_name
    for columns in (4, 3, 2):
        rows = math.ceil(len(labels) / columns)
        widest = [max(map(len, labels[first : first + rows])) for first in range(0, len(labels), rows)]
        if sum(widest) + _HANDLE_LETTERS * len(widest) <= room:
            return columns
    return 1


def _label(group: Group, groups: Sequence[Group]) -> str:
    """Case and variant; the device and the cache only where the picture has several."""
    first = group.first
    words = []
    same_case = [other for other in groups if other.first["case"] == first["case"]]
    if len(same_case) > 1 and group.variants:
        words.append("/".join(group.variants))
    if len({other.first.get("device") for other in groups}) > 1 and first.get("device"):
        words.append(f"[{first['device']}]")
    if first.get("cache") == "hot":
        words.append("(hot)")
    rest = cut(" ".join(words), _LONGEST_NAME // 2)
    return f"{cut(str(first['case']), _LONGEST_NAME - len(rest))} {rest}".rstrip()


def _title(groups: Sequence[Group], left_out: str) -> str:
    found = (str(group.first["device"]) for group in groups if group.first.get("device"))
    devices = list(dict.fromkeys(cut(device, _LONGEST_NAME) for device in found))
    words = [*(devices if len(devices) == 1 else []), *([left_out] if left_out else [])]
    return "\n".join(["Effective memory bandwidth by precision", *([", ".join(words)] if words else [])])
