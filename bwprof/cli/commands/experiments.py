"""The commands ``bwprof ab`` (two sides in turn) and ``bwprof ablation`` (an operation's variants)."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import hardware, registry
from bwprof.cli.commands.analyze import show_table, wrapped
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, INTERRUPTED, OK
from bwprof.cli.options import (
    BACKEND_HELP,
    DEVICE,
    Parser,
    add_kv_lens,
    add_param,
    add_roofs,
    read_params,
    read_roofs,
    read_seconds,
    read_single_params,
    run,
    run_measuring,
)
from bwprof.cli.output import check_picture, choose_targets, rescue, write_each
from bwprof.experiments import ab, ab_result, ab_run, ab_session
from bwprof.experiments.ab import ABOptions, are_same, check_threads, complete_b
from bwprof.experiments.ab_process import DEFAULT_TURN_SECONDS
from bwprof.experiments.ab_result import ABTable
from bwprof.experiments.ab_run import PlaceRequest
from bwprof.experiments.ab_session import (
    DEFAULT_GATE,
    DEFAULT_REL_CI,
    DEFAULT_SECONDS,
    StopRule,
    exceeds_limit,
    may_exceed_limit,
)
from bwprof.results.atomic import is_stream
from bwprof.runs.interrupts import Interrupts, StoppedError
from bwprof.runs.plan import DEFAULT_CASE_SECONDS
from bwprof.text.formatting import plural
from bwprof.text.parsing import parse_count, parse_fraction, parse_names, parse_seconds, quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    import pandas as pd

_DESCRIPTION = """\
Which of two is faster, and by how much: A and B are measured turn by turn on one device, in an order that a coin
decides, so that a machine that drifts drifts under both. The verdict comes from the paired ratios: faster, slower, same
or undecided is said of B. Each side has a process of its own, and only one of them works at a time.
"""

_EPILOG = """\
examples:
  %(prog)s {first}:{one} {first}:{other} -p {param}={value}       two variants of an operation
  %(prog)s my.kernels:old my.kernels:new               two functions, module:function or file.py:function
  %(prog)s {first} --python old/bin/python --python new/bin/python   two interpreters, each with its bwprof
  %(prog)s bench.py:step --python old/bin/python --python new/bin/python    ... or with a kernel package
  %(prog)s bench.py:step --rev v1.2 --rev HEAD --build "make"     two revisions of the repository here
  %(prog)s my.kernels:old my.kernels:new --fail-on 2%%   exit code 1 where B is slower by more than that

