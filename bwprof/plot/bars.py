"""Bars: effective bandwidths of each case by precision, below their roofs; the time of a model's steps by operation."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from inspect import unwrap
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.analysis.summarize import PAIR, ordered_precisions
from bwprof.plot import canvas, inputs, styles
from bwprof.plot.canvas import cut
from bwprof.results import pairs, schema
from bwprof.results.frame import to_rows
from bwprof.results.pairs import PrecisionGroup
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import find_grade
from bwprof.text.formatting import format_figure, format_seconds, format_short, plural
from bwprof.text.parsing import check_known, describe_unknown, escape_controls, measured_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LAYOUTS = ("page", "slide")
_SLIDE_POINTS = 14.0  # of a slide's names
_MOST_BARS = 20  # cases: more are dots
_LEAST_POINTS = 6.0  # height of a bar
_LONGEST_NAME, _LONGEST_PRECISION = 64, 16  # letters
_MOST_PANELS = 60
_MODEL_COLUMNS = ("phase", "role", "count", "step_batch", "context", "weights", "kv")
_STEP_COLUMNS = ("phase", "step_batch", "context", "weights", "kv", "device")
_PEAK_LOOK: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (5, 3))}
_Step = list[RowDict]  # of a model, with total_ms
_Line = tuple[str, PrecisionGroup | None]  # a case with its label, or a family's heading


@canvas.draws
def comparison(data: Any, ax: Axes | None = None, *, layout: str = "page") -> canvas.Drawing:
    """Draw the effective bandwidth of each case and precision, with the nearer roof: a plain stream's, or arithmetic.

    More than 20 cases are drawn as dots; a line leads from each dot to its roof. Predictions are hollow. Words that all
    cases share in their names are in the title.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results; the nine classic columns are enough.
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
    check_known("layout", layout, _LAYOUTS)
    rows = inputs.read_rows(data)[0]
    groups = pairs.group_precisions(rows)
    if not groups:
        raise ValueError("there are no rows to draw")
    present = {row["precision"] for row in rows}
    precisions = [name for name in ordered_precisions(rows) if name in present]
    shared, labels = _label_cases(groups)
    lines: list[_Line] = list(zip(labels, groups, strict=True))
    slide = layout == "slide"
    size: dict[str, Any] = {"width": 10.5}
    if slide:
        lines = _by_family(lines)
        size = {"width": 13.333, "height": 7.5, "points": _SLIDE_POINTS, "least": 0.19}
    each = max(0.34, 0.17 * len(precisions) + 0.10) if len(groups) <= _MOST_BARS else 0.26

    def draw(ax: Axes, count: int, room: canvas.Inches) -> None:
        _Chart(ax, lines[:count], precisions, room, slide=slide).draw(len(groups), shared)

    return canvas.draw_lines([label for label, _ in lines], each, draw, **size)


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


