"""Bars: effective bandwidths of each case by precision, below their roofs.

Few cases are bars, many are dots. Lines have equal heights, below a legend; headings for families may stand among them.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from inspect import unwrap
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.summarize import PAIR, ordered_precisions
from bwprof.plot import canvas, inputs, legends
from bwprof.plot.styles import finish_axes, ink, readable, style, styles
from bwprof.results import pairs, schema
from bwprof.results.pairs import PrecisionGroup
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import find_grade
from bwprof.text.formatting import format_figure, format_short
from bwprof.text.parsing import describe_unknown, escape_controls, measured_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LAYOUTS = ("page", "slide")
_MOST_BARS = 20  # cases: more are dots
_PAGE_WIDTH, _SLIDE_SIZE = 10.5, (13.333, 7.5)  # inches, as all sizes
_AROUND_INCHES = 1.05  # title and axis
_DOT_INCHES, _SLIDE_INCHES = 0.26, 0.19  # height of a line with dots, and of one on a slide
_GAIN_INCHES = 0.62  # right of the bars, for the gain in time
_NAME_POINTS = (8.5, 14.0)  # of cases, on a page and on a slide
_LEAST_POINTS = 5.0
_LONGEST_NAME, _LONGEST_PRECISION = 64, 16  # letters
_MOST_PANELS = 60
_PEAK_LOOK: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (5, 3))}
_CaseLine = str | PrecisionGroup  # a family's heading, or a case


@canvas.draws
def comparison(data: Any, ax: Axes | None = None, *, layout: str = "page") -> canvas.Drawing:
    """Draw the effective bandwidth of each case and precision, with the nearer roof: a plain stream's, or arithmetic.

    More than 20 cases are drawn as dots; a line leads from each dot to its roof. Predictions are hollow. Words that all
    cases share in their names are in the title.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results; the nine classic columns are enough.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot of a fitting size.
    layout : {"page", "slide"}
        A page of any length, or a slide of 16:9 with the cases by family.

    Raises
    ------
    ValueError
        For a missing classic column, and no rows.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.sweep("gemm", N=64, K=64, backend="cpu", cache="hot", roofs=False)
    >>> bwprof.plot.comparison(frame).get_xlabel()
    'effective bandwidth (GB/s)'
    """
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise ValueError(describe_unknown("layout", layout, _LAYOUTS))
    slide = layout == "slide"
    rows = inputs.read_rows(data)[0]
    groups = pairs.group_precisions(rows)
    if not groups:
        raise ValueError("there are no rows to draw")
    present = {row["precision"] for row in rows}
    precisions = [name for name in ordered_precisions(rows) if name in present]
    lines: list[_CaseLine] = _by_family(groups) if slide else [*groups]
    size = _SLIDE_SIZE if slide else (_PAGE_WIDTH, _page_inches(len(groups), len(precisions)))
    names = canvas.measure_labels(_labels(lines[: canvas.MOST_LINES], groups)[1], _NAME_POINTS[slide])
    inner = (size[0] - names, size[1] - _AROUND_INCHES)
    return canvas.Drawing(
        size, inner, lambda ax, room: _Chart(ax, lines, precisions, room, slide=slide).draw(len(groups), room)
    )


def save(data: pd.DataFrame, path: str | PathLike[str]) -> list[Path]:
    """Write `comparison` as path.png and path.svg, or in the one other format that the path's ending names.

    Returns
    -------
    list of pathlib.Path
        The files.
    """
    drawing: canvas.Drawing = unwrap(comparison)(data)
    ending = Path(path).suffix.lower()
    if ending not in (".png", ".svg") and ending.removeprefix(".") in canvas.endings():
        return drawing.write([Path(path)])
    base = os.fspath(path).removesuffix(".png").removesuffix(".svg")
    return drawing.write([Path(f"{base}{name}") for name in (".png", ".svg")])


def _by_family(groups: Sequence[PrecisionGroup]) -> list[_CaseLine]:
    """Return the cases by family, each below its heading; without headings where there is one family."""
    families: dict[str, list[PrecisionGroup]] = {}
    for group in groups:
        try:
            family = str(registry.operation(str(group.first["operation"]))["family"])
        except ValueError:
            family = "other"
        families.setdefault(family, []).append(group)
    if len(families) == 1:
        return list(groups)
    lines: list[_CaseLine] = []
    for family, own in families.items():
        lines += [family, *own]
    return lines


def _page_inches(cases: int, precisions: int) -> float:
    each = max(0.34, 0.17 * precisions + 0.10) if cases <= _MOST_BARS else _DOT_INCHES
    return _AROUND_INCHES + 3 * legends.LINE_INCHES + min(cases, canvas.MOST_LINES) * each


class _Chart:
    """The lines of a comparison that fit axes: headings, and cases as bars or as dots."""

    def __init__(
        self, ax: Axes, lines: Sequence[_CaseLine], precisions: list[str], room: canvas.Inches, *, slide: bool
    ) -> None:
        height = max(room[1] - 3 * legends.LINE_INCHES, canvas.LEAST_INCHES)
        most = canvas.count_lines(height)
        self.lines = list(lines[: max(1, min(most, int(height / _SLIDE_INCHES))) if slide else most])
        while len(self.lines) > 1 and isinstance(self.lines[-1], str):
            self.lines.pop()
        self.cases = [(place, line) for place, line in enumerate(self.lines) if isinstance(line, PrecisionGroup)]
        self.groups = [group for _, group in self.cases]
        self.rows = [row for group in self.groups for row in group.rows.values()]
        self.ax, self.ink, self.slide = ax, ink(ax), slide
        self.precisions, self.looks = precisions, styles(precisions)
        self.thickness = 0.8 / len(precisions)  # of a bar, as a share of its case's line
        readable_bars = 72 * self.thickness * height / len(self.lines) >= _LEAST_POINTS + 1
        self.dots = len(self.groups) > _MOST_BARS or not readable_bars
        values = [value for row in self.rows for value in (_bandwidth(row), _roof(row)[0]) if value]
        self.longest = max(values, default=1.0)
        self.peak = _near_peak(self.rows, self.longest)
        self.longest = max(self.longest, self.peak or 0.0)
        self.each = self.inches = 0.0  # of a line, and of a GB/s; known with the legend

    def draw(self, count: int, room: canvas.Inches) -> None:
        """Draw everything; `count` cases would be drawn where there was room."""
        ax, points = self.ax, 10.0 if self.slide else 8.0
        gains = [(place, group, gain) for place, group in self.cases if (gain := _gain(group))]
        head = 2.2 * points / 72 if gains else 0.0  # height of the gains' heading
        self.each = legends.add_legend_over_lines(ax, self._handles(), len(self.lines), room, points=points, more=head)
        right = _GAIN_INCHES if gains else 0.05
        reach = self.longest * 1.04 / (1 - right / max(room[0], 2 * _GAIN_INCHES))
        self.inches = room[0] / reach
        if self.dots:
            self._draw_dots()
        for place, group in self.cases if not self.dots else ():
            for precision, center in self._centers(group, place).items():
                self._draw_bar(group.rows[precision], center, precision)
        for place, group, gain in gains:
            self._write_gain(group, gain, place)
        if self.peak is not None:
            ax.axvline(self.peak, color=self.ink.soft, zorder=0.5, **_PEAK_LOOK)
        if gains:
            self._write_right("FP16 gain\nin time", -0.55, points * 0.85, "bottom")
        self._finish(count, reach, room, points)

    def _finish(self, count: int, reach: float, room: canvas.Inches, points: float) -> None:
        ax = self.ax
        shared, labels = _labels(self.lines, self.groups)
        ax.set_yticks(range(len(self.lines)), labels, parse_math=False)
        ax.set_xlim(0, reach)
        ax.set_xlabel(schema.find_column("bandwidth_gb_s").label, fontsize=points + 2)
        devices = inputs.device_names(group.first for group in self.groups)
        notes = [canvas.cut(devices[0], _LONGEST_NAME) if len(devices) == 1 else "", shared]
        notes += canvas.note_left_out(len(self.groups), count, "cases")
        # The lines of rows without a bar have the reason.
        notes += [note for note in inputs.note_rows(self.rows) if not note.startswith("not drawn")]
        legends.add_title(ax, "Effective memory bandwidth by precision", notes, room, points=14 if self.slide else 11)
        finish_axes(ax, grid="x")
        ax.tick_params(axis="y", length=0, labelsize=min(_NAME_POINTS[self.slide], 72 * self.each * 0.82))
        ax.tick_params(axis="x", labelsize=points + 1)
        for line, text in zip(self.lines, ax.get_yticklabels(), strict=True):
            if isinstance(line, str):
                text.set_fontweight("bold")

    def _centers(self, group: PrecisionGroup, place: int) -> dict[str, float]:
        names = [name for name in self.precisions if name in group.rows]
        return {name: place + (slot - (len(names) - 1) / 2) * self.thickness for slot, name in enumerate(names)}

    def _draw_bar(self, row: RowDict, center: float, precision: str) -> None:
        """Draw a bar with its roof and its number, which covers neither the roof nor the bar's hatch."""
        value, look = _bandwidth(row), self.looks[precision]
        points = min(14.0 if self.slide else 7.0, 72 * self.each * self.thickness * 0.85)
        if value is None:
            text = f"{canvas.cut(precision, _LONGEST_PRECISION).upper()} {_missing_word(row)}"
            self._write(0.004 * self.longest, center, text, points, self.ink.soft, style="italic")
            return
        height = self.thickness * 0.92
        hollow = inputs.is_predicted(row)
        color = legends.draw_bar(self.ax, 0.0, center, value, height, look.color, hollow=hollow, hatch=look.hatch)
        roof = self._draw_roof(row, center)
        text = format_figure(value, whole_from=100) + ("*" if inputs.is_doubtful(row) else "")
        width, gap = canvas.measure_width(text, points) / self.inches, 0.04 / self.inches
        if value > width * 1.6 + 2 * gap:  # within the bar: at its end, or before a roof that the bar goes beyond
            covers = roof is not None and max(value - width - 2 * gap, width + 2 * gap) < roof < value
            end = (roof - gap if covers and roof is not None else value) - gap
            tag = {"facecolor": color, "edgecolor": "none", "pad": 0.8}
            self._write(end, center, text, points, readable(color), ha="right", bbox=tag)
        elif roof is not None and value - gap < roof < value + width + 2 * gap:
            self._write(roof + 2 * gap, center, text, points, self.ink.text)
        else:
            self._write(value + 1.5 * gap, center, text, points, self.ink.text)

    def _draw_roof(self, row: RowDict, center: float) -> float | None:
        """Draw and return the nearer roof: a line across the bar, with a diamond where it is arithmetic."""
        roof, arithmetic = _roof(row)
        if roof is not None:
            half, color = self.thickness * 0.46, self.ink.alarm if arithmetic else self.ink.text
            ends = [center - half, center + half]
            self.ax.plot([roof] * 2, ends, color=color, linewidth=1.6, solid_capstyle="butt")
            if arithmetic:
                self.ax.plot(roof, center, color=color, marker="D", markersize=2.6, linewidth=0)
        return roof

    def _draw_dots(self) -> None:
        from matplotlib.collections import LineCollection

        size = min(5.0, 72 * self.each * self.thickness * 1.15)
        roofs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}  # by whether they are arithmetic
        cases = [(group, self._centers(group, place)) for place, group in self.cases]
        for group, centers in cases:
            self._explain_missing(group, centers)
        for precision, look in self.looks.items():
            points, hollow, ways = [], [], []
            for group, centers in cases:
                row, y = group.rows.get(precision, {}), centers.get(precision, 0.0)
                value = _bandwidth(row)
                if value is None:
                    continue
                points.append((value, y))
                hollow.append(inputs.is_hollow(row))
                roof, arithmetic = _roof(row)
                if roof is not None:
                    ways.append([(value, y), (roof, y)])
                    roofs[arithmetic].append((roof, y))
            self.ax.add_collection(LineCollection(ways, colors=look.color, linewidths=0.9, alpha=0.6), autolim=False)
            legends.draw_marks(self.ax, points, hollow, look.color, marker=look.marker, markersize=size, zorder=3)
        for arithmetic, places in roofs.items():
            color, marker, share = (self.ink.alarm, "D", 0.6) if arithmetic else (self.ink.text, "|", 1.1)
            mark: dict[str, Any] = {"color": color, "marker": marker, "markersize": size * share}
            self.ax.plot(*inputs.split_points(places), linewidth=0, zorder=2.9, markeredgewidth=1.2, **mark)

    def _explain_missing(self, group: PrecisionGroup, centers: Mapping[str, float]) -> None:
        """Write which precisions of a case have no dot, and why, clear of its other dots."""
        reasons: dict[str, list[str]] = {}
        ends = []
        for name in centers:
            row = group.rows[name]
            if _bandwidth(row) is None:
                reasons.setdefault(_missing_word(row), []).append(canvas.cut(name, _LONGEST_PRECISION).upper())
            else:
                ends += [value for value in (_bandwidth(row), _roof(row)[0]) if value is not None]
        if not reasons:
            return
        text = "; ".join(f"{', '.join(names)} {reason}" for reason, names in reasons.items())
        points, start = min(6.5, 72 * self.each * 0.7), 0.004 * self.longest
        if ends and min(ends) < start + (canvas.measure_width(text, points) + 0.1) / self.inches:
            start = max(ends) + 0.1 / self.inches
        self._write(start, sum(centers.values()) / len(centers), text, points, self.ink.soft)

    def _write_gain(self, group: PrecisionGroup, gain: float, place: int) -> None:
        points = min(14.0 if self.slide else 8.5, 72 * self.each * 0.8)
        both = [group.rows[name] for name in PAIR if name in group.rows]
        about = "\u2248" if any(map(inputs.is_predicted, both)) else ""
        star = "*" if any(map(inputs.is_doubtful, both)) and not self.dots else ""
        self._write_right(f"{about}{format_short(gain, '.2f')}\u00d7{star}", place, points, "center")

    def _write_right(self, text: str, y: float, points: float, va: str) -> None:
        ground = {"facecolor": self.ink.ground, "edgecolor": "none", "pad": 0.6}
        look: dict[str, Any] = {"color": self.ink.text, "bbox": ground, "linespacing": 1.0, "ha": "right", "va": va}
        self.ax.annotate(text, (0.995, y), xycoords=("axes fraction", "data"), fontsize=points, **look)

    def _write(self, x: float, y: float, text: str, points: float, color: str, **look: Any) -> None:
        look |= {"va": "center_baseline", "parse_math": False, "clip_on": True}
        self.ax.text(x, y, text, fontsize=points, color=color, **look)

    def _handles(self) -> list[Any]:
        """Return the legend's entries, of what is drawn alone."""
        timed = [row for row in self.rows if _bandwidth(row) is not None]
        drawn = {row["precision"] for row in timed}
        handles: list[Any] = []
        for name in (name for name in self.precisions if name in drawn):
            look, label = self.looks[name], canvas.cut(name, _LONGEST_PRECISION).upper()
            if self.dots:
                handles.append(
                    legends.line_handle(label, color=look.color, marker=look.marker, linewidth=0, markersize=5)
                )
            else:
                handles.append(legends.bar_handle(label, look.color, look.hatch, self.ink.ground))
        roofs = {arithmetic for roof, arithmetic in map(_roof, timed) if roof}
        mark: dict[str, Any] = {"linewidth": 0, "markeredgewidth": 1.6}
        if False in roofs:
            label = f"{schema.find_column('attainable_gb_s').title}: a plain stream of the same bytes"
            handles.append(legends.line_handle(label, color=self.ink.text, marker="|", markersize=9, **mark))
        if True in roofs:
            label = "arithmetic roof, where it is nearer"
            handles.append(legends.line_handle(label, color=self.ink.alarm, marker="D", markersize=4, **mark))
        if self.peak is not None:
            handles.append(
                legends.line_handle(schema.find_column("peak_gb_s").title, color=self.ink.soft, **_PEAK_LOOK)
            )
        return [*handles, *self._doubt_handles(timed)]

    def _doubt_handles(self, timed: Sequence[RowDict]) -> list[Any]:
        if self.dots:
            text = inputs.explain_hollow(timed)
            return [legends.ring_handle(text, self.ink.text, face=self.ink.ground)] if text else []
        handles = []
        if any(map(inputs.is_predicted, timed)):
            handles.append(legends.ring_handle("hollow: predicted", self.ink.text, face=self.ink.ground, marker="s"))
        texts = [str(row["flags"] or "wrong result") for row in self.rows if inputs.is_doubtful(row)]
        if flags := Counter(flag for text in texts for flag in text.split(";")).most_common():
            label = canvas.cut(", ".join(flag for flag, _ in flags), 60)
            handles.append(legends.star_handle(f"{label}: see flags", self.ink.text))
        return handles


