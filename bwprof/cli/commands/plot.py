"""The command ``bwprof plot``: pictures of results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import plot
from bwprof.cli.guard import OK
from bwprof.cli.options import DEFAULT_OUTPUT, ONLY, command, select_rows, typed
from bwprof.cli.output import check_picture, writing
from bwprof.results import reader
from bwprof.text.formatting import format_path
from bwprof.text.parsing import describe_unknown, nearest_name, parse_names, quote_text

if TYPE_CHECKING:
    import pandas as pd

COMPARISON = "comparison"
_FILE_NAMES = {COMPARISON: "bandwidth_comparison"}  # of files, where they are not the kind's

_OTHERS = {
    "ablation": "an operation's variants, each against the first (a file of bwprof ablation --json or --csv)",
    "compare": "the ratios of BASE and NEW with their intervals (two runs or files)",
    "trend": "the times of cases over all runs below a folder (FOLDER --case CASE)",
}
_KINDS = {name: kind.text for name, kind in plot.KINDS.items()} | _OTHERS

_TABLE = f"""\
words=[KIND] RUN|FILE*  the kind, and runs' folders or files
--input FILE  the same as RUN|FILE

output:
-o, --output PICTURE  the file to write; the ending is the format (default: KIND.png)
--output-dir DIR  write a file of each kind that fits into this folder
--format LIST  formats of the files in --output-dir, such as png,svg (default: png)
--force  replace existing files
--dpi N  dots per inch (default: 150; where KIND is comparison 300)
--dark  use a dark background

options of kinds:
--layout page|slide  comparison: as tall as needed, or 16:9 by family of operations
--panels  comparison: a panel for each case
-x COLUMN  lines, heatmap: the parameter of the x axis
-y COLUMN  lines: the column of the y axis (default: bandwidth_gb_s); heatmap: the parameter of the y axis
--value COLUMN  heatmap: the column that the colors show (default: bandwidth_gb_s)
--precision LIST  heatmap: the precision; ridge: the precisions
--from P  speedup: the wider precision (default: fp32)
--to P  speedup: the narrower precision (default: fp16)
--phase decode|prefill  model: the steps to draw
{ONLY}
--case LIST  trend: cases, operations or patterns
"""

_LIST = "\n".join(f"  {name:<12}{text}" for name, text in _KINDS.items())

# Options by the keyword of the kinds' functions that they are.
_KEYWORDS = {name: name for name in ("layout", "x", "y", "value", "precision", "to", "phase")}
_KEYWORDS |= {"precisions": "precision", "from_": "from"}


@command(_TABLE, f"kinds (comparison where none is named):\n{_LIST}\n\n", mixed=True)
def main_plot(options: argparse.Namespace) -> int:
    """Draw one kind of picture, or with --output-dir every kind that fits the results.

    Examples:
      bwprof plot roofline RUN -o roofline.pdf --dark
      bwprof plot lines RUN -x kv_len -y time_ms
      bwprof plot RUN --output-dir plots/               every kind that fits
    """
    from bwprof.plot.canvas import check_dpi

    kind, files = _kind_and_files(options)
    _check_options(options, kind or COMPARISON)
    default = 300 if kind == COMPARISON else 150
    how = {"dpi": default if options.dpi is None else check_dpi(options.dpi, "--dpi"), "dark": options.dark}
    _check_output(options, kind)
    if options.output_dir is not None and kind is None:
        return _draw_all(options, files, how)
    targets = _targets(options, kind or COMPARISON)
    write = _draw_other(kind, files, options) if kind in _OTHERS else _draw(options, kind, files)
    with writing():
        write(targets, **how)
    for target in targets:
        sys.stderr.write(f"bwprof: the picture is {format_path(target)}\n")
    return OK


def _kind_and_files(options: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Split the words into the kind, None where none is named, and what is drawn."""
    words = list(options.words)
    kind = words.pop(0) if words and words[0] in _KINDS else None
    files = [*words, *([options.input] if options.input is not None else [])]
    first = files[0] if files else ""
    looks_like_kind = kind is None and first and not Path(first).exists() and not Path(first).suffix
    if looks_like_kind and nearest_name(first, _KINDS, likeness=0.6) is not None:
        raise ValueError(describe_unknown("kind of picture", first, _KINDS))
    if not files and kind not in ("ridge", "trend", "roofs"):
        raise ValueError("the following arguments are required: RUN|FILE (bwprof plot --help)")
    return kind, files


