"""Gains: how much faster a narrower precision is than a wider one, and each variant of an operation than the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import unwrap
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.analysis.gains import PrecisionPair, choose_precisions, find_precision_pairs, list_precisions
from bwprof.plot import canvas, inputs, styles
from bwprof.plot.canvas import cut
from bwprof.results import reader
from bwprof.results.frame import to_rows
from bwprof.text.formatting import format_gain, format_short, is_missing
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_LONGEST, _LONGEST_VARIANT, _LONGEST_TEXT, _LONGEST_TITLE = 56, 32, 90, 110  # letters
_GAIN_HATCH, _LOSS = "....", ("#8A8A8A", "xxxx")
_PEER = "#777777"
_TIMES = "\u00d7"
_LOG_FROM = 10.0  # largest over smallest value from which on the axis is logarithmic


@canvas.draws
def speedup(data: Any, ax: Axes | None = None, *, from_: str | None = None, to: str | None = None) -> canvas.Drawing:
    """Draw the gain in time of a narrower precision for each case: the ratio of bytes times the ratio of bandwidths.

    The axis is logarithmic, so that parts of a bar multiply: the gain by fewer bytes, and what a higher or a lower
    bandwidth changes. Words that all cases share in their names are in the title.

    Parameters
    ----------
    data : pandas.DataFrame, path or rows
        From `bwprof.sweep` or `bwprof.load`, a run's folder, or a file of results; the nine classic columns are enough.
    from_, to : str, optional
        The precisions; the default is that of `bwprof.analysis.improvement_table`.

    Raises
    ------
    ValueError
        For an unknown precision, the same precision twice, and no case with a time in both.

    Examples
    --------
    >>> import bwprof
    >>> bwprof.plot.speedup(bwprof.load_example("h200")).get_xlabel()
    'time gain of FP16 over FP32 (x)'
    """
    frame = inputs.read_frame(data)
    chosen = choose_precisions(frame, from_, to)
    found = find_precision_pairs(frame, chosen)
    every = [pair for pair in found if pair.byte_ratio > 0 and measured_or_none(pair.time_ratio)]
    if not every:
        there = ", ".join(list_precisions(frame)) or "none"
        both = " and in ".join(chosen or ["two widths"])
        raise ValueError(f"there is nothing to draw: no case has a time in {both} (there are: {there})")
    shared, names = canvas.distinguish_names([pair.label for pair in every])
    names = [cut(name, _LONGEST) for name in names]
    notes = [*inputs.device_names(pair.wide for pair in every)[:1], shared]
    notes = [cut(note, _LONGEST) for note in notes]
    failed = inputs.note_rows(row for row in to_rows(frame) if row["precision"] in chosen or not chosen)
    what = " over ".join(name.upper() for name in reversed(chosen)) or "each step to fewer bits"

    def draw(ax: Axes, count: int, room: canvas.Inches) -> None:
        each = _draw_gains(ax, every[:count], room)
        ax.set_xlabel(f"time gain of {what} (x)")
        title = f"Gain of {what}: ratio of bytes \u00d7 ratio of bandwidths"
        left_out = canvas.note_left_out(count, len(every), "cases")
        styles.add_title(ax, title, [*notes, *left_out, *failed], room)
        styles.finish_lines(ax, names[:count], each)

    return canvas.draw_lines(names, 0.27, draw)


def _draw_gains(ax: Axes, found: Sequence[PrecisionPair], room: canvas.Inches) -> float:
    """Draw each case as the gain by fewer bytes, and what the bandwidth adds or takes; return a line's inches."""
    colors = styles.ink(ax)
    losses = [pair.bandwidth_ratio < 1 for pair in found]
    tints = [styles.style(str(pair.narrow["precision"])).color for pair in found]
    color = tints[0] if len(set(tints)) == 1 else colors.soft
    handles = [styles.bar_handle("gained by fewer bytes", color, "", colors.ground)]
    if not all(losses):
        label = "gained by a higher bandwidth (efficiency)"
        handles.append(styles.bar_handle(label, color, _GAIN_HATCH, colors.ground))
    if any(losses):
        handles.append(styles.bar_handle("lost to a lower bandwidth (efficiency)", *_LOSS, colors.ground))
    handles += styles.explain_bars([row for pair in found for row in (pair.wide, pair.narrow)], colors)
    each = styles.add_legend_over_lines(ax, handles, len(found), room)
    ax.set_xscale("log", base=2)
    for place, (pair, color) in enumerate(zip(found, tints, strict=True)):
        total, by_bytes, rows = pair.time_ratio, pair.byte_ratio, (pair.wide, pair.narrow)
        hollow = any(map(inputs.is_predicted, rows))
        parts = [(1.0, min(total, by_bytes), color, "")] if min(total, by_bytes) > 1 else []
        parts.append((by_bytes, total, color, _GAIN_HATCH) if total >= by_bytes else (total, by_bytes, *_LOSS))
        for start, end, own, hatch in parts:
            styles.draw_bar(ax, start, place, end - start, 0.7, own, hollow=hollow, hatch=hatch)
        factors = [format_short(factor, ".2f") for factor in (total, by_bytes, pair.bandwidth_ratio)]
        text = "{}\u00d7 = {} \u00d7 {}".format(*factors) + ("*" if any(map(inputs.is_doubtful, rows)) else "")
        tip, points = (max(total, by_bytes, 1.0), place), min(8.0, 72 * each * 0.75)
        styles.write_after(ax, text, tip, colors.text, fontsize=points, annotation_clip=True)
    ends = [[(pair.time_ratio, place - 0.4), (pair.time_ratio, place + 0.4)] for place, pair in enumerate(found)]
    styles.draw_ways(ax, ends, colors.text, 1.8)
    _set_factors(ax, [1.0, *(value for pair in found for value in (pair.time_ratio, pair.byte_ratio))], room[0])
    ax.axvline(1, color=colors.soft, linewidth=0.9)
    return each


