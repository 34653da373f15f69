"""Rooflines: arithmetic rate over arithmetic intensity, below the roofs of a device."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from bwprof.analysis import values
from bwprof.analysis.summarize import ordered_precisions
from bwprof.plot.canvas import Drawing, Inches, cut, distinguish_names, draws, log, measure_width, wrap_name
from bwprof.plot.inputs import device_names, explain_hollow, is_drawable, is_hollow, is_predicted, note_rows, read_rows
from bwprof.plot.legends import add_legend, add_title, line_handle, ring_handle
from bwprof.plot.styles import Ink, Style, finish_axes, ink, styles
from bwprof.results import pairs, schema
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import ridge
from bwprof.text.formatting import format_figure
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (9.5, 6.4)
_MOST_NAMES = 30  # cases with a name: those with the longest times
_MOST_COPIES = 6  # cases without FLOPs that the legend names
_LONGEST_PRECISION = 16  # letters
_ONE_SPOT = 3.0  # points between marks of which one would hide the other
_MEASURED: dict[str, Any] = {"linewidth": 1.5, "solid_capstyle": "butt"}
_THEORY: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (4, 3))}
_Name = tuple[str, tuple[float, float], str]  # text, point, colour


@dataclass(frozen=True, slots=True)
class _RoofPoint:
    case: str
    shape: tuple[object, ...]
    precision: str
    at: tuple[float, float]  # FLOP/B, TFLOP/s
    time_ms: float
    hollow: bool


@dataclass(frozen=True, slots=True)
class _Roof:
    """A roof of memory, GB/s, and of arithmetic by precision, TFLOP/s."""

    gb_s: float | None
    tflops: dict[str, float]

    def ridges(self) -> dict[str, float]:
        return {name: float(ridge(rate, self.gb_s)) for name, rate in self.tflops.items()} if self.gb_s else {}


@dataclass(frozen=True, slots=True)
class _Roofline:
    """What a roofline shows: rows, cases without FLOPs, roofs; precisions of which every row is a prediction."""

    points: list[_RoofPoint]
    copies: list[str]
    measured: _Roof
    theory: _Roof
    precisions: list[str]
    notes: list[str]
    predicted: set[str]
    theory_word: str
    hollow_text: str

    def word(self, precision: str | None = None) -> str:
        """Return whether the roof of a precision, or of memory, is measured or predicted."""
        precisions = {precision} if precision else set(self.precisions)
        return "predicted" if precisions <= self.predicted else "measured"

    @property
    def roofs(self) -> tuple[_Roof, _Roof]:
        return self.measured, self.theory


@draws
def roofline(data: Any, ax: Axes | None = None) -> Drawing:
    """Draw the arithmetic rate over the arithmetic intensity, below the roofs of the device.

    There is a roof of memory, and one of arithmetic for each precision. Solid roofs are measured, or predicted where no
    row is measured; dashed roofs are theoretical. A line joins the precisions of one shape of a case. Words that all
    names share are in the title. Hollow marks are rows with flags, or predictions. The legend names cases without
    FLOPs, which only move bytes.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results; of several devices the first one.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.

    Raises
    ------
    ValueError
        For a missing classic column, and where no row has FLOPs and a time.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.rooflines.roofline(bwprof.load_example("h200")).get_xlabel()
    'arithmetic intensity (FLOP/B)'
    """
    content = _read_content(read_rows(data)[0])
    return Drawing(_SIZE, (_SIZE[0] - 0.9, _SIZE[1] - 1.0), lambda ax, room: _draw(ax, content, room))


def _read_content(rows: Sequence[RowDict]) -> _Roofline:
    """Read the first device that has rows with FLOPs and a time."""
    if not rows:
        raise ValueError("there are no rows to draw")
    own, shared, every = _choose_device(rows)
    drawn = [row for row, _, point in every if point is not None]
    points = [point for _, _, point in every if point is not None]
    devices = len(pairs.group_by_device(rows))
    notes = [
        *(cut(name, 60) for name in device_names(own)[:1]),
        cut(shared, 80),
        f"the first of {devices} devices" if devices > 1 else "",
        _note_names(points),
        *note_rows(own),
    ]
    measured = [row for row in drawn if not is_predicted(row)]
    precisions = _own_precisions(own, drawn)
    memory = measured or drawn  # the driver and a data sheet differ
    return _Roofline(
        points,
        list(dict.fromkeys(name for _, name, point in every if not point)),
        _Roof(_median(memory, "ceiling_gb_s"), _rates(drawn, "measured_tflops", precisions)),
        _Roof(_median(memory, "peak_gb_s"), _rates(drawn, "peak_tflops", precisions)),
        precisions,
        notes,
        set(precisions) - {row["precision"] for row in measured},
        # The peak rate of a CPU is measured, too: no data sheet has it.
        "in registers" if values.on_host(values.as_frame([dict(own[0])])).all() else "theoretical",
        explain_hollow(drawn),
    )


def _note_names(points: Sequence[_RoofPoint]) -> str:
    if len({point.case for point in points}) <= _MOST_NAMES:
        return ""
    log.warning("the picture names the %d cases that take longest", _MOST_NAMES)
    return f"named: of the {_MOST_NAMES} cases that take longest those with room"


def _own_precisions(rows: Sequence[RowDict], drawn: Sequence[RowDict]) -> list[str]:
    there = {row["precision"] for row in drawn}
    return [name for name in ordered_precisions(rows) if name in there]


def _choose_device(rows: Sequence[RowDict]) -> tuple[list[RowDict], str, list[tuple[RowDict, str, _RoofPoint | None]]]:
    """Return the rows of the first device that has points, the words that all names share, and its rows with a time.

    These have a name, and a point if they have FLOPs.
    """
    for own in pairs.group_by_device(rows):
        timed = [row for row in own if measured_or_none(row.get("time_ms")) and is_drawable(row)]
        shared, names = distinguish_names(_name_cases(timed))
        every = [(row, name, _point(row, name)) for row, name in zip(timed, names, strict=True)]
        if any(point for _, _, point in every):
            return own, shared, every
    raise ValueError("there is nothing to draw: no row has a number in columns flops and time_ms")


def _name_cases(rows: Sequence[RowDict]) -> list[str]:
    """Name each row's case, with its variant where the case was measured several times."""
    times = Counter((row["case"], row["precision"], row.get("cache")) for row in rows)
    several = {case for (case, *_), count in times.items() if count > 1}
    names = []
    for row in rows:
        variant = [str(row["variant"])] if row["case"] in several and row.get("variant") else []
        names.append(" ".join([str(row["case"]), *variant, *(["(hot)"] if row.get("cache") == "hot" else [])]))
    return names


