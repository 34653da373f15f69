"""The command ``bwprof outliers``: which of several devices is slow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bwprof.cli.analyze import wrapped
from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import GATE_FAILED, INCOMPLETE, OK, data_stream
from bwprof.cli.shared.rows import add_results, loaded
from bwprof.terminal import console
from bwprof.text import fraction, quoted, short

if TYPE_CHECKING:
    import pandas as pd

_DESCRIPTION = """\
Which of several devices is slow, by how much, in which operation: each is held against the others of its name, and
their own spread is the threshold. RUNs are of one device each (on several machines, say), or one is of several (bwprof
sweep --device all).
"""
_EPILOG = """\
exit codes: 0, 1 (the gate of --fail-on failed), 2 (what was asked for cannot be), 3 (with --fail-on: no device
is slow, and one has failed or is undecided)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print which devices are slow; returns the exit code."""
    parser = Parser("bwprof outliers", _DESCRIPTION, _EPILOG)
    add_results(parser, nargs="+")
    parser.add_argument(
        "--gate", metavar="FRACTION", help="smallest difference worth naming: 0.05, or 5%% (default: 0.01)"
    )
    parser.add_argument(
        "--fail-on",
        metavar="WHAT",
        default="never",
        help="exit with 1 when: slow (any device is), 5%% (one is slow, by so much or more), never (default)",
    )
    parser.add_argument("--csv", action="store_true", help="print CSV instead: a line for each device and operation")
    return run(parser, arguments, _print)


def _print(options: argparse.Namespace) -> int:
    from bwprof.records.comparing.outliers import DEFAULT_GATE, outliers

    gate = DEFAULT_GATE if options.gate is None else fraction(options.gate, "--gate")
    fail_on = {"never": None, "slow": 0.0}.get(options.fail_on, options.fail_on)
    least = fraction(fail_on, "--fail-on") if isinstance(fail_on, str) else fail_on
    found = outliers([loaded(path, options.only) for path in options.results], gate=gate)
    if options.csv:
        from bwprof.results import frame

        data_stream("--csv").write(frame.csv_text(found))
        return _code(found, least)
    screen = console(sys.stdout)
    for line in _answer(found, gate):
        screen.print(wrapped(line, screen))
    return _code(found, least)


def _code(found: pd.DataFrame, least: float | None) -> int:
    """The exit code: whether a device is slow by `least` or more, as a fraction; None: nobody asks."""
    if least is None:
        return OK
    slow = found[found["verdict"] == "slow"]
    if (slow[["slow_pct", "worst_pct"]].max(axis=1) >= 100 * least).any():
        return GATE_FAILED
    return INCOMPLETE if found.empty or found["verdict"].isin(["undecided", "failed"]).any() else OK


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
            continue
        unsure = [line for line in of_kind if line["verdict"] == "undecided"]
        lines += [f"{_device(line)}: undecided in {line['operation']}: {line['reason']}" for line in unsure]
        if not unsure and not any(line["verdict"] == "slow" for line in of_kind):
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
