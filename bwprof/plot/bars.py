"""Bars: effective bandwidths of each case by precision, below their roofs.

A picture has bars where there are few cases, else a row of dots for each; `panels` gives each case a panel of its own.
Lines have equal heights, with headings for families among them, below a band for the legend.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.summarize import PAIR, ordered_precisions
from bwprof.plot.canvas import (
    LEAST_INCHES,
    MOST_LINES,
    Drawing,
    Inches,
    count_lines,
    cut,
    distinguish_names,
    endings,
    measure_labels,
    measure_width,
    note_left_out,
    write_panels,
)
from bwprof.plot.data import doubted, hollow, predicted, remarks, rows_of, why_hollow
from bwprof.plot.legends import add_legend_over_lines, add_title, line_handle
from bwprof.plot.styles import Ink, Style, finish_axes, ink, readable, style, styles
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

_LAYOUTS, _LAYOUTS = "page", "slide"

_MOST_BARS = 20  # cases: more are dots

_PAGE_WIDTH, _SLIDE_SIZE = 10.5, (13.333, 7.5)

_AROUND_INCHES = 1.05  # title, axis

_LINE_INCHES = 0.17  # of the legend

_DOT_INCHES = 0.26  # of a case

_SLIDE_INCHES = 0.19  # of a line on a slide, which is read from afar

_GAIN_INCHES = 0.62  # right of the bars, for what FP16 gains in time

_NUMBER_POINTS, _SLIDE_POINTS, _LEAST_POINTS = 7.0, 14.0, 5.0

_NAME_POINTS = (8.5, 14.0)  # of cases, on a page and on a slide

_LONGEST_DOUBTS = 60  # characters of the flags in the legend

_LONGEST_NAME = 64

_LONGEST_PRECISION = 16

_OTHERS = "other"  # the family of what the registry does not know


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is drawn: lines of cases and of headings, from top to bottom."""

    lines: list[str | PrecisionGroup]
    groups: list[PrecisionGroup]
    precisions: list[str]
    dots: bool
    slide: bool

    def rows(self) -> list[RowDict]:
        return [row for group in self.groups for row in group.rows.values()]


