"""Bars made of parts: what a narrower precision gains, and where the time of a model's step goes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bwprof.analysis.gains import PrecisionPair, check_precision_pair, find_precision_pairs, list_precisions
from bwprof.plot.canvas import (
    MOST_LINES,
    Drawing,
    Inches,
    count_lines,
    cut,
    distinguish_names,
    measure_labels,
    measure_width,
    note_left_out,
)
from bwprof.plot.data import device_of, doubted, frame_of, need_columns, predicted, remarks
from bwprof.plot.legends import add_legend_over_lines, add_title, line_handle, write_after
from bwprof.plot.styles import Ink, finish_axes, ink, part_style, readable, style
from bwprof.results.frame import to_rows
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure, format_seconds, format_short, plural
from bwprof.text.parsing import describe_unknown, measured_or_none, parse_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 9.5

_AROUND_INCHES, _LINE_INCHES = 1.05, 0.17

_CASE_INCHES, _STEP_INCHES = 0.27, 0.42

_LONGEST, _NAME_POINTS = 56, 8.5

_LOSS_COLOR, _LOSS_HATCH, _GAIN_HATCH = "#8A8A8A", "xxxx", "...."

_MOST_PARTS = 7  # with a look of their own; the rest is one


def _height(count: int, each: float) -> float:
    """Inches of the axes of a picture of its own."""
    return min(count, MOST_LINES) * each + 3 * _LINE_INCHES


def _lines(count: int, height: float) -> int:
    """How many lines are drawn on axes of so many inches."""
    return min(count, count_lines(height - 2 * _LINE_INCHES))


def _cases(ax: Axes, names: Sequence[str], each: float) -> None:
    ax.set_yticks(range(len(names)), list(names), parse_math=False)
    ax.tick_params(axis="y", length=0, labelsize=min(_NAME_POINTS, 72 * each * 0.8))


# ---- what a narrower precision gains ----


def speedup(data: Any, ax: Axes | None = None, *, from_: str | None = None, to: str | None = None) -> Axes:
    """What a narrower precision gains in time, case by case: the ratio of bytes times the ratio of efficiency.

    The axis is one of factors, so that parts of a bar multiply: what fewer bytes promise, and what a higher or a lower
    bandwidth makes of it. Words that all cases share in their names stand in the title alone.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, a file of results; the nine classic columns will do.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.
    from_, to : str, optional
        The precisions compared: FP32 and FP16, where the data have them, else the first two.

    Raises
    ------
    ValueError
        For an unknown precision, the same twice, and where no case has a time in both.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.speedup(bwprof.load_example("h200")).get_xlabel()
    'time gain of FP16 over FP32 (x)'
    """
    return speedup_picture(data, from_=from_, to=to).on(ax)


def speedup_picture(data: Any, *, from_: str | None = None, to: str | None = None) -> Drawing:
    """The same as a picture to be drawn or written."""
    frame = frame_of(data)
    wide, narrow = _precisions(frame, from_, to)
    found = [
        pair
        for pair in find_precision_pairs(frame, wide, narrow)
        if pair.byte_ratio > 0 and measured_or_none(pair.time_ratio)
    ]
    if not found:
        there = ", ".join(list_precisions(frame)) or "none"
        raise ValueError(f"there is nothing to draw: no case has a time in {wide} and in {narrow} (there are: {there})")
    height = _height(len(found), _CASE_INCHES)
    notes = remarks(row for row in to_rows(frame) if row["precision"] in (wide, narrow))

    def draw(ax: Axes, room: Inches) -> None:
        _draw_gains(ax, found[: _lines(len(found), room[1])], len(found), (wide, narrow), notes, room)

    names = measure_labels(_labels(found[:MOST_LINES])[1], _NAME_POINTS)
    return Drawing((_WIDTH, height + _AROUND_INCHES), (_WIDTH - names, height), draw)


def _precisions(frame: Any, from_: str | None, to: str | None) -> tuple[str, str]:
    for given, name in ((from_, "from_"), (to, "to")):
        if given is not None:
            parse_name(given, name)
    there = [name for name in list_precisions(frame) if name]
    if from_ is None:
        others = [name for name in there if name != to]
        from_ = "fp32" if "fp32" in others or not others else others[0]
    if to is None:
        others = [name for name in there if name != from_]
        to = "fp16" if "fp16" in others or not others else others[0]
        if to == from_:
            to = "fp16" if from_ != "fp16" else "fp32"
    return check_precision_pair(from_, to)


def _labels(found: Sequence[PrecisionPair]) -> tuple[str, list[str]]:
    """What the names of all cases share, and the rest of each."""
    shared, names = distinguish_names([pair.label for pair in found])
    return cut(shared, _LONGEST), [cut(name, _LONGEST) for name in names]


def _draw_gains(
    ax: Axes, found: Sequence[PrecisionPair], count: int, names: tuple[str, str], notes: Sequence[str], room: Inches
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    from bwprof.plot.canvas import bar

    colors, look = ink(ax), style(names[1])
    loss, gain = (any((pair.bandwidth_ratio < 1) == lower for pair in found) for lower in (True, False))
    ground: dict[str, Any] = {"edgecolor": colors.ground, "linewidth": 0}
    handles: list[Any] = [Rectangle((0, 0), 1, 1, facecolor=look.color, label="gained by fewer bytes", **ground)]
    more, less = (look.color, _GAIN_HATCH), (_LOSS_COLOR, _LOSS_HATCH)
    for there, (color, hatch), told in ((gain, more, "gained by a higher"), (loss, less, "lost to a lower")):
        if there:
            label = f"{told} bandwidth (efficiency)"
            handles.append(Rectangle((0, 0), 1, 1, facecolor=color, hatch=hatch, label=label, **ground))
    rows = [row for pair in found for row in (pair.wide, pair.narrow)]
    handles += _marks(rows, colors)
    each = add_legend_over_lines(ax, handles, len(found), room)
    ax.set_xscale("log", base=2)
    points = min(8.0, 72 * each * 0.75)
    totals, promises = [pair.time_ratio for pair in found], [pair.byte_ratio for pair in found]
    low, high = min(1.0, *totals, *promises), max(1.0, *totals, *promises)
    kept, gained, lost = _parts_of_gains(totals, promises)
    for spans, color, hatch in ((kept, look.color, ""), (gained, *more), (lost, *less)):
        for place, start, width in spans:
            guessed = _guessed((found[place].wide, found[place].narrow), color, colors.ground)
            bar(ax, start, place, width, 0.7, hatch=hatch, **guessed)
    ends = [[(total, place - 0.4), (total, place + 0.4)] for place, total in enumerate(totals)]
    ax.add_collection(LineCollection(ends, colors=colors.text, linewidths=1.8), autolim=False)
    for place, (pair, total, promised) in enumerate(zip(found, totals, promises, strict=True)):
        parts = f" = {format_short(promised, '.2f')} \u00d7 {format_short(pair.bandwidth_ratio, '.2f')}"
        parts += "*" if doubted(pair.wide) or doubted(pair.narrow) else ""
        text, end = f"{format_short(total, '.2f')}\u00d7{parts}", (max(total, promised, 1.0), place)
        write_after(ax, text, end, colors.text, fontsize=points, annotation_clip=True)
    _gain_axis(ax, low, high, room[0])
    ax.axvline(1, color=colors.soft, linewidth=0.9)
    shared, labels = _labels(found)
    _cases(ax, labels, each)
    wide, narrow = (name.upper() for name in names)
    ax.set_xlabel(f"time gain of {narrow} over {wide} (x)")
    words = [cut(name, _LONGEST) for name in device_of([pair.wide for pair in found])[:1]]
    words += [shared] if shared else []
    first = f"{narrow} against {wide}: ratio of bytes \u00d7 ratio of bandwidths"
    add_title(ax, first, [*words, *note_left_out(len(found), count, "cases"), *notes], room)
    finish_axes(ax, grid="x")


def _marks(rows: Sequence[RowDict], colors: Ink) -> list[Any]:
    """The legend's entries of what is only predicted, and of what is doubted."""
    found: list[Any] = []
    if any(predicted(row) for row in rows):
        square: dict[str, Any] = {"marker": "s", "markersize": 5, "linewidth": 0}
        found.append(
            line_handle("hollow: predicted", markerfacecolor=colors.ground, markeredgecolor=colors.text, **square)
        )
    if any(doubted(row) for row in rows):
        found.append(line_handle("see flags", linewidth=0, marker="$*$", color=colors.text))
    return found


