"""The roofline: how many FLOPs a byte gets, and how near to its roofs a case comes."""

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
from bwprof.plot.canvas import Drawing, Inches, cut, distinguish_names, log, measure_width, wrap_name
from bwprof.plot.data import device_of, hollow, predicted, remarks, rows_of, why_hollow
from bwprof.plot.legends import add_legend, add_title, line_handle, ring_handle
from bwprof.plot.styles import Style, finish_axes, ink, styles
from bwprof.results import pairs, schema
from bwprof.results.schema import RowDict
from bwprof.roofs.limiter import ridge
from bwprof.text.formatting import format_figure
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (9.5, 6.4)

_MOST_NAMES = 30  # of cases; those that take longest get one

_MOST_COPIES = 6  # named in the legend

_NAME_LINE, _COPIES_LINE, _LONGEST_COPY, _LONGEST_PRECISION = 34, 56, 48, 16  # letters

_MARK, _RING = 5.5, 3.0  # points: a mark's size, by how much each larger one around it is so

_ON_ONE_SPOT = 3.0  # points between marks of which one hides the other

_ALIKE = 0.03  # ridges so near to each other are told in one

_MEASURED: dict[str, Any] = {"linewidth": 1.5, "solid_capstyle": "butt"}

_THEORY: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (4, 3))}


@dataclass(frozen=True, slots=True)
class _Point:
    """A row in the picture: FLOP/B, TFLOP/s."""

    case: str
    shape: tuple[object, ...]
    precision: str
    intensity: float
    tflops: float
    time_ms: float
    doubted: bool


@dataclass(frozen=True, slots=True)
class _Roof:
    """One roof: of memory in GB/s, of arithmetic in TFLOP/s by precision."""

    gb_s: float | None
    tflops: dict[str, float]

    def ridges(self) -> dict[str, float]:
        return {name: float(ridge(rate, self.gb_s)) for name, rate in self.tflops.items()} if self.gb_s else {}


@dataclass(frozen=True, slots=True)
class _Plan:
    device: str
    points: list[_Point]
    copies: list[str]
    measured: _Roof
    theory: _Roof
    precisions: list[str]
    notes: list[str]
    guessed: set[str]
    theory_word: str
    why_hollow: str

    def word(self, precision: str | None = None) -> str:
        """Whether a precision's roof, or that of memory, was measured."""
        found = {precision} if precision else set(self.precisions)
        return "predicted" if found <= self.guessed else "measured"


def roofline(data: Any, ax: Axes | None = None) -> Axes:
    """Arithmetic rate over arithmetic intensity, below the roofs of the device: one of memory, one per precision.

    Solid roofs are measured, or predicted where no row is measured; dashed roofs are theoretical. A line joins the
    precisions of one shape of a case. Its name stands beside it, without the words that all names share, which the
    title has. Hollow marks are rows in doubt (flags), or predicted. Cases without FLOPs, which only move bytes, stand
    in the legend.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, a file of results. Of several devices the first is drawn.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.

    Raises
    ------
    ValueError
        When a classic column is missing, or no row has FLOPs and a time.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.roofline(bwprof.load_example("h200")).get_xlabel()
    'arithmetic intensity (FLOP/B)'
    """
    return picture(data).on(ax)


def picture(data: Any) -> Drawing:
    """The same as a picture to be drawn or written."""
    plan = _plan(rows_of(data)[0])
    return Drawing(_SIZE, (_SIZE[0] - 0.9, _SIZE[1] - 1.0), lambda ax, room: _draw(ax, plan, room))


