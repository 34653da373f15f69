"""The commands ``bwprof ab`` (two sides in turn) and ``bwprof ablation`` (an operation's variants)."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import hardware, registry
from bwprof.cli import options as shared
from bwprof.cli.display import print_frame, print_lines
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, INTERRUPTED, OK
from bwprof.cli.options import Parser, read_fraction, read_seconds, run, run_measuring
from bwprof.cli.output import check_picture, choose_targets, json_text, rescue, write_each
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
Measure which of two is faster, and by how much: A and B run turn by turn on one device, in random order, each in a
process of its own. The paired ratios of their times say whether B is faster, slower, same or undecided.
"""

_TABLE = f"""\
a=A  OPERATION, OPERATION:VARIANT, module:function or file.py:function
b=B?  likewise (default: A, in another interpreter or revision)

where the sides run:
--python PATH ...  an interpreter that has bwprof; twice: A's and B's; once: of both
--rev REV ...  a git revision; twice: A's and B's
--repo DIR  of the revisions (default: the one here)
--build COMMAND  a shell command that makes a revision's worktree ready; it runs there
{shared.DEVICE}
--threads N  of a CPU (default: all); one scatters least on a busy machine

what to measure:
{shared.PARAM}
{shared.KV_LENS}
--precision P,…  of an operation (default: {ab.DEFAULT_PRECISION})
--cache cold|hot|both  as in bwprof sweep (default: cold)
--timer NAME  as in bwprof sweep
--seed N  of the order and of the generated inputs (default: 0)

how:
--rel-ci FRACTION  stop when the ratio is known to this, half of its interval (99.5 %): 0.005, or 0.5% (default)
--max-seconds SECONDS  the most for one comparison, once both sides are open (default: {DEFAULT_SECONDS:g})
--gate FRACTION  smallest difference to report (default: {DEFAULT_GATE:.0%})
--fail-on FRACTION  exit code 1 where B is slower by more than this: 2%; 3 where it is undecided, and may be
--max-turn-seconds SECONDS  for one answer of a side, whose process then ends (default: {DEFAULT_TURN_SECONDS:g})

output:
{shared.FILES}
-q, --quiet  no progress, only warnings and errors
{shared.VERBOSE}"""

_EPILOG = """\
examples:
  %(prog)s {first}:{one} {first}:{other} -p {param}={value}       two variants of an operation
  %(prog)s my.kernels:old my.kernels:new               two functions, module:function or file.py:function
  %(prog)s {first} --python old/bin/python --python new/bin/python   two interpreters, each with its bwprof
  %(prog)s bench.py:step --python old/bin/python --python new/bin/python    ... or with a kernel package
  %(prog)s bench.py:step --rev v1.2 --rev HEAD --build "make"     two revisions of the repository here
  %(prog)s my.kernels:old my.kernels:new --fail-on 2%%   exit code 1 where B is slower by more than that

A function is called with the arguments of -p alone. Where it returns a callable, that is measured, and the call
prepares it. Its module is looked for where the command runs, of revisions in their worktrees.
exit codes: 0 ok, 1 --fail-on: B is slower, 2 usage, 3 incomplete (a side failed; --fail-on: B may be slower by more,
but it is undecided; results could not be written: they are on standard error), 130 interrupted.
"""

_NUMBERS = ("A, ms", "B, ms", "B / A", "from", "to", "pairs")


