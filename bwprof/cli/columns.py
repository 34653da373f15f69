"""The command ``bwprof columns``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.forms import add_forms, print_in_form
from bwprof.cli.shared.guard import OK
from bwprof.results import schema
from bwprof.results.schema import Column
from bwprof.results.tables import TOLD
from bwprof.terminal import console, print_table
from bwprof.text import unknown

_HEADINGS = ["column", "unit", "group", "better", "what it holds"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the columns of results; returns the exit code."""
    parser = Parser("bwprof columns", "The columns of frames, CSV and JSON files, in their order, with what they hold.")
    parser.add_argument("names", nargs="*", metavar="COLUMN", help="the columns to print (all when none is named)")
    add_forms(parser)
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    found = _asked(options.names)
    told = [{name: getattr(column, name) for name in TOLD} for column in found]
    if print_in_form(options, lambda: told, lambda: _markdown(found)):
        return OK
    print_table(console(sys.stdout), _HEADINGS, map(_cells, found))
    return OK


def _markdown(found: Sequence[Column]) -> list[str]:
    import pandas as pd

    from bwprof.analysis.answer import markdown

    grid = markdown(pd.DataFrame([_cells(column) for column in found], columns=_HEADINGS))
    flags = markdown(pd.DataFrame(list(schema.FLAGS.items()), columns=["flag", "what it says"]))
    return ["# Columns", "Made by `bwprof columns --md`.", grid, "## Words of the column `flags`", flags]


def _cells(column: Column) -> list[str]:
    return [column.name, column.unit, column.group, column.better, column.text]


def _asked(names: Sequence[str]) -> list[Column]:
    known = {column.name: column for column in schema.columns()}
    for name in names:
        if name not in known:
            raise ValueError(unknown("column", name, known, see="bwprof columns"))
    return [known[name] for name in names] or list(known.values())
