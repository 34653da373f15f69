"""The command ``bwprof info``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import data_stream
from bwprof.info import info
from bwprof.info.lines import about, device_lines
from bwprof.results.jsonfile import plain
from bwprof.terminal import console, print_table


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
    screen, headers = console(sys.stdout), ["what", "value"]
    print_table(screen, headers, about(found), title="bwprof " + found["version"])
    for device in found["devices"]:
        print_table(screen, headers, device_lines(device), title=f"{device['backend']}:{device['index']}")
    return 0