A function is called without arguments but those of -p; where it returns something callable, that is measured, and the
call prepares it. Its module is looked for where the command runs, of revisions in their worktrees.
exit codes: 0 ok, 1 --fail-on: B is slower, 2 usage, 3 incomplete (a side failed; --fail-on: B may be slower by more,
but it is undecided; results could not be written: they are on standard error), 130 interrupted.
"""

_NUMBERS = ("A, ms", "B, ms", "B / A", "from", "to", "pairs")


def main_ab(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = list(arguments or ())
    return run_measuring(_parser(), given, lambda options, interrupts: _command(options, given, interrupts))


def _parser() -> Parser:
    parser = Parser("bwprof ab", _DESCRIPTION, _epilog())
    parser.add_argument("a", metavar="A", help="OPERATION, OPERATION:VARIANT, module:function or file.py:function")
    parser.add_argument("b", metavar="B", nargs="?", help="likewise; left out: A, in another interpreter or revision")
    where = parser.add_argument_group("where the sides run")
    where.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help="an interpreter that has bwprof, given twice: A's and B's; once: of both",
    )
    where.add_argument(
        "--rev", action="append", default=[], metavar="REV", help="a git revision, given twice: A's and B's"
    )
    where.add_argument("--repo", metavar="DIR", default=".", help="of the revisions (default: the one here)")
    where.add_argument("--build", metavar="COMMAND", help="makes a revision's worktree ready; run by the shell, in it")
    where.add_argument("--device", metavar="D", help=DEVICE)
    where.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)
    where.add_argument("--threads", metavar="N", help="of a CPU (default: all); one scatters least on a busy machine")
    what = parser.add_argument_group("what to measure")
    add_param(what)
    add_kv_lens(what)
    what.add_argument("--precision", metavar="P,…", help=f"of an operation (default: {ab.DEFAULT_PRECISION})")
    what.add_argument("--cache", metavar="cold|hot|both", help="as in bwprof sweep (default: cold)")
    what.add_argument("--timer", metavar="NAME", help="as in bwprof sweep")
    what.add_argument("--seed", default="0", metavar="N", help="of the coin and of the generated inputs (default: 0)")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--rel-ci",
        metavar="FRACTION",
        default=f"{DEFAULT_REL_CI}",
        help="stop when the ratio is known to this, half of its interval (99.5 %%): 0.005, or 0.5%% (default)",
    )
    how.add_argument(
        "--max-seconds",
        metavar="SECONDS",
        default=f"{DEFAULT_SECONDS}",
        help=f"the most for one comparison, once both sides are open (default: {DEFAULT_SECONDS:g})",
    )
    how.add_argument(
        "--gate",
        metavar="FRACTION",
        default=f"{DEFAULT_GATE}",
        help=f"smallest difference worth a word (default: {DEFAULT_GATE:.0%})".replace("%", "%%"),
    )
    how.add_argument(
        "--fail-on",
        metavar="FRACTION",
        help="exit code 1 where B is slower by more than this: 2%%; 3 where it is undecided, and may be",
    )
    how.add_argument(
        "--max-turn-seconds",
        metavar="SECONDS",
        default=f"{DEFAULT_TURN_SECONDS}",
        help=f"for one answer of a side, whose process is then ended (default: {DEFAULT_TURN_SECONDS:g})",
    )
    out = parser.add_argument_group("output")
    out.add_argument("--csv", metavar="FILE|-", help="the rows as CSV, '-' for standard output")
    out.add_argument("--json", metavar="FILE|-", help="rows, metadata and every block as JSON, '-' likewise")
    out.add_argument("--force", action="store_true", help="replace files that --csv and --json name")
    out.add_argument("-q", "--quiet", action="store_true", help="no progress, only warnings and errors")
    out.add_argument("--verbose", action="store_true", help="log what is going on")
    return parser


def _epilog() -> str:
    """With an operation of the registry that has two variants."""
    shown = next(row for row in registry.operations() if not row["is_stream"])
    variants = next(list(found) for found in shown["variants"].values() if len(found) > 1)
    words_of = {
        "first": shown["name"],
        "one": variants[0]["name"],
        "other": variants[1]["name"],
        "param": shown["params"][0]["name"],
        "value": str(shown["params"][0]["default"]),
    }
    text = _EPILOG
    for name, value in words_of.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _command(options: argparse.Namespace, given: Sequence[str], interrupts: Interrupts) -> int:
    targets = choose_targets(options)
    limit = None if options.fail_on is None else parse_fraction(options.fail_on, "--fail-on")
    wanted = PlaceRequest(
        tuple(options.python),
        tuple(options.rev),
        options.repo,
        options.build,
        None if options.threads is None else check_threads(parse_count(options.threads, "--threads"), "--threads"),
        parse_seconds(options.max_turn_seconds, "--max-turn-seconds", text=True),
    )
    how = StopRule(
        parse_fraction(options.rel_ci, "--rel-ci"),
        parse_seconds(options.max_seconds, "--max-seconds", text=True),
        parse_fraction(options.gate, "--gate"),
        registry.check_seed(parse_count(options.seed, "--seed")),
    )
    names = (options.a, complete_b(options.b, options.a, wanted))
    choice = hardware.choose_device(options.backend, options.device)
    works = ab.make_tasks(*names, _options(options, how.seed), choice.backend)
    table = ab_run.start_table(choice, how, given, {})

    def say(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    say(f"measuring {choice.backend}:{choice.index} {choice.name} ({choice.reason})")
    stopped = failed = False
    try:
        with ExitStack() as stack:
            make, commits = stack.enter_context(ab_run.open_places(wanted, choice, interrupts, say))
            pairs = ab_run.add_note(ab_run.make_process_pairs(works, make), same=are_same(names, wanted, commits))
            for number, pair in enumerate(pairs, start=1):
                say(f"{number} of {len(pairs)}: {pair.case}{' (hot)' if pair.cache == 'hot' else ''}")
                found = ab_run.measure_pair(pair, how, table, interrupts.check, ab_run.compare_nothing)
                failed |= found.stopped == ab_session.FAILED
    except (StoppedError, KeyboardInterrupt):
        stopped = True
    table.finish("interrupted" if stopped else "failed" if failed else "complete")
    written = write_each(targets, lambda kind: _ab_text(table, kind))
    if "-" not in targets.values():
        _print(table)
    for kind in targets.keys() - written:
        rescue(kind, _ab_text(table, kind))
    if stopped:
        measured = plural(sum(row["pairs"] for row in table.rows), "pair")
        left = len(works) - len(table.rows)
        more = f"; {left} of {len(works)} comparisons were not begun" if left else ""
        sys.stderr.write(f"bwprof: interrupted: what was measured until then, {measured}, is kept{more}\n")
        return INTERRUPTED if written == targets.keys() else INCOMPLETE
    for row in table.rows:
        if row["stopped"] == ab_session.FAILED:
            sys.stderr.write(f"bwprof: error: {row['case']}: {row['reason']}\n")
    gate = OK if limit is None else _gate(table, limit, options)
    return INCOMPLETE if failed or written != targets.keys() else gate


def _gate(table: ABTable, limit: float, options: argparse.Namespace) -> int:
    """What --fail-on makes of the rows whose sides could go on, in words too; the exit code."""
    code = OK
    for row in table.rows:
        if row["stopped"] == ab_session.FAILED:
            continue
        said = ""
        if row["ratio"] is not None and exceeds_limit(row["ratio"], row["verdict"], limit):
            code, said = GATE_FAILED, "B is slower"
        elif may_exceed_limit(row["ratio_hi"], row["verdict"], limit):
            code, said = code or INCOMPLETE, _missing(row, options)
        if said:
            sys.stderr.write(f"bwprof: --fail-on {options.fail_on}: {row['case']}: {said}\n")
    return code


def _missing(row: dict[str, Any], options: argparse.Namespace) -> str:
    """What is not known, and which option brings it."""
    high = row["ratio_hi"]
    known = "nothing says how much slower B may be" if high is None else f"B may be {100 * (high - 1):.2f} % slower"
    more = f"--max-seconds is {options.max_seconds}: more would tell"
    if row["stopped"] == ab_session.PRECISE:
        more = f"--rel-ci is {options.rel_ci}: less would tell"
    return f"undecided: {known} ({row['reason']}); {more}"


def _options(options: argparse.Namespace, seed: int) -> ABOptions:
    return ABOptions(
        params=read_params(options.param),
        kv_lens=registry.parse_lengths(options.kv_lens, "--kv-lens"),
        precisions=parse_names("--precision", options.precision),
        caches=parse_names("--cache", options.cache),
        timer=options.timer,
        seed=seed,
    )


def _ab_text(table: ABTable, kind: str) -> str:
    return table.json_text() if kind == "json" else table.csv_text()


def _print(table: ABTable) -> None:
    screen = make_console(sys.stdout)
    measured = [row for row in table.rows if row["ratio"] is not None]
    if measured:
        lines = []
        for row in measured:
            hot = " (hot)" if row["cache"] == "hot" else ""
            figures = (row["a_time_ms"], row["b_time_ms"], row["ratio"], row["ratio_lo"], row["ratio_hi"])
            cells = [
                "-" if value is None else f"{value:.4g}" if place < 2 else f"{value:.4f}"
                for place, value in enumerate(figures)
            ]
            lines.append([f"{row['case']}{hot}", *cells, str(row["pairs"]), row["verdict"]])
        print_table(screen, ["case", *_NUMBERS, "B is"], lines, numbers=_NUMBERS)
    for row in table.rows:
        if row["stopped"] != ab_session.FAILED:  # which is an error, said elsewhere
            screen.print(wrapped(ab_result.describe_row(row), screen))
    for side in ("a", "b"):
        told = next((row for row in table.rows if row[f"{side}_environment"]), None)
        if told is not None:
            screen.print(wrapped(f"{side.upper()}: {quote_text(told[side])}, {told[f'{side}_environment']}", screen))
    if measured:
        screen.print(f"from, to: the {ab_result.level_text()} interval of B's time divided by A's")


_ABLATION_DESCRIPTION = """\
Measure all variants of an operation on one shape, and compare each gain over the variant before with its prediction.
Gains within a factor of two are in per cent (CSV and JSON have ratios). Every variant is verified and listed; one that
refuses the shape has the reason. The default shape is the one that the predictions are for.
"""

_ABLATION_EPILOG = """\
examples:
  %(prog)s OPERATION --vs torch                beside PyTorch's counterpart
  %(prog)s OPERATION -p NAME=4096 --precision fp16
  %(prog)s OPERATION --md ladder.md -o ladder.png

