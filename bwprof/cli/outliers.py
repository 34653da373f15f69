"""The command ``bwprof outliers``: which of several devices is slow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import OK, data_stream
from bwprof.results import load
from bwprof.results.difference import DEFAULT_GATE
from bwprof.text import fraction, quoted, short

if TYPE_CHECKING:
    import pandas as pd

_DESCRIPTION = """\
Which of several devices is slow, by how much, in which operation: each is held against the median of all of its name.
RUNs are of one device each (on several machines, say), or one is of several (bwprof sweep --device all).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print which devices are slow; returns the exit code."""
    parser = Parser("bwprof outliers", _DESCRIPTION)
    parser.add_argument("results", nargs="+", metavar="RUN|FILE", help="runs' folders, .csv or .json files of results")
    parser.add_argument(
        "--gate", metavar="FRACTION", help=f"smallest difference worth a word: 0.05, or 5%% (default: {DEFAULT_GATE:g})"
    )
    parser.add_argument("--csv", action="store_true", help="print CSV instead: a line for each device and operation")
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    from bwprof.analysis.outliers import outliers
    from bwprof.cli.analyze import wrapped
    from bwprof.terminal import console

    gate = DEFAULT_GATE if options.gate is None else fraction(options.gate, "--gate")
    found = outliers([load(path) for path in options.results], gate=gate)
    if options.csv:
        from bwprof.results import frame

        data_stream("--csv").write(frame.csv_text(found))
        return OK
    screen = console(sys.stdout)
    for line in _answer(found, gate):
        screen.print(wrapped(line, screen))
    return OK


def _answer(found: pd.DataFrame, gate: float) -> list[str]:
    """The answer first: a line for each device and operation that stands out."""
    lines = []
    records = [{str(name): value for name, value in line.items()} for line in found.to_dict(orient="records")]
    for line in records:
        if line["verdict"] in ("slow", "failed", "fast"):
            lines.append(f"{_device(line)}: {line['verdict']} in {line['operation']}: {_said(line)}")
    kinds = {line["device"]: line["devices"] for line in records}
    for device, count in kinds.items():
        of_kind = [line for line in records if line["device"] == device]
        if all(line["verdict"] == "undecided" for line in of_kind):
            lines.append(f"{quoted(device)}: undecided: {of_kind[0]['reason']}")
            lines += [f"{_device(line)}: {line['operation']}: {_said(line)}" for line in of_kind if line["slower"]]
        elif not any(line["verdict"] == "slow" for line in of_kind):
            cases = sum(line["cases"] for line in of_kind) // count
            lines.append(f"{quoted(device)}: none of {count} devices is slow (gate {gate:.3g}, {cases} cases each)")
    return lines or ["no results"]


def _device(line: dict[str, Any]) -> str:
    named = (line[name] for name in ("hostname", "device", "device_uuid"))
    return " ".join(quoted(name) for name in named if isinstance(name, str) and name) or "a device"


def _said(line: dict[str, Any]) -> str:
    parts = []
    if line["cases"]:
        parts.append(
            f"{short(line['slow_pct'], '+.1f')} % of time (median of {line['cases']} cases, {line['slower']} slower)"
        )
        parts.append(f"at most {short(line['worst_pct'], '+.1f')} % ({line['worst_case']})")
    if line["failed"]:
        parts.append(f"{line['failed']} failed here alone")
    if isinstance(line["throttle"], str):
        parts.append(f"clock held down: {line['throttle']}")
    return "; ".join(parts)
