"""Rooflines: arithmetic rate over arithmetic intensity, below the roofs of a device."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from bwprof.analysis import values
from bwprof.analysis.summarize import ordered_precisions
from bwprof.plot import inputs, styles
from bwprof.plot.canvas import Drawing, Inches, cut, distinguish_names, draws, wrap_name
from bwprof.plot.styles import Style
from bwprof.results import pairs, schema
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import ridge
from bwprof.text.formatting import format_figure
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (9.5, 6.4)
_MOST_NAMES = 30  # cases with a name: those with the longest times
_LONGEST_PRECISION = 16  # letters
_ONE_SPOT = 3.0  # points between marks of which one would hide the other
_Point = tuple[float, float]
_Name = tuple[str, _Point, str]  # text, point, color


class _RoofPoint(NamedTuple):
    case: str
    row: RowDict
    at: _Point  # FLOP/B, TFLOP/s


@dataclass(frozen=True, slots=True)
class _Roof:
    """A roof of memory, GB/s, and of arithmetic by precision, TFLOP/s; precisions of which every row is predicted."""

    name: str
    gb_s: float | None
    tflops: dict[str, float]
    predicted: set[str]
    look: dict[str, Any]

    def word(self, precisions: set[str]) -> str:
        return "predicted" if precisions <= self.predicted else self.name

    def ridges(self) -> dict[str, float]:
        return {name: float(ridge(rate, self.gb_s)) for name, rate in self.tflops.items()} if self.gb_s else {}


@draws
def roofline(data: Any, ax: Axes | None = None) -> Drawing:
    """Draw the arithmetic rate over the arithmetic intensity, below the roofs of the device.

    There is a roof of memory, and one of arithmetic for each precision. Solid roofs are measured, or predicted where no
    row is measured; dashed roofs are theoretical. A line joins the precisions of one shape of a case. Words that all
    names share are in the title. Hollow marks are rows with flags, or predictions. Up to 30 cases with the longest
    times have names, where there is room. Cases without FLOPs, which only move bytes, are named below the axis.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results; of several devices the first one.

    Raises
    ------
    ValueError
        For a missing classic column, and where no row has FLOPs and a time.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.roofline(bwprof.load_example("h200")).get_xlabel().splitlines()[0]
    'arithmetic intensity (FLOP/B)'
    """
    rows = inputs.read_rows(data)[0]
    if not rows:
        raise ValueError("there are no rows to draw")
    devices = pairs.group_by_device(rows)
    own, shared, points, copies = next((found for found in map(_read_device, devices) if found[2]), ([], "", [], []))
    if not points:
        raise ValueError("there is nothing to draw: no row has a number in columns flops and time_ms")
    there = {point.row["precision"] for point in points}
    precisions = [name for name in ordered_precisions(own) if name in there]
    measured, theory = roofs = _read_roofs([point.row for point in points], precisions)
    predicted = measured.word(there) == "predicted"
    notes = [cut(name, 60) for name in (*inputs.device_names(own)[:1], shared)]
    notes += [f"the first of {len(devices)} devices" if len(devices) > 1 else "", *inputs.note_rows(own)]

    def draw(ax: Axes, room: Inches) -> None:
        from bwprof.plot.labels import name_points

        looks, colors = styles.styles(precisions), styles.ink(ax)
        ax.set_xscale("log")
        ax.set_yscale("log")
        _set_limits(ax, points, roofs)
        handles = _make_handles(roofs, looks, colors.text)
        handles += styles.mark_doubts((point.row for point in points), colors)
        spots = _group_spots(ax, points, room)
        if any(len({point.row["precision"] for point in spot}) > 1 for spot in spots):
            handles.append(styles.line_handle("on one spot: marks inside each other", linewidth=0))
        styles.add_legend_above(ax, handles, room)
        lines = _draw_roof(ax, theory, looks, colors.soft, measured.gb_s)
        lines += _draw_roof(ax, measured, looks, colors.text, theory.gb_s)
        lines += _join_cases(ax, points)
        _draw_points(ax, spots, looks)
        names = [*_draw_ridges(ax, roofs, looks), *_name_points(points, colors.text)]
        name_points(ax, names, [point.at for point in points], lines)
        below = wrap_name(f"without FLOPs: {', '.join(copies)}", int(11 * room[0]) + 1, 2) if copies else ""
        label = schema.find_column("arithmetic_intensity").label.replace("arithmetic_", "arithmetic ")
        ax.set_xlabel(f"{label}\n{below}".rstrip(), parse_math=False)
        ax.set_ylabel(schema.find_column("tflops").label)
        styles.add_title(ax, "Predicted roofline" if predicted else "Roofline", notes, room)
        styles.finish_axes(ax, grid="both")

    return Drawing(_SIZE, (_SIZE[0] - 0.9, _SIZE[1] - 1.2), draw)


def _read_device(rows: list[RowDict]) -> tuple[list[RowDict], str, list[_RoofPoint], list[str]]:
    """Return a device's rows, the words that the names of its cases share, its points, and cases without FLOPs."""
    timed = [row for row in rows if measured_or_none(row.get("time_ms")) and inputs.is_drawable(row)]
    shared, names = distinguish_names(_name_cases(timed))
    every = [(row, name, _read_place(row)) for row, name in zip(timed, names, strict=True)]
    points = [_RoofPoint(name, row, at) for row, name, at in every if at is not None]
    return rows, shared, points, list(dict.fromkeys(name for _, name, at in every if at is None))