def _point(row: RowDict, name: str) -> _RoofPoint | None:
    """Return a row's point; None without FLOPs, and for impossible numbers."""
    flops, time_ms = measured_or_none(row.get("flops")), measured_or_none(row.get("time_ms"))
    moved = pairs.moved_bytes(row) or 0
    rate = measured_or_none(row.get("tflops"))
    if not flops and rate and time_ms:
        flops = rate * time_ms * 1e9
    if not flops or not time_ms or flops < 0 or time_ms < 0:
        return None
    intensity = measured_or_none(row.get("arithmetic_intensity")) or (flops / moved if moved > 0 else 0.0)
    rate = rate or flops / time_ms / 1e9
    if not (intensity > 0 and rate > 0):
        return None
    shape = tuple(row.get(param) for param in schema.param_names())
    return _RoofPoint(name, shape, row["precision"], (intensity, rate), time_ms, is_hollow(row))


def _median(rows: Sequence[RowDict], name: str) -> float | None:
    numbers = [value for row in rows if (value := measured_or_none(row.get(name))) and value > 0]
    return median(numbers) if numbers else None


def _rates(rows: Sequence[RowDict], name: str, precisions: Sequence[str]) -> dict[str, float]:
    rates = {own: _median([row for row in rows if row["precision"] == own], name) for own in precisions}
    return {own: rate for own, rate in rates.items() if rate is not None}