exit codes: 0 ok, 2 usage, 3 incomplete (a variant failed, the device was lost, something could not be written), 130
interrupted; what was measured until then is printed and written.
"""


def main_ablation(arguments: Sequence[str] | None = None) -> int:
    """Measure a ladder and print it; returns the exit code."""
    return run(parser(), arguments, _run)


def parser() -> Parser:
    """The command's options."""
    made = Parser("bwprof ablation", _ABLATION_DESCRIPTION, _ABLATION_EPILOG)
    made.add_argument("operation", metavar="OPERATION", help="the operation (see bwprof --list)")
    made.add_argument(
        "-p", "--param", action="append", default=[], metavar="NAME=VALUE", help="the value of a parameter (repeatable)"
    )
    add_kv_lens(made)
    made.add_argument("--precision", metavar="P", help="the precision (default: the predictions', else fp32)")
    made.add_argument("--vs", metavar="torch", help="measure PyTorch's counterparts, too, where it is installed")
    made.add_argument("--variant", metavar="V,…", help="only these variants")
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
    from bwprof.experiments.ablation import ablation

    targets = choose_targets(options)
    if options.output is not None:
        check_picture("-o", options.output, force=options.force, targets=targets)
    seconds = read_seconds(options.max_seconds, "--max-seconds", from_zero=True)
    held_against = read_roofs(options)
    lengths = registry.parse_lengths(options.kv_lens, "--kv-lens")
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
            grid=read_single_params(options.param),
        )
    except BaseException as error:  # with the variants that were finished, where any was begun
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
    from bwprof.experiments.ablation_table import VARIANT

    stopped, code = isinstance(ending, KeyboardInterrupt), OK
    trouble: OSError | None = None
    if found.empty:  # nothing was finished
        targets, options.output = {}, None
    piped = {kind: name for kind, name in targets.items() if name == "-" or is_stream(Path(name))}
    text_of = partial(_ablation_text, found)
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
    failed = found["status"].eq("failed") & found["kind"].eq(VARIANT)
    return INCOMPLETE if ending is not None or failed.any() else code


