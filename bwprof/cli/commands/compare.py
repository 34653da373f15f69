"""The commands ``bwprof compare`` (the gate of a CI job) and ``bwprof baseline`` (what it compares with)."""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.cli import options as shared
from bwprof.cli.commands import sweep
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, OK
from bwprof.cli.options import ONLY, command, run_group
from bwprof.cli.output import check_picture, choose_targets, emit, writing
from bwprof.cli.render import print_frame, print_lines
from bwprof.records import baselines
from bwprof.records.baselines import Baseline, BaselineCase
from bwprof.records.keys import read_metric
from bwprof.records.regression import report
from bwprof.records.regression.comparison import Comparison, Gate, compare_sources, parse_fail_on
from bwprof.records.regression.verdicts import DISTURBED_WORD, NOT_COMPARABLE, UNDECIDED
from bwprof.records.source import is_measured, join_sources, list_doubts, load_source, make_source
from bwprof.results.pairs import find_disturbances, find_doubts
from bwprof.text.formatting import format_figure, format_path, is_missing, plural
from bwprof.text.parsing import quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from bwprof.results.writer import Store

REPEAT = 5
_log = logging.getLogger("bwprof.sweep")

_DIR = f"""\
--store, --dir DIR  where baselines are (default: {baselines.FOLDER})
"""


@command(f"""\
base=BASE  a run, a .csv or .json file of results, or a baseline (baseline:NAME)
new=NEW  the results to judge: a run, file or baseline

what to compare:
--metric NAME = time_ms  time_ms, bandwidth_gb_s or traffic_ratio
{ONLY}
--across  also compare rows of different devices, drivers or timers
{_DIR}
how to judge:
--fail-on slower|any|SHARE = never  slower: exit with 1 if a case is slower; any: if one is slower or faster; 5%: if one
  is slower, perhaps by 5 % or more
--gate SHARE  the smallest change to report (default: 1% for a baseline of several processes, else 3%)
--[no-]confirm  with --fail-on measure failing and undecided cases again in a fresh process, if their device is present
  (default). A case fails only if it does twice. With fewer than five processes in BASE: up to five measurements
-q, --quiet  print no progress

output:
--all  also print cases that are the same, not comparable, or on one side only
--power  print the smallest change that the gate finds in each case
--csv FILE|-  also write the comparison as CSV; with - the table goes to standard error
--json FILE|-  also write it as JSON, likewise
--md FILE|-  also write it as Markdown; appends to the file in $GITHUB_STEP_SUMMARY
--force  replace existing files
--plot PICTURE  draw the ratios; the ending is the format
--github  print an ::error line for each case that fails
""")
def main_compare(options: argparse.Namespace) -> int:
    """Compare two runs case by case: which cases became slower by more than chance, and probably why.

    A baseline of several processes (bwprof baseline save NAME --repeat 5) finds smaller changes than a single run.

    Examples:
      bwprof compare bwprof-results/20260101-120000-ab12 bwprof-results/20260102-120000-cd34
      bwprof compare baseline:main RUN --fail-on 5% --md "$GITHUB_STEP_SUMMARY" --github
      bwprof compare baseline:main RUN --power

    exit codes: 0 ok, 1 the gate failed (--fail-on), 2 usage, 3 incomplete (--fail-on: a case of BASE failed or is
    missing in NEW, a slower one was disturbed, one is undecided, or none could be judged).
    """
    from bwprof.records.regression.compare import confirm_changes
    from bwprof.results import frame

    fail_on = parse_fail_on(options.fail_on, "--fail-on")
    if options.plot is not None:
        check_picture("--plot", options.plot, force=options.force)
    targets = choose_targets(options, options.base, options.new)
    base, new = (load_source(name, folder=options.dir) for name in (options.base, options.new))
    if options.only:
        base, new = (rows.only(tuple(options.only)) for rows in (base, new))
    confirm = options.confirm is not False
    how = {"gate": options.gate, "across": options.across, "metric": options.metric, "tries": 2 if confirm else 1}
    comparison = compare_sources(base, new, **how)
    if confirm and fail_on != "never":
        comparison = confirm_changes(comparison, new, fail_on, quiet=options.quiet)
    gate = comparison.apply_gate(fail_on)
    heads = [_gate_line(comparison, gate)] if gate.fail_on != "never" else []
    _print(comparison, heads, make_console(sys.stderr if "-" in targets.values() else sys.stdout), options)
    texts = {
        "csv": lambda: frame.format_csv(comparison.frame()),
        "json": lambda: _json(comparison, gate),
        "md": lambda: report.format_markdown(comparison, heads, gate),
    }
    code = emit(targets, texts)
    if options.plot is not None:
        from bwprof.plot import regressions

        with writing():
            regressions.save_ratios(comparison.frame(), options.plot)
    if options.github:
        sys.stdout.writelines(f"{line}\n" for line in report.github_lines(comparison, gate, options.new))
    return _exit_code(comparison, gate, code)


