"""The command ``bwprof plot``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bwprof.cli.shared.arguments import Parser, run
from bwprof.results import load

_EPILOG = """\
examples:
  %(prog)s bwprof-results/20260101-120000-ab12 -o bandwidth.svg
  %(prog)s rows.csv -o bandwidth.pdf
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw results into a file; returns the exit code."""
    parser = Parser("bwprof plot", "Draw the effective bandwidth of each case, one bar per precision.", _EPILOG)
    parser.add_argument("results", metavar="RUN|FILE", help="a run's folder, or a .csv or .json file of results")
    parser.add_argument(
        "-o", "--output", required=True, metavar="PICTURE", help="the file to write; its ending says the format"
    )
    return run(parser, arguments, _draw)


def _draw(options: argparse.Namespace) -> int:
    from bwprof import plot

    target = Path(options.output)
    plot.check_ending(target)
    plot.write(load(options.results), [target])
    return 0
