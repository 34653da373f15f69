"""The command ``bwprof selftest``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bwprof.cli.shared.arguments import BACKEND_HELP, DEVICE_HELP, Parser
from bwprof.cli.shared.guard import GATE_FAILED, OK, data_stream
from bwprof.cli.shared.measuring import run_measuring
from bwprof.cli.shared.outputs import check_free
from bwprof.results.files import atomic_write
from bwprof.results.jsonfile import plain
from bwprof.runs.interrupts import Interrupts
from bwprof.selftest.part import Report, Value
from bwprof.terminal import console, print_table
from bwprof.text import seconds_text

_DESCRIPTION = "Hold bwprof's figures against independent witnesses on this machine, and print how well they agree."
_EPILOG = """\
parts (all when none is named):
  timers    the graph's time against CUPTI's timestamps of the same kernels
  cache     the same kernel made cold by rotation and by flushes
  counters  DRAM bytes read in a cold rotation, by hardware counter
  repeat    A/A comparisons: how often two measurements of the same thing are said to differ

exit codes: 0 no gate failed, 1 a gate failed, 2 usage, 3 incomplete (a device error, a wrong result), 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_measuring(_parser(), arguments, _command)


def _parser() -> Parser:
    parser = Parser("bwprof selftest", _DESCRIPTION, _EPILOG)
    parser.add_argument("parts", nargs="*", metavar="PART", help="timers, cache, counters, repeat")
    parser.add_argument("--quick", action="store_true", help="fewer cases and repetitions")
    parser.add_argument("--device", metavar="D", help=DEVICE_HELP)
    parser.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)
    parser.add_argument("--json", metavar="FILE|-", help="every figure as JSON as well, '-' for standard output")
    parser.add_argument("--force", action="store_true", help="replace the file that --json names")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return parser


def _command(options: argparse.Namespace, interrupts: Interrupts) -> int:
    from bwprof.selftest import run

    started = time.monotonic()
    if options.json == "-":
        data_stream("--json -")
    elif options.json is not None:
        _check_target(Path(options.json))
        check_free(options.json, force=options.force)
    screen = console(sys.stderr if options.json == "-" else sys.stdout)

    def progress(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    def show(report: Report) -> None:
        columns = report.columns
        if report.rows:
            numbers = [heading for name, heading in columns.items() if not isinstance(report.rows[0][name], str)]
            rows = ([_said(row[name]) for name in columns] for row in report.rows)
            print_table(screen, list(columns.values()), rows, numbers=numbers, title=report.title)
        for line in (*([] if report.rows else [report.title]), *_lines(report), ""):
            screen.print(line)

    result = run.run(
        options.parts,
        quick=options.quick,
        backend=options.backend,
        device=options.device,
        progress=progress,
        poll=interrupts.check,
        show=show,
    )
    if not options.quiet:
        progress(f"self-test of {result['device']}: {seconds_text(time.monotonic() - started)}")
    if options.json is not None:
        _write(options.json, json.dumps(plain(result), indent=1, allow_nan=False) + "\n")
    return OK if result["passed"] else GATE_FAILED


def _lines(report: Report) -> list[str]:
    lines = list(report.summary)
    if report.gate:
        verdict = {True: "passed", False: "FAILED", None: "nothing to judge"}[report.passed]
        lines.append(f"gate: {report.gate}: {verdict}")
    if report.left_out:
        lines.append(f"left out: {report.left_out}")
    return lines


def _said(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value


def _check_target(path: Path) -> None:
    """Before anything is measured: minutes later is too late to say so."""
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"--json {path} cannot be written: name a file in a folder that exists, or '-'")


def _write(target: str, text: str) -> None:
    if target == "-":
        data_stream("--json -").write(text)
    else:
        atomic_write(Path(target), text)
