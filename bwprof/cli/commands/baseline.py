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

from bwprof.cli import options as shared
from bwprof.cli.commands import sweep
from bwprof.cli.guard import INCOMPLETE, OK, USAGE
from bwprof.cli.options import MixedParser, Parser, run, run_measuring
from bwprof.records import baselines
from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.records.keys import read_metric
from bwprof.records.source import is_measured, join_sources, list_doubts, load_source, make_source
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

_log = logging.getLogger("bwprof.sweep")
_WORDS = ("case", "precision", "variant", "cache")
_NUMBERS = ("time, ms", "95 % from", "to", "GB/s", "processes", "wander, %")
REPEAT = 5

DIR = f"""\
--dir, --store DIR  where baselines are (default: {baselines.FOLDER})
"""

_SHOW_EPILOG = """\
time: the geometric mean over the processes that count, as bwprof compare has it, with the interval within one of them.
processes: those that count; disturbed ones are left out where others are not ("1 of 3"); runs of one are joined.
wander: how far apart the medians of the processes are, the longest from the shortest, of the shortest.
"""

_DESCRIPTION = """\
Save measurements as a baseline, with which later ones are compared: finished runs, or a suite that is measured now in
fresh processes. Several processes show how much the median of each case scatters between them.
"""

_TABLE = f"""\
name=NAME  what to call it: letters, digits, '.', '_' and '-'
what=RUN|FILE*  finished runs; with --repeat: operations to measure
--repeat N  measure in N fresh processes (default without a RUN: {REPEAT})
{DIR}
--force  replace a baseline of that name
{shared.CASES_AND_DEVICES}
how:
{shared.DRY_RUN}
{shared.LIMITS}
{shared.SAMPLING}
{shared.ROOFS}

output:
--output DIR  parent of the runs' folders (default: {shared.DEFAULT_OUTPUT})
-q, --quiet  no progress, only warnings and errors
{shared.VERBOSE}"""

_EPILOG = f"""\
examples:
  %(prog)s main                            the default suite, in {REPEAT} fresh processes
  %(prog)s main --repeat 3 --suite ci.toml --device cuda:0
  %(prog)s main bwprof-results/2026*       finished runs, each as a process

exit codes: 0 ok, 2 usage, 3 incomplete (a case failed or the file could not be written), 130 interrupted.
"""

_USAGE = """\
usage: bwprof baseline save NAME               measure the default suite in 5 fresh processes, and save that
       bwprof baseline save NAME RUN|FILE...   save finished runs, each as a process
       bwprof baseline save NAME --repeat N [OPERATION...] [options of bwprof sweep]
       bwprof baseline list                    list the baselines
       bwprof baseline show NAME               print its cases, and how much their medians scatter between processes
       bwprof baseline delete NAME             remove it (or: remove)

A baseline is a file, .bwprof/baselines/NAME.json or in --dir DIR: plain JSON in a stable order, to be committed.
bwprof baseline save --help lists the options.
"""


