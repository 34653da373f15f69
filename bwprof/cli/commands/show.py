"""The commands ``bwprof report`` (a summary or a document) and ``bwprof show`` (a run's rows)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bwprof.analysis.summarize import VIEWS
from bwprof.cli.commands.analyze import checklist_section
from bwprof.cli.display import print_document
from bwprof.cli.guard import GATE_FAILED, OK
from bwprof.cli.inputs import RESULT, RESULTS, load_rows
from bwprof.cli.options import Parser, run, typed
from bwprof.cli.render import print_step, print_tables
from bwprof.text.document import Document
from bwprof.text.formatting import format_path, plural
from bwprof.text.terminal import make_console, print_table

_DESCRIPTION = """\
Print the summary of results, or with -o write a report: a page (.html), or Markdown with its pictures beside it (.md).
A report of several runs compares each with the first.
"""

_TABLE = f"""\
{RESULTS}
--checklist  print sixteen questions, each with its figure, instead of the summary

a report as a file:
-o, --output FILE  the file to write: .html or .md
--kind NAME  run (default), or optimisation: from the first run, through one for each change, to the last (default for a
  file called OPTIMIZATION_REPORT)
--title TEXT  the title
--goals FILE.toml  of an optimisation: what the last run should reach
--case NAME  of an optimisation: its case
--precision P  of an optimisation: its precision
--force  replace files that are there
"""

_EPILOG = """\
examples:
  %(prog)s RUN                                        the summary
  %(prog)s RUN -o report.html                         a page
  %(prog)s MONDAY FRIDAY -o report.md                 two runs, and what changed
  %(prog)s BASE STEP1 STEP2 --kind optimisation -o OPTIMIZATION_REPORT.md --goals goals.toml

goals.toml has a line for each goal of the last run: bandwidth_gb_s = ">200", occupancy_pct = ">50",
speedup_vs_torch = ">=0.5", speedup = ">=2", bottlenecks_fixed = ">=2", verified = true. The exit code is 1 when one is
missed or was not measured.
"""


def main_report(arguments: Sequence[str] | None = None) -> int:
    """Print the summary of results, or write a report; returns the exit code."""
    return run(Parser("bwprof report", _DESCRIPTION, _TABLE, _EPILOG), arguments, _report)


def _report(options: argparse.Namespace) -> int:
    if options.output is not None:
        if options.checklist:
            raise ValueError("--checklist is printed: leave it out, or -o")
        return _write(options)
    if of_files := typed(options, ("results", "only", "checklist")):
        raise ValueError(f"{of_files[0]} is of a report as a file: name it with -o, or leave it out")
    if len(options.results) > 1:
        raise ValueError(f"{len(options.results)} runs are given: name a file for their report with -o")
    data, screen = load_rows(options.results[0], options.only), make_console(sys.stdout)
    if options.checklist:
        from bwprof.analysis.rules import checklist

        print_document(screen, Document("", "", (checklist_section(checklist(data)),)))
    elif data.attrs.get("run", {}).get("model") is not None:
        print_step(data, screen)
    else:
        print_tables(data, screen)
    return OK


def _write(options: argparse.Namespace) -> int:
    from bwprof.cli.output import check_folder
    from bwprof.report.write import check_ending, write_report

    check_ending(Path(options.output))
    check_folder("-o", options.output)
    runs = [load_rows(name, options.only) for name in options.results] if options.only else options.results
    arguments = {name: getattr(options, name) for name in ("kind", "title", "goals", "case", "precision", "force")}
    try:
        report = write_report(runs, options.output, **arguments)
    except FileExistsError as error:
        raise ValueError(str(error).replace("force=True, --force in a shell", "--force")) from None
    pictures = f", with {plural(len(report.pictures), 'picture')} beside it" if report.pictures else ""
    sys.stderr.write(f"bwprof: the report is {format_path(report.path)}{pictures}\n")
    if report.goals:
        rows = [(goal.name, goal.target, goal.figure, goal.result) for goal in report.goals]
        print_table(make_console(sys.stdout), ["goal", "wanted", "found", "result"], rows)
    return OK if report.passed else GATE_FAILED


_SHOW_TABLE = f"""\
{RESULT}
one of:
--view NAME  which columns: {", ".join(VIEWS)} (default: {VIEWS[0]})
--columns A,B,…  these columns, in this order (see bwprof columns)
"""

_SHOW_EPILOG = """\
examples:
  %(prog)s RUN
  %(prog)s RUN --view roofline --only 'attention*'
  %(prog)s RUN --columns case,precision,time_ms,bandwidth_gb_s
"""


def main_show(arguments: Sequence[str] | None = None) -> int:
    """Print a stored run's rows; returns the exit code."""
    text = "Print the rows of a stored run, a line each. The summary is in bwprof report."
    return run(Parser("bwprof show", text, _SHOW_TABLE, _SHOW_EPILOG), arguments, _print_rows)


def _print_rows(options: argparse.Namespace) -> int:
    from bwprof.analysis.summarize import check_view
    from bwprof.cli.render import print_view

    view = VIEWS[0] if options.view is None else options.view
    check_view(view)
    data = load_rows(options.results, options.only)
    print_view(data, make_console(sys.stdout), which=view, columns=options.columns)
    return OK