def _tell(found: pd.DataFrame, ending: BaseException | None, *, stopped: bool) -> None:
    """What ended it early, how much there is and what is missing."""
    from bwprof.experiments.ablation_table import MISSING

    if not stopped and ending is None:
        return
    missing = found.attrs.get(MISSING, [])
    kept = (
        f"what was measured until then, {plural(len(found), 'variant')}, is kept"
        if len(found)
        else "nothing is measured"
    )
    lacking = f"; not measured: {', '.join(missing)}" if missing else ""
    why = "interrupted" if stopped else f"error: {ending}"
    sys.stderr.write(f"bwprof: {why}: {kept}{lacking}\n")


def _ablation_text(found: pd.DataFrame, kind: str) -> str:
    from bwprof.experiments import ablation_table
    from bwprof.results import frame

    if kind == "csv":
        return frame.format_csv(found)
    return _json(found) if kind == "json" else ablation_table.markdown(found)


def _drawn(found: pd.DataFrame, target: str) -> bool:
    """Draw the picture; False, and a sentence, where that cannot be."""
    from bwprof.plot import ablations

    try:
        ablations.save_ablation(found, target)
    except StoppedError:
        raise
    except Exception as error:  # whatever matplotlib raises: the rows are there
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        sys.stderr.write(f"bwprof: error: {quote_text(target)}, the picture, is not written: {said}\n")
        return False
    return True


def _show(found: pd.DataFrame) -> None:
    from bwprof.experiments import ablation_table

    screen = make_console(sys.stdout)
    show_table(screen, ablation_table.title(found), ablation_table.table(found), numbers=ablation_table.NUMBERS)
    show_table(screen, "Predicted and measured", ablation_table.gains(found), numbers=ablation_table.GAINS_NUMBERS)
    screen.print()
    for note in ablation_table.notes(found):
        screen.print(wrapped(note, screen))


def _json(found: pd.DataFrame) -> str:
    from bwprof.results.json_file import to_json_value
    from bwprof.results.reader import ABLATION_FORMAT

    document: dict[str, Any] = {
        "format": ABLATION_FORMAT,
        "torch": found.attrs["torch"],
        "missing": found.attrs["missing"],
        "run": to_json_value(dict(found.attrs["run"])),
        "rows": json.loads(found.to_json(orient="records", double_precision=15)),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
