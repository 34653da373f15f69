"""Around every command that measures: what is logged, and signals."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence

from bwprof.cli.shared.arguments import Parser, run
from bwprof.runs.interrupts import Interrupts


def run_measuring(
    parser: Parser, arguments: Sequence[str] | None, command: Callable[[argparse.Namespace, Interrupts], int]
) -> int:
    """Run a command that measures, as `run` does the others; returns the exit code."""

    def begun(parsed: argparse.Namespace) -> int:
        logging.getLogger().setLevel(logging.DEBUG if getattr(parsed, "verbose", False) else logging.WARNING)
        for noisy in ("matplotlib", "PIL"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        with Interrupts() as interrupts:
            return command(parsed, interrupts)

    return run(parser, arguments, begun)