def _guessed(rows: Sequence[RowDict], color: str, ground: str) -> dict[str, Any]:
    """The look of a part of a bar: hollow where one of its rows is only predicted."""
    if any(predicted(row) for row in rows):
        return {"facecolor": ground, "edgecolor": color, "linewidth": 0.8}
    return {"facecolor": color, "edgecolor": ground, "linewidth": 0}


Span = tuple[int, float, float]  # the line, the start, the width


def _parts_of_gains(totals: Sequence[float], promises: Sequence[float]) -> tuple[list[Span], list[Span], list[Span]]:
    """What fewer bytes gain, what a higher bandwidth adds to it, and what a lower one takes away."""
    kept: list[Span] = []
    gained: list[Span] = []
    lost: list[Span] = []
    for place, (total, promised) in enumerate(zip(totals, promises, strict=True)):
        if min(total, promised) > 1:
            kept.append((place, 1.0, min(total, promised) - 1))
        if total >= promised:
            gained.append((place, promised, total - promised))
        else:
            lost.append((place, total, promised - total))
    return kept, gained, lost


def _gain_axis(ax: Axes, low: float, high: float, inches: float) -> None:
    """Factors, with room at the right for the numbers of the longest bar."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    low, high = low / 1.06, high * 1.05
    share = min(0.5, 1.5 / max(inches, 1.0))
    ax.set_xlim(low, high * (high / low) ** (share / (1 - share)))
    factors = [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    if len(factors) < 4:
        factors = sorted({*factors, *(1.5 * factor for factor in factors if low <= 1.5 * factor <= high)})
    ax.set_xticks(factors[:: max(1, len(factors) // 10)])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}\u00d7"))
    ax.xaxis.set_minor_locator(NullLocator())


# ---- where a model's time goes ----

_MODEL_NEEDS = ("phase", "role", "count", "step_batch", "context", "weights", "kv")

_STEP = ("phase", "step_batch", "context", "weights", "kv", "device")


@dataclass(slots=True)
class _Step:
    """A step of a model: its operations' times, ms."""

    name: str
    phase: str
    batch: int
    tokens: int
    parts: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[RowDict]] = field(default_factory=dict)
    predicted: float = 0.0
    missing: str = ""

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def model(data: Any, ax: Axes | None = None, *, phase: str | None = None) -> Axes:
    """The time of a model's steps by operation: what each adds to a token, or to reading a prompt.

    Parameters
    ----------
    data : pandas.DataFrame, path, rows or ModelStep
        From `bwprof.model_step`, or the folder or the file of a run of `bwprof model`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.
    phase : str, optional
        "decode", where each sequence gets a token, or "prefill"; when left out the first that the data have.

    Raises
    ------
    ValueError
        For a frame that is no model's (with the column that is missing), or has no times of the phase.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.model(bwprof.load_example("h200_llama")).get_xlabel()
    'time per token (ms)'
    """
    return model_picture(data, phase=phase).on(ax)


