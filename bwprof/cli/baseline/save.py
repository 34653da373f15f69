"""``bwprof baseline save``: from runs that are there, or from a suite measured in fresh processes."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bwprof.cli.baseline.kept import add_dir
from bwprof.cli.shared import options
from bwprof.cli.shared.arguments import MixedParser, Parser
from bwprof.cli.shared.guard import OK
from bwprof.cli.shared.measuring import run_measuring
from bwprof.cli.sweep import listing
from bwprof.cli.sweep import options as sweeps
from bwprof.records import baselines, saving
from bwprof.records.sides import Side, side
from bwprof.runs.interrupts import Interrupts
from bwprof.text import counted, parse_count, path_text

if TYPE_CHECKING:
    from bwprof.hardware import Choice
    from bwprof.results.writer import Store
    from bwprof.runs.plan import Plan

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


def main(arguments: Sequence[str]) -> int:
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
    options.add_dry_run(how)
    options.add_limits(how)
    options.add_sampling(how)
    options.add_roofs(how)
    out = parser.add_argument_group("output")
    out.add_argument("--output", metavar="DIR", help=f"parent of the runs' folders (default: {options.DEFAULT_OUTPUT})")
    out.add_argument("-q", "--quiet", action="store_true", help="no progress, only warnings and errors")
    out.add_argument("--verbose", action="store_true", help="log what is going on")
    elsewhere = ("csv", "json", "classic_csv", "proof_bundle", "trace", "prometheus", "resume")  # options of sweep
    parser.set_defaults(operations=[], **dict.fromkeys(elsewhere))
    return parser


def _save(parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts) -> int:
    measures = parsed.repeat is not None or not parsed.what
    if not measures:
        clash = sweeps.asks_for_cases(parsed) + (["--dry-run"] if parsed.dry_run else [])
        if clash:
            raise ValueError(
                f"runs that are there are measured already: leave out {', '.join(clash)}, or give --repeat"
            )
        with interrupts.at_once():
            _write(parsed, [side(found, folder=parsed.dir) for found in parsed.what])
        return OK
    repeat = REPEAT if parsed.repeat is None else parse_count(parsed.repeat, "--repeat")
    if repeat < 1:
        raise ValueError(f"--repeat is {repeat}: allowed is 1 or more")
    parsed.operations = parsed.what
    if parsed.dry_run:
        for choice, made in _planned(parsed, runs=False):
            listing.print_plan(sys.stdout, made, choice)
        sys.stdout.write(f"each in {repeat} fresh process{'' if repeat == 1 else 'es'}\n")
        return OK
    baselines.prepare(parsed.name, parsed.dir, force=parsed.force)
    return _measured(parsed, given, interrupts, repeat)


def _write(parsed: argparse.Namespace, sources: Sequence[Side]) -> None:
    found = saving.made_of(parsed.name, sources)
    path = baselines.write(found, folder=parsed.dir, force=parsed.force)
    sys.stderr.write(f"bwprof: baseline {parsed.name} ({counted(len(found.cases), 'case')}) is in {path_text(path)}\n")
    for told in saving.doubts_of(found):
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
                _write(parsed, [Side(str(one.run["run_id"]), one.rows, one.samples, one.run) for one in stores])
            saved = True
    finally:
        if not saved:
            _tell_finished(parsed, list(filter(_is_whole, stores)))
    return code


def _is_whole(store: Store) -> bool:
    return bool(store.run.get("status") == "complete") and _has_times(store)


def _has_times(store: Store) -> bool:
    return any(map(saving.is_measured, store.rows))


def _runs(
    parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts, repeat: int, stores: list[Store]
) -> int:
    """Measure, until a run is not whole; `stores` get their rows. Returns the worst exit code."""
    from bwprof.cli.sweep import run as command

    options.check_paths(parsed)
    total = options.limit(parsed.max_total_seconds, "--max-total-seconds")
    each = options.limit(parsed.max_case_seconds, "--max-case-seconds")
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
        wanted = command.Given(time.monotonic(), total, each, options.roofs(parsed))
        code = max(code, command.run(parsed, ["baseline", "save", *given], interrupts, job, choice, wanted))
        if not _is_whole(stores[number]):
            break
        parsed.recalibrate = False  # once is enough
    return code


def _planned(parsed: argparse.Namespace, *, runs: bool = True) -> list[tuple[Choice, Plan]]:
    from bwprof import hardware
    from bwprof.runs import plan

    request = sweeps.request(parsed)
    return plan.for_each(request, hardware.choose_several(request.backend, request.device), runs=runs)


def _tell_finished(parsed: argparse.Namespace, stores: Sequence[Store]) -> None:
    """It was not saved: what can be made of the runs that are whole."""
    if stores:
        parent = Path(parsed.output) if parsed.output is not None else options.DEFAULT_OUTPUT
        runs = " ".join(str(parent / str(store.run["run_id"])) for store in stores)
        sys.stderr.write(f"bwprof: bwprof baseline save {parsed.name} {runs} saves what is finished\n")