def _draw(ax: Axes, content: _Roofline, room: Inches) -> None:
    from bwprof.plot.labels import name_points

    looks, colors = styles(content.precisions), ink(ax)
    ax.set_xscale("log")
    ax.set_yscale("log")
    left, right, low, high = _limits(content)
    handles = [*_precision_handles(content, looks), *_other_handles(content, colors.text)]
    points = min(7.5, max(6.0, room[0]))
    ax.set_xlim(left, right)
    share = _legend_share(content, handles, room, points, (left, right, low, high))
    ax.set_ylim(low, high * (high / low) ** min(1.2, max(0.08, share)))  # the legend is above the roofs
    lines = _draw_roof(ax, content.theory, looks, colors.soft, _THEORY, content.measured.gb_s)
    lines += _draw_roof(ax, content.measured, looks, colors.text, _MEASURED, content.theory.gb_s)
    for (x, y), (next_x, next_y) in (ends for case in _joined(content.points) for ends in pairwise(case)):
        lines += zip(_between(x, next_x, 12), _between(y, next_y, 12), strict=True)
    spots = _group_spots(ax, content.points, room)
    _draw_points(ax, content, spots, looks, colors)
    handles += _spot_handles(spots, colors.text)
    add_legend(ax, handles, loc="upper left", fontsize=points, handlelength=1.8, labelspacing=0.3)
    counts = [(f"\u00d7{len(spot)}", spot[0].at, colors.text) for spot in spots if _are_alike(spot)]
    names = [*_draw_ridges(ax, content, looks, colors), *counts, *_case_names(content.points, colors.text)]
    name_points(ax, names, [point.at for point in content.points], lines, fontsize=points - 0.5)
    ax.set_xlabel(schema.find_column("arithmetic_intensity").label.replace("arithmetic_", "arithmetic "))
    ax.set_ylabel(schema.find_column("tflops").label)
    add_title(ax, "Predicted roofline" if content.word() == "predicted" else "Roofline", content.notes, room)
    finish_axes(ax, grid="both")


def _limits(content: _Roofline) -> tuple[float, float, float, float]:
    xs, ys = zip(*(point.at for point in content.points), strict=True)
    bends = [bend for roof in content.roofs for bend in roof.ridges().values()]
    rates = [rate for roof in content.roofs for rate in roof.tflops.values()]
    memory = [roof.gb_s for roof in content.roofs if roof.gb_s]
    left, right = min([*xs, *bends]) / 2.5, max([*xs, *bends]) * 4
    high = max([*ys, *rates]) * 1.8 if rates or not memory else max([*ys, right * memory[0] / 1e3])
    low = min([*ys, *([left * 2.5 * min(memory) / 1e3] if memory else [])]) / 2.5
    return left, right, low, high


def _legend_share(
    content: _Roofline, handles: Sequence[Any], room: Inches, points: float, limits: tuple[float, float, float, float]
) -> float:
    """Return by what share the y axis grows so that the legend is above the memory roof."""
    left, right, low, high = limits
    texts = [line for handle in handles for line in str(handle.get_label()).split("\n")]
    legend = 0.0193 * points * (len(texts) + 1) + 0.1  # inches, with a line for spots
    memory = max([roof.gb_s for roof in content.roofs if roof.gb_s], default=0.0)
    width = max(measure_width(text, points) for text in texts) + 0.06 * points
    at = left * (right / left) ** min(0.9, width / room[0])
    top = max([rate for roof in content.roofs for rate in roof.tflops.values()], default=high)
    reached = min(at * memory / 1e3, top) if memory else top
    reached = max([reached, *(point.at[1] for point in content.points if point.at[0] < at)])
    share = math.log(max(reached * 1.3, low) / low) / math.log(high / low)  # of the axis below the legend
    return share * room[1] / max(room[1] - legend, 0.3 * room[1]) - 1