def _name_cases(rows: Sequence[RowDict]) -> list[str]:
    """Name each row's case, with its variant where the case was measured several times."""
    times = Counter((row["case"], row["precision"], row.get("cache")) for row in rows)
    several = {case for (case, *_), count in times.items() if count > 1}
    names = []
    for row in rows:
        variant = [str(row["variant"])] if row["case"] in several and row.get("variant") else []
        names.append(" ".join([str(row["case"]), *variant, *(["(hot)"] if row.get("cache") == "hot" else [])]))
    return names


def _read_place(row: RowDict) -> _Point | None:
    """Return a row's intensity and rate; None without FLOPs, and for impossible numbers."""
    columns = ("flops", "time_ms", "tflops", "arithmetic_intensity")
    flops, time_ms, rate, intensity = (measured_or_none(row.get(column)) or 0.0 for column in columns)
    if time_ms <= 0:
        return None
    flops, moved = flops or rate * time_ms * 1e9, pairs.moved_bytes(row) or 0
    rate, intensity = rate or flops / time_ms / 1e9, intensity or (flops / moved if moved > 0 else 0.0)
    return (intensity, rate) if min(flops, rate, intensity) > 0 else None


def _read_roofs(rows: Sequence[RowDict], precisions: Sequence[str]) -> tuple[_Roof, _Roof]:
    """Return the measured and the theoretical roof: medians of the rows' columns."""
    measured = [row for row in rows if not inputs.is_predicted(row)]

    def middle(own: Sequence[RowDict], column: str) -> float | None:
        numbers = [value for row in own if (value := measured_or_none(row.get(column))) and value > 0]
        return median(numbers) if numbers else None

    def rates(column: str) -> dict[str, float]:
        found = {name: middle([row for row in rows if row["precision"] == name], column) for name in precisions}
        return {name: rate for name, rate in found.items() if rate is not None}

    memory = measured or rows  # the driver and a data sheet differ
    # The peak rate of a CPU is measured, too: no data sheet has it.
    theory = "in registers" if values.on_host(values.as_frame([dict(rows[0])])).all() else "theoretical"
    predicted = set(precisions) - {row["precision"] for row in measured}
    solid = {"linewidth": 1.5, "solid_capstyle": "butt"}
    dashed = {"linewidth": 1.1, "linestyle": (0, (4, 3))}
    return (
        _Roof("measured", middle(memory, "ceiling_gb_s"), rates("measured_tflops"), predicted, solid),
        _Roof(theory, middle(memory, "peak_gb_s"), rates("peak_tflops"), set(), dashed),
    )


def _set_limits(ax: Axes, points: Sequence[_RoofPoint], roofs: Sequence[_Roof]) -> None:
    xs, ys = zip(*(point.at for point in points), strict=True)
    bends = [bend for roof in roofs for bend in roof.ridges().values()]
    rates = [rate for roof in roofs for rate in roof.tflops.values()]
    memory = [roof.gb_s for roof in roofs if roof.gb_s]
    left, right = min([*xs, *bends]) / 2.5, max([*xs, *bends]) * 4
    high = max([*ys, *rates]) * 1.8 if rates or not memory else max([*ys, right * memory[0] / 1e3])
    ax.set_xlim(left, right)
    ax.set_ylim(min([*ys, *([left * 2.5 * min(memory) / 1e3] if memory else [])]) / 2.5, high)


def _make_handles(roofs: Sequence[_Roof], looks: Mapping[str, Style], color: str) -> list[Any]:
    handles = []
    for name, look in looks.items():
        own = [roof for roof in roofs if name in roof.tflops]
        rates = ", ".join(f"{_figure(roof.tflops[name])} {roof.word({name})}" for roof in own)
        label = cut(name, _LONGEST_PRECISION).upper() + (f": {rates} (TFLOP/s)" if rates else "")
        handles.append(styles.line_handle(label, color=look.color, marker=look.marker, markersize=5, linewidth=1.2))
    for roof in (roof for roof in roofs if roof.gb_s or roof.tflops):
        memory = f": memory {_figure(roof.gb_s)} GB/s" if roof.gb_s else ""
        handles.append(styles.line_handle(f"roof {roof.word({*looks})}{memory}", color=color, **roof.look))
    return handles


