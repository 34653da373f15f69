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
from bwprof.cli.options import MixedParser, Parser, read_fraction, run
from bwprof.cli.output import check_picture
from bwprof.results.pairs import PrecisionGroup
from bwprof.results.reader import load
from bwprof.text.formatting import format_path
from bwprof.text.parsing import describe_unknown, nearest_name, parse_names, quote_text

if TYPE_CHECKING:
    import pandas as pd

COMPARISON = "comparison"

_NAMES = {COMPARISON: "bandwidth_comparison"}  # of files, where they are not the kind's

_DEFAULT_DPI = {COMPARISON: 300}

_OTHERS = {
    "ablation": "a ladder's variants, each against the first (a file of bwprof ablation --json or --csv)",
    "compare": "the ratios of BASE and NEW with their intervals (two runs or files)",
    "trend": "the times of cases over all runs below a folder (--case, and FOLDER)",
}

_FOLDER = "bwprof-results"

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


def main_plot(arguments: Sequence[str] | None = None) -> int:
    """Draw results into files; returns the exit code."""
    return run(_parser(), arguments, _draw)


def _parser() -> Parser:
    from bwprof import plot

    texts = {name: kind.text for name, kind in plot.KINDS.items()} | _OTHERS
    epilog = _EPILOG.format(kinds="\n".join(f"  {name:<12}{text}" for name, text in texts.items()))
    made = MixedParser("bwprof plot", "Draw results: a picture of one kind, or of every kind that fits them.", epilog)
    made.add_argument("words", nargs="*", metavar="[KIND] RUN|FILE", help="the kind, and runs' folders or files")
    made.add_argument("--input", metavar="FILE", help="the same as RUN|FILE")
    made.add_argument(
        "-o", "--output", metavar="PICTURE", help="the file to write; its ending says the format (KIND.png)"
    )
    made.add_argument("--output-dir", metavar="DIR", help="a file for each kind, every one that fits, in this folder")
    made.add_argument("--format", metavar="LIST", help="of files in --output-dir: png,svg (png)")
    made.add_argument("--force", action="store_true", help="replace files that are there")
    made.add_argument("--dpi", metavar="N", help="dots per inch (150; of the comparison by name 300)")
    made.add_argument("--dark", action="store_true", help="on a dark ground")
    made.add_argument("--layout", metavar="page|slide", help="comparison: as long as it takes, or 16:9 by family")
    made.add_argument("--panels", action="store_true", help="comparison: a panel for each case")
    made.add_argument("-x", metavar="COLUMN", help="lines, heatmap: the parameter to the right")
    made.add_argument(
        "-y", metavar="COLUMN", help="lines: what is drawn (bandwidth_gb_s); heatmap: the other parameter"
    )
    made.add_argument("--value", metavar="COLUMN", help="heatmap: what is drawn (bandwidth_gb_s)")
    made.add_argument("--precision", metavar="P", help="heatmap: of which precision; ridge: of which ones (a list)")
    made.add_argument("--from", dest="from_", metavar="P", help="speedup: the wider precision (fp32)")
    made.add_argument("--to", metavar="P", help="speedup: the narrower one (fp16)")
    made.add_argument("--phase", metavar="decode|prefill", help="model: which steps")
    read_fraction(made)
    made.add_argument("--case", metavar="LIST", help="trend: cases, operations, or patterns of them")
    return made


# Options by the keyword of the kinds' functions that they are.
_KEYWORDS = {name: name for name in ("layout", "x", "y", "value", "precision", "from_", "to", "phase")}

_KEYWORDS["precisions"] = "precision"

_OF_OTHERS = {"panels": (COMPARISON,), "case": ("trend",)}


def _draw(options: argparse.Namespace) -> int:
    from bwprof import plot

    kind, files = _kind_and_files(options)
    _check_options(options, kind)
    if options.output is not None and options.output_dir is not None:
        raise ValueError("-o and --output-dir exclude each other: a file, or a folder of them")
    if options.format is not None and options.output_dir is None:
        raise ValueError("--format is of the files in --output-dir: the ending of -o says its own, leave it out")
    dpi = _dpi(options, kind)
    if options.output_dir is not None and kind is None:
        return _draw_all(options, files, dpi)
    targets = _targets(options, kind)
    if kind in _OTHERS:
        _draw_other(kind, files, targets, options, dpi)
    else:
        chosen = plot.KINDS[kind or COMPARISON]
        given = {name: value for name in chosen.options if (value := getattr(options, _KEYWORDS[name])) is not None}
        if "precisions" in given:
            given["precisions"] = parse_names("--precision", given["precisions"])
        data = _read_data(kind, files, options.only)
        if options.panels:
            from bwprof.plot import bars

            for target in targets:
                bars.save_panels(means(data)[0], target, dpi=dpi)
        else:
            chosen.picture(data, **given).write(targets, dpi=dpi, dark=options.dark)
        if kind == COMPARISON:
            sys.stdout.write(summary(*means(data)))
    for target in targets:
        sys.stderr.write(f"bwprof: the picture is {format_path(target)}\n")
    return OK


