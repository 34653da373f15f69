"""The command ``bwprof plot``: pictures of results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bwprof.cli.guard import OK
from bwprof.cli.inputs import select_rows
from bwprof.cli.options import DEFAULT_OUTPUT, ONLY, MixedParser, run
from bwprof.cli.output import check_picture
from bwprof.results.pairs import PrecisionGroup
from bwprof.results.reader import load
from bwprof.text.formatting import format_path
from bwprof.text.parsing import describe_unknown, nearest_name, parse_names, quote_text

if TYPE_CHECKING:
    import pandas as pd

COMPARISON = "comparison"
_FILE_NAMES = {COMPARISON: "bandwidth_comparison"}  # of files, where they are not the kind's

_OTHERS = {
    "ablation": "an operation's variants, each against the first (a file of bwprof ablation --json or --csv)",
    "compare": "the ratios of BASE and NEW with their intervals (two runs or files)",
    "trend": "the times of cases over all runs below a folder (--case, and FOLDER)",
}

_DESCRIPTION = """\
Draw results: a picture of one kind, or with --output-dir of every kind that fits them.
"""

_TABLE = f"""\
words=[KIND] RUN|FILE*  the kind, and runs' folders or files
--input FILE  the same as RUN|FILE
-o, --output PICTURE  the file to write; its ending says the format (default: KIND.png)
--output-dir DIR  a file for each kind, every one that fits, in this folder
--format LIST  of files in --output-dir: png,svg (default: png)
--force  replace files that are there
--dpi N  dots per inch (default: 150; of the comparison by name 300)
--dark  on a dark ground

options of kinds:
--layout page|slide  comparison: as long as it takes, or 16:9 by family
--panels  comparison: a panel for each case
-x COLUMN  lines, heatmap: the parameter to the right
-y COLUMN  lines: what is drawn (bandwidth_gb_s); heatmap: the other parameter
--value COLUMN  heatmap: what is drawn (bandwidth_gb_s)
--precision P  heatmap: of which precision; ridge: of which ones (a list)
--from P  speedup: the wider precision (fp32)
--to P  speedup: the narrower one (fp16)
--phase decode|prefill  model: which steps
{ONLY}
--case LIST  trend: cases, operations, or patterns of them
"""

_EPILOG = """\
kinds (comparison where none is named):
{kinds}

examples:
  bwprof plot bwprof-results/20260101-120000-ab12 -o bandwidth.svg
  bwprof plot roofline rows.csv -o roofline.pdf --dark
  bwprof plot lines RUN -x kv_len -y time_ms
  bwprof plot compare BASE NEW -o ratios.png
  bwprof plot comparison rows.csv --panels          FP32 beside FP16, in words too
  bwprof plot --input results.json --output-dir plots/   every kind that fits
"""

# Options by the keyword of the kinds' functions that they are.
_KEYWORDS = {name: name for name in ("layout", "x", "y", "value", "precision", "to", "phase")}
_KEYWORDS |= {"precisions": "precision", "from_": "from"}

_OF_OTHERS = {"panels": (COMPARISON,), "case": ("trend",)}


def main_plot(arguments: Sequence[str] | None = None) -> int:
    """Draw results into files; returns the exit code."""
    from bwprof import plot

    texts = {name: kind.text for name, kind in plot.KINDS.items()} | _OTHERS
    epilog = _EPILOG.format(kinds="\n".join(f"  {name:<12}{text}" for name, text in texts.items()))
    return run(MixedParser("bwprof plot", _DESCRIPTION, _TABLE, epilog), arguments, _run)


def _run(options: argparse.Namespace) -> int:
    from bwprof.plot.canvas import check_dpi

    kind, files = _kind_and_files(options)
    _check_options(options, kind)
    if options.output is not None and options.output_dir is not None:
        raise ValueError("-o and --output-dir exclude each other: a file, or a folder of them")
    if options.format is not None and options.output_dir is None:
        raise ValueError("--format is of the files in --output-dir: the ending of -o says its own, leave it out")
    default = 300 if kind == COMPARISON else 150
    dpi = default if options.dpi is None else check_dpi(options.dpi, "--dpi")
    if options.output_dir is not None and kind is None:
        return _draw_all(options, files, dpi)
    targets = _targets(options, kind)
    _draw(options, kind, files, targets, dpi)
    for target in targets:
        sys.stderr.write(f"bwprof: the picture is {format_path(target)}\n")
    return OK


def _kind_and_files(options: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Split the words into the kind, None where none is named, and what is drawn."""
    from bwprof import plot

    kinds = (*plot.KINDS, *_OTHERS)
    words = list(options.words)
    kind = words.pop(0) if words and words[0] in kinds else None
    files = [*words, *([options.input] if options.input is not None else [])]
    first = files[0] if files else ""
    looks_like_kind = kind is None and first and not Path(first).exists() and not Path(first).suffix
    if looks_like_kind and nearest_name(first, kinds, likeness=0.6) is not None:
        raise ValueError(describe_unknown("kind of picture", first, kinds))
    if not files and kind not in ("ridge", "trend", "roofs"):
        raise ValueError("the following arguments are required: RUN|FILE (bwprof plot --help)")
    return kind, files


