"""The command ``bwprof info``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import data_stream
from bwprof.info import info
from bwprof.info.lines import about, device_lines
from bwprof.results.jsonfile import plain


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what this machine and build offer; returns the exit code."""
    parser = Parser("bwprof info", "Devices, their stored roofs, build and libraries, as bwprof sees them.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--probe", action="store_true", help="try what may need privileges: hardware counters, CUPTI's timestamps (2 s)"
    )
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    if options.json:
        data_stream("--json")
    found = info(probe=options.probe)
    if options.json:
        sys.stdout.write(json.dumps(plain(found), indent=1) + "\n")
        return 0
    _print_tables(found)
    return 0


def _print_tables(found: dict[str, Any]) -> None:
    from bwprof.terminal import console, show, table

    screen = console(sys.stdout)
    general = table(screen, "bwprof " + found["version"], ["what", "value"])
    for name, value in about(found):
        general.add_row(name, value)
    show(screen, general)
    for device in found["devices"]:
        rows = table(screen, f"{device['backend']}:{device['index']}", ["what", "value"])
        for name, value in device_lines(device):
            rows.add_row(name, value)
        show(screen, rows)
