"""The command ``bwprof baseline``: save, list, show and delete what later runs are compared with."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.cli import options as sweeps
from bwprof.cli.commands import sweep
from bwprof.cli.guard import INCOMPLETE, OK, USAGE
from bwprof.cli.options import MixedParser, Parser, run, run_measuring
from bwprof.records import baselines, save_baseline
from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.records.keys import read_metric
from bwprof.records.source import Source, load_source
from bwprof.results.pairs import find_disturbances, find_doubts
from bwprof.results.schema import RowDict
from bwprof.runs.interrupts import Interrupts
from bwprof.text import formatting
from bwprof.text.formatting import format_figure, format_path, plural
from bwprof.text.parsing import describe_unknown, parse_count, quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    from bwprof.hardware import Choice
    from bwprof.results.writer import Store
    from bwprof.runs.plan import Plan

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
    parser = Parser("bwprof baseline show", "A baseline: where it was measured, and a line for each case.", _SHOW_HELP)
    parser.add_argument("name", metavar="NAME", help="what it was saved as")
    add_dir(parser)
    return run(parser, arguments, _show)


_SHOW_HELP = """\
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
        print_table(make_console(sys.stdout), names, rows, numbers=["cases", "processes"])
    for line in found:
        if line["problem"]:
            sys.stderr.write(f"bwprof: error: {line['problem']}\n")
    if not found:
        where = quote_text(baselines.baseline_folder(options.dir))
        sys.stderr.write(f"bwprof: no baselines in {where}: 'bwprof baseline save NAME' makes one\n")
    return INCOMPLETE if len(whole) < len(found) else OK


def _show(options: argparse.Namespace) -> int:
    found = baselines.load_baseline(options.name, folder=options.dir)
    screen = make_console(sys.stdout)
    for line in _head(found):
        screen.print(line, soft_wrap=True)
    doubted = [", ".join((*find_disturbances(row), *find_doubts(row))) for row in found.rows]
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
    told = [f"{found.name}: {plural(len(found.cases), 'case')}, {processes}"]
    told.append(
        f"{found.device or 'no device'}, driver {found.driver or 'unknown'}, bwprof {', '.join(versions) or '?'}"
    )
    runs = ", ".join(str(process["run_id"]) for process in found.processes if process.get("run_id"))
    told.append(f"saved {found.saved or 'at an unknown time'}" + (f", runs {runs}" if runs else ""))
    return [quote_text(line) if len(line) > 200 else line for line in told]


def _cells(kept: BaselineCase) -> list[str]:
    row = kept.row
    words = [str(row[name] or "-") for name in _WORDS]
    if row["status"] != "ok" or formatting.is_missing(row["time_ms"]):
        return [*words, f"{row['status']}: {quote_text(row['reason'] or '')}", *["-"] * (len(_NUMBERS) - 1)]
    times = kept.process_ms
    wander = f"{100 * (max(times) / min(times) - 1):.2f}" if len(times) > 1 else "-"
    counted = str(len(times)) if len(times) == kept.processes else f"{len(times)} of {kept.processes}"
    return [*words, *_figures(row, times), counted, wander]


def _figures(row: RowDict, times: Sequence[float]) -> list[str]:
    """The time with its interval, and the bandwidth, as a comparison has them."""
    time, speed = (read_metric(row, times, metric) for metric in ("time_ms", "bandwidth_gb_s"))
    ends = ("-",) * 3 if isinstance(time, str) else (f"{ms:.5g}" for ms in (time.middle, time.low, time.high))
    known = [row["time_ms"], row["time_ms_lo"], row["time_ms_hi"]]
    return [
        *(end if given and math.isfinite(given) else "-" for given, end in zip(known, ends, strict=True)),
        "-" if isinstance(speed, str) else format_figure(speed.middle, whole_from=1000),
    ]


def _delete(options: argparse.Namespace) -> int:
    for name in options.names:
        path = baselines.delete_baseline(name, folder=options.dir)
        sys.stderr.write(f"bwprof: baseline {name} is gone ({format_path(path)})\n")
    return OK


_log = logging.getLogger("bwprof.sweep")

REPEAT = 5

