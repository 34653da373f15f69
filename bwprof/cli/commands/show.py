"""The commands ``bwprof report`` (a summary or a document) and ``bwprof show`` (a run's rows)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bwprof.analysis.views import VIEWS
from bwprof.cli.commands.analyze import show_checklist
from bwprof.cli.guard import GATE_FAILED, OK
from bwprof.cli.inputs import RESULT, load_rows
from bwprof.cli.options import Parser, run
from bwprof.cli.render import print_step, print_tables
from bwprof.text.formatting import format_path, plural
from bwprof.text.terminal import make_console, print_table

_DESCRIPTION = """\
Print the summary of results, as bwprof sweep and bwprof model do when they end. With -o write a report instead: a page
that needs nothing else (.html), or Markdown with its pictures beside it (.md); of several runs each is compared with
the first.
"""

_EPILOG = """\
examples:
  %(prog)s RUN                                        the summary
  %(prog)s RUN -o report.html                         a page
  %(prog)s MONDAY FRIDAY -o report.md                 two runs, and what changed
  %(prog)s BASE STEP1 STEP2 --kind optimisation -o OPTIMIZATION_REPORT.md --goals goals.toml

goals.toml holds a line for each figure that the last run should reach: bandwidth_gb_s = ">200", occupancy_pct = ">50",
speedup_vs_torch = ">=0.5", speedup = ">=2", bottlenecks_fixed = ">=2", verified = true. The exit code is 1 when one is
not reached, or was not measured.
"""


def main_report(arguments: Sequence[str] | None = None) -> int:
    """Print the summary of results, or write a report; returns the exit code."""
    parser = Parser("bwprof report", _DESCRIPTION, _EPILOG)
    RESULT(parser, nargs="+")
    parser.add_argument("--checklist", action="store_true", help="sixteen questions, each with its figure, instead")
    out = parser.add_argument_group("a report as a file")
    out.add_argument("-o", "--output", metavar="FILE", help="the file to write: .html or .md")
    out.add_argument(
        "--kind",
        metavar="NAME",
        help="run (default), or optimisation: from the first run, through one for each change, to the last (default "
        "for a file called OPTIMIZATION_REPORT)",
    )
    out.add_argument("--title", metavar="TEXT", help="what stands above it")
    out.add_argument("--goals", metavar="FILE.toml", help="of an optimisation: what the last run should reach")
    out.add_argument("--case", metavar="NAME", help="of an optimisation: the case that it is about")
    out.add_argument("--precision", metavar="P", help="of an optimisation: its precision")
    out.add_argument("--force", action="store_true", help="replace files that are there")
    return run(parser, arguments, _report)


def _report(options: argparse.Namespace) -> int:
    if options.output is None:
        needs = [name for name in ("kind", "title", "goals", "case", "precision") if getattr(options, name) is not None]
        needs += ["force"] if options.force else []
        if needs:
            raise ValueError(f"--{needs[0]} is of a report as a file: name it with -o, or leave it out")
        if len(options.results) > 1:
            raise ValueError(f"{len(options.results)} runs are given: name a file for their report with -o")
        return _print_report(options)
    if options.checklist:
        raise ValueError("--checklist is printed: leave it out, or -o")
    return _write(options)


def _print_report(options: argparse.Namespace) -> int:
    (name,) = options.results
    found, screen = load_rows(name, options.only), make_console(sys.stdout)
    if options.checklist:
        from bwprof.analysis.checks import checklist

        show_checklist(checklist(found), screen)
    elif found.attrs.get("run", {}).get("model") is not None:
        print_step(found, screen)
    else:
        print_tables(found, screen)
    return OK


def _write(options: argparse.Namespace) -> int:
    from bwprof.cli.output import check_folder
    from bwprof.report.write import check_ending, write_report

    if options.output:  # before any work
        check_ending(Path(options.output))
        check_folder("-o", options.output)
    try:
        found = write_report(
            [load_rows(name, options.only) for name in options.results] if options.only else options.results,
            options.output,
            kind=options.kind,
            title=options.title,
            goals=options.goals,
            case=options.case,
            precision=options.precision,
            force=options.force,
        )
    except FileExistsError as error:
        raise ValueError(str(error).replace("force=True, --force in a shell", "--force")) from None
    beside = f", with {plural(len(found.pictures), 'picture')} beside it" if found.pictures else ""
    sys.stderr.write(f"bwprof: the report is {format_path(found.path)}{beside}\n")
    if found.goals:
        rows = [(goal.name, goal.target, goal.figure, goal.result) for goal in found.goals]
        print_table(make_console(sys.stdout), ["goal", "wanted", "found", "result"], rows)
    return OK if found.passed else GATE_FAILED


def main_show(arguments: Sequence[str] | None = None) -> int:
    """Print a stored run's rows; returns the exit code."""
    parser = Parser("bwprof show", "Print the rows of a stored run, a line each.", "The summary: bwprof report.")
    RESULT(parser)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--view", metavar="NAME", help=f"which columns: {', '.join(VIEWS)} (default: {VIEWS[0]})")
    chosen.add_argument("--columns", metavar="A,B,…", help="these columns, in this order (see bwprof columns)")
    return run(parser, arguments, _print_rows)


def _print_rows(options: argparse.Namespace) -> int:
    from bwprof.analysis.views import check_view
    from bwprof.cli.render import print_view

    view = VIEWS[0] if options.view is None else options.view
    check_view(view)
    print_view(load_rows(options.results, options.only), make_console(sys.stdout), which=view, columns=options.columns)
    return OK