def _exit_code(comparison: Comparison, gate: Gate, written: int) -> int:
    """Return the gate's exit code, or that of the files where the gate passes."""
    if gate.failed:
        return GATE_FAILED
    unjudged = gate.fail_on != "never" and not comparison.judged
    return INCOMPLETE if gate.unsettled or unjudged else written


def _gate_line(comparison: Comparison, gate: Gate) -> str:
    """Describe whether the gate failed, and what it could not judge."""
    threshold = f"{100 * gate.fail_on:g}%" if isinstance(gate.fail_on, float) else gate.fail_on
    missing = set(gate.missing)
    names = report.first_names(comparison, gate.undecided)
    lines = [line for place, line in enumerate(comparison.lines) if place not in missing]
    unjudged = sum(line.verdict in (DISTURBED_WORD, NOT_COMPARABLE) for line in lines)
    disturbed = bool(gate.suspects) or (not comparison.judged and bool(comparison.counts[DISTURBED_WORD]))
    parts = {
        f"gate --fail-on {threshold}: {_gate_result(comparison, gate)}": True,
        f"{len(gate.missing)} failed or missing": gate.missing,
        f"{len(gate.suspects)} slower, disturbed, and not measured again": gate.suspects,
        f"{unjudged} of {len(comparison.lines)} cases could not be judged": unjudged,
        f"{len(gate.undecided)} undecided: {', '.join(names)}": names,
        _advice(comparison): disturbed,
    }
    return "; ".join(text for text, applies in parts.items() if applies)


def _gate_result(comparison: Comparison, gate: Gate) -> str:
    if gate.failed:
        again = " (measured again)" if comparison.confirmed else ""
        return f"failed: {len(gate.failed)} of {len(comparison.tested)} cases{again}"
    if gate.missing or gate.suspects or (gate.undecided and comparison.judged):
        return "incomplete"
    return "passed" if comparison.judged else "nothing to judge by"


def _advice(comparison: Comparison) -> str:
    """Describe which side to measure again."""
    pairs = [line.pair for line in comparison.lines if line.verdict == DISTURBED_WORD]
    sides = {"BASE": [pair.base for pair in pairs], "NEW": [pair.new for pair in pairs]}
    disturbed = [name for name, rows in sides.items() if any(row and find_disturbances(row) for row in rows)]
    names = " and ".join(disturbed) or "NEW"  # where only the second try was disturbed
    return f"measure {names} again when nothing else uses the device, or both turn by turn (bwprof ab)"


