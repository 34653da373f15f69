"""The command ``bwprof columns``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bwprof.cli.arguments import Parser, run
from bwprof.cli.guard import OK
from bwprof.results import schema
from bwprof.results.schema import Column
from bwprof.text import unknown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the columns of results; returns the exit code."""
    parser = Parser("bwprof columns", "The columns of frames, CSV and JSON files, in their order, with what they hold.")
    parser.add_argument("names", nargs="*", metavar="COLUMN", help="the columns to print (all when none is named)")
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    from bwprof.terminal import console, show, table

    found = _asked(options.names)
    screen = console(sys.stdout)
    grid = table(screen, "", ["column", "unit", "group", "better", "what it holds"])
    for column in found:
        grid.add_row(column.name, column.unit, column.group, column.better, column.text)
    show(screen, grid)
    return OK


def _asked(names: Sequence[str]) -> list[Column]:
    known = {column.name: column for column in schema.columns()}
    for name in names:
        if name not in known:
            raise ValueError(unknown("column", name, known))
    return [known[name] for name in names] or list(known.values())
