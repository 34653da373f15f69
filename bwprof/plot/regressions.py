"""Regressions: the ratios of a comparison, and the trends of times over runs."""

from __future__ import annotations

import math
import numbers
import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot import canvas, styles
from bwprof.plot.canvas import Drawing, Inches, cut, draws
from bwprof.plot.inputs import require_columns
from bwprof.results import schema
from bwprof.text.formatting import is_missing, plural
from bwprof.text.parsing import measured_or_nan

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colors of Okabe and Ito, and a marker each; without a color, that of minor text.
_VERDICTS = {
    "slower": ("#D55E00", "v"),
    "same": ("", "o"),
    "faster": ("#0072B2", "^"),
    "undecided": ("#E69F00", "D"),
    "disturbed": ("#CC79A7", "x"),
}
_LOG_FROM = 1.5  # ratio from which on the axis is logarithmic
_RATIO_COLUMNS = ("case", "precision", "verdict", "ratio", "ratio_lo", "ratio_hi", "threshold_pct")


@draws
def ratios(data: pd.DataFrame, ax: Axes | None = None) -> Drawing:
    """Draw each case's ratio, new / base, with its 95 % interval, sorted, over the band of noise.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.compare`; of more than 150 cases the largest changes are drawn.

    Raises
    ------
    ValueError
        For a frame of another kind, and where no case was compared.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.load_example("h200")
    >>> bwprof.plot.ratios(bwprof.compare(frame, frame)).get_xlabel()
    'change of the time (%)'
    """
    return build_ratios(data)