def _print(comparison: Comparison, heads: Sequence[str], screen: Console, options: argparse.Namespace) -> None:
    places = report.sort_lines(comparison, everything=options.all)
    apart = [place for place in places if comparison.lines[place].verdict == NOT_COMPARABLE and not options.all]
    others = [place for place in places if place not in set(apart)]
    whole = "" if options.all else "--all shows them"
    print_lines(screen, report.detail_lines(comparison, apart, whole=whole))
    title = f"{quote_text(comparison.base)} -> {quote_text(comparison.new)}"
    listed = places if options.all else report.two_sided(comparison, others)
    if listed:
        table = report.verdict_table(comparison, listed)
        print_frame(screen, title, table, numbers=report.NUMBERS, spare=("limit %", "95 %"))
    elif not apart:
        screen.print(title)
    if len(places) < len(comparison.lines):
        screen.print(f"{len(comparison.lines) - len(places)} unchanged (--all shows them)")
    if options.power:
        more = ", and confirmed" if options.confirm is not False else ""
        title = f"The smallest change that is found 95 times in 100{more}"
        print_frame(screen, title, report.power_table(comparison), numbers=report.POWER_NUMBERS)
        print_lines(screen, [report.POWER_NOTE])
    screen.print()
    print_lines(screen, report.detail_lines(comparison, others, whole=whole))
    ends = (*comparison.notes, report.describe_chance(comparison), report.format_summary(comparison), *heads)
    print_lines(screen, filter(None, ends))