_DESCRIPTION = """\
Keep measurements as a baseline, which later ones are held against: runs that are there, or a suite that is measured now
in fresh processes. Of several processes it learns how far the medians of each case wander between them.
"""

_EPILOG = f"""\
examples:
  %(prog)s main                            the default suite, in {REPEAT} fresh processes
  %(prog)s main --repeat 3 --suite ci.toml --device cuda:0
  %(prog)s main bwprof-results/2026*       runs that are there, each as a process

exit codes: 0 ok, 2 usage, 3 incomplete (a case failed or the file could not be written), 130 interrupted.
"""


def save_main(arguments: Sequence[str]) -> int:
    """Save a baseline; returns the exit code."""
    given = list(arguments)
    return run_measuring(_parser(), given, lambda parsed, interrupts: _save(parsed, given, interrupts))


def _parser() -> Parser:
    parser = MixedParser("bwprof baseline save", _DESCRIPTION, _EPILOG)  # NAME --repeat 3 OPERATION
    parser.add_argument("name", metavar="NAME", help="what to call it: letters, digits, '.', '_' and '-'")
    parser.add_argument(
        "what", nargs="*", metavar="RUN|FILE", help="runs that are there; with --repeat: operations to measure"
    )
    parser.add_argument("--repeat", metavar="N", help=f"measure in N fresh processes (default without a RUN: {REPEAT})")
    add_dir(parser)
    parser.add_argument("--force", action="store_true", help="replace a baseline of that name")
    sweeps.add_what(parser)
    how = parser.add_argument_group("how")
    sweeps.add_dry_run(how)
    sweeps.add_limits(how)
    sweeps.add_sampling(how)
    sweeps.add_roofs(how)
    out = parser.add_argument_group("output")
    out.add_argument("--output", metavar="DIR", help=f"parent of the runs' folders (default: {sweeps.DEFAULT_OUTPUT})")
    out.add_argument("-q", "--quiet", action="store_true", help="no progress, only warnings and errors")
    out.add_argument("--verbose", action="store_true", help="log what is going on")
    elsewhere = ("csv", "json", "classic_csv", "proof_bundle", "trace", "prometheus", "resume")  # options of sweep
    parser.set_defaults(operations=[], **dict.fromkeys(elsewhere))
    return parser


def _save(parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts) -> int:
    measures = parsed.repeat is not None or not parsed.what
    if not measures:
        clash = sweeps.case_options(parsed) + (["--dry-run"] if parsed.dry_run else [])
        if clash:
            raise ValueError(
                f"runs that are there are measured already: leave out {', '.join(clash)}, or give --repeat"
            )
        with interrupts.at_once():
            _write(parsed, [load_source(found, folder=parsed.dir) for found in parsed.what])
        return OK
    repeat = REPEAT if parsed.repeat is None else parse_count(parsed.repeat, "--repeat")
    if repeat < 1:
        raise ValueError(f"--repeat is {repeat}: allowed is 1 or more")
    parsed.operations = parsed.what
    if parsed.dry_run:
        for choice, made in _planned(parsed, runs=False):
            sweep.print_plan(sys.stdout, made, choice)
        sys.stdout.write(f"each in {repeat} fresh process{'' if repeat == 1 else 'es'}\n")
        return OK
    baselines.prepare_folder(parsed.name, parsed.dir, force=parsed.force)
    return _measured(parsed, given, interrupts, repeat)


def _write(parsed: argparse.Namespace, sources: Sequence[Source]) -> None:
    found = save_baseline.join_sources(parsed.name, sources)
    path = baselines.write_baseline(found, folder=parsed.dir, force=parsed.force)
    sys.stderr.write(f"bwprof: baseline {parsed.name} ({plural(len(found.cases), 'case')}) is in {format_path(path)}\n")
    for told in save_baseline.list_doubts(found):
        _log.warning("%s", told)


