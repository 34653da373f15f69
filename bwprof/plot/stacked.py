"""Bars made of parts: the gain of a narrower precision, and the time of a model's steps by operation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bwprof.analysis.gains import PrecisionPair, check_precision_pair, find_precision_pairs, list_precisions
from bwprof.plot import canvas, inputs, legends
from bwprof.plot.styles import Ink, finish_axes, ink, part_style, readable, style
from bwprof.results.frame import to_rows
from bwprof.results.schema import RowDict
from bwprof.text.formatting import format_figure, format_seconds, format_short, plural
from bwprof.text.parsing import describe_unknown, measured_or_none, parse_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _AROUND_INCHES = 9.5, 1.05
_CASE_INCHES, _STEP_INCHES = 0.27, 0.42  # height of a line
_LONGEST, _NAME_POINTS = 56, 8.5
_GAIN_HATCH, _LOSS = "....", ("#8A8A8A", "xxxx")
_MOST_PARTS = 7  # of a step; the rest is one
_MODEL_COLUMNS = ("phase", "role", "count", "step_batch", "context", "weights", "kv")
_STEP_COLUMNS = ("phase", "step_batch", "context", "weights", "kv", "device")
_OTHERS = "others"  # the small operations of a step


def _drawing(names: Sequence[str], each: float, draw: Any) -> canvas.Drawing:
    """Return a picture with a line of `each` inches for each name; `draw(axes, lines, inches)` draws the first ones."""
    height = min(len(names), canvas.MOST_LINES) * each + 3 * legends.LINE_INCHES
    inner = (_WIDTH - canvas.measure_labels(names[: canvas.MOST_LINES], _NAME_POINTS), height)

    def draw_on(ax: Axes, room: canvas.Inches) -> None:
        draw(ax, min(len(names), canvas.count_lines(room[1] - 2 * legends.LINE_INCHES)), room)

    return canvas.Drawing((_WIDTH, height + _AROUND_INCHES), inner, draw_on)


def _finish(ax: Axes, names: Sequence[str], each: float) -> None:
    ax.set_yticks(range(len(names)), list(names), parse_math=False)
    finish_axes(ax, grid="x")
    ax.tick_params(axis="y", length=0, labelsize=min(_NAME_POINTS, 72 * each * 0.8))


def _doubt_handles(rows: Sequence[RowDict], colors: Ink) -> list[Any]:
    handles = []
    if any(map(inputs.is_predicted, rows)):
        handles.append(legends.ring_handle("hollow: predicted", colors.text, face=colors.ground, marker="s"))
    if any(map(inputs.is_doubtful, rows)):
        handles.append(legends.star_handle("see flags", colors.text))
    return handles


@canvas.draws
def speedup(data: Any, ax: Axes | None = None, *, from_: str | None = None, to: str | None = None) -> canvas.Drawing:
    """Draw the gain in time of a narrower precision for each case: the ratio of bytes times the ratio of bandwidths.

    The axis is logarithmic, so that parts of a bar multiply: the gain by fewer bytes, and what a higher or a lower
    bandwidth changes. Words that all cases share in their names are in the title.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results; the nine classic columns are enough.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.
    from_, to : str, optional
        The precisions; by default FP32 and FP16 where the data have them, else the first two.

    Raises
    ------
    ValueError
        For an unknown precision, the same precision twice, and no case with a time in both.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.stacked.speedup(bwprof.load_example("h200")).get_xlabel()
    'time gain of FP16 over FP32 (x)'
    """
    frame = inputs.read_frame(data)
    wide, narrow = _choose_precisions(frame, from_, to)
    every = [
        pair
        for pair in find_precision_pairs(frame, wide, narrow)
        if pair.byte_ratio > 0 and measured_or_none(pair.time_ratio)
    ]
    if not every:
        there = ", ".join(list_precisions(frame)) or "none"
        raise ValueError(f"there is nothing to draw: no case has a time in {wide} and in {narrow} (there are: {there})")
    notes = inputs.note_rows(row for row in to_rows(frame) if row["precision"] in (wide, narrow))

    def draw(ax: Axes, lines: int, room: canvas.Inches) -> None:
        left_out = canvas.note_left_out(lines, len(every), "cases")
        _draw_gains(ax, every[:lines], (wide, narrow), [*left_out, *notes], room)

    names = _name_pairs(every[: canvas.MOST_LINES])[1]
    return _drawing([*names, *[""] * (len(every) - len(names))], _CASE_INCHES, draw)


def _choose_precisions(frame: Any, from_: str | None, to: str | None) -> tuple[str, str]:
    for value, name in ((from_, "from_"), (to, "to")):
        if value is not None:
            parse_name(value, name)
    there = [name for name in list_precisions(frame) if name]

    def choose(usual: str, other: str | None) -> str:
        rest = [name for name in there if name != other]
        return usual if usual in rest or not rest else rest[0]

    from_ = choose("fp32", to) if from_ is None else from_
    if to is None:
        to = choose("fp16", from_)
        if to == from_:
            to = "fp16" if from_ != "fp16" else "fp32"
    return check_precision_pair(from_, to)


def _name_pairs(found: Sequence[PrecisionPair]) -> tuple[str, list[str]]:
    shared, names = canvas.distinguish_names([pair.label for pair in found])
    return canvas.cut(shared, _LONGEST), [canvas.cut(name, _LONGEST) for name in names]


def _draw_gains(
    ax: Axes, found: Sequence[PrecisionPair], names: tuple[str, str], notes: Sequence[str], room: canvas.Inches
) -> None:
    from matplotlib.collections import LineCollection

    colors, color = ink(ax), style(names[1]).color
    ratios = [pair.bandwidth_ratio for pair in found]
    handles = [legends.bar_handle("gained by fewer bytes", color, "", colors.ground)]
    if not all(ratio < 1 for ratio in ratios):
        handles.append(
            legends.bar_handle("gained by a higher bandwidth (efficiency)", color, _GAIN_HATCH, colors.ground)
        )
    if any(ratio < 1 for ratio in ratios):
        handles.append(legends.bar_handle("lost to a lower bandwidth (efficiency)", *_LOSS, colors.ground))
    handles += _doubt_handles([row for pair in found for row in (pair.wide, pair.narrow)], colors)
    each = legends.add_legend_over_lines(ax, handles, len(found), room)
    ax.set_xscale("log", base=2)
    for place, pair in enumerate(found):
        _draw_gain(ax, pair, place, color, min(8.0, 72 * each * 0.75))
    ends = [[(pair.time_ratio, place - 0.4), (pair.time_ratio, place + 0.4)] for place, pair in enumerate(found)]
    ax.add_collection(LineCollection(ends, colors=colors.text, linewidths=1.8), autolim=False)
    _set_factors(ax, [1.0, *(value for pair in found for value in (pair.time_ratio, pair.byte_ratio))], room[0])
    ax.axvline(1, color=colors.soft, linewidth=0.9)
    wide, narrow = (name.upper() for name in names)
    ax.set_xlabel(f"time gain of {narrow} over {wide} (x)")
    shared, labels = _name_pairs(found)
    devices = [canvas.cut(name, _LONGEST) for name in inputs.device_names([pair.wide for pair in found])[:1]]
    title = f"{narrow} against {wide}: ratio of bytes \u00d7 ratio of bandwidths"
    legends.add_title(ax, title, [*devices, shared, *notes], room)
    _finish(ax, labels, each)


def _draw_gain(ax: Axes, pair: PrecisionPair, place: int, color: str, points: float) -> None:
    """Draw the bar of a case: the gain by fewer bytes, and what the bandwidth adds or takes."""
    total, promised, rows = pair.time_ratio, pair.byte_ratio, (pair.wide, pair.narrow)
    parts = [(1.0, min(total, promised), color, "")] if min(total, promised) > 1 else []
    parts.append((promised, total, color, _GAIN_HATCH) if total >= promised else (total, promised, *_LOSS))
    for start, end, own, hatch in parts:
        legends.draw_bar(
            ax, start, place, end - start, 0.7, own, hollow=any(map(inputs.is_predicted, rows)), hatch=hatch
        )
    factors = [format_short(factor, ".2f") for factor in (total, promised, pair.bandwidth_ratio)]
    text = "{}\u00d7 = {} \u00d7 {}".format(*factors) + ("*" if any(map(inputs.is_doubtful, rows)) else "")
    end = max(total, promised, 1.0)
    legends.write_after(ax, text, (end, place), ink(ax).text, fontsize=points, annotation_clip=True)


def _set_factors(ax: Axes, values: Sequence[float], inches: float) -> None:
    """Set limits and ticks of an axis of factors, with room at the right for the numbers of the longest bar."""
    from matplotlib.ticker import NullLocator

    low, high = min(values) / 1.06, max(values) * 1.05
    share = min(0.5, 1.5 / max(inches, 1.0))
    ax.set_xlim(low, high * (high / low) ** (share / (1 - share)))
    factors = [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    if len(factors) < 4:
        factors = sorted({*factors, *(1.5 * factor for factor in factors if low <= 1.5 * factor <= high)})
    ax.set_xticks(factors[:: max(1, len(factors) // 10)])
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.4g}\u00d7")
    ax.xaxis.set_minor_locator(NullLocator())


@dataclass(slots=True)
class _Step:
    name: str
    phase: str
    tokens: int
    times: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[RowDict]] = field(default_factory=dict)
    predicted: float = 0.0
    complete: bool = True

    @property
    def total(self) -> float:
        return sum(self.times.values())

    @property
    def every_row(self) -> list[RowDict]:
        return [row for rows in self.rows.values() for row in rows]


@canvas.draws
def model(data: Any, ax: Axes | None = None, *, phase: str | None = None) -> canvas.Drawing:
    """Draw the time of a model's steps by operation: for a token, or for reading a prompt.

    Parameters
    ----------
    data : pandas.DataFrame, path, rows or ModelStep
        From `bwprof.model_step`, or the folder or the file of a run of `bwprof model`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.
    phase : str, optional
        "decode", where each sequence gets a token, or "prefill"; by default the first phase of the data.

    Raises
    ------
    ValueError
        For a frame without a column of models, and for a phase without times.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.stacked.model(bwprof.load_example("h200_llama")).get_xlabel()
    'time per token (ms)'
    """
    frame = inputs.read_frame(data)
    inputs.require_columns(frame, *_MODEL_COLUMNS, what="a model's frame")
    rows = to_rows(frame)
    steps = _choose_phase(_read_steps(rows), phase)
    drawn = [step for step in steps if step.complete and step.total > 0]
    names = list(dict.fromkeys(str(row["model"]) for row in rows if row.get("model")))
    notes = [canvas.cut(name, _LONGEST) for name in (*names[:1], *inputs.device_names(rows)[:1])]
    missing = sum(not step.complete for step in steps)
    notes += [f"not drawn: {plural(missing, 'step')} without all times"] if missing else []

    def draw(ax: Axes, lines: int, room: canvas.Inches) -> None:
        _draw_steps(ax, drawn[:lines], [*notes, *canvas.note_left_out(lines, len(drawn), "steps")], room)

    return _drawing([step.name for step in drawn], _STEP_INCHES, draw)


def _read_steps(rows: Sequence[RowDict]) -> list[_Step]:
    """Return the steps in the order of their first rows; rows that no step launches add nothing."""
    several = {name for name in _STEP_COLUMNS if len({row[name] for row in rows}) > 1}
    steps: dict[tuple[object, ...], _Step] = {}
    for row in rows:
        count = measured_or_none(row["count"])
        if not count or count < 0:
            continue
        key = tuple(row[name] for name in _STEP_COLUMNS)
        if key not in steps:
            batch, context = (int(measured_or_none(row[name]) or 1) for name in ("step_batch", "context"))
            phase = str(row["phase"])
            steps[key] = _Step(_name_step(row, several), phase, batch if phase == "decode" else batch * context)
        step, time = steps[key], measured_or_none(row["time_ms"])
        if time is None or time < 0:
            step.complete = False
            continue
        role = str(row["role"])
        step.times[role] = step.times.get(role, 0.0) + count * time
        step.rows.setdefault(role, []).append(row)
        step.predicted += count * time if inputs.is_predicted(row) else 0.0
    return list(steps.values())


def _choose_phase(steps: Sequence[_Step], phase: str | None) -> list[_Step]:
    """Return the steps of a phase, by default of the first one that has times."""
    phases = list(dict.fromkeys(step.phase for step in steps if step.complete and step.total > 0))
    if phase is not None and phase not in phases:
        raise ValueError(describe_unknown("phase", phase, phases))
    if not phases:
        raise ValueError("there is nothing to draw: no step of the model has a time")
    return [step for step in steps if step.phase == (phase or phases[0])]


def _name_step(row: RowDict, several: set[str]) -> str:
    words = [canvas.cut(str(row["device"]), 16)] if "device" in several else []
    words += [canvas.cut(str(row["weights"]), 16).upper()]
    words += [f"cache {canvas.cut(str(row['kv']), 16).upper()}"] if "kv" in several else []
    words += [f"batch {row['step_batch']}"]
    words += [f"context {row['context']}"] if "context" in several else []
    return canvas.cut(", ".join(words), _LONGEST)


def _draw_steps(ax: Axes, steps: Sequence[_Step], notes: Sequence[str], room: canvas.Inches) -> None:
    colors = ink(ax)
    looks = {role: part_style(place) for place, role in enumerate(_largest_roles(steps))}
    handles = [legends.bar_handle(canvas.cut(role, 24), *look, colors.ground) for role, look in looks.items()]
    handles += _doubt_handles([row for step in steps for row in step.every_row], colors)
    each = legends.add_legend_over_lines(ax, handles, len(steps), room)
    points = min(8.0, 72 * each * 0.6)
    ends = [_end_text(step) for step in steps]
    text_share = (max(canvas.measure_width(text, points) for text in ends) + 0.15) / room[0]
    reach = max(step.total for step in steps) / max(0.3, 1 - text_share)
    for place, (step, text) in enumerate(zip(steps, ends, strict=True)):
        left = 0.0
        for role, (time, rows) in _parts(step, looks).items():
            color, hatch = looks[role]
            hollow = any(map(inputs.is_predicted, rows))
            face = legends.draw_bar(ax, left, place, time, 0.72, color, hollow=hollow, hatch=hatch, linewidth=0.6)
            number = format_figure(time, whole_from=100)
            if time / reach * room[0] > canvas.measure_width(number, points * 0.85) * 1.5:
                tag = {"facecolor": face, "edgecolor": "none", "pad": 0.6}
                look: dict[str, Any] = {"fontsize": points * 0.85, "color": readable(face), "bbox": tag}
                ax.text(left + time / 2, place, number, ha="center", va="center_baseline", **look)
            left += time
        legends.write_after(ax, text, (left, place), colors.text, fontsize=points)
    ax.set_xlim(0, reach)
    phase = steps[0].phase
    token = phase == "decode"
    ax.set_xlabel("time per token (ms)" if token else f"time of a {canvas.cut(phase, 24)} step (ms)", parse_math=False)
    title = "Time per token by operation: a step gives each sequence one" if token else "Time of a step by operation"
    legends.add_title(ax, title, notes, room)
    _finish(ax, [step.name for step in steps], each)


def _largest_roles(steps: Sequence[_Step]) -> list[str]:
    """Return the operations in their order; of too many the largest, and one name for the others."""
    shares: dict[str, float] = {}
    for step in steps:
        for role, time in step.times.items():
            shares[role] = shares.get(role, 0.0) + time / step.total
    if len(shares) <= _MOST_PARTS:
        return list(shares)
    large = sorted(shares, key=lambda role: -shares[role])[: _MOST_PARTS - 1]
    return [*(role for role in shares if role in large), _OTHERS]


def _parts(step: _Step, looks: Mapping[str, object]) -> dict[str, tuple[float, list[RowDict]]]:
    parts = {role: (step.times[role], step.rows[role]) for role in looks if role in step.times}
    small = [role for role in step.times if role not in parts]
    if small:
        rows = [row for role in small for row in step.rows[role]]
        parts[_OTHERS] = (sum(step.times[role] for role in small), rows)
    return parts


def _end_text(step: _Step) -> str:
    """Return the time of a step, its tokens a second, and the share of predictions."""
    share = step.predicted / step.total
    words = [
        format_seconds(step.total / 1e3),
        f"{format_figure(1e3 * step.tokens / step.total, whole_from=100)} tokens/s",
    ]
    if share > 0.005:
        words.append(f"{100 * share:.0f} % predicted" if share < 0.995 else "predicted")
    return ", ".join(words) + ("*" if any(map(inputs.is_doubtful, step.every_row)) else "")