def _label_cases(groups: Sequence[PrecisionGroup]) -> tuple[str, list[str]]:
    """Return the words that the names of all cases share, and a label for each case.

    Cases of one name are distinguished by their sizes.
    """
    shared, brief = canvas.distinguish_names([str(group.first["case"]) for group in groups])
    apart = pairs.distinguish_groups(groups)
    labels = []
    for group, name, more in zip(groups, brief, apart, strict=True):
        first = group.first
        alike = [o.first for o, m in zip(groups, apart, strict=True) if (o.first["case"], m) == (first["case"], more)]
        sizes = [size for size in schema.param_names() if len({row.get(size) for row in alike}) > 1]
        words = [f"{size}={first[size]}" for size in sizes if first.get(size) is not None and size not in first["case"]]
        rest = cut(" ".join([*filter(None, [more]), *words]), _LONGEST_NAME // 2)
        labels.append(f"{cut(name, _LONGEST_NAME - len(rest))} {rest}".rstrip())
    return cut(shared, _LONGEST_NAME), labels


def _by_family(cases: Sequence[_Line]) -> list[_Line]:
    """Return the cases by family, each below its heading; without headings where there is one family."""
    families: dict[str, list[_Line]] = {}
    for label, group in cases:
        try:
            family = str(registry.operation(str(group and group.first["operation"]))["family"])
        except ValueError:
            family = "other"
        families.setdefault(family, []).append((label, group))
    if len(families) == 1:
        return list(cases)
    return [line for family, own in families.items() for line in [(cut(family, _LONGEST_NAME), None), *own]]


class _Chart:
    """The lines of a comparison on axes: headings, and cases as bars or as dots."""

    def __init__(
        self, ax: Axes, lines: Sequence[_Line], precisions: list[str], room: canvas.Inches, *, slide: bool
    ) -> None:
        self.ax, self.ink, self.room, self.slide = ax, styles.ink(ax), room, slide
        self.labels = [label for label, _ in lines]
        self.cases = [(place, group) for place, (_, group) in enumerate(lines) if group is not None]
        self.looks = styles.styles(precisions)
        self.thickness = 0.8 / len(precisions)  # of a bar, as a share of its case's line
        self.rows = [placed for place, group in self.cases for placed in self._place(group, place)]
        height = (room[1] - 3 * canvas.LEGEND_INCHES) / len(lines)
        self.dots = len(self.cases) > _MOST_BARS or 72 * self.thickness * height < _LEAST_POINTS
        values = [value for row, _ in self.rows for value in (_bandwidth(row), _roof(row)[0]) if value]
        self.longest = max(values, default=1.0)
        self.peak = _near_peak([row for row, _ in self.rows], self.longest)
        self.longest = max(self.longest, self.peak or 0.0)
        self.gains = [(place, group, gain) for place, group in self.cases if (gain := _gain(group))]
        right = 0.62 if self.gains else 0.05  # inches
        self.reach = self.longest * 1.04 / (1 - right / max(room[0], 2 * right))
        self.inches = room[0] / self.reach  # of a GB/s
        self.each = 0.0  # inches of a line, known with the legend

    def _place(self, group: PrecisionGroup, place: int) -> list[tuple[RowDict, float]]:
        """Return the rows of a case with the middle of their bar."""
        own = [group.rows[name] for name in self.looks if name in group.rows]
        first = place - (len(own) - 1) / 2 * self.thickness
        return [(row, first + slot * self.thickness) for slot, row in enumerate(own)]

    def draw(self, count: int, shared: str) -> None:
        """Draw everything; `count` cases would be drawn where there was room."""
        ax, points = self.ax, 10.0 if self.slide else 8.0
        head = 2.2 * points / 72 if self.gains else 0.0  # height of the gains' heading
        handles = self._handles([row for row, _ in self.rows if _bandwidth(row) is not None])
        self.each = styles.add_legend_over_lines(ax, handles, len(self.labels), self.room, points=points, more=head)
        if self.dots:
            self._draw_dots()
        for row, middle in self.rows if not self.dots else ():
            self._draw_bar(row, middle)
        for gain in self.gains:
            self._write_gain(*gain)
        if self.gains:
            self._write_right("FP16 gain\nin time", -0.55, points * 0.85, "bottom")
        if self.peak is not None:
            ax.axvline(self.peak, color=self.ink.soft, zorder=0.5, **_PEAK_LOOK)
        self._finish(points, count, shared)

    def _finish(self, points: float, count: int, shared: str) -> None:
        ax, rows = self.ax, [row for row, _ in self.rows]
        ax.set_xlim(0, self.reach)
        ax.set_xlabel(schema.find_column("bandwidth_gb_s").label, fontsize=points + 2)
        devices = inputs.device_names(rows)
        notes = [cut(devices[0], _LONGEST_NAME) if len(devices) == 1 else "", shared]
        notes += canvas.note_left_out(len(self.cases), count, "cases")
        # The lines of rows without a bar have the reason.
        notes += [note for note in inputs.note_rows(rows) if not note.startswith("not drawn")]
        title = "Effective memory bandwidth by precision"
        styles.add_title(ax, title, notes, self.room, points=14 if self.slide else 11)
        styles.finish_lines(ax, self.labels, self.each, points=_SLIDE_POINTS if self.slide else 8.5)
        ax.tick_params(axis="x", labelsize=points + 1)
        for place in {*range(len(self.labels))} - {place for place, _ in self.cases}:
            ax.get_yticklabels()[place].set_fontweight("bold")

    def _write_gain(self, place: int, group: PrecisionGroup, gain: float) -> None:
        both = [group.rows[name] for name in PAIR if name in group.rows]
        about = "\u2248" if any(map(inputs.is_predicted, both)) else ""
        star = "*" if any(map(inputs.is_doubtful, both)) and not self.dots else ""
        size = min(14.0 if self.slide else 8.5, 72 * self.each * 0.8)
        self._write_right(f"{about}{format_short(gain, '.2f')}\u00d7{star}", place, size, "center")

    def _draw_bar(self, row: RowDict, middle: float) -> None:
        """Draw a bar with its roof and its number, which covers neither the roof nor the bar's hatch."""
        value, look = _bandwidth(row), self.looks[row["precision"]]
        points = min(14.0 if self.slide else 7.0, 72 * self.each * self.thickness * 0.85)
        if value is None:
            text = f"{cut(row['precision'], _LONGEST_PRECISION).upper()} {_missing_word(row)}"
            self._write(0.004 * self.longest, middle, text, points, self.ink.soft, style="italic")
            return
        hollow, height = inputs.is_predicted(row), self.thickness * 0.92
        color = styles.draw_bar(self.ax, 0.0, middle, value, height, look.color, hollow=hollow, hatch=look.hatch)
        roof, arithmetic = _roof(row)
        if roof is not None:  # a line across the bar, with a diamond where it is arithmetic
            shade, ends = self.ink.alarm if arithmetic else self.ink.text, [middle - height / 2, middle + height / 2]
            self.ax.plot([roof] * 2, ends, color=shade, linewidth=1.6, solid_capstyle="butt")
            if arithmetic:
                self.ax.plot(roof, middle, color=shade, marker="D", markersize=2.6, linewidth=0)
        text = format_figure(value, whole_from=100) + ("*" if inputs.is_doubtful(row) else "")
        width, gap = canvas.measure_width(text, points) / self.inches, 0.04 / self.inches
        if value > width * 1.6 + 2 * gap:  # within the bar: at its end, or before a roof that the bar goes beyond
            covers = roof is not None and max(value - width - 2 * gap, width + 2 * gap) < roof < value
            end = (roof - gap if covers and roof is not None else value) - gap
            tag = {"facecolor": color, "edgecolor": "none", "pad": 0.8}
            self._write(end, middle, text, points, styles.readable(color), ha="right", bbox=tag)
        elif roof is not None and value - gap < roof < value + width + 2 * gap:
            self._write(roof + 2 * gap, middle, text, points, self.ink.text)
        else:
            self._write(value + 1.5 * gap, middle, text, points, self.ink.text)

    def _draw_dots(self) -> None:
        """Draw dots, with a line from each to its roof, and why there is none."""
        size = min(5.0, 72 * self.each * self.thickness * 1.15)
        for place, group in self.cases:
            self._explain_missing(list(group.rows.values()), place)
        roofs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}  # by whether they are arithmetic
        for precision, look in self.looks.items():
            points, hollow, ways = [], [], []
            for row, y in self.rows:
                value, (roof, arithmetic) = _bandwidth(row), _roof(row)
                if value is None or row["precision"] != precision:
                    continue
                points.append((value, y))
                hollow.append(inputs.is_hollow(row))
                if roof is not None:
                    ways.append([(value, y), (roof, y)])
                    roofs[arithmetic].append((roof, y))
            styles.draw_ways(self.ax, ways, look.color, 0.9, alpha=0.6)
            styles.draw_marks(self.ax, points, hollow, look.color, marker=look.marker, markersize=size, zorder=3)
        for arithmetic, places in roofs.items():
            color, marker, share = (self.ink.alarm, "D", 0.6) if arithmetic else (self.ink.text, "|", 1.1)
            mark: dict[str, Any] = {"color": color, "marker": marker, "markersize": size * share}
            self.ax.plot(*styles.split_points(places), linewidth=0, zorder=2.9, markeredgewidth=1.2, **mark)

    def _explain_missing(self, rows: Sequence[RowDict], place: int) -> None:
        """Write which precisions of a case have no dot, and why, clear of its other dots."""
        reasons: dict[str, list[str]] = {}
        for row in (row for row in rows if _bandwidth(row) is None):
            reasons.setdefault(_missing_word(row), []).append(cut(row["precision"], _LONGEST_PRECISION).upper())
        ends = [
            end for row in rows if (value := _bandwidth(row)) is not None for end in (value, _roof(row)[0] or value)
        ]
        text = "; ".join(f"{', '.join(names)} {reason}" for reason, names in reasons.items())
        points, start = min(6.5, 72 * self.each * 0.7), 0.004 * self.longest
        if ends and min(ends) < start + (canvas.measure_width(text, points) + 0.1) / self.inches:
            start = max(ends) + 0.1 / self.inches
        self._write(start, place, text, points, self.ink.soft)

    def _write_right(self, text: str, y: float, points: float, va: str) -> None:
        ground = {"facecolor": self.ink.ground, "edgecolor": "none", "pad": 0.6}
        look: dict[str, Any] = {"color": self.ink.text, "bbox": ground, "linespacing": 1.0, "ha": "right", "va": va}
        self.ax.annotate(text, (0.995, y), xycoords=("axes fraction", "data"), fontsize=points, **look)

    def _write(self, x: float, y: float, text: str, points: float, color: str, **look: Any) -> None:
        look |= {"va": "center_baseline", "parse_math": False, "clip_on": True}
        self.ax.text(x, y, text, fontsize=points, color=color, **look)

    def _handles(self, rows: Sequence[RowDict]) -> list[Any]:
        """Return the legend's entries, of what is drawn alone."""
        handles: list[Any] = []
        there = {row["precision"] for row in rows}
        for name, look in self.looks.items():
            label = cut(name, _LONGEST_PRECISION).upper()
            dot = styles.line_handle(label, color=look.color, marker=look.marker, linewidth=0, markersize=5)
            bar = styles.bar_handle(label, look.color, look.hatch, self.ink.ground)
            handles += [dot if self.dots else bar] if name in there else []
        roofs = {arithmetic for roof, arithmetic in map(_roof, rows) if roof}
        mark: dict[str, Any] = {"linewidth": 0, "markeredgewidth": 1.6}
        if False in roofs:
            label = f"{schema.find_column('attainable_gb_s').title}: a plain stream of the same bytes"
            handles.append(styles.line_handle(label, color=self.ink.text, marker="|", markersize=9, **mark))
        if True in roofs:
            label = "arithmetic roof, where it is nearer"
            handles.append(styles.line_handle(label, color=self.ink.alarm, marker="D", markersize=4, **mark))
        if self.peak is not None:
            label = schema.find_column("peak_gb_s").title
            handles.append(styles.line_handle(label, color=self.ink.soft, **_PEAK_LOOK))
        return handles + (styles.mark_doubts if self.dots else styles.explain_bars)(rows, self.ink)


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
    return cut(str(status if value is None else value), _LONGEST_PRECISION)


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


