"""Times of cases over time: `trend`, a picture of what `bwprof.history` gives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.plot.canvas import check_axes, cut, save_one, write_panels
from bwprof.plot.data import need_columns
from bwprof.plot.labels import add_legend
from bwprof.plot.styles import dress, ink, styles
from bwprof.text.formatting import is_missing
from bwprof.text.parsing import measurable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NEEDED = ("case", "precision", "started", "time_ms", "time_ms_lo", "time_ms_hi", "series", "change", "marks")

_WHAT = "a history, which bwprof.history gives"

_MOST_CASES = 24  # panels of a picture

_MOST_LINES = 12  # of a panel's legend

_MOST_MARKS = 12  # words above a panel; marks beyond them are lines without

_LONGEST = 28  # letters of a name

_APART = (("full", "-"), ("left", "--"), ("top", "-."), ("right", ":"))  # lines of one precision: marks, dashes

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
    data = need_columns(data, *_NEEDED, what=_WHAT)
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

    data = need_columns(data, *_NEEDED, what=_WHAT)
    clean: dict[str, Any] = {name: _times(data[name].tolist()) for name in _NEEDED if name.startswith("time_ms")}
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
    return [math.nan if (found := measurable(value)) is None else found for value in values]


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
        fill, dash = _APART[drawn[precision] % len(_APART)]
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
    dress(ax, grid="both")
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
