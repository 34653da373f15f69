"""The picture of a ladder: how much faster each rung is than the first, and where it was predicted to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.looks import style
from bwprof.plot.paper import check_ending, cut, write_figure
from bwprof.results.schema import is_missing
from bwprof.text import measurable, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_NEEDED = ("version", "kind", "status", "speedup_vs_first", "predicted_gain", "precision")
_INK, _PALE, _PREDICTED, _PEER = "#333333", "#888888", "#B00020", "#777777"
_ROW_INCHES, _MARGIN_INCHES, _WIDTH_INCHES = 0.34, 1.9, 9.0
_LOGARITHMIC = 10.0  # a span from which on the axis is one of factors
_NEAR = 0.08  # of the axis
_DENSE = 100.0  # a span below which each factor of ten has three marks on the axis
_LONGEST_NAME, _LONGEST_REASON, _LONGEST_TITLE = 32, 70, 110


def ablation(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How many times as fast as the first rung each one is, with marks where predictions put it.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.ablation`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's, of a fitting size, when left out: a notebook shows it.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        When it is no ladder, or no rung of it ran.

    Examples
    --------
    >>> import bwprof
    >>> found = bwprof.ablation("gemm", M=4, N=64, K=64, device="cpu", cache="hot", max_seconds=0.01, roofs=False)
    >>> bwprof.plot.ablation(found).get_xlabel()
    'times as fast as naive'
    """
    rows = _rows(data)
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=_size(rows), layout="constrained").add_subplot()
    _draw(ax, rows)
    return ax


def save_ablation(data: pd.DataFrame, path: str | PathLike[str], *, dpi: int = 150) -> Path:
    """Write `ablation` in the format of the file's ending; no window and no global state is touched."""
    target = Path(path)
    check_ending(target)
    rows = _rows(data)
    write_figure(_size(rows), lambda ax: _draw(ax, rows), [target], dpi=dpi)
    return target


def _rows(data: pd.DataFrame) -> list[dict[str, Any]]:
    missing = [name for name in _NEEDED if name not in getattr(data, "columns", ())]
    if missing:
        raise ValueError(f"this is no ladder, which bwprof.ablation gives: it has no {', '.join(missing)}")
    rows = [{str(name): value for name, value in row.items()} for row in data.to_dict(orient="records")]
    if not any(_speed(row) for row in rows):
        raise ValueError("there are no rungs to draw: none ran with a right result")
    return rows


def _speed(row: Mapping[str, Any]) -> float | None:
    value = row["speedup_vs_first"]
    return None if is_missing(value) else measurable(value)


def _size(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    return _WIDTH_INCHES, _MARGIN_INCHES + _ROW_INCHES * len(rows)


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


def _draw(ax: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    predicted = _predictions(rows)
    speeds = [_speed(row) for row in rows]
    values = [value for value in (*speeds, *predicted) if value]
    low, high = min(values), max(values)
    logarithmic = high / low >= _LOGARITHMIC
    if logarithmic:
        ax.set_xscale("log")
        room = (high / low) ** 0.08
        left, right, base = (
            min(low, 1.0) / room,
            high * room * 1.5,
            1.0,
        )  # a bar of factors begins where nothing changed
        steps = (1, 2, 5) if right / left < _DENSE else (1,)
        factors = [step * 10.0**power for power in range(-6, 9) for step in steps]
        ax.set_xticks(shown := [one for one in factors if left <= one <= right], [f"{one:g}" for one in shown])
        ax.minorticks_off()
    else:
        left, right, base = 0.0, high * 1.14, 0.0
    ax.set_xlim(left, right)

    def near(speed: float) -> float:
        """So far from a bar's end a mark meets its number."""
        return float(speed * (right / left) ** _NEAR if logarithmic else speed + right * _NEAR)

    ax.axvline(1.0, color=_INK, linewidth=0.8)
    for place, (row, speed, guess) in enumerate(zip(rows, speeds, predicted, strict=True)):
        beside = None if guess is None or speed is None or not speed <= guess <= near(speed) else guess
        _rung(ax, place, row, speed, base, beside)
        if guess is not None:
            ax.plot(guess, place, marker="D", markersize=5.5, color=_PREDICTED, markerfacecolor="white", linewidth=0)
    names = [cut(str(row["version"]), _LONGEST_NAME) for row in rows]
    ax.set_yticks(range(len(rows)), names, fontsize=9, parse_math=False)
    ax.set_ylim(len(rows) - 0.45, -0.55)
    first = next(name for name, speed in zip(names, speeds, strict=True) if speed)
    ax.set_xlabel(f"times as fast as {first}", parse_math=False)
    ax.set_title(_title(rows[0]), loc="left", fontsize=11, parse_math=False)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    if any(guess is not None for guess in predicted):
        _legend(ax)


def _rung(ax: Axes, place: int, row: Mapping[str, Any], speed: float | None, base: float, beside: float | None) -> None:
    look = style(str(row["precision"]))
    if speed is None:
        reason = row.get("reason")
        said = {"ok": "not verified", "skipped": "does not run here"}.get(row["status"], str(row["status"]))
        words = said if is_missing(reason) else f"{said}: {reason}"
        ax.annotate(
            cut(words, _LONGEST_REASON),
            (base, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=_PALE,
            style="italic",
            parse_math=False,
        )
        return
    peer = row["kind"] == "peer"
    color, hatch = (_PEER, "") if peer else (look.color, look.hatch)
    ax.barh(place, speed - base, left=base, height=0.66, color=color, hatch=hatch, edgecolor="white", linewidth=0)
    flags = row.get("flags")
    doubted = "" if is_missing(flags) or not flags else "*"
    words = f"{short(speed, '.2f' if speed < 10 else '.0f')}\u00d7{doubted}"
    ax.annotate(
        words,
        (max(speed, base, beside or 0.0), place),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=_INK,
    )


def _title(row: Mapping[str, Any]) -> str:
    told = [row.get(name) for name in ("operation", "precision", "shape", "device")]
    words = [str(value) for value in told if not is_missing(value)]
    head, rest = " ".join(words[:2]), ", ".join(words[2:])
    return cut(f"The ladder of {head}", _LONGEST_TITLE) + (f"\n{cut(rest, _LONGEST_TITLE)}" if rest else "")


def _legend(ax: Axes) -> None:
    from matplotlib.lines import Line2D

    mark = Line2D(
        [],
        [],
        linewidth=0,
        marker="D",
        markersize=5.5,
        color=_PREDICTED,
        markerfacecolor="white",
        label="predicted, over the rung before",
    )
    ax.legend(
        handles=[mark], loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, fontsize=8, frameon=False
    )