def save_panels(means: Mapping[str, Mapping[str, float]], target: Path, *, dpi: int) -> None:
    """Write a picture with a panel for each case, of its bandwidths by precision in GB/s."""
    if not means:
        raise ValueError("there are no rows to draw")
    cases = list(means)[:_MOST_PANELS]
    canvas.note_left_out(len(cases), len(means), "cases")
    columns = min(3, len(cases))
    lines = math.ceil(len(cases) / columns)

    def draw(figure: Figure) -> None:
        for ax, case in zip(figure.subplots(lines, columns, squeeze=False).flat, cases, strict=False):
            _draw_panel(ax, case, means[case])
        for ax in figure.axes[len(cases) :]:
            ax.set_axis_off()

    canvas.write_figure((3.6 * columns, 2.6 * lines), draw, [target], dpi=dpi)


def _draw_panel(ax: Axes, case: str, means: Mapping[str, float]) -> None:
    for place, (name, value) in enumerate(means.items()):
        look = styles.style(name)
        bar = ax.bar(place, value, 0.7, color=look.color, hatch=look.hatch, edgecolor="white", linewidth=0)
        ax.bar_label(bar, [format_figure(value, whole_from=100)], fontsize=8)
    ax.set_xticks(range(len(means)), [escape_controls(name).upper() for name in means], fontsize=8, parse_math=False)
    ax.set_title(cut(case, 40), fontsize=9, parse_math=False)
    ax.set_ylabel(schema.find_column("bandwidth_gb_s").unit, fontsize=8)
    ax.set_xlim(-0.5, len(means) - 0.5)
    ax.set_ylim(0, 1.15 * max(means.values()) or 1.0)
    styles.finish_axes(ax)