def _bandwidth(row: Mapping[str, Any]) -> float | None:
    return measured_or_none(row.get("bandwidth_gb_s"))


def _gain(group: PrecisionGroup) -> float | None:
    """Return how much faster FP16 is than FP32; None where one of them has no time."""
    timed = all(measured_or_none(group.rows.get(name, {}).get("time_ms")) is not None for name in PAIR)
    return measured_or_none(group.rows["fp16"].get("speedup_vs_fp32")) if timed else None


def _missing_word(row: RowDict) -> str:
    """Return why a row has no bandwidth, in a word."""
    value = row.get("bandwidth_gb_s")
    status = "unknown" if row["status"] == "ok" else row["status"]
    return canvas.cut(str(status if value is None else value), _LONGEST_PRECISION)


def _roof(row: Mapping[str, Any]) -> tuple[float | None, bool]:
    """Return the bandwidth of a row at its nearer roof, GB/s, and whether that roof is arithmetic."""
    grade, bandwidth = find_grade(row), row.get("bandwidth_gb_s")
    if grade is not None and grade[1] and grade[0] > 0 and bandwidth:
        return measured_or_none(100 * bandwidth / grade[0]), True
    return measured_or_none(row.get("attainable_gb_s")), False


def _near_peak(rows: Sequence[RowDict], longest: float) -> float | None:
    """Return the theoretical peak where rows have one, less than 1.5 times the longest bar: bars stay long.

    Measured rows have the driver's peak, others a data sheet's.
    """
    known = [row for row in rows if measured_or_none(row.get("peak_gb_s"))]
    peaks = {float(row["peak_gb_s"]) for row in ([row for row in known if not inputs.is_predicted(row)] or known)}
    return next((peak for peak in peaks if len(peaks) == 1 and peak < 1.5 * longest), None)