def _kind_and_files(options: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The kind, None where none is named, and what is drawn."""
    from bwprof import plot

    kinds = (*plot.KINDS, *_OTHERS)
    given = list(options.words)
    kind = given.pop(0) if given and given[0] in kinds else None
    files = [*given, *([options.input] if options.input is not None else [])]
    first = files[0] if files else ""
    if kind is None and first and not Path(first).exists() and not Path(first).suffix:
        near = nearest_name(first, kinds, likeness=0.6)
        if near is not None:
            raise ValueError(describe_unknown("kind of picture", first, kinds))
    if not files and kind not in ("ridge", "trend", "roofs"):
        raise ValueError("the following arguments are required: RUN|FILE (bwprof plot --help)")
    return kind, files


def _check_options(options: argparse.Namespace, kind: str | None) -> None:
    """ValueError for an option of another kind, which would be ignored."""
    from bwprof import plot

    name = kind or COMPARISON
    allowed = {_KEYWORDS[option] for option in plot.KINDS[name].options} if name in plot.KINDS else set()
    allowed |= {"only"} if name in plot.KINDS and name not in ("roofs", "ridge") else set()
    allowed |= {option for option, kinds in _OF_OTHERS.items() if name in kinds}
    if options.panels and (options.dark or options.layout is not None):
        raise ValueError(f"{'--dark' if options.dark else '--layout'} is no option of --panels: leave one out")
    for option in (*_KEYWORDS.values(), *_OF_OTHERS, "only"):
        if getattr(options, option) not in (None, False, []) and option not in allowed:
            said = f"-{option}" if len(option) == 1 else f"--{option.removesuffix('_')}"
            raise ValueError(f"{said} is no option of the kind {name}: leave it out")


def _dpi(options: argparse.Namespace, kind: str | None) -> int:
    if options.dpi is None:
        return _DEFAULT_DPI.get(kind or "", 150)
    from bwprof.plot.canvas import check_dpi

    return check_dpi(options.dpi, "--dpi")


def _targets(options: argparse.Namespace, kind: str | None) -> list[Path]:
    """The files to write; ValueError where an ending is no picture's."""
    name = _NAMES.get(kind or COMPARISON, kind)
    if options.output_dir is not None:
        targets = [Path(options.output_dir, f"{name}.{ending}") for ending in _made(options)]
        for target in targets:
            check_picture("--output-dir", str(target), force=options.force)
        return targets
    if options.output is None and kind is None:
        raise ValueError("the following arguments are required: -o/--output, or --output-dir")
    given = f"{name}.png" if options.output is None else options.output
    check_picture("-o", given, force=options.force)
    return [Path(given)]


def _made(options: argparse.Namespace) -> list[str]:
    """The endings of files in the folder, which is there now."""
    from bwprof.plot import canvas

    if not options.output_dir:
        raise ValueError("--output-dir is '': a folder is needed")
    endings = list(
        dict.fromkeys(
            word.lower().removeprefix(".")
            for word in parse_names("--format", "png" if options.format is None else options.format)
        )
    )
    for ending in endings:
        canvas.check_ending(Path(f"x.{ending}"))
    Path(options.output_dir).mkdir(parents=True, exist_ok=True)
    return endings


def _read_data(kind: str | None, files: Sequence[str], only: Sequence[str]) -> Any:
    """What the kind draws: a frame, the roofs that are stored for this machine's device, or nothing."""
    if kind == "roofs" and len(files) == 1:
        return files[0]
    if kind == "roofs" and not files:
        return _stored_roofs()
    return _frame(files, only) if files else None


def _frame(files: Sequence[str], only: Sequence[str]) -> pd.DataFrame:
    """The rows of all files; what is known of the run is the first one's."""
    import pandas as pd

    frames = [select_rows(_loaded(name), only) for name in files]
    if len(frames) == 1:
        return frames[0]
    whole = pd.concat(frames, ignore_index=True)
    whole.attrs = dict(frames[0].attrs)
    return whole


def _loaded(name: str) -> pd.DataFrame:
    """A file's rows; ValueError for a ladder with the command that draws it."""
    try:
        return load(name)
    except ValueError:
        from bwprof.results import reader

        if reader.is_ablation(name):
            raise ValueError(
                f"{quote_text(name)} is a ladder: bwprof plot ablation {quote_text(name)} draws it"
            ) from None
        raise


def _stored_roofs() -> Any:
    from bwprof import hardware
    from bwprof.roofs import store

    with hardware.borrow_current(None, None) as (choice, device):
        found = store.load(store.identity(choice.backend, hardware.device_facts(device)))
    if found is None:
        raise ValueError(f"no roofs are stored for {choice.name}: bwprof sweep measures them, or name a RUN|FILE")
    return found


def _draw_all(options: argparse.Namespace, files: Sequence[str], dpi: int) -> int:
    """A file for each kind that fits, and a word on those that do not."""
    from bwprof import plot

    found = list(plot.draw_kinds(_frame(files, options.only)))
    endings = _made(options)
    named = {
        name: [Path(options.output_dir, f"{_NAMES.get(name, name)}.{ending}") for ending in endings]
        for name, _ in found
    }
    for target in (target for name, picture in found if not isinstance(picture, str) for target in named[name]):
        check_picture("--output-dir", str(target), force=options.force)  # of all, before the first is drawn
    for name, picture in found:
        if isinstance(picture, str):
            sys.stderr.write(f"bwprof: no {name}: {picture}\n")
            continue
        picture.write(named[name], dpi=dpi, dark=options.dark)
        sys.stdout.writelines(f"{format_path(target)}\n" for target in named[name])
    return OK


def _draw_other(
    kind: str | None, files: Sequence[str], targets: Sequence[Path], options: argparse.Namespace, dpi: int
) -> None:
    """What is made of more than one run, or of a ladder."""
    if kind == "ablation":
        if len(files) != 1:
            raise ValueError(f"ablation draws one ladder, and there are {len(files)} files: name one")
        from bwprof.plot import ablations

        ablations.build_ablation(files[0]).write(targets, dpi=dpi, dark=options.dark)
        return
    if kind == "compare":
        if len(files) != 2:
            raise ValueError(f"compare needs BASE and NEW, and there are {len(files)}: bwprof plot compare BASE NEW")
        from bwprof import compare
        from bwprof.plot.regressions import build_ratios

        build_ratios(compare(files[0], files[1])).write(targets, dpi=dpi, dark=options.dark)
        return
    from bwprof.plot.regressions import write_trend
    from bwprof.records.history.query import history

    if len(files) > 1:
        raise ValueError(f"trend draws the runs below one folder: '{quote_text(files[1])}' is one too many")
    cases = None if options.case is None else list(parse_names("--case", options.case))
    write_trend(history(files[0] if files else _FOLDER, cases), targets, dpi=dpi, dark=options.dark)


def means(data: pd.DataFrame) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Of each case (of each variant where it has several) and precision the mean bandwidth, GB/s, and time, ms."""
    from bwprof.results import frame, pairs

    every = frame.to_rows(data)
    rows = [row for row in every if row["status"] == "ok" and row["bandwidth_gb_s"] is not None]
    groups = pairs.group_precisions(rows, every)
    return _means(groups, "bandwidth_gb_s"), _means(groups, "time_ms")


def _means(groups: Sequence[PrecisionGroup], column: str) -> dict[str, dict[str, float]]:
    """Of each case and precision the mean."""
    found: dict[str, dict[str, list[float]]] = {}
    from bwprof.results import pairs

    for name, group in zip(pairs.label_groups(groups), groups, strict=True):
        for precision, row in group.rows.items():
            if row[column] is not None:
                found.setdefault(name, {}).setdefault(precision, []).append(row[column])
    return {case: {name: fmean(values) for name, values in means.items()} for case, means in found.items()}


def summary(speeds: Mapping[str, Mapping[str, float]], times: Mapping[str, Mapping[str, float]]) -> str:
    """FP32 beside FP16 in words: the ratio of bandwidths is not the gain in time, which is what halved bytes bring."""
    wide, narrow = "fp32", "fp16"
    lines = ["=== Bandwidth Summary ==="]
    for case, means in speeds.items():
        lines += ["", f"{case}:"]
        lines += [f"  {name.upper()} mean: {value:.2f} GB/s" for name, value in means.items()]
        if means.get(wide) and means.get(narrow):
            lines.append(f"  Speedup: {means[narrow] / means[wide]:.2f}x (GB/s)")
        taken = times.get(case, {})
        if taken.get(wide) and taken.get(narrow):
            lines.append(f"  Time speed-up: {taken[wide] / taken[narrow]:.2f}x")
    return "\n".join(lines) + "\n"
