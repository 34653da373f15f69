"""Regressions: the ratios of a comparison, and the trends of times over runs."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.canvas import Drawing, Inches, cut, log, measure_labels, save_one
from bwprof.plot.data import need_columns
from bwprof.plot.legends import add_legend_over_lines, line_handle
from bwprof.plot.styles import Ink, finish_axes, ink
from bwprof.results import schema
from bwprof.text import formatting
from bwprof.text.formatting import plural
from bwprof.text.parsing import measured_or_none

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from bwprof.plot.canvas import check_axes, write_panels
from bwprof.plot.legends import add_legend
from bwprof.plot.styles import styles
from bwprof.text.formatting import is_missing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, and marks that tell without them.
_LOOKS = {
    "slower": ("#D55E00", "v"),
    "same": ("", "o"),  # the colour of lesser words
    "faster": ("#0072B2", "^"),
    "undecided": ("#E69F00", "D"),
    "disturbed": ("#CC79A7", "x"),
}

_AROUND_INCHES, _MARGIN_INCHES, _MOST_INCHES, _LEAST_INCHES = 1.05, 1.5, 60.0, 2.6

_ROW_INCHES = ((80, 0.21, 8.0), (200, 0.165, 7.0), (math.inf, 0.125, 6.0))  # up to so many rows: height, letters

_LONGEST_NAME = 60

_LOGARITHMIC = 1.5  # a ratio from which on the axis is one of factors

# Factors for an axis, most wanted first.
_FACTORS = (1, 0.1, 10, 0.01, 100, 0.001, 1000, 0.5, 2, 0.2, 5, 0.3, 3, 0.7, 1.5, 0.05, 20, 0.02, 50)

_APART = 0.07  # of the axis: two of them closer than this would run into each other

_NEEDED = ("case", "precision", "verdict", "ratio", "ratio_lo", "ratio_hi", "threshold_pct")


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    verdict: str
    ratio: float
    low: float
    high: float
    limit: float


def ratios(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Each case's ratio, new / base, with its 95 % interval, sorted; the band is what the gate takes for noise.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.compare`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's, of a fitting size, when left out.

    Raises
    ------
    ValueError
        When it is no comparison, or no case of it was compared.

    Examples
    --------
    >>> import bwprof
    >>> frame = bwprof.load_example("h200")
    >>> bwprof.plot.ratios(bwprof.compare(frame, frame)).get_xlabel()
    'change of the time (%)'
    """
    return build_ratios(data).on(ax)


