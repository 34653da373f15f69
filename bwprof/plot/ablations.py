"""The picture of a ladder: how much faster each rung is than the first, and where it was predicted to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.canvas import MOST_LINES, Drawing, Inches, count_lines, cut, measure_labels, note_left_out, save_one
from bwprof.plot.data import need_columns
from bwprof.plot.legends import add_legend_over_lines, line_handle, write_after
from bwprof.plot.styles import Ink, finish_axes, ink, style
from bwprof.results import reader
from bwprof.text.formatting import format_gain, format_short, is_missing
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_PEER = "#777777"

_TIMES = "\u00d7"

_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.34, 1.7, 9.0

_LOGARITHMIC = 10.0  # a span from which on the axis is one of factors

_NEAR = 0.15  # of the axis: as long as a bar's number and its gain

_DENSE = 100.0  # a span below which each factor of ten has three marks on the axis

_LONGEST_NAME, _LONGEST_REASON, _LONGEST_TITLE = 32, 90, 110


def ablation(data: pd.DataFrame | str | PathLike[str], ax: Axes | None = None) -> Axes:
    """How many times as fast as the first rung each one is, with marks where predictions put it; behind that its gain
    over the rung before, 0 % where it brings nothing.

    Parameters
    ----------
    data : pandas.DataFrame or path
        From `bwprof.ablation`, or the file that ``bwprof ablation --json`` (or ``--csv``) wrote.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's, of a fitting size, when left out: a notebook shows it.

    Raises
    ------
    ValueError
        When it is no ladder, or no rung of it ran.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.ablation("gemm", M=4, N=64, K=64, device="cpu", cache="hot", max_seconds=0.01, roofs=False)
    >>> bwprof.plot.ablation(found).get_xlabel()
    'times as fast as naive (and over the rung before)'
    """
    return build_ablation(data).on(ax)


def save_ablation(data: pd.DataFrame | str | PathLike[str], path: str | PathLike[str]) -> Path:
    """Write `ablation` into a file, whose ending says the format; returns its path."""
    return save_one(path, lambda targets: build_ablation(data).write(targets))


def build_ablation(data: pd.DataFrame | str | PathLike[str]) -> Drawing:
    """The same as a picture to be drawn or written."""
    rows = _rows(data)
    height = _ROW_INCHES * min(len(rows), MOST_LINES)
    names = measure_labels((cut(str(row["version"]), _LONGEST_NAME) for row in rows[:MOST_LINES]), 9.0)
    inner = (_WIDTH_INCHES - names, height + 0.4)
    return Drawing((_WIDTH_INCHES, height + _MARGIN_INCHES), inner, lambda ax, room: _draw(ax, rows, room))


def _rows(given: pd.DataFrame | str | PathLike[str]) -> list[dict[str, Any]]:
    data = reader.read_ablation(given) if isinstance(given, (str, PathLike)) else given
    data = need_columns(data, *reader.ABLATION_COLUMNS, what="a ladder, which bwprof.ablation measures")
    rows = [{str(name): value for name, value in row.items()} for row in data.to_dict(orient="records")]
    if not any(_speed(row) for row in rows):
        raise ValueError("there are no rungs to draw: none ran with a right result")
    return rows


def _speed(row: Mapping[str, Any]) -> float | None:
    value = row["speedup_vs_first"]
    return None if is_missing(value) else measured_or_none(value)


def _predictions(rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Where each rung that ran was predicted: the speed of the last one before it, and its predicted gain. Where a
    prediction is for another shape there is none.
    """
    before: float | None = None
    found: list[float | None] = []
    for row in rows:
        gain = row["predicted_gain"]
        here = not is_missing(row.get("predicted_here")) and bool(row.get("predicted_here"))
        speed = _speed(row)
        found.append(
            before * gain if before is not None and speed is not None and here and not is_missing(gain) else None
        )
        before = speed or before
    return found


