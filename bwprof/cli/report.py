"""The command ``bwprof report``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bwprof.cli.shared.arguments import Parser, run
from bwprof.results import load


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the summary of results; returns the exit code."""
    parser = Parser("bwprof report", "Print the summary of results, as bwprof sweep and bwprof model do when they end.")
    parser.add_argument("results", metavar="RUN|FILE", help="a run's folder, or a .csv or .json file of results")
    parser.add_argument("--checklist", action="store_true", help="sixteen questions, each with its figure, instead")
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    from bwprof.cli.shared.summary import print_tables
    from bwprof.terminal import console

    found, screen = load(options.results), console(sys.stdout)
    if options.checklist:
        from bwprof.analysis.causes.checks import checklist
        from bwprof.cli.analyze import show_checklist

        show_checklist(checklist(found), screen)
    elif found.attrs.get("run", {}).get("model") is not None:
        from bwprof.models.result import ModelStep
        from bwprof.terminal import show

        for renderable in ModelStep.from_frame(found).renderables(screen):
            show(screen, renderable)
    else:
        print_tables(found, screen)
    return 0