def save_ratios(data: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write `ratios` into a file, in the format of its ending; return its path."""
    return build_ratios(data).write([Path(path)])[0]


def build_ratios(data: pd.DataFrame, *, most: int = canvas.MOST_LINES) -> Drawing:
    """Return `ratios` as a Drawing, of at most `most` of the largest changes."""
    data = require_columns(data, *_RATIO_COLUMNS, what="a comparison, which bwprof.compare makes")
    every = _read_ratios(data)
    lines = every.loc[every["ratio"].abs().nlargest(most).index].sort_values("ratio", ascending=False, kind="stable")
    apart = len(data) - len(every)
    notes = [f"the {len(lines)} largest changes of {len(every)}"] if len(lines) < len(every) else []
    if notes and most == canvas.MOST_LINES:
        canvas.log.warning("the picture shows %s", notes[0])
    notes += [f"not drawn: {plural(apart, 'case')} that could not be compared"] if apart else []
    sides = [cut(str(data.attrs[name]), 48) for name in ("new", "base") if data.attrs.get(name)]
    title = " against ".join(sides) if len(sides) == 2 else ""
    names = lines["name"].tolist()

    def draw(ax: Axes, _: int, room: Inches) -> None:
        each = _draw_ratios(ax, lines, str(data.attrs.get("metric", "time_ms")), room)
        styles.add_title(ax, title, notes, room, points=9.0)
        styles.finish_lines(ax, names, each, points=8.0)

    return canvas.draw_lines(names, 0.21, draw, width=9.0, points=8.0)


def _read_ratios(data: pd.DataFrame) -> pd.DataFrame:
    """Return the cases that were compared: name, verdict; logarithms of the ratio, its interval and the threshold."""
    import numpy as np
    import pandas as pd

    words = data.reindex(columns=["case", "precision", "parameters"]).itertuples(index=False)
    names = [cut(" ".join(str(word) for word in own if not is_missing(word) and word), 60) for own in words]
    found = pd.DataFrame({"name": names, "verdict": data["verdict"].tolist()})
    low, high, threshold = (  # an end may be infinite
        np.array([float(value) if isinstance(value, numbers.Real) else math.nan for value in data[name].tolist()])
        for name in ("ratio_lo", "ratio_hi", "threshold_pct")
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found["ratio"] = np.log([measured_or_nan(value) for value in data["ratio"].tolist()])
        found["low"], found["high"] = np.log(low), np.log(high)
        found["limit"] = np.abs(np.log1p(threshold / 100))
    compared: pd.DataFrame = found[np.isfinite(found["ratio"]) & found["verdict"].isin(list(_VERDICTS))]
    if compared.empty:
        raise ValueError("there is nothing to draw: no case was compared")
    return compared


def _draw_ratios(ax: Axes, lines: pd.DataFrame, metric: str, room: Inches) -> float:
    """Draw a mark for each case over its band of noise; return the height of a line, inches."""
    import numpy as np
    from matplotlib.patches import Patch

    colors, counts = styles.ink(ax), lines["verdict"].value_counts()
    looks = {verdict: (color or colors.soft, mark) for verdict, (color, mark) in _VERDICTS.items() if verdict in counts}
    handles = [
        styles.line_handle(f"{verdict} ({counts[verdict]})", color=color, marker=mark, linewidth=1.4)
        for verdict, (color, mark) in looks.items()
    ]
    handles.append(Patch(facecolor=colors.grid, label="taken for noise"))
    each = styles.add_legend_over_lines(ax, handles, len(lines), room)
    # The axis holds all ratios, and bands and intervals up to three times as far.
    far = 3 * lines["ratio"].abs().max() + 0.05
    ends = np.concatenate([lines["low"], lines["high"], lines["limit"], -lines["limit"]])
    values = [*lines["ratio"], *ends[np.isfinite(ends)].clip(-far, far), -0.01, 0.01]
    low, high = 1.08 * min(values), 1.08 * max(values)
    logarithmic = max(-low, high) > math.log(_LOG_FROM)
    if logarithmic:
        ax.set_xscale("log")

    def at(logarithm: Any) -> Any:
        """Return the x of ratios: the ratio itself, or the change in percent."""
        ratio = np.exp(np.clip(logarithm, low, high))
        return ratio if logarithmic else 100 * (ratio - 1)

    places = np.arange(len(lines))
    left, right = at(-lines["limit"].to_numpy()), at(lines["limit"].to_numpy())
    ax.barh(places, right - left, left=left, height=1.0, color=colors.grid, linewidth=0)
    for verdict, (color, mark) in looks.items():
        own = (lines["verdict"] == verdict).to_numpy()
        ax.hlines(places[own], at(lines["low"][own]), at(lines["high"][own]), color=color, linewidth=1.4)
        x = at(lines["ratio"][own])
        ax.plot(x, places[own], color=color, marker=mark, markersize=min(5.5, 24 * each), linestyle="none")
    ax.axvline(at(0.0), color=colors.text, linewidth=0.8)
    ax.set_xlim(at(low), at(high))
    _set_ratio_ticks(ax, metric, logarithmic=logarithmic)
    return each


def _set_ratio_ticks(ax: Axes, metric: str, *, logarithmic: bool) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    column = schema.find_column(metric)
    title = column.title or column.name.replace("_", " ")
    if not logarithmic:
        ax.set_xlabel(f"change of the {title} (%)")
        ax.xaxis.set_major_locator(MaxNLocator(9))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:+.3g}" if abs(value) > 1e-9 else "0")
        return
    ax.set_xlabel(f"{title}, new / base")
    low, high = ax.get_xlim()
    decades = math.log10(high / low)
    steps = (1, 1.5, 2, 3, 5, 7) if decades < 1 else (1, 2, 5) if decades < 3 else (1,)
    ax.xaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    ax.xaxis.set_minor_locator(NullLocator())


_TREND_COLUMNS = ("case", "precision", "started", "time_ms", "time_ms_lo", "time_ms_hi", "series", "change", "marks")
_MOST_PANELS = 24
_MOST_LINES = 12  # lines of a panel's legend
_MOST_MARKS = 12  # texts above a panel: the last marks
_LONGEST = 28  # letters of a name
_LINE_STYLES = (("full", "-"), ("left", "--"), ("top", "-."), ("right", ":"))  # of lines of one precision
_FASTER = "#009E73"
_MOST_MARKERS = 60  # runs of a line with a marker each
_FAR_APART = 1.8  # ratio of medians from which on each line is drawn relative to its own


def trend(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the times of a case over time: medians with their intervals, a line for each series.

    Triangles mark runs whose time differs from the run's before; upward ones are slower. Dotted lines mark changes of
    driver, version of bwprof, variant or device.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.history`, of one case; of several the first one is drawn.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure of pyplot.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        For a frame of another kind, and for one without times.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "monday").mkdir()
    >>> _ = bwprof.save(bwprof.load_example("h200"), folder / "monday" / "results.json")
    >>> bwprof.plot.trend(bwprof.history(folder, "decode_gemm_8b")).get_ylabel()
    'time (us)'
    """
    panels = _read_panels(data)[:1]

    def draw(ax: Axes, _: Inches) -> None:
        _draw_panel(ax, panels[0], panels, texts=True)

    return Drawing((9.5, 4.2), (8.0, 3.5), draw).on(ax)


def save_trend(data: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write every case of a history, a panel each, into a file in the format of its ending; return its path."""
    return write_trend(data, [Path(path)])[0]


def write_trend(data: pd.DataFrame, targets: Sequence[Path], *, dpi: int = 150, dark: bool = False) -> list[Path]:
    """Write every case of a history, a panel each, into each target; return the targets."""
    every = _read_panels(data)
    panels = every[:_MOST_PANELS]
    columns = 1 if len(panels) == 1 else 2
    rows = math.ceil(len(panels) / columns)

    def draw(figure: Figure) -> None:
        axes = figure.subplots(rows, columns, sharex=True, squeeze=False).flat
        for place, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
            ax.set_facecolor(figure.get_facecolor())
            _draw_panel(ax, panel, panels, texts=columns == 1 or place < columns)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        names = dict.fromkeys(str(name) for name in data["device"].dropna()) if "device" in data else {}
        device = [cut(next(iter(names)), _LONGEST) if len(names) == 1 else f"{len(names)} devices"] if names else []
        left_out = [f"the first {len(panels)} of {len(every)} cases"] if len(panels) < len(every) else []
        title = ", ".join(["Time of a launch, median and 95 % interval", *device, *left_out])
        look: dict[str, Any] = {"color": styles.ink(axes[0]).text, "parse_math": False}
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, **look)
        changes = "hollow: see flags; dotted: driver, version, variant or device changed"
        figure.supxlabel(f"\u25b2 slower, \u25bc faster than the run before; {changes}", fontsize=8, **look)

    size = (9.5, 4.4) if columns == 1 else (15.0, 0.6 + 2.7 * rows)
    return canvas.write_figure(size, draw, targets, dpi=dpi, dark=dark)


def _read_panels(data: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the measured rows of each case, in the order of the first run."""
    import pandas as pd

    data = require_columns(data, *_TREND_COLUMNS, what="a history, which bwprof.history gives")
    clean: dict[str, Any] = {}
    for name in _TREND_COLUMNS:
        values = data[name].tolist()
        if name.startswith(("time_ms", "series")):
            clean[name] = list(map(measured_or_nan, values))
        elif name != "started":
            clean[name] = ["" if is_missing(value) else str(value) for value in values]
    clean["started"] = pd.to_datetime(data["started"].tolist(), errors="coerce", utc=True)
    rows = data.reset_index(drop=True).assign(**clean)
    rows = rows[(rows["time_ms"] > 0) & rows["started"].notna() & rows["series"].notna()]
    if "status" in rows:
        rows = rows[rows["status"] == "ok"]
    if rows.empty:
        raise ValueError("there are no times to draw")
    panels = [own for _, own in rows.groupby("case", sort=False, observed=True)]
    return sorted(panels, key=lambda own: int(own["series"].iloc[0]))


def _draw_panel(ax: Axes, rows: pd.DataFrame, panels: Sequence[pd.DataFrame], *, texts: bool) -> None:
    """Draw the rows of a case; all panels have one time axis, and are all relative or none."""
    medians = [own.groupby("series")["time_ms"].median() for own in panels]
    far_apart = any(
        own.max() > _FAR_APART * own.min() for own in medians
    )  # changes of a few percent would be invisible
    relative = far_apart and not all(own["series"].is_unique for own in panels)
    scale, unit = (1.0, "ms") if rows["time_ms"].median() >= 1 else (1e3, "us")
    lines = [line for _, line in rows.groupby("series", sort=False)]
    looks = styles.styles(str(line["precision"].iloc[0]) for line in lines)
    drawn: Counter[str] = Counter()
    for place, line in enumerate(lines):
        median, precision = float(line["time_ms"].median()), str(line["precision"].iloc[0])
        label = f"{_label_line(line, lines)}\n{median * scale:.4g} {unit}" if place < _MOST_LINES else "_"
        fill, dash = _LINE_STYLES[drawn[precision] % len(_LINE_STYLES)]
        size = 3.6 + 1.3 * min(3, len(lines) - 1 - place)  # an earlier marker is visible around later ones
        marks = {"marker": looks[precision].marker, "fillstyle": fill, "markersize": size}
        drawn[precision] += 1
        factor = 100 / median if relative else scale
        _draw_line(ax, line, factor, looks[precision].color, {"label": label, "ls": dash}, marks)
    _draw_changes(ax, rows, texts=texts)
    ax.set_title(cut(str(rows["case"].iloc[0]), _LONGEST), loc="left", fontsize=9.5, parse_math=False)
    ax.set_ylabel("time (% of median)" if relative else f"time ({unit})", fontsize=8.5)
    _set_date_axis(ax, panels)
    # Room for texts above; changes of a fraction of a percent look small.
    bottom, top = ax.get_ylim()
    least = 1.0 if relative else 0.01 * float(rows["time_ms"].median()) * scale
    middle, half = (bottom + top) / 2, max((top - bottom) / 2, least)
    ax.set_ylim(middle - half * 1.05, middle + half * 1.3)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    ax.tick_params(labelsize=8, labelbottom=True)
    styles.finish_axes(ax, grid="both")
    right: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
    styles.add_legend(ax, ax.get_legend_handles_labels()[0], fontsize=7.5, **right)


def _set_date_axis(ax: Axes, panels: Sequence[pd.DataFrame]) -> None:
    """Set limits and ticks of dates, and write the first and the last date at the end of the axis.

    A single run is in the middle of a day.
    """
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    first = min(rows["started"].min() for rows in panels)
    last = max(rows["started"].max() for rows in panels)
    room = max((last - first) * 0.03, timedelta(minutes=1)) if last > first else timedelta(hours=12)
    ax.set_xlim(first - room, last + room)
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    ends = " to ".join(dict.fromkeys(f"{end:%Y-%b-%d}" for end in (first, last)))
    formatter.get_offset = lambda: f"{ends} UTC"  # type: ignore[method-assign]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(formatter)


def _draw_line(
    ax: Axes, line: pd.DataFrame, scale: float, color: str, look: dict[str, Any], marks: dict[str, Any]
) -> None:
    import numpy as np

    colors = styles.ink(ax)
    when = line["started"].dt.tz_localize(None).to_numpy()
    time, low, high = (line[name].to_numpy() * scale for name in ("time_ms", "time_ms_lo", "time_ms_hi"))
    # An end of an interval that is not known has no distance.
    below, above = (np.where(np.isfinite(gap), np.maximum(gap, 0), 0) for gap in (time - low, high - time))
    few = len(line) <= _MOST_MARKERS
    ax.plot(when, time, color=color, linewidth=1.1, zorder=2, **look, **(marks if few else {}))
    if few:
        ax.errorbar(when, time, [below, above], fmt="none", ecolor=color, elinewidth=0.9, capsize=1.8, zorder=2)
    else:
        ax.fill_between(when, time - below, time + above, color=color, alpha=0.25, linewidth=0)
    flags = line["flags"].tolist() if "flags" in line else [""] * len(line)
    hollow = [not is_missing(flag) and bool(str(flag)) for flag in flags]
    rings = {name: marks[name] for name in ("marker", "markersize")}
    ax.plot(when[hollow], time[hollow], linewidth=0, color=colors.ground, markeredgecolor=color, zorder=3, **rings)
    for word, shape, shade in (("slower", "^", colors.alarm), ("faster", "v", _FASTER)):
        changed = (line["change"] == word).to_numpy()
        ax.plot(when[changed], time[changed], linewidth=0, marker=shape, markersize=7.5, color=shade, zorder=4)


def _draw_changes(ax: Axes, rows: pd.DataFrame, *, texts: bool) -> None:
    """Draw a dotted line at each change of driver, version, variant or device, and a text at the last ones."""
    changes = rows[rows["marks"] != ""].groupby("started", sort=True)["marks"].unique()
    for number, (when, marks) in enumerate(changes.items()):
        naive = when.tz_localize(None)  # type: ignore[attr-defined]
        ax.axvline(naive, color=styles.ink(ax).soft, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        if texts and number >= len(changes) - _MOST_MARKS:
            parts = (re.sub(r" .* -> ", " ", part) for part in dict.fromkeys("; ".join(marks).split("; ")))
            text = "\n".join(cut(part, _LONGEST) for part in parts)  # "driver 2" of "driver 1 -> 2"
            height = -2 - 9 * (number % 3)  # texts of neighbors are below each other
            place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            look: dict[str, Any] = {"fontsize": 6.5, "color": styles.ink(ax).text, "va": "top", "parse_math": False}
            ax.annotate(text, (naive, 1.0), xytext=(2, height), **place, **look)


def _label_line(line: pd.DataFrame, lines: Sequence[pd.DataFrame]) -> str:
    """Return the precision, and what distinguishes the line from others of its panel."""
    last = line.iloc[-1]
    words = [str(last["precision"]).upper()]
    for name in ("variant", "cache", "timer", "M", "device", "hostname", "device_uuid"):
        if name in line and len({str(other[name].iloc[-1]) for other in lines}) > 1:
            words.append(str(last[name]))
    return cut(" ".join(words), _LONGEST)