def _draw_roof(
    ax: Axes, roof: _Roof, looks: Mapping[str, Style], color: str, look: dict[str, Any], other_gb_s: float | None
) -> list[tuple[float, float]]:
    """Draw a roof, and return points along it; without memory it begins at the other roof's."""
    left, right = ax.get_xlim()
    points: list[tuple[float, float]] = []
    if roof.gb_s:
        end = min(right, 1e3 * max(roof.tflops.values(), default=math.inf) / roof.gb_s)
        ax.plot([left, end], [left * roof.gb_s / 1e3, end * roof.gb_s / 1e3], color=color, zorder=1.5, **look)
        points += [(x, x * roof.gb_s / 1e3) for x in _between(left, end)]
    for name, rate in roof.tflops.items():
        memory = roof.gb_s or other_gb_s
        start = min(max(left, 1e3 * rate / memory), right) if memory else left
        ax.plot([start, right], [rate, rate], color=looks[name].color, zorder=1.6, **look)
        points += [(x, rate) for x in _between(start, right)]
    return points


def _between(first: float, last: float, steps: int = 60) -> list[float]:
    return [first * (last / first) ** (step / steps) for step in range(steps + 1)]


def _group_spots(ax: Axes, points: Sequence[_RoofPoint], room: Inches) -> list[list[_RoofPoint]]:
    """Group points of which one would hide the others."""
    spots: list[tuple[tuple[float, float], list[_RoofPoint]]] = []
    for point in points:
        x, y = (
            72 * inches * math.log(value / low) / math.log(high / low)
            for value, (low, high), inches in zip(point.at, (ax.get_xlim(), ax.get_ylim()), room, strict=True)
        )
        for (other_x, other_y), spot in spots:
            if math.hypot(x - other_x, y - other_y) < _ONE_SPOT:
                spot.append(point)
                break
        else:
            spots.append(((x, y), [point]))
    return [spot for _, spot in spots]


def _draw_points(
    ax: Axes, content: _Roofline, spots: Sequence[Sequence[_RoofPoint]], looks: Mapping[str, Style], colors: Ink
) -> None:
    """Draw the rows; on one spot the mark of each precision is around the next one's."""
    from matplotlib.collections import LineCollection

    ways = LineCollection(_joined(content.points), colors=colors.soft, linewidths=0.5, alpha=0.6, zorder=2)
    ax.add_collection(ways, autolim=False)
    marks: dict[tuple[int, str, bool], list[tuple[float, float]]] = {}  # by how many marks are within this one
    for spot in spots:
        first = {(point.precision, point.hollow): point.at for point in reversed(spot)}
        order = sorted(first, key=lambda key: content.precisions.index(key[0]), reverse=True)
        for within, key in enumerate(order):
            marks.setdefault((within, *key), []).append(first[key])
    for (within, name, hollow), own in marks.items():
        xs, ys = zip(*own, strict=True)
        look: dict[str, Any] = {"marker": looks[name].marker, "markersize": 5.5 + 3 * within, "markeredgewidth": 1.1}
        fill, edge = colors.ground if hollow else looks[name].color, looks[name].color
        ax.plot(xs, ys, linewidth=0, color=fill, markeredgecolor=edge, zorder=3 - within / 100, **look)


def _joined(points: Sequence[_RoofPoint]) -> list[list[tuple[float, float]]]:
    cases: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for point in points:
        cases.setdefault((point.case, point.shape), []).append(point.at)
    return [sorted(own) for own in cases.values() if len(own) > 1]