def _set_factors(ax: Axes, values: Sequence[float], inches: float) -> None:
    """Set limits and ticks of an axis of factors, with room at the right for the numbers of the longest bar."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = min(values) / 1.06, max(values) * 1.05
    share = min(0.5, 1.5 / max(inches, 1.0))
    ax.set_xlim(low, high * (high / low) ** (share / (1 - share)))
    between = (1.0, 1.5) if high < 8 * low else (1.0,)
    ax.xaxis.set_major_locator(LogLocator(base=2, subs=between, numticks=11))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.4g}\u00d7")
    ax.xaxis.set_minor_locator(NullLocator())


@canvas.draws
def ablation(data: pd.DataFrame | str | PathLike[str], ax: Axes | None = None) -> canvas.Drawing:
    """Draw the speed of each variant over the first one's, with marks where predictions put it.

    The number behind a bar is the speed, and the gain over the variant before.

    Parameters
    ----------
    data : pandas.DataFrame or path
        From `bwprof.ablation`, or the file that ``bwprof ablation --json`` (or ``--csv``) wrote.

    Raises
    ------
    ValueError
        For a frame of another kind, and where no variant ran.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.ablation("gemm", M=4, N=64, K=64, device="cpu", cache="hot", max_seconds=0.01, roofs=False)
    >>> bwprof.plot.ablation(found).get_xlabel()
    'times as fast as naive (and over the variant before)'
    """
    frame = reader.read_ablation(data) if isinstance(data, (str, PathLike)) else data
    frame = inputs.require_columns(frame, *reader.ABLATION_COLUMNS, what="a ladder, which bwprof.ablation measures")
    rows = [
        {str(name): None if is_missing(value) else value for name, value in row.items()}
        for row in frame.to_dict(orient="records")
    ]
    if not any(map(_speed, rows)):
        raise ValueError("there are no variants to draw: none ran with a right result")
    names = [cut(str(row["version"]), _LONGEST_VARIANT) for row in rows]

    def draw(ax: Axes, count: int, room: canvas.Inches) -> None:
        notes = canvas.note_left_out(count, len(rows), "variants")
        if not any(map(_speed, rows[:count])):
            raise ValueError(f"there are no variants to draw: none of {notes[0]} ran with a right result")
        each = _draw_speeds(ax, rows[:count], room)
        first = next(name for name, row in zip(names, rows, strict=True) if _speed(row))
        gains = any(measured_or_none(row.get("measured_gain")) is not None for row in rows[:count])
        ax.set_xlabel(f"times as fast as {first}{' (and over the variant before)' if gains else ''}", parse_math=False)
        words = [str(rows[0][name]) for name in ("operation", "precision", "shape", "device") if rows[0].get(name)]
        title = cut(f"The ladder of {' '.join(words[:2])}", _LONGEST_TITLE)
        styles.add_title(ax, title, [cut(", ".join([*notes, *words[2:]]), _LONGEST_TITLE)], room)
        styles.finish_lines(ax, names[:count], each, points=9.0)

    return canvas.draw_lines(names, 0.34, draw, width=9.0, points=9.0)


def build_ablation(data: pd.DataFrame | str | PathLike[str]) -> canvas.Drawing:
    """Return `ablation` as a Drawing."""
    drawing: canvas.Drawing = unwrap(ablation)(data)
    return drawing


def save_ablation(data: pd.DataFrame | str | PathLike[str], path: str | PathLike[str]) -> Path:
    """Write `ablation` into a file, in the format of its ending; return its path."""
    return build_ablation(data).write([Path(path)])[0]


def _speed(row: Mapping[str, Any]) -> float | None:
    return measured_or_none(row["speedup_vs_first"])


def _predict(rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return the predicted speed of each variant that ran: the last speed before it times its predicted gain.

    It is None where the prediction is for another shape.
    """
    before, predicted = 0.0, []
    for row in rows:
        gain = row["predicted_gain"] if _speed(row) is not None and row.get("predicted_here") else None
        predicted.append(before * gain if before and gain is not None else None)
        before = _speed(row) or before
    return predicted