def main_ab(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    argv = list(arguments or ())
    return run_measuring(_parser(), argv, lambda options, interrupts: _compare(options, argv, interrupts))


def _parser() -> Parser:
    example = next(row for row in registry.operations() if not row["is_stream"])
    variants = next(list(names) for names in example["variants"].values() if len(names) > 1)
    words = {
        "first": example["name"],
        "one": variants[0]["name"],
        "other": variants[1]["name"],
        "param": example["params"][0]["name"],
        "value": str(example["params"][0]["default"]),
    }
    epilog = _EPILOG
    for name, word in words.items():
        epilog = epilog.replace(f"{{{name}}}", word)
    defaults = {
        "repo": ".",
        "seed": "0",
        "rel_ci": f"{DEFAULT_REL_CI}",
        "max_seconds": f"{DEFAULT_SECONDS}",
        "gate": f"{DEFAULT_GATE}",
        "max_turn_seconds": f"{DEFAULT_TURN_SECONDS}",
    }
    return Parser("bwprof ab", _DESCRIPTION, _TABLE, epilog, **defaults)


def _compare(options: argparse.Namespace, argv: Sequence[str], interrupts: Interrupts) -> int:
    targets = choose_targets(options)
    limit = read_fraction(options, "fail_on")
    threads = None if options.threads is None else check_threads(parse_count(options.threads, "--threads"), "--threads")
    turn_seconds = parse_seconds(options.max_turn_seconds, "--max-turn-seconds", text=True)
    places = PlaceRequest(tuple(options.python), tuple(options.rev), options.repo, options.build, threads, turn_seconds)
    rule = StopRule(
        parse_fraction(options.rel_ci, "--rel-ci"),
        parse_seconds(options.max_seconds, "--max-seconds", text=True),
        parse_fraction(options.gate, "--gate"),
        registry.check_seed(parse_count(options.seed, "--seed")),
    )
    names = (options.a, complete_b(options.b, options.a, places))
    choice = hardware.choose_device(options.backend, options.device)
    works = ab.make_tasks(*names, _read_options(options, rule.seed), choice.backend)
    table = ab_run.start_table(choice, rule, argv, {})

    def report(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    report(f"measuring {choice.backend}:{choice.index} {choice.name} ({choice.reason})")
    stopped = failed = False
    try:
        with ExitStack() as stack:
            make, commits = stack.enter_context(ab_run.open_places(places, choice, interrupts, report))
            pairs = ab_run.add_note(ab_run.make_process_pairs(works, make), same=are_same(names, places, commits))
            for number, pair in enumerate(pairs, start=1):
                report(f"{number} of {len(pairs)}: {pair.case}{' (hot)' if pair.cache == 'hot' else ''}")
                result = ab_run.measure_pair(pair, rule, table, interrupts.check, ab_run.compare_nothing)
                failed |= result.stopped == ab_session.FAILED
    except (StoppedError, KeyboardInterrupt):
        stopped = True
    table.finish("interrupted" if stopped else "failed" if failed else "complete")
    complete_output = _write_table(table, targets)
    return _finish(options, table, limit, len(works), stopped=stopped, complete_output=complete_output)


def _finish(
    options: argparse.Namespace,
    table: ABTable,
    limit: float | None,
    count: int,
    *,
    stopped: bool,
    complete_output: bool,
) -> int:
    """Print what ended the measuring early, and judge the rows; returns the exit code."""
    if stopped:
        measured = plural(sum(row["pairs"] for row in table.rows), "pair")
        left = count - len(table.rows)
        more = f"; {left} of {count} comparisons were not begun" if left else ""
        sys.stderr.write(f"bwprof: interrupted: what was measured until then, {measured}, is kept{more}\n")
        return INTERRUPTED if complete_output else INCOMPLETE
    failed = [row for row in table.rows if row["stopped"] == ab_session.FAILED]
    sys.stderr.writelines(f"bwprof: error: {row['case']}: {row['reason']}\n" for row in failed)
    gate = OK if limit is None else _gate(table, limit, options)
    return gate if complete_output and not failed else INCOMPLETE


def _write_table(table: ABTable, targets: dict[str, str]) -> bool:
    """Print and write the rows, on standard error where they cannot be written; return whether they were."""
    texts = {"json": table.json_text, "csv": table.csv_text}
    written = write_each(targets, lambda kind: texts[kind]())
    if "-" not in targets.values():
        _print(table)
    for kind in targets.keys() - written:
        rescue(kind, texts[kind]())
    return written == targets.keys()


def _gate(table: ABTable, limit: float, options: argparse.Namespace) -> int:
    """Judge the rows whose sides could go on by --fail-on; returns the exit code."""
    code = OK
    for row in table.rows:
        if row["stopped"] == ab_session.FAILED:
            continue
        message = ""
        if row["ratio"] is not None and exceeds_limit(row["ratio"], row["verdict"], limit):
            code, message = GATE_FAILED, "B is slower"
        elif may_exceed_limit(row["ratio_hi"], row["verdict"], limit):
            code, message = code or INCOMPLETE, _describe_undecided(row, options)
        if message:
            sys.stderr.write(f"bwprof: --fail-on {options.fail_on}: {row['case']}: {message}\n")
    return code


def _describe_undecided(row: dict[str, Any], options: argparse.Namespace) -> str:
    high = row["ratio_hi"]
    known = "nothing says how much slower B may be" if high is None else f"B may be {100 * (high - 1):.2f} % slower"
    more = f"--max-seconds is {options.max_seconds}: more would tell"
    if row["stopped"] == ab_session.PRECISE:
        more = f"--rel-ci is {options.rel_ci}: less would tell"
    return f"undecided: {known} ({row['reason']}); {more}"


def _read_options(options: argparse.Namespace, seed: int) -> ABOptions:
    return ABOptions(
        params=shared.read_params(options.param),
        kv_lens=registry.parse_lengths(options.kv_lens, "--kv-lens"),
        precisions=parse_names("--precision", options.precision),
        caches=parse_names("--cache", options.cache),
        timer=options.timer,
        seed=seed,
    )


def _print(table: ABTable) -> None:
    screen = make_console(sys.stdout)
    lines = []
    for row in table.rows:
        if row["ratio"] is None:
            continue
        case = f"{row['case']} (hot)" if row["cache"] == "hot" else row["case"]
        times = [_format(row[name], ".4g") for name in ("a_time_ms", "b_time_ms")]
        ratios = [_format(row[name], ".4f") for name in ("ratio", "ratio_lo", "ratio_hi")]
        lines.append([case, *times, *ratios, str(row["pairs"]), row["verdict"]])
    if lines:
        print_table(screen, ["case", *_NUMBERS, "B is"], lines, numbers=_NUMBERS)
    # A failed side is an error, which standard error has.
    print_lines(screen, [ab_result.describe_row(row) for row in table.rows if row["stopped"] != ab_session.FAILED])
    for side in ("a", "b"):
        for row in [row for row in table.rows if row[f"{side}_environment"]][:1]:
            print_lines(screen, [f"{side.upper()}: {quote_text(row[side])}, {row[f'{side}_environment']}"])
    if lines:
        screen.print(f"from, to: the {ab_result.level_text()} interval of B's time divided by A's")


def _format(number: float | None, spec: str) -> str:
    return "-" if number is None else format(number, spec)


_ABLATION_DESCRIPTION = """\
Measure an operation's variants on one shape, the simplest first: what each changes, what that was predicted to bring,
and what it brings. Without parameters and lengths it is the shape of the predictions.
"""

_ABLATION_TABLE = f"""\
operation=OPERATION  the operation (see bwprof --list)
{shared.SINGLE_PARAM}
{shared.KV_LENS}
--precision P  the precision (default: the predictions', else fp32)
--vs torch  measure PyTorch's counterparts, too, where it is installed
--variant V,…  only these variants
--device D  cpu, cuda, cuda:1, or a number
--cache cold|hot  cold (default) or hot
--timer T  on a GPU graph (default), events or cupti
--metrics M,…  what else to count: occupancy is the achieved one
--max-seconds SECONDS  of sampling for each (default: {DEFAULT_CASE_SECONDS:g})
{shared.ROOFS}
{shared.FILES}
--md FILE|-  tables in Markdown
-o, --output PICTURE  draw the variants; the ending says the format
-q, --quiet  no progress
"""

_ABLATION_EPILOG = """\
Within a factor of two, gains are in per cent; CSV and JSON have ratios. A variant that brings nothing shows 0 %%. A
variant that refuses the shape is listed with its reason.

examples:
  %(prog)s OPERATION --vs torch                beside PyTorch's counterpart
  %(prog)s OPERATION -p NAME=4096 --precision fp16
  %(prog)s OPERATION --md ladder.md -o ladder.png

exit codes: 0 ok, 2 usage, 3 incomplete (a variant failed, the device was lost, something could not be written), 130
interrupted; what was measured until then is printed and written.
"""


# Options that are arguments of `bwprof.ablation` as they are.
_ABLATION_ARGUMENTS = ("precision", "vs", "variant", "device", "cache", "timer", "metrics")


def main_ablation(arguments: Sequence[str] | None = None) -> int:
    """Measure an operation's variants and print them; returns the exit code."""
    parser = Parser("bwprof ablation", _ABLATION_DESCRIPTION, _ABLATION_TABLE, _ABLATION_EPILOG, cache="cold")
    return run(parser, arguments, _ablate)


def _ablate(options: argparse.Namespace) -> int:
    from bwprof.experiments.ablation import ablation

    targets = choose_targets(options)
    if options.output is not None:
        check_picture("-o", options.output, force=options.force, targets=targets)
    seconds = read_seconds(options, "max_seconds", from_zero=True)
    roofs = shared.read_roofs(options)
    lengths = registry.parse_lengths(options.kv_lens, "--kv-lens")
    ending: BaseException | None = None
    try:
        data = ablation(
            options.operation,
            **{name: getattr(options, name) for name in _ABLATION_ARGUMENTS},
            max_seconds=DEFAULT_CASE_SECONDS if seconds is None else seconds,
            roofs="auto" if roofs is None else roofs,
            progress=not options.quiet,
            kv_lens=lengths,
            grid=shared.read_single_params(options.param),
        )
    except BaseException as error:  # with the finished variants, where any was begun
        if not hasattr(error, "frame"):
            raise
        ending, data = error, error.frame
    if data.empty:  # nothing was finished
        targets, options.output = {}, None
    with Interrupts() as interrupts:
        output = _AblationOutput(data, targets, options.output)
        output.write(interrupts, stopped=isinstance(ending, KeyboardInterrupt))
        return output.finish(ending)


class _AblationOutput:
    """Writes, prints and draws an ablation, each whatever becomes of the others."""

    def __init__(self, data: pd.DataFrame, targets: dict[str, str], picture: str | None) -> None:
        self._data, self._targets, self._picture = data, targets, picture
        self._written: set[str] = set()
        self._stopped = self._undrawn = False
        self._trouble: OSError | None = None  # of the standard output

    def write(self, interrupts: Interrupts, *, stopped: bool) -> None:
        """Write files first, then what may block: pipes, the screen, the picture."""
        self._stopped = stopped
        piped = {kind: name for kind, name in self._targets.items() if name == "-" or is_stream(Path(name))}
        files = {kind: name for kind, name in self._targets.items() if kind not in piped}
        self._written = write_each(files, self._text)
        try:
            with interrupts.at_once():
                self._written |= write_each(piped, self._text)
                if "-" not in piped.values() and not self._data.empty:
                    self._print()
                self._undrawn = self._picture is not None and not _draw(self._data, self._picture)
        except StoppedError:
            self._stopped = True

    def _print(self) -> None:
        from bwprof.experiments import ablation_table as tables

        screen, data = make_console(sys.stdout), self._data
        try:
            print_frame(screen, tables.title(data), tables.table(data), numbers=tables.NUMBERS)
            print_frame(screen, "Predicted and measured", tables.gains(data), numbers=tables.GAINS_NUMBERS)
            screen.print()
            print_lines(screen, tables.notes(data))
            sys.stdout.flush()
        except OSError as error:
            self._trouble = error

    def _text(self, kind: str) -> str:
        from bwprof.experiments import ablation_table
        from bwprof.results import frame
        from bwprof.results.json_file import to_json_value
        from bwprof.results.reader import ABLATION_FORMAT

        data = self._data
        if kind == "csv":
            return frame.format_csv(data)
        if kind == "md":
            return ablation_table.markdown(data)
        rows = json.loads(data.to_json(orient="records", double_precision=15))
        facts = {
            "torch": data.attrs["torch"],
            "missing": data.attrs["missing"],
            "run": to_json_value(dict(data.attrs["run"])),
        }
        return json_text({"format": ABLATION_FORMAT, **facts, "rows": rows})

    def finish(self, ending: BaseException | None) -> int:
        """Print what could not be written, and what ended the ablation early; returns the exit code."""
        from bwprof.experiments.ablation_table import PEER

        for kind in self._targets.keys() - self._written:
            rescue(kind, self._text(kind))
        if self._trouble is not None and self._trouble.errno != errno.EPIPE and not self._written:
            rescue("csv", self._text("csv"))
        if self._stopped or ending is not None:
            sys.stderr.write(f"bwprof: {'interrupted' if self._stopped else f'error: {ending}'}: {self._state()}\n")
        if self._trouble is not None:
            raise self._trouble
        if self._written != self._targets.keys():
            return INCOMPLETE
        if self._stopped:
            return INTERRUPTED
        failed = self._data["status"].eq("failed") & self._data["kind"].ne(PEER)
        return INCOMPLETE if ending is not None or failed.any() or self._undrawn else OK

    def _state(self) -> str:
        from bwprof.experiments.ablation_table import MISSING

        count = plural(len(self._data), "variant")
        state = f"what was measured until then, {count}, is kept" if len(self._data) else "nothing is measured"
        missing = self._data.attrs.get(MISSING, [])
        return f"{state}; not measured: {', '.join(missing)}" if missing else state


def _draw(data: pd.DataFrame, target: str) -> bool:
    """Draw the picture; return False, and print why, where that fails."""
    from bwprof.plot import gains

    try:
        gains.save_ablation(data, target)
    except StoppedError:
        raise
    except Exception as error:  # whatever matplotlib raises: the rows are written
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        sys.stderr.write(f"bwprof: error: {quote_text(target)}, the picture, is not written: {reason}\n")
        return False
    return True