def _labels(lines: Sequence[_CaseLine], groups: Sequence[PrecisionGroup]) -> tuple[str, list[str]]:
    """Return the words that the names of all cases share, and a label for each line."""
    cases = [str(group.first["case"]) for group in groups]
    shared, rest = canvas.distinguish_names(cases)
    brief = dict(zip(cases, rest, strict=True))
    apart = dict(zip(map(id, groups), pairs.distinguish_groups(groups), strict=True))
    labels = [
        canvas.cut(line, _LONGEST_NAME)
        if isinstance(line, str)
        else _label(line, brief[str(line.first["case"])], apart[id(line)], groups)
        for line in lines
    ]
    return canvas.cut(shared, _LONGEST_NAME), labels


def _label(line: PrecisionGroup, name: str, apart: str, groups: Sequence[PrecisionGroup]) -> str:
    """Return a case's name, what distinguishes it, and the sizes that other cases of its name have otherwise."""
    first = line.first
    alike = [
        other.first
        for other in groups
        if other.first["case"] == first["case"]
        and other.variants == line.variants
        and other.rows.keys() == line.rows.keys()
    ]
    sizes = [size for size in schema.param_names() if len({row.get(size) for row in alike}) > 1]
    words = [f"{size}={first[size]}" for size in sizes if first.get(size) is not None and size not in first["case"]]
    rest = canvas.cut(" ".join([*filter(None, [apart]), *words]), _LONGEST_NAME // 2)
    return f"{canvas.cut(name, _LONGEST_NAME - len(rest))} {rest}".rstrip()


def save_panels(means: Mapping[str, Mapping[str, float]], target: Path, *, dpi: int) -> None:
    """Write a picture with a panel for each case, of its bandwidths by precision in GB/s.

    Raises
    ------
    ValueError
        When there is nothing to draw.
    """
    if not means:
        raise ValueError("there are no rows to draw")
    cases = list(means)[:_MOST_PANELS]
    canvas.note_left_out(len(cases), len(means), "cases")
    columns = min(3, len(cases))
    lines = math.ceil(len(cases) / columns)

    def draw(figure: Figure) -> None:
        for number, case in enumerate(cases, 1):
            _draw_panel(figure.add_subplot(lines, columns, number), case, means[case])

    canvas.write_figure((3.6 * columns, 2.6 * lines), draw, [target], dpi=dpi)


def _draw_panel(ax: Axes, case: str, means: Mapping[str, float]) -> None:
    looks, values = [style(name) for name in means], list(means.values())
    for place, (look, value) in enumerate(zip(looks, values, strict=True)):
        bar = ax.bar(place, value, 0.7, color=look.color, hatch=look.hatch, edgecolor="white", linewidth=0)
        ax.bar_label(bar, [format_figure(value, whole_from=100)], fontsize=8)
    ax.set_xticks(range(len(means)), [escape_controls(name).upper() for name in means], fontsize=8, parse_math=False)
    ax.set_title(canvas.cut(case, 40), fontsize=9, parse_math=False)
    ax.set_ylabel(schema.find_column("bandwidth_gb_s").unit, fontsize=8)
    ax.set_xlim(-0.5, len(means) - 0.5)
    ax.set_ylim(0, 1.15 * max(values) or 1.0)
    ax.spines[["top", "right"]].set_visible(False)