def comparison(data: Any, ax: Axes | None = None, *, layout: str = _LAYOUTS) -> Axes:
    """Effective bandwidth per case and precision, with the nearer roof: a plain stream's, or arithmetic.

    Above 20 cases dots take the place of bars; a line leads from each to its roof. What is only predicted is hollow.
    Words that all cases share in their names stand in the title alone.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, a file of results; the nine classic columns will do.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's, of a fitting size, when left out: a notebook shows it.
    layout : {"page", "slide"}
        As long as it takes, or 16:9 with the cases by family.

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
    return picture(data, layout=layout).on(ax)


def save(data: pd.DataFrame, path: str | PathLike[str]) -> list[Path]:
    """Write `comparison` as path.png and path.svg; returns both paths. No window and no global state is touched.

    One of these endings may stand in `path` already. Another ending of a picture that matplotlib can write (.pdf, ...)
    gives that one file.
    """
    ending = Path(path).suffix.lower()
    if ending not in (".png", ".svg") and ending.removeprefix(".") in endings():
        return picture(data).write([Path(path)])
    base = os.fspath(path).removesuffix(".png").removesuffix(".svg")
    return picture(data).write([Path(f"{base}{name}") for name in (".png", ".svg")])


def picture(data: Any, *, layout: str = _LAYOUTS) -> Drawing:
    """The same as a picture to be drawn or written."""
    if not isinstance(layout, str) or layout not in (_LAYOUTS, _LAYOUTS):
        raise ValueError(describe_unknown("layout", layout, (_LAYOUTS, _LAYOUTS)))
    rows = rows_of(data)[0]
    groups = pairs.group_precisions(rows)
    if not groups:
        raise ValueError("there are no rows to draw")
    present = {row["precision"] for row in rows}
    precisions = [name for name in ordered_precisions(rows) if name in present]
    lines: list[str | PrecisionGroup] = _by_family(groups) if layout == _LAYOUTS else [*groups]
    slide = layout == _LAYOUTS
    size = _SLIDE_SIZE if slide else (_PAGE_WIDTH, _page_inches(len(groups), len(precisions)))
    inner = (
        size[0] - measure_labels(_labels(lines[:MOST_LINES], groups)[1], _NAME_POINTS[slide]),
        size[1] - _AROUND_INCHES,
    )

    def draw(ax: Axes, room: Inches) -> None:
        _draw(ax, _plan(lines, precisions, slide=slide, height=room[1]), len(groups), room)

    return Drawing(size, inner, draw)


def _by_family(groups: Sequence[PrecisionGroup]) -> list[str | PrecisionGroup]:
    """The cases by family, below a heading each, if there are several."""
    families: dict[str, list[PrecisionGroup]] = {}
    for group in groups:
        families.setdefault(_family(str(group.first["operation"])), []).append(group)
    if len(families) == 1:
        return list(groups)
    lines: list[str | PrecisionGroup] = []
    for name, found in families.items():
        lines += [name, *found]
    return lines


def _family(operation: str) -> str:
    try:
        return str(registry.operation(operation)["family"])
    except ValueError:
        return _OTHERS


def _page_inches(cases: int, precisions: int) -> float:
    each = max(0.34, 0.17 * precisions + 0.10) if cases <= _MOST_BARS else _DOT_INCHES
    return _AROUND_INCHES + 3 * _LINE_INCHES + min(cases, MOST_LINES) * each


def _plan(lines: Sequence[str | PrecisionGroup], precisions: list[str], *, slide: bool, height: float) -> _Plan:
    """What fits a height, in inches."""
    room = max(height - 3 * _LINE_INCHES, LEAST_INCHES)
    kept = list(lines[: min(count_lines(room), int(room / _SLIDE_INCHES)) if slide else count_lines(room)])
    while len(kept) > 1 and isinstance(kept[-1], str):
        kept.pop()
    groups = [line for line in kept if isinstance(line, PrecisionGroup)]
    thick = 72 * 0.8 * room / len(kept) / len(precisions) >= _LEAST_POINTS + 1
    return _Plan(kept, groups, precisions, dots=len(groups) > _MOST_BARS or not thick, slide=slide)


def _draw(ax: Axes, plan: _Plan, count: int, room: Inches) -> None:
    omitted = note_left_out(len(plan.groups), count, "cases")
    handles, written = _handles(plan, ink(ax)), 10.0 if plan.slide else 8.0
    gains = any(_gain(group) for group in plan.groups)
    more = 2.2 * written / 72 if gains else 0.0  # the heading of the gains
    each = add_legend_over_lines(ax, handles, len(plan.lines), room, points=written, more=more)
    longest = _longest(plan.groups)
    reach = longest * 1.04 / (1 - (_GAIN_INCHES if gains else 0.05) / max(room[0], 2 * _GAIN_INCHES))
    canvas = _Canvas(ax, plan, styles(plan.precisions), ink(ax), each, longest, room[0] / reach)
    for place, line in enumerate(plan.lines):
        if isinstance(line, PrecisionGroup) and not plan.dots:
            canvas.bars(line, place)
    if plan.dots:
        canvas.dots()
    for place, line in enumerate(plan.lines):
        if isinstance(line, PrecisionGroup) and gains:
            canvas.gain(line, place)
    if (peak := _peak(plan.groups)) is not None:
        ax.axvline(peak, color=ink(ax).soft, zorder=0.5, **_PEAK_LOOK)
    names = min(_NAME_POINTS[plan.slide], 72 * each * 0.82)
    shared, labels = _labels(plan.lines, plan.groups)
    ax.set_yticks(range(len(plan.lines)), labels, parse_math=False)
    ax.set_xlim(0, reach)
    ax.set_xlabel(schema.find_column("bandwidth_gb_s").label, fontsize=written + 2)
    head, notes = "Effective memory bandwidth by precision", [*_devices(plan), *filter(None, (shared, *omitted))]
    notes += [note for note in remarks(plan.rows()) if not note.startswith("not drawn")]  # which stand in their lines
    add_title(ax, head, notes, room, points=14 if plan.slide else 11)
    if gains:
        canvas.heading("FP16 gain\nin time", written)
    finish_axes(ax, grid="x")
    ax.tick_params(axis="y", length=0, labelsize=names)
    ax.tick_params(axis="x", labelsize=written + 1)
    for line, text in zip(plan.lines, ax.get_yticklabels(), strict=True):
        if isinstance(line, str):
            text.set_fontweight("bold")


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Where bars and dots are drawn: inches of a line, the longest value, inches of a GB/s."""

    ax: Axes
    plan: _Plan
    looks: Mapping[str, Style]
    ink: Ink
    each: float
    longest: float
    inches: float

    def heights(self, group: PrecisionGroup, place: int) -> dict[str, float]:
        """Of each precision that a case has, where its bar or dot lies in the case's line."""
        there = [name for name in self.plan.precisions if name in group.rows]
        thickness = 0.8 / len(self.plan.precisions)
        return {name: place + (slot - (len(there) - 1) / 2) * thickness for slot, name in enumerate(there)}

    def bars(self, group: PrecisionGroup, place: int) -> None:
        """A case's bars, with their roofs and numbers."""
        for precision, center in self.heights(group, place).items():
            self._bar(group.rows[precision], center, self.looks[precision])

    def _bar(self, row: RowDict, center: float, look: Style) -> None:
        from bwprof.plot.canvas import bar

        value = row.get("bandwidth_gb_s")
        thickness = 0.8 / len(self.plan.precisions)
        points = min(_SLIDE_POINTS if self.plan.slide else _NUMBER_POINTS, 72 * self.each * thickness * 0.85)
        if value is None or measured_or_none(value) is None:
            said = f"{cut(str(row['precision']), _LONGEST_PRECISION).upper()} {_why_none(row)}"
            self._write(0.004 * self.longest, center, said, points, self.ink.soft, style="italic")
            return
        only_predicted = predicted(row)
        color, edge = (self.ink.ground, look.color) if only_predicted else (look.color, self.ink.ground)
        edges: dict[str, Any] = {"edgecolor": edge, "linewidth": 0.8 if only_predicted else 0}
        bar(self.ax, 0.0, center, value, thickness * 0.92, facecolor=color, hatch=look.hatch, **edges)
        roof = self._roof_mark(row, center, thickness)
        said = format_figure(value, whole_from=100) + ("*" if doubted(row) else "")
        width = measure_width(said, points) / self.inches
        gap = 0.04 / self.inches
        hidden = roof is not None and value - gap < roof < value + width + 2 * gap
        tag = {"facecolor": color, "edgecolor": "none", "pad": 0.8}  # the bar without its hatch
        if value > width * 1.6 + 2 * gap:  # within the bar, at its end, or before a mark that the bar goes beyond
            covered = roof is not None and max(value - width - 2 * gap, width + 2 * gap) < roof < value
            end = (roof - gap if covered and roof is not None else value) - gap
            self._write(end, center, said, points, readable(color), ha="right", bbox=tag)
        elif hidden and roof is not None:
            self._write(roof + 2 * gap, center, said, points, self.ink.text)  # without a ground: that is a longer bar
        else:
            self._write(value + 1.5 * gap, center, said, points, self.ink.text)

    def _roof_mark(self, row: RowDict, center: float, thickness: float) -> float | None:
        """The nearer roof: a line across the bar, with a diamond where that is arithmetic's."""
        roof, arithmetic = _roof(row)
        if roof is None or measured_or_none(roof) is None:
            return None
        half, color = thickness * 0.46, self.ink.alarm if arithmetic else self.ink.text
        self.ax.plot([roof] * 2, [center - half, center + half], color=color, linewidth=1.6, solid_capstyle="butt")
        if arithmetic:  # told from the other roof without its colour, too
            self.ax.plot(roof, center, color=color, marker="D", markersize=2.6, linewidth=0)
        return roof

    def _write(self, x: float, y: float, said: str, points: float, color: str, **more: Any) -> None:
        self.ax.text(
            x, y, said, fontsize=points, color=color, va="center_baseline", parse_math=False, clip_on=True, **more
        )

    def dots(self) -> None:
        """Every case's values, a dot each, and the way that is left to their roofs."""
        from matplotlib.collections import LineCollection

        size = min(5.0, 72 * self.each * 0.8 / len(self.plan.precisions) * 1.15)
        marks: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        cases = [
            (line, self.heights(line, at))
            for at, line in enumerate(self.plan.lines)
            if isinstance(line, PrecisionGroup)
        ]
        for group, heights in cases:
            self._without(group, heights)
        for precision, look in self.looks.items():
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            ways = []
            for group, heights in cases:
                if precision not in heights:
                    continue
                row, y = group.rows[precision], heights[precision]
                value = row.get("bandwidth_gb_s")
                if value is None or measured_or_none(value) is None:
                    continue
                found[hollow(row)].append((value, y))
                roof, arithmetic = _roof(row)
                if roof is not None and measured_or_none(roof) is not None:
                    ways.append([(value, y), (roof, y)])
                    marks[arithmetic].append((roof, y))
            self.ax.add_collection(LineCollection(ways, colors=look.color, linewidths=0.9, alpha=0.6), autolim=False)
            for empty, points in found.items():
                if points:
                    xs, ys = zip(*points, strict=True)
                    self.ax.plot(
                        xs, ys, color=self.ink.ground if empty else look.color, marker=look.marker, markersize=size,
                        linewidth=0, zorder=3, markeredgecolor=look.color,
                    )  # fmt: skip
        for arithmetic, places in marks.items():
            if places:
                xs, ys = zip(*places, strict=True)
                color, mark = (self.ink.alarm, "D") if arithmetic else (self.ink.text, "|")
                self.ax.plot(
                    xs, ys, color=color, marker=mark, markersize=size * (0.6 if arithmetic else 1.1), linewidth=0,
                    zorder=2.9, markeredgewidth=1.2,
                )  # fmt: skip

    def _without(self, group: PrecisionGroup, heights: Mapping[str, float]) -> None:
        """In one text which precisions of a case have no value, and why."""
        reasons: dict[str, list[str]] = {}
        for name in heights:
            if measured_or_none(group.rows[name].get("bandwidth_gb_s")) is None:
                shown = cut(name, _LONGEST_PRECISION).upper()
                reasons.setdefault(_why_none(group.rows[name]), []).append(shown)
        if reasons:
            said = "; ".join(f"{', '.join(names)} {why}" for why, names in reasons.items())
            center = sum(heights.values()) / len(heights)
            points = min(6.5, 72 * self.each * 0.7)
            drawn = [row for row in group.rows.values() if measured_or_none(row.get("bandwidth_gb_s")) is not None]
            marks = [mark for row in drawn for mark in (row["bandwidth_gb_s"], _roof(row)[0])]
            ends = [mark for mark in marks if mark is not None and measured_or_none(mark) is not None]
            start = 0.004 * self.longest
            if ends and min(ends) < start + (measure_width(said, points) + 0.1) / self.inches:  # not over a dot
                start = max(ends) + 0.1 / self.inches
            self._write(start, center, said, points, self.ink.soft)

    def gain(self, group: PrecisionGroup, place: int) -> None:
        """At the right: how much faster FP16 is in time."""
        gain = _gain(group)
        if gain is not None:
            points = min(14.0 if self.plan.slide else 8.5, 72 * self.each * 0.8)
            both = [group.rows[name] for name in PAIR if name in group.rows]
            about = "\u2248" if any(map(predicted, both)) else ""
            star = "*" if any(map(doubted, both)) and not self.plan.dots else ""
            self._right(f"{about}{format_short(gain, '.2f')}\u00d7{star}", place, points, "center")

    def heading(self, text: str, points: float) -> None:
        """Of the gains."""
        self._right(text, -0.55, points * 0.85, "bottom")

    def _right(self, text: str, y: float, points: float, va: str) -> None:
        self.ax.annotate(
            text, (0.995, y), xycoords=("axes fraction", "data"), va=va, ha="right", fontsize=points,
            color=self.ink.text, bbox={"facecolor": self.ink.ground, "edgecolor": "none", "pad": 0.6}, linespacing=1.0,
        )  # fmt: skip