def _json(comparison: Comparison, gate: Gate) -> str:
    names = comparison.names
    records = comparison.frame().to_dict(orient="records")
    document: dict[str, Any] = {
        "format": "bwprof-comparison",
        "base": comparison.base,
        "new": comparison.new,
        "metric": comparison.metric,
        "gate": comparison.gate,
        "fail_on": gate.fail_on,
        "failed": [names[place] for place in gate.failed],
        "undecided": [names[place] for place, line in enumerate(comparison.lines) if line.verdict == UNDECIDED],
        "summary": report.format_summary(comparison),
        "counts": dict(comparison.counts),
        "notes": list(comparison.notes),
        "rows": [{name: _plain(value) for name, value in record.items()} for record in records],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return None for what JSON cannot hold: NaN and infinity."""
    return None if is_missing(value) or (isinstance(value, float) and math.isinf(value)) else value


_SAVE_TABLE = f"""\
name=NAME  the baseline's name: letters, digits, '.', '_' and '-'
what=RUN|FILE*  finished runs, or with --repeat operations to measure
--repeat N  measure in N fresh processes (default without a RUN: {REPEAT})
{_DIR}
--force  replace a baseline of that name
{shared.CASES_AND_DEVICES}
how:
{shared.DRY_RUN}
{shared.LIMITS}
{shared.SAMPLING}
{shared.ROOFS}

output:
--output DIR  parent of the runs' folders (default: {shared.DEFAULT_OUTPUT})
-q, --quiet  print no progress
{shared.VERBOSE}"""

_BASELINE_USAGE = """\
usage: bwprof baseline save NAME               measure the default suite in 5 fresh processes, and save that
       bwprof baseline save NAME RUN|FILE...   save finished runs, each as a process
       bwprof baseline save NAME --repeat N [OPERATION...] [options of bwprof sweep]
       bwprof baseline list                    list the baselines
       bwprof baseline show NAME               print its cases, and how much they vary between processes
       bwprof baseline delete NAME...          delete baselines, also damaged ones

A baseline is the file .bwprof/baselines/NAME.json (--dir DIR: another folder). Commit it.
bwprof baseline save --help lists the options.
"""


def main_baseline(arguments: Sequence[str] | None = None) -> int:
    """Save, list, show or delete what later runs are compared with; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    commands = {"list": main_baseline_list, "show": main_baseline_show}
    commands |= dict.fromkeys(("delete", "remove"), main_baseline_delete)
    return run_group("baseline", words, _BASELINE_USAGE, {"save": main_baseline_save, **commands})


@command(_DIR)
def main_baseline_list(options: argparse.Namespace) -> int:
    """List the baselines."""
    known = baselines.baselines(folder=options.dir)
    readable = [line for line in known if not line["problem"]]
    if readable:
        names = ["name", "cases", "processes", "device", "driver", "saved"]
        rows = ([str(line[name]) for name in names] for line in readable)
        print_table(make_console(sys.stdout), names, rows, numbers=["cases", "processes"])
    sys.stderr.writelines(f"bwprof: error: {line['problem']}\n" for line in known if line["problem"])
    if not known:
        folder = quote_text(baselines.baseline_folder(options.dir))
        sys.stderr.write(f"bwprof: no baselines in {folder}: 'bwprof baseline save NAME' makes one\n")
    return INCOMPLETE if len(readable) < len(known) else OK


@command(f"name=NAME  the baseline\n{_DIR}")
def main_baseline_show(options: argparse.Namespace) -> int:
    """Print where a baseline was measured, and a line for each of its cases.

    time: the geometric mean of the processes, with the interval within a process.
    processes: those that count. Disturbed ones do not, unless all are. Runs of one process are joined.
    spread: how much longer the slowest process takes than the fastest, by medians.
    """
    baseline = baselines.load_baseline(options.name, folder=options.dir)
    screen = make_console(sys.stdout)
    for line in _head(baseline):
        screen.print(quote_text(line) if len(line) > 200 else line, soft_wrap=True)
    words, numbers = ["case", "precision", "variant", "cache"], ["time, ms", "95 % from", "to", "GB/s", "processes"]
    numbers.append("spread, %")
    notes = [", ".join((*find_disturbances(row), *find_doubts(row))) for row in baseline.rows]
    more = ["doubts"] if any(notes) else []
    lines = []
    for case, note in zip(baseline.cases, notes, strict=True):
        names = [str(case.row[name] or "-") for name in words]
        lines.append([*names, *_figures(case), *([note] if more else [])])
    print_table(screen, [*words, *numbers, *more], lines, numbers=numbers)
    return OK


def _head(baseline: Baseline) -> list[str]:
    count = baseline.most_processes
    processes = baseline.joined or ("one process" if count == 1 else f"{count} processes")
    if count == 1:
        processes += ": how much medians vary between processes is not known"
    versions = dict.fromkeys(str(row["bwprof_version"]) for row in baseline.rows if row["bwprof_version"])
    device = f"{baseline.device or 'no device'}, driver {baseline.driver or 'unknown'}"
    runs = ", ".join(str(process["run_id"]) for process in baseline.processes if process.get("run_id"))
    return [
        f"{baseline.name}: {plural(len(baseline.cases), 'case')}, {processes}",
        f"{device}, bwprof {', '.join(versions) or '?'}",
        f"saved {baseline.saved or 'at an unknown time'}" + (f", runs {runs}" if runs else ""),
    ]


def _figures(case: BaselineCase) -> list[str]:
    """List the time with its interval, the bandwidth, the processes and their spread."""
    row, times = case.row, case.process_ms
    if row["status"] != "ok" or is_missing(row["time_ms"]):
        return [f"{row['status']}: {quote_text(row['reason'] or '')}", *["-"] * 5]
    time, speed = (read_metric(row, times, metric) for metric in ("time_ms", "bandwidth_gb_s"))
    ends = ("-",) * 3 if isinstance(time, str) else (f"{ms:.5g}" for ms in (time.middle, time.low, time.high))
    known = (row["time_ms"], row["time_ms_lo"], row["time_ms_hi"])
    return [
        *(end if ms and math.isfinite(ms) else "-" for ms, end in zip(known, ends, strict=True)),
        "-" if isinstance(speed, str) else format_figure(speed.middle, whole_from=1000),
        str(len(times)) if len(times) == case.processes else f"{len(times)} of {case.processes}",
        f"{100 * (max(times) / min(times) - 1):.2f}" if len(times) > 1 else "-",
    ]


@command(f"names=NAME+  the baselines\n{_DIR}")
def main_baseline_delete(options: argparse.Namespace) -> int:
    """Remove baselines, also damaged ones."""
    for name in options.names:
        path = baselines.delete_baseline(name, folder=options.dir)
        sys.stderr.write(f"bwprof: baseline {name} is gone ({format_path(path)})\n")
    return OK


_OF_SWEEP: dict[str, Any] = dict.fromkeys(
    ("csv", "json", "classic_csv", "proof_bundle", "trace", "prometheus", "resume")
)


@command(_SAVE_TABLE, measuring=True, mixed=True, operations=(), **_OF_SWEEP)
def main_baseline_save(options: argparse.Namespace) -> int:
    """Save measurements as a baseline, the BASE of bwprof compare.

    Without finished runs measure a suite in fresh processes, which show how much each case varies between them.

    Examples:
      bwprof baseline save main                        the default suite, in 5 fresh processes
      bwprof baseline save main --repeat 3 --suite ci.toml --device cuda:0
      bwprof baseline save main bwprof-results/2026*   finished runs, each as a process

    exit codes: 0 ok, 2 usage, 3 incomplete (a case failed, or the file was not written), 130 interrupted.
    """
    if options.repeat is None and options.what:
        if clash := sweep.case_options(options, "dry_run"):
            raise ValueError(f"finished runs are measured already: leave out {', '.join(clash)}, or give --repeat")
        with options.interrupts.at_once():
            _save(options, [load_source(name, folder=options.dir) for name in options.what])
        return OK
    options.repeat = REPEAT if options.repeat is None else options.repeat
    if options.repeat < 1:
        raise ValueError(f"--repeat is {options.repeat}: allowed is 1 or more")
    options.operations = options.what
    if options.dry_run:
        for choice, plan in sweep.plan_cases(options, runs=False):
            sweep.print_plan(sys.stdout, plan, choice)
        sys.stdout.write(f"each in {options.repeat} fresh process{'' if options.repeat == 1 else 'es'}\n")
        return OK
    baselines.prepare_folder(options.name, options.dir, force=options.force)
    return _measure(options)


def _save(options: argparse.Namespace, sources: Sequence[Baseline]) -> None:
    baseline = join_sources(options.name, sources)
    path = format_path(baselines.write_baseline(baseline, folder=options.dir, force=options.force))
    sys.stderr.write(f"bwprof: baseline {options.name} ({plural(len(baseline.cases), 'case')}) is in {path}\n")
    for doubt in list_doubts(baseline):
        _log.warning("%s", doubt)


def _measure(options: argparse.Namespace) -> int:
    """Measure a run in each fresh process, in folders of their own, and save the baseline of them all."""
    stores: list[Store] = []
    saved = False
    try:
        code = _run_each(options, stores)
        empty = next((store for store in stores if not _has_times(store)), None)
        if empty is not None:
            reason = next((f": {row['reason']}" for row in empty.rows if row.get("reason")), "")
            _log.error("baseline %s is not saved: no case was measured%s", options.name, reason)
        elif all(map(_is_complete, stores)):
            sources = [make_source(str(store.run["run_id"]), store.rows, store.samples, store.run) for store in stores]
            with options.interrupts.at_once():
                _save(options, sources)
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


def _run_each(options: argparse.Namespace, stores: list[Store]) -> int:
    """Measure until a run is incomplete; `stores` get their rows. Returns the worst exit code."""
    from bwprof.cli import runner

    options.argv = ["baseline", "save", *options.argv]
    runner.read_options(options)
    roofs = options.roofs_argument
    plans = sweep.plan_cases(options)
    sweep.warn_of_choices(plans)
    choice, first = plans[0]
    job = runner.Job(first, first.specs, made=plans, settle=stores.append, show=lambda *_: None, draws=False)
    code = OK
    for number in range(options.repeat):
        if not options.quiet:
            sys.stderr.write(f"bwprof: baseline {options.name}: process {number + 1} of {options.repeat}\n")
        options.started, options.roofs_argument = time.monotonic(), roofs
        code = max(code, runner.run(options, job, choice))
        if not _is_complete(stores[number]):
            break
        options.recalibrate = False  # once is enough
    return code