def _plan(rows: Sequence[RowDict]) -> _Plan:
    """What is drawn, of the first device that has something to draw."""
    if not rows:
        raise ValueError("there are no rows to draw")
    devices = pairs.group_by_device(rows)
    for own in devices:
        timed = [row for row in own if measured_or_none(row.get("time_ms")) and row["status"] in ("ok", "predicted")]
        shared, names = distinguish_names(_names(timed))
        points = [point for row, name in zip(timed, names, strict=True) if (point := _point(row, name)) is not None]
        if points:
            break
    else:
        raise ValueError("there is nothing to draw: no row has a number in columns flops and time_ms")
    device = cut(next(iter(device_of(own)), ""), 60)
    notes = [cut(shared, 80)] if shared else []
    notes += [f"the first of {len(devices)} devices"] if len(devices) > 1 else []
    if len({point.case for point in points}) > _MOST_NAMES:
        notes.append(f"named: of the {_MOST_NAMES} cases that take longest those with room")
        log.warning("of the picture's cases those %d have a name that take longest", _MOST_NAMES)
    notes += remarks(own)
    with_points = [row for row in timed if _point(row, "") is not None]
    copies = dict.fromkeys(name for row, name in zip(timed, names, strict=True) if _point(row, "") is None)
    precisions = [found for found in ordered_precisions(own) if any(point.precision == found for point in points)]
    roofs = [row for row in with_points if not predicted(row)] or with_points  # a data sheet differs from the driver
    measured = _Roof(_middle(roofs, "ceiling_gb_s"), _rates(with_points, "measured_tflops", precisions))
    theory = _Roof(_middle(roofs, "peak_gb_s"), _rates(with_points, "peak_tflops", precisions))
    measured_too = values.on_host(values.as_frame([dict(own[0])])).all()  # nobody writes down what a CPU could do
    word = "in registers" if measured_too else "theoretical"
    guessed = set(precisions) - {row["precision"] for row in with_points if not predicted(row)}
    hollow_word = why_hollow(with_points)
    return _Plan(device, points, list(copies), measured, theory, precisions, notes, guessed, word, hollow_word)


def _names(rows: Sequence[RowDict]) -> list[str]:
    """What each row's case is called: with its variant where the same was measured in several, or again."""
    times = Counter((row["case"], row["precision"], row.get("cache")) for row in rows)
    several = {case for (case, *_), count in times.items() if count > 1}
    found = []
    for row in rows:
        variant = [str(row["variant"])] if row["case"] in several and row.get("variant") else []
        found.append(" ".join([str(row["case"]), *variant, *(["(hot)"] if row.get("cache") == "hot" else [])]))
    return found


def _point(row: RowDict, name: str) -> _Point | None:
    """None for a row without FLOPs, and for numbers that cannot be."""
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
    return _Point(name, shape, row["precision"], intensity, rate, time_ms, hollow(row))


def _middle(rows: Sequence[RowDict], name: str) -> float | None:
    found = [value for row in rows if (value := measured_or_none(row.get(name))) and value > 0]
    return median(found) if found else None


def _rates(rows: Sequence[RowDict], name: str, precisions: Sequence[str]) -> dict[str, float]:
    found = {which: _middle([row for row in rows if row["precision"] == which], name) for which in precisions}
    return {which: rate for which, rate in found.items() if rate is not None}


# ---- drawing ----