def _check_options(options: argparse.Namespace, kind: str | None) -> None:
    """Raise ValueError for an option of another kind."""
    from bwprof import plot

    name = kind or COMPARISON
    allowed = {option for option, kinds in _OF_OTHERS.items() if name in kinds}
    if name in plot.KINDS:
        allowed |= {_KEYWORDS[option] for option in plot.KINDS[name].options}
        allowed |= {"only"} if name not in ("roofs", "ridge") else set()
    if options.panels and (options.dark or options.layout is not None):
        raise ValueError(f"{'--dark' if options.dark else '--layout'} is no option of --panels: leave one out")
    typed = options.parser.names(options)
    for option in (*_KEYWORDS.values(), *_OF_OTHERS, "only"):
        if option in typed and option not in allowed:
            raise ValueError(f"{typed[option]} is no option of the kind {name}: leave it out")


def _targets(options: argparse.Namespace, kind: str | None) -> list[Path]:
    """Choose the files to write; ValueError where an ending is no picture's."""
    name = _FILE_NAMES.get(kind or COMPARISON, kind)
    if options.output_dir is not None:
        targets = [Path(options.output_dir, f"{name}.{ending}") for ending in _make_folder(options)]
    elif options.output is None and kind is None:
        raise ValueError("the following arguments are required: -o/--output, or --output-dir")
    else:
        targets = [Path(f"{name}.png" if options.output is None else options.output)]
    option = "-o" if options.output_dir is None else "--output-dir"
    for target in targets:
        check_picture(option, str(target), force=options.force)
    return targets


def _make_folder(options: argparse.Namespace) -> list[str]:
    """Make the folder of --output-dir, and return the endings of its files."""
    from bwprof.plot import canvas

    words = parse_names("--format", "png" if options.format is None else options.format)
    endings = list(dict.fromkeys(word.lower().removeprefix(".") for word in words))
    for ending in endings:
        canvas.check_ending(Path(f"x.{ending}"))
    Path(options.output_dir).mkdir(parents=True, exist_ok=True)
    return endings


def _draw(
    options: argparse.Namespace, kind: str | None, files: Sequence[str], targets: Sequence[Path], dpi: int
) -> None:
    from bwprof import plot
    from bwprof.plot import bars

    if kind in _OTHERS:
        _draw_other(kind, files, targets, options, dpi)
        return
    data = _read_data(kind, files, options.only)
    if options.panels:
        for target in targets:
            bars.save_panels(means(data)[0], target, dpi=dpi)
    else:
        chosen = plot.KINDS[kind or COMPARISON]
        keywords = {name: getattr(options, _KEYWORDS[name]) for name in chosen.options}
        keywords = {name: value for name, value in keywords.items() if value is not None}
        if "precisions" in keywords:
            keywords["precisions"] = parse_names("--precision", keywords["precisions"])
        chosen.picture(data, **keywords).write(targets, dpi=dpi, dark=options.dark)
    if kind == COMPARISON:
        sys.stdout.write(summary(*means(data)))


def _read_data(kind: str | None, files: Sequence[str], only: Sequence[str]) -> Any:
    """Read what the kind draws: a frame, the stored roofs of this machine's device, or nothing."""
    if kind == "roofs" and len(files) == 1:
        return files[0]
    if kind == "roofs" and not files:
        return _load_roofs()
    return _read_frame(files, only) if files else None


