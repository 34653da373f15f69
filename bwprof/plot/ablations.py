"""Ablations: how much faster each variant is than the first, and where it was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import unwrap
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.canvas import MOST_LINES, Drawing, Inches, count_lines, cut, draws, measure_labels, note_left_out
from bwprof.plot.inputs import require_columns
from bwprof.plot.legends import add_legend_over_lines, draw_bar, line_handle, star_handle, write_after
from bwprof.plot.styles import finish_axes, ink, style
from bwprof.results import reader
from bwprof.text.formatting import format_gain, format_short, is_missing
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_PEER = "#777777"
_TIMES = "\u00d7"
_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.34, 1.7, 9.0
_LOG_FROM = 10.0  # largest over smallest value from which on the axis is logarithmic
_NUMBER_SHARE = 0.15  # of the axis, for a bar's number and its gain
_LONGEST_NAME, _LONGEST_TEXT, _LONGEST_TITLE = 32, 90, 110  # letters


@draws
def ablation(data: pd.DataFrame | str | PathLike[str], ax: Axes | None = None) -> Drawing:
    """Draw the speed of each variant over the first one's, with marks where predictions put it.

    The number behind a bar is the speed, and the gain over the variant before.

    Parameters
    ----------
    data : pandas.DataFrame or path
        From `bwprof.ablation`, or the file that ``bwprof ablation --json`` (or ``--csv``) wrote.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot of a fitting size.

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
    frame = require_columns(frame, *reader.ABLATION_COLUMNS, what="a ladder, which bwprof.ablation measures")
    rows = [{str(name): value for name, value in row.items()} for row in frame.to_dict(orient="records")]
    if not any(map(_speed, rows)):
        raise ValueError("there are no variants to draw: none ran with a right result")
    names = measure_labels(map(_name, rows[:MOST_LINES]), 9.0)
    height = _ROW_INCHES * min(len(rows), MOST_LINES)
    inner = (_WIDTH_INCHES - names, height + 0.4)
    return Drawing((_WIDTH_INCHES, height + _MARGIN_INCHES), inner, lambda ax, room: _draw(ax, rows, room))


def build_ablation(data: pd.DataFrame | str | PathLike[str]) -> Drawing:
    """Return `ablation` as a Drawing."""
    drawing: Drawing = unwrap(ablation)(data)
    return drawing


def save_ablation(data: pd.DataFrame | str | PathLike[str], path: str | PathLike[str]) -> Path:
    """Write `ablation` into a file, in the format of its ending; return its path."""
    return build_ablation(data).write([Path(path)])[0]


def _speed(row: Mapping[str, Any]) -> float | None:
    return measured_or_none(row["speedup_vs_first"])


def _name(row: Mapping[str, Any]) -> str:
    return cut(str(row["version"]), _LONGEST_NAME)


def _text(row: Mapping[str, Any], name: str) -> str:
    return "" if is_missing(row.get(name)) else str(row[name])