def _gain(group: PrecisionGroup) -> float | None:
    timed = all(measured_or_none(group.rows.get(name, {}).get("time_ms")) is not None for name in PAIR)
    found = measured_or_none(group.rows.get("fp16", {}).get("speedup_vs_fp32"))
    return found if found and timed else None


def _why_none(row: RowDict) -> str:
    value = row.get("bandwidth_gb_s")
    status = "unknown" if row["status"] == "ok" else row["status"]
    return cut(str(status if value is None else value), _LONGEST_PRECISION)


def _longest(groups: Sequence[PrecisionGroup]) -> float:
    """The largest value that the axis must hold, GB/s."""
    rows = [row for group in groups for row in group.rows.values()]
    values = [value for row in rows for value in (row.get("bandwidth_gb_s"), _roof(row)[0])]
    longest = max([value for value in values if value and measured_or_none(value)], default=1.0)
    peaks = _peaks(groups)
    return max(longest, *peaks) if len(peaks) == 1 and max(peaks) < _FAR_PEAK * longest else longest


def _roof(row: RowDict) -> tuple[float | None, bool]:
    """The bandwidth at which a row would be at its nearer roof, GB/s, and whether that is the arithmetic one."""
    grade, bandwidth = find_grade(row), row.get("bandwidth_gb_s")
    if grade is not None and grade[1] and grade[0] > 0 and bandwidth:
        return 100 * bandwidth / grade[0], True
    return row.get("attainable_gb_s"), False