def _draw(ax: Axes, plan: _Plan, room: Inches) -> None:
    looks, colors = styles(plan.precisions), ink(ax)
    ax.set_xscale("log")
    ax.set_yscale("log")
    left, right, low, high = _limits(plan)
    handles = [*_precision_handles(plan, looks), *_roof_handles(plan, colors.text), *_copy_handles(plan)]
    # Above the roofs nothing can be: that is where the legend finds its room.
    points = min(7.5, max(6.0, room[0]))
    told = [line for handle in handles for line in str(handle.get_label()).split("\n")] + [""]  # of spots, see below
    ax.set_xlim(left, right)
    more = _legend_share(plan, told, room, points, (left, right), (low, high))
    ax.set_ylim(low, high * (high / low) ** min(1.2, max(0.08, more)))
    lines_at = _roof(ax, plan.theory, looks, colors.soft, (left, right), _THEORY, plan.measured.gb_s)
    lines_at += _roof(ax, plan.measured, looks, colors.text, (left, right), _MEASURED, plan.theory.gb_s)
    for (x, y), (next_x, next_y) in (ends for case in _joined(plan) for ends in pairwise(case)):
        lines_at += zip(_between(x, next_x, 12), _between(y, next_y, 12), strict=True)
    spots = _spots(plan, (left, right), ax.get_ylim(), room)
    at = _points(ax, plan, spots, looks, colors.soft)
    handles += _spot_handles(spots, colors.text)
    add_legend(ax, handles, loc="upper left", fontsize=points, handlelength=1.8, labelspacing=0.3)
    from bwprof.plot.labels import name_points

    counts = _counts(spots, colors.text)
    names = [*_ridge_names(ax, plan, looks, colors), *counts, *_case_names(plan, colors.text)]
    name_points(ax, names, at, lines_at, fontsize=points - 0.5)
    ax.set_xlabel(schema.find_column("arithmetic_intensity").label.replace("arithmetic_", "arithmetic "))
    ax.set_ylabel(schema.find_column("tflops").label)
    notes = [plan.device, *plan.notes] if plan.device else plan.notes
    add_title(ax, "Predicted roofline" if plan.word() == "predicted" else "Roofline", notes, room)
    finish_axes(ax, grid="both")


def _limits(plan: _Plan) -> tuple[float, float, float, float]:
    """What the axes must hold."""
    xs = [point.intensity for point in plan.points]
    ys = [point.tflops for point in plan.points]
    bends = [*plan.measured.ridges().values(), *plan.theory.ridges().values()]
    rates = [*plan.measured.tflops.values(), *plan.theory.tflops.values()]
    left, right = min([*xs, *bends]) / 2.5, max([*xs, *bends]) * 4
    memory = [roof.gb_s for roof in (plan.measured, plan.theory) if roof.gb_s]
    high = max([*ys, *rates]) * 1.8 if rates or not memory else max([*ys, right * memory[0] / 1e3])
    low = min([*ys, *([left * 2.5 * min(memory) / 1e3] if memory else [])]) / 2.5
    return left, right, low, high


def _legend_share(
    plan: _Plan, told: Sequence[str], room: Inches, points: float, xs: tuple[float, float], ys: tuple[float, float]
) -> float:
    """By what share the axis of rates is made longer, so that the legend stands above the memory roof."""
    (left, right), (low, high) = xs, ys
    legend = 0.0193 * points * len(told) + 0.1  # inches
    memory = max([roof.gb_s for roof in (plan.measured, plan.theory) if roof.gb_s], default=0.0)
    widest = min(0.9, (max(measure_width(line, points) for line in told) + 0.06 * points) / room[0])  # of the width
    at = left * (right / left) ** widest
    top = max([*plan.measured.tflops.values(), *plan.theory.tflops.values()], default=high)
    reached = min(at * memory / 1e3, top) if memory else top
    reached = max([reached, *(point.tflops for point in plan.points if point.intensity < at)])
    share = math.log(max(reached * 1.3, low) / low) / math.log(high / low)  # where the roof is, there
    wanted = share * room[1] / max(room[1] - legend, 0.3 * room[1])
    return wanted - 1


def _roof(
    ax: Axes,
    roof: _Roof,
    looks: Mapping[str, Style],
    neutral: str,
    span: tuple[float, float],
    look: dict[str, Any],
    other_gb_s: float | None,
) -> list[tuple[float, float]]:
    """One roof's lines, which end at the `other` one's memory where it has none; points along them, to keep clear."""
    left, right = span
    points: list[tuple[float, float]] = []
    highest = max(roof.tflops.values(), default=math.inf)
    if roof.gb_s:
        end = min(right, 1e3 * highest / roof.gb_s)
        ax.plot([left, end], [left * roof.gb_s / 1e3, end * roof.gb_s / 1e3], color=neutral, zorder=1.5, **look)
        points += [(x, x * roof.gb_s / 1e3) for x in _between(left, end)]
    for name, rate in roof.tflops.items():
        memory = roof.gb_s or other_gb_s
        start = min(max(left, 1e3 * rate / memory), right) if memory else left
        ax.plot([start, right], [rate, rate], color=looks[name].color, zorder=1.6, **look)
        points += [(x, rate) for x in _between(start, right)]
    return points


