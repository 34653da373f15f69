"""The command ``bwprof sweep``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence

from bwprof import hardware
from bwprof.cli.shared import options as shared
from bwprof.cli.shared.guard import OK
from bwprof.cli.shared.measuring import run_measuring
from bwprof.cli.sweep import listing, options
from bwprof.runs import plan
from bwprof.runs.interrupts import Interrupts

_log = logging.getLogger("bwprof.sweep")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    started = time.monotonic()
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run_measuring(
        options.parser("bwprof sweep"), given, lambda parsed, interrupts: _command(parsed, given, interrupts, started)
    )


def _command(parsed: argparse.Namespace, given: Sequence[str], interrupts: Interrupts, started: float) -> int:
    from bwprof.cli.sweep import run as command

    shared.check_paths(parsed)
    options.columns(parsed)
    max_total_seconds = shared.limit(parsed.max_total_seconds, "--max-total-seconds")
    max_case_seconds = shared.limit(parsed.max_case_seconds, "--max-case-seconds")
    wanted = command.Given(started, max_total_seconds, max_case_seconds, shared.roofs(parsed), parsed.nvtx)
    if parsed.list:
        _say_unused(parsed, "--list")
        with interrupts.at_once():
            listing.print_operations(sys.stdout, verbose=parsed.verbose)
        return OK
    if parsed.resume is not None:
        clash = options.asks_for_cases(parsed)
        clash += [name for name, asked in (("--dry-run", parsed.dry_run), ("--once", parsed.once)) if asked]
        return command.resume(parsed, given, interrupts, wanted, clash, command.go_on_with_cases)
    with interrupts.at_once():  # a suite may be a pipe, and a large one takes its time
        request = options.request(parsed)
        made = plan.for_each(request, hardware.choose_several(request.backend, request.device), runs=not parsed.dry_run)
    if parsed.dry_run:
        _say_unused(parsed, "--dry-run")
        with interrupts.at_once():
            for choice, own in made:
                roofs = wanted.roofs in (None, "auto")
                listing.print_plan(sys.stdout, own, choice, roofs=roofs, recalibrate=parsed.recalibrate)
        return OK
    for warning in dict.fromkeys(choice.warning for choice, _ in made if choice.warning):
        _log.warning("%s", warning)
    if parsed.once:
        _say_unused(parsed, "--once")
        return max(command.once(own, choice, interrupts, nvtx=parsed.nvtx) for choice, own in made)
    choice, first = made[0]
    return command.run(parsed, given, interrupts, command.Job(first, first.specs, made=made), choice, wanted)


def _say_unused(parsed: argparse.Namespace, instead: str) -> None:
    unused = options.meaningless(parsed, instead)
    if unused:
        _log.warning("%s measures nothing and writes nothing: %s left aside", instead, ", ".join(unused))
