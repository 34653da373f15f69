"""The command ``bwprof view``: ``bwprof show`` with the view's name as a word of its own."""

from __future__ import annotations

from collections.abc import Sequence

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.rows import add_results
from bwprof.cli.show import COLUMNS_HELP, VIEW_HELP, print_rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a view of stored rows; returns the exit code."""
    parser = Parser("bwprof view", "Print few columns of stored rows, as bwprof show does.")
    add_results(parser)
    parser.add_argument("view", metavar="VIEW", nargs="?", help=VIEW_HELP)
    parser.add_argument("--columns", metavar="A,B,…", help=f"instead of a view, {COLUMNS_HELP}")
    return run(parser, arguments, print_rows)