def _draw(ax: Axes, every: Sequence[Mapping[str, Any]], room: Inches) -> None:
    from bwprof.plot.canvas import bar

    colors = ink(ax)
    rows = every[: count_lines(room[1])]
    notes = note_left_out(len(rows), len(every), "rungs")
    if not any(_speed(row) for row in rows):
        raise ValueError(f"there are no rungs to draw: none of {notes[0]} ran with a right result")
    predicted = _predictions(rows)
    speeds = [_speed(row) for row in rows]
    base, near = _axis(ax, [value for value in (*speeds, *predicted) if value])
    guessed = any(guess is not None for guess in predicted)
    handles = [line_handle("predicted, over the rung before", **_mark_look(colors))] if guessed else []
    flags = {name for row in rows if _speed(row) for name in _flags(row).split(";") if name}
    if flags:
        label = cut(", ".join(sorted(flags)), _LONGEST_REASON)
        handles.append(line_handle(f"{label}: see flags", linewidth=0, marker="$*$", color=colors.text))
    if handles:
        add_legend_over_lines(ax, handles, len(rows), room)
    else:
        ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.plot([1.0, 1.0], [-0.5, len(rows) - 0.5], color=colors.text, linewidth=0.8, zorder=0.9)
    ground = {"facecolor": colors.ground, "edgecolor": "none", "pad": 1.0}  # the line of one would strike words
    look: dict[str, Any] = {"apart": 6, "va": "center", "bbox": ground}
    for place, (row, speed, guess) in enumerate(zip(rows, speeds, predicted, strict=True)):
        if speed is None:
            write_after(ax, _why_not(row), (base, place), colors.soft, fontsize=7.5, style="italic", **look)
            continue
        own = style(str(row["precision"]))
        color, hatch = (_PEER, "") if row["kind"] == "peer" else (own.color, own.hatch)
        bar(ax, base, place, speed - base, 0.66, facecolor=color, hatch=hatch, edgecolor=colors.ground, linewidth=0)
        end = max(speed, base)
        if guess is not None:
            ax.plot(guess, place, **_mark_look(colors))
            end = max(end, guess) if speed <= guess <= near(speed) else end
        words = f"{format_short(speed, '.2f' if speed < 10 else '.0f')}{_TIMES}{'*' if _flags(row) else ''}"
        gain = measured_or_none(row.get("measured_gain"))
        words += "" if gain is None else f" ({format_gain(gain, times=_TIMES)})"
        write_after(ax, words, (end, place), colors.text, fontsize=8, **look)
    names = [cut(str(row["version"]), _LONGEST_NAME) for row in rows]
    ax.set_yticks(range(len(rows)), names, fontsize=9, parse_math=False)
    first = next(name for name, speed in zip(names, speeds, strict=True) if speed)
    gains = any(measured_or_none(row.get("measured_gain")) is not None for row in rows)
    ax.set_xlabel(f"times as fast as {first}{' (and over the rung before)' if gains else ''}", parse_math=False)
    ax.set_title(_title(rows[0], notes), loc="left", fontsize=11, parse_math=False)
    finish_axes(ax, grid="x")
    ax.tick_params(axis="y", length=0)


def _axis(ax: Axes, values: Sequence[float]) -> tuple[float, Callable[[float], float]]:
    """Its range; where bars begin, and how far from its end a mark would meet a bar's number."""
    low, high = min(values), max(values)
    if high / low < _LOGARITHMIC:
        ax.set_xlim(0, right := high * (1.02 + _NEAR))
        return 0.0, lambda speed: speed + right * _NEAR
    around = (high / low) ** 0.08
    left, right = min(low, 1.0) / around, high * around * max(1.5, (high / low) ** 0.12)
    steps = (1, 2, 5) if right / left < _DENSE else (1,)
    factors = [step * 10.0**power for power in range(-6, 9) for step in steps]
    shown = [factor for factor in factors if left <= factor <= right]
    ax.set_xscale("log")
    ax.set_xlim(left, right)
    ax.set_xticks(shown, [f"{factor:g}" for factor in shown])
    ax.minorticks_off()
    return 1.0, lambda speed: float(speed * (right / left) ** _NEAR)  # a bar of factors begins where nothing changed


def _why_not(row: Mapping[str, Any]) -> str:
    said = {"ok": "not verified", "skipped": "does not run here"}.get(row["status"], str(row["status"]))
    return cut(said if is_missing(row.get("reason")) else f"{said}: {row['reason']}", _LONGEST_REASON)


def _title(row: Mapping[str, Any], notes: Sequence[str]) -> str:
    told = [row.get(name) for name in ("operation", "precision", "shape", "device")]
    words = [str(value) for value in told if not is_missing(value)]
    head, rest = " ".join(words[:2]), ", ".join([*notes, *words[2:]])
    return cut(f"The ladder of {head}", _LONGEST_TITLE) + (f"\n{cut(rest, _LONGEST_TITLE)}" if rest else "")


def _flags(row: Mapping[str, Any]) -> str:
    return "" if is_missing(row.get("flags")) else str(row["flags"])


def _mark_look(colors: Ink) -> dict[str, Any]:
    look = {"marker": "D", "markersize": 5.5, "color": colors.alarm, "markerfacecolor": colors.ground}
    return {**look, "linewidth": 0}