def _between(first: float, last: float, steps: int = 60) -> list[float]:
    return [first * (last / first) ** (step / steps) for step in range(steps + 1)]


def _spots(plan: _Plan, xs: tuple[float, float], ys: tuple[float, float], room: Inches) -> list[list[_Point]]:
    """The points, those together of which one would hide the others."""
    spots: list[tuple[tuple[float, float], list[_Point]]] = []
    for point in plan.points:
        x, y = (
            72 * inches * math.log(value / low) / math.log(high / low)
            for value, (low, high), inches in zip((point.intensity, point.tflops), (xs, ys), room, strict=True)
        )
        near = (own for (there, high), own in spots if math.hypot(x - there, y - high) < _ON_ONE_SPOT)
        own = next(near, None)
        if own is None:
            spots.append(((x, y), [point]))
        else:
            own.append(point)
    return [own for _, own in spots]


def _points(
    ax: Axes, plan: _Plan, spots: Sequence[Sequence[_Point]], looks: Mapping[str, Style], soft: str
) -> list[tuple[float, float]]:
    """The rows; a thin line joins the precisions of a case. On one spot each precision's mark is around the next."""
    from matplotlib.collections import LineCollection

    joined = _joined(plan)
    ax.add_collection(LineCollection(joined, colors=soft, linewidths=0.5, alpha=0.6, zorder=2), autolim=False)
    ground = ink(ax).ground
    marks: dict[tuple[int, str, bool], list[_Point]] = {}  # by how many are within it
    for spot in spots:
        looks_there = {(point.precision, point.doubted) for point in spot}
        there = sorted(looks_there, key=lambda one: plan.precisions.index(one[0]))
        for within, (name, doubted) in enumerate(reversed(there)):
            first = next(point for point in spot if (point.precision, point.doubted) == (name, doubted))
            marks.setdefault((within, name, doubted), []).append(first)
    for (within, name, doubted), own in marks.items():
        look = looks[name]
        xs, ys = [point.intensity for point in own], [point.tflops for point in own]
        how: dict[str, Any] = {"marker": look.marker, "markersize": _MARK + _RING * within, "zorder": 3 - within / 100}
        how |= {"color": ground if doubted else look.color, "markeredgecolor": look.color, "markeredgewidth": 1.1}
        ax.plot(xs, ys, linewidth=0, **how)
    return [(point.intensity, point.tflops) for point in plan.points]


def _joined(plan: _Plan) -> list[list[tuple[float, float]]]:
    """Of each shape of a case with several points these, from left to right."""
    cases: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for point in plan.points:
        cases.setdefault((point.case, point.shape), []).append((point.intensity, point.tflops))
    return [sorted(found) for found in cases.values() if len(found) > 1]


def _alike(spot: Sequence[_Point]) -> bool:
    """Whether rows on one spot look the same, so that their marks are one."""
    return len({(point.precision, point.doubted) for point in spot}) < len(spot)


def _counts(spots: Sequence[Sequence[_Point]], color: str) -> list[tuple[str, tuple[float, float], str]]:
    """How many rows a mark stands for, where that cannot be seen."""
    return [(f"\u00d7{len(spot)}", (spot[0].intensity, spot[0].tflops), color) for spot in spots if _alike(spot)]


