"""The command ``bwprof ablation``: an operation's ladder of variants, rung by rung."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import registry
from bwprof.cli.analyze import show_table, wrapped
from bwprof.cli.shared.arguments import Parser, run
from bwprof.cli.shared.guard import INCOMPLETE, INTERRUPTED, OK
from bwprof.cli.shared.options import add_kv_lens, add_roofs, limit, read_single, roofs
from bwprof.cli.shared.outputs import check_picture, rescue, targets_of, write_each
from bwprof.results.files import is_stream
from bwprof.runs.interrupts import Interrupts, StoppedError
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.terminal import console
from bwprof.text import counted, quoted

if TYPE_CHECKING:
    import pandas as pd

_DESCRIPTION = """\
The ladder of an operation's variants on one shape: what each rung changes, what that was predicted to bring, and what
it brings: within a factor of two in per cent, 0 % where it brings nothing (CSV and JSON have ratios). Every rung is
measured, verified and named, those that refuse the shape with the reason. Without parameters and lengths it is the
shape that the predictions are for.
"""
_EPILOG = """\
examples:
  %(prog)s OPERATION --vs torch                beside PyTorch's counterpart
  %(prog)s OPERATION -p NAME=4096 --precision fp16
  %(prog)s OPERATION --md ladder.md -o ladder.png

exit codes: 0 ok, 2 usage, 3 incomplete (a rung failed, the device was lost, something could not be written), 130
interrupted; what was measured until then is printed and written.
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
    add_kv_lens(made)
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
    made.add_argument("--force", action="store_true", help="replace files that are there")
    made.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return made


def _run(options: argparse.Namespace) -> int:
    from bwprof.ladder.function import ablation

    targets = targets_of(options)
    if options.output is not None:
        check_picture("-o", options.output, force=options.force, targets=targets)
    seconds = limit(options.max_seconds, "--max-seconds", from_zero=True)
    held_against = roofs(options)
    lengths = registry.lengths(options.kv_lens, "--kv-lens")
    ending: BaseException | None = None
    try:
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
            kv_lens=lengths,
            grid=read_single(options.param),
        )
    except BaseException as error:  # with the rungs that were finished, where any was begun
        if not hasattr(error, "frame"):
            raise
        ending, found = error, error.frame
    with Interrupts() as interrupts:
        return _keep(options, targets, found, ending, interrupts)


def _keep(
    options: argparse.Namespace,
    targets: Mapping[str, str],
    found: pd.DataFrame,
    ending: BaseException | None,
    interrupts: Interrupts,
) -> int:
    """Write and show what was measured, each whatever becomes of the others; the exit code."""
    from bwprof.ladder.rungs import RUNG

    stopped, code = isinstance(ending, KeyboardInterrupt), OK
    trouble: OSError | None = None
    if found.empty:  # nothing was finished
        targets, options.output = {}, None
    piped = {kind: name for kind, name in targets.items() if name == "-" or is_stream(Path(name))}
    text_of = partial(_text, found)
    written = write_each({kind: name for kind, name in targets.items() if kind not in piped}, text_of)
    try:
        with interrupts.at_once():  # a pipe may be full, or have no reader, and a picture takes long
            written |= write_each(piped, text_of)
            if "-" not in piped.values() and not found.empty:
                try:
                    _show(found)
                    sys.stdout.flush()
                except OSError as error:
                    trouble = error
            if options.output is not None and not _drawn(found, options.output):
                code = INCOMPLETE
    except StoppedError:
        stopped = True
    for kind in targets.keys() - written:
        rescue(kind, text_of(kind))
    if trouble is not None and trouble.errno != errno.EPIPE and not written:
        rescue("csv", text_of("csv"))
    _tell(found, ending, stopped=stopped)
    if trouble is not None:
        raise trouble
    if written != targets.keys():
        return INCOMPLETE
    if stopped:
        return INTERRUPTED
    failed = found["status"].eq("failed") & found["kind"].eq(RUNG)
    return INCOMPLETE if ending is not None or failed.any() else code


def _tell(found: pd.DataFrame, ending: BaseException | None, *, stopped: bool) -> None:
    """What ended it early, how much there is and what is missing."""
    from bwprof.ladder.rungs import MISSING

    if not stopped and ending is None:
        return
    missing = found.attrs.get(MISSING, [])
    kept = (
        f"what was measured until then, {counted(len(found), 'rung')}, is kept" if len(found) else "nothing is measured"
    )
    lacking = f"; not measured: {', '.join(missing)}" if missing else ""
    why = "interrupted" if stopped else f"error: {ending}"
    sys.stderr.write(f"bwprof: {why}: {kept}{lacking}\n")


def _text(found: pd.DataFrame, kind: str) -> str:
    from bwprof.ladder import telling
    from bwprof.results import frame

    if kind == "csv":
        return frame.csv_text(found)
    return _json(found) if kind == "json" else telling.markdown(found)


def _drawn(found: pd.DataFrame, target: str) -> bool:
    """Draw the picture; False, and a sentence, where that cannot be."""
    from bwprof import plot

    try:
        plot.save_ablation(found, target)
    except StoppedError:
        raise
    except Exception as error:  # whatever matplotlib raises: the rows are there
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        sys.stderr.write(f"bwprof: error: {quoted(target)}, the picture, is not written: {said}\n")
        return False
    return True


def _show(found: pd.DataFrame) -> None:
    from bwprof.ladder import telling

    screen = console(sys.stdout)
    show_table(screen, telling.title(found), telling.table(found), numbers=telling.NUMBERS)
    show_table(screen, "Predicted and measured", telling.gains(found), numbers=telling.GAINS_NUMBERS)
    screen.print()
    for note in telling.notes(found):
        screen.print(wrapped(note, screen))


def _json(found: pd.DataFrame) -> str:
    from bwprof.results.jsonfile import plain
    from bwprof.results.others.ladder import FORMAT

    document: dict[str, Any] = {
        "format": FORMAT,
        "torch": found.attrs["torch"],
        "missing": found.attrs["missing"],
        "run": plain(dict(found.attrs["run"])),
        "rows": json.loads(found.to_json(orient="records", double_precision=15)),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