@canvas.draws
def model(data: Any, ax: Axes | None = None, *, phase: str | None = None) -> canvas.Drawing:
    """Draw the time of a model's steps by operation: for a token, or for reading a prompt.

    Parameters
    ----------
    data : pandas.DataFrame, path, rows or ModelStep
        From `bwprof.model_step`, or the folder or the file of a run of `bwprof model`.
    phase : str, optional
        "decode", where each sequence gets a token, or "prefill"; by default the first phase of the data.

    Raises
    ------
    ValueError
        For a frame without a column of models, and for a phase without times.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.model(bwprof.load_example("h200_llama")).get_xlabel()
    'time per token (ms)'
    """
    frame = inputs.read_frame(data)
    inputs.require_columns(frame, *_MODEL_COLUMNS, what="a model's frame")
    rows = to_rows(frame)
    steps = _choose_phase(_read_steps(rows), phase)
    drawn = [step for step in steps if _total(step) > 0]
    several = {name for name in _STEP_COLUMNS if len({row[name] for row in rows}) > 1}
    names = [_name_step(step[0], several) for step in drawn]
    models = dict.fromkeys(str(row["model"]) for row in rows if row.get("model"))
    notes = [cut(name, _LONGEST_NAME) for name in (*list(models)[:1], *inputs.device_names(rows)[:1])]
    missing = sum(math.isnan(_total(step)) for step in steps)
    notes += [f"not drawn: {plural(missing, 'step')} without all times"] if missing else []

    def draw(ax: Axes, count: int, room: canvas.Inches) -> None:
        each = _draw_steps(ax, drawn[:count], room)
        token, own = drawn[0][0]["phase"] == "decode", cut(str(drawn[0][0]["phase"]), 24)
        ax.set_xlabel("time per token (ms)" if token else f"time of a {own} step (ms)", parse_math=False)
        title = (
            "Time per token by operation: a step gives each sequence one" if token else "Time of a step by operation"
        )
        styles.add_title(ax, title, [*notes, *canvas.note_left_out(count, len(drawn), "steps")], room)
        styles.finish_lines(ax, names[:count], each)

    return canvas.draw_lines(names, 0.42, draw)