def _spot_handles(spots: Sequence[Sequence[_Point]], color: str) -> list[Any]:
    """The legend's entry of what lies on one spot."""
    said = ["marks inside each other"] if any(len({point.precision for point in spot}) > 1 for spot in spots) else []
    said += ["\u00d7n: n rows"] if any(map(_alike, spots)) else []
    label = f"on one spot: {', '.join(said)}"
    return [line_handle(label, linewidth=0, color=color)] if said else []


def _ridge_names(
    ax: Axes, plan: _Plan, looks: Mapping[str, Style], colors: Any
) -> list[tuple[str, tuple[float, float], str]]:
    """Where arithmetic takes over: a ring on each ridge, and its name; those alike have one."""
    roof = plan.measured if plan.measured.ridges() else plan.theory
    together: list[tuple[float, list[str]]] = []
    for name, bend in sorted(roof.ridges().items(), key=lambda found: found[1]):
        if together and bend <= together[-1][0] * (1 + _ALIKE):
            together[-1][1].append(name)
        else:
            together.append((bend, [name]))
    names = []
    for bend, which in together:
        rate = roof.tflops[which[0]]
        color = looks[which[0]].color
        ax.plot(bend, rate, marker="o", markersize=7, color="none", markeredgecolor=color, linewidth=0, zorder=2.5)
        said = ", ".join(cut(name, _LONGEST_PRECISION).upper() for name in which)
        names.append((f"ridge {said}: {format_figure(bend, whole_from=100)} FLOP/B", (bend, rate), colors.text))
    return names


def _case_names(plan: _Plan, color: str) -> list[tuple[str, tuple[float, float], str]]:
    """A name for each case, at its highest point, those that take longest first."""
    cases: dict[str, list[_Point]] = {}
    for point in plan.points:
        cases.setdefault(point.case, []).append(point)
    longest = sorted(cases.items(), key=lambda found: -max(point.time_ms for point in found[1]))
    names = []
    for name, found in longest[:_MOST_NAMES]:
        best = max(found, key=lambda point: point.tflops)
        names.append((wrap_name(name, _NAME_LINE, 3), (best.intensity, best.tflops), color))
    return names


def _precision_handles(plan: _Plan, looks: Mapping[str, Style]) -> list[Any]:
    handles = []
    for name in plan.precisions:
        said = [cut(name, _LONGEST_PRECISION).upper()]
        rates = ((plan.measured, plan.word(name)), (plan.theory, plan.theory_word))
        told = [
            f"{format_figure(roof.tflops[name], whole_from=100)} {word}" for roof, word in rates if name in roof.tflops
        ]
        said += [f"{', '.join(told)} (TFLOP/s)"] if told else []
        look = looks[name]
        handles.append(line_handle(": ".join(said), color=look.color, marker=look.marker, markersize=5, linewidth=1.2))
    return handles


def _roof_handles(plan: _Plan, color: str) -> list[Any]:
    handles = []
    for roof, word, look in ((plan.measured, plan.word(), _MEASURED), (plan.theory, plan.theory_word, _THEORY)):
        if roof.gb_s or roof.tflops:
            memory = f": memory {format_figure(roof.gb_s, whole_from=100)} GB/s" if roof.gb_s else ""
            handles.append(line_handle(f"roof {word}{memory}", color=color, **look))
    if plan.why_hollow:
        handles.append(ring_handle(plan.why_hollow, color))
    return handles


def _copy_handles(plan: _Plan) -> list[Any]:
    """Cases that only move bytes."""
    if not plan.copies:
        return []
    named = [cut(name, _LONGEST_COPY) for name in plan.copies[:_MOST_COPIES]]
    more = len(plan.copies) - len(named)
    lines = ["without FLOPs: " + named[0]]
    for name in named[1:]:
        if len(lines[-1]) + len(name) + 2 <= _COPIES_LINE:
            lines[-1] += f", {name}"
        else:
            lines.append(name)
    return [line_handle(",\n".join(lines) + (f" and {more} more" if more else ""), linewidth=0)]