def _check_options(options: argparse.Namespace, kind: str) -> None:
    """Raise ValueError for an option of another kind."""
    allowed = {"trend": {"case"}, COMPARISON: {"panels"}}.get(kind, set())
    if kind in plot.KINDS:
        allowed |= {_KEYWORDS[option] for option in plot.KINDS[kind].options}
        allowed |= {"only"} if kind not in ("roofs", "ridge") else set()
    if options.panels and (options.dark or options.layout is not None):
        raise ValueError(f"{'--dark' if options.dark else '--layout'} is no option of --panels: leave one out")
    for option, name in typed(options, {*_KEYWORDS.values(), "panels", "case", "only"}).items():
        if option not in allowed:
            raise ValueError(f"{name} is no option of the kind {kind}: leave it out")


def _check_output(options: argparse.Namespace, kind: str | None) -> None:
    """Raise ValueError for options of the output that exclude each other, and where one is missing."""
    if options.output is not None and options.output_dir is not None:
        raise ValueError("-o and --output-dir exclude each other: a file, or a folder of them")
    if options.format is not None and options.output_dir is None:
        raise ValueError("--format is of the files in --output-dir: the ending of -o says its own, leave it out")
    if kind is None and options.output is None and options.output_dir is None:
        raise ValueError("the following arguments are required: -o/--output, or --output-dir")


def _targets(options: argparse.Namespace, kind: str) -> list[Path]:
    """Choose the files of a kind, in a folder that is made; ValueError for one that cannot be written."""
    name = _FILE_NAMES.get(kind, kind)
    if options.output_dir is None:
        option, targets = "-o", [Path(f"{name}.png" if options.output is None else options.output)]
    else:
        words = parse_names("--format", "png" if options.format is None else options.format)
        endings = dict.fromkeys(word.lower().removeprefix(".") for word in words)
        option, targets = "--output-dir", [Path(options.output_dir, f"{name}.{ending}") for ending in endings]
        for target in targets:
            plot.check_ending(target)
        Path(options.output_dir).mkdir(parents=True, exist_ok=True)
    for target in targets:
        check_picture(option, str(target), force=options.force)
    return targets


def _draw(options: argparse.Namespace, kind: str | None, files: Sequence[str]) -> Callable[..., object]:
    """Draw a kind of `plot.KINDS`, of rows or of this device's stored roofs; return what writes it."""
    from bwprof.cli.commands.predict import load_roofs
    from bwprof.plot import bars

    if kind == "roofs" and len(files) < 2:
        data: Any = files[0] if files else load_roofs()[0]
    else:
        data = _read_frame(files, options.only) if files else None
    if kind == COMPARISON:
        sys.stdout.write(summary(*means(data)))
    if options.panels:
        averages = means(data)[0]

        def write_panels(targets: Sequence[Path], *, dpi: int, **_: Any) -> None:
            for target in targets:
                bars.save_panels(averages, target, dpi=dpi)

        return write_panels
    chosen = plot.KINDS[kind or COMPARISON]
    keywords = {name: getattr(options, _KEYWORDS[name]) for name in chosen.options}
    keywords = {name: value for name, value in keywords.items() if value is not None}
    if "precisions" in keywords:
        keywords["precisions"] = parse_names("--precision", keywords["precisions"])
    return chosen.picture(data, **keywords).write


