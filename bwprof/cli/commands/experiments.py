"""The commands ``bwprof ab`` (two sides in turn) and ``bwprof ablation`` (an operation's variants)."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bwprof import hardware, registry
from bwprof.cli import options as shared
from bwprof.cli.guard import GATE_FAILED, INCOMPLETE, INTERRUPTED, OK
from bwprof.cli.options import command, measuring_command
from bwprof.cli.output import check_picture, choose_targets, json_text, rescue, write_each
from bwprof.cli.render import print_frame, print_lines
from bwprof.experiments import ab, ab_run, ab_session
from bwprof.experiments.ab import complete_b
from bwprof.experiments.ab_process import DEFAULT_TURN_SECONDS, PlaceRequest, open_places
from bwprof.experiments.ab_run import ABTable
from bwprof.results.atomic import is_stream
from bwprof.runs import StoppedError
from bwprof.runs.channel import Interrupts
from bwprof.runs.plan import DEFAULT_CASE_SECONDS, SweepRequest
from bwprof.text.formatting import plural
from bwprof.text.parsing import quote_text
from bwprof.text.terminal import make_console, print_table

if TYPE_CHECKING:
    import pandas as pd


_NUMBERS = ("A, ms", "B, ms", "B / A", "from", "to", "pairs")


@measuring_command(f"""\
a=A  OPERATION, OPERATION:VARIANT, or a function of the current folder or revision: module:function, file.py:function
b=B?  the other side, as A (default: A in the other interpreter or revision)

where the sides run:
--python PATH ...  an interpreter that has bwprof; given twice: A's, then B's
--rev REV ...  a git revision; given twice: A's, then B's
--repo DIR = .  the repository of the revisions
--build COMMAND  a shell command that builds a revision in its worktree
{shared.DEVICE}
--threads N  CPU threads (default: all); 1 is least noisy on a busy machine

what to measure:
{shared.PARAM}
{shared.KV_LENS}
--precision P,…  precision of an operation (default: {ab.DEFAULT_PRECISION})
--cache cold|hot|both,…  as in bwprof sweep (default: cold)
--timer NAME  as in bwprof sweep
--seed N = 0  seed of the order and of the generated inputs

when to stop, and how to judge:
--rel-ci SHARE = {ab_session.DEFAULT_REL_CI:.1%}  stop when the ratio is known within this share
--max-seconds SECONDS = {ab_session.DEFAULT_SECONDS:g}  limit of one comparison
--gate SHARE = {ab_session.DEFAULT_GATE:.0%}  the smallest difference to report
--fail-on SHARE  exit with 1 if B is slower by more than this, such as 2%, and with 3 if that is undecided
--max-turn-seconds SECONDS = {DEFAULT_TURN_SECONDS:g}  limit of one turn

