"""The command ``bwprof ab``: two sides measured turn by turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from bwprof import hardware, registry
from bwprof.cli.analyze import wrapped
from bwprof.cli.shared.arguments import BACKEND_HELP, DEVICE_HELP, Parser
from bwprof.cli.shared.guard import GATE_FAILED, INCOMPLETE, INTERRUPTED, OK
from bwprof.cli.shared.measuring import run_measuring
from bwprof.cli.shared.options import add_kv_lens, add_param, read_params
from bwprof.cli.shared.outputs import rescue, targets_of, write_each
from bwprof.paired import asked, places, result, run, session
from bwprof.paired.asked import Options
from bwprof.paired.function import checked_threads, complete, is_same
from bwprof.paired.places import Wanted
from bwprof.paired.process import DEFAULT_TURN_SECONDS
from bwprof.paired.result import Table
from bwprof.paired.session import DEFAULT_REL_CI, DEFAULT_SECONDS, How
from bwprof.paired.statistics import DEFAULT_GATE, fails, may_fail
from bwprof.runs.interrupts import Interrupts, StoppedError
from bwprof.terminal import console, print_table
from bwprof.text import counted, fraction, parse_count, quoted, seconds, words

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


def main(arguments: Sequence[str] | None = None) -> int:
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
    where.add_argument("--device", metavar="D", help=DEVICE_HELP)
    where.add_argument("--backend", metavar="NAME", help=BACKEND_HELP)
    where.add_argument("--threads", metavar="N", help="of a CPU (default: all); one scatters least on a busy machine")
    what = parser.add_argument_group("what to measure")
    add_param(what)
    add_kv_lens(what)
    what.add_argument("--precision", metavar="P,…", help=f"of an operation (default: {asked.DEFAULT_PRECISION})")
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
    targets = targets_of(options)
    limit = None if options.fail_on is None else fraction(options.fail_on, "--fail-on")
    wanted = Wanted(
        tuple(options.python),
        tuple(options.rev),
        options.repo,
        options.build,
        None if options.threads is None else checked_threads(parse_count(options.threads, "--threads"), "--threads"),
        seconds(options.max_turn_seconds, "--max-turn-seconds", text=True),
    )
    how = How(
        fraction(options.rel_ci, "--rel-ci"),
        seconds(options.max_seconds, "--max-seconds", text=True),
        fraction(options.gate, "--gate"),
        registry.check_seed(parse_count(options.seed, "--seed")),
    )
    names = (options.a, complete(options.b, options.a, wanted))
    choice = hardware.choose(options.backend, options.device)
    works = asked.works(*names, _options(options, how.seed), choice.backend)
    table = run.start(choice, how, given, {})

    def say(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    say(f"measuring {choice.backend}:{choice.index} {choice.name} ({choice.reason})")
    stopped = failed = False
    try:
        with ExitStack() as stack:
            make, commits = stack.enter_context(places.makers(wanted, choice, interrupts, say))
            pairs = run.with_note(run.pairs_apart(works, make), same=is_same(names, wanted, commits))
            for number, pair in enumerate(pairs, start=1):
                say(f"{number} of {len(pairs)}: {pair.case}{' (hot)' if pair.cache == 'hot' else ''}")
                found = run.measure(pair, how, table, interrupts.check, run.nothing_compared)
                failed |= found.stopped == session.FAILED
    except (StoppedError, KeyboardInterrupt):
        stopped = True
    table.finish("interrupted" if stopped else "failed" if failed else "complete")
    written = write_each(targets, lambda kind: _text(table, kind))
    if "-" not in targets.values():
        _print(table)
    for kind in targets.keys() - written:
        rescue(kind, _text(table, kind))
    if stopped:
        measured = counted(sum(row["pairs"] for row in table.rows), "pair")
        left = len(works) - len(table.rows)
        more = f"; {left} of {len(works)} comparisons were not begun" if left else ""
        sys.stderr.write(f"bwprof: interrupted: what was measured until then, {measured}, is kept{more}\n")
        return INTERRUPTED if written == targets.keys() else INCOMPLETE
    for row in table.rows:
        if row["stopped"] == session.FAILED:
            sys.stderr.write(f"bwprof: error: {row['case']}: {row['reason']}\n")
    gate = OK if limit is None else _gate(table, limit, options)
    return INCOMPLETE if failed or written != targets.keys() else gate


def _gate(table: Table, limit: float, options: argparse.Namespace) -> int:
    """What --fail-on makes of the rows whose sides could go on, in words too; the exit code."""
    code = OK
    for row in table.rows:
        if row["stopped"] == session.FAILED:
            continue
        said = ""
        if row["ratio"] is not None and fails(row["ratio"], row["verdict"], limit):
            code, said = GATE_FAILED, "B is slower"
        elif may_fail(row["ratio_hi"], row["verdict"], limit):
            code, said = code or INCOMPLETE, _missing(row, options)
        if said:
            sys.stderr.write(f"bwprof: --fail-on {options.fail_on}: {row['case']}: {said}\n")
    return code


def _missing(row: dict[str, Any], options: argparse.Namespace) -> str:
    """What is not known, and which option brings it."""
    high = row["ratio_hi"]
    known = "nothing says how much slower B may be" if high is None else f"B may be {100 * (high - 1):.2f} % slower"
    more = f"--max-seconds is {options.max_seconds}: more would tell"
    if row["stopped"] == session.PRECISE:
        more = f"--rel-ci is {options.rel_ci}: less would tell"
    return f"undecided: {known} ({row['reason']}); {more}"


def _options(options: argparse.Namespace, seed: int) -> Options:
    return Options(
        params=read_params(options.param),
        kv_lens=registry.lengths(options.kv_lens, "--kv-lens"),
        precisions=words("--precision", options.precision),
        caches=words("--cache", options.cache),
        timer=options.timer,
        seed=seed,
    )


def _text(table: Table, kind: str) -> str:
    return table.json_text() if kind == "json" else table.csv_text()


def _print(table: Table) -> None:
    screen = console(sys.stdout)
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
        if row["stopped"] != session.FAILED:  # which is an error, said elsewhere
            screen.print(wrapped(result.sentence(row), screen))
    for side in ("a", "b"):
        told = next((row for row in table.rows if row[f"{side}_environment"]), None)
        if told is not None:
            screen.print(wrapped(f"{side.upper()}: {quoted(told[side])}, {told[f'{side}_environment']}", screen))
    if measured:
        screen.print(f"from, to: the {result.level_text()} interval of B's time divided by A's")