_FAR_PEAK = 1.5  # of the longest bar or roof: a peak beyond is left out, so that bars keep their length


def _peaks(groups: Sequence[PrecisionGroup]) -> set[float]:
    """The theoretical peaks; measured rows have the driver's, others a data sheet's."""
    rows = [row for group in groups for row in group.rows.values() if measured_or_none(row.get("peak_gb_s"))]
    return {row["peak_gb_s"] for row in ([row for row in rows if not predicted(row)] or rows)}


_PEAK_LOOK: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (5, 3))}


def _peak(groups: Sequence[PrecisionGroup]) -> float | None:
    """The theoretical peak where it is known, and one, and near."""
    peaks = _peaks(groups)
    return next(iter(peaks)) if len(peaks) == 1 and max(peaks) <= _longest(groups) else None


def _handles(plan: _Plan, colors: Ink) -> list[Any]:
    """The legend's entries: of what is drawn, and of nothing else."""
    from matplotlib.patches import Rectangle

    rows = plan.rows()
    timed = [row for row in rows if measured_or_none(row.get("bandwidth_gb_s")) is not None]
    drawn = {row["precision"] for row in timed}
    handles: list[Any] = []
    looks = styles(plan.precisions)
    for name in (name for name in plan.precisions if name in drawn):
        look, label = looks[name], cut(name, _LONGEST_PRECISION).upper()
        if plan.dots:
            handles.append(line_handle(label, color=look.color, marker=look.marker, linewidth=0, markersize=5))
        else:
            ground: dict[str, Any] = {"edgecolor": colors.ground, "linewidth": 0}
            handles.append(Rectangle((0, 0), 1, 1, facecolor=look.color, hatch=look.hatch, label=label, **ground))
    marked = {arithmetic for roof, arithmetic in map(_roof, timed) if roof and measured_or_none(roof)}
    told = {False: f"{schema.find_column('attainable_gb_s').title}: a plain stream of the same bytes"}
    told[True] = "arithmetic roof, where it is nearer"
    handles += [
        line_handle(
            told[arithmetic], color=colors.alarm if arithmetic else colors.text, linewidth=0, markeredgewidth=1.6,
            marker="D" if arithmetic else "|", markersize=4 if arithmetic else 9,
        )
        for arithmetic in sorted(marked)
    ]  # fmt: skip
    if _peak(plan.groups) is not None:
        handles.append(line_handle(schema.find_column("peak_gb_s").title, color=colors.soft, **_PEAK_LOOK))
    empty = why_hollow(timed if plan.dots else [row | {"flags": "", "verified": None} for row in timed])
    if empty:
        mark: dict[str, Any] = {"marker": "o" if plan.dots else "s", "markersize": 5, "linewidth": 0}
        handles.append(line_handle(empty, markerfacecolor=colors.ground, markeredgecolor=colors.text, **mark))
    doubts = Counter(flag for row in rows if doubted(row) for flag in str(row["flags"] or "wrong result").split(";"))
    if doubts and not plan.dots:
        label = cut(", ".join(name for name, _ in doubts.most_common()), _LONGEST_DOUBTS)
        handles.append(line_handle(f"{label}: see flags", linewidth=0, marker="$*$", color=colors.text))
    return handles


