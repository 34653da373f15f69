"""``bwprof baseline list``, ``show`` and ``delete``: the baselines that are there."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import INCOMPLETE, OK
from bwprof.records import baselines
from bwprof.records.baseline import Baseline, Kept
from bwprof.records.comparing.values import value
from bwprof.results import schema
from bwprof.results.difference import disturbances, doubts
from bwprof.results.schema import Row
from bwprof.terminal import console, print_table
from bwprof.text import counted, figure_text, path_text, quoted

_WORDS = ("case", "precision", "variant", "cache")
_NUMBERS = ("time, ms", "95 % from", "to", "GB/s", "processes", "wander, %")


def add_dir(parser: Parser) -> None:
    """The option that says where baselines are."""
    parser.add_argument(
        "--dir",
        "--store",
        dest="dir",
        type=_folder,
        metavar="DIR",
        help=f"where baselines are (default: {baselines.FOLDER})",
    )


def _folder(given: str) -> str:
    if not given:
        raise argparse.ArgumentTypeError("'' is given: a name is needed")
    return given


def list_all(arguments: Sequence[str]) -> int:
    """Print a line for each baseline; returns the exit code, 3 where one of them cannot be read."""
    parser = Parser("bwprof baseline list", "The baselines that are there.")
    add_dir(parser)
    return run(parser, arguments, _list)


def show(arguments: Sequence[str]) -> int:
    """Print a baseline's cases; returns the exit code."""
    parser = Parser("bwprof baseline show", "A baseline: where it was measured, and a line for each case.", _SHOWN)
    parser.add_argument("name", metavar="NAME", help="what it was saved as")
    add_dir(parser)
    return run(parser, arguments, _show)


_SHOWN = """\
time: the geometric mean over the processes that count, as bwprof compare has it, with the interval within one of them.
processes: those that count; disturbed ones are left out where others are not ("1 of 3"); runs of one are joined.
wander: how far apart the medians of the processes are, the longest from the shortest, of the shortest.
"""


def delete(arguments: Sequence[str]) -> int:
    """Remove baselines; returns the exit code."""
    parser = Parser("bwprof baseline delete", "Remove baselines, whatever their files hold.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="what they were saved as")
    add_dir(parser)
    return run(parser, arguments, _delete)


def _list(options: argparse.Namespace) -> int:
    found = baselines.baselines(folder=options.dir)
    whole = [line for line in found if not line["problem"]]
    if whole:
        names = ["name", "cases", "processes", "device", "driver", "saved"]
        rows = ([str(line[name]) for name in names] for line in whole)
        print_table(console(sys.stdout), names, rows, numbers=["cases", "processes"])
    for line in found:
        if line["problem"]:
            sys.stderr.write(f"bwprof: error: {line['problem']}\n")
    if not found:
        where = quoted(baselines.folder_of(options.dir))
        sys.stderr.write(f"bwprof: no baselines in {where}: 'bwprof baseline save NAME' makes one\n")
    return INCOMPLETE if len(whole) < len(found) else OK


def _show(options: argparse.Namespace) -> int:
    found = baselines.load_baseline(options.name, folder=options.dir)
    screen = console(sys.stdout)
    for line in _head(found):
        screen.print(line, soft_wrap=True)
    doubted = [", ".join((*disturbances(row), *doubts(row))) for row in found.rows]
    more = ["doubts"] if any(doubted) else []
    lines = [_cells(kept) + ([words] if more else []) for kept, words in zip(found.cases, doubted, strict=True)]
    print_table(screen, [*_WORDS, *_NUMBERS, *more], lines, numbers=_NUMBERS)
    return OK


def _head(found: Baseline) -> list[str]:
    """What a baseline is of."""
    count = found.most_processes
    processes = found.joined or ("one process" if count == 1 else f"{count} processes")
    if count == 1:
        processes += ": how far medians wander between processes is not known"
    versions = dict.fromkeys(str(row["bwprof_version"]) for row in found.rows if row["bwprof_version"])
    told = [f"{found.name}: {counted(len(found.cases), 'case')}, {processes}"]
    told.append(
        f"{found.device or 'no device'}, driver {found.driver or 'unknown'}, bwprof {', '.join(versions) or '?'}"
    )
    runs = ", ".join(str(process["run_id"]) for process in found.processes if process.get("run_id"))
    told.append(f"saved {found.saved or 'at an unknown time'}" + (f", runs {runs}" if runs else ""))
    return [quoted(line) if len(line) > 200 else line for line in told]


def _cells(kept: Kept) -> list[str]:
    row = kept.row
    words = [str(row[name] or "-") for name in _WORDS]
    if row["status"] != "ok" or schema.is_missing(row["time_ms"]):
        return [*words, f"{row['status']}: {quoted(row['reason'] or '')}", *["-"] * (len(_NUMBERS) - 1)]
    times = kept.process_ms
    wander = f"{100 * (max(times) / min(times) - 1):.2f}" if len(times) > 1 else "-"
    counted = str(len(times)) if len(times) == kept.processes else f"{len(times)} of {kept.processes}"
    return [*words, *_figures(row, times), counted, wander]


def _figures(row: Row, times: Sequence[float]) -> list[str]:
    """The time with its interval, and the bandwidth, as a comparison has them."""
    time, speed = (value(row, times, metric) for metric in ("time_ms", "bandwidth_gb_s"))
    ends = ("-",) * 3 if isinstance(time, str) else (f"{ms:.5g}" for ms in (time.middle, time.low, time.high))
    known = [row["time_ms"], row["time_ms_lo"], row["time_ms_hi"]]
    return [
        *(end if given and math.isfinite(given) else "-" for given, end in zip(known, ends, strict=True)),
        "-" if isinstance(speed, str) else figure_text(speed.middle, whole_from=1000),
    ]


def _delete(options: argparse.Namespace) -> int:
    for name in options.names:
        path = baselines.delete_baseline(name, folder=options.dir)
        sys.stderr.write(f"bwprof: baseline {name} is gone ({path_text(path)})\n")
    return OK