def _draw_speeds(ax: Axes, rows: Sequence[Mapping[str, Any]], room: canvas.Inches) -> float:
    """Draw a bar for each variant, and a diamond where it was predicted; return the height of a line, inches."""
    colors, predicted, speeds = styles.ink(ax), _predict(rows), list(map(_speed, rows))
    base = _scale_axis(ax, [value for value in (*speeds, *predicted) if value], room[0])
    diamond: dict[str, Any] = {"marker": "D", "markersize": 5.5, "linewidth": 0}
    diamond |= {"color": colors.alarm, "markerfacecolor": colors.ground}
    handles = [styles.line_handle("predicted, over the variant before", **diamond)] if any(predicted) else []
    handles += styles.explain_bars((row for row in rows if _speed(row)), colors)
    each = styles.add_legend_over_lines(ax, handles, len(rows), room)
    ax.plot([1.0, 1.0], [-0.5, len(rows) - 0.5], color=colors.text, linewidth=0.8, zorder=0.9)
    for place, (row, speed, guess) in enumerate(zip(rows, speeds, predicted, strict=True)):
        end = max(speed or base, base, guess or base)  # the number is after the mark
        if speed is not None:
            own = styles.style(str(row["precision"]))
            color, hatch = (_PEER, "") if row["kind"] == "peer" else (own.color, own.hatch)
            styles.draw_bar(ax, base, place, speed - base, 0.66, color, hatch=hatch)
            if guess is not None:
                ax.plot(guess, place, **diamond)
        _write_result(ax, row, (end, place))
    return each


def _write_result(ax: Axes, row: Mapping[str, Any], end: tuple[float, float]) -> None:
    """Write the speed and the gain after a bar, or why the variant has none."""
    colors, speed = styles.ink(ax), _speed(row)
    ground = {"facecolor": colors.ground, "edgecolor": "none", "pad": 1.0}  # the line at 1 would strike the text
    look: dict[str, Any] = {"gap": 6, "va": "center", "bbox": ground}
    if speed is None:
        status = str(row["status"])
        words = {"ok": "not verified", "skipped": "does not run here"}.get(status, status)
        reason = f": {row['reason']}" if row.get("reason") is not None else ""
        text = cut(words + reason, _LONGEST_TEXT)
        styles.write_after(ax, text, end, colors.soft, fontsize=7.5, style="italic", **look)
        return
    gain = measured_or_none(row.get("measured_gain"))
    text = f"{format_short(speed, '.2f' if speed < 10 else '.0f')}{_TIMES}{'*' if row.get('flags') else ''}"
    text += "" if gain is None else f" ({format_gain(gain, times=_TIMES)})"
    styles.write_after(ax, text, end, colors.text, fontsize=8, **look)


def _scale_axis(ax: Axes, values: Sequence[float], inches: float) -> float:
    """Scale the axis; return where bars begin: at 0, on a logarithmic axis at 1."""
    low, high = min(values), max(values)
    if high / low < _LOG_FROM:
        ax.set_xlim(0, high * 1.17)  # with room for a number and its gain
        return 0.0
    ax.set_xscale("log", base=2)
    _set_factors(ax, [1.0, *values], inches)
    return 1.0