def _read_steps(rows: Sequence[RowDict]) -> list[_Step]:
    """Return the rows of each step, with their time in it, NaN where it is not known, as total_ms."""
    steps: dict[tuple[object, ...], _Step] = defaultdict(list)
    for row in rows:
        count, time = measured_or_none(row["count"]), measured_or_none(row["time_ms"])
        if count and count > 0:  # no step launches other rows
            total = count * time if time is not None and time >= 0 else math.nan
            steps[tuple(row[name] for name in _STEP_COLUMNS)].append({**row, "total_ms": total})
    return list(steps.values())


def _total(rows: Sequence[RowDict]) -> float:
    return sum((float(row["total_ms"]) for row in rows), 0.0)


def _choose_phase(steps: Sequence[_Step], phase: str | None) -> list[_Step]:
    """Return the steps of a phase, by default of the first one that has times."""
    phases = list(dict.fromkeys(str(step[0]["phase"]) for step in steps if _total(step) > 0))
    if phase is not None and phase not in phases:
        raise ValueError(describe_unknown("phase", phase, phases))
    if not phases:
        raise ValueError("there is nothing to draw: no step of the model has a time")
    return [step for step in steps if str(step[0]["phase"]) == (phase or phases[0])]


def _name_step(row: RowDict, several: set[str]) -> str:
    words = [cut(str(row["device"]), 16)] if "device" in several else []
    words += [cut(str(row["weights"]), 16).upper()]
    words += [f"cache {cut(str(row['kv']), 16).upper()}"] if "kv" in several else []
    words += [f"batch {row['step_batch']}"]
    words += [f"context {row['context']}"] if "context" in several else []
    return cut(", ".join(words), _LONGEST_NAME)