def _read_frame(files: Sequence[str], only: Sequence[str]) -> pd.DataFrame:
    """Read the rows of all files; the run's facts are the first one's."""
    import pandas as pd

    try:
        frames = [select_rows(reader.load(name), only) for name in files]
    except ValueError:
        for name in map(quote_text, filter(reader.is_ablation, files)):
            raise ValueError(f"{name} is a ladder: bwprof plot ablation {name} draws it") from None
        raise
    if len(frames) == 1:
        return frames[0]
    data = pd.concat(frames, ignore_index=True)
    data.attrs = dict(frames[0].attrs)
    return data


def _draw_all(options: argparse.Namespace, files: Sequence[str], how: dict[str, Any]) -> int:
    """Draw a file for each kind that fits, and print why the others do not."""
    pictures = dict(plot.draw_kinds(_read_frame(files, options.only)))
    # The files of all are checked before the first is drawn.
    targets = {name: _targets(options, name) for name, picture in pictures.items() if not isinstance(picture, str)}
    for name, picture in pictures.items():
        if isinstance(picture, str):
            sys.stderr.write(f"bwprof: no {name}: {picture}\n")
        else:
            with writing():
                picture.write(targets[name], **how)
            sys.stdout.writelines(f"{format_path(target)}\n" for target in targets[name])
    return OK


def _draw_other(kind: str | None, files: Sequence[str], options: argparse.Namespace) -> Callable[..., object]:
    """Draw what is made of more than one run, or of an ablation; return what writes it."""
    from bwprof.plot import gains, regressions

    if kind == "ablation":
        if len(files) != 1:
            raise ValueError(f"ablation draws one ladder, and there are {len(files)} files: name one")
        return gains.build_ablation(files[0]).write
    if kind == "compare":
        from bwprof import compare

        if len(files) != 2:
            raise ValueError(f"compare needs BASE and NEW, and there are {len(files)}: bwprof plot compare BASE NEW")
        return regressions.build_ratios(compare(files[0], files[1])).write
    from bwprof.records.history import history

    if len(files) > 1:
        raise ValueError(f"trend draws the runs below one folder: '{quote_text(files[1])}' is one too many")
    cases = None if options.case is None else list(parse_names("--case", options.case))
    return partial(regressions.write_trend, history(files[0] if files else str(DEFAULT_OUTPUT), cases))


_Means = dict[str, dict[str, float]]


def means(data: pd.DataFrame) -> tuple[_Means, _Means]:
    """Average the bandwidths, GB/s, and times, ms, of each case (variant where it has several) and precision."""
    import pandas as pd

    from bwprof.results import frame, pairs

    every = frame.to_rows(data)
    rows = [row for row in every if row["status"] == "ok" and row["bandwidth_gb_s"] is not None]
    groups = pairs.group_precisions(rows, every)
    cells = [
        (label, precision, row["bandwidth_gb_s"], row["time_ms"])
        for label, group in zip(pairs.label_groups(groups), groups, strict=True)
        for precision, row in group.rows.items()
    ]
    averages = pd.DataFrame(cells, columns=["case", "precision", "speed", "time"]).groupby(
        ["case", "precision"], sort=False
    )

    def by_case(column: str) -> _Means:
        result: _Means = {}
        for case, precision, value in averages[column].mean().dropna().reset_index().itertuples(index=False):
            result.setdefault(case, {})[precision] = value
        return result

    return by_case("speed"), by_case("time")


def summary(speeds: Mapping[str, Mapping[str, float]], times: Mapping[str, Mapping[str, float]]) -> str:
    """Describe FP32 beside FP16: the ratio of bandwidths, and the gain in time, which halved bytes bring."""
    wide, narrow = "fp32", "fp16"
    lines = ["=== Bandwidth Summary ==="]
    for case, speed in speeds.items():
        time = times.get(case, {})
        lines += ["", f"{case}:"]
        lines += [f"  {name.upper()} mean: {value:.2f} GB/s" for name, value in speed.items()]
        if speed.get(wide) and speed.get(narrow):
            lines.append(f"  Speedup: {speed[narrow] / speed[wide]:.2f}x (GB/s)")
        if time.get(wide) and time.get(narrow):
            lines.append(f"  Time speed-up: {time[wide] / time[narrow]:.2f}x")
    return "\n".join(lines) + "\n"