def _figure(value: float) -> str:
    return format_figure(value, whole_from=100)


def _draw_roof(ax: Axes, roof: _Roof, looks: Mapping[str, Style], color: str, other_gb_s: float | None) -> list[_Point]:
    """Draw a roof, and return points along it; without memory it begins at the other roof's."""
    left, right = ax.get_xlim()
    points: list[_Point] = []
    if roof.gb_s:
        end = min(right, 1e3 * max(roof.tflops.values(), default=math.inf) / roof.gb_s)
        ax.plot([left, end], [left * roof.gb_s / 1e3, end * roof.gb_s / 1e3], color=color, zorder=1.5, **roof.look)
        points += [(x, x * roof.gb_s / 1e3) for x in _between(left, end)]
    for name, rate in roof.tflops.items():
        memory = roof.gb_s or other_gb_s
        start = min(max(left, 1e3 * rate / memory), right) if memory else left
        ax.plot([start, right], [rate, rate], color=looks[name].color, zorder=1.6, **roof.look)
        points += [(x, rate) for x in _between(start, right)]
    return points


def _between(first: float, last: float, steps: int = 60) -> list[float]:
    return [first * (last / first) ** (step / steps) for step in range(steps + 1)]


def _group_spots(ax: Axes, points: Sequence[_RoofPoint], room: Inches) -> list[list[_RoofPoint]]:
    """Group points of which one would hide the others."""
    spots: list[tuple[_Point, list[_RoofPoint]]] = []
    limits = (ax.get_xlim(), ax.get_ylim())
    for point in points:
        x, y = (
            72 * inches * math.log(value / low) / math.log(high / low)
            for value, (low, high), inches in zip(point.at, limits, room, strict=True)
        )
        near = next((spot for at, spot in spots if math.dist(at, (x, y)) < _ONE_SPOT), None)
        if near is None:
            spots.append(((x, y), [point]))
        else:
            near.append(point)
    return [spot for _, spot in spots]


def _draw_points(ax: Axes, spots: Sequence[Sequence[_RoofPoint]], looks: Mapping[str, Style]) -> None:
    """Draw the rows; on one spot the mark of each precision is around the next one's."""
    marks: dict[tuple[int, str], list[_RoofPoint]] = {}  # by how many marks are within this one
    for spot in spots:
        first = {(point.row["precision"], inputs.is_hollow(point.row)): point for point in reversed(spot)}
        order = sorted(first, key=lambda key: list(looks).index(key[0]), reverse=True)
        for within, key in enumerate(order):
            marks.setdefault((within, key[0]), []).append(first[key])
    for (within, name), own in marks.items():
        look: dict[str, Any] = {"marker": looks[name].marker, "markersize": 5.5 + 3 * within, "markeredgewidth": 1.1}
        points, hollow = [point.at for point in own], [inputs.is_hollow(point.row) for point in own]
        styles.draw_marks(ax, points, hollow, looks[name].color, zorder=3 - within / 100, **look)


def _join_cases(ax: Axes, points: Sequence[_RoofPoint]) -> list[_Point]:
    """Join the precisions of one shape of a case; return points along the lines."""
    cases: dict[tuple[object, ...], list[_Point]] = {}
    for point in points:
        cases.setdefault((point.case, *map(point.row.get, schema.param_names())), []).append(point.at)
    ways = [way for own in cases.values() for way in pairwise(sorted(own))]
    styles.draw_ways(ax, ways, styles.ink(ax).soft, 0.5, alpha=0.6, zorder=2)
    steps = [zip(*(_between(*ends, 12) for ends in zip(*way, strict=True)), strict=True) for way in ways]
    return [(x, y) for step in steps for x, y in step]


def _draw_ridges(ax: Axes, roofs: Sequence[_Roof], looks: Mapping[str, Style]) -> list[_Name]:
    """Draw a ring on each ridge, and return its name; ridges within 3 % share a name."""
    roof = next((roof for roof in roofs if roof.ridges()), roofs[0])
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
        names.append((f"ridge {words}: {_figure(bend)} FLOP/B", (bend, rate), styles.ink(ax).text))
    return names


def _name_points(points: Sequence[_RoofPoint], color: str) -> list[_Name]:
    """Return a name at the highest point of each case, the longest times first."""
    cases: dict[str, list[_RoofPoint]] = {}
    for point in points:
        cases.setdefault(point.case, []).append(point)
    longest = sorted(cases.items(), key=lambda item: -max(float(point.row["time_ms"]) for point in item[1]))
    return [
        (wrap_name(name, 34, 3), max(own, key=lambda point: point.at[1]).at, color)
        for name, own in longest[:_MOST_NAMES]
    ]