def _measured(parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts, repeat: int) -> int:
    """A run for each fresh process, in folders of their own; then the baseline of them all."""
    stores: list[Store] = []
    saved = False
    try:
        code = _runs(parsed, given, interrupts, repeat, stores)
        empty = next((one for one in stores if not _has_times(one)), None)
        if empty is not None:
            why = next((f": {row['reason']}" for row in empty.rows if row.get("reason")), "")
            _log.error("baseline %s is not saved: no case was measured%s", parsed.name, why)
        elif all(map(_is_whole, stores)):
            with interrupts.at_once():
                _write(parsed, [Source(str(one.run["run_id"]), one.rows, one.samples, one.run) for one in stores])
            saved = True
    finally:
        if not saved:
            _tell_finished(parsed, list(filter(_is_whole, stores)))
    return code


def _is_whole(store: Store) -> bool:
    return bool(store.run.get("status") == "complete") and _has_times(store)


def _has_times(store: Store) -> bool:
    return any(map(save_baseline.is_measured, store.rows))


def _runs(
    parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts, repeat: int, stores: list[Store]
) -> int:
    """Measure, until a run is not whole; `stores` get their rows. Returns the worst exit code."""
    from bwprof.cli import runner as command

    sweeps.read_seconds(parsed)
    total = sweeps.read_seconds(parsed.max_total_seconds, "--max-total-seconds")
    each = sweeps.read_seconds(parsed.max_case_seconds, "--max-case-seconds")
    with interrupts.at_once():
        made = _planned(parsed)
    for warning in dict.fromkeys(choice.warning for choice, _ in made if choice.warning):
        _log.warning("%s", warning)
    choice, first = made[0]
    job = command.Job(first, first.specs, made=made, settle=stores.append, show=lambda *_: None, draws=False)
    code = OK
    for number in range(repeat):
        if not parsed.quiet:
            sys.stderr.write(f"bwprof: baseline {parsed.name}: process {number + 1} of {repeat}\n")
        wanted = command.RunInputs(time.monotonic(), total, each, sweeps.read_roofs(parsed))
        code = max(code, command.run(parsed, ["baseline", "save", *given], interrupts, job, choice, wanted))
        if not _is_whole(stores[number]):
            break
        parsed.recalibrate = False  # once is enough
    return code


def _planned(parsed: argparse.Namespace, *, runs: bool = True) -> list[tuple[Choice, Plan]]:
    from bwprof import hardware
    from bwprof.runs import plan

    request = sweeps.read_request(parsed)
    return plan.make_plans(request, hardware.choose_devices(request.backend, request.device), runs=runs)


def _tell_finished(parsed: argparse.Namespace, stores: Sequence[Store]) -> None:
    """It was not saved: what can be made of the runs that are whole."""
    if stores:
        parent = Path(parsed.output) if parsed.output is not None else sweeps.DEFAULT_OUTPUT
        runs = " ".join(str(parent / str(store.run["run_id"])) for store in stores)
        sys.stderr.write(f"bwprof: bwprof baseline save {parsed.name} {runs} saves what is finished\n")


_USAGE = """\
usage: bwprof baseline save NAME               measure the default suite in 5 fresh processes, and keep that
       bwprof baseline save NAME RUN|FILE...   keep runs that are there, each as a process
       bwprof baseline save NAME --repeat N [OPERATION...] [options of bwprof sweep]
       bwprof baseline list                    the baselines that are there
       bwprof baseline show NAME               its cases, and how far their medians wander between processes
       bwprof baseline delete NAME             remove it (or: remove)

A baseline is a file, .bwprof/baselines/NAME.json or in --dir DIR: plain JSON in a stable order, to be committed.
bwprof baseline save --help lists the options.
"""

_ACTIONS: dict[str, Callable[[Sequence[str]], int]] = {
    "save": save_main,
    "list": list_all,
    "show": show,
    "delete": delete,
    "remove": delete,
}


def main_baseline(arguments: Sequence[str] | None = None) -> int:
    """Run an action; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["-h"], ["--help"], ["help"]):
        sys.stdout.write(_USAGE)
        return OK
    if not given:
        sys.stderr.write(_USAGE)
        return USAGE
    if given[0] not in _ACTIONS:
        sys.stderr.write(f"bwprof: error: {describe_unknown('action', given[0], _ACTIONS, where='bwprof baseline')}\n")
        return USAGE
    return _ACTIONS[given[0]](given[1:])