def _are_alike(spot: Sequence[_RoofPoint]) -> bool:
    return len({(point.precision, point.hollow) for point in spot}) < len(spot)


def _spot_handles(spots: Sequence[Sequence[_RoofPoint]], color: str) -> list[Any]:
    notes = ["marks inside each other"] if any(len({point.precision for point in spot}) > 1 for spot in spots) else []
    notes += ["\u00d7n: n rows"] if any(map(_are_alike, spots)) else []
    return [line_handle(f"on one spot: {', '.join(notes)}", linewidth=0, color=color)] if notes else []


def _draw_ridges(ax: Axes, content: _Roofline, looks: Mapping[str, Style], colors: Ink) -> list[_Name]:
    """Draw a ring on each ridge, and return its name; ridges within 3 % share a name."""
    roof = content.measured if content.measured.ridges() else content.theory
    groups: list[tuple[float, list[str]]] = []
    for precision, bend in sorted(roof.ridges().items(), key=lambda item: item[1]):
        if groups and bend <= groups[-1][0] * 1.03:
            groups[-1][1].append(precision)
        else:
            groups.append((bend, [precision]))
    names = []
    for bend, precisions in groups:
        rate, color = roof.tflops[precisions[0]], looks[precisions[0]].color
        ax.plot(bend, rate, marker="o", markersize=7, color="none", markeredgecolor=color, linewidth=0, zorder=2.5)
        words = ", ".join(cut(precision, _LONGEST_PRECISION).upper() for precision in precisions)
        names.append((f"ridge {words}: {format_figure(bend, whole_from=100)} FLOP/B", (bend, rate), colors.text))
    return names


def _case_names(points: Sequence[_RoofPoint], color: str) -> list[_Name]:
    """Return a name at the highest point of each case, the longest times first."""
    cases: dict[str, list[_RoofPoint]] = {}
    for point in points:
        cases.setdefault(point.case, []).append(point)
    longest = sorted(cases.items(), key=lambda item: -max(point.time_ms for point in item[1]))
    return [
        (wrap_name(name, 34, 3), max(own, key=lambda point: point.at[1]).at, color)
        for name, own in longest[:_MOST_NAMES]
    ]


def _precision_handles(content: _Roofline, looks: Mapping[str, Style]) -> list[Any]:
    handles = []
    for name in content.precisions:
        roofs = ((content.measured, content.word(name)), (content.theory, content.theory_word))
        rates = [
            f"{format_figure(roof.tflops[name], whole_from=100)} {word}" for roof, word in roofs if name in roof.tflops
        ]
        label = cut(name, _LONGEST_PRECISION).upper() + (f": {', '.join(rates)} (TFLOP/s)" if rates else "")
        look = looks[name]
        handles.append(line_handle(label, color=look.color, marker=look.marker, markersize=5, linewidth=1.2))
    return handles


def _other_handles(content: _Roofline, color: str) -> list[Any]:
    handles = []
    words = ((content.measured, content.word(), _MEASURED), (content.theory, content.theory_word, _THEORY))
    for roof, word, look in words:
        if roof.gb_s or roof.tflops:
            memory = f": memory {format_figure(roof.gb_s, whole_from=100)} GB/s" if roof.gb_s else ""
            handles.append(line_handle(f"roof {word}{memory}", color=color, **look))
    if content.hollow_text:
        handles.append(ring_handle(content.hollow_text, color))
    if content.copies:
        lines = [""]
        for name in [cut(name, 48) for name in content.copies[:_MOST_COPIES]]:
            if lines[-1] and len(lines[-1]) + len(name) + 2 > 56:
                lines.append(name)
            else:
                lines[-1] += f", {name}" if lines[-1] else f"without FLOPs: {name}"
        more = len(content.copies) - _MOST_COPIES
        handles.append(line_handle(",\n".join(lines) + (f" and {more} more" if more > 0 else ""), linewidth=0))
    return handles