def _predict(rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return the predicted speed of each variant that ran: the last speed before it times its predicted gain.

    It is None where the prediction is for another shape.
    """
    before: float | None = None
    predicted: list[float | None] = []
    for row in rows:
        gain, here, speed = row["predicted_gain"], row.get("predicted_here"), _speed(row)
        applies = speed is not None and not is_missing(here) and bool(here) and not is_missing(gain)
        predicted.append(before * gain if before is not None and applies else None)
        before = speed or before
    return predicted


def _draw(ax: Axes, every: Sequence[Mapping[str, Any]], room: Inches) -> None:
    colors = ink(ax)
    rows = every[: count_lines(room[1])]
    notes = note_left_out(len(rows), len(every), "variants")
    if not any(map(_speed, rows)):
        raise ValueError(f"there are no variants to draw: none of {notes[0]} ran with a right result")
    predicted, speeds = _predict(rows), list(map(_speed, rows))
    base, reach = _scale_axis(ax, [value for value in (*speeds, *predicted) if value])
    diamond: dict[str, Any] = {"marker": "D", "markersize": 5.5, "linewidth": 0}
    diamond |= {"color": colors.alarm, "markerfacecolor": colors.ground}
    handles = [line_handle("predicted, over the variant before", **diamond)] if any(predicted) else []
    ax.set_ylim(len(rows) - 0.5, -0.5)
    if handles := handles + _flag_handles(rows, colors.text):
        add_legend_over_lines(ax, handles, len(rows), room)
    ax.plot([1.0, 1.0], [-0.5, len(rows) - 0.5], color=colors.text, linewidth=0.8, zorder=0.9)
    for place, (row, speed, guess) in enumerate(zip(rows, speeds, predicted, strict=True)):
        end = max(speed or base, base)
        if speed is not None:
            own = style(str(row["precision"]))
            color, hatch = (_PEER, "") if row["kind"] == "peer" else (own.color, own.hatch)
            draw_bar(ax, base, place, speed - base, 0.66, color, hatch=hatch)
            if guess is not None:
                ax.plot(guess, place, **diamond)
                near = speed * reach if base else speed + reach
                end = max(end, guess) if speed <= guess <= near else end  # the number is after the mark
        _write_result(ax, row, (end, place))
    _write_axes(ax, rows, notes)


def _flag_handles(rows: Sequence[Mapping[str, Any]], color: str) -> list[Any]:
    flags = {flag for row in rows if _speed(row) for flag in _text(row, "flags").split(";") if flag}
    return [star_handle(f"{cut(', '.join(sorted(flags)), _LONGEST_TEXT)}: see flags", color)] if flags else []


def _write_axes(ax: Axes, rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> None:
    ax.set_yticks(range(len(rows)), list(map(_name, rows)), fontsize=9, parse_math=False)
    first = next(_name(row) for row in rows if _speed(row))
    gains = any(measured_or_none(row.get("measured_gain")) is not None for row in rows)
    ax.set_xlabel(f"times as fast as {first}{' (and over the variant before)' if gains else ''}", parse_math=False)
    words = [text for name in ("operation", "precision", "shape", "device") if (text := _text(rows[0], name))]
    lines = [f"The ladder of {' '.join(words[:2])}", ", ".join([*notes, *words[2:]])]
    title = "\n".join(cut(line, _LONGEST_TITLE) for line in lines if line)
    ax.set_title(title, loc="left", fontsize=11, parse_math=False)
    finish_axes(ax, grid="x")
    ax.tick_params(axis="y", length=0)


def _write_result(ax: Axes, row: Mapping[str, Any], end: tuple[float, float]) -> None:
    """Write the speed and the gain after a bar, or why the variant has none."""
    colors, speed = ink(ax), _speed(row)
    ground = {"facecolor": colors.ground, "edgecolor": "none", "pad": 1.0}  # the line at 1 would strike the text
    look: dict[str, Any] = {"gap": 6, "va": "center", "bbox": ground}
    if speed is None:
        status = str(row["status"])
        words = {"ok": "not verified", "skipped": "does not run here"}.get(status, status)
        reason = "" if is_missing(row.get("reason")) else f": {row['reason']}"
        write_after(ax, cut(words + reason, _LONGEST_TEXT), end, colors.soft, fontsize=7.5, style="italic", **look)
        return
    gain = measured_or_none(row.get("measured_gain"))
    text = f"{format_short(speed, '.2f' if speed < 10 else '.0f')}{_TIMES}{'*' if _text(row, 'flags') else ''}"
    text += "" if gain is None else f" ({format_gain(gain, times=_TIMES)})"
    write_after(ax, text, end, colors.text, fontsize=8, **look)


def _scale_axis(ax: Axes, values: Sequence[float]) -> tuple[float, float]:
    """Scale the axis; return where bars begin, and the length of a number.

    Bars begin at 0, and the length is a difference; on a logarithmic axis they begin at 1, and it is a factor.
    """
    low, high = min(values), max(values)
    if high / low < _LOG_FROM:
        ax.set_xlim(0, right := high * (1.02 + _NUMBER_SHARE))
        return 0.0, right * _NUMBER_SHARE
    around = (high / low) ** 0.08
    left, right = min(low, 1.0) / around, high * around * max(1.5, (high / low) ** 0.12)
    steps = (1, 2, 5) if right / left < 100 else (1,)
    ticks = [step * 10.0**power for power in range(-6, 9) for step in steps if left <= step * 10.0**power <= right]
    ax.set_xscale("log")
    ax.set_xlim(left, right)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    return 1.0, (right / left) ** _NUMBER_SHARE