def main_baseline(arguments: Sequence[str] | None = None) -> int:
    """Run an action; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words in (["-h"], ["--help"], ["help"]):
        (sys.stdout if words else sys.stderr).write(_USAGE)
        return OK if words else USAGE
    action, *rest = words
    if action == "save":
        parser = MixedParser(
            "bwprof baseline save", _DESCRIPTION, _TABLE, _EPILOG, seed="0"
        )  # NAME --repeat 3 OPERATION
        of_sweep = ("csv", "json", "classic_csv", "proof_bundle", "trace", "prometheus", "resume")
        parser.set_defaults(operations=[], **dict.fromkeys(of_sweep))
        return run_measuring(parser, rest, lambda options, interrupts: _save(options, rest, interrupts))
    if action not in _ACTIONS:
        sys.stderr.write(
            f"bwprof: error: {describe_unknown('action', action, ['save', *_ACTIONS], where='bwprof baseline')}\n"
        )
        return USAGE
    command, text, table, epilog = _ACTIONS[action]
    return run(Parser(f"bwprof baseline {action}", text, table + DIR, epilog), rest, command)


def _list(options: argparse.Namespace) -> int:
    known = baselines.baselines(folder=options.dir)
    readable = [line for line in known if not line["problem"]]
    if readable:
        names = ["name", "cases", "processes", "device", "driver", "saved"]
        rows = ([str(line[name]) for name in names] for line in readable)
        print_table(make_console(sys.stdout), names, rows, numbers=["cases", "processes"])
    for line in known:
        if line["problem"]:
            sys.stderr.write(f"bwprof: error: {line['problem']}\n")
    if not known:
        folder = quote_text(baselines.baseline_folder(options.dir))
        sys.stderr.write(f"bwprof: no baselines in {folder}: 'bwprof baseline save NAME' makes one\n")
    return INCOMPLETE if len(readable) < len(known) else OK


def _show(options: argparse.Namespace) -> int:
    baseline = baselines.load_baseline(options.name, folder=options.dir)
    screen = make_console(sys.stdout)
    for line in _head(baseline):
        screen.print(line, soft_wrap=True)
    notes = [", ".join((*find_disturbances(row), *find_doubts(row))) for row in baseline.rows]
    more = ["doubts"] if any(notes) else []
    lines = [_cells(case) + ([note] if more else []) for case, note in zip(baseline.cases, notes, strict=True)]
    print_table(screen, [*_WORDS, *_NUMBERS, *more], lines, numbers=_NUMBERS)
    return OK


def _head(baseline: Baseline) -> list[str]:
    count = baseline.most_processes
    processes = baseline.joined or ("one process" if count == 1 else f"{count} processes")
    if count == 1:
        processes += ": how far medians wander between processes is not known"
    versions = dict.fromkeys(str(row["bwprof_version"]) for row in baseline.rows if row["bwprof_version"])
    device = f"{baseline.device or 'no device'}, driver {baseline.driver or 'unknown'}"
    runs = ", ".join(str(process["run_id"]) for process in baseline.processes if process.get("run_id"))
    lines = [
        f"{baseline.name}: {plural(len(baseline.cases), 'case')}, {processes}",
        f"{device}, bwprof {', '.join(versions) or '?'}",
        f"saved {baseline.saved or 'at an unknown time'}" + (f", runs {runs}" if runs else ""),
    ]
    return [quote_text(line) if len(line) > 200 else line for line in lines]


def _cells(case: BaselineCase) -> list[str]:
    row = case.row
    words = [str(row[name] or "-") for name in _WORDS]
    if row["status"] != "ok" or formatting.is_missing(row["time_ms"]):
        return [*words, f"{row['status']}: {quote_text(row['reason'] or '')}", *["-"] * (len(_NUMBERS) - 1)]
    times = case.process_ms
    wander = f"{100 * (max(times) / min(times) - 1):.2f}" if len(times) > 1 else "-"
    counted = str(len(times)) if len(times) == case.processes else f"{len(times)} of {case.processes}"
    return [*words, *_figures(row, times), counted, wander]


def _figures(row: RowDict, times: Sequence[float]) -> list[str]:
    """List the time with its interval, and the bandwidth, as a comparison has them."""
    time, speed = (read_metric(row, times, metric) for metric in ("time_ms", "bandwidth_gb_s"))
    ends = ("-",) * 3 if isinstance(time, str) else (f"{ms:.5g}" for ms in (time.middle, time.low, time.high))
    columns = [row["time_ms"], row["time_ms_lo"], row["time_ms_hi"]]
    return [
        *(end if known and math.isfinite(known) else "-" for known, end in zip(columns, ends, strict=True)),
        "-" if isinstance(speed, str) else format_figure(speed.middle, whole_from=1000),
    ]


def _delete(options: argparse.Namespace) -> int:
    for name in options.names:
        path = baselines.delete_baseline(name, folder=options.dir)
        sys.stderr.write(f"bwprof: baseline {name} is gone ({format_path(path)})\n")
    return OK


_DELETE = (_delete, "Remove baselines, also damaged ones.", "names=NAME+  the baselines\n", "")

_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], int], str, str, str]] = {
    "list": (_list, "List the baselines.", "", ""),
    "show": (
        _show,
        "Print where a baseline was measured, and a line for each of its cases.",
        "name=NAME  the baseline\n",
        _SHOW_EPILOG,
    ),
    "delete": _DELETE,
    "remove": _DELETE,
}


def _save(options: argparse.Namespace, argv: Sequence[str], interrupts: Interrupts) -> int:
    if options.repeat is None and options.what:
        clash = shared.case_options(options) + (["--dry-run"] if options.dry_run else [])
        if clash:
            raise ValueError(f"finished runs are measured already: leave out {', '.join(clash)}, or give --repeat")
        with interrupts.at_once():
            _write(options, [load_source(name, folder=options.dir) for name in options.what])
        return OK
    repeat = REPEAT if options.repeat is None else parse_count(options.repeat, "--repeat")
    if repeat < 1:
        raise ValueError(f"--repeat is {repeat}: allowed is 1 or more")
    options.operations = options.what
    if options.dry_run:
        for choice, plan in _plan_each(options, runs=False):
            sweep.print_plan(sys.stdout, plan, choice)
        sys.stdout.write(f"each in {repeat} fresh process{'' if repeat == 1 else 'es'}\n")
        return OK
    baselines.prepare_folder(options.name, options.dir, force=options.force)
    return _measure(options, argv, interrupts, repeat)


def _write(options: argparse.Namespace, sources: Sequence[Baseline]) -> None:
    baseline = join_sources(options.name, sources)
    path = format_path(baselines.write_baseline(baseline, folder=options.dir, force=options.force))
    sys.stderr.write(f"bwprof: baseline {options.name} ({plural(len(baseline.cases), 'case')}) is in {path}\n")
    for doubt in list_doubts(baseline):
        _log.warning("%s", doubt)


def _measure(options: argparse.Namespace, argv: Sequence[str], interrupts: Interrupts, repeat: int) -> int:
    """Measure a run in each fresh process, in folders of their own, and save the baseline of them all."""
    stores: list[Store] = []
    saved = False
    try:
        code = _run_each(options, argv, interrupts, repeat, stores)
        empty = next((store for store in stores if not _has_times(store)), None)
        if empty is not None:
            reason = next((f": {row['reason']}" for row in empty.rows if row.get("reason")), "")
            _log.error("baseline %s is not saved: no case was measured%s", options.name, reason)
        elif all(map(_is_complete, stores)):
            sources = [make_source(str(store.run["run_id"]), store.rows, store.samples, store.run) for store in stores]
            with interrupts.at_once():
                _write(options, sources)
            saved = True
    finally:
        complete = list(filter(_is_complete, stores))
        if complete and not saved:
            parent = Path(options.output) if options.output is not None else shared.DEFAULT_OUTPUT
            runs = " ".join(str(parent / str(store.run["run_id"])) for store in complete)
            sys.stderr.write(f"bwprof: bwprof baseline save {options.name} {runs} saves what is finished\n")
    return code


def _is_complete(store: Store) -> bool:
    return bool(store.run.get("status") == "complete") and _has_times(store)


def _has_times(store: Store) -> bool:
    return any(map(is_measured, store.rows))


def _run_each(
    options: argparse.Namespace, argv: Sequence[str], interrupts: Interrupts, repeat: int, stores: list[Store]
) -> int:
    """Measure until a run is incomplete; `stores` get their rows. Returns the worst exit code."""
    from bwprof.cli import runner

    argv = ["baseline", "save", *argv]
    runner.read_invocation(options, argv, interrupts, 0.0)  # an option that cannot be read is an error before any work
    with interrupts.at_once():
        plans = _plan_each(options)
    sweep.warn_of_choices(plans)
    choice, first = plans[0]
    job = runner.Job(first, first.specs, made=plans, settle=stores.append, show=lambda *_: None, draws=False)
    code = OK
    for number in range(repeat):
        if not options.quiet:
            sys.stderr.write(f"bwprof: baseline {options.name}: process {number + 1} of {repeat}\n")
        call = runner.read_invocation(options, argv, interrupts, time.monotonic())
        code = max(code, runner.run(call, job, choice))
        if not _is_complete(stores[number]):
            break
        options.recalibrate = False  # once is enough
    return code


def _plan_each(options: argparse.Namespace, *, runs: bool = True) -> list[tuple[Choice, Plan]]:
    from bwprof import hardware
    from bwprof.runs import plan

    request = shared.read_request(options)
    return plan.make_plans(request, hardware.choose_devices(request.backend, request.device), runs=runs)
