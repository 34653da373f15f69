"""The command ``bwprof show``: a stored run's rows as a table; their summary is what ``bwprof report`` prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bwprof.analysis.views import VIEWS
from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import OK
from bwprof.cli.shared.rows import add_results, loaded
from bwprof.terminal import console


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a stored run's rows; returns the exit code."""
    parser = Parser("bwprof show", "Print the rows of a stored run, a line each.", "The summary: bwprof report.")
    add_results(parser)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--view", metavar="NAME", help=f"which columns: {', '.join(VIEWS)} (default: {VIEWS[0]})")
    chosen.add_argument("--columns", metavar="A,B,…", help="these columns, in this order (see bwprof columns)")
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    from bwprof.analysis.views import check_view
    from bwprof.cli.show.grid import print_view

    view = VIEWS[0] if options.view is None else options.view
    check_view(view)
    print_view(loaded(options.results, options.only), console(sys.stdout), which=view, columns=options.columns)
    return OK