def model_picture(data: Any, *, phase: str | None = None) -> Drawing:
    """The same as a picture to be drawn or written."""
    frame = frame_of(data)
    need_columns(frame, *_MODEL_NEEDS, what="a model's frame")
    rows = to_rows(frame)
    steps = _steps(rows)
    known = [step for step in steps if step.total > 0 and not step.missing]
    phases = list(dict.fromkeys(step.phase for step in known))
    if phase is not None and phase not in phases:
        raise ValueError(describe_unknown("phase", phase, phases))
    if not known:
        raise ValueError("there is nothing to draw: no step of the model has a time")
    chosen = phase or phases[0]
    found = [step for step in known if step.phase == chosen]
    height = _height(len(found), _STEP_INCHES)
    names = list(dict.fromkeys(str(row["model"]) for row in rows if row.get("model")))
    words = [cut(name, _LONGEST) for name in (*names[:1], *device_of(rows)[:1])]
    missing = sum(step.phase == chosen and bool(step.missing) for step in steps)
    words += [f"not drawn: {plural(missing, 'step')} without all times"] if missing else []

    def draw(ax: Axes, room: Inches) -> None:
        _draw_steps(ax, found[: _lines(len(found), room[1])], len(found), words, room)

    inner = _WIDTH - measure_labels((step.name for step in found[:MOST_LINES]), _NAME_POINTS)
    return Drawing((_WIDTH, height + _AROUND_INCHES), (inner, height), draw)


def _steps(rows: Sequence[RowDict]) -> list[_Step]:
    """The steps, in the order of their first rows; what no step launches (a layer in one graph) adds nothing."""
    varying = {name for name in _STEP if len({row[name] for row in rows}) > 1}
    found: dict[tuple[object, ...], _Step] = {}
    for row in rows:
        count = measured_or_none(row["count"])
        if not count or count < 0:
            continue
        key = tuple(row[name] for name in _STEP)
        if key not in found:
            batch, context = (int(measured_or_none(row[name]) or 1) for name in ("step_batch", "context"))
            phase = str(row["phase"])
            tokens = batch if phase == _ONE_TOKEN else batch * context
            found[key] = _Step(_step_name(row, varying), phase, batch, tokens)
        step, time = found[key], measured_or_none(row["time_ms"])
        if time is None or time < 0:
            step.missing = step.missing or str(row["reason"] or row["status"])
            continue
        role = str(row["role"])
        step.parts[role] = step.parts.get(role, 0.0) + count * time
        step.rows.setdefault(role, []).append(row)
        step.predicted += count * time if row["status"] == "predicted" else 0.0
    return list(found.values())