output:
{shared.FILES}
-q, --quiet  print no progress
{shared.VERBOSE}""")
def main_ab(options: argparse.Namespace) -> int:
    """Measure which of A and B is faster, and by how much.

    They run in short turns in random order, each in its own process.

    Examples:
      bwprof ab gemm:naive gemm:blocked -p M=64                    two variants of an operation
      bwprof ab my.kernels:old my.kernels:new --fail-on 2%         two functions; exit code 1 if the second is slower
      bwprof ab bench.py:step --rev v1.2 --rev HEAD --build make   two revisions of this repository

    A function gets the values of -p. If it returns a callable, bwprof measures that.
    exit codes: 0 ok, 1 B is slower (--fail-on), 2 usage, 3 incomplete (a side failed, the results were not written, or
    --fail-on is undecided), 130 interrupted.
    """
    targets = choose_targets(options)
    interpreters, revisions = tuple(options.python), tuple(options.rev)
    seconds = options.max_turn_seconds
    places = PlaceRequest(interpreters, revisions, options.repo, options.build, options.threads, seconds)
    rule = ab_session.StopRule(options.rel_ci, options.max_seconds, options.gate, registry.check_seed(options.seed))
    names = (options.a, complete_b(options.b, options.a, places))
    choice = hardware.choose_device(options.backend, options.device)
    works = ab.make_tasks(*names, shared.read_params(options.param), _read_cases(options), choice.backend)
    table = ABTable.start(choice, rule, options.argv)

    def report(text: str) -> None:
        if not options.quiet:
            sys.stderr.write(f"bwprof: {text}\n")

    report(f"measuring {choice.backend}:{choice.index} {choice.name} ({choice.reason})")
    stopped = False
    try:
        with ExitStack() as stack:
            make, same_place = stack.enter_context(open_places(places, choice, options.interrupts, report))
            pairs = ab_run.make_pairs(works, make, same_place=same_place)
            for number, pair in enumerate(pairs, start=1):
                report(f"{number} of {len(pairs)}: {pair.case}{' (hot)' if pair.cache == 'hot' else ''}")
                ab_run.measure_pair(pair, rule, table, options.interrupts.check, ab_run.compare_nothing)
    except (StoppedError, KeyboardInterrupt):
        stopped = True
    failed = [row for row in table.rows if row["stopped"] == ab_session.FAILED]
    table.finish("interrupted" if stopped else "failed" if failed else "complete")
    complete = _write_ab(table, targets)
    if stopped:
        _report_interruption(table, len(works))
        return INTERRUPTED if complete else INCOMPLETE
    sys.stderr.writelines(f"bwprof: error: {row['case']}: {row['reason']}\n" for row in failed)
    code = OK if options.fail_on is None else judge_rows(table, options)
    return code if complete and not failed else INCOMPLETE


def _read_cases(options: argparse.Namespace) -> SweepRequest:
    return SweepRequest(
        kv_lens=options.kv_lens,
        precisions=options.precision or (),
        caches=options.cache or (),
        timer=options.timer,
        seed=registry.check_seed(options.seed),
    )


def _report_interruption(table: ABTable, comparisons: int) -> None:
    """Print on standard error what an interrupted table has, and lacks."""
    measured = plural(sum(row["pairs"] for row in table.rows), "pair")
    left = comparisons - len(table.rows)
    more = f"; {left} of {comparisons} comparisons were not begun" if left else ""
    sys.stderr.write(f"bwprof: interrupted: what was measured until then, {measured}, is kept{more}\n")


def _write_ab(table: ABTable, targets: dict[str, str]) -> bool:
    """Print and write the rows, on standard error where they cannot be written; return whether they were."""
    texts = {"json": table.json_text, "csv": table.csv_text}
    written = write_each(targets, texts)
    if "-" not in targets.values():
        _print_ab(table)
    for kind in targets.keys() - written:
        rescue(kind, texts[kind]())
    return written == targets.keys()


def judge_rows(table: ABTable, options: argparse.Namespace) -> int:
    """Judge the rows whose sides could go on by --fail-on; returns the exit code."""
    code = OK
    for row in [row for row in table.rows if row["stopped"] != ab_session.FAILED]:
        message = ""
        exceeds = ab_session.exceeds_limit(row["ratio"], row["ratio_hi"], row["verdict"], options.fail_on)
        if exceeds:
            code, message = GATE_FAILED, "B is slower"
        elif exceeds is None:
            code, message = code or INCOMPLETE, _describe_undecided(row, options)
        if message:
            sys.stderr.write(f"bwprof: --fail-on {100 * options.fail_on:g}%: {row['case']}: {message}\n")
    return code


def _describe_undecided(row: dict[str, Any], options: argparse.Namespace) -> str:
    high = row["ratio_hi"]
    known = "nothing says how much slower B may be" if high is None else f"B may be {100 * (high - 1):.2f} % slower"
    more = f"--max-seconds is {options.max_seconds:g}: more would tell"
    if row["stopped"] == ab_session.PRECISE:
        more = f"--rel-ci is {100 * options.rel_ci:g}%: less would tell"
    return f"undecided: {known} ({row['reason']}); {more}"


def _print_ab(table: ABTable) -> None:
    screen = make_console(sys.stdout)
    lines = []
    for row in [row for row in table.rows if row["ratio"] is not None]:
        case = f"{row['case']} (hot)" if row["cache"] == "hot" else row["case"]
        specs = {"a_time_ms": ".4g", "b_time_ms": ".4g", "ratio": ".4f", "ratio_lo": ".4f", "ratio_hi": ".4f"}
        figures = ["-" if row[name] is None else format(row[name], spec) for name, spec in specs.items()]
        lines.append([case, *figures, str(row["pairs"]), row["verdict"]])
    if lines:
        print_table(screen, ["case", *_NUMBERS, "B is"], lines, numbers=_NUMBERS)
    # A failed side is an error, which standard error has.
    print_lines(screen, [ab_run.describe_row(row) for row in table.rows if row["stopped"] != ab_session.FAILED])
    for side in ("a", "b"):
        for row in [row for row in table.rows if row[f"{side}_environment"]][:1]:
            print_lines(screen, [f"{side.upper()}: {quote_text(row[side])}, {row[f'{side}_environment']}"])
    if lines:
        screen.print(f"from, to: the {100 * ab_session.LEVEL:g} % interval of B's time divided by A's")


@command(f"""\
operation=OPERATION  the operation; without -p and --kv-lens bwprof measures the shape of its predictions
{shared.SINGLE_PARAM}
{shared.KV_LENS}
--precision P  the precision (default: that of its predictions, else fp32)
--vs torch  also measure PyTorch's functions, if it is installed
--variant V  only these variants, such as naive,blocked
--device D  cpu, cuda, cuda:1 or a number
--cache cold|hot = cold  inputs outside or inside the cache
--timer T  as in bwprof sweep
--metrics M  as in bwprof sweep
--max-seconds SECONDS|0 = {DEFAULT_CASE_SECONDS:g}  limit of each variant's sampling
{shared.ROOFS}
{shared.FILES}
{shared.MARKDOWN}
-o, --output PICTURE  draw the variants; the ending is the format
-q, --quiet  print no progress
""")
def main_ablation(options: argparse.Namespace) -> int:
    """Measure an operation's variants on one shape, from the plainest to the best.

    Print what each variant changes, its predicted gain and its measured gain.

    Examples:
      bwprof ablation gemm --vs torch                    beside PyTorch
      bwprof ablation gemm -p M=4096 --precision fp16    another shape and precision
      bwprof ablation gemm --md ladder.md -o ladder.png

    exit codes: 0 ok, 2 usage, 3 incomplete (a variant or the device failed, a file was not written), 130 interrupted.
    """
    from bwprof.experiments.ablation import ablation

    targets = choose_targets(options)
    if options.output is not None:
        check_picture("-o", options.output, force=options.force, targets=targets)
    roofs = shared.read_roofs(options)
    same = ("precision", "vs", "variant", "device", "cache", "timer", "metrics", "max_seconds", "kv_lens")
    ending: BaseException | None = None
    try:
        data = ablation(
            options.operation,
            **{name: getattr(options, name) for name in same},
            roofs="auto" if roofs is None else roofs,
            progress=not options.quiet,
            grid=shared.read_single_params(options.param),
        )
    except BaseException as error:  # with the finished variants, where any was begun
        if not hasattr(error, "frame"):
            raise
        ending, data = error, error.frame
    if data.empty:  # nothing was finished
        targets, options.output = {}, None
    with Interrupts() as interrupts:
        return _finish_ablation(data, targets, options.output, interrupts, ending)


def _finish_ablation(
    data: pd.DataFrame,
    targets: dict[str, str],
    picture: str | None,
    interrupts: Interrupts,
    ending: BaseException | None,
) -> int:
    """Write, print and draw an ablation, each whatever becomes of the others; returns the exit code."""
    from bwprof.experiments.ablation_table import PEER

    complete, stopped, trouble = _write_ablation(data, targets, picture, interrupts)
    stopped = stopped or isinstance(ending, KeyboardInterrupt)
    if stopped or ending is not None:
        sys.stderr.write(f"bwprof: {'interrupted' if stopped else f'error: {ending}'}: {_describe_rest(data)}\n")
    if isinstance(trouble, OSError):
        raise trouble
    if stopped and complete:
        return INTERRUPTED
    failed = (data["status"].eq("failed") & data["kind"].ne(PEER)).any()
    return OK if complete and trouble is None and ending is None and not failed else INCOMPLETE


def _write_ablation(
    data: pd.DataFrame, targets: dict[str, str], picture: str | None, interrupts: Interrupts
) -> tuple[bool, bool, OSError | str | None]:
    """Write files first, then what may block: pipes, the screen, the picture.

    Return whether all files are written, whether the user stopped it, and what prevents the screen or the picture.
    """
    texts = _ablation_texts(data)
    trouble: OSError | str | None = None
    stopped = False
    files, piped = _split_targets(targets)
    written = write_each(files, texts)
    try:
        with interrupts.at_once():
            written |= write_each(piped, texts)
            if "-" not in piped.values() and not data.empty:
                trouble = _print_ablation(data)
            if picture is not None and not _draw(data, picture):
                trouble = trouble or "no picture"
    except StoppedError:
        stopped = True
    lost = targets.keys() - written
    if isinstance(trouble, OSError) and trouble.errno != errno.EPIPE and not written:
        lost = lost | {"csv"}
    for kind in lost:
        rescue(kind, texts[kind]())
    return written == targets.keys(), stopped, trouble


def _split_targets(targets: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files, and the streams, whose reader may block."""
    piped = {kind: name for kind, name in targets.items() if name == "-" or is_stream(Path(name))}
    return {kind: name for kind, name in targets.items() if kind not in piped}, piped