def save_ratios(data: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Write `ratios` into a file, whose ending says the format; returns its path."""
    return save_one(path, lambda targets: build_ratios(data).write(targets))


def build_ratios(data: pd.DataFrame, *, most: int | None = None) -> Drawing:
    """The same as a picture to be drawn or written, of the `most` largest changes."""
    data = need_columns(data, *_NEEDED, what="a comparison, which bwprof.compare makes")
    lines, left_out = _lines(data, most)
    each, points = _row(len(lines))
    width, height = 9.0, max(_LEAST_INCHES, _MARGIN_INCHES + len(lines) * each)
    inner = (width - measure_labels((line.name for line in lines), points), height - _AROUND_INCHES)
    return Drawing((width, height), inner, lambda ax, room: _draw(ax, lines, left_out, data.attrs, room))


def _lines(data: pd.DataFrame, wanted: int | None) -> tuple[list[_Line], str]:
    """What is drawn, the largest ratio first, and what is said of those for which there is no room."""
    found = []
    for record in data.to_dict(orient="records"):
        ratio = measured_or_none(record["ratio"])
        if ratio is not None and ratio > 0 and record["verdict"] in _LOOKS:
            told = (record["case"], record["precision"], record.get("parameters"))
            name = " ".join(str(word) for word in told if not formatting.is_missing(word) and word)
            low, high = (_number(record[end]) for end in ("ratio_lo", "ratio_hi"))
            threshold = _number(record["threshold_pct"])
            limit = abs(math.log1p(threshold / 100)) if threshold > -100 else math.nan
            found.append(_Line(cut(name, _LONGEST_NAME), record["verdict"], ratio, low, high, limit))
    if not found:
        raise ValueError("there is nothing to draw: no case was compared")
    found.sort(key=lambda line: -line.ratio)
    apart = len(data) - len(found)
    words = [f"not drawn: {plural(apart, 'case')} that could not be compared"] if apart else []
    most = int((_MOST_INCHES - _MARGIN_INCHES) / _ROW_INCHES[-1][1])
    kept = sorted(found, key=lambda line: -abs(math.log(line.ratio)))[: most if wanted is None else min(most, wanted)]
    if len(kept) == len(found):
        return found, ", ".join(words)
    left_out = f"the {len(kept)} largest changes of {len(found)}"
    if wanted is None:
        log.warning("the picture shows %s", left_out)
    return sorted(kept, key=lambda line: -line.ratio), ", ".join([left_out, *words])


def _number(value: Any) -> float:
    """A number as it is, infinite ones too; NaN for anything else."""
    return float(value) if isinstance(value, numbers.Real) and not formatting.is_missing(value) else math.nan


def _row(count: int) -> tuple[float, float]:
    """Inches of a row, and points of its letters."""
    return next((height, letters) for most, height, letters in _ROW_INCHES if count <= most)


def _draw(ax: Axes, lines: Sequence[_Line], left_out: str, attrs: Any, room: Inches) -> None:
    colors = ink(ax)
    height = add_legend_over_lines(ax, _handles(lines, colors), len(lines), room)
    letters = min(_row(len(lines))[1], 72 * height * 0.72)
    low, high, factors = _range(lines)

    def at(ratio: float) -> float:
        """Where a ratio is drawn: the axis is one of factors, or of percent."""
        kept = min(max(ratio, low), high)
        return kept if factors else 100 * (kept - 1)

    if factors:
        ax.set_xscale("log")
    for place, line in enumerate(lines):
        color, mark = _LOOKS[line.verdict][0] or colors.soft, _LOOKS[line.verdict][1]
        reach = min(line.limit, 50.0)
        left, right = at(math.exp(-reach)), at(math.exp(reach))
        ax.barh(place, right - left, left=left, height=1.0, color=colors.grid, linewidth=0)
        ax.plot([at(line.low), at(line.high)], [place, place], color=color, linewidth=1.4, solid_capstyle="butt")
        size = min(5.5, 24 * height)
        ax.plot([at(line.ratio)], [place], color=color, marker=mark, markersize=size, linestyle="none")
    ax.axvline(at(1.0), color=colors.text, linewidth=0.8)
    ax.set_yticks(range(len(lines)), [line.name for line in lines], fontsize=letters, parse_math=False)
    ax.set_xlim(at(low), at(high))
    _axis(ax, attrs, factors=factors)
    sides = [cut(str(attrs[name]), 48) for name in ("new", "base") if attrs.get(name)]
    words = [" against ".join(sides)] if len(sides) == 2 else []
    ax.set_title("\n".join([*words, *([left_out] if left_out else [])]), loc="left", fontsize=9, parse_math=False)
    finish_axes(ax, grid="x")
    ax.tick_params(axis="y", length=0)


def _range(lines: Sequence[_Line]) -> tuple[float, float, bool]:
    """The axis: all ratios, and bands and intervals where there is room; whether it is one of factors."""
    middles = [math.log(line.ratio) for line in lines]
    ends = [math.log(end) for line in lines for end in (line.low, line.high) if 0 < end < math.inf]
    bands = [sign * line.limit for line in lines if math.isfinite(line.limit) for sign in (-1, 1)]
    room = 3 * max(map(abs, middles)) + 0.05
    wanted = [*middles, *(min(max(end, -room), room) for end in (*ends, *bands)), -0.01, 0.01]
    low, high = 1.08 * min(wanted), 1.08 * max(wanted)
    return math.exp(low), math.exp(high), max(-low, high) > math.log(_LOGARITHMIC)


def _axis(ax: Axes, attrs: Any, *, factors: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    column = schema.find_column(str(attrs.get("metric", "time_ms")))
    title = column.title or column.name.replace("_", " ")
    if factors:
        ax.set_xlabel(f"{title}, new / base")
        low, high = ax.get_xlim()
        steps: list[float] = []
        for step in _FACTORS:
            near = any(abs(math.log(step / other)) < _APART * math.log(high / low) for other in steps)
            steps += [step] if low <= step <= high and not near else []
        ax.set_xticks(steps, [f"{step:g}x" for step in steps])
        ax.xaxis.set_minor_locator(NullLocator())
        return
    ax.set_xlabel(f"change of the {title} (%)")
    ax.xaxis.set_major_locator(MaxNLocator(9))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.3g}" if abs(value) > 1e-9 else "0"))


def _handles(lines: Sequence[_Line], colors: Ink) -> list[Any]:
    """The legend's entries."""
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for verdict, (color, mark) in _LOOKS.items():
        count = sum(line.verdict == verdict for line in lines)
        if count:
            look: dict[str, Any] = {"color": color or colors.soft, "marker": mark, "linewidth": 1.4}
            handles.append(line_handle(f"{verdict} ({count})", **look))
    return [*handles, Patch(facecolor=colors.grid, label="taken for noise")]


_TREND_COLUMNS = ("case", "precision", "started", "time_ms", "time_ms_lo", "time_ms_hi", "series", "change", "marks")

_WHAT = "a history, which bwprof.history gives"

_MOST_CASES = 24  # panels of a picture

_MOST_LINES = 12  # of a panel's legend

_MOST_MARKS = 12  # words above a panel; marks beyond them are lines without

_LONGEST = 28  # letters of a name

_LINE_STYLES = (("full", "-"), ("left", "--"), ("top", "-."), ("right", ":"))  # lines of one precision: marks, dashes

_LEAST_MARK, _ROUND = 3.6, 1.3  # points, and by how many an earlier mark stands out around the later ones

_FASTER = "#009E73"

_RAW_UNTIL = 60  # runs of a line that get a marker each

_WIDE = 1.8  # times further apart than this share no axis: each is drawn over its own median


def trend(data: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """One case's times over time: medians with their intervals, a line for each series.

    Triangles mark where a time differs from the run's before (upwards: slower), dotted lines where driver, bwprof's
    version, variant or device changed.

    Parameters
    ----------
    data : pandas.DataFrame
        From `bwprof.history`, of one case; of several the first.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of pyplot's when left out.

    Raises
    ------
    ValueError
        When it is no history, or has no times.

    Examples
    --------
    >>> import bwprof, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "monday").mkdir()
    >>> _ = bwprof.save(bwprof.load_example("h200"), folder / "monday" / "results.json")
    >>> bwprof.plot.trend(bwprof.history(folder, "decode_gemm_8b")).get_ylabel()
    'time (us)'
    """
    panels = _panels(data)
    if ax is not None:
        check_axes(ax)
    else:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=(9.5, 4.2), layout="constrained").add_subplot()
    _panel(ax, panels[0], relative=_is_relative(panels[:1]), span=_span(panels[:1]), words=True)
    return ax


def save_trend(data: pd.DataFrame, path: str | PathLike[str]) -> Path:
    """Draw every case of a history, a panel each, into a file in the format of its ending; returns its path."""
    return save_one(path, lambda targets: write_trend(data, targets))


def write_trend(data: pd.DataFrame, targets: Sequence[Path], *, dpi: int = 150, dark: bool = False) -> list[Path]:
    """The same into each of several files; returns them."""
    data = need_columns(data, *_TREND_COLUMNS, what=_WHAT)
    panels = _panels(data)
    shown = panels[:_MOST_CASES]
    columns = 1 if len(shown) == 1 else 2
    rows = math.ceil(len(shown) / columns)

    def draw(figure: Figure) -> None:
        relative, span = _is_relative(shown), _span(shown)
        every = figure.subplots(rows, columns, sharex=True, squeeze=False).flat
        for place, ax in enumerate(every):
            ax.set_facecolor(figure.get_facecolor())
            if place < len(shown):
                _panel(ax, shown[place], relative=relative, span=span, words=columns == 1 or place < columns)
            else:
                ax.set_axis_off()
        _title(figure, data, shown, len(panels), ink(every[0]).text)

    size = (9.5, 4.4) if columns == 1 else (15.0, 0.6 + 2.7 * rows)
    write_panels(size, draw, targets, dpi=dpi, dark=dark)
    return list(targets)


def _panels(data: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each case, in the order of the first run; ValueError where there is nothing to draw."""
    import pandas as pd

    data = need_columns(data, *_TREND_COLUMNS, what=_WHAT)
    clean: dict[str, Any] = {name: _times(data[name].tolist()) for name in _TREND_COLUMNS if name.startswith("time_ms")}
    clean |= {name: _texts(data[name].tolist()) for name in ("case", "precision", "change", "marks")}
    clean["series"] = _times(data["series"].tolist())
    clean["started"] = pd.to_datetime(data["started"].tolist(), errors="coerce", utc=True)
    drawn = data.reset_index(drop=True).assign(**clean)
    drawn = drawn[(drawn["time_ms"] > 0) & drawn["started"].notna() & drawn["series"].notna()]
    if "status" in drawn:  # what was predicted is no measurement
        drawn = drawn[drawn["status"] == "ok"]
    found = [rows for _, rows in drawn.groupby("case", sort=False, observed=True)]
    if not found:
        raise ValueError("there are no times to draw")
    return sorted(found, key=lambda rows: int(rows["series"].iloc[0]))


def _times(values: Sequence[Any]) -> list[float]:
    """Numbers that may have been measured; NaN for anything else."""
    return [math.nan if (found := measured_or_none(value)) is None else found for value in values]


def _texts(values: Sequence[Any]) -> list[str]:
    return ["" if is_missing(value) else str(value) for value in values]


def _is_relative(panels: Sequence[pd.DataFrame]) -> bool:
    """Whether lines of one panel lie too far apart for changes of a few percent to be seen, if there are any."""
    if all(rows["series"].is_unique for rows in panels):
        return False
    for rows in panels:
        medians = rows.groupby("series")["time_ms"].median()
        if medians.max() > _WIDE * medians.min():
            return True
    return False


def _span(panels: Sequence[pd.DataFrame]) -> tuple[Any, Any]:
    """The first and the last time; one run alone stands in the middle of a day."""
    first = min(rows["started"].min() for rows in panels)
    last = max(rows["started"].max() for rows in panels)
    room = max((last - first) * 0.03, timedelta(minutes=1)) if last > first else timedelta(hours=12)
    return first - room, last + room


def _panel(ax: Axes, rows: pd.DataFrame, *, relative: bool, span: tuple[Any, Any], words: bool) -> None:
    scale, unit = (1.0, "ms") if rows["time_ms"].median() >= 1 else (1e3, "us")
    lines = [line for _, line in rows.groupby("series", sort=False)]
    looks = styles(str(line["precision"].iloc[0]) for line in lines)
    drawn: Counter[str] = Counter()
    for place, line in enumerate(lines):
        middle, precision = float(line["time_ms"].median()), str(line["precision"].iloc[0])
        label = _label(line, lines, middle * scale, unit) if place < _MOST_LINES else "_"
        fill, dash = _LINE_STYLES[drawn[precision] % len(_LINE_STYLES)]
        size = _LEAST_MARK + _ROUND * min(3, len(lines) - 1 - place)
        marks = {"marker": looks[precision].marker, "fillstyle": fill, "markersize": size}
        drawn[precision] += 1
        _line(
            ax, line, 100 / middle if relative else scale, looks[precision].color, {"label": label, "ls": dash}, marks
        )
    _vertical(ax, rows, words=words)
    ax.set_title(cut(str(rows["case"].iloc[0]), _LONGEST), loc="left", fontsize=9.5, parse_math=False)
    ax.set_ylabel("time (% of median)" if relative else f"time ({unit})", fontsize=8.5)
    _date_axis(ax)
    ax.set_xlim(*span)
    _room(ax, least=1.0 if relative else 0.01 * float(rows["time_ms"].median()) * scale)
    ax.tick_params(labelsize=8, labelbottom=True)
    finish_axes(ax, grid="both")
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
    add_legend(ax, ax.get_legend_handles_labels()[0], fontsize=7.5, **beside)


def _date_axis(ax: Axes) -> None:
    """Date the ticks: what they share stands at the axis' end, the first and the last of it where they differ."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date

    class Dates(ConciseDateFormatter):
        def get_offset(self) -> str:
            """Name the first and the last run's date, as far as ticks share it; where January hides it, the year."""
            shared = str(super().get_offset())  # type: ignore[no-untyped-call]
            panels = [one for one in (ax, *ax.get_shared_x_axes().get_siblings(ax)) if one.has_data()]
            limits = [value for one in panels for value in one.dataLim.intervalx]
            if not limits or all(len(label) == 4 and label.isdigit() for label in self._labels):
                return shared
            last = num2date(self._last)  # type: ignore[no-untyped-call]
            forms = [form for form in self.offset_formats if form and shared and last.strftime(form) == shared]
            first, last = num2date([min(limits), max(limits)])  # type: ignore[no-untyped-call]
            ends = [when.strftime((forms or ["%Y"])[0]) for when in (first, last)]
            return f"{' to '.join(dict.fromkeys(ends))} UTC"

        def format_ticks(self, values: Sequence[float]) -> list[str]:
            self._labels = super().format_ticks(values)  # type: ignore[no-untyped-call]
            self._last = values[-1] if len(values) else 0.0
            return list(map(str, self._labels))

    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(Dates(locator))  # type: ignore[no-untyped-call]


def _room(ax: Axes, *, least: float) -> None:
    """Room above for words; and a run that repeats within a fraction of a percent is no mountain."""
    bottom, top = ax.get_ylim()
    middle, half = (bottom + top) / 2, max((top - bottom) / 2, least)
    ax.set_ylim(middle - half * 1.05, middle + half * 1.3)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")


def _line(ax: Axes, line: pd.DataFrame, scale: float, color: str, look: dict[str, Any], marks: dict[str, Any]) -> None:
    """Medians as a line, with their intervals; triangles where a time changed, hollow where a row is disturbed."""
    colors = ink(ax)
    when = line["started"].dt.tz_localize(None).to_numpy()
    time, low, high = (line[name].to_numpy() * scale for name in ("time_ms", "time_ms_lo", "time_ms_hi"))
    few = len(line) <= _RAW_UNTIL
    ax.plot(when, time, color=color, linewidth=1.1, zorder=2, **look, **(marks if few else {}))
    if few:
        below, above = (_finite(time - low), _finite(high - time))
        ax.errorbar(when, time, [below, above], fmt="none", ecolor=color, elinewidth=0.9, capsize=1.8, zorder=2)
    else:
        ax.fill_between(
            when, time - _finite(time - low), time + _finite(high - time), color=color, alpha=0.25, linewidth=0
        )
    flags = line["flags"].tolist() if "flags" in line else [""] * len(line)  # a category of nothing has no text
    doubted = [not is_missing(found) and bool(str(found)) for found in flags]
    rings = {name: marks[name] for name in ("marker", "markersize")}
    ax.plot(when[doubted], time[doubted], linewidth=0, color=colors.ground, markeredgecolor=color, zorder=3, **rings)
    for word, shape, shade in (("slower", "^", colors.alarm), ("faster", "v", _FASTER)):
        changed = (line["change"] == word).to_numpy()
        ax.plot(when[changed], time[changed], linewidth=0, marker=shape, markersize=7.5, color=shade, zorder=4)


def _finite(values: Any) -> Any:
    """Distances from the median to the ends of its interval; none where an end is not known, or infinite."""
    import numpy as np

    return np.where(np.isfinite(values), np.maximum(values, 0), 0)


def _vertical(ax: Axes, rows: pd.DataFrame, *, words: bool) -> None:
    """A dotted line for each run in which something beside the time changed, with words for the last of them."""
    marked = rows[rows["marks"].notna() & (rows["marks"] != "")]
    # As a list: NumPy 1.24.0 warns where pandas makes text of categories, of which none is NaN.
    said = marked.assign(marks=marked["marks"].tolist()).groupby("started", sort=True)["marks"].unique()
    for number, (when, texts) in enumerate(said.items()):
        naive = when.tz_localize(None)  # type: ignore[attr-defined]
        ax.axvline(naive, color=ink(ax).soft, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        if words and number >= len(said) - _MOST_MARKS:
            told = "\n".join(cut(_after(part), _LONGEST) for part in dict.fromkeys("; ".join(texts).split("; ")))
            height = -2 - 9 * (number % 3)  # neighbours' words stand below each other
            place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            look: dict[str, Any] = {"fontsize": 6.5, "color": ink(ax).text, "va": "top", "parse_math": False}
            ax.annotate(told, (naive, 1.0), xytext=(2, height), **place, **look)


def _after(mark: str) -> str:
    """Of "driver 1 -> 2" what holds from here on: "driver 2"."""
    before, arrow, after = mark.partition(" -> ")
    return f"{before.partition(' ')[0]} {after}" if arrow else mark


def _label(line: pd.DataFrame, lines: Sequence[pd.DataFrame], middle: float, unit: str) -> str:
    """The precision with the median of all runs, and what else tells the lines of a panel apart."""
    first = line.iloc[-1]
    words = [str(first["precision"]).upper()]
    for name in ("variant", "cache", "timer", "M", "device", "hostname", "device_uuid"):
        if name in line and len({str(other[name].iloc[-1]) for other in lines}) > 1:
            words.append(str(first[name]))
    return f"{cut(' '.join(words), _LONGEST)}\n{middle:.4g} {unit}"


def _title(figure: Figure, data: pd.DataFrame, shown: Sequence[pd.DataFrame], count: int, color: str) -> None:
    devices = list(dict.fromkeys(str(name) for name in data["device"].dropna())) if "device" in data else []
    words = ["Time of a launch, median and 95 % interval"]
    words += [cut(devices[0], _LONGEST)] if len(devices) == 1 else [f"{len(devices)} devices"] if devices else []
    words += [f"the first {len(shown)} of {count} cases"] if len(shown) < count else []
    figure.suptitle(", ".join(words), x=0.01, ha="left", fontsize=11, parse_math=False, color=color)
    told = "\u25b2 slower, \u25bc faster than the run before; hollow: see flags; dotted: driver, version, variant or"
    figure.supxlabel(f"{told} device changed", fontsize=8, color=color)