def _draw_steps(ax: Axes, steps: Sequence[_Step], room: canvas.Inches) -> float:
    """Draw a bar for each step, with a part for each operation; return the height of a line, inches."""
    colors, rows = styles.ink(ax), [row for step in steps for row in step]
    roles = dict.fromkeys(str(row["role"]) for row in rows)
    looks = {role: styles.part_style(place) for place, role in enumerate(roles)}
    handles = [styles.bar_handle(cut(role, 24), *look, colors.ground) for role, look in looks.items()]
    each = styles.add_legend_over_lines(ax, handles + styles.explain_bars(rows, colors), len(steps), room)
    points = min(8.0, 72 * each * 0.6)
    ends = list(map(_describe_step, steps))
    text_share = (max(canvas.measure_width(text, points) for text in ends) + 0.15) / room[0]
    reach = max(map(_total, steps)) / max(0.3, 1 - text_share)
    for place, (step, text) in enumerate(zip(steps, ends, strict=True)):
        _draw_step(ax, step, place, looks, points * 0.85, room[0] / reach)
        styles.write_after(ax, text, (_total(step), place), colors.text, fontsize=points)
    ax.set_xlim(0, reach)
    return each


def _draw_step(
    ax: Axes, step: _Step, place: int, looks: Mapping[str, tuple[str, str]], points: float, inches: float
) -> None:
    """Draw the parts of a step, with the numbers of those that are wide enough; a millisecond has so many inches."""
    left = 0.0
    for role, (color, hatch) in looks.items():
        own = [row for row in step if str(row["role"]) == role]
        hollow, time = any(map(inputs.is_predicted, own)), _total(own)
        face = styles.draw_bar(ax, left, place, time, 0.72, color, hollow=hollow, hatch=hatch, linewidth=0.6)
        number = format_figure(time, whole_from=100)
        if time * inches > canvas.measure_width(number, points) * 1.5:
            tag = {"facecolor": face, "edgecolor": "none", "pad": 0.6}
            look: dict[str, Any] = {"fontsize": points, "color": styles.readable(face), "bbox": tag}
            ax.text(left + time / 2, place, number, ha="center", va="center_baseline", **look)
        left += time


def _describe_step(step: _Step) -> str:
    """Return the time of a step, its tokens a second, and the share of predictions."""
    total, share = _total(step), _total(list(filter(inputs.is_predicted, step))) / _total(step)
    batch, context = (int(measured_or_none(step[0][name]) or 1) for name in ("step_batch", "context"))
    count = batch if step[0]["phase"] == "decode" else batch * context
    words = [format_seconds(total / 1e3), f"{format_figure(1e3 * count / total, whole_from=100)} tokens/s"]
    if share > 0.005:
        words.append(f"{100 * share:.0f} % predicted" if share < 0.995 else "predicted")
    return ", ".join(words) + ("*" if any(map(inputs.is_doubtful, step)) else "")
