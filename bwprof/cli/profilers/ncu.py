"""The command ``bwprof ncu``: Nsight Compute's files, and running it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bwprof.cli import diagnose
from bwprof.cli.profilers import compared, finish, read
from bwprof.cli.shared import options as shared
from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import OK, USAGE, coded
from bwprof.cli.shared.outputs import targets_of
from bwprof.profilers import PRESETS, ncu_capture, ncu_command
from bwprof.text import parse_count, quoted, seconds, unknown

_USAGE = """\
usage: bwprof ncu show FILE             what ncu printed, or its report, as rows (bwprof ncu show --help)
       bwprof ncu capture -- PROGRAM …  run a program under ncu and show what it measured (bwprof ncu capture --help)
       bwprof ncu compare BASE NEW      two of them, launch beside launch (bwprof ncu compare --help)
       bwprof ncu diagnose FILE         what limits its kernels: the same as bwprof diagnose FILE
"""
_EPILOG = """\
examples:
  %(prog)s -o before --kernel regex:softmax_kernel --launches 3 -- python3 bench.py --n 4096
then what limits it, and after a change what that brought:
  bwprof diagnose before.ncu-rep
  bwprof ncu compare before.ncu-rep after.ncu-rep
"""
_COMMANDS = ("show", "capture", "compare", "diagnose")


def main(arguments: Sequence[str]) -> int:
    """Show, compare or diagnose what ncu measured, or let it measure; returns the exit code."""
    given = list(arguments)
    if not given or given[0] in ("-h", "--help"):
        sys.stdout.write(_USAGE)
        return OK if given else USAGE
    if given[0] == "show":
        return read("ncu", given[1:], "bwprof ncu show")
    if given[0] == "capture":
        return _capture(given[1:])
    if given[0] == "compare":
        return compared.main(given[1:])
    if given[0] == "diagnose":
        return diagnose.main(given[1:])
    return coded(lambda: _refuse(given[0]))


def _refuse(name: str) -> int:
    if Path(name).is_file():
        raise ValueError(f"{quoted(name)} is no command: bwprof ncu show FILE, or bwprof diagnose FILE, reads a file")
    raise ValueError(unknown("command", name, _COMMANDS, see="bwprof ncu --help"))


def _capture(given: Sequence[str]) -> int:
    parser = Parser(
        "bwprof ncu capture",
        "Run a program under Nsight Compute, and show what it measured. Every launch costs up to dozens of passes.",
        _EPILOG,
    )
    parser.usage = "bwprof ncu capture [options] -- PROGRAM [ARGUMENT ...]"
    parser.add_argument("program", nargs="+", metavar="PROGRAM", help="and its arguments, behind --")
    parser.add_argument("--preset", default="full", metavar="NAME", help=f"{', '.join(PRESETS)} (default: full)")
    parser.add_argument("--kernel", metavar="NAME", help="only kernels of this name, or regex:...")
    parser.add_argument("--launches", metavar="N", help="no more than so many launches")
    parser.add_argument(
        "--clock-control",
        default="none",
        metavar="none|base",
        help="none (default): the GPU's clocks stay as without a profiler; base: ncu locks them, so that runs repeat",
    )
    parser.add_argument("--timeout", metavar="SECONDS", help="no longer than this")
    parser.add_argument("-o", "--output", metavar="NAME", help="keep ncu's report as NAME.ncu-rep")
    parser.add_argument("--print-command", action="store_true", help="print ncu's command line, and run nothing")
    shared.add_files(parser, " and notes")
    parser.add_argument("--md", metavar="FILE|-", help="rows as a table in Markdown")
    return run(parser, given, _run)


def _run(options: argparse.Namespace) -> int:
    import shlex

    count = None if options.launches is None else parse_count(options.launches, "--launches")
    limit = None if options.timeout is None else seconds(options.timeout, "--timeout", text=True)
    if options.print_command:
        command = ncu_command(
            options.program,
            options.kernel,
            options.preset,
            options.output or "profile",
            launch_count=count,
            clock_control=options.clock_control,
        )
        sys.stdout.write(f"{shlex.join(command)}\n")
        return OK
    targets = targets_of(options)
    found = ncu_capture(
        options.program,
        options.kernel,
        options.preset,
        options.output,
        launch_count=count,
        timeout_s=limit,
        clock_control=options.clock_control,
    )
    return finish(found, targets)
