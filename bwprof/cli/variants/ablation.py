"""The command ``bwprof ablation``: an operation's ladder of variants, rung by rung."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import INCOMPLETE, OK
from bwprof.cli.shared.options import add_roofs, limit, read_params, roofs
from bwprof.cli.shared.predictions import check_folder, targets_of
from bwprof.results.files import atomic_write
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.text import quoted

if TYPE_CHECKING:
    import pandas as pd

_DESCRIPTION = """\
The ladder of an operation's variants on one shape: what each rung changes, what that was predicted to bring, and what
it brings. Every rung is measured, verified and named, those that refuse the shape with the reason. Without parameters
it is the shape that the predictions are for.
"""
_EPILOG = """\
examples:
  %(prog)s OPERATION --vs torch                beside PyTorch's counterpart
  %(prog)s OPERATION -p NAME=4096 --precision fp16
  %(prog)s OPERATION --md ladder.md -o ladder.png
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a ladder and print it; returns the exit code."""
    return run(parser(), arguments, _run)


def parser() -> Parser:
    """The command's options."""
    made = Parser("bwprof ablation", _DESCRIPTION, _EPILOG)
    made.add_argument("operation", metavar="OPERATION", help="the operation (see bwprof --list)")
    made.add_argument(
        "-p", "--param", action="append", default=[], metavar="NAME=VALUE", help="the value of a parameter (repeatable)"
    )
    made.add_argument("--precision", metavar="P", help="the precision (default: the predictions', else fp32)")
    made.add_argument("--vs", metavar="torch", help="measure PyTorch's counterparts, too, where it is installed")
    made.add_argument("--variant", metavar="V,…", help="only these rungs")
    made.add_argument("--device", metavar="D", help="cpu, cuda, cuda:1, or a number")
    made.add_argument("--cache", default="cold", metavar="cold|hot", help="cold (default) or hot")
    made.add_argument("--timer", metavar="T", help="on a GPU graph (default), events or cupti")
    made.add_argument("--metrics", metavar="M,…", help="what else to count: occupancy is the achieved one")
    made.add_argument(
        "--max-seconds", metavar="SECONDS", help=f"of sampling for each (default: {DEFAULT_CASE_SECONDS:g})"
    )
    add_roofs(made)
    for name, text in (("csv", "CSV"), ("json", "JSON"), ("md", "Markdown")):
        made.add_argument(f"--{name}", metavar="FILE", help=f"write it as {text}, too (-: standard output)")
    made.add_argument("-o", "--output", metavar="PICTURE", help="draw the ladder; the ending says the format")
    made.add_argument("--force", action="store_true", help="replace files that --csv, --json and --md name")
    made.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return made


def _run(options: argparse.Namespace) -> int:
    from bwprof.ladder.function import ablation
    from bwprof.ladder.rungs import RUNG

    if options.output is not None:
        from bwprof import plot

        plot.check_ending(Path(options.output))
        check_folder("-o", options.output)
    targets = targets_of(options)
    seconds = limit(options.max_seconds, "--max-seconds", from_zero=True)
    held_against = roofs(options)
    found = ablation(
        options.operation,
        precision=options.precision,
        vs=options.vs,
        variant=options.variant,
        device=options.device,
        cache=options.cache,
        timer=options.timer,
        metrics=options.metrics,
        max_seconds=DEFAULT_CASE_SECONDS if seconds is None else seconds,
        roofs="auto" if held_against is None else held_against,
        progress=not options.quiet,
        grid=_params(options.param),
    )
    _write(options, targets, found)
    return INCOMPLETE if (found["status"].eq("failed") & found["kind"].eq(RUNG)).any() else OK


def _params(given: Sequence[str]) -> dict[str, int]:
    params = {}
    for name, values in read_params(given).items():
        if len(values) != 1:
            raise ValueError(f"--param {quoted(name)} has {len(values)} values: one is needed")
        params[name] = values[0]
    return params


def _write(options: argparse.Namespace, targets: Mapping[str, str], found: pd.DataFrame) -> None:
    from bwprof.ladder import telling

    if "-" not in targets.values():
        _show(found)
    forms = {
        "csv": lambda: found.to_csv(index=False),
        "json": lambda: _json(found),
        "md": lambda: telling.markdown(found),
    }
    for kind, name in targets.items():
        if name == "-":
            sys.stdout.write(forms[kind]())
        else:
            atomic_write(Path(name), forms[kind]())
    if options.output is not None:
        from bwprof import plot

        plot.save_ablation(found, options.output)


def _show(found: pd.DataFrame) -> None:
    from bwprof.cli.analyze import show_table, wrapped
    from bwprof.ladder import telling
    from bwprof.terminal import console

    screen = console(sys.stdout)
    show_table(screen, telling.title(found), telling.table(found), numbers=telling.NUMBERS)
    show_table(screen, "Predicted and measured", telling.gains(found), numbers=telling.GAINS_NUMBERS)
    screen.print()
    for note in telling.notes(found):
        screen.print(wrapped(note, screen))


def _json(found: pd.DataFrame) -> str:
    from bwprof.results.jsonfile import plain

    document: dict[str, Any] = {
        "format": "bwprof-ladder",
        "torch": found.attrs["torch"],
        "run": plain(dict(found.attrs["run"])),
        "rows": json.loads(found.to_json(orient="records", double_precision=15)),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