_ONE_TOKEN = "decode"  # the phase in which each sequence gets one


def _step_name(row: RowDict, varying: set[str]) -> str:
    formats = [cut(str(row["device"]), 16)] if "device" in varying else []
    formats += [cut(str(row["weights"]), 16).upper()]
    formats += [f"cache {cut(str(row['kv']), 16).upper()}"] if "kv" in varying else []
    sizes = [f"batch {row['step_batch']}"]
    sizes += [f"context {row['context']}"] if "context" in varying else []
    return cut(", ".join([*formats, *sizes]), _LONGEST)


def _draw_steps(ax: Axes, found: Sequence[_Step], count: int, words: Sequence[str], room: Inches) -> None:
    from matplotlib.patches import Rectangle

    from bwprof.plot.canvas import bar

    colors = ink(ax)
    roles = _roles(found)
    looks = {role: part_style(place) for place, role in enumerate(roles)}
    ground: dict[str, Any] = {"edgecolor": colors.ground, "linewidth": 0}
    handles: list[Any] = [
        Rectangle((0, 0), 1, 1, facecolor=color, hatch=hatch, label=cut(role, 24), **ground)
        for role, (color, hatch) in looks.items()
    ]
    handles += _marks([row for step in found for rows in step.rows.values() for row in rows], colors)
    each = add_legend_over_lines(ax, handles, len(found), room)
    points = min(8.0, 72 * each * 0.6)
    longest = max(step.total for step in found)
    ends = [_end_text(step) for step in found]
    reach = longest / max(0.3, 1 - (max(measure_width(text, points) for text in ends) + 0.15) / room[0])
    for place, step in enumerate(found):
        left = 0.0
        for role, time in _parts(step, roles).items():
            color, hatch = looks[role]
            look = _guessed(_rows_of(step, role, roles), color, colors.ground)
            bar(ax, left, place, time, 0.72, hatch=hatch, **look | {"linewidth": 0.6})
            said = format_figure(time, whole_from=100)
            if time / reach * room[0] > measure_width(said, points * 0.85) * 1.5:
                tag = {"facecolor": look["facecolor"], "edgecolor": "none", "pad": 0.6}
                how: dict[str, Any] = {"fontsize": points * 0.85, "color": readable(look["facecolor"]), "bbox": tag}
                ax.text(left + time / 2, place, said, ha="center", va="center_baseline", **how)
            left += time
        write_after(ax, ends[place], (left, place), colors.text, fontsize=points)
    ax.set_xlim(0, reach)
    _cases(ax, [step.name for step in found], each)
    one = found[0].phase == _ONE_TOKEN
    xlabel = "time per token (ms)" if one else f"time of a {cut(found[0].phase, 24)} step (ms)"
    ax.set_xlabel(xlabel, parse_math=False)
    head = "Time per token by operation: a step gives each sequence one" if one else "Time of a step by operation"
    add_title(ax, head, [*words, *note_left_out(len(found), count, "steps")], room)
    finish_axes(ax, grid="x")


def _roles(found: Sequence[_Step]) -> list[str]:
    """The operations in their order; of too many the small ones are one."""
    whole: dict[str, float] = {}
    for step in found:
        for role, time in step.parts.items():
            whole[role] = whole.get(role, 0.0) + time / step.total
    if len(whole) <= _MOST_PARTS:
        return list(whole)
    large = sorted(whole, key=lambda role: -whole[role])[: _MOST_PARTS - 1]
    return [*(role for role in whole if role in large), "others"]


def _parts(step: _Step, roles: Sequence[str]) -> Mapping[str, float]:
    kept = {role: step.parts[role] for role in roles if role in step.parts}
    rest = step.total - sum(kept.values())
    return kept if rest <= 1e-9 * step.total else {**kept, "others": rest}


def _rows_of(step: _Step, role: str, roles: Sequence[str]) -> list[RowDict]:
    """The rows of a part, which may be that of all small ones."""
    named = [role] if role in step.rows else [name for name in step.rows if name not in roles]
    return [row for name in named for row in step.rows[name]]


def _end_text(step: _Step) -> str:
    share = step.predicted / step.total
    rate = f"{format_figure(1e3 * step.tokens / step.total, whole_from=100)} tokens/s"
    words = [format_seconds(step.total / 1e3), rate]
    words += [f"{100 * share:.0f} % predicted" if share < 0.995 else "predicted"] if share > 0.005 else []
    return ", ".join(words) + ("*" if any(doubted(row) for rows in step.rows.values() for row in rows) else "")