def _describe_rest(data: pd.DataFrame) -> str:
    """Describe what an ablation that ended early has, and lacks."""
    from bwprof.experiments.ablation_table import MISSING

    state = (
        f"what was measured until then, {plural(len(data), 'variant')}, is kept" if len(data) else "nothing is measured"
    )
    missing = data.attrs.get(MISSING, [])
    return f"{state}; not measured: {', '.join(missing)}" if missing else state


def _print_ablation(data: pd.DataFrame) -> OSError | None:
    """Print the tables; return what prevents it."""
    from bwprof.experiments import ablation_table as tables

    screen = make_console(sys.stdout)
    try:
        print_frame(screen, tables.title(data), tables.table(data), numbers=tables.NUMBERS)
        print_frame(screen, "Predicted and measured", tables.gains(data), numbers=tables.GAINS_NUMBERS)
        screen.print()
        print_lines(screen, tables.notes(data))
        sys.stdout.flush()
    except OSError as error:
        return error
    return None


def _ablation_texts(data: pd.DataFrame) -> dict[str, Callable[[], str]]:
    from bwprof.experiments import ablation_table
    from bwprof.results import frame
    from bwprof.results.json_file import to_json_value
    from bwprof.results.reader import ABLATION_FORMAT

    def to_json() -> str:
        facts = {name: data.attrs[name] for name in ("torch", "missing")} | {"run": to_json_value(data.attrs["run"])}
        rows = json.loads(data.to_json(orient="records", double_precision=15))
        return json_text({"format": ABLATION_FORMAT, **facts, "rows": rows})

    return {
        "csv": lambda: frame.format_csv(data),
        "md": lambda: ablation_table.markdown(data),
        "json": to_json,
    }


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