def _read_frame(files: Sequence[str], only: Sequence[str]) -> pd.DataFrame:
    """Read the rows of all files; the run's facts are the first one's."""
    import pandas as pd

    frames = [select_rows(_load(name), only) for name in files]
    if len(frames) == 1:
        return frames[0]
    data = pd.concat(frames, ignore_index=True)
    data.attrs = dict(frames[0].attrs)
    return data


def _load(name: str) -> pd.DataFrame:
    from bwprof.results import reader

    try:
        return load(name)
    except ValueError:
        if reader.is_ablation(name):
            quoted = quote_text(name)
            raise ValueError(f"{quoted} is a ladder: bwprof plot ablation {quoted} draws it") from None
        raise


def _load_roofs() -> Any:
    from bwprof import hardware
    from bwprof.roofs import store

    with hardware.borrow_current(None, None) as (choice, device):
        roofs = store.load(store.identity(choice.backend, hardware.facts(device)))
    if roofs is None:
        raise ValueError(f"no roofs are stored for {choice.name}: bwprof sweep measures them, or name a RUN|FILE")
    return roofs


def _draw_all(options: argparse.Namespace, files: Sequence[str], dpi: int) -> int:
    """Draw a file for each kind that fits, and print why the others do not."""
    from bwprof import plot

    pictures = list(plot.draw_kinds(_read_frame(files, options.only)))
    endings = _make_folder(options)
    targets = {
        name: [Path(options.output_dir, f"{_FILE_NAMES.get(name, name)}.{ending}") for ending in endings]
        for name, picture in pictures
        if not isinstance(picture, str)
    }
    for target in (target for paths in targets.values() for target in paths):
        check_picture("--output-dir", str(target), force=options.force)  # of all, before the first is drawn
    for name, picture in pictures:
        if isinstance(picture, str):
            sys.stderr.write(f"bwprof: no {name}: {picture}\n")
            continue
        picture.write(targets[name], dpi=dpi, dark=options.dark)
        sys.stdout.writelines(f"{format_path(target)}\n" for target in targets[name])
    return OK


def _draw_other(
    kind: str | None, files: Sequence[str], targets: Sequence[Path], options: argparse.Namespace, dpi: int
) -> None:
    """Draw what is made of more than one run, or of an ablation."""
    from bwprof.plot import ablations, regressions

    if kind == "ablation":
        if len(files) != 1:
            raise ValueError(f"ablation draws one ladder, and there are {len(files)} files: name one")
        ablations.build_ablation(files[0]).write(targets, dpi=dpi, dark=options.dark)
    elif kind == "compare":
        from bwprof import compare

        if len(files) != 2:
            raise ValueError(f"compare needs BASE and NEW, and there are {len(files)}: bwprof plot compare BASE NEW")
        regressions.build_ratios(compare(files[0], files[1])).write(targets, dpi=dpi, dark=options.dark)
    else:
        from bwprof.records.history import history

        if len(files) > 1:
            raise ValueError(f"trend draws the runs below one folder: '{quote_text(files[1])}' is one too many")
        cases = None if options.case is None else list(parse_names("--case", options.case))
        runs = history(files[0] if files else str(DEFAULT_OUTPUT), cases)
        regressions.write_trend(runs, targets, dpi=dpi, dark=options.dark)


def means(data: pd.DataFrame) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Average the bandwidths, GB/s, and times, ms, of each case (variant where it has several) and precision."""
    from bwprof.results import frame, pairs

    every = frame.to_rows(data)
    rows = [row for row in every if row["status"] == "ok" and row["bandwidth_gb_s"] is not None]
    groups = pairs.group_precisions(rows, every)
    labels = pairs.label_groups(groups)
    return _average(labels, groups, "bandwidth_gb_s"), _average(labels, groups, "time_ms")


def _average(labels: Sequence[str], groups: Sequence[PrecisionGroup], column: str) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, list[float]]] = {}
    for name, group in zip(labels, groups, strict=True):
        for precision, row in group.rows.items():
            if row[column] is not None:
                values.setdefault(name, {}).setdefault(precision, []).append(row[column])
    return {case: {name: fmean(numbers) for name, numbers in of_case.items()} for case, of_case in values.items()}


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
