"""Around every command that measures: what is logged, and signals."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable

from bwprof.cli.shared.guard import coded
from bwprof.runs.interrupts import Interrupts


def measuring(parsed: argparse.Namespace, command: Callable[[Interrupts], int]) -> int:
    """The exit code of a command."""
    level = logging.DEBUG if parsed.verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", level=level, force=True)
    for noisy in ("matplotlib", "PIL"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

    def held() -> int:
        with Interrupts() as interrupts:
            return command(interrupts)

    return coded(held)
