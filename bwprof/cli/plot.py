"""The command ``bwprof plot``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bwprof.cli.shared.arguments import Parser, run
from bwprof.results import load
from bwprof.results.schema import Row
from bwprof.text import parse_count

COMPARISON = "comparison"
_PICTURE = "bandwidth_comparison.png"
_DPI = (10, 2000)

_EPILOG = """\
examples:
  %(prog)s bwprof-results/20260101-120000-ab12 -o bandwidth.svg
  %(prog)s rows.csv -o bandwidth.pdf
  %(prog)s comparison rows.csv --panels       FP32 beside FP16, in words too
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw results into a file; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [COMPARISON]:
        return _main_comparison(given[1:])
    parser = Parser("bwprof plot", "Draw the effective bandwidth of each case, one bar per precision.", _EPILOG)
    parser.add_argument("results", metavar="RUN|FILE", help="a run's folder, or a .csv or .json file of results")
    parser.add_argument(
        "-o", "--output", required=True, metavar="PICTURE", help="the file to write; its ending says the format"
    )
    return run(parser, given, _draw)


def _main_comparison(given: Sequence[str]) -> int:
    text = "Draw the bandwidths of each case and precision, and print FP32 beside FP16."
    parser = Parser(f"bwprof plot {COMPARISON}", text)
    parser.add_argument("results", metavar="FILE", help="a .csv or .json file of results, or a run's folder")
    parser.add_argument(
        "-o", "--output", default=_PICTURE, metavar="PICTURE", help=f"the file to write (default: {_PICTURE})"
    )
    parser.add_argument("--dpi", default="300", metavar="N", help="dots per inch (default: 300)")
    parser.add_argument("--panels", action="store_true", help="a panel for each case")
    return run(parser, given, _compare)


def _draw(options: argparse.Namespace) -> int:
    from bwprof import plot

    plot.write(load(options.results), [_target(options.output)])
    return 0


def _target(name: str) -> Path:
    """The file to write; ValueError where its ending is no picture's."""
    from bwprof import plot

    target = Path(name)
    plot.check_ending(target)
    return target


def _compare(options: argparse.Namespace) -> int:
    from bwprof import plot
    from bwprof.results import frame

    target = _target(options.output)
    dpi = parse_count(options.dpi, "--dpi")
    if not _DPI[0] <= dpi <= _DPI[1]:
        raise ValueError(f"--dpi is {dpi}: allowed are {_DPI[0]} to {_DPI[1]}")
    data = load(options.results)
    rows = [row for row in frame.to_rows(data) if row["status"] == "ok" and row["bandwidth_gb_s"] is not None]
    speeds, times = (_means(rows, name) for name in ("bandwidth_gb_s", "time_ms"))
    if options.panels:
        from bwprof.plot.kinds import panels

        panels.write(speeds, target, dpi=dpi)
    else:
        plot.write(data, [target], dpi=dpi)
    sys.stdout.write(_summary(speeds, times))
    sys.stderr.write(f"bwprof: the picture is {target}\n")
    return 0


def _means(rows: Sequence[Row], column: str) -> dict[str, dict[str, float]]:
    """Of each case and precision the mean."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row[column] is not None:
            hot = " (hot)" if row["cache"] == "hot" else ""
            of_case = found.setdefault(f"{row['case'] or row['operation']}{hot}", {})
            of_case.setdefault(row["precision"], []).append(row[column])
    return {case: {name: fmean(values) for name, values in means.items()} for case, means in found.items()}


def _summary(speeds: Mapping[str, Mapping[str, float]], times: Mapping[str, Mapping[str, float]]) -> str:
    """FP32 beside FP16 in words: the ratio of bandwidths is not the gain in time, which is what halved bytes bring."""
    wide, narrow = "fp32", "fp16"
    lines = ["=== Bandwidth Summary ==="]
    for case, means in speeds.items():
        lines += ["", f"{case}:"]
        lines += [f"  {name.upper()} mean: {value:.2f} GB/s" for name, value in means.items()]
        if means.get(wide) and means.get(narrow):
            lines.append(f"  Speedup: {means[narrow] / means[wide]:.2f}x (GB/s)")
        taken = times.get(case, {})
        if taken.get(wide) and taken.get(narrow):
            lines.append(f"  Time speed-up: {taken[wide] / taken[narrow]:.2f}x")
    return "\n".join(lines) + "\n"