def _labels(lines: Sequence[str | PrecisionGroup], groups: Sequence[PrecisionGroup]) -> tuple[str, list[str]]:
    """What all cases share in their names, and the rest of each, with what tells the cases of one name apart."""
    cases = [str(group.first["case"]) for group in groups]
    shared, rest = distinguish_names(cases)
    brief = dict(zip(cases, rest, strict=True))
    apart = dict(zip(map(id, groups), pairs.distinguish_groups(groups), strict=True))
    labels = [
        cut(line, _LONGEST_NAME)
        if isinstance(line, str)
        else _label(line, brief[str(line.first["case"])], apart[id(line)], groups)
        for line in lines
    ]
    return cut(shared, _LONGEST_NAME), labels


def _label(line: PrecisionGroup, name: str, apart: str, groups: Sequence[PrecisionGroup]) -> str:
    """Case, what tells it apart, and sizes where other cases of that name have other ones."""
    first = line.first
    same_case = [other for other in groups if other.first["case"] == first["case"]]
    alike = [other for other in same_case if other.variants == line.variants and other.rows.keys() == line.rows.keys()]
    sizes = [name for name in schema.param_names() if len({other.first.get(name) for other in alike}) > 1]
    words = [f"{name}={first[name]}" for name in sizes if first.get(name) is not None and name not in first["case"]]
    rest = cut(" ".join([*filter(None, [apart]), *words]), _LONGEST_NAME // 2)
    return f"{cut(name, _LONGEST_NAME - len(rest))} {rest}".rstrip()


def _devices(plan: _Plan) -> list[str]:
    """The device, if there is one."""
    found = (str(group.first["device"]) for group in plan.groups if group.first.get("device"))
    devices = list(dict.fromkeys(cut(device, _LONGEST_NAME) for device in found))
    return devices if len(devices) == 1 else []


_MOST_PANELS = 60  # panels that somebody looks at; which are left out is said

_COLUMNS = 3

_LONGEST = 40  # letters of a panel's title


def save_panels(means: Mapping[str, Mapping[str, float]], target: Path, *, dpi: int) -> None:
    """Draw a panel for each case: its precisions' bandwidths in GB/s; the format is that of the target's ending.

    Raises
    ------
    ValueError
        When there is nothing to draw.
    """
    if not means:
        raise ValueError("there are no rows to draw")
    cases = list(means)[:_MOST_PANELS]
    note_left_out(len(cases), len(means), "cases")
    columns = min(_COLUMNS, len(cases))
    lines = math.ceil(len(cases) / columns)

    def draw(figure: Figure) -> None:
        for number, case in enumerate(cases):
            _draw_panel(figure.add_subplot(lines, columns, number + 1), case, means[case])

    write_panels((3.6 * columns, 2.6 * lines), draw, [target], dpi=dpi)


def _draw_panel(ax: Axes, case: str, means: Mapping[str, float]) -> None:
    from matplotlib.patches import Rectangle

    names: Sequence[str] = list(means)
    for place, name in enumerate(names):
        look = style(name)
        ground: dict[str, Any] = {"edgecolor": "white", "linewidth": 0}
        ax.add_patch(Rectangle((place - 0.35, 0), 0.7, means[name], facecolor=look.color, hatch=look.hatch, **ground))
        ax.text(place, means[name], format_figure(means[name], whole_from=100), ha="center", va="bottom", fontsize=8)
    ax.set_xticks(range(len(names)), [escape_controls(name).upper() for name in names], fontsize=8, parse_math=False)
    ax.set_title(cut(case, _LONGEST), fontsize=9, parse_math=False)
    ax.set_ylabel(schema.find_column("bandwidth_gb_s").unit, fontsize=8)
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylim(0, 1.15 * max(means.values()) or 1.0)
    ax.spines[["top", "right"]].set_visible(False)
